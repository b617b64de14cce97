/* All that a peer can send to our own opening of records. Its keys are known here, so its records
 * are believed. Records that it sealed in good order are delivered, whole and nothing else. Behind
 * the first record that may not come nothing is delivered. The peer can open all that we send.
 *
 * Covers: base/net/tls_bulk.c base/net/tls_records.c */
#include <errno.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/net/tls_bulk.h"
#include "base/net/tls_context.h"
#include "base/net/tls_session.h"
#include "tests/fuzz/fuzz.h"

#define INNER_MAX  17000u /* over what may come */
#define QUEUE_MAX  100000u
#define DATA_MAX   (1u << 20)
#define KEY_UPDATE 24u
#define CANCELED   90u

struct peer {
    struct tb_tls_session s; /* ours */
    int far;
    struct tb_tls_key seal, open; /* the peer's */
    uint8_t *queue;               /* not sent yet */
    uint8_t *data;                /* that has to be delivered */
    size_t queued, data_count, delivered;
    uint32_t owed;
    bool closed;    /* something came behind which nothing counts */
    bool told;      /* we sent an alert */
    uint64_t wrote; /* bytes of ours that the peer opened */
};

static struct tb_tls tls = {.key_records = 4}; /* our key changes often */

static void key_init(struct tb_tls_key *k, uint8_t fill, bool seals)
{
    static const uint8_t suite[] = {0x13, 0x01};
    static SSL *ssl;
    uint8_t secret[TB_TLS_SECRET_BYTES];
    if (ssl == NULL) ssl = SSL_new(SSL_CTX_new(TLS_method()));
    memset(secret, fill, sizeof secret);
    FUZZ_REQUIRE(ssl != NULL && tb_tls_key_init(k, SSL_CIPHER_find(ssl, suite), secret, seals));
}

static void peer_init(struct peer *p)
{
    int fds[2];
    FUZZ_REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    *p = (struct peer){.far = fds[1], .s = {.fd = fds[0], .tls = &tls, .shaken = true}};
    struct tb_tls_bulk *b = p->s.bulk = tb_tls_bulk_new(false);
    FUZZ_REQUIRE(b != NULL);
    b->begun = b->sends = true;
    b->in_bytes = TB_TLS_BATCH_BYTES;
    b->out_batch = TB_TLS_BATCH;
    b->in = malloc(TB_TLS_BATCH_BYTES);
    b->out = malloc(TB_TLS_BATCH_BYTES + 5 + TB_TLS_ADDED_BYTES);
    p->queue = malloc(QUEUE_MAX);
    p->data = malloc(DATA_MAX);
    FUZZ_REQUIRE(b->in != NULL && b->out != NULL && p->queue != NULL && p->data != NULL);
    key_init(&b->seal, 1, true);
    key_init(&b->open, 2, false);
    key_init(&p->seal, 2, true);
    key_init(&p->open, 1, false);
}

static void peer_fini(struct peer *p)
{
    tb_tls_bulk_free(p->s.bulk);
    tb_tls_key_fini(&p->seal);
    tb_tls_key_fini(&p->open);
    close(p->s.fd);
    close(p->far);
    free(p->queue);
    free(p->data);
}

/* ---- what we say ---- */

static uint8_t ours(uint64_t at)
{
    return (uint8_t)(at * 31 >> 3);
}

static void heard_of_us(struct peer *p, const struct tb_tls_plain *plain)
{
    FUZZ_REQUIRE(!p->told);
    if (plain->type == TB_TLS_HANDSHAKE) {
        FUZZ_REQUIRE(plain->count == 5 && plain->bytes[0] == KEY_UPDATE && tb_tls_key_next(&p->open));
    } else if (plain->type == TB_TLS_ALERT) {
        FUZZ_REQUIRE(plain->count == 2);
        p->told = true;
    } else {
        FUZZ_REQUIRE(plain->type == TB_TLS_DATA && plain->count > 0);
        for (size_t i = 0; i < plain->count; i++)
            FUZZ_REQUIRE(plain->bytes[i] == ours(p->wrote++));
    }
}

