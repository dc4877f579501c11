/* shares.pml - one place is the same slab number on every node: grants, waves and evictions of whole items.
 *
 * DESIGN.md section 4 "Waves", "Leaving a place", section 3 "Sockets". Two nodes, one place (slab 0 of node 0 and
 * slab 0 of node 1), two items (experts 0 and 1) in every call, both of which need it; N calls, one in flight. The
 * router looks up the table for each item, later publishes; an item not in the table holds nothing until it is
 * granted the place. The steward grants (reads both slabs, sets both headers, then amends share by share), gives
 * the place free after the wave, and evicts E times at any moment between. Share k is node k's: stage one (half
 * written in between), stage stamp; the other share's intermediate; down rows; stamp.
 * L shares are given to the other node's outbox, in the same place, while their late owner goes on (default 0). Deaths
 * and the two rings' order are in nodes.pml, the pager in place.pml.
 *
 * Rule verified: a grant names one place for all shares of the item that are not done; the place is free
 * when every giving that names it is stamped; an eviction clears the entry, marks the header on every node, and
 * waits for that; a node compares the giving's epoch with its header before it begins *and* as long as it waits for
 * a stage stamp, and stamps its share DECLINED when they differ; an item is granted again when all its shares are stamped
 * and one is DECLINED. A stage stamp carries the call's number and stays good if its share is declined afterwards.
 * Properties: assertions in trunk() (right rows), n_giving <= MAXG (no endless giving), no invalid end state.
 *
 * Variants that must fail: -DONE_BY_ONE (shares granted one by one: item 0 gets node 1's slab, item 1 node 0's,
 * each waits for its other share), -DNO_LOOK (a waiting node does not look at the header: it holds the place, its
 * partner has declined), -DMARK_ONE (an eviction marks node 0's header only), -DFREE_FIRST (the place is free when
 * the first share's stamp is in), -DNO_CHECK (no header check before stage one), -DL=1 -DPRESENT_ONLY (the place is
 * free when the present owners have stamped, a late one not), -DCALL_NOW (the steward looks at the second share
 * when the call that asked is retired, and gives one share of the next call).
 * -DREFUSE=1: one share is DECLINED for another reason than its header (a worker may, rule 8): the steward gives it
 * again in the same place while that stands and another share of the item is unstamped; -DREFUSE=1 -DNO_AGAIN fails
 * (the other share waits for its stage stamp and holds the place, and the item is never granted again).
 * -DCARD: a card, outbox 2, has both shares of item 0 of the first call, in a pool of its own; it may die at every
 * store. Once it has ended, a share that it has not stamped counts as one without a giving, and the item is granted
 * like any other: what the card has staged or stamped stays good. -DCARD -DBY_SHARE fails (a lost share is given by
 * itself, and counts as unstamped until then: it is waited for by a share that has been DECLINED meanwhile).
 * -DAMEND_EARLY passes: share 0 amended when node 0's read is complete, share 1 after node 1's (the grant is one).
 */
#ifndef N
#define N 2
#endif
#ifndef E
#define E 2
#endif
#ifndef L
#define L 0
#endif
#ifndef REFUSE
#define REFUSE 0
#endif
#define MAXG (4*N + 4*(E+N) + L + 1 + 5*REFUSE)
#define S(j,k) ((j)*2+(k))
#define Z(o,i) ((o)*4+(i))         /* share i in outbox o */
#define H(i) ((i)%2)               /* its node */
#define JUNK 99
#define NOBODY 9
#define STAMP_NONE 0
#define STAMP_DONE 1
#define STAMP_DECLINED 2

