#include "intra/verbs/nic_facts.h"

#include <glob.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/machine.h"

/* "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)". */
static uint64_t rate_of(const char *line)
{
    const double gbit = strtod(line, NULL);
    return gbit > 0 && gbit < 1e5 ? (uint64_t)(gbit * 1e9 / 8) : 0;
}

void tb_nic_facts_read(const char *root, const char *device, uint32_t port, struct tb_nic_facts *facts_out)
{
    char path[512], line[64];
    *facts_out = (struct tb_nic_facts){.node = -1};
    (void)snprintf(path, sizeof path, "%s/%s/device/numa_node", root, device);
    if (tb_machine_line(path, line, sizeof line)) facts_out->node = (int)strtol(line, NULL, 10);
    (void)snprintf(path, sizeof path, "%s/%s/ports/%u/rate", root, device, port);
    if (tb_machine_line(path, line, sizeof line)) facts_out->bytes_per_s = rate_of(line);
}

bool tb_nic_facts_any(const char *root)
{
    char pattern[256];
    glob_t found;
    (void)snprintf(pattern, sizeof pattern, "%s/*", root);
    const bool any = glob(pattern, GLOB_NOSORT, NULL, &found) == 0;
    globfree(&found);
    return any;
}

int tb_nic_facts_node_of(const void *at)
{
    int node = -1;
    if (at == NULL || syscall(SYS_get_mempolicy, &node, NULL, 0, at, MPOL_F_NODE | MPOL_F_ADDR) != 0)
        return -1;
    return node;
}
