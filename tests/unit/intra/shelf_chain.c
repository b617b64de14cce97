/* shelf_chain.c - encoded chunks along a chain of real fabrics over tcp: a source, a
 * reader without the base, and behind it one with it. P1: whatever a shelf has, what is
 * held is what was sealed.
 *
 * Covers: intra/hop/hop_follow.c intra/hop/hop_shelf.c base/layout/shelf.c */
#include <stdlib.h>
#include <string.h>

#include "base/codec/codec.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/hop/hop_shelf.h"
#include "intra/transport/transport_words.h"
#include "island.h"
#include "tests/unit/forged_chunk.h"

static const struct way tcp = {.name = "tcp-clear", .transport = TB_TRANSPORT_TCP, .clear = true};
static const struct tb_id v1 = {.bytes = {1}};

/* A member: its copy, and its export of it with a shelf. */
struct host {
    struct tb_fabric *fabric;
    struct hold hold;
    struct tb_shelf shelf;
    void *memory;
    struct tb_source_shard shard;
    struct tb_hop_place place;
    struct tale tale;
    struct tb_hop *hop;
    tb_hop_encoded_fn encoded_chunks;        /* of the hop */
    uint32_t encoded_chunks_came, none_came; /* atomic */
    bool foreign;                            /* its source is not believed about its bytes */
    bool hurries;                            /* the hop's patience is a hop's own; else a slow machine's */
};

static void host_open(struct host *h, const struct cargo *c, bool chained)
{
    const uint32_t count = c->manifest.chunk_count;
    memset(h, 0, sizeof *h);
    h->fabric = fabric_make(&tcp, 0);
    hold_make(&h->hold, c);
    const uint64_t bytes = tb_shelf_bytes(count, c->manifest.bytes);
    h->memory = calloc(1, bytes);
    tb_shelf_init(&h->shelf, h->memory, count, c->manifest.bytes);
    h->shard = (struct tb_source_shard){.held_buffer = 1};
    h->place = (struct tb_hop_place){.place = &h->hold.place};
    tale_init(&h->tale);
    const struct tb_export_buffer buffers[] = {
        {.bytes = h->hold.bytes, .count = c->manifest.bytes, .memfd = -1},
        {.bytes = h->hold.place.held, .count = TB_BITMAP_WORDS(count) * 8, .memfd = -1},
        {.bytes = h->memory, .count = bytes, .memfd = -1}};
    const struct tb_shelf_at at = {.buffer = 2};
    const struct tb_export_options options = {
        .export_id = EXPORT_ID, .buffers = buffers, .buffer_count = 3, .shelf = &at, .chained = chained};
    assert_int_equal(tb_export_open(h->fabric, &options), TB_OK);
}

static void host_close(struct host *h)
{
    tb_fabric_close(h->fabric);
    tale_fini(&h->tale);
    hold_free(&h->hold);
    free(h->memory);
}

static void host_event(void *user, struct tb_hop *hop, const struct tb_hop_event *event)
{
    struct host *h = user;
    tale_fn(&h->tale, hop, event);
}

/* On any thread. An encoded chunk decodes to its chunk, for every taker. */
static void host_encoded(void *user, const struct tb_hop_encoded *encoded)
{
    struct host *h = user;
    assert_true(tb_id_equal(&encoded->base, &v1));
    assert_int_equal(encoded->chunk_count, h->hold.place.manifest->chunk_count);
    assert_true(encoded->shard == 0 && encoded->chunk < encoded->chunk_count);
    (void)__atomic_add_fetch(encoded->coded != NULL ? &h->encoded_chunks_came : &h->none_came, 1,
                             __ATOMIC_RELAXED);
}

