/* Every event in every state of the cores that share a link and a version out: the divider, whose
 * turn it is, flows, a day's budget, the cap. Now is always the same instant: when time passes,
 * what was moves back, and what was long ago is all the same.
 *
 * Covers: wan/send/source_division.c wan/send/sender_turn.c wan/send/fair_queue.c
 * Covers: wan/send/budget.c wan/send/rate_cap.c */
#include "tests/fault/explore.h"
#include "tests/unit/wan/small_places.h"
#include "wan/send/budget.h"
#include "wan/send/fair_queue.h"
#include "wan/send/rate_cap.h"
#include "wan/send/sender_turn.h"
#include "wan/send/source_division.h"

#define NOW TB_SECONDS(1000)

static void ago(tb_time_ns *at, tb_time_ns passed, tb_time_ns most)
{
    if (*at == 0) return;
    *at -= passed;
    if (*at < NOW - most) *at = NOW - most;
}

/* ---- divide: two sites, or one and a lane beside us; all that was is of now or long ago ---- */

#define CHUNKS  2u
#define SOURCES 2u
#define NEAR    1u
#define PASSED  TB_MS(1300) /* over all that it waits for */

struct divided {
    struct tb_chunk chunks[CHUNKS];
    struct tb_manifest manifest;
    uint64_t held[1], claimed[1];
    struct tb_place place;
    struct tb_divide d;
    _Alignas(16) uint8_t memory[2048];
    uint64_t told[SOURCES]; /* what each knows that it may send */
    bool lanes;
};

static uint64_t lacking(const struct divided *w)
{
    return (UINT64_C(1) << CHUNKS) - 1 - w->held[0];
}

static void joins(struct divided *w, uint32_t source)
{
    /* The first free row is that of the source, as those before it are on. */
    assert_int_equal(tb_divide_join(&w->d, NOW), source);
    if (w->lanes && source == NEAR) tb_divide_near(&w->d, source);
}

static bool hears(struct divided *w, uint32_t source, uint64_t word)
{
    const struct tb_held_word held = {0, word};
    const struct tb_span span = small_words(&held, 1);
    if (!w->d.sources[source].on) return false;
    assert_int_equal(tb_divide_has(&w->d, source, 0, &span), word >> CHUNKS == 0 ? TB_OK : TB_PEER_GARBLED);
    return true;
}

/* One that it was told to send, or that came by another way. */
static bool comes(struct divided *w, uint32_t k)
{
    return tb_bitmap_set(w->held, k);
}

static bool bytes_come(struct divided *w, uint32_t source)
{
    struct tb_divide_source *s = &w->d.sources[source];
    if (!s->on) return false;
    tb_divide_received(&w->d, source, 1 - s->received_bytes,
                       NOW); /* another sum: which is all that it looks at */
    return true;
}

/* Its gateway speaks, and did so before: by now all is read that it had to say. */
static bool speaks(struct divided *w, uint32_t source)
{
    struct tb_divide_source *s = &w->d.sources[source];
    if (!s->on || !s->near) return false;
    s->heard_at = NOW - TB_DIVIDE_EVERY;
    tb_divide_heard(&w->d, source, NOW);
    s->known_at = NOW;
    return true;
}

/* Each is told at once, and once. */
static void tell(struct divided *w, uint32_t source)
{
    struct tb_held_word word;
    uint32_t shard = 9;
    if (!w->d.sources[source].on || tb_divide_news(&w->d, source, &shard, &word, 1) == 0) return;
    assert_true(shard == 0 && word.index == 0 && word.word != w->told[source]);
    w->told[source] = word.word;
    assert_int_equal(tb_divide_news(&w->d, source, &shard, &word, 1), 0); /* it knows it now */
}

static void pass(struct divided *w)
{
    for (uint32_t i = 0; i < SOURCES; i++) {
        struct tb_divide_source *s = &w->d.sources[i];
        tb_time_ns *times[] = {&s->measured_at, &s->moved_at,  &s->silent_until, &s->came_at,
                               &s->busy_at,     &s->landed_at, &s->heard_at,     &s->known_at};
        for (size_t t = 0; t < sizeof times / sizeof times[0]; t++)
            ago(times[t], PASSED, PASSED);
    }
    /* It was looked at meanwhile, and nothing was seen. */
}

