/* A folder holds one whole version or is not there,
 * whenever a run ends; only our own folders are removed; a withdrawal and `latest` change by one
 * rename. P1, P2, P10.
 * Covers: gateway/cli/versions/version_folder.c gateway/cli/path_status.c */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/allocate.h"
#include "base/fault.h"
#include "gateway/cli/versions/unbundle.h"
#include "gateway/cli/versions/version_folder.h"
#include "tests/unit/scratch.h"

#define V3 "000001-0000000000000000003"
#define V4 "000001-0000000000000000004"
#define V5 "000002-0000000000000000001"

struct world {
    char dir[SCRATCH_BYTES];
    struct tb_folders f;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    if (!scratch_folder(w->dir, sizeof w->dir, "folders")) return -1;
    if (tb_folders_open(&w->f, w->dir) != TB_OK) return -1;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    char command[128];
    tb_folders_close(&w->f);
    (void)snprintf(command, sizeof command, "rm -r '%s'", w->dir);
    const int rc = system(command);
    free(w);
    return rc;
}

static char *path_of(const struct world *w, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, 512, "%s/%s", w->dir, name);
    return path;
}

static bool is_there(const struct world *w, const char *name)
{
    struct stat st;
    return lstat(path_of(w, name), &st) == 0;
}

static void put(const struct world *w, const char *name, const char *text)
{
    FILE *file = fopen(path_of(w, name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void marker_text(char out[512], const char *model, uint64_t run, uint64_t number)
{
    (void)snprintf(out, 512,
                   "{\"schema\":1,\"model\":\"%s\",\"run\":%llu,\"number\":%llu,"
                   "\"uid\":\"000000000000000000000000%08llu\",\"bytes\":2,\"files\":[]}",
                   model, (unsigned long long)run, (unsigned long long)number,
                   (unsigned long long)(run * 100 + number));
}

/* Two files and the marker, as tombolo subscribe writes them. */
static enum tb_status write_two(struct world *w, const char *name, const char *marker,
                                tb_unbundle_moved moved)
{
    const struct tb_item items[] = {{.is_blob = 1, .name = "a", .bytes = "aa", .count = 2},
                                    {.is_blob = 1, .name = "s/t/b", .bytes = "bb", .count = 2}};
    char path[TB_FOLDER_PATH_BYTES];
    struct tb_unbundle plan;
    assert_int_equal(tb_unbundle_plan(items, 2, &plan, &w->f.error), TB_OK);
    enum tb_status s = tb_folder_begin(&w->f, name, path);
    if (s == TB_OK) s = tb_unbundle_write(&plan, path, marker, moved, NULL, &w->f.error);
    if (s == TB_OK) s = tb_folder_place(&w->f, name);
    tb_unbundle_fini(&plan);
    return s;
}

static void put_version(struct world *w, const char *model, uint64_t run, uint64_t number)
{
    char name[TB_FOLDER_NAME_BYTES];
    char marker[512];
    tb_folder_name(run, number, name);
    marker_text(marker, model, run, number);
    assert_int_equal(write_two(w, name, marker, NULL), TB_OK);
}

static void open_again(struct world *w)
{
    tb_folders_close(&w->f);
    assert_int_equal(tb_folders_open(&w->f, w->dir), TB_OK);
}

static uint32_t hidden_count(const struct world *w)
{
    uint32_t count = 0;
    DIR *root = opendir(w->dir);
    assert_non_null(root);
    for (const struct dirent *e = readdir(root); e != NULL; e = readdir(root))
        count += strncmp(e->d_name, ".tombolo-", 9) == 0 && strcmp(e->d_name, ".tombolo-lock") != 0;
    (void)closedir(root);
    return count;
}

static void names_sort_as_versions_do(void **state)
{
    (void)state;
    char before[TB_FOLDER_NAME_BYTES] = "";
    static const uint64_t of[][2] = {{1, 0}, {1, 9}, {1, 10}, {1, INT64_MAX}, {2, 1}, {10, 0}, {999999, 1}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        char name[TB_FOLDER_NAME_BYTES];
        tb_folder_name(of[i][0], of[i][1], name);
        assert_true(strcmp(before, name) < 0);
        (void)snprintf(before, sizeof before, "%s", name);
    }
    tb_folder_name(1, 3, before);
    assert_string_equal(before, V3);
}

static void a_version_is_placed_whole(void **state)
{
    struct world *w = *state;
    struct tb_folder_marker marker;
    assert_int_equal(tb_folder_look(&w->f, V3, &marker), TB_FOLDER_ABSENT);
    put_version(w, "policy", 1, 3);
    assert_int_equal(tb_folder_look(&w->f, V3, &marker), TB_FOLDER_STABLE);
    assert_string_equal(marker.model, "policy");
    assert_int_equal(marker.run, 1);
    assert_int_equal(marker.number, 3);
    assert_true(is_there(w, V3 "/s/t/b"));
    assert_int_equal(hidden_count(w), 0);
}

static uint32_t pieces; /* written so far in this process */
static uint32_t killed_at;

static bool end_here(void *user, uint64_t bytes)
{
    (void)user;
    (void)bytes;
    if (++pieces == killed_at) _exit(9); /* no handler runs: as with SIGKILL */
    return true;
}

/* Another process writes the version and is gone at a point; then there is no folder of it, and the
 * next run takes what is left. */
static void a_kill_leaves_no_version(void **state)
{
    struct world *w = *state;
    char marker[512];
    struct tb_folder_marker found;
    marker_text(marker, "policy", 1, 3);
    tb_folders_close(&w->f);
    for (killed_at = 1; killed_at <= 2; killed_at++) {
        const pid_t child = fork();
        if (child == 0) {
            if (tb_folders_open(&w->f, w->dir) == TB_OK) (void)write_two(w, V3, marker, end_here);
            _exit(0);
        }
        int ended = 0;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_int_equal(WEXITSTATUS(ended), 9);
        assert_false(is_there(w, V3));
        assert_true(is_there(w, ".tombolo-new-" V3));
    }
    assert_int_equal(tb_folders_open(&w->f, w->dir), TB_OK);
    assert_int_equal(hidden_count(w), 0);
    put_version(w, "policy", 1, 3);
    assert_int_equal(tb_folder_look(&w->f, V3, &found), TB_FOLDER_STABLE);
}

/* Each call to the kernel fails once: the folder is whole or not there. */
static void a_failed_call_leaves_no_version(void **state)
{
    struct world *w = *state;
    static const enum tb_fault_point points[] = {TB_FAULT_pwrite, TB_FAULT_fsync, TB_FAULT_rename,
                                                 TB_FAULT_open};
    char marker[512];
    uint64_t failures = 0;
    marker_text(marker, "policy", 1, 3);
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        enum tb_status s = TB_SITE_IO;
        for (uint64_t nth = 1; s != TB_OK; nth++) {
            tb_fault_arm(points[p], nth, false);
            s = write_two(w, V3, marker, NULL);
            tb_fault_arm(points[p], 0, false);
            failures += s != TB_OK;
            if (is_there(w, V3)) break; /* put in place: only its durability is open */
            assert_int_not_equal(s, TB_OK);
            tb_folder_discard(&w->f, V3);
            assert_int_equal(hidden_count(w), 0);
        }
        struct tb_folder_marker found;
        assert_int_equal(tb_folder_look(&w->f, V3, &found), TB_FOLDER_STABLE);
        assert_true(is_there(w, V3 "/a") && is_there(w, V3 "/s/t/b"));
        assert_int_equal(tb_folders_keep(&w->f, "policy", 0), TB_OK);
        assert_false(is_there(w, V3));
    }
    assert_true(failures >= 8); /* two files and the marker written, their folders synced, one rename */
}

static void no_folder_is_written_again(void **state)
{
    struct world *w = *state;
    char marker[512];
    put_version(w, "policy", 1, 3);
    marker_text(marker, "policy", 1, 3);
    assert_int_equal(write_two(w, V3, marker, NULL), TB_CONFLICT);
    assert_non_null(strstr(w->f.error.text, V3));
    tb_folder_discard(&w->f, V3);
    assert_int_equal(mkdir(path_of(w, V4), 0755), 0);
    put(w, V4 "/mine", "x");
    assert_int_equal(write_two(w, V4, marker, NULL), TB_CONFLICT);
    assert_true(is_there(w, V4 "/mine") && !is_there(w, V4 "/a"));
}

static void other_markers_are_foreign(void **state)
{
    struct world *w = *state;
    struct tb_folder_marker marker;
    char text[512];
    assert_int_equal(mkdir(path_of(w, V3), 0755), 0);
    assert_int_equal(tb_folder_look(&w->f, V3, &marker), TB_FOLDER_FOREIGN);
    put(w, V3 "/STABLE", "");
    assert_int_equal(tb_folder_look(&w->f, V3, &marker), TB_FOLDER_FOREIGN);
    marker_text(text, "policy", 1, 4); /* of another folder */
    put(w, V3 "/STABLE", text);
    assert_int_equal(tb_folder_look(&w->f, V3, &marker), TB_FOLDER_FOREIGN);
    marker_text(text, "policy", 1, 3);
    put(w, V3 "/STABLE", text);
    assert_int_equal(tb_folder_look(&w->f, V3, &marker), TB_FOLDER_STABLE);
    put(w, V4, "a file");
    assert_int_equal(tb_folder_look(&w->f, V4, &marker), TB_FOLDER_FOREIGN);
}

static json_t *marker_of(const struct world *w, const char *name)
{
    json_t *marker = json_load_file(path_of(w, name), 0, NULL);
    assert_non_null(marker);
    return marker;
}

static void a_withdrawn_folder_says_so(void **state)
{
    struct world *w = *state;
    struct tb_folder_marker marker;
    put_version(w, "policy", 1, 3);
    assert_int_equal(tb_folder_withdraw(&w->f, V3, "it was bad"), TB_OK);
    assert_int_equal(tb_folder_look(&w->f, V3, &marker), TB_FOLDER_WITHDRAWN);
    assert_false(is_there(w, V3 "/STABLE"));
    json_t *text = marker_of(w, V3 "/WITHDRAWN");
    assert_string_equal(json_string_value(json_object_get(text, "withdrawn")), "it was bad");
    assert_int_equal(json_integer_value(json_object_get(text, "number")), 3);
    json_decref(text);
    assert_int_equal(tb_folder_withdraw(&w->f, V3, "again"), TB_DONE_BEFORE);
    assert_true(is_there(w, V3 "/a"));
    assert_int_equal(tb_folder_withdraw(&w->f, V4, "no such folder"), TB_SITE_IO);
}

/* Where each step of a withdrawal fails, the folder has one marker, and the next try ends it. */
static void a_withdrawal_that_fails_leaves_one_marker(void **state)
{
    struct world *w = *state;
    static const enum tb_fault_point points[] = {TB_FAULT_pwrite, TB_FAULT_fsync};
    put_version(w, "policy", 1, 3);
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        tb_fault_arm(points[p], 1, false);
        assert_int_equal(tb_folder_withdraw(&w->f, V3, "it was bad"), TB_SITE_IO);
        tb_fault_arm(points[p], 0, false);
        assert_true(is_there(w, V3 "/STABLE") && !is_there(w, V3 "/WITHDRAWN"));
        assert_false(is_there(w, V3 "/" TB_UNBUNDLE_PART));
    }
    /* Killed between its two renames. */
    json_t *text = marker_of(w, V3 "/STABLE");
    assert_int_equal(json_object_set_new(text, "withdrawn", json_string("it was bad")), 0);
    assert_int_equal(json_dump_file(text, path_of(w, V3 "/STABLE"), 0), 0);
    json_decref(text);
    open_again(w);
    assert_true(!is_there(w, V3 "/STABLE") && is_there(w, V3 "/WITHDRAWN"));
}

static void latest_is_a_link(void **state)
{
    struct world *w = *state;
    char to[64] = "";
    put_version(w, "policy", 1, 3);
    put_version(w, "policy", 1, 4);
    assert_int_equal(tb_folder_latest(&w->f, V3), TB_OK);
    assert_true(is_there(w, "latest/STABLE"));
    tb_fault_arm(TB_FAULT_rename, 1, false);
    assert_int_equal(tb_folder_latest(&w->f, V4), TB_SITE_IO);
    tb_fault_arm(TB_FAULT_rename, 0, false);
    assert_int_equal(hidden_count(w), 0);
    assert_true(readlink(path_of(w, "latest"), to, sizeof to - 1) > 0);
    assert_string_equal(to, V3);
    assert_int_equal(tb_folder_latest(&w->f, V4), TB_OK);
    memset(to, 0, sizeof to);
    assert_true(readlink(path_of(w, "latest"), to, sizeof to - 1) > 0);
    assert_string_equal(to, V4);
    assert_int_equal(tb_folder_latest(&w->f, NULL), TB_OK);
    assert_false(is_there(w, "latest"));
    put(w, "latest", "mine");
    assert_int_equal(tb_folder_latest(&w->f, V3), TB_CONFLICT);
    assert_int_equal(tb_folder_latest(&w->f, NULL), TB_CONFLICT);
}

static void the_newest_stay(void **state)
{
    struct world *w = *state;
    struct tb_folder_entry *list = NULL;
    uint32_t count = 0;
    for (uint64_t n = 1; n <= 4; n++)
        put_version(w, "policy", 1, n);
    put_version(w, "policy", 2, 1);
    put_version(w, "other", 1, 9);
    assert_int_equal(mkdir(path_of(w, "000001-0000000000000000000"), 0755), 0); /* no marker */
    assert_int_equal(tb_folder_withdraw(&w->f, V4, "bad"), TB_OK);
    assert_int_equal(tb_folders_list(&w->f, "policy", &list, &count), TB_OK);
    assert_int_equal(count, 5);
    assert_string_equal(list[0].name, V5);
    assert_true(list[1].withdrawn);
    tb_free(list);
    assert_int_equal(tb_folder_latest(&w->f, "000001-0000000000000000001"), TB_OK);
    assert_int_equal(tb_folders_keep(&w->f, "policy", 2), TB_OK);
    static const char *const stay[] = {
        V5, V4, V3, "000001-0000000000000000001", "000001-0000000000000000000", "000001-0000000000000000009"};
    for (size_t i = 0; i < sizeof stay / sizeof stay[0]; i++)
        if (!is_there(w, stay[i])) fail_msg("%s is gone", stay[i]);
    assert_false(is_there(w, "000001-0000000000000000002"));
    /* The withdrawn one is older than the only one that stays now. */
    assert_int_equal(tb_folder_latest(&w->f, V5), TB_OK);
    assert_int_equal(tb_folders_keep(&w->f, "policy", 1), TB_OK);
    assert_true(is_there(w, V5) && !is_there(w, V4) && !is_there(w, V3));
    assert_int_equal(hidden_count(w), 0);
}

/* Left by killed runs: removed by name, kind and owner, without a way out of DIR. */
static void only_our_leftovers_are_removed(void **state)
{
    struct world *w = *state;
    char outside[512];
    (void)snprintf(outside, sizeof outside, "%s", path_of(w, "outside"));
    assert_int_equal(mkdir(outside, 0755), 0);
    put(w, "outside/x", "x");
    assert_int_equal(mkdir(path_of(w, ".tombolo-new-" V3), 0755), 0);
    assert_int_equal(symlink(outside, path_of(w, ".tombolo-new-" V3 "/way")), 0);
    assert_int_equal(mkdir(path_of(w, ".tombolo-old-" V4), 0755), 0);
    put(w, ".tombolo-old-" V4 "/STABLE", "x");
    assert_int_equal(symlink(outside, path_of(w, ".tombolo-new-" V4)), 0); /* no folder */
    static const char *const others[] = {".tombolo-new-mine", ".tombolo-new-1-3", "tombolo-new-" V3,
                                         V3 ".bak"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_equal(mkdir(path_of(w, others[i]), 0755), 0);
    open_again(w);
    assert_false(is_there(w, ".tombolo-new-" V3) || is_there(w, ".tombolo-old-" V4));
    assert_true(is_there(w, "outside/x") && is_there(w, ".tombolo-new-" V4));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (!is_there(w, others[i])) fail_msg("%s is gone", others[i]);
}

static void one_process_holds_a_folder(void **state)
{
    struct world *w = *state;
    struct tb_folders second;
    assert_int_equal(mkdir(path_of(w, ".tombolo-new-" V3), 0755), 0);
    assert_int_equal(tb_folders_open(&second, w->dir), TB_SITE_LOCKED);
    assert_true(is_there(w, ".tombolo-new-" V3)); /* it may be the first one's work */
    assert_int_equal(tb_folders_open(&second, path_of(w, "no/such")), TB_NOT_FOUND);
    put(w, "file", "x");
    assert_int_equal(tb_folders_open(&second, path_of(w, "file")), TB_NOT_FOUND);
}

static void a_full_disk_is_told_from_others(void **state)
{
    struct world *w = *state;
    char marker[512];
    marker_text(marker, "policy", 1, 3);
    tb_fault_arm(TB_FAULT_pwrite, 1, false);
    assert_int_equal(write_two(w, V3, marker, NULL), TB_SITE_IO);
    tb_fault_arm(TB_FAULT_pwrite, 0, false);
    assert_true(tb_folders_full(&w->f));
    tb_fault_arm(TB_FAULT_fsync, 1, false);
    assert_int_equal(write_two(w, V3, marker, NULL), TB_SITE_IO);
    tb_fault_arm(TB_FAULT_fsync, 0, false);
    assert_false(tb_folders_full(&w->f));
    w->f.error.os_error = ENOSPC; /* of a call before */
    put_version(w, "policy", 1, 3);
    assert_int_equal(write_two(w, V3, marker, NULL), TB_CONFLICT);
    assert_false(tb_folders_full(&w->f));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_sort_as_versions_do),
        CASE(a_version_is_placed_whole),
        CASE(a_kill_leaves_no_version),
        CASE(a_failed_call_leaves_no_version),
        CASE(no_folder_is_written_again),
        CASE(other_markers_are_foreign),
        CASE(a_withdrawn_folder_says_so),
        CASE(a_withdrawal_that_fails_leaves_one_marker),
        CASE(latest_is_a_link),
        CASE(the_newest_stay),
        CASE(only_our_leftovers_are_removed),
        CASE(one_process_holds_a_folder),
        CASE(a_full_disk_is_told_from_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
