/* codec_choice.c - speeds against the link. Pure. */
#include "wan/send/codec_choice.h"

#include <string.h>

#include "base/assert.h"
#include "base/layout/dtype.h"
#include "wan/frame/frame.h"
#include "wan/send/codec_pace.h"

#define NEAR        0.95 /* of the best: then the fewest bytes count */
#define WEIGHT      0.1  /* of one chunk in a running average */
#define PROBE       32   /* of so many chunks that go another way, one is tried as a sparse delta again */
#define ENDLESS     1e15
#define LATE        0.01 /* of one chunk in what went of late */
#define SPOTS       32u
#define SPOT_BYTES  64u

#define BACK        1.1 /* several classes are taken again once they are so many times as soon as one */
#define PACE_FROM   TB_MS(100) /* what came sooner was mostly waited for */
#define PACE_ONE    4u    /* so many times sooner came in one class what would have been as soon in several */
#define PACE_SAVING 1000u /* of more the number of classes is no matter */

static const char *const wish_names[TB_CHOICE_WISHES] = {"raw", "zstd", "planes", "sparse", "auto"};
static const char *const way_names[TB_WAYS] = {"raw",  "zstd",    "planes", "dense",
                                               "gaps", "classes", "chained"};

const char *tb_choice_wish_name(enum tb_choice_wish wish)
{
    return wish < TB_CHOICE_WISHES ? wish_names[wish] : NULL;
}

enum tb_status tb_choice_wish_parse(const char *name, enum tb_choice_wish *wish_out)
{
    for (unsigned i = 0; i < TB_CHOICE_WISHES; i++) {
        if (strcmp(wish_names[i], name) != 0) continue;
        *wish_out = (enum tb_choice_wish)i;
        return TB_OK;
    }
    return TB_BAD_ARGUMENT;
}

const char *tb_choice_way_name(enum tb_choice_way way)
{
    return way < TB_WAYS ? way_names[way] : "unknown";
}

const char *tb_choice_kind_name(enum tb_choice_kind kind)
{
    TB_ASSERT(kind < TB_KINDS);
    static const char *const names[TB_KINDS] = {"bytes",      "f8",      "f16",      "bf16",      "f32",
                                                "bytes-most", "f8-most", "f16-most", "bf16-most", "f32-most"};
    return names[kind];
}

static enum tb_choice_kind elements_of(enum tb_dtype dtype)
{
    switch (dtype) {
    case TB_DTYPE_F8E4:
    case TB_DTYPE_F8E5:
        return TB_KIND_F8;
    case TB_DTYPE_F16:
        return TB_KIND_F16;
    case TB_DTYPE_BF16:
        return TB_KIND_BF16;
    case TB_DTYPE_F32:
        return TB_KIND_F32;
    default:
        return TB_KIND_BYTES;
    }
}

static size_t elements_that_differ(const uint8_t *a, const uint8_t *b, size_t count, size_t element)
{
    size_t differ = 0;
    for (size_t at = 0; at + element <= count; at += element)
        differ += memcmp(a + at, b + at, element) != 0;
    return differ;
}

/* Of the elements in SPOTS spots as far apart as the chunk allows: a chunk may begin in one
 * tensor and end in another. */
static bool most_differ(const struct tb_codec_input *in, size_t element)
{
    TB_ASSERT(in->base != NULL && element > 0);
    const uint8_t *bytes = in->bytes, *base = in->base;
    if (in->count < SPOTS * SPOT_BYTES)
        return 2 * element * elements_that_differ(bytes, base, in->count, element) > in->count;
    const size_t apart = in->count / SPOTS / SPOT_BYTES * SPOT_BYTES;
    size_t differ = 0;
    for (size_t i = 0; i < SPOTS; i++)
        differ += elements_that_differ(bytes + i * apart, base + i * apart, SPOT_BYTES, element);
    return 2 * element * differ > SPOTS * SPOT_BYTES;
}

enum tb_choice_kind tb_choice_kind_of(const struct tb_codec_input *in)
{
    const enum tb_choice_kind kind = elements_of(in->dtype);
    if (in->base == NULL || !most_differ(in, tb_dtype_element_bytes(in->dtype))) return kind;
    return (enum tb_choice_kind)(kind + TB_KIND_BYTES_MOST);
}

/* Until chunks were measured: savings of bf16 weights of a transformer and of one training step,
 * which changes 1 to 4 % of them. The saving of a dense delta is that of a step that changed every
 * element by a unit or two, two bits each. Dense is tried where sparse deltas save less, and a way
 * that is believed to be worse than it is would never be tried. */
