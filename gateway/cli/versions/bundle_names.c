/* bundle_names.c - see bundle_names.h. */
#include "gateway/cli/versions/bundle_names.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/tensor.h"
#include "gateway/disk/file_names.h"

struct entry {
    const char *name; /* as the file has it */
    const struct tb_bundle_file *file;
    uint32_t tensor; /* of the bundle */
    bool chosen;     /* by the index of its folder */
    bool passed;     /* that index chose another file's */
};

struct naming {
    struct tb_bundle *bundle;
    struct tb_bundle_error *error;
    struct entry *entries; /* by name, then by file */
    uint32_t count;
};

static int compare(const void *left, const void *right)
{
    const struct entry *a = left, *b = right;
    const int names = strcmp(a->name, b->name);
    return names != 0 ? names : strcmp(a->file->name, b->file->name);
}

static void list_entries(struct naming *n)
{
    const struct tb_bundle *b = n->bundle;
    for (uint32_t f = 0; f < b->file_count; f++)
        for (uint32_t t = 0; t < b->files[f].parsed.tensor_count; t++, n->count++)
            n->entries[n->count] = (struct entry){
                .name = b->files[f].parsed.tensors[t].name, .file = &b->files[f], .tensor = n->count};
    TB_ASSERT(n->count == b->tensor_count); /* each has its number in the bundle */
    if (n->count > 0) qsort(n->entries, n->count, sizeof *n->entries, compare);
}

