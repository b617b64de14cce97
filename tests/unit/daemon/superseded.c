/* superseded.c - versions that are superseded before they cross: nothing of them stays
 * at the follower (P7).
 *
 * Covers: gateway/daemon/links/link_events.c
 * Covers: gateway/daemon/copies/copies.c gateway/daemon/copies/copy_table.c */

#include "gateway/catalog/sites.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"

#define VERSIONS 200u

static void turn_until(struct home *h, uint64_t copies)
{
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (h->d->copies_used.used != copies && tb_clock_now() < until)
        (void)uv_run(&h->d->loop, UV_RUN_ONCE);
    assert_int_equal(h->d->copies_used.used, copies);
}

static void follower_begin(struct home *h, struct world *world)
{
    linked_home_begin(h, world,
                      "{policy: {home: west}}\nsubscribe: [{model: policy, from: [west]}]\n" LINKED_WEST);
}

static void west_says(struct home *h, uint64_t number, enum tb_catalog_state state)
{
    struct tb_name west;
    struct tb_version_key key = {.uid = {{1, (uint8_t)number, (uint8_t)(number >> 8)}},
                                 .run = {{1}},
                                 .run_order = 1,
                                 .number = number,
                                 .shard_count = 1};
    key.root.bytes[0] = 1;
    CHECK_OK(tb_name_set(&key.model, "policy"));
    CHECK_OK(tb_name_set(&west, "west"));
    CHECK_OK(tb_catalog_remote_version(h->d->catalog, tb_clock_now(), &west, &key, state));
    tb_daemon_turn(h->d);
}

/* P6: a follower asks for each version, and a newer one takes its place before its manifests came.
 * The arena has nothing of it to evict, and the copy goes all the same. */
static void a_version_superseded_before_it_crosses_leaves_nothing(void **state)
{
    (void)state;
    struct home h;
    struct world world;
    struct tb_name west;
    CHECK_OK(tb_name_set(&west, "west"));
    follower_begin(&h, &world);
    tb_catalog_tick(h.d->catalog, tb_clock_now());
    CHECK_OK(tb_catalog_site_up(h.d->catalog, tb_clock_now(), &west, true));
    for (uint64_t n = 1; n <= VERSIONS; n++) {
        west_says(&h, n, TB_VERSION_READY);
        assert_true(h.d->copies_used.used > 0);
        if (n > 1) west_says(&h, n - 1, TB_VERSION_RETIRED);
        turn_until(&h, 1);
    }
    assert_int_equal(h.d->counters.evictions, 0); /* no bytes went */
    home_end(&h);
    home_free(&h);
    world_fini(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_superseded_before_it_crosses_leaves_nothing),
    };
    return cmocka_run_group_tests_name("daemon.superseded", tests, NULL, NULL);
}
