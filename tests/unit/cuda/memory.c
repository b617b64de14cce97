/* memory.c - device memory over a driver that is none (fake_cuda.h): whose a pointer is, copies on
 * two lanes, the pass, pins, descriptors, visibility, and what is left when the driver refuses. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "unit/check.h"
#include "unit/cuda/fake_cuda.h"
#include "unit/cuda/shard_on_gpu.h"

static void *alloc_first(size_t bytes)
{
    return fake_cuda_alloc(0, bytes);
}

static const struct gpu_under_test fake = {fake_cuda_open, fake_cuda_close, alloc_first,
                                           fake_cuda_free, fake_cuda_write, fake_cuda_read};

struct world {
    struct tb_gpu *gpu;
    struct shard_on_gpu shard;
    struct tb_digest *truth, *got;
    struct tb_shared_memory to;
};

static void world_start(struct world *w, uint32_t elements)
{
    memset(w, 0, sizeof *w);
    CHECK_OK(tb_gpu_open(&w->gpu, (char[TB_GPU_WHY_BYTES]){""}));
    shard_open(&w->shard, w->gpu, &fake, elements);
    w->truth = calloc(w->shard.manifest.chunk_count, sizeof *w->truth);
    w->got = calloc(w->shard.manifest.chunk_count, sizeof *w->got);
    shard_digests(&w->shard, w->truth);
    CHECK_OK(tb_shared_memory_new("test", w->shard.manifest.bytes, &w->to));
}

static void world_open_of(struct world *w, uint32_t elements)
{
    fake_cuda_open();
    world_start(w, elements);
}

static void world_open(struct world *w)
{
    world_open_of(w, SHARD_SMALL);
}

static void world_close(struct world *w)
{
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    shard_close(&w->shard, &fake);
    tb_shared_memory_free(&w->to);
    tb_gpu_close(w->gpu);
    free(w->truth);
    free(w->got);
    fake_cuda_close();
}

static void on_landed(void *user, uint32_t first, uint32_t count, const uint8_t *bytes)
{
    struct world *w = user;
    fake_cuda_note("d");
    const struct tb_chunk *chunks = w->shard.manifest.chunks;
    for (uint32_t i = first; i < first + count; i++)
        w->got[i] = tb_digest_of(bytes + (chunks[i].offset - chunks[first].offset), chunks[i].bytes);
}

static enum tb_status run_pass(struct world *w, bool copy)
{
    uint8_t *to = copy ? w->to.bytes : NULL;
    struct tb_spread from = shard_spread(&w->shard);
    if (copy) {
        memcpy(to + from.layout->bytes, from.blobs, w->shard.manifest.blob_bytes);
        from.blobs = to + from.layout->bytes;
    }
    const struct tb_gpu_pass pass = {.manifest = &w->shard.manifest,
                                     .from = from,
                                     .to = to,
                                     .digests = w->got,
                                     .landed = on_landed,
                                     .user = w};
    return tb_gpu_pass(w->shard.memory, &pass);
}

static bool digests_are_right(const struct world *w)
{
    return memcmp(w->got, w->truth, w->shard.manifest.chunk_count * sizeof *w->truth) == 0;
}

/* ---- whose ---- */

static void the_driver_says_whose_a_pointer_is(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    for (uint32_t i = 0; i < SHARD_TENSORS; i++)
        assert_int_equal(tb_gpu_memory_has(w.shard.memory, i),
                         !w.shard.in_host[i] && w.shard.manifest.layout.tensors[i].bytes > 0);
    assert_false(tb_gpu_memory_has(NULL, 0));
    struct tb_gpu_facts facts;
    tb_gpu_memory_facts(w.shard.memory, &facts);
    assert_int_equal(facts.device, 0);
    assert_string_equal(facts.name, "Fake \"0\"");
    assert_true(facts.dmabuf);
    world_close(&w);
}

