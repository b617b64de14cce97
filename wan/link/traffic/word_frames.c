/* word_frames.c - frames that carry words of a bitmap: HELD, TAKE and HAVE. */
#include "wan/link/traffic/word_frames.h"

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/session/link_control.h"

void tb_link_send_words(struct tb_link *l, enum tb_frame_type type, uint32_t crossing, uint32_t shard,
                        const struct tb_held_word *words, uint32_t count)
{
    TB_ASSERT(crossing != 0 && count > 0 && count <= LINK_WORDS_MAX);
    const uint32_t bytes = count * TB_HELD_WORD_BYTES;
    struct tb_writer *w = tb_link_begin(l, type, LINK_SMALL + bytes);
    if (w == NULL) return;
    tb_write_u32(
        w, crossing); /* as tb_frame_held, tb_frame_take and tb_frame_have; their span is written in place */
    tb_write_u32(w, shard);
    tb_write_u32(w, bytes);
    tb_held_words_encode(words, count, w);
    tb_link_end(l);
}
