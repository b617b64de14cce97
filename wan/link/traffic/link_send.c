/* link_send.c - crossings that the peer draws from us: what it says of them, and parcels into the
 * feed, from which streams take them. outbound.h decides what goes, fair_queue.h whose turn it is,
 * and hedge.h what goes again. */
#include "wan/link/traffic/link_send.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/link_dtypes.h"
#include "wan/link/traffic/link_pause.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/link/traffic/push_table.h"
#include "wan/link/traffic/word_frames.h"
#include "wan/send/codec_pace.h"
#include "wan/send/feed.h"
#include "wan/send/feed_choice.h"
#include "wan/send/feed_limits.h"
#include "wan/send/feed_parcels.h"
#include "wan/send/inbound.h"
#include "wan/send/outbound_parcels.h"

#define AHEAD_BYTES ((uint64_t)16 << 20) /* of a pushed crossing, on the wire: 1 Gbit/s for 130 ms */

enum tb_status tb_link_on_want(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_want m;
    enum tb_status status = tb_frame_want_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (m.crossing <= l->traffic.crossings.want_last) return TB_PEER_GARBLED;
    l->traffic.crossings.want_last = m.crossing;
    struct tb_offer *o = tb_offer_find(l->links, &m.uid);
    if (o == NULL || !tb_link_granted(l, &o->key.model)) {
        tb_link_send_gone(l, &m.uid, TB_NOT_FOUND);
        return TB_OK;
    }
    if (!tb_link_may_read(l, o)) { /* it has the manifests from elsewhere */
        tb_link_refuse_dtypes(l, o);
        return TB_OK;
    }
    tb_link_expected_ends(l, &o->key.model);
    tb_link_outs_drop(l, o); /* it begins again */
    status =
        tb_link_out_count(l) < TB_LINKS_CROSSINGS_MAX ? tb_link_out_new(l, m.crossing, o) : TB_SITE_NOMEM;
    if (status != TB_OK) tb_link_send_gone(l, &m.uid, status);
    tb_links_busy(l->links);
    return TB_OK;
}

/* The peer holds that version whole. We may not: then deltas that were kept may lead from it, or
 * the chunks go as they are. A version of another model is no base: a delta to it would tell of
 * its bytes. */
static void base_find(struct tb_link *l, struct tb_link_out *out, const struct tb_id *uid)
{
    const struct tb_version_key *key = &out->offer->key;
    const struct tb_offer *o = tb_offer_find(l->links, uid);
    if (tb_id_equal(uid, &key->uid)) return;
    if (o == NULL)
        out->base = tb_links_past_new(l->links, uid, &key->model);
    else if (tb_name_equal(&o->key.model, &key->model))
        out->base = o->share;
}

enum tb_status tb_link_on_base(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_base m;
    struct tb_link_out *out = NULL;
    enum tb_status status = tb_frame_base_decode(&f->payload, &m);
    if (status == TB_OK && tb_link_protocol(l) < TB_LINK_PROTOCOL_BASES) return TB_PEER_GARBLED;
    if (status == TB_OK) status = tb_link_out_of(l, m.crossing, &out);
    if (status != TB_OK || out == NULL) return status;
    status = tb_outbound_name_base(&out->core);
    if (status != TB_OK) return status;
    base_find(l, out, &m.uid);
    if (out->base != NULL) tb_outbound_base(&out->core, out->base->places, out->base->shard_count);
    return TB_OK;
}

/* The peer's word is the only one that counts. */
static void out_progress(struct tb_link *l, struct tb_link_out *out)
{
    TB_ASSERT(out->core.peer_held <= out->offer->chunks);
    struct tb_offer *o = out->offer;
    o->peers[l->index].held_chunks = (uint32_t)out->core.peer_held;
    if (!tb_outbound_state_started(out->core.state) || !tb_outbound_whole(&out->core)) return;
    tb_link_out_free(l, out);
    tb_link_peer_held(l, o);
}

