/* A link finds a model that its peer may read among thousands in a few steps, also after rights
 * ended and came. P7, P8.
 * Covers: wan/link/traffic/announced_versions.c */
#include "wan/link/traffic/announced_versions.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "tests/unit/check.h"
#include "wan/link/link.h"

#define LONGEST 12u /* rows of one bucket: with as many buckets as rows, names that nobody chose have fewer */

static struct tb_link l;

static struct tb_name nth(uint32_t i)
{
    struct tb_name name;
    char text[32];
    (void)snprintf(text, sizeof text, "lora-%u", i);
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

static bool has(uint32_t i)
{
    const struct tb_name name = nth(i);
    return tb_link_granted(&l, &name);
}

static void put(uint32_t i)
{
    const struct tb_name name = nth(i);
    CHECK_OK(tb_link_granted_room(&l));
    tb_link_granted_put(&l, &name);
}

static bool end(uint32_t i)
{
    const struct tb_name name = nth(i);
    return tb_link_granted_end(&l, &name);
}

/* The longest way to a row; each row is on one way. */
static uint32_t longest_way(void)
{
    const struct tb_link_models *m = &l.traffic.models;
    uint32_t longest = 0, rows = 0;
    for (uint32_t b = 0; b < m->granted_cap; b++) {
        uint32_t steps = 0;
        for (uint32_t at = m->granted[b].first; at != 0; at = m->granted[at - 1].next) {
            assert_true(at <= m->granted_count);
            steps++;
        }
        rows += steps;
        longest = steps > longest ? steps : longest;
    }
    assert_int_equal(rows, m->granted_count);
    return longest;
}

static int teardown(void **state)
{
    (void)state;
    tb_free(l.traffic.models.granted);
    memset(&l, 0, sizeof l);
    return 0;
}

static void a_model_is_a_few_steps_away(void **state)
{
    (void)state;
    assert_false(has(0));
    for (uint32_t i = 0; i < TB_LINKS_GRANTED_MAX; i++)
        put(i);
    assert_true(longest_way() <= LONGEST);
    for (uint32_t i = 0; i < TB_LINKS_GRANTED_MAX; i++)
        assert_true(has(i));
    assert_false(has(TB_LINKS_GRANTED_MAX));
}

/* Rights end and come in no order; a bitmap knows who has one. */
static void rights_end_and_come(void **state)
{
    (void)state;
    static bool granted[512];
    uint64_t seed = 26;
    uint32_t count = 0;
    memset(granted, 0, sizeof granted);
    for (uint32_t turn = 0; turn < 20000; turn++) {
        const uint32_t i = (uint32_t)(check_random(&seed) % 512);
        assert_int_equal(has(i), granted[i]);
        if (granted[i])
            assert_true(end(i));
        else
            put(i);
        granted[i] = !granted[i];
        count += granted[i] ? 1 : UINT32_MAX;
        assert_int_equal(l.traffic.models.granted_count, count);
        if (turn % 1000 == 0) assert_true(longest_way() <= LONGEST);
    }
    for (uint32_t i = 0; i < 512; i++)
        assert_int_equal(end(i), granted[i]);
    assert_int_equal(l.traffic.models.granted_count, 0);
    assert_int_equal(longest_way(), 0);
}

/* A session that ends leaves none; the next one begins in the same memory. */
static void a_new_session_begins_with_none(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        put(i);
    tb_link_granted_clear(&l);
    assert_false(has(7));
    assert_false(end(7));
    for (uint32_t i = 50; i < 150; i++)
        put(i);
    assert_true(!has(7) && has(77) && has(149));
    assert_true(longest_way() <= LONGEST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_model_is_a_few_steps_away, teardown),
        cmocka_unit_test_teardown(rights_end_and_come, teardown),
        cmocka_unit_test_teardown(a_new_session_begins_with_none, teardown),
    };
    return cmocka_run_group_tests_name("wan.granted", tests, NULL, NULL);
}
