/* doctor_checks.c - the table, and those of its rows that are a fact and a verdict. */
#include "gateway/cli/doctor/doctor_checks.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/net/tcp.h"
#include "gateway/cli/doctor/doctor_devices.h"
#include "gateway/cli/doctor/doctor_facts.h"

#define QUICK_MS   3000u
#define WAY_MS     15000u /* five steps of 3 s each (doctor_dial.h) */
#define DEVICES_MS 10000u /* a GPU's driver that wakes up takes seconds */

#define NIC_SYSFS  "/sys/class/infiniband"

/* ---- the machine ---- */

static void check_clock(const struct tb_doctor *d)
{
    struct tb_clock_facts facts;
    tb_doctor_clock_facts_read(&facts);
    tb_doctor_tell(d, "synchronised", tb_judge_clock(&facts));
}

/* The most that a link needs which this sysctl holds, as the gateway says; 0: it holds none. */
static uint64_t window_needed(const struct tb_doctor *d, const char *sysctl)
{
    const json_t *links = json_object_get(d->status, "links");
    json_int_t most = 0;
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *window = json_object_get(json_array_get(links, i), "window");
        const char *name = json_string_value(json_object_get(window, "sysctl"));
        const json_int_t needs = json_integer_value(json_object_get(window, "needs_bytes"));
        if (name != NULL && strcmp(name, sysctl) == 0 && needs > most) most = needs;
    }
    return (uint64_t)most;
}

static void check_sysctls(const struct tb_doctor *d)
{
    const struct tb_tcp_ceilings c = tb_tcp_ceilings();
    const struct tb_window_facts out = {"net.ipv4.tcp_wmem", c.send_bytes,
                                        window_needed(d, "net.ipv4.tcp_wmem")};
    const struct tb_window_facts in = {"net.ipv4.tcp_rmem", c.receive_bytes,
                                       window_needed(d, "net.ipv4.tcp_rmem")};
    tb_doctor_tell(d, "tcp_wmem", tb_judge_window(&out));
    tb_doctor_tell(d, "tcp_rmem", tb_judge_window(&in));
}

/* Of the farthest link that is up. */
static double rtt_ms(const struct tb_doctor *d)
{
    const json_t *links = json_object_get(d->status, "links");
    double most = 0;
    for (size_t i = 0; i < json_array_size(links); i++) {
        const double rtt = json_number_value(json_object_get(json_array_get(links, i), "rtt_ms"));
        if (rtt > most) most = rtt;
    }
    return most;
}

static void check_congestion(const struct tb_doctor *d)
{
    struct tb_congestion_facts facts = {.rtt_ms = rtt_ms(d), .other_user = d->no_user != NULL};
    (void)snprintf(facts.wish, sizeof facts.wish, "%s",
                   d->config != NULL ? d->config->link_congestion : "auto");
    tb_doctor_congestion_facts_read(&facts);
    tb_doctor_tell(d, "congestion", tb_judge_congestion(&facts));
}

static void check_huge_pages(const struct tb_doctor *d)
{
    const json_t *arena = json_object_get(d->status, "arena");
    const json_int_t bytes = json_integer_value(json_object_get(arena, "bytes"));
    const json_int_t huge = json_integer_value(json_object_get(arena, "huge_bytes"));
    struct tb_huge_facts facts = {.arena_bytes = bytes > 0 ? (uint64_t)bytes : 0,
                                  .huge_bytes = huge > 0 ? (uint64_t)huge : 0};
    tb_doctor_huge_facts_read(d->config->arena_path, &facts);
    tb_doctor_tell(d, "hugepages", tb_judge_huge_pages(&facts));
}

static bool uses_rdma(const struct tb_doctor *d)
{
    struct tb_nic_port ports[TB_NIC_PORTS_MAX];
    return (d->config == NULL || d->config->fabric_verbs) && tb_nic_ports_read(NIC_SYSFS, ports) > 0;
}

static void check_memlock(const struct tb_doctor *d)
{
    const json_int_t pid = json_integer_value(json_object_get(d->status, "pid"));
    struct tb_memlock_facts facts = {.pins = uses_rdma(d),
                                     .arena_bytes = d->config != NULL ? d->config->arena_bytes : 0};
    tb_doctor_memlock_facts_read(pid > 0 && pid <= INT32_MAX ? (int)pid : 0, &facts);
    tb_doctor_tell(d, "memlock", tb_judge_memlock(&facts));
}

/* ---- devices ---- */

/* Another user's right to open it says nothing. */
static struct tb_finding of_port(const struct tb_doctor *d, struct tb_nic_port port)
{
    if (d->no_user != NULL) port.open_error = 0;
    const struct tb_finding f = tb_judge_nic_port(&port);
    if (d->no_user == NULL || f.mark != TB_MARK_FINE) return f;
    return tb_find(TB_MARK_UNKNOWN, "%.300s; whether the gateway's user may open it is not known: %.200s",
                   f.text, d->no_user);
}

