/* registration.c - memory that is the caller's: what is refused, and how it is given
 * back and brought again. */
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
#include "unit/client/fake_inside.h"

#define COUNT    2500000u
#define DRAIN_MS 60000u /* does not end by itself */

static _Atomic(tb_time_ns) ahead; /* of the machine's clock */

tb_time_ns __real_tb_clock_now(void);
tb_time_ns __wrap_tb_clock_now(void);
tb_time_ns __wrap_tb_clock_now(void)
{
    return __real_tb_clock_now() + atomic_load(&ahead);
}

/* What NICs were told of: how often memory came and went. */
struct told {
    const void *bytes;
    uint64_t count;
    atomic_uint stays, goes;
};
static struct told told[2]; /* bytes NULL: not looked at */

void __real_tb_fabric_memory_stays(struct tb_fabric *fabric, const void *bytes, uint64_t count);
void __wrap_tb_fabric_memory_stays(struct tb_fabric *fabric, const void *bytes, uint64_t count);
void __wrap_tb_fabric_memory_stays(struct tb_fabric *fabric, const void *bytes, uint64_t count)
{
    for (uint32_t i = 0; i < 2; i++)
        if (told[i].bytes == bytes && told[i].count == count) told[i].stays++;
    __real_tb_fabric_memory_stays(fabric, bytes, count);
}

void __real_tb_fabric_memory_goes(struct tb_fabric *fabric, const void *bytes);
void __wrap_tb_fabric_memory_goes(struct tb_fabric *fabric, const void *bytes);
void __wrap_tb_fabric_memory_goes(struct tb_fabric *fabric, const void *bytes)
{
    for (uint32_t i = 0; i < 2; i++)
        if (told[i].bytes == bytes) told[i].goes++;
    __real_tb_fabric_memory_goes(fabric, bytes);
}

static atomic_uint drained_ms; /* that the last export to close had for its readers */

void __real_tb_export_close(struct tb_fabric *fabric, uint64_t export_id, uint32_t drain_ms);
void __wrap_tb_export_close(struct tb_fabric *fabric, uint64_t export_id, uint32_t drain_ms);
void __wrap_tb_export_close(struct tb_fabric *fabric, uint64_t export_id, uint32_t drain_ms)
{
    atomic_store(&drained_ms, drain_ms);
    __real_tb_export_close(fabric, export_id, drain_ms);
}

static void listen_for(uint32_t which, const void *bytes, uint64_t count)
{
    told[which].bytes = bytes;
    told[which].count = count;
    told[which].stays = told[which].goes = 0;
}

static void was_told(uint32_t which, uint32_t stays, uint32_t goes)
{
    assert_int_equal(told[which].stays, stays);
    assert_int_equal(told[which].goes, goes);
}

struct world {
    struct fake f;
    struct tb_session *s;
    uint8_t *memory;
    struct tb_registration *r;
    struct tb_publish_info info;
};

static void world_open_draining(struct world *w, uint32_t drain_ms)
{
    memset(w, 0, sizeof *w);
    fake_open(&w->f);
    FAKE_SET(&w->f, drain_ms, drain_ms);
    w->s = fake_session_open(&w->f, "rank0", NULL);
    w->memory = malloc(COUNT);
    uint64_t seed = 3;
    for (uint32_t i = 0; i < COUNT; i++)
        w->memory[i] = (uint8_t)check_random(&seed);
    const uint64_t shape[] = {COUNT};
    const struct tb_tensor_desc t = {
        .name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = w->memory};
    CHECK_OK(tb_register(w->s, &t, 1, &w->r));
}

static void world_open(struct world *w)
{
    world_open_draining(w, 300);
}

