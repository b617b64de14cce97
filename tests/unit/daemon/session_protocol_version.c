/* session_protocol_version.c - a worker whose library speaks another session protocol hears so,
 * by its name (P9, P10).
 *
 * Covers: gateway/daemon/sessions/sessions.c */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/net/wire.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "intra/session_msg.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

#define TURNS_MAX 100000

static void say_hello(int fd, uint32_t protocol, uint32_t pid)
{
    uint8_t bytes[512];
    struct tb_writer w;
    struct tb_msg_hello hello = {.protocol = protocol, .pid = pid};
    CHECK_OK(tb_name_set(&hello.name, "rank"));
    CHECK_OK(tb_name_set(&hello.host, "host"));
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_u32(&w, 0);
    tb_write_u16(&w, TB_MSG_HELLO);
    tb_write_u16(&w, 0);
    tb_write_u64(&w, 1);
    tb_msg_hello_encode(&hello, &w);
    assert_false(w.full);
    tb_write_u32_at(&w, 0, (uint32_t)(w.used - TB_WIRE_HEADER_BYTES));
    assert_int_equal(write(fd, bytes, w.used), w.used);
}

/* The first frame that comes: its type, and its payload in `r_out`. */
static uint16_t answer(struct home *h, int fd, uint8_t *bytes, size_t cap, struct tb_reader *r_out)
{
    ssize_t got = -1;
    for (int i = 0; i < TURNS_MAX && got < 0; i++) {
        (void)uv_run(&h->d->loop, UV_RUN_ONCE);
        got = read(fd, bytes, cap);
    }
    assert_true(got > (ssize_t)TB_WIRE_HEADER_BYTES);
    tb_reader_init(r_out, bytes, (size_t)got);
    const uint32_t payload = tb_read_u32(r_out);
    const uint16_t type = tb_read_u16(r_out);
    tb_reader_init(r_out, bytes + TB_WIRE_HEADER_BYTES, payload);
    return type;
}

static void another_protocol_is_refused_by_name(void **state)
{
    (void)state;
    static const uint32_t others[] = {TB_MSG_PROTOCOL - 1, TB_MSG_PROTOCOL + 1};
    struct home h;
    home_new(&h);
    home_start(&h);
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t bytes[1024];
        char numbers[64];
        struct tb_reader r;
        struct tb_msg_reply reply;
        const int fd = home_dial(&h);
        say_hello(fd, others[i], 4711);
        assert_int_equal(answer(&h, fd, bytes, sizeof bytes, &r), TB_MSG_REPLY);
        CHECK_OK(tb_msg_reply_decode(&r, &reply));
        CHECK_STATUS(tb_msg_status_get(reply.status_negated), TB_PEER_PROTOCOL);
        snprintf(numbers, sizeof numbers, "protocol %d, the worker %u", TB_MSG_PROTOCOL, others[i]);
        assert_non_null(strstr(reply.why.text, numbers));
        (void)close(fd);
    }
    home_end(&h);
    home_free(&h);
}

/* HELLO of a later protocol may have other fields behind its number. It is refused by its number,
 * not as garbled, and one counter says so (P10). */
static void another_protocol_may_have_another_hello(void **state)
{
    (void)state;
    struct home h;
    home_new(&h);
    home_start(&h);
    uint8_t bytes[1024];
    struct tb_writer w;
    struct tb_reader r;
    struct tb_msg_reply reply;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_u32(&w, 5);
    tb_write_u16(&w, TB_MSG_HELLO);
    tb_write_u16(&w, 0);
    tb_write_u64(&w, 1);
    tb_write_u32(&w, TB_MSG_PROTOCOL + 1);
    tb_write_u8(&w, 7);
    const int fd = home_dial(&h);
    assert_int_equal(write(fd, bytes, w.used), w.used);
    assert_int_equal(answer(&h, fd, bytes, sizeof bytes, &r), TB_MSG_REPLY);
    CHECK_OK(tb_msg_reply_decode(&r, &reply));
    CHECK_STATUS(tb_msg_status_get(reply.status_negated), TB_PEER_PROTOCOL);
    assert_non_null(strstr(reply.why.text, "speaks session protocol"));
    assert_int_equal(h.d->counters.sessions_refused, 1);
    assert_int_equal(h.d->counters.sessions_garbled, 0);
    (void)close(fd);
    home_end(&h);
    home_free(&h);
}

/* P9: the field was a pid alone, and is that still to a reader that does not look above its 22
 * bits. */
static void a_nic_stands_above_the_pid(void **state)
{
    (void)state;
    static const struct {
        uint64_t said, heard;
    } rates[] = {{0, 0},
                 {UINT64_C(124999999), 0},
                 {UINT64_C(12500000001), UINT64_C(12500000000)},
                 {UINT64_C(127875000000), UINT64_C(127875000000)},
                 {UINT64_MAX, UINT64_C(127875000000)}};
    for (uint32_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const uint32_t field = tb_msg_pid_put(4194303, rates[i].said);
        assert_int_equal(field & 4194303u, 4194303);
        assert_int_equal(tb_msg_nic_get(field), rates[i].heard);
    }
    assert_int_equal(tb_msg_pid_put(4711, 0), 4711);
    assert_int_equal(tb_msg_nic_get(4194303), 0); /* a worker of the release before */
}

static void the_rate_of_a_workers_nic_is_known(void **state)
{
    (void)state;
    struct home h;
    home_new(&h);
    home_start(&h);
    uint8_t bytes[1024];
    struct tb_reader r;
    struct tb_msg_welcome welcome;
    struct tb_catalog_session_view s;
    const int fd = home_dial(&h);
    say_hello(fd, TB_MSG_PROTOCOL, tb_msg_pid_put(4711, UINT64_C(50000000000)));
    assert_int_equal(answer(&h, fd, bytes, sizeof bytes, &r), TB_MSG_WELCOME);
    CHECK_OK(tb_msg_welcome_decode(&r, &welcome));
    assert_true(tb_catalog_session_get(h.d->catalog, &welcome.session, &s));
    assert_int_equal(s.session.nic_bytes_per_s, UINT64_C(50000000000));
    (void)close(fd);
    home_end(&h);
    home_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_protocol_is_refused_by_name),
        cmocka_unit_test(another_protocol_may_have_another_hello),
        cmocka_unit_test(a_nic_stands_above_the_pid),
        cmocka_unit_test(the_rate_of_a_workers_nic_is_known),
    };
    return cmocka_run_group_tests_name("session_protocol_version", tests, NULL, NULL);
}
