/* sites.c - what other sites say: that they are there, what they hold, how a version lives. */
#include "gateway/catalog/sites.h"

#include "base/assert.h"
#include "gateway/catalog/rows/group_rows.h"
#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/record_rows.h"
#include "gateway/catalog/rows/reference_rows.h"
#include "gateway/catalog/rows/site_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/crossing_rules.h"
#include "gateway/catalog/rules/settle.h"
#include "gateway/catalog/rules/version_removal.h"

static enum tb_status note_up(struct tb_catalog *c, const struct tb_name *name, bool up)
{
    const uint32_t site = tb_site_get(c, name, true);
    if (site == NONE) return tb_catalog_refuse_full(c, &c->sites);
    struct site *s = site_at(c, site);
    if (s->up && s->session >= s->tried_from) s->tried_ns += tb_time_since(s->up_at, c->now);
    if (up) { /* also a session in place of one that was there: what was on its way may be lost */
        s->up_at = c->now;
        s->unsure = true;
        s->session++;
    }
    if (s->up == up) return TB_DONE_BEFORE;
    s->up = up;
    EACH(c->versions, i)
    {
        if (tb_reference_find(c, TB_REFERENCE_SITE, i, site) == NONE) continue;
        version_at(c, i)->fed_at = c->now; /* what only it may have can come from now on */
        tb_version_crossing_again(c, i);
    }
    tb_catalog_touch_models(c);
    return TB_OK;
}

enum tb_status tb_catalog_site_up(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name, bool up)
{
    tb_catalog_enter(c, now);
    return tb_catalog_settle(c, note_up(c, name, up));
}

/* P3: its own word stays for a lease time, in which it says again what it still has (doubt):
 * else a version that only this site has would be lost, or given up, in the moment in which it
 * repairs one chunk of any version. */
void tb_catalog_site_forget(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name)
{
    tb_catalog_enter(c, now);
    tb_records_forget(c, name);
    const uint32_t site = tb_catalog_site_find(c, name);
    if (site == NONE) return;
    for (uint32_t r = site_at(c, site)->references, next; r != NONE; r = next) {
        struct reference *ref = reference_at(c, r);
        next = ref->owner_next;
        ref->whole = ref->whole_itself = ref->activated = false;
        ref->held_chunks = 0;
        tb_catalog_touch_version(c, ref->version);
        if (ref->told_in == 0) tb_reference_end(c, r);
    }
    (void)tb_catalog_settle(c, TB_OK);
}

void tb_catalog_site_leaves(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name)
{
    tb_catalog_enter(c, now);
    tb_records_leave(c, name);
    const uint32_t site = tb_catalog_site_find(c, name);
    if (site == NONE) return;
    for (uint32_t r = site_at(c, site)->references, next; r != NONE; r = next) {
        const uint32_t version = reference_at(c, r)->version;
        next = reference_at(c, r)->owner_next;
        tb_reference_end(c, r);
        tb_version_crossing_again(c, version);
        tb_catalog_touch_version(c, version);
    }
    (void)tb_catalog_settle(c, TB_OK);
}

void tb_catalog_site_dropped(struct tb_catalog *c, tb_time_ns now, const struct tb_name *site,
                             const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    const uint32_t s = tb_catalog_site_find(c, site), v = tb_version_find(c, uid);
    const uint32_t r = s == NONE || v == NONE ? NONE : tb_reference_find(c, TB_REFERENCE_SITE, v, s);
    if (r == NONE) return;
    tb_reference_end(c, r);
    tb_version_crossing_again(c, v);
    (void)tb_catalog_settle(c, TB_OK);
}

/* A reference to a head is worth most: others read from there, and lag is counted to it. */
static uint32_t worth(const struct tb_catalog *c, const struct reference *ref)
{
    const struct version *v = version_at(c, ref->version);
    if (!tb_version_lives(v)) return 0;
    return tb_id_equal(&v->key.uid, &model_at(c, v->model)->head.uid) ? 2 : 1;
}

/* The reference that is worth least, and of equal ones the oldest: the last of the list. */
static uint32_t least_worth(const struct tb_catalog *c, uint32_t first)
{
    uint32_t least = first;
    for (uint32_t r = first; r != NONE; r = reference_at(c, r)->owner_next)
        if (worth(c, reference_at(c, r)) <= worth(c, reference_at(c, least))) least = r;
    return least;
}

/* P7: of a site that others spoke of; it gives way to what a peer has. */
static bool hearsay_end(struct tb_catalog *c)
{
    EACH(c->sites, s)
    {
        if (site_at(c, s)->is_peer || site_at(c, s)->references == NONE) continue;
        tb_reference_end(c, least_worth(c, site_at(c, s)->references));
        return true;
    }
    return false;
}

static uint32_t site_reference(struct tb_catalog *c, uint32_t version, uint32_t site)
{
    uint32_t r = tb_reference_find(c, TB_REFERENCE_SITE, version, site);
    if (r == NONE) r = tb_reference_new(c, TB_REFERENCE_SITE, version, site);
    if (r != NONE) return r;
    if (tb_site_has_its_share(c, site)) {
        c->references.spent++; /* the caller refuses, which counts */
        return NONE;
    }
    if (site_at(c, site)->is_peer && (hearsay_end(c) || tb_versions_lose_sites(c, version)))
        r = tb_reference_new(c, TB_REFERENCE_SITE, version, site);
    return r;
}

