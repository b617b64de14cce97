/* land_chunk.h - a chunk that came becomes held, or is refused with a reason.
 *
 * Hops, streams, gifts, the gateway's reading at home and updates in place land their chunks here:
 * one base lookup, one decoder, one set of refusals. A chunk is decoded into memory that nobody
 * reads yet. place.h digests it there, and only then is it held (P1). Nothing decodes over the
 * memory of a base.
 *
 * A shell, as decoders keep memory. Any thread; a codec is one thread's at a time. */
#ifndef TB_BASE_LAND_CHUNK_H
#define TB_BASE_LAND_CHUNK_H

#include "base/codec/codec.h"
#include "base/layout/place.h"
#include "base/time.h"

struct tb_land {
    struct tb_place *place;
    uint32_t chunk;
    /* The chunk came encoded, and `codec` decodes it into `into`; `into` NULL: into the place.
     * NULL: it came as bytes, which stand at `beside`; `beside` NULL: in the place. */
    const struct tb_codec_coded *encoded;
    struct tb_codec *codec;
    uint8_t *into;
    const uint8_t *beside;
    /* Of an encoded chunk that is a delta: its base, from tb_land_base; NULL: the base is gone. */
    const uint8_t *base;
    bool owner_decodes; /* the delta's base is in the memory of the place's owner */
    bool foreign;       /* it came from one who is not believed about its bytes (place.h) */

    /* Outputs: the decoder made the chunk, whatever its digest, and in what time. */
    bool decoded;
    tb_time_ns decode_ns;
};

/* Chunk k of the base version's shard, as a decoder of a delta needs it: it is held there, and it
 * begins and ends where chunk k of `manifest` does. NULL: it does not, or it is not held. */
const uint8_t *tb_land_base(const struct tb_place *base, const struct tb_manifest *manifest, uint32_t k);

/* Decodes, digests, keeps. The caller has claimed the chunk; the claim ends, whatever the answer.
 * Where the status is not TB_OK, the chunk is absent again:
 *   TB_NOT_FOUND     it is a delta, and its base is not here
 *   TB_CHUNK_CODEC   it does not decode, or the owner cannot decode it
 *   TB_CHUNK_DIGEST  it is not what was sealed, or it is foreign and does not fit a known proof
 *   another          the owner of the place could not look */
TB_MUST_USE enum tb_status tb_land_chunk(struct tb_land *land);

/* The place's owner looks at the chunk (place.h), so its answer comes later. */
bool tb_land_is_owners(const struct tb_land *land);
/* tb_land_chunk of such a chunk. The answer comes by look->done, which the caller has set, maybe
 * inside this call. All that `land` points to stays until then; `land` itself does not have to. */
void tb_land_later(struct tb_land *land, struct tb_place_look *look);

/* The same without a claim: the chunk decodes into `into`, or its bytes stand at `beside`, and the
 * place is left alone. TB_OK: the bytes there are what was sealed. `owner_decodes` is false. */
TB_MUST_USE enum tb_status tb_land_beside(struct tb_land *land);

#endif
