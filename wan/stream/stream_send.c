/* stream_send.c - a stream takes parcels from its link's feed and writes their chunks. */
#include "wan/stream/stream_send.h"
#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "base/net/wire.h"
#include "wan/send/encoded_chunks_chain.h"
#include "wan/send/feed.h"
#include "wan/send/feed_choice.h"
#include "wan/send/feed_limits.h"
#include "wan/send/feed_parcels.h"
#include "wan/stream/stream.h"
#include "wan/stream/stream_copy.h"
#include "wan/stream/stream_life.h"
#include "wan/stream/stream_loop.h"

bool tb_stream_sending(const struct tb_stream *s)
{
    return s->send.stage_sent < s->send.stage_used || s->send.body_left > 0;
}

static void drop_parcel(struct tb_stream_send *t)
{
    if (!t->have_parcel) return;
    TB_ASSERT(t->parcel.share != NULL && t->sent_chunks <= t->parcel.parcel.count);
    if (t->parcel.base != NULL) tb_shared_places_unref(t->parcel.base);
    tb_shared_places_unref(t->parcel.share);
    t->wanted += tb_time_since(t->wanted_at, tb_clock_now());
    t->have_parcel = false;
}

static void drop_encoded(struct tb_stream *s)
{
    if (s->send.kept != NULL) tb_encoded_chunk_unref(s->plan.encoded_chunks, s->send.kept);
    s->send.kept = NULL;
}

void tb_stream_send_fini(struct tb_stream *s)
{
    const struct tb_stream_send *t = &s->send;
    if (!t->control && tb_stream_sending(s))
        tb_feed_unspend(s->plan.feed, t->stage_used - t->stage_sent + (uint64_t)t->body_left);
    drop_encoded(s);
    drop_parcel(&s->send);
    tb_free(s->send.encoded);
    s->send.encoded = NULL;
}

void tb_stream_send_heed(struct tb_stream *s)
{
    struct tb_stream_send *t = &s->send;
    if (!t->have_parcel) return;
    if (t->parcel.base != NULL && tb_shared_places_revoked(t->parcel.base)) {
        tb_shared_places_unref(t->parcel.base);
        t->parcel.base = NULL;
    }
    if (!tb_shared_places_revoked(t->parcel.share)) return;
    if (tb_stream_sending(s))
        tb_stream_close(s, TB_CANCELLED); /* half a frame can not be taken back; a new stream is cheap */
    else
        drop_parcel(t);
}

void tb_stream_send_control(struct tb_stream *s, enum tb_frame_type type)
{
    TB_ASSERT(!tb_stream_sending(s)); /* it would be written over */
    TB_ASSERT(type == TB_FRAME_BIND || type == TB_FRAME_BOUND);
    struct tb_stream_send *t = &s->send;
    struct tb_writer w;
    tb_writer_init(&w, t->stage, sizeof t->stage);
    tb_write_u32(&w, 0);
    tb_write_u16(&w, (uint16_t)type);
    tb_write_u16(&w, 0);
    tb_write_u64(&w, 0);
    if (type == TB_FRAME_BIND)
        tb_frame_bind_encode(&(struct tb_frame_bind){.session = s->plan.session, .stream = s->plan.number},
                             &w);
    else
        tb_frame_bound_encode(&(struct tb_frame_bound){.stream = s->plan.number}, &w);
    tb_write_u32_at(&w, 0, (uint32_t)(w.used - TB_WIRE_HEADER_BYTES));
    TB_ASSERT(!w.full);
    t->stage_used = (uint32_t)w.used;
    t->stage_sent = 0;
    t->control = true;
    t->moved_at = tb_clock_now();
    tb_chan_want_write(s->chan, true);
}

static bool room(uint8_t **memory, size_t *cap, size_t bytes)
{
    if (*cap >= bytes) return true;
    tb_free(*memory);
    *memory = tb_malloc(bytes);
    *cap = *memory != NULL ? bytes : 0;
    return *memory != NULL;
}

