/* fabric.c - every allocation and system call of the fabric fails once: an answer, never a crash, a
 * leak or a wrong byte. And what a hop says of itself: by what it goes, and why.
 *
 * Covers: intra/fabric/fabric.c intra/fabric/fabric_check.c intra/hop/hop_check.c
 * Covers: intra/fabric/fabric_exports.c */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "scene.h"

#include "base/fault.h"
#include "base/net/chan_facts.h"
#include "intra/fabric/door_inside.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_inside.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/hop.h"
#include "intra/transport/transport_words.h"

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

/* One whole transfer with call number nth failing. It ends whole or lost, and what is held is
 * right. */
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
static void the_transport_of_a_hop_travels_in_a_byte(void **state)
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

static enum tb_transport_why why_of(struct owner *o, struct tb_fabric *reader, const struct way *way)
{
    struct hold hold;
    struct tale tale;
    struct tb_hop *hop = NULL;
    hold_make(&hold, o->cargo);
    tale_init(&tale);
    struct tb_hop_place place = {.shard = 3, .place = &hold.place};
    struct tb_hop_options options = hop_to(o, reader, way, &place, &tale);
    options.transport = TB_TRANSPORT_NONE;
    assert_int_equal(tb_hop_open(reader, &options, &hop), TB_OK);
    tale_wait_whole(&tale);
    tb_hop_close(hop);
    const struct told said = told(&tale);
    assert_int_equal(said.transport, TB_TRANSPORT_SHM);
    hold_check(&hold, o->cargo);
    hold_free(&hold);
    tale_fini(&tale);
    return said.why_transport;
}

/* Of a source whose buffers are reached in different ways a hop names the slowest. */
static void a_hop_by_shm_says_how_it_reads(void **state)
{
    (void)state;
    enum { SHARED, OWN, UNSEALED };
    static const struct {
        int packed, bitmap;
        enum tb_transport_why why;
    } sources[] = {{SHARED, SHARED, TB_WHY_SAME_HOST},          {SHARED, OWN, TB_WHY_SAME_HOST_READV},
                   {OWN, SHARED, TB_WHY_SAME_HOST_READV},       {OWN, OWN, TB_WHY_SAME_HOST_READV},
                   {UNSEALED, SHARED, TB_WHY_SAME_HOST_SOCKET}, {OWN, UNSEALED, TB_WHY_SAME_HOST_SOCKET}};
    struct cargo cargo;
    struct owner owner;
    cargo_make(&cargo, 2, 3000004);
    owner_open(&owner, &ways[0], &cargo, 0);
    owner_hold_all(&owner);
    struct tb_fabric *reader = fabric_make(&ways[0], 0);
    const uint64_t count = owner.shared.count;
    const int unsealed = memfd_create("fabric", MFD_CLOEXEC);
    assert_int_equal(ftruncate(unsealed, (off_t)count), 0);
    const int memfds[] = {[SHARED] = owner.shared.memfd, [OWN] = -1, [UNSEALED] = unsealed};
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        const struct tb_export_buffer buffers[] = {
            {.bytes = owner.bytes, .count = count, .memfd = memfds[sources[i].packed]},
            {.bytes = owner.bytes, .count = count, .memfd = memfds[sources[i].bitmap]}};
        owner_export(&owner, buffers, 2);
        assert_int_equal(why_of(&owner, reader, &ways[0]), sources[i].why);
    }
    close(unsealed);
    tb_fabric_close(reader);
    owner_close(&owner);
    cargo_free(&cargo);
}

/* More buffers than a hop attaches: the rest of them come by the socket. */
static void a_hop_says_that_not_all_is_attached(void **state)
{
    (void)state;
    struct cargo cargo;
    struct owner owner;
    cargo_make(&cargo, 4096, 4);
    owner_open(&owner, &ways[0], &cargo, 0);
    const struct tb_layout *layout = &cargo.manifest.layout;
    const uint32_t n = layout->tensor_count;
    struct tb_export_buffer *buffers = calloc(n + 1, sizeof *buffers);
    struct tb_source_at *at = calloc(n, sizeof *at);
    for (uint32_t t = 0; t < n; t++) {
        buffers[t] = (struct tb_export_buffer){
            .bytes = cargo.bytes + layout->tensors[t].offset, .count = layout->tensors[t].bytes, .memfd = -1};
        at[t] = (struct tb_source_at){.buffer = t};
    }
    buffers[n] = (struct tb_export_buffer){
        .bytes = cargo.bytes + layout->bytes, .count = cargo.manifest.blob_bytes, .memfd = -1};
    owner_export(&owner, buffers, n + 1);
    owner.shard = (struct tb_source_shard){.shard = 3,
                                           .held_buffer = TB_SOURCE_ALL_HELD,
                                           .scattered = true,
                                           .packed_buffer = n,
                                           .tensor_count = n,
                                           .tensors = at};
    struct tb_fabric *reader = fabric_make(&ways[0], 0);
    assert_int_equal(why_of(&owner, reader, &ways[0]), TB_WHY_SAME_HOST_SOCKET);
    tb_fabric_close(reader);
    owner_revoke(&owner, 0);
    free(buffers);
    free(at);
    owner_close(&owner);
    cargo_free(&cargo);
}

