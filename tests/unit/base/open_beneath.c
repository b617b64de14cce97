/* A name is opened beneath a folder by hand as openat2 opens it, and where the kernel has openat2
 * both say the same of each name. P8.
 * Covers: base/open_beneath.c base/system_calls.c */
#include "base/open_beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system_calls.h"
#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

#define READ (O_RDONLY | O_CLOEXEC | O_NONBLOCK)

static char root_path[SCRATCH_BYTES];
static int root;

/* Links of the folder `root`; beside it stands `outside/secret`. */
static const char *const links[][2] = {
    {"link", "sub/file"},
    {"to_sub", "sub"},
    {"sub/up", "../file"},
    {"sub/deep/up", "../../file"},
    {"chained", "to_sub/up"},
    {"slashes", "sub//.//file"},
    {"out", "../outside/secret"},
    {"sub/out", "../../outside/secret"},
    {"out_and_in", "../root/file"},
    {"whole_path", "/etc/passwd"},
    {"to_out", "out"},
    {"nowhere", "missing"},
    {"itself", "itself"},
    {"here", "."},
    {"dangling_folder", "sub/file/more"},
};

static void put(const char *path)
{
    assert_true(scratch_put(root_path, path, path));
}

static int setup(void **state)
{
    char path[SCRATCH_BYTES + 16];
    (void)state;
    if (!scratch_folder(root_path, sizeof root_path, "beneath")) return -1;
    put("outside/secret");
    put("root/file");
    put("root/sub/file");
    put("root/sub/deep/file");
    (void)snprintf(path, sizeof path, "%s/root", root_path);
    root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(root >= 0);
    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++)
        assert_int_equal(symlinkat(links[i][1], root, links[i][0]), 0);
    assert_int_equal(mkfifoat(root, "fifo", 0600), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)close(root);
    return scratch_remove(root_path) ? 0 : -1;
}

/* The inode that was opened, or the error: they are compared as text. */
static void told(int fd, int error, char out[64])
{
    struct stat st;
    if (fd < 0)
        (void)snprintf(out, 64, "%s", strerrorname_np(error));
    else if (fstat(fd, &st) == 0)
        (void)snprintf(out, 64, "inode %llu", (unsigned long long)st.st_ino);
    if (fd >= 0) (void)close(fd);
}

static void by_hand(const char *name, bool with_links, char out[64])
{
    const int fd = tb_open_beneath_by_hand(root, name, READ, with_links);
    told(fd, errno, out);
}

/* False: this kernel has no openat2. */
static bool by_kernel(const char *name, bool with_links, char out[64])
{
    const struct open_how how = {.flags = READ,
                                 .resolve = RESOLVE_BENEATH |
                                            (with_links ? RESOLVE_NO_MAGICLINKS : RESOLVE_NO_SYMLINKS)};
    const int fd = (int)syscall(SYS_openat2, root, name, &how, sizeof how);
    if (fd < 0 && errno == ENOSYS) return false;
    told(fd, errno, out);
    return true;
}

static void inode_of(const char *name, char out[64])
{
    told(openat(root, name, READ), errno, out);
}

