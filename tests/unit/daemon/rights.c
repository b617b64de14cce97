/* rights.c - P8: the right to publish or read a model. Denied by default; a pattern that is too
 * short matches nobody.
 *
 * Covers: gateway/daemon/rights.c */
#include "gateway/daemon/rights.h"

#include <string.h>

#include "tests/unit/check.h"

static struct tb_identity identity(const char *uri)
{
    struct tb_identity i = {.kind = TB_IDENTITY_NONE};
    if (uri != NULL) CHECK_OK(tb_identity_parse(uri, &i));
    return i;
}

/* P8: the table is the whole truth. */
static void patterns_match_these_and_no_others(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *who;
        bool matches;
    } rows[] = {
        {"unix:1000", "unix:1000", true},
        {"unix:1000", "unix:10001", false},
        {"unix:1000", "unix:100", false},
        {"unix:*", "unix:0", true},
        {"unix:*", "tombolo://east/worker/rank", false},
        {"tombolo://east/gw", "tombolo://east/gw", true},
        {"tombolo://east/gw", "tombolo://east/worker/gw", false},
        {"tombolo://east/gw", "tombolo://east/gw2", false},
        {"tombolo://east/*", "tombolo://east/gw", true},
        {"tombolo://east/*", "tombolo://east2/gw", false},
        {"tombolo://east/worker/*", "tombolo://east/worker/rank-0", true},
        {"tombolo://east/worker/*", "tombolo://east/gw", false},
        {"tombolo://east/worker/rank-*", "tombolo://east/worker/rank-7", true},
        {"tombolo://east/worker/rank-*", "tombolo://east/worker/rollout", false},
        {"tombolo://*/gw", "tombolo://east/gw", false}, /* a star stands only at the end */
        {"*", "unix:0", false},                         /* names nobody */
        {"unix*", "unix:0", false},
        {"tombolo:*", "tombolo://east/gw", false},
        {"", "unix:0", false},
        {"unix:*", NULL, false}, /* somebody without an identity */
        {"none", NULL, false},
        {"*", NULL, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tb_identity who = identity(rows[i].who);
        if (tb_rights_match(rows[i].pattern, &who) != rows[i].matches)
            fail_msg("%s against %s", rows[i].pattern, rows[i].who != NULL ? rows[i].who : "nobody");
    }
}

static void name(struct tb_name *out, const char *text)
{
    CHECK_OK(tb_name_set(out, text));
}

/* P8: a right is one model's and one kind's: publishing is not reading, and an
 * unknown model is nobody's. */
static void denied_by_default(void **state)
{
    (void)state;
    static struct tb_config config;
    static const char *const ranks[] = {"unix:7", "tombolo://east/worker/rank-*"};
    static const char *const readers[] = {"tombolo://west/gw"};
    config.model_count = 2;
    name(&config.models[0].name, "policy");
    memcpy(config.models[0].publish, ranks, sizeof ranks);
    config.models[0].publish_count = 2;
    memcpy(config.models[0].read, readers, sizeof readers);
    config.models[0].read_count = 1;
    name(&config.models[1].name, "secret"); /* both lists empty */
    struct tb_name policy, secret, unknown;
    name(&policy, "policy"), name(&secret, "secret"), name(&unknown, "policy2");
    const struct tb_identity rank = identity("unix:7"), second = identity("tombolo://east/worker/rank-1"),
                             west = identity("tombolo://west/gw"), north = identity("tombolo://north/gw");
    assert_true(tb_rights_may(&config, &policy, &rank, true));
    assert_true(tb_rights_may(&config, &policy, &second, true));
    assert_false(tb_rights_may(&config, &policy, &rank, false));
    assert_true(tb_rights_may(&config, &policy, &west, false));
    assert_false(tb_rights_may(&config, &policy, &west, true));
    assert_false(tb_rights_may(&config, &policy, &north, false));
    const struct tb_identity *all[] = {&rank, &second, &west, &north};
    for (int i = 0; i < 4; i++) {
        for (int publish = 0; publish < 2; publish++) {
            assert_false(tb_rights_may(&config, &secret, all[i], publish));
            assert_false(tb_rights_may(&config, &unknown, all[i], publish));
        }
    }
}

