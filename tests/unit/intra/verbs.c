/* verbs.c - queue pairs that break, devices and processes that die, memory of devices; and the
 * program of verbs_suite.h, over rdma_rxe (sim/vm); 77 where there is no RDMA.
 *
 * Two things that rxe cannot do are injected: a device's events through tb_verbs_device_event,
 * dma-buf through tb_region_replace_dmabuf. All else is real.
 *
 * Covers: intra/verbs/nic.c intra/verbs/region.c intra/verbs/upstream.c
 * Covers: intra/verbs/upstream_path.c intra/verbs/upstream_reads.c intra/verbs/verbs_door.c */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "far_place.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/transport/transport_words.h"
#include "tests/unit/scratch.h"
#include "verbs_suite.h"

static const struct way way = {
    .name = "verbs", .transport = TB_TRANSPORT_VERBS, .memory = MEMORY_OWN, .clear = true};

void verbs_open(struct scene *s, uint32_t tensors)
{
    scene_open(s, &way, tensors, 1200000, 0);
    log_catch();
}

struct tb_hop *verbs_hop(struct scene *s, enum tb_transport transport)
{
    struct tb_hop *hop = NULL;
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    options.transport = transport;
    if (transport == TB_TRANSPORT_NONE) assert_int_equal(tb_name_set(&options.from.host, "elsewhere"), TB_OK);
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    return hop;
}

void verbs_close(struct scene *s)
{
    log_release();
    scene_close(s);
}

void must(bool right, const char *what)
{
    if (right) return;
    fprintf(stderr, "[  FAILED  ] on the fabric's thread: %s: %s\n", what, strerror(errno));
    abort();
}

/* ---- queue pairs and devices ---- */

static void fail_queues(struct tb_fabric *f, void *arg)
{
    (void)arg;
    struct tb_verbs_queue *q;
    LIST_FOREACH(q, &f->verbs->queues, link)
    tb_verbs_queue_fail(q);
}

static void device_tells(struct tb_fabric *f, void *arg)
{
    tb_verbs_device_event(&f->verbs->nics[0], *(enum ibv_event_type *)arg, 0);
}

static void device_event(struct tb_fabric *f, enum ibv_event_type event)
{
    tb_fabric_call(f, device_tells, &event);
}

static void queue_breaks_at(struct scene *s, struct tb_fabric *where)
{
    const uint32_t n = s->cargo.manifest.chunk_count;
    owner_hold(&s->owner, 0, n / 2);
    struct tb_hop *hop = verbs_hop(s, TB_TRANSPORT_VERBS);
    wait_until(tb_place_held_count(&s->hold.place) == n / 2);
    tb_fabric_call(where, fail_queues, NULL);
    tale_wait_lost(&s->tale);
    assert_int_equal(told(&s->tale).why, TB_STREAM_IO);
    tb_hop_close(hop);
    wait_until(tb_export_readers(s->owner.fabric, EXPORT_ID) == 0);
}

/* A hop went by tcp when it opened, and brings a chunk more. */
static void comes_by_tcp(struct scene *s, uint32_t opened)
{
    const uint32_t held = tb_place_held_count(&s->hold.place);
    tale_wait(&s->tale, &s->tale.told.opened, opened);
    assert_int_equal(told(&s->tale).transport, TB_TRANSPORT_TCP);
    owner_hold(&s->owner, held, held + 1);
    wait_until(tb_place_held_count(&s->hold.place) == held + 1);
}

/* It goes by RDMA now, of itself, and brings the rest. */
static void goes_on_by_rdma(struct scene *s, uint32_t opened)
{
    tale_wait(&s->tale, &s->tale.told.opened, opened);
    assert_int_equal(told(&s->tale).transport, TB_TRANSPORT_VERBS);
    owner_hold_all(&s->owner);
    wait_until(tb_place_whole(&s->hold.place));
}

/* The queue pair breaks, its source is well: the path rests, then carries the rest of the version
 * for the hop that went by tcp meanwhile. */
