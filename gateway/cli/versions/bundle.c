/* bundle.c - from files to tensors and blobs. See bundle.h. */
#include "gateway/cli/versions/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/blob_name.h"
#include "base/layout/manifest.h"
#include "base/system_calls.h"
#include "gateway/cli/path_status.h"
#include "gateway/cli/versions/bundle_names.h"
#include "gateway/disk/disk_io.h"
#include "gateway/disk/file_names.h"
#include "gateway/disk/folder_walk.h"

struct opening {
    struct tb_bundle *bundle;
    const char *exclude;
    const char *path; /* that is walked */
    bool in_folder;   /* it is one */
    struct tb_bundle_error *error;
};

enum tb_status tb_bundle_refuse(struct tb_bundle_error *error, enum tb_status status, const char *format, ...)
{
    TB_ASSERT(status != TB_OK); /* or the caller would go on */
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    error->os_error = 0;
    return status;
}

enum tb_status tb_bundle_no_memory(struct tb_bundle_error *error)
{
    return tb_bundle_refuse(error, TB_SITE_NOMEM, "no memory for the list of files");
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text);
    const size_t tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

bool tb_bundle_name_valid(const char *name)
{
    return tb_blob_file_name_valid(name);
}

static int64_t time_of(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* ---- one file ---- */

static enum tb_status map_file(struct opening *o, struct tb_bundle_file *f, int fd)
{
    TB_ASSERT(f->bytes == NULL && f->count == 0);
    struct stat st;
    if (fstat(fd, &st) != 0)
        return tb_bundle_refuse(o->error, TB_SITE_IO, "%.300s: %s", f->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return tb_bundle_refuse(o->error, TB_BAD_FILE, "%.300s: neither a file nor a folder", f->path);
    f->changed_ns = time_of(&st);
    f->device = (uint64_t)st.st_dev;
    f->inode = (uint64_t)st.st_ino;
    if (st.st_size == 0) return TB_OK;
    void *bytes = tb_sys_mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED)
        return tb_bundle_refuse(o->error, TB_SITE_IO, "%.300s: cannot be mapped: %s", f->path,
                                strerror(errno));
    f->bytes = bytes;
    f->count = (uint64_t)st.st_size;
    return TB_OK;
}

/* A header that is parsed is read into memory, and not mapped: the file may be cut short at any
 * time. */
static enum tb_status read_head(struct opening *o, struct tb_bundle_file *f, int fd, uint64_t bytes)
{
    TB_ASSERT(f->head == NULL && bytes <= f->count);
    f->head = tb_malloc(bytes + 1);
    if (f->head == NULL) return tb_bundle_no_memory(o->error);
    if (tb_disk_read(fd, 0, bytes, f->head)) return TB_OK;
    return tb_bundle_refuse(o->error, TB_SITE_IO, "%.300s: cannot be read: %s", f->path,
                            errno == 0 ? "it was cut short meanwhile" : strerror(errno));
}

static enum tb_status look_into_safetensors(struct opening *o, struct tb_bundle_file *f, int fd)
{
    uint8_t prefix[TB_SAFETENSORS_PREFIX_BYTES] = {0};
    uint64_t header_bytes = 0;
    struct tb_safetensors_error error;
    if (f->count >= sizeof prefix && !tb_disk_read(fd, 0, sizeof prefix, prefix))
        return tb_bundle_refuse(o->error, TB_SITE_IO, "%.300s: cannot be read", f->path);
    enum tb_status s = tb_safetensors_header_bytes(f->path, prefix, f->count, &header_bytes, &error);
    if (s != TB_OK) return tb_bundle_refuse(o->error, s, "%s", error.text);
    s = read_head(o, f, fd, header_bytes);
    if (s != TB_OK) return s;
    s = tb_safetensors_parse(f->path, f->head, header_bytes, f->count, &f->parsed, &error);
    return s == TB_OK ? TB_OK : tb_bundle_refuse(o->error, s, "%s", error.text);
}

static enum tb_status look_into(struct opening *o, struct tb_bundle_file *f, int fd)
{
    f->is_safetensors = ends_with(f->name, ".safetensors");
    if (f->is_safetensors) return look_into_safetensors(o, f, fd);
    if (f->count > TB_BLOB_BYTES_MAX)
        return tb_bundle_refuse(
            o->error, TB_TOO_LARGE,
            "%.300s: %llu bytes; other files than safetensors have at most %llu (--exclude leaves it out)",
            f->path, (unsigned long long)f->count, (unsigned long long)TB_BLOB_BYTES_MAX);
    return ends_with(f->name, TB_BUNDLE_INDEX) ? read_head(o, f, fd, f->count) : TB_OK;
}

static enum tb_status grow_files(struct opening *o)
{
    TB_ASSERT(o->bundle->file_count <= o->bundle->file_cap);
    struct tb_bundle *b = o->bundle;
    if (b->file_count < b->file_cap) return TB_OK;
    const uint32_t cap = b->file_cap == 0 ? 16 : b->file_cap * 2;
    void *larger = tb_realloc(b->files, cap * sizeof *b->files);
    if (larger == NULL) return tb_bundle_no_memory(o->error);
    b->files = larger;
    b->file_cap = cap;
    return TB_OK;
}

static enum tb_status add_file(struct opening *o, const char *path, const char *name, int fd)
{
    struct tb_bundle *b = o->bundle;
    if (!tb_bundle_name_valid(name))
        return tb_bundle_refuse(
            o->error, TB_BAD_FILE,
            "%.200s: the name \"%.100s\" cannot travel (at most %d bytes, no control characters, "
            "not \"%s\" or \"%s...\")",
            path, name, TB_BLOB_NAME_MAX, TB_BUNDLE_MARKER, TB_BUNDLE_PRIVATE);
    if (b->file_count >= TB_BLOBS_MAX)
        return tb_bundle_refuse(o->error, TB_TOO_LARGE, "%.300s: more than %d files", path, TB_BLOBS_MAX);
    for (uint32_t i = 0; i < b->file_count; i++)
        if (strcmp(b->files[i].name, name) == 0)
            return tb_bundle_refuse(o->error, TB_CONFLICT, "%.200s and %.200s would both be \"%.80s\"",
                                    b->files[i].path, path, name);
    enum tb_status s = grow_files(o);
    if (s != TB_OK) return s;
    TB_ASSERT(b->files != NULL);
    TB_ASSERT(b->file_count < b->file_cap);
    /* From here on the bundle owns it, and close lets go of whatever was reached. */
    struct tb_bundle_file *f = &b->files[b->file_count++];
    *f = (struct tb_bundle_file){.name = tb_strdup(name), .path = tb_strdup(path)};
    if (f->name == NULL || f->path == NULL) return tb_bundle_no_memory(o->error);
    s = map_file(o, f, fd);
    if (s == TB_OK) s = look_into(o, f, fd);
    b->bytes += f->count;
    return s;
}

/* ---- folders ---- */

static bool leaves_out(void *user, const char *name, const char *entry)
{
    const struct opening *o = user;
    return o->exclude != NULL && o->in_folder &&
           (fnmatch(o->exclude, name, 0) == 0 || fnmatch(o->exclude, entry, 0) == 0);
}

/* A file that was given has its own path; one of a folder is below it. */
static enum tb_status on_file(void *user, const char *name, int fd, const struct stat *st)
{
    struct opening *o = user;
    char path[4096];
    (void)st;
    const bool fits = snprintf(path, sizeof path, "%s%s%s", o->path, o->in_folder ? "/" : "",
                               o->in_folder ? name : "") < (int)sizeof path;
    const enum tb_status s =
        fits ? add_file(o, path, name, fd)
             : tb_bundle_refuse(o->error, TB_BAD_FILE, "%.200s/%.200s: too long", o->path, name);
    (void)close(fd);
    return s;
}

static enum tb_status add_path(struct opening *o, const char *path, const char *links)
{
    struct stat st;
    const struct tb_walk walk = {.path = path,
                                 .links = links,
                                 .depth_max = TB_BUNDLE_DEPTH_MAX - 1, /* that is counted with the root */
                                 .leaves_out = leaves_out,
                                 .on_file = on_file,
                                 .user = o};
    o->path = path;
    o->in_folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return tb_folder_walk(&walk, o->error->text);
}

/* ---- tensors and blobs ---- */

static enum tb_status add_blob(struct opening *o, const struct tb_bundle_file *f)
{
    struct tb_bundle *b = o->bundle;
    struct tb_blob_desc *blob = &b->blobs[b->blob_count];
    TB_ASSERT(b->blob_count < 2 * b->file_count); /* as many as fill() has room for */
    *blob = (struct tb_blob_desc){
        .name = f->name, .bytes = f->head != NULL ? f->head : f->bytes, .count = f->count};
    if (blob->bytes == NULL) blob->bytes = ""; /* an empty file */
    if (f->is_safetensors) {
        char name[sizeof TB_BUNDLE_HEADER_PREFIX + TB_BLOB_NAME_MAX];
        (void)snprintf(name, sizeof name, "%s%s", TB_BUNDLE_HEADER_PREFIX, f->name);
        if (!tb_blob_name_valid(name))
            return tb_bundle_refuse(o->error, TB_BAD_FILE,
                                    "%.300s: the name is too long for a safetensors file", f->path);
        b->blob_names[b->blob_count] = tb_strdup(name);
        if (b->blob_names[b->blob_count] == NULL) return tb_bundle_no_memory(o->error);
        blob->name = b->blob_names[b->blob_count];
        blob->count = f->parsed.header_bytes;
    }
    b->blob_count++;
    return TB_OK;
}

static void add_tensors(struct tb_bundle *b, const struct tb_bundle_file *f)
{
    TB_ASSERT(f->parsed.tensor_count == 0 || f->is_safetensors);
    for (uint32_t i = 0; i < f->parsed.tensor_count; i++) {
        const struct tb_safetensors_tensor *t = &f->parsed.tensors[i];
        b->tensors[b->tensor_count++] = (struct tb_tensor_desc){
            .name = t->name,
            .dtype = t->dtype_text,
            .rank = t->rank,
            .shape = t->shape,
            /* Only read: a published registration is never written. */
            .memory = (void *)(uintptr_t)(f->bytes + f->parsed.header_bytes + t->begin),
        };
    }
}

static enum tb_status fill(struct opening *o)
{
    struct tb_bundle *b = o->bundle;
    uint64_t tensors = 0;
    for (uint32_t f = 0; f < b->file_count; f++)
        tensors += b->files[f].parsed.tensor_count;
    if (tensors > TB_TENSORS_MAX)
        return tb_bundle_refuse(o->error, TB_TOO_LARGE, "%llu tensors; a shard has at most %d",
                                (unsigned long long)tensors, TB_TENSORS_MAX);
    b->tensors = tb_calloc(tensors + 1, sizeof *b->tensors);
    b->tensor_names = tb_calloc(tensors + 1, sizeof *b->tensor_names);
    b->blobs = tb_calloc(2u * b->file_count + 1u, sizeof *b->blobs); /* and a mark of each */
    b->blob_names = tb_calloc(2u * b->file_count + 1u, sizeof *b->blob_names);
    if (b->tensors == NULL || b->tensor_names == NULL || b->blobs == NULL || b->blob_names == NULL)
        return tb_bundle_no_memory(o->error);
    enum tb_status s = TB_OK;
    for (uint32_t f = 0; f < b->file_count && s == TB_OK; f++) {
        add_tensors(b, &b->files[f]);
        s = add_blob(o, &b->files[f]);
    }
    TB_ASSERT(s != TB_OK || (b->tensor_count == tensors && b->blob_count == b->file_count));
    return s;
}

enum tb_status tb_bundle_open(const struct tb_bundle_paths *paths, struct tb_bundle *bundle_out,
                              struct tb_bundle_error *error_out)
{
    TB_ASSERT(paths->count > 0);
    struct tb_bundle bundle = {0};
    struct opening o = {.bundle = &bundle, .exclude = paths->exclude, .error = error_out};
    enum tb_status s = TB_OK;
    error_out->os_error = 0;
    for (uint32_t i = 0; i < paths->count && s == TB_OK; i++)
        s = add_path(&o, paths->paths[i], paths->links);
    if (s == TB_OK && bundle.file_count == 0)
        s = tb_bundle_refuse(error_out, TB_BAD_FILE, "%.300s: no files there", paths->paths[0]);
    if (s == TB_OK) s = fill(&o);
    if (s == TB_OK) s = tb_bundle_name_tensors(&bundle, error_out);
    if (s != TB_OK) {
        tb_bundle_close(&bundle);
        return s;
    }
    *bundle_out = bundle;
    return TB_OK;
}

static void close_file(struct tb_bundle_file *f)
{
    if (f->bytes != NULL) (void)munmap((void *)(uintptr_t)f->bytes, f->count);
    tb_safetensors_fini(&f->parsed);
    tb_free(f->head);
    tb_free(f->name);
    tb_free(f->path);
}

/* ---- marks ---- */

#define DIGEST_BYTES ((size_t)4 << 20) /* at a time */

/* The file that was mapped, whatever its name leads to by now. */
static bool same_file(const struct tb_bundle_file *f, const struct stat *st)
{
    return (uint64_t)st->st_dev == f->device && (uint64_t)st->st_ino == f->inode;
}

/* Read, not mapped: it may be cut short meanwhile. */
static enum tb_status digest_file(const struct tb_bundle_file *f, uint8_t *buffer,
                                  struct tb_digest *digest_out, struct tb_bundle_error *error)
{
    struct tb_digest_state state;
    struct stat st;
    bool read = true;
    const int fd = tb_sys_open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return tb_bundle_refuse(error, tb_path_status(errno), "%.300s: %s", f->path, strerror(errno));
    if (fstat(fd, &st) != 0 || !same_file(f, &st)) {
        (void)close(fd);
        return tb_bundle_refuse(error, TB_BAD_FILE, "%.300s was replaced meanwhile", f->path);
    }
    tb_digest_begin(&state);
    for (uint64_t at = 0; at < f->count && read;) {
        const uint64_t step = f->count - at < DIGEST_BYTES ? f->count - at : DIGEST_BYTES;
        read = tb_disk_read(fd, at, step, buffer);
        tb_digest_update(&state, buffer, read ? step : 0);
        at += step;
    }
    *digest_out = tb_digest_end(&state);
    (void)close(fd);
    return read ? TB_OK
                : tb_bundle_refuse(error, TB_SITE_IO, "%.300s: cannot be read, or was cut short", f->path);
}

static enum tb_status add_mark(struct tb_bundle *b, const struct tb_bundle_file *f, uint8_t *buffer,
                               struct tb_bundle_error *error)
{
    struct tb_digest digest;
    char name[TB_BLOB_NAME_MAX + 1];
    const enum tb_status s = digest_file(f, buffer, &digest, error);
    if (s != TB_OK) return s;
    if (b->blob_count == TB_BLOBS_MAX)
        return tb_bundle_refuse(error, TB_TOO_LARGE, "%.300s: more than %d files in one of several shards",
                                f->path, TB_BLOBS_MAX / 2);
    if (!tb_file_mark(&digest, f->name, name))
        return tb_bundle_refuse(error, TB_BAD_FILE, "%.300s: the name is too long for one of several shards",
                                f->path);
    char *made = tb_strdup(name);
    if (made == NULL) return tb_bundle_no_memory(error);
    TB_ASSERT(b->blob_count < 2 * b->file_count);
    b->blob_names[b->blob_count] = made;
    b->blobs[b->blob_count++] = (struct tb_blob_desc){.name = made, .bytes = ""};
    return TB_OK;
}

enum tb_status tb_bundle_mark(struct tb_bundle *bundle, struct tb_bundle_error *error_out)
{
    TB_ASSERT(bundle->blob_count == bundle->file_count); /* not marked yet */
    uint8_t *buffer = tb_malloc(DIGEST_BYTES);
    if (buffer == NULL) return tb_bundle_no_memory(error_out);
    enum tb_status s = TB_OK;
    for (uint32_t f = 0; f < bundle->file_count && s == TB_OK; f++)
        s = add_mark(bundle, &bundle->files[f], buffer, error_out);
    tb_free(buffer);
    return s;
}

bool tb_bundle_changed(const struct tb_bundle *bundle, struct tb_bundle_error *why_out)
{
    for (uint32_t i = 0; i < bundle->file_count; i++) {
        struct stat st;
        const struct tb_bundle_file *f = &bundle->files[i];
        const bool there = stat(f->path, &st) == 0;
        if (there && (uint64_t)st.st_size == f->count && time_of(&st) == f->changed_ns) continue;
        if (!there)
            (void)snprintf(why_out->text, sizeof why_out->text, "%.300s went away meanwhile", f->path);
        else if ((uint64_t)st.st_size < f->count)
            (void)snprintf(why_out->text, sizeof why_out->text,
                           "%.300s was cut short meanwhile, from %llu to %llu bytes", f->path,
                           (unsigned long long)f->count, (unsigned long long)st.st_size);
        else
            (void)snprintf(why_out->text, sizeof why_out->text, "%.300s was written to meanwhile", f->path);
        return true;
    }
    return false;
}

void tb_bundle_close(struct tb_bundle *bundle)
{
    for (uint32_t f = 0; f < bundle->file_count; f++)
        close_file(&bundle->files[f]);
    for (uint32_t i = 0; i < bundle->blob_count; i++)
        tb_free(bundle->blob_names[i]);
    for (uint32_t i = 0; i < bundle->tensor_count; i++)
        tb_free(bundle->tensor_names[i]);
    tb_free(bundle->tensor_names);
    tb_free(bundle->files);
    tb_free(bundle->tensors);
    tb_free(bundle->blobs);
    tb_free(bundle->blob_names);
    memset(bundle, 0, sizeof *bundle);
}
