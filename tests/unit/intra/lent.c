/* lent.c - hops of a reader that may not read its source's memory: the source puts chunks into
 * memory that the reader lends. Hostile readers and hostile sources (P1, P7).
 *
 * Covers: intra/fabric/door_lent.c intra/transport/shm_lent.c intra/transport/transport_shm.c
 * Covers: intra/transport/pipe.c intra/transport/shm_parts.c intra/fabric/door_requests.c */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/net/chan_bytes.h"
#include "denied_readv.h"
#include "hostile.h"
#include "intra/fabric/lent_memory.h"
#include "intra/transport/transport_words.h"

static const struct way lent = {
    .name = "shm-lent", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_OWN, .denied = true};

#define PATIENT_MS 60000u /* no busy machine is that late */

/* ---- both ends are ours ---- */

static struct tb_hop *chosen_hop(struct scene *s)
{
    struct tb_hop *hop = NULL;
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    options.transport = TB_TRANSPORT_NONE;
    options.idle_ms = PATIENT_MS;
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    return hop;
}

/* More chunks than there are parts: READs wait for parts. */
static void P1_more_chunks_than_parts_arrive(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &lent, 20, 2 << 20, 0);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = chosen_hop(&s);
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).why_transport, TB_WHY_SAME_HOST_LENT);
    assert_int_equal(told(&s.tale).bad, 0);
    tb_hop_close(hop);
    scene_close(&s);
}

/* A chunk of so many tensors that its PUTs are more than may be unanswered. */
static void P1_a_chunk_in_many_pieces_arrives(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &lent, 3000, 260, 0);
    const struct tb_layout *layout = &s.cargo.manifest.layout;
    const uint32_t n = layout->tensor_count;
    struct tb_source_at *at = calloc(n, sizeof *at);
    assert_non_null(at);
    for (uint32_t t = 0; t < n; t++) /* where they stand, packed, each a piece */
        at[t] = (struct tb_source_at){.buffer = 0, .offset = 64 + layout->tensors[t].offset};
    s.owner.shard.scattered = true;
    s.owner.shard.packed_offset = 64 + layout->bytes; /* the blobs */
    s.owner.shard.tensor_count = n;
    s.owner.shard.tensors = at;
    owner_hold_all(&s.owner);
    struct tb_hop *hop = chosen_hop(&s);
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).why_transport, TB_WHY_SAME_HOST_LENT);
    tb_hop_close(hop);
    free(at);
    scene_close(&s);
}

static struct tb_fabric_usage usage_of(struct tb_fabric *fabric)
{
    struct tb_fabric_usage usage;
    tb_fabric_usage(fabric, &usage);
    return usage;
}

/* P7: together readers lend a source no more than a bound, and a reader lends no more. The others
 * are read by the socket, and as much is there again when they have gone. */
static void P7_what_is_lent_is_bounded(void **state)
{
    (void)state;
    enum { HOPS = 24 };
    struct scene s;
    struct hold holds[HOPS];
    struct tb_hop_place places[HOPS];
    struct tb_hop *hops[HOPS];
    struct tale tales[HOPS];
    uint32_t by[TB_WHY_COUNT] = {0};
    scene_open(&s, &lent, 16, 1 << 20, 0);
    for (int i = 0; i < HOPS; i++) {
        hold_make(&holds[i], &s.cargo);
        tale_init(&tales[i]);
        places[i] = (struct tb_hop_place){.shard = 3, .place = &holds[i].place};
        struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &places[i], &tales[i]);
        options.transport = TB_TRANSPORT_NONE;
        options.idle_ms = PATIENT_MS;
        assert_int_equal(tb_hop_open(s.reader, &options, &hops[i]), TB_OK);
        tale_wait_opened(&tales[i]);
        by[told(&tales[i]).why_transport]++;
    }
    assert_true(by[TB_WHY_SAME_HOST_LENT] >= 4 && by[TB_WHY_SAME_HOST_SOCKET] >= 4);
    assert_int_equal(by[TB_WHY_SAME_HOST_LENT] + by[TB_WHY_SAME_HOST_SOCKET], HOPS);
    const struct tb_fabric_usage lends = usage_of(s.reader), borrows = usage_of(s.owner.fabric);
    assert_in_range(lends.lent_bytes, 1, lends.lent_max);
    assert_in_range(borrows.borrowed_bytes, 1, borrows.lent_max);
    for (int i = 0; i < HOPS; i++) {
        tb_hop_close(hops[i]);
        hold_check(&holds[i], &s.cargo);
        hold_free(&holds[i]);
        tale_fini(&tales[i]);
    }
    wait_until(owner_readers(&s.owner) == 0);
    wait_until(usage_of(s.reader).lent_bytes == 0);
    wait_until(usage_of(s.owner.fabric).borrowed_bytes == 0);
    assert_in_range(usage_of(s.owner.fabric).borrowed_most, borrows.borrowed_bytes, borrows.lent_max);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = chosen_hop(&s);
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).why_transport, TB_WHY_SAME_HOST_LENT);
    tb_hop_close(hop);
    scene_close(&s);
}