void P6_a_broken_queue_pair_rests_its_path(void **state)
{
    (void)state;
    for (int at_owner = 0; at_owner < 2; at_owner++) {
        struct scene s;
        verbs_open(&s, 6);
        queue_breaks_at(&s, at_owner ? s.owner.fabric : s.reader);
        assert_int_equal(log_lines("verbs.broken", "hop_ends"), 1);
        struct tb_hop *hop = verbs_hop(&s, TB_TRANSPORT_NONE);
        comes_by_tcp(&s, 2);
        goes_on_by_rdma(&s, 3);
        assert_int_equal(told(&s.tale).lost, 1); /* the first hop alone */
        tb_hop_close(hop);
        verbs_close(&s);
    }
}

/* DEVICE_FATAL, injected: rxe's device does not die. */
void P6_a_dead_device_is_left(void **state)
{
    (void)state;
    for (int at_owner = 0; at_owner < 2; at_owner++) {
        struct scene s;
        verbs_open(&s, 6);
        verbs_memory_stays(&s);
        const uint32_t n = s.cargo.manifest.chunk_count;
        owner_hold(&s.owner, 0, n / 2);
        struct tb_hop *hop = verbs_hop(&s, TB_TRANSPORT_VERBS);
        wait_until(tb_place_held_count(&s.hold.place) == n / 2);
        device_event(at_owner ? s.owner.fabric : s.reader, IBV_EVENT_DEVICE_FATAL);
        tale_wait_lost(&s.tale);
        tb_hop_close(hop);
        assert_int_equal(log_lines("verbs.device", "not_used_until_restart"), 1);
        owner_hold_all(&s.owner);
        hop = verbs_hop(&s, TB_TRANSPORT_NONE);
        wait_until(tb_place_whole(&s.hold.place));
        assert_int_equal(told(&s.tale).transport, TB_TRANSPORT_TCP);
        tb_hop_close(hop);
        tb_export_close(s.owner.fabric, EXPORT_ID, 0); /* returns */
        assert_int_equal(verbs_pinned(s.reader).regions, at_owner ? 1 : 0);
        assert_int_equal(verbs_pinned(s.owner.fabric).regions, at_owner ? 0 : 1);
        verbs_close(&s);
    }
}

/* Of the reader it is heard that its port is up; at the owner it is looked for. */
void P6_a_port_that_is_down_rests_until_it_is_up(void **state)
{
    (void)state;
    for (int at_owner = 0; at_owner < 2; at_owner++) {
        struct scene s;
        verbs_open(&s, 2);
        struct tb_fabric *where = at_owner ? s.owner.fabric : s.reader;
        device_event(where, IBV_EVENT_PORT_ERR);
        struct tb_hop *hop = verbs_hop(&s, TB_TRANSPORT_NONE);
        comes_by_tcp(&s, 1);
        device_event(where, IBV_EVENT_PORT_ACTIVE);
        goes_on_by_rdma(&s, 2);
        assert_int_equal(told(&s.tale).lost, 0);
        tb_hop_close(hop);
        verbs_close(&s);
    }
}

/* ---- a source that dies ---- */

/* The other process: a whole version, until it is killed. */
static void serve(const struct cargo *cargo, int from, int to)
{
    struct owner owner;
    struct tb_fingerprint reader;
    struct {
        struct tb_fabric_endpoint endpoint;
        struct tb_source_shard shard;
        struct tb_id token;
    } letter;
    owner_open(&owner, &way, cargo, 0);
    owner_hold_all(&owner);
    if (read(from, &reader, sizeof reader) != sizeof reader) _exit(1);
    letter.endpoint = owner.endpoint;
    letter.shard = owner.shard;
    letter.token = (struct tb_id){{4, 5, 6}};
    if (tb_export_grant(owner.fabric, EXPORT_ID, &letter.token, &reader) != TB_OK) _exit(1);
    if (write(to, &letter, sizeof letter) != sizeof letter) _exit(1);
    for (;;)
        pause();
}

