/* Every event in every state of the hedge: a crossing of four chunks over two streams. The test
 * reckons once more which parcel should be given a second way, and which credit pays for it: from
 * where chunks are, and by the header. A chunk of a delta that is refused has no base there any
 * more, and goes whole: it is of another kind from then on.
 *
 * Now is always the same instant: when time passes, all past instants move back, by as much as
 * makes a parcel late. Three times that is a stall, and longer ago is all the same.
 *
 * Covers: wan/send/hedge.c */
#include "tests/fault/explore.h"
#include "tests/unit/wan/small_places.h"
#include "wan/send/hedge.h"
#include "wan/send/outbound_parcels.h"

#define CHUNKS      4u
#define LAST        (CHUNKS - 1)
#define CHUNK_BYTES 200000u /* two make a parcel */
#define SLOTS       2u
#define WAYS        8u
#define CROSSING    7u
#define OTHER       8u
#define QUEUED      255u
#define PARCEL      (UINT64_C(2) * CHUNK_BYTES * 1000)
#define QUARTER     (PARCEL / 4) /* less is not told apart, in what may be sent again */
#define NOW         TB_SECONDS(1000)

struct few {
    struct tb_chunk chunks[CHUNKS];
    struct tb_manifest manifest;
    uint64_t held[1], claimed[1];
};

/* A state has room for what there is of it. */
struct kept {
    uint64_t left_millibytes[2];
    struct tb_hedge_credit credits[2];
    struct tb_hedge_slot slots[SLOTS];
    uint32_t way_count;
    struct tb_hedge_way ways[WAYS];
};

struct hedged {
    struct few shard;
    struct tb_place place;
    struct tb_outbound c;
    uint64_t memory[40];
    struct kept kept;
    struct tb_hedge_again waits; /* no stream took it yet; count 0: none */
    uint8_t first[CHUNKS];       /* by which slot, plus 1; 0: by none */
    uint8_t second[CHUNKS];
    bool whole[CHUNKS]; /* its base was refused */
    uint64_t own[2];    /* millibytes that the crossing may send again, of what it sent of a kind */
};

static struct tb_hedge h; /* of the state that is looked at */
static struct tb_hedge_kind usual_kind;
static tb_time_ns step; /* that passes at once */
static bool on_base;
static unsigned near_the_end, stalled, lent, again_whole; /* second ways that were given */

static bool kind_of(const struct hedged *w, const struct tb_parcel *p)
{
    return on_base && !w->whole[p->first];
}

static void unpack(const struct kept *k)
{
    for (unsigned kind = 0; kind < 2; kind++) {
        h.kinds[kind] = usual_kind;
        h.kinds[kind].left_millibytes = k->left_millibytes[kind];
    }
    memcpy(h.credits, k->credits, sizeof k->credits);
    memcpy(h.slots, k->slots, sizeof k->slots);
    memcpy(h.ways, k->ways, sizeof k->ways);
    h.way_count = k->way_count;
}

/* The bytes between fields are no state. */
static void pack_way(struct tb_hedge_way *to, const struct tb_hedge_way *way)
{
    to->taken_at = way->taken_at;
    to->crossing = way->crossing;
    to->parcel.shard = way->parcel.shard;
    to->parcel.first = way->parcel.first;
    to->parcel.count = way->parcel.count;
    to->parcel.bytes = way->parcel.bytes;
    to->parcel.plain = way->parcel.plain;
    to->left = way->left;
    to->slot = way->slot;
    to->again = way->again;
    to->on_base = way->on_base;
}

static void pack(struct kept *k)
{
    assert_true(h.way_count <= WAYS);
    memset(k, 0, sizeof *k);
    k->left_millibytes[0] = h.kinds[0].left_millibytes;
    k->left_millibytes[1] = h.kinds[1].left_millibytes;
    memcpy(k->credits, h.credits, sizeof k->credits);
    memcpy(k->slots, h.slots, sizeof k->slots);
    for (uint32_t i = 0; i < h.way_count; i++)
        pack_way(&k->ways[i], &h.ways[i]);
    k->way_count = h.way_count;
}

static bool there(const struct hedged *w, uint32_t k)
{
    return (w->c.shards[0].peer[0] >> k & 1) != 0;
}

/* ---- what the header says ---- */

static tb_time_ns ago(tb_time_ns at)
{
    return NOW - at;
}

static bool is_slow(const struct tb_hedge_slot *s, bool kind)
{
    return s->parcel_ns[kind] >= step;
}

