/* noun_workers.c - rows of workers, of what they compute from, and of reader groups. See
 * noun_rows.h. */
#include <inttypes.h>
#include <string.h>

#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/noun_rows.h"

const struct tb_column tb_columns_of_workers[] = {
    {"worker", "worker", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"host", "host", TB_COLUMN_TEXT, TB_SHOW},
    {"state", "state", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"since_s", "since s", TB_COLUMN_S, TB_SHOW},
    {"publishes", "publishes", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"subscribes", "follows", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"serving", "computes from", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"proof", "proof", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"proof_age_s", "proof age s", TB_COLUMN_S, TB_SHOW_FILLED},
    {"stall_ms", "stall ms", TB_COLUMN_MS, TB_SHOW_WIDE},
    {"lease_left_s", "lease s", TB_COLUMN_S, TB_SHOW_WIDE},
    {"identity", "identity", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

const struct tb_column tb_columns_of_serving[] = {
    {"worker", "worker", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"host", "host", TB_COLUMN_TEXT, TB_SHOW},
    {"model", "model", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"group", "group", TB_COLUMN_TEXT, TB_SHOW},
    {"rank", "rank", TB_COLUMN_COUNT, TB_SHOW},
    {"version", "version", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"proof", "proof", TB_COLUMN_TEXT, TB_SHOW},
    {"proof_age_s", "proof age s", TB_COLUMN_S, TB_SHOW},
    {"bad", "bad chunks", TB_COLUMN_COUNT, TB_SHOW_FILLED},
    {"tensor", "tensor", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

const struct tb_column tb_columns_of_groups[] = {
    {"model", "model", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"group", "group", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"members", "members", TB_COLUMN_COUNT, TB_SHOW_ALWAYS},
    {"present", "present", TB_COLUMN_COUNT, TB_SHOW_ALWAYS},
    {"active", "active", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"activated", "active members", TB_COLUMN_COUNT, TB_SHOW},
    {"staging", "staging", TB_COLUMN_TEXT, TB_SHOW},
    {"staged_whole", "staged members", TB_COLUMN_COUNT, TB_SHOW},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

/* ---- workers ---- */

/* "proven", "not provable (idle)"; "not proven yet" where nothing was said. */
static void put_proof(struct tb_rows *rows, json_t *row, const json_t *serving)
{
    const json_t *proof = json_object_get(serving, "proof");
    char text[sizeof(struct tb_field) + 64];
    if (!json_is_object(proof)) {
        tb_row_text(rows, row, "proof", "not proven yet");
        return;
    }
    const struct tb_field why = tb_text_of(proof, "why");
    const bool has_why = strcmp(why.text, "-") != 0;
    (void)snprintf(text, sizeof text, "%s%s%.40s%s", tb_text_of(proof, "verdict").text, has_why ? " (" : "",
                   has_why ? why.text : "", has_why ? ")" : "");
    tb_row_text(rows, row, "proof", text);
    tb_row_copy_as(rows, row, "proof_age_s", json_object_get(proof, "age_s"));
    if (tb_count_of(proof, "bad") == 0) return;
    tb_row_copy(rows, row, proof, "bad");
    tb_row_copy(rows, row, proof, "tensor");
}

static bool differs(const json_t *serving)
{
    return strcmp(tb_text_of(json_object_get(serving, "proof"), "verdict").text, "differs") == 0;
}

/* "policy 1:12, other 1:3", and the proof of one that differs, else of the first. */
static void put_serving(struct tb_rows *rows, json_t *row, const json_t *list)
{
    char text[sizeof(struct tb_field) + 64], version[64];
    const json_t *shown = json_array_get(list, 0);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *s = json_array_get(list, i);
        if (differs(s)) shown = s;
        (void)snprintf(version, sizeof version, "%" PRIu64 ":%" PRIu64, tb_count_of(s, "run"),
                       tb_count_of(s, "number"));
        const bool known = json_is_integer(json_object_get(s, "number"));
        (void)snprintf(text, sizeof text, "%s %s", tb_text_of(s, "model").text, known ? version : "?");
        tb_row_add(rows, row, "serving", text);
    }
    if (shown != NULL) put_proof(rows, row, shown);
}

static void put_worker(struct tb_rows *rows, json_t *row, const json_t *s)
{
    tb_row_copy_as(rows, row, "worker", json_object_get(s, "name"));
    tb_row_copy(rows, row, s, "name");
    tb_row_host(rows, row, s);
    tb_row_text(rows, row, "state", json_is_false(json_object_get(s, "connected")) ? "away" : "connected");
    tb_row_copy(rows, row, s, "since_s");
    tb_row_names(rows, row, "publishes", json_object_get(s, "publishes"));
    tb_row_names(rows, row, "subscribes", json_object_get(s, "subscribes"));
    put_serving(rows, row, json_object_get(s, "serving"));
    tb_row_copy(rows, row, json_array_get(json_object_get(s, "updates"), 0), "stall_ms");
    tb_row_copy(rows, row, s, "lease_left_s");
    tb_row_copy(rows, row, s, "identity");
}

struct tb_rows tb_rows_of_workers(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *sessions = json_object_get(a->status, "sessions");
    for (size_t i = 0; i < json_array_size(sessions); i++) {
        json_t *row = tb_row_new(&rows);
        if (row != NULL) put_worker(&rows, row, json_array_get(sessions, i));
    }
    return rows;
}

/* ---- what they compute from ---- */

static void put_served(struct tb_rows *rows, json_t *row, const json_t *session, const json_t *s)
{
    static const char *const keys[] = {"model", "group", "rank"};
    tb_row_copy_as(rows, row, "worker", json_object_get(session, "name"));
    tb_row_host(rows, row, session);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        tb_row_copy(rows, row, s, keys[i]);
    tb_row_version(rows, row, "version", s);
    put_proof(rows, row, s);
}

struct tb_rows tb_rows_of_serving(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *sessions = json_object_get(a->status, "sessions");
    for (size_t i = 0; i < json_array_size(sessions); i++) {
        const json_t *session = json_array_get(sessions, i), *list = json_object_get(session, "serving");
        for (size_t k = 0; k < json_array_size(list); k++) {
            json_t *row = tb_row_new(&rows);
            if (row != NULL) put_served(&rows, row, session, json_array_get(list, k));
        }
    }
    return rows;
}

/* ---- groups ---- */

static void put_group(struct tb_rows *rows, json_t *row, const json_t *g)
{
    static const char *const keys[] = {"model", "group", "members", "present", "activated"};
    char name[2 * sizeof(struct tb_field)];
    (void)snprintf(name, sizeof name, "%s/%s", tb_text_of(g, "model").text, tb_text_of(g, "group").text);
    tb_row_text(rows, row, "name", name);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        tb_row_copy(rows, row, g, keys[i]);
    tb_row_copy_some(rows, row, g, "active");
    tb_row_copy_some(rows, row, g, "staging");
    if (json_is_string(json_object_get(g, "staging"))) tb_row_copy(rows, row, g, "staged_whole");
}

struct tb_rows tb_rows_of_groups(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *groups = json_object_get(a->status, "groups");
    for (size_t i = 0; i < json_array_size(groups); i++) {
        json_t *row = tb_row_new(&rows);
        if (row != NULL) put_group(&rows, row, json_array_get(groups, i));
    }
    return rows;
}