/* The first entry of that name, and *count_out of them; they follow one another. */
static struct entry *find(const struct naming *n, const char *name, uint32_t *count_out)
{
    uint32_t low = 0, high = n->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (strcmp(n->entries[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (*count_out = 0; low + *count_out < n->count && strcmp(n->entries[low + *count_out].name, name) == 0;)
        ++*count_out;
    TB_ASSERT(low + *count_out <= n->count);
    return n->entries + low;
}

/* Of "a/b.json" the two bytes "a/". */
static size_t folder_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash == NULL ? 0 : (size_t)(slash + 1 - name);
}

static bool same_folder(const char *a, const char *b)
{
    const size_t folder = folder_of(a);
    return folder == folder_of(b) && memcmp(a, b, folder) == 0;
}

/* ---- indexes ---- */

static enum tb_status refuse_entry(struct naming *n, const struct tb_bundle_file *index, const char *tensor,
                                   const char *file, const struct entry *elsewhere)
{
    return tb_bundle_refuse(n->error, TB_BAD_FILE,
                            "%.200s: tensor \"%.100s\" should be in %.100s, but %s%.100s", index->path,
                            tensor, file, elsewhere == NULL ? "is in no file" : "is in ",
                            elsewhere == NULL ? "" : elsewhere->file->name);
}

/* The index of a Hugging Face folder says which tensor is in which file; a file that is missing or
 * was saved by another run shows here. */
static enum tb_status read_entry(struct naming *n, const struct tb_bundle_file *index, const char *tensor,
                                 const json_t *text)
{
    const char *file = json_string_value(text);
    uint32_t count = 0;
    struct entry *first = find(n, tensor, &count), *chosen = NULL, *other = NULL;
    if (file == NULL)
        return tb_bundle_refuse(n->error, TB_BAD_FILE, "%.200s: weight_map has no file name for \"%.100s\"",
                                index->path, tensor);
    for (struct entry *e = first; e < first + count; e++) {
        const bool here = same_folder(e->file->name, index->name);
        if (here && strcmp(e->file->name + folder_of(e->file->name), file) == 0)
            chosen = e;
        else
            other = e;
    }
    if (chosen == NULL) return refuse_entry(n, index, tensor, file, other);
    chosen->chosen = true;
    for (struct entry *e = first; e < first + count; e++)
        if (e != chosen && same_folder(e->file->name, index->name)) e->passed = true;
    return TB_OK;
}

static enum tb_status read_index(struct naming *n, const struct tb_bundle_file *index)
{
    json_error_t where;
    json_t *object = json_loadb((const char *)index->head, index->count, JSON_REJECT_DUPLICATES, &where);
    if (object == NULL)
        return tb_bundle_refuse(n->error, TB_BAD_FILE, "%.200s:%d:%d: %.150s", index->path, where.line,
                                where.column, where.text);
    json_t *map = json_object_get(object, "weight_map");
    enum tb_status s = TB_OK;
    if (!json_is_object(map))
        s = tb_bundle_refuse(n->error, TB_BAD_FILE, "%.200s: has no object weight_map", index->path);
    for (void *at = json_object_iter(map); at != NULL && s == TB_OK; at = json_object_iter_next(map, at))
        s = read_entry(n, index, json_object_iter_key(at), json_object_iter_value(at));
    json_decref(object);
    return s;
}

static bool is_index(const struct tb_bundle_file *f)
{
    const size_t length = strlen(f->name), end = strlen(TB_BUNDLE_INDEX);
    return length > end && strcmp(f->name + length - end, TB_BUNDLE_INDEX) == 0;
}

/* ---- names ---- */

static enum tb_status make_name(struct naming *n, const struct entry *e)
{
    char name[TB_TENSOR_NAME_MAX + 1];
    if (!tb_file_tensor_name(e->file->name, e->name, name))
        return tb_bundle_refuse(
            n->error, TB_BAD_FILE,
            "%.200s: tensor \"%.100s\" is in other files, too, and the name of both together is too long",
            e->file->path, e->name);
    char *made = tb_strdup(name);
    if (made == NULL) return tb_bundle_no_memory(n->error);
    TB_ASSERT(e->tensor < n->bundle->tensor_count && n->bundle->tensor_names[e->tensor] == NULL);
    n->bundle->tensor_names[e->tensor] = made;
    n->bundle->tensors[e->tensor].name = made;
    return TB_OK;
}

static enum tb_status refuse_pair(struct naming *n, const struct entry *a, const struct entry *b)
{
    TB_ASSERT(strcmp(a->name, b->name) == 0);
    return tb_bundle_refuse(
        n->error, TB_CONFLICT,
        "tensor \"%.100s\" is in %.120s and in %.120s, and %s which counts: leave one out with "
        "--exclude",
        a->name, a->file->path, b->file->path,
        a->chosen && b->chosen ? "two indexes differ about" : "no index says");
}

/* Entries of one name. */
static enum tb_status name_group(struct naming *n, const struct entry *first, uint32_t count)
{
    TB_ASSERT(count > 1 && first + count <= n->entries + n->count);
    const struct entry *last = NULL; /* of those that no index passed over, in the order of their paths */
    uint32_t counting = 0;
    enum tb_status s = TB_OK;
    for (const struct entry *e = first; e < first + count; e++) {
        if (e->passed && !e->chosen) continue;
        if (last != NULL && same_folder(last->file->name, e->file->name)) return refuse_pair(n, last, e);
        last = e;
        counting++;
    }
    for (const struct entry *e = first; e < first + count && s == TB_OK; e++)
        if (counting > 1 || (e->passed && !e->chosen)) s = make_name(n, e);
    return s;
}

/* A tensor that a file itself calls as if it were another's: subscribers could not tell. */
static enum tb_status check_plain(struct naming *n, const struct entry *e)
{
    for (const char *colon = strchr(e->name, ':'); colon != NULL; colon = strchr(colon + 1, ':')) {
        uint32_t count = 0;
        const struct entry *first = find(n, colon + 1, &count);
        for (const struct entry *other = first; other < first + count; other++)
            if (strlen(other->file->name) == (size_t)(colon - e->name) &&
                strncmp(other->file->name, e->name, (size_t)(colon - e->name)) == 0)
                return tb_bundle_refuse(n->error, TB_CONFLICT,
                                        "%.200s: the name \"%.100s\" could be that of a tensor of %.100s",
                                        e->file->path, e->name, other->file->path);
    }
    return TB_OK;
}

static enum tb_status name_all(struct naming *n)
{
    enum tb_status s = TB_OK;
    for (uint32_t f = 0; f < n->bundle->file_count && s == TB_OK; f++)
        if (is_index(&n->bundle->files[f])) s = read_index(n, &n->bundle->files[f]);
    for (uint32_t i = 0; i < n->count && s == TB_OK;) {
        uint32_t count = 0;
        const struct entry *first = find(n, n->entries[i].name, &count);
        TB_ASSERT(first == &n->entries[i] && count > 0); /* sorted: a group begins here */
        s = check_plain(n, &n->entries[i]);
        if (s == TB_OK && count > 1) s = name_group(n, &n->entries[i], count);
        i += count;
    }
    return s;
}

enum tb_status tb_bundle_name_tensors(struct tb_bundle *bundle, struct tb_bundle_error *error)
{
    struct naming n = {.bundle = bundle, .error = error};
    n.entries = tb_calloc(bundle->tensor_count + 1u, sizeof *n.entries);
    if (n.entries == NULL) return tb_bundle_no_memory(error);
    list_entries(&n);
    const enum tb_status s = name_all(&n);
    tb_free(n.entries);
    return s;
}
