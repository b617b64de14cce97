/* pauses.c - models and peers that an operator paused (pauses.h): a row of the store each, and a
 * word to the links, which stop what crosses (wan/link/links_pause.h). */
#include "gateway/daemon/links/pauses.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/store/store_load.h"
#include "wan/link/links_pause.h"

const struct tb_store_pause *tb_pause_find(const struct tb_pauses *p, const struct tb_name *name,
                                           bool is_peer)
{
    TB_ASSERT(p->count <= TB_PAUSES_MAX);
    for (uint32_t i = 0; i < p->count; i++)
        if (p->rows[i].is_peer == is_peer && tb_name_equal(&p->rows[i].name, name)) return &p->rows[i];
    return NULL;
}

const struct tb_store_pause *tb_pause_of_model(const struct tb_daemon *d, const struct tb_name *model)
{
    return tb_pause_find(&d->pauses, model, false);
}

const struct tb_store_pause *tb_pause_of_peer(const struct tb_daemon *d, uint32_t peer)
{
    TB_ASSERT(peer < d->config->peer_count);
    return tb_pause_find(&d->pauses, &d->config->peers[peer].site, true);
}

void tb_pauses_apply(struct tb_daemon *d)
{
    struct tb_name models[TB_PAUSES_MAX];
    uint32_t count = 0;
    if (tb_peer_links(d) == NULL) return; /* those to come begin with it */
    for (uint32_t i = 0; i < d->pauses.count; i++)
        if (!d->pauses.rows[i].is_peer) models[count++] = d->pauses.rows[i].name;
    tb_links_pause_models(d->links, models, count);
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        tb_links_pause_peer(d->links, i, !d->config->peers[i].gone && tb_pause_of_peer(d, i) != NULL);
}

static uint32_t count_of(const struct tb_pauses *p, bool is_peer)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->count; i++)
        count += p->rows[i].is_peer == is_peer;
    return count;
}

/* A table of one of the two may not take the rows of the other. */
static bool is_full(const struct tb_pauses *p, bool is_peer)
{
    return count_of(p, is_peer) >= (is_peer ? TB_CONFIG_LIST_MAX : TB_LINKS_PAUSED_MAX);
}

static void take_out(struct tb_pauses *p, const struct tb_store_pause *row)
{
    const uint32_t at = (uint32_t)(row - p->rows);
    TB_ASSERT(at < p->count);
    memmove(&p->rows[at], &p->rows[at + 1], (p->count - at - 1) * sizeof p->rows[0]);
    p->count--;
}

enum tb_status tb_pause_set(struct tb_daemon *d, const struct tb_store_pause *pause)
{
    struct tb_pauses *p = &d->pauses;
    const struct tb_store_pause *row = tb_pause_find(p, &pause->name, pause->is_peer);
    if ((row != NULL) == pause->paused) return TB_DONE_BEFORE;
    if (pause->paused && is_full(p, pause->is_peer)) return TB_TOO_LARGE;
    if (d->store_down || !tb_persist_pause(d, pause)) return TB_SITE_STORE;
    if (pause->paused)
        p->rows[p->count++] = *pause;
    else
        take_out(p, row);
    tb_pauses_apply(d);
    d->records_again = true; /* peers hear the reason with the next tick */
    return TB_OK;
}

static void restored(void *user, const struct tb_store_pause *pause)
{
    struct tb_daemon *d = user;
    if (!is_full(&d->pauses, pause->is_peer)) d->pauses.rows[d->pauses.count++] = *pause;
}

/* P10: a pause that nobody knows of any more would let cross what an operator stopped. */
enum tb_status tb_pauses_open(struct tb_daemon *d)
{
    const enum tb_status status = tb_store_load_pauses(d->store, restored, d);
    if (status != TB_OK) tb_log(TB_LOG_ERROR, "store.failed", "why=pauses status=%s", tb_status_name(status));
    for (uint32_t i = 0; i < d->pauses.count; i++)
        tb_log(TB_LOG_INFO, "pause.restored", "%s=%s", d->pauses.rows[i].is_peer ? "peer" : "model",
               d->pauses.rows[i].name.text);
    return status;
}
