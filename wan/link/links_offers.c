/* links_offers.c - versions of which the links have places: offered to peers, taken back when no stream touches them any more. */
#include "base/fault.h"
#include "wan/link/link.h"

struct offer *offer_find(struct tb_links *ls, const struct tb_id *uid)
{
    struct offer *o = ls->offers;
    while (o != NULL && !tb_id_equal(&o->key.uid, uid))
        o = o->next;
    return o;
}

/* ---- places that were taken back ---- */

static void sweep_shares(struct tb_links *ls)
{
    struct tb_share **at = &ls->retiring;
    while (*at != NULL) {
        struct tb_share *s = *at;
        if (!tb_share_only_ours(s)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        s->call->left--;
        tb_share_free(s);
    }
}

void links_sweep_retired(struct tb_links *ls)
{
    sweep_shares(ls);
    struct retired **at = &ls->retired;
    while (*at != NULL) {
        struct retired *r = *at;
        if (r->left > 0) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        if (r->done != NULL && !ls->closing) {
            r->done(r->user);
            at = &ls->retired; /* the daemon may have added some */
        }
        tb_free(r);
    }
}

static struct retired *retired_new(struct tb_links *ls, void (*done)(void *user), void *user)
{
    struct retired *r = tb_calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->done = done;
    r->user = user;
    r->next = ls->retired;
    ls->retired = r;
    return r;
}

static void retire(struct tb_links *ls, struct tb_share *share, struct retired *call)
{
    share->call = call;
    share->next = ls->retiring;
    ls->retiring = share;
    call->left++;
    tb_share_revoke(share);
}

struct tb_share *links_past_new(struct tb_links *ls, const struct tb_id *uid, const struct tb_name *model)
{
    struct tb_objects *objects = ls->options.objects;
    struct tb_known *known = objects != NULL ? tb_objects_recall(objects, uid, model) : NULL;
    if (known == NULL) return NULL;
    uint32_t shard_count;
    const struct tb_place *places = tb_known_places(known, &shard_count);
    struct tb_share *share = tb_share_new(uid, places, shard_count, &ls->wake);
    struct retired *call = share != NULL ? retired_new(ls, NULL, NULL) : NULL;
    if (call == NULL) {
        if (share != NULL) tb_share_free(share);
        tb_known_unref(objects, known);
        return NULL;
    }
    share->objects = objects;
    share->known = known;
    share->call = call; /* it retires for sure */
    call->left = 1;
    return share;
}

void links_past_free(struct tb_links *ls, struct tb_share *past)
{
    past->next = ls->retiring;
    ls->retiring = past;
    tb_share_revoke(past);
    links_busy(ls);
}

static void wake_loops(struct tb_links *ls)
{
    links_heed(ls);
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

static struct tb_share *share_of_offer(struct tb_links *ls, const struct tb_version_key *key,
                                       const struct tb_place *places, uint32_t chunks)
{
    struct tb_share *share = tb_share_new(&key->uid, places, key->shard_count, &ls->wake);
    if (share == NULL) return NULL;
    share->sent = tb_sent_new(ls->options.peer_count, chunks);
    if (share->sent != NULL) return share;
    tb_share_free(share);
    return NULL;
}

enum tb_status tb_links_offer(struct tb_links *ls, const struct tb_version_key *key,
                              const struct tb_place *places)
{
    const struct tb_digest zero = {{0}};
    uint64_t bytes = 0;
    if (offer_find(ls, &key->uid) != NULL) return TB_DONE_BEFORE;
    const uint64_t chunks = chunks_of(places, key->shard_count, &bytes);
    if (tb_digest_equal(&key->root, &zero) || chunks > UINT32_MAX) return TB_BAD_ARGUMENT;
    if (ls->offer_count >= TB_LINKS_OFFERS_MAX) return TB_SITE_NOMEM;
    struct offer *o = tb_calloc(1, sizeof *o + ls->options.peer_count * sizeof o->peers[0]);
    if (o == NULL) return TB_SITE_NOMEM;
    o->share = share_of_offer(ls, key, places, (uint32_t)chunks);
    if (o->share == NULL) {
        tb_free(o);
        return TB_SITE_NOMEM;
    }
    if (ls->options.objects != NULL) tb_objects_know(ls->options.objects, key, places);
    o->key = *key;
    o->bytes = bytes;
    o->chunks = (uint32_t)chunks;
    struct offer **at = &ls->offers;
    while (*at != NULL)
        at = &(*at)->next;
    *at = o;
    ls->offer_count++;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        ls->links[i].missed += !link_is_up(&ls->links[i]);
        link_announce(&ls->links[i], o);
    }
    return TB_OK;
}

enum tb_status tb_links_retract(struct tb_links *ls, const struct tb_id *uid, enum tb_status why,
                                void (*done)(void *user), void *user)
{
    struct offer **at = &ls->offers;
    while (*at != NULL && !tb_id_equal(&(*at)->key.uid, uid))
        at = &(*at)->next;
    struct offer *o = *at;
    if (o == NULL) return TB_NOT_FOUND;
    struct retired *call = retired_new(ls, done, user);
    if (call == NULL) return TB_SITE_NOMEM;
    *at = o->next;
    ls->offer_count--;
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct link *l = &ls->links[i];
        link_outs_drop(l, o);
        link_serves_drop(l, o);
        link_base_gone(l, o, why == TB_SUPERSEDED);
        /* Also to peers that may not read it: each was told that it is held here (tb_links_tell). */
        if (link_is_up(l)) link_send_gone(l, &o->key.uid, (int)why < 0 ? why : TB_NOT_FOUND);
    }
    if (ls->options.objects != NULL && why != TB_SUPERSEDED) tb_objects_drop(ls->options.objects, uid);
    retire(ls, o->share, call);
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
        link_tell_withdrawn(&ls->links[i], key);
    return TB_OK;
}

void links_offers_free(struct tb_links *ls)
{
    while (ls->offers != NULL) {
        struct offer *o = ls->offers;
        ls->offers = o->next;
        tb_share_free(o->share);
        tb_free(o);
    }
}

/* ---- what we want ---- */

enum tb_status tb_links_land_stop(struct tb_links *ls, const struct tb_id *uid, void (*done)(void *user),
                                  void *user)
{
    struct retired *call = retired_new(ls, done, user);
    if (call == NULL) return TB_SITE_NOMEM;
    links_share_end(ls, uid);
    for (uint32_t i = 0; i < ls->options.peer_count; i++) {
        struct link *l = &ls->links[i];
        for (struct in *in = l->ins, *next; in != NULL; in = next) {
            next = in->next;
            if (!tb_id_equal(&in->key.uid, uid)) continue;
            link_in_stop(l, in);
            retire(ls, in->share, call);
            link_in_free(l, in);
        }
    }
    wake_loops(ls);
    return TB_OK;
}
