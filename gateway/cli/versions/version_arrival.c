/* version_arrival.c - one version on its way into its folder: staged, written, activated; and the
 * wait for room where the disk is full. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "gateway/cli/options.h"
#include "gateway/cli/versions/subscribe_run.h"
#include "gateway/cli/versions/unbundle.h"

#define STATUS_BYTES_MAX  (256u << 10)
#define ACTIVATE_EVERY_MS 20u
#define ROOM_EVERY        TB_SECONDS(1) /* a full disk is tried again, at most so often */

/* ---- staging ---- */

/* How much of the version is staged, in bytes, by the chunks that the session counts. */
static uint64_t staged_bytes(const struct tb_following *f, const struct tb_version_info *v, char *text)
{
    uint64_t needed = 0;
    char wanted[TB_HEX_CHARS];
    uint64_t bytes = 0;
    if (tb_status(f->session, "session", text, STATUS_BYTES_MAX, &needed) != TB_OK) return 0;
    tb_follow_uid_text(&v->uid, wanted);
    json_t *status = json_loads(text, 0, NULL);
    const json_t *staged = json_object_get(status, "staged");
    for (size_t i = 0; i < json_array_size(staged); i++) {
        const json_t *row = json_array_get(staged, i);
        const char *uid = json_string_value(json_object_get(row, "uid"));
        const double held = (double)json_integer_value(json_object_get(row, "held_chunks"));
        const double total = (double)json_integer_value(json_object_get(row, "total_chunks"));
        if (uid != NULL && strcmp(uid, wanted) == 0 && total > 0)
            bytes = (uint64_t)((double)v->bytes * held / total);
    }
    json_decref(status);
    return bytes;
}

static int stage(struct tb_following *f, const struct tb_version_info *v)
{
    int s = TB_OK;
    char *text = tb_progress_is_shown(&f->progress) ? tb_malloc(STATUS_BYTES_MAX) : NULL;
    do {
        s = tb_stage(f->subscription, &v->uid, TB_SLICE_MS);
        if (text != NULL && s != TB_OK)
            tb_progress_show(&f->progress, f->what, staged_bytes(f, v, text), v->bytes);
    } while (tb_slice_again(&f->deadline, &s));
    tb_free(text);
    tb_progress_end(&f->progress);
    return s;
}

/* Every item of the staged version; *items_out is the caller's. */
static int list_items(struct tb_following *f, const struct tb_uid *uid, struct tb_item **items_out,
                      uint32_t *count_out)
{
    struct tb_item *items = NULL;
    uint32_t count = 0;
    uint32_t cap = 0;
    for (;;) {
        if (count == cap) {
            cap = cap == 0 ? 256 : cap * 2;
            struct tb_item *larger = tb_realloc(items, cap * sizeof *items);
            if (larger == NULL) {
                tb_free(items);
                return TB_SITE_NOMEM;
            }
            items = larger;
        }
        TB_ASSERT(count < cap);
        memset(&items[count], 0, sizeof items[count]);
        items[count].struct_bytes = sizeof items[count];
        const int s = tb_staged_item(f->subscription, uid, count, &items[count]);
        if (s == TB_END) break;
        if (s != TB_OK) {
            tb_free(items);
            return s;
        }
        count++;
    }
    *items_out = items;
    *count_out = count;
    return TB_OK;
}

/* ---- writing ---- */

static bool on_written(void *user, uint64_t bytes)
{
    struct tb_following *f = user;
    f->written += bytes;
    TB_ASSERT(f->written <= f->to_write);
    tb_progress_show(&f->progress, f->what, f->written, f->to_write);
    return !tb_signals_caught();
}

/* NULL: no memory; half a list would be a lie. */
static json_t *files_of(const struct tb_unbundle *plan)
{
    json_t *files = json_array();
    for (uint32_t i = 0; i < plan->file_count; i++) {
        json_t *file =
            json_pack("{s:s, s:I}", "name", plan->files[i].name, "bytes", (json_int_t)plan->files[i].bytes);
        if (json_array_append_new(files, file) == 0) continue;
        json_decref(files);
        return NULL;
    }
    return files;
}

static char *marker_of(const struct tb_following *f, const struct tb_version_info *v,
                       const struct tb_unbundle *plan)
{
    char uid[TB_HEX_CHARS];
    tb_follow_uid_text(&v->uid, uid);
    json_t *files = files_of(plan);
    if (files == NULL) return NULL;
    json_t *object = json_pack("{s:i, s:s, s:I, s:I, s:s, s:I, s:o}", "schema", 1, "model", f->model, "run",
                               (json_int_t)v->run_order, "number", (json_int_t)v->number, "uid", uid, "bytes",
                               (json_int_t)plan->bytes, "files", files);
    char *text = object == NULL ? NULL : json_dumps(object, JSON_INDENT(1));
    json_decref(object);
    return text;
}

