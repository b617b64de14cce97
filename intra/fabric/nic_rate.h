/* nic_rate.h - what the NIC behind an address of ours carries, as the kernel says. A shell.
 *
 * Only hardware is believed: a veth says 10 Gbit/s whatever it carries, and so does a bridge of
 * such ones. What stands on other interfaces (a VLAN, a bridge) is as fast as the fastest of those,
 * and a bond is what the kernel makes of its own. */
#ifndef TB_INTRA_NIC_RATE_H
#define TB_INTRA_NIC_RATE_H

#include <stdint.h>
#include <sys/socket.h>

#define TB_NIC_RATE_SYSFS "/sys/class/net"

/* Bytes a second, each way, of that interface; 0: not known. root:
 * TB_NIC_RATE_SYSFS, or a test's. */
uint64_t tb_nic_rate_of_interface(const char *root, const char *name);
/* The same of the one that has the address (IPv4, IPv6, or IPv4 in IPv6; the port is not looked
 * at). */
uint64_t tb_nic_rate_of(const char *root, const struct sockaddr *at);

#endif
