/* proofs.c - no chunk of a relay lands before the proofs of its version fit home's signature (P1).
 *
 * Home's own pages come ahead of its signature, into the manifests of the copy, and nobody looks at
 * them there until all have come and their root fits. A relay's come with its manifests. */
#include "gateway/daemon/links/proofs.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/proof/version_proof.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/workers.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/publisher_words.h"
#include "gateway/daemon/links/site_lag.h"
#include "gateway/daemon/links/statements.h"
#include "wan/link/links_stats.h"

#define OWED_NS TB_SECONDS(10) /* a relay that does not answer for so long: another one is asked */

/* ---- whose bytes have to fit ---- */

bool tb_peer_of_home(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    struct tb_name site;
    TB_ASSERT(peer < d->config->peer_count);
    return tb_home_site(d, model, &site) && tb_name_equal(&d->config->peers[peer].of, &site);
}

bool tb_proofs_are_made(void *user, const struct tb_name *model)
{
    const struct tb_daemon *d = user;
    struct tb_name home;
    return tb_home_of(d, model, &home) && tb_name_equal(&home, &d->site);
}

static const struct tb_said *said_of(const struct tb_daemon *d, const struct tb_id *uid)
{
    return tb_said_find(&d->said, TB_STATEMENT_VERSION, uid);
}

/* Where a publisher signs each version, home's own word about bytes is not taken either. */
bool tb_proofs_foreign(void *user, uint32_t peer, const struct tb_version_key *key)
{
    struct tb_daemon *d = user;
    TB_ASSERT(peer < d->config->peer_count);
    if (d->config->peers[peer].is_unsigned) return false;
    if (d->tls == NULL && tb_proofs_are_made(d, &key->model)) return false; /* nobody signed anything */
    return !tb_peer_of_home(d, peer, &key->model) || tb_publishers_demanded(d, &key->model);
}

static bool home_signs(const struct tb_daemon *d, const struct tb_name *model)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (!d->config->peers[i].is_unsigned && tb_peer_of_home(d, i, model)) return true;
    return false;
}

static bool home_is_here(const struct tb_daemon *d, const struct tb_name *model)
{
    struct tb_name site;
    return tb_home_site(d, model, &site) && tb_name_equal(&site, &d->config->site);
}

/* Proofs of it will come, or have. Without home's word, and where no peer of home could bring it,
 * an unsigned peer's word was enough. A home that signed it, and lost its copy, asks others. */
static bool is_to_be_proven(const struct tb_copy *copy)
{
    const struct tb_daemon *d = copy->d;
    if (d->tls == NULL) return false;
    if (tb_proofs_are_made(copy->d, &copy->key.model)) return said_of(d, &copy->key.uid) != NULL;
    return said_of(d, &copy->key.uid) != NULL || home_signs(d, &copy->key.model);
}

bool tb_proofs_come(const struct tb_copy *copy)
{
    if (tb_proofs_are_made(copy->d, &copy->key.model) || is_to_be_proven(copy)) return true;
    return copy->region != NULL && tb_arena_region_proven(copy->region);
}

/* Home makes the proofs, and has to know at once which version may be a base. */
static bool home_alone_hears(const struct tb_daemon *d, const struct tb_name *model)
{
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (!d->config->peers[i].gone && !tb_peer_of_home(d, i, model)) return false;
    return true;
}

bool tb_proofs_may_offer(struct tb_copy *copy)
{
    if (home_is_here(copy->d, &copy->key.model) || !is_to_be_proven(copy)) return true;
    if (home_alone_hears(copy->d, &copy->key.model)) return true;
    return copy->region != NULL && tb_arena_region_proven(copy->region);
}

bool tb_proofs_may_land(const struct tb_copy *copy, uint32_t peer)
{
    return !tb_proofs_foreign(copy->d, peer, &copy->key) || tb_arena_region_proven(copy->region);
}

/* ---- at home ---- */

