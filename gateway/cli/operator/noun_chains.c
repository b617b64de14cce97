/* noun_chains.c - rows of chains: who reads from whom inside this site, in the order of the trees.
 * See noun_rows.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/noun_rows.h"

/* a chain of a thousand hosts must stay on the screen: behind it the depth stands as a number */
#define INDENT_MAX 12u
#define NOBODY     SIZE_MAX

const struct tb_column tb_columns_of_chains[] = {
    {"model", "model", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"version", "version", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"member", "member", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"host", "host", TB_COLUMN_TEXT, TB_SHOW},
    {"held_percent", "held %", TB_COLUMN_PERCENT, TB_SHOW_ALWAYS},
    {"bytes_per_s", "reads Mbit/s", TB_COLUMN_MBIT_OF_BYTES, TB_SHOW},
    {"transport", "reads by", TB_COLUMN_TEXT, TB_SHOW},
    {"marks", "marks", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"transport_why", "because", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"way", "update", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"stall_ms", "stall ms", TB_COLUMN_MS, TB_SHOW_WIDE},
    {"staged_bytes", "staged MB", TB_COLUMN_MB, TB_SHOW_WIDE},
    {"readers", "readers", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"fan_out", "feeds", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"nic_bytes_per_s", "nic Mbit/s", TB_COLUMN_MBIT_OF_BYTES, TB_SHOW_WIDE},
    {"nic_from", "nic known by", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"held_chunks", "chunks", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"chunks", "of chunks", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"source", "source", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

const struct tb_column tb_columns_of_chain_totals[] = {
    {"model", "model", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"version", "version", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"chunks", "chunks", TB_COLUMN_COUNT, TB_SHOW},
    {"members", "members", TB_COLUMN_COUNT, TB_SHOW},
    {"whole", "whole", TB_COLUMN_COUNT, TB_SHOW},
    {"active", "active", TB_COLUMN_COUNT, TB_SHOW},
    {"slow", "slow", TB_COLUMN_COUNT, TB_SHOW},
    {"fan_out", "fan-out", TB_COLUMN_COUNT, TB_SHOW},
    {"arrival_bytes_per_s", "arrives Mbit/s", TB_COLUMN_MBIT_OF_BYTES, TB_SHOW},
    {"feeds", "gateway reads from", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"left_out", "not listed", TB_COLUMN_COUNT, TB_SHOW_FILLED},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

/* Children lists of one chain, and who was shown: the gateway's word is a stranger's
 * and may have a cycle. */
struct tree {
    const json_t *members;
    size_t count;
    size_t *first, *next;
    bool *shown;
};

static size_t source_of(const struct tree *t, size_t i)
{
    TB_ASSERT(i < t->count);
    const json_t *source = json_object_get(json_array_get(t->members, i), "source");
    const json_int_t at = json_is_integer(source) ? json_integer_value(source) : -1;
    return at < 0 || (size_t)at >= t->count ? NOBODY : (size_t)at;
}

static void tree_free(struct tree *t)
{
    tb_free(t->first);
    tb_free(t->next);
    tb_free(t->shown);
}

static bool tree_make(const json_t *members, struct tree *out)
{
    struct tree t = {.members = members, .count = json_array_size(members)};
    t.first = tb_calloc(t.count + 1, sizeof *t.first);
    t.next = tb_calloc(t.count + 1, sizeof *t.next);
    t.shown = tb_calloc(t.count + 1, sizeof *t.shown);
    if (t.first == NULL || t.next == NULL || t.shown == NULL) {
        tree_free(&t);
        return false;
    }
    for (size_t i = 0; i < t.count; i++)
        t.first[i] = NOBODY;
    for (size_t i = t.count; i-- > 0;) { /* backwards: each list is then in the order of the answer */
        const size_t source = source_of(&t, i);
        if (source == NOBODY) continue;
        t.next[i] = t.first[source];
        t.first[source] = i;
    }
    *out = t;
    return true;
}

/* ---- a member ---- */

/* Indented as deep as it stands in the tree. */
static void put_name(struct tb_rows *rows, json_t *row, const json_t *m, size_t depth)
{
    char text[sizeof(struct tb_field) + 64], deep[32] = "";
    if (depth > INDENT_MAX) (void)snprintf(deep, sizeof deep, "(%zu) ", depth);
    (void)snprintf(text, sizeof text, "%*s%s%s", (int)(2 * (depth < INDENT_MAX ? depth : INDENT_MAX)), "",
                   deep, tb_text_of(m, "name").text);
    tb_row_text(rows, row, "member", text);
    tb_row_copy_as(rows, row, "worker", json_object_get(m, "name"));
}

static void put_marks(struct tb_rows *rows, json_t *row, const json_t *m)
{
    static const char *const marks[] = {"active", "slow", "silent", "spot"};
    char text[64] = "";
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        if (!json_is_true(json_object_get(m, marks[i]))) continue;
        const size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%s", used > 0 ? " " : "", marks[i]);
    }
    tb_row_text(rows, row, "marks", text);
}

static void put_hop(struct tb_rows *rows, json_t *row, const struct tree *t, size_t i)
{
    const json_t *m = json_array_get(t->members, i);
    const size_t source = source_of(t, i);
    const bool is_worker = json_string_length(json_object_get(m, "transport")) > 0;
    if (source != NOBODY) {
        tb_row_copy_as(rows, row, "source", json_object_get(json_array_get(t->members, source), "name"));
        tb_row_copy(rows, row, m, "transport");
        tb_row_copy(rows, row, m, "transport_why");
        tb_row_copy(rows, row, m, "bytes_per_s");
    } else if (is_worker && !json_is_true(json_object_get(m, "whole"))) {
        tb_row_text(rows, row, "transport_why", "waits for a source");
    }
}

static void put_member(struct tb_rows *rows, const json_t *chain, const struct tree *t, size_t i,
                       size_t depth)
{
    static const char *const keys[] = {"held_chunks", "readers"};
    static const char *const update[] = {"way", "stall_ms", "staged_bytes"};
    const json_t *m = json_array_get(t->members, i);
    json_t *row = tb_row_new(rows);
    if (row == NULL) return;
    tb_row_copy(rows, row, chain, "model");
    tb_row_copy(rows, row, chain, "chunks");
    tb_row_version(rows, row, "version", chain);
    tb_row_version_name(rows, row, "name", chain);
    put_name(rows, row, m, depth);
    tb_row_host(rows, row, m);
    tb_row_percent(rows, row, "held_percent", tb_count_of(m, "held_chunks"), tb_count_of(chain, "chunks"));
    put_hop(rows, row, t, i);
    put_marks(rows, row, m);
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        tb_row_copy(rows, row, m, keys[k]);
    for (size_t k = 0; k < sizeof update / sizeof *update; k++)
        tb_row_copy(rows, row, json_object_get(m, "update"), update[k]);
    if (tb_count_of(m, "nic_bytes_per_s") == 0) return; /* nobody knows it */
    tb_row_copy(rows, row, m, "fan_out");
    tb_row_copy(rows, row, m, "nic_bytes_per_s");
    tb_row_copy(rows, row, m, "nic_from");
}

/* A member and all behind it, the nearest first; without recursion, as a chain may be long. */
static void rows_from(struct tb_rows *rows, const json_t *chain, struct tree *t, size_t root)
{
    TB_ASSERT(root < t->count && source_of(t, root) == NOBODY);
    size_t depth = 0;
    for (size_t i = root; i != NOBODY;) {
        if (!t->shown[i]) put_member(rows, chain, t, i, depth);
        const size_t child = t->shown[i] ? NOBODY : t->first[i];
        t->shown[i] = true;
        if (child != NOBODY) {
            i = child;
            depth++;
            continue;
        }
        while (i != root && t->next[i] == NOBODY && depth > 0) {
            i = source_of(t, i);
            depth--;
        }
        i = i == root ? NOBODY : t->next[i];
    }
}

struct tb_rows tb_rows_of_chains(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *chains = json_object_get(a->chains, "chains");
    for (size_t i = 0; i < json_array_size(chains); i++) {
        const json_t *chain = json_array_get(chains, i);
        struct tree t;
        if (!tree_make(json_object_get(chain, "members"), &t)) {
            rows.lacking = true;
            break;
        }
        for (size_t k = 0; k < t.count; k++)
            if (source_of(&t, k) == NOBODY) rows_from(&rows, chain, &t, k);
        tree_free(&t);
    }
    return rows;
}

/* ---- all of a version's ---- */

static uint64_t count_true(const json_t *list, const char *key)
{
    uint64_t count = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        count += json_is_true(json_object_get(json_array_get(list, i), key));
    return count;
}

/* "rank0 by shm, rank1 by tcp" */
static void put_feeds(struct tb_rows *rows, json_t *row, const json_t *feeds)
{
    char text[2 * sizeof(struct tb_field) + 8];
    for (size_t i = 0; i < json_array_size(feeds); i++) {
        const json_t *f = json_array_get(feeds, i);
        (void)snprintf(text, sizeof text, "%s by %s", tb_text_of(f, "source").text,
                       tb_text_of(f, "transport").text);
        tb_row_add(rows, row, "feeds", text);
    }
}

struct tb_rows tb_rows_of_chain_totals(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *chains = json_object_get(a->chains, "chains");
    for (size_t i = 0; i < json_array_size(chains); i++) {
        const json_t *c = json_array_get(chains, i), *members = json_object_get(c, "members");
        json_t *row = tb_row_new(&rows);
        if (row == NULL) break;
        tb_row_copy(&rows, row, c, "model");
        tb_row_version(&rows, row, "version", c);
        tb_row_version_name(&rows, row, "name", c);
        tb_row_copy(&rows, row, c, "chunks");
        tb_row_count(&rows, row, "members", json_array_size(members));
        tb_row_count(&rows, row, "whole", count_true(members, "whole"));
        tb_row_count(&rows, row, "active", count_true(members, "active"));
        tb_row_count(&rows, row, "slow", count_true(members, "slow"));
        tb_row_copy(&rows, row, c, "fan_out");
        if (tb_count_of(c, "arrival_bytes_per_s") > 0) tb_row_copy(&rows, row, c, "arrival_bytes_per_s");
        put_feeds(&rows, row, json_object_get(c, "feeds"));
        if (tb_count_of(c, "left_out") > 0) tb_row_copy(&rows, row, c, "left_out");
    }
    return rows;
}
