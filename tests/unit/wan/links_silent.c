/* links_silent.c - a path that goes silent, without a word to either end (P6): a proxy stands
 * between two gateways and freezes.
 *
 * Covers: wan/link/session/link_heartbeat.c wan/link/streams/streams_ahead.c
 * Covers: wan/link/path/link_dial.c */
#include "links_world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "wan/link/links_messages.h"

#define PIPE_ENDS_MAX 2048 /* a busy machine is silent too, and each session that takes over has ten */

struct pipe_end {
    uv_tcp_t tcp;
    struct pipe_end *other;
    struct proxy *proxy;
    bool frozen;
    bool closing;
};

struct proxy {
    uv_loop_t *loop;
    uv_tcp_t listener;
    struct sockaddr_in to;
    struct pipe_end ends[PIPE_ENDS_MAX];
    uint32_t count, open;
    bool listener_open;
};

struct pipe_write {
    uv_write_t request;
    char bytes[];
};

static void on_pipe_closed(uv_handle_t *h)
{
    struct pipe_end *e = h->data;
    e->proxy->open--;
}

static void pipe_close(struct pipe_end *e)
{
    if (e->closing) return;
    e->closing = true;
    uv_close((uv_handle_t *)&e->tcp, on_pipe_closed);
    if (!e->frozen) pipe_close(e->other);
}

static void on_pipe_written(uv_write_t *request, int status)
{
    (void)status;
    free(request->data);
}

static void on_pipe_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    (void)h;
    buf->base = malloc(suggested);
    buf->len = suggested;
}

static void on_pipe_read(uv_stream_t *s, ssize_t got, const uv_buf_t *buf)
{
    struct pipe_end *e = s->data;
    if (got > 0 && !e->other->closing) {
        struct pipe_write *w = malloc(sizeof *w + (size_t)got);
        memcpy(w->bytes, buf->base, (size_t)got);
        w->request.data = w;
        const uv_buf_t out = {.base = w->bytes, .len = (size_t)got};
        if (uv_write(&w->request, (uv_stream_t *)&e->other->tcp, &out, 1, on_pipe_written) != 0) free(w);
    }
    free(buf->base);
    if (got < 0) pipe_close(e);
}

static void on_pipe_connected(uv_connect_t *c, int status)
{
    struct pipe_end *e = c->data;
    free(c);
    if (status != 0) {
        pipe_close(e);
        return;
    }
    uv_read_start((uv_stream_t *)&e->tcp, on_pipe_alloc, on_pipe_read);
    uv_read_start((uv_stream_t *)&e->other->tcp, on_pipe_alloc, on_pipe_read);
}

static struct pipe_end *pipe_end_new(struct proxy *p)
{
    assert_true(p->count < PIPE_ENDS_MAX);
    struct pipe_end *e = &p->ends[p->count++];
    uv_tcp_init(p->loop, &e->tcp);
    e->tcp.data = e;
    e->proxy = p;
    p->open++;
    return e;
}

static void on_proxy_connection(uv_stream_t *listener, int status)
{
    struct proxy *p = listener->data;
    assert_int_equal(status, 0);
    struct pipe_end *a = pipe_end_new(p), *b = pipe_end_new(p);
    a->other = b;
    b->other = a;
    assert_int_equal(uv_accept(listener, (uv_stream_t *)&a->tcp), 0);
    uv_connect_t *c = malloc(sizeof *c);
    c->data = b;
    assert_int_equal(uv_tcp_connect(c, &b->tcp, (struct sockaddr *)&p->to, on_pipe_connected), 0);
}

static void on_listener_closed(uv_handle_t *h)
{
    ((struct proxy *)h->data)->listener_open = false;
}

static uint16_t proxy_start(struct proxy *p, uv_loop_t *loop, uint16_t to_port)
{
    struct sockaddr_in at;
    int bytes = sizeof at;
    memset(p, 0, sizeof *p);
    p->loop = loop;
    uv_ip4_addr("127.0.0.1", to_port, &p->to);
    uv_ip4_addr("127.0.0.1", 0, &at);
    uv_tcp_init(loop, &p->listener);
    p->listener.data = p;
    p->listener_open = true;
    assert_int_equal(uv_tcp_bind(&p->listener, (struct sockaddr *)&at, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&p->listener, 64, on_proxy_connection), 0);
    uv_tcp_getsockname(&p->listener, (struct sockaddr *)&at, &bytes);
    return ntohs(at.sin_port);
}

