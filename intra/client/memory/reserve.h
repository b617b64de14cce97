/* reserve.h - the table of memory that is prepared in background: its pages are made, and pinned
 * where a device will read them, before the call that needs it.
 *
 * The first call that wants such memory takes it, at any time. The call makes the pages that are
 * missing by then itself, on all threads of the crew, and waits for the pieces in hand. So it never
 * waits longer than without a reserve. A refusal costs nothing but a line: the call makes its
 * memory as it did before. */
#ifndef TB_INTRA_CLIENT_RESERVE_H
#define TB_INTRA_CLIENT_RESERVE_H

#include <stdbool.h>

#include "base/ident.h"
#include "intra/client/memory/memory_pieces.h"
#include "intra/client/memory/reserve_life.h"

struct tb_registration;
struct tb_session;

/* Less is made faster than it is asked for. */
#define TB_RESERVE_LEAST ((uint64_t)16 << 20)

enum tb_reserve_kind {
    TB_RESERVE_SHADOW,  /* of a shard that is published */
    TB_RESERVE_SHELF,   /* for the deltas of one */
    TB_RESERVE_COPY,    /* of a GPU's memory that is published in place */
    TB_RESERVE_STAGING, /* of a version; its shard is 0 */
    TB_RESERVE_KINDS
};

struct tb_reserve_wish {
    enum tb_reserve_kind kind;
    const struct tb_name *model;
    uint32_t shard;
    uint64_t bytes;
    bool pin;                   /* for the devices of this process, if it has any */
    struct tb_registration *of; /* goes with this one; NULL: stays until it is taken */
};

struct tb_reserve {
    struct tb_reserve *next;
    struct tb_session *session;
    enum tb_reserve_life life;
    enum tb_reserve_kind kind;
    struct tb_name model;
    uint32_t shard;
    uint64_t bytes;
    bool pin;
    struct tb_registration *of;
    struct tb_memory_pieces pieces;
};

/* Of a session, since it was opened. */
struct tb_reserve_counts {
    uint64_t taken_bytes;       /* that calls took from here */
    uint64_t taken_ready_bytes; /* of these, what was prepared when the call came */
    uint64_t made_bytes;        /* that calls made without a reserve */
};

/* "shadow", as status says it; the name of such memory for people. */
const char *tb_reserve_kind_name(enum tb_reserve_kind kind);
/* "ready", as status says it. */
const char *tb_reserve_life_name(enum tb_reserve_life life);
/* Of its memory, the part that is prepared. */
uint64_t tb_reserve_ready_bytes(const struct tb_reserve *reserve);

/* Under the lock. It is prepared from now on, in background: behind the crew's other work. Nothing
 * for less than TB_RESERVE_LEAST, or where memory or a thread is refused: a line says so. */
void tb_reserve_ask(struct tb_session *s, const struct tb_reserve_wish *wish);
/* Under the lock: how many stand of the kind, model and shard. */
uint32_t tb_reserve_count(const struct tb_session *s, const struct tb_reserve_wish *wish);
/* Without the lock: memory of that kind for the wish, prepared or made now. Its pages are there.
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_reserve_take(struct tb_session *s, const struct tb_reserve_wish *wish,
                                           struct tb_shared_memory *memory_out);
/* Under the lock, let go meanwhile: what was asked for the registration. */
void tb_reserve_drop_of(struct tb_session *s, const struct tb_registration *of);
/* Under the lock, let go meanwhile: all of the kind and, but for NULL, of the model. */
void tb_reserve_drop(struct tb_session *s, enum tb_reserve_kind kind, const struct tb_name *model);
/* All of them: no task works on one any more. Without the lock. */
void tb_reserves_end(struct tb_session *s);
/* Asserts what holds of the table while the lock is free. Under the lock. */
void tb_reserves_check(const struct tb_session *s);

#endif
