/* config_difference.c - each key of the table: a change of it is found, named, live or not as its
 * row says, and what runs afterwards has the live ones and nothing else (P10: nothing is applied by
 * half). Peers and models keep their rows.
 *
 * Covers: gateway/config/config_difference.c gateway/config/config_difference_rules.c
 * Covers: gateway/config/config_merge.c gateway/config/config_effects.c
 * Covers: gateway/config/config_value.c gateway/config/config_named.c */
#include "gateway/config/config_difference.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/config/config_value.h"
#include "tests/unit/daemon/config_text.h"

/* One of each scope; each list has an item. */
static const char base[] =
    "site: west\nlanes: 2\narena: {bytes: 64MiB}\ntls: {ca: a, cert: b, key: c, revoked: d}\n"
    "session: {networks: [10.0.0.0/8]}\nlink: {listen: \"0.0.0.0:7400\"}\n"
    "peers: {east: {address: \"gw.east:7400\", rate: 200Mbit, schedule: [\"08:00-18:00 50Mbit\"],"
    " speaks_for: [far]}, north: {address: \"gw.north:7400\"}}\n"
    "models: {policy: {home: east, read: [\"unix:*\"]}, own: {home: west, publish: [\"unix:1\"]}}\n"
    "subscribe: [{model: policy, from: [east]}]\n";

/* `base` with a text of it replaced. */
static struct tb_config *with(const char *old, const char *new)
{
    char text[4096];
    const char *at = strstr(base, old);
    assert_non_null(at);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - base), base, new, at + strlen(old));
    return config_of(text);
}

static void *instance(struct tb_config *c, enum config_scope scope)
{
    void *const all[] = {c, &c->peers[0], &c->models[0], &c->subscribe[0]};
    return all[scope];
}

static const char *name_of(enum config_scope scope)
{
    static const char *const names[] = {"", "peers.east.", "models.policy.", "subscribe.policy."};
    return names[scope];
}

static void change_item(const struct config_key *key, uint8_t *base_of)
{
    uint32_t count;
    memcpy(&count, base_of + key->count_offset, sizeof count);
    void *at = base_of + key->offset;
    if (key->type == CONFIG_NAMES)
        CHECK_OK(tb_name_set(&((struct tb_name *)at)[count], "another"));
    else if (key->type == CONFIG_SCHEDULE)
        assert_true(tb_rate_window_parse("22:00-06:00 none", &((struct tb_rate_window *)at)[count]));
    else
        ((const char **)at)[count] = key->type == CONFIG_NETWORKS ? "192.0.2.0/24" : "unix:7";
    count++;
    memcpy(base_of + key->count_offset, &count, sizeof count);
}

/* Another value that the key may have, whatever it has. */
static void change_value(const struct config_key *key, void *base_of)
{
    uint8_t *at = (uint8_t *)base_of + key->offset;
    if (tb_config_is_list(key->type)) {
        change_item(key, base_of);
        return;
    }
    switch (key->type) {
    case CONFIG_NAME:
        CHECK_OK(tb_name_set((struct tb_name *)(void *)at, "another"));
        break;
    case CONFIG_NUMBER:
    case CONFIG_AUTO:
        *(uint32_t *)(void *)at += 1;
        break;
    case CONFIG_SIZE:
    case CONFIG_RATE:
        *(uint64_t *)(void *)at += 1000000;
        break;
    case CONFIG_BOOL:
    case CONFIG_POLICY:
    case CONFIG_LOG_FORMAT:
        *(bool *)at = !*(bool *)at;
        break;
    case CONFIG_CODEC:
        *(enum tb_choice_wish *)(void *)at =
            *(enum tb_choice_wish *)(void *)at == TB_CHOICE_AUTO ? TB_CHOICE_RAW : TB_CHOICE_AUTO;
        break;
    case CONFIG_LEVEL:
        *(enum tb_log_level *)(void *)at = TB_LOG_DEBUG;
        break;
    default:
        *(const char **)(void *)at = "another";
    }
}

static struct tb_config *with_key(const struct config_key *key)
{
    struct tb_config *c = config_of(base);
    change_value(key, instance(c, key->scope));
    return c;
}

