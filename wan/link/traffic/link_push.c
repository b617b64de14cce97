/* link_push.c - versions that are sent before they are asked for: two round trips sooner.
 *
 * The receiver says when. EXPECT names a version that is whole here, and a crossing for the next
 * version of its model. The sender uses the crossing up by PUSH, ahead of VERSION, with the
 * manifests and the first chunks behind it. The next WANT of the model ends an EXPECT that was not
 * used.
 *
 * A pushed version lands like one that was asked for, where the daemon takes it and its base is
 * the one that was named. Else STOP goes within options.push_ms of its manifests, and the version
 * goes when it is asked for.
 *
 * Until then streams wait with its chunks (stream_receive.c), and other models behind them. So a
 * version whose manifests take long is not pushed. A model whose version was not taken in time is
 * not expected for a while. */
#include "wan/link/traffic/link_push.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/ask_table.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/link_pause.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/link/traffic/push_table.h"
#include "wan/send/feed_landings.h"

/* ---- receiving ---- */

/* A version of this model that was too long in coming once will be so again: each time every
 * stream stands still, and its bytes go in vain. */
static bool rests(struct tb_link *l, const struct tb_name *model)
{
    struct tb_push **at = tb_push_find_model(&l->traffic.pushes.resting, model);
    if (*at == NULL) return false;
    if (tb_time_since((*at)->began, tb_clock_now()) < TB_MS(l->links->options.push_rest_ms)) return true;
    tb_free(tb_push_take_out(at));
    return false;
}

static void rest(struct tb_link *l, struct tb_push *p)
{
    struct tb_push **before = tb_push_find_model(&l->traffic.pushes.resting, &p->model);
    if (*before != NULL) tb_free(tb_push_take_out(before));
    p->began = tb_clock_now();
    p->next = l->traffic.pushes.resting;
    l->traffic.pushes.resting = p; /* as many as models are wanted */
}

/* A newer version is announced, and is asked for; or is here. P5: a peer that lost the newer one
 * may take it for the next one. */
static bool is_behind(const struct tb_link *l, const struct tb_offer *newest)
{
    for (uint32_t i = 0; i < l->traffic.models.announced_count; i++)
        if (tb_push_is_newer(&l->traffic.models.announced[i].key, &newest->key)) return true;
    for (const struct tb_offer *o = l->links->offers; o != NULL; o = o->next)
        if (tb_push_is_newer(&o->key, &newest->key)) return true;
    return false;
}

/* Another version of the model is on its way: it goes first. P5: the holding of one that was cut
 * off is not known to the pusher. */
static bool lands_another(const struct tb_link *l, const struct tb_offer *whole)
{
    for (const struct tb_link_in *in = l->traffic.ins; in != NULL; in = in->next) {
        if (in->finished || tb_id_equal(&in->key.uid, &whole->key.uid)) continue;
        if (tb_name_equal(&in->key.model, &whole->key.model)) return true;
    }
    return false;
}

static void expect_no_more(struct tb_link *l, struct tb_push **at)
{
    struct tb_push *p = tb_push_take_out(at);
    tb_feed_unexpect(l->traffic.feed, p->crossing);
    tb_free(p);
    tb_links_heed(l->links); /* what waits for it is dropped */
}

void tb_link_expect(struct tb_link *l, const struct tb_offer *o)
{
    const struct tb_links_options *options = &l->links->options;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_PUSH || options->ops->expects == NULL) return;
    if (!options->ops->expects(options->user, l->index, &o->key.model)) return;
    if (tb_link_is_paused(l, &o->key.model)) return;
    if (rests(l, &o->key.model) || is_behind(l, o) || lands_another(l, o)) return;
    struct tb_push **before = tb_push_find_model(&l->traffic.pushes.expecting, &o->key.model);
    if (*before != NULL) expect_no_more(l, before); /* there, too, one takes the other's place */
    struct tb_push *p = tb_calloc(1, sizeof *p);
    if (p == NULL) return; /* the next version is asked for */
    *p = (struct tb_push){.next = l->traffic.pushes.expecting, .model = o->key.model, .base = o->key.uid};
    p->crossing = tb_feed_expect(l->traffic.feed);
    if (p->crossing == 0) {
        tb_free(p);
        return;
    }
    l->traffic.pushes.expecting = p;
    l->traffic.pushes.given[l->traffic.pushes.given_at++ % LINK_GIVEN_MAX] = p->crossing;
    LINK_SEND(l, TB_FRAME_EXPECT, tb_frame_expect, LINK_SMALL, .crossing = p->crossing, .model = p->model,
              .base = p->base);
}

/* A PUSH that is on its way is answered by STOP. */
void tb_link_expect_paused(struct tb_link *l)
{
    struct tb_push **at = &l->traffic.pushes.expecting;
    while (*at != NULL) {
        if (tb_link_is_paused(l, &(*at)->model))
            expect_no_more(l, at);
        else
            at = &(*at)->next;
    }
}