/* The input of a codec for the chunk that stands in `frame`. */
static struct tb_codec_input input_of(const struct tb_stream *s, const uint8_t *raw,
                                      const struct tb_chunk_frame *frame)
{
    const struct tb_feed_parcel *p = &s->send.parcel;
    const struct tb_manifest *m = p->share->places[frame->shard].manifest;
    struct tb_codec_input in = {.bytes = raw,
                                .count = frame->raw_bytes,
                                .dtype = tb_layout_dtype_at(&m->layout, m->chunks[frame->chunk].offset)};
    if (!p->parcel.plain)
        in.base = tb_stream_base_chunk(&s->plan.trust, p->share, p->base, frame->shard, frame->chunk);
    return in;
}

static enum tb_status encode_as(struct tb_stream *s, enum tb_choice_way way, struct tb_codec_input *in,
                                struct tb_codec_coded *coded)
{
    struct tb_stream_send *t = &s->send;
    const struct tb_codec_form form = tb_choice_form(way, &in->classes);
    if (!room(&t->encoded, &t->encoded_cap, tb_codec_bound(form.id, in->count))) return TB_SITE_NOMEM;
    const struct tb_codec_room out = {t->encoded, t->encoded_cap};
    return tb_codec_encode(tb_stream_loop_codec(s->loop), form, in, out, coded);
}

/* A delta on the same base that its publisher or another link made, or brought; unless another way
 * is sooner there. */
static bool find_encoded(struct tb_stream *s, const struct tb_encoded_chunk_name *name,
                         const struct tb_codec_input *in, struct tb_codec_coded *coded)
{
    struct tb_stream_send *t = &s->send;
    TB_ASSERT(t->kept == NULL); /* that of the chunk before was given back */
    t->kept = tb_encoded_chunks_find(s->plan.encoded_chunks, name);
    if (t->kept == NULL) return false;
    *coded = tb_encoded_chunk_coded(t->kept);
    const struct tb_choice_made made = {.kind = tb_choice_kind_of(in),
                                        .form = coded->form,
                                        .classes = tb_codec_classes(coded),
                                        .raw_bytes = (uint32_t)in->count,
                                        .wire_bytes = (uint32_t)coded->count,
                                        .elsewhere =
                                            tb_encoded_chunk_from(t->kept) != TB_ENCODED_CHUNK_MADE_HERE};
    if (tb_feed_takes(s->plan.feed, &made)) return true;
    drop_encoded(s);
    return false;
}

/* The peer's base is not here, or not sound: chained deltas that were kept may lead from it. */
static bool chain_deltas(struct tb_stream *s, const struct tb_encoded_chunk_name *name,
                         const struct tb_codec_input *in, struct tb_codec_coded *coded)
{
    struct tb_stream_send *t = &s->send;
    struct tb_encoded_chunk *encoded_chunks[TB_CODEC_CHAINED_MAX];
    struct tb_codec_coded parts[TB_CODEC_CHAINED_MAX];
    const unsigned count = tb_encoded_chunks_chain(s->plan.encoded_chunks, name, encoded_chunks);
    for (unsigned i = 0; i < count; i++)
        parts[i] = tb_encoded_chunk_coded(encoded_chunks[i]);
    const size_t bytes = tb_codec_chain_bytes(parts, count);
    const bool chained =
        bytes > 0 && bytes < in->count && room(&t->encoded, &t->encoded_cap, bytes) &&
        tb_codec_chain(parts, count, (struct tb_codec_room){t->encoded, bytes}, coded) == TB_OK;
    for (unsigned i = 0; i < count; i++)
        tb_encoded_chunk_unref(s->plan.encoded_chunks, encoded_chunks[i]);
    if (!chained) return false;
    const struct tb_choice_made made = {.kind = tb_choice_kind_of(in),
                                        .form = coded->form,
                                        .classes = tb_codec_classes(coded),
                                        .raw_bytes = (uint32_t)in->count,
                                        .wire_bytes = (uint32_t)bytes};
    return tb_feed_chains(s->plan.feed, &made, tb_codec_deltas(coded));
}

/* Encodes the chunk in the way that is best now, and keeps a delta that others may want. False: it
 * goes raw. */
