/* certificates.c - what is taken of files that are read again, and when (P9, P10).
 *
 * Covers: gateway/daemon/certificates.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/net/tls_context.h"
#include "gateway/daemon/certificates.h"
#include "gateway/daemon/daemon.h"
#include "tests/unit/caught_log.h"
#include "tests/unit/check.h"
#include "tests/unit/net/net_world.h"

#define EAST "tombolo://east/gw"

struct site {
    struct world world;
    char ca[128], cert[128], key[128];
    struct tb_config config;
    struct tb_daemon *d; /* of which only the certificates are open */
};

static void site_new(struct site *s)
{
    char error[512] = "";
    world_init(&s->world);
    world_issue(&s->world, "east", "gw", EAST);
    (void)snprintf(s->ca, sizeof s->ca, "%s", world_path(&s->world, "east", "ca.crt"));
    (void)snprintf(s->cert, sizeof s->cert, "%s", world_path(&s->world, "east", "gw.crt"));
    (void)snprintf(s->key, sizeof s->key, "%s", world_path(&s->world, "east", "gw.key"));
    s->config = (struct tb_config){.tls_ca = s->ca, .tls_cert = s->cert, .tls_key = s->key};
    CHECK_OK(tb_name_set(&s->config.site, "east"));
    s->d = calloc(1, sizeof *s->d);
    assert_non_null(s->d);
    s->d->config = &s->config;
    CHECK_OK(tb_name_set(&s->config.gateway, "gw"));
    CHECK_OK(tb_certificates_open(s->d, error));
}

static void site_free(struct site *s)
{
    tb_tls_free(s->d->tls);
    free(s->d);
    world_fini(&s->world);
}

/* P8: files that are read again do not give records back to a peer that was not to have them. */
static void records_are_whose_the_config_says(void **state)
{
    (void)state;
    struct site s;
    char ca[8192];
    site_new(&s);
    assert_false(s.d->tls->own_records);
    s.config.link_own_records = true;
    world_file_write(s.cert, "a", ca, world_file_read(s.ca, ca, sizeof ca));
    tb_certificates_reload(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 1);
    assert_true(s.d->tls->own_records);
    site_free(&s);
}

/* P9: an authority's new intermediates stand behind the same certificate: peers that need them get
 * them. */
static void a_chain_behind_the_same_certificate_is_taken(void **state)
{
    (void)state;
    struct site s;
    char ca[8192];
    site_new(&s);
    const struct tb_fingerprint before = *tb_tls_fingerprint(s.d->tls);
    tb_certificates_reload(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 0); /* they are what is loaded */
    world_file_write(s.cert, "a", ca, world_file_read(s.ca, ca, sizeof ca));
    tb_certificates_reload(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 1);
    assert_memory_equal(tb_tls_fingerprint(s.d->tls), &before, sizeof before);
    tb_certificates_reload(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 1);
    site_free(&s);
}

/* A certificate that is valid in so many seconds is there and refused; false: by now it is valid,
 * since nobody had a core. */
static bool too_early(struct site *s, int64_t early_s)
{
    char good[8192];
    const int64_t valid_ms = (int64_t)tb_clock_wall_ms() + early_s * 1000;
    world_issue_for(&s->world, "east", "soon", EAST, early_s, 3600);
    const char *const cert = world_path(&s->world, "east", "soon.crt");
    const char *const key = world_path(&s->world, "east", "soon.key");
    world_file_write(s->cert, "w", good, world_file_read(cert, good, sizeof good));
    world_file_write(s->key, "w", good, world_file_read(key, good, sizeof good));
    tb_certificates_tick(s->d);
    assert_int_equal(s->d->counters.certificates_refused, 0); /* two looks have to see the same */
    tb_certificates_tick(s->d);
    if (s->d->counters.certificates_refused == 1) return true;
    assert_true((int64_t)tb_clock_wall_ms() >= valid_ms - 1000); /* it counts whole seconds */
    assert_int_equal(s->d->counters.certificates_loaded, 1);
    s->d->counters.certificates_loaded = 0;
    return false;
}

/* P9 P10: a certificate that is not valid yet is refused once, and taken when it is, though
 * nobody writes it again. */
