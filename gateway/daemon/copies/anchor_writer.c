/* anchor_writer.c - one anchor, written at a bounded pace.
 *
 * P3: it is written beside the older one, which goes when the newer is on the disk whole.
 * P7: anchor.bytes_per_s bounds the writing. FLUSH_BYTES bounds the share of it that is only in the
 * page cache. */
#include "gateway/daemon/copies/anchor_writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "gateway/arena/arena_regions.h"

#define PIECES          64u /* a second, but for the two bounds below */
#define PIECE_BYTES_MIN 4096u
#define PIECE_BYTES_MAX (4u << 20)
#define FLUSH_BYTES     (64u << 20) /* that are in the page cache and not on the disk, at most */

static uint64_t piece_bytes(const struct tb_anchor_writer *w)
{
    const uint64_t bytes = w->pace.bytes_per_s / PIECES;
    if (bytes < PIECE_BYTES_MIN) return PIECE_BYTES_MIN;
    return bytes < PIECE_BYTES_MAX ? bytes : PIECE_BYTES_MAX;
}

/* Waits until so many bytes more may be written. The writer does not catch up behind a slow disk:
 * other users of that disk would feel a burst. False: stop. */
static bool paced(struct tb_anchor_writer *w, uint64_t bytes)
{
    const tb_time_ns due = tb_cap_reserve(&w->pace, bytes, tb_clock_now());
    while (!atomic_load(&w->stop)) {
        const tb_time_ns now = tb_clock_now();
        if (now >= due) return true;
        const tb_time_ns left = due - now < TB_MS(50) ? due - now : TB_MS(50);
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)left}, NULL);
    }
    return false;
}

static enum tb_status write_shard(struct tb_anchor_writer *w, struct tb_anchor_file *file, uint32_t shard,
                                  uint64_t *unflushed)
{
    const struct tb_place *place = tb_arena_place(w->region, shard);
    for (uint64_t at = 0; at < place->manifest->bytes;) {
        const uint64_t left = place->manifest->bytes - at;
        const uint64_t count = left < piece_bytes(w) ? left : piece_bytes(w);
        if (!paced(w, count)) return TB_CANCELLED;
        enum tb_status status = tb_anchor_write(file, shard, at, place->bytes + at, count);
        *unflushed += count;
        if (status == TB_OK && *unflushed >= FLUSH_BYTES) {
            status = tb_anchor_flush(file);
            *unflushed = 0;
        }
        if (status != TB_OK) return status;
        at += count;
        atomic_fetch_add(&w->written_bytes, count);
    }
    return TB_OK;
}

static void io_error(struct tb_anchor_writer *w)
{
    const int why = errno;
    (void)snprintf(w->error, sizeof w->error, "%.300s: %s", w->path, strerror(why));
}

static enum tb_status write_file(struct tb_anchor_writer *w, struct tb_anchor_file *file)
{
    uint64_t unflushed = 0;
    enum tb_status status = TB_OK;
    w->pace = (struct tb_cap){0};
    tb_cap_set(&w->pace, w->bytes_per_s, tb_clock_now());
    for (uint32_t s = 0; status == TB_OK && s < w->key.shard_count; s++)
        status = write_shard(w, file, s, &unflushed);
    if (status == TB_SITE_IO) io_error(w);
    if (status != TB_OK) {
        tb_anchor_abort(file);
        return status;
    }
    status = tb_anchor_finish(file);
    if (status != TB_OK) io_error(w);
    return status;
}

static enum tb_status manifests_of(struct tb_anchor_writer *w, const struct tb_manifest **pointers)
{
    for (uint32_t s = 0; s < w->key.shard_count; s++)
        pointers[s] = tb_arena_place(w->region, s)->manifest;
    w->total_bytes = tb_anchor_bytes(&w->key, pointers, w->disk_key);
    const uint64_t free_bytes = tb_anchor_folder_free_bytes(w->folder);
    if (free_bytes >= w->total_bytes) return TB_OK; /* writing tells of any other fault */
    (void)snprintf(w->error, sizeof w->error,
                   "%.300s: it needs %" PRIu64 " bytes beside the older one, %" PRIu64 " are free", w->path,
                   w->total_bytes, free_bytes);
    return TB_SITE_IO;
}

static enum tb_status create_file(struct tb_anchor_writer *w, struct tb_anchor_file *file)
{
    const struct tb_manifest **pointers = tb_calloc(w->key.shard_count, sizeof *pointers);
    if (pointers == NULL) return TB_SITE_NOMEM;
    enum tb_status status = manifests_of(w, pointers);
    if (status == TB_OK) status = tb_anchor_create(w->path, &w->key, pointers, w->disk_key, file, w->error);
    tb_free(pointers);
    return status;
}

enum tb_status tb_anchor_writer_run(struct tb_anchor_writer *w)
{
    struct tb_anchor_file file;
    TB_ASSERT(w->folder != NULL && w->path[0] != '\0' && tb_arena_region_complete(w->region));
    enum tb_status status = create_file(w, &file);
    if (status != TB_OK) return status;
    status = write_file(w, &file);
    if (status != TB_OK) return status;
    const struct tb_anchor_which which = tb_anchor_which_of(&w->key);
    tb_anchor_folder_remove_older(w->folder, &w->key.model, &which);
    return TB_OK;
}
