/* link_landings.c - landings that we draw from the peer: asked for and begun, what is held told,
 * what came wrong asked for again. inbound.h decides. */
#include "wan/link/traffic/link_landings.h"

#include "base/allocate.h"
#include "base/layout/version_key.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_control.h"
#include "wan/link/streams/stream_table.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/link_pause.h"
#include "wan/link/traffic/link_push.h"
#include "wan/link/traffic/link_share.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/link/traffic/push_table.h"
#include "wan/link/traffic/word_frames.h"
#include "wan/send/feed.h"
#include "wan/send/feed_landings.h"
#include "wan/send/inbound.h"
#include "wan/stream/stream_copy.h"
#include "wan/stream/stream_loop.h"

static bool tell_differences(struct tb_link *l, struct tb_link_in *in, tb_time_ns now)
{
    static _Thread_local struct tb_held_word words[LINK_WORDS_MAX];
    uint32_t shard = 0, count = 0;
    bool any = false;
    while ((count = tb_inbound_differences(&in->core, &shard, words, LINK_WORDS_MAX)) > 0) {
        tb_link_send_words(l, TB_FRAME_HELD, in->crossing, shard, words, count);
        any = true;
    }
    if (any) tb_inbound_told(&in->core, now);
    return any;
}

/* The newest version that is whole here and that the peer says it serves too. Where there is none:
 * the newest older one, for the peer may have deltas that lead from there. */
static struct tb_shared_places *choose_base(const struct tb_link *l, const struct tb_link_in *in)
{
    const struct tb_offer *best = NULL;
    bool shared = false;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_BASES) return NULL;
    for (const struct tb_offer *o = l->links->offers; o != NULL; o = o->next) {
        const bool served = tb_link_announced(l, &o->key.uid) != NULL;
        if (!o->whole || tb_id_equal(&o->key.uid, &in->key.uid)) continue;
        if (!tb_name_equal(&o->key.model, &in->key.model) || (shared && !served)) continue;
        if (!served && tb_version_key_compare(&o->key, &in->key) > 0) continue;
        if (best != NULL && shared == served && tb_version_key_compare(&o->key, &best->key) < 0) continue;
        if (!tb_shared_places_layouts_meet(in->share, o->share)) continue;
        best = o;
        shared = served;
    }
    return best != NULL ? best->share : NULL;
}

static void copies_free(struct tb_stream_copy *copies)
{
    while (copies != NULL) {
        struct tb_stream_copy *copy = copies;
        copies = copy->next;
        tb_stream_copy_free(copy);
    }
}

/* One copy for each loop, or none: a part of the same chunks that nobody makes would never come. */
static struct tb_stream_copy *copies_new(const struct tb_link *l, const struct tb_link_in *in)
{
    const struct tb_links *ls = l->links;
    struct tb_stream_copy *copies = NULL;
    for (uint32_t part = 0; part < ls->loop_count; part++) {
        struct tb_stream_copy *copy = tb_malloc(sizeof *copy);
        if (copy == NULL) {
            copies_free(copies);
            return NULL;
        }
        *copy = (struct tb_stream_copy){.next = copies,
                                        .share = in->share,
                                        .base = in->base,
                                        .trust = {ls->options.ops->base_good, ls->options.user},
                                        .part = part,
                                        .parts = ls->loop_count,
                                        .chunk = part};
        tb_shared_places_ref(copy->share);
        tb_shared_places_ref(copy->base);
        copies = copy;
    }
    return copies;
}

/* Chunks that are the same in the base are copied here, by all loops. */
static void copies_begin(struct tb_link *l, const struct tb_link_in *in, struct tb_stream_copy *copies)
{
    while (copies != NULL) {
        struct tb_stream_copy *copy = copies;
        copies = copy->next;
        copy->feed = l->traffic.feed;
        copy->crossing = in->crossing;
        tb_stream_loop_copy(l->links->loops[copy->part], copy);
    }
}

