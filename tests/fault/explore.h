/* explore.h - every event in every state of a small core: from a first state, each event is given
 * in each state that is reached, until there are no new ones. An event
 * fails the test when the core did what it may never do.
 *
 * A state is the bytes of a world, which lies at one address, so that pointers into itself stay
 * true. */
#ifndef TB_TESTS_EXPLORE_H
#define TB_TESTS_EXPLORE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "tests/unit/check.h"

#define EXPLORE_STATES_MAX (1u << 17)

struct explore {
    void *world;
    size_t bytes;
    unsigned events;
    /* False: there is no such event in this state (a parcel that nobody has), or it would only
     * count on without end. `was` is the world before it. */
    bool (*give)(void *world, const void *was, unsigned event);
};

/* How many states there are, of which `most` are looked at, those nearest to the first; 0: all,
 * which have to be few enough. */
static inline unsigned explore_some(const struct explore *x, unsigned most)
{
    unsigned room = 1024;
    uint8_t *states = malloc(x->bytes * room);
    uint32_t *seen = calloc(EXPLORE_STATES_MAX * 4, sizeof *seen); /* index + 1, by digest */
    unsigned count = 1, given = 0;
    assert_true(states != NULL && seen != NULL);
    memcpy(states, x->world, x->bytes);
    for (unsigned at = 0; at < count; at++) {
        for (unsigned e = 0; e < x->events; e++) {
            if (count == room) states = realloc(states, x->bytes * (room *= 2));
            assert_non_null(states);
            const uint8_t *was = states + at * x->bytes;
            memcpy(x->world, was, x->bytes);
            if (!x->give(x->world, was, e)) continue;
            given++;
            const struct tb_digest d = tb_digest_of(x->world, x->bytes);
            uint32_t slot;
            memcpy(&slot, d.bytes, sizeof slot);
            for (slot %= EXPLORE_STATES_MAX * 4; seen[slot] != 0;
                 slot = (slot + 1) % (EXPLORE_STATES_MAX * 4))
                if (memcmp(states + (seen[slot] - 1) * x->bytes, x->world, x->bytes) == 0) break;
            if (seen[slot] != 0 || (most != 0 && count == most)) continue;
            if (count == EXPLORE_STATES_MAX) fail_msg("more than %u states", EXPLORE_STATES_MAX);
            memcpy(states + count * x->bytes, x->world, x->bytes);
            seen[slot] = ++count;
        }
    }
    printf("%u states, %u events given\n", count, given);
    free(states);
    free(seen);
    return count;
}

static inline unsigned explore(const struct explore *x)
{
    return explore_some(x, 0);
}

#endif
