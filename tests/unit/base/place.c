/* place.c - P1: a chunk becomes held only by bytes that match, and its destination has one writer
 * at a time.
 *
 * Covers: base/layout/place.c base/layout/chunk_digest.c */
#include "base/layout/place.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec/codec.h"
#include "tests/unit/check.h"

#define CHUNKS 24u

struct world {
    void *manifest_memory;
    struct tb_manifest manifest;
    uint8_t *source; /* what the publisher sealed */
    struct tb_place place;
    uint64_t held[1];
    uint64_t claimed[1];
};

static int world_up(void **state)
{
    static struct world w;
    const struct tb_tensor t = {
        .name = "w", .dtype = TB_DTYPE_U8, .rank = 1, .full = {CHUNKS << 20}, .box_count = {CHUNKS << 20}};
    static _Alignas(16) uint8_t layout_memory[1024];
    struct tb_layout layout;
    memset(&w, 0, sizeof w);
    CHECK_OK(tb_layout_build(&t, 1, layout_memory, sizeof layout_memory, &layout));
    const size_t bytes = tb_manifest_bytes_for(&layout, NULL, 0);
    w.manifest_memory = malloc(bytes);
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, w.manifest_memory, bytes, &w.manifest));
    assert_int_equal(w.manifest.chunk_count, CHUNKS);
    w.source = malloc(w.manifest.bytes);
    for (uint64_t i = 0; i < w.manifest.bytes; i++)
        w.source[i] = (uint8_t)(i * 31 + (i >> 12));
    for (uint32_t k = 0; k < CHUNKS; k++)
        w.manifest.digests[k] =
            tb_digest_of(w.source + w.manifest.chunks[k].offset, w.manifest.chunks[k].bytes);
    w.place = (struct tb_place){
        .manifest = &w.manifest, .bytes = calloc(1, w.manifest.bytes), .held = w.held, .claimed = w.claimed};
    *state = &w;
    return 0;
}

static int world_down(void **state)
{
    struct world *w = *state;
    free(w->manifest_memory);
    free(w->source);
    free(w->place.bytes);
    return 0;
}

static void land(struct world *w, uint32_t k)
{
    uint32_t bytes = 0;
    uint8_t *to = tb_place_chunk(&w->place, k, &bytes);
    memcpy(to, w->source + w->manifest.chunks[k].offset, bytes);
}

static void good_bytes_become_held(void **state)
{
    struct world *w = *state;
    assert_true(tb_place_claim(&w->place, 3));
    assert_false(tb_place_held(&w->place, 3)); /* claimed is not held */
    land(w, 3);
    CHECK_OK(tb_place_finish(&w->place, 3));
    assert_true(tb_place_held(&w->place, 3));
    assert_int_equal(tb_place_held_count(&w->place), 1);
    assert_false(tb_place_claim(&w->place, 3)); /* nothing writes a held chunk */
    assert_false(tb_place_whole(&w->place));
}

static void wrong_bytes_do_not(void **state)
{
    struct world *w = *state;
    assert_true(tb_place_claim(&w->place, 3));
    land(w, 3);
    w->place.bytes[w->manifest.chunks[3].offset + 777] ^= 1;
    CHECK_STATUS(tb_place_finish(&w->place, 3), TB_CHUNK_DIGEST);
    assert_false(tb_place_held(&w->place, 3));
    assert_true(tb_place_claim(&w->place, 3)); /* absent again: somebody may fetch it again */
    land(w, 3);
    CHECK_OK(tb_place_finish(&w->place, 3));
}

static void a_claim_is_exclusive_and_can_be_given_back(void **state)
{
    struct world *w = *state;
    assert_true(tb_place_claim(&w->place, 5));
    assert_false(tb_place_claim(&w->place, 5));
    assert_true(tb_place_claim(&w->place, 6)); /* its neighbour is not concerned */
    tb_place_unclaim(&w->place, 5);
    assert_false(tb_place_held(&w->place, 5));
    assert_true(tb_place_claim(&w->place, 5));
}

