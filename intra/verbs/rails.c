#include "intra/verbs/rails.h"

#include <string.h>

#include "base/assert.h"

#define RATE_UNKNOWN UINT64_C(1250000000) /* 10 Gbit/s: between NICs that do not say, load decides */

static bool same(const struct tb_rail_address *a, const struct tb_rail_address *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static bool same_subnet(const struct tb_rail *ours, const struct tb_rail *theirs)
{
    const uint32_t bits = ours->prefix_bits < 128 ? ours->prefix_bits : 128;
    const uint32_t whole = bits / 8;
    if (bits == 0 || memcmp(ours->address.bytes, theirs->address.bytes, whole) != 0) return false;
    if (bits % 8 == 0) return true;
    const uint8_t differ = ours->address.bytes[whole] ^ theirs->address.bytes[whole];
    return (differ >> (8 - bits % 8)) == 0;
}

static const struct tb_rail_rest *rest_of(const struct tb_rails *r, const struct tb_rail_address *ours,
                                          const struct tb_rail_address *theirs)
{
    for (uint32_t i = 0; i < TB_RAIL_PATHS_MAX; i++) {
        const struct tb_rail_rest *rest = &r->rests[i];
        if (rest->failures > 0 && same(&rest->ours, ours) && same(&rest->theirs, theirs)) return rest;
    }
    return NULL;
}

/* Nanoseconds that a GiB would take with the hops there are and this one: small numbers
 * compare like large ones. */
static uint64_t cost(const struct tb_rail *rail)
{
    uint64_t rate = rail->bytes_per_s != 0 ? rail->bytes_per_s : RATE_UNKNOWN;
    if (rail->far) rate /= 2;
    const double ns = (double)(rail->load + UINT64_C(1)) * 1073741824e9 / (double)(rate != 0 ? rate : 1);
    return ns < 1e18 ? (uint64_t)ns : (uint64_t)1e18;
}

static bool behind_one_port(const struct tb_rail_spot *a, const struct tb_rail_spot *b)
{
    return a->root_port[0] != '\0' && strcmp(a->root_port, b->root_port) == 0;
}

void tb_rails_look_from(struct tb_rail *rails, uint32_t count, const struct tb_rail_spot *memory)
{
    TB_ASSERT(count <= TB_RAILS_MAX);
    bool beside = false; /* one is up that is behind its port */
    for (uint32_t i = 0; i < count; i++)
        beside = beside || (!rails[i].down && behind_one_port(&rails[i].spot, memory));
    for (uint32_t i = 0; i < count; i++) {
        const int node = rails[i].spot.node;
        const bool elsewhere = memory->node >= 0 && node >= 0 && node != memory->node;
        rails[i].far = beside ? !behind_one_port(&rails[i].spot, memory) : elsewhere;
    }
}

struct price {
    bool foreign; /* crosses subnets */
    uint64_t worse, both;
};

static struct price price_of(const struct tb_rail *ours, const struct tb_rail *theirs)
{
    const uint64_t a = cost(ours), b = cost(theirs);
    return (struct price){.foreign = !same_subnet(ours, theirs), .worse = a > b ? a : b, .both = a + b};
}

static bool cheaper(const struct price *a, const struct price *b)
{
    if (a->foreign != b->foreign) return !a->foreign;
    if (a->worse != b->worse) return a->worse < b->worse;
    return a->both < b->both;
}

/* May be chosen now; else *again_out is not later than when it has rested. */
static bool usable(const struct tb_rails *r, const struct tb_rail *ours, const struct tb_rail *theirs,
                   tb_time_ns now, tb_time_ns *again_out)
{
    if (ours->down || theirs->down) return false;
    const struct tb_rail_rest *rest = rest_of(r, &ours->address, &theirs->address);
    if (rest == NULL || rest->until <= now) return true;
    *again_out = tb_time_min(*again_out, rest->until);
    return false;
}

enum tb_status tb_rails_choose(const struct tb_rails *r, const struct tb_rail *theirs, uint32_t their_count,
                               tb_time_ns now, struct tb_rail_path *path_out, tb_time_ns *again_out)
{
    TB_ASSERT(r->count <= TB_RAILS_MAX);
    struct tb_rail_path best[TB_RAILS_MAX * TB_RAILS_MAX]; /* all of one price */
    struct price price = {0};
    uint32_t count = 0;
    *again_out = TB_TIME_NEVER;
    for (uint32_t i = 0; i < r->count; i++) {
        for (uint32_t j = 0; j < their_count && j < TB_RAILS_MAX; j++) {
            if (!usable(r, &r->rails[i], &theirs[j], now, again_out)) continue;
            const struct price other = price_of(&r->rails[i], &theirs[j]);
            if (count > 0 && cheaper(&price, &other)) continue;
            if (count == 0 || cheaper(&other, &price)) count = 0;
            price = other;
            best[count++] = (struct tb_rail_path){.ours = i, .theirs = j};
        }
    }
    if (count == 0) return TB_NOT_FOUND;
    *path_out = best[r->draw % count];
    TB_ASSERT(path_out->ours < r->count && path_out->theirs < their_count);
    return TB_OK;
}

/* A free entry, or the one that failed longest ago. */
static struct tb_rail_rest *rest_slot(struct tb_rails *r)
{
    struct tb_rail_rest *oldest = &r->rests[0];
    for (uint32_t i = 0; i < TB_RAIL_PATHS_MAX; i++) {
        if (r->rests[i].failures == 0) return &r->rests[i];
        if (r->rests[i].failed_at < oldest->failed_at) oldest = &r->rests[i];
    }
    oldest->failures = 0;
    return oldest;
}

tb_time_ns tb_rails_failed(struct tb_rails *r, const struct tb_rail_address *ours,
                           const struct tb_rail_address *theirs, tb_time_ns now)
{
    struct tb_rail_rest *rest = (struct tb_rail_rest *)rest_of(r, ours, theirs);
    if (rest == NULL) rest = rest_slot(r);
    if (rest->failures > 0 && rest->until > now) return rest->until;
    const uint32_t doublings = rest->failures < TB_RAIL_DOUBLINGS ? rest->failures : TB_RAIL_DOUBLINGS;
    rest->ours = *ours;
    rest->theirs = *theirs;
    rest->failures++;
    rest->failed_at = now;
    rest->until = tb_time_add(now, TB_RAIL_REST_MIN << doublings);
    TB_ASSERT(rest->until > now && rest->failures > 0);
    return rest->until;
}

void tb_rails_carried(struct tb_rails *r, const struct tb_rail_address *ours,
                      const struct tb_rail_address *theirs, tb_time_ns open_at, tb_time_ns now)
{
    struct tb_rail_rest *rest = (struct tb_rail_rest *)rest_of(r, ours, theirs);
    if (rest != NULL && tb_time_since(open_at, now) >= TB_RAIL_PROVEN) rest->failures = 0;
}

void tb_rails_wait(const struct tb_rails *r, struct tb_rail_turn *turn, tb_time_ns again, tb_time_ns now)
{
    const uint32_t doublings = turn->blind < TB_RAIL_DOUBLINGS ? turn->blind : TB_RAIL_DOUBLINGS;
    const bool blind = again == TB_TIME_NEVER;
    turn->at = blind ? tb_time_add(now, TB_RAIL_REST_MIN << doublings) : again;
    turn->blind = blind ? doublings + 1 : 0;
    TB_ASSERT(turn->blind <= TB_RAIL_DOUBLINGS + 1);
    turn->ups = r->ups;
    turn->tries = 0;
}

bool tb_rails_turn(const struct tb_rails *r, struct tb_rail_turn *turn, tb_time_ns now)
{
    if (turn->at == TB_TIME_NEVER || (now < turn->at && turn->ups == r->ups)) return false;
    turn->at = TB_TIME_NEVER;
    return true;
}

bool tb_rails_more(struct tb_rail_turn *turn)
{
    TB_ASSERT(turn->tries < TB_RAILS_MAX); /* what said false ended the turn */
    return ++turn->tries < TB_RAILS_MAX;
}
