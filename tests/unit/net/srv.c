/* SRV answers from raw bytes: what a name server may say, and what it may not.
 * Covers: base/net/srv.c */
#include "base/net/srv.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct message {
    uint8_t bytes[2048];
    size_t used;
};

static void put(struct message *m, const void *bytes, size_t count)
{
    memcpy(m->bytes + m->used, bytes, count);
    m->used += count;
}

static void put16(struct message *m, uint32_t v)
{
    put(m, (const uint8_t[]){(uint8_t)(v >> 8), (uint8_t)v}, 2);
}

static void put_name(struct message *m, const char *name)
{
    while (*name != '\0') {
        const size_t label = strcspn(name, ".");
        put(m, &(const uint8_t){(uint8_t)label}, 1);
        put(m, name, label);
        name += label + (name[label] == '.');
    }
    put(m, "", 1);
}

static void begin(struct message *m, uint32_t records)
{
    m->used = 0;
    put(m, "\x12\x34\x85\x00", 4);
    put16(m, 1);
    put16(m, records);
    put(m, "\0\0\0\0", 4);
    put_name(m, "_tombolo._tcp.west.example");
    put(m, "\0\x21\0\x01", 4);
}

struct row {
    uint32_t ttl_s;
    uint16_t priority, weight, port;
    const char *host;
};

static void put_row(struct message *m, const struct row *r)
{
    put(m, "\xc0\x0c\0\x21\0\x01", 6);
    put16(m, r->ttl_s >> 16);
    put16(m, r->ttl_s);
    const size_t length_at = m->used;
    put16(m, 0);
    put16(m, r->priority);
    put16(m, r->weight);
    put16(m, r->port);
    put_name(m, r->host);
    m->bytes[length_at + 1] = (uint8_t)(m->used - length_at - 2);
}

static void make(struct message *m, const struct row *rows, uint32_t count)
{
    begin(m, count);
    for (uint32_t i = 0; i < count; i++)
        put_row(m, &rows[i]);
}

static const struct row three[] = {{300, 20, 5, 7402, "b.west.example"},
                                   {60, 10, 1, 7401, "a.west.example"},
                                   {900, 20, 5, 7403, "c.west.example"}};

static void targets_come_by_priority(void **state)
{
    (void)state;
    struct message m;
    struct tb_srv_answer a;
    make(&m, three, 3);
    assert_int_equal(tb_srv_read(m.bytes, m.used, &a), TB_OK);
    assert_int_equal(a.count, 3);
    assert_int_equal(a.ttl_s, 60);
    assert_string_equal(a.targets[0].host, "a.west.example");
    assert_int_equal(a.targets[0].port, 7401);
    assert_string_equal(a.targets[1].host, "b.west.example");
    assert_string_equal(a.targets[2].host, "c.west.example");
}

/* P7: every prefix of an answer is refused, and none is read past its end. */
static void every_truncation_is_garbled(void **state)
{
    (void)state;
    struct message m;
    struct tb_srv_answer a;
    make(&m, three, 3);
    for (size_t bytes = 0; bytes < m.used; bytes++) {
        uint8_t *copy = test_malloc(bytes + 1);
        memcpy(copy, m.bytes, bytes);
        assert_int_equal(tb_srv_read(copy, bytes, &a), TB_PEER_GARBLED);
        test_free(copy);
    }
}

static void more_than_fit_leave_out_the_last(void **state)
{
    (void)state;
    struct message m;
    struct tb_srv_answer a;
    struct row rows[12];
    for (uint16_t i = 0; i < 12; i++)
        rows[i] = (struct row){60, (uint16_t)(100 - i), 0, i, "h.example"};
    make(&m, rows, 12);
    assert_int_equal(tb_srv_read(m.bytes, m.used, &a), TB_OK);
    assert_int_equal(a.count, TB_SRV_TARGETS_MAX);
    for (uint32_t i = 0; i < TB_SRV_TARGETS_MAX; i++)
        assert_int_equal(a.targets[i].port, 11 - i);
}

static void no_service_is_not_found(void **state)
{
    (void)state;
    struct message m;
    struct tb_srv_answer a;
    const struct row root = {60, 0, 0, 0, ""};
    begin(&m, 0);
    assert_int_equal(tb_srv_read(m.bytes, m.used, &a), TB_NOT_FOUND);
    make(&m, &root, 1);
    assert_int_equal(tb_srv_read(m.bytes, m.used, &a), TB_NOT_FOUND);
}

