/* conformance_forged.c - a source that forges: other bytes with the digest of the right ones, over
 * each way to move them. A reader that is told so compares proofs, and asks for a chunk only once
 * its proof is known.
 *
 * Covers: intra/hop/hop_land.c base/layout/chunk_digest.c */
#include <stdlib.h>
#include <string.h>

#include "base/codec/codec.h"
#include "conformance.h"
#include "far_place.h"
#include "intra/fabric/fabric_hops.h"
#include "tests/unit/forged_chunk.h"

#define FORGED 4u /* the chunk */

static void know_proofs(struct scene *s, uint32_t first, uint32_t end)
{
    for (uint32_t k = first; k < end; k++) {
        const struct tb_chunk *c = &s->cargo.manifest.chunks[k];
        const struct tb_blake3 proof = tb_blake3_of(s->cargo.bytes + c->offset, c->bytes);
        tb_manifest_set_proof(&s->cargo.manifest, k, &proof);
    }
}

static struct tb_hop *foreign_hop(struct scene *s)
{
    struct tb_hop *hop = NULL;
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    options.foreign = true;
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    return hop;
}

/* The caller's to free. */
static uint8_t *forged_bytes(const struct scene *s)
{
    const struct tb_chunk *c = &s->cargo.manifest.chunks[FORGED];
    uint8_t *bytes = malloc(c->bytes);
    assert_non_null(bytes);
    memcpy(bytes, s->cargo.bytes + c->offset, c->bytes);
    forge_chunk(bytes, c->bytes, 0x66);
    assert_memory_not_equal(bytes, s->cargo.bytes + c->offset, c->bytes);
    return bytes;
}

static void expect_refused(struct scene *s, struct tb_hop *hop)
{
    tale_wait(&s->tale, &s->tale.told.bad, 1);
    wait_until(tb_place_held_count(&s->hold.place) == s->cargo.manifest.chunk_count - 1);
    assert_int_equal(told(&s->tale).bad_chunk, FORGED);
    assert_true(told(&s->tale).bad_twice);
    assert_false(tb_place_held(&s->hold.place, FORGED));
    tb_hop_close(hop);
    assert_int_equal(told(&s->tale).lost, 0);
}

/* Its digest alone would make the chunk held: so a source that could forge it has to be foreign. */
static void expect_believed(struct scene *s, const uint8_t *forged)
{
    const struct tb_chunk *c = &s->cargo.manifest.chunks[FORGED];
    struct tb_hop *hop = scene_hop(s);
    wait_until(tb_place_held(&s->hold.place, FORGED));
    tb_hop_close(hop);
    assert_memory_equal(s->hold.bytes + c->offset, forged, c->bytes);
    memcpy(s->hold.bytes + c->offset, s->cargo.bytes + c->offset, c->bytes); /* as scene_close wants it */
}

void P1_forged_bytes_have_no_proof(void **state)
{
    struct scene s;
    scene_open(&s, *state, 9, 3000004, 0);
    uint8_t *forged = forged_bytes(&s);
    const struct tb_chunk *c = &s.cargo.manifest.chunks[FORGED];
    owner_put(&s.owner, 64 + c->offset, forged, c->bytes);
    owner_hold_all(&s.owner);
    know_proofs(&s, 0, s.cargo.manifest.chunk_count);
    expect_refused(&s, foreign_hop(&s));
    expect_believed(&s, forged);
    free(forged);
    scene_close(&s);
}

static uint32_t encode(const uint8_t *bytes, uint32_t count, uint8_t *room)
{
    struct tb_codec *codec = NULL;
    struct tb_codec_coded coded;
    const struct tb_codec_input in = {.bytes = bytes, .count = count, .dtype = TB_DTYPE_U8};
    const struct tb_codec_form form = {.id = TB_CODEC_ZSTD};
    assert_int_equal(tb_codec_new(&codec), TB_OK);
    assert_int_equal(tb_codec_encode(codec, form, &in,
                                     (struct tb_codec_room){room, tb_codec_bound(TB_CODEC_ZSTD, count)},
                                     &coded),
                     TB_OK);
    tb_codec_free(codec);
    assert_int_equal(coded.form.id, TB_CODEC_ZSTD);
    return (uint32_t)coded.count;
}

void P1_forged_encoded_bytes_have_no_proof(void **state)
{
    struct scene s;
    scene_open(&s, *state, 9, 3000004, 0);
    uint8_t *forged = forged_bytes(&s);
    const uint32_t count = s.cargo.manifest.chunk_count, bytes = s.cargo.manifest.chunks[FORGED].bytes;
    struct tb_source_encoded *encoded = calloc(count, sizeof *encoded);
    uint8_t *room = malloc(tb_codec_bound(TB_CODEC_ZSTD, bytes));
    encoded[FORGED] =
        (struct tb_source_encoded){.codec = TB_CODEC_ZSTD, .bytes = encode(forged, bytes, room)};
    const struct tb_export_buffer buffers[] = {
        {.bytes = room, .count = encoded[FORGED].bytes, .memfd = -1},
        {.bytes = s.cargo.bytes, .count = s.cargo.manifest.bytes, .memfd = -1}};
    owner_export(&s.owner, buffers, 2);
    s.owner.shard = (struct tb_source_shard){.shard = 3,
                                             .held_buffer = TB_SOURCE_ALL_HELD,
                                             .packed_buffer = 1,
                                             .encoded_count = count,
                                             .encoded_chunks = encoded};
    know_proofs(&s, 0, count);
    expect_refused(&s, foreign_hop(&s));
    expect_believed(&s, forged);
    owner_revoke(&s.owner, 0);
    free(encoded);
    free(room);
    free(forged);
    scene_close(&s);
}

/* The place's owner says what proof the bytes have that stand there. */
void P1_forged_far_bytes_have_no_proof(void **state)
{
    struct scene s;
    struct far_place far;
    scene_open(&s, *state, 9, 3000004, 0);
    uint8_t *forged = forged_bytes(&s);
    const struct tb_chunk *c = &s.cargo.manifest.chunks[FORGED];
    owner_put(&s.owner, 64 + c->offset, forged, c->bytes);
    owner_hold_all(&s.owner);
    know_proofs(&s, 0, s.cargo.manifest.chunk_count);
    far_place_open(&far, &s.hold);
    assert_true(tb_place_is_far(&s.hold.place, FORGED));
    expect_refused(&s, foreign_hop(&s));
    far_place_close(&far, &s.hold);
    free(forged);
    scene_close(&s);
}

/* P6: those whose proofs are known come meanwhile, and the others as soon as they are. */
void P1_foreign_chunks_wait_for_their_proofs(void **state)
{
    struct scene s;
    scene_open(&s, *state, 9, 3000004, 0);
    const uint32_t count = s.cargo.manifest.chunk_count;
    owner_hold_all(&s.owner);
    know_proofs(&s, count / 2, count);
    struct tb_hop *hop = foreign_hop(&s);
    wait_until(tb_place_held_count(&s.hold.place) == count - count / 2);
    assert_false(tb_place_held(&s.hold.place, 0));
    know_proofs(&s, 0, count / 2);
    tb_hop_proofs_came(hop);
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).bad, 0);
    tb_hop_close(hop);
    scene_close(&s);
}
