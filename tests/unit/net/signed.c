/* A signed statement is believed from any relay, and changed by nobody.
 *
 * Covers: base/net/signed.c */
#include "base/net/signed.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/net/revoked.h"
#include "net_world.h"

#define DAY_S (24 * 3600)

static struct tb_statement statement_now(void)
{
    struct tb_statement s = {.kind = TB_STATEMENT_VERSION,
                             .uid = {{1, 2, 3}},
                             .run = {{7}},
                             .run_order = 3,
                             .number = 20,
                             .root = tb_blake3_of("root", 4),
                             .shard_count = 1,
                             .digest = {{9}},
                             .wall_ms = tb_clock_wall_ms()};
    assert_int_equal(tb_name_set(&s.model, "actor"), TB_OK);
    return s;
}

static size_t signed_by(const struct tb_tls *tls, const struct tb_statement *s,
                        uint8_t out[TB_SIGNED_BYTES_MAX])
{
    struct tb_writer w;
    tb_writer_init(&w, out, TB_SIGNED_BYTES_MAX);
    assert_int_equal(tb_signed_write(tls, s, &w), TB_OK);
    return w.used;
}

static enum tb_status check_says(const struct tb_tls *trust, const uint8_t *bytes, size_t count,
                                 const char *says)
{
    struct tb_statement heard;
    struct tb_signer signer;
    char error[256];
    const enum tb_status status = tb_signed_check(trust, bytes, count, &heard, &signer, error);
    if (status != TB_OK && strstr(error, says) == NULL) fail_msg("the error is: %s", error);
    return status;
}

/* P1, P2: west has east's CA and nothing of the gateway that signed. */
static void a_statement_that_home_signed_is_believed(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "west", "gw", "tombolo://west/gw");
    struct tb_tls *home = world_tls(w, "east", "gw", "east"), *trust = world_tls(w, "west", "gw", "east");
    const struct tb_statement said = statement_now();
    struct tb_statement heard;
    struct tb_signer signer;
    uint8_t bytes[TB_SIGNED_BYTES_MAX];
    char error[256], uri[TB_URI_BYTES_MAX];
    const size_t count = signed_by(home, &said, bytes);
    assert_int_equal(tb_signed_check(trust, bytes, count, &heard, &signer, error), TB_OK);
    assert_true(tb_statement_equal(&said, &heard));
    tb_identity_format(&signer.identity, uri);
    assert_string_equal(uri, "tombolo://east/gw");
    assert_memory_equal(&signer.fingerprint, tb_tls_fingerprint(home), sizeof signer.fingerprint);
    tb_tls_free(home);
    tb_tls_free(trust);
}

/* P8: by its fingerprint, by its serial and by its identity. */
static void a_revoked_certificate_signs_nothing(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "east", "other", "tombolo://east/other");
    world_issue(w, "west", "gw", "tombolo://west/gw");
    struct tb_tls *home = world_tls(w, "east", "gw", "east");
    const struct tb_statement said = statement_now();
    struct tb_revoked_entry entry;
    uint8_t bytes[TB_SIGNED_BYTES_MAX];
    char error[256], identity[TB_URI_BYTES_MAX], line[2][TB_REVOKED_TEXT_BYTES];
    const size_t count = signed_by(home, &said, bytes);
    for (int i = 0; i < 2; i++) {
        const char *cert = world_path(w, "east", i == 0 ? "gw.crt" : "other.crt");
        assert_int_equal(tb_revoked_of_file(cert, &entry, identity, error), TB_OK);
        tb_revoked_entry_format(&entry, line[i]);
    }
    const char *const lists[] = {line[0], "tombolo://east/gw", line[1], "tombolo://east/other"};
    for (int i = 0; i < 4; i++) {
        struct tb_tls *trust = world_tls(w, "west", "gw", "east");
        struct tb_revoked *revoked = NULL;
        uint32_t at;
        assert_int_equal(tb_revoked_parse(lists[i], strlen(lists[i]), &revoked, &at), TB_OK);
        tb_tls_set_revoked(trust, revoked);
        assert_int_equal(check_says(trust, bytes, count, "is revoked"), i < 2 ? TB_PEER_IDENTITY : TB_OK);
        tb_tls_free(trust);
    }
    tb_tls_free(home);
}

