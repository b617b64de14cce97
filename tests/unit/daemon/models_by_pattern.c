/* models_by_pattern.c - models of a pattern come into memory when somebody uses them and leave it
 * when nobody does, and what they were is never lost (P2, P7).
 *
 * Covers: gateway/daemon/models/model_table.c gateway/daemon/models/model_wake.c
 * Covers: gateway/daemon/models/model_life.c
 * Covers: gateway/daemon/models/quota.c gateway/catalog/models.c gateway/store/store_load.c */
#include "gateway/daemon/models/model_life.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/catalog/models.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/models/model_wake.h"
#include "gateway/daemon/models/quota.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/daemon/persist_usage.h"
#include "gateway/daemon/reload.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/store/store_load.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"
#include "tests/unit/daemon/sealed_version.h"

#define PATTERN "{\"lora-*\": {home: east, publish: [\"unix:*\"], read: [\"unix:*\"]}}"
#define MANY    10000u

static struct tb_name name_of(const char *text)
{
    struct tb_name name;
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

static struct tb_name nth(uint32_t i)
{
    char text[32];
    (void)snprintf(text, sizeof text, "lora-%u", i);
    return name_of(text);
}

/* ---- a publisher, frame by frame ---- */

struct opened {
    enum tb_status status; /* of a refusal */
    char why[TB_TEXT_BYTES_MAX + 1];
    struct tb_msg_run run;
};

static struct opened refusal(struct tb_reader *r)
{
    struct opened o = {.status = TB_OK};
    struct tb_msg_reply reply = {0};
    CHECK_OK(tb_msg_reply_decode(r, &reply));
    o.status = tb_msg_status_get(reply.status_negated);
    (void)snprintf(o.why, sizeof o.why, "%s", reply.why.text);
    return o;
}

static struct opened run_open(struct worker *w, struct tb_name model, const char *key)
{
    struct tb_reader r;
    struct tb_msg_run_open q = {.model = model};
    (void)snprintf(q.key.text, sizeof q.key.text, "%s", key);
    const uint64_t request = worker_request(w);
    tb_msg_run_open_encode(&q, worker_begin(w, TB_MSG_RUN_OPEN, request, 4096));
    worker_send(w);
    if (worker_answer(w, request, &r) != TB_MSG_RUN) return refusal(&r);
    struct opened o = {.status = TB_OK};
    CHECK_OK(tb_msg_run_decode(&r, &o.run));
    return o;
}

static struct opened version_open(struct worker *w, struct tb_name model, const struct tb_id *run,
                                  uint64_t number)
{
    struct tb_reader r;
    const struct tb_msg_version_open q = {.model = model, .run = *run, .number = number, .shard_count = 1};
    const uint64_t request = worker_request(w);
    tb_msg_version_open_encode(&q, worker_begin(w, TB_MSG_VERSION_OPEN, request, 4096));
    worker_send(w);
    if (worker_answer(w, request, &r) != TB_MSG_VERSION) return refusal(&r);
    return (struct opened){.status = TB_OK};
}

static enum tb_status subscribe(struct worker *w, struct tb_name model, uint32_t subscription)
{
    struct tb_msg_subscribe q = {.subscription = subscription, .model = model, .group = name_of("group")};
    q.member_count = 1;
    const uint64_t request = worker_request(w);
    tb_msg_subscribe_encode(&q, worker_begin(w, TB_MSG_SUBSCRIBE, request, 4096));
    worker_send(w);
    return worker_reply(w, request);
}

/* ---- time ---- */

/* A minute in which nobody speaks of a model; the loop has turned until its rows were on disk. */
static void let_it_sleep(struct home *h, uint32_t rows)
{
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (home_table(h, "models_awake", "used") != rows && tb_clock_now() < until) {
        for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++)
            h->d->models.rows[i].used_at = 0;
        tb_models_tick(h->d);
        (void)uv_run(&h->d->loop, UV_RUN_ONCE);
    }
    assert_int_equal(home_table(h, "models_awake", "used"), rows);
}

static uint64_t awake(const struct home *h)
{
    return home_table(h, "models_awake", "used");
}

