/* nic_rate.h - the rate of the NIC behind an address of ours, as the kernel says. A shell.
 *
 * Only hardware is believed: a veth says 10 Gbit/s whatever it carries, and so does a bridge of
 * veths. An interface on others (a VLAN, a bridge) is as fast as the fastest of those. A bond has
 * the rate that the kernel computes for it. */
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
