/* orders.pml - orders to the pager: reads and cancelling; when a place may take another expert.
 *
 * DESIGN.md section 4 "A slab with an open read", shm/layout.h "orders", pager/jobs.c. The coordinator gives
 * N experts, one after the other, the same slab: it orders the read of expert n (two pieces, each a read of
 * its own), may cancel it at any moment, and when it is answered either uses the bytes (done) or gives the
 * slab away (failed). The order to cancel is an order too: the pager may come to it after the answer of the
 * one it is about, when the next is open already. The pager begins reads when it likes (raising changes only
 * which it likes), the device lands them when it likes and in any order; a read may fail.
 *
 * Asserted: the bytes of an order that is answered "done" are there, all of them; when an order is answered
 * nothing can land in its slab any more; one that was not cancelled fails only if a read failed. Every order
 * is answered (no invalid end state).
 *
 * Variants that must fail: -DANSWER_EARLY (a cancelled order is answered while reads of it are out),
 * -DFAIL_EARLY (the same for an order of which a read failed), -DDONE_DROPPED (an order of which a read was
 * dropped is answered done when the others have come), -DBY_SLOT (a change is carried out on whatever order
 * is open, not on the one that it names).
 */
#ifndef N
#define N 4
#endif
#define P 2

byte data[P];                  /* the slab: whose bytes lie in each piece */
byte given = 0;                /* orders published: number of the last */
bool cancel_sent;              /* for order `target`, not yet taken by the pager */
byte target;
byte answered = 0;             /* number of the last answered order */
bool good, by_read;            /* its answer; it failed because a read did */

byte out[P];                   /* reads in the kernel: of which order; 0 none */
bool landed[P], bad[P];        /* their completions */

active proctype device()
{
end:	do
	:: atomic { out[0] != 0 && !landed[0] -> data[0] = out[0]; landed[0] = 1 }
	:: atomic { out[1] != 0 && !landed[1] -> data[1] = out[1]; landed[1] = 1 }
	:: atomic { out[0] != 0 && !landed[0] -> data[0] = 99; bad[0] = 1; landed[0] = 1 }
	:: atomic { out[1] != 0 && !landed[1] -> data[1] = 99; bad[1] = 1; landed[1] = 1 }
	od
}

active proctype pager()
{
	byte cur = 0, begun = 0;     /* the open order; its pieces that were begun, as bits */
	bool failed = 0, dropped = 0;
end:	do
	:: atomic { cur == 0 && given > answered -> cur = given; begun = 0; failed = 0; dropped = 0 }
	:: atomic { cur != 0 && !failed && !dropped && (begun & 1) == 0 -> begun = begun | 1; out[0] = cur }
	:: atomic { cur != 0 && !failed && !dropped && (begun & 2) == 0 -> begun = begun | 2; out[1] = cur }
	:: atomic { landed[0] -> landed[0] = 0; out[0] = 0; failed = failed || bad[0]; bad[0] = 0 }
	:: atomic { landed[1] -> landed[1] = 0; out[1] = 0; failed = failed || bad[1]; bad[1] = 0 }
	   /* the order to cancel: nothing, if the order it names is not open or all its reads were begun */
	:: atomic { cancel_sent && (cur != 0 || target <= answered) ->
		cancel_sent = 0;
		if
#ifdef BY_SLOT
		:: cur != 0 && begun != 3 -> dropped = 1
#else
		:: cur != 0 && cur == target && begun != 3 -> dropped = 1
#endif
		:: else
		fi }
	:: atomic { cur != 0 && out[0] == 0 && out[1] == 0 && (begun == 3 || failed || dropped) ->
#ifdef DONE_DROPPED
		good = !failed;
#else
		good = !failed && begun == 3;
#endif
		by_read = failed; answered = cur; cur = 0 }
#ifdef ANSWER_EARLY
	:: atomic { cur != 0 && dropped -> good = 0; by_read = failed; answered = cur; cur = 0 }
#endif
#ifdef FAIL_EARLY
	:: atomic { cur != 0 && failed -> good = 0; by_read = failed; answered = cur; cur = 0 }
#endif
	od
}

active proctype coordinator()
{
	bool wanted;
	do
	:: given == N -> break
	:: else ->
		atomic { given++; wanted = 1 };      /* the slab belongs to expert `given` now */
		do
		:: atomic { answered != given && wanted && !cancel_sent -> cancel_sent = 1; target = given; wanted = 0 }
		:: answered == given -> break
		od;
		if
		:: good ->                       /* used for a while */
			assert(data[0] == given && data[1] == given);
			assert(data[0] == given && data[1] == given)
		:: else ->
			assert(by_read || !wanted)
		fi;
		assert(out[0] == 0 && out[1] == 0) /* nothing can land any more */
	od
}
