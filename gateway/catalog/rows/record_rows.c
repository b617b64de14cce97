/* record_rows.c - what other sites said of themselves, and what follows from it. */
#include "gateway/catalog/rows/record_rows.h"
#include "base/assert.h"

#include "gateway/catalog/rows/model_rows.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_rows.h"

#define HEARSAY_KEPT TB_SECONDS(3600) /* an unknown record of a site that is no peer */

static bool first_hand(const struct tb_record *r)
{
    return tb_catalog_same_name(&r->via, &r->state.site);
}

static uint32_t record_find(const struct tb_catalog *c, const struct tb_name *site,
                            const struct tb_name *model)
{
    EACH(c->records, i)
    {
        const struct tb_site_state *s = &record_at(c, i)->info.state;
        if (tb_catalog_same_name(&s->site, site) && tb_catalog_same_name(&s->model, model)) return i;
    }
    return NONE;
}

/* P7: a record of a peer takes the place of one that others spoke of, and of those
 * the longest unknown. */
static uint32_t record_row(struct tb_catalog *c, bool of_peer)
{
    const uint32_t i = tb_table_new(&c->records);
    uint32_t least = NONE;
    if (i != NONE || !of_peer) return i;
    EACH(c->records, k)
    {
        const struct tb_record *r = &record_at(c, k)->info;
        const struct tb_record *best = least != NONE ? &record_at(c, least)->info : NULL;
        if (first_hand(r)) continue;
        if (best == NULL || (best->known && !r->known) || (best->known == r->known && r->since < best->since))
            least = k;
    }
    if (least == NONE) return NONE;
    tb_table_free(&c->records, least);
    return tb_table_new(&c->records);
}

static bool newer_word(const struct tb_site_state *a, const struct tb_site_state *b)
{
    if (a->incarnation != b->incarnation) return a->incarnation > b->incarnation;
    return a->serial > b->serial;
}

/* Of a record that is there. The last word of its own way counts, whatever its number:
 * that way is in order. */
static bool believed(const struct tb_record *r, const struct tb_name *via, const struct tb_site_state *s)
{
    if (tb_catalog_same_name(via, &s->site)) return true;
    if (tb_catalog_same_name(via, &r->via)) return true;
    if (!s->known) return false; /* another way lost the site */
    if (r->known && (first_hand(r) || s->hops > r->state.hops)) return false;
    return r->heard_at == 0 || newer_word(s, &r->state) || (!first_hand(r) && s->hops < r->state.hops);
}

static void record_said(struct tb_catalog *c, struct tb_record *r, const struct tb_name *via,
                        const struct tb_site_state *s)
{
    const tb_time_ns age = TB_MS(s->age_ms);
    TB_ASSERT(tb_catalog_same_name(&r->state.site, &s->site));
    TB_ASSERT(s->held_count <= TB_SITE_HELD_MAX);
    r->word_at = c->now;
    if (r->since == 0 || r->known != s->known || !tb_catalog_same_name(&r->via, via)) r->since = c->now;
    r->via = *via;
    r->known = s->known;
    if (!s->known) { /* what it held before it was lost stays to be shown */
        r->why = s->reason;
        r->state.hops = s->hops;
        return;
    }
    r->heard_at = age < c->now ? c->now - age : 1;
    r->state = *s;
}

enum tb_status tb_record_put(struct tb_catalog *c, tb_time_ns now, const struct tb_name *via,
                             const struct tb_site_state *s)
{
    tb_catalog_enter(c, now);
    if (tb_catalog_same_name(&s->site, &c->config.site)) return TB_BAD_ARGUMENT;
    const uint32_t model = tb_catalog_model_find(c, &s->model);
    if (model == NONE) return TB_NOT_FOUND;
    uint32_t i = record_find(c, &s->site, &s->model);
    if (i != NONE && !believed(&record_at(c, i)->info, via, s)) return TB_DONE_BEFORE;
    if (i == NONE) {
        i = record_row(c, tb_catalog_same_name(via, &s->site));
        if (i == NONE) return tb_catalog_refuse_full(c, &c->records);
        record_at(c, i)->info.state.site = s->site;
        record_at(c, i)->info.state.model = s->model;
    }
    record_said(c, &record_at(c, i)->info, via, s);
    c->waits_touched = true;
    return TB_OK;
}

