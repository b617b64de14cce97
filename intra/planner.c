/* planner.c - one pass says who depends on the reader and how deep each member stands, a second
 * takes the best. Knows nothing of sessions, tokens or transports. */
#include "intra/planner.h"

#include "base/assert.h"

enum mark {
    MARK_UNKNOWN,
    MARK_ROOTED,   /* bytes reach it: it is a source, whole, or reads from one that is rooted */
    MARK_UNROOTED, /* it waits for an upstream itself, or reads from one that does */
    MARK_FAILED,   /* it is a worker that failed the reader, or is silent, or depends on such a one */
    MARK_BELOW,    /* it depends on the reader */
};

static bool is_root(const struct tb_planner_member *m)
{
    return m->whole || m->kind != TB_PLANNER_WORKER;
}

static bool among_avoided(const struct tb_planner_question *q, uint32_t count, uint64_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (q->avoid[i] == id) return true;
    return false;
}

/* A gateway that cannot be reached from here feeds others all the same. */
static bool failed(const struct tb_planner_question *q, const struct tb_planner_member *m)
{
    return m->silent || (m->kind == TB_PLANNER_WORKER && among_avoided(q, q->failed_count, m->id));
}

/* Marks a member that needs no look at its upstream. False: its mark is its
 * upstream's, unless it failed. */
static bool mark_end(const struct tb_planner_question *q, uint32_t index)
{
    struct tb_planner_member *m = &q->members[index];
    if (m->own.mark != MARK_UNKNOWN) return true;
    if (index == q->reader)
        m->own.mark = MARK_BELOW;
    else if (is_root(m))
        m->own.mark = failed(q, m) ? MARK_FAILED : MARK_ROOTED;
    else if (m->upstream == TB_PLANNER_NONE)
        m->own.mark = failed(q, m) ? MARK_FAILED : MARK_UNROOTED;
    return m->own.mark != MARK_UNKNOWN;
}

/* Follows upstreams to the first member whose mark is known, then marks the way: each member is
 * walked twice in all. */
static void mark_way(const struct tb_planner_question *q, uint32_t index)
{
    uint32_t steps = 0;
    uint32_t behind = 0; /* so many of the way depend on one that failed, or are it */
    uint32_t end = index;
    while (!mark_end(q, end)) {
        if (failed(q, &q->members[end])) behind = steps + 1;
        end = q->members[end].upstream;
        steps++;
        TB_ASSERT(end < q->count);
        TB_ASSERT(steps < q->count); /* else there is a cycle */
    }
    const uint32_t depth = q->members[end].own.depth + steps;
    const uint8_t mark = q->members[end].own.mark;
    uint32_t walked = 0;
    for (uint32_t i = index; i != end; i = q->members[i].upstream, walked++) {
        q->members[i].own.depth = depth - walked;
        q->members[i].own.mark = walked < behind && mark != MARK_BELOW ? MARK_FAILED : mark;
    }
}

/* The first member of this one's host; finds or makes it through a hash table that
 * lies across the members. */
static uint32_t first_of_host(const struct tb_planner_question *q, uint32_t index)
{
    struct tb_planner_member *m = &q->members[index];
    uint32_t *bucket = &q->members[m->host % q->count].own.bucket;
    for (uint32_t i = *bucket; i != TB_PLANNER_NONE; i = q->members[i].own.next)
        if (q->members[i].host == m->host) return i;
    m->own.next = *bucket;
    *bucket = index;
    return index;
}

/* A NIC is its host's: what one member of it serves is missing to the others. */
static void sum_nic_loads(const struct tb_planner_question *q)
{
    for (uint32_t i = 0; i < q->count; i++) {
        q->members[i].own.bucket = TB_PLANNER_NONE;
        q->members[i].own.nic_load = 0;
    }
    for (uint32_t i = 0; i < q->count; i++) {
        const uint32_t first = first_of_host(q, i);
        q->members[i].own.first = first;
        q->members[first].own.nic_load += q->members[i].readers;
    }
}

/* The reasons against a candidate, the weightiest first; less is better. */
struct cost {
    uint32_t terms[12];
    uint64_t id;
};

/* Readers that its host's NIC feeds beside this one. */
static uint32_t load_of(const struct tb_planner_question *q, uint32_t candidate)
{
    const struct tb_planner_member *reader = &q->members[q->reader];
    const struct tb_planner_member *c = &q->members[candidate];
    const uint32_t load = q->members[c->own.first].own.nic_load;
    if (reader->upstream == TB_PLANNER_NONE || reader->host == c->host || load == 0) return load;
    TB_ASSERT(reader->upstream < q->count);
    return load - (q->members[reader->upstream].host == c->host ? 1 : 0);
}

/* Of members of one host that all wait for an upstream, the most advanced is to lead: the others
 * may take it, it may not take them. */
