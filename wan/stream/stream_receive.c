/* stream_receive.c - a stream reads chunk frames and lands them: claim at the header, bytes into
 * the place, digest at the end. */
#include "wan/stream/stream_receive.h"
#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/layout/land_chunk.h"
#include "base/net/chan_bytes.h"
#include "base/net/wire.h"
#include "wan/send/feed.h"
#include "wan/send/feed_choice.h"
#include "wan/send/feed_gifts.h"
#include "wan/send/feed_landings.h"
#include "wan/send/inbound.h"
#include "wan/stream/stream.h"
#include "wan/stream/stream_copy.h"
#include "wan/stream/stream_life.h"
#include "wan/stream/stream_loop.h"
#include "wan/stream/stream_send.h"

#define BOUND_BYTES (TB_WIRE_HEADER_BYTES + 4u)
#define TURN_READS  128u /* a peer whose frames are small has no more of the loop than others (P7) */
_Static_assert(BOUND_BYTES <= TB_CHUNK_FRAME_HEADER_BYTES, "BOUND is read into the header's room");

bool tb_stream_receiving(const struct tb_stream *s)
{
    const struct tb_stream_receive *r = &s->receive;
    return r->reading == TB_READING_BOUND || r->reading > TB_READING_HEADER || r->got > 0;
}

static struct tb_place *place_of(const struct tb_stream_receive *r)
{
    return &r->share->places[r->frame.shard];
}

static void unclaim(struct tb_stream_receive *r)
{
    if (r->claimed) tb_place_unclaim(place_of(r), r->frame.chunk);
    r->claimed = false;
}

static void forget_share(struct tb_stream_receive *r)
{
    if (r->base != NULL) tb_shared_places_unref(r->base);
    if (r->share != NULL) tb_shared_places_unref(r->share);
    r->share = r->base = NULL;
    r->crossing = 0;
    r->on_base = r->foreign = false;
}

/* Revoked bases are let go of at once: what comes as a delta is then refused, and comes
 * whole. */
static void heed_base(struct tb_stream_receive *r)
{
    if (r->base == NULL || !tb_shared_places_revoked(r->base)) return;
    tb_shared_places_unref(r->base);
    r->base = NULL;
}

static void drop_spare(struct tb_stream_receive *r)
{
    tb_free(r->spare);
    r->spare = NULL;
}

void tb_stream_receive_fini(struct tb_stream *s)
{
    unclaim(&s->receive);
    forget_share(&s->receive);
    tb_room_free(&s->receive.encoded);
    drop_spare(&s->receive);
}

