/* A statement has one spelling, and nothing else decodes.
 *
 * Covers: base/proof/statement.c */
#include "base/proof/statement.h"

#include <string.h>

#include "tests/unit/check.h"

static struct tb_statement example(enum tb_statement_kind kind)
{
    struct tb_statement s = {.kind = kind, .run = {{7}}, .run_order = 3, .wall_ms = UINT64_C(1790000000000)};
    assert_int_equal(tb_name_set(&s.model, "actor"), TB_OK);
    if (kind == TB_STATEMENT_RUN) return s;
    s.uid = (struct tb_id){{1, 2, 3}};
    s.number = 20;
    s.shard_count = 4;
    s.digest = (struct tb_digest){{9}};
    if (kind == TB_STATEMENT_VERSION || kind == TB_STATEMENT_SHARD) s.root = tb_blake3_of("root", 4);
    if (kind == TB_STATEMENT_SHARD) s.shard = 3;
    return s;
}

static size_t encoded(const struct tb_statement *s, uint8_t out[TB_STATEMENT_BYTES_MAX])
{
    struct tb_writer w;
    tb_writer_init(&w, out, TB_STATEMENT_BYTES_MAX);
    tb_statement_encode(s, &w);
    assert_false(w.full);
    return w.used;
}

static void each_kind_comes_back(void **state)
{
    (void)state;
    for (enum tb_statement_kind kind = TB_STATEMENT_RUN; kind < TB_STATEMENT_KINDS; kind++) {
        const struct tb_statement said = example(kind);
        struct tb_statement heard;
        uint8_t bytes[TB_STATEMENT_BYTES_MAX];
        const size_t count = encoded(&said, bytes);
        assert_int_equal(tb_statement_decode(bytes, count, &heard), TB_OK);
        assert_true(tb_statement_equal(&said, &heard));
    }
}

/* The longest has room, so that a fixed buffer can hold any. */
static void the_longest_fits(void **state)
{
    (void)state;
    struct tb_statement s = example(TB_STATEMENT_SHARD);
    uint8_t bytes[TB_STATEMENT_BYTES_MAX];
    memset(s.model.text, 'm', TB_NAME_BYTES_MAX);
    s.run_order = TB_STATEMENT_ORDER_MAX;
    s.number = ((uint64_t)1 << 63) - 1;
    assert_in_range(encoded(&s, bytes), 1, TB_STATEMENT_BYTES_MAX);
}

static void a_cut_or_longer_one_is_garbled(void **state)
{
    (void)state;
    const struct tb_statement s = example(TB_STATEMENT_VERSION);
    struct tb_statement heard = {0};
    uint8_t bytes[TB_STATEMENT_BYTES_MAX + 1] = {0};
    const size_t count = encoded(&s, bytes);
    for (size_t cut = 0; cut < count; cut++)
        assert_int_equal(tb_statement_decode(bytes, cut, &heard), TB_PEER_GARBLED);
    assert_int_equal(tb_statement_decode(bytes, count + 1, &heard), TB_PEER_GARBLED);
    assert_int_equal(heard.kind, 0); /* nothing is written on failure */
}

/* P2: a number or a run near the end of its range would shut out all that follow. */
static void a_field_that_its_kind_does_not_use_is_garbled(void **state)
{
    (void)state;
    static const struct {
        enum tb_statement_kind kind;
        size_t offset; /* behind the model's name */
        size_t bytes;
        uint8_t fill;
        const char *why;
    } wrong[] = {
        {TB_STATEMENT_RUN, 0, 16, 1, "a run has no uid"},
        {TB_STATEMENT_RUN, 40, 8, 1, "a run has no number"},
        {TB_STATEMENT_RUN, 48, 32, 1, "a run has no root"},
        {TB_STATEMENT_RUN, 16, 16, 0, "no run"},
        {TB_STATEMENT_RUN, 32, 8, 0, "runs begin with 1"},
        {TB_STATEMENT_RUN, 32, 8, 0xff, "an order that nobody opened"},
        {TB_STATEMENT_VERSION, 0, 16, 0, "a version has a uid"},
        {TB_STATEMENT_VERSION, 48, 32, 0, "a version has a root"},
        {TB_STATEMENT_VERSION, 40, 8, 0xff, "a number over 2^63"},
        {TB_STATEMENT_WITHDRAWN, 48, 32, 1, "a withdrawal has no root"},
        {TB_STATEMENT_RUN, 88, 4, 1, "a run has no shards"},
        {TB_STATEMENT_RUN, 92, 16, 1, "a run has no digest"},
        {TB_STATEMENT_VERSION, 88, 4, 0, "a version has shards"},
        {TB_STATEMENT_VERSION, 88, 4, 0xff, "more shards than a version has"},
        {TB_STATEMENT_VERSION, 92, 16, 0, "a version has a digest"},
        {TB_STATEMENT_SHARD, 48, 32, 0, "a shard has a root"},
        {TB_STATEMENT_SHARD, 92, 16, 0, "a shard has a digest"},
        {TB_STATEMENT_SHARD, 108, 1, 4, "a shard behind the last"},
        {TB_STATEMENT_WITHDRAWN, 88, 4, 0, "a version that was withdrawn has shards"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct tb_statement s = example(wrong[i].kind);
        struct tb_statement heard;
        uint8_t bytes[TB_STATEMENT_BYTES_MAX];
        const size_t count = encoded(&s, bytes),
                     behind = sizeof "tombolo statement 1" + 1 + 2 + strlen("actor");
        memset(bytes + behind + wrong[i].offset, wrong[i].fill, wrong[i].bytes);
        if (tb_statement_decode(bytes, count, &heard) != TB_PEER_GARBLED)
            fail_msg("%s: was taken", wrong[i].why);
    }
}

static void an_unknown_kind_or_beginning_is_garbled(void **state)
{
    (void)state;
    const struct tb_statement s = example(TB_STATEMENT_VERSION);
    struct tb_statement heard;
    uint8_t bytes[TB_STATEMENT_BYTES_MAX];
    const size_t count = encoded(&s, bytes), kind = sizeof "tombolo statement 1";
    for (unsigned k = 0; k < 256; k++) {
        bytes[kind] = (uint8_t)k;
        if (k == TB_STATEMENT_VERSION) continue;
        assert_int_equal(tb_statement_decode(bytes, count, &heard), TB_PEER_GARBLED);
    }
    for (size_t i = 0; i < kind; i++) {
        (void)encoded(&s, bytes);
        bytes[i] ^= 1;
        assert_int_equal(tb_statement_decode(bytes, count, &heard), TB_PEER_GARBLED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_comes_back),
        cmocka_unit_test(the_longest_fits),
        cmocka_unit_test(a_cut_or_longer_one_is_garbled),
        cmocka_unit_test(a_field_that_its_kind_does_not_use_is_garbled),
        cmocka_unit_test(an_unknown_kind_or_beginning_is_garbled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