static void whole_when_the_last_is_held(void **state)
{
    struct world *w = *state;
    for (uint32_t k = 0; k < CHUNKS; k++) {
        assert_false(tb_place_whole(&w->place));
        assert_true(tb_place_claim(&w->place, k));
        land(w, k);
        CHECK_OK(tb_place_finish(&w->place, k));
    }
    assert_true(tb_place_whole(&w->place));
    assert_memory_equal(w->place.bytes, w->source, w->manifest.bytes);
}

#define THREADS 4

struct lander {
    struct world *w;
    uint32_t id;
    uint32_t landed;
    uint32_t refused;
};

/* Each tries every chunk until all are held; every third attempt of a thread lands wrong bytes
 * first. */
static void *lander_run(void *arg)
{
    struct lander *me = arg;
    struct tb_place *p = &me->w->place;
    uint32_t attempts = me->id;
    while (!tb_place_whole(p)) {
        for (uint32_t k = 0; k < CHUNKS; k++) {
            uint32_t bytes = 0;
            if (!tb_place_claim(p, k)) continue;
            uint8_t *to = tb_place_chunk(p, k, &bytes);
            land(me->w, k);
            if (attempts++ % 3 == 0) to[attempts % bytes] ^= 0xff;
            /* plain writes by several threads in turn: tsan sees it if a claim does
             * not hand the bytes over */
            if (tb_place_finish(p, k) == TB_OK) {
                me->landed++;
            } else {
                me->refused++;
            }
        }
    }
    return NULL;
}

static void of_many_claimers_one_lands(void **state)
{
    struct world *w = *state;
    pthread_t threads[THREADS];
    struct lander landers[THREADS];
    uint32_t landed = 0;
    uint32_t refused = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        landers[i] = (struct lander){w, i, 0, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, lander_run, &landers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        landed += landers[i].landed;
        refused += landers[i].refused;
    }
    assert_int_equal(landed, CHUNKS); /* each exactly once */
    assert_true(refused > 0);
    assert_memory_equal(w->place.bytes, w->source, w->manifest.bytes);
    assert_int_equal(w->claimed[0], 0);
}

/* Its owner takes the bytes of a chunk that matched before anybody is told that it is
 * held, and of no other. */
struct keeper {
    const struct world *w;
    uint32_t kept[CHUNKS];
    uint32_t encoded; /* of those: chunks that came as deltas */
    enum tb_status answer;
};

static enum tb_status keep(void *user, const struct tb_place *p, uint32_t k, const struct tb_place_came *came)
{
    struct keeper *o = user;
    assert_false(tb_place_held(p, k));
    o->kept[k]++;
    o->encoded += came->encoded != NULL;
    return o->answer;
}

/* The test's delta is one byte: what the chunk's bytes are XORed with. */
static void look_at_delta(void *user, struct tb_place_look *look)
{
    const struct keeper *o = user;
    const struct tb_chunk *chunk = &look->place->manifest->chunks[look->chunk];
    assert_non_null(look->came.encoded);
    const uint8_t delta = *(const uint8_t *)look->came.encoded->bytes;
    uint8_t *bytes = malloc(chunk->bytes);
    for (uint32_t i = 0; i < chunk->bytes; i++)
        bytes[i] = o->w->source[chunk->offset + i] ^ delta;
    const struct tb_digest digest = tb_digest_of(bytes, chunk->bytes);
    free(bytes);
    tb_place_looked(look, TB_OK, &digest);
}

/* A chunk that its owner looks at, waited for. */
struct looked {
    struct tb_place_look look;
    uint32_t answers;
    enum tb_status status;
};

static void on_looked(struct tb_place_look *look, enum tb_status status)
{
    struct looked *l = (struct looked *)look; /* its first member */
    assert_false(tb_bitmap_test(look->place->claimed, look->chunk));
    assert_int_equal(tb_place_held(look->place, look->chunk), status == TB_OK);
    l->answers++;
    l->status = status;
}

static enum tb_status take_later(struct world *w, uint32_t k, const struct tb_place_came *came)
{
    struct looked l = {.look.done = on_looked};
    assert_true(tb_place_owner_looks(&w->place, k, came));
    tb_place_take_later(&w->place, k, came, &l.look);
    assert_int_equal(l.answers, 1);
    return l.status;
}

