/* place.pml - leaving a place while items are in flight; a slab with an open read; waves with one slab.
 *
 * DESIGN.md section 4 "Leaving a place", "Waves", "A slab with an open read". Expert X lives in slab 0;
 * the mover gives slab 0 to expert Y. The trunk makes N calls, each one item for X (free choice: or Y):
 * it looks up the table, later publishes; a call may have a second item, for the other expert, on disk. An
 * item without a place is granted the one spare slab (1), in waves of one. The worker's reads of a slab take
 * time (begin, end). The pager may die once while reads are open: a read it had submitted still lands, later.
 *
 * Rules verified (default): the mover clears the entry, marks the slab's header, fences, and then waits
 * until no call that is not retired names the slab; an owner compares the header with the item (expert,
 * epoch) before it begins and declines if it differs. A slab whose read outlived its pager takes no other
 * expert until that read has landed.
 *
 * -DCARD: the trunk's own card. The table is the card's copy, cleared some time after the host's; a step
 * is two layers, the mover waits for the copy's confirmation, then for the end of the step.
 * -DHOST: the same as the program does it (gpu-worker/hits.h), and with the card as a worker besides. The copy
 * is told what came and what shall leave, in that order, and changes between steps alone; a clear is confirmed
 * when it has been applied, and nobody waits for the end of a step. What the copy does not have is published,
 * also if the host's entry names this card's slot already: slab 0 is left by the clear *and* by rule 13.
 *
 * Variants that must fail: -DAS_WRITTEN (no header check by RAM owners), -DSCAN_FIRST (header marked after
 * the look at the calls), -DNO_WAIT (no wait for items), -DNO_REST (after a pager's death the slab takes
 * another expert), -DREUSE_EARLY (a wave's slab is granted again before its stamp), -DSET_EARLY (entry set
 * when the read is submitted), -DCARD -DNO_CONFIRM, -DCARD -DNO_STEP_END; -DHOST with -DNO_CONFIRM (the clear's
 * answer is not waited for), -DIN_STEP (the copy changes, and confirms, in a step), -DCAME_EARLY (the
 * copy is told when the upload is submitted), -DOUT_OF_ORDER (a clear overtakes what came). -DHOST -DCLEAR_ONLY
 * passes (neither header nor wait): who confirms between steps has waited for the calls too, as long as no
 * giving outlives its call's step; rule 10 wants the wait nevertheless.
 * -DSTEP_END passes: no header check, but the mover waits for the end of the step also for slabs.
 */
#ifndef N
#define N 3
#endif
#define X 1
#define Y 2
#define JUNK 9
#define PLACE_NONE 7
#define PUBLISHED(n) (2*(n))
#define RETIRED(n) (2*(n)+1)

byte entry_place[3], entry_epoch[3];               /* host table: expert -> slab or NOWHERE, epoch */
byte card_place[3], card_epoch[3];              /* the card's copy */
byte header[2];                      /* slab's header: epoch of the entry that may use it, 0 none */
byte data[2];                     /* which expert's bytes lie there */
byte word, item_expert, item_place, item_epoch;      /* one call in flight: its item */
bool stamped, declined;
bool second;                      /* the call has a second item, for the other expert, on disk */
byte row[2], asked;               /* rows of the two items; items granted */
byte g_no, g_item, g_fin;         /* amendment for the spare slab: number, item; number stamped */
bool fin[2];                      /* granted items stamped */
#ifdef HOST
chan told = [3] of { byte, byte }; /* expert, epoch where it came; 0: it shall leave */
bool confirmed;
#endif
byte step_no; bool in_step;
byte pub, epoch = 1;

/* reads: pager submits, the device lands them */
byte want[2];                     /* expert being read into slab, 0 none */
byte open_r[2];                   /* submitted and not landed: expert */
byte lost_r[2];                   /* the same, of a pager that died */
bool done_r[2];
byte pager_deaths = 1;

proctype device()
{
	byte s;
end:	do
	:: atomic { open_r[0] != 0 -> data[0] = open_r[0]; open_r[0] = 0; done_r[0] = 1 }
	:: atomic { open_r[1] != 0 -> data[1] = open_r[1]; open_r[1] = 0; done_r[1] = 1 }
	:: atomic { lost_r[0] != 0 -> data[0] = lost_r[0]; lost_r[0] = 0 }
	:: atomic { lost_r[1] != 0 -> data[1] = lost_r[1]; lost_r[1] = 0 }
	od
}

