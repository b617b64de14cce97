/* adoption.c - `tombolo adopt MODEL DIR`: takes a version from files of this machine, so that
 * newer versions cross as deltas to it.
 *
 * The command opens the files and hands them over: the gateway itself opens none. It asks other
 * sites for the manifests of their versions. It compares the chunks of the files with all of them.
 * The chunks that match the best version are claimed in its places, and digested there like all
 * that lands (P1). The missing chunks of that version cross before anything newer does.
 *
 * Nothing else of the model crosses meanwhile, because it would cross whole and not as a delta. So
 * adopting ends by itself when the command has gone, or when nothing moves (P6). */
#include "gateway/daemon/daemon.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/version_key.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/views.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/control/control.h"
#include "gateway/daemon/copies/adopt_read.h"
#include "gateway/daemon/copies/adoption.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/links/crossing_room.h"
#include "gateway/daemon/links/crossings.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/shutdown.h"
#include "wan/link/links_stats.h"

#define QUIET_NS  TB_MS(500)     /* since the last version was announced: there are no more */
#define SILENT_NS TB_SECONDS(3)  /* since a link came up, and none was: there is none */
#define ASKED_NS  TB_SECONDS(10) /* a command that has not asked for so long is gone */
#define STILL_NS  TB_SECONDS(30) /* for manifests, for room */
/* for missing chunks: where no site has them any more, newer versions come whole */
#define LACK_NS TB_SECONDS(10)
#define LEAST   10 /* an older version of which less than a tenth is here is no good as a base */

/* clang-format off */
#define PHASES(X)                                                                        \
    X(NONE, "none") X(OPENING, "opening") X(WAITING, "waiting") X(MANIFESTS, "manifests") \
    X(COMPARING, "comparing") X(RESERVING, "reserving") X(CLAIMING, "claiming")           \
    X(COMPLETING, "completing") X(DONE, "done")
/* clang-format on */
enum phase {
#define PHASE_ENUM(name, text) name,
    PHASES(PHASE_ENUM)
#undef PHASE_ENUM
};

struct tb_adopt {
    struct tb_name model;
    enum phase phase;
    enum tb_status status; /* of its end */
    char why[256];
    bool ending;             /* as soon as the thread lets go */
    tb_time_ns asked_at;     /* by the command */
    tb_time_ns announced_at; /* a version of the model */
    tb_time_ns moved_at;
    uint64_t held_bytes; /* of the target, as seen last */
    bool asked[TB_ADOPT_VERSIONS_MAX], gone[TB_ADOPT_VERSIONS_MAX];
    bool has_target, whole;
    struct tb_version_key target;
    struct tb_local_told files;
    uint64_t target_bytes, matched_bytes;
    struct tb_adopt_reading reading;
};

static bool is_running(const struct tb_adopt *a)
{
    return a != NULL && a->phase != NONE && a->phase != DONE;
}

static bool home_is_here(const struct tb_daemon *d, const struct tb_name *model)
{
    struct tb_name home;
    return tb_home_of(d, model, &home) && tb_name_equal(&home, &d->site);
}

/* A version comes to its home from its ranks. Where it crosses to its home, the home has lost
 * it, and other sites may not hold it for long: so adopting does not hold that up. */
bool tb_adopt_holds(const struct tb_daemon *d, const struct tb_version_key *key)
{
    const struct tb_adopt *a = d->adopt;
    if (home_is_here(d, &key->model)) return false;
    if (!is_running(a) || a->ending || !tb_name_equal(&a->model, &key->model)) return false;
    return a->phase != COMPLETING || !tb_id_equal(&a->target.uid, &key->uid);
}

/* ---- its end ---- */

static void let_go(struct tb_adopt *a)
{
    atomic_store(&a->reading.stop, true);
    tb_adopt_read_join(&a->reading);
    if (a->reading.region != NULL) tb_arena_region_unref(a->reading.region);
    a->reading.region = NULL;
    tb_adopt_read_fini(&a->reading);
}

