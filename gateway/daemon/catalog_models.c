/* catalog_models.c - see catalog_models.h. A leaf: it calls no other room. */
#include "gateway/daemon/catalog_models.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/catalog/models.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/models/model_table.h"

static bool named(const struct tb_name *names, uint32_t count, const struct tb_name *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (tb_name_equal(&names[i], name)) return true;
    return false;
}

/* P3: which peers' copies of a model are as good as one here. They are this site's other gateways,
 * those of the sites that the model names, and those of its home: home alone can make it anew. */
static void durable_peers(const struct tb_config *config, const struct tb_config_model *m,
                          struct tb_catalog_model *c)
{
    TB_ASSERT(config->peer_count <= TB_CATALOG_DURABLE_MAX && c->durable_count == 0);
    for (uint32_t i = 0; i < config->peer_count; i++) {
        const struct tb_config_peer *p = &config->peers[i];
        if (p->gone) continue;
        if (tb_name_equal(&p->of, &config->site) || tb_name_equal(&p->of, &m->home) ||
            named(m->durable, m->durable_count, &p->of))
            c->durable[c->durable_count++] = p->site;
    }
}

enum tb_status tb_daemon_model(struct tb_daemon *d, uint32_t row)
{
    const struct tb_config_model *m = tb_model_config(d, row);
    struct tb_catalog_model c = {.name = *tb_model_name(d, row), .home = m->home, .keep = m->keep};
    const struct tb_config_subscribe *s = tb_config_subscribe_for(d->config, &c.name);
    c.every = m->every;
    c.is_home = tb_name_equal(&m->home, &d->site);
    durable_peers(d->config, m, &c);
    if (s != NULL && !c.is_home && !m->left) {
        c.subscribed = true;
        c.from_count = s->from_count;
        memcpy(c.from, s->from, sizeof s->from);
    }
    return tb_catalog_model_add(d->catalog, &c);
}
