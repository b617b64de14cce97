/* tied_tensors.h - tensors of one registration that stand in one memory: tied weights, such as an
 * output head that is the embedding.
 *
 * Two that have the same address and as many bytes are *tied*: a version is written to the first of
 * them alone, and has to have the same bytes for both. Two that share some bytes and not all are an
 * *overlap*: they can be published, and nothing is written to them.
 *
 * Pure, but for the lists it makes. */
#ifndef TB_INTRA_CLIENT_TIED_H
#define TB_INTRA_CLIENT_TIED_H

#include "base/layout/layout.h"
#include "base/layout/tensor.h"

#define TB_TIED_NONE UINT32_MAX

struct tb_tied {
    /* of each: the first with its memory, TB_TIED_NONE: it is that one. NULL: none is tied */
    uint32_t *first_of;
    uint32_t count;      /* that are tied to another */
    uint64_t bytes;      /* of those */
    uint32_t overlap[2]; /* two that share some bytes; both TB_TIED_NONE: no two do */
};

/* Tensors, where each stands (NULL: nowhere) and how many they are. */
struct tb_tied_list {
    const struct tb_tensor *tensors;
    uint8_t *const *memory;
    uint32_t count;
};

/* n log n. TB_SITE_NOMEM: *tied_out is untouched. */
TB_MUST_USE enum tb_status tb_tied_find(const struct tb_tied_list *list, struct tb_tied *tied_out);
/* it is zero then; a zeroed one is fine */
void tb_tied_free(struct tb_tied *tied);
bool tb_tied_has(const struct tb_tied *tied, uint32_t i); /* tied to another */
bool tb_tied_equal(const struct tb_tied *a, const struct tb_tied *b, uint32_t count);

/* Two, one of each list, that have a byte in common; both TB_TIED_NONE: none have. n log n.
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_tied_meet(const struct tb_tied_list *a, const struct tb_tied_list *b,
                                        uint32_t meet_out[2]);

#endif
