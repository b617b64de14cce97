/* tls_records.c - keys from secrets, records from keys. */
#include "base/net/tls_records.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <string.h>

#include "base/assert.h"

#define NONCE_BYTES 12u
#define LABEL_BYTES                                                                                          \
    32u /* of HkdfLabel: two of length, one more, "tls13 " and the longest name, one of no context */
#define KEY_BYTES_MAX  32u
#define OUTER_TYPE     23u /* what every protected record says it is */
#define SUITE_AES128   0x1301u
#define SUITE_AES256   0x1302u
#define SUITE_CHACHA20 0x1303u

static const EVP_CIPHER *cipher_of(const SSL_CIPHER *suite)
{
    switch (suite != NULL ? SSL_CIPHER_get_protocol_id(suite) : 0) {
    case SUITE_AES128:
        return EVP_aes_128_gcm();
    case SUITE_AES256:
        return EVP_aes_256_gcm();
    case SUITE_CHACHA20:
        return EVP_chacha20_poly1305();
    default:
        return NULL;
    }
}

static size_t label_of(const char *name, size_t bytes, uint8_t label_out[LABEL_BYTES])
{
    static const char prefix[] = "tls13 ";
    const size_t prefix_bytes = sizeof prefix - 1, name_bytes = strlen(name);
    uint8_t *at = label_out;
    TB_ASSERT(3 + prefix_bytes + name_bytes + 1 <= LABEL_BYTES && bytes <= UINT16_MAX);
    *at++ = (uint8_t)(bytes >> 8);
    *at++ = (uint8_t)bytes;
    *at++ = (uint8_t)(prefix_bytes + name_bytes);
    memcpy(at, prefix, prefix_bytes);
    memcpy(at + prefix_bytes, name, name_bytes);
    at += prefix_bytes + name_bytes;
    *at++ = 0; /* no context */
    return (size_t)(at - label_out);
}

/* HKDF-Expand-Label(secret, name, "", bytes). */
static bool expand(const struct tb_tls_key *k, const char *name, uint8_t *out, size_t bytes)
{
    uint8_t label[LABEL_BYTES];
    const size_t label_bytes = label_of(name, bytes, label);
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    uint8_t secret[TB_TLS_SECRET_BYTES];
    TB_ASSERT(EVP_MD_get_size(k->digest) <= (int)sizeof secret);
    memcpy(secret, k->secret, sizeof secret);
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST,
                                         (char *)(uintptr_t)EVP_MD_get0_name(k->digest), 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, secret, (size_t)EVP_MD_get_size(k->digest)),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, label, label_bytes),
        OSSL_PARAM_construct_end()};
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = kdf != NULL ? EVP_KDF_CTX_new(kdf) : NULL;
    const bool done = ctx != NULL && EVP_KDF_derive(ctx, out, bytes, parameters) == 1;
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    OPENSSL_cleanse(secret, sizeof secret);
    return done;
}

/* Key and IV of the secret that stands in it. */
static bool make(struct tb_tls_key *k)
{
    uint8_t key[KEY_BYTES_MAX];
    k->sequence = 0;
    TB_ASSERT(EVP_CIPHER_get_key_length(k->cipher) <= (int)KEY_BYTES_MAX);
    const bool made = expand(k, "key", key, (size_t)EVP_CIPHER_get_key_length(k->cipher)) &&
                      expand(k, "iv", k->iv, NONCE_BYTES) &&
                      EVP_CipherInit_ex(k->aead, k->cipher, NULL, key, NULL, k->seals) == 1;
    OPENSSL_cleanse(key, sizeof key);
    return made;
}

bool tb_tls_key_init(struct tb_tls_key *k, const SSL_CIPHER *suite, const uint8_t *secret, bool seals)
{
    *k = (struct tb_tls_key){.cipher = cipher_of(suite), .seals = seals};
    if (k->cipher == NULL) return false;
    k->digest = SSL_CIPHER_get_handshake_digest(suite);
    k->aead = EVP_CIPHER_CTX_new();
    if (k->digest == NULL || k->aead == NULL) return false;
    memcpy(k->secret, secret, sizeof k->secret);
    return make(k);
}

void tb_tls_key_fini(struct tb_tls_key *k)
{
    EVP_CIPHER_CTX_free(k->aead);
    OPENSSL_cleanse(k, sizeof *k);
}

