/* The table of foreign spellings. A flag that is silently ignored is a lie about what was run, and
 * a flag refused without a reason sends people to the source: so every entry has its sentence. */
#include "coordinator/cli/foreign.h"

#include <string.h>

#define NO_DOWNLOAD "nothing is downloaded; fetch the file and give it with -m FILE"
#define BY_BUDGET "experts are placed by budgets: --ram and --cards say how much of memory and of which cards"
#define BY_CARDS "what is computed on cards and what on the CPU is not cut by layers; see --cards and --trunk"
#define OWN_MEMORY "weights are always read into memory of our own, never mapped"
#define RAW_TEXT "run goes on from raw text and applies no chat template, chat always does; leave it out"
#define NO_SAMPLER                                                                                 \
    "this sampler has no definition here (temperature, top-k, top-p, min-p, penalties have)"
#define FROM_FILE "the file's own values are used; leave it out"
#define NO_DRAFT "drafts are not part of this build; the text would be the same"
#define NO_SERVER "conclave serve is the server"
#define ONE_TEAM "threads are pinned by the program; -t says how many"

#define ONLY_RUN "of the commands only run and serve take a grammar"

#define OK FOREIGN_OK
#define REFUSED FOREIGN_REFUSED
#define ALIKE FOREIGN_ALIKE

