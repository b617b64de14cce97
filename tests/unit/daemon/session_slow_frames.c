/* session_slow_frames.c - a worker in the middle of a long frame keeps its lease (P6). One that
 * trickles, or does not read, is dropped (P7). In the catalog's time, not in that of the machine.
 *
 * Covers: gateway/daemon/sessions/sessions.c */
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/net/wire.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_worker.h"

#define LEASE_MS   60000u
#define STEP       TB_MS(100) /* less than what a tick takes for a pause */
#define FRAME_MORE (8u << 20)

struct speaker {
    struct home home;
    struct worker *worker;
    tb_time_ns now; /* the catalog's: ahead of the machine's */
};

static void begin(struct speaker *s)
{
    home_new_with(&s->home, "{policy: {home: east, publish: [\"unix:*\"]}}", false);
    s->home.config->session_lease_ms = LEASE_MS;
    home_start(&s->home);
    s->worker = worker_new(&s->home, "rank");
    s->now = tb_clock_now();
}

static void end(struct speaker *s)
{
    worker_free(s->worker);
    home_end(&s->home);
    home_free(&s->home);
}

static bool lives(const struct speaker *s)
{
    return s->home.d->sessions != NULL && s->home.d->sessions->welcomed;
}

/* Three quarters of a lease go by. */
static void most_of_a_lease(struct speaker *s)
{
    const tb_time_ns until = tb_time_add(s->now, TB_MS(LEASE_MS / 4 * 3));
    for (; s->now < until; s->now = tb_time_add(s->now, STEP))
        tb_catalog_tick(s->home.d->catalog, s->now);
    tb_daemon_turn(s->home.d);
}

/* All of it came to the gateway. */
static void say(struct speaker *s, const uint8_t *bytes, size_t count)
{
    int unread = 1;
    for (size_t said = 0; said < count || unread != 0;) {
        const ssize_t put = said < count ? write(s->worker->fd, bytes + said, count - said) : 0;
        said += put > 0 ? (size_t)put : 0;
        (void)uv_run(&s->home.d->loop, UV_RUN_NOWAIT);
        assert_int_equal(ioctl(s->worker->fd, SIOCOUTQ, &unread), 0);
    }
}

/* The head of a SEAL, and `count` bytes of it. */
static void say_part(struct speaker *s, uint32_t count, bool with_head)
{
    uint8_t *bytes = calloc(1, TB_WIRE_HEADER_BYTES + count);
    struct tb_writer w;
    assert_non_null(bytes);
    tb_writer_init(&w, bytes, TB_WIRE_HEADER_BYTES);
    tb_write_u32(&w, FRAME_MORE);
    tb_write_u16(&w, TB_MSG_SEAL);
    tb_write_u16(&w, 0);
    tb_write_u64(&w, worker_request(s->worker));
    say(s, with_head ? bytes : bytes + TB_WIRE_HEADER_BYTES, count + (with_head ? TB_WIRE_HEADER_BYTES : 0));
    free(bytes);
}

static void a_long_frame_keeps_its_session(void **state)
{
    (void)state;
    struct speaker s;
    begin(&s);
    for (int part = 0; part < 4; part++) {
        most_of_a_lease(&s);
        assert_true(lives(&s));
        say_part(&s, TB_WIRE_PART_BYTES, part == 0);
    }
    most_of_a_lease(&s);
    assert_true(lives(&s));
    end(&s);
}

/* P7: a frame would be said for ever. */
static void a_worker_that_trickles_is_lost(void **state)
{
    (void)state;
    struct speaker s;
    begin(&s);
    most_of_a_lease(&s);
    assert_true(lives(&s));
    say_part(&s, TB_WIRE_PART_BYTES / 2, true);
    most_of_a_lease(&s);
    assert_false(lives(&s));
    end(&s);
}

static bool queue(struct tb_worker_session *s, const uint8_t *bytes, size_t count)
{
    struct tb_writer *w = tb_wire_begin(s->wire, TB_MSG_PLAN, 0, count);
    if (w == NULL) return false;
    tb_write_bytes(w, bytes, count);
    tb_wire_end(s->wire);
    return true;
}

/* P6: all manifests of a version stand in the queue at once; P7: memory that waits for a worker
 * that does not read ends there. */
static void a_worker_that_does_not_read_is_dropped(void **state)
{
    (void)state;
    struct speaker s;
    uint8_t *bytes = calloc(1, TB_MSG_FRAME_BYTES_MAX);
    assert_non_null(bytes);
    begin(&s);
    struct tb_worker_session *session = s.home.d->sessions;
    for (uint32_t shard = 0; shard < 64; shard++)
        assert_true(queue(session, bytes, TB_MSG_FRAME_BYTES_MAX / 32)); /* 128 MiB of manifests */
    assert_true(queue(session, bytes, TB_MSG_FRAME_BYTES_MAX));
    assert_false(queue(session, bytes, TB_MSG_FRAME_BYTES_MAX));
    while (s.home.d->sessions != NULL)
        (void)uv_run(&s.home.d->loop, UV_RUN_ONCE);
    end(&s);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_frame_keeps_its_session),
        cmocka_unit_test(a_worker_that_trickles_is_lost),
        cmocka_unit_test(a_worker_that_does_not_read_is_dropped),
    };
    return cmocka_run_group_tests_name("session_slow_frames", tests, NULL, NULL);
}
