/* region.h - memory that a NIC may touch, and for what. The only file that registers memory
 * (tests/fence/verbs_rights.py).
 *
 * Two kinds, and no third: an export's memory may be READ by a queue pair that shares its
 * protection domain and knows its key; the target of our own READs may be written by our own work
 * requests and by nobody else. No memory is ever registered for remote writing or remote atomics.
 * Memory that is both is registered twice, in different domains. pinned_regions.h decides how
 * regions are shared and how long they are kept.
 *
 * Threads: any; registering pins pages and takes a second for some 10 GB, so it is done
 * on the fabric's pool. */
#ifndef TB_INTRA_VERBS_REGION_H
#define TB_INTRA_VERBS_REGION_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

#include "tombolo/status.h"

struct tb_region_options {
    struct ibv_pd *domain;
    void *bytes; /* host memory; of device memory its copy in host memory */
    uint64_t count;
    int dmabuf; /* >= 0: device memory, which stands in this descriptor from dmabuf_offset on */
    uint64_t dmabuf_offset;
    bool target; /* of our own READs; else an export's */
};

struct tb_region {
    struct ibv_mr *mr;
    uint64_t address; /* by which work requests name its first byte */
    bool staged;      /* device memory whose host copy is read: its dma-buf was refused */
};

/* Device memory is registered by its dma-buf; where the NIC or its driver refuses that, its host
 * copy is. TB_SITE_IO with errno: ENOMEM mostly means that RLIMIT_MEMLOCK is too small.
 * TB_BAD_ARGUMENT: no bytes. */
TB_MUST_USE enum tb_status tb_region_register(const struct tb_region_options *options,
                                              struct tb_region *region_out);
void tb_region_free(struct tb_region *region); /* a zeroed one is fine */

struct ibv_pd *tb_region_domain_new(struct ibv_context *device); /* NULL with errno */
void tb_region_domain_free(struct ibv_pd *domain);               /* without regions and queue pairs */

/* For tests: what stands in for ibv_reg_dmabuf_mr, which rdma_rxe has not. NULL: the call
 * itself. */
typedef struct ibv_mr *(*tb_region_dmabuf_fn)(struct ibv_pd *domain, uint64_t offset, size_t count,
                                              uint64_t iova, int fd, int access);
void tb_region_replace_dmabuf(tb_region_dmabuf_fn fn);

#endif
