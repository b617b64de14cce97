/* P1: a chunk becomes held only by bytes that match, and its destination has one
 * writer at a time. */
#include "base/layout/place.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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
static void note_landed(void *owner, const struct tb_place *p, uint32_t k)
{
    assert_false(tb_place_held(p, k));
    ((uint32_t *)owner)[k]++;
}

static void an_owner_may_take_what_landed(void **state)
{
    struct world *w = *state;
    uint32_t landed[CHUNKS] = {0};
    w->place.landed = note_landed;
    w->place.owner = landed;
    assert_true(tb_place_claim(&w->place, 1));
    assert_int_equal(tb_place_finish(&w->place, 1), TB_CHUNK_DIGEST);
    assert_int_equal(landed[1], 0);
    assert_true(tb_place_claim(&w->place, 1));
    uint32_t bytes;
    uint8_t *chunk = tb_place_chunk(&w->place, 1, &bytes);
    memcpy(chunk, w->source + w->manifest.chunks[1].offset, bytes);
    assert_int_equal(tb_place_finish(&w->place, 1), TB_OK);
    assert_int_equal(landed[1], 1);
    assert_true(tb_place_held(&w->place, 1));
}

/* What it has proved in another form is held, and not given to it again. */
static void an_owner_may_have_a_chunk_elsewhere(void **state)
{
    struct world *w = *state;
    uint32_t landed[CHUNKS] = {0};
    w->place.landed = note_landed;
    w->place.owner = landed;
    assert_true(tb_place_claim(&w->place, 3));
    tb_place_accept(&w->place, 3);
    assert_true(tb_place_held(&w->place, 3));
    assert_int_equal(landed[3], 0);
    assert_false(tb_place_claim(&w->place, 3));
    assert_false(tb_bitmap_test(w->claimed, 3));
}

/* Whole is what is wanted, and no more. */
static void a_place_may_want_a_part(void **state)
{
    struct world *w = *state;
    uint64_t wanted[TB_BITMAP_WORDS(CHUNKS)] = {0};
    (void)tb_bitmap_set(wanted, 2);
    w->place.wanted = wanted;
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
    const struct world *w;
    uint8_t *memory;
    uint32_t asked;
    bool brought; /* the last time */
    enum tb_status answer;
};

static enum tb_status finish_far(void *owner, const struct tb_place *p, uint32_t k, const uint8_t *from)
{
    struct far_owner *f = owner;
    const struct tb_chunk *c = &p->manifest->chunks[k];
    assert_false(tb_place_held(p, k));
    f->asked++;
    f->brought = from != NULL;
    if (from != NULL) memcpy(f->memory + c->offset, from, c->bytes);
    const bool right = memcmp(f->memory + c->offset, f->w->source + c->offset, c->bytes) == 0;
    return f->answer != TB_OK ? f->answer : right ? TB_OK : TB_CHUNK_DIGEST;
}

static void its_owner_proves_what_is_far(void **state)
{
    struct world *w = *state;
    uint8_t *mine = w->place.bytes;
    const uint64_t far_bytes = w->manifest.chunks[FAR_CHUNKS].offset;
    struct far_owner f = {.w = w, .memory = calloc(1, far_bytes)};
    const struct tb_place_far far = {
        .bytes = far_bytes, .rest = mine, .finish = finish_far, .owner = &f, .dmabuf = -1};
    w->place.bytes = calloc(1, w->manifest.bytes); /* where nobody should look */
    w->place.far = &far;
    assert_true(tb_place_is_far(&w->place, FAR_CHUNKS - 1));
    assert_false(tb_place_is_far(&w->place, FAR_CHUNKS));
    /* It is not there yet, then it is brought, then held. */
    assert_true(tb_place_claim(&w->place, FAR_CHUNKS - 1));
    CHECK_STATUS(tb_place_finish(&w->place, FAR_CHUNKS - 1), TB_CHUNK_DIGEST);
    assert_false(tb_place_held(&w->place, FAR_CHUNKS - 1) || f.brought);
    assert_true(tb_place_claim(&w->place, FAR_CHUNKS - 1));
    CHECK_OK(
        tb_place_bring(&w->place, FAR_CHUNKS - 1, w->source + w->manifest.chunks[FAR_CHUNKS - 1].offset));
    assert_true(tb_place_held(&w->place, FAR_CHUNKS - 1) && f.brought);
    assert_int_equal(f.asked, 2);
    /* What its owner cannot look at is not held, and its claim ends all the same. */
    f.answer = TB_SITE_IO;
    assert_true(tb_place_claim(&w->place, 0));
    CHECK_STATUS(tb_place_finish(&w->place, 0), TB_SITE_IO);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(good_bytes_become_held, world_up, world_down),
        cmocka_unit_test_setup_teardown(wrong_bytes_do_not, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_claim_is_exclusive_and_can_be_given_back, world_up, world_down),
        cmocka_unit_test_setup_teardown(whole_when_the_last_is_held, world_up, world_down),
        cmocka_unit_test_setup_teardown(of_many_claimers_one_lands, world_up, world_down),
        cmocka_unit_test_setup_teardown(an_owner_may_take_what_landed, world_up, world_down),
        cmocka_unit_test_setup_teardown(an_owner_may_have_a_chunk_elsewhere, world_up, world_down),
        cmocka_unit_test_setup_teardown(a_place_may_want_a_part, world_up, world_down),
        cmocka_unit_test_setup_teardown(its_owner_proves_what_is_far, world_up, world_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
