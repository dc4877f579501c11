/* amend.pml - amendments, redirect words, death, late workers, DECLINED, a new outbox.
 *
 * DESIGN.md section 3 "Outboxes", "Stamps", "Amendments", section 4 "Waves", section 6. Processes: the
 * trunk, the steward, two workers (outboxes 0 and 1) and the replacement of the one that dies (outbox
 * 2). N calls of I items, R call slots, two calls in flight, M amendment slots. One death of a worker
 * anywhere (-DDEATHS=0: none), N_LATE items taken from a live worker that goes on, N_DECL refusals. An item's owner is chosen freely
 * and may be on disk, or a worker that is dead. Copies are whole here (ring.pml checks tearing).
 *
 * What a row is worth: row[o][item] = n if it was made for call n while its inputs stood, else JUNK.
 * Rule of places: a place named by an item, in the call or in an amendment, stays as it is until that
 * giving is stamped (done or declined), or its process is reaped, or the call is retired. Hence a row made
 * while its call is open is right, whoever made it.
 * Owner stamp: one word a ring slot, 2n + "some declined". Item stamp: (call, amendment, kind), one word; a
 * stamp of the call's own giving never replaces one of an amendment. Redirect word: (call, amendment, outbox).
 * Properties: assertions in trunk() (each item taken once, in order, whole and right), amends_head <= MAXAM (no endless
 * giving), and no invalid end state (every call completes).
 *
 * -DSTAMPED_FREE passes: an amendment that its owner has stamped, done or declined, does not count any more either
 * (the program's rule).
 * -DDEAD_FREE passes: nor does one whose owner is dead (the program's rule, too).
 *
 * -DTRUNK_DIES: the trunk's executor dies with calls open; the coordinator retires them, unfinished, while the steward
 * and the workers go on; the successor goes on with the next number.
 *
 * Variants that must fail (README.md has the options each was found with):
 *   -DAS_WRITTEN     a place may go when the item's present owner has stamped, an earlier one or not
 *   -DOLDER_STAMP    a worker lets an older stamp of its own replace a newer one of the same item
 *   -DSKIP_SILENT    a worker passes over items that were taken from it and stamps "all done"
 *                    (-DSKIP_DECL passes: it may pass over them if it stamps them DECLINED)
 *   -DSTAMP_IS_CALL  item stamps carry the call's number, not the amendment's
 *   -DRED_NO_CALL    redirect words without the call's number
 *   -DDECL_NO_FLAG   an owner that declined stamps like one that did all
 *   -DAM_FREE        amendment slots are filled again without looking
 *   -DAM_BLOCK       the steward waits until the oldest amendment's item is complete
 *   -DOLD_OUTBOX     the replacement takes over the dead one's outbox number and starts at the head
 */
#ifndef N
#define N 2
#endif
#ifndef I
#define I 1
#endif
#ifndef R
#define R 2
#endif
#ifndef M
#define M 2
#endif
#ifndef N_LATE
#define N_LATE 1
#endif
#ifndef N_DECL
#define N_DECL 0
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef MAXAM
#define MAXAM (2*(N*I+2*I+2))   /* twice the honest reasons */
#endif
#define F 2
#define PUBLISHED(n) (2*(n))
#define RETIRED(n) (2*(n)+1)
#define OWNER_DISK 7
#define JUNK 99
#define STAMP_NONE 0
#define STAMP_DONE 1
#define STAMP_DECLINED 2
#define ORIG(n) (100+(n))           /* "amendment number" of an item not amended */
#define K(s,i) ((s)*I+(i))
#define X(o,k) ((o)*R*I+(k))

byte word[R];                        /* call slots: word, owners */
byte owner[R*I];
byte redirect_call[R*I], redirect_amend[R*I], redirect_outbox[R*I];            /* redirect word: call, amendment, outbox */
byte slot_seq[M], slot_call[M], slot_item[M], slot_outbox[M];               /* amendment slots: number, call, item, outbox */
byte amends_head;                                          /* amendments published */
byte owner_stamp[3*R];                                      /* owner stamps, one a slot: 2n + "some declined" */
byte stamp_call[3*R*I], stamp_amend[3*R*I], stamp_kind[3*R*I];         /* item stamps: call, amendment, kind (one word) */
byte row[3*R*I];
bool dead[3], up[3], ended;
byte deaths = DEATHS, late = N_LATE, decl = N_DECL;
#ifdef TRUNK_DIES
byte trunk_deaths = 1;
#endif
byte gone, calls_head;                                    /* retired calls; published calls */

