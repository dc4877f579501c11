/* card.pml - the workers of one card that computes experts, one after the other.
 *
 * DESIGN.md section 3 "Owners are outbox numbers", section 6 second row. Processes: the trunk's executor, elsewhere;
 * the steward, which writes the tables, and starts a worker after the one before it has ended; the card's workers,
 * G of them at most; a CPU worker that always can. N calls of I items of one expert, which always lies in RAM and
 * is uploaded to the card's one slot when the card has a worker. A call is made item by item: the table's entry is
 * read, then the word that names the card's worker, and published later.
 *
 * Worker g has number g + 1 and writes in segment g % 2: stamps, rows. Its pool is its own, empty at the start. It
 * may die at every store; one that is to end goes on for a while.
 *
 * The rule verified (28). A worker has ended, and not before: (a) the word is 0, fence; (b) header 0, entry back to
 * the slab, orders that are open answered; (c) its unstamped items are given to somebody else, however late they
 * are published. The next one gets the next number and begins behind the ring's head and the last order; its
 * segment is emptied before, when no open call names the number that had it, and when the executor has published
 * twice since that number left the word (so that none that was being made then can name it still). The word names it
 * when it follows the ring; no entry names a slot before.
 *
 * Variants that must fail: -DNO_HEADER (headers stay at a death), -DSAME_NUMBER (a successor takes its predecessor's
 * number, and the other segment), -DNOT_REAPED (the next one starts, and what is left is put in order, when the
 * worker was told to end), -DEMPTY_EARLY (the segment is emptied while an open call names it), -DNO_PASSING (... while
 * a call is made that may name it: two items of it name the first and the third worker, whose one owner stamp stands
 * for both), -DWORD_FIRST (the word names it before it has begun behind the ring's head).
 */
#ifndef N
#define N 3
#endif
#ifndef I
#define I 2
#endif
#ifndef G
#define G 3
#endif
#define PUBLISHED(n) (2*(n))
#define RETIRED(n) (2*(n)+1)
#define JUNK 99
#define CPU 9
#define OWNER_DISK 0
#ifdef SAME_NUMBER
#define NUMBER(g) 1
#else
#define NUMBER(g) ((g)+1)
#endif
#define SEGMENT(o) (((o)-1)%2)
#define K(s,i) ((s)*I+(i))

byte word, head;                  /* one call in flight */
byte owner[I], item_epoch[I];
byte redirect[I];                 /* 0, or CPU */
byte card;                        /* the word: number of the card's worker, 0 none */
byte entry, header, epoch;        /* 0: the entry names the slab */
byte order, answer;               /* uploads asked for; answered */
byte owner_stamp[2];              /* by segment: the call whose items of its are all done, or declined */
byte row[2*I];                    /* by segment and item: the call, or JUNK */
bool declined[2*I];
byte cpu_stamp[I];
bool dying[G], ended[G];
byte ready;                       /* lives that follow the ring */
byte deaths = G-1;
bool over;

#define IS_OPEN (word > 0 && word%2 == 0)
#define CALL (word/2)

proctype trunk()
{
	byte n = 1, i, e, o, own[I], at[I];
	do
	:: n > N -> break
	:: else ->
		i = 0;
		do
		:: i == I -> break
		:: else ->
			e = entry;
			if
			:: e == 0 -> own[i] = CPU
			:: else -> own[i] = card              /* 0: it has just died; as on disk */
			fi;
			atomic { at[i] = e; e = 0; i++ }
		od;
		atomic {
			i = 0;
			do
			:: i < I -> owner[i] = own[i]; item_epoch[i] = at[i]; redirect[i] = 0; own[i] = 0; at[i] = 0; i++
			:: else -> break
			od;
			word = PUBLISHED(n); head = n; i = 0
		};
		do
		:: i == I -> break
		:: else ->
look:			atomic { o = (redirect[i] -> redirect[i] : owner[i]) };
			if
			:: atomic { o == CPU && cpu_stamp[i] == n -> i++; o = 0 }
			:: atomic { o != CPU && o != OWNER_DISK && owner_stamp[SEGMENT(o)] == n && !declined[K(SEGMENT(o),i)] -> skip };
				assert(row[K(SEGMENT(o),i)] == n);     /* whole, and with its expert */
				atomic { i++; o = 0 }
			:: atomic { redirect[i] && o != redirect[i] -> goto look }
			fi
		od;
		atomic { word = RETIRED(n); n++; i = 0; o = 0 }
	od;
	over = 1
}