byte call;                        /* open call, 0 none */
byte owner[4];                      /* present owner of a share: an outbox */
#ifdef CARD
#define BOXES 12
bool dead;
#else
#define BOXES 8
#define dead 0
#endif
byte giving[BOXES], giving_epoch[BOXES], stamp_kind[BOXES];     /* giving of a share to an outbox: number, epoch; its stamp */
byte n_giving;
byte entry_expert = NOBODY, entry_epoch;           /* the table's entry for the place (one word): expert, epoch */
byte holder = NOBODY, epoch;         /* the steward's: who has the place */
byte header[2], data[2];             /* a node's slab: header, bytes */
byte inter[BOXES], stage_stamp[BOXES], row[BOXES];     /* outboxes: intermediate, stage stamp, rows */
byte evict = E, late = L;
#if REFUSE > 0
byte refuse = REFUSE;
#endif

#define P(i) Z(owner[i],i)
proctype trunk()
{
	byte n = 1, i, e0, e1;
	do
	:: n > N -> break
	:: else ->
		e0 = (entry_expert == 0 -> entry_epoch : 0);            /* the router reads the table ... */
		e1 = (entry_expert == 1 -> entry_epoch : 0);
		atomic {                               /* ... and publishes later */
			if :: e0 != 0 -> n_giving++; giving[Z(0,0)] = n_giving; giving[Z(1,1)] = n_giving; giving_epoch[Z(0,0)] = e0; giving_epoch[Z(1,1)] = e0 :: else fi;
#ifdef CARD
			if :: n == 1 && e0 == 0 && !dead -> n_giving++; giving[Z(2,0)] = n_giving; giving[Z(2,1)] = n_giving; owner[0] = 2; owner[1] = 2 :: else fi;
#endif
			if :: e1 != 0 -> n_giving++; giving[Z(0,2)] = n_giving; giving[Z(1,3)] = n_giving; giving_epoch[Z(0,2)] = e1; giving_epoch[Z(1,3)] = e1 :: else fi;
			call = n; e0 = 0; e1 = 0
		};
		do
		:: i == 4 -> break
		:: i < 4 -> atomic { stamp_kind[P(i)] == STAMP_DONE -> assert(row[P(i)] == n); i++ }
		od;
		atomic {
			i = 0;
			do :: i < BOXES -> owner[i%4] = H(i); giving[i] = 0; giving_epoch[i] = 0; stamp_kind[i] = 0; inter[i] = 0; stage_stamp[i] = 0; row[i] = 0; i++ :: else -> break od;
			call = 0; n++; i = 0
		}
	od
}

#define OPEN(z) (giving[z] != 0 && stamp_kind[z] == STAMP_NONE)               /* a giving that is not stamped: it names the place */
#define UNST(i) OPEN(P(i))
#ifdef FREE_FIRST
#define PLACE_NAMED (UNST(0) && UNST(1) || UNST(2) && UNST(3))
#else
#ifdef PRESENT_ONLY
#define PLACE_NAMED (UNST(0) || UNST(1) || UNST(2) || UNST(3))
#else
#define PLACE_NAMED (OPEN(0) || OPEN(1) || OPEN(2) || OPEN(3) || OPEN(4) || OPEN(5) || OPEN(6) || OPEN(7))
#endif
#endif
#define LOST(i) (dead && owner[i] == 2 && UNST(i))
#ifdef BY_SHARE
#define WANTS_PLACE(i) (giving[P(i)] == 0 || stamp_kind[P(i)] == STAMP_DECLINED)
#define AWAITED(i) UNST(i)
#else
#define WANTS_PLACE(i) (giving[P(i)] == 0 || stamp_kind[P(i)] == STAMP_DECLINED || LOST(i))
#define AWAITED(i) (UNST(i) && !LOST(i))
#endif
#define NEEDS(j) (call != 0 && !AWAITED(S(j,0)) && !AWAITED(S(j,1)) && (WANTS_PLACE(S(j,0)) || WANTS_PLACE(S(j,1))))
#ifdef CALL_NOW
#define GIVE_IF(i) (call != 0 && WANTS_PLACE(i))
#else
#define GIVE_IF(i) (call == c && WANTS_PLACE(i))         /* an amendment carries the number of the call that asked */
#endif
inline give(i)
{
	atomic { if :: GIVE_IF(i) -> n_giving++; assert(n_giving <= MAXG); owner[i] = H(i); giving_epoch[P(i)] = epoch; stamp_kind[P(i)] = STAMP_NONE; giving[P(i)] = n_giving :: else fi }
}
inline read(k, j) { data[k] = JUNK; data[k] = j; header[k] = epoch }

