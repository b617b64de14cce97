/* unbundle.c - from staged items to files. See unbundle.h. */
#include "gateway/cli/versions/unbundle.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/blob_name.h"
#include "base/layout/tensor.h"
#include "base/system_calls.h"
#include "gateway/disk/file_names.h"

#define ANY_SHARD       UINT32_MAX
#define WRITE_BYTES_MAX ((size_t)8 << 20) /* at a time, so that progress and an interrupt are seen */

struct tensor_ref {
    const struct tb_item *item;
    bool used;
};

struct planning {
    struct tb_unbundle *plan;
    struct tensor_ref *tensors; /* by name, then shard */
    uint32_t tensor_count;
    struct tb_bundle_error *error;
};

/* ---- the plan ---- */

static bool grow(void **rows, uint32_t count, uint32_t *cap, size_t size)
{
    TB_ASSERT(count <= *cap && (*rows != NULL || *cap == 0));
    if (count < *cap) return true;
    const uint32_t more = *cap == 0 ? 64 : *cap * 2;
    void *larger = tb_realloc(*rows, more * size);
    if (larger == NULL) return false;
    *rows = larger;
    *cap = more;
    return true;
}

/* Spans that follow belong to the file begun last. */
static enum tb_status begin_file(struct planning *p, const char *name)
{
    struct tb_unbundle *plan = p->plan;
    void *rows = plan->files;
    if (!grow(&rows, plan->file_count, &plan->file_cap, sizeof *plan->files))
        return tb_bundle_no_memory(p->error);
    plan->files = rows;
    TB_ASSERT(plan->file_count < plan->file_cap);
    plan->files[plan->file_count++] = (struct tb_unbundle_file){.name = name, .first_span = plan->span_count};
    return TB_OK;
}

static enum tb_status add_span(struct planning *p, const void *bytes, uint64_t count)
{
    struct tb_unbundle *plan = p->plan;
    void *rows = plan->spans;
    if (!grow(&rows, plan->span_count, &plan->span_cap, sizeof *plan->spans))
        return tb_bundle_no_memory(p->error);
    plan->spans = rows;
    TB_ASSERT(plan->span_count < plan->span_cap);
    plan->spans[plan->span_count++] = (struct tb_unbundle_span){bytes, count};
    TB_ASSERT(plan->file_count > 0 && plan->files != NULL);
    struct tb_unbundle_file *file = &plan->files[plan->file_count - 1];
    TB_ASSERT(file->first_span + file->span_count + 1 == plan->span_count); /* spans follow one another */
    file->span_count++;
    file->bytes += count;
    plan->bytes += count;
    return TB_OK;
}

static int by_name_and_shard(const void *left, const void *right)
{
    const struct tb_item *a = ((const struct tensor_ref *)left)->item;
    const struct tb_item *b = ((const struct tensor_ref *)right)->item;
    const int names = strcmp(a->name, b->name);
    if (names != 0) return names;
    return a->shard_index < b->shard_index ? -1 : a->shard_index > b->shard_index;
}

