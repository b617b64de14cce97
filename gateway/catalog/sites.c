/* sites.c - what other sites have, what they say of a version's life, and what crosses to here next.
 *
 * A newer ready version replaces one whose crossing has not begun, unless the model wants every one: then the oldest is
 * next. One begun is finished, or given up for one that will be whole sooner (abandon.h). One arrives at a time for a
 * model. */
#include "gateway/catalog/tables.h"

uint32_t tb_catalog_site_find(const struct tb_catalog *c, const struct tb_name *name)
{
    EACH(c->sites, i) if (tb_catalog_same_name(&site_at(c, i)->name, name)) return i;
    return NONE;
}

/* Only other sites speak of it, and they say of no version any more that it has it. */
static bool is_spent(const struct site *s)
{
    return !s->is_peer && s->references == NONE;
}

/* P7: names that peers make up, or that a peer once spoke of, take no row for ever. */
static void forget_spent(struct tb_catalog *c)
{
    EACH(c->sites, s) if (is_spent(site_at(c, s))) tb_table_free(&c->sites, s);
}

/* P6: peers are as many as there are rows for, so one always finds a row: that of a site that was only ever spoken of. Such a one
 * gets only what is free, or what another such is done with. */
static uint32_t site_row(struct tb_catalog *c, bool is_peer)
{
    uint32_t i = tb_table_new(&c->sites);
    if (i != NONE) return i;
    EACH(c->sites, s)
    {
        const struct site *old = site_at(c, s);
        if (old->is_peer || !(is_peer || old->references == NONE)) continue;
        if (i == NONE || old->references == NONE) i = s;
    }
    if (i == NONE) return NONE;
    while (site_at(c, i)->references != NONE)
        tb_reference_end(c, site_at(c, i)->references);
    tb_table_free(&c->sites, i);
    return tb_table_new(&c->sites);
}

static uint32_t site_get(struct tb_catalog *c, const struct tb_name *name, bool is_peer)
{
    uint32_t i = tb_catalog_site_find(c, name);
    if (i == NONE) {
        i = site_row(c, is_peer);
        if (i == NONE) return NONE;
        site_at(c, i)->name = *name;
        site_at(c, i)->references = NONE;
        site_at(c, i)->session = 1;
    }
    site_at(c, i)->is_peer = site_at(c, i)->is_peer || is_peer;
    return i;
}

static void touch_models(struct tb_catalog *c)
{
    EACH(c->models, m) tb_catalog_touch_model(c, m);
}

/* CROSS is said again when the sites that can be asked changed. */
static void ask_again(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    if (!tb_version_lives(v) || v->whole || v->evicting || !(v->cross_begun || v->cross_asked)) return;
    struct tb_name from[TB_CATALOG_FROM_MAX];
    if (tb_catalog_crossing_from(c, v, from) > 0) tb_row_mark(&c->versions, version, TB_CATALOG_CROSS);
}

enum tb_status tb_catalog_site_up(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name, bool up)
{
    tb_catalog_enter(c, now);
    const uint32_t site = site_get(c, name, true);
    if (site == NONE) return tb_catalog_refuse_full(c, &c->sites);
    struct site *s = site_at(c, site);
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
        ask_again(c, i);
    }
    touch_models(c);
    return tb_catalog_settle(c, TB_OK);
}

/* P6: a site says what it has in each session. What it has not said again after a lease time left it while the link was down, or
 * while one session took another's place: nobody waits for that any more. By sessions and not by time: both may end and begin
 * within one look at the clock. */
static void doubt(struct tb_catalog *c, uint32_t site)
{
    struct site *s = site_at(c, site);
    s->unsure = false;
    EACH(c->references, r)
    {
        struct reference *ref = reference_at(c, r);
        if (ref->kind != TB_REFERENCE_SITE || ref->owner != site || ref->told_in == 0) continue;
        if (ref->heard_in != s->session) ref->heard_in = 0; /* it offers that no more */
        if (ref->told_in == s->session) continue;
        const uint32_t version = ref->version;
        tb_reference_end(c, r);
        ask_again(c, version);
    }
}

static bool is_doubted(const struct tb_catalog *c, const struct site *s)
{
    return s->up && s->unsure && c->now >= tb_time_add(s->up_at, c->config.lease_ns);
}

