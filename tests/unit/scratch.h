/* scratch.h - where tests put what they write: folders that tests/run makes, looks into for what a test left there, and
 * removes. By hand they are /tmp and /dev/shm. */
#ifndef TB_TESTS_UNIT_SCRATCH_H
#define TB_TESTS_UNIT_SCRATCH_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static inline const char *scratch_of(const char *variable, const char *fallback)
{
    const char *folder = getenv(variable);
    return folder != NULL && folder[0] != '\0' ? folder : fallback;
}

/* For files and sockets. */
static inline const char *scratch_files(void)
{
    return scratch_of("TMPDIR", "/tmp");
}

/* For files in memory. */
static inline const char *scratch_memory(void)
{
    return scratch_of("TB_TEST_SHM", "/dev/shm");
}

/* Makes a folder of a new name; the caller removes it. False: it could not be made, or `bytes` are too few for its path. */
static inline bool scratch_folder(char *path_out, size_t bytes, const char *name)
{
    const int used = snprintf(path_out, bytes, "%s/tombolo-%s.XXXXXX", scratch_files(), name);
    return used > 0 && (size_t)used < bytes && mkdtemp(path_out) != NULL;
}

/* A file with that text, and the folders on its way: a stand-in for what the kernel says in files. */
static inline bool scratch_put(const char *folder, const char *path, const char *text)
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

/* The folder and all in it. */
static inline bool scratch_remove(const char *folder)
{
    char command[300];
    (void)snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command) == 0;
}

#endif
