/* link_move.c - bytes on their way: crossings that the peer draws from us, landings that we draw from it.
 * crossing.h and landing.h decide; this feeds the streams and speaks to the peer. */
#include <string.h>

#include "base/assert.h"
#include "base/fault.h"
#include "base/log.h"
#include "wan/link.h"

#define HELD_WORDS_MAX (TB_LINK_PAGE_BYTES / TB_HELD_WORD_BYTES)
#define AHEAD_BYTES    ((uint64_t)16 << 20) /* of a pushed crossing, on the wire: 1 Gbit/s for 130 ms */

/* ---- sending ---- */

static struct out *out_find(const struct link *l, uint32_t crossing)
{
    struct out *o = l->outs;
    while (o != NULL && o->crossing != crossing)
        o = o->next;
    return o;
}

/* Crossings of one model are one flow: one begun before is finished before. */
static struct out *out_of_model(const struct link *l, const struct tb_name *model)
{
    struct out *o = l->outs;
    while (o != NULL && !tb_name_equal(&o->offer->key.model, model))
        o = o->next;
    return o;
}

static uint32_t flow_of(struct link *l, const struct tb_name *model)
{
    const struct tb_links_options *o = &l->links->options;
    const struct out *other = out_of_model(l, model);
    if (other != NULL) return other->flow;
    const uint32_t flow =
        tb_fair_join(&l->fair, o->ops->weight_of != NULL ? o->ops->weight_of(o->user, model) : 1);
    TB_ASSERT(flow != TB_FAIR_NONE); /* as many as crossings */
    return flow;
}

static void out_free(struct link *l, struct out *out)
{
    struct out **at = &l->outs;
    while (*at != out)
        at = &(*at)->next;
    *at = out->next;
    if (out_of_model(l, &out->offer->key.model) == NULL) tb_fair_leave(&l->fair, out->flow);
    tb_feed_purge(&l->feed, out->crossing);
    tb_hedge_over(&l->hedge, out->crossing);
    tb_free(out->memory);
    tb_free(out);
}

void link_outs_drop(struct link *l, const struct offer *o)
{
    for (struct out *out = l->outs, *next; out != NULL; out = next) {
        next = out->next;
        if (o == NULL || out->offer == o) out_free(l, out);
    }
}

static uint32_t out_count(const struct link *l)
{
    uint32_t count = 0;
    for (const struct out *o = l->outs; o != NULL; o = o->next)
        count++;
    return count;
}

static enum tb_status out_new(struct link *l, uint32_t crossing, struct offer *offer)
{
    struct out *out = tb_calloc(1, sizeof *out);
    if (out == NULL) return TB_SITE_NOMEM;
    out->memory = tb_malloc(tb_crossing_bytes_for(offer->share->places, offer->share->shard_count));
    if (out->memory == NULL) {
        tb_free(out);
        return TB_SITE_NOMEM;
    }
    out->crossing = crossing;
    out->offer = offer;
    out->flow = flow_of(l, &offer->key.model);
    tb_crossing_init(&out->core, offer->share->places, offer->share->shard_count, out->memory);
    struct out **at = &l->outs; /* one begun before is finished before */
    while (*at != NULL)
        at = &(*at)->next;
    *at = out;
    return TB_OK;
}

enum tb_status link_out_push(struct link *l, uint32_t crossing, struct offer *o, struct tb_share *base)
{
    if (out_of_model(l, &o->key.model) != NULL || out_count(l) >= TB_LINKS_CROSSINGS_MAX) return TB_AGAIN;
    const enum tb_status status = out_new(l, crossing, o);
    if (status != TB_OK) return status;
    struct out *out = out_find(l, crossing);
    out->based = true;
    out->base = base;
    tb_crossing_base(&out->core, base->places, base->shard_count);
    tb_crossing_push(&out->core);
    links_busy(l->links);
    return TB_OK;
}

enum tb_status link_on_want(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_want m;
    enum tb_status status = tb_frame_want_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (m.crossing <= l->want_last) return TB_PEER_GARBLED;
    l->want_last = m.crossing;
    struct offer *o = offer_find(l->links, &m.uid);
    if (o == NULL || !link_granted(l, &o->key.model)) {
        link_send_gone(l, &m.uid, TB_NOT_FOUND);
        return TB_OK;
    }
    link_expected_ends(l, &o->key.model);
    link_outs_drop(l, o); /* it begins again */
    status = out_count(l) < TB_LINKS_CROSSINGS_MAX ? out_new(l, m.crossing, o) : TB_SITE_NOMEM;
    if (status != TB_OK) link_send_gone(l, &m.uid, status);
    links_busy(l->links);
    return TB_OK;
}

