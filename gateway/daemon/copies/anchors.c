/* anchors.c - whole versions on a disk (anchor.dir): which of them are written or removed, and
 * when. anchor_writer.c writes one, anchor_refill.c reads one back at a start.
 *
 * P3: a version in an anchor survives a reboot. P6, P7: writing is held to anchor.bytes_per_s, on a
 * thread of its own. It spares its version from retention. A version that needs the room takes it
 * all the same, and the writing is given up.
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
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/layout/version_key.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/anchor_refill.h"
#include "gateway/daemon/copies/anchor_writer.h"
#include "gateway/daemon/copies/anchors.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_usage.h"
#include "gateway/daemon/shutdown.h"
#include "gateway/disk/anchor_folder.h"

#define RETRY_NS TB_SECONDS(60)

/* All that is known of a model's anchors. */
struct anchor_model {
    struct tb_anchor_which newest; /* on the disk */
    uint32_t whole_since;          /* versions that became whole here since it was begun */
    tb_time_ns failed_at;          /* 0: the last one was written */
    /* That one, or a newer one, or it is under disk.key_old: it is written anew once its version is
     * whole here. */
    bool damaged;
    tb_time_ns stayed_at; /* when the newest could not be taken away; 0: nobody tried */
};

struct tb_anchors {
    struct tb_daemon *d;
    struct tb_anchor_folder folder;
    struct anchor_model models[TB_CONFIG_MODELS_MAX]; /* by the rows of model_table.h */
    struct tb_id refilled[TB_CONFIG_MODELS_MAX];
    uint32_t refilled_count;
    /* The thread, and its job: it writes, or takes away. */
    bool writing, removing;
    pthread_t thread;
    uint32_t model;
    uint32_t turn;          /* the row that was looked at last */
    struct tb_name gone_of; /* its model, for the thread: the configuration is the main loop's */
    struct tb_anchor_which gone;
    enum tb_catalog_state gone_for;
    struct tb_anchor_writer w;
    tb_time_ns begun_at;
    enum tb_status status; /* the thread's, until `done` */
    bool stale;            /* chunks of the version were damaged while it was being written */
    _Atomic bool done;
};

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

static enum tb_status model_open(struct tb_anchors *a, uint32_t model)
{
    TB_ASSERT(model < TB_CONFIG_MODELS_MAX && a->refilled_count <= model);
    struct tb_anchor_refill r = {.d = a->d, .folder = &a->folder, .model = tb_model_name(a->d, model)};
    const enum tb_status status = tb_anchor_refill(&r);
    a->models[model].newest = r.newest;
    a->models[model].damaged = r.damaged;
    if (r.refilled) a->refilled[a->refilled_count++] = r.uid;
    return status;
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
        open_failed(d->config->anchor_dir, status == TB_SITE_LOCKED   ? "another gateway has it"
                                           : status == TB_SITE_CONFIG ? TB_ANCHOR_FOLDER_OTHERS
                                                                      : strerror(errno));
        return status;
    }
    tb_anchor_folder_remove_parts(&a->folder);
    TB_EACH_MODEL(d, m) if (status == TB_OK) status = model_open(a, m);
    return status;
}

bool tb_anchors_refilled(const struct tb_daemon *d, const struct tb_id *uid)
{
    for (uint32_t i = 0; d->anchors != NULL && i < d->anchors->refilled_count; i++)
        if (tb_id_equal(&d->anchors->refilled[i], uid)) return true;
    return false;
}

/* ---- its thread ---- */

static void *writer_main(void *user)
{
    struct tb_anchors *a = user;
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), 10); /* this thread alone, on Linux */
    a->status = tb_anchor_writer_run(&a->w);
    atomic_store(&a->done, true);
    return NULL;
}

static void *remover_main(void *user)
{
    struct tb_anchors *a = user;
    a->status = tb_anchor_folder_remove(&a->folder, &a->gone_of, &a->gone);
    if (a->status != TB_OK) (void)snprintf(a->w.error, sizeof a->w.error, "%s", strerror(errno));
    atomic_store(&a->done, true);
    return NULL;
}

static bool thread_begin(struct tb_anchors *a, void *(*entry)(void *))
{
    TB_ASSERT(!a->writing && !a->removing);
    atomic_store(&a->w.stop, false);
    atomic_store(&a->done, false);
    return !tb_fault_hit(TB_FAULT_thread, EAGAIN) && pthread_create(&a->thread, NULL, entry, a) == 0;
}

/* ---- which version is written, and when ---- */

static uint32_t model_of(const struct tb_daemon *d, const struct tb_name *name)
{
    const uint32_t row = tb_model_row_of(d, name);
    return row != TB_MODEL_NONE ? row : UINT32_MAX;
}