bool tb_tls_key_next(struct tb_tls_key *k)
{
    uint8_t next[TB_TLS_SECRET_BYTES] = {0};
    const bool made = expand(k, "traffic upd", next, (size_t)EVP_MD_get_size(k->digest));
    memcpy(k->secret, next, sizeof next);
    OPENSSL_cleanse(next, sizeof next);
    return made && make(k);
}

/* No number is used twice, whatever becomes of the record: two records under one nonce give
 * away what is in both. */
static bool begin(struct tb_tls_key *k, const uint8_t *header)
{
    uint8_t nonce[NONCE_BYTES];
    int count = 0;
    TB_ASSERT(k->sequence < UINT64_MAX); /* the next number would be used a second time */
    memcpy(nonce, k->iv, sizeof nonce);
    for (unsigned i = 0; i < 8; i++)
        nonce[NONCE_BYTES - 1 - i] ^= (uint8_t)(k->sequence >> (8 * i));
    k->sequence++;
    return EVP_CipherInit_ex(k->aead, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(k->aead, NULL, &count, header, TB_TLS_HEADER_BYTES) == 1;
}

bool tb_tls_seal(struct tb_tls_key *k, const struct tb_tls_plain *plain, uint8_t *record_out)
{
    const size_t behind = plain->count + 1 + TB_TLS_TAG_BYTES;
    TB_ASSERT(k->seals && behind <= UINT16_MAX);
    const uint8_t header[TB_TLS_HEADER_BYTES] = {OUTER_TYPE, 3, 3, (uint8_t)(behind >> 8), (uint8_t)behind};
    const uint8_t type = (uint8_t)plain->type;
    uint8_t *at = record_out + TB_TLS_HEADER_BYTES;
    int count = 0;
    memcpy(record_out, header, sizeof header);
    return begin(k, header) && EVP_CipherUpdate(k->aead, at, &count, plain->bytes, (int)plain->count) == 1 &&
           EVP_CipherUpdate(k->aead, at + plain->count, &count, &type, 1) == 1 &&
           EVP_CipherFinal_ex(k->aead, at + plain->count + 1, &count) == 1 &&
           EVP_CIPHER_CTX_ctrl(k->aead, EVP_CTRL_AEAD_GET_TAG, TB_TLS_TAG_BYTES, at + plain->count + 1) == 1;
}

size_t tb_tls_record_bytes(const uint8_t *header)
{
    const size_t behind = (size_t)header[3] << 8 | header[4];
    const bool fits = behind > TB_TLS_TAG_BYTES && behind <= TB_TLS_CIPHER_BYTES;
    return header[0] == OUTER_TYPE && header[1] == 3 && header[2] == 3 && fits ? TB_TLS_HEADER_BYTES + behind
                                                                               : 0;
}

size_t tb_tls_open_bytes(size_t record_bytes)
{
    TB_ASSERT(record_bytes >= TB_TLS_ADDED_BYTES);
    return record_bytes - TB_TLS_ADDED_BYTES;
}

bool tb_tls_open(struct tb_tls_key *k, const uint8_t *record, uint8_t *to, struct tb_tls_plain *plain_out)
{
    const size_t most = tb_tls_open_bytes(tb_tls_record_bytes(record));
    TB_ASSERT(!k->seals); /* a key of the other way would have numbers of its own */
    const uint8_t *at = record + TB_TLS_HEADER_BYTES;
    uint8_t last = 0, none[1], tag[TB_TLS_TAG_BYTES];
    int count = 0;
    memcpy(tag, at + most + 1, sizeof tag);
    if (!begin(k, record) || EVP_CipherUpdate(k->aead, to, &count, at, (int)most) != 1 ||
        EVP_CipherUpdate(k->aead, &last, &count, at + most, 1) != 1 ||
        EVP_CIPHER_CTX_ctrl(k->aead, EVP_CTRL_AEAD_SET_TAG, sizeof tag, tag) != 1 ||
        EVP_CipherFinal_ex(k->aead, none, &count) != 1)
        return false;
    size_t used = most;
    while (last == 0 && used > 0)
        last = to[--used]; /* padding: what stands before it is the type */
    *plain_out = (struct tb_tls_plain){(enum tb_tls_type)last, to, used};
    return true;
}
