/* links_known.c - what is known of links, their streams and the versions on them. Nothing
 * here changes anything. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/net/listen.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_stats.h"
#include "wan/link/path/link_why.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/stream_numbers.h"
#include "wan/link/streams/stream_table.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/link_traffic_turn.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/link/traffic/push_table.h"
#include "wan/send/codec_pace.h"
#include "wan/send/feed_choice.h"
#include "wan/send/feed_limits.h"

uint64_t tb_links_announced_bytes(const struct tb_links *links, const struct tb_id *uid)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < links->options.peer_count; i++) {
        const struct tb_announced *a = tb_link_announced(&links->links[i], uid);
        if (a != NULL && a->bytes > bytes) bytes = a->bytes;
    }
    return bytes;
}

uint32_t tb_links_landings(const struct tb_links *links, uint32_t peer)
{
    TB_ASSERT(peer < links->options.peer_count);
    return tb_link_in_crossings(&links->links[peer]);
}

bool tb_links_landing_waits(const struct tb_links *links, uint32_t peer, const struct tb_id *uid)
{
    const struct tb_link_in *in = tb_link_in_of(&links->links[peer], uid);
    return in != NULL && !in->finished && in->crossing == 0 &&
           tb_links_landings(links, peer) >= TB_LINKS_LANDINGS_MAX;
}

bool tb_links_announces(const struct tb_links *links, uint32_t peer, const struct tb_id *uid)
{
    TB_ASSERT(peer < links->options.peer_count);
    return tb_link_announced(&links->links[peer], uid) != NULL;
}

bool tb_links_announced_at(const struct tb_links *links, uint32_t peer, uint32_t *cursor,
                           struct tb_version_key *key_out, uint64_t *bytes_out)
{
    TB_ASSERT(peer < links->options.peer_count);
    const struct tb_link_models *m = &links->links[peer].traffic.models;
    while (*cursor < m->announced_count && m->announced[*cursor].unwanted)
        ++*cursor;
    if (*cursor >= m->announced_count) return false;
    *key_out = m->announced[*cursor].key;
    *bytes_out = m->announced[*cursor].bytes;
    ++*cursor;
    return true;
}

uint64_t tb_links_landed_bytes(const struct tb_links *ls, const struct tb_id *uid)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        for (const struct tb_link_in *in = ls->links[i].traffic.ins; in != NULL; in = in->next) {
            if (!tb_id_equal(&in->key.uid, uid)) continue;
            bytes += atomic_load_explicit(&in->share->received_bytes, memory_order_relaxed);
        }
    }
    return bytes;
}

enum tb_status tb_links_sent(const struct tb_links *ls, const struct tb_id *uid, struct tb_sent_sum *sent_out)
{
    const struct tb_offer *o = ls->offers;
    while (o != NULL && !tb_id_equal(&o->key.uid, uid))
        o = o->next;
    if (o == NULL) return TB_NOT_FOUND;
    tb_sent_look(o->share->sent, sent_out);
    return TB_OK;
}

enum tb_status tb_links_peer_progress(const struct tb_links *ls, uint32_t peer, const struct tb_id *uid,
                                      struct tb_links_progress *progress_out)
{
    const struct tb_offer *o = ls->offers;
    TB_ASSERT(peer < ls->options.peer_count);
    while (o != NULL && !tb_id_equal(&o->key.uid, uid))
        o = o->next;
    if (o == NULL) return TB_NOT_FOUND;
    const struct tb_offer_peer *p = &o->peers[peer];
    *progress_out =
        (struct tb_links_progress){.chunks = o->chunks, .held_chunks = p->held_chunks, .whole = p->whole};
    for (const struct tb_link_out *out = ls->links[peer].traffic.crossings.outs; out != NULL;
         out = out->next) {
        if (out->offer != o) continue;
        progress_out->crossing = true;
        progress_out->begun_for = tb_time_since(out->began_at, tb_clock_now());
    }
    return TB_OK;
}

void tb_links_choice(const struct tb_links *links, uint32_t peer, struct tb_choice *choice_out)
{
    TB_ASSERT(peer < links->options.peer_count);
    tb_feed_choice(links->links[peer].traffic.feed, choice_out);
}

/* The peer draws that model, or did before it went away. It may come back while deltas still lead
 * from the version that it has. */
static bool draws(const struct tb_link *l, const struct tb_name *model)
{
    return l->identity.kind != TB_IDENTITY_NONE && tb_link_granted(l, model) &&
           (tb_link_is_up(l) ||
            l->traffic.models.missed < TB_CODEC_CHAINED_MAX * l->traffic.models.granted_count);
}

