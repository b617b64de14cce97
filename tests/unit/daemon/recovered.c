/* recovered.c - P6: a seal that waits for room in the arena asks again in the turn in which the
 * catalog has recovered. A gateway is opened on a store that another life of it left, so its
 * catalog recovers, and evicts nothing, for a lease time.
 *
 * Covers: gateway/daemon/sessions/session_seal.c gateway/daemon/dispatcher.c */
#include "base/allocate.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

#define TURNS_MAX 100000

/* A SEAL that waits for room, of a session that has gone since: asked again, it leaves the list. */
static void seal_parks(struct tb_daemon *d)
{
    if (d->parked != NULL) return;
    d->parked = tb_calloc(1, sizeof *d->parked);
    assert_non_null(d->parked);
}

static void the_first_start_recovers_nothing(void **state)
{
    (void)state;
    struct home h;
    home_new(&h);
    home_start(&h);
    assert_false(tb_catalog_recovering(h.d->catalog));
    home_end(&h);
    home_free(&h);
}

static void a_seal_that_waits_for_room_is_asked_in_the_turn_that_ends_recovery(void **state)
{
    (void)state;
    struct home h;
    home_new(&h);
    home_start(&h);
    home_end(&h);
    home_start(&h);
    assert_true(tb_catalog_recovering(h.d->catalog));
    for (int i = 0; i < TURNS_MAX && tb_catalog_recovering(h.d->catalog); i++) {
        seal_parks(h.d);
        (void)uv_run(&h.d->loop, UV_RUN_ONCE);
    }
    assert_false(tb_catalog_recovering(h.d->catalog));
    assert_null(h.d->parked);
    home_end(&h);
    home_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_start_recovers_nothing),
        cmocka_unit_test(a_seal_that_waits_for_room_is_asked_in_the_turn_that_ends_recovery),
    };
    return cmocka_run_group_tests_name("recovered", tests, NULL, NULL);
}
