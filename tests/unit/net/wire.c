/* Frames over a chan. One end is often a raw socket, which sends what no wire of ours would.
 * Covers: base/net/wire.c */
#include "base/net/wire.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/net/chan_facts.h"
#include "net_world.h"

struct post {
    struct tb_wire *wire; /* NULL once closed */
    int opened, closed, frames;
    enum tb_status why;
    uint16_t type;
    uint64_t request;
    uint64_t payload_bytes; /* of all frames */
    uint8_t last[256];
    size_t last_bytes;
    enum tb_status answer; /* of on_frame */
    bool echo, finish_in_frame;
};

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    struct post *p = user;
    TB_ASSERT(peer == tb_chan_peer(tb_wire_chan(w)));
    p->opened++;
}

static void put(struct tb_wire *w, uint16_t type, uint64_t request, const void *bytes, size_t count)
{
    struct tb_writer *out = tb_wire_begin(w, type, request, count);
    if (out == NULL) return;
    tb_write_bytes(out, bytes, count);
    tb_wire_end(w);
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *f)
{
    struct post *p = user;
    TB_ASSERT(p->closed == 0 && p->opened == 1);
    p->frames++;
    p->type = f->type;
    p->request = f->request;
    p->payload_bytes += f->payload.left;
    p->last_bytes = f->payload.left < sizeof p->last ? f->payload.left : sizeof p->last;
    memcpy(p->last, f->payload.at, p->last_bytes);
    if (p->echo) put(w, f->type, f->request, f->payload.at, f->payload.left);
    if (p->finish_in_frame) {
        put(w, 99, 0, "bye", 3);
        tb_wire_finish(w, TB_PEER_DENIED, 30000);
    }
    return p->answer;
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w;
    struct post *p = user;
    p->closed++;
    p->why = why;
    p->wire = NULL;
}

static const struct tb_wire_ops ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};

struct office {
    struct world *world;
    struct tb_listener *listener;
    struct tb_address at;
    struct tb_tls *tls;
    struct tb_wire_options server, client;
    struct post s, c;
};

static void on_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    struct office *o = user;
    TB_ASSERT(tb_wire_accept(&o->server, fd, &o->s.wire) == TB_OK);
}

static void office_init(struct office *o, struct world *w, bool secure)
{
    *o = (struct office){.world = w, .at = loopback(0)};
    assert_int_equal(tb_listen(&w->loop, &o->at, 0, on_accept, o, &o->listener), TB_OK);
    o->at = tb_listener_address(o->listener);
    if (secure) assert_int_equal(tb_tls_new_ephemeral(&o->tls), TB_OK);
    const struct tb_chan_options chan = {.loop = &w->loop, .tls = o->tls, .expect.any_fingerprint = true};
    o->server = (struct tb_wire_options){.chan = chan, .ops = &ops, .user = &o->s};
    o->client = (struct tb_wire_options){.chan = chan, .ops = &ops, .user = &o->c};
}

static void office_open(struct office *o)
{
    assert_int_equal(tb_wire_dial(&o->client, &o->at, &o->c.wire), TB_OK);
    WORLD_UNTIL(o->world, o->s.opened && o->c.opened);
}

static void office_fini(struct office *o)
{
    if (o->s.wire != NULL) tb_wire_close(o->s.wire, TB_OK);
    if (o->c.wire != NULL) tb_wire_close(o->c.wire, TB_OK);
    WORLD_UNTIL(o->world, o->s.wire == NULL && o->c.wire == NULL);
    tb_listener_close(o->listener);
    tb_tls_free(o->tls);
}

static void frames_arrive_as_they_left(void **state)
{
    struct world *w = *state;
    for (int secure = 0; secure < 2; secure++) {
        struct office o;
        office_init(&o, w, secure != 0);
        o.s.echo = true;
        assert_int_equal(tb_wire_dial(&o.client, &o.at, &o.c.wire), TB_OK);
        put(o.c.wire, 7, 0x1122334455667788u, "hello", 5); /* before it is open: it waits */
        WORLD_UNTIL(w, o.c.frames == 1);
        assert_int_equal(o.c.type, 7);
        assert_true(o.c.request == 0x1122334455667788u);
        assert_memory_equal(o.c.last, "hello", 5);
        assert_int_equal(o.c.last_bytes, 5);
        put(o.c.wire, 8, 0, "", 0);
        WORLD_UNTIL(w, o.c.frames == 2);
        assert_int_equal(o.c.last_bytes, 0);
        assert_true(tb_clock_now() - tb_wire_heard_at(o.c.wire) < TB_SECONDS(WORLD_WAIT_S));
        office_fini(&o);
    }
}