static struct tb_copy *newest_other(const struct tb_copy *copy, uint32_t shard)
{
    struct tb_copy *best = NULL;
    for (struct tb_copy *c = copy->d->copies; c != NULL; c = c->next) {
        if (c == copy || c->region == NULL || tb_copy_leaves(c) || shard >= c->key.shard_count) continue;
        if (!tb_name_equal(&c->key.model, &copy->key.model) || !tb_arena_place_ready(c->region, shard))
            continue;
        if (best == NULL || tb_version_key_compare(&c->key, &best->key) > 0) best = c;
    }
    return best;
}

void tb_proofs_take_over(struct tb_copy *copy, uint32_t shard)
{
    const struct tb_copy *other = newest_other(copy, shard);
    if (other == NULL || !tb_proofs_are_made(copy->d, &copy->key.model)) return;
    struct tb_manifest *to = tb_arena_manifest(copy->region, shard);
    const struct tb_manifest *from = tb_arena_manifest(other->region, shard);
    struct tb_blake3 proof;
    if (!tb_manifest_same_cut(to, from)) return;
    for (uint32_t k = 0; k < to->chunk_count; k++)
        if (tb_digest_equal(&to->digests[k], &from->digests[k]) && tb_manifest_proof(from, k, &proof))
            tb_manifest_set_proof(to, k, &proof);
}

/* ---- elsewhere ---- */

static bool all_proven(const struct tb_version_key *key, const struct tb_manifest *manifests)
{
    for (uint32_t s = 0; s < key->shard_count; s++)
        if (!tb_manifest_all_proven(&manifests[s])) return false;
    return true;
}

static bool root_fits(struct tb_daemon *d, const struct tb_version_key *key,
                      const struct tb_manifest *manifests)
{
    const struct tb_manifest **each = tb_calloc(key->shard_count, sizeof *each);
    for (uint32_t s = 0; each != NULL && s < key->shard_count; s++)
        each[s] = &manifests[s];
    const bool fits = each != NULL && tb_root_fits(d, key, each); /* else it is asked for again */
    tb_free(each);
    return fits;
}

bool tb_proofs_fit(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key,
                   const struct tb_manifest *manifests)
{
    const bool proven = all_proven(key, manifests);
    if (tb_proofs_foreign(d, peer, key) && (!proven || said_of(d, &key->uid) == NULL)) return false;
    return !proven || root_fits(d, key, manifests);
}

/* As one list, for the root. NULL: no memory. */
static struct tb_manifest *manifests_of(const struct tb_copy *copy)
{
    struct tb_manifest *all = tb_calloc(copy->key.shard_count, sizeof *all);
    for (uint32_t s = 0; all != NULL && s < copy->key.shard_count; s++)
        all[s] = *tb_arena_manifest(copy->region, s);
    return all;
}

static bool copy_fits(const struct tb_copy *copy)
{
    struct tb_manifest *all = manifests_of(copy);
    const bool fits = all != NULL && root_fits(copy->d, &copy->key, all);
    tb_free(all);
    return fits;
}

static bool is_complete(const struct tb_copy *copy)
{
    return copy->region != NULL && tb_arena_region_complete(copy->region) && !tb_copy_leaves(copy);
}

static bool lacks(const struct tb_copy *copy)
{
    return is_complete(copy) && !tb_arena_region_proven(copy->region);
}

/* Relays are asked for chunks from now on, and peers hear of the version. */
static void proven(struct tb_copy *copy)
{
    struct tb_daemon *d = copy->d;
    TB_ASSERT(tb_arena_region_proven(copy->region));
    copy->proofs = (struct tb_copy_proofs){.came = 0};
    copy->proves_anew = false;
    tb_arena_proofs_keep(copy->region);
    tb_log(TB_LOG_INFO, "copy.proven", "model=%s run=%llu number=%llu after_ms=%llu", copy->key.model.text,
           (unsigned long long)copy->key.run_order, (unsigned long long)copy->key.number,
           (unsigned long long)(tb_time_since(copy->seen_at, tb_clock_now()) / TB_MS(1)));
    if (tb_peer_links(d) != NULL) tb_links_proven(d->links, &copy->key.uid);
    tb_copy_serve(copy);
    tb_catalog_version_unproven(d->catalog, tb_clock_now(), &copy->key.uid, false);
    copy->land_due = true;
    tb_daemon_wake(d);
}