static void an_owner_may_take_what_landed(void **state)
{
    struct world *w = *state;
    struct keeper o = {.w = w};
    const struct tb_place_owner owner = {.keep = keep, .user = &o};
    w->place.owner = &owner;
    assert_true(tb_place_claim(&w->place, 1));
    assert_int_equal(tb_place_finish(&w->place, 1), TB_CHUNK_DIGEST);
    assert_int_equal(o.kept[1], 0);
    assert_true(tb_place_claim(&w->place, 1));
    uint32_t bytes;
    uint8_t *chunk = tb_place_chunk(&w->place, 1, &bytes);
    memcpy(chunk, w->source + w->manifest.chunks[1].offset, bytes);
    assert_int_equal(tb_place_finish(&w->place, 1), TB_OK);
    assert_int_equal(o.kept[1], 1);
    assert_true(tb_place_held(&w->place, 1));
}

/* A delta on a base that only the owner has: its digest counts like that of bytes. */
static void an_owner_may_keep_a_delta_instead(void **state)
{
    struct world *w = *state;
    struct keeper o = {.w = w};
    const struct tb_place_owner owner = {.look = look_at_delta, .keep = keep, .user = &o};
    uint8_t delta = 1;
    const struct tb_codec_coded coded = {{TB_CODEC_SPARSE, true}, &delta, 1};
    const struct tb_place_came came = {.encoded = &coded};
    w->place.owner = &owner;
    assert_true(tb_place_claim(&w->place, 3));
    CHECK_STATUS(take_later(w, 3, &came), TB_CHUNK_DIGEST);
    assert_false(tb_place_held(&w->place, 3) || tb_bitmap_test(w->claimed, 3));
    assert_int_equal(o.kept[3], 0);
    delta = 0;
    assert_true(tb_place_claim(&w->place, 3));
    CHECK_OK(take_later(w, 3, &came));
    assert_true(tb_place_held(&w->place, 3));
    assert_int_equal(o.kept[3], 1);
    assert_int_equal(o.encoded, 1);
    assert_false(tb_place_claim(&w->place, 3));
    assert_false(tb_bitmap_test(w->claimed, 3));
}

/* An owner without memory for the chunk refuses it, and the chunk is absent again. */
static void an_owner_that_cannot_keep_a_chunk_refuses_it(void **state)
{
    struct world *w = *state;
    struct keeper o = {.w = w, .answer = TB_SITE_NOMEM};
    const struct tb_place_owner owner = {.keep = keep, .user = &o};
    w->place.owner = &owner;
    assert_true(tb_place_claim(&w->place, 2));
    land(w, 2);
    CHECK_STATUS(tb_place_finish(&w->place, 2), TB_SITE_NOMEM);
    assert_false(tb_place_held(&w->place, 2) || tb_bitmap_test(w->claimed, 2));
}

/* Bytes that came to other memory are copied, digested in the place, and held. */
static void bytes_that_came_beside_the_place_land_in_it(void **state)
{
    struct world *w = *state;
    const uint8_t *chunk = w->source + w->manifest.chunks[4].offset;
    assert_true(tb_place_claim(&w->place, 4));
    CHECK_STATUS(tb_place_take(&w->place, 4, &(struct tb_place_came){.beside = chunk + 1}), TB_CHUNK_DIGEST);
    assert_true(tb_place_claim(&w->place, 4));
    CHECK_OK(tb_place_take(&w->place, 4, &(struct tb_place_came){.beside = chunk}));
    assert_memory_equal(w->place.bytes + w->manifest.chunks[4].offset, chunk, w->manifest.chunks[4].bytes);
}

/* As one would make it who knows how XXH3 works: other bytes, with the digest of the right ones. */
static const uint8_t *forge(struct world *w, uint32_t k)
{
    const struct tb_chunk *c = &w->manifest.chunks[k];
    uint8_t *forged = w->source + c->offset;
    const struct tb_blake3 proof = tb_blake3_of(forged, c->bytes);
    tb_manifest_set_proof(&w->manifest, k, &proof);
    forged[5] ^= 1;
    w->manifest.digests[k] = tb_digest_of(forged, c->bytes);
    return forged;
}

