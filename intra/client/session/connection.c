/* connection.c - the session thread: one libuv loop with the wire to the gateway.
 *
 * Down -> (resolve) -> dial -> greet (greeting.c) -> up -> down with jitter. While it is up,
 * requests are sent in the order they were posted and the lease is renewed; a wire that breaks
 * leaves everything in place and says it again on the next one.
 *
 * Threads: tb_connection_open and _close may be called from outside, all else is the session
 * thread's. The session's lock is held wherever its fields are touched, never while the loop
 * waits. */
#include "intra/client/session/connection.h"

#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net/chan_facts.h"
#include "base/net/resolve.h"
#include "base/thread.h"
#include "intra/client/follow/staging_fill.h"
#include "intra/client/follow/staging_notices.h"
#include "intra/client/publish/publication_watch.h"
#include "intra/client/session/greeting.h"
#include "intra/client/session/notices.h"
#include "intra/client/session/own_certificate.h"
#include "intra/client/session/reannouncement.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"
#include "intra/client/session/session_check.h"

#define RETRY_MS_MIN    100u
#define RETRY_MS_MAX    5000u
#define GREET_MS        10000u
#define TICK_MS         1000u /* PROGRESS at most once a second */
#define QUEUE_BYTES_MAX (4ull * TB_MSG_FRAME_BYTES_MAX)

struct tb_connection {
    struct tb_session *session;
    pthread_t thread;
    bool started;
    bool handles;
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t retry, renew, tick, greet;
    struct tb_resolver *resolver;
    struct tb_endpoint gateway;
    struct tb_own_certificate own; /* empty: by a unix socket */
    struct tb_greeting greeting;
    struct tb_wire *wire;
    bool greeted; /* WELCOME came on this wire */
    bool stopping;
    bool last_wake;    /* under the session's lock: the owner wants the thread to end */
    bool ended;        /* the handles are being closed */
    uint32_t attempts; /* since it was up */
    uint32_t next_address;
};

static void dial(struct tb_connection *c);

static void lock(struct tb_connection *c)
{
    tb_session_lock(c->session);
}

static void unlock(struct tb_connection *c)
{
    tb_session_unlock(c->session);
}

/* ---- down ---- */

/* Full jitter over a doubling range, so that a thousand workers do not come back in one instant. */
uint32_t tb_connection_retry_ms(uint32_t attempts, uint32_t lease_ms, uint32_t random)
{
    uint32_t bound = RETRY_MS_MAX, most = RETRY_MS_MIN;
    if (lease_ms != 0 && lease_ms / 3 < bound) bound = lease_ms / 3;
    for (uint32_t i = 0; i < attempts && most < bound; i++)
        most *= 2;
    if (most > bound) most = bound > RETRY_MS_MIN ? bound : RETRY_MS_MIN;
    return RETRY_MS_MIN + random % (most - RETRY_MS_MIN + 1);
}

static uint64_t retry_ms(const struct tb_connection *c)
{
    uint32_t random;
    tb_random_bytes(&random, sizeof random);
    return tb_connection_retry_ms(c->attempts, c->session->welcome.lease_ms, random);
}

static void on_retry(uv_timer_t *timer)
{
    dial(timer->data);
}

static void dial_later(struct tb_connection *c)
{
    if (c->stopping) return;
    uv_timer_start(&c->retry, on_retry, c->greeting.reopening ? 0 : retry_ms(c), 0);
    c->greeting.reopening = false;
    c->attempts++;
}

/* Waiting does not heal these: the first tb_session_open answers at once. */
static bool is_refusal(enum tb_status why)
{
    return why == TB_PEER_DENIED || why == TB_PEER_IDENTITY || why == TB_PEER_PROTOCOL ||
           why == TB_SITE_CONFIG || why == TB_SITE_NOMEM || why == TB_SITE_IO;
}

/* A reason may quote what the peer sent. */
static void note_why(struct tb_session *s, enum tb_status why, const char *reason)
{
    s->down_why = why;
    snprintf(s->down_text, sizeof s->down_text, "%s%s%s", tb_status_name(why), reason[0] != '\0' ? ": " : "",
             reason);
    for (char *at = s->down_text; *at != '\0'; at++)
        if (*at < ' ' || *at > '~') *at = '?'; /* a char may be signed or not */
}

