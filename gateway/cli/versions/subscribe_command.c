/* subscribe_command.c - tombolo subscribe: versions as files, a folder each.
 *
 * version_folder.c keeps what stands in DIR, and version_arrival.c brings a version there. Here:
 * which version is next, and what --follow does after it came. */
#include <inttypes.h>
#include <string.h>

#include <jansson.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/options.h"
#include "gateway/cli/versions/subscribe_run.h"
#include "gateway/cli/versions/version_hook.h"

#define STATUS_BYTES_MAX (4u << 20) /* of a site */

/* ---- behind a version that --follow has taken ---- */

static bool is_over(void *user)
{
    const struct tb_following *f = user;
    return tb_signals_caught() || tb_deadline_passed(&f->deadline);
}

/* A failure is told and the follow goes on; the next version runs it again. */
static void run_hook(struct tb_following *f, const struct tb_taking *t)
{
    TB_ASSERT(t->path[0] == '/'); /* as the hook is told */
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
static enum tb_cli_exit after_version(struct tb_following *f, const struct tb_taking *t)
{
    TB_ASSERT(f->follows && t->name[0] != '\0');
    const uint64_t keep = tb_cli_number(f->call, "keep", 0);
    enum tb_status s = tb_folder_latest(&f->folders, t->name);
    while (s != TB_OK && tb_folders_full(&f->folders)) {
        tb_follow_tell_full(f);
        const int waited = tb_follow_wait_room(f, t->v);
        if (waited != TB_OK && waited != TB_SUPERSEDED)
            return tb_follow_failed(f, waited, "waiting for room");
        s = tb_folder_latest(&f->folders, t->name);
    }
    if (s != TB_OK) return tb_follow_folder_failed(f, s);
    tb_follow_tell_room(f);
    f->newest = *t->v;
    f->any_newest = true;
    enum tb_cli_exit code = tb_follow_say_there(f, t);
    if (code != TB_CLI_DONE) return code;
    run_hook(f, t);
    if (keep > 0) s = tb_folders_keep(&f->folders, f->model, keep);
    if (s != TB_OK) (void)tb_follow_folder_failed(f, s); /* the next version tries again */
    tb_withdrawn_folders_list(f);
    return code;
}

/* ---- which version ---- */

/* The gateway's row of the model; NULL: none. The caller's. */
static json_t *ask_model(const struct tb_following *f)
{
    uint64_t needed = 0;
    json_t *found = NULL;
    char *text = tb_malloc(STATUS_BYTES_MAX);
    const bool told = text != NULL && tb_status(f->session, "site", text, STATUS_BYTES_MAX, &needed) == TB_OK;
    json_t *status = told ? json_loads(text, 0, NULL) : NULL;
    const json_t *models = json_object_get(status, "models");
    for (size_t i = 0; found == NULL && i < json_array_size(models); i++) {
        json_t *m = json_array_get(models, i);
        const char *name = json_string_value(json_object_get(m, "model"));
        if (name != NULL && strcmp(name, f->model) == 0) found = json_incref(m);
    }
    json_decref(status);
    tb_free(text);
    return found;
}

/* The head is on its way to this site: how much of it is here. That is a question to the gateway,
 * so it is asked once a second. */
static void show_crossing(struct tb_following *f, const char *what)
{
    const tb_time_ns now = tb_clock_now();
    if (!tb_progress_is_shown(&f->progress)) return;
    if (f->crossing_at == 0 || tb_time_since(f->crossing_at, now) >= TB_SECONDS(1)) {
        json_t *model = ask_model(f);
        const json_int_t bytes = json_integer_value(json_object_get(model, "head_bytes"));
        const json_int_t left = json_integer_value(json_object_get(model, "lag_bytes"));
        f->crossing_at = now;
        f->crossing_bytes = left > 0 && left <= bytes ? (uint64_t)bytes : 0;
        f->crossed_bytes = f->crossing_bytes > 0 ? (uint64_t)(bytes - left) : 0;
        json_decref(model);
    }
    tb_progress_show(&f->progress, f->crossing_bytes > 0 ? "crossing to this site" : what, f->crossed_bytes,
                     f->crossing_bytes);
}

static int wait_version(struct tb_following *f, uint64_t run, uint64_t number, bool exact,
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
        if (s != TB_OK) show_crossing(f, exact ? "waiting for the version" : "waiting for a version");
        if (s != TB_OK && f->follows) tb_withdrawn_folders_ask_next(f);
    } while (tb_slice_again(&f->deadline, &s));
    tb_progress_end(&f->progress);
    return s;
}

/* Which one did not come, and where to look for what there is. */
static enum tb_cli_exit unmet(const struct tb_following *f, int status, const char *version)
{
    TB_ASSERT(status != TB_OK);
    char doing[96] = "waiting for a version";
    if (version != NULL) (void)snprintf(doing, sizeof doing, "waiting for version %.40s", version);
    if (status != TB_TIMEOUT) return tb_follow_failed(f, status, doing);
    return tb_say_failure(f->call, status,
                          "%s: not within --timeout; `tombolo versions %s` lists what is here", doing,
                          f->model);
}

