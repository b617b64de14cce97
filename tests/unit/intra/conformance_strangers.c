/* conformance_strangers.c - who may read at a door, and what becomes of those who ask for more or
 * talk nonsense, over each way to move bytes.
 *
 * Covers: intra/fabric/door.c intra/fabric/door_requests.c */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "conformance.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/hop/hop_wire.h"
#include "intra/transport/transport_words.h"

void P8_a_token_opens_once(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    struct tb_hop *hop = NULL;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    owner_log_catch(&s.owner);
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_lost(&s.tale);
    assert_int_equal(told(&s.tale).why, TB_PEER_TOKEN);
    assert_int_equal(owner_log_lines(&s.owner, "door.refused", "peer_token"), 1); /* P10 */
    tb_hop_close(hop);
    owner_log_release(&s.owner);
    scene_close(&s);
}

void P8_a_wrong_token_is_refused(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = NULL;
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.token.bytes[5] ^= 1;
    owner_log_catch(&s.owner);
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_lost(&s.tale);
    assert_int_equal(told(&s.tale).why, TB_PEER_TOKEN);
    tb_hop_close(hop);
    options.token.bytes[5] ^= 1;
    options.export_id = 8;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait(&s.tale, &s.tale.told.lost, 2);
    assert_int_equal(told(&s.tale).why, TB_PEER_TOKEN);
    tb_hop_close(hop);
    assert_int_equal(owner_log_lines(&s.owner, "door.refused", "peer_token"), 2);
    owner_log_release(&s.owner);
    assert_int_equal(told(&s.tale).opened, 0);
    assert_int_equal(tb_place_held_count(&s.hold.place), 0);
    scene_close(&s);
}

/* With TLS the token is bound to the reader's print, and the reader to the door's. */
void P8_a_wrong_print_is_refused(void **state)
{
    const struct way *way = *state;
    if (!over_network(way) || way->clear) return; /* nothing else has prints */
    struct scene s;
    scene_open(&s, way, 1, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_fabric *thief = fabric_make(way, 0);
    struct tb_hop *hop = NULL;
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    assert_int_equal(tb_hop_open(thief, &options, &hop), TB_OK);
    tale_wait_lost(&s.tale);
    assert_int_equal(told(&s.tale).why, TB_PEER_IDENTITY);
    tb_hop_close(hop);
    tb_fabric_close(thief);

    options.from.fingerprint.bytes[0] ^= 1; /* the reader expects another door */
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait(&s.tale, &s.tale.told.lost, 2);
    assert_int_equal(told(&s.tale).why, TB_PEER_IDENTITY);
    tb_hop_close(hop);

    options.from.fingerprint.bytes[0] ^= 1; /* and the token is still good for whom it was granted to */
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    scene_close(&s);
}

void P7_a_read_outside_the_export_is_refused(void **state)
{
    struct scene s;
    const uint64_t wrong[] = {(uint64_t)1 << 61, 1 << 24, 264 /* the last chunk begins inside */};
    for (int i = 0; i < 3; i++) {
        scene_open(&s, *state, 1, 3000004, 0);
        owner_hold_all(&s.owner);
        s.owner.shard.packed_offset = wrong[i];
        owner_log_catch(&s.owner);
        struct tb_hop *hop = scene_hop(&s);
        tale_wait_lost(&s.tale);
        assert_int_equal(told(&s.tale).why, TB_PEER_GARBLED);
        assert_int_equal(owner_log_lines(&s.owner, "door.refused", "outside"), 1);
        tb_hop_close(hop);
        owner_log_release(&s.owner);
        scene_close(&s);
    }
}

/* ---- hostile peers ---- */

static int dial_local(const struct tb_fabric_endpoint *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t n = strlen(e->shm_door);
    memcpy(to.sun_path + 1, e->shm_door, n);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(
        connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)), 0);
    return fd;
}

static int dial_tcp(const struct tb_fabric_endpoint *e)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    const char *colon = strrchr(e->tcp, ':');
    to.sin_port = htons((uint16_t)atoi(colon + 1));
    char host[64];
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - e->tcp), e->tcp);
    assert_int_equal(inet_pton(AF_INET, host, &to.sin_addr), 1);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static int dial_door(const struct scene *s)
{
    return s->way->transport == TB_TRANSPORT_SHM ? dial_local(&s->owner.endpoint)
                                                 : dial_tcp(&s->owner.endpoint);
}

