/* The one file of this folder that reads and writes. */
#define _GNU_SOURCE
#include "coordinator/residency/heat_file.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "coordinator/model/gguf.h"
#include "coordinator/pack/pack.h"

/* Little-endian, as this program's machines are: head, then n_layers * n_experts floats. */
struct head {
    char magic[8];
    uint32_t version, n_layers, n_experts, spare;
    struct heat_id id;
    double tokens;
    uint64_t check; /* XXH3 of the floats, seeded with that of the head before it */
};
_Static_assert(sizeof(struct head) == 64, "heat files have a head of 64 bytes");
static const char magic[8] = "CONHEAT";
enum { VERSION = 1, CHUNK = 1 << 20 };

static uint64_t check_of(const struct head *h, const float *uses, size_t bytes)
{
    return XXH3_64bits_withSeed(uses, bytes, XXH3_64bits(h, offsetof(struct head, check)));
}

/* --- which model ------------------------------------------------------------------------------ */

/* The part of a shard before the first tensor's data; all of it if it has none. */
static uint64_t front_bytes(const struct gguf *g, uint32_t shard)
{
    uint64_t front = gguf_shard_bytes(g, shard);

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->shard == shard && t->file_offset < front)
            front = t->file_offset;
    }
    return front;
}

static int hash_front(const struct gguf *g, uint32_t shard, char *buf, XXH3_state_t *x,
                      struct err *e)
{
    uint64_t left = front_bytes(g, shard), at = 0, bytes = gguf_shard_bytes(g, shard);

    XXH3_128bits_update(x, &bytes, sizeof bytes);
    if (left > GGUF_FRONT_MAX)
        left = GGUF_FRONT_MAX;
    while (left) {
        ssize_t k = pread(gguf_shard_fd(g, shard), buf, left < CHUNK ? left : CHUNK, (off_t)at);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(e, k ? -errno : -EIO, "%s: byte %llu: cannot read: %s",
                           gguf_shard_path(g, shard), (unsigned long long)at,
                           k ? strerror(errno) : "the file became shorter");
        XXH3_128bits_update(x, buf, (size_t)k);
        at += (uint64_t)k;
        left -= (uint64_t)k;
    }
    /* with what was read ahead: in the page cache it would only take memory from experts */
    posix_fadvise(gguf_shard_fd(g, shard), 0, (off_t)(at + 2 * CHUNK), POSIX_FADV_DONTNEED);
    return 0;
}

int heat_identify(const struct gguf *g, struct heat_id *id, struct err *e)
{
    XXH3_state_t *x = XXH3_createState();
    char *buf = malloc(CHUNK);
    const struct pack *p = gguf_pack(g);
    XXH128_hash_t hash;
    int rc = 0;

    *id = (struct heat_id){0};
    if (p) { /* the same experts: a pack knows its original's */
        *id = (struct heat_id){{p->head.model[0], p->head.model[1]}, p->head.model[2]};
        XXH3_freeState(x);
        free(buf);
        return 0;
    }
    if (!x || !buf)
        rc = err_set(e, -ENOMEM, "no memory to identify the model");
    else
        XXH3_128bits_reset(x);
    for (uint32_t s = 0; !rc && s < gguf_n_shards(g); s++) {
        id->bytes += gguf_shard_bytes(g, s);
        rc = hash_front(g, s, buf, x, e);
    }
    if (!rc) {
        hash = XXH3_128bits_digest(x);
        id->hash[0] = hash.high64;
        id->hash[1] = hash.low64;
    }
    XXH3_freeState(x);
    free(buf);
    return rc;
}

int heat_path(const struct heat_id *id, char *path, size_t cap, struct err *e)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int given =
        cache && *cache == '/'; /* a relative one is to be ignored, says the specification */
    int n;

    if (!given && (!home || !*home))
        return err_set(e, -ENOENT,
                       "neither XDG_CACHE_HOME nor HOME is set: heat is not remembered");
    n = snprintf(path, cap, "%s%s/conclave/%016llx%016llx.heat", given ? cache : home,
                 given ? "" : "/.cache", (unsigned long long)id->hash[0],
                 (unsigned long long)id->hash[1]);
    if (n < 0 || (size_t)n >= cap)
        return err_set(e, -ENAMETOOLONG, "the path of the cache folder is too long");
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------- */