/* The crossing a message is about. One that is over is no mistake: our end of it and the peer's words
 * crossed. */
enum tb_status link_out_of(const struct link *l, uint32_t crossing, struct out **out_out)
{
    *out_out = out_find(l, crossing);
    return crossing == 0 || crossing > l->want_last ? TB_PEER_GARBLED : TB_OK;
}

/* The peer holds that version whole. We may not, and then the chunks go as they are. Another model's bytes are no base: the
 * difference to them would tell of them. */
static struct tb_share *base_for(const struct link *l, const struct out *out, const struct tb_id *uid)
{
    const struct offer *o = offer_find(l->links, uid);
    if (o == NULL || o == out->offer || !tb_name_equal(&o->key.model, &out->offer->key.model)) return NULL;
    return o->share;
}

enum tb_status link_on_base(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_base m;
    struct out *out = NULL;
    enum tb_status status = tb_frame_base_decode(&f->payload, &m);
    if (status == TB_OK && l->protocol < TB_LINK_PROTOCOL_BASES) return TB_PEER_GARBLED;
    if (status == TB_OK) status = link_out_of(l, m.crossing, &out);
    if (status != TB_OK || out == NULL) return status;
    if (out->based || out->core.started) return TB_PEER_GARBLED;
    out->based = true;
    out->base = base_for(l, out, &m.uid);
    if (out->base != NULL) tb_crossing_base(&out->core, out->base->places, out->base->shard_count);
    return TB_OK;
}

/* The peer's word is the only one that counts. */
static void out_progress(struct link *l, struct out *out)
{
    struct offer *o = out->offer;
    o->peers[l->index].held_chunks = (uint32_t)out->core.peer_held;
    if (!out->core.started || !tb_crossing_whole(&out->core)) return;
    out_free(l, out);
    link_peer_held(l, o);
}

enum tb_status link_on_held(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_held m;
    struct out *out = NULL;
    enum tb_status status = tb_frame_held_decode(&f->payload, &m);
    if (status == TB_OK) status = link_out_of(l, m.crossing, &out);
    if (status != TB_OK || out == NULL) return status;
    status = tb_crossing_held(&out->core, m.shard, &m.words);
    if (status != TB_OK) return status;
    tb_hedge_held(&l->hedge, tb_clock_now(), m.crossing, &out->core);
    tb_feed_purge_held(&l->feed, m.crossing, &out->core);
    out_progress(l, out);
    return TB_OK;
}

static void take_taken(struct link *l)
{
    struct tb_feed_taken taken[TB_FEED_TAKEN_MAX];
    const uint32_t count = tb_feed_collect_taken(&l->feed, taken);
    const tb_time_ns now = tb_clock_now();
    for (uint32_t i = 0; i < count; i++) {
        struct out *out = out_find(l, taken[i].crossing);
        if (out == NULL) continue;
        tb_crossing_taken(&out->core, &taken[i].parcel, taken[i].slot);
        const struct tb_hedge_way way = {.crossing = taken[i].crossing,
                                         .parcel = taken[i].parcel,
                                         .slot = (uint8_t)taken[i].slot,
                                         .again = taken[i].again,
                                         .based = out->base != NULL};
        tb_hedge_taken(&l->hedge, now, &way, &out->core);
    }
}

enum tb_status link_on_start(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_start m;
    struct out *out = NULL;
    enum tb_status status = tb_frame_start_decode(&f->payload, &m);
    if (status == TB_OK) status = link_out_of(l, m.crossing, &out);
    if (status != TB_OK || out == NULL) return status;
    status = tb_crossing_start(&out->core);
    if (status != TB_OK) return status;
    take_taken(l);
    tb_hedge_started(&l->hedge, tb_clock_now(), m.crossing);
    tb_log(TB_LOG_INFO, "crossing.begun",
           "peer=%s model=%s number=%llu held_chunks=%llu chunks=%llu pushed=%d", l->label.text,
           out->offer->key.model.text, (unsigned long long)out->offer->key.number,
           (unsigned long long)out->core.peer_held, (unsigned long long)out->core.chunks, out->core.pushed);
    out_progress(l, out);
    return TB_OK;
}

