/* config_merge.c - what runs after a reload: live changes as the new file says, all else as
 * before. Peers and models keep their rows. */
#include "gateway/config/config_difference_inside.h"

#include <string.h>

#include "base/assert.h"

struct merging {
    struct config_reading r; /* r.config: what is made */
    const struct tb_config *was, *is;
    const struct tb_config_difference *difference;
};

/* The change of that key, or (row config_key_count) of the whole instance; NULL: none. */
static const struct tb_config_change *change_of(const struct merging *m, enum config_scope scope,
                                                uint32_t row, const struct tb_name *of)
{
    for (uint32_t i = 0; i < m->difference->count; i++) {
        const struct tb_config_change *c = &m->difference->changes[i];
        if (c->scope == (int)scope && c->row == row && tb_name_equal(&c->of, of)) return c;
    }
    return NULL;
}

/* It comes or goes now. */
static bool whole_is_live(const struct merging *m, enum config_scope scope, const struct tb_name *of)
{
    const struct tb_config_change *c = change_of(m, scope, config_key_count, of);
    return c != NULL && c->effect == TB_CONFIG_LIVE;
}

/* Each key of an instance that is in both; `is` NULL: all stays. */
static void merge_keys(struct merging *m, enum config_scope scope, const struct tb_name *of, const void *was,
                       const void *is, void *to)
{
    TB_ASSERT(was != NULL && to != NULL);
    for (uint32_t i = 0; i < config_key_count; i++) {
        if (config_keys[i].scope != scope) continue;
        const struct tb_config_change *c = change_of(m, scope, i, of);
        const bool live = is != NULL && c != NULL && c->effect == TB_CONFIG_LIVE;
        tb_config_value_copy(&m->r, &config_keys[i], live ? is : was, to);
    }
}

/* One that is new. */
static void copy_keys(struct merging *m, enum config_scope scope, const void *from, void *to)
{
    for (uint32_t i = 0; i < config_key_count; i++)
        if (config_keys[i].scope == scope) tb_config_value_copy(&m->r, &config_keys[i], from, to);
}

static void merge_peers(struct merging *m)
{
    struct tb_config *to = m->r.config;
    for (uint32_t i = 0; i < m->was->peer_count; i++) {
        const struct tb_config_peer *was = &m->was->peers[i];
        struct tb_config_peer *p = &to->peers[to->peer_count++];
        p->gone = was->gone || whole_is_live(m, CONFIG_PEER, &was->site);
        if (p->gone) continue;
        p->site = was->site;
        p->of = was->of;
        merge_keys(m, CONFIG_PEER, &was->site, was, tb_config_peer_of(m->is, &was->site), p);
    }
    for (uint32_t i = 0; i < m->is->peer_count; i++) {
        const struct tb_config_peer *is = &m->is->peers[i];
        if (tb_config_peer_of(m->was, &is->site) != NULL || !whole_is_live(m, CONFIG_PEER, &is->site))
            continue;
        TB_ASSERT(to->peer_count < TB_CONFIG_LIST_MAX); /* tb_config_differ counted the rows */
        struct tb_config_peer *p = &to->peers[to->peer_count++];
        p->site = is->site;
        p->of = is->of;
        copy_keys(m, CONFIG_PEER, is, p);
    }
}

/* Its row: the one that it had before it left, or a new one. NULL: another home had it. */
static struct tb_config_model *row_for(struct tb_config *to, const struct tb_name *name)
{
    for (uint32_t i = 0; i < to->model_count; i++)
        if (tb_name_equal(&to->models[i].name, name)) return &to->models[i];
    TB_ASSERT(to->model_count < TB_CONFIG_LIST_MAX); /* tb_config_differ counted the rows */
    return &to->models[to->model_count++];
}

/* The catalog knows its versions still; nobody has a right any more. */
static void leave(struct tb_config_model *m, const struct tb_config_model *was)
{
    *m = (struct tb_config_model){.name = was->name,
                                  .is_pattern = was->is_pattern,
                                  .place = was->place,
                                  .home = was->home,
                                  .keep = was->keep,
                                  .weight = was->weight,
                                  .left = true};
}

static void merge_models(struct merging *m)
{
    struct tb_config *to = m->r.config;
    for (uint32_t i = 0; i < m->was->model_count; i++) {
        const struct tb_config_model *was = &m->was->models[i];
        struct tb_config_model *row = &to->models[to->model_count++];
        leave(row, was);
        if (was->left || whole_is_live(m, CONFIG_MODEL, &was->name)) continue;
        const struct tb_config_model *is = tb_config_model_of(m->is, &was->name);
        row->left = false;
        if (is != NULL) row->place = is->place;
        merge_keys(m, CONFIG_MODEL, &was->name, was, is, row);
    }
    for (uint32_t i = 0; i < m->is->model_count; i++) {
        const struct tb_config_model *is = &m->is->models[i];
        if (tb_config_model_of(m->was, &is->name) != NULL || !whole_is_live(m, CONFIG_MODEL, &is->name))
            continue;
        struct tb_config_model *row = row_for(to, &is->name);
        *row = (struct tb_config_model){.name = is->name, .is_pattern = is->is_pattern, .place = is->place};
        copy_keys(m, CONFIG_MODEL, is, row);
    }
}

static void merge_subscriptions(struct merging *m)
{
    struct tb_config *to = m->r.config;
    for (uint32_t i = 0; i < m->was->subscribe_count; i++) {
        const struct tb_config_subscribe *was = &m->was->subscribe[i];
        if (whole_is_live(m, CONFIG_SUBSCRIBE, &was->model)) continue;
        merge_keys(m, CONFIG_SUBSCRIBE, &was->model, was, tb_config_subscribe_of(m->is, &was->model),
                   &to->subscribe[to->subscribe_count++]);
    }
    for (uint32_t i = 0; i < m->is->subscribe_count; i++) {
        const struct tb_config_subscribe *is = &m->is->subscribe[i];
        const bool known = tb_config_subscribe_of(m->was, &is->model) != NULL;
        if (known || !whole_is_live(m, CONFIG_SUBSCRIBE, &is->model)) continue;
        TB_ASSERT(to->subscribe_count < TB_CONFIG_LIST_MAX);
        copy_keys(m, CONFIG_SUBSCRIBE, is, &to->subscribe[to->subscribe_count++]);
    }
}

enum tb_status tb_config_merge(const struct tb_config *was, const struct tb_config *is,
                               const struct tb_config_difference *difference, struct tb_config **merged_out)
{
    const struct tb_name root = {.text = ""};
    struct merging m = {.was = was, .is = is, .difference = difference};
    m.r.config = tb_config_new();
    if (m.r.config == NULL) return TB_SITE_NOMEM;
    m.r.config->label = was->label;
    merge_keys(&m, CONFIG_ROOT, &root, was, is, m.r.config);
    merge_peers(&m);
    merge_models(&m);
    merge_subscriptions(&m);
    if (m.r.nomem) {
        tb_config_free(m.r.config);
        return TB_SITE_NOMEM;
    }
    *merged_out = m.r.config;
    return TB_OK;
}
