/* Every event in every state of the small cores behind a hop: its heartbeat, an emulated NIC, the
 * rails and the spinning of verbs, a shelf of encoded chunks. Now is always the same instant: when
 * time passes, what was moves back.
 *
 * Covers: intra/hop/heartbeat.c intra/fabric/nic_rate.c intra/verbs/rails.c
 * Covers: intra/verbs/poll_spin.c base/layout/shelf.c */
#include "base/layout/shelf.h"
#include "intra/hop/heartbeat.h"
#include "intra/hop/hop_shelf.h"
#include "intra/hop/token_bucket.h"
#include "intra/verbs/poll_spin.h"
#include "intra/verbs/rails.h"
#include "tests/fault/explore.h"

#define NOW TB_SECONDS(1000)

static void ago(tb_time_ns *at, tb_time_ns passed, tb_time_ns most)
{
    if (*at == 0 || *at == TB_TIME_NEVER) return;
    *at -= passed;
    if (*at < NOW - most) *at = NOW - most;
}

/* ---- heartbeat: time passes in half beats ---- */

#define BEAT TB_MS(500)

struct watch {
    struct tb_heartbeat h;
    tb_time_ns next;    /* when it wants to look */
    tb_time_ns silence; /* since it heard something, or since somebody looked late */
    bool lost;
};

static bool watch_looks(struct watch *w, const struct watch *was)
{
    const bool late = NOW > tb_time_add(w->h.look_at, w->h.every);
    if (late) w->silence = 0; /* it stood still itself */
    const tb_time_ns most = w->h.greeted ? BEAT * TB_HEARTBEAT_MISSED : w->h.open;
    const enum tb_heartbeat_do what = tb_heartbeat_look(&w->h, NOW, &w->next);
    assert_int_equal(what == TB_HEARTBEAT_LOST, w->silence >= most);
    assert_true(what != TB_HEARTBEAT_ASK || (w->h.greeted && !was->h.asked && w->silence >= BEAT));
    assert_true(what != TB_HEARTBEAT_ASK || w->h.asked); /* once, until it is answered */
    w->lost = what == TB_HEARTBEAT_LOST;
    if (w->lost) return true;
    assert_true(w->next > NOW && w->next <= NOW + most); /* P6: it is looked at again in time */
    if (w->h.greeted && !w->h.asked) assert_true(w->next <= NOW + BEAT);
    return true;
}

static bool watch_give(void *world, const void *was, unsigned e)
{
    struct watch *w = world;
    if (w->lost) return false;
    switch (e) {
    case 0: /* a word */
        tb_heartbeat_heard(&w->h, NOW);
        w->silence = 0;
        return true;
    case 1: /* the first, as pipe.c has it */
        if (w->h.greeted) return false;
        w->h.greeted = true;
        tb_heartbeat_heard(&w->h, NOW);
        w->silence = 0;
        return true;
    case 2:
        if (!w->h.asked) return false;
        w->h.asked = false;
        tb_heartbeat_heard(&w->h, NOW);
        w->silence = 0;
        return true;
    case 3:
        return watch_looks(w, was);
    default:
        ago(&w->h.heard_at, BEAT / 2, TB_SECONDS(8));
        ago(&w->h.look_at, BEAT / 2, TB_SECONDS(8));
        w->next = 0;
        if (w->silence < TB_SECONDS(8)) w->silence += BEAT / 2;
        return true;
    }
}

/* P6. */
static void every_event_in_every_state_of_a_heartbeat(void **state)
{
    (void)state;
    static struct watch w;
    tb_heartbeat_init(&w.h, TB_HEARTBEAT_MISSED * 500, 2000, NOW);
    assert_true(explore(&(struct explore){&w, sizeof w, 5, watch_give}) > 50);
}

/* ---- pace: a NIC of 64 MiB/s, whose bucket holds so much for 10 ms ---- */

#define QUANTUM TB_PACE_QUANTUM_BYTES
#define RATE    (QUANTUM * 1000)

struct paced {
    struct tb_pace p;
    uint64_t granted; /* and not given back */
};

