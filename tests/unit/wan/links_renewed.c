/* links_renewed.c - how few round trips a session takes that follows another one (P6): a gateway
 * against an acceptor that answers HELLO when the test wants it.
 *
 * Covers: wan/link/session/link_session_life.c wan/link/streams/streams_ahead.c wan/link/links.c */
#include "links_world.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/net/chan_facts.h"
#include "base/net/listen.h"
#include "check.h"
#include "wan/frame/frame.h"

#define CONNS_MAX 32
#define STREAMS   4

struct accepted {
    struct tb_wire *wire; /* NULL: closed */
    bool open, hello, subscribed, bound, answered;
    struct tb_id session;         /* of its BIND */
    struct tb_fingerprint theirs; /* of the certificate that it showed */
};

/* East's certificate in the hands of a test; west dials it. */
struct acceptor {
    struct links_world w;
    struct site *west;
    struct tb_tls *tls;
    struct tb_listener *listener;
    uint32_t count;
    struct accepted conns[CONNS_MAX];
};

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w;
    struct accepted *c = user;
    c->open = true;
    c->theirs = peer->fingerprint;
}

static void pong(struct tb_wire *w, struct tb_wire_frame *f)
{
    struct tb_frame_ping ping = {0};
    CHECK_OK(tb_frame_ping_decode(&f->payload, &ping));
    const struct tb_frame_pong said = {.stamp = ping.stamp};
    tb_frame_pong_encode(&said, tb_wire_begin(w, TB_FRAME_PONG, 0, 64));
    tb_wire_end(w);
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *f)
{
    struct accepted *c = user;
    struct tb_frame_bind bind = {0};
    if (f->type == TB_FRAME_PING) pong(w, f);
    c->hello |= f->type == TB_FRAME_HELLO;
    c->subscribed |= f->type == TB_FRAME_SUBSCRIBE;
    if (f->type == TB_FRAME_BIND) {
        CHECK_OK(tb_frame_bind_decode(&f->payload, &bind));
        c->bound = true;
        c->session = bind.session;
    }
    return TB_OK;
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w, (void)why;
    ((struct accepted *)user)->wire = NULL;
}

static const struct tb_wire_ops ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};

static void on_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    struct acceptor *a = user;
    assert_true(a->count < CONNS_MAX);
    struct accepted *c = &a->conns[a->count++];
    const struct tb_wire_options options = {
        .chan = {.loop = &a->w.net.loop, .tls = a->tls}, .ops = &ops, .user = c, .frame_bytes_max = 1 << 20};
    CHECK_OK(tb_wire_accept(&options, fd, &c->wire));
}

static void acceptor_init(struct acceptor *a, uint32_t retry_ms)
{
    memset(a, 0, sizeof *a);
    a->west = links_acceptor(&a->w, on_accept, a, &a->tls, &a->listener);
    a->west->options.streams = STREAMS;
    a->west->options.retry_min_ms = a->west->options.retry_max_ms = retry_ms;
    a->west->options.heartbeat_ms = 100;
    site_start(a->west);
}

static void acceptor_fini(struct acceptor *a)
{
    site_close(a->west);
    for (uint32_t i = 0; i < a->count; i++)
        if (a->conns[i].wire != NULL) tb_wire_close(a->conns[i].wire, TB_CANCELLED);
    for (uint32_t i = 0; i < a->count; i++)
        WORLD_UNTIL(&a->w.net, a->conns[i].wire == NULL);
    tb_listener_close(a->listener);
    tb_tls_free(a->tls);
    links_world_fini(&a->w);
}

/* The control stream that waits for its HELLO; NULL: none has come. */
static struct accepted *greeter(struct acceptor *a)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (a->conns[i].wire != NULL && a->conns[i].hello) return &a->conns[i];
    return NULL;
}

static uint32_t open_count(const struct acceptor *a)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < a->count; i++)
        count += a->conns[i].wire != NULL && a->conns[i].open;
    return count;
}

static uint32_t bound_to(const struct acceptor *a, const struct tb_id *session)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < a->count; i++)
        count += a->conns[i].wire != NULL && a->conns[i].bound && tb_id_equal(&a->conns[i].session, session);
    return count;
}

static void answer(struct accepted *c, const struct tb_id *session)
{
    c->answered = true;
    struct tb_frame_hello hello = {.protocol = TB_LINK_PROTOCOL,
                                   .protocol_min = TB_LINK_PROTOCOL_MIN,
                                   .site = {"east"},
                                   .gateway = {"gw"},
                                   .lane_count = 1,
                                   .incarnation = 1,
                                   .session = *session,
                                   .more = {(const uint8_t *)"", 0}};
    hello.life.bytes[0] = 1;
    struct tb_writer *w = tb_wire_begin(c->wire, TB_FRAME_HELLO, 0, 1024);
    assert_non_null(w);
    tb_frame_hello_encode(&hello, w);
    tb_wire_end(c->wire);
}