static enum tb_status open_two(struct tb_gpu *gpu, void *first, void *second, char *why,
                               struct tb_gpu_memory **memory_out)
{
    struct tb_tensor list[2];
    memset(list, 0, sizeof list);
    for (int i = 0; i < 2; i++)
        list[i] = (struct tb_tensor){.name = i == 0 ? "one" : "two",
                                     .dtype = TB_DTYPE_U8,
                                     .rank = 1,
                                     .full = {100},
                                     .box_count = {100}};
    uint64_t memory[256];
    struct tb_layout layout;
    CHECK_OK(tb_layout_build(list, 2, memory, sizeof memory, &layout));
    uint8_t *at[] = {first, second};
    const struct tb_gpu_tensors tensors = {&layout, at};
    why[0] = '\0';
    return tb_gpu_memory_open(gpu, &tensors, memory_out, why);
}

static void host_memory_needs_no_gpu(void **state)
{
    (void)state;
    fake_cuda_open();
    struct tb_gpu *gpu;
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    struct tb_gpu_memory *m = (struct tb_gpu_memory *)&m;
    uint8_t host[200];
    char why[TB_GPU_WHY_BYTES];
    CHECK_OK(open_two(gpu, host, host + 100, why, &m));
    assert_null(m);
    void *managed = fake_cuda_alloc(0, 200);
    fake_cuda_set_managed(managed);
    CHECK_OK(open_two(gpu, managed, host, why, &m));
    assert_null(m);
    fake_cuda_set_initialised(false); /* libcuda is loaded, and nobody called cuInit */
    CHECK_OK(open_two(gpu, host, host, why, &m));
    assert_null(m);
    fake_cuda_fail("cuPointerGetAttributes", 1,
                   CUDA_ERROR_INVALID_CONTEXT); /* or cuInit, and made no context */
    CHECK_OK(open_two(gpu, host, host, why, &m));
    assert_null(m);
    assert_int_equal(fake_cuda_counts().contexts, 0);
    assert_int_equal(fake_cuda_calls("cuInit"), 0);
    /* And without a driver at all. */
    CHECK_OK(open_two(NULL, host, host, why, &m));
    assert_null(m);
    tb_gpu_close(gpu);
    fake_cuda_close();
}

static void two_devices_and_strange_contexts_are_refused(void **state)
{
    (void)state;
    fake_cuda_open();
    struct tb_gpu *gpu;
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    struct tb_gpu_memory *m = NULL;
    char why[TB_GPU_WHY_BYTES];
    void *here = fake_cuda_alloc(0, 100), *there = fake_cuda_alloc(1, 100);
    CHECK_STATUS(open_two(gpu, here, there, why, &m), TB_BAD_ARGUMENT);
    assert_string_equal(
        why, "tensor \"two\" stands on another GPU than those before it: register each GPU's tensors apart");
    fake_cuda_set_context(here, true);
    CHECK_STATUS(open_two(gpu, here, here, why, &m), TB_BAD_ARGUMENT);
    assert_string_equal(
        why, "tensor \"one\" stands in a context other than the GPU's primary one: allocate it there");
    assert_null(m);
    CHECK_OK(open_two(gpu, there, there, why, &m));
    assert_non_null(m);
    struct tb_gpu_facts facts;
    tb_gpu_memory_facts(m, &facts);
    assert_int_equal(facts.device, 1);
    tb_gpu_memory_close(m);
    tb_gpu_close(gpu);
    fake_cuda_close();
}

/* ---- copies ---- */

/* P1: what is digested is what was copied, and all of it had arrived. */
static void a_pass_copies_and_digests_what_the_device_has(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    CHECK_OK(run_pass(&w, true));
    assert_memory_equal(w.to.bytes, w.shard.packed, w.shard.manifest.bytes);
    assert_true(digests_are_right(&w));
    memset(w.got, 0, w.shard.manifest.chunk_count * sizeof *w.got);
    CHECK_OK(run_pass(&w, false)); /* nowhere to copy to: by way of two pinned buffers of the lanes */
    assert_true(digests_are_right(&w));
    assert_int_equal(fake_cuda_counts().host_allocations, 0);
    world_close(&w);
}

