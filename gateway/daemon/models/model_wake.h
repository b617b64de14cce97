/* model_wake.h - a model of a pattern gets a row when somebody uses it: a publisher or a
 * subscriber, or its home, which has a version.
 *
 * P2: the store is asked what the model was before the catalog knows it. P7: TB_CONFIG_AWAKE_MAX
 * rows, a quarter of them at most for one identity; those whose model has a version do not count
 * until three quarters of the table are used. Where rows are scarce, model_life.h gives some back.
 *
 * On the main loop. */
#ifndef TB_DAEMON_MODEL_WAKE_H
#define TB_DAEMON_MODEL_WAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/ident.h"
#include "tombolo/status.h"

struct tb_daemon;

struct tb_model_user {
    uint64_t owner; /* session_shares.h; TB_SHARE_OURS: nobody */
    bool preferred; /* a publisher, or a peer */
};

/* For that user. TB_OK: the catalog knows it.
 *   TB_AGAIN       the store is asked; tb_home_runs_holds keeps requests until it has answered
 *   TB_NOT_FOUND   it is not configured, or left by a reload
 *   TB_SITE_NOMEM  the table or the owner's share of it is full, or there is no memory
 *   TB_SITE_STORE  the store cannot read it, or is down */
TB_MUST_USE enum tb_status tb_model_wake(struct tb_daemon *d, const struct tb_name *name,
                                         const struct tb_model_user *user);
/* The sentence for TB_SITE_NOMEM. */
#define TB_MODELS_FULL "models_awake: too many models of patterns are in use here, or of this identity"

/* A peer says that it has a version of that model. Where it is the model's home, and this site
 * follows a pattern that matches from there, the model is in use here. As tb_model_wake says;
 * TB_NOT_FOUND: it is not in use. */
TB_MUST_USE enum tb_status tb_model_announced(struct tb_daemon *d, uint32_t peer, const struct tb_name *name);

/* Its home, another site, has a version: so it crosses, or will. The catalog knows the row. */
bool tb_model_home_has(struct tb_daemon *d, uint32_t row);

/* Asks the store for a row that is READING. Where its queue is full, model_life.h asks again. */
void tb_model_ask(struct tb_daemon *d, uint32_t row);

#endif
