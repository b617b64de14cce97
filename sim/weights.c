/* weights.c - made weights and the optimizer over them. See weights.h. */
#include "sim/weights.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define LINEARS_A_LAYER 7u
#define TENSORS_A_LAYER (LINEARS_A_LAYER + 2u)

/* ---- the model's shape ---- */

struct shape {
    uint64_t hidden;
    uint64_t inner; /* of the gated MLP */
    uint64_t layers;
    uint64_t vocabulary;
};

static uint64_t layer_elements(const struct shape *s)
{
    return 4 * s->hidden * s->hidden + 3 * s->hidden * s->inner + 2 * s->hidden;
}

/* Depth grows with width (layers about hidden / 64); layers take most of the bytes and
 * the embedding the rest. */
static struct shape shape_for(uint64_t elements)
{
    struct shape s = {.hidden = (uint64_t)cbrt((double)elements * 4.3) / 64 * 64};
    if (s.hidden < 64) s.hidden = 64;
    s.inner = (s.hidden * 8 / 3 + 63) / 64 * 64;
    s.layers = elements * 85 / 100 / layer_elements(&s);
    if (s.layers == 0 && layer_elements(&s) < elements) s.layers = 1;
    s.vocabulary = (elements - s.layers * layer_elements(&s)) / s.hidden - 1; /* 1: the last norm */
    return s;
}

static void add(struct tb_weights *w, const struct tb_weights_tensor *like)
{
    struct tb_weights_tensor *t = &w->tensors[w->tensor_count++];
    *t = *like;
    t->elements = t->shape[0] * (t->rank == 2 ? t->shape[1] : 1);
    t->begin = w->data_bytes;
    w->data_bytes += t->elements * 2;
}

static void add_layer(struct tb_weights *w, const struct shape *s, uint64_t layer)
{
    const struct {
        const char *name;
        enum tb_weights_kind kind;
        uint32_t rank;
        uint64_t shape[2];
    } rows[TENSORS_A_LAYER] = {
        {"input_layernorm", TB_WEIGHTS_NORM, 1, {s->hidden, 0}},
        {"self_attn.q_proj", TB_WEIGHTS_LINEAR, 2, {s->hidden, s->hidden}},
        {"self_attn.k_proj", TB_WEIGHTS_LINEAR, 2, {s->hidden, s->hidden}},
        {"self_attn.v_proj", TB_WEIGHTS_LINEAR, 2, {s->hidden, s->hidden}},
        {"self_attn.o_proj", TB_WEIGHTS_LINEAR, 2, {s->hidden, s->hidden}},
        {"post_attention_layernorm", TB_WEIGHTS_NORM, 1, {s->hidden, 0}},
        {"mlp.gate_proj", TB_WEIGHTS_LINEAR, 2, {s->inner, s->hidden}},
        {"mlp.up_proj", TB_WEIGHTS_LINEAR, 2, {s->inner, s->hidden}},
        {"mlp.down_proj", TB_WEIGHTS_LINEAR, 2, {s->hidden, s->inner}},
    };
    for (uint32_t i = 0; i < TENSORS_A_LAYER; i++) {
        struct tb_weights_tensor t = {
            .kind = rows[i].kind, .rank = rows[i].rank, .shape = {rows[i].shape[0], rows[i].shape[1]}};
        (void)snprintf(t.name, sizeof t.name, "model.layers.%llu.%s.weight", (unsigned long long)layer,
                       rows[i].name);
        add(w, &t);
    }
}

static bool options_good(const struct tb_weights_options *o)
{
    return o->bytes >= TB_WEIGHTS_BYTES_MIN && o->bytes <= TB_WEIGHTS_BYTES_MAX && o->versions >= 1 &&
           o->versions <= TB_WEIGHTS_VERSIONS_MAX && o->lr >= 0 && o->lr <= 1;
}

enum tb_status tb_weights_new(const struct tb_weights_options *options, struct tb_weights *weights_out)
{
    if (!options_good(options)) return TB_BAD_ARGUMENT;
    const struct shape s = shape_for(options->bytes / 2);
    struct tb_weights w = {.options = *options};
    w.tensors = calloc(s.layers * TENSORS_A_LAYER + 2, sizeof *w.tensors);
    if (w.tensors == NULL) return TB_SITE_NOMEM;
    add(&w, &(struct tb_weights_tensor){.name = "model.embed_tokens.weight",
                                        .kind = TB_WEIGHTS_EMBEDDING,
                                        .rank = 2,
                                        .shape = {s.vocabulary, s.hidden}});
    for (uint64_t layer = 0; layer < s.layers; layer++)
        add_layer(&w, &s, layer);
    add(&w, &(struct tb_weights_tensor){
                .name = "model.norm.weight", .kind = TB_WEIGHTS_NORM, .rank = 1, .shape = {s.hidden, 0}});
    *weights_out = w;
    return TB_OK;
}

void tb_weights_free(struct tb_weights *weights)
{
    free(weights->tensors);
    memset(weights, 0, sizeof *weights);
}

