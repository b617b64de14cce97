/* file_names.c - see file_names.h. */
#include "gateway/disk/file_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/layout/blob_name.h"
#include "base/layout/tensor.h"

#define PREFIX_CHARS (sizeof TB_FILE_MARK_PREFIX - 1)
#define HEADER_CHARS (sizeof TB_FILE_HEADER_PREFIX - 1)

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
    TB_ASSERT((size_t)(to - name_out) + 1 == TB_FILE_MARK_CHARS);
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

static struct tb_file_entry entry_of(const struct tb_file_list *list, uint32_t i)
{
    TB_ASSERT(i < list->manifest->blob_count);
    const struct tb_blob *blob = &list->manifest->blobs[i];
    const char *marked = tb_file_of_mark(blob->name);
    const bool header = strncmp(blob->name, TB_FILE_HEADER_PREFIX, HEADER_CHARS) == 0;
    return (struct tb_file_entry){.name = marked != NULL ? marked : blob->name + (header ? HEADER_CHARS : 0),
                                  .blob = blob->name,
                                  .bytes = blob->bytes,
                                  .digest = list->digests != NULL ? &list->digests[i] : NULL,
                                  .is_mark = marked != NULL,
                                  .is_header = header};
}

/* Marks apart from the others. */
static int compare(const void *left, const void *right)
{
    const struct tb_file_entry *a = left, *b = right;
    const int names = strcmp(a->name, b->name);
    return names != 0 ? names : (int)a->is_mark - (int)b->is_mark;
}

void tb_file_index_fill(struct tb_file_index *index, const struct tb_file_list *list)
{
    index->count = 0;
    for (uint32_t i = 0; i < list->manifest->blob_count && i < TB_BLOBS_MAX; i++)
        index->entries[index->count++] = entry_of(list, i);
    if (index->count > 0) qsort(index->entries, index->count, sizeof *index->entries, compare);
}

static bool differ(const struct tb_file_entry *a, const struct tb_file_entry *b)
{
    TB_ASSERT(a->is_mark == b->is_mark); /* compare() puts them apart */
    if (a->is_mark) return strcmp(a->blob, b->blob) != 0;
    if (a->is_header != b->is_header || a->bytes != b->bytes) return true;
    return a->digest != NULL && b->digest != NULL && !tb_digest_equal(a->digest, b->digest);
}

const char *tb_file_differs(const struct tb_file_index *mine, const struct tb_file_list *other)
{
    for (uint32_t k = 0; k < other->manifest->blob_count && mine->count > 0; k++) {
        const struct tb_file_entry there = entry_of(other, k);
        const struct tb_file_entry *found =
            bsearch(&there, mine->entries, mine->count, sizeof *mine->entries, compare);
        if (found != NULL && differ(found, &there)) return found->name;
    }
    return NULL;
}

static int name_compare(const char *name, const char *key, size_t key_bytes)
{
    const int begin = strncmp(name, key, key_bytes);
    return begin != 0 ? begin : (unsigned char)name[key_bytes];
}

/* The first entry whose name is `key`, or comes after it; `count`: there is none. */
static uint32_t first_from(const struct tb_file_index *index, const char *key, size_t key_bytes)
{
    uint32_t low = 0, high = index->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (name_compare(index->entries[middle].name, key, key_bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* A file that is one of the folders of `name`. */
static const char *file_above(const struct tb_file_index *index, const char *name)
{
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        const size_t bytes = (size_t)(slash - name);
        const uint32_t at = first_from(index, name, bytes);
        if (at < index->count && name_compare(index->entries[at].name, name, bytes) == 0)
            return index->entries[at].name;
    }
    return NULL;
}

static bool is_folder(const struct tb_file_index *index, const char *name)
{
    char folder[TB_BLOB_NAME_MAX + 2];
    const int bytes = snprintf(folder, sizeof folder, "%s/", name);
    TB_ASSERT(bytes > 1 && (size_t)bytes < sizeof folder);
    const uint32_t at = first_from(index, folder, (size_t)bytes);
    return at < index->count && strncmp(index->entries[at].name, folder, (size_t)bytes) == 0;
}

const char *tb_file_clashes(const struct tb_file_index *mine, const struct tb_file_list *other)
{
    for (uint32_t k = 0; k < other->manifest->blob_count && mine->count > 0; k++) {
        const char *name = entry_of(other, k).name;
        const char *above = file_above(mine, name);
        if (above != NULL || is_folder(mine, name)) return above != NULL ? above : name;
    }
    return NULL;
}
