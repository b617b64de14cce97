/* door_owners.c - readers at the gateway's door, by the identity that has their token. One has its
 * share of them (P7). One that is revoked, expired, shut out or without a session reads no more
 * (P8), and what it garbles there counts (P7).
 *
 * Covers: gateway/daemon/sessions/session_limits.c gateway/daemon/sessions/session_hops.c
 * Covers: gateway/daemon/sessions/sessions.c intra/fabric/door.c intra/fabric/door_ends.c
 * Covers: intra/fabric/exports.c intra/fabric/fabric_exports.c */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway/daemon/audit.h"
#include "gateway/daemon/sessions/session_hops.h"
#include "gateway/daemon/sessions/session_limits.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/daemon/sessions/sessions.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/hop/hop_wire.h"
#include "tests/unit/caught_log.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"
#include "tests/unit/net/net_world.h"

#define EXPORT_ID 77u

struct party {
    struct tb_worker_session *session; /* it says nothing */
};

struct scene {
    struct home home;
    struct party greedy, other;
    uint64_t tokens;
    uint64_t bytes[1024];
    struct world world; /* of certificates, with tls_begin */
    char ca[128], cert[128], key[128];
};

static struct tb_id fresh(struct scene *s)
{
    struct tb_id id = {{0xaa}};
    s->tokens++;
    memcpy(id.bytes + 8, &s->tokens, sizeof s->tokens);
    return id;
}

static void party_open(struct scene *s, struct party *p, const char *identity)
{
    p->session = tb_worker_new(s->home.d, false);
    assert_non_null(p->session);
    CHECK_OK(tb_identity_parse(identity, &p->session->identity));
    p->session->id = fresh(s);
    tb_worker_enlist(p->session);
}

static void scene_begin(struct scene *s)
{
    s->home.config->session_lease_ms = 60000; /* longer than a busy machine turns no loop */
    home_start(&s->home);
    const struct tb_export_buffer buffer = {.bytes = s->bytes, .count = sizeof s->bytes, .memfd = -1};
    const struct tb_export_options options = {.export_id = EXPORT_ID, .buffers = &buffer, .buffer_count = 1};
    CHECK_OK(tb_export_open(s->home.d->fabric, &options));
    party_open(s, &s->greedy, "tombolo://east/worker/greedy");
    party_open(s, &s->other, "tombolo://east/worker/other");
}

static void begin(struct scene *s)
{
    memset(s, 0, sizeof *s);
    home_new(&s->home);
    scene_begin(s);
}

/* Its gateway has a certificate. */
static void begin_with_tls(struct scene *s)
{
    memset(s, 0, sizeof *s);
    home_new(&s->home);
    world_init(&s->world);
    world_issue(&s->world, "east", "gw", "tombolo://east/gw");
    (void)snprintf(s->ca, sizeof s->ca, "%s", world_path(&s->world, "east", "ca.crt"));
    (void)snprintf(s->cert, sizeof s->cert, "%s", world_path(&s->world, "east", "gw.crt"));
    (void)snprintf(s->key, sizeof s->key, "%s", world_path(&s->world, "east", "gw.key"));
    s->home.config->tls_ca = s->ca;
    s->home.config->tls_cert = s->cert;
    s->home.config->tls_key = s->key;
    CHECK_OK(tb_name_set(&s->home.config->gateway, "gw"));
    scene_begin(s);
}

static void end(struct scene *s)
{
    home_turn_until(&s->home, "door_readers", 0);
    if (s->greedy.session != NULL) tb_worker_free(s->greedy.session);
    tb_worker_free(s->other.session);
    tb_export_close(s->home.d->fabric, EXPORT_ID, 0);
    home_end(&s->home);
    if (s->home.config->tls_ca == s->ca) {
        s->home.config->tls_ca = s->home.config->tls_cert = s->home.config->tls_key = NULL;
        world_fini(&s->world);
    }
    home_free(&s->home);
}

