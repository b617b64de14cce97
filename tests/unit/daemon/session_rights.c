/* session_rights.c - P8: requests of a worker without the right to a model are refused, whatever it
 * has heard of. For each, the right is all that was missing.
 *
 * Covers: gateway/daemon/sessions/session_reply.c gateway/daemon/sessions/session_follow.c
 * Covers: gateway/daemon/sessions/session_news.c
 * Covers: gateway/daemon/rights.c */
#include <stdio.h>
#include <string.h>

#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"
#include "tests/unit/daemon/sealed_version.h"

#define NOBODY         "{policy: {home: east}}"
#define PUBLISHES_ONLY "{policy: {home: east, publish: [\"unix:*\"]}}"
#define READS_ONLY     "{policy: {home: east, read: [\"unix:*\"]}}"

/* A kept version of a home where this process's user has such rights, and a worker. */
struct world {
    struct sealed s;
    struct worker *worker;
};

static void begin(struct world *w, const char *models)
{
    sealed_begin_with(&w->s, models, 60000); /* nobody renews its sessions */
    sealed_land(&w->s, 0, w->s.made.list[0]->chunk_count);
    (void)tb_copies_tick(w->s.home.d);
    tb_daemon_turn(w->s.home.d);
    assert_int_equal(sealed_view(&w->s).state, TB_VERSION_KEPT);
    w->worker = worker_new(&w->s.home, "stranger");
}

static void end(struct world *w)
{
    worker_free(w->worker);
    sealed_end(&w->s);
}

static const struct tb_worker_session *session_of(const struct world *w)
{
    assert_non_null(w->s.home.d->sessions);
    return w->s.home.d->sessions;
}

/* As of staging that nobody asked for: whole, or empty and in want of a source. */
static void say_export(struct world *w, const struct tb_id *uid, bool whole)
{
    const struct tb_msg_export m = {
        .uid = *uid, .export_id = 7, .whole = whole, .source = {(const uint8_t *)"x", 1}};
    tb_msg_export_encode(&m, worker_begin(w->worker, TB_MSG_EXPORT, 0, 4096));
    worker_send(w->worker);
    worker_sync(w->worker);
}

static void a_worker_without_the_right_is_given_no_source(void **state)
{
    struct world w;
    (void)state;
    begin(&w, PUBLISHES_ONLY);
    say_export(&w, &w.s.made.key.uid, false);
    worker_sync(w.worker);
    assert_int_equal(w.worker->plans, 0);
    assert_int_equal(sealed_view(&w.s).workers, 0);
    assert_int_equal(w.s.home.d->counters.denied, 1);
    end(&w);
}

static void a_worker_with_the_right_is_given_one(void **state)
{
    struct world w;
    (void)state;
    begin(&w, READS_ONLY);
    say_export(&w, &w.s.made.key.uid, false);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (w.worker->plans == 0 && tb_clock_now() < until)
        worker_sync(w.worker);
    assert_int_equal(w.worker->plans, 1);
    assert_int_equal(sealed_view(&w.s).workers, 1);
    end(&w);
}

/* P3: nor does it count as a copy, for which home may give its own away. */
static void a_worker_without_the_right_is_no_copy(void **state)
{
    struct world w;
    (void)state;
    begin(&w, PUBLISHES_ONLY);
    say_export(&w, &w.s.made.key.uid, true);
    assert_int_equal(sealed_view(&w.s).workers, 0);
    assert_null(session_of(&w)->exports);
    end(&w);
}

/* P7: a gateway remembers no exports of what it does not know. */
static void exports_of_nothing_are_not_kept(void **state)
{
    struct world w;
    (void)state;
    begin(&w, READS_ONLY);
    for (uint8_t i = 1; i < 100; i++)
        say_export(&w, &(struct tb_id){{i, 1}}, false);
    assert_null(session_of(&w)->exports);
    say_export(&w, &w.s.made.key.uid, true);
    assert_non_null(session_of(&w)->exports);
    end(&w);
}

/* A worker that may not read a version has no hop of it to report. */
static void a_worker_without_the_right_reports_no_lost_hop(void **state)
{
    static const char *const models[] = {PUBLISHES_ONLY, READS_ONLY};
    (void)state;
    for (uint64_t may_read = 0; may_read < 2; may_read++) {
        struct world w;
        begin(&w, models[may_read]);
        const struct tb_msg_hop_lost m = {.uid = w.s.made.key.uid, .plan = 1};
        tb_msg_hop_lost_encode(&m, worker_begin(w.worker, TB_MSG_HOP_LOST, 0, 256));
        worker_send(w.worker);
        worker_sync(w.worker);
        assert_int_equal(w.s.home.d->counters.hops_lost, may_read);
        end(&w);
    }
}

/* ---- STATUS ---- */

static uint16_t ask_status_of(struct world *w, const char *what, struct tb_reader *r_out)
{
    const uint64_t request = worker_request(w->worker);
    struct tb_msg_status m = {{""}};
    snprintf(m.what.text, sizeof m.what.text, "%s", what);
    tb_msg_status_encode(&m, worker_begin(w->worker, TB_MSG_STATUS, request, 4096));
    worker_send(w->worker);
    return worker_answer(w->worker, request, r_out);
}