static void went_down(struct tb_connection *c, enum tb_status why, const char *reason)
{
    TB_ASSERT(c->wire == NULL);
    struct tb_session *s = c->session;
    c->greeted = false;
    uv_timer_stop(&c->renew);
    uv_timer_stop(&c->greet);
    lock(c);
    if (s->up) {
        s->down_since = tb_clock_now();
        tb_log(c->stopping ? TB_LOG_DEBUG : TB_LOG_WARN, "session.gateway_away", "status=%s action=reconnect",
               tb_status_name(why));
    }
    s->up = false;
    if (!c->greeting.reopening) note_why(s, why, reason);
    if (!s->was_up && is_refusal(why)) s->refused = true;
    tb_requests_unsent(s);
    tb_session_changed(s, true);
    unlock(c);
    dial_later(c);
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    struct tb_connection *c = user;
    c->wire = NULL;
    went_down(c, why, c->greeting.refusal[0] != '\0' ? c->greeting.refusal : tb_chan_reason(tb_wire_chan(w)));
}

/* ---- sending ---- */

/* Sends what is posted and was not sent on this wire. False: the wire is being closed. */
static bool send_request(struct tb_connection *c, struct tb_request *request)
{
    TB_ASSERT(!request->sent && !request->done);
    const struct tb_writer *payload = &request->payload;
    struct tb_writer *w = tb_wire_begin(c->wire, request->type, request->id, payload->used);
    if (w == NULL) return false;
    tb_write_bytes(w, payload->start, payload->used);
    tb_wire_end(c->wire);
    request->sent = true;
    return true;
}

static void send_posted(struct tb_connection *c)
{
    TB_ASSERT_LOCKED(c->session);
    struct tb_request **at = &c->session->requests;
    while (*at != NULL && c->wire != NULL) {
        struct tb_request *request = *at;
        if (!request->sent && !send_request(c, request)) return;
        if (request->id == 0) {
            *at = request->next;
            tb_request_free(request);
            continue;
        }
        at = &request->next;
    }
}

static void on_renew(uv_timer_t *timer)
{
    struct tb_connection *c = timer->data;
    if (!c->greeted || tb_wire_begin(c->wire, TB_MSG_RENEW, 0, 0) == NULL) return;
    tb_wire_end(c->wire);
}

static void on_tick(uv_timer_t *timer)
{
    struct tb_connection *c = timer->data;
    lock(c);
    tb_stagings_progress(c->session);
    tb_publication_watch_look(c->session);
    if (c->greeted) send_posted(c);
    TB_CHECK(tb_session_check(c->session));
    unlock(c);
}

/* ---- greeting ---- */

static void on_greet_timeout(uv_timer_t *timer)
{
    struct tb_connection *c = timer->data;
    if (c->wire != NULL && !c->greeted) tb_wire_close(c->wire, TB_STREAM_IDLE);
}

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    struct tb_connection *c = user;
    /* Any worker's certificate is signed by the same authority: only a gateway may tell us what to
     * read. */
    if (c->own.tls != NULL && peer->identity.kind != TB_IDENTITY_GATEWAY) {
        tb_wire_close(w, TB_PEER_IDENTITY);
        return;
    }
    uv_timer_start(&c->greet, on_greet_timeout, GREET_MS, 0);
    const enum tb_status status = tb_greeting_begin(&c->greeting, w);
    if (status != TB_OK) tb_wire_close(w, status);
}

/* A gateway that vanished without a word is noticed when RENEW stays without acknowledgement for a
 * lease, not after TCP's quarter of an hour. */
static void bound_silence(struct tb_connection *c, uint32_t lease_ms)
{
    if (c->gateway.is_unix) return;
    const int fd = tb_chan_fd(tb_wire_chan(c->wire));
    if (setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lease_ms, sizeof lease_ms) != 0)
        tb_log(TB_LOG_WARN, "session.no_user_timeout", "lease_ms=%u", lease_ms);
}

