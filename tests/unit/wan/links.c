/* links.c - two and three gateways in one process over loopback TLS. */
#include "links_world.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

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
static void who_says_nothing_has_a_loop_a_core(void **state)
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

/* P1: what arrives is what was sealed, bit for bit, also by zstd; and each side knows that it did. */
static void transfer(enum tb_choice_wish codec, bool receiver_dials)
{
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 1, 2, 20 << 20);
    struct site *east = site_new(&w, "east", receiver_dials), *west = site_new(&w, "west", !receiver_dials);
    east->options.codec = codec;
    site_peer(east, west, !receiver_dials, false);
    site_peer(west, east, receiver_dials, true);
    site_start(east);
    site_start(west);
    site_publish(east, &t);
    WORLD_UNTIL(&w.net, west->landed == 1 && east->peer_held == 1);
    check_equal(site_copy(west, &t), &t);
    assert_int_equal(site_stats(west, 0).chunks_received, t.chunks);
    assert_int_equal(site_stats(west, 0).chunks_duplicate, 0);
    assert_int_equal(site_stats(west, 0).chunks_bad, 0);
    if (codec == TB_CHOICE_ZSTD) assert_true(site_stats(east, 0).bytes_sent < t.total_bytes * 3 / 4);
    assert_int_equal(east->ups, 1);
    assert_int_equal(east->downs, 0);
    links_world_fini(&w);
    truth_free(&t);
}

static void a_version_crosses_bit_exact(void **state)
{
    (void)state;
    transfer(TB_CHOICE_RAW, true);
}

static void the_side_that_holds_may_dial(void **state)
{
    (void)state;
    transfer(TB_CHOICE_RAW, false);
}

static void a_version_crosses_compressed(void **state)
{
    (void)state;
    transfer(TB_CHOICE_ZSTD, true);
}

/* East has the version, west lands it. The receiver dials, east listens. */
struct pair_of_sites {
    struct links_world w;
    struct truth t;
    struct site *east, *west;
};

static void pair_of_sites_make(struct pair_of_sites *p, uint32_t shards, uint64_t shard_bytes)
{
    links_world_init(&p->w);
    truth_make(&p->t, 42, shards, shard_bytes);
    p->east = site_new(&p->w, "east", true);
    p->west = site_new(&p->w, "west", false);
    site_peer(p->east, p->west, false, false);
    site_peer(p->west, p->east, true, true);
}

static void pair_of_sites_free(struct pair_of_sites *p)
{
    links_world_fini(&p->w);
    truth_free(&p->t);
}

static uint32_t held_at(struct site *s, const struct truth *t)
{
    const struct copy *c = site_copy(s, t);
    return c != NULL ? copy_held(c) : 0;
}

/* P5: streams are cut again and again; what was acknowledged is not sent again, and it arrives whole. */
static void lost_streams_repeat_nothing_that_arrived(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 96 << 20);
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    int cut = 0;
    for (uint32_t at = 8; at < 72; at += 8) {
        WORLD_UNTIL(&p.w.net, held_at(p.west, &p.t) >= at);
        cut += cut_streams(at % 16 == 0 ? p.east : p.west, 0, 2);
    }
    WORLD_UNTIL(&p.w.net, p.west->landed == 1 && p.east->peer_held == 1);
    check_equal(site_copy(p.west, &p.t), &p.t);
    const struct tb_links_stats west = site_stats(p.west, 0);
    assert_true(cut > 0);
    assert_int_equal(p.west->downs, 0);
    assert_true(west.streams_lost > 0);
    assert_int_equal(west.chunks_duplicate, 0);
    assert_int_equal(west.chunks_received, p.t.chunks);
    pair_of_sites_free(&p);
}

/* P5: everything is cut; the session comes back and goes on where the peer's held bits say. Counted in bytes. */
static void a_cut_of_everything_resumes(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 2, 48 << 20);
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, held_at(p.west, &p.t) >= 20);
    assert_true(cut_all(&p.w, p.east->port) > 2);
    WORLD_UNTIL(&p.w.net, p.west->downs == 1);
    WORLD_UNTIL(&p.w.net, held_at(p.west, &p.t) >= 50);
    assert_true(cut_all(&p.w, p.east->port) > 2);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1 && p.east->peer_held == 1);
    check_equal(site_copy(p.west, &p.t), &p.t);
    const struct tb_links_stats west = site_stats(p.west, 0);
    assert_int_equal(west.sessions, 3);
    assert_int_equal(west.chunks_duplicate, 0);
    assert_int_equal(west.chunks_received, p.t.chunks);
    /* Only chunks that were half here at a cut came twice: at most one a stream and cut. */
    assert_true(west.bytes_received <= p.t.total_bytes + p.t.chunks * 28 + 2 * 4 * ((uint64_t)2 << 20));
    pair_of_sites_free(&p);
}