/* P1: no byte of it can be another one. (The certificate's own signature covers its bytes.) */
static void no_bit_can_be_changed(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    struct tb_tls *home = world_tls(w, "east", "gw", "east");
    const struct tb_statement said = statement_now();
    struct tb_statement heard;
    struct tb_signer signer;
    uint8_t bytes[TB_SIGNED_BYTES_MAX];
    char error[256];
    const size_t count = signed_by(home, &said, bytes);
    for (size_t i = 0; i < count; i++) {
        bytes[i] ^= (uint8_t)(1u << i % 8);
        const enum tb_status status = tb_signed_check(home, bytes, count, &heard, &signer, error);
        if (status != TB_PEER_GARBLED && status != TB_PEER_IDENTITY)
            fail_msg("byte %zu: status %d", i, (int)status);
        assert_true(strlen(error) > 10);
        bytes[i] ^= (uint8_t)(1u << i % 8);
    }
    for (size_t cut = 0; cut < count; cut++)
        assert_int_equal(tb_signed_check(home, bytes, cut, &heard, &signer, error), TB_PEER_GARBLED);
    bytes[count] = 0;
    assert_int_equal(tb_signed_check(home, bytes, count + 1, &heard, &signer, error), TB_PEER_GARBLED);
    assert_int_equal(tb_signed_check(home, bytes, count, &heard, &signer, error), TB_OK);
    tb_tls_free(home);
}

/* P2: a relay signs with its own key, which is good for its own site. */
static void another_ca_is_not_believed(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "west", "gw", "tombolo://west/gw");
    struct tb_tls *west = world_tls(w, "west", "gw", "west"), *trust = world_tls(w, "east", "gw", "east");
    const struct tb_statement said = statement_now();
    uint8_t bytes[TB_SIGNED_BYTES_MAX];
    const size_t count = signed_by(west, &said, bytes);
    assert_int_equal(check_says(trust, bytes, count, "issuer"), TB_PEER_IDENTITY);
    tb_tls_free(west);
    tb_tls_free(trust);
}

/* A CA that was named for one site, and has no constraints of its own, speaks for no other. */
static void a_ca_speaks_for_its_site_alone(void **state)
{
    struct world *w = *state;
    struct tb_name north, east;
    char error[256];
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "west", "gw", "tombolo://west/gw");
    assert_int_equal(tb_name_set(&north, "north"), TB_OK);
    assert_int_equal(tb_name_set(&east, "east"), TB_OK);
    struct tb_tls *home = world_tls(w, "east", "gw", "east"), *trust = world_tls(w, "west", "gw", "west");
    const struct tb_statement said = statement_now();
    uint8_t bytes[TB_SIGNED_BYTES_MAX];
    const size_t count = signed_by(home, &said, bytes);
    assert_int_equal(tb_tls_add_site_ca(trust, &north, world_path(w, "east", "ca.crt"), error), TB_OK);
    assert_int_equal(check_says(trust, bytes, count, "may not speak for the site of tombolo://east/gw"),
                     TB_PEER_IDENTITY);
    assert_int_equal(tb_tls_add_site_ca(trust, &east, world_path(w, "east", "ca.crt"), error), TB_OK);
    assert_int_equal(check_says(trust, bytes, count, ""), TB_OK);
    tb_tls_free(home);
    tb_tls_free(trust);
}

