/* Every look in every state of the tuner: a path brings whatever it likes, from one look to the
 * next. From each state that this leads to, a path that stays as it is lets the number rest.
 *
 * Now is always the same instant: when time passes, all past instants move back. A time that is
 * not over yet has just begun, and long ago is all the same, so that running times are few states.
 *
 * Covers: wan/stream/tuner.c */
#include "tests/fault/explore.h"
#include "wan/stream/tuner.h"

#define NOW          TB_SECONDS(1000000)
#define SENT         (UINT64_C(1) << 50) /* bytes, now */
#define EVERY        TB_MS(600)          /* two looks are over all that a number is watched for */

#define SEARCH_EVERY TB_SECONDS(30) /* tuner.h */
#define MORE_FIRST   TB_SECONDS(60)
#define MORE_MOST    TB_SECONDS(3600)
#define CORES        2u

static void back(tb_time_ns *at, tb_time_ns passed)
{
    if (*at != 0) *at -= passed;
}

struct look {
    tb_time_ns passed;
    uint64_t bytes_per_s;
    uint32_t usable; /* 0: as many as are wanted */
    bool full;
    tb_time_ns rtt;
    uint64_t window_bytes;
};

static void bounds_hold(const struct tb_tuner *t)
{
    assert_true(t->streams >= 1 && t->streams <= t->ceiling && t->ceiling <= TB_TUNER_STREAMS_MAX);
    assert_true(t->best <= TB_TUNER_STREAMS_MAX && t->low_streams <= TB_TUNER_STREAMS_MAX);
    assert_true(t->direction >= -1 && t->direction <= 1);
    assert_true(t->more_after == 0 || (t->more_after >= MORE_FIRST && t->more_after <= MORE_MOST));
    assert_true(t->state != TB_TUNER_SETTLED || !t->searched || t->best == 0 || t->streams == t->best ||
                t->low_ceiling != 0);
}

/* A number is the better one where its utility is over 2 % more: so two streams do not become the
 * best for what three brought. */
static void best_is_better(const struct tb_tuner *was, const struct tb_tuner *t)
{
    if (was->best == 0 || t->best == 0 || t->best == was->best) return;
    assert_int_equal(t->best, was->streams); /* which was tried */
    double utility = (double)t->best_rate, before = (double)was->best_rate;
    for (uint32_t n = was->best; n < t->best; n++)
        before *= 1.02;
    for (uint32_t n = t->best; n < was->best; n++)
        utility *= 1.02;
    assert_true(before == 0 ||
                utility > before * (1.02 + 1e-9)); /* where nothing got through, all is better */
}

/* Where none was looked at yet it is rate x RTT / window, of the RTT and the window that there are
 * now. */
static uint32_t by_arithmetic(const struct tb_tuner *was, const struct look *l)
{
    const tb_time_ns rtt = l->rtt < was->rtt ? l->rtt : was->rtt;
    const uint64_t rate = was->best_rate > 125000000 ? was->best_rate : 125000000; /* until one was seen */
    const uint32_t windows = tb_tuner_by_window(rate, rtt, l->window_bytes);
    const uint32_t least = rtt >= TB_TUNER_LONG ? 8 : CORES;
    const uint32_t streams = windows > least ? windows : least;
    return streams < was->ceiling ? streams : was->ceiling;
}

