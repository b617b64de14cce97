/* dispatcher.c - draws the conclusions, once per turn of the loop: what rooms and the catalog have
 * marked since the last turn is looked at, and the rooms that it concerns are called.
 *
 * A room changes its own rows, marks what follows (tb_daemon_wake) and returns. So nothing that it
 * holds can go while it runs. A mark that a conclusion sets is concluded in the same turn, until
 * nothing is marked.
 *
 * A todo that must be durable is on its way to the disk before anything else is done: the
 * catalog gives those out first, and keeps what rests on one until persist.c has said that it is
 * there. */
#include "gateway/daemon/daemon.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/daemon/catalog_todos.h"
#include "gateway/daemon/control/backup_commands.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/daemon_check.h"
#include "gateway/daemon/links/crossings.h"
#include "gateway/daemon/links/home_statements.h"
#include "gateway/daemon/links/link_opening.h"
#include "gateway/daemon/models/model_life.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/reload.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/daemon/sessions/session_follow.h"
#include "gateway/daemon/sessions/session_publish.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

/* Rows that are on disk now, or whose disk is given up for now. */
static void saved_follow(struct tb_daemon *d)
{
    struct tb_catalog_todo saved;
    while (tb_persist_next(d, &saved))
        tb_todo_saved(d, &saved);
    const uint64_t incarnation = tb_persist_incarnation_written(d);
    if (incarnation != 0) tb_crossings_incarnation(d, incarnation);
}

static enum tb_status request_again(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    switch (frame->type) {
    case TB_MSG_RUN_OPEN:
        return tb_worker_run_open_frame(s, frame);
    case TB_MSG_SUBSCRIBE:
        return tb_worker_subscribe_frame(s, frame);
    case TB_MSG_WAIT:
        return tb_worker_wait_frame(s, frame);
    default:
        TB_ASSERT(frame->type == TB_MSG_VERSION_OPEN);
        return tb_worker_version_open_frame(s, frame);
    }
}

/* A request that waited for the store, or for what other sites remember, comes in again where its
 * frame came in. */
static void requests_again(struct tb_daemon *d)
{
    struct tb_waiting_request *w;
    while ((w = tb_home_runs_ready(d)) != NULL) {
        struct tb_worker_session *s = tb_worker_find(d, &w->session);
        struct tb_wire_frame frame = {.type = w->type, .request = w->request};
        tb_reader_init(&frame.payload, w->payload, w->bytes);
        if (s != NULL) TB_MOOT(request_again(s, &frame));
        tb_free(w);
    }
}

/* Seals and crossings that found no room in the arena ask again. */
static void room_ask(struct tb_daemon *d)
{
    if (!d->room_freed) return;
    TB_ASSERT(d->turning);
    d->room_freed = false;
    tb_seals_retry(d);
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        tb_crossing_retry(c);
    tb_daemon_wake(d); /* what they told the catalog */
}

/* A copy that can be served is offered. One that is proven is asked of relays too. From one that
 * leaves, no hop decodes any more. */
static void copies_follow(struct tb_daemon *d)
{
    TB_ASSERT(d->turning);
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        if (c->serving == TB_COPY_DUE) tb_crossing_offer(c);
        if (c->land_due) tb_crossing_proven(c);
        if (tb_copy_leaves(c) && (c->used_by & TB_COPY_USED_BY_LANDING) != 0) tb_home_landing_base_goes(c);
    }
}

static void todos_do(struct tb_daemon *d)
{
    TB_ASSERT(d->turning);
    struct tb_catalog_todo todo;
    bool room;
    while ((room = tb_persist_room(d)) && tb_catalog_next(d->catalog, &todo)) {
        if (!tb_todo_durable(&todo)) {
            tb_todo_do(d, &todo);
            continue;
        }
        tb_home_says(d, &todo);
        tb_persist_todo(d, &todo);
        saved_follow(d);
    }
    tb_persist_settled(d, room);
}

void tb_daemon_turn(struct tb_daemon *d)
{
    if (d->persist == NULL) return;
    TB_ASSERT(!d->turning);
    d->turning = true;
    do {
        d->woken = false;
        tb_reload_follow(d);
        saved_follow(d);
        tb_backup_commands_follow(d);
        tb_models_follow(d);
        requests_again(d);
        todos_do(d);
        room_ask(d);
        copies_follow(d);
        tb_crossings_life_tell(d);
    } while (d->woken);
    d->turning = false;
    tb_daemon_check_turn(d);
}

void tb_daemon_flush(struct tb_daemon *d)
{
    TB_ASSERT(!d->turning);
    while (tb_persist_flush(d))
        saved_follow(d);
}
