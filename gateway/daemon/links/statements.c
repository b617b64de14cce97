/* statements.c - a statement counts if a gateway of the model's home signed it while its
 * certificate was valid, and a CA that is trusted for that site stands behind it (P1, P2). */
#include "gateway/daemon/links/statements.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "base/net/signed.h"
#include "base/proof/version_proof.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/publisher_words.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/daemon/rights.h"
#include "gateway/store/store_load.h"

/* P7: a check takes some 0.3 ms; a peer has so many of them fail in a second before it is heard no
 * more in that second. */
#define FAILED_MAX 32u

bool tb_home_site(const struct tb_daemon *d, const struct tb_name *model, struct tb_name *site_out)
{
    if (!tb_home_of(d, model, site_out)) return false;
    if (tb_name_equal(site_out, &d->site)) *site_out = d->config->site;
    const uint32_t peer = tb_peer_index(d, site_out);
    if (peer != UINT32_MAX) *site_out = d->config->peers[peer].of;
    return true;
}

static enum tb_status check(const struct tb_daemon *d, const uint8_t *bytes, size_t count,
                            struct tb_statement *what_out, struct tb_signer *signer_out, char error_out[256])
{
    struct tb_name site;
    const enum tb_status status = tb_signed_check(d->tls, bytes, count, what_out, signer_out, error_out);
    if (status != TB_OK) return status;
    const struct tb_identity *by = &signer_out->identity;
    if (what_out->kind == TB_STATEMENT_SHARD) {
        if (tb_rights_publisher(d->config, &what_out->model, by)) return TB_OK;
        snprintf(error_out, 256, "a publisher of models.%.64s.publishers has to sign it",
                 what_out->model.text);
        return TB_PEER_IDENTITY;
    }
    if (by->kind == TB_IDENTITY_GATEWAY && tb_home_site(d, &what_out->model, &site) &&
        tb_name_equal(&by->site, &site))
        return TB_OK;
    snprintf(error_out, 256, "a gateway of the model's home has to sign it");
    return TB_PEER_IDENTITY;
}

const struct tb_said *tb_statements_keep(struct tb_daemon *d, const struct tb_statement *what,
                                         const struct tb_identity *by, const uint8_t *bytes, uint32_t count)
{
    const struct tb_said *s = tb_said_put(&d->said, what, by, bytes, count);
    if (s != NULL) tb_persist_signed(d, what, bytes, count);
    return s;
}

/* ---- at a start, and when the CAs change ---- */

static void restore(void *user, const uint8_t *bytes, uint32_t count)
{
    struct tb_daemon *d = user;
    struct tb_statement what;
    struct tb_signer signer;
    char error[256];
    if (d->said.count == TB_SAID_MAX) { /* P7: the rest would take 0.3 ms each */
        d->said.crowded++;
        return;
    }
    if (check(d, bytes, count, &what, &signer, error) == TB_OK)
        (void)tb_said_put(&d->said, &what, &signer.identity, bytes, count);
}

enum tb_status tb_statements_restore(struct tb_daemon *d)
{
    TB_ASSERT(d->said.count == 0);
    return d->tls == NULL ? TB_OK : tb_store_load_signed(d->store, restore, d);
}

bool tb_statements_counts(const struct tb_daemon *d, const uint8_t *bytes, uint32_t count,
                          char error_out[256])
{
    struct tb_statement what;
    struct tb_signer signer;
    return check(d, bytes, count, &what, &signer, error_out) == TB_OK;
}

static bool counts_still(void *user, const struct tb_said *said)
{
    char error[256];
    return tb_statements_counts(user, said->bytes, said->count, error);
}

void tb_statements_recheck(struct tb_daemon *d)
{
    tb_said_filter(&d->said, counts_still, d);
}

