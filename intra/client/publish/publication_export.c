/* publication_export.c - how one sealed shard is exported: the buffers that readers read it from,
 * and where in them each tensor stands. */
#include "intra/client/publish/publication_export.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/shadow.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/session.h"
#include "intra/cuda_part_trays.h"
#include "intra/fabric/fabric_exports.h"

/* Buffers of an export while it is described: the caller's stretches, and behind them equal memory
 * once. */
struct buffers {
    struct tb_export_buffer *list;
    uint32_t stretches, count;
};

static uint32_t add_shared(struct buffers *b, const struct tb_shared_memory *memory)
{
    for (uint32_t i = b->stretches; i < b->count; i++)
        if (b->list[i].bytes == memory->bytes && b->list[i].count == memory->count) return i;
    b->list[b->count] =
        (struct tb_export_buffer){.bytes = memory->bytes, .count = memory->count, .memfd = memory->memfd};
    return b->count++;
}

/* The first that are added. */
static void add_stretches(struct buffers *b, const struct tb_stretches *stretches)
{
    TB_ASSERT(b->count == 0);
    for (uint32_t i = 0; i < stretches->count; i++)
        b->list[i] = (struct tb_export_buffer){
            .bytes = stretches->list[i].at, .count = stretches->list[i].bytes, .memfd = -1};
    b->stretches = b->count = stretches->count;
}

static struct tb_source_at at_stretch(const struct tb_stretches *stretches, uint32_t tensor,
                                      const uint8_t *memory)
{
    const uint32_t number = stretches->of[tensor];
    TB_ASSERT(number < stretches->count && memory >= (const uint8_t *)stretches->list[number].at);
    return (struct tb_source_at){number, (uint64_t)(memory - stretches->list[number].at)};
}

/* Right behind the other, both on the device and in the copy. */
static bool follows(const struct tb_export_buffer *b, const struct tb_export_buffer *before)
{
    return before->device != NULL && before->device->dmabuf == b->device->dmabuf &&
           before->device->offset + before->count == b->device->offset && before->memfd == b->memfd &&
           before->memfd_offset + before->count == b->memfd_offset;
}

/* Of device memory all can read the packed copy that we keep; NICs that can are told of the device
 * itself. */
static struct tb_source_at add_copied(const struct tb_publication *p, struct buffers *b, uint32_t tensor)
{
    TB_ASSERT(p->copied && p->devices != NULL);
    const struct tb_tensor *t = &p->manifest.layout.tensors[tensor];
    struct tb_export_device *device = &p->devices[tensor];
    if (!tb_gpu_memory_device(p->registration->gpu, p->registration->memory[tensor], t->bytes, device))
        return (struct tb_source_at){add_shared(b, &p->blobs), t->offset};
    const struct tb_export_buffer own = {.bytes = (uint8_t *)p->blobs.bytes + t->offset,
                                         .count = t->bytes,
                                         .memfd = p->blobs.memfd,
                                         .memfd_offset = t->offset,
                                         .device = device};
    if (b->count == 0 || !follows(&own, &b->list[b->count - 1])) b->list[b->count++] = own;
    struct tb_export_buffer *last = &b->list[b->count - 1];
    last->count = own.memfd_offset + own.count - last->memfd_offset;
    return (struct tb_source_at){b->count - 1, own.memfd_offset - last->memfd_offset};
}

/* Where each tensor stands: inside a buffer of ours, which readers map, or in the caller's own
 * memory. */
static enum tb_status scatter(struct tb_session *s, const struct tb_publication *p, struct buffers *b,
                              struct tb_source_at *at)
{
    const struct tb_stretches *stretches = p->registration != NULL ? &p->registration->stretches : NULL;
    enum tb_status status = TB_OK;
    tb_session_lock(s);
    if (!p->copied && p->registration != NULL) {
        status = tb_registration_stretch(s, p->registration);
        if (status == TB_OK) add_stretches(b, stretches);
    }
    for (uint32_t i = 0; status == TB_OK && i < p->manifest.layout.tensor_count; i++) {
        const uint8_t *memory = p->registration->memory[i];
        const uint64_t bytes = p->manifest.layout.tensors[i].bytes;
        if (bytes == 0) {
            at[i] = (struct tb_source_at){0}; /* in no chunk: never read */
        } else if (p->copied) {
            at[i] = add_copied(p, b, i);
        } else if (stretches->of[i] != TB_STRETCH_NONE) {
            at[i] = at_stretch(stretches, i, memory);
        } else {
            const struct tb_buffer *buffer = tb_buffer_find(s, memory, bytes);
            TB_ASSERT(buffer != NULL); /* it cannot be freed before the registration gives it up */
            at[i] = (struct tb_source_at){add_shared(b, &buffer->memory),
                                          (uint64_t)(memory - (uint8_t *)buffer->memory.bytes)};
        }
    }
    tb_session_unlock(s);
    return status;
}

