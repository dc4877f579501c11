/* trunk.pml - the trunk's executor in a worker process: step records, answers, its death, its successor.
 *
 * DESIGN.md section 2 "The trunk is a program", "State", section 6 third row. Processes: the coordinator, the
 * executor and its successors (one at a time), two consumers of the call ring, of whom now and then one has no
 * work (it stands for the steward too). N steps of L calls of one item, R call slots, F calls in flight; an
 * executor may die at every store, DEATHS times in all, and N_LATE times the coordinator takes a living one for
 * stuck and kills it: such a one goes on until it has ended. -DNODES: one item in two shares, each consumer owns
 * one and waits for the other's stage stamp.
 *
 * Every item, word and answer is stored on its own, so copies tear; stores of one process are seen in program
 * order (x86-TSO, and what the fences of "Cards" must give; who sleeps is wake.pml's). A value V(n,g) stands for
 * the bytes that executor g made for call n. The state of version v is executor-local and lost with it; what
 * survives is the shadow: two places and a word that names the version in one of them.
 *
 * The rule verified. Record: fields, then its number (never reused; one record open). Answer: logits, then its
 * stamp, the record's number, after the last call of the step is retired. The coordinator commits v+1 when it
 * sees the stamp. The executor has died: after it is reaped, and not before, the coordinator (a) looks at the stamp
 * once more, (b) stores RETIRED for every slot that says PUBLISHED, (c) takes one more than the largest number
 * of all slots' words (not of head) as the successor's first call, (d) starts the successor behind the present
 * record with the shadow's version of the state, and publishes the steps from there again as new records.
 *
 * Variants (must fail unless noted):
 *   -DRETIRE_EARLY   (b) to (d) before the executor is reaped
 *   -DNO_RETIRE_OPEN without (b)
 *   -DNEXT_IS_HEAD   (c) head + 1: the executor died between a call's word and head
 *   -DGAP            (c) leaves out a number: consumers wait for it
 *   -DOLD_RECORD     the successor takes the record that it finds: its state is the shadow's
 *   -DNO_LAST_LOOK   (passes) without (a): the step is played once more
 *   -DSTAMP_FIRST    the answer's stamp before its logits
 *   -DWORD_FIRST     the record's number before its fields
 *   -DSHADOW_ONE     one place for the shadow
 *   -DSHADOW_EARLY   the shadow of a state that is not committed yet
 *   -DNODES -DNO_DROP  a share that waits for the other's stage stamp is not dropped when its call is retired
 */
#ifndef R
#define R 3
#endif
#ifndef F
#define F 2
#endif
#ifndef N
#define N 2
#endif
#ifndef L
#define L 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef N_LATE
#define N_LATE 0
#endif
#define G (DEATHS+N_LATE+1)
#define PUBLISHED(n) (2*(n))
#define RETIRED(n) (2*(n)+1)
#define IS_PUBLISHED(w) ((w) > 0 && (w)%2 == 0)
#define V(n,g) ((n)+32*(g))
#define JUNK 255
#ifdef NODES                                   /* both shares */
#define STAMPED(n) (owner_stamp[(n)%R] == (n) && owner_stamp[R+(n)%R] == (n))
#define ROW(n) (row[(n)%F] == row[F+(n)%F] -> row[(n)%F] : JUNK)
#else
#define STAMPED(n) (owner_stamp[owner[(n)%R]*R+(n)%R] == (n))
#define ROW(n) row[owner[(n)%R]*F+(n)%F]
#endif
#define max(a,b) ((a) > (b) -> (a) : (b))

byte word[R], head;                        /* the call ring */
byte owner[R], val0[R], val1[R];           /* a call's item, and its other fields: two places that must agree */
byte acts[F];
byte owner_stamp[2*R], row[2*F];           /* outboxes */
#ifdef NODES
byte stage_stamp[2*R], inter[2*F];
#endif
byte rec_word, rec_ver;                    /* the step record: number; version of the state it starts from */
byte ans_stamp, ans;                       /* the answer */
byte shadow[2], shadow_word;
bool killed[G], ended[G];
byte deaths = DEATHS, late = N_LATE;

/* a store of an executor: it may have died before */
#define ST(x) atomic { if :: deaths > 0 -> deaths--; goto out :: killed[g] -> goto out :: x fi }

