/* conclave inspect: what is in a model file, for people and, with --json, for scripts. Reads the
 * front part only, so it takes no longer for a large model than for a small one. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/cli/args.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/common.h"
#include "coordinator/json/json_write.h"
#include "coordinator/model/model.h"
#include "coordinator/engine.h"
#include "coordinator/pack/pack.h"
#include "coordinator/trunk/arch/arch.h"
#include "coordinator/trunk/exec/exec.h"
#include "kernels/type/type.h"

int cmd_inspect(int argc, char **argv);

struct options {
    const char *operand, *model;
    int json;
};

static const struct flag table[] = {
    {.arg = "MODEL",
     .group = "file",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, operand),
     .help = "see -m"},
    {.name = "model",
     .letter = 'm',
     .arg = "FILE",
     .kind = FLAG_STRING,
     .at = offsetof(struct options, model),
     .help = "GGUF file, any part of a split model, or a pack; the -m may be left out"},
    {.name = "json",
     .group = "output",
     .kind = FLAG_ON,
     .at = offsetof(struct options, json),
     .help = "one JSON object in place of the table"},
    {.kind = 0},
};

/* --- numbers and texts for people --------------------------------------------------------------
 */

enum { TEXT = 96, NAME = 256, PATH = 4 * 4096 + 8 };

/* 7022496 as 7,022,496 */
static const char *grouped(char out[TEXT], uint64_t v)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)v), o = 0;

    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            out[o++] = ',';
        out[o++] = digits[i];
    }
    out[o] = 0;
    return out;
}

/* 6.7 MiB */
static const char *rounded(char out[TEXT], uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double v = (double)bytes;
    size_t u = 0;

    while (v >= 1024 && u + 1 < sizeof units / sizeof *units) {
        v /= 1024;
        u++;
    }
    snprintf(out, TEXT,
             u == 0 || v >= 100 ? "%.0f %s"
             : v >= 10          ? "%.1f %s"
                                : "%.2f %s",
             v, units[u]);
    return out;
}

/* 6.7 MiB (7,022,496 bytes) */
static const char *both(char out[TEXT], uint64_t bytes)
{
    char a[TEXT], b[TEXT];

    if (bytes < 1024)
        return rounded(out, bytes);
    snprintf(out, TEXT, "%.30s (%.40s bytes)", rounded(a, bytes), grouped(b, bytes));
    return out;
}

/* The fewest digits that read back as the same float; whole numbers without an exponent. */
static const char *shortest(char out[TEXT], float v)
{
    if (v > -1e9f && v < 1e9f && v == (float)(int32_t)v) {
        snprintf(out, TEXT, "%.0f", (double)v);
        return out;
    }
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(out, TEXT, "%.*g", digits, (double)v);
        if (strtof(out, NULL) == v)
            break;
    }
    return out;
}

static const char *shown(char out[NAME], const char *s)
{
    return gguf_show(out, NAME, s, strlen(s));
}

static const char *meta_text(const struct model *m, const char *key, char out[NAME])
{
    struct gguf_str s;

    return gguf_string(m->g, key, &s) ? "" : gguf_show(out, NAME, s.s, s.n);
}

static const char *type_name(uint32_t type)
{
    return type_info(type)->name;
}

static uint64_t all_bytes(const struct model *m)
{
    uint64_t sum = 0;

    for (int i = 0; i < MODEL_TYPES; i++)
        sum += m->type_bytes[i];
    return sum;
}

/* --- the table ---------------------------------------------------------------------------------
 */

static void row(const char *label)
{
    printf("%-18s", label);
}

