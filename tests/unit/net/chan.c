/* chan.c - one channel from dial to on_closed, plain and with TLS: who hears what, in which
 * order (P8, P10).
 * Covers: base/net/chan.c base/net/chan_bytes.c
 * Covers: base/net/chan_facts.c */
#include "base/net/chan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "net_world.h"

/* Both ends trust one ephemeral context: identities are the subject of tls.c. */
static struct tb_tls *context(void)
{
    struct tb_tls *tls = NULL;
    assert_int_equal(tb_tls_new_ephemeral(&tls), TB_OK);
    return tls;
}

static void pair_start(struct pair *p, struct world *w, struct tb_tls *tls, bool local)
{
    pair_init(p, w, tls, tls, local);
    p->server.expect.any_fingerprint = p->client.expect.any_fingerprint = true;
}

static uint8_t *pattern(size_t count, uint64_t seed)
{
    uint8_t *bytes = malloc(count);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i += 8) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t mixed = seed ^ (seed >> 29);
        memcpy(bytes + i, &mixed, count - i < 8 ? count - i : 8);
    }
    return bytes;
}

/* Both ways at once, with reads that are no multiple of a record. */
static void transfer(struct world *w, bool secure, bool local, size_t bytes)
{
    struct tb_tls *tls = secure ? context() : NULL;
    struct pair p;
    uint8_t *there = pattern(bytes, 1), *back = pattern(bytes, 2);
    pair_start(&p, w, tls, local);
    p.s.read_bytes = 3001;
    p.c.read_bytes = 40009;
    p.s.check = there;
    p.c.check = back;
    pair_open(&p);
    end_send(&p.c, there, bytes);
    end_send(&p.s, back, bytes);
    WORLD_UNTIL(w, p.s.got == bytes && p.c.got == bytes);
    world_turns(w, 3);
    assert_int_equal(p.s.got, bytes);
    pair_fini(&p);
    tb_tls_free(tls);
    free(there);
    free(back);
}

static void bytes_arrive_as_they_left_over_tls(void **state)
{
    transfer(*state, true, false, (size_t)64 << 20);
}

static void bytes_arrive_as_they_left_over_tcp(void **state)
{
    transfer(*state, false, false, (size_t)64 << 20);
}

static void bytes_arrive_as_they_left_over_a_unix_socket(void **state)
{
    transfer(*state, false, true, (size_t)8 << 20);
    transfer(*state, true, true, (size_t)1 << 20);
}

/* Bytes that TLS has taken from the socket already come although the socket is quiet. */
static void bytes_inside_tls_are_not_forgotten(void **state)
{
    struct world *w = *state;
    struct tb_tls *tls = context();
    struct pair p;
    uint8_t *bytes = pattern(50000, 3);
    pair_start(&p, w, tls, false);
    pair_open(&p);
    p.s.read_bytes = 1;
    end_send(&p.c, bytes, 50000);
    WORLD_UNTIL(w, p.s.got == 50000);
    assert_memory_equal(p.s.in, bytes, 50000);
    pair_fini(&p);
    tb_tls_free(tls);
    free(bytes);
}

/* P6: while one chan drains what is inside TLS byte by byte, the loop's others have their turns. */
static void draining_one_chan_starves_no_other(void **state)
{
    struct world *w = *state;
    struct tb_tls *tls = context();
    struct pair p, q;
    uint8_t *bytes = pattern(30000, 4);
    pair_start(&p, w, tls, false);
    pair_open(&p);
    pair_init(&q, w, NULL, NULL, true);
    pair_open(&q);
    p.s.read_bytes = 1;
    end_send(&p.c, bytes, 30000);
    WORLD_UNTIL(w, p.s.got > 0);
    end_send(&q.c, "ping", 4);
    WORLD_UNTIL(w, q.s.got == 4);
    assert_in_range(p.s.got, 1, 200); /* one byte a turn */
    pair_fini(&q);
    pair_fini(&p);
    tb_tls_free(tls);
    free(bytes);
}

