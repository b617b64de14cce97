/* doctor_devices.c - see doctor_devices.h. libcuda is opened, not linked: no gateway needs one. */
#include "gateway/cli/doctor/doctor_devices.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"

#define DMA_BUF_SUPPORTED 124 /* CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED */
#define PATH_BYTES        512
#define GIDS_MAX          256u

/* ---- verdicts ---- */

struct tb_finding tb_judge_nic_port(const struct tb_nic_port *p)
{
    struct tb_finding f;
    const bool is_roce = strcmp(p->layer, "Ethernet") == 0;
    if (p->state[0] == '\0')
        return tb_find(TB_MARK_UNKNOWN, "%s port %u: sysfs does not say its state", p->device, p->port);
    if (strstr(p->state, "ACTIVE") == NULL) {
        f = tb_find(TB_MARK_WRONG, "%s port %u is %s", p->device, p->port, p->state);
        tb_advise(&f,
                  is_roce ? "ip link set up its network device; look at the cable"
                          : "look at the cable and the subnet manager: ibstat %s",
                  p->device);
    } else if (p->open_error != 0) {
        f = tb_find(TB_MARK_WRONG, "%s port %u: the gateway's user may not open %s: %s", p->device, p->port,
                    p->file, strerror(p->open_error));
        tb_advise(
            &f,
            "DeviceAllow=char-infiniband_verbs rw in a drop-in of the unit (tombolo init writes one), or "
            "chmod 666 %s",
            p->file);
    } else if (p->gids == 0 || (is_roce && p->routed_gids == 0)) {
        f = tb_find(TB_MARK_WRONG, "%s port %u has no GID%s: no worker reaches it by RDMA", p->device,
                    p->port, is_roce ? " of RoCE v2" : "");
        tb_advise(&f, is_roce ? "ip addr add an address to its network device"
                              : "start a subnet manager for its fabric");
    } else {
        f = tb_find(TB_MARK_FINE, "%s port %u is active (%s), with %u GIDs", p->device, p->port,
                    p->layer[0] != '\0' ? p->layer : "link layer not known", p->gids);
    }
    return f;
}

struct tb_finding tb_judge_gpu(const struct tb_driver_facts *g)
{
    struct tb_finding f;
    if (!g->present && !g->library)
        return tb_find(TB_MARK_SKIPPED, "this machine has no GPU's driver; a gateway needs none");
    if (!g->library) {
        f = tb_find(TB_MARK_WRONG, "the kernel has a GPU's driver, and libcuda.so.1 cannot be opened");
        tb_advise(&f, "install the driver's libcuda (Debian: libcuda1), or mount it into the container");
        return f;
    }
    if (g->init_result != 0 || g->count == 0) {
        f = tb_find(g->present ? TB_MARK_WRONG : TB_MARK_SKIPPED,
                    "libcuda finds no GPU (cuInit gave %d, %d devices)", g->init_result, g->count);
        if (g->present)
            tb_advise(&f, "nvidia-smi says why; /dev/nvidia* have to be open to the workers' users");
        return f;
    }
    return tb_find(TB_MARK_FINE, "%d GPUs, the first is %s", g->count, g->first_name);
}

struct tb_finding tb_judge_dmabuf(const struct tb_driver_facts *g, uint32_t nic_ports)
{
    struct tb_finding f;
    if (nic_ports == 0)
        return tb_find(TB_MARK_SKIPPED, "there is no RDMA device that could read a GPU's memory");
    if (g->count == 0) return tb_find(TB_MARK_SKIPPED, "there is no GPU whose memory a NIC could read");
    if (g->dmabuf == g->count)
        return tb_find(TB_MARK_FINE, "NICs may read the memory of all %d GPUs", g->count);
    f = tb_find(TB_MARK_WARNING,
                "NICs may read the memory of %d of %d GPUs: the others' goes through host memory", g->dmabuf,
                g->count);
    tb_advise(&f, "install the open kernel modules of the GPU's driver (nvidia-open), Linux 5.12 or newer");
    return f;
}

/* ---- RDMA devices ---- */

static bool is_set(const char *gid)
{
    return strspn(gid, "0:") < strlen(gid);
}

/* Of a link-local prefix alone, as an InfiniBand port has before its subnet manager spoke, the rest
 * is the port's own number: it is a GID, too. */