static void ended(struct tb_daemon *d)
{
    struct tb_adopt *a = d->adopt;
    const bool good = a->status == TB_OK;
    TB_ASSERT(a->ending && is_running(a));
    struct tb_log_line l;
    if (a->reading.region !=
        NULL) /* reserved, and not claimed to its end: a link brings the missing chunks */
        TB_MOOT(tb_catalog_crossing_refused(d->catalog, tb_clock_now(), &a->target.uid));
    let_go(a);
    a->phase = DONE;
    if (good)
        tb_log_begin(&l, TB_LOG_INFO, "adopt.done");
    else
        tb_log_begin(&l, TB_LOG_WARN, "adopt.failed");
    tb_log_str(&l, "model", a->model.text);
    if (a->has_target) tb_log_u64(&l, "number", a->target.number);
    tb_log_u64(&l, "claimed_bytes", atomic_load(&a->reading.claimed_bytes));
    if (!good) tb_log_str(&l, "status", tb_status_name(a->status));
    if (a->why[0] != '\0') tb_log_str(&l, "why", a->why);
    tb_log_end(&l);
}

/* At once, or when the thread that may wait for a disk has seen it: the loop waits for no disk
 * (P6). */
static void finish(struct tb_daemon *d, enum tb_status status, const char *why)
{
    struct tb_adopt *a = d->adopt;
    if (a->ending) return;
    a->ending = true;
    a->status = status;
    (void)snprintf(a->why, sizeof a->why, "%.255s", why);
    for (char *c = a->why; *c != '\0'; c++)
        if (*c < ' ' || *c > '~') *c = '?'; /* names of files may be anything, and JSON may not */
    atomic_store(&a->reading.stop, true);
    if (!a->reading.runs || atomic_load(&a->reading.done)) ended(d);
}

static void job(struct tb_daemon *d, enum tb_adopt_job what, enum phase phase)
{
    d->adopt->phase = phase;
    TB_ASSERT(is_running(d->adopt) && !d->adopt->reading.runs);
    if (tb_adopt_read_start(&d->adopt->reading, what) != TB_OK)
        finish(d, TB_SITE_NOMEM, "no thread for reading the files");
}

/* ---- which versions ---- */

/* Newer than each version that is whole here. */
static bool is_wanted(struct tb_daemon *d, const struct tb_catalog_version_view *v)
{
    if (!tb_name_equal(&v->key.model, &d->adopt->model) || v->whole || v->evicting) return false;
    if (v->state != TB_VERSION_READY && v->state != TB_VERSION_KEPT) return false;
    for (const struct tb_copy *c = d->copies; c != NULL; c = c->next)
        if (tb_copy_is_whole(c) && tb_name_equal(&c->key.model, &v->key.model) &&
            tb_version_key_compare(&c->key, &v->key) > 0)
            return false;
    return true;
}

/* Newest first; the oldest go where there are too many. */
static void insert(struct tb_adopt_reading *r, const struct tb_version_key *key)
{
    TB_ASSERT(r->version_count <= TB_ADOPT_VERSIONS_MAX);
    uint32_t at = 0;
    while (at < r->version_count && tb_version_key_compare(&r->versions[at].key, key) > 0)
        at++;
    if (at == TB_ADOPT_VERSIONS_MAX) return;
    if (r->version_count < TB_ADOPT_VERSIONS_MAX) r->version_count++;
    for (uint32_t i = r->version_count - 1; i > at; i--)
        r->versions[i] = r->versions[i - 1];
    r->versions[at] = (struct tb_adopt_version){.key = *key};
}

static void versions_list(struct tb_daemon *d)
{
    struct tb_catalog_version_view v;
    d->adopt->reading.version_count = 0;
    for (uint32_t cursor = 0; tb_catalog_version_at(d->catalog, &cursor, &v);)
        if (is_wanted(d, &v)) insert(&d->adopt->reading, &v.key);
}

/* Since when some link is up; TB_TIME_NEVER: none is. */
static tb_time_ns up_since(struct tb_daemon *d)
{
    static struct tb_links_stats stats; /* large; the main loop's alone */
    tb_time_ns since = TB_TIME_NEVER;
    for (uint32_t i = 0; d->links != NULL && !d->links_restarting && i < d->config->peer_count; i++) {
        tb_links_stats(d->links, i, &stats);
        if (stats.up) since = tb_time_min(since, stats.up_since);
    }
    return since;
}

