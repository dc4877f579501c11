/* The words that two processes share. Every structure has a table: who writes a field, in which
 * order, and what holds when either side dies. One writer a field, fixed-width types, no pointers.
 * The protocol is checked by shm/model/ (Promela); change both together.
 *
 * Numbers: a call's number n is 64 bits, begins at 1 and is never reused. Amendments likewise.
 * Process slots: an index into bells and the process table. 0 is the trunk's executor, wherever it
 * lives, 1 the steward, 1022 the coordinator's main thread, from 2 on a worker's outbox number. A
 * replaced worker gets a number never used before; cards' numbers: card_outbox. */
#pragma once
#ifdef __cplusplus /* .cu files: where the words lie; what touches them there are kernels' own instructions */
#define _Atomic volatile
#define _Alignas alignas
#define _Static_assert static_assert
#else
#include <stdatomic.h>
#endif
#include <stddef.h>
#include <stdint.h>

#define LINE _Alignas(64)

#define CALL_SLOTS 8u       /* R: the owner stamps of eight slots are one cache line */
#define CALLS_IN_FLIGHT 2u  /* F: sub-calls of a layer; each has half of every arena */
#define MAX_NODES 8u        /* shares of an item */
#define MAX_PROCS 1024u     /* process slots: an outbox number has 10 bits in a redirect word */
#define PROC_TRUNK 0u
#define PROC_STEWARD 1u
#define PROC_FIRST_WORKER 2u
#define PROC_MAIN 1022u
#define PROC_PAGER (PROC_FIRST_WORKER + MAX_NODES)
#define MAX_CARDS 16u
#define PROC_FIRST_CARD (PROC_PAGER + 1) /* of card 0's first worker */
#define PROC_CARD_UPLOADS(card) (PROC_MAIN - MAX_CARDS + (card)) /* bell of a card's uploads */
#define OWNER_DISK 1023u    /* an item nobody has yet: its expert holds no place */
#define PLACE_NONE 0xFFFFFFu

/* ---- numbers of cards' workers ----
 * A card's worker that is replaced gets the card's next number. A card has two segments for outboxes,
 * which its workers use in turns: one that a dead worker left is emptied for the next but one, when no open
 * call names it any more. Every process maps both at its start. A doorbell goes with its segment. Segments
 * are known by the number of their first user, outbox_home. */
#define CARD_LIVES ((PROC_CARD_UPLOADS(0) - PROC_FIRST_CARD) / MAX_CARDS) /* workers of a card in one run */
static inline uint32_t card_outbox(uint32_t card, uint32_t life)
{
    return PROC_FIRST_CARD + life * MAX_CARDS + card;
}
static inline int outbox_is_card(uint32_t outbox)
{
    return outbox >= PROC_FIRST_CARD && outbox < card_outbox(0, CARD_LIVES);
}
static inline uint32_t outbox_card(uint32_t outbox)
{
    return (outbox - PROC_FIRST_CARD) % MAX_CARDS;
}
static inline uint32_t outbox_life(uint32_t outbox)
{
    return (outbox - PROC_FIRST_CARD) / MAX_CARDS;
}
static inline uint32_t outbox_home(uint32_t outbox)
{
    return outbox_is_card(outbox) ? PROC_FIRST_CARD + (outbox - PROC_FIRST_CARD) % (2 * MAX_CARDS) : outbox;
}

/* ---- the word of a ring slot ----
 * published n, retired n, published n+slots. 0: never used. Retired is not 0, or a lagging reader
 * takes "gone" for "not yet". */
#define PUBLISHED(n) (2 * (uint64_t)(n))
#define RETIRED(n) (2 * (uint64_t)(n) + 1)

/* ---- geometry: all sizes that follow from the model and the settings; constant after start ---- */
struct geometry {
    uint32_t n_nodes;       /* CPU nodes = shares an item */
    uint32_t n_layers;      /* trunk layers */
    uint32_t n_experts;     /* largest of a layer */
    uint32_t top_k;         /* largest of a layer */
    uint32_t n_embd;
    uint32_t n_ff;          /* largest intermediate of an expert */
    uint32_t max_tokens;    /* of one (sub-)call */
    uint32_t max_items;     /* of one call */
    uint32_t max_pairs;     /* (token, rank) of one call = max_tokens * top_k */
    uint32_t amend_slots;   /* M, a power of two, more than the shares of the calls in flight */
    uint32_t order_slots;   /* a power of two */
    uint32_t n_slabs;       /* slab numbers; the same on every node */
    uint32_t n_vocab, n_ctx;        /* a token's id and position are below these */
    uint32_t step_tokens, step_out; /* most tokens of a step, and most rows of logits */
    uint32_t n_seqs;        /* a token's sequence is below this */
    uint32_t n_saved;       /* slots for saved states */
    uint32_t n_slots;       /* slots of all cards: places n_slabs .. n_slabs + n_slots - 1 */
    uint32_t token_bytes;   /* of looked-up rows that a step hands over for each token */
    uint64_t acts_half;     /* bytes of one half of the activation arena */
    uint64_t inter_half;    /* ... of an outbox's intermediate arena */
    uint64_t rows_half;     /* ... of an outbox's row arena */
};

