/* day_spent.c - P10: a day's bytes that are used up are why a site is behind, at the site that
 * sends and at the one that waits; and at the one that sends, what stands.
 *
 * Covers: gateway/daemon/links/site_lag.c gateway/daemon/links/peer_limits.c
 * Covers: gateway/daemon/links/site_records.c */
#include <stdio.h>
#include <string.h>

#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/daemon/control/link_status.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"
#include "wan/link/links_stats.h"

#define PEERS_MAX 2u

/* The answers of the links about each peer. */
static struct seen {
    bool up, peer_spent;
} seen[PEERS_MAX];

void __wrap_tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out);
void __wrap_tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out)
{
    (void)links;
    assert_true(peer < PEERS_MAX);
    *stats_out = (struct tb_links_stats){.up = seen[peer].up, .peer_spent = seen[peer].peer_spent};
}

/* And of the version that crosses. */
static struct tb_links_progress progress;

enum tb_status __wrap_tb_links_peer_progress(const struct tb_links *links, uint32_t peer,
                                             const struct tb_id *uid, struct tb_links_progress *out);
enum tb_status __wrap_tb_links_peer_progress(const struct tb_links *links, uint32_t peer,
                                             const struct tb_id *uid, struct tb_links_progress *out)
{
    (void)links, (void)peer, (void)uid;
    *out = progress;
    return TB_OK;
}

#define LEASE_MS 600000u /* none ends */

/* East, whose peers are west and north; no lease ends. */
static void begin(struct home *h, struct world *certificates, const char *models)
{
    char text[1024];
    memset(seen, 0, sizeof seen);
    progress = (struct tb_links_progress){.crossing = false};
    snprintf(text, sizeof text,
             "%s\npeers: {west: {address: \"127.0.0.1:9\", day_bytes: 8MiB}, "
             "north: {address: \"127.0.0.1:9\"}}\n",
             models);
    world_init(certificates);
    linked_home_new(h, certificates, text);
    h->config->session_lease_ms = LEASE_MS;
    home_start(h);
}

static void site_is_up(struct tb_daemon *d, const char *name, struct tb_name *site_out)
{
    CHECK_OK(tb_name_set(site_out, name));
    CHECK_OK(tb_catalog_site_up(d->catalog, tb_clock_now(), site_out, true));
}

#define READ_BY_ALL "{policy: {home: east, read: [\"tombolo://west/*\", \"tombolo://north/*\"]}}"

/* Both peers tell of a version. */
static void hear(struct tb_daemon *d)
{
    static const char *const sites[PEERS_MAX] = {"west", "north"};
    struct tb_version_key key = {
        .uid = {{1}}, .run = {{1}}, .run_order = 1, .number = 1, .shard_count = 1, .root = {{1}}};
    CHECK_OK(tb_name_set(&key.model, "policy"));
    for (uint32_t i = 0; i < PEERS_MAX; i++) {
        struct tb_name site;
        site_is_up(d, sites[i], &site);
        CHECK_OK(tb_catalog_remote_version(d->catalog, tb_clock_now(), &site, &key, TB_VERSION_READY));
        seen[i].up = true;
    }
}

/* While one that is up may still send, it is no reason. */
static void a_waiting_site_has_its_senders_reason(void **state)
{
    struct world certificates;
    struct home home;
    (void)state;
    begin(&home, &certificates, "{policy: {home: west}}\nsubscribe: [{model: policy, from: [west, north]}]");
    struct tb_daemon *d = home.d;
    hear(d);
    home_check_lag(&home, "east", "queued-behind", "");
    seen[0].peer_spent = true;
    home_check_lag(&home, "east", "queued-behind", "");
    seen[1].peer_spent = true;
    home_check_lag(&home, "east", "budget-spent", "from west: ");
    seen[0].up = false;
    home_check_lag(&home, "east", "budget-spent", "from north: ");
    seen[1].peer_spent = false;
    home_check_lag(&home, "east", "queued-behind", "");
    seen[1].up = false;
    home_check_lag(&home, "east", "link-down", "");
    linked_home_end(&home, &certificates);
}

