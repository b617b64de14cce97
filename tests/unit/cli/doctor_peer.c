/* doctor_peer.c - facts of the way to a peer become ticks and crosses, each with the line to change
 * and the end at which it stands (P10).
 *
 * Covers: gateway/cli/doctor/doctor_peer.c */
#include "gateway/cli/doctor/doctor_peer.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit/check.h"

static const char text[] = "site: east\n"
                           "arena: {bytes: 64MiB}\n"
                           "tls: {ca: /e/ca.crt, cert: /e/gw.crt, key: /e/gw.key}\n"
                           "link: {listen: \"127.0.0.1:7400\"}\n"
                           "peers:\n"
                           "  west: {gateway: gw, ca: /e/west-ca.crt, address: \"gw.west.test:7400\"}\n"
                           "models:\n"
                           "  policy: {home: east, read: [\"tombolo://west/gw\"]}\n"
                           "  judge: {home: east, read: [\"unix:0\"]}\n"
                           "subscribe: []\n";

static struct tb_config *config;
static struct tb_peer_words words;

static int begin(void **state)
{
    (void)state;
    if (tb_config_parse("east.yaml", text, strlen(text), NULL, NULL, &config) != TB_OK) return -1;
    words = tb_doctor_peer_words_of(config, &config->peers[0]);
    return 0;
}

static int end(void **state)
{
    (void)state;
    tb_config_free(config);
    return 0;
}

static void expect(struct tb_finding f, enum tb_mark mark, const char *said, const char *advice)
{
    if (f.mark == mark && strstr(f.text, said) != NULL && strstr(f.advice, advice) != NULL &&
        (mark != TB_MARK_WRONG || f.advice[0] != '\0'))
        return;
    fail_msg("%s: %s -> %s; wanted %s: %s -> %s", tb_mark_name(f.mark), f.text, f.advice, tb_mark_name(mark),
             said, advice);
}

static void dns_that_is_dead_is_no_name_that_is_missing(void **state)
{
    (void)state;
    const struct tb_endpoint at = {.host = "gw.west.test", .port = 7400};
    struct tb_name_facts n = {.status = TB_PEER_UNREACHABLE};
    expect(tb_judge_name(&words, &at, &n), TB_MARK_WRONG, "no name server answered for gw.west.test",
           "resolv.conf");
    n.status = TB_TIMEOUT;
    expect(tb_judge_name(&words, &at, &n), TB_MARK_WRONG, "no name server answered", "dns.servers");
    n.status = TB_NOT_FOUND;
    expect(tb_judge_name(&words, &at, &n), TB_MARK_WRONG, "has no address", "peers.west.address");
    n.status = TB_OK;
    expect(tb_judge_name(&words, &at, &n), TB_MARK_WRONG, "has no address", "peers.west.address");
    n.count = 1;
    n.addresses[0].v4 = (struct sockaddr_in){.sin_family = AF_INET};
    expect(tb_judge_name(&words, &at, &n), TB_MARK_FINE, "has 1 address", "");
    n.status = TB_SITE_NOMEM;
    expect(tb_judge_name(&words, &at, &n), TB_MARK_UNKNOWN, "", "");
}

static void a_closed_port_is_no_silence(void **state)
{
    (void)state;
    struct tb_dial_facts d[2] = {
        {.address = "192.0.2.1:7400", .closed_port = true, .reason = "Connection refused"},
        {.address = "192.0.2.2:7400", .silent = true}};
    expect(tb_judge_tcp(&words, d, 1), TB_MARK_WRONG, "192.0.2.1:7400: Connection refused",
           "systemctl start tombolod@west");
    expect(tb_judge_tcp(&words, d + 1, 1), TB_MARK_WRONG, "192.0.2.2:7400: no answer within 3 s", "firewall");
    expect(tb_judge_tcp(&words, d, 2), TB_MARK_WRONG, "Connection refused", "");
    d[1].connected = true;
    expect(tb_judge_tcp(&words, d, 2), TB_MARK_WARNING, "Connection refused", "systemctl");
    d[0].connected = true;
    expect(tb_judge_tcp(&words, d, 2), TB_MARK_FINE, "and each other address", "");
    expect(tb_judge_tcp(&words, d, 0), TB_MARK_UNKNOWN, "", "");
}

