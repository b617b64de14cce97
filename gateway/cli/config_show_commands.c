/* config_show_commands.c - tombolo config show, explain and diff: files, and what a gateway runs
 * with. */
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/config_commands.h"
#include "gateway/cli/config_model.h"
#include "gateway/cli/operator/config_changes.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/options.h"
#include "gateway/config/config.h"
#include "gateway/config/config_difference.h"

/* ---- a configuration: of a file, or of the gateway ---- */

struct complaints {
    const struct tb_cli_call *call;
    char first[1024];
};

static void complain(void *user, const char *line)
{
    struct complaints *c = user;
    char clean[1024];
    tb_show_clean(line, clean, sizeof clean);
    if (c->first[0] == '\0') (void)snprintf(c->first, sizeof c->first, "%s", clean);
    if (!tb_cli_given(c->call, "json")) (void)fprintf(stderr, "%s\n", clean);
}

static void warn(void *user, const char *line)
{
    (void)user, (void)line; /* config check tells of them */
}

static enum tb_cli_exit of_file(const struct tb_cli_call *call, const char *path,
                                struct tb_config **config_out)
{
    struct complaints c = {.call = call};
    const enum tb_status status = tb_config_load_warned(path, complain, warn, &c, config_out);
    if (status == TB_OK) return TB_CLI_DONE;
    return tb_say_failure(call, status, "%s", c.first[0] != '\0' ? c.first : tb_status_text(status));
}

static enum tb_cli_exit of_gateway(const struct tb_cli_call *call, struct tb_config **config_out)
{
    struct complaints c = {.call = call};
    json_t *reply = NULL;
    const enum tb_cli_exit asked = tb_cli_ask(call, json_pack("{s:s}", "cmd", "config"), &reply);
    if (asked != TB_CLI_DONE) return asked;
    const char *text = json_string_value(json_object_get(reply, "document"));
    enum tb_status status = TB_PEER_GARBLED;
    if (text != NULL) status = tb_config_parse_running(text, strlen(text), complain, &c, config_out);
    json_decref(reply);
    if (status == TB_OK) return TB_CLI_DONE;
    return tb_say_failure(call, status, "the gateway's configuration is not one of this release");
}

/* ---- show ---- */

struct shown {
    const struct tb_config *config;
    const char *file; /* NULL: of the gateway */
    json_t *rows;     /* NULL: there was no memory */
};

static void row_add(void *user, const char *key, const char *value)
{
    struct shown *s = user;
    char from[512];
    uint32_t line = 0, column = 0;
    const bool written = s->file != NULL && tb_config_written(s->config, key, &line, &column);
    if (s->rows == NULL) return;
    if (written)
        (void)snprintf(from, sizeof from, "%.400s:%u", s->file, line);
    else
        (void)snprintf(from, sizeof from, "%s", s->file != NULL ? "default" : "gateway");
    if (json_object_set_new(s->rows, key, json_pack("{s:s?, s:s}", "value", value, "from", from)) == 0)
        return;
    json_decref(s->rows);
    s->rows = NULL;
}

static enum tb_cli_exit show_json(const struct tb_config *config, const char *file)
{
    struct shown s = {config, file, json_object()};
    const enum tb_status status = tb_config_each_value(config, row_add, &s);
    if (status == TB_OK)
        return tb_say_object(json_pack("{s:i, s:b, s:o}", "schema", 1, "ok", 1, "values", s.rows));
    json_decref(s.rows);
    return tb_say_object(NULL);
}

enum tb_cli_exit tb_cli_config_show(const struct tb_cli_call *call)
{
    struct tb_config *config = NULL;
    const char *file = call->argument_count > 0 ? call->arguments[0] : NULL;
    const enum tb_cli_exit code = file != NULL ? of_file(call, file, &config) : of_gateway(call, &config);
    if (code != TB_CLI_DONE) return code;
    enum tb_cli_exit said = TB_CLI_DONE;
    if (tb_cli_given(call, "model"))
        said = tb_cli_config_model(call, config, file);
    else if (tb_cli_given(call, "json"))
        said = show_json(config, file);
    else
        tb_config_write(config, file, file == NULL || tb_cli_given(call, "effective"), stdout);
    tb_config_free(config);
    return fflush(stdout) == 0 ? said : TB_CLI_SITE;
}

/* ---- explain ---- */

struct explained {
    json_t *object;   /* NULL once there was no memory: half a table would be a lie */
    const char *word; /* NULL: all */
};