/* P7: that of a version which the catalog forgot says nothing any more, unless it is the newest. */
static enum tb_said_need need(void *user, const struct tb_said *said)
{
    const struct tb_daemon *d = user;
    struct tb_catalog_version_view v;
    const bool awake = tb_model_row_of(d, &said->what.model) != TB_MODEL_NONE;
    const enum tb_said_need stays = awake ? TB_SAID_NEEDED : TB_SAID_RESTS;
    if (said->what.kind != TB_STATEMENT_VERSION && said->what.kind != TB_STATEMENT_SHARD) return stays;
    if (awake && tb_catalog_version_get(d->catalog, &said->what.uid, &v)) return stays;
    return tb_said_newest(&d->said, TB_STATEMENT_VERSION, &said->what.model) == said ? stays : TB_SAID_OVER;
}

void tb_statements_tick(struct tb_daemon *d)
{
    tb_said_age(&d->said, need, d);
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        d->said_failed[i] = 0;
    d->shown_failed = 0;
}

/* ---- what peers bring ---- */

/* P10: the first of a second. */
static void refused(struct tb_daemon *d, uint32_t peer, const char *why)
{
    d->counters.statements_refused++;
    tb_audit_peer_denied(d, peer, "state", "statement", why);
    if (d->said_failed[peer]++ != 0) return;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "statement.refused");
    tb_log_str(&l, "peer", tb_peer_site(d, peer));
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", "ignored");
    tb_log_end(&l);
}

/* Home says the same again under another certificate. It never says two things of one version. */
static bool same_but_date(const struct tb_statement *a, const struct tb_statement *b)
{
    struct tb_statement dated = *a;
    dated.wall_ms = b->wall_ms;
    return tb_statement_equal(&dated, b);
}

bool tb_statements_heard(struct tb_daemon *d, uint32_t peer, const struct tb_span *said,
                         struct tb_statement *what_out)
{
    TB_ASSERT(peer < d->config->peer_count && d->tls != NULL);
    struct tb_signer signer;
    struct tb_name home;
    char error[256];
    if (d->said_failed[peer] >= FAILED_MAX) return false;
    if (tb_signed_peek(said->bytes, said->count, what_out) != TB_OK) {
        refused(d, peer, "it is no signed statement");
        return false;
    }
    if (!tb_home_of(d, &what_out->model, &home)) return false;
    const struct tb_id id = tb_statement_id(what_out);
    const struct tb_said *known = tb_said_find(&d->said, what_out->kind, &id);
    if (known != NULL && known->what.wall_ms >= what_out->wall_ms) return false;
    if (check(d, said->bytes, said->count, what_out, &signer, error) != TB_OK) {
        refused(d, peer, error);
        return false;
    }
    if (known != NULL && !same_but_date(&known->what, what_out)) {
        refused(d, peer, "home signed something else of the same version before");
        return false;
    }
    d->counters.statements_taken++;
    return tb_statements_keep(d, what_out, &signer.identity, said->bytes, said->count) != NULL;
}

/* P10: the first of a second. */
static void shown_refused(struct tb_daemon *d, const struct tb_name *worker, const char *why)
{
    d->counters.statements_refused++;
    if (d->shown_failed++ != 0) return;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "statement.refused");
    tb_log_str(&l, "worker", worker->text);
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", "ignored");
    tb_log_end(&l);
}

bool tb_statements_shown(struct tb_daemon *d, const struct tb_name *worker, const struct tb_name *model,
                         const struct tb_span *said)
{
    struct tb_statement what;
    struct tb_signer signer;
    char error[256];
    if (d->tls == NULL || said->count == 0 || d->shown_failed >= FAILED_MAX) return false;
    if (tb_signed_peek(said->bytes, said->count, &what) != TB_OK || what.kind != TB_STATEMENT_VERSION ||
        !tb_name_equal(&what.model, model)) {
        shown_refused(d, worker, "it is no statement about a version of that model");
        return false;
    }
    const struct tb_said *known = tb_said_find(&d->said, what.kind, &what.uid);
    if (known != NULL) return false;
    if (check(d, said->bytes, said->count, &what, &signer, error) != TB_OK) {
        shown_refused(d, worker, error);
        return false;
    }
    d->counters.statements_taken++;
    return tb_statements_keep(d, &what, &signer.identity, said->bytes, said->count) != NULL;
}

