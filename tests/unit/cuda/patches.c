/* patches.c - steps and devices over a driver that is none (fake_cuda.h), its kernels on
 * cores: how chunks differ from what stands there, what they would be there, and what they are
 * when they were written.
 *
 * Covers: intra/cuda/cuda_kernels.c intra/cuda/cuda_proofs.c intra/coalesce.c
 * Covers: intra/cuda/cuda_patch.c intra/cuda/cuda_encode.c */
#include <stdlib.h>
#include <string.h>

#include "base/codec/sparse.h"
#include "base/layout/dtype.h"
#include "unit/check.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/fake_device.h"
#include "unit/cuda/gpu_asks.h"
#include "unit/cuda/shard_on_gpu.h"
#include "unit/cuda/steps.h"

#define CLASSES 8u

/* A chunk all of which stands on the device, and a version of it to come. */
struct step_of_chunk {
    const struct tb_chunk *chunk;
    struct tb_gpu_piece pieces[SHARD_TENSORS];
    uint32_t piece_count;
    enum tb_dtype dtype;
    uint8_t *next, *form;
};

struct world {
    struct tb_gpu *gpu;
    struct shard_on_gpu shard;
    struct step_of_chunk *steps;
    uint32_t count;
};

static bool find_pieces(const struct world *w, const struct tb_chunk *chunk, struct step_of_chunk *s)
{
    const struct tb_spread spread = shard_spread(&w->shard);
    const uint64_t end = chunk->offset + chunk->bytes;
    uint32_t tensor = tb_layout_tensor_at(spread.layout, chunk->offset);
    if (end > spread.layout->bytes) return false;
    for (uint64_t at = chunk->offset; at < end;) {
        const struct tb_stretch stretch = tb_spread_at(&spread, at, end - at, &tensor);
        if (w->shard.in_host[tensor]) return false;
        s->pieces[s->piece_count++] = (struct tb_gpu_piece){stretch.at, stretch.bytes};
        at += stretch.bytes;
    }
    return true;
}

/* Every fiftieth element moves by one; of the last chunk all do, by anything. */
static void make_next(const struct world *w, struct step_of_chunk *s, bool hopeless)
{
    const uint32_t width = tb_dtype_element_bytes(s->dtype);
    s->next = step_memory(s->chunk->bytes);
    s->form = step_memory(s->chunk->bytes);
    memcpy(s->next, w->shard.packed + s->chunk->offset, s->chunk->bytes);
    for (uint32_t at = 0; at + width <= s->chunk->bytes; at += 50 * width)
        s->next[at] ^= 1;
    if (hopeless) step_fill(s->next, s->chunk->bytes, 3);
}

static void world_open(struct world *w)
{
    memset(w, 0, sizeof *w);
    fake_cuda_open();
    fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 2);
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
    CHECK_OK(tb_gpu_open(&w->gpu, (char[TB_GPU_WHY_BYTES]){""}));
    shard_open(&w->shard, w->gpu, &fake_device, SHARD_SMALL);
    const struct tb_manifest *m = &w->shard.manifest;
    w->steps = calloc(m->chunk_count, sizeof *w->steps);
    for (uint32_t k = 0; k < m->chunk_count; k++) {
        struct step_of_chunk *s = &w->steps[w->count];
        *s = (struct step_of_chunk){.chunk = &m->chunks[k],
                                    .dtype = tb_layout_dtype_at(&m->layout, m->chunks[k].offset)};
        if (find_pieces(w, s->chunk, s)) w->count++;
    }
    assert_true(w->count > 10);
    for (uint32_t i = 0; i < w->count; i++)
        make_next(w, &w->steps[i], i + 1 == w->count);
}

static void world_close(struct world *w)
{
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    for (uint32_t i = 0; i < w->count; i++) {
        free(w->steps[i].next);
        free(w->steps[i].form);
    }
    free(w->steps);
    shard_close(&w->shard, &fake_device);
    tb_gpu_close(w->gpu);
    fake_cuda_close();
}

static struct tb_gpu_new_delta *new_deltas_of(const struct world *w)
{
    struct tb_gpu_new_delta *list = calloc(w->count, sizeof *list);
    for (uint32_t i = 0; i < w->count; i++)
        list[i] = (struct tb_gpu_new_delta){.pieces = w->steps[i].pieces,
                                            .piece_count = w->steps[i].piece_count,
                                            .bytes = w->steps[i].chunk->bytes,
                                            .chunk = w->steps[i].next,
                                            .kind = tb_sparse_kind_of(w->steps[i].dtype),
                                            .classes = CLASSES,
                                            .form = w->steps[i].form};
    return list;
}

