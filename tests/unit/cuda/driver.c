/* driver.c - the entry points: found by name and version, refused by a sentence.
 *
 * Covers: intra/cuda/cuda_driver.c intra/cuda/cuda_image.c
 * Covers: intra/cuda/cuda_image_absent.c */
#include <string.h>

#include "unit/check.h"
#include "unit/cuda/fake_cuda.h"

static void a_library_is_loaded_by_its_path(void **state)
{
    (void)state;
    struct tb_cuda_driver d;
    char why[TB_CUDA_WHY_BYTES] = "";
    if (tb_cuda_driver_load(FAKE_LIBCUDA, &d, why) != TB_OK) fail_msg("%s", why);
    assert_int_equal(d.version, 12040);
    assert_non_null(d.library);
    assert_non_null(d.range_handle);
    int devices = 0;
    assert_int_equal(d.init(0), CUDA_SUCCESS);
    assert_int_equal(d.device_count(&devices), CUDA_SUCCESS);
    assert_int_equal(devices, 2);
    tb_cuda_driver_unload(&d);
    assert_null(d.mem_alloc);
}

/* Nobody is made to load the driver: a process that did not has no device memory. */
static void without_a_path_nothing_is_loaded(void **state)
{
    (void)state;
    struct tb_cuda_driver d;
    char why[TB_CUDA_WHY_BYTES] = "";
    CHECK_STATUS(tb_cuda_driver_load(NULL, &d, why), TB_NOT_FOUND);
    assert_string_equal(why, "this process has not loaded libcuda.so.1");
    struct tb_gpu *gpu = (struct tb_gpu *)&d;
    char why_not[TB_GPU_WHY_BYTES];
    CHECK_STATUS(tb_gpu_open(&gpu, why_not), TB_NOT_FOUND);
    assert_string_equal(why_not, "this process has not loaded libcuda.so.1");
    assert_null(gpu);
    CHECK_STATUS(tb_cuda_driver_load("/nowhere/libcuda.so.1", &d, why), TB_NOT_FOUND);
    assert_non_null(strstr(why, "/nowhere/libcuda.so.1"));
    /* A library that is something else. */
    CHECK_STATUS(tb_cuda_driver_load("libpthread.so.0", &d, why), TB_PEER_PROTOCOL);
    assert_non_null(strstr(why, "older than CUDA 12.0"));
}

static void an_older_driver_lacks_what_came_later(void **state)
{
    (void)state;
    fake_cuda_open();
    struct tb_cuda_driver d;
    char why[TB_CUDA_WHY_BYTES] = "";
    fake_cuda_set_version(11030); /* dma-buf came with 11.7 */
    CHECK_OK(tb_cuda_driver_fill(fake_cuda_find, &d, why));
    assert_null(d.range_handle);
    assert_non_null(d.flush_rdma);
    fake_cuda_set_version(10020);
    CHECK_STATUS(tb_cuda_driver_fill(fake_cuda_find, &d, why), TB_PEER_PROTOCOL);
    assert_string_equal(why,
                        "the driver has no cuDevicePrimaryCtxRelease as CUDA 11.0 has it: use a newer one");
    fake_cuda_set_version(12040);
    fake_cuda_fail("cuDriverGetVersion", 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(tb_cuda_driver_fill(fake_cuda_find, &d, why), TB_PEER_PROTOCOL);
    assert_string_equal(why, "cuDriverGetVersion: CUDA_ERROR_OF_THE_FAKE");
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    fake_cuda_close();
}

/* Each one asked for by the version whose types the field has: the fake knows no other. */
static void an_entry_of_another_version_is_not_taken(void **state)
{
    (void)state;
    fake_cuda_open();
    void *function = NULL;
    CUdriverProcAddressQueryResult found;
    (void)fake_cuda_find("cuMemAlloc", &function, 2000, 0, &found);
    assert_int_equal(found, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    assert_null(function);
    (void)fake_cuda_find("cuMemAlloc", &function, 3020, 0, &found);
    assert_int_equal(found, CU_GET_PROC_ADDRESS_SUCCESS);
    assert_non_null(function);
    fake_cuda_close();
}

/* The image that nvcc made is in the library as it is, where a driver may read it. Whether one
 * takes it is for tests/gpu. */
static void the_image_is_nvccs(void **state)
{
    (void)state;
    uint32_t magic = 0;
    if (tb_cuda_image == NULL) {
        print_message("built without nvcc: no image\n");
        skip();
    }
    memcpy(&magic, tb_cuda_image, sizeof magic);
    assert_int_equal(magic, 0xba55ed50);
    assert_int_equal((uintptr_t)tb_cuda_image % 64, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_is_loaded_by_its_path),
        cmocka_unit_test(without_a_path_nothing_is_loaded),
        cmocka_unit_test(an_older_driver_lacks_what_came_later),
        cmocka_unit_test(an_entry_of_another_version_is_not_taken),
        cmocka_unit_test(the_image_is_nvccs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
