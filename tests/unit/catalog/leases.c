/* leases.c - tests of gateway/catalog/leases.c: which workers are believed to live (P6), and which
 * are not.
 *
 * Covers: gateway/catalog/leases.c gateway/catalog/rows/session_rows.c
 * Covers: gateway/catalog/catalog_clock.c */
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "site.h"

/* P6: nobody is lost because this process stood still. */
static void a_pause_of_the_process_takes_no_lease(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    come(&s, "w0");
    pass_ms(&s, 5000, NULL);
    pause_ms(&s, 60000);
    tb_catalog_tick(s.c, s.now);
    said(&s, "");
    /* The 5 s that were left are left still, less the one tick that a loop may take. */
    pass_ms(&s, 4800, NULL);
    said(&s, "");
    pass_ms(&s, 400, NULL);
    said(&s, "[69900] lost w0\n");
    site_close(&s);
}

/* The twin: the worker is silent, the process is not. */
static void a_silent_worker_loses_its_lease(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    come(&s, "w0");
    come(&s, "w1");
    const char *const renewing[] = {"w1", NULL};
    pass_ms(&s, 10050, renewing);
    said(&s, "[10000] lost w0\n");
    const struct tb_id gone = session_of("w0");
    CHECK_STATUS(tb_catalog_session_renew(s.c, s.now, &gone), TB_PEER_LEASE);
    CHECK_STATUS(tb_catalog_session_resume(s.c, s.now, &gone, "unix:1000"), TB_PEER_LEASE);
    site_close(&s);
}

/* P8: an id overheard is not an identity. */
static void only_its_own_identity_resumes_a_session(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    come(&s, "w0");
    const struct tb_id id = session_of("w0");
    tb_catalog_session_detach(s.c, s.now, &id);
    CHECK_STATUS(tb_catalog_session_resume(s.c, s.now, &id, "unix:1001"), TB_CONFLICT);
    pass_ms(&s, 9000, NULL);
    CHECK_OK(tb_catalog_session_resume(s.c, s.now, &id, "unix:1000"));
    pass_ms(&s, 9000, NULL); /* a resume is a renewal */
    said(&s, "");
    site_close(&s);
}

/* Todos that could not be told while the connection was down come out when it is back (P10). */
static void a_resumed_session_hears_what_it_missed(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PEERS;
    come(&s, "rank-0");
    come(&s, "w0");
    CHECK_OK(run_open(&s, "rank-0", "a", 100));
    publish_whole(&s, "rank-0", 5);
    hush(&s);
    CHECK_OK(join(&s, "w0", "g", 0, 1));
    CHECK_OK(stage(&s, "w0", 5));
    said(&s, "[   0] plan w0 v5 from gateway\n");
    const struct tb_id id = session_of("w0");
    tb_catalog_session_detach(s.c, s.now, &id);
    const struct tb_id v5 = id_of(5);
    CHECK_OK(tb_catalog_withdraw(s.c, s.now, &v5, "ann"));
    said(&s, "[   0] evict v5: version_withdrawn\n"
             "[   0] tell rank-0 v5 version_withdrawn\n");
    CHECK_OK(tb_catalog_session_resume(s.c, s.now, &id, "unix:1000"));
    said(&s, "[   0] tell w0 v5 version_withdrawn\n");
    site_close(&s);
}

/* P7: a connection may be back before the old one is known to be gone. Waits of the old
 * connection end without an answer, and take no row any more. */
static void a_session_resumed_over_its_old_connection_waits_no_more(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PEERS | NOT_TELL;
    come(&s, "rank-0");
    come(&s, "w0");
    CHECK_OK(run_open(&s, "rank-0", "a", 100));
    const struct tb_id id = session_of("w0");
    for (uint32_t times = 0; times < 40; times++) { /* more than the table has rows */
        wait_for(&s, "w0", TB_CATALOG_WAIT_EXACT, 5, 0, 60000);
        CHECK_OK(tb_catalog_session_resume(s.c, s.now, &id, "unix:1000"));
    }
    wait_for(&s, "w0", TB_CATALOG_WAIT_EXACT, 5, 0, 60000);
    publish_whole(&s, "rank-0", 5);
    said(&s, "[   0] answer 41: v5 whole\n");
    site_close(&s);
}