/* Packets of connections that are open go nowhere from here on, without a word to either end. New
 * connections go through. */
static void proxy_freeze(struct proxy *p)
{
    for (uint32_t i = 0; i < p->count; i++) {
        p->ends[i].frozen = true;
        if (!p->ends[i].closing) uv_read_stop((uv_stream_t *)&p->ends[i].tcp);
    }
}

static void proxy_stop(struct proxy *p)
{
    uv_close((uv_handle_t *)&p->listener, on_listener_closed);
    for (uint32_t i = 0; i < p->count; i++)
        pipe_close(&p->ends[i]);
}

/* P6: a path goes silent in the middle of a version: long before TCP would give up, or the session
 * is down, a fresh session takes over and the version arrives. The daemon hears only that it may
 * say again what went into the silence. */
static void a_silent_path_is_replaced(void **state)
{
    (void)state;
    struct links_world w;
    struct truth t;
    static struct proxy proxy;
    links_world_init(&w);
    truth_make(&t, 9, 1, 64 << 20);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", false);
    site_peer(east, west, false, false);
    site_peer(west, east, true, true);
    snprintf(west->addresses[0], sizeof west->addresses[0], "127.0.0.1:%u",
             proxy_start(&proxy, &w.net.loop, east->port));
    east->options.heartbeat_ms = west->options.heartbeat_ms = 100;
    east->options.silent_ms = west->options.silent_ms = 300;
    east->options.fresh_dial_ms = west->options.fresh_dial_ms = 100;
    east->options.down_ms = west->options.down_ms = 30000;
    site_start(east);
    site_start(west);
    site_publish(east, &t);
    WORLD_UNTIL(&w.net, site_copy(west, &t) != NULL && copy_held(site_copy(west, &t)) >= 8);
    proxy_freeze(&proxy);
    west->told = (struct tb_links_report){t.key.uid, west->options.site, TB_LINKS_REPORT_ACTIVATED};
    west->tells_again = true;
    assert_int_equal(tb_links_tell(west->links, 0, &west->told), TB_OK);
    WORLD_UNTIL(&w.net, site_stats(west, 0).sessions >= 2);
    WORLD_UNTIL(&w.net, west->landed == 1 && east->peer_held == 1);
    check_equal(site_copy(west, &t), &t);
    WORLD_UNTIL(&w.net, east->reports >= 1);
    assert_true(west->renewals >= 1 && east->renewals >= 1);
    assert_int_equal(west->ups, 1);
    assert_int_equal(west->downs + east->downs, 0);
    site_close(west);
    site_close(east);
    proxy_stop(&proxy);
    WORLD_UNTIL(&w.net, proxy.open == 0 && !proxy.listener_open);
    links_world_fini(&w);
    truth_free(&t);
}

/* And its twin: nothing gets through any more: the session is down after down_ms, and
 * the daemon is told why. */
static void a_path_that_stays_silent_is_down(void **state)
{
    (void)state;
    struct links_world w;
    static struct proxy proxy;
    links_world_init(&w);
    struct site *east = site_new(&w, "east", true), *west = site_new(&w, "west", false);
    site_peer(east, west, false, false);
    site_peer(west, east, true, true);
    snprintf(west->addresses[0], sizeof west->addresses[0], "127.0.0.1:%u",
             proxy_start(&proxy, &w.net.loop, east->port));
    west->options.heartbeat_ms = east->options.heartbeat_ms = 100;
    west->options.silent_ms = east->options.silent_ms = 60000;
    west->options.down_ms = east->options.down_ms = 500;
    site_start(east);
    site_start(west);
    BOTH_UP(&w, east, west);
    proxy_freeze(&proxy);
    /* On a busy machine the session that follows may fall silent too. */
    WORLD_UNTIL(&w.net, west->downs >= 1 && east->downs >= 1);
    CHECK_STATUS(west->last_why, TB_STREAM_IDLE);
    CHECK_STATUS(east->last_why, TB_STREAM_IDLE);
    site_close(west);
    site_close(east);
    proxy_stop(&proxy);
    WORLD_UNTIL(&w.net, proxy.open == 0 && !proxy.listener_open);
    links_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_path_is_replaced),
        cmocka_unit_test(a_path_that_stays_silent_is_down),
    };
    /* libuv writes without MSG_NOSIGNAL: the proxy of this test would die of it. Ours never
     * does. */
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