/* P7: each number that EXPECT gave out serves once. A peer that names another number would make us
 * keep rows that nobody expects. */
static bool was_given(struct tb_link *l, uint32_t crossing)
{
    for (uint32_t i = 0; i < LINK_GIVEN_MAX; i++) {
        if (l->traffic.pushes.given[i] != crossing) continue;
        l->traffic.pushes.given[i] = 0;
        return true;
    }
    return false;
}

enum tb_status tb_link_on_push(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_push m;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_PUSH) return TB_PEER_GARBLED;
    const enum tb_status status = tb_frame_push_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (m.crossing == 0 || !was_given(l, m.crossing)) return TB_PEER_GARBLED;
    if (tb_link_announced(l, &m.uid) != NULL || *tb_push_find_uid(&l->traffic.pushes.pushed, &m.uid) != NULL)
        return TB_PEER_GARBLED;
    struct tb_push **at = &l->traffic.pushes.expecting;
    while (*at != NULL && (*at)->crossing != m.crossing)
        at = &(*at)->next;
    if (*at == NULL) { /* it ended while PUSH was on its way; manifests that follow are skipped */
        LINK_SEND(l, TB_FRAME_STOP, tb_frame_stop, LINK_SMALL, .crossing = m.crossing);
        return TB_OK;
    }
    struct tb_push *p = tb_push_take_out(at);
    TB_ASSERT(p->crossing == m.crossing && tb_id_is_zero(&p->uid));
    p->uid = m.uid;
    p->began = p->came = tb_clock_now();
    p->next = l->traffic.pushes.pushed;
    l->traffic.pushes.pushed = p;
    tb_links_busy(l->links);
    return TB_OK;
}

/* P10 */
static void decline(struct tb_link *l, struct tb_push **at, const char *why)
{
    const struct tb_push p = **at;
    const struct tb_announced *a = tb_link_announced(l, &p.uid);
    expect_no_more(l, at);
    tb_link_ask_declined(l, &p.uid);
    l->stats.pushes_declined++;
    tb_log(TB_LOG_INFO, "push.declined", "peer=%s model=%s number=%llu why=%s action=ask", l->label.text,
           p.model.text, (unsigned long long)(a != NULL ? a->key.number : 0), why);
    LINK_SEND(l, TB_FRAME_STOP, tb_frame_stop, LINK_SMALL, .crossing = p.crossing);
}

uint32_t tb_link_push_take(struct tb_link *l, const struct tb_link_in *in)
{
    struct tb_push **at = tb_push_find_uid(&l->traffic.pushes.pushed, &in->key.uid);
    struct tb_push **expecting = tb_push_find_model(&l->traffic.pushes.expecting, &in->key.model);
    if (*at == NULL) { /* WANT ends what was expected, there too */
        if (*expecting != NULL) expect_no_more(l, expecting);
        return 0;
    }
    if (in->base == NULL || !tb_id_equal(&in->base->uid, &(*at)->base)) {
        decline(l, at, "another_base");
        return 0;
    }
    struct tb_push *p = tb_push_take_out(at);
    TB_ASSERT(p->crossing != 0);
    const uint32_t crossing = p->crossing;
    tb_free(p);
    l->stats.pushed++;
    return crossing;
}

static bool is_late(const struct tb_link *l, const struct tb_push *p, tb_time_ns now)
{
    const struct tb_links_options *o = &l->links->options;
    return tb_time_since(p->came, now) >= TB_MS(o->push_ms) ||
           tb_time_since(p->began, now) >= TB_MS(o->push_most_ms);
}

/* The model rests from then on: without memory for that it may be late again. */
static void decline_and_rest(struct tb_link *l, struct tb_push **at, const char *why)
{
    struct tb_push *p = tb_calloc(1, sizeof *p);
    if (p != NULL) {
        p->model = (*at)->model;
        rest(l, p);
    }
    decline(l, at, why);
}

void tb_link_pushes_tick(struct tb_link *l, tb_time_ns now)
{
    struct tb_push **at = &l->traffic.pushes.pushed;
    while (*at != NULL) {
        if (is_late(l, *at, now))
            decline_and_rest(l, at, "not_taken_in_time");
        else
            at = &(*at)->next;
    }
}

void tb_link_push_gone(struct tb_link *l, const struct tb_id *uid)
{
    struct tb_push **at = tb_push_find_uid(&l->traffic.pushes.pushed, uid);
    if (*at != NULL) decline(l, at, "gone_there");
}

void tb_link_push_unwanted(struct tb_link *l, const struct tb_id *uid)
{
    struct tb_push **at = tb_push_find_uid(&l->traffic.pushes.pushed, uid);
    if (*at != NULL) decline(l, at, "not_wanted");
}

void tb_link_push_too_much(struct tb_link *l, const struct tb_id *uid)
{
    struct tb_push **at = tb_push_find_uid(&l->traffic.pushes.pushed, uid);
    if (*at != NULL) decline_and_rest(l, at, "manifests_too_large");
}
