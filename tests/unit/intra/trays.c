/* trays.c - chunks out of the memory of another process's GPU (intra/transport/shm_tray.h,
 * intra/fabric/door_tray.h), over a driver that is none. conformance.c tests what each way must do,
 * over shm-cuda as well; here are faults that a tray alone can have.
 *
 * The owner's host copy is spoilt, or its device's bytes are, so that what is held shows
 * which of the two was read. Readers are patient: which way a chunk took shall not hang on
 * what else runs here.
 *
 * Covers: intra/transport/shm_tray.c intra/fabric/door_tray.c intra/cuda/cuda_tray.c */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "intra/cuda_part_trays.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"
#include "island_device.h"
#include "tests/unit/scratch.h"
#include "trays_scene.h"
#include "unit/cuda/fake_cuda.h"

static const struct way device = {.name = "shm-cuda", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_DEVICE};
static const struct way any_way = {.name = "chosen", .transport = TB_TRANSPORT_NONE, .memory = MEMORY_DEVICE};

static struct tb_hop *patient_hop(struct scene *s)
{
    struct tb_hop *hop = NULL;
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    options.idle_ms = PATIENT_MS;
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    return hop;
}

static void refuse_there(struct scene *s, const char *entry, uint32_t nth)
{
    struct far_ask fail = {.op = FAR_DEVICE_FAIL, .a = nth};
    (void)snprintf(fail.words[0], sizeof fail.words[0], "%s", entry);
    (void)far_do(s->owner.far, &fail, NULL);
}

/* P1: with the host's copy spoilt all that is held came from the device, and is what was sealed. */
static void P1_chunks_come_from_the_device(void **state)
{
    (void)state;
    struct scene s;
    struct tb_hop_stats stats;
    scene_open(&s, &any_way, 9, 3000004, 0);
    owner_hold_all(&s.owner);
    owner_spoil_copy(&s.owner);
    struct tb_hop *hop = patient_hop(&s);
    tale_wait_whole(&s.tale);
    tb_hop_stats(hop, &stats);
    assert_int_equal(stats.transport, TB_TRANSPORT_CUDA);
    assert_int_equal(stats.why, TB_WHY_GPU);
    assert_int_equal(stats.bytes_wasted, 0);
    assert_int_equal(stats.bytes_read, s.cargo.manifest.bytes);
    tb_hop_close(hop);
    trays_check_nothing_left(&s);
    scene_close(&s);
}

/* Memory that CUDA IPC does not know (cuMemCreate: an engine that sleeps) is read as
 * well: a tray is of ours. */
static void P1_mapped_memory_is_read_too(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &any_way, 3, 3000004, 0);
    (void)trays_ask(&s, FAR_DEVICE_MAPPED);
    owner_hold_all(&s.owner);
    owner_spoil_copy(&s.owner);
    struct tb_hop *hop = patient_hop(&s);
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).transport, TB_TRANSPORT_CUDA);
    tb_hop_close(hop);
    trays_check_nothing_left(&s);
    scene_close(&s);
}

/* The twin: a reader that has no GPU, and one of the source's own process, read the host's copy. */
static void a_reader_without_a_gpu_reads_the_copy(void **state)
{
    (void)state;
    struct scene s;
    struct tb_hop *hop = NULL;
    struct tb_hop_stats stats;
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS); /* counts from here */
    scene_open(&s, &any_way, 3, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.gpu = NULL;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_whole(&s.tale);
    tb_hop_stats(hop, &stats);
    assert_int_equal(stats.transport, TB_TRANSPORT_SHM);
    assert_int_equal(stats.why, TB_WHY_SAME_HOST);
    tb_hop_close(hop);
    assert_int_equal(fake_cuda_calls("cuIpcOpenMemHandle"), 0);
    scene_close(&s);
}

/* P1: bytes that changed on the device after they were sealed are never held, and
 * the source is told of. */
static void P1_what_was_written_to_is_never_held(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &any_way, 3, 3000004, 0);
    owner_hold_all(&s.owner);
    const uint8_t wrong = (uint8_t)~s.cargo.bytes[s.cargo.manifest.chunks[1].offset];
    owner_put(&s.owner, 64 + s.cargo.manifest.chunks[1].offset, &wrong, 1);
    struct tb_hop *hop = patient_hop(&s);
    tale_wait(&s.tale, &s.tale.told.bad, 1);
    assert_int_equal(told(&s.tale).bad_chunk, 1);
    assert_true(told(&s.tale).bad_twice);
    assert_false(tb_place_held(&s.hold.place, 1));
    tb_hop_close(hop);
    trays_check_nothing_left(&s);
    scene_close(&s);
}

/* P6: whatever the reader's driver refuses, at whichever call, the version arrives, and nothing
 * of the tray is left. */
