/* door.c - what a door says to a reader whose export is taken back: that it ends,
 * and nothing else (P1). And who gives way where strangers have all places (P7).
 *
 * Covers: intra/fabric/door.c intra/fabric/door_answers.c */
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "intra/fabric/door.h"
#include "intra/fabric/fabric_inside.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/hop_wire.h"
#include "intra/transport/transport_words.h"
#include "island.h"

#define READS 200u /* of 3 MB each: far more than a socket takes while nobody reads */

static int dial(const struct tb_fabric_endpoint *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t n = strlen(e->shm_door);
    memcpy(to.sun_path + 1, e->shm_door, n);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, bytes), 0);
    return fd;
}

static void say(int fd, const struct tb_hop_request *r)
{
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_hop_request_encode(r, &w);
    assert_int_equal(send(fd, bytes, sizeof bytes, MSG_NOSIGNAL), sizeof bytes);
}

/* False: the door hung up. */
static bool hear(int fd, void *to, size_t count)
{
    const ssize_t got = recv(fd, to, count, MSG_WAITALL);
    assert_true(got == 0 || (size_t)got == count);
    return got != 0;
}

static void pass_over(int fd, size_t count)
{
    static uint8_t bytes[1 << 16];
    for (size_t n; count > 0; count -= n) {
        n = count < sizeof bytes ? count : sizeof bytes;
        assert_true(hear(fd, bytes, n));
    }
}

/* Counts the answers of each type until the door hangs up. */
static void count_answers(int fd, uint32_t counts[TB_HOP_ANSWER_END + 1])
{
    uint8_t head[TB_HOP_ANSWER_BYTES];
    while (hear(fd, head, sizeof head)) {
        struct tb_hop_answer a = {0};
        struct tb_reader r;
        tb_reader_init(&r, head, sizeof head);
        assert_int_equal(tb_hop_answer_decode(&r, &a), TB_OK);
        assert_in_range(a.type, TB_HOP_ANSWER_WELCOME, TB_HOP_ANSWER_END);
        assert_int_equal(counts[TB_HOP_ANSWER_END], 0); /* nothing follows it */
        counts[a.type]++;
        if (a.type == TB_HOP_ANSWER_DATA) pass_over(fd, a.bytes);
    }
}

static bool all_was_read(int fd)
{
    int unread = 1;
    assert_int_equal(ioctl(fd, SIOCOUTQ, &unread), 0);
    return unread == 0;
}

static void turn(struct tb_fabric *f, void *arg)
{
    (void)f, (void)arg;
}

/* The door's loop turned, and the socket takes no more of what the door has to say. */
static bool is_blocked(const struct owner *o, int fd)
{
    int before = 0, after = 0;
    assert_int_equal(ioctl(fd, FIONREAD, &before), 0);
    for (int i = 0; i < 4; i++)
        tb_fabric_call(o->fabric, turn, NULL);
    assert_int_equal(ioctl(fd, FIONREAD, &after), 0);
    return before > (int)TB_HOP_ANSWER_BYTES && before == after;
}

static void take_back(struct tb_fabric *f, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&f->lock);
    const struct tb_export *export = tb_exports_find(&f->exports, EXPORT_ID);
    pthread_mutex_unlock(&f->lock);
    tb_door_revoke(f->door, export);
}

/* A PONG would say that the memory may still be read, and a digest that fails over it would
 * be the owner's fault. */
