/* reload.c - a gateway reads its configuration again: what is live counts at the end of the turn,
 * what needs a restart stays as it was, and a file that is not good changes nothing at all (P10).
 *
 * Covers: gateway/daemon/reload.c gateway/daemon/reload_rooms.c gateway/daemon/catalog_models.c */
#include "gateway/daemon/reload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/catalog/views.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

struct world {
    struct home home;
    char path[SCRATCH_BYTES + 32];
};

/* The file that the gateway reads; `more`: lines behind those of daemon_home.c. */
static void put(struct world *w, const char *models, const char *arena, const char *more)
{
    const char *dir = w->home.dir;
    FILE *f = fopen(w->path, "w");
    assert_non_null(f);
    (void)fprintf(
        f,
        "site: east\ncontrol: {socket: %s/control}\nsession: {socket: %s/session, lease_ms: %u}\n"
        "store: {path: %s/store}\narena: {path: %s/arena, bytes: %s, reverify: false}\nmodels: %s\n%s",
        dir, dir, HOME_LEASE_MS, dir, dir, arena, models, more);
    assert_int_equal(fclose(f), 0);
}

static void begin(struct world *w)
{
    memset(w, 0, sizeof *w);
    home_new_with(&w->home, "{policy: {home: east, publish: [\"unix:*\"]}}", false);
    home_start(&w->home);
    (void)snprintf(w->path, sizeof w->path, "%s/east.yaml", w->home.dir);
    w->home.d->config_path = w->path;
}

static void end(struct world *w)
{
    home_end(&w->home);
    assert_int_equal(unlink(w->path), 0);
    home_free(&w->home);
}

/* SIGHUP, and the turn of the loop in which it comes. */
static void reload(struct world *w)
{
    tb_reload_signal(w->home.d);
    (void)uv_run(&w->home.d->loop, UV_RUN_NOWAIT);
    assert_null(w->home.d->reload);
}

/* The versions that the catalog keeps of it; 0: it does not know the model. */
static uint32_t kept(const struct world *w, const char *model)
{
    struct tb_catalog_model m;
    for (uint32_t cursor = 0; tb_catalog_model_at(w->home.d->catalog, &cursor, &m);)
        if (strcmp(m.name.text, model) == 0) return m.keep;
    return 0;
}

static const struct tb_config *now(const struct world *w)
{
    return w->home.d->config;
}

static void a_live_key_counts_in_this_turn(void **state)
{
    static struct world w;
    (void)state;
    begin(&w);
    const struct tb_config *before = now(&w);
    put(&w, "{policy: {home: east, keep: 5}, more: {home: east, publish: [\"unix:*\"]}}", "8MiB",
        "limits: {garbled_frames: 7}\n");
    tb_reload_signal(w.home.d);
    assert_ptr_equal(now(&w), before); /* the dispatcher takes it */
    reload(&w);
    assert_int_equal(kept(&w, "policy"), 5);
    assert_int_equal(kept(&w, "more"), 2);
    assert_int_equal(now(&w)->models[0].publish_count, 0);
    assert_int_equal(now(&w)->models[1].publish_count, 1);
    assert_int_equal(w.home.d->session_limits.glitches->most[TB_GLITCH_GARBLED], 7);
    assert_int_equal(w.home.d->counters.reloads, 2); /* the second was asked for meanwhile */
    assert_int_equal(w.home.d->counters.reloads_refused, 0);
    end(&w);
}

static void a_file_that_is_not_good_changes_nothing(void **state)
{
    static struct world w;
    static const char *const models[] = {
        "{policy: {home: east, keep: 5}, more: {home: east, home_ca: /nowhere/ca.crt}}",
        "{policy: {home: east, keep: 5, nonsense: 1}}",
        "{policy: {home: east, keep: 0}}",
        "[",
    };
    (void)state;
    begin(&w);
    const struct tb_config *before = now(&w);
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        put(&w, models[i], "8MiB", "");
        reload(&w);
        assert_ptr_equal(now(&w), before);
        assert_int_equal(kept(&w, "policy"), 2);
        assert_int_equal(kept(&w, "more"), 0);
        assert_int_equal(w.home.d->counters.reloads_refused, i + 1);
    }
    assert_int_equal(w.home.d->counters.reloads, 0);
    assert_int_equal(unlink(w.path), 0);
    reload(&w);
    assert_ptr_equal(now(&w), before);
    put(&w, "{}", "8MiB", "");
    end(&w);
}

