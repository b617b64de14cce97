/* trays_hostile.c - requests for trays that no reader of ours makes, and sources that lie about
 * trays or say nothing of them, over a driver that is none (P6, P7).
 *
 * Covers: intra/fabric/door_tray.c intra/transport/shm_tray.c intra/transport/shm_parts.c */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/layout/chunk_cut.h"
#include "base/log.h"
#include "hostile.h"
#include "intra/cuda_part_trays.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"
#include "island_device.h"
#include "tests/unit/scratch.h"
#include "trays_scene.h"
#include "unit/cuda/fake_cuda.h"

static const struct way device = {.name = "shm-cuda", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_DEVICE};

static int greet_with_tray(struct scene *s, uint64_t bytes)
{
    const int fd = hostile_greet(s);
    hostile_say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_TRAY, .a = bytes});
    for (uint32_t i = 0; i < TB_HOP_TRAY_ANSWERS; i++)
        assert_int_equal(hostile_hear(fd).type, TB_HOP_ANSWER_TRAY);
    return fd;
}

/* P7 P10: a request that no reader makes is refused, with one line each, and costs no device
 * memory. */
static void P7_hostile_requests_for_trays_are_refused(void **state)
{
    (void)state;
    enum { TRAY = 1 << 20, ENDS_BEHIND = 1 << 30 /* begins inside the shard */ };
    static const struct {
        uint64_t tray; /* asked for, and its answers awaited */
        struct tb_hop_request then;
    } hostile[] = {
        {0, {.type = TB_HOP_REQUEST_TRAY}},
        {0, {.type = TB_HOP_REQUEST_TRAY, .a = UINT64_MAX}},
        {0, {.type = TB_HOP_REQUEST_TRAY, .a = TB_GPU_TRAY_BYTES_MAX + 1}},
        {0, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .bytes = 1}},
        {TRAY, {.type = TB_HOP_REQUEST_TRAY, .a = TRAY}},               /* twice */
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 4, .bytes = 1}}, /* another shard */
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .bytes = 0}},
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .bytes = UINT32_MAX}},
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .a = UINT64_MAX, .bytes = 1}},
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .a = UINT64_MAX - 7, .bytes = 16}},
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .a = ENDS_BEHIND, .bytes = 8}},
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .b = TRAY - 7, .bytes = 8}},
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .b = UINT64_MAX, .bytes = 8}},
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .bytes = TRAY + 1}},
        {TRAY, {.type = TB_HOP_REQUEST_FILL, .buffer = 3, .bytes = 8, .flags = 1}},
    };
    struct scene s;
    scene_open(&s, &device, 1, 3000004, 0);
    owner_log_catch(&s.owner);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const int fd = hostile[i].tray != 0 ? greet_with_tray(&s, hostile[i].tray) : hostile_greet(&s);
        struct tb_hop_request then = hostile[i].then;
        if (then.type == TB_HOP_REQUEST_FILL && then.a == ENDS_BEHIND) then.a = s.cargo.manifest.bytes - 7;
        hostile_say(fd, &then);
        wait_until(owner_log_lines(&s.owner, "door.refused", "peer_garbled") == i + 1);
        close(fd);
    }
    trays_check_nothing_left(&s);
    owner_log_release(&s.owner);
    scene_close(&s);
}

/* P7: a reader that hangs up while it is written to has said that its tray is closed:
 * none is kept for good. */
static void P7_who_hangs_up_unheard_leaves_no_tray(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &device, 1, 3000004, 0);
    for (uint32_t i = 0; i < 12; i++) { /* more than there may be */
        const int fd = greet_with_tray(&s, 1 << 20);
        assert_int_equal(shutdown(fd, SHUT_RD), 0);
        hostile_say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_FILL, .buffer = 3, .bytes = 8});
        hostile_say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_PING});
        wait_until(owner_readers(&s.owner) == 0);
        close(fd);
        wait_until(trays_ask(&s, FAR_DEVICE_TRAYS) == 0);
    }
    trays_check_nothing_left(&s);
    scene_close(&s);
}

/* Chunks may be larger than TB_CHUNK_BYTES_MAX: a tensor's last takes what is left. */
static void P1_a_chunk_of_any_size_is_filled(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &device, 6, 3000004, 0);
    const int fd = greet_with_tray(&s, TB_CHUNK_BYTES_MAX + 8);
    hostile_say(fd, &(struct tb_hop_request){
                        .type = TB_HOP_REQUEST_FILL, .buffer = 3, .bytes = TB_CHUNK_BYTES_MAX + 8});
    const struct tb_hop_answer answer = hostile_hear(fd);
    assert_int_equal(answer.type, TB_HOP_ANSWER_FILLED);
    assert_int_equal(answer.bytes, 1);
    close(fd);
    trays_check_nothing_left(&s);
    scene_close(&s);
}

/* P7: more trays than one owner gives: the others are told that there is none. */
static void P7_trays_are_bounded(void **state)
{
    (void)state;
    enum { READERS = 12 };
    struct scene s;
    int fds[READERS];
    uint32_t given = 0;
    scene_open(&s, &device, 1, 3000004, 0);
    for (int i = 0; i < READERS; i++) {
        fds[i] = hostile_greet(&s);
        hostile_say(fds[i], &(struct tb_hop_request){.type = TB_HOP_REQUEST_TRAY, .a = 1 << 20});
        const struct tb_hop_answer answer = hostile_hear(fds[i]);
        assert_int_equal(answer.type, TB_HOP_ANSWER_TRAY);
        given += answer.a != 0;
    }
    assert_int_equal(given, 8);
    assert_int_equal(trays_ask(&s, FAR_DEVICE_TRAYS), given);
    for (int i = 0; i < READERS; i++)
        close(fds[i]);
    trays_check_nothing_left(&s);
    scene_close(&s);
}

