/* fuzz_file.h - a file in memory of a fuzz target's own, for decoders that read files. It goes with
 * the process; of one that was killed it goes when the next one of that name begins. */
#ifndef TB_TESTS_FUZZ_FUZZ_FILE_H
#define TB_TESTS_FUZZ_FUZZ_FILE_H

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FUZZ_FOLDER "/dev/shm/"

static char fuzz_path[96];

static inline void fuzz_file_remove(void)
{
    (void)unlink(fuzz_path);
}

/* begins: "tombolo-fuzz-arena."; what follows is the number of the process. */
static inline void fuzz_file_sweep(const char *begins)
{
    DIR *folder = opendir(FUZZ_FOLDER);
    if (folder == NULL) return;
    for (const struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        char old[300];
        if (strncmp(e->d_name, begins, strlen(begins)) != 0) continue;
        const long pid = strtol(e->d_name + strlen(begins), NULL, 10);
        if (pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH) continue;
        (void)snprintf(old, sizeof old, FUZZ_FOLDER "%s", e->d_name);
        (void)unlink(old);
    }
    (void)closedir(folder);
}

/* Its path; the file is the caller's to make. */
static inline const char *fuzz_file_begin(const char *begins)
{
    fuzz_file_sweep(begins);
    (void)snprintf(fuzz_path, sizeof fuzz_path, FUZZ_FOLDER "%s%ld", begins, (long)getpid());
    return atexit(fuzz_file_remove) == 0 ? fuzz_path : NULL;
}

#endif
