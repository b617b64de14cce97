/* tls_bulk.c - records that we seal and open ourselves are those of TLS 1.3. OpenSSL reads them,
 * and its own records are read, however the bytes are cut.
 * Covers: base/net/tls_bulk.c base/net/tls_records.c base/net/tls_session.c */

#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/net/tls_context.h"
#include "records_world.h"

/* P8: with a peer that does the same and with OpenSSL, under every suite. */
static void either_end_opens_what_the_other_seals(void **state)
{
    static const char *suites[] = {NULL, "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"};
    for (int i = 0; i < 6; i++) {
        struct records w;
        records_open(&w, *state,
                     &(struct records_way){.asks = true, .heeds = i % 2 == 0, .suite = suites[i / 2]});
        records_send_both_ways(&w);
        assert_in_range(w.c.records_sent, BYTES / 16384, BYTES / 16384 + BYTES / 300007 + 2);
        if (i % 2 == 0)
            assert_int_equal(w.s.records_received, w.c.records_sent); /* OpenSSL gives them in pieces */
        records_fini(&w);
    }
}

/* P8: an operator who does not trust these records has OpenSSL's, whichever end dials and
 * whatever the other has. */
static void an_end_may_leave_them_to_openssl(void **state)
{
    struct records w;
    records_open(&w, *state, &(struct records_way){.asks = true, .heeds = true, .off = true});
    assert_true(tb_tls_session_own_records(&w.c));
    assert_false(tb_tls_session_own_records(&w.s));
    records_send_both_ways(&w);
    records_fini(&w);

    records_init(&w, *state, &(struct records_way){.asks = true, .heeds = true});
    struct tb_tls_session late;
    const struct tb_tls_expect bulk = {.bulk = true};
    tb_tls_set_own_records(w.east, false);
    assert_int_equal(tb_tls_session_init(&late, w.east, &bulk, w.c.fd, false), TB_OK);
    assert_null(late.bulk);
    tb_tls_session_fini(&late);
    records_fini(&w);
}

