/* tls_files.c - certificate, key and CA files: a file that does not serve is refused by its name,
 * and a file that is cut is no shorter list.
 * Covers: base/net/tls.c */
#include "base/net/tls.h"

#include <grp.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "forged_certificate.h"

#define EAST     "tombolo://east/gw"
#define WEST     "tombolo://west/gw"
#define STRANGER 12345u /* a user, and its group */

static struct tb_tls_files trio(const char *ca, const char *cert, const char *key)
{
    return (struct tb_tls_files){.ca = ca, .cert = cert, .key = key};
}

static void bad_files(struct world *w, struct tb_tls_files files, const char *because)
{
    (void)w;
    char why[256];
    struct tb_tls *tls = NULL;
    assert_int_equal(tb_tls_new_ca(&files, &tls, why), TB_SITE_CONFIG);
    assert_null(tls);
    if (strstr(why, because) == NULL) fail_msg("said: %s", why);
}

static void files_that_do_not_serve_are_refused_by_name(void **state)
{
    struct world *w = *state;
    char why[256];
    world_issue(w, "east", "gw", EAST);
    world_issue(w, "east", "g2", "tombolo://east/g2");
    world_issue_for(w, "east", "past", "tombolo://east/past", -100, 50);
    world_issue_for(w, "east", "future", "tombolo://east/future", 1000, 50);
    forge(w,
          &(struct forge){.dir = "east", .stem = "two", .alt = "URI:tombolo://east/a,URI:tombolo://east/b"});
    const char *ca = world_path(w, "east", "ca.crt"), *crt = world_path(w, "east", "gw.crt"),
               *key = world_path(w, "east", "gw.key");
    bad_files(w, trio(ca, world_path(w, "east", "no.crt"), key), "no.crt: No such file");
    bad_files(w, trio(ca, crt, world_path(w, "east", "no.key")), "no.key: No such file");
    bad_files(w, trio(world_path(w, "east", "no.crt"), crt, key), "no.crt: No such file");
    bad_files(w, trio(ca, crt, world_path(w, "east", "g2.key")), "g2.key: is not the key of");
    bad_files(w, trio(ca, key, key), "gw.key: holds no PEM certificate");
    bad_files(w, trio(key, crt, key), "gw.key: holds no PEM certificate");
    bad_files(w, trio(w->dir, crt, key), "is not a regular file");
    bad_files(w, trio(ca, world_path(w, "east", "past.crt"), world_path(w, "east", "past.key")),
              "past.crt: the certificate has expired, at 20");
    bad_files(w, trio(ca, world_path(w, "east", "future.crt"), world_path(w, "east", "future.key")),
              "not valid yet");
    bad_files(w, trio(ca, world_path(w, "east", "two.crt"), world_path(w, "east", "two.key")),
              "exactly one URI");
    struct tb_name east;
    assert_int_equal(tb_name_set(&east, "east"), TB_OK);
    struct tb_tls *tls = world_tls(w, "east", "gw", "east");
    assert_int_equal(tb_tls_add_site_ca(tls, &east, world_path(w, "east", "no.crt"), why), TB_SITE_CONFIG);
    assert_int_equal(tb_tls_add_site_ca(tls, &east, crt, why), TB_OK);
    tb_tls_free(tls);
}

/* Two files' certificates in one, as text. */
struct bundle {
    char bytes[16384];
    size_t first; /* where the second begins */
    size_t whole;
};

static void bundle_read(struct bundle *b, const char *first, const char *second)
{
    b->first = world_file_read(first, b->bytes, sizeof b->bytes);
    b->whole = b->first + world_file_read(second, b->bytes + b->first, sizeof b->bytes - b->first);
}

/* The next place to cut the second: each of its first and last bytes, some between. */
static size_t next_cut(const struct bundle *b, size_t at)
{
    const bool between = at > b->first + 40 && at + 60 < b->whole;
    return at + (between ? 11 : 1);
}

/* Cut anywhere in its second certificate, and with one letter of that another, the file at `path`
 * is refused by `because`; but for the newline at its end it has to be whole. */
static void bad_when_cut(struct world *w, const struct bundle *b, struct tb_tls_files files, const char *path,
                         const char *because)
{
    struct bundle other = *b;
    for (size_t end = b->first + 1; end + 1 < b->whole; end = next_cut(b, end)) {
        world_file_write(path, "w", b->bytes, end);
        bad_files(w, files, because);
    }
    other.bytes[b->first + 200] = '*';
    world_file_write(path, "w", other.bytes, b->whole);
    bad_files(w, files, because);
    world_file_write(path, "w", b->bytes, b->whole - 1);
}

/* Of files that have to be taken. */
static struct tb_digest trust_of(const struct tb_tls_files *files)
{
    char why[256];
    struct tb_tls *tls = NULL;
    if (tb_tls_new_ca(files, &tls, why) != TB_OK) fail_msg("%s", why);
    const struct tb_digest trust = tb_tls_trust(tls);
    tb_tls_free(tls);
    return trust;
}

/* P8 P9: a CA file that ends within its second certificate is no smaller trust, and such a
 * chain no shorter one. */