static void read_gids(const char *folder, struct tb_nic_port *p)
{
    char path[PATH_BYTES + 64], line[64];
    for (uint32_t i = 0; i < GIDS_MAX; i++) {
        (void)snprintf(path, sizeof path, "%s/gids/%u", folder, i);
        if (!tb_machine_line(path, line, sizeof line)) return;
        if (!is_set(line)) continue;
        p->gids++;
        (void)snprintf(path, sizeof path, "%s/gid_attrs/types/%u", folder, i);
        if (tb_machine_line(path, line, sizeof line) && strstr(line, "v2") != NULL) p->routed_gids++;
    }
}

/* "uverbs0" of /sys/class/infiniband/mlx5_0/device/infiniband_verbs/. */
static void read_file(const char *root, struct tb_nic_port *p)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%.200s/%s/device/infiniband_verbs", root, p->device);
    DIR *folder = opendir(path);
    if (folder == NULL) return;
    for (struct dirent *e; (e = readdir(folder)) != NULL;)
        if (strncmp(e->d_name, "uverbs", 6) == 0)
            (void)snprintf(p->file, sizeof p->file, "/dev/infiniband/%.40s", e->d_name);
    closedir(folder);
    if (p->file[0] != '\0' && faccessat(AT_FDCWD, p->file, R_OK | W_OK, AT_EACCESS) != 0)
        p->open_error = errno;
}

static void read_port(const char *root, const char *device, uint32_t port, struct tb_nic_port *p)
{
    char folder[PATH_BYTES], path[PATH_BYTES + 64];
    *p = (struct tb_nic_port){.port = port};
    (void)snprintf(p->device, sizeof p->device, "%.63s", device);
    (void)snprintf(folder, sizeof folder, "%.200s/%.63s/ports/%u", root, device, port);
    (void)snprintf(path, sizeof path, "%s/state", folder);
    (void)tb_machine_line(path, p->state, sizeof p->state);
    (void)snprintf(path, sizeof path, "%s/link_layer", folder);
    (void)tb_machine_line(path, p->layer, sizeof p->layer);
    read_gids(folder, p);
    read_file(root, p);
}

uint32_t tb_nic_ports_read(const char *root, struct tb_nic_port ports_out[TB_NIC_PORTS_MAX])
{
    uint32_t count = 0;
    DIR *devices = opendir(root);
    if (devices == NULL) return 0;
    for (struct dirent *e; (e = readdir(devices)) != NULL;) {
        char path[PATH_BYTES];
        if (e->d_name[0] == '.' || strlen(e->d_name) > 63) continue;
        for (uint32_t port = 1; count < TB_NIC_PORTS_MAX; port++) {
            (void)snprintf(path, sizeof path, "%.200s/%.63s/ports/%u", root, e->d_name, port);
            if (access(path, F_OK) != 0) break;
            read_port(root, e->d_name, port, &ports_out[count++]);
        }
    }
    closedir(devices);
    return count;
}

/* ---- GPUs ---- */

/* POSIX lets dlsym's pointer be copied into one to a function. */
static bool find(void *library, const char *name, void *function_out)
{
    void *at = dlsym(library, name);
    memcpy(function_out, &at, sizeof at);
    return at != NULL;
}

void tb_driver_facts_read(struct tb_driver_facts *facts_out)
{
    int (*init)(unsigned), (*count)(int *), (*attribute)(int *, int, int), (*name)(char *, int, int);
    *facts_out = (struct tb_driver_facts){.present = access("/proc/driver/nvidia/version", F_OK) == 0 ||
                                                     access("/dev/nvidiactl", F_OK) == 0};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    facts_out->library =
        library != NULL && find(library, "cuInit", &init) && find(library, "cuDeviceGetCount", &count) &&
        find(library, "cuDeviceGetAttribute", &attribute) && find(library, "cuDeviceGetName", &name);
    if (!facts_out->library) return;
    facts_out->init_result = init(0);
    if (facts_out->init_result != 0 || count(&facts_out->count) != 0) facts_out->count = 0;
    for (int i = 0; i < facts_out->count; i++) {
        int value = 0;
        facts_out->dmabuf += attribute(&value, DMA_BUF_SUPPORTED, i) == 0 && value != 0;
    }
    if (facts_out->count > 0 && name(facts_out->first_name, (int)sizeof facts_out->first_name - 1, 0) != 0)
        facts_out->first_name[0] = '\0';
}
