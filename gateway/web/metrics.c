/* metrics.c - see metrics.h. A family of series is one row of a table. */
#include "gateway/web/metrics.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"
#include "gateway/web/metrics_parts.h"
#include "gateway/web/series.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* ---- the gateway ---- */

static const struct tb_series_field of_gateway[] = {
    {"tombolo_uptime_seconds", "uptime_s", NULL, "gauge", "Since tombolod started.", 1},
    {"tombolo_draining", "draining", NULL, "gauge", "1 after SIGTERM.", 1},
    {"tombolo_recovering", "recovering", NULL, "gauge",
     "1 for a lease time after a start: nothing is evicted.", 1},
    {"tombolo_store_ok", "store_ok", NULL, "gauge", "0 while the durable store cannot be written.", 1},
    {"tombolo_store_waiting", "store_waiting", NULL, "gauge", "Changes that are not on the disk yet.", 1},
    {"tombolo_certificate_expires_seconds", "certificate_expires_ms", NULL, "gauge",
     "When the gateway's certificate ends, in seconds since 1970.", 1e-3},
    {"tombolo_certificate_left_seconds", "days_left", "certificates", "gauge",
     "Until the gateway's certificate ends, in whole days.", 86400},
    {"tombolo_authority_left_seconds", "authority_days_left", "certificates", "gauge",
     "Until the CA that ends first ends, in whole days.", 86400},
    {"tombolo_certificates_revoked", "revoked", "certificates", "gauge", "Entries of tls.revoked.", 1},
    {"tombolo_audit_rows_lost_total", "lost", "audit", "counter", "Rows of the audit record.", 1},
    {"tombolo_sessions", "session_count", NULL, "gauge", "Connections of workers.", 1},
    {"tombolo_arena_bytes", "bytes", "arena", "gauge", "The arena's size.", 1},
    {"tombolo_arena_used_bytes", "used", "arena", "gauge", "Of it, what versions take.", 1},
    {"tombolo_arena_largest_free_bytes", "largest_free", "arena", "gauge",
     "The largest version that fits now.", 1},
    {"tombolo_encoded_bytes", "bytes", "encoded", "gauge", "Deltas that are kept for peers and workers.", 1},
};

static void no_labels(const json_t *object, struct tb_series_label *labels_out)
{
    (void)object;
    labels_out[0] = (struct tb_series_label){NULL, NULL};
}

static void write_gateway(FILE *out, const json_t *status)
{
    json_t *one = json_array();
    if (one == NULL || json_array_append(one, (json_t *)status) != 0) { /* counted up, and down again */
        json_decref(one);
        return;
    }
    tb_series_fields(out, of_gateway, COUNT(of_gateway), one, no_labels);
    json_decref(one);
    const struct tb_series_label labels[] = {{"site", tb_facts_text(status, "site")},
                                             {"gateway", tb_facts_text(status, "gateway")},
                                             {"version", tb_facts_text(status, "version")},
                                             {NULL, NULL}};
    tb_series_head(out, "tombolo_info", "gauge", "Names and release of the gateway that answers; always 1.");
    tb_series_write(out, "tombolo_info", labels, 1);
}

static bool is_metric_name(const char *name)
{
    return *name != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

/* Each counter of docs/operations.md, as tombolo_NAME_total. */
static void write_counters(FILE *out, const json_t *counters)
{
    const struct tb_series_label none[] = {{NULL, NULL}};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)counters, key, value)
    {
        char name[128];
        if (!json_is_number(value) || !is_metric_name(key)) continue;
        if (snprintf(name, sizeof name, "tombolo_%s_total", key) >= (int)sizeof name) continue;
        tb_series_head(out, name, "counter", "docs/operations.md says what to do about it.");
        tb_series_write(out, name, none, json_number_value(value));
    }
}

/* Counters of requests and parties that were refused, once more as one family. */
static bool is_refusal(const char *name)
{
    const size_t count = strlen(name), end = sizeof "_refused" - 1;
    return strcmp(name, "denied") == 0 || (count > end && strcmp(name + count - end, "_refused") == 0);
}

static void write_refusals(FILE *out, const json_t *counters)
{
    static const char family[] = "tombolo_refusals_total";
    bool begun = false;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)counters, key, value)
    {
        const struct tb_series_label labels[] = {{"what", key}, {NULL, NULL}};
        if (!json_is_number(value) || !is_refusal(key)) continue;
        if (!begun) tb_series_head(out, family, "counter", "Refusals by the counter that has them.");
        begun = true;
        tb_series_write(out, family, labels, json_number_value(value));
    }
}

/* ---- tables ---- */

static const struct tb_series_field of_table[] = {
    {"tombolo_table_used", "used", NULL, "gauge", "Rows of a bounded table.", 1},
    {"tombolo_table_most", "most", NULL, "gauge", "The highest use since the start.", 1},
    {"tombolo_table_bound", "bound", NULL, "gauge", "The most rows that there may be.", 1},
    {"tombolo_table_refused_total", "refused", NULL, "counter", "Requests that found no row.", 1},
};

static void table_labels(const json_t *table, struct tb_series_label *labels_out)
{
    labels_out[0] = (struct tb_series_label){"table", tb_facts_text(table, "table")};
    labels_out[1] = (struct tb_series_label){NULL, NULL};
}

/* ---- lag ---- */

