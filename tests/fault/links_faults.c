/* links_faults.c - every allocation and system call of two gateways fails, one after the other,
 * while a version crosses: once, or from then on for a while. Nobody falls, no descriptor stays,
 * and it arrives when they work again (P6). Where there are many calls of a point, a spread of
 * them; each with TB_FAULT_ALL (sweep.h).
 *
 * Covers: wan/link/links.c wan/link/traffic/link_traffic.c wan/stream/stream_thread.c
 * Covers: wan/stream/tcp_path.c wan/stream/stream_busy_time.c wan/link/traffic/link_day_budget.c */
#include "links_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "check.h"
#include "tests/fault/sweep.h"

#define BAD_MS 10 /* how long calls that fail from then on do */

struct faults {
    int point; /* as sweep.h counts them */
    uint64_t nth;
    bool lasting;
    bool hit, over;
    tb_time_ns over_at;           /* 0: not hit yet */
    uint64_t calls[SWEEP_POINTS]; /* of a crossing in which none fails */
    struct links_world w;
    struct truth t;
    struct site *east, *west;
};

static void forget(struct site *s)
{
    for (int i = 0; i < VERSIONS_MAX; i++)
        copy_free(&s->copies[i]);
    s->landed = s->failed = 0;
    s->again = false;
}

/* A daemon tries again after TB_SITE_NOMEM. */
static void try_again(struct faults *f)
{
    struct site *west = f->west;
    struct copy *c = site_copy(west, &f->t);
    if (!west->again) return;
    west->again = false;
    if (c == NULL) {
        const enum tb_status status = tb_links_ask(west->links, 0, &f->t.key.uid);
        west->again = status != TB_OK && status != TB_DONE_BEFORE;
        return;
    }
    (void)!tb_links_offer(west->links, &c->key, c->places);
    (void)!tb_links_land_stop(west->links, &f->t.key.uid, NULL, NULL);
    west->again = tb_links_land(west->links, 0, &c->key, c->places) != TB_OK;
}

/* A call that fails from the nth time on works again after a while. */
static void mend(struct faults *f)
{
    if (f->over || sweep_calls(f->point) < f->nth) return;
    f->hit = true;
    if (f->over_at == 0) f->over_at = tb_time_add(tb_clock_now(), f->lasting ? TB_MS(BAD_MS) : 0);
    if (tb_clock_now() < f->over_at) return;
    (void)sweep_disarm(f->point);
    f->over = true;
}

static bool start(struct site *s)
{
    char error[256], listen_at[64];
    snprintf(listen_at, sizeof listen_at, "127.0.0.1:%u", s->port);
    s->options.listen = s->port != 0 ? listen_at : NULL;
    s->links = NULL;
    s->closed = false;
    const enum tb_status status = tb_links_new(&s->options, &s->links, error);
    if (status != TB_OK) assert_true(error[0] != '\0');
    return status == TB_OK;
}

static void cross(struct faults *f)
{
    while (!start(f->east))
        mend(f);
    while (!start(f->west))
        mend(f);
    struct copy *c = site_place(f->east, &f->t.key, f->t.manifests);
    memcpy(c->places[0].bytes, f->t.bytes[0], f->t.manifests[0].bytes);
    for (uint32_t k = 0; k < f->t.chunks; k++)
        tb_bitmap_set(c->places[0].held, k);
    while (tb_links_offer(f->east->links, &c->key, c->places) != TB_OK)
        mend(f);
    const tb_time_ns end = tb_clock_now() + TB_SECONDS(30);
    while (f->west->landed == 0) {
        if (tb_clock_now() > end)
            fail_msg("never landed when call %llu%s of %s failed", (unsigned long long)f->nth,
                     f->lasting ? "+" : "", sweep_name(f->point));
        uv_run(&f->w.net.loop, UV_RUN_ONCE);
        mend(f);
        try_again(f);
    }
    check_equal(site_copy(f->west, &f->t), &f->t);
    mend(f);
}

static void close_sites(struct faults *f)
{
    site_close(f->west);
    site_close(f->east);
    forget(f->east);
    forget(f->west);
}

/* One crossing in which call number n of the point fails, and with `lasting` those after it.
 * False: there were fewer. */
static bool cross_with_fault(struct faults *f, int point, uint64_t n, bool lasting)
{
    const unsigned before = sweep_open_fds();
    fprintf(stderr, "%s:%u%s\n", sweep_name(point), (unsigned)n, lasting ? "+" : "");
    f->point = point;
    f->nth = n;
    f->lasting = lasting;
    f->hit = f->over = false;
    f->over_at = 0;
    sweep_arm(point, n, lasting);
    cross(f);
    (void)sweep_disarm(point);
    close_sites(f);
    if (sweep_open_fds() != before)
        fail_msg("%s:%u%s left a descriptor", sweep_name(point), (unsigned)n, lasting ? "+" : "");
    return f->hit;
}

static void count_calls(struct faults *f)
{
    f->over = true; /* nothing is to be mended */
    for (int point = 0; point < SWEEP_POINTS; point++)
        sweep_arm(point, 0, false);
    cross(f);
    for (int point = 0; point < SWEEP_POINTS; point++)
        f->calls[point] = sweep_disarm(point);
    close_sites(f);
}

static void setup(struct faults *f)
{
    memset(f, 0, sizeof *f);
    links_world_init(&f->w);
    truth_make(&f->t, 11, 1, 3 << 20);
    f->east = site_new(&f->w, "east", true);
    f->west = site_new(&f->w, "west", false);
    site_peer(f->east, f->west, false, false);
    site_peer(f->west, f->east, true, true);
    f->east->options.streams = f->west->options.streams = 2;
    f->east->options.codec = TB_CHOICE_ZSTD;
    f->east->forgiving = f->west->forgiving = true;
    site_start(f->east); /* makes the contexts */
    site_start(f->west);
    site_close(f->west);
    site_close(f->east);
}

static void teardown(struct faults *f)
{
    links_world_fini(&f->w);
    truth_free(&f->t);
}

/* sweep.h's `most`. Of allocations each fails once, also in the short form: most of what can
 * be left half made is. */
static uint64_t most_of(int point, bool lasting)
{
    if (lasting) return 4;
    return point == TB_FAULT_malloc ? UINT64_MAX / 2 : 12;
}

/* One crossing makes a few calls more than another: it goes on as long as they come. */
static unsigned sweep_point(struct faults *f, int point, bool lasting)
{
    const struct sweep spread = {.most = most_of(point, lasting)};
    const uint64_t calls = f->calls[point];
    bool hit = calls > 0;
    unsigned hits = 0;
    for (uint64_t n = 1; hit || n <= calls; n = sweep_next(&spread, point, n, calls)) {
        hit = cross_with_fault(f, point, n, lasting);
        hits += hit;
    }
    return hits;
}

static void every_call_may_fail(bool lasting)
{
    struct faults f;
    setup(&f);
    count_calls(&f);
    unsigned hits = 0;
    for (int point = 0; point < SWEEP_POINTS; point++)
        hits += sweep_point(&f, point, lasting);
    printf("%u crossings with a fault\n", hits);
    assert_true(hits > 50);
    teardown(&f);
}

/* A connection that breaks at any of its calls is a cut like another. */
static void every_call_may_fail_once(void **state)
{
    (void)state;
    every_call_may_fail(false);
}

static void every_call_may_fail_for_a_while(void **state)
{
    (void)state;
    every_call_may_fail(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_may_fail_once),
                                       cmocka_unit_test(every_call_may_fail_for_a_while)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