static bool lose(struct tb_catalog *c, struct tb_record *r, uint16_t why)
{
    TB_ASSERT(r->since <= c->now);
    if (!r->known && r->why == why) return false;
    if (r->known) r->since = c->now;
    r->known = false;
    r->why = why;
    return true;
}

bool tb_records_lost(struct tb_catalog *c, tb_time_ns now, const struct tb_name *via, uint16_t why)
{
    bool any = false;
    tb_catalog_enter(c, now);
    EACH(c->records, i)
    {
        struct tb_record *r = &record_at(c, i)->info;
        if (tb_catalog_same_name(&r->via, via)) any |= lose(c, r, why);
    }
    return any;
}

void tb_records_awaited(struct tb_catalog *c, tb_time_ns now, const struct tb_name *via, uint16_t why)
{
    tb_catalog_enter(c, now);
    EACH(c->records, i)
    {
        struct tb_record *r = &record_at(c, i)->info;
        if (!tb_catalog_same_name(&r->via, via)) continue;
        r->word_at = c->now;
        if (r->heard_at == 0) (void)lose(c, r, why);
    }
}

/* A record that a relay called unknown keeps that reason: the relay says so once. */
bool tb_records_silent(struct tb_catalog *c, tb_time_ns now, const struct tb_name *via, tb_time_ns silent,
                       uint16_t why)
{
    bool any = false;
    tb_catalog_enter(c, now);
    EACH(c->records, i)
    {
        struct tb_record *r = &record_at(c, i)->info;
        if (!tb_catalog_same_name(&r->via, via) || tb_time_since(r->word_at, now) < silent) continue;
        if (r->known || first_hand(r)) any |= lose(c, r, why);
    }
    return any;
}

void tb_records_leave(struct tb_catalog *c, const struct tb_name *site)
{
    EACH(c->records, i)
    {
        const struct tb_record *r = &record_at(c, i)->info;
        if (!tb_catalog_same_name(&r->via, site) && !tb_catalog_same_name(&r->state.site, site)) continue;
        tb_table_free(&c->records, i);
    }
    c->waits_touched = true;
}

void tb_records_forget(struct tb_catalog *c, const struct tb_name *site)
{
    EACH(c->records, i)
    {
        struct tb_record *r = &record_at(c, i)->info;
        if (!tb_catalog_same_name(&r->state.site, site)) continue;
        r->state.held_count = 0;
        r->state.active = (struct tb_site_which){0, 0};
        (void)lose(c, r, r->why);
    }
}

void tb_records_expire(struct tb_catalog *c)
{
    EACH(c->records, i)
    {
        const struct tb_record *r = &record_at(c, i)->info;
        if (!r->known && !first_hand(r) && tb_time_since(r->since, c->now) > HEARSAY_KEPT)
            tb_table_free(&c->records, i);
    }
}

/* ---- between two states: what the links say of a version ---- */

static struct tb_site_held *held_place(struct tb_site_state *s, const struct version *v)
{
    const struct tb_site_which which = {v->key.run_order, v->key.number};
    uint32_t at = 0;
    while (at < s->held_count && tb_site_which_compare(&s->held[at].which, &which) > 0)
        at++;
    if (at < s->held_count && tb_id_equal(&s->held[at].uid, &v->key.uid)) return &s->held[at];
    if (at == TB_SITE_HELD_MAX) return NULL;
    if (s->held_count == TB_SITE_HELD_MAX) s->held_count--;
    for (uint32_t i = s->held_count; i > at; i--)
        s->held[i] = s->held[i - 1];
    s->held_count++;
    TB_ASSERT(at < s->held_count && s->held_count <= TB_SITE_HELD_MAX);
    s->held[at] = (struct tb_site_held){.uid = v->key.uid, .which = which, .bytes = v->bytes};
    return &s->held[at];
}