enum tb_status link_on_stop(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_stop m;
    struct out *out = NULL;
    enum tb_status status = tb_frame_stop_decode(&f->payload, &m);
    if (status == TB_OK) status = link_out_of(l, m.crossing, &out);
    if (status == TB_OK && out != NULL) out_free(l, out);
    return status;
}

static bool is_rotten(const struct tb_place *place, uint32_t chunk)
{
    uint32_t bytes = 0;
    if (!tb_place_held(place, chunk)) return false;
    const uint8_t *at = tb_place_chunk(place, chunk, &bytes);
    const struct tb_digest digest = tb_digest_of(at, bytes);
    return !tb_digest_equal(&digest, &place->manifest->digests[chunk]);
}

/* P10: counted each time, told once a crossing. */
static void out_no_base(struct link *l, struct out *out)
{
    l->stats.chunks_no_base++;
    if (out->no_base_told) return;
    out->no_base_told = true;
    tb_log(TB_LOG_WARN, "crossing.no_base", "peer=%s model=%s number=%llu by=peer action=send_whole",
           l->label.text, out->offer->key.model.text, (unsigned long long)out->offer->key.number);
}

/* P1: the peer decoded it, on the base that both hold, and it is not the chunk. It may be of a rank, and nobody looked at it here: no
 * other peer gets it. P7: only a chunk that went so; of others a peer can say nothing. */
static void object_bad(const struct link *l, const struct out *out, const struct tb_frame_refused *m)
{
    if (out->base == NULL || l->links->options.objects == NULL) return;
    const struct tb_object_name name =
        tb_stream_object_name(out->offer->share, out->base, m->shard, m->chunk);
    tb_objects_bad(l->links->options.objects, &name);
}

/* The chunk did not land, and goes again as any other: a second way of it that waits for a stream is taken back first. A stream that
 * took it may be ahead of us. */
static void out_recall(struct link *l, struct out *out, const struct tb_frame_refused *m)
{
    struct tb_parcel parcel;
    if (tb_feed_recall(&l->feed, m, &parcel)) {
        tb_crossing_unqueued(&out->core, &parcel);
        tb_hedge_unqueued(&l->hedge, m->crossing, &parcel);
    }
    take_taken(l);
}

enum tb_status link_on_refused(struct link *l, struct tb_wire_frame *f)
{
    struct tb_frame_refused m;
    struct out *out = NULL;
    uint32_t times = 0;
    enum tb_status status = tb_frame_refused_decode(&f->payload, &m);
    const uint8_t most = l->protocol < TB_LINK_PROTOCOL_BASES ? TB_REFUSAL_LOST : TB_REFUSAL_NO_BASE;
    if (status == TB_OK && (m.why < TB_REFUSAL_DIGEST || m.why > most)) return TB_PEER_GARBLED;
    if (status == TB_OK) status = link_out_of(l, m.crossing, &out);
    if (status != TB_OK || out == NULL) return status;
    if (m.why == TB_REFUSAL_NO_BASE && !out->based) return TB_PEER_GARBLED;
    out_recall(l, out, &m);
    const bool on_base = tb_crossing_on_base(&out->core, m.shard, m.chunk);
    status = tb_crossing_refused(&out->core, &m, &times);
    if (status == TB_OK) tb_hedge_refused(&l->hedge, &m, &out->core);
    if (status == TB_OK && m.why == TB_REFUSAL_NO_BASE) out_no_base(l, out);
    if (status != TB_OK || m.why == TB_REFUSAL_LOST || m.why == TB_REFUSAL_NO_BASE) return status;
    l->stats.chunks_refused++;
    if (on_base) object_bad(l, out, &m);
    const struct tb_links_bad_chunk bad = {.uid = out->offer->key.uid,
                                           .shard = m.shard,
                                           .chunk = m.chunk,
                                           .times = times,
                                           .ours = true,
                                           .rotten = is_rotten(&out->offer->share->places[m.shard], m.chunk)};
    const struct tb_links_options *o = &l->links->options;
    if (o->ops->on_chunk_bad != NULL) o->ops->on_chunk_bad(o->user, l->index, &bad);
    return TB_OK;
}

void link_out_stream_gone(struct link *l, uint32_t slot)
{
    for (struct out *out = l->outs; out != NULL; out = out->next)
        (void)tb_crossing_stream_gone(&out->core, slot);
    tb_hedge_stream_gone(&l->hedge, slot);
}

