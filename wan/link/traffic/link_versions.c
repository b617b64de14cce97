/* link_versions.c - who offers what to whom: subscriptions, announcements,
 * withdrawals, wholeness, reports. */
#include "wan/link/traffic/link_versions.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/ask_table.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/link_dtypes.h"
#include "wan/link/traffic/link_expected.h"
#include "wan/link/traffic/link_manifest.h"
#include "wan/link/traffic/link_manifest_pages.h"
#include "wan/link/traffic/link_pause.h"
#include "wan/link/traffic/link_push.h"
#include "wan/link/traffic/link_signed.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/link/traffic/push_table.h"

static const struct tb_links_ops *ops_of(const struct tb_link *l)
{
    return l->links->options.ops;
}

static void *user_of(const struct tb_link *l)
{
    return l->links->options.user;
}

/* The home has its own word. One that lost it is told with RUN_TOLD. Its lanes tell each other. */
static bool is_home_of(const struct tb_link *l, const struct tb_name *model)
{
    struct tb_name home;
    if (tb_name_equal(&l->identity.site, &l->links->identity.site)) return false;
    return ops_of(l)->home_of != NULL && ops_of(l)->home_of(user_of(l), model, &home) &&
           tb_name_equal(&home, &l->identity.site);
}

void tb_link_announce(struct tb_link *l, struct tb_offer *o)
{
    struct tb_offer_peer *p = &o->peers[l->index];
    if (!tb_link_is_up(l) || p->announced == tb_link_session_seq(l) || !tb_link_granted(l, &o->key.model))
        return;
    if (!is_home_of(l, &o->key.model)) tb_link_say(l, TB_STATEMENT_VERSION, &o->key.model, &o->key.uid);
    if (!is_home_of(l, &o->key.model)) tb_link_say_shards(l, &o->key);
    const bool pushed = tb_link_may_read(l, o) && tb_link_push(l, o);
    p->announced = tb_link_session_seq(l);
    tb_link_send_version(l, &o->key, o->bytes, TB_FRAME_VERSION_READY);
    if (pushed) tb_link_serve(l, o, false);
}

static bool subscribe_one(struct tb_link *l, struct tb_wire *wire, const struct tb_name *model)
{
    struct tb_frame_subscribe m = {.model = *model};
    if (ops_of(l)->home_of != NULL) (void)ops_of(l)->home_of(user_of(l), model, &m.home);
    struct tb_writer *w = tb_wire_begin(wire, TB_FRAME_SUBSCRIBE, 0, LINK_SMALL);
    if (w == NULL) return false;
    tb_frame_subscribe_encode(&m, w);
    tb_wire_end(wire);
    return true;
}

void tb_link_subscribe(struct tb_link *l, struct tb_wire *wire)
{
    const struct tb_link_models *m = &l->traffic.models;
    bool written = true;
    for (uint32_t i = 0; i < m->wanted_count && written; i++)
        if (!m->left[i]) written = subscribe_one(l, wire, &m->wanted[i]);
}

void tb_link_subscribe_to(struct tb_link *l, const struct tb_name *model)
{
    if (tb_link_is_up(l)) (void)subscribe_one(l, tb_link_control(l)->wire, model);
}

void tb_link_versions_up(struct tb_link *l)
{
    tb_link_granted_clear(l);
    l->traffic.models.refused_count = 0;
    memset(l->traffic.models.denied, 0, sizeof l->traffic.models.denied);
    l->traffic.models.missed = 0;
    for (struct tb_offer *o = l->links->offers; o != NULL; o = o->next) { /* it says again what it holds */
        o->peers[l->index].whole = false;
        o->peers[l->index].held_chunks = 0;
    }
}

void tb_link_versions_down(struct tb_link *l)
{
    l->traffic.models.announced_count = 0;
    tb_link_pushes_down(l);
    tb_link_asks_rewind(l);
    tb_link_serves_drop(l, NULL);
}

/* P8: denied unless the daemon says yes. */
static bool may_read(const struct tb_link *l, const struct tb_frame_subscribe *m)
{
    return ops_of(l)->may_read != NULL && ops_of(l)->may_read(user_of(l), l->index, &m->model, &m->home);
}

static void grant(struct tb_link *l, const struct tb_name *model)
{
    struct tb_links *ls = l->links;
    tb_link_granted_put(l, model);
    tb_links_table_took(ls, TB_LINKS_TABLE_GRANTED, l->traffic.models.granted_count);
    tb_link_pause_granted(l, model);
    for (uint32_t i = 0; i < ls->withdrawn_count; i++)
        if (tb_name_equal(&ls->withdrawn[i].model, model)) tb_link_tell_withdrawn(l, &ls->withdrawn[i]);
    for (struct tb_offer *o = ls->offers; o != NULL; o = o->next)
        if (tb_name_equal(&o->key.model, model)) tb_link_announce(l, o);
    if (ops_of(l)->on_granted != NULL) ops_of(l)->on_granted(user_of(l), l->index, model);
}