/* Than the one on the disk. */
static bool is_newer(const struct anchor_model *m, const struct tb_version_key *key)
{
    const struct tb_anchor_which which = tb_anchor_which_of(key);
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
    return a->writing && tb_id_equal(&a->w.key.uid, uid);
}

/* The chunks may have been damaged before they were written: the anchor is no copy to rely on. */
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

/* The version that it is of was withdrawn or broke. */
static bool is_to_go(const struct tb_anchors *a, uint32_t model, struct tb_catalog_version_view *view_out)
{
    const struct tb_daemon *d = a->d;
    const struct tb_anchor_which *w = &a->models[model].newest;
    struct tb_id uid;
    if (!w->any) return false;
    if (tb_catalog_find(d->catalog, tb_model_name(d, model), w->run_order, w->number, &uid) != TB_OK ||
        !tb_catalog_version_get(d->catalog, &uid, view_out))
        return false;
    return view_out->state == TB_VERSION_ENDED_WITHDRAWN || view_out->state == TB_VERSION_ENDED_BROKEN;
}

/* P3: no worker comes back to a version that was withdrawn or broken. Its anchor would be the
 * newest for ever, and the version that is the head again would never be on the disk. */
static void remove_begin(struct tb_anchors *a, uint32_t model, tb_time_ns now)
{
    struct tb_daemon *d = a->d;
    const struct anchor_model *m = &a->models[model];
    struct tb_catalog_version_view view;
    if (d->store_down || (m->stayed_at != 0 && tb_time_since(m->stayed_at, now) < RETRY_NS)) return;
    if (!is_to_go(a, model, &view) || !tb_persist_saved(d, &view.key.uid)) return;
    a->model = model;
    a->gone = m->newest;
    a->gone_of = view.key.model;
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
    TB_ASSERT(copy->life == TB_COPY_WHOLE && (copy->used_by & TB_COPY_USED_BY_ANCHOR) == 0);
    TB_ASSERT(is_newer(&a->models[model], &copy->key) || a->models[model].damaged);
    a->model = model;
    a->w.key = copy->key;
    a->w.region = copy->region;
    a->w.folder = &a->folder;
    a->w.bytes_per_s = a->d->config->anchor_rate;
    a->w.disk_key = a->d->disk_keys.key;
    a->begun_at = now;
    a->stale = false;
    a->w.error[0] = '\0';
    atomic_store(&a->w.written_bytes, 0);
    a->models[model].whole_since = 0;
    a->models[model].failed_at = now; /* until it is written */
    if (!tb_anchor_folder_name(&a->folder, &a->w.key, a->w.path)) return;
    tb_arena_region_ref(a->w.region);
    a->writing = thread_begin(a, writer_main);
    if (a->writing) {
        copy->used_by |= TB_COPY_USED_BY_ANCHOR;
        return;
    }
    tb_arena_region_unref(a->w.region);
    a->d->counters.anchors_failed++;
    tb_log(TB_LOG_ERROR, "anchor.failed", "model=%s number=%llu why=no_thread action=retry",
           a->w.key.model.text, (unsigned long long)a->w.key.number);
}

static void write_failed(struct tb_anchors *a)
{
    struct tb_log_line l;
    a->d->counters.anchors_failed++;
    tb_log_begin(&l, TB_LOG_ERROR, "anchor.failed");
    tb_log_str(&l, "model", a->w.key.model.text);
    tb_log_u64(&l, "number", a->w.key.number);
    tb_log_str(&l, "why",
               a->status == TB_CANCELLED ? "its version had to make room"
               : a->w.error[0] != '\0'   ? a->w.error
                                         : tb_status_text(a->status));
    tb_log_str(&l, "action", a->status == TB_CANCELLED ? "raise arena.bytes or anchor.bytes_per_s" : "retry");
    tb_log_end(&l);
}

