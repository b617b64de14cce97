/* far_reach.h - a second process on the same GPU that reads a tray of ours (intra/cuda_part.h):
 * this program once more, begun with FAR_REACH_ARGUMENT, as a context does not outlive a fork. For
 * tests/gpu and bench. */
#ifndef TB_TESTS_FAR_REACH_H
#define TB_TESTS_FAR_REACH_H

#include <sys/types.h>

#include "intra/cuda_part_trays.h"

#define FAR_REACH_ARGUMENT "--far-reach"

struct far_reach {
    pid_t pid;
    int to, from;
};
/* It has opened the tray; else what it was refused with. */
enum tb_status far_reach_open(struct far_reach *r, const struct tb_gpu_offer *offer);
/* It copies them out of the tray to pinned memory, and from there into `to`; NULL: only out. */
enum tb_status far_reach_copy(struct far_reach *r, uint64_t at, uint64_t bytes, void *to);
/* It copies them out, and the caller goes on. Answers come in the order of the asks. */
void far_reach_ask(struct far_reach *r, uint64_t at, uint64_t bytes);
enum tb_status far_reach_answer(struct far_reach *r);
void far_reach_close(struct far_reach *r); /* it has closed the tray */
/* The program with FAR_REACH_ARGUMENT. */
int far_reach_main(void);

#endif
