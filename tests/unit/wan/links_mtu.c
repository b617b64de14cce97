/* links_mtu.c - attempts with smaller segments, against an acceptor that lets TCP in at once and
 * TLS when the test wants it (P6). tests/system/test_links.py has real paths.
 *
 * Covers: wan/link/path/link_segment.c wan/link/path/segment_attempt.c */
#include "links_world.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "base/net/chan_facts.h"
#include "base/net/listen.h"
#include "check.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"

#define CONNS_MAX 64

struct held {
    struct acceptor *owner;
    int fd; /* -1: it was let in */
    struct tb_wire *wire;
    bool hello, closed;
};

/* East's certificate in the hands of a test; west dials it. */
struct acceptor {
    struct links_world w;
    struct site *west;
    struct tb_tls *tls;
    struct tb_listener *listener;
    uint32_t count, segment_said;
    struct held conns[CONNS_MAX];
};

static void answer(struct held *c)
{
    struct tb_frame_hello hello = {.protocol = TB_LINK_PROTOCOL,
                                   .protocol_min = TB_LINK_PROTOCOL_MIN,
                                   .site = {"east"},
                                   .gateway = {"gw"},
                                   .lane_count = 1,
                                   .incarnation = 1,
                                   .session = {{7}},
                                   .more = {(const uint8_t *)"", 0}};
    struct tb_writer *w = tb_wire_begin(c->wire, TB_FRAME_HELLO, 0, 1024);
    assert_non_null(w);
    tb_frame_hello_encode(&hello, w);
    tb_wire_end(c->wire);
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *f)
{
    struct held *c = user;
    struct tb_frame_ping ping = {0};
    struct tb_frame_segment segment = {0};
    if (f->type == TB_FRAME_HELLO) {
        c->hello = true;
        answer(c);
    } else if (f->type == TB_FRAME_PING) {
        CHECK_OK(tb_frame_ping_decode(&f->payload, &ping));
        const struct tb_frame_pong pong = {.stamp = ping.stamp};
        tb_frame_pong_encode(&pong, tb_wire_begin(w, TB_FRAME_PONG, 0, 64));
        tb_wire_end(w);
    } else if (f->type == TB_FRAME_SEGMENT) {
        CHECK_OK(tb_frame_segment_decode(&f->payload, &segment));
        c->owner->segment_said = segment.bytes;
    }
    return TB_OK;
}

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w, (void)user, (void)peer;
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w, (void)why;
    ((struct held *)user)->wire = NULL;
    ((struct held *)user)->closed = true;
}

static const struct tb_wire_ops ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};

static void on_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    struct acceptor *a = user;
    assert_true(a->count < CONNS_MAX);
    a->conns[a->count++] = (struct held){.owner = a, .fd = fd};
}

static void let_in(struct acceptor *a, uint32_t at)
{
    struct held *c = &a->conns[at];
    const struct tb_wire_options options = {
        .chan = {.loop = &a->w.net.loop, .tls = a->tls}, .ops = &ops, .user = c, .frame_bytes_max = 1 << 20};
    assert_true(c->fd >= 0);
    CHECK_OK(tb_wire_accept(&options, c->fd, &c->wire));
    c->fd = -1;
}

/* As both ends agreed on. */
static int segment_of(const struct acceptor *a, uint32_t at)
{
    int bytes = 0;
    socklen_t size = sizeof bytes;
    assert_int_equal(getsockopt(a->conns[at].fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, &size), 0);
    return bytes;
}

static void acceptor_init(struct acceptor *a)
{
    memset(a, 0, sizeof *a);
    a->west = links_acceptor(&a->w, on_accept, a, &a->tls, &a->listener);
    a->west->options.silent_ms = 200;
    a->west->options.heartbeat_ms = 100;
    a->west->options.down_ms = 60000;
    site_start(a->west);
}

static void acceptor_fini(struct acceptor *a)
{
    site_close(a->west);
    for (uint32_t i = 0; i < a->count; i++) {
        if (a->conns[i].wire != NULL) tb_wire_close(a->conns[i].wire, TB_CANCELLED);
        if (a->conns[i].fd >= 0) close(a->conns[i].fd);
    }
    for (uint32_t i = 0; i < a->count; i++)
        WORLD_UNTIL(&a->w.net, a->conns[i].wire == NULL);
    tb_listener_close(a->listener);
    tb_tls_free(a->tls);
    links_world_fini(&a->w);
}

