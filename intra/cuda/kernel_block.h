/* kernel_block.h - what threads of a block do together, and elements by their width. The text of
 * kernels: include kernel_words_*.h first. All threads of a block call each of these. */
#ifndef TB_INTRA_KERNEL_BLOCK_H
#define TB_INTRA_KERNEL_BLOCK_H

#include "intra/cuda/kernel_jobs.h"

/* The sum of the numbers that the threads before this one gave; *total_out is the sum of all.
 * `sums` has a number for each warp. */
TB_DEVICE uint32_t tb_block_before(const struct tb_block *b, uint32_t *sums, uint32_t mine,
                                   uint32_t *total_out)
{
    const uint32_t upto = tb_warp_upto(b, mine), warps = b->threads / tb_lanes(b);
    uint32_t before = upto - mine, total = 0;
    if (tb_lane(b) + 1 == tb_lanes(b)) sums[tb_warp(b)] = upto;
    tb_block_sync(b);
    for (uint32_t w = 0; w < warps; w++) {
        before += w < tb_warp(b) ? sums[w] : 0;
        total += sums[w];
    }
    tb_block_sync(b);
    *total_out = total;
    return before;
}

struct tb_thread_part { /* the items of one thread, one behind the other */
    uint32_t first, end;
};
TB_DEVICE struct tb_thread_part tb_thread_part_of(const struct tb_block *b, uint32_t count)
{
    struct tb_thread_part s;
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