static bool push(struct link *l, const struct tb_feed_parcel *p)
{
    tb_share_ref(p->share);
    if (p->base != NULL) tb_share_ref(p->base);
    const bool fits = tb_feed_push(&l->feed, p);
    TB_ASSERT(fits); /* only the main loop pushes, and it looked */
    return true;
}

/* P6: what is late on its stream goes again by another, before anything new. */
static bool hedge(struct link *l, struct out *out, tb_time_ns now)
{
    struct tb_hedge_again again;
    bool pushed = false;
    while (tb_feed_ready(&l->feed) < TB_FEED_READY_MAX &&
           tb_hedge_next(&l->hedge, now, out->crossing, &out->core, &again)) {
        const struct tb_feed_parcel p = {.share = out->offer->share,
                                         .base = out->base,
                                         .crossing = out->crossing,
                                         .parcel = again.parcel,
                                         .again = true,
                                         .avoid = again.avoid};
        tb_crossing_again(&out->core, &p.parcel);
        pushed = push(l, &p);
    }
    return pushed;
}

/* P6: a model whose steps cross as a hundredth does not pay for the whole of them. */
static uint64_t owes(struct out *out, uint64_t bytes)
{
    struct tb_sent_sum sum;
    tb_sent_look(out->offer->share->sent, &sum);
    return tb_fair_owes(&out->bill, bytes, sum.raw_bytes, sum.bytes);
}

/* Objects are sparse differences; a link that would not take them does not wait for them. */
static bool takes_objects(struct link *l)
{
    struct tb_choice choice;
    const struct out *out = l->links->options.objects != NULL ? l->outs : NULL;
    while (out != NULL && out->base == NULL)
        out = out->next;
    if (out == NULL) return false;
    tb_feed_choice(&l->feed, &choice);
    const struct tb_choice_pace any = {.classes = 0}; /* whether, not in how many */
    return tb_choice_classes(&choice, &any) > 0;
}

/* Chunks whose difference to the peer's base its publisher, or another link, is making go when that is done: to make it here as
 * well would take a core twice, and be no sooner. */
static void await_objects(const struct link *l, struct out *out, bool takes, tb_time_ns now)
{
    struct tb_objects *objects = l->links->options.objects;
    const struct tb_share *share = out->offer->share;
    for (uint32_t s = 0; objects != NULL && s < share->shard_count; s++) {
        uint64_t *wait = out->core.shards[s].wait;
        const struct tb_object_name name =
            tb_stream_object_name(share, out->base != NULL ? out->base : share, s, 0);
        if (takes && out->base != NULL && tb_objects_awaited(objects, &name, now, wait)) continue;
        memset(wait, 0, TB_BITMAP_WORDS(share->places[s].manifest->chunk_count) * sizeof *wait);
    }
}

/* P7: who may not take it after all gets no more of it than that, by what went so far, and nothing whole. */
static bool far_ahead(const struct out *out)
{
    struct tb_sent_sum sum;
    if (out->core.started) return false;
    if (out->base == NULL) return true;
    tb_sent_look(out->offer->share->sent, &sum);
    return tb_fair_handed(&out->bill, sum.raw_bytes, sum.bytes) >= AHEAD_BYTES;
}

/* The next parcel of the model whose turn it is; those that have nothing to send now are passed over. */
static bool next_parcel(struct link *l, struct tb_feed_parcel *p_out)
{
    uint32_t silent = 0;
    for (uint32_t flow; (flow = tb_fair_next(&l->fair, silent)) != TB_FAIR_NONE; silent |= 1u << flow) {
        for (struct out *out = l->outs; out != NULL; out = out->next) {
            if (out->flow != flow || far_ahead(out) || !tb_crossing_next(&out->core, &p_out->parcel))
                continue;
            p_out->share = out->offer->share;
            p_out->base = out->base;
            p_out->crossing = out->crossing;
            tb_fair_spend(&l->fair, flow, owes(out, p_out->parcel.bytes));
            return true;
        }
    }
    return false;
}

/* Fills the feed: two parcels a stream, so a stream finds one when it comes back and none waits long on a
 * slow one. Whether a chunk fits into the day's bytes its stream sees, which knows what it comes to; once one does not, no
 * more are handed out. */
