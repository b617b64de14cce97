/* encode.c - deltas made in background: they decode to the version (P1), and a caller that wants
 * the memory back gets it at once.
 *
 * Covers: intra/client/publish/encode_jobs.c intra/client/memory/shadow.c */
#include "intra/client/publish/encode_jobs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/codec/codec.h"
#include "base/fault.h"
#include "unit/check.h"

#define CHUNKS_MOST 40u /* more than are tried before a step is given up */
#define CHUNKS      10u /* more than a thread's part of a batch */
#define BLOCK       ((size_t)1 << 20)

struct world {
    void *layout_memory, *manifest_memory, *shelf_memory;
    struct tb_manifest manifest;
    uint8_t *bytes, *base;
    struct tb_shelf shelf;
    struct tb_crew *crew;
    struct tb_encoding *encoding;
};

/* Each further MiB repeats the first: element by element a sanitizer's build would take a
 * minute. */
static void like_the_first(const struct world *w, uint8_t *bytes)
{
    for (size_t at = BLOCK; at < w->manifest.bytes; at += BLOCK) {
        const size_t left = w->manifest.bytes - at;
        memcpy(bytes + at, bytes, left < BLOCK ? left : BLOCK);
    }
}

/* Every `each`-th element is a step further than in the base. */
static void world_open(struct world *w, uint32_t chunks, uint32_t threads, uint64_t each)
{
    static const struct tb_id base = {.bytes = {1}};
    memset(w, 0, sizeof *w);
    const uint64_t count = chunks * BLOCK / 2 - 7;
    const struct tb_tensor tensor = {
        .name = "w", .dtype = TB_DTYPE_BF16, .rank = 1, .full = {count}, .box_count = {count}};
    const size_t layout_bytes = tb_layout_bytes_for(&tensor, 1);
    struct tb_layout layout;
    w->layout_memory = malloc(layout_bytes);
    CHECK_OK(tb_layout_build(&tensor, 1, w->layout_memory, layout_bytes, &layout));
    const size_t bytes = tb_manifest_bytes_for(&layout, NULL, 0);
    w->manifest_memory = malloc(bytes);
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, w->manifest_memory, bytes, &w->manifest));
    assert_int_equal(w->manifest.chunk_count, chunks);
    w->bytes = malloc(w->manifest.bytes);
    w->base = malloc(w->manifest.bytes);
    for (uint64_t i = 0; i < BLOCK / 2; i++) {
        const uint16_t before = (uint16_t)(i * 40503u >> 3);
        memcpy(w->base + 2 * i, &before, 2);
    }
    like_the_first(w, w->base);
    memcpy(w->bytes, w->base, w->manifest.bytes);
    for (uint64_t i = 0; i < count; i += each)
        w->bytes[2 * i]++;
    const uint64_t room = TB_SHELF_ROOM(w->manifest.bytes);
    w->shelf_memory = calloc(1, tb_shelf_bytes(chunks, room));
    tb_shelf_init(&w->shelf, w->shelf_memory, chunks, room);
    tb_shelf_open(&w->shelf, &base);
    CHECK_OK(tb_crew_new(threads, &w->crew));
}

static enum tb_status begin(struct world *w)
{
    const struct tb_encoding_task task = {
        .manifest = &w->manifest, .bytes = w->bytes, .base = w->base, .classes = 8, .shelf = &w->shelf};
    return tb_encoding_begin(w->crew, &task, &w->encoding);
}

static void world_close(struct world *w)
{
    tb_encoding_end(w->encoding);
    memset(w->bytes, 0, w->manifest.bytes); /* it is the owner's again */
    tb_crew_free(w->crew);
    free(w->bytes);
    free(w->base);
    free(w->shelf_memory);
    free(w->manifest_memory);
    free(w->layout_memory);
}

static struct tb_shelf_head head_of(const struct world *w)
{
    const uint64_t *memory = w->shelf_memory;
    uint64_t words[TB_SHELF_HEAD_WORDS];
    struct tb_shelf_head head;
    for (uint32_t i = 0; i < TB_SHELF_HEAD_WORDS; i++)
        words[i] = __atomic_load_n(&memory[i], __ATOMIC_ACQUIRE); /* a thread may be closing it */
    assert_true(tb_shelf_head_read(words, w->manifest.chunk_count, &head));
    return head;
}

static void wait_closed(const struct world *w)
{
    for (uint32_t ms = 0; head_of(w).state != TB_SHELF_CLOSED; ms++) {
        assert_true(ms < 60000);
        const struct timespec one = {.tv_nsec = 1000000};
        (void)nanosleep(&one, NULL);
    }
}

