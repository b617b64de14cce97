/* fabric.h - how bytes move inside a site: doors serve, readers pull. A shell
 * (source_descriptor.h below it is pure). fabric_exports.h is the owner's side, fabric_hops.h the
 * reader's.
 *
 * The unit is a one-sided READ of (buffer, offset, bytes) from an export, as RDMA has it; `shm` and
 * `tcp` do the same with a copy and a socket. A reader polls its source's held bitmap with small
 * READs and asks for a chunk only after the READ that showed its bit.
 *
 * Order at the reader (P1): a chunk's READs have completed, then digest of the own copy, then held.
 * Order at the owner: refuse new readers, end and drain each hop, then the memory is the owner's.
 *
 * Threads: a fabric owns one thread with a libuv loop (and for shm copies a bounded pool); all
 * calls below may come from any thread; callbacks run on the fabric's thread and must only note
 * what happened and wake their owner. */
#ifndef TB_INTRA_FABRIC_H
#define TB_INTRA_FABRIC_H

#include "base/layout/place.h"
#include "base/message.h"
#include "base/time.h"
#include "intra/transport/transport_words.h"

struct tb_fabric;

/* As many as were asked for; 0: one for each of these cores, 1 to 8. Eight digest more than a NIC
 * of 400 Gbit/s brings (12 GB/s each, docs/benchmarks.md), so a default takes no more cores. */
static inline uint32_t tb_fabric_threads(uint32_t asked, uint32_t cores)
{
    if (asked != 0) return asked;
    return cores < 1 ? 1 : cores < 8 ? cores : 8;
}

struct tb_fabric_options {
    struct tb_name host;       /* shm serves only equal host names */
    const char *tcp_address;   /* numeric; port 0 chooses; NULL: no tcp door */
    bool trusted;              /* tcp in clear: the config trusts the site's network; the log says so */
    uint64_t pace_bytes_per_s; /* an emulated NIC: at most this in and this out by tcp; 0: none */
    uint32_t threads;          /* for copies and digests; 0: 1 */
    bool no_verbs;             /* RDMA is neither used nor offered; it is not encrypted */
};

/* TB_SITE_LOCKED: another process listens at tcp_address; TB_SITE_IO, with errno where that is why
 * (else 0); TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_fabric_open(const struct tb_fabric_options *options,
                                          struct tb_fabric **fabric_out);
/* Ends and frees every hop that its owner has not closed (it is not to be used after), joins the
 * thread. Exports must have been closed or are cut off here. */
void tb_fabric_close(struct tb_fabric *fabric);

/* NULL when it has RDMA; else a sentence that says why not. Static storage. A fabric whose NIC
 * is emulated has none. */
const char *tb_fabric_no_verbs(const struct tb_fabric *fabric);
/* The rate of this host's NICs, each way, as sysfs said when the fabric opened: of those with RDMA
 * together, or of the one that has the door's address. 0: not known, as of an emulated NIC, of
 * loopback, and of interfaces whose rate is made up (nic_rate.h). */
uint64_t tb_fabric_nic_bytes_per_s(const struct tb_fabric *fabric);

/* Where a door listens; travels in HELLO and in PLAN. */
struct tb_fabric_endpoint {
    struct tb_name host;
    char shm_door[108]; /* abstract unix name without the leading NUL; "" for none */
    char tcp[64];       /* "192.0.2.1:4711"; "" for none */
    bool tls;           /* tcp is encrypted, the peer has this print: */
    struct tb_fingerprint fingerprint;
};
void tb_fabric_endpoint(const struct tb_fabric *fabric, struct tb_fabric_endpoint *endpoint_out);

/* ---- memory ---- */

/* Hops fill it and exports serve it over and over: a NIC registers what it needs of it once, and
 * keeps that until it goes. All other memory is registered for each hop and each export anew. Any
 * thread but the fabric's, as of goes. */
void tb_fabric_memory_stays(struct tb_fabric *fabric, const void *bytes, uint64_t count);
/* Before it is unmapped, with no hop or export of it left: takes as long as giving back its pages.
 * The fabric's close does it for the rest. NULL, and memory of which nothing was said, are fine. */
void tb_fabric_memory_goes(struct tb_fabric *fabric, const void *bytes);

/* ---- what a source has ---- */

/* Where one shard's packed bytes and held bitmap stand in an export's buffers. Pure data;
 * encode/decode in source_descriptor.h. */
struct tb_source_shard {
    uint32_t shard;
    /* its bitmap: TB_BITMAP_WORDS(chunk_count) words at held_offset; UINT32_MAX: all is held */
    uint32_t held_buffer;
    uint64_t held_offset;
    bool scattered;
    /* !scattered: the packed bytes start at packed_offset of it; scattered: the blobs do */
    uint32_t packed_buffer;
    uint64_t packed_offset;
    uint32_t tensor_count; /* scattered: for each tensor in packed order where it stands */
    const struct tb_source_at *tensors;
    /* encoded chunks (0 or chunk_count): the chunk's encoded form instead of its packed bytes */
    uint32_t encoded_count;
    const struct tb_source_encoded *encoded_chunks;
};
struct tb_source_at {
    uint32_t buffer;
    uint64_t offset;
};
struct tb_source_encoded {
    uint8_t codec; /* enum tb_codec_id; raw means: read the packed bytes */
    uint32_t bytes;
    uint32_t buffer;
    uint64_t offset;
};

#endif