static enum tb_status describe(struct tb_session *s, struct tb_publication *p, struct buffers *b,
                               struct tb_source_at *at, struct tb_source_shard *shard)
{
    *shard = (struct tb_source_shard){.shard = p->shard, .held_buffer = UINT32_MAX, .scattered = p->in_place};
    if (p->shadow != NULL) {
        shard->packed_buffer = add_shared(b, &p->shadow->memory);
    } else if (p->in_place) {
        const enum tb_status status = scatter(s, p, b, at);
        if (status != TB_OK) return status;
        shard->tensor_count = p->manifest.layout.tensor_count;
        shard->tensors = at;
        if (p->blobs.bytes != NULL) shard->packed_buffer = add_shared(b, &p->blobs);
        if (p->copied) shard->packed_offset = p->manifest.layout.bytes; /* of the blobs */
    }
    if (p->encoded_chunks.bytes == NULL) return TB_OK;
    const uint32_t encoded_chunks = add_shared(b, &p->encoded_chunks);
    for (uint32_t k = 0; k < p->manifest.chunk_count; k++)
        if (p->encoded_table[k].codec != TB_CODEC_RAW) p->encoded_table[k].buffer = encoded_chunks;
    shard->encoded_count = p->manifest.chunk_count;
    shard->encoded_chunks = p->encoded_table;
    return TB_OK;
}

static enum tb_status encode_source(struct tb_publication *p, const struct tb_source_shard *shard)
{
    const size_t bytes = tb_source_encoded_bytes(shard, 1);
    uint8_t *encoded = tb_malloc(bytes);
    if (encoded == NULL) return TB_SITE_NOMEM;
    struct tb_writer w;
    tb_writer_init(&w, encoded, bytes);
    tb_source_encode(shard, 1, &w);
    TB_ASSERT(!w.full);
    tb_free(p->source);
    p->source = encoded;
    p->source_bytes = w.used;
    return TB_OK;
}

/* In place on a GPU: processes of this host with a GPU of theirs read it there. Both stay until the
 * export is closed. */
static struct tb_gpu_origin origin_of(const struct tb_publication *p)
{
    if (!p->copied) return (struct tb_gpu_origin){.memory = NULL};
    return (struct tb_gpu_origin){.memory = p->registration->gpu,
                                  .manifest = &p->manifest,
                                  .from = {.layout = &p->manifest.layout,
                                           .tensors = p->registration->memory,
                                           .rows = p->registration->rows,
                                           .blobs = (uint8_t *)p->blobs.bytes + p->manifest.layout.bytes}};
}

enum tb_status tb_publication_export(struct tb_session *s, struct tb_publication *p)
{
    TB_ASSERT_UNLOCKED(s);
    TB_ASSERT(tb_publication_is_busy(p->life) && p->export_id == 0);
    const uint32_t tensors = p->in_place ? p->manifest.layout.tensor_count : 0;
    struct buffers b = {.list = tb_calloc((size_t)tensors + 4, sizeof *b.list)};
    struct tb_source_at *at = tb_calloc((size_t)tensors + 1, sizeof *at);
    enum tb_status status = b.list == NULL || at == NULL ? TB_SITE_NOMEM : TB_OK;
    if (status == TB_OK) {
        struct tb_source_shard shard;
        status = describe(s, p, &b, at, &shard);
        if (status == TB_OK) status = encode_source(p, &shard);
    }
    if (status == TB_OK) {
        tb_session_lock(s);
        const uint64_t id = ++s->next_export;
        tb_session_unlock(s);
        const bool shelved = !tb_id_is_zero(&p->base_uid);
        const struct tb_shelf_at shelf = {.buffer = shelved ? add_shared(&b, &p->shadow->shelf) : 0};
        const struct tb_gpu_origin origin = origin_of(p);
        const struct tb_export_options options = {.export_id = id,
                                                  .buffers = b.list,
                                                  .buffer_count = b.count,
                                                  .shelf = shelved ? &shelf : NULL,
                                                  .origin = p->copied ? &origin : NULL,
                                                  .origin_shard = p->shard};
        TB_ASSERT(b.count <= tensors + 4);
        status = tb_export_open(s->fabric, &options);
        if (status == TB_OK) p->export_id = id;
    }
    tb_free(at);
    tb_free(b.list);
    return status;
}