/* A peer that names models without end has the first of them remembered. */
static void remember_refused(struct tb_link *l, const struct tb_name *model, const struct tb_name *home)
{
    struct tb_link_models *m = &l->traffic.models;
    uint32_t at = 0;
    while (at < m->refused_count && !tb_name_equal(&m->refused[at], model))
        at++;
    if (at == TB_LINKS_REFUSED_MAX) return;
    if (at == m->refused_count) m->refused_count++;
    m->refused[at] = *model;
    m->refused_home[at] = home != NULL ? *home : (struct tb_name){.text = ""};
}

void tb_link_refuse(struct tb_link *l, const struct tb_name *model, const struct tb_name *home)
{
    l->stats.refused++;
    remember_refused(l, model, home);
    LINK_SEND(l, TB_FRAME_DENIED, tb_frame_denied, LINK_SMALL, .model = *model);
}

void tb_link_subscribed(struct tb_link *l, const struct tb_name *model, const struct tb_name *home)
{
    const struct tb_frame_subscribe m = {.model = *model, .home = *home};
    if (may_read(l, &m))
        grant(l, model);
    else
        tb_link_refuse(l, model, home);
}

enum tb_status tb_link_on_subscribe(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_subscribe m;
    enum tb_status status = tb_frame_subscribe_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (tb_link_granted(l, &m.model)) { /* it was not wanted for a while, and may have forgotten it */
        tb_link_pause_granted(l, &m.model);
        return TB_OK;
    }
    status = tb_link_granted_room(l);
    if (status == TB_OK)
        tb_link_subscribed(l, &m.model, &m.home);
    else if (status == TB_TOO_LARGE)
        tb_link_refuse(l, &m.model,
                       &m.home); /* models come and go in a long session: no fault of the peer's */
    return status == TB_TOO_LARGE ? TB_OK : status;
}

enum tb_status tb_link_on_denied(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_denied m;
    const enum tb_status status = tb_frame_denied_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    for (uint32_t i = 0; i < l->traffic.models.wanted_count; i++)
        if (tb_name_equal(&l->traffic.models.wanted[i], &m.model)) l->traffic.models.denied[i] = true;
    tb_log(TB_LOG_WARN, "link.denied", "peer=%s model=%s by=peer", l->label.text, m.model.text);
    l->stats.refused++;
    return TB_OK;
}

/* Room for one more; the table is bounded, and grows with what the peer really announced. */
static enum tb_status announced_room(struct tb_link *l)
{
    if (l->traffic.models.announced_count < l->traffic.models.announced_cap) return TB_OK;
    if (l->traffic.models.announced_cap >= TB_LINKS_OFFERS_MAX) {
        tb_links_table_refused(l->links, TB_LINKS_TABLE_ANNOUNCED, l);
        return TB_PEER_GARBLED;
    }
    const uint32_t cap = l->traffic.models.announced_cap == 0 ? 16 : l->traffic.models.announced_cap * 2;
    struct tb_announced *more = tb_realloc(l->traffic.models.announced, cap * sizeof *more);
    if (more == NULL) return TB_SITE_NOMEM;
    l->traffic.models.announced = more;
    l->traffic.models.announced_cap = cap;
    return TB_OK;
}

/* The peer said that we may not read it, and now it may be read. */
static void denied_no_more(struct tb_link *l, const struct tb_name *model)
{
    for (uint32_t i = 0; i < l->traffic.models.wanted_count; i++)
        if (tb_name_equal(&l->traffic.models.wanted[i], model)) l->traffic.models.denied[i] = false;
}

static void tell_whole(struct tb_link *l, struct tb_offer *o)
{
    struct tb_offer_peer *p = &o->peers[l->index];
    if (!o->whole || p->told_whole == tb_link_session_seq(l) || tb_link_announced(l, &o->key.uid) == NULL)
        return;
    p->told_whole = tb_link_session_seq(l);
    LINK_SEND(l, TB_FRAME_WHOLE, tb_frame_whole, LINK_SMALL, .uid = o->key.uid);
    tb_link_expect(l, o);
}

/* Wanted or not. */
static struct tb_announced *announced_find(struct tb_link_models *m, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < m->announced_count; i++)
        if (tb_id_equal(&m->announced[i].key.uid, uid)) return &m->announced[i];
    return NULL;
}

static enum tb_status version_ready(struct tb_link *l, const struct tb_frame_version *m, bool wanted)
{
    const struct tb_digest zero = {{0}};
    if (tb_digest_equal(&m->key.root, &zero) || announced_find(&l->traffic.models, &m->key.uid) != NULL)
        return TB_PEER_GARBLED;
    const enum tb_status status = announced_room(l);
    if (status != TB_OK) return status;
    TB_ASSERT(l->traffic.models.announced_count < l->traffic.models.announced_cap);
    l->traffic.models.announced[l->traffic.models.announced_count++] =
        (struct tb_announced){m->key, m->bytes, !wanted};
    tb_links_table_took(l->links, TB_LINKS_TABLE_ANNOUNCED, l->traffic.models.announced_count);
    if (!wanted) {
        tb_link_push_unwanted(l, &m->key.uid);
        return TB_OK;
    }
    const enum tb_status pushed = tb_link_is_pushed(l, &m->key.uid) ? tb_link_ask_pushed(l, &m->key) : TB_OK;
    if (pushed != TB_OK) tb_link_push_too_much(l, &m->key.uid);
    struct tb_offer *o = tb_offer_find(l->links, &m->key.uid);
    if (o != NULL) tell_whole(l, o);
    tb_link_asks_send(l);
    return TB_OK;
}

