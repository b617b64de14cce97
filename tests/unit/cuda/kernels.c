/* kernels.c - the text of the kernels, run on cores (kernels_on_cores.h says what that shows and
 * what not), against the digest and the codec that everything else uses: digests and forms are
 * equal bit for bit, and damage is refused alike.
 *
 * Covers: intra/cuda/cuda_kernels.c */
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "unit/check.h"
#include "unit/cuda/kernels_on_cores.h"
#include "unit/cuda/steps.h"

static const uint32_t blocks[] = {1, 3, 8, 32, 64};
#define BLOCKS (sizeof blocks / sizeof blocks[0])

/* ---- digests ---- */

static void check_digest(const uint8_t *bytes, size_t count, uint32_t threads)
{
    struct tb_digest got;
    struct tb_digest_job job = {bytes, count, got.bytes};
    cores_digest(&job, 1, threads);
    const struct tb_digest truth = tb_digest_of(bytes, count);
    if (!tb_digest_equal(&got, &truth)) fail_msg("%zu bytes by %u threads", count, threads);
}

/* P1: a chunk's digest is the same wherever it is taken. */
static void digests_are_the_hosts(void **state)
{
    (void)state;
    const size_t most = (1u << 20) + 4096;
    uint8_t *bytes = step_memory(most);
    step_fill(bytes, most, 5);
    for (size_t count = TB_KERNEL_DIGEST_MIN; count < 4200; count += count < 1100 ? 7 : 61)
        check_digest(bytes, count, 1);
    static const size_t counts[] = {241,   1024,  1025,  1088,       1089,           2048,
                                    32768, 32769, 65537, (1u << 20), (1u << 20) + 1, (1u << 20) + 4095};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (size_t k = 0; k < BLOCKS; k++)
            check_digest(bytes, counts[i], blocks[k]);
    free(bytes);
}

static void several_jobs_are_several_digests(void **state)
{
    (void)state;
    uint8_t *bytes = step_memory(300000);
    step_fill(bytes, 300000, 9);
    struct tb_digest got[3];
    struct tb_digest_job jobs[3] = {
        {bytes, 300000, got[0].bytes}, {bytes + 64, 241, got[1].bytes}, {bytes, 99999, got[2].bytes}};
    cores_digest(jobs, 3, 4);
    for (int i = 0; i < 3; i++) {
        const struct tb_digest truth = tb_digest_of(jobs[i].bytes, jobs[i].count);
        assert_true(tb_digest_equal(&got[i], &truth));
    }
    free(bytes);
}

/* ---- moves ---- */

/* For each alignment of both ends: all of the range is moved, and nothing beside it. */
static void ranges_are_moved_and_no_more(void **state)
{
    (void)state;
    enum { MOST = 200 };
    uint8_t *from = step_memory(MOST + 16), *to = step_memory(MOST + 32), *truth = step_memory(MOST + 32);
    step_fill(from, MOST + 16, 7);
    for (uint32_t count = 1; count <= MOST; count += count < 20 ? 1 : 29) {
        for (uint32_t off = 0; off < 64; off++) {
            const uint32_t a = off % 8, b = off / 8;
            memset(to, 0xee, MOST + 32);
            memset(truth, 0xee, MOST + 32);
            memcpy(truth + 8 + b, from + a, count);
            struct tb_move_job job = {from + a, to + 8 + b, count};
            cores_move(&job, 1, off % 5 == 0 ? 3 : 1);
            assert_memory_equal(to, truth, MOST + 32);
        }
    }
    free(from);
    free(to);
    free(truth);
}

/* ---- steps ---- */

static void check_step(const struct step *s, unsigned classes, uint32_t threads, size_t cap)
{
    uint8_t *truth = step_memory(s->count + 64), *got = step_memory(s->count + 64),
            *patched = step_memory(s->count);
    memset(got, 0xee, s->count + 64);
    const size_t used = step_encode(s, classes, truth, cap);
    struct tb_encode_job job = {.base = s->base,
                                .bytes = s->bytes,
                                .count = s->count,
                                .kind = s->kind,
                                .classes_max = classes,
                                .out = got,
                                .cap = cap};
    cores_encode(&job, 1, threads);
    if (job.used != used)
        fail_msg("dtype %d classes %u: %llu bytes, not %zu", s->dtype, classes, (unsigned long long)job.used,
                 used);
    if (used > 0) {
        assert_memory_equal(got, truth, used);
        assert_int_equal(job.changed, step_changed(s));
        memcpy(patched, s->base, s->count);
        struct tb_patch_job patch = {.form = truth, .form_count = used, .bytes = patched, .count = s->count};
        cores_patch(&patch, 1, threads);
        assert_true(patch.ok);
        assert_memory_equal(patched, s->bytes, s->count);
    }
    size_t behind = 0;
    for (size_t i = (cap + 3) / 4 * 4; i < s->count + 64; i++)
        behind += got[i] != 0xee;
    assert_int_equal(behind, 0); /* P7: nothing behind its room */
    free(truth);
    free(got);
    free(patched);
}

