/* noun_commands.c - tombolo sites, peers, models, versions, workers, groups, streams and chains:
 * lists. And tombolo describe: one of them, with what belongs to it. */
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/noun_commands.h"
#include "gateway/cli/operator/show_table.h"
#include "gateway/cli/options.h"

enum asked { ASK_STATUS = 1, ASK_LAG = 2, ASK_VERSIONS = 4, ASK_STREAMS = 8, ASK_CHAINS = 16 };

/* A table that belongs to what is described: its rows whose field `key` is that of the row. */
struct section {
    const char *title; /* NULL ends a list */
    struct tb_rows (*rows)(const struct tb_answers *);
    const struct tb_column *columns;
    const char *key, *as; /* of its rows, of the row */
    const char *key2;     /* likewise, under one name in both; NULL: none */
};

#define SECTIONS_MAX 4

struct noun {
    const char *many, *one;
    unsigned asks, asks_more; /* for the list; for a description, too */
    struct tb_rows (*rows)(const struct tb_answers *);
    const struct tb_column *columns;
    struct tb_rows (*totals)(const struct tb_answers *); /* that are described; NULL: the rows */
    const struct tb_column *total_columns;
    struct section sections[SECTIONS_MAX];
    bool raw; /* under --json a list is the gateway's own answer */
};

#define ROWS(name) tb_rows_of_##name, tb_columns_of_##name

static const struct noun nouns[] = {
    {"sites",
     "site",
     ASK_STATUS | ASK_LAG,
     ASK_VERSIONS,
     ROWS(sites),
     NULL,
     NULL,
     {{"models", ROWS(lag), "site", "site", NULL}, {"versions", ROWS(holders), "site", "site", NULL}},
     false},
    {"peers",
     "peer",
     ASK_STATUS | ASK_STREAMS,
     0,
     ROWS(peers),
     NULL,
     NULL,
     {{"streams", ROWS(streams), "peer", "peer", NULL}},
     false},
    {"models",
     "model",
     ASK_STATUS | ASK_LAG,
     ASK_VERSIONS,
     ROWS(models),
     NULL,
     NULL,
     {{"sites", ROWS(lag), "model", "model", NULL},
      {"versions", ROWS(versions), "model", "model", NULL},
      {"groups", ROWS(groups), "model", "model", NULL}},
     false},
    {"versions",
     "version",
     ASK_VERSIONS,
     ASK_STATUS | ASK_CHAINS,
     ROWS(versions),
     NULL,
     NULL,
     {{"sites", ROWS(holders), "name", "name", NULL}, {"chain", ROWS(chains), "name", "name", NULL}},
     true},
    {"workers",
     "worker",
     ASK_STATUS,
     ASK_CHAINS,
     ROWS(workers),
     NULL,
     NULL,
     {{"serving", ROWS(serving), "worker", "worker", NULL},
      {"chains", ROWS(chains), "worker", "worker", NULL}},
     false},
    {"groups",
     "group",
     ASK_STATUS,
     0,
     ROWS(groups),
     NULL,
     NULL,
     {{"members", ROWS(serving), "group", "group", "model"}},
     false},
    {"streams", "stream", ASK_STREAMS, 0, ROWS(streams), NULL, NULL, {{0}}, true},
    {"chains",
     "chain",
     ASK_CHAINS,
     0,
     ROWS(chains),
     ROWS(chain_totals),
     {{"members", ROWS(chains), "name", "name", NULL}},
     true},
};

#define NOUN_COUNT (sizeof nouns / sizeof nouns[0])

/* ---- answers ---- */

static void answers_free(struct tb_answers *a)
{
    json_decref(a->status);
    json_decref(a->lag);
    json_decref(a->versions);
    json_decref(a->streams);
    json_decref(a->chains);
}

static enum tb_cli_exit ask_one(const struct tb_cli_call *call, const char *cmd, const char *model,
                                json_t **reply_out)
{
    json_t *request = json_pack("{s:s}", "cmd", cmd);
    if (request != NULL && model != NULL && json_object_set_new(request, "model", json_string(model)) != 0) {
        json_decref(request);
        return tb_say_failure(call, TB_BAD_ARGUMENT, "the model's name is not UTF-8");
    }
    return tb_cli_ask(call, request, reply_out);
}

