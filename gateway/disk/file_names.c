/* file_names.c - see file_names.h. */
#include "gateway/disk/file_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX_CHARS (sizeof TB_FILE_MARK_PREFIX - 1)

bool tb_file_tensor_name(const char *file, const char *tensor, char name_out[TB_TENSOR_NAME_MAX + 1])
{
    const int length = snprintf(name_out, TB_TENSOR_NAME_MAX + 1, "%s:%s", file, tensor);
    return length > 0 && length <= TB_TENSOR_NAME_MAX;
}

bool tb_file_mark(const struct tb_digest *digest, const char *file, char name_out[TB_BLOB_NAME_MAX + 1])
{
    if (TB_FILE_MARK_CHARS + strlen(file) > TB_BLOB_NAME_MAX) return false;
    char *to = name_out + snprintf(name_out, TB_BLOB_NAME_MAX + 1, "%s", TB_FILE_MARK_PREFIX);
    for (size_t i = 0; i < TB_DIGEST_BYTES; i++)
        to += snprintf(to, 3, "%02x", digest->bytes[i]);
    (void)snprintf(to, TB_BLOB_NAME_MAX + 1 - (size_t)(to - name_out), "/%s", file);
    return true;
}

const char *tb_file_of_mark(const char *blob)
{
    if (strncmp(blob, TB_FILE_MARK_PREFIX, PREFIX_CHARS) != 0) return NULL;
    const char *hex = blob + PREFIX_CHARS;
    if (strspn(hex, "0123456789abcdef") != 2 * TB_DIGEST_BYTES || hex[2 * TB_DIGEST_BYTES] != '/')
        return NULL;
    return blob + TB_FILE_MARK_CHARS;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a + TB_FILE_MARK_CHARS, *(const char *const *)b + TB_FILE_MARK_CHARS);
}

const char *tb_file_differs(const struct tb_manifest *mine, const struct tb_manifest *other)
{
    const char *marks[TB_BLOBS_MAX];
    size_t count = 0;
    for (uint32_t i = 0; i < mine->blob_count && i < TB_BLOBS_MAX; i++)
        if (tb_file_of_mark(mine->blobs[i].name) != NULL) marks[count++] = mine->blobs[i].name;
    if (count > 0) qsort(marks, count, sizeof *marks, compare);
    for (uint32_t k = 0; k < other->blob_count && count > 0; k++) {
        const char *there = other->blobs[k].name;
        const bool is_mark = tb_file_of_mark(there) != NULL;
        const char *const *found = is_mark ? bsearch(&there, marks, count, sizeof *marks, compare) : NULL;
        if (found != NULL && strcmp(*found, there) != 0) return *found + TB_FILE_MARK_CHARS;
    }
    return NULL;
}
