/* anchors.c - whole versions on a disk (anchor.dir): written in background, and read back into an
 * arena that a reboot emptied, before anything else may look at it.
 *
 * P3: what an anchor holds survives a reboot. Its chunks are digested as they land in the arena,
 * like any chunk (P1); one that does not match is not held, and comes over a link. An anchor is
 * written beside the older one, which goes when the newer is on the disk whole. P6, P7: writing is
 * held to anchor.bytes_per_s, on a thread of its own; it spares its version from retention, but
 * whoever needs room takes it all the same, and the writing is given up.
 *
 * Everything is the main loop's but the thread of the writing or removing under way, which has a
 * pin on its region. Once it is open the loop waits for no disk, and its end for no longer than
 * shutdown.c has time. */
#include "gateway/daemon/daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "gateway/daemon/copies/anchors.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/shutdown.h"
#include "gateway/disk/anchor_file.h"
#include "gateway/disk/anchor_folder.h"
#include "wan/send/rate_cap.h"

#define PIECES          64u /* a second, but for the two bounds below */
#define PIECE_BYTES_MIN 4096u
#define PIECE_BYTES_MAX (4u << 20)
#define FLUSH_BYTES     (64u << 20) /* what may be in the page cache and not on the disk */
#define RETRY_NS        TB_SECONDS(60)
#define TELL_NS         TB_SECONDS(10)

/* What is known of a model's anchors. */
struct anchor_model {
    struct tb_anchor_which newest; /* on the disk */
    uint32_t whole_since;          /* versions that became whole here since it was begun */
    tb_time_ns failed_at;          /* 0: the last one was written */
    bool damaged;         /* that one, or a newer one: it is written anew once its version is whole here */
    tb_time_ns stayed_at; /* when the newest could not be taken away; 0: nobody tried */
};

struct tb_anchors {
    struct tb_daemon *d;
    struct tb_anchor_folder folder;
    struct anchor_model models[TB_CONFIG_LIST_MAX]; /* of config->models */
    struct tb_id refilled[TB_CONFIG_LIST_MAX];
    uint32_t refilled_count;
    /* The thread, and what it does: writes, or takes away. */
    bool writing, removing;
    pthread_t thread;
    uint32_t model;
    struct tb_anchor_which gone;
    enum tb_catalog_state gone_for;
    struct tb_version_key key;
    struct tb_arena_region *region; /* pinned */
    char path[TB_ANCHOR_PATH_BYTES];
    uint64_t total_bytes;
    tb_time_ns begun_at;
    struct tb_cap pace;    /* the thread's */
    enum tb_status status; /* the thread's, until `done` */
    char error[TB_ANCHOR_ERROR_BYTES];
    bool stale; /* chunks of the version were damaged while it was being written */
    _Atomic uint64_t written_bytes;
    _Atomic bool stop, done;
};

/* ---- after a reboot ---- */

static void refused(struct tb_anchors *a, const char *path, const char *why, const char *action)
{
    struct tb_log_line l;
    a->d->counters.anchors_bad++;
    tb_log_begin(&l, TB_LOG_ERROR, "anchor.refused");
    tb_log_str(&l, "path", path);
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", action);
    tb_log_end(&l);
}

struct filling {
    struct tb_anchors *a;
    struct tb_anchor_file *file;
    uint64_t bytes, bad_chunks;
    tb_time_ns begun_at, told_at;
};

/* A stop that is asked for meanwhile ends it: the loop does not run yet. */
static bool stopped(struct tb_anchors *a)
{
    uv_run(&a->d->loop, UV_RUN_NOWAIT);
    return a->d->draining;
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
    for (uint32_t s = 0; s < f->file->key.shard_count; s++) {
        struct tb_place *place = tb_arena_place(region, s);
        for (uint32_t k = 0; k < place->manifest->chunk_count; k++) {
            if (stopped(f->a)) return TB_SITE_DRAINING;
            fill_chunk(f, s, place, k);
            fill_told(f);
        }
    }
    return TB_OK;
}

