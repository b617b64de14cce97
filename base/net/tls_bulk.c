/* tls_bulk.c - batches of records between a socket and the caller's memory. */
#include "base/net/tls_bulk.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/socket.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/secret_memory.h"
#include "base/net/tls_context.h"
#include "base/net/tls_session.h"
#include "base/system_calls.h"

#define UPDATE_BYTES 5u /* KeyUpdate: type, three of length, the request */
#define KEY_UPDATE   24u
#define WARNING      1u
#define FATAL        2u
#define IN_BYTES     TB_TLS_BATCH_BYTES
#define RECORD_MAX   (TB_TLS_HEADER_BYTES + TB_TLS_CIPHER_BYTES)
#define IN_SMALL     (2 * RECORD_MAX)

enum alert {
    CLOSE_NOTIFY = 0,
    UNEXPECTED_MESSAGE = 10,
    BAD_RECORD_MAC = 20,
    RECORD_OVERFLOW = 22,
    ILLEGAL_PARAMETER = 47,
    DECODE_ERROR = 50,
    INTERNAL_ERROR = 80,
    USER_CANCELED = 90
};

_Static_assert(IN_BYTES >= IN_SMALL, "a record that is begun can be ended"); /* two records at least */
_Static_assert(IN_SMALL >= TB_TLS_AHEAD_BYTES, "what OpenSSL left has room");

static uint32_t out_bytes(const struct tb_tls_bulk *b)
{
    return b->out_batch * (TB_TLS_PLAIN_BYTES + TB_TLS_ADDED_BYTES) + UPDATE_BYTES + TB_TLS_ADDED_BYTES;
}

struct tb_tls_bulk *tb_tls_bulk_new(bool of_many)
{
    const size_t bytes = sizeof(struct tb_tls_bulk);
    return of_many ? tb_secret_new_of_many(bytes) : tb_secret_new(bytes);
}

void tb_tls_bulk_free(struct tb_tls_bulk *b)
{
    if (b == NULL) return;
    tb_tls_key_fini(&b->seal);
    tb_tls_key_fini(&b->open);
    if (b->in != NULL) OPENSSL_cleanse(b->in, b->in_bytes);
    tb_free(b->in);
    tb_free(b->out);
    OPENSSL_cleanse(b, sizeof *b);
    tb_secret_free(b, sizeof *b);
}

/* ---- the beginning ---- */

/* "LABEL RANDOM SECRET", both in hex. */
static bool take_secret(const char *line, const char *label, uint8_t *secret_out)
{
    const size_t label_bytes = strlen(label);
    if (strncmp(line, label, label_bytes) != 0) return false;
    const char *hex = strchr(line + label_bytes, ' ');
    size_t count = 0;
    return hex != NULL &&
           OPENSSL_hexstr2buf_ex(secret_out, TB_TLS_SECRET_BYTES, &count, hex + 1, '\0') == 1 && count > 0;
}

void tb_tls_bulk_secret(struct tb_tls_session *s, const char *line)
{
    struct tb_tls_bulk *b = s->bulk;
    if (b == NULL || b->begun) return;
    const bool server = SSL_is_server(s->ssl) == 1;
    const char *ours = server ? "SERVER_TRAFFIC_SECRET_0 " : "CLIENT_TRAFFIC_SECRET_0 ";
    const char *theirs = server ? "CLIENT_TRAFFIC_SECRET_0 " : "SERVER_TRAFFIC_SECRET_0 ";
    b->have_ours = b->have_ours || take_secret(line, ours, b->ours);
    b->have_theirs = b->have_theirs || take_secret(line, theirs, b->theirs);
}

/* Bytes that came with the end of the handshake, and that OpenSSL has not read, stand in the
 * session. */
static void take_ahead(struct tb_tls_session *s)
{
    struct tb_tls_bulk *b = s->bulk;
    TB_ASSERT(s->ahead_from <= s->ahead_used && s->ahead_used - s->ahead_from <= (int)b->in_bytes);
    b->in_used = (uint32_t)(s->ahead_used - s->ahead_from);
    memcpy(b->in, s->ahead + s->ahead_from, b->in_used);
    s->ahead_from = s->ahead_used;
}

/* Requests of a hop are small, and go one way; what is read goes the other way. */
static void sizes_set(struct tb_tls_session *s)
{
    struct tb_tls_bulk *b = s->bulk;
    const bool hop = s->expect.no_kernel, server = SSL_is_server(s->ssl) == 1;
    b->in_bytes = hop && server ? IN_SMALL : IN_BYTES;
    b->out_batch = hop && !server ? 1 : TB_TLS_BATCH;
}

