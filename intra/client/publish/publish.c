/* publish.c - tb_publish: open the version, one pass, export, seal. version_unpublish.c is the way
 * back.
 *
 * Nothing here waits for a link or for another rank: the only waits are for the own gateway's
 * answer (both of them before the bytes leave this host) and, with two shadows in use, for the
 * gateway to have landed the older one. */
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/layout/blob_name.h"
#include "base/log.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/shadow.h"
#include "intra/client/memory/spare_memory.h"
#include "intra/client/publish/publication.h"
#include "intra/client/publish/publication_export.h"
#include "intra/client/publish/publication_messages.h"
#include "intra/client/publish/publication_watch.h"
#include "intra/client/publish/publish_pass.h"
#include "intra/client/publish/publish_prepare.h"
#include "intra/client/publish/publisher_word.h"
#include "intra/client/publish/shadow_claim.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"

#define TIMEOUT_MS 30000u

/* State of one call of tb_publish. */
struct publishing {
    struct tb_session *s;
    const struct tb_publish_options *o;
    struct tb_call call;
    struct tb_name model;
    struct tb_id run;
    enum tb_codec_id codec;
    uint64_t blob_bytes;
    uint32_t classes; /* in which the gateway wants deltas; 0: no deltas */
};

/* ---- arguments ---- */

static int check_blobs(const struct tb_publish_options *o, uint64_t *bytes_out)
{
    if (o->blob_count > TB_BLOBS_MAX || (o->blob_count > 0 && o->blobs == NULL))
        return tb_fail(TB_BAD_ARGUMENT, "%u blobs; a shard has at most %d", o->blob_count, TB_BLOBS_MAX);
    *bytes_out = 0;
    for (uint32_t i = 0; i < o->blob_count; i++) {
        const struct tb_blob_desc *b = &o->blobs[i];
        if (b->name == NULL || !tb_blob_name_valid(b->name))
            return tb_fail(TB_BAD_ARGUMENT,
                           "blob %u, \"%.100s\", needs a clean relative path of at most %d bytes", i,
                           b->name == NULL ? "" : b->name, TB_BLOB_NAME_MAX);
        if (!tb_blob_name_writable(b->name))
            return tb_fail(TB_BAD_ARGUMENT,
                           "blob %u, \"%.100s\": subscribe could not write such a file: at most %d folders, "
                           "not STABLE or "
                           "WITHDRAWN, and no part that begins with .tombolo",
                           i, b->name, TB_FILE_DEPTH_MAX);
        if (b->count > TB_BLOB_BYTES_MAX || (b->count > 0 && b->bytes == NULL))
            return tb_fail(TB_BAD_ARGUMENT, "blob \"%.200s\" has %llu bytes; at most %llu are allowed",
                           b->name, (unsigned long long)b->count, (unsigned long long)TB_BLOB_BYTES_MAX);
        *bytes_out += b->count;
    }
    return TB_OK;
}

/* Each element stands once in a shard, and what is served in place stands without gaps. */
static int check_registration(const struct publishing *w)
{
    const struct tb_registration *r = w->o->registration;
    if (r == NULL)
        return w->o->blob_count > 0 ? TB_OK
                                    : tb_fail(TB_BAD_ARGUMENT, "a shard has a registration, blobs or both");
    if (r->session != w->s) return tb_fail(TB_BAD_ARGUMENT, "the registration belongs to another session");
    if (r->layout.tensor_count == 0)
        return tb_fail(TB_BAD_ARGUMENT, "%s: what is registered can be read into, but not published",
                       r->unpublishable);
    if (r->scattered && w->o->mode == TB_PUBLISH_IN_PLACE)
        return tb_fail(TB_BAD_ARGUMENT, "a tensor is split along an inner axis, so its parts stand in rows: "
                                        "publish in shadow mode");
    return TB_OK;
}