static enum tb_status region_for(struct tb_anchors *a, const struct tb_anchor_file *file,
                                 struct tb_arena_region **region_out)
{
    char error[TB_ARENA_ERROR_BYTES] = "";
    const uint32_t count = file->key.shard_count;
    const struct tb_manifest **pointers = tb_calloc(count, sizeof *pointers);
    if (pointers == NULL) return TB_SITE_NOMEM;
    for (uint32_t s = 0; s < count; s++)
        pointers[s] = &file->manifests[s];
    enum tb_status status = tb_arena_reserve(a->d->arena, &file->key, pointers, count, region_out, error);
    tb_free(pointers);
    if (status == TB_DONE_BEFORE) status = TB_OK;
    if (status == TB_OK && !tb_digest_equal(&tb_arena_region_key(*region_out)->root, &file->key.root))
        status = tb_arena_region_set_root(*region_out, &file->key.root);
    if (status != TB_OK)
        refused(a, file->path, error[0] != '\0' ? error : tb_status_text(status), "not_read");
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
    f->a->d->counters.anchors_bad += f->bad_chunks;
    tb_log(TB_LOG_ERROR, "anchor.chunks_bad", "model=%s number=%llu chunks=%llu action=fetch_from_a_link",
           f->file->key.model.text, (unsigned long long)f->file->key.number,
           (unsigned long long)f->bad_chunks);
}

/* TB_BAD_FILE: an older one may do. */
static enum tb_status refill(struct tb_anchors *a, uint32_t model, const char *path)
{
    struct tb_anchor_file file;
    char error[TB_ANCHOR_ERROR_BYTES] = "";
    enum tb_status status = tb_anchor_open(path, &file, error);
    if (status != TB_OK) {
        refused(a, path, error, "look_for_an_older_one");
        a->models[model].damaged = true;
        return TB_BAD_FILE;
    }
    struct tb_arena_region *region = NULL;
    struct filling f = {.a = a, .file = &file, .begun_at = tb_clock_now(), .told_at = tb_clock_now()};
    if (!tb_name_equal(&file.key.model, &a->d->config->models[model].name)) {
        refused(a, path, "it is of another model than its name says", "look_for_an_older_one");
        status = TB_BAD_FILE;
    }
    if (status == TB_OK) status = region_for(a, &file, &region);
    if (status == TB_OK) status = fill_region(&f, region);
    if (status == TB_OK) {
        a->refilled[a->refilled_count++] = file.key.uid;
        a->models[model].damaged = a->models[model].damaged || f.bad_chunks > 0;
        fill_ended(&f);
    }
    tb_anchor_close(&file);
    return status;
}

static bool arena_has(struct tb_anchors *a, const struct tb_name *model)
{
    for (struct tb_arena_region *r = tb_arena_region_next(a->d->arena, NULL); r != NULL;
         r = tb_arena_region_next(a->d->arena, r))
        if (tb_name_equal(&tb_arena_region_key(r)->model, model) && tb_arena_region_whole(r)) return true;
    return false;
}

/* The newest anchor that can be read, where the arena has nothing whole of the model. */
static enum tb_status model_open(struct tb_anchors *a, uint32_t model)
{
    struct tb_anchor_which at = {.any = false};
    char path[TB_ANCHOR_PATH_BYTES];
    const struct tb_name *name = &a->d->config->models[model].name;
    const bool needed = !arena_has(a, name);
    while (tb_anchor_folder_older(&a->folder, name, &at, path)) {
        const enum tb_status status = needed ? refill(a, model, path) : TB_OK;
        if (status == TB_SITE_DRAINING) return status;
        if (status == TB_OK) a->models[model].newest = at;
        if (status != TB_BAD_FILE) return TB_OK; /* what does not fit does not fit when it is older either */
    }
    return TB_OK;
}

static void open_failed(const char *path, const char *why)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "start.failed");
    tb_log_str(&l, "what", "anchor.dir");
    tb_log_str(&l, "path", path);
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", "give a folder of its own that this user may write to, or leave anchor.dir out");
    tb_log_end(&l);
}

enum tb_status tb_anchors_open(struct tb_daemon *d)
{
    if (d->config->anchor_dir == NULL) return TB_OK;
    struct tb_anchors *a = tb_calloc(1, sizeof *a);
    if (a == NULL) return TB_SITE_NOMEM;
    d->anchors = a;
    a->d = d;
    a->folder.fd = -1;
    enum tb_status status = tb_anchor_folder_open(d->config->anchor_dir, &a->folder);
    if (status != TB_OK) {
        open_failed(d->config->anchor_dir,
                    status == TB_SITE_LOCKED ? "another gateway has it" : strerror(errno));
        return status;
    }
    tb_anchor_folder_remove_parts(&a->folder);
    for (uint32_t m = 0; status == TB_OK && m < d->config->model_count; m++)
        status = model_open(a, m);
    return status;
}

