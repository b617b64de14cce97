/* All that a peer can send; the first byte says which message the rest is. Messages that decode
 * encode to the same bytes; a crossing fed with a peer's HELD, REFUSED and STREAM_GONE never sends
 * what the peer holds, nor a chunk twice at once.
 *
 * Covers: wan/frame/frame.c wan/send/outbound.c */
#include "base/layout/chunk_cut.h"
#include "tests/fuzz/fuzz.h"
#include "wan/send/inbound.h"
#include "wan/send/outbound_parcels.h"

#define CHUNKS 130u
/* First bytes of what is no message. They stay where a message is added. */
#define A_CROSSING    0xfe
#define A_CHUNK_FRAME 0xff
#define SITES_HELD    0xfd

/* clang-format off */
#define MESSAGES(X)                                                                     \
    X(hello) X(bye) X(ping) X(subscribe) X(version) X(gone) X(ask) X(head) X(digests)   \
    X(want) X(base) X(held) X(start) X(refused) X(stream_gone) X(report) X(bind)        \
    X(pong) X(denied) X(stop) X(whole) X(bound) X(streams) X(take) X(have) X(expect)    \
    X(push) X(spent) X(state) X(holdup) X(proofs) X(runs) X(run_told) X(segment)        \
    X(statement)
/* clang-format on */

#define WALK(name) FUZZ_WALK(frame_##name)
MESSAGES(WALK)

typedef void (*walk)(const uint8_t *bytes, size_t count);
#define ENTRY(name) walk_frame_##name,
static const walk walks[] = {MESSAGES(ENTRY)};
#define WALKS (sizeof walks / sizeof walks[0])

static void walk_chunk_frame(const uint8_t *bytes, size_t count)
{
    struct tb_chunk_frame f;
    struct tb_reader r;
    struct tb_writer w;
    uint8_t again[TB_CHUNK_FRAME_HEADER_BYTES];
    tb_reader_init(&r, bytes, count);
    const uint32_t protocol = 1 + (uint32_t)(count % TB_LINK_PROTOCOL);
    if (tb_chunk_frame_decode(&r, protocol, &f) != TB_OK) return;
    FUZZ_REQUIRE(tb_chunk_frame_may(protocol, f.form));
    tb_writer_init(&w, again, sizeof again);
    tb_chunk_frame_encode(&f, &w);
    FUZZ_REQUIRE(memcmp(again, bytes, sizeof again) == 0);
    FUZZ_REQUIRE(f.wire_bytes <= f.raw_bytes && f.raw_bytes <= 2 * TB_CHUNK_BYTES_MAX);
}

/* The list in STATE. */
static void walk_sites_held(const uint8_t *bytes, size_t count)
{
    struct tb_site_state state = {.hops = 0};
    uint8_t again[TB_SITE_HELD_MAX * TB_SITE_HELD_BYTES];
    const struct tb_span list = {bytes, (uint32_t)count};
    if (tb_frame_site_held_decode(&list, &state) != TB_OK) return;
    FUZZ_REQUIRE(state.held_count <= TB_SITE_HELD_MAX && state.held_count * TB_SITE_HELD_BYTES == count);
    tb_frame_site_held_encode(&state, again);
    FUZZ_REQUIRE(count == 0 || memcmp(again, bytes, count) == 0);
}

struct world {
    struct tb_chunk chunks[CHUNKS];
    struct tb_digest digests[2][CHUNKS]; /* of the version, of a base */
    struct tb_manifest manifest, base_manifest;
    uint64_t held[3], claimed[3];
    struct tb_place place, base;
    struct tb_outbound crossing;
    bool on_base, asked[CHUNKS], plain[CHUNKS]; /* refused; and otherwise than as lost: whole from then on */
    uint8_t on[CHUNKS];                         /* 0: not on its way; else slot + 1 */
};

static void world_init(struct world *w, void *memory)
{
    memset(w, 0, sizeof *w);
    for (uint32_t k = 0; k < CHUNKS; k++) {
        w->chunks[k] = (struct tb_chunk){(uint64_t)k * 100000, 100000};
        tb_bitmap_set(w->held, k);
    }
    for (uint32_t k = 0; k < CHUNKS; k++)
        w->digests[1][k].bytes[0] = k % 3 == 0 ? 0 : 1; /* every third chunk is that of the base */
    w->manifest = (struct tb_manifest){.chunk_count = CHUNKS, .chunks = w->chunks, .digests = w->digests[0]};
    w->base_manifest = w->manifest;
    w->base_manifest.digests = w->digests[1];
    w->base = (struct tb_place){.manifest = &w->base_manifest, .held = w->held, .claimed = w->claimed};
    w->place = (struct tb_place){.manifest = &w->manifest, .held = w->held, .claimed = w->claimed};
    tb_outbound_init(&w->crossing, &w->place, 1, memory);
}

