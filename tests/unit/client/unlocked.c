/* unlocked.c - long work is done without the session's lock: meanwhile the session renews its
 * lease, and answers calls (P6).
 *
 * Linked with functions that ask for the lock. Large memory that goes is frees.c's.
 *
 * Covers: intra/client/session/session_lock.c intra/client/publish/publication_watch.c
 * Covers: intra/client/memory/registration_suspend.c */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "intra/client/follow/subscription.h"
#include "intra/client/memory/boxes.h"
#include "intra/client/memory/registration.h"
#include "intra/client/publish/encode_jobs.h"
#include "intra/client/session/session.h"
#include "unit/client/fake_gateway.h"

#define TENSOR 3000000u

static struct tb_session *watched;
static atomic_uint asked;

static struct timespec in_ms(uint32_t ms)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += ms / 1000;
    return t;
}

static void ask_for_the_lock(void)
{
    if (watched == NULL) return;
    const struct timespec until = in_ms(5000); /* who has it itself waits for ever */
    assert_int_equal(pthread_mutex_timedlock(&watched->lock, &until), 0);
    pthread_mutex_unlock(&watched->lock);
    atomic_fetch_add(&asked, 1);
}

static void watch(struct tb_session *s)
{
    watched = s;
    atomic_store(&asked, 0);
}

/* ---- a rank ---- */

struct rank {
    struct fake f;
    struct tb_session *s;
    struct tb_registration *r;
    struct tb_run_info run;
    uint8_t *memory;
};

static void rank_open(struct rank *k)
{
    memset(k, 0, sizeof *k);
    fake_open(&k->f);
    FAKE_SET(&k->f, classes, 1);
    FAKE_SET(&k->f, drain_ms, 60000); /* no drain ends by itself */
    k->s = fake_session_open(&k->f, "rank", NULL);
    k->memory = calloc(1, TENSOR);
    const uint64_t shape[] = {TENSOR / 2};
    const struct tb_tensor_desc t = {
        .name = "t", .dtype = "BF16", .rank = 1, .shape = shape, .memory = k->memory};
    CHECK_OK(tb_register(k->s, &t, 1, &k->r));
    k->run.struct_bytes = sizeof k->run;
    CHECK_OK(tb_run_open(k->s, "policy", "k", &k->run));
}

static struct tb_uid publish_in(struct rank *k, uint64_t number, uint32_t mode)
{
    memset(k->memory, (int)number, 1000);
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = mode,
                                         .model = "policy",
                                         .run = &k->run.run,
                                         .number = number,
                                         .shard_count = 1,
                                         .registration = k->r};
    struct tb_publish_info info = {.struct_bytes = sizeof info};
    CHECK_OK(tb_publish(k->s, &o, &info));
    return info.uid;
}

static struct tb_uid publish(struct rank *k, uint64_t number)
{
    return publish_in(k, number, TB_PUBLISH_SHADOW);
}

static void rank_close(struct rank *k)
{
    watched = NULL;
    tb_session_close(k->s);
    fake_close(&k->f);
    free(k->memory);
}

/* A second thing that happens while an encoding ends. */
static struct beside {
    void (*begin)(struct beside *b);
    struct rank *k;
    struct tb_uid uid;
    pthread_t thread;
    uint32_t seals; /* that a gateway heard which knew nothing */
    bool begun;
} * beside;

static void *unpublish(void *user)
{
    const struct beside *b = user;
    CHECK_OK(tb_unpublish(b->k->s, &b->uid, 0));
    return NULL;
}

/* Another call is under way. */
static void begin_unpublish(struct beside *b)
{
    assert_int_equal(pthread_create(&b->thread, NULL, unpublish, b), 0);
    fake_wait_seen(&b->k->f, TB_MSG_UNPUBLISH, 2); /* the first is of the version that gave way */
    const struct timespec until = in_ms(1000);
    assert_int_not_equal(pthread_timedjoin_np(b->thread, NULL, &until), 0);
}