static void leave(struct party *p)
{
    tb_worker_free(p->session);
    p->session = NULL;
}

static struct tb_id door_token_of(struct scene *s, uint64_t owner)
{
    static const struct tb_fingerprint none;
    const struct tb_id token = fresh(s);
    CHECK_OK(tb_export_grant_of(s->home.d->fabric, EXPORT_ID, &token, &none, owner));
    return token;
}

static struct tb_id door_token(struct scene *s, const struct party *p)
{
    return door_token_of(s, tb_worker_session_owner(&p->session->identity));
}

/* A reader that shows that token at the door: the type of the answer. */
static uint16_t door_enter_by(struct scene *s, struct tb_id token, int *fd_out)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const char *name = s->home.d->endpoint.shm_door;
    memcpy(to.sun_path + 1, name, strlen(name));
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    *fd_out = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval patience = {.tv_sec = 30}; /* for an answer that never comes */
    assert_int_equal(setsockopt(*fd_out, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(*fd_out, (const struct sockaddr *)&to, bytes), 0);
    uint8_t out[TB_HOP_REQUEST_BYTES], in[TB_HOP_ANSWER_BYTES];
    const struct tb_hop_request hello = {.type = TB_HOP_REQUEST_HELLO,
                                         .buffer = TB_HOP_WIRE_VERSION,
                                         .a = TB_HOP_WIRE_MAGIC,
                                         .b = EXPORT_ID,
                                         .token = token};
    struct tb_writer writer;
    tb_writer_init(&writer, out, sizeof out);
    tb_hop_request_encode(&hello, &writer);
    assert_int_equal(send(*fd_out, out, sizeof out, 0), (ssize_t)sizeof out);
    assert_int_equal(recv(*fd_out, in, sizeof in, MSG_WAITALL), (ssize_t)sizeof in);
    return (uint16_t)(in[0] | in[1] << 8);
}

static uint16_t door_enter(struct scene *s, const struct party *p, int *fd_out)
{
    return door_enter_by(s, door_token(s, p), fd_out);
}

/* The type of what the door says next. */
static uint16_t door_says(int fd)
{
    uint8_t in[TB_HOP_ANSWER_BYTES];
    assert_int_equal(recv(fd, in, sizeof in, MSG_WAITALL), (ssize_t)sizeof in);
    return (uint16_t)(in[0] | in[1] << 8);
}

static void door_ask(int fd, uint16_t type)
{
    uint8_t out[TB_HOP_REQUEST_BYTES];
    struct tb_writer writer;
    tb_writer_init(&writer, out, sizeof out);
    tb_hop_request_encode(&(struct tb_hop_request){.type = type}, &writer);
    assert_int_equal(send(fd, out, sizeof out, 0), (ssize_t)sizeof out);
}

/* P8: its hops end, and a token that it has not used opens nothing. Those of others go on. */
static void a_party_that_is_shut_out_reads_no_more(void **state)
{
    (void)state;
    struct scene s;
    int greedy = -1, late = -1, other = -1;
    begin(&s);
    assert_int_equal(door_enter(&s, &s.greedy, &greedy), TB_HOP_ANSWER_WELCOME);
    assert_int_equal(door_enter(&s, &s.other, &other), TB_HOP_ANSWER_WELCOME);
    const struct tb_id unused = door_token(&s, &s.greedy), theirs = door_token(&s, &s.other);
    tb_session_hops_end(s.home.d, &s.greedy.session->identity);
    tb_session_hops_flush(s.home.d);
    assert_int_equal(door_says(greedy), TB_HOP_ANSWER_END);
    assert_int_equal(door_enter_by(&s, unused, &late), TB_HOP_ANSWER_END);
    door_ask(other, TB_HOP_REQUEST_PING);
    assert_int_equal(door_says(other), TB_HOP_ANSWER_PONG);
    (void)close(late);
    assert_int_equal(door_enter_by(&s, theirs, &late), TB_HOP_ANSWER_WELCOME);
    (void)close(greedy);
    (void)close(late);
    (void)close(other);
    end(&s);
}

