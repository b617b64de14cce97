/* word_frames.h - frames that carry words of a bitmap. */
#ifndef TB_WAN_WORD_FRAMES_H
#define TB_WAN_WORD_FRAMES_H

#include "wan/frame/frame.h"
#include "wan/link/links.h"

struct tb_link;
struct tb_held_word;

#define LINK_WORDS_MAX (TB_LINK_PAGE_BYTES / TB_HELD_WORD_BYTES) /* in one frame */

/* One frame. Nothing happens when the session is not up. */
void tb_link_send_words(struct tb_link *l, enum tb_frame_type type, uint32_t crossing, uint32_t shard,
                        const struct tb_held_word *words, uint32_t count);

#endif