/* kill -9 of the source with READs in flight: LOST, nothing half is held. */
void P6_a_peer_killed_in_mid_read(void **state)
{
    (void)state;
    struct cargo cargo;
    struct hold hold;
    struct tale tale;
    struct {
        struct tb_fabric_endpoint endpoint;
        struct tb_source_shard shard;
        struct tb_id token;
    } letter;
    int there[2], back[2];
    cargo_make(&cargo, 24, 1200000);
    assert_int_equal(pipe(there), 0);
    assert_int_equal(pipe(back), 0);
    const pid_t child = scratch_fork();
    if (child == 0) serve(&cargo, there[0], back[1]);
    assert_true(child > 0);
    struct tb_fabric *reader = fabric_make(&way, 0);
    struct tb_fabric_endpoint me;
    hold_make(&hold, &cargo);
    tale_init(&tale);
    tb_fabric_endpoint(reader, &me);
    assert_int_equal(write(there[1], &me.fingerprint, sizeof me.fingerprint), sizeof me.fingerprint);
    assert_int_equal(read(back[0], &letter, sizeof letter), sizeof letter);
    const struct tb_hop_place place = {.shard = 3, .place = &hold.place};
    const struct tb_hop_options options = {.export_id = EXPORT_ID,
                                           .token = letter.token,
                                           .from = letter.endpoint,
                                           .transport = TB_TRANSPORT_VERBS,
                                           .source = &letter.shard,
                                           .source_count = 1,
                                           .places = &place,
                                           .place_count = 1,
                                           .fn = tale_fn,
                                           .user = &tale};
    struct tb_hop *hop = NULL;
    assert_int_equal(tb_hop_open(reader, &options, &hop), TB_OK);
    wait_until(tb_place_held_count(&hold.place) > 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    tale_wait_lost(&tale);
    assert_int_equal(told(&tale).bad, 0);
    tb_hop_close(hop);
    hold_check(&hold, &cargo);
    tb_fabric_close(reader);
    hold_free(&hold);
    cargo_free(&cargo);
    tale_fini(&tale);
    for (int i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
}

/* ---- device memory ---- */

#define DEVICE_FD     1234
#define DEVICE_OFFSET 8192u

static uint8_t *device_memory;

/* As ibv_reg_dmabuf_mr does for memory of a device. */
static struct ibv_mr *register_device(struct ibv_pd *domain, uint64_t offset, size_t count, uint64_t iova,
                                      int fd, int access)
{
    must(fd == DEVICE_FD, "the descriptor");
    return ibv_reg_mr_iova(domain, device_memory + offset, count, iova, (unsigned)access);
}

static struct ibv_mr *register_refused(struct ibv_pd *domain, uint64_t offset, size_t count, uint64_t iova,
                                       int fd, int access)
{
    (void)domain, (void)offset, (void)count, (void)iova, (void)fd, (void)access;
    errno = EOPNOTSUPP;
    return NULL;
}

/* The device has the version's bytes, its copy in host memory too, but for one chunk. */
static void read_device(tb_region_dmabuf_fn fn, bool staged)
{
    struct scene s;
    verbs_open(&s, 2);
    const uint64_t bytes = s.cargo.manifest.bytes;
    device_memory = aligned_alloc(4096, (DEVICE_OFFSET + bytes + 4095) / 4096 * 4096);
    assert_non_null(device_memory);
    memcpy(device_memory + DEVICE_OFFSET, s.cargo.bytes, bytes);
    uint8_t *host = malloc(bytes);
    memcpy(host, s.cargo.bytes, bytes);
    if (!staged) memset(host, 0x66, 1000);
    const struct tb_export_device device = {.dmabuf = DEVICE_FD, .offset = DEVICE_OFFSET};
    const struct tb_export_buffer buffer = {.bytes = host, .count = bytes, .memfd = -1, .device = &device};
    const struct tb_export_options options = {.export_id = EXPORT_ID, .buffers = &buffer, .buffer_count = 1};
    tb_export_close(s.owner.fabric, EXPORT_ID, 0);
    assert_int_equal(tb_export_open(s.owner.fabric, &options), TB_OK);
    s.owner.shard = (struct tb_source_shard){.shard = 3, .held_buffer = TB_SOURCE_ALL_HELD};
    tb_region_replace_dmabuf(fn);
    struct tb_hop *hop = verbs_hop(&s, TB_TRANSPORT_VERBS);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    assert_int_equal(log_lines("verbs.staged", "host_copy_is_read"), staged ? 1 : 0);
    tb_export_close(s.owner.fabric, EXPORT_ID, 0);
    tb_region_replace_dmabuf(NULL);
    free(host);
    free(device_memory);
    verbs_close(&s);
}

void device_memory_is_read_by_its_dmabuf(void **state)
{
    (void)state;
    read_device(register_device, false);
}

struct look {
    const char *root_port; /* of the only NIC */
    bool far;
};

static void look_at_rails(struct tb_fabric *f, void *arg)
{
    struct look *look = arg;
    struct tb_rail rails[TB_RAILS_MAX];
    uint16_t port;
    struct tb_rail_spot *spot = &f->verbs->rails.rails[0].spot;
    spot->node = 1;
    (void)snprintf(spot->root_port, sizeof spot->root_port, "%s", look->root_port);
    (void)tb_verbs_rails(f->verbs, tb_exports_find(&f->exports, EXPORT_ID), rails, &port);
    look->far = rails[0].far;
}

/* Behind the GPU's switch, though sysfs says another node; else the node counts: the GPU's, not
 * that of the copy in host memory. The GPU is a folder that is found where devices are. */
void a_gpus_memory_is_shown_by_the_nics_beside_it(void **state)
{
    (void)state;
    static uint8_t host[4096];
    struct scene s;
    char folder[SCRATCH_BYTES], pci[160];
    verbs_open(&s, 1);
    assert_true(scratch_folder(folder, sizeof folder, "gpu"));
    assert_true(scratch_put(folder, "pci0000:15/0000:15:01.0/0000:18:00.0/numa_node", "2\n"));
    (void)snprintf(pci, sizeof pci, "../../../..%s/pci0000:15/0000:15:01.0/0000:18:00.0", folder);
    const struct tb_export_device device = {.dmabuf = DEVICE_FD, .pci = pci};
    const struct tb_export_buffer buffers[] = {
        {.bytes = host, .count = sizeof host, .memfd = -1},
        {.bytes = host, .count = sizeof host, .memfd = -1, .device = &device}};
    const struct tb_export_options options = {.export_id = EXPORT_ID, .buffers = buffers, .buffer_count = 2};
    tb_export_close(s.owner.fabric, EXPORT_ID, 0);
    assert_int_equal(tb_export_open(s.owner.fabric, &options), TB_OK);
    struct look beside = {.root_port = "0000:15:01.0"}, elsewhere = {.root_port = "0000:97:01.0"};
    tb_fabric_call(s.owner.fabric, look_at_rails, &beside);
    tb_fabric_call(s.owner.fabric, look_at_rails, &elsewhere);
    assert_false(beside.far);
    assert_true(elsewhere.far);
    tb_export_close(s.owner.fabric, EXPORT_ID, 0);
    assert_true(scratch_remove(folder));
    verbs_close(&s);
}

void where_dmabuf_fails_the_host_copy_is_read(void **state)
{
    (void)state;
    read_device(register_refused, true);
    read_device(NULL, true); /* rxe's own word for it */
}

/* The one rail of a reader: at NUMA node 1. */
static void put_rail(struct tb_fabric *f, void *arg)
{
    (void)arg;
    f->verbs->rails.rails[0].spot = (struct tb_rail_spot){.node = 1};
}

static void rail_is_far(struct tb_fabric *f, void *arg)
{
    *(bool *)arg = f->verbs->rails.rails[0].far;
}

/* A GPU of node 2, as sysfs has it. */
static const char *gpu_of_node_two(char *folder, size_t folder_bytes, char *pci, size_t pci_bytes)
{
    assert_true(scratch_folder(folder, folder_bytes, "gpu"));
    assert_true(scratch_put(folder, "0000:18:00.0/numa_node", "2\n"));
    (void)snprintf(pci, pci_bytes, "../../../..%s/0000:18:00.0", folder);
    return pci;
}

/* A place on a device: what is not blobs is written there by the NIC, at the address that its
 * dma-buf gives it, and its owner is asked what stands there; or, where the dma-buf is refused, all
 * of it lands in memory of the host, and goes there. */
static void write_device(tb_region_dmabuf_fn fn, bool refused)
{
    struct scene s;
    struct far_place far;
    char folder[SCRATCH_BYTES], pci[160];
    bool is_far = false;
    verbs_open(&s, 2);
    far_place_open(&far, &s.hold);
    far.far.pci = gpu_of_node_two(folder, sizeof folder, pci, sizeof pci);
    tb_fabric_call(s.reader, put_rail, NULL);
    device_memory = far.memory;
    far.far.dmabuf = DEVICE_FD;
    far.far.dmabuf_offset = FAR_PLACE_OFFSET;
    tb_region_replace_dmabuf(fn);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = verbs_hop(&s, TB_TRANSPORT_VERBS);
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).transport, TB_TRANSPORT_VERBS);
    tb_fabric_call(s.reader, rail_is_far, &is_far);
    assert_true(is_far);
    tb_hop_close(hop);
    assert_true(scratch_remove(folder));
    uint32_t chunks = 0;
    for (uint32_t k = 0; k < s.cargo.manifest.chunk_count; k++)
        chunks += s.cargo.manifest.chunks[k].offset < s.cargo.manifest.layout.bytes;
    assert_int_equal(atomic_load(refused ? &far.brought : &far.found), chunks);
    assert_int_equal(atomic_load(refused ? &far.found : &far.brought), 0);
    assert_int_equal(log_lines("verbs.bounced", "lands_in_host_memory"), refused ? 1 : 0);
    tb_region_replace_dmabuf(NULL);
    far_place_close(&far, &s.hold);
    verbs_close(&s);
}

