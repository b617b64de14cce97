/* frame.c - the parts of the wire that are not tables of fields. Pure. */
#include "wan/frame/frame.h"

#include "base/assert.h"
#include "base/layout/chunk_cut.h"

static const char *const frame_names[TB_FRAME_TYPE_END] = {
    [TB_FRAME_HELLO] = "hello",
    [TB_FRAME_BYE] = "bye",
    [TB_FRAME_PING] = "ping",
    [TB_FRAME_PONG] = "pong",
    [TB_FRAME_SUBSCRIBE] = "subscribe",
    [TB_FRAME_DENIED] = "denied",
    [TB_FRAME_VERSION] = "version",
    [TB_FRAME_GONE] = "gone",
    [TB_FRAME_ASK] = "ask",
    [TB_FRAME_HEAD] = "head",
    [TB_FRAME_DIGESTS] = "digests",
    [TB_FRAME_WANT] = "want",
    [TB_FRAME_HELD] = "held",
    [TB_FRAME_START] = "start",
    [TB_FRAME_STOP] = "stop",
    [TB_FRAME_REFUSED] = "refused",
    [TB_FRAME_WHOLE] = "whole",
    [TB_FRAME_STREAM_GONE] = "stream_gone",
    [TB_FRAME_REPORT] = "report",
    [TB_FRAME_BIND] = "bind",
    [TB_FRAME_BOUND] = "bound",
    [TB_FRAME_BASE] = "base",
    [TB_FRAME_STREAMS] = "streams",
    [TB_FRAME_TAKE] = "take",
    [TB_FRAME_HAVE] = "have",
    [TB_FRAME_EXPECT] = "expect",
    [TB_FRAME_PUSH] = "push",
    [TB_FRAME_SPENT] = "spent",
    [TB_FRAME_RUNS] = "runs",
    [TB_FRAME_RUN_TOLD] = "run_told",
    [TB_FRAME_SEGMENT] = "segment",
    [TB_FRAME_STATE] = "state",
    [TB_FRAME_HOLDUP] = "holdup",
    [TB_FRAME_STATEMENT] = "statement",
    [TB_FRAME_PROOFS] = "proofs",
    [TB_FRAME_PAUSED] = "paused",
};

const char *tb_frame_name(uint16_t type)
{
    return type < TB_FRAME_TYPE_END && frame_names[type] != NULL ? frame_names[type] : "unknown";
}

uint32_t tb_frame_status(enum tb_status status)
{
    return (uint32_t)(-(int)status);
}

enum tb_status tb_frame_status_of(uint32_t status_negated)
{
    if (status_negated < 100 || status_negated > 999) return TB_PEER_GARBLED;
    return (enum tb_status)(-(int)status_negated);
}

void tb_held_words_encode(const struct tb_held_word *words, uint32_t count, struct tb_writer *w)
{
    for (uint32_t i = 0; i < count; i++) {
        tb_write_u32(w, words[i].index);
        tb_write_u64(w, words[i].word);
    }
}

struct tb_held_word tb_held_words_at(const struct tb_span *span, uint32_t i)
{
    TB_ASSERT(i < span->count / TB_HELD_WORD_BYTES);
    struct tb_reader r;
    tb_reader_init(&r, span->bytes + (size_t)i * TB_HELD_WORD_BYTES, TB_HELD_WORD_BYTES);
    struct tb_held_word word;
    word.index = tb_read_u32(&r);
    word.word = tb_read_u64(&r);
    return word;
}

/* The bits of word `index` that stand for chunks. */
static uint64_t word_mask(uint32_t index, uint32_t chunk_count)
{
    TB_ASSERT(index < TB_BITMAP_WORDS(chunk_count));
    const uint32_t bits = chunk_count - index * 64u;
    return bits >= 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
}

enum tb_status tb_held_words_check(const struct tb_span *span, uint32_t chunk_count)
{
    if (span->count == 0 || span->count % TB_HELD_WORD_BYTES != 0) return TB_PEER_GARBLED;
    uint64_t next = 0;
    for (uint32_t i = 0; i < span->count / TB_HELD_WORD_BYTES; i++) {
        const struct tb_held_word word = tb_held_words_at(span, i);
        if (word.index < next || word.index >= TB_BITMAP_WORDS(chunk_count)) return TB_PEER_GARBLED;
        if ((word.word & ~word_mask(word.index, chunk_count)) != 0) return TB_PEER_GARBLED;
        next = (uint64_t)word.index + 1;
    }
    return TB_OK;
}

