/* version_rules.c - what follows for a version: it becomes ready (settle_open), kept (settle_kept),
 * lost (settle_lost); and what its end takes along.
 *
 * Promises: nobody sees less than all shards (ready is one transaction), P6 (waiting for bytes that
 * nobody brings has an end). */
#include "gateway/catalog/rules/version_rules.h"
#include "base/assert.h"

#include "base/layout/version_key.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/site_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/crossing_rules.h"
#include "gateway/catalog/rules/landing_rules.h"
#include "gateway/catalog/rules/plans.h"
#include "gateway/catalog/rules/retention.h"
#include "gateway/catalog/rules/unpublish_rules.h"

static bool sealed_whole(const struct tb_catalog *c, const struct version *v)
{
    if (v->sealed_count != v->key.shard_count) return false;
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        if (!tb_shard_published(c, v, s) && !tb_shard_whole(v, s)) return false;
    return true;
}

/* Nobody is left to seal the rest, and not even what was sealed is here. (Ranks that handed their
 * shards to the arena and left may be followed by others.) */
static bool deserted(const struct tb_catalog *c, const struct version *v)
{
    EACH_HOLDER(c, v, r) if (reference_at(c, r)->kind == TB_REFERENCE_PUBLISHER) return false;
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        if (v->shards[s].sealed && !tb_shard_whole(v, s)) return true;
    return v->sealed_count == 0;
}

/* One that was open in the life before may have been ready: a store that lost its last writes, and
 * an arena that went with a reboot, do not know. Other sites and workers may have all of it then,
 * so it is not called lost: only this home is done with it. (A peer that says it was ready, and
 * with which bytes, is not believed: it would publish, P8.) */
static void give_up_open(struct tb_catalog *c, uint32_t version)
{
    const bool unsure = version_at(c, version)->restored_open;
    tb_version_end(c, version, unsure ? TB_VERSION_IS_ABANDONED : TB_VERSION_IS_LOST, "rank_lost");
}

/* The one transaction: all shards are sealed, and everybody who opened or sealed it is alive. */
static void settle_open(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (!model_at(c, v->model)->config.is_home) return; /* home's word makes it ready */
    if (v->rank_lost || (!c->recovering && deserted(c, v))) {
        give_up_open(c, version);
        return;
    }
    if (!sealed_whole(c, v)) return;
    struct tb_digest roots[TB_SHARDS_MAX];
    TB_ASSERT(v->key.shard_count <= TB_SHARDS_MAX && v->known_count == v->key.shard_count);
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        roots[s] = v->shards[s].info.root;
    v->key.root = tb_version_key_root(&v->key, roots);
    tb_version_name_ready(c, version);
}

/* P3: the publisher may go. A worker's word is no reason: it may end at any time, and may lie. */
static void settle_kept(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (v->life != TB_LIFE_READY || !(v->whole || tb_version_safe_elsewhere(c, v))) return;
    tb_version_moves(v, TB_VERSION_BECOMES_KEPT);
    v->why = v->whole ? "whole_here" : "whole_at_a_durable_site";
    tb_table_mark(&c->versions, version, TB_CATALOG_PERSIST_VERSION);
    tb_references_tell(c, version, TB_OK, false);
}

static uint32_t shard_lacking(const struct tb_catalog *c, const struct version *v)
{
    if (v->whole || tb_version_whole_elsewhere(c, v)) return NONE;
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        if (!tb_shard_whole(v, s) && !tb_shard_published(c, v, s)) return s;
    return NONE;
}

/* Chunks leave a rank by way of home alone: what home never held, no reader here has. A
 * chunk that rotted a worker or a site in the middle of its reading may have; and a site
 * what it adopted from files. */
static bool others_may_have(const struct tb_catalog *c, const struct version *v)
{
    EACH_REFERENCE(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind == TB_REFERENCE_PUBLISHER || ref->reads_only) continue;
        if (v->had_more || ref->kind == TB_REFERENCE_SITE) return true;
    }
    return false;
}

/* The time until the last of the sites that are asked one after the other has its turn. This site
 * does not know which of them can share. */
