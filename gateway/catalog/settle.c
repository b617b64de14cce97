/* settle.c - the catalog's memory, its clock, and the loop in which touched rows draw their conclusions. */
#include "gateway/catalog/tables.h"

#include <string.h>

#include "base/assert.h"

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

static void carve_all(struct carver *k, struct tb_catalog *c)
{
    const struct tb_catalog_limits *l = &c->limits;
    carve_table(k, &c->models, "models", l->models, sizeof(struct model));
    carve_table(k, &c->runs, "runs", l->runs, sizeof(struct run));
    carve_table(k, &c->versions, "versions", l->versions, sizeof(struct version));
    carve_table(k, &c->sessions, "sessions", l->sessions, sizeof(struct session));
    carve_table(k, &c->references, "references", l->references + l->site_references,
                sizeof(struct reference));
    carve_table(k, &c->groups, "groups", l->groups, sizeof(struct group));
    carve_table(k, &c->members, "members", l->members, sizeof(struct member));
    carve_table(k, &c->waits, "waits", l->waits, sizeof(struct wait));
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

enum tb_status tb_catalog_refuse_full(struct tb_catalog *c, struct table *t)
{
    c->full = t->name;
    t->refused++;
    return TB_SITE_NOMEM;
}

bool tb_catalog_same_name(const struct tb_name *a, const struct tb_name *b)
{
    return strncmp(a->text, b->text, sizeof a->text) == 0;
}

bool tb_catalog_copy_text(char out[TB_CATALOG_TEXT_MAX], const char *text)
{
    const size_t length = strnlen(text, TB_CATALOG_TEXT_MAX);
    const size_t kept = length < TB_CATALOG_TEXT_MAX ? length : TB_CATALOG_TEXT_MAX - 1;
    memcpy(out, text, kept);
    out[kept] = 0;
    return kept == length;
}

/* ---- settling ---- */

void tb_catalog_enter(struct tb_catalog *c, tb_time_ns now)
{
    if (now > c->now) c->now = now;
    c->full = "";
}

void tb_catalog_touch_model(struct tb_catalog *c, uint32_t model)
{
    model_at(c, model)->touched = true;
    c->unsettled = true;
    c->waits_touched = true;
}

void tb_catalog_touch_version(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    v->touched = true;
    tb_catalog_touch_model(c, v->model);
}

void tb_catalog_touch_group(struct tb_catalog *c, uint32_t group)
{
    group_at(c, group)->touched = true;
    c->unsettled = true;
    c->waits_touched = true;
}

static void model_settle(struct tb_catalog *c, uint32_t model)
{
    struct model *m = model_at(c, model);
    struct which head = {.run_order = 0};
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model != model || !tb_version_lives(v)) continue;
        const struct which w = tb_which_of(v);
        if (tb_id_is_zero(&head.uid) || tb_which_compare(&w, &head) > 0) head = w;
    }
    if (!tb_id_equal(&head.uid, &m->head.uid)) {
        m->head = head;
        tb_row_mark(&c->models, model, TB_CATALOG_PERSIST_POINTER);
    }
    tb_retention_settle(c, model);
    tb_catalog_crossing_settle(c, model);
    tb_catalog_site_activated_settle(c, model);
    tb_versions_forget(c, model);
}

static void settle_pass(struct tb_catalog *c)
{
    EACH(c->versions, v) if (version_at(c, v)->touched)
    {
        version_at(c, v)->touched = false;
        tb_version_settle(c, v);
    }
    EACH(c->groups, g) if (group_at(c, g)->touched)
    {
        group_at(c, g)->touched = false;
        tb_group_settle(c, g);
    }
    EACH(c->models, m) if (model_at(c, m)->touched)
    {
        model_at(c, m)->touched = false;
        model_settle(c, m);
    }
}

/* A pass after the first has a cause in the pass before it: a version or a group moved on, or references ended because
 * one had moved on. A version moves at most four times (ready, kept, an end, its eviction), and a group twice (its
 * attempt ends, it goes). Settling begins no version and no attempt, so the passes come to an end. Nearly always two or
 * three are enough. */
static uint32_t passes_max(const struct tb_catalog *c)
{
    const uint32_t moves = 4 * c->versions.used + 2 * c->groups.used;
    return 2 * (moves + 1);
}

enum tb_status tb_catalog_settle(struct tb_catalog *c, enum tb_status status)
{
    const uint32_t most = passes_max(c);
    for (uint32_t passes = 0; c->unsettled; passes++) {
        TB_ASSERT(passes < most);
        c->unsettled = false;
        settle_pass(c);
    }
    return status;
}

/* ---- time ---- */

/* The loop of this process stood still: nobody could renew, so nobody is late. */
static void forgive_pause(struct tb_catalog *c, tb_time_ns now)
{
    const tb_time_ns gap = tb_time_since(c->last_tick, now);
    c->last_tick = now;
    if (gap <= c->config.tick_ns) return;
    const tb_time_ns pause = gap - c->config.tick_ns;
    c->recovers_until = tb_time_add(c->recovers_until, pause);
    EACH(c->sessions, i)
    {
        struct session *s = session_at(c, i);
        s->lease_until = tb_time_add(s->lease_until, pause);
    }
    EACH(c->versions, i)
    {
        struct version *v = version_at(c, i);
        v->lacks_since = tb_time_add(v->lacks_since, pause);
        v->fed_at = tb_time_add(v->fed_at, pause);
        v->came_at = tb_time_add(v->came_at, pause);
    }
}

static void end_recovery(struct tb_catalog *c)
{
    if (!c->recovering) return;
    c->recovering = false;
    EACH(c->versions, i) tb_catalog_touch_version(c, i);
    EACH(c->models, m) tb_catalog_touch_model(c, m);
}

void tb_catalog_first_start(struct tb_catalog *c, tb_time_ns now)
{
    tb_catalog_enter(c, now);
    end_recovery(c);
    (void)tb_catalog_settle(c, TB_OK);
}

void tb_catalog_tick(struct tb_catalog *c, tb_time_ns now)
{
    tb_catalog_enter(c, now);
    forgive_pause(c, c->now);
    tb_leases_tick(c);
    if (c->now >= c->recovers_until) end_recovery(c);
    tb_plans_tick(c);
    tb_sites_tick(c);
    tb_records_expire(c);
    if (tb_time_min(tb_unpublish_deadline(c), tb_versions_deadline(c)) <= c->now)
        EACH(c->versions, i) tb_catalog_touch_version(c, i);
    if (tb_catalog_crossing_deadline(c) <= c->now) EACH(c->models, m) tb_catalog_touch_model(c, m);
    if (tb_waits_deadline(c) <= c->now) c->waits_touched = true;
    (void)tb_catalog_settle(c, TB_OK);
}

tb_time_ns tb_catalog_next_deadline(const struct tb_catalog *c)
{
    tb_time_ns at = c->recovering ? c->recovers_until : TB_TIME_NEVER;
    at = tb_time_min(at, tb_leases_deadline(c));
    at = tb_time_min(at, tb_waits_deadline(c));
    at = tb_time_min(at, tb_unpublish_deadline(c));
    at = tb_time_min(at, tb_versions_deadline(c));
    at = tb_time_min(at, tb_catalog_crossing_deadline(c));
    return tb_time_min(at, tb_plans_deadline(c));
}