#ifdef STAMP_IS_CALL
#define SV(n,a) ORIG(n)
#else
#define SV(n,a) (a)
#endif
#ifdef RED_NO_CALL
#define REDIRECT_IS_OF(k,n) (redirect_call[k] != 0)
#else
#define REDIRECT_IS_OF(k,n) (redirect_call[k] == (n))
#endif
#define PRESENT_AMEND(k,n) (REDIRECT_IS_OF(k,n) -> redirect_amend[k] : ORIG(n))  /* present amendment of item k of call n */
#define PRESENT_OUTBOX(k,n) (REDIRECT_IS_OF(k,n) -> redirect_outbox[k] : owner[k])
#define STAMP_IS_OF(o,k,n) (stamp_call[X(o,k)] == (n))
/* does the stamp in outbox o say that item k of call n is done under a? */
#define OWNER_DONE(o,k,n) (owner_stamp[(o)*R + (n)%R] == 2*(n) || (owner_stamp[(o)*R + (n)%R] == 2*(n)+1 && !(STAMP_IS_OF(o,k,n) && stamp_kind[X(o,k)] == STAMP_DECLINED)))
#define ITEM_DONE(o,k,n,a) (STAMP_IS_OF(o,k,n) && stamp_amend[X(o,k)] == SV(n,a) && stamp_kind[X(o,k)] == STAMP_DONE)
#define STAMPED(o,k,n,a) ((o) < 3 && ((a) == ORIG(n) -> OWNER_DONE(o,k,n) : ITEM_DONE(o,k,n,a)))

#ifdef AS_WRITTEN
#define STANDS(k,n,a) (gone < (n) && (PRESENT_AMEND(k,n) == (a) || !STAMPED(PRESENT_OUTBOX(k,n),k,n,PRESENT_AMEND(k,n))))
#else
#define STANDS(k,n,a) (gone < (n))
#endif

/* fewer states: what belongs to a retired call is never compared with success again */
#ifdef RED_NO_CALL
#define FORGET(c) skip
#else
#define FORGET(c) d_step { \
	i = 0; do :: i < I -> redirect_call[K(c%R,i)] = 0; redirect_amend[K(c%R,i)] = 0; redirect_outbox[K(c%R,i)] = 0; owner[K(c%R,i)] = 0; \
		o = 0; do :: o < 3 -> stamp_call[X(o,K(c%R,i))] = 0; stamp_amend[X(o,K(c%R,i))] = 0; stamp_kind[X(o,K(c%R,i))] = 0; \
			row[X(o,K(c%R,i))] = 0; owner_stamp[o*R+c%R] = 0; o++ :: else -> break od; i++ :: else -> break od; \
	i = 0; do :: i < M -> if :: slot_call[i] == c -> slot_call[i] = 0; slot_item[i] = 0; slot_outbox[i] = 0; slot_seq[i] = 0 :: else fi; i++ :: else -> break od }
#endif

proctype trunk()
{
	byte n = 1, c = 1, k, i, a, o;
	do
	:: c > N -> break
#ifdef TRUNK_DIES
	:: atomic { trunk_deaths > 0 && c < n -> trunk_deaths-- };   /* reaped: the coordinator retires what is open */
		do
		:: c == n -> break
		:: c < n -> atomic { FORGET(c); gone = c; word[c%R] = RETIRED(c); c++; i = 0; o = 0 }
		od                                 /* its successor goes on with the next number */
#endif
	:: n <= N && n - c < F ->
		atomic {                       /* fields, then the word */
			i = 0;
			do
			:: i < I ->
				if :: o = 0 :: o = 1 :: o = OWNER_DISK :: up[2] -> o = 2 fi;
				owner[K(n%R, i)] = o; i++
			:: else -> break
			od;
			word[n%R] = PUBLISHED(n); calls_head = n; n++; i = 0; o = 0
		}
	:: c < n ->
		do
		:: i == I -> break
		:: i < I ->
look:			atomic { k = K(c%R, i); a = PRESENT_AMEND(k, c); o = PRESENT_OUTBOX(k, c) };   /* one load */
			if
			:: atomic { STAMPED(o, k, c, a) -> skip };
#ifdef LOOK_AFTER
				if :: PRESENT_AMEND(k, c) == a :: else -> goto look fi;
#endif
				atomic { assert(row[X(o,k)] == c); i++; a = 0; o = 0; k = 0 }   /* whole and right */
			:: atomic { PRESENT_AMEND(k, c) != a -> goto look }
			fi
		od;
		atomic { FORGET(c); gone = c; word[c%R] = RETIRED(c); c++; i = 0; a = 0; o = 0; k = 0 }
	od
}