static tb_time_ns turns(const struct tb_catalog *c, const struct version *v)
{
    struct tb_name from[TB_CATALOG_FROM_MAX];
    const uint32_t sites = tb_catalog_crossing_from(c, v, from);
    return sites > 1 ? (sites - 1) * c->config.turn_ns : 0;
}

/* Holders are known by counts of chunks only. So all that have a part are read, workers and sites.
 * The chunk is not there when nothing new came for a lease time and the sites' turns. A site whose
 * link is down may still have what was here: home waits for it. */
static tb_time_ns hope_ends(const struct tb_catalog *c, const struct version *v)
{
    if (!others_may_have(c, v)) return c->now;
    const tb_time_ns chunk_at = v->fed_at > v->lacks_since ? v->fed_at : v->lacks_since;
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        const bool site = ref->kind == TB_REFERENCE_SITE;
        if (v->had_more && site && !site_at(c, ref->owner)->up) return TB_TIME_NEVER;
    }
    const tb_time_ns wait = tb_time_add(c->config.lease_ns, turns(c, v));
    return tb_time_add(tb_version_sign(c, v, chunk_at), wait);
}

tb_time_ns tb_versions_deadline(const struct tb_catalog *c)
{
    tb_time_ns at = TB_TIME_NEVER;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->lacks && tb_version_lives(v)) at = tb_time_min(at, hope_ends(c, v));
    }
    return at;
}

/* Home judges: other sites know only a part of the holders. */
static void settle_lost(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (c->recovering || !model_at(c, v->model)->config.is_home) return;
    const uint32_t lacking = shard_lacking(c, v);
    if (lacking != NONE && !v->lacks) v->lacks_since = c->now;
    v->lacks = lacking != NONE;
    if (!v->lacks || c->now < hope_ends(c, v)) return;
    if (v->had_more && others_may_have(c, v) && tb_landing_ask_others(c, version)) {
        v->fed_at = c->now; /* they have a lease time of their own */
        return;
    }
    v->blamed_shard = lacking;
    tb_version_end(c, version, TB_VERSION_IS_LOST, "no_holder");
}

/* Home gave it up: it is lost here too when no site and no worker that is known has all of it. */
static void settle_given_up(struct tb_catalog *c, uint32_t version)
{
    const struct version *v = version_at(c, version);
    if (!v->lost_at_home || v->whole || tb_version_whole_elsewhere(c, v)) return;
    tb_version_end(c, version, TB_VERSION_IS_LOST, "said_by_home");
}

static void settle_site_state(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    const bool whole = tb_version_here(v);
    if (whole && !v->whole_told) tb_table_mark(&c->versions, version, TB_CATALOG_SITE_STATE);
    v->whole_told = whole; /* what rotted and is back is told of again: peers may have heard of the rot */
}

/* A version ended: its holders are told, its groups and its references end, and its memory goes. */
static void settle_end(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (!v->ending) return;
    v->ending = false;
    const enum tb_status status = tb_version_status(c, v);
    TB_ASSERT(status != TB_OK);
    tb_references_tell(c, version, status, true);
    tb_groups_version_ended(c, version, status);
    tb_unpublish_settle(c, version); /* nothing is retained now: a rank that waits for that is let go */
    EACH_REFERENCE(c, v, r) tb_reference_end(c, r);
    TB_ASSERT(v->holders == NONE && v->workers == NONE);
    if (tb_version_reserved(v)) tb_catalog_evict(c, version);
}

void tb_version_settle(struct tb_catalog *c, uint32_t version)
{
    const struct version *v = version_at(c, version);
    if (v->life == TB_LIFE_OPEN) settle_open(c, version);
    if (tb_version_lives(v)) settle_kept(c, version);
    if (tb_version_lives(v)) settle_lost(c, version);
    if (tb_version_lives(v) || v->life == TB_LIFE_OPEN) settle_given_up(c, version);
    if (tb_version_lives(v)) settle_site_state(c, version);
    settle_end(c, version);
    tb_landing_settle(c, version);
    tb_unpublish_settle(c, version);
    tb_plans_settle(c, version);
}
