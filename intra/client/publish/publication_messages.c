/* publication_messages.c - SEAL and UNPUBLISH, as this session says them of one sealed shard. */
#include "intra/client/publish/publication_messages.h"

#include "intra/client/publish/publication.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

struct tb_request *tb_publication_seal(struct tb_session *s, const struct tb_publication *p)
{
    const size_t digests = (size_t)p->manifest.chunk_count * TB_DIGEST_BYTES;
    const size_t blobs = p->blob_digests != NULL ? (size_t)p->manifest.blob_count * TB_DIGEST_BYTES : 0;
    const size_t proofs = p->said != NULL ? (size_t)p->manifest.chunk_count * TB_BLAKE3_BYTES : 0;
    struct tb_request *request =
        tb_request_new(s, TB_MSG_SEAL, TB_MSG_REPLY,
                       p->head_bytes + digests + p->source_bytes + blobs + p->said_bytes + proofs);
    if (request == NULL) return NULL;
    const struct tb_msg_seal m = {.uid = p->uid,
                                  .shard = p->shard,
                                  .in_place = p->in_place,
                                  .retry = p->retry,
                                  .export_id = p->export_id,
                                  .head = {p->head, (uint32_t)p->head_bytes},
                                  .digests = {(const uint8_t *)p->manifest.digests, (uint32_t)digests},
                                  .source = {p->source, (uint32_t)p->source_bytes},
                                  .base = p->base_uid,
                                  .blobs = {(const uint8_t *)p->blob_digests, (uint32_t)blobs},
                                  .said = {p->said, (uint32_t)p->said_bytes},
                                  .proofs = {(const uint8_t *)p->manifest.proofs, (uint32_t)proofs}};
    tb_msg_seal_encode(&m, &request->payload);
    return request;
}

struct tb_request *tb_publication_unpublish(struct tb_session *s, const struct tb_id *uid, uint32_t shard,
                                            uint32_t drain_ms)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_UNPUBLISH, TB_MSG_REPLY, 0);
    if (request == NULL) return NULL;
    const struct tb_msg_unpublish m = {.uid = *uid, .shard = shard, .drain_ms = drain_ms};
    tb_msg_unpublish_encode(&m, &request->payload);
    return request;
}

struct tb_request *tb_publication_gone_request(struct tb_session *s, const struct tb_publication *p,
                                               uint32_t drain_ms)
{
    return tb_publication_unpublish(s, &p->uid, p->shard, drain_ms | TB_MSG_UNPUBLISH_GONE);
}