static void a_new_name_needs_no_row_of_the_file(void **state)
{
    struct home h;
    (void)state;
    home_new_with(&h, PATTERN, false);
    home_start(&h);
    struct worker *w = worker_new(&h, "trainer");
    assert_int_equal(awake(&h), 0);
    const struct opened o = run_open(w, name_of("lora-7"), "a");
    CHECK_OK(o.status);
    assert_int_equal(o.run.run_order, 1);
    CHECK_OK(version_open(w, name_of("lora-7"), &o.run.run, 1).status);
    CHECK_STATUS(run_open(w, name_of("other-7"), "a").status, TB_PEER_DENIED);
    CHECK_OK(subscribe(w, name_of("lora-8"), 1));
    assert_int_equal(awake(&h), 2);
    worker_free(w);
    home_end(&h);
    home_free(&h);
}

/* P2: a model that slept goes on where it was: a key of a run that was shut out is known, and the
 * next run is a newer one. */
static void a_model_sleeps_and_nothing_of_it_is_lost(void **state)
{
    struct home h;
    (void)state;
    home_new_with(&h, PATTERN, false);
    home_start(&h);
    struct worker *w = worker_new(&h, "trainer");
    assert_int_equal(run_open(w, name_of("lora-7"), "a").run.run_order, 1);
    assert_int_equal(run_open(w, name_of("lora-7"), "b").run.run_order, 2);
    let_it_sleep(&h, 0);
    assert_int_equal(home_table(&h, "models", "used"), 0);
    assert_int_equal(home_table(&h, "runs", "used"), 0);
    CHECK_STATUS(run_open(w, name_of("lora-7"), "a").status, TB_FENCED);
    const struct opened b = run_open(w, name_of("lora-7"), "b");
    CHECK_OK(b.status);
    assert_true(b.run.joined);
    assert_int_equal(run_open(w, name_of("lora-7"), "c").run.run_order, 3);
    worker_free(w);
    home_end(&h);
    home_start(&h); /* nobody uses it: it stays on the disk */
    assert_int_equal(awake(&h), 0);
    w = worker_new(&h, "trainer");
    assert_int_equal(run_open(w, name_of("lora-7"), "d").run.run_order, 4);
    worker_free(w);
    home_end(&h);
    home_free(&h);
}

/* A version that is being published, and a reader, keep their models awake. */
static void a_model_in_use_stays_awake(void **state)
{
    struct home h;
    (void)state;
    home_new_with(&h, PATTERN, false);
    home_start(&h);
    struct worker *w = worker_new(&h, "trainer");
    const struct opened o = run_open(w, name_of("lora-1"), "a");
    CHECK_OK(version_open(w, name_of("lora-1"), &o.run.run, 1).status);
    CHECK_OK(subscribe(w, name_of("lora-2"), 1));
    CHECK_OK(run_open(w, name_of("lora-3"), "a").status);
    let_it_sleep(&h, 2);
    assert_true(tb_model_row_of(h.d, &(struct tb_name){"lora-1"}) != TB_MODEL_NONE);
    assert_true(tb_model_row_of(h.d, &(struct tb_name){"lora-2"}) != TB_MODEL_NONE);
    worker_free(w);
    home_end(&h);
    home_free(&h);
}

/* ---- many ---- */

static void put_runs(struct home *h)
{
    char path[SCRATCH_BYTES + 32], error[256] = "";
    struct tb_store *store = NULL;
    static struct tb_store_row rows[1000];
    const struct tb_disk_keys none = {.key = NULL};
    (void)snprintf(path, sizeof path, "%s/store", h->dir);
    CHECK_OK(tb_store_open(path, &none, &store, error));
    for (uint32_t i = 0; i < MANY; i++) {
        struct tb_store_row *r = &rows[i % 1000];
        *r = (struct tb_store_row){.kind = TB_STORE_RUN};
        r->run = (struct tb_catalog_run){.model = nth(i), .order = 7 + i, .key = "old"};
        memcpy(r->run.id.bytes, &i, sizeof i);
        r->run.id.bytes[15] = 1;
        if (i % 1000 == 999) CHECK_OK(tb_store_rows(store, rows, 1000));
    }
    tb_store_close(store);
}

