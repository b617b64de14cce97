/* Files below a folder are opened beneath it. A link that leads out is refused by name; a link
 * inside works, and so does one into a second root that the caller names: with openat2 and, as on a
 * kernel before 5.6, without it. P8, P7.
 * Covers: gateway/disk/folder_walk.c gateway/disk/given_files.c base/open_beneath.c */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "disk_world.h"
#include "gateway/disk/folder_walk.h"
#include "gateway/disk/given_files.h"
#include "tests/unit/check.h"

static struct tb_given_files given;

static void folder_make(struct disk_world *w, const char *name)
{
    assert_int_equal(mkdir(disk_path(w, name), 0700), 0);
}

/* Absolute where `to` begins with a slash: of the world's folder. */
static void link_make(struct disk_world *w, const char *to, const char *name)
{
    assert_int_equal(symlink(to[0] == '/' ? disk_path(w, to + 1) : to, disk_path(w, name)), 0);
}

/* The one file of that folder. */
static void has_file(struct disk_world *w, const char *folder, const char *links, const char *name,
                     const char *text)
{
    char error[512] = "", bytes[64] = "";
    const enum tb_status s =
        tb_given_open(disk_path(w, folder), links == NULL ? NULL : disk_path(w, links), &given, error);
    if (s != TB_OK) print_error("%s\n", error);
    CHECK_OK(s);
    assert_int_equal(given.count, 1);
    assert_string_equal(given.files[0].name, name);
    assert_int_equal(read(given.files[0].fd, bytes, sizeof bytes - 1), strlen(text));
    assert_string_equal(bytes, text);
    tb_given_close(&given);
}

static void is_refused(struct disk_world *w, const char *folder, const char *links, enum tb_status status,
                       const char *named)
{
    char error[512] = "";
    CHECK_STATUS(
        tb_given_open(disk_path(w, folder), links == NULL ? NULL : disk_path(w, links), &given, error),
        status);
    assert_int_equal(given.count, 0);
    if (strstr(error, named) == NULL) print_error("\"%s\" does not name %s\n", error, named);
    assert_non_null(strstr(error, named));
}

static int setup(void **state)
{
    if (disk_setup(state) != 0) return -1;
    struct disk_world *w = *state;
    folder_make(w, "root");
    folder_make(w, "other");
    disk_put(w, "other/secret", "secret", 6);
    return 0;
}

static void links_inside_work(void **state)
{
    struct disk_world *w = *state;
    folder_make(w, "root/.blobs"); /* hidden: it is not walked by itself */
    disk_put(w, "root/.blobs/abc", "weights", 7);
    link_make(w, ".blobs/abc", "root/model");
    has_file(w, "root", NULL, "model", "weights");
    assert_int_equal(unlink(disk_path(w, "root/model")), 0);
    link_make(w, "/root/.blobs/abc", "root/model"); /* by its whole path */
    has_file(w, "root", NULL, "model", "weights");
    assert_int_equal(unlink(disk_path(w, "root/model")), 0);
    link_make(w, ".blobs", "root/shown");
    has_file(w, "root", NULL, "shown/abc", "weights");
}

static void links_out_are_refused_by_name(void **state)
{
    struct disk_world *w = *state;
    static const char *const to[] = {"../other/secret", "/other/secret", "../other", "/other"};
    for (size_t i = 0; i < sizeof to / sizeof to[0]; i++) {
        link_make(w, to[i], "root/taken");
        is_refused(w, "root", NULL, TB_BAD_FILE, "root/taken");
        assert_int_equal(unlink(disk_path(w, "root/taken")), 0);
    }
    folder_make(w, "root/sub");
    link_make(w, "../../other/secret", "root/sub/taken");
    is_refused(w, "root", NULL, TB_BAD_FILE, "root/sub/taken");
    /* Given by itself: its folder is the root. */
    is_refused(w, "root/sub/taken", NULL, TB_BAD_FILE, "taken");
}

/* As the cache of Hugging Face has it. */
static void links_into_a_second_root_work_where_it_is_named(void **state)
{
    struct disk_world *w = *state;
    folder_make(w, "cache");
    folder_make(w, "cache/blobs");
    folder_make(w, "cache/snapshots");
    disk_put(w, "cache/blobs/abc", "weights", 7);
    link_make(w, "../blobs/abc", "cache/snapshots/model");
    is_refused(w, "cache/snapshots", NULL, TB_BAD_FILE, "snapshots/model");
    has_file(w, "cache/snapshots", "cache", "model", "weights");
    has_file(w, "cache/snapshots", "cache/blobs", "model", "weights");
    is_refused(w, "cache/snapshots", "other", TB_BAD_FILE, "snapshots/model");
    /* A link of that root that leads out of it is one too many. */
    assert_int_equal(unlink(disk_path(w, "cache/blobs/abc")), 0);
    link_make(w, "/other/secret", "cache/blobs/abc");
    is_refused(w, "cache/snapshots", "cache", TB_BAD_FILE, "snapshots/model");
}

static void depth_and_circles_are_bounded(void **state)
{
    struct disk_world *w = *state;
    char path[128] = "root";
    for (int i = 0; i <= TB_GIVEN_DEPTH_MAX; i++) {
        strcat(path, "/d");
        folder_make(w, path);
    }
    is_refused(w, "root", NULL, TB_TOO_LARGE, "more than 8 deep");
    folder_make(w, "circle");
    static const char *const names[] = {"circle/a", "circle/b", "circle/c", "circle/d", "circle/e"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        link_make(w, ".", names[i]);
    is_refused(w, "circle", NULL, TB_TOO_LARGE, "more than");
}

static void an_entry_that_is_no_file_is_not_given(void **state)
{
    struct disk_world *w = *state;
    assert_int_equal(mkfifo(disk_path(w, "root/fifo"), 0600), 0);
    is_refused(w, "root", NULL, TB_NOT_FOUND, "no file is in it");
    is_refused(w, "nowhere", NULL, TB_NOT_FOUND, "nowhere");
    disk_put(w, "root/file", "x", 1);
    is_refused(w, "root", "nowhere", TB_NOT_FOUND, "nowhere");
    has_file(w, "root", NULL, "file", "x");
}

/* From here on the kernel says of openat2 what an older one says. */
static void take_openat2_away(void)
{
    const struct open_how how = {.flags = O_RDONLY | O_CLOEXEC};
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    (void)prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program); /* an emulator has neither of the two */
    assert_int_equal(syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof how), -1);
    assert_int_equal(errno, ENOSYS);
}

static int older_kernel(void **state)
{
    (void)state;
    take_openat2_away();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(links_inside_work, setup, disk_teardown),
        cmocka_unit_test_setup_teardown(links_out_are_refused_by_name, setup, disk_teardown),
        cmocka_unit_test_setup_teardown(links_into_a_second_root_work_where_it_is_named, setup,
                                        disk_teardown),
        cmocka_unit_test_setup_teardown(depth_and_circles_are_bounded, setup, disk_teardown),
        cmocka_unit_test_setup_teardown(an_entry_that_is_no_file_is_not_given, setup, disk_teardown),
    };
    const int failed = cmocka_run_group_tests_name("disk.folder_walk", tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("disk.folder_walk by hand", tests, older_kernel, NULL);
}