/* The gateway goes, and one comes that knows nothing. */
static void begin_anew(struct beside *b)
{
    struct fake *f = &b->k->f;
    fake_go_away(f, b->k->s);
    const uint32_t before = fake_seen(f, TB_MSG_SEAL);
    fake_come_back(f, b->k->s);
    b->seals = fake_seen(f, TB_MSG_SEAL) - before;
}

void __real_tb_encoding_end(struct tb_encoding *e);
void __wrap_tb_encoding_end(struct tb_encoding *e);
void __wrap_tb_encoding_end(struct tb_encoding *e)
{
    ask_for_the_lock();
    if (beside != NULL && !beside->begun) {
        beside->begun = true;
        beside->begin(beside);
    }
    __real_tb_encoding_end(e);
}

/* A batch of large chunks that is under way is waited for: when the base is written again, and
 * when the version goes. */
static void the_end_of_an_encoding(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    (void)publish(&k, 1);
    (void)publish(&k, 2);
    watch(k.s);
    fake_state(&k.f, 1, TB_OK);
    const struct tb_uid third = publish(&k, 3); /* over the first, which the second was encoded on */
    assert_int_equal(atomic_load(&asked), 1);
    CHECK_OK(tb_unpublish(k.s, &third, 0));
    assert_int_equal(atomic_load(&asked), 2);
    rank_close(&k);
}

/* The second version is unpublished while the third waits for the end of its encoding:
 * it stays until then. */
static void a_version_that_is_unpublished_while_its_encoding_ends(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    (void)publish(&k, 1);
    struct beside b = {.begin = begin_unpublish, .k = &k, .uid = publish(&k, 2)};
    fake_state(&k.f, 1, TB_OK);
    beside = &b;
    const struct tb_uid third = publish(&k, 3);
    assert_true(b.begun);
    assert_int_equal(pthread_join(b.thread, NULL), 0);
    beside = NULL;
    CHECK_STATUS(tb_unpublish(k.s, &third, 0), TB_OK);
    rank_close(&k);
}

/* It is not there any more for a gateway that comes meanwhile: nobody would take back what that was
 * told. The first one is. */
static void a_version_that_goes_is_not_announced_while_its_encoding_ends(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k);
    (void)publish(&k, 1);
    const struct tb_uid second = publish(&k, 2);
    struct beside b = {.begin = begin_anew, .k = &k};
    beside = &b;
    CHECK_OK(tb_unpublish(k.s, &second, 0));
    beside = NULL;
    assert_true(b.begun);
    assert_int_equal(b.seals, 1);
    rank_close(&k);
}

/* ---- a GPU's memory ---- */

static int token; /* stands for a device's memory, of which nobody asks more */
static bool on_gpu;
static unsigned opened, closed;

/* The driver's library is read from a disk. */
enum tb_status __real_tb_gpu_open(struct tb_gpu **gpu_out, char *why);
enum tb_status __wrap_tb_gpu_open(struct tb_gpu **gpu_out, char *why);
enum tb_status __wrap_tb_gpu_open(struct tb_gpu **gpu_out, char *why)
{
    ask_for_the_lock();
    return __real_tb_gpu_open(gpu_out, why);
}

enum tb_status __real_tb_gpu_memory_open(struct tb_gpu *gpu, const struct tb_gpu_tensors *tensors,
                                         struct tb_gpu_memory **memory_out, char *why);
enum tb_status __wrap_tb_gpu_memory_open(struct tb_gpu *gpu, const struct tb_gpu_tensors *tensors,
                                         struct tb_gpu_memory **memory_out, char *why);
enum tb_status __wrap_tb_gpu_memory_open(struct tb_gpu *gpu, const struct tb_gpu_tensors *tensors,
                                         struct tb_gpu_memory **memory_out, char *why)
{
    if (!on_gpu) return __real_tb_gpu_memory_open(gpu, tensors, memory_out, why);
    ask_for_the_lock();
    opened++;
    *memory_out = (struct tb_gpu_memory *)(void *)&token;
    return TB_OK;
}