static bool refill(struct link *l, tb_time_ns now)
{
    const uint32_t target = l->usable * 2 < TB_FEED_READY_MAX ? l->usable * 2 : TB_FEED_READY_MAX;
    uint32_t ready = tb_feed_ready(&l->feed);
    const bool before = l->spent, spent = l->spent = tb_feed_spent(&l->feed, NULL);
    struct tb_feed_parcel p = {0};
    bool pushed = false;
    const bool takes = takes_objects(l);
    if (before && !spent) links_heed(l->links); /* streams have parcels in hand */
    for (struct out *out = l->outs; out != NULL; out = out->next)
        await_objects(l, out, takes, now);
    while (!spent && ready < target && next_parcel(l, &p)) {
        pushed = push(l, &p);
        ready++;
    }
    for (struct out *out = l->outs; out != NULL && !spent; out = out->next)
        pushed |= out->core.started && hedge(l, out, now); /* of one that is not, nothing is late */
    l->queued = tb_feed_ready(&l->feed);
    l->full = l->full && l->queued > 0 && !spent;
    return pushed;
}

bool link_slot_idle(const struct link *l, uint32_t slot)
{
    for (uint32_t i = 0; i < l->hedge.way_count; i++)
        if (l->hedge.ways[i].slot == slot) return false;
    return true;
}

/* ---- landing ---- */

static struct in *in_find(const struct link *l, uint32_t crossing)
{
    struct in *in = l->ins;
    while (in != NULL && (crossing == 0 || in->crossing != crossing))
        in = in->next;
    return in;
}

struct in *link_in_of(const struct link *l, const struct tb_id *uid)
{
    struct in *in = l->ins;
    while (in != NULL && !tb_id_equal(&in->key.uid, uid))
        in = in->next;
    return in;
}

/* No stream begins to land a chunk of it any more. */
static void unlist(struct link *l, struct in *in)
{
    if (in->crossing != 0) tb_feed_landing_remove(&l->feed, in->crossing);
    if (in->draining != 0) tb_feed_landing_remove(&l->feed, in->draining);
    in->draining = 0;
}

void link_in_stop(struct link *l, struct in *in)
{
    unlist(l, in);
    if (in->crossing != 0) LINK_SEND(l, TB_FRAME_STOP, tb_frame_stop, LINK_SMALL, .crossing = in->crossing);
    in->crossing = 0;
    in->base = NULL;
}

void link_base_gone(struct link *l, struct tb_share *base)
{
    for (struct out *out = l->outs; out != NULL; out = out->next)
        if (out->base == base) out->base = NULL;
    for (struct in *in = l->ins; in != NULL; in = in->next)
        if (in->base == base) in->base = NULL;
    tb_feed_base_gone(&l->feed, base);
}

bool link_base_used(const struct link *l, const struct tb_share *base)
{
    bool used = false;
    for (const struct out *out = l->outs; out != NULL; out = out->next)
        used |= out->base == base;
    for (const struct in *in = l->ins; in != NULL; in = in->next)
        used |= in->base == base;
    return used;
}

void link_in_free(struct link *l, struct in *in)
{
    struct in **at = &l->ins;
    while (*at != in)
        at = &(*at)->next;
    *at = in->next;
    tb_free(in->memory);
    tb_free(in);
}

static bool all_held(const struct in *in)
{
    for (uint32_t s = 0; s < in->share->shard_count; s++)
        if (!tb_place_whole(&in->share->places[s])) return false;
    return true;
}

/* P6: one that failed begins anew, in the same places and with what is held there; else a chunk that came wrong three times
 * would keep its version, and all that wait behind it, from this peer for ever. */
static enum tb_status land_again(struct link *l, struct in *in)
{
    if (!in->finished || all_held(in)) return TB_DONE_BEFORE;
    tb_landing_init(&in->core, in->share->places, in->share->shard_count, in->memory);
    in->finished = false;
    links_busy(l->links);
    return TB_OK;
}

enum tb_status tb_links_land(struct tb_links *ls, uint32_t peer, const struct tb_version_key *key,
                             const struct tb_place *places)
{
    struct link *l = &ls->links[peer];
    uint32_t count = 0;
    for (const struct in *i = l->ins; i != NULL; i = i->next)
        count++;
    struct in *known = link_in_of(l, &key->uid);
    if (known != NULL) return land_again(l, known);
    if (count >= TB_LINKS_LANDINGS_MAX) return TB_SITE_NOMEM;
    struct in *in = tb_calloc(1, sizeof *in);
    if (in == NULL) return TB_SITE_NOMEM;
    in->share = tb_share_new(&key->uid, places, key->shard_count, &ls->wake);
    if (in->share == NULL) goto undo_in;
    in->memory = tb_malloc(tb_landing_bytes_for(places, key->shard_count));
    if (in->memory == NULL) goto undo_share;
    in->key = *key;
    tb_landing_init(&in->core, in->share->places, key->shard_count, in->memory);
    struct in **at = &l->ins;
    while (*at != NULL)
        at = &(*at)->next;
    *at = in;
    links_busy(ls);
    return TB_OK;

undo_share:
    tb_share_free(in->share);
undo_in:
    tb_free(in);
    return TB_SITE_NOMEM;
}

