/* tls_bulk.c - records that are sealed and opened by ours are TLS 1.3's: OpenSSL reads
 * them, and what it sends is read, whatever comes in between, however it is cut, and
 * whatever is wrong with it. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/net/tls_bulk.h"
#include "base/net/tls_context.h"
#include "base/net/tls_session.h"
#include "net_world.h"

#define EAST  "tombolo://east/gw"
#define WEST  "tombolo://west/gw"
#define BYTES ((3u << 20) + 77)

static uint8_t sent[BYTES], got[BYTES];

/* Two sessions and between them what carries their bytes: the test. */
struct wire {
    struct tb_tls *east, *west;
    struct tb_tls_session c, s; /* who dialled, and who accepted */
    int c_far, s_far;           /* the other ends of their sockets */
    size_t piece;               /* that is carried at once; 0: what there is */
    uint64_t carried;           /* from c to s */
    uint64_t flip_at;           /* of these the bit that falls over; 0: none */
};

static int one_end(int *far_out)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    *far_out = fds[1];
    return fds[0];
}

struct way {
    bool asks, heeds;   /* for bulk */
    bool off;           /* at who accepts: the operator's switch */
    const char *suite;  /* NULL: the first */
    const char *expect; /* by s; NULL: east's gateway */
};

static struct tb_tls_expect expect(const char *uri)
{
    struct tb_tls_expect e = {0};
    assert_int_equal(tb_identity_parse(uri, &e.identity), TB_OK);
    return e;
}

static void wire_init(struct wire *w, struct world *world, const struct way *way)
{
    *w = (struct wire){0};
    w->east = world_tls(world, "east", "gw", "west");
    w->west = world_tls(world, "west", "gw", "east");
    tb_tls_set_own_records(w->west, !way->off);
    if (way->suite != NULL) assert_int_equal(SSL_CTX_set_ciphersuites(w->east->ctx, way->suite), 1);
    struct tb_tls_expect c = expect(WEST), s = expect(way->expect != NULL ? way->expect : EAST);
    c.bulk = way->asks;
    s.bulk_heard = way->heeds;
    assert_int_equal(tb_tls_session_init(&w->c, w->east, &c, one_end(&w->c_far), false), TB_OK);
    assert_int_equal(tb_tls_session_init(&w->s, w->west, &s, one_end(&w->s_far), true), TB_OK);
}

static void wire_fini(struct wire *w)
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
static void carry_one(struct wire *w, int from, int to)
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

static void carry(struct wire *w)
{
    carry_one(w, w->c_far, w->s_far);
    carry_one(w, w->s_far, w->c_far);
}

static void shake(struct wire *w)
{
    enum tb_status c = TB_AGAIN, s = TB_AGAIN;
    while (c == TB_AGAIN || s == TB_AGAIN) {
        if (c == TB_AGAIN) c = tb_tls_session_handshake(&w->c);
        if (s == TB_AGAIN) s = tb_tls_session_handshake(&w->s);
        carry(w);
    }
    assert_int_equal(c, TB_OK);
    assert_int_equal(s, TB_OK);
}

static void wire_open(struct wire *w, struct world *world, const struct way *way)
{
    wire_init(w, world, way);
    shake(w);
    const bool asked = way->asks, heard = way->asks && way->heeds && !way->off;
    assert_int_equal(w->c.bulk != NULL, asked);
    assert_int_equal(w->s.bulk != NULL, heard);
}

/* Writes as a stream does: what did not fit is tried again, and not fewer bytes. */
static void write_some(struct tb_tls_session *s, size_t most, size_t *at)
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

static void read_some(struct tb_tls_session *s, size_t most, size_t *at)
{
    size_t count = 0;
    const size_t room = BYTES - *at;
    if (room == 0) return;
    const enum tb_status status = tb_tls_session_read(s, got + *at, room < most ? room : most, &count);
    assert_true(status == TB_OK || status == TB_AGAIN);
    *at += count;
}