/* RFC 2181: a TTL with its highest bit set is 0. */
static void a_negative_ttl_is_none(void **state)
{
    (void)state;
    struct message m;
    struct tb_srv_answer a;
    const struct row odd = {0x80000001u, 0, 0, 1, "h.example"};
    make(&m, &odd, 1);
    assert_int_equal(tb_srv_read(m.bytes, m.used, &a), TB_OK);
    assert_int_equal(a.ttl_s, 0);
}

/* The target's name begins `back` bytes before the message's end. */
static void refused_with(const char *what, const void *name, size_t bytes)
{
    struct message m;
    struct tb_srv_answer a;
    begin(&m, 1);
    put(&m, "\xc0\x0c\0\x21\0\x01\0\0\0\x3c", 10);
    put16(&m, (uint32_t)(6 + bytes));
    put(&m, "\0\x0a\0\x01\x1c\xe9", 6);
    put(&m, name, bytes);
    if (tb_srv_read(m.bytes, m.used, &a) != TB_PEER_GARBLED) fail_msg("taken: %s", what);
}

/* P7: a name server is a stranger. */
static void hostile_names_are_garbled(void **state)
{
    (void)state;
    struct message at;
    begin(&at, 1);
    const uint8_t here = (uint8_t)(at.used + 18);
    refused_with("a name that points at itself", (const uint8_t[]){0xc0, here}, 2);
    refused_with("a name that points forwards", (const uint8_t[]){0xc0, (uint8_t)(here + 2), 0}, 3);
    refused_with("a name in the header", (const uint8_t[]){0xc0, 4}, 2);
    refused_with("a label of a kind that is not", (const uint8_t[]){0x41, 'a', 0}, 3);
    refused_with("a label that is no host's",
                 "\x03"
                 "a\0b\0",
                 5);
    refused_with("a slash",
                 "\x03"
                 "a/b\0",
                 5);
    refused_with("bytes behind the name",
                 "\x01"
                 "a\0x",
                 4);
    uint8_t endless[258];
    memset(endless, 'a', sizeof endless);
    for (size_t i = 0; i < sizeof endless; i += 64)
        endless[i] = 63;
    endless[256] = 0;
    refused_with("a name that is too long", endless, 257);
}

/* A compressed name may point back at the question. */
static void a_compressed_name_is_read(void **state)
{
    (void)state;
    struct message m;
    struct tb_srv_answer a;
    begin(&m, 1);
    put(&m, "\xc0\x0c\0\x21\0\x01\0\0\0\x3c", 10);
    put16(&m, 10);
    put(&m, "\0\x0a\0\x01\x1c\xe9\x01h\xc0\x1a", 10); /* 26: behind "_tombolo" and "_tcp" */
    assert_int_equal(tb_srv_read(m.bytes, m.used, &a), TB_OK);
    assert_string_equal(a.targets[0].host, "h.west.example");
}

static void equals_share_by_weight(void **state)
{
    (void)state;
    uint32_t first[3] = {0};
    for (uint32_t i = 0; i < 4000; i++) {
        struct tb_srv_answer a = {
            .count = 4, .targets = {{"first", 1, 1, 9}, {"a", 2, 30, 0}, {"b", 2, 10, 1}, {"c", 2, 0, 2}}};
        tb_srv_order(&a, i);
        assert_int_equal(a.targets[0].port, 9); /* priorities are kept */
        first[a.targets[1].port]++;
        assert_int_equal(a.targets[1].port + a.targets[2].port + a.targets[3].port,
                         3); /* and nobody is lost */
    }
    assert_in_range(first[0], 2800, 3200);
    assert_in_range(first[1], 800, 1200);
    assert_in_range(first[2], 0, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_come_by_priority),         cmocka_unit_test(every_truncation_is_garbled),
        cmocka_unit_test(more_than_fit_leave_out_the_last), cmocka_unit_test(no_service_is_not_found),
        cmocka_unit_test(a_negative_ttl_is_none),           cmocka_unit_test(hostile_names_are_garbled),
        cmocka_unit_test(a_compressed_name_is_read),        cmocka_unit_test(equals_share_by_weight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
