/* fabric_hops.h - the reader's side of the fabric. One hop: this process pulls what it lacks of
 * these places from one source, until whole, lost, or closed. Threads: as fabric.h says. */
#ifndef TB_INTRA_FABRIC_HOPS_H
#define TB_INTRA_FABRIC_HOPS_H

#include "intra/fabric/fabric.h"

struct tb_codec_coded;
struct tb_gpu;
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
    /* Its source is not believed about its bytes (base/layout/place.h): a chunk is asked for once
     * its proof is known. */
    bool foreign;
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
/* More proofs of its chunks are known now. Any thread; before its close. */
void tb_hop_proofs_came(struct tb_hop *hop);
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
