/* tls.c - which peers pass a handshake, and which are refused. Both ends are ours, or one is a
 * "stranger": a plain OpenSSL client on a thread, for what our own contexts refuse to send.
 * Covers: base/net/tls.c base/net/tls_session.c */
#include "base/net/tls.h"
#include "base/net/revoked.h"

#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/net/chan_facts.h"
#include "base/net/tls_context.h"
#include "forged_certificate.h"

#define EAST "tombolo://east/gw"
#define WEST "tombolo://west/gw"

/* A gateway at each of two sites, each trusting the other's CA. */
static void two_sites(struct world *w, struct tb_tls **east, struct tb_tls **west)
{
    world_issue(w, "east", "gw", EAST);
    world_issue(w, "west", "gw", WEST);
    *east = world_tls(w, "east", "gw", "west");
    *west = world_tls(w, "west", "gw", "east");
}

/* P8: both know whom they talk to, from inside the handshake. */
static void both_ends_know_the_identity_of_their_peer(void **state)
{
    struct world *w = *state;
    struct tb_tls *east, *west;
    struct pair p;
    two_sites(w, &east, &west);
    pair_init(&p, w, west, east, false);
    p.client.expect = world_expect(WEST);
    p.server.expect = world_expect(EAST);
    pair_open(&p);
    assert_true(tb_identity_equal(&p.c.peer.identity, tb_tls_identity(west)));
    assert_true(tb_identity_equal(&p.s.peer.identity, tb_tls_identity(east)));
    assert_memory_equal(&p.c.peer.fingerprint, tb_tls_fingerprint(west), 32);
    assert_memory_equal(&p.s.peer.fingerprint, tb_tls_fingerprint(east), 32);
    assert_int_equal(p.c.peer.expires_wall_s, tb_tls_expires_wall_s(west));
    assert_int_equal(p.c.peer.pid, -1);
    assert_non_null(strstr(p.s.peer.address, "127.0.0.1:"));
    const uint64_t now_s = tb_clock_wall_ms() / 1000;
    assert_in_range(tb_tls_expires_wall_s(west), now_s + 3400, now_s + 3600);
    tb_tls_free(east); /* connections keep what they use */
    tb_tls_free(west);
    end_send(&p.c, "hello", 5);
    WORLD_UNTIL(w, p.s.got == 5);
    assert_memory_equal(p.s.in, "hello", 5);
    pair_fini(&p);
}

/* Of the last refused handshake, as both ends saw it. */
static struct tb_tls_refusal judged, told;

static void faults_are(enum tb_tls_fault fault, const char *claimed)
{
    char text[TB_URI_BYTES_MAX];
    assert_int_equal(judged.fault, fault);
    assert_false(judged.by_peer);
    tb_identity_format(&judged.claimed, text);
    assert_string_equal(text, claimed);
    assert_int_equal(told.fault, fault);
    assert_true(told.by_peer);
}

/* Runs a handshake that one end must refuse as `why`, and says what the other end saw. */
static enum tb_status refused(struct pair *p, bool by_server, enum tb_status why, const char *because)
{
    struct end *judge = by_server ? &p->s : &p->c;
    struct end *other = by_server ? &p->c : &p->s;
    pair_dial(p);
    WORLD_UNTIL(p->world, judge->closed == 1 && other->closed == 1);
    assert_int_equal(judge->opened, 0);
    assert_int_equal(judge->why, why);
    if (strstr(judge->reason, because) == NULL) fail_msg("said: %s", judge->reason);
    const enum tb_status other_why = other->why;
    judged = judge->refusal;
    told = other->refusal;
    pair_fini(p);
    return other_why;
}

