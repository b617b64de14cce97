/* outbound.c - which chunks go next, which are on their way, and by whose word that ends.
 *
 * Covers: wan/send/outbound.c
 * Covers: wan/send/base_chunks.c */
#include "wan/send/outbound.h"

#include <stdlib.h>
#include <string.h>

#include "small_places.h"
#include "tests/unit/check.h"
#include "wan/send/outbound_parcels.h"

struct fixture {
    struct small_place shards[2];
    struct tb_place places[2];
    struct tb_outbound c;
    void *memory;
};

static void setup(struct fixture *f, uint32_t chunks, uint32_t chunk_bytes)
{
    for (int s = 0; s < 2; s++)
        small_place_init(&f->shards[s], chunks, chunk_bytes, &f->places[s]);
    f->memory = malloc(tb_outbound_bytes_for(f->places, 2));
    tb_outbound_init(&f->c, f->places, 2, f->memory);
}

static enum tb_status held(struct fixture *f, uint32_t shard, uint32_t index, uint64_t word)
{
    const struct tb_span span = small_words(&(struct tb_held_word){index, word}, 1);
    return tb_outbound_held(&f->c, shard, &span);
}

#define CHECK_NEXT(f, s, a, n)                                                                               \
    do {                                                                                                     \
        struct tb_parcel p_;                                                                                 \
        assert_true(tb_outbound_next(&(f)->c, &p_));                                                         \
        assert_int_equal(p_.shard, s);                                                                       \
        assert_int_equal(p_.first, a);                                                                       \
        assert_int_equal(p_.count, n);                                                                       \
    } while (0)
#define CHECK_NOTHING(f)                                                                                     \
    do {                                                                                                     \
        struct tb_parcel p_;                                                                                 \
        assert_false(tb_outbound_next(&(f)->c, &p_));                                                        \
    } while (0)

static void nothing_goes_before_start(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 4, 1 << 20);
    small_place_hold(&f.shards[0], 0, 4);
    CHECK_NOTHING(&f);
    CHECK_OK(tb_outbound_start(&f.c));
    CHECK_NEXT(&f, 0, 0, 1);
    CHECK_STATUS(tb_outbound_start(&f.c), TB_PEER_GARBLED);
    free(f.memory);
}

/* The twin: unless the peer expects it. Chunks that it then says it holds do not go again. */
static void an_expected_version_goes_before_start(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 4, 1 << 20);
    small_place_hold(&f.shards[0], 0, 4);
    CHECK_OK(tb_outbound_name_base(&f.c));
    tb_outbound_push(&f.c);
    CHECK_NEXT(&f, 0, 0, 1);
    CHECK_OK(held(&f, 0, 0, 3));
    CHECK_OK(tb_outbound_start(&f.c));
    CHECK_NEXT(&f, 0, 2, 1);
    CHECK_NEXT(&f, 0, 3, 1);
    CHECK_NOTHING(&f);
    free(f.memory);
}

static enum tb_status take(struct fixture *f, uint32_t shard, uint32_t index, uint64_t word)
{
    const struct tb_span span = small_words(&(struct tb_held_word){index, word}, 1);
    return tb_outbound_take(&f->c, shard, &span);
}

/* Of what TAKE names, what it named first goes first, and then what is behind that and around. */
static void a_version_named_first_goes_first(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 4, 1 << 20);
    small_place_hold(&f.shards[0], 0, 4);
    small_place_hold(&f.shards[1], 0, 4);
    CHECK_OK(tb_outbound_start(&f.c));
    CHECK_OK(take(&f, 0, 0, 0));
    CHECK_NOTHING(&f);
    CHECK_OK(take(&f, 0, 0, 0xc));
    CHECK_OK(take(&f, 1, 0, 0x6));
    CHECK_NEXT(&f, 0, 2, 1);
    CHECK_NEXT(&f, 0, 3, 1);
    CHECK_NEXT(&f, 1, 1, 1);
    CHECK_OK(take(&f, 1, 0, 0x7));
    CHECK_NEXT(&f, 1, 2, 1);
    CHECK_NEXT(&f, 1, 0, 1);
    CHECK_NOTHING(&f);
    free(f.memory);
}

