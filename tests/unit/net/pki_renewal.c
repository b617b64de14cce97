/* pki_renewal.c - certificates are renewed, requested, and signed by issuing authorities; roots
 * roll over (P8, P9).
 * Covers: base/pki/pki.c base/pki/intermediate.c base/pki/rollover.c base/pki/authority.c
 * Covers: base/pki/certificate.c base/pki/pki_files.c base/pki/look.c */
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/net/revoked.h"
#include "base/pki/certificate.h"
#include "base/pki/look.h"
#include "net_world.h"

#define DAY 86400

static char why[256];

static struct tb_identity who_of(const char *uri)
{
    struct tb_identity identity;
    assert_int_equal(tb_identity_parse(uri, &identity), TB_OK);
    return identity;
}

static const char *dir_of(struct world *w, const char *name)
{
    static char paths[8][SCRATCH_BYTES + 80];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", w->dir, name);
    return path;
}

static void ok(enum tb_status status)
{
    if (status != TB_OK) fail_msg("%s: %s", tb_status_name(status), why);
}

static enum tb_status renew(struct world *w, const char *dir, const char *folder, const char *stem,
                            bool keeps)
{
    char crt[80], key[80];
    struct tb_identity identity;
    snprintf(crt, sizeof crt, "%s.crt", stem);
    snprintf(key, sizeof key, "%s.key", stem);
    const struct tb_pki_renewal renewal = {.dir = dir_of(w, dir),
                                           .cert_path = world_path(w, folder, crt),
                                           .key_path = world_path(w, folder, key),
                                           .keeps_key = keeps};
    return tb_pki_renew(&renewal, &identity, why);
}

static void look(struct world *w, const char *folder, const char *name, struct tb_pki_seen *seen_out)
{
    struct tb_pki_look *l = tb_pki_look_new();
    assert_non_null(l);
    ok(tb_pki_look_add(l, world_path(w, folder, name), why));
    tb_pki_look_at(l, 0, seen_out);
    tb_pki_look_free(l);
}

/* Whether these two let each other in. */
static bool meets(struct world *w, struct tb_tls *server, struct tb_tls *client)
{
    struct pair p;
    pair_init(&p, w, server, client, false);
    pair_dial(&p);
    WORLD_UNTIL(w, p.c.closed + p.s.closed > 0 || (p.c.opened && p.s.opened));
    const bool met = p.c.closed + p.s.closed == 0;
    pair_fini(&p);
    return met;
}