static enum tb_status note_progress(struct tb_catalog *c, uint32_t i,
                                    const struct tb_catalog_site_progress *p)
{
    const uint32_t site = tb_site_get(c, &p->site, false);
    if (site == NONE) return tb_catalog_refuse_full(c, &c->sites);
    const uint32_t r = site_reference(c, i, site);
    if (r == NONE) return tb_catalog_refuse_full(c, &c->references);
    struct reference *ref = reference_at(c, r);
    if (p->itself && (p->whole || p->held_chunks > 0)) ref->told_in = site_at(c, site)->session;
    const bool flips = (p->whole && !ref->whole) || (p->activated && !ref->activated) ||
                       (p->whole && p->itself && !ref->whole_itself);
    if (!flips && p->held_chunks <= ref->held_chunks) return TB_DONE_BEFORE;
    if (ref->held_chunks == 0) ref->since = c->now;
    if (p->held_chunks > ref->held_chunks) {
        ref->held_chunks = p->held_chunks;
        ref->moved_at = c->now;
        tb_version_fed(c, ref);
    }
    ref->total_chunks = version_at(c, i)->chunk_count;
    ref->whole = ref->whole || p->whole;
    ref->whole_itself = ref->whole_itself || (p->whole && p->itself);
    ref->activated = ref->activated || p->activated;
    if (p->whole) ref->has = true;
    if (flips) tb_catalog_touch_version(c, i);
    return TB_OK;
}

enum tb_status tb_catalog_site_progress(struct tb_catalog *c, tb_time_ns now,
                                        const struct tb_catalog_site_progress *p)
{
    tb_catalog_enter(c, now);
    if (tb_catalog_same_name(&p->site, &c->config.site)) return TB_BAD_ARGUMENT;
    const uint32_t i = tb_version_find(c, &p->uid);
    if (i == NONE) return TB_NOT_FOUND;
    const enum tb_status ended = tb_version_status(c, version_at(c, i));
    const bool goes_on =
        tb_version_state(version_at(c, i)) == TB_VERSION_RETIRED || version_at(c, i)->withdrawn_here;
    if (ended != TB_OK && !goes_on) return ended;
    tb_record_progress(c, i, p);
    return tb_catalog_settle(c, note_progress(c, i, p));
}

/* ---- what a peer says of a version's life ---- */

static bool has_root(const struct tb_version_key *key)
{
    return !tb_digest_equal(&key->root, &(struct tb_digest){{0}});
}

static bool same_version(const struct version *v, const struct tb_version_key *key)
{
    return v->key.run_order == key->run_order && v->key.number == key->number &&
           v->key.shard_count == key->shard_count && tb_id_equal(&v->key.run, &key->run) &&
           tb_catalog_same_name(&v->key.model, &key->model) &&
           !(has_root(&v->key) && has_root(key) && !tb_digest_equal(&v->key.root, &key->root));
}

static bool place_taken(const struct tb_catalog *c, uint32_t model, const struct tb_version_key *key)
{
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->model == model && v->was_ready && v->key.run_order == key->run_order &&
            v->key.number == key->number)
            return true;
    }
    return false;
}

static bool is_end(enum tb_catalog_state state)
{
    return tb_catalog_state_status(state) != TB_OK;
}

/* The operator here was first. From now on the other sites are told, too. */
static void withdrawn_everywhere(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    TB_ASSERT(v->life == TB_LIFE_WITHDRAWN);
    v->withdrawn_here = false;
    v->who[0] = 0;
    v->why = "said_by_home";
    v->ending = true; /* other sites may hold it: their references end now */
    tb_table_mark(&c->versions, version, TB_CATALOG_PERSIST_VERSION);
    tb_catalog_touch_version(c, version);
}

static void believe_end(struct tb_catalog *c, uint32_t version, enum tb_catalog_state state)
{
    struct version *v = version_at(c, version);
    const enum tb_version_event event = tb_version_life_event(state);
    if (event == TB_VERSION_IS_WITHDRAWN && v->withdrawn_here) {
        withdrawn_everywhere(c, version);
        return;
    }
    if (tb_version_life_after(v->life, event) == TB_LIFE_END) return;
    if (event == TB_VERSION_IS_LOST) {
        v->lost_at_home = true; /* for others: here all of it may be, and is judged by its holders */
        tb_catalog_touch_version(c, version);
    } else {
        tb_version_end(c, version, event, "said_by_home");
    }
}

/* Retired here because no site offered it, and now one does. */
static void began_anew(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    tb_version_moves(v, v->was_ready ? TB_VERSION_IS_OFFERED : TB_VERSION_IS_OFFERED_OPEN);
    v->why = "offered_again";
    tb_table_mark(&c->versions, version, TB_CATALOG_PERSIST_VERSION);
}

