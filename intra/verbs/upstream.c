/* upstream.c - `verbs`: one-sided READs over a queue pair of its own, beside the
 * connection to the door.
 *
 * The connection is the lease, and the way for what no NIC reaches: a buffer that could
 * not be registered, or everything where the two ends' NICs do not find each other; then
 * this is `tcp`. Its life:
 *
 *   greeting -> asking (the door's rails) -> resolving -> routing -> registering (our memory)
 *   -> connecting -> attaching -> open
 *
 * with a step back to asking for the next path when one does not connect, and to streaming when
 * there is none. A hop that streams looks for a path again at its turn (rails.h), by the same
 * steps, and reads over the connection meanwhile. An older door is asked once.
 *
 * Answers of the door keep the hop open, and READs of the NIC do not: a source whose process stands
 * still is idle, though its memory can be read.
 *
 * After close everything that is posted is flushed and the queue pair destroyed before on_closed,
 * so nothing writes then (P1). */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"
#include "intra/verbs/upstream_inside.h"

/* ---- what the door says ---- */

static void on_welcome(void *user, const struct tb_hop_answer *answer)
{
    struct tb_verbs_upstream *u = user;
    if (answer->kind == 1)
        tb_verbs_path_ask(u);
    else
        tb_verbs_become_stream(u, TB_WHY_NO_RDMA_THERE);
}

static void add_rail(struct tb_verbs_upstream *u, const struct tb_hop_answer *answer)
{
    TB_ASSERT(u->their_count <= TB_RAILS_MAX);
    struct tb_rail *rail = &u->theirs[u->their_count];
    if (u->their_count == TB_RAILS_MAX) return; /* more than are looked at */
    *rail = (struct tb_rail){.bytes_per_s = answer->a,
                             .load = answer->buffer < UINT32_MAX / 2 ? answer->buffer : UINT32_MAX / 2,
                             .far = (answer->kind & TB_HOP_RAIL_FAR) != 0,
                             .down = (answer->kind & TB_HOP_RAIL_DOWN) != 0};
    memcpy(rail->address.bytes, answer->id.bytes, sizeof rail->address.bytes);
    u->their_port = (uint16_t)answer->bytes;
    u->their_count++;
}

static void on_verbs(void *user, const struct tb_hop_answer *answer)
{
    struct tb_verbs_upstream *u = user;
    if (answer->type == TB_HOP_ANSWER_RAIL) {
        add_rail(u, answer);
    } else if (!u->closing) {
        u->secret = answer->id;
        u->may_ask_again = (answer->a & TB_HOP_VERBS_AGAIN) != 0;
        tb_verbs_path_try(u);
    }
}

static uint32_t reachable(const struct tb_verbs_upstream *u)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < u->remote_count; i++)
        count += u->remotes[i].reachable;
    return count;
}

void tb_verbs_ask_remotes(struct tb_verbs_upstream *u)
{
    TB_ASSERT(u->answered <= u->asked && u->asked <= u->remote_count);
    while (u->asked < u->remote_count && tb_pipe_attach(&u->stream, u->remotes[u->asked].buffer))
        u->asked++;
    if (u->answered < u->remote_count) return;
    const uint32_t reached = reachable(u);
    if (reached == 0) { /* the source could not register them: its log says why */
        tb_verbs_path_leave(u);
        tb_verbs_become_stream(u, TB_WHY_UNREGISTERED_THERE);
        return;
    }
    TB_ASSERT(u->on_path && u->queue.nic != NULL && u->stale == 0);
    u->state = TB_VERBS_OPEN;
    u->open_at = tb_clock_now();
    u->base.transport = TB_TRANSPORT_VERBS;
    u->base.why = reached < u->remote_count ? TB_WHY_RDMA_PART : TB_WHY_RDMA;
    u->told = true;
    u->stream.events->on_open(u->stream.events_user);
}

