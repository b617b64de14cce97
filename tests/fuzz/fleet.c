/* A fleet that parses is inside all bounds, and one that does not has one clean line of
 * complaint.
 *
 * Covers: sim/fleet/fleet_scenario.c */
#include "sim/fleet/fleet_scenario.h"

#include <math.h>

#include "tests/fuzz/fuzz.h"

static bool positive(double value, double most)
{
    return isfinite(value) && value > 0 && value <= most;
}

static bool name_good(const char *name)
{
    return name[0] != '\0' && memchr(name, '\0', TB_FLEET_NAME_MAX) != NULL;
}

static double site_check(const struct tb_fleet_site *site)
{
    FUZZ_REQUIRE(name_good(site->name) && positive(site->nic, 1e14) && positive(site->shm, 1e14));
    FUZZ_REQUIRE(site->hosts >= 0 && site->workers >= 1 && site->racks <= site->hosts);
    FUZZ_REQUIRE(site->slow_host <= site->hosts && (site->slow_host > 0) == (site->slow_nic > 0));
    FUZZ_REQUIRE(site->notice_s >= 0 && site->restart_s >= 0 && site->plan_s >= 0 && site->fan_out <= 16);
    FUZZ_REQUIRE(site->join_s >= 0 && site->join_s <= 30);
    return site->hosts * site->workers;
}

static void link_check(const struct tb_fleet_scenario *s, const struct tb_fleet_link *l)
{
    FUZZ_REQUIRE(l->a < s->site_count && l->b < s->site_count && l->a != l->b);
    FUZZ_REQUIRE(positive(l->rate, 1e14) && l->delay_s >= 0 && l->delay_s <= 60);
    FUZZ_REQUIRE(l->mtu >= 576 && l->streams >= 1 && positive(l->efficiency, 1));
    FUZZ_REQUIRE(memchr(l->shared, '\0', TB_FLEET_NAME_MAX) != NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct tb_fleet_scenario s;
    char complaint[TB_FLEET_COMPLAINT_MAX] = "";
    double workers = 0;
    const enum tb_status status = tb_fleet_parse("f", (const char *)bytes, count, &s, complaint);
    FUZZ_REQUIRE(status == TB_OK || status == TB_SITE_CONFIG || status == TB_SITE_NOMEM);
    FUZZ_REQUIRE((status == TB_OK) == (complaint[0] == '\0'));
    for (const char *c = complaint; *c != '\0'; c++)
        FUZZ_REQUIRE((unsigned char)*c >= 0x20 && *c != 0x7f);
    if (status != TB_OK) return 0;
    FUZZ_REQUIRE(s.site_count >= 1 && s.site_count <= TB_FLEET_FILE_SITES_MAX && s.home < s.site_count);
    FUZZ_REQUIRE(s.link_count <= TB_FLEET_FILE_LINKS_MAX && positive(s.version.bytes, 1e15));
    FUZZ_REQUIRE(s.version.chunks >= 0 && s.version.chunks <= TB_FLEET_FILE_CHUNKS_MAX &&
                 s.version.chunks <= s.version.bytes);
    FUZZ_REQUIRE(positive(tb_fleet_inside(&s.version), 1));
    for (unsigned i = 0; i < s.site_count; i++)
        workers += site_check(&s.sites[i]);
    FUZZ_REQUIRE(workers <= TB_FLEET_FILE_WORKERS_MAX);
    for (unsigned i = 0; i < s.link_count; i++)
        link_check(&s, &s.links[i]);
    return 0;
}