static void refused(struct tb_copy *copy, uint32_t peer)
{
    copy->d->counters.roots_refused++;
    tb_log(TB_LOG_ERROR, "crossing.root_refused", "peer=%s model=%s run=%llu number=%llu action=ask_again",
           tb_peer_site(copy->d, peer), copy->key.model.text, (unsigned long long)copy->key.run_order,
           (unsigned long long)copy->key.number);
}

/* All pages of one peer have come, and home's word. */
static void judge(struct tb_copy *copy)
{
    const uint32_t peer = copy->proofs.peer;
    if (!copy->proofs.complete || said_of(copy->d, &copy->key.uid) == NULL || !lacks(copy)) return;
    if (!copy_fits(copy)) {
        refused(copy, peer);
        copy->proofs = (struct tb_copy_proofs){.asked_at = tb_clock_now()};
        return;
    }
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        struct tb_manifest *m = tb_arena_manifest(copy->region, s);
        for (uint32_t k = 0; k < m->chunk_count; k++) {
            const struct tb_blake3 proof = m->proofs[k];
            tb_manifest_set_proof(m, k, &proof);
        }
    }
    proven(copy);
}

/* Pages follow one another, so the first chunk without a proof is the next one that comes. */
static struct tb_copy_proofs owed_by(const struct tb_copy *copy, uint32_t peer,
                                     const struct tb_manifest *manifests)
{
    uint32_t shard = 0;
    while (tb_manifest_all_proven(&manifests[shard]))
        shard++;
    TB_ASSERT(shard < copy->key.shard_count);
    return (struct tb_copy_proofs){.owed = true,
                                   .peer = peer,
                                   .shard = shard,
                                   .came = tb_manifest_proven_count(&manifests[shard]),
                                   .asked_at = tb_clock_now()};
}

static bool are_same(const struct tb_copy *copy, const struct tb_manifest *manifests)
{
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        const struct tb_manifest *ours = tb_arena_manifest(copy->region, s);
        if (!tb_digest_equal(&ours->root, &manifests[s].root) ||
            ours->chunk_count != manifests[s].chunk_count)
            return false;
    }
    return true;
}

/* A chunk that is claimed is landing or here, and gets its proof so, or behind it
 * (copies/arena_prover.c). */
static void shard_take_back(struct tb_copy *copy, uint32_t shard, const struct tb_manifest *from)
{
    struct tb_blake3 proof;
    struct tb_place *place = tb_arena_place(copy->region, shard);
    for (uint32_t k = 0; k < from->chunk_count; k++) {
        if (!tb_manifest_proof(from, k, &proof) || !tb_place_claim(place, k)) continue;
        tb_manifest_set_proof(tb_arena_manifest(copy->region, shard), k, &proof);
        tb_place_unclaim(place, k);
    }
}

void tb_proofs_sealed_again(struct tb_copy *copy, uint32_t shard, const struct tb_manifest *sealed)
{
    TB_ASSERT(copy->region != NULL && shard < copy->key.shard_count);
    const struct tb_manifest *ours = tb_arena_manifest(copy->region, shard);
    if (ours->chunk_count == sealed->chunk_count && tb_digest_equal(&ours->root, &sealed->root))
        shard_take_back(copy, shard, sealed);
}

