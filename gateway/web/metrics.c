/* metrics.c - see metrics.h. A family of series is one row of a table. */
#include "gateway/web/metrics.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

/* ---- one series ---- */

struct label {
    const char *name, *value;
};

static void write_value(FILE *out, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"') (void)fputc('\\', out);
        if (*value == '\n')
            (void)fputs("\\n", out);
        else
            (void)fputc(*value, out);
    }
}

/* Labels end with one without a name. */
static void write_series(FILE *out, const char *name, const struct label *labels, double value)
{
    TB_ASSERT(name != NULL);
    (void)fputs(name, out);
    for (size_t i = 0; labels[i].name != NULL; i++) {
        (void)fprintf(out, "%s%s=\"", i == 0 ? "{" : ",", labels[i].name);
        write_value(out, labels[i].value);
        (void)fputc('"', out);
    }
    (void)fprintf(out, "%s %.17g\n", labels[0].name != NULL ? "}" : "", value);
}

static void write_head(FILE *out, const char *name, const char *type, const char *help)
{
    (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* False: there is no such number, so there is no series. A true or false is 1 or 0. */
static bool number_of(const json_t *object, const char *key, double *value_out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) && !json_is_boolean(value)) return false;
    *value_out = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    return true;
}

/* ---- families that are one field of each object of a list ---- */

struct field {
    const char *name;   /* of the family */
    const char *key;    /* of the object, or of the object that it has under `inside` */
    const char *inside; /* NULL: the object itself */
    const char *type, *help;
    double scale; /* to the family's unit */
};

static void write_fields(FILE *out, const struct field *fields, size_t count, const json_t *list,
                         void (*labels_of)(const json_t *object, struct label *labels_out))
{
    struct label labels[4] = {{NULL, NULL}};
    for (size_t f = 0; f < count; f++) {
        bool begun = false;
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *object = json_array_get(list, i);
            const json_t *from =
                fields[f].inside == NULL ? object : json_object_get(object, fields[f].inside);
            double value = 0;
            if (!number_of(from, fields[f].key, &value)) continue;
            if (!begun) write_head(out, fields[f].name, fields[f].type, fields[f].help);
            begun = true;
            labels_of(object, labels);
            write_series(out, fields[f].name, labels, value * fields[f].scale);
        }
    }
}

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* ---- the gateway ---- */

static const struct field of_gateway[] = {
    {"tombolo_uptime_seconds", "uptime_s", NULL, "gauge", "Since tombolod started.", 1},
    {"tombolo_draining", "draining", NULL, "gauge", "1 after SIGTERM.", 1},
    {"tombolo_recovering", "recovering", NULL, "gauge",
     "1 for a lease time after a start: nothing is evicted.", 1},
    {"tombolo_store_ok", "store_ok", NULL, "gauge", "0 while the durable store cannot be written.", 1},
    {"tombolo_store_waiting", "store_waiting", NULL, "gauge", "Changes that are not on the disk yet.", 1},
    {"tombolo_certificate_expires_seconds", "certificate_expires_ms", NULL, "gauge",
     "When the gateway's certificate ends, in seconds since 1970.", 1e-3},
    {"tombolo_sessions", "session_count", NULL, "gauge", "Connections of workers.", 1},
    {"tombolo_arena_bytes", "bytes", "arena", "gauge", "The arena's size.", 1},
    {"tombolo_arena_used_bytes", "used", "arena", "gauge", "Of it, what versions take.", 1},
    {"tombolo_arena_largest_free_bytes", "largest_free", "arena", "gauge",
     "The largest version that fits now.", 1},
    {"tombolo_encoded_bytes", "bytes", "encoded", "gauge", "Deltas that are kept for peers and workers.", 1},
};

static void no_labels(const json_t *object, struct label *labels_out)
{
    (void)object;
    labels_out[0] = (struct label){NULL, NULL};
}

static void write_gateway(FILE *out, const json_t *status)
{
    json_t *one = json_array();
    if (one == NULL || json_array_append(one, (json_t *)status) != 0) { /* counted up, and down again */
        json_decref(one);
        return;
    }
    write_fields(out, of_gateway, COUNT(of_gateway), one, no_labels);
    json_decref(one);
    const struct label labels[] = {{"site", text_of(status, "site")},
                                   {"gateway", text_of(status, "gateway")},
                                   {"version", text_of(status, "version")},
                                   {NULL, NULL}};
    write_head(out, "tombolo_info", "gauge", "The gateway that answers; always 1.");
    write_series(out, "tombolo_info", labels, 1);
}