bool tb_tls_bulk_begin(struct tb_tls_session *s)
{
    struct tb_tls_bulk *b = s->bulk;
    const SSL_CIPHER *suite = SSL_get_current_cipher(s->ssl);
    TB_ASSERT(s->shaken && !b->begun && b->in == NULL && b->out == NULL);
    b->sends = !tb_tls_session_kernel_sends(s);
    sizes_set(s);
    b->in = tb_malloc(b->in_bytes);
    b->out = b->sends ? tb_malloc(out_bytes(b)) : NULL;
    b->begun = b->have_ours && b->have_theirs && b->in != NULL && (b->out != NULL || !b->sends) &&
               SSL_has_pending(s->ssl) == 0 && tb_tls_key_init(&b->open, suite, b->theirs, false) &&
               (!b->sends || tb_tls_key_init(&b->seal, suite, b->ours, true));
    OPENSSL_cleanse(b->ours, sizeof b->ours);
    OPENSSL_cleanse(b->theirs, sizeof b->theirs);
    if (b->begun) take_ahead(s);
    return b->begun;
}

/* ---- sending ---- */

static bool seal(struct tb_tls_session *s, enum tb_tls_type type, const uint8_t *bytes, size_t count)
{
    struct tb_tls_bulk *b = s->bulk;
    const struct tb_tls_plain plain = {type, bytes, count};
    TB_ASSERT(b->out_used + count + TB_TLS_ADDED_BYTES <= out_bytes(b));
    if (!tb_tls_seal(&b->seal, &plain, b->out + b->out_used)) return false;
    b->out_used += (uint32_t)(count + TB_TLS_ADDED_BYTES);
    s->records_sent++;
    return true;
}

/* TB_OK: nothing waits. */
static enum tb_status flush(struct tb_tls_session *s)
{
    struct tb_tls_bulk *b = s->bulk;
    TB_ASSERT(b->out_from <= b->out_used && b->out_used <= out_bytes(b));
    while (b->out_from < b->out_used) {
        struct iovec piece = {.iov_base = b->out + b->out_from, .iov_len = b->out_used - b->out_from};
        const struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
        const ssize_t put = tb_sys_sendmsg(s->fd, &m, MSG_NOSIGNAL);
        if (put >= 0) {
            TB_ASSERT((size_t)put <= b->out_used - b->out_from);
            b->out_from += (uint32_t)put;
            continue;
        }
        if (errno == EINTR) continue;
        s->wants_write = errno == EAGAIN || errno == EWOULDBLOCK;
        if (s->wants_write) return TB_AGAIN;
        s->io_errno = errno;
        return s->ended = tb_tls_session_cut(s);
    }
    b->out_from = b->out_used = 0;
    return TB_OK;
}

/* The key wears out, or the peer asked for another: it hears of it in front of what comes under
 * that. */
static bool next_key(struct tb_tls_session *s)
{
    static const uint8_t update[UPDATE_BYTES] = {KEY_UPDATE, 0, 0, 1, 0};
    struct tb_tls_bulk *b = s->bulk;
    TB_ASSERT(s->records_sent >= s->key_since);
    if (!b->owes_update && s->records_sent - s->key_since < s->tls->key_records) return true;
    if (!seal(s, TB_TLS_HANDSHAKE, update, sizeof update) || !tb_tls_key_next(&b->seal)) return false;
    b->owes_update = false;
    s->key_since = s->records_sent;
    return true;
}

static enum tb_status seal_some(struct tb_tls_session *s, const uint8_t *bytes, size_t count)
{
    struct tb_tls_bulk *b = s->bulk;
    TB_ASSERT(b->out_used == 0 && b->pending == 0); /* the batch before is out */
    bool good = next_key(s);
    for (unsigned i = 0; i < b->out_batch && b->pending < count && good; i++) {
        const size_t left = count - b->pending;
        const size_t piece = left < TB_TLS_PLAIN_BYTES ? left : TB_TLS_PLAIN_BYTES;
        good = seal(s, TB_TLS_DATA, bytes + b->pending, piece);
        b->pending += (uint32_t)piece;
    }
    if (good) return TB_OK;
    s->dead = true;
    tb_tls_session_because(s, "a record could not be encrypted");
    return s->ended = TB_STREAM_TLS;
}

enum tb_status tb_tls_bulk_write(struct tb_tls_session *s, const void *bytes, size_t count, size_t *count_out)
{
    struct tb_tls_bulk *b = s->bulk;
    size_t used = 0;
    enum tb_status status = s->dead ? s->ended : TB_OK;
    TB_ASSERT(b->begun && b->sends);
    TB_ASSERT(count >= b->pending); /* what was tried is tried again */
    while (status == TB_OK) {
        status = flush(s);
        if (status != TB_OK) break;
        used += b->pending;
        b->pending = 0;
        if (used == count) break;
        status = seal_some(s, (const uint8_t *)bytes + used, count - used);
    }
    *count_out = used;
    return used > 0 ? TB_OK : status;
}