/* 10,000 models that were used once: a start takes no row in memory for any of them, and each goes
 * on above the run that it had. One publisher after the other may use them all. */
static void ten_thousand_models_are_rows_on_a_disk(void **state)
{
    struct home h;
    (void)state;
    home_new_with(&h, PATTERN, false);
    put_runs(&h);
    home_start(&h);
    assert_int_equal(awake(&h), 0);
    assert_int_equal(home_table(&h, "models", "used") + home_table(&h, "runs", "used"), 0);
    assert_int_equal(h.d->unread_count, 0);
    struct worker *w = worker_new(&h, "trainer");
    for (uint32_t i = 0; i < MANY; i += 37) {
        const struct opened o = run_open(w, nth(i), "new");
        if (o.status != TB_OK) fail_msg("%u: %s", i, o.why);
        assert_int_equal(o.run.run_order, 8 + i);
        for (uint32_t k = TB_CONFIG_LIST_MAX; k < TB_CONFIG_MODELS_MAX; k++)
            h.d->models.rows[k].used_at = 0; /* a second goes by */
        h.d->models.looked_at = 0;
    }
    assert_true(home_table(&h, "models_awake", "most") <= TB_CONFIG_AWAKE_MAX / 4);
    worker_free(w);
    home_end(&h);
    home_free(&h);
}

/* P7: one identity has a quarter of the rows, whatever it asks for; the table is named. */
static void a_party_has_a_quarter_of_the_table(void **state)
{
    struct home h;
    uint32_t asked = 0;
    (void)state;
    home_new_with(&h, PATTERN, false);
    home_start(&h);
    for (uint64_t owner = 1; owner <= 4; owner++) {
        for (uint32_t i = 0; i < TB_CONFIG_AWAKE_MAX / 4; i++) {
            const struct tb_name name = nth(asked++);
            CHECK_STATUS(tb_model_wake(h.d, &name, &(struct tb_model_user){owner, true}), TB_AGAIN);
        }
        const struct tb_name more = nth(asked);
        CHECK_STATUS(tb_model_wake(h.d, &more, &(struct tb_model_user){owner, true}), TB_SITE_NOMEM);
    }
    assert_int_equal(home_table(&h, "models_awake", "shares_spent"), 3); /* the last: it is full */
    assert_int_equal(awake(&h), TB_CONFIG_AWAKE_MAX);
    struct worker *w = worker_new(&h, "trainer");
    h.d->models.looked_at = tb_time_add(tb_clock_now(), TB_SECONDS(600)); /* no row is given back now */
    const struct opened o = run_open(w, name_of("lora-last"), "a");
    CHECK_STATUS(o.status, TB_SITE_NOMEM);
    assert_non_null(strstr(o.why, "models_awake"));
    let_it_sleep(&h, 0); /* each was read before: the queue holds fewer questions than there were */
    CHECK_OK(run_open(w, name_of("lora-last"), "a").status);
    worker_free(w);
    home_end(&h);
    home_free(&h);
}

/* A trainer of many adapters: a model that has a version is no row of its share, until the last
 * quarter. */
static void a_trainer_has_more_models_than_its_quarter(void **state)
{
    struct home h;
    (void)state;
    home_new_with(&h, PATTERN, false);
    home_start(&h);
    struct worker *w = worker_new(&h, "trainer");
    for (uint32_t i = 0; i < TB_CONFIG_AWAKE_MAX / 4 + 12; i++) {
        const struct opened o = run_open(w, nth(i), "a");
        if (o.status != TB_OK) fail_msg("%u: %s", i, o.why);
        CHECK_OK(version_open(w, nth(i), &o.run.run, 1).status);
    }
    assert_true(awake(&h) > TB_CONFIG_AWAKE_MAX / 4);
    worker_free(w);
    home_end(&h);
    home_free(&h);
}