/* P3, P5: the sending gateway is closed and started again in the middle; the receiver's landing goes on by itself. */
static void a_sender_that_restarts_goes_on(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 64 << 20);
    site_start(p.east);
    site_start(p.west);
    struct copy *c = site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, held_at(p.west, &p.t) >= 10);
    site_close(p.east);
    WORLD_UNTIL(&p.w.net, p.west->downs == 1);
    const uint32_t held = held_at(p.west, &p.t);
    p.east->options.incarnation = 2;
    site_start(p.east);
    CHECK_OK(tb_links_offer(p.east->links, &c->key, c->places));
    WORLD_UNTIL(&p.w.net, p.west->landed == 1 && p.east->peer_held == 1);
    check_equal(site_copy(p.west, &p.t), &p.t);
    assert_true(site_stats(p.east, 0).chunks_sent <= p.t.chunks - held);
    assert_int_equal(site_stats(p.west, 0).chunks_received, p.t.chunks);
    assert_int_equal(site_stats(p.west, 0).chunks_duplicate, 0);
    pair_of_sites_free(&p);
}

/* P6: a region that fills is offered at once, and the third site completes from the second. */
static void a_relay_passes_each_chunk_on(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 3, 2, 24 << 20);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", true);
    struct site *north = site_new(&w, "north", false);
    site_peer(east, west, false, false);
    site_peer(west, east, true, true);
    site_peer(west, north, false, false);
    site_peer(north, west, true, true);
    site_start(east);
    site_start(west);
    site_start(north);
    WORLD_UNTIL(&w.net, west->ups == 2 && north->ups == 1);
    /* East holds half of it for now: north must get that half before west is whole. */
    struct copy *c = site_place(east, &t.key, t.manifests);
    for (uint32_t s = 0; s < 2; s++) {
        memcpy(c->places[s].bytes, t.bytes[s], t.manifests[s].bytes);
        for (uint32_t k = 0; k < t.manifests[s].chunk_count; k += 2)
            tb_bitmap_set(c->places[s].held, k);
    }
    CHECK_OK(tb_links_offer(east->links, &c->key, c->places));
    WORLD_UNTIL(&w.net, held_at(north, &t) == copy_held(c));
    assert_int_equal(west->landed, 0);
    for (uint32_t s = 0; s < 2; s++)
        for (uint32_t k = 1; k < t.manifests[s].chunk_count; k += 2)
            tb_bitmap_set(c->places[s].held, k);
    WORLD_UNTIL(&w.net,
                north->landed == 1 && west->landed == 1 && east->peer_held == 1 && west->peer_held == 1);
    check_equal(site_copy(north, &t), &t);
    SITE_SENT(&w, east, t.chunks); /* the byte crossed once */
    struct tb_links_report report = {.uid = t.key.uid, .state = TB_LINKS_REPORT_ACTIVATED};
    CHECK_OK(tb_name_set(&report.site, "north"));
    CHECK_OK(tb_links_tell(north->links, 0, &report));
    WORLD_UNTIL(&w.net, west->reports == 1);
    assert_string_equal(west->report.site.text, "north");
    links_world_fini(&w);
    truth_free(&t);
}

/* P1, P10: bytes that changed after their digest are refused, counted and asked for again; when that does not help the landing fails. */
static void a_corrupted_chunk_is_refused(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 16 << 20);
    p.west->stop_on_failure = true;
    site_start(p.east);
    site_start(p.west);
    BOTH_UP(&p.w, p.west, p.east);
    struct copy *c = site_place(p.east, &p.t.key, p.t.manifests);
    memcpy(c->places[0].bytes, p.t.bytes[0], p.t.manifests[0].bytes);
    for (uint32_t k = 0; k < p.t.chunks; k++)
        tb_bitmap_set(c->places[0].held, k);
    c->places[0].bytes[c->manifests[0].chunks[5].offset + 99] ^= 1;
    CHECK_OK(tb_links_offer(p.east->links, &c->key, c->places));
    WORLD_UNTIL(&p.w.net, p.west->failed == 1 && p.east->bad_ours == TB_LINKS_REFUSALS_MAX);
    CHECK_STATUS(p.west->failed_why, TB_CHUNK_DIGEST);
    assert_int_equal(p.west->bad_theirs, TB_LINKS_REFUSALS_MAX);
    assert_int_equal(p.west->bad.chunk, 5);
    assert_int_equal(p.east->bad.chunk, 5);
    assert_true(tb_id_is_zero(&p.east->bad.base));
    assert_int_equal(site_stats(p.west, 0).chunks_bad, TB_LINKS_REFUSALS_MAX);
    assert_int_equal(site_stats(p.east, 0).chunks_refused, TB_LINKS_REFUSALS_MAX);
    assert_false(tb_place_held(&site_copy(p.west, &p.t)->places[0], 5));
    pair_of_sites_free(&p);
}

