/* exports.h - what a fabric's door may serve: exports, the tokens that open them, and how many
 * readers are in. Inside intra/ only.
 *
 * Threads: none of its own; the fabric's lock is held around every call. */
#ifndef TB_INTRA_EXPORTS_H
#define TB_INTRA_EXPORTS_H

#include <sys/queue.h>

#include "intra/cuda_part_trays.h"
#include "intra/fabric/fabric.h"
#include "intra/fabric/fabric_exports.h"

struct tb_verbs_export;

#define TB_TOKEN_LIFE TB_SECONDS(30)
#define TB_TOKENS_MAX 8192u /* P7: unused ones of all exports; a source has few readers at once */

struct tb_grant {
    LIST_ENTRY(tb_grant) link;
    struct tb_id token;
    struct tb_fingerprint reader;
    uint64_t owner; /* whose share it uses; 0: nobody's */
    tb_time_ns until;
};

struct tb_exports;

struct tb_export {
    LIST_ENTRY(tb_export) link;
    struct tb_exports *exports; /* that it is one of */
    uint64_t id;
    struct tb_export_buffer *buffers;
    uint32_t buffer_count;
    bool has_shelf;
    struct tb_shelf_at shelf;
    struct tb_gpu_origin origin; /* memory NULL: none */
    uint32_t origin_shard;
    uint32_t depth; /* of its readers in the chain; 0: not known yet */
    bool closing;   /* no new reader */
    uint32_t readers;
    LIST_HEAD(, tb_grant) grants;
    /* the loop thread's while there are readers; NULL: no reader came by RDMA */
    struct tb_verbs_export *verbs;
};

#define TB_TOKENS_GONE 1024u

struct tb_exports {
    LIST_HEAD(, tb_export) all;
    /* The first bytes of tokens that were used, lapsed or taken back of late. */
    uint64_t gone[TB_TOKENS_GONE];
    uint32_t gone_at;
    struct tb_fabric_usage usage;
};

/* The reader that shows a token. */
struct tb_bearer {
    const struct tb_id *token;
    const struct tb_fingerprint *print; /* NULL: not known on this transport, and not asked for */
};

enum tb_status tb_exports_add(struct tb_exports *exports, const struct tb_export_options *options);
struct tb_export *tb_exports_find(struct tb_exports *exports, uint64_t id);
void tb_exports_remove(struct tb_export *export);
/* Drops the tokens that have lapsed, of all exports. */
void tb_exports_lapse(struct tb_exports *exports, tb_time_ns now);
/* Drops the unused tokens of that owner, of all exports. */
void tb_exports_forget(struct tb_exports *exports, uint64_t owner);
/* TB_NOT_FOUND, also while closing; TB_SITE_NOMEM, also when TB_TOKENS_MAX are unused, or a
 * quarter of them are of the token's owner. */
enum tb_status tb_exports_grant(struct tb_exports *exports, uint64_t id, const struct tb_grant *grant,
                                tb_time_ns now);
/* Uses the token up and counts a reader. TB_PEER_TOKEN: unknown, used, lapsed, or no such export (a
 * stranger learns no more); TB_PEER_IDENTITY: the token is another's, and stays good for that one;
 * TB_PEER_REVOKED: closing. */
enum tb_status tb_exports_enter(struct tb_exports *exports, uint64_t id, const struct tb_bearer *bearer,
                                tb_time_ns now, struct tb_export **export_out, uint64_t *owner_out);

/* The status of tb_exports_enter is a denial: a wrong identity, or a token that was not granted. A
 * reader that comes late, or whose export has gone, is no thief: its token is among the last that
 * went. */
bool tb_exports_is_denial(const struct tb_exports *exports, const struct tb_id *token, enum tb_status status);

/* The memory of [offset, offset + bytes) of a buffer, or NULL when that is not all inside it. */
const uint8_t *tb_export_at(const struct tb_export *export, uint32_t buffer, uint64_t offset, uint64_t bytes);

#endif