static void a_resumed_session_hears_its_plan_and_go_again(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    s.left_out = NOT_STORE | NOT_LANDING | NOT_PEERS | NOT_TELL;
    come(&s, "rank-0");
    come(&s, "w0");
    CHECK_OK(run_open(&s, "rank-0", "a", 100));
    publish_whole(&s, "rank-0", 5);
    CHECK_OK(join(&s, "w0", "g", 0, 1));
    CHECK_OK(stage(&s, "w0", 5));
    said(&s, "[   0] plan w0 v5 from gateway\n");
    const struct tb_id id = session_of("w0");
    tb_catalog_session_detach(s.c, s.now, &id);
    CHECK_OK(tb_catalog_session_resume(s.c, s.now, &id, "unix:1000"));
    said(&s, "[   0] plan w0 v5 from gateway\n");
    CHECK_OK(progress(&s, "w0", 5, SHARD_CHUNKS));
    said(&s, "[   0] go w0 v5\n");
    tb_catalog_session_detach(s.c, s.now, &id);
    CHECK_OK(tb_catalog_session_resume(s.c, s.now, &id, "unix:1000"));
    said(&s, "[   0] go w0 v5\n");
    site_close(&s);
}

/* P4: a session's id is used once; a good-bye said twice is one. */
static void closing_is_final_and_may_be_repeated(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    come(&s, "w0");
    struct tb_catalog_session again = {.id = session_of("w0"), .name = name_of("w0"), .host = name_of("h")};
    CHECK_STATUS(tb_catalog_session_open(s.c, s.now, &again), TB_CONFLICT);
    tb_catalog_session_close(s.c, s.now, &again.id);
    tb_catalog_session_close(s.c, s.now, &again.id);
    said(&s, "");
    CHECK_STATUS(tb_catalog_session_renew(s.c, s.now, &again.id), TB_PEER_LEASE);
    memset(again.host.text, 0, sizeof again.host.text);
    CHECK_STATUS(tb_catalog_session_open(s.c, s.now, &again), TB_BAD_ARGUMENT);
    site_close(&s);
}

/* P7: a full table refuses, says which one it is, and harms nobody. */
static void a_full_table_is_refused_by_name(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    for (unsigned i = 0; i < SITE_SESSIONS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "w-%u", i);
        come(&s, name);
    }
    struct tb_catalog_session more = {
        .id = session_of("more"), .name = name_of("more"), .host = name_of("h")};
    CHECK_STATUS(tb_catalog_session_open(s.c, s.now, &more), TB_SITE_NOMEM);
    assert_string_equal(tb_catalog_full(s.c), "sessions");
    const struct tb_id leaving = session_of("w-2");
    tb_catalog_session_close(s.c, s.now, &leaving);
    CHECK_OK(tb_catalog_session_open(s.c, s.now, &more));
    assert_string_equal(tb_catalog_full(s.c), "");
    site_close(&s);
}

/* Sessions and hosts are looked for where they were last seen; rows are used again by others, and
 * what was seen there must not be believed. */
static void a_row_used_again_is_another_session(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 2);
    for (uint32_t life = 0; life < 200; life++) {
        char name[32];
        for (uint32_t w = 0; w < 10; w++) {
            (void)snprintf(name, sizeof name, "w%u-%u", life, w);
            come(&s, name);
        }
        for (uint32_t w = 0; w < 10; w++) {
            (void)snprintf(name, sizeof name, "w%u-%u", life, w);
            const struct tb_id id = session_of(name);
            struct tb_catalog_session_view view;
            assert_true(tb_catalog_session_get(s.c, &id, &view));
            assert_string_equal(view.session.name.text, name);
            CHECK_OK(tb_catalog_session_renew(s.c, s.now, &id));
            tb_catalog_session_close(s.c, s.now, &id);
            CHECK_STATUS(tb_catalog_session_renew(s.c, s.now, &id), TB_PEER_LEASE);
        }
        hush(&s);
    }
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_used_again_is_another_session),
        cmocka_unit_test(a_pause_of_the_process_takes_no_lease),
        cmocka_unit_test(a_silent_worker_loses_its_lease),
        cmocka_unit_test(only_its_own_identity_resumes_a_session),
        cmocka_unit_test(a_resumed_session_hears_what_it_missed),
        cmocka_unit_test(a_session_resumed_over_its_old_connection_waits_no_more),
        cmocka_unit_test(a_resumed_session_hears_its_plan_and_go_again),
        cmocka_unit_test(closing_is_final_and_may_be_repeated),
        cmocka_unit_test(a_full_table_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