static void seal_shards_in_place(struct world *w, uint32_t count)
{
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(w->s, "policy", "k", &run));
    struct tb_publish_options o = {.struct_bytes = sizeof o,
                                   .mode = TB_PUBLISH_IN_PLACE,
                                   .model = "policy",
                                   .run = &run.run,
                                   .number = 1,
                                   .shard_count = count,
                                   .registration = w->r};
    w->info.struct_bytes = sizeof w->info;
    for (; o.shard_index < count; o.shard_index++)
        CHECK_OK(tb_publish(w->s, &o, &w->info));
}

static void seal_in_place(struct world *w)
{
    seal_shards_in_place(w, 1);
}

static void world_close(struct world *w)
{
    tb_session_close(w->s);
    free(w->memory);
    fake_close(&w->f);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    const uint64_t shape[] = {10, 10};
    struct tb_tensor_desc t[2] = {
        {.name = "layer.0.weight", .dtype = "BF16", .rank = 2, .shape = shape, .memory = w.memory},
        {.name = "layer.1.weight", .dtype = "BF16", .rank = 2, .shape = shape, .memory = w.memory + 200}};
    struct tb_registration *r;
    t[1].dtype = "BF17";
    CHECK_STATUS(tb_register(w.s, t, 2, &r), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "layer.1.weight"));
    assert_non_null(strstr(tb_last_error(), "BF17"));
    t[1].dtype = "BF16";
    t[1].rank = 9;
    CHECK_STATUS(tb_register(w.s, t, 2, &r), TB_BAD_ARGUMENT);
    t[1].rank = 2;
    t[1].memory = NULL;
    CHECK_STATUS(tb_register(w.s, t, 2, &r), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "layer.1.weight"));
    t[1].memory = w.memory;
    t[1].name = t[0].name;
    CHECK_STATUS(tb_register(w.s, t, 2, &r), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "both"));
    const uint64_t huge[] = {UINT64_MAX, 4};
    t[1].name = "huge";
    t[1].shape = huge;
    assert_true(tb_register(w.s, t, 2, &r) < 0);
    assert_non_null(strstr(tb_last_error(), "huge"));
    CHECK_STATUS(tb_register(w.s, t, 0, &r), TB_BAD_ARGUMENT);
    world_close(&w);
}

static void registering_needs_no_gateway(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    fake_away(&w.f, true);
    const uint64_t shape[] = {10};
    const struct tb_tensor_desc t = {
        .name = "x", .dtype = "U8", .rank = 1, .shape = shape, .memory = w.memory};
    struct tb_registration *r;
    CHECK_OK(tb_register(w.s, &t, 1, &r));
    CHECK_OK(tb_unregister(r));
    world_close(&w);
}

static void unregister_gives_the_memory_back(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    seal_in_place(&w);
    CHECK_OK(tb_unregister(w.r));
    assert_int_equal(fake_seen(&w.f, TB_SESSION_UNPUBLISH), 1);
    assert_true(fake_read(&w.f, fake_version(&w.f, 1), 0) != TB_OK);
    world_close(&w);
}

/* What the last UNPUBLISH of the shard said. */
static uint32_t said(struct world *w)
{
    pthread_mutex_lock(&w->f.lock);
    const struct tb_session_unpublish m = w->f.unpublished;
    pthread_mutex_unlock(&w->f.lock);
    assert_int_equal(m.shard, 0);
    return m.drain_ms;
}

static bool said_gone(struct world *w)
{
    return (said(w) & TB_SESSION_UNPUBLISH_GONE) != 0;
}

/* P1: memory that was unregistered does not come back, so the gateway is not to count on it even
 * where it could not take all of it in time; suspended memory may. */
static void only_what_is_unregistered_is_gone(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    seal_in_place(&w);
    CHECK_OK(tb_suspend(w.r));
    assert_false(said_gone(&w));
    CHECK_OK(tb_resume(w.r, NULL, 0));
    CHECK_OK(tb_unregister(w.r));
    assert_int_equal(fake_seen(&w.f, TB_SESSION_UNPUBLISH), 2);
    assert_true(said_gone(&w));
    world_close(&w);
}

