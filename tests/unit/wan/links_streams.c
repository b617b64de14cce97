/* links_streams.c - how many loops and streams a link has, and when a stream is replaced.
 *
 * Covers: wan/stream/stream.c wan/stream/stream_loop.c wan/stream/stream_thread.c
 * Covers: wan/link/streams/link_tune.c wan/link/streams/stream_table.c wan/link/links_options.c */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "check.h"
#include "links_pair.h"
#include "wan/link/links_stats.h"

static void a_loop_is_a_core(void **state)
{
    (void)state;
    assert_int_equal(tb_links_threads(1), 1);
    assert_int_equal(tb_links_threads(24), 24);
    assert_int_equal(tb_links_threads(192), 32);
}

static uint32_t threads_of_ours(void)
{
    uint32_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *e; (e = readdir(tasks)) != NULL;)
        count += e->d_name[0] != '.';
    closedir(tasks);
    return count;
}

static void *nothing(void *arg)
{
    return arg;
}

/* A sanitizer starts one of its own beside the first of ours. */
static void have_a_thread(void)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, nothing, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Of the cores that this process may use: one of them, and all. */
static void a_configuration_without_loops_has_one_a_core(void **state)
{
    cpu_set_t all, some;
    (void)state;
    have_a_thread();
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int one = 0; one < 2; one++) {
        struct links_world w;
        links_world_init(&w);
        struct site *east = site_new(&w, "east", true);
        east->options.threads = 0;
        CPU_ZERO(&some);
        for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&some) == 0; cpu++)
            if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &some);
        assert_int_equal(sched_setaffinity(0, sizeof all, one == 1 ? &some : &all), 0);
        const uint32_t before = threads_of_ours();
        site_start(east);
        const uint32_t loops = threads_of_ours() - before;
        assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
        assert_int_equal(loops, tb_links_threads(one == 1 ? 1 : (uint32_t)CPU_COUNT(&all)));
        links_world_fini(&w);
    }
}

/* Where the receiver dials, the sender says how many streams would serve it, and they are opened; a
 * number of the operator's stays. */
static void the_dialler_opens_what_the_sender_wants(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 64 << 20);
    p->east->options.streams = p->west->options.streams = 0; /* auto: near, so as many as there are threads */
    p->east->options.threads = 5;
    p->west->options.threads = 2;
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, p->west->landed == 1 && p->east->peer_held == 1);
    WORLD_UNTIL(&p->w.net,
                site_stats(p->west, 0).streams_wanted == 5); /* fewer once the shortest round trip is seen */
    WORLD_UNTIL(&p->w.net, site_stats(p->east, 0).stream_count == 5);
    check_equal(site_copy(p->west, &p->t), &p->t);
    assert_int_equal(p->west->downs, 0);
}

/* Nothing that is open has worn out, and there are as many as before. */
static bool all_are_fresh(struct site *s)
{
    const struct tb_links_stats stats = site_stats(s, 0);
    for (uint32_t i = 0; i < stats.stream_count; i++)
        if (stats.streams[i].records >= 1024) return false;
    return stats.stream_count == 4;
}

/* P6, P8: with a tiny limit every stream wears out again and again in one version: they are
 * replaced, nothing is sent twice, and none that has worn out stays. */
static void streams_are_replaced_before_their_keys_wear_out(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 256 << 20);
    p->east->options.records_max = p->west->options.records_max = 1024;
    pair_publish(p);
    pair_landed(p);
    assert_int_equal(site_stats(p->west, 0).chunks_duplicate, 0);
    assert_int_equal(site_stats(p->west, 0).chunks_received, p->t.chunks);
    assert_int_equal(p->west->downs, 0);
    /* The worn ones are closed once nothing moves on them, or ended at twice the limit where fresh
     * ones were slow to come. */
    WORLD_UNTIL(&p->w.net, all_are_fresh(p->west));
}

/* P6: a stream that has worn out is closed by the dialler when a fresh one is there, also where it
 * is the only one: on one stream nothing comes near twice the limit, at which it would end by
 * itself, however slow the machine is. */
static void a_worn_stream_is_closed_for_a_fresh_one(void **state)
{
    struct pair_of_sites *p =
        pair_of(state, 1, 24 << 20); /* one and a half times the limit, in records of 16 KiB */
    p->east->options.streams = p->west->options.streams = 1;
    p->east->options.records_max = p->west->options.records_max = 1024;
    pair_publish(p);
    WORLD_UNTIL(&p->w.net, p->west->landed == 1 && p->east->peer_held == 1);
    WORLD_UNTIL(&p->w.net, site_stats(p->west, 0).streams_rotated > 0);
    const struct tb_links_stats west = site_stats(p->west, 0);
    for (uint32_t i = 0; i < west.stream_count; i++)
        assert_true(west.streams[i].records <=
                    2 * 1024 + 2 * (1 << 20) / 16384); /* and the chunk in its hands */
    assert_int_equal(west.chunks_duplicate, 0);
    assert_int_equal(p->west->downs, 0);
}

/* P10: a congestion control that this kernel does not have is refused when the links are
 * opened, with what there is. */
static void a_congestion_control_that_is_not_offered_is_refused(void **state)
{
    char error[256];
    struct pair_of_sites *p = pair_of(state, 1, 1 << 20);
    site_start(p->west);
    p->east->peers[0].congestion = "no_such";
    p->east->options.peers = p->east->peers;
    p->east->options.tls = p->west->tls; /* not looked at before */
    p->east->options.site = p->west->options.site;
    CHECK_STATUS(tb_links_new(&p->east->options, &p->east->links, error), TB_SITE_CONFIG);
    assert_non_null(strstr(error, "no_such"));
    assert_non_null(strstr(error, "reno"));
    p->east->links = NULL;
}

/* Streams take what is asked for, at both ends: the side that accepts sends too. */
static void both_ends_have_the_congestion_control_asked_for(void **state)
{
    struct pair_of_sites *p = pair_of(state, 1, 1 << 20);
    p->east->peers[0].congestion = p->west->peers[0].congestion = "reno";
    pair_start(p);
    WORLD_UNTIL(&p->w.net, site_stats(p->east, 0).streams[0].open && site_stats(p->west, 0).streams[0].open);
    assert_string_equal(site_stats(p->east, 0).streams[0].congestion, "reno");
    assert_string_equal(site_stats(p->west, 0).streams[0].congestion, "reno");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_is_a_core),
        cmocka_unit_test(a_configuration_without_loops_has_one_a_core),
        PAIR_TEST(the_dialler_opens_what_the_sender_wants),
        PAIR_TEST(streams_are_replaced_before_their_keys_wear_out),
        PAIR_TEST(a_worn_stream_is_closed_for_a_fresh_one),
        PAIR_TEST(a_congestion_control_that_is_not_offered_is_refused),
        PAIR_TEST(both_ends_have_the_congestion_control_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