/* The second batch is asked for before the first is waited for, and a lane's buffer is not written
 * again before what stands in it was digested. */
static void one_batch_is_copied_while_the_one_before_is_digested(void **state)
{
    (void)state;
    struct world w;
    world_open_of(&w, SHARD_LARGE);
    fake_cuda_trace_clear();
    CHECK_OK(run_pass(&w, false));
    assert_string_equal(fake_cuda_trace(), "c0 e0 c1 e1 w0 d c0 e0 w1 d w0 d");
    world_close(&w);
}

/* ---- digested by the device ---- */

/* P1: the digests are those of the bytes that were copied, and nothing is digested by cores but two
 * chunks that are too short (d). Of the first batch a kernel gathers what is small. */
static void a_device_with_kernels_digests_what_it_has(void **state)
{
    (void)state;
    struct world w;
    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
    world_start(&w, SHARD_SMALL);
    struct tb_gpu_facts facts;
    tb_gpu_memory_facts(w.shard.memory, &facts);
    assert_string_equal(facts.digests, "gpu");
    fake_cuda_trace_clear();
    CHECK_OK(run_pass(&w, true));
    assert_string_equal(fake_cuda_trace(), "c0 k0 c0 k0 c0 e0 c1 k1 c1 e1 w0 d d w1");
    assert_memory_equal(w.to.bytes, w.shard.packed, w.shard.manifest.bytes);
    assert_true(digests_are_right(&w));
    memset(w.got, 0, w.shard.manifest.chunk_count * sizeof *w.got);
    CHECK_OK(run_pass(&w, false));
    assert_true(digests_are_right(&w));
    world_close(&w);
}

/* Without room for it, or without kernels that this device takes, cores digest. */
static void without_room_or_kernels_cores_digest(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemAlloc", "cuMemHostAlloc", "cuModuleLoadData",
                                          "cuModuleGetFunction"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1; nth <= 2; nth++) {
            struct world w;
            fake_cuda_open();
            tb_cuda_replace_image(FAKE_CUDA_IMAGE);
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_OUT_OF_MEMORY);
            world_start(&w, SHARD_SMALL);
            CHECK_OK(run_pass(&w, true));
            assert_int_equal(fake_cuda_failed(), e != 2 || nth == 1);
            struct tb_gpu_facts facts;
            tb_gpu_memory_facts(w.shard.memory, &facts);
            assert_int_equal(strncmp(facts.digests, "cores: ", 7) == 0, fake_cuda_failed());
            assert_true(digests_are_right(&w));
            assert_memory_equal(w.to.bytes, w.shard.packed, w.shard.manifest.bytes);
            world_close(&w);
        }
    }
}

/* What is refused room for patches once is not asked for them again, so nothing more is staged for
 * it; until then it is. */
static void without_room_for_patches_none_is_made(void **state)
{
    (void)state;
    static const struct {
        const char *entry;
        uint32_t calls; /* of both lanes: for passes and for patches */
    } rows[] = {{"cuMemAlloc", 10}, {"cuMemHostAlloc", 4}};
    for (size_t e = 0; e < sizeof rows / sizeof rows[0]; e++) {
        for (uint32_t nth = 1; nth <= rows[e].calls + 1; nth++) {
            const bool refused = nth <= rows[e].calls;
            struct world w;
            fake_cuda_open();
            tb_cuda_replace_image(FAKE_CUDA_IMAGE);
            world_start(&w, SHARD_SMALL);
            fake_cuda_fail(rows[e].entry, nth, CUDA_ERROR_OUT_OF_MEMORY);
            assert_true(tb_gpu_may_patch(w.shard.memory));
            CHECK_STATUS(tb_gpu_patch(w.shard.memory, NULL, 0), refused ? TB_SITE_NOMEM : TB_OK);
            assert_int_equal(fake_cuda_failed(), refused);
            assert_int_equal(tb_gpu_may_patch(w.shard.memory), !refused);
            world_close(&w);
        }
    }
}

