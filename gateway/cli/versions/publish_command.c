/* publish_command.c - tombolo publish: files go to the gateway's arena as one shard of a version,
 * straight from the page cache.
 *
 * In place: the mapped files are what the gateway reads, so nothing is copied here, and a version
 * of any size needs no memory of ours. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/ident.h"
#include "base/layout/layout.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/gateway_session.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/cli/versions/bundle.h"
#include "gateway/cli/versions/publish_run.h"
#include "gateway/cli/versions/publish_trial.h"
#include "gateway/cli/versions/publish_wait.h"

#define DRAIN_MS        10000u
#define PROGRESS_ASK_MS 200u

struct publishing {
    const struct tb_cli_call *call;
    const char *model;
    uint64_t number;
    uint32_t shard_index;
    uint32_t shard_count;
    struct tb_deadline deadline;
    struct tb_bundle bundle;
    struct tb_session *session;
    struct tb_registration *registration;
    struct tb_publish_run run;
    struct tb_publish_info info;
    struct tb_publish_wait wait;
    double kept_s;
};

static bool shard_of(const char *text, uint32_t *index_out, uint32_t *count_out)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') return false;
    const unsigned long index = strtoul(text, &end, 10);
    if (*end != '/' || end[1] < '0' || end[1] > '9') return false;
    const unsigned long count = strtoul(end + 1, &end, 10);
    if (*end != '\0' || count < 1 || count > TB_SHARDS_MAX || index >= count) return false;
    *index_out = (uint32_t)index;
    *count_out = (uint32_t)count;
    return true;
}

static enum tb_cli_exit usage(const struct tb_cli_call *call, const char *why)
{
    return tb_say_usage(call->command->name, tb_cli_given(call, "json"), "%s", why);
}

static enum tb_cli_exit read_options(struct publishing *p)
{
    const char *shard = tb_cli_text(p->call, "shard");
    const char *codec = tb_cli_text(p->call, "codec");
    if (!tb_cli_given(p->call, "version")) return usage(p->call, "--version N is needed");
    if (shard != NULL && !shard_of(shard, &p->shard_index, &p->shard_count))
        return usage(p->call, "--shard takes I/N, with I from 0 to N - 1");
    if (shard != NULL && !tb_cli_given(p->call, "run"))
        return usage(p->call, "--shard needs --run KEY: all shards must name one run");
    if (codec != NULL && strcmp(codec, "raw") != 0 && strcmp(codec, "zstd") != 0)
        return usage(p->call, "--codec is raw or zstd");
    TB_ASSERT(p->call->argument_count >= 2); /* the table of commands says so */
    p->model = p->call->arguments[0];
    p->number = tb_cli_number(p->call, "version", 0);
    return TB_CLI_DONE;
}

/* The library's sentence for its last failure, with what we were doing, and whether a file has
 * been replaced by now. */
static enum tb_cli_exit failed(const struct publishing *p, int status, const char *doing)
{
    TB_ASSERT(status != TB_OK && status != TB_DONE_BEFORE);
    struct tb_bundle_error changed;
    const bool any = tb_bundle_changed(&p->bundle, &changed);
    return tb_say_failure(p->call, status, "%s%s%s: %s", any ? changed.text : "", any ? ": " : "", doing,
                          tb_last_error());
}

static int seal(struct publishing *p)
{
    TB_ASSERT((p->registration != NULL) == (p->bundle.tensor_count > 0) && p->shard_index < p->shard_count);
    const struct tb_uid run = p->run.info.run;
    const struct tb_publish_options options = {
        .struct_bytes = sizeof options,
        .mode = TB_PUBLISH_IN_PLACE,
        .model = p->model,
        .run = &run,
        .number = p->number,
        .shard_index = p->shard_index,
        .shard_count = p->shard_count,
        .registration = p->registration,
        .blobs = p->bundle.blobs,
        .blob_count = p->bundle.blob_count,
        .codec = tb_cli_text(p->call, "codec"),
        .retry = 1,
    };
    p->info.struct_bytes = sizeof p->info;
    return tb_publish(p->session, &options, &p->info);
}

/* ---- waiting until it is kept ---- */