/* The folders that an earlier follow left: this one does not go back behind them. */
static void find_newest(struct tb_following *f)
{
    TB_ASSERT(f->follows && !f->any_newest && !f->any_done);
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

/* An operator pinned that version at this site (`tombolo pin`, `tombolo rollback`). */
static bool is_pinned(const struct tb_following *f, const struct tb_version_info *v)
{
    char version[64];
    (void)snprintf(version, sizeof version, "%" PRIu64 ":%" PRIu64, v->run_order, v->number);
    json_t *model = ask_model(f);
    const char *pin = json_string_value(json_object_get(json_object_get(model, "pin"), "version"));
    const bool pinned = pin != NULL && strcmp(pin, version) == 0;
    json_decref(model);
    return pinned;
}

/* P2: after a restart the gateway may offer an older version than the one that stands here, for a
 * while; a home site that lost its store, for ever. */
static bool goes_back(struct tb_following *f, const struct tb_version_info *v)
{
    const struct tb_version_info *newest = &f->newest;
    struct tb_folder_marker marker;
    char name[TB_FOLDER_NAME_BYTES];
    const bool older =
        v->run_order < newest->run_order || (v->run_order == newest->run_order && v->number < newest->number);
    if (!f->any_newest || !older) return false;
    tb_withdrawn_folders_ask_all(f);
    tb_folder_name(newest->run_order, newest->number, name);
    if (tb_folder_look(&f->folders, name, &marker) == TB_FOLDER_WITHDRAWN ||
        tb_withdrawn_folders_has(f, &newest->uid))
        return false;
    if (is_pinned(f, v)) return false;
    (void)tb_say_failure(f->call, TB_BAD_STATE,
                         "the newest version at this site is %" PRIu64 ":%" PRIu64 ", older than %" PRIu64
                         ":%" PRIu64 " in %s, which was not withdrawn, and no operator pinned the older one: "
                         "the follow waits for a newer one, or remove the link",
                         v->run_order, v->number, newest->run_order, newest->number, f->folders.path);
    return true;
}

static enum tb_cli_exit end_of_wait(const struct tb_following *f, int status, const char *version)
{
    /* An interrupt is how following ends. */
    return status == TB_CANCELLED && f->follows && f->any_done ? TB_CLI_DONE : unmet(f, status, version);
}

static enum tb_cli_exit follow(struct tb_following *f)
{
    const char *text = tb_cli_text(f->call, "version");
    uint64_t run = 0;
    uint64_t number = 0;
    if (text != NULL && !tb_cli_version_of(text, &run, &number)) return TB_CLI_USAGE; /* looked at before */
    tb_withdrawn_folders_ask_all(f);
    if (f->follows) find_newest(f);
    for (;;) {
        struct tb_version_info v;
        struct tb_taking t = {.v = &v};
        const int s = wait_version(f, run, number, text != NULL, &v);
        if (s == TB_GATEWAY_AWAY && f->follows) continue; /* however long: a deadline or a signal ends it */
        if (s != TB_OK) return end_of_wait(f, s, text);
        const enum tb_taken taken = goes_back(f, &v) ? TB_TAKE_SKIPPED : tb_follow_take(f, &t);
        if (taken == TB_TAKE_LATER) continue;
        if (taken == TB_TAKEN && !f->follows) return tb_follow_say_there(f, &t);
        if (taken == TB_TAKEN) t.code = after_version(f, &t);
        if (taken == TB_TAKE_FAILED || (taken == TB_TAKE_SKIPPED && text != NULL)) return t.code;
        if (taken == TB_TAKEN && t.code != TB_CLI_DONE) return t.code;
        f->done = v.uid;
        f->any_done = f->any_done || f->follows;
    }
}

/* ---- the way through ---- */

static enum tb_cli_exit subscribe_session(struct tb_following *f)
{
    const struct tb_subscribe_options options = {.struct_bytes = sizeof options,
                                                 .member_count = 1,
                                                 .model = f->model,
                                                 .prove = tb_cli_given(f->call, "prove") ? TB_PROVE_ALWAYS
                                                                                         : TB_PROVE_ASKED,
                                                 .group = tb_cli_text(f->call, "group"),
                                                 .home_ca = tb_cli_text(f->call, "home-ca")};
    const int s = tb_subscribe(f->session, &options, &f->subscription);
    if (s != TB_OK) return tb_follow_failed(f, s, "subscribing");
    const enum tb_cli_exit code = follow(f);
    const int left = tb_unsubscribe(f->subscription);
    return left != TB_OK && code == TB_CLI_DONE ? tb_follow_failed(f, left, "leaving") : code;
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
    if (!tb_cli_given(call, "follow") && tb_cli_given(call, "prove")) why = "--prove needs --follow";
    if (tb_cli_given(call, "keep") && tb_cli_number(call, "keep", 0) == 0) why = "--keep takes 1 or more";
    if (version != NULL && !tb_cli_version_of(version, &run, &number)) why = "--version takes N or R:N";
    if (why == NULL) return TB_CLI_DONE;
    return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "%s", why);
}

enum tb_cli_exit tb_cli_subscribe(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 1); /* the table of commands says so */
    enum tb_cli_exit code = check_options(call);
    if (code != TB_CLI_DONE) return code;
    struct tb_following f = {.call = call,
                             .model = call->arguments[0],
                             .follows = tb_cli_given(call, "follow"),
                             .deadline = tb_deadline_of(call)};
    tb_signals_catch(); /* before files change */
    const enum tb_status opened = tb_folders_open(&f.folders, tb_cli_text(call, "into"));
    if (opened != TB_OK) return tb_follow_folder_failed(&f, opened);
    tb_progress_start_lines(&f.progress, call);
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
