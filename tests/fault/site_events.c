/* Every event in every state of the cores inside a site: a hop of three chunks, a place, the
 * arena's extents, the planner.
 *
 * Covers: intra/hop/hop.c base/layout/place.c gateway/arena/extents.c intra/planner.c */
#include "gateway/arena/extents.h"
#include "intra/hop/hop.h"
#include "intra/planner.h"
#include "tests/fault/explore.h"

#define CHUNKS      3u
#define CHUNK_BYTES 8u

/* ---- hop, and the place it fills ---- */

struct reader {
    struct tb_chunk chunks[CHUNKS];
    struct tb_digest digests[CHUNKS];
    struct tb_manifest manifest;
    uint8_t bytes[CHUNKS * CHUNK_BYTES];
    uint64_t held[1], claimed[1], memory[4];
    struct tb_place place;
    struct tb_source_shard source;
    struct tb_hop_shard shard;
    struct tb_hop_state s;
    bool asked[CHUNKS];  /* in flight of this hop */
    bool others[CHUNKS]; /* claimed by another one */
    uint8_t failed[CHUNKS];
};

static void fill(uint8_t *out, uint32_t k)
{
    memset(out, (int)(k + 1), CHUNK_BYTES);
}

static void reader_init(struct reader *r)
{
    for (uint32_t k = 0; k < CHUNKS; k++) {
        uint8_t bytes[CHUNK_BYTES];
        fill(bytes, k);
        r->chunks[k] = (struct tb_chunk){(uint64_t)k * CHUNK_BYTES, CHUNK_BYTES};
        r->digests[k] = tb_digest_of(bytes, CHUNK_BYTES);
    }
    r->manifest = (struct tb_manifest){
        .chunk_count = CHUNKS, .chunks = r->chunks, .digests = r->digests, .bytes = CHUNKS * CHUNK_BYTES};
    r->place = (struct tb_place){
        .manifest = &r->manifest, .bytes = r->bytes, .held = r->held, .claimed = r->claimed};
    r->source.held_buffer = 1;
    r->shard = (struct tb_hop_shard){.source = &r->source, .place = &r->place, .memory = r->memory};
    tb_hop_state_init(&r->s, &r->shard, 1, 0, TB_SECONDS(1));
}

static bool ask(struct reader *r, const struct reader *was)
{
    struct tb_hop_aim aim;
    if (!tb_hop_next(&r->s, &aim)) return true;
    const uint32_t k = aim.chunk;
    assert_true(aim.shard_index == 0 && k < CHUNKS && aim.bytes == CHUNK_BYTES);
    assert_true(tb_bitmap_test(was->shard.seen, k)); /* P1: only what its bitmap showed */
    assert_false(was->asked[k] || was->others[k]);   /* P4: one writer */
    assert_false(tb_bitmap_test(was->held, k) ||
                 was->failed[k] >= 2u); /* nothing held, nothing bad for the third time */
    r->asked[k] = true;
    return true;
}

static struct tb_hop_aim aim_of(uint32_t k)
{
    return (struct tb_hop_aim){.chunk = k, .bytes = CHUNK_BYTES};
}

/* The chunk comes: right, wrong, or not to its end. */
static bool answer(struct reader *r, uint32_t k, unsigned how)
{
    const struct tb_hop_aim aim = aim_of(k);
    if (!r->asked[k]) return false;
    r->asked[k] = false;
    if (how == 2) {
        tb_place_unclaim(&r->place, k);
        tb_hop_dropped(&r->s, &aim);
        return true;
    }
    fill(r->bytes + k * CHUNK_BYTES, how == 0 ? k : k + 7);
    assert_int_equal(tb_place_finish(&r->place, k), how == 0 ? TB_OK : TB_CHUNK_DIGEST);
    if (how == 0) {
        tb_hop_landed(&r->s, &aim);
        return true;
    }
    memset(r->bytes + k * CHUNK_BYTES, 0, CHUNK_BYTES); /* what is not held is no state */
    assert_int_equal(tb_hop_failed(&r->s, &aim), ++r->failed[k] == 2);
    return true;
}

static bool another(struct reader *r, uint32_t k, unsigned what)
{
    if (what == 0) {
        const bool absent = !r->asked[k] && !r->others[k] && !tb_bitmap_test(r->held, k);
        assert_int_equal(tb_place_claim(&r->place, k), absent);
        return r->others[k] = absent;
    }
    if (!r->others[k]) return false;
    r->others[k] = false;
    if (what == 1) {
        fill(r->bytes + k * CHUNK_BYTES, k);
        assert_int_equal(tb_place_finish(&r->place, k), TB_OK);
    } else {
        tb_place_unclaim(&r->place, k);
    }
    return true;
}