static bool is_late(const struct hedged *w, const struct tb_hedge_way *way)
{
    const struct tb_hedge_slot *mine = &h.slots[way->slot], *other = &h.slots[1 - way->slot];
    const tb_time_ns quiet =
        ago(mine->moved_at) < ago(way->taken_at) ? ago(mine->moved_at) : ago(way->taken_at);
    if (other->moved_at <= way->taken_at) return false; /* it is the link that stands still */
    for (uint32_t k = way->parcel.first; k < way->parcel.first + way->parcel.count; k++)
        if (!there(w, k) && w->second[k] != 0) return false;
    if (quiet >= 3 * step) return true;
    return tb_outbound_all_on_their_way(&w->c) && (ago(way->taken_at) >= step || is_slow(mine, way->on_base));
}

/* The one that has been on its way for longest. */
static struct tb_hedge_way *latest(const struct hedged *w)
{
    struct tb_hedge_way *found = NULL;
    for (uint32_t i = 0; i < h.way_count; i++)
        if (is_late(w, &h.ways[i]) && (found == NULL || h.ways[i].taken_at < found->taken_at))
            found = &h.ways[i];
    return found;
}

/* P7: of its own bytes, or one parcel of those that others left, which are gone then. */
static bool pays(struct hedged *w, bool kind, uint64_t price)
{
    const uint64_t left = h.kinds[kind].left_millibytes;
    uint64_t *own = &w->own[kind];
    if (*own + left < price) return false;
    lent += *own < price;
    *own = *own < price ? 0 : *own - price;
    return true;
}

static void credit_is_true(const struct hedged *w, bool kind)
{
    uint64_t credit = 0;
    for (uint32_t i = 0; i < TB_HEDGE_CROSSINGS_MAX; i++) {
        assert_true(h.credits[i].crossing == CROSSING || h.credits[i].crossing == 0);
        credit += h.credits[i].millibytes[kind];
    }
    assert_int_equal(credit, w->own[kind]);
    if (!on_base && kind) assert_int_equal(credit + h.kinds[1].left_millibytes, 0);
}

/* Each way that is known carries something that is not there, by the slot that has it; of each that
 * has two both are marked. */
static void ways_are_true(const struct hedged *w)
{
    uint32_t found = 0, ways = 0;
    for (uint32_t i = 0; i < h.way_count; i++) {
        const struct tb_hedge_way *way = &h.ways[i];
        uint32_t left = 0;
        for (uint32_t k = way->parcel.first; k < way->parcel.first + way->parcel.count; k++) {
            if (there(w, k)) continue;
            left++;
            assert_true(w->first[k] == way->slot + 1 || w->second[k] == way->slot + 1);
            assert_int_equal(way->again, w->second[k] != 0);
            assert_int_equal(way->on_base, on_base && !w->whole[k]);
        }
        assert_true(left > 0);
        assert_int_equal(way->left, left);
        found += left;
    }
    for (uint32_t k = 0; k < CHUNKS; k++)
        ways += (w->first[k] != 0 && w->first[k] != QUEUED) + (w->second[k] != 0 && w->second[k] != QUEUED);
    assert_int_equal(found, ways);
    credit_is_true(w, false);
    credit_is_true(w, true);
}

/* ---- events ---- */

static bool take(struct hedged *w, uint8_t slot)
{
    struct tb_hedge_way way = {.crossing = CROSSING, .slot = slot, .on_base = on_base};
    if (!tb_outbound_next(&w->c, &way.parcel)) return true;
    tb_outbound_taken(&w->c, &way.parcel, slot);
    tb_hedge_taken(&h, NOW, &way, &w->c);
    for (uint32_t k = way.parcel.first; k < way.parcel.first + way.parcel.count; k++) {
        assert_int_equal(way.parcel.plain, w->whole[k]);
        w->first[k] = slot + 1;
    }
    w->own[kind_of(w, &way.parcel)] += way.parcel.bytes * h.permille;
    return true;
}

/* As the feed has it: not one that had better not, unless none is better. */
static bool take_again(struct hedged *w, uint8_t slot)
{
    const struct tb_parcel p = w->waits.parcel;
    if (p.count == 0) return false;
    if ((w->waits.avoid >> slot & 1) != 0 && (w->waits.avoid & ((1u << SLOTS) - 1)) != (1u << SLOTS) - 1)
        return false;
    tb_outbound_taken(&w->c, &p, slot);
    tb_hedge_taken(&h, NOW,
                   &(struct tb_hedge_way){
                       .crossing = CROSSING, .slot = slot, .on_base = on_base, .again = true, .parcel = p},
                   &w->c);
    for (uint32_t k = p.first; k < p.first + p.count; k++) {
        if (w->second[k] == QUEUED)
            w->second[k] = slot + 1;
        else if (w->first[k] == QUEUED)
            w->first[k] = slot + 1;
    }
    memset(&w->waits, 0, sizeof w->waits);
    return true;
}