proctype pager()                  /* with its supervisor: submitted again after a death */
{
end:	do
	:: atomic { want[0] != 0 && open_r[0] == 0 && !done_r[0] -> data[0] = JUNK; open_r[0] = want[0] }
	:: atomic { want[1] != 0 && open_r[1] == 0 && !done_r[1] -> data[1] = JUNK; open_r[1] = want[1] }
	:: atomic { pager_deaths > 0 && (open_r[0] != 0 || open_r[1] != 0) ->
		pager_deaths--;
		lost_r[0] = open_r[0]; lost_r[1] = open_r[1]; open_r[0] = 0; open_r[1] = 0 }
	od
}

#ifdef NO_REST
#define RESTED(s,e) (1)
#else
#define RESTED(s,e) (lost_r[s] == 0 || lost_r[s] == (e))
#endif
inline read(s, e)                 /* wait for rest, read, wait for the completion */
{
	atomic { RESTED(s, e) -> want[s] = e };
	atomic { done_r[s] -> done_r[s] = 0; want[s] = 0 }
}

#ifdef HOST
#define LOOK(e) p = card_place[e]; own = (p != PLACE_NONE); if :: own :: else -> p = entry_place[e]; q = entry_epoch[e] fi
#elif defined(CARD)
#define LOOK(e) p = card_place[e]; q = card_epoch[e]
#else
#define LOOK(e) p = entry_place[e]; q = entry_epoch[e]
#endif

proctype trunk()
{
	byte n = 1, p, q, e;
#ifdef HOST
	bool own;
#endif
	do
	:: n > N -> break
	:: else ->
		if :: in_step || true -> in_step = 1 fi;
		if :: e = X :: e = Y fi;
		atomic { LOOK(e) };                     /* the router reads the table ... */
#ifdef CARD
		if
		:: p != PLACE_NONE ->                      /* resident: a node of the same graph */
			assert(data[p] == e);
			assert(data[p] == e)                /* begin and end of the kernel */
		:: else
		fi;
#else
#ifdef HOST
		if
		:: own ->                               /* resident here: computed by the trunk's own graph */
			assert(data[p] == e);
			assert(data[p] == e);
			goto summed
		:: else
		fi;
#endif
		atomic {                                /* ... and publishes later */
			item_expert = e; item_place = p; item_epoch = q; stamped = 0; declined = 0; row[0] = 0; row[1] = 0;
			asked = 0; fin[0] = 0; fin[1] = 0;
			if :: second = 0 :: second = 1 fi;
			word = PUBLISHED(n)
		};
		atomic { (stamped || fin[0]) && (!second || fin[1]) -> skip };
		assert(row[0] == e);
		assert(!second || row[1] == X + Y - e);
		atomic { word = RETIRED(n); item_place = PLACE_NONE; second = 0; declined = 0 };
#endif
#ifdef HOST
summed:		atomic { word = RETIRED(n); own = 0 };
#endif
		atomic { p = 0; q = 0; e = 0;
		if
		:: n % 2 == 0 || n == N -> in_step = 0; step_no++
		:: else
		fi;
		n++ }
	od
}

proctype worker()
{
	byte cursor = 0, p, e, r;
end:	do
	:: atomic { word == PUBLISHED(cursor + 1) && item_place == PLACE_NONE -> cursor++ }
	:: atomic { word > PUBLISHED(cursor + 1) -> cursor++ }
	:: atomic { word == PUBLISHED(cursor + 1) && item_place != PLACE_NONE -> p = item_place; e = item_expert; cursor++ };
		if
#if !defined(AS_WRITTEN) && !defined(STEP_END)
		:: header[p] != item_epoch -> declined = 1
		:: header[p] == item_epoch ->
#else
		:: true ->
#endif
			r = data[p];
			atomic { row[0] = ((data[p] == e && r == e) -> e : JUNK); r = 0; p = 0; e = 0 };
			stamped = 1
		fi
	:: atomic { g_no > g_fin -> p = g_item; e = (p == 0 -> item_expert : X + Y - item_expert) };
		r = data[1];
		atomic { row[p] = ((data[1] == e && r == e) -> e : JUNK); r = 0; e = 0 };
		atomic { fin[p] = 1; g_fin = g_no; p = 0 }
	od
}