static bool snapshot(struct reader *r, const struct reader *was, uint64_t word)
{
    if (tb_hop_seen(&r->s, 0, 0, &word, 1) != TB_OK) {
        assert_true(word >> CHUNKS != 0);
        assert_memory_equal(r, was, sizeof *r);
        return true;
    }
    assert_int_equal(r->shard.seen[0], word);
    r->s.round_news = false; /* how often it polls is for tests/unit/intra/hop.c */
    return true;
}

static bool reader_event(struct reader *r, const struct reader *was, unsigned e)
{
    if (e < 9) return answer(r, e % CHUNKS, e / CHUNKS);
    if ((e -= 9) < 9) return another(r, e % CHUNKS, e / CHUNKS);
    if ((e -= 9) < 10) return snapshot(r, was, e < 9 ? e : UINT64_MAX);
    if (e - 10 == 0) return ask(r, was);
    tb_hop_round_done(&r->s, TB_SECONDS(1));
    r->s.poll_every = TB_HOP_POLL_MIN;
    r->s.poll_at = TB_SECONDS(1);
    return true;
}

static bool reader_give(void *world, const void *was, unsigned e)
{
    struct reader *r = world;
    if (!reader_event(r, was, e)) return false;
    uint32_t in_flight = 0;
    for (uint32_t k = 0; k < CHUNKS; k++) {
        uint8_t right[CHUNK_BYTES];
        fill(right, k);
        in_flight += r->asked[k];
        if (tb_bitmap_test(r->held, k))
            assert_memory_equal(r->bytes + k * CHUNK_BYTES, right, CHUNK_BYTES); /* P1 */
        assert_int_equal(tb_bitmap_test(r->claimed, k), r->asked[k] || r->others[k]);
    }
    assert_int_equal(r->s.in_flight_chunks, in_flight);
    assert_int_equal(r->s.in_flight_bytes, (uint64_t)in_flight * CHUNK_BYTES);
    assert_int_equal(tb_hop_whole(&r->s), r->held[0] == (1u << CHUNKS) - 1);
    assert_true((((const struct reader *)was)->held[0] & ~r->held[0]) == 0); /* P3 */
    return true;
}

/* P1 P3 P4. */
static void every_event_in_every_state_of_a_hop(void **state)
{
    (void)state;
    static struct reader r;
    reader_init(&r);
    assert_true(explore(&(struct explore){&r, sizeof r, 9 + 9 + 10 + 2, reader_give}) > 1000);
}

/* ---- extents ---- */

#define GRAINS 5u

struct space {
    struct tb_extent memory[GRAINS + 1];
    struct tb_extents e;
    uint8_t taken[GRAINS]; /* 0: free; else the first grain of its piece, plus 1 */
};

static void take(struct space *s, uint32_t first, uint32_t count)
{
    assert_true(first + count <= GRAINS);
    for (uint32_t g = first; g < first + count && g < GRAINS; g++) {
        assert_int_equal(s->taken[g], 0);
        s->taken[g] = (uint8_t)(first + 1);
    }
}

static bool space_event(struct space *s, const struct space *was, unsigned e)
{
    if (e < GRAINS * 2) { /* by size and alignment */
        uint64_t offset = 0;
        const uint32_t count = 1 + e % GRAINS;
        const uint64_t align = TB_EXTENT_GRAIN << (e / GRAINS);
        if (tb_extents_take(&s->e, count * TB_EXTENT_GRAIN, align, &offset) != TB_OK) {
            assert_memory_equal(s, was, sizeof *s);
            return true;
        }
        assert_int_equal(offset % align, 0);
        take(s, (uint32_t)(offset / TB_EXTENT_GRAIN), count);
        return true;
    }
    e -= GRAINS * 2;
    if (e < 36) { /* exactly there, some of it outside */
        const struct tb_extent piece = {e % 6 * TB_EXTENT_GRAIN, e / 6 * TB_EXTENT_GRAIN + (e == 35)};
        if (tb_extents_take_at(&s->e, piece) != TB_OK) {
            assert_memory_equal(s, was, sizeof *s);
            return true;
        }
        take(s, e % 6, e / 6);
        return true;
    }
    const uint32_t first = e - 36;
    uint32_t end = first;
    while (end < GRAINS && s->taken[end] == first + 1)
        s->taken[end++] = 0;
    if (end == first) return false;
    tb_extents_give(&s->e, (struct tb_extent){first * TB_EXTENT_GRAIN, (end - first) * TB_EXTENT_GRAIN});
    return true;
}