static void in_end(struct link *l, struct in *in, enum tb_status why)
{
    const struct tb_links_options *o = &l->links->options;
    const struct tb_version_key key = in->key;
    if (why != TB_OK)
        link_in_stop(l, in);
    else
        unlist(l, in); /* the peer knows by HELD that it is over */
    in->crossing = 0;
    in->base = NULL;
    in->finished = true;
    if (why == TB_OK && o->ops->on_landed != NULL) o->ops->on_landed(o->user, l->index, &key);
    if (why != TB_OK && o->ops->on_failed != NULL) o->ops->on_failed(o->user, l->index, &key.uid, why);
}

void link_in_fail(struct link *l, const struct tb_id *uid, enum tb_status why)
{
    struct in *in = link_in_of(l, uid);
    if (in != NULL && !in->finished) in_end(l, in, why);
}

static void send_held(struct link *l, const struct in *in, uint32_t shard, const struct tb_held_word *words,
                      uint32_t count)
{
    const uint32_t bytes = count * TB_HELD_WORD_BYTES;
    struct tb_writer *w = link_begin(l, TB_FRAME_HELD, LINK_SMALL + bytes);
    if (w == NULL) return;
    tb_write_u32(w, in->crossing); /* as tb_frame_held, whose span is written in place */
    tb_write_u32(w, shard);
    tb_write_u32(w, bytes);
    tb_held_words_encode(words, count, w);
    link_end(l);
}

static bool tell_differences(struct link *l, struct in *in, tb_time_ns now)
{
    static _Thread_local struct tb_held_word words[HELD_WORDS_MAX];
    uint32_t shard = 0, count = 0;
    bool any = false;
    while ((count = tb_landing_differences(&in->core, &shard, words, HELD_WORDS_MAX)) > 0) {
        send_held(l, in, shard, words, count);
        any = true;
    }
    if (any) tb_landing_told(&in->core, now);
    return any;
}

bool link_layouts_meet(const struct tb_share *a, const struct tb_share *b)
{
    for (uint32_t s = 0; s < a->shard_count && s < b->shard_count; s++)
        if (tb_digest_equal(&a->places[s].manifest->layout.id, &b->places[s].manifest->layout.id))
            return true;
    return false;
}

/* The newest version that is whole here and that the peer says it serves too. */
static struct tb_share *choose_base(const struct link *l, const struct in *in)
{
    const struct offer *best = NULL;
    if (l->protocol < TB_LINK_PROTOCOL_BASES) return NULL;
    for (const struct offer *o = l->links->offers; o != NULL; o = o->next) {
        if (!o->whole || tb_id_equal(&o->key.uid, &in->key.uid)) continue;
        if (!tb_name_equal(&o->key.model, &in->key.model) || link_announced(l, &o->key.uid) == NULL) continue;
        if (best != NULL && tb_version_key_compare(&o->key, &best->key) < 0) continue;
        if (link_layouts_meet(in->share, o->share)) best = o;
    }
    return best != NULL ? best->share : NULL;
}

static void copies_free(struct tb_stream_copy *copies)
{
    while (copies != NULL) {
        struct tb_stream_copy *copy = copies;
        copies = copy->next;
        tb_stream_copy_free(copy);
    }
}

/* One copy for each loop, or none: a part of the same chunks that nobody makes would never come. */
static struct tb_stream_copy *copies_new(const struct link *l, const struct in *in)
{
    const struct tb_links *ls = l->links;
    struct tb_stream_copy *copies = NULL;
    for (uint32_t part = 0; part < ls->loop_count; part++) {
        struct tb_stream_copy *copy = tb_malloc(sizeof *copy);
        if (copy == NULL) {
            copies_free(copies);
            return NULL;
        }
        *copy = (struct tb_stream_copy){.next = copies,
                                        .share = in->share,
                                        .base = in->base,
                                        .trust = {ls->options.ops->base_good, ls->options.user},
                                        .part = part,
                                        .parts = ls->loop_count,
                                        .chunk = part};
        tb_share_ref(copy->share);
        tb_share_ref(copy->base);
        copies = copy;
    }
    return copies;
}