/* P6: what failed may be landed again from the same peer, with what is held: found by the seeded world. */
static void a_landing_that_failed_begins_again(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 16 << 20);
    site_start(p.east);
    site_start(p.west);
    BOTH_UP(&p.w, p.west, p.east);
    struct copy *c = site_place(p.east, &p.t.key, p.t.manifests);
    memcpy(c->places[0].bytes, p.t.bytes[0], p.t.manifests[0].bytes);
    for (uint32_t k = 0; k < p.t.chunks; k++)
        tb_bitmap_set(c->places[0].held, k);
    uint8_t *spoiled = &c->places[0].bytes[c->manifests[0].chunks[5].offset + 99];
    *spoiled ^= 1;
    CHECK_OK(tb_links_offer(p.east->links, &c->key, c->places));
    WORLD_UNTIL(&p.w.net, p.west->failed == 1 && p.east->bad_ours == TB_LINKS_REFUSALS_MAX);
    *spoiled ^= 1;
    CHECK_OK(tb_links_land(p.west->links, 0, &p.t.key, site_copy(p.west, &p.t)->places));
    CHECK_STATUS(tb_links_land(p.west->links, 0, &p.t.key, site_copy(p.west, &p.t)->places), TB_DONE_BEFORE);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1);
    pair_of_sites_free(&p);
}

/* And its twin: bytes that are mended before the last try land. */
static void a_corrupted_chunk_is_asked_for_again(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 16 << 20);
    site_start(p.east);
    site_start(p.west);
    BOTH_UP(&p.w, p.west, p.east);
    struct copy *c = site_place(p.east, &p.t.key, p.t.manifests);
    memcpy(c->places[0].bytes, p.t.bytes[0], p.t.manifests[0].bytes);
    for (uint32_t k = 0; k < p.t.chunks; k++)
        tb_bitmap_set(c->places[0].held, k);
    p.east->mend = c->places[0].bytes + c->manifests[0].chunks[5].offset + 99; /* at the first refusal */
    *p.east->mend ^= 1;
    CHECK_OK(tb_links_offer(p.east->links, &c->key, c->places));
    WORLD_UNTIL(&p.w.net, p.west->landed == 1);
    check_equal(site_copy(p.west, &p.t), &p.t);
    assert_int_equal(site_stats(p.west, 0).chunks_bad, 1);
    assert_int_equal(p.east->bad_ours, 1);
    pair_of_sites_free(&p);
}

/* Both dial; one session stays: the one that the lexically smaller URI dialled. */
static void of_two_sessions_one_stays(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 5, 1, 8 << 20);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", true);
    site_peer(east, west, true, false);
    site_peer(west, east, true, true);
    site_start(east);
    site_start(west);
    BOTH_UP(&w, west, east);
    world_turns(&w.net, 100);
    WORLD_UNTIL(&w.net, site_stats(east, 0).dialled_by_us && !site_stats(west, 0).dialled_by_us);
    const uint64_t sessions = site_stats(east, 0).sessions;
    assert_true(sessions <= 2);
    assert_int_equal(east->ups, 1);
    assert_int_equal(east->downs, 0);
    site_publish(east, &t);
    WORLD_UNTIL(&w.net, west->landed == 1);
    assert_int_equal(site_stats(east, 0).sessions, sessions);
    links_world_fini(&w);
    truth_free(&t);
}

/* P8: nothing is told of a model that the peer may not read. */
static void who_may_not_read_hears_nothing(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 4 << 20);
    p.east->deny = true;
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    BOTH_UP(&p.w, p.west, p.east);
    WORLD_UNTIL(&p.w.net, site_stats(p.west, 0).refused == 1);
    world_turns(&p.w.net, 20);
    assert_int_equal(p.west->versions, 0);
    assert_int_equal(site_stats(p.east, 0).refused, 1);
    pair_of_sites_free(&p);
}

