#include "net_world.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "tests/unit/scratch.h"

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

void world_init(struct world *w)
{
    memset(w, 0, sizeof *w);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    uv_timer_init(&w->loop, &w->tick);
    uv_timer_start(&w->tick, on_tick, 5, 5);
    assert_true(scratch_folder(w->dir, sizeof w->dir, "net"));
}

static void on_left(uv_handle_t *handle, void *user)
{
    if (!uv_is_closing(handle) && handle != (uv_handle_t *)user)
        fail_msg("a %s was left", uv_handle_type_name(handle->type));
}

void world_fini(struct world *w)
{
    /* First, for a test that failed midway has left chans whose owner is gone with its stack. */
    uv_walk(&w->loop, on_left, &w->tick);
    uv_close((uv_handle_t *)&w->tick, NULL);
    for (int i = 0; i < 10; i++)
        uv_run(&w->loop, UV_RUN_NOWAIT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    assert_true(scratch_remove(w->dir));
}

int world_setup(void **state)
{
    static struct world w;
    world_init(&w);
    *state = &w;
    return 0;
}

int world_teardown(void **state)
{
    world_fini(*state);
    return 0;
}

struct tb_tls_expect world_expect(const char *uri)
{
    struct tb_tls_expect e = {0};
    if (uri != NULL) assert_int_equal(tb_identity_parse(uri, &e.identity), TB_OK);
    return e;
}

void world_turns(struct world *w, int turns)
{
    for (int i = 0; i < turns; i++)
        uv_run(&w->loop, UV_RUN_ONCE);
}

const char *world_path(const struct world *w, const char *a, const char *b)
{
    static char paths[64][256];
    static unsigned next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof paths[0], "%s/%s/%s", w->dir, a, b);
    return path;
}

size_t world_file_read(const char *path, char *bytes_out, size_t bytes_max)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    const size_t bytes = fread(bytes_out, 1, bytes_max, f);
    assert_int_equal(fclose(f), 0);
    return bytes;
}

void world_file_write(const char *path, const char *how, const char *bytes, size_t count)
{
    FILE *f = fopen(path, how);
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

void world_issue_for(struct world *w, const char *site, const char *stem, const char *uri, int64_t start_s,
                     int64_t valid_s)
{
    char dir[128], why[256];
    struct tb_identity who;
    struct stat st;
    snprintf(dir, sizeof dir, "%s/%s", w->dir, site);
    if (stat(dir, &st) != 0) assert_int_equal(tb_pki_init(dir, site, 30, why), TB_OK);
    assert_int_equal(tb_identity_parse(uri, &who), TB_OK);
    assert_int_equal(tb_pki_issue(dir, stem, &who, start_s, valid_s, why), TB_OK);
}

void world_issue(struct world *w, const char *site, const char *stem, const char *uri)
{
    world_issue_for(w, site, stem, uri, -60, 3600);
}

struct tb_tls *world_tls(struct world *w, const char *site, const char *stem, const char *ca_site)
{
    char crt[80], key[80], why[256];
    snprintf(crt, sizeof crt, "%s.crt", stem);
    snprintf(key, sizeof key, "%s.key", stem);
    const struct tb_tls_files files = {.ca = world_path(w, ca_site, "ca.crt"),
                                       .cert = world_path(w, site, crt),
                                       .key = world_path(w, site, key)};
    struct tb_tls *tls = NULL;
    if (tb_tls_new_ca(&files, &tls, why) != TB_OK) fail_msg("%s", why);
    return tls;
}

struct tb_tls *world_tls_expiring(struct world *w, const char *site, const char *stem, const char *uri,
                                  const char *ca_site)
{
    char crt[80], key[80], why[256];
    snprintf(crt, sizeof crt, "%s.crt", stem);
    snprintf(key, sizeof key, "%s.key", stem);
    for (int64_t life_s = 4;; life_s *= 2) {
        const uint64_t end_ms = tb_clock_wall_ms() + (uint64_t)life_s * 1000;
        world_issue_for(w, site, stem, uri, -3600, 3600 + life_s);
        const struct tb_tls_files files = {.ca = world_path(w, ca_site, "ca.crt"),
                                           .cert = world_path(w, site, crt),
                                           .key = world_path(w, site, key)};
        struct tb_tls *tls = NULL;
        if (tb_tls_new_ca(&files, &tls, why) == TB_OK) return tls;
        if (tb_clock_wall_ms() + 1000 < end_ms || life_s > 60) fail_msg("%s", why); /* it has not expired */
    }
}

/* Ends. Inside a callback it is TB_ASSERT: cmocka's would jump out of the loop, and the
 * teardown would hang in it. */

static void on_open(struct tb_chan *c, void *user, const struct tb_chan_peer *peer)
{
    struct end *e = user;
    TB_ASSERT(e->closed == 0);
    e->opened++;
    e->peer = *peer;
    if (e->close_in_open) tb_chan_close(c, TB_CANCELLED);
    if (e->out_bytes > e->sent) tb_chan_want_write(c, true);
}

static void keep(struct end *e, const uint8_t *bytes, size_t count)
{
    if (e->check != NULL) {
        TB_ASSERT(memcmp(bytes, e->check + e->got, count) == 0);
    } else {
        if (e->got + count > e->cap) {
            e->cap = (e->got + count) * 2;
            e->in = realloc(e->in, e->cap);
            TB_ASSERT(e->in != NULL);
        }
        memcpy(e->in + e->got, bytes, count);
    }
    e->got += count;
}

static void on_readable(struct tb_chan *c, void *user)
{
    static uint8_t room[65536];
    struct end *e = user;
    TB_ASSERT(e->opened == 1);
    TB_ASSERT(e->closed == 0);
    e->readable++;
    if (e->close_in_readable) tb_chan_close(c, TB_CANCELLED);
    if (e->read_not) return;
    size_t count = 0;
    e->read_status = tb_chan_read(c, room, e->read_bytes != 0 ? e->read_bytes : sizeof room, &count);
    TB_ASSERT((e->read_status == TB_OK) == (count > 0));
    if (count > 0) keep(e, room, count);
}

static void on_writable(struct tb_chan *c, void *user)
{
    struct end *e = user;
    size_t put = 0;
    if (e->close_in_writable) tb_chan_close(c, TB_CANCELLED);
    if (e->sent < e->out_bytes && tb_chan_write(c, e->out + e->sent, e->out_bytes - e->sent, &put) == TB_OK)
        e->sent += put;
    if (e->sent == e->out_bytes) tb_chan_want_write(c, false);
}

static void on_closed(struct tb_chan *c, void *user, enum tb_status why)
{
    struct end *e = user;
    e->closed++;
    e->why = why;
    snprintf(e->reason, sizeof e->reason, "%s", tb_chan_reason(c));
    e->refusal = tb_chan_refusal(c);
    e->reach = tb_chan_reach(c);
    e->chan = NULL;
}

const struct tb_chan_ops end_ops = {
    .on_open = on_open, .on_readable = on_readable, .on_writable = on_writable, .on_closed = on_closed};

void end_fini(struct end *e)
{
    free(e->in);
    e->in = NULL;
}

void end_send(struct end *e, const void *bytes, size_t count)
{
    e->out = bytes;
    e->out_bytes = count;
    e->sent = 0;
    tb_chan_want_write(e->chan, true);
}

/* Pairs. */

static void on_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    struct pair *p = user;
    p->accepted++;
    if (tb_chan_accept(&p->server, fd, &p->s.chan) != TB_OK) p->s.chan = NULL;
}