/* ---- the steward ---- */
#ifdef STAMPED_FREE
#define ANSWERED(m) (STAMP_IS_OF(slot_outbox[m], slot_item[m], slot_call[m]) && stamp_amend[X(slot_outbox[m], slot_item[m])] == slot_seq[m])
#else
#define ANSWERED(m) (0)
#endif
#ifdef DEAD_FREE
#define SERVES(m) (!dead[slot_outbox[m]])
#else
#define SERVES(m) (1)
#endif
#define AMEND_COUNTS(m) (SERVES(m) && slot_seq[m] != 0 && word[(slot_item[m])/I] == PUBLISHED(slot_call[m]) && redirect_call[slot_item[m]] == slot_call[m] && redirect_amend[slot_item[m]] == slot_seq[m] && !ANSWERED(m))
#define CALL_IS_OPEN(k) (word[(k)/I] > 0 && word[(k)/I]%2 == 0)
#define CALL(k) (word[(k)/I]/2)
#define DECLINED(o,k,n,a) ((o) < 3 && STAMP_IS_OF(o,k,n) && stamp_amend[X(o,k)] == SV(n,a) && stamp_kind[X(o,k)] == STAMP_DECLINED)
#define P_O(k) PRESENT_OUTBOX(k, CALL(k))
#define P_A(k) PRESENT_AMEND(k, CALL(k))
#define NEEDS(k) (CALL_IS_OPEN(k) && !STAMPED(P_O(k), k, CALL(k), P_A(k)) && \
	(P_O(k) == OWNER_DISK || dead[P_O(k)] || DECLINED(P_O(k), k, CALL(k), P_A(k))))

inline amend(k)                       /* item k of call n (set) to a live worker */
{
	atomic {
		if
		:: up[0] && !dead[0] -> o = 0
		:: up[1] && !dead[1] -> o = 1
		:: up[2] && !dead[2] -> o = 2
		fi;
		amends_head++;
		assert(amends_head <= MAXAM);        /* no endless giving */
		redirect_call[k] = n; redirect_amend[k] = amends_head; redirect_outbox[k] = o       /* the redirect word, one store */
	};
#ifdef AM_BLOCK
	!AMEND_COUNTS(amends_head%M);
#endif
	d_step { m = amends_head%M; slot_call[m] = n; slot_item[m] = k; slot_outbox[m] = o; slot_seq[m] = amends_head; m = 0; o = 0; n = 0 }
}
/* The ring never blocks: if the next slot's amendment still counts, its item is the one amended next. */
#if defined(AM_FREE) || defined(AM_BLOCK)
#define TURN(k) (1)
#else
#define TURN(k) (!AMEND_COUNTS((amends_head+1)%M) || slot_item[(amends_head+1)%M] == (k))
#endif
#define MUST(k) (AMEND_COUNTS((amends_head+1)%M) && slot_item[(amends_head+1)%M] == (k))   /* published again: new number, any owner */
#if defined(AM_FREE) || defined(AM_BLOCK)
#define AGAIN(k) (0)
#else
#define AGAIN(k) (MUST(k) && OTHERS)
#endif
#define OTHERS (NEEDS(0) || NEEDS(1) ||  (R*I > 2 && (NEEDS((R*I > 2 -> 2 : 0)) || NEEDS((R*I > 2 -> 3 : 0)))))
#define LATE(k) (late > 0 && CALL_IS_OPEN(k) && P_O(k) < 3 && !STAMPED(P_O(k), k, CALL(k), P_A(k)))

#define CASE(k) \
	:: atomic { NEEDS(k) && TURN(k) -> n = CALL(k) }; amend(k) \
	:: atomic { !NEEDS(k) && AGAIN(k) -> n = CALL(k) }; amend(k) \
	:: atomic { LATE(k) && TURN(k) -> n = CALL(k); late-- }; amend(k)

proctype steward()
{
	byte n, o, m;
end:	do
	CASE(0)
	CASE(1)
#if R*I > 2
	CASE(2)
	CASE(3)
#endif
	od
}