/* P6: a chunk of a source that is heard is on its way, from one of them. The other lane's share
 * comes from far only where it would be late with that, which is not for here. */
static void all_is_given(const struct divided *w)
{
    const struct tb_divide_shard *s = &w->d.shards[0];
    const struct tb_divide_source *near = &w->d.sources[NEAR];
    const uint64_t from_far = w->lanes && near->on && !near->silent ? s->ours[0] : UINT64_MAX;
    uint64_t may = 0, given = 0;
    for (uint32_t i = 0; i < SOURCES; i++) {
        if (!w->d.sources[i].on) continue;
        if (!w->d.sources[i].silent) may |= s->of[i].has[0] & (w->d.sources[i].near ? UINT64_MAX : from_far);
        given |= s->of[i].mine[0];
    }
    assert_int_equal(may & lacking(w) & ~given, 0);
}

static bool divided_event(struct divided *w, unsigned e)
{
    if (e < SOURCES) { /* it goes, and comes back */
        const bool on = w->d.sources[e].on;
        for (uint32_t i = 0; i < e && !on; i++)
            if (!w->d.sources[i].on) return false;
        if (on)
            tb_divide_leave(&w->d, e);
        else
            joins(w, e);
        w->told[e] = 0;
        return true;
    }
    if ((e -= SOURCES) < SOURCES * 5) return hears(w, e % SOURCES, e / SOURCES);
    if ((e -= SOURCES * 5) < CHUNKS) return comes(w, e);
    if ((e -= CHUNKS) < CHUNKS) return tb_bitmap_clear(w->held, e); /* it was rotten */
    if ((e -= CHUNKS) < SOURCES) return bytes_come(w, e);
    if ((e -= SOURCES) == 0) {
        pass(w);
        return true;
    }
    if (e == 1) return speaks(w, NEAR);
    tb_divide_step(&w->d, NOW);
    all_is_given(w);
    return true;
}
#define DIVIDED_EVENTS (SOURCES + SOURCES * 5 + CHUNKS + CHUNKS + SOURCES + 3)

/* How fast they were is known or not; what only counts on is no state. */
static void plainly(struct divided *w)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        struct tb_divide_source *s = &w->d.sources[i];
        if (!s->on) memset(s, 0, sizeof *s);
        if (s->bytes_per_s > 0) s->bytes_per_s = 100000;
        if (s->landed_per_s > 0) s->landed_per_s = 100000;
        if (s->came_bytes > 0)
            s->came_bytes = 200000;
        else if (s->on)
            s->measured_at = NOW;
        if (s->on && s->given_bytes == 0) s->came_at = s->moved_at = NOW;
        if (s->on && s->given_bytes == 0) s->busy_at = NOW;
        if (s->on && !s->near) s->landed_at = s->heard_at = s->known_at = NOW;
        if (s->silent_until <= NOW) s->silent_until = 0;
        s->nothing_at = s->nothing_at == w->d.freed;
        s->window_bytes = s->window_bytes == 0 ? 0 : TB_DIVIDE_BYTES_MIN;
        s->landed_then_bytes = s->landed_then_bytes < s->landed_bytes ? 0 : s->landed_bytes;
    }
    w->d.freed = 1;
    if (w->d.stepped_at != 0) w->d.stepped_at = NOW;
    w->d.in_hand_at = NOW;
}

static bool divided_give(void *world, const void *was, unsigned e)
{
    struct divided *w = world;
    (void)was;
    if (!divided_event(w, e)) return false;
    for (uint32_t i = 0; i < SOURCES; i++)
        tell(w, i);
    const struct tb_divide_shard *s = &w->d.shards[0];
    uint64_t given = 0;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const uint64_t mine = s->of[i].mine[0];
        assert_int_equal(mine & given, 0); /* P5: one of them */
        assert_int_equal(mine & ~s->of[i].has[0], 0);
        assert_true(mine == 0 || w->d.sources[i].on);
        assert_int_equal(mine & ~s->of[i].take[0], 0); /* it may send what it is to send */
        assert_int_equal(w->d.sources[i].given_bytes, 200000u * (unsigned)__builtin_popcountll(mine));
        given |= mine;
    }
    assert_int_equal(s->given[0] & ~s->seen[0], given & ~s->seen[0]);
    plainly(w);
    return true;
}