static void each_key_has_a_row_and_each_row_a_key(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_effect e = tb_config_effect_of(config_keys[i].scope, config_keys[i].path);
        if (e.effect == TB_CONFIG_UNSAID)
            fail_msg("%s%s: config_effects.c does not say when a change of it counts",
                     tb_config_scope_prefix(config_keys[i].scope), config_keys[i].path);
        assert_non_null(e.how);
    }
    for (enum config_scope scope = CONFIG_ROOT; scope <= CONFIG_SUBSCRIBE; scope++) {
        const struct config_effect *row;
        uint32_t rows = 0, keys = 0;
        for (uint32_t i = 0; (row = tb_config_effect_at(scope, i)) != NULL; i++)
            rows += row->path[0] != '\0';
        for (uint32_t i = 0; i < config_key_count; i++)
            keys += config_keys[i].scope == scope;
        assert_int_equal(rows, keys);
        assert_int_equal(tb_config_effect_of(scope, "no.such").effect, TB_CONFIG_UNSAID);
    }
}

/* The difference to the file, once it was merged, is what needs a restart. */
static void merged(const struct tb_config *was, const struct tb_config *is,
                   const struct tb_config_reach *reach, const struct tb_config_difference *d)
{
    struct tb_config *next = NULL;
    struct tb_config_difference left;
    CHECK_OK(tb_config_merge(was, is, d, &next));
    CHECK_OK(tb_config_differ(next, is, reach, &left));
    assert_int_equal(left.live, 0);
    assert_int_equal(left.restart, d->restart);
    for (uint32_t i = 0, at = 0; i < d->count; i++) {
        if (d->changes[i].effect == TB_CONFIG_LIVE) continue;
        assert_string_equal(left.changes[at++].key, d->changes[i].key);
    }
    tb_config_difference_free(&left);
    CHECK_OK(tb_config_differ(was, next, NULL, &left)); /* and live ones alone were taken */
    assert_int_equal(left.count, d->live);
    tb_config_difference_free(&left);
    tb_config_free(next);
}

static void each_key_is_found_and_taken_as_its_row_says(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < config_key_count; i++) {
        const struct config_key *key = &config_keys[i];
        char name[256];
        if (key->scope == CONFIG_SUBSCRIBE && strcmp(key->path, "model") == 0) continue; /* its name */
        struct tb_config *was = config_of(base), *is = with_key(key);
        struct tb_config_difference d;
        CHECK_OK(tb_config_differ(was, is, NULL, &d));
        (void)snprintf(name, sizeof name, "%s%s", name_of(key->scope), key->path);
        assert_int_equal(d.count, 1);
        assert_string_equal(d.changes[0].key, name);
        assert_int_equal(d.changes[0].kind, TB_CONFIG_CHANGED);
        assert_int_equal(d.changes[0].effect, tb_config_effect_of(key->scope, key->path).effect);
        assert_true(d.changes[0].was == NULL || d.changes[0].is == NULL ||
                    strcmp(d.changes[0].was, d.changes[0].is) != 0);
        merged(was, is, NULL, &d);
        tb_config_difference_free(&d);
        tb_config_free(was);
        tb_config_free(is);
    }
}

/* Files that an operator may write one after another. */
static struct tb_config *file_at(uint32_t i)
{
    static const struct {
        const char *old, *new;
    } edits[] = {
        {"site: west", "site: west"},
        {"models: {", "models: {more: {home: east}, "},
        {", own: {home: west, publish: [\"unix:1\"]}", ""},
        {", north: {address: \"gw.north:7400\"}", ""},
        {"north: {", "south: {address: \"gw.south:1\", source: 192.0.2.7}, north: {"},
        {"subscribe: [{model: policy, from: [east]}]", "subscribe: []"},
        {"from: [east]", "from: [north, east]"},
        {"models: {policy: {home: east", "models: {policy: {home: north"},
        {"rate: 200Mbit", "rate: 50Mbit, gateway: other"},
        {"arena: {bytes: 64MiB}", "arena: {bytes: 128MiB}\nlog: {level: debug}"},
    };
    if (i >= sizeof edits / sizeof edits[0]) return NULL;
    return with(edits[i].old, edits[i].new);
}

