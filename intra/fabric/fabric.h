/* fabric.h - how bytes move inside a site: doors serve, readers pull. A shell
 * (source_descriptor.h below it is pure).
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

/* CUDA is what a hop by SHM comes to where its source's bytes stand on a GPU that this process
 * reaches: it is not asked for. */
enum tb_transport {
    TB_TRANSPORT_NONE,
    TB_TRANSPORT_SHM,
    TB_TRANSPORT_TCP,
    TB_TRANSPORT_VERBS,
    TB_TRANSPORT_CUDA
};
const char *tb_transport_name(enum tb_transport transport);

/* Why a hop goes by the transport that it goes by. Numbers travel in PROGRESS, in four bits:
 * UNKNOWN is what a gateway makes of one that it does not know (P9). */
enum tb_transport_why {
    TB_WHY_UNKNOWN, /* it has not begun, or another release's */
    TB_WHY_ASKED,   /* its owner named the transport */
    /* shm: all of the source's memory is mapped. The release before says it of every shm hop */
    TB_WHY_SAME_HOST,
    TB_WHY_RDMA,          /* verbs: both ends have it, and all of the source's memory is registered */
    TB_WHY_NO_RDMA_HERE,  /* tcp: this end has none, or its config says so */
    TB_WHY_NO_RDMA_THERE, /* tcp: the source has none */
    TB_WHY_RDMA_FAILED,   /* tcp: no path between the two ends' NICs came up, or all of them rest */
    TB_WHY_GPU,           /* cuda: same host, from the source's GPU memory */
    TB_WHY_GPU_REFUSED,   /* shm: same host; this process could not open a tray of the source's GPU */
    TB_WHY_GPU_NO_TRAY,   /* shm: same host; the source gave none */
    /* shm: some or all of the source's memory is read by process_vm_readv, none by the socket */
    TB_WHY_SAME_HOST_READV,
    /* shm: some or all of it is reached neither way, and comes over the door's socket */
    TB_WHY_SAME_HOST_SOCKET,
    TB_WHY_UNREGISTERED_HERE,  /* tcp: our NIC could not register what the bytes land in */
    TB_WHY_UNREGISTERED_THERE, /* tcp: the source's NIC could register none of its memory */
    TB_WHY_RDMA_PART,          /* verbs, and tcp for what the source's NIC could not register */
    TB_WHY_COUNT
};
_Static_assert(TB_WHY_COUNT <= 16, "PROGRESS has four bits for it");
/* "both ends have rdma" and so on. Static storage. */
const char *tb_transport_why_text(enum tb_transport_why why);
/* Both in one byte, as PROGRESS has them. */
uint8_t tb_transport_pack(enum tb_transport transport, enum tb_transport_why why);
void tb_transport_unpack(uint8_t packed, enum tb_transport *transport_out, enum tb_transport_why *why_out);

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

/* ---- the owner's side ---- */

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
struct tb_gpu;
struct tb_gpu_origin;
struct tb_export_device {
    int dmabuf;
    uint64_t offset;
    const char *pci; /* as sysfs names it, "0000:18:00.0"; NULL: not known. Stays like the memory */
};

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
/* Refuses new readers at once, lets those in flight go on for at most drain_ms, ends their hops
 * (they see TB_PEER_REVOKED), waits until no thread of ours touches the buffers, then returns: the
 * memory is the caller's. Blocks. */
void tb_export_close(struct tb_fabric *fabric, uint64_t export_id, uint32_t drain_ms);
uint32_t tb_export_readers(struct tb_fabric *fabric, uint64_t export_id);

/* Exports, tokens of all of them that nobody used yet, and the door's readers: now, at once so
 * far, at most; and those for which there was no room. */
struct tb_fabric_usage {
    uint32_t exports, exports_most;
    uint32_t tokens, tokens_most, tokens_max;
    uint64_t tokens_refused;
    uint32_t readers, readers_most, readers_max;
    uint64_t readers_refused;
};
/* Tokens that have lapsed go first. */
void tb_fabric_usage(struct tb_fabric *fabric, struct tb_fabric_usage *usage_out);
/* Calls `each` with the reader of each of those tokens, under the fabric's lock. */
void tb_fabric_tokens(struct tb_fabric *fabric, void (*each)(void *user, const struct tb_fingerprint *reader),
                      void *user);

/* ---- the reader's side ---- */

/* One hop: this process pulls what it lacks of these places from one source, until
 * whole, lost, or closed. */
