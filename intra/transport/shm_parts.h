/* shm_parts.h - a hop's chunks come through parts of memory, each of the largest chunk's size: of
 * lent memory (shm_lent.h), of a tray (shm_tray.h). Inside intra/ only.
 *
 * Threads: the fabric's takes; any gives back. */
#ifndef TB_INTRA_SHM_PARTS_H
#define TB_INTRA_SHM_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct tb_upstream_options;

#define TB_SHM_PARTS_MAX 32u

struct tb_shm_parts {
    uint64_t each; /* bytes */
    uint32_t count;
    atomic_bool used[TB_SHM_PARTS_MAX];
};

struct tb_shm_parts_limits {
    uint32_t align, least;
    uint64_t room; /* for all, if those are `least` at least */
};

/* As many as there is room for, and no more than the hop has chunks. */
void tb_shm_parts_divide(struct tb_shm_parts *p, const struct tb_upstream_options *upstream,
                         const struct tb_shm_parts_limits *limits);
uint64_t tb_shm_parts_bytes(const struct tb_shm_parts *p);
bool tb_shm_parts_left(const struct tb_shm_parts *p);
/* False: all are used. */
bool tb_shm_parts_take(struct tb_shm_parts *p, uint32_t *part_out);
void tb_shm_parts_give_back(struct tb_shm_parts *p, uint32_t part);
/* Of one that is used: where it begins. */
uint64_t tb_shm_parts_at(const struct tb_shm_parts *p, uint32_t part);

#endif