static void many_frames_of_every_size_arrive(void **state)
{
    struct world *w = *state;
    struct office o;
    static uint8_t bytes[1 << 20];
    office_init(&o, w, true);
    office_open(&o);
    uint64_t sent = 0;
    for (uint32_t i = 0; i < 400; i++) {
        const size_t count = (i * 7919u) % (i % 50 == 0 ? sizeof bytes : 3000u);
        put(o.c.wire, 1, i, bytes, count);
        sent += count;
        if (i % 10 == 0) world_turns(w, 1);
    }
    WORLD_UNTIL(w, o.s.frames == 400);
    assert_true(o.s.payload_bytes == sent);
    WORLD_UNTIL(w, tb_wire_queued_bytes(o.c.wire) == 0);
    office_fini(&o);
}

/* The wire format, byte by byte: docs/protocol.md. */
static const uint8_t golden[] = {5,    0,    0,    0,    0x34, 0x12, 0,   0,   0x88, 0x77, 0x66,
                                 0x55, 0x44, 0x33, 0x22, 0x11, 'h',  'e', 'l', 'l',  'o'};

static int raw_open(struct office *o)
{
    const int fd = raw_connect(&o->at);
    WORLD_UNTIL(o->world, o->s.opened == 1);
    return fd;
}

static void a_frame_is_these_bytes(void **state)
{
    struct world *w = *state;
    struct office o;
    uint8_t got[sizeof golden];
    office_init(&o, w, false);
    const int fd = raw_open(&o);
    put(o.s.wire, 0x1234, 0x1122334455667788u, "hello", 5);
    WORLD_UNTIL(w, tb_wire_queued_bytes(o.s.wire) == 0);
    assert_int_equal(recv(fd, got, sizeof got, MSG_WAITALL), sizeof got);
    assert_memory_equal(got, golden, sizeof golden);
    close(fd);
    office_fini(&o);
}

/* However the network cuts it. */
static void a_frame_split_at_every_byte_is_one_frame(void **state)
{
    struct world *w = *state;
    struct office o;
    office_init(&o, w, false);
    const int fd = raw_open(&o);
    for (size_t cut = 0; cut <= sizeof golden; cut++) {
        const int before = o.s.frames;
        assert_int_equal(write(fd, golden, cut), cut);
        const tb_time_ns heard = tb_wire_heard_at(o.s.wire);
        if (cut > 0 && cut < sizeof golden)
            WORLD_UNTIL(w, tb_wire_heard_at(o.s.wire) > heard || o.s.frames > before);
        if (cut < sizeof golden) assert_int_equal(o.s.frames, before);
        assert_int_equal(write(fd, golden + cut, sizeof golden - cut), sizeof golden - cut);
        WORLD_UNTIL(w, o.s.frames == before + 1);
        assert_int_equal(o.s.last_bytes, 5);
        assert_memory_equal(o.s.last, "hello", 5);
    }
    close(fd);
    WORLD_UNTIL(w, o.s.closed == 1);
    office_fini(&o);
}

/* A frame that never became whole never was. */
static void a_frame_truncated_at_every_byte_is_none(void **state)
{
    struct world *w = *state;
    for (size_t cut = 0; cut < sizeof golden; cut++) {
        struct office o;
        office_init(&o, w, false);
        const int fd = raw_open(&o);
        assert_int_equal(write(fd, golden, cut), cut);
        close(fd);
        WORLD_UNTIL(w, o.s.closed == 1);
        assert_int_equal(o.s.frames, 0);
        assert_int_equal(o.s.why, TB_STREAM_CLOSED);
        office_fini(&o);
    }
}

static void dropped(struct world *w, const void *bytes, size_t count)
{
    struct office o;
    office_init(&o, w, false);
    o.server.frame_bytes_max = 1000;
    const int fd = raw_open(&o);
    assert_int_equal(write(fd, bytes, count), count);
    WORLD_UNTIL(w, o.s.closed == 1);
    assert_int_equal(o.s.frames, 0);
    assert_int_equal(o.s.why, TB_PEER_GARBLED);
    close(fd);
    office_fini(&o);
}