/* Not wanting to read is what pushes back; wanting again brings what is inside TLS, too. */
static void nothing_comes_while_reading_is_not_wanted(void **state)
{
    struct world *w = *state;
    for (int secure = 0; secure < 2; secure++) {
        struct tb_tls *tls = secure ? context() : NULL;
        struct pair p;
        uint8_t *bytes = pattern((size_t)32 << 20, 5);
        pair_start(&p, w, tls, false);
        pair_open(&p);
        p.s.read_bytes = 100;
        p.s.check = bytes;
        end_send(&p.c, bytes, (size_t)32 << 20);
        WORLD_UNTIL(w, p.s.got > 0);
        tb_chan_want_read(p.s.chan, false);
        const int before = p.s.readable;
        world_turns(w, 50);
        assert_int_equal(p.s.readable, before);
        assert_true(p.c.sent < p.c.out_bytes); /* the window is shut, and nobody buffers the rest */
        p.s.read_bytes = 60000;
        tb_chan_want_read(p.s.chan, true);
        WORLD_UNTIL(w, p.s.got == (size_t)32 << 20);
        pair_fini(&p);
        tb_tls_free(tls);
        free(bytes);
    }
}

/* A callback that does not read is called again. */
static void readable_is_a_level_and_not_an_edge(void **state)
{
    struct world *w = *state;
    struct tb_tls *tls = context();
    struct pair p;
    pair_start(&p, w, tls, false);
    pair_open(&p);
    p.s.read_not = true;
    end_send(&p.c, "abc", 3);
    WORLD_UNTIL(w, p.s.readable >= 3);
    p.s.read_not = false;
    WORLD_UNTIL(w, p.s.got == 3);
    pair_fini(&p);
    tb_tls_free(tls);
}

static void an_orderly_end_is_told_from_a_cut(void **state)
{
    struct world *w = *state;
    struct tb_tls *tls = context();
    struct pair p;
    pair_start(&p, w, tls, false);
    pair_open(&p);
    tb_chan_close(p.c.chan, TB_OK);
    WORLD_UNTIL(w, p.s.closed == 1);
    assert_int_equal(p.s.why, TB_STREAM_CLOSED);
    pair_fini(&p);

    pair_start(&p, w, tls, false);
    pair_open(&p);
    assert_int_equal(shutdown(tb_chan_fd(p.c.chan), SHUT_WR), 0); /* FIN without close_notify */
    WORLD_UNTIL(w, p.s.closed == 1);
    assert_int_equal(p.s.why, TB_STREAM_IO);
    assert_non_null(strstr(p.s.reason, "goodbye"));
    pair_fini(&p);
    tb_tls_free(tls);
}

static void reset_on_close(int fd)
{
    const struct linger hard = {.l_onoff = 1};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard), 0);
}

/* Bytes that came before a reset are delivered before the error. */
static void bytes_before_a_reset_are_read_first(void **state)
{
    struct world *w = *state;
    struct pair p;
    pair_start(&p, w, NULL, false);
    pair_dial(&p);
    WORLD_UNTIL(w, p.s.opened && p.c.opened);
    p.s.read_bytes = 1;
    tb_chan_want_read(p.s.chan, false);
    end_send(&p.c, "last words", 10);
    int waiting = 0;
    WORLD_UNTIL(w, ioctl(tb_chan_fd(p.s.chan), FIONREAD, &waiting) == 0 && waiting == 10);
    reset_on_close(tb_chan_fd(p.c.chan));
    tb_chan_close(p.c.chan, TB_OK);
    WORLD_UNTIL(w, p.c.closed == 1);
    tb_chan_want_read(p.s.chan, true);
    WORLD_UNTIL(w, p.s.closed == 1);
    assert_int_equal(p.s.why, TB_STREAM_IO);
    assert_int_equal(p.s.got, 10);
    pair_fini(&p);
}

