/* codec_choice_world.h - a fixture: a choice with the speeds of a machine of two cores. */
#ifndef TB_TESTS_CHOICE_WORLD_H
#define TB_TESTS_CHOICE_WORLD_H

#include "wan/send/codec_choice.h"

#define MBIT_50  6.25e6
#define GBIT_1   125e6
#define LOOPBACK 2e9

/* Two cores with the speeds of shared/codecs.md's machine, GB/s a core. */
static inline void choice_setup(struct tb_choice *c, enum tb_choice_wish wish, double goodput)
{
    static const struct {
        enum tb_choice_way way;
        double encode, decode, saving;
    } rows[] = {{TB_WAY_ZSTD, 0.95e9, 1.1e9, 1.28},
                {TB_WAY_PLANES, 1.75e9, 2.8e9, 1.5},
                {TB_WAY_DENSE, 0.5e9, 0.5e9, 3},
                {TB_WAY_GAPS, 5.6e9, 12e9, 60},
                {TB_WAY_CLASSES, 3.0e9, 5.9e9, 90}};
    tb_choice_init(c, wish, 2);
    c->goodput = goodput;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        c->ways[TB_KIND_BF16][rows[i].way] =
            (struct tb_choice_speed){rows[i].encode, rows[i].decode, rows[i].saving};
}

static inline enum tb_choice_way choice_pick(struct tb_choice *c, bool on_base)
{
    const struct tb_choice_ask ask = {TB_KIND_BF16, on_base};
    return tb_choice_pick(c, &ask);
}

#endif
