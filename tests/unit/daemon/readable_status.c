/* readable_status.c - P8: a worker's view of its site has no model that it may neither publish nor
 * read, wherever a name stands.
 *
 * Covers: gateway/daemon/control/readable_status.c */
#include "gateway/daemon/control/readable_status.h"

#include <string.h>

#include "tests/unit/check.h"

static void name(struct tb_name *out, const char *text)
{
    CHECK_OK(tb_name_set(out, text));
}

static void shown(const char *who, const char *status, const char *expected)
{
    static struct tb_config config;
    static const char *const all[] = {"unix:1", "unix:2"}, *const first[] = {"unix:1"};
    struct tb_identity identity;
    config.model_count = 2;
    name(&config.models[0].name, "policy");
    memcpy(config.models[0].read, all, sizeof all);
    config.models[0].read_count = 2;
    name(&config.models[1].name, "secret");
    memcpy(config.models[1].publish, first, sizeof first);
    config.models[1].publish_count = 1;
    CHECK_OK(tb_identity_parse(who, &identity));
    json_t *o = json_loads(status, 0, NULL);
    assert_non_null(o);
    tb_status_hide(&config, &identity, o);
    char *text = json_dumps(o, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
    json_decref(o);
}

#define ALL                                                                                                  \
    "{\"models\":[{\"model\":\"secret\",\"from\":[\"secret\"]},{\"model\":\"policy\",\"from\":[\"secret\"]}" \
    "],"                                                                                                     \
    "\"anchor\":{\"writing\":\"secret\",\"models\":[{\"model\":\"secret\"}]},"                               \
    "\"sessions\":[{\"name\":\"secret\",\"publishes\":[\"secret\",\"policy\",\"secret\"],"                   \
    "\"updates\":[{\"model\":\"secret\"},{\"model\":\"secret\"}]}],\"site\":\"east\"}"

static void only_what_it_may_have_is_named(void **state)
{
    (void)state;
    shown("unix:1", ALL, ALL); /* it publishes the one, and reads the other */
    shown(
        "unix:2", ALL,
        "{\"models\":[{\"model\":\"policy\",\"from\":[\"secret\"]}],"
        "\"anchor\":{\"writing\":\"\",\"models\":[]},"
        "\"sessions\":[{\"name\":\"secret\",\"publishes\":[\"policy\"],\"updates\":[]}],\"site\":\"east\"}");
    shown("unix:3", ALL,
          "{\"models\":[],\"anchor\":{\"writing\":\"\",\"models\":[]},"
          "\"sessions\":[{\"name\":\"secret\",\"publishes\":[],\"updates\":[]}],\"site\":\"east\"}");
    shown("unix:2", "{\"a\":[[{\"model\":\"secret\"},{\"model\":\"theirs\"}]],\"model\":\"secret\"}",
          "{\"a\":[[{\"model\":\"theirs\"}]],\"model\":\"\"}"); /* not configured here: no secret */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_what_it_may_have_is_named)};
    return cmocka_run_group_tests_name("daemon.readable_status", tests, NULL, NULL);
}
