/* wake.pml - sleeping and doorbells on x86-TSO.
 *
 * DESIGN.md section 3, "Waiting" and "The steward follows the call ring". Each process has a store
 * buffer (FIFO, drained at any time by the environment; its own loads see it first). A fence, a
 * locked instruction and a futex call wait until the buffer is empty. FUTEX_WAIT compares memory and
 * enqueues in one step; FUTEX_WAKE takes the waiter. No time-out: a lost wake-up is a deadlock.
 *
 * Default: the trunk's executor runs on the host and rings itself. -DCHAIN: the executor is a kernel
 * that cannot ring; the steward follows the ring while a step is open, keeps its cursor between steps, and
 * rings; the worker sleeps only while the watch word is set. It is set when the steward's thread starts and
 * cleared only when that ends for good, so workers may sleep between steps; no step record goes out before
 * the steward follows (assertion: no call becomes visible while a worker sleeps and nobody follows). Two
 * steps of two calls.
 *
 * The rule verified. Sleeper: d = doorbell; asleep = 1; fence; look again (every ring; watch word);
 * FUTEX_WAIT(doorbell, d); asleep = 0. Ringer: word; fence; if asleep: doorbell++ (locked); FUTEX_WAKE.
 *
 * Variants that must fail (deadlock): -DNO_FENCE_RINGER, -DNO_FENCE_SLEEPER, -DLATE_BELL (doorbell
 * read after the second look), -DNO_BUMP (doorbell not changed by the ringer), -DASLEEP_LATE (look
 * again before asleep = 1); -DCHAIN -DSKIP (the steward starts a step at the ring's head as it finds it),
 * -DCHAIN -DEARLY (a step record goes out before the steward follows: a call becomes visible, its owner sleeps,
 * nobody looks; assertion), -DCHAIN -DEARLY -DTELL_LAST (and the steward is told when the step's answer is in:
 * deadlock). -DCHAIN -DEARLY -DNO_SEEN passes: without the assertion it is only late, if the steward comes by itself.
 * -DCHAIN -DNO_FENCE_STEWARD passes on TSO (load, load); keep the fence: C11 asks for it.
 */
#ifndef N
#define N 4
#endif
#define WORD 0
#define ASLEEP 1
#define BELL 2
#define WATCH 3
byte mem[4];
bool waiting;                    /* in the kernel's queue */
byte got;                        /* what the worker has done */
chan sb0 = [2] of { byte, byte };   /* the executor's buffer */
chan sb1 = [2] of { byte, byte };   /* the worker's */
chan sb2 = [2] of { byte, byte };   /* the steward's */
#define FENCE(b) empty(b)
#define STORE(b, a, v) b!a,v
bool follows;                    /* ghost: the steward is in its loop */
#if defined(CHAIN) && !defined(NO_SEEN) && !defined(TELL_LAST)
#define SEEN(a) assert(a != WORD || !waiting || follows)
#else
#define SEEN(a) skip
#endif

proctype drain()
{
	byte a, v;
end:	do
	:: atomic { nempty(sb0) -> sb0?a,v; SEEN(a); mem[a] = v; a = 0; v = 0 }
	:: atomic { nempty(sb1) -> sb1?a,v; mem[a] = v; a = 0; v = 0 }
	:: atomic { nempty(sb2) -> sb2?a,v; mem[a] = v; a = 0; v = 0 }
	od
}

inline ring(b)                   /* asleep was read as 1 */
{
#ifndef NO_BUMP
	atomic { FENCE(b) -> mem[BELL]++ };
#endif
	atomic { FENCE(b) -> waiting = 0 }
}

proctype worker()
{
	byte next = 1, d;
	do
	:: next > N -> break
	:: else ->
		if
		:: mem[WORD] >= next -> atomic { got = next; next++ }
		:: mem[WORD] < next ->
#ifdef CHAIN
			if :: mem[WATCH] == 1 :: mem[WORD] >= next -> goto again fi;   /* spins while nobody watches */
#endif
#ifndef LATE_BELL
			d = mem[BELL];
#endif
#ifdef ASLEEP_LATE
			if :: mem[WORD] >= next -> goto awake :: mem[WORD] < next fi;
			STORE(sb1, ASLEEP, 1);
			FENCE(sb1);
#else
			STORE(sb1, ASLEEP, 1);
#ifndef NO_FENCE_SLEEPER
			FENCE(sb1);
#endif
			if :: mem[WORD] >= next -> goto awake :: mem[WORD] < next fi;
#ifdef CHAIN
			if :: mem[WATCH] == 0 -> goto awake :: mem[WATCH] == 1 fi;
#endif
#endif
#ifdef LATE_BELL
			d = mem[BELL];
#endif
			atomic { FENCE(sb1) -> if :: mem[BELL] == d -> waiting = 1 :: else fi };
			!waiting;
awake:			STORE(sb1, ASLEEP, 0)
		fi;
again:		d = 0
	od
}

#ifdef CHAIN
/* inside the coordinator: 1 a step is wanted, 0 it has ended, 2 no more steps. The steward takes the 1 and follows
 * from then on; the step record goes out when it has been taken (with EARLY: at any time before or after). */
#ifdef EARLY
chan open = [2] of { byte };
#else
chan open = [0] of { byte };
#endif
proctype executor()              /* kernels: they store, they do not ring */
{
	byte n = 1;
	do
	:: n > N -> open!2; break
	:: else ->
#ifndef TELL_LAST
		open!1;
#endif
		STORE(sb0, WORD, n); n++;
		STORE(sb0, WORD, n); n++;
		got >= n - 1;            /* owner stamps: the step ends when its calls are complete */
#ifdef TELL_LAST
		open!1;
#endif
		open!0
	od
}
proctype steward()
{
	byte cursor = 0;
	STORE(sb2, WATCH, 1);        /* the thread starts */
end:	do
	:: atomic { open?1 -> follows = 1 };
#ifdef SKIP
		cursor = mem[WORD];
#endif
		do
		:: atomic { open?0 -> follows = 0; break }
		:: mem[WORD] > cursor ->
			cursor = mem[WORD];
#ifndef NO_FENCE_STEWARD
			FENCE(sb2);
#endif
			if :: mem[ASLEEP] == 1 -> ring(sb2) :: mem[ASLEEP] == 0 fi
		od
	:: open?2 -> break
	od;
	STORE(sb2, WATCH, 0)         /* it ends for good */
}
init { atomic { run drain(); run worker(); run executor(); run steward() } }
#else
proctype executor()
{
	byte n = 1;
	do
	:: n > N -> break
	:: else ->
		STORE(sb0, WORD, n);
#ifndef NO_FENCE_RINGER
		FENCE(sb0);
#endif
		if :: mem[ASLEEP] == 1 -> ring(sb0) :: mem[ASLEEP] == 0 fi;
		n++
	od
}
init { atomic { run drain(); run worker(); run executor() } }
#endif