/* ---- hostile readers ---- */

static void send_fd(int fd, int sent)
{
    char byte = 'F'; /* of base/net/chan_bytes.c */
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    m.msg_control = control.bytes;
    m.msg_controllen = sizeof control.bytes;
    control.head = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.head), &sent, sizeof sent);
    assert_int_equal(sendmsg(fd, &m, MSG_NOSIGNAL), 1);
}

enum { LENT_BYTES = 1 << 20 };

static void lend(int fd, int memory, uint64_t bytes)
{
    hostile_say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_LEND, .a = bytes});
    send_fd(fd, memory);
}

static int greet_and_lend(struct scene *s, uint64_t bytes, struct tb_lent_memory *memory_out)
{
    const int fd = hostile_greet(s);
    assert_int_equal(tb_lent_memory_make(bytes, memory_out), TB_OK);
    lend(fd, memory_out->fd, bytes);
    const struct tb_hop_answer answer = hostile_hear(fd);
    assert_int_equal(answer.type, TB_HOP_ANSWER_LENT);
    assert_int_equal(answer.kind, 0);
    return fd;
}

/* P1: the last byte stands there when the answer comes. PUTs are answered in their order. */
static void P1_a_reader_is_told_of_bytes_that_stand(void **state)
{
    (void)state;
    struct scene s;
    struct tb_lent_memory memory;
    scene_open(&s, &lent, 4, 3000004, 0);
    const uint32_t bytes = 8 << 20;
    assert_true(s.cargo.manifest.bytes > bytes + bytes / 8);
    const int fd = greet_and_lend(&s, 2 * (uint64_t)bytes, &memory);
    for (int i = 0; i < 5; i++) {
        memset(memory.bytes, 0, memory.count);
        for (uint32_t at = 0; at <= bytes; at += bytes)
            hostile_say(fd, &(struct tb_hop_request){
                                .type = TB_HOP_REQUEST_PUT, .a = 64 + at / 8, .b = at, .bytes = bytes});
        for (uint32_t done = 0; done < 2;) {
            const struct tb_hop_answer answer = hostile_hear(fd);
            assert_int_equal(answer.type, TB_HOP_ANSWER_PUT);
            for (uint32_t k = 0; k < answer.bytes; k++, done++)
                assert_memory_equal(memory.bytes + (uint64_t)done * bytes,
                                    s.owner.bytes + 64 + done * (bytes / 8), bytes);
        }
    }
    close(fd);
    tb_lent_memory_close(&memory);
    scene_close(&s);
}

