/* hop_shelf.c - tests of intra/hop/hop_shelf.c with hop.c, in virtual time: which readers take
 * encoded chunks, which whole ones, and which wait. P6: no shelf holds a reader up.
 *
 * Covers: intra/hop/hop_shelf.c */
#include "intra/hop/hop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "island.h"

#define SHELVES_ROOM 4096u

static const struct tb_id v1 = {.bytes = {1}}, v0 = {.bytes = {7}};

struct world {
    struct cargo cargo;
    struct hold hold, base;
    const struct tb_place *bases[1];
    struct tb_source_shard source;
    struct tb_hop_shard shard;
    struct tb_hop_shelf shelf;
    struct tb_hop_state s;
    struct tb_shelf theirs, ours; /* the source's, and the one that is passed on */
    uint64_t *memory[2];
    void *shelf_memory;
    uint32_t count;
    tb_time_ns now;
};

static void world_init(struct world *w, bool has_base)
{
    memset(w, 0, sizeof *w);
    cargo_make(&w->cargo, 8, 600000);
    hold_make(&w->hold, &w->cargo);
    hold_make(&w->base, &w->cargo);
    w->count = w->cargo.manifest.chunk_count;
    w->source = (struct tb_source_shard){.held_buffer = 1};
    w->shard = (struct tb_hop_shard){.source = &w->source, .place = &w->hold.place};
    w->shard.memory = calloc(tb_hop_shard_words(w->count), 8);
    w->now = TB_SECONDS(5);
    tb_hop_state_init(&w->s, &w->shard, 1, 0, w->now);
    for (uint32_t i = 0; i < 2; i++) {
        w->memory[i] = calloc(1, tb_shelf_bytes(w->count, SHELVES_ROOM));
        tb_shelf_init(i == 0 ? &w->theirs : &w->ours, w->memory[i], w->count, SHELVES_ROOM);
    }
    w->shelf_memory = malloc(tb_hop_shelf_bytes(w->count));
    tb_hop_shelf_init(&w->shelf, w->shelf_memory, w->count);
    w->bases[0] = &w->base.place;
    if (has_base) w->shelf.base = (struct tb_hop_base){.uid = v1, .places = w->bases};
    w->shelf.ours = &w->ours;
    w->shelf.decodes = true;
    w->s.shelf = &w->shelf;
}

static void world_fini(struct world *w)
{
    free(w->shelf_memory);
    free(w->memory[0]);
    free(w->memory[1]);
    free(w->shard.memory);
    hold_free(&w->hold);
    hold_free(&w->base);
    cargo_free(&w->cargo);
}

static uint32_t chunk_bytes(void *user, uint32_t line)
{
    return ((struct world *)user)->cargo.manifest.chunks[line].bytes;
}

/* A round, in which the source holds the first `held` chunks. */
static void look(struct world *w, uint32_t held)
{
    uint64_t words[1] = {held == 0 ? 0 : UINT64_MAX >> (64 - held)};
    uint32_t first = 0, entries = 0;
    assert_true(w->count < 64);
    assert_int_equal(tb_hop_shelf_head(&w->shelf, w->memory[0]), TB_OK);
    while (tb_hop_shelf_wanted(&w->shelf, &first, &entries))
        assert_int_equal(tb_hop_shelf_entries(&w->shelf, first,
                                              w->memory[0] + tb_shelf_entry_offset(w->count, first) / 8,
                                              entries, chunk_bytes, w),
                         TB_OK);
    assert_int_equal(tb_hop_seen(&w->s, 0, 0, words, 1), TB_OK);
    tb_hop_round_done(&w->s, w->now);
}

static void shelve(struct world *w, uint32_t line, bool coded)
{
    const struct tb_codec_coded encoded = {{TB_CODEC_SPARSE, true}, "0123456789", 10};
    tb_shelf_put(&w->theirs, line, coded ? &encoded : NULL);
}