static const float savings[TB_KINDS][TB_WAYS] = {
    [TB_KIND_BYTES] = {1, 1.2f, 1, 1, 20, 20},        [TB_KIND_F8] = {1, 1.05f, 1.2f, 4, 20, 22},
    [TB_KIND_F16] = {1, 1.05f, 1.16f, 8, 40, 45},     [TB_KIND_BF16] = {1, 1.25f, 1.48f, 8, 60, 80},
    [TB_KIND_F32] = {1, 1.1f, 1.19f, 16, 60, 80},     [TB_KIND_BYTES_MOST] = {1, 1.2f, 1, 1, 1, 1},
    [TB_KIND_F8_MOST] = {1, 1.05f, 1.2f, 4, 3, 3},    [TB_KIND_F16_MOST] = {1, 1.05f, 1.16f, 8, 5, 5},
    [TB_KIND_BF16_MOST] = {1, 1.25f, 1.48f, 8, 5, 5}, [TB_KIND_F32_MOST] = {1, 1.1f, 1.19f, 8, 6, 6},
};

void tb_choice_init(struct tb_choice *c, enum tb_choice_wish wish, uint32_t cores)
{
    TB_ASSERT(wish < TB_CHOICE_WISHES);
    memset(c, 0, sizeof *c);
    c->wish = wish;
    c->protocol = TB_LINK_PROTOCOL;
    c->cores = cores > 0 ? cores : 1;
    for (unsigned k = 0; k < TB_KINDS; k++)
        for (unsigned w = 0; w < TB_WAYS; w++)
            c->ways[k][w].saving = (double)savings[k][w];
}

struct tb_codec_form tb_choice_form(enum tb_choice_way way, unsigned *classes_out)
{
    static const struct {
        struct tb_codec_form form;
        unsigned classes;
    } forms[TB_WAYS] = {
        [TB_WAY_RAW] = {{TB_CODEC_RAW, false}, 0},
        [TB_WAY_ZSTD] = {{TB_CODEC_ZSTD, false}, 0},
        [TB_WAY_PLANES] = {{TB_CODEC_PLANES, false}, 0},
        [TB_WAY_DENSE] = {{TB_CODEC_PLANES, true}, 0},
        [TB_WAY_GAPS] = {{TB_CODEC_SPARSE, true}, 1},
        [TB_WAY_CLASSES] = {{TB_CODEC_SPARSE, true}, TB_CODEC_CLASSES},
        [TB_WAY_CHAINED] = {{TB_CODEC_CHAINED, true}, 0},
    };
    TB_ASSERT(way < TB_WAYS);
    *classes_out = forms[way].classes;
    return forms[way].form;
}

enum tb_choice_way tb_choice_way_of(struct tb_codec_form form, unsigned classes)
{
    TB_ASSERT(form.id != TB_CODEC_RAW || !form.on_base); /* no frame says so */
    switch (form.id) {
    case TB_CODEC_RAW:
        return TB_WAY_RAW;
    case TB_CODEC_ZSTD:
        return TB_WAY_ZSTD;
    case TB_CODEC_PLANES:
        return form.on_base ? TB_WAY_DENSE : TB_WAY_PLANES;
    case TB_CODEC_SPARSE:
        return classes == 1 ? TB_WAY_GAPS : TB_WAY_CLASSES;
    case TB_CODEC_CHAINED:
        return TB_WAY_CHAINED;
    }
    return TB_WAY_RAW;
}

static bool is_float(enum tb_choice_kind kind)
{
    TB_ASSERT(kind < TB_KINDS);
    return kind != TB_KIND_BYTES && kind != TB_KIND_BYTES_MOST;
}

/* Can a chunk go that way at all? */
static bool may(const struct tb_choice *c, const struct tb_choice_ask *ask, enum tb_choice_way way)
{
    unsigned classes;
    const struct tb_codec_form form = tb_choice_form(way, &classes);
    if (way == TB_WAY_CHAINED || (form.on_base && !ask->on_base))
        return false; /* a chunk is not encoded as chained deltas */
    if (form.id == TB_CODEC_PLANES && !is_float(ask->kind)) return false;
    if (way == TB_WAY_CLASSES && !is_float(ask->kind)) return false; /* bytes have one class */
    return tb_chunk_frame_may(c->protocol, form);
}

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static double or_endless(double speed)
{
    return speed > 0 ? speed : ENDLESS;
}

