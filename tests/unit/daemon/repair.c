/* repair.c - reports that a chunk is damaged where it stands, at this gateway and at a rank: the
 * holder digests its own copy, and a liar gains nothing (P1, P7).
 *
 * Covers: gateway/daemon/copies/repair.c gateway/daemon/copies/copy_sweep.c
 * Covers: gateway/daemon/copies/home_landing.c gateway/daemon/sessions/session_repair.c */
#include "tests/unit/daemon/sealed_version.h"

#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_sweep.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/sessions/session_repair.h"
#include "tests/unit/check.h"

#define RANK_LEASE_MS 60000u

static void whole_here(struct sealed *s)
{
    sealed_begin_with(s, HOME_MODELS, RANK_LEASE_MS);
    sealed_land(s, 0, s->made.list[0]->chunk_count);
    (void)tb_copies_tick(s->home.d);
    assert_int_equal(sealed_view(s).state, TB_VERSION_KEPT);
}

static enum tb_status reported(struct sealed *s, uint64_t reporter, uint32_t shard, uint32_t chunk)
{
    const struct tb_report r = {.uid = s->made.key.uid, .shard = shard, .chunk = chunk, .reporter = reporter};
    return tb_repair_arena(s->home.d, &r);
}

static void turns_until_told(struct tb_daemon *d)
{
    while (atomic_load(&d->verify_bad) != 0)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
}

static void a_damaged_chunk_is_dropped_and_repaired(void **state)
{
    struct sealed s;
    (void)state;
    whole_here(&s);
    struct tb_daemon *d = s.home.d;
    struct tb_place *place = tb_arena_place(s.copy->region, 0);
    place->bytes[3] ^= 1;
    CHECK_STATUS(reported(&s, 7, 0, 0), TB_CHUNK_DIGEST);
    assert_false(tb_place_held(place, 0));
    turns_until_told(d);
    assert_false(tb_copy_is_whole(s.copy));
    assert_int_equal(d->counters.verify_bad, 1);
    assert_int_equal(d->counters.chunks_repaired, 0);
    CHECK_STATUS(reported(&s, 7, 0, 0), TB_CHUNK_ABSENT); /* it is on its way */
    sealed_land(&s, 0, 1);
    (void)tb_copies_tick(d);
    assert_true(tb_copy_is_whole(s.copy));
    assert_int_equal(d->counters.chunks_repaired, 1);
    sealed_end(&s);
}

/* P1 P7: memory that lost one chunk may have lost others. After a report the rest of the copy is
 * digested in background, at a rate that is bounded; what is damaged there is found before a reader
 * meets it. */
static void the_rest_of_a_damaged_copy_is_looked_at(void **state)
{
    struct sealed s;
    (void)state;
    whole_here(&s);
    struct tb_daemon *d = s.home.d;
    struct tb_place *place = tb_arena_place(s.copy->region, 0);
    const struct tb_chunk *third = &s.made.list[0]->chunks[2];
    place->bytes[3] ^= 1;
    place->bytes[third->offset + 3] ^= 1;
    CHECK_STATUS(reported(&s, 7, 0, 0), TB_CHUNK_DIGEST);
    turns_until_told(d);
    while (s.copy->sweeping)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    turns_until_told(d);
    assert_false(tb_place_held(place, 2));
    assert_true(tb_place_held(place, 1));
    assert_true(tb_place_held(place, 3));
    assert_int_equal(d->counters.verify_bad, 2);
    assert_false(s.copy->sweeping); /* what it found itself begins no other one */
    /* The rate: a chunk of 1 MiB is paid for with 4 ms before the next one. */
    const tb_time_ns now = tb_clock_now();
    tb_copy_sweep_begin(s.copy);
    tb_copies_sweep(d, now);
    assert_int_equal(s.copy->swept_chunks, 0);
    tb_copies_sweep(d, now + TB_MS(1));
    assert_int_equal(s.copy->swept_chunks, 1);
    tb_copies_sweep(d, now + TB_MS(3));
    assert_int_equal(s.copy->swept_chunks, 1);
    tb_copies_sweep(d, now + TB_SECONDS(3600));
    assert_false(s.copy->sweeping);
    assert_int_equal(s.copy->swept_chunks, 2);
    sealed_end(&s);
}