void tb_adopt_announced(struct tb_daemon *d, const struct tb_name *model)
{
    if (is_running(d->adopt) && tb_name_equal(&d->adopt->model, model))
        d->adopt->announced_at = tb_clock_now();
}

static void step_waiting(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_adopt *a = d->adopt;
    const tb_time_ns up = up_since(d);
    if (up == TB_TIME_NEVER || tb_time_since(up, now) < QUIET_NS) return;
    if (tb_time_since(a->announced_at, now) < QUIET_NS) return;
    versions_list(d);
    if (a->reading.version_count == 0 && tb_time_since(up, now) < SILENT_NS) return;
    a->moved_at = now;
    a->phase = MANIFESTS;
    if (a->reading.version_count == 0)
        finish(d, TB_OK, "no other site has a version that is newer than what is here");
}

/* ---- manifests ---- */

static void fill(struct tb_daemon *d, uint32_t i, const struct tb_manifest *const *manifests)
{
    struct tb_adopt *a = d->adopt;
    TB_ASSERT(i < a->reading.version_count && a->reading.versions[i].shards == NULL);
    if (tb_adopt_version_fill(&a->reading.versions[i], manifests) != TB_OK) a->gone[i] = true;
}

static const struct tb_manifest **pointers_new(uint32_t count)
{
    return tb_calloc(count, sizeof(struct tb_manifest *));
}

/* Of a crossing that has begun they are here. */
static bool fill_from_copy(struct tb_daemon *d, uint32_t i)
{
    const struct tb_copy *copy = tb_copy_find(d, &d->adopt->reading.versions[i].key.uid);
    if (copy == NULL || copy->region == NULL || !tb_arena_region_complete(copy->region)) return false;
    const struct tb_manifest **pointers = pointers_new(copy->key.shard_count);
    if (pointers == NULL) return false;
    for (uint32_t s = 0; s < copy->key.shard_count; s++)
        pointers[s] = tb_arena_place(copy->region, s)->manifest;
    fill(d, i, pointers);
    tb_free(pointers);
    return true;
}

static void ask(struct tb_daemon *d, uint32_t i)
{
    struct tb_adopt *a = d->adopt;
    enum tb_status status = TB_NOT_FOUND;
    TB_ASSERT(a->phase == MANIFESTS && !a->asked[i] && !a->gone[i]);
    if (fill_from_copy(d, i)) return;
    for (uint32_t p = 0; p < d->config->peer_count && status == TB_NOT_FOUND; p++)
        status = tb_links_ask(d->links, p, &a->reading.versions[i].key.uid);
    a->asked[i] = status == TB_OK || status == TB_DONE_BEFORE;
    a->gone[i] = status == TB_NOT_FOUND; /* else too many are on their way: again with the next tick */
}

static uint32_t version_of(const struct tb_adopt *a, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < a->reading.version_count; i++)
        if (tb_id_equal(&a->reading.versions[i].key.uid, uid)) return i;
    return UINT32_MAX;
}

void tb_adopt_manifests(struct tb_daemon *d, const struct tb_version_key *key,
                        const struct tb_manifest *manifests)
{
    struct tb_adopt *a = d->adopt;
    if (!is_running(a) || a->phase != MANIFESTS) return;
    const uint32_t i = version_of(a, &key->uid);
    if (i == UINT32_MAX || a->reading.versions[i].shards != NULL) return;
    const struct tb_manifest **pointers = pointers_new(key->shard_count);
    if (pointers == NULL) return;
    for (uint32_t s = 0; s < key->shard_count; s++)
        pointers[s] = &manifests[s];
    a->reading.versions[i].key = *key;
    fill(d, i, pointers);
    tb_free(pointers);
}

void tb_adopt_failed(struct tb_daemon *d, const struct tb_id *uid)
{
    struct tb_adopt *a = d->adopt;
    if (!is_running(a) || a->phase != MANIFESTS) return;
    const uint32_t i = version_of(a, uid);
    if (i != UINT32_MAX) a->gone[i] = true;
}