/* The changes that one look may make to the number. */
static void look_is_sound(const struct tb_tuner *was, const struct tb_tuner *t, const struct look *l)
{
    const uint32_t usable = l->usable == 0 ? was->streams : l->usable;
    const bool more = t->low_ceiling != 0 && was->low_ceiling == 0;
    const bool over = was->low_ceiling != 0 && t->low_ceiling == 0;
    const bool lowered = t->more_at != was->more_at;
    bounds_hold(t);
    /* More are tried when it is time, and each time that they do not come it is twice as long. */
    assert_true(!more || (was->ceiling < TB_TUNER_STREAMS_MAX && was->more_at <= NOW));
    if (lowered) {
        assert_true(l->passed < TB_SECONDS(1)); /* nobody knows what was open meanwhile */
        assert_int_equal(t->more_at, NOW + t->more_after);
        assert_int_equal(t->more_after,
                         was->more_after == 0 ? MORE_FIRST : tb_time_min(2 * was->more_after, MORE_MOST));
    }
    best_is_better(was, t);
    const bool new_path = was->rtt != 0 && (l->rtt < was->rtt || l->window_bytes != was->window_bytes);
    if (new_path && !was->searched && was->best == 0 && t->best == 0 && !more && !over && !lowered)
        assert_int_equal(t->streams, by_arithmetic(was, l));
    if (more || over || lowered || l->rtt != was->rtt || l->window_bytes != was->window_bytes) return;
    /* Where there was nothing to send, or not enough came up, nothing is learned. */
    if (!l->full || usable < was->streams) assert_int_equal(t->streams, was->streams);
    /* A number that was found is searched again after three looks that were other, and not more
     * often than every 30 s. */
    if (was->state == TB_TUNER_SETTLED && was->searched && t->state != TB_TUNER_SETTLED)
        assert_true(was->other >= 2 && was->settled_at + SEARCH_EVERY <= NOW);
    if (was->state == TB_TUNER_SETTLED) assert_int_equal(t->streams, was->streams);
}

static void look(struct tb_tuner *t, const struct look *l)
{
    tb_time_ns *times[] = {&t->until, &t->settled_at, &t->from, &t->short_since, &t->seen_at, &t->more_at};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        back(times[i], l->passed);
    t->from_bytes -= l->bytes_per_s / 1000 * (l->passed / TB_MS(1));
    const struct tb_tuner was = *t;
    const struct tb_tuner_seen seen = {.now = NOW,
                                       .rtt = l->rtt,
                                       .bytes = SENT,
                                       .window_bytes = l->window_bytes,
                                       .usable = l->usable == 0 ? t->streams : l->usable,
                                       .full = l->full};
    const uint32_t streams = tb_tuner_look(t, &seen);
    assert_int_equal(streams, t->streams);
    look_is_sound(&was, t, l);
}

static void looks(struct tb_tuner *t, const struct look *l, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        look(t, l);
}

/* ---- a path that stays as it is ---- */

struct path {
    uint64_t each, all;
    uint32_t open_max; /* 0: any number */
};

static uint32_t looks_at_a_path(struct tb_tuner *t, const struct path *p, tb_time_ns rtt, unsigned count)
{
    uint32_t changes = 0;
    for (unsigned i = 0; i < count; i++) {
        const uint32_t before = t->streams;
        const uint32_t usable = p->open_max == 0 || before < p->open_max ? before : p->open_max;
        const uint64_t rate = p->each * usable < p->all ? p->each * usable : p->all;
        look(t, &(struct look){EVERY, rate, usable, true, rtt, t->window_bytes});
        changes += t->streams != before;
    }
    return changes;
}

/* In three minutes the number is settled, from any state, and then it stays: losses hold each
 * stream back, or nothing does, or nothing gets through. */
static void it_comes_to_rest(const struct tb_tuner *from)
{
    static const struct path paths[] = {{8000000, 240000000, 0}, {31250000, 125000000, 0}, {0, 0, 0}};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct tb_tuner t = *from;
        if (t.ceiling < TB_TUNER_STREAMS_MAX) t.more_at = NOW; /* the hour passes */
        (void)looks_at_a_path(&t, &paths[i], t.rtt, 300);
        assert_int_equal(t.state, TB_TUNER_SETTLED);
        assert_int_equal(t.ceiling, TB_TUNER_STREAMS_MAX); /* P6: no shortage is for good */
        assert_int_equal(looks_at_a_path(&t, &paths[i], t.rtt, 500), 0);
    }
}

/* A peer that lets three come up: those have to do. Of others no more than two attempts are in
 * these five minutes, each there and back. */
