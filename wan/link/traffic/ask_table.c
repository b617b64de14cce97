/* ask_table.c - manifests that are asked for, or that follow a PUSH, until they are complete. */
#include "wan/link/traffic/ask_table.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"

void tb_link_ask_clear(struct tb_link_ask *a)
{
    for (uint32_t s = 0; a->memories != NULL && s < a->key.shard_count; s++)
        tb_free(a->memories[s]);
    tb_free(a->memories);
    tb_free(a->manifests);
    tb_free(a->head);
    a->memories = NULL;
    a->manifests = NULL;
    a->head = NULL;
    a->shard = a->head_total = a->head_got = a->digests_got = 0;
    a->memory_bytes = 0;
    a->sent = a->complete = a->proving = false;
}

struct tb_link_ask **tb_link_ask_find(struct tb_link *l, const struct tb_id *uid)
{
    struct tb_link_ask **at = &l->traffic.asks;
    while (*at != NULL && !tb_id_equal(&(*at)->uid, uid))
        at = &(*at)->next;
    return at;
}

void tb_link_ask_free(struct tb_link_ask **at)
{
    TB_ASSERT(*at != NULL);
    struct tb_link_ask *a = *at;
    *at = a->next;
    tb_link_ask_clear(a);
    tb_free(a);
}

/* Answers that the peer may have in hand: more than TB_LINKS_ASKS_SENT_MAX break the protocol. */
static uint32_t asks_sent(const struct tb_link *l)
{
    uint32_t count = l->traffic.skipped_asks;
    for (const struct tb_link_ask *a = l->traffic.asks; a != NULL; a = a->next)
        count += !a->unasked && a->sent;
    return count;
}

/* Manifests that follow a PUSH, and that nobody here asked for, are not waited for. */
void tb_link_asks_rewind(struct tb_link *l)
{
    struct tb_link_ask **at = &l->traffic.asks;
    while (*at != NULL) {
        if ((*at)->unasked) {
            tb_link_ask_free(at);
            continue;
        }
        tb_link_ask_clear(*at);
        at = &(*at)->next;
    }
    l->traffic.skipped_asks = 0;
    TB_ASSERT(asks_sent(l) == 0); /* each is sent again */
}

void tb_link_asks_free(struct tb_link *l)
{
    while (l->traffic.asks != NULL)
        tb_link_ask_free(&l->traffic.asks);
}

static enum tb_status ask_begin(struct tb_link_ask *a)
{
    TB_ASSERT(a->key.shard_count > 0 && a->manifests == NULL && a->memories == NULL);
    a->manifests = tb_calloc(a->key.shard_count, sizeof *a->manifests);
    a->memories = tb_calloc(a->key.shard_count, sizeof *a->memories);
    return a->manifests != NULL && a->memories != NULL ? TB_OK : TB_SITE_NOMEM;
}

uint32_t tb_link_ask_count(const struct tb_link *l)
{
    uint32_t count = 0;
    for (const struct tb_link_ask *a = l->traffic.asks; a != NULL; a = a->next)
        count += !a->unasked;
    return count;
}

void tb_link_ask_passed(struct tb_link *l, const struct tb_link_ask *a)
{
    if (a->seq > l->traffic.skipped_seq) l->traffic.skipped_asks = 0;
}

void tb_link_ask_skip(struct tb_link *l, const struct tb_link_ask *a)
{
    if (!a->sent || a->seq == 0) return;
    l->traffic.skipped_asks++;
    if (a->seq > l->traffic.skipped_seq) l->traffic.skipped_seq = a->seq;
}

static void ask_add(struct tb_link *l, struct tb_link_ask *a)
{
    TB_ASSERT(a->next == NULL);
    struct tb_link_ask **at = &l->traffic.asks;
    while (*at != NULL)
        at = &(*at)->next;
    *at = a;
}

void tb_link_asks_send(struct tb_link *l)
{
    uint32_t sent = asks_sent(l);
    for (struct tb_link_ask *a = l->traffic.asks;
         a != NULL && tb_link_is_up(l) && sent < TB_LINKS_ASKS_SENT_MAX; a = a->next) {
        const struct tb_announced *known = tb_link_announced(l, &a->uid);
        if (a->sent || known == NULL) continue;
        a->key = known->key;
        if (ask_begin(a) != TB_OK) {
            tb_link_ask_clear(a);
            continue; /* again at the next tick */
        }
        TB_ASSERT(!a->complete && a->shard == 0);
        a->sent = true;
        a->seq = ++l->traffic.ask_seq;
        sent++;
        LINK_SEND(l, TB_FRAME_ASK, tb_frame_ask, LINK_SMALL, .uid = a->uid);
    }
}