/* close() with unread bytes resets the connection and takes our last words with it; end does
 * not. */
static void last_words_reach_a_peer_that_talks(void **state)
{
    struct world *w = *state;
    for (int secure = 0; secure < 2; secure++) {
        struct tb_tls *tls = secure ? context() : NULL;
        struct pair p;
        uint8_t *chatter = pattern(100000, 6);
        pair_start(&p, w, tls, false);
        pair_open(&p);
        tb_chan_want_read(p.s.chan, false);
        tb_chan_want_read(p.c.chan, false);
        end_send(&p.c, chatter, 100000);
        WORLD_UNTIL(w, p.c.sent == 100000);
        end_send(&p.s, "refused", 7);
        WORLD_UNTIL(w, p.s.sent == 7);
        tb_chan_end(p.s.chan);
        tb_chan_want_read(p.s.chan, true);
        tb_chan_want_read(p.c.chan, true);
        WORLD_UNTIL(w, p.c.closed == 1);
        assert_int_equal(p.c.why, TB_STREAM_CLOSED);
        assert_int_equal(p.c.got, 7);
        WORLD_UNTIL(w, p.s.closed == 1);
        assert_int_equal(p.s.got, 100000);
        pair_fini(&p);
        tb_tls_free(tls);
        free(chatter);
    }
}

/* P7: a client that connects and says nothing, or says it to a wall, is gone after open_ms. */
static void opening_is_bounded(void **state)
{
    struct world *w = *state;
    struct tb_tls *tls = context();
    struct pair p;
    pair_start(&p, w, tls, false);
    p.server.open_ms = 50;
    const int fd = raw_connect(&p.at); /* never a byte of a handshake */
    WORLD_UNTIL(w, p.s.closed == 1);
    assert_int_equal(p.s.why, TB_STREAM_IDLE);
    assert_int_equal(p.s.opened, 0);
    close(fd);
    pair_fini(&p);

    pair_start(&p, w, tls, false); /* half a record and then nothing */
    p.server.open_ms = 50;
    const int half = raw_connect(&p.at);
    assert_int_equal(send(half, "\x16\x03\x01\x02\x00\x01", 6, 0), 6);
    WORLD_UNTIL(w, p.s.closed == 1);
    assert_int_equal(p.s.why, TB_STREAM_IDLE);
    close(half);
    pair_fini(&p);

    pair_start(&p, w, tls, false);
    const int wall = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* listens and never accepts */
    struct tb_address at = loopback(0);
    assert_int_equal(bind(wall, &at.any, at.bytes), 0);
    assert_int_equal(listen(wall, 1), 0);
    assert_int_equal(getsockname(wall, &at.any, &at.bytes), 0);
    p.at = at;
    p.client.open_ms = 50;
    pair_dial(&p);
    WORLD_UNTIL(w, p.c.closed == 1);
    assert_int_equal(p.c.why, TB_STREAM_IDLE);
    assert_string_equal(p.c.reason, "did not open in time");
    close(wall);
    pair_fini(&p);
    tb_tls_free(tls);
}

/* The twin: a connection that opened in time is not closed by that limit. */
static void the_opening_limit_ends_with_opening(void **state)
{
    struct world *w = *state;
    struct pair p;
    pair_start(&p, w, NULL, false);
    p.server.open_ms = p.client.open_ms = 1;
    pair_dial(&p);
    WORLD_UNTIL(w, (p.s.opened && p.c.opened) || p.s.closed || p.c.closed);
    if (p.s.opened && p.c.opened) {
        const tb_time_ns until = tb_clock_now() + TB_MS(30);
        WORLD_UNTIL(w, tb_clock_now() > until);
        assert_int_equal(p.s.closed + p.c.closed, 0);
    }
    pair_fini(&p);
}

