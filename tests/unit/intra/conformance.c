/* conformance.c - runs what every way to move bytes inside a site must do (conformance.h) over each
 * way; and how a way is chosen.
 *
 * Covers: intra/transport/pipe.c intra/transport/transport_shm.c intra/transport/transport_tcp.c
 * Covers: intra/transport/transport_words.c intra/verbs_absent.c intra/hop/hop_run.c
 * Covers: intra/transport/shm_lent.c intra/fabric/door_lent.c
 * Covers: intra/fabric/fabric.c intra/fabric/pace_gate.c */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "conformance.h"
#include "denied_readv.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"
#include "island_device.h"

static const struct way ways[] = {
    {.name = "shm-memfd", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_SHARED},
    {.name = "shm-readv", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_OWN},
    {.name = "shm-lent", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_OWN, .denied = true},
    {.name = "shm-socket", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_UNSEALED},
    {.name = "shm-cuda", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_DEVICE},
    {.name = "tcp-clear", .transport = TB_TRANSPORT_TCP, .memory = MEMORY_OWN, .clear = true},
    {.name = "tcp-tls", .transport = TB_TRANSPORT_TCP, .memory = MEMORY_OWN},
    {.name = "verbs-clear", .transport = TB_TRANSPORT_VERBS, .memory = MEMORY_OWN, .clear = true},
    {.name = "verbs-tls", .transport = TB_TRANSPORT_VERBS, .memory = MEMORY_SHARED},
};

/* An emulated NIC of 50 MB/s, in and out, is never faster than that. How close it comes is
 * bench/run's to say: a loaded machine may be slower. shm has no NIC: it only has to arrive. */
void pacing_is_never_exceeded(void **state)
{
    struct scene s;
    const uint64_t rate = 50000000;
    scene_open(&s, *state, 6, 3000004, rate);
    if (s.way->transport == TB_TRANSPORT_VERBS) { /* what went by a real NIC would not be paced */
        assert_string_equal(tb_fabric_no_verbs(s.reader), "the NIC is emulated");
        scene_close(&s);
        return;
    }
    owner_hold_all(&s.owner);
    const tb_time_ns from = tb_clock_now();
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    const double seconds = (double)(tb_clock_now() - from) * 1e-9;
    const double ideal = (double)s.cargo.manifest.bytes / (double)rate;
    print_message("%s: %.3f s, at the NIC's rate %.3f s\n", s.way->name, seconds, ideal);
    if (s.way->transport == TB_TRANSPORT_TCP) assert_true(seconds > 0.9 * ideal);
    tb_hop_close(hop);
    scene_close(&s);
}

void nobody_there_is_unreachable(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    struct tb_hop *hop = NULL;
    snprintf(options.from.shm_door, sizeof options.from.shm_door, "tombolo-nobody");
    snprintf(options.from.tcp, sizeof options.from.tcp, "127.0.0.1:1");
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_lost(&s.tale);
    assert_int_equal(told(&s.tale).why, TB_PEER_UNREACHABLE);
    tb_hop_close(hop);
    scene_close(&s);
}

/* By which way shm reads: what the hop says of itself is what it does. */
static enum tb_transport_why way_of(const struct scene *s)
{
    switch (s->way->memory) {
    case MEMORY_OWN:
        return s->way->denied ? TB_WHY_SAME_HOST_LENT : TB_WHY_SAME_HOST_READV;
    case MEMORY_UNSEALED:
        return TB_WHY_SAME_HOST_SOCKET;
    case MEMORY_SHARED:
    case MEMORY_DEVICE:
        return TB_WHY_SAME_HOST;
    }
    return TB_WHY_UNKNOWN;
}

void transport_none_prefers_shm_then_the_network(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    const bool rdma = tb_fabric_no_verbs(s.reader) == NULL;
    const enum tb_transport network = rdma ? TB_TRANSPORT_VERBS : TB_TRANSPORT_TCP;
    /* An owner on another machine has the same host name here, and no door that shm could find. */
    const enum tb_transport device = s.way->memory == MEMORY_DEVICE ? TB_TRANSPORT_CUDA : network;
    const enum tb_transport first = s.owner.far < 0 ? TB_TRANSPORT_SHM : device;
    owner_hold_all(&s.owner);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    struct tb_hop *hop = NULL;
    options.transport = TB_TRANSPORT_NONE;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).transport, first);
    if (first == TB_TRANSPORT_SHM) assert_int_equal(told(&s.tale).why_transport, way_of(&s));
    tb_hop_close(hop);

    options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.transport = TB_TRANSPORT_NONE;
    snprintf(options.from.shm_door, sizeof options.from.shm_door,
             "tombolo-nobody"); /* another network namespace, say */
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait(&s.tale, &s.tale.told.opened, 2);
    assert_int_equal(told(&s.tale).transport, network);
    tb_hop_close(hop);

    options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.transport = TB_TRANSPORT_NONE;
    assert_int_equal(tb_name_set(&options.from.host, "elsewhere"), TB_OK);
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait(&s.tale, &s.tale.told.opened, 3);
    assert_int_equal(told(&s.tale).transport, network);
    assert_int_equal(told(&s.tale).why_transport, rdma ? TB_WHY_RDMA : TB_WHY_NO_RDMA_HERE);
    tb_hop_close(hop);
    scene_close(&s);
}

void bad_options_are_refused_at_once(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    struct tb_hop *hop = NULL;
    s.place.shard = 4; /* the source has no such shard */
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_BAD_ARGUMENT);
    options.place_count = 0;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_BAD_ARGUMENT);
    assert_int_equal(owner_export_again(&s.owner), TB_CONFLICT);
    scene_close(&s);
}

static int deny_or_not(void **state)
{
    readv_denied = ((const struct way *)*state)->denied;
    return 0;
}

/* One argument: only the ways and tests whose name contains it. 77: there are none here. */
int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--serve") == 0) far_serve(argv[2]);
    static char names[1024][96];
    static struct CMUnitTest tests[1024];
    const bool rdma = rdma_is_here(), device = island_device_begin();
    size_t count = 0;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        if (ways[w].transport == TB_TRANSPORT_VERBS && !rdma) continue;
        if (ways[w].memory == MEMORY_DEVICE && !device) continue;
#define ADD(test)                                                                                            \
    snprintf(names[count], sizeof names[count], "%s/%s", ways[w].name, #test);                               \
    if (argc < 2 || strstr(names[count], argv[1]) != NULL) {                                                 \
        tests[count] = (struct CMUnitTest){.name = names[count],                                             \
                                           .test_func = test,                                                \
                                           .setup_func = deny_or_not,                                        \
                                           .initial_state = (void *)(uintptr_t)&ways[w]};                    \
        count++;                                                                                             \
    }
        CONFORMANCE_TESTS(ADD)
#undef ADD
    }
    const int failed = count > 0 ? _cmocka_run_group_tests("conformance", tests, count, NULL, NULL) : 77;
    if (device) island_device_end();
    return failed;
}
