/* config_commands.c - tombolo config check, over the daemon's own table of keys. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "gateway/cli/config_commands.h"
#include "gateway/cli/gateway_user.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/config/bounds.h"
#include "gateway/config/config.h"
#include "gateway/config/start_checks.h"

/* The findings, in two lists; under --json they are printed at the end. */
struct found {
    const struct tb_cli_call *call;
    bool json;
    json_t *errors, *warnings;
    unsigned error_count, warning_count;
    bool held;        /* a gateway has the store */
    char first[1024]; /* error */
};

/* ":NUMBER" at *text, which goes on behind it; 0: there is none. */
static uint32_t number_behind(const char **text)
{
    char *end = NULL;
    if ((*text)[0] != ':' || (*text)[1] < '0' || (*text)[1] > '9') return 0;
    const unsigned long number = strtoul(*text + 1, &end, 10);
    *text = end;
    return number <= INT32_MAX ? (uint32_t)number : 0;
}

/* "FILE:LINE:COLUMN: text" taken apart: as much of the file's name as a line of complaint has. */
static json_t *in_parts(const struct found *f, const char *line)
{
    TB_ASSERT(f->json && f->call->argument_count > 0);
    const size_t name = strlen(f->call->arguments[0]);
    const char *rest = strlen(line) > name ? line + (name < 300 ? name : 300) : line;
    const char *text = rest;
    const uint32_t at = number_behind(&text), column = at > 0 ? number_behind(&text) : 0;
    if (column == 0 || strncmp(text, ": ", 2) != 0)
        return json_pack("{s:i, s:i, s:s}", "line", 0, "column", 0, "text", rest);
    return json_pack("{s:i, s:i, s:s}", "line", (int)at, "column", (int)column, "text", text + 2);
}

static void note(struct found *f, bool error, const char *line)
{
    TB_ASSERT(f->errors != NULL && f->warnings != NULL);
    char clean[1024];
    tb_show_clean(line, clean, sizeof clean);
    if (error && f->error_count++ == 0) (void)snprintf(f->first, sizeof f->first, "%s", clean);
    if (!error) f->warning_count++;
    if (f->json)
        (void)json_array_append_new(error ? f->errors : f->warnings, in_parts(f, clean));
    else
        (void)fprintf(stderr, "%s%s\n", error ? "" : "warning: ", clean);
}

static void on_error(void *user, const char *line)
{
    note(user, true, line);
}

static void on_warning(void *user, const char *line)
{
    note(user, false, line);
}

struct start {
    struct found *found;
    const struct tb_config *config;
};

static void on_finding(void *user, const struct tb_start_finding *finding)
{
    const struct start *s = user;
    char line[1024];
    uint32_t at, column;
    tb_config_place(s->config, finding->key, &at, &column);
    if (!finding->refuses && strcmp(finding->key, "store.path") == 0) s->found->held = true;
    (void)snprintf(line, sizeof line, "%.300s:%u:%u: %s", s->found->call->arguments[0], at, column,
                   finding->text);
    note(s->found, finding->refuses, line);
}

static bool found_begin(struct found *f, const struct tb_cli_call *call)
{
    *f = (struct found){
        .call = call, .json = tb_cli_given(call, "json"), .errors = json_array(), .warnings = json_array()};
    return f->errors != NULL && f->warnings != NULL;
}

static void found_end(struct found *f)
{
    json_decref(f->errors);
    json_decref(f->warnings);
}

static struct tb_shown counted(unsigned count, const char *what)
{
    struct tb_shown shown;
    (void)snprintf(shown.text, sizeof shown.text, "%u %s%s", count, what, count == 1 ? "" : "s");
    return shown;
}

/* Prints what was refused. The exit code of a bad configuration is 1, whatever made it so. */
static enum tb_cli_exit refused(const struct found *f, int status)
{
    TB_ASSERT(status != TB_OK);
    if (!f->json) {
        (void)fprintf(stderr, "tombolo %s: %s: %s, %s (%s)\n", f->call->command->name, f->call->arguments[0],
                      counted(f->error_count, "error").text, counted(f->warning_count, "warning").text,
                      tb_status_name(status));
    } else {
        (void)tb_say_object(json_pack("{s:i, s:b, s:s, s:s, s:O, s:O}", "schema", 1, "ok", 0, "status",
                                      tb_status_name(status), "error",
                                      f->error_count > 0 ? f->first : tb_status_text(status), "errors",
                                      f->errors, "warnings", f->warnings));
    }
    return status == TB_SITE_NOMEM ? TB_CLI_SITE : TB_CLI_REFUSED;
}

