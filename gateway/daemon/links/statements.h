/* statements.h - which words of other sites are believed: those that a model's home signed, from
 * any carrier. */
#ifndef TB_DAEMON_STATEMENTS_H
#define TB_DAEMON_STATEMENTS_H

#include <stdbool.h>

#include "base/layout/manifest.h"
#include "gateway/catalog/models.h"
#include "gateway/daemon/links/statement_table.h"
#include "wan/link/links.h"

struct tb_daemon;

/* From the store. One whose signature does not count any more is passed over. */
TB_MUST_USE enum tb_status tb_statements_restore(struct tb_daemon *d);
void tb_statements_recheck(struct tb_daemon *d); /* the CAs are others */
void tb_statements_tick(struct tb_daemon *d);    /* once a second */
/* A peer brings one. True: it is new, and was put in the table. */
bool tb_statements_heard(struct tb_daemon *d, uint32_t peer, const struct tb_span *said,
                         struct tb_statement *what_out);
/* A worker shows the signature of the version that it computes from. True: it is new, and was put
 * in the table. */
bool tb_statements_shown(struct tb_daemon *d, const struct tb_name *worker, const struct tb_name *model,
                         const struct tb_span *said);
/* For a peer that is to hear it (struct tb_links_ops). */
bool tb_statements_to_say(void *user, const struct tb_links_said *which, struct tb_span *said_out);
/* Does it count here, by the CAs and dates as they are? `error_out` gets a sentence. */
bool tb_statements_counts(const struct tb_daemon *d, const uint8_t *bytes, uint32_t count,
                          char error_out[256]);
/* Keeps it, here and in the store. */
const struct tb_said *tb_statements_keep(struct tb_daemon *d, const struct tb_statement *what,
                                         const struct tb_identity *by, const uint8_t *bytes, uint32_t count);

/* May the word of this peer be followed? Yes, if this site is the home, home signed it, or
 * peers.SITE.unsigned is set for that peer. */
/* The site in the certificates of the model's home; a home may be named by a gateway's label. */
bool tb_home_site(const struct tb_daemon *d, const struct tb_name *model, struct tb_name *site_out);
bool tb_statements_believed(const struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key);
bool tb_withdrawal_believed(const struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key);
/* Nobody signs that a version is broken or lost: this peer is a gateway of the home or of this
 * site, or peers.SITE.unsigned is set for it. */
bool tb_end_believed(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
/* Lowers a run that a peer remembers to what is signed. True: something was taken from it. */
bool tb_statements_run_lower(const struct tb_daemon *d, uint32_t peer, struct tb_catalog_known_run *told);
/* The same of a worker's word. Without TLS nothing is signed, and its word is taken. */
bool tb_statements_run_lower_of_worker(const struct tb_daemon *d, struct tb_catalog_known_run *told);
/* False: home signed a root for this version, and these manifests with their proofs have
 * another. */
bool tb_root_fits(struct tb_daemon *d, const struct tb_version_key *key,
                  const struct tb_manifest *const *manifests);

#endif