/* How much of the version the gateway holds, by the control socket, if that is open to us. */
static bool ask_held(const struct publishing *p, uint64_t *held_out, uint64_t *bytes_out)
{
    json_t *reply = NULL;
    char error[512];
    char wanted[TB_HEX_CHARS];
    struct tb_id id;
    memcpy(id.bytes, p->info.uid.bytes, sizeof id.bytes);
    tb_id_format(&id, wanted);
    json_t *request = json_pack("{s:s, s:s}", "cmd", "versions", "model", p->model);
    const enum tb_status s =
        tb_control_client_ask(tb_control_client_path(p->call), request, PROGRESS_ASK_MS, &reply, error);
    json_decref(request);
    if (s != TB_OK) return false;
    bool found = false;
    const json_t *versions = json_object_get(reply, "versions");
    for (size_t i = 0; i < json_array_size(versions); i++) {
        const json_t *v = json_array_get(versions, i);
        const char *uid = json_string_value(json_object_get(v, "uid"));
        if (uid == NULL || strcmp(uid, wanted) != 0) continue;
        *held_out = (uint64_t)json_integer_value(json_object_get(v, "held_bytes"));
        *bytes_out = (uint64_t)json_integer_value(json_object_get(v, "bytes"));
        found = true;
    }
    json_decref(reply);
    return found;
}

static int wait_until_kept(struct publishing *p)
{
    struct tb_progress progress;
    int s = TB_OK;
    const tb_time_ns began = tb_clock_now();
    tb_progress_start(&progress, p->call);
    do {
        uint64_t held = 0;
        uint64_t bytes = 0;
        s = tb_wait_site(p->session, &p->info.uid, NULL, TB_SITE_HOLDS, TB_SLICE_MS);
        if (progress.on && s != TB_OK) {
            if (!ask_held(p, &held, &bytes)) bytes = 0;
            tb_progress_show(&progress, p->shard_count == 1 ? "to the gateway" : "to the gateway, all shards",
                             held, bytes);
        }
    } while (tb_slice_again(&p->deadline, &s));
    tb_progress_end(&progress);
    p->kept_s = (double)tb_time_since(began, tb_clock_now()) / 1e9;
    return s;
}

/* Also what the run that began with it shut out. */
static json_t *kept_fields(const struct publishing *p)
{
    char uid[TB_HEX_CHARS];
    struct tb_id id;
    const struct tb_run_info *run = &p->run.info;
    const bool shut_out = tb_publish_run_shut_out(&p->run);
    memcpy(id.bytes, p->info.uid.bytes, sizeof id.bytes);
    tb_id_format(&id, uid);
    json_t *fields =
        json_pack("{s:s, s:I, s:I, s:s, s:i, s:i, s:I, s:I, s:i, s:f, s:b, s:b}", "model", p->model, "run",
                  (json_int_t)run->run_order, "number", (json_int_t)p->number, "uid", uid, "shard",
                  (int)p->shard_index, "shards", (int)p->shard_count, "bytes", (json_int_t)p->info.bytes,
                  "encoded_bytes", (json_int_t)p->info.encoded_bytes, "files", (int)p->bundle.file_count,
                  "kept_s", p->kept_s, "new_run", !run->joined, "was_there", tb_publish_run_again(&p->run));
    json_t *out = shut_out ? json_pack("{s:I}", "run", (json_int_t)run->shut_out_run_order) : NULL;
    if (out != NULL && run->shut_out_has_last)
        (void)json_object_set_new(out, "number", json_integer((json_int_t)run->shut_out_number));
    if (fields != NULL && out != NULL) (void)json_object_set_new(fields, "shut_out", out);
    return fields;
}

/* ": run 7, whose newest version is 1000, is shut out" */
static void say_shut_out(const struct publishing *p, char *out, size_t cap)
{
    TB_ASSERT(cap > 0);
    const struct tb_run_info *run = &p->run.info;
    out[0] = '\0';
    if (!tb_publish_run_shut_out(&p->run)) return;
    if (run->shut_out_has_last)
        (void)snprintf(out, cap, "; run %" PRIu64 ", whose newest version is %" PRIu64 ", is shut out",
                       run->shut_out_run_order, run->shut_out_number);
    else
        (void)snprintf(out, cap, "; run %" PRIu64 ", which had no version, is shut out",
                       run->shut_out_run_order);
}

static enum tb_cli_exit say_kept(const struct publishing *p)
{
    char shut_out[128];
    say_shut_out(p, shut_out, sizeof shut_out);
    return tb_say_result(
        p->call, kept_fields(p), "%s %" PRIu64 ":%" PRIu64 " is %s: %s in %u files, %s%s", p->model,
        p->run.info.run_order, p->number, tb_publish_run_again(&p->run) ? "there already" : "kept",
        tb_show_bytes(p->info.bytes).text, p->bundle.file_count, tb_show_seconds(p->kept_s).text, shut_out);
}

static enum tb_cli_exit hold(void)
{
    struct tb_deadline never = {.at = TB_TIME_NEVER};
    int s = TB_TIMEOUT;
    /* Nothing here ends the wait but a signal; the session's own thread serves. */
    while (tb_slice_again(&never, &s)) {
        const struct timespec slice = {.tv_nsec = (long)TB_SLICE_MS * 1000000};
        (void)nanosleep(&slice, NULL);
        s = TB_TIMEOUT;
    }
    return TB_CLI_DONE;
}