void pair_init(struct pair *p, struct world *w, struct tb_tls *server, struct tb_tls *client, bool local)
{
    memset(p, 0, sizeof *p);
    p->world = w;
    p->at = loopback(0);
    if (local) {
        struct tb_endpoint e = {.is_unix = true};
        snprintf(e.host, sizeof e.host, "%s/sock", w->dir);
        assert_int_equal(tb_endpoint_address(&e, &p->at), TB_OK);
    }
    assert_int_equal(tb_listen(&w->loop, &p->at, 0600, on_accept, p, &p->listener), TB_OK);
    p->at = tb_listener_address(p->listener);
    p->server = (struct tb_chan_options){.loop = &w->loop, .tls = server, .ops = &end_ops, .user = &p->s};
    p->client = (struct tb_chan_options){.loop = &w->loop, .tls = client, .ops = &end_ops, .user = &p->c};
}

void pair_dial(struct pair *p)
{
    assert_int_equal(tb_chan_dial(&p->client, &p->at, &p->c.chan), TB_OK);
    assert_int_equal(p->c.opened + p->c.closed, 0); /* never inside the call */
}

void pair_open(struct pair *p)
{
    pair_dial(p);
    WORLD_UNTIL(p->world, p->s.opened && p->c.opened);
}

void pair_fini(struct pair *p)
{
    if (p->c.chan != NULL) tb_chan_close(p->c.chan, TB_OK);
    if (p->s.chan != NULL) tb_chan_close(p->s.chan, TB_OK);
    WORLD_UNTIL(p->world, p->c.chan == NULL && p->s.chan == NULL);
    tb_listener_close(p->listener);
    end_fini(&p->s);
    end_fini(&p->c);
}

struct tb_address loopback(uint16_t port)
{
    struct tb_address at;
    const struct tb_endpoint e = {.host = "127.0.0.1", .port = port};
    assert_int_equal(tb_endpoint_address(&e, &at), TB_OK);
    return at;
}

int raw_connect(const struct tb_address *at)
{
    const int fd = socket(at->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, &at->any, at->bytes), 0);
    return fd;
}

int open_fds(void)
{
    int count = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d) != NULL)
        count++;
    closedir(d);
    return count - 3; /* ".", ".." and d itself */
}
