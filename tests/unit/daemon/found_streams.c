/* found_streams.c - how many streams a search found for a peer is known after a restart, and is
 * written down once (P6).
 *
 * Covers: gateway/daemon/links/found_streams.c gateway/daemon/store_restore.c */

#include "gateway/daemon/links/found_streams.h"
#include "gateway/daemon/persist_usage.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"
#include "wan/link/links_stats.h"

#define NORTH 0u
#define WEST  1u

struct site {
    struct world world; /* of certificates */
    struct home home;   /* the site east, whose peers are north and west */
};

static void peers_begin(struct site *p)
{
    linked_home_begin(&p->home, &p->world,
                      "{policy: {home: east}}\n"
                      "peers: {north: {address: \"127.0.0.1:9\"}, west: {address: \"127.0.0.1:9\"}}");
}

static void peers_end(struct site *p)
{
    linked_home_end(&p->home, &p->world);
}

static void seen(struct site *p, uint32_t peer, uint32_t streams, uint64_t bytes_per_s)
{
    static struct tb_links_stats stats;
    stats.streams_found = streams;
    stats.found_bytes_per_s = bytes_per_s;
    tb_found_seen(p->home.d, peer, &stats);
}

static void check_found(const struct site *p, uint32_t peer, uint32_t streams, uint64_t bytes_per_s)
{
    assert_int_equal(p->home.d->found[peer].streams, streams);
    assert_int_equal(p->home.d->found[peer].bytes_per_s, bytes_per_s);
}

static void a_search_is_known_after_a_restart(void **state)
{
    struct site p;
    (void)state;
    peers_begin(&p);
    check_found(&p, WEST, 0, 0);
    seen(&p, WEST, 6, 1000000);
    seen(&p, WEST, 8, 2000000);
    home_end(&p.home);
    home_start(&p.home);
    check_found(&p, WEST, 8, 2000000);
    check_found(&p, NORTH, 0, 0);
    peers_end(&p);
}

static void the_same_result_is_written_once(void **state)
{
    struct site p;
    (void)state;
    peers_begin(&p);
    home_turn_until(&p.home, "store_rows", 0);
    seen(&p, WEST, 0, 0); /* no search has ended */
    assert_int_equal(tb_persist_waiting(p.home.d), 0);
    seen(&p, WEST, 8, 2000000);
    assert_int_equal(tb_persist_waiting(p.home.d), 1);
    seen(&p, WEST, 8, 2000000);
    assert_int_equal(tb_persist_waiting(p.home.d), 1);
    peers_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_search_is_known_after_a_restart),
        cmocka_unit_test(the_same_result_is_written_once),
    };
    return cmocka_run_group_tests_name("daemon.found_streams", tests, NULL, NULL);
}
