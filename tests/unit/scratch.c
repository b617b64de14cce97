/* scratch.c - the program's folders, and the process that removes them after it. */
#include "tests/unit/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* The shell ends at once, and the keeper is no child of the test: a test may wait for any child,
 * and ctest ends all descendants of a program that takes too long. Its input ends with the last
 * process that has the other end: the program, or what it forked. */
static char keeper[] = "{ cat; rm -rf -- \"$0\"; } <&3 3<&- >/dev/null &";

/* Starts the keeper of that folder. The descriptor that holds it is left open for as long
 * as this process lives. */
static bool keep(char *folder)
{
    static char shell_name[] = "sh", option[] = "-c";
    char *const words[] = {shell_name, option, keeper, folder, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int ends[2], code = -1;
    pid_t shell;
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[0], 3);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID); /* no signal of a terminal reaches it */
    const int failed = posix_spawn(&shell, "/bin/sh", &actions, &attributes, words, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[0]);
    return failed == 0 && waitpid(shell, &code, 0) == shell && code == 0;
}

/* The folder of this program in the one that the variable names. A path that cannot be made is
 * no folder: a test that writes there fails. */
static const char *folder_in(const char *variable, const char *fallback, char *path, size_t bytes)
{
    const char *place = getenv(variable);
    if (path[0] != '\0') return path;
    if (place == NULL || place[0] == '\0') place = fallback;
    const int used = snprintf(path, bytes, "%s/tombolo.XXXXXX", place);
    if (used > 0 && (size_t)used < bytes && mkdtemp(path) != NULL && keep(path)) return path;
    perror("scratch: no folder for this program");
    (void)rmdir(path);
    exit(1);
}

const char *scratch_files(void)
{
    static char path[SCRATCH_BYTES];
    return folder_in("TMPDIR", "/tmp", path, sizeof path);
}

const char *scratch_memory(void)
{
    static char path[SCRATCH_BYTES];
    return folder_in("TB_TEST_SHM", "/dev/shm", path, sizeof path);
}

bool scratch_folder(char *path_out, size_t bytes, const char *name)
{
    static unsigned serial;
    do { /* a forked process counts by itself */
        const int used = snprintf(path_out, bytes, "%s/%s.%u", scratch_files(), name, serial++);
        if (used <= 0 || (size_t)used >= bytes) return false;
        if (mkdir(path_out, 0700) == 0) return true;
    } while (errno == EEXIST);
    return false;
}

pid_t scratch_fork(void)
{
    const pid_t parent = getpid(), child = fork();
    if (child == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)) _exit(1);
    return child;
}

bool scratch_put(const char *folder, const char *path, const char *text)
{
    char full[256];
    if ((size_t)snprintf(full, sizeof full, "%s/%s", folder, path) >= sizeof full) return false;
    for (char *slash = full + strlen(folder) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    FILE *f = fopen(full, "we");
    if (f == NULL) return false;
    const bool put = fputs(text, f) >= 0;
    return fclose(f) == 0 && put;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

bool scratch_remove(const char *folder)
{
    return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0;
}
