/* stage.c - a version's way into a worker: staged from the gateway or from another worker,
 * switched to, released.
 *
 * Covers: intra/client/follow/stage.c intra/client/follow/staging_fill.c
 * Covers: intra/client/follow/staging_places.c intra/client/follow/staging_table.c
 * Covers: intra/client/follow/staged_use.c intra/client/follow/staged_items.c
 * Covers: intra/client/follow/stage_request.c */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "unit/client/fake_gateway.h"

#define TENSOR 1500000u /* bytes of each of 4 tensors, in 2 shards */

struct worker {
    struct tb_session *s;
    uint8_t *memory[4];
    struct tb_registration *r;
    struct tb_subscription *sub;
};

static void worker_open(struct fake *f, struct worker *w, const char *name, const char *host,
                        uint32_t tensors)
{
    memset(w, 0, sizeof *w);
    w->s = fake_session_open(f, name, host);
    struct tb_tensor_desc list[4];
    const char *const names[] = {"t0", "t1", "t2", "t3"};
    const uint64_t shape[] = {TENSOR};
    for (uint32_t i = 0; i < tensors; i++) {
        w->memory[i] = calloc(1, TENSOR);
        list[i] = (struct tb_tensor_desc){
            .name = names[i], .dtype = "U8", .rank = 1, .shape = shape, .memory = w->memory[i]};
    }
    if (tensors > 0) CHECK_OK(tb_register(w->s, list, tensors, &w->r));
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .group = "engine",
                                           .registration = w->r};
    CHECK_OK(tb_subscribe(w->s, &o, &w->sub));
}

static void worker_close(struct worker *w)
{
    tb_session_close(w->s);
    for (int i = 0; i < 4; i++)
        free(w->memory[i]);
}

static void check_memory(const struct worker *w, const struct fake_version *v)
{
    for (uint32_t i = 0; i < 4 && w->memory[i] != NULL; i++) {
        const struct fake_shard *sh = &v->shards[i / 2];
        const struct tb_tensor *t =
            tb_layout_find(&sh->manifest.layout, (const char *const[]){"t0", "t1", "t2", "t3"}[i]);
        assert_non_null(t);
        assert_memory_equal(w->memory[i], sh->bytes + t->offset, TENSOR);
    }
}

