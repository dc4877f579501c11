#define _GNU_SOURCE
#include "coordinator/pack/original.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/pack/plan.h"

static int match(const struct pack_original *o, const char *path, int fd, struct err *why)
{
    struct stat st;
    uint64_t xxh = 0;
    int rc;

    if (fstat(fd, &st))
        return err_set(why, -errno, "%s: cannot look at it: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != o->bytes ||
        st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec != o->mtime_ns)
        return err_set(why, -ESTALE, "%s: has changed since it was packed", path);
    rc = pack_front_hash(fd, path, o->front, &xxh, why);
    if (!rc && xxh != o->front_xxh)
        rc = err_set(why, -ESTALE, "%s: holds another model than the one that was packed", path);
    return rc;
}

int pack_originals_match(const struct pack *p, struct err *why)
{
    int rc = 0;

    for (uint32_t i = 0; i < p->head.n_originals && !rc; i++) {
        const char *path = pack_original_path(p, i);
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

        if (fd < 0)
            return err_set(why, -errno, "%s: cannot open: %s", path, strerror(errno));
        rc = match(&p->original[i], path, fd, why);
        close(fd);
    }
    return rc;
}