/* Of all but the hopeless one. */
static struct tb_gpu_delta *steps_of(const struct world *w, const struct tb_gpu_new_delta *list)
{
    struct tb_gpu_delta *steps = calloc(w->count, sizeof *steps);
    for (uint32_t i = 0; i + 1 < w->count; i++)
        steps[i] = (struct tb_gpu_delta){.pieces = list[i].pieces,
                                         .piece_count = list[i].piece_count,
                                         .bytes = list[i].bytes,
                                         .form_bytes = list[i].form_bytes,
                                         .form = list[i].form};
    return steps;
}

static bool device_holds(const struct step_of_chunk *s, const uint8_t *bytes)
{
    uint8_t *seen = malloc(s->chunk->bytes);
    uint64_t at = 0;
    for (uint32_t i = 0; i < s->piece_count; at += s->pieces[i++].bytes)
        fake_cuda_read(s->pieces[i].at, seen + at, s->pieces[i].bytes);
    const bool same = memcmp(seen, bytes, s->chunk->bytes) == 0;
    free(seen);
    return same;
}

static void check_unchanged(const struct world *w)
{
    for (uint32_t i = 0; i < w->count; i++)
        assert_true(device_holds(&w->steps[i], w->shard.packed + w->steps[i].chunk->offset));
}

static void check_form(const struct world *w, const struct step_of_chunk *s, const struct tb_gpu_new_delta *d)
{
    const struct step as_cores_see_it = {.base = w->shard.packed + s->chunk->offset,
                                         .bytes = s->next,
                                         .count = s->chunk->bytes,
                                         .dtype = s->dtype};
    uint8_t *truth = step_memory(s->chunk->bytes);
    const size_t used = step_encode(&as_cores_see_it, CLASSES, truth, s->chunk->bytes);
    assert_int_equal(d->form_bytes, used);
    assert_memory_equal(d->form, truth, used);
    free(truth);
}

/* The device says the proof of a foreign chunk, and of no other. */
static bool is_proven(const struct step_of_chunk *s, const struct tb_gpu_delta *delta)
{
    const struct tb_blake3 right =
        delta->foreign ? tb_blake3_of(s->next, s->chunk->bytes) : (struct tb_blake3){{0}};
    return tb_blake3_equal(&delta->proof, &right);
}

/* P1: the device encodes what the codec does, says what it comes to without a byte changed,
 * and then has it there. */
static void a_device_encodes_proves_and_patches(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    struct tb_gpu_new_delta *list = new_deltas_of(&w);
    CHECK_OK(tb_gpu_encode(w.shard.memory, list, w.count));
    for (uint32_t i = 0; i < w.count; i++)
        check_form(&w, &w.steps[i], &list[i]);
    assert_int_equal(list[w.count - 1].form_bytes, 0); /* it does not pay */
    struct tb_gpu_delta *steps = steps_of(&w, list);
    for (uint32_t i = 0; i + 1 < w.count; i++)
        steps[i].foreign = i % 3 != 1;
    CHECK_OK(gpu_prove(w.shard.memory, steps, w.count - 1));
    check_unchanged(&w);
    for (int written = 0; written < 2; written++) {
        for (uint32_t i = 0; i + 1 < w.count; i++) {
            const struct tb_digest truth = tb_digest_of(w.steps[i].next, w.steps[i].chunk->bytes);
            assert_true(steps[i].patched && tb_digest_equal(&steps[i].digest, &truth));
            assert_true(is_proven(&w.steps[i], &steps[i]));
            assert_int_equal(device_holds(&w.steps[i], w.steps[i].next), written);
            steps[i].patched = false;
        }
        if (written == 0) CHECK_OK(tb_gpu_patch(w.shard.memory, steps, w.count - 1));
    }
    assert_int_equal(fake_cuda_counts().unpinned_copies, 0);
    free(steps);
    free(list);
    world_close(&w);
}