/* One who is believed about its bytes could have written what it liked. */
static void foreign_bytes_have_to_fit_their_proof(void **state)
{
    struct world *w = *state;
    uint8_t *right = w->source + w->manifest.chunks[4].offset;
    const struct tb_place_came came = {.beside = right, .foreign = true};
    assert_true(tb_place_claim(&w->place, 4));
    CHECK_STATUS(tb_place_take(&w->place, 4, &came), TB_CHUNK_DIGEST); /* no proof is known yet */
    assert_false(tb_place_held(&w->place, 4));
    forge(w, 4);
    assert_true(tb_place_claim(&w->place, 4));
    CHECK_STATUS(tb_place_take(&w->place, 4, &came), TB_CHUNK_DIGEST);
    assert_false(tb_place_held(&w->place, 4));
    assert_true(tb_place_claim(&w->place, 4));
    right[5] ^= 1;
    CHECK_OK(tb_place_take(&w->place, 4, &came));
    assert_true(tb_place_held(&w->place, 4));
}

/* Whole is what is wanted, and no more. */
static void a_place_may_want_a_part(void **state)
{
    struct world *w = *state;
    uint64_t wanted[TB_BITMAP_WORDS(CHUNKS)] = {0};
    (void)tb_bitmap_set(wanted, 2);
    const struct tb_place_owner owner = {.wanted = wanted};
    w->place.owner = &owner;
    assert_false(tb_place_whole(&w->place));
    assert_true(tb_place_claim(&w->place, 2));
    uint32_t bytes;
    uint8_t *chunk = tb_place_chunk(&w->place, 2, &bytes);
    memcpy(chunk, w->source + w->manifest.chunks[2].offset, bytes);
    assert_int_equal(tb_place_finish(&w->place, 2), TB_OK);
    assert_true(tb_place_whole(&w->place));
}

/* ---- bytes where no core may look ---- */

/* A place of which so many chunks are far: its owner has them, where their addresses
 * say there is nothing. */
#define FAR_CHUNKS 20u

struct far_owner {
    uint8_t *memory;
    uint32_t asked;
    bool brought; /* the last time */
    bool proves;  /* it makes the proof of what is foreign */
    enum tb_status answer;
};

static void look_at_far(void *user, struct tb_place_look *look)
{
    struct far_owner *f = user;
    const uint8_t *from = look->came.beside;
    const struct tb_chunk *c = &look->place->manifest->chunks[look->chunk];
    assert_false(tb_place_held(look->place, look->chunk));
    f->asked++;
    f->brought = from != NULL;
    if (from != NULL) memcpy(f->memory + c->offset, from, c->bytes);
    const struct tb_digest digest = tb_digest_of(f->memory + c->offset, c->bytes);
    if (f->proves && look->came.foreign) look->proof = tb_blake3_of(f->memory + c->offset, c->bytes);
    tb_place_looked(look, f->answer, &digest);
}

static void its_owner_proves_what_is_far(void **state)
{
    struct world *w = *state;
    uint8_t *mine = w->place.bytes;
    const uint64_t far_bytes = w->manifest.chunks[FAR_CHUNKS].offset;
    struct far_owner f = {.memory = calloc(1, far_bytes)};
    const struct tb_place_far far = {.bytes = far_bytes, .rest = mine, .dmabuf = -1};
    const struct tb_place_owner owner = {.look = look_at_far, .user = &f};
    w->place.bytes = calloc(1, w->manifest.bytes); /* where nobody should look */
    w->place.far = &far;
    w->place.owner = &owner;
    assert_true(tb_place_is_far(&w->place, FAR_CHUNKS - 1));
    assert_false(tb_place_is_far(&w->place, FAR_CHUNKS));
    /* It is not there yet, then it is brought, then held. */
    assert_true(tb_place_claim(&w->place, FAR_CHUNKS - 1));
    CHECK_STATUS(take_later(w, FAR_CHUNKS - 1, &(struct tb_place_came){0}), TB_CHUNK_DIGEST);
    assert_false(tb_place_held(&w->place, FAR_CHUNKS - 1) || f.brought);
    assert_true(tb_place_claim(&w->place, FAR_CHUNKS - 1));
    const struct tb_place_came came = {.beside = w->source + w->manifest.chunks[FAR_CHUNKS - 1].offset};
    CHECK_OK(take_later(w, FAR_CHUNKS - 1, &came));
    assert_true(tb_place_held(&w->place, FAR_CHUNKS - 1) && f.brought);
    assert_int_equal(f.asked, 2);
    /* A chunk that its owner cannot look at is not held, and its claim ends all the same. */
    f.answer = TB_SITE_IO;
    assert_true(tb_place_claim(&w->place, 0));
    CHECK_STATUS(take_later(w, 0, &(struct tb_place_came){0}), TB_SITE_IO);
    assert_false(tb_place_held(&w->place, 0));
    assert_true(tb_place_claim(&w->place, 0));
    tb_place_unclaim(&w->place, 0);
    /* The chunks behind stand in memory of the host, one behind the other, and are its own
     * matter. */
    for (uint32_t k = FAR_CHUNKS; k < CHUNKS; k++) {
        assert_true(tb_place_claim(&w->place, k));
        land(w, k);
        CHECK_OK(tb_place_finish(&w->place, k));
    }
    assert_int_equal(f.asked, 3);
    assert_memory_equal(mine, w->source + far_bytes, w->manifest.bytes - far_bytes);
    free(mine);
    free(f.memory);
}