/* P7 P10: each is refused with one line, and a byte outside of what was lent is never written. */
static void P7_hostile_requests_are_refused(void **state)
{
    (void)state;
    enum { BEHIND = 1 << 30 };
    static const struct {
        bool lends;
        struct tb_hop_request then;
    } hostile[] = {
        {false, {.type = TB_HOP_REQUEST_LEND}},
        {false, {.type = TB_HOP_REQUEST_LEND, .a = UINT64_MAX}},
        {false, {.type = TB_HOP_REQUEST_LEND, .a = TB_LENT_BYTES_MAX + 1}},
        {false, {.type = TB_HOP_REQUEST_PUT, .bytes = 1}},
        {true, {.type = TB_HOP_REQUEST_LEND, .a = LENT_BYTES}}, /* twice */
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = 0}},
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = UINT32_MAX}},
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = 8, .flags = 1}},
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = 1, .buffer = 2}},
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = 8, .a = UINT64_MAX - 3}},
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = 8, .a = BEHIND}},
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = 8, .b = LENT_BYTES - 7}},
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = 8, .b = LENT_BYTES}},
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = 8, .b = UINT64_MAX - 3}},
        {true, {.type = TB_HOP_REQUEST_PUT, .bytes = LENT_BYTES + 1}},
    };
    struct scene s;
    scene_open(&s, &lent, 1, 3000004, 0);
    owner_log_catch(&s.owner);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        struct tb_lent_memory memory = {.fd = -1};
        const int fd = hostile[i].lends ? greet_and_lend(&s, LENT_BYTES, &memory) : hostile_greet(&s);
        struct tb_hop_request then = hostile[i].then;
        if (then.a == BEHIND) then.a = s.owner.shard.held_offset + 8;
        hostile_say(fd, &then);
        wait_until(owner_log_lines(&s.owner, "door.refused", "peer_garbled") == i + 1);
        close(fd);
        tb_lent_memory_close(&memory);
    }
    wait_until(owner_readers(&s.owner) == 0);
    owner_log_release(&s.owner);
    scene_close(&s);
}

/* P7 P10: a descriptor that could end the source, or that is none. */
static void P7_hostile_descriptors_are_refused(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &lent, 1, 3000004, 0);
    owner_log_catch(&s.owner);
    const int unsealed = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(unsealed, LENT_BYTES), 0);
    const int small = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(small, 4096), 0);
    assert_int_equal(fcntl(small, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    const int wrong[] = {unsealed, small, STDIN_FILENO};
    uint32_t lines = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const int fd = hostile_greet(&s);
        lend(fd, wrong[i], LENT_BYTES);
        lines++;
        wait_until(owner_log_lines(&s.owner, "door.refused", "not sealed as it should") == lines);
        assert_int_equal(hostile_hear(fd).type, TB_HOP_ANSWER_END);
        close(fd);
    }
    const int fd = hostile_greet(&s); /* no descriptor at all */
    hostile_say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_LEND, .a = LENT_BYTES});
    hostile_say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_PUT, .bytes = 8});
    wait_until(owner_log_lines(&s.owner, "door.refused", "no descriptor") == 1);
    close(fd);
    close(unsealed);
    close(small);
    wait_until(owner_readers(&s.owner) == 0);
    owner_log_release(&s.owner);
    scene_close(&s);
}

/* P6 P7: readers that hang up in the middle leave nothing behind, and the owner gets its memory. */
static void P6_readers_that_hang_up_leave_nothing(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s, &lent, 1, 3000004, 0);
    const uint64_t bytes = (uint64_t)16 << 20;
    for (uint64_t i = 0; i < TB_LENT_ALL_MAX / bytes + 4; i++) { /* more than may be lent together */
        struct tb_lent_memory memory;
        const int fd = greet_and_lend(&s, bytes, &memory);
        tb_lent_memory_close(&memory);
        for (uint64_t k = 0; k < 4; k++)
            hostile_say(fd, &(struct tb_hop_request){
                                .type = TB_HOP_REQUEST_PUT, .b = k * LENT_BYTES, .bytes = LENT_BYTES});
        close(fd);
        wait_until(owner_readers(&s.owner) == 0);
    }
    owner_revoke(&s.owner, 0);
    scene_close(&s);
}

/* ---- hostile sources ---- */

/* A source that changes what it has put for as long as its reader may look at it. */
struct fickle {
    struct hostile_door door;
    const struct scene *scene;
    struct tb_lent_memory memory;
    pthread_t thread, writer;
    atomic_bool over;
};
enum { FIRST = 64 }; /* where chunk 0 stands: its bytes are wrong for sure */

static int receive_fd(int fd)
{
    char byte;
    int got = -1;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    m.msg_control = control.bytes;
    m.msg_controllen = sizeof control.bytes;
    assert_int_equal(recvmsg(fd, &m, 0), 1);
    memcpy(&got, CMSG_DATA(&control.head), sizeof got);
    return got;
}