/* Of a chunk that saves so much, bytes of the version a second. */
static double link_rate(const struct tb_choice *c, double saving)
{
    TB_ASSERT(saving > 0);
    const double carries = c->goodput > 0 ? c->goodput : 1; /* one not measured yet counts as slow */
    return (c->cap > 0 ? lesser(c->cap, carries) : carries) * saving;
}

/* As it is encoded already. */
static double made_rate(const struct tb_choice *c, enum tb_choice_kind kind, enum tb_choice_way way,
                        double saving)
{
    return lesser(link_rate(c, saving), or_endless(c->ways[kind][way].decode) * c->cores);
}

double tb_choice_rate(const struct tb_choice *c, enum tb_choice_kind kind, enum tb_choice_way way,
                      const char **bound_out)
{
    TB_ASSERT(kind < TB_KINDS && way < TB_WAYS);
    const struct tb_choice_speed *s = &c->ways[kind][way];
    const double encode = or_endless(s->encode) * c->cores;
    const double decode = or_endless(s->decode) * c->cores;
    const double link = link_rate(c, s->saving);
    const double rate = lesser(link, lesser(encode, decode));
    TB_ASSERT(rate > 0);
    if (bound_out != NULL) *bound_out = rate >= link ? "link" : rate >= encode ? "encode" : "decode";
    return rate;
}

static enum tb_choice_way fixed(const struct tb_choice *c, const struct tb_choice_ask *ask)
{
    TB_ASSERT(c->wish < TB_CHOICE_AUTO); /* auto is no way */
    static const enum tb_choice_way wishes[TB_CHOICE_AUTO][3] = {
        [TB_CHOICE_RAW] = {TB_WAY_RAW, TB_WAY_RAW, TB_WAY_RAW},
        [TB_CHOICE_ZSTD] = {TB_WAY_ZSTD, TB_WAY_RAW, TB_WAY_RAW},
        [TB_CHOICE_PLANES] = {TB_WAY_PLANES, TB_WAY_RAW, TB_WAY_RAW},
        [TB_CHOICE_SPARSE] = {TB_WAY_CLASSES, TB_WAY_GAPS, TB_WAY_PLANES},
    };
    for (unsigned i = 0; i < 3; i++)
        if (may(c, ask, wishes[c->wish][i])) return wishes[c->wish][i];
    return TB_WAY_RAW;
}

static enum tb_choice_way best(const struct tb_choice *c, const struct tb_choice_ask *ask)
{
    double rates[TB_WAYS] = {0}, most = 0;
    for (unsigned w = 0; w < TB_WAYS; w++) {
        if (!may(c, ask, (enum tb_choice_way)w)) continue;
        rates[w] = tb_choice_rate(c, ask->kind, (enum tb_choice_way)w, NULL);
        if (rates[w] > most) most = rates[w];
    }
    TB_ASSERT(most > 0); /* raw always may */
    enum tb_choice_way chosen = TB_WAY_RAW;
    double saving = 0;
    for (unsigned w = 0; w < TB_WAYS; w++) {
        if (rates[w] < NEAR * most || c->ways[ask->kind][w].saving <= saving) continue;
        chosen = (enum tb_choice_way)w;
        saving = c->ways[ask->kind][w].saving;
    }
    return chosen;
}

/* A training step that changed everything says nothing of the next one, and a way that is not
 * tried is never seen to be better. At worst it goes raw, one chunk in PROBE. The other way round
 * needs no try: a sparse way that gets worse is seen to. */
static enum tb_choice_way probed(const struct tb_choice *c, const struct tb_choice_ask *ask,
                                 enum tb_choice_way way)
{
    const enum tb_choice_way sparse = is_float(ask->kind) ? TB_WAY_CLASSES : TB_WAY_GAPS;
    if (way == TB_WAY_CLASSES || way == TB_WAY_GAPS || !may(c, ask, sparse)) return way;
    return c->picks[ask->kind][ask->on_base] % PROBE == PROBE - 1 ? sparse : way;
}

static void count(struct tb_choice *c, const struct tb_choice_ask *ask, enum tb_choice_way way)
{
    TB_ASSERT(way < TB_WAYS && ask->kind < TB_KINDS);
    c->last[ask->kind][ask->on_base] = way;
    c->picks[ask->kind][ask->on_base]++;
    c->chunks[way]++;
    for (unsigned k = 0; ask->on_base && k < TB_KINDS; k++)
        c->of_late[k] += LATE * ((k == ask->kind ? 1 : 0) - c->of_late[k]);
}