/* `model`: that alone, of what knows models; NULL: all. */
static enum tb_cli_exit answers_ask(const struct tb_cli_call *call, unsigned asks, const char *model,
                                    struct tb_answers *a)
{
    const struct {
        unsigned bit;
        const char *cmd, *model;
        json_t **reply;
    } rows[] = {{ASK_STATUS, "status", NULL, &a->status},
                {ASK_LAG, "lag", model, &a->lag},
                {ASK_VERSIONS, "versions", model, &a->versions},
                {ASK_STREAMS, "streams", NULL, &a->streams},
                {ASK_CHAINS, "chains", model, &a->chains}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if ((asks & rows[i].bit) == 0) continue;
        const enum tb_cli_exit asked = ask_one(call, rows[i].cmd, rows[i].model, rows[i].reply);
        if (asked != TB_CLI_DONE) return asked;
    }
    return TB_CLI_DONE;
}

/* An answer is bounded (docs/control.md), and says how many there are. A gateway of the release
 * before does not say it of groups and versions. */
static bool leaves_out(const char *many, const struct tb_answers *a, char said_out[64])
{
    static const struct {
        const char *many, *list, *count;
    } bounded[] = {{"versions", "versions", "version_count"},
                   {"workers", "sessions", "session_count"},
                   {"groups", "groups", "group_count"}};
    for (size_t i = 0; i < sizeof bounded / sizeof *bounded; i++) {
        if (strcmp(many, bounded[i].many) != 0) continue;
        const json_t *answer = i == 0 ? a->versions : a->status;
        const size_t listed = json_array_size(json_object_get(answer, bounded[i].list));
        const uint64_t all = tb_count_of(answer, bounded[i].count);
        (void)snprintf(said_out, 64, "%zu of %llu %.16s", listed, (unsigned long long)all, many);
        return listed < all;
    }
    return false;
}

static void note_left_out(const struct tb_cli_call *call, const char *many, const struct tb_answers *a)
{
    char said[64];
    if (leaves_out(many, a, said)) tb_say_note(call, "the gateway's answer has the %s", said);
}

/* ---- a list ---- */

static const struct noun *noun_of(const char *word)
{
    for (size_t i = 0; i < NOUN_COUNT; i++)
        if (strcmp(nouns[i].many, word) == 0 || strcmp(nouns[i].one, word) == 0) return &nouns[i];
    return NULL;
}

/* {"schema": 1, "ok": true, "sites": [...]}. Takes the list. */
static enum tb_cli_exit show_json(const struct tb_cli_call *call, const struct noun *n, struct tb_rows rows)
{
    const enum tb_cli_exit sorted =
        rows.lacking ? TB_CLI_DONE : tb_cli_table_sort(call, rows.list, n->columns);
    if (sorted != TB_CLI_DONE) {
        json_decref(rows.list);
        return sorted;
    }
    if (!rows.lacking && rows.list == NULL) rows.list = json_array();
    if (rows.lacking) {
        json_decref(rows.list);
        rows.list = NULL;
    }
    return tb_say_object(json_pack("{s:i, s:b, s:o}", "schema", 1, "ok", 1, n->many, rows.list));
}

static json_t *answer_of(const struct noun *n, const struct tb_answers *a)
{
    json_t *reply = n->asks == ASK_VERSIONS ? a->versions : n->asks == ASK_STREAMS ? a->streams : a->chains;
    return json_incref(reply);
}