proctype cpu()                    /* rows are right by themselves */
{
end:	do
	:: atomic { IS_OPEN && cpu_stamp[0] != CALL && (redirect[0] == CPU || owner[0] == CPU) -> cpu_stamp[0] = CALL }
#if I > 1
	:: atomic { IS_OPEN && cpu_stamp[1] != CALL && (redirect[1] == CPU || owner[1] == CPU) -> cpu_stamp[1] = CALL }
#endif
	od
}

/* a store: it may have been told to end, and not have come to it */
#define ST(x) atomic { if :: dying[g] -> goto out :: x fi }
#define MINE(i) (owner[i] == NUMBER(g) && IS_OPEN && CALL > cursor)
#define SEG (g%2)

inline serve(i)
{
	if
	:: header != item_epoch[i] -> ST(declined[K(SEG,i)] = 1)
	:: header == item_epoch[i] -> ST(declined[K(SEG,i)] = 0; row[K(SEG,i)] = (pool -> n : JUNK))
	fi
}

proctype worker(byte g; byte cursor; byte last)
{
	byte n; bool pool, m;
#ifdef WORD_FIRST
	cursor = head;
#endif
	ST(ready = g + 1);
end:	do
	:: atomic { dying[g] -> goto out }
	:: atomic { MINE(0) || (I > 1 && MINE(I-1)) -> n = CALL; m = MINE(I-1) };
		if :: owner[0] == NUMBER(g) -> serve(0) :: else fi;
#if I > 1
		if :: m -> serve(1) :: else fi;
#endif
		ST(owner_stamp[SEG] = n);
		atomic { cursor = n; n = 0; m = 0 }
	:: atomic { order > last -> last = order };
		ST(pool = 1);
		ST(answer = last)
	od;
out:	atomic { ended[g] = 1; n = 0; m = 0; pool = 0; cursor = 0; last = 0 }
}

#define LOST(i) (IS_OPEN && redirect[i] == 0 && (owner[i] == OWNER_DISK || (owner[i] != CPU && \
	(owner_stamp[SEGMENT(owner[i])] == CALL -> declined[K(SEGMENT(owner[i]),i)] : dead[owner[i]-1]))))
#define NAMED(o) (IS_OPEN && (owner[0] == (o) || (I > 1 && owner[I-1] == (o))))
#ifdef NOT_REAPED
#define GONE(g) dying[g]
#else
#define GONE(g) ended[g]
#endif
#ifdef EMPTY_EARLY
#define MAY_EMPTY (1)
#elif defined(NO_PASSING)
#define MAY_EMPTY (!NAMED(g-1))
#else
#define MAY_EMPTY (head >= lost_at[g%2] + 2 && !NAMED(g-1))       /* g - 1: number of life g - 2 */
#endif

proctype steward()
{
	byte g, asked, lost_at[2]; bool dead[G], down;
	run worker(0, 0, 0);
end:	do
	:: atomic { LOST(0) -> redirect[0] = CPU }
#if I > 1
	:: atomic { LOST(1) -> redirect[1] = CPU }
#endif
	:: atomic { !down && ready == g + 1 && card == 0 -> skip };
		card = NUMBER(g)
#ifdef WORD_FIRST
	:: atomic { !down && card == 0 -> card = NUMBER(g) }
#endif
	:: atomic { card != 0 && entry == 0 && order == answer && asked == 0 -> order++; asked = order }
	:: atomic { asked != 0 && answer == asked && !down -> asked = 0; epoch++; header = epoch };
		entry = epoch
	:: atomic { !down && deaths > 0 -> deaths--; dying[g] = 1; down = 1 };
		GONE(g);
		atomic { card = 0; lost_at[g%2] = head };           /* fence */
		entry = 0;
#ifndef NO_HEADER
		header = 0;
#endif
		atomic { answer = order; asked = 0;
#ifndef SAME_NUMBER
			dead[g] = 1;
#endif
			g++ };
	:: atomic { down && g < G && (g < 2 || MAY_EMPTY) ->
			owner_stamp[g%2] = 0; declined[K(g%2,0)] = 0; row[K(g%2,0)] = 0;
#if I > 1
			declined[K(g%2,1)] = 0; row[K(g%2,1)] = 0;
#endif
			down = 0;
			run worker(g, head, order)
		}
	od
}

init { atomic { run trunk(); run cpu(); run steward() } }
