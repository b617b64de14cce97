/* session_admission.c - which connections come in at the workers' door. Networks that the
 * configuration names have a pool of their own, others have theirs by address, and users of the
 * host come in beside both. The last places are for publishers (P6, P7).
 *
 * Covers: gateway/daemon/sessions/session_limits.c gateway/daemon/sessions/sessions.c
 * Covers: gateway/config/bounds.c */
#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/net/endpoint.h"
#include "gateway/config/bounds.h"
#include "gateway/daemon/sessions/session_limits.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/daemon/sessions/sessions.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"

#define MODELS    "{policy: {home: east, publish: [\"unix:*\"], read: [\"unix:*\"]}}"
#define READERS   "{policy: {home: east, publish: [\"tombolo://east/worker/rank\"], read: [\"unix:*\"]}}"
#define SESSIONS  64u
#define OPEN_EACH 32u /* limits.handshakes_open, where nothing is configured */
#define DOORS_MAX 256u

struct scene {
    struct home home;
    struct tb_worker_session_door doors[DOORS_MAX]; /* of those that came in */
    uint32_t count;
};

static void begin(struct scene *s, const char *models)
{
    *s = (struct scene){.count = 0};
    home_new_with(&s->home, models, false);
    s->home.config->session_max = SESSIONS;
    home_start(&s->home);
    struct tb_worker_session_limits *l = &s->home.d->session_limits;
    assert_true(tb_network_parse("10.0.0.0/8", &l->networks[0]));
    l->network_count = 1;
}

static void leave(struct scene *s, uint32_t first)
{
    while (s->count > first)
        tb_worker_session_door_end(s->home.d, &s->doors[--s->count]);
}

static void end(struct scene *s)
{
    leave(s, 0);
    home_end(&s->home);
    home_free(&s->home);
}

/* So many of `tries` that come from there and say nothing. */
static uint32_t come_from(struct scene *s, const char *address, uint32_t tries)
{
    uint32_t in = 0;
    struct tb_address from = {.bytes = sizeof from.v4};
    from.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = inet_addr(address)};
    for (uint32_t i = 0; i < tries; i++) {
        assert_true(s->count < DOORS_MAX);
        if (!tb_worker_session_admit(s->home.d, -1, &from, false, &s->doors[s->count])) continue;
        s->count++;
        in++;
    }
    return in;
}

static bool local_comes_in(struct scene *s)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    const bool in = tb_worker_session_admit(s->home.d, ends[0], NULL, true, &s->doors[s->count]);
    s->count += in;
    (void)close(ends[0]);
    (void)close(ends[1]);
    return in;
}

static void a_network_has_a_pool_of_its_own(void **state)
{
    (void)state;
    static struct scene s;
    begin(&s, MODELS);
    const uint32_t pool = tb_bounds_networks(SESSIONS);
    assert_int_equal(come_from(&s, "192.0.2.1", OPEN_EACH + 5), OPEN_EACH);
    assert_int_equal(s.home.d->connections.refused, 5);
    /* beside what strangers have; then it is a stranger's address */
    assert_int_equal(come_from(&s, "10.0.0.1", pool), pool);
    assert_int_equal(s.home.d->session_limits.unfinished, pool);
    assert_int_equal(come_from(&s, "10.0.0.2", 100), OPEN_EACH);
    assert_int_equal(s.home.d->session_limits.unfinished, pool);
    assert_true(local_comes_in(&s));
    /* what ended leaves its place in the pool */
    leave(&s, OPEN_EACH);
    assert_int_equal(s.home.d->session_limits.unfinished, 0);
    assert_int_equal(come_from(&s, "10.0.0.3", pool), pool);
    assert_int_equal(s.home.d->session_limits.unfinished, pool);
    end(&s);
}

/* Two addresses with all that they could get held out a third. */
static void addresses_at_their_limit_leave_room(void **state)
{
    (void)state;
    static const char *const greedy[] = {"192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"};
    static struct scene s;
    begin(&s, MODELS);
    for (size_t i = 0; i < sizeof greedy / sizeof greedy[0]; i++)
        assert_int_equal(come_from(&s, greedy[i], 100), OPEN_EACH);
    assert_int_equal(come_from(&s, "198.51.100.7", 100), OPEN_EACH);
    assert_int_equal(come_from(&s, "10.0.0.1", 1), 1);
    assert_true(local_comes_in(&s));
    end(&s);
    begin(&s, MODELS);
    s.home.d->session_limits.strangers->open_each = 4096; /* limits.handshakes_open */
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(come_from(&s, greedy[i], 100), TB_BOUNDS_STRANGERS / 4);
    assert_int_equal(come_from(&s, "198.51.100.7", 1), 1);
    end(&s);
}

/* So many that are welcome stand there already. */
static void crowd(struct scene *s, uint32_t count)
{
    while (s->home.d->session_count < count)
        assert_non_null(tb_worker_new(s->home.d, false));
}

static void readers_leave_places_to_a_publisher(void **state)
{
    (void)state;
    static struct scene s;
    begin(&s, READERS);
    const uint32_t places = tb_bounds_greeted(SESSIONS), ordinary = places - places / 4;
    assert_int_equal(come_from(&s, "192.0.2.1", 100), OPEN_EACH); /* beside those places */
    crowd(&s, OPEN_EACH + ordinary - 1);
    assert_true(local_comes_in(&s));
    crowd(&s, OPEN_EACH + ordinary);
    assert_false(local_comes_in(&s));
    assert_int_equal(s.home.d->connections.spent, 100 - OPEN_EACH + 1);
    assert_true(tb_sessions_max(s.home.d) >=
                places + tb_bounds_networks(SESSIONS) + TB_BOUNDS_STRANGERS); /* all of them at once */
    s.home.config->models[0].publish[0] = "unix:*";
    assert_true(local_comes_in(&s));
    end(&s);
}

/* Over TLS its identity is known when it says HELLO. */
static void a_reader_is_told_that_the_rest_is_for_publishers(void **state)
{
    (void)state;
    static struct scene s;
    static struct worker w;
    struct tb_msg_hello hello = {.protocol = TB_MSG_PROTOCOL};
    begin(&s, READERS);
    const uint32_t places = tb_bounds_greeted(SESSIONS);
    w = (struct worker){.home = &s.home, .fd = home_dial(&s.home)};
    while (s.home.d->sessions == NULL)
        (void)uv_run(&s.home.d->loop, UV_RUN_NOWAIT);
    s.home.d->sessions->local = false; /* as if it had come so */
    crowd(&s, places - places / 4);
    CHECK_OK(tb_name_set(&hello.name, "w"));
    CHECK_OK(tb_name_set(&hello.host, "host"));
    const uint64_t request = worker_request(&w);
    tb_msg_hello_encode(&hello, worker_begin(&w, TB_MSG_HELLO, request, 4096));
    worker_send(&w);
    CHECK_STATUS(worker_reply(&w, request), TB_SITE_NOMEM);
    assert_int_equal(s.home.d->connections.spent, 1);
    assert_int_equal(s.home.d->counters.sessions_refused, 1);
    (void)close(w.fd);
    free(w.out);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_has_a_pool_of_its_own),
        cmocka_unit_test(addresses_at_their_limit_leave_room),
        cmocka_unit_test(readers_leave_places_to_a_publisher),
        cmocka_unit_test(a_reader_is_told_that_the_rest_is_for_publishers),
    };
    return cmocka_run_group_tests_name("daemon.session_admission", tests, NULL, NULL);
}
