/* Layouts kept by their id: versions of one layout share a table, and what nobody
 * uses is bounded (P7).
 * Covers: base/layout/layouts.c */
#include "base/layout/layouts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"

#define LARGE 60000u /* tensors: about 15 MB as a table */

static const struct tb_blob blob = {.name = "config.json", .bytes = 1000};

/* A layout of `count` tensors, another for each seed, in memory that is freed with free. */
static void *layout_of(uint32_t count, uint32_t seed, struct tb_layout *layout_out)
{
    char(*names)[24] = calloc(count, sizeof *names);
    struct tb_tensor *tensors = calloc(count, sizeof *tensors);
    for (uint32_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "m%u.layer.%06u", seed, i);
        tensors[i] = (struct tb_tensor){
            .name = names[i], .dtype = TB_DTYPE_BF16, .rank = 1, .full = {8}, .box_count = {8}};
    }
    const size_t bytes = tb_layout_bytes_for(tensors, count);
    void *memory = malloc(bytes);
    CHECK_OK(tb_layout_build(tensors, count, memory, bytes, layout_out));
    free(tensors);
    free(names);
    return memory;
}

struct made {
    struct tb_manifest_memory memory;
    struct tb_manifest m;
};

static struct made built(struct tb_layouts *l, uint32_t count, uint32_t seed)
{
    struct made made;
    struct tb_layout layout;
    void *memory = layout_of(count, seed, &layout);
    CHECK_OK(tb_layouts_build(l, &layout, &blob, 1, &made.memory, &made.m));
    free(memory); /* what is kept has its own copy */
    return made;
}

static uint8_t *head_of(const struct tb_manifest *m, size_t *bytes_out)
{
    *bytes_out = tb_manifest_head_bytes(m);
    uint8_t *head = malloc(*bytes_out);
    struct tb_writer w;
    tb_writer_init(&w, head, *bytes_out);
    tb_manifest_head_encode(m, &w);
    assert_true(!w.full && w.used == *bytes_out);
    return head;
}

static struct tb_layouts_counts counts(struct tb_layouts *l)
{
    struct tb_layouts_counts c;
    tb_layouts_count(l, &c);
    return c;
}

/* The next version of a layout stands on the table of the one before; it is the manifest that a
 * decode of its own gives. */
static void a_layout_is_taken_apart_once(void **state)
{
    (void)state;
    struct tb_layouts *l = tb_layouts_new();
    struct made first = built(l, 100, 1), second;
    size_t bytes;
    uint8_t *head = head_of(&first.m, &bytes);
    CHECK_OK(tb_layouts_decode(l, head, bytes, &second.memory, &second.m));
    assert_ptr_equal(first.m.layout.tensors, second.m.layout.tensors);
    assert_int_equal(counts(l).taken_apart, 1);
    assert_int_equal(counts(l).used, 1);

    const size_t alone_bytes = tb_manifest_decode_bytes(head, bytes);
    void *memory = malloc(alone_bytes);
    struct tb_manifest alone;
    CHECK_OK(tb_manifest_head_decode(head, bytes, memory, alone_bytes, &alone));
    assert_null(alone.layout.encoded);
    assert_true(tb_digest_equal(&alone.layout.id, &second.m.layout.id));
    assert_int_equal(alone.chunk_count, second.m.chunk_count);
    assert_int_equal(alone.bytes, second.m.bytes);
    for (uint32_t k = 0; k < alone.chunk_count; k++) {
        assert_int_equal(alone.chunks[k].offset, second.m.chunks[k].offset);
        assert_int_equal(alone.chunks[k].bytes, second.m.chunks[k].bytes);
    }
    const struct tb_digest a = tb_manifest_root(&alone), b = tb_manifest_root(&second.m);
    assert_true(tb_digest_equal(&a, &b));
    size_t again_bytes;
    uint8_t *again = head_of(&alone, &again_bytes); /* encoded tensor by tensor */
    assert_int_equal(again_bytes, bytes);
    assert_memory_equal(again, head, bytes);
    free(again);
    free(memory);

    tb_layouts_release(l, &first.memory);
    assert_string_equal(second.m.layout.tensors[7].name, "m1.layer.000007"); /* still there */
    tb_layouts_release(l, &second.memory);
    tb_layouts_release(l, &second.memory); /* zero now */
    assert_int_equal(counts(l).idle, 1);
    CHECK_OK(tb_layouts_decode(l, head, bytes, &second.memory, &second.m));
    assert_int_equal(counts(l).taken_apart, 1);
    tb_layouts_release(l, &second.memory);
    tb_layouts_free(l);
    free(head);
}