/* The next aim: "whole 3", "encoded chunk 3", "pass 3", or "-". */
static struct tb_hop_aim asks(struct world *w, const char *said)
{
    char text[32] = "-";
    struct tb_hop_aim aim = {.line = 0};
    if (tb_hop_next(&w->s, &aim))
        (void)snprintf(text, sizeof text, "%s %u",
                       aim.encoded == NULL ? "whole"
                       : aim.passed_on     ? "pass"
                                           : "encoded",
                       aim.chunk);
    assert_string_equal(text, said);
    if (aim.encoded != NULL) assert_int_equal(aim.bytes, 10);
    return aim;
}

static void land(struct world *w, const struct tb_hop_aim *aim)
{
    const struct tb_chunk *c = &w->cargo.manifest.chunks[aim->chunk];
    if (!aim->passed_on) {
        memcpy(w->hold.bytes + c->offset, w->cargo.bytes + c->offset, c->bytes);
        assert_int_equal(tb_place_finish(&w->hold.place, aim->chunk), TB_OK);
    }
    const struct tb_codec_coded encoded = {{TB_CODEC_SPARSE, true}, "0123456789", 10};
    if (aim->encoded != NULL && tb_hop_shelf_passes(&w->shelf, aim->line))
        tb_shelf_put(&w->ours, aim->line, &encoded);
    tb_hop_landed(&w->s, aim);
}

static void a_holder_of_the_base_reads_encoded_chunks_and_passes_them_on(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, true);
    tb_shelf_open(&w.theirs, &v1);
    shelve(&w, 0, true);
    shelve(&w, 1, true);
    look(&w, 0); /* before the source holds a chunk even */
    const struct tb_hop_aim zero = asks(&w, "encoded 0"), one = asks(&w, "encoded 1");
    asks(&w, "-");
    land(&w, &zero);
    land(&w, &one);
    assert_true(tb_shelf_has(&w.ours, 0) && tb_shelf_has(&w.ours, 1) && !tb_shelf_has(&w.ours, 2));
    assert_true(tb_shelf_is_of(&w.ours, &v1));
    look(&w, 4); /* 2 and 3 are held: their encoded chunks are waited for */
    asks(&w, "-");
    shelve(&w, 2, true);
    look(&w, 4);
    asks(&w, "encoded 2");
    world_fini(&w);
}

/* The twin: without the base chunks come whole at once, and encoded chunks go on to a reader that
 * may have it. */
static void a_reader_without_it_reads_chunks_and_passes_encoded_ones_on(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, false);
    tb_shelf_open(&w.theirs, &v1);
    shelve(&w, 0, true);
    look(&w, 2);
    const struct tb_hop_aim pass = asks(&w, "pass 0");
    asks(&w, "whole 0");
    asks(&w, "whole 1");
    asks(&w, "-");
    land(&w, &pass);
    assert_true(tb_shelf_has(&w.ours, 0));
    world_fini(&w);
}

/* P1 P6: an encoded chunk that decodes to something else costs its chunk a second way, and
 * the source no blame. */
static void an_encoded_chunk_that_failed_is_fetched_whole(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, true);
    tb_shelf_open(&w.theirs, &v1);
    shelve(&w, 0, true);
    look(&w, 1);
    const struct tb_hop_aim bad = asks(&w, "encoded 0");
    tb_place_unclaim(&w.hold.place, 0);
    tb_hop_encoded_failed(&w.s, &bad);
    const struct tb_hop_aim pass = asks(&w, "whole 0");
    assert_false(tb_shelf_has(&w.ours, 0));
    land(&w, &pass);
    asks(&w, "-");
    world_fini(&w);
}

/* P6: a source that holds chunks and whose shelf says nothing more is read whole after a while,
 * until it says something. */
static void patience_ends(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, true);
    tb_shelf_open(&w.theirs, &v1);
    look(&w, 3);
    w.now += TB_HOP_SHELF_PATIENCE - 1;
    look(&w, 3);
    asks(&w, "-");
    w.now += 1;
    look(&w, 3);
    const struct tb_hop_aim whole = asks(&w, "whole 0");
    land(&w, &whole);
    shelve(&w, 1, true); /* news: it is worth waiting for the rest */
    look(&w, 3);
    asks(&w, "encoded 1");
    asks(&w, "-");
    world_fini(&w);
}

