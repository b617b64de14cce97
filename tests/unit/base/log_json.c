/* P10: each line of a log in JSON is one object, whatever a peer says and wherever the line is cut.
 * A time or journald's priority stands in front only where it was asked for.
 * Covers: base/log_form.c base/log.c */
#include "base/log.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/caught_log.h"

static int log_fd;

static int log_up(void **state)
{
    (void)state;
    log_fd = caught_log_new();
    tb_log_set(TB_LOG_INFO, log_fd);
    tb_log_set_form((struct tb_log_form){.json = true});
    return 0;
}

static int log_down(void **state)
{
    (void)state;
    tb_log_set_form((struct tb_log_form){.json = false});
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    (void)unsetenv("JOURNAL_STREAM");
    return close(log_fd);
}

/* The lines since the last call. */
static const char *written(void)
{
    static char out[16384];
    const ssize_t got = pread(log_fd, out, sizeof out - 1, 0);
    assert_true(got >= 0);
    out[got] = '\0';
    assert_int_equal(ftruncate(log_fd, 0), 0);
    return out;
}

/* The one line as an object. */
static json_t *object(void)
{
    json_error_t error;
    const char *line = written();
    const size_t count = strlen(line);
    assert_true(count > 0 && count <= 4096);
    assert_ptr_equal(strchr(line, '\n'), line + count - 1);
    json_t *o = json_loads(line, JSON_REJECT_DUPLICATES, &error);
    if (o == NULL) fail_msg("%s: %s", error.text, line);
    assert_true(json_is_object(o));
    return o;
}

static void says(const char *value, const char *expected)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "peer.said");
    tb_log_str(&l, "text", value);
    tb_log_u64(&l, "n", UINT64_C(7));
    tb_log_end(&l);
    json_t *o = object();
    assert_string_equal(json_string_value(json_object_get(o, "level")), "warn");
    assert_string_equal(json_string_value(json_object_get(o, "event")), "peer.said");
    assert_string_equal(json_string_value(json_object_get(o, "text")), expected);
    assert_int_equal(json_integer_value(json_object_get(o, "n")), 7);
    assert_int_equal(json_object_size(o), 4);
    json_decref(o);
}

static void a_strangers_text_is_one_value(void **state)
{
    (void)state;
    says("east", "east");
    says("", "");
    says("7400", "7400"); /* text stays text */
    says("\",\"level\":\"error\",\"x\":\"", "\",\"level\":\"error\",\"x\":\"");
    says("x\"}\n{\"event\":\"arena.lost\"}", "x\"}\n{\"event\":\"arena.lost\"}");
    says("back\\slash\\", "back\\slash\\");
    says("caf\xc3\xa9 \xf0\x9f\x90\x8b", "caf\xc3\xa9 \xf0\x9f\x90\x8b");
    says("bad\xff\xc3", "bad\xef\xbf\xbd\xef\xbf\xbd");
    says("\x1b[31mred\x7f", "\x1b[31mred\x7f");
    says("\xe2\x80\xae"
         "evil",
         "\xe2\x80\xae"
         "evil");
}

/* No byte leaves as itself that could drive a terminal, end the line or leave the quotes. */
static void every_byte_is_safe(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        const char value[] = {'a', (char)c, 'b', '\0'};
        struct tb_log_line l;
        tb_log_begin(&l, TB_LOG_WARN, "peer.said");
        tb_log_str(&l, "text", value);
        tb_log_end(&l);
        const char *line = written();
        for (size_t i = 0; i + 1 < strlen(line); i++)
            assert_true((unsigned char)line[i] >= 0x20 && (unsigned char)line[i] != 0x7f);
        json_t *o = json_loads(line, 0, NULL);
        assert_non_null(o);
        json_decref(o);
    }
}

/* Around the limit: the object is whole, and says that something lacks. */
static void a_cut_line_is_whole(void **state)
{
    (void)state;
    static char value[9000];
    static const char *const fills[] = {"x", "\n", "\xc3\xa9", "\xe2\x80\xa8", "\\", "\xff"};
    for (size_t f = 0; f < sizeof fills / sizeof fills[0]; f++)
        for (size_t count = 3950; count < 4110; count++) {
            value[0] = '\0';
            const size_t step = strlen(fills[f]);
            for (size_t at = 0; at + step < count; at += step)
                memcpy(value + at, fills[f], step + 1);
            struct tb_log_line l;
            tb_log_begin(&l, TB_LOG_INFO, "a.b");
            tb_log_str(&l, "key", value);
            tb_log_str(&l, "last", "x");
            tb_log_u64(&l, "n", UINT64_MAX);
            tb_log_end(&l);
            json_t *o = object();
            const json_t *n = json_object_get(o, "n");
            const bool all = n != NULL && strcmp(json_string_value(n), "18446744073709551615") == 0;
            assert_int_equal(all, json_object_get(o, "cut") == NULL);
            json_decref(o);
        }
}

