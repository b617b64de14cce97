/* arena_file.c - opening, locking, allocating, mapping; header and record checks. */
#include "gateway/arena/arena_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/huge_pages.h"
#include "base/layout/chunk_cut.h"
#include "base/layout/place.h"
#include "base/log.h"
#include "base/private_file.h"
#include "base/system_calls.h"

#define HEADER_BYTES      4096u
#define ALLOCATE_BYTES    ((uint64_t)1 << 30) /* a multiple of any page */
#define ALLOCATE_LOG_NS   TB_SECONDS(5)
#define HEADER_SLOT_BYTES 512u

static const char magic[8] = "tbarena";

void tb_arena_say(char error_out[TB_ARENA_ERROR_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(error_out, TB_ARENA_ERROR_BYTES, format, args);
    va_end(args);
}

/* ---- the file ---- */

static enum tb_status cannot_open(const char *path, char error_out[TB_ARENA_ERROR_BYTES])
{
    tb_arena_say(error_out, "arena %s: cannot be opened: %s", path, strerror(errno));
    return TB_SITE_IO;
}

/* how: LOCK_EX; LOCK_SH to see whether another process has it. */
static enum tb_status lock_and_look(struct arena_file *f, int how, const char *path,
                                    char error_out[TB_ARENA_ERROR_BYTES])
{
    struct stat st;
    if (flock(f->fd, how | LOCK_NB) != 0) {
        const bool locked = errno == EWOULDBLOCK;
        tb_arena_say(error_out, "arena %s: %s", path,
                     locked ? "another process has it locked; is a second tombolod running?"
                            : strerror(errno));
        return locked ? TB_SITE_LOCKED : TB_SITE_IO;
    }
    if (fstat(f->fd, &st) != 0) {
        tb_arena_say(error_out, "arena %s: fstat: %s", path, strerror(errno));
        return TB_SITE_IO;
    }
    char why[TB_PRIVATE_WHY_BYTES];
    if (!tb_private_file(f->fd, why)) {
        tb_arena_say(error_out, "arena %s: %s", path, why);
        return TB_SITE_CONFIG;
    }
    f->old_bytes = (uint64_t)st.st_size;
    f->fresh = st.st_size == 0;
    return TB_OK;
}

static enum tb_status open_and_lock(struct arena_file *f, const char *path,
                                    char error_out[TB_ARENA_ERROR_BYTES])
{
    f->fd = tb_sys_open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (f->fd < 0) return cannot_open(path, error_out);
    return lock_and_look(f, LOCK_EX, path, error_out);
}

/* The page that sizes are multiples of, and whether the filesystem is in memory. */
static enum tb_status page_of(struct arena_file *f, const char *path, char error_out[TB_ARENA_ERROR_BYTES])
{
    struct statfs fs;
    if (fstatfs(f->fd, &fs) != 0) {
        tb_arena_say(error_out, "arena %s: fstatfs: %s", path, strerror(errno));
        return TB_SITE_IO;
    }
    const bool huge = fs.f_type == HUGETLBFS_MAGIC;
    f->page_bytes = huge ? (uint64_t)fs.f_bsize : TB_EXTENT_GRAIN;
    f->in_memory = huge || fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
    return TB_OK;
}

static void tell_disk(const char *path)
{
    struct tb_log_line line;
    tb_log_begin(&line, TB_LOG_WARN, "arena.not_in_memory");
    tb_log_str(&line, "path", path);
    tb_log_str(&line, "action", "put it on tmpfs or hugetlbfs: here every landed byte is written to a disk");
    tb_log_end(&line);
}

static enum tb_status size_of(struct arena_file *f, const struct tb_arena_options *options,
                              char error_out[TB_ARENA_ERROR_BYTES])
{
    f->bytes = options->bytes - options->bytes % f->page_bytes;
    if (f->bytes >= TB_ARENA_BYTES_MIN && f->bytes <= INT64_MAX) return TB_OK;
    tb_arena_say(error_out, "arena %s: %llu bytes (in pages of %llu) are not between %llu and 2^63",
                 options->path, (unsigned long long)options->bytes, (unsigned long long)f->page_bytes,
                 (unsigned long long)TB_ARENA_BYTES_MIN);
    return TB_SITE_CONFIG;
}

/* For what the file did not have before, which grows for that: fallocate alone would have all
 * of it in small pages. */
static void huge_pages(const struct arena_file *f, uint64_t at, uint64_t bytes)
{
    const bool small = f->in_memory && f->page_bytes == TB_EXTENT_GRAIN;
    if (small && at >= f->old_bytes && ftruncate(f->fd, (off_t)(at + bytes)) == 0)
        tb_huge_fill(f->fd, at, bytes);
}

/* In pieces: a large arena takes minutes of a kernel that clears pages, and says how far it is. */
static int allocate_all(struct arena_file *f, const char *path)
{
    tb_time_ns told_at = tb_clock_now();
    for (uint64_t at = 0, bytes; at < f->bytes; at += bytes) {
        bytes = f->bytes - at < ALLOCATE_BYTES ? f->bytes - at : ALLOCATE_BYTES;
        huge_pages(f, at, bytes);
        if (tb_sys_fallocate(f->fd, 0, (off_t)at, (off_t)bytes) != 0) return errno;
        if (tb_time_since(told_at, tb_clock_now()) < ALLOCATE_LOG_NS) continue;
        told_at = tb_clock_now();
        struct tb_log_line line;
        tb_log_begin(&line, TB_LOG_INFO, "arena.allocating");
        tb_log_str(&line, "path", path);
        tb_log_u64(&line, "allocated_bytes", at + bytes);
        tb_log_u64(&line, "bytes", f->bytes);
        tb_log_end(&line);
    }
    return 0;
}

/* The bytes that the kernel can give to a tmpfs: memory that is free or can be made so, and
 * swap. UINT64_MAX: it does not say. */
static uint64_t memory_left(void)
{
    FILE *meminfo = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t sum = 0;
    unsigned found = 0;
    while (meminfo != NULL && fgets(line, sizeof line, meminfo) != NULL) {
        const bool counts = strncmp(line, "MemAvailable:", 13) == 0 || strncmp(line, "SwapFree:", 9) == 0;
        if (!counts) continue;
        sum += strtoull(strchr(line, ':') + 1, NULL, 10) << 10;
        found++;
    }
    if (meminfo != NULL) fclose(meminfo);
    return found == 2 ? sum : UINT64_MAX;
}

/* P7: a version that cannot fit is refused before it is tried: on the way there others would be
 * killed for want of memory. */
static bool may_fit(const struct arena_file *f)
{
    struct statfs fs;
    struct stat st;
    if (f->page_bytes > TB_EXTENT_GRAIN || fstatfs(f->fd, &fs) != 0 || fstat(f->fd, &st) != 0) return true;
    const uint64_t has = S_ISREG(st.st_mode) ? (uint64_t)st.st_blocks * 512u : 0; /* a folder: not made yet */
    const uint64_t lacks = f->bytes > has ? f->bytes - has : 0;
    if (fs.f_blocks != 0 && lacks > (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize) return false;
    return !f->in_memory || lacks <= memory_left();
}

static enum tb_status no_room(const struct arena_file *f, const char *path,
                              char error_out[TB_ARENA_ERROR_BYTES])
{
    struct statfs fs = {0};
    struct stat st = {0};
    (void)fstatfs(f->fd, &fs);
    (void)fstat(f->fd, &st);
    tb_arena_say(
        error_out,
        "arena %s: wants %llu bytes, has %llu; its filesystem has %llu free, this machine %llu of "
        "memory: make "
        "arena.bytes smaller or the filesystem larger (mount -o remount,size=...)",
        path, (unsigned long long)f->bytes, S_ISREG(st.st_mode) ? (unsigned long long)st.st_blocks * 512u : 0,
        (unsigned long long)fs.f_bavail * (unsigned long long)fs.f_bsize, (unsigned long long)memory_left());
    return TB_SITE_NOMEM;
}

static enum tb_status allocate(struct arena_file *f, const char *path, char error_out[TB_ARENA_ERROR_BYTES])
{
    const int error = may_fit(f) ? allocate_all(f, path) : ENOSPC;
    if (error == 0) return TB_OK;
    /* The pieces that did fit go back: nobody is helped by a full filesystem. */
    if (f->old_bytes < f->bytes && ftruncate(f->fd, (off_t)f->old_bytes) != 0)
        tb_log(TB_LOG_WARN, "arena.not_given_back", "bytes=%llu", (unsigned long long)f->bytes);
    if (error == ENOSPC || error == ENOMEM) return no_room(f, path, error_out);
    tb_arena_say(error_out, "arena %s: cannot allocate %llu bytes: %s", path, (unsigned long long)f->bytes,
                 strerror(error));
    return TB_SITE_IO;
}

static enum tb_status map(struct arena_file *f, const char *path, char error_out[TB_ARENA_ERROR_BYTES])
{
    void *at = tb_huge_map(f->fd, f->bytes);
    if (at == MAP_FAILED) {
        tb_arena_say(error_out, "arena %s: cannot map %llu bytes: %s", path, (unsigned long long)f->bytes,
                     strerror(errno));
        return TB_SITE_IO;
    }
    /* All three are advice, and a kernel that does not take it costs speed or core
     * files, nothing else. */
    (void)madvise(at, f->bytes, MADV_HUGEPAGE);
    (void)madvise(at, f->bytes, MADV_DONTDUMP);
    (void)madvise(at, f->bytes, MADV_DONTFORK);
    f->map = at;
    return TB_OK;
}

enum tb_status tb_arena_file_open(struct arena_file *f, const struct tb_arena_options *options,
                                  char error_out[TB_ARENA_ERROR_BYTES])
{
    *f = (struct arena_file){.fd = -1};
    enum tb_status status = open_and_lock(f, options->path, error_out);
    if (status != TB_OK) goto fail;
    status = page_of(f, options->path, error_out);
    if (status != TB_OK) goto fail;
    if (!f->in_memory) tell_disk(options->path);
    status = size_of(f, options, error_out);
    if (status != TB_OK) goto fail;
    status = allocate(f, options->path, error_out);
    if (status != TB_OK) goto fail;
    status = map(f, options->path, error_out);
    if (status != TB_OK) goto fail;
    return TB_OK;

fail:
    tb_arena_file_close(f);
    return status;
}

/* The file itself, or the folder that it would be made in: f->fd. */
static enum tb_status look_at(struct arena_file *f, const char *path, char error_out[TB_ARENA_ERROR_BYTES])
{
    f->fd = tb_sys_open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
    if (f->fd >= 0) return lock_and_look(f, LOCK_SH, path, error_out);
    if (errno != ENOENT) return cannot_open(path, error_out);
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const size_t bytes = slash == NULL ? 0 : (size_t)(slash - path);
    if (bytes >= sizeof folder) return cannot_open(path, error_out);
    snprintf(folder, sizeof folder, "%.*s", (int)bytes, path);
    if (bytes == 0) snprintf(folder, sizeof folder, slash == NULL ? "." : "/");
    f->fd = tb_sys_open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    f->fresh = true;
    if (f->fd < 0 || faccessat(f->fd, ".", W_OK | X_OK, 0) != 0) return cannot_open(path, error_out);
    return TB_OK;
}

static uint64_t arena_file_data_offset(const struct arena_header *header)
{
    const uint64_t end = HEADER_BYTES + (uint64_t)header->record_count * sizeof(struct arena_record);
    return (end + TB_EXTENT_GRAIN - 1) & ~(TB_EXTENT_GRAIN - 1);
}

static uint64_t tables_bytes(const struct arena_file *f)
{
    const uint64_t tables = arena_file_data_offset(&f->header);
    return (tables + f->page_bytes - 1) / f->page_bytes * f->page_bytes;
}

static bool look_map(struct arena_file *f, uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, f->fd, 0);
    if (at == MAP_FAILED) return false; /* opening says what it is */
    f->map = at;
    return true;
}

static void look_unmap(struct arena_file *f, uint64_t bytes)
{
    munmap(f->map, bytes);
    f->map = NULL;
    f->records = NULL;
}

/* Of a file that is there: a release that reads another format made it, or its tables do not
 * fit. */
static enum tb_status look_inside(struct arena_file *f, const char *path, bool *too_small_out,
                                  char error_out[TB_ARENA_ERROR_BYTES])
{
    if (f->fresh || f->old_bytes < f->page_bytes || !look_map(f, f->page_bytes)) return TB_OK;
    const enum tb_status status = tb_arena_file_load(f, path, error_out);
    look_unmap(f, f->page_bytes);
    if (status == TB_NOT_FOUND) return TB_OK; /* it would begin empty */
    *too_small_out = status != TB_OK && f->header.format == TB_ARENA_FORMAT;
    if (status != TB_OK || f->header.bytes <= f->bytes || tables_bytes(f) > f->old_bytes) return status;
    if (look_map(f, tables_bytes(f))) f->records = (struct arena_record *)(void *)(f->map + HEADER_BYTES);
    return TB_OK;
}

enum tb_status tb_arena_file_look(struct arena_file *f, const struct tb_arena_options *options,
                                  struct tb_arena_look *look_out, char error_out[TB_ARENA_ERROR_BYTES])
{
    *f = (struct arena_file){.fd = -1};
    *look_out = (struct tb_arena_look){.in_memory = true};
    enum tb_status status = look_at(f, options->path, error_out);
    if (status != TB_OK) return status;
    status = page_of(f, options->path, error_out);
    if (status != TB_OK) return status;
    look_out->in_memory = f->in_memory;
    status = size_of(f, options, error_out);
    if (status != TB_OK) return status;
    if (!may_fit(f)) return no_room(f, options->path, error_out);
    return look_inside(f, options->path, &look_out->too_small, error_out);
}

void tb_arena_file_look_end(struct arena_file *f)
{
    if (f->map != NULL) look_unmap(f, tables_bytes(f));
    if (f->fd >= 0) close(f->fd);
}

void tb_arena_file_close(struct arena_file *f)
{
    if (f->map != NULL) munmap(f->map, f->bytes);
    if (f->fd >= 0) close(f->fd); /* and with it the lock */
    *f = (struct arena_file){.fd = -1};
}

enum tb_status tb_arena_file_trim(struct arena_file *f, char error_out[TB_ARENA_ERROR_BYTES])
{
    TB_ASSERT(f->header.bytes == f->bytes); /* saved before: else a kill here would count as damage */
    if (f->old_bytes <= f->bytes) return TB_OK;
    if (tb_sys_ftruncate(f->fd, (off_t)f->bytes) == 0) return TB_OK;
    tb_arena_say(error_out, "arena: cannot shrink to %llu bytes: %s", (unsigned long long)f->bytes,
                 strerror(errno));
    return TB_SITE_IO;
}

/* ---- header ---- */

struct tb_extent tb_arena_file_room(const struct arena_file *f)
{
    const uint64_t data = arena_file_data_offset(&f->header);
    TB_ASSERT(data < f->bytes); /* tb_arena_file_load has refused others */
    return (struct tb_extent){data, (f->bytes - data) / TB_EXTENT_GRAIN * TB_EXTENT_GRAIN};
}

bool tb_arena_file_cuts(const struct arena_file *f, const struct arena_record_shard *shard,
                        char error_out[TB_ARENA_ERROR_BYTES])
{
    const uint64_t old_end = f->header.bytes;
    const struct tb_extent room = tb_arena_file_room(f);
    if (shard->bytes > old_end || shard->offset > old_end - shard->bytes)
        return false; /* not sound: damage */
    if (shard->offset + shard->bytes <= room.offset + room.bytes) return false;
    const uint64_t end = shard->offset + shard->bytes;
    tb_arena_say(error_out,
                 "arena: a version stands past byte %" PRIu64 ", up to %" PRIu64
                 ": configure at least that many bytes, or remove the file to begin empty",
                 f->bytes, end);
    return true;
}

static struct tb_digest header_check(const struct arena_header *h)
{
    return tb_digest_of(h, offsetof(struct arena_header, check));
}

/* Of another format also what cannot be checked is believed, and whatever the other slot says: a
 * later one may have its check elsewhere, and leave an old header of ours where it was. No
 * release has format 0. */
enum slot_says { SLOT_NOTHING, SLOT_CHECKED, SLOT_FOREIGN };

static enum slot_says slot_look(const struct arena_header *h)
{
    const struct tb_digest check = header_check(h);
    if (memcmp(h->magic, magic, sizeof magic) != 0 || h->format == 0) return SLOT_NOTHING;
    if (h->format != TB_ARENA_FORMAT) return SLOT_FOREIGN;
    return tb_digest_equal(&check, &h->check) ? SLOT_CHECKED : SLOT_NOTHING;
}

/* Of the two slots the one that says more, and of two good ones the newer. */
static enum slot_says newest_header(struct arena_file *f)
{
    enum slot_says best = SLOT_NOTHING;
    for (uint32_t slot = 0; slot < 2; slot++) {
        struct arena_header h;
        memcpy(&h, f->map + slot * HEADER_SLOT_BYTES, sizeof h);
        const enum slot_says says = slot_look(&h);
        if (says < best || says == SLOT_NOTHING) continue;
        if (says == best && h.sequence <= f->header.sequence) continue;
        f->header = h;
        best = says;
    }
    return best;
}

/* A header that says more bytes than the file had was cut behind our back: what was there is
 * lost. */
static bool header_fits(const struct arena_file *f, const struct arena_header *h)
{
    if (h->bytes > f->old_bytes) return false;
    if (h->record_count < TB_ARENA_RECORDS_MIN || h->record_count > TB_ARENA_RECORDS_MAX) return false;
    return arena_file_data_offset(h) < h->bytes;
}

enum tb_status tb_arena_file_load(struct arena_file *f, const char *path,
                                  char error_out[TB_ARENA_ERROR_BYTES])
{
    const enum slot_says says = newest_header(f);
    const struct arena_header *h = &f->header;
    f->records = (struct arena_record *)(void *)(f->map + HEADER_BYTES);
    if (says == SLOT_NOTHING) return TB_NOT_FOUND;
    if (h->format != TB_ARENA_FORMAT) {
        tb_arena_say(
            error_out,
            "arena %s: is of format %u, and this release reads %u: start the release that made it, or "
            "remove the file to begin empty",
            path, h->format, TB_ARENA_FORMAT);
        return TB_SITE_CONFIG;
    }
    if (!header_fits(f, h)) return TB_NOT_FOUND;
    if (arena_file_data_offset(h) < f->bytes) return TB_OK;
    tb_arena_say(
        error_out,
        "arena %s: its tables alone take %llu bytes, and arena.bytes is %llu: make it larger (it was %llu), "
        "or remove the file to begin empty",
        path, (unsigned long long)arena_file_data_offset(h), (unsigned long long)f->bytes,
        (unsigned long long)h->bytes);
    return TB_SITE_CONFIG;
}

void tb_arena_file_save(struct arena_file *f)
{
    TB_ASSERT(f->map != NULL && f->header.format == TB_ARENA_FORMAT);
    f->header.sequence++;
    f->header.check = header_check(&f->header);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* what the header speaks of is in the file before it */
    memcpy(f->map + f->header.sequence % 2 * HEADER_SLOT_BYTES, &f->header, sizeof f->header);
}

/* One record for 256 KiB: versions of 1 MiB shards still find one, and the table costs a
 * thousandth. */
#define RECORD_EVERY_BYTES (UINT64_C(256) << 10)

uint64_t tb_arena_file_bytes_for(uint32_t records)
{
    return records <= TB_ARENA_RECORDS_MIN ? 0 : records * RECORD_EVERY_BYTES;
}

static uint32_t records_for(uint64_t bytes)
{
    const uint64_t count = bytes / RECORD_EVERY_BYTES;
    if (count < TB_ARENA_RECORDS_MIN) return TB_ARENA_RECORDS_MIN;
    return count > TB_ARENA_RECORDS_MAX ? TB_ARENA_RECORDS_MAX : (uint32_t)count;
}

void tb_arena_file_format(struct arena_file *f)
{
    memset(f->map, 0, HEADER_BYTES);
    f->header = (struct arena_header){
        .format = TB_ARENA_FORMAT, .record_count = records_for(f->bytes), .bytes = f->bytes};
    memcpy(f->header.magic, magic, sizeof magic);
    tb_random_bytes(&f->header.life, sizeof f->header.life);
    f->records = (struct arena_record *)(void *)(f->map + HEADER_BYTES);
    memset(f->records, 0, f->header.record_count * sizeof *f->records);
    tb_arena_file_save(f);
}

/* ---- records and extents ---- */

struct tb_digest tb_arena_record_check(const struct arena_record *r)
{
    const size_t from = offsetof(struct arena_record, kind);
    return tb_digest_of((const uint8_t *)r + from, offsetof(struct arena_record, check) - from);
}

uint64_t tb_arena_root_check(const struct tb_id *uid, const struct tb_digest *root)
{
    uint8_t both[sizeof *uid + sizeof *root];
    uint64_t check;
    memcpy(both, uid, sizeof *uid);
    memcpy(both + sizeof *uid, root, sizeof *root);
    const struct tb_digest digest = tb_digest_of(both, sizeof both);
    memcpy(&check, digest.bytes, sizeof check);
    return check | 1; /* never 0, which says that there is no root yet */
}

void tb_arena_record_use(struct arena_record *r, enum arena_use use)
{
    TB_ASSERT(use == ARENA_FREE || use == ARENA_USED);
    __atomic_store_n(&r->use, (uint32_t)use, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* what follows a free is not seen before it */
}

uint32_t tb_arena_record_used(const struct arena_record *r)
{
    return __atomic_load_n(&r->use, __ATOMIC_ACQUIRE);
}

static uint64_t up(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

bool tb_arena_extent_plan(const struct arena_record_shard *s, struct arena_extent_plan *plan_out)
{
    if (s->packed_bytes > TB_SHARD_BYTES_MAX + TB_BLOBS_MAX * TB_BLOB_BYTES_MAX) return false;
    if (s->head_bytes > UINT32_MAX || s->chunk_count > 2 * TB_CHUNKS_MAX) return false;
    plan_out->head = up(s->packed_bytes, TB_EXTENT_GRAIN);
    plan_out->digests = up(plan_out->head + s->head_bytes, 16);
    plan_out->held = up(plan_out->digests + (uint64_t)s->chunk_count * TB_DIGEST_BYTES, 64);
    const uint64_t held_end = plan_out->held + TB_BITMAP_WORDS(s->chunk_count) * 8;
    plan_out->proofs = up(held_end, 64);
    plan_out->total = up(plan_out->proofs + (uint64_t)s->chunk_count * TB_BLAKE3_BYTES, TB_EXTENT_GRAIN);
    if (s->bytes != 0 && s->bytes != plan_out->total) { /* of an older release, or of none */
        plan_out->proofs = 0;
        plan_out->total = up(held_end, TB_EXTENT_GRAIN);
    }
    TB_ASSERT(plan_out->head <= plan_out->digests && plan_out->digests <= plan_out->held &&
              plan_out->held <= plan_out->total && plan_out->proofs <= plan_out->total);
    return true;
}

uint64_t tb_arena_proofs_check(const void *proofs, uint32_t chunk_count)
{
    uint64_t check = 0;
    const struct tb_digest all = tb_digest_of(proofs, (size_t)chunk_count * TB_BLAKE3_BYTES);
    memcpy(&check, all.bytes, sizeof check);
    return check != 0 ? check : 1;
}
