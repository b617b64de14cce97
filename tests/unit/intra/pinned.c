/* pinned.c - memory that stays is registered once, and nothing outlives its memory (P7); a domain
 * goes to no export of other memory (P8). No device: what region.h promises is counted here.
 *
 * Covers: intra/verbs/pinned_regions.c */
#include "intra/verbs/pinned_regions.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT UINT64_C(65536)

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t regions, domains; /* that there are */
    uint32_t limit;            /* of regions, as RLIMIT_MEMLOCK is of bytes */
    bool held, waiting;        /* a registration waits while held */
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct ibv_context device, other_device;
static struct ibv_pd readers = {.context = &device}; /* the domain of our own READs' targets */
static uint8_t memory[4 * COUNT];
static struct tb_pinned pinned;

enum tb_status tb_region_register(const struct tb_region_options *options, struct tb_region *region_out)
{
    static struct ibv_mr mr;
    pthread_mutex_lock(&fake.lock);
    fake.waiting = true;
    pthread_cond_broadcast(&fake.changed);
    while (fake.held)
        pthread_cond_wait(&fake.changed, &fake.lock);
    const bool room = fake.regions < fake.limit;
    fake.regions += room;
    pthread_mutex_unlock(&fake.lock);
    *region_out = (struct tb_region){.mr = room ? &mr : NULL, .address = (uintptr_t)options->bytes};
    errno = ENOMEM;
    return room ? TB_OK : TB_SITE_IO;
}

void tb_region_free(struct tb_region *region)
{
    pthread_mutex_lock(&fake.lock);
    fake.regions -= region->mr != NULL;
    pthread_mutex_unlock(&fake.lock);
    region->mr = NULL;
}

struct ibv_pd *tb_region_domain_new(struct ibv_context *context)
{
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    pd->context = context;
    fake.domains++;
    return pd;
}

void tb_region_domain_free(struct ibv_pd *domain)
{
    free(domain);
    fake.domains--;
}

static int open_pinned(void **state)
{
    (void)state;
    fake.regions = fake.domains = 0;
    fake.limit = UINT32_MAX;
    tb_pinned_init(&pinned);
    return 0;
}

static int close_pinned(void **state)
{
    (void)state;
    tb_pinned_fini(&pinned);
    return fake.regions == 0 && fake.domains == 0 ? 0 : -1;
}

static uint64_t made(void)
{
    struct tb_pinned_counts counts;
    tb_pinned_counts(&pinned, &counts);
    return counts.made;
}

static struct tb_region_options target(void *bytes, uint64_t count)
{
    return (struct tb_region_options){
        .domain = &readers, .bytes = bytes, .count = count, .dmabuf = -1, .target = true};
}

static struct tb_region_options exported(const struct tb_pinned_domain *d, void *bytes, uint64_t count)
{
    return (struct tb_region_options){.domain = d->pd, .bytes = bytes, .count = count, .dmabuf = -1};
}

static struct tb_pinned_region *take(struct tb_region_options options)
{
    struct tb_pinned_region *r = NULL;
    assert_int_equal(tb_pinned_take(&pinned, &options, &r), TB_OK);
    assert_non_null(r);
    return r;
}

static void use(struct tb_region_options options)
{
    tb_pinned_release(&pinned, take(options));
}

/* ---- once ---- */

static void a_region_that_stays_is_registered_once(void **state)
{
    (void)state;
    const struct tb_region_options options = target(memory, COUNT);
    tb_pinned_stays(&pinned, memory, sizeof memory);
    assert_null(tb_pinned_find(&pinned, &options));
    for (int hop = 0; hop < 3; hop++)
        use(options);
    struct tb_pinned_region *found = tb_pinned_find(&pinned, &options);
    assert_non_null(found);
    tb_pinned_release(&pinned, found);
    assert_int_equal(made(), 1);
    assert_int_equal(fake.regions, 1);
    tb_pinned_goes(&pinned, memory);
    assert_int_equal(fake.regions, 0);
}

static void memory_that_does_not_stay_goes_with_its_user(void **state)
{
    (void)state;
    tb_pinned_stays(&pinned, memory, COUNT);
    for (int hop = 0; hop < 3; hop++) {
        use(target(memory + COUNT, COUNT));
        use(target(memory + COUNT - 1, COUNT)); /* not all of it */
        assert_int_equal(fake.regions, 0);
    }
    assert_int_equal(made(), 6);
    tb_pinned_goes(&pinned, memory + COUNT); /* of which nothing was said */
}

/* A kind and a domain each have their own: what others may read is not what is written. */
static void no_region_serves_two_kinds(void **state)
{
    (void)state;
    const struct tb_export_buffer buffer = {.bytes = memory, .count = COUNT, .memfd = -1};
    struct tb_pinned_domain *d = tb_pinned_domain_take(&pinned, &device, &buffer, 1);
    tb_pinned_stays(&pinned, memory, COUNT);
    use(target(memory, COUNT));
    use(exported(d, memory, COUNT));
    assert_int_equal(fake.regions, 2);
    tb_pinned_domain_leave(&pinned, d);
}