proctype executor(byte g; byte n; byte rec; byte ver)
{
	byte c, s, v, left;
	c = n;
end:	do
	:: atomic { killed[g] -> goto out }
	:: atomic { rec_word > rec -> if :: deaths > 0 -> deaths--; goto out :: rec = rec_word fi };
		atomic { v = rec_ver; assert(v == ver); left = L };   /* it begins where our state ends */
#ifndef SHADOW_EARLY
		if
		:: v > shadow_word ->              /* v is committed: the record says so */
#ifdef SHADOW_ONE
			ST(shadow[0] = JUNK); ST(shadow[0] = v);
#else
			ST(shadow[v%2] = JUNK); ST(shadow[v%2] = v);
#endif
			ST(shadow_word = v)
		:: true
		fi;
#endif
		do
		:: left == 0 && c == n -> break
		:: left > 0 && n - c < F ->
			ST(acts[n%F] = V(n,g));
#ifdef NODES
			ST(val0[n%R] = V(n,g));
#else
			ST(if :: owner[n%R] = 0 :: owner[n%R] = 1 fi; val0[n%R] = V(n,g));
#endif
			ST(val1[n%R] = V(n,g));
			ST(word[n%R] = PUBLISHED(n));
			ST(head = n; n++; left--)
		:: c < n ->
			s = c % R;
			if
			:: STAMPED(c) -> assert(ROW(c) == V(c,g))
			:: atomic { killed[g] -> goto out }
			fi;
			ST(word[s] = RETIRED(c); c++; s = 0)
		od;
#ifdef SHADOW_EARLY
		ST(shadow[(v+1)%2] = v + 1);
		ST(shadow_word = v + 1);
#endif
#ifdef STAMP_FIRST
		ST(ans_stamp = rec);
#endif
		ST(ans = JUNK);
		ST(ans = v);
#ifndef STAMP_FIRST
		ST(ans_stamp = rec);
#endif
		atomic { ver = v + 1; v = 0 }
	od;
out:	atomic { ended[g] = 1; n = 0; c = 0; s = 0; v = 0; left = 0; rec = 0; ver = 0 }
}

proctype coordinator()
{
	byte v, p, rec, g, i, m;
	run executor(0, 1, 0, 0);
	do
	:: v == N -> break
	:: v < N ->                                /* p: the version that the executor has been brought to */
#ifdef WORD_FIRST
		rec++; rec_word = rec; rec_ver = p;
#else
		rec_ver = p; rec++; rec_word = rec;
#endif
		if
		:: atomic { ans_stamp == rec -> assert(ans == p); v = max(v, p + 1); p++ }
		:: atomic { late > 0 && ans_stamp != rec -> late--; killed[g] = 1 };
#ifndef RETIRE_EARLY
			ended[g];
#endif
			goto reap
		:: ended[g] ->
reap:
#ifndef NO_LAST_LOOK
			atomic { if :: ans_stamp == rec -> assert(ans == p); v = max(v, p + 1) :: else fi };
#endif
			i = 0; m = 0;
			do
			:: i == R -> break
			:: atomic { i < R ->
				m = max(m, word[i]/2);
#ifndef NO_RETIRE_OPEN
				if :: IS_PUBLISHED(word[i]) -> word[i] = RETIRED(word[i]/2) :: else fi;
#endif
				i++ }
			od;
#ifdef NEXT_IS_HEAD
			m = head;
#endif
#ifdef GAP
			m++;
#endif
			atomic {
				head = m; g++; p = shadow_word;
#ifdef SHADOW_ONE
				assert(p == 0 || shadow[0] == p);
#else
				assert(p == 0 || shadow[p%2] == p);
#endif
				assert(p <= v);                    /* there is a record for every step from there on */
#ifdef OLD_RECORD
				run executor(g, m + 1, rec - 1, p);
#else
				run executor(g, m + 1, rec, p);
#endif
				i = 0; m = 0 }
		fi
	od
}

proctype consumer(byte w)
{
	byte n = 1, s, x, a, b;
end:	do
	:: atomic { word[n%R] >= PUBLISHED(n) -> x = word[n%R] };
		s = n % R;
		if
		:: x > PUBLISHED(n)                            /* gone: complete, or its executor has been reaped */
		:: else ->
			atomic { a = owner[s]; b = val0[s] };
			x = val1[s];
			if
			:: word[s] != PUBLISHED(n)             /* dropped */
			:: else ->
				/* whole, and (what the steward refuses) at most F calls are open */
				atomic { assert(b == x && b%32 == n); assert(n <= F || word[(n-F)%R] != PUBLISHED(n-F)) };
#ifdef NODES
				inter[w*F+n%F] = acts[n%F];
				stage_stamp[w*R+s] = n;
				if
				:: stage_stamp[(1-w)*R+s] == n ->
					row[w*F+n%F] = (inter[n%F] == inter[F+n%F] -> inter[n%F] : JUNK);
					owner_stamp[w*R+s] = n
#ifndef NO_DROP
				:: word[s] != PUBLISHED(n)
#endif
				fi
#else
				if :: a == w -> row[w*F+n%F] = acts[n%F]; owner_stamp[w*R+s] = n :: else fi
#endif
			fi
		fi;
		d_step { n++; s = 0; x = 0; a = 0; b = 0 }
	od
}

init { atomic { run coordinator(); run consumer(0); run consumer(1) } }
