/* shelf.c - tests of base/layout/shelf.c: what a reader sees of encoded chunks, and what it
 * believes. P7: nothing that points elsewhere.
 *
 * Covers: base/layout/shelf.c */
#include "base/layout/shelf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/digest.h"

#define COUNT 130u
#define ROOM  64u /* of which each encoded chunk's digest takes 16 */

struct world {
    struct tb_shelf shelf;
    uint64_t *memory;
};

static void world_init(struct world *w)
{
    w->memory = calloc(1, tb_shelf_bytes(COUNT, ROOM));
    assert_non_null(w->memory);
    tb_shelf_init(&w->shelf, w->memory, COUNT, ROOM);
}

static struct tb_shelf_head head_of(const struct world *w)
{
    struct tb_shelf_head head;
    assert_true(tb_shelf_head_read(w->memory, COUNT, &head));
    return head;
}

static const struct tb_id base = {.bytes = {1, 2, 3}}, other = {.bytes = {9}};

static struct tb_codec_coded coded_of(const void *bytes, size_t count)
{
    return (struct tb_codec_coded){{TB_CODEC_SPARSE, true}, bytes, count};
}

static bool entry_of(const struct world *w, uint32_t line, uint32_t chunk_bytes, struct tb_shelf_entry *out)
{
    const struct tb_shelf_head head = head_of(w);
    return tb_shelf_entry_read(w->memory + tb_shelf_entry_offset(COUNT, line) / 8, &head, chunk_bytes, out);
}

static void an_entry_says_where_the_encoded_chunk_stands(void **state)
{
    (void)state;
    struct world w;
    struct tb_shelf_entry entry;
    world_init(&w);
    const struct tb_codec_coded one = coded_of("abc", 3), two = coded_of("defgh", 5);
    tb_shelf_open(&w.shelf, &base);
    tb_shelf_put(&w.shelf, 129, &one);
    tb_shelf_put(&w.shelf, 0, &two);
    tb_shelf_put(&w.shelf, 0, &one); /* P4: once */
    tb_shelf_put(&w.shelf, 64, NULL);
    assert_true(entry_of(&w, 0, 100, &entry));
    assert_int_equal(entry.bytes, 5);
    assert_true(entry.form.on_base && entry.form.id == TB_CODEC_SPARSE);
    assert_memory_equal((uint8_t *)w.memory + tb_shelf_room_offset(COUNT) + entry.offset, "defgh", 5);
    assert_true(entry_of(&w, 129, 100, &entry));
    assert_memory_equal((uint8_t *)w.memory + tb_shelf_room_offset(COUNT) + entry.offset, "abc", 3);
    assert_true(entry_of(&w, 64, 100, &entry));
    assert_int_equal(entry.bytes, 0); /* it has none */
    assert_true(tb_shelf_has(&w.shelf, 64) && !tb_shelf_has(&w.shelf, 1));
    free(w.memory);
}

static void a_chunk_without_room_has_no_encoded_chunk(void **state)
{
    (void)state;
    struct world w;
    struct tb_shelf_entry entry;
    char bytes[ROOM] = {0};
    world_init(&w);
    const struct tb_codec_coded most = coded_of(bytes, ROOM - 2 * TB_DIGEST_BYTES - 1),
                                more = coded_of(bytes, 2), last = coded_of(bytes, 1);
    tb_shelf_put(&w.shelf, 0, &most);
    tb_shelf_put(&w.shelf, 1, &more);
    tb_shelf_put(&w.shelf, 2, &last);
    assert_true(entry_of(&w, 1, 100, &entry));
    assert_int_equal(entry.bytes, 0);
    assert_true(entry_of(&w, 2, 100, &entry));
    assert_int_equal(entry.bytes, 1);
    free(w.memory);
}

static void a_shelf_is_opened_once(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    assert_int_equal(head_of(&w).state, TB_SHELF_UNKNOWN);
    assert_false(tb_shelf_is_of(&w.shelf, &base));
    tb_shelf_open(&w.shelf, &base);
    tb_shelf_open(&w.shelf, &other);
    assert_int_equal(head_of(&w).state, TB_SHELF_OPEN);
    const struct tb_id seen = head_of(&w).base;
    assert_true(tb_id_equal(&seen, &base));
    assert_true(tb_shelf_is_of(&w.shelf, &base) && !tb_shelf_is_of(&w.shelf, &other));
    tb_shelf_close(&w.shelf);
    tb_shelf_open(&w.shelf, &other);
    assert_int_equal(head_of(&w).state, TB_SHELF_CLOSED);
    assert_true(tb_shelf_is_of(&w.shelf, &base));
    free(w.memory);
}

/* P7: words of a stranger. */
static void nonsense_is_refused(void **state)
{
    (void)state;
    struct world w;
    struct tb_shelf_head head;
    struct tb_shelf_entry entry;
    world_init(&w);
    assert_false(tb_shelf_head_read(w.memory, COUNT + 1, &head));
    const uint64_t kept = w.memory[0];
    w.memory[0] = 3; /* no state */
    assert_false(tb_shelf_head_read(w.memory, COUNT, &head));
    w.memory[0] = kept;
    w.memory[4] = UINT64_MAX; /* room */
    assert_false(tb_shelf_head_read(w.memory, COUNT, &head));
    head = (struct tb_shelf_head){.room_bytes = 100};
    const struct {
        uint64_t words[2];
        bool good;
    } rows[] = {{{50, 50}, true},         {{50, 51}, false},
                {{0, 100}, true},         {{0, 101}, false},
                {{60, 0}, true},          {{61, 0}, false /* > chunk */},
                {{1, UINT64_MAX}, false}, {{(uint64_t)1 << 41, 0}, false}};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(tb_shelf_entry_read(rows[i].words, &head, 60, &entry), rows[i].good);
    free(w.memory);
}

/* P1: its owner digests it after a report: damaged, it is shown to nobody any more; else it stays,
 * whatever a reader says (P7). */
static void a_damaged_encoded_chunk_is_withdrawn(void **state)
{
    (void)state;
    struct world w;
    struct tb_shelf_entry entry;
    world_init(&w);
    const struct tb_codec_coded one = coded_of("abc", 3), two = coded_of("defgh", 5);
    tb_shelf_put(&w.shelf, 0, &one);
    tb_shelf_put(&w.shelf, 1, &two);
    tb_shelf_put(&w.shelf, 2, NULL);
    for (uint32_t line = 0; line < 4; line++)
        assert_true(tb_shelf_recheck(&w.shelf, line));
    assert_true(entry_of(&w, 1, 100, &entry));
    w.shelf.room[entry.offset + 2] ^= 1;
    assert_false(tb_shelf_recheck(&w.shelf, 1));
    assert_true(tb_shelf_recheck(&w.shelf, 1)); /* it has none */
    assert_true(entry_of(&w, 1, 100, &entry));
    assert_int_equal(entry.bytes, 0);
    assert_true(tb_shelf_recheck(&w.shelf, 0));
    w.memory[tb_shelf_entry_offset(COUNT, 0) / 8 + 1] = UINT64_MAX; /* where it stands */
    assert_false(tb_shelf_recheck(&w.shelf, 0));
    free(w.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_says_where_the_encoded_chunk_stands),
        cmocka_unit_test(a_chunk_without_room_has_no_encoded_chunk),
        cmocka_unit_test(a_damaged_encoded_chunk_is_withdrawn),
        cmocka_unit_test(a_shelf_is_opened_once),
        cmocka_unit_test(nonsense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
