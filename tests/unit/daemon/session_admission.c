/* session_admission.c - which connections come in at the workers' door. Networks that the
 * configuration names have a pool of their own, others have theirs by address, and users of the
 * host come in beside both (P6, P7).
 *
 * Covers: gateway/daemon/sessions/session_limits.c */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/net/endpoint.h"
#include "gateway/config/bounds.h"
#include "gateway/daemon/sessions/session_limits.h"
#include "gateway/daemon/sessions/sessions.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

#define MODELS    "{policy: {home: east, publish: [\"unix:*\"], read: [\"unix:*\"]}}"
#define SESSIONS  64u
#define OPEN_EACH 32u /* limits.handshakes_open, where nothing is configured */
#define DOORS_MAX 256u

struct scene {
    struct home home;
    struct tb_worker_session_door doors[DOORS_MAX]; /* of those that came in */
    uint32_t count;
};

static void begin(struct scene *s)
{
    *s = (struct scene){.count = 0};
    home_new_with(&s->home, MODELS, false);
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
    begin(&s);
    const uint32_t pool = tb_sessions_max(s.home.d) / 8;
    assert_int_equal(come_from(&s, "192.0.2.1", OPEN_EACH + 5), OPEN_EACH);
    assert_int_equal(s.home.d->connections.refused, 5);
    /* beside what strangers have; then it is a stranger's address */
    assert_int_equal(come_from(&s, "10.0.0.1", pool), pool);
    assert_int_equal(s.home.d->session_limits.unfinished, pool);
    assert_int_equal(come_from(&s, "10.0.0.2", 100), TB_BOUNDS_GREETING / 4 * 3 - OPEN_EACH);
    assert_int_equal(s.home.d->session_limits.unfinished, pool);
    assert_true(local_comes_in(&s));
    /* what ended leaves its place in the pool */
    leave(&s, OPEN_EACH);
    assert_int_equal(s.home.d->session_limits.unfinished, 0);
    assert_int_equal(come_from(&s, "10.0.0.3", pool), pool);
    assert_int_equal(s.home.d->session_limits.unfinished, pool);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_has_a_pool_of_its_own),
    };
    return cmocka_run_group_tests_name("daemon.session_admission", tests, NULL, NULL);
}
