/* publisher_words.h - signatures of publishers: the home demands them with a seal, and a follower
 * with a version, where models.NAME.publishers lists who may sign. */
#ifndef TB_DAEMON_PUBLISHER_WORDS_H
#define TB_DAEMON_PUBLISHER_WORDS_H

#include "base/message.h"
#include "gateway/daemon/links/statements.h"

/* models.NAME.publishers is not empty. */
bool tb_publishers_demanded(const struct tb_daemon *d, const struct tb_name *model);
/* Checks the signature that came with the seal of one shard. `error_out` gets a sentence on
 * failure. TB_OK where nothing was said: none is demanded. */
TB_MUST_USE enum tb_status tb_publisher_words_check(const struct tb_daemon *d,
                                                    const struct tb_version_key *key, uint32_t shard,
                                                    const struct tb_manifest *manifest,
                                                    const struct tb_span *said, char error_out[256]);
/* The seal was taken: keeps its signature. */
void tb_publisher_words_keep(struct tb_daemon *d, const struct tb_span *said);
/* A follower: each shard of the version is signed by a publisher, or none has to be. */
bool tb_publishers_said(const struct tb_daemon *d, const struct tb_version_key *key);
/* False: a publisher signed another manifest of a shard, or other proofs, or no memory. Every chunk
 * has its proof. */
bool tb_publishers_fit(const struct tb_daemon *d, const struct tb_version_key *key,
                       const struct tb_manifest *const *manifests);

#endif