static void host_read(struct host *h, struct host *from, const struct tb_hop_base *base)
{
    struct tb_fabric_endpoint mine;
    struct tb_hop_options options = {.export_id = EXPORT_ID,
                                     .source = &from->shard,
                                     .source_count = 1,
                                     .places = &h->place,
                                     .place_count = 1,
                                     .base = base,
                                     .shelf = h->encoded_chunks == NULL ? &h->shelf : NULL,
                                     .encoded_chunks = h->encoded_chunks,
                                     .feeds = EXPORT_ID,
                                     .foreign = h->foreign,
                                     .transport = TB_TRANSPORT_TCP,
                                     .shelf_ms = h->hurries ? 0 : 60000,
                                     .fn = host_event,
                                     .user = h};
    options.token.bytes[0] = 5;
    tb_fabric_endpoint(h->fabric, &mine);
    tb_fabric_endpoint(from->fabric, &options.from);
    assert_int_equal(tb_export_grant(from->fabric, EXPORT_ID, &options.token, &mine.fingerprint), TB_OK);
    assert_int_equal(tb_hop_open(h->fabric, &options, &h->hop), TB_OK);
}

static struct tb_hop_stats host_ends(struct host *h, const struct cargo *c)
{
    struct tb_hop_stats stats;
    tale_wait_whole(&h->tale);
    assert_int_equal(told(&h->tale).bad, 0); /* no source is blamed for an encoded chunk */
    tb_hop_close_counted(h->hop, &stats);
    hold_check(&h->hold, c);
    assert_true(tb_place_whole(&h->hold.place));
    return stats;
}

struct scene {
    struct cargo cargo;
    struct hold base;
    const struct tb_place *bases[1];
    struct host source, middle, last;
    uint32_t count;
};

/* The base is the version with an element in a hundred another. */
static void scene_open(struct scene *s)
{
    memset(s, 0, sizeof *s);
    cargo_make(&s->cargo, 6, 1200000);
    s->count = s->cargo.manifest.chunk_count;
    hold_make(&s->base, &s->cargo);
    memcpy(s->base.bytes, s->cargo.bytes, s->cargo.manifest.bytes);
    for (uint64_t at = 0; at < s->cargo.manifest.bytes; at += 400)
        s->base.bytes[at]++;
    for (uint32_t k = 0; k < s->count; k++)
        (void)tb_bitmap_set(s->base.place.held, k);
    s->bases[0] = &s->base.place;
    host_open(&s->source, &s->cargo, false);
    host_open(&s->middle, &s->cargo, true);
    host_open(&s->last, &s->cargo, true);
    memcpy(s->source.hold.bytes, s->cargo.bytes, s->cargo.manifest.bytes);
}

static void scene_close(struct scene *s)
{
    host_close(&s->last);
    host_close(&s->middle);
    host_close(&s->source);
    hold_free(&s->base);
    cargo_free(&s->cargo);
}

static void hold_all(struct host *h, uint32_t count)
{
    for (uint32_t k = 0; k < count; k++)
        (void)tb_bitmap_set(h->hold.place.held, k);
}

/* `bytes` stand for those of chunk k. */
static void shelve_bytes(struct scene *s, uint32_t k, const uint8_t *bytes, bool damaged)
{
    struct tb_codec *codec = NULL;
    const struct tb_manifest *m = &s->cargo.manifest;
    const struct tb_chunk *c = &m->chunks[k];
    const struct tb_codec_input in = {.bytes = bytes,
                                      .count = c->bytes,
                                      .dtype = tb_layout_dtype_at(&m->layout, c->offset),
                                      .base = s->base.bytes + c->offset,
                                      .classes = 1};
    const size_t bound = tb_codec_bound(TB_CODEC_SPARSE, c->bytes);
    uint8_t *room = malloc(bound);
    struct tb_codec_coded coded;
    assert_int_equal(tb_codec_new(&codec), TB_OK);
    assert_int_equal(tb_codec_encode(codec, (struct tb_codec_form){TB_CODEC_SPARSE, true}, &in,
                                     (struct tb_codec_room){room, bound}, &coded),
                     TB_OK);
    if (damaged) room[coded.count / 2] ^= 0x55;
    tb_shelf_put(&s->source.shelf, k, coded.form.on_base ? &coded : NULL);
    free(room);
    tb_codec_free(codec);
}

static void shelve(struct scene *s, uint32_t k, bool damaged)
{
    shelve_bytes(s, k, s->cargo.bytes + s->cargo.manifest.chunks[k].offset, damaged);
}

/* A delta that decodes to other bytes of the right digest. The reader believes the source in
 * nothing, so the chunk comes whole. Deltas of chunks whose proof is not known wait for it. */