/* What is the same in the base is made here, by all loops. */
static void copies_begin(struct link *l, const struct in *in, struct tb_stream_copy *copies)
{
    while (copies != NULL) {
        struct tb_stream_copy *copy = copies;
        copies = copy->next;
        copy->feed = &l->feed;
        copy->crossing = in->crossing;
        tb_stream_loop_copy(l->links->loops[copy->part], copy);
    }
}

static void say_want(struct link *l, const struct in *in)
{
    LINK_SEND(l, TB_FRAME_WANT, tb_frame_want, LINK_SMALL, .crossing = in->crossing, .uid = in->key.uid);
    if (in->base != NULL)
        LINK_SEND(l, TB_FRAME_BASE, tb_frame_base, LINK_SMALL, .crossing = in->crossing,
                  .uid = in->base->uid);
}

/* WANT, the base, all that is held, START. The first two were said before it was there, by EXPECT, where it comes pushed. */
static void in_begin(struct link *l, struct in *in, tb_time_ns now)
{
    tb_turn_begin(&in->turn, now);
    unlist(l, in);
    in->base = choose_base(l, in);
    struct tb_stream_copy *copies = in->base != NULL ? copies_new(l, in) : NULL;
    if (copies == NULL) in->base = NULL;
    const uint32_t pushed = link_push_take(l, in);
    in->crossing = tb_feed_landing_add(&l->feed, pushed, in->share, in->base);
    if (in->crossing == 0) {
        if (pushed != 0) LINK_SEND(l, TB_FRAME_STOP, tb_frame_stop, LINK_SMALL, .crossing = pushed);
        if (pushed != 0) links_heed(l->links);
        in->base = NULL;
        copies_free(copies);
        return;
    }
    tb_landing_rewind(&in->core);
    if (pushed == 0) say_want(l, in);
    link_share_begin(l, in, now);
    copies_begin(l, in, copies);
    (void)tell_differences(l, in, now);
    tb_landing_told(&in->core, now);
    LINK_SEND(l, TB_FRAME_START, tb_frame_start, LINK_SMALL, .crossing = in->crossing);
    if (pushed != 0) links_heed(l->links); /* what waited for it lands */
}

static void refuse(struct link *l, const struct in *in, const struct tb_landing_chunk *chunk,
                   enum tb_refusal why)
{
    /* Held since, by another way, and told: to refuse it now would break the protocol. */
    if (!link_is_up(l) || tb_landing_knows(&in->core, chunk->shard, chunk->chunk)) return;
    LINK_SEND(l, TB_FRAME_REFUSED, tb_frame_refused, LINK_SMALL, .crossing = in->crossing,
              .shard = chunk->shard, .chunk = chunk->chunk, .why = (uint8_t)why);
}

/* P1: a chunk with a wrong digest was not landed. It is asked for again, but not for ever. */
static void take_bad(struct link *l, struct in *in, const struct tb_note *n)
{
    const struct tb_links_options *o = &l->links->options;
    const struct tb_landing_chunk chunk = {n->shard, n->chunk};
    const struct tb_links_bad_chunk bad = {.uid = in->key.uid,
                                           .shard = n->shard,
                                           .chunk = n->chunk,
                                           .times = tb_landing_bad(&in->core, n->shard, n->chunk)};
    const uint32_t crossing = in->crossing;
    refuse(l, in, &chunk, n->why);
    if (o->ops->on_chunk_bad != NULL) o->ops->on_chunk_bad(o->user, l->index, &bad);
    in = in_find(l, crossing); /* the daemon may have ended it */
    if (in != NULL && bad.times >= TB_LINKS_REFUSALS_MAX) in_end(l, in, TB_CHUNK_DIGEST);
}

/* P10: the base went, or a chunk of it failed its re-verification, which the arena has told. */
static void take_no_base(struct link *l, struct in *in, const struct tb_landing_chunk *chunk)
{
    l->stats.chunks_no_base++;
    if (!in->no_base_told)
        tb_log(TB_LOG_WARN, "crossing.no_base", "peer=%s model=%s number=%llu by=us action=ask_whole",
               l->label.text, in->key.model.text, (unsigned long long)in->key.number);
    in->no_base_told = true;
    refuse(l, in, chunk, TB_REFUSAL_NO_BASE);
}

