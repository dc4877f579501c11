/* host.pml - the card that hosts the trunk dies, its experts with it.
 *
 * DESIGN.md section 6 "The worker that hosts the trunk". One process, and its successors: executor, worker of the
 * rings, and the thread of orders in one, with a pool of one slot, a copy of the table, and what that copy has been
 * told and not applied yet; all of it is gone at its death. The coordinator (main thread and steward) hands out
 * N steps of one call of one item, always of the same expert, which lies in RAM, and uploads and clears it as it
 * likes. The executor decides at the step's begin: own hit (never published), or else as the table's entry says, by
 * itself as a worker (header), or by a CPU worker, who always can.
 *
 * The rule verified (21 to 24, 27, 28 together). The process has ended, and not before: the word that names it is
 * 0; header 0, entry to the slab; what it was ordered and has not answered is answered for it, a clear as done;
 * its open call is retired. The successor begins behind the last order, with an empty pool and an empty copy; the
 * step is handed out again.
 *
 * Variants that must fail: -DKEEP_HEADER (entry and header stay), -DKEEP_COPY (the copy outlives the process),
 * -DKEEP_ORDERS (what was open stays so: an upload that the dead one had answered is taken for one that is there),
 * -DOLD_ORDERS (the successor begins with the order that was open: its slab has been let go, what it copies is
 * anything, and its copy of the table names it).
 */
#ifndef N
#define N 3
#endif
#ifndef G
#define G 3
#endif
#ifndef CLEARS
#define CLEARS 2
#endif
#define UPLOAD 1
#define CLEAR 2
#define PUBLISHED(n) (2*(n))
#define RETIRED(n) (2*(n)+1)
#define CPU 9

byte word, calls;                 /* the call ring's one slot; calls published */
byte owner, item_epoch;           /* of the call's item: a life + 1, or CPU */
bool declined, stamped, given;    /* given: by amendment, to the CPU worker */
byte card;                        /* the life that follows + 1 */
byte entry, header, epoch;
byte order, kind, order_epoch, answer; /* one open at a time */
byte record, done;                /* step records, answers */
bool dying[G], ended[G];
byte ready;
#ifdef KEEP_COPY
byte kept_copy;
#endif

#define ST(x) atomic { if :: dying[g] -> goto out :: x fi }

proctype process(byte g; byte last; byte rec)
{
	bool pool; byte copy, told, told_epoch, n;
#ifdef KEEP_COPY
	copy = kept_copy;
#endif
	ST(ready = g + 1);
end:	do
	:: atomic { dying[g] -> goto out }
	:: atomic { order > last -> last = order };      /* orders, while no step is open or in between */
		if
		:: kind == UPLOAD -> ST(pool = (answer < last));        /* else the slab is not held */
			 atomic { told = UPLOAD; told_epoch = order_epoch }; ST(answer = last)
		:: kind == CLEAR -> atomic { copy = 0; told = 0
#ifdef KEEP_COPY
			; kept_copy = 0
#endif
			}; ST(answer = last)      /* no step is open */
		fi
	:: atomic { record > rec -> rec = record };
		atomic { if :: told == UPLOAD -> copy = told_epoch; told = 0 :: else fi
#ifdef KEEP_COPY
			; kept_copy = copy
#endif
			};
		if
		:: copy != 0 -> assert(pool)                 /* an own hit: a node of the same graph ... */
		:: else ->
			n = entry;                               /* the table, then the call */
			atomic { if :: dying[g] -> goto out :: else fi;
				owner = (n != 0 && card == g + 1 -> g + 1 : CPU); item_epoch = n; stamped = 0; declined = 0; given = 0;
				calls++; word = PUBLISHED(calls); n = calls };
			if
			:: owner == g + 1 ->                     /* as a worker of the rings */
				if
				:: header == item_epoch -> assert(pool); ST(stamped = 1)
				:: header != item_epoch -> ST(declined = 1)
				fi
			:: else
			fi;
			if
			:: atomic { stamped -> skip }
			:: atomic { dying[g] -> goto out }
			fi;
			ST(word = RETIRED(n); n = 0)
		fi;
		ST(done = rec)
	od;
out:	atomic { ended[g] = 1; pool = 0; copy = 0; told = 0; told_epoch = 0; n = 0; last = 0; rec = 0 }
}

proctype cpu()
{
end:	do
	:: atomic { word > 0 && word%2 == 0 && !stamped && (owner == CPU || given) -> stamped = 1 }
	od
}

proctype coordinator()
{
	byte g, clears = CLEARS, deaths = G-1; byte want; bool down, open;
	run process(0, 0, 0);
end:	do
	:: atomic { done == record && record < N && !down && card == g + 1 -> record++ }
	:: atomic { !down && ready == g + 1 && card == 0 -> card = g + 1 }
	:: atomic { word > 0 && word%2 == 0 && declined && !given -> given = 1 }
	:: atomic { !down && card != 0 && !open && entry == 0 && header == 0 -> open = 1; want = UPLOAD; epoch++; kind = UPLOAD; order_epoch = epoch; order++ }
	:: atomic { open && want == UPLOAD && answer == order && !down -> open = 0; want = 0; header = order_epoch };
		entry = header
	:: atomic { !down && card != 0 && !open && entry != 0 && clears > 0 -> clears--; entry = 0; open = 1; want = CLEAR; kind = CLEAR; order++ }
	:: atomic { open && want == CLEAR && answer == order && !down -> open = 0; want = 0; header = 0 }
	:: atomic { !down && deaths > 0 -> deaths--; dying[g] = 1; down = 1 };
		ended[g];
		card = 0;
#ifndef KEEP_HEADER
		entry = 0;
		header = 0;
#endif
#ifndef KEEP_ORDERS
		atomic { answer = order; open = 0; want = 0 };
#endif
		atomic { if :: word > 0 && word%2 == 0 -> word = word + 1 :: else fi };
		atomic { g++; down = 0;
#ifdef OLD_ORDERS
			run process(g, (order > 0 -> order - 1 : 0), record);
#else
			run process(g, order, record);
#endif
			if :: done != record -> record++ :: else fi }                /* the step again */
	od
}

init { atomic { run coordinator(); run cpu() } }
