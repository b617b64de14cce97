/* endpoint.c - an endpoint has one spelling, and an address that cannot be used is refused with
 * its reason.
 * Covers: base/net/endpoint.c */
#include "base/net/endpoint.h"

#include <errno.h>
#include <string.h>

#include "net_world.h"

static void an_endpoint_is_read_as_it_is_written(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        uint16_t port;
        bool is_unix, is_service;
    } good[] = {
        {"unix:/run/tombolo/west.sock", "/run/tombolo/west.sock", 0, true, false},
        {"unix:@abstract-name", "@abstract-name", 0, true, false},
        {"host.example:7400", "host.example", 7400, false, false},
        {"192.0.2.1:7400", "192.0.2.1", 7400, false, false},
        {"[2001:db8::1]:7400", "2001:db8::1", 7400, false, false},
        {"localhost:0", "localhost", 0, false, false},
        {"a_b-c.example:65535", "a_b-c.example", 65535, false, false},
        {"_tombolo._tcp.west.example", "_tombolo._tcp.west.example", 0, false, true},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tb_endpoint e;
        assert_int_equal(tb_endpoint_parse(good[i].text, &e), TB_OK);
        assert_string_equal(e.host, good[i].host);
        assert_int_equal(e.port, good[i].port);
        assert_int_equal(e.is_unix, good[i].is_unix);
        assert_int_equal(e.is_service, good[i].is_service);
    }
    struct tb_endpoint e;
    assert_int_equal(tb_endpoint_parse("_x:1", &e), TB_OK); /* a host's name may begin like a service's */
    assert_false(e.is_service);
}

static void texts_that_are_no_endpoint_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "host",
                                      ":80",
                                      "host:",
                                      "host:65536",
                                      "host:8 0",
                                      "host:-1",
                                      "unix:",
                                      "unix:@",
                                      "::1:80",
                                      "[::1]80",
                                      "[::1]",
                                      "[host]:1",
                                      "256.1.1.1:1",
                                      "1.2.3:1",
                                      "ho st:1",
                                      "-h:1",
                                      ".h:1",
                                      "h/x:1",
                                      "host:1:2",
                                      "host:00001234",
                                      "_a/b",
                                      "[fe80::1%eth0]:1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tb_endpoint e;
        if (tb_endpoint_parse(bad[i], &e) != TB_BAD_ARGUMENT) fail_msg("taken: %s", bad[i]);
    }
}

static void a_unix_path_fits_its_address_or_is_refused(void **state)
{
    (void)state;
    char text[200] = "unix:/";
    struct tb_endpoint e;
    memset(text + 6, 'x', 106);
    assert_int_equal(tb_endpoint_parse(text, &e), TB_OK); /* 107 bytes and the NUL */
    struct tb_address a;
    assert_int_equal(tb_endpoint_address(&e, &a), TB_OK);
    text[6 + 106] = 'x';
    assert_int_equal(tb_endpoint_parse(text, &e), TB_BAD_ARGUMENT);
}

static void numeric_endpoints_need_no_resolver(void **state)
{
    (void)state;
    static const char *const texts[] = {"192.0.2.1:7400", "[2001:db8::1]:7400", "unix:/run/x", "unix:@y"};
    struct tb_endpoint e;
    struct tb_address a;
    char back[128];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(tb_endpoint_parse(texts[i], &e), TB_OK);
        assert_int_equal(tb_endpoint_address(&e, &a), TB_OK);
        tb_address_format(&a, back, sizeof back);
        assert_string_equal(back, texts[i]);
    }
    assert_int_equal(tb_endpoint_parse("host.example:1", &e), TB_OK);
    assert_int_equal(tb_endpoint_address(&e, &a), TB_NOT_FOUND);
}

/* P10: the remedy, where it is known; else the kernel's word, and never "Success". */
static void why_nobody_can_listen_is_told(void **state)
{
    (void)state;
    assert_non_null(strstr(tb_endpoint_why(TB_SITE_LOCKED, EADDRINUSE), "another process"));
    assert_non_null(strstr(tb_endpoint_why(TB_SITE_IO, ENOENT), "folder is not there"));
    assert_non_null(strstr(tb_endpoint_why(TB_SITE_IO, EACCES), "may not listen"));
    assert_non_null(strstr(tb_endpoint_why(TB_SITE_IO, EADDRNOTAVAIL), "no device"));
    assert_string_equal(tb_endpoint_why(TB_SITE_IO, EROFS), strerror(EROFS));
    assert_string_equal(tb_endpoint_why(TB_SITE_IO, 0), tb_status_text(TB_SITE_IO));
    assert_string_equal(tb_endpoint_why(TB_SITE_NOMEM, ENOENT), tb_status_text(TB_SITE_NOMEM));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_endpoint_is_read_as_it_is_written),
        cmocka_unit_test(texts_that_are_no_endpoint_are_refused),
        cmocka_unit_test(a_unix_path_fits_its_address_or_is_refused),
        cmocka_unit_test(numeric_endpoints_need_no_resolver),
        cmocka_unit_test(why_nobody_can_listen_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
