/* shelves.c - each chunk that lands is encoded once, and the work on a shelf may end at any time.
 *
 * Covers: gateway/daemon/copies/shelves.c */
#include "gateway/daemon/copies/shelves.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"

#define CHUNK_BYTES ((uint64_t)1 << 20)
#define CHUNKS      6u

struct copy {
    struct tb_place place;
    uint64_t held[1], claimed[1];
};

struct world {
    void *layout_memory, *manifest_memory, *shelf_memory;
    struct tb_manifest manifest;
    struct copy copy, base;
    const struct tb_place *places[1], *bases[1];
    struct tb_shelf shelf;
    struct tb_shelves *shelves;
    struct tb_shelf_work *work;
    struct tb_encoded_chunks *encoded_chunks;
};

static const struct tb_id uid = {.bytes = {2}}, base_uid = {.bytes = {1}};

static void copy_make(struct world *w, struct copy *c)
{
    c->place = (struct tb_place){
        .manifest = &w->manifest, .bytes = malloc(w->manifest.bytes), .held = c->held, .claimed = c->claimed};
    assert_non_null(c->place.bytes);
    for (uint64_t i = 0; i < w->manifest.bytes; i++)
        c->place.bytes[i] = (uint8_t)(i * 2654435761u >> 13);
}

static void world_init(struct world *w)
{
    memset(w, 0, sizeof *w);
    const uint64_t count = CHUNKS * CHUNK_BYTES / 2;
    const struct tb_tensor tensor = {
        .name = "w", .dtype = TB_DTYPE_BF16, .rank = 1, .full = {count}, .box_count = {count}};
    const size_t layout_bytes = tb_layout_bytes_for(&tensor, 1);
    struct tb_layout layout;
    w->layout_memory = malloc(layout_bytes);
    assert_int_equal(tb_layout_build(&tensor, 1, w->layout_memory, layout_bytes, &layout), TB_OK);
    const size_t bytes = tb_manifest_bytes_for(&layout, NULL, 0);
    w->manifest_memory = malloc(bytes);
    assert_int_equal(tb_manifest_build(&layout, NULL, 0, w->manifest_memory, bytes, &w->manifest), TB_OK);
    assert_int_equal(w->manifest.chunk_count, CHUNKS);
    copy_make(w, &w->copy);
    copy_make(w, &w->base);
    w->base.held[0] = (1u << CHUNKS) - 1;
    for (uint64_t at = 0; at < w->manifest.bytes; at += 1000)
        w->copy.place.bytes[at]++;
    for (uint64_t at = 0; at < CHUNK_BYTES; at++) /* the first chunk has nothing of the base */
        w->copy.place.bytes[at] = (uint8_t)(at * 40503u >> 7);
    const uint64_t room = w->manifest.bytes / 8;
    w->shelf_memory = calloc(1, tb_shelf_bytes(CHUNKS, room));
    tb_shelf_init(&w->shelf, w->shelf_memory, CHUNKS, room);
    w->places[0] = &w->copy.place;
    w->bases[0] = &w->base.place;
    assert_int_equal(tb_shelves_open(&w->shelves), TB_OK);
    assert_int_equal(tb_encoded_chunks_new(1 << 20, &w->encoded_chunks), TB_OK);
    const struct tb_shelf_task task = {.shelf = &w->shelf,
                                       .encoded_chunks = w->encoded_chunks,
                                       .uid = uid,
                                       .base = base_uid,
                                       .shard_count = 1,
                                       .places = w->places,
                                       .bases = w->bases};
    assert_int_equal(tb_shelves_work_begin(w->shelves, &task, &w->work), TB_OK);
}

static void world_fini(struct world *w)
{
    tb_shelves_work_end(w->work);
    tb_shelves_close(w->shelves);
    tb_encoded_chunks_free(w->encoded_chunks);
    free(w->copy.place.bytes);
    free(w->base.place.bytes);
    free(w->shelf_memory);
    free(w->manifest_memory);
    free(w->layout_memory);
}

static struct tb_shelf_head head_of(const struct world *w)
{
    struct tb_shelf_head head;
    assert_true(tb_shelf_head_read(w->shelf_memory, CHUNKS, &head));
    return head;
}

static void wait_for(const struct world *w, uint32_t line)
{
    for (uint32_t ms = 0; !tb_shelf_has(&w->shelf, line); ms++) {
        assert_true(ms < 20000);
        const struct timespec one = {.tv_nsec = 1000000};
        (void)nanosleep(&one, NULL);
    }
}

static void a_landed_chunk_is_encoded(void **state)
{
    (void)state;
    struct world w;
    struct tb_shelves_stats stats;
    world_init(&w);
    assert_int_equal(head_of(&w).state, TB_SHELF_OPEN);
    (void)tb_bitmap_set(w.copy.held, 4);
    wait_for(&w, 4);
    assert_false(tb_shelf_has(&w.shelf, 3));
    for (uint32_t k = 0; k < CHUNKS; k++)
        (void)tb_bitmap_set(w.copy.held, k);
    for (uint32_t k = 0; k < CHUNKS; k++)
        wait_for(&w, k);
    tb_shelves_work_end(w.work);
    w.work = NULL;
    assert_int_equal(head_of(&w).state, TB_SHELF_CLOSED);
    tb_shelves_stats(w.shelves, &stats);
    assert_int_equal(stats.chunks, CHUNKS - 1);
    assert_int_equal(stats.without, 1);
    assert_true(stats.bytes < stats.raw_bytes / 20 && stats.raw_bytes == (CHUNKS - 1) * CHUNK_BYTES);
    struct tb_shelf_entry entry;
    const struct tb_shelf_head head = head_of(&w);
    assert_true(tb_shelf_entry_read((const uint64_t *)w.shelf_memory + tb_shelf_entry_offset(CHUNKS, 0) / 8,
                                    &head, UINT32_MAX, &entry));
    assert_int_equal(entry.bytes, 0); /* it differs too much: it comes whole */
    world_fini(&w);
}