/* The tensor of that name in that shard, or in the first that has one; NULL when there is none. */
static struct tensor_ref *find_tensor(struct planning *p, const char *name, uint32_t shard)
{
    uint32_t low = 0;
    uint32_t high = p->tensor_count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (strcmp(p->tensors[middle].item->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < p->tensor_count && strcmp(p->tensors[low].item->name, name) == 0; low++)
        if (shard == ANY_SHARD || p->tensors[low].item->shard_index == shard) return &p->tensors[low];
    return NULL;
}

/* As FILE:TENSOR where that is in the version, else by its own name; rather from the header's own
 * shard. */
static struct tensor_ref *tensor_of(struct planning *p, const char *file, const char *name, uint32_t shard)
{
    char full[TB_TENSOR_NAME_MAX + 1];
    const bool fits = tb_file_tensor_name(file, name, full);
    const uint32_t shards[] = {shard, ANY_SHARD};
    for (int i = 0; i < 2; i++) {
        struct tensor_ref *ref = fits ? find_tensor(p, full, shards[i]) : NULL;
        if (ref == NULL) ref = find_tensor(p, name, shards[i]);
        if (ref != NULL) return ref;
    }
    return NULL;
}

static enum tb_status add_tensor(struct planning *p, const char *file, uint32_t shard,
                                 const struct tb_safetensors_tensor *t)
{
    struct tensor_ref *ref = tensor_of(p, file, t->name, shard);
    if (ref == NULL)
        return tb_bundle_refuse(p->error, TB_BAD_FILE,
                                "the header of %.150s has a tensor \"%.150s\" that the version has not", file,
                                t->name);
    const struct tb_tensor dtype = {.dtype = t->dtype, .other = t->other};
    if (ref->item->count != t->end - t->begin || strcmp(ref->item->dtype, tb_tensor_dtype_name(&dtype)) != 0)
        return tb_bundle_refuse(p->error, TB_BAD_FILE,
                                "the header of %.150s and the version differ about tensor \"%.150s\"", file,
                                t->name);
    ref->used = true;
    return add_span(p, ref->item->bytes, ref->item->count);
}

static enum tb_status plan_safetensors(struct planning *p, const char *name, const struct tb_item *header)
{
    struct tb_safetensors parsed;
    struct tb_safetensors_error error;
    uint64_t header_bytes = 0;
    enum tb_status s = tb_safetensors_header_bytes(name, header->bytes, header->count, &header_bytes, &error);
    if (s != TB_OK) return tb_bundle_refuse(p->error, s, "%s", error.text);
    if (header_bytes != header->count)
        return tb_bundle_refuse(p->error, TB_BAD_FILE, "the header of %.150s has bytes behind it", name);
    s = tb_safetensors_parse(name, header->bytes, header->count, TB_SAFETENSORS_BYTES_UNKNOWN, &parsed,
                             &error);
    if (s != TB_OK) return tb_bundle_refuse(p->error, s, "%s", error.text);
    s = begin_file(p, name);
    if (s == TB_OK) s = add_span(p, header->bytes, header->count);
    if (s == TB_OK) p->plan->files[p->plan->file_count - 1].of_header = true;
    for (uint32_t i = 0; i < parsed.tensor_count && s == TB_OK; i++)
        s = add_tensor(p, name, header->shard_index, &parsed.tensors[i]);
    tb_safetensors_fini(&parsed);
    return s;
}

static const struct tb_unbundle_file *file_named(const struct tb_unbundle *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->file_count; i++)
        if (strcmp(plan->files[i].name, name) == 0) return &plan->files[i];
    return NULL;
}

static enum tb_status refuse_other_bytes(const struct planning *p, const char *name)
{
    return tb_bundle_refuse(p->error, TB_CONFLICT, "two shards have a file \"%.200s\" with different bytes",
                            name);
}

/* A file of two shards is one file: the tensors of this one stand there already. */
static enum tb_status use_again(struct planning *p, const struct tb_unbundle_file *before,
                                const struct tb_item *header)
{
    struct tb_safetensors parsed;
    struct tb_safetensors_error error;
    enum tb_status s = tb_safetensors_parse(before->name, header->bytes, header->count,
                                            TB_SAFETENSORS_BYTES_UNKNOWN, &parsed, &error);
    if (s != TB_OK) return tb_bundle_refuse(p->error, s, "%s", error.text);
    for (uint32_t i = 0; i < parsed.tensor_count && s == TB_OK; i++) {
        struct tensor_ref *ref = tensor_of(p, before->name, parsed.tensors[i].name, header->shard_index);
        TB_ASSERT(before->span_count == parsed.tensor_count + 1); /* of the same header */
        const struct tb_unbundle_span *span = &p->plan->spans[before->first_span + 1 + i];
        if (ref == NULL || ref->item->count != span->count ||
            (span->count > 0 && memcmp(ref->item->bytes, span->bytes, span->count) != 0))
            s = refuse_other_bytes(p, before->name);
        else
            ref->used = true;
    }
    tb_safetensors_fini(&parsed);
    return s;
}

/* Every rank of a trainer may send the same config.json; two that differ are one too many, and so
 * is a blob that is no more than the header of the file. */
