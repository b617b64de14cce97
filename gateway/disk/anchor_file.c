/* anchor_file.c - writing and reading an anchor. See anchor_file.h. */
#include "gateway/disk/anchor_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/version_key.h"
#include "base/private_file.h"
#include "base/system_calls.h"
#include "base/system_names.h"
#include "gateway/disk/disk_io.h"

#define MAGIC       "TBANCHR1"
#define FRONT_BYTES 64u
#define ALIGN       4096u
#define PATH_BYTES  4096

static uint64_t aligned(uint64_t at)
{
    return (at + ALIGN - 1) / ALIGN * ALIGN;
}

static enum tb_status fail(char error_out[TB_ANCHOR_ERROR_BYTES], enum tb_status status, const char *path,
                           const char *why)
{
    TB_ASSERT(status != TB_OK);
    (void)snprintf(error_out, TB_ANCHOR_ERROR_BYTES, "%.300s: %s", path, why);
    return status;
}

/* ---- the head ---- */

static uint64_t key_bytes(const struct tb_version_key *key)
{
    uint8_t unused[512]; /* a key has at most TB_NAME_BYTES_MAX and some 90 bytes */
    struct tb_writer w;
    tb_writer_init(&w, unused, sizeof unused);
    tb_version_key_encode(key, &w);
    TB_ASSERT(!w.full);
    return w.used;
}

static uint64_t head_bytes(const struct tb_version_key *key, const struct tb_manifest *const *manifests)
{
    uint64_t bytes = key_bytes(key);
    for (uint32_t s = 0; s < key->shard_count; s++)
        bytes += sizeof(uint32_t) + tb_manifest_head_bytes(manifests[s]) +
                 (uint64_t)manifests[s]->chunk_count * TB_DIGEST_BYTES;
    return bytes;
}

uint64_t tb_anchor_bytes(const struct tb_version_key *version, const struct tb_manifest *const *manifests,
                         const struct tb_disk_key *key)
{
    uint64_t at = FRONT_BYTES + head_bytes(version, manifests);
    for (uint32_t s = 0; s < version->shard_count; s++)
        at = aligned(at) + manifests[s]->bytes;
    return key != NULL ? tb_sealed_bytes(at) : at;
}

static void head_encode(const struct tb_version_key *key, const struct tb_manifest *const *manifests,
                        struct tb_writer *w)
{
    tb_version_key_encode(key, w);
    for (uint32_t s = 0; s < key->shard_count; s++) {
        const struct tb_manifest *m = manifests[s];
        tb_write_u32(w, (uint32_t)tb_manifest_head_bytes(m));
        tb_manifest_head_encode(m, w);
        tb_write_bytes(w, m->digests, (size_t)m->chunk_count * TB_DIGEST_BYTES);
    }
}

/* Where each shard's bytes stand, behind a head of so many bytes. */
static void offsets_fill(struct tb_anchor_file *f, uint64_t head)
{
    uint64_t at = FRONT_BYTES + head;
    TB_ASSERT(f->offsets != NULL && f->manifests != NULL);
    for (uint32_t s = 0; s < f->key.shard_count; s++) {
        f->offsets[s] = aligned(at);
        at = f->offsets[s] + f->manifests[s].bytes;
    }
    f->bytes = at;
}

static enum tb_status tables_new(struct tb_anchor_file *f)
{
    TB_ASSERT(f->manifests == NULL && f->memory == NULL && f->offsets == NULL);
    f->manifests = tb_calloc(f->key.shard_count, sizeof *f->manifests);
    f->memory = tb_calloc(f->key.shard_count, sizeof *f->memory);
    f->offsets = tb_calloc(f->key.shard_count, sizeof *f->offsets);
    return f->manifests != NULL && f->memory != NULL && f->offsets != NULL ? TB_OK : TB_SITE_NOMEM;
}

void tb_anchor_close(struct tb_anchor_file *f)
{
    for (uint32_t s = 0; f->memory != NULL && s < f->key.shard_count; s++)
        tb_free(f->memory[s]);
    tb_free(f->manifests);
    tb_free(f->memory);
    tb_free(f->offsets);
    tb_free(f->path);
    tb_sealed_free(f->sealed);
    if (f->fd >= 0) (void)close(f->fd);
    *f = (struct tb_anchor_file){.fd = -1};
}