static void P6_what_the_readers_driver_refuses_costs_no_chunk(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuIpcOpenMemHandle", "cuStreamCreate", "cuEventCreate",
                                          "cuMemcpyAsync",      "cuEventRecord",  "cuEventSynchronize",
                                          "cuCtxPushCurrent"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1; nth <= 4; nth++) {
            struct scene s;
            scene_open(&s, &any_way, 2, 3000004, 0);
            owner_hold_all(&s.owner);
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
            struct tb_hop *hop = patient_hop(&s);
            tale_wait_whole(&s.tale);
            assert_int_equal(told(&s.tale).bad, 0);
            fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
            tb_hop_close(hop);
            trays_check_nothing_left(&s);
            scene_close(&s);
        }
    }
}

/* The same of the source's: where it lends nothing the hop says so, and where a filling fails the
 * rest comes from its copy. */
static void P6_what_the_sources_driver_refuses_costs_no_chunk(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        uint32_t nth_max; /* of a hop */
    } entries[] = {{"cuMemAlloc", 1},        {"cuIpcGetMemHandle", 1}, {"cuStreamCreate", 1},
                   {"cuEventCreate", 1},     {"cuMemcpyAsync", 6},     {"cuEventRecord", 2},
                   {"cuEventSynchronize", 2}};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1; nth <= entries[e].nth_max; nth++) {
            struct scene s;
            struct tb_hop_stats stats;
            scene_open(&s, &any_way, 4, 3000004, 0);
            owner_hold_all(&s.owner);
            refuse_there(&s, entries[e].entry, nth);
            struct tb_hop *hop = patient_hop(&s);
            tale_wait_whole(&s.tale);
            tb_hop_stats(hop, &stats);
            assert_int_equal(told(&s.tale).bad, 0);
            if (trays_ask(&s, FAR_DEVICE_FAILED) && e < 4) {
                assert_int_equal(stats.transport, TB_TRANSPORT_SHM);
                assert_int_equal(stats.why, TB_WHY_GPU_NO_TRAY);
            }
            refuse_there(&s, "", 0);
            tb_hop_close(hop);
            trays_check_nothing_left(&s);
            scene_close(&s);
        }
    }
}

/* ---- standing still ---- */

/* A process that reads the half that is there, says so, and goes when its source ends. */
static void read_and_wait(const struct scene *s, const struct tb_hop_options *options, int to)
{
    /* Of this process nothing but memory is left: a driver, a fabric and a place of its own. */
    struct hold hold;
    struct tale tale;
    struct tb_hop *hop = NULL;
    hold_make(&hold, &s->cargo);
    tale_init(&tale);
    const struct tb_hop_place place = {.shard = 3, .place = &hold.place};
    struct tb_fabric *reader = fabric_make(&device, 0);
    struct tb_hop_options mine = *options;
    mine.places = &place;
    mine.user = &tale;
    if (tb_hop_open(reader, &mine, &hop) != TB_OK) _exit(2);
    tale_wait_opened(&tale);
    wait_until(tb_place_held_count(&hold.place) == s->cargo.manifest.chunk_count / 2);
    if (told(&tale).transport != TB_TRANSPORT_CUDA || write(to, "r", 1) != 1) _exit(3);
    tale_wait_lost(&tale);
    tb_hop_close(hop);
    tb_fabric_close(reader);
    _exit(fake_cuda_counts().ipc == 0 ? 0 : 4);
}

/* P6: a reader that stands still has its tray open, and the owner its memory back. The tray goes
 * when the reader has closed it: the fake ends an owner that frees it before. */
static void P6_a_reader_that_stands_still_keeps_its_tray_alone(void **state)
{
    (void)state;
    struct scene s;
    int pipes[2], code = -1;
    char ready;
    scene_open(&s, &device, 6, 3000004, 0);
    owner_hold(&s.owner, 0, s.cargo.manifest.chunk_count / 2);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.idle_ms = PATIENT_MS;
    assert_int_equal(pipe(pipes), 0);
    tb_fabric_close(s.reader); /* so that the child has no thread of it */
    const pid_t child = scratch_fork();
    if (child == 0) read_and_wait(&s, &options, pipes[1]);
    s.reader = fabric_make(s.way, 0);
    assert_int_equal(read(pipes[0], &ready, 1), 1);
    assert_int_equal(kill(child, SIGSTOP), 0);
    assert_int_equal(waitpid(child, &code, WUNTRACED), child);
    assert_true(WIFSTOPPED(code));
    owner_log_catch(&s.owner);
    owner_revoke(&s.owner, 0); /* returns: the memory is its owner's */
    assert_int_equal(owner_log_lines(&s.owner, "door.reader_stands_still", "memory_is_the_owners"), 1);
    assert_int_equal(trays_ask(&s, FAR_DEVICE_TRAYS), 1);
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    wait_until(trays_ask(&s, FAR_DEVICE_TRAYS) == 0);
    owner_log_release(&s.owner);
    close(pipes[0]);
    close(pipes[1]);
    scene_close(&s);
}