static const struct {
    enum tb_dtype dtype;
    uint32_t kind;
} kinds[] = {{TB_DTYPE_BF16, TB_SPARSE_BF16},
             {TB_DTYPE_F16, TB_SPARSE_F16},
             {TB_DTYPE_F32, TB_SPARSE_F32},
             {TB_DTYPE_F8E4, TB_SPARSE_F8},
             {TB_DTYPE_U8, TB_SPARSE_BYTES}};
#define KINDS (sizeof kinds / sizeof kinds[0])

/* P1: the kernel writes what the codec writes, byte for byte, and patching gives the
 * version. */
static void forms_are_the_codecs(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 3, 256, 1023, 9001, 140003};
    static const unsigned classes[] = {1, 8};
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            for (int change = NOTHING; change <= LAST_OF_ALL; change++) {
                /* Several sections, of words that are full and of bytes; the rest is seen in
                 * one. */
                if (counts[c] > 100000 && (change != BY_EXPONENT || (k != 0 && k + 1 != KINDS))) continue;
                struct step s;
                step_make(&s, kinds[k].dtype, kinds[k].kind, counts[c], (enum change)change);
                for (size_t j = 0; j < sizeof classes / sizeof classes[0]; j++)
                    check_step(&s, classes[j], 1, counts[c] + 64);
                step_free(&s);
            }
        }
    }
}

static void more_threads_write_the_same(void **state)
{
    (void)state;
    for (size_t k = 0; k < KINDS; k++) {
        for (size_t t = 1; t < BLOCKS; t++) {
            struct step s;
            step_make(&s, kinds[k].dtype, kinds[k].kind, k == 0 ? 140003 : 20011,
                      t == 1 ? BY_EXPONENT : LARGE_STEPS);
            check_step(&s, 8, blocks[t], s.count + 64);
            check_step(&s, 1, blocks[t], s.count + 64);
            step_free(&s);
        }
    }
}

/* Where the form does not fit, none is written; the codec says so at the same byte. */
static void room_that_is_too_small_is_no_form(void **state)
{
    (void)state;
    struct step s;
    step_make(&s, TB_DTYPE_BF16, TB_SPARSE_BF16, 20000, SMALL_STEPS);
    uint8_t *form = step_memory(20064);
    const size_t used = step_encode(&s, 8, form, 20064);
    assert_true(used > 10);
    for (size_t cap = 0; cap < used + 8; cap += cap < 20 || cap + 12 > used ? 1 : 7)
        check_step(&s, 8, 3, cap);
    free(form);
    step_free(&s);
}

/* ---- damage ---- */

static enum tb_status decode(const uint8_t *form, size_t count, uint8_t *bytes, size_t bytes_count)
{
    static uint64_t scratch[TB_SPARSE_SCRATCH_BYTES / 8];
    const struct tb_sparse_means means = {scratch, TB_VECTOR_BEST};
    const struct tb_sparse_output out = {NULL, bytes, bytes_count};
    return tb_sparse_decode((struct tb_sparse_form){form, count}, &means, &out);
}

/* P7: whatever stands in a form, patching stays in its memory, and refuses exactly
 * what the codec refuses. */
static void damage_is_refused_as_by_the_codec(void **state)
{
    (void)state;
    uint64_t seed = 21;
    for (size_t k = 0; k < KINDS; k++) {
        struct step s;
        step_make(&s, kinds[k].dtype, kinds[k].kind, 9001, BY_EXPONENT);
        uint8_t *form = step_memory(s.count + 64), *mine = step_memory(s.count + 16),
                *theirs = step_memory(s.count);
        const size_t used = step_encode(&s, 8, form, s.count + 64);
        for (int round = 0; round < 120 && used > 0; round++) {
            uint8_t *damaged = malloc(used); /* of just its size, for the address sanitizer */
            size_t count = used;
            memcpy(damaged, form, used);
            if (round % 3 == 0) count = check_random(&seed) % used;
            if (round % 3 != 0 || count == 0)
                damaged[check_random(&seed) % used] ^= (uint8_t)(1u << check_random(&seed) % 8);
            memcpy(mine, s.base, s.count);
            memset(mine + s.count, 0xab, 16);
            memcpy(theirs, s.base, s.count);
            struct tb_patch_job job = {.form = damaged, .form_count = count, .bytes = mine, .count = s.count};
            cores_patch(&job, 1, round % 4 == 0 ? 4 : 1);
            const bool fine = decode(damaged, count, theirs, s.count) == TB_OK;
            assert_int_equal(job.ok, fine);
            if (fine) assert_memory_equal(mine, theirs, s.count);
            for (int i = 0; i < 16; i++)
                assert_int_equal(mine[s.count + (size_t)i], 0xab);
            free(damaged);
        }
        free(form);
        free(mine);
        free(theirs);
        step_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(digests_are_the_hosts),
        cmocka_unit_test(several_jobs_are_several_digests),
        cmocka_unit_test(ranges_are_moved_and_no_more),
        cmocka_unit_test(forms_are_the_codecs),
        cmocka_unit_test(more_threads_write_the_same),
        cmocka_unit_test(room_that_is_too_small_is_no_form),
        cmocka_unit_test(damage_is_refused_as_by_the_codec),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
