/* bitmap.c - atomic bits over plain words, so that a bitmap can live in memory shared
 * with other processes. */
#include "base/bitmap.h"

#include "base/assert.h"

static uint64_t bit_of(uint32_t index)
{
    return UINT64_C(1) << (index % 64u);
}

static uint64_t load(const uint64_t *words, uint64_t word)
{
    return __atomic_load_n(&words[word], __ATOMIC_ACQUIRE);
}

bool tb_bitmap_test(const uint64_t *words, uint32_t index)
{
    return (load(words, index / 64u) & bit_of(index)) != 0;
}

bool tb_bitmap_set(uint64_t *words, uint32_t index)
{
    return (__atomic_fetch_or(&words[index / 64u], bit_of(index), __ATOMIC_ACQ_REL) & bit_of(index)) == 0;
}

bool tb_bitmap_clear(uint64_t *words, uint32_t index)
{
    return (__atomic_fetch_and(&words[index / 64u], ~bit_of(index), __ATOMIC_ACQ_REL) & bit_of(index)) != 0;
}

/* The bits of the last word that are inside the bitmap. */
static uint64_t tail_mask(uint32_t count)
{
    TB_ASSERT(count > 0); /* else there is no last word */
    return count % 64u == 0 ? UINT64_MAX : bit_of(count) - 1;
}

uint32_t tb_bitmap_popcount(const uint64_t *words, uint32_t count)
{
    const uint64_t word_count = TB_BITMAP_WORDS(count);
    uint32_t bits = 0;
    for (uint64_t i = 0; i < word_count; i++) {
        const uint64_t mask = i + 1 == word_count ? tail_mask(count) : UINT64_MAX;
        uint64_t w = load(words, i) & mask;
        for (; w != 0; w &= w - 1)
            /* no popcount instruction below x86-64-v2, and the compiler's fallback is a library
             * call */
            bits++;
    }
    TB_ASSERT(bits <= count);
    return bits;
}

/* First index at or after `from` whose bit, xor `flip`, is set; count if none. */
static uint32_t next(const uint64_t *words, uint32_t count, uint32_t from, uint64_t flip)
{
    if (from >= count) return count;
    const uint64_t word_count = TB_BITMAP_WORDS(count);
    uint64_t mask = UINT64_MAX << (from % 64u);
    for (uint64_t i = from / 64u; i < word_count; i++, mask = UINT64_MAX) {
        const uint64_t w = (load(words, i) ^ flip) & mask;
        if (w == 0) continue;
        const uint64_t index = i * 64u + (uint64_t)__builtin_ctzll(w);
        TB_ASSERT(index >= from);
        return index < count ? (uint32_t)index : count;
    }
    return count;
}

uint32_t tb_bitmap_next_clear(const uint64_t *words, uint32_t count, uint32_t from)
{
    return next(words, count, from, UINT64_MAX);
}

uint32_t tb_bitmap_next_set(const uint64_t *words, uint32_t count, uint32_t from)
{
    return next(words, count, from, 0);
}

void tb_bitmap_copy(uint64_t *to, const uint64_t *from, uint32_t count)
{
    const uint64_t word_count = TB_BITMAP_WORDS(count);
    for (uint64_t i = 0; i < word_count; i++)
        to[i] = load(from, i);
}

bool tb_bitmap_tail_clear(const uint64_t *words, uint32_t count)
{
    if (count == 0) return true;
    return (load(words, TB_BITMAP_WORDS(count) - 1) & ~tail_mask(count)) == 0;
}