static void a_deadline_closes_with_its_status(void **state)
{
    struct world *w = *state;
    struct pair p;
    pair_start(&p, w, NULL, true);
    pair_open(&p);
    tb_chan_deadline(p.c.chan, TB_SITE_DRAINING, 100000);
    tb_chan_deadline(p.c.chan, TB_PEER_LEASE, 20);
    tb_chan_deadline(p.c.chan, TB_SITE_DRAINING, 100000);
    WORLD_UNTIL(w, p.c.closed == 1);
    assert_int_equal(p.c.why, TB_PEER_LEASE);
    pair_fini(&p);
}

static void nobody_there_is_unreachable_and_says_why(void **state)
{
    struct world *w = *state;
    struct pair p;
    for (int local = 0; local < 2; local++) {
        pair_start(&p, w, NULL, local != 0);
        tb_listener_close(p.listener);
        world_turns(w, 2);
        pair_dial(&p);
        WORLD_UNTIL(w, p.c.closed == 1);
        assert_int_equal(p.c.opened, 0);
        assert_int_equal(p.c.why, TB_PEER_UNREACHABLE);
        assert_string_equal(p.c.reason, local ? "No such file or directory" : "Connection refused");
        assert_int_equal(p.c.reach, local ? TB_CHAN_NOWHERE : TB_CHAN_HEARD);
        p.listener = NULL;
        pair_fini(&p);
    }
}

/* P6: a machine that knows no way, as while its device is down, has not been refused by anybody. */
static void no_way_there_is_no_answer(void **state)
{
    struct world *w = *state;
    struct pair p;
    pair_start(&p, w, NULL, false);
    p.at = loopback(9);
    p.at.v4.sin_addr.s_addr = htonl(0xe0000001); /* a group: TCP has no way to it, on any machine */
    pair_dial(&p);
    WORLD_UNTIL(w, p.c.closed == 1);
    assert_int_equal(p.c.why, TB_PEER_UNREACHABLE);
    assert_int_equal(p.c.reach, TB_CHAN_NOWHERE);
    pair_fini(&p);
}

/* P8: a process on this host is known by what the kernel says. */
static void a_unix_peer_has_its_credentials(void **state)
{
    struct world *w = *state;
    struct pair p;
    pair_start(&p, w, NULL, true);
    pair_open(&p);
    assert_int_equal(p.s.peer.identity.kind, TB_IDENTITY_UNIX);
    assert_int_equal(p.s.peer.identity.uid, getuid());
    assert_int_equal(p.s.peer.pid, getpid());
    assert_int_equal(p.c.peer.identity.uid, getuid());
    pair_fini(&p);
    pair_start(&p, w, NULL, false);
    pair_open(&p);
    assert_int_equal(p.s.peer.identity.kind, TB_IDENTITY_NONE);
    pair_fini(&p);
}

/* Descriptors. */

static void no_reading(struct pair *p)
{
    p->s.read_not = true;
    tb_chan_want_read(p->s.chan, false);
}

static void descriptors_pass(void **state)
{
    struct world *w = *state;
    struct pair p;
    pair_start(&p, w, NULL, true);
    pair_open(&p);
    no_reading(&p);
    const int before = open_fds();
    int pipes[2], got[16];
    uint32_t count = 0;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(tb_chan_recv_fds(p.s.chan, got, 16, &count), TB_AGAIN);
    assert_int_equal(tb_chan_send_fds(p.c.chan, pipes, 2), TB_OK);
    enum tb_status status = TB_AGAIN;
    WORLD_UNTIL(w, (status = tb_chan_recv_fds(p.s.chan, got, 16, &count)) != TB_AGAIN);
    assert_int_equal(status, TB_OK);
    assert_int_equal(count, 2);
    assert_true((fcntl(got[0], F_GETFD) & FD_CLOEXEC) != 0);
    char byte = 0;
    assert_int_equal(write(got[1], "!", 1), 1);
    assert_int_equal(read(pipes[0], &byte, 1), 1);
    assert_int_equal(byte, '!');
    for (int i = 0; i < 2; i++) {
        close(got[i]);
        close(pipes[i]);
    }
    assert_int_equal(open_fds(), before);
    pair_fini(&p);
}

