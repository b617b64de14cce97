/* P10: one event is one line; no text of a peer can forge another, and none is
 * longer than 4 KiB.
 * Covers: base/log.c */
#include "base/log.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/ident.h"
#include "base/limits/line_limits.h"
#include "tests/unit/caught_log.h"

static int fds[2];

static int log_up(void **state)
{
    (void)state;
    assert_int_equal(pipe(fds), 0);
    tb_log_set(TB_LOG_INFO, fds[1]);
    return 0;
}

static int log_down(void **state)
{
    (void)state;
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    close(fds[0]);
    close(fds[1]);
    return 0;
}

/* All that was written since the last call; a mark is written so that nothing waits. */
static const char *written(void)
{
    static char out[16384];
    size_t used = 0;
    assert_int_equal(write(fds[1], "\x01", 1), 1);
    do {
        const ssize_t got = read(fds[0], out + used, sizeof out - 1 - used);
        assert_true(got > 0);
        used += (size_t)got;
    } while (out[used - 1] != '\x01');
    out[used - 1] = '\0';
    return out;
}

static const char *line_with(const char *value)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "peer.said");
    tb_log_str(&l, "text", value);
    tb_log_end(&l);
    return written();
}

static void plain_lines(void **state)
{
    (void)state;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_INFO, "link.up");
    tb_log_str(&l, "peer", "west/gw-0");
    tb_log_u64(&l, "streams", 8);
    tb_log_u64(&l, "most", UINT64_MAX);
    tb_log_end(&l);
    assert_string_equal(written(), "info link.up peer=west/gw-0 streams=8 most=18446744073709551615\n");
    tb_log(TB_LOG_ERROR, "arena.full", "wanted_bytes=%u free_bytes=%d", 10u, 3);
    assert_string_equal(written(), "error arena.full wanted_bytes=10 free_bytes=3\n");
    tb_log(TB_LOG_WARN, "drain.begun", "%s", "");
    assert_string_equal(written(), "warn drain.begun \n");
}

static void forging_bytes_are_escaped(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        const char *line;
    } rows[] = {
        {"east", "warn peer.said text=east\n"},
        {"", "warn peer.said text=\"\"\n"},
        {"a b", "warn peer.said text=\"a b\"\n"},
        {"a=b", "warn peer.said text=\"a=b\"\n"},
        {"a\"b\\c", "warn peer.said text=\"a\\\"b\\\\c\"\n"},
        {"x\nerror arena.lost", "warn peer.said text=\"x\\nerror arena.lost\"\n"},
        {"a\r\tb", "warn peer.said text=\"a\\r\\tb\"\n"},
        {"\x1b[31mred", "warn peer.said text=\"\\x1b[31mred\"\n"},
        {"\x7f", "warn peer.said text=\"\\x7f\"\n"},
        {"\xc2\x9b"
         "31m",
         "warn peer.said text=\"\\xc2\\x9b31m\"\n"}, /* C1 CSI */
        {"caf\xc3\xa9", "warn peer.said text=caf\xc3\xa9\n"},
        {"bad\xff\xc3", "warn peer.said text=\"bad\\xff\\xc3\"\n"},
        {"\xe2\x80\xa8", "warn peer.said text=\"\\xe2\\x80\\xa8\"\n"}, /* line separator */
        {"\xe2\x80\xae"
         "evil",
         "warn peer.said text=\"\\xe2\\x80\\xae"
         "evil\"\n"}, /* right-to-left override */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(line_with(rows[i].value), rows[i].line);
}

/* No byte of any value leaves as itself if it could end the line or the quote. */
static void every_byte_is_safe(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        const char value[] = {'a', (char)c, 'b', '\0'};
        const char *line = line_with(value);
        const size_t count = strlen(line);
        assert_int_equal(line[count - 1], '\n');
        for (size_t i = 0; i + 1 < count; i++)
            assert_true((unsigned char)line[i] >= 0x20 && (unsigned char)line[i] < 0x7f);
    }
}

static void long_values_are_cut(void **state)
{
    (void)state;
    static char value[10000];
    static const char *const fills[] = {"x", "\n", "a b", "\xc3\xa9", "\xe2\x82\xac ", "\\"};
    for (size_t f = 0; f < sizeof fills / sizeof fills[0]; f++) {
        value[0] = '\0';
        const size_t step = strlen(fills[f]);
        for (size_t at = 0; at + step < sizeof value; at += step)
            memcpy(value + at, fills[f], step + 1);
        const char *line = line_with(value);
        const size_t count = strlen(line);
        assert_true(count <= 4096 && count > 4000);
        assert_string_equal(line + count - 11, "\" cut=true\n");
        assert_ptr_equal(strchr(line, '\n'), line + count - 1);
    }
}

