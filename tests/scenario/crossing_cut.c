/* crossing_cut.c - one version's way from fra to sin in virtual time: cuts, lost streams,
 * duplicates, disorder, lies.
 *
 * Both cores run against each other over a wire that takes half a round trip. A stream carries one
 * parcel at a time, so the traces stay readable; a parcel is two chunks. Promises P4, P5, P6.
 *
 * Covers: wan/send/outbound.c wan/send/inbound.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"
#include "tests/unit/wan/small_places.h"
#include "wan/send/inbound.h"
#include "wan/send/outbound_parcels.h"

#define EVENTS_MAX  256
#define STREAMS_MAX 4
#define WORDS_MAX   4

enum kind { ARRIVE, HELD, START, GONE, FREE, CUT, UP, STREAM_DIES };

struct event {
    uint32_t at_ms, order;
    enum kind kind;
    uint32_t epoch;  /* of the session; what belongs to an earlier one never arrives */
    uint32_t stream; /* ARRIVE, GONE, FREE, STREAM_DIES */
    struct tb_parcel parcel;
    uint32_t word_count;
    struct tb_held_word words[WORDS_MAX];
};

struct stream {
    bool busy, dead;
    uint32_t life; /* grows when it dies: what was on it is lost */
    uint32_t delay_ms;
    struct tb_parcel parcel;
};

struct world {
    uint32_t now_ms, rtt_ms, orders, epoch;
    bool up;
    struct event events[EVENTS_MAX];
    uint32_t event_count;
    struct small_place fra_place, sin_place;
    struct tb_place fra, sin;
    struct tb_outbound crossing;
    struct tb_inbound landing;
    void *memories[2];
    struct stream streams[STREAMS_MAX];
    uint32_t stream_count;
    uint32_t chunks_sent;
    bool twice; /* every HELD comes twice */
    char trace[4096];
};

__attribute__((format(printf, 2, 3))) static void say(struct world *w, const char *format, ...)
{
    va_list args;
    size_t used = strlen(w->trace);
    used += (size_t)snprintf(w->trace + used, sizeof w->trace - used, "[%4u] ", w->now_ms);
    va_start(args, format);
    used += (size_t)vsnprintf(w->trace + used, sizeof w->trace - used, format, args);
    va_end(args);
    snprintf(w->trace + used, sizeof w->trace - used, "\n");
}

static struct event *later(struct world *w, uint32_t in_ms, enum kind kind)
{
    assert_true(w->event_count < EVENTS_MAX);
    struct event *e = &w->events[w->event_count++];
    memset(e, 0, sizeof *e);
    e->at_ms = w->now_ms + in_ms;
    e->order = w->orders++;
    e->kind = kind;
    e->epoch = w->epoch;
    return e;
}

static void world_init(struct world *w, uint32_t chunks, uint32_t streams, uint32_t rtt_ms)
{
    memset(w, 0, sizeof *w);
    w->rtt_ms = rtt_ms;
    w->stream_count = streams;
    small_place_init(&w->fra_place, chunks, 200 << 10, &w->fra);
    small_place_init(&w->sin_place, chunks, 200 << 10, &w->sin);
    small_place_hold(&w->fra_place, 0, chunks);
    w->memories[0] = malloc(tb_outbound_bytes_for(&w->fra, 1));
    w->memories[1] = malloc(tb_inbound_bytes_for(&w->sin, 1));
    tb_inbound_init(&w->landing, &w->sin, 1, w->memories[1]);
    for (uint32_t i = 0; i < streams; i++)
        w->streams[i].delay_ms = rtt_ms / 2;
    (void)later(w, 0, UP);
}

static void world_fini(struct world *w)
{
    free(w->memories[0]);
    free(w->memories[1]);
}

static void world_cut(struct world *w, uint32_t at_ms, uint32_t for_ms)
{
    (void)later(w, at_ms, CUT);
    (void)later(w, at_ms + for_ms, UP);
}

static void world_kill_stream(struct world *w, uint32_t at_ms, uint32_t stream)
{
    later(w, at_ms, STREAM_DIES)->stream = stream;
}