static void a_launch_that_is_refused_is_told(void **state)
{
    (void)state;
    struct world w;
    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
    world_start(&w, SHARD_SMALL);
    static const char *const entries[] = {"cuLaunchKernel", "cuMemcpyAsync", "cuEventSynchronize"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        fake_cuda_fail(entries[e], 2, CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK_STATUS(run_pass(&w, true), TB_SITE_IO);
        assert_true(fake_cuda_failed());
        assert_true(fake_cuda_idle());
    }
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    CHECK_OK(run_pass(&w, true));
    assert_true(digests_are_right(&w));
    world_close(&w);
}

static void memory_is_pinned_once_and_unpinned_before_it_goes(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    CHECK_OK(run_pass(&w, true));
    assert_true(fake_cuda_counts().unpinned_copies > 0);
    const uint64_t before = fake_cuda_counts().unpinned_copies;
    tb_gpu_pin(w.gpu, &w.to);
    tb_gpu_pin(w.gpu, &w.to);
    assert_int_equal(fake_cuda_counts().pinned, 1);
    CHECK_OK(run_pass(&w, true));
    /* What is left is the two tensors that the caller has in host memory. */
    assert_true(fake_cuda_counts().unpinned_copies - before < before);
    tb_shared_memory_free(&w.to);
    assert_int_equal(fake_cuda_counts().pinned, 0);
    /* A refusal costs speed alone. */
    CHECK_OK(tb_shared_memory_new("test", w.shard.manifest.bytes, &w.to));
    fake_cuda_fail("cuMemHostRegister", 1, CUDA_ERROR_OUT_OF_MEMORY);
    tb_gpu_pin(w.gpu, &w.to);
    assert_null(w.to.pin);
    CHECK_OK(run_pass(&w, true));
    assert_memory_equal(w.to.bytes, w.shard.packed, w.shard.manifest.bytes);
    world_close(&w);
}

/* ---- NICs ---- */

static void a_nic_is_given_a_descriptor_and_where_a_tensor_stands_in_it(void **state)
{
    (void)state;
    struct world w;
    int fd = -1;
    world_open(&w);
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
    shard_close(&w.shard, &fake); /* and with the memory its descriptors go */
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    shard_open(&w.shard, w.gpu, &fake, SHARD_SMALL);
    fake_cuda_fail("cuMemGetHandleForAddressRange", 1, CUDA_ERROR_NOT_SUPPORTED);
    struct tb_export_device none;
    assert_false(tb_gpu_memory_device(w.shard.memory, w.shard.tensors[0], 1, &none));
    assert_false(tb_gpu_memory_device(w.shard.memory, w.shard.tensors[0], 1, &none));
    assert_int_equal(fake_cuda_calls("cuMemGetHandleForAddressRange"), 1); /* it is not asked again */
    world_close(&w);
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
    struct world w;
    fake_cuda_open();
    fake_cuda_fail("cuDeviceGetPCIBusId", 1, CUDA_ERROR_INVALID_VALUE);
    CHECK_OK(tb_gpu_open(&w.gpu, (char[TB_GPU_WHY_BYTES]){""}));
    shard_open(&w.shard, w.gpu, &fake, SHARD_SMALL);
    struct tb_export_device d = {.dmabuf = -1, .pci = "before"};
    assert_true(tb_gpu_memory_device(w.shard.memory, w.shard.tensors[0], 1, &d));
    assert_true(d.dmabuf >= 0);
    assert_null(d.pci);
    shard_close(&w.shard, &fake);
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
    shard_open(&shard, gpu, &fake, SHARD_SMALL);
    struct tb_export_device none;
    assert_false(tb_gpu_memory_device(shard.memory, shard.tensors[0], 1, &none));
    assert_int_equal(fake_cuda_calls("cuMemGetHandleForAddressRange"), 0);
    shard_close(&shard, &fake);
    tb_gpu_close(gpu);
    fake_cuda_close();
}

/* What a NIC wrote is made visible before anything of it is copied or digested; not where the
 * device orders that itself. One that does neither says so: it flushes for streams alone, or not at
 * all, or the driver lacks the call. */
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
        struct world w = {.gpu = NULL};
        CHECK_OK(tb_gpu_open(&w.gpu, (char[TB_GPU_WHY_BYTES]){""}));
        shard_open(&w.shard, w.gpu, &fake, SHARD_SMALL);
        struct tb_gpu_facts facts;
        tb_gpu_memory_facts(w.shard.memory, &facts);
        assert_int_equal(facts.nics_may_write, rows[i].may_write);
        w.got = calloc(w.shard.manifest.chunk_count, sizeof *w.got);
        fake_cuda_trace_clear();
        CHECK_OK(run_pass(&w, false));
        assert_int_equal(strncmp(fake_cuda_trace(), "f0 c0", 5) == 0, rows[i].flushes);
        if (rows[i].flushes) {
            fake_cuda_fail("cuFlushGPUDirectRDMAWrites", 1, CUDA_ERROR_UNKNOWN);
            CHECK_STATUS(run_pass(&w, false), TB_SITE_IO);
        }
        free(w.got);
        shard_close(&w.shard, &fake);
        tb_gpu_close(w.gpu);
        fake_cuda_close();
    }
}