/* a share of a late node goes to the other outbox, in the same place; the late node goes on */
#define TAKE(i) \
	:: atomic { late > 0 && UNST(i) && owner[i] == H(i) -> late--; n_giving++; owner[i] = 1 - H(i); \
		giving_epoch[P(i)] = giving_epoch[Z(H(i),i)]; stamp_kind[P(i)] = STAMP_NONE; giving[P(i)] = n_giving }

/* a share DECLINED in a place that stands is given again there, if another share of the item may wait for it */
#define AGAIN(i) \
	:: atomic { call != 0 && stamp_kind[P(i)] == STAMP_DECLINED && UNST((i)/2*2 + 1 - H(i)) && header[H(i)] == giving_epoch[P(i)] -> \
		n_giving++; assert(n_giving <= MAXG); stamp_kind[P(i)] = STAMP_NONE; giving[P(i)] = n_giving }

#ifndef ONE_BY_ONE
inline grant(j)
{
	read(0, j);
#ifdef AMEND_EARLY
	give(S(j,0));
	read(1, j);
#else
	read(1, j);
	give(S(j,0));
#endif
	give(S(j,1));
	atomic { c = 0; if :: entry_expert = j; entry_epoch = epoch :: true fi }           /* it may stay as a resident */
}
proctype steward()
{
	byte c;
end:	do
	:: atomic { holder == NOBODY && NEEDS(0) -> holder = 0; epoch++; c = call }; grant(0)
	:: atomic { holder == NOBODY && NEEDS(1) -> holder = 1; epoch++; c = call }; grant(1)
	:: atomic { holder != NOBODY && (!PLACE_NAMED && (NEEDS(0) || NEEDS(1)) || evict > 0) ->
		if :: !PLACE_NAMED && (NEEDS(0) || NEEDS(1)) :: else -> evict-- fi;
		entry_expert = NOBODY; entry_epoch = 0 };                               /* the entry */
		header[0] = 0;                                            /* headers, then a fence */
#ifndef MARK_ONE
		header[1] = 0;
#endif
		atomic { !PLACE_NAMED -> holder = NOBODY }                     /* givings */
#ifdef BY_SHARE
	:: atomic { holder == NOBODY && LOST(0) -> holder = 0; epoch++; c = call };
		read(0, 0); read(1, 0);
		atomic { if :: call == c && LOST(0) -> n_giving++; owner[0] = 0; giving_epoch[P(0)] = epoch; giving[P(0)] = n_giving :: else fi; c = 0 }
	:: atomic { holder == NOBODY && LOST(1) -> holder = 0; epoch++; c = call };
		read(0, 0); read(1, 0);
		atomic { if :: call == c && LOST(1) -> n_giving++; owner[1] = 1; giving_epoch[P(1)] = epoch; giving[P(1)] = n_giving :: else fi; c = 0 }
#endif
#if L > 0
	TAKE(0)
	TAKE(1)
	TAKE(2)
	TAKE(3)
#endif
#if REFUSE > 0 && !defined(NO_AGAIN)
	AGAIN(0)
	AGAIN(1)
	AGAIN(2)
	AGAIN(3)
#endif
	od
}
#else
byte ep1[2];
proctype steward_of(byte k)       /* every node's slab granted on its own */
{
	byte j;
end:	do
	:: atomic { call != 0 && WANTS_PLACE(S(0,k)) -> j = 0; epoch++; ep1[k] = epoch };
go:		data[k] = JUNK; data[k] = j; header[k] = ep1[k];
		atomic { n_giving++; assert(n_giving <= MAXG); giving_epoch[Z(k,S(j,k))] = ep1[k]; stamp_kind[Z(k,S(j,k))] = STAMP_NONE; giving[Z(k,S(j,k))] = n_giving };
		atomic { !UNST(S(j,k)) -> j = 0 };
		header[k] = 0
	:: atomic { call != 0 && WANTS_PLACE(S(1,k)) -> j = 1; epoch++; ep1[k] = epoch }; goto go
	od
}
#endif