/* ---- board ----
 *   geometry      coordinator, before any child starts
 *   watch         coordinator: the steward's thread runs (1) or has ended (0). Workers sleep on a
 *                 futex only while it is 1. release / acquire.
 *   asleep_*      the coordinator's main thread and the steward, each its own line
 *   calls_rung    the trunk's executor, where it rings consumers itself: last call rung for (release,
 *                 after the bells). steward_rung: the same by the steward. amends_rung: the steward,
 *                 last amendment rung for. They tell a sleeper whether a wake-up was really lost: work
 *                 found by the time-out net counts only if its ringer has passed it (shm/bell.h).
 *   proc[i]       coordinator: pid, role. A dead worker's entry stays.
 * The coordinator dies: everything ends (PR_SET_PDEATHSIG). */
struct board_proc {
    _Atomic uint32_t pid;
    _Atomic uint32_t role; /* enum seg-independent: 0 none, 1 cpu worker, 2 pager, 3 gpu worker */
    _Atomic uint32_t node;
    _Atomic uint32_t alive;
};
struct board {
    struct geometry geo;
    LINE _Atomic uint32_t watch;
    LINE _Atomic uint32_t asleep_main;
    LINE _Atomic uint32_t asleep_steward;
    LINE _Atomic uint64_t calls_rung;
    LINE _Atomic uint64_t steward_rung, amends_rung;
    LINE struct board_proc proc[MAX_PROCS];
};

/* ---- bells: doorbells, by atomic add only, no data ----
 *   word     anybody who rings: fetch_add after a seq_cst fence, only if the sleeper says asleep */
struct bell {
    LINE _Atomic uint32_t word;
};

/* ---- call ring: one producer (the trunk's executor), every consumer looks at every call ----
 *   head          trunk           release, after the slot's word; where a new consumer begins
 *   asleep        trunk           own line; see shm/bell.h
 *   slot.word     trunk           PUBLISHED(n) (release) when filled; RETIRED(n), then a release
 *                                 fence, before any field of the slot or byte of its activations
 *                                 is stored again
 *   slot.*        trunk           between RETIRED(n-R) and PUBLISHED(n), relaxed words
 * A call is retired only when it is complete (every row read): a reader that owns an unfinished
 * item never loses it, any other may lose the race and drops its copy.
 * The executor dies: after it is reaped the coordinator stores RETIRED for every slot that says
 * PUBLISHED, and head; its successor's first call is the next number (calls_bury, rules 21, 22). */
struct call_item {
    uint32_t expert;
    uint32_t place;  /* slab number; PLACE_NONE with owner OWNER_DISK */
    uint64_t epoch;  /* of the table's entry, compared with the place's header */
    uint32_t pair0;  /* first of its pairs */
    uint32_t n_pairs;
    uint16_t owner[MAX_NODES]; /* outbox number of each share; OWNER_DISK: none yet */
};
_Static_assert(sizeof(struct call_item) == 40, "a shared structure's size is fixed");
struct call_pair {
    uint16_t token; /* of the call: 0 .. n_tokens-1 */
    uint16_t rank;  /* place in that token's top-k */
};
struct call_head {
    uint64_t seq;
    uint32_t layer;
    uint32_t n_tokens;
    uint32_t n_items;
    uint32_t n_pairs;
    uint32_t top_k;     /* row index of a pair = token * top_k + rank */
    uint32_t reserved;
    uint64_t acts;      /* byte offset into the acts segment: (n_tokens, n_embd) f32 */
};
_Static_assert(sizeof(struct call_head) == 40, "a shared structure's size is fixed");
struct calls {
    LINE _Atomic uint64_t head;
    LINE _Atomic uint32_t asleep;
    LINE uint8_t slot[]; /* CALL_SLOTS times call_slot_bytes() */
};

/* ---- amendments: one producer (the steward) ----
 *   redirect[]    steward: one 64-bit store of (amendment 38, outbox 10, low 16 of the call), stored
 *                 before the amendment; ignored if the call differs. [slot][item][share]
 *   head          steward, release
 *   slot.word     steward: PUBLISHED(a); RETIRED(a-M) and a fence before fields are stored again */
