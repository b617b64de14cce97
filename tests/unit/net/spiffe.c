/* The list of SPIFFE URIs: what a file may say, and which identity a certificate has by it (P8).
 *
 * Covers: base/net/spiffe.c base/net/list_file.c base/net/tls.c base/net/tls_session.c
 * Covers: base/net/tls_revoked.c */
#include "base/net/spiffe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/net/revoked.h"
#include "base/net/tls.h"
#include "forged_certificate.h"

#define ROLLOUT "spiffe://prod.example/ns/rl/sa/rollout-7"
#define LIST    "spiffe://prod.example/ns/rl/sa/rollout-*  tombolo://own/worker/rollout-*\n"

static enum tb_status says(const char *text, struct tb_spiffe **list_out, uint32_t *line_out)
{
    *list_out = NULL;
    return tb_spiffe_parse(text, strlen(text), list_out, line_out);
}

/* The identity of a URI as text; "" where the list has none. */
static const char *identity_of(const char *text, const char *uri)
{
    static char out[TB_URI_BYTES_MAX];
    struct tb_spiffe *list;
    struct tb_identity identity;
    uint32_t line;
    out[0] = '\0';
    assert_int_equal(says(text, &list, &line), TB_OK);
    if (tb_spiffe_identity(list, uri, &identity) == TB_OK) tb_identity_format(&identity, out);
    tb_spiffe_free(list);
    return out;
}

static void a_uri_names_a_program(void **state)
{
    (void)state;
    static const char *const wrong[] = {"spiffe://",
                                        "spiffe://prod.example",
                                        "spiffe://prod.example/",
                                        "spiffe:///ns/rl",
                                        "spiffe://Prod.example/ns",
                                        "spiffe://prod.example:443/ns",
                                        "spiffe://user@prod.example/ns",
                                        "spiffe://prod.example/ns/",
                                        "spiffe://prod.example//ns",
                                        "spiffe://prod.example/ns/../rl",
                                        "spiffe://prod.example/./ns",
                                        "spiffe://prod.example/ns?x",
                                        "spiffe://prod.example/n%20s",
                                        "SPIFFE://prod.example/ns",
                                        "https://prod.example/ns"};
    char longest[TB_SPIFFE_BYTES_MAX + 1] = "spiffe://prod.example/";
    memset(longest + strlen(longest), 'a', sizeof longest - strlen(longest) - 1);
    assert_false(tb_spiffe_valid(longest));
    longest[TB_SPIFFE_BYTES_MAX - 1] = '\0';
    assert_true(tb_spiffe_valid(longest));
    assert_true(tb_spiffe_valid(ROLLOUT) && tb_spiffe_valid("spiffe://p_1/.../A-b_c.9"));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (tb_spiffe_valid(wrong[i])) fail_msg("taken: %s", wrong[i]);
}

static void the_first_line_that_fits_counts(void **state)
{
    (void)state;
    static const char list[] = "# for people\r\n\n"
                               "spiffe://p/ns/rl/sa/rollout-1 tombolo://east/worker/first  a note\n"
                               "\tspiffe://p/ns/rl/sa/rollout-* tombolo://east/worker/rollout-*\r\n"
                               "spiffe://p/gw/* tombolo://east/*\n"
                               "spiffe://p/sign/* tombolo://east/publisher/*";
    assert_string_equal(identity_of(list, "spiffe://p/ns/rl/sa/rollout-1"), "tombolo://east/worker/first");
    assert_string_equal(identity_of(list, "spiffe://p/ns/rl/sa/rollout-12"),
                        "tombolo://east/worker/rollout-12");
    assert_string_equal(identity_of(list, "spiffe://p/ns/rl/sa/rollout-"), "");
    assert_string_equal(identity_of(list, "spiffe://p/ns/rl/sa/rollout"), "");
    assert_string_equal(identity_of(list, "spiffe://p/gw/gw1"), "tombolo://east/gw1");
    assert_string_equal(identity_of(list, "spiffe://p/sign/t"), "tombolo://east/publisher/t");
    assert_string_equal(identity_of(list, "spiffe://q/ns/rl/sa/rollout-1"), "");
    /* A '*' is a part of one name: the pattern of a gateway lets no worker in. */
    assert_string_equal(identity_of(list, "spiffe://p/gw/worker/w"), "");
    assert_string_equal(identity_of(list, "spiffe://p/gw/worker"), "");
}

