/* tied_tensors_bytes.h - a version has the same bytes for tensors that share a memory, or it is
 * refused. */
#ifndef TB_INTRA_CLIENT_TIED_TENSORS_BYTES_H
#define TB_INTRA_CLIENT_TIED_TENSORS_BYTES_H

#include "intra/client/follow/staged_use.h"

/* Under the lock. A subscription with these registrations can be written to. */
int tb_tied_may_subscribe(const struct tb_registration *first, const struct tb_registration *second);
/* Under the lock, of a registration that was suspended and whose wants stand elsewhere now, `tied`
 * being as it was: its subscriptions can go on. */
int tb_tied_may_move(const struct tb_session *s, const struct tb_registration *r);
enum tb_tied_said {
    TB_TIED_SAME, /* in the version, both have the same bytes */
    TB_TIED_DIFFER,
    TB_TIED_UNSAID /* their chunks have other bytes beside theirs, or other borders */
};

/* Compares want i with the tensor that it is tied to, by the digests of a version. */
enum tb_tied_said tb_tied_by_digests(const struct tb_staging *st, const struct tb_registration *r,
                                     uint32_t i);
/* The version is whole. Each tied tensor of the subscription's registrations has the bytes of the
 * one whose memory it shares: TB_OK, TB_LAYOUT_MISMATCH, TB_SITE_NOMEM or from the GPU's driver.
 * Under the lock, let go meanwhile. Once for each use. */
int tb_tied_check_use(struct tb_subscription *sub, struct tb_staged_use *use);

#endif