static void made(struct world *w, uint8_t of, uint8_t on, uint32_t chunk, size_t count)
{
    static uint8_t coded[CHUNK_BYTES];
    const struct tb_id version = {.bytes = {of}}, base = {.bytes = {on}};
    const struct tb_encoded_chunk_name name = {
        .uid = &version, .base = &base, .chunk = chunk, .shard_count = 1, .chunk_count = CHUNKS};
    const struct tb_codec_coded encoded = {{TB_CODEC_SPARSE, true}, coded, count};
    memset(coded, (int)chunk, count);
    const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_OF_LINK, &encoded, tb_clock_now()};
    tb_encoded_chunks_put(w->encoded_chunks, &name, &news);
}

/* A delta that came from elsewhere goes on as it came, and is not encoded again. */
static void a_chunk_that_came_encoded_is_forwarded(void **state)
{
    (void)state;
    struct world w;
    struct tb_shelves_stats stats;
    world_init(&w);
    made(&w, 9, 1, 3, 100); /* another version, another base, too large: it is encoded here */
    made(&w, 2, 9, 3, 100);
    made(&w, 2, 1, 3, CHUNK_BYTES / 2);
    made(&w, 2, 1, 2, 100);
    made(&w, 2, 1, 2, 50); /* P4: once */
    made(&w, 2, 1, 5, 7);
    for (uint32_t k = 0; k < CHUNKS; k++)
        (void)tb_bitmap_set(w.copy.held, k);
    for (uint32_t k = 0; k < CHUNKS; k++)
        wait_for(&w, k);
    tb_shelves_work_end(w.work);
    w.work = NULL;
    assert_int_equal(head_of(&w).state, TB_SHELF_CLOSED);
    tb_shelves_stats(w.shelves, &stats);
    assert_int_equal(stats.chunks, CHUNKS - 1);
    assert_int_equal(stats.forwarded, 2);
    assert_int_equal(stats.raw_bytes, (CHUNKS - 1) * CHUNK_BYTES);
    struct tb_shelf_entry entry;
    const struct tb_shelf_head head = head_of(&w);
    assert_true(tb_shelf_entry_read((const uint64_t *)w.shelf_memory + tb_shelf_entry_offset(CHUNKS, 2) / 8,
                                    &head, UINT32_MAX, &entry));
    assert_int_equal(entry.bytes, 100);
    assert_int_equal(w.shelf.room[entry.offset], 2);
    world_fini(&w);
}

/* P6: a base that goes ends it, and nobody waits for the rest. */
static void work_ends_where_it_is(void **state)
{
    (void)state;
    for (uint32_t turn = 0; turn < 4; turn++) {
        struct world w;
        world_init(&w);
        for (uint32_t k = 1; k < CHUNKS; k++)
            (void)tb_bitmap_set(w.copy.held, k);
        if (turn % 2 == 0) wait_for(&w, 1 + turn % (CHUNKS - 1));
        tb_shelves_work_end(w.work);
        w.work = NULL;
        assert_int_equal(head_of(&w).state, TB_SHELF_CLOSED);
        assert_false(tb_shelf_has(&w.shelf, 0));
        world_fini(&w);
    }
}

/* Encoded by its publisher: it is taken as it is, and what is on its way is waited
 * for, but not for ever. */
static void a_chunk_encoded_elsewhere_is_taken(void **state)
{
    (void)state;
    struct world w;
    struct tb_shelves_stats stats;
    const struct tb_codec_coded coded = {{TB_CODEC_SPARSE, true}, "made elsewhere", 14};
    struct tb_encoded_chunk_name name = {
        .uid = &uid, .base = &base_uid, .chunk = 4, .shard_count = 1, .chunk_count = CHUNKS};
    world_init(&w);
    const tb_time_ns late = tb_time_add(tb_clock_now(), TB_SECONDS(3600)); /* nobody's patience ends before */
    tb_encoded_chunks_coming(w.encoded_chunks, &name, true, late);
    (void)tb_bitmap_set(w.copy.held, 4);
    (void)tb_bitmap_set(w.copy.held, 5);
    const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_OF_RANK, &coded, late};
    tb_encoded_chunks_put(w.encoded_chunks, &name, &news);
    wait_for(&w, 4);
    assert_false(tb_shelf_has(&w.shelf, 5));
    tb_encoded_chunks_coming(w.encoded_chunks, &name, true, tb_clock_now());
    wait_for(&w, 5); /* nothing came for half a second */
    tb_shelves_stats(w.shelves, &stats);
    assert_int_equal(stats.forwarded, 1);
    assert_int_equal(stats.chunks, 2);
    struct tb_shelf_entry entry;
    const struct tb_shelf_head head = head_of(&w);
    assert_true(tb_shelf_entry_read((const uint64_t *)w.shelf_memory + tb_shelf_entry_offset(CHUNKS, 4) / 8,
                                    &head, UINT32_MAX, &entry));
    assert_int_equal(entry.bytes, 14);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_landed_chunk_is_encoded),
        cmocka_unit_test(a_chunk_that_came_encoded_is_forwarded),
        cmocka_unit_test(work_ends_where_it_is),
        cmocka_unit_test(a_chunk_encoded_elsewhere_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
