/* config_named.c - a peer, a model or a subscription of a config, by its name. */
#include "gateway/config/config_difference_inside.h"

const struct tb_config_peer *tb_config_peer_of(const struct tb_config *c, const struct tb_name *site)
{
    for (uint32_t i = 0; i < c->peer_count; i++)
        if (!c->peers[i].gone && tb_name_equal(&c->peers[i].site, site)) return &c->peers[i];
    return NULL;
}

const struct tb_config_model *tb_config_model_of(const struct tb_config *c, const struct tb_name *name)
{
    for (uint32_t i = 0; i < c->model_count; i++)
        if (!c->models[i].left && tb_name_equal(&c->models[i].name, name)) return &c->models[i];
    return NULL;
}

const struct tb_config_subscribe *tb_config_subscribe_of(const struct tb_config *c,
                                                         const struct tb_name *model)
{
    for (uint32_t i = 0; i < c->subscribe_count; i++)
        if (tb_name_equal(&c->subscribe[i].model, model)) return &c->subscribe[i];
    return NULL;
}