struct amendment {
    uint64_t seq;
    uint64_t call;
    uint32_t item;
    uint16_t share;
    uint16_t outbox;
    uint32_t place;
    uint32_t reserved;
    uint64_t epoch;
};
_Static_assert(sizeof(struct amendment) == 40, "a shared structure's size is fixed");
struct amend_slot {
    LINE _Atomic uint64_t word;
    struct amendment am;
};
_Static_assert(sizeof(struct amend_slot) == 64, "a shared structure's size is fixed");
struct amends {
    LINE _Atomic uint64_t head;
    LINE uint8_t data[]; /* amend_slots slots, then the redirect words */
};

/* ---- outbox of a CPU worker: written by that worker alone ----
 *   heartbeat      relaxed; counts while the worker works
 *   cursor         last call passed; amend_cursor likewise. Informative.
 *   ringing        odd from before a stamp until its bells were rung: who sees the stamp and an even
 *                  word here knows that the ring is over (counting lost wake-ups, shm/bell.h)
 *   asleep         own line; see shm/bell.h
 *   owner[slot]    2n: all its items of call n are done; 2n+1: some declined, after their item
 *                  stamps. release.
 *   item stamps    amendment 38 bits | low 24 bits of the call | kind 2 bits. Answer only the giving
 *                  they name (amendment 0: the call's own). release, after the rows.
 *   stage stamps   the call's number, after the share's intermediate. release.
 *   rows, inter    final values only, before the stamp
 * The worker dies: stamps that are there stay true, the rest is given to somebody else. */
struct outbox_counters { /* relaxed, since the worker's start */
    _Atomic uint64_t calls;        /* calls in which it had a share */
    _Atomic uint64_t items;        /* shares done */
    _Atomic uint64_t amended;      /* of these, by amendment */
    _Atomic uint64_t declined;
    _Atomic uint64_t rows;         /* down rows written, one a (pair, row) */
    _Atomic uint64_t weight_bytes; /* weights multiplied, once an item whatever its tokens */
    _Atomic uint64_t work_ns;      /* time between taking up shares and their stamps */
    _Atomic uint64_t sleeps;       /* futex waits */
    _Atomic uint64_t net_finds;    /* work found by the time-out net alone: always 0 */
    _Atomic uint64_t dropped;      /* copies dropped because the slot had moved on */
    _Atomic uint64_t reserved[6];
};
struct outbox {
    LINE _Atomic uint64_t heartbeat;
    _Atomic uint64_t cursor, amend_cursor;
    _Atomic uint32_t ringing;
    LINE _Atomic uint32_t asleep;
    LINE _Atomic uint64_t owner[CALL_SLOTS];
    LINE struct outbox_counters count;
    LINE uint8_t data[]; /* item stamps, stage stamps, intermediate arena, row arena */
};

/* ---- steps: what the trunk's executor is asked, written by the coordinator (shm/steps.h) ----
 *   record, data   before the word, relaxed words; stored again only when the open record is answered
 *                  or its executor is reaped: one is open
 *   word           the record's number, release; never reused
 * An executor begins behind a number: it never takes a record that was there before it (rule 23). */
struct step_token {
    uint32_t id;  /* below n_vocab */
    uint32_t pos; /* position in its sequence, from 0; all earlier positions are in the state */
    uint32_t seq; /* sequence slot */
};
enum step_pass {
    STEP_TRUNK,
    STEP_DRAFT, /* row i pairs what the trunk's last step left of its token i with token i here, which is the one
                 * after it; pos: the row's number, that token's position less one */
    STEP_CHAIN, /* one row: the last row of the draft step before in the trunk's place */
    /* no step: what a sequence keeps besides rows by position. One token: id is the slot, below n_saved */
    STEP_SAVE,    /* sequence seq as it is before position pos goes to the slot */
    STEP_RESTORE, /* and back */
    STEP_PASSES
};
struct step_record {
    uint64_t seq;
    uint64_t state_in;  /* version of the state that it begins with; 0: empty */
    uint64_t state_out; /* ... that it makes; state_in stays good until this one is committed */
    uint32_t n_tokens;
    uint32_t n_out;     /* rows of logits that are wanted; 0: the state alone */
    uint32_t best_only; /* 1: their best tokens do */
    uint32_t pass;      /* enum step_pass */
};
_Static_assert(sizeof(struct step_record) == 40, "a shared structure's size is fixed");
struct steps {
    LINE _Atomic uint64_t word;
    LINE struct step_record record;
    LINE uint8_t data[]; /* step_tokens of struct step_token, then step_out of uint32_t: indices of tokens; then
                          * token_bytes for each token: its looked-up rows (struct prog_table) */
};