static void threads_that_nobody_asked_for_are_few(void **state)
{
    (void)state;
    assert_int_equal(tb_fabric_threads(0, 0), 1);
    assert_int_equal(tb_fabric_threads(0, 1), 1);
    assert_int_equal(tb_fabric_threads(0, 5), 5);
    assert_int_equal(tb_fabric_threads(0, 128), 8);
    assert_int_equal(tb_fabric_threads(1, 128), 1);
    assert_int_equal(tb_fabric_threads(64, 2), 64);
}

static bool digests_wait; /* atomic */

static enum tb_status wait_with_it(void *user, const struct tb_place *p, uint32_t k,
                                   const struct tb_place_came *came)
{
    (void)user, (void)p, (void)k, (void)came;
    while (__atomic_load_n(&digests_wait, __ATOMIC_ACQUIRE))
        rest_1ms();
    return TB_OK;
}

static uint64_t claimed_bytes(const struct hold *h)
{
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < h->place.manifest->chunk_count; k++)
        if (tb_bitmap_test(h->place.claimed, k)) bytes += h->place.manifest->chunks[k].bytes;
    return bytes;
}

/* P6: bytes that came and wait for a thread leave room for as many that are asked for. */
static void reads_go_on_while_chunks_are_digested(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &ways[2], 24, 1200000, 0);
    const struct tb_place_owner owner = {.keep = wait_with_it};
    s.hold.place.owner = &owner;
    __atomic_store_n(&digests_wait, true, __ATOMIC_RELEASE);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = scene_hop(&s);
    wait_until(claimed_bytes(&s.hold) > TB_HOP_WINDOW_BYTES * 3 / 2);
    assert_int_equal(tb_place_held_count(&s.hold.place), 0);
    __atomic_store_n(&digests_wait, false, __ATOMIC_RELEASE);
    wait_until(tb_place_whole(&s.hold.place));
    tb_hop_close(hop);
    scene_close(&s);
}

struct look {
    struct tb_fabric_job job;
    struct tb_fabric *fabric;
    bool own;
    atomic_bool done;
};

/* On the fabric's thread, to which the door belongs. */
static void look_at_door(struct tb_fabric_job *job)
{
    struct look *l = (struct look *)job;
    const struct tb_door_peer *p = LIST_FIRST(&l->fabric->door->peers);
    l->own = p != NULL && tb_chan_own_records(p->chan);
    atomic_store(&l->done, true);
}

/* Not OpenSSL's, which cost more of a core. */
static void a_hop_inside_tls_has_records_of_ours(void **state)
{
    (void)state;
    const struct way way = {.name = "tcp-tls", .transport = TB_TRANSPORT_TCP, .memory = MEMORY_OWN};
    struct scene s;
    scene_open(&s, &way, 1, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    struct look look = {.job.run = look_at_door, .fabric = s.owner.fabric};
    tb_fabric_post(s.owner.fabric, &look.job);
    wait_until(atomic_load(&look.done));
    assert_true(look.own);
    tb_hop_close(hop);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_transport_of_a_hop_travels_in_a_byte),
        cmocka_unit_test(a_hop_by_shm_says_how_it_reads),
        cmocka_unit_test(a_hop_says_that_not_all_is_attached),
        cmocka_unit_test(threads_that_nobody_asked_for_are_few),
        cmocka_unit_test(a_hop_inside_tls_has_records_of_ours),
        cmocka_unit_test(reads_go_on_while_chunks_are_digested),
        cmocka_unit_test(opening_answers_each_failure),
        cmocka_unit_test(P1_P6_a_transfer_survives_each_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
