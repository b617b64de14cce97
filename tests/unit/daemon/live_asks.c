/* P7 P8 P10: an operator's question to the workers of a model: each is believed about its own
 * subscription alone, a question has an end, and there are so many at most.
 *
 * Covers: gateway/daemon/live/live_asks.c gateway/daemon/live/live_status.c */
#include <jansson.h>
#include <string.h>

#include "gateway/daemon/live/live_asks.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"

#define READS    "{policy: {home: east, read: [\"unix:*\"]}}"
#define PATIENCE "60000"

struct world {
    struct home h;
    struct worker *w[2];
    struct tb_id uid[2]; /* what each computes from */
    json_t *reply;
};

static void subscribe(struct world *w, uint32_t i)
{
    struct tb_msg_subscribe m = {.subscription = 1,
                                 .model = {"policy"},
                                 .member_index = i,
                                 .member_count = 2,
                                 .group = {"engine"},
                                 .active_run_order = 1,
                                 .active_number = 3};
    memset(m.active.bytes, 7, sizeof m.active.bytes);
    w->uid[i] = m.active;
    const uint64_t request = worker_request(w->w[i]);
    tb_msg_subscribe_encode(&m, worker_begin(w->w[i], TB_MSG_SUBSCRIBE, request, 4096));
    worker_send(w->w[i]);
    CHECK_OK(worker_reply(w->w[i], request));
}

static void world_open(struct world *w)
{
    memset(w, 0, sizeof *w);
    home_new_with(&w->h, READS, false);
    home_start(&w->h);
    w->w[0] = worker_new(&w->h, "w0");
    w->w[1] = worker_new(&w->h, "w1");
    subscribe(w, 0);
    subscribe(w, 1);
}

static void world_close(struct world *w)
{
    json_decref(w->reply);
    for (int i = 0; i < 2; i++)
        if (w->w[i] != NULL) worker_free(w->w[i]);
    home_end(&w->h);
    home_free(&w->h);
}

static enum tb_status ask(struct world *w, const char *request)
{
    char error[256] = "";
    json_t *asked = json_loads(request, 0, NULL);
    assert_non_null(asked);
    json_decref(w->reply);
    w->reply = json_object();
    const enum tb_status status = tb_verify_command(w->h.d, asked, w->reply, error);
    json_decref(asked);
    assert_true(status == TB_OK || status == TB_AGAIN || error[0] != '\0');
    return status;
}

static struct tb_msg_proven proven(const struct world *w, uint32_t i, uint64_t number)
{
    return (struct tb_msg_proven){.ask = number,
                                  .subscription = 1,
                                  .uid = w->uid[i],
                                  .done = true,
                                  .verdict = TB_MSG_PROVEN_WHOLE,
                                  .bytes = 99};
}

static void say(struct world *w, uint32_t i, const struct tb_msg_proven *m)
{
    tb_msg_proven_encode(m, worker_begin(w->w[i], TB_MSG_PROVEN, 0, 4096));
    worker_send(w->w[i]);
}

static int64_t count_of(const struct world *w, const char *key)
{
    return json_integer_value(json_object_get(w->reply, key));
}

static const char *state_of(const struct world *w, uint32_t i)
{
    char name[] = {'w', (char)('0' + i), '\0'};
    const json_t *workers = json_object_get(w->reply, "workers");
    for (size_t k = 0; k < json_array_size(workers); k++) {
        const json_t *row = json_array_get(workers, k);
        if (strcmp(json_string_value(json_object_get(row, "worker")), name) == 0)
            return json_string_value(json_object_get(row, "state"));
    }
    return "none";
}