void __real_tb_gpu_memory_close(struct tb_gpu_memory *m);
void __wrap_tb_gpu_memory_close(struct tb_gpu_memory *m);
void __wrap_tb_gpu_memory_close(struct tb_gpu_memory *m)
{
    if ((void *)m != (void *)&token) {
        __real_tb_gpu_memory_close(m);
        return;
    }
    ask_for_the_lock();
    closed++;
}

static void a_device_that_comes_up_and_goes(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *s = fake_session_open(&f, "rank", NULL);
    uint8_t memory[8];
    const uint64_t shape[] = {8};
    const struct tb_tensor_desc t = {.name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = memory};
    struct tb_registration *r;
    watch(s);
    on_gpu = true;
    CHECK_OK(tb_register(s, &t, 1, &r));
    CHECK_OK(tb_suspend(r));
    assert_int_equal(closed, 1);
    CHECK_OK(tb_resume(r, NULL, 0));
    assert_int_equal(opened, 2);
    CHECK_OK(tb_unregister(r));
    assert_int_equal(closed, 2);
    on_gpu = false;
    watched = NULL;
    tb_session_close(s);
    fake_close(&f);
}

static void *suspend(void *user)
{
    CHECK_OK(tb_suspend(user));
    return NULL;
}

/* The gateway is asked without the lock: a device that another call brought meanwhile would be
 * closed in place of the first. */
static void memory_that_is_being_suspended_does_not_come_back(void **state)
{
    (void)state;
    struct rank k;
    pthread_t thread;
    rank_open(&k);
    (void)publish_in(&k, 1, TB_PUBLISH_IN_PLACE);
    tb_session_lock(k.s);
    k.r->gpu = (struct tb_gpu_memory *)(void *)&token;
    tb_session_unlock(k.s);
    on_gpu = true;
    opened = closed = 0;
    FAKE_SET(&k.f, mute[TB_MSG_UNPUBLISH], true);
    assert_int_equal(pthread_create(&thread, NULL, suspend, k.r), 0);
    fake_wait_seen(&k.f, TB_MSG_UNPUBLISH, 1);
    CHECK_STATUS(tb_resume(k.r, NULL, 0), TB_BAD_STATE);
    assert_int_equal(opened, 0);
    tb_cancel(k.s); /* it waits for the gateway no longer */
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(closed, 1);
    on_gpu = false;
    CHECK_OK(tb_resume(k.r, NULL, 0)); /* the twin */
    FAKE_SET(&k.f, mute[TB_MSG_UNPUBLISH], false);
    rank_close(&k);
}

/* ---- a file's last byte ---- */

#define FILE_BYTES 8192u

static atomic_uint looks, looks_ended; /* of the watched session */
static atomic_bool look_waits;

/* The byte may stand on a slow disk. */
void __real_tb_guard_look(struct tb_guard *guard);
void __wrap_tb_guard_look(struct tb_guard *guard);
void __wrap_tb_guard_look(struct tb_guard *guard)
{
    if (guard == NULL || watched == NULL) {
        __real_tb_guard_look(guard);
        return;
    }
    ask_for_the_lock();
    atomic_fetch_add(&looks, 1);
    while (atomic_load(&look_waits))
        sched_yield();
    __real_tb_guard_look(guard);
    atomic_fetch_add(&looks_ended, 1);
}

void __real_tb_guard_end(struct tb_guard *guard);
void __wrap_tb_guard_end(struct tb_guard *guard);
void __wrap_tb_guard_end(struct tb_guard *guard)
{
    if (guard != NULL && watched != NULL) assert_int_equal(atomic_load(&looks), atomic_load(&looks_ended));
    __real_tb_guard_end(guard);
}