/* P7: one that reports good chunks again and again makes nobody drop them, and costs a
 * digest a chunk and second. */
static void a_liar_makes_nobody_drop_a_chunk(void **state)
{
    struct sealed s;
    (void)state;
    whole_here(&s);
    const uint32_t chunks = s.made.list[0]->chunk_count;
    const tb_time_ns began = tb_clock_now();
    uint32_t looks = 0;
    for (uint32_t i = 0; i < 1000; i++)
        looks += reported(&s, 7, 0, i % chunks) == TB_OK;
    const uint32_t seconds = (uint32_t)(tb_time_since(began, tb_clock_now()) / TB_SECONDS(1)) + 1;
    assert_in_range(looks, 1, seconds * TB_DOUBTS_EACH);
    assert_int_equal(tb_place_held_count(tb_arena_place(s.copy->region, 0)), chunks);
    assert_int_equal(atomic_load(&s.home.d->verify_bad), 0);
    assert_int_equal(s.home.d->counters.verify_bad, 0);
    sealed_end(&s);
}

static void numbers_that_name_nothing_are_passed_over(void **state)
{
    struct sealed s;
    (void)state;
    whole_here(&s);
    const struct tb_report unknown = {.uid = {{9}}};
    CHECK_STATUS(reported(&s, 7, s.made.key.shard_count, 0), TB_CHUNK_ABSENT);
    CHECK_STATUS(reported(&s, 7, UINT32_MAX, 0), TB_CHUNK_ABSENT);
    CHECK_STATUS(reported(&s, 7, 0, s.made.list[0]->chunk_count), TB_CHUNK_ABSENT);
    CHECK_STATUS(reported(&s, 7, 0, UINT32_MAX), TB_CHUNK_ABSENT);
    CHECK_STATUS(tb_repair_arena(s.home.d, &unknown), TB_CHUNK_ABSENT);
    sealed_end(&s);
}

static void a_damaged_encoded_chunk_is_shown_to_nobody(void **state)
{
    struct sealed s;
    (void)state;
    whole_here(&s);
    struct tb_shelf *shelf = &s.copy->shelf;
    const uint32_t count = s.made.list[0]->chunk_count;
    const struct tb_codec_coded coded = {{TB_CODEC_SPARSE, true}, "object", 6};
    struct tb_report r = {.uid = s.made.key.uid, .chunk = 1, .encoded = true};
    CHECK_STATUS(tb_repair_shelf(s.home.d, &r), TB_CHUNK_ABSENT); /* it has no shelf */
    s.copy->shelf_memory = tb_calloc(1, tb_shelf_bytes(count, 64));
    assert_non_null(s.copy->shelf_memory);
    tb_shelf_init(shelf, s.copy->shelf_memory, count, 64);
    tb_shelf_put(shelf, 0, &coded);
    tb_shelf_put(shelf, 1, &coded);
    shelf->room[TB_DIGEST_BYTES + 6 + TB_DIGEST_BYTES] ^= 1; /* the second one */
    CHECK_STATUS(tb_repair_shelf(s.home.d, &r), TB_CHUNK_DIGEST);
    assert_int_equal(s.home.d->counters.chunks_rotted, 1);
    r.chunk = 0;
    CHECK_STATUS(tb_repair_shelf(s.home.d, &r), TB_OK); /* P7: good, whatever a reader says */
    r.chunk = count;
    CHECK_STATUS(tb_repair_shelf(s.home.d, &r), TB_CHUNK_ABSENT);
    sealed_end(&s);
}

/* ---- what a rank answers of its own copy ---- */

static void said(struct sealed *s, uint8_t found)
{
    uint8_t bytes[64];
    struct tb_writer w;
    struct tb_worker_session rank = {.d = s->home.d, .id = s->rank};
    const struct tb_msg_doubted m = {.uid = s->made.key.uid, .chunk = 1, .found = found};
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_msg_doubted_encode(&m, &w);
    struct tb_wire_frame frame = {.type = TB_MSG_DOUBTED};
    tb_reader_init(&frame.payload, bytes, w.used);
    CHECK_OK(tb_worker_doubted_frame(&rank, &frame));
    tb_daemon_turn(s->home.d);
}