static void believe_life(struct tb_catalog *c, uint32_t version, uint32_t reference,
                         const struct tb_version_key *key, enum tb_catalog_state state)
{
    struct version *v = version_at(c, version);
    struct reference *ref = reference_at(c, reference);
    const bool had = ref->heard_in != 0; /* others may have said so before, of whom nothing can be asked */
    ref->has = true;
    ref->heard_in = ref->told_in = site_at(c, ref->owner)->session;
    v->lost_at_home = false;
    if (v->life == TB_LIFE_UNHELD) began_anew(c, version);
    if (v->life == TB_LIFE_OPEN && state != TB_VERSION_OPEN) {
        v->key.root = key->root;
        tb_version_name_ready(c, version);
    }
    if (!had) tb_version_crossing_again(c, version);
    tb_catalog_touch_version(c, version);
}

/* The chunks that home lacks can come from there from now on, also those that home never had: the
 * site adopted them from files. */
static void offered_to_home(struct tb_catalog *c, uint32_t version, struct reference *ref)
{
    ref->told_in = site_at(c, ref->owner)->session;
    if (ref->has) return;
    ref->has = true;
    version_at(c, version)->fed_at = c->now;
    tb_version_crossing_again(c, version);
    tb_catalog_touch_version(c, version);
}

/* RETIRED and ABANDONED are said of the peer's own copy; before ready, abandoned by home is the
 * end. */
static bool ends_everywhere(const struct tb_catalog *c, uint32_t version, const struct tb_name *from,
                            enum tb_catalog_state state)
{
    const struct version *v = version_at(c, version);
    if (state == TB_VERSION_RETIRED) return false;
    if (state != TB_VERSION_ENDED_ABANDONED) return true;
    return !v->was_ready && tb_catalog_same_name(from, &model_at(c, v->model)->config.home);
}

static enum tb_status hear(struct tb_catalog *c, uint32_t version, uint32_t site,
                           const struct tb_version_key *key, enum tb_catalog_state state)
{
    const bool home = model_at(c, version_at(c, version)->model)->config.is_home;
    if (!is_end(state)) {
        if (is_end(tb_version_state(version_at(c, version))) &&
            tb_version_state(version_at(c, version)) != TB_VERSION_RETIRED)
            return TB_OK;
        const uint32_t r = site_reference(c, version, site);
        if (r == NONE) return tb_catalog_refuse_full(c, &c->references);
        if (!home)
            believe_life(c, version, r, key, state);
        else
            offered_to_home(c, version, reference_at(c, r));
        return TB_OK;
    }
    const uint32_t r = tb_reference_find(c, TB_REFERENCE_SITE, version, site);
    tb_record_gone(c, version, &site_at(c, site)->name);
    if (r != NONE) {
        tb_reference_end(c, r);
        tb_version_crossing_again(c, version);
    }
    if (!home && ends_everywhere(c, version, &site_at(c, site)->name, state)) believe_end(c, version, state);
    return TB_OK;
}

enum tb_status tb_catalog_remote_version(struct tb_catalog *c, tb_time_ns now,
                                         const struct tb_name *from_site, const struct tb_version_key *key,
                                         enum tb_catalog_state state)
{
    tb_catalog_enter(c, now);
    if (state < TB_VERSION_OPEN || state >= TB_CATALOG_STATE_END || tb_id_is_zero(&key->uid))
        return TB_BAD_ARGUMENT;
    const uint32_t model = tb_catalog_model_find(c, &key->model);
    if (model == NONE) return TB_NOT_FOUND;
    if (key->shard_count == 0 || key->shard_count > c->limits.shards) return TB_TOO_LARGE;
    uint32_t i = tb_version_find(c, &key->uid);
    if (i != NONE && !same_version(version_at(c, i), key)) return TB_CONFLICT;
    if (i == NONE) {
        if (model_at(c, model)->config.is_home) return TB_NOT_FOUND;
        if (state == TB_VERSION_RETIRED) return TB_OK; /* never here, and not there any more */
        if (place_taken(c, model, key)) return TB_CONFLICT;
        if (tb_version_useless(c, model, key)) return TB_SUPERSEDED;
    }
    const uint32_t site = tb_site_get(c, from_site, true);
    if (site == NONE) return tb_catalog_refuse_full(c, &c->sites);
    if (i == NONE) {
        tb_versions_make_room(c, model);
        i = tb_version_new(c, model, key);
        if (i == NONE) /* an end of what was never here needs no row */
            return tb_catalog_settle(c, is_end(state) ? TB_OK : tb_catalog_refuse_full(c, &c->versions));
        version_at(c, i)->was_ready = is_end(state) && has_root(key);
        tb_catalog_run_seen(c, model, key);
        tb_groups_learn(c, i);
    }
    return tb_catalog_settle(c, hear(c, i, site, key, state));
}

void tb_catalog_version_awaits(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid, bool awaits)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL || v->awaits == awaits) return;
    v->awaits = awaits;
    c->waits_touched = true;
    tb_catalog_touch_version(c, i);
    (void)tb_catalog_settle(c, TB_OK);
}
