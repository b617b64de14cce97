/* crossings.c - what is asked of the links: a version from the sites that have it, and what this
 * site offers. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/links/crossings.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/proofs.h"
#include "wan/link/links_stats.h"

/* ---- asking and landing ---- */

static bool source_listed(const struct tb_copy *copy, const char *site)
{
    for (uint32_t i = 0; i < copy->from_count; i++) {
        if (strcmp(copy->from[i].text, site) == 0) return true;
    }
    return copy->from_count == 0; /* any that has it */
}

void tb_crossing_land(struct tb_copy *copy, uint32_t peer)
{
    struct tb_daemon *d = copy->d;
    TB_ASSERT(copy->region != NULL && tb_arena_region_complete(copy->region) && !tb_copy_leaves(copy));
    TB_ASSERT(peer < d->config->peer_count);
    if (!tb_proofs_may_land(copy, peer)) return; /* it goes on once they are known */
    struct tb_place *places = tb_calloc(copy->key.shard_count, sizeof *places);
    if (places == NULL) return; /* the next announcement tries again */
    for (uint32_t s = 0; s < copy->key.shard_count; s++)
        places[s] = *tb_arena_place(copy->region, s);
    const enum tb_status status = tb_links_land(d->links, peer, &copy->key, places);
    tb_free(places);
    if (status == TB_OK || status == TB_DONE_BEFORE) return;
    d->counters.crossings_failed++;
    if (!tb_crossing_tell(&copy->told, TB_CROSSING_LINE_LAND_REFUSED, peer, status)) return;
    tb_log(TB_LOG_WARN, "crossing.land_refused", "peer=%s model=%s number=%llu status=%s",
           tb_peer_site(d, peer), copy->key.model.text, (unsigned long long)copy->key.number,
           tb_status_name(status));
}

/* Manifests first; TB_NOT_FOUND: that peer has not announced it in this session. */
static enum tb_status ask_from(struct tb_copy *copy, uint32_t peer)
{
    TB_ASSERT(!tb_copy_leaves(copy));
    const enum tb_status status = tb_links_ask(copy->d->links, peer, &copy->key.uid);
    if (status != TB_OK && status != TB_DONE_BEFORE) return status;
    tb_copy_life_step(&copy->life, TB_COPY_ASKS);
    if (copy->asked_at == 0) copy->asked_at = tb_clock_now();
    return TB_OK;
}

static enum tb_status ask_in_order(struct tb_copy *copy)
{
    struct tb_daemon *d = copy->d;
    enum tb_status status = TB_NOT_FOUND;
    for (uint32_t i = 0; i < copy->from_count && status != TB_OK; i++) {
        const uint32_t peer = tb_links_peer_find(d->links, copy->from[i].text);
        if (peer != UINT32_MAX) status = ask_from(copy, peer);
    }
    return status;
}

/* From every source that is up, at once: the links divide the chunks among them. */
void tb_crossing_land_all(struct tb_copy *copy)
{
    struct tb_daemon *d = copy->d;
    uint32_t last = UINT32_MAX;
    bool any = false;
    for (uint32_t i = 0; i < copy->from_count; i++) {
        const uint32_t peer = tb_links_peer_find(d->links, copy->from[i].text);
        static struct tb_links_stats stats; /* large; the main loop's alone */
        if (peer == UINT32_MAX) continue;
        last = peer;
        tb_links_stats(d->links, peer, &stats);
        if (!stats.up) continue;
        tb_crossing_land(copy, peer);
        any = true;
    }
    if (!any && last != UINT32_MAX) tb_crossing_land(copy, last);
}

void tb_crossing_proven(struct tb_copy *copy)
{
    copy->land_due = false;
    if (tb_peer_links(copy->d) == NULL || copy->region == NULL || !tb_copy_is_crossing(copy)) return;
    if (tb_arena_region_complete(copy->region)) tb_crossing_land_all(copy);
}

/* P10: it is tried again each second, and told of once for each reason. */
void tb_crossing_refused(struct tb_copy *copy, enum tb_status why)
{
    tb_copy_life_step(&copy->life, TB_COPY_STOPS);
    if (tb_crossing_tell(&copy->told, TB_CROSSING_LINE_REFUSED, TB_CROSSING_NO_PEER, why))
        tb_log(TB_LOG_WARN, "crossing.refused", "model=%s number=%llu status=%s action=retry",
               copy->key.model.text, (unsigned long long)copy->key.number, tb_status_name(why));
    TB_MOOT(tb_catalog_crossing_refused(copy->d->catalog, tb_clock_now(), &copy->key.uid));
}