/* 0: in the child, which listens. */
static pid_t door_fork(int listener)
{
    int pipes[2];
    char ready = 0;
    assert_int_equal(pipe(pipes), 0);
    const pid_t child = scratch_fork();
    if (child == 0 && (listen(listener, 1) != 0 || write(pipes[1], "l", 1) != 1)) _exit(1);
    if (child != 0) assert_int_equal(read(pipes[0], &ready, 1), 1);
    close(pipes[0]);
    close(pipes[1]);
    return child;
}

/* A door in another process whose buffers come by the connection. */
static pid_t door_begin(struct hostile_door *d)
{
    hostile_door_open(d);
    d->welcome = (struct tb_hop_answer){.type = TB_HOP_ANSWER_WELCOME, .kind = 1};
    d->buffer = (struct tb_hop_answer){.type = TB_HOP_ANSWER_BUFFER, .a = 1 << 30};
    const pid_t child = door_fork(d->listener);
    if (child != 0) return child;
    hostile_door_serve(d);
    _exit(0);
}

static void door_end(struct hostile_door *d, pid_t child)
{
    hostile_door_close(d);
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void lie(void *user, int fd, const struct tb_hop_request *r)
{
    const struct tb_hop_answer *answers = user;
    if (r->type != TB_HOP_REQUEST_TRAY) return;
    hostile_answer(fd, &answers[0]);
    if (answers[1].type != 0) hostile_answer(fd, &answers[1]);
}

static void P7_a_lying_source_is_dropped(void **state)
{
    (void)state;
    static struct tb_hop_answer lies[][2] = {
        {{.type = TB_HOP_ANSWER_TRAY, .kind = 1, .a = 1}},            /* no beginning */
        {{.type = TB_HOP_ANSWER_TRAY, .a = 1}},                       /* another size than was asked for */
        {{.type = TB_HOP_ANSWER_FILLED, .bytes = 1}},                 /* of none */
        {{.type = TB_HOP_ANSWER_TRAY}, {.type = TB_HOP_ANSWER_TRAY}}, /* none, twice */
        {{.type = TB_HOP_ANSWER_TRAY}, {.type = TB_HOP_ANSWER_FILLED, .bytes = 1}},
    };
    struct scene s;
    scene_open(&s, &device, 1, 3000004, 0);
    for (uint32_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct hostile_door door = {.on_request = lie, .user = lies[i]};
        const pid_t child = door_begin(&door);
        struct tb_hop *hop = hostile_hop(&s, &door, PATIENT_MS);
        tale_wait(&s.tale, &s.tale.told.lost, i + 1);
        assert_int_equal(told(&s.tale).why, TB_PEER_GARBLED);
        tb_hop_close(hop);
        door_end(&door, child);
    }
    assert_int_equal(tb_place_held_count(&s.hold.place), 0);
    scene_close(&s);
}

/* It lives, and says nothing of trays until it is read from: then all of it, and goes. */
static void be_silent(void *user, int fd, const struct tb_hop_request *r)
{
    (void)user;
    if (r->type != TB_HOP_REQUEST_READ) return;
    for (uint16_t kind = 0; kind < TB_HOP_TRAY_ANSWERS; kind++)
        hostile_answer(fd, &(struct tb_hop_answer){
                               .type = TB_HOP_ANSWER_TRAY, .kind = kind, .a = kind == 0 ? 1 << 20 : 0});
    (void)shutdown(fd, SHUT_WR);
}

/* A reader of it, until its source goes; false: it went before it opened, as it may where
 * this machine is busy. */
static bool opens_without_tray(struct scene *s)
{
    struct hostile_door door = {.on_request = be_silent};
    const struct told before = told(&s->tale);
    const pid_t child = door_begin(&door);
    struct tb_hop *hop = hostile_hop(s, &door, 1000);
    wait_until(told(&s->tale).lost > before.lost);
    const struct told after = told(&s->tale);
    tb_hop_close(hop);
    door_end(&door, child);
    if (after.opened == before.opened) return false;
    assert_int_equal(after.transport, TB_TRANSPORT_SHM);
    if (after.why == TB_STREAM_IDLE) return false;
    assert_int_equal(after.why,
                     TB_STREAM_CLOSED); /* what it said in the end came late, and was no nonsense */
    return true;
}

/* P6: a source whose driver stands still while it makes a tray is read without one. */
static void P6_no_hop_waits_for_a_tray_for_ever(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &device, 1, 3000004, 0);
    int tries = 1;
    while (!opens_without_tray(&s))
        assert_true(tries++ < 20);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P7_hostile_requests_for_trays_are_refused),
        cmocka_unit_test(P7_who_hangs_up_unheard_leaves_no_tray),
        cmocka_unit_test(P1_a_chunk_of_any_size_is_filled),
        cmocka_unit_test(P7_trays_are_bounded),
        cmocka_unit_test(P7_a_lying_source_is_dropped),
        cmocka_unit_test(P6_no_hop_waits_for_a_tray_for_ever),
    };
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    if (!island_device_begin()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    island_device_end();
    return failed;
}
