/* P7: one identity takes a quarter of the sessions, waits, groups and members, and a publisher
 * finds a row whatever the others take.
 * Covers: gateway/catalog/rows/tables.c gateway/catalog/rows/session_rows.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "gateway/catalog/groups.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/usage.h"
#include "gateway/catalog/waiters.h"
#include "site.h"

#define ROWS 64u

static const struct tb_catalog_limits limits = {.models = 2,
                                                .versions = 4,
                                                .shards = 1,
                                                .sessions = ROWS,
                                                .references = 8,
                                                .groups = ROWS,
                                                .members = ROWS,
                                                .waits = ROWS};
static struct tb_catalog *c;
static void *memory;
static uint64_t handle;

static int open_catalog(void **state)
{
    (void)state;
    const struct tb_catalog_config config = {.site = name_of("east"), .host = name_of("h")};
    memory = calloc(1, tb_catalog_bytes(&limits));
    assert_non_null(memory);
    c = tb_catalog_init(memory, &limits, &config, 1);
    const struct tb_catalog_model model = {
        .name = name_of("policy"), .home = name_of("east"), .is_home = true};
    CHECK_OK(tb_catalog_model_add(c, &model));
    return 0;
}

static int close_catalog(void **state)
{
    (void)state;
    free(memory);
    return 0;
}

static enum tb_status comes(const char *name, const char *identity, bool publishes)
{
    struct tb_catalog_session s = {
        .id = session_of(name), .name = name_of(name), .host = name_of("h"), .publishes = publishes};
    (void)snprintf(s.identity, sizeof s.identity, "%s", identity);
    return tb_catalog_session_open(c, 1, &s);
}

/* How many of `count` come in as workers w-0.. of one identity. */
static uint32_t crowd(const char *prefix, const char *identity, uint32_t count)
{
    uint32_t in = 0;
    for (uint32_t i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "%s-%u", prefix, i);
        in += comes(name, identity, false) == TB_OK;
    }
    return in;
}

static struct tb_catalog_table usage_of(const char *table)
{
    struct tb_catalog_table t = {0};
    for (uint32_t cursor = 0; tb_catalog_table_at(c, &cursor, &t);)
        if (strcmp(t.name, table) == 0) return t;
    fail_msg("no table %s", table);
    return t;
}

static void one_identity_has_a_quarter_of_the_sessions(void **state)
{
    (void)state;
    assert_int_equal(crowd("w", "unix:7", ROWS), ROWS / 4);
    assert_int_equal(usage_of("sessions").spent, ROWS - ROWS / 4);
    assert_string_equal(tb_catalog_full(c), "sessions");
    assert_int_equal(crowd("v", "unix:8", ROWS), ROWS / 4);
    const struct tb_id leaves = session_of("w-3");
    tb_catalog_session_close(c, 1, &leaves);
    CHECK_OK(comes("w-3", "unix:7", false));
}

static void a_publisher_finds_a_row(void **state)
{
    (void)state;
    uint32_t in = 0;
    for (uint32_t i = 0; i < 8; i++) {
        char prefix[8], identity[16];
        (void)snprintf(prefix, sizeof prefix, "w%u", i);
        (void)snprintf(identity, sizeof identity, "unix:%u", i);
        in += crowd(prefix, identity, ROWS);
    }
    assert_int_equal(in, ROWS - ROWS / 4);
    CHECK_STATUS(comes("late", "unix:99", false), TB_SITE_NOMEM);
    CHECK_OK(comes("rank", "unix:99", true));
}

static enum tb_status waits(const char *session)
{
    const struct tb_catalog_wait q = {.handle = ++handle,
                                      .session = session_of(session),
                                      .kind = TB_CATALOG_WAIT_LATEST,
                                      .model = name_of("policy"),
                                      .deadline = TB_TIME_NEVER};
    return tb_catalog_wait(c, 1, &q);
}

/* Over all of its sessions. */
static void waits_are_shared_by_identities(void **state)
{
    (void)state;
    uint32_t in = 0;
    assert_int_equal(crowd("w", "unix:7", 2), 2);
    CHECK_OK(comes("rank", "unix:8", true));
    for (uint32_t i = 0; i < ROWS; i++)
        in += waits(i % 2 == 0 ? "w-0" : "w-1") == TB_OK;
    assert_int_equal(in, ROWS / 4);
    CHECK_OK(waits("rank"));
    const struct tb_id leaves = session_of("w-0");
    tb_catalog_session_detach(c, 1, &leaves); /* its waits end */
    CHECK_OK(waits("w-1"));
}

static void groups_and_members_are_shared_by_identities(void **state)
{
    (void)state;
    uint32_t in = 0;
    assert_int_equal(crowd("w", "unix:7", 1), 1);
    for (uint32_t i = 0; i < ROWS; i++) {
        char group[16];
        (void)snprintf(group, sizeof group, "g-%u", i);
        struct tb_catalog_member m = {.session = session_of("w-0"),
                                      .subscription = i + 1,
                                      .model = name_of("policy"),
                                      .group = name_of(group),
                                      .count = 1,
                                      .owner = "unix:7"};
        in += tb_catalog_subscribe(c, 1, &m) == TB_OK;
    }
    assert_int_equal(in, ROWS / 4);
    assert_int_equal(usage_of("groups").used, ROWS / 4);
    assert_int_equal(usage_of("members").used, ROWS / 4);
    const struct tb_id leaves = session_of("w-0");
    tb_catalog_session_close(c, 1, &leaves);
    assert_int_equal(usage_of("members").used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_identity_has_a_quarter_of_the_sessions, open_catalog,
                                        close_catalog),
        cmocka_unit_test_setup_teardown(a_publisher_finds_a_row, open_catalog, close_catalog),
        cmocka_unit_test_setup_teardown(waits_are_shared_by_identities, open_catalog, close_catalog),
        cmocka_unit_test_setup_teardown(groups_and_members_are_shared_by_identities, open_catalog,
                                        close_catalog),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