/* P2: the new bytes are there after activate and not before, and activate says no until `go`. */
static void stage_then_go_then_activate(void **state)
{
    (void)state;
    struct fake f;
    struct worker w;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, TENSOR);
    const struct tb_uid uid = fake_uid(v);
    worker_open(&f, &w, "w0", "host-a", 4);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    CHECK_STATUS(tb_activate(w.sub, &uid, &info), TB_BAD_STATE);
    if (tb_stage(w.sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    CHECK_OK(tb_stage(w.sub, &uid, 0));
    assert_int_equal(w.memory[0][0] | w.memory[1][7] | w.memory[3][9], 0);
    CHECK_STATUS(tb_activate(w.sub, &uid, &info), TB_AGAIN);
    assert_int_equal(w.memory[0][0] | w.memory[1][7] | w.memory[3][9], 0);
    fake_go(&f, 1);
    CHECK_OK(tb_activate(w.sub, &uid, &info));
    check_memory(&w, v);
    assert_int_equal(info.copied_bytes, 4 * TENSOR);
    assert_true(info.stall_ns > 0);
    fake_wait_seen(&f, TB_MSG_ACTIVATED, 1);
    assert_int_equal(f.activated.copied_bytes, 4 * TENSOR);
    fake_wait_seen(&f, TB_MSG_UPDATED, 1);
    pthread_mutex_lock(&f.lock);
    assert_int_equal(f.updated.subscription, f.activated.subscription);
    assert_memory_equal(f.updated.uid.bytes, uid.bytes, sizeof uid.bytes);
    assert_int_equal(f.updated.way, TB_MSG_WAY_COPY);
    assert_int_equal(f.updated.stall_ns, info.stall_ns);
    assert_int_equal(f.updated.staged_bytes, info.staged_bytes);
    assert_int_equal(f.updated.copied_bytes, 4 * TENSOR);
    pthread_mutex_unlock(&f.lock);
    fake_wait_seen(&f, TB_MSG_EXPORT, 1);
    pthread_mutex_lock(&f.lock);
    assert_true(f.progress.whole && f.progress.held_chunks == f.progress.total_chunks);
    pthread_mutex_unlock(&f.lock);
    CHECK_OK(tb_release(w.sub, &uid));
    CHECK_STATUS(tb_release(w.sub, &uid), TB_NOT_FOUND);
    assert_int_equal(v->released, 1);
    check_memory(&w, v);
    worker_close(&w);
    fake_close(&f);
}

static void items_are_the_version(void **state)
{
    (void)state;
    struct fake f;
    struct worker w;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, 5000);
    const struct tb_uid uid = fake_uid(v);
    worker_open(&f, &w, "w0", NULL, 0);
    struct tb_item item = {.struct_bytes = sizeof item};
    CHECK_STATUS(tb_staged_item(w.sub, &uid, 0, &item), TB_NOT_FOUND);
    CHECK_OK(tb_stage(w.sub, &uid, 20000));
    uint32_t index = 0;
    while (tb_staged_item(w.sub, &uid, index, &item) == TB_OK) {
        const struct fake_shard *sh = &v->shards[index / 3];
        assert_int_equal(item.shard_index, index / 3);
        assert_int_equal(item.is_blob, index % 3 == 2);
        const uint64_t at = (index % 3) * 5000;
        assert_int_equal(item.count, item.is_blob ? 5 : 5000);
        assert_memory_equal(item.bytes, sh->bytes + at, item.count);
        if (item.is_blob)
            assert_string_equal(item.name, "config.json");
        else
            assert_string_equal(item.dtype, "U8");
        index++;
    }
    assert_int_equal(index, 6);
    CHECK_STATUS(tb_staged_item(w.sub, &uid, 6, &item), TB_END);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    fake_go(&f, 1);
    CHECK_OK(tb_activate(w.sub, &uid, &info));
    assert_int_equal(info.copied_bytes, 0);
    fake_wait_seen(&f, TB_MSG_UPDATED, 1);
    assert_int_equal(f.updated.way, TB_MSG_WAY_STAGED);
    worker_close(&w);
    fake_close(&f);
}

/* P9: a gateway of the release before drops who sends it what it does not know, so it is
 * told ACTIVATED alone. */
static void P9_an_older_gateway_is_not_told_of_updates(void **state)
{
    (void)state;
    struct fake f;
    struct worker w;
    fake_open(&f);
    FAKE_SET(&f, older, true);
    const struct tb_uid uid = fake_uid(fake_make(&f, 1, 2, 2, TENSOR));
    worker_open(&f, &w, "w0", "host-a", 4);
    CHECK_OK(tb_stage(w.sub, &uid, 20000));
    fake_go(&f, 1);
    CHECK_OK(tb_activate(w.sub, &uid, NULL));
    CHECK_OK(tb_release(w.sub, &uid)); /* answered behind it */
    assert_int_equal(fake_seen(&f, TB_MSG_ACTIVATED), 1);
    assert_int_equal(fake_seen(&f, TB_MSG_UPDATED), 0);
    assert_int_equal(fake_seen(&f, TB_MSG_HELLO), 1); /* it has not dropped us */
    worker_close(&w);
    fake_close(&f);
}

/* A second worker reads the first one's staging, by tcp and by shm, also from its first chunk
 * on. */