/* All bytes from one to the other, written and read in pieces that fit no record. */
static void send_all(struct wire *w, struct tb_tls_session *from, struct tb_tls_session *to)
{
    static const size_t rooms[] = {20, 1 << 20, 16384, 5, 70001, 1};
    size_t put = 0, came = 0;
    memset(got, 0, sizeof got);
    for (unsigned turn = 0; came < BYTES; turn++) {
        write_some(from, 300007, &put);
        carry(w);
        read_some(to, rooms[turn % 6], &came);
        assert_true(turn < 100000); /* hundreds are enough: what was told as written is not on its way */
    }
    assert_memory_equal(got, sent, BYTES);
}

static void send_both_ways(struct wire *w)
{
    send_all(w, &w->c, &w->s);
    send_all(w, &w->s, &w->c);
}

/* P8: with a peer that does the same and with OpenSSL, under every suite. */
static void whoever_seals_the_other_opens(void **state)
{
    static const char *suites[] = {NULL, "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"};
    for (int i = 0; i < 6; i++) {
        struct wire w;
        wire_open(&w, *state, &(struct way){.asks = true, .heeds = i % 2 == 0, .suite = suites[i / 2]});
        send_both_ways(&w);
        assert_in_range(w.c.records_sent, BYTES / 16384, BYTES / 16384 + BYTES / 300007 + 2);
        if (i % 2 == 0)
            assert_int_equal(w.s.records_received, w.c.records_sent); /* OpenSSL gives them in pieces */
        wire_fini(&w);
    }
}

/* P8: an operator who does not trust these records has OpenSSL's, whichever end dials and
 * whatever the other has. */
static void an_end_may_leave_them_to_openssl(void **state)
{
    struct wire w;
    wire_open(&w, *state, &(struct way){.asks = true, .heeds = true, .off = true});
    assert_true(tb_tls_session_own_records(&w.c));
    assert_false(tb_tls_session_own_records(&w.s));
    send_both_ways(&w);
    wire_fini(&w);

    wire_init(&w, *state, &(struct way){.asks = true, .heeds = true});
    struct tb_tls_session late;
    const struct tb_tls_expect bulk = {.bulk = true};
    tb_tls_set_own_records(w.east, false);
    assert_int_equal(tb_tls_session_init(&late, w.east, &bulk, w.c.fd, false), TB_OK);
    assert_null(late.bulk);
    tb_tls_session_fini(&late);
    wire_fini(&w);
}

/* What follows the end of the handshake at once has arrived with it. */
static void bytes_come_with_the_handshake(struct world *world, bool openssl_has_them)
{
    struct wire w;
    size_t put = 0, came = 0;
    enum tb_status c = TB_AGAIN;
    wire_init(&w, world, &(struct way){.asks = true, .heeds = true});
    SSL_set_read_ahead(w.s.ssl, openssl_has_them);
    for (; c == TB_AGAIN; c = tb_tls_session_handshake(&w.c)) {
        assert_int_equal(tb_tls_session_handshake(&w.s), TB_AGAIN);
        carry(&w);
    }
    write_some(&w.c, 300, &put);
    write_some(&w.c, 40000, &put);
    carry(&w);
    carry(&w);
    assert_int_equal(tb_tls_session_handshake(&w.s), TB_OK);
    assert_int_equal(w.s.bulk == NULL, openssl_has_them);
    assert_true(tb_tls_session_pending(&w.s)); /* the socket may be quiet by now */
    while (came < put)
        read_some(&w.s, 1000, &came);
    assert_memory_equal(got, sent, put);
    assert_false(tb_tls_session_pending(&w.s));
    wire_fini(&w);
}

static void bytes_that_come_with_the_handshake_are_read(void **state)
{
    bytes_come_with_the_handshake(*state, false);
    bytes_come_with_the_handshake(*state, true); /* in its buffer: it goes on */
}

/* One call of the kernel takes several records, and they are told as written when they are all
 * gone. */
