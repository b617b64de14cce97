/* shm_tray.h - the reader's end of a tray (cuda_part.h), for the chunks of one source whose bytes
 * stand on a GPU. Inside intra/ only.
 *
 * A chunk takes a part of the tray. The door is asked to fill it; what came is `staged`, and the
 * pool copies it out to where it lands, and only then is it digested there (P1). Nothing depends on
 * it: what the tray cannot bring, because the device, the driver or the source's end of it failed
 * or is late, comes out of the copy in host memory that every such source keeps.
 *
 * Threads: the fabric's; tb_shm_tray_copy any. */
#ifndef TB_INTRA_SHM_TRAY_H
#define TB_INTRA_SHM_TRAY_H

#include <stdatomic.h>

#include "intra/cuda_part_trays.h"
#include "intra/transport/pipe.h"
#include "intra/transport/shm_parts.h"

enum tb_shm_tray_state {
    TB_SHM_TRAY_NONE,    /* not asked for */
    TB_SHM_TRAY_ASKED,   /* the door is asked */
    TB_SHM_TRAY_OPENING, /* by the pool */
    TB_SHM_TRAY_OPEN,
    TB_SHM_TRAY_OVER, /* it could not be had, or failed */
};

struct tb_shm_tray_opening; /* on a thread of the pool */

struct tb_shm_tray {
    struct tb_pipe *stream;
    struct tb_gpu *gpu;
    void (*on_settled)(void *owner); /* open, or over */
    void (*on_closed)(void *owner);
    void *owner;

    enum tb_shm_tray_state state;
    enum tb_transport_why why; /* of a hop that has settled */
    uint64_t bytes;
    uint32_t late_ms;
    uint32_t answers;
    bool none; /* the door has none for us */
    struct tb_gpu_offer offer;
    struct tb_gpu_reach *reach;
    int lease; /* the connection once more, so that it does not end before the tray is closed; -1: none */
    bool asked_fills;
    atomic_bool broken; /* nothing more goes by it */

    struct tb_shm_parts parts;
    struct tb_read *first, *last; /* asked for, in order */
    uint32_t owed;
    tb_time_ns heard_at; /* when something came, or it was asked for, or the first READ was */

    struct tb_shm_tray_opening *opening; /* NULL: none runs */
    struct tb_pool_job close_job;
    struct tb_fabric_job close_done;
    bool closing;
};

struct tb_shm_tray_options {
    const struct tb_upstream_options *upstream;
    struct tb_pipe *stream;
    void (*on_settled)(void *owner);
    void (*on_closed)(void *owner);
    void *owner;
};
void tb_shm_tray_init(struct tb_shm_tray *t, const struct tb_shm_tray_options *options);
/* Asks the door for one; on_settled follows. */
void tb_shm_tray_ask(struct tb_shm_tray *t);
/* A TRAY or a FILLED. False: nonsense. */
bool tb_shm_tray_answer(struct tb_shm_tray *t, const struct tb_hop_answer *answer);
/* It may be read by way of the tray: it is packed bytes, and there is room. */
bool tb_shm_tray_takes(const struct tb_shm_tray *t, const struct tb_read *read);
void tb_shm_tray_read(struct tb_shm_tray *t, struct tb_read *read);
/* Of a READ that came staged. False: it has to be read otherwise. */
bool tb_shm_tray_copy(struct tb_shm_tray *t, const struct tb_read *read);
/* Gives it up, or asking for it, when nothing came for late_ms. Returns when it
 * wants the next call. */
tb_time_ns tb_shm_tray_poll(struct tb_shm_tray *t, tb_time_ns now);
/* No copy runs any more. on_closed follows, outside of this call. A driver that stands still in
 * opening the tray holds nothing up: the opening goes on without the tray, and the door is told
 * once what it brings is closed. */
void tb_shm_tray_close(struct tb_shm_tray *t);

#endif
