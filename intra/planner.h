/* planner.h - the source of each reader: the tree for one version in one site.
 *
 * A pure function of holders, places and loads. The catalog lists all members that hold or stage
 * the version, asks for one reader at a time, and writes the answer into the reader's `upstream`
 * before it asks for the next. It asks again only for readers whose upstream died, slowed or
 * failed, so a change moves no other reader. The same question has the same answer.
 *
 * The rules, weightiest first:
 *   - no cycle: the upstream never depends on the reader;
 *   - a silent member, and a member that depends on one and holds no more than the reader, is read
 *     from only when there is no other;
 *   - a byte reaches a host once: members of the reader's own host are preferred, even when they
 *     have only begun;
 *   - slow members become leaves: they are read from only when there is no other;
 *   - a member that depends on a worker that failed this reader, and holds no more, comes last too;
 *   - a host's NIC feeds at most fan_out readers, while any other will do; then one more on each
 *     before two more on one;
 *   - workers come before a publisher of the reader's own host, then the gateway, then other
 *     publishers, unless no worker has what this reader lacks. With fan_out 1 hosts form a chain
 *     behind
 *     the gateway, with more a tree as shallow as fan_out allows;
 *   - the same rack, then the least depth (a whole member has none), then the least load.
 *
 * The cost model. Time to all of a site = arrival of the last byte + depth x (a chunk's time on a
 * NIC + how late a hop looks). This holds while no NIC feeds more than fan_out readers, and NIC
 * rate / fan_out is not under the rate of arrival. Above that, each further reader on a NIC slows
 * all behind it by its share.
 *
 * So fan_out = NIC rate / arrival rate is the widest tree that costs no rate, and the shallowest. A
 * candidate's cost is a row of terms, compared as words are (planner.c: cost_of): silent, slow,
 * behind a failed or silent one, not of this host, NIC full, waits itself, is behind, kind, other
 * rack, readers over fan_out, depth, load. Rate comes before depth: a full NIC costs each byte, a
 * hop only its chunk. sim/fleet asks this same code.
 *
 * Pure; no heap. A question over 10,000 members costs about 0.1 ms, and a third of that where the
 * reader's own host answers it. */
#ifndef TB_INTRA_PLANNER_H
#define TB_INTRA_PLANNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"
#include "tombolo/status.h"

#define TB_PLANNER_NONE        UINT32_MAX /* no member */
#define TB_PLANNER_FAN_OUT_MAX 16

enum tb_planner_kind {
    TB_PLANNER_WORKER,    /* stages or holds the version */
    TB_PLANNER_GATEWAY,   /* fed by links, or by the publishers at home: needs no upstream */
    TB_PLANNER_PUBLISHER, /* holds what it sealed: needs no upstream */
};

/* The planner's notes while it works; it overwrites them. */
struct tb_planner_scratch {
    uint32_t depth;
    uint32_t bucket;   /* first member whose host falls into bucket number (this index) */
    uint32_t next;     /* next member of its bucket */
    uint32_t first;    /* first member of its host */
    uint32_t nic_load; /* of the host, kept at its first member */
    uint8_t mark;
};

struct tb_planner_member {
    uint64_t id; /* unique here; breaks ties, lower first */
    enum tb_planner_kind kind;
    uint32_t host;     /* equal numbers share memory and a NIC */
    uint32_t rack;     /* 0: unknown, equal to none */
    uint32_t fan_out;  /* readers on its host's NIC while any other will do; 0: the question's */
    uint32_t upstream; /* index of the member it reads from, or TB_PLANNER_NONE */
    uint32_t readers;  /* hops that load its NIC now, of any version: readers on its own host do not count */
    uint32_t held_chunks;
    bool whole;     /* it holds every chunk and depends on nobody: its upstream is not looked at */
    bool spot;      /* may go at any time: loses ties */
    bool slow;      /* shall be a leaf */
    bool silent;    /* it was asked for something and has not answered; not of a gateway */
    bool near_only; /* PUBLISHER: it is read by its own host alone */
    bool steady;    /* as its pace says. Only tb_planner_alone looks at it */
    /* what it reads at, as it says; 0: not known, or nothing comes. tb_planner_slow
     * and _alone look at it */
    uint64_t bytes_per_s;

