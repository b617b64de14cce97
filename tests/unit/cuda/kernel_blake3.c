/* The kernel's BLAKE3 is the host's, by any number of threads: leaves that are cut, tiles that are
 * not full, and trees of several tiles.
 *
 * Covers: intra/cuda/kernel_blake3.h */
#include <stdlib.h>
#include <string.h>

#include "base/proof/blake3.h"
#include "unit/check.h"
#include "unit/cuda/kernels_on_cores.h"

#define TILE  ((size_t)256 * 1024)
#define BYTES (5 * TILE + 1500)

static uint8_t *filled(void)
{
    uint8_t *bytes = aligned_alloc(64, BYTES + 64 - BYTES % 64);
    uint64_t seed = 9;
    assert_non_null(bytes);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)check_random(&seed);
    return bytes;
}

static void assert_the_hosts(const uint8_t *bytes, size_t count, uint32_t threads)
{
    struct tb_blake3 got;
    struct tb_blake3_job job = {bytes, count, got.bytes};
    cores_blake3(&job, 1, threads);
    const struct tb_blake3 want = tb_blake3_of(bytes, count);
    if (!tb_blake3_equal(&got, &want)) fail_msg("%zu bytes by %u threads", count, threads);
}

/* P1: a chunk's proof is the same wherever it is taken. */
static void the_kernels_is_the_hosts(void **state)
{
    (void)state;
    uint8_t *bytes = filled();
    const size_t counts[] = {
        1,        63,   64,       65,       1023,         1024,           1025,     2048, 3073, 7 * 1024 + 1,
        TILE - 1, TILE, TILE + 1, 2 * TILE, 2 * TILE + 1, 3 * TILE - 500, 4 * TILE, BYTES};
    const uint32_t threads[] = {1, 3, 8};
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            assert_the_hosts(bytes, counts[i], threads[t]);
    for (size_t count = 1; count < 5000; count += 61)
        assert_the_hosts(bytes, count, 1);
    free(bytes);
}

/* A job finds in shared memory the nodes that the job before left there. */
static void several_jobs_are_several_proofs(void **state)
{
    (void)state;
    uint8_t *bytes = filled();
    struct tb_blake3 got[3];
    struct tb_blake3_job jobs[3] = {
        {bytes, BYTES, got[0].bytes}, {bytes, 10, got[1].bytes}, {bytes, 3 * TILE, got[2].bytes}};
    cores_blake3(jobs, 3, 4);
    for (size_t i = 0; i < 3; i++) {
        const struct tb_blake3 want = tb_blake3_of(jobs[i].bytes, jobs[i].count);
        assert_true(tb_blake3_equal(&got[i], &want));
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kernels_is_the_hosts),
        cmocka_unit_test(several_jobs_are_several_proofs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