void tb_record_progress(struct tb_catalog *c, uint32_t version, const struct tb_catalog_site_progress *p)
{
    const struct version *v = version_at(c, version);
    const struct tb_name *via = p->via.text[0] != 0 ? &p->via : &p->site;
    const uint32_t i = record_find(c, &p->site, &v->key.model);
    struct tb_record *r = i != NONE ? &record_at(c, i)->info : NULL;
    if (r == NULL || !r->known || !tb_catalog_same_name(&r->via, via)) return;
    const struct tb_site_which which = {v->key.run_order, v->key.number};
    if (p->activated && tb_site_which_compare(&which, &r->state.active) > 0) r->state.active = which;
    struct tb_site_held *h = p->whole || p->held_chunks > 0 ? held_place(&r->state, v) : NULL;
    c->waits_touched = true;
    if (h == NULL) return;
    const uint64_t held = v->chunk_count > 0 ? v->bytes / v->chunk_count * p->held_chunks : 0;
    if (held > h->held_bytes && held <= h->bytes) h->held_bytes = held;
    if (p->whole) h->held_bytes = h->bytes;
    h->marks |= (uint8_t)((p->whole ? TB_SITE_WHOLE : 0) | (p->activated ? TB_SITE_ACTIVATED : 0));
}

void tb_record_gone(struct tb_catalog *c, uint32_t version, const struct tb_name *site)
{
    const struct version *v = version_at(c, version);
    const uint32_t i = record_find(c, site, &v->key.model);
    struct tb_site_state *s = i != NONE ? &record_at(c, i)->info.state : NULL;
    for (uint32_t k = 0; s != NULL && k < s->held_count; k++) {
        if (!tb_id_equal(&s->held[k].uid, &v->key.uid)) continue;
        for (s->held_count--; k < s->held_count; k++)
            s->held[k] = s->held[k + 1];
        return;
    }
}

/* ---- what follows ---- */

/* Groups that went past a version wait for it no more, and nobody who waits for that
 * site to hold it may. */
bool tb_record_reached(const struct tb_catalog *c, const struct tb_name *site, const struct version *v,
                       bool activated)
{
    const uint32_t i = record_find(c, site, &v->key.model);
    const struct tb_record *r = i != NONE ? &record_at(c, i)->info : NULL;
    if (r == NULL || !r->known) return false;
    const struct tb_site_which which = {v->key.run_order, v->key.number};
    if (tb_site_which_compare(&r->state.active, &which) >= 0) return true;
    const struct tb_site_held *h = tb_site_held_find(&r->state, &v->key.uid);
    return h != NULL && (h->marks & (activated ? TB_SITE_ACTIVATED : TB_SITE_WHOLE)) != 0;
}

bool tb_record_get(const struct tb_catalog *c, const struct tb_name *site, const struct tb_name *model,
                   struct tb_record *out)
{
    const uint32_t i = record_find(c, site, model);
    if (i == NONE) return false;
    *out = record_at(c, i)->info;
    return true;
}

void tb_records_of_model_leave(struct tb_catalog *c, const struct tb_name *model)
{
    EACH(c->records, i)
    if (tb_catalog_same_name(&record_at(c, i)->info.state.model, model)) tb_table_free(&c->records, i);
}

bool tb_record_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_record *out)
{
    const uint32_t i = tb_table_next(&c->records, *cursor);
    *cursor = i == NONE ? c->records.high : i + 1;
    if (i == NONE) return false;
    *out = record_at(c, i)->info;
    return true;
}

struct tb_site_which tb_site_newest(const struct tb_site_state *s)
{
    for (uint32_t i = 0; i < s->held_count; i++)
        if ((s->held[i].marks & TB_SITE_WHOLE) != 0) return s->held[i].which;
    return (struct tb_site_which){0, 0};
}

const struct tb_site_held *tb_site_held_find(const struct tb_site_state *s, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < s->held_count; i++)
        if (tb_id_equal(&s->held[i].uid, uid)) return &s->held[i];
    return NULL;
}

struct tb_record_behind tb_record_behind(const struct tb_site_state *home, const struct tb_site_state *site)
{
    struct tb_record_behind b = {.head = home->head};
    const struct tb_site_which newest = tb_site_newest(site);
    for (uint32_t i = 0; i < home->held_count; i++) {
        const struct tb_site_held *h = &home->held[i];
        if ((h->marks & TB_SITE_READY) == 0 || tb_site_which_compare(&h->which, &newest) <= 0) continue;
        b.versions++;
        if (tb_site_which_compare(&h->which, &b.head) != 0) continue;
        const struct tb_site_held *there = tb_site_held_find(site, &h->uid);
        const uint64_t held = there != NULL && there->held_bytes < h->bytes ? there->held_bytes : 0;
        b.left_bytes = h->bytes - held;
    }
    return b;
}
