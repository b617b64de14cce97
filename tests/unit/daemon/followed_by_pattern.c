/* followed_by_pattern.c - a site that follows a pattern: what its peers say of a model that sleeps
 * here, or that has just woken, or that finds no row; and what its home says of one that sleeps.
 *
 * Covers: gateway/daemon/links/link_events.c gateway/daemon/links/site_records.c
 * Covers: gateway/daemon/models/model_wake.c gateway/daemon/models/model_life.c
 * Covers: gateway/daemon/models/model_waiting.c gateway/daemon/control/lag_status.c
 * Covers: gateway/daemon/copies/adoption.c */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "gateway/catalog/views.h"
#include "gateway/daemon/control/lag_status.h"
#include "gateway/daemon/copies/adoption.h"
#include "gateway/daemon/links/lag.h"
#include "gateway/daemon/links/link_events.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/links/site_records.h"
#include "gateway/daemon/models/model_life.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/models/model_wake.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"

/* The last word to a peer. */
static struct {
    uint32_t count, peer;
    struct tb_site_state state;
} told;

enum tb_status __wrap_tb_links_tell_state(struct tb_links *links, uint32_t peer,
                                          const struct tb_site_state *s);
enum tb_status __wrap_tb_links_tell_state(struct tb_links *links, uint32_t peer,
                                          const struct tb_site_state *s)
{
    (void)links;
    told.count++;
    told.peer = peer;
    told.state = *s;
    return TB_OK;
}

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

/* ---- a model that finds no row ---- */

/* Other homes' models: each identity has a quarter. */
static void fill_rows(struct home *h)
{
    for (uint32_t i = 0; i < TB_CONFIG_AWAKE_MAX; i++) {
        const struct tb_name name = nth(i);
        const struct tb_model_user user = {100 + i / (TB_CONFIG_AWAKE_MAX / 4), true};
        CHECK_STATUS(tb_model_wake(h->d, &name, &user), TB_AGAIN);
    }
    assert_int_equal(home_table(h, "models_awake", "used"), TB_CONFIG_AWAKE_MAX);
}

/* Nobody speaks of them for a minute. */
static void empty_rows(struct home *h)
{
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (home_table(h, "models_awake", "used") != 0 && tb_clock_now() < until) {
        for (uint32_t i = TB_CONFIG_LIST_MAX; i < TB_CONFIG_MODELS_MAX; i++)
            h->d->models.rows[i].used_at = 0;
        tb_models_tick(h->d);
        (void)uv_run(&h->d->loop, UV_RUN_ONCE);
    }
    assert_int_equal(home_table(h, "models_awake", "used"), 0);
}

/* West has one version of it, 2:5. */
static void west_has(struct home *h, const struct tb_name *model)
{
    static struct tb_site_state s;
    s = (struct tb_site_state){
        .site = {"west"}, .model = *model, .known = true, .incarnation = 1, .serial = 1, .head = {2, 5}};
    s.held_count = 1;
    s.held[0] = (struct tb_site_held){.uid = {{9}},
                                      .which = {2, 5},
                                      .bytes = 700,
                                      .held_bytes = 700,
                                      .marks = TB_SITE_READY | TB_SITE_WHOLE};
    memset(&told, 0, sizeof told);
    tb_site_records_state(h->d, 0, &s);
}

/* `lag` of that model has one row, of this site: with that reason. NULL: it is not known here. */
static void lag_says(struct home *h, const struct tb_name *model, const char *reason)
{
    char error[256] = "";
    json_t *request = json_pack("{s:s}", "model", model->text), *reply = json_object();
    const enum tb_status status = tb_status_lag(h->d, request, reply, error);
    const json_t *rows = json_object_get(reply, "lag"), *row = json_array_get(rows, 0);
    CHECK_STATUS(status, reason != NULL ? TB_OK : TB_NOT_FOUND);
    if (reason != NULL) {
        assert_int_equal(json_array_size(rows), 1);
        assert_string_equal(json_string_value(json_object_get(row, "reason")), reason);
        assert_string_equal(json_string_value(json_object_get(row, "head")), "2:5");
        assert_int_equal(json_integer_value(json_object_get(row, "versions")), 1);
        assert_int_equal(json_integer_value(json_object_get(row, "bytes")), 700);
        assert_non_null(strstr(json_string_value(json_object_get(row, "evidence")), "models_awake"));
    }
    json_decref(request);
    json_decref(reply);
}