static void count(atomic_ullong *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* A note that does not fit ends the stream: whatever it brought and is not held is then sent
 * again. */
static void note(struct tb_stream *s, enum tb_note_kind kind, enum tb_refusal why)
{
    const struct tb_chunk_frame *f = &s->receive.frame;
    const struct tb_note n = {
        .kind = kind, .why = why, .crossing = f->crossing, .shard = f->shard, .chunk = f->chunk};
    if (!tb_feed_note(s->plan.feed, &n)) tb_stream_close(s, TB_SITE_NOMEM);
    tb_stream_loop_tell(s->loop);
}

static void next_header(struct tb_stream_receive *r)
{
    r->reading = TB_READING_HEADER;
    r->got = 0;
}

/* The answer to BIND. */
static enum tb_status take_bound(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    struct tb_reader reader;
    struct tb_frame_bound bound;
    tb_reader_init(&reader, r->header, BOUND_BYTES);
    const uint32_t bytes = tb_read_u32(&reader);
    const uint16_t type = tb_read_u16(&reader);
    const uint16_t zero = tb_read_u16(&reader);
    const uint64_t request = tb_read_u64(&reader);
    if (bytes != 4 || type != TB_FRAME_BOUND || zero != 0 || request != 0) return TB_PEER_GARBLED;
    if (tb_frame_bound_decode(&reader, &bound) != TB_OK || bound.stream != s->plan.number)
        return TB_PEER_GARBLED;
    /* Refused where nothing was asked: BIND is sent once the session is known. */
    if (!tb_stream_step(s, TB_STREAM_EVENT_ANSWERED)) return TB_PEER_GARBLED;
    next_header(r);
    tb_stream_loop_tell(s->loop);
    tb_stream_send_more(s);
    return TB_OK;
}

/* Makes r->share the one of the frame's crossing, or NULL for one that is over, or that may land
 * yet. Chunks of one crossing follow one another, so the feed is rarely asked. */
static enum tb_status find_share(struct tb_stream *s, bool *expected_out)
{
    struct tb_stream_receive *r = &s->receive;
    struct tb_feed_landing landing;
    *expected_out = false;
    if (r->share != NULL && tb_shared_places_revoked(r->share)) forget_share(r);
    if (r->share != NULL && r->crossing == r->frame.crossing) return TB_OK;
    forget_share(r);
    const bool known = tb_feed_landing(s->plan.feed, r->frame.crossing, &landing);
    r->share = landing.share;
    r->base = landing.base;
    r->on_base = landing.on_base;
    r->foreign = landing.foreign;
    r->crossing = landing.crossing;
    *expected_out = landing.expected;
    return known ? TB_OK : TB_PEER_GARBLED;
}

/* Where the encoded chunk is read to: of the size that our manifest says, not the peer. */
static enum tb_status read_encoded(struct tb_stream_receive *r)
{
    TB_ASSERT(r->frame.wire_bytes <= r->frame.raw_bytes);
    if (!tb_room_for(&r->encoded, r->frame.raw_bytes)) return TB_SITE_NOMEM;
    r->into = r->encoded.bytes;
    return TB_OK;
}

static void drop_duplicate(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    count(&s->chunks_duplicate);
    drop_spare(r);
    if (!tb_place_held(place_of(r), r->frame.chunk)) note(s, TB_NOTE_DROPPED, TB_REFUSAL_LOST);
}

/* Another stream is in the middle of this chunk, and slow, or it would not come a second time: the
 * bytes land beside the place, and the claim stays where it is until they are here. */
static enum tb_status read_beside(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    r->spare = tb_malloc(r->frame.raw_bytes); /* the size our manifest says */
    r->reading = r->spare != NULL ? TB_READING_SPARE : TB_READING_DROP;
    r->into = r->spare;
    if (r->spare == NULL) {
        drop_duplicate(s);
        return TB_OK;
    }
    if (r->frame.form.id == TB_CODEC_RAW) return TB_OK;
    return read_encoded(r);
}

static enum tb_status claim(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    struct tb_place *place = place_of(r);
    uint32_t bytes = 0;
    r->claimed = tb_place_claim(place, r->frame.chunk);
    if (!r->claimed && !tb_place_held(place, r->frame.chunk)) return read_beside(s);
    if (!r->claimed) {
        r->reading = TB_READING_DROP;
        drop_duplicate(s);
        return TB_OK;
    }
    if (r->frame.form.id == TB_CODEC_RAW) {
        r->reading = TB_READING_RAW;
        r->into = tb_place_chunk(place, r->frame.chunk, &bytes);
        return TB_OK;
    }
    r->reading = TB_READING_ENCODED;
    return read_encoded(r);
}

/* It overtook what says to which version it belongs, or that is not decided yet (link_push.c).
 * P7: nothing is kept for it, TCP pushes back. P6: the main loop decides in a bounded time, and
 * one that ends reads on. */
static bool park(struct tb_stream *s)
{
    if (atomic_load_explicit(&s->ending, memory_order_acquire)) return false;
    s->receive.reading = TB_READING_PARKED;
    tb_chan_want_read(s->chan, false);
    return true;
}

static enum tb_status begin_chunk(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    bool expected;
    const enum tb_status status = find_share(s, &expected);
    if (status != TB_OK || (expected && r->share == NULL && park(s))) return status;
    r->got = 0;
    if (r->share == NULL) {
        r->reading = TB_READING_DROP;
        return TB_OK;
    }
    atomic_fetch_add_explicit(&r->share->received_bytes, sizeof r->header, memory_order_relaxed);
    if (r->frame.form.on_base && !r->on_base) return TB_PEER_GARBLED; /* of which base? */
    const enum tb_status fits = tb_inbound_check(r->share->places, r->share->shard_count, &r->frame);
    return fits == TB_OK ? claim(s) : fits;
}

static enum tb_status take_header(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    struct tb_reader reader;
    tb_reader_init(&reader, r->header, sizeof r->header);
    const enum tb_status status = tb_chunk_frame_decode(&reader, s->plan.protocol, &r->frame);
    return status == TB_OK ? begin_chunk(s) : status;
}

/* Is it known by now? */
static void unpark(struct tb_stream *s)
{
    if (s->receive.reading != TB_READING_PARKED) return;
    const enum tb_status status = begin_chunk(s);
    if (status != TB_OK) tb_stream_close(s, status);
    if (tb_stream_is_closing(s) || s->receive.reading == TB_READING_PARKED) return;
    tb_chan_want_read(s->chan, true);
}

/* How fast the peer decodes is taken to be as fast as we do. */
static void learn(struct tb_stream *s, const struct tb_land *l)
{
    uint32_t bytes = 0;
    const struct tb_chunk_frame *f = &s->receive.frame;
    const struct tb_manifest *m = l->place->manifest;
    const struct tb_codec_input chunk = {
        .bytes = l->into != NULL ? l->into : tb_place_chunk(l->place, l->chunk, &bytes),
        .count = f->raw_bytes,
        .dtype = tb_layout_dtype_at(&m->layout, m->chunks[f->chunk].offset),
        .base = l->base};
    const struct tb_choice_sample sample = {.kind = tb_choice_kind_of(&chunk),
                                            .way = tb_choice_way_of(f->form, tb_codec_classes(l->encoded)),
                                            .raw_bytes = f->raw_bytes,
                                            .wire_bytes = f->wire_bytes,
                                            .decode_ns = l->decode_ns};
    tb_feed_learn(s->plan.feed, &sample);
}

static struct tb_codec_coded coded_of(const struct tb_stream_receive *r)
{
    return (struct tb_codec_coded){r->frame.form, r->encoded.bytes, r->frame.wire_bytes};
}

/* The chunk as it came, for land_chunk.h: in `spare` where another stream has the claim. */
static struct tb_land land_of(struct tb_stream *s, const struct tb_codec_coded *coded)
{
    struct tb_stream_receive *r = &s->receive;
    const struct tb_chunk_frame *f = &r->frame;
    struct tb_land l = {.place = place_of(r), .chunk = f->chunk, .foreign = r->foreign};
    if (f->form.id == TB_CODEC_RAW) {
        l.beside = r->spare;
        return l;
    }
    r->worked += f->raw_bytes;
    l.encoded = coded;
    l.codec = tb_stream_loop_codec(s->loop);
    l.into = r->spare;
    if (f->form.on_base) l.base = tb_stream_base_chunk(&s->plan.trust, r->share, r->base, f->shard, f->chunk);
    return l;
}

/* The chunk is not ours any more, and is asked for again. */
static void refuse(struct tb_stream *s, enum tb_status landed)
{
    enum tb_refusal why = TB_REFUSAL_CODEC;
    if (landed == TB_NOT_FOUND) why = TB_REFUSAL_NO_BASE;
    if (landed == TB_CHUNK_DIGEST) why = TB_REFUSAL_DIGEST;
    if (why != TB_REFUSAL_NO_BASE) count(&s->chunks_bad);
    note(s, TB_NOTE_BAD, why);
}

/* By place.h: the digest matched, and the chunk is not held yet. So a reader that looks for its
 * delta from now on finds this one. A relay forwards the delta as it came, to other sites and to
 * the workers of this one. */
static enum tb_status keep_encoded(void *user, const struct tb_place *place, uint32_t chunk,
                                   const struct tb_place_came *came)
{
    (void)place, (void)chunk, (void)came;
    struct tb_stream *s = user;
    const struct tb_stream_receive *r = &s->receive;
    const struct tb_encoded_chunk_name name =
        tb_stream_encoded_name(r->share, r->base, r->frame.shard, r->frame.chunk);
    const struct tb_codec_coded coded = coded_of(r);
    const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_OF_LINK, &coded, tb_clock_now()};
    tb_encoded_chunks_put(s->plan.encoded_chunks, &name, &news);
    return TB_OK;
}

