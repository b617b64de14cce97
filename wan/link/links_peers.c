/* links_peers.c - see links_peers.h. */
#include "wan/link/links_peers.h"

#include "base/assert.h"
#include "base/clock.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/path/link_dial.h"
#include "wan/link/path/link_path.h"
#include "wan/link/session/link_admission.h"
#include "wan/link/session/link_conn.h"
#include "wan/link/session/link_control.h"
#include "wan/link/session/link_heartbeat.h"
#include "wan/link/session/link_session_life.h"
#include "wan/link/traffic/link_rights.h"
#include "wan/link/traffic/link_traffic.h"
#include "wan/link/traffic/offer_table.h"

/* ---- a link begins, and is freed ---- */

enum tb_status tb_link_init(struct tb_links *ls, struct tb_link *l, const struct tb_links_peer_options *p)
{
    l->links = ls;
    l->index = (uint32_t)(l - ls->links);
    TB_ASSERT(l->index < ls->peer_room);
    if (!p->gone)
        l->identity = (struct tb_identity){.kind = TB_IDENTITY_GATEWAY, .site = p->site, .name = p->gateway};
    if (!p->gone) l->label = p->label.text[0] != '\0' ? p->label : p->site;
    tb_link_path_init(l, p);
    tb_link_control_init(l, p->lane);
    if (p->gone) tb_link_up_stop(l);
    return tb_link_traffic_init(l, p);
}

void tb_link_fini(struct tb_link *l)
{
    tb_link_forget_resolving(l);
    tb_link_traffic_fini(l);
}

/* ---- peers come and go ---- */

uint32_t tb_links_peer_count(const struct tb_links *links)
{
    return links->options.peer_count;
}

enum tb_status tb_links_peer_add(struct tb_links *ls, const struct tb_links_peer_options *peer,
                                 char error_out[256])
{
    error_out[0] = '\0';
    if (ls->options.peer_count == ls->peer_room) return TB_TOO_LARGE;
    enum tb_status status = tb_links_peer_check(&ls->options, peer, error_out);
    if (status != TB_OK) return status;
    struct tb_link *l = &ls->links[ls->options.peer_count];
    TB_ASSERT(!ls->closing && l->links == NULL); /* a row of none before */
    status = tb_link_init(ls, l, peer);
    if (status == TB_OK)
        ls->options.peer_count++;
    else
        *l = (struct tb_link){.links = NULL};
    tb_links_busy(ls);
    return status;
}

void tb_links_peer_undo(struct tb_links *ls)
{
    TB_ASSERT(ls->options.peer_count > 0);
    struct tb_link *l = &ls->links[--ls->options.peer_count];
    TB_ASSERT(!tb_link_is_up(l));
    tb_link_fini(l);
    *l = (struct tb_link){.links = NULL};
}

/* Those that are no session: in TLS, or before HELLO. */
static void conns_end(struct tb_link *l)
{
    for (struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next) {
        if (c->link != l || c->is_session || c->ended || c->binding != NULL) continue;
        c->outrun = true; /* no failure of the peer's */
        tb_link_conn_close(c, TB_CANCELLED);
    }
}

void tb_links_peer_remove(struct tb_links *ls, uint32_t peer)
{
    TB_ASSERT(peer < ls->options.peer_count && !ls->closing);
    struct tb_link *l = &ls->links[peer];
    tb_link_limbo_end(l, TB_SITE_DRAINING);
    tb_link_race_end(l);
    tb_link_up_stop(l);
    conns_end(l);
    tb_link_path_lead(l, NULL);
    tb_link_peer_forgets(l);                                      /* it holds nothing that counts */
    l->identity = (struct tb_identity){.kind = TB_IDENTITY_NONE}; /* a stranger, where it dials */
    l->label = (struct tb_name){.text = ""};
    tb_links_busy(ls);
}

void tb_links_peer_address(struct tb_links *ls, uint32_t peer, const char *address)
{
    TB_ASSERT(peer < ls->options.peer_count && !ls->closing);
    struct tb_link *l = &ls->links[peer];
    struct tb_link_session_todo todo;
    const bool up = tb_link_is_up(l);
    tb_link_forget_resolving(l);
    tb_link_race_end(l);
    if (!up) conns_end(l);
    tb_link_path_lead(l, address);
    tb_link_control_may_dial(l);
    if (!up) tb_link_step(l, TB_LINK_FAILED, NULL, &todo); /* what was dialled is over */
    if (!up) tb_link_control_may_dial(l);                  /* and it is dialled now */
    tb_links_busy(ls);
}

/* ---- models and rights ---- */

void tb_links_peer_models(struct tb_links *ls, uint32_t peer, const struct tb_name *models, uint32_t count)
{
    TB_ASSERT(peer < ls->options.peer_count && count <= TB_LINKS_MODELS_MAX);
    tb_link_models_want(&ls->links[peer], models, count);
}

void tb_links_right_changed(struct tb_links *ls, uint32_t peer, const struct tb_name *model, bool may)
{
    TB_ASSERT(peer < ls->options.peer_count);
    struct tb_link *l = &ls->links[peer];
    if (may)
        tb_link_right_given(l, model);
    else
        tb_link_right_taken(l, model);
    tb_links_heed(ls);
}

void tb_links_admission(struct tb_links *ls, uint32_t handshakes_open, uint32_t handshakes_failed,
                        uint32_t garbled_frames)
{
    ls->options.handshakes_open = handshakes_open;
    ls->options.handshakes_failed = handshakes_failed;
    ls->options.garbled_frames = garbled_frames;
    tb_link_admission_set(ls->admission, &ls->options);
}
