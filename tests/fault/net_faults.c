/* base/net under faults: one round makes contexts from files and from nothing, listens, dials,
 * shakes hands, moves frames both ways over TLS, passes descriptors over a unix socket, and asks
 * for a name at a server that is not there.
 *
 * Covers: base/net/endpoint.c base/net/listen.c base/net/tls.c base/net/chan.c base/net/resolve.c
 * Covers: base/net/library_faults.c base/fault.c */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/net/chan_bytes.h"
#include "base/net/chan_facts.h"
#include "base/net/listen.h"
#include "base/net/resolve.h"
#include "net_world.h"
#include "tests/fault/sweep.h"

#define FRAME_BYTES 300000
#define OPEN_MS     150   /* where a call fails: after this an end gives up that was never accepted */
#define PATIENT_MS  10000 /* where none does */

/* One end of the wires. */
struct post {
    struct tb_wire *wire; /* NULL before and after */
    int frames;
    bool closed;
};

struct round {
    struct world *world;
    struct tb_tls *server_tls, *client_tls, *hop_tls;
    struct tb_listener *wires, *chans;
    struct tb_resolver *resolver;
    struct post s, c;
    struct tb_chan *giver, *taker;
    struct tb_chan_options taker_options;
    struct tb_wire_options server;
    int taken;          /* descriptors that came */
    bool done;          /* all of it worked */
    bool name_answered; /* in whatever way */
};

static uint8_t content[FRAME_BYTES];
static uint32_t open_ms = PATIENT_MS;

/* Frames. */

static void put_content(struct tb_wire *w)
{
    struct tb_writer *out = tb_wire_begin(w, 1, 0, sizeof content);
    if (out == NULL) return;
    tb_write_bytes(out, content, sizeof content);
    tb_wire_end(w);
}

static void on_wire_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)user;
    TB_ASSERT(peer->identity.kind == TB_IDENTITY_GATEWAY);
    put_content(w);
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *frame)
{
    (void)w;
    struct post *p = user;
    TB_ASSERT(frame->payload.left == sizeof content);
    TB_ASSERT(memcmp(frame->payload.at, content, sizeof content) == 0);
    p->frames++;
    return TB_OK;
}

static void on_wire_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w;
    struct post *p = user;
    TB_ASSERT(!p->closed && why != TB_AGAIN);
    p->closed = true;
    p->wire = NULL;
}

static const struct tb_wire_ops wire_ops = {
    .on_open = on_wire_open, .on_frame = on_frame, .on_closed = on_wire_closed};

static void on_wire_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    struct round *r = user;
    if (r->s.wire != NULL || tb_wire_accept(&r->server, fd, &r->s.wire) != TB_OK) r->s.closed = true;
}

/* Descriptors. */

static void on_chan_open(struct tb_chan *c, void *user, const struct tb_chan_peer *peer)
{
    (void)peer;
    const struct round *r = user;
    const int fds[2] = {STDERR_FILENO, STDERR_FILENO};
    if (c == r->giver && tb_chan_send_fds(c, fds, 2) != TB_OK) tb_chan_close(c, TB_OK);
}

static void on_chan_readable(struct tb_chan *c, void *user)
{
    struct round *r = user;
    int fds[16];
    uint32_t count = 0;
    if (tb_chan_recv_fds(c, fds, 16, &count) == TB_OK) r->taken += (int)count;
    for (uint32_t i = 0; i < count; i++)
        close(fds[i]);
}

static void on_chan_closed(struct tb_chan *c, void *user, enum tb_status why)
{
    (void)why;
    struct round *r = user;
    if (c == r->giver)
        r->giver = NULL;
    else
        r->taker = NULL;
}

static const struct tb_chan_ops chan_ops = {
    .on_open = on_chan_open, .on_readable = on_chan_readable, .on_closed = on_chan_closed};

static void on_chan_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    struct round *r = user;
    if (tb_chan_accept(&r->taker_options, fd, &r->taker) != TB_OK) r->taker = NULL;
}

/* The round. */

static enum tb_status tls_of(const struct world *w, const char *site, const char *other,
                             struct tb_tls **tls_out)
{
    char why[256];
    const struct tb_tls_files files = {.ca = world_path(w, other, "ca.crt"),
                                       .cert = world_path(w, site, "gw.crt"),
                                       .key = world_path(w, site, "gw.key")};
    struct tb_name name;
    enum tb_status status = tb_tls_new_ca(&files, tls_out, why);
    if (status == TB_OK) status = tb_name_set(&name, other);
    if (status == TB_OK) status = tb_tls_add_site_ca(*tls_out, &name, files.ca, why);
    TB_ASSERT(status == TB_OK || why[0] != '\0');
    return status;
}

