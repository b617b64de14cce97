/* link_traffic.c - what crosses a link, as a whole: made, told of a session, freed. */
#include "wan/link/traffic/link_traffic.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/stream_table.h"
#include "wan/link/traffic/ask_table.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/link_manifest_pages.h"
#include "wan/link/traffic/link_state.h"
#include "wan/link/traffic/link_traffic_turn.h"
#include "wan/link/traffic/link_versions.h"
#include "wan/link/traffic/push_table.h"
#include "wan/send/codec_trial.h"
#include "wan/send/feed.h"
#include "wan/send/feed_choice.h"
#include "wan/send/feed_gifts.h"
#include "wan/send/feed_limits.h"

_Static_assert(TB_HEDGE_CROSSINGS_MAX >= TB_LINKS_CROSSINGS_MAX, "each crossing may hedge");

/* Once a process: a machine's speeds do not change with its links. */
static const struct tb_choice_speed *machine_speeds(void)
{
    static struct tb_choice_speed speeds[TB_WAYS];
    static bool tried;
    if (!tried) tb_choice_trial(speeds);
    tried = true;
    return speeds;
}

enum tb_status tb_link_traffic_init(struct tb_link *l, const struct tb_links_peer_options *p)
{
    const struct tb_links_options *o = &l->links->options;
    struct tb_link_traffic *t = &l->traffic;
    t->feed = tb_feed_new(o->codec, o->threads);
    if (t->feed == NULL) return TB_SITE_NOMEM;
    if (o->codec == TB_CHOICE_AUTO) tb_feed_seed(t->feed, machine_speeds());
    TB_ASSERT(p->model_count <= TB_LINKS_MODELS_MAX); /* links_options.c */
    if (p->model_count > 0) memcpy(t->models.wanted, p->models, p->model_count * sizeof *t->models.wanted);
    t->models.wanted_count = p->model_count;
    tb_hedge_init(&t->crossings.hedge, o->hedge_permille == TB_LINKS_HEDGE_NONE ? 0 : o->hedge_permille);
    tb_tuner_init(&t->streams.tuner, &l->links->tcp.tuning);
    tb_tuner_recall(&t->streams.tuner, p->streams_found, p->found_bytes_per_s);
    l->stats.streams_found = t->streams.tuner.searched ? p->streams_found : 0;
    l->stats.found_bytes_per_s = p->found_bytes_per_s;
    return TB_OK;
}

void tb_link_traffic_fini(struct tb_link *l)
{
    TB_ASSERT(tb_link_streams_count(l) == 0);
    tb_link_pushes_down(l);
    tb_link_pushes_forget(l);
    tb_link_asks_free(l);
    tb_link_serves_drop(l, NULL);
    tb_link_outs_drop(l, NULL);
    tb_link_ins_free(l);
    tb_feed_free(l->traffic.feed);
    tb_free(l->traffic.models.announced);
    tb_free(l->traffic.models.granted);
}

void tb_link_traffic_up(struct tb_link *l, const struct tb_id *life, tb_time_ns rtt)
{
    TB_ASSERT(tb_link_is_up(l));
    tb_link_life(l, life);
    tb_link_state_up(l);
    tb_link_pause_up(l);
    tb_link_versions_up(l);
    tb_link_crossings_up(l);
    tb_link_streams_up(l, rtt);
    tb_feed_session(l->traffic.feed, tb_link_session_seq(l), tb_link_protocol(l));
}

void tb_link_traffic_down(struct tb_link *l)
{
    TB_ASSERT(!tb_link_is_up(l));
    tb_link_versions_down(l);
    tb_link_move_down(l);
    l->traffic.streams.garbled = false;
    /* Streams take nothing more. The next tick ends them, behind our BYE. */
    tb_feed_session(l->traffic.feed, 0, TB_LINK_PROTOCOL_MIN);
}

void tb_link_traffic_end(struct tb_link *l)
{
    tb_feed_gifts_drop(l->traffic.feed);
}

void tb_link_traffic_limit(struct tb_link *l, const struct tb_links_limit *limit)
{
    tb_feed_cap(l->traffic.feed, limit->bytes_per_s);
    tb_feed_until(l->traffic.feed, limit->until_bytes);
    if (l->traffic.crossings.outs != NULL) tb_links_busy(l->links);
}