/* P8: a right to publish is none to fence. */
static void a_fence_is_a_right_of_its_own(void **state)
{
    (void)state;
    static struct tb_config config;
    static const char *const ranks[] = {"unix:7"}, *const heirs[] = {"unix:8"};
    config.model_count = 1;
    name(&config.models[0].name, "policy");
    memcpy(config.models[0].publish, ranks, sizeof ranks);
    config.models[0].publish_count = 1;
    memcpy(config.models[0].may_fence, heirs, sizeof heirs);
    config.models[0].may_fence_count = 1;
    struct tb_name policy, other;
    name(&policy, "policy"), name(&other, "other");
    const struct tb_identity rank = identity("unix:7"), heir = identity("unix:8");
    assert_false(tb_rights_fence(&config, &policy, &rank));
    assert_true(tb_rights_fence(&config, &policy, &heir));
    assert_false(tb_rights_fence(&config, &other, &heir));
}

/* P2: a publisher signs for the models that list it. Where none is listed any may; a gateway or a
 * worker never. */
static void publishers_alone_sign_shards(void **state)
{
    (void)state;
    static struct tb_config config;
    config.model_count = 2;
    name(&config.models[0].name, "policy");
    name(&config.models[1].name, "open");
    config.models[0].publishers[0] = "tombolo://east/publisher/t-*";
    config.models[0].publishers_count = 1;
    static const struct {
        const char *who;
        bool policy, open;
    } rows[] = {{"tombolo://east/publisher/t-1", true, true},
                {"tombolo://east/publisher/u", false, true},
                {"tombolo://west/publisher/t-1", false, true},
                {"tombolo://east/gw", false, false},
                {"tombolo://east/worker/t-1", false, false}};
    struct tb_name policy, open, other;
    name(&policy, "policy"), name(&open, "open"), name(&other, "other");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct tb_identity who = identity(rows[i].who);
        assert_int_equal(tb_rights_publisher(&config, &policy, &who), rows[i].policy);
        assert_int_equal(tb_rights_publisher(&config, &open, &who), rows[i].open);
        assert_false(tb_rights_publisher(&config, &other, &who));
    }
}

static void owned(const struct tb_config *config, const char *model, const char *who, const char *owner)
{
    struct tb_name m;
    char said[TB_URI_BYTES_MAX];
    name(&m, model);
    const struct tb_identity i = identity(who);
    tb_rights_group_owner(config, &m, &i, said);
    assert_string_equal(said, owner);
}

/* P8: a reader group is shared by the identities that the list has, else it is one identity's. */
static void a_group_has_one_owner(void **state)
{
    (void)state;
    static struct tb_config config;
    static const char *const shared[] = {"tombolo://east/worker/a-*", "unix:1"};
    config.model_count = 2;
    name(&config.models[0].name, "other"); /* shares nothing */
    name(&config.models[1].name, "policy");
    memcpy(config.models[1].groups, shared, sizeof shared);
    config.models[1].groups_count = 2;
    owned(&config, "policy", "tombolo://east/worker/a-1", "models.policy.groups");
    owned(&config, "policy", "unix:1", "models.policy.groups");
    owned(&config, "policy", "tombolo://east/worker/b-1", "tombolo://east/worker/b-1");
    owned(&config, "policy", "unix:7", "unix:7");
    owned(&config, "other", "tombolo://east/worker/a-1", "tombolo://east/worker/a-1");
    owned(&config, "unknown", "unix:7", "unix:7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_match_these_and_no_others),
        cmocka_unit_test(denied_by_default),
        cmocka_unit_test(a_fence_is_a_right_of_its_own),
        cmocka_unit_test(publishers_alone_sign_shards),
        cmocka_unit_test(a_group_has_one_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
