/* anchor_folder.c - which anchors stand in a folder: one gateway has it, the newest is found first,
 * and only files of its own are removed. P3, P7.
 * Covers: gateway/disk/anchor_folder.c */
#include "gateway/disk/anchor_folder.h"

#include <errno.h>
#include <sys/stat.h>

#include "disk_world.h"
#include "tests/unit/check.h"

static struct tb_name name_of(const char *text)
{
    struct tb_name name;
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

static struct tb_anchor_folder open_at(const struct disk_world *w)
{
    struct tb_anchor_folder f;
    CHECK_OK(tb_anchor_folder_open(w->dir, &f));
    return f;
}

static bool is_there(const struct disk_world *w, const char *name)
{
    return access(disk_path(w, name), F_OK) == 0;
}

static void a_name_says_model_run_and_number(void **state)
{
    struct disk_world *w = *state;
    struct tb_anchor_folder f = open_at(w);
    struct tb_version_key key = {.model = name_of("policy"), .run_order = 3, .number = 12};
    char path[TB_ANCHOR_PATH_BYTES];
    assert_true(tb_anchor_folder_name(&f, &key, path));
    assert_string_equal(path, disk_path(w, "policy@3-12.anchor"));
    static char longer[TB_ANCHOR_PATH_BYTES];
    memset(longer, 'd', sizeof longer - 1);
    const struct tb_anchor_folder far = {.path = longer, .fd = -1};
    assert_false(tb_anchor_folder_name(&far, &key, path));
    tb_anchor_folder_close(&f);
}

/* One after another: by run, then by number; those of other models and files of others are none. */
static void anchors_are_found_from_the_newest_on(void **state)
{
    struct disk_world *w = *state;
    static const char *const files[] = {
        "policy@3-12.anchor",     "policy@3-9.anchor", "policy@2-100.anchor", "policies@9-9.anchor",
        "policy@4-1.anchor.part", "policy@5.anchor",   "policy@6-1.anchors",  "notes.txt"};
    static const uint64_t numbers[] = {12, 9, 100};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        disk_put(w, files[i], "", 0);
    struct tb_anchor_folder f = open_at(w);
    const struct tb_name model = name_of("policy");
    struct tb_anchor_which at = {.any = false};
    char path[TB_ANCHOR_PATH_BYTES];
    for (int i = 0; i < 3; i++) {
        assert_true(tb_anchor_folder_older(&f, &model, &at, path));
        assert_int_equal(at.number, numbers[i]);
        assert_string_equal(path, disk_path(w, files[i]));
    }
    assert_false(tb_anchor_folder_older(&f, &model, &at, path));
    tb_anchor_folder_close(&f);
}

static void only_older_anchors_of_the_model_go(void **state)
{
    struct disk_world *w = *state;
    static const char *const stay[] = {"policy@3-12.anchor", "policy@3-13.anchor", "other@1-1.anchor",
                                       "notes"};
    static const char *const go[] = {"policy@3-11.anchor", "policy@2-99.anchor"};
    for (int i = 0; i < 4; i++)
        disk_put(w, stay[i], "", 0);
    for (int i = 0; i < 2; i++)
        disk_put(w, go[i], "", 0);
    struct tb_anchor_folder f = open_at(w);
    const struct tb_name model = name_of("policy");
    const struct tb_anchor_which than = {.any = true, .run_order = 3, .number = 12};
    tb_anchor_folder_remove_older(&f, &model, &than);
    for (int i = 0; i < 4; i++)
        assert_true(is_there(w, stay[i]));
    for (int i = 0; i < 2; i++)
        assert_false(is_there(w, go[i]));
    CHECK_OK(tb_anchor_folder_remove(&f, &model, &than));
    assert_false(is_there(w, "policy@3-12.anchor"));
    CHECK_OK(tb_anchor_folder_remove(&f, &model, &than)); /* it is gone: that was asked for */
    tb_anchor_folder_close(&f);
}

static void parts_of_a_killed_gateway_go(void **state)
{
    struct disk_world *w = *state;
    disk_put(w, "policy@3-12.anchor.part", "", 0);
    disk_put(w, "policy@3-12.anchor", "", 0);
    disk_put(w, "mine.part", "", 0);
    struct tb_anchor_folder f = open_at(w);
    tb_anchor_folder_remove_parts(&f);
    assert_false(is_there(w, "policy@3-12.anchor.part"));
    assert_true(is_there(w, "policy@3-12.anchor"));
    assert_true(is_there(w, "mine.part"));
    assert_true(tb_anchor_folder_free_bytes(&f) > 0);
    tb_anchor_folder_close(&f);
}

/* Another gateway, also one of this machine that was started twice, gets TB_SITE_LOCKED. */
static void one_gateway_has_the_folder(void **state)
{
    struct disk_world *w = *state;
    struct tb_anchor_folder second = {.fd = -1};
    CHECK_OK(tb_anchor_folder_check(w->dir));
    struct tb_anchor_folder first = open_at(w);
    assert_int_equal(tb_anchor_folder_open(w->dir, &second), TB_SITE_LOCKED);
    assert_int_equal(tb_anchor_folder_check(w->dir), TB_SITE_LOCKED);
    tb_anchor_folder_close(&first);
    CHECK_OK(tb_anchor_folder_open(w->dir, &second));
    tb_anchor_folder_close(&second);
}

/* A check makes nothing; opening makes the folder, for its owner alone. */
static void a_folder_that_is_not_there_is_made_once(void **state)
{
    struct disk_world *w = *state;
    struct tb_anchor_folder f = {.fd = -1};
    struct stat st;
    const char *path = disk_path(w, "anchors");
    CHECK_OK(tb_anchor_folder_check(path));
    assert_false(is_there(w, "anchors"));
    assert_int_equal(tb_anchor_folder_check(disk_path(w, "no/anchors")), TB_SITE_IO);
    assert_int_equal(symlink(disk_path(w, "nothing"), disk_path(w, "dangling")), 0);
    assert_int_equal(tb_anchor_folder_open(disk_path(w, "dangling"), &f), TB_SITE_IO);
    assert_int_equal(tb_anchor_folder_check(disk_path(w, "dangling")), TB_SITE_IO);
    CHECK_OK(tb_anchor_folder_open(path, &f));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    tb_anchor_folder_close(&f);
    disk_put(w, "file", "", 0);
    assert_int_equal(tb_anchor_folder_open(disk_path(w, "file"), &f), TB_SITE_IO);
    assert_int_equal(errno, ENOTDIR);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, disk_setup, disk_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_name_says_model_run_and_number),   TEST(anchors_are_found_from_the_newest_on),
        TEST(only_older_anchors_of_the_model_go), TEST(parts_of_a_killed_gateway_go),
        TEST(one_gateway_has_the_folder),         TEST(a_folder_that_is_not_there_is_made_once),
    };
    return cmocka_run_group_tests_name("unit.disk.anchor_folder", tests, NULL, NULL);
}
