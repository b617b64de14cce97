/* publication.c - one sealed shard: how it is exported, described, sealed, hidden and given up. */
#include <string.h>

#include "base/assert.h"
#include "base/fault.h"
#include "base/log.h"
#include "intra/client/session/client.h"

struct tb_publication *tb_publication_find(struct tb_session *s, const struct tb_id *uid, uint32_t shard)
{
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next)
        if (p->shard == shard && tb_id_equal(&p->uid, uid)) return p;
    return NULL;
}

/* ---- the export ---- */

/* Buffers of an export while it is described: the caller's stretches, and behind them equal memory once. */
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
    for (uint32_t i = 0; i < stretches->count; i++)
        b->list[i] = (struct tb_export_buffer){
            .bytes = stretches->list[i].at, .count = stretches->list[i].bytes, .memfd = -1};
    b->stretches = b->count = stretches->count;
}

static struct tb_source_at at_stretch(const struct tb_stretches *stretches, uint32_t tensor,
                                      const uint8_t *memory)
{
    const uint32_t number = stretches->of[tensor];
    return (struct tb_source_at){number, (uint64_t)(memory - stretches->list[number].at)};
}

/* Right behind the other, both on the device and in the copy. */
static bool follows(const struct tb_export_buffer *b, const struct tb_export_buffer *before)
{
    return before->device != NULL && before->device->dmabuf == b->device->dmabuf &&
           before->device->offset + before->count == b->device->offset && before->memfd == b->memfd &&
           before->memfd_offset + before->count == b->memfd_offset;
}

/* Of device memory all can read the packed copy that we keep; NICs that can are told of the device itself. */
static struct tb_source_at add_copied(const struct tb_publication *p, struct buffers *b, uint32_t tensor)
{
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

/* Where each tensor stands: inside a buffer of ours, which readers map, or in the caller's own memory. */
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
    if (p->objects.bytes == NULL) return TB_OK;
    const uint32_t objects = add_shared(b, &p->objects);
    for (uint32_t k = 0; k < p->manifest.chunk_count; k++)
        if (p->object_table[k].codec != TB_CODEC_RAW) p->object_table[k].buffer = objects;
    shard->object_count = p->manifest.chunk_count;
    shard->objects = p->object_table;
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

/* In place on a GPU: processes of this host with a GPU of theirs read it there. Both stay until the export is closed. */
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
        status = tb_export_open(s->fabric, &options);
        if (status == TB_OK) p->export_id = id;
    }
    tb_free(at);
    tb_free(b.list);
    return status;
}

/* ---- who writes to it ---- */

static void wake(void *user)
{
    tb_session_wake(user); /* uv_async_send, which a signal handler may call */
}

void tb_publication_protect(struct tb_session *s, struct tb_publication *p)
{
    if (!s->protect || !p->in_place || p->copied || p->registration == NULL) return;
    const struct tb_registration *r = p->registration;
    struct tb_protect_stretch *list = tb_calloc((size_t)r->layout.tensor_count + 1, sizeof *list);
    for (uint32_t i = 0; list != NULL && i < r->layout.tensor_count; i++)
        list[i] = (struct tb_protect_stretch){r->memory[i], r->layout.tensors[i].bytes};
    struct tb_protection *protection =
        list != NULL ? tb_protect(list, r->layout.tensor_count, wake, s) : NULL;
    tb_free(list);
    tb_session_lock(s); /* the session thread looks at it */
    p->protection = protection;
    tb_session_unlock(s);
    if (protection != NULL) return;
    tb_log(TB_LOG_WARN, "publish.unprotected", "number=%llu shard=%u", (unsigned long long)p->number,
           p->shard);
}

static const struct tb_tensor *tensor_of(const struct tb_publication *p, const uint8_t *at)
{
    const struct tb_layout *layout = &p->manifest.layout;
    for (uint32_t i = 0; i < layout->tensor_count; i++) {
        const uint8_t *tensor = p->registration->memory[i];
        if (at >= tensor && at < tensor + layout->tensors[i].bytes) return &layout->tensors[i];
    }
    return NULL;
}

static uint32_t chunk_of(const struct tb_manifest *m, uint64_t packed)
{
    uint32_t k = 0;
    while (k + 1 < m->chunk_count && m->chunks[k + 1].offset <= packed)
        k++;
    return k;
}

static void tell_written(struct tb_session *s, struct tb_publication *p, const uint8_t *at)
{
    const struct tb_tensor *t = tensor_of(p, at);
    const uint64_t inside =
        t == NULL ? 0 : (uint64_t)(at - p->registration->memory[t - p->manifest.layout.tensors]);
    const uint32_t chunk = t == NULL ? 0 : chunk_of(&p->manifest, t->offset + inside);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "publish.written_to");
    tb_log_u64(&l, "number", p->number);
    tb_log_u64(&l, "shard", p->shard);
    tb_log_str(&l, "tensor", t == NULL ? "" : t->name);
    tb_log_u64(&l, "byte", inside);
    tb_log_str(&l, "action", "version_broken");
    tb_log_end(&l);
    struct tb_request *notice = tb_request_new(s, TB_SESSION_CHUNK_BAD, 0, 0);
    if (notice == NULL) return; /* its readers find it too */
    const struct tb_session_chunk_bad m = {.uid = p->uid, .plan = 0, .shard = p->shard, .chunk = chunk};
    tb_session_chunk_bad_encode(&m, &notice->payload);
    tb_request_post(s, notice);
}

