/* pki.c - a CA and the certificates that it signs: what they allow, and files that are never
 * written over (P8).
 * Covers: base/pki/pki.c base/pki/pki_files.c base/pki/authority.c */
#include "base/pki/pki.h"

#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net_world.h"

static X509 *load(const char *path)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    X509 *cert = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    assert_non_null(cert);
    return cert;
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

/* P8: a key is nobody else's from its first moment, whatever the umask. */
static void keys_are_for_their_owner_alone(void **state)
{
    struct world *w = *state;
    const mode_t old = umask(0);
    world_issue(w, "east", "gw", "tombolo://east/gw");
    umask(old);
    assert_int_equal(mode_of(world_path(w, "east", "ca.key")), 0600);
    assert_int_equal(mode_of(world_path(w, "east", "gw.key")), 0600);
}

static void a_ca_is_a_ca_for_its_site_and_nothing_else(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    X509 *ca = load(world_path(w, "east", "ca.crt"));
    char cn[80];
    assert_true(X509_NAME_get_text_by_NID(X509_get_subject_name(ca), NID_commonName, cn, sizeof cn) > 0);
    assert_string_equal(cn, "east");
    assert_int_equal(X509_check_ca(ca), 1);
    assert_int_equal(X509_get_key_usage(ca), KU_KEY_CERT_SIGN | KU_CRL_SIGN);
    assert_int_equal(X509_get_pathlen(ca), 1); /* issuing authorities, and nothing below them */
    assert_true(EVP_PKEY_is_a(X509_get0_pubkey(ca), "EC"));
    assert_int_equal(EVP_PKEY_get_bits(X509_get0_pubkey(ca)), 256);
    X509_free(ca);
}

static void a_leaf_has_one_uri_and_both_usages(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "w7", "tombolo://east/worker/w7");
    X509 *leaf = load(world_path(w, "east", "w7.crt"));
    GENERAL_NAMES *names = X509_get_ext_d2i(leaf, NID_subject_alt_name, NULL, NULL);
    assert_int_equal(sk_GENERAL_NAME_num(names), 1);
    const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, 0);
    assert_int_equal(name->type, GEN_URI);
    assert_string_equal((const char *)ASN1_STRING_get0_data(name->d.uniformResourceIdentifier),
                        "tombolo://east/worker/w7");
    assert_int_equal(X509_get_extended_key_usage(leaf), XKU_SSL_SERVER | XKU_SSL_CLIENT);
    assert_int_equal(X509_get_key_usage(leaf), KU_DIGITAL_SIGNATURE);
    assert_int_equal(X509_check_ca(leaf), 0);
    assert_true(X509_cmp_current_time(X509_get0_notBefore(leaf)) < 0);
    assert_int_equal(X509_get_version(leaf), X509_VERSION_3);
    GENERAL_NAMES_free(names);
    X509_free(leaf);
}

static void existing_files_are_left_alone(void **state)
{
    struct world *w = *state;
    char why[256], dir[128];
    world_issue(w, "east", "gw", "tombolo://east/gw");
    snprintf(dir, sizeof dir, "%s/east", w->dir);
    struct tb_identity who;
    assert_int_equal(tb_identity_parse("tombolo://east/gw", &who), TB_OK);
    assert_int_equal(tb_pki_init(dir, "east", 30, why), TB_CONFLICT);
    assert_non_null(strstr(why, "ca.crt"));
    assert_int_equal(tb_pki_issue(dir, "gw", &who, 0, 60, why), TB_CONFLICT);
    /* One of a pair is enough, and the other is not made. */
    assert_int_equal(unlink(world_path(w, "east", "gw.crt")), 0);
    assert_int_equal(tb_pki_issue(dir, "gw", &who, 0, 60, why), TB_CONFLICT);
    assert_int_equal(access(world_path(w, "east", "gw.crt"), F_OK), -1);
}