static bool paced_give(void *world, const void *was, unsigned e)
{
    static const uint64_t wants[] = {1, QUANTUM / 2, QUANTUM, 3 * QUANTUM, 40 * QUANTUM};
    struct paced *w = world;
    const struct paced *before = was;
    if (e < 5) {
        const size_t got = tb_pace_take(&w->p, wants[e], NOW);
        assert_true(got <= wants[e] && got <= w->p.burst_bytes + before->granted);
        assert_true(got == 0 || got >= QUANTUM || got == wants[e]); /* nobody is woken for a few bytes */
        w->granted = got - got % (QUANTUM / 2);
        const tb_time_ns at = tb_pace_ready_at(&w->p, wants[e], NOW);
        if (got == 0) assert_true(at > NOW && at <= NOW + TB_MS(2)); /* P6 */
    } else if (e == 5) {
        if (w->granted == 0) return false;
        tb_pace_give_back(&w->p, w->granted);
        w->granted = 0;
    } else {
        ago(&w->p.at, TB_US(500), TB_MS(20));
    }
    w->p.tokens -= w->p.tokens % (QUANTUM / 4);
    return w->p.tokens <= w->p.burst_bytes + before->granted; /* P7: no more is saved up */
}

static void every_event_in_every_state_of_a_pace(void **state)
{
    (void)state;
    static struct paced w;
    tb_pace_init(&w.p, RATE, NOW);
    assert_true(explore(&(struct explore){&w, sizeof w, 7, paced_give}) > 50);
}

/* ---- spin ---- */

struct spinner {
    struct tb_spin s;
    bool again;
};

static bool spinner_give(void *world, const void *was, unsigned e)
{
    struct spinner *w = world;
    (void)was;
    if (e < 6) {
        const uint32_t count = e % 3, posted = e / 3;
        w->again = tb_spin_again(&w->s, count, posted, NOW);
        assert_true(!w->again || posted > 0); /* idle: it sleeps */
        if (count == 0 && w->s.last_at < NOW - 2 * TB_SPIN_GAP) assert_false(w->again);
        if (w->s.gap != TB_TIME_NEVER) w->s.gap -= w->s.gap % TB_US(5); /* as fine as it matters */
        return true;
    }
    ago(&w->s.last_at, e == 6 ? TB_US(20) : TB_US(300), TB_MS(1));
    return true;
}

static void every_event_in_every_state_of_a_spin(void **state)
{
    (void)state;
    static struct spinner w;
    tb_spin_init(&w.s);
    assert_true(explore(&(struct explore){&w, sizeof w, 8, spinner_give}) > 20);
}

/* ---- rails: two of ours, two of theirs ---- */

#define RAILS 2u

struct railed {
    struct tb_rails r;
    struct tb_rail theirs[RAILS];
    uint8_t failed[RAILS][RAILS]; /* times since it carried something for long */
};

static bool rests(const struct railed *w, uint32_t ours, uint32_t theirs, tb_time_ns *until_out)
{
    for (uint32_t i = 0; i < TB_RAIL_PATHS_MAX; i++) {
        const struct tb_rail_rest *rest = &w->r.rests[i];
        if (rest->failures == 0 || rest->ours.bytes[15] != ours || rest->theirs.bytes[15] != theirs) continue;
        *until_out = rest->until;
        return rest->until > NOW;
    }
    return false;
}

static void choose(const struct railed *w)
{
    struct tb_rail_path path = {9, 9};
    tb_time_ns again = 0, first = TB_TIME_NEVER, until = 0;
    bool may = false;
    for (uint32_t i = 0; i < RAILS * RAILS; i++) {
        if (w->r.rails[i / RAILS].down || w->theirs[i % RAILS].down) continue;
        const bool rested = !rests(w, i / RAILS, i % RAILS, &until);
        may |= rested;
        if (!rested) first = tb_time_min(first, until);
    }
    const enum tb_status status = tb_rails_choose(&w->r, w->theirs, RAILS, NOW, &path, &again);
    assert_int_equal(status, may ? TB_OK : TB_NOT_FOUND); /* P6: a source that may be tried is */
    assert_int_equal(again, first);
    if (status != TB_OK) return;
    assert_true(path.ours < RAILS && path.theirs < RAILS);
    assert_false(w->r.rails[path.ours].down || w->theirs[path.theirs].down ||
                 rests(w, path.ours, path.theirs, &until));
}