/* Only what brought it is known to move, and by nothing but what came its time. */
static void slots_are_true(const struct hedged *w, uint32_t k, const struct tb_hedge_slot was[SLOTS])
{
    for (uint32_t s = 0; s < SLOTS; s++) {
        const bool first = w->first[k] == s + 1, second = w->second[k] == s + 1;
        assert_int_equal(h.slots[s].moved_at, first && w->second[k] == 0 ? NOW : was[s].moved_at);
        if (first || second) continue;
        assert_int_equal(h.slots[s].parcel_ns[0], was[s].parcel_ns[0]);
        assert_int_equal(h.slots[s].parcel_ns[1], was[s].parcel_ns[1]);
    }
}

static bool comes(struct hedged *w, uint32_t k)
{
    const bool by_stream = (w->first[k] != 0 && w->first[k] != QUEUED) || w->second[k] != 0;
    if (!by_stream) return false;
    struct tb_hedge_slot was[SLOTS];
    memcpy(was, h.slots, sizeof was);
    const struct tb_held_word word = {0, w->c.shards[0].peer[0] | UINT64_C(1) << k};
    const struct tb_span span = small_words(&word, 1);
    CHECK_OK(tb_outbound_held(&w->c, 0, &span));
    tb_hedge_held(&h, NOW, CROSSING, &w->c);
    slots_are_true(w, k, was);
    w->first[k] = w->second[k] = 0;
    if (tb_outbound_left(&w->c, &w->waits.parcel) == 0) memset(&w->waits, 0, sizeof w->waits);
    return true;
}

/* The second way of what waits is taken back, or the only one, if the first ended. */
static void recall(struct hedged *w)
{
    const struct tb_parcel p = w->waits.parcel;
    tb_outbound_unqueued(&w->c, &p);
    tb_hedge_unqueued(&h, CROSSING, &p);
    for (uint32_t k = p.first; k < p.first + p.count; k++) {
        if (w->second[k] == QUEUED)
            w->second[k] = 0;
        else if (w->first[k] == QUEUED)
            w->first[k] = 0;
    }
    memset(&w->waits, 0, sizeof w->waits);
}

/* It came by one of its ways, or never will: as link_send.c has it. */
static bool refused(struct hedged *w, uint32_t k)
{
    const struct tb_parcel *p = &w->waits.parcel;
    const struct tb_frame_refused m = {
        .crossing = CROSSING, .chunk = k, .why = on_base ? TB_REFUSAL_NO_BASE : TB_REFUSAL_LOST};
    uint32_t times;
    if (w->first[k] == 0) return false;
    if (k >= p->first && k < p->first + p->count) recall(w);
    CHECK_OK(tb_outbound_refused(&w->c, &m, &times));
    tb_hedge_refused(&h, &m, &w->c);
    w->whole[k] = on_base;
    w->first[k] = w->second[k] = 0;
    return true;
}

static bool stream_gone(struct hedged *w, uint8_t slot)
{
    (void)tb_outbound_stream_gone(&w->c, slot);
    tb_hedge_stream_gone(&h, slot);
    assert_int_equal(h.slots[slot].moved_at, 0); /* of the next one */
    assert_int_equal(h.slots[slot].parcel_ns[0] + h.slots[slot].parcel_ns[1], 0);
    for (uint32_t k = 0; k < CHUNKS; k++) {
        if (w->second[k] == slot + 1) w->second[k] = 0;
        if (w->first[k] != slot + 1) continue;
        w->first[k] = w->second[k];
        w->second[k] = 0;
    }
    return true;
}