/* P8: the wrong CA on either side. */
static void a_wrong_ca_is_refused(void **state)
{
    struct world *w = *state;
    struct pair p;
    static const char of_east[] = "no CA that is trusted here signed it; its authority is called \"east\"";
    world_issue(w, "east", "gw", EAST);
    world_issue(w, "west", "gw", WEST);
    struct tb_tls *west_trusts_west = world_tls(w, "west", "gw", "west");
    struct tb_tls *east_trusts_west = world_tls(w, "east", "gw", "west");
    pair_init(&p, w, west_trusts_west, east_trusts_west, false);
    assert_int_equal(refused(&p, true, TB_PEER_IDENTITY, of_east), TB_PEER_DENIED);
    faults_are(TB_TLS_FAULT_TRUST, EAST);

    pair_init(&p, w, east_trusts_west, west_trusts_west, false);
    assert_int_equal(refused(&p, false, TB_PEER_IDENTITY, of_east), TB_PEER_DENIED);
    faults_are(TB_TLS_FAULT_TRUST, EAST);
    tb_tls_free(west_trusts_west);
    tb_tls_free(east_trusts_west);
}

static struct tb_tls *tls_with_revoked(struct world *w, const char *site, const char *ca, const char *list)
{
    struct tb_revoked *revoked = NULL;
    uint32_t line;
    struct tb_tls *tls = world_tls(w, site, "gw", ca);
    assert_int_equal(tb_revoked_parse(list, strlen(list), &revoked, &line), TB_OK);
    tb_tls_set_revoked(tls, revoked);
    return tls;
}

/* P8: by either end, and the other one hears why. A connection that is open is found, too. */
static void a_revoked_certificate_is_refused(void **state)
{
    struct world *w = *state;
    struct tb_tls *east, *west;
    struct pair p;
    two_sites(w, &east, &west);
    struct tb_tls *list_east = tls_with_revoked(w, "west", "east", EAST);
    struct tb_tls *list_west = tls_with_revoked(w, "east", "west", WEST);
    pair_init(&p, w, list_east, east, false);
    assert_int_equal(refused(&p, true, TB_PEER_IDENTITY, "is revoked"), TB_PEER_DENIED);
    faults_are(TB_TLS_FAULT_REVOKED, EAST);
    pair_init(&p, w, west, list_west, false);
    assert_int_equal(refused(&p, false, TB_PEER_IDENTITY, "is revoked"), TB_PEER_DENIED);
    pair_init(&p, w, west, east, false);
    pair_open(&p);
    assert_true(tb_chan_is_revoked(p.s.chan, list_east));
    assert_false(tb_chan_is_revoked(p.s.chan, list_west));
    assert_false(tb_chan_is_revoked(p.s.chan, west));
    pair_fini(&p);
    tb_tls_free(list_east);
    tb_tls_free(list_west);
    tb_tls_free(east);
    tb_tls_free(west);
}

/* P8: a good certificate of somebody else. */
static void another_identity_is_refused(void **state)
{
    struct world *w = *state;
    struct tb_tls *east, *west;
    struct pair p;
    two_sites(w, &east, &west);
    static const char *const wrong[] = {"tombolo://north/gw", "tombolo://west/gw2",
                                        "tombolo://west/worker/gw"};
    for (int i = 0; i < 3; i++) {
        pair_init(&p, w, west, east, false);
        p.client.expect = world_expect(wrong[i]);
        (void)refused(&p, false, TB_PEER_IDENTITY, WEST);
    }
    pair_init(&p, w, west, east, false);
    p.server.expect = world_expect("tombolo://east/gw2");
    (void)refused(&p, true, TB_PEER_IDENTITY, EAST);

    pair_init(&p, w, west, east, false); /* the twin: any gateway of the right site */
    p.client.expect = world_expect(WEST);
    p.client.expect.identity.name.text[0] = '\0';
    pair_open(&p);
    pair_fini(&p);
    tb_tls_free(east);
    tb_tls_free(west);
}

/* The stranger. */

struct stranger {
    struct tb_address at;
    const char *cert, *key; /* NULL: none */
    int version_max;
    bool shook;
    char suite[64];
    int tickets;
    size_t got;
    atomic_bool done;
    pthread_t thread;
};

static int on_ticket(SSL *ssl, SSL_SESSION *session)
{
    (void)session;
    ((struct stranger *)SSL_get_app_data(ssl))->tickets++;
    return 0;
}

