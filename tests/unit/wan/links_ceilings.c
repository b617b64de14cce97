/* links_ceilings.c - the kernel's ceilings, as they are now: an operator raises them while links run. */
#include "base/net/tcp.h"
#include "check.h"
#include "links_world.h"

static struct tb_tcp_ceilings kernel;

struct tb_tcp_ceilings __wrap_tb_tcp_ceilings(void);
struct tb_tcp_ceilings __wrap_tb_tcp_ceilings(void)
{
    return kernel;
}

/* 1 Gbit/s is assumed. Over loopback 20 us and more of it are 2.5 kB: dozens of connections of 64 bytes, or one of a MiB, and then as many
 * as there are loops. A receiver's window is half of its buffer. */
static void a_number_of_streams_follows_the_ceilings(void **state)
{
    (void)state;
    for (int receives = 0; receives < 2; receives++) {
        struct links_world w;
        kernel =
            receives == 1 ? (struct tb_tcp_ceilings){1 << 20, 128} : (struct tb_tcp_ceilings){64, 2 << 20};
        links_world_init(&w);
        struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", false);
        east->options.streams = west->options.streams = 0;
        east->options.threads = west->options.threads = 2;
        site_peer(east, west, false, false);
        site_peer(west, east, true, true);
        site_start(east);
        site_start(west);
        WORLD_UNTIL(&w.net, site_stats(west, 0).streams_wanted > 4);
        kernel = (struct tb_tcp_ceilings){1 << 20, 2 << 20};
        WORLD_UNTIL(&w.net, site_stats(west, 0).streams_wanted == 2);
        assert_int_equal(site_stats(west, 0).send_ceiling_bytes, 1 << 20);
        assert_int_equal(site_stats(west, 0).receive_ceiling_bytes, 2 << 20);
        kernel = (struct tb_tcp_ceilings){0}; /* cannot be read now: what was is what is known */
        world_turns(&w.net, 20);
        assert_int_equal(site_stats(west, 0).send_ceiling_bytes, 1 << 20);
        links_world_fini(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_of_streams_follows_the_ceilings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