void a_target_in_device_memory_is_written_by_its_dmabuf(void **state)
{
    (void)state;
    write_device(register_device, false);
}

void where_its_dmabuf_fails_a_target_is_brought_there(void **state)
{
    (void)state;
    write_device(register_refused, true);
    write_device(NULL, true); /* rxe's own word for it */
}

/* ---- idle ---- */

static void note_looks(struct tb_fabric *f, void *arg)
{
    *(uint64_t *)arg = f->verbs->looks;
}

/* A hop that is open and has nothing to read looks for its source's bitmap now and then, and once
 * for each of those READs at its completion queue: it sleeps in between, and burns no core. */
void an_idle_fabric_burns_no_core(void **state)
{
    (void)state;
    struct scene s;
    uint64_t before = 0, after = 0;
    verbs_open(&s, 1);
    struct tb_hop *hop = verbs_hop(&s, TB_TRANSPORT_VERBS);
    tale_wait_opened(&s.tale);
    const tb_time_ns opened = tb_clock_now();
    wait_until(tb_clock_now() - opened > TB_SECONDS(1));
    tb_fabric_call(s.reader, note_looks, &before);
    const tb_time_ns from = tb_clock_now();
    wait_until(tb_clock_now() - from > TB_SECONDS(2));
    tb_fabric_call(s.reader, note_looks, &after);
    print_message("idle: %.0f looks a second\n", (double)(after - before) / 2);
    /* After a second a hop whose source has shown nothing polls each 16 to 20 ms, and looks once or
     * twice for each; one that spins looks some hundred thousand times a second. */
    assert_in_range(after - before, 1, 2 * 500);
    tb_hop_close(hop);
    verbs_close(&s);
}

int main(int argc, char **argv)
{
#define TEST(test) cmocka_unit_test(test),
    const struct CMUnitTest tests[] = {VERBS_TESTS(TEST)};
#undef TEST
    if (!rdma_is_here()) return 77;
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
