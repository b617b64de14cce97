#include "intra/verbs/nic_facts.h"

#include <glob.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/machine.h"

/* "100 Gb/sec (4X EDR)", "2.5 Gb/sec (1X SDR)". */
static uint64_t rate_of(const char *line)
{
    const double gbit = strtod(line, NULL);
    return gbit > 0 && gbit < 1e5 ? (uint64_t)(gbit * 1e9 / 8) : 0;
}

/* ".../pci0000:15/0000:15:01.0/0000:16:00.0/...": what stands behind the host bridge, unless that
 * is the device itself. */
static void root_port_of(const char *path, char *port_out)
{
    const char *at = strstr(path, "/pci");
    at = at != NULL ? strchr(at + 1, '/') : NULL;
    const char *end = at != NULL ? strchr(at + 1, '/') : NULL;
    if (end == NULL || end - at > TB_RAIL_ROOT_PORT_BYTES) return;
    memcpy(port_out, at + 1, (size_t)(end - at - 1));
}

/* folder: a device's, which the kernel keeps where the device is plugged in. */
static void look_at(const char *folder, struct tb_rail_spot *spot_out)
{
    char path[512], line[64], real[PATH_MAX];
    *spot_out = (struct tb_rail_spot){.node = -1};
    (void)snprintf(path, sizeof path, "%s/numa_node", folder);
    if (tb_machine_line(path, line, sizeof line)) spot_out->node = (int)strtol(line, NULL, 10);
    if (realpath(folder, real) != NULL) root_port_of(real, spot_out->root_port);
}

void tb_nic_facts_read(const char *root, const char *device, uint32_t port, struct tb_nic_facts *facts_out)
{
    char path[512], line[64];
    *facts_out = (struct tb_nic_facts){.bytes_per_s = 0};
    (void)snprintf(path, sizeof path, "%s/%s/device", root, device);
    look_at(path, &facts_out->spot);
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

void tb_nic_facts_of_pci(const char *root, const char *name, struct tb_rail_spot *spot_out)
{
    char folder[256];
    *spot_out = (struct tb_rail_spot){.node = -1};
    if (name == NULL) return;
    (void)snprintf(folder, sizeof folder, "%s/%s", root, name);
    look_at(folder, spot_out);
}

void tb_nic_facts_of_memory(const void *at, struct tb_rail_spot *spot_out)
{
    int node = -1;
    *spot_out = (struct tb_rail_spot){.node = -1};
    if (at != NULL && syscall(SYS_get_mempolicy, &node, NULL, 0, at, MPOL_F_NODE | MPOL_F_ADDR) == 0)
        spot_out->node = node;
}