/* ---- numbers ---- */

/* splitmix64's finalizer over a counter: any element's number can be had without those before it,
 * and the loop has no dependency from one element to the next. */
static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t draw(uint64_t key, uint64_t i)
{
    return mix(key + (i + 1) * 0x9e3779b97f4a7c15u);
}

/* Four uniform numbers added are normal enough here (cut at 3.5 sigma), with mean 0 and variance
 * 1. */
static inline float normal_of(uint64_t a, uint64_t b)
{
    const float scale = 1.0f / 2147483648.0f;
    const float sum = (float)(int32_t)(uint32_t)a + (float)(int32_t)(uint32_t)(a >> 32) +
                      (float)(int32_t)(uint32_t)b + (float)(int32_t)(uint32_t)(b >> 32);
    return sum * scale * 0.8660254f;
}

/* Coarser and with one draw, for gradients: four 16-bit numbers. */
static inline float rough_normal_of(uint64_t a)
{
    const int32_t sum = (int16_t)(uint16_t)a + (int16_t)(uint16_t)(a >> 16) + (int16_t)(uint16_t)(a >> 32) +
                        (int16_t)(uint16_t)(a >> 48);
    return (float)sum * (0.8660254f / 32768.0f);
}

/* To nearest, ties to even; there are no NaNs here. */
static inline uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

struct spread {
    float middle;
    float scale;
};

static struct spread spread_of(const struct tb_weights_tensor *t)
{
    switch (t->kind) {
    case TB_WEIGHTS_NORM:
        return (struct spread){1.0f, 0.08f};
    case TB_WEIGHTS_EMBEDDING:
        return (struct spread){0.0f, 0.02f};
    case TB_WEIGHTS_LINEAR:
        break;
    }
    return (struct spread){0.0f, 0.55f / sqrtf((float)t->shape[1])};
}

struct optimizer {
    float master[TB_WEIGHTS_BLOCK];
    float signal[TB_WEIGHTS_BLOCK]; /* what this element's gradients have in common */
    float mean[TB_WEIGHTS_BLOCK];
    float square[TB_WEIGHTS_BLOCK];
};

static void start(struct optimizer *o, uint64_t key, struct spread spread, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t a = draw(key, 2u * i);
        const uint64_t b = draw(key, 2u * i + 1);
        o->master[i] = spread.middle + spread.scale * normal_of(a, b);
        o->signal[i] = 0.35f * rough_normal_of(mix(a ^ b));
    }
    memset(o->mean, 0, sizeof o->mean);
    memset(o->square, 0, sizeof o->square);
}

/* AdamW, step `t` from 1. The first step moves every element by lr, later ones less as noise
 * averages out: that is why a real run's first versions change more. */
static void step(struct optimizer *o, uint64_t key, double lr, uint32_t t, uint32_t count)
{
    const float b1 = 0.9f, b2 = 0.999f;
    const float rate = (float)(lr / (1.0 - pow(0.9, t)));
    const float square_scale = (float)(1.0 / (1.0 - pow(0.999, t)));
    const float keep = (float)(1.0 - lr * 0.01); /* weight decay */
    for (uint32_t i = 0; i < count; i++) {
        const float g = o->signal[i] + rough_normal_of(draw(key, i));
        o->mean[i] = b1 * o->mean[i] + (1.0f - b1) * g;
        o->square[i] = b2 * o->square[i] + (1.0f - b2) * g * g;
        o->master[i] = keep * o->master[i] - rate * o->mean[i] / (sqrtf(o->square[i] * square_scale) + 1e-8f);
    }
}

static void cast(const struct optimizer *o, uint16_t *out, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = bf16_of(o->master[i]);
}

uint64_t tb_weights_blocks(const struct tb_weights_tensor *tensor)
{
    return (tensor->elements + TB_WEIGHTS_BLOCK - 1) / TB_WEIGHTS_BLOCK;
}

uint32_t tb_weights_block(const struct tb_weights *weights, uint32_t tensor, uint64_t block,
                          uint16_t *const *out)
{
    static _Thread_local struct optimizer o; /* 512 KiB: too much for a stack, and one a thread is enough */
    TB_ASSERT(tensor < weights->tensor_count);
    const struct tb_weights_tensor *t = &weights->tensors[tensor];
    TB_ASSERT(block < tb_weights_blocks(t));
    const uint64_t left = t->elements - block * TB_WEIGHTS_BLOCK;
    const uint32_t count = left < TB_WEIGHTS_BLOCK ? (uint32_t)left : TB_WEIGHTS_BLOCK;
    const uint64_t key = mix(mix(mix(weights->options.seed) + tensor) + block);
    start(&o, key, spread_of(t), count);
    cast(&o, out[0], count);
    for (uint32_t v = 1; v < weights->options.versions; v++) {
        step(&o, mix(key + v), weights->options.lr, v, count);
        cast(&o, out[v], count);
    }
    return count;
}