/* ---- answers: written by the trunk's executor alone, when it is a worker ----
 *   word       the record's number, release, after the logits and after the last call of the step is
 *              retired
 *   ringing    as in an outbox: odd from before the word until the coordinator was rung
 *   heartbeat  relaxed; counts while the process lives, about ten times a second
 *   count      relaxed, since the executor's start
 *   data       f32 (n_out, n_vocab); behind it (answer_uses) a u32 for each layer and expert, relaxed: tokens that
 *              used it as an own hit of the executor's card, which no call tells of. They wrap. Behind those
 *              (answer_best) step_out u32: the first token of each row's order, TOKEN_NONE: it has none
 *   best_of    the record that answer_best is about, before the word; 0: none (the executor does not tell it)
 * The executor dies: the coordinator looks at the word once more after it is reaped; a successor then
 * writes in the same place. */
struct answer_counters {
    _Atomic uint64_t steps, tokens;
    _Atomic uint64_t calls, items, disk_items, card_items; /* published */
    _Atomic uint64_t own_items;                            /* own hits */
    _Atomic uint64_t step_ns, call_ns, wait_ns;
    _Atomic uint64_t sleeps, net_finds;
    _Atomic uint64_t gap_ns, gaps; /* a real card's: from a step's end, as the host saw it, to the next one's launch,
                                    * steps of one token; of that: */
    _Atomic uint64_t gap_asked_ns; /* from the answer to the next record */
    _Atomic uint64_t gap_launch_ns; /* the launch */
};
#define TOKEN_NONE UINT32_MAX
struct answers {
    LINE _Atomic uint64_t word;
    _Atomic uint64_t best_of;
    _Atomic uint32_t ringing;
    LINE _Atomic uint64_t heartbeat;
    LINE struct answer_counters count;
    LINE uint8_t data[];
};

/* ---- tables: written by the coordinator alone ----
 *   entry[layer][expert]   (place + 1) << 40 | epoch; 0: on disk. One word, release; set only after
 *                          the read's completion. Any number of readers (acquire).
 *   header[node][slab]     epoch of the expert that may be used there, 0: none. "Leaving a place":
 *                          clear the entry, mark the header on every node, seq_cst fence, wait for
 *                          the givings, overwrite, header, entry.
 *   slab_off[node][slab]   byte offset in slabs.node; constant
 *   slot[]                 a card's slots: header as above, one for all shares, for a card has all of an
 *                          item's or none; the rest constant
 *   layer[]                constant
 *   card[c]                outbox number of the card's worker; 0: none. Stored (release) when it follows the
 *                          rings, before any entry names a slot of its; 0 first of all when it has died.
 *                          Loaded (acquire) after the entry: a slot of a former worker's then meets a new
 *                          number, whose worker finds another header and declines. */
#define ENTRY_EPOCH_BITS 40
#define ENTRY(place, epoch) (((uint64_t)(place) + 1) << ENTRY_EPOCH_BITS | (epoch))
#define ENTRY_PLACE(entry) ((uint32_t)((entry) >> ENTRY_EPOCH_BITS) - 1)
#define ENTRY_EPOCH(entry) ((entry) & (((uint64_t)1 << ENTRY_EPOCH_BITS) - 1))

enum { MAT_GATE, MAT_UP, MAT_DOWN, N_MATS };
struct expert_matrix {  /* one matrix of every expert of a layer */
    uint32_t type;      /* enum weight_type */
    uint32_t rows;      /* of one expert */
    uint32_t cols;
    uint32_t shard;     /* index of the file */
    uint64_t row_bytes;
    uint64_t file_off;  /* of expert 0, row 0 */
    uint64_t stride;    /* from expert to expert */
};
struct expert_layer {
    struct expert_matrix m[N_MATS];
    uint32_t n_experts; /* 0: this layer has none */
    uint32_t top_k;
    float limit;        /* SwiGLU clamp, <= 0: none (rule 19) */
    uint32_t has_scale; /* the layer's experts have .scale factors: scale[layer][expert][matrix] */
    uint32_t packed;    /* 1: from a pack: see packed_off; m[].file_off and stride mean nothing */
    uint32_t reserved;
};
/* A slot of a card's pool; how an expert lies in it: slot_mat_off. */
struct card_slot {
    _Atomic uint64_t header;
    uint64_t off, bytes; /* in the card's pool; multiples of SLOT_ALIGN */
    uint32_t card, size; /* whose; size class in the pool */
};
struct tables { /* offsets from the segment's base */
    uint64_t off_entry, off_header, off_slab, off_layer, off_scale, off_slot, off_card;
};