#define ASK(i) (word > 0 && word % 2 == 0 && !(asked & (1+(i))) && (i == 0 -> (item_place == PLACE_NONE || declined) : second))
#ifdef REUSE_EARLY
#define FREE (1)
#else
#define FREE (g_fin == g_no)                    /* the wave's stamp is in */
#endif
proctype steward()                /* waves of one: the one spare slab */
{
end:	do
	:: atomic { FREE && ASK(0) -> asked = asked + 1 };
		read(1, item_expert);
		atomic { g_no++; g_item = 0 }
	:: atomic { FREE && ASK(1) -> asked = asked + 2 };
		read(1, X + Y - item_expert);
		atomic { g_no++; g_item = 1 }
	od
}

/* slab 0: X leaves, Y comes */
#define PLACE_NAMED (word > 0 && word % 2 == 0 && item_place == 0)
/* What leaves slab 0, and what came there; e: who. */
#ifdef HOST
#ifdef OUT_OF_ORDER
#define TELL_CLEAR(e) told!!e,0                  /* sorted before what came */
#else
#define TELL_CLEAR(e) told!e,0
#endif
#define TELL_CAME(e) told!e,epoch+1
#endif

inline quit(e)                    /* e leaves slab 0 */
{
	atomic { entry_place[e] = PLACE_NONE; entry_epoch[e] = 0 };       /* host entry cleared */
#ifdef HOST
	TELL_CLEAR(e);
#ifndef NO_CONFIRM
	atomic { confirmed -> confirmed = 0 };
#endif
#endif
#ifdef CARD
#ifndef NO_CONFIRM
	card_place[e] == PLACE_NONE;                            /* the card's copy: confirmed */
#endif
#ifndef NO_STEP_END
	st = step_no;
	!in_step || step_no != st;
#endif
#else
#ifdef STEP_END
	st = step_no;
	!in_step || step_no != st;
#endif
#ifndef CLEAR_ONLY
#ifdef SCAN_FIRST
	!PLACE_NAMED;
	header[0] = 0;
#else
	header[0] = 0;                                   /* then a fence, then: */
#ifndef NO_WAIT
	!PLACE_NAMED;
#endif
#endif
#endif
#endif
}

inline enter(e)                   /* e comes to slab 0 */
{
#if defined(HOST) && defined(CAME_EARLY)
	TELL_CAME(e);
#endif
#ifdef SET_EARLY
	atomic { epoch++; header[0] = epoch };
	atomic { entry_place[e] = 0; entry_epoch[e] = epoch };         /* an entry is one word */
#endif
	read(0, e);
#if defined(HOST) && !defined(CAME_EARLY)
	TELL_CAME(e);
#endif
#ifndef SET_EARLY
	atomic { epoch++; header[0] = epoch };
	atomic { entry_place[e] = 0; entry_epoch[e] = epoch };         /* an entry is one word */
#endif
}

proctype mover()
{
	byte st, old;
	quit(X);
	enter(Y);
	quit(Y);                          /* and back: Y leaves, X comes */
	enter(X)
}

#ifdef HOST
#ifdef IN_STEP
#define BETWEEN (1)
#else
#define BETWEEN (!in_step)
#endif
proctype copy()                   /* gpu-worker/hits.c: what was told, in its order, between steps */
{
	byte e, q;
end:	do
	:: atomic { BETWEEN && nempty(told) -> told?e,q;
		if
		:: q != 0 -> card_place[e] = 0; card_epoch[e] = q
		:: else -> card_place[e] = PLACE_NONE; card_epoch[e] = 0; confirmed = 1
		fi; e = 0; q = 0 }
	od
}
#endif

#ifdef CARD
proctype copy()                   /* host table -> card, later */
{
end:	do
	:: atomic { card_place[X] != entry_place[X] -> card_place[X] = entry_place[X]; card_epoch[X] = entry_epoch[X] }
	:: atomic { card_place[Y] != entry_place[Y] -> card_place[Y] = entry_place[Y]; card_epoch[Y] = entry_epoch[Y] }
	od
}
#endif

init {
	atomic {
		entry_place[X] = 0; entry_epoch[X] = 1; entry_place[Y] = PLACE_NONE; card_place[X] = 0; card_epoch[X] = 1; card_place[Y] = PLACE_NONE;
		header[0] = 1; data[0] = X; item_place = PLACE_NONE;
		run device(); run pager(); run trunk(); run mover();
#ifdef HOST
		run copy(); run worker(); run steward()
#elif defined(CARD)
		run copy()
#else
		run worker(); run steward()
#endif
	}
}
