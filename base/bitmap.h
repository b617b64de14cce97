/* bitmap.h - held bits: written by one holder, polled by readers of any thread or process.
 *
 * Words are uint64_t, bit i is word i/64, bit i%64. A set is a release store and a test an acquire
 * load, so a thread that sees the bit sees the bytes behind it. Bits past `count` in the last word
 * are 0. Pure; memory is the caller's. */
#ifndef TB_BASE_BITMAP_H
#define TB_BASE_BITMAP_H

#include <stdbool.h>
#include <stdint.h>

#define TB_BITMAP_WORDS(count) (((uint64_t)(count) + 63u) / 64u)

bool tb_bitmap_test(const uint64_t *words, uint32_t index);
/* Sets the bit; true if it was clear before (exactly one of several racing setters is told
 * true). */
bool tb_bitmap_set(uint64_t *words, uint32_t index);
/* Clears the bit; true if it was set before. */
bool tb_bitmap_clear(uint64_t *words, uint32_t index);
uint32_t tb_bitmap_popcount(const uint64_t *words, uint32_t count);
/* First clear / first set index at or after `from`, or `count` if none. */
uint32_t tb_bitmap_next_clear(const uint64_t *words, uint32_t count, uint32_t from);
uint32_t tb_bitmap_next_set(const uint64_t *words, uint32_t count, uint32_t from);
/* Words as they are in a snapshot; each word is loaded once with acquire. */
void tb_bitmap_copy(uint64_t *to, const uint64_t *from, uint32_t count);
/* True when the last word has no bit past count: what a peer sends is checked with this. */
bool tb_bitmap_tail_clear(const uint64_t *words, uint32_t count);

#endif