static void step_manifests(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_adopt *a = d->adopt;
    const bool late = tb_time_since(a->moved_at, now) > STILL_NS;
    bool any = false, all = true;
    if (d->links == NULL || d->links_restarting) return;
    for (uint32_t i = 0; i < a->reading.version_count; i++) {
        if (a->reading.versions[i].shards == NULL && !a->asked[i] && !a->gone[i]) ask(d, i);
        any = any || a->reading.versions[i].shards != NULL;
        all = all && (a->reading.versions[i].shards != NULL || a->gone[i]);
    }
    if (!all && !late) return;
    if (!any)
        finish(d, TB_PEER_UNREACHABLE, "no site told the digests of a version");
    else
        job(d, TB_ADOPT_COMPARE, COMPARING);
}

/* ---- the target ---- */

/* The version of which the files have most bytes; of equal ones the newest, which is the first. */
static bool choose(struct tb_adopt *a)
{
    const struct tb_adopt_reading *r = &a->reading;
    TB_ASSERT(r->version_count > 0 && r->version_count <= TB_ADOPT_VERSIONS_MAX);
    uint32_t best = 0, newest = UINT32_MAX;
    for (uint32_t i = 0; i < r->version_count; i++) {
        if (newest == UINT32_MAX && r->versions[i].shards != NULL) newest = i;
        if (r->versions[i].matched_bytes > r->versions[best].matched_bytes) best = i;
    }
    if (newest != UINT32_MAX && best != newest &&
        r->versions[best].matched_bytes < r->versions[best].bytes / LEAST)
        best = newest;
    a->reading.target = best;
    a->has_target = r->versions[best].matched_bytes > 0;
    if (!a->has_target) return false;
    a->target = r->versions[best].key;
    a->target_bytes = r->versions[best].bytes;
    a->matched_bytes = r->versions[best].matched_bytes;
    return true;
}

static enum tb_status reserve(struct tb_daemon *d, struct tb_copy *copy)
{
    struct tb_adopt_version *v = &d->adopt->reading.versions[d->adopt->reading.target];
    TB_ASSERT(d->adopt->has_target && v->shards != NULL);
    struct tb_manifest *manifests = tb_calloc(v->key.shard_count, sizeof *manifests);
    if (manifests == NULL) return TB_SITE_NOMEM;
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        manifests[s] = v->shards[s].manifest;
    copy->key = v->key;
    tb_copy_serving_step(&copy->serving, TB_COPY_IS_READY);
    const enum tb_status status = tb_crossing_reserve(copy, manifests);
    tb_free(manifests);
    return status;
}

/* It may have been withdrawn, or have broken, while files were read: nobody would
 * give its memory back. */
static bool may_be_had(const struct tb_daemon *d, const struct tb_id *uid)
{
    struct tb_catalog_version_view v;
    if (!tb_catalog_version_get(d->catalog, uid, &v) || v.evicting) return false;
    return v.state == TB_VERSION_READY || v.state == TB_VERSION_KEPT;
}

static void step_reserving(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_adopt *a = d->adopt;
    TB_ASSERT(a->has_target && a->reading.region == NULL);
    struct tb_copy *copy = may_be_had(d, &a->target.uid) ? tb_copy_get(d, &a->target) : NULL;
    if (copy == NULL || tb_copy_leaves(copy)) {
        finish(d, TB_SUPERSEDED, "the version left this site meanwhile");
        return;
    }
    const enum tb_status status = reserve(d, copy);
    if (status == TB_AGAIN && tb_time_since(a->moved_at, now) < STILL_NS) return;
    if (status != TB_OK) {
        finish(d, TB_SITE_NOMEM,
               "the version does not fit into the arena: the line arena.refused has the numbers");
        return;
    }
    a->reading.region = copy->region;
    tb_arena_region_ref(copy->region);
    job(d, TB_ADOPT_CLAIM, CLAIMING);
}

/* ---- jobs that ended ---- */

static void compared(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_adopt *a = d->adopt;
    a->moved_at = now;
    if (!choose(a))
        finish(d, TB_OK, "no chunk of these files is of a version that other sites have");
    else
        a->phase = RESERVING;
}

static void claimed(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_adopt *a = d->adopt;
    TB_ASSERT(a->reading.region != NULL);
    if (!tb_arena_region_whole(a->reading.region)) /* a link brings the missing chunks */
        TB_MOOT(tb_catalog_crossing_refused(d->catalog, now, &a->target.uid));
    tb_arena_region_unref(a->reading.region);
    a->reading.region = NULL;
    d->counters.adopted_chunks += atomic_load(&a->reading.claimed_chunks);
    a->moved_at = now;
    a->phase = COMPLETING;
}