static enum tb_cli_exit list_once(const struct tb_cli_call *call)
{
    struct tb_answers a = {0};
    const struct noun *n = noun_of(call->command->name);
    TB_ASSERT(n != NULL); /* the table of commands says so */
    const bool json = tb_cli_given(call, "json");
    if (json && n->raw && tb_cli_given(call, "sort"))
        return tb_say_usage(n->many, true, "--sort is of tables: --json has the gateway's own answer here");
    enum tb_cli_exit code =
        answers_ask(call, n->asks, call->argument_count > 0 ? call->arguments[0] : NULL, &a);
    if (code == TB_CLI_DONE) {
        if (json && n->raw)
            code = tb_say_object(answer_of(n, &a));
        else if (json)
            code = show_json(call, n, n->rows(&a));
        else
            code = tb_cli_table_show(call, n->rows(&a), n->columns);
        note_left_out(call, n->many, &a);
    }
    answers_free(&a);
    return code;
}

enum tb_cli_exit tb_cli_list(const struct tb_cli_call *call)
{
    return tb_cli_watch(call, list_once);
}

json_t *tb_cli_noun_rows(const struct tb_cli_call *call, const char *noun, const char *model)
{
    struct tb_answers a = {0};
    struct tb_rows rows = {0};
    const struct noun *n = noun_of(noun);
    if (n != NULL && answers_ask(call, n->asks, model, &a) == TB_CLI_DONE) rows = n->rows(&a);
    answers_free(&a);
    return rows.list;
}

const struct tb_column *tb_cli_noun_columns(const char *list)
{
    const struct noun *n = noun_of(list);
    if (strcmp(list, "lag") == 0) return tb_columns_of_lag;
    return n != NULL ? n->columns : NULL;
}

/* ---- one ---- */

static bool has_field(const json_t *row, const char *key, const json_t *value)
{
    const json_t *found = json_object_get(row, key);
    return found != NULL && json_equal(found, value) == 1;
}

/* "policy/12" names "policy/1:12", too. */
static bool is_named(const char *whole, const char *name)
{
    const char *slash = strrchr(whole, '/');
    const char *colon = slash != NULL ? strchr(slash, ':') : NULL;
    if (strcmp(whole, name) == 0) return true;
    if (colon == NULL) return false;
    const size_t model = (size_t)(slash + 1 - whole);
    return strncmp(whole, name, model) == 0 && strcmp(colon + 1, name + model) == 0;
}

/* The run of "policy/1:12"; 0 of what is no version. */
static uint64_t run_of(const char *whole)
{
    const char *slash = strrchr(whole, '/');
    uint64_t run = 0, number = 0;
    return slash != NULL && tb_cli_version_of(slash + 1, &run, &number) ? run : 0;
}

/* Of versions with one number that of the newest run. Borrowed; NULL: none, or several. */
static json_t *find_named(json_t *list, const char *name, size_t *count_out)
{
    json_t *found = NULL;
    uint64_t newest = 0;
    *count_out = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *row = json_array_get(list, i);
        const char *whole = json_string_value(json_object_get(row, "name"));
        if (whole == NULL || !is_named(whole, name)) continue;
        const uint64_t run = run_of(whole);
        if (found != NULL && run < newest) continue;
        *count_out = found != NULL && run == newest ? *count_out + 1 : 1;
        found = row;
        newest = run;
    }
    return *count_out == 1 ? found : NULL;
}

static enum tb_cli_exit refuse_name(const struct tb_cli_call *call, const struct noun *n,
                                    const struct tb_answers *a, const json_t *list, size_t count)
{
    char names[400] = "", said[64];
    size_t used = 0;
    if (count > 1)
        return tb_say_failure(call, TB_CONFLICT,
                              "%zu %s are named \"%.80s\"; `tombolo %s -o wide` lists them", count, n->many,
                              call->arguments[1], n->many);
    if (leaves_out(n->many, a, said))
        return tb_say_failure(call, TB_NOT_FOUND,
                              "there is no %s \"%.80s\" among the %s in the gateway's answer", n->one,
                              call->arguments[1], said);
    for (size_t i = 0; i < json_array_size(list) && used + 64 < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%.60s", used > 0 ? ", " : "",
                                 tb_text_of(json_array_get(list, i), "name").text);
    return tb_say_failure(call, TB_NOT_FOUND, "there is no %s \"%.80s\" here%s%s", n->one, call->arguments[1],
                          used > 0 ? "; there is " : ": there is none", names);
}