static void say_want(struct tb_link *l, const struct tb_link_in *in)
{
    LINK_SEND(l, TB_FRAME_WANT, tb_frame_want, LINK_SMALL, .crossing = in->crossing, .uid = in->key.uid);
    if (in->base != NULL)
        LINK_SEND(l, TB_FRAME_BASE, tb_frame_base, LINK_SMALL, .crossing = in->crossing,
                  .uid = in->base->uid);
}

/* WANT, the base, all that is held, START. The first two were said before it was there, by EXPECT,
 * where it comes pushed. */
static void in_begin(struct tb_link *l, struct tb_link_in *in, tb_time_ns now)
{
    tb_turn_begin(&in->turn, now);
    tb_link_in_unlist(l, in);
    in->base = choose_base(l, in);
    struct tb_stream_copy *copies = in->base != NULL ? copies_new(l, in) : NULL;
    if (copies == NULL) in->base = NULL;
    const uint32_t pushed = tb_link_push_take(l, in);
    const struct tb_links_options *o = &l->links->options;
    const bool foreign = o->ops->is_foreign != NULL && o->ops->is_foreign(o->user, l->index, &in->key);
    const struct tb_feed_landing landing = {.share = in->share, .base = in->base, .foreign = foreign};
    in->crossing = tb_feed_landing_add(l->traffic.feed, pushed, &landing);
    if (in->crossing == 0) {
        if (pushed != 0) LINK_SEND(l, TB_FRAME_STOP, tb_frame_stop, LINK_SMALL, .crossing = pushed);
        if (pushed != 0) tb_links_heed(l->links);
        in->base = NULL;
        copies_free(copies);
        return;
    }
    tb_inbound_rewind(&in->core);
    if (pushed == 0) say_want(l, in);
    tb_link_share_begin(l, in, now);
    copies_begin(l, in, copies);
    (void)tell_differences(l, in, now);
    tb_inbound_told(&in->core, now);
    LINK_SEND(l, TB_FRAME_START, tb_frame_start, LINK_SMALL, .crossing = in->crossing);
    if (pushed != 0) tb_links_heed(l->links); /* what waited for it lands */
}

static void refuse(struct tb_link *l, const struct tb_link_in *in, const struct tb_inbound_chunk *chunk,
                   enum tb_refusal why)
{
    /* Held since, by another way, and told: to refuse it now would break the protocol. */
    if (!tb_link_is_up(l) || tb_inbound_knows(&in->core, chunk->shard, chunk->chunk)) return;
    LINK_SEND(l, TB_FRAME_REFUSED, tb_frame_refused, LINK_SMALL, .crossing = in->crossing,
              .shard = chunk->shard, .chunk = chunk->chunk, .why = (uint8_t)why);
}

/* P1: a chunk with a wrong digest was not landed. It is asked for again, but not for ever. */
static void take_bad(struct tb_link *l, struct tb_link_in *in, const struct tb_note *n)
{
    const struct tb_links_options *o = &l->links->options;
    const struct tb_inbound_chunk chunk = {n->shard, n->chunk};
    const struct tb_links_bad_chunk bad = {.uid = in->key.uid,
                                           .shard = n->shard,
                                           .chunk = n->chunk,
                                           .times = tb_inbound_bad(&in->core, n->shard, n->chunk)};
    const uint32_t crossing = in->crossing;
    refuse(l, in, &chunk, n->why);
    if (o->ops->on_chunk_bad != NULL) o->ops->on_chunk_bad(o->user, l->index, &bad);
    in = tb_link_in_find(l, crossing); /* the daemon may have ended it */
    if (in != NULL && bad.times >= TB_LINKS_REFUSALS_MAX) tb_link_in_end(l, in, TB_CHUNK_DIGEST);
}

/* P10: the base went, or a chunk of it failed its re-verification, which the arena has told. */
static void take_no_base(struct tb_link *l, struct tb_link_in *in, const struct tb_inbound_chunk *chunk)
{
    l->stats.chunks_no_base++;
    if (!in->no_base_told)
        tb_log(TB_LOG_WARN, "crossing.no_base", "peer=%s model=%s number=%llu by=us action=ask_whole",
               l->label.text, in->key.model.text, (unsigned long long)in->key.number);
    in->no_base_told = true;
    refuse(l, in, chunk, TB_REFUSAL_NO_BASE);
}