static void memory_of_a_device_is_never_kept(void **state)
{
    (void)state;
    struct tb_region_options options = target(memory, COUNT);
    options.dmabuf = 5;
    tb_pinned_stays(&pinned, memory, COUNT);
    use(options);
    assert_int_equal(fake.regions, 0);
    assert_null(tb_pinned_find(&pinned, &options));
}

/* ---- the end of it ---- */

static void a_region_in_use_goes_with_its_last_user(void **state)
{
    (void)state;
    tb_pinned_stays(&pinned, memory, COUNT);
    struct tb_pinned_region *first = take(target(memory, COUNT)), *second = take(target(memory, COUNT));
    assert_ptr_equal(first, second);
    tb_pinned_goes(&pinned, memory);
    tb_pinned_release(&pinned, first);
    assert_int_equal(fake.regions, 1);
    tb_pinned_release(&pinned, second);
    assert_int_equal(fake.regions, 0);
}

/* P7: an arena cuts the same bytes anew for each version. */
static void P7_no_byte_is_kept_twice(void **state)
{
    (void)state;
    tb_pinned_stays(&pinned, memory, sizeof memory);
    for (uint64_t at = 0; at + 2 * COUNT <= sizeof memory; at += COUNT / 4) {
        use(target(memory + at, 2 * COUNT));
        assert_int_equal(fake.regions, 1);
    }
    uint8_t *at = memory + 2 * COUNT;
    struct tb_pinned_region *old = take(target(at, COUNT)), *newest = take(target(at + 1, COUNT));
    assert_int_equal(fake.regions, 2); /* both are used */
    tb_pinned_release(&pinned, old);
    tb_pinned_release(&pinned, newest);
    assert_int_equal(fake.regions, 1);
}

/* P7: where pinned memory is limited, what is kept gives way. */
static void P7_what_is_kept_gives_way(void **state)
{
    (void)state;
    const struct tb_region_options needed = target(memory + 2 * COUNT, COUNT);
    tb_pinned_stays(&pinned, memory, 2 * COUNT);
    use(target(memory, COUNT));
    struct tb_pinned_region *used = take(target(memory + COUNT, COUNT)), *none = NULL;
    fake.limit = 2;
    struct tb_pinned_region *r = take(needed);
    assert_int_equal(fake.regions, 2);
    errno = 0;
    assert_int_equal(tb_pinned_take(&pinned, &needed, &none), TB_SITE_IO); /* the others are used */
    assert_int_equal(errno, ENOMEM);
    tb_pinned_release(&pinned, r);
    tb_pinned_release(&pinned, used);
}

/* A device's pages count against no limit of the host's: that its dma-buf is refused costs
 * nobody what is kept. */
static void a_device_that_is_refused_costs_nothing(void **state)
{
    (void)state;
    const struct tb_region_options device_only = {
        .domain = &readers, .count = COUNT, .dmabuf = 5, .target = true};
    struct tb_pinned_region *none = NULL;
    tb_pinned_stays(&pinned, memory, COUNT);
    use(target(memory, COUNT));
    fake.limit = 1;
    assert_int_equal(tb_pinned_take(&pinned, &device_only, &none), TB_SITE_IO);
    assert_int_equal(fake.regions, 1);
}

static void nothing_of_a_dead_device_is_kept(void **state)
{
    (void)state;
    tb_pinned_stays(&pinned, memory, sizeof memory);
    struct tb_pinned_region *used = take(target(memory, COUNT));
    use(target(memory + COUNT, COUNT));
    tb_pinned_forsake(&pinned, &other_device);
    tb_pinned_release(&pinned, used);
    assert_int_equal(fake.regions, 2);
    used = take(target(memory, COUNT));
    tb_pinned_forsake(&pinned, &device);
    tb_pinned_release(&pinned, used);
    assert_int_equal(fake.regions, 0);
}

/* ---- exports ---- */

static struct tb_pinned_domain *export_once(const struct tb_export_buffer *buffers, uint32_t count)
{
    struct tb_pinned_domain *d = tb_pinned_domain_take(&pinned, &device, buffers, count);
    assert_non_null(d);
    for (uint32_t i = 0; i < count; i++)
        use(exported(d, buffers[i].bytes, buffers[i].count));
    tb_pinned_domain_leave(&pinned, d);
    return d;
}

static void a_version_after_another_registers_nothing(void **state)
{
    (void)state;
    const struct tb_export_buffer buffers[] = {
        {.bytes = memory, .count = COUNT, .memfd = -1},
        {.bytes = memory + COUNT, .count = COUNT, .memfd = -1},
        {.bytes = memory + 3 * COUNT, .count = 100, .memfd = -1}, /* of that version alone */
    };
    tb_pinned_stays(&pinned, memory, 2 * COUNT);
    const struct tb_pinned_domain *first = export_once(buffers, 3);
    assert_int_equal(made(), 3);
    assert_int_equal(fake.regions, 2);
    assert_ptr_equal(export_once(buffers, 2), first);
    assert_int_equal(made(), 3);
    tb_pinned_goes(&pinned, memory);
    assert_int_equal(fake.domains, 0);
}