static const struct foreign table[] = {
    /* model */
    {"-hf|-hfr|--hf-repo", "*", NULL, REFUSED, NO_DOWNLOAD},
    {"-hff|--hf-file", "*", NULL, REFUSED, NO_DOWNLOAD},
    {"-hft|--hf-token", "*", NULL, REFUSED, NO_DOWNLOAD},
    {"-mu|--model-url", "*", NULL, REFUSED, NO_DOWNLOAD},
    {"-dr|--docker-repo", "*", NULL, REFUSED, NO_DOWNLOAD},
    {"--lora", "*", NULL, REFUSED, "adapters are not supported"},
    {"--lora-scaled", "*", NULL, REFUSED, "adapters are not supported"},
    {"--control-vector", "*", NULL, REFUSED, "control vectors are not supported"},
    {"--override-kv", "*", NULL, REFUSED, FROM_FILE},
    {"--rope-scaling", "*", NULL, REFUSED, FROM_FILE},
    {"--rope-scale", "*", NULL, REFUSED, FROM_FILE},
    {"--rope-freq-base", "*", NULL, REFUSED, FROM_FILE},
    {"--rope-freq-scale", "*", NULL, REFUSED, FROM_FILE},
    {"--yarn-orig-ctx", "*", NULL, REFUSED, FROM_FILE},
    {"--yarn-ext-factor", "*", NULL, REFUSED, FROM_FILE},
    {"--yarn-attn-factor", "*", NULL, REFUSED, FROM_FILE},
    {"--yarn-beta-slow", "*", NULL, REFUSED, FROM_FILE},
    {"--yarn-beta-fast", "*", NULL, REFUSED, FROM_FILE},
    {"-md|--model-draft|--spec-draft-model", "*", NULL, REFUSED, NO_DRAFT},
    {"--spec-type", "none", NULL, OK, NO_DRAFT},
    {"--draft|--draft-n|--draft-max|--spec-draft-n-max", "*", NULL, REFUSED, NO_DRAFT},
    {"--check-tensors", NULL, NULL, REFUSED, "tensor values are not checked in this build"},
    /* placement */
    {"-ngl|--gpu-layers|--n-gpu-layers", "0|auto", NULL, OK, BY_CARDS},
    {"-cmoe|--cpu-moe", NULL, NULL, OK, BY_BUDGET},
    {"-ncmoe|--n-cpu-moe", "*", NULL, OK, BY_BUDGET},
    {"-ot|--override-tensor", "*", NULL, REFUSED, BY_BUDGET},
    {"-ts|--tensor-split", "*", NULL, REFUSED, BY_CARDS},
    {"-sm|--split-mode", "none", NULL, OK, BY_CARDS},
    {"-mg|--main-gpu", "0", NULL, OK, BY_CARDS},
    {"-dev|--device", "none", NULL, OK,
     "--cards says which: none, or numbers as in 0,1"},
    {"-fit|--fit", "on|off", NULL, OK,
     "what does not fit is refused with the sizes; see --ram and -c"},
    {"-fitt|--fit-target", "*", NULL, OK, "memory is not fitted by a margin; see --ram"},
    {"-fitc|--fit-ctx", "*", NULL, OK,
     "the context is what -c says or the file's; it is not shrunk"},
    {"-nkvo|--no-kv-offload", NULL, NULL, OK, "keys and values are where the trunk is; see --trunk"},
    {"-kvo|--kv-offload", NULL, NULL, REFUSED,
     "keys and values are in RAM; this build computes on the CPU"},
    {"--op-offload", NULL, NULL, REFUSED, "this build computes on the CPU"},
    {"--no-op-offload", NULL, NULL, OK, "this build computes on the CPU anyway"},
    /* loading */
    {"--mlock", NULL, NULL, OK, OWN_MEMORY},
    {"--mmap", NULL, NULL, OK, OWN_MEMORY},
    {"--no-mmap", NULL, NULL, OK, OWN_MEMORY},
    {"-lm|--load-mode", "auto|none|mmap|mlock|mmap+mlock|dio", NULL, OK, OWN_MEMORY},
    {"-dio|--direct-io", NULL, NULL, OK, "files are always read with O_DIRECT"},
    {"-ndio|--no-direct-io", NULL, NULL, REFUSED, "files are always read with O_DIRECT"},
    {"-lzm|--lazy-mode", "*", NULL, OK, "no model of this build has such a table"},
    {"--numa", "distribute|isolate|numactl", NULL, OK,
     "threads and memory are bound to their nodes anyway; see --nodes"},
    {"--warmup", NULL, NULL, REFUSED, "there is no warm-up run"},
    {"--no-warmup", NULL, NULL, OK, "there is no warm-up run anyway"},
    {"-nr|--no-repack", NULL, NULL, OK, "weights stay as they are in the file anyway"},
    {"--repack", NULL, NULL, REFUSED, "weights stay as they are in the file"},
    /* keys and values, context */
    {"-ctk|--cache-type-k", "*", "kv", ALIKE, "keys and values have one type here"},
    {"-ctv|--cache-type-v", "*", "kv", ALIKE, "keys and values have one type here"},
    {"-fa|--flash-attn", "?on|off|auto|1|0|enabled|disabled", NULL, OK,
     "attention has one definition here, it is neither on nor off"},
    {"--keep", "*", NULL, OK, "nothing ever leaves the context"},
    {"--no-context-shift", NULL, NULL, OK, "the end of the context ends the text anyway"},
    {"--context-shift", NULL, NULL, REFUSED, "the end of the context ends the text"},
    {"--swa-full", NULL, NULL, OK, "the whole context is kept anyway"},
    {"-kvu|--kv-unified", NULL, NULL, OK, "each sequence has a context of its own"},
    {"--prompt-cache", "*", NULL, REFUSED, "prompts are not kept in files"},
    /* threads, batches */
    {"-ub|--ubatch-size", "*", "batch", OK,
     "tokens of one pass; the text is the same for every value"},
    {"-b|--batch-size", "*", "batch", OK,
     "tokens of one pass; the text is the same for every value"},
    {"-tb|--threads-batch", "*", NULL, OK, "prompt and answer use the same threads, -t"},
    {"-C|--cpu-mask", "*", NULL, REFUSED, ONE_TEAM},
    {"-Cr|--cpu-range", "*", NULL, REFUSED, ONE_TEAM},
    {"--cpu-strict", "*", NULL, REFUSED, ONE_TEAM},
    {"--prio", "*", NULL, REFUSED, "priorities are not set; use nice"},
    {"--poll", "*", NULL, REFUSED, "how threads wait is not a setting"},
    /* sampling */
    {"--samplers", "*", NULL, REFUSED, "the order of the samplers is fixed"},
    {"--sampler-seq|--sampling-seq", "*", NULL, REFUSED, "the order of the samplers is fixed"},
    {"--typical|--typical-p", "1|1.0", NULL, OK, NO_SAMPLER},
    {"--top-nsigma|--top-n-sigma", "-1|-1.0", NULL, OK, NO_SAMPLER},
    {"--xtc-probability", "0|0.0", NULL, OK, NO_SAMPLER},
    {"--xtc-threshold", "*", NULL, REFUSED, NO_SAMPLER},
    {"--dry-multiplier", "0|0.0", NULL, OK, NO_SAMPLER},
    {"--dry-base", "*", NULL, REFUSED, NO_SAMPLER},
    {"--dry-allowed-length", "*", NULL, REFUSED, NO_SAMPLER},
    {"--dry-penalty-last-n", "*", NULL, REFUSED, NO_SAMPLER},
    {"--dry-sequence-breaker", "*", NULL, REFUSED, NO_SAMPLER},
    {"--dynatemp-range", "0|0.0", NULL, OK, NO_SAMPLER},
    {"--dynatemp-exp", "*", NULL, REFUSED, NO_SAMPLER},
    {"--mirostat", "0", NULL, OK, "it is off here anyway"},
    {"--mirostat-lr", "*", NULL, REFUSED, NO_SAMPLER},
    {"--mirostat-ent", "*", NULL, REFUSED, NO_SAMPLER},
    {"-l|--logit-bias", "*", NULL, REFUSED, "no biases on the command line"},
    {"--grammar", "*", NULL, REFUSED, ONLY_RUN},
    {"--grammar-file", "*", NULL, REFUSED, ONLY_RUN},
    {"-j|--json-schema", "*", NULL, REFUSED, ONLY_RUN},
    {"--json-schema-file", "*", NULL, REFUSED, ONLY_RUN},
    {"-jf", "*", NULL, REFUSED, "its name is --json-schema-file FILE"},
    /* chat */
    {"--jinja", NULL, NULL, REFUSED, RAW_TEXT},
    {"--no-jinja", NULL, NULL, OK, "no chat template is applied anyway"},
    {"--chat-template", "*", NULL, REFUSED, RAW_TEXT},
    {"--chat-template-file", "*", NULL, REFUSED, RAW_TEXT},
    {"--chat-template-kwargs", "*", NULL, REFUSED, RAW_TEXT},
    {"-cnv|--conversation", NULL, NULL, REFUSED, RAW_TEXT},
    {"-no-cnv|--no-conversation", NULL, NULL, OK, "run goes on from raw text anyway"},
    {"-st|--single-turn", NULL, NULL, REFUSED, RAW_TEXT},
    {"-sys|--system-prompt", "*", NULL, REFUSED, RAW_TEXT},
    {"-sysf|--system-prompt-file", "*", NULL, REFUSED, RAW_TEXT},
    {"-i|--interactive", NULL, NULL, REFUSED, RAW_TEXT},
    {"-if|--interactive-first", NULL, NULL, REFUSED, RAW_TEXT},
    {"-r|--reverse-prompt", "*", NULL, REFUSED,
     "the text ends at an end token, at -n or at the context's end"},
    {"--reasoning-format", "*", NULL, REFUSED, RAW_TEXT},
    {"-rea|--reasoning", "*", NULL, REFUSED, RAW_TEXT},
    {"--reasoning-budget", "*", NULL, REFUSED, RAW_TEXT},
    /* what is printed */
    {"--color|-co", "?on|off|auto", NULL, OK,
     "text is never coloured; other lines are on a terminal"},
    {"--simple-io", NULL, NULL, OK, "the text is written as plain bytes anyway"},
    {"--perf", NULL, NULL, OK, "the closing line is always printed"},
    {"--no-perf", NULL, NULL, REFUSED, "the closing line is always printed, on standard error"},
    {"-sp|--special", NULL, NULL, REFUSED, "control tokens are not printed as text"},
    {"--no-escape", NULL, NULL, OK, "the prompt is taken as it is anyway; -e changes that"},
    {"-lv|--verbosity|--log-verbosity", "*", NULL, REFUSED, "say -v, or -v -v for more"},
    {"--log-disable", NULL, NULL, REFUSED,
     "everything but the text goes to standard error: 2>/dev/null"},
    {"--log-file", "*", NULL, REFUSED, "everything but the text goes to standard error: 2>FILE"},
    {"--log-colors", "*", NULL, REFUSED, "NO_COLOR=1 in the environment does it"},
    /* other programs of theirs */
    {"--host", "*", NULL, REFUSED, NO_SERVER},
    {"--port", "*", NULL, REFUSED, NO_SERVER},
    {"-np|--parallel", "1", NULL, OK, "there is one sequence here; conclave serve has several"},
    {"--api-key", "*", NULL, REFUSED, NO_SERVER},
};

