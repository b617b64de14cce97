/* link_share.c - one version from several peers at once: TAKE says what each is to send, HAVE what
 * it holds. source_division.h decides; this speaks to the peers. A peer whose protocol has no TAKE
 * sends alone, in its turn (sender_turn.h). */
#include "wan/link/traffic/link_share.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/stream_table.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/word_frames.h"
#include "wan/send/feed_landings.h"

/* ---- landing ---- */

static struct tb_division *division_find(struct tb_links *ls, const struct tb_id *uid)
{
    struct tb_division *v = ls->divisions;
    while (v != NULL && !tb_id_equal(&v->uid, uid))
        v = v->next;
    return v;
}

/* Where this site begins: spread over sites by their names. */
static uint16_t start_of(const struct tb_name *site)
{
    const struct tb_digest d = tb_digest_of(site->text, strlen(site->text));
    return (uint16_t)(d.bytes[0] | d.bytes[1] << 8);
}

static struct tb_division *division_new(struct tb_links *ls, const struct tb_link_in *in)
{
    const uint32_t shards = in->key.shard_count;
    struct tb_division *v = tb_calloc(1, sizeof *v);
    if (v == NULL) return NULL;
    v->memory = tb_malloc(tb_divide_bytes_for(in->share->places, shards));
    v->places = tb_calloc(shards, sizeof *v->places);
    if (v->memory == NULL || v->places == NULL) {
        tb_free(v->memory);
        tb_free(v->places);
        tb_free(v);
        return NULL;
    }
    memcpy(v->places, in->share->places, shards * sizeof *v->places);
    v->uid = in->key.uid;
    tb_divide_init(&v->core, v->places, shards, start_of(&ls->options.site), v->memory);
    tb_divide_lane(&v->core, ls->options.lane, ls->options.lane_count);
    v->next = ls->divisions;
    ls->divisions = v;
    return v;
}

void tb_links_share_end(struct tb_links *ls, const struct tb_id *uid)
{
    struct tb_division **at = &ls->divisions;
    while (*at != NULL) {
        struct tb_division *v = *at;
        if (uid != NULL && !tb_id_equal(&v->uid, uid)) {
            at = &v->next;
            continue;
        }
        *at = v->next;
        tb_free(v->memory);
        tb_free(v->places);
        tb_free(v);
    }
}

static uint32_t source_of(const struct tb_division *v, const struct tb_link *l)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
        if (v->members[i].link == l) return i;
    return TB_DIVIDE_NONE;
}

/* Says to the peer that it sends nothing but what it is told: the first shard that has
 * chunks, and none of them. */
static void take_nothing(struct tb_link *l, const struct tb_link_in *in)
{
    TB_ASSERT(in->crossing != 0);
    const struct tb_held_word none = {0, 0};
    for (uint32_t s = 0; s < in->key.shard_count; s++) {
        if (in->share->places[s].manifest->chunk_count == 0) continue;
        tb_link_send_words(l, TB_FRAME_TAKE, in->crossing, s, &none, 1);
        return;
    }
}

static void join(struct tb_division *v, struct tb_link *l, const struct tb_link_in *in, tb_time_ns now)
{
    TB_ASSERT(source_of(v, l) == TB_DIVIDE_NONE && in->crossing != 0); /* a link is one source */
    const uint32_t source = tb_divide_join(&v->core, now);
    if (source == TB_DIVIDE_NONE) return; /* it sends what it wants: some of it comes twice */
    if (tb_name_equal(&l->identity.site, &l->links->options.site)) tb_divide_near(&v->core, source);
    v->members[source].link = l;
    v->members[source].again_bytes = 0;
    v->members[source].crossing = in->crossing;
    take_nothing(l, in);
    tb_log(TB_LOG_INFO, "crossing.shared", "peer=%s model=%s number=%llu sources=%u", l->label.text,
           in->key.model.text, (unsigned long long)in->key.number, tb_divide_count(&v->core));
}

static bool shares(const struct tb_link *l)
{
    return tb_link_protocol(l) >= TB_LINK_PROTOCOL_SHARED;
}

/* Another link on which this version is under way. */
static struct tb_link *other_link(struct tb_links *ls, const struct tb_link *l, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct tb_link *other = &ls->links[i];
        const struct tb_link_in *in = other != l && tb_link_is_up(other) ? tb_link_in_of(other, uid) : NULL;
        if (in != NULL && in->crossing != 0) return other;
    }
    return NULL;
}

bool tb_link_may_begin(const struct tb_link *l, const struct tb_link_in *in)
{
    const struct tb_link *other = other_link(l->links, l, &in->key.uid);
    return other == NULL || (shares(other) && shares(l));
}

/* P6: one that sends and brings nothing, or one that waits longer than `in`. */
static bool comes_before(const struct tb_link *other, const struct tb_link_in *theirs,
                         const struct tb_link_in *in, tb_time_ns now)
{
    if (theirs->crossing != 0) return !tb_turn_over(&theirs->turn, other->stats.rtt, now);
    return !theirs->finished && !tb_link_streams_old(other) &&
           tb_link_announced(other, &theirs->key.uid) != NULL && tb_turn_before(&theirs->turn, &in->turn);
}