static void add_key(void *user, const struct tb_config_key_text *k)
{
    struct explained *e = user;
    if (e->object == NULL || (e->word != NULL && !tb_config_key_named(k->key, e->word))) return;
    json_t *keys = json_object_get(e->object, "keys");
    json_t *row =
        json_pack("{s:s, s:s, s:b, s:s?, s:s?, s:s?, s:s, s:s, s:s}", "key", k->key, "type", k->type,
                  "required", k->required, "default", k->fallback, "range", k->range, "unit", k->unit,
                  "change", k->live ? "live" : "restart", "how", k->how, "why", k->why);
    if (json_array_append_new(keys, row) == 0) return;
    json_decref(e->object);
    e->object = NULL;
}

static enum tb_cli_exit unknown_key(const struct tb_cli_call *call)
{
    return tb_say_failure(call, TB_NOT_FOUND,
                          "there is no key or section \"%.80s\"; see `tombolo config explain`",
                          call->arguments[0]);
}

static enum tb_cli_exit explain_json(const struct tb_cli_call *call, const char *word)
{
    struct explained e = {json_pack("{s:i, s:b, s:[]}", "schema", 1, "ok", 1, "keys"), word};
    const enum tb_status status = tb_config_each_key(add_key, &e);
    if (status == TB_OK && e.object != NULL && json_array_size(json_object_get(e.object, "keys")) == 0) {
        json_decref(e.object);
        return unknown_key(call);
    }
    if (status == TB_OK) return tb_say_object(e.object);
    json_decref(e.object);
    return tb_say_object(NULL);
}

enum tb_cli_exit tb_cli_config_explain(const struct tb_cli_call *call)
{
    const bool json = tb_cli_given(call, "json"), man = tb_cli_given(call, "man");
    const bool markdown = tb_cli_given(call, "markdown");
    const char *word = call->argument_count > 0 ? call->arguments[0] : NULL;
    if (json + markdown + man + (word != NULL && !json) > 1)
        return tb_say_usage(call->command->name, json,
                            "KEY, --json, --markdown and --man exclude each other");
    if (json) return explain_json(call, word);
    if (man && tb_config_man(stdout) != TB_OK) return TB_CLI_SITE;
    if (word != NULL && tb_config_explain_key(word, stdout) == 0) return unknown_key(call);
    if (!man && word == NULL) tb_config_explain(markdown, stdout);
    return fflush(stdout) == 0 ? TB_CLI_DONE : TB_CLI_SITE;
}

/* ---- diff ---- */

static enum tb_cli_exit differ(const struct tb_cli_call *call, const struct tb_config *was,
                               const struct tb_config *is)
{
    struct tb_config_difference d;
    if (tb_config_differ(was, is, NULL, &d) != TB_OK) return tb_say_object(NULL);
    json_t *changes = json_array();
    bool ok = changes != NULL;
    for (uint32_t i = 0; ok && i < d.count; i++) {
        const struct tb_config_change *c = &d.changes[i];
        ok = json_array_append_new(changes,
                                   json_pack("{s:s, s:s, s:s?, s:s?, s:s, s:s}", "key", c->key, "kind",
                                             tb_config_change_name(c->kind), "was", c->was, "is", c->is,
                                             "effect", tb_config_effect_name(c->effect), "how", c->how)) == 0;
    }
    const bool same = d.count == 0;
    tb_config_difference_free(&d);
    if (!ok || tb_cli_given(call, "json")) {
        json_t *object = ok ? json_pack("{s:i, s:b, s:o}", "schema", 1, "ok", 1, "changes", changes) : NULL;
        const enum tb_cli_exit said = tb_say_object(object);
        return said != TB_CLI_DONE || same ? said : TB_CLI_DIFFERS;
    }
    tb_config_changes_print(changes, stdout);
    json_decref(changes);
    return same ? TB_CLI_DONE : TB_CLI_DIFFERS;
}

enum tb_cli_exit tb_cli_config_diff(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 1 || call->argument_count == 2); /* the table of commands says so */
    struct tb_config *first = NULL, *second = NULL;
    enum tb_cli_exit code = of_file(call, call->arguments[0], &first);
    if (code == TB_CLI_DONE)
        code = call->argument_count == 2 ? of_file(call, call->arguments[1], &second)
                                         : of_gateway(call, &second);
    if (code == TB_CLI_DONE)
        code = call->argument_count == 2 ? differ(call, first, second) : differ(call, second, first);
    tb_config_free(first);
    tb_config_free(second);
    return code;
}