/* P2: the queue has a place for each change: no question of a reader takes one from it. */
static void a_store_that_is_down_is_asked_nothing(void **state)
{
    struct home h;
    (void)state;
    home_new_with(&h, PATTERN, false);
    home_start(&h);
    const struct tb_name name = nth(1);
    h.d->store_down = true;
    CHECK_STATUS(tb_model_wake(h.d, &name, &(struct tb_model_user){1, true}), TB_SITE_STORE);
    assert_int_equal(tb_persist_waiting(h.d), 0);
    assert_int_equal(awake(&h), 0);
    h.d->store_down = false;
    CHECK_STATUS(tb_model_wake(h.d, &name, &(struct tb_model_user){1, true}), TB_AGAIN);
    assert_int_equal(tb_persist_waiting(h.d), 1);
    home_end(&h);
    home_free(&h);
}

/* A gateway that ends in the middle of a question waits for its answer. */
static void an_end_in_the_middle_of_a_question(void **state)
{
    struct home h;
    const struct tb_name name = nth(1);
    (void)state;
    home_new_with(&h, PATTERN, false);
    home_start(&h);
    CHECK_STATUS(tb_model_wake(h.d, &name, &(struct tb_model_user){1, true}), TB_AGAIN);
    CHECK_STATUS(tb_model_wake(h.d, &name, &(struct tb_model_user){1, true}), TB_AGAIN);
    home_end(&h);
    home_free(&h);
}

/* ---- doubt ---- */

static bool doubted(struct tb_store *store, const char *model)
{
    static struct tb_store_model m;
    m = (struct tb_store_model){.name = name_of(model)};
    CHECK_OK(tb_store_model(store, &m));
    return m.doubted;
}

/* P2: a copy of the store that was put back may lack runs of any model, also of one whose name it
 * never had. Each is in doubt until a run of it was opened since. */
static void a_store_that_was_put_back_doubts_each_name(void **state)
{
    struct home h;
    char path[SCRATCH_BYTES + 32], error[256] = "";
    struct tb_store *store = NULL;
    const struct tb_disk_keys none = {.key = NULL};
    const struct tb_store_doubt all = {.doubted = true}, opened = {.model = name_of("lora-1")};
    (void)state;
    home_new_with(&h, PATTERN, false);
    (void)snprintf(path, sizeof path, "%s/store", h.dir);
    CHECK_OK(tb_store_open(path, &none, &store, error));
    assert_false(doubted(store, "lora-1"));
    CHECK_OK(tb_store_doubt(store, &all));
    assert_true(doubted(store, "lora-1") && doubted(store, "lora-2"));
    CHECK_OK(tb_store_doubt(store, &opened));
    assert_false(doubted(store, "lora-1"));
    assert_true(doubted(store, "lora-2"));
    CHECK_OK(tb_store_doubt(store, &all));
    assert_true(doubted(store, "lora-1"));
    tb_store_close(store);
    home_free(&h);
}

static void turn_until_written(struct home *h)
{
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (tb_persist_waiting(h->d) != 0 && tb_clock_now() < until)
        (void)uv_run(&h->d->loop, UV_RUN_ONCE);
    assert_int_equal(tb_persist_waiting(h->d), 0);
}

/* P2: it waits for a place, however full the queue is. */
static void a_doubt_of_all_is_never_lost(void **state)
{
    struct home h;
    char path[SCRATCH_BYTES + 32], error[256] = "";
    struct tb_store *store = NULL;
    const struct tb_disk_keys none = {.key = NULL};
    const struct tb_store_path found = {.site = name_of("west"), .streams = 1, .bytes_per_s = 1};
    (void)state;
    home_new_with(&h, PATTERN, false);
    (void)snprintf(path, sizeof path, "%s/store", h.dir);
    home_start(&h);
    h.d->store_down = true;
    for (uint32_t before = UINT32_MAX; before != tb_persist_waiting(h.d);) {
        before = tb_persist_waiting(h.d);
        tb_persist_path(h.d, &found);
    }
    tb_home_runs_doubt(h.d);
    h.d->store_down = false;
    tb_persist_tick(h.d);
    turn_until_written(&h);
    tb_persist_tick(h.d);
    turn_until_written(&h);
    home_end(&h);
    CHECK_OK(tb_store_open(path, &none, &store, error));
    assert_true(doubted(store, "lora-1"));
    tb_store_close(store);
    home_free(&h);
}

