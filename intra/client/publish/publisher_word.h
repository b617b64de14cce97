/* publisher_word.h - a session with a publisher's key signs the shards that it publishes. */
#ifndef TB_INTRA_CLIENT_PUBLISHER_WORD_H
#define TB_INTRA_CLIENT_PUBLISHER_WORD_H

#include "tombolo/tombolo.h"

struct tb_publication;

/* Reads the two files of the options, where they are given. tb_fail: TB_SITE_CONFIG. */
int tb_publisher_open(struct tb_session *s, const struct tb_session_options *options);
void tb_publisher_close(struct tb_session *s);
/* Signs a shard whose head and proofs are made; nothing where the session has no key. */
int tb_publisher_sign(struct tb_session *s, struct tb_publication *p);

#endif
