/* kernel_move.h - many small ranges of the device's memory moved at once: a copy that is asked for
 * by itself costs its microseconds however short it is. The text of kernels: include
 * kernel_words_*.h first. One block moves one range; all threads call it. */
#ifndef TB_INTRA_KERNEL_MOVE_H
#define TB_INTRA_KERNEL_MOVE_H

#include "intra/cuda/kernel_block.h"

/* The widest words that stand on borders at both ends at the same time. */
TB_DEVICE uint32_t tb_move_width(const struct tb_move_job *job)
{
    const uint64_t apart = (uint64_t)job->from ^ (uint64_t)job->to;
    if ((apart & 7) == 0) return 8;
    if ((apart & 3) == 0) return 4;
    return (apart & 1) == 0 ? 2 : 1;
}

TB_DEVICE void tb_move_word(const struct tb_move_job *job, uint32_t width, uint64_t at)
{
    if (width == 8)
        tb_store64(job->to + at, tb_load64(job->from + at));
    else
        tb_element_store(job->to + at, width, 0, tb_element_load(job->from + at, width, 0));
}

TB_DEVICE void tb_kernel_move(const struct tb_block *b, const struct tb_move_job *job)
{
    const uint32_t width = tb_move_width(job);
    const uint64_t off = (0 - (uint64_t)job->to) & (width - 1), head = off < job->count ? off : job->count;
    const uint64_t words = (job->count - head) / width, tail = job->count - head - words * width;
    for (uint64_t i = b->thread; i < head + tail; i += b->threads) {
        const uint64_t at = i < head ? i : i + words * width;
        job->to[at] = job->from[at];
    }
    for (uint64_t i = b->thread; i < words; i += b->threads)
        tb_move_word(job, width, head + i * width);
}

#endif