/* The first session, up to its data streams; then everything breaks. */
static void come_and_go(struct acceptor *a)
{
    const struct tb_id first = {{1}};
    WORLD_UNTIL(&a->w.net, greeter(a) != NULL);
    world_turns(&a->w.net, 20);
    assert_int_equal(a->count, 1); /* who was never here is not dialled ahead */
    answer(greeter(a), &first);
    WORLD_UNTIL(&a->w.net, bound_to(a, &first) == STREAMS);
    for (uint32_t i = 0; i < a->count; i++)
        tb_wire_close(a->conns[i].wire, TB_CANCELLED);
    for (uint32_t i = 0; i < a->count; i++)
        WORLD_UNTIL(&a->w.net, a->conns[i].wire == NULL);
}

/* P6: a dialler says its wants behind its HELLO, and does not wait a round trip for the
 * answer. */
static void a_dialler_subscribes_behind_its_hello(void **state)
{
    (void)state;
    static struct acceptor a;
    acceptor_init(&a, 10);
    WORLD_UNTIL(&a.w.net, greeter(&a) != NULL && greeter(&a)->subscribed);
    acceptor_fini(&a);
}

/* P6: to a peer that was here before, data streams are dialled while HELLO is unanswered,
 * and bind once it is. */
static void streams_are_there_when_the_session_is(void **state)
{
    (void)state;
    static struct acceptor a;
    const struct tb_id second = {{2}};
    acceptor_init(&a, 10);
    come_and_go(&a);
    WORLD_UNTIL(&a.w.net, greeter(&a) != NULL && open_count(&a) == 1 + STREAMS);
    assert_int_equal(bound_to(&a, &second), 0);
    const uint32_t before = a.count;
    answer(greeter(&a), &second);
    WORLD_UNTIL(&a.w.net, bound_to(&a, &second) == STREAMS);
    assert_int_equal(a.count, before); /* the same ones */
    acceptor_fini(&a);
}

/* P7: those of an attempt that is refused end with it. */
static void streams_ahead_end_with_their_attempt(void **state)
{
    (void)state;
    static struct acceptor a;
    acceptor_init(&a, 1000);
    come_and_go(&a);
    WORLD_UNTIL(&a.w.net, greeter(&a) != NULL && open_count(&a) == 1 + STREAMS);
    tb_wire_close(greeter(&a)->wire, TB_CANCELLED);
    WORLD_UNTIL(&a.w.net, open_count(&a) == 0);
    acceptor_fini(&a);
}

/* P7: nothing was asked of a stream that waits for its session, so an answer on it is no answer. */
static void a_binding_answered_unasked_is_refused(void **state)
{
    (void)state;
    static struct acceptor a;
    const struct tb_frame_bound nothing = {0};
    acceptor_init(&a, 1000);
    come_and_go(&a);
    WORLD_UNTIL(&a.w.net, greeter(&a) != NULL && open_count(&a) == 1 + STREAMS);
    const struct accepted *control = greeter(&a);
    for (uint32_t i = 0; i < a.count; i++) {
        if (a.conns[i].wire == NULL || &a.conns[i] == control) continue;
        tb_frame_bound_encode(&nothing, tb_wire_begin(a.conns[i].wire, TB_FRAME_BOUND, 0, 64));
        tb_wire_end(a.conns[i].wire);
    }
    WORLD_UNTIL(&a.w.net, open_count(&a) == 1);
    assert_non_null(control->wire);
    acceptor_fini(&a);
}

/* P8: a certificate of an authority that is trusted no more becomes no session: not the
 * connection that waits for HELLO, nor the streams beside it. */
static void nothing_of_the_old_trust_becomes_a_session(void **state)
{
    (void)state;
    static struct acceptor a;
    char why[256];
    const struct tb_name more = {"north"};
    const struct tb_id second = {{2}};
    acceptor_init(&a, 10);
    come_and_go(&a);
    WORLD_UNTIL(&a.w.net, greeter(&a) != NULL && open_count(&a) == 1 + STREAMS);
    const uint32_t before = a.count;
    struct tb_tls *tls = world_tls(&a.w.net, "west", "gw", "west");
    CHECK_OK(tb_tls_add_site_ca(tls, &more, world_path(&a.w.net, "east", "ca.crt"), why));
    CHECK_OK(tb_links_set_tls(a.west->links, tls));
    tb_tls_free(tls);
    answer(greeter(&a), &second);
    for (uint32_t i = 0; i < before; i++)
        WORLD_UNTIL(&a.w.net, a.conns[i].wire == NULL);
    for (uint32_t i = 0; i < a.count; i++)
        assert_false(tb_id_equal(&a.conns[i].session, &second));
    acceptor_fini(&a);
}

/* Of a certificate renewed since the last session began: the connection that waits for its
 * HELLO. */
