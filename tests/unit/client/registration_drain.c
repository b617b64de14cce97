/* registration_drain.c - memory that is given back while others read it: how long they drain, what
 * the gateway is asked and told meanwhile, and what other calls answer.
 *
 * Covers: intra/client/memory/registration_suspend.c intra/client/publish/publication.c */
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "intra/client/memory/registration.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"
#include "unit/caught_log.h"
#include "unit/client/lone_rank.h"

#define DRAIN_MS 60000u /* does not end by itself */

static _Atomic(tb_time_ns) ahead; /* of the machine's clock */

tb_time_ns __real_tb_clock_now(void);
tb_time_ns __wrap_tb_clock_now(void);
tb_time_ns __wrap_tb_clock_now(void)
{
    return __real_tb_clock_now() + atomic_load(&ahead);
}

static atomic_uint drained_ms; /* that the last export to close had for its readers */

void __real_tb_export_close(struct tb_fabric *fabric, uint64_t export_id, uint32_t drain_ms);
void __wrap_tb_export_close(struct tb_fabric *fabric, uint64_t export_id, uint32_t drain_ms);
void __wrap_tb_export_close(struct tb_fabric *fabric, uint64_t export_id, uint32_t drain_ms)
{
    atomic_store(&drained_ms, drain_ms);
    __real_tb_export_close(fabric, export_id, drain_ms);
}

/* The gateway's drain begins later, and its answer is on its way for a while: of one as long as
 * ours nobody would hear the end. */
static void the_gateway_drains_for_less(void **state)
{
    (void)state;
    static struct lone_rank w; /* threads use it where a test fails */
    lone_rank_open_draining(&w, DRAIN_MS);
    lone_rank_seal(&w);
    CHECK_OK(tb_suspend(w.r));
    assert_in_range(lone_rank_said(&w), 1, DRAIN_MS - 500);
    CHECK_OK(tb_resume(w.r, NULL, 0));
    CHECK_OK(tb_unregister(w.r));
    assert_in_range(lone_rank_said(&w) & ~TB_MSG_UNPUBLISH_GONE, 1, DRAIN_MS - 500);
    lone_rank_close(&w);
}

static void *suspend(void *user)
{
    CHECK_OK(tb_suspend(user));
    return NULL;
}

/* Looked at under the session's lock until it is so. */
static void wait_for(struct lone_rank *w, bool (*is)(struct lone_rank *w))
{
    const time_t until = time(NULL) + FAKE_BOUND_S;
    for (bool so = false; !so; sched_yield()) {
        tb_session_lock(w->s);
        so = is(w);
        tb_session_unlock(w->s);
        assert_true(time(NULL) < until);
    }
}

static bool is_suspended(struct lone_rank *w)
{
    return w->r->suspended;
}

/* Readers and gateway have all of the drain, however long a pass of ours over the memory takes
 * first. */
