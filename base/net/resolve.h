/* resolve.h - names to addresses through c-ares on a libuv loop. A shell.
 *
 * A and AAAA, IPv6 and IPv4 interleaved, several addresses; numeric hosts answer at once (but never
 * inside the call). A service (endpoint.h) is asked for its SRV records: addresses then come target
 * by target, in the order of RFC 2782. /etc/hosts counts for A and AAAA. One resolver a loop; every
 * query ends by itself in bounded time. */
#ifndef TB_BASE_NET_RESOLVE_H
#define TB_BASE_NET_RESOLVE_H

#include <uv.h>

#include "base/net/endpoint.h"
#include "base/time.h"

#define TB_ADDRESSES_MAX 16

struct tb_resolver;
struct tb_resolver_options {
    const char *servers; /* NULL: the system's; else "127.0.0.1:5353", for tests and split horizons */
    uint32_t timeout_ms; /* of one query, all tries; 0 = 5000 */
};
TB_MUST_USE enum tb_status tb_resolver_new(uv_loop_t *loop, const struct tb_resolver_options *options,
                                           struct tb_resolver **resolver_out);
/* Pending queries end with TB_CANCELLED before it returns. */
void tb_resolver_close(struct tb_resolver *resolver);

typedef void (*tb_resolve_fn)(void *user, enum tb_status status, const struct tb_address *addresses,
                              uint32_t count, uint32_t ttl_s);
/* TB_OK with 1..16 addresses, good for ttl_s (the least of all records on the way, 5 s to a day);
 * TB_NOT_FOUND: the name does not exist, or there is no such service; TB_PEER_UNREACHABLE: no
 * server answered; TB_PEER_GARBLED: its SRV answer is none. Inside the call fn runs only to say
 * TB_SITE_NOMEM, or TB_CANCELLED when the resolver is closed already. */
void tb_resolve(struct tb_resolver *resolver, const struct tb_endpoint *endpoint, tb_resolve_fn fn,
                void *user);

#endif
