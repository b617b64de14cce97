#include "records_world.h"

#include <openssl/ssl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/net/tls_context.h"

uint8_t sent[BYTES], got[BYTES];

static int one_end(int *far_out)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *far_out = fds[1];
    return fds[0];
}

void records_init(struct records *w, struct world *world, const struct records_way *way)
{
    *w = (struct records){0};
    w->east = world_tls(world, "east", "gw", "west");
    w->west = world_tls(world, "west", "gw", "east");
    tb_tls_set_own_records(w->west, !way->off);
    if (way->suite != NULL) assert_int_equal(SSL_CTX_set_ciphersuites(w->east->ctx, way->suite), 1);
    struct tb_tls_expect c = world_expect(WEST), s = world_expect(way->expect != NULL ? way->expect : EAST);
    c.bulk = way->asks;
    s.bulk_heard = way->heeds;
    assert_int_equal(tb_tls_session_init(&w->c, w->east, &c, one_end(&w->c_far), false), TB_OK);
    assert_int_equal(tb_tls_session_init(&w->s, w->west, &s, one_end(&w->s_far), true), TB_OK);
}

void records_fini(struct records *w)
{
    struct tb_tls_session *ends[] = {&w->c, &w->s};
    for (int i = 0; i < 2; i++) {
        close(ends[i]->fd);
        tb_tls_session_fini(ends[i]);
    }
    close(w->c_far);
    close(w->s_far);
    tb_tls_free(w->east);
    tb_tls_free(w->west);
}

/* At most one piece from one socket to another; what the second does not take stays in the
 * first. */
static void carry_one(struct records *w, int from, int to)
{
    static uint8_t room[65536];
    const size_t most = w->piece != 0 ? w->piece : sizeof room;
    const ssize_t here = recv(from, room, most, MSG_PEEK);
    if (here <= 0) return;
    const bool forth = from == w->c_far;
    if (forth && w->flip_at >= w->carried && w->flip_at < w->carried + (uint64_t)here && w->flip_at != 0)
        room[w->flip_at - w->carried] ^= 4;
    const ssize_t put = send(to, room, (size_t)here, MSG_NOSIGNAL);
    if (put <= 0) return;
    assert_int_equal(recv(from, room, (size_t)put, 0), put);
    if (forth) w->carried += (uint64_t)put;
}

void records_carry(struct records *w)
{
    carry_one(w, w->c_far, w->s_far);
    carry_one(w, w->s_far, w->c_far);
}

void records_shake(struct records *w)
{
    enum tb_status c = TB_AGAIN, s = TB_AGAIN;
    while (c == TB_AGAIN || s == TB_AGAIN) {
        if (c == TB_AGAIN) c = tb_tls_session_handshake(&w->c);
        if (s == TB_AGAIN) s = tb_tls_session_handshake(&w->s);
        records_carry(w);
    }
    assert_int_equal(c, TB_OK);
    assert_int_equal(s, TB_OK);
}

void records_open(struct records *w, struct world *world, const struct records_way *way)
{
    records_init(w, world, way);
    records_shake(w);
    const bool asked = way->asks, heard = way->asks && way->heeds && !way->off;
    assert_int_equal(w->c.bulk != NULL, asked);
    assert_int_equal(w->s.bulk != NULL, heard);
}

void records_write_some(struct tb_tls_session *s, size_t most, size_t *at)
{
    size_t put = 0;
    const size_t left = BYTES - *at;
    if (left == 0) return;
    const enum tb_status status = tb_tls_session_write(s, sent + *at, left < most ? left : most, &put);
    assert_true(status == TB_OK || status == TB_AGAIN);
    assert_int_equal(status == TB_OK, put > 0);
    assert_true(status == TB_OK || s->wants_write);
    *at += put;
}

void records_read_some(struct tb_tls_session *s, size_t most, size_t *at)
{
    size_t count = 0;
    const size_t room = BYTES - *at;
    if (room == 0) return;
    const enum tb_status status = tb_tls_session_read(s, got + *at, room < most ? room : most, &count);
    assert_true(status == TB_OK || status == TB_AGAIN);
    *at += count;
}

void records_send_all(struct records *w, struct tb_tls_session *from, struct tb_tls_session *to)
{
    static const size_t rooms[] = {20, 1 << 20, 16384, 5, 70001, 1};
    size_t put = 0, came = 0;
    memset(got, 0, sizeof got);
    for (unsigned turn = 0; came < BYTES; turn++) {
        records_write_some(from, 300007, &put);
        records_carry(w);
        records_read_some(to, rooms[turn % 6], &came);
        assert_true(turn < 100000); /* hundreds are enough: what was told as written is not on its way */
    }
    assert_memory_equal(got, sent, BYTES);
}

void records_send_both_ways(struct records *w)
{
    records_send_all(w, &w->c, &w->s);
    records_send_all(w, &w->s, &w->c);
}

void records_hear(struct records *w, const char *what)
{
    enum tb_status status = TB_AGAIN;
    size_t count = 0;
    for (; status == TB_AGAIN; records_carry(w))
        status = tb_tls_session_read(&w->c, got, 1, &count);
    assert_int_equal(status, TB_STREAM_TLS);
    if (strstr(w->c.reason, what) == NULL) fail_msg("heard \"%s\", not \"%s\"", w->c.reason, what);
}

void records_leave_sending(struct tb_tls_session *s)
{
    s->bulk->sends = false;
}

uint64_t records_waiting(int fd)
{
    static uint8_t room[65536];
    const ssize_t here = recv(fd, room, sizeof room, MSG_PEEK);
    return here > 0 ? (uint64_t)here : 0;
}

int records_setup(void **state)
{
    static struct world w;
    (void)signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (uint8_t)(i * 167 + (i >> 8));
    world_init(&w);
    world_issue(&w, "east", "gw", EAST);
    world_issue(&w, "west", "gw", WEST);
    *state = &w;
    return 0;
}