static void say(int fd, const struct tb_hop_request *r)
{
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_hop_request_encode(r, &w);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

/* Garbage instead of a greeting: dropped with one line, others are served. */
void P7_garbage_at_the_door_is_dropped(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    owner_hold_all(&s.owner);
    owner_log_catch(&s.owner);
    const int fd = dial_door(&s);
    char garbage[4096];
    memset(garbage, 0x16, sizeof garbage); /* also looks like the beginning of TLS */
    (void)!send(fd, garbage, sizeof garbage, MSG_NOSIGNAL);
    (void)read_to_end(fd);
    close(fd);
    if (s.way->transport == TB_TRANSPORT_SHM || s.way->clear)
        wait_until(owner_log_lines(&s.owner, "door.refused", "peer_garbled") == 1);
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    owner_log_release(&s.owner);
    scene_close(&s);
}

/* A reader with a good token that then asks for what it may not: each is dropped with one line. */
void P7_hostile_requests_are_refused(void **state)
{
    struct scene s;
    const struct way *way = *state;
    if (over_network(way) && !way->clear) return; /* the same code behind TLS */
    const struct tb_hop_request hostile[] = {
        {.type = TB_HOP_REQUEST_READ, .buffer = 2, .bytes = 1},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = 0},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .a = 1000, .bytes = 16 << 20}, /* begins inside */
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = UINT32_MAX},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .a = UINT64_MAX, .bytes = 1},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .a = UINT64_MAX - 3, .bytes = 8},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .a = 4, .bytes = 8, .flags = TB_HOP_READ_WORDS},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = 12, .flags = TB_HOP_READ_WORDS},
        {.type = TB_HOP_REQUEST_READ,
         .buffer = 0,
         .bytes = TB_HOP_WORDS_BYTES_MAX + 8,
         .flags = TB_HOP_READ_WORDS},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = 8, .flags = 0x80},
        {.type = TB_HOP_REQUEST_ATTACH, .buffer = 2},
        {.type = TB_HOP_REQUEST_HELLO, .buffer = TB_HOP_WIRE_VERSION, .a = TB_HOP_WIRE_MAGIC},
        {.type = TB_HOP_REQUEST_TRAY},             /* of no bytes, or where there is none */
        {.type = TB_HOP_REQUEST_FILL, .bytes = 1}, /* of no tray */
        {.type = 77},
        {.type = 0},
    };
    int fds[sizeof hostile / sizeof hostile[0]];
    scene_open(&s, way, 1, 3000004, 0);
    owner_log_catch(&s.owner);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const struct tb_hop_options o = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
        fds[i] = dial_door(&s);
        say(fds[i], &(struct tb_hop_request){.type = TB_HOP_REQUEST_HELLO,
                                             .buffer = TB_HOP_WIRE_VERSION,
                                             .a = TB_HOP_WIRE_MAGIC,
                                             .b = EXPORT_ID,
                                             .token = o.token});
        say(fds[i], &hostile[i]);
        wait_until(owner_log_lines(&s.owner, "door.refused", "peer_garbled") == i + 1);
    }
    /* None hangs up by itself: the door gives each a second to read why, all at the same time. */
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const size_t got = read_to_end(fds[i]);
        assert_in_range(got, TB_HOP_ANSWER_BYTES, 2 * TB_HOP_ANSWER_BYTES);
        close(fds[i]);
    }
    wait_until(owner_readers(&s.owner) == 0);
    owner_log_release(&s.owner);
    scene_close(&s);
}

/* More READs than allowed, and answers that nobody reads: the export can still be closed at
 * once. */
void P7_a_flood_of_requests_is_bounded(void **state)
{
    struct scene s;
    const struct way *way = *state;
    if (over_network(way) && !way->clear) return;
    scene_open(&s, way, 1, 3000004, 0);
    const struct tb_hop_options o = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    owner_log_catch(&s.owner);
    const int fd = dial_door(&s);
    say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_HELLO,
                                     .buffer = TB_HOP_WIRE_VERSION,
                                     .a = TB_HOP_WIRE_MAGIC,
                                     .b = EXPORT_ID,
                                     .token = o.token});
    for (uint32_t i = 0; i < TB_HOP_READS_MAX + 50; i++)
        say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = 3000000});
    wait_until(owner_log_lines(&s.owner, "door.refused", "more reads") == 1);
    owner_revoke(&s.owner, 0);
    close(fd);
    owner_log_release(&s.owner);
    scene_close(&s);
}
