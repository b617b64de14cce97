/* A worker's device memory under faults, over a driver that is none (tests/unit/cuda/fake_cuda.h):
 * it is registered, digested, copied to host memory and back, lent as a tray and read from another
 * process's. When any call fails, work that is told as done is right (P1), and nothing of ours is
 * left in the driver: the fake counts.
 *
 * Covers: intra/cuda/cuda_memory.c intra/cuda/cuda_tray.c intra/cuda/cuda_stage.c */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/fault/sweep.h"
#include "unit/cuda/fake_cuda_inside.h"
#include "unit/cuda/gpu_asks.h"
#include "unit/cuda/shard_on_gpu.h"

#define BIG   1300000u /* bytes: two chunks and more */
#define SMALL 3000u
#define TRAY  (1u << 20)

struct device_round {
    void *layout_memory, *manifest_memory;
    struct tb_manifest manifest;
    uint8_t *tensors[2]; /* of the device, anew for each round */
    uint8_t *truth, *copy;
    struct tb_digest *digests;
    struct tb_shared_memory pinned;
    struct tb_gpu_offer offer; /* of another process */
};

static void shard_make(struct device_round *r)
{
    struct tb_tensor list[2] = {
        {.name = "big", .dtype = TB_DTYPE_U8, .rank = 1, .full = {BIG}, .box_count = {BIG}},
        {.name = "small", .dtype = TB_DTYPE_U8, .rank = 1, .full = {SMALL}, .box_count = {SMALL}}};
    struct tb_layout layout;
    uint64_t seed = 5;
    const size_t layout_bytes = tb_layout_bytes_for(list, 2);
    r->layout_memory = malloc(layout_bytes);
    CHECK_OK(tb_layout_build(list, 2, r->layout_memory, layout_bytes, &layout));
    const size_t bytes = tb_manifest_bytes_for(&layout, NULL, 0);
    r->manifest_memory = malloc(bytes);
    CHECK_OK(tb_manifest_build(&layout, NULL, 0, r->manifest_memory, bytes, &r->manifest));
    r->truth = malloc(r->manifest.bytes);
    r->copy = malloc(r->manifest.bytes);
    r->digests = calloc(r->manifest.chunk_count, sizeof *r->digests);
    for (uint64_t i = 0; i < r->manifest.bytes; i++)
        r->truth[i] = (uint8_t)check_random(&seed);
}

static void shard_free(struct device_round *r)
{
    free(r->digests);
    free(r->copy);
    free(r->truth);
    free(r->manifest_memory);
    free(r->layout_memory);
}

static void prepare(void *world)
{
    struct device_round *r = world;
    fake_cuda_open();
    tb_cuda_replace_image(FAKE_CUDA_IMAGE);
    for (uint32_t i = 0; i < 2; i++) {
        const struct tb_tensor *t = &r->manifest.layout.tensors[i];
        r->tensors[i] = fake_cuda_alloc(0, t->bytes);
        fake_cuda_write(r->tensors[i], r->truth + t->offset, t->bytes);
    }
    memset(r->copy, 0, r->manifest.bytes);
    memset(r->digests, 0, r->manifest.chunk_count * sizeof *r->digests);
    CHECK_OK(tb_shared_memory_new("test", r->manifest.bytes, &r->pinned));
}

static void on_landed(void *user, uint32_t first, uint32_t count, const uint8_t *bytes)
{
    const struct device_round *r = user;
    const struct tb_chunk *chunks = r->manifest.chunks;
    for (uint32_t k = first; k < first + count; k++)
        r->digests[k] = tb_digest_of(bytes + (chunks[k].offset - chunks[first].offset), chunks[k].bytes);
}

/* A pass that succeeds has digested and copied the bytes of the device. */
static bool passed(struct device_round *r, struct tb_gpu_memory *m)
{
    const struct tb_gpu_pass pass = {.manifest = &r->manifest,
                                     .from = {.layout = &r->manifest.layout, .tensors = r->tensors},
                                     .to = r->copy,
                                     .digests = r->digests,
                                     .landed = on_landed,
                                     .user = r};
    if (tb_gpu_pass(m, &pass) != TB_OK) return false;
    assert_memory_equal(r->copy, r->truth, r->manifest.bytes);
    for (uint32_t k = 0; k < r->manifest.chunk_count; k++) {
        const struct tb_digest right =
            tb_digest_of(r->truth + r->manifest.chunks[k].offset, r->manifest.chunks[k].bytes);
        assert_memory_equal(&r->digests[k], &right, sizeof right);
    }
    return true;
}