/* How many layers mix tokens in which way. */
static void print_mixers(const struct model *m)
{
    uint32_t n[3] = {0};
    char a[TEXT];

    for (uint32_t i = 0; i < m->n_layers - m->n_nextn; i++)
        n[m->layer[i].mixer]++;
    if (n[MIX_ATTENTION]) {
        row("attention"), printf("%u query heads, %u key/value heads, %u values each\n", m->n_head,
                                 m->n_head_kv, m->head_dim);
        row("rotation"), printf("%u values of a head, base %s\n", m->n_rot, shortest(a, m->rope_base));
    }
    if (n[MIX_DELTA])
        row("delta rule"), printf("%u layers, %u heads of %u x %u, convolutions of %u\n", n[MIX_DELTA],
                                  m->delta.heads, m->delta.dim, m->delta.dim, m->delta.taps);
    if (n[MIX_LATENT])
        row("latent attention"), printf("%u layers, %u heads, %u values kept, at most %u pools of %u positions\n",
                                        n[MIX_LATENT], m->n_head, m->latent.rank, m->latent.most, m->latent.pool);
}

/* What a sequence takes, as the executor allocates it. */
struct state_sizes {
    uint64_t fixed, f16, f32; /* whatever its length; more for each token, by --kv */
};
static void state_sizes(const struct model *m, uint32_t drafts, struct state_sizes *s)
{
    struct program *p = NULL;
    struct err e = {0};

    *s = (struct state_sizes){0};
    if (arch_program_drafting(m, drafts, &p, &e))
        return; /* no memory */
    s->fixed = exec_sequence_bytes(p);
    s->f16 = exec_position_bytes(p, KV_F16);
    s->f32 = exec_position_bytes(p, KV_F32);
    program_free(p);
}

static void print_state(const struct model *m)
{
    struct state_sizes s;
    char a[TEXT], b[TEXT];

    for (uint32_t drafts = 0;; drafts = DRAFTS_MOST) {
        state_sizes(m, drafts, &s);
        row(drafts ? "with drafts" : s.fixed ? "state of a token" : "KV of a token");
        printf("f16 %s, f32 %s\n", both(a, s.f16), both(b, s.f32));
        if (s.fixed)
            row(drafts ? "" : "of a sequence"), printf("%s%s\n", both(a, s.fixed), drafts ? " a sequence" : "");
        if (drafts || !m->n_nextn)
            break;
    }
}

static void print_sizes(const struct model *m)
{
    char a[TEXT], t[NAME], pre[NAME];

    row("architecture"), printf("%s\n", model_arch_name(m));
    if (*m->name)
        row("name"), printf("%s\n", shown(t, m->name));
    row("layers"), printf("%u, width %s", m->n_layers - m->n_nextn, grouped(a, m->n_embd));
    if (m->streams.n)
        printf(", %u residual streams", m->streams.n);
    printf(m->n_nextn ? ", and a NextN block that drafts\n" : "\n");
    print_mixers(m);
    row("vocabulary"),
        printf("%s tokens, head %s\n", grouped(a, m->n_vocab),
               m->output.w == m->token_embd ? "tied to the embedding" : "of its own");
    if (*meta_text(m, "tokenizer.ggml.model", t)) {
        meta_text(m, "tokenizer.ggml.pre", pre);
        row("tokenizer"), printf("%s", t);
        if (*meta_text(m, "tokenizer.ggml.pre", pre))
            printf(", words split as %s", pre);
        printf("\n");
    }
    row("context"), printf("%s tokens\n", grouped(a, m->n_ctx_train));
    print_state(m);
}

static int same_expert(const struct model_layer *a, const struct model_layer *b)
{
    for (int k = 0; k < EXPERT_MATRICES; k++)
        if (a->expert[k].type != b->expert[k].type)
            return 0;
    return !a->n_experts == !b->n_experts;
}

static int first_of_its_types(const struct model *m, uint32_t il)
{
    for (uint32_t i = 0; i < il; i++)
        if (m->layer[i].n_experts && same_expert(&m->layer[i], &m->layer[il]))
            return 0;
    return m->layer[il].n_experts != 0;
}