enum tb_status tb_link_on_held(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_held m;
    struct tb_link_out *out = NULL;
    enum tb_status status = tb_frame_held_decode(&f->payload, &m);
    if (status == TB_OK) status = tb_link_out_of(l, m.crossing, &out);
    if (status != TB_OK || out == NULL) return status;
    status = tb_outbound_held(&out->core, m.shard, &m.words);
    if (status != TB_OK) return status;
    tb_hedge_held(&l->traffic.crossings.hedge, tb_clock_now(), m.crossing, &out->core);
    tb_feed_purge_held(l->traffic.feed, m.crossing, &out->core);
    out_progress(l, out);
    return TB_OK;
}

void tb_link_take_taken(struct tb_link *l)
{
    struct tb_feed_taken taken[TB_FEED_TAKEN_MAX];
    const uint32_t count = tb_feed_collect_taken(l->traffic.feed, taken);
    const tb_time_ns now = tb_clock_now();
    for (uint32_t i = 0; i < count; i++) {
        struct tb_link_out *out = tb_link_out_find(l, taken[i].crossing);
        if (out == NULL) continue;
        tb_outbound_taken(&out->core, &taken[i].parcel, taken[i].slot);
        const struct tb_hedge_way way = {.crossing = taken[i].crossing,
                                         .parcel = taken[i].parcel,
                                         .slot = (uint8_t)taken[i].slot,
                                         .again = taken[i].again,
                                         .on_base = out->base != NULL};
        tb_hedge_taken(&l->traffic.crossings.hedge, now, &way, &out->core);
    }
}

enum tb_status tb_link_on_start(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_start m;
    struct tb_link_out *out = NULL;
    enum tb_status status = tb_frame_start_decode(&f->payload, &m);
    if (status == TB_OK) status = tb_link_out_of(l, m.crossing, &out);
    if (status != TB_OK || out == NULL) return status;
    const bool pushed = out->core.state == TB_OUTBOUND_PUSHED;
    status = tb_outbound_start(&out->core);
    if (status != TB_OK) return status;
    tb_link_take_taken(l);
    tb_hedge_started(&l->traffic.crossings.hedge, tb_clock_now(), m.crossing);
    tb_log(TB_LOG_INFO, "crossing.begun",
           "peer=%s model=%s number=%llu held_chunks=%llu chunks=%llu pushed=%d", l->label.text,
           out->offer->key.model.text, (unsigned long long)out->offer->key.number,
           (unsigned long long)out->core.peer_held, (unsigned long long)out->core.chunks, pushed);
    out_progress(l, out);
    return TB_OK;
}

enum tb_status tb_link_on_stop(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_stop m;
    struct tb_link_out *out = NULL;
    enum tb_status status = tb_frame_stop_decode(&f->payload, &m);
    if (status == TB_OK) status = tb_link_out_of(l, m.crossing, &out);
    if (status == TB_OK && out != NULL) tb_link_out_free(l, out);
    return status;
}

/* P10: counted each time, told once a crossing. */
static void out_no_base(struct tb_link *l, struct tb_link_out *out)
{
    l->stats.chunks_no_base++;
    if (out->no_base_told) return;
    out->no_base_told = true;
    tb_log(TB_LOG_WARN, "crossing.no_base", "peer=%s model=%s number=%llu by=peer action=send_whole",
           l->label.text, out->offer->key.model.text, (unsigned long long)out->offer->key.number);
}

/* P1: the peer decoded the delta, on the base that both hold, and the chunk is wrong. The delta
 * may be of a rank, and nobody looked at it here: no other peer gets it. P7: only a chunk that
 * went as a delta counts. Of others a peer can say nothing. */
static void delta_bad(const struct tb_link *l, const struct tb_link_out *out,
                      const struct tb_frame_refused *m)
{
    if (out->base == NULL || l->links->options.encoded_chunks == NULL) return;
    const struct tb_encoded_chunk_name name =
        tb_stream_encoded_name(out->offer->share, out->base, m->shard, m->chunk);
    tb_encoded_chunks_bad(l->links->options.encoded_chunks, &name);
}

/* The chunk did not land, and goes again as any other: a second way of it that waits for a stream
 * is taken back first. A stream that took it may be ahead of us. */