static bool moved(struct device_round *r, struct tb_gpu_memory *m)
{
    uint8_t back[100];
    const struct tb_gpu_rows out = {
        .row = {back, r->tensors[0], 10}, .rows = 10, .to_stride = 10, .from_stride = 10};
    if (tb_gpu_move(m, &out, 1) != TB_OK) return false;
    assert_memory_equal(back, r->truth + r->manifest.layout.tensors[0].offset, sizeof back);
    return true;
}

static bool lent(struct device_round *r, struct tb_gpu_memory *m)
{
    const struct tb_gpu_origin origin = {
        m, &r->manifest, {.layout = &r->manifest.layout, .tensors = r->tensors}};
    const struct tb_gpu_fill fill = {.bytes = 1000};
    struct tb_gpu_offer offer;
    struct tb_gpu_tray *tray = NULL;
    if (tb_gpu_tray_open(m, TRAY, &tray, &offer) != TB_OK) return false;
    const bool filled = tb_gpu_tray_fill(tray, &origin, &fill, 1) == TB_OK;
    tb_gpu_tray_close(tray, true);
    return filled;
}

static bool borrowed(struct device_round *r, struct tb_gpu *gpu)
{
    struct tb_gpu_reach *reach = NULL;
    uint8_t bytes[100];
    if (tb_gpu_reach_open(gpu, &r->offer, &reach) != TB_OK) return false;
    const bool copied = tb_gpu_reach_copy(reach, 0, 0, bytes, sizeof bytes) == TB_OK;
    if (copied) assert_int_equal(bytes[99], 7);
    tb_gpu_reach_close(reach);
    return copied;
}

/* A stage that takes a chunk has its bytes, in however many pieces they came. */
static bool staged(struct device_round *r, struct tb_gpu_memory *m)
{
    struct tb_gpu_stage *stage = NULL;
    struct tb_export_device device;
    char why[TB_GPU_WHY_BYTES] = "";
    const struct tb_gpu_stage_size size = {r->manifest.bytes, TB_CHUNK_BYTES_MAX};
    bool done = tb_gpu_stage_open(m, &size, &stage, why) == TB_OK;
    if (!done) {
        assert_true(stage == NULL && why[0] != '\0');
        return false;
    }
    (void)tb_gpu_stage_device(stage, tb_gpu_stage_base(stage), 10, &device);
    for (uint32_t k = 0; k < r->manifest.chunk_count && done; k++) {
        const struct tb_chunk *c = &r->manifest.chunks[k];
        struct tb_gpu_landing landing = {
            .at = tb_gpu_stage_base(stage) + c->offset, .bytes = c->bytes, .from = r->truth + c->offset};
        done = gpu_land(stage, &landing) == TB_OK;
        const struct tb_digest right = tb_digest_of(landing.from, landing.bytes);
        if (done) assert_memory_equal(&landing.digest, &right, sizeof right);
    }
    tb_gpu_stage_close(stage);
    return done;
}

static bool device_round(void *world)
{
    struct device_round *r = world;
    struct tb_gpu *gpu = NULL;
    struct tb_gpu_memory *m = NULL;
    char why[TB_GPU_WHY_BYTES] = "";
    const struct tb_gpu_tensors tensors = {&r->manifest.layout, r->tensors};
    if (tb_gpu_open(&gpu, why) != TB_OK) {
        assert_null(gpu);
        return false;
    }
    bool done = tb_gpu_memory_open(gpu, &tensors, &m, why) == TB_OK;
    assert_int_equal(done, m != NULL);
    if (done) {
        tb_gpu_pin(gpu, &r->pinned); /* refused, it costs speed */
        struct tb_export_device device;
        (void)tb_gpu_memory_device(m, r->tensors[0], 10, &device);
        done = passed(r, m);
        done = moved(r, m) && done;
        done = staged(r, m) && done;
        done = lent(r, m) && done;
        done = borrowed(r, gpu) && done;
    }
    assert_true(fake_cuda_idle()); /* what failed does not run on */
    tb_shared_memory_free(&r->pinned);
    tb_gpu_memory_close(m);
    tb_gpu_close(gpu);
    return done;
}