void tb_frame_site_held_encode(const struct tb_site_state *state,
                               uint8_t out[TB_SITE_HELD_MAX * TB_SITE_HELD_BYTES])
{
    TB_ASSERT(state->held_count <= TB_SITE_HELD_MAX);
    struct tb_writer w;
    tb_writer_init(&w, out, TB_SITE_HELD_MAX * TB_SITE_HELD_BYTES);
    for (uint32_t i = 0; i < state->held_count; i++) {
        const struct tb_site_held *h = &state->held[i];
        tb_write_id(&w, &h->uid);
        tb_write_u64(&w, h->which.run_order);
        tb_write_u64(&w, h->which.number);
        tb_write_u64(&w, h->bytes);
        tb_write_u64(&w, h->held_bytes);
        tb_write_u8(&w, h->marks);
    }
    TB_ASSERT(!w.full);
}

static bool held_valid(const struct tb_site_state *s, const struct tb_site_held *h)
{
    if (tb_id_is_zero(&h->uid) || (h->marks & ~TB_SITE_MARKS) != 0 || h->held_bytes > h->bytes) return false;
    if ((h->marks & TB_SITE_WHOLE) != 0 && h->held_bytes != h->bytes) return false;
    return s->held_count == 0 || tb_site_which_compare(&s->held[s->held_count - 1].which, &h->which) > 0;
}

enum tb_status tb_frame_site_held_decode(const struct tb_span *span, struct tb_site_state *state_out)
{
    struct tb_reader r;
    if (span->count % TB_SITE_HELD_BYTES != 0) return TB_PEER_GARBLED;
    if (span->count > TB_SITE_HELD_MAX * TB_SITE_HELD_BYTES) return TB_PEER_GARBLED;
    tb_reader_init(&r, span->bytes, span->count);
    for (state_out->held_count = 0; state_out->held_count < span->count / TB_SITE_HELD_BYTES;) {
        struct tb_site_held h;
        h.uid = tb_read_id(&r);
        h.which.run_order = tb_read_u64(&r);
        h.which.number = tb_read_u64(&r);
        h.bytes = tb_read_u64(&r);
        h.held_bytes = tb_read_u64(&r);
        h.marks = tb_read_u8(&r);
        if (!held_valid(state_out, &h)) return TB_PEER_GARBLED;
        state_out->held[state_out->held_count++] = h;
    }
    return TB_OK;
}

void tb_chunk_frame_encode(const struct tb_chunk_frame *frame, struct tb_writer *w)
{
    tb_write_u32(w, TB_CHUNK_FRAME_MAGIC);
    tb_write_u8(w, TB_CHUNK_FRAME_KIND);
    tb_write_u8(w, (uint8_t)frame->form.id);
    tb_write_u8(w, frame->form.on_base ? 1 : 0);
    tb_write_u8(w, 0);
    tb_write_u32(w, frame->crossing);
    tb_write_u32(w, frame->shard);
    tb_write_u32(w, frame->chunk);
    tb_write_u32(w, frame->raw_bytes);
    tb_write_u32(w, frame->wire_bytes);
}

bool tb_chunk_frame_may(uint32_t protocol, struct tb_codec_form form)
{
    if (form.on_base && protocol < TB_LINK_PROTOCOL_BASES) return false;
    switch (form.id) {
    case TB_CODEC_RAW:
        return !form.on_base;
    case TB_CODEC_ZSTD:
        return true;
    case TB_CODEC_PLANES:
        return protocol >= TB_LINK_PROTOCOL_BASES;
    case TB_CODEC_SPARSE:
    case TB_CODEC_CHAINED:
        return form.on_base;
    }
    return false;
}

enum tb_status tb_chunk_frame_decode(struct tb_reader *r, uint32_t protocol, struct tb_chunk_frame *frame_out)
{
    struct tb_chunk_frame f;
    const uint32_t magic = tb_read_u32(r);
    const uint8_t kind = tb_read_u8(r);
    const uint8_t codec = tb_read_u8(r);
    const uint8_t base = tb_read_u8(r);
    const uint8_t zero = tb_read_u8(r);
    f.crossing = tb_read_u32(r);
    f.shard = tb_read_u32(r);
    f.chunk = tb_read_u32(r);
    f.raw_bytes = tb_read_u32(r);
    f.wire_bytes = tb_read_u32(r);

    if (r->bad) return TB_PEER_GARBLED;
    if (magic != TB_CHUNK_FRAME_MAGIC || kind != TB_CHUNK_FRAME_KIND) return TB_PEER_GARBLED;
    if (base > 1 || zero != 0) return TB_PEER_GARBLED;
    f.form = (struct tb_codec_form){(enum tb_codec_id)codec, base == 1};
    if (!tb_chunk_frame_may(protocol, f.form)) return TB_PEER_GARBLED;
    if (f.raw_bytes == 0 || f.raw_bytes > 2 * TB_CHUNK_BYTES_MAX) return TB_PEER_GARBLED;
    if (f.wire_bytes == 0 || f.wire_bytes > f.raw_bytes) return TB_PEER_GARBLED;
    if (codec == TB_CODEC_RAW && f.wire_bytes != f.raw_bytes) return TB_PEER_GARBLED;
    *frame_out = f;
    return TB_OK;
}