/* One byte of each page, over and over. The last of a part is digested last. */
static void *change_bytes(void *user)
{
    struct fickle *f = user;
    for (uint8_t by = 1; !atomic_load(&f->over); by++)
        for (uint64_t at = 0; at < f->memory.count; at += 4096)
            __atomic_store_n(&f->memory.bytes[at], by, __ATOMIC_RELAXED);
    return NULL;
}

static void take(struct fickle *f, int fd, uint64_t bytes)
{
    const int memory = receive_fd(fd);
    assert_int_equal(tb_lent_memory_take(memory, bytes, &f->memory), TB_OK);
    close(memory);
    assert_int_equal(pthread_create(&f->writer, NULL, change_bytes, f), 0);
    hostile_answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_LENT});
}

static void put(struct fickle *f, int fd, const struct tb_hop_request *r)
{
    for (uint64_t i = 0; i < r->bytes; i++) /* beside the writer, so each byte by itself */
        __atomic_store_n(&f->memory.bytes[r->b + i], f->scene->owner.bytes[r->a + i], __ATOMIC_RELAXED);
    if (r->a == FIRST) __atomic_fetch_xor(&f->memory.bytes[r->b + 1], 1, __ATOMIC_RELAXED);
    hostile_answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_PUT, .bytes = 1});
}

static void be_fickle(void *user, int fd, const struct tb_hop_request *r)
{
    if (r->type == TB_HOP_REQUEST_LEND) take(user, fd, r->a);
    if (r->type == TB_HOP_REQUEST_PUT) put(user, fd, r);
}

/* A door whose buffers its reader may not read, and that takes memory which is lent. */
static void door_open(struct hostile_door *d)
{
    hostile_door_open(d);
    assert_int_equal(listen(d->listener, 1), 0);
    d->welcome = (struct tb_hop_answer){.type = TB_HOP_ANSWER_WELCOME};
    d->buffer = (struct tb_hop_answer){.type = TB_HOP_ANSWER_BUFFER,
                                       .kind = TB_HOP_BUFFER_ADDRESS,
                                       .bytes = TB_HOP_TAKES_LENT,
                                       .a = 1 << 30};
}

static void *serve_one(void *user)
{
    hostile_door_serve(user);
    return NULL;
}

/* P1: it changes bytes before, during and after the digest. A chunk is held only with its right
 * bytes, and those stay (scene_close looks at each); the others are named bad. */
static void P1_a_source_that_changes_what_it_put_changes_nothing_held(void **state)
{
    (void)state;
    struct scene s;
    struct fickle f = {.scene = &s, .memory = {.fd = -1}, .door = {.on_request = be_fickle, .user = &f}};
    scene_open(&s, &lent, 12, 1 << 20, 0);
    door_open(&f.door);
    assert_int_equal(pthread_create(&f.thread, NULL, serve_one, &f.door), 0);
    struct tb_hop *hop = hostile_hop(&s, &f.door, PATIENT_MS);
    wait_until(told(&s.tale).bad + tb_place_held_count(&s.hold.place) == s.cargo.manifest.chunk_count);
    assert_true(told(&s.tale).bad >= 1 && told(&s.tale).lost == 0);
    assert_false(tb_place_held(&s.hold.place, 0));
    tb_hop_close(hop);
    pthread_join(f.thread, NULL);
    hold_check(&s.hold, &s.cargo); /* while it goes on */
    atomic_store(&f.over, true);
    pthread_join(f.writer, NULL);
    tb_lent_memory_close(&f.memory);
    hostile_door_close(&f.door);
    scene_close(&s);
}

static const struct tb_hop_answer lies[][2] = {
    {{.type = TB_HOP_ANSWER_LENT}, {.type = TB_HOP_ANSWER_LENT}}, /* twice */
    {{.type = TB_HOP_ANSWER_LENT, .kind = 2}, {0}},
    {{.type = TB_HOP_ANSWER_PUT, .bytes = 1}, {0}},              /* before LENT */
    {{.type = TB_HOP_ANSWER_LENT}, {.type = TB_HOP_ANSWER_PUT}}, /* none */
    {{.type = TB_HOP_ANSWER_LENT}, {.type = TB_HOP_ANSWER_PUT, .bytes = UINT32_MAX}},
};