/* P7: descriptors that nobody asked for do not stay. */
static void too_many_descriptors_are_closed_again(void **state)
{
    struct world *w = *state;
    struct pair p;
    pair_start(&p, w, NULL, true);
    pair_open(&p);
    no_reading(&p);
    const int before = open_fds();
    int fds[16], got[16];
    uint32_t count = 0;
    for (int i = 0; i < 16; i++)
        fds[i] = STDERR_FILENO;
    assert_int_equal(tb_chan_send_fds(p.c.chan, fds, 16), TB_OK);
    enum tb_status status = TB_AGAIN;
    WORLD_UNTIL(w, (status = tb_chan_recv_fds(p.s.chan, got, 2, &count)) != TB_AGAIN);
    assert_int_equal(status, TB_PEER_GARBLED);
    assert_int_equal(open_fds(), before);
    WORLD_UNTIL(w, p.s.closed == 1);
    assert_int_equal(p.s.why, TB_PEER_GARBLED);
    pair_fini(&p);

    pair_start(&p, w, NULL, true); /* and a plain read drops them */
    pair_open(&p);
    const int then = open_fds();
    assert_int_equal(tb_chan_send_fds(p.c.chan, fds, 16), TB_OK);
    WORLD_UNTIL(w, p.s.got == 1);
    assert_int_equal(open_fds(), then);
    pair_fini(&p);
}

static void bytes_in_place_of_descriptors_are_refused(void **state)
{
    struct world *w = *state;
    struct pair p;
    pair_start(&p, w, NULL, true);
    pair_open(&p);
    no_reading(&p);
    int got[16];
    uint32_t count = 9;
    end_send(&p.c, "F", 1);
    enum tb_status status = TB_AGAIN;
    WORLD_UNTIL(w, (status = tb_chan_recv_fds(p.s.chan, got, 16, &count)) != TB_AGAIN);
    assert_int_equal(status, TB_PEER_GARBLED);
    assert_int_equal(count, 0);
    pair_fini(&p);
}

/* Closing. */

static void closing_is_safe_in_every_callback(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 6; i++) {
        struct tb_tls *tls = i % 2 ? context() : NULL;
        struct pair p;
        pair_start(&p, w, tls, false);
        p.s.close_in_open = i / 2 == 0;
        p.s.close_in_readable = i / 2 == 1;
        p.s.close_in_writable = i / 2 == 2;
        if (p.s.close_in_writable) {
            p.s.out = (const uint8_t *)"x";
            p.s.out_bytes = 1;
        }
        pair_dial(&p);
        WORLD_UNTIL(w, p.c.opened == 1 || p.c.closed == 1);
        if (p.s.close_in_readable && p.c.chan != NULL) end_send(&p.c, "y", 1);
        WORLD_UNTIL(w, p.s.closed == 1 && p.c.closed == 1);
        assert_int_equal(p.s.why, TB_CANCELLED);
        assert_int_equal(p.s.closed, 1);
        assert_int_equal(p.s.got, 0); /* the read after the close said so */
        pair_fini(&p);
        tb_tls_free(tls);
    }
}

static void a_chan_closes_once_and_before_it_opens_too(void **state)
{
    struct world *w = *state;
    struct tb_tls *tls = context();
    struct pair p;
    pair_start(&p, w, tls, false);
    pair_dial(&p);
    tb_chan_close(p.c.chan, TB_SITE_DRAINING);
    tb_chan_close(p.c.chan, TB_PEER_LEASE);
    tb_chan_want_read(p.c.chan, true); /* calls on a closed chan do nothing */
    tb_chan_want_write(p.c.chan, true);
    tb_chan_end(p.c.chan);
    tb_chan_deadline(p.c.chan, TB_TIMEOUT, 0);
    assert_int_equal(p.c.closed, 0); /* not inside the call */
    WORLD_UNTIL(w, p.c.closed > 0);
    world_turns(w, 5);
    assert_int_equal(p.c.closed, 1);
    assert_int_equal(p.c.why, TB_SITE_DRAINING);
    assert_int_equal(p.c.opened, 0);
    pair_fini(&p);
    tb_tls_free(tls);
}