/* A parcel closes at 256 KiB and before 1 MiB; a larger chunk goes alone. */
static void parcels_close_by_bytes(void **state)
{
    (void)state;
    const struct {
        uint32_t chunk_bytes, count;
    } rows[] = {{100 << 10, 3}, {256 << 10, 1}, {255 << 10, 2}, {2 << 20, 1}, {1 << 10, 200}, {900 << 10, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture f;
        setup(&f, 200, rows[i].chunk_bytes);
        small_place_hold(&f.shards[0], 0, 200);
        CHECK_OK(tb_outbound_start(&f.c));
        CHECK_NEXT(&f, 0, 0, rows[i].count);
        free(f.memory);
    }
    /* The second would take it over 1 MiB. */
    struct fixture f;
    setup(&f, 2, 200 << 10);
    f.shards[0].chunks[1].bytes = 900 << 10;
    small_place_hold(&f.shards[0], 0, 2);
    CHECK_OK(tb_outbound_start(&f.c));
    CHECK_NEXT(&f, 0, 0, 1);
    CHECK_NEXT(&f, 0, 1, 1);
    free(f.memory);
}

/* P6: a chunk that becomes held here later goes then; a parcel ends at the first chunk that is not
 * held. */
static void only_what_is_held_goes(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 130, 100 << 10);
    CHECK_OK(tb_outbound_start(&f.c));
    CHECK_NOTHING(&f);
    small_place_hold(&f.shards[1], 127, 129);
    small_place_hold(&f.shards[0], 3, 4);
    CHECK_NEXT(&f, 1, 127, 2); /* the search goes round; it stood at the second shard */
    CHECK_NEXT(&f, 0, 3, 1);
    CHECK_NOTHING(&f);
    small_place_hold(&f.shards[0], 2, 3);
    CHECK_NEXT(&f, 0, 2, 1);
    free(f.memory);
}

/* A chunk for which the owner waits does not go, unless it goes whole. */
static void a_chunk_that_is_waited_for_does_not_go_yet(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t times = 0;
    setup(&f, 8, 1 << 20);
    small_place_hold(&f.shards[0], 0, 8);
    CHECK_OK(tb_outbound_start(&f.c));
    const struct tb_frame_refused no_base = {.shard = 0, .chunk = 1, .why = TB_REFUSAL_NO_BASE};
    CHECK_OK(tb_outbound_refused(&f.c, &no_base, &times));
    f.c.shards[0].wait[0] = 0xf7;
    CHECK_NEXT(&f, 0, 1, 1);
    CHECK_NEXT(&f, 0, 3, 1);
    CHECK_NOTHING(&f);
    assert_false(tb_outbound_all_on_their_way(&f.c));
    f.c.shards[0].wait[0] = 0xff;
    CHECK_NOTHING(&f); /* that one is on its way */
    f.c.shards[0].wait[0] = 0;
    CHECK_NEXT(&f, 0, 0, 1);
    free(f.memory);
}

/* P5: a chunk that the peer holds is not sent, whether it said so before or meanwhile. */
static void a_chunk_that_the_peer_holds_does_not_go(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 8, 1 << 20);
    small_place_hold(&f.shards[0], 0, 8);
    CHECK_OK(held(&f, 0, 0, 0x0f));
    CHECK_OK(tb_outbound_start(&f.c));
    CHECK_NEXT(&f, 0, 4, 1);
    CHECK_OK(held(&f, 0, 0, 0x7f)); /* another link brought 5 and 6 */
    CHECK_NEXT(&f, 0, 7, 1);
    CHECK_NOTHING(&f);
    free(f.memory);
}

static void whole_is_the_peer_s_word_alone(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 2, 1 << 20);
    CHECK_OK(tb_outbound_start(&f.c));
    CHECK_OK(held(&f, 0, 0, 3));
    assert_false(tb_outbound_whole(&f.c));
    CHECK_OK(held(&f, 1, 0, 3));
    assert_true(tb_outbound_whole(&f.c));
    CHECK_OK(held(&f, 1, 0, 3)); /* P4: once more changes nothing */
    assert_int_equal(f.c.peer_held, 4);
    free(f.memory);
}

