/* subscribe_command.c - tombolo subscribe: versions as files in a folder, each behind its marker. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/ident.h"
#include "gateway/cli/gateway_session.h"
#include "gateway/cli/path_status.h"
#include "gateway/cli/say.h"
#include "gateway/cli/unbundle.h"

#define LOCK_NAME         ".tombolo-lock"
#define MARKER_BYTES_MAX  (4u << 20)
#define STATUS_BYTES_MAX  (256u << 10)
#define ACTIVATE_EVERY_MS 20u

struct following {
    const struct tb_cli_call *call;
    const char *model;
    const char *into;
    int lock;
    struct tb_session *session;
    struct tb_subscription *subscription;
    struct tb_deadline deadline;
    struct tb_uid done; /* the version handled last */
    bool any_done;
    struct tb_progress progress;
    uint64_t written; /* bytes of the version in hand */
    uint64_t to_write;
    char what[64]; /* for the progress line */
};

struct target {
    char path[4096];
    bool whole; /* this version stands there already, with its marker */
};

static enum tb_cli_exit failed(const struct following *f, int status, const char *doing)
{
    if (status == TB_TIMEOUT) return tb_say_failure(f->call, status, "%s: not within --timeout", doing);
    if (status == TB_CANCELLED) return tb_say_failure(f->call, status, "%s: interrupted", doing);
    return tb_say_failure(f->call, status, "%s: %s", doing, tb_last_error());
}

static void uid_text(const struct tb_uid *uid, char out[TB_HEX_CHARS])
{
    struct tb_id id;
    memcpy(id.bytes, uid->bytes, sizeof id.bytes);
    tb_id_format(&id, out);
}

/* ---- which folder ---- */

/* The uid that a folder's marker names; false when there is no marker, or none that can be read. */
static bool marker_uid(const char *folder, char uid_out[TB_HEX_CHARS])
{
    char path[4200];
    (void)snprintf(path, sizeof path, "%s/%s", folder, TB_BUNDLE_MARKER);
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)MARKER_BYTES_MAX) return false;
    json_t *marker = json_load_file(path, 0, NULL);
    const char *uid = json_string_value(json_object_get(marker, "uid"));
    const bool good = uid != NULL && strlen(uid) == TB_HEX_CHARS - 1;
    if (good) memcpy(uid_out, uid, TB_HEX_CHARS);
    json_decref(marker);
    return good;
}

/* DIR/N, or DIR/R-N when that was asked for or DIR/N is another run's: a folder with a marker is never
 * changed. */
