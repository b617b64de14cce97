/* links_told.c - words for views: which run of a model a peer remembers, which versions its site
 * holds, and which reason holds up its chunks. Only to a peer that knows them, and only of models
 * that concern it.
 *
 * Covers: wan/link/traffic/link_runs.c wan/link/traffic/link_state.c */
#include "check.h"
#include "links_world.h"
#include "wan/link/links_messages.h"
#include "wan/link/links_stats.h"

static struct {
    struct tb_links_run run;
    struct tb_site_state state;
    int runs, states;
} heard;

static bool may_read(void *user, uint32_t peer, const struct tb_name *model, const struct tb_name *home)
{
    (void)user, (void)peer, (void)model, (void)home;
    return true;
}

static void on_runs_asked(void *user, uint32_t peer, const struct tb_name *model)
{
    const struct site *s = user;
    struct tb_links_run run = {.model = *model, .order = 3, .number = 9};
    memset(run.run.bytes, 5, sizeof run.run.bytes);
    CHECK_OK(tb_links_run_tell(s->links, peer, &run));
}

static void on_run_told(void *user, uint32_t peer, const struct tb_links_run *run)
{
    (void)user, (void)peer;
    heard.run = *run;
    heard.runs++;
}

static void on_state(void *user, uint32_t peer, const struct tb_site_state *state)
{
    (void)user, (void)peer;
    heard.state = *state;
    heard.states++;
}

static const struct tb_links_ops ops = {
    .may_read = may_read, .on_runs_asked = on_runs_asked, .on_run_told = on_run_told, .on_state = on_state};

static void two_sites(struct links_world *w, struct site **east, struct site **west, uint32_t protocol_max)
{
    memset(&heard, 0, sizeof heard);
    links_world_init(w);
    *east = site_new(w, "east", true);
    *west = site_new(w, "west", false);
    (*east)->options.ops = (*west)->options.ops = &ops;
    (*west)->options.protocol_max = protocol_max;
    site_peer(*east, *west, false, false);
    site_peer(*west, *east, true, true);
    site_start(*east);
    site_start(*west);
    BOTH_UP(w, *west, *east);
}

static void a_peer_says_which_run_it_remembers(void **state)
{
    static struct links_world w;
    struct site *east, *west;
    (void)state;
    two_sites(&w, &east, &west, 0);
    CHECK_OK(tb_links_runs_ask(west->links, 0, &w.model));
    WORLD_UNTIL(&w.net, heard.runs == 1);
    assert_int_equal(heard.run.order, 3);
    assert_int_equal(heard.run.number, 9);
    assert_true(tb_name_equal(&heard.run.model, &w.model));
    links_world_fini(&w);
}

/* P8: a state names versions. West hears it of the model that it reads, and of no other. */
static void a_state_reaches_a_peer_that_it_concerns(void **state)
{
    static struct links_world w;
    static struct tb_site_state s;
    struct site *east, *west;
    (void)state;
    two_sites(&w, &east, &west, 0);
    s = (struct tb_site_state){.site = east->options.site, .model = w.model, .serial = 7, .left_bytes = 11};
    WORLD_UNTIL(&w.net, tb_links_tell_state(east->links, 0, &s) == TB_OK); /* once west subscribed */
    WORLD_UNTIL(&w.net, heard.states > 0);
    assert_int_equal(heard.state.serial, 7);
    assert_int_equal(heard.state.left_bytes, 11);
    assert_string_equal(heard.state.site.text, "east");
    CHECK_OK(tb_name_set(&s.model, "another"));
    CHECK_STATUS(tb_links_tell_state(east->links, 0, &s), TB_PEER_DENIED);
    links_world_fini(&w);
}

/* P9: the release before knows neither. */
static void an_older_peer_is_told_neither(void **state)
{
    static struct links_world w;
    static struct tb_site_state s;
    struct site *east, *west;
    (void)state;
    two_sites(&w, &east, &west, TB_LINKS_PROTOCOL_STATE - 1);
    s.model = w.model;
    CHECK_STATUS(tb_links_runs_ask(east->links, 0, &w.model), TB_PEER_PROTOCOL);
    CHECK_STATUS(tb_links_tell_state(east->links, 0, &s), TB_PEER_PROTOCOL);
    site_close(west);
    WORLD_UNTIL(&w.net, !site_stats(east, 0).up);
    CHECK_STATUS(tb_links_runs_ask(east->links, 0, &w.model), TB_PEER_UNREACHABLE);
    CHECK_STATUS(tb_links_tell_state(east->links, 0, &s), TB_PEER_UNREACHABLE);
    links_world_fini(&w);
}

/* Most streams that send decide, and one that is idle does not count. */
static void the_limit_of_most_streams_is_the_limit(void **state)
{
    (void)state;
    static struct tb_links_stats stats;
    stats.stream_count = 4;
    assert_int_equal(tb_links_most_limit(&stats), TB_LIMIT_IDLE);
    stats.streams[0].limit = TB_LIMIT_CAP;
    assert_int_equal(tb_links_most_limit(&stats), TB_LIMIT_CAP);
    stats.streams[1].limit = stats.streams[2].limit = TB_LIMIT_NETWORK;
    assert_int_equal(tb_links_most_limit(&stats), TB_LIMIT_NETWORK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peer_says_which_run_it_remembers),
        cmocka_unit_test(a_state_reaches_a_peer_that_it_concerns),
        cmocka_unit_test(an_older_peer_is_told_neither),
        cmocka_unit_test(the_limit_of_most_streams_is_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