#define ONE_MODEL "a server serves one model"
#define ON_REQUEST "a request says so"

static const struct foreign server[] = {
    {"-np", "*", "parallel", OK, "answers beside each other"},
    {"-to", "*", "timeout", OK, "seconds that a client may take nothing"},
    {"-a", "*", "alias", OK, "the model's name for clients"},
    {"--ssl-cert-file", "*", "tls-cert", OK, "the certificate"},
    {"--ssl-key-file", "*", "tls-key", OK, "its key"},
    {"-rea", "*", "reasoning", OK, "does the model think before it answers?"},
    {"--jinja", NULL, NULL, OK, "messages are always rendered by the model's template"},
    {"--no-jinja", NULL, NULL, REFUSED, "messages are always rendered by the model's template"},
    {"--reasoning-format", "auto|deepseek", NULL, OK, "thoughts stand in reasoning_content; a request may say reasoning_format"},
    {"--reasoning-budget", "-1", NULL, OK, "thoughts are not limited here; 0: --reasoning off"},
    {"-cb|--cont-batching", NULL, NULL, OK, "answers are always made beside each other"},
    {"-nocb|--no-cont-batching", NULL, NULL, REFUSED, "answers are always made beside each other; --parallel 1 makes one at a time"},
    {"--cache-prompt", NULL, NULL, OK, "the front of a prompt that is known is not computed again anyway"},
    {"--no-cache-prompt", NULL, NULL, REFUSED, ON_REQUEST ": cache_prompt"},
    {"--cache-reuse", "0", NULL, OK, "a prompt's front is used again, pieces from its middle are not"},
    {"--threads-http", "*", NULL, OK, "one thread serves all clients"},
    {"--metrics", NULL, NULL, OK, "/metrics is there anyway; --no-metrics takes it away"},
    {"--slots", NULL, NULL, OK, "/slots is there anyway; --no-slots takes it away"},
    {"--props", NULL, NULL, REFUSED, "settings of a running server cannot be changed"},
    {"--slot-save-path", "*", NULL, REFUSED, "slots are not kept in files"},
    {"--sleep-idle-seconds", "-1", NULL, OK, "the model stays loaded"},
    {"--embedding|--embeddings", NULL, NULL, REFUSED, "embeddings are not supported"},
    {"--rerank|--reranking", NULL, NULL, REFUSED, "ranking is not supported"},
    {"--path", "*", NULL, REFUSED, "no files are served"},
    {"--api-prefix", "*", NULL, REFUSED, "paths stand at the root; a proxy can put them elsewhere"},
    {"--models-dir", "*", NULL, REFUSED, ONE_MODEL},
    {"--models-preset", "*", NULL, REFUSED, ONE_MODEL},
    {"--models-max", "*", NULL, REFUSED, ONE_MODEL},
    {"--mmproj", "*", NULL, REFUSED, "this build reads text"},
};

int word_in(const char *list, const char *s, size_t n)
{
    for (;;) {
        size_t len = strcspn(list, "|"), same = 0;

        while (same < n && same < len &&
               (list[same] == s[same] || (list[same] == '-' && s[same] == '_')))
            same++;
        if (same == n && n == len)
            return 1;
        if (!list[len])
            return 0;
        list += len + 1;
    }
}

const struct foreign *foreign_find(const char *word, size_t n, int serve)
{
    for (size_t i = 0; serve && i < sizeof server / sizeof *server; i++)
        if (word_in(server[i].names, word, n))
            return &server[i];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (word_in(table[i].names, word, n))
            return &table[i];
    return NULL;
}
