/* offer_table.c - versions that are offered here, what each peer holds of them, and places that
 * retire. */
#include "wan/link/traffic/offer_table.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"
#include "wan/link/session/link_control.h"
#include "wan/send/encoded_chunks_chain.h"

struct tb_offer *tb_offer_find(struct tb_links *ls, const struct tb_id *uid)
{
    struct tb_offer *o = ls->offers;
    while (o != NULL && !tb_id_equal(&o->key.uid, uid))
        o = o->next;
    return o;
}

static void sweep_shares(struct tb_links *ls)
{
    struct tb_shared_places **at = &ls->retiring;
    while (*at != NULL) {
        struct tb_shared_places *s = *at;
        if (!tb_shared_places_only_ours(s)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        TB_ASSERT(s->call->left > 0); /* a call waits for its shares */
        s->call->left--;
        tb_shared_places_free(s);
    }
}

void tb_links_sweep_retired(struct tb_links *ls)
{
    sweep_shares(ls);
    struct tb_retired **at = &ls->retired;
    while (*at != NULL) {
        struct tb_retired *r = *at;
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

struct tb_retired *tb_links_retired_new(struct tb_links *ls, void (*done)(void *user), void *user)
{
    struct tb_retired *r = tb_calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    r->done = done;
    r->user = user;
    r->next = ls->retired;
    ls->retired = r;
    return r;
}

void tb_links_retire(struct tb_links *ls, struct tb_shared_places *share, struct tb_retired *call)
{
    TB_ASSERT(call != NULL);
    share->call = call;
    share->next = ls->retiring;
    ls->retiring = share;
    call->left++;
    tb_shared_places_revoke(share);
}

struct tb_shared_places *tb_links_past_new(struct tb_links *ls, const struct tb_id *uid,
                                           const struct tb_name *model)
{
    struct tb_encoded_chunks *encoded_chunks = ls->options.encoded_chunks;
    struct tb_known *known =
        encoded_chunks != NULL ? tb_encoded_chunks_recall(encoded_chunks, uid, model) : NULL;
    if (known == NULL) return NULL;
    uint32_t shard_count;
    const struct tb_place *places = tb_known_places(known, &shard_count);
    struct tb_shared_places *share = tb_shared_places_new(uid, places, shard_count, &ls->wake);
    struct tb_retired *call = share != NULL ? tb_links_retired_new(ls, NULL, NULL) : NULL;
    if (call == NULL) {
        if (share != NULL) tb_shared_places_free(share);
        tb_known_unref(encoded_chunks, known);
        return NULL;
    }
    share->encoded_chunks = encoded_chunks;
    share->known = known;
    share->call = call; /* it retires for sure */
    call->left = 1;
    return share;
}

void tb_links_past_free(struct tb_links *ls, struct tb_shared_places *past)
{
    TB_ASSERT(past->known != NULL && past->call != NULL); /* tb_links_past_new made it */
    past->next = ls->retiring;
    ls->retiring = past;
    tb_shared_places_revoke(past);
    tb_links_busy(ls);
}

void tb_links_offers_free(struct tb_links *ls)
{
    while (ls->offers != NULL) {
        struct tb_offer *o = ls->offers;
        ls->offers = o->next;
        tb_shared_places_free(o->share);
        tb_free(o);
    }
}

void tb_link_peer_held(struct tb_link *l, struct tb_offer *o)
{
    TB_ASSERT(l->index < l->links->options.peer_count);
    const struct tb_links_options *options = &l->links->options;
    struct tb_offer_peer *p = &o->peers[l->index];
    p->whole = true;
    p->held_chunks = o->chunks;
    if (p->told_held == tb_link_session_seq(l)) return;
    p->told_held = tb_link_session_seq(l);
    const struct tb_id uid = o->key.uid;
    if (options->ops->on_peer_held != NULL) options->ops->on_peer_held(options->user, l->index, &uid);
}

static bool whole_here(const struct tb_offer *o)
{
    for (uint32_t s = 0; s < o->share->shard_count; s++)
        if (!tb_place_whole(&o->share->places[s])) return false;
    return true;
}

void tb_links_offers_tick(struct tb_links *ls)
{
    for (struct tb_offer *o = ls->offers; o != NULL; o = o->next)
        if (!o->whole) o->whole = whole_here(o);
}

/* A version that left the peer is not held there any more, and is no news once it comes back. */
void tb_link_peer_dropped(struct tb_link *l, const struct tb_id *uid)
{
    struct tb_offer *o = tb_offer_find(l->links, uid);
    if (o == NULL) return;
    o->peers[l->index].whole = false;
    o->peers[l->index].held_chunks = 0;
    o->peers[l->index].told_held = 0;
}

/* The peer's arena lost what the earlier life held. Its HELD and WHOLE of that life say
 * nothing any more (P10). */
void tb_link_peer_forgets(struct tb_link *l)
{
    for (struct tb_offer *o = l->links->offers; o != NULL; o = o->next) {
        o->peers[l->index].whole = false;
        o->peers[l->index].held_chunks = 0;
        o->peers[l->index].told_held = 0;
    }
}
