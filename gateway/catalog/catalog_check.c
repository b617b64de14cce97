/* catalog_check.c - asserts what holds of the catalog between two requests. Changes no row. */

#include "gateway/catalog/catalog_check.h"

#include "base/assert.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/record_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/session_rows.h"
#include "gateway/catalog/rows/site_rows.h"
#include "gateway/catalog/rows/source_links.h"
#include "gateway/catalog/rows/table_check.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rows/wait_rows.h"
#include "gateway/catalog/rules/version_removal.h"

#define CHECK_EVERY TB_SECONDS(1)
#define SMALL_ROWS  256u /* so few are checked at each turn */
#define TURN_ROWS   16u  /* that a turn pays for where there are more: a check is some 40 ns a row */

static bool counts(const struct table *t, uint32_t i)
{
    const struct row *row = tb_table_row(t, i);
    return row->live && !row->dead;
}

/* ---- models ---- */

/* The head is the newest version that lives. */
static void check_head(const struct tb_catalog *c, uint32_t model)
{
    const struct which *head = &model_at(c, model)->head;
    bool found = false;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model != model || !tb_version_lives(v)) continue;
        const struct which w = tb_which_of(v);
        TB_ASSERT(tb_which_compare(&w, head) <= 0);
        found = found || tb_which_is(head, &w.uid);
    }
    TB_ASSERT(found == !tb_id_is_zero(&head->uid));
}

/* A model has one pin at most, and both rows say so. */
static void check_pin(const struct tb_catalog *c, uint32_t model)
{
    const uint32_t pin = model_at(c, model)->pin;
    if (pin != NONE) TB_ASSERT(counts(&c->versions, pin) && version_at(c, pin)->model == model);
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        TB_ASSERT(v->model != model || v->pinned == (i == pin));
    }
}

static void check_models(const struct tb_catalog *c)
{
    uint32_t unsaved = 0;
    EACH(c->models, m)
    {
        TB_ASSERT(!model_at(c, m)->touched);
        check_pin(c, m);
        check_head(c, m);
        unsaved += model_at(c, m)->unsaved;
    }
    TB_ASSERT(unsaved == c->unsaved);
}

/* P2: no older run may publish beside a newer one. (A damaged store may have two of one order.) */
static void check_runs(const struct tb_catalog *c)
{
    EACH(c->runs, r)
    {
        const struct run *run = run_at(c, r);
        TB_ASSERT(counts(&c->models, run->model));
        TB_ASSERT(run->info.order <= model_at(c, run->model)->run_order);
        if (run->info.fenced) continue;
        EACH(c->runs, other)
        {
            const struct run *o = run_at(c, other);
            TB_ASSERT(o->model != run->model || o->info.fenced || o->info.order == run->info.order);
        }
    }
}

/* One crossing at a time is asked for. */
static void check_asked(const struct tb_catalog *c)
{
    EACH(c->models, m)
    {
        uint32_t asked = 0;
        EACH(c->versions, i)
        asked += version_at(c, i)->model == m && tb_version_cross_asked(version_at(c, i));
        TB_ASSERT(asked <= 1);
    }
}

/* ---- versions ---- */

static void check_shards(const struct version *v)
{
    uint64_t bytes = 0;
    uint32_t known = 0, sealed = 0, chunks = 0, held = 0;
    for (uint32_t s = 0; s < v->key.shard_count; s++) {
        const struct shard *shard = &v->shards[s];
        known += shard->known;
        sealed += shard->sealed;
        held += shard->held_chunks;
        if (shard->known) chunks += shard->info.chunk_count;
        if (shard->known) bytes += shard->info.bytes;
        TB_ASSERT(shard->held_chunks <= (shard->known ? shard->info.chunk_count : 0));
    }
    TB_ASSERT(known == v->known_count && sealed == v->sealed_count);
    TB_ASSERT(chunks == v->chunk_count && held == v->held_chunks);
    TB_ASSERT(known == 0 || bytes == v->bytes);
}

/* P1: a version that is called whole is held, all of it. */
static void check_copy(const struct version *v)
{
    if (v->whole)
        TB_ASSERT(tb_version_reserved(v) && v->known_count == v->key.shard_count &&
                  v->held_chunks == v->chunk_count);
    if (!tb_version_reserved(v)) TB_ASSERT(v->held_chunks == 0);
    if (tb_version_cross_asked(v)) TB_ASSERT(!tb_version_leaves(v));
}