/* P7: of layouts that nobody uses the newest stay, and those in use count not among them. */
static void idle_layouts_are_bounded(void **state)
{
    (void)state;
    struct tb_layouts *l = tb_layouts_new();
    struct made used = built(l, LARGE, 100);
    for (uint32_t seed = 0; seed < 6; seed++) {
        struct made made = built(l, LARGE, seed);
        tb_layouts_release(l, &made.memory);
        assert_true(counts(l).idle_bytes <= TB_LAYOUTS_IDLE_BYTES);
    }
    const struct tb_layouts_counts c = counts(l);
    assert_int_equal(c.used, 1);
    assert_true(c.idle > 0 && c.idle < 6);
    struct made newest = built(l, LARGE, 5);
    assert_int_equal(counts(l).taken_apart, c.taken_apart);
    struct made oldest = built(l, LARGE, 0);
    assert_int_equal(counts(l).taken_apart, c.taken_apart + 1);
    assert_string_equal(used.m.layout.tensors[0].name, "m100.layer.000000");
    tb_layouts_release(l, &newest.memory);
    tb_layouts_release(l, &oldest.memory);
    tb_layouts_release(l, &used.memory);
    tb_layouts_free(l);
}

/* P7: every truncation and every flipped byte of a head is a head of something else or refused,
 * also where the layout is known. */
static void a_head_that_is_none_is_refused(void **state)
{
    (void)state;
    struct tb_layouts *l = tb_layouts_new();
    struct made known = built(l, 3, 1), out;
    size_t bytes;
    uint8_t *head = head_of(&known.m, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        uint8_t *part = malloc(cut + 1); /* so that a sanitizer sees a read behind it */
        memcpy(part, head, cut);
        CHECK_STATUS(tb_layouts_decode(l, part, cut, &out.memory, &out.m), TB_PEER_GARBLED);
        free(part);
    }
    for (size_t at = 0; at < bytes; at++) {
        head[at] ^= 1;
        const enum tb_status status = tb_layouts_decode(l, head, bytes, &out.memory, &out.m);
        if (status == TB_OK) tb_layouts_release(l, &out.memory);
        assert_true(status == TB_OK || status == TB_PEER_GARBLED);
        head[at] ^= 1;
    }
    const struct tb_blob bad = {.name = "../up", .bytes = 1};
    CHECK_STATUS(tb_layouts_build(l, &known.m.layout, &bad, 1, &out.memory, &out.m), TB_BAD_ARGUMENT);
    assert_int_equal(counts(l).used, 1);
    tb_layouts_release(l, &known.memory);
    tb_layouts_free(l);
    free(head);
}

/* P6, P8: an id has no key, so a stranger may publish other tensors under the id that a
 * trainer's layout is going to have. Each is given its own table, in any order, and
 * neither stops the other. */
static void layouts_of_one_id_stand_side_by_side(void **state)
{
    (void)state;
    static const uint32_t others[] = {3, 99, 100, 1000}; /* tensors */
    enum { OTHERS = sizeof others / sizeof others[0] };
    struct tb_layouts *l = tb_layouts_new();
    struct made known = built(l, 100, 1), made[OTHERS], again;
    size_t bytes;
    uint8_t *head = head_of(&known.m, &bytes);
    for (uint32_t i = 0; i < OTHERS; i++) {
        struct tb_layout layout;
        void *memory = layout_of(others[i], 2, &layout);
        layout.id = known.m.layout.id;
        CHECK_OK(tb_layouts_build(l, &layout, &blob, 1, &made[i].memory, &made[i].m));
        CHECK_OK(tb_layouts_build(l, &layout, &blob, 1, &again.memory, &again.m));
        assert_ptr_equal(again.memory.layout, made[i].memory.layout);
        tb_layouts_release(l, &again.memory);
        free(memory);
        assert_int_equal(made[i].m.layout.tensor_count, others[i]);
        assert_string_equal(made[i].m.layout.tensors[0].name, "m2.layer.000000");
        CHECK_OK(tb_layouts_decode(l, head, bytes, &again.memory, &again.m));
        assert_ptr_equal(again.memory.layout, known.memory.layout);
        tb_layouts_release(l, &again.memory);
    }
    assert_int_equal(counts(l).used, 1 + OTHERS);
    assert_int_equal(counts(l).taken_apart, 1 + OTHERS);
    tb_layouts_release(l, &known.memory);
    for (uint32_t i = 0; i < OTHERS; i++)
        tb_layouts_release(l, &made[i].memory);
    assert_int_equal(counts(l).idle, 1 + OTHERS);
    tb_layouts_free(l);
    free(head);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layout_is_taken_apart_once),
        cmocka_unit_test(idle_layouts_are_bounded),
        cmocka_unit_test(layouts_of_one_id_stand_side_by_side),
        cmocka_unit_test(a_head_that_is_none_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
