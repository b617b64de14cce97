/* memory_for_nics.c - device memory over a driver that is none (fake_cuda.h): the descriptors that
 * NICs are given, and writes of a NIC that a device has to see before it digests.
 *
 * Covers: intra/cuda/cuda_memory.c intra/cuda/cuda_stage.c */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "unit/check.h"
#include "unit/cuda/device_pass.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/fake_device.h"

static void a_nic_is_given_a_descriptor_and_where_a_tensor_stands_in_it(void **state)
{
    (void)state;
    struct device_pass w;
    int fd = -1;
    device_pass_open(&w);
    for (uint32_t i = 0; i < SHARD_TENSORS; i++) {
        const struct tb_tensor *t = &w.shard.manifest.layout.tensors[i];
        const uint64_t inside = t->bytes / 3; /* parts of a slice stand there, too */
        struct tb_export_device d = {.dmabuf = -1}, again = {.dmabuf = -1};
        if (t->bytes == 0) continue;
        const bool has =
            tb_gpu_memory_device(w.shard.memory, w.shard.tensors[i] + inside, t->bytes - inside, &d);
        assert_int_equal(has, tb_gpu_memory_has(w.shard.memory, i));
        if (!has) continue;
        assert_true(tb_gpu_memory_device(w.shard.memory, w.shard.tensors[i], t->bytes, &again));
        assert_int_equal(d.dmabuf, again.dmabuf);
        assert_string_equal(d.pci, "0000:a0:00.0"); /* the driver says A0 */
        assert_int_equal(fcntl(d.dmabuf, F_GETFD), FD_CLOEXEC);
        uint8_t first[3] = {0};
        const size_t some = t->bytes - inside < 3 ? t->bytes - inside : 3;
        assert_int_equal(pread(d.dmabuf, first, some, (off_t)d.offset), some);
        assert_memory_equal(first, w.shard.packed + t->offset + inside, some);
        fd = d.dmabuf;
    }
    shard_close(&w.shard, &fake_device); /* and with the memory its descriptors go */
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    shard_open(&w.shard, w.gpu, &fake_device, SHARD_SMALL);
    fake_cuda_fail("cuMemGetHandleForAddressRange", 1, CUDA_ERROR_NOT_SUPPORTED);
    struct tb_export_device none;
    assert_false(tb_gpu_memory_device(w.shard.memory, w.shard.tensors[0], 1, &none));
    assert_false(tb_gpu_memory_device(w.shard.memory, w.shard.tensors[0], 1, &none));
    assert_int_equal(fake_cuda_calls("cuMemGetHandleForAddressRange"), 1); /* it is not asked again */
    device_pass_close(&w);
}

/* As allocators have it whose segments grow (PyTorch's expandable ones): reserved is more than
 * there is memory for, and the driver lends none of that. Tensors whose pages touch are one range,
 * and one further off is another. */
static void memory_that_is_mapped_in_parts_is_given_to_nics(void **state)
{
    (void)state;
    static const struct {
        uint64_t at, bytes;
    } where[] = {{100, 9000}, {9200, 5000}, {600000, 300}};
    struct tb_tensor t[3];
    uint8_t *at[3], layout_memory[4096];
    fake_cuda_open();
    uint8_t *segment = fake_cuda_alloc(0, 700000);
    fake_cuda_set_mapped(segment);
    memset(t, 0, sizeof t);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"a", "b", "c"};
        t[i] = (struct tb_tensor){.name = names[i],
                                  .dtype = TB_DTYPE_U8,
                                  .rank = 1,
                                  .full = {where[i].bytes},
                                  .box_count = {where[i].bytes}};
        at[i] = segment + where[i].at;
    }
    struct tb_layout layout;
    CHECK_OK(tb_layout_build(t, 3, layout_memory, sizeof layout_memory, &layout));
    struct tb_gpu *gpu;
    struct tb_gpu_memory *m;
    const struct tb_gpu_tensors tensors = {&layout, at};
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    CHECK_OK(tb_gpu_memory_open(gpu, &tensors, &m, (char[TB_GPU_WHY_BYTES]){""}));
    struct tb_export_device d[3];
    for (int i = 0; i < 3; i++)
        assert_true(tb_gpu_memory_device(m, at[i], where[i].bytes, &d[i]));
    assert_int_equal(d[0].dmabuf, d[1].dmabuf);
    assert_int_equal(d[0].offset, where[0].at);
    assert_int_equal(d[1].offset, where[1].at);
    assert_int_not_equal(d[2].dmabuf, d[1].dmabuf);
    assert_int_equal(d[2].offset, where[2].at % 4096);
    assert_int_equal(fake_cuda_calls("cuMemGetHandleForAddressRange"), 2);
    tb_gpu_memory_close(m);
    tb_gpu_close(gpu);
    fake_cuda_free(segment);
    fake_cuda_close();
}