/* A statement stays true after the end of the certificate that was valid when it was signed. */
static void dates_are_those_of_the_signature(void **state)
{
    struct world *w = *state;
    world_issue_for(w, "east", "gw", "tombolo://east/gw", -120, 2 * DAY_S);
    struct tb_tls *home = world_tls(w, "east", "gw", "east");
    const struct {
        int64_t at_s;
        const char *says; /* NULL: believed */
    } times[] = {{-DAY_S, "not yet valid"}, {-60, NULL}, {DAY_S, NULL}, {3 * DAY_S, "expired"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct tb_statement said = statement_now();
        uint8_t bytes[TB_SIGNED_BYTES_MAX];
        said.wall_ms = (uint64_t)((int64_t)said.wall_ms + times[i].at_s * 1000);
        const size_t count = signed_by(home, &said, bytes);
        assert_int_equal(check_says(home, bytes, count, times[i].says != NULL ? times[i].says : ""),
                         times[i].says != NULL ? TB_PEER_IDENTITY : TB_OK);
    }
    tb_tls_free(home);
}

/* SITE/STEM again, with a key of this kind, signed by SITE's CA as `tombolo pki` would. */
static void issue_with_key(struct world *w, const char *stem, EVP_PKEY *key)
{
    char path[512];
    world_issue(w, "east", stem, "tombolo://east/gw");
    FILE *f = fopen(world_path(w, "east", "ca.key"), "r");
    assert_non_null(f);
    EVP_PKEY *ca = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    fclose(f);
    snprintf(path, sizeof path, "%s/east/%s.crt", w->dir, stem);
    f = fopen(path, "r");
    assert_non_null(f);
    X509 *cert = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    assert_int_equal(X509_set_pubkey(cert, key), 1);
    assert_true(X509_sign(cert, ca, EVP_sha256()) > 0);
    f = fopen(path, "w");
    assert_int_equal(PEM_write_X509(f, cert), 1);
    fclose(f);
    snprintf(path, sizeof path, "%s/east/%s.key", w->dir, stem);
    f = fopen(path, "w");
    assert_int_equal(PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(f);
    assert_int_equal(chmod(path, 0600), 0);
    X509_free(cert);
    EVP_PKEY_free(ca);
}

static void each_kind_of_key_signs(void **state)
{
    struct world *w = *state;
    EVP_PKEY *const keys[] = {EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"), EVP_RSA_gen(2048),
                              EVP_EC_gen("P-384")};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char stem[16];
        assert_non_null(keys[i]);
        snprintf(stem, sizeof stem, "gw%zu", i);
        issue_with_key(w, stem, keys[i]);
        struct tb_tls *home = world_tls(w, "east", stem, "east");
        const struct tb_statement said = statement_now();
        uint8_t bytes[TB_SIGNED_BYTES_MAX];
        const size_t count = signed_by(home, &said, bytes);
        assert_int_equal(check_says(home, bytes, count, ""), TB_OK);
        bytes[40] ^= 1; /* in the model's uid */
        assert_int_equal(check_says(home, bytes, count, "signature"), TB_PEER_IDENTITY);
        tb_tls_free(home);
        EVP_PKEY_free(keys[i]);
    }
}

static void one_that_has_no_room_is_not_begun(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    struct tb_tls *home = world_tls(w, "east", "gw", "east");
    const struct tb_statement said = statement_now();
    uint8_t bytes[TB_SIGNED_BYTES_MAX];
    const size_t count = signed_by(home, &said, bytes);
    for (size_t cap = 0; cap + 16 < count; cap += 97) {
        struct tb_writer writer;
        tb_writer_init(&writer, bytes, cap);
        assert_int_equal(tb_signed_write(home, &said, &writer), TB_TOO_LARGE);
        assert_int_equal(writer.used, 0);
        assert_false(writer.full);
    }
    tb_tls_free(home);
}

static int setup(void **state)
{
    static struct world w;
    world_init(&w);
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    world_fini(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_statement_that_home_signed_is_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_revoked_certificate_signs_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(no_bit_can_be_changed, setup, teardown),
        cmocka_unit_test_setup_teardown(another_ca_is_not_believed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_ca_speaks_for_its_site_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(dates_are_those_of_the_signature, setup, teardown),
        cmocka_unit_test_setup_teardown(each_kind_of_key_signs, setup, teardown),
        cmocka_unit_test_setup_teardown(one_that_has_no_room_is_not_begun, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
