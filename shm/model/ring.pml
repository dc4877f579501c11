/* ring.pml - the call ring: publish, copy and re-read, owner stamps, slot reuse.
 *
 * DESIGN.md section 3, "The call ring is broadcast" and "Stamps". One producer (the trunk's executor),
 * W consumers, R slots, N calls of two items, at most F calls in flight. A consumer owns an item or
 * not by free choice of the producer, so every consumer is now and then one without work, which may
 * lag behind by any distance. Every field is stored and loaded on its own, so copies can tear.
 * Stores of one process are seen in program order, loads are done in program order (x86-TSO; on a
 * card the fences of section 3 give the same). Store buffers do not matter here: see wake.pml.
 *
 * The rule verified: the slot's word goes PUBLISHED(n) -> RETIRED(n) when the trunk has read the last row of
 * call n, and only then are fields of the slot stored again; a consumer at call n passes over a slot
 * whose word is beyond PUBLISHED(n).
 *
 * Variants (must fail unless noted):
 *   -DNO_RETIRE    word keeps n until the next call's word is stored over it: torn copy accepted
 *   -DRET_ZERO     an emptied slot holds 0: a lagging consumer cannot tell "not yet" from "gone"
 *   -DNO_RECHECK   the copy is not checked
 *   -DWORD_FIRST   the word is stored before the fields
 *   -DSTAMP_EQ     the trunk waits for stamp == n, one stamp word a worker, two calls in flight
 *   -DEARLY        a slot is filled again before its call is complete
 *   -DNO_RETIRE -DPREV_SLOT   (passes, needs F < R) no retire store; a consumer drops its copy of n
 *                  if the slot before it shows call n+R-1
 */
#ifndef R
#define R 3
#endif
#ifndef N
#define N 5
#endif
#ifndef W
#define W 2
#endif
#define F 2
#define PUBLISHED(n) (2*(n))
#define RETIRED(n) (2*(n)+1)

byte word[R];                              /* the slot's word */
byte owner0[R], seq0[R], owner1[R], seq1[R];    /* two items: owner, and a field that must be the call's */
byte acts[R];                              /* the activations in the arena */
byte owner_stamp[W];                            /* owner stamps, one word a worker */
byte row0[W*R], row1[W*R];                /* rows in the outboxes */
byte gone;                                /* ghost: calls 1..gone are complete and read */
byte n_sum;                               /* ghost: sums made */

proctype trunk()
{
	byte n = 1, c = 1, s, a, b;

	do
	:: c > N -> break
	:: n <= N &&
#ifdef EARLY
	   n - c < R + 1
#else
	   n - c < F
#endif
	   ->
		s = n % R;
		if :: a = 0 :: a = 1 fi;
		if :: b = 0 :: b = 1 fi;
#ifdef WORD_FIRST
		word[s] = PUBLISHED(n);
#endif
		acts[s] = n;
		owner0[s] = a; seq0[s] = n;
		owner1[s] = b; seq1[s] = n;
#ifndef WORD_FIRST
		word[s] = PUBLISHED(n);
#endif
		n++
	:: c < n ->
		s = c % R;
#ifdef STAMP_EQ
		owner_stamp[owner0[s]] == c;
#else
		owner_stamp[owner0[s]] >= c;
#endif
		assert(row0[owner0[s]*R + s] == c);
#ifdef STAMP_EQ
		owner_stamp[owner1[s]] == c;
#else
		owner_stamp[owner1[s]] >= c;
#endif
		assert(row1[owner1[s]*R + s] == c);
		d_step {
			assert(n_sum == c - 1);
			n_sum = c;
			gone = c;
#ifndef NO_RETIRE
#ifdef RET_ZERO
			word[s] = 0;
#else
			word[s] = RETIRED(c);
#endif
#endif
		}
		c++
	od
}

proctype worker(byte w)
{
	byte next_call = 1, s, v, a0, b0, a1, b1;

	do
	:: next_call > N -> break
	:: else ->
		s = next_call % R;
		atomic { word[s] >= PUBLISHED(next_call) -> v = word[s] };
		if
		:: v > PUBLISHED(next_call) -> assert(gone >= next_call)
		:: else ->
			a0 = owner0[s]; b0 = seq0[s];
			a1 = owner1[s]; b1 = seq1[s];
#ifndef NO_RECHECK
			v = word[s];
#ifdef PREV_SLOT
			if :: word[(next_call + R - 1) % R] >= PUBLISHED(next_call + R - 1) -> v = 255 :: else fi;
#endif
#endif
			if
			:: v != PUBLISHED(next_call) -> assert(gone >= next_call)   /* dropped: nothing of it was unfinished */
			:: else ->
				assert(b0 == next_call && b1 == next_call);       /* the copy is of one call */
				if :: a0 == w -> row0[w*R + s] = acts[s] :: else fi;
				if :: a1 == w -> row1[w*R + s] = acts[s] :: else fi;
				if :: a0 == w || a1 == w -> owner_stamp[w] = next_call :: else fi
			fi
		fi;
		d_step { next_call++; s = 0; v = 0; a0 = 0; b0 = 0; a1 = 0; b1 = 0 }
	od
}

init { atomic { byte i = 0; run trunk(); do :: i < W -> run worker(i); i++ :: else -> break od } }