static void stranger_talk(struct stranger *s, SSL *ssl)
{
    char room[256];
    int got;
    SSL_set_app_data(ssl, s);
    s->shook = SSL_connect(ssl) == 1;
    if (!s->shook) return;
    snprintf(s->suite, sizeof s->suite, "%s", SSL_get_cipher(ssl));
    SSL_write(ssl, "x", 1);
    while ((got = SSL_read(ssl, room, sizeof room)) > 0)
        s->got += (size_t)got;
}

static void *stranger_main(void *user)
{
    struct stranger *s = user;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE); /* of this thread alone: the library has to do without */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (s->version_max != 0) SSL_CTX_set_max_proto_version(ctx, s->version_max);
    if (s->cert != NULL) SSL_CTX_use_certificate_file(ctx, s->cert, SSL_FILETYPE_PEM);
    if (s->key != NULL) SSL_CTX_use_PrivateKey_file(ctx, s->key, SSL_FILETYPE_PEM);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT);
    SSL_CTX_sess_set_new_cb(ctx, on_ticket);
    SSL *ssl = SSL_new(ctx);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const struct timeval limit = {.tv_sec = WORLD_WAIT_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, &s->at.any, s->at.bytes) == 0 && SSL_set_fd(ssl, fd) == 1) stranger_talk(s, ssl);
    SSL_free(ssl);
    close(fd);
    SSL_CTX_free(ctx);
    atomic_store(&s->done, true);
    return NULL;
}

static void stranger_start(struct stranger *s, const struct pair *p)
{
    s->at = p->at;
    assert_int_equal(pthread_create(&s->thread, NULL, stranger_main, s), 0);
}

static void stranger_refused(struct world *w, struct tb_tls *server, struct stranger *s, enum tb_status why,
                             const char *because)
{
    struct pair p;
    pair_init(&p, w, server, NULL, false);
    stranger_start(s, &p);
    WORLD_UNTIL(w, p.s.closed == 1 && atomic_load(&s->done));
    pthread_join(s->thread, NULL);
    assert_int_equal(p.s.opened, 0);
    assert_int_equal(p.s.why, why);
    assert_int_equal(s->got, 0);
    if (strstr(p.s.reason, because) == NULL) fail_msg("said: %s", p.s.reason);
    pair_fini(&p);
}

/* P8: exactly one URI. */
static void a_peer_with_no_or_two_uris_is_refused(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", EAST);
    struct tb_tls *tls = world_tls(w, "east", "gw", "east");
    static const char *const alts[] = {"URI:tombolo://east/a,URI:tombolo://east/b",
                                       "URI:tombolo://east/a,URI:http://x/",
                                       NULL,
                                       "DNS:east",
                                       "URI:http://east/a",
                                       "URI:tombolo://east/a/b",
                                       "URI:unix:0"};
    for (size_t i = 0; i < sizeof alts / sizeof *alts; i++) {
        char stem[8];
        snprintf(stem, sizeof stem, "f%zu", i);
        forge(w, &(struct forge){.dir = "east", .stem = stem, .alt = alts[i]});
        char crt[16], key[16];
        snprintf(crt, sizeof crt, "%s.crt", stem);
        snprintf(key, sizeof key, "%s.key", stem);
        struct stranger s = {.cert = world_path(w, "east", crt), .key = world_path(w, "east", key)};
        /* OpenSSL itself refuses a URI without a host where the CA has name constraints. */
        stranger_refused(w, tls, &s, TB_PEER_IDENTITY, "certificate");
    }
    tb_tls_free(tls);
}

static void strangers_are_refused(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", EAST);
    struct tb_tls *tls = world_tls(w, "east", "gw", "east");
    const char *cert = world_path(w, "east", "gw.crt"), *key = world_path(w, "east", "gw.key");

    struct stranger no_cert = {0};
    stranger_refused(w, tls, &no_cert, TB_STREAM_TLS, "certificate");
    struct stranger old = {.cert = cert, .key = key, .version_max = TLS1_2_VERSION};
    stranger_refused(w, tls, &old, TB_STREAM_TLS, "protocol");
    assert_false(old.shook);
    forge(w, &(struct forge){.dir = "east", .stem = "self", .alt = "URI:" EAST, .own_key_only = true});
    struct stranger self = {.cert = world_path(w, "east", "self.crt"),
                            .key = world_path(w, "east", "self.key")};
    stranger_refused(w, tls, &self, TB_PEER_IDENTITY, "certificate");
    tb_tls_free(tls);
}

