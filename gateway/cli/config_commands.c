/* config_commands.c - tombolo config check and explain, over the daemon's own table of keys. */
#include <string.h>

#include "gateway/cli/say.h"
#include "gateway/daemon/config.h"
#include "gateway/daemon/gateway_tls.h"

struct complaints {
    bool json;
    json_t *lines; /* NULL: they go to standard error */
    unsigned count;
};

static void complain(void *user, const char *line)
{
    struct complaints *c = user;
    char clean[1024];
    tb_show_clean(line, clean, sizeof clean);
    c->count++;
    if (c->json)
        (void)json_array_append_new(c->lines, json_string(clean));
    else
        (void)fprintf(stderr, "%s\n", clean);
}

/* Prints what was refused. The exit code of a bad configuration is 1, whatever made it so. */
static enum tb_cli_exit refused(const struct tb_cli_call *call, int status, struct complaints *c)
{
    if (!c->json) {
        (void)fprintf(stderr, "tombolo %s: %s: %u %s (%s)\n", call->command->name, call->arguments[0],
                      c->count, c->count == 1 ? "complaint" : "complaints", tb_status_name(status));
    } else {
        json_t *object = json_pack(
            "{s:i, s:b, s:s, s:s, s:O}", "schema", 1, "ok", 0, "status", tb_status_name(status), "error",
            json_array_size(c->lines) > 0 ? json_string_value(json_array_get(c->lines, 0))
                                          : tb_status_text(status),
            "complaints", c->lines);
        (void)tb_say_object(object);
    }
    return status == TB_SITE_NOMEM ? TB_CLI_SITE : TB_CLI_REFUSED;
}

static enum tb_cli_exit load(const struct tb_cli_call *call, struct tb_config **config_out)
{
    struct complaints c = {.json = tb_cli_given(call, "json"), .lines = json_array()};
    if (c.lines == NULL) return tb_say_failure(call, TB_SITE_NOMEM, "no memory for what may be said");
    const enum tb_status s = tb_config_load(call->arguments[0], complain, &c, config_out);
    const enum tb_cli_exit code = s == TB_OK ? TB_CLI_DONE : refused(call, s, &c);
    json_decref(c.lines);
    return code;
}

/* Whether the certificates would do for a start now. */
static enum tb_cli_exit check_tls(const struct tb_cli_call *call, const struct tb_config *config)
{
    struct complaints c = {.json = tb_cli_given(call, "json"), .lines = json_array()};
    struct tb_tls *tls = NULL;
    char error[512] = "", line[600];
    if (config->tls_cert == NULL) {
        json_decref(c.lines);
        return TB_CLI_DONE;
    }
    const enum tb_status s = tb_gateway_tls(config, &tls, error);
    (void)snprintf(line, sizeof line, "tls: %s", error);
    if (s != TB_OK) complain(&c, line);
    const enum tb_cli_exit code = s == TB_OK ? TB_CLI_DONE : refused(call, s, &c);
    tb_tls_free(tls);
    json_decref(c.lines);
    return code;
}

enum tb_cli_exit tb_cli_config_check(const struct tb_cli_call *call)
{
    struct tb_config *config = NULL;
    enum tb_cli_exit code = load(call, &config);
    if (code != TB_CLI_DONE) return code;
    code = check_tls(call, config);
    if (code != TB_CLI_DONE) {
        tb_config_free(config);
        return code;
    }
    char limit[TB_DESCRIPTORS_TEXT_MAX] = "";
    const bool allowed = tb_descriptors_allowed(config, limit);
    json_t *fields =
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:b}", "file", call->arguments[0], "site",
                  config->site.text, "gateway", config->gateway.text, "peers", (int)config->peer_count,
                  "models", (int)config->model_count, "arena_bytes", (json_int_t)config->arena_bytes,
                  "open_files", (json_int_t)tb_descriptors_needed(config), "open_files_allowed", allowed);
    const enum tb_cli_exit said = tb_say_result(
        call, fields, "%s is good: tombolo://%s/%s, %u peer%s, %u model%s, arena of %s", call->arguments[0],
        config->site.text, config->gateway.text, config->peer_count, config->peer_count == 1 ? "" : "s",
        config->model_count, config->model_count == 1 ? "" : "s", tb_show_bytes(config->arena_bytes).text);
    if (!allowed && !tb_cli_given(call, "json")) /* tombolod may be started with another limit */
        (void)fprintf(stderr, "tombolo config check: %s: %s; tombolod would not start here\n",
                      call->arguments[0], limit);
    tb_config_free(config);
    return said;
}

struct explained {
    json_t *object; /* NULL once there was no memory: half a table would be a lie */
};

static void add_key(void *user, const struct tb_config_key_text *k)
{
    struct explained *e = user;
    if (e->object == NULL) return;
    json_t *keys = json_object_get(e->object, "keys");
    json_t *row =
        json_pack("{s:s, s:s, s:b, s:s?, s:s?, s:s?, s:s}", "key", k->key, "type", k->type, "required",
                  k->required, "default", k->fallback, "range", k->range, "unit", k->unit, "why", k->why);
    if (json_array_append_new(keys, row) == 0) return;
    json_decref(e->object);
    e->object = NULL;
}

static void add_value(void *user, const char *key, const char *value)
{
    struct explained *e = user;
    if (e->object == NULL) return;
    json_t *values = json_object_get(e->object, "values");
    if (json_object_set_new(values, key, value != NULL ? json_string(value) : json_null()) == 0) return;
    json_decref(e->object);
    e->object = NULL;
}

static enum tb_cli_exit explain_json(const struct tb_config *config)
{
    struct explained e = {json_pack("{s:i, s:b, s:[]}", "schema", 1, "ok", 1, "keys")};
    enum tb_status status = tb_config_each_key(add_key, &e);
    if (status == TB_OK && config != NULL && json_object_set_new(e.object, "values", json_object()) != 0)
        status = TB_SITE_NOMEM;
    if (status == TB_OK && config != NULL) status = tb_config_each_value(config, add_value, &e);
    if (status == TB_OK) return tb_say_object(e.object);
    json_decref(e.object);
    return tb_say_object(NULL);
}

enum tb_cli_exit tb_cli_config_explain(const struct tb_cli_call *call)
{
    struct tb_config *config = NULL;
    const bool json = tb_cli_given(call, "json");
    if (json && tb_cli_given(call, "markdown"))
        return tb_say_usage(call->command->name, json, "--json and --markdown exclude each other");
    if (call->argument_count > 0) {
        const enum tb_cli_exit code = load(call, &config);
        if (code != TB_CLI_DONE) return code;
    }
    if (json) {
        const enum tb_cli_exit code = explain_json(config);
        tb_config_free(config);
        return code;
    }
    tb_config_explain(config, tb_cli_given(call, "markdown"), stdout);
    tb_config_free(config);
    return fflush(stdout) == 0 ? TB_CLI_DONE : TB_CLI_SITE;
}
