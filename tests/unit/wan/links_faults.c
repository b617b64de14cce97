/* links_faults.c - every allocation and socket call of two gateways fails, one after the other, while a version crosses: once, or from then on
 * for a while. Nobody falls, and it arrives when they work again (P6). */
#include "links_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bitmap.h"
#include "base/fault.h"
#include "check.h"

#define BAD_MS  10 /* how long calls that fail from then on do */
#define LASTING 5  /* of so many calls one is the first of those */

struct faults {
    enum tb_fault_point point;
    uint64_t nth;
    bool lasting;
    bool hit, over;
    tb_time_ns over_at; /* 0: not hit yet */
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

/* What a daemon does after TB_SITE_NOMEM: it tries again. */
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

/* What fails from the nth call on works again after a while. */
static void mend(struct faults *f)
{
    if (f->over || tb_fault_calls(f->point) < f->nth) return;
    f->hit = true;
    if (f->over_at == 0) f->over_at = tb_time_add(tb_clock_now(), f->lasting ? TB_MS(BAD_MS) : 0);
    if (tb_clock_now() < f->over_at) return;
    tb_fault_arm(f->point, 0, false);
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

static void cross_with_fault(struct faults *f)
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
            fail_msg("never landed when call %llu%s of point %d failed", (unsigned long long)f->nth,
                     f->lasting ? "+" : "", (int)f->point);
        uv_run(&f->w.net.loop, UV_RUN_ONCE);
        mend(f);
        try_again(f);
    }
    check_equal(site_copy(f->west, &f->t), &f->t);
    mend(f);
}

/* One crossing in which call number n of the point fails, and with `lasting` those after it. False: there were fewer. */
static bool cross(struct faults *f, enum tb_fault_point point, uint64_t n, bool lasting)
{
    f->point = point;
    f->nth = n;
    f->lasting = lasting;
    f->hit = f->over = false;
    f->over_at = 0;
    tb_fault_arm(point, n, lasting);
    cross_with_fault(f);
    tb_fault_arm(point, 0, false);
    site_close(f->west);
    site_close(f->east);
    forget(f->east);
    forget(f->west);
    return f->hit;
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

static void every_allocation_may_fail_once(void **state)
{
    (void)state;
    struct faults f;
    setup(&f);
    uint64_t n = 1;
    while (cross(&f, TB_FAULT_malloc, n, false))
        n++;
    assert_true(n > 50);
    teardown(&f);
}

static void every_allocation_may_fail_for_a_while(void **state)
{
    (void)state;
    struct faults f;
    setup(&f);
    uint64_t n = 1;
    while (cross(&f, TB_FAULT_malloc, n, true))
        n += LASTING;
    assert_true(n > 50);
    teardown(&f);
}

static void every_socket_call_may_fail(bool lasting)
{
    static const struct {
        enum tb_fault_point point;
        uint64_t most;
    } rows[] = {{TB_FAULT_socket, 4},
                {TB_FAULT_connect, 3},
                {TB_FAULT_accept, 6},
                {TB_FAULT_recvmsg, 60},
                {TB_FAULT_sendmsg, 60}};
    struct faults f;
    setup(&f);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool hit = true;
        for (uint64_t n = 1; n <= rows[i].most && hit; n += lasting ? LASTING : 1)
            hit = cross(&f, rows[i].point, n, lasting);
    }
    teardown(&f);
}

/* A connection that breaks at any of its calls is a cut like another. */
static void every_socket_call_may_fail_once(void **state)
{
    (void)state;
    every_socket_call_may_fail(false);
}

static void every_socket_call_may_fail_for_a_while(void **state)
{
    (void)state;
    every_socket_call_may_fail(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail_once),
                                       cmocka_unit_test(every_allocation_may_fail_for_a_while),
                                       cmocka_unit_test(every_socket_call_may_fail_once),
                                       cmocka_unit_test(every_socket_call_may_fail_for_a_while)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