unsigned tb_links_classes(const struct tb_links *links, const struct tb_name *model,
                          const struct tb_choice_pace *pace)
{
    static struct tb_choice choice; /* large; the main loop's alone */
    unsigned most = 0;
    for (uint32_t i = 0; i < links->options.peer_count; i++) {
        struct tb_link *l = &links->links[i];
        if (!draws(l, model)) continue;
        tb_feed_choice(l->traffic.feed, &choice);
        if (!tb_link_is_up(l)) choice.protocol = links->options.protocol_max; /* of no session */
        const unsigned classes = tb_choice_classes(&choice, pace);
        if (classes > most) most = classes;
    }
    return most;
}

bool tb_links_base_used(const struct tb_links *ls, const struct tb_id *uid)
{
    const struct tb_offer *o = ls->offers;
    while (o != NULL && !tb_id_equal(&o->key.uid, uid))
        o = o->next;
    for (uint32_t i = 0; o != NULL && i < ls->options.peer_count; i++)
        if (tb_link_base_used(&ls->links[i], o->share)) return true;
    return false;
}

bool tb_links_address(const struct tb_links *ls, struct tb_address *address_out)
{
    if (ls->listener == NULL) return false;
    *address_out = tb_listener_address(ls->listener);
    return true;
}

uint32_t tb_links_peer_find(const struct tb_links *links, const char *label)
{
    for (uint32_t i = 0; i < links->options.peer_count; i++)
        if (strcmp(links->links[i].label.text, label) == 0) return i;
    return UINT32_MAX;
}

const char *tb_links_why_name(enum tb_links_why why)
{
    TB_ASSERT(why <= TB_LINKS_WHY_REVOKED);
    static const char *const names[] = {
#define TB_LINKS_WHY_NAME(name, text) [name] = text,
        TB_LINKS_WHYS(TB_LINKS_WHY_NAME)
#undef TB_LINKS_WHY_NAME
    };
    return names[why];
}

bool tb_links_denied(const struct tb_links *links, uint32_t peer, const struct tb_name *model)
{
    const struct tb_name *denied = NULL;
    for (uint32_t i = 0; (denied = tb_links_denied_at(links, peer, i)) != NULL; i++)
        if (tb_name_equal(denied, model)) return true;
    return false;
}

/* The at-th of `names` that is marked. */
static const struct tb_name *marked(const struct tb_name *names, const bool *marks, uint32_t count,
                                    uint32_t at)
{
    for (uint32_t i = 0; i < count; i++)
        if (marks[i] && at-- == 0) return &names[i];
    return NULL;
}

const struct tb_name *tb_links_denied_at(const struct tb_links *links, uint32_t peer, uint32_t at)
{
    TB_ASSERT(peer < links->options.peer_count);
    const struct tb_link *l = &links->links[peer];
    return tb_link_is_up(l) ? marked(l->traffic.models.wanted, l->traffic.models.denied,
                                     l->traffic.models.wanted_count, at)
                            : NULL;
}

const struct tb_name *tb_links_refused_at(const struct tb_links *links, uint32_t peer, uint32_t at)
{
    TB_ASSERT(peer < links->options.peer_count);
    const struct tb_link *l = &links->links[peer];
    return tb_link_is_up(l) && at < l->traffic.models.refused_count ? &l->traffic.models.refused[at] : NULL;
}

const struct tb_name *tb_links_granted_at(const struct tb_links *links, uint32_t peer, uint32_t at)
{
    TB_ASSERT(peer < links->options.peer_count);
    const struct tb_link_models *m = &links->links[peer].traffic.models;
    return at < m->granted_count ? &m->granted[at].model : NULL;
}

void tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out)
{
    TB_ASSERT(peer < links->options.peer_count);
    const struct tb_link *l = &links->links[peer];
    *stats_out = l->stats;
    stats_out->queued_parcels = l->traffic.crossings.queued;
    (void)tb_feed_spent(links->links[peer].traffic.feed, &stats_out->short_bytes);
    for (const struct tb_push *p = l->traffic.pushes.expected; p != NULL; p = p->next)
        stats_out->expected++;
    tb_link_stream_stats(l, stats_out);
    for (const struct tb_link_out *o = l->traffic.crossings.outs; o != NULL; o = o->next)
        stats_out->crossings++;
    for (const struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next)
        stats_out->landings += !in->finished;
    tb_link_said_show(l, stats_out);
    tb_link_session_show(l, stats_out);
}

uint64_t tb_links_strangers_refused(const struct tb_links *links)
{
    return links->strangers;
}
