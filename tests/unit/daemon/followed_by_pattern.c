/* followed_by_pattern.c - a site that follows a pattern: what its peers say of a model that sleeps
 * here, or that has just woken.
 *
 * Covers: gateway/daemon/links/link_events.c gateway/daemon/links/site_records.c
 * Covers: gateway/daemon/models/model_wake.c gateway/daemon/models/model_life.c
 * Covers: gateway/daemon/copies/adoption.c */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/adoption.h"
#include "gateway/daemon/links/link_events.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/links/site_records.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/models/model_wake.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"

static struct tb_name nth(uint32_t i)
{
    struct tb_name name;
    char text[32];
    (void)snprintf(text, sizeof text, "lora-%u", i);
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

static void follower_begin(struct home *h, struct world *world)
{
    linked_home_begin(
        h, world,
        "{policy: {home: west}, \"lora-*\": {home: west}}\n"
        "subscribe: [{model: policy, from: [west]}, {model: \"lora-*\", from: [west]}]\n" LINKED_WEST);
}

static void follower_end(struct home *h, struct world *world)
{
    linked_home_end(h, world);
}

static uint32_t wake(struct home *h, const struct tb_name *name)
{
    const struct tb_model_user west = {1, true};
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (tb_model_wake(h->d, name, &west) != TB_OK && tb_clock_now() < until)
        (void)uv_run(&h->d->loop, UV_RUN_ONCE);
    CHECK_OK(tb_model_wake(h->d, name, &west));
    return tb_model_row_of(h->d, name);
}

/* P6: a peer that granted it before announces it once, and to a row that sleeps in vain. */
static void versions_are_heard_again_by_a_model_that_wakes(void **state)
{
    (void)state;
    struct home h;
    home_new_with(&h, "{\"lora-*\": {home: west}}", false); /* without links, which would take the mark */
    home_start(&h);
    const struct tb_name name = nth(7);
    assert_false(h.d->news_refused);
    (void)wake(&h, &name);
    assert_true(h.d->news_refused);
    home_end(&h);
    home_free(&h);
}

/* A word on it is no word on the first model of the configuration. */
static void a_version_of_a_sleeping_model_is_of_no_other(void **state)
{
    (void)state;
    struct home h;
    struct world world;
    follower_begin(&h, &world);
    struct tb_version_key key = {
        .uid = {{1}}, .model = nth(7), .run = {{1}}, .run_order = 1, .number = 1, .shard_count = 1};
    key.root.bytes[0] = 1;
    h.d->own_named[0].refused_full = true;
    tb_link_events.on_version(h.d, 0, &key, 1, TB_LINKS_READY, TB_OK);
    assert_true(h.d->own_named[0].refused_full);
    const uint32_t row = wake(&h, &key.model);
    struct tb_catalog_version_view known;
    h.d->own[row]->refused_full = true;
    tb_link_events.on_version(h.d, 0, &key, 1, TB_LINKS_READY, TB_OK);
    assert_false(h.d->own[row]->refused_full);
    assert_true(tb_catalog_version_get(h.d->catalog, &key.uid, &known));
    follower_end(&h, &world);
}

/* Its home may push it, and files of it may be adopted, as of a model that is named. */
static void it_is_followed_by_its_pattern(void **state)
{
    (void)state;
    struct home h;
    struct world world;
    char error[256] = "";
    follower_begin(&h, &world);
    const struct tb_name name = nth(7), other = {"other"};
    assert_true(tb_link_events.expects(h.d, 0, &name));
    assert_false(tb_link_events.expects(h.d, 0, &other));
    json_t *request = json_pack("{s:s}", "model", name.text), *reply = json_object();
    CHECK_STATUS(tb_adopt_command(h.d, request, reply, error), TB_NOT_FOUND);
    assert_non_null(strstr(error, "nothing was adopted"));
    json_decref(request);
    json_decref(reply);
    follower_end(&h, &world);
}

/* P7: of all models that a peer speaks of, so many words are answered in a second. */
static void a_home_that_says_much_is_answered_so_often(void **state)
{
    (void)state;
    struct home h;
    struct world world;
    static struct tb_site_state s;
    uint32_t rows[30], answered = 0;
    follower_begin(&h, &world);
    for (uint32_t i = 0; i < 30; i++) {
        const struct tb_name name = nth(i);
        rows[i] = wake(&h, &name);
    }
    tb_site_records_tick(h.d);
    for (uint32_t i = 0; i < 30; i++) {
        s = (struct tb_site_state){.model = nth(i), .known = true, .incarnation = 1, .serial = 1};
        CHECK_OK(tb_name_set(&s.site, "west"));
        tb_site_records_state(h.d, 0, &s);
    }
    for (uint32_t i = 0; i < 30; i++)
        answered += h.d->own[rows[i]]->answered_at != 0;
    assert_int_equal(answered, 20);
    follower_end(&h, &world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_are_heard_again_by_a_model_that_wakes),
        cmocka_unit_test(a_version_of_a_sleeping_model_is_of_no_other),
        cmocka_unit_test(it_is_followed_by_its_pattern),
        cmocka_unit_test(a_home_that_says_much_is_answered_so_often),
    };
    return cmocka_run_group_tests_name("daemon.followed_by_pattern", tests, NULL, NULL);
}