/* An end took all references along, and the memory goes. (A retired version may be read on, and be
 * held elsewhere. So may one that was withdrawn for this site alone be held elsewhere.) */
static void check_end(const struct version *v)
{
    if (v->life < TB_LIFE_LOST) return;
    TB_ASSERT((v->holders == NONE || v->withdrawn_here) && v->workers == NONE);
    TB_ASSERT(v->copy != TB_VERSION_COPY_HERE);
    TB_ASSERT(!v->withdrawn_here || v->life == TB_LIFE_WITHDRAWN);
}

struct tally {
    uint32_t references, asking, yielding, landing;
    uint64_t followers, reading; /* as sources count them, and as readers say */
};

static void check_list(const struct tb_catalog *c, uint32_t version, uint32_t first, bool workers,
                       struct tally *t)
{
    uint32_t last = NONE;
    for (uint32_t r = first; r != NONE; last = r, r = reference_at(c, r)->next) {
        const struct reference *ref = reference_at(c, r);
        TB_ASSERT(counts(&c->references, r));
        TB_ASSERT(ref->version == version && ref->previous == last);
        TB_ASSERT((ref->kind == TB_REFERENCE_WORKER) == workers);
        TB_ASSERT(++t->references <= c->references.used);
        t->asking += ref->reading == TB_READING_ASKS;
        t->yielding += ref->reading == TB_READING_YIELDS;
        t->landing += workers && ref->landing;
        t->followers += ref->followers;
        t->reading += ref->source < GATEWAY;
    }
}

static uint32_t check_version(const struct tb_catalog *c, uint32_t i)
{
    const struct version *v = version_at(c, i);
    struct tally t = {.references = 0};
    TB_ASSERT(counts(&c->models, v->model));
    TB_ASSERT(v->key.shard_count > 0 && v->key.shard_count <= c->limits.shards);
    TB_ASSERT(!v->touched && !v->ending); /* settled */
    TB_ASSERT((v->search == TB_VERSION_SEARCH_NONE) == (v->trials == 0));
    TB_ASSERT(v->bad_count <= BADS_MAX);
    check_shards(v);
    check_copy(v);
    check_end(v);
    check_list(c, i, v->workers, true, &t);
    check_list(c, i, v->holders, false, &t);
    TB_ASSERT(t.asking == v->asking_count && t.yielding == v->yielding_count);
    TB_ASSERT(t.landing == v->landing_workers);
    TB_ASSERT(t.followers == t.reading);
    return t.references;
}

static void check_versions(const struct tb_catalog *c)
{
    uint32_t listed = 0;
    EACH(c->versions, i) listed += check_version(c, i);
    TB_ASSERT(listed == c->worker_references + c->site_references);
    TB_ASSERT(c->references.spent <= c->references.refused);
}

/* ---- references ---- */

static void check_source(const struct tb_catalog *c, uint32_t r)
{
    const struct reference *ref = reference_at(c, r);
    const bool reads = ref->reading == TB_READING_READS || ref->reading == TB_READING_YIELDS;
    TB_ASSERT((ref->source != NONE) == reads);
    TB_ASSERT(tb_plan_wanted(ref) == (ref->reading == TB_READING_ASKS));
    TB_ASSERT(!ref->source_loads || ref->reading == TB_READING_READS);
    if (ref->source >= GATEWAY) return;
    TB_ASSERT(ref->source != r && counts(&c->references, ref->source));
    TB_ASSERT(reference_at(c, ref->source)->version == ref->version);
}

/* P6: the source that a reader avoids is one that there is. A row that is another's by now would be
 * avoided for nothing. */
static void check_avoided(const struct tb_catalog *c, const struct reference *ref)
{
    TB_ASSERT(ref->avoided_count <= AVOIDED_MAX);
    for (uint32_t a = 0; a < ref->avoided_count; a++) {
        const uint32_t source = ref->avoided[a].source;
        TB_ASSERT(source == GATEWAY || counts(&c->references, source));
        if (source != GATEWAY) TB_ASSERT(reference_at(c, source)->version == ref->version);
    }
}