/* fra: whatever stream is free takes the next parcel. */
static void send_more(struct world *w)
{
    for (uint32_t i = 0; i < w->stream_count; i++) {
        struct stream *s = &w->streams[i];
        if (!w->up || s->busy || s->dead || !tb_outbound_next(&w->crossing, &s->parcel)) continue;
        tb_outbound_taken(&w->crossing, &s->parcel, i);
        s->busy = true;
        w->chunks_sent += s->parcel.count;
        say(w, "fra > send %u..%u on s%u", s->parcel.first, s->parcel.first + s->parcel.count - 1, i);
        struct event *e = later(w, s->delay_ms, ARRIVE);
        e->stream = i;
        e->parcel = s->parcel;
        e->word_count = s->life;
    }
}

/* sin: tells what changed. */
static void tell_held(struct world *w)
{
    struct event e = {0};
    uint32_t shard = 0;
    e.word_count = tb_inbound_differences(&w->landing, &shard, e.words, WORDS_MAX);
    for (uint32_t times = 0; e.word_count > 0 && times < (w->twice ? 2 : 1); times++) {
        struct event *held = later(w, w->rtt_ms / 2, HELD);
        held->word_count = e.word_count;
        memcpy(held->words, e.words, sizeof e.words);
    }
}

static void come_up(struct world *w)
{
    const uint32_t there = tb_place_held_count(&w->sin);
    w->up = true;
    w->epoch++;
    for (uint32_t i = 0; i < w->stream_count; i++)
        w->streams[i].busy = w->streams[i].dead = false;
    tb_outbound_init(&w->crossing, &w->fra, 1, w->memories[0]);
    say(w, "fra > up, sin has %u", there);
    tb_inbound_rewind(&w->landing);
    const uint32_t order = w->orders;
    tell_held(w);
    /* The session's greeting took its round trips already: what is held comes with it. */
    for (uint32_t i = 0; i < w->event_count; i++)
        if (w->events[i].kind == HELD && w->events[i].order >= order) w->events[i].at_ms = w->now_ms;
    (void)later(w, 0, START);
}

static void arrive(struct world *w, const struct event *e)
{
    if (e->word_count != w->streams[e->stream].life) return; /* it died with its stream */
    uint32_t duplicates = 0;
    for (uint32_t k = e->parcel.first; k < e->parcel.first + e->parcel.count; k++) {
        if (!tb_place_claim(&w->sin, k)) {
            duplicates++;
            continue;
        }
        tb_bitmap_set(w->sin.held, k);
        tb_place_unclaim(&w->sin, k);
    }
    if (duplicates > 0) say(w, "sin > dropped %u duplicates", duplicates);
    tell_held(w);
    later(w, w->rtt_ms / 2, FREE)->stream = e->stream;
}

static void take_held(struct world *w, const struct event *e)
{
    const uint64_t before = w->crossing.peer_held;
    const struct tb_span span = small_words(e->words, e->word_count);
    const enum tb_status status = tb_outbound_held(&w->crossing, 0, &span);
    if (status != TB_OK) {
        say(w, "fra > refused HELD: %s", tb_status_name(status));
    } else if (w->crossing.peer_held != before && tb_outbound_state_started(w->crossing.state)) {
        say(w, "fra > acked %u%s", (unsigned)w->crossing.peer_held,
            tb_outbound_whole(&w->crossing) ? "; whole" : "");
    }
}

/* sin sees the stream's end, tells all that it brought, and then that it is gone. */
static void stream_dies(struct world *w, uint32_t i)
{
    struct stream *s = &w->streams[i];
    say(w, "sin > s%u is gone", i);
    s->dead = true;
    s->life++;
    tell_held(w);
    later(w, w->rtt_ms / 2, GONE)->stream = i;
}