static void claims_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    setup(&f, 8, 1 << 20);
    CHECK_OK(held(&f, 0, 0, 0x03));
    CHECK_STATUS(held(&f, 0, 0, 0x01), TB_PEER_GARBLED);  /* it lost chunk 1 */
    CHECK_STATUS(held(&f, 0, 0, 0x103), TB_PEER_GARBLED); /* there is no chunk 8 */
    CHECK_STATUS(held(&f, 0, 1, 0x01), TB_PEER_GARBLED);  /* nor a second word */
    CHECK_STATUS(held(&f, 2, 0, 0x01), TB_PEER_GARBLED);  /* nor a third shard */
    assert_int_equal(f.c.peer_held, 2);
    free(f.memory);
}

/* A stream that is gone: what it had on its way goes again, but for what the peer holds. Its
 * neighbour's does not. */
static void a_lost_stream_gives_back_what_did_not_arrive(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_parcel p;
    setup(&f, 4, 1 << 20);
    small_place_hold(&f.shards[0], 0, 4);
    CHECK_OK(tb_outbound_start(&f.c));
    for (uint32_t k = 0; k < 4; k++) {
        assert_true(tb_outbound_next(&f.c, &p));
        tb_outbound_taken(&f.c, &p, k % 2);
    }
    CHECK_OK(held(&f, 0, 0, 0x01)); /* 0 of stream 0 arrived, 2 did not */
    assert_int_equal(tb_outbound_stream_gone(&f.c, 0), 1);
    CHECK_NEXT(&f, 0, 2, 1);
    CHECK_NOTHING(&f);
    assert_int_equal(tb_outbound_stream_gone(&f.c, 0), 0);
    free(f.memory);
}

static void a_parcel_nobody_took_goes_back(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_parcel p;
    setup(&f, 4, 1 << 20);
    small_place_hold(&f.shards[0], 0, 1);
    CHECK_OK(tb_outbound_start(&f.c));
    assert_true(tb_outbound_next(&f.c, &p));
    CHECK_NOTHING(&f);
    tb_outbound_unqueued(&f.c, &p);
    CHECK_NEXT(&f, 0, 0, 1);
    free(f.memory);
}

/* P1: a refused chunk goes again and is counted; a refusal of what is held, or does not exist,
 * is the peer's mistake. */
static void a_refused_chunk_goes_again(void **state)
{
    (void)state;
    struct fixture f;
    struct tb_parcel p;
    uint32_t times = 0;
    struct tb_frame_refused r = {.shard = 0, .chunk = 1, .why = TB_REFUSAL_DIGEST};
    setup(&f, 2, 1 << 20);
    small_place_hold(&f.shards[0], 0, 2);
    CHECK_OK(tb_outbound_start(&f.c));
    for (uint32_t k = 0; k < 2; k++) {
        assert_true(tb_outbound_next(&f.c, &p));
        tb_outbound_taken(&f.c, &p, 0);
    }
    for (uint32_t i = 1; i < 4; i++) {
        CHECK_OK(tb_outbound_refused(&f.c, &r, &times));
        assert_int_equal(times, i);
        assert_true(tb_outbound_next(&f.c, &p));
        assert_int_equal(p.first, 1);
        CHECK_OK(tb_outbound_refused(&f.c, &(struct tb_frame_refused){.chunk = 1, .why = TB_REFUSAL_LOST},
                                     &times));
        assert_int_equal(times, 0);
        CHECK_NOTHING(&f); /* queued: it is on its way again already */
        tb_outbound_taken(&f.c, &p, 0);
    }
    CHECK_OK(held(&f, 0, 0, 0x01));
    r.chunk = 0;
    CHECK_STATUS(tb_outbound_refused(&f.c, &r, &times), TB_PEER_GARBLED);
    r.chunk = 2;
    CHECK_STATUS(tb_outbound_refused(&f.c, &r, &times), TB_PEER_GARBLED);
    r.shard = 2;
    CHECK_STATUS(tb_outbound_refused(&f.c, &r, &times), TB_PEER_GARBLED);
    free(f.memory);
}

