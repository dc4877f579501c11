/* nodes.pml - an item cut by rows over two nodes: stage stamps, no barrier, death between the stages.
 *
 * DESIGN.md section 3 "Sockets", section 6 first line. J items a round (item 0 by the call ring, item 1 by the
 * amendment ring, in either order of arrival), two shares each, ROUNDS rounds that use the same places in
 * the outboxes. Share k is node k's until the steward gives it to another outbox by the share's redirect
 * word. Node 1 may die at any point; its replacement has outbox 2. N_LATE shares are taken from a live
 * node 1 that goes on. A share is: stage one (its part of the intermediate, half written in between),
 * stage stamp; then the other share's intermediate from that share's present owner; down rows; stamp.
 *
 * Rule verified: a node that waits for another share goes on looking at both rings and does stage one of
 * everything it owns (so none waits for a stage one that a waiting node has yet to do); stage two of a share is done when the other share's present owner has stamped.
 *
 * Variants that must fail: -DBLOCK (a node finishes an item before it looks at the next: "items in list
 * order, amendments in ring order"; also with -DNO_DEATH -DN_LATE=0: the two rings seen in other orders), -DBLOCK -DJ=1 (one item only: the take-over is never looked at),
 * -DNO_VOID (a waiting node does not look at redirect words), -DSTAGE_BIT (stage stamps do not carry
 * the call's number), -DSTAMP_FIRST (stage stamp before the intermediate is whole), -DROWS_ONLY (after a
 * death only the down rows are made again, the intermediate is looked for at the new owner).
 */
#ifndef J
#define J 2
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#ifndef N_LATE
#define N_LATE 1
#endif
#define S(j,k) ((j)*2+(k))
#define Z(o,j,k) ((o)*J*2+S(j,k))
#define JUNK 9

byte vis[J];                      /* round in which item j was published */
byte redirect_round[J*2], redirect_outbox[J*2];      /* redirect word of a share: round, outbox */
byte inter[3*J*2], stage_stamp[3*J*2];     /* intermediate and stage stamp of a share, in outbox o */
byte row[3*J*2], item_stamp[3*J*2];      /* down rows and stamp */
bool dead[3], up[3];
byte late = N_LATE;
byte gone;                        /* ghost: rounds read by the trunk */

#define PRESENT_OUTBOX(j,k,r) ((redirect_round[S(j,k)] == (r)) -> redirect_outbox[S(j,k)] : (k))
#ifdef STAGE_BIT
#define STAGED(o,j,k,r) (stage_stamp[Z(o,j,k)] != 0)
#else
#define STAGED(o,j,k,r) (stage_stamp[Z(o,j,k)] == (r))
#endif

proctype trunk()
{
	byte r = 1, j, k, o;
	do
	:: r > ROUNDS -> break
	:: else ->
		if                                    /* the two rings: either first */
		:: vis[0] = r; vis[J-1] = r
		:: vis[J-1] = r; vis[0] = r
		fi;
		j = 0;
		do
		:: j == J*2 -> break
		:: j < J*2 ->
			k = j % 2;
look:			o = PRESENT_OUTBOX(j/2, k, r);
			if
			:: atomic { item_stamp[Z(o,j/2,k)] == r -> assert(row[Z(o,j/2,k)] == r); j++; k = 0; o = 0 }
			:: atomic { PRESENT_OUTBOX(j/2, k, r) != o -> goto look }
			fi
		od;
		atomic { gone = r; r++; j = 0 }
	od
}

/* share (j,k) of the open round is mine, and: not staged / staged, not finished */
#define R_(j) (vis[j])
#define MINE(j,k) (R_(j) > gone && PRESENT_OUTBOX(j,k,R_(j)) == o)
#define TODO1(j,k) (MINE(j,k) && stage_stamp[Z(o,j,k)] != R_(j))
#define TODO2(j,k) (MINE(j,k) && stage_stamp[Z(o,j,k)] == R_(j) && item_stamp[Z(o,j,k)] != R_(j))
#ifdef NO_VOID
#define OTHER(j,k) (1-(k))
#else
#define OTHER(j,k) PRESENT_OUTBOX(j,1-(k),R_(j))
#endif
#define READY(j,k) STAGED(OTHER(j,k),j,1-(k),R_(j))
#define ST(x) atomic { if :: dead[o] -> goto out :: else -> x fi }
#ifdef BLOCK
#define FREE (!busy)
#else
#define FREE (1)
#endif

inline one(j,k)
{
#ifdef STAMP_FIRST
	ST(inter[Z(o,j,k)] = JUNK; stage_stamp[Z(o,j,k)] = r);
	ST(inter[Z(o,j,k)] = r; busy = 1)
#else
#ifdef ROWS_ONLY
	if :: k != o -> ST(stage_stamp[Z(o,j,k)] = r) :: else -> ST(inter[Z(o,j,k)] = JUNK); ST(inter[Z(o,j,k)] = r); ST(stage_stamp[Z(o,j,k)] = r; busy = 1) fi
#else
	ST(inter[Z(o,j,k)] = JUNK);
	ST(inter[Z(o,j,k)] = r);
	ST(stage_stamp[Z(o,j,k)] = r; busy = 1)
#endif
#endif
}
inline two(j,k)
{
	ST(row[Z(o,j,k)] = ((a == r && inter[Z(o,j,k)] == r) -> r : JUNK); a = 0);
	ST(item_stamp[Z(o,j,k)] = r; busy = 0)
}
#define SHARE(j,k) \
	:: atomic { FREE && TODO1(j,k) -> r = R_(j) }; one(j,k) \
	:: atomic { TODO2(j,k) && READY(j,k) -> r = R_(j); a = inter[Z(OTHER(j,k),j,1-(k))] }; two(j,k)

proctype node(byte o)
{
	byte r, a; bool busy;
end:	do
	:: atomic { dead[o] -> goto out }
	SHARE(0,0)
	SHARE(0,1)
#if J > 1
	SHARE(1,0)
	SHARE(1,1)
#endif
	od;
out:	atomic { r = 0; a = 0; busy = 0 }
}

#define UNFIN(j,k) (vis[j] > gone && item_stamp[Z(PRESENT_OUTBOX(j,k,vis[j]),j,k)] != vis[j])
#define CASE(j,k) \
	:: atomic { UNFIN(j,k) && dead[PRESENT_OUTBOX(j,k,vis[j])] -> \
		if :: o = 0 :: up[2] -> o = 2 fi; redirect_round[S(j,k)] = vis[j]; redirect_outbox[S(j,k)] = o; o = 0 } \
	:: atomic { late > 0 && UNFIN(j,k) && PRESENT_OUTBOX(j,k,vis[j]) == 1 -> late--; \
		if :: o = 0 :: up[2] -> o = 2 fi; redirect_round[S(j,k)] = vis[j]; redirect_outbox[S(j,k)] = o; o = 0 }

proctype steward()
{
	byte o;
end:	do
	CASE(0,0)
	CASE(0,1)
#if J > 1
	CASE(1,0)
	CASE(1,1)
#endif
	od
}

proctype fate()
{
#ifndef NO_DEATH
	if :: dead[1] = 1 :: goto no fi;
#else
	goto no;
#endif
	if :: atomic { up[2] = 1; run node(2) } :: true fi;
no:	skip
}

init { atomic { run trunk(); run steward(); run node(0); run node(1); run fate() } }
