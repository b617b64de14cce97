/* doctor_machine.c - facts of a machine become ticks and crosses: what is wrong is named with the
 * line to change, and what is not known is never fine (P10).
 *
 * Covers: gateway/cli/doctor/doctor_machine.c gateway/cli/doctor/doctor_finding.c
 * Covers: gateway/cli/doctor/doctor_devices.c */
#include "gateway/cli/doctor/doctor_machine.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/cli/doctor/doctor_devices.h"
#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

#define MIB ((uint64_t)1 << 20)

static void expect(struct tb_finding f, enum tb_mark mark, const char *text, const char *advice)
{
    if (f.mark != mark || strstr(f.text, text) == NULL || strstr(f.advice, advice) == NULL)
        fail_msg("%s: %s -> %s; wanted %s: %s -> %s", tb_mark_name(f.mark), f.text, f.advice,
                 tb_mark_name(mark), text, advice);
    const bool asks = f.mark == TB_MARK_WRONG || f.mark == TB_MARK_WARNING;
    assert_int_equal(asks, f.advice[0] != '\0' && f.mark != TB_MARK_UNKNOWN);
}

static void a_clock_that_nothing_keeps_is_named(void **state)
{
    (void)state;
    expect(tb_judge_clock(&(struct tb_clock_facts){true, true}), TB_MARK_FINE, "synchronised", "");
    expect(tb_judge_clock(&(struct tb_clock_facts){true, false}), TB_MARK_WARNING, "unsynchronised",
           "set-ntp");
    const struct tb_finding f = tb_judge_clock(&(struct tb_clock_facts){false, true});
    assert_int_equal(f.mark, TB_MARK_UNKNOWN);
}

static void certificates_have_days(void **state)
{
    (void)state;
    const int64_t day = 24 * 3600;
    struct tb_certificate_facts c = {.key = "tls.cert",
                                     .path = "/gw.crt",
                                     .who = "tombolo://east/gw",
                                     .from_s = 0,
                                     .until_s = 100 * day,
                                     .now_s = 10 * day};
    expect(tb_judge_certificate(&c), TB_MARK_FINE, "90 days left", "");
    c.now_s = 90 * day;
    expect(tb_judge_certificate(&c), TB_MARK_WARNING, "ends in 10 days",
           "tls.cert: tombolo pki renew /gw.crt");
    c.now_s = 86 * day; /* 14 are left */
    expect(tb_judge_certificate(&c), TB_MARK_FINE, "14 days left", "");
    c.now_s = 100 * day;
    expect(tb_judge_certificate(&c), TB_MARK_WRONG, "has expired", "pki renew");
    c.now_s = -1;
    expect(tb_judge_certificate(&c), TB_MARK_WRONG, "not valid yet, for another 1 s", "clock");
}

static void a_small_window_is_named(void **state)
{
    (void)state;
    struct tb_window_facts w = {"net.ipv4.tcp_wmem", 4 * MIB, 0};
    expect(tb_judge_window(&w), TB_MARK_FINE, "336 Mbit/s", "");
    w.bytes--;
    expect(tb_judge_window(&w), TB_MARK_WRONG, "net.ipv4.tcp_wmem is 4194303",
           "net.ipv4.tcp_wmem = 4096 65536 67108864");
    w = (struct tb_window_facts){"net.ipv4.tcp_rmem", 8 * MIB, 100 * MIB};
    expect(tb_judge_window(&w), TB_MARK_WRONG, "a link is held by it now",
           "net.ipv4.tcp_rmem = 4096 131072 104857600");
    w.bytes = 100 * MIB;
    expect(tb_judge_window(&w), TB_MARK_FINE, "", "");
    w.bytes = 0;
    assert_int_equal(tb_judge_window(&w).mark, TB_MARK_UNKNOWN);
}