static void refusals_are_counted_in_bounded_memory(void **state)
{
    (void)state;
    struct tb_refusals r = {0};
    for (uint32_t k = 0; k < TB_OUTBOUND_REFUSALS_MAX; k++)
        assert_int_equal(tb_refusals_add(&r, 0, k), 1);
    assert_int_equal(tb_refusals_add(&r, 0, 3), 2);
    assert_int_equal(tb_refusals_add(&r, 9, 9), 1);
    assert_int_equal(tb_refusals_add(&r, 9, 9), 1); /* no room to count it */
}

static void a_shard_without_chunks_is_no_obstacle(void **state)
{
    (void)state;
    struct fixture f;
    small_place_init(&f.shards[0], 0, 1, &f.places[0]);
    small_place_init(&f.shards[1], 1, 1, &f.places[1]);
    f.memory = malloc(tb_outbound_bytes_for(f.places, 2));
    tb_outbound_init(&f.c, f.places, 2, f.memory);
    small_place_hold(&f.shards[1], 0, 1);
    CHECK_OK(tb_outbound_start(&f.c));
    CHECK_NEXT(&f, 1, 0, 1);
    CHECK_NOTHING(&f);
    free(f.memory);
}

/* ---- bases ---- */

struct on_base {
    struct fixture f;
    struct small_place base[2];
    struct tb_place places[2];
    struct tb_digest digests[4][8]; /* of the version's shards, then of the base's */
};

/* Eight chunks a shard; those of shard 0 with an odd number differ from the base, and all of shard
 * 1. */
static void setup_based(struct on_base *b, uint32_t chunk_bytes)
{
    memset(b, 0, sizeof *b);
    setup(&b->f, 8, chunk_bytes);
    for (int s = 0; s < 2; s++) {
        small_place_init(&b->base[s], 8, chunk_bytes, &b->places[s]);
        b->f.shards[s].manifest.digests = b->digests[s];
        b->base[s].manifest.digests = b->digests[2 + s];
        for (int k = 0; k < 8; k++) {
            b->digests[s][k].bytes[0] = (uint8_t)(k + 1);
            b->digests[2 + s][k].bytes[0] = (uint8_t)(s == 0 && k % 2 == 0 ? k + 1 : 100 + k);
        }
        small_place_hold(&b->f.shards[s], 0, 8);
    }
}

static struct tb_frame_refused refusal(uint32_t chunk, enum tb_refusal why)
{
    return (struct tb_frame_refused){.chunk = chunk, .why = (uint8_t)why};
}

static void a_chunk_equal_in_the_base_is_not_sent(void **state)
{
    (void)state;
    struct on_base b;
    setup_based(&b, 1 << 20);
    CHECK_OK(tb_outbound_name_base(&b.f.c));
    tb_outbound_base(&b.f.c, b.places, 2);
    CHECK_OK(tb_outbound_start(&b.f.c));
    for (uint32_t k = 1; k < 8; k += 2)
        CHECK_NEXT(&b.f, 0, k, 1);
    for (uint32_t k = 0; k < 8; k++)
        CHECK_NEXT(&b.f, 1, k, 1);
    CHECK_NOTHING(&b.f);
    CHECK_OK(held(&b.f, 0, 0, 0xff)); /* the peer made the others itself */
    CHECK_OK(held(&b.f, 1, 0, 0xff));
    assert_true(tb_outbound_whole(&b.f.c));
    free(b.f.memory);
}

/* Another layout, another length, fewer shards or chunks: no base, whatever the digests say. */
static void a_base_that_does_not_fit_is_none(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct on_base b;
        setup_based(&b, 1 << 20);
        if (way == 0) b.base[0].manifest.layout.id.bytes[5] = 1;
        if (way == 1) b.base[0].chunks[2].bytes--;
        if (way == 2) b.base[0].manifest.chunk_count = 2;
        CHECK_OK(tb_outbound_name_base(&b.f.c));
        tb_outbound_base(&b.f.c, b.places, way == 3 ? 0 : 2);
        CHECK_OK(tb_outbound_start(&b.f.c));
        if (way == 0 || way == 3) CHECK_NEXT(&b.f, 0, 0, 1);
        CHECK_NEXT(&b.f, 0, 1, 1);
        CHECK_NEXT(&b.f, 0, 2, 1);
        CHECK_NEXT(&b.f, 0, 3, 1);
        free(b.f.memory);
    }
}