/* ---- orders: the coordinator's numbered orders to the pager, and to each card's worker ----
 *   head         coordinator, release, after the order's word
 *   slot.word    PUBLISHED(number)
 *   rung         coordinator, release, after the pager's bell: last order rung for
 * Answered by done[number % slots] in the pager's outbox, 2*number or 2*number+1 (failed: why says
 * how; if that ends the run the text went over the control socket before). A slot is used again when
 * its order is answered.
 *
 * ORDER_READ    the pieces, at a priority. Done: every wanted byte is in its place. Failed: some are
 *               not, and no read of it can land any more: the place may be used for something else.
 * ORDER_CANCEL  of order `target`: reads not begun are dropped, those in the kernel are cancelled or
 *               waited for; then the target is answered, failed with ORDER_WHY_CANCELLED, or done if
 *               all its bytes came nevertheless. Until that answer its place stays its own.
 * ORDER_RAISE   order `target` gets priority `prio`, if that is more urgent than its own.
 * ORDER_UPLOAD  to a card's worker: `layer`, `expert` come to `place` (a slot of that card), where `epoch` will
 *               name them. A piece for each matrix and node, `bytes` from byte file_off of slabs.node (seg as
 *               above; any alignment) to byte dst of the card's pool, at most 3 * n_nodes. Until the answer
 *               the slabs stay as they are and the slot is nobody else's.
 * ORDER_CLEAR   to the worker of the card that hosts the trunk: `layer`, `expert`, which `place` has with
 *               `epoch`, shall leave. Done: the card's copy of the table has it no longer, and no step is open
 *               that could have used it (rule 27; gpu-worker/hits.h). Answered out of its turn: later orders
 *               do not wait for it. What is not there is done as well. On other cards: done at once.
 * ORDER_COPY_DOWN  to a card's worker: `layer`, `expert` lie in `place` with `epoch`; the pieces of an upload the
 *               other way round, from byte dst of the pool to byte file_off of slabs.node. Until the answer the
 *               slab is nobody's, as one that the pager reads into (rule 25), and the slot stays as it is; the
 *               expert can be used there meanwhile. Only where slabs are writable for cards: not all experts
 *               fit into RAM.
 * CANCEL and RAISE are answered themselves as soon as the pager has seen to them, always "done"; a target
 * that has been answered already is left alone. */
#define ORDER_PIECES (3u * (2u * MAX_NODES - 1)) /* three matrices, each cut by nodes of a packed file
                                                  * and by nodes of this run */
enum order_kind { ORDER_READ = 1, ORDER_CANCEL = 2, ORDER_RAISE = 3, ORDER_UPLOAD = 4, ORDER_CLEAR = 5, ORDER_COPY_DOWN = 6 };
enum order_prio { PRIO_DEMAND = 0, PRIO_PREFETCH = 1, PRIO_WARM = 2 };
enum order_flag {
    ORDER_SOFT = 1 /* a failure ends nothing, there is another source: told by CTL_LOG (warning), not
                    * by CTL_ERROR */
};
enum order_why { /* of an answer "failed" */
    ORDER_WHY_OK = 0,
    ORDER_WHY_CANCELLED = 1,
    ORDER_WHY_CHECKSUM = 2, /* a piece's bytes are not those that were packed */
    ORDER_WHY_IO = 3
};
enum piece_flag {
    PIECE_CHECK = 1, /* xxh is XXH3_64bits of the bytes [0, need) as they lie at dst; compared before
                      * the order is answered */
    PIECE_COPY = 2   /* file_off, need and dst are any bytes, bytes = need; read by way of blocks of
                      * the pager's own, and nothing but the wanted bytes is written */
};
struct order_piece {   /* whole 4 KiB blocks of the file that cover what is wanted; or PIECE_COPY */
    uint32_t shard;
    uint32_t seg;      /* 0: trunk, 1 + node: slabs.node */
    uint64_t file_off; /* multiple of 4096 */
    uint64_t bytes;    /* multiple of 4096; the file may end earlier, see need */
    uint64_t need;     /* bytes that must arrive */
    uint64_t dst;      /* offset in the segment, multiple of 4096 */
    uint64_t xxh;      /* PIECE_CHECK */
    uint32_t flags;    /* enum piece_flag */
    uint32_t reserved;
};
struct order {
    uint64_t number;
    uint32_t kind, prio;
    uint32_t layer, expert; /* for messages; layer 0xFFFFFFFF: a trunk tensor, expert = its index */
    uint32_t n_pieces;      /* ORDER_READ, _UPLOAD, _COPY_DOWN: 1 .. ORDER_PIECES, else 0 */
    uint32_t flags;         /* enum order_flag */
    uint64_t target;        /* ORDER_CANCEL, ORDER_RAISE: the order it is about */
    uint64_t epoch;         /* orders to cards: of the expert in `place` */
    uint32_t place, reserved;
    struct order_piece piece[ORDER_PIECES];
};
struct order_slot {
    LINE _Atomic uint64_t word;
    struct order order;
};
struct orders {
    LINE _Atomic uint64_t head, rung;
    LINE struct order_slot slot[];
};
struct pager_counters { /* relaxed, since the pager's start */
    _Atomic uint64_t orders;       /* answered, of every kind */
    _Atomic uint64_t expert_reads; /* orders done whose layer is one */
    _Atomic uint64_t reads, bytes; /* results of reads; what came */
    _Atomic uint64_t retries;
    _Atomic uint64_t errors;       /* orders failed, cancelled ones not counted */
    _Atomic uint64_t sleeps, net_finds;
    _Atomic uint64_t cancelled, raised; /* orders answered as cancelled; raised while they were open */
    _Atomic uint64_t bad_checksums;     /* pieces */
    _Atomic uint64_t checked_bytes, checked_ns;
    /* how large reads are and how many are out now: pager/tune.h */
    _Atomic uint64_t read_bytes, depth; /* depth | enum tune_how << 32: 0 default, 1 measured, 2 fixed */
    _Atomic uint64_t tuned_rate, default_rate; /* measured: bytes/s of these, and of the default */
};
struct pager_box { /* the pager's outbox */
    LINE _Atomic uint64_t heartbeat;
    LINE _Atomic uint32_t asleep;
    LINE struct pager_counters count;
    LINE _Atomic uint64_t done[]; /* order_slots; release. Behind it why[order_slots], relaxed, before
                                   * it: enum order_why | failing piece << 8 */
};

