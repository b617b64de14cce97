/* under_way.c - a site's thread: packets on their way between two devices.
 *
 * It reads what the site sends, asks path.h for each packet's fate, keeps it until it is due and
 * writes it into the other site's device. Nothing is allocated while packets pass. The kernel hands
 * TCP over in batches; segments.h cuts them into the packets of the wire, whose fates are their
 * own, and joins again what is due together, stream by stream. A link at work is served by ticks:
 * most of what a packet costs here is the other site's TCP, which runs inside of the write, and a
 * tick's packets are one write a stream. */
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "sim/wan/emulator.h"

#define BATCH      16  /* reads before what is due is looked at again */
#define ROUND_MAX  512 /* packets delivered before the device is read again */
#define BUSY_BATCH 8   /* as many at once: a link at work, which is served by ticks rather than by packets */
#define NAP_NS_MIN 20000 /* what is due sooner waits for company */
/* While packets come. A thread shows how late it is where it wakes up after a time, not where a
 * packet wakes it. */
#define NAP_NS_MAX 5000000
#define QUIET_NS   1000000000 /* without a packet: naps are as long */

/* ---- what is under way ---- */

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

/* The packet in the slot is due at `at`. A lane takes what comes in order, at no cost; a heap of a
 * BDP's packets would miss the cache at each of its levels. */
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

/* When the next packet is due, and the lane it is in (NULL: the heap). INT64_MAX: nothing is under
 * way. Of two that are due at once the lane's came first. */
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

/* ---- packets ---- */

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
    const int64_t now = emulator_clock() - s->world->began;
    for (uint32_t i = 0; i < p->count; i++)
        note_lateness(s, now - slot_at(s, p->slots[i])->at + slot_at(s, p->slots[i])->late_ns);
    if (writev(s->world->sites[p->to].tun, p->parts, parts) < 0)
        atomic_fetch_add_explicit(slot_at(s, p->slots[0])->flipped ? &s->flips_refused : &s->write_failed,
                                  p->count, memory_order_relaxed);
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

/* Streams may overtake one another within a tick; the packets of one stream do not, and what is no
 * stream overtakes nothing. */
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
    const int64_t now = emulator_clock() - s->world->began;
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

/* A checksum made before finds the bits that the wire flips. */
static void flip(struct slot_head *head, uint32_t bit)
{
    uint8_t *packet = (uint8_t *)(head + 1);
    if (head->net.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
        (void)tb_segments_checksum(packet, head->bytes, head->net.csum_start, head->net.csum_offset);
    head->net = (struct virtio_net_hdr){0};
    head->joinable = false;
    packet[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* Whether the packet in the slot, whose head is filled in but for what the path says, was kept. */
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
    const int64_t late_ns = now > s->read_by ? now - s->read_by : 0;
    const struct tb_path_verdict v = tb_path_decide(path, now, head->bytes, late_ns);
    (void)pthread_mutex_unlock(&s->world->locks[queue]);
    if (v.fate != TB_PATH_ARRIVES) return false;
    head->to = to;
    head->late_ns = v.late_ns;
    head->flipped = v.flip;
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

/* Reads at most BATCH times, which may leave more. How many packets' bytes came, in MTUs. A device
 * that was empty has nothing that waits. */
static uint32_t receive(struct site *s, bool *more_out)
{
    uint32_t count = 0, all = 0;
    for (; count < BATCH; count++) {
        const ssize_t got = read(s->tun, s->batch, sizeof s->batch);
        const int64_t now = emulator_clock() - s->world->began;
        if (got <= (ssize_t)sizeof(struct virtio_net_hdr)) {
            s->read_by = now;
            break;
        }
        s->read_at = now;
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

/* Waits for a packet, the next one due or the end. A busy link is served by ticks: the device's
 * ring keeps what comes between, and what is due within a tick waits for its end. */
static void wait_for_work(struct site *s, bool busy)
{
    struct pollfd fds[2] = {{.fd = s->world->stop_fd, .events = POLLIN}, {.fd = s->tun, .events = POLLIN}};
    struct lane *lane = NULL;
    const int64_t due = next_due(s, &lane), now = emulator_clock() - s->world->began;
    int64_t nap = busy ? s->tick_ns : now - s->read_at < QUIET_NS ? NAP_NS_MAX : QUIET_NS;
    if (!busy && due < now + nap) nap = due < now + NAP_NS_MIN ? NAP_NS_MIN : due - now;
    s->read_by = now + nap;
    const struct timespec timeout = {.tv_sec = nap / 1000000000, .tv_nsec = nap % 1000000000};
    (void)ppoll(fds, busy ? 1 : 2, &timeout, NULL);
}

void *emulator_site_main(void *site)
{
    struct site *s = site;
    (void)prctl(PR_SET_TIMERSLACK, 1000);
    while (!atomic_load_explicit(&s->world->stop, memory_order_relaxed)) {
        const uint32_t went = deliver_due(s);
        bool more = went == ROUND_MAX;
        const uint32_t came = receive(s, &more);
        if (!more) wait_for_work(s, came + went >= BUSY_BATCH);
    }
    return NULL;
}
