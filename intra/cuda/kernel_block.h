/* kernel_block.h - what threads of a block do together, and elements by their width. The text of
 * kernels: include kernel_words_*.h first. All threads of a block call each of these. */
#ifndef TB_INTRA_KERNEL_BLOCK_H
#define TB_INTRA_KERNEL_BLOCK_H

#include "intra/cuda/kernel_jobs.h"

/* The sum of the numbers that the threads before this one gave; *total_out is the sum of all.
 * `sums` has a number for each thread. */
TB_DEVICE uint64_t tb_block_scan(const struct tb_block *b, uint64_t *sums, uint64_t mine, uint64_t *total_out)
{
    sums[b->thread] = mine;
    tb_block_sync(b);
    for (uint32_t step = 1; step < b->threads; step *= 2) {
        const uint64_t more = b->thread >= step ? sums[b->thread - step] : 0;
        tb_block_sync(b);
        sums[b->thread] += more;
        tb_block_sync(b);
    }
    const uint64_t upto = sums[b->thread];
    *total_out = sums[b->threads - 1];
    tb_block_sync(b);
    return upto - mine;
}

struct tb_share { /* the items of one thread, one behind the other */
    uint32_t first, end;
};
TB_DEVICE struct tb_share tb_share_of(const struct tb_block *b, uint32_t count)
{
    struct tb_share s;
    s.first = (uint32_t)((uint64_t)count * b->thread / b->threads);
    s.end = (uint32_t)((uint64_t)count * (b->thread + 1) / b->threads);
    return s;
}

TB_DEVICE uint32_t tb_element_load(const uint8_t *elements, uint32_t width, uint32_t i)
{
    if (width == 2) return tb_load16(elements + 2 * (uint64_t)i);
    if (width == 4) return tb_load32(elements + 4 * (uint64_t)i);
    return elements[i];
}

TB_DEVICE void tb_element_store(uint8_t *elements, uint32_t width, uint32_t i, uint32_t x)
{
    if (width == 2)
        tb_store16(elements + 2 * (uint64_t)i, x);
    else if (width == 4)
        tb_store32(elements + 4 * (uint64_t)i, x);
    else
        elements[i] = (uint8_t)x;
}

#endif