/* P8: a CA that nobody trusts. West's own CA signed it, but east does not know that CA. */
static void a_wrong_ca_gets_no_session(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 4 << 20);
    world_issue(&p.w.net, "evil", "gw", "tombolo://evil/gw");
    p.east->tls = world_tls(&p.w.net, "east", "gw", "east"); /* trusts its own alone */
    site_start(p.east);
    site_start(p.west);
    WORLD_UNTIL(&p.w.net,
                tb_links_strangers_refused(p.east->links) >= 2 && site_stats(p.west, 0).dials_failed >= 2);
    assert_int_equal(p.east->ups + p.west->ups, 0);
    pair_of_sites_free(&p);
}

/* P8: a good certificate of a site that is no peer. */
static void a_wrong_site_gets_no_session(void **state)
{
    (void)state;
    struct links_world w;
    links_world_init(&w);
    struct site *east = site_new(&w, "east", true), *south = site_new(&w, "south", false);
    struct site *west = site_new(&w, "west", false);
    site_peer(east, west, false, false);
    site_peer(south, east, true, true);
    site_start(east);
    site_start(south);
    WORLD_UNTIL(&w.net, tb_links_strangers_refused(east->links) >= 2);
    assert_int_equal(south->ups + east->ups, 0);
    links_world_fini(&w);
}

/* P8: the dialler expects a site, and another answers at that address. */
static void a_dialler_checks_who_answers(void **state)
{
    (void)state;
    struct links_world w;
    links_world_init(&w);
    struct site *east = site_new(&w, "east", true), *south = site_new(&w, "south", true);
    struct site *west = site_new(&w, "west", false);
    site_peer(south, west, false, false);
    site_peer(west, east, true, true);
    snprintf(west->addresses[0], sizeof west->addresses[0], "127.0.0.1:%u", south->port);
    site_start(south);
    site_start(west);
    WORLD_UNTIL(&w.net, site_stats(west, 0).dials_failed >= 2);
    assert_int_equal(south->ups + west->ups, 0);
    CHECK_STATUS(site_stats(west, 0).last_why, TB_OK); /* there never was a session */
    links_world_fini(&w);
}

/* P8: an expired certificate. */
static void an_expired_certificate_gets_no_session(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 4 << 20);
    p.west->tls = world_tls_expiring(&p.w.net, "west", "soon", "tombolo://west/gw", "west");
    char why[256];
    CHECK_OK(
        tb_tls_add_site_ca(p.west->tls, &p.east->options.site, world_path(&p.w.net, "east", "ca.crt"), why));
    const uint64_t expires = tb_tls_expires_wall_s(p.west->tls);
    WORLD_UNTIL(&p.w.net, tb_clock_wall_ms() / 1000 > expires);
    site_start(p.east);
    site_start(p.west);
    WORLD_UNTIL(&p.w.net, tb_links_strangers_refused(p.east->links) >= 2);
    assert_int_equal(p.east->ups + p.west->ups, 0);
    pair_of_sites_free(&p);
}

/* P7, P10: garbage in clear on the port costs a connection and a line each, and hurts nobody. */
static void plaintext_garbage_is_refused(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 4 << 20);
    site_start(p.east);
    site_start(p.west);
    struct tb_address at;
    assert_true(tb_links_address(p.east->links, &at));
    const char garbage[] = "GET / HTTP/1.1\r\nHost: east\r\n\r\n";
    int fds[8];
    for (int i = 0; i < 8; i++) {
        fds[i] = raw_connect(&at);
        assert_int_equal(write(fds[i], garbage, sizeof garbage), sizeof garbage);
    }
    WORLD_UNTIL(&p.w.net, tb_links_strangers_refused(p.east->links) == 8);
    for (int i = 0; i < 8; i++)
        close(fds[i]);
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1);
    pair_of_sites_free(&p);
}

/* A catalog that restarted from an older state is refused, with the number it has to get above. */
static void an_older_incarnation_is_refused(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 4 << 20);
    p.west->options.incarnation = 9;
    site_start(p.east);
    site_start(p.west);
    BOTH_UP(&p.w, p.west, p.east);
    site_close(p.west);
    p.west->options.incarnation = 8;
    site_start(p.west);
    WORLD_UNTIL(&p.w.net, p.west->refused_by_peer > 0);
    CHECK_STATUS(p.west->refused_why, TB_PEER_STALE);
    assert_int_equal(p.west->refused_detail, 9);
    tb_links_set_incarnation(p.west->links, 10);
    WORLD_UNTIL(&p.w.net, p.west->ups == 2);
    pair_of_sites_free(&p);
}