/* P10: each one that is hidden has one that answers for it. */
static void check_sight(const struct tb_catalog *c, uint32_t r)
{
    const struct reference *ref = reference_at(c, r);
    if (!tb_reference_hidden(ref)) return;
    TB_ASSERT(ref->kind == TB_REFERENCE_PUBLISHER);
    TB_ASSERT(tb_reference_answers(ref) == (ref->unpublish_with == r));
    TB_ASSERT(counts(&c->references, ref->unpublish_with));
    TB_ASSERT(tb_reference_answers(reference_at(c, ref->unpublish_with)));
    TB_ASSERT(reference_at(c, ref->unpublish_with)->version == ref->version);
}

/* P7: once a session is sure, nothing stays that its site said of itself only in sessions before
 * it. */
static void check_told(const struct tb_catalog *c, const struct reference *ref)
{
    const struct site *s = site_at(c, ref->owner);
    TB_ASSERT(s->unsure || ref->told_in == 0 || ref->told_in == s->session);
}

static void check_references(const struct tb_catalog *c)
{
    uint32_t sites = 0, others = 0, gateway_readers = 0;
    uint64_t loads = 0, readers = 0;
    EACH(c->references, r)
    {
        const struct reference *ref = reference_at(c, r);
        const bool site = ref->kind == TB_REFERENCE_SITE;
        TB_ASSERT(counts(&c->versions, ref->version));
        TB_ASSERT(counts(site ? &c->sites : &c->sessions, ref->owner));
        if (site) check_told(c, ref);
        sites += site;
        others += !site;
        check_source(c, r);
        check_avoided(c, ref);
        check_sight(c, r);
        TB_ASSERT(ref->standing == TB_STANDING_KEEPS_UP || ref->kind == TB_REFERENCE_WORKER);
        gateway_readers += ref->source_loads && ref->source == GATEWAY;
        loads += ref->source_loads && ref->source != GATEWAY;
    }
    EACH(c->sessions, s) readers += c->session_readers[s];
    TB_ASSERT(sites == c->site_references && others == c->worker_references);
    TB_ASSERT(gateway_readers == c->gateway_readers && loads == readers);
}

/* ---- their owners ---- */

static uint32_t check_owned(const struct tb_catalog *c, uint32_t first, uint32_t owner, bool site)
{
    uint32_t count = 0;
    for (uint32_t r = first; r != NONE; r = reference_at(c, r)->owner_next) {
        const struct reference *ref = reference_at(c, r);
        TB_ASSERT(counts(&c->references, r));
        TB_ASSERT(ref->owner == owner && (ref->kind == TB_REFERENCE_SITE) == site);
        TB_ASSERT(site || ref->silent == session_at(c, owner)->silent);
        TB_ASSERT(++count <= c->references.used);
    }
    return count;
}

static void check_owners(const struct tb_catalog *c)
{
    uint32_t owned = 0, members = 0;
    EACH(c->sessions, s)
    {
        owned += check_owned(c, session_at(c, s)->references, s, false);
        for (uint32_t m = session_at(c, s)->members; m != NONE; m = member_at(c, m)->session_next) {
            TB_ASSERT(counts(&c->members, m) && member_at(c, m)->session == s);
            TB_ASSERT(++members <= c->members.used);
        }
    }
    TB_ASSERT(owned == c->worker_references && members == c->members.used);
    owned = 0;
    EACH(c->sites, s) owned += check_owned(c, site_at(c, s)->references, s, true);
    TB_ASSERT(owned == c->site_references);
}

/* ---- groups and waits ---- */

/* P2: a group has each of its indices once at most. */
static void check_index(const struct tb_catalog *c, const struct group *g, uint32_t member)
{
    TB_ASSERT(member_at(c, member)->index < g->count);
    for (uint32_t m = member_at(c, member)->group_next; m != NONE; m = member_at(c, m)->group_next)
        TB_ASSERT(member_at(c, m)->index != member_at(c, member)->index);
}