static void P1_a_forged_delta_has_no_proof(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    struct tb_manifest *m = &s.cargo.manifest;
    tb_shelf_open(&s.source.shelf, &v1);
    for (uint32_t k = 1; k < s.count; k++)
        shelve(&s, k, false);
    uint8_t *forged = malloc(m->chunks[0].bytes);
    memcpy(forged, s.cargo.bytes, m->chunks[0].bytes);
    forge_chunk(forged, m->chunks[0].bytes, s.cargo.bytes[0] ^ 1);
    memcpy(s.base.bytes, forged, m->chunks[0].bytes); /* so that a delta to it pays */
    s.base.bytes[8]++;
    shelve_bytes(&s, 0, forged, false);
    tb_shelf_close(&s.source.shelf);
    hold_all(&s.source, s.count);
    for (uint32_t k = 0; k + 1 < s.count; k++) {
        const struct tb_blake3 proof = tb_blake3_of(s.cargo.bytes + m->chunks[k].offset, m->chunks[k].bytes);
        tb_manifest_set_proof(m, k, &proof);
    }
    const struct tb_hop_base base = {.uid = v1, .places = s.bases};
    s.last.foreign = true;
    host_read(&s.last, &s.source, &base);
    wait_until(tb_place_held_count(&s.last.hold.place) == s.count - 1);
    const struct tb_chunk *c = &m->chunks[s.count - 1];
    const struct tb_blake3 last = tb_blake3_of(s.cargo.bytes + c->offset, c->bytes);
    tb_manifest_set_proof(m, s.count - 1, &last);
    tb_hop_proofs_came(s.last.hop);
    (void)host_ends(&s.last, &s.cargo);
    assert_int_equal(told(&s.last.tale).encoded_chunks_bad, 1);
    free(forged);
    scene_close(&s);
}

/* One encoded chunk is damaged and one chunk has none: those two come whole, all others as encoded
 * chunks, past a reader that cannot decode. */
static void P1_encoded_chunks_pass_a_reader_without_the_base(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    tb_shelf_open(&s.source.shelf, &v1);
    for (uint32_t k = 0; k < s.count; k++)
        if (k != 2) shelve(&s, k, k == 1);
    tb_shelf_put(&s.source.shelf, 2, NULL);
    tb_shelf_close(&s.source.shelf);
    hold_all(&s.source, s.count);
    const struct tb_hop_base base = {.uid = v1, .places = s.bases};
    host_read(&s.last, &s.middle, &base); /* before the middle has anything */
    host_read(&s.middle, &s.source, NULL);
    const struct tb_hop_stats middle = host_ends(&s.middle, &s.cargo), last = host_ends(&s.last, &s.cargo);
    uint32_t encoded_chunks = 0;
    for (uint32_t k = 0; k < s.count; k++) {
        struct tb_shelf_entry entry;
        const struct tb_shelf_head head = {.room_bytes = s.cargo.manifest.bytes};
        const uint64_t *words = (const uint64_t *)s.source.memory + tb_shelf_entry_offset(s.count, k) / 8;
        assert_true(tb_shelf_entry_read(words, &head, UINT32_MAX, &entry));
        encoded_chunks += entry.bytes > 0;
    }
    assert_int_equal(middle.chunks_encoded, 0);
    assert_int_equal(middle.chunks_landed, s.count);
    assert_int_equal(last.chunks_encoded, encoded_chunks - 1);
    assert_true(last.bytes_read < s.cargo.manifest.bytes);
    assert_true(last.bytes_wasted > 0);
    scene_close(&s);
}

#define CHAIN 8

/* P6: chain.step. Of a step of two elements in a hundred, or a little more, each of eight hosts
 * that hold the base takes a thirtieth of the version, however deep it stands: what came
 * encoded goes on encoded. */
