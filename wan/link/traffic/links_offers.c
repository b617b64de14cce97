/* links_offers.c - versions of which the links have places: offered to peers, taken back when no
 * stream touches them any more. */
#include "base/allocate.h"
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/links_limits.h"
#include "wan/link/links_messages.h"
#include "wan/link/session/link_control.h"
#include "wan/link/traffic/announced_versions.h"
#include "wan/link/traffic/crossing_table.h"
#include "wan/link/traffic/landing_table.h"
#include "wan/link/traffic/link_manifest_pages.h"
#include "wan/link/traffic/link_share.h"
#include "wan/link/traffic/link_signed.h"
#include "wan/link/traffic/link_traffic_turn.h"
#include "wan/link/traffic/link_versions.h"
#include "wan/link/traffic/offer_table.h"
#include "wan/send/encoded_chunks_chain.h"

/* ---- places that were taken back ---- */

static void wake_loops(struct tb_links *ls)
{
    tb_links_heed(ls);
    uv_async_send(&ls->wake);
}

/* ---- what we hold ---- */

static uint64_t chunks_of(const struct tb_place *places, uint32_t shard_count, uint64_t *bytes_out)
{
    uint64_t chunks = 0;
    *bytes_out = 0;
    for (uint32_t s = 0; s < shard_count; s++) {
        chunks += places[s].manifest->chunk_count;
        *bytes_out += places[s].manifest->bytes;
    }
    return chunks;
}

static struct tb_shared_places *share_of_offer(struct tb_links *ls, const struct tb_version_key *key,
                                               const struct tb_place *places, uint32_t chunks)
{
    struct tb_shared_places *share = tb_shared_places_new(&key->uid, places, key->shard_count, &ls->wake);
    if (share == NULL) return NULL;
    share->sent = tb_sent_new(ls->peer_room, chunks);
    if (share->sent != NULL) return share;
    tb_shared_places_free(share);
    return NULL;
}

enum tb_status tb_links_offer(struct tb_links *ls, const struct tb_version_key *key,
                              const struct tb_place *places)
{
    const struct tb_digest zero = {{0}};
    uint64_t bytes = 0;
    if (tb_offer_find(ls, &key->uid) != NULL) return TB_DONE_BEFORE;
    const uint64_t chunks = chunks_of(places, key->shard_count, &bytes);
    if (tb_digest_equal(&key->root, &zero) || chunks > UINT32_MAX) return TB_BAD_ARGUMENT;
    if (ls->offer_count >= TB_LINKS_OFFERS_MAX) {
        tb_links_table_refused(ls, TB_LINKS_TABLE_OFFERS, NULL);
        return TB_SITE_NOMEM;
    }
    struct tb_offer *o = tb_calloc(1, sizeof *o + ls->peer_room * sizeof o->peers[0]);
    if (o == NULL) return TB_SITE_NOMEM;
    o->share = share_of_offer(ls, key, places, (uint32_t)chunks);
    if (o->share == NULL) {
        tb_free(o);
        return TB_SITE_NOMEM;
    }
    if (ls->options.encoded_chunks != NULL) tb_encoded_chunks_know(ls->options.encoded_chunks, key, places);
    o->key = *key;
    o->bytes = bytes;
    o->chunks = (uint32_t)chunks;
    struct tb_offer **at = &ls->offers;
    while (*at != NULL)
        at = &(*at)->next;
    *at = o;
    tb_links_table_took(ls, TB_LINKS_TABLE_OFFERS, ++ls->offer_count);
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        ls->links[i].traffic.models.missed += !tb_link_is_up(&ls->links[i]);
        tb_link_announce(&ls->links[i], o);
    }
    return TB_OK;
}

void tb_links_proven(struct tb_links *links, const struct tb_id *uid)
{
    const struct tb_offer *o = tb_offer_find(links, uid);
    for (uint32_t i = 0; o != NULL && i < links->options.peer_count; i++)
        tb_link_serve_proofs(&links->links[i], o);
}

enum tb_status tb_links_retract(struct tb_links *ls, const struct tb_id *uid, enum tb_status why,
                                void (*done)(void *user), void *user)
{
    struct tb_offer **at = &ls->offers;
    while (*at != NULL && !tb_id_equal(&(*at)->key.uid, uid))
        at = &(*at)->next;
    struct tb_offer *o = *at;
    if (o == NULL) return TB_NOT_FOUND;
    struct tb_retired *call = tb_links_retired_new(ls, done, user);
    if (call == NULL) return TB_SITE_NOMEM;
    *at = o->next;
    TB_ASSERT(ls->offer_count > 0);
    ls->offer_count--;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct tb_link *l = &ls->links[i];
        tb_link_outs_drop(l, o);
        tb_link_serves_drop(l, o);
        tb_link_base_gone(l, o, why == TB_SUPERSEDED);
        /* Also to peers that may not read it: each was told that it is held here
         * (tb_links_tell). */
        if (tb_link_is_up(l)) tb_link_send_gone(l, &o->key.uid, (int)why < 0 ? why : TB_NOT_FOUND);
    }
    if (ls->options.encoded_chunks != NULL && why != TB_SUPERSEDED)
        tb_encoded_chunks_drop(ls->options.encoded_chunks, uid);
    tb_links_retire(ls, o->share, call);
    tb_free(o);
    wake_loops(ls);
    return TB_OK;
}

enum tb_status tb_links_withdrawn(struct tb_links *ls, const struct tb_version_key *key)
{
    bool known = false;
    for (uint32_t i = 0; i < ls->withdrawn_count; i++)
        known |= tb_id_equal(&ls->withdrawn[i].uid, &key->uid);
    if (known) return TB_DONE_BEFORE;
    ls->withdrawn[ls->withdrawn_at++ % TB_LINKS_WITHDRAWN_MAX] = *key;
    if (ls->withdrawn_count < TB_LINKS_WITHDRAWN_MAX) ls->withdrawn_count++;
    for (uint32_t i = 0; i < ls->options.peer_count; i++)
        tb_link_tell_withdrawn(&ls->links[i], key);
    return TB_OK;
}

void tb_links_tell_withdrawn(struct tb_links *ls, uint32_t peer, const struct tb_version_key *key)
{
    TB_ASSERT(peer < ls->options.peer_count);
    tb_link_tell_withdrawn(&ls->links[peer], key);
}

/* ---- what we want ---- */

enum tb_status tb_links_land_stop(struct tb_links *ls, const struct tb_id *uid, void (*done)(void *user),
                                  void *user)
{
    struct tb_retired *call = tb_links_retired_new(ls, done, user);
    if (call == NULL) return TB_SITE_NOMEM;
    tb_links_share_end(ls, uid);
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct tb_link *l = &ls->links[i];
        for (struct tb_link_in *in = l->traffic.ins, *next; in != NULL; in = next) {
            next = in->next;
            if (!tb_id_equal(&in->key.uid, uid)) continue;
            tb_link_in_stop(l, in);
            tb_links_retire(ls, in->share, call);
            tb_link_in_free(l, in);
        }
    }
    wake_loops(ls);
    return TB_OK;
}
