/* noun_versions.c - rows of versions, of the sites that hold them, and of streams. See
 * noun_rows.h. */
#include <inttypes.h>
#include <string.h>

#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/noun_rows.h"

const struct tb_column tb_columns_of_versions[] = {
    {"model", "model", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"version", "version", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"state", "state", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"bytes", "size MB", TB_COLUMN_MB, TB_SHOW},
    {"held_percent", "held %", TB_COLUMN_PERCENT, TB_SHOW_ALWAYS},
    {"eta_s", "eta s", TB_COLUMN_S_RANGE, TB_SHOW_FILLED},
    {"workers_whole", "workers whole", TB_COLUMN_COUNT, TB_SHOW},
    {"workers", "of workers", TB_COLUMN_COUNT, TB_SHOW},
    {"sites_whole", "sites whole", TB_COLUMN_COUNT, TB_SHOW},
    {"sites", "of sites", TB_COLUMN_COUNT, TB_SHOW},
    {"sites_unknown", "not known", TB_COLUMN_COUNT, TB_SHOW_FILLED},
    {"pinned_by", "pinned by", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"withdrawn_by", "withdrawn by", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"error", "error", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"queued_s", "queued s", TB_COLUMN_S, TB_SHOW_WIDE},
    {"manifests_s", "manifests s", TB_COLUMN_S, TB_SHOW_WIDE},
    {"landing_s", "landing s", TB_COLUMN_S, TB_SHOW_WIDE},
    {"activating_s", "activating s", TB_COLUMN_S, TB_SHOW_WIDE},
    {"sent_raw_bytes", "sent MB", TB_COLUMN_MB, TB_SHOW_WIDE},
    {"sent_bytes", "encoded MB", TB_COLUMN_MB, TB_SHOW_WIDE},
    {"resent_bytes", "resent MB", TB_COLUMN_MB, TB_SHOW_WIDE},
    {"encodings", "chunks sent as", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"shards", "shards", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"sealed_shards", "sealed", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"signed_by", "signed by", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"withdrawn_here", "here alone", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"uid", "uid", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

const struct tb_column tb_columns_of_holders[] = {
    {"model", "model", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"version", "version", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"site", "site", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"held_percent", "held %", TB_COLUMN_PERCENT, TB_SHOW_ALWAYS},
    {"whole", "whole", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"activated", "active", TB_COLUMN_TEXT, TB_SHOW},
    {"relay", "through", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

const struct tb_column tb_columns_of_streams[] = {
    {"peer", "peer", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"stream", "stream", TB_COLUMN_COUNT, TB_SHOW_ALWAYS},
    {"state", "state", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"congestion", "congestion", TB_COLUMN_TEXT, TB_SHOW},
    {"rtt_ms", "rtt ms", TB_COLUMN_MS, TB_SHOW},
    {"sent_bytes_per_s", "sent Mbit/s", TB_COLUMN_MBIT_OF_BYTES, TB_SHOW_ALWAYS},
    {"received_bytes_per_s", "received Mbit/s", TB_COLUMN_MBIT_OF_BYTES, TB_SHOW},
    {"retransmitted_bytes", "resent MB", TB_COLUMN_MB, TB_SHOW},
    {"queued_bytes", "queued MB", TB_COLUMN_MB, TB_SHOW},
    {"limited_by", "limited by", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"sysctl", "held by", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"has_bytes", "allows MB", TB_COLUMN_MB, TB_SHOW_FILLED},
    {"needs_bytes", "needs MB", TB_COLUMN_MB, TB_SHOW_FILLED},
    {"encryption", "encrypts", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"window_bytes", "window MB", TB_COLUMN_MB, TB_SHOW_WIDE},
    {"sent_bytes", "sent MB", TB_COLUMN_MB, TB_SHOW_WIDE},
    {"received_bytes", "received MB", TB_COLUMN_MB, TB_SHOW_WIDE},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

/* ---- versions ---- */

static uint64_t count_true(const json_t *list, const char *key)
{
    uint64_t count = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        count += json_is_true(json_object_get(json_array_get(list, i), key));
    return count;
}

static void put_holders(struct tb_rows *rows, json_t *row, const json_t *v)
{
    const json_t *workers = json_object_get(v, "workers"), *sites = json_object_get(v, "sites");
    tb_row_count(rows, row, "workers", json_array_size(workers));
    tb_row_count(rows, row, "workers_whole", count_true(workers, "whole"));
    tb_row_count(rows, row, "sites", json_array_size(sites));
    tb_row_count(rows, row, "sites_whole", count_true(sites, "whole"));
    const uint64_t known = count_true(sites, "known");
    if (known < json_array_size(sites))
        tb_row_count(rows, row, "sites_unknown", json_array_size(sites) - known);
}

/* "gaps 12, raw 3": of those that went. */
static void put_encodings(struct tb_rows *rows, json_t *row, const json_t *chunks)
{
    char text[64];
    const char *way = NULL;
    json_t *count = NULL;
    json_object_foreach((json_t *)(uintptr_t)chunks, way, count)
    {
        if (json_integer_value(count) <= 0) continue;
        (void)snprintf(text, sizeof text, "%.16s %" JSON_INTEGER_FORMAT, way, json_integer_value(count));
        tb_row_add(rows, row, "encodings", text);
    }
}

static void put_moves(struct tb_rows *rows, json_t *row, const json_t *v)
{
    static const char *const stages[] = {"queued_s", "manifests_s", "landing_s", "activating_s"};
    const json_t *sent = json_object_get(v, "sent");
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        tb_row_copy_some(rows, row, json_object_get(v, "stages"), stages[i]);
    tb_row_copy_as(rows, row, "sent_bytes", json_object_get(sent, "bytes"));
    tb_row_copy_as(rows, row, "sent_raw_bytes", json_object_get(sent, "raw_bytes"));
    tb_row_copy(rows, row, sent, "resent_bytes");
    put_encodings(rows, row, json_object_get(sent, "chunks"));
}

static void put_version(struct tb_rows *rows, json_t *row, const json_t *v)
{
    static const char *const keys[] = {"model",        "state",     "bytes", "shards", "sealed_shards",
                                       "withdrawn_by", "pinned_by", "error", "uid",    "signed_by"};
    tb_row_version(rows, row, "version", v);
    tb_row_version_name(rows, row, "name", v);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        tb_row_copy(rows, row, v, keys[i]);
    if (json_is_true(json_object_get(v, "pinned")) && tb_text_of(v, "pinned_by").text[0] == '-')
        tb_row_text(rows, row, "pinned_by", "somebody");
    if (json_is_true(json_object_get(v, "withdrawn_here"))) tb_row_copy(rows, row, v, "withdrawn_here");
    tb_row_percent(rows, row, "held_percent", tb_count_of(v, "held_bytes"), tb_count_of(v, "bytes"));
    tb_row_copy_some(rows, row, v, "eta_s");
    put_holders(rows, row, v);
    put_moves(rows, row, v);
}

struct tb_rows tb_rows_of_versions(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *versions = json_object_get(a->versions, "versions");
    for (size_t i = 0; i < json_array_size(versions); i++) {
        json_t *row = tb_row_new(&rows);
        if (row != NULL) put_version(&rows, row, json_array_get(versions, i));
    }
    return rows;
}

/* ---- who holds them ---- */

static void put_holder(struct tb_rows *rows, json_t *row, const json_t *v, const json_t *site)
{
    tb_row_copy(rows, row, v, "model");
    tb_row_version(rows, row, "version", v);
    tb_row_version_name(rows, row, "name", v);
    tb_row_copy(rows, row, site, "site");
    tb_row_copy(rows, row, site, "whole");
    tb_row_copy(rows, row, site, "activated");
    if (json_is_integer(json_object_get(site, "held_bytes")))
        tb_row_percent(rows, row, "held_percent", tb_count_of(site, "held_bytes"), tb_count_of(v, "bytes"));
    else
        tb_row_put(rows, row, "held_percent", json_null());
    if (strcmp(tb_text_of(site, "via").text, tb_text_of(site, "site").text) != 0)
        tb_row_copy_as(rows, row, "relay", json_object_get(site, "via"));
}

/* This site's own copy: `sites` of an answer has the others. */
static void add_own(struct tb_rows *rows, const json_t *v, const json_t *status)
{
    const uint64_t held = tb_count_of(v, "held_bytes"), bytes = tb_count_of(v, "bytes");
    json_t *row = status != NULL && held > 0 ? tb_row_new(rows) : NULL;
    if (row == NULL) return;
    tb_row_copy(rows, row, v, "model");
    tb_row_version(rows, row, "version", v);
    tb_row_version_name(rows, row, "name", v);
    tb_row_copy(rows, row, status, "site");
    tb_row_put(rows, row, "whole", json_boolean(held >= bytes));
    tb_row_percent(rows, row, "held_percent", held, bytes);
}

struct tb_rows tb_rows_of_holders(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *versions = json_object_get(a->versions, "versions");
    for (size_t i = 0; i < json_array_size(versions); i++) {
        const json_t *v = json_array_get(versions, i), *sites = json_object_get(v, "sites");
        add_own(&rows, v, a->status);
        for (size_t k = 0; k < json_array_size(sites); k++) {
            json_t *row = tb_row_new(&rows);
            if (row != NULL) put_holder(&rows, row, v, json_array_get(sites, k));
        }
    }
    return rows;
}

/* ---- streams ---- */

static void put_stream(struct tb_rows *rows, json_t *row, const json_t *l, const json_t *s)
{
    static const char *const keys[] = {"stream",       "congestion",         "sent_bytes_per_s",
                                       "queued_bytes", "encryption",         "received_bytes_per_s",
                                       "sent_bytes",   "received_bytes",     "window_bytes",
                                       "limited_by",   "retransmitted_bytes"};
    static const char *const window[] = {"sysctl", "has_bytes", "needs_bytes"};
    char name[sizeof(struct tb_field) + 32];
    const struct tb_field peer = tb_text_of(l, "site");
    (void)snprintf(name, sizeof name, "%s/%" PRIu64, peer.text, tb_count_of(s, "stream"));
    tb_row_text(rows, row, "name", name);
    tb_row_text(rows, row, "peer", peer.text);
    tb_row_text(rows, row, "state", json_is_true(json_object_get(s, "open")) ? "open" : "opening");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        tb_row_copy(rows, row, s, keys[i]);
    if (tb_number_of(s, "rtt_ms") > 0) tb_row_copy(rows, row, s, "rtt_ms");
    for (size_t i = 0; i < sizeof window / sizeof *window; i++)
        tb_row_copy(rows, row, json_object_get(l, "window"), window[i]);
}

struct tb_rows tb_rows_of_streams(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *links = json_object_get(a->streams, "links");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *l = json_array_get(links, i), *streams = json_object_get(l, "streams");
        for (size_t k = 0; k < json_array_size(streams); k++) {
            json_t *row = tb_row_new(&rows);
            if (row != NULL) put_stream(&rows, row, l, json_array_get(streams, k));
        }
    }
    return rows;
}