/* The gateway went on counting on what was suspended: it hears that it is gone, and not of
 * what it needed no more. */
static void what_was_counted_on_while_suspended_is_gone_at_the_end(void **state)
{
    (void)state;
    for (int counted = 0; counted < 2; counted++) {
        struct world w;
        world_open(&w);
        seal_in_place(&w);
        if (counted == 1) FAKE_SET(&w.f, refuse[TB_SESSION_UNPUBLISH], TB_TIMEOUT);
        CHECK_OK(tb_suspend(w.r));
        CHECK_OK(tb_unregister(w.r));
        struct tb_run_info run = {.struct_bytes = sizeof run};
        CHECK_OK(tb_run_open(w.s, "policy", "k", &run)); /* all said before has been heard */
        assert_int_equal(fake_seen(&w.f, TB_SESSION_UNPUBLISH), 1 + counted);
        assert_int_equal(said_gone(&w), counted == 1);
        world_close(&w);
    }
}

/* The same where it comes back with other bytes. */
static void what_does_not_come_back_is_gone(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    seal_in_place(&w);
    FAKE_SET(&w.f, refuse[TB_SESSION_UNPUBLISH], TB_TIMEOUT);
    CHECK_OK(tb_suspend(w.r));
    w.memory[0] ^= 1;
    CHECK_STATUS(tb_resume(w.r, NULL, 0), TB_CONFLICT);
    fake_wait_seen(&w.f, TB_SESSION_UNPUBLISH, 2);
    assert_true(said_gone(&w));
    world_close(&w);
}

/* The gateway's drain begins later, and its answer is on its way for a while: of one as long as
 * ours nobody would hear the end. */
static void the_gateway_drains_for_less(void **state)
{
    (void)state;
    struct world w;
    world_open_draining(&w, DRAIN_MS);
    seal_in_place(&w);
    CHECK_OK(tb_suspend(w.r));
    assert_in_range(said(&w), 1, DRAIN_MS - 500);
    CHECK_OK(tb_resume(w.r, NULL, 0));
    CHECK_OK(tb_unregister(w.r));
    assert_in_range(said(&w) & ~TB_SESSION_UNPUBLISH_GONE, 1, DRAIN_MS - 500);
    world_close(&w);
}

static void *suspend(void *user)
{
    CHECK_OK(tb_suspend(user));
    return NULL;
}

/* Looked at under the session's lock until it is so. */
static void wait_for(struct world *w, bool (*is)(struct world *w))
{
    const time_t until = time(NULL) + FAKE_BOUND_S;
    for (bool so = false; !so; sched_yield()) {
        tb_session_lock(w->s);
        so = is(w);
        tb_session_unlock(w->s);
        assert_true(time(NULL) < until);
    }
}

static bool is_suspended(struct world *w)
{
    return w->r->suspended;
}

/* Readers and gateway have all of the drain, however long a pass of ours over the memory takes
 * first. */
static void the_drain_begins_behind_the_last_pass(void **state)
{
    (void)state;
    struct world w;
    pthread_t thread;
    world_open_draining(&w, DRAIN_MS);
    seal_in_place(&w);
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
    assert_in_range(said(&w), 1, DRAIN_MS - 500);
    world_close(&w);
    atomic_store(&ahead, 0);
}

/* All that stands in the session's list is asked for, and on the wire. */
static bool all_asked(struct world *w)
{
    for (const struct tb_publication *p = w->s->publications; p != NULL; p = p->next)
        if (p->hiding == NULL || !p->hiding->sent) return false;
    return true;
}

/* Of the UNPUBLISH of the one behind so many others. */
static uint64_t asked(struct world *w, uint32_t behind)
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

static bool second_is_answered(struct world *w)
{
    return w->s->publications->next->hiding->done;
}