/* P5 P6. */
static void every_event_in_every_state_of_a_divider(void **state)
{
    (void)state;
    static struct divided w;
    for (uint32_t k = 0; k < CHUNKS; k++)
        w.chunks[k] = (struct tb_chunk){(uint64_t)k * 200000, 200000};
    w.manifest = (struct tb_manifest){.chunk_count = CHUNKS, .chunks = w.chunks};
    w.place = (struct tb_place){.manifest = &w.manifest, .held = w.held, .claimed = w.claimed};
    assert_true(tb_divide_bytes_for(&w.place, 1) <= sizeof w.memory);
    for (int lanes = 0; lanes < 2; lanes++) {
        memset(w.held, 0, sizeof w.held);
        memset(w.told, 0, sizeof w.told);
        w.lanes = lanes == 1;
        tb_divide_init(&w.d, &w.place, 1, 0, w.memory);
        if (w.lanes) tb_divide_lane(&w.d, 0, 2);
        assert_int_equal(explore_some(&(struct explore){&w, sizeof w, DIVIDED_EVENTS, divided_give}, 20000),
                         20000);
    }
}

/* ---- turn: three peers, one of which sends ---- */

#define PEERS 3u
#define RTT   TB_MS(500)

struct turns {
    struct tb_turn peers[PEERS];
    uint32_t sends;
    uint32_t waited[PEERS]; /* turns of others */
};

/* Of those that wait only the order counts in which they began. */
static void in_order(struct turns *w)
{
    tb_time_ns began[PEERS];
    for (uint32_t i = 0; i < PEERS; i++)
        began[i] = w->peers[i].begun_at;
    for (uint32_t i = 0; i < PEERS; i++) {
        tb_time_ns before = 0;
        for (uint32_t k = 0; k < PEERS; k++)
            before += began[k] < began[i];
        if (began[i] != 0) w->peers[i].begun_at = NOW - PEERS + before;
        if (i != w->sends) w->peers[i].moved_at = 0;
    }
}

static void turn_passes(struct turns *w)
{
    uint32_t next = (w->sends + 1) % PEERS;
    for (uint32_t i = 0; i < PEERS; i++)
        if (i != w->sends && tb_turn_before(&w->peers[i], &w->peers[next])) next = i;
    assert_true(next != w->sends);
    for (uint32_t i = 0; i < PEERS; i++)
        w->waited[i] = i == next ? 0 : w->waited[i] + 1;
    w->sends = next;
    tb_turn_begin(&w->peers[next], NOW);
    assert_false(tb_turn_over(&w->peers[next], RTT, NOW));
}

static bool turns_give(void *world, const void *was, unsigned e)
{
    struct turns *w = world;
    struct tb_turn *sender = &w->peers[w->sends];
    (void)was;
    if (e == 0) {
        tb_turn_came(sender, 1 - sender->came, NOW);
        assert_false(tb_turn_over(sender, RTT, NOW)); /* who brings something goes on */
    } else if (e == 1) {
        tb_turn_came(sender, sender->came, NOW); /* nothing new */
    } else if (e == 2) {
        if (!tb_turn_over(sender, RTT, NOW)) return false;
        turn_passes(w);
    } else {
        for (uint32_t i = 0; i < PEERS; i++) {
            ago(&w->peers[i].begun_at, TB_SECONDS(1), TB_SECONDS(4));
            ago(&w->peers[i].moved_at, TB_SECONDS(1), TB_SECONDS(4));
        }
        if (sender->moved_at <= NOW - TB_TURN_PATIENCE - 2 * RTT) assert_true(tb_turn_over(sender, RTT, NOW));
    }
    for (uint32_t i = 0; i < PEERS; i++)
        assert_true(w->waited[i] < PEERS); /* P6: it is everybody's turn in time */
    in_order(w);
    return true;
}

static void every_event_in_every_state_of_a_turn(void **state)
{
    (void)state;
    static struct turns w;
    tb_turn_begin(&w.peers[0], NOW);
    assert_true(explore(&(struct explore){&w, sizeof w, 4, turns_give}) > 20);
}