enum tb_choice_way tb_choice_pick(struct tb_choice *c, const struct tb_choice_ask *ask)
{
    const enum tb_choice_way way = c->wish == TB_CHOICE_AUTO ? probed(c, ask, best(c, ask)) : fixed(c, ask);
    TB_ASSERT(may(c, ask, way)); /* the session carries it, and the peer has a base where it needs one */
    count(c, ask, way);
    return way;
}

static void average(double *to, double value)
{
    TB_ASSERT(value > 0);
    *to = *to > 0 ? *to + WEIGHT * (value - *to) : value;
}

static bool is_sparse(enum tb_choice_way way)
{
    return way == TB_WAY_GAPS || way == TB_WAY_CLASSES;
}

/* Bytes add up, and not what they save: from 80 towards 1 an average of savings would
 * take a hundred chunks. */
static void save(struct tb_choice *c, enum tb_choice_kind kind, enum tb_choice_way way, double cost)
{
    TB_ASSERT(kind < TB_KINDS && way < TB_WAYS && cost > 0);
    double believed = c->ways[kind][way].saving > 0 ? 1 / c->ways[kind][way].saving : 0;
    average(&believed, cost);
    c->ways[kind][way].saving = 1 / believed;
}

static void went(struct tb_choice *c, enum tb_choice_kind kind, enum tb_choice_way way)
{
    if (is_sparse(way)) c->in_one[kind] += WEIGHT * ((way == TB_WAY_GAPS ? 1 : 0) - c->in_one[kind]);
    TB_ASSERT(c->in_one[kind] >= 0 && c->in_one[kind] <= 1);
}

/* Of which much is hoped before anything was seen of it. */
static bool is_hope(enum tb_choice_kind kind, enum tb_choice_way way)
{
    return way == TB_WAY_DENSE || kind >= TB_KIND_BYTES_MOST;
}

/* A way that is tried and does twice as well as was believed is believed at once, and so is the
 * first chunk in one that was a hope; a few chunks correct that. */
static void tried(struct tb_choice *c, enum tb_choice_kind kind, enum tb_choice_way way, double cost)
{
    TB_ASSERT(way != TB_WAY_RAW); /* raw saves nothing */
    const bool hoped = is_hope(kind, way) && !c->seen[kind][way];
    if (hoped || cost < 0.5 / c->ways[kind][way].saving) c->ways[kind][way].saving = 1 / cost;
    c->seen[kind][way] = true;
    save(c, kind, way, cost);
    went(c, kind, way);
}

/* The sparse way of most chunks of late. */
static enum tb_choice_way most_go(const struct tb_choice *c, enum tb_choice_kind kind)
{
    return c->in_one[kind] > 0.5 ? TB_WAY_GAPS : TB_WAY_CLASSES;
}

/* ---- encoded by somebody else ---- */

/* The rate of the best way, if that chunk were encoded here. Its saving is known from the encoded
 * chunk. */
static double anew_rate(const struct tb_choice *c, const struct tb_choice_made *made, enum tb_choice_way way,
                        double saving)
{
    const struct tb_choice_ask ask = {made->kind, true};
    const struct tb_choice_speed *speeds = c->ways[made->kind];
    double most = 0;
    for (unsigned w = 0; w < TB_WAYS; w++) {
        const enum tb_choice_way other = (enum tb_choice_way)w;
        if (!may(c, &ask, other)) continue;
        if (made->elsewhere && is_sparse(way) && is_sparse(other)) continue;
        double rate = tb_choice_rate(c, made->kind, other, NULL);
        if (is_sparse(way) && is_sparse(other))
            rate = lesser(rate, link_rate(c, saving * speeds[w].saving / speeds[way].saving));
        if (rate > most) most = rate;
    }
    return most;
}

bool tb_choice_takes(struct tb_choice *c, const struct tb_choice_made *made)
{
    TB_ASSERT(made->kind < TB_KINDS && made->raw_bytes > 0);
    const struct tb_choice_ask ask = {made->kind, true};
    const enum tb_choice_way way = tb_choice_way_of(made->form, made->classes);
    if (made->wire_bytes == 0 || !tb_chunk_frame_may(c->protocol, made->form)) return false;
    const double saving = (double)made->raw_bytes / made->wire_bytes;
    unsigned classes;
    const bool takes = c->wish == TB_CHOICE_AUTO
                           ? made_rate(c, ask.kind, way, saving) >= NEAR * anew_rate(c, made, way, saving)
                           : tb_choice_form(fixed(c, &ask), &classes).on_base;
    if (!takes) return false;
    count(c, &ask, way);
    /* Next to no changes are one class, whatever was asked for: they count as what most others
     * are. */
    const bool handful = way == TB_WAY_GAPS && saving > PACE_SAVING;
    save(c, ask.kind, handful ? most_go(c, ask.kind) : way, 1 / saving);
    if (!handful) went(c, ask.kind, way);
    return true;
}