/* The twin of the refusals: the same client with the right certificate; what it was
 * offered is as promised. */
static void a_stranger_with_a_good_certificate_gets_no_ticket(void **state)
{
    struct world *w = *state;
    struct pair p;
    world_issue(w, "east", "gw", EAST);
    struct tb_tls *tls = world_tls(w, "east", "gw", "east");
    struct stranger s = {.cert = world_path(w, "east", "gw.crt"), .key = world_path(w, "east", "gw.key")};
    pair_init(&p, w, tls, NULL, false);
    stranger_start(&s, &p);
    WORLD_UNTIL(w, p.s.got == 1);
    end_send(&p.s, "bye", 3);
    WORLD_UNTIL(w, p.s.sent == 3);
    tb_chan_close(p.s.chan, TB_OK);
    WORLD_UNTIL(w, atomic_load(&s.done));
    pthread_join(s.thread, NULL);
    assert_true(s.shook);
    assert_int_equal(s.got, 3);
    assert_int_equal(s.tickets, 0);
    /* The client's own order puts AES-256 first: it is the client's list, and the server
     * takes it from there. */
    assert_non_null(strstr(s.suite, "TLS_AES_"));
    pair_fini(&p);
    tb_tls_free(tls);
}

/* P8: also while both ends run. Some seconds are waited for, since a context refuses what has
 * expired when it is made. */
static void an_expired_peer_is_refused(void **state)
{
    struct world *w = *state;
    struct pair p;
    world_issue(w, "west", "gw", WEST);
    world_issue(w, "east", "unused", EAST); /* makes the CA */
    struct tb_tls *west = world_tls(w, "west", "gw", "east");
    struct tb_tls *east = world_tls_expiring(w, "east", "gw", EAST, "west");
    WORLD_UNTIL(w, tb_clock_wall_ms() / 1000 > tb_tls_expires_wall_s(east));
    pair_init(&p, w, west, east, false);
    assert_int_equal(refused(&p, true, TB_PEER_IDENTITY, "expired, at 20"), TB_PEER_DENIED);
    faults_are(TB_TLS_FAULT_DATES, EAST);
    pair_init(&p, w, east, west, false);
    assert_int_equal(refused(&p, false, TB_PEER_IDENTITY, "; here it is 20"), TB_PEER_DENIED);
    faults_are(TB_TLS_FAULT_DATES, EAST);
    tb_tls_free(east);
    tb_tls_free(west);
}

/* P8: with the CAs of two sites in one context, the one can not speak for the other. */
static void a_ca_speaks_for_its_own_site_only(void **state)
{
    struct world *w = *state;
    struct pair p;
    char why[256];
    world_issue(w, "west", "gw", WEST);
    /* "own" is an operator's CA without name constraints, and signs for any name that it likes. */
    world_issue(w, "own", "unused", "tombolo://own/x");
    assert_int_equal(unlink(world_path(w, "own", "ca.crt")) | unlink(world_path(w, "own", "ca.key")), 0);
    forge(w, &(struct forge){.dir = "own", .stem = "ca", .ca = true});
    forge(w, &(struct forge){.dir = "own", .stem = "gw", .alt = "URI:tombolo://north/gw"});
    struct tb_tls *north = world_tls(w, "own", "gw", "west");

    struct tb_name site;
    assert_int_equal(tb_name_set(&site, "east"), TB_OK);
    const struct tb_tls_files files = {.cert = world_path(w, "west", "gw.crt"),
                                       .key = world_path(w, "west", "gw.key")};
    struct tb_tls *west;
    assert_int_equal(tb_tls_new_ca(&files, &west, why), TB_OK);
    assert_int_equal(tb_tls_add_site_ca(west, &site, world_path(w, "own", "ca.crt"), why), TB_OK);
    pair_init(&p, w, west, north, false);
    (void)refused(&p, true, TB_PEER_IDENTITY, "may not speak for the site of tombolo://north/gw");
    faults_are(TB_TLS_FAULT_TRUST, "tombolo://north/gw");

    assert_int_equal(tb_name_set(&site, "north"), TB_OK); /* the twin */
    assert_int_equal(tb_tls_add_site_ca(west, &site, world_path(w, "own", "ca.crt"), why), TB_OK);
    pair_init(&p, w, west, north, false);
    pair_open(&p);
    pair_fini(&p);
    tb_tls_free(west);
    tb_tls_free(north);
}

