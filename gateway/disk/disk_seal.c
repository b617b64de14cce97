/* disk_seal.c - see disk_seal.h. Ciphers are OpenSSL's. */
#include "gateway/disk/disk_seal.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "gateway/disk/disk_io.h"

#define MAGIC       "TBSEAL01"
#define MAGIC_CHARS (sizeof MAGIC - 1)
#define ID_AT       16u
#define ID_BYTES    16u
#define CHECK_AT    48u
#define CHECK_BYTES 16u
#define SALT_BYTES  16u
#define TAG_BYTES   16u
#define NONCE_BYTES 12u
#define FRONT_BYTES (SALT_BYTES + 8u)
#define HASH_BYTES  32u

/* A key of one salt. */
struct session {
    bool open;
    uint8_t salt[SALT_BYTES];
    EVP_CIPHER_CTX *cipher;
};

struct tb_seal {
    const struct tb_disk_key *key;
    uint8_t id[ID_BYTES];
    enum tb_seal_purpose purpose;
    uint64_t inside_bytes;
    uint64_t counter; /* of the next unit that is put */
    struct session put, get;
};

/* ---- keys ---- */

struct text {
    const void *bytes;
    size_t count;
};

/* HKDF-SHA256 (RFC 5869) with an output of one block. */
static bool derive(const struct tb_disk_key *key, const uint8_t salt[SALT_BYTES], const struct text *info,
                   uint8_t out[HASH_BYTES])
{
    uint8_t prk[HASH_BYTES], expand[128];
    unsigned count = 0;
    TB_ASSERT(info->count < sizeof expand);
    memcpy(expand, info->bytes, info->count);
    expand[info->count] = 1;
    const bool good =
        HMAC(EVP_sha256(), salt, SALT_BYTES, key->bytes, sizeof key->bytes, prk, &count) != NULL &&
        HMAC(EVP_sha256(), prk, sizeof prk, expand, info->count + 1, out, &count) != NULL;
    OPENSSL_cleanse(prk, sizeof prk);
    return good;
}

static bool check_make(const struct tb_disk_key *key, const uint8_t header[TB_SEAL_HEADER_BYTES],
                       uint8_t out[HASH_BYTES])
{
    uint8_t info[8 + CHECK_AT];
    struct tb_writer w;
    tb_writer_init(&w, info, sizeof info);
    tb_write_bytes(&w, "header: ", 8);
    tb_write_bytes(&w, header, CHECK_AT);
    TB_ASSERT(!w.full && w.used == sizeof info);
    return derive(key, header + ID_AT, &(struct text){info, sizeof info}, out);
}

static enum tb_status session_open(const struct tb_seal *s, struct session *of, const uint8_t *salt,
                                   bool encrypts)
{
    uint8_t key[HASH_BYTES];
    static const char unit[] = "unit";
    if (of->cipher == NULL) of->cipher = EVP_CIPHER_CTX_new();
    of->open = false;
    if (of->cipher == NULL || !derive(s->key, salt, &(struct text){unit, sizeof unit - 1}, key))
        return TB_SITE_NOMEM;
    of->open = EVP_CipherInit_ex(of->cipher, EVP_aes_256_gcm(), NULL, key, NULL, encrypts) == 1;
    OPENSSL_cleanse(key, sizeof key);
    memcpy(of->salt, salt, SALT_BYTES);
    return of->open ? TB_OK : TB_SITE_NOMEM;
}

/* ---- files ---- */

static enum tb_status seal_make(const struct tb_disk_key *key, const uint8_t header[TB_SEAL_HEADER_BYTES],
                                struct tb_seal **seal_out)
{
    struct tb_reader r;
    struct tb_seal *s = tb_calloc(1, sizeof *s);
    if (s == NULL) return TB_SITE_NOMEM;
    tb_reader_init(&r, header + MAGIC_CHARS, TB_SEAL_HEADER_BYTES - MAGIC_CHARS);
    s->key = key;
    s->purpose = (enum tb_seal_purpose)tb_read_u32(&r);
    (void)tb_read_u32(&r);
    memcpy(s->id, tb_read_span(&r, ID_BYTES), ID_BYTES);
    s->inside_bytes = tb_read_u64(&r);
    TB_ASSERT(!r.bad);
    *seal_out = s;
    return TB_OK;
}

