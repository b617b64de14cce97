/* arena_prover.c - where one thread lands chunks at home, another one proves them behind it (P1).
 *
 * Covers: gateway/daemon/copies/arena_prover.c gateway/daemon/links/home_statements.c */
#include "gateway/daemon/copies/arena_prover.h"

#include "base/net/signed.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/daemon/copies/copies.h"
#include "tests/unit/arena/arena_world.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"
#include "tests/unit/daemon/sealed_version.h"

#define MIB ((uint64_t)1 << 20)

struct scene {
    struct home home;
    struct version made;
    struct tb_arena_region *region;
};

/* Home, with a version that has landed. */
static void begin(struct scene *c, uint32_t threads)
{
    char error[TB_ARENA_ERROR_BYTES];
    home_new(&c->home);
    c->home.config->fabric_threads = threads;
    home_start(&c->home);
    version_make(&c->made, 5, 1, 3 * MIB);
    CHECK_OK(tb_arena_reserve(c->home.d->arena, &c->made.key, c->made.list, 1, &c->region, error));
    version_land_all(&c->made, c->region);
}

static void end(struct scene *c)
{
    CHECK_OK(tb_arena_free(c->region));
    home_end(&c->home);
    version_fini(&c->made);
    home_free(&c->home);
}

/* The main loop is woken, for it signs what is proven. */
static void one_landing_thread_has_another_prove(void **state)
{
    (void)state;
    struct scene c;
    begin(&c, 1);
    struct tb_daemon *d = c.home.d;
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    assert_true(d->prover.runs);
    assert_false(tb_arena_region_proven(c.region));
    tb_arena_prover_ask(d, true);
    while (!tb_arena_region_proven(c.region) && tb_clock_now() < until)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    assert_true(tb_arena_region_proven(c.region));
    while (atomic_load(&d->prover.proved) && tb_clock_now() < until)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    assert_false(atomic_load(&d->prover.proved));
    end(&c);
}

/* P6: as those of an anchor do, after a reboot of the host. Nobody publishes. */
static void a_chunk_landed_ahead_of_the_first_tick_is_proven(void **state)
{
    (void)state;
    struct scene c;
    begin(&c, 1);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (!tb_arena_region_proven(c.region) && tb_clock_now() < until)
        (void)uv_run(&c.home.d->loop, UV_RUN_ONCE);
    assert_true(tb_arena_region_proven(c.region));
    end(&c);
}

/* A chunk may land behind the last tick in which one moved. */
static void the_tick_behind_the_last_move_asks_too(void **state)
{
    (void)state;
    struct tb_daemon *d = calloc(1, sizeof *d);
    int due = 0;
    assert_non_null(d);
    assert_int_equal(sem_init(&d->prover.due, 0, 0), 0);
    d->prover.runs = true;
    static const struct {
        bool moves;
        int due; /* behind it */
    } ticks[] = {{false, 0}, {true, 1}, {false, 2}, {false, 2}};
    for (size_t i = 0; i < sizeof ticks / sizeof *ticks; i++) {
        tb_arena_prover_ask(d, ticks[i].moves);
        assert_int_equal(sem_getvalue(&d->prover.due, &due), 0);
        assert_int_equal(due, ticks[i].due);
        atomic_store(&d->prover.asked, i == 3); /* as the thread takes it */
    }
    tb_arena_prover_ask(d, true); /* asked already: once is enough */
    assert_int_equal(sem_getvalue(&d->prover.due, &due), 0);
    assert_int_equal(due, 2);
    assert_int_equal(sem_destroy(&d->prover.due), 0);
    free(d);
}

static void more_landing_threads_prove_as_chunks_land(void **state)
{
    (void)state;
    struct scene c;
    begin(&c, 2);
    assert_false(c.home.d->prover.runs);
    assert_true(tb_arena_region_proven(c.region));
    end(&c);
}

enum tb_status __wrap_tb_signed_write(const struct tb_tls *by, const struct tb_statement *what,
                                      struct tb_writer *w);
enum tb_status __wrap_tb_signed_write(const struct tb_tls *by, const struct tb_statement *what,
                                      struct tb_writer *w)
{
    (void)by, (void)what, (void)w;
    return TB_SITE_NOMEM;
}

/* P1 P6: no reader at home hears of a version that is not proven. It is proven although no tick saw
 * it move. A home that cannot sign lets its readers read it all the same. */
static void readers_wait_for(bool whole_before_its_row)
{
    struct sealed s;
    sealed_begin_with(&s, "{policy: {home: east}}\nfabric: {threads: 1}", 60000);
    struct tb_daemon *d = s.home.d;
    assert_null(d->tls);
    CHECK_OK(tb_tls_new_ephemeral(&d->tls));
    tb_arena_prover_ask(d, false); /* the first tick, which asks always */
    assert_false(d->prover.moved);
    for (int i = 0; i < 2; i++) {
        if (whole_before_its_row == (i == 0)) {
            sealed_land(&s, 0, s.made.list[0]->chunk_count);
            (void)tb_copies_tick(d);
        }
        tb_daemon_turn(d);
        assert_true(d->prover.runs && (sealed_view(&s).awaits || tb_arena_region_proven(s.copy->region)));
    }
    assert_true(tb_copy_is_whole(s.copy));
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (sealed_view(&s).awaits && tb_clock_now() < until)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    assert_false(sealed_view(&s).awaits);
    assert_true(tb_arena_region_proven(s.copy->region) && d->counters.statements_unsigned > 0);
    tb_tls_free(d->tls);
    d->tls = NULL;
    sealed_end(&s);
}

static void readers_hear_of_a_version_once_it_is_proven(void **state)
{
    (void)state;
    readers_wait_for(false);
    readers_wait_for(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_landing_thread_has_another_prove),
        cmocka_unit_test(a_chunk_landed_ahead_of_the_first_tick_is_proven),
        cmocka_unit_test(the_tick_behind_the_last_move_asks_too),
        cmocka_unit_test(readers_hear_of_a_version_once_it_is_proven),
        cmocka_unit_test(more_landing_threads_prove_as_chunks_land),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