/* The twin: the acceptor is in the session already when the dialler judges its HELLO, and hears of it all the same. */
static void an_older_incarnation_of_the_acceptor_is_told(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 4 << 20);
    p.east->options.incarnation = 9;
    site_start(p.east);
    site_start(p.west);
    BOTH_UP(&p.w, p.west, p.east);
    site_close(p.east);
    p.east->options.incarnation = 8;
    site_start(p.east);
    WORLD_UNTIL(&p.w.net, p.east->refused_by_peer > 0);
    CHECK_STATUS(p.east->refused_why, TB_PEER_STALE);
    assert_int_equal(p.east->refused_detail, 9);
    pair_of_sites_free(&p);
}

static void note_done(void *user)
{
    ++*(int *)user;
}

/* The owner gets its memory back in the middle of a crossing, at both ends; the peer hears of it. */
static void places_are_given_back_in_mid_crossing(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 96 << 20);
    site_start(p.east);
    site_start(p.west);
    struct copy *c = site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, held_at(p.west, &p.t) >= 10);
    int done = 0;
    CHECK_OK(tb_links_retract(p.east->links, &p.t.key.uid, TB_SUPERSEDED, note_done, &done));
    WORLD_UNTIL(&p.w.net, done == 1);
    memset(c->places[0].bytes, 0xee,
           p.t.manifests[0].bytes); /* ours again: nobody reads it (sanitizers watch) */
    copy_free(c);
    WORLD_UNTIL(&p.w.net, p.west->gone == 1 && p.west->failed == 1);
    CHECK_STATUS(p.west->gone_why, TB_SUPERSEDED);
    CHECK_STATUS(tb_links_retract(p.east->links, &p.t.key.uid, TB_SUPERSEDED, note_done, &done),
                 TB_NOT_FOUND);
    CHECK_OK(tb_links_land_stop(p.west->links, &p.t.key.uid, note_done, &done));
    CHECK_OK(tb_links_retract(p.west->links, &p.t.key.uid, TB_SUPERSEDED, note_done, &done));
    WORLD_UNTIL(&p.w.net, done == 3);
    assert_int_equal(site_stats(p.west, 0).chunks_bad, 0);
    copy_free(site_copy(p.west, &p.t));
    /* The link lives on. */
    struct truth t;
    truth_make(&t, 43, 1, 8 << 20);
    site_publish(p.east, &t);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1);
    check_equal(site_copy(p.west, &t), &t);
    truth_free(&t);
    pair_of_sites_free(&p);
}

/* The receiver stops a landing in the middle: its places are its own at once, and another landing may begin. */
static void a_landing_is_stopped_and_begun_again(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 96 << 20);
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, held_at(p.west, &p.t) >= 10);
    int done = 0;
    struct copy *c = site_copy(p.west, &p.t);
    CHECK_OK(tb_links_land_stop(p.west->links, &p.t.key.uid, note_done, &done));
    WORLD_UNTIL(&p.w.net, done == 1);
    const uint32_t held = copy_held(c);
    for (uint32_t w = 0; w < TB_BITMAP_WORDS(p.t.chunks); w++)
        assert_int_equal(c->places[0].claimed[w], 0);
    world_turns(&p.w.net, 20);
    assert_int_equal(copy_held(c), held);
    CHECK_OK(tb_links_land(p.west->links, 0, &c->key, c->places));
    WORLD_UNTIL(&p.w.net, p.west->landed == 1 && p.east->peer_held == 1);
    check_equal(c, &p.t);
    pair_of_sites_free(&p);
}