/* no-base, and that chunk alone comes whole; lost by another writer, it may be a
 * difference again. */
static void a_chunk_without_a_base_goes_whole(void **state)
{
    (void)state;
    struct on_base b;
    struct tb_parcel p;
    uint32_t times = 9;
    setup_based(&b, 1 << 20);
    CHECK_OK(tb_outbound_name_base(&b.f.c));
    tb_outbound_base(&b.f.c, b.places, 2);
    CHECK_OK(tb_outbound_start(&b.f.c));
    struct tb_frame_refused r = refusal(2, TB_REFUSAL_NO_BASE);
    CHECK_OK(tb_outbound_refused(&b.f.c, &r, &times));
    assert_int_equal(times, 0);
    r = refusal(4, TB_REFUSAL_LOST);
    CHECK_OK(tb_outbound_refused(&b.f.c, &r, &times));
    assert_int_equal(times, 0);
    r = refusal(5, TB_REFUSAL_DIGEST);
    CHECK_OK(tb_outbound_refused(&b.f.c, &r, &times));
    assert_int_equal(times, 1);
    static const bool plain[8] = {[2] = true, [5] = true};
    for (uint32_t k = 1; k < 8; k++) {
        if (k == 6) continue;
        assert_true(tb_outbound_next(&b.f.c, &p));
        assert_int_equal(p.first, k);
        assert_int_equal(p.plain, plain[k]);
    }
    free(b.f.memory);
}

static void a_parcel_is_whole_or_not(void **state)
{
    (void)state;
    struct on_base b;
    struct tb_parcel p;
    uint32_t times;
    setup_based(&b, 1 << 10);
    CHECK_OK(tb_outbound_start(&b.f.c));
    for (uint32_t k = 2; k < 4; k++) {
        const struct tb_frame_refused r = refusal(k, TB_REFUSAL_NO_BASE);
        CHECK_OK(tb_outbound_refused(&b.f.c, &r, &times));
    }
    static const struct {
        uint32_t first, count;
        bool plain;
    } rows[] = {{0, 2, false}, {2, 2, true}, {4, 4, false}};
    for (int i = 0; i < 3; i++) {
        assert_true(tb_outbound_next(&b.f.c, &p));
        assert_int_equal(p.first, rows[i].first);
        assert_int_equal(p.count, rows[i].count);
        assert_int_equal(p.plain, rows[i].plain);
    }
    free(b.f.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_goes_before_start),
        cmocka_unit_test(an_expected_version_goes_before_start),
        cmocka_unit_test(parcels_close_by_bytes),
        cmocka_unit_test(only_what_is_held_goes),
        cmocka_unit_test(a_chunk_that_is_waited_for_does_not_go_yet),
        cmocka_unit_test(a_chunk_that_the_peer_holds_does_not_go),
        cmocka_unit_test(whole_is_the_peer_s_word_alone),
        cmocka_unit_test(claims_that_cannot_be_are_refused),
        cmocka_unit_test(a_lost_stream_gives_back_what_did_not_arrive),
        cmocka_unit_test(a_parcel_nobody_took_goes_back),
        cmocka_unit_test(a_refused_chunk_goes_again),
        cmocka_unit_test(refusals_are_counted_in_bounded_memory),
        cmocka_unit_test(a_shard_without_chunks_is_no_obstacle),
        cmocka_unit_test(a_chunk_equal_in_the_base_is_not_sent),
        cmocka_unit_test(a_base_that_does_not_fit_is_none),
        cmocka_unit_test(a_chunk_without_a_base_goes_whole),
        cmocka_unit_test(a_parcel_is_whole_or_not),
        cmocka_unit_test(a_version_named_first_goes_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