static void P6_a_delta_is_a_thirtieth_for_each_of_eight(void **state)
{
    (void)state;
    struct scene s;
    static struct host chain[CHAIN];
    scene_open(&s);
    const uint64_t bytes = s.cargo.manifest.bytes;
    memcpy(s.base.bytes, s.cargo.bytes, bytes);
    for (uint64_t at = 0; at < bytes; at += 100) /* 50 elements of two bytes, 25 of four */
        s.base.bytes[at]++;
    tb_shelf_open(&s.source.shelf, &v1);
    for (uint32_t k = 0; k < s.count; k++)
        shelve(&s, k, false);
    tb_shelf_close(&s.source.shelf);
    hold_all(&s.source, s.count);
    const struct tb_hop_base base = {.uid = v1, .places = s.bases};
    for (uint32_t i = 0; i < CHAIN; i++)
        host_open(&chain[i], &s.cargo, true);
    for (uint32_t i = CHAIN; i-- > 0;) /* the last first: before there is anything for it */
        host_read(&chain[i], i == 0 ? &s.source : &chain[i - 1], &base);
    for (uint32_t i = 0; i < CHAIN; i++)
        assert_true(host_ends(&chain[i], &s.cargo).bytes_read * 30 <= bytes);
    for (uint32_t i = CHAIN; i-- > 0;)
        host_close(&chain[i]);
    scene_close(&s);
}

/* P1 P7: a publisher may have cut the base at other places under the same layout id. A decoder
 * reads as much of the base as it writes, so nothing is decoded from a chunk of another length, nor
 * from one that the base has not. */
static void a_base_of_another_cut_is_not_read(void **state)
{
    (void)state;
    for (int shorter = 0; shorter < 2; shorter++) {
        struct scene s;
        scene_open(&s);
        tb_shelf_open(&s.source.shelf, &v1);
        for (uint32_t k = 0; k < s.count; k++)
            shelve(&s, k, false);
        tb_shelf_close(&s.source.shelf);
        hold_all(&s.source, s.count);
        struct tb_manifest other = s.cargo.manifest;
        struct tb_chunk *chunks = calloc(s.count, sizeof *chunks);
        memcpy(chunks, other.chunks, s.count * sizeof *chunks);
        for (uint32_t k = 0; k < s.count; k++)
            chunks[k].bytes /= 2;
        other.chunks = shorter != 0 ? chunks : other.chunks;
        other.chunk_count = shorter != 0 ? s.count : 1;
        s.base.place.manifest = &other;
        const struct tb_hop_base base = {.uid = v1, .places = s.bases};
        host_read(&s.last, &s.source, &base);
        const struct tb_hop_stats last = host_ends(&s.last, &s.cargo);
        assert_true(last.chunks_encoded <= (shorter != 0 ? 0 : 1));
        scene_close(&s);
        free(chunks);
    }
}

/* P6 P7: a shelf may have anything; the source is read whole. */
static void nonsense_on_a_shelf_costs_the_shelf_alone(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    memset(s.source.memory, 0xab, tb_shelf_zero_bytes(s.count));
    hold_all(&s.source, s.count);
    const struct tb_hop_base base = {.uid = v1, .places = s.bases};
    host_read(&s.last, &s.source, &base);
    const struct tb_hop_stats last = host_ends(&s.last, &s.cargo);
    assert_int_equal(last.chunks_encoded, 0);
    assert_int_equal(last.bytes_read, s.cargo.manifest.bytes);
    scene_close(&s);
}

/* How long a reader may sleep before its first chunk is a matter of how deep it stands. Its source
 * says it; one that does not know says nothing, and is taken for deep. */
static void P6_a_reader_learns_how_deep_it_stands(void **state)
{
    (void)state;
    for (uint32_t known = 0; known < 2; known++) {
        struct scene s;
        scene_open(&s);
        struct host *first = known ? &s.middle : &s.last, *second = known ? &s.last : &s.middle;
        host_read(first, known ? &s.source : &s.middle, NULL);
        tale_wait_opened(&first->tale);
        host_read(second, known ? &s.middle : &s.source, NULL);
        tale_wait_opened(&second->tale);
        hold_all(&s.source, s.count);
        assert_int_equal(host_ends(&s.middle, &s.cargo).depth, 1);
        assert_int_equal(host_ends(&s.last, &s.cargo).depth, known ? 2 : 0);
        scene_close(&s);
    }
}