/* At home: these fit what it signed. */
static void take_back(struct tb_copy *copy, const struct tb_manifest *manifests)
{
    for (uint32_t s = 0; s < copy->key.shard_count; s++)
        shard_take_back(copy, s, &manifests[s]);
    copy->proofs = (struct tb_copy_proofs){.asked_at = tb_clock_now()}; /* others may lack still */
    tb_home_landing_proven(copy);
    if (tb_arena_region_proven(copy->region)) proven(copy);
}

void tb_proofs_take(struct tb_copy *copy, uint32_t peer, const struct tb_manifest *manifests)
{
    if (is_complete(copy)) tb_arena_proofs_keep(copy->region); /* that it was reserved with */
    if (!lacks(copy) || !are_same(copy, manifests)) return;
    if (tb_proofs_are_made(copy->d, &copy->key.model)) {
        if (said_of(copy->d, &copy->key.uid) != NULL && all_proven(&copy->key, manifests))
            take_back(copy, manifests);
        return;
    }
    struct tb_blake3 proof;
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        struct tb_manifest *to = tb_arena_manifest(copy->region, s);
        for (uint32_t k = 0; k < to->chunk_count; k++)
            if (tb_manifest_proof(&manifests[s], k, &proof)) to->proofs[k] = proof;
    }
    if (!all_proven(&copy->key, manifests)) { /* home's, whose other proofs follow */
        copy->proofs = owed_by(copy, peer, manifests);
        return;
    }
    copy->proofs = (struct tb_copy_proofs){.owed = true, .complete = true, .peer = peer};
    judge(copy);
}

static bool no_more(const struct tb_copy *copy, uint32_t shard)
{
    while (shard < copy->key.shard_count && tb_arena_manifest(copy->region, shard)->chunk_count == 0)
        shard++;
    return shard == copy->key.shard_count;
}

/* Pages follow one another, from the first chunk on. Another one is dropped: the rest is asked
 * for again. */
static bool page_follows(const struct tb_copy *copy, uint32_t peer, const struct tb_links_proofs *page)
{
    const struct tb_copy_proofs *p = &copy->proofs;
    if (page->shard >= copy->key.shard_count || p->complete) return false;
    const struct tb_manifest *m = tb_arena_manifest(copy->region, page->shard);
    if (page->first >= m->chunk_count || page->count > m->chunk_count - page->first) return false;
    const bool next = p->owed && p->peer == peer && page->shard == p->shard && page->first == p->came;
    const bool next_shard = p->owed && p->peer == peer && page->shard > p->shard && page->first == 0;
    return next || next_shard;
}

void tb_proofs_heard(void *user, uint32_t peer, const struct tb_links_proofs *page)
{
    struct tb_daemon *d = user;
    struct tb_copy *copy = tb_copy_find(d, &page->uid);
    if (copy == NULL || !lacks(copy) || tb_proofs_are_made(d, &copy->key.model)) return;
    if (tb_proofs_foreign(d, peer, &copy->key) || !page_follows(copy, peer, page)) return;
    struct tb_manifest *m = tb_arena_manifest(copy->region, page->shard);
    for (uint32_t i = 0; i < page->count; i++)
        memcpy(m->proofs[page->first + i].bytes, page->bytes + (size_t)i * TB_BLAKE3_BYTES, TB_BLAKE3_BYTES);
    copy->proofs.shard = page->shard;
    copy->proofs.came = page->first + page->count;
    if (copy->proofs.came < m->chunk_count || !no_more(copy, page->shard + 1)) return;
    copy->proofs.complete = true;
    judge(copy);
}

void tb_proofs_signed(struct tb_daemon *d, const struct tb_id *uid)
{
    struct tb_copy *copy = tb_copy_find(d, uid);
    if (copy != NULL) judge(copy);
}

void tb_proofs_peer_down(struct tb_daemon *d, uint32_t peer)
{
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        if (c->proofs.owed && !c->proofs.complete && c->proofs.peer == peer)
            c->proofs = (struct tb_copy_proofs){.came = 0};
}

/* ---- asking for those that lack ---- */

