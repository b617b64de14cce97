/* version_hook.c - see version_hook.h. */
#include "gateway/cli/versions/version_hook.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/time.h"

#define LOOK_MS 100            /* how long the command may keep a signal waiting */
#define KILL_NS TB_SECONDS(10) /* between SIGTERM and SIGKILL */
#define OURS    5

extern char **environ;

/* ---- its environment ---- */

static char *variable(const char *name, const char *value)
{
    const size_t bytes = strlen(name) + strlen(value) + 2;
    char *text = tb_malloc(bytes);
    if (text != NULL) (void)snprintf(text, bytes, "%s=%s", name, value);
    return text;
}

static bool is_ours(const char *text)
{
    static const char *const names[OURS] = {
        "TOMBOLO_MODEL=", "TOMBOLO_RUN=", "TOMBOLO_NUMBER=", "TOMBOLO_UID=", "TOMBOLO_DIR="};
    for (int i = 0; i < OURS; i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static void free_environment(char **list)
{
    for (int i = 0; list != NULL && i < OURS; i++)
        tb_free(list[i]);
    tb_free(list);
}

/* Ours first, then what we were given; NULL: no memory. */
static char **make_environment(const struct tb_version_hook *hook)
{
    char run[24];
    char number[24];
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **list = tb_calloc(count + OURS + 1, sizeof *list);
    if (list == NULL) return NULL;
    (void)snprintf(run, sizeof run, "%" PRIu64, hook->run);
    (void)snprintf(number, sizeof number, "%" PRIu64, hook->number);
    list[0] = variable("TOMBOLO_MODEL", hook->model);
    list[1] = variable("TOMBOLO_RUN", run);
    list[2] = variable("TOMBOLO_NUMBER", number);
    list[3] = variable("TOMBOLO_UID", hook->uid);
    list[4] = variable("TOMBOLO_DIR", hook->dir);
    for (int i = 0; i < OURS; i++) {
        if (list[i] != NULL) continue;
        free_environment(list);
        return NULL;
    }
    for (size_t i = 0, at = OURS; i < count; i++)
        if (!is_ours(environ[i])) list[at++] = environ[i];
    TB_ASSERT(list[count + OURS] == NULL);
    return list;
}

/* ---- its process ---- */

/* Signals as in a new process, a group of its own, no input, and its output beside our messages. */
static int spawn(const struct tb_version_hook *hook, char **environment, pid_t *child_out)
{
    char shell[] = "/bin/sh";
    char option[] = "-c";
    char *command = tb_strdup(hook->command);
    char *argv[] = {shell, option, command, NULL};
    posix_spawnattr_t how;
    posix_spawn_file_actions_t files;
    sigset_t none;
    sigset_t as_before;
    if (command == NULL) return ENOMEM;
    (void)sigemptyset(&none);
    (void)sigemptyset(&as_before);
    (void)sigaddset(&as_before, SIGINT);
    (void)sigaddset(&as_before, SIGTERM);
    (void)sigaddset(&as_before, SIGPIPE);
    int error = posix_spawnattr_init(&how);
    if (error != 0) goto undo_command;
    error = posix_spawn_file_actions_init(&files);
    if (error != 0) goto undo_how;
    (void)posix_spawnattr_setflags(&how,
                                   POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
    (void)posix_spawnattr_setsigdefault(&how, &as_before);
    (void)posix_spawnattr_setsigmask(&how, &none);
    error = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (error == 0) error = posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    if (error == 0) error = posix_spawn(child_out, shell, &files, &how, argv, environment);
    (void)posix_spawn_file_actions_destroy(&files);
undo_how:
    (void)posix_spawnattr_destroy(&how);
undo_command:
    tb_free(command);
    return error;
}

/* Waits for the end of the child or for LOOK_MS. */
static void rest(int pidfd)
{
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    (void)poll(&p, 1, LOOK_MS); /* without a descriptor it waits all the same */
}

/* How the child ended, as waitpid tells it; false: nobody can tell. *over_out: it
 * was asked to end. */
static bool await(const struct tb_version_hook *hook, pid_t child, int *ended_out, bool *over_out)
{
    TB_ASSERT(child > 0); /* kill(-child) of 0 or -1 would reach other processes */
    const int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    tb_time_ns asked = 0;
    pid_t found = 0;
    while ((found = waitpid(child, ended_out, WNOHANG)) == 0) {
        if (asked == 0 && hook->over != NULL && hook->over(hook->user)) {
            asked = tb_clock_now();
            (void)kill(-child, SIGTERM);
        }
        if (asked != 0 && tb_time_since(asked, tb_clock_now()) > KILL_NS) (void)kill(-child, SIGKILL);
        rest(pidfd);
    }
    if (pidfd >= 0) (void)close(pidfd);
    *over_out = asked != 0;
    return found == child;
}

enum tb_status tb_version_hook_run(const struct tb_version_hook *hook, char why_out[128])
{
    TB_ASSERT(hook->command != NULL && hook->dir[0] == '/');
    pid_t child = 0;
    bool over = false;
    char **environment = make_environment(hook);
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, its end would not be kept for us */
    const int error = environment == NULL ? ENOMEM : spawn(hook, environment, &child);
    free_environment(environment);
    why_out[0] = '\0';
    if (error != 0) {
        (void)snprintf(why_out, 128, "cannot be started: %s", strerror(error));
        return TB_SITE_IO;
    }
    int ended = 0;
    const bool known = await(hook, child, &ended, &over);
    if (over) return TB_CANCELLED;
    if (!known)
        (void)snprintf(why_out, 128, "its end is unknown: %s", strerror(errno));
    else if (WIFSIGNALED(ended))
        (void)snprintf(why_out, 128, "ended by signal %d", WTERMSIG(ended));
    else if (WEXITSTATUS(ended) != 0)
        (void)snprintf(why_out, 128, "exit code %d", WEXITSTATUS(ended));
    return why_out[0] == '\0' ? TB_OK : TB_SITE_IO;
}