static void a_chain(const char *second_host)
{
    struct fake f;
    struct worker a, b;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, TENSOR);
    const struct tb_uid uid = fake_uid(v);
    FAKE_SET(&f, chain, true);
    FAKE_SET(&f, no_plan, true);
    worker_open(&f, &a, "a", "host-a", 4);
    CHECK_STATUS(tb_stage(a.sub, &uid, 0), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_EXPORT, 1); /* before a byte is there */
    FAKE_SET(&f, no_plan, false);
    worker_open(&f, &b, "b", second_host, 4);
    CHECK_STATUS(tb_stage(b.sub, &uid, 300), TB_AGAIN); /* chained behind one that has nothing */
    FAKE_SET(&f, chain, false);
    fake_plan(&f, 0, 1); /* now a's source comes */
    if (tb_stage(b.sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    CHECK_OK(tb_stage(a.sub, &uid, 20000));
    fake_go(&f, 1);
    CHECK_OK(tb_activate(b.sub, &uid, NULL));
    check_memory(&b, v);
    worker_close(&a);
    worker_close(&b);
    fake_close(&f);
}

static void a_worker_chains_behind_a_worker_by_tcp(void **state)
{
    (void)state;
    a_chain("host-b");
}

static void a_worker_chains_behind_a_worker_by_shm(void **state)
{
    (void)state;
    a_chain("host-a");
}

/* P6: once a second it is told also that nothing came, or its last rate would stand for ever. */
static void a_worker_that_gets_nothing_says_so(void **state)
{
    (void)state;
    struct fake f;
    struct worker a, b;
    fake_open(&f);
    const struct tb_uid uid = fake_uid(fake_make(&f, 1, 2, 2, TENSOR));
    FAKE_SET(&f, chain, true);
    FAKE_SET(&f, no_plan, true);
    worker_open(&f, &a, "a", "host-a", 0);
    CHECK_STATUS(tb_stage(a.sub, &uid, 0), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_EXPORT, 1);
    FAKE_SET(&f, no_plan, false);
    worker_open(&f, &b, "b", "host-b", 0);
    CHECK_STATUS(tb_stage(b.sub, &uid, 0), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_PROGRESS, 2);
    pthread_mutex_lock(&f.lock);
    assert_int_equal(f.progress.held_chunks | f.progress.bytes_per_s | f.progress.whole, 0);
    pthread_mutex_unlock(&f.lock);
    worker_close(&a);
    worker_close(&b);
    fake_close(&f);
}

/* P5, P6: the upstream goes; what is held stays, and the next plan brings the rest. */
static void a_lost_upstream_is_told_and_replaced(void **state)
{
    (void)state;
    struct fake f;
    struct worker a, b;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, TENSOR);
    const struct tb_uid uid = fake_uid(v);
    FAKE_SET(&f, chain, true);
    FAKE_SET(&f, no_plan, true);
    worker_open(&f, &a, "a", "host-a", 0);
    CHECK_STATUS(tb_stage(a.sub, &uid, 0), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_EXPORT, 1);
    FAKE_SET(&f, no_plan, false);
    worker_open(&f, &b, "b", "host-b", 4);
    CHECK_STATUS(tb_stage(b.sub, &uid, 200), TB_AGAIN);
    worker_close(&a);
    fake_wait_seen(&f, TB_MSG_HOP_LOST, 1);
    assert_int_equal(f.hop_lost.plan, f.next_plan);
    FAKE_SET(&f, chain, false);
    uint32_t index = 0;
    pthread_mutex_lock(&f.lock);
    while (f.sessions[index].wire == NULL || strcmp(f.sessions[index].hello.name.text, "b") != 0)
        index++;
    pthread_mutex_unlock(&f.lock);
    fake_plan(&f, index, 1);
    if (tb_stage(b.sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(&f, 1);
    CHECK_OK(tb_activate(b.sub, &uid, NULL));
    check_memory(&b, v);
    worker_close(&b);
    fake_close(&f);
}

/* `go` was heard: the switch does not need the gateway. Without it, it does (P2). */
static void go_stays_good_while_the_gateway_is_away(void **state)
{
    (void)state;
    struct fake f;
    struct worker w;
    fake_open(&f);
    struct fake_version *v1 = fake_make(&f, 1, 2, 2, TENSOR), *v2 = fake_make(&f, 2, 2, 2, TENSOR);
    const struct tb_uid uid1 = fake_uid(v1), uid2 = fake_uid(v2);
    worker_open(&f, &w, "w", NULL, 4);
    CHECK_OK(tb_stage(w.sub, &uid1, 20000));
    CHECK_OK(tb_stage(w.sub, &uid2, 20000));
    fake_go(&f, 1);
    CHECK_OK(tb_status(w.s, "site", NULL, 0, NULL) == TB_TOO_LARGE
                 ? TB_OK
                 : TB_AGAIN); /* GO came before its answer */
    fake_go_away(&f, w.s);
    CHECK_STATUS(tb_activate(w.sub, &uid2, NULL), TB_GATEWAY_AWAY);
    CHECK_OK(tb_activate(w.sub, &uid1, NULL));
    check_memory(&w, v1);
    const uint32_t before = fake_seen(&f, TB_MSG_SUBSCRIBE), exports = fake_seen(&f, TB_MSG_EXPORT),
                   stages = fake_seen(&f, TB_MSG_STAGE);
    fake_away(&f, false);
    fake_wait_seen(&f, TB_MSG_SUBSCRIBE, before + 1);
    fake_wait_seen(&f, TB_MSG_EXPORT, exports + 2); /* both staged versions are announced */
    fake_wait_seen(&f, TB_MSG_STAGE, stages + 1);   /* and the whole one that waits for go is staged again */
    pthread_mutex_lock(&f.lock);
    bool told = false;
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        told |= f.sessions[i].welcomed && memcmp(f.sessions[i].subscribed.active.bytes, uid1.bytes, 16) == 0;
    pthread_mutex_unlock(&f.lock);
    assert_true(told);
    worker_close(&w);
    fake_close(&f);
}

/* Never backwards on its own, unless the active one was withdrawn. */
static void alone_a_worker_does_not_go_backwards(void **state)
{
    (void)state;
    for (int withdrawn = 0; withdrawn <= 1; withdrawn++) {
        struct fake f;
        struct worker w;
        fake_open(&f);
        struct fake_version *v1 = fake_make(&f, 1, 2, 2, TENSOR), *v2 = fake_make(&f, 2, 2, 2, TENSOR);
        const struct tb_uid uid1 = fake_uid(v1), uid2 = fake_uid(v2);
        worker_open(&f, &w, "w", NULL, 4);
        CHECK_OK(tb_stage(w.sub, &uid1, 20000));
        CHECK_OK(tb_stage(w.sub, &uid2, 20000));
        fake_go(&f, 1);
        fake_go(&f, 2);
        CHECK_OK(tb_activate(w.sub, &uid2, NULL));
        if (withdrawn) fake_state(&f, 2, TB_VERSION_WITHDRAWN);
        CHECK_OK(tb_status(w.s, "site", NULL, 0, NULL) == TB_TOO_LARGE ? TB_OK : TB_AGAIN);
        fake_go_away(&f, w.s);
        CHECK_STATUS(tb_activate(w.sub, &uid1, NULL), withdrawn ? TB_OK : TB_BAD_STATE);
        if (withdrawn) CHECK_STATUS(tb_activate(w.sub, &uid2, NULL), TB_VERSION_WITHDRAWN);
        worker_close(&w);
        fake_close(&f);
    }
}

static void a_gateway_that_returns_is_asked_again(void **state)
{
    (void)state;
    struct fake f;
    struct worker w;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, TENSOR);
    const struct tb_uid uid = fake_uid(v);
    FAKE_SET(&f, no_plan, true);
    worker_open(&f, &w, "w", NULL, 4);
    CHECK_STATUS(tb_stage(w.sub, &uid, 100), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_EXPORT, 1);
    fake_away(&f, true);
    FAKE_SET(&f, no_plan, false);
    fake_away(&f, false);
    if (tb_stage(w.sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    worker_close(&w);
    fake_close(&f);
}

/* P6: it came back without the version and refused to hear that it is staged: it is told
 * again until it knows it. */
static void a_gateway_that_forgot_the_version_is_told_again(void **state)
{
    (void)state;
    struct fake f;
    struct worker w;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, TENSOR);
    const struct tb_uid uid = fake_uid(v);
    worker_open(&f, &w, "w", NULL, 4);
    CHECK_OK(tb_stage(w.sub, &uid, 20000));
    const uint32_t stages = fake_seen(&f, TB_MSG_STAGE), exports = fake_seen(&f, TB_MSG_EXPORT);
    fake_away(&f, true);
    FAKE_SET(&f, refuse[TB_MSG_STAGE], TB_NOT_FOUND);
    FAKE_SET(&f, refuse[TB_MSG_ACTIVATE], TB_NOT_FOUND);
    fake_away(&f, false);
    fake_wait_seen(&f, TB_MSG_STAGE, stages + 1);
    CHECK_STATUS(tb_activate(w.sub, &uid, NULL), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_STAGE, stages + 2);
    FAKE_SET(&f, refuse[TB_MSG_ACTIVATE], TB_BAD_STATE); /* it knows it now, and of no attempt */
    CHECK_STATUS(tb_activate(w.sub, &uid, NULL), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_STAGE, stages + 3);
    FAKE_SET(&f, refuse[TB_MSG_STAGE], TB_OK);
    CHECK_STATUS(tb_activate(w.sub, &uid, NULL), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_STAGE, stages + 4);
    fake_wait_seen(&f, TB_MSG_EXPORT, exports + 4); /* or it would serve nobody */
    CHECK_STATUS(tb_activate(w.sub, &uid, NULL),
                 TB_BAD_STATE); /* the twin: heard, and refused all the same */
    FAKE_SET(&f, refuse[TB_MSG_ACTIVATE], TB_OK);
    fake_go(&f, 1);
    CHECK_OK(tb_activate(w.sub, &uid, NULL));
    check_memory(&w, v);
    worker_close(&w);
    fake_close(&f);
}

static void failures_of_a_version_wake_those_who_stage_it(void **state)
{
    (void)state;
    const enum tb_status ends[] = {TB_SUPERSEDED, TB_VERSION_LOST, TB_VERSION_BROKEN, TB_VERSION_WITHDRAWN,
                                   TB_GROUP_BROKEN};
    struct fake f;
    struct worker w;
    fake_open(&f);
    worker_open(&f, &w, "w", NULL, 4);
    for (uint32_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        struct fake_version *v = fake_make(&f, 1 + i, 2, 2, TENSOR);
        const struct tb_uid uid = fake_uid(v);
        FAKE_SET(&f, no_plan, true);
        CHECK_STATUS(tb_stage(w.sub, &uid, 0), TB_AGAIN);
        fake_wait_seen(&f, TB_MSG_EXPORT, i + 1);
        fake_state(&f, 1 + i, ends[i]);
        CHECK_STATUS(tb_stage(w.sub, &uid, 20000), ends[i]);
        if (ends[i] != TB_GROUP_BROKEN) continue;
        FAKE_SET(&f, no_plan, false); /* the next attempt of the group */
        CHECK_OK(tb_stage(w.sub, &uid, 20000));
    }
    worker_close(&w);
    fake_close(&f);
}

static void a_tensor_that_does_not_fit_is_named(void **state)
{
    (void)state;
    struct fake f;
    struct worker w;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, TENSOR - 1), *few = fake_make(&f, 2, 1, 2, TENSOR);
    const struct tb_uid uid = fake_uid(v), uid_few = fake_uid(few);
    worker_open(&f, &w, "w", NULL, 4);
    CHECK_STATUS(tb_stage(w.sub, &uid, 20000), TB_LAYOUT_MISMATCH);
    assert_non_null(strstr(tb_last_error(), "U8[1500000]"));
    assert_non_null(strstr(tb_last_error(), "U8[1499999]"));
    CHECK_STATUS(tb_stage(w.sub, &uid_few, 20000), TB_LAYOUT_MISMATCH);
    assert_non_null(strstr(tb_last_error(), "t2"));
    fake_wait_seen(&f, TB_MSG_RELEASE, 2);
    worker_close(&w);
    fake_close(&f);
}

/* P7: a caller that asks time and again costs the gateway a description of the version a second,
 * and nothing while it is away. */
static void asking_on_and_on_is_not_passed_on(void **state)
{
    (void)state;
    struct fake f;
    struct worker w;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, TENSOR);
    const struct tb_uid uid = fake_uid(v);
    FAKE_SET(&f, no_plan, true);
    worker_open(&f, &w, "w", NULL, 4);
    CHECK_STATUS(tb_stage(w.sub, &uid, 0), TB_AGAIN);
    fake_wait_seen(&f, TB_MSG_EXPORT, 1); /* it waits for a source now */
    const tb_time_ns began = tb_clock_now();
    for (uint32_t i = 0; i < 500; i++)
        CHECK_STATUS(tb_stage(w.sub, &uid, 0), TB_AGAIN);
    CHECK_STATUS(tb_status(w.s, "site", NULL, 0, NULL), TB_TOO_LARGE); /* answered behind them */
    const uint64_t seconds = tb_time_since(began, tb_clock_now()) / TB_SECONDS(1);
    assert_in_range(fake_seen(&f, TB_MSG_STAGE), 1, 2 + seconds);
    fake_go_away(&f, w.s);
    const uint32_t before = fake_seen(&f, TB_MSG_STAGE);
    struct tb_version_info info = {.struct_bytes = sizeof info};
    const struct tb_wait_options o = {
        .struct_bytes = sizeof o, .kind = TB_WAIT_EXACT, .model = "policy", .number = 9, .timeout_ms = 1200};
    CHECK_STATUS(tb_wait(w.s, &o, &info), TB_GATEWAY_AWAY); /* it would be time to ask again */
    for (uint32_t i = 0; i < 500; i++)
        CHECK_STATUS(tb_stage(w.sub, &uid, 0), TB_AGAIN);
    FAKE_SET(&f, no_plan, false);
    fake_away(&f, false);
    CHECK_OK(tb_stage(w.sub, &uid, 20000)); /* asked for when it came back */
    assert_in_range(fake_seen(&f, TB_MSG_STAGE), before + 1, before + 3);
    worker_close(&w);
    fake_close(&f);
}

