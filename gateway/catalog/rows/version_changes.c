/* version_changes.c - what changes a version's row. */
#include "gateway/catalog/rows/version_changes.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"

void tb_version_moves(struct version *v, enum tb_version_event event)
{
    v->life = tb_version_life_after(v->life, event);
    TB_ASSERT(v->life != TB_LIFE_END);
}

void tb_version_copy_moves(struct version *v, enum tb_version_copy_event event)
{
    v->copy = tb_version_copy_after(v->copy, event);
    TB_ASSERT(v->copy != TB_VERSION_COPY_END);
}

void tb_version_crossing_moves(struct version *v, enum tb_version_crossing_event event)
{
    v->crossing = tb_version_crossing_after(v->crossing, event);
    TB_ASSERT(v->crossing != TB_VERSION_CROSSING_END);
}

void tb_version_search_moves(struct version *v, enum tb_version_search_event event)
{
    v->search = tb_version_search_after(v->search, event);
    TB_ASSERT(v->search != TB_VERSION_SEARCH_END);
}

/* Others remember a version by its uid and order, never by its row. */
uint32_t tb_version_new(struct tb_catalog *c, uint32_t model, const struct tb_version_key *key)
{
    TB_ASSERT(key->shard_count > 0 && key->shard_count <= c->limits.shards);
    TB_ASSERT(tb_version_find(c, &key->uid) == NONE);
    if (tb_versions_of(c, model) >= c->limits.model_versions) return NONE;
    const uint32_t i = tb_table_new(&c->versions);
    if (i == NONE) return NONE;
    struct version *v = version_at(c, i);
    v->key = *key;
    v->model = model;
    v->life = TB_LIFE_OPEN;
    v->why = "opened";
    v->holders = v->workers = v->asking_last = NONE;
    v->blamed_shard = NONE;
    v->opened_at = c->now;
    v->shards = c->shards + (size_t)i * c->limits.shards;
    memset(v->shards, 0, (size_t)c->limits.shards * sizeof *v->shards);
    return i;
}

/* At its home the run's last number moves as well. */
void tb_version_name_ready(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    tb_version_moves(v, TB_VERSION_BECOMES_READY);
    v->was_ready = true;
    v->ready_at = c->now;
    v->why = "ready";
    tb_table_mark(&c->versions, version, TB_CATALOG_PERSIST_VERSION);
    const uint32_t r = tb_catalog_run_find(c, v->model, &v->key.run);
    if (r == NONE) return;
    struct tb_catalog_run *run = &run_at(c, r)->info;
    if (run->has_last && run->last_number >= v->key.number) return;
    run->has_last = true;
    run->last_number = v->key.number;
    tb_table_mark(&c->runs, r, TB_CATALOG_PERSIST_RUN);
}

void tb_version_end(struct tb_catalog *c, uint32_t version, enum tb_version_event event, const char *why)
{
    struct version *v = version_at(c, version);
    TB_ASSERT(!v->ending);
    tb_version_moves(v, event);
    TB_ASSERT(v->life >= TB_LIFE_RETIRED); /* an end, and no step of its life */
    v->why = why;
    v->ending = true;
    tb_table_unmark(&c->versions, version, TB_CATALOG_CROSS);
    tb_table_unmark(&c->versions, version, TB_CATALOG_SITE_STATE);
    tb_table_mark(&c->versions, version, TB_CATALOG_PERSIST_VERSION);
    tb_catalog_touch_version(c, version);
}

/* Readers that come later can only copy from these: so the wait ends (P6). */
void tb_version_fed(struct tb_catalog *c, const struct reference *ref)
{
    struct version *v = version_at(c, ref->version);
    TB_ASSERT(ref->kind != TB_REFERENCE_PUBLISHER); /* a rank has all of its shard */
    if (v->lacks && ref->since <= v->lacks_since) v->fed_at = c->now;
}

/* The memory is gone; what the shards are stays known. */
void tb_version_forget_shards(struct version *v)
{
    TB_ASSERT(tb_version_leaves(v));
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        v->shards[s].held_chunks = 0;
    v->held_chunks = 0;
    v->whole = false;
    tb_version_copy_moves(v, TB_VERSION_COPY_GIVEN_BACK);
    tb_version_crossing_moves(v, TB_VERSION_CROSSING_STOPS);
    v->arriving_since = 0;
}