/* P10: it is shown here, and its home hears why it does not cross. It waits until a row is free. */
static void a_model_that_finds_no_row_is_shown_at_both_ends(void **state)
{
    (void)state;
    struct home h;
    struct world world;
    const struct tb_name late = nth(1000), other = {"other"};
    follower_begin(&h, &world);
    fill_rows(&h);
    lag_says(&h, &late, NULL);
    west_has(&h, &late);
    lag_says(&h, &late, "table-full");
    assert_int_equal(told.count, 1);
    assert_true(tb_name_equal(&told.state.model, &late) && tb_name_equal(&told.state.site, &h.d->site));
    assert_int_equal(told.state.reason, TB_LAG_TABLE);
    assert_true(told.state.known && told.state.head.number == 5 && told.state.versions == 1);
    west_has(&h, &other); /* nobody follows it here */
    lag_says(&h, &other, NULL);
    assert_int_equal(told.count, 0);
    empty_rows(&h);
    west_has(&h, &late);
    assert_true(tb_model_row_of(h.d, &late) != TB_MODEL_NONE);
    assert_null(tb_model_waiting_find(h.d, &late));
    follower_end(&h, &world);
}

/* P7: so many are remembered, and one that its home names no more makes room. */
static void so_many_wait_and_the_silent_make_room(void **state)
{
    (void)state;
    struct home h;
    struct world world;
    const struct tb_name first = nth(1000), beyond = nth(1000 + TB_MODELS_WAITING_MAX);
    uint32_t count = 0;
    follower_begin(&h, &world);
    fill_rows(&h);
    for (uint32_t i = 0; i <= TB_MODELS_WAITING_MAX; i++) {
        const struct tb_name name = nth(1000 + i);
        west_has(&h, &name);
        west_has(&h, &name); /* it has one place */
    }
    for (uint32_t cursor = 0; tb_model_waiting_at(h.d, &cursor) != NULL;)
        count++;
    assert_int_equal(count, TB_MODELS_WAITING_MAX);
    assert_non_null(tb_model_waiting_find(h.d, &first));
    assert_null(tb_model_waiting_find(h.d, &beyond));
    h.d->models.waiting[0].said_at = tb_clock_now() - TB_SECONDS(31);
    assert_null(tb_model_waiting_find(h.d, &first));
    west_has(&h, &beyond);
    lag_says(&h, &beyond, "table-full");
    follower_end(&h, &world);
}

/* ---- at home ---- */

/* P10: a site that was away while its last version went still shows it; it asks for the model again
 * when its link comes up. P8: a site without the right hears nothing. */
static void a_home_says_that_a_model_that_sleeps_has_no_version(void **state)
{
    (void)state;
    struct home h;
    struct world world;
    char rest[1024];
    const struct tb_name sleeps = nth(7), secret = {"secret-7"}, far = {"far-7"};
    world_init(&world);
    world_issue(&world, "east", "gw", "tombolo://east/gw");
    snprintf(rest, sizeof rest,
             "{\"lora-*\": {home: east, read: [\"tombolo://west/gw\"]}, \"secret-*\": {home: east}, "
             "\"far-*\": {home: west}}\npeers: {west: {address: \"127.0.0.1:9\"}}\n"
             "tls: {ca: %s, cert: %s, key: %s}\n",
             world_path(&world, "east", "ca.crt"), world_path(&world, "east", "gw.crt"),
             world_path(&world, "east", "gw.key"));
    home_new_with(&h, rest, false);
    home_start(&h);
    memset(&told, 0, sizeof told);
    tb_site_records_tell(h.d, 0, &secret);
    tb_site_records_tell(h.d, 0, &far); /* another site's word */
    assert_int_equal(told.count, 0);
    tb_site_records_tell(h.d, 0, &sleeps);
    assert_int_equal(told.count, 1);
    assert_true(tb_name_equal(&told.state.site, &h.d->site) && tb_name_equal(&told.state.model, &sleeps));
    assert_true(told.state.known && tb_site_which_none(&told.state.head) && told.state.held_count == 0);
    assert_int_equal(told.state.incarnation, h.d->incarnation);
    home_end(&h);
    home_free(&h);
    world_fini(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_are_heard_again_by_a_model_that_wakes),
        cmocka_unit_test(a_version_of_a_sleeping_model_is_of_no_other),
        cmocka_unit_test(it_is_followed_by_its_pattern),
        cmocka_unit_test(a_home_that_says_much_is_answered_so_often),
        cmocka_unit_test(a_model_that_finds_no_row_is_shown_at_both_ends),
        cmocka_unit_test(so_many_wait_and_the_silent_make_room),
        cmocka_unit_test(a_home_says_that_a_model_that_sleeps_has_no_version),
    };
    return cmocka_run_group_tests_name("daemon.followed_by_pattern", tests, NULL, NULL);
}