static void on_buffer(void *user, const struct tb_hop_answer *answer, int fd)
{
    struct tb_verbs_upstream *u = user;
    TB_ASSERT(fd < 0); /* the connection is no unix socket */
    if (u->stale > 0) {
        u->stale--;
        if (u->state == TB_VERBS_ATTACHING) tb_verbs_ask_remotes(u); /* for which there was no room */
        return;
    }
    struct tb_verbs_remote *next =
        u->answered < u->asked ? &u->remotes[u->answered] : NULL; /* answers come in order */
    if (next == NULL || answer->buffer != next->buffer) {
        tb_pipe_lose(&u->stream, TB_PEER_GARBLED);
        return;
    }
    next->reachable = answer->kind == TB_HOP_BUFFER_VERBS;
    next->count = answer->a;
    next->address = answer->b;
    next->key = answer->bytes;
    u->answered++;
    tb_verbs_ask_remotes(u);
}

/* ---- beginning and end ---- */

static void upstream_free(struct tb_verbs_upstream *u)
{
    tb_free(u->remotes);
    tb_free(u->targets);
    tb_free(u->bounce);
    tb_free(u);
}

static void on_finished(void *user)
{
    upstream_free(user);
}

static const struct tb_pipe_ops stream_ops = {
    .on_welcome = on_welcome, .on_buffer = on_buffer, .on_verbs = on_verbs, .on_finished = on_finished};

void tb_verbs_go_on_closing(struct tb_verbs_upstream *u)
{
    TB_ASSERT(u->closing);
    if (!u->ended || u->job_out) return;
    tb_verbs_targets_free(u);
    tb_pipe_close(&u->stream);
}

static void on_ended(struct tb_verbs_queue *q)
{
    struct tb_verbs_upstream *u = tb_verbs_with_queue(q);
    u->ended = true;
    TB_ASSERT(u->queue.nic == NULL); /* nothing writes to the places any more (P1) */
    tb_verbs_go_on_closing(u);
}

static const struct tb_verbs_queue_ops queue_ops = {
    .on_completion = tb_verbs_on_completion, .on_dead = tb_verbs_on_dead, .on_ended = on_ended};

static void verbs_close(struct tb_upstream *upstream)
{
    struct tb_verbs_upstream *u = (struct tb_verbs_upstream *)upstream;
    u->closing = true;
    TB_ASSERT(!u->ended);
    if (u->open_at != 0 && !u->broken)
        tb_rails_carried(&u->v->rails, &tb_verbs_our_rail(u)->address, &u->theirs[u->path.theirs].address,
                         u->open_at, tb_clock_now());
    tb_verbs_path_leave(u);
    if (u->id != NULL) (void)rdma_destroy_id(u->id);
    u->id = NULL;
    if (u->state >= TB_VERBS_CONNECTING && u->queue.id != NULL)
        (void)rdma_disconnect(u->queue.id); /* the door hears of it */
    tb_verbs_queue_end(&u->queue);
}

static enum tb_status list_remotes(struct tb_verbs_upstream *u, const struct tb_upstream_options *options)
{
    uint32_t *list = NULL;
    const enum tb_status status =
        tb_source_buffers(options->sources, options->source_count, &list, &u->remote_count);
    if (status != TB_OK) return status;
    u->remotes = tb_calloc(u->remote_count, sizeof *u->remotes);
    for (uint32_t i = 0; u->remotes != NULL && i < u->remote_count; i++)
        u->remotes[i].buffer = list[i];
    tb_free(list);
    return u->remotes != NULL ? TB_OK : TB_SITE_NOMEM;
}

static enum tb_status list_targets(struct tb_verbs_upstream *u, const struct tb_upstream_options *options)
{
    u->targets = tb_calloc(options->source_count, sizeof *u->targets);
    u->bounce = tb_malloc(TB_VERBS_BOUNCES * TB_VERBS_BOUNCE_BYTES);
    if (u->targets == NULL || u->bounce == NULL) return TB_SITE_NOMEM;
    u->target_count = options->source_count;
    for (uint32_t i = 0; i < u->target_count; i++)
        u->targets[i].place = options->places[i];
    return TB_OK;
}