/* ---- where things lie ---- */
static inline size_t call_slot_bytes(const struct geometry *g)
{
    size_t n = 64 + sizeof(struct call_head) + g->max_items * sizeof(struct call_item) +
               g->max_pairs * sizeof(struct call_pair);
    return (n + 63) & ~(size_t)63;
}
static inline size_t calls_bytes(const struct geometry *g)
{
    return sizeof(struct calls) + CALL_SLOTS * call_slot_bytes(g);
}
static inline size_t stamps_count(const struct geometry *g) /* of item or stage stamps, redirects */
{
    return (size_t)CALL_SLOTS * g->max_items * g->n_nodes;
}
static inline size_t stamp_index(const struct geometry *g, uint64_t call, uint32_t item,
                                 uint32_t share)
{
    return ((size_t)(call % CALL_SLOTS) * g->max_items + item) * g->n_nodes + share;
}
static inline size_t amends_bytes(const struct geometry *g)
{
    return sizeof(struct amends) + g->amend_slots * sizeof(struct amend_slot) +
           stamps_count(g) * sizeof(uint64_t);
}
static inline struct amend_slot *amend_slot_of(const struct geometry *g, struct amends *a,
                                               uint64_t seq)
{
    return (struct amend_slot *)a->data + (seq & (g->amend_slots - 1));
}
static inline _Atomic uint64_t *redirects_of(const struct geometry *g, struct amends *a)
{
    return (_Atomic uint64_t *)(a->data + g->amend_slots * sizeof(struct amend_slot));
}
static inline size_t outbox_stamp_bytes(const struct geometry *g) /* one kind, to a page */
{
    return (stamps_count(g) * sizeof(uint64_t) + 4095) & ~(size_t)4095;
}
static inline size_t outbox_bytes(const struct geometry *g)
{
    return sizeof(struct outbox) + 4096 + 2 * outbox_stamp_bytes(g) +
           CALLS_IN_FLIGHT * (g->inter_half + g->rows_half);
}
static inline _Atomic uint64_t *outbox_items(const struct geometry *g, struct outbox *o)
{
    (void)g;
    return (_Atomic uint64_t *)o->data;
}
static inline _Atomic uint64_t *outbox_stages(const struct geometry *g, struct outbox *o)
{
    return (_Atomic uint64_t *)(o->data + outbox_stamp_bytes(g));
}
/* box: by outbox number, MAX_PROCS of them. Puts the segment in for every number that uses it. */
static inline void outbox_put(struct outbox **box, uint32_t home, struct outbox *o)
{
    box[home] = o;
    for (uint32_t n = home; outbox_is_card(n); n += 2 * MAX_CARDS)
        box[n] = o;
}
/* intermediate of call n: f32 (token * top_k + rank, n_ff); rows: f32 (token * top_k + rank, n_embd) */
static inline float *outbox_inter(const struct geometry *g, struct outbox *o, uint64_t call)
{
    return (float *)(o->data + 2 * outbox_stamp_bytes(g) + (call % CALLS_IN_FLIGHT) * g->inter_half);
}
static inline float *outbox_rows(const struct geometry *g, struct outbox *o, uint64_t call)
{
    return (float *)(o->data + 2 * outbox_stamp_bytes(g) + CALLS_IN_FLIGHT * g->inter_half +
                     (call % CALLS_IN_FLIGHT) * g->rows_half);
}
static inline uint64_t steps_bytes(const struct geometry *g)
{
    return sizeof(struct steps) + (uint64_t)g->step_tokens * sizeof(struct step_token) +
           (uint64_t)g->step_out * sizeof(uint32_t) + (uint64_t)g->step_tokens * g->token_bytes;
}
static inline uint64_t answers_bytes(const struct geometry *g)
{
    return sizeof(struct answers) + (uint64_t)g->step_out * g->n_vocab * sizeof(float) +
           ((uint64_t)g->n_layers * g->n_experts + g->step_out) * sizeof(uint32_t);
}
static inline _Atomic uint32_t *answer_uses(const struct geometry *g, struct answers *a) /* layer * n_experts + expert */
{
    return (_Atomic uint32_t *)(a->data + (uint64_t)g->step_out * g->n_vocab * sizeof(float));
}
static inline _Atomic uint32_t *answer_best(const struct geometry *g, struct answers *a)
{
    return answer_uses(g, a) + (uint64_t)g->n_layers * g->n_experts;
}
static inline size_t pager_box_bytes(const struct geometry *g)
{
    return sizeof(struct pager_box) + g->order_slots * (sizeof(uint64_t) + sizeof(uint32_t));
}
static inline _Atomic uint32_t *pager_why(const struct geometry *g, struct pager_box *b)
{
    return (_Atomic uint32_t *)(b->done + g->order_slots);
}
static inline size_t orders_bytes(const struct geometry *g)
{
    return sizeof(struct orders) + g->order_slots * sizeof(struct order_slot);
}
static inline _Atomic uint64_t *table_entry(struct tables *t, const struct geometry *g,
                                            uint32_t layer, uint32_t expert)
{
    return (_Atomic uint64_t *)((uint8_t *)t + t->off_entry) + (size_t)layer * g->n_experts + expert;
}
static inline _Atomic uint64_t *table_header(struct tables *t, const struct geometry *g,
                                             uint32_t node, uint32_t slab)
{
    return (_Atomic uint64_t *)((uint8_t *)t + t->off_header) + (size_t)node * g->n_slabs + slab;
}
static inline struct card_slot *table_slot(struct tables *t, uint32_t slot)
{
    return (struct card_slot *)((uint8_t *)t + t->off_slot) + slot;
}
static inline _Atomic uint32_t *table_card(struct tables *t, uint32_t card)
{
    return (_Atomic uint32_t *)((uint8_t *)t + t->off_card) + card;
}
/* Every place's number is below this. */
static inline uint32_t geometry_places(const struct geometry *g)
{
    return g->n_slabs + g->n_slots;
}
static inline _Atomic uint64_t *place_header(struct tables *t, const struct geometry *g, uint32_t node,
                                             uint32_t place)
{
    return place < g->n_slabs ? table_header(t, g, node, place)
                              : &table_slot(t, place - g->n_slabs)->header;
}
static inline uint64_t *table_slab_off(struct tables *t, const struct geometry *g, uint32_t node,
                                       uint32_t slab)
{
    return (uint64_t *)((uint8_t *)t + t->off_slab) + (size_t)node * g->n_slabs + slab;
}
static inline struct expert_layer *table_layer(struct tables *t, uint32_t layer)
{
    return (struct expert_layer *)((uint8_t *)t + t->off_layer) + layer;
}
static inline float *table_scale(struct tables *t, const struct geometry *g, uint32_t layer,
                                 uint32_t expert) /* N_MATS of them */
{
    return (float *)((uint8_t *)t + t->off_scale) + ((size_t)layer * g->n_experts + expert) * N_MATS;
}

