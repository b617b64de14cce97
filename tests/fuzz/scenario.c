/* A scenario that parses is inside all bounds, and one that does not has one clean line of
 * complaint. So it is with what is changed while it runs, and then the scenario stays.
 *
 * Covers: sim/wan/scenario.c */
#include "sim/wan/scenario.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

static void fuzz_turn(const uint8_t *bytes, size_t count)
{
    static const char two[] = "sites: [a, b]\npaths:\n- {from: a, to: b}\n";
    static struct tb_scenario s;
    char complaint[512];
    FUZZ_REQUIRE(tb_scenario_parse("f", two, sizeof two - 1, &s, complaint, sizeof complaint) == TB_OK);
    const enum tb_status status =
        tb_scenario_turn(&s, (const char *)bytes, count, complaint, sizeof complaint);
    FUZZ_REQUIRE((status == TB_OK) == (complaint[0] == '\0'));
    FUZZ_REQUIRE(s.path_count == 1 && s.site_count == 2);
    if (status == TB_OK) FUZZ_REQUIRE(s.turn.from == 0 && s.turn.to == 1 && !s.turn.both && s.turn.mask != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct tb_scenario s;
    char complaint[512];
    fuzz_turn(bytes, count);
    const enum tb_status status =
        tb_scenario_parse("f", (const char *)bytes, count, &s, complaint, sizeof complaint);
    FUZZ_REQUIRE((status == TB_OK) == (complaint[0] == '\0'));
    for (const char *c = complaint; *c != '\0'; c++)
        FUZZ_REQUIRE((unsigned char)*c >= 0x20 && *c != 0x7f);
    if (status != TB_OK) return 0;
    FUZZ_REQUIRE(s.site_count >= 2 && s.site_count <= TB_SCENARIO_SITES_MAX && s.mtu >= 576 && s.mtu <= 9000);
    FUZZ_REQUIRE(s.path_count <= TB_SCENARIO_PATHS_MAX && s.queue_count <= s.path_count);
    for (uint32_t i = 0; i < s.path_count; i++) {
        const struct tb_scenario_path *p = &s.paths[i];
        FUZZ_REQUIRE(p->from < s.site_count && p->to < s.site_count && p->from != p->to &&
                     p->queue < s.queue_count);
        FUZZ_REQUIRE(p->change_count <= TB_PATH_CHANGES_MAX &&
                     p->settings.value[TB_PATH_LOSS] <= TB_PATH_PPB);
    }
    return 0;
}