static bool hedge(struct hedged *w)
{
    struct tb_hedge_again again;
    if (w->waits.parcel.count > 0) return false;
    struct tb_hedge_way *way = latest(w);
    struct tb_parcel rest;
    const unsigned lent_before = lent;
    const bool kind = way != NULL && kind_of(w, &way->parcel);
    const bool due = way != NULL && tb_outbound_rest(&w->c, &way->parcel, &rest) &&
                     pays(w, kind, rest.bytes * 1000); /* P6: a parcel that may go goes, and nothing else */
    const uint64_t avoid =
        (uint64_t)(is_slow(&h.slots[0], kind) ? 1 : 0) | (uint64_t)(is_slow(&h.slots[1], kind) ? 2 : 0);
    assert_int_equal(tb_hedge_next(&h, NOW, CROSSING, &w->c, &again), due);
    if (!due) return true;
    assert_true(again.parcel.first == rest.first && again.parcel.count == rest.count);
    assert_int_equal(again.parcel.plain, on_base && !kind);
    assert_int_equal(again.avoid, avoid | UINT64_C(1) << way->slot);
    if (lent != lent_before) assert_int_equal(h.kinds[kind].left_millibytes, 0);
    *(tb_outbound_all_on_their_way(&w->c) ? &near_the_end : &stalled) += 1;
    again_whole += on_base && !kind;
    tb_outbound_again(&w->c, &again.parcel);
    for (uint32_t k = rest.first; k < rest.first + rest.count; k++) {
        if (there(w, k)) continue;
        assert_true(w->first[k] == way->slot + 1 && w->second[k] == 0); /* never twice at once */
        w->second[k] = QUEUED;
    }
    w->waits = again;
    return true;
}

static bool pass(void)
{
    for (uint32_t i = 0; i < h.way_count; i++)
        h.ways[i].taken_at -= step;
    for (uint32_t s = 0; s < SLOTS; s++)
        if (h.slots[s].moved_at != 0) h.slots[s].moved_at -= step;
    return true;
}

static void crossing_begins(struct hedged *w)
{
    memset(w->memory, 0, sizeof w->memory);
    tb_outbound_init(&w->c, &w->place, 1, w->memory);
    CHECK_OK(tb_outbound_start(&w->c));
}

static bool over(struct hedged *w)
{
    const uint64_t left[2] = {h.kinds[0].left_millibytes + w->own[0], h.kinds[1].left_millibytes + w->own[1]};
    tb_hedge_over(&h, CROSSING);
    assert_int_equal(h.kinds[0].left_millibytes, left[0]);
    assert_int_equal(h.kinds[1].left_millibytes, left[1]);
    assert_int_equal(h.way_count, 0);
    memset(&w->waits, 0, sizeof w->waits);
    memset(w->first, 0, sizeof w->first);
    memset(w->second, 0, sizeof w->second);
    memset(w->whole, 0, sizeof w->whole);
    memset(w->own, 0, sizeof w->own);
    crossing_begins(w);
    return true;
}

/* Another version crosses, of which one chunk is whole, and needs no second way: half a chunk more
 * may go again of each kind. */
static bool another(const struct hedged *w)
{
    struct tb_hedge_way way = {.crossing = OTHER, .on_base = on_base};
    way.parcel = (struct tb_parcel){.count = 1, .bytes = QUARTER / h.permille};
    for (unsigned whole = 0; whole < (on_base ? 2 : 1); whole++) {
        way.parcel.plain = whole != 0;
        tb_hedge_taken(&h, NOW, &way, &w->c);
    }
    tb_hedge_over(&h, OTHER);
    return true;
}

static bool hedged_event(struct hedged *w, unsigned e)
{
    if (e < SLOTS) return take(w, (uint8_t)e);
    if ((e -= SLOTS) < SLOTS) return take_again(w, (uint8_t)e);
    if ((e -= SLOTS) < SLOTS) return stream_gone(w, (uint8_t)e);
    if ((e -= SLOTS) < CHUNKS) return comes(w, e);
    if ((e -= CHUNKS) < CHUNKS) return refused(w, e);
    switch (e - CHUNKS) {
    case 0:
        return hedge(w);
    case 1:
        return pass();
    case 2:
        return over(w);
    case 3:
        return another(w);
    case 4: /* what went before START had waited there for it */
        tb_hedge_started(&h, NOW, CROSSING);
        return true;
    default: /* the last chunk comes to be here: until then it is not near the end */
        return tb_bitmap_set(w->shard.held, LAST);
    }
}
#define HEDGED_EVENTS (3 * SLOTS + 2 * CHUNKS + 6)

/* By chunk and slot, so that the order in which ways ended is no state. */
static void in_order(void)
{
    for (uint32_t i = 1; i < h.way_count; i++) {
        const struct tb_hedge_way way = h.ways[i];
        uint32_t at = i;
        for (; at > 0 && h.ways[at - 1].parcel.first * SLOTS + h.ways[at - 1].slot >
                             way.parcel.first * SLOTS + way.slot;
             at--)
            h.ways[at] = h.ways[at - 1];
        h.ways[at] = way;
    }
}