enum tb_status tb_tls_bulk_end(struct tb_tls_session *s)
{
    static const uint8_t goodbye[] = {WARNING, CLOSE_NOTIFY};
    const enum tb_status status = flush(s);
    if (status != TB_OK || s->said_end) return status;
    s->said_end = true;
    return seal(s, TB_TLS_ALERT, goodbye, sizeof goodbye) ? flush(s) : TB_STREAM_TLS;
}

/* ---- receiving ---- */

/* The caller's memory that has no bytes yet. */
struct out {
    uint8_t *at;
    size_t room;
};

static void took(struct out *out, size_t count)
{
    TB_ASSERT(count <= out->room);
    out->at += count;
    out->room -= count;
}

/* The peer is told, if the socket takes it, and nothing follows. */
static enum tb_status broken(struct tb_tls_session *s, enum alert alert, const char *why)
{
    const uint8_t told[] = {FATAL, (uint8_t)alert};
    struct tb_tls_bulk *b = s->bulk;
    if (b->sends && !s->dead && b->out_used == 0 && seal(s, TB_TLS_ALERT, told, sizeof told)) (void)flush(s);
    s->dead = true;
    tb_tls_session_because(s, "TLS: %s", why);
    return s->ended = TB_STREAM_TLS;
}

static enum tb_status take_alert(struct tb_tls_session *s, const struct tb_tls_plain *alert)
{
    if (alert->count != 2) return broken(s, DECODE_ERROR, "an alert of another length");
    if (alert->bytes[1] == CLOSE_NOTIFY) return s->ended = TB_STREAM_CLOSED;
    if (alert->bytes[1] == USER_CANCELED) return TB_OK; /* the goodbye follows */
    return s->ended = tb_tls_session_alert(s, alert->bytes[1]);
}

/* After a handshake without tickets only one message of it may come. */
static enum tb_status take_handshake(struct tb_tls_session *s, const struct tb_tls_plain *message)
{
    static const uint8_t update[UPDATE_BYTES - 1] = {KEY_UPDATE, 0, 0, 1};
    struct tb_tls_bulk *b = s->bulk;
    if (message->count == 0 || message->bytes[0] != KEY_UPDATE)
        return broken(s, UNEXPECTED_MESSAGE, "unexpected message");
    if (message->count != UPDATE_BYTES || memcmp(message->bytes, update, sizeof update) != 0)
        return broken(s, DECODE_ERROR, "a key update of another length");
    if (message->bytes[UPDATE_BYTES - 1] > 1)
        return broken(s, ILLEGAL_PARAMETER, "a key update with an unknown request");
    if (message->bytes[UPDATE_BYTES - 1] == 1) b->owes_update = true;
    return tb_tls_key_next(&b->open) ? TB_OK : broken(s, INTERNAL_ERROR, "no memory for the next key");
}

static enum tb_status take(struct tb_tls_session *s, const struct tb_tls_plain *plain)
{
    struct tb_tls_bulk *b = s->bulk;
    const bool vain = plain->type != TB_TLS_DATA || plain->count == 0;
    if (vain)
        b->owed += TB_TLS_VAIN_BYTES;
    else
        b->owed -= plain->count < b->owed ? (uint32_t)plain->count : b->owed;
    if (b->owed > TB_TLS_VAIN_MAX * TB_TLS_VAIN_BYTES)
        return broken(s, UNEXPECTED_MESSAGE, "a flood of records without data");
    if (plain->count > TB_TLS_PLAIN_BYTES) return broken(s, RECORD_OVERFLOW, "a record is too long");
    switch (plain->type) {
    case TB_TLS_DATA:
        return TB_OK;
    case TB_TLS_ALERT:
        return take_alert(s, plain);
    case TB_TLS_HANDSHAKE:
        return take_handshake(s, plain);
    }
    return broken(s, UNEXPECTED_MESSAGE, "unexpected record");
}

/* Opens the next record: into `out` where it fits there, else in its place, from where it is copied
 * piece by piece. Bytes of one that is not the peer's count as none. */
