/* tls_padding.c - a first message that fills packets: an extension of zeros, whose number is for
 * private use. RFC 8446 (4.2) has servers skip extensions that they do not know. */
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "base/assert.h"
#include "base/net/tls_context.h"

#define EXTENSION 0xffa7u

static const unsigned char zeros[TB_TLS_PADDING_MAX];

static int add(SSL *ssl, unsigned type, unsigned context, const unsigned char **out, size_t *bytes_out,
               X509 *cert, size_t chain_index, int *alert, void *bytes)
{
    (void)ssl, (void)type, (void)context, (void)cert, (void)chain_index, (void)alert;
    *out = zeros;
    *bytes_out = (size_t)(uintptr_t)bytes;
    return 1;
}

enum tb_status tb_tls_set_padding(struct tb_tls *tls, uint32_t bytes)
{
    TB_ASSERT(bytes <= TB_TLS_PADDING_MAX);
    const int added = SSL_CTX_add_custom_ext(tls->ctx, EXTENSION, SSL_EXT_CLIENT_HELLO, add, NULL,
                                             (void *)(uintptr_t)bytes, NULL, NULL);
    ERR_clear_error();
    return added == 1 ? TB_OK : TB_SITE_NOMEM;
}