/* P6: a shelf that promises and never delivers is waited for 500 ms, and read whole. */
static void an_empty_shelf_holds_nobody_up(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    tb_shelf_open(&s.source.shelf, &v1);
    hold_all(&s.source, s.count);
    const struct tb_hop_base base = {.uid = v1, .places = s.bases};
    s.last.hurries = true;
    host_read(&s.last, &s.source, &base);
    const struct tb_hop_stats last = host_ends(&s.last, &s.cargo);
    assert_int_equal(last.chunks_encoded, 0);
    scene_close(&s);
}

static void every_encoded_comes(bool decodes)
{
    struct scene s;
    scene_open(&s);
    tb_shelf_open(&s.source.shelf, &v1);
    hold_all(&s.source, s.count);
    const struct tb_hop_base base = {.uid = v1, .places = s.bases};
    s.last.encoded_chunks = host_encoded;
    host_read(&s.last, &s.source, decodes ? &base : NULL);
    if (!decodes) wait_until(tb_place_whole(&s.last.hold.place));
    const bool more = told(&s.last.tale).whole == 0;
    for (uint32_t k = 0; k < s.count; k++)
        if (k != 2) shelve(&s, k, false);
    tb_shelf_put(&s.source.shelf, 2, NULL);
    tb_shelf_close(&s.source.shelf);
    const struct tb_hop_stats last = host_ends(&s.last, &s.cargo);
    assert_true(more);
    assert_true(decodes ? last.chunks_encoded > 0 : last.chunks_encoded == 0);
    assert_true(__atomic_load_n(&s.last.none_came, __ATOMIC_RELAXED) >= 1);
    assert_in_range(__atomic_load_n(&s.last.encoded_chunks_came, __ATOMIC_RELAXED), s.count / 2, s.count - 1);
    scene_close(&s);
}

/* A gateway at home: it has every chunk whole long before the rank has encoded the last, and gets
 * all encoded chunks all the same. */
static void an_owner_that_wants_every_encoded_chunk_gets_it(void **state)
{
    (void)state;
    every_encoded_comes(false);
    every_encoded_comes(true);
}

/* P6: of every chunk it learns what there is: an encoded chunk that did not decode is none, and
 * nobody waits for it any more. */
static void an_owner_learns_of_an_encoded_chunk_that_failed(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    tb_shelf_open(&s.source.shelf, &v1);
    for (uint32_t k = 0; k < s.count; k++)
        shelve(&s, k, k == 1);
    tb_shelf_close(&s.source.shelf);
    hold_all(&s.source, s.count);
    const struct tb_hop_base base = {.uid = v1, .places = s.bases};
    s.last.encoded_chunks = host_encoded;
    host_read(&s.last, &s.source, &base);
    (void)host_ends(&s.last, &s.cargo);
    assert_int_equal(s.last.encoded_chunks_came + s.last.none_came, s.count);
    assert_int_equal(told(&s.last.tale).encoded_chunks_bad, 1); /* so its holder is asked to look */
    scene_close(&s);
}

/* P6: it waits for them no longer than others do. */
static void encoded_chunks_that_never_come_end_the_hop(void **state)
{
    (void)state;
    struct scene s;
    scene_open(&s);
    tb_shelf_open(&s.source.shelf, &v1);
    hold_all(&s.source, s.count);
    s.last.hurries = true;
    s.last.encoded_chunks = host_encoded;
    host_read(&s.last, &s.source, NULL);
    (void)host_ends(&s.last, &s.cargo);
    assert_int_equal(s.last.encoded_chunks_came, 0);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(P1_encoded_chunks_pass_a_reader_without_the_base),
        cmocka_unit_test(P1_a_forged_delta_has_no_proof),
        cmocka_unit_test(P6_a_delta_is_a_thirtieth_for_each_of_eight),
        cmocka_unit_test(a_base_of_another_cut_is_not_read),
        cmocka_unit_test(nonsense_on_a_shelf_costs_the_shelf_alone),
        cmocka_unit_test(an_empty_shelf_holds_nobody_up),
        cmocka_unit_test(P6_a_reader_learns_how_deep_it_stands),
        cmocka_unit_test(an_owner_that_wants_every_encoded_chunk_gets_it),
        cmocka_unit_test(an_owner_learns_of_an_encoded_chunk_that_failed),
        cmocka_unit_test(encoded_chunks_that_never_come_end_the_hop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
