/* announced_versions.c - which versions the peer announced, which models it may read, and
 * which it is asked for. */
#include "wan/link/traffic/announced_versions.h"

#include "base/allocate.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_control.h"

enum tb_status tb_link_granted_room(struct tb_link *l)
{
    struct tb_link_models *m = &l->traffic.models;
    if (m->granted_count < m->granted_cap) return TB_OK;
    if (m->granted_cap >= TB_LINKS_GRANTED_MAX) {
        tb_links_table_refused(l->links, TB_LINKS_TABLE_GRANTED, l);
        return TB_TOO_LARGE;
    }
    const uint32_t cap = m->granted_cap == 0 ? 16 : 2 * m->granted_cap;
    struct tb_name *more = tb_realloc(m->granted, cap * sizeof *more);
    if (more == NULL) return TB_SITE_NOMEM;
    m->granted = more;
    m->granted_cap = cap;
    return TB_OK;
}

bool tb_link_granted(const struct tb_link *l, const struct tb_name *model)
{
    for (uint32_t i = 0; i < l->traffic.models.granted_count; i++)
        if (tb_name_equal(&l->traffic.models.granted[i], model)) return true;
    return false;
}

const struct tb_announced *tb_link_announced(const struct tb_link *l, const struct tb_id *uid)
{
    const struct tb_link_models *m = &l->traffic.models;
    for (uint32_t i = 0; i < m->announced_count; i++)
        if (!m->announced[i].unwanted && tb_id_equal(&m->announced[i].key.uid, uid)) return &m->announced[i];
    return NULL;
}

bool tb_link_wants(const struct tb_link *l, const struct tb_name *model)
{
    for (uint32_t i = 0; i < l->traffic.models.wanted_count; i++)
        if (tb_name_equal(&l->traffic.models.wanted[i], model)) return true;
    return false;
}

void tb_link_send_version(struct tb_link *l, const struct tb_version_key *key, uint64_t bytes, uint8_t state)
{
    LINK_SEND(l, TB_FRAME_VERSION, tb_frame_version, LINK_SMALL, .key = *key, .bytes = bytes, .state = state);
}

void tb_link_send_gone(struct tb_link *l, const struct tb_id *uid, enum tb_status why)
{
    LINK_SEND(l, TB_FRAME_GONE, tb_frame_gone, LINK_SMALL, .uid = *uid,
              .status_negated = tb_frame_status(why));
}
