/* withdrawals.h - withdrawals that this gateway knows of, longer than their rows in the catalog. */
#ifndef TB_DAEMON_WITHDRAWALS_H
#define TB_DAEMON_WITHDRAWALS_H

#include <stdbool.h>

#include "base/ident.h"
#include "base/site_state.h"
#include "tombolo/status.h"

struct tb_daemon;

struct tb_withdrawal {
    struct tb_version_key key;
    bool here; /* this site's operator decided so for this site: no other site is told */
};

#define TB_WITHDRAWN_MAX 16384u

/* Versions that were withdrawn, in that order; of each model the newest, and of all
 * TB_WITHDRAWN_MAX. */
struct tb_withdrawn {
    struct tb_withdrawal *rows;
    uint32_t count, cap;
    uint32_t most;    /* of one model; none leaves but for a newer one */
    uint64_t refused; /* older ones that gave way */
    uint64_t crowded; /* of them: there were TB_WITHDRAWN_MAX, of all models */
};

/* A withdrawal by home makes one that was `here` one for every site, never the other way. */
void tb_withdrawn_add(struct tb_daemon *d, const struct tb_version_key *key, bool here);
TB_MUST_USE enum tb_status tb_withdrawn_restore(struct tb_daemon *d);
/* A peer says that it, or a site behind it, has that version. True: it was withdrawn, and the
 * peer is told. */
bool tb_withdrawn_here(const struct tb_daemon *d, const struct tb_id *uid); /* for this site alone */
bool tb_withdrawn_answer(struct tb_daemon *d, uint32_t peer, const struct tb_id *uid);
/* The same for all versions that a site holds by its own word. The word came from that peer, which
 * is the site or a relay on the way to it. */
void tb_withdrawn_answer_state(struct tb_daemon *d, uint32_t peer, const struct tb_site_state *state);
/* A peer says that a version was withdrawn. Where the catalog has no row for it, this gateway
 * remembers the withdrawal all the same, because sites behind it may hold the version. The catalog
 * has found the key sound. */
void tb_withdrawn_heard(struct tb_daemon *d, const struct tb_version_key *key);
void tb_withdrawn_opened(struct tb_daemon *d); /* the links are new */
void tb_withdrawn_free(struct tb_daemon *d);

#endif