static void happen(struct world *w, const struct event *e)
{
    struct stream *s = &w->streams[e->stream];
    switch (e->kind) {
    case UP:
        come_up(w);
        return;
    case CUT:
        say(w, "fra > cut");
        w->up = false;
        return;
    case STREAM_DIES:
        stream_dies(w, e->stream);
        return;
    default:
        break;
    }
    if (e->epoch != w->epoch || !w->up) return;
    switch (e->kind) {
    case START:
        CHECK_OK(tb_outbound_start(&w->crossing));
        break;
    case ARRIVE:
        arrive(w, e);
        break;
    case HELD:
        take_held(w, e);
        break;
    case FREE:
        s->busy = s->busy && s->dead;
        break;
    case GONE:
        say(w, "fra > s%u gave back %u", e->stream, tb_outbound_stream_gone(&w->crossing, e->stream));
        break;
    default:
        break;
    }
    send_more(w);
}

static void world_run(struct world *w)
{
    while (w->event_count > 0) {
        uint32_t first = 0;
        for (uint32_t i = 1; i < w->event_count; i++) {
            const struct event *a = &w->events[i], *b = &w->events[first];
            if (a->at_ms < b->at_ms || (a->at_ms == b->at_ms && a->order < b->order)) first = i;
        }
        const struct event e = w->events[first];
        w->events[first] = w->events[--w->event_count];
        w->now_ms = e.at_ms;
        happen(w, &e);
    }
}

/* An acknowledgement lost in a cut is not work lost: chunks 2..3 reached sin at 120, before the
 * cut, so the crossing resumes at 4 although fra never heard of it (P5). */
static void cut_does_not_repeat_held_chunks(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 6 /* chunks */, 1 /* streams */, 80 /* rtt_ms */);
    world_cut(&w, 130 /* at_ms */, 170 /* for_ms */);
    world_run(&w);
    assert_string_equal(w.trace, "[   0] fra > up, sin has 0\n"
                                 "[   0] fra > send 0..1 on s0\n"
                                 "[  80] fra > acked 2\n"
                                 "[  80] fra > send 2..3 on s0\n"
                                 "[ 130] fra > cut\n"
                                 "[ 300] fra > up, sin has 4\n"
                                 "[ 300] fra > send 4..5 on s0\n"
                                 "[ 380] fra > acked 6; whole\n");
    assert_int_equal(w.chunks_sent, 6);
    world_fini(&w);
}

/* Its twin: the cut comes before 2..3 arrive, and they are sent again; a chunk lost in a cut is not
 * taken for delivered. */
static void cut_repeats_chunks_that_were_lost(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 6, 1, 80);
    world_cut(&w, 110, 190);
    world_run(&w);
    assert_string_equal(w.trace, "[   0] fra > up, sin has 0\n"
                                 "[   0] fra > send 0..1 on s0\n"
                                 "[  80] fra > acked 2\n"
                                 "[  80] fra > send 2..3 on s0\n"
                                 "[ 110] fra > cut\n"
                                 "[ 300] fra > up, sin has 2\n"
                                 "[ 300] fra > send 2..3 on s0\n"
                                 "[ 380] fra > acked 4\n"
                                 "[ 380] fra > send 4..5 on s0\n"
                                 "[ 460] fra > acked 6; whole\n");
    world_fini(&w);
}

/* One of two streams dies with a parcel on its way: the other takes that parcel once sin
 * has said what arrived. */
static void a_lost_stream_s_parcel_goes_by_another(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 6, 2, 80);
    world_kill_stream(&w, 20, 1);
    world_run(&w);
    assert_string_equal(w.trace, "[   0] fra > up, sin has 0\n"
                                 "[   0] fra > send 0..1 on s0\n"
                                 "[   0] fra > send 2..3 on s1\n"
                                 "[  20] sin > s1 is gone\n"
                                 "[  60] fra > s1 gave back 2\n"
                                 "[  80] fra > acked 2\n"
                                 "[  80] fra > send 4..5 on s0\n"
                                 "[ 160] fra > acked 4\n"
                                 "[ 160] fra > send 2..3 on s0\n"
                                 "[ 240] fra > acked 6; whole\n");
    world_fini(&w);
}