bool tb_anchors_refilled(const struct tb_daemon *d, const struct tb_id *uid)
{
    for (uint32_t i = 0; d->anchors != NULL && i < d->anchors->refilled_count; i++)
        if (tb_id_equal(&d->anchors->refilled[i], uid)) return true;
    return false;
}

/* ---- writing, on its thread ---- */

static uint64_t piece_bytes(const struct tb_anchors *a)
{
    const uint64_t bytes = a->pace.bytes_per_s / PIECES;
    if (bytes < PIECE_BYTES_MIN) return PIECE_BYTES_MIN;
    return bytes < PIECE_BYTES_MAX ? bytes : PIECE_BYTES_MAX;
}

/* Until so many bytes more may be written. What a slow disk was late with is not made up for: the
 * others who use it would feel that as a burst. False: stop. */
static bool paced(struct tb_anchors *a, uint64_t bytes)
{
    const tb_time_ns due = tb_cap_reserve(&a->pace, bytes, tb_clock_now());
    while (!atomic_load(&a->stop)) {
        const tb_time_ns now = tb_clock_now();
        if (now >= due) return true;
        const tb_time_ns left = due - now < TB_MS(50) ? due - now : TB_MS(50);
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)left}, NULL);
    }
    return false;
}

static enum tb_status write_shard(struct tb_anchors *a, struct tb_anchor_file *file, uint32_t shard,
                                  uint64_t *unflushed)
{
    const struct tb_place *place = tb_arena_place(a->region, shard);
    for (uint64_t at = 0; at < place->manifest->bytes;) {
        const uint64_t left = place->manifest->bytes - at;
        const uint64_t count = left < piece_bytes(a) ? left : piece_bytes(a);
        if (!paced(a, count)) return TB_CANCELLED;
        enum tb_status status = tb_anchor_write(file, shard, at, place->bytes + at, count);
        *unflushed += count;
        if (status == TB_OK && *unflushed >= FLUSH_BYTES) {
            status = tb_anchor_flush(file);
            *unflushed = 0;
        }
        if (status != TB_OK) return status;
        at += count;
        atomic_fetch_add(&a->written_bytes, count);
    }
    return TB_OK;
}

static void io_error(struct tb_anchors *a)
{
    const int why = errno;
    (void)snprintf(a->error, sizeof a->error, "%.300s: %s", a->path, strerror(why));
}

static enum tb_status write_file(struct tb_anchors *a, struct tb_anchor_file *file)
{
    uint64_t unflushed = 0;
    enum tb_status status = TB_OK;
    a->pace = (struct tb_cap){0};
    tb_cap_set(&a->pace, a->d->config->anchor_rate, tb_clock_now());
    for (uint32_t s = 0; status == TB_OK && s < a->key.shard_count; s++)
        status = write_shard(a, file, s, &unflushed);
    if (status == TB_SITE_IO) io_error(a);
    if (status != TB_OK) {
        tb_anchor_abort(file);
        return status;
    }
    status = tb_anchor_finish(file);
    if (status != TB_OK) io_error(a);
    return status;
}

static enum tb_status manifests_of(struct tb_anchors *a, const struct tb_manifest **pointers)
{
    for (uint32_t s = 0; s < a->key.shard_count; s++)
        pointers[s] = tb_arena_place(a->region, s)->manifest;
    a->total_bytes = tb_anchor_bytes(&a->key, pointers);
    const uint64_t free_bytes = tb_anchor_folder_free_bytes(&a->folder);
    if (free_bytes >= a->total_bytes) return TB_OK; /* writing says what else is wrong */
    (void)snprintf(a->error, sizeof a->error,
                   "%.300s: it needs %" PRIu64 " bytes beside the older one, %" PRIu64 " are free", a->path,
                   a->total_bytes, free_bytes);
    return TB_SITE_IO;
}

static struct tb_anchor_which which_of(const struct tb_version_key *key)
{
    return (struct tb_anchor_which){.any = true, .run_order = key->run_order, .number = key->number};
}

