/* doctor_devices.h - RDMA devices and GPUs of this machine: what sysfs and the driver say, and what
 * that means. The verdicts are pure. */
#ifndef TB_GATEWAY_CLI_DOCTOR_DEVICES_H
#define TB_GATEWAY_CLI_DOCTOR_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/cli/doctor/doctor_finding.h"

#define TB_NIC_PORTS_MAX 16u

/* A port of an RDMA device. */
struct tb_nic_port {
    char device[64];
    uint32_t port;
    char state[32], layer[32];  /* "4: ACTIVE", "Ethernet"; empty: not known */
    uint32_t gids, routed_gids; /* that are set; of them those of RoCE v2 */
    char file[64];              /* /dev/infiniband/uverbsN; empty: not known */
    int open_error;             /* errno for the gateway's user; 0: it may open it */
};
struct tb_finding tb_judge_nic_port(const struct tb_nic_port *p);

struct tb_driver_facts {
    bool present;      /* the kernel has a GPU's driver */
    bool library;      /* libcuda.so.1 can be opened */
    int init_result;   /* of cuInit; 0: it went well */
    int count, dmabuf; /* devices; of them those whose memory can be given to NICs */
    char first_name[96];
};
struct tb_finding tb_judge_gpu(const struct tb_driver_facts *g);
struct tb_finding tb_judge_dmabuf(const struct tb_driver_facts *g, uint32_t nic_ports);

/* root: "/sys/class/infiniband", or a test's. How many of TB_NIC_PORTS_MAX. */
uint32_t tb_nic_ports_read(const char *root, struct tb_nic_port ports_out[TB_NIC_PORTS_MAX]);
void tb_driver_facts_read(struct tb_driver_facts *facts_out);

#endif
