/* land_chunk.c - a chunk lands as bytes, beside its place, or as a delta: it is held if its digest
 * matches, and every other outcome leaves it absent with a reason (P1).
 *
 * Covers: base/layout/land_chunk.c base/layout/chunk_digest.c */
#include "base/layout/land_chunk.h"

#include <stdlib.h>
#include <string.h>

#include "base/layout/chunk_digest.h"
#include "tests/unit/check.h"

#define CHUNKS 3u
#define K      1u /* the chunk of most tests */

struct version {
    void *memory;
    struct tb_manifest manifest;
    uint8_t *sealed;
    struct tb_place place;
    uint64_t held[1], claimed[1];
};

struct world {
    struct version old, new; /* the new one differs in a few elements */
    struct tb_codec *codec;
    uint8_t *room; /* of the delta */
    struct tb_codec_coded delta;
};

static void version_make(struct version *v, uint8_t changed)
{
    const struct tb_tensor t = {
        .name = "w", .dtype = TB_DTYPE_BF16, .rank = 1, .full = {CHUNKS << 19}, .box_count = {CHUNKS << 19}};
    _Alignas(16) uint8_t layout_memory[1024];
    struct tb_layout layout;
    CHECK_OK(tb_layout_build(&t, 1, layout_memory, sizeof layout_memory, &layout));
    const size_t bytes = tb_manifest_bytes_for(&layout, NULL, 0);
    v->memory = malloc(bytes);
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, v->memory, bytes, &v->manifest));
    assert_int_equal(v->manifest.chunk_count, CHUNKS);
    v->sealed = malloc(v->manifest.bytes);
    for (uint64_t i = 0; i < v->manifest.bytes; i++)
        v->sealed[i] = (uint8_t)(i * 31 + (i >> 12) + (i % 4096 == 0 ? changed : 0));
    for (uint32_t k = 0; k < CHUNKS; k++)
        v->manifest.digests[k] = tb_chunk_digest(&v->manifest, k, v->sealed + v->manifest.chunks[k].offset);
    v->place = (struct tb_place){.manifest = &v->manifest,
                                 .bytes = calloc(1, v->manifest.bytes),
                                 .held = v->held,
                                 .claimed = v->claimed};
}

static void version_free(struct version *v)
{
    free(v->memory);
    free(v->sealed);
    free(v->place.bytes);
}

static const uint8_t *sealed_chunk(const struct version *v, uint32_t k)
{
    return v->sealed + v->manifest.chunks[k].offset;
}

static int world_up(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    version_make(&w->old, 0);
    version_make(&w->new, 2);
    for (uint32_t k = 0; k < CHUNKS; k++) {
        struct tb_land l = {.place = &w->old.place, .chunk = k, .beside = sealed_chunk(&w->old, k)};
        assert_true(tb_place_claim(&w->old.place, k));
        CHECK_OK(tb_land_chunk(&l));
    }
    CHECK_OK(tb_codec_new(&w->codec));
    const uint32_t bytes = w->new.manifest.chunks[K].bytes;
    const struct tb_codec_input in = {.bytes = sealed_chunk(&w->new, K),
                                      .count = bytes,
                                      .dtype = TB_DTYPE_BF16,
                                      .base = sealed_chunk(&w->old, K)};
    const size_t cap = tb_codec_bound(TB_CODEC_SPARSE, bytes);
    w->room = malloc(cap);
    CHECK_OK(tb_codec_encode(w->codec, (struct tb_codec_form){TB_CODEC_SPARSE, true}, &in,
                             (struct tb_codec_room){w->room, cap}, &w->delta));
    assert_true(w->delta.form.on_base);
    assert_true(tb_place_claim(&w->new.place, K));
    *state = w;
    return 0;
}

static int world_down(void **state)
{
    struct world *w = *state;
    tb_codec_free(w->codec);
    version_free(&w->old);
    version_free(&w->new);
    free(w->room);
    free(w);
    return 0;
}

static struct tb_land delta_of(struct world *w)
{
    return (struct tb_land){.place = &w->new.place,
                            .chunk = K,
                            .encoded = &w->delta,
                            .codec = w->codec,
                            .base = tb_land_base(&w->old.place, &w->new.manifest, K)};
}

static void is_held(const struct world *w)
{
    assert_true(tb_place_held(&w->new.place, K));
    assert_int_equal(w->new.claimed[0], 0);
    assert_memory_equal(w->new.place.bytes + w->new.manifest.chunks[K].offset, sealed_chunk(&w->new, K),
                        w->new.manifest.chunks[K].bytes);
}

static void is_absent(const struct world *w)
{
    assert_false(tb_place_held(&w->new.place, K));
    assert_int_equal(w->new.claimed[0], 0);
}

static void bytes_in_the_place_are_held(void **state)
{
    struct world *w = *state;
    struct tb_land l = {.place = &w->new.place, .chunk = K};
    memcpy(w->new.place.bytes + w->new.manifest.chunks[K].offset, sealed_chunk(&w->new, K),
           w->new.manifest.chunks[K].bytes);
    CHECK_OK(tb_land_chunk(&l));
    assert_false(l.decoded);
    is_held(w);
}

static void other_bytes_are_refused(void **state)
{
    struct world *w = *state;
    struct tb_land l = {.place = &w->new.place, .chunk = K, .beside = sealed_chunk(&w->old, K)};
    CHECK_STATUS(tb_land_chunk(&l), TB_CHUNK_DIGEST);
    is_absent(w);
}

