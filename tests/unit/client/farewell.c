/* farewell.c - what ends while the gateway is away, or does not answer, is told to it when it is
 * back: one that kept the session would believe in it for as long as that lives, count on a copy
 * that is gone (P3), and wait for a member that left (P6).
 *
 * Covers: intra/client/session/request.c intra/client/session/reannouncement.c
 * Covers: intra/client/follow/staging_notices.c */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/session_lock.h"
#include "unit/client/fake_inside.h"
#include "unit/client/subscriber.h"

#define BYTES 100000u

static void a_release_is_told_later(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, true);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    fake_go_away(&w.f, w.s);
    CHECK_OK(tb_release(w.sub, &w.uid));
    fake_come_back(&w.f, w.s);
    assert_int_equal(w.v->released, 1);
    subscriber_close(&w);
}

/* The twin: a version that is there still is announced, and not released. */
static void a_version_that_stays_is_not_released(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, true);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    const uint32_t exports = fake_seen(&w.f, TB_MSG_EXPORT);
    fake_go_away(&w.f, w.s);
    fake_come_back(&w.f, w.s);
    assert_int_equal(w.v->released, 0);
    assert_int_equal(fake_seen(&w.f, TB_MSG_EXPORT), exports + 1);
    subscriber_close(&w);
}

/* Else the gateway would hear first that it is gone, and then that it is wanted. */
static void a_version_asked_for_and_let_go_is_not_asked_for(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, true);
    const uint32_t stages = fake_seen(&w.f, TB_MSG_STAGE);
    fake_go_away(&w.f, w.s);
    CHECK_STATUS(tb_stage(w.sub, &w.uid, 0), TB_GATEWAY_AWAY);
    CHECK_OK(tb_release(w.sub, &w.uid));
    fake_come_back(&w.f, w.s);
    assert_int_equal(fake_seen(&w.f, TB_MSG_STAGE), stages);
    subscriber_close(&w);
}

/* It may begin anew meanwhile: the end of what was before does not end that. */
static void a_subscription_begun_anew_is_asked_for_behind_it(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, true);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    fake_go_away(&w.f, w.s);
    CHECK_OK(tb_release(w.sub, &w.uid));
    CHECK_STATUS(tb_stage(w.sub, &w.uid, 0), TB_GATEWAY_AWAY);
    FAKE_SET(&w.f, after_release, 0);
    const uint32_t before = fake_seen(&w.f, TB_MSG_STAGE);
    fake_come_back(&w.f, w.s);
    assert_int_equal(w.v->released, 1);
    pthread_mutex_lock(&w.f.lock);
    const uint32_t behind = w.f.after_release, asked = w.f.seen[TB_MSG_STAGE] - before;
    pthread_mutex_unlock(&w.f.lock);
    assert_true(behind > 0);
    assert_int_equal(behind, asked); /* and none came first */
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    subscriber_close(&w);
}

static void a_member_that_left_is_told_later(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, true);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    fake_go_away(&w.f, w.s);
    CHECK_OK(tb_unsubscribe(w.sub));
    fake_come_back(&w.f, w.s);
    assert_int_equal(w.v->released, 1);
    assert_int_equal(fake_seen(&w.f, TB_MSG_UNSUBSCRIBE), 1);
    subscriber_close(&w);
}

struct caller {
    struct subscriber *w;
    int (*call)(struct caller *c);
    struct tb_registration *r;
    struct tb_subscription *sub;
    int status;
};

static void *call_main(void *user)
{
    struct caller *c = user;
    c->status = c->call(c);
    return NULL;
}

/* The gateway takes the request and is silent; then the caller gives up. */
static void give_up(struct caller *c, enum tb_msg_type type)
{
    pthread_t thread;
    struct fake *f = &c->w->f;
    const uint32_t seen = fake_seen(f, type);
    FAKE_SET(f, mute[type], true);
    assert_int_equal(pthread_create(&thread, NULL, call_main, c), 0);
    fake_wait_seen(f, type, seen + 1);
    tb_cancel(c->w->s);
    assert_int_equal(pthread_join(thread, NULL), 0);
    FAKE_SET(f, mute[type], false);
}

static int release(struct caller *c)
{
    return tb_release(c->w->sub, &c->w->uid);
}

static void a_release_without_an_answer_is_told_again(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, true);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    struct caller c = {.w = &w, .call = release};
    give_up(&c, TB_MSG_RELEASE);
    CHECK_OK(c.status);
    fake_wait_seen(&w.f, TB_MSG_RELEASE, 2);
    subscriber_close(&w);
}

static int subscribe(struct caller *c)
{
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 2, .model = "policy", .group = "engine"};
    return tb_subscribe(c->w->s, &o, &c->sub);
}

/* P6: the gateway may have a member that nobody is: its group would wait for it, and its place be
 * taken. */
static void a_member_that_nobody_is_leaves(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, true);
    struct caller c = {.w = &w, .call = subscribe};
    give_up(&c, TB_MSG_SUBSCRIBE);
    CHECK_STATUS(c.status, TB_CANCELLED);
    fake_wait_seen(&w.f, TB_MSG_UNSUBSCRIBE, 1);
    subscriber_close(&w);
}