/* The twin: a source that holds nothing new may be silent for as long as it likes,
 * and costs no patience. */
static void a_slow_arrival_costs_no_patience(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, true);
    tb_shelf_open(&w.theirs, &v1);
    for (uint32_t i = 0; i < 20; i++, w.now += TB_MS(300)) {
        look(&w, 0);
        asks(&w, "-");
    }
    look(&w, 1);
    asks(&w, "-"); /* its encoded chunk comes in a moment */
    world_fini(&w);
}

static void a_chunk_that_will_not_come_is_not_waited_for(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, true);
    tb_shelf_open(&w.theirs, &v1);
    shelve(&w, 0, false); /* it has none */
    look(&w, 2);
    asks(&w, "whole 0");
    asks(&w, "-");
    assert_true(tb_shelf_has(&w.ours, 0));
    tb_shelf_close(&w.theirs);
    look(&w, 2);
    asks(&w, "whole 1");
    struct tb_shelf_head head;
    assert_true(tb_shelf_head_read(w.memory[1], w.count, &head));
    assert_int_equal(head.state, TB_SHELF_CLOSED); /* and those behind us need not wait either */
    world_fini(&w);
}

static void encoded_chunks_of_another_base_are_no_use(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, true);
    tb_shelf_open(&w.ours, &v1); /* by an earlier source */
    tb_shelf_open(&w.theirs, &v0);
    shelve(&w, 0, true);
    look(&w, 2);
    asks(&w, "whole 0");
    asks(&w, "whole 1");
    asks(&w, "-");
    assert_false(tb_shelf_has(&w.ours, 0));
    world_fini(&w);
}

/* Over a hop that is faster than a decoder. */
static void a_fast_hop_reads_chunks(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, true);
    w.shelf.decodes = false;
    tb_shelf_open(&w.theirs, &v1);
    shelve(&w, 0, true);
    look(&w, 1);
    asks(&w, "pass 0");
    asks(&w, "whole 0");
    asks(&w, "-");
    world_fini(&w);
}

/* P7 */
static void nonsense_is_garbled(void **state)
{
    (void)state;
    struct world w;
    world_init(&w, true);
    tb_shelf_open(&w.theirs, &v1);
    shelve(&w, 0, true);
    w.memory[0][TB_SHELF_HEAD_WORDS] |= (uint64_t)1 << 63; /* past the last chunk */
    assert_int_equal(tb_hop_shelf_head(&w.shelf, w.memory[0]), TB_PEER_GARBLED);
    w.memory[0][TB_SHELF_HEAD_WORDS] = 1;
    assert_int_equal(tb_hop_shelf_head(&w.shelf, w.memory[0]), TB_OK);
    uint64_t *entry = w.memory[0] + tb_shelf_entry_offset(w.count, 0) / 8;
    entry[1] = SHELVES_ROOM;
    assert_int_equal(tb_hop_shelf_entries(&w.shelf, 0, entry, 1, chunk_bytes, &w), TB_PEER_GARBLED);
    world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_holder_of_the_base_reads_encoded_chunks_and_passes_them_on),
        cmocka_unit_test(a_reader_without_it_reads_chunks_and_passes_encoded_ones_on),
        cmocka_unit_test(an_encoded_chunk_that_failed_is_fetched_whole),
        cmocka_unit_test(patience_ends),
        cmocka_unit_test(a_slow_arrival_costs_no_patience),
        cmocka_unit_test(a_chunk_that_will_not_come_is_not_waited_for),
        cmocka_unit_test(encoded_chunks_of_another_base_are_no_use),
        cmocka_unit_test(a_fast_hop_reads_chunks),
        cmocka_unit_test(nonsense_is_garbled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
