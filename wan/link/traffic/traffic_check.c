/* traffic_check.c - asserts what holds of a link's tables between two turns. */
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_check.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/ask_table.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/link_manifest_pages.h"
#include "wan/link/traffic/link_share.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/send/feed_landings.h"

/* ---- offers, and places that retire ---- */

static bool is_offered(const struct tb_links *ls, const struct tb_offer *offer)
{
    const struct tb_offer *o = ls->offers;
    while (o != NULL && o != offer)
        o = o->next;
    return o != NULL;
}

static void check_retiring(const struct tb_links *ls)
{
    for (const struct tb_shared_places *s = ls->retiring; s != NULL; s = s->next)
        TB_ASSERT(tb_shared_places_revoked(s) && s->call != NULL && s->call->left > 0);
}

void tb_links_offers_check(const struct tb_links *ls)
{
    uint32_t count = 0;
    for (const struct tb_offer *o = ls->offers; o != NULL; o = o->next, count++) {
        TB_ASSERT(!tb_shared_places_revoked(o->share) && o->share->sent != NULL);
        TB_ASSERT(o->key.shard_count == o->share->shard_count);
        for (uint32_t i = 0; i < ls->options.peer_count; i++)
            TB_ASSERT(o->peers[i].held_chunks <= o->chunks);
    }
    TB_ASSERT(count == ls->offer_count && count <= TB_LINKS_OFFERS_MAX);
    check_retiring(ls);
}

/* ---- what the peer draws ---- */

static void check_out(const struct tb_link *l, const struct tb_link_out *out, bool small)
{
    const struct tb_link_crossings *c = &l->traffic.crossings;
    TB_ASSERT(out->crossing != 0 && out->crossing <= c->want_last);
    TB_ASSERT(is_offered(l->links, out->offer));
    TB_ASSERT(out->base == NULL || tb_outbound_state_on_base(out->core.state));
    TB_ASSERT(out->base == NULL || (out->base != out->offer->share && !tb_shared_places_revoked(out->base)));
    TB_ASSERT(out->flow < TB_FAIR_FLOWS_MAX && c->fair.flows[out->flow].weight != 0);
    for (const struct tb_link_out *o = out->next; o != NULL; o = o->next) {
        TB_ASSERT(o->crossing != out->crossing && o->offer != out->offer);
        TB_ASSERT((o->flow == out->flow) == tb_name_equal(&o->offer->key.model, &out->offer->key.model));
    }
    if (small) tb_outbound_check(&out->core);
}

static void check_outs(const struct tb_link *l, bool small)
{
    uint32_t count = 0;
    for (const struct tb_link_out *o = l->traffic.crossings.outs; o != NULL; o = o->next, count++)
        check_out(l, o, small);
    TB_ASSERT(count <= TB_LINKS_CROSSINGS_MAX && (count == 0 || tb_link_is_up(l)));
    tb_fair_check(&l->traffic.crossings.fair);
    tb_hedge_check(&l->traffic.crossings.hedge);
}

/* ---- what we draw ---- */

/* P5: a chunk that came on streams of an ended session lands before the next crossing begins. */
static void check_in(const struct tb_link *l, const struct tb_link_in *in, bool small)
{
    TB_ASSERT(!tb_shared_places_revoked(in->share) && in->key.shard_count == in->share->shard_count);
    TB_ASSERT(!in->finished || (in->crossing == 0 && in->base == NULL));
    TB_ASSERT(in->crossing == 0 || (tb_link_is_up(l) && in->draining == 0));
    TB_ASSERT(in->base == NULL || in->crossing != 0);
    for (const struct tb_link_in *i = in->next; small && i != NULL; i = i->next)
        TB_ASSERT(!tb_id_equal(&i->key.uid, &in->key.uid));
}

static void check_ins(const struct tb_link *l, bool small)
{
    uint32_t under_way = 0;
    for (const struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next) {
        check_in(l, in, small);
        under_way += in->crossing != 0;
    }
    TB_ASSERT(under_way <= TB_LINKS_LANDINGS_MAX);
}

