/* crowded.c - many sites that hold many versions: each has its place (P6), and what has
 * none is told of (P10).
 *
 * Covers: gateway/daemon/links/link_reports.c gateway/daemon/links/site_records.c */
#include <stdio.h>

#include "gateway/catalog/records.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/links/link_reports.h"
#include "gateway/daemon/links/site_records.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"

#define VERSIONS 64u

/* The link of each peer says that the peer holds one chunk of any version. */
static bool holds_some;

enum tb_status __wrap_tb_links_peer_progress(const struct tb_links *links, uint32_t peer,
                                             const struct tb_id *uid, struct tb_links_progress *out);
enum tb_status __wrap_tb_links_peer_progress(const struct tb_links *links, uint32_t peer,
                                             const struct tb_id *uid, struct tb_links_progress *out)
{
    (void)links, (void)peer, (void)uid;
    *out = (struct tb_links_progress){.held_chunks = 1};
    return holds_some ? TB_OK : TB_NOT_FOUND;
}

struct crowd {
    struct world world; /* of certificates */
    struct home home;
};

static void crowd_begin(struct crowd *w, const char *models)
{
    char rest[1024];
    snprintf(rest, sizeof rest, "%s\n" LINKED_WEST, models);
    linked_home_begin(&w->home, &w->world, rest);
    assert_non_null(w->home.d->links);
}

static void crowd_end(struct crowd *w)
{
    linked_home_end(&w->home, &w->world);
}

static struct tb_version_key version_of(uint64_t number)
{
    struct tb_version_key key = {
        .uid = {{(uint8_t)number}}, .run = {{1}}, .run_order = 1, .number = number, .shard_count = 1};
    key.root.bytes[0] = (uint8_t)number;
    CHECK_OK(tb_name_set(&key.model, "policy"));
    return key;
}

static struct tb_name site_of(uint32_t i)
{
    char text[16];
    struct tb_name name;
    snprintf(text, sizeof text, "site%u", i);
    CHECK_OK(tb_name_set(&name, text));
    return name;
}

/* TB_OK: it has a place for each version. */
static enum tb_status site_says(struct crowd *w, uint32_t site)
{
    struct tb_catalog *c = w->home.d->catalog;
    const struct tb_name name = site_of(site);
    enum tb_status status = tb_catalog_site_up(c, tb_clock_now(), &name, true);
    for (uint64_t number = 1; status == TB_OK && number <= VERSIONS; number++) {
        const struct tb_version_key key = version_of(number);
        status = tb_catalog_remote_version(c, tb_clock_now(), &name, &key, TB_VERSION_READY);
    }
    return status;
}

/* 63 sites, and each has 64 versions. */
static void each_site_has_a_place_for_all_that_is_kept(void **state)
{
    struct crowd w;
    (void)state;
    crowd_begin(&w, "{policy: {home: west, keep: 63}}");
    for (uint32_t site = 0; site < 63; site++)
        CHECK_OK(site_says(&w, site));
    crowd_end(&w);
}

/* One that keeps 2 has room for 1,024, and 2,048 of patterns: 48 such sites. Where every version is
 * to cross, none of them can be done without. */
static void a_site_without_a_place_is_told_of_once(void **state)
{
    struct crowd w;
    (void)state;
    crowd_begin(&w, "{policy: {home: west, policy: every}}");
    struct tb_daemon *d = w.home.d;
    for (uint32_t site = 0; site < 48; site++)
        CHECK_OK(site_says(&w, site));
    CHECK_STATUS(site_says(&w, 48), TB_SITE_NOMEM);
    const struct tb_version_key key = version_of(1);
    struct tb_copy *copy = tb_copy_get(d, &key);
    assert_non_null(copy);
    copy->serving = TB_COPY_OFFERED;
    holds_some = true;
    tb_crossings_poll(d);
    tb_crossings_poll(d);
    assert_int_equal(d->counters.reports_refused, 1);
    const struct tb_name gone = site_of(0);
    tb_catalog_site_forget(d->catalog, tb_clock_now(), &gone);
    tb_crossings_poll(d);
    assert_int_equal(d->counters.reports_refused, 1);
    copy->serving = TB_COPY_UNREADY;
    holds_some = false;
    crowd_end(&w);
}

static bool is_known(struct tb_daemon *d, const char *site)
{
    struct tb_record r;
    struct tb_catalog_reference_view view;
    struct tb_name name, policy;
    CHECK_OK(tb_name_set(&name, site));
    CHECK_OK(tb_name_set(&policy, "policy"));
    for (uint32_t cursor = 0; tb_catalog_reference_at(d->catalog, &cursor, &view);)
        if (tb_name_equal(&view.name, &name)) return true;
    return tb_record_get(d->catalog, &name, &policy, &r) && r.known;
}

/* P3 P10: of what a peer says of a site that it does not speak for, nothing is believed; it is
 * counted each time, and has one line. */
static void a_peer_speaks_for_itself(void **state)
{
    struct crowd w;
    (void)state;
    crowd_begin(&w, "{policy: {home: west}}");
    struct tb_daemon *d = w.home.d;
    CHECK_OK(site_says(&w, 0)); /* so that there are versions */
    struct tb_links_report report = {.uid = version_of(1).uid, .state = TB_LINKS_REPORT_ACTIVATED};
    static struct tb_site_state said; /* large */
    said = (struct tb_site_state){.known = true, .hops = 1};
    CHECK_OK(tb_name_set(&said.model, "policy"));
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_OK(tb_name_set(&report.site, "made-up"));
        said.site = report.site;
        tb_reports_heard(d, 0, &report);
        tb_site_records_state(d, 0, &said);
    }
    assert_int_equal(d->counters.reports_refused, 6);
    assert_true(d->disbelieved[0]);
    assert_false(is_known(d, "made-up"));
    report.site = said.site = d->config->peers[0].site; /* its twin: of itself */
    tb_reports_heard(d, 0, &report);
    tb_site_records_state(d, 0, &said);
    assert_int_equal(d->counters.reports_refused, 6);
    assert_true(is_known(d, report.site.text));
    crowd_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_site_has_a_place_for_all_that_is_kept),
        cmocka_unit_test(a_site_without_a_place_is_told_of_once),
        cmocka_unit_test(a_peer_speaks_for_itself),
    };
    return cmocka_run_group_tests_name("daemon.crowded", tests, NULL, NULL);
}
