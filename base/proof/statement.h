/* statement.h - one sentence of a model's home, in the bytes that it signs (base/net/signed.h).
 * Pure.
 *
 * A site believes three things about a model only from its home: that a run was opened, that a
 * version has this root, and that a version was withdrawn. A publisher signs each shard that it
 * made. A relay can hold a statement back. It cannot change it.
 *
 * As bytes: "tombolo statement 1" with its NUL, u8 kind, model, uid, run, u64 run order,
 * u64 number, root, u64 milliseconds since 1970, u32 shards, digest; of a
 * SHARD u32 which. Numbers are little-endian. A
 * model is a u16 length and as many bytes. A statement has one spelling: a field that its kind does
 * not use is zero. */
#ifndef TB_BASE_PROOF_STATEMENT_H
#define TB_BASE_PROOF_STATEMENT_H

#include "base/digest.h"
#include "base/ident.h"
#include "base/proof/blake3.h"
#include "tombolo/status.h"

#define TB_STATEMENT_BYTES_MAX  224
#define TB_STATEMENT_SHARDS_MAX 4096u
#define TB_STATEMENT_ORDER_MAX  ((uint64_t)1 << 62) /* of a run: home opens one at a time */

enum tb_statement_kind {
    /* home opened this run; all before it are shut out. No uid, number, root, shards, digest */
    TB_STATEMENT_RUN = 1,
    TB_STATEMENT_VERSION,   /* this version is ready, and its bytes have this root */
    TB_STATEMENT_WITHDRAWN, /* this version must not be used any more. No root */
    TB_STATEMENT_SHARD,     /* a publisher made this shard of the version; its root, and its digest */
    TB_STATEMENT_KINDS
};

struct tb_statement {
    enum tb_statement_kind kind;
    struct tb_name model;
    struct tb_id uid, run;
    uint64_t run_order;    /* from 1 to TB_STATEMENT_ORDER_MAX */
    uint64_t number;       /* below 2^63 */
    struct tb_blake3 root; /* over the manifests and the proof digests of all chunks */
    uint64_t wall_ms;      /* when it was signed, by the clock of its home */
    /* The rest of the version's key. The withdrawal of a version that was never ready has no
     * digest. */
    uint32_t shard_count;
    struct tb_digest digest;
    uint32_t shard; /* SHARD alone: which */
};

/* Of a run, of a version, or of one of its shards: one statement of a kind has it. */
struct tb_id tb_statement_id(const struct tb_statement *what);
struct tb_id tb_statement_shard_id(const struct tb_id *uid, uint32_t shard);

/* Asserts that the statement is one that decode would take. */
void tb_statement_encode(const struct tb_statement *statement, struct tb_writer *w);
/* TB_PEER_GARBLED for anything that encode does not write, and for bytes behind it. */
TB_MUST_USE enum tb_status tb_statement_decode(const void *bytes, size_t count,
                                               struct tb_statement *statement_out);
bool tb_statement_equal(const struct tb_statement *a, const struct tb_statement *b);

#endif
