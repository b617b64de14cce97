/* event_ring.c - the newest lines of the log are there by id, in one form, and the oldest give way
 * (P7, P10).
 *
 * Covers: gateway/daemon/control/event_ring.c base/log.c */
#include "gateway/daemon/control/event_ring.h"

#include <string.h>
#include <unistd.h>

#include "tests/unit/caught_log.h"
#include "tests/unit/check.h"

static struct tb_event page[8];

static int opened(void **state)
{
    const int log = caught_log_new();
    tb_log_set(TB_LOG_DEBUG, log);
    tb_log_set_form((struct tb_log_form){0});
    *state = (void *)(intptr_t)log;
    CHECK_OK(tb_events_open());
    return 0;
}

static int closed(void **state)
{
    tb_events_close();
    tb_log_set_form((struct tb_log_form){0});
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    (void)close((int)(intptr_t)*state);
    return 0;
}

static void expect_event(uint64_t id, enum tb_log_level level, const char *name, const char *text)
{
    assert_int_equal(tb_events_after(id - 1, page, 1), 1);
    assert_int_equal(page[0].id, id);
    assert_int_equal(page[0].level, level);
    assert_string_equal(page[0].name, name);
    assert_string_equal(page[0].text, text);
    assert_true(page[0].wall_ms > 0);
}

static void a_line_is_an_event(void **state)
{
    (void)state;
    assert_int_equal(tb_events_last(), 0);
    assert_int_equal(tb_events_first(), 0);
    assert_int_equal(tb_events_after(0, page, 8), 0);
    struct tb_log_line l;
    tb_log(TB_LOG_WARN, "link.lost", "peer=%s after_ms=%d", "west", 412);
    tb_log(TB_LOG_DEBUG, "chunk.held", "index=1");
    tb_log(TB_LOG_INFO, "stop", "%s", "");
    tb_log_begin(&l, TB_LOG_ERROR, "session.refused");
    tb_log_str(&l, "text", "two\nlines");
    tb_log_u64(&l, "bytes", 12);
    tb_log_end(&l);
    assert_int_equal(tb_events_last(), 3);
    expect_event(1, TB_LOG_WARN, "link.lost", "peer=west after_ms=412");
    expect_event(2, TB_LOG_INFO, "stop", "");
    expect_event(3, TB_LOG_ERROR, "session.refused", "text=\"two\\nlines\" bytes=12");
    assert_int_equal(tb_events_after(0, page, 2), 2); /* no more than there is room for */
    assert_int_equal(tb_events_after(3, page, 8), 0);
    assert_int_equal(tb_events_after(UINT64_MAX, page, 8), 0);
}

/* Lines of JSON make the same events as lines of text. */
static void the_form_of_the_log_does_not_matter(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tb_log_line l;
        tb_log_set_form((struct tb_log_form){.json = i == 1, .time = true, .priority = true});
        tb_log(TB_LOG_WARN, "link.lost", "peer=%s after_ms=%d share=%.2f", "west", 412, 0.25);
        tb_log_begin(&l, TB_LOG_WARN, "link.lost");
        tb_log_str(&l, "why", "a \"b\" = c\n");
        tb_log_end(&l);
    }
    struct tb_event text[4];
    assert_int_equal(tb_events_after(0, text, 4), 4);
    assert_string_equal(text[0].text, text[2].text);
    assert_string_equal(text[1].text, text[3].text);
}

static void the_oldest_give_way(void **state)
{
    (void)state;
    const uint64_t count = TB_EVENTS_MAX + 5;
    for (uint64_t i = 1; i <= count; i++)
        tb_log(TB_LOG_INFO, "number", "n=%llu", (unsigned long long)i);
    assert_int_equal(tb_events_last(), count);
    assert_int_equal(tb_events_first(), 6);
    assert_int_equal(tb_events_after(0, page, 8), 8);
    assert_int_equal(page[0].id, 6);
    assert_string_equal(page[0].text, "n=6");
    assert_int_equal(tb_events_after(count - 2, page, 8), 2);
    assert_string_equal(page[1].text, "n=4101");
}

static void a_long_line_is_cut_between_letters(void **state)
{
    (void)state;
    char text[2 * TB_EVENT_TEXT_BYTES];
    for (int i = 0; i < 2; i++) {
        struct tb_log_line l;
        tb_log_set_form((struct tb_log_form){.json = i == 1});
        text[0] = 'x';
        for (size_t at = 1; at + 2 < sizeof text; at += 2)
            memcpy(text + at, "\xc3\xbc", 3);
        tb_log_begin(&l, TB_LOG_INFO, "long");
        tb_log_str(&l, "k", text);
        tb_log_end(&l);
        assert_int_equal(tb_events_after((uint64_t)i, page, 1), 1);
        const size_t bytes = strlen(page[0].text);
        assert_true(bytes >= TB_EVENT_TEXT_BYTES - 2 && bytes < TB_EVENT_TEXT_BYTES);
        assert_int_equal((unsigned char)page[0].text[bytes - 1], 0xbc);
    }
}

static void nothing_is_kept_once_it_is_closed(void **state)
{
    (void)state;
    tb_log(TB_LOG_INFO, "one", "%s", "");
    tb_events_close();
    tb_log(TB_LOG_INFO, "two", "%s", "");
    assert_int_equal(tb_events_last(), 0);
    assert_int_equal(tb_events_after(0, page, 8), 0);
    CHECK_OK(tb_events_open());
    tb_log(TB_LOG_INFO, "three", "%s", "");
    expect_event(1, TB_LOG_INFO, "three", "");
}

int main(void)
{
#define EACH(test) cmocka_unit_test_setup_teardown(test, opened, closed)
    const struct CMUnitTest tests[] = {
        EACH(a_line_is_an_event),
        EACH(the_form_of_the_log_does_not_matter),
        EACH(the_oldest_give_way),
        EACH(a_long_line_is_cut_between_letters),
        EACH(nothing_is_kept_once_it_is_closed),
    };
    return cmocka_run_group_tests_name("unit.daemon.event_ring", tests, NULL, NULL);
}
