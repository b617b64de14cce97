/* announce.c - what was answered in the last moment before a cut is announced after
 * it: the caller's thread may not have run in between. A signal whose handler waits
 * stands for a busy machine.
 *
 * Covers: intra/client/session/reannouncement.c intra/client/session/request.c */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "unit/client/fake_gateway.h"

#define BYTES 5000u

static sem_t held, let_go;

static void hold_thread(int number)
{
    (void)number;
    const int before = errno;
    sem_post(&held);
    while (sem_wait(&let_go) != 0)
        continue;
    errno = before;
}

struct caller {
    struct tb_session *s;
    struct tb_subscription *sub;
    struct tb_registration *r;
    struct tb_uid run;
    pthread_t thread;
    int status;
};

static void *subscribe(void *user)
{
    struct caller *c = user;
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o, .member_count = 1, .model = "policy"};
    c->status = tb_subscribe(c->s, &o, &c->sub);
    return NULL;
}

static void *publish(void *user)
{
    struct caller *c = user;
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = TB_PUBLISH_IN_PLACE,
                                         .model = "policy",
                                         .run = &c->run,
                                         .number = 1,
                                         .shard_count = 1,
                                         .registration = c->r,
                                         .timeout_ms = 20000};
    c->status = tb_publish(c->s, &o, NULL);
    return NULL;
}

/* The caller's request is at the gateway, its thread stands still; then the answer, the
 * cut and the way back. */
static void answer_then_cut(struct fake *f, struct caller *c, enum tb_msg_type type, void *(*call)(void *))
{
    const struct sigaction action = {.sa_handler = hold_thread};
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    assert_int_equal(sem_init(&held, 0, 0) | sem_init(&let_go, 0, 0), 0);
    FAKE_SET(f, mute[type], true);
    assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
    fake_wait_seen(f, type, 1);
    assert_int_equal(pthread_kill(c->thread, SIGUSR1), 0);
    while (sem_wait(&held) != 0)
        continue;
    uint8_t reply[64];
    struct tb_writer w;
    tb_writer_init(&w, reply, sizeof reply);
    const struct tb_msg_reply m = {.status_negated = tb_msg_status_put(TB_OK)};
    tb_msg_reply_encode(&m, &w);
    for (uint64_t request = 1; request < 16; request++) /* whatever its id is: others are nobody's */
        fake_raw(f, 0, TB_MSG_REPLY, request, reply, (uint32_t)w.used);
    FAKE_SET(f, mute[type], false);
    fake_away(f, true);
    fake_away(f, false);
    fake_wait_seen(f, type, 2);
    sem_post(&let_go);
    assert_int_equal(pthread_join(c->thread, NULL), 0);
    CHECK_OK(c->status);
}

/* P6: else the gateway refuses all that this member asks from then on. */
static void a_subscription(void **state)
{
    (void)state;
    struct fake f;
    struct caller c = {0};
    fake_open(&f);
    c.s = fake_session_open(&f, "w0", NULL);
    answer_then_cut(&f, &c, TB_MSG_SUBSCRIBE, subscribe);
    CHECK_OK(tb_unsubscribe(c.sub));
    tb_session_close(c.s);
    fake_close(&f);
}

/* A rank that has joined its run; the memory it registered. */
static uint8_t *rank_open(struct fake *f, struct caller *c)
{
    fake_open(f);
    c->s = fake_session_open(f, "rank0", NULL);
    uint8_t *memory = calloc(1, BYTES);
    const uint64_t shape[] = {BYTES};
    const struct tb_tensor_desc tensor = {
        .name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = memory};
    CHECK_OK(tb_register(c->s, &tensor, 1, &c->r));
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(c->s, "policy", "key-1", &run));
    c->run = run.run;
    return memory;
}

static void rank_close(struct fake *f, struct caller *c, uint8_t *memory)
{
    tb_session_close(c->s);
    fake_close(f);
    free(memory);
}

/* P6: else the gateway has a version that lacks a shard for ever. */
static void a_seal(void **state)
{
    (void)state;
    struct fake f;
    struct caller c = {0};
    uint8_t *memory = rank_open(&f, &c);
    answer_then_cut(&f, &c, TB_MSG_SEAL, publish);
    rank_close(&f, &c, memory);
}

/* P3: a gateway whose disk is full when it comes back has the seal all the same, and hears it again
 * when it comes back anew. */
static void a_seal_while_the_store_is_full(void **state)
{
    (void)state;
    struct fake f;
    struct caller c = {0};
    uint8_t *memory = rank_open(&f, &c);
    (void)publish(&c);
    CHECK_OK(c.status);
    for (uint32_t back = 2; back <= 3; back++) {
        FAKE_SET(&f, refuse[TB_MSG_SEAL], back == 2 ? TB_SITE_STORE : TB_OK);
        fake_away(&f, true);
        fake_away(&f, false);
        fake_wait_seen(&f, TB_MSG_SEAL, back);
        struct tb_run_info run = {.struct_bytes = sizeof run};
        CHECK_OK(tb_run_open(c.s, "policy", "key-1", &run)); /* answered behind the seal */
    }
    rank_close(&f, &c, memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_subscription),
        cmocka_unit_test(a_seal),
        cmocka_unit_test(a_seal_while_the_store_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