/* The rows of a section that belong to the row. Nothing: none do. */
static json_t *rows_of_section(const struct section *s, const struct tb_answers *a, const json_t *row,
                               bool *lacking)
{
    struct tb_rows all = s->rows(a);
    const json_t *value = json_object_get(row, s->as);
    json_t *own = json_array();
    for (size_t i = 0; i < json_array_size(all.list); i++) {
        json_t *one = json_array_get(all.list, i);
        if (!has_field(one, s->key, value)) continue;
        if (s->key2 != NULL && !has_field(one, s->key2, json_object_get(row, s->key2))) continue;
        if (json_array_append(own, one) != 0) *lacking = true;
    }
    *lacking |= all.lacking || own == NULL;
    json_decref(all.list);
    return own;
}

/* {"schema": 1, "ok": true, "noun": "site", "site": {...}, "models": [...]} */
static enum tb_cli_exit describe_json(const struct noun *n, const struct tb_answers *a, json_t *row)
{
    bool lacking = false;
    json_t *o = json_pack("{s:i, s:b, s:s, s:O}", "schema", 1, "ok", 1, "noun", n->one, n->one, row);
    for (const struct section *s = n->sections; s < n->sections + SECTIONS_MAX && s->title != NULL; s++) {
        json_t *rows = rows_of_section(s, a, row, &lacking);
        if (json_object_set_new(o, s->title, rows) != 0) lacking = true;
    }
    if (!lacking) return tb_say_object(o);
    json_decref(o);
    return tb_say_object(NULL);
}

static enum tb_cli_exit describe_text(const struct tb_cli_call *call, const struct noun *n,
                                      const struct tb_answers *a, const json_t *row)
{
    bool lacking = false;
    struct tb_table_style style = tb_cli_table_style(call);
    style.headers = true;
    (void)printf("%s %s\n", n->one, tb_text_of(row, "name").text);
    tb_columns_describe(stdout, n->totals != NULL ? n->total_columns : n->columns, row);
    for (const struct section *s = n->sections; s < n->sections + SECTIONS_MAX && s->title != NULL; s++) {
        json_t *rows = rows_of_section(s, a, row, &lacking);
        (void)printf("\n%s%s\n", s->title, json_array_size(rows) == 0 ? ": none" : "");
        if (json_array_size(rows) > 0) tb_columns_print(stdout, s->columns, rows, &style);
        json_decref(rows);
    }
    return lacking ? tb_say_failure(call, TB_SITE_NOMEM, "no memory for all of it") : TB_CLI_DONE;
}

static enum tb_cli_exit describe_once(const struct tb_cli_call *call)
{
    struct tb_answers a = {0};
    size_t count = 0;
    TB_ASSERT(call->argument_count == 2); /* the table of commands says so */
    const struct noun *n = noun_of(call->arguments[0]);
    if (n == NULL)
        return tb_say_usage(
            "describe", tb_cli_given(call, "json"),
            "\"%.60s\" is not one of site, peer, model, version, worker, group, stream, chain",
            call->arguments[0]);
    enum tb_cli_exit code = answers_ask(call, n->asks | n->asks_more, NULL, &a);
    if (code == TB_CLI_DONE) {
        struct tb_rows all = n->totals != NULL ? n->totals(&a) : n->rows(&a);
        json_t *row = find_named(all.list, call->arguments[1], &count);
        if (all.lacking)
            code = tb_say_failure(call, TB_SITE_NOMEM, "no memory for all of it");
        else if (row == NULL)
            code = refuse_name(call, n, &a, all.list, count);
        else if (tb_cli_given(call, "json"))
            code = describe_json(n, &a, row);
        else
            code = describe_text(call, n, &a, row);
        if (row != NULL) {
            note_left_out(call, n->many, &a);
            if (strcmp(n->one, "group") == 0) note_left_out(call, "workers", &a); /* its members */
        }
        json_decref(all.list);
    }
    answers_free(&a);
    return code;
}

enum tb_cli_exit tb_cli_describe(const struct tb_cli_call *call)
{
    return tb_cli_watch(call, describe_once);
}
