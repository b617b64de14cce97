/* fake_gateway.c - see its header; here are its door and its loop, and what a test has it say. */
#include "unit/client/fake_inside.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/net/chan_facts.h"
#include "base/net/listen.h"
#include "tests/unit/scratch.h"

/* ---- sending, on the loop ---- */

void fake_reply(struct fake_session *s, uint64_t request, enum tb_status status, const char *why)
{
    struct tb_msg_reply m = {.status_negated = tb_msg_status_put(status)};
    snprintf(m.why.text, sizeof m.why.text, "%s", why);
    FAKE_SEND(s, TB_MSG_REPLY, request, tb_msg_reply, &m, 0);
}

/* ---- jobs: the test's thread has something done on the loop and waits for it ---- */

static void on_async(uv_async_t *async)
{
    struct fake *f = async->data;
    pthread_mutex_lock(&f->lock);
    if (f->job != NULL) f->job(f, f->job_user);
    f->job = NULL;
    pthread_cond_broadcast(&f->changed);
    if (f->stop) {
        if (f->listener != NULL) tb_listener_close(f->listener);
        f->listener = NULL;
        for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
            if (f->sessions[i].wire != NULL) tb_wire_close(f->sessions[i].wire, TB_OK);
        uv_close((uv_handle_t *)&f->async, NULL);
    }
    pthread_mutex_unlock(&f->lock);
}

void fake_run_job(struct fake *f, void (*job)(struct fake *f, void *user), void *user)
{
    pthread_mutex_lock(&f->lock);
    assert_null(f->job);
    f->job = job;
    f->job_user = user;
    uv_async_send(&f->async);
    while (f->job != NULL)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

void fake_wait_change(struct fake *f, time_t until)
{
    struct timespec at = {.tv_sec = until};
    if (pthread_cond_timedwait(&f->changed, &f->lock, &at) != 0 && time(NULL) > until)
        fail_msg("waited for too long");
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *frame)
{
    (void)w;
    struct fake_session *s = user;
    struct fake *f = s->f;
    const uint32_t index = (uint32_t)(s - f->sessions);
    pthread_mutex_lock(&f->lock);
    const enum tb_status status = fake_answer(f, index, frame);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w;
    (void)user;
    (void)peer;
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w;
    (void)why;
    struct fake_session *s = user;
    pthread_mutex_lock(&s->f->lock);
    s->wire = NULL;
    s->welcomed = false;
    pthread_cond_broadcast(&s->f->changed);
    pthread_mutex_unlock(&s->f->lock);
}

static void on_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    static const struct tb_wire_ops ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};
    struct fake *f = user;
    pthread_mutex_lock(&f->lock);
    uint32_t i = 0;
    while (i < FAKE_SESSIONS_MAX && f->sessions[i].wire != NULL)
        i++;
    if (i == FAKE_SESSIONS_MAX) {
        close(fd);
    } else {
        f->sessions[i].f = f;
        const struct tb_wire_options options = {.chan = {.loop = &f->loop},
                                                .ops = &ops,
                                                .user = &f->sessions[i],
                                                .frame_bytes_max = TB_MSG_FRAME_BYTES_MAX};
        if (tb_wire_accept(&options, fd, &f->sessions[i].wire) != TB_OK) f->sessions[i].wire = NULL;
    }
    pthread_mutex_unlock(&f->lock);
}

/* ---- life ---- */

