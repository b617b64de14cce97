/* codec_choice.h - in which form a chunk goes over a link: whichever moves most bytes of
 * the version a second.
 *
 * Pure. What it reckons with is measured and told: how fast each way encodes and decodes on
 * a core here, how much it saves, and what the link carries. The way that is chosen is the
 * one with the highest
 *
 *     min(encode speed x cores, saving x goodput, decode speed x cores)
 *
 * and of those within 5 % of it the one with the fewest bytes. Speeds that were not measured yet
 * count as endless and a link as slow, so a crossing begins with the fewest bytes: too few cost a
 * core a while, too many cost the link. Speeds are running averages of single chunks, and so is
 * what a way costs in bytes. Where steps were so large that differences did not pay, one chunk in
 * 32 is tried as a sparse difference all the same.
 *
 * One tensor has too few chunks a version to measure a way by, and what decides is not its name: it
 * is what its elements are, and whether a step changed few of them or most. So each chunk is of a
 * kind by both, whichever tensor it is of, and a kind's chunks measure for all of it.
 *
 * Steps are encoded by ranks and decoded by the gateway beside them, on cores that nobody here
 * counts: of those the pace at which the last step came is what is known, and that in another
 * number of classes it would be as much faster or slower as the codec is here. Who went over to one
 * class comes back where several are a tenth sooner. */
#ifndef TB_WAN_CHOICE_H
#define TB_WAN_CHOICE_H

#include <stdbool.h>

#include "base/codec/codec.h"
#include "base/time.h"

/* What an operator asks for. A codec that does not fit a chunk (no base, no floats)
 * is planes, then raw. */
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
    TB_WAY_DENSE,   /* planes of the difference to a base */
    TB_WAY_GAPS,    /* sparse, one class: the fastest */
    TB_WAY_CLASSES, /* sparse, several: the fewest bytes */
    /* several sparse ones that were kept, joined: of a base that has left. What it saves
     * is known once one went */
    TB_WAY_STEPS,
    TB_WAYS
};
const char *tb_choice_way_name(enum tb_choice_way way);

/* What chunks have in common that are written alike: their elements, and that more than half of
 * those differ from the base. */
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
    /* What is seen of it: [1] where there is a base. */
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

/* What is believed of every kind until its own chunks were measured; speeds of 0 are not known. */
void tb_choice_seed(struct tb_choice *c, const struct tb_choice_speed speeds[TB_WAYS]);

struct tb_choice_ask {
    enum tb_choice_kind kind;
    bool based; /* the peer holds a base, and it can be used here */
};
/* The way, and what it is in codec.h's words. */
enum tb_choice_way tb_choice_pick(struct tb_choice *c, const struct tb_choice_ask *ask);
struct tb_codec_form tb_choice_form(enum tb_choice_way way, unsigned *classes_out);
/* And back. */
enum tb_choice_way tb_choice_way_of(struct tb_codec_form form, unsigned classes);

/* An encoded chunk is here, on the peer's base, that cost this link nothing: does it go as it is?
 * If so it counts as the way that was picked. What it saves is told by its bytes; a chunk that
 * changed more than most does so in every sparse way, so of those it is made anew only where one
 * saves that much more than the other, as they do on the average. What was made elsewhere is made
 * anew in no other number of classes, as somebody reckoned with more than this link when that was
 * said; as no sparse difference it may be. */
struct tb_choice_made {
    enum tb_choice_kind kind;
    struct tb_codec_form form;
    unsigned classes; /* of a sparse one; 0: not known */
    uint32_t raw_bytes, wire_bytes;
    bool elsewhere; /* by a rank or another site */
};
bool tb_choice_takes(struct tb_choice *c, const struct tb_choice_made *made);
/* The peer's base is not here any more, but so many steps that lead from it to the chunk: do they
 * go joined, or does the chunk go whole? The bytes add up, and so does the time to decode them. If
 * so it counts as the way that was picked. */
bool tb_choice_joins(struct tb_choice *c, const struct tb_choice_made *joined, unsigned steps);
/* How the last step came from those who encode them, until all of it was encoded,
 * read and decoded. */
struct tb_choice_pace {
    unsigned classes;   /* that it was in; 0: not known */
    double bytes_per_s; /* of the version */
    double saving;      /* of the whole step: single chunks are far apart */
};
/* One step, from the first that was read of it. raw_bytes: of the chunks that were encoded. */
struct tb_choice_came {
    unsigned classes; /* 0: nothing of it was encoded */
    uint64_t raw_bytes, wire_bytes;
    tb_time_ns took_ns;
};
/* What took a moment, as it would have in several classes too, makes the pace unknown: nobody
 * waits for who encodes. False: it says nothing, as it had next to no changes, which cost nothing
 * in one class or in many. */
bool tb_choice_pace_take(struct tb_choice_pace *pace, const struct tb_choice_came *came);
/* In how many classes the next step had best be encoded by somebody else; 0: differences are not
 * sparse, or do not pay. */
unsigned tb_choice_classes(const struct tb_choice *c, const struct tb_choice_pace *pace);

/* One chunk was written (encode_ns) or read back (decode_ns; the other is 0). wire_bytes are those
 * of raw where it did not pay. */
struct tb_choice_sample {
    enum tb_choice_kind kind;
    enum tb_choice_way way;
    uint32_t raw_bytes, wire_bytes;
    tb_time_ns encode_ns, decode_ns;
};
void tb_choice_learn(struct tb_choice *c, const struct tb_choice_sample *sample);
/* What the link carried while it was busy. If it was not full it can do more: then that only raises
 * what is believed of it. */
struct tb_choice_carried {
    double bytes_per_s;
    bool full;
};
void tb_choice_carried(struct tb_choice *c, const struct tb_choice_carried *carried);

/* What the link would move in that way, bytes of the version a second; what bounds it is one of
 * encode, link, decode. */
double tb_choice_rate(const struct tb_choice *c, enum tb_choice_kind kind, enum tb_choice_way way,
                      const char **bound_out);

#endif
