/* emulator.c - tombolo-wan-emulator: the user-space hops between the sites of a scenario.
 *
 * Each site's namespace has one TUN device, and each site one thread: it reads what the site sends, asks path.h for each packet's
 * fate, keeps it until it is due and writes it into the other site's device. sim/wan/wanlab.py makes the namespaces and starts this;
 * it ends when its standard input does, so it cannot outlive who started it, and its devices end with it.
 *
 * Nothing is allocated while packets pass. The kernel hands TCP over in batches; segments.h cuts them into the packets of the wire,
 * whose fates are their own, and joins again what is due together, stream by stream. A link at work is served by ticks: most of what a
 * packet costs here is the other site's TCP, which runs inside of the write, and a tick's packets are one write a stream. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/fault.h"
#include "sim/wan/scenario.h"
#include "sim/wan/segments.h"

#define DEVICE        "wan0"
#define BATCH         16  /* reads before what is due is looked at again */
#define JOIN_MAX      64  /* packets written at once */
#define PARCELS_MAX   16  /* streams whose packets are joined at once */
#define ROUND_MAX     512 /* packets delivered before the device is read again */
#define BUSY_BATCH    8 /* as many at once: a link at work, which is served by ticks rather than by packets */
#define TICK_SHARE    64 /* a tick is this part of the shortest delay from the site, ... */
#define TICK_NS_MIN   100000
#define TICK_NS_MAX   400000 /* ... within these */
#define NAP_NS_MIN    20000  /* what is due sooner waits for company */
#define NO_SLOT       UINT32_MAX
#define SLOTS_MIN     8192
#define SLOTS_TOUCHED 2048
#define SLOTS_MAX     262144
#define LATE_US       2000 /* a packet that much later than due is late, ... */
#define LATE_SHARE    100  /* ... and one late packet in so many voids the run */
#define LATE_BUCKETS  24   /* bucket i: below 2^i us */
#define DEVICE_SHARE  1000 /* one packet in so many dropped by a device that nobody read voids it as well */

struct due {
    int64_t at;
    uint64_t order; /* first come first served among equals */
    uint32_t slot;
};

/* What lies in a slot before the packet. */
struct slot_head {
    int64_t at;    /* when it is due */
    uint32_t next; /* behind it in its lane */
    uint32_t bytes, to;
    bool joinable; /* TCP as its sender made it */
    struct virtio_net_hdr net;
};

/* Packets for one site in the order in which they came, each due no sooner than the one before. */
struct lane {
    uint32_t first, last; /* NO_SLOT: empty */
};

/* Packets for one site that are written at once: payload by payload behind one header, or a single one as it is. */
struct parcel {
    struct tb_segments_run run;
    struct virtio_net_hdr net;
    struct iovec parts[JOIN_MAX + 2];
    uint32_t slots[JOIN_MAX];
    uint32_t count, to;
    bool open; /* more may join */
};

/* What the emulator is judged by. */
struct toll {
    uint64_t delivered, late, dropped, no_slot;
};

struct world;

struct site {
    struct world *world;
    uint32_t index;
    int netns, tun;
    pthread_t thread;
    bool running;
    uint8_t *slots;
    size_t slot_bytes;
    uint32_t slot_count, *unused, unused_count;
    struct lane lanes[TB_SCENARIO_SITES_MAX]; /* by destination; what overtakes is in the heap */
    struct due *heap;
    uint32_t heap_count;
    uint64_t order;
    int64_t tick_ns;
    struct parcel parcels[PARCELS_MAX]; /* being filled */
    uint32_t parcel_count;
    uint8_t batch[sizeof(struct virtio_net_hdr) + TB_SEGMENTS_BYTES_MAX + 1]; /* as read */
    struct toll last_toll; /* when the counters were written last */
    atomic_ullong delivered, late[LATE_BUCKETS], late_us_max, no_slot, strange, write_failed;
};

struct world {
    struct tb_scenario scenario;
    struct tb_path paths[TB_SCENARIO_PATHS_MAX];
    struct tb_path_queue queues[TB_SCENARIO_PATHS_MAX];
    pthread_mutex_t locks[TB_SCENARIO_PATHS_MAX];              /* of a queue and the paths that share it */
    int path_of[TB_SCENARIO_SITES_MAX][TB_SCENARIO_SITES_MAX]; /* -1: none */
    struct site sites[TB_SCENARIO_SITES_MAX];
    int64_t began;
    uint64_t seed;
    int stop_fd, home_netns;
    atomic_bool stop;
    bool priority;
    const char *counters;
};

