/* exports.c - tokens and bounds of what a door serves, in virtual time.
 *
 * Covers: intra/fabric/exports.c */
#include "intra/fabric/exports.h"

#include <string.h>

#include "island.h"

static uint8_t memory[100];

struct world {
    struct tb_exports exports;
    struct tb_grant grant;
    struct tb_bearer bearer;
    struct tb_export *export;
};

static void world_init(struct world *w)
{
    const struct tb_export_buffer buffer = {.bytes = memory, .count = sizeof memory, .memfd = -1};
    const struct tb_export_options options = {.export_id = 9, .buffers = &buffer, .buffer_count = 1};
    memset(w, 0, sizeof *w);
    LIST_INIT(&w->exports.all);
    assert_int_equal(tb_exports_add(&w->exports, &options), TB_OK);
    assert_int_equal(tb_exports_add(&w->exports, &options), TB_CONFLICT);
    w->grant = (struct tb_grant){.token = {{1, 2, 3}}, .reader = {{7}}};
    w->bearer = (struct tb_bearer){.token = &w->grant.token, .print = &w->grant.reader};
    assert_int_equal(tb_exports_grant(&w->exports, 9, &w->grant, 0), TB_OK);
}

static void world_fini(struct world *w)
{
    tb_exports_remove(tb_exports_find(&w->exports, 9));
}

static enum tb_status enter(struct world *w, uint64_t id, tb_time_ns now)
{
    uint64_t owner = 0;
    const enum tb_status status = tb_exports_enter(&w->exports, id, &w->bearer, now, &w->export, &owner);
    if (status == TB_OK) w->export->readers--;
    return status;
}

static void P8_a_token_is_good_once(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    assert_int_equal(enter(&w, 9, 0), TB_OK);
    assert_int_equal(enter(&w, 9, 0), TB_PEER_TOKEN);
    world_fini(&w);
}

static void P8_a_token_lapses_after_30_s(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    assert_int_equal(enter(&w, 9, TB_SECONDS(30)), TB_PEER_TOKEN);
    world_fini(&w);
    world_init(&w);
    assert_int_equal(enter(&w, 9, TB_SECONDS(30) - 1), TB_OK);
    world_fini(&w);
}

static void P8_a_thief_does_not_use_a_token_up(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    const struct tb_fingerprint thief = {{8}};
    w.bearer.print = &thief;
    assert_int_equal(enter(&w, 9, 0), TB_PEER_IDENTITY);
    w.bearer.print = &w.grant.reader;
    assert_int_equal(enter(&w, 9, 0), TB_OK);
    world_fini(&w);
}

static void P8_unknown_and_closing_exports_let_nobody_in(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    assert_int_equal(enter(&w, 10, 0), TB_PEER_TOKEN);
    tb_exports_find(&w.exports, 9)->closing = true;
    assert_int_equal(enter(&w, 9, 0), TB_PEER_REVOKED);
    assert_int_equal(tb_exports_grant(&w.exports, 9, &w.grant, 0), TB_NOT_FOUND);
    assert_int_equal(tb_exports_grant(&w.exports, 10, &w.grant, 0), TB_NOT_FOUND);
    world_fini(&w);
}

static bool is_denied(struct world *w, uint64_t id, const struct tb_id *token, tb_time_ns now)
{
    w->bearer.token = token;
    const enum tb_status status = enter(w, id, now);
    assert_true(status != TB_OK);
    w->bearer.token = &w->grant.token;
    return tb_exports_is_denial(&w->exports, token, status);
}

/* Readers come late in any rollout: the audit record is for those that were never let in. */
static void P8_a_reader_that_comes_late_is_no_denial(void **state)
{
    (void)state;
    struct world w;
    const struct tb_id never = {{9, 9}};
    const struct tb_fingerprint thief = {{8}};
    world_init(&w);
    assert_true(is_denied(&w, 9, &never, 0));
    assert_true(is_denied(&w, 10, &never, 0)); /* a guess of the export, too */
    assert_int_equal(enter(&w, 9, 0), TB_OK);
    assert_false(is_denied(&w, 10, &w.grant.token, 0)); /* its export has gone */
    assert_int_equal(tb_exports_grant(&w.exports, 9, &w.grant, 0), TB_OK);
    w.bearer.print = &thief;
    assert_true(is_denied(&w, 9, &w.grant.token, 0));
    w.bearer.print = &w.grant.reader;
    assert_false(is_denied(&w, 9, &w.grant.token, TB_SECONDS(30))); /* it has lapsed */
    assert_int_equal(tb_exports_grant(&w.exports, 9, &w.grant, TB_SECONDS(31)), TB_OK);
    tb_exports_find(&w.exports, 9)->closing = true;
    assert_false(is_denied(&w, 9, &w.grant.token, TB_SECONDS(31)));
    world_fini(&w);
}