/* A hop and an unused token of the greedy party. */
struct reach {
    struct tb_id unused;
    int hop;
};

static struct reach reach_new(struct scene *s)
{
    struct reach r = {.hop = -1};
    assert_int_equal(door_enter(s, &s->greedy, &r.hop), TB_HOP_ANSWER_WELCOME);
    r.unused = door_token(s, &s->greedy);
    return r;
}

static void reach_check(struct scene *s, struct reach *r, bool ended)
{
    int late = -1;
    if (!ended) door_ask(r->hop, TB_HOP_REQUEST_PING);
    assert_int_equal(door_says(r->hop), ended ? TB_HOP_ANSWER_END : TB_HOP_ANSWER_PONG);
    assert_int_equal(door_enter_by(s, r->unused, &late), ended ? TB_HOP_ANSWER_END : TB_HOP_ANSWER_WELCOME);
    (void)close(late);
    (void)close(r->hop);
}

/* P8: nobody could find it by its session any more. */
static void a_party_whose_last_session_left_reads_no_more(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    struct reach r = reach_new(&s);
    leave(&s.greedy);
    tb_sessions_tick(s.home.d, 0);
    reach_check(&s, &r, true);
    end(&s);
}

static void a_party_with_another_session_reads_on(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    struct reach r = reach_new(&s);
    struct party again = {0};
    party_open(&s, &again, "tombolo://east/worker/greedy");
    leave(&again);
    tb_sessions_tick(s.home.d, 0);
    reach_check(&s, &r, false);
    end(&s);
}

/* P8: its connection is gone, so nothing but its row says when its certificate ends. */
static void a_party_that_is_away_reads_until_its_certificate_expires(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    struct reach r = reach_new(&s);
    s.greedy.session->expires_wall_s = 1000;
    tb_sessions_tick(s.home.d, 1000);
    door_ask(r.hop, TB_HOP_REQUEST_PING);
    assert_int_equal(door_says(r.hop), TB_HOP_ANSWER_PONG);
    tb_sessions_tick(s.home.d, 1001);
    reach_check(&s, &r, true);
    end(&s);
}

/* P8: whether its certificate still counts can be told once it is back. */
static void a_party_that_is_away_reads_no_more_once_trust_changes(void **state)
{
    (void)state;
    struct scene s;
    begin_with_tls(&s);
    struct reach r = reach_new(&s);
    tb_sessions_distrust(s.home.d);
    reach_check(&s, &r, true);
    end(&s);
}

/* One call ends many, and none is left out where there are more. */
static void many_parties_end_at_once(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    struct reach r = reach_new(&s);
    const uint64_t owner = tb_worker_session_owner(&s.greedy.session->identity);
    tb_session_hops_end_owner(s.home.d, owner);
    for (uint64_t i = 1; i <= TB_SESSION_HOPS_MAX; i++)
        tb_session_hops_end_owner(s.home.d, owner ^ i);
    assert_int_equal(s.home.d->session_hops.ending_count, 1);
    tb_session_hops_flush(s.home.d);
    assert_int_equal(s.home.d->session_hops.ending_count, 0);
    reach_check(&s, &r, true);
    end(&s);
}

/* A certificate that could not be read for want of memory has no identity. */
static void a_party_without_an_identity_has_no_hops(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    tb_session_hops_end(s.home.d, &(struct tb_identity){.kind = TB_IDENTITY_NONE});
    assert_int_equal(s.home.d->session_hops.ending_count, 0);
    end(&s);
}