static enum tb_status write_anchor(struct tb_anchors *a)
{
    struct tb_anchor_file file;
    const struct tb_manifest **pointers = tb_calloc(a->key.shard_count, sizeof *pointers);
    if (pointers == NULL) return TB_SITE_NOMEM;
    enum tb_status status = manifests_of(a, pointers);
    if (status == TB_OK) status = tb_anchor_create(a->path, &a->key, pointers, &file, a->error);
    tb_free(pointers);
    if (status == TB_OK) status = write_file(a, &file);
    const struct tb_anchor_which which = which_of(&a->key);
    if (status == TB_OK) tb_anchor_folder_remove_older(&a->folder, &a->key.model, &which);
    return status;
}

static void *writer_main(void *user)
{
    struct tb_anchors *a = user;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 10); /* this thread alone, on Linux */
    a->status = write_anchor(a);
    atomic_store(&a->done, true);
    return NULL;
}

static void *remover_main(void *user)
{
    struct tb_anchors *a = user;
    a->status = tb_anchor_folder_remove(&a->folder, &a->d->config->models[a->model].name, &a->gone);
    if (a->status != TB_OK) (void)snprintf(a->error, sizeof a->error, "%s", strerror(errno));
    atomic_store(&a->done, true);
    return NULL;
}

static bool thread_begin(struct tb_anchors *a, void *(*entry)(void *))
{
    atomic_store(&a->stop, false);
    atomic_store(&a->done, false);
    return !tb_fault_hit(TB_FAULT_thread, EAGAIN) && pthread_create(&a->thread, NULL, entry, a) == 0;
}

/* ---- what is written, and when ---- */

static uint32_t model_of(const struct tb_daemon *d, const struct tb_name *name)
{
    for (uint32_t i = 0; i < d->config->model_count; i++)
        if (tb_name_equal(&d->config->models[i].name, name)) return i;
    return UINT32_MAX;
}

/* Than the one on the disk. */
static bool is_newer(const struct anchor_model *m, const struct tb_version_key *key)
{
    const struct tb_anchor_which which = which_of(key);
    return !m->newest.any || tb_anchor_newer(&which, &m->newest);
}

static bool is_newest(const struct anchor_model *m, const struct tb_version_key *key)
{
    return m->newest.any && m->newest.run_order == key->run_order && m->newest.number == key->number;
}

void tb_anchors_whole(struct tb_daemon *d, const struct tb_version_key *key)
{
    const uint32_t model = d->anchors != NULL ? model_of(d, &key->model) : UINT32_MAX;
    if (model == UINT32_MAX) return;
    if (is_newer(&d->anchors->models[model], key)) d->anchors->models[model].whole_since++;
}

static bool is_writing(const struct tb_anchors *a, const struct tb_id *uid)
{
    return a->writing && tb_id_equal(&a->key.uid, uid);
}

/* The chunks may have been damaged before they were written: what is on the disk is no copy to rely
 * on. */
void tb_anchors_rotted(struct tb_daemon *d, const struct tb_version_key *key)
{
    struct tb_anchors *a = d->anchors;
    const uint32_t model = a != NULL ? model_of(d, &key->model) : UINT32_MAX;
    if (model == UINT32_MAX) return;
    if (is_writing(a, &key->uid)) a->stale = true;
    if (is_newest(&a->models[model], key)) a->models[model].damaged = true;
}

/* The newest version that is whole here, if it is newer than the anchor, or that is to be written
 * anew. */
static struct tb_copy *newest_whole(struct tb_anchors *a, uint32_t model)
{
    struct tb_copy *best = NULL;
    for (struct tb_copy *c = a->d->copies; c != NULL; c = c->next) {
        if (c->life != TB_COPY_WHOLE || !tb_copy_is_ready(c) || model_of(a->d, &c->key.model) != model)
            continue;
        if (best == NULL || tb_version_key_compare(&c->key, &best->key) > 0) best = c;
    }
    if (best == NULL) return NULL;
    const struct anchor_model *m = &a->models[model];
    const bool anew = m->damaged && is_newest(m, &best->key);
    return anew || is_newer(m, &best->key) ? best : NULL;
}

/* P3: nobody comes back to what was withdrawn or broken. Its anchor would be the newest for ever,
 * and what is the head again would never be on the disk. */