/* Around the limit nothing is lost without the mark, whatever the length. */
static void the_limit_is_exact(void **state)
{
    (void)state;
    static char value[5000];
    for (size_t count = 4030; count < 4110; count++) {
        memset(value, 'x', count);
        value[count] = '\0';
        const char *line = line_with(value);
        assert_true(strlen(line) <= 4096);
        const bool cut = strstr(line, " cut=true\n") != NULL;
        const char *text = strchr(line, '=') + 1;
        const size_t there = strspn(text + (*text == '"'), "x");
        assert_int_equal(cut, there < count);
    }
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "many.keys");
    for (int i = 0; i < 2000; i++)
        tb_log_u64(&l, "k", (uint64_t)i);
    tb_log_end(&l);
    const char *line = written();
    assert_true(strlen(line) <= 4096);
    assert_non_null(strstr(line, " cut=true\n"));
}

static void format_cannot_forge_or_overflow(void **state)
{
    (void)state;
    static char value[9000];
    tb_log(TB_LOG_WARN, "odd.text", "name=%s", "a\nb\x1b");
    assert_string_equal(written(), "warn odd.text name=a?b?\n");
    memset(value, 'y', sizeof value - 1);
    tb_log(TB_LOG_WARN, "odd.text", "name=%s", value);
    const char *line = written();
    assert_true(strlen(line) <= 4096);
    assert_non_null(strstr(line, "y cut=true\n"));
}

static void levels_above_the_most_are_silent(void **state)
{
    (void)state;
    enum tb_log_level level = TB_LOG_ERROR;
    tb_log(TB_LOG_DEBUG, "chunk.held", "k=%d", 1);
    assert_string_equal(written(), "");
    assert_true(tb_log_level_parse("debug", &level));
    tb_log_set(level, fds[1]);
    tb_log(TB_LOG_DEBUG, "chunk.held", "k=%d", 1);
    assert_string_equal(written(), "debug chunk.held k=1\n");
    assert_false(tb_log_level_parse("Debug", &level));
    assert_false(tb_log_level_parse("", &level));
}

#define LINES 20000u

static void *say_often(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < LINES; i++)
        tb_log(TB_LOG_INFO, "hop.open", "k=%d", 1);
    return NULL;
}

/* Tests count lines in a caught log: threads that log at once do not write over each other. */
static void lines_of_threads_are_all_caught(void **state)
{
    (void)state;
    static const char line[] = "info hop.open k=1\n";
    pthread_t threads[2];
    const int log = caught_log_new();
    tb_log_set(TB_LOG_INFO, log);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, say_often, NULL), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    assert_int_equal(lseek(log, 0, SEEK_END), 2 * LINES * (sizeof line - 1));
    close(log);
}

static void say(const char *event, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        tb_log(TB_LOG_INFO, event, "nth=%u", i);
}

/* P10: a gateway tells sums each second. From then on no line is without a limit, also where nobody
 * said whose doing it is. A party's lines are counted by themselves. */
static void lines_of_no_party_have_a_limit(void **state)
{
    (void)state;
    enum {
        OFTEN = 8000,
        OF_A_PARTY = TB_LINE_BURST,
        OF_A_GATEWAY = TB_LINE_GATEWAYS * TB_LINE_BURST,
        OF_NOBODY = TB_LINE_NOBODYS * TB_LINE_BURST
    };
    const struct tb_identity gateway = {.kind = TB_IDENTITY_GATEWAY, .site = {"west"}, .name = {"gw"}};
    const struct tb_identity somebody = {.kind = TB_IDENTITY_UNIX, .uid = 7};
    const int log = caught_log_new();
    tb_log_set(TB_LOG_INFO, log);
    say("a.line", OFTEN);
    assert_int_equal(tb_log_suppressed(), 0); /* no sum would tell of them */
    tb_log_tick();
    const struct tb_log_party before = tb_log_party_set((struct tb_log_party){.identity = &somebody});
    say("another.line", OFTEN);
    const uint64_t of_party = tb_log_suppressed();
    assert_in_range(of_party, OFTEN - 2 * OF_A_PARTY, OFTEN - OF_A_PARTY);
    (void)tb_log_party_set((struct tb_log_party){.identity = &gateway});
    say("another.line", OFTEN);
    const uint64_t of_gateway = tb_log_suppressed() - of_party;
    assert_in_range(of_gateway, OFTEN - 2 * OF_A_GATEWAY, OFTEN - OF_A_GATEWAY);
    (void)tb_log_party_set(before);
    say("another.line", OFTEN);
    assert_in_range(tb_log_suppressed() - of_party - of_gateway, 1, OFTEN - OF_NOBODY);
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    (void)close(log);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(plain_lines, log_up, log_down),
        cmocka_unit_test_setup_teardown(forging_bytes_are_escaped, log_up, log_down),
        cmocka_unit_test_setup_teardown(every_byte_is_safe, log_up, log_down),
        cmocka_unit_test_setup_teardown(long_values_are_cut, log_up, log_down),
        cmocka_unit_test_setup_teardown(the_limit_is_exact, log_up, log_down),
        cmocka_unit_test_setup_teardown(format_cannot_forge_or_overflow, log_up, log_down),
        cmocka_unit_test_setup_teardown(levels_above_the_most_are_silent, log_up, log_down),
        cmocka_unit_test(lines_of_threads_are_all_caught),
        cmocka_unit_test(lines_of_no_party_have_a_limit),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