/* P7: a gateway may answer anything. A refused subscription does not exist, whatever positive
 * number refuses it. */
static void an_answer_that_is_no_yes_makes_no_member(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, true);
    const uint64_t shape[] = {8};
    uint8_t memory[8];
    const struct tb_tensor_desc t = {.name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = memory};
    struct tb_registration *r;
    CHECK_OK(tb_register(w.s, &t, 1, &r));
    FAKE_SET(&w.f, refuse[TB_MSG_SUBSCRIBE], TB_AGAIN);
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = r};
    struct tb_subscription *sub;
    CHECK_STATUS(tb_subscribe(w.s, &o, &sub), TB_AGAIN);
    CHECK_OK(tb_unregister(r)); /* nobody uses it */
    subscriber_close(&w);
}

/* P6: or its group would wait for a member that cannot. */
static void a_version_without_room_here_is_given_back(void **state)
{
    (void)state;
    struct subscriber w;
    subscriber_open(&w, 1, true);
    tb_fault_arm(TB_FAULT_memfd, 1, false);
    CHECK_STATUS(tb_stage(w.sub, &w.uid, 20000), TB_SITE_NOMEM);
    tb_fault_arm(TB_FAULT_memfd, 0, false);
    fake_wait_seen(&w.f, TB_MSG_RELEASE, 1);
    CHECK_OK(tb_stage(w.sub, &w.uid, 20000));
    subscriber_close(&w);
}

/* ---- of a rank ---- */

struct rank {
    struct subscriber w;
    uint8_t *memory;
    struct tb_registration *r;
};

static void rank_open(struct rank *k)
{
    subscriber_open(&k->w, 1, true);
    k->memory = calloc(1, BYTES);
    const uint64_t shape[] = {BYTES};
    const struct tb_tensor_desc t = {
        .name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = k->memory};
    CHECK_OK(tb_register(k->w.s, &t, 1, &k->r));
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(k->w.s, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = TB_PUBLISH_IN_PLACE,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = 7,
                                         .shard_count = 1,
                                         .registration = k->r};
    struct tb_publish_info info = {.struct_bytes = sizeof info};
    CHECK_OK(tb_publish(k->w.s, &o, &info));
    k->w.uid = info.uid;
}

static void rank_close(struct rank *k)
{
    subscriber_close(&k->w);
    free(k->memory);
}

static void memory_that_went_is_told_later(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    fake_go_away(&k.w.f, k.w.s);
    CHECK_OK(tb_unregister(k.r));
    fake_come_back(&k.w.f, k.w.s);
    assert_int_equal(fake_seen(&k.w.f, TB_MSG_UNPUBLISH), 1);
    rank_close(&k);
}

static int resume(struct caller *c)
{
    return tb_resume(c->r, NULL, 0);
}

/* The seal may have arrived, and the reference does not come back here. */
static void a_seal_that_was_given_up_is_taken_back(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    CHECK_OK(tb_suspend(k.r));
    assert_int_equal(fake_seen(&k.w.f, TB_MSG_UNPUBLISH), 1);
    struct caller c = {.w = &k.w, .call = resume, .r = k.r};
    give_up(&c, TB_MSG_SEAL);
    CHECK_STATUS(c.status, TB_CANCELLED);
    fake_wait_seen(&k.w.f, TB_MSG_UNPUBLISH, 2);
    rank_close(&k);
}

static int publish_anew(struct caller *c)
{
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(c->w->s, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = TB_PUBLISH_IN_PLACE,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = 8,
                                         .shard_count = 1,
                                         .registration = c->r};
    return tb_publish(c->w->s, &o, NULL);
}

/* The gateway hears that it is gone when the drain is over. */
static void check_gone_later(struct rank *k)
{
    fake_wait_seen(&k->w.f, TB_MSG_UNPUBLISH, 1);
    pthread_mutex_lock(&k->w.f.lock);
    const uint32_t said = k->w.f.unpublished.drain_ms;
    pthread_mutex_unlock(&k->w.f.lock);
    assert_true((said & TB_MSG_UNPUBLISH_GONE) != 0);
    assert_true((said & ~TB_MSG_UNPUBLISH_GONE) > 0);
}

/* P3: nor does one of a publish that failed, whose memory is the caller's again. It is not counted
 * on; sealed anew within the drain, it is there again. */
static void a_publish_that_was_given_up_is_gone_later(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    struct caller c = {.w = &k.w, .call = publish_anew, .r = k.r};
    give_up(&c, TB_MSG_SEAL);
    CHECK_STATUS(c.status, TB_CANCELLED);
    check_gone_later(&k);
    rank_close(&k);
}

/* P3: nor of one whose seal the gateway took, and could not write down. */
static void a_publish_that_failed_at_the_store_is_gone_later(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    FAKE_SET(&k.w.f, refuse[TB_MSG_SEAL], TB_SITE_STORE);
    struct caller c = {.w = &k.w, .r = k.r};
    CHECK_STATUS(publish_anew(&c), TB_SITE_STORE);
    check_gone_later(&k);
    rank_close(&k);
}

