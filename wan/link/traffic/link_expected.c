/* link_expected.c - versions that are sent before they are asked for, where the peer expects
 * them. */
#include "wan/link/traffic/link_expected.h"

#include "base/allocate.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/link_pause.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/link/traffic/push_table.h"

enum tb_status tb_link_on_expect(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_expect m;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_PUSH) return TB_PEER_GARBLED;
    const enum tb_status status = tb_frame_expect_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (m.crossing <= l->traffic.crossings.want_last) return TB_PEER_GARBLED;
    l->traffic.crossings.want_last = m.crossing;
    if (!tb_link_granted(l, &m.model)) return TB_OK;
    struct tb_push *p =
        *tb_push_find_model(&l->traffic.pushes.expected, &m.model); /* as many as models are granted */
    if (p == NULL) p = tb_calloc(1, sizeof *p);
    if (p == NULL) return TB_OK; /* it is asked */
    if (*tb_push_find_model(&l->traffic.pushes.expected, &m.model) == NULL) {
        p->next = l->traffic.pushes.expected;
        l->traffic.pushes.expected = p;
    }
    p->model = m.model;
    p->crossing = m.crossing;
    p->base = m.base;
    return TB_OK;
}

/* The peer has heard of something newer than what it holds: it is about to ask for that. */
static bool was_told_of_more(const struct tb_link *l, const struct tb_offer *base)
{
    for (const struct tb_offer *o = l->links->offers; o != NULL; o = o->next) {
        if (o->peers[l->index].announced != tb_link_session_seq(l) || o->peers[l->index].whole) continue;
        if (tb_push_is_newer(&o->key, &base->key)) return true;
    }
    return false;
}

/* The peer lands nothing before it has them, and all its streams wait meanwhile: more of them
 * than three flights of a TCP that begins would cost the others more time than the two round
 * trips that are saved here. */
static bool manifests_are_short(const struct tb_link *l, const struct tb_offer *o)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < o->share->shard_count; s++) {
        const struct tb_manifest *m = o->share->places[s].manifest;
        bytes += tb_manifest_head_bytes(m) + (uint64_t)m->chunk_count * TB_DIGEST_BYTES;
    }
    return bytes <= l->links->options.push_manifest_bytes;
}

bool tb_link_push(struct tb_link *l, struct tb_offer *o)
{
    struct tb_push **at = tb_push_find_model(&l->traffic.pushes.expected, &o->key.model);
    if (*at == NULL || tb_link_is_paused(l, &o->key.model)) return false;
    struct tb_offer *base = tb_offer_find(l->links, &(*at)->base);
    if (base == NULL || !tb_push_is_newer(&o->key, &base->key) || was_told_of_more(l, base)) return false;
    if (!tb_shared_places_layouts_meet(o->share, base->share) || !manifests_are_short(l, o)) return false;
    const uint32_t crossing = (*at)->crossing;
    if (tb_link_out_push(l, crossing, o, base->share) != TB_OK) return false;
    tb_free(tb_push_take_out(at));
    l->stats.pushed++;
    LINK_SEND(l, TB_FRAME_PUSH, tb_frame_push, LINK_SMALL, .crossing = crossing, .uid = o->key.uid);
    return true;
}