static void P7_bounds_are_exact(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    const struct tb_export *e = tb_exports_find(&w.exports, 9);
    const struct {
        uint32_t buffer;
        uint64_t offset, bytes;
        bool inside;
    } reads[] = {{0, 0, 100, true},  {0, 99, 1, true},          {0, 100, 0, true},         {0, 0, 101, false},
                 {0, 100, 1, false}, {0, UINT64_MAX, 2, false}, {0, 1, UINT64_MAX, false}, {1, 0, 1, false},
                 {0, 101, 0, false}, {UINT32_MAX, 0, 0, false}};
    for (size_t i = 0; i < sizeof reads / sizeof reads[0]; i++) {
        const uint8_t *at = tb_export_at(e, reads[i].buffer, reads[i].offset, reads[i].bytes);
        assert_ptr_equal(at, reads[i].inside ? memory + reads[i].offset : NULL);
    }
    world_fini(&w);
}

static void export_put(struct tb_exports *exports, uint64_t id)
{
    const struct tb_export_buffer buffer = {.bytes = memory, .count = sizeof memory, .memfd = -1};
    const struct tb_export_options options = {.export_id = id, .buffers = &buffer, .buffer_count = 1};
    assert_int_equal(tb_exports_add(exports, &options), TB_OK);
}

/* P7: versions for ever, each granted to readers that use their token, that never come, or that
 * come when it is gone. */
static void P7_use_returns_to_where_it_began(void **state)
{
    (void)state;
    struct world w;
    world_init(&w); /* one export, one token */
    tb_time_ns now = 0;
    for (uint64_t id = 100; id < 3100; id++) {
        const struct tb_grant other = {.token = {{9}}, .reader = {{7}}};
        now += TB_SECONDS(1);
        export_put(&w.exports, id);
        assert_int_equal(tb_exports_grant(&w.exports, id, &w.grant, now), TB_OK);
        assert_int_equal(tb_exports_grant(&w.exports, id, &other, now), TB_OK);
        assert_int_equal(enter(&w, id, now), TB_OK);
        assert_int_equal(w.exports.usage.exports, 2);
        tb_exports_remove(tb_exports_find(&w.exports, id));
    }
    assert_int_equal(w.exports.usage.exports, 1);
    assert_int_equal(w.exports.usage.exports_most, 2);
    assert_int_equal(w.exports.usage.tokens, 1); /* lapsed, of an export that nobody was planned to since */
    tb_exports_lapse(&w.exports, now);
    assert_int_equal(w.exports.usage.tokens, 0);
    assert_int_equal(w.exports.usage.tokens_most, 3);
    world_fini(&w);
}

/* P7: a reader that asks for plans and never comes takes no more memory than there is; once tokens
 * have lapsed there is room again. */
static void P7_tokens_are_bounded(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    export_put(&w.exports, 10);
    for (uint32_t i = 1; i < TB_TOKENS_MAX; i++)
        assert_int_equal(tb_exports_grant(&w.exports, 10, &w.grant, 1), TB_OK);
    assert_int_equal(tb_exports_grant(&w.exports, 9, &w.grant, 1), TB_SITE_NOMEM);
    assert_int_equal(w.exports.usage.tokens_refused, 1);
    assert_int_equal(tb_exports_grant(&w.exports, 9, &w.grant, TB_TOKEN_LIFE + 1), TB_OK);
    tb_exports_lapse(&w.exports, TB_TOKEN_LIFE + 1);
    assert_int_equal(w.exports.usage.tokens, 1);
    tb_exports_remove(tb_exports_find(&w.exports, 10));
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P8_a_token_is_good_once),
        cmocka_unit_test(P8_a_token_lapses_after_30_s),
        cmocka_unit_test(P8_a_thief_does_not_use_a_token_up),
        cmocka_unit_test(P8_unknown_and_closing_exports_let_nobody_in),
        cmocka_unit_test(P8_a_reader_that_comes_late_is_no_denial),
        cmocka_unit_test(P7_bounds_are_exact),
        cmocka_unit_test(P7_use_returns_to_where_it_began),
        cmocka_unit_test(P7_tokens_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