static void a_key_that_needs_a_restart_stays(void **state)
{
    static struct world w;
    (void)state;
    begin(&w);
    put(&w, "{policy: {home: east, keep: 4}}", "16MiB", "drain_ms: 1\n");
    reload(&w);
    assert_int_equal(kept(&w, "policy"), 4);
    assert_int_equal(now(&w)->arena_bytes, 8u << 20);
    assert_int_equal(now(&w)->drain_ms, 10000);
    end(&w);
}

/* Its versions stay, and it may come back; a model of which the store has more does not. */
static void a_model_goes_and_comes_back(void **state)
{
    static struct world w;
    (void)state;
    begin(&w);
    put(&w, "{}", "8MiB", "");
    reload(&w);
    assert_int_equal(now(&w)->model_count, 1);
    assert_true(now(&w)->models[0].left);
    assert_int_equal(now(&w)->models[0].publish_count, 0);
    assert_int_equal(kept(&w, "policy"), 2);
    CHECK_OK(tb_name_set(&w.home.d->unread[0], "other"));
    w.home.d->unread_count = 1;
    put(&w, "{policy: {home: east, keep: 3, publish: [\"unix:*\"]}, other: {home: east}}", "8MiB", "");
    reload(&w);
    assert_int_equal(now(&w)->model_count, 1);
    assert_false(now(&w)->models[0].left);
    assert_int_equal(now(&w)->models[0].publish_count, 1);
    assert_int_equal(kept(&w, "policy"), 3);
    assert_int_equal(kept(&w, "other"), 0);
    end(&w);
}

/* ---- by the control socket ---- */

static json_t *asked(struct world *w, const char *words, enum tb_status status)
{
    char error[256] = "";
    json_t *request = json_loads(words, 0, NULL), *reply = json_object();
    CHECK_STATUS(tb_reload_command(w->home.d, request, reply, error), status);
    json_decref(request);
    return reply;
}

static void an_operator_sees_the_difference(void **state)
{
    static struct world w;
    (void)state;
    begin(&w);
    put(&w, "{policy: {home: east, keep: 4, publish: [\"unix:*\"]}}", "16MiB", "");
    json_t *dry = asked(&w, "{\"dry_run\": true}", TB_OK);
    (void)uv_run(&w.home.d->loop, UV_RUN_NOWAIT);
    assert_int_equal(kept(&w, "policy"), 2);
    json_t *done = asked(&w, "{\"reason\": \"more room\"}", TB_AGAIN);
    json_t *again = asked(&w, "{}", TB_BAD_STATE); /* one at a time */
    (void)uv_run(&w.home.d->loop, UV_RUN_NOWAIT);
    assert_int_equal(kept(&w, "policy"), 4);
    assert_true(json_equal(json_object_get(dry, "changes"), json_object_get(done, "changes")));
    assert_int_equal(json_array_size(json_object_get(done, "changes")), 2);
    assert_int_equal(json_integer_value(json_object_get(done, "applied")), 1);
    assert_int_equal(json_integer_value(json_object_get(done, "restart")), 1);
    assert_int_equal(json_integer_value(json_object_get(dry, "applied")), 0);
    json_t *wrong = asked(&w, "{\"reason\": 7}", TB_BAD_ARGUMENT);
    put(&w, "[", "16MiB", "");
    json_t *broken = asked(&w, "{\"dry_run\": true}", TB_OK);
    assert_true(json_array_size(json_object_get(broken, "errors")) > 0);
    json_t *const all[] = {dry, done, again, wrong, broken};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        json_decref(all[i]);
    end(&w);
}

static void the_configuration_is_told_as_a_file(void **state)
{
    static struct world w;
    char error[256] = "";
    struct tb_config *told = NULL;
    struct tb_config_difference d;
    (void)state;
    begin(&w);
    json_t *reply = json_object();
    CHECK_OK(tb_reload_config_command(w.home.d, NULL, reply, error));
    const char *text = json_string_value(json_object_get(reply, "document"));
    assert_non_null(text);
    CHECK_OK(tb_config_parse_running(text, strlen(text), NULL, NULL, &told));
    CHECK_OK(tb_config_differ(now(&w), told, NULL, &d));
    assert_int_equal(d.count, 0);
    tb_config_difference_free(&d);
    tb_config_free(told);
    json_decref(reply);
    put(&w, "{}", "8MiB", "");
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_live_key_counts_in_this_turn),
        cmocka_unit_test(a_file_that_is_not_good_changes_nothing),
        cmocka_unit_test(a_key_that_needs_a_restart_stays),
        cmocka_unit_test(a_model_goes_and_comes_back),
        cmocka_unit_test(an_operator_sees_the_difference),
        cmocka_unit_test(the_configuration_is_told_as_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
