/* bounds.c - the sizes of tables, from the models, their `keep` and session.max. */
#include "gateway/config/bounds.h"

#include <stddef.h>

#include "base/assert.h"

/* Rows of a model whose keep is small, and of what all other sites hold. */
#define MODEL_VERSIONS_MIN 64u
/* The same of each model of a pattern that is awake, beyond those that the pattern's own row has:
 * two that are kept, one that arrives, and what ended lately; of others, that they hold these. */
#define AWAKE_VERSIONS      8u
#define AWAKE_REFERENCES    4u
#define SITE_REFERENCES_MIN 1024u
#define SITE_REFERENCES_MAX (1u << 18)
/* P7: handshakes from session.networks have a pool of their own, for thousands that come back at
 * once: that part of the connections. */
#define NETWORKS_PART 8u

/* Rows of a model: what is kept here and at its home, what ended lately, and an
 * eighth that stays free. */
uint32_t tb_bounds_model_versions(const struct tb_config_model *m)
{
    const uint32_t wanted = 3 * m->keep + 24;
    TB_ASSERT(wanted > m->keep);
    return wanted > MODEL_VERSIONS_MIN ? wanted : MODEL_VERSIONS_MIN;
}

static uint32_t model_versions(const struct tb_config *c)
{
    TB_ASSERT(c->model_count <= TB_CONFIG_LIST_MAX);
    uint32_t most = MODEL_VERSIONS_MIN;
    for (uint32_t i = 0; i < c->model_count; i++)
        if (tb_bounds_model_versions(&c->models[i]) > most) most = tb_bounds_model_versions(&c->models[i]);
    return most;
}

/* Of all models, and of some that a later file may add. */
static uint32_t all_versions(const struct tb_config *c)
{
    TB_ASSERT(c->model_count <= TB_CONFIG_LIST_MAX);
    uint32_t sum = (TB_CONFIG_LIST_MAX - c->model_count) * MODEL_VERSIONS_MIN;
    for (uint32_t i = 0; i < c->model_count; i++)
        sum += tb_bounds_model_versions(&c->models[i]);
    return sum + TB_CONFIG_AWAKE_MAX * AWAKE_VERSIONS;
}

/* P6: each site may hold all that is kept of each model, and one that arrives. */
static uint32_t site_references(const struct tb_config *c)
{
    uint64_t versions = 0;
    for (uint32_t i = 0; i < c->model_count; i++)
        versions += c->models[i].keep + 1;
    const uint64_t named = TB_CONFIG_LIST_MAX * versions;
    const uint64_t wanted = (named > SITE_REFERENCES_MIN ? named : SITE_REFERENCES_MIN) +
                            (uint64_t)TB_CONFIG_AWAKE_MAX * AWAKE_REFERENCES;
    return wanted > SITE_REFERENCES_MAX ? SITE_REFERENCES_MAX : (uint32_t)wanted;
}

/* One for each peer and model, and as many again for sites behind relays. */
static uint32_t site_records(const struct tb_config *c)
{
    TB_ASSERT(c->peer_count <= TB_CONFIG_LIST_MAX);
    const uint32_t awake = TB_CONFIG_AWAKE_MAX * (c->peer_count + 2);
    return 2 * (c->peer_count + 8) * (c->model_count + 1) + awake;
}

uint32_t tb_bounds_greeted(uint32_t sessions)
{
    TB_ASSERT(sessions <= UINT32_MAX / 4);
    return sessions + TB_BOUNDS_GREETING;
}

uint32_t tb_bounds_networks(uint32_t sessions)
{
    return tb_bounds_greeted(sessions) / NETWORKS_PART;
}

uint32_t tb_bounds_connections(uint32_t sessions)
{
    return tb_bounds_greeted(sessions) + tb_bounds_networks(sessions) + TB_BOUNDS_STRANGERS;
}

/* A worker follows one model, waits once or twice, and seals, stages or holds a few versions. */
struct tb_bounds tb_bounds_of(const struct tb_config *c)
{
    TB_ASSERT(c->session_max <= UINT32_MAX / 4); /* the key has a smaller range */
    TB_ASSERT(c->link_encoded_percent <= 100);
    return (struct tb_bounds){.models = TB_CONFIG_MODELS_MAX,
                              .versions = all_versions(c),
                              .model_versions = model_versions(c),
                              .sites = TB_CONFIG_LIST_MAX,
                              .sessions = c->session_max,
                              .groups = c->session_max,
                              .members = c->session_max,
                              .waits = 2 * c->session_max,
                              .references = 4 * c->session_max,
                              .site_references = site_references(c),
                              .records = site_records(c),
                              .encoded_bytes = c->arena_bytes / 100 * c->link_encoded_percent};
}

/* The same for every configuration. tests/unit/daemon/usage.c holds them to what the tables say
 * themselves. */
static const struct tb_bound fixed[] = {
    {"runs", 1024},
    {"export_source_bytes", UINT64_C(512) << 20},
    {"tokens", 8192},
    {"door_readers", 1024},
    {"parked_seal_bytes", UINT64_C(256) << 20},
    {"store_rows", 256},
    {"models_awake", TB_CONFIG_AWAKE_MAX},
    {"held_replies", 4096},
    {"partial_frame_bytes", UINT64_C(512) << 20},
    {"audit_rows", 384},
    {"audit_sums", 256},
    {"control_clients", 64},
    {"control_read_clients", 64},
    {"withdrawals", 1024},
    {"withdrawals_in_all", 16384},
    {"live_asks", 16},
    {"statements", 1024},
    {"statements_in_all", 32768},
    {"idle_layout_bytes", UINT64_C(64) << 20},
    {"lent_bytes", UINT64_C(256) << 20},
    {"borrowed_bytes", UINT64_C(256) << 20},
    {"offers", 4096},
    {"announced", 4096},
    {"granted", 16384},
    {"landings", 4096},
    {"asks", 256},
    {"link_connections", 304},
};
#define FIXED (sizeof fixed / sizeof fixed[0])

bool tb_bounds_at(const struct tb_bounds *b, uint32_t *cursor, struct tb_bound *bound_out)
{
    const struct tb_bound made[] = {
        {"models", b->models},
        {"versions", b->versions},
        {"versions_of_a_model", b->model_versions},
        {"sites", b->sites},
        {"sessions", b->sessions},
        {"groups", b->groups},
        {"members", b->members},
        {"waits", b->waits},
        {"references", (uint64_t)b->references + b->site_references},
        {"references_of_workers", b->references},
        {"references_of_sites", b->site_references},
        {"records", b->records},
        {"connections", tb_bounds_connections(b->sessions)},
        {"worker_exports", b->references},
        {"unpublish_waits", b->references + (uint64_t)TB_BOUNDS_JOINED * b->sessions},
        {"run_waits", b->sessions},
        {"copies", b->versions},
        {"exports", b->versions},
        {"grants", b->references},
        {"encoded_bytes", b->encoded_bytes},
    };
    const size_t count = sizeof made / sizeof made[0];
    if (*cursor >= count + FIXED) return false;
    *bound_out = *cursor < count ? made[*cursor] : fixed[*cursor - count];
    ++*cursor;
    return true;
}