static struct accepted *renewer(struct acceptor *a)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (a->conns[i].wire != NULL && a->conns[i].hello && !a->conns[i].answered) return &a->conns[i];
    return NULL;
}

/* A fresh certificate of west's, by the same authority. */
static struct tb_tls *issue_again(struct acceptor *a, const char *stem)
{
    char why[256];
    const struct tb_name east = {"east"};
    world_issue(&a->w.net, "west", stem, "tombolo://west/gw");
    struct tb_tls *tls = world_tls(&a->w.net, "west", stem, "west");
    CHECK_OK(tb_tls_add_site_ca(tls, &east, world_path(&a->w.net, "east", "ca.crt"), why));
    return tls;
}

/* P6 P9: certificates that come while a renewal with those before is under way have one of their
 * own when it ends, and not in their predecessors' last minute. */
static void a_certificate_that_comes_during_a_renewal_is_renewed_too(void **state)
{
    (void)state;
    static struct acceptor a;
    const struct tb_id first = {{1}}, second = {{2}}, third = {{3}};
    acceptor_init(&a, 10);
    WORLD_UNTIL(&a.w.net, greeter(&a) != NULL);
    struct accepted *before = greeter(&a);
    answer(before, &first);
    WORLD_UNTIL(&a.w.net, bound_to(&a, &first) == STREAMS);
    struct tb_tls *tls[] = {issue_again(&a, "again"), issue_again(&a, "newest")};
    CHECK_OK(tb_links_set_tls(a.west->links, tls[0]));
    WORLD_UNTIL(&a.w.net, renewer(&a) != NULL);
    assert_memory_equal(&renewer(&a)->theirs, tb_tls_fingerprint(tls[0]), sizeof(struct tb_fingerprint));
    CHECK_OK(tb_links_set_tls(a.west->links, tls[1]));
    world_turns(&a.w.net, 20);
    struct accepted *const running = renewer(&a);
    answer(running, &second);
    WORLD_UNTIL(&a.w.net, renewer(&a) != NULL);
    assert_non_null(running->wire); /* which is the session now */
    assert_memory_equal(&renewer(&a)->theirs, tb_tls_fingerprint(tls[1]), sizeof(struct tb_fingerprint));
    answer(renewer(&a), &third);
    WORLD_UNTIL(&a.w.net, bound_to(&a, &third) == STREAMS);
    assert_null(renewer(&a)); /* it shows the newest: that was the last */
    assert_int_equal(a.west->downs, 0);
    for (int i = 0; i < 2; i++)
        tb_tls_free(tls[i]);
    acceptor_fini(&a);
}

/* P6 P9: a root that comes beside the one that vouches for the peer ends no session; it goes on
 * over a fresh connection. P8: a root that goes ends the session that it vouched for. */
static void only_what_is_trusted_no_more_ends(void **state)
{
    (void)state;
    static struct acceptor a;
    char why[256];
    const struct tb_name east = {"east"};
    const struct tb_id first = {{1}}, second = {{2}};
    acceptor_init(&a, 10);
    WORLD_UNTIL(&a.w.net, greeter(&a) != NULL);
    answer(greeter(&a), &first);
    WORLD_UNTIL(&a.w.net, bound_to(&a, &first) == STREAMS);
    CHECK_OK(tb_pki_init(world_path(&a.w.net, "east", "next"), "east", 30, why));
    struct tb_tls *both = issue_again(&a, "again"), *other = world_tls(&a.w.net, "west", "gw", "west");
    CHECK_OK(tb_tls_add_site_ca(both, &east, world_path(&a.w.net, "east", "next/ca.crt"), why));
    CHECK_OK(tb_tls_add_site_ca(other, &east, world_path(&a.w.net, "east", "next/ca.crt"), why));
    CHECK_OK(tb_links_set_tls(a.west->links, both));
    WORLD_UNTIL(&a.w.net, renewer(&a) != NULL);
    answer(renewer(&a), &second);
    WORLD_UNTIL(&a.w.net, bound_to(&a, &second) == STREAMS);
    assert_int_equal(a.west->downs, 0);
    CHECK_OK(tb_links_set_tls(a.west->links, other));
    WORLD_UNTIL(&a.w.net, a.west->downs == 1);
    tb_tls_free(both);
    tb_tls_free(other);
    acceptor_fini(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_dialler_subscribes_behind_its_hello),
        cmocka_unit_test(streams_are_there_when_the_session_is),
        cmocka_unit_test(streams_ahead_end_with_their_attempt),
        cmocka_unit_test(a_binding_answered_unasked_is_refused),
        cmocka_unit_test(nothing_of_the_old_trust_becomes_a_session),
        cmocka_unit_test(only_what_is_trusted_no_more_ends),
        cmocka_unit_test(a_certificate_that_comes_during_a_renewal_is_renewed_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
