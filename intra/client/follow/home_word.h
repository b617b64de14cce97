/* home_word.h - the signature of a model's home, as the gateway passes it on with a version. A
 * worker keeps it and shows it to a gateway that does not know the version. A subscription may
 * demand it, and then believes no gateway. */
#ifndef TB_INTRA_CLIENT_HOME_WORD_H
#define TB_INTRA_CLIENT_HOME_WORD_H

#include "base/message.h"
#include "base/net/tls.h"

struct tb_session;
struct tb_staged_use;
struct tb_staging;
struct tb_subscribe_options;
struct tb_subscription;

/* The CAs that sign for the model's home. TB_SITE_CONFIG with the file in tb_last_error. */
int tb_home_word_trust_open(const char *ca_path, struct tb_tls **trust_out);

/* Under the lock. Buffers that one subscription fills with what it believes hold nothing proven for
 * another. TB_OK, or tb_fail with TB_BAD_STATE. */
int tb_home_word_may_subscribe(const struct tb_session *s, const struct tb_subscribe_options *o);

/* Signed bytes that are passed on. Their reader checks them. */
struct tb_home_word {
    uint8_t *bytes; /* NULL: none */
    uint32_t count;
};
/* In place of the one before. TB_PEER_GARBLED: more than any signature has. */
TB_MUST_USE enum tb_status tb_home_word_keep(struct tb_home_word *word, const struct tb_span *said);
void tb_home_word_drop(struct tb_home_word *word);

/* Under the lock, once the answer to STAGE is here, and again with the last manifest and with the
 * last proof. Sets what the use knows: `proven`, or `refused` and why. Nothing for a subscription
 * that demands nothing. */
void tb_home_word_judge(struct tb_subscription *sub, struct tb_staged_use *use);
/* The same for each use of a staging, once its manifests and proofs are all here. */
void tb_home_word_judge_all(struct tb_staging *st);
/* Under the lock: it is neither proven nor refused, and the gateway may still show the rest. */
bool tb_home_word_waits(const struct tb_subscription *sub, const struct tb_staged_use *use);
/* Under the lock: a use of it demands the signature. Each chunk for it has to fit its proof, of
 * whatever source. */
bool tb_home_word_is_demanded(const struct tb_staging *st);
/* Under the lock: TB_OK, or tb_fail says why the use may not be staged or activated. `proven` has
 * to be set where `whole`; TB_AGAIN: it waits. */
int tb_home_word_verdict(const struct tb_subscription *sub, const struct tb_staged_use *use, bool whole);

#endif