static void take_unsent(struct link *l, const struct tb_note *n)
{
    uint32_t times = 0;
    struct out *out = out_find(l, n->crossing);
    const struct tb_frame_refused lost = {
        .crossing = n->crossing, .shard = n->shard, .chunk = n->chunk, .why = TB_REFUSAL_LOST};
    if (out == NULL) return;
    out_recall(l, out, &lost);
    if (tb_crossing_refused(&out->core, &lost, &times) == TB_OK)
        tb_hedge_refused(&l->hedge, &lost, &out->core);
}

static void take_note(struct link *l, const struct tb_note *n)
{
    const struct tb_landing_chunk chunk = {n->shard, n->chunk};
    if (n->kind == TB_NOTE_UNSENT) {
        take_unsent(l, n);
        return;
    }
    struct in *in = in_find(l, n->crossing);
    if (in == NULL) return;
    if (n->kind == TB_NOTE_BAD && n->why == TB_REFUSAL_NO_BASE)
        take_no_base(l, in, &chunk);
    else if (n->kind == TB_NOTE_BAD)
        take_bad(l, in, n);
    else if (!tb_landing_dropped(&in->core, n->shard, n->chunk))
        refuse(l, in, &chunk, TB_REFUSAL_LOST);
}

void link_take_notes(struct link *l)
{
    static _Thread_local struct tb_note notes[TB_FEED_NOTES_MAX];
    take_taken(l);
    const uint32_t count = tb_feed_collect_notes(&l->feed, notes);
    for (uint32_t i = 0; i < count; i++)
        take_note(l, &notes[i]);
}

/* One landing's turn. True: it ended, and the list may have changed. */
static bool in_tick(struct link *l, struct in *in, tb_time_ns now)
{
    struct tb_landing_chunk chunk;
    if (in->finished) return false;
    if (in->crossing == 0) {
        if (all_held(in)) { /* by another way */
            in_end(l, in, TB_OK);
            return true;
        }
        /* After a cut, what the old streams still bring is told first: it is not sent again (P5). */
        if (!link_is_up(l) || link_streams_old(l) || link_announced(l, &in->key.uid) == NULL) return false;
        if (!link_may_begin(l, in) && !link_take_turn(l, in, now)) return false;
        in_begin(l, in, now);
        if (in->crossing == 0) return false;
    }
    while (tb_landing_again(&in->core, &chunk))
        refuse(l, in, &chunk, TB_REFUSAL_LOST);
    if (tb_landing_due(&in->core, now)) (void)tell_differences(l, in, now);
    tb_turn_came(&in->turn, in->core.told_count + atomic_load(&in->share->received_bytes), now);
    if (in->core.lost) { /* a held chunk failed a re-verification: what was told is not true any more */
        link_in_stop(l, in);
        return false;
    }
    if (!tb_landing_whole(&in->core)) return false;
    in_end(l, in, TB_OK);
    return true;
}

void link_tell_held(struct link *l, tb_time_ns now)
{
    for (struct in *in = l->ins; in != NULL && link_is_up(l); in = in->next)
        if (in->crossing != 0) (void)tell_differences(l, in, now);
}

void link_move_tick(struct link *l, tb_time_ns now)
{
    struct in *in = l->ins;
    if (tb_feed_gifts_settle(&l->feed)) links_heed(l->links); /* before what was dropped is asked for again */
    while (in != NULL)
        in = in_tick(l, in, now) ? l->ins : in->next;
    link_pushes_tick(l, now);
    link_outs_have(l, now);
    if (!link_is_up(l)) return;
    if (refill(l, now)) links_fed(l->links);
    link_spent_tell(l);
}

void link_move_down(struct link *l)
{
    link_outs_drop(l, NULL);
    for (struct in *in = l->ins; in != NULL; in = in->next) {
        if (in->crossing != 0)
            in->draining = in->crossing; /* stays listed: what had arrived is landed (P5) */
        in->crossing = 0;
        in->base = NULL;
    }
}

bool link_moves(const struct link *l)
{
    bool moves = l->outs != NULL || l->serves != NULL || l->asks != NULL || l->pushed != NULL;
    for (const struct in *in = l->ins; in != NULL; in = in->next)
        moves |= !in->finished;
    return moves;
}