static bool railed_event(struct railed *w, unsigned e)
{
    const uint32_t ours = e % RAILS, theirs = e / RAILS % RAILS;
    struct tb_rail *a = &w->r.rails[ours], *b = &w->theirs[theirs];
    if (e < 4) {
        tb_time_ns rested_at = 0;
        const bool resting = rests(w, ours, theirs, &rested_at);
        if (!resting && w->failed[ours][theirs] == 2) return false;
        const tb_time_ns until = tb_rails_failed(&w->r, &a->address, &b->address, NOW);
        if (resting) { /* those that fail together are one failure */
            assert_int_equal(until, rested_at);
            return true;
        }
        assert_int_equal(until - NOW, TB_RAIL_REST_MIN << w->failed[ours][theirs]);
        w->failed[ours][theirs]++;
        return true;
    }
    if (e < 8) { /* for long, and not for long */
        tb_rails_carried(&w->r, &a->address, &b->address, NOW - TB_RAIL_PROVEN, NOW);
        w->failed[ours][theirs] = 0;
        return true;
    }
    if (e == 8) {
        const struct tb_rails before = w->r;
        tb_rails_carried(&w->r, &a->address, &b->address, NOW - TB_RAIL_PROVEN + 1, NOW);
        assert_memory_equal(&before, &w->r, sizeof before);
        return true;
    }
    if ((e -= 9) < 2) {
        w->r.rails[e].down = !w->r.rails[e].down;
        return true;
    }
    for (uint32_t i = 0; i < TB_RAIL_PATHS_MAX; i++)
        ago(&w->r.rests[i].until, TB_SECONDS(1), 0);
    return true;
}

static uint32_t path_of(const struct tb_rail_rest *rest)
{
    return rest->failures == 0 ? UINT32_MAX : rest->ours.bytes[15] * RAILS + rest->theirs.bytes[15];
}

/* Of a few that failed it is all the same in which row they stand, and when that was. */
static void rests_sort(struct tb_rails *r)
{
    for (uint32_t i = 0; i < RAILS * RAILS; i++) {
        for (uint32_t k = i; k > 0 && path_of(&r->rests[k]) < path_of(&r->rests[k - 1]); k--) {
            const struct tb_rail_rest swapped = r->rests[k];
            r->rests[k] = r->rests[k - 1];
            r->rests[k - 1] = swapped;
        }
    }
    for (uint32_t i = 0; i < TB_RAIL_PATHS_MAX; i++) {
        if (r->rests[i].failures == 0) memset(&r->rests[i], 0, sizeof r->rests[i]);
        r->rests[i].failed_at = 0;
    }
}

static bool railed_give(void *world, const void *was, unsigned e)
{
    struct railed *w = world;
    (void)was;
    if (!railed_event(w, e)) return false;
    choose(w);
    rests_sort(&w->r);
    return true;
}

/* P6. */
static void every_event_in_every_state_of_rails(void **state)
{
    (void)state;
    static struct railed w;
    w.r.count = RAILS;
    for (uint32_t i = 0; i < RAILS; i++) {
        w.r.rails[i].address.bytes[15] = w.theirs[i].address.bytes[15] = (uint8_t)i;
        w.theirs[i].address.bytes[0] = 1;
    }
    assert_true(explore(&(struct explore){&w, sizeof w, 12, railed_give}) > 100);
}

/* ---- a shelf, as a reader sees it: words of anybody's ---- */

#define LINES       2u
#define CHUNK_BYTES 4000u
#define ROOM        1000u

struct shelved {
    struct tb_hop_shelf s;
    uint64_t memory[16];
};

static const struct tb_id known = {.bytes = {1}}, other = {.bytes = {2}};

static uint32_t chunk_bytes(void *user, uint32_t line)
{
    (void)user, (void)line;
    return CHUNK_BYTES;
}

/* state: UNKNOWN, OPEN of our base, OPEN of another, CLOSED of ours; with bits. */
static bool shelf_head(struct shelved *w, unsigned what, uint64_t bits)
{
    static uint64_t memory[64];
    struct tb_shelf shelf;
    memset(memory, 0, sizeof memory);
    tb_shelf_init(&shelf, memory, LINES, ROOM);
    if (what > 0) tb_shelf_open(&shelf, what == 2 ? &other : &known);
    if (what == 3) tb_shelf_close(&shelf);
    shelf.head[TB_SHELF_HEAD_WORDS] = bits;
    const uint64_t listed = w->s.listed[0];
    const enum tb_status status = tb_hop_shelf_head(&w->s, shelf.head);
    assert_int_equal(status, bits >> LINES == 0 ? TB_OK : TB_PEER_GARBLED);
    assert_int_equal(w->s.listed[0], status == TB_OK ? listed | bits : listed); /* it only grows */
    return true;
}