/* ---- bytes, in clear or not ---- */

static enum tb_status put(struct tb_anchor_file *f, uint64_t at, const void *bytes, uint64_t count)
{
    if (f->sealed != NULL) return tb_sealed_write(f->sealed, at, bytes, count);
    return tb_disk_write(f->fd, at, bytes, count) ? TB_OK : TB_SITE_IO;
}

static enum tb_status get(struct tb_anchor_file *f, uint64_t at, uint64_t count, void *out)
{
    if (f->sealed != NULL) return tb_sealed_read(f->sealed, at, count, out);
    return tb_disk_read(f->fd, at, count, out) ? TB_OK : TB_SITE_IO;
}

/* ---- writing ---- */

static bool part_path(const struct tb_anchor_file *f, char out[PATH_BYTES])
{
    return snprintf(out, PATH_BYTES, "%s%s", f->path, TB_ANCHOR_PART) < PATH_BYTES;
}

static enum tb_status head_write(struct tb_anchor_file *f, const struct tb_manifest *const *manifests)
{
    const uint64_t bytes = head_bytes(&f->key, manifests);
    uint8_t *memory = tb_calloc(1, FRONT_BYTES + bytes);
    if (memory == NULL) return TB_SITE_NOMEM;
    struct tb_writer w;
    tb_writer_init(&w, memory + FRONT_BYTES, bytes);
    head_encode(&f->key, manifests, &w);
    TB_ASSERT(!w.full && w.used == bytes);
    const struct tb_digest check = tb_digest_of(memory + FRONT_BYTES, bytes);
    tb_writer_init(&w, memory, FRONT_BYTES);
    tb_write_bytes(&w, MAGIC, sizeof MAGIC - 1);
    tb_write_u64(&w, bytes);
    tb_write_bytes(&w, check.bytes, sizeof check.bytes);
    const enum tb_status status = put(f, 0, memory, FRONT_BYTES + bytes);
    const int why = errno;
    tb_free(memory);
    errno = why;
    return status;
}

static enum tb_status create(struct tb_anchor_file *f, const struct tb_manifest *const *manifests,
                             const struct tb_disk_key *key)
{
    char part[PATH_BYTES];
    if (!part_path(f, part)) {
        errno = ENAMETOOLONG;
        return TB_SITE_IO;
    }
    (void)unlink(part); /* left by a kill, or of another user: the new one is ours from the start */
    f->fd = tb_sys_open(part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0) return TB_SITE_IO;
    TB_ASSERT(f->key.shard_count > 0 &&
              f->manifests[0].digests == NULL); /* tables of a file that is written */
    for (uint32_t s = 0; s < f->key.shard_count; s++)
        f->manifests[s].bytes = manifests[s]->bytes; /* all that writing asks of them */
    offsets_fill(f, head_bytes(&f->key, manifests));
    if (key != NULL) {
        const enum tb_status status = tb_sealed_create(f->fd, key, f->bytes, &f->sealed);
        if (status != TB_OK) return status;
    }
    return head_write(f, manifests);
}

enum tb_status tb_anchor_create(const char *path, const struct tb_version_key *version,
                                const struct tb_manifest *const *manifests, const struct tb_disk_key *key,
                                struct tb_anchor_file *file_out, char error_out[TB_ANCHOR_ERROR_BYTES])
{
    struct tb_anchor_file f = {.fd = -1, .path = tb_strdup(path), .key = *version};
    enum tb_status s = f.path != NULL ? tables_new(&f) : TB_SITE_NOMEM;
    if (s != TB_OK) goto fail;
    s = create(&f, manifests, key);
    if (s != TB_OK) goto fail;
    *file_out = f;
    return TB_OK;

fail:;
    const char *why = s == TB_SITE_IO ? strerror(errno) : "no memory";
    s = fail(error_out, s, path, why);
    if (f.fd >= 0)
        tb_anchor_abort(&f);
    else
        tb_anchor_close(&f);
    return s;
}

enum tb_status tb_anchor_write(struct tb_anchor_file *f, uint32_t shard, uint64_t at, const void *bytes,
                               uint64_t count)
{
    TB_ASSERT(shard < f->key.shard_count && count <= f->manifests[shard].bytes);
    TB_ASSERT(at <= f->manifests[shard].bytes - count && f->offsets[shard] + at + count <= f->bytes);
    return put(f, f->offsets[shard] + at, bytes, count);
}