static void a_line_that_makes_no_sense_refuses_the_file(void **state)
{
    (void)state;
    static const char *const wrong[] = {"spiffe://p/a",
                                        "spiffe://p/a # tombolo://east/gw",
                                        "tombolo://east/gw spiffe://p/a",
                                        "spiffe://p tombolo://east/gw",
                                        "spiffe://p/a/* tombolo://east/gw",
                                        "spiffe://p/a tombolo://east/*",
                                        "spiffe://p/*/a tombolo://east/gw",
                                        "spiffe://* tombolo://east/*",
                                        "* *",
                                        "spiffe://p/a tombolo://east/worker",
                                        "spiffe://p/* tombolo://*",
                                        "spiffe://p/a unix:0",
                                        "spiffe://p/a west"};
    struct tb_spiffe *list;
    uint32_t line;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "spiffe://p/ok tombolo://east/gw\n%s\n", wrong[i]);
        if (says(text, &list, &line) != TB_BAD_FILE || line != 2) fail_msg("taken: %s", wrong[i]);
    }
    static const char with_nul[] = "spiffe://p/a\0b tombolo://east/gw";
    assert_int_equal(tb_spiffe_parse(with_nul, sizeof with_nul - 1, &list, &line), TB_BAD_FILE);
}

/* P7 */
static void a_list_is_bounded(void **state)
{
    (void)state;
    static const char one[] = "spiffe://p/a tombolo://east/gw\n";
    struct tb_spiffe *list;
    uint32_t line;
    char *many = malloc((TB_SPIFFE_MAX + 1) * (sizeof one - 1));
    assert_non_null(many);
    for (uint32_t i = 0; i <= TB_SPIFFE_MAX; i++)
        memcpy(many + i * (sizeof one - 1), one, sizeof one - 1);
    assert_int_equal(tb_spiffe_parse(many, (TB_SPIFFE_MAX + 1) * (sizeof one - 1), &list, &line),
                     TB_TOO_LARGE);
    assert_int_equal(tb_spiffe_parse(many, TB_SPIFFE_MAX * (sizeof one - 1), &list, &line), TB_OK);
    assert_int_equal(tb_spiffe_count(list), TB_SPIFFE_MAX);
    tb_spiffe_free(list);
    assert_int_equal(tb_spiffe_parse(many, TB_SPIFFE_FILE_MAX + 1, &list, &line), TB_TOO_LARGE);
    free(many);
}

/* P10: a file that does not serve is said with its name. */
static void a_file_is_read_whole_or_refused(void **state)
{
    struct world *w = *state;
    struct tb_spiffe *list;
    char why[256];
    const char *path = world_path(w, ".", "spiffe");
    assert_int_equal(tb_spiffe_read(path, &list, why), TB_SITE_CONFIG);
    assert_non_null(strstr(why, "No such file"));
    world_file_write(path, "w", "\nwest\n", 6);
    assert_int_equal(tb_spiffe_read(path, &list, why), TB_SITE_CONFIG);
    assert_non_null(strstr(why, "spiffe:2: is not spiffe://"));
    assert_int_equal(tb_spiffe_read(w->dir, &list, why), TB_SITE_CONFIG);
    assert_non_null(strstr(why, "no regular file"));
    world_file_write(path, "w", LIST, sizeof LIST - 1);
    assert_int_equal(tb_spiffe_read(path, &list, why), TB_OK);
    assert_int_equal(tb_spiffe_count(list), 1);
    tb_spiffe_free(list);
}

/* ---- certificates ---- */

/* A platform's CA, which signs for any name that it likes, a gateway and a worker of it. */
static void platform(struct world *w, const char *worker_alt)
{
    world_issue(w, "own", "unused", "tombolo://own/x"); /* makes the folder */
    assert_int_equal(unlink(world_path(w, "own", "ca.crt")) | unlink(world_path(w, "own", "ca.key")), 0);
    forge(w, &(struct forge){.dir = "own", .stem = "ca", .ca = true});
    forge(w, &(struct forge){.dir = "own", .stem = "gw", .alt = "URI:tombolo://own/gw"});
    forge(w, &(struct forge){.dir = "own", .stem = "rollout", .alt = worker_alt});
}