static const struct tb_series_field of_lag[] = {
    {"tombolo_lag_known", "known", NULL, "gauge", "0: the site's state is not known now.", 1},
    {"tombolo_lag_versions", "versions", NULL, "gauge", "Versions that the site lacks.", 1},
    {"tombolo_lag_bytes", "bytes", NULL, "gauge", "Bytes of the head that the site lacks.", 1},
    {"tombolo_lag_seconds", "seconds", NULL, "gauge", "How long the site is behind.", 1},
    {"tombolo_lag_heard_seconds", "heard_s", NULL, "gauge", "Age of the site's last word.", 1},
};

static void lag_labels(const json_t *row, struct tb_series_label *labels_out)
{
    labels_out[0] = (struct tb_series_label){"model", tb_facts_text(row, "model")};
    labels_out[1] = (struct tb_series_label){"site", tb_facts_text(row, "site")};
    labels_out[2] = (struct tb_series_label){NULL, NULL};
}

static void write_lag(FILE *out, const json_t *rows)
{
    tb_series_fields(out, of_lag, COUNT(of_lag), rows, lag_labels);
    if (json_array_size(rows) == 0) return;
    tb_series_head(out, "tombolo_lag_reason", "gauge",
                   "1 for the one reason why the site stands as it does.");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        struct tb_series_label labels[TB_SERIES_LABELS_MAX];
        lag_labels(json_array_get(rows, i), labels);
        labels[2] = (struct tb_series_label){"reason", tb_facts_text(json_array_get(rows, i), "reason")};
        labels[3] = (struct tb_series_label){NULL, NULL};
        tb_series_write(out, "tombolo_lag_reason", labels, 1);
    }
}

/* ---- versions ---- */

static const struct tb_series_field of_version[] = {
    {"tombolo_version_bytes", "bytes", NULL, "gauge", "All shards of the newest version.", 1},
    {"tombolo_version_held_bytes", "held_bytes", NULL, "gauge", "Of them, what this gateway holds.", 1},
    {"tombolo_version_whole_seconds", "whole_s", NULL, "gauge",
     "From the first word of it until all of it was here.", 1},
    {"tombolo_version_wire_bytes", "wire_bytes", NULL, "gauge", "Bytes that came for it.", 1},
    {"tombolo_version_sent_raw_bytes", "raw_bytes", "sent", "gauge", "Bytes sent of it, when decoded.", 1},
    {"tombolo_version_sent_bytes", "bytes", "sent", "gauge", "The same as it went, with heads.", 1},
    {"tombolo_version_resent_bytes", "resent_bytes", "sent", "gauge",
     "Of it, chunks that went to the same peer before.", 1},
    {"tombolo_version_queued_seconds", "queued_s", "stages", "gauge", "Known, and not asked for.", 1},
    {"tombolo_version_manifests_seconds", "manifests_s", "stages", "gauge", "Its manifests came.", 1},
    {"tombolo_version_landing_seconds", "landing_s", "stages", "gauge", "Its bytes came.", 1},
    {"tombolo_version_activating_seconds", "activating_s", "stages", "gauge",
     "From whole until every reader group here used it.", 1},
};

static void version_labels(const json_t *version, struct tb_series_label *labels_out)
{
    labels_out[0] = (struct tb_series_label){"model", tb_facts_text(version, "model")};
    labels_out[1] = (struct tb_series_label){NULL, NULL};
}

/* Of each model the newest version here, so that no series is born with each step of a trainer. The
 * answer is ordered by model, run and number. */
static json_t *newest_of(const json_t *versions)
{
    json_t *newest = json_array();
    for (size_t i = 0; newest != NULL && i < json_array_size(versions); i++) {
        json_t *version = json_array_get(versions, i);
        const json_t *next = json_array_get(versions, i + 1);
        if (next != NULL && strcmp(tb_facts_text(next, "model"), tb_facts_text(version, "model")) == 0)
            continue;
        if (json_array_append(newest, version) != 0) break; /* no memory: fewer series */
    }
    return newest;
}

static void write_versions(FILE *out, const json_t *versions)
{
    json_t *newest = newest_of(versions);
    tb_series_fields(out, of_version, COUNT(of_version), newest, version_labels);
    json_decref(newest);
}

/* Of a gateway that is silent its last answers say nothing of now. */
void tb_metrics_write(FILE *out, const struct tb_web_facts *facts)
{
    const struct tb_series_label none[] = {{NULL, NULL}};
    const bool up = facts->status != NULL && !facts->silent;
    TB_ASSERT(out != NULL);
    tb_series_head(out, "tombolo_up", "gauge", "1 while the gateway answers on its control socket.");
    tb_series_write(out, "tombolo_up", none, up);
    if (!up) return;
    tb_series_head(out, "tombolo_answer_age_seconds", "gauge", "Age of what this scrape says.");
    tb_series_write(out, "tombolo_answer_age_seconds", none, facts->age_s);
    write_gateway(out, facts->status);
    tb_series_fields(out, of_table, COUNT(of_table), json_object_get(facts->status, "tables"), table_labels);
    tb_metrics_links(out, json_object_get(facts->status, "links"), json_object_get(facts->streams, "links"));
    write_counters(out, json_object_get(facts->status, "counters"));
    write_refusals(out, json_object_get(facts->status, "counters"));
    tb_metrics_readers(out, facts->status);
    if (facts->stage_times != NULL) tb_metrics_stages(out, facts->stage_times);
    if (facts->lag != NULL) write_lag(out, json_object_get(facts->lag, "lag"));
    if (facts->versions != NULL) write_versions(out, json_object_get(facts->versions, "versions"));
}