static void out_recall(struct tb_link *l, struct tb_link_out *out, const struct tb_frame_refused *m)
{
    struct tb_parcel parcel;
    if (tb_feed_recall(l->traffic.feed, m, &parcel)) {
        tb_outbound_unqueued(&out->core, &parcel);
        tb_hedge_unqueued(&l->traffic.crossings.hedge, m->crossing, &parcel);
    }
    tb_link_take_taken(l);
}

static bool is_refusal(const struct tb_link *l, uint8_t why)
{
    const bool bases = tb_link_protocol(l) >= TB_LINK_PROTOCOL_BASES;
    return why >= TB_REFUSAL_DIGEST && why <= (bases ? TB_REFUSAL_NO_BASE : TB_REFUSAL_LOST);
}

/* P10: wrong bytes. The daemon tells an operator. */
static void out_bad(struct tb_link *l, const struct tb_link_out *out, const struct tb_frame_refused *m,
                    uint32_t times, bool on_base)
{
    const struct tb_links_options *o = &l->links->options;
    struct tb_links_bad_chunk bad = {
        .uid = out->offer->key.uid, .shard = m->shard, .chunk = m->chunk, .times = times, .ours = true};
    l->stats.chunks_refused++;
    if (on_base) delta_bad(l, out, m);
    if (on_base && out->base != NULL) bad.base = out->base->uid;
    if (o->ops->on_chunk_bad != NULL) o->ops->on_chunk_bad(o->user, l->index, &bad);
}

enum tb_status tb_link_on_refused(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_refused m;
    struct tb_link_out *out = NULL;
    uint32_t times = 0;
    enum tb_status status = tb_frame_refused_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (!is_refusal(l, m.why)) return TB_PEER_GARBLED;
    status = tb_link_out_of(l, m.crossing, &out);
    if (status != TB_OK || out == NULL) return status;
    if (m.why == TB_REFUSAL_NO_BASE && !tb_outbound_state_on_base(out->core.state)) return TB_PEER_GARBLED;
    out_recall(l, out, &m);
    const bool on_base = tb_outbound_on_base(&out->core, m.shard, m.chunk);
    status = tb_outbound_refused(&out->core, &m, &times);
    if (status != TB_OK) return status;
    tb_hedge_refused(&l->traffic.crossings.hedge, &m, &out->core);
    if (m.why == TB_REFUSAL_NO_BASE)
        out_no_base(l, out);
    else if (m.why != TB_REFUSAL_LOST)
        out_bad(l, out, &m, times, on_base);
    return TB_OK;
}

void tb_link_out_unsent(struct tb_link *l, const struct tb_note *n)
{
    uint32_t times = 0;
    struct tb_link_out *out = tb_link_out_find(l, n->crossing);
    const struct tb_frame_refused lost = {
        .crossing = n->crossing, .shard = n->shard, .chunk = n->chunk, .why = TB_REFUSAL_LOST};
    if (out == NULL) return;
    out_recall(l, out, &lost);
    if (tb_outbound_refused(&out->core, &lost, &times) == TB_OK)
        tb_hedge_refused(&l->traffic.crossings.hedge, &lost, &out->core);
}

void tb_link_out_stream_gone(struct tb_link *l, uint32_t slot)
{
    TB_ASSERT(slot < TB_LINKS_STREAMS_MAX);
    for (struct tb_link_out *out = l->traffic.crossings.outs; out != NULL; out = out->next)
        (void)tb_outbound_stream_gone(&out->core, slot);
    tb_hedge_stream_gone(&l->traffic.crossings.hedge, slot);
}

static bool push(struct tb_link *l, const struct tb_feed_parcel *p)
{
    TB_ASSERT(p->share != NULL && !tb_shared_places_revoked(p->share));
    tb_shared_places_ref(p->share);
    if (p->base != NULL) tb_shared_places_ref(p->base);
    const bool fits = tb_feed_push(l->traffic.feed, p);
    TB_ASSERT(fits); /* only the main loop pushes, and it looked */
    return true;
}