/* True: something came. The bytes of a record that is not whole yet stay. */
static bool peer_reads(struct peer *p)
{
    uint8_t header[TB_TLS_HEADER_BYTES], record[TB_TLS_HEADER_BYTES + TB_TLS_CIPHER_BYTES];
    struct tb_tls_plain plain;
    if (recv(p->far, header, sizeof header, MSG_PEEK) != (ssize_t)sizeof header) return false;
    const size_t bytes = tb_tls_record_bytes(header);
    FUZZ_REQUIRE(bytes > 0 && bytes <= sizeof record);
    if (recv(p->far, record, bytes, MSG_PEEK) != (ssize_t)bytes) return false;
    FUZZ_REQUIRE(recv(p->far, record, bytes, 0) == (ssize_t)bytes);
    FUZZ_REQUIRE(tb_tls_open(&p->open, record, record + TB_TLS_HEADER_BYTES, &plain));
    heard_of_us(p, &plain);
    return true;
}

/* A record that is begun waits for its rest, and its rest for room: so the whole of it is taken out
 * before the next write. */
static void we_write(struct peer *p, size_t count)
{
    static uint8_t bytes[65536];
    const uint64_t from = p->wrote;
    size_t used = 0;
    if (p->told) return;
    for (size_t i = 0; i < count; i++)
        bytes[i] = ours(from + i);
    for (enum tb_status status = TB_OK; status == TB_OK || status == TB_AGAIN;) {
        size_t put = 0;
        status = tb_tls_session_write(&p->s, bytes + used, count - used, &put);
        used += put;
        while (peer_reads(p)) {
        }
        FUZZ_REQUIRE(status == TB_OK || status == TB_AGAIN || status == p->s.ended);
        if (used == count) break;
    }
    FUZZ_REQUIRE(p->s.dead || p->wrote == from + count);
}

/* ---- what it says ---- */

/* False: there is no more for now, or for ever. */
static bool we_read(struct peer *p, size_t cap)
{
    static uint8_t out[65536];
    size_t count = 0;
    const enum tb_status status = tb_tls_session_read(&p->s, out, cap, &count);
    FUZZ_REQUIRE(count <= cap && p->delivered + count <= p->data_count && (status == TB_OK || count == 0));
    FUZZ_REQUIRE(count == 0 || memcmp(out, p->data + p->delivered, count) == 0);
    FUZZ_REQUIRE(status == TB_OK || status == TB_AGAIN || p->closed);
    p->delivered += count;
    return count > 0 || (status == TB_AGAIN && !p->s.wants_read);
}

static void all_is_read(struct peer *p)
{
    for (size_t at = 0; at < p->queued && p->s.ended == TB_OK;) {
        const ssize_t put = send(p->far, p->queue + at, p->queued - at, MSG_NOSIGNAL);
        FUZZ_REQUIRE(put > 0 || errno == EAGAIN);
        at += put > 0 ? (size_t)put : 0;
        while (we_read(p, 65536)) {
        }
    }
    p->queued = 0;
    FUZZ_REQUIRE(p->delivered == p->data_count); /* also in front of what was refused */
}

static void queue(struct peer *p, const uint8_t *bytes, size_t count)
{
    memcpy(p->queue + p->queued, bytes, count);
    p->queued += count;
}

static void data(struct peer *p, const uint8_t *bytes, size_t count)
{
    if (p->data_count + count > DATA_MAX) return;
    memcpy(p->data + p->data_count, bytes, count);
    p->data_count += count;
}

static bool key_update(const uint8_t *message, size_t count)
{
    static const uint8_t begins[] = {KEY_UPDATE, 0, 0, 1};
    return count == 5 && memcmp(message, begins, sizeof begins) == 0 && message[4] <= 1;
}

/* Checks the inside of a record that comes: content, its type, padding. True:
 * another key follows. */
static bool judge(struct peer *p, const uint8_t *inner, size_t count)
{
    if (p->closed) return false;
    p->closed = count + TB_TLS_TAG_BYTES > TB_TLS_CIPHER_BYTES;
    while (count > 0 && inner[count - 1] == 0)
        count--;
    const uint8_t type = count > 0 ? inner[count - 1] : 0;
    count -= count > 0;
    if (type != TB_TLS_DATA || count == 0)
        p->owed += TB_TLS_VAIN_BYTES;
    else
        p->owed -= count < p->owed ? (uint32_t)count : p->owed;
    p->closed |= p->owed > TB_TLS_VAIN_MAX * TB_TLS_VAIN_BYTES || count > TB_TLS_PLAIN_BYTES;
    if (p->closed) return false;
    if (type == TB_TLS_DATA)
        data(p, inner, count);
    else if (type == TB_TLS_ALERT)
        p->closed = count != 2 || inner[1] != CANCELED;
    else
        p->closed = type != TB_TLS_HANDSHAKE || !key_update(inner, count);
    return type == TB_TLS_HANDSHAKE && !p->closed;
}