bool tb_statements_to_say(void *user, const struct tb_links_said *which, struct tb_span *said_out)
{
    const struct tb_daemon *d = user;
    const struct tb_said *s = tb_id_is_zero(&which->id) ? tb_said_newest(&d->said, which->kind, &which->model)
                                                        : tb_said_find(&d->said, which->kind, &which->id);
    if (s == NULL) return false;
    *said_out = (struct tb_span){.bytes = s->bytes, .count = s->count};
    return true;
}

/* ---- what is believed ---- */

static bool may_be_unsigned(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    struct tb_name home;
    TB_ASSERT(peer < d->config->peer_count);
    if (d->config->peers[peer].is_unsigned) return true;
    return tb_home_of(d, model, &home) && tb_name_equal(&home, &d->site);
}

static bool is_signed(const struct tb_daemon *d, enum tb_statement_kind kind,
                      const struct tb_version_key *key)
{
    const struct tb_said *s = tb_said_find(&d->said, kind, &key->uid);
    return s != NULL && tb_statement_fits(&s->what, key);
}

bool tb_statements_believed(const struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key)
{
    struct tb_name home;
    const bool ours = tb_home_of(d, &key->model, &home) && tb_name_equal(&home, &d->site);
    if (!ours && !tb_publishers_said(d, key)) return false;
    return may_be_unsigned(d, peer, &key->model) || is_signed(d, TB_STATEMENT_VERSION, key);
}

bool tb_withdrawal_believed(const struct tb_daemon *d, uint32_t peer, const struct tb_version_key *key)
{
    return may_be_unsigned(d, peer, &key->model) || is_signed(d, TB_STATEMENT_WITHDRAWN, key);
}

bool tb_end_believed(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    struct tb_name site;
    TB_ASSERT(peer < d->config->peer_count);
    const struct tb_config_peer *p = &d->config->peers[peer];
    if (p->is_unsigned || tb_name_equal(&p->of, &d->config->site)) return true;
    return tb_home_site(d, model, &site) && tb_name_equal(&p->of, &site);
}

static void at_least(struct tb_catalog_known_run *most, const struct tb_said *s)
{
    if (s == NULL || s->what.run_order < most->order) return;
    if (s->what.run_order > most->order) most->number = 0;
    most->order = s->what.run_order;
    most->id = s->what.run;
    if (s->what.number > most->number) most->number = s->what.number;
}

static bool lower(const struct tb_daemon *d, struct tb_catalog_known_run *told)
{
    struct tb_catalog_known_run most = {.model = told->model};
    if (told->order == 0) return false;
    at_least(&most, tb_said_newest(&d->said, TB_STATEMENT_RUN, &told->model));
    at_least(&most, tb_said_newest(&d->said, TB_STATEMENT_VERSION, &told->model));
    if (told->order < most.order || (told->order == most.order && told->number <= most.number)) return false;
    *told = most;
    return true;
}

bool tb_statements_run_lower(const struct tb_daemon *d, uint32_t peer, struct tb_catalog_known_run *told)
{
    TB_ASSERT(peer < d->config->peer_count);
    return !d->config->peers[peer].is_unsigned && lower(d, told);
}

bool tb_statements_run_lower_of_worker(const struct tb_daemon *d, struct tb_catalog_known_run *told)
{
    struct tb_name home;
    if (d->tls == NULL || !tb_home_of(d, &told->model, &home)) return false;
    const uint32_t peer = tb_peer_index(d, &home);
    return (peer == UINT32_MAX || !d->config->peers[peer].is_unsigned) && lower(d, told);
}

bool tb_root_fits(struct tb_daemon *d, const struct tb_version_key *key,
                  const struct tb_manifest *const *manifests)
{
    const struct tb_said *s = tb_said_find(&d->said, TB_STATEMENT_VERSION, &key->uid);
    if (!tb_publishers_fit(d, key, manifests)) return false;
    if (s == NULL) return true;
    const size_t bytes = tb_proof_scratch_bytes(manifests, key->shard_count);
    void *scratch = tb_malloc(bytes);
    if (scratch == NULL) return false; /* it is asked for again */
    const struct tb_blake3 root = tb_proof_root(manifests, key->shard_count, scratch, bytes);
    tb_free(scratch);
    return tb_blake3_equal(&root, &s->what.root);
}