static struct tb_tls *context(struct world *w, const char *stem, const char *list)
{
    char cert[16], key[16], why[256];
    struct tb_tls *tls = NULL;
    snprintf(cert, sizeof cert, "%s.crt", stem);
    snprintf(key, sizeof key, "%s.key", stem);
    const char *spiffe = list != NULL ? world_path(w, "own", "spiffe") : NULL;
    if (list != NULL) world_file_write(spiffe, "w", list, strlen(list));
    const struct tb_tls_files files = {.ca = world_path(w, "own", "ca.crt"),
                                       .cert = world_path(w, "own", cert),
                                       .key = world_path(w, "own", key),
                                       .spiffe = spiffe,
                                       .cert_unlisted = true};
    if (tb_tls_new_ca(&files, &tls, why) != TB_OK) fail_msg("%s", why);
    return tls;
}

static void speaks_for(struct world *w, struct tb_tls *tls, const struct tb_name *site)
{
    char why[256];
    if (tb_tls_add_site_ca(tls, site, world_path(w, "own", "ca.crt"), why) != TB_OK) fail_msg("%s", why);
}

static void the_gateway_refuses(struct world *w, struct tb_tls *gw, struct tb_tls *worker,
                                const char *because)
{
    struct pair p;
    pair_init(&p, w, gw, worker, false);
    pair_dial(&p);
    WORLD_UNTIL(w, p.s.closed == 1 && p.c.closed == 1);
    assert_int_equal(p.s.opened, 0);
    assert_int_equal(p.s.why, TB_PEER_IDENTITY);
    if (strstr(p.s.reason, because) == NULL) fail_msg("said: %s", p.s.reason);
    pair_fini(&p);
}

static void a_listed_certificate_has_the_identity_of_its_line(void **state)
{
    struct world *w = *state;
    struct pair p;
    struct tb_identity want;
    platform(w, "URI:" ROLLOUT);
    struct tb_tls *gw = context(w, "gw", LIST), *worker = context(w, "rollout", NULL);
    assert_int_equal(tb_tls_identity(worker)->kind, TB_IDENTITY_NONE);
    assert_int_equal(tb_identity_parse("tombolo://own/worker/rollout-7", &want), TB_OK);
    pair_init(&p, w, gw, worker, false);
    p.server.expect = (struct tb_tls_expect){.identity = {.kind = TB_IDENTITY_WORKER, .site = want.site}};
    pair_open(&p);
    assert_true(tb_identity_equal(&p.s.peer.identity, &want));
    assert_true(tb_identity_equal(&p.c.peer.identity, tb_tls_identity(gw))); /* by its own URI */
    struct tb_tls *same = context(w, "gw", LIST),
                  *other = context(w, "gw", ROLLOUT " tombolo://own/worker/reader\n");
    speaks_for(w, same, &want.site);
    speaks_for(w, other, &want.site);
    assert_true(tb_chan_is_trusted(p.s.chan, same));
    assert_false(tb_chan_is_trusted(p.s.chan, other)); /* it began as somebody else */
    tb_tls_free(same);
    tb_tls_free(other);
    pair_fini(&p);
    tb_tls_free(gw);
    gw = context(w, "gw", "spiffe://prod.example/ns/rl/sa/other tombolo://own/worker/other\n");
    the_gateway_refuses(w, gw, worker, "no identity is listed for the SPIFFE URI");
    tb_tls_free(gw);
    gw = context(w, "gw", NULL);
    the_gateway_refuses(w, gw, worker, "no identity is listed for the SPIFFE URI");
    tb_tls_free(gw);
    tb_tls_free(worker);
}

/* P8: two URIs are no identity, whichever of them is listed. */
static void a_certificate_with_two_uris_has_no_identity(void **state)
{
    struct world *w = *state;
    char why[256];
    struct tb_tls *tls = NULL;
    platform(w, "URI:" ROLLOUT ",URI:tombolo://own/worker/x");
    const struct tb_tls_files files = {.cert = world_path(w, "own", "rollout.crt"),
                                       .key = world_path(w, "own", "rollout.key"),
                                       .cert_unlisted = true};
    assert_int_equal(tb_tls_new_ca(&files, &tls, why), TB_SITE_CONFIG);
    assert_non_null(strstr(why, "exactly one URI"));
}