enum tb_status tb_link_on_version(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_version m;
    enum tb_status status = tb_frame_version_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    const bool wanted = tb_link_wants(l, &m.key.model);
    if (!wanted && !l->traffic.models.renamed) return TB_PEER_GARBLED; /* it never was */
    const bool withdrawn = m.state == TB_FRAME_VERSION_WITHDRAWN;
    denied_no_more(l, &m.key.model);
    if (!withdrawn && m.state != TB_FRAME_VERSION_READY) return TB_PEER_GARBLED;
    if (!withdrawn) status = version_ready(l, &m, wanted);
    if (status != TB_OK || !wanted) return status;
    tb_links_busy(l->links);
    if (ops_of(l)->on_version != NULL)
        ops_of(l)->on_version(user_of(l), l->index, &m.key, m.bytes,
                              withdrawn ? TB_LINKS_WITHDRAWN : TB_LINKS_READY, TB_OK);
    return TB_OK;
}

enum tb_status tb_link_on_gone(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_gone m;
    const enum tb_status status = tb_frame_gone_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    const enum tb_status why = tb_frame_status_of(m.status_negated);
    struct tb_announced *a = announced_find(&l->traffic.models, &m.uid);
    if (a != NULL && a->unwanted) {
        if (tb_status_scope(why) != TB_SCOPE_SITE)
            *a = l->traffic.models.announced[--l->traffic.models.announced_count];
        return TB_OK;
    }
    if (a == NULL) { /* it only said that it holds it; or our question and its farewell crossed */
        if (tb_status_scope(why) == TB_SCOPE_SITE) return TB_OK;
        tb_link_peer_dropped(l, &m.uid);
        if (ops_of(l)->on_peer_dropped != NULL) ops_of(l)->on_peer_dropped(user_of(l), l->index, &m.uid);
        return TB_OK;
    }
    if (tb_status_scope(why) == TB_SCOPE_SITE) { /* not now: it is still announced */
        tb_link_ask_fail(l, &m.uid, why);
        tb_link_in_fail(l, &m.uid, why);
        return TB_OK;
    }
    const struct tb_announced was = *a;
    tb_link_peer_dropped(l, &m.uid);
    tb_link_push_gone(l, &m.uid);
    TB_ASSERT(l->traffic.models.announced_count > 0 && a >= l->traffic.models.announced);
    l->traffic.models.announced[a - l->traffic.models.announced] =
        l->traffic.models.announced[--l->traffic.models.announced_count];
    const uint64_t session = tb_link_session_seq(l);
    tb_link_ask_fail(l, &m.uid, why);
    tb_link_in_fail(l, &m.uid, why);
    if (session == tb_link_session_seq(l) && ops_of(l)->on_version != NULL)
        ops_of(l)->on_version(user_of(l), l->index, &was.key, was.bytes, TB_LINKS_GONE, why);
    return TB_OK;
}

static bool was_refused(const struct tb_link *l, const struct tb_name *model)
{
    for (uint32_t i = 0; i < l->traffic.models.refused_count; i++)
        if (tb_name_equal(&l->traffic.models.refused[i], model)) return true;
    return false;
}

enum tb_status tb_link_on_whole(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_whole m;
    const enum tb_status status = tb_frame_whole_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    struct tb_offer *o = tb_offer_find(l->links, &m.uid);
    if (o == NULL) return TB_OK;            /* retracted meanwhile */
    if (!tb_link_granted(l, &o->key.model)) /* its right ended, and the two words crossed */
        return was_refused(l, &o->key.model) ? TB_OK : TB_PEER_GARBLED;
    tb_link_outs_drop(l, o);
    tb_link_peer_held(l, o);
    return TB_OK;
}

enum tb_status tb_link_on_report(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_report m;
    const enum tb_status status = tb_frame_report_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (m.state != TB_LINKS_REPORT_HELD && m.state != TB_LINKS_REPORT_ACTIVATED) return TB_PEER_GARBLED;
    const struct tb_links_report report = {
        .uid = m.uid, .site = m.site, .state = (enum tb_links_report_state)m.state};
    if (ops_of(l)->on_report != NULL) ops_of(l)->on_report(user_of(l), l->index, &report);
    return TB_OK;
}

void tb_link_versions_tick(struct tb_link *l)
{
    if (!tb_link_is_up(l)) return;
    tb_link_asks_send(l);
    tb_link_asks_tick(l);
    for (struct tb_offer *o = l->links->offers; o != NULL && tb_link_is_up(l); o = o->next)
        if (o->peers[l->index].told_whole != tb_link_session_seq(l)) tell_whole(l, o);
}