static void of_all_pairs_of_files_the_rest_needs_a_restart(void **state)
{
    (void)state;
    struct tb_config *was, *is;
    for (uint32_t a = 0; (was = file_at(a)) != NULL; a++) {
        for (uint32_t b = 0; (is = file_at(b)) != NULL; b++) {
            struct tb_config_difference d;
            CHECK_OK(tb_config_differ(was, is, NULL, &d));
            if (a == b) assert_int_equal(d.count, 0);
            merged(was, is, NULL, &d);
            tb_config_difference_free(&d);
            tb_config_free(is);
        }
        tb_config_free(was);
    }
}

/* ---- rows stay ---- */

static struct tb_config *taken(const struct tb_config *was, const struct tb_config *is)
{
    struct tb_config_difference d;
    struct tb_config *next = NULL;
    CHECK_OK(tb_config_differ(was, is, NULL, &d));
    CHECK_OK(tb_config_merge(was, is, &d, &next));
    tb_config_difference_free(&d);
    return next;
}

static void peers_and_models_keep_their_rows(void **state)
{
    (void)state;
    struct tb_config *all = config_of(base);
    struct tb_config *fewer = with("peers: {east: {address: \"gw.east:7400\", rate: 200Mbit, schedule: "
                                   "[\"08:00-18:00 50Mbit\"], speaks_for: [far]}, north",
                                   "peers: {east: {address: \"x:1\"}, south: {address: \"y:1\"}, north");
    struct tb_config *less = with(", own: {home: west, publish: [\"unix:1\"]}", "");
    struct tb_config *a = taken(all, fewer);
    assert_int_equal(a->peer_count, 3);
    assert_string_equal(a->peers[0].site.text, "east");
    assert_string_equal(a->peers[1].site.text, "north");
    assert_string_equal(a->peers[2].site.text, "south");
    struct tb_config *b = taken(a, all); /* south goes; its row stays, without a name */
    assert_int_equal(b->peer_count, 3);
    assert_true(b->peers[2].gone && b->peers[2].site.text[0] == '\0' && b->peers[2].address == NULL);
    struct tb_config *c = taken(b, fewer); /* and comes back, as another */
    assert_int_equal(c->peer_count, 4);
    assert_true(c->peers[2].gone && !c->peers[3].gone);
    struct tb_config *d = taken(all, less);
    assert_int_equal(d->model_count, 2);
    assert_true(d->models[1].left && d->models[1].publish_count == 0);
    assert_string_equal(d->models[1].home.text, "west");
    struct tb_config *e = taken(d, all); /* a model has its row again */
    assert_int_equal(e->model_count, 2);
    assert_true(!e->models[1].left && e->models[1].publish_count == 1);
    struct tb_config *const made[] = {all, fewer, less, a, b, c, d, e};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        tb_config_free(made[i]);
}

/* ---- what the process cannot reach ---- */

static bool no_file(void *user, const char *path)
{
    return strcmp(path, user) != 0;
}

static bool no_model(void *user, const struct tb_name *model)
{
    (void)user;
    return strcmp(model->text, "more") != 0;
}

/* The effect of that key, of `base` to a file with one text replaced. */
static enum tb_config_effect effect_in(const struct tb_config_reach *reach, const char *old, const char *new,
                                       const char *key)
{
    struct tb_config *was = config_of(base), *is = with(old, new);
    struct tb_config_difference d;
    enum tb_config_effect effect = TB_CONFIG_UNSAID;
    CHECK_OK(tb_config_differ(was, is, reach, &d));
    for (uint32_t i = 0; i < d.count; i++)
        if (strcmp(d.changes[i].key, key) == 0) effect = d.changes[i].effect;
    merged(was, is, reach, &d);
    tb_config_difference_free(&d);
    tb_config_free(was);
    tb_config_free(is);
    return effect;
}