/* P4, P6: two sites hold it, one lands from both; a chunk is written once, and the loss of one source ends nothing. */
static void two_sources_fill_one_place(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 6, 1, 64 << 20);
    struct site *east = site_new(&w, "east", true), *north = site_new(&w, "north", true);
    struct site *west = site_new(&w, "west", false);
    site_peer(east, west, false, false);
    site_peer(north, west, false, false);
    site_peer(west, east, true, true);
    site_peer(west, north, true, true);
    west->no_land = true;
    site_start(east);
    site_start(north);
    site_start(west);
    site_publish(east, &t);
    site_publish(north, &t);
    WORLD_UNTIL(&w.net, west->versions == 2);
    struct copy *c = site_place(west, &t.key, t.manifests);
    CHECK_OK(tb_links_land(west->links, 0, &c->key, c->places));
    CHECK_OK(tb_links_land(west->links, 1, &c->key, c->places));
    CHECK_STATUS(tb_links_land(west->links, 1, &c->key, c->places), TB_DONE_BEFORE);
    WORLD_UNTIL(&w.net, copy_held(c) >= 10);
    site_close(north);
    WORLD_UNTIL(&w.net, copy_whole(c) && west->landed >= 1);
    check_equal(c, &t);
    assert_int_equal(site_stats(west, 0).chunks_bad + site_stats(west, 1).chunks_bad, 0);
    links_world_fini(&w);
    truth_free(&t);
}

/* The first chunk, and no more. */
static void publish_first_chunk(struct site *s, const struct truth *t)
{
    uint32_t bytes = 0;
    struct copy *c = site_place(s, &t->key, t->manifests);
    memcpy(tb_place_chunk(&c->places[0], 0, &bytes), t->bytes[0], t->manifests[0].chunks[0].bytes);
    tb_bitmap_set(c->places[0].held, 0);
    CHECK_OK(tb_links_offer(s->links, &c->key, c->places));
}

/* P6: of peers that cannot send at once one began, and lacks the rest: another, which has it, has its turn. */
static void who_brings_nothing_has_had_its_turn(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    links_world_init(&w);
    truth_make(&t, 6, 1, 4 << 20);
    struct site *east = site_new(&w, "east", true), *north = site_new(&w, "north", true);
    struct site *west = site_new(&w, "west", false);
    site_peer(east, west, false, false);
    site_peer(north, west, false, false);
    site_peer(west, east, true, true);
    site_peer(west, north, true, true);
    west->options.protocol_max = 1;
    west->no_land = true;
    site_start(east);
    site_start(north);
    site_start(west);
    site_publish(east, &t);
    publish_first_chunk(north, &t);
    WORLD_UNTIL(&w.net, west->versions == 2);
    struct copy *c = site_place(west, &t.key, t.manifests);
    CHECK_OK(tb_links_land(west->links, 1, &c->key, c->places));
    WORLD_UNTIL(&w.net, copy_held(c) == 1);
    CHECK_OK(tb_links_land(west->links, 0, &c->key, c->places));
    WORLD_UNTIL(&w.net, copy_whole(c) && west->landed >= 1);
    check_equal(c, &t);
    links_world_fini(&w);
    truth_free(&t);
}

/* An operator's withdrawal reaches a peer that was away when it happened. */
static void a_withdrawal_is_told_after_a_reconnection(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 4 << 20);
    site_start(p.east);
    site_publish(p.east, &p.t);
    CHECK_OK(tb_links_withdrawn(p.east->links, &p.t.key));
    site_start(p.west);
    WORLD_UNTIL(&p.w.net, p.west->withdrawn == 1 && p.west->landed == 1);
    CHECK_STATUS(tb_links_withdrawn(p.east->links, &p.t.key), TB_DONE_BEFORE);
    pair_of_sites_free(&p);
}

/* A peer that restarts and holds the version already says so: nothing crosses. */
static void what_is_held_already_does_not_cross(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 8 << 20);
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    site_publish(p.west, &p.t);
    WORLD_UNTIL(&p.w.net, p.east->peer_held == 1);
    assert_int_equal(site_stats(p.east, 0).bytes_sent, 0);
    assert_int_equal(p.west->manifests, 0);
    pair_of_sites_free(&p);
}

/* P7: manifests over the limit fail the ask, not the link. */
static void manifests_over_the_limit_are_refused(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 8 << 20);
    p.west->options.manifest_bytes_max = 500;
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, p.west->too_large == 1);
    assert_true(p.west->too_large_bytes > 500);
    world_turns(&p.w.net, 20);
    assert_int_equal(p.west->failed, 0);
    assert_true(site_stats(p.west, 0).up);
    pair_of_sites_free(&p);
}

/* P6: on a slow path the kernel takes no byte from a stream for longer than a stream may stand still, while the peer acknowledges what waits.
 * The stream is not lost: else each is, in the middle of its chunk, and no chunk ever crosses. */
