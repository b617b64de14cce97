/* door_lent.h - the owner's end of lent memory (lent_memory.h): a reader of this host lends some,
 * then asks for bytes of the export to be put into it. Inside intra/ only.
 *
 * The fabric's pool copies, several jobs at a time. PUTs are told as done in their order. A reader
 * is told that one is done once its bytes stand there, never before (P1).
 *
 * Threads: the fabric's. */
#ifndef TB_INTRA_DOOR_LENT_H
#define TB_INTRA_DOOR_LENT_H

#include "intra/fabric/fabric_inside.h"
#include "intra/hop/hop_wire.h"

struct tb_door_lent;

struct tb_door_lent_events {
    void (*on_turn)(void *user); /* a job is over: there may be an answer, or it is busy no more */
};

/* Takes fd, on failure too. TB_BAD_ARGUMENT: no such size; TB_SITE_NOMEM, also where readers have
 * lent TB_LENT_ALL_MAX. */
TB_MUST_USE enum tb_status tb_door_lent_open(struct tb_fabric *f, int fd, uint64_t bytes,
                                             const struct tb_door_lent_events *events, void *user,
                                             struct tb_door_lent **lent_out);
/* `from` is the export's memory of the request. False: no reader asks so. */
bool tb_door_lent_put(struct tb_door_lent *l, const uint8_t *from, const struct tb_hop_request *r);
/* False: there is nothing to answer now. */
bool tb_door_lent_answer(struct tb_door_lent *l, struct tb_hop_answer *answer_out);
/* The descriptor that came is not as tb_lent_memory_make makes it: the reader means harm. */
bool tb_door_lent_is_bad(const struct tb_door_lent *l);
/* A job of its may look at the export's memory, or at its own. */
bool tb_door_lent_busy(const struct tb_door_lent *l);
/* No job is begun any more. */
void tb_door_lent_stop(struct tb_door_lent *l);
void tb_door_lent_free(struct tb_door_lent *l); /* not while it is busy */

#endif
