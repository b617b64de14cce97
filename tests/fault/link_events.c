/* Every event in every state of the cores of a link: a crossing and a landing of three
 * chunks, and a session.
 *
 * Covers: wan/link/session/link_frames.c */
#include "tests/fault/explore.h"
#include "tests/unit/wan/small_places.h"
#include "wan/link/session/link_session.h"
#include "wan/send/inbound.h"
#include "wan/send/outbound_parcels.h"

#define CHUNKS      3u
#define CHUNK_BYTES 200000u /* two make a parcel */
#define SLOTS       2u

/* As struct small_place, with room for these alone: a state is copied often. */
struct few {
    struct tb_chunk chunks[CHUNKS];
    struct tb_manifest manifest;
    uint64_t held[1], claimed[1];
};

static void few_init(struct few *s, struct tb_place *place_out)
{
    for (uint32_t k = 0; k < CHUNKS; k++)
        s->chunks[k] = (struct tb_chunk){(uint64_t)k * CHUNK_BYTES, CHUNK_BYTES};
    s->manifest = (struct tb_manifest){.chunk_count = CHUNKS, .chunks = s->chunks};
    *place_out = (struct tb_place){.manifest = &s->manifest, .held = s->held, .claimed = s->claimed};
}

static bool bit_of(const uint64_t *words, uint32_t k)
{
    return (words[0] >> k & 1) != 0;
}

/* ---- crossing ---- */

struct sender {
    struct few shard;
    struct tb_place place;
    struct tb_outbound c;
    uint64_t memory[32];
    struct tb_parcel queued[CHUNKS]; /* parcels that no stream took, by their first chunk; count 0: none */
    uint8_t on[CHUNKS];              /* 0: not on its way, 1: queued, 2 and more: slot + 2 */
};

/* One refusal tells what there is to tell; they would count on for ever. */
static bool was_refused(const struct sender *w)
{
    return w->c.refusals.count > 0;
}

static bool send_next(struct sender *w)
{
    struct tb_parcel p;
    if (!tb_outbound_next(&w->c, &p)) return true;
    assert_true(tb_outbound_state_started(w->c.state) && p.shard == 0 && p.count > 0 &&
                p.first + p.count <= CHUNKS);
    for (uint32_t k = p.first; k < p.first + p.count; k++) {
        assert_false(bit_of(w->c.shards[0].peer, k)); /* P5 */
        assert_true(bit_of(w->shard.held, k));        /* P1: only what is held goes */
        assert_int_equal(w->on[k], 0);                /* P4: nothing goes twice at once */
        w->on[k] = 1;
    }
    assert_int_equal(w->queued[p.first].count, 0);
    w->queued[p.first] = p;
    return true;
}

static bool move_queued(struct sender *w, uint32_t row, uint32_t slot)
{
    struct tb_parcel *p = &w->queued[row];
    if (p->count == 0) return false;
    for (uint32_t k = p->first; k < p->first + p->count && k < CHUNKS; k++)
        if (w->on[k] == 1) w->on[k] = slot < SLOTS ? (uint8_t)(slot + 2) : 0;
    if (slot < SLOTS)
        tb_outbound_taken(&w->c, p, slot);
    else
        tb_outbound_unqueued(&w->c, p);
    memset(p, 0, sizeof *p);
    return true;
}

static bool hear_held(struct sender *w, const struct sender *was, uint32_t shard, struct tb_held_word word)
{
    const struct tb_span span = small_words(&word, 1);
    if (tb_outbound_held(&w->c, shard, &span) != TB_OK) {
        assert_true(shard > 0 || word.index > 0 || word.word >> CHUNKS != 0 ||
                    (was->c.shards[0].peer[0] & ~word.word) != 0);
        assert_memory_equal(w, was, sizeof *w);
        return true;
    }
    for (uint32_t k = 0; k < CHUNKS; k++)
        if ((word.word >> k & 1) != 0) w->on[k] = 0;
    return true;
}