static bool begin_tls(struct round *r)
{
    return tls_of(r->world, "west", "east", &r->server_tls) == TB_OK &&
           tls_of(r->world, "east", "west", &r->client_tls) == TB_OK &&
           tb_tls_new_ephemeral(&r->hop_tls) == TB_OK;
}

static bool begin_wires(struct round *r)
{
    uv_loop_t *loop = &r->world->loop;
    const struct tb_address at = loopback(0);
    r->server = (struct tb_wire_options){
        .chan = {.loop = loop, .tls = r->server_tls, .open_ms = open_ms}, .ops = &wire_ops, .user = &r->s};
    const struct tb_wire_options client = {
        .chan = {.loop = loop, .tls = r->client_tls, .open_ms = open_ms}, .ops = &wire_ops, .user = &r->c};
    if (tb_listen(loop, &at, 0, on_wire_accept, r, &r->wires) != TB_OK) return false;
    const struct tb_address to = tb_listener_address(r->wires);
    return tb_wire_dial(&client, &to, &r->c.wire) == TB_OK;
}

static bool begin_chans(struct round *r)
{
    uv_loop_t *loop = &r->world->loop;
    struct tb_address at;
    struct tb_endpoint e = {.is_unix = true};
    snprintf(e.host, sizeof e.host, "%s/s", r->world->dir);
    r->taker_options =
        (struct tb_chan_options){.loop = loop, .ops = &chan_ops, .user = r, .open_ms = open_ms};
    if (tb_endpoint_address(&e, &at) != TB_OK) return false;
    if (tb_listen(loop, &at, 0600, on_chan_accept, r, &r->chans) != TB_OK) return false;
    if (tb_chan_dial(&r->taker_options, &at, &r->giver) != TB_OK) return false;
    /* Its open and its bytes go into the backlog, accepted or not. */
    tb_chan_deadline(r->giver, TB_TIMEOUT, open_ms);
    return true;
}

static void on_name(void *user, enum tb_status status, const struct tb_address *addresses, uint32_t count,
                    uint32_t ttl_s)
{
    (void)addresses, (void)count, (void)ttl_s;
    struct round *r = user;
    TB_ASSERT(status != TB_OK && !r->name_answered);
    r->name_answered = true;
}

static bool begin_name(struct round *r)
{
    const struct tb_resolver_options options = {.servers = "127.0.0.1:1", .timeout_ms = 100};
    const struct tb_endpoint e = {.host = "nobody.test.", .port = 1};
    if (tb_resolver_new(&r->world->loop, &options, &r->resolver) != TB_OK) return false;
    tb_resolve(r->resolver, &e, on_name, r);
    return true;
}

/* Nothing more can happen: it all worked, or what failed has said so. */
static bool round_over(const struct round *r)
{
    const bool frames = r->s.frames == 1 && r->c.frames == 1;
    const bool wires = frames || r->c.wire == NULL || r->c.closed;
    const bool fds = r->taken == 2 || r->giver == NULL;
    return wires && fds && r->name_answered;
}

static void round_end(struct round *r)
{
    if (r->c.wire != NULL) tb_wire_close(r->c.wire, TB_OK);
    if (r->s.wire != NULL) tb_wire_close(r->s.wire, TB_OK);
    if (r->giver != NULL) tb_chan_close(r->giver, TB_OK);
    if (r->taker != NULL) tb_chan_close(r->taker, TB_OK);
    tb_listener_close(r->wires);
    tb_listener_close(r->chans);
    tb_resolver_close(r->resolver);
    tb_tls_free(r->server_tls);
    tb_tls_free(r->client_tls);
    tb_tls_free(r->hop_tls);
}

/* True when all of it worked. */
static bool round_run(struct world *w)
{
    struct round r = {.world = w};
    const tb_time_ns from = tb_clock_now();
    const bool begun = begin_tls(&r) && begin_wires(&r) && begin_chans(&r) && begin_name(&r);
    /* The limit is for a call that was lost without a word. */
    while (begun && !round_over(&r) && tb_clock_now() < from + TB_SECONDS(20))
        uv_run(&w->loop, UV_RUN_ONCE);
    const bool over = !begun || round_over(&r);
    const bool done = begun && r.s.frames == 1 && r.c.frames == 1 && r.taken == 2;
    if (!over)
        fprintf(stderr, "stuck: frames %d %d, descriptors %d, name %d\n", r.s.frames, r.c.frames, r.taken,
                r.name_answered);
    round_end(&r);
    for (int i = 0; i < 50 && (r.c.wire != NULL || r.s.wire != NULL || r.giver != NULL || r.taker != NULL);
         i++)
        uv_run(&w->loop, UV_RUN_ONCE);
    TB_ASSERT(r.c.wire == NULL && r.s.wire == NULL && r.giver == NULL && r.taker == NULL);
    for (int i = 0; i < 3; i++)
        uv_run(&w->loop, UV_RUN_NOWAIT);
    TB_ASSERT(over);
    return done;
}