/* ---- an item's shares: node k has rows [share_row(rows, k, n), share_row(rows, k+1, n)) ---- */
static inline uint32_t share_row(uint32_t rows, uint32_t k, uint32_t n_nodes)
{
    return k == n_nodes ? rows : (uint32_t)((uint64_t)rows * k / n_nodes) & ~3u;
}

static inline uint64_t share_bytes(const struct expert_matrix *m, uint32_t node, uint32_t n_nodes)
{
    return (uint64_t)(share_row(m->rows, node + 1, n_nodes) - share_row(m->rows, node, n_nodes)) *
           m->row_bytes;
}

/* ---- a node's rows of a packed expert (coordinator/pack), in the slab as in the pack's block: gate,
 * up, down side by side, each from a multiple of PACKED_ALIGN on, zeros between; with an end that is
 * a multiple of 4096 one read brings all. packed_bytes: up to the last row's end. ---- */
#define PACKED_ALIGN 64u
static inline uint64_t packed_off(const struct expert_layer *l, uint32_t node, uint32_t n_nodes, int mat)
{
    uint64_t off = 0;

    for (int i = 0; i < mat; i++)
        off += (share_bytes(&l->m[i], node, n_nodes) + PACKED_ALIGN - 1) & ~(uint64_t)(PACKED_ALIGN - 1);
    return off;
}
static inline uint64_t packed_bytes(const struct expert_layer *l, uint32_t node, uint32_t n_nodes)
{
    return packed_off(l, node, n_nodes, MAT_DOWN) + share_bytes(&l->m[MAT_DOWN], node, n_nodes);
}