static void a_congestion_control_that_is_not_there_is_named(void **state)
{
    (void)state;
    struct tb_congestion_facts c = {
        .wish = "auto", .available = "reno cubic bbr", .allowed = "reno cubic bbr"};
    expect(tb_judge_congestion(&c), TB_MARK_FINE, "bbr is offered", "");
    (void)snprintf(c.allowed, sizeof c.allowed, "reno cubic");
    expect(tb_judge_congestion(&c), TB_MARK_WARNING, "not allowed to the gateway's user",
           "net.ipv4.tcp_allowed_congestion_control = reno cubic bbr");
    c.may_all = true;
    expect(tb_judge_congestion(&c), TB_MARK_FINE, "", "");
    (void)snprintf(c.available, sizeof c.available, "reno cubic bbr2");
    expect(tb_judge_congestion(&c), TB_MARK_WARNING, "bbr is not offered", "modprobe tcp_bbr; ");
    c.rtt_ms = 4.9;
    expect(tb_judge_congestion(&c), TB_MARK_WARNING, "", "modprobe");
    c.rtt_ms = 5;
    expect(tb_judge_congestion(&c), TB_MARK_WRONG, "", "modprobe");
    c.rtt_ms = 0;
    (void)snprintf(c.wish, sizeof c.wish, "bbr");
    expect(tb_judge_congestion(&c), TB_MARK_WRONG, "bbr is not offered by the kernel (reno cubic bbr2)",
           "modprobe");
    (void)snprintf(c.wish, sizeof c.wish, "cubic");
    expect(tb_judge_congestion(&c), TB_MARK_FINE, "", "");
    c.available[0] = '\0';
    assert_int_equal(tb_judge_congestion(&c).mark, TB_MARK_UNKNOWN);
    (void)snprintf(c.wish, sizeof c.wish, "system");
    expect(tb_judge_congestion(&c), TB_MARK_FINE, "", "");
}

static void huge_pages_are_asked_for(void **state)
{
    (void)state;
    struct tb_huge_facts h = {
        .in_memory = true, .tried = true, .asked_bytes = 4 * MIB, .given_bytes = 4 * MIB};
    expect(tb_judge_huge_pages(&h), TB_MARK_FINE, "gives huge pages", "");
    h.given_bytes = 2 * MIB;
    expect(tb_judge_huge_pages(&h), TB_MARK_WARNING, "no huge pages", "vm.nr_hugepages");
    (void)snprintf(h.shmem, sizeof h.shmem, "always within_size advise never [deny] force");
    expect(tb_judge_huge_pages(&h), TB_MARK_WARNING, "no huge pages", "shmem_enabled");
    h.tried = false;
    assert_int_equal(tb_judge_huge_pages(&h).mark, TB_MARK_UNKNOWN);
    h.arena_bytes = 100 * MIB;
    h.huge_bytes = 90 * MIB;
    expect(tb_judge_huge_pages(&h), TB_MARK_FINE, "stands in huge pages", "");
    h.huge_bytes = 89 * MIB;
    expect(tb_judge_huge_pages(&h), TB_MARK_WARNING, "stand in huge pages", "hugetlbfs");
    h.is_hugetlbfs = true;
    expect(tb_judge_huge_pages(&h), TB_MARK_FINE, "hugetlbfs", "");
    h.in_memory = false;
    assert_int_equal(tb_judge_huge_pages(&h).mark, TB_MARK_SKIPPED);
}

static void low_memlock_is_named(void **state)
{
    (void)state;
    struct tb_memlock_facts m = {
        .known = true, .of_gateway = true, .bytes = 2 * MIB, .arena_bytes = 64 * MIB};
    expect(tb_judge_memlock(&m), TB_MARK_FINE, "the gateway may lock 2097152 bytes", "");
    m.bytes--;
    expect(tb_judge_memlock(&m), TB_MARK_WRONG, "keys need", "LimitMEMLOCK=64M");
    m.bytes = 64 * MIB;
    m.pins = true;
    expect(tb_judge_memlock(&m), TB_MARK_FINE, "the gateway may lock", "");
    m.bytes--;
    expect(tb_judge_memlock(&m), TB_MARK_WRONG, "RDMA pins the arena", "LimitMEMLOCK=infinity");
    m.unlimited = true;
    expect(tb_judge_memlock(&m), TB_MARK_FINE, "", "");
    m.known = false;
    assert_int_equal(tb_judge_memlock(&m).mark, TB_MARK_UNKNOWN);
}

/* A unit's limit is another one than that of the shell in which doctor runs. */
static void a_limit_of_this_shell_is_not_the_gateways(void **state)
{
    (void)state;
    struct tb_memlock_facts m = {.known = true, .unlimited = true, .arena_bytes = 64 * MIB};
    expect(tb_judge_memlock(&m), TB_MARK_UNKNOWN, "LimitMEMLOCK of its unit decides: it needs 2", "");
    m.unlimited = false;
    expect(tb_judge_memlock(&m), TB_MARK_UNKNOWN, "LimitMEMLOCK", "");
    m.pins = true;
    expect(tb_judge_memlock(&m), TB_MARK_UNKNOWN, "it needs 67", "");
}