static void count_one(void *user, const struct tb_name *model)
{
    uint32_t *count = user;
    *count += strcmp(model->text, "lora-1") == 0;
}

/* P2: its question was before the doubt, and its answer knows nothing of it. */
static void a_doubt_overtakes_a_question(void **state)
{
    struct home h;
    char path[SCRATCH_BYTES + 32], error[256] = "";
    struct tb_store *store = NULL;
    uint32_t count = 0;
    const struct tb_disk_keys none = {.key = NULL};
    const struct tb_name name = nth(1);
    (void)state;
    home_new_with(&h, PATTERN, false);
    (void)snprintf(path, sizeof path, "%s/store", h.dir);
    home_start(&h);
    CHECK_STATUS(tb_model_wake(h.d, &name, &(struct tb_model_user){1, true}), TB_AGAIN);
    tb_home_runs_doubt(h.d);
    turn_until_written(&h);
    CHECK_OK(tb_model_wake(h.d, &name, &(struct tb_model_user){1, true}));
    turn_until_written(&h);
    home_end(&h);
    CHECK_OK(tb_store_open(path, &none, &store, error));
    CHECK_OK(tb_store_load_doubts(store, count_one, &count));
    assert_int_equal(count, 1);
    tb_store_close(store);
    home_free(&h);
}

/* ---- quota ---- */

static void a_quota_is_of_all_models_of_the_pattern(void **state)
{
    struct home h;
    (void)state;
    home_new_with(
        &h,
        "{\"lora-*\": {home: east, keep: 1, quota: {versions: 2}, publish: [\"unix:*\"]}, \"free-*\": "
        "{home: east, publish: [\"unix:*\"]}}",
        false);
    home_start(&h);
    struct worker *w = worker_new(&h, "trainer");
    struct tb_id runs[3];
    for (uint32_t i = 0; i < 3; i++)
        runs[i] = run_open(w, nth(i), "a").run.run;
    for (uint32_t i = 0; i < 2; i++) {
        CHECK_OK(version_open(w, nth(i), &runs[i], 1).status);
        CHECK_OK(version_open(w, nth(i), &runs[i], 1).status); /* another rank of it */
    }
    const struct opened third = version_open(w, nth(2), &runs[2], 1);
    CHECK_STATUS(third.status, TB_SITE_NOMEM);
    assert_string_equal(third.why, "models.lora-*.quota.versions: its models have 2 of 2 versions");
    assert_int_equal(h.d->counters.quotas_refused, 1);
    /* It keeps one: the new one takes its place. */
    CHECK_OK(version_open(w, nth(0), &runs[0], 2).status);
    const struct tb_id other = run_open(w, name_of("free-1"), "a").run.run;
    CHECK_OK(version_open(w, name_of("free-1"), &other, 1).status);
    worker_free(w);
    home_end(&h);
    home_free(&h);
}

/* One that keeps one and has used its quota goes on: the new one takes the place of the old. */
static void a_quota_of_bytes_lets_a_model_go_on(void **state)
{
    struct sealed s;
    struct tb_version_key key;
    char why[TB_TEXT_BYTES_MAX + 1] = "";
    (void)state;
    sealed_begin_with(&s, "{policy: {home: east, keep: 1, quota: {bytes: 4MiB}}}", 60000);
    sealed_land(&s, 0, 4);
    assert_int_equal(sealed_view(&s).bytes, SEALED_SHARD_BYTES);
    const struct tb_catalog_version_request next = {.session = s.rank,
                                                    .model = s.made.key.model,
                                                    .run = s.made.key.run,
                                                    .number = 2,
                                                    .shard_count = 1,
                                                    .fresh_uid = {{4}}};
    CHECK_OK(tb_catalog_version_open(s.home.d->catalog, tb_clock_now(), &next, &key));
    CHECK_OK(tb_quota_grow(s.home.d, &key, SEALED_SHARD_BYTES, why));
    CHECK_STATUS(tb_quota_grow(s.home.d, &key, SEALED_SHARD_BYTES + 1, why), TB_SITE_NOMEM);
    sealed_end(&s);
}

