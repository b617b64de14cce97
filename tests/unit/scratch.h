/* scratch.h - the files of a test, in folders of its program alone.
 *
 * Promise: they are gone soon after the program, however it ended: by an assertion, a signal or a
 * sanitizer. A process of its own, the keeper, waits for the end and removes them. ctest waits for
 * the keeper, which holds the program's stderr. */
#ifndef TB_TESTS_UNIT_SCRATCH_H
#define TB_TESTS_UNIT_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* SCRATCH_OUTER: of the path in TMPDIR or TB_TEST_SHM. It is long where one run of tests starts
 * another. SCRATCH_BYTES: of a folder's path, with its end. A socket's path in it may have 107. */
enum { SCRATCH_OUTER = 60, SCRATCH_BYTES = 96 };

/* The program's folder for files and sockets, in TMPDIR (default /tmp). */
const char *scratch_files(void);

/* The program's folder for files in memory, in TB_TEST_SHM (default /dev/shm). */
const char *scratch_memory(void);

/* Makes a folder of a new name, of 12 characters at most. False: it could not be made, or `bytes`
 * (SCRATCH_BYTES or more) are too few for its path. */
bool scratch_folder(char *path_out, size_t bytes, const char *name);

/* fork(2), by the program's first thread. The child ends with the program: a test that fails does
 * not end it any more, and it may wait for ever. */
pid_t scratch_fork(void);

/* A file with that text, and the folders on its way: a stand-in for what the kernel says in
 * files. */
bool scratch_put(const char *folder, const char *path, const char *text);

/* The folder and all in it. */
bool scratch_remove(const char *folder);

#endif
