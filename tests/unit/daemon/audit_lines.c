/* audit_lines.c - the audit record as JSON lines: whole lines, files that turn by size and by age,
 * and a file of its own for denials (P7, P10).
 *
 * Covers: gateway/store/audit_lines.c */
#include "gateway/store/audit_lines.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

#define BYTES  (1u << 20) /* acts have a half of it, in two files */
#define DAYS   10u
#define DAY_MS UINT64_C(86400000)

struct scene {
    char dir[SCRATCH_BYTES], path[SCRATCH_BYTES + 16];
    struct tb_audit_lines *lines;
};

static const char *named(const struct scene *s, const char *more)
{
    static char name[SCRATCH_BYTES + 64];
    (void)snprintf(name, sizeof name, "%s%s", s->path, more);
    return name;
}

static int64_t bytes_of(const struct scene *s, const char *more)
{
    struct stat st;
    return stat(named(s, more), &st) == 0 ? (int64_t)st.st_size : -1;
}

static void begin(struct scene *s)
{
    char why[TB_AUDIT_LINES_ERROR];
    assert_true(scratch_folder(s->dir, sizeof s->dir, "lines"));
    (void)snprintf(s->path, sizeof s->path, "%s/audit", s->dir);
    CHECK_OK(tb_audit_lines_open(s->path, BYTES, DAYS, &s->lines, why));
}

static void end(struct scene *s)
{
    static const char *const names[] = {"", ".1", ".versions", ".versions.1", ".denials", ".denials.1"};
    tb_audit_lines_close(s->lines);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)unlink(named(s, names[i]));
    assert_int_equal(rmdir(s->dir), 0);
}

static struct tb_audit_record row_of(enum tb_audit_share share)
{
    return (struct tb_audit_record){.wall_ms = 7,
                                    .share = share,
                                    .count = 3,
                                    .action = "withdraw",
                                    .identity = "ann (uid 1000)",
                                    .object = "policy 1:1",
                                    .origin = "control",
                                    .result = "ok"};
}

static void a_line_is_json_whatever_its_texts(void **state)
{
    (void)state;
    struct scene s;
    char text[512] = "";
    begin(&s);
    struct tb_audit_record r = row_of(TB_AUDIT_ACTS);
    (void)snprintf(r.object, sizeof r.object, "a\"b\\c\nd\xff");
    tb_audit_lines_put(s.lines, &r, 1000);
    tb_audit_lines_end(s.lines, false);
    assert_int_equal(bytes_of(&s, ""), 0); /* the batch was rolled back */
    tb_audit_lines_put(s.lines, &r, 1000);
    tb_audit_lines_end(s.lines, true);
    FILE *f = fopen(named(&s, ""), "r");
    assert_non_null(f);
    assert_true(fread(text, 1, sizeof text - 1, f) > 0);
    (void)fclose(f);
    assert_string_equal(text, "{\"time_ms\":7,\"share\":\"acts\",\"action\":\"withdraw\",\"identity\":"
                              "\"ann (uid 1000)\",\"object\":\"a\\u0022b\\u005cc\\u000ad?\","
                              "\"origin\":\"control\",\"result\":\"ok\",\"count\":3}\n");
    end(&s);
}

static void denials_take_no_place_of_acts(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    const struct tb_audit_record act = row_of(TB_AUDIT_ACTS), denial = row_of(TB_AUDIT_DENIALS);
    tb_audit_lines_put(s.lines, &act, 1000);
    tb_audit_lines_end(s.lines, true);
    const int64_t one = bytes_of(&s, "");
    for (uint32_t i = 0; i < 10000; i++) {
        tb_audit_lines_put(s.lines, &denial, 1000);
        tb_audit_lines_end(s.lines, true);
    }
    assert_int_equal(bytes_of(&s, ""), one);
    assert_in_range(bytes_of(&s, ".denials"), 1, BYTES / 8);
    assert_in_range(bytes_of(&s, ".denials.1"), BYTES / 8 - 1024, BYTES / 8);
    end(&s);
}

static void an_old_file_turns(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    const struct tb_audit_record act = row_of(TB_AUDIT_ACTS);
    tb_audit_lines_put(s.lines, &act, 1000);
    tb_audit_lines_end(s.lines, true);
    tb_audit_lines_put(s.lines, &act, 1000 + DAYS / 2 * DAY_MS);
    tb_audit_lines_end(s.lines, true);
    const int64_t two = bytes_of(&s, "");
    assert_int_equal(bytes_of(&s, ".1"), -1);
    tb_audit_lines_put(s.lines, &act, 1001 + DAYS / 2 * DAY_MS);
    tb_audit_lines_end(s.lines, true);
    assert_int_equal(bytes_of(&s, ".1"), two);
    assert_int_equal(bytes_of(&s, ""), two / 2);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_json_whatever_its_texts),
        cmocka_unit_test(denials_take_no_place_of_acts),
        cmocka_unit_test(an_old_file_turns),
    };
    return cmocka_run_group_tests_name("daemon.audit_lines", tests, NULL, NULL);
}
