/* tls_revoked.c - the chain of a session, judged again: by the list of revoked certificates, and by
 * the CAs that are trusted by now. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/net/revoked.h"
#include "base/net/tls_context.h"
#include "base/net/tls_session.h"
#include "base/system_calls.h"

void tb_tls_set_revoked(struct tb_tls *tls, struct tb_revoked *revoked)
{
    TB_ASSERT(!tls->ephemeral && tls->revoked == NULL);
    tls->revoked = revoked;
}

uint32_t tb_tls_revoked_count(const struct tb_tls *tls)
{
    return tb_revoked_count(tls->revoked);
}

/* P8: a certificate that could not be looked at counts as revoked. */
static bool is_revoked(const struct tb_tls *tls, X509 *cert)
{
    const ASN1_INTEGER *serial = X509_get0_serialNumber(cert);
    struct tb_revoked_certificate c = {0};
    if (tb_tls_cert_fingerprint(cert, &c.fingerprint) != TB_OK) return true;
    if (tb_tls_cert_identity(tls->spiffe, cert, &c.identity) != TB_OK) c.identity.kind = TB_IDENTITY_NONE;
    c.serial = ASN1_STRING_get0_data(serial);
    c.serial_bytes = (size_t)ASN1_STRING_length(serial);
    return tb_revoked_has(tls->revoked, &c);
}

bool tb_tls_chain_revoked(const struct tb_tls *tls, const STACK_OF(X509) * chain)
{
    if (tb_revoked_count(tls->revoked) == 0) return false;
    for (int i = 0; i < sk_X509_num(chain); i++)
        if (is_revoked(tls, sk_X509_value(chain, i))) return true;
    return false;
}

bool tb_tls_is_revoked(const struct tb_tls *tls)
{
    X509 *ours = SSL_CTX_get0_certificate(tls->ctx);
    TB_ASSERT(ours != NULL);
    return tb_revoked_count(tls->revoked) > 0 && is_revoked(tls, ours);
}

/* A CA that is named for one site vouches for that site alone. */
static bool chain_trusted(const struct tb_tls *tls, const STACK_OF(X509) * chain)
{
    struct tb_identity peer;
    if (sk_X509_num(chain) <= 0 || tb_tls_cert_identity(tls->spiffe, sk_X509_value(chain, 0), &peer) != TB_OK)
        return false;
    for (int i = 0; i < sk_X509_num(chain); i++)
        for (uint32_t k = 0; k < tls->bound_count; k++)
            if (X509_cmp(tls->bound[k].ca, sk_X509_value(chain, i)) == 0 &&
                tb_name_equal(&tls->bound[k].site, &peer.site))
                return true;
    return false;
}

/* A line of tls.spiffe may name another identity now. */
static bool same_identity(const struct tb_tls_session *s, const struct tb_tls *tls, const X509 *cert)
{
    struct tb_identity was, is;
    return tb_tls_cert_identity(s->tls->spiffe, cert, &was) == TB_OK &&
           tb_tls_cert_identity(tls->spiffe, cert, &is) == TB_OK && tb_identity_equal(&was, &is);
}

bool tb_tls_session_trusted(const struct tb_tls_session *s, const struct tb_tls *tls)
{
    if (!s->shaken || s->tls->ephemeral) return false;
    const STACK_OF(X509) *chain = SSL_get0_verified_chain(s->ssl);
    return !tb_tls_chain_revoked(tls, chain) && chain_trusted(tls, chain) &&
           same_identity(s, tls, sk_X509_value(chain, 0));
}

bool tb_tls_session_revoked(const struct tb_tls_session *s, const struct tb_tls *tls)
{
    if (!s->shaken || s->tls->ephemeral) return false;
    return tb_tls_chain_revoked(tls, SSL_get0_verified_chain(s->ssl));
}

/* A FIFO has nothing to read, and is not waited for. */
static FILE *file_open(const char *path)
{
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (f == NULL && fd >= 0) (void)close(fd);
    return f;
}

enum tb_status tb_revoked_of_file(const char *path, struct tb_revoked_entry *entry_out,
                                  char identity_out[TB_URI_BYTES_MAX], char error_out[256])
{
    struct tb_identity identity = {.kind = TB_IDENTITY_NONE};
    FILE *f = tb_openssl_begin() ? file_open(path) : NULL;
    if (f == NULL) {
        snprintf(error_out, 256, "%.150s: %s", path, strerror(errno));
        return TB_SITE_IO;
    }
    X509 *cert = PEM_read_X509(f, NULL, NULL, NULL);
    (void)fclose(f);
    ERR_clear_error();
    if (cert == NULL) {
        snprintf(error_out, 256, "%.150s: holds no PEM certificate", path);
        return TB_BAD_FILE;
    }
    *entry_out = (struct tb_revoked_entry){.kind = TB_REVOKED_FINGERPRINT};
    const enum tb_status status = tb_tls_cert_fingerprint(cert, &entry_out->fingerprint);
    identity_out[0] = '\0';
    if (tb_tls_cert_identity(NULL, cert, &identity) == TB_OK) tb_identity_format(&identity, identity_out);
    X509_free(cert);
    return status;
}