/* The file that a name leads to, or the error. */
static void each_name_leads_where_openat2_leads(void **state)
{
    (void)state;
    static const struct {
        const char *name, *file, *error;
    } names[] = {
        {"file", "file", NULL},
        {"sub/file", "sub/file", NULL},
        {"sub", "sub", NULL},
        {"sub/", "sub", NULL},
        {".", ".", NULL},
        {"sub/..", ".", NULL},
        {"sub/../file", "file", NULL},
        {"./sub/./deep//file", "sub/deep/file", NULL},
        {"link", "sub/file", NULL},
        {"to_sub/file", "sub/file", NULL},
        {"to_sub/", "sub", NULL},
        {"to_sub/up", "file", NULL},
        {"to_sub/..", ".", NULL},
        {"sub/deep/up", "file", NULL},
        {"chained", "file", NULL},
        {"slashes", "sub/file", NULL},
        {"here/here/file", "file", NULL},
        {"fifo", "fifo", NULL},
        {"", NULL, "ENOENT"},
        {"missing", NULL, "ENOENT"},
        {"missing/file", NULL, "ENOENT"},
        {"nowhere", NULL, "ENOENT"},
        {"file/", NULL, "ENOTDIR"},
        {"link/", NULL, "ENOTDIR"},
        {"file/more", NULL, "ENOTDIR"},
        {"dangling_folder", NULL, "ENOTDIR"},
        {"itself", NULL, "ELOOP"},
        {"..", NULL, "EXDEV"},
        {"../outside/secret", NULL, "EXDEV"},
        {"../root/file", NULL, "EXDEV"},
        {"sub/../../outside/secret", NULL, "EXDEV"},
        {"/etc/passwd", NULL, "EXDEV"},
        {"out", NULL, "EXDEV"},
        {"sub/out", NULL, "EXDEV"},
        {"to_sub/out", NULL, "EXDEV"},
        {"to_out", NULL, "EXDEV"},
        {"out_and_in", NULL, "EXDEV"},
        {"whole_path", NULL, "EXDEV"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char want[64], hand[64], kernel[64];
        (void)snprintf(want, sizeof want, "%s", names[i].error != NULL ? names[i].error : "");
        if (names[i].file != NULL) inode_of(names[i].file, want);
        by_hand(names[i].name, true, hand);
        if (strcmp(hand, want) != 0) fail_msg("\"%s\": %s, and not %s", names[i].name, hand, want);
        if (by_kernel(names[i].name, true, kernel)) assert_string_equal(kernel, want);
    }
}

/* A link stands where a folder or a file was, say: with no link allowed it is none. */
static void without_links_each_link_is_refused(void **state)
{
    (void)state;
    char want[64], hand[64], kernel[64];
    static const char *const none[] = {"link", "to_sub/file", "sub/up", "out", "nowhere"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        by_hand(none[i], false, hand);
        assert_string_equal(hand, "ELOOP");
        if (by_kernel(none[i], false, kernel)) assert_string_equal(kernel, "ELOOP");
    }
    inode_of("sub/deep/file", want);
    by_hand("sub/deep/../deep/file", false, hand);
    assert_string_equal(hand, want);
}

/* P7: descriptors, links and bytes of the way have bounds, and none stays open. */
static void a_way_is_bounded(void **state)
{
    (void)state;
    char told_by[64], name[5000], longest[300];
    const int before = dup(root);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    by_hand(longest, true, told_by);
    assert_string_equal(told_by, "ENAMETOOLONG");
    memset(name, '.', sizeof name - 1);
    for (size_t i = 1; i < sizeof name - 1; i += 2)
        name[i] = '/';
    name[sizeof name - 1] = '\0';
    by_hand(name, true, told_by);
    assert_string_equal(told_by, "ENAMETOOLONG");
    /* 41 links to the folder itself, of which the kernel follows 40. */
    name[0] = '\0';
    for (int i = 0; i < 41; i++)
        strcat(name, "here/");
    by_hand(name, true, told_by);
    assert_string_equal(told_by, "ELOOP");
    name[strlen(name) - 5] = '\0';
    by_hand(name, true, told_by);
    assert_true(strncmp(told_by, "inode", 5) == 0);
    name[0] = '\0';
    for (int i = 0; i < 65; i++) {
        strcat(name, i == 0 ? "d" : "/d");
        assert_int_equal(mkdirat(root, name, 0700), 0);
    }
    by_hand(name, true, told_by);
    assert_string_equal(told_by, "ENAMETOOLONG");
    name[strlen(name) - 2] = '\0';
    by_hand(name, true, told_by);
    assert_true(strncmp(told_by, "inode", 5) == 0);
    const int after = dup(root);
    assert_int_equal(after, before + 1);
    (void)close(after);
    (void)close(before);
}

/* ---- others rename and link meanwhile ---- */

int __real_openat(int folder, const char *name, int flags, ...);
int __wrap_openat(int folder, const char *name, int flags, ...);

/* Called before each openat, with the part that it opens and the one that was opened before. */
static void (*meanwhile)(const char *part, const char *before, int flags);
static char part_before[64];

int __wrap_openat(int folder, const char *name, int flags, ...)
{
    if (meanwhile != NULL) meanwhile(name, part_before, flags);
    (void)snprintf(part_before, sizeof part_before, "%.60s", name);
    return __real_openat(folder, name, flags);
}

static void file_becomes_a_link(const char *part, const char *before, int flags)
{
    (void)before;
    if (strcmp(part, "file") != 0 || (flags & O_PATH) != 0) return;
    assert_int_equal(unlinkat(root, "file", 0), 0);
    assert_int_equal(symlinkat("../outside/secret", root, "file"), 0);
}

static void a_link_in_place_of_a_file_is_refused(void **state)
{
    (void)state;
    char hand[64];
    meanwhile = file_becomes_a_link;
    by_hand("file", true, hand);
    meanwhile = NULL;
    assert_string_equal(hand, "ELOOP");
}

static void deep_moves_out(const char *part, const char *before, int flags)
{
    (void)part, (void)flags;
    if (strcmp(before, "deep") == 0) (void)renameat(root, "sub/deep", root, "../outside/deep");
}

/* Its ".." is the folder outside from then on; the way goes back to the one that it came from. */
static void a_folder_that_moves_out_leads_back_to_its_place(void **state)
{
    (void)state;
    char hand[64], want[64];
    meanwhile = deep_moves_out;
    by_hand("sub/deep/../secret", true, hand);
    assert_string_equal(hand, "ENOENT");
    assert_int_equal(renameat(root, "../outside/deep", root, "sub/deep"), 0);
    by_hand("sub/deep/../file", true, hand);
    meanwhile = NULL;
    inode_of("sub/file", want);
    assert_string_equal(hand, want);
}

/* From here on this process is like one of an old container runtime: no call that it does not know
 * gets further than its filter. False: no filter can be had here. */
static bool forbid_openat2(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { OPENED = 0, REFUSED = 1, NO_FILTER = 2 };

static void a_runtime_that_forbids_openat2_is_passed_by(void **state)
{
    (void)state;
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!forbid_openat2()) _exit(NO_FILTER);
        const int good = tb_sys_open_beneath(root, "sub/file", READ, RESOLVE_NO_SYMLINKS);
        const int out = tb_sys_open_beneath(root, "../outside/secret", READ, RESOLVE_NO_SYMLINKS);
        _exit(good >= 0 && out < 0 && errno == EXDEV ? OPENED : REFUSED);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_FILTER) skip();
    assert_int_equal(WEXITSTATUS(status), OPENED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_name_leads_where_openat2_leads, setup, teardown),
        cmocka_unit_test_setup_teardown(without_links_each_link_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_way_is_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_in_place_of_a_file_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_moves_out_leads_back_to_its_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_runtime_that_forbids_openat2_is_passed_by, setup, teardown),
    };
    return cmocka_run_group_tests_name("base.open_beneath", tests, NULL, NULL);
}