static void P1_who_is_revoked_hears_no_pong(void **state)
{
    (void)state;
    static const struct way way = {.name = "shm-readv", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_OWN};
    struct cargo cargo;
    struct owner owner;
    struct tale tale;
    cargo_make(&cargo, 1, 3000004);
    owner_open(&owner, &way, &cargo, 0);
    struct tb_fabric *reader = fabric_make(&way, 0);
    tale_init(&tale);
    struct tb_hop_place none = {0};
    const struct tb_hop_options o = hop_to(&owner, reader, &way, &none, &tale);
    const int fd = dial(&owner.endpoint);
    say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_HELLO,
                                     .buffer = TB_HOP_WIRE_VERSION,
                                     .a = TB_HOP_WIRE_MAGIC,
                                     .b = EXPORT_ID,
                                     .token = o.token});
    for (uint32_t i = 0; i < READS; i++)
        say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = 3000000});
    wait_until(all_was_read(fd) && is_blocked(&owner, fd));
    say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_PING, .a = 1});
    wait_until(all_was_read(fd));
    tb_fabric_call(owner.fabric, take_back, NULL);
    uint32_t counts[TB_HOP_ANSWER_END + 1] = {0};
    count_answers(fd, counts);
    assert_int_equal(counts[TB_HOP_ANSWER_WELCOME], 1);
    assert_true(counts[TB_HOP_ANSWER_DATA] >= 1);
    assert_int_equal(counts[TB_HOP_ANSWER_PONG], 0);
    assert_int_equal(counts[TB_HOP_ANSWER_END], 1);
    close(fd);
    tb_fabric_close(reader);
    owner_close(&owner);
    cargo_free(&cargo);
    tale_fini(&tale);
}

/* ---- strangers ---- */

static int dial_tcp(const struct tb_fabric_endpoint *e, const char *from)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(from)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("127.0.0.1")};
    unsigned port = 0;
    assert_int_equal(sscanf(e->tcp, "127.0.0.1:%u", &port), 1);
    to.sin_port = htons((uint16_t)port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static struct tb_fabric_usage usage_of(const struct owner *o)
{
    struct tb_fabric_usage u;
    tb_fabric_usage(o->fabric, &u);
    return u;
}

/* One address has opened all the connections without a token that a door takes. A reader of another
 * address comes in: the oldest of them ends. The first address has no place more by that. */
static void P7_strangers_of_one_address_give_way(void **state)
{
    (void)state;
    enum { PLACES = 128, MORE = 3 };
    static const struct way way = {
        .name = "tcp-clear", .transport = TB_TRANSPORT_TCP, .clear = true, .memory = MEMORY_OWN};
    struct cargo cargo;
    struct owner owner;
    struct tale tale;
    uint8_t answer[TB_HOP_ANSWER_BYTES];
    int fds[PLACES + MORE];
    cargo_make(&cargo, 1, 4096);
    owner_open(&owner, &way, &cargo, 0);
    struct tb_fabric *reader = fabric_make(&way, 0);
    tale_init(&tale);
    struct tb_hop_place none = {0};
    const struct tb_hop_options o = hop_to(&owner, reader, &way, &none, &tale);
    for (int i = 0; i < PLACES; i++)
        fds[i] = dial_tcp(&owner.endpoint, "127.0.0.2");
    wait_until(usage_of(&owner).readers == PLACES);
    for (int i = 0; i < MORE; i++) {
        fds[PLACES + i] = dial_tcp(&owner.endpoint, "127.0.0.2");
        assert_false(hear(fds[PLACES + i], answer, 1));
    }
    assert_int_equal(usage_of(&owner).readers_spent, 0);
    const int fd = dial_tcp(&owner.endpoint, "127.0.0.1");
    say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_HELLO,
                                     .buffer = TB_HOP_WIRE_VERSION,
                                     .a = TB_HOP_WIRE_MAGIC,
                                     .b = EXPORT_ID,
                                     .token = o.token});
    assert_true(hear(fd, answer, sizeof answer));
    assert_int_equal(answer[0] | answer[1] << 8, TB_HOP_ANSWER_WELCOME);
    assert_int_equal(usage_of(&owner).readers_spent, 1);
    assert_int_equal(usage_of(&owner).readers_refused, MORE + 1);
    assert_false(hear(fds[0], answer, 1)); /* the oldest */
    (void)close(fd);
    for (int i = 0; i < PLACES + MORE; i++)
        (void)close(fds[i]);
    tale_fini(&tale);
    tb_fabric_close(reader);
    owner_close(&owner);
    cargo_free(&cargo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(P1_who_is_revoked_hears_no_pong),
                                       cmocka_unit_test(P7_strangers_of_one_address_give_way)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
