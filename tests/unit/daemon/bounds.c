/* bounds.c - the tables that a configuration makes: they follow its models, their `keep`
 * and session.max (P7).
 * Covers: gateway/config/bounds.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/config/bounds.h"

/* Of models of patterns, whatever the file has: a reload may bring some. */
#define AWAKE_VERSIONS   (8 * TB_CONFIG_AWAKE_MAX)
#define AWAKE_REFERENCES (4 * TB_CONFIG_AWAKE_MAX)

static struct tb_bounds bounds_of(uint32_t models, uint32_t keep)
{
    static struct tb_config config;
    config = (struct tb_config){.session_max = 100, .model_count = models};
    for (uint32_t i = 0; i < models; i++)
        config.models[i].keep = keep;
    return tb_bounds_of(&config);
}

static void each_model_has_rows_for_what_it_keeps(void **state)
{
    (void)state;
    const struct tb_bounds few = bounds_of(1, 2), many = bounds_of(64, 1000);
    assert_int_equal(few.model_versions, 64);
    assert_int_equal(few.versions, 64 * 64 + AWAKE_VERSIONS); /* a later file may have more models */
    assert_int_equal(many.model_versions, 3 * 1000 + 24);
    assert_int_equal(many.versions, 64 * (3 * 1000 + 24) + AWAKE_VERSIONS);
    struct tb_config mixed = {.model_count = 2, .models = {{.keep = 2}, {.keep = 100}}};
    assert_int_equal(tb_bounds_of(&mixed).model_versions, 324);
    assert_int_equal(tb_bounds_of(&mixed).versions, 63 * 64 + 324 + AWAKE_VERSIONS);
}

/* P6: 64 sites hold all that is kept of each model, and one that arrives. */
static void each_site_has_rows_for_what_is_kept(void **state)
{
    (void)state;
    assert_int_equal(bounds_of(1, 2).site_references, 1024 + AWAKE_REFERENCES);
    assert_int_equal(bounds_of(64, 8).site_references, 64 * 64 * 9 + AWAKE_REFERENCES);
    assert_int_equal(bounds_of(64, 1000).site_references, 1 << 18); /* a budget of memory */
}

static void sessions_bound_what_workers_have(void **state)
{
    (void)state;
    const struct tb_bounds b = bounds_of(1, 2);
    assert_int_equal(b.sessions, 100);
    assert_int_equal(b.members, 100);
    assert_int_equal(b.groups, 100);
    assert_int_equal(b.waits, 200);
    assert_int_equal(b.references, 400);
}

static uint64_t bound_of(const struct tb_bounds *b, const char *name)
{
    struct tb_bound bound;
    uint64_t found = 0;
    uint32_t count = 0;
    for (uint32_t cursor = 0; tb_bounds_at(b, &cursor, &bound);) {
        if (strcmp(bound.name, name) != 0) continue;
        found = bound.most;
        count++;
    }
    assert_int_equal(count, 1);
    return found;
}

static void each_bound_is_named_once(void **state)
{
    (void)state;
    const struct tb_bounds b = bounds_of(3, 2);
    struct tb_bound bound;
    for (uint32_t cursor = 0; tb_bounds_at(&b, &cursor, &bound);)
        (void)bound_of(&b, bound.name);
    assert_int_equal(bound_of(&b, "versions"), b.versions);
    assert_int_equal(bound_of(&b, "versions_of_a_model"), b.model_versions);
    assert_int_equal(bound_of(&b, "references"), b.references + b.site_references);
    assert_int_equal(bound_of(&b, "references_of_sites"), b.site_references);
    assert_int_equal(bound_of(&b, "records"), b.records);
}

static void encoded_chunks_have_a_part_of_the_arena(void **state)
{
    (void)state;
    const struct tb_config config = {.arena_bytes = 1000, .link_encoded_percent = 5};
    assert_int_equal(tb_bounds_of(&config).encoded_bytes, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_model_has_rows_for_what_it_keeps),
        cmocka_unit_test(each_site_has_rows_for_what_is_kept),
        cmocka_unit_test(sessions_bound_what_workers_have),
        cmocka_unit_test(each_bound_is_named_once),
        cmocka_unit_test(encoded_chunks_have_a_part_of_the_arena),
    };
    return cmocka_run_group_tests_name("daemon.bounds", tests, NULL, NULL);
}