static void records_go_in_batches(void **state)
{
    struct wire w;
    size_t put = 0;
    const int small = 20000;
    wire_open(&w, *state, &(struct way){.asks = true});
    assert_int_equal(setsockopt(w.c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    assert_int_equal(tb_tls_session_write(&w.c, sent, 200000, &put), TB_AGAIN);
    assert_int_equal(put, 0);
    assert_int_equal(w.c.records_sent, TB_TLS_BATCH);
    while (put == 0) {
        carry(&w);
        write_some(&w.c, 200000, &put);
        size_t none = 0;
        read_some(&w.s, BYTES, &none);
    }
    assert_true(put >= TB_TLS_BATCH * TB_TLS_PLAIN_BYTES);
    wire_fini(&w);
}

/* However few bytes arrive at once. */
static void records_are_cut_anywhere(void **state)
{
    static const size_t pieces[] = {1, 4, 21, 16405, 16407};
    for (unsigned i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct wire w;
        size_t put = 0, came = 0;
        const size_t all = i < 3 ? 40000 : 400000;
        wire_open(&w, *state, &(struct way){.asks = true, .heeds = true});
        w.piece = pieces[i];
        while (came < all) {
            if (put < all) write_some(&w.c, all - put, &put);
            carry(&w);
            read_some(&w.s, 70001, &came);
        }
        assert_int_equal(came, all);
        assert_memory_equal(got, sent, all);
        wire_fini(&w);
    }
}

/* P1: what stands behind the data is not the reader's, also where there is room for it. */
static void padding_is_no_data(void **state)
{
    struct wire w;
    size_t put = 0, came = 0;
    wire_init(&w, *state, &(struct way){.asks = true});
    assert_int_equal(SSL_set_block_padding(w.s.ssl, 4096), 1); /* records that are not full have some */
    shake(&w);
    while (came < BYTES) {
        write_some(&w.s, 1000, &put);
        carry(&w);
        read_some(&w.c, 70001, &came);
    }
    assert_memory_equal(got, sent, BYTES);
    assert_false(tb_tls_session_pending(&w.c));
    wire_fini(&w);
}

/* P8: no key encrypts more than it may, whichever end makes the next, and with a peer
 * that asks for ours too. */
static void keys_are_replaced_in_the_middle(void **state)
{
    for (int heeds = 0; heeds < 2; heeds++) {
        struct wire w;
        wire_init(&w, *state, &(struct way){.asks = true, .heeds = heeds == 1});
        tb_tls_set_key_records(w.east, 5);
        tb_tls_set_key_records(w.west, 5);
        shake(&w);
        uint8_t secret[TB_TLS_SECRET_BYTES];
        memcpy(secret, w.c.bulk->seal.secret, sizeof secret);
        send_both_ways(&w);
        assert_memory_not_equal(secret, w.c.bulk->seal.secret, 32);
        assert_in_range(w.c.key_since, w.c.records_sent - 5 - TB_TLS_BATCH, w.c.records_sent);
        wire_fini(&w);
    }
}

/* P10: the peer, whatever it has, hears by its alert what was wrong. */
static void hear(struct wire *w, const char *what)
{
    enum tb_status status = TB_AGAIN;
    size_t count = 0;
    for (; status == TB_AGAIN; carry(w))
        status = tb_tls_session_read(&w->c, got, 1, &count);
    assert_int_equal(status, TB_STREAM_TLS);
    if (strstr(w->c.reason, what) == NULL) fail_msg("heard \"%s\", not \"%s\"", w->c.reason, what);
}

/* By the right key, and yet not what may come: sealed here as the peer would. */
static enum tb_status read_sealed(struct wire *w, enum tb_tls_type type, const void *bytes, size_t count,
                                  unsigned times)
{
    static uint8_t record[64 + TB_TLS_ADDED_BYTES];
    enum tb_status status = TB_AGAIN;
    const struct tb_tls_plain plain = {type, bytes, count};
    size_t none = 0;
    for (unsigned i = 0; i < times && status == TB_AGAIN; i++) {
        assert_true(tb_tls_seal(&w->c.bulk->seal, &plain, record));
        const ssize_t all = (ssize_t)(count + TB_TLS_ADDED_BYTES);
        assert_int_equal(send(w->s_far, record, (size_t)all, 0), all);
        status = tb_tls_session_read(&w->s, got, BYTES, &none);
        if (type == TB_TLS_HANDSHAKE && count == 5) assert_true(tb_tls_key_next(&w->c.bulk->seal));
    }
    return status;
}

/* As where the kernel sends: OpenSSL does in its place, and nothing of ours may be sealed. */
static void leave_sending(struct tb_tls_session *s)
{
    s->bulk->sends = false;
}

static uint64_t waiting(int fd)
{
    static uint8_t room[65536];
    const ssize_t here = recv(fd, room, sizeof room, MSG_PEEK);
    return here > 0 ? (uint64_t)here : 0;
}

static void a_key_that_is_asked_for_is_made(void **state)
{
    struct wire w;
    size_t put = 0, came = 0;
    wire_open(&w, *state, &(struct way){.asks = true});
    assert_int_equal(SSL_key_update(w.s.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    write_some(&w.s, 1000, &put);
    while (came < put) {
        carry(&w);
        read_some(&w.c, 1000, &came);
    }
    assert_true(w.c.bulk->owes_update);
    send_all(&w, &w.c, &w.s);
    assert_false(w.c.bulk->owes_update);
    assert_true(w.c.key_since > 0);
    wire_fini(&w);
}

/* The kernel goes on with the key it has: the peer is owed one, and all else goes on. */
static void a_key_that_the_kernel_is_asked_for_waits(void **state)
{
    struct wire w;
    size_t put = 0, came = 0;
    wire_open(&w, *state, &(struct way){.asks = true});
    leave_sending(&w.c);
    assert_int_equal(SSL_key_update(w.s.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    write_some(&w.s, 1000, &put);
    while (came < put) {
        carry(&w);
        read_some(&w.c, 1000, &came);
    }
    send_both_ways(&w);
    assert_true(w.c.bulk->owes_update);
    wire_fini(&w);
}

/* P8: a key that was not made is not used, and the one before it neither. */
static void a_key_that_cannot_be_made_ends_it(void **state)
{
    static const uint8_t update[] = {24, 0, 0, 1, 0};
    struct wire w;
    size_t put = 0;
    wire_open(&w, *state, &(struct way){.asks = true, .heeds = true});
    w.s.bulk->open.digest = EVP_md_null(); /* which HKDF refuses */
    assert_int_equal(read_sealed(&w, TB_TLS_HANDSHAKE, update, sizeof update, 1), TB_STREAM_TLS);
    hear(&w, "internal error");
    wire_fini(&w);

    wire_open(&w, *state, &(struct way){.asks = true, .heeds = true});
    tb_tls_set_key_records(w.east, 0);
    w.c.bulk->seal.digest = EVP_md_null();
    assert_int_equal(tb_tls_session_write(&w.c, sent, 1000, &put), TB_STREAM_TLS);
    assert_int_equal(put, 0);
    assert_int_equal(waiting(w.c_far), 0);
    assert_int_equal(tb_tls_session_write(&w.c, sent, 1000, &put), TB_STREAM_TLS);
    wire_fini(&w);
}

/* P1: bytes that are not the peer's are nobody's; P10: both ends say why. */
static void a_bit_that_falls_over(struct world *world, bool sends)
{
    struct wire w;
    size_t put = 0, came = 0, count = 0;
    enum tb_status status = TB_OK;
    wire_open(&w, world, &(struct way){.asks = true, .heeds = true});
    if (!sends) leave_sending(&w.s);
    w.flip_at = w.carried + 3u * (TB_TLS_PLAIN_BYTES + TB_TLS_ADDED_BYTES) + 9000;
    while (status == TB_OK || status == TB_AGAIN) {
        write_some(&w.c, 100000, &put);
        carry(&w);
        status = tb_tls_session_read(&w.s, got + came, 50000, &count);
        came += count;
    }
    assert_int_equal(status, TB_STREAM_TLS);
    assert_non_null(strstr(w.s.reason, "tag"));
    assert_int_equal(came, 3u * TB_TLS_PLAIN_BYTES);
    assert_memory_equal(got, sent, came);
    assert_int_equal(tb_tls_session_read(&w.s, got, 1, &count), TB_STREAM_TLS); /* and stays so */
    if (sends)
        hear(&w, "bad record mac");
    else
        assert_int_equal(waiting(w.s_far), 0);
    if (sends) assert_int_equal(tb_tls_session_write(&w.c, sent, BYTES, &count), TB_STREAM_TLS);
    wire_fini(&w);
}

static void a_bit_that_falls_over_ends_it(void **state)
{
    a_bit_that_falls_over(*state, true);
    a_bit_that_falls_over(*state, false);
}

/* An alert has no place behind what waits for the socket: that batch may be full. */
static void what_waits_is_not_written_over(void **state)
{
    static const uint8_t head[] = {22, 3, 3, 1, 0};
    const int small = 20000;
    struct wire w;
    size_t count = 0;
    wire_open(&w, *state, &(struct way){.asks = true});
    tb_tls_set_key_records(w.east, 0); /* a KeyUpdate in front of each batch */
    assert_int_equal(setsockopt(w.c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    assert_int_equal(tb_tls_session_write(&w.c, sent, 200000, &count), TB_AGAIN);
    const uint32_t used = w.c.bulk->out_used;
    assert_int_equal(used, TB_TLS_BATCH_BYTES + 5 + TB_TLS_ADDED_BYTES);
    assert_int_equal(send(w.c_far, head, sizeof head, 0), sizeof head);
    assert_int_equal(tb_tls_session_read(&w.c, got, BYTES, &count), TB_STREAM_TLS);
    assert_int_equal(w.c.bulk->out_used, used);
    wire_fini(&w);
}

/* P7: a length that no record has, and a type that may not come any more, are refused before
 * anything is waited for. */
static void what_is_no_record_is_refused(void **state)
{
    static const struct {
        uint8_t head[5];
        const char *why, *heard;
    } rows[] = {{{23, 3, 3, 0, 16}, "not a record", "decode error"},
                {{23, 3, 3, 0x41, 1}, "too long", "record overflow"},
                {{22, 3, 3, 1, 0}, "not encrypted", "unexpected message"},
                {{20, 3, 3, 0, 1}, "not encrypted", "unexpected message"},
                {{23, 3, 1, 1, 0}, "not a record", "decode error"}};
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wire w;
        size_t count = 0;
        wire_open(&w, *state, &(struct way){.asks = true, .heeds = true});
        assert_int_equal(send(w.s_far, rows[i].head, 5, 0), 5);
        assert_int_equal(tb_tls_session_read(&w.s, got, BYTES, &count), TB_STREAM_TLS);
        assert_int_equal(count, 0);
        assert_non_null(strstr(w.s.reason, rows[i].why));
        hear(&w, rows[i].heard);
        wire_fini(&w);
    }
}

static void sealed_records_that_may_not_come_are_refused(void **state)
{
    static const uint8_t update[] = {24, 0, 0, 1, 0}, odd[] = {24, 0, 0, 1, 2}, ticket[] = {4, 0, 0, 0};
    static const uint8_t denied[] = {2, 49}, goodbye[] = {1, 0}, canceled[] = {1, 90}, padding[3] = {0};
    static const struct {
        enum tb_tls_type type;
        const uint8_t *bytes;
        size_t count;
        unsigned times;
        enum tb_status want;
        const char *heard; /* NULL: nothing */
    } rows[] = {{TB_TLS_HANDSHAKE, update, 5, TB_TLS_VAIN_MAX, TB_AGAIN, NULL},
                {TB_TLS_HANDSHAKE, update, 5, TB_TLS_VAIN_MAX + 1, TB_STREAM_TLS, /* P7: a flood */
                 "unexpected message"},
                {TB_TLS_HANDSHAKE, odd, 5, 1, TB_STREAM_TLS, "illegal parameter"},
                {TB_TLS_HANDSHAKE, update, 4, 1, TB_STREAM_TLS, "decode error"},
                {TB_TLS_HANDSHAKE, update, 0, 1, TB_STREAM_TLS, "unexpected message"},
                {TB_TLS_HANDSHAKE, ticket, 4, 1, TB_STREAM_TLS, "unexpected message"},
                {TB_TLS_DATA, ticket, 0, TB_TLS_VAIN_MAX, TB_AGAIN, NULL},
                {TB_TLS_DATA, ticket, 0, TB_TLS_VAIN_MAX + 1, TB_STREAM_TLS, "unexpected message"},
                {TB_TLS_ALERT, denied, 2, 1, TB_PEER_DENIED, NULL},
                {TB_TLS_ALERT, denied, 1, 1, TB_STREAM_TLS, "decode error"},
                {TB_TLS_ALERT, canceled, 2, 1, TB_AGAIN, NULL},
                {TB_TLS_ALERT, goodbye, 2, 1, TB_STREAM_CLOSED, NULL},
                {(enum tb_tls_type)99, goodbye, 2, 1, TB_STREAM_TLS, "unexpected message"},
                {(enum tb_tls_type)0, padding, 3, 1, TB_STREAM_TLS, "unexpected message"}};
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wire w;
        wire_open(&w, *state, &(struct way){.asks = true, .heeds = true});
        const enum tb_status status =
            read_sealed(&w, rows[i].type, rows[i].bytes, rows[i].count, rows[i].times);
        if (status != rows[i].want) fail_msg("row %u: %d, not %d", i, (int)status, (int)rows[i].want);
        if (rows[i].heard != NULL) hear(&w, rows[i].heard);
        wire_fini(&w);
    }
}

/* One record of so many bytes of data, and of padding behind them, read where there is so much
 * room. */
static enum tb_status read_padded(struct wire *w, size_t count, size_t padding, size_t room)
{
    static uint8_t plain[20000], record[20000];
    struct tb_tls_plain all = {TB_TLS_DATA, plain, count};
    size_t came = 0, more = 0;
    memset(plain, 0, sizeof plain);
    memcpy(plain, sent, count);
    if (padding > 0) { /* what seal takes for the type is the last of it */
        plain[count] = TB_TLS_DATA;
        all = (struct tb_tls_plain){(enum tb_tls_type)0, plain, count + padding};
    }
    assert_true(tb_tls_seal(&w->c.bulk->seal, &all, record));
    const ssize_t bytes = (ssize_t)(all.count + TB_TLS_ADDED_BYTES);
    assert_int_equal(send(w->s_far, record, (size_t)bytes, 0), bytes);
    enum tb_status status = TB_OK;
    for (; status == TB_OK && came < count; came += more)
        status = tb_tls_session_read(&w->s, got + came, room, &more);
    if (status == TB_OK) assert_memory_equal(got, sent, count);
    return status;
}

/* P7: as much as TLS allows and not a byte more, wherever it is opened to. */
static void records_are_as_long_as_they_may_be(void **state)
{
    static const struct {
        size_t count, padding;
        enum tb_status want;
    } rows[] = {{16384, 0, TB_OK},        {16384, 1, TB_OK},         {16384, 239, TB_OK},
                {10, 16000, TB_OK},       {16385, 0, TB_STREAM_TLS}, {16600, 0, TB_STREAM_TLS},
                {16623, 0, TB_STREAM_TLS}};
    for (unsigned i = 0; i < 2 * (sizeof rows / sizeof *rows); i++) {
        struct wire w;
        wire_open(&w, *state, &(struct way){.asks = true, .heeds = true});
        assert_int_equal(
            read_padded(&w, rows[i / 2].count, rows[i / 2].padding, i % 2 == 0 ? BYTES / 2 : 100),
            rows[i / 2].want);
        if (rows[i / 2].want != TB_OK) hear(&w, "record overflow");
        wire_fini(&w);
    }
}

/* A peer with small records: rounds of a KeyUpdate, or none, and a record of so many bytes. */
struct small {
    unsigned rounds;
    bool updates;
    size_t bytes;
};

static uint8_t *seal_small(struct tb_tls_key *k, const struct small *small, size_t *count_out)
{
    static const uint8_t update[] = {24, 0, 0, 1, 0};
    const struct tb_tls_plain asks = {TB_TLS_HANDSHAKE, update, 5}, data = {TB_TLS_DATA, sent, small->bytes};
    uint8_t *all = tb_malloc(small->rounds * (small->bytes + 5 + 2 * TB_TLS_ADDED_BYTES));
    size_t used = 0;
    assert_non_null(all);
    for (unsigned i = 0; i < small->rounds; i++) {
        if (small->updates) {
            assert_true(tb_tls_seal(k, &asks, all + used));
            assert_true(tb_tls_key_next(k));
            used += 5 + TB_TLS_ADDED_BYTES;
        }
        assert_true(tb_tls_seal(k, &data, all + used));
        used += small->bytes + TB_TLS_ADDED_BYTES;
    }
    *count_out = used;
    return all;
}

struct reads {
    unsigned calls;
    size_t bytes, most; /* of one call */
    enum tb_status last;
};

static bool readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* Read as a loop does: only where something says that there is something. */
static struct reads read_small(struct wire *w, const struct small *small)
{
    struct reads r = {.last = TB_OK};
    size_t count = 0, used = 0, all = 0;
    uint8_t *stock = seal_small(&w->c.bulk->seal, small, &all);
    while ((r.last == TB_OK || r.last == TB_AGAIN) && r.bytes < small->rounds * small->bytes) {
        const ssize_t put = send(w->s_far, stock + used, all - used, MSG_NOSIGNAL);
        used += put > 0 ? (size_t)put : 0;
        assert_true(tb_tls_session_pending(&w->s) || readable(w->s.fd));
        r.last = tb_tls_session_read(&w->s, got, BYTES, &count);
        r.calls++;
        r.bytes += count;
        r.most = count > r.most ? count : r.most;
    }
    tb_free(stock);
    return r;
}

/* P7: as long as it has any, and nothing that it sent waits without a word. */
static void small_records_do_not_hold_the_reader(void **state)
{
    struct wire w;
    const struct small ones = {10000, false, 1};
    wire_open(&w, *state, &(struct way){.asks = true, .heeds = true});
    const struct reads r = read_small(&w, &ones);
    assert_int_equal(r.bytes, 10000);
    assert_in_range(r.most, 1, TB_TLS_READ_STEPS);
    assert_true(r.calls >= 10000 / TB_TLS_READ_STEPS);
    wire_fini(&w);
}

/* P7: a byte does not make good for a record without any. */
static void data_pays_for_what_is_none(void **state)
{
    static const struct {
        struct small small;
        enum tb_status want;
    } rows[] = {{{10000, true, 1}, TB_STREAM_TLS}, {{200, true, TB_TLS_VAIN_BYTES}, TB_OK}};
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct wire w;
        wire_open(&w, *state, &(struct way){.asks = true, .heeds = true});
        const struct reads r = read_small(&w, &rows[i].small);
        assert_int_equal(r.last, rows[i].want);
        if (i == 0) assert_in_range(r.bytes, TB_TLS_VAIN_MAX - 1, TB_TLS_VAIN_MAX);
        if (i == 0) assert_non_null(strstr(w.s.reason, "flood"));
        wire_fini(&w);
    }
}

/* A goodbye is told from a cut, by either. */
static void ends_are_what_they_are_with_openssl(void **state)
{
    for (int i = 0; i < 6; i++) {
        struct wire w;
        enum tb_status status = TB_AGAIN;
        size_t count = 0;
        wire_open(&w, *state, &(struct way){.asks = true, .heeds = i % 3 == 0});
        struct tb_tls_session *from = i % 3 == 2 ? &w.s : &w.c, *to = i % 3 == 2 ? &w.c : &w.s;
        if (i < 3) assert_int_equal(tb_tls_session_end(from), TB_OK);
        carry(&w);
        assert_int_equal(shutdown(from == &w.c ? w.s_far : w.c_far, SHUT_WR), 0);
        while (status == TB_AGAIN)
            status = tb_tls_session_read(to, got, BYTES, &count);
        assert_int_equal(status, i < 3 ? TB_STREAM_CLOSED : TB_STREAM_IO);
        wire_fini(&w);
    }
}

/* The goodbye is said once, whoever seals, and what came before it or comes after it
 * is read all the same. */
static void the_goodbye_is_said_once(void **state)
{
    for (int sends = 0; sends < 2; sends++) {
        struct wire w;
        size_t put = 0, came = 0;
        wire_open(&w, *state, &(struct way){.asks = true});
        if (sends == 0) leave_sending(&w.c);
        write_some(&w.s, 1000, &put);
        carry(&w);
        read_some(&w.c, 1000, &came);
        write_some(&w.s, 1000, &put);
        carry(&w);
        assert_int_equal(tb_tls_session_end(&w.c), TB_OK);
        const uint64_t said = waiting(w.c_far);
        assert_int_equal(said, 2 + TB_TLS_ADDED_BYTES);
        assert_int_equal(tb_tls_session_end(&w.c), TB_OK);
        assert_int_equal(waiting(w.c_far), said);
        assert_false(w.c.dead);
        read_some(&w.c, 1000, &came);
        write_some(&w.s, 500, &put);
        carry(&w);
        read_some(&w.c, 500, &came);
        assert_int_equal(came, 2500);
        assert_memory_equal(got, sent, came);
        wire_fini(&w);
    }
}

/* P8: a dialler whose certificate is refused is done with its own handshake by then. It hears of it
 * in the place of the first bytes. */
static void who_is_refused_hears_it_as_from_openssl(void **state)
{
    char reasons[2][TB_TLS_REASON_BYTES];
    for (int asks = 0; asks < 2; asks++) {
        struct wire w;
        enum tb_status c = TB_AGAIN, s = TB_AGAIN;
        size_t count = 0;
        wire_init(&w, *state,
                  &(struct way){.asks = asks == 1, .heeds = true, .expect = "tombolo://north/gw"});
        while (c == TB_AGAIN || s == TB_AGAIN) {
            if (c == TB_AGAIN) c = tb_tls_session_handshake(&w.c);
            if (s == TB_AGAIN) s = tb_tls_session_handshake(&w.s);
            carry(&w);
        }
        assert_int_equal(c, TB_OK);
        assert_int_equal(s, TB_PEER_IDENTITY);
        for (c = TB_AGAIN; c == TB_AGAIN; carry(&w))
            c = tb_tls_session_read(&w.c, got, BYTES, &count);
        assert_int_equal(c, TB_PEER_DENIED);
        memcpy(reasons[asks], w.c.reason, sizeof reasons[0]);
        wire_fini(&w);
    }
    assert_string_equal(reasons[0], reasons[1]);
}

static int setup(void **state)
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

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whoever_seals_the_other_opens),
        TEST(an_end_may_leave_them_to_openssl),
        TEST(bytes_that_come_with_the_handshake_are_read),
        TEST(records_go_in_batches),
        TEST(records_are_cut_anywhere),
        TEST(padding_is_no_data),
        TEST(keys_are_replaced_in_the_middle),
        TEST(a_key_that_is_asked_for_is_made),
        TEST(a_key_that_the_kernel_is_asked_for_waits),
        TEST(a_key_that_cannot_be_made_ends_it),
        TEST(a_bit_that_falls_over_ends_it),
        TEST(what_waits_is_not_written_over),
        TEST(what_is_no_record_is_refused),
        TEST(sealed_records_that_may_not_come_are_refused),
        TEST(records_are_as_long_as_they_may_be),
        TEST(small_records_do_not_hold_the_reader),
        TEST(data_pays_for_what_is_none),
        TEST(ends_are_what_they_are_with_openssl),
        TEST(the_goodbye_is_said_once),
        TEST(who_is_refused_hears_it_as_from_openssl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
