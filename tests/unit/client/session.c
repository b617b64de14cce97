/* session.c - a session's own life: opening, waiting, cancelling, the eventfd, fork, memory, and a
 * gateway that goes and comes.
 *
 * Covers: intra/client/session/session.c intra/client/session/connection.c
 * Covers: intra/client/session/greeting.c intra/client/session/waits.c
 * Covers: intra/client/session/runs.c intra/client/session/session_status.c
 * Covers: intra/client/session/last_error.c intra/client/memory/buffers.c */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/connection.h"
#include "intra/client/session/session.h"
#include "unit/client/fake_gateway.h"

static int setup(void **state)
{
    struct fake *f = calloc(1, sizeof *f);
    fake_open(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fake_close(*state);
    free(*state);
    return 0;
}

static void options_are_checked(void **state)
{
    struct fake *f = *state;
    struct tb_session *s = NULL;
    CHECK_STATUS(tb_session_open(NULL, &s), TB_BAD_ARGUMENT);
    struct tb_session_options o = {.struct_bytes = sizeof o, .gateway = f->path};
    o.struct_bytes = 4;
    CHECK_STATUS(tb_session_open(&o, &s), TB_BAD_ARGUMENT);
    o.struct_bytes = sizeof o;
    o.name = "not a name";
    CHECK_STATUS(tb_session_open(&o, &s), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "not a name"));
    o.name = NULL;
    o.gateway = "127.0.0.1:1"; /* P8: never without TLS */
    CHECK_STATUS(tb_session_open(&o, &s), TB_BAD_ARGUMENT);
    assert_null(s);
    o.gateway = f->path;
    CHECK_OK(tb_session_open(&o, &s)); /* all by default */
    assert_true(tb_session_eventfd(s) >= 0);
    tb_session_close(s);
    tb_session_close(NULL);
}

static void no_gateway_is_told_in_time(void **state)
{
    (void)state;
    struct tb_session *s = NULL;
    const struct tb_session_options o = {
        .struct_bytes = sizeof o, .gateway = "unix:/tmp/client.nobody.sock", .open_timeout_ms = 250};
    const tb_time_ns began = tb_clock_now();
    CHECK_STATUS(tb_session_open(&o, &s), TB_GATEWAY_AWAY);
    assert_true(tb_time_since(began, tb_clock_now()) >= TB_MS(240));
    assert_non_null(strstr(tb_last_error(), "client.nobody.sock"));
    assert_non_null(strstr(tb_last_error(), "No such file or directory")); /* P10: and why */
}

/* All that an operator may configure; one more is no gateway's. */
static void any_drain_of_a_gateway_is_taken(void **state)
{
    struct fake *f = *state;
    struct tb_session *s = NULL;
    FAKE_SET(f, drain_ms, TB_MSG_DRAIN_MS_MAX);
    tb_session_close(fake_session_open(f, "w", NULL));
    FAKE_SET(f, drain_ms, TB_MSG_DRAIN_MS_MAX + 1);
    const struct tb_session_options o = {
        .struct_bytes = sizeof o, .gateway = f->path, .open_timeout_ms = 500};
    CHECK_STATUS(tb_session_open(&o, &s), TB_GATEWAY_AWAY);
}

static void a_refused_greeting_is_told_at_once(void **state)
{
    struct fake *f = *state;
    FAKE_SET(f, refuse[TB_MSG_HELLO], TB_PEER_DENIED);
    struct tb_session *s = NULL;
    const struct tb_session_options o = {
        .struct_bytes = sizeof o, .gateway = f->path, .open_timeout_ms = 60000};
    const tb_time_ns began = tb_clock_now();
    CHECK_STATUS(tb_session_open(&o, &s), TB_PEER_DENIED);
    assert_true(tb_time_since(began, tb_clock_now()) < TB_SECONDS(20));
}

/* The site's network is trusted: the session's door is then in clear, as the gateway
 * hears in a second HELLO. */