static void a_key_that_cannot_be_reached_needs_a_restart(void **state)
{
    (void)state;
    struct tb_bounds bounds;
    struct tb_config *was = config_of(base);
    bounds = tb_bounds_of(was);
    tb_config_free(was);
    const struct tb_config_reach all = {.links = true, .peers = 1, .models = 1, .bounds = &bounds};
    static const char models[] = "models: {", more[] = "models: {more: {home: east}, ";
    static const char peers[] = "north: {", south[] = "south: {address: \"y:1\", ca: \"/far/ca\"}, north: {";
    assert_int_equal(effect_in(&all, models, more, "models.more"), TB_CONFIG_LIVE);
    assert_int_equal(effect_in(&all, peers, south, "peers.south"), TB_CONFIG_LIVE);
    struct tb_config_reach r = all;
    r.links = false;
    assert_int_equal(effect_in(&r, peers, south, "peers.south"), TB_CONFIG_RESTART);
    r = all;
    r.peers = r.models = 0;
    assert_int_equal(effect_in(&r, peers, south, "peers.south"), TB_CONFIG_RESTART);
    assert_int_equal(effect_in(&r, models, more, "models.more"), TB_CONFIG_RESTART);
    r = all;
    r.file = no_file;
    r.user = (void *)(uintptr_t) "/far/ca";
    assert_int_equal(effect_in(&r, peers, south, "peers.south"), TB_CONFIG_RESTART);
    assert_int_equal(effect_in(&r, "tls: {ca: a,", "tls: {ca: \"/far/ca\",", "tls.ca"), TB_CONFIG_RESTART);
    r = all;
    r.model = no_model;
    assert_int_equal(effect_in(&r, models, more, "models.more"), TB_CONFIG_RESTART);
    assert_int_equal(effect_in(&all, "home: east,", "home: east, keep: 900,", "models.policy.keep"),
                     TB_CONFIG_RESTART);
    assert_int_equal(effect_in(&all, "home: east,", "home: east, keep: 5,", "models.policy.keep"),
                     TB_CONFIG_LIVE);
}

static void keys_that_belong_together_are_taken_together(void **state)
{
    (void)state;
    struct tb_config_reach r = {
        .links = true, .peers = 1, .models = 1, .file = no_file, .user = (void *)(uintptr_t) "/far/key"};
    assert_int_equal(
        effect_in(&r, "tls: {ca: a, cert: b, key: c", "tls: {ca: a, cert: e, key: \"/far/key\"", "tls.cert"),
        TB_CONFIG_RESTART);
    assert_int_equal(effect_in(NULL, "rate: 200Mbit", "rate: 1Mbit, gateway: other", "peers.east.rate"),
                     TB_CONFIG_RESTART);
    assert_int_equal(
        effect_in(NULL, "policy: {home: east,", "policy: {home: north, keep: 3,", "models.policy.keep"),
        TB_CONFIG_RESTART);
    assert_int_equal(
        effect_in(NULL, "site: west", "site: west\ngateway: gw2\nlog: {level: debug}", "log.level"),
        TB_CONFIG_RESTART);
    r = (struct tb_config_reach){.links = true, .peers = 1, .models = 0};
    static const char old[] = "own: {home: west, publish: [\"unix:1\"]}}\nsubscribe: [";
    static const char new[] =
        "own: {home: west, publish: [\"unix:1\"]}, more: {home: east}}\nsubscribe: [{model: "
        "more, from: [east]}, ";
    assert_int_equal(effect_in(&r, old, new, "subscribe.more"), TB_CONFIG_RESTART);
    r.models = 1;
    assert_int_equal(effect_in(&r, old, new, "subscribe.more"), TB_CONFIG_LIVE);
}

/* A model that left, and comes back with another home: its runs belong to the first. */
static void another_home_waits_for_a_start(void **state)
{
    (void)state;
    struct tb_config *all = config_of(base), *less = with(", own: {home: west, publish: [\"unix:1\"]}", "");
    struct tb_config *moved = with("own: {home: west", "own: {home: east");
    struct tb_config *left = taken(all, less);
    struct tb_config_difference d;
    CHECK_OK(tb_config_differ(left, moved, NULL, &d));
    assert_int_equal(d.count, 1);
    assert_int_equal(d.changes[0].effect, TB_CONFIG_RESTART);
    tb_config_difference_free(&d);
    struct tb_config *const made[] = {all, less, moved, left};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        tb_config_free(made[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_has_a_row_and_each_row_a_key),
        cmocka_unit_test(each_key_is_found_and_taken_as_its_row_says),
        cmocka_unit_test(of_all_pairs_of_files_the_rest_needs_a_restart),
        cmocka_unit_test(peers_and_models_keep_their_rows),
        cmocka_unit_test(a_key_that_cannot_be_reached_needs_a_restart),
        cmocka_unit_test(keys_that_belong_together_are_taken_together),
        cmocka_unit_test(another_home_waits_for_a_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