/* Under the lock. */
static void come_up(struct tb_connection *c, const struct tb_msg_welcome *m)
{
    TB_ASSERT_LOCKED(c->session);
    TB_ASSERT(!c->greeted && c->session->fabric != NULL);
    struct tb_session *s = c->session;
    c->greeted = true;
    c->attempts = 0;
    uv_timer_stop(&c->greet);
    bound_silence(c, m->lease_ms);
    uv_timer_start(&c->renew, on_renew, m->lease_ms / 3, m->lease_ms / 3);
    const bool again = s->was_up;
    const bool same = again && tb_id_equal(&s->id, &m->session);
    s->id = m->session;
    s->welcome = *m;
    s->up = s->was_up = true;
    s->refused = false;
    if (again) {
        s->reconnections++;
        tb_announce(s, same);
        tb_log(TB_LOG_INFO, "session.gateway_back", "same_session=%d away_ms=%llu", same,
               (unsigned long long)(tb_time_since(s->down_since, tb_clock_now()) / 1000000u));
    }
    tb_session_changed(s, true);
    send_posted(c);
}

static enum tb_status greeted(struct tb_connection *c, struct tb_wire_frame *frame)
{
    struct tb_msg_welcome welcome;
    const enum tb_status status = tb_greeting_answer(&c->greeting, frame, &welcome);
    if (status != TB_OK) return status;
    lock(c);
    come_up(c, &welcome);
    unlock(c);
    return TB_OK;
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *frame)
{
    (void)w;
    struct tb_connection *c = user;
    enum tb_status status;
    if (!c->greeted) {
        status = greeted(c, frame);
    } else {
        lock(c);
        status = frame->request != 0 ? tb_request_answer(c->session, frame) : tb_notice(c->session, frame);
        send_posted(c);
        tb_session_check_turn(c->session);
        unlock(c);
    }
    if (status == TB_PEER_GARBLED)
        tb_log(TB_LOG_ERROR, "session.gateway_garbled", "type=%u request=%llu action=reconnect", frame->type,
               (unsigned long long)frame->request);
    return status;
}

/* ---- dialling ---- */

/* Where there are several addresses a silent one is left for the next after a second; after two,
 * four and so on when all were. */
static uint32_t patience_ms(const struct tb_connection *c, uint32_t addresses)
{
    const uint32_t rounds = c->attempts / addresses;
    return addresses == 1 ? 0 : rounds < 4 ? 1000u << rounds : 10000u;
}

static void dial_address(struct tb_connection *c, const struct tb_address *to, uint32_t open_ms)
{
    TB_ASSERT(c->wire == NULL && !c->greeted);
    static const struct tb_wire_ops ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};
    const struct tb_wire_options options = {.chan = {.loop = &c->loop,
                                                     .tls = c->own.tls,
                                                     .expect = {.identity = {.kind = TB_IDENTITY_NONE}},
                                                     .open_ms = open_ms},
                                            .ops = &ops,
                                            .user = c,
                                            .frame_bytes_max = TB_MSG_FRAME_BYTES_MAX,
                                            .queue_bytes_max = QUEUE_BYTES_MAX};
    const enum tb_status status = tb_wire_dial(&options, to, &c->wire);
    c->greeting.refusal[0] = '\0';
    if (status != TB_OK) {
        c->wire = NULL;
        went_down(c, status == TB_BAD_ARGUMENT ? TB_SITE_CONFIG : TB_PEER_UNREACHABLE,
                  "no connection can be made here");
    }
}

static void on_resolved(void *user, enum tb_status status, const struct tb_address *addresses, uint32_t count,
                        uint32_t ttl_s)
{
    struct tb_connection *c = user;
    (void)ttl_s; /* asked again at each dial */
    if (c->stopping) return;
    if (status != TB_OK || count == 0) {
        went_down(c, TB_PEER_UNREACHABLE, "its name has no address");
        return;
    }
    const struct tb_address to = addresses[c->next_address++ % count];
    dial_address(c, &to, patience_ms(c, count));
}

static void dial(struct tb_connection *c)
{
    if (c->stopping || c->wire != NULL) return;
    struct tb_address to;
    tb_own_certificate_again(&c->own);
    const enum tb_status status = tb_endpoint_address(&c->gateway, &to);
    if (status == TB_OK) {
        dial_address(c, &to, 0);
        return;
    }
    if (c->resolver == NULL && tb_resolver_new(&c->loop, NULL, &c->resolver) != TB_OK) {
        c->resolver = NULL;
        went_down(c, TB_PEER_UNREACHABLE, "no resolver can be had here");
        return;
    }
    tb_resolve(c->resolver, &c->gateway, on_resolved, c);
}

/* ---- the loop ---- */