/* Into the temporary folder, which is put in place once all of it is there. */
static enum tb_status write_plan(struct tb_following *f, const struct tb_taking *t,
                                 const struct tb_unbundle *plan)
{
    TB_ASSERT(plan->file_count <= plan->file_cap && plan->span_count <= plan->span_cap);
    char path[TB_FOLDER_PATH_BYTES];
    TB_ASSERT(t->name[0] != '\0');
    char *marker = marker_of(f, t->v, plan);
    if (marker == NULL) return tb_bundle_refuse(&f->folders.error, TB_SITE_NOMEM, "no memory for the marker");
    f->written = 0;
    f->to_write = plan->bytes;
    (void)snprintf(f->what, sizeof f->what, "writing %" PRIu64, t->v->number);
    enum tb_status s = tb_folder_begin(&f->folders, t->name, path);
    if (s == TB_OK) s = tb_unbundle_write(plan, path, marker, on_written, f, &f->folders.error);
    TB_ASSERT(s != TB_OK || f->written == f->to_write); /* all was told of */
    tb_progress_end(&f->progress);
    free(marker);
    if (s == TB_OK) s = tb_folder_place(&f->folders, t->name);
    if (s != TB_OK) tb_folder_discard(&f->folders, t->name);
    return s;
}

static enum tb_status write_once(struct tb_following *f, const struct tb_taking *t)
{
    struct tb_item *items = NULL;
    uint32_t count = 0;
    struct tb_unbundle plan;
    const int listed = list_items(f, &t->v->uid, &items, &count);
    if (listed != TB_OK)
        return tb_bundle_refuse(&f->folders.error, (enum tb_status)listed, "reading the staged version: %s",
                                tb_last_error());
    enum tb_status s = tb_unbundle_plan(items, count, &plan, &f->folders.error);
    if (s == TB_OK) {
        s = write_plan(f, t, &plan);
        tb_unbundle_fini(&plan);
    }
    tb_free(items);
    return s;
}

/* ---- a full disk ---- */

static bool has_room(const struct tb_following *f, uint64_t bytes)
{
    struct statvfs st;
    if (statvfs(f->folders.path, &st) != 0) return true; /* a try will say */
    return (uint64_t)st.f_bavail * st.f_frsize >= bytes;
}

static int ask_newest(const struct tb_following *f, const struct tb_uid *after, uint32_t timeout_ms,
                      struct tb_version_info *v_out)
{
    const struct tb_wait_options options = {.struct_bytes = sizeof options,
                                            .kind = TB_WAIT_LATEST,
                                            .model = f->model,
                                            .after = after,
                                            .timeout_ms = timeout_ms};
    memset(v_out, 0, sizeof *v_out);
    v_out->struct_bytes = sizeof *v_out;
    return tb_wait(f->session, &options, v_out);
}

int tb_follow_wait_room(struct tb_following *f, const struct tb_version_info *v)
{
    const tb_time_ns tried = tb_clock_now();
    for (;;) {
        struct tb_version_info newer;
        int s = ask_newest(f, &v->uid, TB_SLICE_MS, &newer);
        if (s == TB_OK) return TB_SUPERSEDED;
        if (!tb_slice_again(&f->deadline, &s) && s != TB_GATEWAY_AWAY) return s;
        if (tb_time_since(tried, tb_clock_now()) >= ROOM_EVERY && has_room(f, v->bytes)) return TB_OK;
    }
}

static int write_version(struct tb_following *f, const struct tb_taking *t)
{
    for (;;) {
        int s = write_once(f, t);
        if (s == TB_OK) tb_follow_tell_room(f);
        if (s == TB_OK || !f->follows || !tb_folders_full(&f->folders)) return s;
        tb_follow_tell_full(f);
        s = tb_follow_wait_room(f, t->v);
        if (s == TB_OK) continue;
        if (s == TB_SUPERSEDED) return s;
        return tb_bundle_refuse(&f->folders.error, (enum tb_status)s, "waiting for room in %.300s: %s",
                                f->folders.path, s == TB_CANCELLED ? "interrupted" : "not within --timeout");
    }
}

/* ---- one version ---- */

