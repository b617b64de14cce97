/* session_lock.h - the lock of a session, its waits, the first and last step of a call. The table
 * below is the locking contract of intra/client. */
/* clang-format off */
/* Threads
 *
 *   thread    runs                                             takes
 *   --------  -----------------------------------------------  ------------------------------------
 *   caller    a public call, between enter and leave           1, 2, leaf locks
 *   session   the loop of connection.c: frames, timers, the    1, leaf locks; 2 by trylock alone
 *             answers of requests, notices, plans, hops
 *   crew      the task that prepares a staging                 1, 2
 *             the task that looks at mapped files              1
 *             the task that prepares memory                    1
 *             pieces of a pass, a copy, a switch, an encoding  leaf locks
 *   prover    digests of what a rollout computes from          1; 2 by trylock alone
 *   fabric    events of a hop (hop_said)                       note_lock
 *             chunks that land in a patch (patch.c)            2 by trylock alone, leaf locks
 *   signal    a handler (file_guard.c, seal_protection.c)      none: it calls tb_session_wake alone
 *
 * Locks, in their order. A thread that holds a lock takes only locks of higher numbers.
 *
 *   number  lock                  guards
 *   ------  --------------------  -----------------------------------------------------------------
 *   1       tb_session.lock       each field of the session and of its rooms, unless a field says
 *                                 otherwise
 *   2       tb_patch_target.lock  the bytes of registered buffers that a version is written to;
 *                                 held for writing during a whole switch, which may take seconds
 *   leaf    note_lock             what the fabric reported about the hop of one staging
 *   leaf    tb_patch.lock         the list of idle tools of one patch
 *   leaf    locks of the crew, an encoding, layouts, the fabric, the GPU and the tables of handlers
 *           (the GPU's lock comes before the crew's)
 *
 * Waits. The session thread renews the lease, so no thread may keep lock 1 for long.
 *
 *   call                             under lock 1  because
 *   -------------------------------  ------------  ------------------------------------------------
 *   tb_session_wait_*                yes           it lets the lock go while it waits
 *   tb_hop_open, tb_crew_submit,     yes           none of them waits
 *   tb_export_open, tb_export_grant
 *   tb_hop_close*                    yes           it waits for a chunk in hand; that tries lock 2
 *   tb_registration_gone             yes           no pass runs, so lock 2 is held for a chunk only
 *   tb_recheck                       yes           it digests or copies one chunk, and no pass runs
 *   tb_layouts_decode                yes           it parses one manifest
 *   tb_buffer_memory_open,          yes           no page of the memory is made yet
 *   tb_reserve_ask
 *   tb_registration_stretch          yes           it sorts the tensors of a registration once
 *   tb_guard_end, tb_protection_end  yes           they wait for a signal handler that runs now
 *   tb_export_close                  no            it drains readers for seconds
 *   tb_buffer_memory_new, _free,    no            pages take a third of a second a GiB
 *   tb_fabric_memory_goes,
 *   tb_reserve_take
 *   tb_crew_run, tb_pass_run,        no            they work on all of a version
 *   tb_encoding_end, tb_patch_apply
 *   tb_guard_look                    no            it waits for the disk of a mapped file; the
 *                                                  session thread does not call it either
 *   tb_boxes_match                   no            a million tensors take long
 *   tb_gpu_open, tb_gpu_memory_*     no            a driver's library is read; a device comes up
 *   (but for _device, _has, _facts)
 *   rdlock or wrlock of lock 2       no            a switch may hold it for seconds; see trylock
 *   (but for tb_registration_gone)
 *
 * A function "under the lock" may say that it lets the lock go. Then its caller looks again at what
 * it knew before: rows may have gone. A mark (passes, calls) or a life (busy, preparing) keeps a
 * row. */
/* clang-format on */
#ifndef TB_INTRA_CLIENT_SESSION_LOCK_H
#define TB_INTRA_CLIENT_SESSION_LOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/time.h"
#include "tombolo/status.h"

struct tb_session;

struct tb_call {
    tb_time_ns began;
    tb_time_ns deadline;
    uint64_t cancels; /* as it was when the call began */
};

void tb_session_lock_init(struct tb_session *s);
void tb_session_lock_fini(struct tb_session *s);

/* Every public call begins with enter and ends with leave. TB_OK: the lock is not held, and the
 * session stays until leave. */
int tb_session_enter(struct tb_session *s);
void tb_session_leave(struct tb_session *s);
/* Waits until every call has left; later calls are refused. Without the lock. */
void tb_session_wait_for_calls(struct tb_session *s);

void tb_session_lock(struct tb_session *s);
void tb_session_unlock(struct tb_session *s);
/* Whether the calling thread holds the lock. For the two asserts below. */
bool tb_session_is_held(const struct tb_session *s);
#define TB_ASSERT_LOCKED(s)   TB_ASSERT(tb_session_is_held(s))
#define TB_ASSERT_UNLOCKED(s) TB_ASSERT(!tb_session_is_held(s))

/* Under the lock: something changed; `tell` also makes the eventfd readable. */
void tb_session_changed(struct tb_session *s, bool tell);
/* Under the lock: waits for a change. TB_OK: look again; TB_TIMEOUT, TB_CANCELLED. */
enum tb_status tb_session_wait_change(struct tb_session *s, const struct tb_call *call);
/* Under the lock: waits for a change that another thread of ours is bound to make. */
void tb_session_wait_unbounded(struct tb_session *s);

/* The session thread looks at all rows soon. Any thread or signal handler. */
void tb_session_wake(struct tb_session *s);

/* Without the lock. */
struct tb_call tb_call_begin(struct tb_session *s, uint32_t timeout_ms);
/* Under the lock: how long readers may drain. */
uint32_t tb_session_drain_ms(const struct tb_session *s);

#endif
