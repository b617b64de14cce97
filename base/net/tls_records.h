/* tls_records.h - TLS 1.3's protection of records (RFC 8446, sections 5.2, 5.3, 7.2 and 7.3), one
 * way of one connection, for tls_bulk.c.
 *
 * OpenSSL shakes hands; from the secret it agreed on, a key is made here that seals records from
 * wherever their bytes stand, and opens them to wherever they go. OpenSSL's own records are copied
 * once more at either end, and each costs a call of the kernel.
 *
 * Knows no socket. Threads: one at a time. */
#ifndef TB_BASE_NET_TLS_RECORDS_H
#define TB_BASE_NET_TLS_RECORDS_H

#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TB_TLS_HEADER_BYTES 5u
#define TB_TLS_TAG_BYTES    16u
#define TB_TLS_PLAIN_BYTES  16384u                                        /* of one record, at most */
#define TB_TLS_CIPHER_BYTES (TB_TLS_PLAIN_BYTES + 256u)                   /* behind the header, at most */
#define TB_TLS_ADDED_BYTES  (TB_TLS_HEADER_BYTES + 1u + TB_TLS_TAG_BYTES) /* to each that is sealed here */
#define TB_TLS_SECRET_BYTES EVP_MAX_MD_SIZE

enum tb_tls_type { TB_TLS_ALERT = 21, TB_TLS_HANDSHAKE = 22, TB_TLS_DATA = 23 };

struct tb_tls_key {
    EVP_CIPHER_CTX *aead;
    const EVP_CIPHER *cipher;
    const EVP_MD *digest;
    bool seals;
    uint8_t secret[TB_TLS_SECRET_BYTES];
    uint8_t iv[EVP_MAX_IV_LENGTH];
    uint64_t sequence; /* of the next record */
};

/* The key of a traffic secret. False: no memory, or a cipher that is not known here. */
bool tb_tls_key_init(struct tb_tls_key *k, const SSL_CIPHER *suite, const uint8_t *secret, bool seals);
void tb_tls_key_fini(struct tb_tls_key *k); /* also of one that is all zero */
/* The next generation: after a KeyUpdate went this way. False: no memory, and the key
 * is of no use any more. */
bool tb_tls_key_next(struct tb_tls_key *k);

struct tb_tls_plain {
    enum tb_tls_type type;
    const uint8_t *bytes;
    size_t count; /* at most TB_TLS_PLAIN_BYTES */
};

/* count + TB_TLS_ADDED_BYTES go to `record_out`. */
bool tb_tls_seal(struct tb_tls_key *k, const struct tb_tls_plain *plain, uint8_t *record_out);

/* How long the record is that begins with these five bytes, header and all; 0: not one that may
 * come. */
size_t tb_tls_record_bytes(const uint8_t *header);
/* How many bytes tb_tls_open writes, at most. */
size_t tb_tls_open_bytes(size_t record_bytes);
/* `to`: other memory, or the record's own from behind its header on. Only where it returns true are
 * they the peer's; else nothing that was written there may be looked at. False: the tag does not
 * match. Of what is nothing but padding the type is 0, which no record may have. */
bool tb_tls_open(struct tb_tls_key *k, const uint8_t *record, uint8_t *to, struct tb_tls_plain *plain_out);

#endif