/* P7 P8 P10: hops of an identity may outlive its sessions for a second. */
static void a_party_without_a_session_is_shut_out_too(void **state)
{
    (void)state;
    enum { NONSENSE = 250 };
    struct scene s;
    char lines[8192] = "";
    begin(&s);
    const int log = caught_log_new();
    struct reach r = reach_new(&s);
    const uint64_t owner = tb_worker_session_owner(&s.greedy.session->identity);
    leave(&s.greedy);
    struct tb_audit_usage before, after;
    tb_audit_usage(s.home.d, &before);
    tb_log_set(TB_LOG_WARN, log);
    for (uint32_t n = 0; n < s.home.config->garbled_frames; n++) {
        int fd = -1;
        assert_int_equal(door_enter_by(&s, door_token_of(&s, owner), &fd), TB_HOP_ANSWER_WELCOME);
        door_ask(fd, NONSENSE);
        assert_int_equal(door_says(fd), TB_HOP_ANSWER_END);
        (void)close(fd);
        tb_worker_hops_garbled(s.home.d);
    }
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    assert_true(pread(log, lines, sizeof lines - 1, 0) > 0);
    (void)close(log);
    assert_non_null(strstr(lines, "session.shut_out"));
    assert_non_null(strstr(lines, "owner="));
    tb_audit_usage(s.home.d, &after);
    assert_int_equal(after.sums.used, before.sums.used + 1);
    assert_int_equal(s.home.d->counters.shut_outs, 1);
    reach_check(&s, &r, true);
    end(&s);
}

/* P7: requests at the door that break the protocol are its identity's, as frames are. */
static void garbled_requests_at_the_door_shut_a_party_out(void **state)
{
    (void)state;
    enum { NONSENSE = 250 };
    struct scene s;
    begin(&s);
    const uint64_t owner = tb_worker_session_owner(&s.greedy.session->identity);
    struct tb_glitch_budget *glitches = s.home.d->session_limits.glitches;
    for (uint32_t n = 0; n < s.home.config->garbled_frames; n++) {
        int fd = -1;
        assert_int_equal(tb_glitch_shut(glitches, owner, tb_clock_now()), 0);
        assert_int_equal(door_enter(&s, &s.greedy, &fd), TB_HOP_ANSWER_WELCOME);
        door_ask(fd, NONSENSE);
        assert_int_equal(door_says(fd), TB_HOP_ANSWER_END);
        (void)close(fd);
        tb_worker_hops_garbled(s.home.d);
    }
    assert_true(tb_glitch_shut(glitches, owner, tb_clock_now()) > 0);
    assert_int_equal(s.home.d->counters.shut_outs, 1);
    end(&s);
}

static void one_identity_has_its_share(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    const uint64_t share = home_table(&s.home, "door_readers", "bound") / 4;
    int *fds = calloc(share + 2, sizeof *fds);
    assert_non_null(fds);
    for (uint64_t n = 0; n < share; n++)
        assert_int_equal(door_enter(&s, &s.greedy, &fds[n]), TB_HOP_ANSWER_WELCOME);
    assert_int_equal(door_enter(&s, &s.greedy, &fds[share]), TB_HOP_ANSWER_END);
    assert_int_equal(door_enter(&s, &s.other, &fds[share + 1]), TB_HOP_ANSWER_WELCOME);
    assert_int_equal(home_table(&s.home, "door_readers", "shares_spent"), 1);
    for (uint64_t n = 0; n <= share + 1; n++)
        (void)close(fds[n]);
    free(fds);
    end(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_identity_has_its_share),
        cmocka_unit_test(a_party_that_is_shut_out_reads_no_more),
        cmocka_unit_test(garbled_requests_at_the_door_shut_a_party_out),
        cmocka_unit_test(a_party_whose_last_session_left_reads_no_more),
        cmocka_unit_test(a_party_with_another_session_reads_on),
        cmocka_unit_test(a_party_that_is_away_reads_until_its_certificate_expires),
        cmocka_unit_test(a_party_that_is_away_reads_no_more_once_trust_changes),
        cmocka_unit_test(many_parties_end_at_once),
        cmocka_unit_test(a_party_without_an_identity_has_no_hops),
        cmocka_unit_test(a_party_without_a_session_is_shut_out_too),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("daemon.door_owners", tests, NULL, NULL);
}
