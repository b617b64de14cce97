/* trays_hostile.c - requests for trays that no reader of ours makes, and sources that lie about
 * trays or say nothing of them, over a driver that is none (P6, P7).
 *
 * Covers: intra/fabric/door_tray.c intra/transport/shm_tray.c */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/layout/chunk_cut.h"
#include "base/log.h"
#include "intra/cuda_part_trays.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/hop/hop_wire.h"
#include "intra/transport/transport_words.h"
#include "island_device.h"
#include "tests/unit/scratch.h"
#include "trays_scene.h"
#include "unit/cuda/fake_cuda.h"

static const struct way device = {.name = "shm-cuda", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_DEVICE};

static struct sockaddr_un local(const char *door, socklen_t *bytes_out)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const size_t n = strlen(door);
    memcpy(at.sun_path + 1, door, n);
    *bytes_out = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    return at;
}

static void say(int fd, const struct tb_hop_request *r)
{
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_hop_request_encode(r, &w);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

static int greet(struct scene *s)
{
    socklen_t bytes;
    const struct sockaddr_un to = local(s->owner.endpoint.shm_door, &bytes);
    const struct tb_hop_options o = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, bytes), 0);
    say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_HELLO,
                                     .buffer = TB_HOP_WIRE_VERSION,
                                     .a = TB_HOP_WIRE_MAGIC,
                                     .b = EXPORT_ID,
                                     .token = o.token});
    return fd;
}

static int greet_with_tray(struct scene *s, uint64_t bytes)
{
    uint8_t answers[(1 + TB_HOP_TRAY_ANSWERS) * TB_HOP_ANSWER_BYTES];
    const int fd = greet(s);
    say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_TRAY, .a = bytes});
    assert_int_equal(recv(fd, answers, sizeof answers, MSG_WAITALL), sizeof answers);
    return fd;
}

/* P7 P10: what no reader asks is refused, with one line each, and costs no device memory. */
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
        const int fd = hostile[i].tray != 0 ? greet_with_tray(&s, hostile[i].tray) : greet(&s);
        struct tb_hop_request then = hostile[i].then;
        if (then.type == TB_HOP_REQUEST_FILL && then.a == ENDS_BEHIND) then.a = s.cargo.manifest.bytes - 7;
        say(fd, &then);
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
        say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_FILL, .buffer = 3, .bytes = 8});
        say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_PING});
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
    struct tb_hop_answer told_of = {0};
    struct tb_reader r;
    uint8_t bytes[TB_HOP_ANSWER_BYTES];
    scene_open(&s, &device, 6, 3000004, 0);
    const int fd = greet_with_tray(&s, TB_CHUNK_BYTES_MAX + 8);
    say(fd,
        &(struct tb_hop_request){.type = TB_HOP_REQUEST_FILL, .buffer = 3, .bytes = TB_CHUNK_BYTES_MAX + 8});
    assert_int_equal(recv(fd, bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
    tb_reader_init(&r, bytes, sizeof bytes);
    assert_int_equal(tb_hop_answer_decode(&r, &told_of), TB_OK);
    assert_int_equal(told_of.type, TB_HOP_ANSWER_FILLED);
    assert_int_equal(told_of.bytes, 1);
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
        uint8_t bytes[2 * TB_HOP_ANSWER_BYTES];
        struct tb_hop_answer told_of = {0};
        struct tb_reader r;
        fds[i] = greet(&s);
        say(fds[i], &(struct tb_hop_request){.type = TB_HOP_REQUEST_TRAY, .a = 1 << 20});
        assert_int_equal(recv(fds[i], bytes, sizeof bytes, MSG_WAITALL), sizeof bytes);
        tb_reader_init(&r, bytes + TB_HOP_ANSWER_BYTES, TB_HOP_ANSWER_BYTES);
        assert_int_equal(tb_hop_answer_decode(&r, &told_of), TB_OK);
        assert_int_equal(told_of.type, TB_HOP_ANSWER_TRAY);
        given += told_of.a != 0;
    }
    assert_int_equal(given, 8);
    assert_int_equal(trays_ask(&s, FAR_DEVICE_TRAYS), given);
    for (int i = 0; i < READERS; i++)
        close(fds[i]);
    trays_check_nothing_left(&s);
    scene_close(&s);
}

