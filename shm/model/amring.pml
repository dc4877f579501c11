/* amring.pml - the amendment ring: retire and publish, copy and re-read, "amend that share first".
 *
 * DESIGN.md section 3, "Amendments". One producer (the steward), two consumers that may lag by any distance,
 * M slots, S shares that can be open at once, N calls a share (each share opens its next call when it is taken). Fields
 * are stored and loaded one by one, so copies can tear; orders as in ring.pml. An amendment counts while its call is
 * open and its share has no newer one. Every share of every call is given once, and B times more from a live
 * owner. Deaths, refusals and late owners are in amend.pml, whose copies are whole.
 *
 * Rule verified: redirect word (one store); then, if the slot was used, its word RETIRED(a-M); fields; word PUBLISHED(a). A consumer at
 * amendment a passes over a word beyond PUBLISHED(a), copies, re-reads, and drops the copy if the word has moved: what it
 * passes over or drops no longer counts (assertion). If the next slot still counts, the steward amends that
 * slot's share first; with M >= S that takes at most S amendments, the wanted one included (assertion), because a share amended again stays in
 * the slot where it was. So M > S, as DESIGN.md has it, has one slot to spare.
 *
 * -DSTAMPED_FREE passes: an amendment that its owner has stamped does not count any more either (the program's rule).
 *
 * Variants that must fail: -DNO_RETIRE (the word keeps PUBLISHED(a) while the slot's fields are stored again), -DNO_RECHECK (the
 * copy is not checked), -DWORD_FIRST (the word before the fields), -DFREE (the slot is taken though it counts),
 * -DM=1 and -DS=3 -DM=2 (fewer slots than shares: "that share first" does not end).
 */
#ifndef S
#define S 2
#endif
#ifndef M
#define M (S+1)
#endif
#ifndef N
#define N 2
#endif
#ifndef B
#define B 1
#endif
#define PUBLISHED(a) (2*(a))
#define RETIRED(a) (2*(a)+1)
#define MAXAM 31

byte word[M], slot_share[M], slot_to[M];       /* slot: word; (a, share); (a, call, outbox) */
#define F1(a,s) ((a)*S+(s))
#define F2(a,c,o) ((a)*8+(c)*2+(o))
byte open_call[S];                     /* open call of a share */
byte redirect_call[S], redirect_amend[S], redirect_outbox[S];
byte stamp_call[2*S], stamp_amend[2*S];        /* item stamps: call, amendment (one word) */
byte amends_head, late = B;

#ifdef STAMPED_FREE
#define ANSWERED(a,s) (stamp_call[redirect_outbox[s]*S+(s)] == open_call[s] && stamp_amend[redirect_outbox[s]*S+(s)] == (a))
#else
#define ANSWERED(a,s) (0)
#endif
#define COUNTS(a,s) (redirect_amend[s] == (a) && redirect_call[s] == open_call[s] && !ANSWERED(a,s))
#define SHARE(m) (slot_share[m]%S)
#ifdef FREE
#define AMEND_COUNTS(m) (0)
#else
#define AMEND_COUNTS(m) (word[m] != 0 && COUNTS(word[m]/2, SHARE(m)))
#endif
#define TAKEN(s) (redirect_call[s] == open_call[s] && stamp_call[redirect_outbox[s]*S+(s)] == open_call[s] && stamp_amend[redirect_outbox[s]*S+(s)] == redirect_amend[s])

proctype trunk()                  /* takes shares in any order; retires, and opens the next call */
{
	byte s;
	do
	:: atomic { open_call[0] <= N && TAKEN(0) -> open_call[0]++ }
	:: atomic { S > 1 && open_call[S > 1] <= N && TAKEN((S > 1)) -> open_call[S > 1]++ }
#if S > 2
	:: atomic { open_call[2] <= N && TAKEN(2) -> open_call[2]++ }
#endif
	:: atomic { open_call[0] > N && open_call[S > 1] > N && open_call[S-1] > N -> break }
	od
}

inline publish(s)
{
	atomic {
		amends_head++; assert(amends_head <= MAXAM); a = amends_head; c = open_call[s];
		if :: o = 0 :: o = 1 fi;
		redirect_call[s] = c; redirect_amend[s] = a; redirect_outbox[s] = o; m = a % M; x = F1(a,s)
	};
#ifndef NO_RETIRE
	if :: word[m] != 0 -> word[m] = RETIRED(a-M) :: else fi;
#endif
#ifdef WORD_FIRST
	word[m] = PUBLISHED(a);
#endif
	slot_share[m] = x;
	slot_to[m] = F2(a,c,o);
	d_step { word[m] = PUBLISHED(a); a = 0; c = 0; o = 0; m = 0; x = 0 }
}
#define GIVE(s) open_call[s] <= N && redirect_call[s] != open_call[s]
#define AGAIN(s) open_call[s] <= N && redirect_call[s] == open_call[s] && late > 0

proctype steward()
{
	byte w, k, t, a, c, o, m, x;
end:	do
	:: atomic { GIVE(0) -> w = 0 }; goto go
	:: atomic { AGAIN(0) -> w = 0; late-- }; goto go
	:: atomic { S > 1 && GIVE((S > 1)) -> w = 1 }; goto go
	:: atomic { S > 1 && AGAIN((S > 1)) -> w = 1; late-- }; goto go
#if S > 2
	:: atomic { GIVE(2) -> w = 2 }; goto go
	:: atomic { AGAIN(2) -> w = 2; late-- };
#endif
go:		do
		:: atomic { AMEND_COUNTS((amends_head+1)%M) && SHARE((amends_head+1)%M) != w -> k = SHARE((amends_head+1)%M); t++; assert(t < S) };
			publish(k)
		:: atomic { !(AMEND_COUNTS((amends_head+1)%M) && SHARE((amends_head+1)%M) != w) -> k = w };
			publish(k);
			break
		od;
		atomic { t = 0; k = 0; w = 0 }
	od
}

#define LOST(a) (COUNTS(a,0) || COUNTS(a,S-1) || COUNTS(a,S > 1))
proctype worker(byte w)
{
	byte next_amend = 1, v, x, y;
end:	do
	:: atomic { word[next_amend%M] >= PUBLISHED(next_amend) -> v = word[next_amend%M] };
		if
		:: v > PUBLISHED(next_amend) -> assert(!LOST(next_amend))
		:: else ->
			x = slot_share[next_amend%M];
			y = slot_to[next_amend%M];
#ifndef NO_RECHECK
			v = word[next_amend%M];
#endif
			if
			:: v != PUBLISHED(next_amend) -> assert(!LOST(next_amend))
			:: else ->
				assert(x / S == next_amend && y / 8 == next_amend);     /* the copy is of one amendment */
				if :: y % 2 == w -> atomic { stamp_call[w*S + x%S] = (y/2)%4; stamp_amend[w*S + x%S] = next_amend } :: else fi
			fi
		fi;
		d_step { next_amend++; v = 0; x = 0; y = 0 }
	od
}

init { atomic { open_call[0] = 1; open_call[S > 1] = 1; open_call[S-1] = 1; run trunk(); run steward(); run worker(0); run worker(1) } }