static const struct tb_segment *segment(const struct acceptor *a)
{
    return &a->west->links->links[0].path.segment;
}

/* Each attempt after one that TLS does not open is smaller; the first that opens is the session. */
static void second_one_opens(struct acceptor *a)
{
    acceptor_init(a);
    WORLD_UNTIL(&a->w.net, a->count >= 3);
    assert_in_range(segment_of(a, 0), 1001, 1200); /* of a session's own connection, at most */
    assert_in_range(segment_of(a, 1), 537, 1000);
    assert_in_range(segment_of(a, 2), 1, 536);
    let_in(a, 1);
    WORLD_UNTIL(&a->w.net, site_stats(a->west, 0).up);
    assert_int_equal(segment(a)->bytes_max, 1000);
    assert_int_equal(site_stats(a->west, 0).why, TB_LINKS_WHY_NONE); /* nobody knows yet */
}

static void a_stream_that_never_opens_is_the_proof(void **state)
{
    (void)state;
    static struct acceptor a;
    second_one_opens(&a);
    WORLD_UNTIL(&a.w.net, site_stats(a.west, 0).why == TB_LINKS_WHY_MTU && a.segment_said != 0);
    assert_int_equal(a.segment_said, 1000);
    assert_true(site_stats(a.west, 0).up);
    assert_non_null(strstr(site_stats(a.west, 0).error, "segments of 1000 bytes"));
    acceptor_fini(&a);
}

/* The twin of that: a peer that was slow opens the large one, too, and nothing is said of it. */
static void a_stream_that_opens_late_clears_it(void **state)
{
    (void)state;
    static struct acceptor a;
    second_one_opens(&a);
    let_in(&a, 0);
    WORLD_UNTIL(&a.w.net, a.conns[0].closed);
    assert_false(a.conns[0].hello); /* the session stays where it is */
    assert_int_equal(segment(&a)->bytes_max, 0);
    assert_int_equal(site_stats(a.west, 0).why, TB_LINKS_WHY_NONE);
    assert_int_equal(site_stats(a.west, 0).sessions, 1);
    assert_int_equal(a.segment_said, 0);
    acceptor_fini(&a);
}

/* An acceptor whose full segments do not arrive says so: the dialler moves the
 * session to smaller ones. */
static void a_dialler_does_what_it_is_told(void **state)
{
    (void)state;
    static struct acceptor a;
    acceptor_init(&a);
    WORLD_UNTIL(&a.w.net, a.count == 1);
    let_in(&a, 0);
    WORLD_UNTIL(&a.w.net, site_stats(a.west, 0).up);
    const uint32_t before = a.count;
    const struct tb_frame_segment said = {.bytes = 900};
    tb_frame_segment_encode(&said, tb_wire_begin(a.conns[0].wire, TB_FRAME_SEGMENT, 0, 64));
    tb_wire_end(a.conns[0].wire);
    WORLD_UNTIL(&a.w.net, site_stats(a.west, 0).why == TB_LINKS_WHY_MTU);
    uint32_t small = CONNS_MAX;
    for (uint32_t i = before; small == CONNS_MAX; i++) {
        WORLD_UNTIL(&a.w.net, a.count > i);
        if (segment_of(&a, i) <= 900) small = i;
    }
    for (uint32_t i = small; site_stats(a.west, 0).sessions == 1; i++) {
        WORLD_UNTIL(&a.w.net, a.count > i);
        if (segment_of(&a, i) <= 900) let_in(&a, i);
        world_turns(&a.w.net, 50);
    }
    assert_int_equal(site_stats(a.west, 0).why, TB_LINKS_WHY_MTU); /* it is still so in the session after */
    acceptor_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_that_never_opens_is_the_proof),
        cmocka_unit_test(a_stream_that_opens_late_clears_it),
        cmocka_unit_test(a_dialler_does_what_it_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
