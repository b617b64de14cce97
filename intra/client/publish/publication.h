/* publication.h - the table of sealed shards. */
#ifndef TB_INTRA_CLIENT_PUBLICATION_H
#define TB_INTRA_CLIENT_PUBLICATION_H

#include "base/layout/layouts.h"
#include "base/layout/shelf.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/seal_protection.h"
#include "intra/client/memory/shadow.h"
#include "intra/client/publish/encode_jobs.h"
#include "intra/client/publish/publication_life.h"
#include "intra/client/session/request.h"
#include "intra/fabric/fabric.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/shared_memory.h"
#include "intra/fabric/source_descriptor.h"

struct tb_session;

/* One shard of one version that this process sealed. */
struct tb_publication {
    struct tb_publication *next;
    struct tb_id uid;
    struct tb_name model;
    struct tb_id run;
    uint64_t number;
    uint32_t shard;
    bool in_place;
    bool retry;  /* other bytes beside a version that is ready do not break it */
    bool copied; /* in place, of device memory: `blobs` begins with a packed copy of the tensors */
    enum tb_publication_life life;
    bool counted_on; /* SUSPENDED: the gateway did not say that it needs it no more */
    /* tb_unpublish had its answer while another call worked on it: it does not come back */
    bool unpublished;
    struct tb_request *hiding; /* its UNPUBLISH, while its registration is suspended or ends */
    bool kept;
    enum tb_status state; /* TB_OK, or why the version ended */
    uint64_t order;       /* of publishing, to find the oldest */
    uint64_t export_id;   /* 0: not exported */
    struct tb_registration *registration;
    struct tb_shadow *shadow;
    struct tb_protection *protection; /* in place, in a session that protects */
    bool written;                     /* somebody wrote to it, and the gateway was told */
    /* a chunk of it is damaged for good: no new reader is let in */
    bool spoiled;
    /* In place: our copies of blobs; of device memory the whole shard's, packed, for those who
     * cannot read the device. */
    struct tb_shared_memory blobs;
    struct tb_shared_memory encoded_chunks; /* encoded chunks; bytes NULL without */
    /* Its chunks as deltas against the version in `base`, made after the call that published it;
     * NULL: none are. */
    struct tb_shadow *base;
    struct tb_id base_uid;
    struct tb_shelf shelf;
    uint32_t classes;
    struct tb_encoding *encoding;
    bool ending; /* a call waits for the end of its encoding, without the lock: it stays */
    struct tb_manifest_memory manifest_memory;
    struct tb_manifest manifest;
    /* of a version of several shards: one for each blob; NULL: none */
    struct tb_digest *blob_digests;
    struct tb_source_encoded *encoded_table;
    struct tb_export_device *devices; /* copied: of each tensor, for its export */
    uint64_t encoded_bytes;
    uint8_t *head; /* encoded */
    size_t head_bytes;
    uint8_t *source; /* encoded */
    size_t source_bytes;
    uint64_t run_order;
    uint32_t shard_count;
    uint8_t *said; /* the publisher's signature; NULL: it has none */
    size_t said_bytes;
};

struct tb_publication *tb_publication_find(struct tb_session *s, const struct tb_id *uid, uint32_t shard);
/* Under the lock; the lock is let go while readers drain. */
void tb_publication_hide(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms);
void tb_publication_remove(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms);
/* Asserts what holds of the table while the lock is free. Under the lock. */
void tb_publications_check(const struct tb_session *s);
void tb_publications_free(struct tb_session *s);

#endif