static void check_groups(const struct tb_catalog *c)
{
    uint32_t members = 0;
    EACH(c->groups, g)
    {
        const struct group *group = group_at(c, g);
        TB_ASSERT(counts(&c->models, group->model));
        TB_ASSERT(!group->touched && group->members != NONE);
        TB_ASSERT(!tb_which_is(&group->attempt, &group->go.uid)); /* it went: no attempt any more */
        TB_ASSERT(tb_id_is_zero(&group->attempt.uid) ||
                  !tb_which_held_back(c, group->model, &group->attempt)); /* P2: an operator's pin */
        EACH_MEMBER(c, g, m)
        {
            TB_ASSERT(counts(&c->members, m) && member_at(c, m)->group == g);
            TB_ASSERT(++members <= c->members.used);
            check_index(c, group, m);
        }
    }
    TB_ASSERT(members == c->members.used);
}

static void check_waits(const struct tb_catalog *c)
{
    EACH(c->waits, w)
    {
        const struct wait *wait = wait_at(c, w);
        TB_ASSERT(wait->session == NONE || counts(&c->sessions, wait->session));
        TB_ASSERT(wait->q.kind >= TB_CATALOG_WAIT_SITE_HOLDS ||
                  tb_catalog_model_find(c, &wait->q.model) != NONE);
    }
}

/* ---- other sites ---- */

/* Only a site that speaks itself has a link. */
static void check_sites(const struct tb_catalog *c)
{
    EACH(c->sites, s)
    {
        const struct site *site = site_at(c, s);
        TB_ASSERT(site->is_peer || (!site->up && !site->unsure));
        TB_ASSERT(site->session >= 1 && site->tried_from <= site->session + 1);
    }
}

/* P3: no record is about this site. */
static void check_records(const struct tb_catalog *c)
{
    EACH(c->records, i)
    {
        const struct tb_site_state *s = &record_at(c, i)->info.state;
        TB_ASSERT(s->held_count <= TB_SITE_HELD_MAX);
        TB_ASSERT(!tb_catalog_same_name(&s->site, &c->config.site));
    }
}

/* ---- all of it ---- */

static const size_t tables[] = {
    offsetof(struct tb_catalog, models),     offsetof(struct tb_catalog, runs),
    offsetof(struct tb_catalog, versions),   offsetof(struct tb_catalog, sessions),
    offsetof(struct tb_catalog, references), offsetof(struct tb_catalog, groups),
    offsetof(struct tb_catalog, members),    offsetof(struct tb_catalog, waits),
    offsetof(struct tb_catalog, sites),      offsetof(struct tb_catalog, records),
};
#define TABLES (sizeof tables / sizeof tables[0])

static const struct table *table_of(const struct tb_catalog *c, size_t i)
{
    return (const struct table *)(const void *)((const uint8_t *)c + tables[i]);
}

void tb_catalog_check(const struct tb_catalog *c)
{
    TB_ASSERT(!c->unsettled);
    for (size_t i = 0; i < TABLES; i++)
        tb_table_check(table_of(c, i));
    check_models(c);
    check_runs(c);
    check_asked(c);
    check_versions(c);
    check_references(c);
    check_owners(c);
    check_groups(c);
    check_waits(c);
    check_sites(c);
    check_records(c);
}

bool tb_catalog_reasons(const struct tb_catalog *c, struct tb_id *uid_out)
{
    EACH(c->versions, i)
    {
        *uid_out = version_at(c, i)->key.uid;
        if (tb_version_reason(c, version_at(c, i)) == TB_REASON_NONE) return false;
    }
    return true;
}

static uint64_t rows(const struct tb_catalog *c)
{
    uint64_t used = 0;
    for (size_t i = 0; i < TABLES; i++)
        used += table_of(c, i)->high;
    return used;
}

void tb_catalog_check_turn(struct tb_catalog *c)
{
    if (!TB_CHECK_TURNS) return;
    const uint64_t all = rows(c);
    c->check_paid += TURN_ROWS;
    if (all > SMALL_ROWS && c->check_paid < all) return;
    c->check_paid = 0;
    tb_catalog_check(c);
}

void tb_catalog_check_tick(struct tb_catalog *c)
{
    if (tb_time_since(c->checked_at, c->now) < CHECK_EVERY) return;
    c->checked_at = c->now;
    TB_CHECK(tb_catalog_check(c));
}