static enum tb_status open_record(struct tb_tls_session *s, size_t bytes, struct out *out)
{
    struct tb_tls_bulk *b = s->bulk;
    uint8_t *record = b->in + b->in_from;
    TB_ASSERT(bytes <= b->in_used - b->in_from);
    const bool fits = tb_tls_open_bytes(bytes) <= out->room;
    struct tb_tls_plain plain;
    if (!tb_tls_open(&b->open, record, fits ? out->at : record + TB_TLS_HEADER_BYTES, &plain))
        return broken(s, BAD_RECORD_MAC, "a record that does not match its tag");
    s->records_received++;
    const uint32_t at = b->in_from + TB_TLS_HEADER_BYTES;
    b->in_from += (uint32_t)bytes;
    const enum tb_status status = take(s, &plain);
    if (status != TB_OK || plain.type != TB_TLS_DATA) return status;
    if (fits) {
        took(out, plain.count);
    } else {
        b->left_from = at;
        b->left_to = at + (uint32_t)plain.count;
    }
    return TB_OK;
}

/* Of the record that comes next, header and all; 0: its header is not here yet. */
static enum tb_status next_record(struct tb_tls_session *s, size_t *bytes_out)
{
    const struct tb_tls_bulk *b = s->bulk;
    const uint8_t *header = b->in + b->in_from;
    *bytes_out = 0;
    if (b->in_used - b->in_from < TB_TLS_HEADER_BYTES) return TB_OK;
    *bytes_out = tb_tls_record_bytes(header);
    if (*bytes_out != 0) return TB_OK;
    if (header[0] != TB_TLS_DATA) return broken(s, UNEXPECTED_MESSAGE, "a record that is not encrypted");
    if ((header[3] << 8 | header[4]) > (int)TB_TLS_CIPHER_BYTES)
        return broken(s, RECORD_OVERFLOW, "a record is too long");
    return broken(s, DECODE_ERROR, "not a record");
}

/* Bytes that are not opened yet go to the front: less than a record, once a batch. */
static enum tb_status fill(struct tb_tls_session *s)
{
    struct tb_tls_bulk *b = s->bulk;
    TB_ASSERT(b->left_from == b->left_to);           /* no piece of a record stands there */
    TB_ASSERT(b->in_used - b->in_from < RECORD_MAX); /* else it would be a record, and room for none */
    memmove(b->in, b->in + b->in_from, b->in_used - b->in_from);
    b->in_used -= b->in_from;
    b->in_from = 0;
    struct iovec piece = {.iov_base = b->in + b->in_used, .iov_len = b->in_bytes - b->in_used};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1};
    const ssize_t got = tb_sys_recvmsg(s->fd, &m, 0);
    if (got > 0) {
        b->in_used += (uint32_t)got;
        return TB_OK;
    }
    if (got < 0 && errno == EINTR) return TB_OK;
    s->wants_read = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (s->wants_read) return TB_AGAIN;
    if (got < 0) s->io_errno = errno;
    return s->ended = tb_tls_session_cut(s);
}

static void take_left(struct tb_tls_bulk *b, struct out *out)
{
    TB_ASSERT(b->left_from <= b->left_to && b->left_to <= b->in_from);
    const size_t left = b->left_to - b->left_from;
    const size_t count = out->room < left ? out->room : left;
    memcpy(out->at, b->in + b->left_from, count);
    b->left_from += (uint32_t)count;
    took(out, count);
}

/* One step of reading: what is left of a record, the next record, or more of the socket. */
static enum tb_status read_some(struct tb_tls_session *s, struct out *out)
{
    struct tb_tls_bulk *b = s->bulk;
    size_t bytes = 0;
    if (b->left_from < b->left_to) {
        take_left(b, out);
        return TB_OK;
    }
    const enum tb_status status = next_record(s, &bytes);
    if (status != TB_OK) return status;
    if (bytes == 0 || bytes > b->in_used - b->in_from) return fill(s);
    return open_record(s, bytes, out);
}

enum tb_status tb_tls_bulk_read(struct tb_tls_session *s, void *out, size_t cap, size_t *count_out)
{
    TB_ASSERT(s->bulk->begun);
    struct out left = {out, cap};
    enum tb_status status = s->ended;
    for (unsigned step = 0; step < TB_TLS_READ_STEPS && left.room > 0 && status == TB_OK; step++)
        status = read_some(s, &left);
    *count_out = cap - left.room;
    if (*count_out > 0) return TB_OK;
    return status != TB_OK ? status : TB_AGAIN;
}

bool tb_tls_bulk_pending(const struct tb_tls_bulk *b)
{
    TB_ASSERT(b->in_from <= b->in_used && b->in_used <= b->in_bytes);
    const uint32_t here = b->in_used - b->in_from;
    if (b->left_from < b->left_to) return true;
    if (here < TB_TLS_HEADER_BYTES) return false;
    const size_t bytes = tb_tls_record_bytes(b->in + b->in_from);
    return bytes <= here; /* 0: what stands there has to be refused */
}