/* One of an older release sends none. */
static bool has_pages(struct tb_daemon *d, uint32_t peer)
{
    return tb_site_lag_link(d, peer)->protocol >= TB_LINKS_PROTOCOL_STATE;
}

static bool ask(struct tb_copy *copy, uint32_t peer)
{
    struct tb_daemon *d = copy->d;
    if (!has_pages(d, peer) || !tb_links_announces(d->links, peer, &copy->key.uid)) return false;
    const enum tb_status status = tb_links_ask(d->links, peer, &copy->key.uid);
    if (status != TB_OK && status != TB_DONE_BEFORE) return false;
    copy->proofs =
        (struct tb_copy_proofs){.owed = true, .peer = peer, .asked_at = tb_clock_now(), .tried = peer + 1};
    return true;
}

/* Home first, then the others in turn. */
static void ask_someone(struct tb_copy *copy)
{
    const struct tb_daemon *d = copy->d;
    const uint32_t count = d->config->peer_count, from = copy->proofs.tried;
    for (uint32_t i = 0; i < count; i++)
        if (tb_peer_of_home(d, i, &copy->key.model) && ask(copy, i)) return;
    for (uint32_t i = 0; i < count; i++)
        if (ask(copy, (from + i) % count)) return;
}

static bool is_due(const struct tb_copy *copy, tb_time_ns now)
{
    const struct tb_copy_proofs *p = &copy->proofs;
    if (!lacks(copy) || !is_to_be_proven(copy) || copy->life == TB_COPY_ASKED) return false;
    const bool home_owes =
        p->owed && tb_peer_of_home(copy->d, p->peer, &copy->key.model) && has_pages(copy->d, p->peer);
    if (p->complete || home_owes) return false;
    return p->asked_at == 0 || tb_time_since(p->asked_at, now) >= OWED_NS;
}

/* P6: it is whole, and nobody could be asked for its proofs, or the peer that was does not answer.
 * Its bytes are those of peers that were believed. Workers read them here and not from each
 * other. */
static bool stays_unproven(const struct tb_copy *copy, tb_time_ns now)
{
    const tb_time_ns asked_at = copy->proofs.asked_at;
    if (copy->life != TB_COPY_WHOLE || !lacks(copy) || !is_to_be_proven(copy)) return false;
    return asked_at == 0 || tb_time_since(asked_at, now) >= OWED_NS;
}

/* Home, with a copy that a disk or an earlier process left. */
static bool lacks_what_it_signed(const struct tb_copy *copy)
{
    return tb_proofs_are_made(copy->d, &copy->key.model) && said_of(copy->d, &copy->key.uid) != NULL &&
           lacks(copy);
}

static void copy_tick(struct tb_copy *copy, tb_time_ns now)
{
    copy->proves_anew = copy->proves_anew || lacks_what_it_signed(copy);
    if (copy->proves_anew && is_complete(copy) && !lacks(copy)) proven(copy);
    if (is_due(copy, now)) ask_someone(copy);
    if (!stays_unproven(copy, now)) return;
    tb_catalog_version_unproven(copy->d->catalog, now, &copy->key.uid, true);
    tb_daemon_wake(copy->d);
}

void tb_proofs_tick(struct tb_daemon *d)
{
    const tb_time_ns now = tb_clock_now();
    if (tb_peer_links(d) == NULL) return;
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next)
        copy_tick(c, now);
}

void tb_proofs_restored(struct tb_daemon *d)
{
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        c->proves_anew = lacks_what_it_signed(c);
        if (!is_complete(c) || !tb_arena_region_proven(c->region) || copy_fits(c)) continue;
        tb_log(TB_LOG_ERROR, "arena.proofs_damaged",
               "model=%s run=%llu number=%llu action=made_or_asked_again", c->key.model.text,
               (unsigned long long)c->key.run_order, (unsigned long long)c->key.number);
        tb_arena_proofs_drop(c->region);
        c->proves_anew = lacks_what_it_signed(c);
    }
}