static void a_refused_file_is_read_again(void **state)
{
    (void)state;
    struct site s;
    site_new(&s);
    int64_t early_s = 4;
    while (!too_early(&s, early_s)) {
        assert_true(early_s < 60);
        early_s *= 2;
    }
    assert_true(s.d->tls_again_at > tb_time_add(tb_clock_now(), TB_SECONDS(50)));
    tb_certificates_tick(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 0);
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(30 + early_s));
    while (s.d->counters.certificates_loaded == 0 && tb_clock_now() < until) {
        if (s.d->tls_again_at != 0) s.d->tls_again_at = 1; /* the minute is over */
        tb_certificates_tick(s.d);
        world_turns(&s.world, 1);
    }
    assert_int_equal(s.d->counters.certificates_loaded, 1);
    assert_int_equal(s.d->counters.certificates_refused, 1);
    assert_true(s.d->tls_again_at == 0);
    site_free(&s);
}

/* P8 P9 P10: a CA file is seen while it is written: what has come of its second certificate is no
 * smaller trust, and no news either when it is still the same. */
static void half_a_second_authority_is_refused_once(void **state)
{
    (void)state;
    struct site s;
    char cas[16384];
    site_new(&s);
    world_issue(&s.world, "west", "gw", "tombolo://west/gw");
    const size_t first = world_file_read(s.ca, cas, sizeof cas);
    const size_t both =
        first + world_file_read(world_path(&s.world, "west", "ca.crt"), cas + first, sizeof cas - first);
    world_file_write(s.ca, "w", cas, both);
    tb_certificates_reload(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 1);
    const struct tb_digest before = tb_tls_trust(s.d->tls);
    world_file_write(s.ca, "w", cas, first + (both - first) / 2);
    tb_certificates_tick(s.d);
    tb_certificates_tick(s.d);
    s.d->tls_again_at = 1; /* the minute is over */
    tb_certificates_tick(s.d);
    assert_int_equal(s.d->counters.certificates_refused, 1);
    assert_int_equal(s.d->counters.certificates_loaded, 1);
    const struct tb_digest after = tb_tls_trust(s.d->tls);
    assert_true(tb_digest_equal(&before, &after));
    world_file_write(s.ca, "w", cas, both);
    tb_certificates_reload(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 1); /* nothing is new */
    site_free(&s);
}

static void revoked_init(struct site *s, char path_out[128])
{
    char error[512] = "";
    (void)snprintf(path_out, 128, "%s", world_path(&s->world, "east", "revoked"));
    world_file_write(path_out, "w", "# nobody\n", 9);
    s->config.tls_revoked = path_out;
    tb_tls_free(s->d->tls);
    s->d->tls = NULL;
    CHECK_OK(tb_certificates_open(s->d, error));
    assert_int_equal(tb_tls_revoked_count(s->d->tls), 0);
}

/* P8: a gateway looks each second: a list that stands still is read by the second look. */
static void a_list_of_the_revoked_is_read_by_the_second_look(void **state)
{
    (void)state;
    struct site s;
    char path[128];
    site_new(&s);
    revoked_init(&s, path);
    world_file_write(path, "w", "tombolo://north/gw\n", 19);
    tb_certificates_tick(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 0);
    tb_certificates_tick(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 1);
    assert_int_equal(tb_tls_revoked_count(s.d->tls), 1);
    site_free(&s);
}

/* P8: each look sees another list, or another file beside it. It is read within 60 s all the same,
 * and then they may settle again. */
static void a_list_that_never_stands_still_is_read_all_the_same(void **state)
{
    (void)state;
    struct site s;
    char path[128];
    uint32_t looks = 0;
    site_new(&s);
    revoked_init(&s, path);
    const tb_time_ns began = tb_clock_now();
    world_file_write(path, "w", "tombolo://north/gw\n", 19);
    for (; s.d->counters.certificates_loaded == 0; looks++) {
        assert_true(looks < 60);
        world_file_write(path, "a", "#\n", 2);
        tb_certificates_tick(s.d);
        /* a second is over */
        if (s.d->tls_moves_since != 0) s.d->tls_moves_since -= TB_SECONDS(1);
    }
    assert_true(looks > 10 && tb_time_since(began, tb_clock_now()) < TB_SECONDS(30));
    assert_int_equal(tb_tls_revoked_count(s.d->tls), 1);
    world_file_write(path, "a", "#\n", 2);
    tb_certificates_tick(s.d);
    assert_true(s.d->tls_moves_since != 0);
    tb_certificates_tick(s.d);
    assert_true(s.d->tls_moves_since == 0);
    site_free(&s);
}