bool tb_choice_chains(struct tb_choice *c, const struct tb_choice_made *chained, unsigned deltas)
{
    TB_ASSERT(chained->kind < TB_KINDS && chained->raw_bytes > 0);
    TB_ASSERT(deltas > 0 && deltas <= TB_CODEC_CHAINED_MAX);
    const struct tb_choice_ask on_base = {chained->kind, true}, whole = {chained->kind, false};
    const enum tb_choice_way way = tb_choice_way_of(chained->form, chained->classes);
    unsigned classes;
    if (chained->wire_bytes == 0 || !tb_chunk_frame_may(c->protocol, chained->form)) return false;
    const double saving = (double)chained->raw_bytes / chained->wire_bytes;
    const double decode = or_endless(c->ways[chained->kind][TB_WAY_CLASSES].decode) * c->cores / deltas;
    const bool chains =
        c->wish == TB_CHOICE_AUTO
            ? lesser(link_rate(c, saving), decode) >= tb_choice_rate(c, chained->kind, best(c, &whole), NULL)
            : tb_choice_form(fixed(c, &on_base), &classes).on_base;
    if (!chains) return false;
    count(c, &on_base, way);
    save(c, chained->kind, way, 1 / saving);
    return true;
}

/* Sparse deltas of ranks are taken for chunks with few changes alone: a quarter of those decides
 * for all. */
static double weighed(const struct tb_choice *c, enum tb_choice_kind kind)
{
    return c->of_late[kind] * (kind < TB_KIND_BYTES_MOST ? 3 : 1);
}

/* For which ranks are told. */
static enum tb_choice_kind main_kind(const struct tb_choice *c)
{
    enum tb_choice_kind most = TB_KIND_BF16;
    for (int k = 0; k < TB_KINDS; k++)
        if (weighed(c, (enum tb_choice_kind)k) > weighed(c, most)) most = (enum tb_choice_kind)k;
    return most;
}

bool tb_choice_pace_take(struct tb_choice_pace *pace, const struct tb_choice_came *came)
{
    if (came->classes == 0 || came->wire_bytes == 0) return false;
    if (came->wire_bytes < came->raw_bytes / PACE_SAVING) return false;
    *pace = (struct tb_choice_pace){.classes = 0};
    if (came->took_ns < (came->classes == 1 ? PACE_FROM / PACE_ONE : PACE_FROM)) return true;
    TB_ASSERT(came->took_ns > 0);
    *pace = (struct tb_choice_pace){.classes = came->classes,
                                    .bytes_per_s = (double)came->raw_bytes * 1e9 / (double)came->took_ns,
                                    .saving = (double)came->raw_bytes / (double)came->wire_bytes};
    return true;
}

/* Seconds of a core for each byte, encoding and decoding together; 0: not known. */
static double both_s(const struct tb_choice_speed *speed)
{
    return speed->encode > 0 && speed->decode > 0 ? 1 / speed->encode + 1 / speed->decode : 0;
}

/* The sparse way of which most is known: that of the last delta, or of most chunks of late. */
static enum tb_choice_way way_seen(const struct tb_choice *c, enum tb_choice_kind kind,
                                   const struct tb_choice_pace *pace)
{
    if (pace->classes != 0) return pace->classes == 1 ? TB_WAY_GAPS : TB_WAY_CLASSES;
    return most_go(c, kind);
}

/* The rate of deltas that others encode. The saving of one way tells that of the other. All of
 * them go one way, so the belief about the other way may be old. */
static double delta_rate(const struct tb_choice *c, enum tb_choice_kind kind, enum tb_choice_way way,
                         const struct tb_choice_pace *pace)
{
    TB_ASSERT(is_sparse(way)); /* the others are not made by ranks */
    const struct tb_choice_speed *speeds = c->ways[kind];
    const enum tb_choice_way seen = way_seen(c, kind, pace);
    const double saves = pace->classes != 0 ? pace->saving : speeds[seen].saving;
    const double saving = saves * (double)savings[kind][way] / (double)savings[kind][seen];
    const double sent = made_rate(c, kind, way, saving), cost = both_s(&speeds[way]);
    if (pace->classes == 0 || cost <= 0) return sent;
    return lesser(sent, pace->bytes_per_s * both_s(&speeds[seen]) / cost);
}