/* Where the driver does not say which device it is, NICs are not told where it is, and
 * read it all the same. */
static void a_device_that_has_no_name_on_the_bus_is_read_too(void **state)
{
    (void)state;
    struct device_pass w;
    fake_cuda_open();
    fake_cuda_fail("cuDeviceGetPCIBusId", 1, CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(tb_gpu_open(&w.gpu, (char[TB_GPU_WHY_BYTES]){""}));
    shard_open(&w.shard, w.gpu, &fake_device, SHARD_SMALL);
    struct tb_export_device d = {.dmabuf = -1, .pci = "before"};
    assert_true(tb_gpu_memory_device(w.shard.memory, w.shard.tensors[0], 1, &d));
    assert_true(d.dmabuf >= 0);
    assert_null(d.pci);
    shard_close(&w.shard, &fake_device);
    tb_gpu_close(w.gpu);
    fake_cuda_close();
}

static void without_dma_buf_nics_are_given_nothing(void **state)
{
    (void)state;
    fake_cuda_open();
    fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0);
    struct tb_gpu *gpu;
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    struct shard_on_gpu shard;
    shard_open(&shard, gpu, &fake_device, SHARD_SMALL);
    struct tb_export_device none;
    assert_false(tb_gpu_memory_device(shard.memory, shard.tensors[0], 1, &none));
    assert_int_equal(fake_cuda_calls("cuMemGetHandleForAddressRange"), 0);
    shard_close(&shard, &fake_device);
    tb_gpu_close(gpu);
    fake_cuda_close();
}

/* Writes of a NIC are made visible before any byte of them is copied or digested, unless the device
 * orders that itself. One that does neither says so: it flushes for streams alone, or not at all,
 * or the driver lacks the call. */
static void writes_of_a_nic_are_flushed_first(void **state)
{
    (void)state;
    static const struct {
        int ordering, ways;
        bool lacks_call, flushes, may_write;
    } rows[] = {{0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, false, true, true},
                {100, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, false, false, true},
                {200, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, false, false, true},
                {100, 0, true, false, true},
                {0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_MEMOPS, false, false, false},
                {0, 0, false, false, false},
                {0, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, true, false, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fake_cuda_open();
        fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, rows[i].ordering);
        fake_cuda_set_attribute(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, rows[i].ways);
        struct tb_cuda_driver driver = fake_cuda_driver();
        if (rows[i].lacks_call) driver.flush_rdma = NULL;
        tb_gpu_replace_driver(&driver);
        struct device_pass w = {.gpu = NULL};
        CHECK_OK(tb_gpu_open(&w.gpu, (char[TB_GPU_WHY_BYTES]){""}));
        shard_open(&w.shard, w.gpu, &fake_device, SHARD_SMALL);
        struct tb_gpu_facts facts;
        tb_gpu_memory_facts(w.shard.memory, &facts);
        assert_int_equal(facts.nics_may_write, rows[i].may_write);
        w.got = calloc(w.shard.manifest.chunk_count, sizeof *w.got);
        fake_cuda_trace_clear();
        CHECK_OK(device_pass_run(&w, false));
        assert_int_equal(strncmp(fake_cuda_trace(), "f0 c0", 5) == 0, rows[i].flushes);
        if (rows[i].flushes) {
            fake_cuda_fail("cuFlushGPUDirectRDMAWrites", 1, CUDA_ERROR_UNKNOWN);
            CHECK_STATUS(device_pass_run(&w, false), TB_SITE_IO);
        }
        free(w.got);
        shard_close(&w.shard, &fake_device);
        tb_gpu_close(w.gpu);
        fake_cuda_close();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nic_is_given_a_descriptor_and_where_a_tensor_stands_in_it),
        cmocka_unit_test(memory_that_is_mapped_in_parts_is_given_to_nics),
        cmocka_unit_test(a_device_that_has_no_name_on_the_bus_is_read_too),
        cmocka_unit_test(without_dma_buf_nics_are_given_nothing),
        cmocka_unit_test(writes_of_a_nic_are_flushed_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
