/* audit.c - rows of the audit record before the disk has them: summed, bounded, and never lost
 * without a word (P7, P10).
 *
 * Covers: gateway/daemon/audit.c gateway/daemon/persist.c */
#include "gateway/daemon/audit.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

static void turns(struct home *h, bool (*until)(const struct home *h))
{
    const tb_time_ns end = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (!until(h) && tb_clock_now() < end)
        (void)uv_run(&h->d->loop, UV_RUN_ONCE);
    assert_true(until(h));
}

static struct tb_audit_usage usage(const struct home *h)
{
    struct tb_audit_usage u;
    tb_audit_usage(h->d, &u);
    return u;
}

static bool written(const struct home *h)
{
    return usage(h).rows.used == 0;
}

static struct tb_audit_query *answered;
static enum tb_status answer_status;

static void answer(struct tb_daemon *d, void *user, struct tb_audit_query *query, enum tb_status status)
{
    (void)d, (void)user;
    answered = query;
    answer_status = status;
}

static bool has_answer(const struct home *h)
{
    (void)h;
    return answered != NULL;
}

/* The caller's, by tb_free. */
static struct tb_audit_query *ask(struct home *h, const char *action)
{
    struct tb_audit_query *q = tb_calloc(1, sizeof *q);
    answered = NULL;
    q->most = TB_AUDIT_PAGE;
    snprintf(q->action, sizeof q->action, "%s", action);
    CHECK_OK(tb_audit_ask(h->d, q, answer, NULL));
    turns(h, has_answer);
    CHECK_OK(answer_status);
    return answered;
}

static void deny(struct home *h, const char *identity, const char *object)
{
    tb_audit_denied(h->d, &(struct tb_audit_event){"read", identity, object, "w", "no right"}, 1);
}

/* P7: its objects beyond 32 are one, and another identity keeps its own. */
static void denials_of_one_identity_are_summed(void **state)
{
    (void)state;
    struct home h;
    home_new(&h);
    home_start(&h);
    char object[16];
    for (int i = 0; i < 1000; i++) {
        snprintf(object, sizeof object, "m%d", i % 250);
        deny(&h, "unix:7", object);
    }
    deny(&h, "unix:8", "policy");
    assert_true(usage(&h).sums.used <= 2 * (32 + 1) + 2); /* a minute may end in between */
    struct tb_audit_query *q = ask(&h, "read");
    uint64_t count = 0, other = 0;
    for (uint32_t i = 0; i < q->count; i++) {
        if (strcmp(q->rows[i].identity, "unix:8") == 0)
            other += q->rows[i].count;
        else
            count += q->rows[i].count;
        assert_int_equal(q->rows[i].share, TB_AUDIT_DENIALS);
    }
    assert_int_equal(count, 1000);
    assert_int_equal(other, 1);
    assert_int_equal(usage(&h).lost, 0);
    tb_free(q);
    home_end(&h);
    home_free(&h);
}

/* P10: an act that finds no place is counted, and a denial takes no place of an act. */
static void a_row_without_a_place_is_counted(void **state)
{
    (void)state;
    struct home h;
    home_new(&h);
    home_start(&h);
    turns(&h, written);
    char identity[32];
    for (int i = 0; i < 600; i++) {
        snprintf(identity, sizeof identity, "unix:%d", i);
        deny(&h, identity, "policy");
    }
    const uint64_t denials = usage(&h).lost;
    assert_true(denials >= 600 - 2 * 128 && denials <= 600 - 128);
    for (int i = 0; i < 300; i++)
        tb_audit_act(h.d, &(struct tb_audit_event){.action = "pin", .identity = "ann", .result = "ok"});
    assert_int_equal(usage(&h).lost, denials + 300 - 128);
    struct tb_audit_query *q = ask(&h, "pin");
    assert_int_equal(q->count, 128);
    assert_int_equal(h.d->counters.audit_lost, usage(&h).lost);
    tb_free(q);
    home_end(&h);
    home_free(&h);
}

/* Texts are cut between characters, and no text is no row without one. */
static void texts_are_cut(void **state)
{
    (void)state;
    struct home h;
    home_new(&h);
    home_start(&h);
    char result[TB_AUDIT_RESULT_BYTES + 2];
    memset(result, 'x', sizeof result);
    memcpy(result + TB_AUDIT_RESULT_BYTES - 2, "\xc3\xa9", 3); /* an e with an accent */
    tb_audit_act(h.d, &(struct tb_audit_event){.action = "cut", .result = result});
    struct tb_audit_query *q = ask(&h, "cut");
    assert_int_equal(q->count, 1);
    assert_int_equal(strlen(q->rows[0].result), TB_AUDIT_RESULT_BYTES - 2);
    assert_string_equal(q->rows[0].identity, "");
    tb_free(q);
    home_end(&h);
    home_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(denials_of_one_identity_are_summed),
        cmocka_unit_test(a_row_without_a_place_is_counted),
        cmocka_unit_test(texts_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