static void nobody_answers_for_another(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    CHECK_STATUS(ask(&w, "{\"model\": \"policy\"}"), TB_AGAIN);
    struct tb_msg_proven m = proven(&w, 0, w.h.d->live.last);
    say(&w, 0, &m);
    m.subscription = 2; /* none of its own */
    say(&w, 0, &m);
    worker_sync(w.w[0]);
    tb_live_asks_tick(w.h.d, 1);
    assert_non_null(w.h.d->live.first); /* w1 has said nothing */
    assert_null(json_object_get(w.reply, "workers"));
    m = proven(&w, 1, w.h.d->live.last);
    m.verdict = TB_MSG_PROVEN_DIFFERS;
    m.bad = 2;
    strcpy(m.tensor.text, "layer.0");
    say(&w, 1, &m);
    say(&w, 1, &m); /* one alarm */
    worker_sync(w.w[1]);
    tb_live_asks_tick(w.h.d, 1);
    assert_null(w.h.d->live.first);
    assert_string_equal(state_of(&w, 0), "proven");
    assert_string_equal(state_of(&w, 1), "differs");
    assert_int_equal(count_of(&w, "proven"), 1);
    assert_int_equal(count_of(&w, "differs"), 1);
    assert_int_equal(w.h.d->counters.live_bad, 1);
    world_close(&w);
}

static void a_question_ends_at_its_deadline_or_when_workers_leave(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    CHECK_STATUS(ask(&w, "{\"model\": \"policy\", \"timeout_ms\": " PATIENCE "}"), TB_AGAIN);
    json_t *first = json_incref(w.reply);
    CHECK_STATUS(ask(&w, "{\"model\": \"policy\"}"), TB_CONFLICT); /* one at a time */
    json_decref(w.reply);
    w.reply = first;
    const struct tb_msg_proven m = proven(&w, 0, w.h.d->live.last);
    say(&w, 0, &m);
    worker_sync(w.w[0]);
    tb_live_asks_tick(w.h.d, tb_clock_now());
    assert_non_null(w.h.d->live.first);
    tb_live_asks_tick(w.h.d, tb_time_add(tb_clock_now(), TB_MS(60001)));
    assert_null(w.h.d->live.first);
    assert_string_equal(state_of(&w, 0), "proven");
    assert_string_equal(state_of(&w, 1), "no answer");
    assert_int_equal(count_of(&w, "silent"), 1);
    CHECK_STATUS(ask(&w, "{\"model\": \"policy\"}"), TB_AGAIN);
    worker_free(w.w[1]);
    w.w[1] = NULL;
    const struct tb_msg_proven again = proven(&w, 0, w.h.d->live.last);
    say(&w, 0, &again);
    while (w.h.d->live.first != NULL)
        worker_sync(w.w[0]); /* the loop turns, and its tick with it */
    assert_string_equal(state_of(&w, 1), "left");
    assert_int_equal(count_of(&w, "silent"), 0);
    world_close(&w);
}

static void requests_are_bounded(void **state)
{
    (void)state;
    static const char *const wrong[] = {"{}", "{\"model\": \"policy\", \"timeout_ms\": 0}",
                                        "{\"model\": \"policy\", \"timeout_ms\": 600001}", "{\"model\": 7}"};
    struct world w;
    world_open(&w);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK_STATUS(ask(&w, wrong[i]), TB_BAD_ARGUMENT);
    CHECK_STATUS(ask(&w, "{\"model\": \"other\"}"), TB_NOT_FOUND);
    tb_gauge_add(&w.h.d->live.gauge, TB_LIVE_ASKS_MAX);
    CHECK_STATUS(ask(&w, "{\"model\": \"policy\"}"), TB_SITE_NOMEM);
    assert_int_equal(home_table(&w.h, "live_asks", "refused"), 1);
    w.h.d->live.gauge.used = 0;
    world_close(&w);
}

/* A frame that says what cannot be ends its session, and nothing of it counts. */
static void an_impossible_word_ends_the_session(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct world w;
        world_open(&w);
        struct tb_msg_proven m = proven(&w, 0, 0);
        if (i == 0) m.verdict = 0;
        if (i == 1) m.verdict = TB_MSG_PROVEN_END;
        if (i == 2) m.why = TB_MSG_UNPROVABLE_END;
        if (i == 3) m.bad = 1; /* and yet proven */
        say(&w, 0, &m);
        worker_sync(w.w[1]); /* the loop has turned behind what w0 said */
        assert_int_equal(w.h.d->counters.sessions_garbled, 1);
        assert_int_equal(w.h.d->counters.live_bad, 0);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_answers_for_another),
        cmocka_unit_test(a_question_ends_at_its_deadline_or_when_workers_leave),
        cmocka_unit_test(requests_are_bounded),
        cmocka_unit_test(an_impossible_word_ends_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
