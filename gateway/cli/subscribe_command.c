/* subscribe_command.c - tombolo subscribe: versions as files, a folder each.
 *
 * What stands in DIR is version_folder.c's. Here: which version is next, how its bytes get there,
 * and what --follow does behind it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/ident.h"
#include "gateway/cli/gateway_session.h"
#include "gateway/cli/output.h"
#include "gateway/cli/unbundle.h"
#include "gateway/cli/version_folder.h"
#include "gateway/cli/version_hook.h"

#define STATUS_BYTES_MAX  (256u << 10)
#define ACTIVATE_EVERY_MS 20u
#define ROOM_EVERY        TB_SECONDS(1) /* a full disk is tried again, at most so often */
#define WITHDRAWN_WHY     "an operator withdrew the version at the model's home"

struct following {
    const struct tb_cli_call *call;
    const char *model;
    bool follows;
    struct tb_folders folders;
    struct tb_session *session;
    struct tb_subscription *subscription;
    struct tb_deadline deadline;
    struct tb_uid done; /* the version handled last */
    bool any_done;
    struct tb_version_info newest; /* of those that were put in place here */
    bool any_newest;
    struct tb_folder_entry *entries; /* what stands in DIR, the newest first */
    uint32_t entry_count;
    uint32_t entry_at; /* the one that is asked about next */
    bool full_told;    /* that the disk is full */
    struct tb_progress progress;
    uint64_t written; /* bytes of the version in hand */
    uint64_t to_write;
    char what[64]; /* for the progress line */
};

/* What became of a version that was next. */
enum taken {
    TAKEN,   /* it stands in its folder */
    SKIPPED, /* it ended, or a newer one came meanwhile */
    LATER,   /* the gateway is away: it is next again */
    FAILED
};

/* A version on its way into its folder. */
struct taking {
    const struct tb_version_info *v;
    char name[TB_FOLDER_NAME_BYTES];
    char path[TB_FOLDER_PATH_BYTES + TB_FOLDER_NAME_BYTES];
    char uid[TB_HEX_CHARS];
    bool was_there;
    tb_time_ns began;
    enum tb_cli_exit code; /* FAILED: which */
};

static enum tb_cli_exit failed(const struct following *f, int status, const char *doing)
{
    if (status == TB_TIMEOUT) return tb_say_failure(f->call, status, "%s: not within --timeout", doing);
    if (status == TB_CANCELLED) return tb_say_failure(f->call, status, "%s: interrupted", doing);
    return tb_say_failure(f->call, status, "%s: %s", doing, tb_last_error());
}

/* Of version_folder.c and unbundle.c. */
static enum tb_cli_exit folder_failed(const struct following *f, int status)
{
    return tb_say_failure(f->call, status, "%s", f->folders.error.text);
}

static void uid_text(const struct tb_uid *uid, char out[TB_HEX_CHARS])
{
    struct tb_id id;
    memcpy(id.bytes, uid->bytes, sizeof id.bytes);
    tb_id_format(&id, out);
}

/* ---- staging ---- */