enum tb_status tb_seal_new(const struct tb_disk_key *key, enum tb_seal_purpose purpose, uint64_t inside_bytes,
                           uint8_t header_out[TB_SEAL_HEADER_BYTES], struct tb_seal **seal_out)
{
    uint8_t id[ID_BYTES], check[HASH_BYTES];
    struct tb_writer w;
    memset(header_out, 0, TB_SEAL_HEADER_BYTES);
    tb_random_bytes(id, sizeof id);
    tb_writer_init(&w, header_out, TB_SEAL_HEADER_BYTES);
    tb_write_bytes(&w, MAGIC, MAGIC_CHARS);
    tb_write_u32(&w, (uint32_t)purpose);
    tb_write_u32(&w, 0);
    tb_write_bytes(&w, id, sizeof id);
    tb_write_u64(&w, inside_bytes);
    TB_ASSERT(!w.full && w.used < CHECK_AT);
    if (!check_make(key, header_out, check)) return TB_SITE_NOMEM;
    memcpy(header_out + CHECK_AT, check, CHECK_BYTES);
    return seal_make(key, header_out, seal_out);
}

static bool has_magic(const uint8_t *header)
{
    return memcmp(header, MAGIC, MAGIC_CHARS) == 0;
}

/* Also what its own bytes say of its purpose. TB_NOT_FOUND: it is not. */
static enum tb_status under(const struct tb_disk_key *key, enum tb_seal_purpose purpose,
                            const uint8_t header[TB_SEAL_HEADER_BYTES])
{
    uint8_t check[HASH_BYTES];
    struct tb_reader r;
    tb_reader_init(&r, header + MAGIC_CHARS, sizeof(uint32_t));
    if (!has_magic(header) || tb_read_u32(&r) != (uint32_t)purpose) return TB_NOT_FOUND;
    if (!check_make(key, header, check)) return TB_SITE_NOMEM;
    return CRYPTO_memcmp(check, header + CHECK_AT, CHECK_BYTES) == 0 ? TB_OK : TB_NOT_FOUND;
}

enum tb_status tb_seal_open(const struct tb_disk_key *key, enum tb_seal_purpose purpose,
                            const uint8_t header[TB_SEAL_HEADER_BYTES], struct tb_seal **seal_out)
{
    const enum tb_status status = under(key, purpose, header);
    return status == TB_OK ? seal_make(key, header, seal_out) : status;
}

void tb_seal_free(struct tb_seal *s)
{
    if (s == NULL) return;
    EVP_CIPHER_CTX_free(s->put.cipher);
    EVP_CIPHER_CTX_free(s->get.cipher);
    tb_free(s);
}

uint64_t tb_seal_inside_bytes(const struct tb_seal *s)
{
    return s->inside_bytes;
}

/* ---- units ---- */

struct authenticated {
    uint8_t bytes[ID_BYTES + 4 + 4 + 8];
};

static struct authenticated authenticated_of(const struct tb_seal *s, const struct tb_seal_place *place)
{
    struct authenticated a = {{0}};
    struct tb_writer w;
    tb_writer_init(&w, a.bytes, sizeof a.bytes);
    tb_write_bytes(&w, s->id, ID_BYTES);
    tb_write_u32(&w, (uint32_t)s->purpose);
    tb_write_u32(&w, place->kind);
    tb_write_u64(&w, place->index);
    TB_ASSERT(!w.full && w.used == sizeof a.bytes);
    return a;
}

