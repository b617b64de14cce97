/* door_tray.h - the owner's end of a tray (cuda_part.h): a reader of this host asks for one, then
 * for chunks in it. Inside intra/ only.
 *
 * Making a tray, filling it and giving it back take a GPU long, so they run on the fabric's pool.
 * One job of a tray runs at a time, and takes all that is asked by then.
 *
 * Threads: the fabric's. */
#ifndef TB_INTRA_DOOR_TRAY_H
#define TB_INTRA_DOOR_TRAY_H

#include "intra/fabric/fabric_inside.h"
#include "intra/hop/hop_wire.h"

struct tb_door_tray;

struct tb_door_tray_events {
    /* a job is over: there may be an answer, and the export's memory may be left alone */
    void (*on_turn)(void *user);
    void (*on_gone)(void *user); /* after close: it is freed */
};
/* For a reader of the export, whose origin it copies. TB_BAD_ARGUMENT: no such size;
 * TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_door_tray_open(struct tb_fabric *f, const struct tb_export *export,
                                             uint64_t bytes, const struct tb_door_tray_events *events,
                                             void *user, struct tb_door_tray **tray_out);
/* False: no reader asks so. */
bool tb_door_tray_fill(struct tb_door_tray *t, const struct tb_hop_request *r);
/* False: there is nothing to answer now. */
bool tb_door_tray_answer(struct tb_door_tray *t, struct tb_hop_answer *answer_out);
/* A job of its may look at the export's memory. */
bool tb_door_tray_busy(const struct tb_door_tray *t);
/* No fill is begun any more; on_gone follows, outside of this call. */
void tb_door_tray_close(struct tb_door_tray *t, bool reader_closed);

#endif
