/* lag.h - why a site is behind a model's head, and until when. Pure: facts in, one reason out.
 *
 * The list of reasons is closed, and in the order in which they are looked for: the first that holds is the one an operator has to
 * deal with, because those behind it would hold too. */
#ifndef TB_DAEMON_LAG_H
#define TB_DAEMON_LAG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

#define TB_LAG_REASONS(X)                                                                                    \
    X(TB_LAG_NONE, "none", "it has the head")                                                                \
    X(TB_LAG_UNHEARD, "unheard", "no version of the model has been heard of here")                           \
    X(TB_LAG_STORE, "store_down", "the durable store cannot be written")                                     \
    X(TB_LAG_LINK_DOWN, "link_down", "no link that could bring it is up")                                    \
    X(TB_LAG_NO_ROOM, "no_room", "the arena has no room for it")                                             \
    X(TB_LAG_UNSEALED, "unsealed", "the ranks have not handed all of it to the home gateway")                \
    X(TB_LAG_DAY_SPENT, "day_spent", "the day's bytes to it are used up (peers.SITE.day_bytes)")             \
    X(TB_LAG_MANIFESTS, "manifests", "its manifests are on their way")                                       \
    X(TB_LAG_QUEUED, "queued",                                                                               \
      "it has not begun: the site follows it no more closely, or another crosses first")                     \
    X(TB_LAG_STALLED, "stalled", "it has begun, and nothing of it moved for 2 s")                            \
    X(TB_LAG_CROSSING, "crossing", "it is on its way")

enum tb_lag_reason {
#define TB_LAG_ENUM(name, text, why) name,
    TB_LAG_REASONS(TB_LAG_ENUM)
#undef TB_LAG_ENUM
};
const char *tb_lag_name(enum tb_lag_reason reason);
const char *tb_lag_why(enum tb_lag_reason reason);

/* Of one site and one model's head. */
struct tb_lag_facts {
    bool heard;      /* of some version of the model */
    bool behind;     /* the head is not whole at the site */
    bool store_down; /* here */
    bool linked;     /* some link that could bring it is up; always, where it comes from ranks */
    bool lacks_room;
    bool unsealed; /* at home: ranks have to hand more of it over */
    bool spent;    /* the day's bytes to the site, of each that could send it */
    bool asked;    /* for its manifests */
    bool begun;    /* chunks of it move */
    bool still;    /* nothing of it moved for 2 s */
};
enum tb_lag_reason tb_lag_reason_of(const struct tb_lag_facts *facts);

/* Bytes of each of the last seconds. */
#define TB_LAG_SECONDS 5u
struct tb_lag_pace {
    uint64_t bytes; /* so far, when it was looked last */
    uint64_t per_s[TB_LAG_SECONDS];
    uint32_t count, at;
};
void tb_lag_look(struct tb_lag_pace *p, uint64_t bytes); /* once a second */
bool tb_lag_still(const struct tb_lag_pace *p);          /* nothing came in the last two */
/* Nor of what began so long ago: the last look was within a second, so the two before it were at that alone once it has lasted three. */
bool tb_lag_stands(const struct tb_lag_pace *p, tb_time_ns begun_for);

/* Seconds for what is left, by the best and by the worst of the last seconds. False: no estimate (less than two were seen, or in one of
 * them nothing moved). */
struct tb_lag_eta {
    double low_s, high_s;
};
bool tb_lag_estimate(const struct tb_lag_pace *p, uint64_t left_bytes, struct tb_lag_eta *eta_out);

#endif
