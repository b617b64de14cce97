/* anchor_refill.c - the newest anchor of a model, read back into an arena that a reboot emptied,
 * before anything else may look at the arena.
 *
 * P1, P3: its chunks are digested as they land in the arena, like any chunk. One that does not
 * match is not held, and comes over a link. */
#include "gateway/daemon/daemon.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/daemon/copies/anchor_refill.h"
#include "gateway/disk/anchor_file.h"

#define TELL_NS TB_SECONDS(10)

static void refused(struct tb_daemon *d, const char *path, const char *why, const char *action)
{
    struct tb_log_line l;
    d->counters.anchors_bad++;
    tb_log_begin(&l, TB_LOG_ERROR, "anchor.refused");
    tb_log_str(&l, "path", path);
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", action);
    tb_log_end(&l);
}

struct filling {
    struct tb_daemon *d;
    struct tb_anchor_file *file;
    uint64_t bytes, bad_chunks;
    tb_time_ns begun_at, told_at;
};

/* A stop that is asked for meanwhile ends it: the loop does not run yet. */
static bool stopped(struct tb_daemon *d)
{
    uv_run(&d->loop, UV_RUN_NOWAIT);
    return d->draining;
}

static void fill_told(struct filling *f)
{
    const tb_time_ns now = tb_clock_now();
    if (tb_time_since(f->told_at, now) < TELL_NS) return;
    f->told_at = now;
    tb_log(TB_LOG_INFO, "anchor.refilling", "model=%s number=%llu bytes=%llu of=%llu",
           f->file->key.model.text, (unsigned long long)f->file->key.number, (unsigned long long)f->bytes,
           (unsigned long long)f->file->bytes);
}

/* P1: read into its place, digested there, held or not. */
static void fill_chunk(struct filling *f, uint32_t shard, struct tb_place *place, uint32_t k)
{
    uint32_t bytes = 0;
    if (!tb_place_claim(place, k)) return; /* an arena that was there had it */
    uint8_t *to = tb_place_chunk(place, k, &bytes);
    if (tb_anchor_read(f->file, shard, k, to) != TB_OK) {
        tb_place_unclaim(place, k);
        f->bad_chunks++;
        return;
    }
    if (tb_place_finish(place, k) == TB_OK)
        f->bytes += bytes;
    else
        f->bad_chunks++;
}

static enum tb_status fill_region(struct filling *f, struct tb_arena_region *region)
{
    TB_ASSERT(tb_arena_region_complete(region));
    for (uint32_t s = 0; s < f->file->key.shard_count; s++) {
        struct tb_place *place = tb_arena_place(region, s);
        for (uint32_t k = 0; k < place->manifest->chunk_count; k++) {
            if (stopped(f->d)) return TB_SITE_DRAINING;
            fill_chunk(f, s, place, k);
            fill_told(f);
        }
    }
    return TB_OK;
}

static enum tb_status region_for(struct tb_daemon *d, const struct tb_anchor_file *file,
                                 struct tb_arena_region **region_out)
{
    char error[TB_ARENA_ERROR_BYTES] = "";
    const uint32_t count = file->key.shard_count;
    const struct tb_manifest **pointers = tb_calloc(count, sizeof *pointers);
    if (pointers == NULL) return TB_SITE_NOMEM;
    for (uint32_t s = 0; s < count; s++)
        pointers[s] = &file->manifests[s];
    enum tb_status status = tb_arena_reserve(d->arena, &file->key, pointers, count, region_out, error);
    tb_free(pointers);
    if (status == TB_DONE_BEFORE) status = TB_OK;
    if (status == TB_OK && !tb_digest_equal(&tb_arena_region_key(*region_out)->root, &file->key.root))
        status = tb_arena_region_set_root(*region_out, &file->key.root);
    if (status != TB_OK)
        refused(d, file->path, error[0] != '\0' ? error : tb_status_text(status), "not_read");
    return status;
}