static struct world the_world;

static int64_t clock_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- what is under way ---------------------------------------------------------------------------------------------- */

static bool before(const struct due *a, const struct due *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void heap_push(struct site *s, struct due d)
{
    uint32_t i = s->heap_count++;
    for (; i > 0 && before(&d, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = d;
}

static struct due heap_pop(struct site *s)
{
    const struct due top = s->heap[0], last = s->heap[--s->heap_count];
    uint32_t i = 0;
    for (uint32_t child = 1; child < s->heap_count; child = 2 * i + 1) {
        if (child + 1 < s->heap_count && before(&s->heap[child + 1], &s->heap[child])) child++;
        if (!before(&s->heap[child], &last)) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

static struct slot_head *slot_at(const struct site *s, uint32_t slot)
{
    return (struct slot_head *)(void *)(s->slots + (size_t)slot * s->slot_bytes);
}

/* The packet in the slot is due at `at`. A lane takes what comes in order, at no cost; a heap of a BDP's packets would miss the cache at
 * each of its levels. */
static void put_under_way(struct site *s, uint32_t slot, int64_t at)
{
    struct slot_head *head = slot_at(s, slot);
    struct lane *lane = &s->lanes[head->to];
    head->at = at;
    head->next = NO_SLOT;
    if (lane->first == NO_SLOT) {
        lane->first = lane->last = slot;
    } else if (slot_at(s, lane->last)->at <= at) {
        slot_at(s, lane->last)->next = slot;
        lane->last = slot;
    } else {
        heap_push(s, (struct due){.at = at, .order = s->order++, .slot = slot});
    }
}

/* When the next packet is due, and the lane it is in (NULL: the heap). INT64_MAX: nothing is under way. Of two that are due at once the lane's
 * came first. */
static int64_t next_due(struct site *s, struct lane **lane_out)
{
    int64_t at = INT64_MAX;
    *lane_out = NULL;
    for (struct lane *l = s->lanes; l < s->lanes + s->world->scenario.site_count; l++) {
        if (l->first == NO_SLOT || slot_at(s, l->first)->at >= at) continue;
        at = slot_at(s, l->first)->at;
        *lane_out = l;
    }
    if (s->heap_count == 0 || s->heap[0].at >= at) return at;
    *lane_out = NULL;
    return s->heap[0].at;
}

static uint32_t take_due(struct site *s, struct lane *lane)
{
    if (lane == NULL) return heap_pop(s).slot;
    const uint32_t slot = lane->first;
    lane->first = slot_at(s, slot)->next;
    if (lane->first != NO_SLOT) __builtin_prefetch(slot_at(s, lane->first));
    return slot;
}

/* ---- packets ------------------------------------------------------------------------------------------------------- */

static void note_lateness(struct site *s, int64_t late_ns)
{
    const uint64_t us = late_ns > 0 ? (uint64_t)late_ns / 1000 : 0;
    uint32_t bucket = 0;
    while (bucket + 1 < LATE_BUCKETS && us >> bucket != 0)
        bucket++;
    atomic_fetch_add_explicit(&s->late[bucket], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->delivered, 1, memory_order_relaxed);
    if (us > atomic_load_explicit(&s->late_us_max, memory_order_relaxed))
        atomic_store_explicit(&s->late_us_max, us, memory_order_relaxed);
}

static void parcel_begin(const struct site *s, struct parcel *p, uint32_t slot)
{
    struct slot_head *head = slot_at(s, slot);
    p->to = head->to;
    p->net = head->net;
    p->slots[0] = slot;
    p->count = 1;
    p->open = head->joinable && tb_segments_open(&p->run, (const uint8_t *)(head + 1), head->bytes);
    p->parts[0] = (struct iovec){&p->net, sizeof p->net};
    p->parts[1] = (struct iovec){p->run.header, p->run.header_bytes};
    p->parts[2] =
        (struct iovec){(uint8_t *)(head + 1) + p->run.header_bytes, head->bytes - p->run.header_bytes};
    if (!p->open) p->parts[1] = (struct iovec){head + 1, head->bytes};
}

static bool parcel_add(const struct site *s, struct parcel *p, uint32_t slot)
{
    struct slot_head *head = slot_at(s, slot);
    uint8_t *packet = (uint8_t *)(head + 1);
    if (!p->open || !head->joinable || head->to != p->to || p->count == JOIN_MAX) return false;
    if (!tb_segments_join(&p->run, packet, head->bytes)) return false;
    p->parts[2 + p->count] = (struct iovec){packet + p->run.header_bytes, head->bytes - p->run.header_bytes};
    p->slots[p->count++] = slot;
    return true;
}

static void parcel_write(struct site *s, struct parcel *p)
{
    if (p->open) tb_segments_close(&p->run);
    if (p->count > 1) {
        p->net.gso_type = VIRTIO_NET_HDR_GSO_TCPV4;
        p->net.gso_size = (uint16_t)p->run.segment_bytes;
        p->net.hdr_len = (uint16_t)p->run.header_bytes;
    }
    const int parts = p->open ? (int)p->count + 2 : 2;
    const int64_t now = clock_ns() - s->world->began;
    for (uint32_t i = 0; i < p->count; i++)
        note_lateness(s, now - slot_at(s, p->slots[i])->at);
    if (writev(s->world->sites[p->to].tun, p->parts, parts) < 0)
        atomic_fetch_add_explicit(&s->write_failed, p->count, memory_order_relaxed);
    for (uint32_t i = 0; i < p->count; i++)
        s->unused[s->unused_count++] = p->slots[i];
}

static void write_parcels(struct site *s)
{
    for (struct parcel *p = s->parcels; p < s->parcels + s->parcel_count; p++)
        parcel_write(s, p);
    s->parcel_count = 0;
}

/* The parcel of the packet's stream, or NULL. */
static struct parcel *parcel_of(struct site *s, uint32_t slot)
{
    const struct slot_head *head = slot_at(s, slot);
    for (struct parcel *p = s->parcels; head->joinable && p < s->parcels + s->parcel_count; p++)
        if (p->to == head->to && tb_segments_same_stream(&p->run, (const uint8_t *)(head + 1), head->bytes))
            return p;
    return NULL;
}

/* Streams may overtake one another within a tick; the packets of one stream do not, and what is no stream overtakes nothing. */
static void deliver(struct site *s, uint32_t slot)
{
    struct parcel *p = parcel_of(s, slot);
    if (p != NULL && parcel_add(s, p, slot)) return;
    if (p != NULL) {
        parcel_write(s, p);
    } else {
        if (s->parcel_count == PARCELS_MAX) write_parcels(s);
        p = &s->parcels[s->parcel_count++];
    }
    parcel_begin(s, p, slot);
    if (!p->open) write_parcels(s);
}

/* How many packets were due. */
static uint32_t deliver_due(struct site *s)
{
    const int64_t now = clock_ns() - s->world->began;
    struct lane *lane = NULL;
    uint32_t count = 0;
    for (; count < ROUND_MAX && next_due(s, &lane) <= now; count++)
        deliver(s, take_due(s, lane));
    write_parcels(s);
    return count;
}

/* The path that an IPv4 packet takes by its destination's last byte, or NULL. */
static struct tb_path *path_for(const struct site *s, const uint8_t *packet, uint32_t bytes, uint32_t *to_out,
                                uint32_t *queue_out)
{
    if (bytes < 20 || packet[0] >> 4 != 4) return NULL;
    *to_out = (uint32_t)packet[19] - 1;
    if (*to_out >= s->world->scenario.site_count) return NULL;
    const int path = s->world->path_of[s->index][*to_out];
    if (path < 0) return NULL;
    *queue_out = s->world->scenario.paths[path].queue;
    return &s->world->paths[path];
}

/* The second of two: a copy, if there is room for one. */
static void keep_twin(struct site *s, const struct slot_head *head, int64_t at)
{
    if (s->unused_count == 0) {
        atomic_fetch_add_explicit(&s->no_slot, 1, memory_order_relaxed);
        return;
    }
    const uint32_t twin = s->unused[--s->unused_count];
    memcpy(slot_at(s, twin), head, sizeof *head + head->bytes);
    put_under_way(s, twin, at);
}

/* What the wire flips is found by a checksum that was made before. */
static void flip(struct slot_head *head, uint32_t bit)
{
    uint8_t *packet = (uint8_t *)(head + 1);
    if (head->net.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
        (void)tb_segments_checksum(packet, head->bytes, head->net.csum_start, head->net.csum_offset);
    head->net = (struct virtio_net_hdr){0};
    head->joinable = false;
    packet[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* Whether the packet in the slot, whose head is filled in but for `to`, was kept. */
static bool take_packet(struct site *s, uint32_t slot, int64_t now)
{
    struct slot_head *head = slot_at(s, slot);
    uint32_t to = 0, queue = 0;
    struct tb_path *path = path_for(s, (const uint8_t *)(head + 1), head->bytes, &to, &queue);
    if (path == NULL) {
        atomic_fetch_add_explicit(&s->strange, 1, memory_order_relaxed);
        return false;
    }
    (void)pthread_mutex_lock(&s->world->locks[queue]);
    const struct tb_path_verdict v = tb_path_decide(path, now, head->bytes);
    (void)pthread_mutex_unlock(&s->world->locks[queue]);
    if (v.fate != TB_PATH_ARRIVES) return false;
    head->to = to;
    if (v.flip) flip(head, v.flip_bit);
    put_under_way(s, slot, v.arrival);
    if (v.twice) keep_twin(s, head, v.arrival);
    return true;
}

static void take(struct site *s, uint32_t slot, int64_t now)
{
    if (!take_packet(s, slot, now)) s->unused[s->unused_count++] = slot;
}

/* A free slot, or NULL, counted. */
static struct slot_head *take_slot(struct site *s, uint32_t *slot_out)
{
    if (s->unused_count == 0) {
        atomic_fetch_add_explicit(&s->no_slot, 1, memory_order_relaxed);
        return NULL;
    }
    *slot_out = s->unused[--s->unused_count];
    return slot_at(s, *slot_out);
}

/* A batch of TCP, packet by packet. */
static void take_batch(struct site *s, const struct virtio_net_hdr *net, const uint8_t *batch, uint32_t bytes,
                       int64_t now)
{
    const uint32_t header = tb_segments_header(batch, bytes);
    const size_t room = s->slot_bytes - sizeof(struct slot_head);
    if (header == 0 || net->gso_size == 0 || header + net->gso_size > room) {
        atomic_fetch_add_explicit(&s->strange, 1, memory_order_relaxed);
        return;
    }
    for (uint32_t i = 0; header + (uint64_t)i * net->gso_size < bytes; i++) {
        uint32_t slot = 0;
        struct slot_head *head = take_slot(s, &slot);
        if (head == NULL) continue;
        head->bytes = tb_segments_cut(batch, bytes, header, net->gso_size, i, (uint8_t *)(head + 1));
        head->net = (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                            .csum_start = net->csum_start,
                                            .csum_offset = net->csum_offset};
        head->joinable = true;
        take(s, slot, now);
    }
}

static void take_single(struct site *s, const struct virtio_net_hdr *net, const uint8_t *packet,
                        uint32_t bytes, int64_t now)
{
    uint32_t slot = 0;
    struct slot_head *head = bytes <= s->slot_bytes - sizeof(struct slot_head) ? take_slot(s, &slot) : NULL;
    if (head == NULL) return;
    head->bytes = bytes;
    head->net = *net;
    head->joinable = (net->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) != 0;
    memcpy(head + 1, packet, bytes);
    take(s, slot, now);
}

/* Reads at most BATCH times, which may leave more. How many packets' bytes came, in MTUs. */
static uint32_t receive(struct site *s, bool *more_out)
{
    uint32_t count = 0, all = 0;
    for (; count < BATCH; count++) {
        const ssize_t got = read(s->tun, s->batch, sizeof s->batch);
        if (got <= (ssize_t)sizeof(struct virtio_net_hdr)) break;
        const int64_t now = clock_ns() - s->world->began;
        struct virtio_net_hdr net;
        memcpy(&net, s->batch, sizeof net);
        const uint8_t *packet = s->batch + sizeof net;
        const uint32_t bytes = (uint32_t)got - (uint32_t)sizeof net;
        if (net.gso_type == VIRTIO_NET_HDR_GSO_NONE)
            take_single(s, &net, packet, bytes, now);
        else
            take_batch(s, &net, packet, bytes, now);
        all += 1 + bytes / s->world->scenario.mtu;
    }
    *more_out |= count == BATCH;
    return all;
}

/* Waits for a packet, the next one due or the end. A busy link is served by ticks: the device's ring keeps what comes between, and what is
 * due within a tick waits for its end. */
static void wait_for_work(struct site *s, bool busy)
{
    struct pollfd fds[2] = {{.fd = s->world->stop_fd, .events = POLLIN}, {.fd = s->tun, .events = POLLIN}};
    struct lane *lane = NULL;
    int64_t nap = busy ? s->tick_ns : 1000000000;
    const int64_t due = next_due(s, &lane), now = clock_ns() - s->world->began;
    if (!busy && due < now + nap) nap = due < now + NAP_NS_MIN ? NAP_NS_MIN : due - now;
    const struct timespec timeout = {.tv_sec = nap / 1000000000, .tv_nsec = nap % 1000000000};
    (void)ppoll(fds, busy ? 1 : 2, &timeout, NULL);
}

static void *site_main(void *argument)
{
    struct site *s = argument;
    (void)prctl(PR_SET_TIMERSLACK, 1000);
    while (!atomic_load_explicit(&s->world->stop, memory_order_relaxed)) {
        const uint32_t went = deliver_due(s);
        bool more = went == ROUND_MAX;
        const uint32_t came = receive(s, &more);
        if (!more) wait_for_work(s, came + went >= BUSY_BATCH);
    }
    return NULL;
}

/* ---- set-up -------------------------------------------------------------------------------------------------------- */

static bool complain(const char *what, const char *which)
{
    (void)fprintf(stderr, "tombolo-wan-emulator: %s %s: %s\n", what, which, strerror(errno));
    return false;
}

/* A device in the namespace that this thread is in for the moment. */
static bool open_device(struct site *s, const char *netns)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_NAPI | IFF_VNET_HDR};
    memcpy(request.ifr_name, DEVICE, sizeof DEVICE);
    char path[128];
    (void)snprintf(path, sizeof path, "/run/netns/%s", netns);
    s->netns = tb_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    if (s->netns < 0) return complain("no namespace", path);
    if (setns(s->netns, CLONE_NEWNET) != 0) return complain("cannot enter", path);
    s->tun = tb_sys_open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC, 0);
    const bool made = s->tun >= 0 && ioctl(s->tun, TUNSETIFF, &request) == 0 &&
                      ioctl(s->tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4) == 0;
    if (!made) (void)complain("cannot make a TUN device in", netns);
    if (setns(s->world->home_netns, CLONE_NEWNET) != 0) return complain("cannot come back from", path);
    return made;
}

static uint64_t largest(const struct tb_scenario_path *p, enum tb_path_key key)
{
    uint64_t most = p->settings.value[key];
    for (uint32_t i = 0; i < p->change_count; i++)
        if (p->changes[i].mask & 1u << key && p->changes[i].to.value[key] > most)
            most = p->changes[i].to.value[key];
    return most;
}

/* Bytes that can be under way or queued from this site; 0: no bound. */
static double bytes_needed(const struct site *s)
{
    const struct tb_scenario *scenario = &s->world->scenario;
    double bytes = 0;
    for (const struct tb_scenario_path *p = scenario->paths; p < scenario->paths + scenario->path_count;
         p++) {
        if (p->from != s->index) continue;
        const double rate = (double)largest(p, TB_PATH_RATE);
        if (rate == 0) return 0;
        bytes += rate / 8e9 * (double)(largest(p, TB_PATH_DELAY) + largest(p, TB_PATH_JITTER)) +
                 (double)largest(p, TB_PATH_QUEUE);
    }
    return bytes;
}

/* Slots are enough for packets of 256 bytes on average, but most stay address space: the last one used is used again first. As many as
 * packets of an MTU need are touched now, so that no packet waits for a page. */
static bool make_room(struct site *s)
{
    const double bytes = bytes_needed(s);
    const double wanted = bytes > 0 ? SLOTS_MIN + bytes / 256 : SLOTS_MAX;
    s->slot_count = wanted < SLOTS_MAX ? (uint32_t)wanted : SLOTS_MAX;
    s->slot_bytes = (sizeof(struct slot_head) + s->world->scenario.mtu + 63) / 64 * 64;
    s->unused = tb_calloc(s->slot_count, sizeof *s->unused);
    s->heap = tb_calloc(s->slot_count, sizeof *s->heap);
    s->slots = tb_sys_mmap(NULL, s->slot_bytes * s->slot_count, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->unused == NULL || s->heap == NULL || s->slots == MAP_FAILED)
        return complain("no memory for the packets of", s->world->scenario.sites[s->index].name);
    const double touched = SLOTS_TOUCHED + bytes * 1.25 / s->world->scenario.mtu;
    const size_t count = touched < s->slot_count ? (size_t)touched : s->slot_count;
    (void)madvise(s->slots, s->slot_bytes * count,
                  MADV_POPULATE_WRITE); /* a kernel before 5.14 is only slower */
    for (uint32_t i = 0; i < s->slot_count; i++)
        s->unused[s->unused_count++] = s->slot_count - 1 - i;
    for (uint32_t i = 0; i < TB_SCENARIO_SITES_MAX; i++)
        s->lanes[i] = (struct lane){NO_SLOT, NO_SLOT};
    return true;
}

/* Of a link at work: short beside the shortest way from here. */
static int64_t tick_ns(const struct site *s)
{
    const struct tb_scenario *scenario = &s->world->scenario;
    int64_t tick = TICK_NS_MAX;
    for (const struct tb_scenario_path *p = scenario->paths; p < scenario->paths + scenario->path_count;
         p++) {
        const int64_t part = (int64_t)(p->settings.value[TB_PATH_DELAY] / TICK_SHARE);
        if (p->from == s->index && part < tick) tick = part;
    }
    return tick < TICK_NS_MIN ? TICK_NS_MIN : tick;
}

static void make_paths(struct world *w)
{
    memset(w->path_of, -1, sizeof w->path_of);
    for (uint32_t i = 0; i < w->scenario.path_count; i++) {
        const struct tb_scenario_path *p = &w->scenario.paths[i];
        tb_path_init(&w->paths[i], &p->settings, &w->queues[p->queue], w->seed, i);
        for (uint32_t c = 0; c < p->change_count; c++)
            TB_ASSERT(tb_path_schedule(&w->paths[i], &p->changes[c]));
        w->path_of[p->from][p->to] = (int)i;
    }
    for (uint32_t i = 0; i < w->scenario.queue_count; i++)
        (void)pthread_mutex_init(&w->locks[i], NULL);
}

/* Before others where that is allowed: what is due waits for no sender and for no receiver, not even the kernel's (wanlab.py gives those
 * threads priority 1). */
static bool start_site(struct site *s)
{
    const struct sched_param first = {.sched_priority = 2};
    if (pthread_create(&s->thread, NULL, site_main, s) != 0)
        return complain("no thread for", s->world->scenario.sites[s->index].name);
    s->running = true;
    s->world->priority = pthread_setschedparam(s->thread, SCHED_FIFO, &first) == 0;
    return true;
}

static void stop_sites(struct world *w)
{
    atomic_store(&w->stop, true);
    (void)!write(w->stop_fd, &(uint64_t){1}, sizeof(uint64_t));
    for (struct site *s = w->sites; s < w->sites + w->scenario.site_count; s++)
        if (s->running) (void)pthread_join(s->thread, NULL);
}

/* ---- counters ------------------------------------------------------------------------------------------------------ */

/* Packets of the site that its device dropped because the emulator did not read them. */
static uint64_t device_dropped(const struct site *s)
{
    struct ifaddrs *all = NULL;
    uint64_t count = 0;
    if (setns(s->netns, CLONE_NEWNET) != 0) return 0;
    if (getifaddrs(&all) == 0)
        for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next)
            if (a->ifa_data != NULL && a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_PACKET &&
                strcmp(a->ifa_name, DEVICE) == 0)
                count = ((const struct rtnl_link_stats *)a->ifa_data)->tx_dropped;
    freeifaddrs(all);
    if (setns(s->world->home_netns, CLONE_NEWNET) != 0) (void)complain("cannot come back from", DEVICE);
    return count;
}

/* Below how many us a share of 1 / `one_in` of the packets is not. */
static uint64_t late_below(const struct site *s, uint64_t one_in)
{
    const uint64_t all = atomic_load(&s->delivered);
    uint64_t above = 0;
    for (uint32_t i = LATE_BUCKETS; i-- > 0;) {
        above += atomic_load(&s->late[i]);
        if (above * one_in > all) return UINT64_C(1) << i;
    }
    return 1;
}

static uint64_t late_count(const struct site *s)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < LATE_BUCKETS; i++)
        if (UINT64_C(1) << i > LATE_US * 2) count += atomic_load(&s->late[i]);
    return count;
}

static struct toll toll_of(const struct site *s)
{
    return (struct toll){.delivered = atomic_load(&s->delivered),
                         .late = late_count(s),
                         .dropped = device_dropped(s),
                         .no_slot = atomic_load(&s->no_slot)};
}

static struct toll toll_since(const struct toll *now, const struct toll *then)
{
    return (struct toll){.delivered = now->delivered - then->delivered,
                         .late = now->late - then->late,
                         .dropped = now->dropped - then->dropped,
                         .no_slot = now->no_slot - then->no_slot};
}

/* NULL, or why what a site saw was not the scenario. */
static const char *behind(const struct toll *t)
{
    if (t->no_slot > 0) return "no room for packets under way";
    if (t->late * LATE_SHARE > t->delivered && t->delivered > LATE_SHARE)
        return "packets were delivered late";
    if (t->dropped * DEVICE_SHARE > t->delivered + t->dropped && t->dropped > 0)
        return "the device dropped packets that were not read in time";
    return NULL;
}

static void print_path(const struct world *w, uint32_t i, FILE *to)
{
    const struct tb_scenario_path *p = &w->scenario.paths[i];
    const struct tb_path_counters *c = &w->paths[i].counters;
    (void)fprintf(to,
                  "%s{\"from\":\"%s\",\"to\":\"%s\",\"packets\":%" PRIu64 ",\"bytes\":%" PRIu64
                  ",\"lost_cut\":%" PRIu64 ",\"lost_mtu\":%" PRIu64 ",\"lost_queue\":%" PRIu64
                  ",\"lost_wire\":%" PRIu64 ",\"bursts\":%" PRIu64 ",\"duplicated\":%" PRIu64
                  ",\"reordered\":%" PRIu64 ",\"corrupted\":%" PRIu64 ",\"queue_bytes_max\":%" PRIu64
                  ",\"decisions\":\"%016" PRIx64 "\"}",
                  i > 0 ? "," : "", w->scenario.sites[p->from].name, w->scenario.sites[p->to].name,
                  c->packets, c->bytes, c->lost_cut, c->lost_mtu, c->lost_queue, c->lost_wire, c->bursts,
                  c->duplicated, c->reordered, c->corrupted, c->queue_bytes_max, c->decisions_hash);
}

static void print_site(const struct site *s, const struct toll *t, FILE *to)
{
    (void)fprintf(to,
                  "%s{\"name\":\"%s\",\"delivered\":%" PRIu64 ",\"late\":%" PRIu64 ",\"late_us_p50\":%" PRIu64
                  ",\"late_us_p99\":%" PRIu64 ",\"late_us_max\":%llu,\"device_dropped\":%" PRIu64
                  ",\"no_slot\":%" PRIu64 ",\"strange\":%llu,\"write_failed\":%llu}",
                  s->index > 0 ? "," : "", s->world->scenario.sites[s->index].name, t->delivered, t->late,
                  late_below(s, 2), late_below(s, 100), atomic_load(&s->late_us_max), t->dropped, t->no_slot,
                  atomic_load(&s->strange), atomic_load(&s->write_failed));
}

static void print_verdict(const char *why, FILE *to)
{
    (void)fprintf(to, "\"void\":%s,\"why\":\"%s\"", why != NULL ? "true" : "false", why != NULL ? why : "");
}

/* The sites, and whether the run is void: all of it, and what came since the counters were written last. */
static void print_sites(struct world *w, FILE *to)
{
    const char *why = NULL, *why_since = NULL;
    (void)fputs("],\"sites\":[", to);
    for (struct site *s = w->sites; s < w->sites + w->scenario.site_count; s++) {
        const struct toll now = toll_of(s), since = toll_since(&now, &s->last_toll);
        print_site(s, &now, to);
        if (behind(&now) != NULL) why = behind(&now);
        if (behind(&since) != NULL) why_since = behind(&since);
        s->last_toll = now;
    }
    (void)fputs("],\"since\":{", to);
    print_verdict(why_since, to);
    (void)fputs("},", to);
    print_verdict(why, to);
    (void)fputs("}\n", to);
}

/* The whole file appears at once. False, said, when it could not be written. */
static bool write_counters(struct world *w)
{
    char part[4096];
    (void)snprintf(part, sizeof part, "%s.part", w->counters);
    FILE *to = fopen(part, "we");
    if (to == NULL) return complain("cannot write", part);
    (void)fprintf(to, "{\"seed\":%" PRIu64 ",\"elapsed_s\":%.3f,\"priority\":%s,\"paths\":[", w->seed,
                  (double)(clock_ns() - w->began) / 1e9, w->priority ? "true" : "false");
    for (uint32_t i = 0; i < w->scenario.path_count; i++) {
        pthread_mutex_t *lock = &w->locks[w->scenario.paths[i].queue];
        (void)pthread_mutex_lock(lock);
        print_path(w, i, to);
        (void)pthread_mutex_unlock(lock);
    }
    print_sites(w, to);
    const bool failed = ferror(to) != 0;
    if (fclose(to) != 0 || failed || tb_sys_rename(part, w->counters) != 0)
        return complain("cannot write", w->counters);
    return true;
}

/* ---- the program --------------------------------------------------------------------------------------------------- */

static const char USAGE[] =
    "usage: tombolo-wan-emulator --plan FILE\n"
    "       tombolo-wan-emulator --counters FILE [--seed N] FILE NETNS...\n"
    "  --plan FILE      check the scenario and print it as JSON\n"
    "  --counters FILE  where the counters go at the end and on SIGUSR1\n"
    "  --seed N         of all decisions (default 1)\n"
    "  FILE NETNS...    a scenario, and a namespace for each of its sites in turn; \"ready\" is said when "
    "they have their device\n"
    "Ends on SIGTERM, or when its standard input does. Usually started by sim/wan/run.\n"
    "Example: tombolo-wan-emulator --plan sim/wan/scenarios/ocean.yaml\n";

static bool load(const char *path, struct tb_scenario *out)
{
    static char text[TB_SCENARIO_BYTES_MAX + 1];
    char complaint[512];
    FILE *from = fopen(path, "re");
    if (from == NULL) return complain("cannot read", path);
    const size_t bytes = fread(text, 1, sizeof text, from);
    const bool failed = ferror(from) != 0;
    (void)fclose(from);
    if (failed) return complain("cannot read", path);
    if (tb_scenario_parse(path, text, bytes, out, complaint, sizeof complaint) == TB_OK) return true;
    (void)fprintf(stderr, "%s\n", complaint);
    return false;
}

/* Until SIGTERM, SIGINT or the end of standard input. */
static void serve(struct world *w, const sigset_t *signals)
{
    const int signal_fd = signalfd(-1, signals, SFD_CLOEXEC);
    struct pollfd fds[2] = {{.fd = signal_fd, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    for (;;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR) break;
        struct signalfd_siginfo what = {0};
        char gone[64];
        if (fds[0].revents != 0 &&
            (read(signal_fd, &what, sizeof what) != sizeof what || what.ssi_signo != SIGUSR1))
            break;
        if (what.ssi_signo == SIGUSR1) (void)write_counters(w);
        if (fds[1].revents != 0 && read(STDIN_FILENO, gone, sizeof gone) <= 0) break;
    }
    (void)close(signal_fd);
}

static int run(struct world *w, char **netns)
{
    sigset_t signals;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGUSR1);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    w->home_netns = tb_sys_open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC, 0);
    w->stop_fd = eventfd(0, EFD_CLOEXEC);
    make_paths(w);
    bool good = w->home_netns >= 0 && w->stop_fd >= 0;
    for (uint32_t i = 0; good && i < w->scenario.site_count; i++) {
        w->sites[i].world = w;
        w->sites[i].index = i;
        w->sites[i].tick_ns = tick_ns(&w->sites[i]);
        good = open_device(&w->sites[i], netns[i]) && make_room(&w->sites[i]);
    }
    w->began = clock_ns();
    for (uint32_t i = 0; good && i < w->scenario.site_count; i++)
        good = start_site(&w->sites[i]);
    if (good) {
        (void)puts("ready");
        (void)fflush(stdout);
        serve(w, &signals);
    }
    stop_sites(w);
    return good && write_counters(w) ? 0 : 1;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"plan", required_argument, NULL, 'p'},
                                            {"counters", required_argument, NULL, 'c'},
                                            {"seed", required_argument, NULL, 's'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct world *w = &the_world;
    const char *plan = NULL;
    w->seed = 1;
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (option == 'p')
            plan = optarg;
        else if (option == 'c')
            w->counters = optarg;
        else if (option == 's')
            w->seed = strtoull(optarg, NULL, 10);
        else
            return (void)fputs(USAGE, option == 'h' ? stdout : stderr), option == 'h' ? 0 : 2;
    }
    tb_fault_from_env();
    if (plan != NULL && argc == optind) {
        if (!load(plan, &w->scenario)) return 1;
        tb_scenario_print(&w->scenario, stdout);
        return 0;
    }
    if (w->counters == NULL || argc <= optind) return (void)fputs(USAGE, stderr), 2;
    if (!load(argv[optind], &w->scenario)) return 1;
    if ((uint32_t)(argc - optind - 1) != w->scenario.site_count) {
        (void)fprintf(stderr, "tombolo-wan-emulator: %u sites need as many namespaces\n",
                      w->scenario.site_count);
        return 2;
    }
    return run(w, argv + optind + 1);
}
