/* link_session_check.c - asserts what holds of connections between two turns. */
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_check.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_conn.h"

static void check_conn(const struct tb_links *ls, const struct tb_link_conn *c)
{
    TB_ASSERT(c->links == ls && (c->link != NULL || !c->dialled));
    TB_ASSERT(c->is_session == (c->link != NULL && c->link->session.control == c));
    TB_ASSERT(c->dialled || (!c->racing && !c->ahead && !c->probe));
    TB_ASSERT(c->binding == NULL || (!c->dialled && !c->is_session)); /* it is a data stream */
}

/* A link is up exactly while it has a control stream. One that is in limbo is silent. */
static void check_session(const struct tb_link *l)
{
    const enum tb_link_session_state state = l->session.life.state;
    const bool up = l->session.control != NULL;
    TB_ASSERT(state < TB_LINK_STATE_COUNT && !(up && l->session.limbo_since != 0));
    TB_ASSERT(!up || state == TB_LINK_UP || state == TB_LINK_SILENT);
    TB_ASSERT(up || state != TB_LINK_UP);
    TB_ASSERT(!up || (l->session.seq > 0 && l->session.protocol >= TB_LINK_PROTOCOL_MIN));
    TB_ASSERT(!up || l->session.protocol <= l->links->options.protocol_max);
}

void tb_links_conns_check(const struct tb_links *ls)
{
    uint32_t accepted = 0, of_links = 0, counted = 0;
    for (const struct tb_link_conn *c = ls->conns; c != NULL; c = c->next) {
        check_conn(ls, c);
        accepted += !c->dialled;
        of_links += c->link != NULL;
    }
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        check_session(&ls->links[i]);
        counted += ls->links[i].session.conn_count;
    }
    TB_ASSERT(accepted == ls->accepted_count && accepted <= LINK_CONNS_MAX);
    TB_ASSERT(of_links == counted);
}
