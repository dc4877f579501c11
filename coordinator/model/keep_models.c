/* Every command that writes a result asks here first, so that the rule is one. */
#define _GNU_SOURCE
#include "coordinator/model/keep_models.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/pack/format.h"

int keep_models(const char *path, struct err *e)
{
    char magic[sizeof PACK_MAGIC] = "";
    struct stat st;
    int fd = stat(path, &st) || !S_ISREG(st.st_mode) ? -1 : open(path, O_RDONLY | O_CLOEXEC), is = 0;

    if (fd < 0)
        return 0;
    if (read(fd, magic, sizeof magic) >= 4)
        is = !memcmp(magic, "GGUF", 4) || !memcmp(magic, PACK_MAGIC, sizeof magic) ||
             !memcmp(magic, PACK_MAGIC_PART, sizeof magic);
    close(fd);
    return is ? err_set(e, -EEXIST, "%s: is a model file and will not be written over; give another name", path)
              : 0;
}