static void a_planted_link_is_not_followed(void **state)
{
    struct world *w = *state;
    char why[256], dir[128];
    world_issue(w, "east", "gw", "tombolo://east/gw");
    snprintf(dir, sizeof dir, "%s/east", w->dir);
    assert_int_equal(symlink(world_path(w, "east", "elsewhere"), world_path(w, "east", "g2.key")), 0);
    struct tb_identity who;
    assert_int_equal(tb_identity_parse("tombolo://east/g2", &who), TB_OK);
    assert_int_equal(tb_pki_issue(dir, "g2", &who, 0, 60, why), TB_CONFLICT);
    assert_int_equal(access(world_path(w, "east", "elsewhere"), F_OK), -1);
}

static void a_ca_issues_for_its_own_site_only(void **state)
{
    struct world *w = *state;
    char why[256], dir[128];
    world_issue(w, "east", "gw", "tombolo://east/gw");
    snprintf(dir, sizeof dir, "%s/east", w->dir);
    struct tb_identity who;
    assert_int_equal(tb_identity_parse("tombolo://west/gw", &who), TB_OK);
    assert_int_equal(tb_pki_issue(dir, "other", &who, 0, 60, why), TB_BAD_ARGUMENT);
    assert_non_null(strstr(why, "west"));
    assert_int_equal(access(world_path(w, "east", "other.key"), F_OK), -1);
}

static void arguments_out_of_range_are_refused(void **state)
{
    struct world *w = *state;
    char why[256];
    const struct tb_identity local = {.kind = TB_IDENTITY_UNIX};
    struct tb_identity who;
    assert_int_equal(tb_identity_parse("tombolo://east/gw", &who), TB_OK);
    assert_int_equal(tb_pki_init(w->dir, "a/b", 30, why), TB_BAD_ARGUMENT);
    assert_int_equal(tb_pki_init(w->dir, ".a", 30, why), TB_BAD_ARGUMENT);
    assert_int_equal(tb_pki_init(w->dir, "a", 0, why), TB_BAD_ARGUMENT);
    assert_int_equal(tb_pki_issue(w->dir, "../x", &who, 0, 60, why), TB_BAD_ARGUMENT);
    assert_int_equal(tb_pki_issue(w->dir, "ca", &who, 0, 60, why), TB_BAD_ARGUMENT);
    assert_int_equal(tb_pki_issue(w->dir, "x", &local, 0, 60, why), TB_BAD_ARGUMENT);
    assert_int_equal(tb_pki_issue(w->dir, "x", &who, 0, 0, why), TB_BAD_ARGUMENT);
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* P10: a right that the caller lacks is told as that, with what to do, and not as a failure of this
 * machine. */
static void a_missing_ca_is_told_with_advice(void **state)
{
    struct world *w = *state;
    char why[256], dir[128];
    struct tb_identity who;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    snprintf(dir, sizeof dir, "%s/east", w->dir);
    assert_int_equal(tb_identity_parse("tombolo://east/g2", &who), TB_OK);
    assert_int_equal(tb_pki_issue(w->dir, "g2", &who, 0, 60, why), TB_NOT_FOUND);
    assert_non_null(strstr(why, "ca.crt: there is no CA here; `tombolo pki init` makes one"));
    assert_int_equal(unlink(world_path(w, "east", "ca.key")), 0);
    assert_int_equal(tb_pki_issue(dir, "g2", &who, 0, 60, why), TB_NOT_FOUND);
    assert_non_null(strstr(why, "ca.key: is not here"));
    write_text(world_path(w, "east", "ca.key"), "no key\n");
    assert_int_equal(tb_pki_issue(dir, "g2", &who, 0, 60, why), TB_BAD_FILE);
    assert_non_null(strstr(why, "are not a PEM certificate and its key"));
    assert_int_equal(access(world_path(w, "east", "g2.key"), F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(keys_are_for_their_owner_alone),
        WORLD_TEST(a_ca_is_a_ca_for_its_site_and_nothing_else),
        WORLD_TEST(a_leaf_has_one_uri_and_both_usages),
        WORLD_TEST(existing_files_are_left_alone),
        WORLD_TEST(a_planted_link_is_not_followed),
        WORLD_TEST(a_ca_issues_for_its_own_site_only),
        WORLD_TEST(arguments_out_of_range_are_refused),
        WORLD_TEST(a_missing_ca_is_told_with_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