static enum tb_status plan_again(struct planning *p, const struct tb_unbundle_file *before,
                                 const struct tb_item *item, bool header)
{
    TB_ASSERT(before->first_span < p->plan->span_count && before->span_count > 0);
    const struct tb_unbundle_span *span = &p->plan->spans[before->first_span];
    const bool same = before->of_header == header && span->count == item->count &&
                      (item->count == 0 || memcmp(span->bytes, item->bytes, item->count) == 0);
    if (!same) return refuse_other_bytes(p, before->name);
    return header ? use_again(p, before, item) : TB_OK;
}

static enum tb_status plan_blob(struct planning *p, const struct tb_item *item)
{
    const size_t prefix = strlen(TB_BUNDLE_HEADER_PREFIX);
    const bool header = strncmp(item->name, TB_BUNDLE_HEADER_PREFIX, prefix) == 0;
    const char *name = header ? item->name + prefix : item->name;
    if (tb_file_of_mark(item->name) != NULL) return TB_OK; /* for the gateway */
    if (!tb_bundle_name_valid(name))
        return tb_bundle_refuse(p->error, TB_BAD_FILE, "a file of the version has the name \"%.200s\"",
                                item->name);
    const struct tb_unbundle_file *before = file_named(p->plan, name);
    if (before != NULL) return plan_again(p, before, item, header);
    if (header) return plan_safetensors(p, name, item);
    const enum tb_status s = begin_file(p, name);
    return s == TB_OK ? add_span(p, item->bytes, item->count) : s;
}

/* ---- tensors without a file ---- */

static bool describe(json_t *object, const struct tb_item *item, uint64_t begin)
{
    const uint64_t end = begin + item->count;
    json_t *shape = json_array();
    bool good = shape != NULL;
    for (uint32_t i = 0; i < item->rank && good; i++)
        good = json_array_append_new(shape, json_integer((json_int_t)item->shape[i])) == 0;
    if (!good) {
        json_decref(shape);
        return false;
    }
    json_t *row = json_pack("{s:s, s:o, s:[I, I]}", "dtype", item->dtype, "shape", shape, "data_offsets",
                            (json_int_t)begin, (json_int_t)end);
    return row != NULL && json_object_set_new(object, item->name, row) == 0;
}

/* Prefix and JSON for the unused tensors of a shard; *bytes_out of them. NULL: no memory. */
static char *make_header(const struct planning *p, uint32_t shard, uint64_t *bytes_out)
{
    json_t *object = json_object();
    uint64_t begin = 0;
    bool good = object != NULL;
    for (uint32_t i = 0; i < p->tensor_count && good; i++) {
        const struct tb_item *item = p->tensors[i].item;
        if (p->tensors[i].used || item->shard_index != shard) continue;
        good = describe(object, item, begin);
        begin += item->count;
    }
    char *json = good ? json_dumps(object, JSON_COMPACT) : NULL;
    const size_t json_bytes = json == NULL ? 0 : strlen(json);
    const size_t padded = (json_bytes + 7) / 8 * 8;
    char *header = json == NULL ? NULL : tb_malloc(TB_SAFETENSORS_PREFIX_BYTES + padded);
    if (header != NULL) {
        for (int i = 0; i < TB_SAFETENSORS_PREFIX_BYTES; i++)
            header[i] = (char)((uint64_t)padded >> (8 * i));
        for (size_t i = 0; i < padded; i++) /* spaces behind, up to a multiple of 8 */
            header[TB_SAFETENSORS_PREFIX_BYTES + i] = i < json_bytes ? json[i] : ' ';
        *bytes_out = TB_SAFETENSORS_PREFIX_BYTES + padded;
    }
    free(json);
    json_decref(object);
    return header;
}

static enum tb_status plan_made_file(struct planning *p, uint32_t shard)
{
    char name[40];
    uint64_t header_bytes = 0;
    (void)snprintf(name, sizeof name, "tensors-%04u.safetensors", shard);
    if (file_named(p->plan, name) != NULL)
        return tb_bundle_refuse(p->error, TB_CONFLICT,
                                "shard %u has tensors without a file, and a file \"%s\"", shard, name);
    enum tb_status s = begin_file(p, "");
    if (s != TB_OK) return s;
    struct tb_unbundle_file *file = &p->plan->files[p->plan->file_count - 1];
    TB_ASSERT(file->made_name == NULL && file->span_count == 0);
    file->made_name = tb_strdup(name);
    file->made_header = make_header(p, shard, &header_bytes);
    if (file->made_name == NULL || file->made_header == NULL) return tb_bundle_no_memory(p->error);
    file->name = file->made_name;
    s = add_span(p, file->made_header, header_bytes);
    for (uint32_t i = 0; i < p->tensor_count && s == TB_OK; i++) {
        if (p->tensors[i].used || p->tensors[i].item->shard_index != shard) continue;
        p->tensors[i].used = true;
        s = add_span(p, p->tensors[i].item->bytes, p->tensors[i].item->count);
    }
    return s;
}