static void a_trusted_network_opens_a_plain_door(void **state)
{
    struct fake *f = *state;
    FAKE_SET(f, trusted, true);
    struct tb_session *s = fake_session_open(f, "w", NULL);
    assert_int_equal(fake_seen(f, TB_MSG_HELLO), 2);
    bool tls = true;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        if (f->sessions[i].welcomed) tls = f->sessions[i].hello.tls;
    pthread_mutex_unlock(&f->lock);
    assert_false(tls);
    tb_session_close(s);
}

static struct tb_wait_options wait_of(uint32_t kind, uint64_t number, uint32_t timeout_ms)
{
    return (struct tb_wait_options){.struct_bytes = sizeof(struct tb_wait_options),
                                    .kind = kind,
                                    .model = "policy",
                                    .number = number,
                                    .timeout_ms = timeout_ms};
}

static void waits_end_by_answer_timeout_and_away(void **state)
{
    struct fake *f = *state;
    struct tb_session *s = fake_session_open(f, "w", NULL);
    struct tb_version_info info = {.struct_bytes = sizeof info};
    struct tb_wait_options o = wait_of(TB_WAIT_LATEST, 0, 0);
    CHECK_STATUS(tb_wait(s, &o, &info), TB_AGAIN);
    assert_non_null(strstr(tb_last_error(), "tb_wait: no such version of policy came yet"));
    o.timeout_ms = 200;
    CHECK_STATUS(tb_wait(s, &o, &info), TB_TIMEOUT);
    assert_non_null(strstr(tb_last_error(), "tb_wait: no such version of policy came within 0.2 s"));
    struct fake_version *v = fake_make(f, 5, 1, 1, 1000);
    CHECK_OK(tb_wait(s, &o, &info));
    assert_int_equal(info.number, 5);
    assert_memory_equal(&info.uid, &v->key.uid, 16);
    o.after = &info.uid;
    CHECK_STATUS(tb_wait(s, &o, &info), TB_TIMEOUT);
    fake_go_away(f, s);
    CHECK_STATUS(tb_wait(s, &o, &info), TB_GATEWAY_AWAY);
    fake_away(f, false);
    o.after = NULL;
    o.timeout_ms = 10000; /* asked while it is away, answered when it is back */
    CHECK_OK(tb_wait(s, &o, &info));
    tb_session_close(s);
}

struct waiting {
    struct tb_session *s;
    int status;
};

static void *wait_for_ever(void *user)
{
    struct waiting *w = user;
    struct tb_version_info info = {.struct_bytes = sizeof info};
    const struct tb_wait_options o = wait_of(TB_WAIT_EXACT, 77, TB_WAIT_FOREVER);
    w->status = tb_wait(w->s, &o, &info);
    return NULL;
}

static void cancel_wakes_those_who_wait_and_no_later_call(void **state)
{
    struct fake *f = *state;
    struct waiting w = {.s = fake_session_open(f, "w", NULL)};
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_ever, &w);
    fake_wait_seen(f, TB_MSG_WAIT, 1);
    tb_cancel(w.s);
    pthread_join(thread, NULL);
    CHECK_STATUS(w.status, TB_CANCELLED);
    fake_wait_seen(f, TB_MSG_CANCEL, 1); /* the gateway stops waiting too */
    fake_make(f, 77, 1, 1, 10);
    wait_for_ever(&w);
    CHECK_OK(w.status);
    tb_session_close(w.s);
}

static void closing_wakes_those_who_wait(void **state)
{
    struct fake *f = *state;
    struct waiting w = {.s = fake_session_open(f, "w", NULL)};
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_ever, &w);
    fake_wait_seen(f, TB_MSG_WAIT, 1);
    tb_session_close(w.s);
    pthread_join(thread, NULL);
    CHECK_STATUS(w.status, TB_CANCELLED);
}

static void drain(int fd)
{
    uint64_t count;
    while (read(fd, &count, sizeof count) == (ssize_t)sizeof count) {
    }
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, timeout_ms) == 1;
}