static void the_connection_that_came_furthest_speaks(void **state)
{
    (void)state;
    struct tb_dial_facts d[4] = {
        {.connected = false}, {.connected = true}, {.connected = true}, {.connected = true}};
    assert_null(tb_dial_furthest(d, 0));
    assert_ptr_equal(tb_dial_furthest(d, 4), &d[1]);
    d[2].refusal.fault = TB_TLS_FAULT_TRUST;
    assert_ptr_equal(tb_dial_furthest(d, 4), &d[2]);
    d[3].opened = true;
    assert_ptr_equal(tb_dial_furthest(d, 4), &d[3]);
}

static struct tb_dial_facts refused(enum tb_tls_fault fault, bool by_peer)
{
    return (struct tb_dial_facts){.address = "192.0.2.1:7400",
                                  .connected = true,
                                  .reason = "why",
                                  .refusal = {.fault = fault, .by_peer = by_peer}};
}

static void a_certificate_that_is_refused_names_the_end(void **state)
{
    (void)state;
    struct tb_dial_facts d = refused(TB_TLS_FAULT_TRUST, false);
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_WRONG, "not accepted here: why",
           "peers.west.ca: the CA that signs at west");
    d = refused(TB_TLS_FAULT_TRUST, true);
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_WRONG,
           "tombolo://west/gw does not accept the certificate of tombolo://east/gw",
           "at west: peers.east.ca: the CA that signed /e/gw.crt");
    d = refused(TB_TLS_FAULT_DATES, false);
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_WRONG, "not accepted here", "at west: tombolo pki renew");
    d = refused(TB_TLS_FAULT_DATES, true);
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_WRONG, "does not accept", "compare the clocks");
    d = refused(TB_TLS_FAULT_REVOKED, false);
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_WRONG, "not accepted here", "tls.revoked: lists it");
    d = refused(TB_TLS_FAULT_REVOKED, true);
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_WRONG, "does not accept", "tls.revoked at west");
    d = refused(TB_TLS_FAULT_OTHER, false);
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_WRONG, "no TLS of ours: why", "peers.west.address");
    d = refused(TB_TLS_FAULT_NONE, false);
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_WRONG, "no TLS of ours", "peers.west.address");
    d.opened = true;
    d.why = TB_STREAM_CLOSED;
    d.expires_wall_s = 10 * 24 * 3600;
    expect(tb_judge_tls(&words, &d, 24 * 3600), TB_MARK_FINE, "9 days left", "");
    d.why = TB_STREAM_IDLE;
    d.silent = true; /* it may still refuse ours */
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_UNKNOWN, "it said nothing of ours", "");
    d.connected = false;
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_SKIPPED, "", "");
}

/* A dialler is open before the peer has judged our certificate: only the peer's own end, or its own
 * bytes, say that it accepts it. */
static void a_cut_after_the_handshake_is_no_tick(void **state)
{
    (void)state;
    struct tb_dial_facts d = refused(TB_TLS_FAULT_NONE, false);
    d.opened = true;
    d.why = TB_STREAM_IO;
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_UNKNOWN, "ended before it accepted ours: why", "");
    expect(tb_judge_identity(&words, &d), TB_MARK_UNKNOWN, "tombolo://west/gw ended the connection: why", "");
    d.said = true;
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_FINE, "both certificates are accepted", "");
    expect(tb_judge_identity(&words, &d), TB_MARK_FINE, "", "");
    d.said = false;
    d.why = TB_STREAM_CLOSED;
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_FINE, "both certificates are accepted", "");
    d.bye = TB_SITE_DRAINING;
    d.why = TB_STREAM_IO;
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_FINE, "both certificates are accepted", "");
    d.bye = TB_OK;
    d.silent = true;
    d.why = TB_STREAM_IDLE;
    expect(tb_judge_identity(&words, &d), TB_MARK_UNKNOWN, "", "");
}

static void a_wrong_identity_is_named(void **state)
{
    (void)state;
    struct tb_dial_facts d = refused(TB_TLS_FAULT_IDENTITY, false);
    expect(tb_judge_tls(&words, &d, 0), TB_MARK_FINE, "a CA that is trusted", "");
    CHECK_OK(tb_identity_parse("tombolo://west/gw2", &d.refusal.claimed));
    expect(tb_judge_identity(&words, &d), TB_MARK_WRONG,
           "192.0.2.1:7400 is tombolo://west/gw2, and not tombolo://west/gw", "peers.west.gateway: gw2");
    CHECK_OK(tb_identity_parse("tombolo://north/gw", &d.refusal.claimed));
    expect(tb_judge_identity(&words, &d), TB_MARK_WRONG, "is tombolo://north/gw",
           "peers.west.address: of a gateway of west");
    d = (struct tb_dial_facts){.connected = true, .opened = true, .bye = TB_PEER_DENIED};
    expect(tb_judge_identity(&words, &d), TB_MARK_WRONG, "has no tombolo://east/gw among its peers",
           "at west: peers.east.gateway: gw");
    d.bye = TB_SITE_DRAINING;
    expect(tb_judge_identity(&words, &d), TB_MARK_WARNING, "wants no connection now", "");
    d.bye = TB_OK;
    d.why = TB_STREAM_CLOSED;
    expect(tb_judge_identity(&words, &d), TB_MARK_FINE, "it is tombolo://west/gw", "");
    d.opened = false;
    expect(tb_judge_identity(&words, &d), TB_MARK_SKIPPED, "", "");
}