static bool peer_has(const struct world *w, uint32_t k)
{
    return (w->crossing.shards[0].peer[k / 64] >> (k % 64) & 1) != 0;
}

static void take_one(struct world *w, uint8_t slot)
{
    struct tb_parcel p;
    if (!tb_outbound_next(&w->crossing, &p)) return;
    FUZZ_REQUIRE(p.shard == 0 && p.count > 0 && p.first + p.count <= CHUNKS);
    for (uint32_t k = p.first; k < p.first + p.count; k++) {
        FUZZ_REQUIRE(!peer_has(w, k) && w->on[k] == 0);
        FUZZ_REQUIRE(p.plain == w->plain[k]);
        FUZZ_REQUIRE(!w->on_base || k % 3 != 0 || w->asked[k]); /* the peer makes it itself */
        w->on[k] = (uint8_t)(slot + 1);
    }
    tb_outbound_taken(&w->crossing, &p, slot);
}

static void hear_held(struct world *w, struct tb_reader *r)
{
    const struct tb_span words = {tb_read_span(r, TB_HELD_WORD_BYTES), TB_HELD_WORD_BYTES};
    if (r->bad) return;
    const uint64_t before = w->crossing.peer_held;
    if (tb_outbound_held(&w->crossing, 0, &words) != TB_OK) FUZZ_REQUIRE(w->crossing.peer_held == before);
    FUZZ_REQUIRE(w->crossing.peer_held >= before && w->crossing.peer_held <= CHUNKS);
    for (uint32_t k = 0; k < CHUNKS; k++)
        if (peer_has(w, k)) w->on[k] = 0;
}

static void hear_refused(struct world *w, struct tb_reader *r)
{
    uint32_t times = 0;
    const uint8_t chunk = tb_read_u8(r),
                  why = (uint8_t)(TB_REFUSAL_DIGEST + chunk / CHUNKS * 2 + tb_read_u8(r) % 2);
    const struct tb_frame_refused m = {.chunk = chunk % CHUNKS, .why = why};
    if (tb_outbound_refused(&w->crossing, &m, &times) != TB_OK) return;
    w->on[m.chunk] = 0;
    w->asked[m.chunk] = true;
    w->plain[m.chunk] |= why != TB_REFUSAL_LOST;
}

static void hear_base(struct world *w)
{
    if (tb_outbound_name_base(&w->crossing) != TB_OK) return;
    tb_outbound_base(&w->crossing, &w->base, 1);
    w->on_base = true;
}

static void hear_gone(struct world *w, uint8_t slot)
{
    (void)tb_outbound_stream_gone(&w->crossing, slot);
    for (uint32_t k = 0; k < CHUNKS; k++)
        if (w->on[k] == slot + 1) w->on[k] = 0;
}

static void walk_crossing(const uint8_t *bytes, size_t count)
{
    struct world w;
    struct tb_reader r;
    struct tb_place shape = {.manifest = &w.manifest};
    w.manifest.chunk_count = CHUNKS;
    void *memory = aligned_alloc(16, (tb_outbound_bytes_for(&shape, 1) + 15) / 16 * 16);
    FUZZ_REQUIRE(memory != NULL);
    world_init(&w, memory);
    tb_reader_init(&r, bytes, count);
    while (r.left > 0 && !r.bad) {
        const uint8_t op = tb_read_u8(&r);
        switch (op % 6) {
        case 0:
            take_one(&w, op / 6 % 4);
            break;
        case 1:
            hear_held(&w, &r);
            break;
        case 2:
            hear_refused(&w, &r);
            break;
        case 3:
            hear_gone(&w, op / 6 % 4);
            break;
        case 4:
            hear_base(&w);
            break;
        default:
            (void)!tb_outbound_start(&w.crossing);
            break;
        }
    }
    free(memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    switch (bytes[0]) {
    case A_CROSSING:
        walk_crossing(bytes + 1, count - 1);
        break;
    case A_CHUNK_FRAME:
        walk_chunk_frame(bytes + 1, count - 1);
        break;
    case SITES_HELD:
        walk_sites_held(bytes + 1, count - 1);
        break;
    default:
        walks[bytes[0] % WALKS](bytes + 1, count - 1);
    }
    return 0;
}