static void write_ended(struct tb_anchors *a)
{
    struct anchor_model *m = &a->models[a->model];
    struct tb_copy *copy = tb_copy_find(a->d, &a->w.key.uid);
    TB_ASSERT(a->writing && atomic_load(&a->done));
    TB_ASSERT(copy == NULL || (copy->used_by & TB_COPY_USED_BY_ANCHOR) != 0);
    (void)pthread_join(a->thread, NULL);
    a->writing = false;
    if (copy != NULL) copy->used_by &= ~TB_COPY_USED_BY_ANCHOR;
    tb_arena_region_unref(a->w.region);
    if (a->status != TB_OK) {
        m->failed_at = tb_clock_now();
        if (a->status != TB_CANCELLED || !a->d->draining) write_failed(a);
        return;
    }
    const uint32_t after = whole_after(a, a->model, &a->w.key);
    if (m->whole_since < after) m->whole_since = after;
    m->failed_at = 0;
    m->newest = tb_anchor_which_of(&a->w.key);
    m->damaged = a->stale;
    m->stayed_at = 0;
    a->d->counters.anchors_written++;
    tb_log(TB_LOG_INFO, "anchor.written", "model=%s run=%llu number=%llu bytes=%llu after_ms=%llu",
           a->w.key.model.text, (unsigned long long)a->w.key.run_order, (unsigned long long)a->w.key.number,
           (unsigned long long)a->w.total_bytes,
           (unsigned long long)(tb_time_since(a->begun_at, tb_clock_now()) / TB_MS(1)));
}

/* It is the newest until its file is gone: a restart would find it. */
static void remove_ended(struct tb_anchors *a)
{
    struct anchor_model *m = &a->models[a->model];
    const bool gone = a->status == TB_OK;
    struct tb_log_line l;
    TB_ASSERT(a->removing && atomic_load(&a->done));
    (void)pthread_join(a->thread, NULL);
    a->removing = false;
    if (gone)
        tb_log_begin(&l, TB_LOG_INFO, "anchor.removed");
    else
        tb_log_begin(&l, TB_LOG_WARN, "anchor.remove_failed");
    tb_log_str(&l, "model", a->gone_of.text);
    tb_log_u64(&l, "run", a->gone.run_order);
    tb_log_u64(&l, "number", a->gone.number);
    tb_log_str(&l, "reason", tb_catalog_state_name(a->gone_for));
    if (!gone) tb_log_str(&l, "why", a->w.error);
    tb_log_end(&l);
    m->stayed_at = gone ? 0 : tb_clock_now();
    a->d->counters.anchors_failed += gone ? 0 : 1;
    if (!gone) return;
    m->newest.any = false;
    m->failed_at = 0;
}

/* Each looks at all copies. */
#define LOOKS_MAX 64u

static uint32_t next_in_turn(struct tb_anchors *a)
{
    uint32_t row = tb_model_row_next(a->d, a->turn + 1);
    if (row == TB_MODEL_NONE) row = tb_model_row_next(a->d, 0);
    a->turn = row != TB_MODEL_NONE ? row : 0;
    return row;
}

/* P3: nobody would take an anchor away whose model sleeps: it may be awake by its name at a start,
 * which reads the anchor back. */
bool tb_anchors_row_busy(const struct tb_daemon *d, uint32_t row)
{
    const struct tb_anchors *a = d->anchors;
    struct tb_catalog_version_view view;
    return a != NULL && (((a->writing || a->removing) && a->model == row) || is_to_go(a, row, &view));
}

void tb_anchors_row_ends(struct tb_daemon *d, uint32_t row)
{
    TB_ASSERT(!tb_anchors_row_busy(d, row));
    if (d->anchors != NULL) d->anchors->models[row] = (struct anchor_model){.damaged = false};
}

void tb_anchors_tick(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_anchors *a = d->anchors;
    if (a == NULL) return;
    TB_ASSERT(!a->writing || !a->removing);
    if (a->removing && atomic_load(&a->done)) remove_ended(a);
    if (a->writing) {
        const struct tb_copy *copy = tb_copy_find(d, &a->w.key.uid);
        if (copy == NULL || tb_copy_leaves(copy)) atomic_store(&a->w.stop, true);
        if (atomic_load(&a->done)) write_ended(a);
        return;
    }
    for (uint32_t i = 0; i < LOOKS_MAX && !d->draining && !a->removing; i++) {
        const uint32_t model = next_in_turn(a);
        if (model == TB_MODEL_NONE) return;
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
    if (d->anchors != NULL) atomic_store(&d->anchors->w.stop, true);
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
    TB_EACH_MODEL(d, i)
    {
        char version[48];
        if (a == NULL || !a->models[i].newest.any) continue;
        const struct tb_anchor_which *newest = &a->models[i].newest;
        (void)snprintf(version, sizeof version, "%" PRIu64 ":%" PRIu64, newest->run_order, newest->number);
        (void)json_array_append_new(
            written, json_pack("{s:s, s:s}", "model", tb_model_name(d, i)->text, "version", version));
    }
    const bool writing = a != NULL && a->writing;
    return json_pack("{s:s, s:s, s:I, s:o}", "dir", a != NULL ? d->config->anchor_dir : "", "writing",
                     writing ? a->w.key.model.text : "", "written_bytes",
                     (json_int_t)(writing ? atomic_load(&a->w.written_bytes) : 0), "models", written);
}