static void lie(void *user, int fd, const struct tb_hop_request *r)
{
    const struct tb_hop_answer *answers = *(const struct tb_hop_answer **)user;
    if (r->type != TB_HOP_REQUEST_LEND) return;
    close(receive_fd(fd));
    hostile_answer(fd, &answers[0]);
    if (answers[1].type != 0) hostile_answer(fd, &answers[1]);
}

static void P7_a_lying_source_is_dropped(void **state)
{
    (void)state;
    struct scene s;
    const struct tb_hop_answer *lie_now = NULL;
    struct hostile_door door = {.on_request = lie, .user = &lie_now};
    scene_open(&s, &lent, 1, 3000004, 0);
    door_open(&door);
    for (uint32_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        pthread_t thread;
        lie_now = lies[i];
        assert_int_equal(pthread_create(&thread, NULL, serve_one, &door), 0);
        struct tb_hop *hop = hostile_hop(&s, &door, PATIENT_MS);
        tale_wait(&s.tale, &s.tale.told.lost, i + 1);
        assert_int_equal(told(&s.tale).why, TB_PEER_GARBLED);
        tb_hop_close(hop);
        pthread_join(thread, NULL);
    }
    hostile_door_close(&door);
    assert_int_equal(tb_place_held_count(&s.hold.place), 0);
    scene_close(&s);
}

/* ---- a descriptor that is sent late ---- */

static atomic_bool descriptors_wait; /* as behind a socket that is full */
static atomic_uint descriptors_sent;

enum tb_status __real_tb_chan_send_fds(struct tb_chan *c, const int *fds, uint32_t count);
enum tb_status __wrap_tb_chan_send_fds(struct tb_chan *c, const int *fds, uint32_t count);

enum tb_status __wrap_tb_chan_send_fds(struct tb_chan *c, const int *fds, uint32_t count)
{
    if (atomic_load(&descriptors_wait)) return TB_AGAIN;
    const enum tb_status status = __real_tb_chan_send_fds(c, fds, count);
    if (status == TB_OK) atomic_fetch_add(&descriptors_sent, 1);
    return status;
}

static void answer_unseen(void *user, int fd, const struct tb_hop_request *r)
{
    (void)user;
    if (r->type == TB_HOP_REQUEST_LEND)
        hostile_answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_LENT});
}

/* P8: a source that says that it has mapped what it was not sent yet. A reader that believed it
 * would close the memory, and then send another file of its own that got that number. */
static void P8_a_descriptor_that_waits_becomes_no_other(void **state)
{
    (void)state;
    struct scene s;
    pthread_t thread;
    struct hostile_door door = {.on_request = answer_unseen};
    scene_open(&s, &lent, 1, 3000004, 0);
    door_open(&door);
    assert_int_equal(pthread_create(&thread, NULL, serve_one, &door), 0);
    atomic_store(&descriptors_sent, 0);
    atomic_store(&descriptors_wait, true);
    struct tb_hop *hop = hostile_hop(&s, &door, PATIENT_MS);
    wait_until(told(&s.tale).lost + told(&s.tale).opened > 0);
    atomic_store(&descriptors_wait, false);
    assert_int_equal(told(&s.tale).opened, 0);
    assert_int_equal(told(&s.tale).why, TB_PEER_GARBLED);
    tb_hop_close(hop);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&descriptors_sent), 0);
    hostile_door_close(&door);
    scene_close(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P1_more_chunks_than_parts_arrive),
        cmocka_unit_test(P1_a_chunk_in_many_pieces_arrives),
        cmocka_unit_test(P7_what_is_lent_is_bounded),
        cmocka_unit_test(P1_a_reader_is_told_of_bytes_that_stand),
        cmocka_unit_test(P7_hostile_requests_are_refused),
        cmocka_unit_test(P7_hostile_descriptors_are_refused),
        cmocka_unit_test(P6_readers_that_hang_up_leave_nothing),
        cmocka_unit_test(P1_a_source_that_changes_what_it_put_changes_nothing_held),
        cmocka_unit_test(P7_a_lying_source_is_dropped),
        cmocka_unit_test(P8_a_descriptor_that_waits_becomes_no_other),
    };
    readv_denied = true;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