static void pairs_of_ours_are_keys(void **state)
{
    (void)state;
    tb_log(TB_LOG_INFO, "link.up",
           "peer=%s streams=%u rtt_ms=%.1f behind=%d why=two words reason=\"a=b c\" id=%s", "west", 8u, 1.5,
           -3, "007");
    json_t *o = object();
    assert_string_equal(json_string_value(json_object_get(o, "peer")), "west");
    assert_int_equal(json_integer_value(json_object_get(o, "streams")), 8);
    assert_true(json_is_real(json_object_get(o, "rtt_ms")));
    assert_int_equal(json_integer_value(json_object_get(o, "behind")), -3);
    assert_string_equal(json_string_value(json_object_get(o, "why")), "two words");
    assert_string_equal(json_string_value(json_object_get(o, "reason")), "a=b c");
    assert_string_equal(json_string_value(json_object_get(o, "id")), "007");
    json_decref(o);
    tb_log(TB_LOG_INFO, "odd.text", "no key at all x=%llu", (unsigned long long)UINT64_MAX);
    o = object();
    assert_string_equal(json_string_value(json_object_get(o, "text")), "no key at all");
    assert_string_equal(json_string_value(json_object_get(o, "x")), "18446744073709551615");
    json_decref(o);
    tb_log(TB_LOG_WARN, "drain.begun", "%s", "");
    assert_string_equal(written(), "{\"level\":\"warn\",\"event\":\"drain.begun\"}\n");
    tb_log(TB_LOG_WARN, "odd.text", "name=%s", "a\nb\"c\x1b");
    o = object();
    assert_string_equal(json_string_value(json_object_get(o, "name")), "a?b\"c?");
    json_decref(o);
}

static void a_priority_is_in_front_for_journald(void **state)
{
    (void)state;
    struct stat st;
    char here[64];
    assert_int_equal(fstat(log_fd, &st), 0);
    assert_false(tb_log_is_journal(log_fd));
    (void)snprintf(here, sizeof here, "%llu:%llu", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino);
    assert_int_equal(setenv("JOURNAL_STREAM", here, 1), 0);
    assert_true(tb_log_is_journal(log_fd));
    assert_false(tb_log_is_journal(STDERR_FILENO)); /* it was pointed elsewhere */
    tb_log_set_form((struct tb_log_form){.priority = true});
    tb_log_set(TB_LOG_DEBUG, log_fd);
    static const char *const lines[] = {"<3>error a.b k=1\n", "<4>warn a.b k=1\n", "<6>info a.b k=1\n",
                                        "<7>debug a.b k=1\n"};
    for (int level = TB_LOG_ERROR; level <= TB_LOG_DEBUG; level++) {
        tb_log((enum tb_log_level)level, "a.b", "k=%d", 1);
        assert_string_equal(written(), lines[level]);
    }
    tb_log_set_form((struct tb_log_form){.priority = true, .json = true});
    tb_log(TB_LOG_ERROR, "a.b", "k=%d", 1);
    assert_string_equal(written(), "<3>{\"level\":\"error\",\"event\":\"a.b\",\"k\":1}\n");
}

static void a_time_is_in_front_where_it_was_asked_for(void **state)
{
    (void)state;
    static const char shape[] = "0000-00-00T00:00:00.000Z";
    tb_log_set_form((struct tb_log_form){.time = true});
    tb_log(TB_LOG_INFO, "a.b", "k=%d", 1);
    const char *line = written();
    for (size_t i = 0; i < sizeof shape - 1; i++)
        assert_true(shape[i] == '0' ? line[i] >= '0' && line[i] <= '9' : line[i] == shape[i]);
    assert_string_equal(line + sizeof shape - 1, " info a.b k=1\n");
    tb_log_set_form((struct tb_log_form){.time = true, .json = true});
    tb_log(TB_LOG_INFO, "a.b", "k=%d", 1);
    json_t *o = object();
    assert_int_equal(strlen(json_string_value(json_object_get(o, "time"))), sizeof shape - 1);
    assert_int_equal(json_object_size(o), 4);
    json_decref(o);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, log_up, log_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_strangers_text_is_one_value),
        TEST(every_byte_is_safe),
        TEST(a_cut_line_is_whole),
        TEST(pairs_of_ours_are_keys),
        TEST(a_priority_is_in_front_for_journald),
        TEST(a_time_is_in_front_where_it_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
