/* door_owners.c - readers at the gateway's door, by the identity that has their token. One has its
 * share of them (P7). One that is revoked or shut out reads no more (P8), and what it garbles there
 * counts (P7).
 *
 * Covers: gateway/daemon/sessions/session_limits.c intra/fabric/door.c intra/fabric/door_ends.c
 * Covers: intra/fabric/exports.c intra/fabric/fabric_exports.c */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway/daemon/sessions/session_limits.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/hop/hop_wire.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

#define EXPORT_ID 77u

struct party {
    struct tb_worker_session *session; /* it says nothing */
};

struct scene {
    struct home home;
    struct party greedy, other;
    uint64_t tokens;
    uint64_t bytes[1024];
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

static void begin(struct scene *s)
{
    memset(s, 0, sizeof *s);
    home_new(&s->home);
    s->home.config->session_lease_ms = 60000; /* longer than a busy machine turns no loop */
    home_start(&s->home);
    const struct tb_export_buffer buffer = {.bytes = s->bytes, .count = sizeof s->bytes, .memfd = -1};
    const struct tb_export_options options = {.export_id = EXPORT_ID, .buffers = &buffer, .buffer_count = 1};
    CHECK_OK(tb_export_open(s->home.d->fabric, &options));
    party_open(s, &s->greedy, "tombolo://east/worker/greedy");
    party_open(s, &s->other, "tombolo://east/worker/other");
}

static void end(struct scene *s)
{
    home_turn_until(&s->home, "door_readers", 0);
    tb_worker_free(s->greedy.session);
    tb_worker_free(s->other.session);
    tb_export_close(s->home.d->fabric, EXPORT_ID, 0);
    home_end(&s->home);
    home_free(&s->home);
}

static struct tb_id door_token(struct scene *s, const struct party *p)
{
    const struct tb_id token = fresh(s);
    const struct tb_worker_session *w = p->session;
    CHECK_OK(tb_export_grant_of(s->home.d->fabric, EXPORT_ID, &token, &w->endpoint.fingerprint,
                                tb_worker_session_owner(&w->identity)));
    return token;
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
    tb_worker_hops_end(s.home.d, &s.greedy.session->identity);
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

/* P7: requests at the door that break the protocol count for the identity, as frames do. */
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
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("daemon.door_owners", tests, NULL, NULL);
}