/* A certificate of that many days and an hour, in place of the one that is there. */
static void issue_for_days(struct site *s, const char *stem, int64_t days)
{
    char bytes[8192], name[16];
    world_issue_for(&s->world, "east", stem, EAST, 0, days * 86400 + 3600);
    (void)snprintf(name, sizeof name, "%s.crt", stem);
    const char *from = world_path(&s->world, "east", name);
    world_file_write(s->cert, "w", bytes, world_file_read(from, bytes, sizeof bytes));
    (void)snprintf(name, sizeof name, "%s.key", stem);
    from = world_path(&s->world, "east", name);
    world_file_write(s->key, "w", bytes, world_file_read(from, bytes, sizeof bytes));
    tb_certificates_reload(s->d);
}

/* Lines about tls.cert so far. */
static uint32_t warned(int log, const char *days)
{
    static char text[1 << 16];
    char words[64];
    uint32_t lines = 0;
    const ssize_t bytes = pread(log, text, sizeof text - 1, 0);
    assert_true(bytes >= 0);
    text[bytes] = '\0';
    (void)snprintf(words, sizeof words, "tls.expiring what=certificate key=tls.cert days=%s ", days);
    for (const char *at = strstr(text, words); at != NULL; at = strstr(at + 1, words))
        lines++;
    return lines;
}

/* P10: below 14 days, once a day, and anew for another certificate. */
static void a_certificate_that_ends_soon_is_told(void **state)
{
    (void)state;
    struct site s;
    site_new(&s);
    const int log = caught_log_new();
    tb_log_set(TB_LOG_WARN, log);
    issue_for_days(&s, "long", 14);
    assert_int_equal(s.d->counters.certificates_loaded, 1);
    assert_int_equal(tb_certificates_days_left(tb_tls_expires_wall_s(s.d->tls)), 14);
    for (int i = 0; i < 3; i++)
        tb_certificates_tick(s.d);
    assert_int_equal(warned(log, "14") + warned(log, "13"), 0);
    issue_for_days(&s, "short", 13);
    for (int i = 0; i < 3; i++)
        tb_certificates_tick(s.d);
    assert_int_equal(warned(log, "13"), 1);
    s.d->tls_warned_day--; /* another day */
    tb_certificates_tick(s.d);
    assert_int_equal(warned(log, "13"), 2);
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    (void)close(log);
    site_free(&s);
}

/* P8: the list of SPIFFE URIs is one of the files: a change is seen without a signal, and one that
 * makes no sense leaves the list before. */
static void a_list_of_spiffe_uris_is_read_again(void **state)
{
    (void)state;
    struct site s;
    char path[128], error[512] = "";
    static const char good[] = "spiffe://p/a tombolo://east/worker/a\n";
    static const char other[] = "spiffe://p/a tombolo://east/worker/b\n";
    site_new(&s);
    (void)snprintf(path, sizeof path, "%s", world_path(&s.world, "east", "spiffe"));
    world_file_write(path, "w", good, sizeof good - 1);
    s.config.tls_spiffe = path;
    tb_tls_free(s.d->tls);
    s.d->tls = NULL;
    CHECK_OK(tb_certificates_open(s.d, error));
    const struct tb_digest before = tb_tls_trust(s.d->tls);
    world_file_write(path, "w", "nonsense\n", 9);
    for (int i = 0; i < 3; i++) /* two looks see the same */
        tb_certificates_tick(s.d);
    assert_int_equal(s.d->counters.certificates_refused, 1);
    const struct tb_digest kept = tb_tls_trust(s.d->tls);
    assert_true(tb_digest_equal(&before, &kept));
    world_file_write(path, "w", other, sizeof other - 1);
    for (int i = 0; i < 3; i++)
        tb_certificates_tick(s.d);
    assert_int_equal(s.d->counters.certificates_loaded, 1);
    const struct tb_digest after = tb_tls_trust(s.d->tls);
    assert_false(tb_digest_equal(&before, &after));
    site_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_whose_the_config_says),
        cmocka_unit_test(a_chain_behind_the_same_certificate_is_taken),
        cmocka_unit_test(a_refused_file_is_read_again),
        cmocka_unit_test(half_a_second_authority_is_refused_once),
        cmocka_unit_test(a_certificate_that_ends_soon_is_told),
        cmocka_unit_test(a_list_of_spiffe_uris_is_read_again),
        cmocka_unit_test(a_list_of_the_revoked_is_read_by_the_second_look),
        cmocka_unit_test(a_list_that_never_stands_still_is_read_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
