/* landlock.c - see landlock.h. */
#include "gateway/sandbox/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/system_calls.h"

/* Numbers are the same on every architecture. */
#define CALL_CREATE   444
#define CALL_ADD_RULE 445
#define CALL_RESTRICT 446
#define ASK_ABI       1u
#define RULE_BENEATH  1

#define EXECUTE       (UINT64_C(1) << 0)
#define WRITE_FILE    (UINT64_C(1) << 1)
#define READ_FILE     (UINT64_C(1) << 2)
#define READ_DIR      (UINT64_C(1) << 3)
#define REMOVE_FILE   (UINT64_C(1) << 5)
#define MAKE_REG      (UINT64_C(1) << 8)
#define MAKE_SOCK     (UINT64_C(1) << 9)
#define REFER         (UINT64_C(1) << 13)
#define TRUNCATE      (UINT64_C(1) << 14)
#define IOCTL_DEV     (UINT64_C(1) << 15)
#define OF_ABI_1      ((UINT64_C(1) << 13) - 1)
#define OF_FILES      (EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV)

#define SCOPE_SIGNAL  (UINT64_C(1) << 1)

struct ruleset {
    uint64_t files, network, scoped;
};
struct beneath {
    uint64_t allowed;
    int32_t folder;
} __attribute__((packed));

int tb_landlock_abi(void)
{
    const long abi = syscall(CALL_CREATE, NULL, 0, ASK_ABI);
    return abi > 0 ? (int)abi : 0;
}

static uint64_t rights_of(int abi)
{
    return OF_ABI_1 | (abi >= 2 ? REFER : 0) | (abi >= 3 ? TRUNCATE : 0) | (abi >= 5 ? IOCTL_DEV : 0);
}

static uint64_t rights_for(enum tb_sandbox_access access)
{
    static const uint64_t rights[] = {
        [TB_SANDBOX_READ] = READ_FILE | READ_DIR,
        [TB_SANDBOX_WRITE] = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV,
        [TB_SANDBOX_FOLDER] = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE,
        [TB_SANDBOX_SOCKETS] = MAKE_SOCK | REMOVE_FILE,
    };
    TB_ASSERT((size_t)access < sizeof rights / sizeof rights[0]);
    return rights[access];
}

/* A rule holds what the path names now. Only files' rights count for a file. */
static bool allow(int ruleset, const struct tb_sandbox_path *p, uint64_t known)
{
    struct stat st;
    const int fd = tb_sys_open(p->path, O_PATH | O_CLOEXEC, 0);
    if (fd < 0) return errno == ENOENT || errno == ENOTDIR || errno == EACCES;
    struct beneath rule = {.allowed = rights_for(p->access) & known, .folder = fd};
    bool good = fstat(fd, &st) == 0;
    if (good && !S_ISDIR(st.st_mode)) rule.allowed &= OF_FILES;
    good = good && (rule.allowed == 0 || syscall(CALL_ADD_RULE, ruleset, RULE_BENEATH, &rule, 0) == 0);
    const int error = errno;
    (void)close(fd);
    errno = error;
    return good;
}

enum tb_status tb_landlock_enter(const struct tb_sandbox_path *paths, uint32_t count)
{
    const int abi = tb_landlock_abi();
    if (abi == 0) return TB_NOT_FOUND;
    const struct ruleset all = {.files = rights_of(abi), .scoped = abi >= 6 ? SCOPE_SIGNAL : 0};
    const size_t bytes = abi >= 6 ? sizeof all : abi >= 4 ? 2 * sizeof(uint64_t) : sizeof(uint64_t);
    const int ruleset = (int)syscall(CALL_CREATE, &all, bytes, 0);
    if (ruleset < 0) return TB_SITE_IO;
    bool good = true;
    for (uint32_t i = 0; i < count && good; i++)
        good = allow(ruleset, &paths[i], all.files);
    good = good && syscall(CALL_RESTRICT, ruleset, 0) == 0;
    const int error = errno;
    (void)close(ruleset);
    errno = error;
    return good ? TB_OK : TB_SITE_IO;
}