static bool began_to_stand(struct tb_catalog *c)
{
    bool any = false;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (v->whole || v->stands_told || !tb_crossing_stands(c, v)) continue;
        ask_again(c, i);
        any = true;
    }
    return any;
}

void tb_sites_tick(struct tb_catalog *c)
{
    bool any = began_to_stand(c);
    EACH(c->versions, i) version_at(c, i)->stands_told = tb_crossing_stands(c, version_at(c, i));
    EACH(c->sites, s)
    {
        if (!is_doubted(c, site_at(c, s))) continue;
        doubt(c, s);
        any = true;
    }
    if (any) touch_models(c);
    forget_spent(c);
}

/* P6: what it announced itself stays a source for a lease time, in which it says again what it still has (doubt): else a version that
 * only this site has would be given up in the moment in which it repairs one chunk. */
void tb_catalog_site_forget(struct tb_catalog *c, tb_time_ns now, const struct tb_name *name)
{
    tb_catalog_enter(c, now);
    tb_records_forget(c, name);
    const uint32_t site = tb_catalog_site_find(c, name);
    if (site == NONE) return;
    for (uint32_t r = site_at(c, site)->references, next; r != NONE; r = next) {
        struct reference *ref = reference_at(c, r);
        next = ref->owner_next;
        ref->whole = ref->activated = false;
        ref->held_chunks = 0;
        tb_catalog_touch_version(c, ref->version);
        if (ref->heard_in == 0) tb_reference_end(c, r);
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
    ask_again(c, v);
    (void)tb_catalog_settle(c, TB_OK);
}

/* What is known of a head is worth most: from there others read, and lag is counted to it. */
static uint32_t worth(const struct tb_catalog *c, const struct reference *ref)
{
    const struct version *v = version_at(c, ref->version);
    if (!tb_version_lives(v)) return 0;
    return tb_id_equal(&v->key.uid, &model_at(c, v->model)->head.uid) ? 2 : 1;
}

/* What is worth least, and of that what was said first: the last of the list. */
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
    if (r == NONE && site_at(c, site)->is_peer && (hearsay_end(c) || tb_versions_lose_sites(c, version)))
        r = tb_reference_new(c, TB_REFERENCE_SITE, version, site);
    return r;
}