static void check_rdma(const struct tb_doctor *d)
{
    struct tb_nic_port ports[TB_NIC_PORTS_MAX];
    const uint32_t count = tb_nic_ports_read(NIC_SYSFS, ports);
    const json_t *fabric = json_object_get(d->status, "fabric");
    const char *why_not = json_string_value(json_object_get(fabric, "why_not"));
    if (count == 0)
        tb_doctor_tell(
            d, "rdma",
            tb_find(TB_MARK_SKIPPED, "this machine has no RDMA device: workers read by shm and tcp"));
    else if (d->config != NULL && !d->config->fabric_verbs)
        tb_doctor_tell(d, "rdma", tb_find(TB_MARK_SKIPPED, "fabric.verbs is false"));
    else
        for (uint32_t i = 0; i < count; i++)
            tb_doctor_tell(d, "rdma", of_port(d, ports[i]));
    if (count > 0 && d->status != NULL && why_not == NULL)
        tb_doctor_tell(d, "rdma",
                       tb_find(TB_MARK_UNKNOWN, "the gateway that runs does not say whether it uses it"));
    if (count == 0 || why_not == NULL || why_not[0] == '\0') return;
    tb_doctor_tell(d, "rdma",
                   tb_find(TB_MARK_WRONG, "the gateway that runs does not use it: %.300s", why_not));
}

static void check_gpu(const struct tb_doctor *d)
{
    struct tb_driver_facts facts;
    struct tb_nic_port ports[TB_NIC_PORTS_MAX];
    tb_driver_facts_read(&facts);
    tb_doctor_tell(d, "gpu", tb_judge_gpu(&facts));
    tb_doctor_tell(d, "dma-buf", tb_judge_dmabuf(&facts, tb_nic_ports_read(NIC_SYSFS, ports)));
}

/* ---- the table ---- */

static const struct tb_check checks[] = {
    {"configuration", "file", tb_check_file, "tombolo config check FILE", QUICK_MS, 0},
    {"configuration", "start", tb_check_start, "tombolo config check FILE", QUICK_MS,
     TB_NEEDS_CONFIG | TB_NEEDS_FILES | TB_NEEDS_USER},
    {"gateway", "answer store audit sandbox", tb_check_gateway, "systemctl status 'tombolod@*'", QUICK_MS, 0},
    {"clock", "synchronised", check_clock, "timedatectl set-ntp true", QUICK_MS, 0},
    {"certificates", "files tls", tb_check_certificates, "tombolo pki show --config FILE", QUICK_MS,
     TB_NEEDS_CONFIG | TB_NEEDS_FILES | TB_NEEDS_USER},
    {"peer", "dns tcp tls identity mtu", tb_check_way, "look at the path to the peer", WAY_MS,
     TB_NEEDS_CONFIG | TB_EACH_PEER},
    {"peer", "link clock throughput", tb_check_link, "tombolo status", QUICK_MS,
     TB_NEEDS_CONFIG | TB_NEEDS_GATEWAY | TB_EACH_PEER},
    {"peer", "rights", tb_check_rights, "models.NAME.read", QUICK_MS, TB_NEEDS_CONFIG | TB_EACH_PEER},
    {"kernel", "tcp_wmem tcp_rmem", check_sysctls, "docs/operations.md, Starting", QUICK_MS, 0},
    {"kernel", "congestion", check_congestion, "modprobe tcp_bbr", QUICK_MS, 0},
    {"memory", "hugepages", check_huge_pages, "docs/operations.md, Starting", QUICK_MS, TB_NEEDS_CONFIG},
    {"memory", "memlock", check_memlock, "LimitMEMLOCK=64M in the unit", QUICK_MS, 0},
    {"disks", "room files", tb_check_disks, "store.path: a folder on a disk that answers", QUICK_MS,
     TB_NEEDS_CONFIG | TB_NEEDS_FILES},
    {"devices", "rdma", check_rdma, "ibv_devinfo", DEVICES_MS, 0},
    {"devices", "gpu dma-buf", check_gpu, "nvidia-smi", DEVICES_MS, 0},
    {"arena", "owner room", tb_check_arena, "arena.path: a file on tmpfs or hugetlbfs", QUICK_MS,
     TB_NEEDS_CONFIG | TB_NEEDS_FILES | TB_NEEDS_USER},
    {NULL, NULL, NULL, NULL, 0, 0},
};

const struct tb_check *tb_doctor_checks(void)
{
    return checks;
}

const char *tb_check_why_not(const struct tb_check *check, const struct tb_doctor *d)
{
    if ((check->needs & TB_NEEDS_CONFIG) != 0 && d->config == NULL)
        return "the configuration could not be read";
    if ((check->needs & TB_NEEDS_FILES) != 0 && d->no_files != NULL) return d->no_files;
    if ((check->needs & TB_NEEDS_GATEWAY) != 0 && d->status == NULL)
        return d->before_start ? "--pre: no gateway is asked" : "no gateway answered";
    return NULL;
}
