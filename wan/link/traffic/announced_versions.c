/* announced_versions.c - which versions the peer announced, which models it may read, and
 * which it is asked for. */
#include "wan/link/traffic/announced_versions.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/limits/keyed_rows.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_control.h"

/* ---- granted models: a home of 10,000 looks one up for each version, state and statement ---- */

static uint32_t *bucket_of(struct tb_link_models *m, const struct tb_name *model)
{
    TB_ASSERT(m->granted_cap > 0 && (m->granted_cap & (m->granted_cap - 1)) == 0);
    return &m->granted[tb_key_of_salted(model->text, m->salt) & (m->granted_cap - 1)].first;
}

/* The row is the first of its bucket from now on. */
static void bucket_put(struct tb_link_models *m, uint32_t row)
{
    uint32_t *first = bucket_of(m, &m->granted[row].model);
    m->granted[row].next = *first;
    *first = row + 1;
}

/* The field that leads to that row, in its bucket. */
static uint32_t *bucket_way(struct tb_link_models *m, uint32_t row)
{
    uint32_t *way = bucket_of(m, &m->granted[row].model);
    while (*way != row + 1) {
        TB_ASSERT(*way != 0);
        way = &m->granted[*way - 1].next;
    }
    return way;
}

/* Its place, plus one; 0: it is not granted. */
static uint32_t granted_place(const struct tb_link *l, const struct tb_name *model)
{
    const struct tb_link_models *m = &l->traffic.models;
    if (m->granted_count == 0) return 0;
    uint32_t place = m->granted[tb_key_of_salted(model->text, m->salt) & (m->granted_cap - 1)].first;
    while (place != 0 && !tb_name_equal(&m->granted[place - 1].model, model))
        place = m->granted[place - 1].next;
    return place;
}

enum tb_status tb_link_granted_room(struct tb_link *l)
{
    struct tb_link_models *m = &l->traffic.models;
    if (m->granted_count < m->granted_cap) return TB_OK;
    if (m->granted_cap >= TB_LINKS_GRANTED_MAX) {
        tb_links_table_refused(l->links, TB_LINKS_TABLE_GRANTED, l);
        return TB_TOO_LARGE;
    }
    const uint32_t cap = m->granted_cap == 0 ? 16 : 2 * m->granted_cap;
    if (m->granted_cap == 0) tb_random_bytes(&m->salt, sizeof m->salt);
    struct tb_granted *more = tb_realloc(m->granted, cap * sizeof *more);
    if (more == NULL) return TB_SITE_NOMEM;
    m->granted = more;
    m->granted_cap = cap;
    for (uint32_t i = 0; i < cap; i++)
        more[i].first = 0;
    for (uint32_t i = 0; i < m->granted_count; i++)
        bucket_put(m, i);
    return TB_OK;
}

void tb_link_granted_put(struct tb_link *l, const struct tb_name *model)
{
    struct tb_link_models *m = &l->traffic.models;
    TB_ASSERT(m->granted_count < m->granted_cap);
    m->granted[m->granted_count].model = *model;
    bucket_put(m, m->granted_count++);
}

/* The last row takes its place. */
bool tb_link_granted_end(struct tb_link *l, const struct tb_name *model)
{
    struct tb_link_models *m = &l->traffic.models;
    const uint32_t place = granted_place(l, model);
    if (place == 0) return false;
    const uint32_t row = place - 1, last = m->granted_count - 1;
    *bucket_way(m, row) = m->granted[row].next;
    if (row != last) {
        uint32_t *way = bucket_way(m, last);
        m->granted[row].model = m->granted[last].model;
        m->granted[row].next = m->granted[last].next;
        *way = place;
    }
    m->granted_count--;
    return true;
}

void tb_link_granted_clear(struct tb_link *l)
{
    struct tb_link_models *m = &l->traffic.models;
    for (uint32_t i = 0; i < m->granted_cap; i++)
        m->granted[i].first = 0;
    m->granted_count = 0;
}

bool tb_link_granted(const struct tb_link *l, const struct tb_name *model)
{
    return granted_place(l, model) != 0;
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