static void remove_begin(struct tb_anchors *a, uint32_t model, tb_time_ns now)
{
    struct tb_daemon *d = a->d;
    const struct anchor_model *m = &a->models[model];
    const struct tb_name *name = &d->config->models[model].name;
    struct tb_id uid;
    struct tb_catalog_version_view view;
    if (!m->newest.any || d->store_down) return;
    if (m->stayed_at != 0 && tb_time_since(m->stayed_at, now) < RETRY_NS) return;
    if (tb_catalog_find(d->catalog, name, m->newest.run_order, m->newest.number, &uid) != TB_OK) return;
    if (!tb_catalog_version_get(d->catalog, &uid, &view) || !tb_persist_saved(d, &uid)) return;
    if (view.state != TB_VERSION_ENDED_WITHDRAWN && view.state != TB_VERSION_ENDED_BROKEN) return;
    a->model = model;
    a->gone = m->newest;
    a->gone_for = view.state;
    a->removing = thread_begin(a, remover_main); /* if not: at the next tick */
}

/* Versions that are whole here and newer, and that came before the writing of this one, too: the
 * store was still to say that they are ready (P3: the last one of a trainer would wait for a
 * next that never comes). */
static uint32_t whole_after(const struct tb_anchors *a, uint32_t model, const struct tb_version_key *key)
{
    uint32_t count = 0;
    for (const struct tb_copy *c = a->d->copies; c != NULL; c = c->next)
        count += c->life == TB_COPY_WHOLE && model_of(a->d, &c->key.model) == model &&
                 tb_version_key_compare(&c->key, key) > 0;
    return count;
}

static bool is_due(const struct tb_anchors *a, uint32_t model, tb_time_ns now)
{
    const struct anchor_model *m = &a->models[model];
    if (m->failed_at != 0) return m->whole_since > 0 || tb_time_since(m->failed_at, now) >= RETRY_NS;
    return !m->newest.any || m->damaged || m->whole_since >= a->d->config->anchor_every;
}

static void write_begin(struct tb_anchors *a, uint32_t model, struct tb_copy *copy, tb_time_ns now)
{
    a->model = model;
    a->key = copy->key;
    a->region = copy->region;
    a->begun_at = now;
    a->stale = false;
    a->error[0] = '\0';
    atomic_store(&a->written_bytes, 0);
    a->models[model].whole_since = 0;
    a->models[model].failed_at = now; /* until it is written */
    if (!tb_anchor_folder_name(&a->folder, &a->key, a->path)) return;
    tb_arena_region_ref(a->region);
    a->writing = thread_begin(a, writer_main);
    if (a->writing) {
        copy->used_by |= TB_COPY_USED_BY_ANCHOR;
        return;
    }
    tb_arena_region_unref(a->region);
    a->d->counters.anchors_failed++;
    tb_log(TB_LOG_ERROR, "anchor.failed", "model=%s number=%llu why=no_thread action=retry",
           a->key.model.text, (unsigned long long)a->key.number);
}

static void write_failed(struct tb_anchors *a)
{
    struct tb_log_line l;
    a->d->counters.anchors_failed++;
    tb_log_begin(&l, TB_LOG_ERROR, "anchor.failed");
    tb_log_str(&l, "model", a->key.model.text);
    tb_log_u64(&l, "number", a->key.number);
    tb_log_str(&l, "why",
               a->status == TB_CANCELLED ? "its version had to make room"
               : a->error[0] != '\0'     ? a->error
                                         : tb_status_text(a->status));
    tb_log_str(&l, "action", a->status == TB_CANCELLED ? "raise arena.bytes or anchor.bytes_per_s" : "retry");
    tb_log_end(&l);
}

static void write_ended(struct tb_anchors *a)
{
    struct anchor_model *m = &a->models[a->model];
    struct tb_copy *copy = tb_copy_find(a->d, &a->key.uid);
    (void)pthread_join(a->thread, NULL);
    a->writing = false;
    if (copy != NULL) copy->used_by &= ~TB_COPY_USED_BY_ANCHOR;
    tb_arena_region_unref(a->region);
    if (a->status != TB_OK) {
        m->failed_at = tb_clock_now();
        if (a->status != TB_CANCELLED || !a->d->draining) write_failed(a);
        return;
    }
    const uint32_t after = whole_after(a, a->model, &a->key);
    if (m->whole_since < after) m->whole_since = after;
    m->failed_at = 0;
    m->newest = which_of(&a->key);
    m->damaged = a->stale;
    m->stayed_at = 0;
    a->d->counters.anchors_written++;
    tb_log(TB_LOG_INFO, "anchor.written", "model=%s run=%llu number=%llu bytes=%llu after_ms=%llu",
           a->key.model.text, (unsigned long long)a->key.run_order, (unsigned long long)a->key.number,
           (unsigned long long)a->total_bytes,
           (unsigned long long)(tb_time_since(a->begun_at, tb_clock_now()) / TB_MS(1)));
}

