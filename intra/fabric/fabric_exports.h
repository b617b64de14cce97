/* fabric_exports.h - the owner's side of the fabric: memory that readers of other processes may
 * READ, and the tokens by which they may. Threads: as fabric.h says. */
#ifndef TB_INTRA_FABRIC_EXPORTS_H
#define TB_INTRA_FABRIC_EXPORTS_H

#include "intra/fabric/fabric.h"

struct tb_gpu_origin;

/* A buffer that READs name by its index in the export. */
struct tb_export_buffer {
    void *bytes;
    uint64_t count;
    /* >= 0: shm readers get this descriptor, read-only, and map [memfd_offset, + count);
     * -1: process_vm_readv */
    int memfd;
    uint64_t memfd_offset;
    const struct tb_export_device *device; /* NULL: host memory; must stay like the memory */
};

/* Memory of a device whose copy in host memory is `bytes`: NICs that can read the device itself, by
 * its dma-buf; all other readers, and NICs that cannot, read the copy. */
struct tb_export_device {
    int dmabuf;
    uint64_t offset;
    const char *pci; /* as sysfs names it, "0000:18:00.0"; NULL: not known. Stays like the memory */
};

struct tb_export_options {
    uint64_t export_id;                     /* the owner's choice, unique in this fabric */
    const struct tb_export_buffer *buffers; /* copied; the memory must stay until the export is closed */
    uint32_t buffer_count;
    /* encoded chunks beside it (base/layout/shelf.h), as a door tells its readers; NULL: none */
    const struct tb_shelf_at *shelf;
    /* Copied. The shard's bytes stand on a GPU, and the buffers have a copy; NULL: they do not */
    const struct tb_gpu_origin *origin;
    uint32_t origin_shard;
    /* filled by hops of this fabric that name it in `feeds`; else it is the
     * beginning of its chains */
    bool chained;
};

struct tb_shelf_at {
    uint32_t buffer;
    uint64_t offset; /* a multiple of 8 */
};

/* TB_CONFLICT: the id is in use. */
TB_MUST_USE enum tb_status tb_export_open(struct tb_fabric *fabric, const struct tb_export_options *options);
/* One use: the reader that shows this token (and, by TLS, this print) may READ the export. Unused
 * tokens lapse after 30 s. TB_NOT_FOUND: no such export. */
TB_MUST_USE enum tb_status tb_export_grant(struct tb_fabric *fabric, uint64_t export_id,
                                           const struct tb_id *token, const struct tb_fingerprint *reader);
/* Likewise, of the share of that owner: it has a quarter of the unused tokens, and of the door's
 * readers, at most. */
TB_MUST_USE enum tb_status tb_export_grant_of(struct tb_fabric *fabric, uint64_t export_id,
                                              const struct tb_id *token, const struct tb_fingerprint *reader,
                                              uint64_t owner);
/* Refuses new readers at once, lets those in flight go on for at most drain_ms, ends their hops
 * (they see TB_PEER_REVOKED), waits until no thread of ours touches the buffers, then returns: the
 * memory is the caller's. Blocks. */
void tb_export_close(struct tb_fabric *fabric, uint64_t export_id, uint32_t drain_ms);
uint32_t tb_export_readers(struct tb_fabric *fabric, uint64_t export_id);

/* Exports, tokens of all of them that nobody used yet, and the door's readers: now, at once so
 * far, at most; those for which there was no room; of them, those whose owner had its share. */
struct tb_fabric_usage {
    uint32_t exports, exports_most;
    uint32_t tokens, tokens_most, tokens_max;
    uint64_t tokens_refused, tokens_spent;
    uint32_t readers, readers_most, readers_max;
    uint64_t readers_refused, readers_spent;
    uint64_t readers_denied; /* whose token was never granted, or is another reader's */
    /* Memory that hops lend to their sources, and that the door's readers lend to us. More goes by
     * a socket. */
    uint64_t lent_bytes, lent_most, borrowed_bytes, borrowed_most, lent_max;
};

/* Tokens that have lapsed go first. */
void tb_fabric_usage(struct tb_fabric *fabric, struct tb_fabric_usage *usage_out);
/* Calls `each` with the reader of each of those tokens, under the fabric's lock. */
void tb_fabric_tokens(struct tb_fabric *fabric, void (*each)(void *user, const struct tb_fingerprint *reader),
                      void *user);

/* Those owners (tb_export_grant_of) may read no more: their unused tokens are dropped, and their
 * hops through the door end (they see TB_PEER_REVOKED). Not on the fabric's thread; waits for it
 * once. */
void tb_export_owners_end(struct tb_fabric *fabric, const uint64_t *owners, uint32_t count);
/* The owner of a hop whose request broke the protocol, by turns, each request once. False: that was
 * the last. More than TB_FABRIC_GARBLED_MAX between two calls are forgotten. */
#define TB_FABRIC_GARBLED_MAX 64u
bool tb_export_garbled_by(struct tb_fabric *fabric, uint64_t *owner_out);

#endif
