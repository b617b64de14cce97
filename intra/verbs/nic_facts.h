/* nic_facts.h - what sysfs says of an RDMA device: where it is and how fast its link is; and
 * where memory is. A shell. */
#ifndef TB_INTRA_VERBS_NIC_FACTS_H
#define TB_INTRA_VERBS_NIC_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "intra/verbs/rails.h"

#define TB_NIC_SYSFS "/sys/class/infiniband"
#define TB_PCI_SYSFS "/sys/bus/pci/devices"

struct tb_nic_facts {
    struct tb_rail_spot spot;
    uint64_t bytes_per_s; /* 0: not known */
};
/* root: TB_NIC_SYSFS, or a test's. A fact that cannot be read is not known. */
void tb_nic_facts_read(const char *root, const char *device, uint32_t port, struct tb_nic_facts *facts_out);
/* Whether there is any device: asked before librdmacm is, which complains on stderr
 * where there is none. */
bool tb_nic_facts_any(const char *root);
/* Of a PCI device, "0000:18:00.0". root: TB_PCI_SYSFS, or a test's. NULL, and what is not
 * there, is not known. */
void tb_nic_facts_of_pci(const char *root, const char *name, struct tb_rail_spot *spot_out);
/* Of host memory. NULL is not known. */
void tb_nic_facts_of_memory(const void *at, struct tb_rail_spot *spot_out);

#endif