static bool make_encoded(struct tb_stream *s, const struct tb_encoded_chunk_name *name,
                         struct tb_codec_input *in, struct tb_codec_coded *coded)
{
    const struct tb_choice_ask ask = {tb_choice_kind_of(in), in->base != NULL};
    const enum tb_choice_way way = tb_feed_pick(s->plan.feed, &ask);
    if (way == TB_WAY_RAW) return false;
    const tb_time_ns began = tb_clock_now();
    if (encode_as(s, way, in, coded) != TB_OK || coded->count > in->count) return false;
    const struct tb_choice_sample sample = {.kind = ask.kind,
                                            .way = way,
                                            .raw_bytes = (uint32_t)in->count,
                                            .wire_bytes = (uint32_t)coded->count,
                                            .encode_ns = tb_time_since(began, tb_clock_now())};
    tb_feed_learn(s->plan.feed, &sample);
    TB_ASSERT(in->base != NULL || !coded->form.on_base);
    s->send.worked += in->count;
    const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_MADE_HERE, coded, tb_clock_now()};
    if (coded->form.on_base && s->plan.encoded_chunks != NULL)
        tb_encoded_chunks_put(s->plan.encoded_chunks, name, &news);
    return coded->form.id != TB_CODEC_RAW;
}

/* The chunk as it goes on the wire. Raw where encoding fails or does not pay: the bytes in the
 * place are always right. */
static const uint8_t *encode(struct tb_stream *s, const uint8_t *raw, struct tb_chunk_frame *frame)
{
    const struct tb_feed_parcel *p = &s->send.parcel;
    struct tb_codec_input in = input_of(s, raw, frame);
    struct tb_codec_coded coded = {{TB_CODEC_RAW, false}, raw, in.count};
    const bool may = p->base != NULL && !p->parcel.plain && s->plan.encoded_chunks != NULL;
    const struct tb_encoded_chunk_name name =
        tb_stream_encoded_name(p->share, may ? p->base : p->share, frame->shard, frame->chunk);
    const bool found =
        may && (in.base != NULL ? find_encoded(s, &name, &in, &coded) : chain_deltas(s, &name, &in, &coded));
    if (!found && !make_encoded(s, &name, &in, &coded))
        coded = (struct tb_codec_coded){{TB_CODEC_RAW, false}, raw, in.count};
    frame->form = coded.form;
    s->send.classes = tb_codec_classes(&coded);
    frame->wire_bytes = (uint32_t)coded.count;
    TB_ASSERT(frame->wire_bytes > 0 && frame->wire_bytes <= frame->raw_bytes);
    return coded.bytes;
}

/* Header and the beginning of the chunk into the stage; the rest is written from where it
 * stands. */
static void stage_chunk(struct tb_stream_send *t, const struct tb_chunk_frame *frame, const uint8_t *bytes)
{
    TB_ASSERT(t->stage_sent == t->stage_used && t->body_left == 0); /* the one before was written */
    struct tb_writer w;
    const uint32_t left = TB_STREAM_STAGE_BYTES - TB_CHUNK_FRAME_HEADER_BYTES;
    const uint32_t first = frame->wire_bytes < left ? frame->wire_bytes : left;
    tb_writer_init(&w, t->stage, sizeof t->stage);
    tb_chunk_frame_encode(frame, &w);
    tb_write_bytes(&w, bytes, first);
    TB_ASSERT(!w.full);
    t->stage_used = (uint32_t)w.used;
    t->stage_sent = 0;
    t->control = false;
    t->body = bytes + first;
    t->body_left = frame->wire_bytes - first;
}

static void count_sent(struct tb_stream *s, const struct tb_chunk_frame *frame)
{
    const struct tb_shared_places *share = s->send.parcel.share;
    struct tb_sent_chunk c = {.peer = s->plan.peer,
                              .chunk = frame->chunk,
                              .raw_bytes = frame->raw_bytes,
                              .frame_bytes = frame->wire_bytes + TB_CHUNK_FRAME_HEADER_BYTES,
                              .way = tb_choice_way_of(frame->form, s->send.classes)};
    for (uint32_t i = 0; i < frame->shard; i++)
        c.chunk += share->places[i].manifest->chunk_count;
    TB_ASSERT(share->sent != NULL); /* it is an offer */
    tb_sent_add(share->sent, &c);
    atomic_fetch_add_explicit(&s->raw_bytes, frame->raw_bytes, memory_order_relaxed);
    if (s->send.parcel.again)
        atomic_fetch_add_explicit(&s->hedged_bytes, c.frame_bytes, memory_order_relaxed);
    if (frame->form.on_base) atomic_fetch_add_explicit(&s->delta_chunks, 1, memory_order_relaxed);
}