/* Versions are larger than caches: what stays in the page cache is taken from
 * somebody who needs it. */
enum tb_status tb_anchor_flush(struct tb_anchor_file *f)
{
    TB_ASSERT(f->fd >= 0);
    if (tb_sys_fsync(f->fd) != 0) return TB_SITE_IO;
    (void)posix_fadvise(f->fd, 0, 0, POSIX_FADV_DONTNEED);
    return TB_OK;
}

enum tb_status tb_anchor_finish(struct tb_anchor_file *f)
{
    char part[PATH_BYTES];
    TB_ASSERT(f->fd >= 0);
    const bool ended = f->sealed == NULL || tb_sealed_finish(f->sealed) == TB_OK;
    const bool good = ended && part_path(f, part) && tb_anchor_flush(f) == TB_OK &&
                      tb_sys_rename(part, f->path) == 0 && tb_sys_sync_folder(f->path);
    const int why = errno;
    if (good)
        tb_anchor_close(f);
    else
        tb_anchor_abort(f);
    errno = why;
    return good ? TB_OK : TB_SITE_IO;
}

void tb_anchor_abort(struct tb_anchor_file *f)
{
    char part[PATH_BYTES];
    if (part_path(f, part)) (void)unlink(part);
    tb_anchor_close(f);
}

/* ---- reading ---- */

/* One shard's manifest, its digests hashed up to its root. */
static enum tb_status manifest_decode(struct tb_anchor_file *f, uint32_t shard, struct tb_reader *r)
{
    struct tb_manifest *m = &f->manifests[shard];
    TB_ASSERT(shard < f->key.shard_count && f->memory[shard] == NULL);
    const uint32_t bytes = tb_read_u32(r);
    const uint8_t *head = tb_read_span(r, bytes);
    const size_t needed = r->bad ? 0 : tb_manifest_decode_bytes(head, bytes);
    if (needed == 0) return TB_BAD_FILE;
    f->memory[shard] = tb_malloc(needed);
    if (f->memory[shard] == NULL) return TB_SITE_NOMEM;
    if (tb_manifest_head_decode(head, bytes, f->memory[shard], needed, m) != TB_OK) return TB_BAD_FILE;
    const size_t digests = (size_t)m->chunk_count * TB_DIGEST_BYTES;
    const uint8_t *from = tb_read_span(r, digests);
    if (r->bad) return TB_BAD_FILE;
    memcpy(m->digests, from, digests);
    const struct tb_digest root = tb_manifest_root(m);
    return tb_digest_equal(&root, &m->root) ? TB_OK : TB_BAD_FILE;
}

static enum tb_status roots_check(const struct tb_anchor_file *f)
{
    struct tb_digest *roots = tb_calloc(f->key.shard_count, sizeof *roots);
    if (roots == NULL) return TB_SITE_NOMEM;
    for (uint32_t s = 0; s < f->key.shard_count; s++)
        roots[s] = f->manifests[s].root;
    const struct tb_digest root = tb_version_key_root(&f->key, roots);
    tb_free(roots);
    return tb_digest_equal(&root, &f->key.root) ? TB_OK : TB_BAD_FILE;
}

static enum tb_status head_decode(struct tb_anchor_file *f, const uint8_t *head, uint64_t bytes)
{
    struct tb_reader r;
    tb_reader_init(&r, head, bytes);
    if (tb_version_key_decode(&r, &f->key) != TB_OK) {
        f->key.shard_count = 0;
        return TB_BAD_FILE;
    }
    enum tb_status s = tables_new(f);
    for (uint32_t i = 0; s == TB_OK && i < f->key.shard_count; i++)
        s = manifest_decode(f, i, &r);
    if (s != TB_OK) return s;
    return tb_reader_ended(&r) ? roots_check(f) : TB_BAD_FILE;
}