enum tb_status tb_catalog_site_progress(struct tb_catalog *c, tb_time_ns now,
                                        const struct tb_catalog_site_progress *p)
{
    tb_catalog_enter(c, now);
    if (tb_catalog_same_name(&p->site, &c->config.site)) return TB_BAD_ARGUMENT;
    const uint32_t i = tb_version_find(c, &p->uid);
    if (i == NONE) return TB_NOT_FOUND;
    const enum tb_status ended = tb_version_status(c, version_at(c, i));
    if (ended != TB_OK && version_at(c, i)->state != TB_VERSION_RETIRED) return ended;
    tb_record_progress(c, i, p);
    const uint32_t site = site_get(c, &p->site, false);
    if (site == NONE) return tb_catalog_refuse_full(c, &c->sites);
    const uint32_t r = site_reference(c, i, site);
    if (r == NONE) return tb_catalog_refuse_full(c, &c->references);
    struct reference *ref = reference_at(c, r);
    if (p->itself && (p->whole || p->held_chunks > 0)) ref->told_in = site_at(c, site)->session;
    const bool flips = (p->whole && !ref->whole) || (p->activated && !ref->activated);
    if (!flips && p->held_chunks <= ref->held_chunks) return TB_DONE_BEFORE;
    if (ref->held_chunks == 0) ref->since = c->now;
    if (p->held_chunks > ref->held_chunks) {
        ref->held_chunks = p->held_chunks;
        ref->moved_at = c->now;
        tb_version_fed(c, ref);
    }
    ref->total_chunks = version_at(c, i)->chunk_count;
    ref->whole = ref->whole || p->whole;
    ref->activated = ref->activated || p->activated;
    if (p->whole) ref->has = true;
    if (!flips) return TB_OK;
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
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

static void believe_end(struct tb_catalog *c, uint32_t version, enum tb_catalog_state state)
{
    struct version *v = version_at(c, version);
    if (is_end(v->state) && v->state != TB_VERSION_RETIRED) return;
    if (state == TB_VERSION_ENDED_LOST && v->state == TB_VERSION_RETIRED) return;
    if (state == TB_VERSION_ENDED_LOST) {
        v->lost_at_home = true; /* for others: here all of it may be, and is judged by who has it */
        tb_catalog_touch_version(c, version);
    } else {
        tb_version_end(c, version, state, "said_by_home");
    }
}

/* Retired here because no site offered it, and now one does. */
static void began_anew(struct tb_catalog *c, uint32_t version)
{
    struct version *v = version_at(c, version);
    v->unheld = false;
    v->state = v->was_ready ? TB_VERSION_READY : TB_VERSION_OPEN;
    v->why = "offered_again";
    tb_row_mark(&c->versions, version, TB_CATALOG_PERSIST_VERSION);
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
    if (v->unheld) began_anew(c, version);
    if (v->state == TB_VERSION_OPEN && state != TB_VERSION_OPEN) {
        v->key.root = key->root;
        tb_version_name_ready(c, version);
    }
    if (!had) ask_again(c, version);
    tb_catalog_touch_version(c, version);
}

/* What home lacks can come from there from now on, also what home never had: files that were adopted there. */
static void offered_to_home(struct tb_catalog *c, uint32_t version, struct reference *ref)
{
    ref->told_in = site_at(c, ref->owner)->session;
    if (ref->has) return;
    ref->has = true;
    version_at(c, version)->fed_at = c->now;
    ask_again(c, version);
    tb_catalog_touch_version(c, version);
}

/* RETIRED and ABANDONED are said of the peer's own copy; before ready, abandoned by home is the end. */
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
        if (is_end(version_at(c, version)->state) && version_at(c, version)->state != TB_VERSION_RETIRED)
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
        ask_again(c, version);
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
    const uint32_t model = tb_model_find(c, &key->model);
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
    const uint32_t site = site_get(c, from_site, true);
    if (site == NONE) return tb_catalog_refuse_full(c, &c->sites);
    if (i == NONE) {
        tb_versions_make_room(c, model);
        i = tb_version_new(c, model, key);
        if (i == NONE) return tb_catalog_refuse_full(c, &c->versions);
        version_at(c, i)->was_ready = is_end(state) && has_root(key);
        tb_run_seen(c, model, key);
    }
    return tb_catalog_settle(c, hear(c, i, site, key, state));
}

/* ---- what crosses to here ---- */

static bool can_ask(const struct tb_catalog *c, const struct version *v, uint32_t site)
{
    if (!site_at(c, site)->up) return false;
    EACH_HOLDER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind != TB_REFERENCE_SITE || ref->owner != site) continue;
        /* What a third site reports of it may be long past; to home nobody announces. */
        return ref->has && (ref->heard_in != 0 || model_at(c, v->model)->config.is_home);
    }
    return false;
}

static bool has_whole(const struct tb_catalog *c, const struct version *v, uint32_t site)
{
    EACH_REFERENCE(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->kind == TB_REFERENCE_SITE && ref->owner == site) return ref->whole;
    }
    return false;
}

struct sources {
    struct tb_name *names;
    uint32_t count;
};

static void add_source(const struct tb_catalog *c, const struct version *v, uint32_t site, struct sources *to)
{
    if (site == NONE || to->count == TB_CATALOG_FROM_MAX || !can_ask(c, v, site)) return;
    for (uint32_t i = 0; i < to->count; i++)
        if (tb_catalog_same_name(&to->names[i], &site_at(c, site)->name)) return;
    to->names[to->count++] = site_at(c, site)->name;
}

/* Those of the list, or home and then all. */
static void add_sources(const struct tb_catalog *c, const struct version *v, bool only_whole,
                        struct sources *to)
{
    const struct tb_catalog_model *m = &model_at(c, v->model)->config;
    for (uint32_t f = 0; f < m->from_count; f++) {
        const uint32_t site = tb_catalog_site_find(c, &m->from[f]);
        if (!only_whole || has_whole(c, v, site)) add_source(c, v, site, to);
    }
    if (m->from_count > 0) return;
    const uint32_t home = tb_catalog_site_find(c, &m->home);
    if (!only_whole || has_whole(c, v, home)) add_source(c, v, home, to);
    EACH(c->sites, s) if (!only_whole || has_whole(c, v, s)) add_source(c, v, s, to);
}

/* P6: sites that draw a version from each other while a third has it whole would draw for ever: once a crossing stands, who has
 * it whole is asked first. */