/* Root may take each congestion control, and the gateway's user may be another one. */
static void rights_of_another_user_say_nothing(void **state)
{
    (void)state;
    struct tb_congestion_facts c = {.wish = "auto",
                                    .available = "reno cubic bbr",
                                    .allowed = "reno cubic",
                                    .may_all = true,
                                    .other_user = true};
    expect(tb_judge_congestion(&c), TB_MARK_UNKNOWN, "whether the gateway's user may take it is not known",
           "");
    (void)snprintf(c.allowed, sizeof c.allowed, "reno bbr");
    expect(tb_judge_congestion(&c), TB_MARK_FINE, "bbr is offered", "");
    (void)snprintf(c.available, sizeof c.available, "reno");
    expect(tb_judge_congestion(&c), TB_MARK_WARNING, "bbr is not offered by the kernel", "modprobe");
}

static void a_full_disk_is_named(void **state)
{
    (void)state;
    struct tb_disk_facts d = {.key = "store.path",
                              .path = "/var/lib/tombolo/store.sqlite",
                              .free_bytes = 4096 * MIB,
                              .total_bytes = 40960 * MIB,
                              .needs_bytes = 16 * MIB};
    expect(tb_judge_disk(&d), TB_MARK_FINE, "free", "");
    d.free_bytes = 2047 * MIB; /* under a twentieth */
    expect(tb_judge_disk(&d), TB_MARK_WARNING, "", "store.path: make room");
    d.total_bytes = 512 * MIB;
    d.free_bytes = 255 * MIB;
    expect(tb_judge_disk(&d), TB_MARK_WARNING, "", "store.path: make room");
    d.free_bytes = 16 * MIB - 1;
    expect(tb_judge_disk(&d), TB_MARK_WRONG, "/var/lib/tombolo/store.sqlite", "store.path: make room");
    d.free_bytes = d.total_bytes = 1024 * 1024 * MIB;
    d.read_only = true;
    expect(tb_judge_disk(&d), TB_MARK_WRONG, "read-only", "remount,rw");
    d.error = ENOENT;
    expect(tb_judge_disk(&d), TB_MARK_WRONG, "No such file", "store.path: ");
}

static void a_wrong_owner_is_named(void **state)
{
    (void)state;
    struct tb_owner_facts o = {.path = "/dev/shm/a",
                               .owner = 998,
                               .wanted = 998,
                               .mode = 0600,
                               .owner_name = "tombolo",
                               .wanted_name = "tombolo"};
    expect(tb_judge_arena_owner(&o), TB_MARK_FINE, "belongs to tombolo alone", "");
    o.mode = 0640;
    expect(tb_judge_arena_owner(&o), TB_MARK_WRONG, "mode 0640", "chmod 600 /dev/shm/a");
    o.owner = 0;
    (void)snprintf(o.owner_name, sizeof o.owner_name, "root");
    expect(tb_judge_arena_owner(&o), TB_MARK_WRONG, "belongs to root, and the gateway runs as tombolo",
           "chown tombolo /dev/shm/a");
    o.error = ENOENT;
    expect(tb_judge_arena_owner(&o), TB_MARK_FINE, "not there yet", "");
    o.error = EACCES;
    assert_int_equal(tb_judge_arena_owner(&o).mark, TB_MARK_UNKNOWN);
}

/* ---- devices ---- */