/* ---- an expert in a card's slot: whole matrices, gate, up, down, each from a multiple of SLOT_ALIGN on, with
 * SLOT_BEHIND bytes behind it that may be read (and mean nothing). Share k of a matrix begins share_row(k) rows
 * into it. The same on emulated cards and real ones. ---- */
#define SLOT_ALIGN 256u
#define SLOT_BEHIND 16u
static inline uint64_t slot_mat_off(const struct expert_layer *l, int mat)
{
    uint64_t off = 0;

    for (int i = 0; i < mat; i++)
        off += ((uint64_t)l->m[i].rows * l->m[i].row_bytes + SLOT_BEHIND + SLOT_ALIGN - 1) &
               ~(uint64_t)(SLOT_ALIGN - 1);
    return off;
}
static inline uint64_t slot_bytes(const struct expert_layer *l) /* 0: a layer without experts */
{
    return l->n_experts ? slot_mat_off(l, N_MATS) : 0;
}

/* ---- a slab: three pieces (gate, up, down rows of one node), each whole 4 KiB blocks of the file,
 * so that O_DIRECT reads land in place. The rows begin `shift` bytes into their piece. A packed
 * expert's pieces are the parts of its block. ---- */
struct slab_piece {
    uint64_t off;      /* in the slab; multiple of 4096 unless packed */
    uint64_t room;     /* bytes set aside, the same for every expert of the layer */
    uint64_t file_off; /* multiple of 4096; 0 if packed: the pack's index knows */
    uint64_t shift;
    uint64_t bytes;    /* of the rows themselves; 0: this node has no row */
};
static inline uint64_t slab_piece_room(const struct expert_matrix *m, uint32_t node, uint32_t n_nodes)
{
    uint64_t b = share_bytes(m, node, n_nodes);
    uint64_t mask = (m->file_off | m->stride) & 4095; /* every expert begins on a page? */
    if (!b)
        return 0;
    return ((b + 4095) & ~4095ull) + (mask || (node && n_nodes > 1) ? 4096 : 0);
}
static inline struct slab_piece slab_piece(const struct expert_layer *l, uint32_t expert,
                                           uint32_t node, uint32_t n_nodes, int mat)
{
    const struct expert_matrix *m = &l->m[mat];
    struct slab_piece p = {};
    uint32_t r0 = share_row(m->rows, node, n_nodes), r1 = share_row(m->rows, node + 1, n_nodes);
    uint64_t at = m->file_off + expert * m->stride + r0 * m->row_bytes;

    if (l->packed) {
        p.off = packed_off(l, node, n_nodes, mat);
        p.room = p.bytes = share_bytes(m, node, n_nodes);
        return p;
    }
    for (int i = 0; i < mat; i++)
        p.off += slab_piece_room(&l->m[i], node, n_nodes);
    p.room = slab_piece_room(m, node, n_nodes);
    p.bytes = (r1 - r0) * m->row_bytes;
    p.file_off = at & ~4095ull;
    p.shift = at & 4095;
    return p;
}
static inline uint64_t slab_bytes(const struct expert_layer *l, uint32_t node, uint32_t n_nodes)
{
    if (l->packed)
        return (packed_bytes(l, node, n_nodes) + 4095) & ~4095ull;
    return slab_piece_room(&l->m[0], node, n_nodes) + slab_piece_room(&l->m[1], node, n_nodes) +
           slab_piece_room(&l->m[2], node, n_nodes);
}
