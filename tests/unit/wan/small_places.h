/* small_places.h - places of a few chunks without bytes behind them, for cores that
 * only look at bitmaps. */
#ifndef TB_TESTS_SMALL_PLACES_H
#define TB_TESTS_SMALL_PLACES_H

#include "base/layout/place.h"
#include "wan/frame/frame.h"

#define SMALL_CHUNKS_MAX 256u

struct small_place {
    struct tb_chunk chunks[SMALL_CHUNKS_MAX];
    struct tb_manifest manifest;
    uint64_t held[SMALL_CHUNKS_MAX / 64];
    uint64_t claimed[SMALL_CHUNKS_MAX / 64];
};

/* Chunks of equal size; *place_out stands on `s`. */
static inline void small_place_init(struct small_place *s, uint32_t count, uint32_t chunk_bytes,
                                    struct tb_place *place_out)
{
    memset(s, 0, sizeof *s);
    for (uint32_t k = 0; k < count; k++)
        s->chunks[k] = (struct tb_chunk){(uint64_t)k * chunk_bytes, chunk_bytes};
    s->manifest = (struct tb_manifest){.chunk_count = count, .chunks = s->chunks};
    *place_out = (struct tb_place){.manifest = &s->manifest, .held = s->held, .claimed = s->claimed};
}

static inline void small_place_hold(struct small_place *s, uint32_t first, uint32_t end)
{
    for (uint32_t k = first; k < end; k++)
        tb_bitmap_set(s->held, k);
}

/* A span of words as HELD carries it, in a static buffer. */
static inline struct tb_span small_words(const struct tb_held_word *words, uint32_t count)
{
    static uint8_t bytes[512];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_held_words_encode(words, count, &w);
    return (struct tb_span){bytes, (uint32_t)w.used};
}

#endif