/* ---- reloads ---- */

struct world {
    struct home home;
    char path[SCRATCH_BYTES + 32];
};

static void put(struct world *w, const char *models)
{
    const char *dir = w->home.dir;
    FILE *f = fopen(w->path, "w");
    assert_non_null(f);
    (void)fprintf(
        f,
        "site: east\ncontrol: {socket: %s/control}\nsession: {socket: %s/session, lease_ms: %u}\n"
        "store: {path: %s/store}\narena: {path: %s/arena, bytes: 8MiB, reverify: false}\nmodels: %s\n",
        dir, dir, HOME_LEASE_MS, dir, dir, models);
    assert_int_equal(fclose(f), 0);
}

static void reload(struct world *w, const char *models)
{
    put(w, models);
    tb_reload_signal(w->home.d);
    (void)uv_run(&w->home.d->loop, UV_RUN_NOWAIT);
    assert_null(w->home.d->reload);
}

static void a_pattern_comes_changes_and_goes_live(void **state)
{
    static struct world w;
    (void)state;
    memset(&w, 0, sizeof w);
    home_new_with(&w.home, HOME_MODELS, false);
    home_start(&w.home);
    (void)snprintf(w.path, sizeof w.path, "%s/east.yaml", w.home.dir);
    w.home.d->config_path = w.path;
    struct worker *k = worker_new(&w.home, "trainer");
    CHECK_STATUS(run_open(k, nth(1), "a").status, TB_PEER_DENIED);
    reload(&w, "{policy: {home: east}, \"lora-*\": {home: east, publish: [\"unix:*\"]}}");
    CHECK_OK(run_open(k, nth(1), "a").status);
    /* It is in use, and its home stays: nothing of the file counts. */
    reload(&w, "{policy: {home: east, keep: 9}, \"lora-1*\": {home: west}, \"lora-*\": {home: east, publish: "
               "[\"unix:*\"]}}");
    assert_int_equal(w.home.d->counters.reloads_refused, 1);
    assert_int_equal(w.home.d->config->models[0].keep, 2);
    /* A name that a pattern had: its runs are read at a start. */
    reload(&w,
           "{policy: {home: east}, lora-5: {home: east}, \"lora-*\": {home: east, publish: [\"unix:*\"]}}");
    assert_int_equal(w.home.d->config->model_count, 2);
    reload(&w, "{policy: {home: east}}");
    CHECK_STATUS(run_open(k, nth(1), "a").status, TB_PEER_DENIED);
    assert_int_equal(awake(&w.home), 1);
    let_it_sleep(&w.home, 0);
    reload(&w, "{policy: {home: east}, \"lora-*\": {home: east, publish: [\"unix:*\"]}}");
    const struct opened again = run_open(k, nth(1), "b");
    CHECK_OK(again.status);
    assert_int_equal(again.run.run_order, 2);
    worker_free(k);
    home_end(&w.home);
    assert_int_equal(unlink(w.path), 0);
    home_free(&w.home);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_name_needs_no_row_of_the_file),
        cmocka_unit_test(a_model_sleeps_and_nothing_of_it_is_lost),
        cmocka_unit_test(a_model_in_use_stays_awake),
        cmocka_unit_test(ten_thousand_models_are_rows_on_a_disk),
        cmocka_unit_test(a_party_has_a_quarter_of_the_table),
        cmocka_unit_test(a_trainer_has_more_models_than_its_quarter),
        cmocka_unit_test(a_store_that_is_down_is_asked_nothing),
        cmocka_unit_test(an_end_in_the_middle_of_a_question),
        cmocka_unit_test(a_store_that_was_put_back_doubts_each_name),
        cmocka_unit_test(a_doubt_of_all_is_never_lost),
        cmocka_unit_test(a_doubt_overtakes_a_question),
        cmocka_unit_test(a_quota_is_of_all_models_of_the_pattern),
        cmocka_unit_test(a_quota_of_bytes_lets_a_model_go_on),
        cmocka_unit_test(a_pattern_comes_changes_and_goes_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