static void a_path_that_loses_large_packets_is_named(void **state)
{
    (void)state;
    struct tb_dial_facts full = {
        .connected = true, .opened = true, .packet_bytes = 1448, .padding_bytes = 3620, .mtu = 1500};
    struct tb_dial_facts smaller[3] = {
        {.segment_bytes = 1360}, {.segment_bytes = 1200}, {.segment_bytes = 536}};
    expect(tb_judge_mtu(&words, &full, smaller, 0), TB_MARK_FINE, "1448 bytes of payload pass", "");
    full = (struct tb_dial_facts){.connected = true, .silent = true};
    expect(tb_judge_mtu(&words, &full, smaller, 3), TB_MARK_UNKNOWN, "in small ones neither", "");
    smaller[1].opened = smaller[2].opened = true;
    expect(tb_judge_mtu(&words, &full, smaller, 3), TB_MARK_WRONG, "those with 1200 bytes of payload pass",
           "mtu 1240");
    full = (struct tb_dial_facts){.connected = true, .reason = "reset"};
    expect(tb_judge_mtu(&words, &full, smaller, 0), TB_MARK_UNKNOWN, "reset", "");
    full.refusal.fault = TB_TLS_FAULT_TRUST;
    expect(tb_judge_mtu(&words, &full, smaller, 0), TB_MARK_SKIPPED, "", "");
}

/* IPoIB and loopback have packets of 64 KiB, and no first message is that large. */
static void a_packet_that_was_never_sent_is_no_tick(void **state)
{
    (void)state;
    struct tb_dial_facts full = {
        .connected = true, .opened = true, .packet_bytes = 14000, .padding_bytes = 14000, .mtu = 14040};
    expect(tb_judge_mtu(&words, &full, NULL, 0), TB_MARK_FINE, "14000 bytes of payload pass", "");
    full.packet_bytes = 14001;
    full.mtu = 65520;
    expect(tb_judge_mtu(&words, &full, NULL, 0), TB_MARK_UNKNOWN, "14000 bytes pass, and none of 14001", "");
    full.packet_bytes = 0;
    expect(tb_judge_mtu(&words, &full, NULL, 0), TB_MARK_UNKNOWN, "", "");
}

/* ---- of links[] ---- */

static void a_link_says_why_it_is_down(void **state)
{
    (void)state;
    json_t *row = json_pack("{s:s, s:s, s:s, s:f, s:f}", "state", "up", "reason", "", "error", "", "since_s",
                            9.0, "rtt_ms", 80.0);
    expect(tb_judge_link(&words, row), TB_MARK_FINE, "80.0 ms", "");
    json_object_set_new(row, "reason", json_string("mtu"));
    json_object_set_new(row, "error", json_string("large packets do not pass"));
    expect(tb_judge_link(&words, row), TB_MARK_WRONG, "mtu: large packets do not pass", "the path's MTU");
    json_object_set_new(row, "state", json_string("dialling"));
    json_object_set_new(row, "reason", json_string("dns-failed"));
    expect(tb_judge_link(&words, row), TB_MARK_WRONG, "dialling, dns-failed", "peers.SITE.address");
    json_decref(row);
    expect(tb_judge_link(&words, NULL), TB_MARK_WRONG, "knows no peer west", "tombolo reload");
}

/* docs/control.md: rtt_ms of 0 is not known. */
static void a_link_says_no_number_that_it_does_not_know(void **state)
{
    (void)state;
    json_t *row = json_pack("{s:s, s:s, s:f}", "state", "up", "reason", "", "rtt_ms", 0.0);
    struct tb_finding f = tb_judge_link(&words, row);
    expect(f, TB_MARK_FINE, "up", "");
    assert_null(strstr(f.text, "there and back"));
    assert_null(strstr(f.text, " for "));
    json_decref(row);
}