/* A delta, and bytes beside the place: whatever form the bytes of a relay have. */
static void foreign_chunks_have_to_fit_their_proof(void **state)
{
    struct world *w = *state;
    struct tb_land beside = {.place = &w->new.place, .chunk = K, .beside = sealed_chunk(&w->new, K)};
    const struct tb_blake3 proof = tb_chunk_proof(&w->new.manifest, K, beside.beside);
    struct tb_land l = delta_of(w);
    l.foreign = beside.foreign = true;
    CHECK_STATUS(tb_land_beside(&beside), TB_CHUNK_DIGEST);
    CHECK_STATUS(tb_land_chunk(&l), TB_CHUNK_DIGEST);
    assert_true(l.decoded);
    is_absent(w);
    tb_manifest_set_proof(&w->new.manifest, K, &proof);
    CHECK_OK(tb_land_beside(&beside));
    assert_true(tb_place_claim(&w->new.place, K));
    CHECK_OK(tb_land_chunk(&l));
    is_held(w);
}

static void a_delta_decodes_into_the_place(void **state)
{
    struct world *w = *state;
    struct tb_land l = delta_of(w);
    CHECK_OK(tb_land_chunk(&l));
    assert_true(l.decoded);
    is_held(w);
}

static void a_delta_may_decode_beside_the_place_first(void **state)
{
    struct world *w = *state;
    struct tb_land l = delta_of(w);
    l.into = malloc(w->new.manifest.chunks[K].bytes);
    CHECK_OK(tb_land_chunk(&l));
    is_held(w);
    free(l.into);
}

/* The base is gone: the peer sends the chunk whole. */
static void a_delta_without_its_base_says_so(void **state)
{
    struct world *w = *state;
    struct tb_land l = delta_of(w);
    tb_bitmap_clear(w->old.held, K);
    l.base = tb_land_base(&w->old.place, &w->new.manifest, K);
    assert_null(l.base);
    CHECK_STATUS(tb_land_chunk(&l), TB_NOT_FOUND);
    is_absent(w);
}

/* The delta decodes, on bytes that are not its base. */
static void a_delta_on_another_base_is_refused(void **state)
{
    struct world *w = *state;
    struct tb_land l = delta_of(w);
    w->old.place.bytes[w->old.manifest.chunks[K].offset] ^= 1;
    CHECK_STATUS(tb_land_chunk(&l), TB_CHUNK_DIGEST);
    is_absent(w);
}

static void a_damaged_delta_is_refused(void **state)
{
    struct world *w = *state;
    w->delta.count /= 2;
    struct tb_land l = delta_of(w);
    CHECK_STATUS(tb_land_chunk(&l), TB_CHUNK_CODEC);
    assert_false(l.decoded);
    is_absent(w);
}

/* Two manifests may be cut at other places: the decoder reads as many bytes as it writes. */
static void a_base_that_is_cut_elsewhere_is_none(void **state)
{
    struct world *w = *state;
    struct tb_chunk cut[CHUNKS];
    assert_non_null(tb_land_base(&w->old.place, &w->new.manifest, K));
    memcpy(cut, w->old.manifest.chunks, sizeof cut);
    w->old.manifest.chunks = cut;
    cut[K].bytes--;
    assert_null(tb_land_base(&w->old.place, &w->new.manifest, K));
    cut[K].bytes++;
    cut[K].offset++;
    assert_null(tb_land_base(&w->old.place, &w->new.manifest, K));
    cut[K].offset--;
    w->old.manifest.chunk_count = K;
    assert_null(tb_land_base(&w->old.place, &w->new.manifest, K));
    w->old.manifest.chunk_count = CHUNKS;
    tb_place_unclaim(&w->new.place, K);
}

/* Another writer has the claim: the chunk is proved in other memory, and the place stays as it
 * is. */
static void a_chunk_is_proved_beside_the_claim_of_another(void **state)
{
    struct world *w = *state;
    uint8_t *spare = malloc(w->new.manifest.chunks[K].bytes);
    struct tb_land l = delta_of(w);
    l.into = spare;
    CHECK_OK(tb_land_beside(&l));
    assert_memory_equal(spare, sealed_chunk(&w->new, K), w->new.manifest.chunks[K].bytes);
    struct tb_land bytes = {.place = &w->new.place, .chunk = K, .beside = spare};
    CHECK_OK(tb_land_beside(&bytes));
    spare[7] ^= 1;
    CHECK_STATUS(tb_land_beside(&bytes), TB_CHUNK_DIGEST);
    l.base = NULL;
    CHECK_STATUS(tb_land_beside(&l), TB_NOT_FOUND);
    assert_false(tb_place_held(&w->new.place, K));
    assert_true(tb_bitmap_test(w->new.claimed, K));
    assert_int_equal(w->new.place.bytes[w->new.manifest.chunks[K].offset], 0);
    tb_place_unclaim(&w->new.place, K);
    free(spare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_in_the_place_are_held, world_up, world_down),
        cmocka_unit_test_setup_teardown(other_bytes_are_refused, world_up, world_down),
        cmocka_unit_test_setup_teardown(foreign_chunks_have_to_fit_their_proof, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_delta_decodes_into_the_place, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_delta_may_decode_beside_the_place_first, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_delta_without_its_base_says_so, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_delta_on_another_base_is_refused, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_damaged_delta_is_refused, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_base_that_is_cut_elsewhere_is_none, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_chunk_is_proved_beside_the_claim_of_another, world_up, world_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