static enum tb_cli_exit wait_for_sites(struct publishing *p)
{
    const struct tb_publish_waited version = {p->session, p->model, p->info.uid, &p->deadline};
    return tb_publish_wait(&p->wait, &version);
}

/* ---- the way through ---- */

static enum tb_cli_exit publish_sealed(struct publishing *p)
{
    enum tb_cli_exit code = TB_CLI_DONE;
    const int s = wait_until_kept(p);
    if (s != TB_OK) {
        char doing[96];
        (void)snprintf(doing, sizeof doing, "waiting until version %" PRIu64 " is kept", p->number);
        code = s == TB_TIMEOUT || s == TB_CANCELLED
                   ? tb_say_failure(p->call, s, "%s: %s", doing,
                                    s == TB_TIMEOUT ? "not within --timeout"
                                                    : "interrupted; the gateway may not have all of it")
                   : failed(p, s, doing);
    } else {
        code = say_kept(p);
        if (code == TB_CLI_DONE) code = wait_for_sites(p);
        if (code == TB_CLI_DONE && tb_cli_given(p->call, "hold")) code = hold();
    }
    /* After a failure nobody can take the version from us any more in time: do not wait for
     * readers. */
    const int ended = tb_unpublish(p->session, &p->info.uid, s == TB_OK ? DRAIN_MS : 0);
    if (ended != TB_OK && code == TB_CLI_DONE) code = failed(p, ended, "ending the reference");
    return code;
}

static enum tb_cli_exit publish_registered(struct publishing *p)
{
    TB_ASSERT(p->model != NULL && p->shard_index < p->shard_count); /* read_options */
    p->run = (struct tb_publish_run){
        .call = p->call, .session = p->session, .bundle = &p->bundle, .number = p->number};
    const enum tb_cli_exit opened = tb_publish_run_open(&p->run);
    if (opened != TB_CLI_DONE) return opened;
    struct tb_progress progress;
    tb_progress_start(&progress, p->call);
    tb_progress_show(&progress, "digesting", 0, 0);
    const int s = seal(p);
    tb_progress_end(&progress);
    if (s == TB_CONFLICT && tb_publish_run_again(&p->run)) return tb_publish_run_failed(&p->run, s);
    if (s != TB_OK && s != TB_DONE_BEFORE) return failed(p, s, "publishing");
    return publish_sealed(p);
}

static enum tb_cli_exit publish_session(struct publishing *p)
{
    if (p->bundle.tensor_count > 0) {
        const int s = tb_register(p->session, p->bundle.tensors, p->bundle.tensor_count, &p->registration);
        if (s != TB_OK) return failed(p, s, "registering tensors");
    }
    const enum tb_cli_exit code = publish_registered(p);
    if (p->registration != NULL && tb_unregister(p->registration) != TB_OK) {
        /* The session's end lets go of it. */
        p->registration = NULL;
    }
    return code;
}

enum tb_cli_exit tb_cli_publish(const struct tb_cli_call *call)
{
    struct publishing p = {.call = call, .shard_count = 1, .deadline = tb_deadline_of(call)};
    struct tb_bundle_error error;
    enum tb_cli_exit code = read_options(&p);
    if (code == TB_CLI_DONE) code = tb_publish_wait_read(call, &p.wait);
    if (code != TB_CLI_DONE) return code;
    const struct tb_bundle_paths paths = {.paths = call->arguments + 1,
                                          .count = (uint32_t)call->argument_count - 1,
                                          .exclude = tb_cli_text(call, "exclude"),
                                          .links = tb_cli_text(call, "follow-links")};
    enum tb_status s = tb_bundle_open(&paths, &p.bundle, &error);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", error.text);
    if (p.shard_count > 1) s = tb_bundle_mark(&p.bundle, &error);
    if (s != TB_OK) {
        tb_bundle_close(&p.bundle);
        return tb_say_failure(call, s, "%s", error.text);
    }
    if (tb_cli_given(call, "dry-run")) {
        code = tb_publish_trial(call, p.number, &p.bundle);
        tb_bundle_close(&p.bundle);
        return code;
    }
    tb_signals_catch();
    const int opened = tb_gateway_open_publisher(call, &p.session);
    if (opened == TB_OK) {
        code = publish_session(&p);
        tb_session_close(p.session);
    } else {
        code = tb_gateway_unopened(call, opened);
    }
    tb_bundle_close(&p.bundle);
    return code;
}