static void land(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    const struct tb_codec_coded coded = coded_of(r);
    const struct tb_place_owner relay = {.keep = keep_encoded, .user = s};
    struct tb_land l = land_of(s, &coded);
    struct tb_place place = *l.place; /* the bits are shared */
    TB_ASSERT(r->claimed && r->spare == NULL && place.owner == NULL);
    if (r->frame.form.on_base && s->plan.encoded_chunks != NULL) place.owner = &relay;
    l.place = &place;
    r->claimed = false; /* landing ends the claim */
    const enum tb_status status = tb_land_chunk(&l);
    if (l.decoded) learn(s, &l);
    if (status != TB_OK) refuse(s, status);
}

/* Another stream's chunk, which this one brought: at `bytes`, proved once, as what its peer
 * sends has to be. */
static void land_gift(struct tb_stream *s, const uint8_t *bytes)
{
    struct tb_stream_receive *r = &s->receive;
    struct tb_land l = {.place = place_of(r), .chunk = r->frame.chunk, .beside = bytes};
    const enum tb_status status = tb_land_chunk(&l);
    if (status != TB_OK) refuse(s, status);
}

/* The bytes beside the place are the chunk's: finished here if the claim is free by now, else
 * left for its owner. */
static void give(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    const struct tb_gift gift = {r->share, r->frame.shard, r->frame.chunk, r->spare, true};
    if (tb_place_claim(place_of(r), r->frame.chunk)) {
        land_gift(s, r->spare);
        return;
    }
    tb_shared_places_ref(r->share);
    if (tb_feed_gift(s->plan.feed, &gift)) {
        r->spare = NULL;
        tb_stream_loop_tell(s->loop);
        return;
    }
    tb_shared_places_unref(r->share);
    drop_duplicate(s);
}