static void fill_ended(struct filling *f)
{
    tb_log(TB_LOG_INFO, "anchor.refilled",
           "model=%s run=%llu number=%llu bytes=%llu bad_chunks=%llu after_ms=%llu", f->file->key.model.text,
           (unsigned long long)f->file->key.run_order, (unsigned long long)f->file->key.number,
           (unsigned long long)f->bytes, (unsigned long long)f->bad_chunks,
           (unsigned long long)(tb_time_since(f->begun_at, tb_clock_now()) / TB_MS(1)));
    if (f->bad_chunks == 0) return;
    f->d->counters.anchors_bad += f->bad_chunks;
    tb_log(TB_LOG_ERROR, "anchor.chunks_bad", "model=%s number=%llu chunks=%llu action=fetch_from_a_link",
           f->file->key.model.text, (unsigned long long)f->file->key.number,
           (unsigned long long)f->bad_chunks);
}

/* TB_BAD_FILE: an older one may do. */
static enum tb_status fill_from(struct tb_anchor_refill *r, struct tb_anchor_file *file)
{
    struct tb_daemon *d = r->d;
    struct tb_arena_region *region = NULL;
    struct filling f = {.d = d, .file = file, .begun_at = tb_clock_now(), .told_at = tb_clock_now()};
    if (!tb_name_equal(&file->key.model, r->model)) {
        refused(d, file->path, "it is of another model than its name says", "look_for_an_older_one");
        return TB_BAD_FILE;
    }
    enum tb_status status = region_for(d, file, &region);
    if (status != TB_OK) return status;
    status = fill_region(&f, region);
    if (status != TB_OK) return status;
    r->refilled = true;
    r->uid = file->key.uid;
    r->damaged = r->damaged || f.bad_chunks > 0 || file->old;
    fill_ended(&f);
    return TB_OK;
}

static enum tb_status refill(struct tb_anchor_refill *r, const char *path)
{
    struct tb_anchor_file file;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    enum tb_status status = tb_anchor_open(path, &r->d->disk_keys, &file, error);
    if (status == TB_SITE_CONFIG) { /* P3: nothing is lost that the right key opens */
        refused(r->d, path, error, "set_disk.key_and_start_again");
        return status;
    }
    if (status != TB_OK) {
        refused(r->d, path, error, "look_for_an_older_one");
        r->damaged = true;
        return TB_BAD_FILE;
    }
    status = fill_from(r, &file);
    tb_anchor_close(&file);
    return status;
}

static bool arena_has(struct tb_daemon *d, const struct tb_name *model)
{
    for (struct tb_arena_region *r = tb_arena_region_next(d->arena, NULL); r != NULL;
         r = tb_arena_region_next(d->arena, r))
        if (tb_name_equal(&tb_arena_region_key(r)->model, model) && tb_arena_region_whole(r)) return true;
    return false;
}

/* The arena has something whole: the anchor stays shut. */
static enum tb_status pass_over(struct tb_anchor_refill *r, const char *path)
{
    r->damaged = r->damaged || tb_anchor_look(path, &r->d->disk_keys).found == TB_DISK_OLD;
    return TB_OK;
}

enum tb_status tb_anchor_refill(struct tb_anchor_refill *r)
{
    struct tb_anchor_which at = {.any = false};
    char path[TB_ANCHOR_PATH_BYTES];
    const bool needed = !arena_has(r->d, r->model);
    TB_ASSERT(!r->newest.any && !r->refilled);
    while (tb_anchor_folder_older(r->folder, r->model, &at, path)) {
        const enum tb_status status = needed ? refill(r, path) : pass_over(r, path);
        if (status == TB_SITE_DRAINING || status == TB_SITE_CONFIG) return status;
        if (status == TB_OK) r->newest = at;
        /* A version that does not fit into the arena does not fit when it is older either. */
        if (status != TB_BAD_FILE) return TB_OK;
    }
    return TB_OK;
}