static void the_eventfd_tells_of_a_version_asked_for(void **state)
{
    struct fake *f = *state;
    struct tb_session *s = fake_session_open(f, "w", NULL);
    const int fd = tb_session_eventfd(s);
    struct tb_version_info info = {.struct_bytes = sizeof info};
    const struct tb_wait_options o = wait_of(TB_WAIT_LATEST, 0, 0);
    drain(fd);
    CHECK_STATUS(tb_wait(s, &o, &info), TB_AGAIN);
    fake_wait_seen(f, TB_MSG_WAIT, 2); /* the question stands at the gateway */
    assert_false(readable(fd, 50));
    fake_make(f, 3, 1, 1, 10);
    fake_raw(f, 0, TB_MSG_VERSION_STATE, 0, (uint8_t[20]){1},
             20); /* wakes its loop, of a version that is not ours */
    CHECK_OK(tb_status(s, "site", NULL, 0, NULL) == TB_TOO_LARGE ? TB_OK : TB_AGAIN);
    assert_true(readable(fd, 10000));
    drain(fd);
    CHECK_OK(tb_wait(s, &o, &info));
    assert_int_equal(info.number, 3);
    tb_session_close(s);
}

static void a_forked_child_is_refused(void **state)
{
    struct fake *f = *state;
    struct tb_session *s = fake_session_open(f, "w", NULL);
    void *memory;
    CHECK_OK(tb_buffer_new(s, 4096, &memory));
    const pid_t child = fork();
    if (child == 0) {
        struct tb_version_info info = {.struct_bytes = sizeof info};
        const struct tb_wait_options o = wait_of(TB_WAIT_LATEST, 0, 0);
        void *more;
        const bool refused = tb_wait(s, &o, &info) == TB_FORKED && tb_buffer_new(s, 1, &more) == TB_FORKED &&
                             tb_session_eventfd(s) == -1;
        tb_session_close(s);
        _exit(refused ? 0 : 1);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(s, "policy", "k", &run)); /* the parent goes on */
    CHECK_OK(tb_buffer_free(s, memory));
    tb_session_close(s);
}

static void buffers_are_zeroed_and_stay_while_registered(void **state)
{
    struct fake *f = *state;
    struct tb_session *s = fake_session_open(f, "w", NULL);
    void *memory;
    CHECK_OK(tb_buffer_new(s, 10000, &memory));
    for (int i = 0; i < 10000; i++)
        assert_int_equal(((uint8_t *)memory)[i], 0);
    const uint64_t shape[] = {100};
    const struct tb_tensor_desc t = {
        .name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = (uint8_t *)memory + 5000};
    struct tb_registration *r;
    CHECK_OK(tb_register(s, &t, 1, &r));
    CHECK_STATUS(tb_buffer_free(s, memory), TB_BAD_STATE);
    CHECK_STATUS(tb_buffer_free(s, (uint8_t *)memory + 1), TB_NOT_FOUND);
    CHECK_OK(tb_unregister(r));
    CHECK_OK(tb_buffer_free(s, memory));
    CHECK_STATUS(tb_buffer_new(s, 0, &memory), TB_BAD_ARGUMENT);
    tb_session_close(s);
}

static void status_is_json_and_says_what_it_needs(void **state)
{
    struct fake *f = *state;
    struct tb_session *s = fake_session_open(f, "w", "host-x");
    uint64_t needed = 0;
    CHECK_STATUS(tb_status(s, "session", NULL, 0, &needed), TB_TOO_LARGE);
    char *text = malloc(needed);
    CHECK_OK(tb_status(s, "session", text, needed, &needed));
    assert_int_equal(strlen(text) + 1, needed);
    assert_non_null(strstr(text, "\"schema\":1"));
    assert_non_null(strstr(text, "\"host\":\"host-x\""));
    char small[8];
    CHECK_STATUS(tb_status(s, "session", small, sizeof small, &needed), TB_TOO_LARGE);
    assert_int_equal(small[7], 0);
    CHECK_STATUS(tb_status(s, "weather", text, needed, &needed), TB_BAD_ARGUMENT);
    CHECK_OK(tb_status(s, "site", text, needed, &needed));
    assert_string_equal(text, "{\"schema\":1}");
    free(text);
    tb_session_close(s);
}