/* Entries for all lines: an encoded chunk, none, one out of the room, one larger than its chunk. */
static bool shelf_entries(struct shelved *w, unsigned what)
{
    uint64_t memory[64] = {0};
    struct tb_shelf shelf;
    uint32_t first = 9, count = 9;
    if (!tb_hop_shelf_wanted(&w->s, &first, &count)) return false;
    assert_true(first < LINES && count > 0 && first + count <= LINES);
    assert_true(tb_bitmap_test(w->s.listed, first) && !tb_bitmap_test(w->s.known, first));
    tb_shelf_init(&shelf, memory, LINES, ROOM);
    tb_shelf_open(&shelf, &known);
    const uint8_t bytes[100] = {0};
    const struct tb_codec_coded coded = {{TB_CODEC_ZSTD, false}, bytes, what == 0 ? 100 : 0};
    for (uint32_t k = 0; k < LINES; k++)
        tb_shelf_put(&shelf, k, what == 0 ? &coded : NULL);
    const uint64_t *words = memory + tb_shelf_entry_offset(LINES, first) / 8;
    CHECK_OK(tb_hop_shelf_entries(&w->s, first, words, count, chunk_bytes, w));
    for (uint32_t k = first; k < first + count; k++)
        if (tb_bitmap_test(w->s.listed, k)) assert_true(tb_bitmap_test(w->s.known, k));
    return true;
}

static bool shelved_event(struct shelved *w, unsigned e)
{
    if (e < 20) return shelf_head(w, e / 5, e % 5);
    if ((e -= 20) < 2) return shelf_entries(w, e);
    if ((e -= 2) < LINES) { /* the encoded chunk is asked for, and */
        if (tb_hop_shelf_find(&w->s, e) != e) return false;
        return tb_bitmap_set(w->s.busy, e);
    }
    if ((e -= LINES) < LINES) { /* came, or did not */
        if (!tb_bitmap_test(w->s.busy, e)) return false;
        tb_hop_shelf_done(&w->s, e);
        return true;
    }
    if ((e -= LINES) < 2) {
        tb_hop_shelf_round(&w->s, e == 1, NOW);
        if (w->s.waits_since != 0 && w->s.waits_since <= NOW - TB_HOP_SHELF_PATIENCE)
            assert_false(w->s.patient);
        return true;
    }
    ago(&w->s.waits_since, TB_MS(200), TB_SECONDS(1));
    return true;
}
#define SHELVED_EVENTS (20 + 2 + LINES + LINES + 2 + 1)

static bool shelved_give(void *world, const void *was, unsigned e)
{
    struct shelved *w = world;
    const struct shelved *before = was;
    if (!shelved_event(w, e)) return false;
    assert_int_equal(w->s.known[0] & ~w->s.listed[0], 0);
    assert_int_equal(before->s.done[0] & ~w->s.done[0], 0);
    for (uint32_t k = 0; k < LINES; k++) {
        const uint32_t found = tb_hop_shelf_find(&w->s, k);
        assert_true(found >= k && found <= LINES);
        if (found < LINES)
            assert_true(tb_bitmap_test(w->s.known, found) && !tb_bitmap_test(w->s.done, found));
        /* P6: a chunk of which nobody has told is not waited for without end, and what is
         * dealt with not at all. */
        if (!w->s.patient && !tb_bitmap_test(w->s.listed, k)) assert_false(tb_hop_shelf_awaited(&w->s, k));
        if (tb_bitmap_test(w->s.done, k)) assert_false(tb_hop_shelf_awaited(&w->s, k));
        if (tb_hop_shelf_awaited(&w->s, k) && w->s.head.state != TB_SHELF_UNKNOWN)
            assert_true(tb_hop_shelf_fits(&w->s));
    }
    return true;
}

/* P6. */
static void every_event_in_every_state_of_a_shelf(void **state)
{
    (void)state;
    static struct shelved w;
    static const struct tb_place *const places[1];
    for (int keeps = 0; keeps < 2; keeps++) {
        assert_true(tb_hop_shelf_bytes(LINES) <= sizeof w.memory);
        tb_hop_shelf_init(&w.s, w.memory, LINES);
        w.s.base = (struct tb_hop_base){.uid = known, .places = places};
        w.s.decodes = true;
        w.s.keeps = keeps == 1;
        assert_true(explore(&(struct explore){&w, sizeof w, SHELVED_EVENTS, shelved_give}) > 100);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_of_a_heartbeat),
        cmocka_unit_test(every_event_in_every_state_of_a_pace),
        cmocka_unit_test(every_event_in_every_state_of_a_spin),
        cmocka_unit_test(every_event_in_every_state_of_rails),
        cmocka_unit_test(every_event_in_every_state_of_a_shelf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