/* Stages the next chunk of the parcel; the parcel goes with its last one. False: nothing was
 * staged. */
static bool next_chunk(struct tb_stream *s)
{
    TB_ASSERT(s->send.have_parcel && !tb_stream_sending(s));
    struct tb_stream_send *t = &s->send;
    const struct tb_feed_parcel *p = &t->parcel;
    const struct tb_place *place = &p->share->places[p->parcel.shard];
    if (t->sent_chunks == p->parcel.count || tb_shared_places_revoked(p->share)) {
        drop_parcel(t);
        return false;
    }
    const uint32_t k = p->parcel.first + t->sent_chunks++;
    if (!tb_place_held(place, k)) { /* it was, and failed a re-verification since */
        const struct tb_note note = {
            .kind = TB_NOTE_UNSENT, .crossing = p->crossing, .shard = p->parcel.shard, .chunk = k};
        if (!tb_feed_note(s->plan.feed, &note)) tb_stream_close(s, TB_SITE_NOMEM);
        tb_stream_loop_tell(s->loop);
        return false;
    }
    drop_encoded(s); /* of the chunk before */
    struct tb_chunk_frame frame = {.crossing = p->crossing, .shard = p->parcel.shard, .chunk = k};
    const uint8_t *raw = tb_place_chunk(place, k, &frame.raw_bytes);
    const uint8_t *bytes = encode(s, raw, &frame);
    if (!tb_feed_spend(s->plan.feed, frame.wire_bytes + TB_CHUNK_FRAME_HEADER_BYTES)) {
        t->sent_chunks--;
        return false;
    }
    stage_chunk(t, &frame, bytes);
    count_sent(s, &frame);
    return true;
}

/* No more under these keys, though nobody has brought a fresh stream: it ends, between two chunks,
 * and what dials brings another. */
static bool worn_out(struct tb_stream *s)
{
    if (tb_chan_records(s->chan) < 2 * s->plan.records_max) return false;
    tb_stream_close(s, TB_CANCELLED);
    return true;
}

static bool next_parcel(struct tb_stream *s)
{
    TB_ASSERT(!s->send.have_parcel);
    struct tb_stream_send *t = &s->send;
    if (worn_out(s)) return false;
    if (tb_feed_pop(s->plan.feed, s->plan.session_seq, s->plan.slot, tb_stream_loop_hungry(s->loop),
                    &t->parcel) != TB_OK)
        return false;
    t->have_parcel = true;
    t->sent_chunks = 0;
    t->wanted_at = t->moved_at = tb_clock_now();
    tb_stream_loop_tell(s->loop);
    return true;
}

/* Makes something to write. False: there is nothing, or the day's bytes are used up; the rest of a
 * parcel waits for more of them. */
static bool refill(struct tb_stream *s)
{
    while (!tb_stream_is_closing(s) && !tb_feed_spent(s->plan.feed, NULL)) {
        if (s->send.have_parcel) {
            if (next_chunk(s)) return true;
        } else if (!next_parcel(s)) {
            return false;
        }
    }
    return false;
}

static void account(struct tb_stream *s, size_t put)
{
    TB_ASSERT(put <= (s->send.stage_sent < s->send.stage_used
                          ? s->send.stage_used - s->send.stage_sent
                          : s->send.body_left)); /* no more was given to it */
    struct tb_stream_send *t = &s->send;
    if (t->stage_sent < t->stage_used)
        t->stage_sent += (uint32_t)put;
    else
        t->body += put, t->body_left -= (uint32_t)put;
    if (t->control) return;
    atomic_fetch_add_explicit(&s->bytes_sent, put, memory_order_relaxed);
    if (!tb_stream_sending(s)) atomic_fetch_add_explicit(&s->chunks_sent, 1, memory_order_relaxed);
}