/* The layers whose experts are of layer il's types, as ranges: "layers 0-3, 7". */
static void print_same_layers(const struct model *m, uint32_t il)
{
    const char *between = "";
    uint32_t n = 0;

    for (uint32_t i = il; i < m->n_layers; i++)
        n += (uint32_t)same_expert(&m->layer[i], &m->layer[il]);
    printf(n > 1 ? ", layers " : ", layer ");
    for (uint32_t i = il, from; i < m->n_layers; i++) {
        if (!same_expert(&m->layer[i], &m->layer[il]))
            continue;
        from = i;
        while (i + 1 < m->n_layers && same_expert(&m->layer[i + 1], &m->layer[il]))
            i++;
        printf(i > from ? "%s%u-%u" : "%s%u", between, from, i);
        between = ", ";
    }
    printf("\n");
}

static void print_experts(const struct model *m)
{
    uint64_t small, large;
    char a[TEXT], b[TEXT];

    model_expert_range(m, &small, &large);
    row("experts"),
        printf("%u a layer, %u used for a token; %s in all, width %s\n", m->n_experts, m->top_k,
               grouped(a, model_n_experts(m)), grouped(b, m->n_ff));
    row("one expert");
    if (small == large)
        printf("%s\n", both(a, small));
    else
        printf("from %s to %s\n", both(a, small), both(b, large));
    for (uint32_t il = 0; il < m->n_layers; il++) {
        const struct model_layer *l = &m->layer[il];

        if (!first_of_its_types(m, il))
            continue;
        row(""),
            printf("%s: gate %s, up %s, down %s", rounded(a, l->expert_bytes),
                   type_name(l->expert[MODEL_GATE].type), type_name(l->expert[MODEL_UP].type),
                   type_name(l->expert[MODEL_DOWN].type));
        print_same_layers(m, il);
    }
}

static void print_share(const char *label, uint64_t bytes, uint64_t all, const char *note)
{
    char a[TEXT], b[TEXT];

    printf("  %-16s%10s %19s  %5.1f %%%s\n", label, rounded(a, bytes), grouped(b, bytes),
           all ? 100.0 * (double)bytes / (double)all : 0.0, note);
}

static void print_bytes(const struct model *m)
{
    uint64_t all = all_bytes(m);
    char note[TEXT];

    printf("\nbytes by kind\n");
    for (int k = 0; k < MODEL_KINDS; k++)
        if (m->kind_bytes[k])
            print_share(model_kind_name(k), m->kind_bytes[k], all, "");
    if (m->unused_bytes)
        print_share("not used", m->unused_bytes, all, "");
    print_share("all", all, all, "");
    printf("\nbytes by type\n");
    for (uint32_t t = 0; t < MODEL_TYPES; t++) {
        if (!m->type_tensors[t])
            continue;
        snprintf(note, sizeof note, "  %u tensor%s%s", m->type_tensors[t],
                 m->type_tensors[t] == 1 ? "" : "s",
                 type_info(t)->built ? "" : ", not supported yet");
        print_share(type_name(t), m->type_bytes[t], all, note);
    }
}

/* A folder made by conclave pack. */
static void print_pack(const struct model *m)
{
    const struct pack *p = gguf_pack(m->g);
    char t[PATH];

    if (!p)
        return;
    printf("\npack for %u node%s, each block with a checksum; made from\n", p->head.n_nodes,
           p->head.n_nodes > 1 ? "s" : "");
    for (uint32_t i = 0; i < p->head.n_originals; i++) {
        const char *path = pack_original_path(p, i);
        printf("  %s\n", gguf_show(t, sizeof t, path, strlen(path)));
    }
}

static void print_table(const struct model *m)
{
    size_t n = gguf_n_shards(m->g);
    char a[TEXT], t[PATH];

    print_sizes(m);
    print_experts(m);
    print_bytes(m);
    print_pack(m);
    if (n == 1)
        printf("\nfile, GGUF %u\n", gguf_version(m->g));
    else
        printf("\n%zu files, GGUF %u\n", n, gguf_version(m->g));
    for (size_t i = 0; i < n; i++) {
        const char *path = gguf_shard_path(m->g, i);

        printf("  %s: %s\n", gguf_show(t, sizeof t, path, strlen(path)),
               both(a, gguf_shard_bytes(m->g, i)));
    }
}