/* It is the newest until its file is gone: a restart would find it. */
static void remove_ended(struct tb_anchors *a)
{
    struct anchor_model *m = &a->models[a->model];
    const bool gone = a->status == TB_OK;
    struct tb_log_line l;
    (void)pthread_join(a->thread, NULL);
    a->removing = false;
    if (gone)
        tb_log_begin(&l, TB_LOG_INFO, "anchor.removed");
    else
        tb_log_begin(&l, TB_LOG_WARN, "anchor.remove_failed");
    tb_log_str(&l, "model", a->d->config->models[a->model].name.text);
    tb_log_u64(&l, "run", a->gone.run_order);
    tb_log_u64(&l, "number", a->gone.number);
    tb_log_str(&l, "reason", tb_catalog_state_name(a->gone_for));
    if (!gone) tb_log_str(&l, "why", a->error);
    tb_log_end(&l);
    m->stayed_at = gone ? 0 : tb_clock_now();
    a->d->counters.anchors_failed += gone ? 0 : 1;
    if (!gone) return;
    m->newest.any = false;
    m->failed_at = 0;
}

void tb_anchors_tick(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_anchors *a = d->anchors;
    if (a == NULL) return;
    if (a->removing && atomic_load(&a->done)) remove_ended(a);
    if (a->writing) {
        const struct tb_copy *copy = tb_copy_find(d, &a->key.uid);
        if (copy == NULL || tb_copy_leaves(copy)) atomic_store(&a->stop, true);
        if (atomic_load(&a->done)) write_ended(a);
        return;
    }
    for (uint32_t i = 1; i <= d->config->model_count && !d->draining && !a->removing; i++) {
        const uint32_t model = (a->model + i) % d->config->model_count; /* in turn */
        remove_begin(a, model, now);
        if (a->removing) return;
        struct tb_copy *copy = is_due(a, model, now) ? newest_whole(a, model) : NULL;
        if (copy == NULL) continue;
        write_begin(a, model, copy, now);
        return;
    }
}

void tb_anchors_stop(struct tb_daemon *d)
{
    if (d->anchors != NULL) atomic_store(&d->anchors->stop, true);
}

void tb_anchors_close(struct tb_daemon *d)
{
    struct tb_anchors *a = d->anchors;
    if (a == NULL) return;
    d->anchors = NULL;
    if ((a->writing || a->removing) && !tb_closing_awaits(d, &a->done)) {
        (void)pthread_detach(a->thread);
        tb_closing_left(d, a->writing ? "anchor" : "anchor.remove", d->config->anchor_dir);
        return; /* it reads on from its region, should its disk ever answer */
    }
    if (a->writing) write_ended(a);
    if (a->removing) remove_ended(a);
    tb_anchor_folder_close(&a->folder);
    tb_free(a);
}

/* ---- looking ---- */

json_t *tb_anchors_json(const struct tb_daemon *d)
{
    const struct tb_anchors *a = d->anchors;
    json_t *written = json_array();
    for (uint32_t i = 0; a != NULL && i < d->config->model_count; i++) {
        char version[48];
        const struct tb_anchor_which *newest = &a->models[i].newest;
        if (!newest->any) continue;
        (void)snprintf(version, sizeof version, "%" PRIu64 ":%" PRIu64, newest->run_order, newest->number);
        (void)json_array_append_new(
            written, json_pack("{s:s, s:s}", "model", d->config->models[i].name.text, "version", version));
    }
    const bool writing = a != NULL && a->writing;
    return json_pack("{s:s, s:s, s:I, s:o}", "dir", a != NULL ? d->config->anchor_dir : "", "writing",
                     writing ? a->key.model.text : "", "written_bytes",
                     (json_int_t)(writing ? atomic_load(&a->written_bytes) : 0), "models", written);
}