static void job_ended(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_adopt *a = d->adopt;
    TB_ASSERT(!a->ending && atomic_load(&a->reading.done));
    tb_adopt_read_join(&a->reading);
    if (a->reading.status != TB_OK) {
        finish(d, a->reading.status,
               a->reading.error[0] != '\0' ? a->reading.error : tb_status_text(a->reading.status));
        return;
    }
    if (a->phase == OPENING) tb_local_told(a->reading.files, &a->files);
    if (a->phase == OPENING) a->phase = WAITING;
    if (a->phase == COMPARING) compared(d, now);
    if (a->phase == CLAIMING) claimed(d, now);
}

/* The missing chunks of the target cross first; newer versions are deltas to it then. Behind the
 * newest version itself, nothing waits. */
static void step_completing(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_adopt *a = d->adopt;
    TB_ASSERT(a->has_target && a->reading.region == NULL);
    const struct tb_copy *copy = tb_copy_find(d, &a->target.uid);
    const uint64_t held = copy != NULL ? tb_copy_held_bytes(copy) : 0;
    if (held != a->held_bytes) a->moved_at = now;
    a->held_bytes = held;
    a->whole = copy != NULL && tb_copy_is_whole(copy);
    const bool over = a->whole || a->reading.target == 0 || copy == NULL || tb_copy_leaves(copy);
    if (over || tb_time_since(a->moved_at, now) > LACK_NS) finish(d, TB_OK, "");
}

void tb_adopt_tick(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_adopt *a = d->adopt;
    if (!is_running(a)) return;
    if (a->reading.region != NULL) { /* a version that needs the room takes it */
        const struct tb_copy *copy = tb_copy_find(d, &a->target.uid);
        if (copy == NULL || tb_copy_leaves(copy)) atomic_store(&a->reading.stop, true);
    }
    if (a->phase != COMPLETING && tb_time_since(a->asked_at, now) > ASKED_NS)
        finish(d, TB_CANCELLED, "the command that asked for it is gone");
    if (a->reading.runs) {
        const bool done = atomic_load(&a->reading.done);
        if (done && a->ending) ended(d);
        if (done && is_running(a)) job_ended(d, now);
        return;
    }
    if (a->phase == WAITING) step_waiting(d, now);
    if (a->phase == MANIFESTS) step_manifests(d, now);
    if (a->phase == RESERVING) step_reserving(d, now);
    if (a->phase == COMPLETING) step_completing(d, now);
}

void tb_adopt_stop(struct tb_daemon *d)
{
    if (d->adopt != NULL) atomic_store(&d->adopt->reading.stop, true);
}

void tb_adopt_close(struct tb_daemon *d)
{
    struct tb_adopt *a = d->adopt;
    if (a == NULL) return;
    d->adopt = NULL;
    if (a->reading.runs && !tb_closing_awaits(d, &a->reading.done)) {
        (void)pthread_detach(a->reading.thread);
        tb_closing_left(d, "adopt", a->model.text);
        return; /* it reads on into its region, should its disk ever answer */
    }
    let_go(a);
    tb_free(a);
}

/* ---- the command ---- */

static bool follows(const struct tb_daemon *d, const struct tb_name *model)
{
    return tb_config_subscribe_for(d->config, model) != NULL || home_is_here(d, model);
}

static bool say(struct tb_daemon *d, json_t *reply)
{
    static const char *const names[] = {
#define PHASE_NAME(name, text) [name] = (text),
        PHASES(PHASE_NAME)
#undef PHASE_NAME
    };
    const struct tb_adopt *a = d->adopt;
    char version[48] = "";
    if (a->has_target)
        (void)snprintf(version, sizeof version, "%llu:%llu", (unsigned long long)a->target.run_order,
                       (unsigned long long)a->target.number);
    json_t *o = json_pack(
        "{s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:b}", "model", a->model.text,
        "phase", names[a->phase], "status", tb_status_name(a->status), "why", a->why, "running",
        is_running(a), "files", (json_int_t)a->files.files, "files_passed_over",
        (json_int_t)a->files.passed_over, "read_bytes", (json_int_t)atomic_load(&a->reading.read_bytes),
        "total_bytes", (json_int_t)atomic_load(&a->reading.total_bytes), "version", version, "bytes",
        (json_int_t)a->target_bytes, "matched_bytes", (json_int_t)a->matched_bytes, "claimed_bytes",
        (json_int_t)atomic_load(&a->reading.claimed_bytes), "whole", a->whole);
    return o != NULL && json_object_set_new(reply, "adopt", o) == 0;
}

