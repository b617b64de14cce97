/* tls_bulk_refusals.c - records that may not come are refused, and the peer hears why: damaged or
 * too long ones, floods, wrong types, keys that cannot be made.
 * Covers: base/net/tls_bulk.c base/net/tls_records.c */

#include <openssl/ssl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/allocate.h"
#include "base/net/tls_context.h"
#include "records_world.h"

/* By the right key, and yet not what may come: sealed here as the peer would. */
static enum tb_status read_sealed(struct records *w, enum tb_tls_type type, const void *bytes, size_t count,
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

/* P8: a key that was not made is not used, and the one before it neither. */
static void a_key_that_cannot_be_made_ends_it(void **state)
{
    static const uint8_t update[] = {24, 0, 0, 1, 0};
    struct records w;
    size_t put = 0;
    records_open(&w, *state, &(struct records_way){.asks = true, .heeds = true});
    w.s.bulk->open.digest = EVP_md_null(); /* which HKDF refuses */
    assert_int_equal(read_sealed(&w, TB_TLS_HANDSHAKE, update, sizeof update, 1), TB_STREAM_TLS);
    records_hear(&w, "internal error");
    records_fini(&w);

    records_open(&w, *state, &(struct records_way){.asks = true, .heeds = true});
    tb_tls_set_key_records(w.east, 0);
    w.c.bulk->seal.digest = EVP_md_null();
    assert_int_equal(tb_tls_session_write(&w.c, sent, 1000, &put), TB_STREAM_TLS);
    assert_int_equal(put, 0);
    assert_int_equal(records_waiting(w.c_far), 0);
    assert_int_equal(tb_tls_session_write(&w.c, sent, 1000, &put), TB_STREAM_TLS);
    records_fini(&w);
}

/* P1: bytes that are not the peer's are nobody's; P10: both ends say why. */
static void a_bit_that_falls_over(struct world *world, bool sends)
{
    struct records w;
    size_t put = 0, came = 0, count = 0;
    enum tb_status status = TB_OK;
    records_open(&w, world, &(struct records_way){.asks = true, .heeds = true});
    if (!sends) records_leave_sending(&w.s);
    w.flip_at = w.carried + 3u * (TB_TLS_PLAIN_BYTES + TB_TLS_ADDED_BYTES) + 9000;
    while (status == TB_OK || status == TB_AGAIN) {
        records_write_some(&w.c, 100000, &put);
        records_carry(&w);
        status = tb_tls_session_read(&w.s, got + came, 50000, &count);
        came += count;
    }
    assert_int_equal(status, TB_STREAM_TLS);
    assert_non_null(strstr(w.s.reason, "tag"));
    assert_int_equal(came, 3u * TB_TLS_PLAIN_BYTES);
    assert_memory_equal(got, sent, came);
    assert_int_equal(tb_tls_session_read(&w.s, got, 1, &count), TB_STREAM_TLS); /* and stays so */
    if (sends)
        records_hear(&w, "bad record mac");
    else
        assert_int_equal(records_waiting(w.s_far), 0);
    if (sends) assert_int_equal(tb_tls_session_write(&w.c, sent, BYTES, &count), TB_STREAM_TLS);
    records_fini(&w);
}

static void a_bit_that_falls_over_ends_it(void **state)
{
    a_bit_that_falls_over(*state, true);
    a_bit_that_falls_over(*state, false);
}

/* An alert has no place behind what waits for the socket: that batch may be full. */
static void an_alert_does_not_overwrite_a_full_batch(void **state)
{
    static const uint8_t head[] = {22, 3, 3, 1, 0};
    const int small = 20000;
    struct records w;
    size_t count = 0;
    records_open(&w, *state, &(struct records_way){.asks = true});
    tb_tls_set_key_records(w.east, 0); /* a KeyUpdate in front of each batch */
    assert_int_equal(setsockopt(w.c.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    assert_int_equal(tb_tls_session_write(&w.c, sent, 200000, &count), TB_AGAIN);
    const uint32_t used = w.c.bulk->out_used;
    assert_int_equal(used, TB_TLS_BATCH_BYTES + 5 + TB_TLS_ADDED_BYTES);
    assert_int_equal(send(w.c_far, head, sizeof head, 0), sizeof head);
    assert_int_equal(tb_tls_session_read(&w.c, got, BYTES, &count), TB_STREAM_TLS);
    assert_int_equal(w.c.bulk->out_used, used);
    records_fini(&w);
}

/* P7: a length that no record has, and a type that may not come any more, are refused before
 * anything is waited for. */
static void heads_of_no_record_are_refused(void **state)
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
        struct records w;
        size_t count = 0;
        records_open(&w, *state, &(struct records_way){.asks = true, .heeds = true});
        assert_int_equal(send(w.s_far, rows[i].head, 5, 0), 5);
        assert_int_equal(tb_tls_session_read(&w.s, got, BYTES, &count), TB_STREAM_TLS);
        assert_int_equal(count, 0);
        assert_non_null(strstr(w.s.reason, rows[i].why));
        records_hear(&w, rows[i].heard);
        records_fini(&w);
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
        struct records w;
        records_open(&w, *state, &(struct records_way){.asks = true, .heeds = true});
        const enum tb_status status =
            read_sealed(&w, rows[i].type, rows[i].bytes, rows[i].count, rows[i].times);
        if (status != rows[i].want) fail_msg("row %u: %d, not %d", i, (int)status, (int)rows[i].want);
        if (rows[i].heard != NULL) records_hear(&w, rows[i].heard);
        records_fini(&w);
    }
}

/* One record of so many bytes of data, and of padding behind them, read where there is so much
 * room. */
static enum tb_status read_padded(struct records *w, size_t count, size_t padding, size_t room)
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
        struct records w;
        records_open(&w, *state, &(struct records_way){.asks = true, .heeds = true});
        assert_int_equal(
            read_padded(&w, rows[i / 2].count, rows[i / 2].padding, i % 2 == 0 ? BYTES / 2 : 100),
            rows[i / 2].want);
        if (rows[i / 2].want != TB_OK) records_hear(&w, "record overflow");
        records_fini(&w);
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
static struct reads read_small(struct records *w, const struct small *small)
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
    struct records w;
    const struct small ones = {10000, false, 1};
    records_open(&w, *state, &(struct records_way){.asks = true, .heeds = true});
    const struct reads r = read_small(&w, &ones);
    assert_int_equal(r.bytes, 10000);
    assert_in_range(r.most, 1, TB_TLS_READ_STEPS);
    assert_true(r.calls >= 10000 / TB_TLS_READ_STEPS);
    records_fini(&w);
}

