/* tls_bulk.h - the bytes of a connection on which much moves, for tls_session.c alone. A shell.
 *
 * After OpenSSL's handshake records are sealed and opened by tls_records.h, in batches: a call
 * of the kernel carries up to TB_TLS_BATCH of them, and each byte goes from where the caller
 * has it into a record, and from a record to where the caller wants it. On the wire it is TLS
 * 1.3 as ever; the peer may be OpenSSL alone. Where the kernel encrypts what is sent, only
 * receiving is done here.
 *
 * Threads: one at a time. */
#ifndef TB_BASE_NET_TLS_BULK_H
#define TB_BASE_NET_TLS_BULK_H

#include "base/net/tls_records.h"
#include "tombolo/status.h"

#define TB_TLS_BATCH       8u
#define TB_TLS_BATCH_BYTES (TB_TLS_BATCH * (TB_TLS_PLAIN_BYTES + TB_TLS_ADDED_BYTES))
/* Records without a byte of data are a debt of so many bytes each, which data pays; a debt of more
 * than so many is a flood (P7). */
#define TB_TLS_VAIN_BYTES 1024u
#define TB_TLS_VAIN_MAX   32u
/* At most so much does one call of tb_tls_bulk_read, in records, pieces of records, and calls of
 * the kernel. A peer with small records then holds the loop's thread about as long as a peer
 * with 4 MiB does (P7). */
#define TB_TLS_READ_STEPS 256u

struct tb_tls_session;

struct tb_tls_bulk {
    bool begun;       /* the handshake is over, and what follows goes through here */
    bool sends;       /* the kernel does not */
    bool owes_update; /* the peer asked for our next key */
    uint8_t ours[TB_TLS_SECRET_BYTES], theirs[TB_TLS_SECRET_BYTES]; /* until it begins */
    bool have_ours, have_theirs;
    struct tb_tls_key seal, open;
    uint8_t *in; /* in_bytes; what came and is not opened stands from in_from to in_used */
    uint32_t in_bytes, in_from, in_used;
    uint32_t left_from, left_to; /* of `in`: opened, and not asked for yet; always in front of in_from */
    uint32_t owed;               /* for records without data */
    uint8_t *out; /* out_batch records and a KeyUpdate; what is sealed stands from out_from to out_used */
    uint32_t out_batch, out_from, out_used;
    uint32_t pending; /* bytes of the caller's in it: told as written once all of it is sent */
};

/* NULL: no memory. `of_many`: a hop's; strangers at a door may begin many, and leave links' rows of
 * secret memory alone. */
struct tb_tls_bulk *tb_tls_bulk_new(bool of_many);
void tb_tls_bulk_free(struct tb_tls_bulk *b); /* also NULL */
/* A line of OpenSSL's key log, which is where it tells the secrets of a connection:
 * those of data are kept. */
void tb_tls_bulk_secret(struct tb_tls_session *s, const char *line);
/* The handshake is done. False: it cannot be done here, and OpenSSL goes on. */
bool tb_tls_bulk_begin(struct tb_tls_session *s);

/* As those of tb_tls_session. A read that stopped at TB_TLS_READ_STEPS gives what it has,
 * or TB_AGAIN: what it left is told by tb_tls_bulk_pending, or by the socket, which has
 * the rest of a record. */
TB_MUST_USE enum tb_status tb_tls_bulk_read(struct tb_tls_session *s, void *out, size_t cap,
                                            size_t *count_out);
TB_MUST_USE enum tb_status tb_tls_bulk_write(struct tb_tls_session *s, const void *bytes, size_t count,
                                             size_t *count_out);
TB_MUST_USE enum tb_status tb_tls_bulk_end(struct tb_tls_session *s);
bool tb_tls_bulk_pending(const struct tb_tls_bulk *b);

#endif