/* P6: a parcel that is late on its stream goes again by another, before anything new. */
static bool hedge(struct tb_link *l, struct tb_link_out *out, tb_time_ns now)
{
    TB_ASSERT(tb_outbound_state_started(out->core.state));
    struct tb_hedge_again again;
    bool pushed = false;
    while (tb_feed_ready(l->traffic.feed) < TB_FEED_READY_MAX &&
           tb_hedge_next(&l->traffic.crossings.hedge, now, out->crossing, &out->core, &again)) {
        const struct tb_feed_parcel p = {.share = out->offer->share,
                                         .base = out->base,
                                         .crossing = out->crossing,
                                         .parcel = again.parcel,
                                         .again = true,
                                         .avoid = again.avoid};
        tb_outbound_again(&out->core, &p.parcel);
        pushed = push(l, &p);
    }
    return pushed;
}

/* P6: a model whose deltas are a hundredth of its chunks does not pay for the whole of them. */
static uint64_t owes(struct tb_link_out *out, uint64_t bytes)
{
    struct tb_sent_sum sum;
    tb_sent_look(out->offer->share->sent, &sum);
    return tb_fair_owes(&out->bill, bytes, sum.raw_bytes, sum.bytes);
}

/* Encoded chunks that are kept are sparse deltas. A link that would not take them does not wait
 * for them. */
static bool takes_deltas(struct tb_link *l)
{
    struct tb_choice choice;
    const struct tb_link_out *out =
        l->links->options.encoded_chunks != NULL ? l->traffic.crossings.outs : NULL;
    while (out != NULL && out->base == NULL)
        out = out->next;
    if (out == NULL) return false;
    tb_feed_choice(l->traffic.feed, &choice);
    const struct tb_choice_pace any = {.classes = 0}; /* whether, not in how many */
    return tb_choice_classes(&choice, &any) > 0;
}

/* The publisher of a version, or another link, may be making deltas to the peer's base. Their
 * chunks go when that is done: to make them here as well would take a core twice, and be no
 * sooner. */
static void await_deltas(const struct tb_link *l, struct tb_link_out *out, bool takes, tb_time_ns now)
{
    struct tb_encoded_chunks *encoded_chunks = l->links->options.encoded_chunks;
    const struct tb_shared_places *share = out->offer->share;
    for (uint32_t s = 0; encoded_chunks != NULL && s < share->shard_count; s++) {
        uint64_t *wait = out->core.shards[s].wait;
        const struct tb_encoded_chunk_name name =
            tb_stream_encoded_name(share, out->base != NULL ? out->base : share, s, 0);
        if (takes && out->base != NULL && tb_encoded_chunks_awaited(encoded_chunks, &name, now, wait))
            continue;
        memset(wait, 0, TB_BITMAP_WORDS(share->places[s].manifest->chunk_count) * sizeof *wait);
    }
}

/* P7: a peer that may not take the version after all gets no more of it than that, by what went so
 * far, and no chunk whole. */
static bool far_ahead(const struct tb_link_out *out)
{
    struct tb_sent_sum sum;
    if (tb_outbound_state_started(out->core.state)) return false;
    if (out->base == NULL) return true;
    tb_sent_look(out->offer->share->sent, &sum);
    return tb_fair_handed(&out->bill, sum.raw_bytes, sum.bytes) >= AHEAD_BYTES;
}

/* The next parcel of the model whose turn it is; those that have nothing to send now are passed
 * over. */
static bool next_parcel(struct tb_link *l, struct tb_feed_parcel *p_out)
{
    uint32_t silent = 0;
    for (uint32_t flow; (flow = tb_fair_next(&l->traffic.crossings.fair, silent)) != TB_FAIR_NONE;
         silent |= 1u << flow) {
        for (struct tb_link_out *out = l->traffic.crossings.outs; out != NULL; out = out->next) {
            if (out->flow != flow || tb_link_is_paused(l, &out->offer->key.model)) continue;
            if (far_ahead(out) || !tb_outbound_next(&out->core, &p_out->parcel)) continue;
            p_out->share = out->offer->share;
            p_out->base = out->base;
            p_out->crossing = out->crossing;
            tb_fair_spend(&l->traffic.crossings.fair, flow, owes(out, p_out->parcel.bytes));
            return true;
        }
    }
    return false;
}