static struct tb_shelf_entry entry_of(const struct world *w, uint32_t k)
{
    const struct tb_shelf_head head = head_of(w);
    struct tb_shelf_entry entry;
    const uint64_t *words =
        (const uint64_t *)w->shelf_memory + tb_shelf_entry_offset(w->manifest.chunk_count, k) / 8;
    assert_true(tb_shelf_entry_read(words, &head, w->manifest.chunks[k].bytes, &entry));
    return entry;
}

/* True: it has an encoded chunk, which was decoded and is the chunk. */
static bool check_chunk(const struct world *w, struct tb_codec *codec, uint32_t k)
{
    const struct tb_chunk *chunk = &w->manifest.chunks[k];
    const struct tb_shelf_entry entry = entry_of(w, k);
    if (entry.bytes == 0) return false;
    uint8_t *out = malloc(chunk->bytes);
    const struct tb_codec_coded coded = {
        entry.form, (uint8_t *)w->shelf_memory + tb_shelf_room_offset(w->manifest.chunk_count) + entry.offset,
        entry.bytes};
    const struct tb_codec_output to = {out, chunk->bytes, w->base + chunk->offset};
    CHECK_OK(tb_codec_decode(codec, &coded, &to));
    assert_memory_equal(out, w->bytes + chunk->offset, chunk->bytes);
    free(out);
    return true;
}

static void P1_every_chunk_decodes_to_the_version(void **state)
{
    (void)state;
    struct tb_codec *codec;
    CHECK_OK(tb_codec_new(&codec));
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        struct world w;
        world_open(&w, threads * CHUNKS, threads, 100);
        CHECK_OK(begin(&w));
        wait_closed(&w);
        for (uint32_t k = 0; k < w.manifest.chunk_count; k++)
            assert_true(tb_shelf_has(&w.shelf, k) && check_chunk(&w, codec, k));
        world_close(&w);
    }
    tb_codec_free(codec);
}

/* Readers and links send the first tensors first: the room is filled in that order, by one
 * thread chunk for chunk. */
static void first_chunks_are_encoded_first(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, CHUNKS, 1, 100);
    CHECK_OK(begin(&w));
    wait_closed(&w);
    for (uint32_t k = 1; k < CHUNKS; k++)
        assert_true(entry_of(&w, k).offset > entry_of(&w, k - 1).offset);
    world_close(&w);
}

/* P6: the next version does not wait for it, whether it stands in line, works or is done. */
static void it_ends_wherever_it_is(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < CHUNKS; at += 4) {
        struct world w;
        world_open(&w, CHUNKS, 1 + at / 4 % 2, 100);
        CHECK_OK(begin(&w));
        for (uint32_t ms = 0; at > 0 && !tb_shelf_has(&w.shelf, at); ms++) {
            assert_true(ms < 60000);
            const struct timespec one = {.tv_nsec = 1000000};
            (void)nanosleep(&one, NULL);
        }
        tb_encoding_end(w.encoding);
        w.encoding = NULL;
        assert_int_equal(head_of(&w).state, TB_SHELF_CLOSED);
        world_close(&w);
    }
}

static void a_delta_that_changed_everything_is_given_up(void **state)
{
    (void)state;
    struct world w;
    uint32_t tried = 0;
    world_open(&w, CHUNKS_MOST, 2, 100);
    for (uint64_t i = 0; i < BLOCK; i++)
        w.bytes[i] = (uint8_t)(i * 2654435761u >> 9);
    like_the_first(&w, w.bytes);
    CHECK_OK(begin(&w));
    wait_closed(&w);
    for (uint32_t k = 0; k < CHUNKS_MOST; k++)
        tried += tb_shelf_has(&w.shelf, k);
    assert_in_range(tried, 32, CHUNKS_MOST - 1);
    world_close(&w);
}

/* P10: nothing hangs without memory; what has no entry comes whole. */
static void without_memory_the_shelf_is_closed(void **state)
{
    (void)state;
    for (uint64_t nth = 1; nth <= 5; nth += 2) {
        struct world w;
        world_open(&w, CHUNKS, 1, 100);
        tb_fault_arm(TB_FAULT_malloc, nth, true);
        const enum tb_status status = begin(&w);
        if (status != TB_OK) CHECK_STATUS(status, TB_SITE_NOMEM);
        wait_closed(&w);
        tb_fault_arm(TB_FAULT_malloc, 0, false);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P1_every_chunk_decodes_to_the_version),
        cmocka_unit_test(first_chunks_are_encoded_first),
        cmocka_unit_test(it_ends_wherever_it_is),
        cmocka_unit_test(a_delta_that_changed_everything_is_given_up),
        cmocka_unit_test(without_memory_the_shelf_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