/* A peer that went away is a status and no signal. SIGPIPE has its default action
 * here, which is death. */
static void writing_to_a_dead_peer_kills_nobody(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 4; i++) {
        struct tb_tls *tls = i % 2 ? context() : NULL;
        struct pair p;
        uint8_t *bytes = pattern((size_t)8 << 20, 7);
        pair_start(&p, w, tls, i >= 2);
        pair_open(&p);
        tb_chan_want_read(p.c.chan, false); /* so that only the write can find out */
        if (i < 2) reset_on_close(tb_chan_fd(p.s.chan));
        tb_chan_close(p.s.chan, TB_OK);
        WORLD_UNTIL(w, p.s.closed == 1);
        end_send(&p.c, bytes, (size_t)8 << 20);
        WORLD_UNTIL(w, p.c.closed == 1);
        assert_true(p.c.why == TB_STREAM_IO || p.c.why == TB_STREAM_CLOSED);
        pair_fini(&p);
        tb_tls_free(tls);
        free(bytes);
    }
}

static void no_descriptor_is_left_behind(void **state)
{
    struct world *w = *state;
    struct tb_tls *tls = context();
    struct pair p;
    const int before = open_fds();
    pair_start(&p, w, tls, false);
    pair_open(&p);
    pair_fini(&p);
    world_turns(w, 2);
    /* accept takes its descriptor on failure, too */
    int two[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, two), 0);
    struct tb_chan *c = NULL;
    tb_fault_arm(TB_FAULT_malloc, 1, false);
    assert_int_equal(tb_chan_accept(&p.server, two[0], &c), TB_SITE_NOMEM);
    tb_fault_arm(TB_FAULT_malloc, 0, false);
    close(two[1]);
    assert_int_equal(open_fds(), before);
    tb_tls_free(tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(bytes_arrive_as_they_left_over_tls),
        WORLD_TEST(bytes_arrive_as_they_left_over_tcp),
        WORLD_TEST(bytes_arrive_as_they_left_over_a_unix_socket),
        WORLD_TEST(bytes_inside_tls_are_not_forgotten),
        WORLD_TEST(draining_one_chan_starves_no_other),
        WORLD_TEST(nothing_comes_while_reading_is_not_wanted),
        WORLD_TEST(readable_is_a_level_and_not_an_edge),
        WORLD_TEST(an_orderly_end_is_told_from_a_cut),
        WORLD_TEST(bytes_before_a_reset_are_read_first),
        WORLD_TEST(last_words_reach_a_peer_that_talks),
        WORLD_TEST(opening_is_bounded),
        WORLD_TEST(the_opening_limit_ends_with_opening),
        WORLD_TEST(a_deadline_closes_with_its_status),
        WORLD_TEST(nobody_there_is_unreachable_and_says_why),
        WORLD_TEST(no_way_there_is_no_answer),
        WORLD_TEST(a_unix_peer_has_its_credentials),
        WORLD_TEST(descriptors_pass),
        WORLD_TEST(too_many_descriptors_are_closed_again),
        WORLD_TEST(bytes_in_place_of_descriptors_are_refused),
        WORLD_TEST(closing_is_safe_in_every_callback),
        WORLD_TEST(a_chan_closes_once_and_before_it_opens_too),
        WORLD_TEST(writing_to_a_dead_peer_kills_nobody),
        WORLD_TEST(no_descriptor_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
