/* store_world.h - a store in a folder of its own for each test, rows to write into it, and what
 * a statement answers about its file. */
#ifndef TB_TESTS_STORE_WORLD_H
#define TB_TESTS_STORE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/store/store.h"
#include "tests/unit/scratch.h"

extern char store_folder[SCRATCH_BYTES];
extern char store_path[128];                    /* of the store in it */
extern const struct tb_store_audit store_audit; /* its action is "test" */

int store_set_up(void **state);
int store_tear_down(void **state);

#define STORE_TEST(name) cmocka_unit_test_setup_teardown(name, store_set_up, store_tear_down)

/* Fails the test unless the store opens. */
struct tb_store *store_open_good(void);
struct tb_catalog_run store_make_run(uint64_t order);
struct tb_store_version store_make_version(uint64_t number);
/* A number that a statement on a connection of the test's own answers. */
int64_t store_ask(const char *sql);

#endif
