/* session_proofs.h - the proofs of a version's chunks, told to the workers that stage it as they
 * become known here. */
#ifndef TB_DAEMON_SESSION_PROOFS_H
#define TB_DAEMON_SESSION_PROOFS_H

#include <stdbool.h>

struct tb_copy;
struct tb_daemon;
struct tb_worker_session;

/* Behind the manifests of a version that the worker stages: all that are known. */
void tb_worker_proofs_begin(struct tb_worker_session *s, struct tb_copy *copy);
/* Proofs that became known since the last call. True: some of a staged version are not known
 * yet. */
bool tb_worker_proofs_tick(struct tb_daemon *d);

#endif
