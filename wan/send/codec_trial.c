/* codec_trial.c - encodes and decodes made weights, each way for a few milliseconds. */
#include "wan/send/codec_trial.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"

#define TRIAL_BYTES (512u << 10)
#define TRIAL_TURNS 8u
#define TRIAL_EACH  TB_MS(5) /* of a way, both directions */

struct trial {
    struct tb_codec *codec;
    uint16_t *base, *version, *back; /* TRIAL_BYTES each */
    uint8_t *coded;
    size_t coded_cap;
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* Exponents as weights have them, each half as frequent as the one above; mantissas are noise. One
 * in fifty is a step further. */
static void make_weights(struct trial *t)
{
    uint64_t state = 1;
    for (size_t i = 0; i < TRIAL_BYTES / 2; i++) {
        const uint64_t r = next_random(&state);
        const unsigned exponent = 121u - (unsigned)__builtin_ctzll(r | 1u << 12);
        t->base[i] = (uint16_t)((r >> 13 & 0x807f) | exponent << 7);
        t->version[i] = (uint16_t)(t->base[i] + (next_random(&state) % 50 == 0));
    }
}

static struct tb_choice_speed try_way(const struct trial *t, enum tb_choice_way way)
{
    TB_ASSERT(way > TB_WAY_RAW &&
              way < TB_WAY_CHAINED); /* raw takes no time, and chained deltas are not encoded */
    struct tb_codec_input in = {
        .bytes = t->version, .count = TRIAL_BYTES, .dtype = TB_DTYPE_BF16, .base = t->base};
    const struct tb_codec_form form = tb_choice_form(way, &in.classes);
    struct tb_codec_coded coded;
    tb_time_ns encode = 0, decode = 0;
    uint32_t turns = 0;
    for (; turns < TRIAL_TURNS && encode + decode < TRIAL_EACH; turns++) {
        const tb_time_ns began = tb_clock_now();
        if (tb_codec_encode(t->codec, form, &in, (struct tb_codec_room){t->coded, t->coded_cap}, &coded) !=
            TB_OK)
            return (struct tb_choice_speed){0};
        const tb_time_ns between = tb_clock_now();
        if (tb_codec_decode(t->codec, &coded, &(struct tb_codec_output){t->back, TRIAL_BYTES, t->base}) !=
            TB_OK)
            return (struct tb_choice_speed){0};
        encode += tb_time_since(began, between);
        decode += tb_time_since(between, tb_clock_now());
    }
    const double bytes = (double)TRIAL_BYTES * turns;
    return (struct tb_choice_speed){.encode = encode > 0 ? bytes * 1e9 / (double)encode : 0,
                                    .decode = decode > 0 ? bytes * 1e9 / (double)decode : 0};
}

static bool memory(struct trial *t)
{
    for (int w = 0; w < TB_WAYS; w++) {
        unsigned classes;
        const size_t bound = tb_codec_bound(tb_choice_form((enum tb_choice_way)w, &classes).id, TRIAL_BYTES);
        if (bound > t->coded_cap) t->coded_cap = bound;
    }
    t->base = tb_malloc(TRIAL_BYTES);
    t->version = tb_malloc(TRIAL_BYTES);
    t->back = tb_malloc(TRIAL_BYTES);
    t->coded = tb_malloc(t->coded_cap);
    return t->base != NULL && t->version != NULL && t->back != NULL && t->coded != NULL &&
           tb_codec_new(&t->codec) == TB_OK;
}

void tb_choice_trial(struct tb_choice_speed speeds_out[TB_WAYS])
{
    struct trial t = {0};
    memset(speeds_out, 0, TB_WAYS * sizeof *speeds_out);
    if (memory(&t)) {
        make_weights(&t);
        for (int w = TB_WAY_RAW + 1; w < TB_WAY_CHAINED; w++)
            speeds_out[w] = try_way(&t, (enum tb_choice_way)w);
    }
    tb_codec_free(t.codec);
    tb_free(t.coded);
    tb_free(t.back);
    tb_free(t.version);
    tb_free(t.base);
}