static bool is_metric_name(const char *name)
{
    return *name != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

/* Each counter of docs/operations.md, as tombolo_NAME_total. */
static void write_counters(FILE *out, const json_t *counters)
{
    const struct label none[] = {{NULL, NULL}};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)counters, key, value)
    {
        char name[128];
        if (!json_is_number(value) || !is_metric_name(key)) continue;
        if (snprintf(name, sizeof name, "tombolo_%s_total", key) >= (int)sizeof name) continue;
        write_head(out, name, "counter", "docs/operations.md says what to do about it.");
        write_series(out, name, none, json_number_value(value));
    }
}

/* ---- tables and links ---- */

static const struct field of_table[] = {
    {"tombolo_table_used", "used", NULL, "gauge", "Rows of a bounded table.", 1},
    {"tombolo_table_most", "most", NULL, "gauge", "The highest use since the start.", 1},
    {"tombolo_table_bound", "bound", NULL, "gauge", "The most rows that there may be.", 1},
    {"tombolo_table_refused_total", "refused", NULL, "counter", "Requests that found no row.", 1},
};

static void table_labels(const json_t *table, struct label *labels_out)
{
    labels_out[0] = (struct label){"table", text_of(table, "table")};
    labels_out[1] = (struct label){NULL, NULL};
}

static const struct field of_link[] = {
    {"tombolo_link_since_seconds", "since_s", NULL, "gauge", "How long the link is up, or down.", 1},
    {"tombolo_link_rtt_seconds", "rtt_ms", NULL, "gauge", "Of heartbeats; 0: not known.", 1e-3},
    {"tombolo_link_streams", "streams", NULL, "gauge", "Data streams that are open.", 1},
    {"tombolo_link_goodput_bytes_per_second", "goodput_bytes_per_s", NULL, "gauge",
     "Both ways, over the last second.", 1},
    {"tombolo_link_sent_bytes_total", "sent_bytes", NULL, "counter", "Of chunks, as encoded.", 1},
    {"tombolo_link_received_bytes_total", "received_bytes", NULL, "counter", "Of chunks, as encoded.", 1},
    {"tombolo_link_sent_raw_bytes_total", "sent_raw_bytes", NULL, "counter", "Of chunks, when decoded.", 1},
    {"tombolo_link_chunks_sent_total", "chunks_sent", NULL, "counter", "Chunks.", 1},
    {"tombolo_link_delta_chunks_total", "delta_chunks", NULL, "counter", "Of them, deltas to a base.", 1},
    {"tombolo_link_chunks_no_base_total", "chunks_no_base", NULL, "counter",
     "Chunks that crossed whole because a base had gone.", 1},
    {"tombolo_link_hedged_bytes_total", "hedged_bytes", NULL, "counter",
     "Of chunks that went again because they were late.", 1},
    {"tombolo_link_again_bytes_total", "again_bytes", NULL, "counter",
     "Of chunks that may come by another way too.", 1},
    {"tombolo_link_streams_lost_total", "streams_lost", NULL, "counter", "Streams that broke.", 1},
    {"tombolo_link_chunks_bad_total", "chunks_bad", NULL, "counter", "Chunks with a wrong digest.", 1},
    {"tombolo_link_chunks_duplicate_total", "chunks_duplicate", NULL, "counter",
     "Chunks that were here already.", 1},
    {"tombolo_link_sessions_total", "sessions", NULL, "counter", "Sessions that came up.", 1},
    {"tombolo_link_limit_bytes_per_second", "bit_per_s", "limit", "gauge",
     "The rate that an operator allows now; 0: no limit.", 0.125},
    {"tombolo_link_day_used_bytes", "day_used_bytes", "limit", "gauge", "Of the day's bytes (UTC).", 1},
    {"tombolo_link_day_bytes", "day_bytes", "limit", "gauge", "A day's bytes; 0: no limit.", 1},
};

static void link_labels(const json_t *link, struct label *labels_out)
{
    labels_out[0] = (struct label){"peer", text_of(link, "site")};
    labels_out[1] = (struct label){NULL, NULL};
}

static void write_link_states(FILE *out, const json_t *links)
{
    struct label labels[3];
    if (json_array_size(links) == 0) return;
    write_head(out, "tombolo_link_up", "gauge", "1 while the link to that peer is up.");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        link_labels(link, labels);
        write_series(out, "tombolo_link_up", labels, strcmp(text_of(link, "state"), "up") == 0);
    }
    write_head(out, "tombolo_link_reason", "gauge", "1 for the reason why the link is down, or ails.");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *link = json_array_get(links, i);
        if (*text_of(link, "reason") == '\0') continue;
        labels[0] = (struct label){"peer", text_of(link, "site")};
        labels[1] = (struct label){"reason", text_of(link, "reason")};
        labels[2] = (struct label){NULL, NULL};
        write_series(out, "tombolo_link_reason", labels, 1);
    }
}