static void answer(int fd, const struct tb_hop_answer *a)
{
    uint8_t bytes[TB_HOP_ANSWER_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_hop_answer_encode(a, &w);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

/* A door's socket of this name that a child is to listen at: the kernel tells a reader
 * whose process that was. */
static int door_make(const char *name)
{
    socklen_t bytes;
    const struct sockaddr_un at = local(name, &bytes);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(listener, (const struct sockaddr *)&at, bytes), 0);
    return listener;
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

/* A door in another process: it greets, has one buffer, waits to be asked for a
 * tray, and answers that. */
static void lie(int listener, const struct tb_hop_answer *answers, uint32_t count)
{
    static const struct tb_hop_answer before[] = {
        {.type = TB_HOP_ANSWER_WELCOME, .kind = 1},
        {.type = TB_HOP_ANSWER_BUFFER, .kind = TB_HOP_BUFFER_STREAM, .a = 1 << 30}};
    uint8_t request[TB_HOP_REQUEST_BYTES];
    const int fd = accept(listener, NULL, NULL);
    for (uint32_t i = 0; i < 2 + count; i++) {
        if (i < 3 && recv(fd, request, sizeof request, MSG_WAITALL) <= 0) _exit(1); /* HELLO, ATTACH, TRAY */
        answer(fd, i < 2 ? &before[i] : &answers[i - 2]);
    }
    (void)read_to_end(fd);
    _exit(0);
}

static void P7_a_lying_source_is_dropped(void **state)
{
    (void)state;
    static const struct tb_hop_answer lies[][2] = {
        {{.type = TB_HOP_ANSWER_TRAY, .kind = 1, .a = 1}},            /* no beginning */
        {{.type = TB_HOP_ANSWER_TRAY, .a = 1}},                       /* another size than was asked for */
        {{.type = TB_HOP_ANSWER_FILLED, .bytes = 1}},                 /* of none */
        {{.type = TB_HOP_ANSWER_TRAY}, {.type = TB_HOP_ANSWER_TRAY}}, /* none, twice */
        {{.type = TB_HOP_ANSWER_TRAY}, {.type = TB_HOP_ANSWER_FILLED, .bytes = 1}},
    };
    struct scene s;
    scene_open(&s, &device, 1, 3000004, 0);
    struct tb_source_shard shard = s.owner.shard;
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct tb_hop *hop = NULL;
        struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
        (void)snprintf(options.from.shm_door, sizeof options.from.shm_door, "tombolo-liar-%d", (int)getpid());
        const int listener = door_make(options.from.shm_door);
        const pid_t child = door_fork(listener);
        if (child == 0) lie(listener, lies[i], lies[i][1].type != 0 ? 2 : 1);
        shard.held_buffer = TB_SOURCE_ALL_HELD;
        options.source = &shard;
        options.idle_ms = PATIENT_MS;
        assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
        tale_wait(&s.tale, &s.tale.told.lost, (uint32_t)i + 1);
        assert_int_equal(told(&s.tale).why, TB_PEER_GARBLED);
        tb_hop_close(hop);
        assert_int_equal(waitpid(child, NULL, 0), child);
        close(listener);
    }
    assert_int_equal(tb_place_held_count(&s.hold.place), 0);
    scene_close(&s);
}

/* A door in another process that lives, and says nothing of trays until it is read from: then
 * all of it, and goes. */
static void be_silent(int listener, uint64_t tray)
{
    static const struct tb_hop_answer welcome = {.type = TB_HOP_ANSWER_WELCOME, .kind = 1},
                                      buffer = {.type = TB_HOP_ANSWER_BUFFER, .a = 1 << 30};
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    const int fd = accept(listener, NULL, NULL);
    while (recv(fd, bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes) {
        struct tb_hop_request request = {0};
        struct tb_reader r;
        tb_reader_init(&r, bytes, sizeof bytes);
        (void)!tb_hop_request_decode(&r, &request);
        if (request.type == TB_HOP_REQUEST_HELLO) answer(fd, &welcome);
        if (request.type == TB_HOP_REQUEST_ATTACH) answer(fd, &buffer);
        if (request.type == TB_HOP_REQUEST_PING)
            answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_PONG, .a = request.a});
        if (request.type != TB_HOP_REQUEST_READ) continue;
        for (uint16_t kind = 0; kind < TB_HOP_TRAY_ANSWERS; kind++)
            answer(fd, &(struct tb_hop_answer){
                           .type = TB_HOP_ANSWER_TRAY, .kind = kind, .a = kind == 0 ? tray : 0});
        (void)shutdown(fd, SHUT_WR);
        (void)read_to_end(fd);
        break;
    }
    _exit(0);
}

/* A reader of it, until its source goes; false: it went before it opened, as it may where
 * this machine is busy. */
static bool opens_without_tray(struct scene *s)
{
    struct tb_hop *hop = NULL;
    struct tb_source_shard shard = s->owner.shard;
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    const struct told before = told(&s->tale);
    (void)snprintf(options.from.shm_door, sizeof options.from.shm_door, "tombolo-silent-%d", (int)getpid());
    const int listener = door_make(options.from.shm_door);
    const pid_t child = door_fork(listener);
    if (child == 0) be_silent(listener, 1 << 20);
    shard.held_buffer = TB_SOURCE_ALL_HELD;
    options.source = &shard;
    options.idle_ms = 1000;
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    wait_until(told(&s->tale).lost > before.lost);
    const struct told after = told(&s->tale);
    tb_hop_close(hop);
    close(listener);
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
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