uint32_t tb_catalog_crossing_from(const struct tb_catalog *c, const struct version *v,
                                  struct tb_name from_out[TB_CATALOG_FROM_MAX])
{
    struct sources from = {from_out, 0};
    if (tb_crossing_stands(c, v)) add_sources(c, v, true, &from);
    add_sources(c, v, false, &from);
    return from.count;
}

/* Home asks others only for what no rank and no worker of its own can give. */
static bool home_needs(const struct tb_catalog *c, const struct version *v)
{
    EACH_WORKER(c, v, r)
    {
        const struct reference *ref = reference_at(c, r);
        if (ref->whole && ref->export_id != 0) return false;
    }
    for (uint32_t s = 0; s < v->key.shard_count; s++)
        if (!tb_shard_whole(v, s) && !tb_shard_published(c, v, s)) return true;
    return false;
}

static bool lacking(const struct version *v, uint32_t model)
{
    return v->model == model && tb_version_lives(v) && !v->whole && !v->evicting;
}

bool tb_version_newer_here(const struct tb_catalog *c, const struct version *v)
{
    EACH(c->versions, i)
    {
        const struct version *other = version_at(c, i);
        if (other->model == v->model && tb_version_here(other) && tb_version_older(v, other)) return true;
    }
    return false;
}

static bool may_cross(const struct tb_catalog *c, const struct version *v, uint32_t model)
{
    struct tb_name from[TB_CATALOG_FROM_MAX];
    if (!lacking(v, model) || v->cross_begun || v->refused_until > c->now) return false;
    if (model_at(c, model)->config.is_home && !home_needs(c, v)) return false;
    if (!v->reserved && !v->wanted && tb_version_newer_here(c, v)) return false;
    return tb_catalog_crossing_from(c, v, from) > 0;
}

/* What has its space goes on first, then the newest, or the oldest where every one is wanted. */
static bool preferred(const struct tb_catalog *c, const struct version *a, const struct version *b)
{
    if (a->reserved != b->reserved) return a->reserved;
    return model_at(c, a->model)->config.every ? tb_version_older(a, b) : tb_version_older(b, a);
}

static uint32_t choose(const struct tb_catalog *c, uint32_t model)
{
    uint32_t best = NONE;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (!may_cross(c, v, model)) continue;
        if (best == NONE || preferred(c, v, version_at(c, best))) best = i;
    }
    return best;
}

/* One that nobody has any more cannot be finished: its space goes. */
static void give_up_orphans(struct tb_catalog *c, uint32_t model)
{
    if (c->recovering || model_at(c, model)->config.is_home) return;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (!lacking(v, model) || !v->reserved) continue;
        bool somewhere = tb_version_whole_elsewhere(c, v);
        EACH_HOLDER(c, v, r)
        {
            const struct reference *ref = reference_at(c, r);
            somewhere = somewhere || (ref->kind == TB_REFERENCE_SITE && ref->has);
        }
        if (!somewhere) tb_version_end(c, i, TB_VERSION_ENDED_ABANDONED, "no_site_has_it");
    }
}

static bool stands_still(const struct tb_catalog *c, const struct version *v)
{
    return tb_time_since(tb_version_sign(c, v, v->moved_at), c->now) >= c->config.lease_ns;
}

bool tb_crossing_stands(const struct tb_catalog *c, const struct version *v)
{
    return v->cross_begun && stands_still(c, v);
}

/* It stands, or nobody can be asked for it any more and it brought nothing for as long. (What home lacks comes from its ranks.) */
bool tb_crossing_stuck(const struct tb_catalog *c, const struct version *v)
{
    struct tb_name from[TB_CATALOG_FROM_MAX];
    if (v->cross_begun || model_at(c, v->model)->config.is_home) return tb_crossing_stands(c, v);
    return stands_still(c, v) && tb_catalog_crossing_from(c, v, from) == 0;
}

/* One that no site can give at the moment, or gives nothing of, holds up no other (P6): sites that complete each other may all
 * lack the same chunk. It goes on when one can. */
static bool begun_and_moving(const struct tb_catalog *c, uint32_t model)
{
    struct tb_name from[TB_CATALOG_FROM_MAX];
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (!lacking(v, model) || !v->cross_begun || tb_crossing_stands(c, v)) continue;
        if (tb_catalog_crossing_from(c, v, from) > 0) return true;
    }
    return false;
}