static void take_spare(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    const struct tb_codec_coded coded = coded_of(r);
    struct tb_land l = land_of(s, &coded);
    const enum tb_status status = tb_land_beside(&l);
    if (l.decoded) learn(s, &l);
    if (tb_place_held(place_of(r), r->frame.chunk))
        count(&s->chunks_duplicate);
    else if (status != TB_OK)
        refuse(s, status);
    else
        give(s);
    drop_spare(r);
}

/* All bytes of the frame are here. */
static void take_chunk(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    count(&s->chunks_received);
    if (r->reading == TB_READING_SPARE)
        take_spare(s);
    else if (r->reading != TB_READING_DROP)
        land(s);
    if (r->share != NULL && tb_shared_places_revoked(r->share)) forget_share(r);
    next_header(r);
}

/* P6: the chunk in whose middle this stream is came by a faster one. The rest of it is dropped. */
static void take_gift(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    if (!r->claimed) return;
    uint8_t *gift = tb_feed_gift_take(s->plan.feed, r->share, r->frame.shard, r->frame.chunk);
    if (gift == NULL) return;
    r->claimed = false;
    r->reading = TB_READING_DROP;
    count(&s->chunks_duplicate);
    land_gift(s, gift);
    tb_free(gift);
}

/* The places were taken back: the rest of the chunk is dropped. */
void tb_stream_receive_heed(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    unpark(s);
    heed_base(r);
    if (r->share == NULL) return;
    if (!tb_shared_places_revoked(r->share)) {
        take_gift(s);
        return;
    }
    unclaim(r);
    drop_spare(r);
    if (r->reading > TB_READING_HEADER) r->reading = TB_READING_DROP;
    forget_share(r);
}

struct room {
    uint8_t *at;
    size_t cap;
};

static struct room room_for(struct tb_stream *s)
{
    struct tb_stream_receive *r = &s->receive;
    struct room room = {NULL, 0};
    switch (r->reading) {
    case TB_READING_BOUND:
        return (struct room){r->header + r->got, BOUND_BYTES - r->got};
    case TB_READING_HEADER:
        return (struct room){r->header + r->got, TB_CHUNK_FRAME_HEADER_BYTES - r->got};
    case TB_READING_RAW:
    case TB_READING_ENCODED:
    case TB_READING_SPARE:
        return (struct room){r->into + r->got, r->frame.wire_bytes - r->got};
    case TB_READING_DROP:
    case TB_READING_PARKED:
        break;
    }
    room.at = tb_stream_loop_scratch(s->loop, &room.cap);
    if (room.cap > r->frame.wire_bytes - r->got) room.cap = r->frame.wire_bytes - r->got;
    return room;
}

/* `got` bytes more are where room_for said. */
static enum tb_status advance(struct tb_stream *s, size_t got)
{
    struct tb_stream_receive *r = &s->receive;
    r->got += (uint32_t)got;
    switch (r->reading) {
    case TB_READING_BOUND:
        return r->got == BOUND_BYTES ? take_bound(s) : TB_OK;
    case TB_READING_HEADER:
        return r->got == TB_CHUNK_FRAME_HEADER_BYTES ? take_header(s) : TB_OK;
    default:
        break;
    }
    if (r->share != NULL) atomic_fetch_add_explicit(&r->share->received_bytes, got, memory_order_relaxed);
    if (r->got == r->frame.wire_bytes) take_chunk(s);
    return TB_OK;
}

bool tb_stream_receive_more(struct tb_stream *s, uint64_t budget)
{
    struct tb_stream_receive *r = &s->receive;
    enum tb_status status = TB_OK;
    bool moved = false;
    uint64_t spent = 0;
    uint32_t reads = 0;
    tb_stream_receive_heed(s);
    r->worked = 0;
    while (!tb_stream_is_closing(s) && status == TB_OK && r->reading != TB_READING_PARKED &&
           reads < TURN_READS && spent + r->worked < budget) {
        const struct room room = room_for(s);
        size_t got = 0;
        if (tb_chan_read(s->chan, room.at, room.cap, &got) != TB_OK) break;
        moved = true;
        reads++;
        if (r->reading != TB_READING_BOUND)
            atomic_fetch_add_explicit(&s->bytes_received, got, memory_order_relaxed);
        spent += got;
        status = advance(s, got);
    }
    if (moved) tb_stream_moved(s, &r->moved_at);
    if (status != TB_OK) tb_stream_close(s, status);
    return !tb_stream_is_closing(s) && (spent + r->worked >= budget || reads == TURN_READS);
}