static void *fake_main(void *user)
{
    struct fake *f = user;
    uv_run(&f->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void listen_job(struct fake *f, void *user)
{
    (void)user;
    struct tb_address at;
    struct tb_endpoint endpoint;
    assert_int_equal(tb_endpoint_parse(f->path, &endpoint), TB_OK);
    assert_int_equal(tb_endpoint_address(&endpoint, &at), TB_OK);
    assert_int_equal(tb_listen(&f->loop, &at, 0600, on_accept, f, &f->listener), TB_OK);
}

static void away_job(struct fake *f, void *user)
{
    (void)user;
    if (f->listener != NULL) tb_listener_close(f->listener);
    f->listener = NULL;
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        if (f->sessions[i].wire != NULL) tb_wire_close(f->sessions[i].wire, TB_STREAM_IO);
    for (uint32_t i = 0; i < FAKE_WAITS_MAX; i++)
        f->waits[i].used = false;
}

void fake_open(struct fake *f)
{
    static unsigned serial;
    memset(f, 0, sizeof *f);
    snprintf(f->path, sizeof f->path, "unix:%s/client.%u.sock", scratch_files(), serial++);
    f->drain_ms = 300;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(uv_async_init(&f->loop, &f->async, on_async), 0);
    f->async.data = f;
    struct tb_fabric_options options = {.tcp_address = "127.0.0.1:0", .threads = 1};
    assert_int_equal(tb_name_set(&options.host, "host-a"), TB_OK);
    assert_int_equal(tb_fabric_open(&options, &f->fabric), TB_OK);
    tb_fabric_endpoint(f->fabric, &f->door);
    assert_int_equal(pthread_create(&f->thread, NULL, fake_main, f), 0);
    fake_run_job(f, listen_job, NULL);
}

void fake_away(struct fake *f, bool away)
{
    fake_run_job(f, away ? away_job : listen_job, NULL);
}

void fake_close(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_mutex_unlock(&f->lock);
    uv_async_send(&f->async);
    pthread_join(f->thread, NULL);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    tb_fabric_close(f->fabric);
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++) {
        struct fake_version *v = &f->versions[i];
        free(v->chain_source);
        free(v->shelf_memory);
        for (uint32_t k = 0; k < FAKE_SHARDS_MAX; k++) {
            struct fake_shard *sh = &v->shards[k];
            free(sh->head);
            free(sh->source);
            free(sh->manifest_memory);
            free(sh->bytes);
            free(sh->held);
            free(sh->claimed);
        }
    }
    free(f->granting.source);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    unlink(f->path + strlen("unix:"));
}

void fake_wait_seen(struct fake *f, enum tb_msg_type type, uint32_t count)
{
    const time_t until = time(NULL) + FAKE_BOUND_S;
    pthread_mutex_lock(&f->lock);
    while (f->seen[type] < count)
        fake_wait_change(f, until);
    pthread_mutex_unlock(&f->lock);
}

uint32_t fake_seen(struct fake *f, enum tb_msg_type type)
{
    pthread_mutex_lock(&f->lock);
    const uint32_t seen = f->seen[type];
    pthread_mutex_unlock(&f->lock);
    return seen;
}

/* ---- telling ---- */

struct telling {
    uint64_t number;
    enum tb_status status;
    uint32_t session;
    uint16_t type;
    uint64_t request;
    const void *bytes;
    uint32_t count;
};

static void state_job(struct fake *f, void *user)
{
    const struct telling *t = user;
    const struct fake_version *v = fake_find_number(f, t->number);
    const struct tb_msg_version_state m = {.uid = v->key.uid, .status_negated = tb_msg_status_put(t->status)};
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        FAKE_SEND(&f->sessions[i], TB_MSG_VERSION_STATE, 0, tb_msg_version_state, &m, 0);
}

void fake_state(struct fake *f, uint64_t number, enum tb_status status)
{
    struct telling t = {.number = number, .status = status};
    fake_run_job(f, state_job, &t);
}

static void go_job(struct fake *f, void *user)
{
    const struct telling *t = user;
    struct fake_version *v = fake_find_number(f, t->number);
    v->go = true;
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++) {
        if (f->sessions[i].subscribed.subscription == 0) continue;
        const struct tb_msg_go m = {.subscription = f->sessions[i].subscribed.subscription,
                                    .uid = v->key.uid};
        FAKE_SEND(&f->sessions[i], TB_MSG_GO, 0, tb_msg_go, &m, 0);
    }
}

void fake_go(struct fake *f, uint64_t number)
{
    struct telling t = {.number = number};
    fake_run_job(f, go_job, &t);
}

static void raw_job(struct fake *f, void *user)
{
    const struct telling *t = user;
    struct tb_writer *w = tb_wire_begin(f->sessions[t->session].wire, t->type, t->request, t->count);
    assert_non_null(w);
    tb_write_bytes(w, t->bytes, t->count);
    tb_wire_end(f->sessions[t->session].wire);
}

