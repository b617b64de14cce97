/* emulator.h - what the three parts of tombolo-wan-emulator share. Private to it.
 *
 * emulator.c is the program: devices, memory, threads, signals. under_way.c is what each site's
 * thread does: it takes packets from its device, keeps them until they are due and writes them into
 * the other site's. tolls.c counts, and says whether it kept up. */
#ifndef TB_SIM_WAN_EMULATOR_H
#define TB_SIM_WAN_EMULATOR_H

#include <linux/virtio_net.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "sim/wan/scenario.h"
#include "sim/wan/segments.h"

#define DEVICE       "wan0"
#define JOIN_MAX     64 /* packets written at once */
#define PARCELS_MAX  16 /* streams whose packets are joined at once */
#define NO_SLOT      UINT32_MAX
#define LATE_BUCKETS 24 /* bucket i: below 2^i us */

struct due {
    int64_t at;
    uint64_t order; /* first come first served among equals */
    uint32_t slot;
};

/* The head of a slot, before the packet. */
struct slot_head {
    int64_t at;      /* when it is due */
    int64_t late_ns; /* and by how much later than if it had been read in time */
    uint32_t next;   /* behind it in its lane */
    uint32_t bytes, to;
    bool joinable; /* TCP as its sender made it */
    bool flipped;
    struct virtio_net_hdr net;
};

/* Packets for one site in the order in which they came, each due no sooner than the one before. */
struct lane {
    uint32_t first, last; /* NO_SLOT: empty */
};

/* Packets for one site that are written at once: payload by payload behind one header, or a
 * single one as it is. */
struct parcel {
    struct tb_segments_run run;
    struct virtio_net_hdr net;
    struct iovec parts[JOIN_MAX + 2];
    uint32_t slots[JOIN_MAX];
    uint32_t count, to;
    bool open; /* more may join */
};

/* The numbers that the emulator is judged by. */
struct toll {
    uint64_t delivered, late, dropped, no_slot, write_failed;
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
    int64_t read_by; /* what comes before is read then at the latest, unless this thread is late */
    int64_t read_at; /* when a packet was read last */
    struct parcel parcels[PARCELS_MAX]; /* being filled */
    uint32_t parcel_count;
    uint8_t batch[sizeof(struct virtio_net_hdr) + TB_SEGMENTS_BYTES_MAX + 1]; /* as read */
    struct toll last_toll; /* when the counters were written last */
    atomic_ullong delivered, late[LATE_BUCKETS], late_us_max, no_slot, strange, write_failed, flips_refused;
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

int64_t emulator_clock(void);
/* Says what did not go, of what, and errno; false. */
bool emulator_complain(const char *what, const char *which);

/* under_way.c: the thread of a site; `site` is a struct site. */
void *emulator_site_main(void *site);

/* tolls.c: writes w->counters; the whole file appears at once. False, said, when it
 * could not be written. */
bool emulator_write_counters(struct world *w);

#endif
