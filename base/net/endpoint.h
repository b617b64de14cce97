/* endpoint.h - where something listens, as people write it, and its addresses. A shell.
 *   unix:/run/tombolo/west.sock   unix:@abstract-name
 *   host.example:7400   192.0.2.1:7400   [2001:db8::1]:7400
 *   _tombolo._tcp.west.example    a service: its SRV records say hosts and ports */
#ifndef TB_BASE_NET_ENDPOINT_H
#define TB_BASE_NET_ENDPOINT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "tombolo/status.h"

struct tb_endpoint {
    bool is_unix;
    bool is_service; /* host is the name of SRV records; port is 0 */
    char host[256];  /* name, address, or path ('@' first for abstract) */
    uint16_t port;
};

struct tb_address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
    };
    socklen_t bytes;
};

/* TB_BAD_ARGUMENT. */
TB_MUST_USE enum tb_status tb_endpoint_parse(const char *text, struct tb_endpoint *endpoint_out);
/* unix and numeric hosts only: TB_NOT_FOUND for names (resolve.h does those). */
TB_MUST_USE enum tb_status tb_endpoint_address(const struct tb_endpoint *endpoint,
                                               struct tb_address *address_out);
void tb_address_format(const struct tb_address *address, char *out, size_t cap);
/* Why nobody can listen there, and what to do, for people: of what tb_listen answered (listen.h)
 * and its errno. Static storage, or strerror's. */
const char *tb_endpoint_why(enum tb_status status, int error);

#endif