static bool hear_refused(struct sender *w, const struct sender *was, uint32_t shard, uint32_t chunk,
                         enum tb_refusal why)
{
    uint32_t times = 77;
    const struct tb_frame_refused m = {.shard = shard, .chunk = chunk, .why = why};
    if (why != TB_REFUSAL_LOST && was_refused(w)) return false;
    if (tb_outbound_refused(&w->c, &m, &times) != TB_OK) {
        assert_true(shard > 0 || chunk >= CHUNKS || bit_of(was->c.shards[0].peer, chunk));
        assert_memory_equal(w, was, sizeof *w);
        return true;
    }
    assert_true(times <= 1);
    if (w->on[chunk] > 1) w->on[chunk] = 0;
    return true;
}

static bool sender_event(struct sender *w, const struct sender *was, unsigned e)
{
    if (e < CHUNKS) return tb_bitmap_set(w->shard.held, e);
    if ((e -= CHUNKS) == 0) return send_next(w);
    if ((e -= 1) < CHUNKS * (SLOTS + 1)) return move_queued(w, e % CHUNKS, e / CHUNKS);
    if ((e -= CHUNKS * (SLOTS + 1)) < SLOTS) {
        uint32_t released = 0;
        for (uint32_t k = 0; k < CHUNKS; k++) {
            released += w->on[k] == e + 2;
            if (w->on[k] == e + 2) w->on[k] = 0;
        }
        assert_int_equal(tb_outbound_stream_gone(&w->c, e), released);
        return true;
    }
    if ((e -= SLOTS) < 16)
        return hear_held(w, was, 0, (struct tb_held_word){0, e}); /* 8 and more: chunk 3 of 3 */
    if ((e -= 16) < 2) return hear_held(w, was, e, (struct tb_held_word){1 - e, 1});
    if ((e -= 2) < 8) return hear_refused(w, was, 0, e % 4, e < 4 ? TB_REFUSAL_DIGEST : TB_REFUSAL_LOST);
    if ((e -= 8) == 0) return hear_refused(w, was, 1, 0, TB_REFUSAL_DIGEST);
    if (tb_outbound_start(&w->c) != TB_OK) assert_memory_equal(w, was, sizeof *w);
    return true;
}
#define SENDER_EVENTS (CHUNKS + 1 + CHUNKS * (SLOTS + 1) + SLOTS + 16 + 2 + 8 + 1 + 1)

static bool sender_give(void *world, const void *was, unsigned e)
{
    struct sender *w = world;
    if (!sender_event(w, was, e)) return false;
    const struct tb_outbound_shard *s = &w->c.shards[0];
    assert_int_equal(w->c.peer_held, (uint64_t)__builtin_popcountll(s->peer[0]));
    assert_int_equal(tb_outbound_whole(&w->c), s->peer[0] == (1u << CHUNKS) - 1);
    assert_int_equal(s->busy[0] & s->peer[0], 0);
    for (uint32_t k = 0; k < CHUNKS; k++) {
        assert_int_equal(bit_of(s->busy, k), w->on[k] != 0);
        if (w->on[k] == 0) s->owner[k] = 0; /* of nobody: no state */
    }
    return true;
}

/* P1 P4 P5. */
static void every_event_in_every_state_of_a_crossing(void **state)
{
    (void)state;
    static struct sender w;
    few_init(&w.shard, &w.place);
    assert_true(tb_outbound_bytes_for(&w.place, 1) <= sizeof w.memory);
    tb_outbound_init(&w.c, &w.place, 1, w.memory);
    assert_true(explore(&(struct explore){&w, sizeof w, SENDER_EVENTS, sender_give}) > 1000);
}

/* ---- landing ---- */

struct receiver {
    struct few shard;
    struct tb_place place;
    struct tb_inbound l;
    uint64_t memory[16];
    uint64_t told; /* chunks that the peer knows */
};

