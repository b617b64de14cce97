/* codec.h - one interface for every way to write a chunk in fewer bytes. A shell-free
 * library, but it links zstd.
 *
 * A decoder never reads or writes outside what it was given, whatever it is fed, and never
 * allocates from a number it read. Nothing is allocated for a chunk: a context has all that its
 * codecs need. docs/protocol.md has the forms. */
#ifndef TB_BASE_CODEC_H
#define TB_BASE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/layout/dtype.h"
#include "base/vector.h"
#include "tombolo/status.h"

/* Numbers are on the wire.
 *   RAW     the bytes
 *   ZSTD    one zstd frame at level 1; for what is not floats
 *   PLANES  exponents shortened and mantissas as they are; as a delta, each element's difference
 *   SPARSE  a delta: the elements that changed
 *   CHAINED chained deltas: SPARSE chunks one after another, each on the result of the one before.
 *           Made by merging, never by encoding */
enum tb_codec_id {
    TB_CODEC_RAW = 0,
    TB_CODEC_ZSTD = 1,
    TB_CODEC_PLANES = 2,
    TB_CODEC_SPARSE = 3,
    TB_CODEC_CHAINED = 4
};

/* The form of an encoded chunk. A delta codes the integer difference to the same chunk of an
 * older version (its base), modulo the width of an element. RAW is never a delta; SPARSE and
 * CHAINED always are. */
struct tb_codec_form {
    enum tb_codec_id id;
    bool on_base;
};

struct tb_codec_input {
    const void *bytes;
    size_t count;        /* at most TB_CODEC_BYTES_MAX */
    enum tb_dtype dtype; /* of the chunk's elements; U8 for blobs */
    const void *base;    /* `count` bytes of the older version; NULL: none */
    unsigned classes;    /* SPARSE: 1 (fastest) to 16 (fewest bytes); 0: TB_CODEC_CLASSES */
};

#define TB_CODEC_CLASSES     8u /* of 16: half the time, and one byte in a hundred more */
#define TB_CODEC_BYTES_MAX   ((size_t)64 << 20)
#define TB_CODEC_CHAINED_MAX 16u /* in one chunk */

/* A chunk as it travels; `bytes` is borrowed. */
struct tb_codec_coded {
    struct tb_codec_form form;
    const void *bytes;
    size_t count;
};

/* Of a SPARSE chunk, in how many classes it says that it is; else 0. Nothing else of it is looked
 * at. */
unsigned tb_codec_classes(const struct tb_codec_coded *coded);

struct tb_codec_room {
    void *bytes;
    size_t cap; /* at least tb_codec_bound */
};

/* Contexts are heavy (about 1 MiB once used): one a thread. TB_SITE_NOMEM. */
struct tb_codec;
TB_MUST_USE enum tb_status tb_codec_new(struct tb_codec **codec_out);
void tb_codec_free(struct tb_codec *codec);
/* For tests and benches: instructions other than this machine's best, which must be here.
 * Bytes stay the same. */
void tb_codec_force(struct tb_codec *codec, enum tb_vector vector);

TB_MUST_USE enum tb_status tb_codec_parse(const char *name, enum tb_codec_id *id_out); /* TB_BAD_ARGUMENT */
/* Whether there is such a form: a number from the wire is asked first. */
bool tb_codec_form_valid(struct tb_codec_form form);

/* The most that encode may write for `count` bytes. */
size_t tb_codec_bound(enum tb_codec_id id, size_t count);

/* Writes `in` as `wanted`, or raw if that does not get below 0.97 of the input (and where CHAINED
 * are wanted): coded_out->form says which, and coded_out->bytes is room's memory. `wanted` is
 * valid, and in->base is there where it is a delta. TB_SITE_NOMEM: the room is less than
 * tb_codec_bound. */
TB_MUST_USE enum tb_status tb_codec_encode(struct tb_codec *codec, struct tb_codec_form wanted,
                                           const struct tb_codec_input *in, struct tb_codec_room room,
                                           struct tb_codec_coded *coded_out);

/* How many deltas an encoded chunk is: 1 of SPARSE; of CHAINED the number that it claims, not
 * looked at yet. 0: it is of another form. */
unsigned tb_codec_deltas(const struct tb_codec_coded *coded);
/* The bytes that tb_codec_chain writes of them. 0: it would refuse. One is no delta that can be
 * merged, or they are over TB_CODEC_CHAINED_MAX together. */
size_t tb_codec_chain_bytes(const struct tb_codec_coded *parts, unsigned count);
/* Merges chained deltas, each against the result of the one before, into one merged delta
 * against the base of the first; one alone stays as it is. TB_SITE_NOMEM: the room is less;
 * TB_CHUNK_CODEC: a part says other lengths than it has, or tb_codec_chain_bytes is 0. */
TB_MUST_USE enum tb_status tb_codec_chain(const struct tb_codec_coded *parts, unsigned count,
                                          struct tb_codec_room room, struct tb_codec_coded *coded_out);

struct tb_codec_output {
    void *bytes;
    size_t count;
    const void *base; /* `count` bytes that `bytes` does not touch; NULL: none */
};

/* Decodes exactly out->count bytes into memory that is not the base's. Whether they are the right
 * ones is for the chunk's digest to say: a form does not know of which base it is. TB_CHUNK_CODEC:
 * unknown form, damaged, another length comes out, or it needs a base and has none; the output is
 * then of any content. */
TB_MUST_USE enum tb_status tb_codec_decode(struct tb_codec *codec, const struct tb_codec_coded *coded,
                                           const struct tb_codec_output *out);

#endif