/* How much of the version is staged, in bytes, by the chunks that the session counts. */
static uint64_t staged_bytes(const struct following *f, const struct tb_version_info *v, char *text)
{
    uint64_t needed = 0;
    char wanted[TB_HEX_CHARS];
    uint64_t bytes = 0;
    if (tb_status(f->session, "session", text, STATUS_BYTES_MAX, &needed) != TB_OK) return 0;
    uid_text(&v->uid, wanted);
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

static int stage(struct following *f, const struct tb_version_info *v)
{
    int s = TB_OK;
    char *text = f->progress.on ? tb_malloc(STATUS_BYTES_MAX) : NULL;
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
static int list_items(struct following *f, const struct tb_uid *uid, struct tb_item **items_out,
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
    struct following *f = user;
    f->written += bytes;
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

static char *marker_of(const struct following *f, const struct tb_version_info *v,
                       const struct tb_unbundle *plan)
{
    char uid[TB_HEX_CHARS];
    uid_text(&v->uid, uid);
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
static enum tb_status write_plan(struct following *f, const struct taking *t, const struct tb_unbundle *plan)
{
    char path[TB_FOLDER_PATH_BYTES];
    char *marker = marker_of(f, t->v, plan);
    if (marker == NULL) return tb_bundle_refuse(&f->folders.error, TB_SITE_NOMEM, "no memory for the marker");
    f->written = 0;
    f->to_write = plan->bytes;
    (void)snprintf(f->what, sizeof f->what, "writing %" PRIu64, t->v->number);
    enum tb_status s = tb_folder_begin(&f->folders, t->name, path);
    if (s == TB_OK) s = tb_unbundle_write(plan, path, marker, on_written, f, &f->folders.error);
    tb_progress_end(&f->progress);
    free(marker);
    if (s == TB_OK) s = tb_folder_place(&f->folders, t->name);
    if (s != TB_OK) tb_folder_discard(&f->folders, t->name);
    return s;
}

static enum tb_status write_once(struct following *f, const struct taking *t)
{
    struct tb_item *items = NULL;
    uint32_t count = 0;
    struct tb_unbundle plan;
    const int listed = list_items(f, &t->v->uid, &items, &count);
    if (listed != TB_OK)
        return tb_bundle_refuse(&f->folders.error, (enum tb_status)listed, "reading what was staged: %s",
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

static bool has_room(const struct following *f, uint64_t bytes)
{
    struct statvfs st;
    if (statvfs(f->folders.path, &st) != 0) return true; /* a try will say */
    return (uint64_t)st.f_bavail * st.f_frsize >= bytes;
}

static int ask_newest(const struct following *f, const struct tb_uid *after, uint32_t timeout_ms,
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

/* TB_OK: it may be tried again. TB_SUPERSEDED: there is a newer one, which is worth the room
 * more. */
static int wait_room(struct following *f, const struct tb_version_info *v)
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

/* Told once; what follows is told when it goes on. */
static void tell_full(struct following *f)
{
    if (!f->full_told)
        (void)tb_say_failure(f->call, TB_SITE_IO, "%s; the follow waits until there is room",
                             f->folders.error.text);
    f->full_told = true;
}

static void tell_room(struct following *f)
{
    if (f->full_told)
        tb_say_note(f->call, "%s: there is room again, and the follow goes on", f->folders.path);
    f->full_told = false;
}

static int write_version(struct following *f, const struct taking *t)
{
    for (;;) {
        int s = write_once(f, t);
        if (s == TB_OK) tell_room(f);
        if (s == TB_OK || !f->follows || !tb_folders_full(&f->folders)) return s;
        tell_full(f);
        s = wait_room(f, t->v);
        if (s == TB_OK) continue;
        if (s == TB_SUPERSEDED) return s;
        return tb_bundle_refuse(&f->folders.error, (enum tb_status)s, "waiting for room in %.300s: %s",
                                f->folders.path, s == TB_CANCELLED ? "interrupted" : "not within --timeout");
    }
}

/* ---- withdrawn versions ---- */

/* Asks the gateway; what it does not know or cannot say is no withdrawal. */
static bool is_withdrawn(const struct following *f, const struct tb_uid *uid)
{
    return tb_wait_site(f->session, uid, NULL, TB_SITE_HOLDS, 0) == TB_VERSION_WITHDRAWN;
}

static void list_entries(struct following *f)
{
    tb_free(f->entries);
    f->entries = NULL;
    f->entry_count = 0;
    f->entry_at = 0;
    /* On failure no folder is asked about until the next version came. */
    if (tb_folders_list(&f->folders, f->model, &f->entries, &f->entry_count) != TB_OK) f->entries = NULL;
}

/* `latest` names no withdrawn version: the newest one that stands takes its place, and
 * without one the link goes. */
static void link_newest(struct following *f)
{
    const char *name = NULL;
    for (uint32_t i = 0; i < f->entry_count && name == NULL; i++)
        if (!f->entries[i].withdrawn) name = f->entries[i].name;
    const enum tb_status s = tb_folder_latest(&f->folders, name);
    if (s != TB_OK) (void)folder_failed(f, s);
}

static void mark_withdrawn(struct following *f, struct tb_folder_entry *entry)
{
    const enum tb_status s = tb_folder_withdraw(&f->folders, entry->name, WITHDRAWN_WHY);
    if (s != TB_OK && s != TB_DONE_BEFORE) {
        if (!tb_folders_full(&f->folders)) (void)folder_failed(f, s);
        return; /* it is asked about again */
    }
    entry->withdrawn = true;
    (void)tb_say_failure(f->call, TB_VERSION_WITHDRAWN,
                         "%s %" PRIu64 ":%" PRIu64 " was withdrawn: %s/%s has " TB_BUNDLE_WITHDRAWN " now",
                         f->model, entry->marker.run, entry->marker.number, f->folders.path, entry->name);
    if (f->follows) link_newest(f);
}

static void ask_about(struct following *f, uint32_t at)
{
    struct tb_folder_entry *entry = &f->entries[at];
    struct tb_id id;
    struct tb_uid uid;
    if (entry->withdrawn || !tb_id_parse(entry->marker.uid, &id)) return;
    memcpy(uid.bytes, id.bytes, sizeof uid.bytes);
    if (is_withdrawn(f, &uid)) mark_withdrawn(f, entry);
}

/* One folder at a time, so that a DIR with many of them costs the gateway a question a slice. */
static void ask_about_next(struct following *f)
{
    if (f->entry_count == 0) return;
    f->entry_at = (f->entry_at + 1) % f->entry_count;
    ask_about(f, f->entry_at);
}

static void ask_about_all(struct following *f)
{
    list_entries(f);
    for (uint32_t i = 0; i < f->entry_count && !tb_signals_caught(); i++)
        ask_about(f, i);
}

/* ---- one version ---- */

static enum tb_cli_exit say_there(const struct following *f, const struct taking *t)
{
    const struct tb_version_info *v = t->v;
    const double seconds = (double)tb_time_since(t->began, tb_clock_now()) / 1e9;
    json_t *fields =
        json_pack("{s:s, s:I, s:I, s:s, s:s, s:I, s:b, s:f}", "model", f->model, "run",
                  (json_int_t)v->run_order, "number", (json_int_t)v->number, "uid", t->uid, "folder", t->path,
                  "bytes", (json_int_t)v->bytes, "was_there", t->was_there, "seconds", seconds);
    return tb_say_result(f->call, fields,
                         t->was_there ? "%s %" PRIu64 ":%" PRIu64 " is in %s already: %s, %s"
                                      : "%s %" PRIu64 ":%" PRIu64 " is in %s: %s, %s",
                         f->model, v->run_order, v->number, t->path, tb_show_bytes(v->bytes).text,
                         tb_show_seconds(seconds).text);
}

/* So that the site can tell that this reader uses the version; there are no buffers to copy to. */
static int activate(struct following *f, const struct tb_uid *uid)
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

static enum taken fetch_failed(struct following *f, struct taking *t, int status, const char *doing)
{
    const bool gone = tb_status_scope(status) == TB_SCOPE_VERSION;
    if (f->follows && status == TB_GATEWAY_AWAY) return LATER;
    t->code = failed(f, status, doing);
    return gone ? SKIPPED : FAILED;
}

/* The version is in its folder; then its end is told, so that the site can tell that
 * this reader uses it. */
static enum taken use_staged(struct following *f, struct taking *t)
{
    int s = write_version(f, t);
    if (s == TB_SUPERSEDED) return SKIPPED;
    if (s != TB_OK) {
        t->code = folder_failed(f, s);
        return FAILED;
    }
    list_entries(f);
    s = activate(f, &t->v->uid);
    if (s == TB_VERSION_WITHDRAWN) ask_about_all(f);
    return s == TB_OK ? TAKEN : fetch_failed(f, t, s, "activating");
}

static enum taken fetch(struct following *f, struct taking *t)
{
    (void)snprintf(f->what, sizeof f->what, "fetching %" PRIu64, t->v->number);
    int s = stage(f, t->v);
    if (s != TB_OK) return fetch_failed(f, t, s, f->what);
    const enum taken taken = use_staged(f, t);
    s = tb_release(f->subscription, &t->v->uid);
    return s == TB_OK || taken != TAKEN ? taken : fetch_failed(f, t, s, "releasing");
}

/* What stands in its folder already; ABSENT: nothing does. */
static enum taken look_before(struct following *f, struct taking *t, bool *there_out)
{
    struct tb_folder_marker marker;
    const enum tb_folder_state state = tb_folder_look(&f->folders, t->name, &marker);
    const bool same = (state == TB_FOLDER_STABLE || state == TB_FOLDER_WITHDRAWN) &&
                      strcmp(marker.uid, t->uid) == 0 && strcmp(marker.model, f->model) == 0;
    *there_out = state != TB_FOLDER_ABSENT;
    t->was_there = same && state == TB_FOLDER_STABLE;
    if (!*there_out || t->was_there) return TAKEN;
    if (same)
        t->code = tb_say_failure(f->call, TB_VERSION_WITHDRAWN, "%s has " TB_BUNDLE_WITHDRAWN ": %s", t->path,
                                 WITHDRAWN_WHY);
    else
        t->code = tb_say_failure(f->call, TB_CONFLICT,
                                 "%s holds something else than version %" PRIu64 ":%" PRIu64
                                 " of %s, and is not overwritten: move it away",
                                 t->path, t->v->run_order, t->v->number, f->model);
    return f->follows || same ? SKIPPED : FAILED;
}

static enum taken take_version(struct following *f, struct taking *t)
{
    bool there = false;
    t->began = tb_clock_now();
    uid_text(&t->v->uid, t->uid);
    tb_folder_name(t->v->run_order, t->v->number, t->name);
    (void)snprintf(t->path, sizeof t->path, "%s/%s", f->folders.path, t->name);
    const enum taken before = look_before(f, t, &there);
    return there ? before : fetch(f, t);
}

/* ---- behind a version that --follow has taken ---- */

static bool is_over(void *user)
{
    const struct following *f = user;
    return tb_signals_caught() || tb_deadline_passed(&f->deadline);
}

/* A failure is told and the follow goes on; the next version runs it again. */
static void run_hook(struct following *f, const struct taking *t)
{
    char why[128];
    const char *command = tb_cli_text(f->call, "on-version");
    if (command == NULL) return;
    const struct tb_version_hook hook = {.command = command,
                                         .model = f->model,
                                         .run = t->v->run_order,
                                         .number = t->v->number,
                                         .uid = t->uid,
                                         .dir = t->path,
                                         .over = is_over,
                                         .user = f};
    const enum tb_status s = tb_version_hook_run(&hook, why);
    if (s == TB_SITE_IO)
        (void)tb_say_failure(f->call, s, "--on-version for %" PRIu64 ":%" PRIu64 ": %s", t->v->run_order,
                             t->v->number, why);
}

/* `latest` first: the command may use it. Older folders last: the command before may use those. */
static enum tb_cli_exit after_version(struct following *f, const struct taking *t)
{
    const uint64_t keep = tb_cli_number(f->call, "keep", 0);
    enum tb_status s = tb_folder_latest(&f->folders, t->name);
    while (s != TB_OK && tb_folders_full(&f->folders)) {
        tell_full(f);
        const int waited = wait_room(f, t->v);
        if (waited != TB_OK && waited != TB_SUPERSEDED) return failed(f, waited, "waiting for room");
        s = tb_folder_latest(&f->folders, t->name);
    }
    if (s != TB_OK) return folder_failed(f, s);
    tell_room(f);
    f->newest = *t->v;
    f->any_newest = true;
    enum tb_cli_exit code = say_there(f, t);
    if (code != TB_CLI_DONE) return code;
    run_hook(f, t);
    if (keep > 0) s = tb_folders_keep(&f->folders, f->model, keep);
    if (s != TB_OK) (void)folder_failed(f, s); /* the next version tries again */
    list_entries(f);
    return code;
}

/* ---- which version ---- */

static int wait_version(struct following *f, uint64_t run, uint64_t number, bool exact,
                        struct tb_version_info *v_out)
{
    int s = TB_OK;
    do {
        const struct tb_wait_options options = {
            .struct_bytes = sizeof options,
            .kind = exact ? TB_WAIT_EXACT : TB_WAIT_LATEST,
            .model = f->model,
            .run_order = run,
            .number = number,
            .after = f->any_done ? &f->done : NULL,
            .timeout_ms = TB_SLICE_MS,
        };
        memset(v_out, 0, sizeof *v_out);
        v_out->struct_bytes = sizeof *v_out;
        s = tb_wait(f->session, &options, v_out);
        if (s != TB_OK)
            tb_progress_show(&f->progress, exact ? "waiting for the version" : "waiting for a version", 0, 0);
        if (s != TB_OK && f->follows) ask_about_next(f);
    } while (tb_slice_again(&f->deadline, &s));
    tb_progress_end(&f->progress);
    return s;
}

/* Which one did not come, and where to look for what there is. */
static enum tb_cli_exit unmet(const struct following *f, int status, const char *version)
{
    char doing[96] = "waiting for a version";
    if (version != NULL) (void)snprintf(doing, sizeof doing, "waiting for version %.40s", version);
    if (status != TB_TIMEOUT) return failed(f, status, doing);
    return tb_say_failure(f->call, status,
                          "%s: not within --timeout; `tombolo versions %s` lists what is here", doing,
                          f->model);
}

/* What an earlier follow left: this one does not go back behind it. */
static void find_newest(struct following *f)
{
    struct tb_id id;
    for (uint32_t i = 0; i < f->entry_count && !f->any_newest; i++) {
        const struct tb_folder_entry *entry = &f->entries[i];
        if (entry->withdrawn || !tb_folder_is_latest(&f->folders, entry->name)) continue;
        if (!tb_id_parse(entry->marker.uid, &id)) continue;
        memcpy(f->newest.uid.bytes, id.bytes, sizeof f->newest.uid.bytes);
        f->newest.run_order = entry->marker.run;
        f->newest.number = entry->marker.number;
        f->any_newest = true;
    }
}

/* P2: after a restart the gateway may offer an older version than the one that stands here, for a
 * while; a home site that lost its store, for ever. */
static bool goes_back(struct following *f, const struct tb_version_info *v)
{
    const struct tb_version_info *newest = &f->newest;
    struct tb_folder_marker marker;
    char name[TB_FOLDER_NAME_BYTES];
    const bool older =
        v->run_order < newest->run_order || (v->run_order == newest->run_order && v->number < newest->number);
    if (!f->any_newest || !older) return false;
    ask_about_all(f);
    tb_folder_name(newest->run_order, newest->number, name);
    if (tb_folder_look(&f->folders, name, &marker) == TB_FOLDER_WITHDRAWN || is_withdrawn(f, &newest->uid))
        return false;
    (void)tb_say_failure(
        f->call, TB_BAD_STATE,
        "the newest version at this site is %" PRIu64 ":%" PRIu64 ", older than %" PRIu64 ":%" PRIu64
        " in %s, which was not withdrawn: the follow waits for a newer one, or remove the link",
        v->run_order, v->number, newest->run_order, newest->number, f->folders.path);
    return true;
}

static enum tb_cli_exit end_of_wait(const struct following *f, int status, const char *version)
{
    /* An interrupt is how following ends. */
    return status == TB_CANCELLED && f->follows && f->any_done ? TB_CLI_DONE : unmet(f, status, version);
}

static enum tb_cli_exit follow(struct following *f)
{
    const char *text = tb_cli_text(f->call, "version");
    uint64_t run = 0;
    uint64_t number = 0;
    if (text != NULL && !tb_cli_version_of(text, &run, &number)) return TB_CLI_USAGE; /* looked at before */
    ask_about_all(f);
    if (f->follows) find_newest(f);
    for (;;) {
        struct tb_version_info v;
        struct taking t = {.v = &v};
        const int s = wait_version(f, run, number, text != NULL, &v);
        if (s == TB_GATEWAY_AWAY && f->follows) continue; /* however long: a deadline or a signal ends it */
        if (s != TB_OK) return end_of_wait(f, s, text);
        const enum taken taken = goes_back(f, &v) ? SKIPPED : take_version(f, &t);
        if (taken == LATER) continue;
        if (taken == TAKEN && !f->follows) return say_there(f, &t);
        if (taken == TAKEN) t.code = after_version(f, &t);
        if (taken == FAILED || (taken == SKIPPED && text != NULL)) return t.code;
        if (taken == TAKEN && t.code != TB_CLI_DONE) return t.code;
        f->done = v.uid;
        f->any_done = f->any_done || f->follows;
    }
}

/* ---- the way through ---- */

static enum tb_cli_exit subscribe_session(struct following *f)
{
    const struct tb_subscribe_options options = {.struct_bytes = sizeof options,
                                                 .member_count = 1,
                                                 .model = f->model,
                                                 .group = tb_cli_text(f->call, "group")};
    const int s = tb_subscribe(f->session, &options, &f->subscription);
    if (s != TB_OK) return failed(f, s, "subscribing");
    const enum tb_cli_exit code = follow(f);
    const int left = tb_unsubscribe(f->subscription);
    return left != TB_OK && code == TB_CLI_DONE ? failed(f, left, "leaving") : code;
}

static enum tb_cli_exit check_options(const struct tb_cli_call *call)
{
    uint64_t run = 0;
    uint64_t number = 0;
    const char *version = tb_cli_text(call, "version");
    const int kinds = (version != NULL) + tb_cli_given(call, "latest") + tb_cli_given(call, "follow");
    const char *why = NULL;
    if (!tb_cli_given(call, "into")) why = "--into DIR is needed";
    if (kinds > 1) why = "--version, --latest and --follow exclude each other";
    if (!tb_cli_given(call, "follow") && (tb_cli_given(call, "keep") || tb_cli_given(call, "on-version")))
        why = "--keep and --on-version need --follow";
    if (tb_cli_given(call, "keep") && tb_cli_number(call, "keep", 0) == 0) why = "--keep takes 1 or more";
    if (version != NULL && !tb_cli_version_of(version, &run, &number)) why = "--version takes N or R:N";
    if (why == NULL) return TB_CLI_DONE;
    return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "%s", why);
}

enum tb_cli_exit tb_cli_subscribe(const struct tb_cli_call *call)
{
    enum tb_cli_exit code = check_options(call);
    if (code != TB_CLI_DONE) return code;
    struct following f = {.call = call,
                          .model = call->arguments[0],
                          .follows = tb_cli_given(call, "follow"),
                          .deadline = tb_deadline_of(call)};
    tb_signals_catch(); /* before files change */
    const enum tb_status opened = tb_folders_open(&f.folders, tb_cli_text(call, "into"));
    if (opened != TB_OK) return folder_failed(&f, opened);
    tb_progress_start(&f.progress, call);
    const int s = tb_gateway_open(call, &f.session);
    if (s == TB_OK) {
        code = subscribe_session(&f);
        tb_session_close(f.session);
    } else {
        code = tb_gateway_unopened(call, s);
    }
    tb_free(f.entries);
    tb_folders_close(&f.folders);
    return code;
}