static void the_drain_begins_behind_the_last_pass(void **state)
{
    (void)state;
    static struct lone_rank w; /* threads use it where a test fails */
    pthread_t thread;
    lone_rank_open_draining(&w, DRAIN_MS);
    lone_rank_seal(&w);
    tb_session_lock(w.s);
    w.r->passes++;
    tb_session_unlock(w.s);
    assert_int_equal(pthread_create(&thread, NULL, suspend, w.r), 0);
    wait_for(&w, is_suspended);
    atomic_store(&ahead, TB_MS(2 * DRAIN_MS));
    tb_session_lock(w.s);
    w.r->passes--;
    tb_session_changed(w.s, false);
    tb_session_unlock(w.s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_in_range(lone_rank_said(&w), 1, DRAIN_MS - 500);
    lone_rank_close(&w);
    atomic_store(&ahead, 0);
}

/* All that stands in the session's list is asked for, and on the wire. */
static bool all_asked(struct lone_rank *w)
{
    for (const struct tb_publication *p = w->s->publications; p != NULL; p = p->next)
        if (p->hiding == NULL || !p->hiding->sent) return false;
    return true;
}

/* Of the UNPUBLISH of the one behind so many others. */
static uint64_t asked(struct lone_rank *w, uint32_t behind)
{
    wait_for(w, all_asked);
    tb_session_lock(w->s);
    const struct tb_publication *p = w->s->publications;
    for (uint32_t i = 0; i < behind; i++)
        p = p->next;
    const uint64_t request = p->hiding->id;
    tb_session_unlock(w->s);
    return request;
}

static bool second_is_answered(struct lone_rank *w)
{
    return w->s->publications->next->hiding->done;
}

static void answer(struct lone_rank *w, uint64_t request)
{
    const struct tb_msg_reply reply = {.status_negated = 0};
    uint8_t bytes[64];
    struct tb_writer writer;
    tb_writer_init(&writer, bytes, sizeof bytes);
    tb_msg_reply_encode(&reply, &writer);
    fake_raw(&w->f, 0, TB_MSG_REPLY, request, bytes, (uint32_t)writer.used);
}

/* All are asked for at once: behind one that its gateway takes until the end of the drain the
 * others would have none. */
static void all_publications_drain_at_once(void **state)
{
    (void)state;
    static struct lone_rank w; /* threads use it where a test fails */
    pthread_t thread;
    lone_rank_open_draining(&w, DRAIN_MS);
    lone_rank_seal_shards(&w, 2);
    FAKE_SET(&w.f, mute[TB_MSG_UNPUBLISH], true);
    assert_int_equal(pthread_create(&thread, NULL, suspend, w.r), 0);
    fake_wait_seen(&w.f, TB_MSG_UNPUBLISH, 2);
    assert_in_range(lone_rank_said(&w), DRAIN_MS / 2, DRAIN_MS - 500);
    tb_cancel(w.s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    lone_rank_close(&w);
}

/* A gateway that comes anew hears of what it has not answered yet, and not of what is hidden. */
static void a_hidden_version_is_not_announced(void **state)
{
    (void)state;
    static struct lone_rank w; /* threads use it where a test fails */
    pthread_t thread;
    lone_rank_open_draining(&w, DRAIN_MS);
    lone_rank_seal_shards(&w, 2);
    FAKE_SET(&w.f, mute[TB_MSG_UNPUBLISH], true);
    assert_int_equal(pthread_create(&thread, NULL, suspend, w.r), 0);
    answer(&w, asked(&w, 1));
    wait_for(&w, second_is_answered);
    fake_go_away(&w.f, w.s);
    fake_come_back(&w.f, w.s);
    fake_wait_seen(&w.f, TB_MSG_UNPUBLISH, 3);
    assert_int_equal(fake_seen(&w.f, TB_MSG_SEAL), 3);
    tb_cancel(w.s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    lone_rank_close(&w);
}

struct unpublisher {
    struct tb_session *s;
    struct tb_uid uid;
    uint32_t drain_ms;
};

static void *unpublish(void *user)
{
    const struct unpublisher *u = user;
    CHECK_OK(tb_unpublish(u->s, &u->uid, u->drain_ms));
    return NULL;
}

static bool is_unpublished(struct lone_rank *w)
{
    return w->s->publications->unpublished;
}

/* The time that the gateway takes is the readers', too: they were sent elsewhere at its
 * beginning. */
static void an_unpublish_has_one_drain(void **state)
{
    (void)state;
    static const struct {
        uint32_t after_s, least_ms, most_ms;
    } answers[] = {{0, 15000, 20000}, {15, 1, 5000}, {22, 0, 0}};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++) {
        struct lone_rank w;
        pthread_t thread;
        lone_rank_open(&w);
        lone_rank_seal(&w);
        FAKE_SET(&w.f, mute[TB_MSG_UNPUBLISH], true);
        struct unpublisher u = {.s = w.s, .uid = w.info.uid, .drain_ms = 20000};
        assert_int_equal(pthread_create(&thread, NULL, unpublish, &u), 0);
        fake_wait_seen(&w.f, TB_MSG_UNPUBLISH, 1);
        atomic_store(&ahead, TB_SECONDS(answers[i].after_s));
        answer(&w, w.f.unpublish_request);
        assert_int_equal(pthread_join(thread, NULL), 0);
        atomic_store(&ahead, 0);
        assert_in_range(atomic_load(&drained_ms), answers[i].least_ms, answers[i].most_ms);
        lone_rank_close(&w);
    }
}

/* A version that is unpublished while another thread suspends it does not come back with its
 * registration. */
static void a_version_unpublished_beside_a_suspend_is_over(void **state)
{
    (void)state;
    static struct lone_rank w; /* threads use it where a test fails */
    pthread_t threads[2];
    lone_rank_open_draining(&w, DRAIN_MS);
    lone_rank_seal(&w);
    FAKE_SET(&w.f, mute[TB_MSG_UNPUBLISH], true);
    assert_int_equal(pthread_create(&threads[0], NULL, suspend, w.r), 0);
    const uint64_t request = asked(&w, 0);
    fake_wait_seen(&w.f, TB_MSG_UNPUBLISH, 1); /* one that is still under way would be answered */
    FAKE_SET(&w.f, mute[TB_MSG_UNPUBLISH], false);
    struct unpublisher u = {.s = w.s, .uid = w.info.uid};
    assert_int_equal(pthread_create(&threads[1], NULL, unpublish, &u), 0);
    wait_for(&w, is_unpublished); /* and waits for the other */
    answer(&w, request);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    CHECK_OK(tb_resume(w.r, NULL, 0));
    assert_int_equal(fake_seen(&w.f, TB_MSG_SEAL), 1);
    lone_rank_close(&w);
}

/* Resume may come to it first. */
static void nor_when_resume_is_first(void **state)
{
    (void)state;
    static struct lone_rank w; /* threads use it where a test fails */
    lone_rank_open(&w);
    lone_rank_seal(&w);
    CHECK_OK(tb_suspend(w.r));
    tb_session_lock(w.s);
    w.s->publications->unpublished = true;
    tb_session_unlock(w.s);
    CHECK_OK(tb_resume(w.r, NULL, 0));
    assert_int_equal(fake_seen(&w.f, TB_MSG_SEAL), 1);
    assert_null(w.s->publications);
    lone_rank_close(&w);
}

/* P3: the gateway needs it no more since the suspend, and it does not come back. */
static void a_version_unpublished_while_suspended_is_over(void **state)
{
    (void)state;
    static struct lone_rank w; /* threads use it where a test fails */
    lone_rank_open(&w);
    lone_rank_seal(&w);
    CHECK_OK(tb_suspend(w.r));
    FAKE_SET(&w.f, refuse[TB_MSG_UNPUBLISH], TB_NOT_FOUND);
    CHECK_OK(tb_unpublish(w.s, &w.info.uid, 0));
    CHECK_OK(tb_resume(w.r, NULL, 0));
    assert_int_equal(fake_seen(&w.f, TB_MSG_SEAL), 1);
    CHECK_STATUS(tb_unpublish(w.s, &w.info.uid, 0), TB_NOT_FOUND);
    lone_rank_close(&w);
}

static void *resume(void *user)
{
    CHECK_OK(tb_resume(user, NULL, 0));
    return NULL;
}

static bool seals_again(struct lone_rank *w)
{
    const struct tb_request *request = w->s->requests;
    while (request != NULL && request->type != TB_MSG_SEAL)
        request = request->next;
    return request != NULL && request->sent;
}

static uint64_t seal_request(struct lone_rank *w)
{
    wait_for(w, seals_again);
    tb_session_lock(w->s);
    const struct tb_request *request = w->s->requests;
    while (request->type != TB_MSG_SEAL)
        request = request->next;
    const uint64_t id = request->id;
    tb_session_unlock(w->s);
    return id;
}

/* The same beside a resume: sealed again behind the answer to tb_unpublish, it is taken back. */
static void a_version_unpublished_beside_a_resume_is_over(void **state)
{
    (void)state;
    static struct lone_rank w; /* threads use it where a test fails */
    pthread_t threads[2];
    lone_rank_open(&w);
    lone_rank_seal(&w);
    CHECK_OK(tb_suspend(w.r));
    FAKE_SET(&w.f, mute[TB_MSG_SEAL], true);
    assert_int_equal(pthread_create(&threads[0], NULL, resume, w.r), 0);
    const uint64_t request = seal_request(&w);
    struct unpublisher u = {.s = w.s, .uid = w.info.uid};
    assert_int_equal(pthread_create(&threads[1], NULL, unpublish, &u), 0);
    wait_for(&w, is_unpublished);
    assert_int_equal(fake_seen(&w.f, TB_MSG_UNPUBLISH), 2);
    answer(&w, request);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_null(w.s->publications);
    fake_wait_seen(&w.f, TB_MSG_UNPUBLISH, 3);
    assert_true(lone_rank_said_gone(&w));
    lone_rank_close(&w);
}

/* By way of another registration neither: it has no export. */
static void suspended_memory_is_not_published_again(void **state)
{
    (void)state;
    static struct lone_rank w; /* threads use it where a test fails */
    lone_rank_open(&w);
    lone_rank_seal(&w);
    CHECK_OK(tb_suspend(w.r));
    const uint64_t shape[] = {LONE_RANK_BYTES};
    const struct tb_tensor_desc t = {
        .name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = w.memory};
    struct tb_registration *r;
    CHECK_OK(tb_register(w.s, &t, 1, &r));
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(w.s, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = TB_PUBLISH_IN_PLACE,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = 1,
                                         .shard_count = 1,
                                         .registration = r};
    CHECK_STATUS(tb_publish(w.s, &o, NULL), TB_BAD_STATE);
    assert_int_equal(fake_seen(&w.f, TB_MSG_SEAL), 1);
    CHECK_OK(tb_resume(w.r, NULL, 0));
    CHECK_OK(tb_publish(w.s, &o, NULL));
    lone_rank_close(&w);
}

/* Suspends, and gives the log of that. */
static void suspend_told(struct lone_rank *w, char *text, size_t bytes)
{
    const int log = caught_log_new();
    tb_log_set(TB_LOG_WARN, log);
    CHECK_OK(tb_suspend(w->r));
    tb_log_set(TB_LOG_INFO, 2);
    const ssize_t read = pread(log, text, bytes - 1, 0);
    close(log);
    assert_true(read >= 0);
    text[read] = '\0';
}

/* P10: a version that the gateway had not taken at the end is another thing than a gateway that was
 * not asked. */
static void a_version_that_the_gateway_could_not_take_is_told(void **state)
{
    (void)state;
    for (int away = 0; away < 2; away++) {
        struct lone_rank w;
        char text[4096];
        lone_rank_open_draining(&w, DRAIN_MS);
        lone_rank_seal(&w);
        FAKE_SET(&w.f, refuse[TB_MSG_UNPUBLISH], TB_TIMEOUT);
        if (away == 1) fake_go_away(&w.f, w.s);
        suspend_told(&w, text, sizeof text);
        assert_int_equal(strstr(text, "publish.not_taken") != NULL, away == 0);
        assert_int_equal(strstr(text, "publish.hidden_unasked") != NULL, away == 1);
        lone_rank_close(&w);
    }
}

/* With a name: that test alone. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gateway_drains_for_less),
        cmocka_unit_test(the_drain_begins_behind_the_last_pass),
        cmocka_unit_test(all_publications_drain_at_once),
        cmocka_unit_test(a_hidden_version_is_not_announced),
        cmocka_unit_test(an_unpublish_has_one_drain),
        cmocka_unit_test(a_version_unpublished_beside_a_suspend_is_over),
        cmocka_unit_test(nor_when_resume_is_first),
        cmocka_unit_test(a_version_unpublished_while_suspended_is_over),
        cmocka_unit_test(a_version_unpublished_beside_a_resume_is_over),
        cmocka_unit_test(suspended_memory_is_not_published_again),
        cmocka_unit_test(a_version_that_the_gateway_could_not_take_is_told),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
