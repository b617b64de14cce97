/* codec_choice.h - in which form a chunk goes over a link: the form that moves most bytes of the
 * version a second.
 *
 * Pure. Measured speeds are told to it: how fast each way encodes and decodes on a core here, how
 * much it saves, and how much the link carries. It chooses the way with the highest
 *
 *     min(encode speed x cores, saving x goodput, decode speed x cores)
 *
 * and of those within 5 % of it the one with the fewest bytes. Speeds that were not measured yet
 * count as endless and a link as slow, so a crossing begins with the fewest bytes: too few cost a
 * core a while, too many cost the link. Speeds and savings are running averages of single chunks.
 * Where deltas did not pay, one chunk in 32 is tried as a sparse delta all the same.
 *
 * One tensor has too few chunks a version to measure a way by, and its name decides nothing. Its
 * elements do, and whether a training step changed few of them or most. So each chunk is of a kind
 * by both, and all chunks of a kind measure for it.
 *
 * Ranks encode deltas and the gateway beside them decodes them, on cores that nobody here counts.
 * Known is the pace at which the last ones came. In another number of classes they would be as
 * much faster or slower as the codec is here. A link that went over to one class comes back where
 * several are a tenth sooner. */
#ifndef TB_WAN_CHOICE_H
#define TB_WAN_CHOICE_H

#include <stdbool.h>

#include "base/codec/codec.h"
#include "base/time.h"

/* The form that an operator asks for. Where a codec does not fit a chunk (no base, no floats) the
 * chunk goes as planes, then raw. */
enum tb_choice_wish {
    TB_CHOICE_RAW,
    TB_CHOICE_ZSTD,
    TB_CHOICE_PLANES,
    TB_CHOICE_SPARSE,
    TB_CHOICE_AUTO,
    TB_CHOICE_WISHES
};
const char *tb_choice_wish_name(enum tb_choice_wish wish); /* NULL if unknown */
TB_MUST_USE enum tb_status tb_choice_wish_parse(const char *name, enum tb_choice_wish *wish_out);

/* Ways to write a chunk. */
enum tb_choice_way {
    TB_WAY_RAW,
    TB_WAY_ZSTD,
    TB_WAY_PLANES,
    TB_WAY_DENSE,   /* a delta: planes of it */
    TB_WAY_GAPS,    /* sparse, one class: the fastest */
    TB_WAY_CLASSES, /* sparse, several: the fewest bytes */
    /* chained deltas: several sparse ones that were kept, from a base that has left. The saving is
     * known once one went */
    TB_WAY_CHAINED,
    TB_WAYS
};
const char *tb_choice_way_name(enum tb_choice_way way);

/* A kind of chunk: its elements, and whether more than half of them differ from the base. */
enum tb_choice_kind {
    TB_KIND_BYTES,
    TB_KIND_F8,
    TB_KIND_F16,
    TB_KIND_BF16,
    TB_KIND_F32,
    TB_KIND_BYTES_MOST,
    TB_KIND_F8_MOST,
    TB_KIND_F16_MOST,
    TB_KIND_BF16_MOST,
    TB_KIND_F32_MOST,
    TB_KINDS
};
/* Of a chunk with the base it would go on, if there is one: some 500 to 2,000 of its elements are
 * compared, a few microseconds. */
enum tb_choice_kind tb_choice_kind_of(const struct tb_codec_input *in);
const char *tb_choice_kind_name(enum tb_choice_kind kind); /* "bf16", "bf16-most" */

struct tb_choice_speed {
    double encode, decode; /* bytes of the chunk a second, on one core; 0: not known */
    double saving;         /* bytes of the chunk for each on the wire */
};

struct tb_choice {
    enum tb_choice_wish wish;
    uint32_t protocol; /* of the session: which ways it carries */
    uint32_t cores;    /* that encode at once */
    double goodput;    /* of the link, wire bytes a second; 0: not known */
    double cap;        /* that an operator set on it; 0: none */
    struct tb_choice_speed ways[TB_KINDS][TB_WAYS];
    /* For views: [1] where there is a base. */
    enum tb_choice_way last[TB_KINDS][2];
    uint64_t picks[TB_KINDS][2];
    double in_one[TB_KINDS];      /* the share in one class of what went sparse of late */
    double of_late[TB_KINDS];     /* its share of the last hundred or so chunks that had a base */
    bool seen[TB_KINDS][TB_WAYS]; /* a chunk went so */
    uint64_t chunks[TB_WAYS];     /* that were to go so */
};

void tb_choice_init(struct tb_choice *c, enum tb_choice_wish wish, uint32_t cores);

/* Asserts what holds of it between two calls. */
void tb_choice_check(const struct tb_choice *c);

/* The belief about every kind until its own chunks were measured; speeds of 0 are not known. */
void tb_choice_seed(struct tb_choice *c, const struct tb_choice_speed speeds[TB_WAYS]);

struct tb_choice_ask {
    enum tb_choice_kind kind;
    bool on_base; /* the peer holds a base, and it can be used here */
};
/* The way, and what it is in codec.h's words. */
enum tb_choice_way tb_choice_pick(struct tb_choice *c, const struct tb_choice_ask *ask);
struct tb_codec_form tb_choice_form(enum tb_choice_way way, unsigned *classes_out);
/* And back. */
enum tb_choice_way tb_choice_way_of(struct tb_codec_form form, unsigned classes);

/* A delta to the peer's base is here, and cost this link nothing: does it go as it is? If so it
 * counts as the way that was picked. Its bytes tell its saving. A chunk that changed more than
 * most does so in every sparse way. So another sparse way is taken only where that saves as much
 * more on the average.
 *
 * A delta that was made elsewhere is not made anew in another number of classes: the site that
 * ordered it reckoned with more than this link. It may go in a form that is not sparse. */
struct tb_choice_made {
    enum tb_choice_kind kind;
    struct tb_codec_form form;
    unsigned classes; /* of a sparse one; 0: not known */
    uint32_t raw_bytes, wire_bytes;
    bool elsewhere; /* by a rank or another site */
};
bool tb_choice_takes(struct tb_choice *c, const struct tb_choice_made *made);
/* The peer's base is not here any more, but `steps` chained deltas lead from it to the chunk. Do
 * they go, or does the chunk go whole? The bytes add up, and so does the time to decode them. If
 * they go they count as the way that was picked. */
bool tb_choice_chains(struct tb_choice *c, const struct tb_choice_made *chained, unsigned deltas);

/* One chunk was written (encode_ns) or read back (decode_ns; the other is 0). wire_bytes are those
 * of raw where it did not pay. */
struct tb_choice_sample {
    enum tb_choice_kind kind;
    enum tb_choice_way way;
    uint32_t raw_bytes, wire_bytes;
    tb_time_ns encode_ns, decode_ns;
};
void tb_choice_learn(struct tb_choice *c, const struct tb_choice_sample *sample);
/* The rate of the link while it was busy. A link that was not full can do more: then the rate only
 * raises the belief about it. */
struct tb_choice_carried {
    double bytes_per_s;
    bool full;
};
void tb_choice_carried(struct tb_choice *c, const struct tb_choice_carried *carried);

/* The rate of the link in that way, in bytes of the version a second. It is bound by one of
 * encode, link, decode. */
double tb_choice_rate(const struct tb_choice *c, enum tb_choice_kind kind, enum tb_choice_way way,
                      const char **bound_out);

#endif
