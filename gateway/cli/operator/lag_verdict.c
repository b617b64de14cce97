/* lag_verdict.c - see lag_verdict.h. */
#include "gateway/cli/operator/lag_verdict.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

static bool has_reason(const json_t *row, const char *reason)
{
    return strcmp(text_of(row, "reason"), reason) == 0;
}

static bool is_known(const json_t *row)
{
    return json_is_true(json_object_get(row, "known")) && !has_reason(row, "unknown");
}

static bool is_wanted(const json_t *row)
{
    return has_reason(row, "pinned") || has_reason(row, "paused") || has_reason(row, "no-subscriber");
}

bool tb_lag_verdict_is_behind(const json_t *row)
{
    return json_integer_value(json_object_get(row, "versions")) > 0 && !is_wanted(row);
}

static double seconds_of(const json_t *row)
{
    return json_number_value(json_object_get(row, "seconds"));
}

/* ---- order ---- */

static int class_of(const json_t *row)
{
    if (!is_known(row)) return 1;
    if (tb_lag_verdict_is_behind(row)) return 0;
    if (has_reason(row, "up-to-date")) return 4;
    return is_wanted(row) ? 3 : 2;
}

struct placed {
    json_t *row;
    size_t at;
};

static int worst_first(const void *a, const void *b)
{
    const struct placed *x = a, *y = b;
    const int by_class = class_of(x->row) - class_of(y->row);
    if (by_class != 0) return by_class;
    const double by_time = class_of(x->row) == 0 ? seconds_of(y->row) - seconds_of(x->row) : 0;
    if (by_time < 0 || by_time > 0) return by_time < 0 ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

void tb_lag_verdict_sort(json_t *rows)
{
    const size_t count = json_array_size(rows);
    struct placed *placed = count > 0 ? tb_calloc(count, sizeof *placed) : NULL;
    if (placed == NULL) return; /* as the gateway said them */
    for (size_t i = 0; i < count; i++)
        placed[i] = (struct placed){json_incref(json_array_get(rows, i)), i};
    qsort(placed, count, sizeof *placed, worst_first);
    for (size_t i = 0; i < count; i++)
        (void)json_array_set_new(rows, i, placed[i].row); /* both have as many */
    tb_free(placed);
}

/* ---- severity ---- */

enum tb_lag_severity tb_lag_verdict_severity(const json_t *row, double warn_s, double crit_s)
{
    TB_ASSERT(warn_s >= 0 && crit_s >= 0);
    if (!is_known(row)) return TB_LAG_NOT_KNOWN;
    if (!tb_lag_verdict_is_behind(row)) return TB_LAG_FINE;
    if (seconds_of(row) >= crit_s) return TB_LAG_CRITICAL;
    return seconds_of(row) >= warn_s ? TB_LAG_WARNING : TB_LAG_FINE;
}

enum tb_lag_severity tb_lag_verdict_worse(enum tb_lag_severity a, enum tb_lag_severity b)
{
    static const int rank[] = {
        [TB_LAG_FINE] = 0, [TB_LAG_WARNING] = 1, [TB_LAG_NOT_KNOWN] = 2, [TB_LAG_CRITICAL] = 3};
    TB_ASSERT(a <= TB_LAG_NOT_KNOWN && b <= TB_LAG_NOT_KNOWN);
    return rank[a] >= rank[b] ? a : b;
}

/* ---- what to do ---- */

const char *tb_lag_verdict_advice(const char *reason)
{
    static const struct {
        const char *reason, *advice;
    } list[] = {
        {"unknown", "wait a second; if it stays, ask that site: tombolo lag"},
        {"source-publishing", "look at the trainer's ranks: tombolo versions MODEL"},
        {"queued-behind", "see what crosses first: tombolo lag, for all models; models.NAME.policy"},
        {"manifests", "if it stays: tombolo streams"},
        {"stalled", "look at the path and at the sending gateway: tombolo streams"},
        {"waiting-base", "if it stays, look at the older version: tombolo versions MODEL"},
        {"window-limited", "tombolo streams names the sysctl"},
        {"loss-limited", "look at the path: tombolo streams shows what TCP sent again"},
        {"rate-limited", "tombolo limit PEER --rate none, at the site that sends"},
        {"budget-spent",
         "tombolo limit PEER --day-bytes, at the site that sends, or wait for the day's end (UTC)"},
        {"sender-cpu", "give the sending gateway cores, or set link.codec: raw"},
        {"receiver-cpu", "give that site's gateway cores"},
        {"receiver-memory", "give that site's gateway memory"},
        {"no-room", "raise arena.bytes there, or lower models.NAME.keep"},
        {"worker-not-activating", "look at that site's workers: tombolo chains MODEL"},
        {"link-down", "tombolo status, links; is the other gateway running?"},
        {"dns-failed", "resolve the peer's name by hand; peers.SITE.address"},
        {"refused-by-peer", "is the peer's gateway running, and does it listen there? peers.SITE.address"},
        {"tls-failed", "compare certificates and CAs at both ends: tombolo config check FILE"},
        {"identity-mismatch", "peers.SITE.gateway, or another host answers at that address"},
        {"twin-identity", "stop one of the two gateways, or give it a certificate of its own"},
        {"right-denied", "models.NAME.read at the site that sends"},
        {"verify-failed",
         "the sender's memory, or a rank that writes to sealed bytes: chunks_bad in tombolo status"},
        {"store-down", "the disk of store.path there"},
        {"clock-skew", "compare the clocks of both ends, and the dates of their certificates"},
        {"table-full", "tombolo status and the log there name the table and its largest user"},
        {"mtu", "the path's MTU: large packets vanish on it"},
        {"unsigned", "upgrade the home or the relay; models.NAME.home_ca; peers.SITE.unsigned"},
        {"pinned", "tombolo unpin MODEL, at that site"},
        {"share-spent", "its turn comes; see what crosses first: tombolo lag, for all models"},
        {"paused", "tombolo resume model MODEL, or resume peer SITE, at the site that paused it"},
        {"revoked", "issue another certificate, or take it off tls.revoked at the other end"},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (strcmp(list[i].reason, reason) == 0) return list[i].advice;
    return NULL;
}