/* P7: a frame over the limit is refused from its header; garbage is. */
static void garbage_and_giants_are_dropped(void **state)
{
    struct world *w = *state;
    uint8_t header[TB_WIRE_HEADER_BYTES] = {0xe9, 3, 0, 0, 1, 0, 0, 0}; /* 1001 bytes */
    dropped(w, header, sizeof header);
    memset(header, 0xff, sizeof header);
    dropped(w, header, sizeof header);
    dropped(w, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
    const uint8_t reserved[TB_WIRE_HEADER_BYTES] = {0, 0, 0, 0, 1, 0, 1, 0};
    dropped(w, reserved, sizeof reserved);
}

/* P7: a connection that may not send large frames yet is dropped at the header of one. */
static void a_frame_before_it_is_allowed_is_dropped(void **state)
{
    struct world *w = *state;
    struct office o;
    static uint8_t bytes[1000];
    office_init(&o, w, false);
    o.server.frame_bytes_max = 1000;
    o.server.frame_bytes_now = 100;
    office_open(&o);
    put(o.c.wire, 1, 0, bytes, 100);
    WORLD_UNTIL(w, o.s.frames == 1);
    tb_wire_allow(o.s.wire, 1000, false);
    put(o.c.wire, 1, 0, bytes, 1000);
    WORLD_UNTIL(w, o.s.frames == 2);
    tb_wire_allow(o.s.wire, 100, false);
    put(o.c.wire, 1, 0, bytes, 101);
    WORLD_UNTIL(w, o.s.closed == 1 || o.s.frames > 2);
    assert_int_equal(o.s.frames, 2);
    assert_int_equal(o.s.why, TB_TOO_LARGE);
    office_fini(&o);
}

/* The twin: the limit itself is allowed. */
static void a_frame_at_the_limit_is_taken(void **state)
{
    struct world *w = *state;
    struct office o;
    static uint8_t bytes[1000];
    office_init(&o, w, false);
    o.server.frame_bytes_max = 1000;
    office_open(&o);
    put(o.c.wire, 1, 0, bytes, 1000);
    WORLD_UNTIL(w, o.s.frames == 1);
    put(o.c.wire, 1, 0, bytes, 999);
    WORLD_UNTIL(w, o.s.frames == 2);
    office_fini(&o);
}

/* P7: memory for a frame grows with the bytes that came, not with the length that was promised. */
static void a_promise_costs_nothing(void **state)
{
    struct world *w = *state;
    struct office o;
    office_init(&o, w, false);
    o.server.frame_bytes_max = 1u << 30;
    const int fd = raw_open(&o);
    const uint8_t header[TB_WIRE_HEADER_BYTES] = {0, 0, 0, 0x3f, 1}; /* 1008 MiB */
    const struct mallinfo2 before = mallinfo2();
    assert_int_equal(write(fd, header, sizeof header), sizeof header);
    const tb_time_ns heard = tb_wire_heard_at(o.s.wire);
    WORLD_UNTIL(w, tb_wire_heard_at(o.s.wire) > heard);
    const struct mallinfo2 after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + (1u << 20));
    assert_int_equal(o.s.closed, 0);
    close(fd);
    office_fini(&o);
}

/* P7: a peer that does not read is dropped, at the bound. */
static void a_peer_that_does_not_read_is_dropped(void **state)
{
    struct world *w = *state;
    struct office o;
    static uint8_t bytes[60000];
    office_init(&o, w, false);
    o.server.queue_bytes_max = 1 << 20;
    const int fd = raw_open(&o); /* reads nothing */
    uint64_t most = 0;
    while (o.s.closed == 0) {
        if (o.s.wire != NULL) put(o.s.wire, 1, 0, bytes, sizeof bytes);
        if (o.s.wire != NULL && tb_wire_queued_bytes(o.s.wire) > most) most = tb_wire_queued_bytes(o.s.wire);
        uv_run(&w->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(o.s.why, TB_SITE_NOMEM);
    assert_in_range(most, (1 << 20) - 61000, 1 << 20);
    close(fd);
    office_fini(&o);
}

/* P7: the bound is on memory: frames announced large and filled little do not escape it. */
static void announcing_much_and_sending_little_is_bounded_too(void **state)
{
    struct world *w = *state;
    struct office o;
    office_init(&o, w, false);
    office_open(&o);
    const struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < 50; i++) {
        struct tb_writer *out = tb_wire_begin(o.c.wire, 1, (uint64_t)i, 1 << 20);
        assert_non_null(out);
        tb_write_u64(out, 42);
        tb_wire_end(o.c.wire);
        put(o.c.wire, 2, 0, "small", 5);
    }
    const struct mallinfo2 after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + (1u << 20));
    WORLD_UNTIL(w, o.s.frames == 100);
    assert_int_equal(o.s.payload_bytes, 50 * 8 + 50 * 5);
    office_fini(&o);
}