/* To ask again would bring the same, in this life. */
void tb_crossing_hopeless(struct tb_copy *copy)
{
    tb_copy_life_step(&copy->life, TB_COPY_STOPS);
    TB_MOOT(tb_catalog_crossing_hopeless(copy->d->catalog, tb_clock_now(), &copy->key.uid));
}

static void paused(void *user)
{
    (void)user; /* the places stay */
}

void tb_crossing_pause(struct tb_copy *copy)
{
    struct tb_daemon *d = copy->d;
    if (d->links != NULL && !d->links_restarting) {
        copy->link_wire_bytes += tb_links_landed_bytes(d->links, &copy->key.uid);
        TB_MOOT(tb_links_land_stop(d->links, &copy->key.uid, paused, NULL));
    }
    tb_copy_life_step(&copy->life, TB_COPY_STOPS);
    TB_MOOT(tb_catalog_crossing_refused(d->catalog, tb_clock_now(), &copy->key.uid));
}

void tb_crossing_start(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    TB_ASSERT(todo->kind == TB_CATALOG_CROSS && todo->from_count <= TB_CATALOG_FROM_MAX);
    struct tb_copy *copy = tb_copy_get(d, &todo->key);
    if (copy == NULL || tb_copy_leaves(copy) || d->links == NULL || d->links_restarting) {
        TB_MOOT(tb_catalog_crossing_refused(d->catalog, tb_clock_now(), &todo->key.uid));
        return;
    }
    tb_copy_serving_step(&copy->serving, TB_COPY_IS_READY);
    copy->from_count = todo->from_count;
    memcpy(copy->from, todo->from, sizeof copy->from);
    if (copy->region != NULL &&
        tb_arena_region_complete(copy->region)) { /* begun in an earlier life of this process */
        tb_copy_life_step(&copy->life, TB_COPY_BEGINS);
        TB_MOOT(tb_catalog_crossing_begun(d->catalog, tb_clock_now(), &copy->key.uid));
        tb_crossing_land_all(copy);
        return;
    }
    const enum tb_status status = ask_in_order(copy);
    if (status != TB_OK) tb_crossing_refused(copy, status);
}

/* Begun before, by this process or the one before it: what is held stays, and the peer brings
 * the rest. */
void tb_crossing_go_on(struct tb_copy *copy, uint32_t peer)
{
    if (copy->region == NULL || !tb_copy_is_crossing(copy)) return;
    if (tb_arena_region_complete(copy->region) && source_listed(copy, tb_peer_site(copy->d, peer)))
        tb_crossing_land(copy, peer);
}

void tb_crossing_retry(struct tb_copy *copy)
{
    if (copy->life != TB_COPY_AWAITS_ROOM) return;
    if (ask_in_order(copy) != TB_OK) tb_crossing_refused(copy, TB_PEER_UNREACHABLE);
}

/* ---- offering ---- */

static enum tb_status offer(const struct tb_copy *copy)
{
    TB_ASSERT(copy->region != NULL && tb_arena_region_complete(copy->region));
    struct tb_daemon *d = copy->d;
    struct tb_place *places = tb_calloc(copy->key.shard_count, sizeof *places);
    if (places == NULL) return TB_SITE_NOMEM;
    for (uint32_t s = 0; s < copy->key.shard_count; s++)
        places[s] = *tb_arena_place(copy->region, s);
    const enum tb_status status = tb_links_offer(d->links, &copy->key, places);
    tb_free(places);
    return status == TB_DONE_BEFORE ? TB_OK : status;
}

void tb_crossing_offer(struct tb_copy *copy)
{
    TB_ASSERT(copy->serving == TB_COPY_DUE);
    const struct tb_daemon *d = copy->d;
    const bool can = d->links != NULL && !d->links_restarting && !d->draining && tb_proofs_may_offer(copy);
    const enum tb_status status = can ? offer(copy) : TB_OK;
    const bool offered = can && status == TB_OK;
    tb_copy_serving_step(&copy->serving, offered ? TB_COPY_IS_OFFERED : TB_COPY_IS_NOT_OFFERED);
    if (status == TB_OK) return;
    if (tb_crossing_tell(&copy->told, TB_CROSSING_LINE_OFFER_FAILED, TB_CROSSING_NO_PEER, status))
        tb_log(TB_LOG_ERROR, "link.offer_failed", "model=%s number=%llu status=%s", copy->key.model.text,
               (unsigned long long)copy->key.number, tb_status_name(status));
}
