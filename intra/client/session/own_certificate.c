/* own_certificate.c - see own_certificate.h. */
#include "intra/client/session/own_certificate.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/log.h"
#include "intra/client/session/last_error.h"

static enum tb_status read_files(const struct tb_own_certificate *own, struct tb_tls **tls_out,
                                 char error[256])
{
    const struct tb_tls_files files = {
        .ca = own->ca, .cert = own->cert, .key = own->key, .cert_unlisted = true};
    return tb_tls_new_ca(&files, tls_out, error);
}

/* P9: a certificate that was renewed is shown from the next connection on: the gateway ends the one
 * under the certificate before when that ends. Files that do not serve, such as half of one, leave
 * what was read before. */
void tb_own_certificate_again(struct tb_own_certificate *own)
{
    struct tb_tls *tls = NULL;
    char error[256] = "";
    const bool fresh = own->fresh;
    own->fresh = false;
    if (own->tls == NULL || fresh) return;
    if (read_files(own, &tls, error) == TB_OK) {
        tb_tls_free(own->tls);
        own->tls = tls;
        own->refused[0] = '\0';
        return;
    }
    if (strcmp(error, own->refused) == 0) return;
    snprintf(own->refused, sizeof own->refused, "%s", error);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "session.tls_refused");
    tb_log_str(&l, "why", error);
    tb_log_str(&l, "action", "kept_what_was_loaded");
    tb_log_end(&l);
}

int tb_own_certificate_open(struct tb_own_certificate *own, const struct tb_session_options *o)
{
    char error[256] = "";
    own->ca = tb_strdup(o->ca);
    own->cert = tb_strdup(o->cert);
    own->key = tb_strdup(o->key);
    if (own->ca == NULL || own->cert == NULL || own->key == NULL)
        return tb_fail(TB_SITE_NOMEM, "no memory for the connection");
    own->fresh = true;
    const enum tb_status status = read_files(own, &own->tls, error);
    return status == TB_OK ? TB_OK : tb_fail(status, "%s", error);
}

void tb_own_certificate_close(struct tb_own_certificate *own)
{
    tb_tls_free(own->tls);
    tb_free(own->ca);
    tb_free(own->cert);
    tb_free(own->key);
    *own = (struct tb_own_certificate){.tls = NULL};
}
