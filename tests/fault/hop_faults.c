/* A hop between two workers under faults, over shared memory, a socket and TCP: a reader's fabric
 * opens, reads a shard and goes. It ends whole or is told that it was lost; what is held is what
 * was sealed (P1), and nothing is claimed or open any more.
 *
 * Covers: intra/fabric/fabric.c intra/hop/hop_run.c intra/transport/transport_shm.c
 * Covers: intra/transport/transport_tcp.c */
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/net/library_faults.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"
#include "tests/fault/sweep.h"
#include "unit/intra/island.h"

struct crossing_over {
    const struct way *way;
    struct cargo cargo;
    struct owner owner;
    struct hold hold;
    struct tale tale;
};

static void prepare(void *world)
{
    struct crossing_over *w = world;
    owner_open(&w->owner, w->way, &w->cargo, 0);
    owner_hold_all(&w->owner);
    hold_make(&w->hold, &w->cargo);
    tale_init(&w->tale);
}

static enum tb_status let_in(const struct crossing_over *w, struct tb_fabric *reader,
                             struct tb_hop_options *options)
{
    struct tb_fabric_endpoint me;
    tb_fabric_endpoint(reader, &me);
    tb_random_bytes(options->token.bytes, sizeof options->token.bytes);
    return tb_export_grant(w->owner.fabric, EXPORT_ID, &options->token, &me.fingerprint);
}

static bool read_all(void *world)
{
    struct crossing_over *w = world;
    struct tb_fabric *reader = NULL;
    struct tb_hop *hop = NULL;
    struct tb_fabric_options fabric = {.tcp_address = "127.0.0.1:0", .trusted = w->way->clear, .threads = 2};
    assert_int_equal(tb_name_set(&fabric.host, "reef"), TB_OK);
    if (tb_fabric_open(&fabric, &reader) != TB_OK) return false;
    struct tb_hop_place place = {.shard = 3, .place = &w->hold.place};
    struct tb_hop_options options = {.export_id = EXPORT_ID,
                                     .from = w->owner.endpoint,
                                     .transport = w->way->transport,
                                     .source = &w->owner.shard,
                                     .source_count = 1,
                                     .places = &place,
                                     .place_count = 1,
                                     .fn = tale_fn,
                                     .user = &w->tale,
                                     .idle_ms = SWEEP_PATIENCE_MS(100u)};
    enum tb_status status = let_in(w, reader, &options);
    if (status == TB_OK) status = tb_hop_open(reader, &options, &hop);
    if (status == TB_OK) {
        wait_until(told(&w->tale).whole > 0 || told(&w->tale).lost > 0);
        tb_hop_close(hop);
    }
    tb_fabric_close(reader);
    return status == TB_OK && told(&w->tale).whole > 0 && told(&w->tale).lost == 0;
}

static void check(void *world, bool done)
{
    struct crossing_over *w = world;
    assert_int_equal(told(&w->tale).bad, 0); /* no fault makes right bytes wrong */
    assert_true(!done || tb_place_whole(&w->hold.place));
    hold_check(&w->hold, &w->cargo);
    owner_close(&w->owner);
    hold_free(&w->hold);
    tale_fini(&w->tale);
}

static void sweep_way(const struct way *way)
{
    static struct crossing_over w;
    w.way = way;
    cargo_make(&w.cargo, 1, 300000);
    sweep_run(&(struct sweep){.prepare = prepare,
                              .round = read_all,
                              .check = check,
                              .world = &w,
                              .most = way->memory == MEMORY_SHARED ? 6 : 3});
    cargo_free(&w.cargo);
}

static void over_shared_memory(void **state)
{
    (void)state;
    sweep_way(&(struct way){.name = "shm", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_SHARED});
}

static void over_a_socket(void **state)
{
    (void)state;
    sweep_way(&(struct way){.name = "shm-socket", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_UNSEALED});
}

static void over_tcp(void **state)
{
    (void)state;
    sweep_way(&(struct way){.name = "tcp", .transport = TB_TRANSPORT_TCP, .memory = MEMORY_OWN});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shared_memory),
        cmocka_unit_test(over_a_socket),
        cmocka_unit_test(over_tcp),
    };
    tb_net_library_faults();
    tb_log_set(TB_LOG_ERROR, -1);
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