static int check_options(struct publishing *w)
{
    const struct tb_publish_options *o = w->o;
    if (o == NULL || o->struct_bytes < sizeof *o)
        return tb_fail(TB_BAD_ARGUMENT, "options.struct_bytes must be sizeof(struct tb_publish_options), %zu",
                       sizeof *o);
    if (o->model == NULL || tb_name_set(&w->model, o->model) != TB_OK)
        return tb_fail(TB_BAD_ARGUMENT, "model \"%.80s\": 1 to 64 of A-Z a-z 0-9 . _ -",
                       o->model == NULL ? "" : o->model);
    if (o->number > INT64_MAX)
        return tb_fail(TB_BAD_ARGUMENT, "number %llu: at most 2^63 - 1", (unsigned long long)o->number);
    if (o->run == NULL) return tb_fail(TB_BAD_ARGUMENT, "options.run is missing: see tb_run_open");
    if (o->mode != TB_PUBLISH_SHADOW && o->mode != TB_PUBLISH_IN_PLACE)
        return tb_fail(TB_BAD_ARGUMENT, "mode %u is unknown", o->mode);
    if (o->shard_count == 0 || o->shard_count > TB_SHARDS_MAX || o->shard_index >= o->shard_count)
        return tb_fail(TB_BAD_ARGUMENT, "shard %u of %u: 1 to %d shards, counted from 0", o->shard_index,
                       o->shard_count, TB_SHARDS_MAX);
    if (tb_codec_parse(o->codec == NULL ? "raw" : o->codec, &w->codec) != TB_OK || w->codec > TB_CODEC_ZSTD)
        return tb_fail(TB_BAD_ARGUMENT, "codec \"%.40s\" is unknown: raw or zstd", o->codec);
    const int registered = check_registration(w);
    if (registered != TB_OK) return registered;
    memcpy(w->run.bytes, o->run->bytes, sizeof w->run.bytes);
    return check_blobs(o, &w->blob_bytes);
}

/* ---- the version ---- */

static int open_version(struct publishing *w, struct tb_version_key *key_out)
{
    struct tb_request *request = tb_request_new(w->s, TB_MSG_VERSION_OPEN, TB_MSG_VERSION, 0);
    const struct tb_msg_version_open m = {
        .model = w->model, .run = w->run, .number = w->o->number, .shard_count = w->o->shard_count};
    if (request != NULL) tb_msg_version_open_encode(&m, &request->payload);
    int status = tb_request_call(w->s, request, &w->call, "tb_publish: opening the version");
    if (status == TB_OK) {
        struct tb_msg_version answer;
        TB_ANSWER_DECODE(request, tb_msg_version, &answer);
        *key_out = answer.key;
        w->classes = answer.classes;
        if (key_out->number != w->o->number || key_out->shard_count != w->o->shard_count)
            status =
                tb_fail(TB_PEER_GARBLED, "the gateway opened version %llu of %u shards instead of %llu of %u",
                        (unsigned long long)key_out->number, key_out->shard_count,
                        (unsigned long long)w->o->number, w->o->shard_count);
    }
    tb_request_free(request);
    return status;
}

/* ---- the shard ---- */