static bool leads(const struct tb_planner_member *c, const struct tb_planner_member *reader)
{
    if (c->own.mark == MARK_ROOTED || c->held_chunks > reader->held_chunks) return true;
    return c->held_chunks == reader->held_chunks && c->id < reader->id;
}

/* Of one host a publisher's memory is nearer than the gateway's: it is mapped, and
 * the gateway's is not. */
static uint32_t kind_cost(const struct tb_planner_member *c, bool near)
{
    if (c->kind == TB_PLANNER_WORKER) return 0;
    if (c->kind == TB_PLANNER_GATEWAY) return 2;
    return near ? 1 : 3;
}

/* It depends on what failed the reader, and has nothing for it either. */
static bool stands_still(const struct tb_planner_member *c, const struct tb_planner_member *reader)
{
    return c->own.mark == MARK_FAILED && c->held_chunks <= reader->held_chunks;
}

static uint32_t fan_out_of(const struct tb_planner_question *q, const struct tb_planner_member *m)
{
    const uint32_t fan_out = m->fan_out != 0 ? m->fan_out : q->fan_out;
    return fan_out != 0 ? fan_out : 1;
}

static struct cost cost_of(const struct tb_planner_question *q, uint32_t candidate)
{
    const struct tb_planner_member *reader = &q->members[q->reader];
    const struct tb_planner_member *c = &q->members[candidate];
    const uint32_t load = load_of(q, candidate);
    const bool near = c->host == reader->host && leads(c, reader);
    const bool behind = !c->whole && c->held_chunks < reader->held_chunks;
    const uint32_t fan_out = fan_out_of(q, c);
    const bool same_rack = c->rack != 0 && c->rack == reader->rack;
    /* One more on a NIC that is full makes all behind it slower: many that come at once are spread,
     * or all went to the first of a chain. */
    const uint32_t over = near || load < fan_out ? 0 : load - fan_out;
    /* A reader of the same host costs no NIC, and what such a member lacks comes to the host
     * through it: neither load nor being behind speaks against it. */
    return (struct cost){
        .terms = {c->silent, c->slow, stands_still(c, reader), !near, !near && load >= fan_out,
                  c->own.mark == MARK_UNROOTED, !near && behind && c->kind == TB_PLANNER_WORKER,
                  kind_cost(c, near), !near && !same_rack, over, c->own.depth, near ? 0 : load * 2 + c->spot},
        .id = c->id,
    };
}

static bool cheaper(const struct cost *a, const struct cost *b)
{
    for (uint32_t i = 0; i < sizeof a->terms / sizeof a->terms[0]; i++)
        if (a->terms[i] != b->terms[i]) return a->terms[i] < b->terms[i];
    return a->id < b->id;
}

/* A member that mark_best and near_best take: not the reader, none that depends on it, none to be
 * avoided. */
static bool candidate(const struct tb_planner_question *q, uint32_t index)
{
    const struct tb_planner_member *m = &q->members[index];
    if (m->near_only && m->host != q->members[q->reader].host) return false;
    return m->own.mark != MARK_BELOW && !among_avoided(q, q->avoid_count, m->id);
}

struct choice {
    uint32_t index; /* TB_PLANNER_NONE: nobody yet */
    struct cost cost;
};

static void consider(const struct tb_planner_question *q, uint32_t index, struct choice *best)
{
    const struct cost cost = cost_of(q, index);
    if (best->index != TB_PLANNER_NONE && !cheaper(&cost, &best->cost)) return;
    *best = (struct choice){index, cost};
}

/* The best of the reader's own host, if one there will do: nobody elsewhere can then be cheaper
 * (silent, slow, failed and near are the weightiest terms), so neither loads nor the others' depths
 * need be known. Most of a site's questions end here. */
static uint32_t near_best(const struct tb_planner_question *q)
{
    struct choice best = {.index = TB_PLANNER_NONE};
    const struct tb_planner_member *reader = &q->members[q->reader];
    for (uint32_t i = 0; i < q->count; i++) {
        const struct tb_planner_member *m = &q->members[i];
        if (m->host != reader->host || m->silent || m->slow || i == q->reader) continue;
        mark_way(q, i);
        if (candidate(q, i) && !stands_still(m, reader) && leads(m, reader)) consider(q, i, &best);
    }
    return best.index;
}

static uint32_t best_of_all(const struct tb_planner_question *q)
{
    struct choice best = {.index = TB_PLANNER_NONE};
    for (uint32_t i = 0; i < q->count; i++)
        mark_way(q, i);
    sum_nic_loads(q);
    for (uint32_t i = 0; i < q->count; i++)
        if (candidate(q, i)) consider(q, i, &best);
    return best.index;
}