static void two_subscriptions_share_one_staging(void **state)
{
    (void)state;
    struct fake f;
    struct worker w;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, TENSOR);
    const struct tb_uid uid = fake_uid(v);
    worker_open(&f, &w, "w", NULL, 4);
    struct tb_subscription *second;
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o, .member_count = 1, .model = "policy"};
    CHECK_OK(tb_subscribe(w.s, &o, &second));
    CHECK_OK(tb_stage(w.sub, &uid, 20000));
    CHECK_OK(tb_stage(second, &uid, 20000));
    assert_int_equal(fake_seen(&f, TB_MSG_EXPORT), 1);
    CHECK_OK(tb_release(w.sub, &uid));
    struct tb_item item = {.struct_bytes = sizeof item};
    CHECK_OK(tb_staged_item(second, &uid, 0, &item));
    assert_memory_equal(item.bytes, v->shards[0].bytes, item.count);
    assert_int_equal(v->released, 0);
    CHECK_OK(tb_unsubscribe(second));
    assert_int_equal(v->released, 1);
    CHECK_STATUS(tb_unregister(w.r), TB_BAD_STATE);
    CHECK_OK(tb_unsubscribe(w.sub));
    CHECK_OK(tb_unregister(w.r));
    worker_close(&w);
    fake_close(&f);
}