bool tb_link_take_turn(struct tb_link *l, const struct tb_link_in *in, tb_time_ns now)
{
    struct tb_links *ls = l->links;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct tb_link *other = &ls->links[i];
        const struct tb_link_in *theirs =
            other != l && tb_link_is_up(other) ? tb_link_in_of(other, &in->key.uid) : NULL;
        if (theirs != NULL && comes_before(other, theirs, in, now)) return false;
    }
    for (struct tb_link *other; (other = other_link(ls, l, &in->key.uid)) != NULL;) {
        tb_log(TB_LOG_INFO, "crossing.turn", "peer=%s model=%s number=%llu after=%s", l->label.text,
               in->key.model.text, (unsigned long long)in->key.number, other->label.text);
        tb_link_in_stop(other, tb_link_in_of(other, &in->key.uid));
    }
    return true;
}

void tb_link_share_begin(struct tb_link *l, struct tb_link_in *in, tb_time_ns now)
{
    TB_ASSERT(in->crossing != 0);
    struct tb_links *ls = l->links;
    struct tb_link *other = other_link(ls, l, &in->key.uid);
    struct tb_division *v = division_find(ls, &in->key.uid);
    /* A peer that cannot share sends alone. One of several lanes has a share of its own, also
     * while the others are not there. */
    if (!shares(l) || (v == NULL && other == NULL && ls->options.lane_count == 1)) return;
    if (v == NULL) v = division_new(ls, in);
    if (v == NULL) return;
    if (other != NULL && source_of(v, other) == TB_DIVIDE_NONE)
        join(v, other, tb_link_in_of(other, &in->key.uid), now);
    if (source_of(v, l) != TB_DIVIDE_NONE) { /* of a crossing before this one */
        tb_divide_leave(&v->core, source_of(v, l));
        v->members[source_of(v, l)].link = NULL;
    }
    join(v, l, in, now);
}

static void count_again(struct tb_division *v, uint32_t source)
{
    const uint64_t bytes = v->core.sources[source].again_bytes;
    TB_ASSERT(bytes >= v->members[source].again_bytes);
    v->members[source].link->stats.bytes_again += bytes - v->members[source].again_bytes;
    v->members[source].again_bytes = bytes;
}

static void tell_news(struct tb_division *v, uint32_t source)
{
    TB_ASSERT(source < TB_DIVIDE_SOURCES_MAX && v->members[source].link != NULL);
    static _Thread_local struct tb_held_word words[LINK_WORDS_MAX];
    struct tb_link *l = v->members[source].link;
    for (uint32_t shard = 0, count;
         (count = tb_divide_news(&v->core, source, &shard, words, LINK_WORDS_MAX)) > 0;)
        tb_link_send_words(l, TB_FRAME_TAKE, v->members[source].crossing, shard, words, count);
}

/* Counts the bytes that the members' streams brought. A member whose crossing is over, or is
 * another one by now, leaves. */
static void see_who_left(struct tb_division *v, tb_time_ns now)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        struct tb_link *l = v->members[i].link;
        if (l == NULL) continue;
        const struct tb_link_in *in = tb_link_is_up(l) ? tb_link_in_of(l, &v->uid) : NULL;
        tb_divide_rtt(&v->core, i, l->stats.rtt);
        tb_divide_heard(&v->core, i, tb_link_heard_at(l));
        if (in != NULL)
            tb_divide_received(&v->core, i,
                               atomic_load_explicit(&in->share->received_bytes, memory_order_relaxed), now);
        if (in != NULL && in->crossing == v->members[i].crossing) continue;
        tb_divide_leave(&v->core, i);
        v->members[i].link = NULL;
    }
}

void tb_links_share_tick(struct tb_links *ls, tb_time_ns now)
{
    for (struct tb_division *v = ls->divisions; v != NULL; v = v->next) {
        see_who_left(v, now);
        if (tb_divide_count(&v->core) == 0) continue;
        tb_divide_step(&v->core, now);
        for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++)
            if (v->members[i].link != NULL) {
                count_again(v, i);
                tell_news(v, i);
            }
    }
}

enum tb_status tb_link_on_have(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_have m;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_SHARED) return TB_PEER_GARBLED;
    enum tb_status status = tb_frame_have_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    for (struct tb_division *v = l->links->divisions; v != NULL; v = v->next) {
        const uint32_t source = source_of(v, l);
        if (source == TB_DIVIDE_NONE || v->members[source].crossing != m.crossing) continue;
        status = tb_divide_has(&v->core, source, m.shard, &m.words);
        tb_links_busy(l->links);
        return status;
    }
    /* It may be one that is over. */
    return tb_feed_landing_issued(l->traffic.feed, m.crossing) ? TB_OK : TB_PEER_GARBLED;
}