static bool tell(struct receiver *w)
{
    struct tb_held_word words[4];
    uint32_t shard = 9;
    const uint32_t count = tb_inbound_differences(&w->l, &shard, words, 4);
    assert_true(count <= 1);
    if (count == 0) return true;
    assert_true(shard == 0 && words[0].index == 0 && words[0].word == w->shard.held[0]);
    assert_true((words[0].word & ~w->told) != 0 && (w->told & ~words[0].word) == 0); /* it only grows */
    w->told = words[0].word;
    return true;
}

static bool ask_again(struct receiver *w, const struct receiver *was)
{
    struct tb_inbound_chunk c;
    const bool again = tb_inbound_again(&w->l, &c);
    memset(&w->l.dropped[w->l.dropped_count], 0,
           4 * sizeof w->l.dropped[0]); /* what is behind the end is no state */
    if (!again) return true;
    bool was_dropped = false;
    for (uint32_t i = 0; i < was->l.dropped_count; i++)
        was_dropped = was_dropped || was->l.dropped[i].chunk == c.chunk;
    assert_true(was_dropped && c.shard == 0);
    assert_false(bit_of(w->shard.held, c.chunk) ||
                 bit_of(w->shard.claimed, c.chunk)); /* P6, and nothing twice */
    return true;
}

static bool drop(struct receiver *w, uint32_t chunk)
{
    if (w->l.dropped_count > 0) return false;
    const uint32_t before = w->l.dropped_count;
    assert_true(tb_inbound_dropped(&w->l, 0, chunk));
    assert_int_equal(w->l.dropped_count, before + !bit_of(w->shard.held, chunk));
    return true;
}

static bool bad(struct receiver *w, uint32_t chunk)
{
    if (w->l.refusals.count > 0) return false;
    assert_int_equal(tb_inbound_bad(&w->l, 0, chunk), 1);
    return true;
}

static bool receiver_event(struct receiver *w, const struct receiver *was, unsigned e)
{
    const uint32_t k = e % CHUNKS;
    switch (e / CHUNKS) {
    case 0: /* another writer claims it */
        return !bit_of(w->shard.held, k) && tb_bitmap_set(w->shard.claimed, k);
    case 1: /* and has landed it */
        return tb_bitmap_clear(w->shard.claimed, k) && tb_bitmap_set(w->shard.held, k);
    case 2: /* or gives up */
        return tb_bitmap_clear(w->shard.claimed, k);
    case 3: /* it was rotten */
        return tb_bitmap_clear(w->shard.held, k);
    case 4:
        return drop(w, k);
    case 5:
        return bad(w, k);
    default:
        break;
    }
    switch (e - 6 * CHUNKS) {
    case 0:
        return tell(w);
    case 1:
        return ask_again(w, was);
    case 2:
        tb_inbound_told(&w->l, TB_SECONDS(1));
        assert_false(tb_inbound_due(&w->l, TB_SECONDS(1)));
        return true;
    default:
        tb_inbound_rewind(&w->l);
        memset(w->l.dropped, 0, sizeof w->l.dropped);
        w->told = 0;
        return true;
    }
}

static bool receiver_give(void *world, const void *was, unsigned e)
{
    struct receiver *w = world;
    if (!receiver_event(w, was, e)) return false;
    assert_int_equal(tb_inbound_whole(&w->l), w->told == (1u << CHUNKS) - 1);
    const struct tb_chunk_frame frames[] = {{.shard = 0, .chunk = 0, .raw_bytes = CHUNK_BYTES},
                                            {.shard = 1, .chunk = 0, .raw_bytes = CHUNK_BYTES},
                                            {.shard = 0, .chunk = CHUNKS, .raw_bytes = CHUNK_BYTES},
                                            {.shard = 0, .chunk = 0, .raw_bytes = CHUNK_BYTES + 1}};
    for (int i = 0; i < 4; i++)
        assert_int_equal(tb_inbound_check(&w->place, 1, &frames[i]), i == 0 ? TB_OK : TB_PEER_GARBLED);
    return true;
}

