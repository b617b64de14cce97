/* peer_rights.h - which site is a model's home, and which peers may read it. A leaf. */
#ifndef TB_DAEMON_PEER_RIGHTS_H
#define TB_DAEMON_PEER_RIGHTS_H

#include <stdbool.h>

#include "base/ident.h"

struct tb_config;
struct tb_daemon;
struct tb_links;

/* Which site is the model's home, as the configuration says. False: it has no such model. */
bool tb_home_of(const struct tb_daemon *d, const struct tb_name *model, struct tb_name *home_out);
/* P8: may that peer read the model? Says nothing and counts nothing. */
bool tb_peer_may_read(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
/* The same by another configuration, whose peers have these indexes too. */
bool tb_peer_may_read_by(const struct tb_config *c, uint32_t peer, const struct tb_name *model);
/* The peer of that name; UINT32_MAX: that site is no peer. */
uint32_t tb_peer_index(const struct tb_daemon *d, const struct tb_name *site);
/* As it is called here and in other sites' configurations. */
const char *tb_peer_site(const struct tb_daemon *d, uint32_t peer);
/* The links, while calls to them have a meaning; NULL otherwise. */
/* P3 P8: whether a word of this peer about that site counts. A site speaks for itself and for its
 * lanes, and this site's own gateways for all that they hear. Others speak for the sites that
 * peers.SITE.speaks_for lists. Nobody speaks for another configured peer. */
bool tb_peer_speaks_for(const struct tb_config *config, uint32_t peer, const struct tb_name *site);
struct tb_links *tb_peer_links(const struct tb_daemon *d);

#endif
