/* store_folder.h - a folder of its own for each test of the store: set-up and
 * tear-down of cmocka. */
#ifndef TB_TESTS_STORE_FOLDER_H
#define TB_TESTS_STORE_FOLDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/scratch.h"

static char folder[SCRATCH_BYTES];
static char path[128]; /* of the store in it */

static int set_up(void **state)
{
    (void)state;
    assert_true(scratch_folder(folder, sizeof folder, "store"));
    snprintf(path, sizeof path, "%s/s.sqlite", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        char file[128];
        snprintf(file, sizeof file, "%s%s", path, ends[i]);
        unlink(file);
    }
    return rmdir(folder);
}

#endif