struct tb_codec_coded;
struct tb_hop;
struct tb_shelf;
struct tb_hop_base;

struct tb_hop_place {
    uint32_t shard;
    struct tb_place *place; /* stays valid until tb_hop_close has returned */
};

enum tb_hop_event_kind { TB_HOP_OPENED, TB_HOP_LOST, TB_HOP_CHUNK_BAD, TB_HOP_ENCODED_BAD, TB_HOP_WHOLE };
struct tb_hop_event {
    enum tb_hop_event_kind kind;
    enum tb_status why;          /* LOST: the reason; the hop does nothing more: close it */
    enum tb_transport transport; /* OPENED: and again when it goes on by another */
    enum tb_transport_why why_transport;
    /* CHUNK_BAD: digest did not match although the hop was still open after the READ; read once
     * more before saying so: `twice` */
    uint32_t shard,
        /* of OBJECT_BAD, too: an encoded chunk of the source's shelf was wrong, and
         * the chunk comes whole */
        chunk;
    bool twice;
};
typedef void (*tb_hop_fn)(void *user, struct tb_hop *hop, const struct tb_hop_event *event);

/* A delta as the source has it, unproven unless it was decoded here; coded NULL: it has none of
 * that chunk. Borrowed. */
struct tb_hop_encoded {
    uint32_t shard, chunk, chunk_count; /* of the shard */
    struct tb_id base;
    const struct tb_codec_coded *coded;
};
typedef void (*tb_hop_encoded_fn)(void *user, const struct tb_hop_encoded *encoded);

struct tb_hop_options {
    uint64_t export_id;
    struct tb_id token;
    struct tb_fabric_endpoint from;
    /* NONE: shm if the host names are equal and it can be had, else verbs, else tcp */
    enum tb_transport transport;
    const struct tb_source_shard *source; /* copied */
    uint32_t source_count;
    const struct tb_hop_place *places; /* copied; those whose shard the source has are read */
    uint32_t place_count;
    /* Deltas on this base are decoded. It is copied, but not its places: they stay, whole, until
     * tb_hop_close has returned. NULL: chunks come whole. */
    const struct tb_hop_base *base;
    struct tb_shelf *shelf; /* where the source's encoded chunks are passed on; NULL: nowhere */
    uint64_t feeds; /* the export that these places are served by: its readers stand one deeper; 0: none */
    /* gets all of them, on any thread of the fabric; WHOLE comes when there are no more. NULL:
     * nobody */
    tb_hop_encoded_fn encoded_chunks;
    struct tb_gpu *gpu;  /* of this process: what its source has on a GPU is read from there. NULL: none */
    uint32_t order_seed; /* where to begin among what the source holds (0: first chunk first) */
    /* source answers nothing for so long: LOST with TB_STREAM_IDLE; 0: three beats of
     * 500 ms, and 5 s to open */
    uint32_t idle_ms;
    /* chunks that the source holds come whole when its shelf was silent for so long [500]; 0:
     * that */
    uint32_t shelf_ms;
    tb_hop_fn fn;
    void *user;
};
/* Several hops may fill the same places at once: claims keep them apart. TB_SITE_NOMEM,
 * TB_BAD_ARGUMENT at once; all else by the callback. */
TB_MUST_USE enum tb_status tb_hop_open(struct tb_fabric *fabric, const struct tb_hop_options *options,
                                       struct tb_hop **hop_out);
/* Ends it; after return no callback comes and nothing is written any more. Not from
 * inside the callback. */
void tb_hop_close(struct tb_hop *hop);

struct tb_hop_stats {
    uint64_t bytes_read;    /* that landed */
    uint64_t bytes_wasted;  /* digest failed, or another hop was sooner */
    uint64_t bytes_encoded; /* of bytes_read: those that were decoded, or only passed on */
    uint32_t chunks_landed;
    uint32_t chunks_encoded; /* of those: that came as encoded chunks */
    uint32_t in_flight;
    uint32_t depth; /* in the chain: 1 reads from its beginning; 0: not known */
    enum tb_transport transport;
    enum tb_transport_why why;
    tb_time_ns open_at, last_at;
};
/* Closes it, and says what it came to: a chunk is held a moment before it is counted, so only
 * then is the count whole. */
void tb_hop_close_counted(struct tb_hop *hop, struct tb_hop_stats *last_out);
void tb_hop_stats(const struct tb_hop *hop, struct tb_hop_stats *stats_out);

#endif