/* A version of one shard that a rank sealed here. */
static void seal_one(struct tb_daemon *d)
{
    struct tb_catalog *c = d->catalog;
    const tb_time_ns now = tb_clock_now();
    const struct tb_catalog_shard shard = {{{5}}, {{6}}, 1, 4096, 64};
    struct tb_catalog_session session = {.id = {{1}}, .identity = "unix:1000"};
    struct tb_catalog_run_request run = {.session = {{1}}, .key = "k", .fresh_id = {{2}}};
    struct tb_catalog_version_request version = {
        .session = {{1}}, .number = 1, .shard_count = 1, .fresh_uid = {{3}}};
    struct tb_catalog_run info;
    struct tb_version_key key;
    bool joined;
    CHECK_OK(tb_name_set(&session.name, "rank"));
    CHECK_OK(tb_name_set(&session.host, "host"));
    CHECK_OK(tb_catalog_session_open(c, now, &session));
    CHECK_OK(tb_name_set(&run.model, "policy"));
    CHECK_OK(tb_catalog_run_open(c, now, &run, &info, &joined));
    version.model = run.model;
    version.run = info.id;
    CHECK_OK(tb_catalog_version_open(c, now, &version, &key));
    CHECK_OK(tb_catalog_arena_shard(c, now, &key.uid, 0, &shard));
    CHECK_OK(tb_catalog_arena_reserved(c, now, &key.uid));
    const struct tb_catalog_seal seal = {.session = session.id,
                                         .uid = key.uid,
                                         .root = shard.root,
                                         .layout_id = shard.layout_id,
                                         .chunk_count = shard.chunk_count,
                                         .bytes = shard.bytes,
                                         .export_id = 1};
    CHECK_OK(tb_catalog_seal(c, now, &seal));
}

/* Of two sites one's day is used up. The bytes that they sent themselves do not count. */
static void a_sender_names_the_peer_of_the_day(void **state)
{
    struct world certificates;
    struct home home;
    struct tb_name site;
    (void)state;
    begin(&home, &certificates, READ_BY_ALL);
    struct tb_daemon *d = home.d;
    seal_one(d);
    site_is_up(d, "west", &site);
    site_is_up(d, "north", &site);
    seen[0] = seen[1] = (struct seen){.up = true, .peer_spent = true};
    home_check_lag(&home, "west", "queued-behind", "");
    d->limits[0].budget.used_bytes = (8 << 20) - 1;
    home_check_lag(&home, "west", "queued-behind", "");
    d->limits[0].budget.used_bytes++;
    home_check_lag(&home, "west", "budget-spent", "to west: 8388608 of 8388608 bytes are used");
    home_check_lag(&home, "north", "queued-behind", "");
    linked_home_end(&home, &certificates);
}

/* On a link that was idle nothing moved for long when a version begins. */
static void a_version_just_begun_on_an_idle_link_crosses(void **state)
{
    struct world certificates;
    struct home home;
    struct tb_name site;
    (void)state;
    begin(&home, &certificates, READ_BY_ALL);
    struct tb_daemon *d = home.d;
    seal_one(d);
    site_is_up(d, "west", &site);
    seen[0].up = true;
    for (int looks = 0; looks < 3; looks++)
        tb_status_pace(d);
    progress.crossing = true;
    home_check_lag(&home, "west", "crossing", "to west: 0 bytes/s");
    progress.begun_for = TB_SECONDS(3);
    home_check_lag(&home, "west", "stalled", "to west: 0 bytes/s");
    d->goodput[0].bytes++;
    tb_status_pace(d);
    home_check_lag(&home, "west", "crossing", "");
    linked_home_end(&home, &certificates);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiting_site_has_its_senders_reason),
        cmocka_unit_test(a_sender_names_the_peer_of_the_day),
        cmocka_unit_test(a_version_just_begun_on_an_idle_link_crosses),
    };
    return cmocka_run_group_tests_name("daemon.day_spent", tests, NULL, NULL);
}
