/* local_files.c - an index of tensors and files, and reading packed ranges out of it. See
 * local_files.h. */
#include "gateway/disk/local_files.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/tensor.h"
#include "gateway/disk/disk_io.h"
#include "gateway/disk/safetensors.h"

struct local_file {
    char *name; /* inside the folder */
    int fd;
    uint64_t bytes;
    struct tb_safetensors parsed; /* no tensors for other files */
};

struct local_tensor {
    const struct tb_safetensors_tensor *tensor;
    uint32_t file;
};

struct tb_local_files {
    struct local_file *files; /* by name, once all are known */
    uint32_t file_count, passed_over;
    struct local_tensor *tensors; /* by name */
    uint32_t tensor_count;
    uint64_t tensor_bytes;
    char *error;                                 /* while it is opened */
    char passed_why[TB_SAFETENSORS_ERROR_BYTES]; /* of the first one */
};

__attribute__((format(printf, 3, 4))) static enum tb_status refuse(struct tb_local_files *l,
                                                                   enum tb_status status, const char *format,
                                                                   ...)
{
    TB_ASSERT(l->error != NULL && status != TB_OK); /* while it is opened */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(l->error, TB_LOCAL_ERROR_BYTES, format, arguments);
    va_end(arguments);
    return status;
}

static enum tb_status no_memory(struct tb_local_files *l)
{
    return refuse(l, TB_SITE_NOMEM, "no memory for the list of files");
}

/* ---- one file ---- */

static bool is_safetensors(const char *name)
{
    static const char end[] = ".safetensors";
    const size_t length = strlen(name);
    return length > sizeof end - 1 && strcmp(name + length - (sizeof end - 1), end) == 0;
}

/* The file's header, believed as far as the header alone can be: a file that is cut short still
 * has its first tensors. */
static enum tb_status parse_header(struct local_file *f, int fd, struct tb_safetensors_error *why)
{
    uint8_t prefix[TB_SAFETENSORS_PREFIX_BYTES] = {0};
    uint64_t header_bytes = 0;
    if (f->bytes >= sizeof prefix && !tb_disk_read(fd, 0, sizeof prefix, prefix)) {
        (void)snprintf(why->text, sizeof why->text, "%.300s: cannot be read", f->name);
        return TB_BAD_FILE;
    }
    enum tb_status s = tb_safetensors_header_bytes(f->name, prefix, f->bytes, &header_bytes, why);
    if (s != TB_OK) return s;
    uint8_t *header = tb_malloc(header_bytes);
    if (header == NULL) return TB_SITE_NOMEM;
    if (tb_disk_read(fd, 0, header_bytes, header)) {
        s = tb_safetensors_parse(f->name, header, header_bytes, TB_SAFETENSORS_BYTES_UNKNOWN, &f->parsed,
                                 why);
    } else {
        (void)snprintf(why->text, sizeof why->text, "%.300s: cannot be read", f->name);
        s = TB_BAD_FILE;
    }
    tb_free(header);
    return s;
}

static enum tb_status look_into(struct tb_local_files *l, struct local_file *f)
{
    struct tb_safetensors_error why = {""};
    const enum tb_status s = parse_header(f, f->fd, &why);
    if (s == TB_OK) {
        l->tensor_count += f->parsed.tensor_count;
        l->tensor_bytes += f->parsed.data_bytes;
        return TB_OK;
    }
    if (s == TB_SITE_NOMEM) return no_memory(l);
    if (l->passed_over++ == 0) memcpy(l->passed_why, why.text, sizeof why.text);
    return TB_OK;
}