static void close_handles(struct tb_connection *c)
{
    if (c->ended) return;
    c->ended = true;
    if (c->resolver != NULL) tb_resolver_close(c->resolver);
    c->resolver = NULL;
    if (c->wire != NULL) tb_wire_finish(c->wire, TB_OK, 100);
    uv_close((uv_handle_t *)&c->retry, NULL);
    uv_close((uv_handle_t *)&c->renew, NULL);
    uv_close((uv_handle_t *)&c->tick, NULL);
    uv_close((uv_handle_t *)&c->greet, NULL);
    uv_close((uv_handle_t *)&c->wake, NULL);
}

/* Under the lock. The one place that draws conclusions from what the crew, the fabric and the
 * signal handlers have noted and woken this thread for. */
static void advance(struct tb_connection *c)
{
    TB_ASSERT_LOCKED(c->session);
    tb_stagings_advance(c->session);
    tb_publications_look(c->session);
    if (c->greeted) send_posted(c);
    tb_session_check_turn(c->session);
}

static void on_wake(uv_async_t *async)
{
    struct tb_connection *c = async->data;
    lock(c);
    advance(c);
    c->stopping = c->stopping || c->last_wake;
    unlock(c);
    if (c->stopping) close_handles(c);
}

static void *session_main(void *user)
{
    struct tb_connection *c = user;
    pthread_setname_np(pthread_self(), "tombolo");
    dial(c);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    return NULL;
}

static int init_loop(struct tb_connection *c)
{
    if (uv_loop_init(&c->loop) != 0) return -1;
    uv_timer_t *timers[] = {&c->retry, &c->renew, &c->tick, &c->greet};
    for (unsigned i = 0; i < sizeof timers / sizeof timers[0]; i++) {
        uv_timer_init(&c->loop, timers[i]);
        timers[i]->data = c;
    }
    if (uv_async_init(&c->loop, &c->wake, on_wake) != 0) {
        for (unsigned i = 0; i < sizeof timers / sizeof timers[0]; i++)
            uv_close((uv_handle_t *)timers[i], NULL);
        uv_run(&c->loop, UV_RUN_DEFAULT);
        uv_loop_close(&c->loop);
        return -1;
    }
    c->wake.data = c;
    c->handles = true;
    c->session->wake = &c->wake;
    uv_timer_start(&c->tick, on_tick, TICK_MS, TICK_MS);
    return 0;
}

/* On failure tb_connection_close takes down what stands. */
enum tb_status tb_connection_open(struct tb_session *s, const struct tb_session_options *options)
{
    TB_ASSERT(s->connection == NULL && s->wake == NULL);
    struct tb_connection *c = tb_calloc(1, sizeof *c);
    if (c == NULL) return (enum tb_status)tb_fail(TB_SITE_NOMEM, "no memory for the connection");
    s->connection = c;
    c->session = s;
    const enum tb_status parsed = tb_endpoint_parse(options->gateway, &c->gateway);
    TB_ASSERT(parsed == TB_OK); /* checked before */
    c->greeting = (struct tb_greeting){.session = s, .by_unix = c->gateway.is_unix};
    /* by a unix socket its credentials say who we are */
    const int status = c->gateway.is_unix ? TB_OK : tb_own_certificate_open(&c->own, options);
    if (status != TB_OK) return (enum tb_status)status;
    if (init_loop(c) != 0) return (enum tb_status)tb_fail(TB_SITE_NOMEM, "no event loop could be made");
    if (tb_thread_start(&c->thread, session_main, c) != 0)
        return (enum tb_status)tb_fail(TB_SITE_NOMEM, "the session's thread could not be started");
    c->started = true;
    return TB_OK;
}

void tb_connection_close(struct tb_session *s)
{
    struct tb_connection *c = s->connection;
    if (c == NULL) return;
    tb_session_lock(s);
    c->last_wake = true;
    tb_session_unlock(s);
    if (c->started) {
        uv_async_send(&c->wake);
        pthread_join(c->thread, NULL);
    } else if (c->handles) {
        close_handles(c);
        uv_run(&c->loop, UV_RUN_DEFAULT);
    }
    if (c->handles) {
        const int busy = uv_loop_close(&c->loop);
        TB_ASSERT(busy == 0);
    }
    s->connection = NULL;
    s->wake = NULL;
    tb_own_certificate_close(&c->own);
    tb_free(c);
}