static uint64_t count_calls(bool (*round)(struct world *), struct world *w, int point)
{
    sweep_arm(point, 0, false);
    assert_true(round(w));
    return sweep_disarm(point);
}

static bool round_with_fault(struct world *w, bool (*round)(struct world *), int point, uint64_t nth,
                             bool lasting)
{
    const unsigned before = sweep_open_fds();
    fprintf(stderr, "%s:%u%s\n", sweep_name(point), (unsigned)nth, lasting ? "+" : "");
    sweep_arm(point, nth, lasting);
    open_ms = OPEN_MS;
    const bool done = round(w);
    open_ms = PATIENT_MS;
    (void)sweep_disarm(point);
    if (sweep_open_fds() != before)
        fail_msg("%s:%u%s left a descriptor", sweep_name(point), (unsigned)nth, lasting ? "+" : "");
    return done;
}

/* Runs the round with calls of every point failing; how many rounds did not do all of their work.
 * Of allocations each fails, also in the short form; of others a spread, as sweep.h has it. */
static int fail_each(struct world *w, bool (*round)(struct world *), uint64_t passed_over)
{
    int failed = 0;
    for (int point = 0; point < SWEEP_POINTS; point++) {
        if (point >= TB_FAULT_COUNT && (passed_over >> (point - TB_FAULT_COUNT) & 1) != 0) continue;
        const struct sweep spread = {.most = point == TB_FAULT_malloc ? UINT64_MAX / 2 : 8};
        const uint64_t calls = count_calls(round, w, point);
        for (uint64_t n = 1; n <= calls; n = sweep_next(&spread, point, n, calls)) {
            failed += !round_with_fault(w, round, point, n, false);
            failed += !round_with_fault(w, round, point, n, true);
        }
    }
    assert_true(round(w)); /* none of it spoiled what comes after */
    return failed;
}

/* P6, P7. SIGPIPE has its default action. */
static void no_fault_breaks_or_leaks_a_connection(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "west", "gw", "tombolo://west/gw");
    for (size_t i = 0; i < sizeof content; i++)
        content[i] = (uint8_t)(i * 31 + i / 251);
    assert_true(round_run(w)); /* what OpenSSL and c-ares make once a process is made here */
    const int failed = fail_each(w, round_run, 0);
    assert_true(failed > 50); /* the faults did reach the code */
}

/* Making keys: both files or none, whatever fails. */

static bool is_there(const struct world *w, const char *name)
{
    struct stat st;
    return lstat(world_path(w, "pki", name), &st) == 0;
}

static bool pki_round(struct world *w)
{
    char dir[128], why[256];
    struct tb_identity who;
    snprintf(dir, sizeof dir, "%s/pki", w->dir);
    TB_ASSERT(tb_identity_parse("tombolo://pki/gw", &who) == TB_OK);
    enum tb_status status = tb_pki_init(dir, "pki", 30, why);
    TB_ASSERT(is_there(w, "ca.crt") == (status == TB_OK) && is_there(w, "ca.key") == (status == TB_OK));
    TB_ASSERT((status == TB_OK) == (why[0] == '\0'));
    if (status == TB_OK) {
        status = tb_pki_issue(dir, "gw", &who, -60, 600, why);
        TB_ASSERT(is_there(w, "gw.crt") == (status == TB_OK) && is_there(w, "gw.key") == (status == TB_OK));
        TB_ASSERT((status == TB_OK) == (why[0] == '\0'));
    }
    static const char *const names[] = {"ca.crt", "ca.key", "gw.crt", "gw.key"};
    for (int i = 0; i < 4; i++)
        (void)unlink(world_path(w, "pki", names[i]));
    return status == TB_OK;
}

/* P8: half a key pair is worse than none. */
static void no_fault_leaves_half_a_key_pair(void **state)
{
    struct world *w = *state;
    /* These two the round calls itself, to look and to clear away. */
    const int failed = fail_each(w, pki_round, UINT64_C(1) << TB_CALL_lstat | UINT64_C(1) << TB_CALL_unlink);
    assert_true(failed > 10);
}

static int setup(void **state)
{
    static struct world w;
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    world_init(&w);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(no_fault_leaves_half_a_key_pair),
        TEST(no_fault_breaks_or_leaks_a_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
