/* certificates.c - tls.cert, tls.key, every CA, tls.revoked and tls.spiffe: read at start, and
 * again on SIGHUP or when the files change.
 *
 * Files are taken together or not at all. One that is half written, does not fit the others or
 * names another gateway is refused with a line, and the gateway goes on with the files that it had.
 * Files are looked at each second, and read once two looks in a row saw the same, so that a writer
 * of several files has time for all of them. They are read after 20 s also where each look sees
 * others: what writes one of them again and again does not keep a revocation away (P8). Refused
 * files are read again each minute: a certificate may become valid as it lies there. */
#include "gateway/daemon/daemon.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/digest.h"
#include "gateway/config/gateway_tls.h"
#include "gateway/daemon/audit.h"
#include "gateway/daemon/certificates.h"
#include "gateway/daemon/links/statements.h"
#include "gateway/daemon/sessions/sessions.h"

#define AGAIN_NS  TB_SECONDS(60)
#define SETTLE_NS TB_SECONDS(20)
#define DAY_S     86400

/* ---- have they changed? ---- */

struct file_mark {
    uint64_t device, inode, bytes, written_s, written_ns, changed_s, changed_ns;
};

static void mark_file(struct tb_digest_state *all, const char *path)
{
    struct stat st;
    struct file_mark m = {0}; /* of a file that is not there */
    if (path == NULL) return;
    if (stat(path, &st) == 0)
        m = (struct file_mark){(uint64_t)st.st_dev,          (uint64_t)st.st_ino,
                               (uint64_t)st.st_size,         (uint64_t)st.st_mtim.tv_sec,
                               (uint64_t)st.st_mtim.tv_nsec, (uint64_t)st.st_ctim.tv_sec,
                               (uint64_t)st.st_ctim.tv_nsec};
    tb_digest_update(all, &m, sizeof m);
}

/* One number for all files as they are now. */
static struct tb_digest mark_all(const struct tb_daemon *d)
{
    const struct tb_config *c = d->config;
    struct tb_digest_state all;
    tb_digest_begin(&all);
    mark_file(&all, c->tls_cert);
    mark_file(&all, c->tls_key);
    mark_file(&all, c->tls_ca);
    mark_file(&all, c->tls_revoked);
    mark_file(&all, c->tls_spiffe);
    for (uint32_t i = 0; i < c->peer_count; i++)
        mark_file(&all, c->peers[i].ca);
    for (uint32_t i = 0; i < c->model_count; i++)
        mark_file(&all, c->models[i].home_ca);
    return tb_digest_end(&all);
}

/* ---- taking them ---- */

/* For the audit record. */
static void certificates_act(struct tb_daemon *d, const char *action, const char *object, const char *result)
{
    tb_audit_act(d, &(struct tb_audit_event){action, "gateway", object, "tls", result});
}

static void loaded_log(const struct tb_daemon *d, const char *reason, bool trust_changed)
{
    tb_log(TB_LOG_INFO, "tls.loaded", "reason=%s expires_wall_s=%llu trust=%s revoked=%u", reason,
           (unsigned long long)tb_tls_expires_wall_s(d->tls), trust_changed ? "changed" : "same",
           tb_tls_revoked_count(d->tls));
    if (tb_tls_is_revoked(d->tls))
        tb_log(TB_LOG_ERROR, "tls.own_revoked", "list=tls.revoked action=issue_another_certificate");
}

static void refused_log(const char *reason, const char *why)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "tls.refused");
    tb_log_str(&l, "reason", reason);
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", "kept_what_was_loaded");
    tb_log_end(&l);
}

static void take(struct tb_daemon *d, struct tb_tls *tls, const char *reason)
{
    TB_ASSERT(tls != NULL && tls != d->tls);
    const struct tb_digest before = tb_tls_trust(d->tls), after = tb_tls_trust(tls);
    const bool trust_changed = !tb_digest_equal(&before, &after);
    tb_tls_free(d->tls);
    d->tls = tls;
    d->tls_warned_day = 0;
    d->counters.certificates_loaded++;
    loaded_log(d, reason, trust_changed);
    char object[TB_AUDIT_OBJECT_BYTES];
    snprintf(object, sizeof object, "reason=%s trust=%s revoked=%u", reason,
             trust_changed ? "changed" : "same", tb_tls_revoked_count(tls));
    certificates_act(d, "certificates.load", object, "ok");
    if (d->links != NULL && !d->links_restarting) TB_MOOT(tb_links_set_tls(d->links, tls));
    if (!trust_changed) return;
    tb_sessions_distrust(d);
    tb_sessions_revoke(d);
    tb_statements_recheck(d);
}

/* Those behind our certificate count too: an authority may sign it again by way of others. */
static bool same(const struct tb_tls *a, const struct tb_tls *b)
{
    const struct tb_digest shown[] = {tb_tls_shown(a), tb_tls_shown(b)};
    const struct tb_digest trust[] = {tb_tls_trust(a), tb_tls_trust(b)};
    return tb_digest_equal(&shown[0], &shown[1]) && tb_digest_equal(&trust[0], &trust[1]);
}

