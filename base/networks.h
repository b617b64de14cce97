/* networks.h - addresses as keys of what is counted of each, and networks that contain them. A
 * shell for inet_pton's sake; it touches nothing. */
#ifndef TB_BASE_NETWORKS_H
#define TB_BASE_NETWORKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* "10.0.0.0/8", "2001:db8::/32", or one address. IPv4 stands in ::ffff:0:0/96. */
struct tb_network {
    uint8_t bytes[16];
    uint32_t bits;
};

/* False: it is none. Bits behind the prefix have to be 0. */
bool tb_network_parse(const char *text, struct tb_network *network_out);
/* Of IPv4 or IPv6; an address of another kind is in no network. */
bool tb_network_has(const struct tb_network *n, const struct sockaddr *address);
/* 1..; equal for one IPv4 address, and for the addresses of one IPv6 network of 64 bits, as one
 * host has that many. The first byte is the highest; above an IPv4 address stands 0x0000ffff. */
uint64_t tb_network_key(const struct sockaddr *address);
/* Whether both are addresses of one host, whatever their ports. */
bool tb_network_same_host(const struct sockaddr *a, const struct sockaddr *b);

#endif