static void a_second_certificate_that_is_cut_is_refused(void **state)
{
    struct world *w = *state;
    struct bundle cas, chain;
    world_issue(w, "east", "gw", EAST);
    world_issue(w, "west", "gw", WEST);
    const struct tb_tls_files good = {.ca = world_path(w, "east", "ca.crt"),
                                      .cert = world_path(w, "east", "gw.crt"),
                                      .key = world_path(w, "east", "gw.key")};
    struct tb_tls_files files = good;
    files.ca = world_path(w, "east", "cas.crt");
    bundle_read(&cas, good.ca, world_path(w, "west", "ca.crt"));
    bad_when_cut(w, &cas, files, files.ca, "cas.crt: certificate 2 in it is cut or damaged; write the file");
    const struct tb_digest one = trust_of(&good), both = trust_of(&files);
    assert_false(tb_digest_equal(&one, &both));
    files = good;
    files.cert = world_path(w, "east", "chain.crt");
    bundle_read(&chain, good.cert, good.ca);
    bad_when_cut(w, &chain, files, files.cert,
                 "chain.crt: certificate 2 in it is cut or damaged; write the file");
    (void)trust_of(&files);
}

/* Text around certificates is nobody's business, and a key among them is passed over: as `cat` and
 * `openssl x509 -text` make them. */
static void text_between_certificates_is_passed_over(void **state)
{
    struct world *w = *state;
    static const char text[] = "\n# the next one\n- and its list\nBEGIN CERTIFICATE\n\n";
    struct bundle b;
    world_issue(w, "east", "gw", EAST);
    bundle_read(&b, world_path(w, "east", "ca.crt"), world_path(w, "east", "gw.key"));
    memcpy(b.bytes + b.whole, text, sizeof text - 1);
    b.whole += sizeof text - 1;
    b.whole += world_file_read(world_path(w, "east", "gw.crt"), b.bytes + b.whole, sizeof b.bytes - b.whole);
    memcpy(b.bytes + b.whole, text, sizeof text - 1);
    world_file_write(world_path(w, "east", "mixed.crt"), "w", b.bytes, b.whole + sizeof text - 1);
    const char *const mixed = world_path(w, "east", "mixed.crt");
    const struct tb_tls_files files =
        trio(mixed, world_path(w, "east", "gw.crt"), world_path(w, "east", "gw.key"));
    (void)trust_of(&files);
}

/* A chain that peers would not read whole is refused, and not sent in part. */
static void a_chain_that_is_too_long_is_refused(void **state)
{
    struct world *w = *state;
    struct bundle b;
    world_issue(w, "east", "gw", EAST);
    const char *const ca = world_path(w, "east", "ca.crt"), *const chain = world_path(w, "east", "chain.crt"),
                      *const key = world_path(w, "east", "gw.key");
    bundle_read(&b, world_path(w, "east", "gw.crt"), ca);
    for (int behind = 2; behind <= 9; behind++)
        b.whole += world_file_read(ca, b.bytes + b.whole, sizeof b.bytes - b.whole);
    world_file_write(chain, "w", b.bytes, b.whole);
    bad_files(w, trio(ca, chain, key), "more than 8 certificates behind the first");
}

/* P8: a key that others can read is no key. */
static void a_key_that_others_may_read_is_refused(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", EAST);
    const char *key = world_path(w, "east", "gw.key");
    static const mode_t loose[] = {0644, 0640, 0604, 0660, 0601};
    for (size_t i = 0; i < sizeof loose / sizeof *loose; i++) {
        assert_int_equal(chmod(key, loose[i]), 0);
        bad_files(w, trio(world_path(w, "east", "ca.crt"), world_path(w, "east", "gw.crt"), key),
                  "chmod 600");
    }
    assert_int_equal(chmod(key, 0400), 0);
    tb_tls_free(world_tls(w, "east", "gw", "east"));
}

/* As a program without rights reads what root owns, such as a volume with a Kubernetes secret. */
static bool a_stranger_takes(const char *folder)
{
    const struct tb_tls_files files = trio("ca.crt", "gw.crt", "gw.key");
    int result = 0;
    const pid_t child = scratch_fork();
    if (child == 0) {
        char why[256];
        struct tb_tls *tls = NULL;
        if (chdir(folder) != 0) _exit(2); /* those above it are root's */
        if (setgroups(0, NULL) != 0 || setgid(STRANGER) != 0 || setuid(STRANGER) != 0) _exit(2);
        const enum tb_status status = tb_tls_new_ca(&files, &tls, why);
        tb_tls_free(tls);
        _exit(status == TB_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFEXITED(result) && WEXITSTATUS(result) < 2);
    return WEXITSTATUS(result) == 0;
}

/* P8: root may give a key to a group of the program's, for it to read and no more. */
static void a_key_of_root_may_be_read_by_its_group(void **state)
{
    struct world *w = *state;
    static const struct {
        mode_t mode;
        uid_t owner;
        bool good;
    } keys[] = {
        {0440, 0, true},  {0640, 0, true},        {0660, 0, false},        {0644, 0, false},
        {0750, 0, false}, {0400, STRANGER, true}, {0440, STRANGER, false}, {0440, STRANGER + 1, false}};
    if (getuid() != 0) skip();
    world_issue(w, "east", "gw", EAST);
    const char *folder = world_path(w, "east", "."), *key = world_path(w, "east", "gw.key");
    assert_int_equal(chmod(folder, 0755), 0);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        assert_int_equal(chown(key, keys[i].owner, STRANGER), 0);
        assert_int_equal(chmod(key, keys[i].mode), 0);
        if (a_stranger_takes(folder) != keys[i].good)
            fail_msg("mode %o of %u", (unsigned)keys[i].mode, (unsigned)keys[i].owner);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(files_that_do_not_serve_are_refused_by_name),
        WORLD_TEST(a_second_certificate_that_is_cut_is_refused),
        WORLD_TEST(text_between_certificates_is_passed_over),
        WORLD_TEST(a_chain_that_is_too_long_is_refused),
        WORLD_TEST(a_key_that_others_may_read_is_refused),
        WORLD_TEST(a_key_of_root_may_be_read_by_its_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