/* P1: a form that is none is told, and so is one that is another's. */
static void only_deltas_are_proved(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    struct tb_gpu_new_delta *list = new_deltas_of(&w);
    CHECK_OK(tb_gpu_encode(w.shard.memory, list, w.count));
    struct tb_gpu_delta *steps = steps_of(&w, list);
    w.steps[0].form[0] = 99;
    steps[1].form = list[2].form;
    steps[1].form_bytes = list[2].form_bytes;
    CHECK_OK(gpu_prove(w.shard.memory, steps, 2));
    const struct tb_digest truth = tb_digest_of(w.steps[1].next, w.steps[1].chunk->bytes);
    assert_false(steps[0].patched);
    assert_false(steps[1].patched && tb_digest_equal(&steps[1].digest, &truth));
    check_unchanged(&w);
    free(steps);
    free(list);
    world_close(&w);
}

/* The first calls of each entry point, and some of the later ones; nothing that was begun runs
 * on. */
static void a_device_that_refuses_changes_nothing(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuLaunchKernel", "cuMemcpyAsync", "cuEventRecord",
                                          "cuEventSynchronize"};
    struct world w;
    world_open(&w);
    struct tb_gpu_new_delta *list = new_deltas_of(&w);
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        uint32_t nth = 0;
        do {
            nth += 1 + nth / 3;
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_ILLEGAL_ADDRESS);
            const enum tb_status status = tb_gpu_encode(w.shard.memory, list, w.count);
            assert_int_equal(status, fake_cuda_failed() ? TB_SITE_IO : TB_OK);
            assert_true(fake_cuda_idle());
        } while (fake_cuda_failed());
        assert_true(nth > 1);
        struct tb_gpu_delta *steps = steps_of(&w, list);
        fake_cuda_fail(entries[e], 1, CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK_STATUS(gpu_prove(w.shard.memory, steps, w.count - 1), TB_SITE_IO);
        assert_true(fake_cuda_idle());
        free(steps);
    }
    check_unchanged(&w);
    free(list);
    world_close(&w);
}

/* A delta stays on the device within the budget, then in pinned memory, then nowhere. The switch
 * has it from there, and nothing goes up again. */
static void proven_deltas_wait_near_the_device(void **state)
{
    (void)state;
    for (int where = 0; where < 3; where++) {
        struct world w;
        world_open(&w);
        struct tb_gpu_new_delta *list = new_deltas_of(&w);
        CHECK_OK(tb_gpu_encode(w.shard.memory, list, w.count));
        struct tb_gpu_delta *steps = steps_of(&w, list);
        struct tb_gpu_proofs *proofs = gpu_proofs(w.shard.memory, where == 0 ? UINT64_C(1) << 30 : 0);
        if (where == 2) fake_cuda_fail("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_OK(gpu_prove_with(proofs, steps, w.count - 1));
        struct tb_gpu_proofs_facts facts;
        tb_gpu_proofs_facts(proofs, &facts);
        assert_int_equal(facts.device_bytes > 0, where == 0);
        assert_int_equal(facts.pinned_bytes > 0, where == 1);
        assert_int_equal(facts.queue.chunks, w.count - 1);
        for (uint32_t i = 0; i + 1 < w.count; i++) {
            assert_int_equal(steps[i].kept != NULL, where != 2);
            if (where != 2) steps[i].form = NULL;
        }
        CHECK_OK(tb_gpu_patch(w.shard.memory, steps, w.count - 1));
        for (uint32_t i = 0; i + 1 < w.count; i++)
            assert_true(steps[i].patched && device_holds(&w.steps[i], w.steps[i].next));
        tb_gpu_proofs_close(proofs);
        free(steps);
        free(list);
        world_close(&w);
    }
}

/* More than that would begin when the first have ended, and most of the device would wait. */
static void no_more_blocks_are_launched_than_fit(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    struct tb_gpu_new_delta *list = new_deltas_of(&w);
    CHECK_OK(tb_gpu_encode(w.shard.memory, list, w.count));
    assert_int_equal(fake_cuda_blocks(), 4);
    CHECK_OK(tb_gpu_encode(w.shard.memory, list, 1));
    assert_int_equal(fake_cuda_blocks(), 1);
    free(list);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_encodes_proves_and_patches),
        cmocka_unit_test(only_deltas_are_proved),
        cmocka_unit_test(proven_deltas_wait_near_the_device),
        cmocka_unit_test(a_device_that_refuses_changes_nothing),
        cmocka_unit_test(no_more_blocks_are_launched_than_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