/* P7: all that nobody asked for, together, is kept within what one version may take. So many are
 * free. */
uint64_t tb_link_ask_room(const struct tb_link *l, const struct tb_link_ask *whose)
{
    const uint64_t most = l->links->options.manifest_bytes_max;
    uint64_t used = whose->memory_bytes;
    for (const struct tb_link_ask *a = l->traffic.asks; whose->unasked && a != NULL; a = a->next)
        if (a->unasked && a != whose) used += a->memory_bytes + a->head_total;
    return used < most ? most - used : 0;
}

/* At most TB_FEED_EXPECTED_MAX: each is of a number that is expected. */
enum tb_status tb_link_ask_pushed(struct tb_link *l, const struct tb_version_key *key)
{
    struct tb_link_ask *a = *tb_link_ask_find(l, &key->uid);
    const bool fresh = a == NULL;
    if (fresh) a = tb_calloc(1, sizeof *a);
    if (a == NULL) return TB_SITE_NOMEM;
    a->uid = key->uid;
    a->key = *key;
    a->sent = true;
    if (fresh) {
        a->unasked = true;
        ask_add(l, a);
        a->memory_bytes = key->shard_count * (sizeof *a->manifests + sizeof *a->memories);
        if (tb_link_ask_room(l, a) == 0) return TB_TOO_LARGE;
    }
    const enum tb_status status = ask_begin(a);
    if (status != TB_OK && !fresh) tb_link_ask_clear(a); /* it is sent again */
    return status;
}

void tb_link_ask_declined(struct tb_link *l, const struct tb_id *uid)
{
    struct tb_link_ask **at = tb_link_ask_find(l, uid);
    if (*at != NULL && (*at)->unasked) tb_link_ask_free(at); /* pages that follow are skipped */
}

static void tell_failed(struct tb_link *l, const struct tb_id *uid, enum tb_status why)
{
    const struct tb_links_ops *ops = l->links->options.ops;
    if (ops->on_failed != NULL) ops->on_failed(l->links->options.user, l->index, uid, why);
}

/* Asks wait for the peer's next session, and go on in it. A version that the peer does not
 * announce by then may never be answered: its ask gives way when there are too many. */
static struct tb_link_ask **ask_stale(struct tb_link *l)
{
    struct tb_link_ask **at = &l->traffic.asks;
    while (*at != NULL && tb_link_announced(l, &(*at)->uid) != NULL)
        at = &(*at)->next;
    return at;
}

enum tb_status tb_links_ask(struct tb_links *ls, uint32_t peer, const struct tb_id *uid)
{
    TB_ASSERT(peer < ls->options.peer_count);
    struct tb_link *l = &ls->links[peer];
    const struct tb_announced *known = tb_link_announced(l, uid);
    struct tb_link_ask *pushed = *tb_link_ask_find(l, uid);
    if (pushed != NULL && pushed->unasked) { /* they are on their way, or here */
        pushed->unasked = false;
        tb_links_busy(ls);
        return TB_OK;
    }
    if (pushed != NULL) return TB_DONE_BEFORE;
    if (known == NULL) return TB_NOT_FOUND;
    const uint32_t count = tb_link_ask_count(l);
    struct tb_link_ask **stale = count >= TB_LINKS_ASKS_MAX ? ask_stale(l) : NULL;
    if (stale != NULL && *stale == NULL) {
        tb_links_table_refused(ls, TB_LINKS_TABLE_ASKS, l);
        return TB_SITE_NOMEM;
    }
    struct tb_link_ask *a = tb_calloc(1, sizeof *a);
    if (a == NULL) return TB_SITE_NOMEM;
    a->uid = *uid;
    a->key = known->key;
    const struct tb_id gone = stale != NULL ? (*stale)->uid : (struct tb_id){0};
    if (stale != NULL) tb_link_ask_free(stale);
    ask_add(l, a);
    tb_links_table_took(ls, TB_LINKS_TABLE_ASKS, tb_link_ask_count(l));
    tb_link_asks_send(l);
    if (stale != NULL) tell_failed(l, &gone, TB_NOT_FOUND); /* last: its hearer may ask again */
    return TB_OK;
}

void tb_link_ask_fail(struct tb_link *l, const struct tb_id *uid, enum tb_status why)
{
    struct tb_link_ask **at = tb_link_ask_find(l, uid);
    const struct tb_id id = *uid;
    if (*at == NULL) return;
    const bool unasked = (*at)->unasked;
    tb_link_ask_free(at);
    if (!unasked) tell_failed(l, &id, why);
    tb_link_asks_send(l);
}