static enum tb_status head_read(struct tb_anchor_file *f, uint64_t file_bytes)
{
    uint8_t front[FRONT_BYTES] = {0};
    if (file_bytes < FRONT_BYTES) return TB_BAD_FILE;
    enum tb_status s = get(f, 0, sizeof front, front);
    if (s != TB_OK) return s;
    struct tb_reader r;
    tb_reader_init(&r, front + sizeof MAGIC - 1, sizeof front - (sizeof MAGIC - 1));
    const uint64_t bytes = tb_read_u64(&r);
    const uint8_t *check = tb_read_span(&r, TB_DIGEST_BYTES);
    if (memcmp(front, MAGIC, sizeof MAGIC - 1) != 0 || bytes > TB_ANCHOR_HEAD_BYTES_MAX ||
        bytes > file_bytes - FRONT_BYTES)
        return TB_BAD_FILE;
    uint8_t *head = tb_malloc(bytes + 1);
    if (head == NULL) return TB_SITE_NOMEM;
    s = get(f, FRONT_BYTES, bytes, head);
    const struct tb_digest digest = tb_digest_of(head, bytes);
    if (s == TB_OK && memcmp(digest.bytes, check, TB_DIGEST_BYTES) != 0) s = TB_BAD_FILE;
    if (s == TB_OK) s = head_decode(f, head, bytes);
    tb_free(head);
    if (s == TB_OK) offsets_fill(f, bytes);
    return s;
}

struct tb_disk_look tb_anchor_look(const char *path, const struct tb_disk_keys *keys)
{
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0) return (struct tb_disk_look){.found = errno == ENOENT ? TB_DISK_NEITHER : TB_DISK_UNREAD};
    const struct tb_disk_look look = tb_disk_look(fd, TB_SEAL_ANCHOR, MAGIC, keys);
    const int error = errno;
    (void)close(fd);
    errno = error;
    return look;
}

/* Which key it is under, and its head. */
static enum tb_status inside_read(struct tb_anchor_file *f, const struct tb_disk_keys *keys,
                                  uint64_t file_bytes, const char **why_out)
{
    const struct tb_disk_look look = tb_disk_look(f->fd, TB_SEAL_ANCHOR, MAGIC, keys);
    *why_out = look.why;
    if (look.found == TB_DISK_UNREAD) return TB_SITE_IO;
    if (look.found == TB_DISK_OTHER) return TB_SITE_CONFIG;
    if (look.found == TB_DISK_NEITHER) return TB_BAD_FILE;
    f->old = look.found == TB_DISK_OLD;
    if (look.key == NULL) return head_read(f, file_bytes);
    const enum tb_status status = tb_sealed_open(f->fd, look.key, &f->sealed);
    return status == TB_OK ? head_read(f, tb_sealed_inside_bytes(f->sealed)) : status;
}

enum tb_status tb_anchor_open(const char *path, const struct tb_disk_keys *keys,
                              struct tb_anchor_file *file_out, char error_out[TB_ANCHOR_ERROR_BYTES])
{
    struct tb_anchor_file f = {.path = tb_strdup(path)};
    char alien[TB_PRIVATE_WHY_BYTES] = "";
    const char *why = NULL;
    struct stat st;
    f.fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    enum tb_status s = f.path == NULL ? TB_SITE_NOMEM : TB_OK;
    if (s == TB_OK && (f.fd < 0 || fstat(f.fd, &st) != 0)) s = errno == ENOENT ? TB_NOT_FOUND : TB_SITE_IO;
    if (s == TB_OK && !tb_private_stat(&st, alien)) s = TB_BAD_FILE;
    if (s == TB_OK) s = inside_read(&f, keys, (uint64_t)st.st_size, &why);
    if (s == TB_OK) {
        *file_out = f;
        return TB_OK;
    }
    if (why == NULL)
        why = alien[0] != '\0'     ? alien
              : s == TB_BAD_FILE   ? "not an anchor, or its head is damaged"
              : s == TB_SITE_NOMEM ? "no memory"
                                   : strerror(errno);
    s = fail(error_out, s, path, why);
    tb_anchor_close(&f);
    return s;
}

enum tb_status tb_anchor_read(struct tb_anchor_file *f, uint32_t shard, uint32_t k, uint8_t *out)
{
    TB_ASSERT(shard < f->key.shard_count && k < f->manifests[shard].chunk_count);
    const struct tb_chunk *c = &f->manifests[shard].chunks[k];
    return get(f, f->offsets[shard] + c->offset, c->bytes, out);
}