static uint8_t *map_file(void)
{
    char path[] = "/tmp/tombolo-unlocked-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ftruncate(fd, FILE_BYTES), 0);
    uint8_t *memory = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    close(fd);
    return memory;
}

static void *unregister(void *user)
{
    CHECK_OK(tb_unregister(user));
    return NULL;
}

static bool is_ending(struct tb_session *s, const struct tb_registration *r)
{
    tb_session_lock(s);
    const bool ending = r->ending > 0;
    tb_session_unlock(s);
    return ending;
}

/* The look waits for the disk. Meanwhile calls are answered, and the memory stays guarded: its
 * registration ends after the look. */
static void a_look_at_a_file_on_a_slow_disk(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *s = fake_session_open(&f, "rank", NULL);
    uint8_t *memory = map_file();
    const uint64_t shape[] = {FILE_BYTES};
    const struct tb_tensor_desc t = {.name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = memory};
    struct tb_registration *r;
    pthread_t thread;
    atomic_store(&look_waits, true);
    watch(s);
    CHECK_OK(tb_register(s, &t, 1, &r));
    while (atomic_load(&looks) == 0)
        sched_yield();
    const uint32_t renewed = fake_seen(&f, TB_MSG_RENEW);
    fake_wait_seen(&f, TB_MSG_RENEW, renewed + 1); /* the session thread does not wait either */
    assert_int_equal(pthread_create(&thread, NULL, unregister, r), 0);
    while (!is_ending(s, r))
        sched_yield();
    atomic_store(&look_waits, false);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&looks), 1);
    watched = NULL;
    tb_session_close(s);
    fake_close(&f);
    munmap(memory, FILE_BYTES);
}

/* ---- a reader ---- */

enum tb_status __real_tb_boxes_match(const struct tb_box_question *q, struct tb_box_copies *copies_out,
                                     uint32_t *missing_out);
enum tb_status __wrap_tb_boxes_match(const struct tb_box_question *q, struct tb_box_copies *copies_out,
                                     uint32_t *missing_out);
enum tb_status __wrap_tb_boxes_match(const struct tb_box_question *q, struct tb_box_copies *copies_out,
                                     uint32_t *missing_out)
{
    ask_for_the_lock();
    return __real_tb_boxes_match(q, copies_out, missing_out);
}

static void the_search_for_where_each_tensor_goes(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_uid uid;
    const struct fake_version *v = fake_make(&f, 1, 1, 1, TENSOR);
    memcpy(uid.bytes, v->key.uid.bytes, sizeof uid.bytes);
    struct tb_session *s = fake_session_open(&f, "w", NULL);
    uint8_t *memory = calloc(1, TENSOR);
    const uint64_t shape[] = {TENSOR};
    const struct tb_tensor_desc t = {
        .name = "t0", .dtype = "U8", .rank = 1, .shape = shape, .memory = memory};
    struct tb_registration *r;
    CHECK_OK(tb_register(s, &t, 1, &r));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = r};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(s, &o, &sub));
    watch(s);
    CHECK_OK(tb_stage(sub, &uid, 20000));
    assert_int_equal(atomic_load(&asked), 1);
    fake_go(&f, 1);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    CHECK_OK(tb_activate(sub, &uid, &info));
    assert_int_equal(atomic_load(&asked), 1); /* once */
    assert_memory_equal(memory, v->shards[0].bytes, TENSOR);
    watched = NULL;
    tb_session_close(s);
    fake_close(&f);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_an_encoding),
        cmocka_unit_test(a_version_that_is_unpublished_while_its_encoding_ends),
        cmocka_unit_test(a_version_that_goes_is_not_announced_while_its_encoding_ends),
        cmocka_unit_test(a_device_that_comes_up_and_goes),
        cmocka_unit_test(memory_that_is_being_suspended_does_not_come_back),
        cmocka_unit_test(a_look_at_a_file_on_a_slow_disk),
        cmocka_unit_test(the_search_for_where_each_tensor_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