    uint32_t row; /* the caller's own number for it; not looked at */

    struct tb_planner_scratch own;
};

struct tb_planner_question {
    /* an upstream that has not exported yet may be the answer: tell the reader when it has */
    struct tb_planner_member *members;
    uint32_t count;
    uint32_t reader;  /* index in members; held_chunks, host and rack are looked at */
    uint32_t fan_out; /* of members that say none; 0 counts as 1 */
    /* ids that this reader must not use, such as the source that just failed it; may be NULL */
    const uint64_t *avoid;
    uint32_t avoid_count;
    uint32_t failed_count; /* so many of them, the first, were lost: what depends on those comes last */
    tb_time_ns now;        /* only tb_planner_slow looks at these */
    uint64_t chunk_bytes;  /* of the version's chunks, in the mean */
};

/* *upstream_out is an index into members. TB_NOT_FOUND: there is nobody whom this reader may read
 * from. An index out of range and a cycle in the question are the caller's mistakes (TB_ASSERT). */
TB_MUST_USE enum tb_status tb_planner_upstream(const struct tb_planner_question *question,
                                               uint32_t *upstream_out);

/* How many readers a NIC can feed at the rate at which the version arrives: from 1, also when a
 * rate is not known (0), to TB_PLANNER_FAN_OUT_MAX. */
uint32_t tb_planner_fan_out(uint64_t nic_bytes_per_s, uint64_t arrival_bytes_per_s);

/* How a member was judged so far; zeroed when it begins to read, and whenever it reads from
 * another. */
struct tb_planner_pace {
    bool heard;       /* it told a rate since then */
    bool steady;      /* and another, which is of this source alone */
    bool waited;      /* its last word was that it waits for its source */
    bool under;       /* its last rate was under half of the median */
    uint32_t nothing; /* so many last words: nothing came though its source had more. The owner counts */
    tb_time_ns at;    /* when it last told */
    tb_time_ns since; /* under: from when on, as the rate that it told is of the time before */
};
#define TB_PLANNER_SLOW_CHUNKS 8

/* It told a rate that is not judged. */
void tb_planner_heard(struct tb_planner_pace *pace, tb_time_ns now);
/* It told that nothing came, and its source had nothing more: that is no rate, and much of the time
 * of the next one it waited, too. */
void tb_planner_waited(struct tb_planner_pace *pace, tb_time_ns now);

/* A member tells its rate. True: it is a leaf from now on. Its rate was under half of the median of
 * the members that do not depend on it, for as long as the median takes for TB_PLANNER_SLOW_CHUNKS
 * chunks. And the fault is its own: its upstream is whole, a source, or over twice as fast.
 *
 * Its first rate is not judged: much of that time it waited for a chunk to come down the chain, or
 * read from another. A rate of 0 is judged where the upstream holds more, at the second such word
 * in a row: where all stand still, no member is at fault, and by then the others have said so. */
bool tb_planner_slow(const struct tb_planner_question *question, struct tb_planner_pace *pace);

/* Nobody can be compared with the reader of the question: all members that told a rate depend on it
 * and read at about the share that its NIC has for each, except those known to be slow. Whether the
 * reader holds them up shows when one of them reads in its place (plans.c). sim/fleet/README.md has
 * what this search brings.
 *
 * The search finds a slow first member unless more than TB_PLANNER_TRIALS_MAX slow ones stand
 * first. A member that gets nothing is tried once, however many do. The search does not find a host
 * with a slow NIC and several members, since the next of them reads over the same NIC. */
bool tb_planner_alone(const struct tb_planner_question *question);
#define TB_PLANNER_TRIALS_MAX 2

#endif
