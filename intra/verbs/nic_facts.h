/* nic_facts.h - what sysfs says of an RDMA device: where it is and how fast its link is. A shell. */
#ifndef TB_INTRA_VERBS_NIC_FACTS_H
#define TB_INTRA_VERBS_NIC_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TB_NIC_SYSFS "/sys/class/infiniband"

struct tb_nic_facts {
    int node;             /* NUMA node; -1: not known, or the machine has one */
    uint64_t bytes_per_s; /* 0: not known */
};
/* root: TB_NIC_SYSFS, or a test's. What cannot be read is not known. */
void tb_nic_facts_read(const char *root, const char *device, uint32_t port, struct tb_nic_facts *facts_out);
/* Whether there is any device: asked before librdmacm is, which complains on stderr where there is none. */
bool tb_nic_facts_any(const char *root);
/* The NUMA node on which the memory at `at` stands; -1: not known. */
int tb_nic_facts_node_of(const void *at);

#endif