static int unpublish(struct caller *c)
{
    return tb_unpublish(c->w->s, &c->w->uid, 20000);
}

static bool publication_is(struct rank *k, bool (*is)(const struct tb_publication *p))
{
    struct tb_id uid;
    memcpy(uid.bytes, k->w.uid.bytes, sizeof uid.bytes);
    tb_session_lock(k->w.s);
    const bool so = is(tb_publication_find(k->w.s, &uid, 0));
    tb_session_unlock(k->w.s);
    return so;
}

static void wait_publication(struct rank *k, bool (*is)(const struct tb_publication *p))
{
    for (const time_t until = time(NULL) + FAKE_BOUND_S; !publication_is(k, is); sched_yield())
        assert_true(time(NULL) < until);
}

static bool drains(const struct tb_publication *p)
{
    return p->life == TB_PUBLICATION_REMOVING && p->export_id == 0;
}

static bool is_unpublished(const struct tb_publication *p)
{
    return p->unpublished;
}

static bool is_over(const struct tb_publication *p)
{
    return p == NULL;
}

/* Its readers drain: a gateway that comes back anew does not hear of it again. */
static void a_draining_version_is_not_announced(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    struct fake *f = &k.w.f;
    FAKE_SET(f, remember, false);
    FAKE_SET(f, keep_hop, true);
    CHECK_OK(fake_read(f, fake_version(f, 7), 0)); /* a reader that stays in */
    struct caller c = {.w = &k.w, .call = unpublish};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, call_main, &c), 0);
    wait_publication(&k, drains);
    const uint32_t seals = fake_seen(f, TB_MSG_SEAL);
    fake_go_away(&k.w.f, k.w.s);
    fake_come_back(&k.w.f, k.w.s);
    assert_int_equal(fake_seen(f, TB_MSG_SEAL), seals);
    fake_let_go(f);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CHECK_OK(c.status);
    rank_close(&k);
}

static void *let_go_main(void *user)
{
    struct rank *k = user;
    wait_publication(k, is_unpublished);
    fake_let_go(&k->w.f);
    return NULL;
}

/* P1: the memory is the caller's when the call has returned, also where another call began before
 * it and gives the readers time. */
static void a_second_unpublish_waits_as_well(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    struct fake *f = &k.w.f;
    FAKE_SET(f, keep_hop, true);
    CHECK_OK(fake_read(f, fake_version(f, 7), 0)); /* a reader that stays in */
    struct caller c = {.w = &k.w, .call = unpublish};
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, call_main, &c), 0);
    wait_publication(&k, drains);
    assert_int_equal(pthread_create(&threads[1], NULL, let_go_main, &k), 0);
    FAKE_SET(f, refuse[TB_MSG_UNPUBLISH], TB_NOT_FOUND); /* it has been answered */
    CHECK_OK(tb_unpublish(k.w.s, &k.w.uid, 0));
    assert_true(publication_is(&k, is_over));
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    CHECK_OK(c.status);
    CHECK_STATUS(tb_unpublish(k.w.s, &k.w.uid, 0), TB_NOT_FOUND);
    rank_close(&k);
}

/* P3: the answer was lost in a cut, and the gateway is asked again: what it has not it
 * does not hear of again. Announced, it would read bytes that are the caller's, and the
 * version be broken. */
static void a_version_that_the_gateway_has_not_is_over(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    struct fake *f = &k.w.f;
    FAKE_SET(f, remember, false);
    FAKE_SET(f, refuse[TB_MSG_UNPUBLISH], TB_NOT_FOUND);
    CHECK_OK(tb_unpublish(k.w.s, &k.w.uid, 0));
    assert_true(publication_is(&k, is_over));
    fake_go_away(f, k.w.s);
    fake_come_back(f, k.w.s);
    assert_int_equal(fake_seen(f, TB_MSG_SEAL), 1);
    CHECK_STATUS(tb_unpublish(k.w.s, &k.w.uid, 0), TB_NOT_FOUND);
    rank_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_is_told_later),
        cmocka_unit_test(a_version_that_stays_is_not_released),
        cmocka_unit_test(a_version_asked_for_and_let_go_is_not_asked_for),
        cmocka_unit_test(a_subscription_begun_anew_is_asked_for_behind_it),
        cmocka_unit_test(a_member_that_left_is_told_later),
        cmocka_unit_test(a_release_without_an_answer_is_told_again),
        cmocka_unit_test(a_member_that_nobody_is_leaves),
        cmocka_unit_test(an_answer_that_is_no_yes_makes_no_member),
        cmocka_unit_test(a_version_without_room_here_is_given_back),
        cmocka_unit_test(memory_that_went_is_told_later),
        cmocka_unit_test(a_seal_that_was_given_up_is_taken_back),
        cmocka_unit_test(a_publish_that_was_given_up_is_gone_later),
        cmocka_unit_test(a_publish_that_failed_at_the_store_is_gone_later),
        cmocka_unit_test(a_draining_version_is_not_announced),
        cmocka_unit_test(a_second_unpublish_waits_as_well),
        cmocka_unit_test(a_version_that_the_gateway_has_not_is_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
