/* link_signed.c - statements that a home signed pass through links unchanged: the owner makes and
 * checks them. */
#include "wan/link/traffic/link_signed.h"

#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_messages.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"

static void say_to_peer(struct tb_link *l, const struct tb_span *said)
{
    TB_ASSERT(said->count > 0 && said->count <= TB_SIGNED_BYTES_MAX);
    if (!tb_link_is_up(l) || tb_link_protocol(l) < TB_LINK_PROTOCOL_SIGNED) return;
    LINK_SEND(l, TB_FRAME_STATEMENT, tb_frame_statement, LINK_SMALL + said->count, .said = *said);
}

void tb_link_say(struct tb_link *l, enum tb_statement_kind kind, const struct tb_name *model,
                 const struct tb_id *id)
{
    const struct tb_links_options *o = &l->links->options;
    const struct tb_links_said which = {kind, *model, *id};
    struct tb_span said;
    if (o->ops->statement_of == NULL || tb_link_protocol(l) < TB_LINK_PROTOCOL_SIGNED) return;
    if (o->ops->statement_of(o->user, &which, &said)) say_to_peer(l, &said);
}

void tb_link_say_shards(struct tb_link *l, const struct tb_version_key *key)
{
    const struct tb_links_options *o = &l->links->options;
    struct tb_span said;
    if (o->ops->statement_of == NULL || tb_link_protocol(l) < TB_LINK_PROTOCOL_SIGNED) return;
    for (uint32_t i = 0; i < key->shard_count; i++) {
        const struct tb_links_said which = {TB_STATEMENT_SHARD, key->model,
                                            tb_statement_shard_id(&key->uid, i)};
        if (!o->ops->statement_of(o->user, &which, &said)) return; /* all of them are signed, or none */
        say_to_peer(l, &said);
    }
}

void tb_link_tell_withdrawn(struct tb_link *l, const struct tb_version_key *key)
{
    if (!tb_link_is_up(l) || !tb_link_granted(l, &key->model)) return;
    tb_link_say(l, TB_STATEMENT_WITHDRAWN, &key->model, &key->uid);
    tb_link_send_version(l, key, 0, TB_FRAME_VERSION_WITHDRAWN);
}

void tb_links_tell_statement(struct tb_links *links, const struct tb_name *model, const struct tb_span *said)
{
    for (uint32_t i = 0; i < links->options.peer_count; i++)
        if (tb_link_granted(&links->links[i], model)) say_to_peer(&links->links[i], said);
}

enum tb_status tb_link_on_statement(struct tb_link *l, struct tb_wire_frame *f)
{
    struct tb_frame_statement m;
    const enum tb_status status = tb_frame_statement_decode(&f->payload, &m);
    if (status != TB_OK) return status;
    if (tb_link_protocol(l) < TB_LINK_PROTOCOL_SIGNED) return TB_PEER_GARBLED;
    if (m.said.count == 0 || m.said.count > TB_SIGNED_BYTES_MAX) return TB_PEER_GARBLED;
    const struct tb_links_options *o = &l->links->options;
    if (o->ops->on_statement != NULL) o->ops->on_statement(o->user, l->index, &m.said);
    return TB_OK;
}