static enum tb_status verbs_open(const struct tb_upstream_options *options, struct tb_upstream **upstream_out)
{
    const struct tb_fabric_endpoint *from = &options->hop->from;
    struct tb_address to;
    if (options->fabric->verbs == NULL) return TB_PEER_UNREACHABLE;
    if (tb_pipe_tcp_address(from->tcp, &to) != TB_OK) return TB_BAD_ARGUMENT;
    struct tb_verbs_upstream *u = tb_calloc(1, sizeof *u);
    if (u == NULL) return TB_SITE_NOMEM;
    u->base = (struct tb_upstream){&tb_transport_verbs, TB_TRANSPORT_VERBS, TB_WHY_UNKNOWN};
    u->v = options->fabric->verbs;
    u->turn.at = TB_TIME_NEVER;
    u->open_ms = options->open_ms;
    u->asked_for = options->hop->transport == TB_TRANSPORT_VERBS;
    tb_verbs_path_init(u);
    const struct tb_pipe_options stream = {.upstream = options,
                                           .ops = &stream_ops,
                                           .user = u,
                                           .to = to,
                                           .tls = from->tls ? options->fabric->tls : NULL,
                                           .paced = true};
    enum tb_status status = list_remotes(u, options);
    if (status == TB_OK) status = list_targets(u, options);
    if (status == TB_OK) status = tb_pipe_open(&u->stream, &stream);
    if (status != TB_OK) {
        upstream_free(u);
        return status;
    }
    tb_verbs_queue_init(&u->queue, u->v, &queue_ops);
    *upstream_out = &u->base;
    return TB_OK;
}

static void verbs_read(struct tb_upstream *upstream, struct tb_read *read)
{
    struct tb_verbs_upstream *u = (struct tb_verbs_upstream *)upstream;
    if (u->closing || u->broken) return; /* dropped with the others at on_closed */
    if (tb_verbs_reached(u, read))
        tb_verbs_take_read(u, read);
    else
        tb_pipe_read(&u->stream, read);
}

static void verbs_confirm(struct tb_upstream *upstream)
{
    tb_pipe_confirm(&((struct tb_verbs_upstream *)upstream)->stream);
}

static tb_time_ns verbs_poll(struct tb_upstream *upstream, tb_time_ns now)
{
    struct tb_verbs_upstream *u = (struct tb_verbs_upstream *)upstream;
    tb_time_ns next = tb_pipe_poll(&u->stream, now);
    if (u->state == TB_VERBS_CONNECTING && !u->closing && !u->stream.lost) {
        if (now >= u->connect_until) tb_verbs_path_failed(u, "it does not connect");
        if (u->state == TB_VERBS_CONNECTING) next = tb_time_min(next, u->connect_until);
    }
    if (u->state == TB_VERBS_STREAMING && !u->closing && !u->stream.lost) {
        if (tb_rails_turn(&u->v->rails, &u->turn, now)) tb_verbs_path_ask(u);
        next = tb_time_min(next, u->turn.at);
    }
    if (!u->broken || u->stream.lost || u->closing) return next;
    const tb_time_ns until = tb_time_add(u->broken_at, TB_VERBS_LAST_WORD);
    if (now < until) return tb_time_min(next, until);
    tb_verbs_path_blame(u);
    return TB_TIME_NEVER;
}

const struct tb_transport_ops tb_transport_verbs = {.transport = TB_TRANSPORT_VERBS,
                                                    .open = verbs_open,
                                                    .read = verbs_read,
                                                    .reaches = tb_pipe_reaches,
                                                    .writes_far = tb_verbs_writes_far,
                                                    .copy = tb_pipe_copy,
                                                    .confirm = verbs_confirm,
                                                    .poll = verbs_poll,
                                                    .close = verbs_close};