/* More than pays for all that can go is no more, and a little is nothing. */
static void roughly(struct hedged *w, unsigned kind)
{
    uint64_t *left = &h.kinds[kind].left_millibytes, *own = &w->own[kind];
    *left = *left > PARCEL ? PARCEL : *left / QUARTER * QUARTER;
    *own = *own > PARCEL ? PARCEL : *own / QUARTER * QUARTER;
    for (uint32_t i = 0; i < TB_HEDGE_CROSSINGS_MAX; i++)
        if (h.credits[i].crossing == CROSSING) h.credits[i].millibytes[kind] = *own;
}

/* How long parcels take is as usual or slow. */
static void plainly(struct hedged *w)
{
    for (uint32_t i = 0; i < h.way_count; i++)
        if (ago(h.ways[i].taken_at) > 3 * step) h.ways[i].taken_at = NOW - 3 * step;
    for (uint32_t s = 0; s < SLOTS; s++) {
        struct tb_hedge_slot *slot = &h.slots[s];
        if (ago(slot->moved_at) >= 3 * step) slot->moved_at = 0;
        for (unsigned kind = 0; kind < 2; kind++)
            if (slot->parcel_ns[kind] != 0) slot->parcel_ns[kind] = is_slow(slot, kind) ? step : 1;
    }
    for (unsigned kind = 0; kind < 2; kind++)
        roughly(w, kind);
    for (uint32_t k = 0; k < CHUNKS; k++)
        if (w->first[k] == 0) w->c.shards[0].owner[k] = w->c.shards[0].again[k] = 0;
    in_order();
}

static bool hedged_give(void *world, const void *was, unsigned e)
{
    struct hedged *w = world;
    (void)was;
    unpack(&w->kept);
    if (!hedged_event(w, e)) return false;
    ways_are_true(w);
    plainly(w);
    pack(&w->kept);
    return true;
}

/* At half of what is sent few chunks pay for one; at what is usual the last chunk alone pays for
 * two of the others, and nothing for it. */
static void begin(struct hedged *w, bool known, uint32_t permille)
{
    memset(w, 0, sizeof *w);
    for (uint32_t k = 0; k < CHUNKS; k++)
        w->shard.chunks[k] = (struct tb_chunk){(uint64_t)k * CHUNK_BYTES, CHUNK_BYTES};
    if (permille == TB_HEDGE_PERMILLE) w->shard.chunks[LAST].bytes = PARCEL / TB_HEDGE_PERMILLE;
    w->shard.manifest = (struct tb_manifest){.chunk_count = CHUNKS, .chunks = w->shard.chunks};
    w->shard.held[0] = (1u << LAST) - 1;
    w->place =
        (struct tb_place){.manifest = &w->shard.manifest, .held = w->shard.held, .claimed = w->shard.claimed};
    assert_true(tb_outbound_bytes_for(&w->place, 1) <= sizeof w->memory);
    crossing_begins(w);
    tb_hedge_init(&h, permille);
    memset(&usual_kind, 0, sizeof usual_kind);
    usual_kind.time_count = usual_kind.time_at = known ? TB_HEDGE_TIMES_MAX : 0;
    for (uint32_t i = 0; known && i < TB_HEDGE_TIMES_MAX; i++)
        usual_kind.times[i] = TB_MS(100);
    step = 2 * (known ? TB_MS(100) : TB_MS(500)) + TB_MS(30);
    pack(&w->kept);
}

/* P4 P6 P7: of whole chunks and of differences, where it is known how long they usually take and
 * where it is not, and of how much may go again. */
static void every_event_in_every_state_of_a_hedge(void **state)
{
    (void)state;
    static struct hedged w;
    for (int i = 0; i < 4; i++) {
        const bool known = i >= 2;
        const uint32_t permille = known ? TB_HEDGE_PERMILLE : 500;
        on_base = i % 2 == 1;
        begin(&w, known, permille);
        near_the_end = stalled = lent = again_whole = 0;
        (void)explore_some(&(struct explore){&w, sizeof w, HEDGED_EVENTS, hedged_give}, 120000);
        printf("%u near the end, %u stalled, %u lent, %u whole\n", near_the_end, stalled, lent, again_whole);
        assert_true(near_the_end > 50 && stalled > 10 && lent > 10);
        assert_true(again_whole > 10 || !on_base || permille == TB_HEDGE_PERMILLE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_of_a_hedge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