void tb_catalog_crossing_settle(struct tb_catalog *c, uint32_t model)
{
    const struct tb_catalog_model *m = &model_at(c, model)->config;
    if (!m->subscribed && !m->is_home) return;
    give_up_orphans(c, model);
    const uint32_t next = begun_and_moving(c, model) ? NONE : choose(c, model);
    EACH(c->versions, i)
    {
        struct version *v = version_at(c, i);
        if (v->model != model) continue;
        if (v->refused_until <= c->now) v->refused_until = 0;
        if (i == next || !v->cross_asked) continue;
        v->cross_asked = false;
        tb_row_unmark(&c->versions, i, TB_CATALOG_CROSS);
    }
    if (next == NONE || version_at(c, next)->cross_asked) return;
    version_at(c, next)->cross_asked = true;
    tb_row_mark(&c->versions, next, TB_CATALOG_CROSS);
}

enum tb_status tb_catalog_crossing_begun(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    struct version *v = version_at(c, i);
    const enum tb_status ended = tb_version_status(c, v);
    if (ended != TB_OK) return ended;
    if (v->cross_begun) return TB_DONE_BEFORE;
    v->cross_begun = true;
    v->moved_at = c->now;
    v->cross_asked = false;
    v->reserved = true;
    tb_row_unmark(&c->versions, i, TB_CATALOG_CROSS);
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

bool tb_catalog_crossing_wanted(const struct tb_catalog *c, const struct tb_id *uid)
{
    const uint32_t i = tb_version_find(c, uid);
    return i != NONE && (version_at(c, i)->cross_asked || version_at(c, i)->cross_begun);
}

static enum tb_status refuse_until(struct tb_catalog *c, const struct tb_id *uid, tb_time_ns until)
{
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    struct version *v = version_at(c, i);
    v->cross_asked = false;
    v->cross_begun = false;
    v->refused_until = until;
    tb_row_unmark(&c->versions, i, TB_CATALOG_CROSS);
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_crossing_refused(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    return refuse_until(c, uid, tb_time_add(c->now, c->config.retry_ns));
}

enum tb_status tb_catalog_crossing_hopeless(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    return refuse_until(c, uid, TB_TIME_NEVER);
}

static bool newer_can_cross(const struct tb_catalog *c, const struct version *v)
{
    EACH(c->versions, i)
    {
        const struct version *other = version_at(c, i);
        if (tb_version_older(v, other) && may_cross(c, other, v->model)) return true;
    }
    return false;
}

enum tb_status tb_catalog_crossing_abandon(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    const struct version *v = version_at(c, i);
    const struct tb_catalog_model *m = &model_at(c, v->model)->config;
    if (!lacking(v, v->model) || !v->cross_begun || v->wanted || m->every || m->is_home) return TB_BAD_STATE;
    if (!newer_can_cross(c, v)) return TB_BAD_STATE;
    tb_version_end(c, i, TB_VERSION_ENDED_ABANDONED, "newer_is_sooner");
    return tb_catalog_settle(c, TB_OK);
}

tb_time_ns tb_catalog_crossing_deadline(const struct tb_catalog *c)
{
    tb_time_ns at = TB_TIME_NEVER;
    EACH(c->versions, i)
    {
        const struct version *v = version_at(c, i);
        if (tb_version_lives(v) && !v->whole && v->refused_until != 0 && !v->cross_asked && !v->cross_begun)
            at = tb_time_min(at, v->refused_until);
    }
    return at;
}

/* ---- what this site tells others ---- */

static bool activated_by_all(const struct tb_catalog *c, uint32_t model, const struct which *w)
{
    uint32_t groups = 0;
    EACH(c->groups, g)
    {
        if (group_at(c, g)->model != model) continue;
        if (!tb_group_activated(c, g, w)) return false;
        groups++;
    }
    return groups > 0;
}

void tb_catalog_site_activated_settle(struct tb_catalog *c, uint32_t model)
{
    EACH(c->versions, i)
    {
        struct version *v = version_at(c, i);
        const struct which w = tb_which_of(v);
        if (v->model != model || v->activated_here || !tb_version_lives(v) || !activated_by_all(c, model, &w))
            continue;
        v->activated_here = true;
        c->waits_touched = true;
        tb_row_mark(&c->versions, i, TB_CATALOG_SITE_STATE);
    }
}
