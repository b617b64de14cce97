/* verbs_part.h - the RDMA part of a fabric, which may be absent: intra/verbs where rdma-core was
 * found, else verbs_absent.c. Inside intra/ only.
 *
 * A reader dials the door as `tcp` does, shows its token, and asks for RDMA. The door tells its
 * rails and a secret for one connection; the reader connects a queue pair by rdma_cm, showing the
 * secret; then it attaches buffers: the door answers with addresses and keys, good for that queue
 * pair's protection domain alone, which is the export's. The connection stays as the lease.
 *
 * One queue pair per reader and source is the revocation: to take memory back the owner moves it to
 * error, waits until what it had begun is flushed, and destroys it.
 *
 * Threads: the fabric's, but for tb_verbs_export_drop and what is said of memory. */
#ifndef TB_INTRA_VERBS_PART_H
#define TB_INTRA_VERBS_PART_H

#include "intra/fabric/fabric_inside.h"
#include "intra/verbs/rails.h"

struct tb_verbs;
struct tb_verbs_guest;
struct tb_verbs_export;

/* Before the loop runs. NULL in *verbs_out: there is no RDMA here, and the sentence says
 * why; nothing else fails. */
const char *tb_verbs_open(struct tb_fabric *f, struct tb_verbs **verbs_out);
/* When the loop does not run any more and all hops and guests are gone: closes its handles; the
 * loop has to turn once more before free. */
void tb_verbs_close(struct tb_verbs *v);
void tb_verbs_free(struct tb_verbs *v);

/* Any thread but the fabric's: tb_fabric_memory_stays, tb_fabric_memory_goes. Without
 * RDMA both do nothing. */
void tb_verbs_memory_stays(struct tb_verbs *v, const void *bytes, uint64_t count);
void tb_verbs_memory_goes(struct tb_verbs *v, const void *bytes);
/* Time that registering memory took so far. Any thread. */
tb_time_ns tb_verbs_registering(struct tb_verbs *v);

/* ---- the owner's side ---- */

struct tb_verbs_guest_events {
    void (*on_attachable)(void *user); /* ask again for the buffer that answered TB_AGAIN */
    void (*on_broken)(void *user);     /* its queue pair failed, or it did what no reader does: end it */
    void (*on_gone)(void *user);       /* after end: nothing of its queue pair is left; the guest is freed */
};
/* A reader that may connect, once. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_verbs_guest_open(struct tb_verbs *v, struct tb_export *export,
                                               const struct tb_verbs_guest_events *events, void *user,
                                               struct tb_verbs_guest **guest_out);
const struct tb_id *tb_verbs_guest_secret(const struct tb_verbs_guest *g);
/* Our rails as the reader should see them; how many of TB_RAILS_MAX. They all listen at
 * *port_out. */
uint32_t tb_verbs_rails(struct tb_verbs *v, const struct tb_export *export, struct tb_rail *rails_out,
                        uint16_t *port_out);

struct tb_verbs_window { /* where a buffer stands for the guest's NIC */
    uint64_t address;
    uint32_t key;
};
/* TB_AGAIN: it is being registered, on_attachable follows. TB_SITE_IO: the NIC cannot reach it.
 * TB_BAD_STATE: not connected. */
TB_MUST_USE enum tb_status tb_verbs_guest_window(struct tb_verbs_guest *g, uint32_t buffer,
                                                 struct tb_verbs_window *window_out);
/* Moves the queue pair to error; on_gone follows outside of this call, when it was
 * drained and destroyed. */
void tb_verbs_guest_end(struct tb_verbs_guest *g);

/* Any thread but the loop's, when no guest of the export is left: its registrations go, but those
 * of memory that stays. NULL is fine. */
void tb_verbs_export_drop(struct tb_verbs_export *e);

#endif