/* P7: a byte does not make good for a record without any. */
static void data_pays_for_records_without_any(void **state)
{
    static const struct {
        struct small small;
        enum tb_status want;
    } rows[] = {{{10000, true, 1}, TB_STREAM_TLS}, {{200, true, TB_TLS_VAIN_BYTES}, TB_OK}};
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct records w;
        records_open(&w, *state, &(struct records_way){.asks = true, .heeds = true});
        const struct reads r = read_small(&w, &rows[i].small);
        assert_int_equal(r.last, rows[i].want);
        if (i == 0) assert_in_range(r.bytes, TB_TLS_VAIN_MAX - 1, TB_TLS_VAIN_MAX);
        if (i == 0) assert_non_null(strstr(w.s.reason, "flood"));
        records_fini(&w);
    }
}

/* P8: a dialler whose certificate is refused is done with its own handshake by then. It hears of it
 * in the place of the first bytes. */
static void a_refused_dialler_hears_the_same_as_from_openssl(void **state)
{
    char reasons[2][TB_TLS_REASON_BYTES];
    for (int asks = 0; asks < 2; asks++) {
        struct records w;
        enum tb_status c = TB_AGAIN, s = TB_AGAIN;
        size_t count = 0;
        records_init(&w, *state,
                     &(struct records_way){.asks = asks == 1, .heeds = true, .expect = "tombolo://north/gw"});
        while (c == TB_AGAIN || s == TB_AGAIN) {
            if (c == TB_AGAIN) c = tb_tls_session_handshake(&w.c);
            if (s == TB_AGAIN) s = tb_tls_session_handshake(&w.s);
            records_carry(&w);
        }
        assert_int_equal(c, TB_OK);
        assert_int_equal(s, TB_PEER_IDENTITY);
        for (c = TB_AGAIN; c == TB_AGAIN; records_carry(&w))
            c = tb_tls_session_read(&w.c, got, BYTES, &count);
        assert_int_equal(c, TB_PEER_DENIED);
        memcpy(reasons[asks], w.c.reason, sizeof reasons[0]);
        records_fini(&w);
    }
    assert_string_equal(reasons[0], reasons[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RECORDS_TEST(a_key_that_cannot_be_made_ends_it),
        RECORDS_TEST(a_bit_that_falls_over_ends_it),
        RECORDS_TEST(an_alert_does_not_overwrite_a_full_batch),
        RECORDS_TEST(heads_of_no_record_are_refused),
        RECORDS_TEST(sealed_records_that_may_not_come_are_refused),
        RECORDS_TEST(records_are_as_long_as_they_may_be),
        RECORDS_TEST(small_records_do_not_hold_the_reader),
        RECORDS_TEST(data_pays_for_records_without_any),
        RECORDS_TEST(a_refused_dialler_hears_the_same_as_from_openssl),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
