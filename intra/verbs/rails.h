/* rails.h - by which of our NICs a hop goes, and to which of its source's. The deciding half of
 * several rails. Pure.
 *
 * A rail is an address of a NIC. A path is one of ours and one of the source's. It costs as much as
 * its worse end: the hops that go over it and the new one, by the link's rate. A NIC that is far
 * from the memory counts as half as fast. So near NICs are preferred, and load spreads to far ones
 * once the near are twice as full.
 *
 * Near to a GPU's memory are NICs behind its PCIe switch, where one is up, else those at its NUMA
 * node, as for memory of the host. Paths inside one subnet come first: where each rail has a switch
 * of its own, only they exist. Among paths of one cost `draw` chooses: loads are known of one
 * process at each end, so processes that draw alike would all begin on one rail.
 *
 * A path that fails rests for 1 s, then 2, 4 ... up to 256 s, and is tried again after that; one
 * that carried a hop for TB_RAIL_PROVEN is as good as new. Hops that fail on it while it rests fail
 * of the same, and do not double it. A rail whose port is down is not chosen until it is up.
 *
 * A hop that found no path takes another turn when one has rested, or a port has come up.
 *
 * Threads: one. */
#ifndef TB_INTRA_VERBS_RAILS_H
#define TB_INTRA_VERBS_RAILS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"
#include "tombolo/status.h"

#define TB_RAILS_MAX 16u /* of ours, and of a source's that are looked at */
/* whose failures are remembered; the one that failed longest ago is forgotten */
#define TB_RAIL_PATHS_MAX 64u
#define TB_RAIL_REST_MIN  TB_SECONDS(1)
#define TB_RAIL_DOUBLINGS 8u /* to 256 s */
#define TB_RAIL_PROVEN    TB_SECONDS(10)

/* An IPv6 address, or an IPv4 one as ::ffff:a.b.c.d. */
struct tb_rail_address {
    uint8_t bytes[16];
};

#define TB_RAIL_ROOT_PORT_BYTES 16u

/* Where a NIC, or the device in which memory stands, is in this machine. */
struct tb_rail_spot {
    int node; /* NUMA node; -1: not known, or the machine has one */
    /* The PCIe root port that it is behind, as sysfs names it. "": none is known, and
     * for memory of the host. */
    char root_port[TB_RAIL_ROOT_PORT_BYTES];
};

struct tb_rail {
    struct tb_rail_address address;
    uint8_t prefix_bits;  /* of its subnet, of 128; 0: not known */
    uint64_t bytes_per_s; /* of the link; 0: not known */
    uint32_t load;        /* hops that go over it now */
    uint32_t nic, port;   /* the caller's numbers */
    struct tb_rail_spot spot;
    bool far; /* from the memory that is read or written */
    bool down;
};

/* Says of each whether it is far from the memory. Behind one root port is one switch: what goes
 * from device to device there passes no host bridge. Of what is not known none is far. */
void tb_rails_look_from(struct tb_rail *rails, uint32_t count, const struct tb_rail_spot *memory);

struct tb_rail_rest {
    struct tb_rail_address ours, theirs;
    uint32_t failures; /* 0: the entry is free */
    tb_time_ns failed_at, until;
};

struct tb_rails {
    struct tb_rail rails[TB_RAILS_MAX]; /* ours; the caller keeps load, far and down true */
    uint32_t count;
    uint32_t draw; /* the caller's, before the first choice: another one in each process */
    uint32_t ups;  /* how often a port of ours has come up; the caller counts */
    struct tb_rail_rest rests[TB_RAIL_PATHS_MAX];
};

struct tb_rail_path {
    uint32_t ours;   /* index into rails */
    uint32_t theirs; /* index into the source's */
};

/* The path for a new hop. TB_NOT_FOUND: none is up and rested; *again_out is when one will have
 * rested, or TB_TIME_NEVER. */
TB_MUST_USE enum tb_status tb_rails_choose(const struct tb_rails *r, const struct tb_rail *theirs,
                                           uint32_t their_count, tb_time_ns now,
                                           struct tb_rail_path *path_out, tb_time_ns *again_out);
/* It could not be connected, or broke although the source was still there. Returns when
 * it may be tried again. */
tb_time_ns tb_rails_failed(struct tb_rails *r, const struct tb_rail_address *ours,
                           const struct tb_rail_address *theirs, tb_time_ns now);
/* It carried a hop from open_at until now. */
void tb_rails_carried(struct tb_rails *r, const struct tb_rail_address *ours,
                      const struct tb_rail_address *theirs, tb_time_ns open_at, tb_time_ns now);

/* When a hop that goes without a path looks for one again. */
struct tb_rail_turn {
    tb_time_ns at;  /* TB_TIME_NEVER: it does not */
    uint32_t blind; /* so many looks before found no path that could rest: ports are down, here or there */
    uint32_t ups;
    uint32_t tries; /* paths that failed in this turn */
};
/* None was found: the next turn is at `again`, of tb_rails_choose. Where that is never, a port
 * has to come up: one of ours is heard of, one of the source's is asked for, after 1 s, then
 * 2, 4 ... up to 256 s. */
void tb_rails_wait(const struct tb_rails *r, struct tb_rail_turn *turn, tb_time_ns again, tb_time_ns now);
/* It is its turn: once for each wait. */
bool tb_rails_turn(const struct tb_rails *r, struct tb_rail_turn *turn, tb_time_ns now);
/* A path failed: whether another may be looked for in this turn, TB_RAILS_MAX in all, as a source
 * may name others without end (P7). */
bool tb_rails_more(struct tb_rail_turn *turn);

#endif