/* The same for a CA of tb_pki_init, by its name constraints, without any call. */
static void a_ca_of_ours_is_limited_by_itself(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", EAST);
    forge(w, &(struct forge){.dir = "east", .stem = "evil", .alt = "URI:" WEST});
    struct tb_tls *tls = world_tls(w, "east", "gw", "east");
    struct stranger s = {.cert = world_path(w, "east", "evil.crt"), .key = world_path(w, "east", "evil.key")};
    stranger_refused(w, tls, &s, TB_PEER_IDENTITY, "permitted subtree violation");
    tb_tls_free(tls);
}

/* Trust by print. */

static void hops_know_each_other_by_fingerprint(void **state)
{
    struct world *w = *state;
    struct pair p;
    struct tb_tls *a, *b;
    assert_int_equal(tb_tls_new_ephemeral(&a), TB_OK);
    assert_int_equal(tb_tls_new_ephemeral(&b), TB_OK);
    assert_memory_not_equal(tb_tls_fingerprint(a), tb_tls_fingerprint(b), 32);
    pair_init(&p, w, a, b, false);
    p.server.expect.fingerprint = *tb_tls_fingerprint(b);
    p.client.expect.fingerprint = *tb_tls_fingerprint(a);
    pair_open(&p);
    assert_memory_equal(&p.s.peer.fingerprint, tb_tls_fingerprint(b), 32);
    assert_int_equal(p.s.peer.identity.kind, TB_IDENTITY_NONE);
    pair_fini(&p);

    pair_init(&p, w, a, b, false);
    p.server.expect.fingerprint = *tb_tls_fingerprint(a);
    p.client.expect.fingerprint = *tb_tls_fingerprint(a);
    assert_int_equal(refused(&p, true, TB_PEER_IDENTITY, "fingerprint"), TB_PEER_DENIED);

    pair_init(&p, w, a, b, false);
    p.server.expect.any_fingerprint = true;
    p.client.expect.fingerprint = *tb_tls_fingerprint(b);
    (void)refused(&p, false, TB_PEER_IDENTITY, "fingerprint");

    pair_init(&p, w, a, b, false); /* the token decides after */
    p.server.expect.any_fingerprint = true;
    p.client.expect.fingerprint = *tb_tls_fingerprint(a);
    pair_open(&p);
    assert_memory_equal(&p.s.peer.fingerprint, tb_tls_fingerprint(b), 32);
    pair_fini(&p);
    tb_tls_free(a);
    tb_tls_free(b);
}

/* An expectation that was forgotten refuses: a print of zeroes is nobody's. */
static void no_expected_print_is_nobody(void **state)
{
    struct world *w = *state;
    struct pair p;
    struct tb_tls *a;
    assert_int_equal(tb_tls_new_ephemeral(&a), TB_OK);
    pair_init(&p, w, a, a, false);
    (void)refused(&p, false, TB_PEER_IDENTITY, "fingerprint");
    tb_tls_free(a);
}

