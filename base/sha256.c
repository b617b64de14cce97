/* sha256.c - SHA-256 by OpenSSL. */
#include "base/sha256.h"

#include <openssl/evp.h>

enum tb_status tb_sha256_of(const void *bytes, size_t count, uint8_t out[TB_SHA256_BYTES])
{
    unsigned written = 0;
    if (EVP_Digest(bytes, count, out, &written, EVP_sha256(), NULL) != 1) return TB_SITE_NOMEM;
    return written == TB_SHA256_BYTES ? TB_OK : TB_SITE_NOMEM;
}
