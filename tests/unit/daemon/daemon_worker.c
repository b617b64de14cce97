/* daemon_worker.c - see daemon_worker.h. */
#include "tests/unit/daemon/daemon_worker.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/daemon/sessions/session_reply.h"
#include "tests/unit/check.h"

struct worker *worker_new(struct home *h, const char *name)
{
    struct tb_reader r;
    struct tb_msg_hello hello = {.protocol = TB_MSG_PROTOCOL};
    struct worker *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->home = h;
    w->fd = home_dial(h);
    CHECK_OK(tb_name_set(&hello.name, name));
    CHECK_OK(tb_name_set(&hello.host, "host"));
    const uint64_t request = worker_request(w);
    tb_msg_hello_encode(&hello, worker_begin(w, TB_MSG_HELLO, request, 4096));
    worker_send(w);
    assert_int_equal(worker_answer(w, request, &r), TB_MSG_WELCOME);
    return w;
}

void worker_free(struct worker *w)
{
    (void)close(w->fd);
    free(w->out);
    free(w);
}

uint64_t worker_request(struct worker *w)
{
    return ++w->requests;
}

struct tb_writer *worker_begin(struct worker *w, uint16_t type, uint64_t request, size_t payload_max)
{
    w->out = realloc(w->out, TB_WIRE_HEADER_BYTES + payload_max);
    assert_non_null(w->out);
    tb_writer_init(&w->w, w->out, TB_WIRE_HEADER_BYTES + payload_max);
    tb_write_u32(&w->w, 0);
    tb_write_u16(&w->w, type);
    tb_write_u16(&w->w, 0);
    tb_write_u64(&w->w, request);
    return &w->w;
}

static void turn(struct worker *w)
{
    (void)uv_run(&w->home->d->loop, UV_RUN_NOWAIT);
}

void worker_send(struct worker *w)
{
    assert_false(w->w.full);
    tb_write_u32_at(&w->w, 0, (uint32_t)(w->w.used - TB_WIRE_HEADER_BYTES));
    for (size_t sent = 0; sent < w->w.used;) {
        const ssize_t put = write(w->fd, w->out + sent, w->w.used - sent);
        assert_true(put > 0 || (put < 0 && errno == EAGAIN));
        sent += put > 0 ? (size_t)put : 0;
        turn(w);
    }
}

/* One frame off what has come. False: none is whole yet. */
static bool next_frame(struct worker *w, uint16_t *type_out, uint64_t *request_out, uint32_t *bytes_out)
{
    struct tb_reader r;
    tb_reader_init(&r, w->in, w->used);
    const uint32_t payload = tb_read_u32(&r);
    *type_out = tb_read_u16(&r);
    (void)tb_read_u16(&r);
    *request_out = tb_read_u64(&r);
    *bytes_out = TB_WIRE_HEADER_BYTES + payload;
    return !r.bad && w->used >= *bytes_out;
}

static void read_more(struct worker *w)
{
    const ssize_t got = read(w->fd, w->in + w->used, sizeof w->in - w->used);
    assert_true(got > 0 || (got < 0 && errno == EAGAIN)); /* the gateway has not closed it */
    if (got > 0) w->used += (uint32_t)got;
    if (got < 0) (void)uv_run(&w->home->d->loop, UV_RUN_ONCE); /* its tick ends the wait */
}

static void note_plan(struct worker *w, uint32_t bytes)
{
    w->plans++;
    w->plan_bytes = bytes < sizeof w->plan ? bytes : (uint32_t)sizeof w->plan;
    memcpy(w->plan, w->in + TB_WIRE_HEADER_BYTES, w->plan_bytes);
}

static uint16_t next(struct worker *w, uint64_t request, bool notices, struct tb_reader *r_out)
{
    static uint8_t payload[sizeof w->in];
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    for (;;) {
        uint16_t type;
        uint64_t of;
        uint32_t bytes;
        assert_true(tb_clock_now() < until);
        if (!next_frame(w, &type, &of, &bytes)) {
            read_more(w);
            continue;
        }
        if (type == TB_MSG_PLAN) note_plan(w, bytes - TB_WIRE_HEADER_BYTES);
        memcpy(payload, w->in + TB_WIRE_HEADER_BYTES, bytes - TB_WIRE_HEADER_BYTES);
        memmove(w->in, w->in + bytes, w->used -= bytes);
        if (of != request && !(notices && of == 0)) continue;
        tb_reader_init(r_out, payload, bytes - TB_WIRE_HEADER_BYTES);
        return type;
    }
}

uint16_t worker_answer(struct worker *w, uint64_t request, struct tb_reader *r_out)
{
    return next(w, request, false, r_out);
}

uint16_t worker_notice(struct worker *w, uint64_t request, struct tb_reader *r_out)
{
    return next(w, request, true, r_out);
}

enum tb_status worker_reply(struct worker *w, uint64_t request)
{
    struct tb_reader r;
    struct tb_msg_reply reply = {0};
    assert_int_equal(worker_answer(w, request, &r), TB_MSG_REPLY);
    CHECK_OK(tb_msg_reply_decode(&r, &reply));
    return tb_msg_status_get(reply.status_negated);
}

void worker_sync(struct worker *w)
{
    const uint64_t request = worker_request(w);
    const struct tb_msg_unsubscribe none = {.subscription = 4711};
    tb_msg_unsubscribe_encode(&none, worker_begin(w, TB_MSG_UNSUBSCRIBE, request, 64));
    worker_send(w);
    CHECK_STATUS(worker_reply(w, request), TB_NOT_FOUND);
}

struct tb_id worker_run_open(struct worker *w, const char *key)
{
    struct tb_reader r;
    struct tb_msg_run m = {.run_order = 0};
    struct tb_msg_run_open q = {.was_order = 0};
    CHECK_OK(tb_name_set(&q.model, "policy"));
    assert_true(strlen(key) < sizeof q.key.text);
    memcpy(q.key.text, key, strlen(key));
    const uint64_t request = worker_request(w);
    tb_msg_run_open_encode(&q, worker_begin(w, TB_MSG_RUN_OPEN, request, 4096));
    worker_send(w);
    assert_int_equal(worker_answer(w, request, &r), TB_MSG_RUN);
    CHECK_OK(tb_msg_run_decode(&r, &m));
    return m.run;
}
