/* conformance_liars.c - doors that break the protocol or serve what was not sealed, over each way
 * to move bytes that has a door of its own.
 *
 * Covers: intra/hop/hop_follow.c intra/hop/hop_facts.c */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "conformance.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/hop/hop_wire.h"
#include "intra/transport/transport_words.h"

struct false_door {
    int listener;
    struct tb_fabric_endpoint endpoint;
    const struct tb_hop_answer *answers;
    uint32_t count;
    pthread_t thread;
};

static void answer(int fd, const struct tb_hop_answer *a)
{
    uint8_t bytes[TB_HOP_ANSWER_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_hop_answer_encode(a, &w);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

static void *false_door_main(void *user)
{
    struct false_door *d = user;
    const int fd = accept(d->listener, NULL, NULL);
    uint8_t hello[TB_HOP_REQUEST_BYTES];
    (void)!recv(fd, hello, sizeof hello, MSG_WAITALL);
    for (uint32_t i = 0; i < d->count; i++)
        answer(fd, &d->answers[i]);
    (void)read_to_end(fd);
    close(fd);
    return NULL;
}

static void false_door_open(struct false_door *d, const struct scene *s, void *(*run)(void *))
{
    d->endpoint = s->owner.endpoint;
    if (s->way->transport == TB_TRANSPORT_SHM) {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        snprintf(d->endpoint.shm_door, sizeof d->endpoint.shm_door, "tombolo-false-%d", (int)getpid());
        const size_t n = strlen(d->endpoint.shm_door);
        memcpy(at.sun_path + 1, d->endpoint.shm_door, n);
        d->listener = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(bind(d->listener, (struct sockaddr *)&at,
                              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)),
                         0);
    } else {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t bytes = sizeof at;
        d->listener = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(d->listener, (struct sockaddr *)&at, bytes), 0);
        assert_int_equal(getsockname(d->listener, (struct sockaddr *)&at, &bytes), 0);
        snprintf(d->endpoint.tcp, sizeof d->endpoint.tcp, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    }
    assert_int_equal(listen(d->listener, 1), 0);
    assert_int_equal(pthread_create(&d->thread, NULL, run, d), 0);
}

/* A door that breaks the protocol is dropped by the reader: PEER_GARBLED, nothing is held. */
void P7_a_false_door_is_dropped(void **state)
{
    struct scene s;
    const struct way *way = *state;
    if (over_network(way) && !way->clear) return;
    const struct tb_hop_answer welcome = {.type = TB_HOP_ANSWER_WELCOME, .kind = 1}; /* there is RDMA */
    const struct tb_hop_answer lies[][2] = {
        {{.type = TB_HOP_ANSWER_DATA, .bytes = 5}, {0}},            /* before WELCOME */
        {welcome, {.type = TB_HOP_ANSWER_WELCOME}},                 /* twice */
        {welcome, {.type = TB_HOP_ANSWER_DATA, .bytes = 1u << 30}}, /* more than was asked for */
        {welcome, {.type = TB_HOP_ANSWER_DATA, .bytes = 0}},
        {welcome, {.type = TB_HOP_ANSWER_DATA, .bytes = 900000}},           /* only a bitmap was */
        {welcome, {.type = TB_HOP_ANSWER_PONG, .a = 1}},                    /* that nobody pinged */
        {welcome, {.type = TB_HOP_ANSWER_BUFFER, .buffer = 99, .kind = 2}}, /* that nobody asked for */
        {welcome, {.type = TB_HOP_ANSWER_BUFFER, .kind = 7}},
        {welcome, {.type = TB_HOP_ANSWER_BUFFER, .kind = TB_HOP_BUFFER_VERBS}},
        {{.type = TB_HOP_ANSWER_VERBS}, {0}},                  /* before WELCOME */
        {welcome, {.type = TB_HOP_ANSWER_TRAY, .a = 1 << 20}}, /* that nobody asked for, as the next */
        {welcome, {.type = TB_HOP_ANSWER_FILLED, .bytes = 1}},
        {welcome, {.type = 99}},
    };
    scene_open(&s, way, 1, 3000004, 0);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct false_door d = {.answers = lies[i], .count = 2};
        false_door_open(&d, &s, false_door_main);
        struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
        options.from = d.endpoint;
        struct tb_hop *hop = NULL;
        assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
        tale_wait(&s.tale, &s.tale.told.lost, (uint32_t)i + 1);
        assert_int_equal(told(&s.tale).why, TB_PEER_GARBLED);
        tb_hop_close(hop);
        pthread_join(d.thread, NULL);
        close(d.listener);
    }
    assert_int_equal(tb_place_held_count(&s.hold.place), 0);
    scene_close(&s);
}

/* A door that serves zeros, and when it is asked for a sign of life either gives it or has just
 * taken its memory back. */
struct lying_door {
    struct false_door base;
    bool revokes;
};

static bool lie(const struct lying_door *d, int fd, const struct tb_hop_request *r)
{
    static const uint8_t zeros[1 << 20];
    if (r->type == TB_HOP_REQUEST_HELLO) {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_WELCOME});
    } else if (r->type == TB_HOP_REQUEST_ATTACH) {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_BUFFER, .buffer = r->buffer});
    } else if (r->type == TB_HOP_REQUEST_READ) {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_DATA, .bytes = r->bytes});
        assert_in_range(r->bytes, 1, sizeof zeros);
        (void)!send(fd, zeros, r->bytes, MSG_NOSIGNAL);
    } else if (d->revokes) {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_END, .bytes = (uint32_t)-TB_PEER_REVOKED});
        return false;
    } else {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_PONG, .a = r->a});
    }
    return true;
}