/* P8: a stream that is not TLS does not get in, and is not answered in plain. */
static void plaintext_at_a_tls_port_is_refused(void **state)
{
    struct world *w = *state;
    struct pair p;
    world_issue(w, "east", "gw", EAST);
    struct tb_tls *tls = world_tls(w, "east", "gw", "east");
    static const char *const texts[] = {
        "GET / HTTP/1.1\r\n\r\n", "\x00\x00\x00\x10\x00\x01\x00\x00garbage-garbage", "\x16\x03\x01\xff\xff"};
    for (int i = 0; i < 3; i++) {
        pair_init(&p, w, tls, NULL, false);
        pair_dial(&p);
        WORLD_UNTIL(w, p.c.opened == 1);
        end_send(&p.c, i == 1 ? (const void *)texts[1] : texts[i], i == 1 ? 23 : strlen(texts[i]));
        WORLD_UNTIL(w, p.s.closed == 1 && p.c.closed == 1);
        assert_int_equal(p.s.opened, 0);
        assert_int_equal(p.s.why, TB_STREAM_TLS);
        pair_fini(&p);
    }
    pair_init(&p, w, NULL, tls,
              false); /* and the reverse: a TLS client at a port that speaks something else */
    pair_dial(&p);
    WORLD_UNTIL(w, p.s.opened == 1);
    end_send(&p.s, "220 mail.example\r\n", 18);
    WORLD_UNTIL(w, p.c.closed == 1);
    assert_int_equal(p.c.opened, 0);
    assert_int_equal(p.c.why, TB_STREAM_TLS);
    pair_fini(&p);
    tb_tls_free(tls);
}

static int key_updates; /* sent */

static void on_message(int sent, int version, int type, const void *bytes, size_t count, SSL *ssl, void *user)
{
    (void)version, (void)ssl, (void)user;
    key_updates +=
        sent == 1 && type == SSL3_RT_HANDSHAKE && count > 0 && *(const uint8_t *)bytes == SSL3_MT_KEY_UPDATE;
}

/* P8: no key encrypts more records than it may: the next one is taken in the middle of what is
 * sent, and nothing is lost. */
static void keys_are_replaced_before_they_wear_out(void **state)
{
    struct world *w = *state;
    enum { BYTES = 1 << 20, RECORDS = 5 };
    static uint8_t bytes[BYTES];
    struct tb_tls *east, *west;
    struct pair p;
    two_sites(w, &east, &west);
    tb_tls_set_key_records(east, RECORDS);
    SSL_CTX_set_msg_callback(east->ctx, on_message);
    key_updates = 0;
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (uint8_t)(i * 167 + (i >> 8));
    pair_init(&p, w, west, east, false);
    p.client.expect = world_expect(WEST);
    p.server.expect = world_expect(EAST);
    pair_open(&p);
    end_send(&p.c, bytes, BYTES);
    end_send(&p.s, bytes, BYTES);
    WORLD_UNTIL(w, p.s.got == BYTES && p.c.got == BYTES);
    assert_memory_equal(p.s.in, bytes, BYTES);
    assert_memory_equal(p.c.in, bytes, BYTES);
    assert_true(tb_chan_records(p.c.chan) >= BYTES / 16384);
    /* A write may take several records before the next key's turn. */
    assert_in_range(key_updates, 2, BYTES / 16384 / RECORDS + 1);
    tb_tls_free(east);
    tb_tls_free(west);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(both_ends_know_the_identity_of_their_peer),
        WORLD_TEST(a_wrong_ca_is_refused),
        WORLD_TEST(a_revoked_certificate_is_refused),
        WORLD_TEST(another_identity_is_refused),
        WORLD_TEST(a_peer_with_no_or_two_uris_is_refused),
        WORLD_TEST(strangers_are_refused),
        WORLD_TEST(a_stranger_with_a_good_certificate_gets_no_ticket),
        WORLD_TEST(an_expired_peer_is_refused),
        WORLD_TEST(a_ca_speaks_for_its_own_site_only),
        WORLD_TEST(a_ca_of_ours_is_limited_by_itself),
        WORLD_TEST(hops_know_each_other_by_fingerprint),
        WORLD_TEST(no_expected_print_is_nobody),
        WORLD_TEST(plaintext_at_a_tls_port_is_refused),
        WORLD_TEST(keys_are_replaced_before_they_wear_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
