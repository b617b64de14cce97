/* links_pair.h - a fixture: east has a version, west lands it. West dials, east listens.
 *
 * A test that is listed by PAIR_TEST gets the pair from pair_of(), and its teardown
 * closes and frees it. */
#ifndef TB_TESTS_LINKS_PAIR_H
#define TB_TESTS_LINKS_PAIR_H

#include "check.h"
#include "links_world.h"

struct pair_of_sites {
    struct links_world w;
    struct truth t;
    struct site *east, *west;
};

#define PAIR_TEST(name) cmocka_unit_test_setup_teardown(name, pair_setup, pair_teardown)

int pair_setup(void **state);
int pair_teardown(void **state);
/* The pair of this test, with a version of so many shards of so many bytes. Neither site has
 * started. */
struct pair_of_sites *pair_of(void **state, uint32_t shards, uint64_t shard_bytes);
void pair_start(struct pair_of_sites *p);
/* Starts both, and waits for the session. */
void pair_up(struct pair_of_sites *p);
/* Starts both, and publishes the version at east. */
struct copy *pair_publish(struct pair_of_sites *p);
/* East holds all chunks of the version, and has not offered it yet. Of one shard. */
struct copy *pair_place(struct pair_of_sites *p);
/* Waits until both know that west holds the version, and compares it. */
void pair_landed(struct pair_of_sites *p);
uint32_t held_at(struct site *s, const struct truth *t);

#endif