/* ---- fair: flows that come and go, of weights 1, 2 and 3 ---- */

#define FLOWS 3u
#define PIECE 6000u

struct flows {
    struct tb_fair f;
    uint32_t passed_over[FLOWS]; /* times, while it had something to send */
};

static bool flow_served(struct flows *w, uint32_t silent)
{
    const uint32_t flow = tb_fair_next(&w->f, silent | ~0u << FLOWS);
    bool any = false;
    for (uint32_t i = 0; i < FLOWS; i++)
        any = any || (w->f.flows[i].weight != 0 && (silent >> i & 1) == 0);
    assert_int_equal(flow != TB_FAIR_NONE, any);
    if (flow == TB_FAIR_NONE) return false;
    assert_true(w->f.flows[flow].weight != 0 && (silent >> flow & 1) == 0);
    tb_fair_spend(&w->f, flow, PIECE);
    for (uint32_t i = 0; i < FLOWS; i++) {
        const bool waits = i != flow && w->f.flows[i].weight != 0 && (silent >> i & 1) == 0;
        w->passed_over[i] = waits ? w->passed_over[i] + 1 : 0;
        assert_true(w->passed_over[i] <= 7); /* P6: the others' weights over its own, and a piece of each */
    }
    return true;
}

static bool flows_give(void *world, const void *was, unsigned e)
{
    struct flows *w = world;
    (void)was;
    if (e < 3) {
        if (tb_fair_next(&w->f, 7 & ~(1u << e)) != TB_FAIR_NONE) return false; /* it is there */
        for (uint32_t i = 0; i < e; i++)
            if (w->f.flows[i].weight == 0) return false; /* its row is another's */
        const uint32_t flow = tb_fair_join(&w->f, e + 1);
        assert_int_equal(flow, e);
        assert_true(w->f.flows[flow].at >= w->f.now); /* no claim on what went before */
        memset(w->passed_over, 0, sizeof w->passed_over);
    } else if (e < 6) {
        if (w->f.flows[e - 3].weight == 0) return false;
        tb_fair_leave(&w->f, e - 3);
        w->passed_over[e - 3] = 0;
    } else if (!flow_served(w, e - 6)) {
        return false;
    }
    for (uint32_t i = 0; i < TB_FAIR_FLOWS_MAX;
         i++) { /* what stands counts from now on; a free party stands nowhere */
        struct tb_fair_flow *flow = &w->f.flows[i];
        flow->at = flow->weight != 0 && flow->at > w->f.now ? flow->at - w->f.now : 0;
    }
    w->f.now = 0;
    return true;
}

static void every_event_in_every_state_of_flows(void **state)
{
    (void)state;
    static struct flows w;
    assert_true(explore(&(struct explore){&w, sizeof w, 3 + 3 + 8, flows_give}) > 50);
}

/* ---- budget: a gateway that writes down what it is told to, is killed, and has a
 * clock that jumps ---- */

#define DAY_BYTES 512u
#define DAYS      4u

struct spender {
    struct tb_budget b;
    uint64_t today;
    uint64_t written_day, written; /* on its disk */
};

static void written_down(struct spender *w)
{
    uint64_t bytes = 0;
    if (!tb_budget_save(&w->b, &bytes)) return;
    assert_true(bytes >= w->b.used_bytes && bytes <= w->b.used_bytes + DAY_BYTES / 256);
    w->written_day = w->b.day;
    w->written = bytes;
    assert_false(tb_budget_save(&w->b, &bytes)); /* not again before more went */
}