static void answer(struct world *w, uint64_t request)
{
    const struct tb_session_reply reply = {.status_negated = 0};
    uint8_t bytes[64];
    struct tb_writer writer;
    tb_writer_init(&writer, bytes, sizeof bytes);
    tb_session_reply_encode(&reply, &writer);
    fake_raw(&w->f, 0, TB_SESSION_REPLY, request, bytes, (uint32_t)writer.used);
}

/* All are asked for at once: behind one that its gateway takes until the end of the drain the
 * others would have none. */
static void all_publications_drain_at_once(void **state)
{
    (void)state;
    struct world w;
    pthread_t thread;
    world_open_draining(&w, DRAIN_MS);
    seal_shards_in_place(&w, 2);
    FAKE_SET(&w.f, mute[TB_SESSION_UNPUBLISH], true);
    assert_int_equal(pthread_create(&thread, NULL, suspend, w.r), 0);
    fake_wait_seen(&w.f, TB_SESSION_UNPUBLISH, 2);
    assert_in_range(said(&w), DRAIN_MS / 2, DRAIN_MS - 500);
    tb_cancel(w.s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    world_close(&w);
}

/* A gateway that comes anew hears of what it has not answered yet, and not of what is hidden. */
static void what_is_hidden_is_not_announced(void **state)
{
    (void)state;
    struct world w;
    pthread_t thread;
    world_open_draining(&w, DRAIN_MS);
    seal_shards_in_place(&w, 2);
    FAKE_SET(&w.f, mute[TB_SESSION_UNPUBLISH], true);
    assert_int_equal(pthread_create(&thread, NULL, suspend, w.r), 0);
    answer(&w, asked(&w, 1));
    wait_for(&w, second_is_answered);
    fake_go_away(&w.f, w.s);
    fake_come_back(&w.f, w.s);
    fake_wait_seen(&w.f, TB_SESSION_UNPUBLISH, 3);
    assert_int_equal(fake_seen(&w.f, TB_SESSION_SEAL), 3);
    tb_cancel(w.s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    world_close(&w);
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

static bool is_unpublished(struct world *w)
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
        struct world w;
        pthread_t thread;
        world_open(&w);
        seal_in_place(&w);
        FAKE_SET(&w.f, mute[TB_SESSION_UNPUBLISH], true);
        struct unpublisher u = {.s = w.s, .uid = w.info.uid, .drain_ms = 20000};
        assert_int_equal(pthread_create(&thread, NULL, unpublish, &u), 0);
        fake_wait_seen(&w.f, TB_SESSION_UNPUBLISH, 1);
        atomic_store(&ahead, TB_SECONDS(answers[i].after_s));
        answer(&w, w.f.unpublish_request);
        assert_int_equal(pthread_join(thread, NULL), 0);
        atomic_store(&ahead, 0);
        assert_in_range(atomic_load(&drained_ms), answers[i].least_ms, answers[i].most_ms);
        world_close(&w);
    }
}

/* What is unpublished while another thread suspends it does not come back with its registration. */
static void what_is_unpublished_beside_a_suspend_is_over(void **state)
{
    (void)state;
    struct world w;
    pthread_t threads[2];
    world_open_draining(&w, DRAIN_MS);
    seal_in_place(&w);
    FAKE_SET(&w.f, mute[TB_SESSION_UNPUBLISH], true);
    assert_int_equal(pthread_create(&threads[0], NULL, suspend, w.r), 0);
    const uint64_t request = asked(&w, 0);
    fake_wait_seen(&w.f, TB_SESSION_UNPUBLISH, 1); /* one that is still under way would be answered */
    FAKE_SET(&w.f, mute[TB_SESSION_UNPUBLISH], false);
    struct unpublisher u = {.s = w.s, .uid = w.info.uid};
    assert_int_equal(pthread_create(&threads[1], NULL, unpublish, &u), 0);
    wait_for(&w, is_unpublished); /* and waits for the other */
    answer(&w, request);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    CHECK_OK(tb_resume(w.r, NULL, 0));
    assert_int_equal(fake_seen(&w.f, TB_SESSION_SEAL), 1);
    world_close(&w);
}

/* Resume may come to it first. */
static void nor_when_resume_is_first(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    seal_in_place(&w);
    CHECK_OK(tb_suspend(w.r));
    tb_session_lock(w.s);
    w.s->publications->unpublished = true;
    tb_session_unlock(w.s);
    CHECK_OK(tb_resume(w.r, NULL, 0));
    assert_int_equal(fake_seen(&w.f, TB_SESSION_SEAL), 1);
    assert_null(w.s->publications);
    world_close(&w);
}

/* P3: the gateway needs it no more since the suspend, and it does not come back. */
static void what_is_unpublished_while_suspended_is_over(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    seal_in_place(&w);
    CHECK_OK(tb_suspend(w.r));
    FAKE_SET(&w.f, refuse[TB_SESSION_UNPUBLISH], TB_NOT_FOUND);
    CHECK_OK(tb_unpublish(w.s, &w.info.uid, 0));
    CHECK_OK(tb_resume(w.r, NULL, 0));
    assert_int_equal(fake_seen(&w.f, TB_SESSION_SEAL), 1);
    CHECK_STATUS(tb_unpublish(w.s, &w.info.uid, 0), TB_NOT_FOUND);
    world_close(&w);
}

static void *resume(void *user)
{
    CHECK_OK(tb_resume(user, NULL, 0));
    return NULL;
}

static bool seals_again(struct world *w)
{
    const struct tb_request *request = w->s->requests;
    while (request != NULL && request->type != TB_SESSION_SEAL)
        request = request->next;
    return request != NULL && request->sent;
}

static uint64_t seal_request(struct world *w)
{
    wait_for(w, seals_again);
    tb_session_lock(w->s);
    const struct tb_request *request = w->s->requests;
    while (request->type != TB_SESSION_SEAL)
        request = request->next;
    const uint64_t id = request->id;
    tb_session_unlock(w->s);
    return id;
}

/* The same beside a resume: sealed again behind the answer to tb_unpublish, it is taken back. */
static void what_is_unpublished_beside_a_resume_is_over(void **state)
{
    (void)state;
    struct world w;
    pthread_t threads[2];
    world_open(&w);
    seal_in_place(&w);
    CHECK_OK(tb_suspend(w.r));
    FAKE_SET(&w.f, mute[TB_SESSION_SEAL], true);
    assert_int_equal(pthread_create(&threads[0], NULL, resume, w.r), 0);
    const uint64_t request = seal_request(&w);
    struct unpublisher u = {.s = w.s, .uid = w.info.uid};
    assert_int_equal(pthread_create(&threads[1], NULL, unpublish, &u), 0);
    wait_for(&w, is_unpublished);
    assert_int_equal(fake_seen(&w.f, TB_SESSION_UNPUBLISH), 2);
    answer(&w, request);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_null(w.s->publications);
    fake_wait_seen(&w.f, TB_SESSION_UNPUBLISH, 3);
    assert_true(said_gone(&w));
    world_close(&w);
}

/* By way of another registration neither: it has no export. */
static void what_is_suspended_is_not_published_again(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    seal_in_place(&w);
    CHECK_OK(tb_suspend(w.r));
    const uint64_t shape[] = {COUNT};
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
    assert_int_equal(fake_seen(&w.f, TB_SESSION_SEAL), 1);
    CHECK_OK(tb_resume(w.r, NULL, 0));
    CHECK_OK(tb_publish(w.s, &o, NULL));
    world_close(&w);
}

/* What the log says of a suspend. */
static void suspend_told(struct world *w, char *text, size_t bytes)
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

/* P10: what the gateway had not taken at the end is another thing than a gateway that was not
 * asked. */
static void what_the_gateway_could_not_take_is_told(void **state)
{
    (void)state;
    for (int away = 0; away < 2; away++) {
        struct world w;
        char text[4096];
        world_open_draining(&w, DRAIN_MS);
        seal_in_place(&w);
        FAKE_SET(&w.f, refuse[TB_SESSION_UNPUBLISH], TB_TIMEOUT);
        if (away == 1) fake_go_away(&w.f, w.s);
        suspend_told(&w, text, sizeof text);
        assert_int_equal(strstr(text, "publish.not_taken") != NULL, away == 0);
        assert_int_equal(strstr(text, "publish.hidden_unasked") != NULL, away == 1);
        world_close(&w);
    }
}

/* Also while the gateway is away: readers are cut off after the drain time. */
static void unregister_does_not_wait_for_a_gateway_that_is_away(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    seal_in_place(&w);
    fake_away(&w.f, true);
    CHECK_OK(tb_unregister(w.r));
    world_close(&w);
}

static void suspended_memory_comes_back_when_it_is_the_same(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    seal_in_place(&w);
    CHECK_OK(tb_suspend(w.r));
    CHECK_STATUS(tb_suspend(w.r), TB_BAD_STATE);
    assert_true(fake_read(&w.f, fake_version(&w.f, 1), 0) != TB_OK);
    uint8_t *elsewhere = malloc(COUNT);
    memcpy(elsewhere, w.memory, COUNT);
    memset(w.memory, 0, COUNT); /* an engine slept */
    void *moved[] = {elsewhere};
    CHECK_OK(tb_resume(w.r, moved, 1));
    fake_wait_seen(&w.f, TB_SESSION_SEAL, 2);
    CHECK_OK(fake_read(&w.f, fake_version(&w.f, 1), 0));
    assert_memory_equal(fake_version(&w.f, 1)->shards[0].bytes, elsewhere, COUNT);
    tb_session_close(w.s);
    free(elsewhere);
    free(w.memory);
    fake_close(&w.f);
}

/* P1: the twin. */
static void other_bytes_do_not_come_back(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    seal_in_place(&w);
    CHECK_OK(tb_suspend(w.r));
    w.memory[COUNT - 1] ^= 1;
    CHECK_STATUS(tb_resume(w.r, NULL, 0), TB_CONFLICT);
    assert_non_null(strstr(tb_last_error(), "chunk"));
    assert_int_equal(fake_seen(&w.f, TB_SESSION_SEAL), 1);
    assert_true(fake_read(&w.f, fake_version(&w.f, 1), 0) != TB_OK);
    CHECK_STATUS(tb_resume(w.r, NULL, 0), TB_BAD_STATE);
    world_close(&w);
}

static void publish_number(struct world *w, uint64_t number, struct tb_registration *r, int mode)
{
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(w->s, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = mode,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = number,
                                         .shard_count = 1,
                                         .registration = r};
    w->info.struct_bytes = sizeof w->info;
    CHECK_OK(tb_publish(w->s, &o, &w->info));
}

/* A NIC registers what is published in place once for all versions (pinned_regions.h), until the
 * caller has its memory back: before it is suspended or unregistered, and not before. It may
 * come back elsewhere. */
static void what_is_published_in_place_stays_until_it_is_given_back(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    uint8_t *elsewhere = malloc(COUNT);
    memcpy(elsewhere, w.memory, COUNT);
    listen_for(0, w.memory, COUNT);
    listen_for(1, elsewhere, COUNT);
    publish_number(&w, 1, w.r, TB_PUBLISH_SHADOW);
    was_told(0, 0, 0); /* a shadow is published, and not this */
    for (uint64_t number = 2; number < 5; number++) {
        if (number > 2) CHECK_OK(tb_unpublish(w.s, &w.info.uid, 0));
        publish_number(&w, number, w.r, TB_PUBLISH_IN_PLACE);
        was_told(0, 1, 0);
    }
    CHECK_OK(tb_suspend(w.r));
    was_told(0, 1, 1);
    free(w.memory);
    void *moved[] = {elsewhere};
    CHECK_OK(tb_resume(w.r, moved, 1));
    was_told(1, 1, 0);
    CHECK_OK(tb_unregister(w.r));
    was_told(1, 1, 1);
    was_told(0, 1, 1);
    listen_for(0, NULL, 0);
    listen_for(1, NULL, 0);
    tb_session_close(w.s);
    free(elsewhere);
    fake_close(&w.f);
}

/* The twins: what stands in a buffer of ours stays with that; memory in very many pieces is not
 * looked through for each. */
static void what_is_not_kept_for_nics_is_registered_anew(void **state)
{
    (void)state;
    enum { MANY = 1025 };
    struct world w;
    world_open(&w);
    void *ours = NULL;
    CHECK_OK(tb_buffer_new(w.s, MANY, &ours));
    struct tb_tensor_desc *t = calloc(MANY, sizeof *t);
    char(*names)[8] = calloc(MANY, sizeof *names);
    const uint64_t one = 1;
    for (uint32_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%04u", i);
        t[i] = (struct tb_tensor_desc){
            .name = names[i], .dtype = "U8", .rank = 1, .shape = &one, .memory = w.memory + 10 + 2 * i};
    }
    struct tb_registration *many, *few;
    CHECK_OK(tb_register(w.s, t, MANY, &many));
    t[0].memory = (uint8_t *)ours + 10;
    t[1].memory = w.memory + 5;
    CHECK_OK(tb_register(w.s, t, 2, &few));
    listen_for(0, w.memory + 10, 1);
    publish_number(&w, 1, many, TB_PUBLISH_IN_PLACE);
    was_told(0, 0, 0);
    CHECK_OK(tb_unregister(many));
    was_told(0, 0, 0);
    listen_for(0, (uint8_t *)ours + 10, 1);
    listen_for(1, w.memory + 5, 1);
    publish_number(&w, 2, few, TB_PUBLISH_IN_PLACE);
    CHECK_OK(tb_unregister(few));
    was_told(0, 0, 0);
    was_told(1, 1, 1);
    listen_for(0, NULL, 0);
    listen_for(1, NULL, 0);
    free(names);
    free(t);
    world_close(&w);
}

/* With a name: that test alone. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(what_is_published_in_place_stays_until_it_is_given_back),
        cmocka_unit_test(what_is_not_kept_for_nics_is_registered_anew),
        cmocka_unit_test(registering_needs_no_gateway),
        cmocka_unit_test(unregister_gives_the_memory_back),
        cmocka_unit_test(only_what_is_unregistered_is_gone),
        cmocka_unit_test(what_was_counted_on_while_suspended_is_gone_at_the_end),
        cmocka_unit_test(what_does_not_come_back_is_gone),
        cmocka_unit_test(the_gateway_drains_for_less),
        cmocka_unit_test(the_drain_begins_behind_the_last_pass),
        cmocka_unit_test(all_publications_drain_at_once),
        cmocka_unit_test(what_is_hidden_is_not_announced),
        cmocka_unit_test(an_unpublish_has_one_drain),
        cmocka_unit_test(what_is_unpublished_beside_a_suspend_is_over),
        cmocka_unit_test(nor_when_resume_is_first),
        cmocka_unit_test(what_is_unpublished_while_suspended_is_over),
        cmocka_unit_test(what_is_unpublished_beside_a_resume_is_over),
        cmocka_unit_test(what_is_suspended_is_not_published_again),
        cmocka_unit_test(what_the_gateway_could_not_take_is_told),
        cmocka_unit_test(unregister_does_not_wait_for_a_gateway_that_is_away),
        cmocka_unit_test(suspended_memory_comes_back_when_it_is_the_same),
        cmocka_unit_test(other_bytes_do_not_come_back),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