void fake_raw(struct fake *f, uint32_t session, uint16_t type, uint64_t request, const void *bytes,
              uint32_t count)
{
    struct telling t = {.session = session, .type = type, .request = request, .bytes = bytes, .count = count};
    fake_run_job(f, raw_job, &t);
}

void fake_doubt(struct fake *f, uint32_t session, const struct tb_msg_doubt *m)
{
    uint8_t bytes[64];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_msg_doubt_encode(m, &w);
    fake_raw(f, session, TB_MSG_DOUBT, 0, bytes, (uint32_t)w.used);
}

static void proofs_job(struct fake *f, void *user)
{
    const struct telling *t = user;
    fake_send_proofs(&f->sessions[t->session], fake_find_number(f, t->number));
}

void fake_proofs(struct fake *f, uint32_t session, uint64_t number)
{
    struct telling t = {.session = session, .number = number};
    fake_run_job(f, proofs_job, &t);
}

struct tb_msg_proven fake_wait_proven(struct fake *f, uint64_t ask)
{
    const time_t until = time(NULL) + FAKE_BOUND_S;
    pthread_mutex_lock(&f->lock);
    while (!f->proven.done || f->proven.ask != ask)
        fake_wait_change(f, until);
    const struct tb_msg_proven m = f->proven;
    f->proven.done = false;
    pthread_mutex_unlock(&f->lock);
    return m;
}

struct tb_msg_proven fake_prove(struct fake *f, uint32_t session, uint32_t subscription)
{
    static uint64_t asks;
    uint8_t bytes[64];
    struct tb_writer w;
    const struct tb_msg_prove m = {.ask = ++asks, .subscription = subscription};
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_msg_prove_encode(&m, &w);
    fake_raw(f, session, TB_MSG_PROVE, 0, bytes, (uint32_t)w.used);
    return fake_wait_proven(f, m.ask);
}

static void plan_job(struct fake *f, void *user)
{
    const struct telling *t = user;
    fake_grant_and_plan(f, t->session, fake_find_number(f, t->number));
}

void fake_plan(struct fake *f, uint32_t session, uint64_t number)
{
    struct telling t = {.session = session, .number = number};
    fake_run_job(f, plan_job, &t);
}

/* A waiting session is told only at the end of the wait. A wait that was over before the session
 * had seen it is TB_TIMEOUT. */
void fake_go_away(struct fake *f, struct tb_session *s)
{
    const struct tb_wait_options o = {.struct_bytes = sizeof o,
                                      .kind = TB_WAIT_EXACT,
                                      .model = "policy",
                                      .number = UINT64_MAX,
                                      .timeout_ms = 20};
    struct tb_version_info info = {.struct_bytes = sizeof info};
    const time_t until = time(NULL) + FAKE_BOUND_S;
    fake_away(f, true);
    while (tb_wait(s, &o, &info) != TB_GATEWAY_AWAY)
        assert_true(time(NULL) < until);
}

void fake_come_back(struct fake *f, struct tb_session *s)
{
    const uint32_t hellos = fake_seen(f, TB_MSG_HELLO);
    fake_away(f, false);
    fake_wait_seen(f, TB_MSG_HELLO, hellos + 1);
    CHECK_STATUS(tb_status(s, "site", NULL, 0, NULL), TB_TOO_LARGE); /* answered behind it */
}

struct tb_id fake_active(struct fake *f, const char *worker)
{
    struct tb_id active = {{0xff}};
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++) {
        const struct fake_session *s = &f->sessions[i];
        /* A place has the words of its owner before until its own hello. */
        if (s->welcomed && s->subscribed.subscription != 0 && strcmp(s->hello.name.text, worker) == 0)
            active = s->subscribed.active;
    }
    pthread_mutex_unlock(&f->lock);
    return active;
}

struct tb_session *fake_session_open(struct fake *f, const char *name, const char *host)
{
    const struct tb_session_options options = {
        .struct_bytes = sizeof options, .threads = 2, .gateway = f->path, .name = name, .host = host};
    struct tb_session *s = NULL;
    const int status = tb_session_open(&options, &s);
    if (status != TB_OK) fail_msg("tb_session_open: %s", tb_last_error());
    return s;
}