/* P8: its readers could read other memory that is registered in its domain. */
static void P8_a_domain_goes_to_no_export_of_less(void **state)
{
    (void)state;
    const struct tb_export_buffer buffers[] = {{.bytes = memory, .count = COUNT, .memfd = -1},
                                               {.bytes = memory + COUNT, .count = COUNT, .memfd = -1}};
    const struct tb_export_device on_device = {.dmabuf = 7};
    const struct tb_export_buffer others[] = {
        {.bytes = memory, .count = COUNT, .memfd = -1},
        {.bytes = memory + COUNT, .count = COUNT - 1, .memfd = -1},
        {.bytes = memory + COUNT, .count = COUNT, .memfd = -1, .device = &on_device}};
    tb_pinned_stays(&pinned, memory, 2 * COUNT);
    const struct tb_pinned_domain *kept = export_once(buffers, 2);
    struct tb_pinned_domain *d = tb_pinned_domain_take(&pinned, &device, others, 3);
    assert_ptr_not_equal(d, kept);
    tb_pinned_domain_leave(&pinned, d);
    d = tb_pinned_domain_take(&pinned, &other_device, buffers, 2);
    assert_ptr_not_equal(d, kept);
    tb_pinned_domain_leave(&pinned, d);
    d = tb_pinned_domain_take(&pinned, &device, buffers, 2);
    assert_ptr_equal(d, kept);
    struct tb_pinned_domain *at_the_same_time = tb_pinned_domain_take(&pinned, &device, buffers, 2);
    assert_ptr_not_equal(at_the_same_time, kept);
    tb_pinned_domain_leave(&pinned, at_the_same_time);
    tb_pinned_domain_leave(&pinned, d);
    assert_int_equal(fake.domains, 1);
}

/* ---- at the same time ---- */

static void *take_in_thread(void *arg)
{
    (void)arg;
    struct tb_pinned_region *r = take(target(memory, COUNT));
    return r->region.mr != NULL ? r : NULL; /* NULL: it was not waited for */
}

static void *goes_in_thread(void *arg)
{
    tb_pinned_goes(&pinned, memory);
    return arg;
}

static void hold_registering(bool held)
{
    pthread_mutex_lock(&fake.lock);
    fake.held = held;
    fake.waiting = false;
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
}

static void wait_for_registering(void)
{
    pthread_mutex_lock(&fake.lock);
    while (!fake.waiting)
        pthread_cond_wait(&fake.changed, &fake.lock);
    pthread_mutex_unlock(&fake.lock);
}

static void a_user_that_wants_the_same_waits_for_it(void **state)
{
    (void)state;
    pthread_t threads[3];
    void *regions[3];
    const struct tb_region_options options = target(memory, COUNT);
    tb_pinned_stays(&pinned, memory, COUNT);
    hold_registering(true);
    assert_int_equal(pthread_create(&threads[0], NULL, take_in_thread, NULL), 0);
    wait_for_registering();
    assert_null(tb_pinned_find(&pinned, &options)); /* not yet, and at once */
    for (int i = 1; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_in_thread, NULL), 0);
    hold_registering(false);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], &regions[i]), 0);
    assert_int_equal(made(), 1);
    for (int i = 0; i < 3; i++) {
        assert_non_null(regions[i]);
        assert_ptr_equal(regions[i], regions[0]);
        tb_pinned_release(&pinned, regions[i]);
    }
}

/* Its owner may unmap it when goes has returned: what was being registered then is known by
 * then. */
static void memory_that_goes_waits_for_its_registration(void **state)
{
    (void)state;
    pthread_t taking, going;
    void *region;
    tb_pinned_stays(&pinned, memory, COUNT);
    hold_registering(true);
    assert_int_equal(pthread_create(&taking, NULL, take_in_thread, NULL), 0);
    wait_for_registering();
    assert_int_equal(pthread_create(&going, NULL, goes_in_thread, NULL), 0);
    hold_registering(false);
    assert_int_equal(pthread_join(taking, &region), 0);
    assert_int_equal(pthread_join(going, NULL), 0);
    tb_pinned_release(&pinned, region);
    assert_int_equal(fake.regions, 0);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, open_pinned, close_pinned)
    const struct CMUnitTest tests[] = {
        TEST(a_region_that_stays_is_registered_once),
        TEST(memory_that_does_not_stay_goes_with_its_user),
        TEST(no_region_serves_two_kinds),
        TEST(memory_of_a_device_is_never_kept),
        TEST(a_region_in_use_goes_with_its_last_user),
        TEST(P7_no_byte_is_kept_twice),
        TEST(P7_what_is_kept_gives_way),
        TEST(a_device_that_is_refused_costs_nothing),
        TEST(nothing_of_a_dead_device_is_kept),
        TEST(a_version_after_another_registers_nothing),
        TEST(P8_a_domain_goes_to_no_export_of_less),
        TEST(a_user_that_wants_the_same_waits_for_it),
        TEST(memory_that_goes_waits_for_its_registration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
