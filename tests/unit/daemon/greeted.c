/* greeted.c - a worker whose library speaks another session protocol hears so, by its name (P9, P10). */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/net/wire.h"
#include "intra/session_msg.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

#define TURNS_MAX 100000

static void say_hello(int fd, uint32_t protocol)
{
    uint8_t bytes[512];
    struct tb_writer w;
    struct tb_session_hello hello = {.protocol = protocol};
    CHECK_OK(tb_name_set(&hello.name, "rank"));
    CHECK_OK(tb_name_set(&hello.host, "host"));
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_u32(&w, 0);
    tb_write_u16(&w, TB_SESSION_HELLO);
    tb_write_u16(&w, 0);
    tb_write_u64(&w, 1);
    tb_session_hello_encode(&hello, &w);
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
    static const uint32_t others[] = {TB_SESSION_PROTOCOL - 1, TB_SESSION_PROTOCOL + 1};
    struct home h;
    home_new(&h);
    home_start(&h);
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t bytes[1024];
        char numbers[64];
        struct tb_reader r;
        struct tb_session_reply reply;
        const int fd = home_dial(&h);
        say_hello(fd, others[i]);
        assert_int_equal(answer(&h, fd, bytes, sizeof bytes, &r), TB_SESSION_REPLY);
        CHECK_OK(tb_session_reply_decode(&r, &reply));
        CHECK_STATUS(tb_session_status_get(reply.status_negated), TB_PEER_PROTOCOL);
        snprintf(numbers, sizeof numbers, "protocol %d, the worker %u", TB_SESSION_PROTOCOL, others[i]);
        assert_non_null(strstr(reply.why.text, numbers));
        (void)close(fd);
    }
    home_end(&h);
    home_free(&h);
}

/* VERSION and SEAL have fields that 1 had not. */
static void the_protocol_before_is_another(void **state)
{
    (void)state;
    assert_int_equal(TB_SESSION_PROTOCOL, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_protocol_is_refused_by_name),
        cmocka_unit_test(the_protocol_before_is_another),
    };
    return cmocka_run_group_tests_name("greeted", tests, NULL, NULL);
}