/* P8: the list does not make a CA speak for another site. */
static void a_ca_speaks_for_its_own_site_only(void **state)
{
    struct world *w = *state;
    struct tb_name site;
    char why[256];
    platform(w, "URI:" ROLLOUT);
    struct tb_tls *worker = context(w, "rollout", NULL), *gw = NULL;
    const char *list = "spiffe://prod.example/ns/rl/sa/rollout-* tombolo://west/worker/rollout-*\n";
    world_file_write(world_path(w, "own", "spiffe"), "w", list, strlen(list));
    const struct tb_tls_files files = {.cert = world_path(w, "own", "gw.crt"),
                                       .key = world_path(w, "own", "gw.key"),
                                       .spiffe = world_path(w, "own", "spiffe")};
    assert_int_equal(tb_tls_new_ca(&files, &gw, why), TB_OK);
    assert_int_equal(tb_name_set(&site, "own"), TB_OK);
    assert_int_equal(tb_tls_add_site_ca(gw, &site, world_path(w, "own", "ca.crt"), why), TB_OK);
    the_gateway_refuses(w, gw, worker, "may not speak for the site of tombolo://west/worker/rollout-7");
    tb_tls_free(gw);
    tb_tls_free(worker);
}

static void a_revoked_identity_hits_a_listed_certificate(void **state)
{
    struct world *w = *state;
    struct tb_revoked *revoked = NULL;
    uint32_t line;
    static const char list[] = "tombolo://own/worker/rollout-7";
    platform(w, "URI:" ROLLOUT);
    struct tb_tls *gw = context(w, "gw", LIST), *worker = context(w, "rollout", NULL);
    assert_int_equal(tb_revoked_parse(list, strlen(list), &revoked, &line), TB_OK);
    tb_tls_set_revoked(gw, revoked);
    the_gateway_refuses(w, gw, worker, "tombolo://own/worker/rollout-7 is revoked");
    tb_tls_free(gw);
    tb_tls_free(worker);
}

/* A gateway has to know its own identity; and a list that changes is another trust, so that peers
 * are judged again. */
static void ones_own_certificate_may_be_listed(void **state)
{
    struct world *w = *state;
    struct tb_identity want;
    char why[256];
    struct tb_tls *tls = NULL;
    platform(w, "URI:" ROLLOUT);
    const struct tb_tls_files files = {.cert = world_path(w, "own", "rollout.crt"),
                                       .key = world_path(w, "own", "rollout.key")};
    assert_int_equal(tb_tls_new_ca(&files, &tls, why), TB_SITE_CONFIG);
    assert_non_null(strstr(why, "tls.spiffe"));
    assert_int_equal(tb_identity_parse("tombolo://own/gw1", &want), TB_OK);
    struct tb_tls *one = context(w, "rollout", ROLLOUT " tombolo://own/gw1");
    struct tb_tls *other = context(w, "rollout", ROLLOUT " tombolo://own/gw2");
    assert_true(tb_identity_equal(tb_tls_identity(one), &want));
    const struct tb_digest trust[] = {tb_tls_trust(one), tb_tls_trust(other)};
    assert_false(tb_digest_equal(&trust[0], &trust[1]));
    tb_tls_free(one);
    tb_tls_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_uri_names_a_program),
        cmocka_unit_test(the_first_line_that_fits_counts),
        cmocka_unit_test(a_line_that_makes_no_sense_refuses_the_file),
        cmocka_unit_test(a_list_is_bounded),
        WORLD_TEST(a_file_is_read_whole_or_refused),
        WORLD_TEST(a_listed_certificate_has_the_identity_of_its_line),
        WORLD_TEST(a_certificate_with_two_uris_has_no_identity),
        WORLD_TEST(a_ca_speaks_for_its_own_site_only),
        WORLD_TEST(a_revoked_identity_hits_a_listed_certificate),
        WORLD_TEST(ones_own_certificate_may_be_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
