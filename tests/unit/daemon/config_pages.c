/* config_pages.c - a configuration as a file that says the same, the manual page, and one key
 * explained.
 *
 * Covers: gateway/config/config_write.c gateway/config/config_man.c */
#include "gateway/config/config_difference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/daemon/config_text.h"
#include "tests/unit/scratch.h"

static const char full[] =
    "site: west\nlane: 1\nlanes: 2\ngateway: gw1\narena: {bytes: 64GiB, path: '/dev/shm/a \"b\" \\c'}\n"
    "tls: {ca: a, cert: b, key: c}\nlink: {streams: 7, codec: planes}\nlog: {level: debug}\n"
    "session: {networks: [10.0.0.0/8, \"2001:db8::/32\"]}\n"
    "peers: {east.1: {lane: 1, address: \"[2001:db8::1]:7400\", rate: 1500Kbit,"
    " schedule: [\"08:00-18:00 50Mbit\", \"22:00-06:00 none\"], day_bytes: 2TiB, speaks_for: [far, away]},"
    " west: {address: \"x:1\"}}\n"
    "models: {policy: {home: east, policy: every, read: [\"unix:*\", \"tombolo://east/*\"]}, own: {home: "
    "west.1}}\n"
    "subscribe: [{model: policy, from: [east.1]}]\n";

static char *written(const struct tb_config *config, const char *file, bool effective)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    tb_config_write(config, file, effective, to);
    assert_int_equal(fclose(to), 0);
    return text;
}

static void a_written_file_says_the_same(void **state)
{
    (void)state;
    static const char *const files[] = {full, "site: a\narena: {bytes: 8MiB}\n"};
    for (size_t i = 0; i < 2; i++) {
        struct tb_config *config = config_of(files[i]), *again = NULL;
        struct tb_config_difference d;
        char *text = written(config, NULL, true);
        CHECK_OK(tb_config_parse_running(text, strlen(text), NULL, NULL, &again));
        CHECK_OK(tb_config_differ(config, again, NULL, &d));
        assert_int_equal(d.count, 0);
        tb_config_difference_free(&d);
        tb_config_free(config);
        tb_config_free(again);
        free(text);
    }
}

static void warned(void *user, const char *line)
{
    (void)user, (void)line;
}

static void each_value_says_where_it_came_from(void **state)
{
    (void)state;
    char folder[SCRATCH_BYTES], path[SCRATCH_BYTES + 32], line[SCRATCH_BYTES + 96];
    struct tb_config *config = NULL;
    assert_true(scratch_folder(folder, sizeof folder, "pages"));
    (void)snprintf(path, sizeof path, "%s/w.yaml", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs("site: a\narena:\n  bytes: 8MiB\nmodels:\n  m:\n    home: a\n    read: [\"unix:*\"]\n", f);
    assert_int_equal(fclose(f), 0);
    CHECK_OK(tb_config_load_warned(path, warned, warned, NULL, &config));
    char *text = written(config, path, true);
    (void)snprintf(line, sizeof line, "  bytes: 8MiB  # %s:3\n", path);
    assert_non_null(strstr(text, line));
    (void)snprintf(line, sizeof line, "    read: [\"unix:*\"]  # %s:7\n", path);
    assert_non_null(strstr(text, line));
    assert_non_null(strstr(text, "    keep: 2  # default\n"));
    free(text);
    text = written(config, path, false);
    assert_null(strstr(text, "default"));
    assert_null(strstr(text, "keep"));
    free(text);
    tb_config_free(config);
    assert_true(scratch_remove(folder));
}

static char *explained(const char *word, uint32_t *count_out)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    *count_out = tb_config_explain_key(word, to);
    assert_int_equal(fclose(to), 0);
    return text;
}

static void one_key_is_explained(void **state)
{
    (void)state;
    static const struct {
        const char *word, *key;
        uint32_t count;
    } rows[] = {{"arena.bytes", "arena.bytes\n", 1},
                {"peers.west.rate", "peers.SITE.rate\n", 1},
                {"peers.SITE.rate", "peers.SITE.rate\n", 1},
                {"subscribe[0].from", "subscribe[].from\n", 1},
                {"subscribe", "subscribe[].model\n", 2},
                {"disk", "disk.key_old\n", 2},
                {"arena.byte", "", 0},
                {"", "site\n", 0},
                {"nothing", "", 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t count;
        char *text = explained(rows[i].word, &count);
        if (rows[i].word[0] != '\0') assert_int_equal(count, rows[i].count);
        assert_non_null(strstr(text, rows[i].key));
        free(text);
    }
}

/* After a change of the table: tombolo config explain --man > deploy/man/tombolo.yaml.5 */
static void the_manual_page_is_of_this_table(void **state)
{
    (void)state;
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);
    CHECK_OK(tb_config_man(to));
    assert_int_equal(fclose(to), 0);
    char *page = calloc(1, bytes + 2);
    FILE *f = fopen(TB_CONFIG_MAN, "r");
    assert_non_null(f);
    const size_t got = fread(page, 1, bytes + 1, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(got, bytes);
    assert_string_equal(page, text);
    free(page);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_file_says_the_same),
        cmocka_unit_test(each_value_says_where_it_came_from),
        cmocka_unit_test(one_key_is_explained),
        cmocka_unit_test(the_manual_page_is_of_this_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