static int build_manifest(const struct publishing *w, struct tb_publication *p)
{
    static const struct tb_layout none;
    const struct tb_layout *layout = w->o->registration != NULL ? &w->o->registration->layout : NULL;
    struct tb_layout empty = none;
    uint8_t empty_memory[64];
    if (layout == NULL) {
        const enum tb_status built = tb_layout_build(NULL, 0, empty_memory, sizeof empty_memory, &empty);
        if (built != TB_OK) return tb_fail(built, "a layout without tensors");
        layout = &empty;
    }
    struct tb_blob *blobs = tb_calloc((size_t)w->o->blob_count + 1, sizeof *blobs);
    if (blobs == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for a manifest");
    for (uint32_t i = 0; i < w->o->blob_count; i++)
        blobs[i] = (struct tb_blob){.name = w->o->blobs[i].name, .bytes = w->o->blobs[i].count};
    const enum tb_status status =
        tb_layouts_build(w->s->layouts, layout, blobs, w->o->blob_count, &p->manifest_memory, &p->manifest);
    tb_free(blobs);
    return status == TB_OK
               ? TB_OK
               : tb_fail(status, "the manifest of shard %u cannot be made: are two blobs of one name?",
                         p->shard);
}

/* Blobs are small and copied at once, to where they will be served from. */
static int copy_blobs(const struct tb_publish_options *o, uint8_t *to)
{
    for (uint32_t i = 0; i < o->blob_count; i++) {
        if (!tb_guard_copy(to, o->blobs[i].bytes, o->blobs[i].count))
            return tb_fail(TB_SITE_IO,
                           "blob \"%.200s\" maps a file that was cut short: bytes of it are missing",
                           o->blobs[i].name);
        to += o->blobs[i].count;
    }
    return TB_OK;
}

/* Of a GPU's memory all of the shard, packed, where the version before left it: pinned. Blobs that
 * are a little longer than its own fit as well. */
static enum tb_status make_copy(struct tb_session *s, struct tb_publication *p)
{
    TB_ASSERT(p->in_place && !p->copied && p->blobs.bytes == NULL);
    const struct tb_spare_wish wish = {&p->model, tb_publish_copy_bytes(p->manifest.bytes)};
    const struct tb_reserve_wish prepared = {
        .kind = TB_RESERVE_COPY, .model = &p->model, .shard = p->shard, .bytes = wish.bytes};
    p->copied = true;
    if (tb_spare_take(s, &p->registration->spare, &wish, &p->blobs)) return TB_OK;
    return tb_reserve_take(s, &prepared, &p->blobs);
}

static int make_places(const struct publishing *w, struct tb_publication *p)
{
    struct tb_session *s = w->s;
    enum tb_status status = TB_OK;
    const bool on_gpu = p->registration != NULL && p->registration->gpu != NULL;
    if (p->in_place && on_gpu) {
        status = make_copy(s, p);
    } else if (p->in_place) {
        if (w->blob_bytes > 0) status = tb_shared_memory_new("tombolo-blobs", w->blob_bytes, &p->blobs);
    } else if (p->manifest.bytes > 0) {
        tb_session_lock(s);
        status = tb_shadow_claim_take(s, p, p->manifest.bytes, &w->call);
        tb_session_unlock(s);
    }
    if (status == TB_TIMEOUT)
        return tb_fail(status,
                       "both shadows of shard %u are still on their way home: version %llu has to wait",
                       p->shard, (unsigned long long)w->o->number);
    if (status != TB_OK)
        return tb_fail(status, "version %llu shard %u: no place for %llu bytes",
                       (unsigned long long)w->o->number, p->shard, (unsigned long long)p->manifest.bytes);
    if (on_gpu)
        tb_gpu_pin(tb_registration_gpu(s, p->registration),
                   p->shadow != NULL ? &p->shadow->memory : &p->blobs);
    if (p->copied) {
        p->devices = tb_calloc((size_t)p->manifest.layout.tensor_count + 1, sizeof *p->devices);
        if (p->devices == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the tensors' devices");
    }
    if (w->codec == TB_CODEC_RAW) return TB_OK;
    p->encoded_table = tb_calloc((size_t)p->manifest.chunk_count + 1, sizeof *p->encoded_table);
    return p->encoded_table == NULL ? tb_fail(TB_SITE_NOMEM, "no memory for the table of encoded chunks")
                                    : TB_OK;
}

static int encode_head(struct tb_publication *p)
{
    p->head_bytes = tb_manifest_head_bytes(&p->manifest);
    p->head = tb_malloc(p->head_bytes);
    if (p->head == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the manifest's head");
    struct tb_writer w;
    tb_writer_init(&w, p->head, p->head_bytes);
    tb_manifest_head_encode(&p->manifest, &w);
    TB_ASSERT(!w.full && w.used == p->head_bytes);
    return TB_OK;
}

static uint64_t encoded_bytes(const struct tb_publication *p)
{
    if (p->encoded_table == NULL) return p->manifest.bytes;
    uint64_t bytes = 0;
    for (uint32_t k = 0; k < p->manifest.chunk_count; k++)
        bytes += p->encoded_table[k].bytes;
    return bytes;
}

/* Blobs of a version of several shards: the gateway refuses two of one name with different
 * bytes. */
static int digest_blobs(const struct publishing *w, struct tb_publication *p, const uint8_t *at)
{
    if (w->o->shard_count < 2 || p->manifest.blob_count == 0) return TB_OK;
    p->blob_digests = tb_calloc(p->manifest.blob_count, sizeof *p->blob_digests);
    if (p->blob_digests == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for the blobs' digests");
    for (uint32_t i = 0; i < p->manifest.blob_count; i++) {
        p->blob_digests[i] = tb_digest_of(at, p->manifest.blobs[i].bytes);
        at += p->manifest.blobs[i].bytes;
    }
    return TB_OK;
}

static int pass(const struct publishing *w, struct tb_publication *p)
{
    struct tb_gpu_memory *gpu = p->registration != NULL ? p->registration->gpu : NULL;
    uint8_t *shadow = p->shadow != NULL ? p->shadow->memory.bytes : NULL;
    if (p->copied) shadow = p->blobs.bytes;
    uint8_t *blobs = shadow != NULL ? shadow + p->manifest.layout.bytes : p->blobs.bytes;
    const int copied = copy_blobs(w->o, blobs);
    if (copied != TB_OK) return copied;
    const int digested = digest_blobs(w, p, blobs);
    if (digested != TB_OK) return digested;
    const struct tb_pass pass = {.manifest = &p->manifest,
                                 .tensors = p->registration != NULL ? p->registration->memory : NULL,
                                 .rows = p->registration != NULL ? p->registration->rows : NULL,
                                 .blobs = blobs,
                                 .shadow = shadow,
                                 .gpu = gpu,
                                 .codec = w->codec,
                                 .encoded_chunks = p->encoded_table};
    const enum tb_status status = tb_pass_run(w->s->crew, &pass, &p->encoded_chunks);
    if (status != TB_OK)
        return tb_fail(status, "version %llu shard %u: the pass", (unsigned long long)p->number, p->shard);
    const int missing = tb_registration_missing(p->registration);
    if (missing != TB_OK) return missing;
    tb_session_lock(w->s);
    tb_shadow_filled(p);
    tb_session_unlock(w->s);
    p->manifest.root = tb_manifest_root(&p->manifest);
    p->encoded_bytes = encoded_bytes(p);
    const int head = encode_head(p);
    if (head != TB_OK || w->s->publisher == NULL) return head;
    tb_pass_prove(w->s->crew, &pass);
    return tb_publisher_sign(w->s, p);
}

static void sealed(struct tb_session *s, struct tb_request *request, void *user)
{
    (void)s;
    struct tb_publication *p = user;
    if (request->status == TB_OK || request->status == TB_DONE_BEFORE)
        tb_publication_step(&p->life, TB_PUBLICATION_TAKEN);
}

static int seal(const struct publishing *w, struct tb_publication *p)
{
    struct tb_request *request = tb_publication_seal(w->s, p);
    if (request != NULL) {
        request->fn = sealed;
        request->user = p;
    }
    const int status = tb_request_call(w->s, request, &w->call, "tb_publish: sealing the shard");
    tb_request_free(request);
    return status == TB_DONE_BEFORE ? TB_OK : status;
}

/* ---- the call ---- */

/* A call that failed leaves nothing behind: the caller's bytes are its own, and a seal that may
 * have arrived is taken back. (One that was refused as well: where the store fails, the gateway has
 * it all the same.) The gateway does not count on it, and as the call may be made again, gives the
 * version up only when nothing is sealed within a drain. */
static void take_back(struct tb_session *s, struct tb_publication *p)
{
    tb_session_lock(s);
    if (p->export_id != 0) tb_request_farewell(s, tb_publication_gone_request(s, p, tb_session_drain_ms(s)));
    tb_publication_remove(s, p, 0);
    tb_session_unlock(s);
}

static int fill_and_seal(const struct publishing *w, struct tb_publication *p)
{
    int status = build_manifest(w, p);
    if (status != TB_OK) return status;
    status = make_places(w, p);
    if (status != TB_OK) return status;
    tb_publication_protect(w->s, p);
    status = pass(w, p);
    if (status != TB_OK) return status;
    if (w->codec == TB_CODEC_RAW) tb_shadow_shelf(w->s, p, w->classes);
    const enum tb_status exported = tb_publication_export(w->s, p);
    if (exported != TB_OK)
        return tb_fail(exported, "version %llu shard %u cannot be exported", (unsigned long long)p->number,
                       p->shard);
    return seal(w, p);
}

static int publish_new(const struct publishing *w, struct tb_publication *p)
{
    TB_ASSERT(p->life == TB_PUBLICATION_NEW);
    const int status = fill_and_seal(w, p);
    if (status != TB_OK) {
        take_back(w->s, p);
        return status;
    }
    tb_session_lock(w->s);
    tb_shadow_encode(w->s, p);
    tb_shadow_claim_next(w->s, p, w->codec == TB_CODEC_RAW ? w->classes : 0,
                         p->registration != NULL && p->registration->gpu != NULL);
    /* what was written before it was sealed is looked at now */
    tb_session_wake(w->s);
    if (!p->in_place) p->registration = NULL; /* it may go: the shadow is what counts now */
    tb_session_unlock(w->s);
    return TB_OK;
}

static bool same_layout(const struct tb_manifest *a, const struct tb_manifest *b)
{
    return tb_digest_equal(&a->layout.id, &b->layout.id) && a->chunk_count == b->chunk_count &&
           a->bytes == b->bytes;
}

static int compare(const struct publishing *w, const struct tb_publication *p, struct tb_publication *probe,
                   uint8_t *blobs)
{
    memcpy(probe->manifest.digests, p->manifest.digests, (size_t)p->manifest.chunk_count * TB_DIGEST_BYTES);
    probe->manifest.root = tb_manifest_root(&probe->manifest);
    uint32_t differs = 0;
    const struct tb_registration *r = w->o->registration;
    const struct tb_pass with = {.manifest = &probe->manifest,
                                 .tensors = r != NULL ? r->memory : NULL,
                                 .rows = r != NULL ? r->rows : NULL,
                                 .blobs = blobs,
                                 .gpu = r != NULL ? r->gpu : NULL};
    enum tb_status same = tb_pass_compare(w->s->crew, &with, &differs);
    if (same == TB_OK && !tb_digest_equal(&probe->manifest.root, &p->manifest.root))
        same = TB_CONFLICT; /* blobs' names */
    const int status = tb_registration_missing(r);
    if (status != TB_OK || same == TB_OK) return status;
    return tb_fail(same, "version %llu shard %u was sealed with other bytes: chunk %u differs",
                   (unsigned long long)p->number, p->shard, differs);
}

static int compare_and_seal(const struct publishing *w, struct tb_publication *p,
                            struct tb_publication *probe, uint8_t *blobs)
{
    if (w->blob_bytes > 0 && blobs == NULL)
        return tb_fail(TB_SITE_NOMEM, "no memory for a look at the blobs");
    if (!same_layout(&probe->manifest, &p->manifest))
        return tb_fail(TB_CONFLICT, "version %llu shard %u was sealed with another layout",
                       (unsigned long long)p->number, p->shard);
    int status = blobs != NULL ? copy_blobs(w->o, blobs) : TB_OK;
    if (status != TB_OK) return status;
    status = compare(w, p, probe, blobs);
    return status == TB_OK ? seal(w, p) : status;
}

/* A shard sealed before: the same bytes are done, others are refused, and nothing is sent for a
 * look. */
static int publish_again(const struct publishing *w, struct tb_publication *p)
{
    TB_ASSERT(tb_publication_is_busy(p->life) && p->life != TB_PUBLICATION_NEW);
    struct tb_publication probe = {.shard = p->shard};
    int status = build_manifest(w, &probe);
    uint8_t *blobs = w->blob_bytes > 0 ? tb_malloc(w->blob_bytes) : NULL;
    if (status == TB_OK) status = compare_and_seal(w, p, &probe, blobs);
    tb_free(blobs);
    tb_layouts_release(w->s->layouts, &probe.manifest_memory);
    return status;
}

/* Under the lock. Finds the shard sealed before, free of other calls, or enters a new one; NULL
 * with *status_out. */
static struct tb_publication *claim(const struct publishing *w, const struct tb_version_key *key,
                                    bool *again_out, int *status_out)
{
    TB_ASSERT_LOCKED(w->s);
    struct tb_session *s = w->s;
    struct tb_publication *p;
    while ((p = tb_publication_find(s, &key->uid, w->o->shard_index)) != NULL &&
           (tb_publication_is_busy(p->life) || p->unpublished)) {
        const enum tb_status status = tb_session_wait_change(s, &w->call);
        if (status == TB_OK) continue;
        *status_out = tb_fail(status, "another call works on shard %u of version %llu", w->o->shard_index,
                              (unsigned long long)key->number);
        return NULL;
    }
    if (p != NULL && p->life == TB_PUBLICATION_SUSPENDED) {
        *status_out = tb_fail(TB_BAD_STATE,
                              "shard %u of version %llu was published from a registration that is "
                              "suspended: tb_resume it",
                              w->o->shard_index, (unsigned long long)key->number);
        return NULL;
    }
    *again_out = p != NULL;
    if (p != NULL) tb_publication_step(&p->life, TB_PUBLICATION_CLAIM);
    if (p == NULL) {
        p = tb_calloc(1, sizeof *p);
        if (p == NULL) {
            *status_out = tb_fail(TB_SITE_NOMEM, "no memory for a publication");
            return NULL;
        }
        p->uid = key->uid;
        p->model = w->model;
        p->run = key->run;
        p->run_order = key->run_order;
        p->number = key->number;
        p->shard_count = key->shard_count;
        p->shard = w->o->shard_index;
        p->in_place = w->o->mode == TB_PUBLISH_IN_PLACE;
        p->retry = w->o->retry != 0;
        p->registration = w->o->registration;
        p->order = ++s->next_order;
        p->blobs.memfd = p->encoded_chunks.memfd = -1;
        p->life = TB_PUBLICATION_NEW;
        p->next = s->publications;
        s->publications = p;
    }
    return p;
}

static void fill_info(const struct publishing *w, const struct tb_publication *p,
                      struct tb_publish_info *info)
{
    memcpy(info->uid.bytes, p->uid.bytes, sizeof info->uid.bytes);
    info->chunk_count = p->manifest.chunk_count;
    info->bytes = p->manifest.bytes;
    info->encoded_bytes = p->encoded_bytes;
    /* A caller with one thread has its bytes again when this call returns, so the answers of the
     * gateway count. */
    info->hold_ns = p->in_place ? 0 : tb_time_since(w->call.began, tb_clock_now());
}

static int publish(struct publishing *w, struct tb_publish_info *info_out)
{
    struct tb_version_key key;
    int status = open_version(w, &key);
    if (status != TB_OK) return status;
    bool again;
    tb_session_lock(w->s);
    struct tb_publication *p = claim(w, &key, &again, &status);
    tb_session_unlock(w->s);
    if (p == NULL) return status;
    status = again ? publish_again(w, p) : publish_new(w, p);
    if (status != TB_OK && !again) return status; /* it is gone */
    tb_session_lock(w->s);
    if (status == TB_OK && info_out != NULL) fill_info(w, p, info_out);
    tb_publication_step(&p->life, TB_PUBLICATION_RELEASE);
    tb_session_changed(w->s, false);
    tb_session_unlock(w->s);
    return status;
}

/* While a pass runs, the registration's memory can be neither suspended nor unregistered. */
static int begin_pass(struct tb_session *s, struct tb_registration *r)
{
    if (r == NULL) return TB_OK;
    tb_session_lock(s);
    const bool suspended = r->suspended;
    if (!suspended) tb_registration_begin_pass(r);
    tb_session_unlock(s);
    return suspended ? tb_fail(TB_BAD_STATE, "the registration is suspended") : TB_OK;
}

static void end_pass(struct tb_session *s, struct tb_registration *r)
{
    if (r == NULL) return;
    tb_session_lock(s);
    tb_registration_end_pass(r);
    tb_session_unlock(s);
}

int tb_publish(struct tb_session *session, const struct tb_publish_options *options,
               struct tb_publish_info *info_out)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct publishing w = {.s = session, .o = options};
    status = check_options(&w);
    if (status == TB_OK && info_out != NULL && info_out->struct_bytes < sizeof *info_out)
        status = tb_fail(TB_BAD_ARGUMENT, "info.struct_bytes must be sizeof(struct tb_publish_info), %zu",
                         sizeof *info_out);
    if (status == TB_OK) {
        w.call = tb_call_begin(session, options->timeout_ms == 0 ? TIMEOUT_MS : options->timeout_ms);
        status = begin_pass(session, options->registration);
        if (status == TB_OK) {
            status = tb_registration_missing(options->registration); /* zeros stand there by now */
            if (status == TB_OK) status = publish(&w, info_out);
            end_pass(session, options->registration);
        }
    }
    tb_session_leave(session);
    return status;
}