static void *lying_door_main(void *user)
{
    const struct lying_door *d = user;
    const int fd = accept(d->base.listener, NULL, NULL);
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    struct tb_hop_request request = {0};
    struct tb_reader r;
    do {
        if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes) break;
        tb_reader_init(&r, bytes, sizeof bytes);
        assert_int_equal(tb_hop_request_decode(&r, &request), TB_OK);
    } while (lie(d, fd, &request));
    (void)read_to_end(fd);
    close(fd);
    return NULL;
}

/* Chunk 0 comes with wrong bytes. That is the source's fault only if it then still says that the
 * memory is its reader's. */
static void read_from_a_liar(struct scene *s, bool revokes)
{
    struct lying_door d = {.revokes = revokes};
    struct tb_hop *hop = NULL;
    for (uint32_t k = 1; k < s->cargo.manifest.chunk_count; k++) {
        const struct tb_chunk *c = &s->cargo.manifest.chunks[k];
        memcpy(s->hold.bytes + c->offset, s->cargo.bytes + c->offset, c->bytes);
        (void)tb_bitmap_set(s->hold.place.held, k);
    }
    s->owner.shard.held_buffer = TB_SOURCE_ALL_HELD;
    false_door_open(&d.base, s, lying_door_main);
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    options.from = d.base.endpoint;
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    tale_wait(&s->tale, revokes ? &s->tale.told.lost : &s->tale.told.bad, 1);
    tb_hop_close(hop);
    pthread_join(d.base.thread, NULL);
    close(d.base.listener);
    assert_false(tb_place_held(&s->hold.place, 0));
}

void P1_a_failure_counts_only_if_the_source_confirms(void **state)
{
    const struct way *way = *state;
    struct scene s;
    if (over_network(way) && !way->clear) return;
    if (way->transport == TB_TRANSPORT_VERBS)
        return; /* its connection is that of tcp; verbs.c has liars of its own */
    scene_open(&s, way, 2, 600000, 0);
    read_from_a_liar(&s, true);
    assert_int_equal(told(&s.tale).bad, 0);
    assert_int_equal(told(&s.tale).why, TB_PEER_REVOKED);
    scene_close(&s);

    scene_open(&s, way, 2, 600000, 0); /* the twin */
    read_from_a_liar(&s, false);
    assert_int_equal(told(&s.tale).bad, 1);
    assert_int_equal(told(&s.tale).lost, 0);
    scene_close(&s);
}

/* A door that has RDMA, and no NIC that is up. */
struct rdma_door {
    struct false_door base;
    uint64_t again; /* what it says of being asked again */
    uint32_t asked; /* atomic */
};

static void *rdma_door_main(void *user)
{
    struct rdma_door *d = user;
    const int fd = accept(d->base.listener, NULL, NULL);
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    struct tb_hop_request request = {0};
    struct tb_reader r;
    while (recv(fd, bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes) {
        tb_reader_init(&r, bytes, sizeof bytes);
        assert_int_equal(tb_hop_request_decode(&r, &request), TB_OK);
        if (request.type == TB_HOP_REQUEST_HELLO)
            answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_WELCOME, .kind = 1});
        if (request.type == TB_HOP_REQUEST_PING)
            answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_PONG, .a = request.a});
        if (request.type != TB_HOP_REQUEST_VERBS) continue; /* READs wait for ever */
        __atomic_add_fetch(&d->asked, 1, __ATOMIC_RELAXED);
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_VERBS, .a = d->again});
    }
    close(fd);
    return NULL;
}

/* How often it was asked once it had been asked `least` times, and for two seconds more. */
static uint32_t asked_for_rdma(struct scene *s, uint64_t again, uint32_t least)
{
    struct rdma_door d = {.again = again};
    struct tb_hop *hop = NULL;
    false_door_open(&d.base, s, rdma_door_main);
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    options.from = d.base.endpoint;
    options.transport = TB_TRANSPORT_NONE;
    assert_int_equal(tb_name_set(&options.from.host, "elsewhere"), TB_OK);
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    wait_until(__atomic_load_n(&d.asked, __ATOMIC_RELAXED) >= least);
    const tb_time_ns from = tb_clock_now();
    wait_until(tb_clock_now() - from > TB_SECONDS(2)); /* twice the first rest */
    tb_hop_close(hop);
    pthread_join(d.base.thread, NULL);
    close(d.base.listener);
    return d.asked;
}

/* It would end the hop for a second time. The twin: one that says so is asked until it has a
 * path. */
void P9_an_older_door_is_asked_for_rdma_once(void **state)
{
    const struct way *way = *state;
    struct scene s;
    if (way->transport != TB_TRANSPORT_VERBS || !way->clear) return;
    scene_open(&s, way, 1, 3000004, 0);
    assert_int_equal(asked_for_rdma(&s, 0, 1), 1);
    assert_in_range(asked_for_rdma(&s, TB_HOP_VERBS_AGAIN, 2), 2, 4); /* after 1 s, 2 more, 4 more */
    assert_int_equal(told(&s.tale).lost, 0);
    scene_close(&s);
}