/* As far as this link has seen itself. Ranks stop bringing sparse deltas when they do not pay, and
 * then they are tried here now and then. */
static bool sparse_pays(const struct tb_choice *c, enum tb_choice_kind kind)
{
    static const struct tb_choice_pace unknown = {.classes = 0};
    const struct tb_choice_ask ask = {kind, true};
    double most = 0;
    for (int w = 0; w < TB_WAYS; w++) {
        if (is_sparse((enum tb_choice_way)w) || !may(c, &ask, (enum tb_choice_way)w)) continue;
        const double rate = tb_choice_rate(c, kind, (enum tb_choice_way)w, NULL);
        if (rate > most) most = rate;
    }
    return delta_rate(c, kind, TB_WAY_GAPS, &unknown) >= NEAR * most ||
           delta_rate(c, kind, TB_WAY_CLASSES, &unknown) >= NEAR * most;
}

unsigned tb_choice_classes(const struct tb_choice *c, const struct tb_choice_pace *pace)
{
    const struct tb_choice_ask ask = {main_kind(c), true};
    unsigned classes;
    if (!tb_chunk_frame_may(c->protocol, (struct tb_codec_form){TB_CODEC_SPARSE, true})) return 0;
    if (c->wish != TB_CHOICE_AUTO)
        return tb_choice_form(fixed(c, &ask), &classes).id == TB_CODEC_SPARSE ? TB_CODEC_CLASSES : 0;
    if (!sparse_pays(c, ask.kind)) return 0;
    const double in_one = delta_rate(c, ask.kind, TB_WAY_GAPS, pace);
    const double enough = in_one * (pace->classes == 1 ? BACK : NEAR);
    return delta_rate(c, ask.kind, TB_WAY_CLASSES, pace) < enough ? 1 : TB_CODEC_CLASSES;
}

void tb_choice_check(const struct tb_choice *c)
{
    uint64_t picks = 0, chunks = 0;
    TB_ASSERT(c->wish < TB_CHOICE_WISHES && c->cores > 0);
    for (unsigned k = 0; k < TB_KINDS; k++) {
        TB_ASSERT(c->in_one[k] >= 0 && c->in_one[k] <= 1 && c->of_late[k] >= 0 && c->of_late[k] <= 1);
        TB_ASSERT(c->last[k][0] < TB_WAYS && c->last[k][1] < TB_WAYS);
        picks += c->picks[k][0] + c->picks[k][1];
    }
    for (unsigned w = 0; w < TB_WAYS; w++)
        chunks += c->chunks[w];
    TB_ASSERT(picks == chunks); /* each chunk is of one kind, and goes one way */
}

void tb_choice_seed(struct tb_choice *c, const struct tb_choice_speed speeds[TB_WAYS])
{
    for (unsigned k = 0; k < TB_KINDS; k++)
        for (unsigned w = 0; w < TB_WAYS; w++) {
            c->ways[k][w].encode = speeds[w].encode;
            c->ways[k][w].decode = speeds[w].decode;
        }
}

void tb_choice_learn(struct tb_choice *c, const struct tb_choice_sample *s)
{
    TB_ASSERT(s->kind < TB_KINDS && s->way < TB_WAYS);
    struct tb_choice_speed *speed = &c->ways[s->kind][s->way];
    if (s->raw_bytes == 0 || s->wire_bytes == 0) return;
    if (s->encode_ns > 0) average(&speed->encode, (double)s->raw_bytes * 1e9 / (double)s->encode_ns);
    if (s->decode_ns > 0) average(&speed->decode, (double)s->raw_bytes * 1e9 / (double)s->decode_ns);
    if (s->way != TB_WAY_RAW) tried(c, s->kind, s->way, (double)s->wire_bytes / (double)s->raw_bytes);
}

void tb_choice_carried(struct tb_choice *c, const struct tb_choice_carried *carried)
{
    if (carried->bytes_per_s <= 0) return;
    if (carried->full || carried->bytes_per_s > c->goodput) average(&c->goodput, carried->bytes_per_s);
    TB_ASSERT(c->goodput > 0);
}
