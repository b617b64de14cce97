/* links_ceilings.c - the kernel's ceilings, as they are now: an operator raises them while links
 * run.
 *
 * Covers: wan/link/links.c wan/link/path/link_path.c wan/link/streams/link_tune.c */
#include "base/net/tcp.h"
#include "check.h"
#include "links_world.h"
#include "wan/link/links_stats.h"

static struct tb_tcp_ceilings kernel;
static int reads; /* of both sites, which share the loop: each reads about once a second */

struct tb_tcp_ceilings __wrap_tb_tcp_ceilings(void);
struct tb_tcp_ceilings __wrap_tb_tcp_ceilings(void)
{
    reads++;
    return kernel;
}

static bool knows(const struct site *s, struct tb_tcp_ceilings c)
{
    const struct tb_links_stats stats = site_stats(s, 0);
    return stats.send_ceiling_bytes == c.send_bytes && stats.receive_ceiling_bytes == c.receive_bytes;
}

/* The tuner assumes 1 Gbit/s: 125 bytes for each microsecond of RTT. Of 32 bytes a connection
 * it wants four even over the shortest RTT that the kernel tells, a microsecond; of a MiB as
 * many as there are loops. So no measured RTT looks like raised ceilings. A receiver's window
 * is half of its buffer. */
static void a_number_of_streams_follows_the_ceilings(void **state)
{
    (void)state;
    const struct tb_tcp_ceilings raised = {1 << 20, 2 << 20};
    for (int receives = 0; receives < 2; receives++) {
        struct links_world w;
        const struct tb_tcp_ceilings low =
            receives == 1 ? (struct tb_tcp_ceilings){1 << 20, 64} : (struct tb_tcp_ceilings){32, 2 << 20};
        kernel = low;
        links_world_init(&w);
        struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", false);
        east->options.streams = west->options.streams = 0;
        east->options.threads = west->options.threads = 2;
        site_peer(east, west, false, false);
        site_peer(west, east, true, true);
        site_start(east);
        site_start(west);
        WORLD_UNTIL(&w.net, knows(west, low));
        assert_true(site_stats(west, 0).streams_wanted >= 4);
        kernel = raised;
        WORLD_UNTIL(&w.net, knows(west, raised));
        WORLD_UNTIL(&w.net, site_stats(west, 0).streams_wanted == 2);
        /* They cannot be read now: the last ones stay known. Each site has read, and a second has
         * passed in which it looked at its stats. */
        kernel = (struct tb_tcp_ceilings){0};
        const int before = reads;
        WORLD_UNTIL(&w.net, reads >= before + 4);
        assert_true(knows(west, raised));
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