void tb_certificates_take(struct tb_daemon *d, struct tb_tls *tls)
{
    TB_ASSERT(d->tls != NULL && !d->draining);
    d->tls_seen = mark_all(d);
    d->tls_mark = (struct tb_digest){0}; /* they were read a while ago: the next look reads them again */
    d->tls_again_at = 0;
    if (!same(d->tls, tls)) {
        take(d, tls, "signal");
        return;
    }
    tb_tls_free(tls);
    tb_log(TB_LOG_INFO, "tls.same", "reason=signal");
}

/* Said and counted once, however often the same files are read again. */
static void refuse(struct tb_daemon *d, const char *reason, const char error[512])
{
    TB_ASSERT(error[0] != '\0'); /* the line says which file it is */
    const bool told = d->tls_again_at != 0 && strcmp(error, d->tls_refused) == 0;
    d->tls_again_at = tb_time_add(tb_clock_now(), AGAIN_NS);
    if (told) return;
    (void)snprintf(d->tls_refused, sizeof d->tls_refused, "%s", error);
    d->counters.certificates_refused++;
    refused_log(reason, error);
    certificates_act(d, "certificates.load", reason, error);
}

static void reload(struct tb_daemon *d, const char *reason)
{
    TB_ASSERT(d->tls != NULL && !d->draining);
    char error[512] = "";
    struct tb_tls *tls = NULL;
    if (tb_gateway_tls(d->config, &tls, error) != TB_OK) {
        refuse(d, reason, error);
        return;
    }
    d->tls_again_at = 0;
    if (!same(d->tls, tls)) {
        take(d, tls, reason);
        return;
    }
    tb_tls_free(tls);
    tb_log(TB_LOG_INFO, "tls.same", "reason=%s", reason);
    /* An operator's word: links that this side dialled go over to what their peers show by now. */
    if (d->links != NULL && !d->links_restarting && strcmp(reason, "signal") == 0)
        TB_MOOT(tb_links_set_tls(d->links, d->tls));
}

void tb_certificates_reload(struct tb_daemon *d)
{
    if (d->tls == NULL || d->draining) return;
    d->tls_mark = d->tls_seen = mark_all(d);
    d->tls_again_at = 0;
    reload(d, "signal");
}

/* ---- how long they last ---- */

int64_t tb_certificates_days_left(uint64_t expires_wall_s)
{
    const int64_t now = (int64_t)(tb_clock_wall_ms() / 1000);
    const int64_t left = (int64_t)expires_wall_s - now;
    return left >= 0 ? left / DAY_S : (left - DAY_S + 1) / DAY_S; /* ended: -1 or less */
}

static void expiring_log(struct tb_daemon *d, const char *what, const char *key, uint64_t expires_wall_s)
{
    if (expires_wall_s == 0) return;
    const int64_t days = tb_certificates_days_left(expires_wall_s);
    if (days >= TB_CERTIFICATE_WARN_DAYS) return;
    tb_log(TB_LOG_WARN, "tls.expiring", "what=%s key=%s days=%lld action=renew", what, key, (long long)days);
    char result[64];
    snprintf(result, sizeof result, "%lld days left", (long long)days);
    certificates_act(d, "certificates.expire", key, result);
}

/* P10: at the start, when others are loaded, and once a day. */
static void expiring_look(struct tb_daemon *d)
{
    const uint64_t day = tb_clock_wall_ms() / 1000 / DAY_S;
    if (d->tls_warned_day == day + 1) return;
    d->tls_warned_day = day + 1;
    expiring_log(d, "certificate", "tls.cert", tb_tls_expires_wall_s(d->tls));
    expiring_log(d, "authority", "tls.ca,peers.SITE.ca,models.NAME.home_ca",
                 tb_tls_cas_expire_wall_s(d->tls));
}

/* Two looks saw the same, or the time for that is over. */
static bool are_settled(struct tb_daemon *d, const struct tb_digest *marks)
{
    const struct tb_digest before = d->tls_seen;
    const tb_time_ns now = tb_clock_now();
    d->tls_seen = *marks;
    if (!tb_digest_equal(marks, &before) && d->tls_moves_since == 0) d->tls_moves_since = now;
    if (!tb_digest_equal(marks, &before) && tb_time_since(d->tls_moves_since, now) < SETTLE_NS) return false;
    d->tls_moves_since = 0;
    return true;
}

void tb_certificates_tick(struct tb_daemon *d)
{
    if (d->tls == NULL || d->draining) return;
    expiring_look(d);
    const struct tb_digest marks = mark_all(d);
    if (!are_settled(d, &marks)) return;
    if (!tb_digest_equal(&marks, &d->tls_mark)) {
        d->tls_mark = marks;
        d->tls_again_at = 0;
        reload(d, "files_changed");
    } else if (d->tls_again_at != 0 && tb_clock_now() >= d->tls_again_at) {
        reload(d, "again");
    }
}

enum tb_status tb_certificates_open(struct tb_daemon *d, char error[512])
{
    TB_ASSERT(d->tls == NULL);
    if (d->config->tls_cert == NULL) return TB_OK; /* no peers, no workers from elsewhere */
    d->tls_mark = d->tls_seen = mark_all(d);
    return tb_gateway_tls(d->config, &d->tls, error);
}
