/* shm_lent.h - the reader's end of lent memory (intra/fabric/lent_memory.h), for the chunks of one
 * source whose memory this process may not read. Inside intra/ only.
 *
 * A chunk takes a part of it. The door is asked to put the chunk there, run by run. The READ is
 * then `staged`: the pool copies it out, once, to where it lands, and only then is it digested
 * there (P1). The source may change the part at any time, so the bytes in it are never judged.
 * Where all parts are taken a READ waits for one.
 *
 * Threads: the fabric's; tb_shm_lent_copy any. */
#ifndef TB_INTRA_SHM_LENT_H
#define TB_INTRA_SHM_LENT_H

#include <stdatomic.h>

#include "intra/fabric/lent_memory.h"
#include "intra/transport/pipe.h"
#include "intra/transport/shm_parts.h"

enum tb_shm_lent_state {
    TB_SHM_LENT_NONE,   /* not lent */
    TB_SHM_LENT_MAKING, /* on the pool */
    TB_SHM_LENT_ASKED,  /* the door has it */
    TB_SHM_LENT_OPEN,
    TB_SHM_LENT_OVER, /* it could not be made, or the door has no room for it */
};

struct tb_shm_lent {
    struct tb_pipe *stream;
    void (*on_settled)(void *owner); /* open, or over */
    void (*on_closed)(void *owner);
    void *owner;

    enum tb_shm_lent_state state;
    struct tb_lent_memory memory;
    uint64_t bytes, charged; /* charged: of the fabric's lent_bytes */
    struct tb_pool_job make;
    struct tb_fabric_job made;
    bool closing;

    struct tb_shm_parts parts;
    struct tb_read *first, *last; /* in the order of their PUTs */
    struct tb_read *asking;       /* the first that is not asked for to its end */
    uint32_t owed;                /* PUTs without an answer */
    struct tb_fabric_job freed;   /* of a part, where a READ waits for one */
    atomic_bool waits, freed_posted;
};

struct tb_shm_lent_options {
    const struct tb_upstream_options *upstream;
    struct tb_pipe *stream;
    void (*on_settled)(void *owner);
    void (*on_closed)(void *owner);
    void *owner;
};
void tb_shm_lent_init(struct tb_shm_lent *l, const struct tb_shm_lent_options *options);
/* Makes memory and offers it to the door; on_settled follows, perhaps inside of this call. */
void tb_shm_lent_begin(struct tb_shm_lent *l);
/* A LENT or a PUT. False: nonsense. */
bool tb_shm_lent_answer(struct tb_shm_lent *l, const struct tb_hop_answer *answer);
bool tb_shm_lent_takes(const struct tb_shm_lent *l, const struct tb_read *read);
void tb_shm_lent_read(struct tb_shm_lent *l, struct tb_read *read);
/* Of a READ that came staged from here. */
void tb_shm_lent_copy(struct tb_shm_lent *l, const struct tb_read *read);
/* No copy runs any more. on_closed follows: at once, or when the pool has made what it makes. */
void tb_shm_lent_close(struct tb_shm_lent *l);

#endif