/* ---- graphs ---- */

/* An engine captures a graph on a thread of its own, in the mode in which nobody else may do what
 * would spoil it, while readers come and go, versions are published and switched, and memory is
 * registered. The fake ends who spoils it. */
static void a_capture_of_another_thread_is_not_spoilt(void **state)
{
    (void)state;
    struct world w;
    world_open(&w);
    fake_cuda_set_capturing(true);
    struct tb_gpu_memory *again = NULL;
    struct tb_gpu_tray *tray;
    struct tb_gpu_offer offer;
    char why[TB_GPU_WHY_BYTES] = "";
    const struct tb_gpu_tensors tensors = {&w.shard.manifest.layout, w.shard.tensors};
    const struct tb_gpu_rows move = {.row = {w.shard.tensors[0], w.shard.packed, 50}};
    const struct tb_gpu_origin origin = {w.shard.memory, &w.shard.manifest, shard_spread(&w.shard)};
    const struct tb_gpu_fill fill = {.bytes = 100};
    tb_gpu_pin(w.gpu, &w.to);
    CHECK_OK(run_pass(&w, true));
    CHECK_OK(tb_gpu_move(w.shard.memory, &move, 1));
    CHECK_OK(tb_gpu_tray_open(w.shard.memory, 1 << 20, &tray, &offer));
    CHECK_OK(tb_gpu_tray_fill(tray, &origin, &fill, 1));
    tb_gpu_tray_close(tray, true);
    CHECK_OK(tb_gpu_memory_open(w.gpu, &tensors, &again, why));
    tb_gpu_memory_close(again);
    fake_cuda_fail("cuCtxPushCurrent", 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(tb_gpu_move(w.shard.memory, &move, 1), TB_SITE_IO);
    assert_false(fake_cuda_stands_aside()); /* its own captures are as they were */
    world_close(&w);
}

/* A device comes up, and goes, during a capture. */
static void nor_by_a_device_that_comes_up(void **state)
{
    (void)state;
    fake_cuda_open();
    fake_cuda_set_capturing(true);
    struct tb_gpu *gpu;
    struct shard_on_gpu shard;
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    shard_open(&shard, gpu, &fake, SHARD_SMALL);
    shard_close(&shard, &fake);
    tb_gpu_close(gpu);
    assert_false(fake_cuda_stands_aside());
    fake_cuda_close();
}

/* ---- trays ---- */

/* In a process of its own: lends a tray, and keeps it until it is told to go. */
static void lend(int to, int until)
{
    struct tb_gpu *gpu;
    struct shard_on_gpu shard;
    struct tb_gpu_tray *tray;
    struct tb_gpu_offer offer;
    char end;
    CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
    shard_open(&shard, gpu, &fake, SHARD_SMALL);
    CHECK_OK(tb_gpu_tray_open(shard.memory, 1 << 20, &tray, &offer));
    (void)!write(to, &offer, sizeof offer);
    (void)!read(until, &end, 1);
    _exit(0);
}

static pid_t lender;

static int lender_end(void **state)
{
    (void)state;
    if (lender <= 0) return 0;
    (void)kill(lender, SIGKILL);
    (void)waitpid(lender, NULL, 0);
    return 0;
}

/* P8: a source may lend less than it says: what is behind its memory is never read. */
static void a_tray_that_is_smaller_than_said_is_not_opened(void **state)
{
    (void)state;
    int offers[2], ends[2];
    struct tb_gpu_offer offer;
    struct tb_gpu_reach *reach;
    struct world w;
    fake_cuda_open();
    assert_int_equal(pipe(offers), 0);
    assert_int_equal(pipe(ends), 0);
    lender = fork();
    if (lender == 0) lend(offers[1], ends[0]);
    world_start(&w, SHARD_SMALL);
    assert_int_equal(read(offers[0], &offer, sizeof offer), sizeof offer);
    CHECK_OK(tb_gpu_reach_open(w.gpu, &offer, &reach));
    tb_gpu_reach_close(reach);
    offer.bytes = (uint64_t)2 << 20; /* the driver's block, of which it is a part */
    CHECK_OK(tb_gpu_reach_open(w.gpu, &offer, &reach));
    tb_gpu_reach_close(reach);
    offer.bytes++;
    CHECK_STATUS(tb_gpu_reach_open(w.gpu, &offer, &reach), TB_PEER_GARBLED);
    offer.bytes = UINT64_MAX;
    CHECK_STATUS(tb_gpu_reach_open(w.gpu, &offer, &reach), TB_PEER_GARBLED);
    offer.bytes = 1 << 20;
    fake_cuda_fail("cuMemGetAddressRange", 1, CUDA_ERROR_UNKNOWN);
    CHECK_STATUS(tb_gpu_reach_open(w.gpu, &offer, &reach), TB_SITE_IO);
    assert_int_equal(fake_cuda_counts().ipc, 0);
    assert_int_equal(write(ends[1], "e", 1), 1);
    int code;
    assert_int_equal(waitpid(lender, &code, 0), lender);
    lender = 0;
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    for (int i = 0; i < 2; i++) {
        close(offers[i]);
        close(ends[i]);
    }
    world_close(&w);
}

/* ---- refusals ---- */

static enum tb_status expected(CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY ? TB_SITE_NOMEM : TB_SITE_IO;
}

/* P1, P7: whatever is refused at whichever call, a pass that answers TB_OK has all bytes right,
 * one that does not says so, nothing runs on behind its back, and nothing is left.
 * fake_cuda_close counts. */
static void every_refusal_is_told_and_leaves_nothing(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize",
                                          "cuMemHostAlloc", "cuCtxPushCurrent"};
    static const CUresult results[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_ECC_UNCORRECTABLE};
    struct world w;
    world_open(&w);
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1;; nth++) {
            fake_cuda_fail(entries[e], nth, results[nth % 2]);
            memset(w.got, 0, w.shard.manifest.chunk_count * sizeof *w.got);
            const enum tb_status status = run_pass(&w, false);
            if (!fake_cuda_failed()) {
                CHECK_OK(status);
                break;
            }
            CHECK_STATUS(status, expected(results[nth % 2]));
            assert_true(fake_cuda_idle());
        }
        assert_true(fake_cuda_calls(entries[e]) > 0);
        assert_true(digests_are_right(&w)); /* of the run in which nothing failed any more */
    }
    world_close(&w);
}