static void a_stream_that_is_acknowledged_is_not_idle(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 3 << 20);
    p.east->options.streams = p.west->options.streams = 1;
    p.east->options.stream_idle_ms = 1000;
    site_start(p.east);
    site_start(p.west);
    BOTH_UP(&p.w, p.west, p.east);
    WORLD_UNTIL(&p.w.net, pace_stream(p.east, 0, 0, 300000)); /* 512 KiB, half of what may wait, take 1.7 s */
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1);
    assert_int_equal(site_stats(p.east, 0).streams_lost, 0);
    assert_int_equal(site_stats(p.west, 0).streams_lost, 0);
    check_equal(site_copy(p.west, &p.t), &p.t);
    pair_of_sites_free(&p);
}

/* P4, P6: one of four streams is let send 64 kB/s in the middle of a version. What it has goes again by the others, lands once, and nobody
 * waits for it: when all is there, bytes of it are still under way. */
static void a_slow_stream_is_not_waited_for(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 96 << 20);
    p.east->options.hedge_permille = 60;
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, held_at(p.west, &p.t) >= 4);
    assert_true(pace_stream(p.east, 0, 1, 64000));
    WORLD_UNTIL(&p.w.net, p.west->landed == 1 && p.east->peer_held == 1);
    check_equal(site_copy(p.west, &p.t), &p.t);
    const struct tb_links_stats east = site_stats(p.east, 0), west = site_stats(p.west, 0);
    assert_true(east.bytes_hedged > 0);
    assert_true(east.bytes_hedged * 1000 <= p.t.total_bytes * 60);
    assert_true(west.bytes_received < east.bytes_sent);
    assert_int_equal(west.chunks_bad, 0);
    assert_int_equal(p.west->downs, 0);
    /* The slow one is let go: what it brings now is dropped, and it carries the next version. */
    assert_true(pace_stream(p.east, 0, 1, UINT64_MAX));
    pair_of_sites_free(&p);
}

/* Nothing that is open has worn out, and there are as many as before. */
static bool all_are_fresh(struct site *s)
{
    const struct tb_links_stats stats = site_stats(s, 0);
    for (uint32_t i = 0; i < stats.stream_count; i++)
        if (stats.streams[i].records >= 1024) return false;
    return stats.stream_count == 4;
}

/* P6, P8: with a tiny limit every stream wears out again and again in one version: they are replaced, nothing is sent twice, and none that
 * has worn out stays. */
static void streams_are_replaced_before_their_keys_wear_out(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 256 << 20);
    p.east->options.records_max = p.west->options.records_max = 1024;
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1 && p.east->peer_held == 1);
    check_equal(site_copy(p.west, &p.t), &p.t);
    assert_int_equal(site_stats(p.west, 0).chunks_duplicate, 0);
    assert_int_equal(site_stats(p.west, 0).chunks_received, p.t.chunks);
    assert_int_equal(p.west->downs, 0);
    /* The worn ones are closed once nothing moves on them, or ended at twice the limit where fresh ones were slow to come. */
    WORLD_UNTIL(&p.w.net, all_are_fresh(p.west));
    pair_of_sites_free(&p);
}

/* P6: what has worn out is closed by the dialler when a fresh one is there, also where it is the only one: on one stream nothing comes near
 * twice the limit, at which it would end by itself, however slow the machine is. */
static void a_worn_stream_is_closed_for_a_fresh_one(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 24 << 20); /* one and a half times the limit, in records of 16 KiB */
    p.east->options.streams = p.west->options.streams = 1;
    p.east->options.records_max = p.west->options.records_max = 1024;
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1 && p.east->peer_held == 1);
    WORLD_UNTIL(&p.w.net, site_stats(p.west, 0).streams_rotated > 0);
    const struct tb_links_stats west = site_stats(p.west, 0);
    for (uint32_t i = 0; i < west.stream_count; i++)
        assert_true(west.streams[i].records <=
                    2 * 1024 + 2 * (1 << 20) / 16384); /* and the chunk in its hands */
    assert_int_equal(west.chunks_duplicate, 0);
    assert_int_equal(p.west->downs, 0);
    pair_of_sites_free(&p);
}

/* P10: a congestion control that this kernel does not have is refused when the links are opened, with what there is. */
static void a_congestion_control_that_is_not_offered_is_refused(void **state)
{
    (void)state;
    struct pair_of_sites p;
    char error[256];
    pair_of_sites_make(&p, 1, 1 << 20);
    site_start(p.west);
    p.east->peers[0].congestion = "no_such";
    p.east->options.peers = p.east->peers;
    p.east->options.tls = p.west->tls; /* not looked at before */
    p.east->options.site = p.west->options.site;
    CHECK_STATUS(tb_links_new(&p.east->options, &p.east->links, error), TB_SITE_CONFIG);
    assert_non_null(strstr(error, "no_such"));
    assert_non_null(strstr(error, "reno"));
    p.east->links = NULL;
    pair_of_sites_free(&p);
}