static uint16_t ask_status(struct world *w, struct tb_reader *r_out)
{
    return ask_status_of(w, "site", r_out);
}

static enum tb_status tensors_of(struct world *w, const char *hex)
{
    char what[64];
    struct tb_reader r;
    struct tb_msg_reply reply = {0};
    snprintf(what, sizeof what, TB_MSG_STATUS_TENSORS "%s", hex);
    if (ask_status_of(w, what, &r) == TB_MSG_STATUS_TEXT) return TB_OK;
    CHECK_OK(tb_msg_reply_decode(&r, &reply));
    return tb_msg_status_get(reply.status_negated);
}

static void an_identity_without_rights_is_not_told_what_there_is(void **state)
{
    struct world w;
    struct tb_reader r;
    struct tb_msg_reply reply = {0};
    (void)state;
    begin(&w, NOBODY);
    assert_int_equal(ask_status(&w, &r), TB_MSG_REPLY);
    CHECK_OK(tb_msg_reply_decode(&r, &reply));
    CHECK_STATUS(tb_msg_status_get(reply.status_negated), TB_PEER_DENIED);
    end(&w);
}

static void an_identity_with_one_is(void **state)
{
    static const char *const models[] = {READS_ONLY, PUBLISHES_ONLY};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct world w;
        struct tb_reader r;
        begin(&w, models[i]);
        assert_int_equal(ask_status(&w, &r), TB_MSG_STATUS_TEXT);
        end(&w);
    }
}

static void tensors_are_said_of_what_may_be_read(void **state)
{
    static const char *const models[] = {NOBODY, PUBLISHES_ONLY, READS_ONLY};
    static const enum tb_status wanted[] = {TB_PEER_DENIED, TB_PEER_DENIED, TB_OK};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct world w;
        char hex[TB_HEX_CHARS];
        begin(&w, models[i]);
        tb_id_format(&w.s.made.key.uid, hex);
        CHECK_STATUS(tensors_of(&w, hex), wanted[i]);
        end(&w);
    }
}

static bool are_told(struct world *w, const char *hex)
{
    char what[64];
    struct tb_reader r;
    struct tb_msg_status_text text = {{0}};
    snprintf(what, sizeof what, TB_MSG_STATUS_TENSORS "%s", hex);
    assert_int_equal(ask_status_of(w, what, &r), TB_MSG_STATUS_TEXT);
    CHECK_OK(tb_msg_status_text_decode(&r, &text));
    static const char null[] = "{\"schema\":1,\"tensors\":null}";
    return text.json.count != strlen(null) || memcmp(text.json.bytes, null, strlen(null)) != 0;
}

/* P6: a reader makes the main loop write few of them in a second, and each once while kept. */
static void tensors_are_not_written_again_and_again(void **state)
{
    (void)state;
    struct world w;
    char hex[TB_HEX_CHARS];
    begin(&w, READS_ONLY);
    tb_id_format(&w.s.made.key.uid, hex);
    for (size_t i = 0; i < 10; i++)
        assert_true(are_told(&w, hex));
    struct tb_daemon *d = w.s.home.d;
    assert_non_null(d->sessions);
    /* Its root may come meanwhile, from the thread that digests: then it is written again. */
    assert_in_range(d->sessions->tensors_made, 1, 2);
    tb_tensors_kept_free(&d->tensors_kept); /* as if it asked for others */
    d->sessions->tensors_made = 2;
    d->sessions->tensors_at = tb_clock_now();
    assert_false(are_told(&w, hex));
    d->sessions->tensors_at -= TB_SECONDS(1);
    assert_true(are_told(&w, hex));
    end(&w);
}

static void tensors_of_no_version_are_not_found(void **state)
{
    struct world w;
    (void)state;
    begin(&w, READS_ONLY);
    CHECK_STATUS(tensors_of(&w, "00112233445566778899aabbccddeeff"), TB_NOT_FOUND);
    CHECK_STATUS(tensors_of(&w, "no uid"), TB_NOT_FOUND);
    CHECK_STATUS(tensors_of(&w, ""), TB_NOT_FOUND);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_said_of_what_may_be_read),
        cmocka_unit_test(tensors_are_not_written_again_and_again),
        cmocka_unit_test(tensors_of_no_version_are_not_found),
        cmocka_unit_test(a_worker_without_the_right_is_given_no_source),
        cmocka_unit_test(a_worker_with_the_right_is_given_one),
        cmocka_unit_test(a_worker_without_the_right_is_no_copy),
        cmocka_unit_test(exports_of_nothing_are_not_kept),
        cmocka_unit_test(a_worker_without_the_right_reports_no_lost_hop),
        cmocka_unit_test(an_identity_without_rights_is_not_told_what_there_is),
        cmocka_unit_test(an_identity_with_one_is),
    };
    return cmocka_run_group_tests_name("session_rights", tests, NULL, NULL);
}
