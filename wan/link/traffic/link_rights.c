/* link_rights.c - see link_rights.h.
 *
 * There is no frame that takes a SUBSCRIBE back. A model that is not wanted any more is asked for
 * in no later session; what the peer says of it in this one is heard as before. */
#include "wan/link/traffic/link_rights.h"

#include "base/assert.h"
#include "base/clock.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/link_manifest_pages.h"
#include "wan/link/traffic/link_versions.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/link/traffic/push_table.h"

static bool listed(const struct tb_name *names, uint32_t count, const struct tb_name *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (tb_name_equal(&names[i], name)) return true;
    return false;
}

/* A row for one more: a fresh one, or that of one which left. UINT32_MAX: there is none. */
static uint32_t wanted_row(struct tb_link_models *m)
{
    if (m->wanted_count < TB_LINKS_MODELS_MAX) return m->wanted_count++;
    for (uint32_t i = 0; i < m->wanted_count; i++)
        if (m->left[i]) {
            m->renamed = true;
            return i;
        }
    return UINT32_MAX;
}

/* The peer does not say again what it said while the model had no row. */
static void announced_wanted(struct tb_link_models *m, const struct tb_name *model)
{
    for (uint32_t i = 0; i < m->announced_count; i++)
        if (tb_name_equal(&m->announced[i].key.model, model)) m->announced[i].unwanted = false;
}

static void want(struct tb_link *l, const struct tb_name *model)
{
    struct tb_link_models *m = &l->traffic.models;
    uint32_t at = 0;
    while (at < m->wanted_count && !tb_name_equal(&m->wanted[at], model))
        at++;
    if (at < m->wanted_count && !m->left[at]) return; /* it was asked for */
    const bool had_row = at < m->wanted_count; /* what the peer said of its pause was heard all the time */
    if (!had_row) at = wanted_row(m);
    if (at == UINT32_MAX) return;
    m->wanted[at] = *model;
    m->left[at] = m->denied[at] = false;
    m->paused[at] = had_row && m->paused[at];
    announced_wanted(m, model);
    m->came_at = tb_clock_now();
    tb_link_subscribe_to(l, model);
}

tb_time_ns tb_link_models_came_at(const struct tb_link *l)
{
    return l->traffic.models.came_at;
}

void tb_link_models_want(struct tb_link *l, const struct tb_name *models, uint32_t count)
{
    struct tb_link_models *m = &l->traffic.models;
    TB_ASSERT(count <= TB_LINKS_MODELS_MAX);
    for (uint32_t i = 0; i < m->wanted_count; i++)
        if (!listed(models, count, &m->wanted[i])) m->left[i] = true;
    for (uint32_t i = 0; i < count; i++)
        want(l, &models[i]);
}

/* It asked for it in this session, and was refused. */
void tb_link_right_given(struct tb_link *l, const struct tb_name *model)
{
    struct tb_link_models *m = &l->traffic.models;
    if (!tb_link_is_up(l)) return;                /* it asks in the session to come */
    if (tb_link_granted_room(l) != TB_OK) return; /* likewise */
    for (uint32_t i = 0; i < m->refused_count; i++) {
        if (!tb_name_equal(&m->refused[i], model)) continue;
        const struct tb_name home = m->refused_home[i];
        m->refused[i] = m->refused[--m->refused_count];
        m->refused_home[i] = m->refused_home[m->refused_count];
        tb_link_subscribed(l, model, &home);
        return;
    }
}

/* P8: it hears no more of the model. A parcel that a stream has in hand still goes. */
void tb_link_right_taken(struct tb_link *l, const struct tb_name *model)
{
    if (!tb_link_granted_end(l, model)) return;
    tb_link_expected_ends(l, model);
    for (struct tb_offer *o = l->links->offers; o != NULL; o = o->next) {
        if (!tb_name_equal(&o->key.model, model)) continue;
        struct tb_offer_peer *p = &o->peers[l->index];
        tb_link_outs_drop(l, o);
        tb_link_serves_drop(l, o);
        if (tb_link_is_up(l) && p->announced == tb_link_session_seq(l))
            tb_link_send_gone(l, &o->key.uid, TB_PEER_DENIED);
        p->announced = 0;
    }
    if (tb_link_is_up(l)) tb_link_refuse(l, model, NULL);
}