/* NULL: no memory. */
static json_t *bounds_json(const struct tb_bounds *bounds)
{
    json_t *object = json_object();
    struct tb_bound bound;
    for (uint32_t cursor = 0; tb_bounds_at(bounds, &cursor, &bound);) {
        if (json_object_set_new(object, bound.name, json_integer((json_int_t)bound.most)) == 0) continue;
        json_decref(object);
        return NULL;
    }
    return object;
}

static bool of_bytes(const char *name)
{
    const size_t length = strlen(name);
    return length > 6 && strcmp(name + length - 6, "_bytes") == 0;
}

static void bounds_print(const struct tb_bounds *bounds)
{
    struct tb_bound bound;
    (void)printf("its tables have at most:");
    for (uint32_t cursor = 0; tb_bounds_at(bounds, &cursor, &bound);) {
        (void)printf("%s %s ", cursor == 1 ? "" : ",", bound.name);
        if (of_bytes(bound.name))
            (void)printf("%s", tb_show_bytes(bound.most).text);
        else
            (void)printf("%" PRIu64, bound.most);
    }
    (void)printf("\n");
}

static enum tb_cli_exit good(const struct found *f, const struct tb_config *config)
{
    TB_ASSERT(f->error_count == 0);
    char limit[TB_DESCRIPTORS_TEXT_MAX] = "";
    const struct tb_bounds bounds = tb_bounds_of(config);
    json_t *fields =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:b, s:o, s:O, s:O}", "file", f->call->arguments[0],
                  "site", config->site.text, "gateway", config->gateway.text, "peers",
                  (int)config->peer_count, "models", (int)config->model_count, "arena_bytes",
                  (json_int_t)config->arena_bytes, "open_files", (json_int_t)tb_descriptors_needed(config),
                  "open_files_allowed", tb_descriptors_allowed(config, limit), "bounds", bounds_json(&bounds),
                  "errors", f->errors, "warnings", f->warnings);
    const enum tb_cli_exit said =
        tb_say_result(f->call, fields, "%s is good: tombolo://%s/%s, %s, %s, arena of %s; %s",
                      f->call->arguments[0], config->site.text, config->gateway.text,
                      counted(config->peer_count, "peer").text, counted(config->model_count, "model").text,
                      tb_show_bytes(config->arena_bytes).text, counted(f->warning_count, "warning").text);
    if (!f->json && tb_cli_given(f->call, "bounds")) bounds_print(&bounds);
    if (f->held && !f->json)
        tb_say_note(f->call, "a gateway runs with this store: the warnings of another process are of it, and "
                             "no fault. `tombolo reload` makes it read the file");
    return said;
}

/* As the gateway will start. To root each file is readable, and the gateway's own files would be
 * another user's. */
static void check_start(struct found *f, const struct tb_config *config)
{
    char user[TB_CLI_USER_BYTES], line[1024];
    const char *file = f->call->arguments[0];
    if (!tb_cli_be_gateway(config->store_path, user))
        tb_say_note(f->call, "checked as root, not as the gateway's user: %s", strerror(errno));
    else if (user[0] != '\0' && !f->json)
        tb_say_note(f->call, "checked as %s, to whom the folder of store.path belongs", user);
    /* A warning: it may be a draft, which is put elsewhere. */
    if (user[0] != '\0' && faccessat(AT_FDCWD, file, R_OK, AT_EACCESS) != 0) {
        (void)snprintf(line, sizeof line, "%.300s:1:1: %s may not read this file: %s", file, user,
                       strerror(errno));
        note(f, false, line);
    }
    tb_start_check(config, on_finding, &(struct start){f, config});
}

enum tb_cli_exit tb_cli_config_check(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 1); /* the table of commands says so */
    struct tb_config *config = NULL;
    struct found f;
    int status = TB_SITE_NOMEM;
    if (found_begin(&f, call))
        status = tb_config_load_warned(call->arguments[0], on_error, on_warning, &f, &config);
    if (status == TB_OK) check_start(&f, config);
    if (status == TB_OK && f.error_count > 0) status = TB_SITE_CONFIG;
    const enum tb_cli_exit code = status == TB_OK ? good(&f, config) : refused(&f, status);
    tb_config_free(config);
    found_end(&f);
    return code;
}