/* Streams take what is asked for, at both ends: the side that accepts sends too. */
static void both_ends_have_the_congestion_control_asked_for(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 1 << 20);
    p.east->peers[0].congestion = p.west->peers[0].congestion = "reno";
    site_start(p.east);
    site_start(p.west);
    WORLD_UNTIL(&p.w.net, site_stats(p.east, 0).streams[0].open && site_stats(p.west, 0).streams[0].open);
    assert_string_equal(site_stats(p.east, 0).streams[0].congestion, "reno");
    assert_string_equal(site_stats(p.west, 0).streams[0].congestion, "reno");
    pair_of_sites_free(&p);
}

/* Where the receiver dials, the sender says how many streams would serve it, and they are opened; a number of the operator's stays. */
static void the_dialler_opens_what_the_sender_wants(void **state)
{
    (void)state;
    struct pair_of_sites p;
    pair_of_sites_make(&p, 1, 64 << 20);
    p.east->options.streams = p.west->options.streams = 0; /* auto: near, so as many as there are threads */
    p.east->options.threads = 5;
    p.west->options.threads = 2;
    site_start(p.east);
    site_start(p.west);
    site_publish(p.east, &p.t);
    WORLD_UNTIL(&p.w.net, p.west->landed == 1 && p.east->peer_held == 1);
    WORLD_UNTIL(&p.w.net,
                site_stats(p.west, 0).streams_wanted == 5); /* fewer once the shortest round trip is seen */
    WORLD_UNTIL(&p.w.net, site_stats(p.east, 0).stream_count == 5);
    check_equal(site_copy(p.west, &p.t), &p.t);
    assert_int_equal(p.west->downs, 0);
    pair_of_sites_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_is_a_core),
        cmocka_unit_test(who_says_nothing_has_a_loop_a_core),
        cmocka_unit_test(a_version_crosses_bit_exact),
        cmocka_unit_test(the_side_that_holds_may_dial),
        cmocka_unit_test(a_version_crosses_compressed),
        cmocka_unit_test(lost_streams_repeat_nothing_that_arrived),
        cmocka_unit_test(a_stream_that_is_acknowledged_is_not_idle),
        cmocka_unit_test(a_slow_stream_is_not_waited_for),
        cmocka_unit_test(the_dialler_opens_what_the_sender_wants),
        cmocka_unit_test(streams_are_replaced_before_their_keys_wear_out),
        cmocka_unit_test(a_worn_stream_is_closed_for_a_fresh_one),
        cmocka_unit_test(a_congestion_control_that_is_not_offered_is_refused),
        cmocka_unit_test(both_ends_have_the_congestion_control_asked_for),
        cmocka_unit_test(a_cut_of_everything_resumes),
        cmocka_unit_test(a_sender_that_restarts_goes_on),
        cmocka_unit_test(a_relay_passes_each_chunk_on),
        cmocka_unit_test(a_corrupted_chunk_is_refused),
        cmocka_unit_test(a_landing_that_failed_begins_again),
        cmocka_unit_test(a_corrupted_chunk_is_asked_for_again),
        cmocka_unit_test(of_two_sessions_one_stays),
        cmocka_unit_test(who_may_not_read_hears_nothing),
        cmocka_unit_test(a_wrong_ca_gets_no_session),
        cmocka_unit_test(a_wrong_site_gets_no_session),
        cmocka_unit_test(a_dialler_checks_who_answers),
        cmocka_unit_test(an_expired_certificate_gets_no_session),
        cmocka_unit_test(plaintext_garbage_is_refused),
        cmocka_unit_test(an_older_incarnation_is_refused),
        cmocka_unit_test(an_older_incarnation_of_the_acceptor_is_told),
        cmocka_unit_test(places_are_given_back_in_mid_crossing),
        cmocka_unit_test(a_landing_is_stopped_and_begun_again),
        cmocka_unit_test(two_sources_fill_one_place),
        cmocka_unit_test(who_brings_nothing_has_had_its_turn),
        cmocka_unit_test(a_withdrawal_is_told_after_a_reconnection),
        cmocka_unit_test(what_is_held_already_does_not_cross),
        cmocka_unit_test(manifests_over_the_limit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