static bool target_of(const struct following *f, const struct tb_version_info *v, bool named_run,
                      struct target *t)
{
    char wanted[TB_HEX_CHARS];
    char found[TB_HEX_CHARS];
    uid_text(&v->uid, wanted);
    memset(t, 0, sizeof *t);
    if (!named_run) {
        if (snprintf(t->path, sizeof t->path, "%s/%" PRIu64, f->into, v->number) >= (int)sizeof t->path)
            return false;
        const bool marked = marker_uid(t->path, found);
        t->whole = marked && strcmp(found, wanted) == 0;
        if (!marked || t->whole) return true;
    }
    if (snprintf(t->path, sizeof t->path, "%s/%" PRIu64 "-%" PRIu64, f->into, v->run_order, v->number) >=
        (int)sizeof t->path)
        return false;
    t->whole = marker_uid(t->path, found) && strcmp(found, wanted) == 0;
    return true;
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

static enum tb_cli_exit write_plan(struct following *f, const struct tb_version_info *v,
                                   const struct tb_unbundle *plan, const char *folder)
{
    struct tb_bundle_error error = {""};
    char *marker = marker_of(f, v, plan);
    if (marker == NULL) return tb_say_failure(f->call, TB_SITE_NOMEM, "no memory for the marker");
    f->written = 0;
    f->to_write = plan->bytes;
    (void)snprintf(f->what, sizeof f->what, "writing %" PRIu64, v->number);
    const enum tb_status s = tb_unbundle_write(plan, folder, marker, on_written, f, &error);
    tb_progress_end(&f->progress);
    free(marker);
    return s == TB_OK ? TB_CLI_DONE : tb_say_failure(f->call, s, "%s", error.text);
}

static enum tb_cli_exit write_version(struct following *f, const struct tb_version_info *v,
                                      const char *folder)
{
    struct tb_item *items = NULL;
    uint32_t count = 0;
    struct tb_unbundle plan;
    struct tb_bundle_error error;
    const int listed = list_items(f, &v->uid, &items, &count);
    if (listed != TB_OK) return failed(f, listed, "reading what was staged");
    enum tb_cli_exit code = TB_CLI_DONE;
    const enum tb_status s = tb_unbundle_plan(items, count, &plan, &error);
    if (s != TB_OK) {
        code = tb_say_failure(f->call, s, "%s", error.text);
    } else {
        code = write_plan(f, v, &plan, folder);
        tb_unbundle_fini(&plan);
    }
    tb_free(items);
    return code;
}

/* ---- one version ---- */

static enum tb_cli_exit say_there(const struct following *f, const struct tb_version_info *v,
                                  const struct target *t, tb_time_ns began)
{
    char uid[TB_HEX_CHARS];
    uid_text(&v->uid, uid);
    const double seconds = (double)tb_time_since(began, tb_clock_now()) / 1e9;
    json_t *fields =
        json_pack("{s:s, s:I, s:I, s:s, s:s, s:I, s:b, s:f}", "model", f->model, "run",
                  (json_int_t)v->run_order, "number", (json_int_t)v->number, "uid", uid, "folder", t->path,
                  "bytes", (json_int_t)v->bytes, "was_there", t->whole, "seconds", seconds);
    return tb_say_result(f->call, fields,
                         t->whole ? "%s %" PRIu64 ":%" PRIu64 " is in %s already: %s, %s"
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

/* *gone_out: the version ended on its way, and the caller may ask for another. */
static enum tb_cli_exit take_version(struct following *f, const struct tb_version_info *v, bool named_run,
                                     bool *gone_out)
{
    struct target target;
    const tb_time_ns began = tb_clock_now();
    if (!target_of(f, v, named_run, &target))
        return tb_say_failure(f->call, TB_BAD_ARGUMENT, "%s is too long", f->into);
    if (target.whole) return say_there(f, v, &target, began);
    (void)snprintf(f->what, sizeof f->what, "fetching %" PRIu64, v->number);
    int s = stage(f, v);
    if (s != TB_OK) {
        *gone_out = tb_status_scope(s) == TB_SCOPE_VERSION;
        return failed(f, s, f->what);
    }
    enum tb_cli_exit code = write_version(f, v, target.path);
    if (code == TB_CLI_DONE) {
        s = activate(f, &v->uid);
        *gone_out = tb_status_scope(s) == TB_SCOPE_VERSION;
        if (s != TB_OK) code = failed(f, s, "activating");
    }
    s = tb_release(f->subscription, &v->uid);
    if (s != TB_OK && code == TB_CLI_DONE) code = failed(f, s, "releasing");
    return code == TB_CLI_DONE ? say_there(f, v, &target, began) : code;
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

static enum tb_cli_exit follow(struct following *f)
{
    const char *text = tb_cli_text(f->call, "version");
    const bool follows = tb_cli_given(f->call, "follow");
    uint64_t run = 0;
    uint64_t number = 0;
    if (text != NULL && !tb_cli_version_of(text, &run, &number)) return TB_CLI_USAGE; /* looked at before */
    for (;;) {
        struct tb_version_info v;
        bool gone = false;
        const int s = wait_version(f, run, number, text != NULL, &v);
        if (s == TB_CANCELLED && follows && f->any_done)
            return TB_CLI_DONE;                        /* an interrupt is how following ends */
        if (s == TB_GATEWAY_AWAY && follows) continue; /* however long: a deadline or a signal ends it */
        if (s != TB_OK) return unmet(f, s, text);
        const enum tb_cli_exit code = take_version(f, &v, run != 0, &gone);
        if (code != TB_CLI_DONE && !(gone && text == NULL)) return code;
        if (code == TB_CLI_DONE && !follows) return code;
        f->done = v.uid;
        f->any_done = f->any_done || code == TB_CLI_DONE || follows;
    }
}

/* ---- the way through ---- */

/* Two subscribers in one folder would write each other's part files. */
static enum tb_cli_exit open_folder(struct following *f)
{
    char path[4096];
    if (mkdir(f->into, 0755) != 0 && errno != EEXIST)
        return tb_say_failure(f->call, tb_path_status(errno), "%s: %s", f->into, strerror(errno));
    if (snprintf(path, sizeof path, "%s/%s", f->into, LOCK_NAME) >= (int)sizeof path)
        return tb_say_failure(f->call, TB_BAD_ARGUMENT, "%s is too long", f->into);
    f->lock = tb_sys_open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (f->lock < 0) return tb_say_failure(f->call, tb_path_status(errno), "%s: %s", path, strerror(errno));
    if (flock(f->lock, LOCK_EX | LOCK_NB) == 0) return TB_CLI_DONE;
    (void)close(f->lock);
    return tb_say_failure(f->call, TB_SITE_LOCKED, "another subscribe writes to %s", f->into);
}

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
                          .into = tb_cli_text(call, "into"),
                          .deadline = tb_deadline_of(call)};
    code = open_folder(&f);
    if (code != TB_CLI_DONE) return code;
    tb_signals_catch();
    tb_progress_start(&f.progress, call);
    const int s = tb_gateway_open(call, &f.session);
    if (s == TB_OK) {
        code = subscribe_session(&f);
        tb_session_close(f.session);
    } else {
        code = tb_gateway_unopened(call, s);
    }
    (void)close(f.lock);
    return code;
}