/* Home read chunk 1 from its rank twice, and it was bad: the rank was asked. */
static void asked(struct sealed *s)
{
    struct tb_daemon *d = s->home.d;
    struct tb_copy_hop *h = s->copy->hops;
    while (h != NULL && !tb_id_equal(&h->session, &s->rank))
        h = h->next;
    if (h == NULL) {
        h = tb_calloc(1, sizeof *h);
        assert_non_null(h);
        *h = (struct tb_copy_hop){.next = s->copy->hops, .copy = s->copy, .session = s->rank};
        s->copy->hops = h;
    }
    h->looks_until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    h->looks_chunk = 1;
    d->asked[0] = (struct tb_asked_look){.holder = s->rank, .uid = s->made.key.uid, .chunk = 1};
}

static void lacks_a_chunk(struct sealed *s)
{
    sealed_begin_with(s, HOME_MODELS, RANK_LEASE_MS);
    sealed_land(s, 0, 1);
    (void)tb_copies_tick(s->home.d);
}

static void a_rank_that_copied_again_is_read_once_more(void **state)
{
    struct sealed s;
    (void)state;
    lacks_a_chunk(&s);
    asked(&s);
    said(&s, TB_MSG_FOUND_MENDED);
    assert_int_equal(sealed_view(&s).state, TB_VERSION_READY);
    assert_int_equal(s.home.d->counters.chunks_rotted, 1);
    assert_int_equal(s.home.d->counters.chunks_repaired, 1);
    asked(&s);
    said(&s, TB_MSG_FOUND_MENDED); /* P6: but not for ever */
    assert_int_equal(sealed_view(&s).state, TB_VERSION_ENDED_BROKEN);
    sealed_end(&s);
}

static void a_rank_whose_bytes_changed_breaks_its_version(void **state)
{
    struct sealed s;
    (void)state;
    lacks_a_chunk(&s);
    asked(&s);
    said(&s, TB_MSG_FOUND_SPOILED);
    assert_int_equal(sealed_view(&s).state, TB_VERSION_ENDED_BROKEN);
    sealed_end(&s);
}

static void a_rank_that_does_not_answer_breaks_its_version(void **state)
{
    struct sealed s;
    (void)state;
    lacks_a_chunk(&s);
    asked(&s);
    tb_home_landing_retry(s.copy, tb_clock_now());
    tb_daemon_turn(s.home.d);
    assert_int_equal(sealed_view(&s).state, TB_VERSION_READY);
    tb_home_landing_retry(s.copy, tb_time_add(tb_clock_now(), TB_SECONDS(61)));
    tb_daemon_turn(s.home.d);
    assert_int_equal(sealed_view(&s).state, TB_VERSION_ENDED_BROKEN);
    sealed_end(&s);
}

/* P7: an answer to no question is none. */
static void an_answer_to_no_question_is_not_heard(void **state)
{
    struct sealed s;
    (void)state;
    lacks_a_chunk(&s);
    asked(&s);
    s.home.d->asked[0].chunk = 2;
    said(&s, TB_MSG_FOUND_SPOILED);
    assert_int_equal(sealed_view(&s).state, TB_VERSION_READY);
    assert_int_equal(s.home.d->counters.chunks_rotted, 0);
    sealed_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_chunk_is_dropped_and_repaired),
        cmocka_unit_test(the_rest_of_a_damaged_copy_is_looked_at),
        cmocka_unit_test(a_liar_makes_nobody_drop_a_chunk),
        cmocka_unit_test(numbers_that_name_nothing_are_passed_over),
        cmocka_unit_test(a_damaged_encoded_chunk_is_shown_to_nobody),
        cmocka_unit_test(a_rank_that_copied_again_is_read_once_more),
        cmocka_unit_test(a_rank_whose_bytes_changed_breaks_its_version),
        cmocka_unit_test(a_rank_that_does_not_answer_breaks_its_version),
        cmocka_unit_test(an_answer_to_no_question_is_not_heard),
    };
    return cmocka_run_group_tests_name("daemon.repair", tests, NULL, NULL);
}