/* Fills the feed: two parcels a stream, so a stream finds one when it comes back and none waits
 * long on a slow one. Whether a chunk fits into the day's bytes its stream sees, which knows what
 * it comes to; once one does not, no more are handed out. */
bool tb_link_refill(struct tb_link *l, tb_time_ns now)
{
    const uint32_t target =
        l->traffic.streams.usable * 2 < TB_FEED_READY_MAX ? l->traffic.streams.usable * 2 : TB_FEED_READY_MAX;
    uint32_t ready = tb_feed_ready(l->traffic.feed);
    const bool before = l->traffic.crossings.spent,
               spent = l->traffic.crossings.spent = tb_feed_spent(l->traffic.feed, NULL);
    struct tb_feed_parcel p = {0};
    bool pushed = false;
    const bool takes = takes_deltas(l);
    if (before && !spent) tb_links_heed(l->links); /* streams have parcels in hand */
    for (struct tb_link_out *out = l->traffic.crossings.outs; out != NULL; out = out->next)
        await_deltas(l, out, takes, now);
    while (!spent && ready < target && next_parcel(l, &p)) {
        pushed = push(l, &p);
        ready++;
    }
    for (struct tb_link_out *out = l->traffic.crossings.outs; out != NULL && !spent; out = out->next)
        if (tb_outbound_state_started(out->core.state) && /* of one that is not, nothing is late */
            !tb_link_is_paused(l, &out->offer->key.model))
            pushed |= hedge(l, out, now);
    l->traffic.crossings.queued = tb_feed_ready(l->traffic.feed);
    l->traffic.crossings.full = l->traffic.crossings.full && l->traffic.crossings.queued > 0 && !spent;
    return pushed;
}

/* P6: a peer of a protocol that has no PAUSED asks for as many as it may, paused ones too, and then
 * for no other. One of them goes: "not now", so that it asks again later. */
void tb_link_outs_yield(struct tb_link *l)
{
    struct tb_link_out *out = l->traffic.crossings.outs;
    if (tb_link_protocol(l) >= TB_LINK_PROTOCOL_PAUSED || l->traffic.pause.ours) return;
    if (tb_link_out_count(l) < TB_LINKS_CROSSINGS_MAX) return;
    while (out != NULL && !tb_link_is_paused(l, &out->offer->key.model))
        out = out->next;
    if (out == NULL) return;
    tb_link_take_taken(l);
    tb_link_send_gone(l, &out->offer->key.uid, TB_SITE_NOMEM);
    tb_link_out_free(l, out);
}

bool tb_link_slot_idle(const struct tb_link *l, uint32_t slot)
{
    TB_ASSERT(slot < TB_LINKS_STREAMS_MAX);
    for (uint32_t i = 0; i < l->traffic.crossings.hedge.way_count; i++)
        if (l->traffic.crossings.hedge.ways[i].slot == slot) return false;
    return true;
}

enum tb_status tb_link_on_take(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_take m;
    struct tb_link_out *out = NULL;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_SHARED) return TB_PEER_GARBLED;
    enum tb_status status = tb_frame_take_decode(&f->payload, &m);
    if (status == TB_OK) status = tb_link_out_of(l, m.crossing, &out);
    if (status != TB_OK || out == NULL) return status;
    return tb_outbound_take(&out->core, m.shard, &m.words);
}

void tb_link_outs_have(struct tb_link *l, tb_time_ns now)
{
    static _Thread_local struct tb_held_word words[LINK_WORDS_MAX];
    for (struct tb_link_out *out = l->traffic.crossings.outs; out != NULL && tb_link_is_up(l);
         out = out->next) {
        if (out->core.takes == TB_OUTBOUND_TAKES_ALL || tb_time_since(out->have_at, now) < TB_HELD_EVERY)
            continue;
        for (uint32_t shard = 0, count;
             (count = tb_outbound_have(&out->core, &shard, words, LINK_WORDS_MAX)) > 0;)
            tb_link_send_words(l, TB_FRAME_HAVE, out->crossing, shard, words, count);
        out->have_at = now;
    }
}
