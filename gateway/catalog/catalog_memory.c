/* catalog_memory.c - the catalog's memory, carved from the caller's, and its defaults. */
#include "gateway/catalog/catalog.h"

#include <string.h>

#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/record_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/site_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rows/wait_rows.h"
#include "intra/planner.h"

static uint32_t or_default(uint32_t value, uint32_t otherwise)
{
    return value == 0 ? otherwise : value;
}

static struct tb_catalog_limits with_defaults(const struct tb_catalog_limits *given)
{
    struct tb_catalog_limits l = *given;
    l.models = or_default(l.models, 16);
    l.runs = or_default(l.runs, TB_CATALOG_RUNS);
    l.versions = or_default(l.versions, TB_CATALOG_VERSIONS);
    l.model_versions = or_default(l.model_versions, l.versions);
    l.shards = or_default(l.shards, TB_CATALOG_SHARDS);
    l.sessions = or_default(l.sessions, 1024);
    l.references = or_default(l.references, 4096);
    l.site_references = or_default(l.site_references, TB_CATALOG_SITE_REFERENCES);
    l.groups = or_default(l.groups, 512);
    l.members = or_default(l.members, 1024);
    l.waits = or_default(l.waits, 2048);
    l.sites = or_default(l.sites, 32);
    l.records = or_default(l.records, 128);
    if (l.manifest_bytes == 0) l.manifest_bytes = TB_MANIFESTS_BYTES_MAX;
    if (l.shards > TB_SHARDS_MAX) l.shards = TB_SHARDS_MAX;
    return l;
}

/* So sparse that few ids share a hint: those that lose theirs are found row by row. */
static uint32_t hint_count(uint32_t sessions)
{
    uint32_t count = 64;
    while (count / 8 < sessions && count < UINT32_C(1) << 30)
        count *= 2;
    return count;
}

/* Hands out parts of the caller's memory; with base NULL it only measures. */
struct carver {
    uint8_t *base;
    size_t used;
};

static void *carve(struct carver *k, size_t bytes)
{
    void *part = k->base == NULL ? NULL : k->base + k->used;
    k->used += (bytes + 63) & ~(size_t)63;
    return part;
}

static void carve_table(struct carver *k, struct table *t, const char *name, uint32_t cap, size_t row_bytes)
{
    *t = (struct table){.rows = carve(k, (size_t)cap * row_bytes),
                        .row_bytes = row_bytes,
                        .cap = cap,
                        .free_first = NONE,
                        .dirty_first = NONE,
                        .dirty_last = NONE,
                        .name = name};
}

/* Identities share `bound` rows of the table. */
static void carve_shares(struct carver *k, struct table *t, uint32_t bound)
{
    const size_t bytes = tb_share_places(bound) * sizeof(struct tb_share);
    struct tb_share *places = bytes != 0 ? carve(k, bytes) : NULL;
    if (places == NULL) return; /* not divided, or only measured */
    memset(places, 0, bytes);
    tb_share_init(&t->shares, places, bound);
}

static void carve_shared(struct carver *k, struct table *t, const char *name, uint32_t cap, size_t row_bytes)
{
    carve_table(k, t, name, cap, row_bytes);
    carve_shares(k, t, cap);
}

static void carve_all(struct carver *k, struct tb_catalog *c)
{
    const struct tb_catalog_limits *l = &c->limits;
    carve_table(k, &c->models, "models", l->models, sizeof(struct model));
    carve_table(k, &c->runs, "runs", l->runs, sizeof(struct run));
    carve_table(k, &c->versions, "versions", l->versions, sizeof(struct version));
    carve_shared(k, &c->sessions, "sessions", l->sessions, sizeof(struct session));
    carve_table(k, &c->references, "references", l->references + l->site_references,
                sizeof(struct reference));
    /* As sessions are: a worker has four, and sites have their own. */
    if (l->sessions >= TB_SHARE_LEAST) carve_shares(k, &c->references, l->references);
    carve_shared(k, &c->groups, "groups", l->groups, sizeof(struct group));
    carve_shared(k, &c->members, "members", l->members, sizeof(struct member));
    carve_shared(k, &c->waits, "waits", l->waits, sizeof(struct wait));
    carve_table(k, &c->sites, "sites", l->sites, sizeof(struct site));
    carve_table(k, &c->records, "records", l->records, sizeof(struct record));
    c->shards = carve(k, (size_t)l->versions * l->shards * sizeof(struct shard));
    c->question = carve(k, ((size_t)l->references + 1) * sizeof(struct tb_planner_member));
    c->session_readers = carve(k, (size_t)l->sessions * sizeof(uint32_t));
    c->session_hint_count = hint_count(l->sessions);
    c->session_hints = carve(k, (size_t)c->session_hint_count * sizeof(uint32_t));
}

size_t tb_catalog_bytes(const struct tb_catalog_limits *limits)
{
    struct tb_catalog measured = {.limits = with_defaults(limits)};
    struct carver k = {.base = NULL};
    (void)carve(&k, sizeof(struct tb_catalog));
    carve_all(&k, &measured);
    return k.used;
}

static void config_defaults(struct tb_catalog_config *config)
{
    if (config->lease_ns == 0) config->lease_ns = TB_SECONDS(10);
    if (config->tick_ns == 0) config->tick_ns = TB_MS(100);
    if (config->drain_ns == 0) config->drain_ns = TB_SECONDS(10);
    if (config->pin_max_ns == 0) config->pin_max_ns = TB_SECONDS(600);
    if (config->retry_ns == 0) config->retry_ns = TB_SECONDS(1);
}

struct tb_catalog *tb_catalog_init(void *memory, const struct tb_catalog_limits *limits,
                                   const struct tb_catalog_config *config, tb_time_ns now)
{
    struct carver k = {.base = memory};
    struct tb_catalog *c = carve(&k, sizeof *c);
    *c =
        (struct tb_catalog){.config = *config, .limits = with_defaults(limits), .now = now, .last_tick = now};
    config_defaults(&c->config);
    carve_all(&k, c);
    memset(c->session_hints, 0, (size_t)c->session_hint_count * sizeof(uint32_t));
    c->recovering = true;
    c->recovers_until = tb_time_add(now, c->config.lease_ns);
    c->full = "";
    return c;
}

const char *tb_catalog_full(const struct tb_catalog *c)
{
    return c->full;
}

bool tb_catalog_recovering(const struct tb_catalog *c)
{
    return c->recovering;
}

void tb_catalog_nic(struct tb_catalog *c, uint64_t bytes_per_s)
{
    c->gateway_nic = bytes_per_s;
}
