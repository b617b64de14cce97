/* codec_pace.h - in how many classes ranks had best encode their deltas, by the pace at which the
 * last ones came. Pure. */
#ifndef TB_WAN_CODEC_PACE_H
#define TB_WAN_CODEC_PACE_H

#include "wan/send/codec_choice.h"

/* How the last deltas of a model came from its ranks, until all were encoded, read and decoded. */
struct tb_choice_pace {
    unsigned classes;   /* that it was in; 0: not known */
    double bytes_per_s; /* of the version */
    double saving;      /* of all of them: single chunks are far apart */
};

/* The deltas of one version, from the first that was read. raw_bytes: of the chunks that were
 * encoded. */
struct tb_choice_came {
    unsigned classes; /* 0: nothing of it was encoded */
    uint64_t raw_bytes, wire_bytes;
    tb_time_ns took_ns;
};

/* Deltas that came in a moment make the pace unknown, as they would have in several classes too:
 * nobody waits for ranks. False: they say nothing, as next to no elements changed, and that costs
 * nothing in one class or in many. */
bool tb_choice_pace_take(struct tb_choice_pace *pace, const struct tb_choice_came *came);
/* In how many classes ranks had best encode the next deltas; 0: deltas are not sparse, or do not
 * pay. */
unsigned tb_choice_classes(const struct tb_choice *c, const struct tb_choice_pace *pace);

#endif