/* A hop while this process's driver stands still in opening the tray; false: it was lost, as it may
 * be where this machine is busy. */
static bool arrives_while_the_driver_stands(struct scene *s)
{
    struct tb_hop *hop = NULL;
    struct tb_hop_stats stats;
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    const struct told before = told(&s->tale);
    options.idle_ms = 1000;
    fake_cuda_hold("cuIpcOpenMemHandle");
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    wait_until(told(&s->tale).whole > 0 || told(&s->tale).lost > before.lost);
    const struct told after = told(&s->tale);
    const bool stood = fake_cuda_held();
    tb_hop_stats(hop, &stats);
    fake_cuda_hold(NULL); /* what it brings is too late, and is closed */
    tb_hop_close(hop);
    if (after.whole == 0) return false;
    assert_true(stood);
    assert_int_equal(stats.transport, TB_TRANSPORT_SHM);
    assert_int_equal(stats.why, TB_WHY_GPU_REFUSED);
    return true;
}

/* P6: likewise of the reader's own driver, while it opens the tray: all chunks come out of the
 * copy, and nothing of it is left. */
static void P6_no_hop_waits_for_its_driver_for_ever(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &any_way, 3, 3000004, 0);
    owner_hold_all(&s.owner);
    int tries = 1;
    while (!arrives_while_the_driver_stands(&s))
        assert_true(tries++ < 20);
    trays_check_nothing_left(&s);
    scene_close(&s);
}

/* The chunks that a hop landed go again, so that the next hop brings all of them. */
static void place_empties(struct tb_place *place)
{
    const size_t bytes = ((size_t)place->manifest->chunk_count + 63) / 64 * sizeof *place->held;
    memset(place->held, 0, bytes);
    memset(place->claimed, 0, bytes);
}

/* P6: more hops than the reader has threads, and each leaves its driver in the opening of a tray. A
 * thread is left that digests. A hop that is lost is one that this machine was too busy for. */
static void P6_drivers_that_stand_leave_a_thread(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &any_way, 3, 3000004, 0);
    owner_hold_all(&s.owner);
    fake_cuda_hold("cuIpcOpenMemHandle");
    for (uint32_t tries = 0, whole = 0; whole < 4; tries++) {
        struct tb_hop *hop = NULL;
        struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
        const struct told before = told(&s.tale);
        options.idle_ms = 1000;
        assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
        wait_until(told(&s.tale).whole > before.whole || told(&s.tale).lost > before.lost);
        if (told(&s.tale).whole > before.whole) whole++;
        tb_hop_close(hop);
        place_empties(s.place.place);
        assert_true(tries < 40);
    }
    fake_cuda_hold(NULL);
    trays_check_nothing_left(&s);
    scene_close(&s);
}

/* P6: a hop whose source is gone says so, and closes, while this process's driver stands still. The
 * tray that the driver opens too late is closed. */
static void P6_a_hop_ends_while_its_driver_stands(void **state)
{
    (void)state;
    struct scene s;
    struct tb_hop *hop = NULL;
    scene_open(&s, &any_way, 3, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.idle_ms = 1000;
    fake_cuda_hold("cuIpcOpenMemHandle");
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    wait_until(fake_cuda_held() || told(&s.tale).lost > 0);
    owner_stand_still(&s.owner, true);
    wait_until(told(&s.tale).lost > 0);
    tb_hop_close(hop);
    owner_stand_still(&s.owner, false);
    fake_cuda_hold(NULL);
    trays_check_nothing_left(&s);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P1_chunks_come_from_the_device),
        cmocka_unit_test(P1_mapped_memory_is_read_too),
        cmocka_unit_test(a_reader_without_a_gpu_reads_the_copy),
        cmocka_unit_test(P1_what_was_written_to_is_never_held),
        cmocka_unit_test(P6_what_the_readers_driver_refuses_costs_no_chunk),
        cmocka_unit_test(P6_what_the_sources_driver_refuses_costs_no_chunk),
        cmocka_unit_test(P6_a_reader_that_stands_still_keeps_its_tray_alone),
        cmocka_unit_test(P6_no_hop_waits_for_its_driver_for_ever),
        cmocka_unit_test(P6_drivers_that_stand_leave_a_thread),
        cmocka_unit_test(P6_a_hop_ends_while_its_driver_stands),
    };
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    if (!island_device_begin()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    island_device_end();
    return failed;
}
