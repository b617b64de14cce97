/* link_pause.c - models and links that an operator paused (links_pause.h).
 *
 * An end that pauses needs no help of the other one: it hands no parcel to a stream, ends what it
 * draws by STOP, and expects nothing unasked. So a peer of any release stops with it. PAUSED only
 * tells the peer why nothing comes. link_traffic_turn.c stops what is under way. */
#include "wan/link/traffic/link_pause.h"

#include <string.h>

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_pause.h"
#include "wan/link/session/link_control.h"

static bool listed(const struct tb_name *names, uint32_t count, const struct tb_name *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (tb_name_equal(&names[i], name)) return true;
    return false;
}

bool tb_link_is_paused(const struct tb_link *l, const struct tb_name *model)
{
    return l->traffic.pause.ours || listed(l->links->paused, l->links->paused_count, model);
}

/* ---- saying ---- */

void tb_link_pause_say(struct tb_link *l, const struct tb_name *model, bool paused)
{
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_PAUSED) return;
    LINK_SEND(l, TB_FRAME_PAUSED, tb_frame_paused, LINK_SMALL, .model = *model, .paused = paused);
}

void tb_link_pause_up(struct tb_link *l)
{
    struct tb_link_models *m = &l->traffic.models;
    l->traffic.pause.told = l->traffic.pause.theirs = false;
    memset(m->paused, 0, sizeof m->paused);
}

void tb_link_pause_tell(struct tb_link *l)
{
    const struct tb_name all = {.text = ""};
    if (l->traffic.pause.told == l->traffic.pause.ours) return;
    l->traffic.pause.told = l->traffic.pause.ours;
    tb_link_pause_say(l, &all, l->traffic.pause.ours);
}

/* P8: nobody hears of a model that it may not read. */
void tb_link_pause_granted(struct tb_link *l, const struct tb_name *model)
{
    if (listed(l->links->paused, l->links->paused_count, model)) tb_link_pause_say(l, model, true);
}

/* ---- hearing ---- */

enum tb_status tb_link_on_paused(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_paused m;
    struct tb_link_models *models = &l->traffic.models;
    const enum tb_status status = tb_frame_paused_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_PAUSED || m.paused > 1) return TB_PEER_GARBLED;
    if (m.model.text[0] == '\0') l->traffic.pause.theirs = m.paused == 1;
    for (uint32_t i = 0; i < models->wanted_count; i++)
        if (tb_name_equal(&models->wanted[i], &m.model)) models->paused[i] = m.paused == 1;
    tb_links_busy(l->links); /* its landings begin, or another one's */
    return TB_OK;
}

bool tb_link_paused_there(const struct tb_link *l, const struct tb_name *model)
{
    const struct tb_link_models *m = &l->traffic.models;
    if (!tb_link_is_up(l)) return false;
    if (l->traffic.pause.theirs) return true;
    for (uint32_t i = 0; model != NULL && i < m->wanted_count; i++)
        if (m->paused[i] && tb_name_equal(&m->wanted[i], model)) return true;
    return false;
}

bool tb_links_paused_there(const struct tb_links *ls, uint32_t peer, const struct tb_name *model)
{
    TB_ASSERT(peer < ls->options.peer_count);
    return tb_link_paused_there(&ls->links[peer], model);
}