/* P4 P6. */
static void every_event_in_every_state_of_a_landing(void **state)
{
    (void)state;
    static struct receiver w;
    few_init(&w.shard, &w.place);
    assert_true(tb_inbound_bytes_for(&w.place, 1) <= sizeof w.memory);
    tb_inbound_init(&w.l, &w.place, 1, w.memory);
    assert_true(explore(&(struct explore){&w, sizeof w, 6 * CHUNKS + 4, receiver_give}) > 1000);
}

/* ---- the session ---- */

/* Events: each kind with each of its arguments, at one instant; what waits is set back, so that
 * times are no states. */
static bool session_give(void *world, const void *was, unsigned e)
{
    struct tb_link_session *s = world;
    const struct tb_link_session *before = was;
    struct tb_link_session_todo todo;
    const struct tb_link_session_event ev = {.now = TB_SECONDS(9),
                                             .kind =
                                                 (enum tb_link_session_event_kind)(e % TB_LINK_EVENT_COUNT),
                                             .random = e / TB_LINK_EVENT_COUNT % 2 == 0 ? 0 : UINT64_MAX,
                                             .peer_fault = e / TB_LINK_EVENT_COUNT / 2 % 2 == 1,
                                             .dialled_by_us = e / TB_LINK_EVENT_COUNT / 4 % 2 == 1,
                                             .incarnation = 5 + e / TB_LINK_EVENT_COUNT / 8 % 2};
    if (ev.kind == TB_LINK_DUE && before->next_dial_at == TB_TIME_NEVER) return false; /* it never comes */
    if (tb_link_session_step(s, &ev, &todo) != TB_OK) {
        assert_memory_equal(s, before, sizeof *s);
        return true;
    }
    assert_true(s->state < TB_LINK_STATE_COUNT && s->incarnation_seen >= before->incarnation_seen);
    assert_true(!todo.dial || s->config.can_dial);
    assert_true(before->state != TB_LINK_STOPPED || s->state == TB_LINK_STOPPED);
    assert_true(s->state != TB_LINK_STOPPED || s->next_dial_at == TB_TIME_NEVER);
    assert_true(s->next_dial_at == TB_TIME_NEVER || s->next_dial_at <= ev.now + s->config.retry_max ||
                s->next_dial_at <= ev.now + s->config.fresh_dial);
    /* P6: a link that rests and may dial will. */
    assert_true(s->state != TB_LINK_RESTING || !s->config.can_dial || s->next_dial_at != TB_TIME_NEVER);
    if (s->attempts > 8) s->attempts = 8; /* the bound of the wait was reached */
    if (s->next_dial_at != TB_TIME_NEVER) s->next_dial_at = TB_SECONDS(9);
    return true;
}

static void every_event_in_every_state_of_a_session(void **state)
{
    (void)state;
    static struct tb_link_session s;
    for (int can_dial = 0; can_dial < 2; can_dial++) {
        struct tb_link_session_config config = {.protocol_max = TB_LINK_PROTOCOL,
                                                .can_dial = can_dial == 1,
                                                .retry_min = TB_MS(100),
                                                .retry_max = TB_SECONDS(5),
                                                .fresh_dial = TB_MS(250)};
        CHECK_OK(tb_identity_parse("tombolo://east/gw", &config.self));
        CHECK_OK(tb_identity_parse("tombolo://west/gw", &config.peer));
        tb_link_session_init(&s, &config, TB_SECONDS(9));
        const unsigned events = TB_LINK_EVENT_COUNT * 16;
        assert_true(explore(&(struct explore){&s, sizeof s, events, session_give}) > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_of_a_crossing),
        cmocka_unit_test(every_event_in_every_state_of_a_landing),
        cmocka_unit_test(every_event_in_every_state_of_a_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
