/* link_conn.c - connections that are or may become control streams, ours and those of peers that
 * dial. */
#include "wan/link/session/link_conn.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_admission.h"
#include "wan/link/session/link_control.h"

#define BYE_LINGER_MS 500

void tb_link_conn_close(struct tb_link_conn *c, enum tb_status why)
{
    TB_ASSERT(c->wire != NULL);
    if (c->ended) return;
    c->ended = true;
    tb_wire_close(c->wire, why);
}

void tb_link_conn_bye(struct tb_link_conn *c, enum tb_status why, uint64_t detail)
{
    if (c->ended) return;
    struct tb_writer *w = tb_wire_begin(c->wire, TB_FRAME_BYE, 0, LINK_SMALL);
    if (w != NULL) {
        tb_frame_bye_encode(&(struct tb_frame_bye){tb_frame_status(why), detail}, w);
        tb_wire_end(c->wire);
    }
    c->ended = true;
    tb_wire_finish(c->wire, why, BYE_LINGER_MS);
}

void tb_link_conn_free(struct tb_link_conn *c)
{
    TB_ASSERT(c->link == NULL || c->link->session.control != c); /* its session ended before */
    TB_ASSERT(c->dialled || c->links->accepted_count > 0);
    tb_link_admitted(c, false); /* unless it was */
    struct tb_link_conn **at = &c->links->conns;
    while (*at != c) {
        TB_ASSERT(*at != NULL); /* each connection is listed */
        at = &(*at)->next;
    }
    *at = c->next;
    if (!c->dialled) c->links->accepted_count--;
    if (c->link != NULL) c->link->session.conn_count--;
    tb_free(c);
}

/* P6: strangers take the room of those who come, and none of ours who dial; and our dials to peers
 * that are silent take none of those who come. */
bool tb_links_have_room(const struct tb_links *ls, const struct tb_link *l)
{
    return l == NULL ? ls->accepted_count < LINK_CONNS_MAX : l->session.conn_count < LINK_CONNS_PER_PEER;
}

struct tb_link_conn *tb_link_conn_new(struct tb_links *ls, struct tb_link *l)
{
    if (!tb_links_have_room(ls, l)) {
        if (l == NULL) tb_links_table_refused(ls, TB_LINKS_TABLE_CONNS, NULL);
        return NULL;
    }
    struct tb_link_conn *c = tb_calloc(1, sizeof *c);
    if (c == NULL) return NULL;
    c->links = ls;
    c->link = l;
    c->dialled = l != NULL;
    c->greet_by = tb_clock_now() + LINK_GREET_BY;
    c->own_expires_wall_s = tb_tls_expires_wall_s(ls->options.tls);
    c->own_shown = tb_tls_shown(ls->options.tls);
    c->next = ls->conns;
    ls->conns = c;
    if (l != NULL)
        l->session.conn_count++;
    else
        tb_links_table_took(ls, TB_LINKS_TABLE_CONNS, ++ls->accepted_count);
    TB_ASSERT(ls->accepted_count <= LINK_CONNS_MAX);
    return c;
}

uint32_t tb_link_conn_count(const struct tb_link *l)
{
    return l->session.conn_count;
}

uint32_t tb_link_conn_accepted(const struct tb_link *l)
{
    uint32_t count = 0;
    for (const struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next)
        count += !c->dialled && c->link == l;
    return count;
}

bool tb_link_has_candidate(const struct tb_link *l)
{
    for (const struct tb_link_conn *c = l->links->conns; c != NULL; c = c->next)
        if (c->link == l && c->dialled && !c->is_session && !c->ended && c->greet_by != 0) return true;
    return false;
}

bool tb_link_same_address(const struct tb_address *a, const struct tb_address *b)
{
    return a->bytes == b->bytes && memcmp(&a->any, &b->any, a->bytes) == 0;
}