/* ---- lag ---- */

static const struct field of_lag[] = {
    {"tombolo_lag_known", "known", NULL, "gauge", "0: the site's state is not known now.", 1},
    {"tombolo_lag_versions", "versions", NULL, "gauge", "Versions that the site lacks.", 1},
    {"tombolo_lag_bytes", "bytes", NULL, "gauge", "Bytes of the head that the site lacks.", 1},
    {"tombolo_lag_seconds", "seconds", NULL, "gauge", "How long the site is behind.", 1},
    {"tombolo_lag_heard_seconds", "heard_s", NULL, "gauge", "Age of the site's last word.", 1},
};

static void lag_labels(const json_t *row, struct label *labels_out)
{
    labels_out[0] = (struct label){"model", text_of(row, "model")};
    labels_out[1] = (struct label){"site", text_of(row, "site")};
    labels_out[2] = (struct label){NULL, NULL};
}

static void write_lag(FILE *out, const json_t *rows)
{
    write_fields(out, of_lag, COUNT(of_lag), rows, lag_labels);
    if (json_array_size(rows) == 0) return;
    write_head(out, "tombolo_lag_reason", "gauge", "1 for the one reason why the site stands as it does.");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        struct label labels[4];
        lag_labels(json_array_get(rows, i), labels);
        labels[2] = (struct label){"reason", text_of(json_array_get(rows, i), "reason")};
        labels[3] = (struct label){NULL, NULL};
        write_series(out, "tombolo_lag_reason", labels, 1);
    }
}

/* ---- versions ---- */

static const struct field of_version[] = {
    {"tombolo_version_bytes", "bytes", NULL, "gauge", "All shards of the newest version.", 1},
    {"tombolo_version_held_bytes", "held_bytes", NULL, "gauge", "Of them, what this gateway holds.", 1},
    {"tombolo_version_whole_seconds", "whole_s", NULL, "gauge",
     "From the first word of it until all of it was here.", 1},
    {"tombolo_version_wire_bytes", "wire_bytes", NULL, "gauge", "Bytes that came for it.", 1},
    {"tombolo_version_queued_seconds", "queued_s", "stages", "gauge", "Known, and not asked for.", 1},
    {"tombolo_version_manifests_seconds", "manifests_s", "stages", "gauge", "Its manifests came.", 1},
    {"tombolo_version_landing_seconds", "landing_s", "stages", "gauge", "Its bytes came.", 1},
};

static void version_labels(const json_t *version, struct label *labels_out)
{
    labels_out[0] = (struct label){"model", text_of(version, "model")};
    labels_out[1] = (struct label){NULL, NULL};
}

/* Of each model the newest version here, so that no series is born with each step of a trainer. The
 * answer is ordered by model, run and number. */
static json_t *newest_of(const json_t *versions)
{
    json_t *newest = json_array();
    for (size_t i = 0; newest != NULL && i < json_array_size(versions); i++) {
        json_t *version = json_array_get(versions, i);
        const json_t *next = json_array_get(versions, i + 1);
        if (next != NULL && strcmp(text_of(next, "model"), text_of(version, "model")) == 0) continue;
        if (json_array_append(newest, version) != 0) break; /* no memory: fewer series */
    }
    return newest;
}

void tb_metrics_write(FILE *out, const struct tb_web_facts *facts)
{
    const struct label none[] = {{NULL, NULL}};
    TB_ASSERT(out != NULL);
    write_head(out, "tombolo_up", "gauge", "1 while the gateway answers on its control socket.");
    write_series(out, "tombolo_up", none, facts->status != NULL);
    if (facts->status != NULL) {
        const json_t *links = json_object_get(facts->status, "links");
        write_gateway(out, facts->status);
        write_fields(out, of_table, COUNT(of_table), json_object_get(facts->status, "tables"), table_labels);
        write_link_states(out, links);
        write_fields(out, of_link, COUNT(of_link), links, link_labels);
        write_counters(out, json_object_get(facts->status, "counters"));
    }
    if (facts->lag != NULL) write_lag(out, json_object_get(facts->lag, "lag"));
    if (facts->versions == NULL) return;
    json_t *newest = newest_of(json_object_get(facts->versions, "versions"));
    write_fields(out, of_version, COUNT(of_version), newest, version_labels);
    json_decref(newest);
}
