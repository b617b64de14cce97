/* look.c - certificates are read, and asked for their fields. */
#include "base/pki/look.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/revoked.h"
#include "base/net/tls_context.h"
#include "base/pki/certificate.h"
#include "base/pki/pki_files.h"

#define CERTS_MAX 4096u

struct row {
    X509 *cert;
    const char *path;
    uint32_t index;
};

struct tb_pki_look {
    struct row *rows;
    uint32_t count, cap;
    const struct tb_spiffe *spiffe; /* borrowed; NULL: none */
};

struct tb_pki_look *tb_pki_look_new(void)
{
    return tb_calloc(1, sizeof(struct tb_pki_look));
}

void tb_pki_look_free(struct tb_pki_look *look)
{
    if (look == NULL) return;
    TB_ASSERT(look->count <= look->cap);
    for (uint32_t i = 0; i < look->count; i++)
        X509_free(look->rows[i].cert);
    tb_free(look->rows);
    tb_free(look);
}

void tb_pki_look_spiffe(struct tb_pki_look *look, const struct tb_spiffe *list)
{
    look->spiffe = list;
}

static bool make_room(struct tb_pki_look *look)
{
    if (look->count < look->cap) return true;
    const uint32_t cap = look->cap == 0 ? 16 : 2 * look->cap;
    struct row *more = tb_realloc(look->rows, cap * sizeof *more);
    if (more == NULL) return false;
    look->rows = more;
    look->cap = cap;
    return true;
}

enum tb_status tb_pki_look_add(struct tb_pki_look *look, const char *path, char error_out[256])
{
    enum tb_status status = tb_pki_begin(error_out);
    if (status != TB_OK) return status;
    STACK_OF(X509) *certs = NULL;
    status = tb_pki_read_certs(path, &certs, error_out);
    if (status != TB_OK) return status;
    for (int i = 0; status == TB_OK && i < sk_X509_num(certs); i++) {
        X509 *cert = sk_X509_value(certs, i);
        if (look->count == CERTS_MAX)
            status = tb_pki_say(TB_TOO_LARGE, error_out, "there are more than %u certificates", CERTS_MAX);
        else if (!make_room(look) || X509_up_ref(cert) != 1)
            status = tb_pki_say(TB_SITE_NOMEM, error_out, "no memory");
        else
            look->rows[look->count++] = (struct row){cert, path, (uint32_t)i};
    }
    sk_X509_pop_free(certs, X509_free);
    return status;
}

uint32_t tb_pki_look_count(const struct tb_pki_look *look)
{
    return look->count;
}

static void common_name(const X509_NAME *name, char out[TB_PKI_TEXT_BYTES])
{
    out[0] = '\0';
    (void)X509_NAME_get_text_by_NID(name, NID_commonName, out, TB_PKI_TEXT_BYTES);
    for (char *at = out; *at != '\0'; at++)
        if (*at < ' ' || *at > '~') *at = '?'; /* a char may be signed or not */
}

static int64_t wall_s(const ASN1_TIME *at)
{
    struct tm tm;
    return ASN1_TIME_to_tm(at, &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

static void serial_text(const X509 *cert, char out[TB_PKI_SERIAL_BYTES])
{
    BIGNUM *n = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
    char *text = n != NULL ? BN_bn2hex(n) : NULL;
    (void)snprintf(out, TB_PKI_SERIAL_BYTES, "%s", text != NULL ? text : "?");
    OPENSSL_free(text);
    BN_free(n);
}

static void key_text(const X509 *cert, char out[32])
{
    const EVP_PKEY *key = X509_get0_pubkey(cert);
    const char *kind = key != NULL ? EVP_PKEY_get0_type_name(key) : NULL;
    (void)snprintf(out, 32, "%.20s %d", kind != NULL ? kind : "?", key != NULL ? EVP_PKEY_get_bits(key) : 0);
}

/* The first URI of a certificate that is a SPIFFE one; "" for none. */
static void spiffe_text(const X509 *cert, char out[TB_SPIFFE_BYTES_MAX])
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    out[0] = '\0';
    for (int i = 0; out[0] == '\0' && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI) continue;
        const int bytes = ASN1_STRING_length(name->d.uniformResourceIdentifier);
        if (bytes <= 0 || bytes >= (int)TB_SPIFFE_BYTES_MAX) continue;
        memcpy(out, ASN1_STRING_get0_data(name->d.uniformResourceIdentifier), (size_t)bytes);
        out[bytes] = '\0';
        if (strlen(out) != (size_t)bytes || !tb_spiffe_valid(out)) out[0] = '\0';
    }
    GENERAL_NAMES_free(names);
}

static void tell_kind(const struct tb_pki_look *look, X509 *cert, struct tb_pki_seen *seen)
{
    seen->identity = (struct tb_identity){.kind = TB_IDENTITY_NONE};
    if (X509_check_ca(cert) == 1) {
        seen->kind = tb_pki_signed_by(cert, cert) ? TB_PKI_ROOT : TB_PKI_ISSUING;
        return;
    }
    const enum tb_status named = tb_tls_cert_identity(look->spiffe, cert, &seen->identity);
    seen->kind = named == TB_OK ? TB_PKI_LEAF : TB_PKI_STRANGE;
    seen->unlisted = named == TB_NOT_FOUND;
    spiffe_text(cert, seen->spiffe);
}

static int32_t signer_of(const struct tb_pki_look *look, X509 *cert)
{
    for (uint32_t i = 0; i < look->count; i++)
        if (tb_pki_signed_by(cert, look->rows[i].cert)) return (int32_t)i;
    return -1;
}

void tb_pki_look_at(const struct tb_pki_look *look, uint32_t index, struct tb_pki_seen *seen_out)
{
    TB_ASSERT(index < look->count);
    const struct row *row = &look->rows[index];
    *seen_out = (struct tb_pki_seen){.path = row->path, .index = row->index};
    tell_kind(look, row->cert, seen_out);
    common_name(X509_get_subject_name(row->cert), seen_out->subject);
    common_name(X509_get_issuer_name(row->cert), seen_out->issuer);
    serial_text(row->cert, seen_out->serial);
    key_text(row->cert, seen_out->key);
    if (tb_tls_cert_fingerprint(row->cert, &seen_out->fingerprint) != TB_OK)
        seen_out->fingerprint = (struct tb_fingerprint){{0}};
    seen_out->from_wall_s = wall_s(X509_get0_notBefore(row->cert));
    seen_out->until_wall_s = wall_s(X509_get0_notAfter(row->cert));
    seen_out->signer = signer_of(look, row->cert);
    ERR_clear_error();
}

bool tb_pki_look_revoked(const struct tb_pki_look *look, uint32_t index, const struct tb_revoked *revoked)
{
    struct tb_pki_seen seen;
    tb_pki_look_at(look, index, &seen);
    const ASN1_INTEGER *serial = X509_get0_serialNumber(look->rows[index].cert);
    const struct tb_revoked_certificate c = {.fingerprint = seen.fingerprint,
                                             .serial = ASN1_STRING_get0_data(serial),
                                             .serial_bytes = (size_t)ASN1_STRING_length(serial),
                                             .identity = seen.identity};
    return tb_revoked_has(revoked, &c);
}