enum tb_status tb_planner_upstream(const struct tb_planner_question *q, uint32_t *upstream_out)
{
    TB_ASSERT(q->reader < q->count && q->failed_count <= q->avoid_count);
    for (uint32_t i = 0; i < q->count; i++)
        q->members[i].own = (struct tb_planner_scratch){.first = i};
    uint32_t best = near_best(q);
    if (best == TB_PLANNER_NONE) best = best_of_all(q);
    if (best == TB_PLANNER_NONE) return TB_NOT_FOUND;
    TB_ASSERT(best != q->reader && q->members[best].own.mark != MARK_BELOW); /* no cycle */
    *upstream_out = best;
    return TB_OK;
}

uint32_t tb_planner_fan_out(uint64_t nic_bytes_per_s, uint64_t arrival_bytes_per_s)
{
    if (nic_bytes_per_s == 0 || arrival_bytes_per_s == 0 || nic_bytes_per_s < arrival_bytes_per_s) return 1;
    const uint64_t fan_out = nic_bytes_per_s / arrival_bytes_per_s;
    return fan_out > TB_PLANNER_FAN_OUT_MAX ? TB_PLANNER_FAN_OUT_MAX : (uint32_t)fan_out;
}

/* It cannot be faster than what it reads from, and nothing comes where there is nothing more. */
static bool own_fault(const struct tb_planner_question *q)
{
    const struct tb_planner_member *m = &q->members[q->reader];
    if (m->upstream == TB_PLANNER_NONE) return false;
    TB_ASSERT(m->upstream < q->count);
    const struct tb_planner_member *up = &q->members[m->upstream];
    if (m->bytes_per_s == 0 && !up->whole && up->held_chunks <= m->held_chunks) return false;
    return is_root(up) || up->bytes_per_s / 2 > m->bytes_per_s;
}

struct beside {
    uint32_t others, faster; /* that do not depend on the reader; over twice as fast */
    uint64_t least;          /* the least rate of those that are faster */
    /* that depend on the reader and steadily read at under half of the share that its NIC has for
     * each: another member holds them up */
    uint32_t held_up;
};

/* A NIC that is full gives each of its readers an equal part, so that is what a reader of this
 * member may expect. */
static uint64_t share_of(const struct tb_planner_member *m)
{
    return m->readers > 1 ? m->bytes_per_s / m->readers : m->bytes_per_s;
}

static struct beside look_beside(const struct tb_planner_question *q)
{
    const uint64_t rate = q->members[q->reader].bytes_per_s;
    const uint64_t share = share_of(&q->members[q->reader]);
    struct beside b = {.least = UINT64_MAX};
    for (uint32_t i = 0; i < q->count; i++)
        q->members[i].own = (struct tb_planner_scratch){.first = i};
    for (uint32_t i = 0; i < q->count; i++) {
        const struct tb_planner_member *m = &q->members[i];
        mark_way(q, i);
        if (m->kind != TB_PLANNER_WORKER || m->bytes_per_s == 0) continue;
        if (m->own.mark == MARK_BELOW) {
            b.held_up += !m->slow && m->steady && m->bytes_per_s < share / 2;
            continue;
        }
        b.others++;
        if (m->bytes_per_s / 2 <= rate) continue;
        b.faster++;
        if (m->bytes_per_s < b.least) b.least = m->bytes_per_s;
    }
    TB_ASSERT(b.faster <= b.others);
    return b;
}

void tb_planner_heard(struct tb_planner_pace *pace, tb_time_ns now)
{
    pace->steady = pace->heard;
    pace->heard = true;
    pace->waited = false;
    pace->at = now;
}

void tb_planner_waited(struct tb_planner_pace *pace, tb_time_ns now)
{
    pace->waited = true;
    pace->nothing = 0;
    pace->under = false;
    pace->at = now;
}

/* Under half of the median: more than half of the others are over twice as fast. Then the median is
 * at least the least of those. */
bool tb_planner_slow(const struct tb_planner_question *q, struct tb_planner_pace *pace)
{
    TB_ASSERT(q->reader < q->count);
    const struct tb_planner_member *m = &q->members[q->reader];
    const bool judged = pace->heard && !pace->waited && !m->whole;
    const bool was_under = pace->under;
    const tb_time_ns from = pace->at;
    struct beside b = {0};
    tb_planner_heard(pace, q->now);
    if (judged && own_fault(q)) b = look_beside(q);
    pace->under = b.faster > b.others / 2;
    if (!pace->under) return false;
    if (!was_under) pace->since = from;
    if (!was_under && m->bytes_per_s == 0) return false; /* others that stand, too, have not said so yet */
    const double seconds = (double)tb_time_since(pace->since, q->now) / 1e9;
    return seconds * (double)b.least >= (double)(TB_PLANNER_SLOW_CHUNKS * q->chunk_bytes);
}

bool tb_planner_alone(const struct tb_planner_question *q)
{
    TB_ASSERT(q->reader < q->count);
    const struct beside b = look_beside(q);
    return b.others == 0 && b.held_up == 0;
}