/* Its twin: the parcel had arrived when the stream died, and nothing goes twice. */
static void a_lost_stream_s_arrived_parcel_does_not_go_again(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 6, 2, 80);
    world_kill_stream(&w, 50, 1);
    world_run(&w);
    assert_string_equal(w.trace, "[   0] fra > up, sin has 0\n"
                                 "[   0] fra > send 0..1 on s0\n"
                                 "[   0] fra > send 2..3 on s1\n"
                                 "[  50] sin > s1 is gone\n"
                                 "[  80] fra > acked 2\n"
                                 "[  80] fra > send 4..5 on s0\n"
                                 "[  80] fra > acked 4\n"
                                 "[  90] fra > s1 gave back 0\n"
                                 "[ 160] fra > acked 6; whole\n");
    assert_int_equal(w.chunks_sent, 6);
    world_fini(&w);
}

/* P4: every HELD comes twice: the trace is that of once. */
static void duplicate_held_changes_nothing(void **state)
{
    (void)state;
    struct world once, twice;
    world_init(&once, 8, 2, 80);
    world_init(&twice, 8, 2, 80);
    twice.twice = true;
    world_run(&once);
    world_run(&twice);
    assert_string_equal(once.trace, twice.trace);
    assert_non_null(strstr(once.trace, "whole"));
    world_fini(&once);
    world_fini(&twice);
}

/* P4, P6: a chunk sent later on a fast stream arrives before one on a slow stream; nothing waits
 * and nothing is confused. */
static void disorder_between_streams_is_normal(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 8, 2, 80);
    w.streams[0].delay_ms = 300;
    world_run(&w);
    assert_string_equal(w.trace, "[   0] fra > up, sin has 0\n"
                                 "[   0] fra > send 0..1 on s0\n"
                                 "[   0] fra > send 2..3 on s1\n"
                                 "[  80] fra > acked 2\n"
                                 "[  80] fra > send 4..5 on s1\n"
                                 "[ 160] fra > acked 4\n"
                                 "[ 160] fra > send 6..7 on s1\n"
                                 "[ 240] fra > acked 6\n"
                                 "[ 340] fra > acked 8; whole\n");
    world_fini(&w);
}

/* P4: another link had brought chunk 2: it is not sent, and parcels go around it. */
static void a_chunk_that_came_another_way_is_not_sent(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 6, 2, 80);
    small_place_hold(&w.sin_place, 2, 3);
    world_run(&w);
    assert_string_equal(w.trace, "[   0] fra > up, sin has 1\n"
                                 "[   0] fra > send 0..1 on s0\n"
                                 "[   0] fra > send 3..4 on s1\n"
                                 "[  80] fra > acked 3\n"
                                 "[  80] fra > send 5..5 on s0\n"
                                 "[  80] fra > acked 5\n"
                                 "[ 160] fra > acked 6; whole\n");
    world_fini(&w);
}

/* A peer that claims chunks which do not exist, or takes back what it claimed, is not believed,
 * and nothing changes. */
static void garbled_held_is_refused(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, 6, 1, 80);
    struct event *e = later(&w, 90, HELD);
    e->epoch = 1;
    e->word_count = 1;
    e->words[0] = (struct tb_held_word){0, 1};
    e = later(&w, 95, HELD);
    e->epoch = 1;
    e->word_count = 1;
    e->words[0] = (struct tb_held_word){0, 0xff};
    world_run(&w);
    assert_string_equal(w.trace, "[   0] fra > up, sin has 0\n"
                                 "[   0] fra > send 0..1 on s0\n"
                                 "[  80] fra > acked 2\n"
                                 "[  80] fra > send 2..3 on s0\n"
                                 "[  90] fra > refused HELD: peer_garbled\n"
                                 "[  95] fra > refused HELD: peer_garbled\n"
                                 "[ 160] fra > acked 4\n"
                                 "[ 160] fra > send 4..5 on s0\n"
                                 "[ 240] fra > acked 6; whole\n");
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_does_not_repeat_held_chunks),
        cmocka_unit_test(cut_repeats_chunks_that_were_lost),
        cmocka_unit_test(a_lost_stream_s_parcel_goes_by_another),
        cmocka_unit_test(a_lost_stream_s_arrived_parcel_does_not_go_again),
        cmocka_unit_test(duplicate_held_changes_nothing),
        cmocka_unit_test(disorder_between_streams_is_normal),
        cmocka_unit_test(a_chunk_that_came_another_way_is_not_sent),
        cmocka_unit_test(garbled_held_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
