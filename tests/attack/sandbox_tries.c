/* sandbox_tries.c - enters tombolod's sandbox, or not, and tries one thing from inside.
 *
 * tombolo-test-sandbox on|off TRY FOLDER [ARGUMENT]
 * tombolo-test-sandbox old-kernel PROGRAM [ARGUMENT...]
 *
 * FOLDER is the one folder that may be written. Prints `done`, `refused: WHY`, or `lacks: WHY`
 * where the layer that forbids it is not on. Exits with 0 for each of them.
 *
 * old-kernel runs the program as on a kernel without Landlock: its calls are unknown. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/sandbox/sandbox.h"

enum layer { FILTER, LANDLOCK, SIGNALS, BOTH };

static const char *folder, *argument;

static bool was_opened(int fd)
{
    if (fd >= 0) (void)close(fd);
    return fd >= 0;
}

static bool try_exec(void)
{
    static char program[] = "/bin/echo", word[] = "done";
    char *const argv[] = {program, word, NULL};
    (void)execv(argv[0], argv); /* prints it */
    return false;
}

static bool try_fork(void)
{
    const pid_t child = fork();
    if (child == 0) _exit(0);
    return child > 0 && waitpid(child, NULL, 0) == child;
}

static bool try_read(void)
{
    return was_opened(open(argument, O_RDONLY | O_CLOEXEC));
}

static bool try_list(void)
{
    return was_opened(open(argument, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/* A descriptor of a folder is no right to what is inside. */
static int folder_before = -1;
static bool try_read_beneath(void)
{
    return was_opened(openat(folder_before, "secret", O_RDONLY | O_CLOEXEC));
}

static bool try_write(void)
{
    return was_opened(open(argument, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static bool try_link_out(void)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/link", folder);
    return was_opened(open(path, O_RDONLY | O_CLOEXEC));
}

static bool try_trace(void)
{
    const pid_t other = (pid_t)atoi(argument);
    return ptrace(PTRACE_SEIZE, other, NULL, NULL) == 0;
}

static bool try_memory(void)
{
    const pid_t other = (pid_t)strtol(argument, NULL, 10);
    const char *at = strchr(argument, ':');
    char byte = 0;
    const struct iovec here = {&byte, 1};
    const struct iovec there = {(void *)(uintptr_t)strtoull(at + 1, NULL, 16), 1};
    return process_vm_readv(other, &here, 1, &there, 1, 0) == 1;
}

static bool try_proc_memory(void)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/mem", atoi(argument));
    return was_opened(open(path, O_RDONLY | O_CLOEXEC));
}

static bool try_kill(void)
{
    return kill((pid_t)atoi(argument), SIGCONT) == 0;
}

static bool try_socket(void)
{
    return was_opened(socket(atoi(argument), SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

static bool try_io_uring(void)
{
    char parameters[256] = {0};
    return syscall(SYS_io_uring_setup, 1, parameters) >= 0;
}

static bool try_namespace(void)
{
    return syscall(SYS_unshare, 0x10000000 /* CLONE_NEWUSER */) == 0;
}

/* The work of a gateway has to go on. */
static void *nothing(void *user)
{
    return user;
}

static bool try_ordinary(void)
{
    char path[4096];
    pthread_t thread;
    (void)snprintf(path, sizeof path, "%s/mine", folder);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    const bool files = fd >= 0 && write(fd, "x", 1) == 1 && ftruncate(fd, 0) == 0 && unlink(path) == 0;
    if (fd >= 0) (void)close(fd);
    const bool sockets =
        was_opened(socket(AF_UNIX, SOCK_STREAM, 0)) && was_opened(socket(AF_INET, SOCK_STREAM, 0)) &&
        was_opened(socket(AF_INET6, SOCK_STREAM, 0)) && was_opened(socket(AF_NETLINK, SOCK_RAW, 0));
    const bool threads = pthread_create(&thread, NULL, nothing, NULL) == 0 && pthread_join(thread, NULL) == 0;
    return files && sockets && threads && was_opened(open("/proc/self/status", O_RDONLY));
}

static const struct {
    const char *name;
    bool (*fn)(void);
    enum layer layer;
} tries[] = {
    {"exec", try_exec, FILTER},
    {"fork", try_fork, FILTER},
    {"read", try_read, LANDLOCK},
    {"list", try_list, LANDLOCK},
    {"read_beneath", try_read_beneath, LANDLOCK},
    {"write", try_write, LANDLOCK},
    {"link_out", try_link_out, LANDLOCK},
    {"trace", try_trace, FILTER},
    {"memory", try_memory, FILTER},
    {"proc_memory", try_proc_memory, LANDLOCK},
    {"kill", try_kill, SIGNALS},
    {"socket", try_socket, FILTER},
    {"io_uring", try_io_uring, FILTER},
    {"namespace", try_namespace, FILTER},
    {"ordinary", try_ordinary, BOTH},
};

static bool is_on(const struct tb_sandbox *s, enum layer layer)
{
    if (layer == FILTER) return s->filter;
    if (layer == LANDLOCK) return s->landlock;
    return layer == BOTH || (s->landlock && s->landlock_abi >= 6);
}

static void enter(struct tb_sandbox *sandbox_out)
{
    static struct tb_sandbox_path paths[4] = {{.path = "/proc", .access = TB_SANDBOX_READ},
                                              {.path = "/lib", .access = TB_SANDBOX_READ},
                                              {.path = "/usr/lib", .access = TB_SANDBOX_READ},
                                              {.access = TB_SANDBOX_FOLDER}};
    (void)snprintf(paths[3].path, sizeof paths[3].path, "%s", folder);
    tb_sandbox_enter(paths, 4, sandbox_out);
}

/* Landlock's three calls have these numbers on every machine. */
static int run_without_landlock(char *const argv[])
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 444, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 446, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 2;
    (void)execv(argv[0], argv);
    return 2;
}

int main(int argc, char **argv)
{
    struct tb_sandbox sandbox = {0};
    if (argc > 2 && strcmp(argv[1], "old-kernel") == 0) return run_without_landlock(argv + 2);
    if (argc < 4) return fputs("usage: tombolo-test-sandbox on|off TRY FOLDER [ARGUMENT]\n", stderr), 2;
    const bool on = strcmp(argv[1], "on") == 0;
    folder = argv[3];
    argument = argc > 4 ? argv[4] : "";
    folder_before = open(argument, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (on) enter(&sandbox);
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        if (strcmp(tries[i].name, argv[2]) != 0) continue;
        if (on && !is_on(&sandbox, tries[i].layer)) return printf("lacks: %s\n", sandbox.lacks), 0;
        errno = 0;
        const bool done = tries[i].fn();
        if (done)
            puts("done");
        else
            printf("refused: %s\n", strerror(errno));
        return 0;
    }
    return fprintf(stderr, "no try is named %s\n", argv[2]), 2;
}