#define MINE(i) OPEN(Z(o,i))
#define STAGED(i) (done1[i] == giving[Z(o,i)])
#define DIFFERS(i) (header[H(i)] != giving_epoch[Z(o,i)])
#define OTHER(i) P((i)/2*2 + 1 - H(i))       /* the other share, at its present owner */
#define STAMP(i,v) if :: giving[Z(o,i)] == q -> stamp_kind[Z(o,i)] = v :: else fi     /* a stamp answers only the giving it names */
#ifdef NO_CHECK
#define CHECK(i) (0)
#else
#define CHECK(i) DIFFERS(i)
#endif
inline one(i)
{
	if
	:: CHECK(i) -> atomic { STAMP(i,STAMP_DECLINED) }
#if REFUSE > 0
	:: atomic { refuse > 0 -> refuse--; STAMP(i,STAMP_DECLINED) }
#endif
	:: !CHECK(i) ->
		atomic { g = (data[H(i)] == i/2); inter[Z(o,i)] = (g && inter[Z(o,i)] == n -> n : JUNK) };
		atomic { inter[Z(o,i)] = (g && data[H(i)] == i/2 -> n : JUNK); g = 0 };
		atomic { stage_stamp[Z(o,i)] = n; done1[i] = q }
	fi;
	d_step { n = 0; q = 0 }
}
inline two(i)
{
	atomic { g = (data[H(i)] == i/2 && a == n && inter[Z(o,i)] == n); row[Z(o,i)] = (g && row[Z(o,i)] == n -> n : JUNK); a = 0 };
	atomic { row[Z(o,i)] = (g && data[H(i)] == i/2 -> n : JUNK); g = 0 };
	atomic { STAMP(i,STAMP_DONE); n = 0; q = 0 }
}
#ifdef NO_LOOK
#define LOOK(i)
#else
#define LOOK(i) :: atomic { MINE(i) && STAGED(i) && DIFFERS(i) -> stamp_kind[Z(o,i)] = STAMP_DECLINED }
#endif
#define SHARE(i) \
	:: atomic { MINE(i) && !STAGED(i) -> n = call; q = giving[Z(o,i)] }; one(i) \
	:: atomic { MINE(i) && STAGED(i) && stage_stamp[OTHER(i)] == call -> n = call; q = giving[Z(o,i)]; a = inter[OTHER(i)] }; two(i) \
	LOOK(i)

proctype node(byte o)
{
	byte n, a, q, done1[4]; bool g;
end:	do
	SHARE(0)
	SHARE(1)
	SHARE(2)
	SHARE(3)
	od
}

#ifdef CARD
#define ST(x) atomic { if :: true -> goto out :: x fi }       /* it dies, or stores */
proctype card()
{
	byte n, i;
end:	do
	:: atomic { OPEN(Z(2,0)) -> n = call };
		ST(inter[Z(2,0)] = n); ST(stage_stamp[Z(2,0)] = n);
		ST(inter[Z(2,1)] = n); ST(stage_stamp[Z(2,1)] = n);
		ST(row[Z(2,0)] = n); ST(stamp_kind[Z(2,0)] = STAMP_DONE);
		ST(row[Z(2,1)] = n); ST(stamp_kind[Z(2,1)] = STAMP_DONE); n = 0
	od;
out:	atomic { n = 0; dead = 1 }
}
#endif

init {
	atomic {
#ifdef ONE_BY_ONE
		run steward_of(0); run steward_of(1);
#else
#ifdef CARD
		run card();
#else
		epoch = 1; holder = 0; entry_expert = 0; entry_epoch = 1; header[0] = 1; header[1] = 1;      /* expert 0 is resident at first */
#endif
		run steward();
#endif
		owner[1] = 1; owner[3] = 1;
		run trunk(); run node(0); run node(1)
	}
}