/* ---- workers ---- */
#ifdef OLDER_STAMP
#define NEWER(k,n,a) (0)
#else
#define NEWER(k,n,a) (stamp_call[X(o,k)] == (n) && (a) >= ORIG(0) && stamp_amend[X(o,k)] < ORIG(0))
#endif
#define STAMP(k,n,a,kind) if :: NEWER(k,n,a) :: else -> stamp_call[X(o,k)] = n; stamp_amend[X(o,k)] = SV(n,a); stamp_kind[X(o,k)] = kind fi
#ifdef DECL_NO_FLAG
#define FLAG 0
#else
#define FLAG 1
#endif
#define OF_NOW(m) (word[slot_item[m]/I] == PUBLISHED(slot_call[m]))      /* the amendment's call is still open */
#define ST(x) atomic { if :: dead[o] -> goto out :: else -> x fi }

inline make(k, n, a)                  /* item k of call n under number a: begin, half written, written */
{
	ST(g = STANDS(k, n, a); row[X(o,k)] = (row[X(o,k)] == n -> n : JUNK));
	ST(row[X(o,k)] = (g && STANDS(k, n, a) -> n : JUNK); g = 0);
}

#ifdef SKIP_SILENT
#define MINE(n,i) (owner[K((n)%R,i)] == o && PRESENT_AMEND(K((n)%R,i), n) == ORIG(n))
#else
#define MINE(n,i) (owner[K((n)%R,i)] == o)
#endif
#define WORK(s) (CALL_IS_OPEN((s)*I) && word[s]/2 > cursor && (owner[K(s,0)] == o || owner[K(s,I-1)] == o))
#define AMD(m) (slot_seq[m] > amend_cursor && slot_outbox[m] == o && OF_NOW(m))

/* Passing over calls and amendments of others changes nothing that is shared, so a worker goes
 * straight to its next own one, in number order. */
proctype worker(byte o; byte cursor; byte amend_cursor)
{
	byte i, k, n; bool g, d;
end:	do
	:: atomic { dead[o] -> goto out }
	:: atomic { WORK(0) || WORK(1) ->
		n = ((WORK(0) && (!WORK(1) || word[0] < word[1])) -> word[0]/2 : word[1]/2);
		i = (MINE(n,0) -> 0 : ((I > 1 && MINE(n,I-1)) -> I-1 : I)) };
		do
		:: i < I ->
			if
			:: make(K(n%R,i), n, ORIG(n))
			:: atomic { decl > 0 -> decl-- };
				ST(STAMP(K(n%R,i), n, ORIG(n), STAMP_DECLINED); d = FLAG)
#ifdef SKIP_DECL
			:: PRESENT_AMEND(K(n%R,i), n) != ORIG(n) ->
				ST(STAMP(K(n%R,i), n, ORIG(n), STAMP_DECLINED); d = FLAG)
#endif
			fi;
			atomic { i = ((i == 0 && I > 1 && word[n%R] == PUBLISHED(n) && MINE(n,I-1)) -> I-1 : I) }
		:: i == I -> break
		od;
		ST(owner_stamp[o*R + n%R] = 2*n + d; cursor = n; i = 0; n = 0; d = 0)
	:: atomic { AMD(0) || AMD(1) || AMD(M-1) ->
		i = ((AMD(0) && (!AMD(1) || slot_seq[0] < slot_seq[1])) -> 0 : 1);
		if :: AMD(M-1) && (!AMD(i) || slot_seq[M-1] < slot_seq[i]) -> i = M-1 :: else fi;
		n = slot_call[i]; k = slot_item[i]; amend_cursor = slot_seq[i]; i = 0 };
		if
		:: make(k, n, amend_cursor);
			ST(STAMP(k, n, amend_cursor, STAMP_DONE); k = 0; n = 0)
		:: atomic { decl > 0 -> decl-- };
			ST(STAMP(k, n, amend_cursor, STAMP_DECLINED); k = 0; n = 0)
		fi
	od;
out:	atomic { ended = (o == 0 -> 1 : ended); cursor = 0; amend_cursor = 0; i = 0; k = 0; n = 0; g = 0; d = 0 }
}

proctype fate()
{
	if
	:: atomic { deaths > 0 -> deaths--; dead[0] = 1 }     /* worker 0: owners are free, so no loss */
	:: true -> goto no
	fi;
	if
#ifdef OLD_OUTBOX
	:: atomic { dead[0] && ended -> dead[0] = 0; run worker(0, calls_head, amends_head) }
#else
	/* a new number: no call names it before it is up, so it starts behind both heads */
	:: atomic { dead[0] -> up[2] = 1; run worker(2, calls_head, amends_head) }
#endif
	:: true
	fi;
no:	skip
}

init { atomic { up[0] = 1; up[1] = 1; run trunk(); run steward(); run worker(0, 0, 0); run worker(1, 0, 0); run fate() } }
