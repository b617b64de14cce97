/* site_state.h - what a site says of itself and one model: what it holds, what is active there,
 * how far it is behind, and why. One site says it, relays pass it on, and every view shows it
 * (P10). Pure: a struct.
 *
 * Both ends of a link show these numbers as the site itself derived them, so they agree. */
#ifndef TB_BASE_SITE_STATE_H
#define TB_BASE_SITE_STATE_H

#include "base/ident.h"

#define TB_SITE_HELD_MAX 64u /* versions that one state lists; the newest ones */
#define TB_SITE_HOPS_MAX 8u  /* relays that pass a state on */

/* The place of a version in its model's order. Both zero: none. */
struct tb_site_which {
    uint64_t run_order, number;
};

static inline int tb_site_which_compare(const struct tb_site_which *a, const struct tb_site_which *b)
{
    if (a->run_order != b->run_order) return a->run_order < b->run_order ? -1 : 1;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return 0;
}

static inline bool tb_site_which_none(const struct tb_site_which *w)
{
    return w->run_order == 0 && w->number == 0;
}

enum { TB_SITE_READY = 1, TB_SITE_WHOLE = 2, TB_SITE_ACTIVATED = 4, TB_SITE_MARKS = 7 };

struct tb_site_held {
    struct tb_id uid;
    struct tb_site_which which;
    uint64_t bytes; /* of the version; 0: not known yet */
    uint64_t held_bytes;
    uint8_t marks;
};

struct tb_site_state {
    struct tb_name site, model;
    uint8_t hops; /* relays that it came through */
    /* A newer word has a higher (incarnation, serial). */
    uint64_t incarnation, serial;
    bool known;                        /* false: a relay lost the site; the rest is not said */
    uint16_t reason;                   /* enum tb_lag_reason; of a later release: a number beyond it */
    uint64_t age_ms;                   /* since the site itself said so */
    struct tb_site_which head, active; /* newest that it knows; newest that all its groups activated */
    uint32_t versions;                 /* newer than its newest whole one */
    uint64_t left_bytes;               /* of the head */
    uint64_t behind_ms;                /* since it was behind, when it said so */
    uint64_t eta_low_ms, eta_high_ms;  /* both zero: no estimate */
    uint32_t held_count;
    struct tb_site_held held[TB_SITE_HELD_MAX]; /* newest first */
};

/* The reason that holds up the chunks which a gateway sends to a peer. The peer is told, as it
 * cannot see it itself. */
#define TB_HOLDUPS(X)                                                                                        \
    X(TB_HOLDUP_NONE, "nothing")                                                                             \
    X(TB_HOLDUP_RATE, "an operator's rate")                                                                  \
    X(TB_HOLDUP_SENDER, "the sender's cores")                                                                \
    X(TB_HOLDUP_LOSS, "losses on the path")                                                                  \
    X(TB_HOLDUP_WINDOW, "a socket's buffer")                                                                 \
    X(TB_HOLDUP_RECEIVER, "the receiver, which does not read fast enough")
enum tb_holdup {
#define TB_HOLDUP_ENUM(name, text) name,
    TB_HOLDUPS(TB_HOLDUP_ENUM)
#undef TB_HOLDUP_ENUM
        TB_HOLDUP_END
};

#endif