static int read_all(int fd, void *to, size_t n, const char *path, struct err *e)
{
    char *at = to;

    while (n) {
        ssize_t k = read(fd, at, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return err_set(e, k ? -errno : -EINVAL, "%s: %s: ignored, starting without heat", path,
                           k ? strerror(errno) : "cut off");
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

static int ignore(struct err *e, const char *path, const char *why)
{
    return err_set(e, -EINVAL, "%s: %s: ignored, starting without heat", path, why);
}

static int judge(const struct head *h, const struct heat_id *id, uint32_t n_layers,
                 uint32_t n_experts, const char *path, struct err *e)
{
    if (memcmp(h->magic, magic, sizeof magic))
        return ignore(e, path, "no heat file");
    if (h->version != VERSION)
        return ignore(e, path, "from another release");
    if (memcmp(&h->id, id, sizeof *id) || h->n_layers != n_layers || h->n_experts != n_experts)
        return ignore(e, path, "of another model");
    if (!isfinite(h->tokens) || h->tokens < 0)
        return ignore(e, path, "damaged");
    return 0;
}

int heat_load(const char *path, const struct heat_id *id, uint32_t n_layers, uint32_t n_experts,
              float *uses, double *tokens, struct err *e)
{
    size_t n = (size_t)n_layers * n_experts, bytes = n * sizeof *uses;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = 0;
    struct head h;
    struct stat st;

    memset(uses, 0, bytes);
    *tokens = 0;
    if (fd < 0 && errno == ENOENT)
        return 1;
    if (fd < 0 || fstat(fd, &st)) {
        rc = ignore(e, path, strerror(errno));
        goto done;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = ignore(e, path, "no regular file");
        goto done;
    }
    rc = read_all(fd, &h, sizeof h, path, e);
    if (!rc)
        rc = judge(&h, id, n_layers, n_experts, path, e);
    if (rc)
        goto done;
    if ((uint64_t)st.st_size != sizeof h + bytes) {
        rc = ignore(e, path, (uint64_t)st.st_size < sizeof h + bytes ? "cut off" : "too long");
        goto done;
    }
    rc = read_all(fd, uses, bytes, path, e);
    if (rc)
        goto done;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(uses[i]) || uses[i] < 0)
            rc = -EINVAL;
    if (rc || h.check != check_of(&h, uses, bytes)) {
        rc = ignore(e, path, "damaged");
        goto done;
    }
    *tokens = h.tokens;
done:
    if (rc)
        memset(uses, 0, bytes);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Makes the folders of a path. */
static int make_folders(const char *path, struct err *e)
{
    char at[4096];
    size_t n = strlen(path);

    if (n >= sizeof at)
        return err_set(e, -ENAMETOOLONG, "%s: the path is too long", path);
    memcpy(at, path, n + 1);
    for (char *c = at + 1; *c; c++) {
        if (*c != '/')
            continue;
        *c = 0;
        if (mkdir(at, 0700) && errno != EEXIST)
            return err_set(e, -errno, "%s: cannot make this folder: %s", at, strerror(errno));
        *c = '/';
    }
    return 0;
}

static int write_all(int fd, const void *from, size_t n)
{
    const char *at = from;

    while (n) {
        ssize_t k = write(fd, at, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return -errno;
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

int heat_save(const char *path, const struct heat_id *id, uint32_t n_layers, uint32_t n_experts,
              const float *uses, double tokens, struct err *e)
{
    size_t bytes = (size_t)n_layers * n_experts * sizeof *uses;
    struct head h = {.version = VERSION,
                     .n_layers = n_layers,
                     .n_experts = n_experts,
                     .id = *id,
                     .tokens = tokens};
    char *new = NULL;
    int fd, rc;

    memcpy(h.magic, magic, sizeof magic);
    h.check = check_of(&h, uses, bytes);
    rc = make_folders(path, e);
    if (rc)
        return rc;
    if (asprintf(&new, "%s.XXXXXX", path) < 0)
        return err_set(e, -ENOMEM, "no memory to write %s", path);
    fd = mkostemp(new, O_CLOEXEC);
    if (fd < 0) {
        rc = err_set(e, -errno, "%s: cannot write: %s", new, strerror(errno));
        free(new);
        return rc;
    }
    rc = write_all(fd, &h, sizeof h);
    if (!rc)
        rc = write_all(fd, uses, bytes);
    if (!rc && fsync(fd))
        rc = -errno;
    if (close(fd) && !rc)
        rc = -errno;
    if (!rc && rename(new, path))
        rc = -errno;
    if (rc) {
        err_set(e, rc, "%s: cannot write: %s", path, strerror(-rc));
        unlink(new);
    }
    free(new);
    return rc;
}