static void a_renewal_keeps_the_identity_and_the_mode(void **state)
{
    struct world *w = *state;
    struct tb_pki_seen before, after;
    struct stat st;
    world_issue_for(w, "east", "gw", "tombolo://east/gw", -60, 30 * DAY);
    look(w, "east", "gw.crt", &before);
    assert_int_equal(chmod(world_path(w, "east", "gw.crt"), 0640), 0);
    ok(renew(w, "east", "east", "gw", false));
    look(w, "east", "gw.crt", &after);
    assert_true(tb_identity_equal(&before.identity, &after.identity));
    assert_int_equal(after.until_wall_s - after.from_wall_s, 30 * DAY);
    assert_string_not_equal(before.serial, after.serial);
    assert_int_equal(stat(world_path(w, "east", "gw.crt"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(stat(world_path(w, "east", "gw.key"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(access(world_path(w, "east", "gw.key.next"), F_OK), -1);
    tb_tls_free(world_tls(w, "east", "gw", "east"));
}

/* P9: between its two files a renewal may be killed. The key's file has both keys then. */
static void a_pair_fits_at_each_moment(void **state)
{
    struct world *w = *state;
    char old_key[4096], old_cert[8192], new_key[4096];
    world_issue(w, "east", "gw", "tombolo://east/gw");
    const size_t old_bytes = world_file_read(world_path(w, "east", "gw.key"), old_key, sizeof old_key);
    const size_t cert_bytes = world_file_read(world_path(w, "east", "gw.crt"), old_cert, sizeof old_cert);
    ok(renew(w, "east", "east", "gw", false));
    const size_t new_bytes = world_file_read(world_path(w, "east", "gw.key"), new_key, sizeof new_key);
    assert_false(old_bytes == new_bytes && memcmp(old_key, new_key, old_bytes) == 0);
    world_file_write(world_path(w, "east", "gw.key"), "w", old_key, old_bytes);
    world_file_write(world_path(w, "east", "gw.key"), "a", new_key, new_bytes);
    tb_tls_free(world_tls(w, "east", "gw", "east")); /* the new certificate is there */
    ok(renew(w, "east", "east", "gw", true));        /* and the command that comes next finds its key */
    tb_tls_free(world_tls(w, "east", "gw", "east"));
    world_file_write(world_path(w, "east", "gw.crt"), "w", old_cert, cert_bytes);
    tb_tls_free(world_tls(w, "east", "gw", "east")); /* the old one still is */
}

static void a_key_may_stay(void **state)
{
    struct world *w = *state;
    char before[4096], after[4096];
    world_issue(w, "east", "gw", "tombolo://east/gw");
    const size_t count = world_file_read(world_path(w, "east", "gw.key"), before, sizeof before);
    ok(renew(w, "east", "east", "gw", true));
    assert_int_equal(world_file_read(world_path(w, "east", "gw.key"), after, sizeof after), count);
    assert_memory_equal(before, after, count);
}

/* P8: a certificate of somebody else does not become one of ours. */
static void a_certificate_that_others_signed_is_not_renewed(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "west", "gw", "tombolo://west/gw");
    ok(tb_pki_init(dir_of(w, "forger"), "east", 30, why));
    ok(tb_pki_issue(dir_of(w, "forger"), "gw",
                    &(struct tb_identity){.kind = TB_IDENTITY_GATEWAY, .site = {"east"}, .name = {"gw"}}, 0,
                    DAY, why));
    assert_int_equal(renew(w, "east", "west", "gw", false), TB_BAD_FILE);
    assert_non_null(strstr(why, "did not sign it"));
    assert_int_equal(renew(w, "east", "forger", "gw", false), TB_BAD_FILE);
    assert_int_equal(renew(w, "east", "east", "ca", false), TB_BAD_FILE);
}

/* ---- requests ---- */

static void the_authority_decides_the_identity(void **state)
{
    struct world *w = *state;
    const struct tb_identity gw = who_of("tombolo://east/gw"), other = who_of("tombolo://east/gw2"),
                             west = who_of("tombolo://west/gw");
    struct tb_pki_seen seen;
    world_issue(w, "east", "x", "tombolo://east/x");
    const char *csr = world_path(w, "east", "gw.csr"), *crt = world_path(w, "east", "gw.crt");
    ok(tb_pki_request(csr, world_path(w, "east", "gw.key"), false, &gw, why));
    assert_int_equal(tb_pki_request(csr, world_path(w, "east", "gw9.key"), false, &gw, why), TB_CONFLICT);
    assert_int_equal(access(world_path(w, "east", "gw9.key"), F_OK), -1);
    assert_int_equal(tb_pki_sign(dir_of(w, "east"), csr, crt, &other, DAY, why), TB_BAD_ARGUMENT);
    assert_non_null(strstr(why, "asks for tombolo://east/gw"));
    assert_int_equal(tb_pki_sign(dir_of(w, "east"), world_path(w, "east", "x.crt"), crt, &gw, DAY, why),
                     TB_BAD_FILE);
    ok(tb_pki_sign(dir_of(w, "east"), csr, crt, &gw, DAY, why));
    assert_int_equal(tb_pki_sign(dir_of(w, "east"), csr, crt, &gw, DAY, why), TB_CONFLICT);
    look(w, "east", "gw.crt", &seen);
    assert_true(tb_identity_equal(&seen.identity, &gw));
    tb_tls_free(world_tls(w, "east", "gw", "east"));
    const char *foreign = world_path(w, "east", "west.csr");
    ok(tb_pki_request(foreign, world_path(w, "east", "gw.key"), true, &west, why));
    assert_int_equal(
        tb_pki_sign(dir_of(w, "east"), foreign, world_path(w, "east", "west.crt"), &west, DAY, why),
        TB_BAD_ARGUMENT);
    assert_non_null(strstr(why, "is not the CA of site west"));
}

static void write_request(struct world *w, const char *name, EVP_PKEY *key, EVP_PKEY *signer)
{
    const struct tb_identity gw = who_of("tombolo://east/gw");
    X509_REQ *request = X509_REQ_new();
    assert_true(tb_pki_fill_request(request, key, &gw));
    if (signer != key) assert_true(X509_REQ_sign(request, signer, EVP_sha256()) > 0);
    FILE *f = fopen(world_path(w, "east", name), "we");
    assert_non_null(f);
    assert_int_equal(PEM_write_X509_REQ(f, request), 1);
    assert_int_equal(fclose(f), 0);
    X509_REQ_free(request);
}

/* P8: somebody else's key, or one that is guessed, gets no certificate. */
static void a_request_with_a_bad_key_is_refused(void **state)
{
    struct world *w = *state;
    const struct tb_identity gw = who_of("tombolo://east/gw");
    world_issue(w, "east", "x", "tombolo://east/x");
    EVP_PKEY *good = EVP_EC_gen("P-256"), *weak = EVP_RSA_gen(1024), *other = EVP_EC_gen("P-256");
    write_request(w, "weak.csr", weak, weak);
    write_request(w, "stolen.csr", good, other);
    static const char *const names[] = {"weak.csr", "stolen.csr"}, *const words[] = {
                                                                       "its key is none of",
                                                                       "not signed with its own key"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tb_pki_sign(dir_of(w, "east"), world_path(w, "east", names[i]),
                                     world_path(w, "east", "gw.crt"), &gw, DAY, why),
                         TB_BAD_FILE);
        assert_non_null(strstr(why, words[i]));
        assert_int_equal(access(world_path(w, "east", "gw.crt"), F_OK), -1);
    }
    EVP_PKEY_free(good);
    EVP_PKEY_free(weak);
    EVP_PKEY_free(other);
}

/* ---- issuing authorities ---- */

static void an_issuing_authority_is_believed_by_its_root(void **state)
{
    struct world *w = *state;
    const struct tb_identity gw = who_of("tombolo://west/gw");
    struct tb_revoked_entry entry;
    struct tb_revoked *list = NULL;
    char text[TB_REVOKED_TEXT_BYTES], identity[TB_URI_BYTES_MAX];
    uint32_t line = 0;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "west", "old", "tombolo://west/gw");
    ok(tb_pki_intermediate(dir_of(w, "west"), dir_of(w, "issuing"), 30, why));
    assert_int_equal(tb_pki_intermediate(dir_of(w, "west"), dir_of(w, "issuing"), 30, why), TB_CONFLICT);
    assert_int_equal(tb_pki_intermediate(dir_of(w, "issuing"), dir_of(w, "deeper"), 30, why),
                     TB_BAD_ARGUMENT);
    ok(tb_pki_issue(dir_of(w, "issuing"), "gw", &gw, -60, DAY, why));
    struct tb_tls *server = world_tls(w, "east", "gw", "west"),
                  *client = world_tls(w, "issuing", "gw", "east");
    assert_true(meets(w, server, client));
    tb_tls_free(server);
    server = world_tls(w, "east", "gw", "west");
    ok(tb_revoked_of_file(world_path(w, "issuing", "ca.crt"), &entry, identity, why));
    tb_revoked_entry_format(&entry, text);
    ok(tb_revoked_parse(text, strlen(text), &list, &line));
    tb_tls_set_revoked(server, list);
    assert_false(meets(w, server, client));
    tb_tls_free(server);
    tb_tls_free(client);
    ok(renew(w, "issuing", "west", "old", false)); /* what the root signed, the issuing one takes over */
    client = world_tls(w, "west", "old", "east");
    server = world_tls(w, "east", "gw", "west");
    assert_true(meets(w, server, client));
    tb_tls_free(server);
    tb_tls_free(client);
}

static void put_pem(struct world *w, const char *folder, const char *name, X509 *first, X509 *second,
                    EVP_PKEY *key)
{
    FILE *f = fopen(world_path(w, folder, name), "we");
    assert_non_null(f);
    if (first != NULL) assert_int_equal(PEM_write_X509(f, first), 1);
    if (second != NULL) assert_int_equal(PEM_write_X509(f, second), 1);
    if (key != NULL) assert_int_equal(PEM_write_PKCS8PrivateKey(f, key, NULL, NULL, 0, NULL, NULL), 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(world_path(w, folder, name), 0600), 0);
}

static X509 *read_cert(const char *path)
{
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    X509 *cert = PEM_read_X509(f, NULL, NULL, NULL);
    assert_int_equal(fclose(f), 0);
    assert_non_null(cert);
    return cert;
}

static EVP_PKEY *read_key(const char *path)
{
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    EVP_PKEY *key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    assert_int_equal(fclose(f), 0);
    assert_non_null(key);
    return key;
}

/* P8: a gateway's certificate signs for no other gateway, and an issuing authority makes no
 * other. */
static void a_certificate_that_may_not_sign_signs_nothing(void **state)
{
    struct world *w = *state;
    const struct tb_pki_span span = {-60, DAY};
    const struct tb_identity gw = who_of("tombolo://west/gw");
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "west", "leaf", "tombolo://west/leaf");
    ok(tb_pki_intermediate(dir_of(w, "west"), dir_of(w, "issuing"), 30, why));
    EVP_PKEY *key = EVP_EC_gen("P-256"), *deep_key = EVP_EC_gen("P-256");
    X509 *leaf = read_cert(world_path(w, "west", "leaf.crt")), *cert = X509_new();
    EVP_PKEY *leaf_key = read_key(world_path(w, "west", "leaf.key"));
    struct tb_tls *server = world_tls(w, "east", "gw", "west");
    assert_true(tb_pki_fill_leaf(cert, key, &gw, span, leaf, leaf_key)); /* no CA:TRUE */
    put_pem(w, "west", "forged.crt", cert, leaf, NULL);
    put_pem(w, "west", "forged.key", NULL, NULL, key);
    struct tb_tls *client = world_tls(w, "west", "forged", "east");
    assert_false(meets(w, server, client));
    tb_tls_free(client);
    X509_free(cert);
    X509 *issuing = read_cert(world_path(w, "issuing", "ca.crt")), *deep = X509_new();
    EVP_PKEY *issuing_key = read_key(world_path(w, "issuing", "ca.key"));
    cert = X509_new();
    assert_true(tb_pki_fill_ca(deep, deep_key, "west", 0, span, issuing, issuing_key)); /* beyond pathlen:0 */
    /* One of its issuer's own name would count as that issuer with another key. */
    assert_int_equal(X509_set_subject_name(deep, X509_get_subject_name(leaf)), 1);
    assert_true(X509_sign(deep, issuing_key, EVP_sha256()) > 0);
    assert_true(tb_pki_fill_leaf(cert, key, &gw, span, deep, deep_key));
    put_pem(w, "west", "deep.crt", cert, deep, NULL);
    FILE *f = fopen(world_path(w, "west", "deep.crt"), "ae");
    assert_int_equal(PEM_write_X509(f, issuing), 1);
    assert_int_equal(fclose(f), 0);
    put_pem(w, "west", "deep.key", NULL, NULL, key);
    client = world_tls(w, "west", "deep", "east");
    assert_false(meets(w, server, client));
    tb_tls_free(client);
    tb_tls_free(server);
    X509_free(cert);
    X509_free(deep);
    X509_free(issuing);
    X509_free(leaf);
    EVP_PKEY_free(issuing_key);
    EVP_PKEY_free(leaf_key);
    EVP_PKEY_free(deep_key);
    EVP_PKEY_free(key);
}

/* ---- roots ---- */

/* P8 P9: at each step a gateway that took the step meets one that did not, and the reverse. */
static void roots_roll_over_without_a_cut(void **state)
{
    struct world *w = *state;
    struct tb_tls *ours[4], *theirs[4]; /* of east, and of west, which trusts east by east/ca.crt */
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "west", "gw", "tombolo://west/gw");
    for (int step = 0; step < 4; step++) {
        if (step == 1) ok(tb_pki_rollover_begin(dir_of(w, "east"), 30, why));
        if (step == 2) {
            ok(tb_pki_rollover_turn(dir_of(w, "east"), why));
            assert_int_equal(tb_pki_rollover_end(dir_of(w, "east"), why), TB_CONFLICT);
            assert_non_null(strstr(why, "gw.crt: the first root signed it"));
            ok(renew(w, "east", "east", "gw", false));
        }
        if (step == 3) ok(tb_pki_rollover_end(dir_of(w, "east"), why));
        ours[step] = world_tls(w, "east", "gw", "west");
        theirs[step] = world_tls(w, "west", "gw", "east");
        for (int other = step > 0 ? step - 1 : 0; other <= step; other++) {
            assert_true(meets(w, ours[step], theirs[other]));
            assert_true(meets(w, ours[other], theirs[step]));
        }
    }
    assert_false(meets(w, ours[0], theirs[3])); /* the first root is trusted no more */
    for (int step = 0; step < 4; step++) {
        tb_tls_free(ours[step]);
        tb_tls_free(theirs[step]);
    }
    static const char *const gone[] = {"ca-next.key", "ca-old.key"};
    for (int i = 0; i < 2; i++)
        assert_int_equal(access(world_path(w, "east", gone[i]), F_OK), -1);
    world_issue(w, "east", "again", "tombolo://east/again");
}

static void steps_come_in_order(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    const char *dir = dir_of(w, "east");
    assert_int_equal(tb_pki_rollover_turn(dir, why), TB_CONFLICT);
    assert_int_equal(tb_pki_rollover_end(dir, why), TB_CONFLICT);
    world_file_write(world_path(w, "east", "ca-next.key"), "w", "half", 4); /* of a begin that was killed */
    ok(tb_pki_rollover_begin(dir, 30, why));
    assert_int_equal(tb_pki_rollover_begin(dir, 30, why), TB_CONFLICT);
    assert_int_equal(tb_pki_rollover_end(dir, why), TB_CONFLICT);
    assert_non_null(strstr(why, "turn first"));
    ok(renew(w, "east", "east", "gw", false)); /* the first one signs on */
    assert_int_equal(link(world_path(w, "east", "ca.key"), world_path(w, "east", "ca-old.key")), 0);
    ok(tb_pki_rollover_turn(dir, why)); /* of a turn that was killed half way */
    assert_int_equal(tb_pki_rollover_turn(dir, why), TB_CONFLICT);
}

/* P9: a platform's authority stands beside the site's own (tls.spiffe), and is no root of it. */
static void another_authority_is_no_second_root(void **state)
{
    struct world *w = *state;
    char text[8192] = "";
    world_issue(w, "east", "gw", "tombolo://east/gw");
    world_issue(w, "west", "gw", "tombolo://west/gw");
    const size_t bytes = world_file_read(world_path(w, "west", "ca.crt"), text, sizeof text - 1);
    world_file_write(world_path(w, "east", "ca.crt"), "a", text, bytes);
    assert_int_equal(tb_pki_rollover_end(dir_of(w, "east"), why), TB_CONFLICT);
    assert_non_null(strstr(why, "no roots roll over"));
    ok(tb_pki_rollover_begin(dir_of(w, "east"), 30, why));
    ok(tb_pki_rollover_turn(dir_of(w, "east"), why));
    ok(renew(w, "east", "east", "gw", false));
    ok(tb_pki_rollover_end(dir_of(w, "east"), why));
    memset(text, 0, sizeof text);
    (void)world_file_read(world_path(w, "east", "ca.crt"), text, sizeof text - 1);
    assert_non_null(strstr(strstr(text, "BEGIN CERTIFICATE") + 1, "BEGIN CERTIFICATE")); /* it stays */
}

/* ---- a passphrase ---- */

static const char *the_passphrase;
static int asked;

static int ask(void *user, const char *path, bool is_new, char *out, int cap, char error_out[256])
{
    (void)user, (void)path, (void)is_new;
    asked++;
    if (the_passphrase == NULL) return snprintf(error_out, 256, "none was given"), -1;
    return snprintf(out, (size_t)cap, "%s", the_passphrase);
}

/* P8: a key that follows one with a passphrase has it too, although none was to be made. */
static void a_root_that_follows_keeps_the_passphrase(void **state)
{
    struct world *w = *state;
    char text[4096] = "";
    const struct tb_pki_secret makes = {.encrypts = true, .ask = ask}, asks = {.ask = ask};
    the_passphrase = "correct horse";
    tb_pki_set_secret(&makes);
    ok(tb_pki_init(dir_of(w, "east"), "east", 30, why));
    tb_pki_set_secret(&asks);
    ok(tb_pki_rollover_begin(dir_of(w, "east"), 30, why));
    tb_pki_set_secret(NULL);
    (void)world_file_read(world_path(w, "east", "ca-next.key"), text, sizeof text - 1);
    assert_non_null(strstr(text, "BEGIN ENCRYPTED PRIVATE KEY"));
}

/* P8: a folder that is stolen signs nothing without it. */
static void a_key_under_a_passphrase_needs_it(void **state)
{
    struct world *w = *state;
    char text[4096] = "";
    const int before = asked;
    const struct tb_identity gw = who_of("tombolo://east/gw");
    const struct tb_pki_secret makes = {.encrypts = true, .ask = ask}, asks = {.ask = ask};
    the_passphrase = "correct horse";
    tb_pki_set_secret(&makes);
    ok(tb_pki_init(dir_of(w, "east"), "east", 30, why));
    (void)world_file_read(world_path(w, "east", "ca.key"), text, sizeof text - 1);
    assert_non_null(strstr(text, "BEGIN ENCRYPTED PRIVATE KEY"));
    tb_pki_set_secret(&asks);
    ok(tb_pki_issue(dir_of(w, "east"), "gw", &gw, 0, DAY, why));
    the_passphrase = "wrong horse";
    assert_int_equal(tb_pki_issue(dir_of(w, "east"), "g2", &gw, 0, DAY, why), TB_BAD_ARGUMENT);
    assert_non_null(strstr(why, "ca.key: the passphrase does not fit"));
    the_passphrase = NULL;
    assert_int_equal(tb_pki_issue(dir_of(w, "east"), "g2", &gw, 0, DAY, why), TB_BAD_ARGUMENT);
    assert_string_equal(why, "none was given");
    tb_pki_set_secret(NULL);
    assert_int_equal(tb_pki_issue(dir_of(w, "east"), "g2", &gw, 0, DAY, why), TB_BAD_ARGUMENT);
    assert_non_null(strstr(why, "has a passphrase, and none was given"));
    assert_int_equal(asked - before, 4);
    memset(text, 0, sizeof text);
    (void)world_file_read(world_path(w, "east", "gw.key"), text, sizeof text - 1);
    assert_null(strstr(text, "ENCRYPTED")); /* a gateway reads it unattended */
}

/* ---- looking ---- */

static void certificates_are_told_apart(void **state)
{
    struct world *w = *state;
    struct tb_pki_seen seen[4];
    world_issue_for(w, "east", "gw", "tombolo://east/gw", -60, 5 * DAY);
    world_issue(w, "east", "p", "tombolo://east/publisher/p");
    ok(tb_pki_intermediate(dir_of(w, "east"), dir_of(w, "issuing"), 30, why));
    struct tb_pki_look *l = tb_pki_look_new();
    ok(tb_pki_look_add(l, world_path(w, "east", "gw.crt"), why));
    ok(tb_pki_look_add(l, world_path(w, "east", "p.crt"), why));
    ok(tb_pki_look_add(l, world_path(w, "east", "ca.crt"), why));
    ok(tb_pki_look_add(l, world_path(w, "issuing", "ca.crt"), why));
    assert_int_equal(tb_pki_look_add(l, world_path(w, "east", "gw.key"), why), TB_BAD_FILE);
    assert_int_equal(tb_pki_look_count(l), 4);
    for (uint32_t i = 0; i < 4; i++)
        tb_pki_look_at(l, i, &seen[i]);
    assert_int_equal(seen[0].kind, TB_PKI_LEAF);
    assert_int_equal(seen[0].signer, 2);
    assert_int_equal(seen[1].identity.kind, TB_IDENTITY_PUBLISHER);
    assert_int_equal(seen[2].kind, TB_PKI_ROOT);
    assert_int_equal(seen[2].signer, 2);
    assert_int_equal(seen[3].kind, TB_PKI_ISSUING);
    assert_int_equal(seen[3].signer, 2);
    assert_string_equal(seen[3].subject, "east issuing");
    assert_string_equal(seen[0].key, "EC 256");
    tb_pki_look_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_renewal_keeps_the_identity_and_the_mode),
        WORLD_TEST(a_pair_fits_at_each_moment),
        WORLD_TEST(a_key_may_stay),
        WORLD_TEST(a_certificate_that_others_signed_is_not_renewed),
        WORLD_TEST(the_authority_decides_the_identity),
        WORLD_TEST(a_request_with_a_bad_key_is_refused),
        WORLD_TEST(an_issuing_authority_is_believed_by_its_root),
        WORLD_TEST(a_certificate_that_may_not_sign_signs_nothing),
        WORLD_TEST(roots_roll_over_without_a_cut),
        WORLD_TEST(steps_come_in_order),
        WORLD_TEST(another_authority_is_no_second_root),
        WORLD_TEST(a_root_that_follows_keeps_the_passphrase),
        WORLD_TEST(a_key_under_a_passphrase_needs_it),
        WORLD_TEST(certificates_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
