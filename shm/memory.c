/* How much memory may still be allocated. Asked before every segment, because past a cgroup's limit
 * an allocation does not fail: the OOM killer comes, and not always for us. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/memory.h"

#define PATH_ROOM 4096
#define LINE_ROOM 8192
#define DIR_ROOM (2 * PATH_ROOM)

static uint64_t less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The number in a file of one word ("max": none), or `none`. */
static uint64_t number_in(const char *dir, const char *name, uint64_t none)
{
    char path[DIR_ROOM + 64], word[64];
    unsigned long long v;
    uint64_t n = none;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "re");
    if (!f)
        return none;
    if (fscanf(f, "%63s", word) == 1 && sscanf(word, "%llu", &v) == 1)
        n = v;
    fclose(f);
    return n;
}

/* The number after `key` at the start of a line, 0 if there is none. */
static uint64_t number_after(const char *path, const char *key)
{
    char line[LINE_ROOM];
    unsigned long long v = 0;
    size_t k = strlen(key);
    FILE *f = fopen(path, "re");

    if (!f)
        return 0;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, key, k) && sscanf(line + k, "%llu", &v) == 1)
            break;
    fclose(f);
    return v;
}

/* File pages are counted in a group's usage, and the kernel drops them before it kills anybody. */
static uint64_t file_pages(const char *dir, const char *inactive, const char *active)
{
    char path[DIR_ROOM + 64];

    snprintf(path, sizeof path, "%s/memory.stat", dir);
    return number_after(path, inactive) + number_after(path, active);
}

/* One group's limits; keeps the one that leaves the least. */
static void group_look(const char *dir, const char *name, int v2, struct memory *m)
{
    uint64_t high = v2 ? number_in(dir, "memory.high", UINT64_MAX) : UINT64_MAX;
    uint64_t limit = number_in(dir, v2 ? "memory.max" : "memory.limit_in_bytes", UINT64_MAX);
    uint64_t least = less(limit, high), used, files;

    if (least >= INT64_MAX / 4096 * 4096) /* how v1 writes "none" */
        return;
    used = number_in(dir, v2 ? "memory.current" : "memory.usage_in_bytes", 0);
    files = v2 ? file_pages(dir, "inactive_file ", "active_file ")
               : file_pages(dir, "total_inactive_file ", "total_active_file ");
    used -= less(used, files);
    if (m->version && (least > used ? least - used : 0) >= (m->limit > m->used ? m->limit - m->used : 0))
        return;
    m->limit = least;
    m->used = used;
    m->version = v2 ? 2 : 1;
    m->high = high < limit;
    snprintf(m->group, sizeof m->group, "%s", *name ? name : "/");
}

/* From the group's own directory up to the mount point: every limit on the way holds. */
static void groups_look(const char *mount, const char *path, int v2, struct memory *m)
{
    char dir[DIR_ROOM];
    size_t stop = strlen(mount);

    snprintf(dir, sizeof dir, "%s%s", mount, strcmp(path, "/") ? path : "");
    for (;;) {
        char *slash;
        group_look(dir, dir + stop, v2, m);
        slash = strrchr(dir, '/');
        if (strlen(dir) <= stop || !slash || (size_t)(slash - dir) < stop)
            return;
        *slash = 0;
    }
}

static int has_word(const char *list, const char *word) /* in a list with commas */
{
    size_t k = strlen(word);

    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (!strncmp(p, word, k) && (!p[k] || p[k] == ','))
            return 1;
    return 0;
}

/* Where the hierarchy is mounted and which of its directories is that mount's root. */
static int find_mount(const char *root, int v2, char *mount, char *mount_root)
{
    char path[PATH_ROOM], line[LINE_ROOM], at[LINE_ROOM], from[LINE_ROOM], type[64],
        opts[LINE_ROOM];
    int found = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    f = fopen(path, "re");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *dash = strstr(line, " - ");
        if (!dash || sscanf(line, "%*s %*s %*s %s %s", from, at) != 2 ||
            sscanf(dash, " - %63s %*s %s", type, opts) != 2)
            continue;
        found = v2 ? !strcmp(type, "cgroup2") : !strcmp(type, "cgroup") && has_word(opts, "memory");
        if (found && strlen(at) < PATH_ROOM / 2 && strlen(from) < PATH_ROOM / 2) {
            snprintf(mount, PATH_ROOM, "%s%s", root, at);
            snprintf(mount_root, PATH_ROOM, "%s", from);
        } else {
            found = 0;
        }
    }
    if (f)
        fclose(f);
    return found;
}

/* The group's path inside the mount. In a container the mount may begin below the hierarchy's root
 * (then that part is taken off) or the path may lie outside of it (then the mount is all we see).
 */
static const char *inside(const char *path, const char *mount_root)
{
    size_t k = strlen(mount_root);

    if (!strcmp(mount_root, "/"))
        return strncmp(path, "/..", 3) ? path : "/";
    if (!strncmp(path, mount_root, k) && (path[k] == '/' || !path[k]))
        return path[k] ? path + k : "/";
    return "/";
}

void memory_look_in(const char *root, struct memory *m)
{
    char path[PATH_ROOM], line[LINE_ROOM], mount[PATH_ROOM], mount_root[PATH_ROOM];
    FILE *f;

    *m = (struct memory){.limit = UINT64_MAX};
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    m->available = number_after(path, "MemAvailable:");
    m->available = m->available ? m->available * 1024 : UINT64_MAX; /* no such line before Linux 3.14 */
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) { /* hierarchy:controllers:path */
        char *names = strchr(line, ':'), *where = names ? strchr(names + 1, ':') : NULL;
        int v2;
        if (!where)
            continue;
        *where++ = 0;
        names++;
        where[strcspn(where, "\n")] = 0;
        v2 = !*names;
        if ((v2 || has_word(names, "memory")) && strlen(where) < PATH_ROOM &&
            find_mount(root, v2, mount, mount_root))
            groups_look(mount, inside(where, mount_root), v2, m);
    }
    if (f)
        fclose(f);
    m->left = m->available;
    if (m->version)
        m->left = less(m->left, m->limit > m->used ? m->limit - m->used : 0);
}

uint64_t memory_left_in(const char *root)
{
    struct memory m;

    memory_look_in(root, &m);
    return m.left;
}

uint64_t memory_node_left_in(const char *root, int node)
{
    char path[PATH_ROOM], line[LINE_ROOM], key[64];
    unsigned long long kb, sum = 0;
    int found = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/sys/devices/system/node/node%d/meminfo", root, node);
    f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) /* Node 0 MemFree:  1234 kB */
        if (sscanf(line, "Node %*d %63[^:]: %llu", key, &kb) == 2 &&
            (!strcmp(key, "MemFree") || !strcmp(key, "Active(file)") || !strcmp(key, "Inactive(file)"))) {
            found |= !strcmp(key, "MemFree");
            sum += kb;
        }
    if (f)
        fclose(f);
    return found ? sum * 1024 : UINT64_MAX;
}

void memory_look(struct memory *m)
{
    memory_look_in("", m);
}

uint64_t memory_left(void)
{
    return memory_left_in("");
}

uint64_t memory_node_left(int node)
{
    return memory_node_left_in("", node);
}
