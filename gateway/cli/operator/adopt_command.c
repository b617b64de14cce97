/* adopt_command.c - tombolo adopt: asks the gateway to take what it can of a version from files,
 * and shows how far it is. This command opens the files, beneath their folder, and hands them over
 * with the request. The gateway reads and digests them; it gives up when this command
 * does not ask any more. */
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/assert.h"
#include "gateway/cli/gateway_session.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/operator_commands.h"
#include "gateway/cli/options.h"
#include "gateway/disk/given_files.h"

#define ASK_TIMEOUT_MS 10000u
#define ASK_EVERY_NS   100000000L

struct adopting {
    const struct tb_cli_call *call;
    const char *model;
    struct tb_progress progress;
    char error[512];
};

/* *adopt_out is borrowed from *reply_out. */
static enum tb_status ask(struct adopting *a, const char *key, json_t *value,
                          const struct tb_control_send *files, json_t **reply_out, const json_t **adopt_out)
{
    TB_ASSERT(key != NULL || value == NULL); /* a value without a key would be lost */
    json_t *request = json_pack("{s:s, s:s}", "cmd", "adopt", "model", a->model);
    enum tb_status s = request != NULL ? TB_OK : TB_BAD_ARGUMENT;
    if (s != TB_OK) (void)snprintf(a->error, sizeof a->error, "the model's name is not UTF-8");
    if (s == TB_OK && key != NULL && json_object_set_new(request, key, value) != 0) {
        (void)snprintf(a->error, sizeof a->error, "the name of a file is not UTF-8");
        s = TB_BAD_ARGUMENT;
    }
    if (s == TB_OK)
        s = tb_control_client_ask_with(tb_control_client_path(a->call), request, files, ASK_TIMEOUT_MS,
                                       reply_out, a->error);
    json_decref(request);
    if (s == TB_OK) *adopt_out = json_object_get(*reply_out, "adopt");
    return s;
}

/* The names of the phases on a terminal, and whether bytes are counted in them. */
static void show(struct adopting *a, const json_t *adopt)
{
    static const struct {
        const char *phase, *text;
    } rows[] = {
        {"opening", "reading headers"},      {"waiting", "waiting for a site that has it"},
        {"manifests", "asking for digests"}, {"comparing", "digesting"},
        {"reserving", "making room"},        {"claiming", "claiming"},
        {"completing", "fetching the rest"},
    };
    const char *phase = json_string_value(json_object_get(adopt, "phase"));
    for (size_t i = 0; phase != NULL && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].phase, phase) == 0)
            tb_progress_show(&a->progress, rows[i].text, tb_count_of(adopt, "read_bytes"),
                             tb_count_of(adopt, "total_bytes"));
}

static bool is_running(const json_t *adopt)
{
    return json_is_true(json_object_get(adopt, "running"));
}

static enum tb_cli_exit give_up(struct adopting *a, enum tb_status why)
{
    TB_ASSERT(why == TB_TIMEOUT || why == TB_CANCELLED);
    json_t *reply = NULL;
    const json_t *adopt = NULL;
    tb_progress_end(&a->progress);
    /* It would end by itself some seconds later. */
    if (ask(a, "cancel", json_true(), NULL, &reply, &adopt) == TB_OK) json_decref(reply);
    return tb_say_failure(a->call, why, why == TB_TIMEOUT ? "not within --timeout" : "interrupted");
}

static enum tb_cli_exit say_end(struct adopting *a, const json_t *adopt)
{
    const uint64_t claimed = tb_count_of(adopt, "claimed_bytes"), bytes = tb_count_of(adopt, "bytes");
    const char *name = json_string_value(json_object_get(adopt, "status"));
    const enum tb_status s = name != NULL ? tb_control_client_status(name) : TB_PEER_GARBLED;
    if (s != TB_OK) return tb_say_failure(a->call, s, "%s", tb_text_of(adopt, "why").text);
    const char *why = json_string_value(json_object_get(adopt, "why"));
    const bool said = why != NULL && why[0] != '\0';
    const bool differs = tb_count_of(adopt, "total_bytes") > 0 && tb_count_of(adopt, "matched_bytes") == 0;
    json_t *fields = json_deep_copy(adopt);
    enum tb_cli_exit code;
    if (said)
        code = tb_say_result(a->call, fields, "nothing adopted: %s", tb_text_of(adopt, "why").text);
    else
        code = tb_say_result(a->call, fields, "adopted: %s %s: %s of %s%s", a->model,
                             tb_text_of(adopt, "version").text, tb_show_bytes(claimed).text,
                             tb_show_bytes(bytes).text,
                             json_is_true(json_object_get(adopt, "whole")) ? ", whole here now" : "");
    return code == TB_CLI_DONE && differs ? TB_CLI_DIFFERS : code;
}

static enum tb_cli_exit follow(struct adopting *a, json_t *reply, const json_t *adopt)
{
    const struct tb_deadline deadline = tb_deadline_of(a->call);
    enum tb_status s = TB_OK;
    while (s == TB_OK && is_running(adopt)) {
        show(a, adopt);
        json_decref(reply);
        reply = NULL;
        if (tb_signals_caught()) return give_up(a, TB_CANCELLED);
        if (tb_deadline_passed(&deadline)) return give_up(a, TB_TIMEOUT);
        (void)nanosleep(&(struct timespec){.tv_nsec = ASK_EVERY_NS}, NULL);
        s = ask(a, NULL, NULL, NULL, &reply, &adopt);
    }
    tb_progress_end(&a->progress);
    const enum tb_cli_exit code = s == TB_OK ? say_end(a, adopt) : tb_say_failure(a->call, s, "%s", a->error);
    json_decref(reply);
    return code;
}

/* The names beside the descriptors; NULL: one is not UTF-8, or there is no memory. */
static json_t *names_of(const struct tb_given_files *given, int fds_out[TB_GIVEN_FILES_MAX])
{
    json_t *names = json_array();
    for (uint32_t i = 0; i < given->count && names != NULL; i++) {
        fds_out[i] = given->files[i].fd;
        if (json_array_append_new(names, json_string(given->files[i].name)) == 0) continue;
        json_decref(names);
        names = NULL;
    }
    return names;
}

/* A folder of many files needs more descriptors than a shell allows at first. */
static void descriptors_raise(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

enum tb_cli_exit tb_cli_adopt(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 2); /* the table of commands says so */
    static struct tb_given_files given;   /* large */
    static int fds[TB_GIVEN_FILES_MAX];
    struct adopting a = {.call = call, .model = call->arguments[0]};
    json_t *reply = NULL;
    const json_t *adopt = NULL;
    descriptors_raise();
    enum tb_status s = tb_given_open(call->arguments[1], tb_cli_text(call, "follow-links"), &given, a.error);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", a.error);
    tb_signals_catch();
    tb_progress_start(&a.progress, call);
    json_t *names = names_of(&given, fds);
    s = ask(&a, "files", names, &(struct tb_control_send){fds, given.count}, &reply, &adopt);
    tb_given_close(&given);
    if (s != TB_OK) return tb_say_failure(call, s, "%s", a.error);
    return follow(&a, reply, adopt);
}