/* How much of `want` may go now. 0: the loop looks again when it may. */
static uint32_t allowed(struct tb_stream *s, uint32_t want)
{
    TB_ASSERT(want > 0);
    struct tb_stream_send *t = &s->send;
    if (t->tried > 0 && t->tried <= want) return t->tried;
    if (t->control || (t->granted == 0 && !tb_feed_capped(s->plan.feed))) return want;
    if (t->granted == 0) t->granted = tb_feed_piece(s->plan.feed, want, &s->price, &t->grant_at);
    const tb_time_ns now = tb_clock_now();
    if (now >= t->grant_at) return t->granted < want ? t->granted : want;
    t->capped += tb_time_since(t->capped_to > now ? t->capped_to : now, t->grant_at);
    t->capped_to = t->grant_at;
    tb_stream_loop_wait(s->loop, t->grant_at);
    return 0;
}

static enum tb_status write_piece(struct tb_stream *s, size_t *put_out)
{
    TB_ASSERT(tb_stream_sending(s));
    struct tb_stream_send *t = &s->send;
    const bool staged = t->stage_sent < t->stage_used;
    const uint32_t bytes = allowed(s, staged ? t->stage_used - t->stage_sent : t->body_left);
    if (bytes == 0) return TB_AGAIN;
    const enum tb_status status =
        tb_chan_write(s->chan, staged ? t->stage + t->stage_sent : t->body, bytes, put_out);
    const uint32_t put = status == TB_OK ? (uint32_t)*put_out : 0;
    t->granted -= put < t->granted ? put : t->granted;
    t->tried = bytes - put;
    return status;
}

/* It may send, but not yet: that is no standstill. */
static bool waits_for_cap(const struct tb_stream *s)
{
    const struct tb_stream_send *t = &s->send;
    return t->granted > 0 && t->tried == 0 && !t->control && tb_clock_now() < t->grant_at;
}

void tb_stream_send_due(struct tb_stream *s, tb_time_ns now)
{
    const struct tb_stream_send *t = &s->send;
    if (tb_stream_is_closing(s) || t->granted == 0) return;
    if (now >= t->grant_at)
        tb_stream_send_more(s);
    else
        tb_stream_loop_wait(s->loop, t->grant_at);
}

struct tb_tcp_writer tb_stream_send_seen(struct tb_stream *s, tb_time_ns now, tb_time_ns time)
{
    struct tb_stream_send *t = &s->send;
    const bool waits = t->have_parcel && !tb_stream_sending(s);
    if (waits && tb_feed_spent(s->plan.feed, NULL)) t->capped += time;
    return (struct tb_tcp_writer){t->wanted + (t->have_parcel ? tb_time_since(t->wanted_at, now) : 0),
                                  t->capped};
}

static bool may_send_chunks(const struct tb_stream *s)
{
    return tb_stream_phase(s) == TB_STREAM_BOUND && !atomic_load_explicit(&s->ending, memory_order_acquire);
}

void tb_stream_send_more(struct tb_stream *s)
{
    struct tb_stream_send *t = &s->send;
    uint64_t spent = 0;
    bool moved = false;
    t->worked = 0;
    while (!tb_stream_is_closing(s)) {
        if (!tb_stream_sending(s) && !(may_send_chunks(s) && refill(s))) break;
        size_t put = 0;
        if (spent + t->worked >= TB_STREAM_TURN_BYTES) break;
        const bool stuck = write_piece(s, &put) != TB_OK;
        t->full = stuck && !waits_for_cap(s);
        if (stuck) break; /* full for now, or closed: on_closed will come */
        account(s, put);
        moved = true;
        spent += put;
    }
    if (moved) tb_stream_moved(s, &t->moved_at);
    if (moved && !tb_stream_is_closing(s)) tb_stream_busy(s, t->moved_at);
    if (!tb_stream_is_closing(s)) tb_chan_want_write(s->chan, tb_stream_sending(s) && !waits_for_cap(s));
}