/* Its owner says what proof the bytes have that stand there, however they came there. */
static void a_far_and_foreign_chunk_has_to_fit_its_proof(void **state)
{
    struct world *w = *state;
    uint8_t *mine = w->place.bytes;
    struct far_owner f = {.memory = calloc(1, w->manifest.bytes)};
    const struct tb_place_far far = {.bytes = w->manifest.bytes, .dmabuf = -1};
    const struct tb_place_owner owner = {.look = look_at_far, .user = &f};
    w->place.far = &far;
    w->place.owner = &owner;
    uint8_t *right = w->source + w->manifest.chunks[1].offset;
    const struct tb_place_came brought = {.beside = forge(w, 1), .foreign = true}, there = {.foreign = true};
    assert_true(tb_place_claim(&w->place, 1));
    f.proves = true;
    CHECK_STATUS(take_later(w, 1, &brought), TB_CHUNK_DIGEST);
    assert_int_equal(f.asked, 1);
    f.proves = false;
    right[5] ^= 1;
    w->manifest.digests[1] = tb_digest_of(right, w->manifest.chunks[1].bytes);
    memcpy(f.memory + w->manifest.chunks[1].offset, right, w->manifest.chunks[1].bytes);
    assert_true(tb_place_claim(&w->place, 1));
    CHECK_STATUS(take_later(w, 1, &there), TB_CHUNK_DIGEST); /* its owner did not say */
    f.proves = true;
    assert_true(tb_place_claim(&w->place, 1));
    CHECK_OK(take_later(w, 1, &there));
    const struct tb_place_came second = {.beside = forge(w, 2)};
    assert_true(tb_place_claim(&w->place, 2));
    CHECK_OK(take_later(w, 2, &second)); /* from one who is believed */
    free(mine);
    w->place.bytes = NULL;
    free(f.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(good_bytes_become_held, world_up, world_down),
        cmocka_unit_test_setup_teardown(wrong_bytes_do_not, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_claim_is_exclusive_and_can_be_given_back, world_up, world_down),
        cmocka_unit_test_setup_teardown(whole_when_the_last_is_held, world_up, world_down),
        cmocka_unit_test_setup_teardown(of_many_claimers_one_lands, world_up, world_down),
        cmocka_unit_test_setup_teardown(an_owner_may_take_what_landed, world_up, world_down),
        cmocka_unit_test_setup_teardown(an_owner_may_keep_a_delta_instead, world_up, world_down),
        cmocka_unit_test_setup_teardown(an_owner_that_cannot_keep_a_chunk_refuses_it, world_up, world_down),
        cmocka_unit_test_setup_teardown(bytes_that_came_beside_the_place_land_in_it, world_up, world_down),
        cmocka_unit_test_setup_teardown(foreign_bytes_have_to_fit_their_proof, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_place_may_want_a_part, world_up, world_down),
        cmocka_unit_test_setup_teardown(its_owner_proves_what_is_far, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_far_and_foreign_chunk_has_to_fit_its_proof, world_up, world_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