/* --- JSON --------------------------------------------------------------------------------------
 */

static void put_u64(struct json_out *o, const char *key, uint64_t v)
{
    json_key(o, key);
    json_put_u64(o, v);
}
static void put_str(struct json_out *o, const char *key, const char *s)
{
    json_key(o, key);
    json_put_str(o, s);
}
static void put_f32(struct json_out *o, const char *key, float v)
{
    char t[TEXT];

    shortest(t, v);
    json_key(o, key);
    json_put_number(o, t, strlen(t));
}
static void put_bool(struct json_out *o, const char *key, int v)
{
    json_key(o, key);
    json_put_bool(o, v);
}
static void open_object(struct json_out *o, const char *key)
{
    json_key(o, key);
    json_open_object(o);
}
static void open_array(struct json_out *o, const char *key)
{
    json_key(o, key);
    json_open_array(o);
}

static void json_state(struct json_out *o, const struct model *m, uint32_t drafts)
{
    struct state_sizes s;

    state_sizes(m, drafts, &s);
    put_u64(o, "f16", s.f16);
    put_u64(o, "f32", s.f32);
    put_u64(o, "fixed", s.fixed);
}

static void json_sizes(struct json_out *o, const struct model *m)
{
    char t[NAME];
    struct gguf_array a;

    put_str(o, "architecture", model_arch_name(m));
    put_str(o, "name", shown(t, m->name));
    put_u64(o, "layers", m->n_layers - m->n_nextn);
    put_u64(o, "nextn_layers", m->n_nextn);
    put_u64(o, "embedding_length", m->n_embd);
    put_u64(o, "vocabulary", m->n_vocab);
    put_bool(o, "tied_head", m->output.w == m->token_embd);
    put_u64(o, "context_length", m->n_ctx_train);
    open_object(o, "attention");
    put_u64(o, "heads", m->n_head);
    put_u64(o, "kv_heads", m->n_head_kv);
    put_u64(o, "head_length", m->head_dim);
    put_u64(o, "rotated", m->n_rot);
    put_f32(o, "rope_base", m->rope_base);
    put_f32(o, "rms_epsilon", m->rms_eps);
    json_close_object(o);
    open_object(o, "kv_bytes_per_token");
    json_state(o, m, 0);
    if (m->n_nextn) {
        open_object(o, "with_drafts");
        json_state(o, m, DRAFTS_MOST);
        json_close_object(o);
    }
    json_close_object(o);
    open_object(o, "tokenizer");
    put_str(o, "model", meta_text(m, "tokenizer.ggml.model", t));
    put_str(o, "pre", meta_text(m, "tokenizer.ggml.pre", t));
    put_u64(o, "tokens", gguf_array(m->g, "tokenizer.ggml.tokens", &a) ? 0 : a.n);
    json_close_object(o);
}

static void json_experts(struct json_out *o, const struct model *m)
{
    static const char *const matrix[EXPERT_MATRICES] = {"gate", "up", "down"};
    uint64_t small, large;

    model_expert_range(m, &small, &large);
    open_object(o, "experts");
    put_u64(o, "per_layer", m->n_experts);
    put_u64(o, "used", m->top_k);
    put_u64(o, "count", model_n_experts(m));
    put_u64(o, "feed_forward_length", m->n_ff);
    put_bool(o, "normalised", m->router_normalise);
    put_u64(o, "smallest_bytes", small);
    put_u64(o, "largest_bytes", large);
    put_u64(o, "bytes", model_experts_bytes(m));
    open_array(o, "by_layer");
    for (uint32_t il = 0; il < m->n_layers; il++) {
        json_open_object(o);
        put_u64(o, "bytes", m->layer[il].expert_bytes);
        for (int k = 0; k < EXPERT_MATRICES; k++)
            put_str(o, matrix[k], type_name(m->layer[il].expert[k].type));
        json_close_object(o);
    }
    json_close_array(o);
    json_close_object(o);
}

