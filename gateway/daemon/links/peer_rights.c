/* peer_rights.c - which site is a model's home, and which peers may read it. A leaf: it calls no
 * other room. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/config/model_rules.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/rights.h"

bool tb_home_of(const struct tb_daemon *d, const struct tb_name *model, struct tb_name *home_out)
{
    const struct tb_config_model *m = tb_config_model_for(d->config, model);
    if (m != NULL) *home_out = m->home;
    return m != NULL;
}

bool tb_peer_may_read_by(const struct tb_config *c, uint32_t peer, const struct tb_name *model)
{
    TB_ASSERT(peer < c->peer_count);
    const struct tb_config_peer *p = &c->peers[peer];
    const struct tb_config_model *m = tb_config_model_for(c, model);
    const struct tb_identity identity = {.kind = TB_IDENTITY_GATEWAY, .site = p->of, .name = p->gateway};
    if (p->gone || (m != NULL && m->left)) return false;
    if (tb_name_equal(&p->of, &c->site))
        return true; /* another gateway of this site: what is here is its, too */
    if (m != NULL && tb_name_equal(&m->home, &p->site)) return true; /* its own bytes, back */
    return tb_rights_may(c, model, &identity, false);
}

bool tb_peer_may_read(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    return tb_peer_may_read_by(d->config, peer, model);
}

/* SITE.LANE, with one digit (docs/config.md, lanes). */
static bool is_lane_of(const struct tb_name *gateway, const struct tb_name *site)
{
    const size_t bytes = strlen(site->text);
    if (strncmp(gateway->text, site->text, bytes) != 0 || gateway->text[bytes] != '.') return false;
    const char lane = gateway->text[bytes + 1];
    return lane >= '1' && lane < '0' + TB_CONFIG_LANES_MAX && gateway->text[bytes + 2] == '\0';
}

bool tb_peer_speaks_for(const struct tb_config *config, uint32_t peer, const struct tb_name *site)
{
    TB_ASSERT(peer < config->peer_count);
    const struct tb_config_peer *p = &config->peers[peer];
    if (tb_name_equal(&p->site, site)) return true;
    for (uint32_t i = 0; i < config->peer_count; i++)
        if (tb_name_equal(&config->peers[i].site, site)) return false;
    if (tb_name_equal(&p->of, &config->site) || tb_name_equal(&p->of, site) || is_lane_of(site, &p->of))
        return true;
    for (uint32_t i = 0; i < p->speaks_for_count; i++)
        if (tb_name_equal(&p->speaks_for[i], site) || is_lane_of(site, &p->speaks_for[i])) return true;
    return false;
}

struct tb_links *tb_peer_links(const struct tb_daemon *d)
{
    return d->links_restarting ? NULL : d->links;
}

uint32_t tb_peer_index(const struct tb_daemon *d, const struct tb_name *site)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (tb_name_equal(&d->config->peers[i].site, site)) return i;
    return UINT32_MAX;
}

const char *tb_peer_site(const struct tb_daemon *d, uint32_t peer)
{
    TB_ASSERT(peer < d->config->peer_count);
    return d->config->peers[peer].site.text;
}