/* So that the site can tell that this reader uses the version; there are no buffers to copy to. */
static int activate(struct tb_following *f, const struct tb_uid *uid)
{
    int s = TB_OK;
    do {
        struct tb_activate_info info = {.struct_bytes = sizeof info};
        s = tb_activate(f->subscription, uid, &info);
        if (s == TB_AGAIN) {
            const struct timespec pause = {.tv_nsec = (long)ACTIVATE_EVERY_MS * 1000000};
            (void)nanosleep(&pause, NULL);
        }
    } while (tb_slice_again(&f->deadline, &s));
    return s;
}

static enum tb_taken fetch_failed(struct tb_following *f, struct tb_taking *t, int status, const char *doing)
{
    TB_ASSERT(status != TB_OK);
    const bool gone = tb_status_scope(status) == TB_SCOPE_VERSION;
    if (f->follows && status == TB_GATEWAY_AWAY) return TB_TAKE_LATER;
    t->code = tb_follow_failed(f, status, doing);
    return gone ? TB_TAKE_SKIPPED : TB_TAKE_FAILED;
}

/* The version is in its folder; then its end is told, so that the site can tell that
 * this reader uses it. */
static enum tb_taken use_staged(struct tb_following *f, struct tb_taking *t)
{
    int s = write_version(f, t);
    if (s == TB_SUPERSEDED) return TB_TAKE_SKIPPED;
    if (s != TB_OK) {
        t->code = tb_follow_folder_failed(f, s);
        return TB_TAKE_FAILED;
    }
    tb_withdrawn_folders_list(f);
    s = activate(f, &t->v->uid);
    if (s == TB_VERSION_WITHDRAWN) tb_withdrawn_folders_ask_all(f);
    return s == TB_OK ? TB_TAKEN : fetch_failed(f, t, s, "activating");
}

/* With --prove the version before goes in its stead, and this one stays to be looked at. */
static int release(struct tb_following *f, const struct tb_taking *t, enum tb_taken taken)
{
    const struct tb_uid before = f->kept;
    if (!tb_cli_given(f->call, "prove") || taken != TB_TAKEN) return tb_release(f->subscription, &t->v->uid);
    const bool any = f->any_kept;
    f->kept = t->v->uid;
    f->any_kept = true;
    return any ? tb_release(f->subscription, &before) : TB_OK;
}

static enum tb_taken fetch(struct tb_following *f, struct tb_taking *t)
{
    (void)snprintf(f->what, sizeof f->what, "fetching %" PRIu64, t->v->number);
    int s = stage(f, t->v);
    if (s != TB_OK) return fetch_failed(f, t, s, f->what);
    const enum tb_taken taken = use_staged(f, t);
    s = release(f, t, taken);
    return s == TB_OK || taken != TB_TAKEN ? taken : fetch_failed(f, t, s, "releasing");
}

/* Looks at what stands in its folder already; ABSENT: nothing does. */
static enum tb_taken look_before(struct tb_following *f, struct tb_taking *t, bool *there_out)
{
    struct tb_folder_marker marker;
    const enum tb_folder_state state = tb_folder_look(&f->folders, t->name, &marker);
    const bool same = (state == TB_FOLDER_STABLE || state == TB_FOLDER_WITHDRAWN) &&
                      strcmp(marker.uid, t->uid) == 0 && strcmp(marker.model, f->model) == 0;
    *there_out = state != TB_FOLDER_ABSENT;
    t->was_there = same && state == TB_FOLDER_STABLE;
    if (!*there_out || t->was_there) return TB_TAKEN;
    if (same)
        t->code = tb_say_failure(f->call, TB_VERSION_WITHDRAWN, "%s has " TB_BUNDLE_WITHDRAWN ": %s", t->path,
                                 TB_WITHDRAWN_WHY);
    else
        t->code = tb_say_failure(f->call, TB_CONFLICT,
                                 "%s holds something else than version %" PRIu64 ":%" PRIu64
                                 " of %s, and is not overwritten: move it away",
                                 t->path, t->v->run_order, t->v->number, f->model);
    return f->follows || same ? TB_TAKE_SKIPPED : TB_TAKE_FAILED;
}

enum tb_taken tb_follow_take(struct tb_following *f, struct tb_taking *t)
{
    bool there = false;
    t->began = tb_clock_now();
    tb_follow_uid_text(&t->v->uid, t->uid);
    tb_folder_name(t->v->run_order, t->v->number, t->name);
    (void)snprintf(t->path, sizeof t->path, "%s/%s", f->folders.path, t->name);
    TB_ASSERT(t->path[0] == '/'); /* DIR is an absolute path */
    const enum tb_taken before = look_before(f, t, &there);
    return there ? before : fetch(f, t);
}
