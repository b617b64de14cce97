/* scene.h - what nearly every test of the fabric needs: one owner, one reader's
 * fabric, one place. */
#ifndef TB_TESTS_INTRA_SCENE_H
#define TB_TESTS_INTRA_SCENE_H

#include "island.h"

struct scene {
    const struct way *way;
    struct cargo cargo;
    struct owner owner;
    struct hold hold;
    struct tb_hop_place place;
    struct tb_fabric *reader;
    struct tale tale;
};

void scene_open(struct scene *s, const struct way *way, uint32_t tensors, uint64_t tensor_bytes,
                uint64_t pace);
struct tb_hop *scene_hop(struct scene *s);
void scene_close(struct scene *s); /* P1, in every test: what is held is what was sealed */

bool over_network(const struct way *way);
/* Reads until the other end hangs up, for 10 s at most; how much came. */
size_t read_to_end(int fd);

#endif
