/* noun_sites.c - rows of sites, peers, models and of "lag". See noun_rows.h. */
#include <string.h>

#include "base/assert.h"
#include "gateway/cli/operator/control_fields.h"
#include "gateway/cli/operator/lag_verdict.h"
#include "gateway/cli/operator/noun_rows.h"

const struct tb_column tb_columns_of_sites[] = {
    {"site", "site", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"link", "link", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"via", "through", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"rtt_ms", "rtt ms", TB_COLUMN_MS, TB_SHOW},
    {"models", "models", TB_COLUMN_COUNT, TB_SHOW},
    {"behind", "behind", TB_COLUMN_COUNT, TB_SHOW_ALWAYS},
    {"unknown", "not known", TB_COLUMN_COUNT, TB_SHOW_FILLED},
    {"seconds", "age s", TB_COLUMN_S, TB_SHOW},
    {"reason", "reason", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"model", "model", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"heard_s", "heard s", TB_COLUMN_S, TB_SHOW_WIDE},
    {"since_s", "since s", TB_COLUMN_S, TB_SHOW_WIDE},
    {"gateway", "gateway", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

const struct tb_column tb_columns_of_peers[] = {
    {"peer", "peer", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"state", "state", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"since_s", "since s", TB_COLUMN_S, TB_SHOW},
    {"rtt_ms", "rtt ms", TB_COLUMN_MS, TB_SHOW},
    {"goodput_bytes_per_s", "rate Mbit/s", TB_COLUMN_MBIT_OF_BYTES, TB_SHOW},
    {"streams", "streams", TB_COLUMN_COUNT, TB_SHOW},
    {"sent_bytes", "sent MB", TB_COLUMN_MB, TB_SHOW},
    {"received_bytes", "received MB", TB_COLUMN_MB, TB_SHOW},
    {"limit_bit_per_s", "limit Mbit/s", TB_COLUMN_MBIT, TB_SHOW_FILLED},
    {"day_used_bytes", "today MB", TB_COLUMN_MB, TB_SHOW_FILLED},
    {"day_bytes", "of MB", TB_COLUMN_MB, TB_SHOW_FILLED},
    {"reason", "reason", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"sysctl", "held by", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"limited_by", "limited by", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"gateway", "gateway", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"certificate_days_left", "certificate days", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"protocol", "protocol", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"streams_lost", "lost streams", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"chunks_bad", "bad chunks", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"denied", "denied there", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"refused", "refused here", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"error", "error", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

const struct tb_column tb_columns_of_models[] = {
    {"model", "model", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"home", "home", TB_COLUMN_TEXT, TB_SHOW},
    {"head", "head", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"latest", "staged", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"pinned", "pinned", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"versions", "behind", TB_COLUMN_COUNT, TB_SHOW_ALWAYS},
    {"bytes", "MB", TB_COLUMN_MB, TB_SHOW},
    {"seconds", "age s", TB_COLUMN_S, TB_SHOW},
    {"reason", "reason", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"sites", "sites", TB_COLUMN_COUNT, TB_SHOW_FILLED},
    {"sites_behind", "of them behind", TB_COLUMN_COUNT, TB_SHOW_FILLED},
    {"sites_unknown", "not known", TB_COLUMN_COUNT, TB_SHOW_FILLED},
    {"from", "from", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {"runs", "runs", TB_COLUMN_COUNT, TB_SHOW_WIDE},
    {"pinned_by", "pinned by", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

const struct tb_column tb_columns_of_lag[] = {
    {"model", "model", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"site", "site", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"head", "head", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"latest", "staged", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"active", "active", TB_COLUMN_TEXT, TB_SHOW},
    {"versions", "behind", TB_COLUMN_COUNT, TB_SHOW_ALWAYS},
    {"bytes", "MB", TB_COLUMN_MB, TB_SHOW},
    {"seconds", "age s", TB_COLUMN_S, TB_SHOW_ALWAYS},
    {"eta_s", "eta s", TB_COLUMN_S_RANGE, TB_SHOW},
    {"reason", "reason", TB_COLUMN_TEXT, TB_SHOW_ALWAYS},
    {"relay", "through", TB_COLUMN_TEXT, TB_SHOW_FILLED},
    {"silent_s", "heard s ago", TB_COLUMN_S, TB_SHOW_FILLED},
    {"home", "home", TB_COLUMN_TEXT, TB_SHOW_WIDE},
    {NULL, NULL, TB_COLUMN_TEXT, TB_SHOW},
};

/* ---- lag ---- */

static bool is_known(const json_t *row)
{
    return json_is_true(json_object_get(row, "known"));
}

/* Null and absent are two things in a table: there is an estimate only of what is behind. */
static void put_eta(struct tb_rows *rows, json_t *row, const json_t *from)
{
    const json_t *eta = json_object_get(from, "eta_s");
    if (json_array_size(eta) == 2)
        tb_row_copy_as(rows, row, "eta_s", eta);
    else if (!is_known(from) || tb_lag_verdict_is_behind(from))
        tb_row_put(rows, row, "eta_s", json_null());
}

static void put_lag(struct tb_rows *rows, json_t *row, const json_t *from)
{
    static const char *const keys[] = {"model", "site", "home", "versions", "bytes", "seconds", "reason"};
    static const char *const some[] = {"head", "latest", "active"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        tb_row_copy(rows, row, from, keys[i]);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        tb_row_copy_some(rows, row, from, some[i]);
    put_eta(rows, row, from);
    if (strcmp(tb_text_of(from, "via").text, tb_text_of(from, "site").text) != 0)
        tb_row_copy_as(rows, row, "relay", json_object_get(from, "via"));
    if (!is_known(from)) tb_row_copy_as(rows, row, "silent_s", json_object_get(from, "heard_s"));
}

struct tb_rows tb_rows_of_lag(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *lag = json_object_get(a->lag, "lag");
    for (size_t i = 0; i < json_array_size(lag); i++) {
        json_t *row = tb_row_new(&rows);
        if (row != NULL) put_lag(&rows, row, json_array_get(lag, i));
    }
    return rows;
}

/* ---- sites ---- */

static json_t *site_find(const struct tb_rows *rows, const char *site)
{
    for (size_t i = 0; i < json_array_size(rows->list); i++) {
        json_t *row = json_array_get(rows->list, i);
        if (strcmp(tb_text_of(row, "site").text, site) == 0) return row;
    }
    return NULL;
}

static json_t *site_new(struct tb_rows *rows, const char *site, const char *link)
{
    json_t *row = tb_row_new(rows);
    if (row == NULL) return NULL;
    tb_row_text(rows, row, "site", site);
    tb_row_text(rows, row, "name", site);
    tb_row_text(rows, row, "link", link);
    return row;
}

static void add_here(struct tb_rows *rows, const json_t *status)
{
    json_t *row = site_new(rows, tb_text_of(status, "site").text, "here");
    if (row != NULL) tb_row_copy(rows, row, status, "gateway");
}

static void add_linked(struct tb_rows *rows, const json_t *links)
{
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *l = json_array_get(links, i);
        if (site_find(rows, tb_text_of(l, "site").text) != NULL) continue; /* a lane of this site */
        json_t *row = site_new(rows, tb_text_of(l, "site").text, tb_text_of(l, "state").text);
        if (row == NULL) return;
        tb_row_copy(rows, row, l, "gateway");
        tb_row_copy(rows, row, l, "since_s");
        if (tb_number_of(l, "rtt_ms") > 0) tb_row_copy(rows, row, l, "rtt_ms");
        tb_row_copy(rows, row, l, "reason");
    }
}

/* Rows are the worst first, so the first of a site is the one that is shown. */
static void count_lag(struct tb_rows *rows, json_t *row, const json_t *from)
{
    const bool first = json_object_get(row, "models") == NULL, known = is_known(from);
    tb_row_count(rows, row, "models", tb_count_of(row, "models") + 1);
    if (known) tb_row_count(rows, row, "behind", tb_count_of(row, "behind") + tb_lag_verdict_is_behind(from));
    if (!known) tb_row_count(rows, row, "unknown", tb_count_of(row, "unknown") + 1);
    if (!first) return;
    tb_row_copy(rows, row, from, "reason");
    tb_row_copy(rows, row, from, "model");
    tb_row_copy(rows, row, from, "seconds");
    tb_row_copy(rows, row, from, "heard_s");
    if (strcmp(tb_text_of(from, "via").text, tb_text_of(from, "site").text) != 0)
        tb_row_copy(rows, row, from, "via");
}

/* A site of which not one model is known is not "0 behind". */
static void finish_sites(struct tb_rows *rows)
{
    for (size_t i = 0; i < json_array_size(rows->list); i++) {
        json_t *row = json_array_get(rows->list, i);
        if (json_object_get(row, "behind") != NULL) continue;
        tb_row_put(rows, row, "behind", json_null());
        if (json_object_get(row, "seconds") == NULL) tb_row_put(rows, row, "seconds", json_null());
    }
}

/* The rows of "lag", the worst first, whatever order they came in. Nothing: no memory. */
static json_t *worst_first(const struct tb_answers *a, struct tb_rows *rows)
{
    const json_t *lag = json_object_get(a->lag, "lag");
    json_t *sorted = json_is_array(lag) ? json_copy((json_t *)(uintptr_t)lag) : json_array();
    rows->lacking |= sorted == NULL;
    tb_lag_verdict_sort(sorted);
    return sorted;
}

struct tb_rows tb_rows_of_sites(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    add_here(&rows, a->status);
    add_linked(&rows, json_object_get(a->status, "links"));
    json_t *lag = worst_first(a, &rows);
    for (size_t i = 0; i < json_array_size(lag); i++) {
        const json_t *from = json_array_get(lag, i);
        json_t *row = site_find(&rows, tb_text_of(from, "site").text);
        if (row == NULL) row = site_new(&rows, tb_text_of(from, "site").text, "relayed");
        if (row != NULL) count_lag(&rows, row, from);
    }
    json_decref(lag);
    finish_sites(&rows);
    return rows;
}

/* ---- peers ---- */

static const json_t *link_of(const json_t *links, const char *site)
{
    for (size_t i = 0; i < json_array_size(links); i++)
        if (strcmp(tb_text_of(json_array_get(links, i), "site").text, site) == 0)
            return json_array_get(links, i);
    return NULL;
}

static void put_limit(struct tb_rows *rows, json_t *row, const json_t *limit)
{
    if (tb_count_of(limit, "bit_per_s") > 0)
        tb_row_copy_as(rows, row, "limit_bit_per_s", json_object_get(limit, "bit_per_s"));
    if (tb_count_of(limit, "day_bytes") == 0) return;
    tb_row_copy(rows, row, limit, "day_used_bytes");
    tb_row_copy(rows, row, limit, "day_bytes");
}

static bool is_paused(const json_t *link)
{
    return json_is_true(json_object_get(link, "paused_here")) ||
           json_is_true(json_object_get(link, "paused_there"));
}

static void put_peer(struct tb_rows *rows, json_t *row, const json_t *l, const json_t *streams)
{
    static const char *const keys[] = {
        "state",  "since_s", "goodput_bytes_per_s", "streams",      "sent_bytes", "gateway",
        "reason", "error",   "received_bytes",      "streams_lost", "chunks_bad", "protocol"};
    tb_row_text(rows, row, "peer", tb_text_of(l, "site").text);
    tb_row_text(rows, row, "name", tb_text_of(l, "site").text);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        tb_row_copy(rows, row, l, keys[i]);
    /* Of a link that has a fault, the fault says more. */
    if (strcmp(tb_text_of(l, "reason").text, "-") == 0 && is_paused(l))
        tb_row_text(rows, row, "reason", "paused");
    if (tb_number_of(l, "rtt_ms") > 0) tb_row_copy(rows, row, l, "rtt_ms");
    tb_row_copy_some(rows, row, l, "certificate_days_left");
    put_limit(rows, row, json_object_get(l, "limit"));
    tb_row_copy_as(rows, row, "sysctl", json_object_get(json_object_get(l, "window"), "sysctl"));
    tb_row_names(rows, row, "denied", json_object_get(l, "denied"));
    tb_row_names(rows, row, "refused", json_object_get(l, "refused_models"));
    const json_t *more = link_of(json_object_get(streams, "links"), tb_text_of(l, "site").text);
    tb_row_copy(rows, row, more, "limited_by");
}

struct tb_rows tb_rows_of_peers(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *links = json_object_get(a->status, "links");
    for (size_t i = 0; i < json_array_size(links); i++) {
        json_t *row = tb_row_new(&rows);
        if (row != NULL) put_peer(&rows, row, json_array_get(links, i), a->streams);
    }
    return rows;
}

/* ---- models ---- */

/* Of other sites, at the model's home. */
static void put_followers(struct tb_rows *rows, json_t *row, const char *model, const struct tb_answers *a)
{
    const json_t *lag = json_object_get(a->lag, "lag");
    const struct tb_field here = tb_text_of(a->status, "site");
    uint64_t sites = 0, behind = 0, unknown = 0;
    for (size_t i = 0; i < json_array_size(lag); i++) {
        const json_t *from = json_array_get(lag, i);
        if (strcmp(tb_text_of(from, "model").text, model) != 0) continue;
        if (strcmp(tb_text_of(from, "site").text, here.text) == 0) continue;
        sites++;
        behind += is_known(from) && tb_lag_verdict_is_behind(from);
        unknown += !is_known(from);
    }
    if (sites == 0) return;
    tb_row_count(rows, row, "sites", sites);
    tb_row_count(rows, row, "sites_behind", behind);
    if (unknown > 0) tb_row_count(rows, row, "sites_unknown", unknown);
}

static void put_model(struct tb_rows *rows, json_t *row, const json_t *m, const struct tb_answers *a)
{
    static const struct {
        const char *from, *as;
    } keys[] = {{"model", "model"},           {"model", "name"},      {"home", "home"},
                {"lag_versions", "versions"}, {"lag_bytes", "bytes"}, {"lag_s", "seconds"},
                {"reason", "reason"}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        tb_row_copy_as(rows, row, keys[i].as, json_object_get(m, keys[i].from));
    tb_row_copy_some(rows, row, m, "head");
    tb_row_copy_some(rows, row, m, "latest");
    const json_t *pin = json_object_get(m, "pin");
    tb_row_copy_as(rows, row, "pinned", json_object_get(pin, "version"));
    tb_row_copy_as(rows, row, "pinned_by", json_object_get(pin, "who"));
    tb_row_names(rows, row, "from", json_object_get(m, "from"));
    const size_t runs = json_array_size(json_object_get(m, "runs"));
    if (runs > 0) tb_row_count(rows, row, "runs", runs);
    put_followers(rows, row, tb_text_of(m, "model").text, a);
}

struct tb_rows tb_rows_of_models(const struct tb_answers *a)
{
    struct tb_rows rows = {0};
    const json_t *models = json_object_get(a->status, "models");
    for (size_t i = 0; i < json_array_size(models); i++) {
        json_t *row = tb_row_new(&rows);
        if (row != NULL) put_model(&rows, row, json_array_get(models, i), a);
    }
    return rows;
}