/* A file has a name once, and the parts of a tensor stand for one that is in none of them. */
static enum tb_status refuse_parts(const struct planning *p)
{
    for (uint32_t i = 1; i < p->tensor_count; i++)
        if (by_name_and_shard(&p->tensors[i - 1], &p->tensors[i]) == 0)
            return tb_bundle_refuse(
                p->error, TB_BAD_FILE,
                "tensor \"%.200s\" stands in several boxes, for readers of slices: files are made of "
                "whole tensors",
                p->tensors[i].item->name);
    return TB_OK;
}

static enum tb_status plan_all(struct planning *p, const struct tb_item *items, uint32_t count)
{
    enum tb_status s = TB_OK;
    for (uint32_t i = 0; i < count; i++)
        if (!items[i].is_blob) p->tensors[p->tensor_count++].item = &items[i];
    if (p->tensor_count > 0) qsort(p->tensors, p->tensor_count, sizeof *p->tensors, by_name_and_shard);
    TB_ASSERT(p->tensor_count <= count);
    s = refuse_parts(p);
    for (uint32_t i = 0; i < count && s == TB_OK; i++)
        if (items[i].is_blob) s = plan_blob(p, &items[i]);
    for (uint32_t i = 0; i < p->tensor_count && s == TB_OK; i++)
        if (!p->tensors[i].used) s = plan_made_file(p, p->tensors[i].item->shard_index);
    return s;
}

enum tb_status tb_unbundle_plan(const struct tb_item *items, uint32_t count, struct tb_unbundle *plan_out,
                                struct tb_bundle_error *error_out)
{
    struct tb_unbundle plan = {0};
    struct planning p = {.plan = &plan, .error = error_out};
    p.tensors = tb_calloc(count + 1u, sizeof *p.tensors);
    if (p.tensors == NULL) return tb_bundle_no_memory(error_out);
    const enum tb_status s = plan_all(&p, items, count);
    tb_free(p.tensors);
    if (s != TB_OK) {
        tb_unbundle_fini(&plan);
        return s;
    }
    *plan_out = plan;
    return TB_OK;
}

void tb_unbundle_fini(struct tb_unbundle *plan)
{
    for (uint32_t i = 0; i < plan->file_count; i++) {
        tb_free(plan->files[i].made_name);
        tb_free(plan->files[i].made_header);
    }
    tb_free(plan->files);
    tb_free(plan->spans);
    memset(plan, 0, sizeof *plan);
}

/* ---- writing ---- */

struct writing {
    const char *folder;
    int root; /* the folder */
    tb_unbundle_moved moved;
    void *user;
    struct tb_bundle_error *error;
};

static enum tb_status failed(const struct writing *w, const char *name, const char *what)
{
    const int why = errno;
    (void)tb_bundle_refuse(w->error, TB_SITE_IO, "%.200s/%.150s: %s: %s", w->folder, name, what,
                           strerror(why));
    w->error->os_error = why;
    return TB_SITE_IO;
}

static enum tb_status write_span(const struct writing *w, int fd, const char *name,
                                 const struct tb_unbundle_span *span, uint64_t at)
{
    const char *from = span->bytes;
    uint64_t left = span->count;
    while (left > 0) {
        const ssize_t wrote =
            tb_sys_pwrite(fd, from, left < WRITE_BYTES_MAX ? left : WRITE_BYTES_MAX, (off_t)at);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return failed(w, name, "cannot be written");
        TB_ASSERT((uint64_t)wrote <= left);
        from += wrote;
        at += (uint64_t)wrote;
        left -= (uint64_t)wrote;
        if (w->moved != NULL && !w->moved(w->user, (uint64_t)wrote))
            return tb_bundle_refuse(w->error, TB_CANCELLED, "interrupted");
    }
    return TB_OK;
}