/* Bytes that follow the end of the handshake at once have arrived with it. */
static void bytes_come_with_the_handshake(struct world *world, bool openssl_has_them)
{
    struct records w;
    size_t put = 0, came = 0;
    enum tb_status c = TB_AGAIN;
    records_init(&w, world, &(struct records_way){.asks = true, .heeds = true});
    SSL_set_read_ahead(w.s.ssl, openssl_has_them);
    for (; c == TB_AGAIN; c = tb_tls_session_handshake(&w.c)) {
        assert_int_equal(tb_tls_session_handshake(&w.s), TB_AGAIN);
        records_carry(&w);
    }
    records_write_some(&w.c, 300, &put);
    records_write_some(&w.c, 40000, &put);
    records_carry(&w);
    records_carry(&w);
    assert_int_equal(tb_tls_session_handshake(&w.s), TB_OK);
    assert_int_equal(w.s.bulk == NULL, openssl_has_them);
    assert_true(tb_tls_session_pending(&w.s)); /* the socket may be quiet by now */
    while (came < put)
        records_read_some(&w.s, 1000, &came);
    assert_memory_equal(got, sent, put);
    assert_false(tb_tls_session_pending(&w.s));
    records_fini(&w);
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
    struct records w;
    size_t put = 0;
    const int small = 20000;
    records_open(&w, *state, &(struct records_way){.asks = true});
    assert_int_equal(setsockopt(w.c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    assert_int_equal(tb_tls_session_write(&w.c, sent, 200000, &put), TB_AGAIN);
    assert_int_equal(put, 0);
    assert_int_equal(w.c.records_sent, TB_TLS_BATCH);
    while (put == 0) {
        records_carry(&w);
        records_write_some(&w.c, 200000, &put);
        size_t none = 0;
        records_read_some(&w.s, BYTES, &none);
    }
    assert_true(put >= TB_TLS_BATCH * TB_TLS_PLAIN_BYTES);
    records_fini(&w);
}

/* However few bytes arrive at once. */
static void records_are_cut_anywhere(void **state)
{
    static const size_t pieces[] = {1, 4, 21, 16405, 16407};
    for (unsigned i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct records w;
        size_t put = 0, came = 0;
        const size_t all = i < 3 ? 40000 : 400000;
        records_open(&w, *state, &(struct records_way){.asks = true, .heeds = true});
        w.piece = pieces[i];
        while (came < all) {
            if (put < all) records_write_some(&w.c, all - put, &put);
            records_carry(&w);
            records_read_some(&w.s, 70001, &came);
        }
        assert_int_equal(came, all);
        assert_memory_equal(got, sent, all);
        records_fini(&w);
    }
}

/* P1: the bytes behind the data are not the reader's, also where there is room for it. */
static void padding_is_no_data(void **state)
{
    struct records w;
    size_t put = 0, came = 0;
    records_init(&w, *state, &(struct records_way){.asks = true});
    assert_int_equal(SSL_set_block_padding(w.s.ssl, 4096), 1); /* records that are not full have some */
    records_shake(&w);
    while (came < BYTES) {
        records_write_some(&w.s, 1000, &put);
        records_carry(&w);
        records_read_some(&w.c, 70001, &came);
    }
    assert_memory_equal(got, sent, BYTES);
    assert_false(tb_tls_session_pending(&w.c));
    records_fini(&w);
}

/* P8: no key encrypts more than it may, whichever end makes the next, and with a peer
 * that asks for ours too. */
static void keys_are_replaced_in_the_middle(void **state)
{
    for (int heeds = 0; heeds < 2; heeds++) {
        struct records w;
        records_init(&w, *state, &(struct records_way){.asks = true, .heeds = heeds == 1});
        tb_tls_set_key_records(w.east, 5);
        tb_tls_set_key_records(w.west, 5);
        records_shake(&w);
        uint8_t secret[TB_TLS_SECRET_BYTES];
        memcpy(secret, w.c.bulk->seal.secret, sizeof secret);
        records_send_both_ways(&w);
        assert_memory_not_equal(secret, w.c.bulk->seal.secret, 32);
        assert_in_range(w.c.key_since, w.c.records_sent - 5 - TB_TLS_BATCH, w.c.records_sent);
        records_fini(&w);
    }
}

static void a_key_that_is_asked_for_is_made(void **state)
{
    struct records w;
    size_t put = 0, came = 0;
    records_open(&w, *state, &(struct records_way){.asks = true});
    assert_int_equal(SSL_key_update(w.s.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    records_write_some(&w.s, 1000, &put);
    while (came < put) {
        records_carry(&w);
        records_read_some(&w.c, 1000, &came);
    }
    assert_true(w.c.bulk->owes_update);
    records_send_all(&w, &w.c, &w.s);
    assert_false(w.c.bulk->owes_update);
    assert_true(w.c.key_since > 0);
    records_fini(&w);
}

/* The kernel goes on with the key it has: the peer is owed one, and all else goes on. */
static void a_key_that_the_kernel_is_asked_for_waits(void **state)
{
    struct records w;
    size_t put = 0, came = 0;
    records_open(&w, *state, &(struct records_way){.asks = true});
    records_leave_sending(&w.c);
    assert_int_equal(SSL_key_update(w.s.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    records_write_some(&w.s, 1000, &put);
    while (came < put) {
        records_carry(&w);
        records_read_some(&w.c, 1000, &came);
    }
    records_send_both_ways(&w);
    assert_true(w.c.bulk->owes_update);
    records_fini(&w);
}

/* A goodbye is told from a cut, by either. */
static void a_goodbye_is_told_from_a_cut_as_by_openssl(void **state)
{
    for (int i = 0; i < 6; i++) {
        struct records w;
        enum tb_status status = TB_AGAIN;
        size_t count = 0;
        records_open(&w, *state, &(struct records_way){.asks = true, .heeds = i % 3 == 0});
        struct tb_tls_session *from = i % 3 == 2 ? &w.s : &w.c, *to = i % 3 == 2 ? &w.c : &w.s;
        if (i < 3) assert_int_equal(tb_tls_session_end(from), TB_OK);
        records_carry(&w);
        assert_int_equal(shutdown(from == &w.c ? w.s_far : w.c_far, SHUT_WR), 0);
        while (status == TB_AGAIN)
            status = tb_tls_session_read(to, got, BYTES, &count);
        assert_int_equal(status, i < 3 ? TB_STREAM_CLOSED : TB_STREAM_IO);
        records_fini(&w);
    }
}

/* The goodbye is said once, by either sealer, and what came before it or comes after it
 * is read all the same. */
static void the_goodbye_is_said_once(void **state)
{
    for (int sends = 0; sends < 2; sends++) {
        struct records w;
        size_t put = 0, came = 0;
        records_open(&w, *state, &(struct records_way){.asks = true});
        if (sends == 0) records_leave_sending(&w.c);
        records_write_some(&w.s, 1000, &put);
        records_carry(&w);
        records_read_some(&w.c, 1000, &came);
        records_write_some(&w.s, 1000, &put);
        records_carry(&w);
        assert_int_equal(tb_tls_session_end(&w.c), TB_OK);
        const uint64_t said = records_waiting(w.c_far);
        assert_int_equal(said, 2 + TB_TLS_ADDED_BYTES);
        assert_int_equal(tb_tls_session_end(&w.c), TB_OK);
        assert_int_equal(records_waiting(w.c_far), said);
        assert_false(w.c.dead);
        records_read_some(&w.c, 1000, &came);
        records_write_some(&w.s, 500, &put);
        records_carry(&w);
        records_read_some(&w.c, 500, &came);
        assert_int_equal(came, 2500);
        assert_memory_equal(got, sent, came);
        records_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RECORDS_TEST(either_end_opens_what_the_other_seals),
        RECORDS_TEST(an_end_may_leave_them_to_openssl),
        RECORDS_TEST(bytes_that_come_with_the_handshake_are_read),
        RECORDS_TEST(records_go_in_batches),
        RECORDS_TEST(records_are_cut_anywhere),
        RECORDS_TEST(padding_is_no_data),
        RECORDS_TEST(keys_are_replaced_in_the_middle),
        RECORDS_TEST(a_key_that_is_asked_for_is_made),
        RECORDS_TEST(a_key_that_the_kernel_is_asked_for_waits),
        RECORDS_TEST(a_goodbye_is_told_from_a_cut_as_by_openssl),
        RECORDS_TEST(the_goodbye_is_said_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