static void a_released_staging_serves_nobody(void **state)
{
    (void)state;
    struct fake f;
    struct worker a;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 2, 2, TENSOR);
    const struct tb_uid uid = fake_uid(v);
    worker_open(&f, &a, "a", "host-a", 0);
    CHECK_OK(tb_stage(a.sub, &uid, 20000));
    char text[2048];
    CHECK_OK(tb_status(a.s, "session", text, sizeof text, NULL));
    assert_non_null(strstr(text, "\"state\":\"whole\""));
    CHECK_OK(tb_release(a.sub, &uid));
    CHECK_OK(tb_status(a.s, "session", text, sizeof text, NULL));
    assert_non_null(strstr(text, "\"staged\":[]"));
    CHECK_OK(tb_stage(a.sub, &uid, 20000)); /* and may be staged again */
    worker_close(&a);
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stage_then_go_then_activate),
        cmocka_unit_test(items_are_the_version),
        cmocka_unit_test(P9_an_older_gateway_is_not_told_of_updates),
        cmocka_unit_test(a_worker_chains_behind_a_worker_by_tcp),
        cmocka_unit_test(a_worker_chains_behind_a_worker_by_shm),
        cmocka_unit_test(a_worker_that_gets_nothing_says_so),
        cmocka_unit_test(a_lost_upstream_is_told_and_replaced),
        cmocka_unit_test(go_stays_good_while_the_gateway_is_away),
        cmocka_unit_test(alone_a_worker_does_not_go_backwards),
        cmocka_unit_test(a_gateway_that_returns_is_asked_again),
        cmocka_unit_test(a_gateway_that_forgot_the_version_is_told_again),
        cmocka_unit_test(failures_of_a_version_wake_those_who_stage_it),
        cmocka_unit_test(a_tensor_that_does_not_fit_is_named),
        cmocka_unit_test(asking_on_and_on_is_not_passed_on),
        cmocka_unit_test(two_subscriptions_share_one_staging),
        cmocka_unit_test(a_released_staging_serves_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