static void ports_of_rdma_are_judged(void **state)
{
    (void)state;
    struct tb_nic_port p = {.device = "mlx5_0",
                            .port = 1,
                            .state = "4: ACTIVE",
                            .layer = "Ethernet",
                            .gids = 4,
                            .routed_gids = 2,
                            .file = "/dev/infiniband/uverbs0"};
    expect(tb_judge_nic_port(&p), TB_MARK_FINE, "mlx5_0 port 1 is active", "");
    p.routed_gids = 0;
    expect(tb_judge_nic_port(&p), TB_MARK_WRONG, "no GID of RoCE v2", "ip addr add");
    (void)snprintf(p.layer, sizeof p.layer, "InfiniBand");
    expect(tb_judge_nic_port(&p), TB_MARK_FINE, "", "");
    p.gids = 0;
    expect(tb_judge_nic_port(&p), TB_MARK_WRONG, "no GID", "subnet manager");
    p.open_error = EACCES;
    expect(tb_judge_nic_port(&p), TB_MARK_WRONG, "may not open /dev/infiniband/uverbs0", "DeviceAllow");
    (void)snprintf(p.state, sizeof p.state, "1: DOWN");
    expect(tb_judge_nic_port(&p), TB_MARK_WRONG, "is 1: DOWN", "ibstat mlx5_0");
    p.state[0] = '\0';
    assert_int_equal(tb_judge_nic_port(&p).mark, TB_MARK_UNKNOWN);
}

static void put(const char *dir, const char *path, const char *text)
{
    assert_true(scratch_put(dir, path, text));
}

/* sysfs as a machine with one port of RoCE shows it: of four places for GIDs two are set. */
static void ports_of_rdma_are_read(void **state)
{
    (void)state;
    char dir[SCRATCH_BYTES];
    struct tb_nic_port ports[TB_NIC_PORTS_MAX];
    assert_true(scratch_folder(dir, sizeof dir, "sysfs"));
    put(dir, "mlx5_0/ports/1/state", "4: ACTIVE\n");
    put(dir, "mlx5_0/ports/1/link_layer", "Ethernet\n");
    put(dir, "mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:1234:56ff:fe78:9abc\n");
    put(dir, "mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1\n");
    put(dir, "mlx5_0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    put(dir, "mlx5_0/ports/1/gid_attrs/types/1", "RoCE v2\n");
    put(dir, "mlx5_0/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
    put(dir, "mlx5_0/device/infiniband_verbs/uverbs63/dev", "231:255\n");
    assert_int_equal(tb_nic_ports_read(dir, ports), 1);
    assert_string_equal(ports[0].device, "mlx5_0");
    assert_int_equal(ports[0].gids, 2);
    assert_int_equal(ports[0].routed_gids, 1);
    assert_string_equal(ports[0].file, "/dev/infiniband/uverbs63");
    assert_int_equal(ports[0].open_error, ENOENT);
    assert_true(scratch_remove(dir));
    assert_int_equal(tb_nic_ports_read(dir, ports), 0);
}

static void gpus_are_judged(void **state)
{
    (void)state;
    struct tb_driver_facts g = {.present = false};
    assert_int_equal(tb_judge_gpu(&g).mark, TB_MARK_SKIPPED);
    assert_int_equal(tb_judge_dmabuf(&g, 1).mark, TB_MARK_SKIPPED);
    g.present = true;
    expect(tb_judge_gpu(&g), TB_MARK_WRONG, "libcuda.so.1 cannot be opened", "libcuda");
    g.library = true;
    g.init_result = 100;
    expect(tb_judge_gpu(&g), TB_MARK_WRONG, "cuInit gave 100", "nvidia-smi");
    g.init_result = 0;
    g.count = 2;
    g.dmabuf = 1;
    expect(tb_judge_gpu(&g), TB_MARK_FINE, "2 GPUs", "");
    expect(tb_judge_dmabuf(&g, 1), TB_MARK_WARNING, "1 of 2", "open kernel modules");
    assert_int_equal(tb_judge_dmabuf(&g, 0).mark, TB_MARK_SKIPPED);
    g.dmabuf = 2;
    expect(tb_judge_dmabuf(&g, 1), TB_MARK_FINE, "all 2", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_that_nothing_keeps_is_named),
        cmocka_unit_test(certificates_have_days),
        cmocka_unit_test(a_small_window_is_named),
        cmocka_unit_test(a_congestion_control_that_is_not_there_is_named),
        cmocka_unit_test(huge_pages_are_asked_for),
        cmocka_unit_test(low_memlock_is_named),
        cmocka_unit_test(a_limit_of_this_shell_is_not_the_gateways),
        cmocka_unit_test(rights_of_another_user_say_nothing),
        cmocka_unit_test(a_full_disk_is_named),
        cmocka_unit_test(a_wrong_owner_is_named),
        cmocka_unit_test(ports_of_rdma_are_judged),
        cmocka_unit_test(ports_of_rdma_are_read),
        cmocka_unit_test(gpus_are_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
