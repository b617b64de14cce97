/* link_runs.c - which run of a model a peer remembers as its newest: a home that
 * lost its store asks. */
#include "wan/link/traffic/link_runs.h"

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_messages.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/link_signed.h"

/* TB_OK: the peer is up and knows the two frames. */
static enum tb_status knows(const struct tb_link *l)
{
    if (!tb_link_is_up(l)) return TB_PEER_UNREACHABLE;
    return tb_link_protocol(l) >= TB_LINK_PROTOCOL_RUNS ? TB_OK : TB_PEER_PROTOCOL;
}

enum tb_status tb_links_runs_ask(struct tb_links *links, uint32_t peer, const struct tb_name *model)
{
    TB_ASSERT(peer < links->options.peer_count);
    struct tb_link *l = &links->links[peer];
    const enum tb_status status = knows(l);
    if (status == TB_OK) LINK_SEND(l, TB_FRAME_RUNS, tb_frame_runs, LINK_SMALL, .model = *model);
    return status;
}

enum tb_status tb_links_run_tell(struct tb_links *links, uint32_t peer, const struct tb_links_run *run)
{
    TB_ASSERT(peer < links->options.peer_count);
    struct tb_link *l = &links->links[peer];
    const enum tb_status status = knows(l);
    if (status != TB_OK) return status;
    if (run->order != 0) {
        tb_link_say(l, TB_STATEMENT_RUN, &run->model, &(struct tb_id){{0}});
        tb_link_say(l, TB_STATEMENT_VERSION, &run->model, &(struct tb_id){{0}});
    }
    LINK_SEND(l, TB_FRAME_RUN_TOLD, tb_frame_run_told, LINK_SMALL, .model = run->model,
              .run_order = run->order, .number = run->number, .run = run->run);
    return TB_OK;
}

enum tb_status tb_link_on_runs(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_runs m;
    const enum tb_status status = tb_frame_runs_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_RUNS) return TB_PEER_GARBLED;
    const struct tb_links_options *o = &l->links->options;
    if (o->ops->on_runs_asked != NULL) {
        o->ops->on_runs_asked(o->user, l->index, &m.model);
        return TB_OK;
    }
    const struct tb_links_run none = {.model = m.model};
    return tb_links_run_tell(l->links, l->index, &none);
}

enum tb_status tb_link_on_run_told(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_run_told m;
    const enum tb_status status = tb_frame_run_told_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_RUNS) return TB_PEER_GARBLED;
    const struct tb_links_options *o = &l->links->options;
    const struct tb_links_run run = {m.model, m.run_order, m.number, m.run};
    if (o->ops->on_run_told != NULL) o->ops->on_run_told(o->user, l->index, &run);
    return TB_OK;
}