static void json_bytes(struct json_out *o, const struct model *m)
{
    put_u64(o, "bytes", all_bytes(m));
    put_u64(o, "trunk_bytes", m->trunk_bytes);
    open_object(o, "bytes_by_kind");
    for (int k = 0; k < MODEL_KINDS; k++)
        put_u64(o, model_kind_name(k), m->kind_bytes[k]);
    put_u64(o, "not used", m->unused_bytes);
    json_close_object(o);
    open_array(o, "by_type");
    for (uint32_t t = 0; t < MODEL_TYPES; t++) {
        if (!m->type_tensors[t])
            continue;
        json_open_object(o);
        put_str(o, "type", type_name(t));
        put_u64(o, "tensors", m->type_tensors[t]);
        put_u64(o, "bytes", m->type_bytes[t]);
        put_bool(o, "supported", type_info(t)->built);
        json_close_object(o);
    }
    json_close_array(o);
}

static void json_files(struct json_out *o, const struct model *m)
{
    char t[PATH];

    put_u64(o, "gguf_version", gguf_version(m->g));
    open_array(o, "files");
    for (size_t i = 0; i < gguf_n_shards(m->g); i++) {
        const char *path = gguf_shard_path(m->g, i);

        json_open_object(o);
        put_str(o, "path", gguf_show(t, sizeof t, path, strlen(path)));
        put_u64(o, "bytes", gguf_shard_bytes(m->g, i));
        json_close_object(o);
    }
    json_close_array(o);
}

static void json_pack(struct json_out *o, const struct model *m)
{
    const struct pack *p = gguf_pack(m->g);
    char t[PATH];

    if (!p)
        return;
    open_object(o, "pack");
    put_u64(o, "nodes", p->head.n_nodes);
    open_array(o, "originals");
    for (uint32_t i = 0; i < p->head.n_originals; i++) {
        const char *path = pack_original_path(p, i);
        json_put_str(o, gguf_show(t, sizeof t, path, strlen(path)));
    }
    json_close_array(o);
    json_close_object(o);
}

static int print_json(const struct model *m, struct err *e)
{
    struct json_out *o = json_out_new(1);
    const char *text;
    size_t n;
    int rc;

    if (!o)
        return err_set(e, -ENOMEM, "no memory for the JSON text");
    json_open_object(o);
    json_sizes(o, m);
    json_experts(o, m);
    json_bytes(o, m);
    json_files(o, m);
    json_pack(o, m);
    json_close_object(o);
    rc = json_text(o, &text, &n, e);
    if (!rc)
        fwrite(text, 1, n, stdout);
    json_out_free(o);
    return rc;
}

/* -----------------------------------------------------------------------------------------------
 */

int cmd_inspect(int argc, char **argv)
{
    struct options o = {0};
    const struct args a = {
        .verb = "inspect",
        .about = "print what is in a model file",
        .usage = "MODEL [--json]",
        .notes = "Sizes are those of the weights in the file; 1 KiB = 1024 bytes. Warnings go to "
                 "standard error.\n",
        .foreign = 0,
        .part = {{table, &o}},
    };
    struct model *m = NULL;
    struct err e = {0};
    int status;

    if (args_parse(&a, argc, argv, &status))
        return status;
    if (o.operand && o.model)
        return args_usage(a.verb, "one model at a time, not %s and also %s", o.operand, o.model);
    if (!o.operand && !o.model)
        return args_usage(a.verb, "MODEL is missing; see conclave %s --help", a.verb);
    status = 1;
    if (model_open(o.operand ? o.operand : o.model, MODEL_ANY_TYPE, &m, &e))
        goto done;
    for (size_t i = 0; i < m->n_warnings; i++)
        fprintf(stderr, "conclave: warning: %s\n", m->warning[i]);
    if (!o.json)
        print_table(m);
    else if (print_json(m, &e))
        goto done;
    status = args_flush_stdout();
done:
    if (e.code)
        report_error(&e);
    model_close(m);
    return status;
}