static void check_asks(const struct tb_link *l, bool small)
{
    uint32_t asked = 0;
    for (const struct tb_link_ask *a = l->traffic.asks; a != NULL; a = a->next) {
        TB_ASSERT((a->memories != NULL) == (a->manifests != NULL) && a->sent == (a->memories != NULL));
        TB_ASSERT(a->seq <= l->traffic.ask_seq && a->head_got <= a->head_total);
        TB_ASSERT(!a->complete || a->shard == a->key.shard_count);
        TB_ASSERT(!a->unasked || a->sent);
        for (const struct tb_link_ask *b = a->next; small && b != NULL; b = b->next)
            TB_ASSERT(!tb_id_equal(&a->uid, &b->uid));
        asked += !a->unasked;
    }
    TB_ASSERT(asked <= TB_LINKS_ASKS_MAX + TB_FEED_EXPECTED_MAX);
}

/* ---- models, pushes, manifests that go, streams ---- */

static uint32_t pushes_count(const struct tb_push *p)
{
    uint32_t count = 0;
    for (; p != NULL; p = p->next)
        count++;
    return count;
}

static void check_models(const struct tb_link *l)
{
    const struct tb_link_models *m = &l->traffic.models;
    const struct tb_link_pushes *p = &l->traffic.pushes;
    TB_ASSERT(m->granted_count <= m->granted_cap && m->granted_cap <= TB_LINKS_GRANTED_MAX);
    TB_ASSERT(m->refused_count <= TB_LINKS_REFUSED_MAX && m->wanted_count <= TB_LINKS_MODELS_MAX);
    TB_ASSERT(m->announced_count <= m->announced_cap && m->announced_cap <= TB_LINKS_OFFERS_MAX);
    TB_ASSERT(pushes_count(p->expecting) + pushes_count(p->pushed) <= TB_FEED_EXPECTED_MAX);
    TB_ASSERT(pushes_count(p->expected) <= m->granted_count && pushes_count(p->resting) <= m->wanted_count);
}

static void check_serves(const struct tb_link *l)
{
    for (const struct tb_link_serve *s = l->traffic.serves; s != NULL; s = s->next) {
        TB_ASSERT(is_offered(l->links, s->offer) && s->shard < s->offer->key.shard_count);
        TB_ASSERT(s->head == NULL || s->at <= s->head_bytes);
    }
    uint32_t unproven = 0;
    for (const struct tb_link_serve *s = l->traffic.unproven; s != NULL; s = s->next, unproven++)
        TB_ASSERT(is_offered(l->links, s->offer) && s->proving && s->shard == 0 && s->at == 0);
    TB_ASSERT(unproven <= l->links->offer_count); /* P7: one for each */
}

static void check_streams(const struct tb_link *l)
{
    const struct tb_link_streams *t = &l->traffic.streams;
    for (uint32_t i = 0; i < TB_LINKS_STREAMS_MAX; i++) {
        const struct tb_stream *s = t->slots[i];
        if (s == NULL) continue;
        TB_ASSERT(s->plan.slot == i && s->plan.session_seq <= tb_link_session_seq(l));
        TB_ASSERT(s->farewell < TB_STREAM_FAREWELLS && s->plan.feed == l->traffic.feed);
    }
    TB_ASSERT(t->ahead_count <= TB_LINKS_STREAMS_MAX && t->usable <= TB_LINKS_STREAMS_MAX);
    tb_tuner_check(&t->tuner);
}

void tb_link_traffic_check(const struct tb_link *l, bool small)
{
    check_outs(l, small);
    check_ins(l, small);
    check_asks(l, small);
    check_models(l);
    check_serves(l);
    check_streams(l);
    tb_feed_check(l->traffic.feed);
}

/* ---- versions from several peers ---- */

void tb_links_divisions_check(const struct tb_links *ls)
{
    for (const struct tb_division *v = ls->divisions; v != NULL; v = v->next) {
        for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
            TB_ASSERT((v->members[i].link != NULL) == v->core.sources[i].on);
            for (uint32_t k = 0; k < i; k++)
                TB_ASSERT(v->members[i].link == NULL || v->members[i].link != v->members[k].link);
        }
        tb_divide_check(&v->core);
    }
}