/* A descriptor of anything but a regular file is passed over, and closed with the list. */
static enum tb_status add_file(struct tb_local_files *l, struct tb_given_file *given)
{
    struct stat st;
    if (fstat(given->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (l->passed_over++ == 0)
            (void)snprintf(l->passed_why, sizeof l->passed_why, "%.300s: not a file", given->name);
        return TB_OK;
    }
    struct local_file *f = &l->files[l->file_count++];
    *f = (struct local_file){.name = given->name, .fd = given->fd, .bytes = (uint64_t)st.st_size};
    *given = (struct tb_given_file){.fd = -1};
    return is_safetensors(f->name) ? look_into(l, f) : TB_OK;
}

/* ---- the index ---- */

static int by_file_name(const void *left, const void *right)
{
    return strcmp(((const struct local_file *)left)->name, ((const struct local_file *)right)->name);
}

static int by_tensor_name(const void *left, const void *right)
{
    return strcmp(((const struct local_tensor *)left)->tensor->name,
                  ((const struct local_tensor *)right)->tensor->name);
}

static int by_tensor_and_file(const void *left, const void *right)
{
    const struct local_tensor *a = left, *b = right;
    const int names = by_tensor_name(a, b);
    return names != 0 ? names : (a->file > b->file) - (a->file < b->file);
}

static size_t folder_of(const char *name)
{
    const char *slash = strrchr(name, '/');
    return slash == NULL ? 0 : (size_t)(slash + 1 - name);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Some file ends so, in the folder of `beside`, or in any (NULL). */
static bool has_file(const struct tb_local_files *l, const char *end, const char *beside)
{
    const size_t folder = beside == NULL ? 0 : folder_of(beside);
    for (uint32_t i = 0; i < l->file_count; i++)
        if (ends_with(l->files[i].name, end) &&
            (beside == NULL ||
             (folder_of(l->files[i].name) == folder && memcmp(l->files[i].name, beside, folder) == 0)))
            return true;
    return false;
}

/* Folders of several versions, which subscribe wrote, or that a person put together. Components of
 * one version, and an overlay with its index, are named by their files (file_names.h). */
static bool ambiguous(const struct tb_local_files *l, const char *a, const char *b)
{
    const size_t folder = folder_of(a);
    const bool one_folder = folder == folder_of(b) && memcmp(a, b, folder) == 0;
    return one_folder ? !has_file(l, ".safetensors.index.json", a) : has_file(l, "/STABLE", NULL);
}

static enum tb_status check_unique(struct tb_local_files *l)
{
    for (uint32_t i = 1; i < l->tensor_count; i++)
        if (strcmp(l->tensors[i - 1].tensor->name, l->tensors[i].tensor->name) == 0 &&
            ambiguous(l, l->files[l->tensors[i - 1].file].name, l->files[l->tensors[i].file].name))
            return refuse(l, TB_CONFLICT,
                          "tensor \"%.100s\" is in %.120s and in %.120s: give the folder of one version",
                          l->tensors[i].tensor->name, l->files[l->tensors[i - 1].file].name,
                          l->files[l->tensors[i].file].name);
    return TB_OK;
}

static enum tb_status make_index(struct tb_local_files *l)
{
    uint32_t count = 0;
    l->tensors = tb_calloc((size_t)l->tensor_count + 1, sizeof *l->tensors);
    if (l->tensors == NULL) return no_memory(l);
    if (l->file_count > 0) qsort(l->files, l->file_count, sizeof *l->files, by_file_name);
    for (uint32_t i = 0; i < l->file_count; i++)
        for (uint32_t t = 0; t < l->files[i].parsed.tensor_count; t++)
            l->tensors[count++] = (struct local_tensor){&l->files[i].parsed.tensors[t], i};
    TB_ASSERT(count == l->tensor_count);
    if (count > 0) qsort(l->tensors, count, sizeof *l->tensors, by_tensor_and_file);
    return check_unique(l);
}

static enum tb_status fill(struct tb_local_files *l, struct tb_given_files *given, const _Atomic bool *stop)
{
    enum tb_status s = TB_OK;
    l->files = tb_calloc((size_t)given->count + 1, sizeof *l->files);
    if (l->files == NULL) return no_memory(l);
    for (uint32_t i = 0; i < given->count && s == TB_OK; i++)
        s = stop != NULL && atomic_load(stop) ? refuse(l, TB_CANCELLED, "cancelled")
                                              : add_file(l, &given->files[i]);
    if (s == TB_OK) s = make_index(l);
    if (s != TB_OK) return s;
    if (l->tensor_count == 0 && l->passed_over > 0) return refuse(l, TB_BAD_FILE, "%.400s", l->passed_why);
    return l->file_count > 0 ? TB_OK : refuse(l, TB_NOT_FOUND, "no file was given");
}

enum tb_status tb_local_open(struct tb_given_files *given, const _Atomic bool *stop,
                             struct tb_local_files **files_out, char error_out[TB_LOCAL_ERROR_BYTES])
{
    enum tb_status s = TB_SITE_NOMEM;
    struct tb_local_files *l = tb_calloc(1, sizeof *l);
    if (l == NULL) {
        (void)snprintf(error_out, TB_LOCAL_ERROR_BYTES, "no memory for the list of files");
    } else {
        l->error = error_out;
        s = fill(l, given, stop);
    }
    tb_given_close(given);
    if (s != TB_OK) {
        tb_local_close(l);
        return s;
    }
    l->error = NULL;
    *files_out = l;
    return TB_OK;
}

void tb_local_close(struct tb_local_files *l)
{
    if (l == NULL) return;
    for (uint32_t i = 0; i < l->file_count; i++) {
        tb_safetensors_fini(&l->files[i].parsed);
        tb_free(l->files[i].name);
        (void)close(l->files[i].fd);
    }
    tb_free(l->files);
    tb_free(l->tensors);
    tb_free(l);
}

void tb_local_told(const struct tb_local_files *l, struct tb_local_told *told_out)
{
    *told_out = (struct tb_local_told){l->file_count, l->passed_over, l->tensor_count, l->tensor_bytes};
}

/* ---- reading ---- */

static bool file_read(struct tb_local_files *l, uint32_t file, uint64_t at, uint64_t count, uint8_t *out)
{
    TB_ASSERT(file < l->file_count);
    return tb_disk_read(l->files[file].fd, at, count, out);
}

static const struct local_tensor *tensor_named(const struct tb_local_files *l, const char *name)
{
    const struct tb_safetensors_tensor wanted = {.name = name};
    const struct local_tensor key = {.tensor = &wanted};
    return l->tensor_count > 0
               ? bsearch(&key, l->tensors, l->tensor_count, sizeof *l->tensors, by_tensor_name)
               : NULL;
}

/* FILE:TENSOR. */
static const struct local_tensor *tensor_of_file(const struct tb_local_files *l, const char *name)
{
    for (const char *colon = strchr(name, ':'); colon != NULL; colon = strchr(colon + 1, ':')) {
        const size_t length = (size_t)(colon - name);
        const struct local_tensor *t = tensor_named(l, colon + 1);
        while (t != NULL && t > l->tensors && by_tensor_name(t - 1, t) == 0)
            t--;
        for (; t != NULL && t < l->tensors + l->tensor_count && strcmp(t->tensor->name, colon + 1) == 0; t++)
            if (strlen(l->files[t->file].name) == length && memcmp(l->files[t->file].name, name, length) == 0)
                return t;
    }
    return NULL;
}

/* Of several that have the name, any: digests tell whether it is the right one. */
static const struct local_tensor *find_tensor(const struct tb_local_files *l, const struct tb_tensor *t)
{
    const struct local_tensor *found = tensor_named(l, t->name);
    if (found == NULL) found = tensor_of_file(l, t->name);
    if (found == NULL || found->tensor->rank != t->rank) return NULL;
    const struct tb_tensor dtype = {.dtype = found->tensor->dtype, .other = found->tensor->other};
    if (!tb_tensor_dtype_equal(&dtype, t)) return NULL;
    return memcmp(found->tensor->shape, t->full, t->rank * sizeof *t->full) == 0 ? found : NULL;
}

/* A box inside a full tensor: elements that follow one another in both, and where a run of them
 * begins in the full one. */
struct box {
    const struct tb_tensor *tensor;
    uint32_t outer; /* axes before those that a run covers */
    uint64_t run;   /* elements */
};

static struct box box_of(const struct tb_tensor *t)
{
    struct box b = {t, t->rank, 1};
    TB_ASSERT(t->rank <= TB_RANK_MAX);
    while (b.outer > 0) {
        b.outer--;
        b.run *= t->box_count[b.outer];
        if (t->box_count[b.outer] != t->full[b.outer]) break;
    }
    return b;
}

static uint64_t run_begins(const struct box *b, uint64_t run)
{
    const struct tb_tensor *t = b->tensor;
    uint64_t at = 0, stride = 1;
    for (uint32_t axis = t->rank; axis-- > 0;) {
        uint64_t place = t->box_first[axis];
        if (axis < b->outer) {
            place += run % t->box_count[axis];
            run /= t->box_count[axis];
        }
        at += place * stride;
        stride *= t->full[axis];
    }
    return at;
}

/* Bytes [from, from + count) of the tensor's box. */
static bool tensor_read(struct tb_local_files *l, const struct tb_tensor *t, uint64_t from, uint64_t count,
                        uint8_t *out)
{
    const struct local_tensor *local = find_tensor(l, t);
    if (local == NULL) return false;
    const struct box b = box_of(t);
    const uint64_t bits = tb_tensor_bits(t); /* a box begins and ends on whole bytes (layout.h) */
    const uint64_t run_bytes = (b.run * bits + 7) / 8;
    TB_ASSERT(run_bytes > 0 || count == 0);
    TB_ASSERT(from <= t->bytes && count <= t->bytes - from);
    const uint64_t first = l->files[local->file].parsed.header_bytes + local->tensor->begin;
    while (count > 0) {
        const uint64_t inside = from % run_bytes;
        const uint64_t piece = run_bytes - inside < count ? run_bytes - inside : count;
        const uint64_t at = first + run_begins(&b, from / run_bytes) * bits / 8 + inside;
        if (!file_read(l, local->file, at, piece, out)) return false;
        out += piece;
        from += piece;
        count -= piece;
    }
    return true;
}

static bool tensors_read(struct tb_local_files *l, const struct tb_layout *layout, struct tb_chunk chunk,
                         uint8_t *out)
{
    uint32_t low = 0, high = layout->tensor_count; /* the first tensor that ends behind the chunk's begin */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (layout->tensors[middle].offset + layout->tensors[middle].bytes > chunk.offset)
            high = middle;
        else
            low = middle + 1;
    }
    uint64_t at = chunk.offset;
    const uint64_t end = chunk.offset + chunk.bytes;
    for (uint32_t i = low; i < layout->tensor_count && at < end; i++) {
        const struct tb_tensor *t = &layout->tensors[i];
        if (t->bytes == 0) continue;
        const uint64_t here = (t->offset + t->bytes < end ? t->offset + t->bytes : end) - at;
        TB_ASSERT(t->offset <= at); /* the packed tensors leave no gap */
        if (!tensor_read(l, t, at - t->offset, here, out)) return false;
        out += here;
        at += here;
    }
    return at == end;
}

static const struct local_file *find_file(const struct tb_local_files *l, const char *blob)
{
    const size_t prefix = strlen(TB_LOCAL_HEADER_PREFIX);
    const bool header = strncmp(blob, TB_LOCAL_HEADER_PREFIX, prefix) == 0;
    const struct local_file key = {.name = (char *)(uintptr_t)(header ? blob + prefix : blob)};
    return l->file_count > 0 ? bsearch(&key, l->files, l->file_count, sizeof *l->files, by_file_name) : NULL;
}

static bool blobs_read(struct tb_local_files *l, const struct tb_manifest *m, struct tb_chunk chunk,
                       uint8_t *out)
{
    uint64_t at = chunk.offset;
    const uint64_t end = chunk.offset + chunk.bytes;
    for (uint32_t i = 0; i < m->blob_count && at < end; i++) {
        const struct tb_blob *blob = &m->blobs[i];
        if (blob->offset + blob->bytes <= at) continue;
        const struct local_file *f = find_file(l, blob->name);
        const uint64_t here = (blob->offset + blob->bytes < end ? blob->offset + blob->bytes : end) - at;
        TB_ASSERT(blob->offset <= at);
        if (f == NULL || !file_read(l, (uint32_t)(f - l->files), at - blob->offset, here, out)) return false;
        out += here;
        at += here;
    }
    return at == end;
}

bool tb_local_read(struct tb_local_files *l, const struct tb_manifest *m, uint32_t k, uint8_t *out)
{
    TB_ASSERT(k < m->chunk_count);
    const struct tb_chunk chunk = m->chunks[k];
    return chunk.offset < m->layout.bytes ? tensors_read(l, &m->layout, chunk, out)
                                          : blobs_read(l, m, chunk, out);
}