/* A switch that failed has no copy running on into buffers that its caller may free. */
static void a_move_that_is_refused_does_not_run_on(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuMemcpyAsync", "cuEventRecord", "cuEventSynchronize"};
    struct world w;
    world_open(&w);
    uint8_t from[100] = {0};
    const struct tb_gpu_rows moves[] = {{.row = {w.shard.tensors[0], from, 50}},
                                        {.row = {w.shard.tensors[0] + 50, from + 50, 50}}};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1; nth <= 2; nth++) {
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_UNKNOWN);
            CHECK_STATUS(tb_gpu_move(w.shard.memory, moves, 2), TB_SITE_IO);
            assert_true(fake_cuda_idle());
        }
    }
    world_close(&w);
}

static void a_memory_that_cannot_be_opened_leaves_nothing(void **state)
{
    (void)state;
    static const char *const entries[] = {"cuPointerGetAttributes",   "cuDeviceGet",
                                          "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent",
                                          "cuStreamCreate",           "cuEventCreate"};
    for (size_t e = 0; e < sizeof entries / sizeof entries[0]; e++) {
        for (uint32_t nth = 1;; nth++) {
            fake_cuda_open();
            struct tb_gpu *gpu;
            CHECK_OK(tb_gpu_open(&gpu, (char[TB_GPU_WHY_BYTES]){""}));
            void *here = fake_cuda_alloc(0, 200);
            struct tb_gpu_memory *m = NULL;
            char why[TB_GPU_WHY_BYTES];
            fake_cuda_fail(entries[e], nth, CUDA_ERROR_UNKNOWN);
            const enum tb_status status = open_two(gpu, here, (uint8_t *)here + 100, why, &m);
            const bool failed = fake_cuda_failed();
            CHECK_STATUS(status, failed ? TB_SITE_IO : TB_OK);
            assert_int_equal(m == NULL, failed);
            if (failed) assert_non_null(strstr(why, "gpu.failed"));
            fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
            tb_gpu_memory_close(m);
            tb_gpu_close(gpu);
            fake_cuda_close();
            if (!failed) break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_driver_says_whose_a_pointer_is),
        cmocka_unit_test(host_memory_needs_no_gpu),
        cmocka_unit_test(two_devices_and_strange_contexts_are_refused),
        cmocka_unit_test(a_pass_copies_and_digests_what_the_device_has),
        cmocka_unit_test(one_batch_is_copied_while_the_one_before_is_digested),
        cmocka_unit_test(a_device_with_kernels_digests_what_it_has),
        cmocka_unit_test(without_room_or_kernels_cores_digest),
        cmocka_unit_test(without_room_for_patches_none_is_made),
        cmocka_unit_test(a_launch_that_is_refused_is_told),
        cmocka_unit_test(memory_is_pinned_once_and_unpinned_before_it_goes),
        cmocka_unit_test(a_nic_is_given_a_descriptor_and_where_a_tensor_stands_in_it),
        cmocka_unit_test(memory_that_is_mapped_in_parts_is_given_to_nics),
        cmocka_unit_test(a_device_that_has_no_name_on_the_bus_is_read_too),
        cmocka_unit_test(without_dma_buf_nics_are_given_nothing),
        cmocka_unit_test(writes_of_a_nic_are_flushed_first),
        cmocka_unit_test(a_capture_of_another_thread_is_not_spoilt),
        cmocka_unit_test(nor_by_a_device_that_comes_up),
        cmocka_unit_test_teardown(a_tray_that_is_smaller_than_said_is_not_opened, lender_end),
        cmocka_unit_test(every_refusal_is_told_and_leaves_nothing),
        cmocka_unit_test(a_move_that_is_refused_does_not_run_on),
        cmocka_unit_test(a_memory_that_cannot_be_opened_leaves_nothing),
    };
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