static void say(struct peer *p, const uint8_t *inner, size_t count)
{
    uint8_t record[INNER_MAX + TB_TLS_ADDED_BYTES];
    const struct tb_tls_plain plain = {(enum tb_tls_type)inner[count - 1], inner, count - 1};
    if (p->data_count + count > DATA_MAX) return;
    const bool next = judge(p, inner, count);
    FUZZ_REQUIRE(tb_tls_seal(&p->seal, &plain, record));
    queue(p, record, count - 1 + TB_TLS_ADDED_BYTES);
    if (next) FUZZ_REQUIRE(tb_tls_key_next(&p->seal));
}

static void say_data(struct peer *p, size_t count, size_t padding)
{
    uint8_t inner[INNER_MAX];
    count = count % (TB_TLS_PLAIN_BYTES + 300);
    memset(inner, 0, sizeof inner);
    for (size_t i = 0; i < count; i++)
        inner[i] = (uint8_t)(i * 7 + p->data_count);
    inner[count] = TB_TLS_DATA;
    say(p, inner, count + 1 + padding);
}

static void say_anything(struct peer *p, struct tb_reader *r)
{
    uint8_t inner[600] = {0};
    const uint8_t type = tb_read_u8(r), padding = tb_read_u8(r), count = tb_read_u8(r);
    const uint8_t *bytes = tb_read_span(r, count);
    if (r->bad) return;
    memcpy(inner, bytes, count);
    inner[count] = type;
    say(p, inner, (size_t)count + 1 + padding);
}

/* A record that was changed on its way. */
static void say_spoiled(struct peer *p, uint16_t at, uint8_t with)
{
    static const uint8_t inner[] = {'n', 'e', 'v', 'e', 'r', TB_TLS_DATA};
    const struct tb_tls_plain plain = {TB_TLS_DATA, inner, sizeof inner - 1};
    uint8_t record[sizeof inner - 1 + TB_TLS_ADDED_BYTES];
    FUZZ_REQUIRE(tb_tls_seal(&p->seal, &plain, record));
    record[at % sizeof record] ^= with != 0 ? with : 1;
    p->closed = true;
    queue(p, record, sizeof record);
}

static void say_raw(struct peer *p, struct tb_reader *r)
{
    const uint8_t count = tb_read_u8(r);
    const uint8_t *bytes = tb_read_span(r, count);
    if (r->bad || count == 0) return;
    p->closed = true;
    queue(p, bytes, count);
}

static void step(struct peer *p, struct tb_reader *r)
{
    const uint8_t op = tb_read_u8(r);
    if (p->queued > QUEUE_MAX / 2) all_is_read(p); /* what is said in a step fits the rest */
    switch (op % 8) {
    case 0:
        say_data(p, tb_read_u16(r), op / 8);
        break;
    case 1:
        say_anything(p, r);
        break;
    case 2:
        say(p, (const uint8_t[]){KEY_UPDATE, 0, 0, 1, op / 8 % 2, TB_TLS_HANDSHAKE}, 6);
        break;
    case 3:
        say_spoiled(p, tb_read_u16(r), op / 8);
        break;
    case 4:
        say_raw(p, r);
        break;
    case 5:
        we_write(p, tb_read_u16(r));
        break;
    case 6:
        for (unsigned i = 0; i < op / 8 * 10u; i++)
            say_data(p, 1, 0);
        break;
    default:
        if (op / 8 == 0) all_is_read(p);
        (void)we_read(p, op / 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct peer p;
    struct tb_reader r;
    peer_init(&p);
    tb_reader_init(&r, bytes, count < 4096 ? count : 4096);
    while (r.left > 0 && !r.bad)
        step(&p, &r);
    all_is_read(&p);
    while (peer_reads(&p)) {
    }
    FUZZ_REQUIRE(tb_tls_session_end(&p.s) == TB_OK);
    while (peer_reads(&p)) {
    }
    FUZZ_REQUIRE(p.s.dead || p.told);
    peer_fini(&p);
    return 0;
}