static bool space_give(void *world, const void *was, unsigned e)
{
    struct space *s = world;
    if (!space_event(s, was, e)) return false;
    uint32_t at = 0, free_grains = 0, largest = 0;
    for (uint32_t g = 0; g < GRAINS;) {
        uint32_t end = g;
        while (end < GRAINS && s->taken[end] == 0)
            end++;
        if (end > g) { /* a free piece: in order, whole, never in two parts */
            assert_true(at < s->e.count && s->e.free[at].offset == g * TB_EXTENT_GRAIN);
            assert_int_equal(s->e.free[at++].bytes, (end - g) * TB_EXTENT_GRAIN);
            free_grains += end - g;
            largest = end - g > largest ? end - g : largest;
        }
        g = end > g ? end : g + 1;
    }
    assert_int_equal(at, s->e.count);
    assert_int_equal(s->e.free_bytes, free_grains * TB_EXTENT_GRAIN);
    assert_int_equal(tb_extents_largest(&s->e), largest * TB_EXTENT_GRAIN);
    memset(s->e.free + s->e.count, 0,
           (GRAINS + 1 - s->e.count) * sizeof *s->e.free); /* behind the end: no state */
    return true;
}

static void every_event_in_every_state_of_the_extents(void **state)
{
    (void)state;
    static struct space s;
    tb_extents_init(&s.e, s.memory, GRAINS + 1, (struct tb_extent){0, GRAINS * TB_EXTENT_GRAIN});
    assert_true(explore(&(struct explore){&s, sizeof s, GRAINS * 2 + 36 + GRAINS, space_give}) > 50);
}

/* ---- planner: it has no state; every question of four members ---- */

#define MEMBERS 4u

static void answer_is_sound(struct tb_planner_member *m, uint32_t fan_out, uint64_t avoid)
{
    uint32_t upstream = 77, again = 78;
    const struct tb_planner_question q = {
        .members = m, .count = MEMBERS, .reader = 0, .fan_out = fan_out, .avoid = &avoid, .avoid_count = 1};
    const enum tb_status status = tb_planner_upstream(&q, &upstream);
    assert_true(status == TB_OK || status == TB_NOT_FOUND);
    assert_int_equal(tb_planner_upstream(&q, &again), status); /* the same question, the same answer */
    if (status != TB_OK) return;
    assert_int_equal(upstream, again);
    assert_true(upstream > 0 && upstream < MEMBERS && m[upstream].id != avoid);
    for (uint32_t at = upstream, steps = 0; at != TB_PLANNER_NONE; at = m[at].upstream) {
        assert_true(at != 0 && steps++ < MEMBERS); /* it never depends on the reader */
        if (m[at].whole || m[at].kind != TB_PLANNER_WORKER) break;
    }
}

/* Member i reads from a later one, or from none: no question has a cycle. */
static void every_question_has_a_sound_answer(void **state)
{
    (void)state;
    unsigned asked = 0;
    for (uint32_t n = 0; n < 1u << 16; n++) {
        struct tb_planner_member m[MEMBERS];
        uint32_t bits = n;
        memset(m, 0, sizeof m);
        for (uint32_t i = 0; i < MEMBERS; i++, bits >>= 4) {
            m[i] = (struct tb_planner_member){
                .id = i + 1, .kind = TB_PLANNER_WORKER, .host = bits & 1, .rack = 1 + (bits >> 1 & 1)};
            m[i].upstream = i + 1 < MEMBERS && (bits >> 2 & 1) != 0 ? i + 1 : TB_PLANNER_NONE;
            m[i].whole = (bits >> 3 & 1) != 0;
            m[i].slow = i == 2 && (n & 0x40) != 0;
            m[i].held_chunks = i;
        }
        m[MEMBERS - 1].kind = (n & 0x4000) != 0 ? TB_PLANNER_GATEWAY : TB_PLANNER_PUBLISHER;
        for (uint32_t fan_out = 0; fan_out < 3; fan_out++, asked++)
            answer_is_sound(m, fan_out, n % 6);
    }
    printf("%u questions\n", asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_of_a_hop),
        cmocka_unit_test(every_event_in_every_state_of_the_extents),
        cmocka_unit_test(every_question_has_a_sound_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