/* Names in the order of the descriptors that came beside the request. */
static enum tb_status files_take(struct tb_daemon *d, const json_t *names, struct tb_given_files *given,
                                 char *error)
{
    static int fds[TB_CONTROL_FILES_MAX]; /* large; the main loop's alone */
    const uint32_t count = tb_control_files(d->control, fds);
    enum tb_status status = count == json_array_size(names) && count > 0 ? TB_OK : TB_BAD_ARGUMENT;
    for (uint32_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (status == TB_OK && name == NULL) status = TB_BAD_ARGUMENT;
        if (status == TB_OK)
            status = tb_given_add(given, name, fds[i]);
        else
            (void)close(fds[i]);
    }
    if (status == TB_OK) return TB_OK;
    tb_given_close(given);
    snprintf(error, 256, "\"files\" names the descriptors that come with the request, at most %d, in order",
             TB_GIVEN_FILES_MAX);
    return status;
}

static enum tb_status begin(struct tb_daemon *d, const struct tb_name *model, const json_t *files,
                            char *error)
{
    if (d->config->peer_count == 0) {
        snprintf(
            error, 256,
            "this gateway has no `peers`, and adopting is taking from files what another site publishes: "
            "name that site in its configuration, or `tombolo publish` the files");
        return TB_SITE_CONFIG;
    }
    if (is_running(d->adopt)) {
        snprintf(error, 256, "files for \"%s\" are being adopted: one after the other", d->adopt->model.text);
        return TB_CONFLICT;
    }
    if (d->draining) return TB_SITE_DRAINING;
    tb_adopt_close(d);
    struct tb_adopt *a = tb_calloc(1, sizeof *a);
    if (a == NULL) return TB_SITE_NOMEM;
    d->adopt = a;
    a->model = *model;
    a->asked_at = a->announced_at = tb_clock_now(); /* earlier announcements are known */
    const enum tb_status status = files_take(d, files, &a->reading.given, error);
    if (status != TB_OK) {
        tb_adopt_close(d);
        return status;
    }
    tb_log(TB_LOG_INFO, "adopt.begun", "model=%s", model->text);
    job(d, TB_ADOPT_OPEN, OPENING);
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        if (tb_copy_is_crossing(c) && tb_name_equal(&c->key.model, model)) tb_crossing_pause(c);
    tb_daemon_wake(d);
    return TB_OK;
}

/* With "files" it begins, with "cancel" it ends, without either it is looked at: all
 * three say how it stands. */
enum tb_status tb_adopt_command(void *daemon, const json_t *request, json_t *reply, char *error)
{
    struct tb_daemon *d = daemon;
    const char *text = json_string_value(json_object_get(request, "model"));
    const json_t *files = json_object_get(request, "files");
    struct tb_name model;
    enum tb_status status = TB_OK;
    if (text == NULL || tb_name_set(&model, text) != TB_OK) {
        snprintf(error, 256, "adopt needs \"model\", and \"files\" to begin");
        return TB_BAD_ARGUMENT;
    }
    if (!follows(d, &model)) {
        snprintf(error, 256, "model \"%s\" is neither followed nor published here", model.text);
        return TB_NOT_FOUND;
    }
    if (files != NULL) status = begin(d, &model, files, error);
    if (status != TB_OK) return status;
    if (d->adopt == NULL || !tb_name_equal(&d->adopt->model, &model)) {
        snprintf(error, 256, "nothing was adopted for \"%s\" since this gateway started", model.text);
        return TB_NOT_FOUND;
    }
    d->adopt->asked_at = tb_clock_now();
    if (json_is_true(json_object_get(request, "cancel")) && is_running(d->adopt))
        finish(d, TB_CANCELLED, "cancelled");
    return say(d, reply) ? TB_OK : TB_SITE_NOMEM;
}
