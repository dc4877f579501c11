/* Keys as people give them. No message holds one. */
#define _GNU_SOURCE
#include "coordinator/cli/keys.h"

#include <stdlib.h>
#include <string.h>

#include "coordinator/cli/output.h"

int keys_read(const char *list, const char *path, struct keys *out, struct err *e)
{
    char *file = NULL, *at, *save = NULL;
    size_t file_n = 0, list_n = list ? strlen(list) : 0;
    int rc = 0;

    *out = (struct keys){NULL, NULL, 0};
    if (path && (rc = input_text(path, &file, &file_n, e)))
        return rc;
    out->text = malloc(file_n + list_n + 2);
    out->key = calloc(file_n + list_n + 1, sizeof *out->key);
    if (!out->text || !out->key) {
        rc = err_set(e, -ENOMEM, "no memory for the keys");
        goto done;
    }
    /* lines of the file, then the list, all with newlines between */
    if (file_n)
        memcpy(out->text, file, file_n);
    out->text[file_n] = '\n';
    if (list_n)
        memcpy(out->text + file_n + 1, list, list_n);
    for (size_t i = 0; i < list_n; i++)
        if (out->text[file_n + 1 + i] == ',')
            out->text[file_n + 1 + i] = '\n';
    out->text[file_n + 1 + list_n] = 0;
    if (strlen(out->text) != file_n + 1 + list_n) {
        rc = err_set(e, -EINVAL, "%s: is no text", path);
        goto done;
    }
    for (at = strtok_r(out->text, "\n", &save); at; at = strtok_r(NULL, "\n", &save)) {
        size_t n;

        at += strspn(at, " \t\r");
        n = strlen(at);
        while (n && strchr(" \t\r", at[n - 1]))
            at[--n] = 0;
        if (n && *at != '#')
            out->key[out->n++] = at;
    }
    if ((list || path) && !out->n) /* the server would be open to all */
        rc = err_set(e, -EINVAL, "%s holds no key", path ? path : "--api-key");
done:
    if (file_n)
        explicit_bzero(file, file_n);
    free(file);
    if (rc)
        keys_free(out);
    return rc;
}

void keys_free(struct keys *k)
{
    for (size_t i = 0; i < k->n; i++)
        explicit_bzero((char *)k->key[i], strlen(k->key[i]));
    free(k->text);
    free(k->key);
    *k = (struct keys){NULL, NULL, 0};
}
