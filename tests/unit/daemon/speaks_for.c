/* speaks_for.c - a word on another site counts from that site, from its lanes, from this site's
 * gateways, and from a peer that the configuration names (P3, P8).
 *
 * Covers: gateway/daemon/links/peer_rights.c */
#include "gateway/daemon/daemon.h"

#include "gateway/daemon/links/peer_rights.h"
#include "tests/unit/check.h"

static struct tb_name name(const char *text)
{
    struct tb_name n;
    CHECK_OK(tb_name_set(&n, text));
    return n;
}

static void peer(struct tb_config *c, const char *site, const char *of, const char *speaks_for)
{
    struct tb_config_peer *p = &c->peers[c->peer_count++];
    p->site = name(site);
    p->of = name(of);
    if (speaks_for != NULL) p->speaks_for[p->speaks_for_count++] = name(speaks_for);
}

/* P3: the table is the whole truth. */
static void these_speak_for_those_and_no_others(void **state)
{
    (void)state;
    static struct tb_config c;
    static const struct {
        uint32_t peer;
        const char *site;
        bool counts;
    } rows[] = {
        {0, "west", true},      {0, "north", false},   {0, "west.1", true},  {0, "west.9", false},
        {0, "west.12", false},  {0, "west.", false},   {0, "wester", false}, {0, "west.0", false},
        {0, "island", false},   {1, "north", true},    {1, "west", false},   {1, "island", true},
        {1, "island.2", true},  {1, "islands", false}, {1, "south", false},  {1, "west.1", false},
        {2, "east.1", true},    {2, "island", true},   {2, "west", false},   {2, "west.1", true},
        {3, "south.1", true},   {3, "south", true},    {3, "south.2", true}, {3, "north", false},
        {3, "anything", false},
    };
    c.site = name("east");
    peer(&c, "west", "west", NULL);
    peer(&c, "north", "north", "island");
    peer(&c, "east.1", "east", NULL); /* a gateway of this site */
    peer(&c, "south.1", "south", NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tb_name site = name(rows[i].site);
        if (tb_peer_speaks_for(&c, rows[i].peer, &site) != rows[i].counts)
            fail_msg("peer %u of %s", rows[i].peer, rows[i].site);
    }
    /* Of a peer only its own word counts, even where the list names it. */
    c.peers[1].speaks_for[0] = name("west");
    const struct tb_name west = name("west");
    assert_false(tb_peer_speaks_for(&c, 1, &west));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(these_speak_for_those_and_no_others)};
    return cmocka_run_group_tests_name("daemon.speaks_for", tests, NULL, NULL);
}