static void a_frame_that_does_not_fit_its_own_announcement_is_not_sent(void **state)
{
    struct world *w = *state;
    struct office o;
    office_init(&o, w, false);
    office_open(&o);
    struct tb_writer *out = tb_wire_begin(o.c.wire, 1, 0, 4);
    assert_non_null(out);
    tb_write_u64(out, 1);
    tb_wire_end(o.c.wire);
    WORLD_UNTIL(w, o.c.closed == 1);
    assert_int_equal(o.c.why, TB_TOO_LARGE);
    WORLD_UNTIL(w, o.s.closed == 1);
    assert_int_equal(o.s.frames, 0);
    office_fini(&o);
}

static void a_status_from_on_frame_closes(void **state)
{
    struct world *w = *state;
    struct office o;
    office_init(&o, w, false);
    o.s.answer = TB_PEER_DENIED;
    office_open(&o);
    put(o.c.wire, 1, 0, "a", 1);
    put(o.c.wire, 1, 0, "b", 1); /* in the same read; it does not come */
    WORLD_UNTIL(w, o.s.closed == 1 && o.c.closed == 1);
    assert_int_equal(o.s.why, TB_PEER_DENIED);
    assert_int_equal(o.s.frames, 1);
    office_fini(&o);
}

/* P10: a refusal reaches a peer that goes on sending. */
static void finish_says_the_last_word(void **state)
{
    struct world *w = *state;
    static uint8_t bytes[100000];
    for (int secure = 0; secure < 2; secure++) {
        struct office o;
        office_init(&o, w, secure != 0);
        o.s.finish_in_frame = true;
        office_open(&o);
        for (int i = 0; i < 50; i++)
            put(o.c.wire, 1, 0, bytes, sizeof bytes);
        WORLD_UNTIL(w, o.c.closed == 1 && o.s.closed == 1);
        assert_int_equal(o.s.frames, 1);
        assert_int_equal(o.s.why, TB_PEER_DENIED);
        assert_int_equal(o.c.frames, 1);
        assert_int_equal(o.c.type, 99);
        assert_int_equal(o.c.why, TB_STREAM_CLOSED);
        office_fini(&o);
    }
}

/* P7: but not for ever. */
static void finish_does_not_wait_for_a_deaf_peer(void **state)
{
    struct world *w = *state;
    struct office o;
    static uint8_t bytes[1 << 20];
    office_init(&o, w, false);
    const int fd = raw_open(&o);
    for (int i = 0; i < 32; i++)
        put(o.s.wire, 1, 0, bytes, sizeof bytes);
    tb_wire_finish(o.s.wire, TB_SITE_DRAINING, 50);
    assert_null(tb_wire_begin(o.s.wire, 1, 0, 1)); /* nothing comes after the last word */
    WORLD_UNTIL(w, o.s.closed == 1);
    assert_int_equal(o.s.why, TB_SITE_DRAINING);
    close(fd);
    office_fini(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(frames_arrive_as_they_left),
        WORLD_TEST(many_frames_of_every_size_arrive),
        WORLD_TEST(a_frame_is_these_bytes),
        WORLD_TEST(a_frame_split_at_every_byte_is_one_frame),
        WORLD_TEST(a_frame_truncated_at_every_byte_is_none),
        WORLD_TEST(garbage_and_giants_are_dropped),
        WORLD_TEST(a_frame_before_it_is_allowed_is_dropped),
        WORLD_TEST(a_frame_at_the_limit_is_taken),
        WORLD_TEST(a_promise_costs_nothing),
        WORLD_TEST(a_peer_that_does_not_read_is_dropped),
        WORLD_TEST(announcing_much_and_sending_little_is_bounded_too),
        WORLD_TEST(a_frame_that_does_not_fit_its_own_announcement_is_not_sent),
        WORLD_TEST(a_status_from_on_frame_closes),
        WORLD_TEST(finish_says_the_last_word),
        WORLD_TEST(finish_does_not_wait_for_a_deaf_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