/* Its bytes are not other bytes: they are gone. So the reference ends, and the version is lost where nobody else has all of it. */
static void tell_missing(struct tb_session *s, struct tb_publication *p)
{
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "publish.memory_gone");
    tb_log_u64(&l, "number", p->number);
    tb_log_u64(&l, "shard", p->shard);
    tb_log_str(&l, "reason", "a_file_it_maps_was_cut_short");
    tb_log_str(&l, "action", "reference_ends");
    tb_log_end(&l);
    p->sealed = false; /* a gateway that comes anew does not hear of it */
    tb_request_farewell(s, tb_unpublish_gone_request(s, p, 0));
}

static bool is_missing(const struct tb_publication *p)
{
    return p->in_place && p->registration != NULL && tb_guard_missing(p->registration->guard) != NULL;
}

/* Under the lock, once a second: a gateway of this host reads by system calls, which raise no signal. */
void tb_registrations_look(struct tb_session *s)
{
    for (struct tb_registration *r = s->registrations; r != NULL; r = r->next)
        tb_guard_look(r->guard);
}

void tb_publications_look(struct tb_session *s)
{
    for (struct tb_publication *p = s->publications; p != NULL; p = p->next) {
        if (p->sealed && !p->busy && is_missing(p)) tell_missing(s, p);
        if (p->protection == NULL || p->written || !p->sealed) continue;
        const uint8_t *at = tb_protection_written(p->protection);
        if (at == NULL) continue;
        p->written = true;
        tell_written(s, p, at);
    }
}

void tb_publication_hide(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms)
{
    const uint64_t id = p->export_id;
    tb_protection_end(p->protection);
    p->protection = NULL;
    p->export_id = 0;
    if (id == 0) return;
    const bool was_busy = p->busy;
    p->busy = true; /* nobody else touches it while the lock is away */
    tb_session_unlock(s);
    tb_export_close(s->fabric, id, drain_ms);
    tb_session_lock(s);
    p->busy = was_busy;
    tb_session_changed(s, false);
}

/* A packed copy of a device's memory is pinned, for it and for NICs, and is the next version's. What is free now is the caller's to
 * give back. */
static struct tb_shared_memory leave_copy(struct tb_publication *p)
{
    if (!p->copied || p->blobs.bytes == NULL) return (struct tb_shared_memory){.memfd = -1};
    return tb_spare_keep(&p->registration->spare, &p->model, &p->blobs);
}

static void free_publication(struct tb_session *s, struct tb_publication *p)
{
    tb_session_memory_free(s, &p->blobs);
    tb_shared_memory_free(&p->objects);
    tb_free(p->object_table);
    tb_free(p->devices);
    tb_layouts_release(s->layouts, &p->manifest_memory);
    tb_free(p->head);
    tb_free(p->source);
    tb_free(p);
}

void tb_publication_remove(struct tb_session *s, struct tb_publication *p, uint32_t drain_ms)
{
    p->busy = p->removing = true;
    p->sealed = false; /* a gateway that comes anew meanwhile does not hear of it */
    tb_shadow_encode_end(s, p);
    tb_publication_hide(s, p, drain_ms);
    for (struct tb_publication **at = &s->publications; *at != NULL; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    if (p->shadow != NULL) p->shadow->user = NULL;
    struct tb_shared_memory before = leave_copy(p);
    tb_session_unlock(s); /* memory may be large, and takes a while to go */
    tb_session_memory_free(s, &before);
    free_publication(s, p);
    tb_session_lock(s);
    tb_session_changed(s, false);
}

void tb_publications_free(struct tb_session *s)
{
    tb_session_lock(s);
    while (s->publications != NULL) {
        struct tb_publication *p = s->publications;
        if (p->sealed) tb_request_farewell(s, tb_unpublish_gone_request(s, p, 0));
        tb_publication_remove(s, p, 0);
    }
    while (s->runs != NULL) {
        struct tb_run_opened *run = s->runs;
        s->runs = run->next;
        tb_free(run);
    }
    tb_session_unlock(s);
}

/* ---- its messages ---- */

struct tb_request *tb_publication_seal(struct tb_session *s, const struct tb_publication *p)
{
    const size_t digests = (size_t)p->manifest.chunk_count * TB_DIGEST_BYTES;
    struct tb_request *request =
        tb_request_new(s, TB_SESSION_SEAL, TB_SESSION_REPLY, p->head_bytes + digests + p->source_bytes);
    if (request == NULL) return NULL;
    const struct tb_session_seal m = {.uid = p->uid,
                                      .shard = p->shard,
                                      .in_place = p->in_place,
                                      .retry = p->retry,
                                      .export_id = p->export_id,
                                      .head = {p->head, (uint32_t)p->head_bytes},
                                      .digests = {(const uint8_t *)p->manifest.digests, (uint32_t)digests},
                                      .source = {p->source, (uint32_t)p->source_bytes},
                                      .base = p->base_uid};
    tb_session_seal_encode(&m, &request->payload);
    return request;
}

struct tb_request *tb_unpublish_gone_request(struct tb_session *s, const struct tb_publication *p,
                                             uint32_t drain_ms)
{
    return tb_unpublish_request(s, &p->uid, p->shard, drain_ms | TB_SESSION_UNPUBLISH_GONE);
}

struct tb_request *tb_unpublish_request(struct tb_session *s, const struct tb_id *uid, uint32_t shard,
                                        uint32_t drain_ms)
{
    struct tb_request *request = tb_request_new(s, TB_SESSION_UNPUBLISH, TB_SESSION_REPLY, 0);
    if (request == NULL) return NULL;
    const struct tb_session_unpublish m = {.uid = *uid, .shard = shard, .drain_ms = drain_ms};
    tb_session_unpublish_encode(&m, &request->payload);
    return request;
}