static bool unit_begin(struct session *of, const uint8_t *counter, const struct authenticated *a)
{
    int used = 0;
    uint8_t nonce[NONCE_BYTES] = {0};
    memcpy(nonce + NONCE_BYTES - 8, counter, 8);
    return EVP_CipherInit_ex(of->cipher, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(of->cipher, NULL, &used, a->bytes, (int)sizeof a->bytes) == 1;
}

enum tb_status tb_seal_put(struct tb_seal *s, const struct tb_seal_place *place, const void *plain,
                           uint32_t count, uint8_t *unit_out)
{
    int used = 0;
    struct tb_writer w;
    TB_ASSERT(count > 0 && count <= INT32_MAX - TB_SEAL_MORE);
    if (!s->put.open) {
        uint8_t salt[SALT_BYTES];
        tb_random_bytes(salt, sizeof salt);
        const enum tb_status status = session_open(s, &s->put, salt, true);
        if (status != TB_OK) return status;
    }
    TB_ASSERT(s->counter < UINT64_MAX); /* a nonce never comes twice */
    tb_writer_init(&w, unit_out, FRONT_BYTES);
    tb_write_bytes(&w, s->put.salt, SALT_BYTES);
    tb_write_u64(&w, s->counter++);
    const struct authenticated a = authenticated_of(s, place);
    uint8_t *out = unit_out + FRONT_BYTES;
    const bool good = unit_begin(&s->put, unit_out + SALT_BYTES, &a) &&
                      EVP_CipherUpdate(s->put.cipher, out, &used, plain, (int)count) == 1 &&
                      EVP_CipherFinal_ex(s->put.cipher, out + count, &used) == 1 &&
                      EVP_CIPHER_CTX_ctrl(s->put.cipher, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, out + count) == 1;
    return good ? TB_OK : TB_SITE_NOMEM;
}

enum tb_status tb_seal_get(struct tb_seal *s, const struct tb_seal_place *place, const uint8_t *unit,
                           uint32_t count, void *plain_out)
{
    int used = 0;
    uint8_t tag[TAG_BYTES];
    const uint8_t *in = unit + FRONT_BYTES;
    TB_ASSERT(count > 0 && count <= INT32_MAX - TB_SEAL_MORE);
    if (!s->get.open || memcmp(s->get.salt, unit, SALT_BYTES) != 0) {
        const enum tb_status status = session_open(s, &s->get, unit, false);
        if (status != TB_OK) return status;
    }
    memcpy(tag, in + count, sizeof tag);
    const struct authenticated a = authenticated_of(s, place);
    if (!unit_begin(&s->get, unit + SALT_BYTES, &a) ||
        EVP_CIPHER_CTX_ctrl(s->get.cipher, EVP_CTRL_AEAD_SET_TAG, sizeof tag, tag) != 1 ||
        EVP_CipherUpdate(s->get.cipher, plain_out, &used, in, (int)count) != 1)
        return TB_SITE_NOMEM;
    if (EVP_CipherFinal_ex(s->get.cipher, (uint8_t *)plain_out + count, &used) == 1) return TB_OK;
    memset(plain_out, 0, count);
    return TB_BAD_FILE;
}

/* ---- a look ---- */

static const char *why_other(bool sealed, const struct tb_disk_keys *keys)
{
    if (!sealed)
        return "it is in clear, and disk.key is set: with `disk.key_old: plain` it is encrypted at the start";
    if (keys->key == NULL && !keys->has_old)
        return "it is encrypted, and there is no disk.key: set it, or disk.key_old to have it in clear again";
    return "it is encrypted under another key, or its header is damaged: set disk.key, or disk.key_old, to "
           "the key of before";
}

struct header {
    bool sealed;
    enum tb_seal_purpose purpose;
    const uint8_t *bytes;
};

/* key NULL: in clear. TB_NOT_FOUND: it is not so. */
static enum tb_status is_as(const struct header *h, const struct tb_disk_key *key)
{
    if (h->sealed) return key != NULL ? under(key, h->purpose, h->bytes) : TB_NOT_FOUND;
    return key == NULL ? TB_OK : TB_NOT_FOUND;
}

static struct tb_disk_look judge(const struct header *h, const struct tb_disk_keys *keys)
{
    enum tb_status status = is_as(h, keys->key);
    if (status == TB_OK) return (struct tb_disk_look){.found = TB_DISK_FITS, .key = keys->key};
    if (status == TB_NOT_FOUND && keys->has_old) {
        status = is_as(h, keys->old);
        if (status == TB_OK) return (struct tb_disk_look){.found = TB_DISK_OLD, .key = keys->old};
    }
    if (status == TB_NOT_FOUND)
        return (struct tb_disk_look){.found = TB_DISK_OTHER, .why = why_other(h->sealed, keys)};
    errno = ENOMEM;
    return (struct tb_disk_look){.found = TB_DISK_UNREAD};
}

struct tb_disk_look tb_disk_look(int fd, enum tb_seal_purpose purpose, const char *magic,
                                 const struct tb_disk_keys *keys)
{
    uint8_t bytes[TB_SEAL_HEADER_BYTES] = {0};
    TB_ASSERT(strlen(magic) <= sizeof bytes);
    if (!tb_disk_read(fd, 0, sizeof bytes, bytes))
        return (struct tb_disk_look){.found = errno == 0 ? TB_DISK_NEITHER : TB_DISK_UNREAD};
    const struct header h = {has_magic(bytes), purpose, bytes};
    if (!h.sealed && memcmp(bytes, magic, strlen(magic)) != 0)
        return (struct tb_disk_look){.found = TB_DISK_NEITHER};
    return judge(&h, keys);
}