static void a_link_without_its_fields_is_not_known(void **state)
{
    (void)state;
    json_t *row = json_pack("{s:s}", "state", "up");
    expect(tb_judge_link(&words, row), TB_MARK_UNKNOWN, "does not say", "");
    json_object_set_new(row, "reason", json_integer(0));
    expect(tb_judge_link(&words, row), TB_MARK_UNKNOWN, "does not say", "");
    json_object_set_new(row, "reason", json_string(""));
    json_object_del(row, "state");
    expect(tb_judge_link(&words, row), TB_MARK_UNKNOWN, "does not say", "");
    json_decref(row);
}

static void clocks_are_compared(void **state)
{
    (void)state;
    static const struct {
        json_int_t ahead;
        enum tb_mark mark;
        const char *said;
    } list[] = {{0, TB_MARK_FINE, "differ by 0.0 s"},
                {-5000, TB_MARK_FINE, "differ by 5.0 s"},
                {5001, TB_MARK_WARNING, "5 s ahead of"},
                {-60000, TB_MARK_WARNING, "60 s behind"},
                {60001, TB_MARK_WRONG, "60 s ahead of"},
                {-600000, TB_MARK_WRONG, "the clock of west is 600 s behind"}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        json_t *row = json_pack("{s:I}", "clock_ahead_ms", list[i].ahead);
        expect(tb_judge_peer_clock(&words, row), list[i].mark, list[i].said,
               list[i].mark == TB_MARK_FINE ? "" : "set-ntp");
        json_decref(row);
    }
    json_t *row = json_pack("{s:n}", "clock_ahead_ms");
    expect(tb_judge_peer_clock(&words, row), TB_MARK_UNKNOWN, "did not say its clock", "");
    json_decref(row);
    expect(tb_judge_peer_clock(&words, NULL), TB_MARK_UNKNOWN, "", "");
}

static void throughput_that_was_not_measured_is_not_known(void **state)
{
    (void)state;
    expect(tb_judge_throughput(NULL), TB_MARK_UNKNOWN, "no probe of its own", "");
    json_t *row = json_pack("{s:{s:i}}", "codec", "link_bytes_per_s", 0);
    expect(tb_judge_throughput(row), TB_MARK_UNKNOWN, "", "");
    json_decref(row);
    row = json_pack("{s:{s:i}}", "codec", "link_bytes_per_s", 125000000);
    expect(tb_judge_throughput(row), TB_MARK_FINE, "125 MB/s", "");
    json_decref(row);
}

static void a_right_that_is_missing_is_named(void **state)
{
    (void)state;
    expect(tb_judge_rights(&words, NULL), TB_MARK_WARNING, "1 of the 2 models of this home, and not judge",
           "models.judge.read: add tombolo://west/gw");
    json_t *row =
        json_pack("{s:s, s:[s,s], s:[]}", "state", "up", "denied", "policy", "judge", "refused_models");
    expect(tb_judge_rights(&words, row), TB_MARK_WRONG, "may not read there: policy, judge",
           "at west: models.policy.read: add tombolo://east/gw");
    json_decref(row);
    row = json_pack("{s:s, s:[], s:[s]}", "state", "up", "denied", "refused_models", "judge");
    expect(tb_judge_rights(&words, row), TB_MARK_WRONG, "west asked for judge",
           "models.judge.read: add tombolo://west/gw");
    json_decref(row);
    row = json_pack("{s:s, s:[], s:[]}", "state", "up", "denied", "refused_models");
    expect(tb_judge_rights(&words, row), TB_MARK_FINE, "neither end", "");
    json_object_set_new(row, "state", json_string("dialling"));
    expect(tb_judge_rights(&words, row), TB_MARK_UNKNOWN, "not up", "");
    json_decref(row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dns_that_is_dead_is_no_name_that_is_missing),
        cmocka_unit_test(a_closed_port_is_no_silence),
        cmocka_unit_test(the_connection_that_came_furthest_speaks),
        cmocka_unit_test(a_certificate_that_is_refused_names_the_end),
        cmocka_unit_test(a_cut_after_the_handshake_is_no_tick),
        cmocka_unit_test(a_wrong_identity_is_named),
        cmocka_unit_test(a_path_that_loses_large_packets_is_named),
        cmocka_unit_test(a_packet_that_was_never_sent_is_no_tick),
        cmocka_unit_test(a_link_says_why_it_is_down),
        cmocka_unit_test(a_link_says_no_number_that_it_does_not_know),
        cmocka_unit_test(a_link_without_its_fields_is_not_known),
        cmocka_unit_test(clocks_are_compared),
        cmocka_unit_test(throughput_that_was_not_measured_is_not_known),
        cmocka_unit_test(a_right_that_is_missing_is_named),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