static void waiting_for_a_site_is_passed_on(void **state)
{
    struct fake *f = *state;
    struct tb_session *s = fake_session_open(f, "w", NULL);
    const struct tb_uid uid = {{1}};
    CHECK_OK(tb_wait_site(s, &uid, "west", TB_SITE_HOLDS, 1000));
    CHECK_STATUS(tb_wait_site(s, &uid, "we st", TB_SITE_HOLDS, 1000), TB_BAD_ARGUMENT);
    CHECK_STATUS(tb_wait_site(s, &uid, "west", 9, 1000), TB_BAD_ARGUMENT);
    FAKE_SET(f, refuse[TB_MSG_WAIT_SITE], TB_AGAIN); /* as a gateway answers one that asks once */
    CHECK_STATUS(tb_wait_site(s, &uid, NULL, TB_SITE_ACTIVATED, 0), TB_AGAIN);
    assert_non_null(strstr(tb_last_error(), "tb_wait_site: this site did not get there yet"));
    FAKE_SET(f, refuse[TB_MSG_WAIT_SITE], TB_TIMEOUT);
    CHECK_STATUS(tb_wait_site(s, &uid, "west", TB_SITE_ACTIVATED, 1500), TB_TIMEOUT);
    assert_non_null(strstr(tb_last_error(), "tb_wait_site: west did not get there within 1.5 s"));
    tb_session_close(s);
}

/* P3: a rank that waited for longer than the gateway's recovery would find that its version was
 * called lost. */
static void nobody_comes_back_behind_the_lease(void **state)
{
    (void)state;
    static const uint32_t leases[] = {300, 500, 3000, 10000, 3600000};
    for (uint32_t attempts = 0; attempts < 40; attempts++) {
        for (size_t i = 0; i < sizeof leases / sizeof leases[0]; i++) {
            const uint32_t least = tb_connection_retry_ms(attempts, leases[i], 0);
            assert_int_equal(least, 100);
            for (uint32_t random = 0; random < 5000; random++)
                assert_in_range(tb_connection_retry_ms(attempts, leases[i], random), least, leases[i] / 3);
        }
        assert_in_range(tb_connection_retry_ms(attempts, 0, UINT32_MAX), 100, 5000);
    }
    assert_int_equal(tb_connection_retry_ms(2, 10000, 300), 400); /* 100, 200, 400 at most */
    assert_int_equal(tb_connection_retry_ms(2, 10000, 301), 100);
    assert_int_equal(tb_connection_retry_ms(39, 0, 4900), 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(options_are_checked, setup, teardown),
        cmocka_unit_test(no_gateway_is_told_in_time),
        cmocka_unit_test_setup_teardown(any_drain_of_a_gateway_is_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refused_greeting_is_told_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_trusted_network_opens_a_plain_door, setup, teardown),
        cmocka_unit_test_setup_teardown(waits_end_by_answer_timeout_and_away, setup, teardown),
        cmocka_unit_test_setup_teardown(cancel_wakes_those_who_wait_and_no_later_call, setup, teardown),
        cmocka_unit_test_setup_teardown(closing_wakes_those_who_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(the_eventfd_tells_of_a_version_asked_for, setup, teardown),
        cmocka_unit_test_setup_teardown(a_forked_child_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(buffers_are_zeroed_and_stay_while_registered, setup, teardown),
        cmocka_unit_test_setup_teardown(status_is_json_and_says_what_it_needs, setup, teardown),
        cmocka_unit_test_setup_teardown(waiting_for_a_site_is_passed_on, setup, teardown),
        cmocka_unit_test(nobody_comes_back_behind_the_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