static bool spender_event(struct spender *w, const struct spender *was, unsigned e)
{
    static const uint64_t pieces[] = {1, 100, 300};
    if (e < 3) {
        if (tb_budget_state(&w->b) == TB_BUDGET_HELD && w->b.day == w->today) return false;
        tb_budget_count(&w->b, w->today, pieces[e]);
        assert_true(w->b.used_bytes >= pieces[e]);
        if (was->b.day >= w->today && was->b.day <= w->today + 1)
            assert_int_equal(w->b.used_bytes, was->b.used_bytes + pieces[e]);
        written_down(w);
    } else if (e == 3) {
        if (w->today + 1 == DAYS) return false;
        w->today++;
        tb_budget_count(&w->b, w->today, 0);
        assert_true(w->b.day != w->today || was->b.day == w->today || w->b.used_bytes == 0);
    } else if (e == 4) {
        if (w->today == 0) return false;
        w->today--; /* its clock was wrong */
        tb_budget_count(&w->b, w->today, 0);
    } else if (e == 5) {
        w->today = w->today == 0 ? DAYS - 1 : 0; /* by days */
        tb_budget_count(&w->b, w->today, 0);
        assert_true(w->b.day <= w->today + 1); /* a hold ends with the day that it is now */
    } else {
        tb_budget_restore(&w->b, w->written_day, w->written, w->today);
        if (w->written_day == was->b.day && was->b.day == w->today)
            assert_true(w->b.used_bytes >= was->b.used_bytes); /* a kill wins nothing */
    }
    return true;
}

static bool spender_give(void *world, const void *was, unsigned e)
{
    struct spender *w = world;
    if (!spender_event(w, was, e)) return false;
    const uint64_t used = w->b.used_bytes;
    const enum tb_budget_state state = tb_budget_state(&w->b);
    assert_int_equal(state == TB_BUDGET_HELD, used >= DAY_BYTES);
    assert_int_equal(state == TB_BUDGET_OK, used < DAY_BYTES - DAY_BYTES / 5);
    assert_int_equal(tb_budget_left(&w->b), used < DAY_BYTES ? DAY_BYTES - used : 0);
    return used < 3 * DAY_BYTES; /* a clock that jumps by one day and back may go over, as the header says */
}

/* P7. */
static void every_event_in_every_state_of_a_budget(void **state)
{
    (void)state;
    static struct spender w = {.b.day_bytes = DAY_BYTES};
    assert_true(explore(&(struct explore){&w, sizeof w, 7, spender_give}) > 100);
}

/* ---- cap ---- */

struct capped {
    struct tb_cap c;
};

static bool reserve(struct capped *w, uint64_t bytes)
{
    const tb_time_ns before = w->c.next_at;
    if (before > NOW + TB_MS(40)) return false; /* who waits so long asks for no more */
    const tb_time_ns at = tb_cap_reserve(&w->c, bytes, NOW);
    if (w->c.bytes_per_s == 0) {
        assert_int_equal(at, NOW);
        return true;
    }
    assert_true(at >= NOW - TB_CAP_BURST && at >= before); /* no more than the burst is caught up with */
    assert_true(at == before || at == NOW - TB_CAP_BURST);
    assert_int_equal(w->c.next_at - at, TB_SECONDS(1) / w->c.bytes_per_s * bytes);
    return true;
}

static bool capped_give(void *world, const void *was, unsigned e)
{
    static const uint64_t rates[] = {0, 500000, 1000000};
    struct capped *w = world;
    const struct capped *before = was;
    if (e < 2) return reserve(w, e == 0 ? 2000 : 8000);
    if ((e -= 2) < 3) {
        tb_cap_set(&w->c, rates[e], NOW);
        assert_true(w->c.next_at <= before->c.next_at || before->c.bytes_per_s == 0);
        assert_true(before->c.bytes_per_s != 0 ||
                    w->c.next_at == NOW); /* what went without a cap is no debt */
        const uint32_t piece = tb_cap_piece(&w->c);
        assert_true(e == 0 ? piece == UINT32_MAX
                           : piece >= TB_CAP_PIECE_BYTES_MIN && piece <= TB_CAP_PIECE_BYTES);
        return true;
    }
    ago(&w->c.next_at, TB_MS(2), TB_MS(20));
    return true;
}

/* P7. */
static void every_event_in_every_state_of_a_cap(void **state)
{
    (void)state;
    static struct capped w;
    assert_true(explore(&(struct explore){&w, sizeof w, 6, capped_give}) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_event_in_every_state_of_a_divider),
        cmocka_unit_test(every_event_in_every_state_of_a_turn),
        cmocka_unit_test(every_event_in_every_state_of_flows),
        cmocka_unit_test(every_event_in_every_state_of_a_budget),
        cmocka_unit_test(every_event_in_every_state_of_a_cap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