/* Opens the folder of `name` below the root, making what is missing; no link on the way is
 * followed. *base_out: its last part. */
static int open_parent(const struct writing *w, const char *name, const char **base_out)
{
    int at = dup(w->root);
    const char *slash = NULL;
    while (at >= 0 && (slash = strchr(name, '/')) != NULL) {
        char part[TB_BLOB_NAME_MAX + 1];
        TB_ASSERT(slash > name && (size_t)(slash - name) < sizeof part); /* tb_bundle_name_valid */
        memcpy(part, name, (size_t)(slash - name));
        part[slash - name] = '\0';
        const bool made = mkdirat(at, part, 0755) == 0;
        /* A new folder is durable once the one that it stands in is. */
        if (made ? tb_sys_fsync(at) != 0 : errno != EEXIST) {
            (void)close(at);
            return -1;
        }
        const int next = openat(at, part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        (void)close(at);
        at = next;
        name = slash + 1;
    }
    *base_out = name;
    return at;
}

static enum tb_status put_in_place(const struct writing *w, const char *name)
{
    const char *base = NULL;
    const int parent = open_parent(w, name, &base);
    if (parent < 0) return failed(w, name, "its folder cannot be made");
    enum tb_status s = TB_OK;
    if (renameat(w->root, TB_UNBUNDLE_PART, parent, base) != 0)
        s = failed(w, name, "cannot be renamed");
    else if (tb_sys_fsync(parent) != 0)
        s = failed(w, name, "its folder cannot be synced");
    (void)close(parent);
    return s;
}

static enum tb_status write_file(const struct writing *w, const char *name,
                                 const struct tb_unbundle_span *spans, uint32_t count)
{
    TB_ASSERT(count > 0); /* a file of no bytes has a span, too */

    (void)unlinkat(w->root, TB_UNBUNDLE_PART, 0); /* of a run that was interrupted */
    const int fd =
        openat(w->root, TB_UNBUNDLE_PART, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0) return failed(w, name, "cannot be made");
    enum tb_status s = TB_OK;
    uint64_t at = 0;
    for (uint32_t i = 0; i < count && s == TB_OK; i++) {
        s = write_span(w, fd, name, &spans[i], at);
        at += spans[i].count;
    }
    if (s == TB_OK && tb_sys_fsync(fd) != 0) s = failed(w, name, "cannot be synced");
    if (close(fd) != 0 && s == TB_OK) s = failed(w, name, "cannot be closed");
    if (s == TB_OK) s = put_in_place(w, name);
    if (s != TB_OK) (void)unlinkat(w->root, TB_UNBUNDLE_PART, 0);
    return s;
}

static enum tb_status write_all(struct writing *w, const struct tb_unbundle *plan, const char *marker)
{
    enum tb_status s = TB_OK;
    TB_ASSERT(plan->file_count == 0 ||
              plan->files[plan->file_count - 1].first_span + plan->files[plan->file_count - 1].span_count ==
                  plan->span_count);
    for (uint32_t i = 0; i < plan->file_count && s == TB_OK; i++)
        s = write_file(w, plan->files[i].name, plan->spans + plan->files[i].first_span,
                       plan->files[i].span_count);
    w->moved = NULL;
    const struct tb_unbundle_span text = {marker, strlen(marker)};
    return s == TB_OK ? write_file(w, TB_BUNDLE_MARKER, &text, 1) : s;
}

enum tb_status tb_unbundle_write(const struct tb_unbundle *plan, const char *folder, const char *marker,
                                 tb_unbundle_moved moved, void *user, struct tb_bundle_error *error_out)
{
    struct writing w = {.folder = folder, .moved = moved, .user = user, .error = error_out};
    const bool made = mkdir(folder, 0755) == 0;
    if (!made && errno != EEXIST) return failed(&w, "", "cannot be made");
    w.root = tb_sys_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    enum tb_status s = TB_OK;
    if (w.root < 0)
        s = failed(&w, "", "cannot be opened");
    else
        s = write_all(&w, plan, marker);
    if (w.root >= 0) (void)close(w.root);
    if (s != TB_OK && made)
        (void)rmdir(folder); /* where nothing was written; else files without marker stay */
    return s;
}
