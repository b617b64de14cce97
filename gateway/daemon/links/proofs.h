/* proofs.h - the proofs of versions here: a home makes them, another site hears them from its peers
 * and believes them once they fit what home signed (base/proof/version_proof.h). */
#ifndef TB_DAEMON_PROOFS_H
#define TB_DAEMON_PROOFS_H

#include "base/proof/statement.h"
#include "wan/link/links.h"

struct tb_copy;
struct tb_daemon;

/* ---- whose bytes have to fit ---- */

/* A gateway of the model's home site: it may sign, so it is believed about bytes too. */
bool tb_peer_of_home(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
/* struct tb_links_ops: all others, but for those that the configuration lets be unsigned. */
bool tb_proofs_foreign(void *user, uint32_t peer, const struct tb_version_key *key);
/* False: a peer could not judge its chunks yet, as home has not signed it or proofs lack. */
bool tb_proofs_may_offer(struct tb_copy *copy);
/* Its proofs are known, made here, or signed by its home. False: nobody will ever say them, as of a
 * version of an unsigned peer, and its workers believe each other. */
bool tb_proofs_come(const struct tb_copy *copy);
/* May its chunks be asked of that peer? */
bool tb_proofs_may_land(const struct tb_copy *copy, uint32_t peer);

/* ---- at home ---- */

/* Which models' proofs are made here (arena_proofs.h). */
bool tb_proofs_are_made(void *user, const struct tb_name *model);
/* A shard has its digests: what is the same in the model's newest other copy has that proof. */
void tb_proofs_take_over(struct tb_copy *copy, uint32_t shard);
/* Its publisher seals the shard again: proofs that lack here are those that it signed. */
void tb_proofs_sealed_again(struct tb_copy *copy, uint32_t shard, const struct tb_manifest *sealed);

/* ---- elsewhere ---- */

/* Manifests came for a copy, with proofs where that peer is foreign. False: they are not what home
 * signed. */
bool tb_proofs_fit(struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key,
                   const struct tb_manifest *manifests);
/* Of a copy that has its places: they are taken. */
void tb_proofs_take(struct tb_copy *copy, uint32_t peer, const struct tb_manifest *manifests);
void tb_proofs_heard(void *user, uint32_t peer, const struct tb_links_proofs *page);
/* Home's word of that version came. */
void tb_proofs_signed(struct tb_daemon *d, const struct tb_id *uid);
/* No page comes any more that the peer owed. */
void tb_proofs_peer_down(struct tb_daemon *d, uint32_t peer);
void tb_proofs_tick(struct tb_daemon *d); /* once a second: asks for those that lack */
/* At a start: those that the arena's file has count if they fit. */
void tb_proofs_restored(struct tb_daemon *d);

#endif