static void a_shortage_comes_to_rest(const struct tb_tuner *from)
{
    static const struct path few = {8000000, 240000000, 3};
    struct tb_tuner t = *from;
    (void)looks_at_a_path(&t, &few, t.rtt, 300);
    assert_true(t.streams <= 3 || t.low_ceiling != 0);
    assert_true(looks_at_a_path(&t, &few, t.rtt, 500) <= 4);
}

/* ---- and one that does not ---- */

/* Not over is just begun, over is over; what nobody reads any more is nothing. */
static void plainly(struct tb_tuner *t)
{
    if (t->until <= NOW) t->until = 0;
    if (t->settled_at != 0) t->settled_at = t->settled_at + SEARCH_EVERY <= NOW ? NOW - SEARCH_EVERY : NOW;
    if (t->ceiling == TB_TUNER_STREAMS_MAX) t->more_at = 0;
    if (t->more_at != 0) t->more_at = t->more_at <= NOW ? NOW : NOW + t->more_after;
    if (t->short_since != 0) t->short_since = NOW;
}

#define RATES  4u
#define EVENTS (RATES + 8u)

static void event(struct tb_tuner *t, unsigned e)
{
    static const uint64_t rates[RATES] = {0, 50000000, 100000000, 150000000};
    struct look l = {EVERY, 0, 0, true, t->rtt, t->window_bytes};
    if (e < RATES) {
        l.bytes_per_s = rates[e];
        looks(t, &l, 2);
        return;
    }
    switch (e - RATES) {
    case 0: /* there is nothing to send */
        l.full = false;
        looks(t, &l, 2);
        return;
    case 1: /* one does not come up for a moment, or not at all; or all but one */
        l.usable = t->streams - (t->streams > 1);
        look(t, &l);
        return;
    case 2:
        l.usable = t->streams - (t->streams > 1);
        looks(t, &l, 10);
        return;
    case 3:
        l.usable = 1;
        looks(t, &l, 10);
        return;
    case 4: /* nobody looks for an hour */
        l.passed = TB_SECONDS(3600);
        l.full = false;
        break;
    case 5: /* and then one is missing */
        l.passed = TB_SECONDS(3600);
        l.usable = t->streams - (t->streams > 1);
        break;
    case 6: /* a nearer way */
        l.rtt = t->rtt > TB_MS(1) ? TB_MS(1) : TB_MS(80);
        break;
    default: /* an operator's ceilings */
        l.window_bytes = t->window_bytes == 1 << 20 ? 1 << 19 : 1 << 20;
        break;
    }
    look(t, &l);
}

static bool tuner_give(void *world, const void *was, unsigned e)
{
    struct tb_tuner *t = world;
    if (e == 0) {
        it_comes_to_rest(was);
        a_shortage_comes_to_rest(was);
    }
    event(t, e);
    plainly(t);
    return true;
}

/* P6. */
static void every_look_in_every_state_of_a_tuner(void **state)
{
    (void)state;
    static struct tb_tuner t;
    for (uint32_t recalled = 0; recalled < 2; recalled++) {
        tb_tuner_init(&t, &(struct tb_tuner_options){.cores = CORES, .bbr = true, .cubic = true});
        if (recalled == 1) tb_tuner_recall(&t, 20, 100000000);
        look(&t, &(struct look){EVERY, 0, 0, false, TB_MS(80), 1 << 20});
        assert_true(explore_some(&(struct explore){&t, sizeof t, EVENTS, tuner_give}, 5000) > 1000);
    }
}

/* A number that was given is no matter of looks. */
static void no_look_changes_a_number_given(void **state)
{
    (void)state;
    struct tb_tuner t;
    for (unsigned e = 0; e < EVENTS; e++) {
        tb_tuner_init(&t, &(struct tb_tuner_options){.streams = 5, .cores = CORES});
        event(&t, e);
        assert_int_equal(t.streams, 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_look_in_every_state_of_a_tuner),
        cmocka_unit_test(no_look_changes_a_number_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