static void check(void *world, bool done)
{
    struct device_round *r = world;
    (void)done; /* what it says it has looked at itself */
    fake_cuda_fail(NULL, 0, CUDA_SUCCESS);
    tb_shared_memory_free(&r->pinned);
    for (uint32_t i = 0; i < 2; i++)
        fake_cuda_free(r->tensors[i]);
    fake_cuda_close();
}

static void memory_that_is_refused_is_told(void **state)
{
    struct device_round *r = *state;
    sweep_run(
        &(struct sweep){.prepare = prepare, .round = device_round, .check = check, .world = r, .most = 200});
}

/* A call that gives back may answer with the errors of calls before it, and has given back all the
 * same. In a context that cannot be entered nothing can be given back; tests/unit/cuda/memory.c has
 * those of passes and openings. */
static bool gives_back(const char *entry)
{
    static const char *const words[] = {"Free",   "Destroy", "Release", "Unregister",
                                        "Unload", "Pop",     "Close",   "Push"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(entry, words[i]) != NULL) return true;
    return false;
}

static void refuse_each(struct device_round *r, const char *entry)
{
    static const CUresult results[] = {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_UNKNOWN};
    for (uint32_t nth = 1;; nth++) {
        fprintf(stderr, "%s:%u\n", entry, (unsigned)nth);
        prepare(r);
        fake_cuda_fail(entry, nth, results[nth % 2]);
        const bool done = device_round(r), failed = fake_cuda_failed();
        assert_true(done || failed);
        check(r, done);
        if (!failed) break;
    }
}

static void a_driver_that_refuses_is_told(void **state)
{
    struct device_round *r = *state;
    const char *entries[64] = {NULL};
    uint32_t count = 0;
    prepare(r);
    assert_true(device_round(r));
    for (uint32_t i = 0; i < 64 && fake_cuda.calls[i].name != NULL; i++)
        if (!gives_back(fake_cuda.calls[i].name)) entries[count++] = fake_cuda.calls[i].name;
    check(r, true);
    assert_true(count > 15);
    for (uint32_t i = 0; i < count; i++)
        refuse_each(r, entries[i]);
}

/* ---- a process that lends ---- */

static struct lender {
    pid_t pid;
    int until;
} lender;

static void lend(int to, int until)
{
    static struct device_round r;
    struct tb_gpu *gpu;
    struct tb_gpu_memory *m;
    struct tb_gpu_tray *tray;
    char why[TB_GPU_WHY_BYTES] = "", end;
    shard_make(&r);
    memset(r.truth, 7, r.manifest.bytes);
    prepare(&r);
    CHECK_OK(tb_gpu_open(&gpu, why));
    CHECK_OK(tb_gpu_memory_open(gpu, &(struct tb_gpu_tensors){&r.manifest.layout, r.tensors}, &m, why));
    CHECK_OK(tb_gpu_tray_open(m, TRAY, &tray, &r.offer));
    const struct tb_gpu_origin origin = {
        m, &r.manifest, {.layout = &r.manifest.layout, .tensors = r.tensors}};
    CHECK_OK(tb_gpu_tray_fill(tray, &origin, &(struct tb_gpu_fill){.bytes = 1000}, 1));
    (void)!write(to, &r.offer, sizeof r.offer);
    (void)!read(until, &end, 1);
    _exit(0);
}

static int set_up(void **state)
{
    static struct device_round r;
    int offers[2], ends[2];
    if (pipe(offers) != 0 || pipe(ends) != 0) return -1;
    lender.pid = fork();
    if (lender.pid == 0) {
        close(ends[1]);
        lend(offers[1], ends[0]);
    }
    close(offers[1]);
    close(ends[0]);
    lender.until = ends[1];
    const bool good = read(offers[0], &r.offer, sizeof r.offer) == (ssize_t)sizeof r.offer;
    close(offers[0]);
    shard_make(&r);
    *state = &r;
    return good ? 0 : -1;
}

static int tear_down(void **state)
{
    close(lender.until);
    (void)waitpid(lender.pid, NULL, 0);
    shard_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_is_refused_is_told),
        cmocka_unit_test(a_driver_that_refuses_is_told),
    };
    tb_log_set(TB_LOG_ERROR, -1);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