void tb_link_in_note(struct tb_link *l, const struct tb_note *n)
{
    const struct tb_inbound_chunk chunk = {n->shard, n->chunk};
    struct tb_link_in *in = tb_link_in_find(l, n->crossing);
    if (in == NULL) return;
    if (n->kind == TB_NOTE_BAD && n->why == TB_REFUSAL_NO_BASE)
        take_no_base(l, in, &chunk);
    else if (n->kind == TB_NOTE_BAD)
        take_bad(l, in, n);
    else if (!tb_inbound_dropped(&in->core, n->shard, n->chunk))
        refuse(l, in, &chunk, TB_REFUSAL_LOST);
}

/* P6: of a version that is paused there nothing comes. Its landing gives its place to another one,
 * and begins again with what is held; until then chunks that were on their way still land. */
static struct tb_link_in *gives_place(struct tb_link *l)
{
    struct tb_link_in *in = l->traffic.ins;
    while (in != NULL && (in->crossing == 0 || !tb_link_paused_there(l, &in->key.model)))
        in = in->next;
    return in;
}

/* A version that comes pushed has its place there already. */
static bool waits_there(const struct tb_link *l, const struct tb_link_in *in)
{
    return tb_link_paused_there(l, &in->key.model) && !tb_link_is_pushed(l, &in->key.uid);
}

/* One landing's turn. True: it ended, and the list may have changed. */
static bool in_tick(struct tb_link *l, struct tb_link_in *in, tb_time_ns now)
{
    struct tb_inbound_chunk chunk;
    if (in->finished) return false;
    const bool paused = tb_link_is_paused(l, &in->key.model);
    if (paused && in->crossing != 0) tb_link_in_stop(l, in); /* what is held stays */
    if (in->crossing == 0) {
        if (tb_link_in_all_held(in)) { /* by another way */
            tb_link_in_end(l, in, TB_OK);
            return true;
        }
        if (paused || waits_there(l, in)) return false;
        /* After a cut, what the old streams still bring is told first: it is not sent again
         * (P5). */
        if (!tb_link_is_up(l) || tb_link_streams_old(l) || tb_link_announced(l, &in->key.uid) == NULL)
            return false;
        /* its turn comes when one is over */
        struct tb_link_in *full = tb_link_in_crossings(l) >= TB_LINKS_LANDINGS_MAX ? gives_place(l) : NULL;
        if (full == NULL && tb_link_in_crossings(l) >= TB_LINKS_LANDINGS_MAX) return false;
        if (!tb_link_may_begin(l, in) && !tb_link_take_turn(l, in, now)) return false;
        if (full != NULL) tb_link_in_stop(l, full);
        in_begin(l, in, now);
        if (in->crossing == 0) return false;
    }
    while (tb_inbound_again(&in->core, &chunk))
        refuse(l, in, &chunk, TB_REFUSAL_LOST);
    if (tb_inbound_due(&in->core, now)) (void)tell_differences(l, in, now);
    tb_turn_came(&in->turn, in->core.told_count + atomic_load(&in->share->received_bytes), now);
    if (in->core.lost) { /* a held chunk failed a re-verification: what was told is not true any more */
        tb_link_in_stop(l, in);
        return false;
    }
    if (!tb_inbound_whole(&in->core)) return false;
    tb_link_in_end(l, in, TB_OK);
    return true;
}

void tb_link_ins_tick(struct tb_link *l, tb_time_ns now)
{
    struct tb_link_in *in = l->traffic.ins;
    while (in != NULL)
        in = in_tick(l, in, now) ? l->traffic.ins : in->next;
}

void tb_link_tell_held(struct tb_link *l, tb_time_ns now)
{
    for (struct tb_link_in *in = l->traffic.ins; in != NULL && tb_link_is_up(l); in = in->next)
        if (in->crossing != 0) (void)tell_differences(l, in, now);
}
