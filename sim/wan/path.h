/* path.h - what one direction between two sites does to each packet.
 *
 * Pure: no socket, file, clock, thread or heap. The owner says that a packet came (when, how long)
 * and is told its fate: when it arrives, whether twice, with which bit flipped, or why it is lost.
 * under_way.c asks for real packets, tests in virtual time.
 *
 * The model: a packet meets the cut and the MTU, then a queue of so many bytes that drains at
 * the rate, then the wire, which loses, flips, doubles and delays. Packets that the wire loses
 * have used the rate. Packets under way when a cut begins still arrive.
 *
 * A packet is told once when it arrives: where the rate changes, those that wait keep the moment
 * they were told, but the bytes that still wait then drain at the new rate for those that come
 * after them, of all paths that share the queue. Every draw is a hash of seed, path, the
 * packet's number on this path and the fault: the same seed decides the same for the same
 * packets, and switching one fault on leaves the draws of the others as they were. */
#ifndef TB_SIM_WAN_PATH_H
#define TB_SIM_WAN_PATH_H

#include <stdbool.h>
#include <stdint.h>

#define TB_PATH_CHANGES_MAX 32
#define TB_PATH_PPB         1000000000u /* chances are parts in 10^9 */

/* name, kind of value, why */
/* clang-format off */
#define TB_PATH_KEYS(X)                                                                           \
    X(RATE,        "rate",        BITS,   "bits of IP packets a second; 0: no limit")             \
    X(QUEUE,       "queue",       BYTES,  "bytes that wait before the rate; more are dropped")    \
    X(DELAY,       "delay",       TIME,   "one way")                                              \
    X(JITTER,      "jitter",      TIME,   "added to the delay, even between 0 and this")          \
    X(KEEP_ORDER,  "keep_order",  BOOL,   "jitter delays, but nothing overtakes")                 \
    X(LOSS,        "loss",        CHANCE, "each packet on its own; with bursts, outside of them") \
    X(BURST_ENTER, "burst_enter", CHANCE, "Gilbert-Elliott: a packet begins a burst")             \
    X(BURST_LEAVE, "burst_leave", CHANCE, "a packet ends the burst")                              \
    X(BURST_LOSS,  "burst_loss",  CHANCE, "a packet in a burst is lost")                          \
    X(DUPLICATE,   "duplicate",   CHANCE, "a packet arrives twice")                               \
    X(REORDER,     "reorder",     CHANCE, "a packet skips the delay and overtakes")               \
    X(CORRUPT,     "corrupt",     CHANCE, "one bit of a packet is flipped")                       \
    X(MTU,         "mtu",         BYTES,  "longer packets vanish without a word; 0: none do")     \
    X(CUT,         "cut",         BOOL,   "nothing gets into this direction")
/* clang-format on */

enum tb_path_key {
#define TB_PATH_ENUM(id, name, kind, why) TB_PATH_##id,
    TB_PATH_KEYS(TB_PATH_ENUM)
#undef TB_PATH_ENUM
        TB_PATH_KEY_COUNT
};

/* Bits a second, bytes, nanoseconds, parts in 10^9, or 0 and 1: by the key's kind. */
struct tb_path_settings {
    uint64_t value[TB_PATH_KEY_COUNT];
};

/* From `at` on, and again every `every` ns (0: once), the keys in `mask` (bit 1 <<
 * key) take these values. */
struct tb_path_change {
    int64_t at;
    int64_t every;
    uint32_t mask;
    struct tb_path_settings to;
};

/* The queue that drains at the rate. Several paths may share one; the owner then asks from one
 * thread at a time. */
struct tb_path_queue {
    int64_t free_at;    /* when the last byte in it has left */
    int64_t best_at;    /* when it would have, had no packet been read late */
    uint64_t rate;      /* of all its paths: what was said last of any of them */
    int64_t rate_since; /* when that was */
};

enum tb_path_fate {
    TB_PATH_ARRIVES,
    TB_PATH_LOST_CUT,
    TB_PATH_LOST_MTU,
    TB_PATH_LOST_QUEUE,
    TB_PATH_LOST_WIRE
};

struct tb_path_counters {
    uint64_t packets, bytes; /* that came in */
    uint64_t lost_cut, lost_mtu, lost_queue, lost_wire;
    uint64_t duplicated, reordered, corrupted;
    uint64_t bursts;          /* that began */
    uint64_t queue_bytes_max; /* the most that waited */
    uint64_t decisions_hash;  /* of fates and flipped bits, in order; tells two runs apart */
};

struct tb_path {
    struct tb_path_settings base, now; /* as given; as changed by the schedule */
    struct tb_path_change changes[TB_PATH_CHANGES_MAX];
    uint32_t change_count;
    int64_t next_change; /* when `now` is to be made anew */
    struct tb_path_queue *queue;
    uint64_t key;
    int64_t last_arrival;
    bool in_burst;
    struct tb_path_counters counters;
};

struct tb_path_verdict {
    enum tb_path_fate fate;
    int64_t arrival;   /* ARRIVES */
    int64_t late_ns;   /* by how much that is later because this packet was read late; at most */
    bool twice;        /* a second time at the same moment */
    bool flip;         /* flip the bit below */
    uint32_t flip_bit; /* below 8 * bytes */
};

/* `queue` is borrowed for the path's life, and has its rate. Two paths of one world
 * have different `number`. */
void tb_path_init(struct tb_path *p, const struct tb_path_settings *settings, struct tb_path_queue *queue,
                  uint64_t seed, uint32_t number);
/* False when there are TB_PATH_CHANGES_MAX already. Before the first packet. */
bool tb_path_schedule(struct tb_path *p, const struct tb_path_change *change);
/* From `now` on the keys in `mask` have these values. A later change by a schedule counts again. */
void tb_path_turn(struct tb_path *p, int64_t now, uint32_t mask, const struct tb_path_settings *to);
/* A packet of `bytes` (at least 1) comes at `now`, ns since the world began and never before the
 * packet before it. It may have come up to `late_ns` before, and was not read: the verdict says
 * what that costs, which is nothing behind others that wait for the rate. */
struct tb_path_verdict tb_path_decide(struct tb_path *p, int64_t now, uint32_t bytes, int64_t late_ns);

#endif
