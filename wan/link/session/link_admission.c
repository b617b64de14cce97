/* link_admission.c - strangers at link.listen, and peers that break the protocol. */
#include "wan/link/session/link_admission.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/networks.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/path/link_path.h"
#include "wan/link/session/link_conn.h"

#define STRANGERS_MAX (LINK_CONNS_MAX / 2)

void tb_link_admission_set(struct tb_link_admission *a, const struct tb_links_options *o)
{
    TB_ASSERT(o->handshakes_open > 0 && o->handshakes_failed > 0 && o->garbled_frames > 0);
    a->strangers.open_each = o->handshakes_open;
    a->strangers.failed_each = o->handshakes_failed;
    a->glitches.most[TB_GLITCH_GARBLED] = o->garbled_frames;
}

struct tb_link_admission *tb_link_admission_new(const struct tb_links_options *o)
{
    struct tb_link_admission *a = tb_calloc(1, sizeof *a);
    if (a == NULL) return NULL;
    tb_link_admission_set(a, o);
    a->strangers.open_all = STRANGERS_MAX;
    tb_random_bytes(&a->strangers.salt, sizeof a->strangers.salt);
    a->glitches.most[TB_GLITCH_CANCELLED] = UINT32_MAX; /* a peer cancels nothing */
    return a;
}

static bool was_seen(const struct tb_link *l, const struct sockaddr *from)
{
    for (uint32_t i = 0; i < TB_LINK_SEEN_MAX; i++)
        if (l->session.seen[i].bytes != 0 && tb_network_same_host(&l->session.seen[i].any, from)) return true;
    return false;
}

static uint32_t peers_at(const struct tb_links *ls, const struct sockaddr *from)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        count += was_seen(&ls->links[i], from) || tb_link_path_leads_to(&ls->links[i], from);
    return count;
}

static uint32_t nameless_at(const struct tb_links *ls, const struct sockaddr *from)
{
    uint32_t count = 0;
    for (const struct tb_link_conn *c = ls->conns; c != NULL; c = c->next)
        count += !c->dialled && c->link == NULL && tb_network_same_host(&c->address.any, from);
    return count;
}

/* A stranger behind a peer's address takes no more from other peers than that peer may. */
static bool is_known(const struct tb_links *ls, const struct sockaddr *from)
{
    const uint32_t peers = peers_at(ls, from);
    return peers > 0 && nameless_at(ls, from) < peers * LINK_CONNS_SHARE;
}

bool tb_link_admit(struct tb_links *ls, const struct tb_address *from, uint64_t *handshake_out)
{
    *handshake_out = 0;
    if (is_known(ls, &from->any)) return true;
    const uint64_t key = tb_network_key(&from->any);
    if (!tb_handshake_begin(&ls->admission->strangers, key, tb_clock_now())) return false;
    *handshake_out = key;
    return true;
}

static void remember(struct tb_link *l, const struct tb_address *from)
{
    if (was_seen(l, &from->any)) return;
    l->session.seen[l->session.seen_next++ % TB_LINK_SEEN_MAX] = *from;
}

void tb_link_admitted(struct tb_link_conn *c, bool good)
{
    TB_ASSERT(!good || c->link != NULL);
    if (good && !c->dialled) remember(c->link, &c->address);
    if (c->handshake == 0) return;
    tb_handshake_end(&c->links->admission->strangers, c->handshake, tb_clock_now(), good);
    c->handshake = 0;
}

/* Indexes of links are keys: 1.. */
static uint64_t key_of(const struct tb_link *l)
{
    return (uint64_t)l->index + 1;
}

bool tb_link_is_shut_out(struct tb_link *l)
{
    return tb_glitch_shut(&l->links->admission->glitches, key_of(l), tb_clock_now()) != 0;
}

static void shut_out_tell(struct tb_link *l)
{
    char uri[TB_URI_BYTES_MAX];
    struct tb_log_line line;
    const tb_time_ns left = tb_glitch_shut(&l->links->admission->glitches, key_of(l), tb_clock_now());
    tb_identity_format(&l->identity, uri);
    tb_log_begin(&line, TB_LOG_WARN, "link.shut_out");
    tb_log_str(&line, "peer", uri);
    tb_log_str(&line, "reason", "garbled_frames");
    tb_log_u64(&line, "for_ms", left / TB_MS(1));
    tb_log_end(&line);
}

bool tb_link_glitched(struct tb_link_conn *c)
{
    struct tb_link *l = c->link;
    if (l == NULL || c->glitched) return false;
    c->glitched = true;
    const bool shut =
        tb_glitch_note(&l->links->admission->glitches, key_of(l), TB_GLITCH_GARBLED, tb_clock_now());
    if (shut) shut_out_tell(l);
    return shut;
}
