/* fabric.c - every allocation and system call of the fabric fails once: an answer, never a crash, a leak or a wrong byte. */
#include <string.h>

#include "island.h"

#include "base/fault.h"

static const struct way ways[] = {
    {.name = "shm", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_SHARED},
    {.name = "shm-socket", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_UNSEALED},
    {.name = "tcp", .transport = TB_TRANSPORT_TCP, .memory = MEMORY_OWN},
};
static const enum tb_fault_point points[] = {TB_FAULT_malloc,  TB_FAULT_thread, TB_FAULT_socket,
                                             TB_FAULT_connect, TB_FAULT_accept, TB_FAULT_recvmsg,
                                             TB_FAULT_sendmsg, TB_FAULT_mmap};

static void opening_answers_each_failure(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        for (uint64_t nth = 1; nth < 200; nth++) {
            struct tb_fabric *fabric = NULL;
            struct tb_fabric_options options = {.tcp_address = "127.0.0.1:0", .threads = 2};
            assert_int_equal(tb_name_set(&options.host, "reef"), TB_OK);
            tb_fault_arm(points[i], nth, false);
            const uint64_t before = tb_fault_calls(points[i]);
            const enum tb_status status = tb_fabric_open(&options, &fabric);
            const bool reached = tb_fault_calls(points[i]) - before >= nth;
            tb_fault_arm(points[i], 0, false);
            if (status == TB_OK) tb_fabric_close(fabric);
            if (!reached) break;
            assert_int_equal(tb_status_scope(status), TB_SCOPE_SITE);
        }
    }
}

/* One whole transfer with call number nth failing. It ends whole or lost, and what is held is right. */
static bool transfer(const struct way *way, const struct cargo *cargo, enum tb_fault_point point,
                     uint64_t nth)
{
    struct owner owner;
    struct hold hold;
    struct tale tale;
    struct tb_hop *hop = NULL;
    owner_open(&owner, way, cargo, 0);
    owner_hold_all(&owner);
    hold_make(&hold, cargo);
    tale_init(&tale);
    struct tb_fabric *reader = fabric_make(way, 0);
    struct tb_hop_place place = {.shard = 3, .place = &hold.place};
    struct tb_hop_options options = hop_to(&owner, reader, way, &place, &tale);
    options.idle_ms = 300; /* an accept that failed once leaves the reader in the queue until the next */
    tb_fault_arm(point, nth, false);
    const uint64_t before = tb_fault_calls(point);
    const enum tb_status status = tb_hop_open(reader, &options, &hop);
    if (status == TB_OK) {
        wait_until(told(&tale).whole > 0 || told(&tale).lost > 0);
        if (told(&tale).lost == 0) assert_true(tb_place_whole(&hold.place));
        tb_hop_close(hop);
    } else {
        assert_int_equal(status, TB_SITE_NOMEM);
    }
    const bool reached = tb_fault_calls(point) - before >= nth;
    tb_fault_arm(point, 0, false);
    assert_int_equal(told(&tale).bad, 0);
    hold_check(&hold, cargo);
    tb_fabric_close(reader);
    owner_close(&owner);
    hold_free(&hold);
    tale_fini(&tale);
    return reached;
}

static void P1_P6_a_transfer_survives_each_failure(void **state)
{
    (void)state;
    struct cargo cargo;
    cargo_make(&cargo, 3, 600000);
    log_catch(); /* hundreds of refusals */
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
        for (size_t i = 0; i < sizeof points / sizeof points[0]; i++)
            for (uint64_t nth = 1; nth < 25 && transfer(&ways[w], &cargo, points[i], nth); nth++)
                continue;
    log_release();
    cargo_free(&cargo);
}

/* P9: a worker of the release before says no why, and its byte is still its transport. */
static void what_a_hop_goes_by_travels_in_a_byte(void **state)
{
    (void)state;
    enum tb_transport transport;
    enum tb_transport_why why;
    for (uint32_t t = TB_TRANSPORT_NONE; t <= TB_TRANSPORT_VERBS; t++) {
        for (uint32_t w = TB_WHY_UNKNOWN; w < TB_WHY_COUNT; w++) {
            tb_transport_unpack(tb_transport_pack((enum tb_transport)t, (enum tb_transport_why)w), &transport,
                                &why);
            assert_int_equal(transport, t);
            assert_int_equal(why, w);
            assert_true(strlen(tb_transport_why_text(why)) > 0);
        }
        tb_transport_unpack((uint8_t)t, &transport, &why);
        assert_int_equal(transport, t);
        assert_int_equal(why, TB_WHY_UNKNOWN);
    }
    for (uint32_t byte = 0; byte < 256; byte++) { /* whatever a worker says, it has words */
        tb_transport_unpack((uint8_t)byte, &transport, &why);
        assert_string_not_equal(tb_transport_name(transport), "unknown");
        assert_true(why < TB_WHY_COUNT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_hop_goes_by_travels_in_a_byte),
        cmocka_unit_test(opening_answers_each_failure),
        cmocka_unit_test(P1_P6_a_transfer_survives_each_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
