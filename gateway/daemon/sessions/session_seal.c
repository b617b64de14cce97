/* session_seal.c - SEAL: a rank says that a shard is whole in its memory, and may be read there. A
 * seal that finds no room in the arena waits (it is parked) until an eviction has made some. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/layout/blob_name.h"
#include "base/net/wire.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/copies/shard_files.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/links/proofs.h"
#include "gateway/daemon/links/publisher_words.h"
#include "gateway/daemon/models/quota.h"
#include "gateway/daemon/sessions/held_reply.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_seal.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/disk/file_names.h"
#include "intra/fabric/source_descriptor.h"
#include "intra/session_msg.h"

#define SEAL_PARKED_NS TB_SECONDS(20) /* for room that an eviction makes */
/* P7: seals that wait are memory besides the arena. As a rule it is under 1 MiB a seal. */
#define PARKED_BYTES_MAX         ((uint64_t)4 * TB_MSG_FRAME_BYTES_MAX)
#define PARKED_SESSION_BYTES_MAX ((uint64_t)TB_MSG_FRAME_BYTES_MAX)
#define PARKED_SESSION_MAX       64u

static void seal_refused(struct tb_worker_session *s, uint32_t shard, enum tb_status status, const char *why)
{
    TB_ASSERT(status < TB_OK);
    s->d->counters.seals_refused++;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "seal.refused");
    tb_log_str(&l, "worker", s->name.text);
    tb_log_u64(&l, "shard", shard);
    tb_log_str(&l, "status", tb_status_name(status));
    if (why[0] != '\0') tb_log_str(&l, "why", why);
    tb_log_end(&l);
    if (status == TB_PEER_DENIED) tb_worker_refused_audit(s, "seal", why);
}

static void seal_failed(struct tb_worker_session *s, const struct tb_held_reply *h, enum tb_status status)
{
    seal_refused(s, h->shard, status, "");
}

static void seal_send(struct tb_worker_session *s, const struct tb_held_reply *h)
{
    if (h->status == TB_OK) s->d->counters.seals++;
    tb_worker_reply(s, h->request, h->status, "");
}

/* ---- one seal ---- */

struct seal {
    struct tb_msg_seal m;
    struct tb_manifest_memory memory;
    struct tb_manifest manifest;
    struct tb_copy *copy;
    struct tb_shard_files *files; /* digests that this shard says; the copy's once it is sealed */
    char why[256];
};

/* The publisher signed them with the shard: bytes are compared with them from the first one on.
 * False: they are not as many as there are chunks. */
static bool take_proofs(struct seal *seal)
{
    const struct tb_msg_seal *m = &seal->m;
    if (m->said.count == 0) return m->proofs.count == 0;
    if (m->proofs.count != (uint64_t)seal->manifest.chunk_count * TB_BLAKE3_BYTES) return false;
    for (uint32_t k = 0; k < seal->manifest.chunk_count; k++) {
        struct tb_blake3 proof;
        memcpy(proof.bytes, m->proofs.bytes + (size_t)k * TB_BLAKE3_BYTES, sizeof proof.bytes);
        tb_manifest_set_proof(&seal->manifest, k, &proof);
    }
    return true;
}

/* The manifest as the rank says it; its digests must hash to its root. seal->memory is the
 * caller's to release. */
static enum tb_status seal_manifest(struct tb_layouts *layouts, struct seal *seal)
{
    const struct tb_msg_seal *m = &seal->m;
    const enum tb_status status =
        tb_layouts_decode(layouts, m->head.bytes, m->head.count, &seal->memory, &seal->manifest);
    if (status != TB_OK) return status;
    if (m->digests.count != (uint64_t)seal->manifest.chunk_count * TB_DIGEST_BYTES) return TB_PEER_GARBLED;
    if (m->blobs.count != 0 && m->blobs.count != (uint64_t)seal->manifest.blob_count * TB_DIGEST_BYTES)
        return TB_PEER_GARBLED;
    memcpy(seal->manifest.digests, m->digests.bytes, m->digests.count);
    if (!take_proofs(seal)) return TB_PEER_GARBLED;
    for (uint32_t i = 0; i < seal->manifest.blob_count; i++) {
        if (tb_blob_name_writable(seal->manifest.blobs[i].name)) continue;
        snprintf(seal->why, sizeof seal->why, "blob \"%.120s\": subscribe could not write such a file",
                 seal->manifest.blobs[i].name);
        return TB_BAD_ARGUMENT;
    }
    const struct tb_digest root = tb_manifest_root(&seal->manifest);
    return tb_digest_equal(&root, &seal->manifest.root) ? TB_OK : TB_PEER_GARBLED;
}

static enum tb_status region_for(struct tb_copy *copy, char *error)
{
    struct tb_daemon *d = copy->d;
    if (copy->region != NULL) return TB_OK;
    const enum tb_status status = tb_arena_region_new(d->arena, &copy->key, &copy->region, error);
    if (status != TB_OK && status != TB_DONE_BEFORE) return status;
    copy->landing_at = tb_clock_now();
    return tb_catalog_arena_reserved(d->catalog, tb_clock_now(), &copy->key.uid);
}

static enum tb_status shard_reserve(struct tb_copy *copy, const struct seal *seal, char *error)
{
    const enum tb_status status = tb_arena_shard_reserve(copy->region, seal->m.shard, &seal->manifest, error);
    /* P3: a restart may have lost the proofs that its publisher had signed. */
    if (status == TB_DONE_BEFORE) tb_proofs_sealed_again(copy, seal->m.shard, &seal->manifest);
    if (status != TB_OK) return status;
    const enum tb_status done = tb_arena_digests_done(copy->region, seal->m.shard);
    if (done == TB_OK || done == TB_DONE_BEFORE) tb_proofs_take_over(copy, seal->m.shard);
    return done;
}

/* Its space, before the version is accepted. TB_AGAIN: an eviction makes room. */
static enum tb_status seal_reserve(struct tb_worker_session *s, struct seal *seal)
{
    struct tb_copy *copy = seal->copy;
    char error[TB_ARENA_ERROR_BYTES] = "";
    TB_ASSERT(!tb_copy_leaves(copy) && seal->m.shard < copy->key.shard_count);
    enum tb_status status = region_for(copy, error);
    if (status == TB_OK) status = shard_reserve(copy, seal, error);
    if (status == TB_DONE_BEFORE || status == TB_CONFLICT)
        return TB_OK; /* the catalog judges unequal seals */
    if (status == TB_OK) return TB_OK;
    snprintf(seal->why, sizeof seal->why, "%.200s", error);
    if (status != TB_SITE_NOMEM) return status;
    struct tb_catalog_room room;
    return tb_copies_make_room(s->d, seal->manifest.bytes, &room);
}

/* P6: sealed again after this gateway lost its arena: a version that is ready already does not
 * become so once more, and is served from now on. */
static void serve_known(struct tb_copy *copy, const struct tb_catalog_version_view *view)
{
    TB_ASSERT(tb_id_equal(&copy->key.uid, &view->key.uid));
    if (view->state != TB_VERSION_READY && view->state != TB_VERSION_KEPT) return;
    copy->key = view->key;
    tb_copy_serving_step(&copy->serving, TB_COPY_IS_READY);
    tb_copy_serve(copy);
}

static void say_too_large(const struct tb_daemon *d, const struct tb_version_key *key,
                          const struct tb_catalog_seal *c, struct seal *seal)
{
    uint64_t most;
    const uint64_t bytes = tb_catalog_manifest_bytes(d->catalog, c, &most);
    snprintf(seal->why, sizeof seal->why,
             "%s version %llu: the manifests of its shards need %llu bytes with this one, of %llu: fewer or "
             "merged tensors, or shorter names; more shards do not help",
             key->model.text, (unsigned long long)key->number, (unsigned long long)bytes,
             (unsigned long long)most);
}

/* P10: subscribe cannot write that file of both shards. `rank`: which sealed the other one; NULL:
 * not known. */
static enum tb_status file_conflict(struct seal *seal, const char *file, const char *how,
                                    const struct tb_name *rank, uint32_t shard)
{
    snprintf(seal->why, sizeof seal->why,
             "shards %u and %u have a file \"%.58s\" %s (ranks \"%.30s\" and \"%.30s\"): "
             "give one of them another name or folder",
             shard, seal->m.shard, file, how, rank != NULL ? rank->text : "?", seal->files->rank.text);
    return TB_CONFLICT;
}

/* TB_CONFLICT: shard `s` has a file of the same name with other bytes, or a folder of that name.
 * The digests that its rank said before a restart of this gateway are gone. The rank may have left,
 * so its blobs are read here. */
static enum tb_status check_files_of(struct seal *seal, const struct tb_file_index *mine, uint32_t s,
                                     const struct tb_place *place)
{
    const struct tb_shard_files *theirs = tb_shard_files_find(&seal->copy->files, s, &place->manifest->root);
    const bool said = theirs != NULL && theirs->known;
    struct tb_shard_files *read = NULL;
    if (!said && seal->files->known && tb_place_whole(place)) {
        read = tb_shard_files_read(place, &seal->manifest);
        if (read == NULL) return TB_SITE_NOMEM;
    }
    const struct tb_file_list other = {place->manifest, said           ? theirs->digests
                                                        : read != NULL ? read->digests
                                                                       : NULL};
    const char *file = tb_file_differs(mine, &other), *clashes = tb_file_clashes(mine, &other);
    tb_free(read);
    const struct tb_name *rank = theirs != NULL ? &theirs->rank : NULL;
    if (file != NULL) return file_conflict(seal, file, "with different bytes", rank, s);
    return clashes == NULL ? TB_OK : file_conflict(seal, clashes, "that is a folder of the other", rank, s);
}

/* Ranks that publish files of one name and different bytes, or a file and a folder of one name:
 * subscribe can write one of them alone. */
static enum tb_status check_files(struct seal *seal)
{
    const struct tb_copy *copy = seal->copy;
    TB_ASSERT(seal->files != NULL && tb_digest_equal(&seal->files->root, &seal->manifest.root));
    struct tb_file_index mine;
    const struct tb_file_list said = {&seal->manifest, seal->files->known ? seal->files->digests : NULL};
    tb_file_index_fill(&mine, &said);
    const char *clashes = tb_file_clashes(&mine, &said); /* a safetensors file's with a blob's */
    if (clashes != NULL) {
        snprintf(seal->why, sizeof seal->why, "\"%.120s\" is a file and a folder of one shard", clashes);
        return TB_BAD_ARGUMENT;
    }
    for (uint32_t s = 0; copy->region != NULL && s < copy->key.shard_count; s++) {
        const struct tb_place *place = s != seal->m.shard ? tb_arena_place(copy->region, s) : NULL;
        const enum tb_status status = place != NULL ? check_files_of(seal, &mine, s, place) : TB_OK;
        if (status != TB_OK) return status;
    }
    return TB_OK;
}

static enum tb_status seal_judge(struct tb_worker_session *s, struct seal *seal)
{
    struct tb_daemon *d = s->d;
    struct tb_catalog_version_view view;
    if (!tb_catalog_version_get(d->catalog, &seal->m.uid, &view)) return TB_NOT_FOUND;
    enum tb_status status = tb_worker_may(s, &view.key.model, true);
    if (status != TB_OK) return status;
    status = tb_publisher_words_check(d, &view.key, seal->m.shard, &seal->manifest, &seal->m.said, seal->why);
    if (status != TB_OK) return status;
    const struct tb_catalog_seal c = {.session = s->id,
                                      .uid = seal->m.uid,
                                      .shard = seal->m.shard,
                                      .root = seal->manifest.root,
                                      .layout_id = seal->manifest.layout.id,
                                      .chunk_count = seal->manifest.chunk_count,
                                      .bytes = seal->manifest.bytes,
                                      .manifest_bytes = tb_manifest_decoded_bytes(&seal->manifest),
                                      .export_id = seal->m.export_id,
                                      .in_place = seal->m.in_place,
                                      .retry = seal->m.retry};
    status = tb_catalog_seal_may(d->catalog, &c);
    if (status == TB_TOO_LARGE) say_too_large(d, &view.key, &c, seal);
    if (status != TB_OK) return status;
    seal->copy = tb_copy_get(d, &view.key);
    if (seal->copy == NULL) return TB_SITE_NOMEM;
    if (tb_copy_leaves(seal->copy)) return TB_SUPERSEDED;
    seal->files =
        tb_shard_files_new(&seal->manifest, &s->name, seal->m.blobs.count > 0 ? seal->m.blobs.bytes : NULL);
    if (seal->files == NULL) return TB_SITE_NOMEM;
    status = check_files(seal);
    if (status != TB_OK) return status;
    const struct tb_copy *copy = seal->copy;
    const bool known = copy->region != NULL && tb_arena_place_ready(copy->region, seal->m.shard);
    if (!known) status = tb_quota_grow(d, &view.key, seal->manifest.bytes, seal->why);
    if (status != TB_OK) return status;
    status = seal_reserve(s, seal);
    if (status != TB_OK) return status;
    const struct tb_worker_export export = {
        .uid = seal->m.uid, .base = seal->m.base, .shard = seal->m.shard, .export_id = seal->m.export_id};
    const bool sealed = tb_worker_export_find(s, &seal->m.uid, seal->m.shard) != NULL;
    status = tb_worker_export_put(s, &export, &seal->m.source);
    if (status != TB_OK) return status;
    status = tb_catalog_seal(d->catalog, tb_clock_now(), &c);
    if (status != TB_OK && status != TB_DONE_BEFORE) { /* P7: nobody would take it away */
        if (!sealed) tb_worker_exports_drop(s, &seal->m.uid, seal->m.shard);
        return status;
    }
    tb_publisher_words_keep(d, &seal->m.said);
    if (!tb_copy_is_ready(seal->copy) &&
        tb_shard_files_put(&seal->copy->files, seal->copy->key.shard_count, seal->m.shard, seal->files))
        seal->files = NULL;
    if (!tb_copy_is_whole(seal->copy)) tb_home_landing_expects(seal->copy, seal->m.shard, &seal->m.base);
    serve_known(seal->copy, &view);
    return status;
}

/* ---- seals that wait for room ---- */

static uint64_t parked_of(const struct tb_worker_session *s)
{
    uint64_t bytes = 0;
    for (const struct tb_parked_seal *p = s->d->parked; p != NULL; p = p->next)
        if (tb_id_equal(&p->session, &s->id)) bytes += p->bytes;
    return bytes;
}

static uint32_t parked_count(const struct tb_worker_session *s)
{
    uint32_t count = 0;
    for (const struct tb_parked_seal *p = s->d->parked; p != NULL; p = p->next)
        count += tb_id_equal(&p->session, &s->id);
    return count;
}

static bool may_park(const struct tb_worker_session *s, uint64_t bytes)
{
    struct tb_gauge *g = &s->d->parked_bytes;
    const bool spent =
        parked_of(s) + bytes > PARKED_SESSION_BYTES_MAX || parked_count(s) >= PARKED_SESSION_MAX;
    g->refused += spent;
    g->spent += spent;
    return !spent && tb_worker_session_share_room(s, g, PARKED_BYTES_MAX, bytes, parked_of);
}

static void seal_park(struct tb_worker_session *s, const struct tb_parked_seal *seal, const uint8_t *payload)
{
    const bool may = may_park(s, seal->bytes);
    struct tb_parked_seal *p = may ? tb_malloc(sizeof *p + seal->bytes) : NULL;
    if (p == NULL) {
        tb_worker_reply(s, seal->request, TB_SITE_NOMEM, may ? "" : "too many seals wait for room");
        return;
    }
    *p = *seal;
    memcpy(p->payload, payload, seal->bytes);
    struct tb_parked_seal **at = &s->d->parked;
    while (*at != NULL)
        at = &(*at)->next; /* first come, first served */
    *at = p;
    tb_gauge_add(&s->d->parked_bytes, p->bytes);
}

uint64_t tb_seals_max(void)
{
    return PARKED_BYTES_MAX;
}

static void parked_free(struct tb_daemon *d, struct tb_parked_seal *p)
{
    TB_ASSERT(d->parked_bytes.used >= p->bytes);
    d->parked_bytes.used -= p->bytes;
    tb_free(p);
}

static void seal_answer(struct tb_worker_session *s, uint64_t request, const struct seal *seal,
                        enum tb_status status)
{
    TB_ASSERT(status != TB_AGAIN);
    if (status < 0) {
        seal_refused(s, seal->m.shard, status, seal->why);
        tb_worker_reply(s, request, status, seal->why);
        return;
    }
    const struct tb_held_reply reply = {.request = request,
                                        .send = seal_send,
                                        .failed = seal_failed,
                                        .status = status,
                                        .shard = seal->m.shard};
    tb_reply_when_saved(s, &reply);
}

/* deadline 0: from the wire now. */
static enum tb_status seal_handle(struct tb_worker_session *s, struct tb_wire_frame *frame,
                                  tb_time_ns deadline)
{
    struct tb_reader whole = frame->payload;
    struct seal seal = {0};
    struct tb_layouts *layouts = tb_arena_layouts(s->d->arena);
    if (tb_msg_seal_decode(&frame->payload, &seal.m) != TB_OK || frame->request == 0) return TB_PEER_GARBLED;
    enum tb_status status = seal_manifest(layouts, &seal);
    if (status == TB_PEER_GARBLED) {
        tb_layouts_release(layouts, &seal.memory);
        return status;
    }
    if (status == TB_OK) status = seal_judge(s, &seal);
    tb_free(seal.files);
    if (deadline == 0) deadline = tb_time_add(tb_clock_now(), SEAL_PARKED_NS);
    if (status == TB_AGAIN && tb_clock_now() < deadline) {
        const struct tb_parked_seal parked = {.session = s->id,
                                              .uid = seal.m.uid,
                                              .shard = seal.m.shard,
                                              .request = frame->request,
                                              .deadline = deadline,
                                              .bytes = (uint32_t)whole.left};
        seal_park(s, &parked, whole.at);
        tb_layouts_release(layouts, &seal.memory);
        return TB_OK;
    }
    seal_answer(s, frame->request, &seal, status == TB_AGAIN ? TB_SITE_NOMEM : status);
    tb_layouts_release(layouts, &seal.memory);
    return TB_OK;
}

enum tb_status tb_worker_seal_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    return seal_handle(s, frame, 0);
}

void tb_seals_retry(struct tb_daemon *d)
{
    struct tb_parked_seal *list = d->parked;
    d->parked = NULL;
    while (list != NULL) {
        struct tb_parked_seal *p = list;
        list = p->next;
        struct tb_worker_session *s = tb_worker_find(d, &p->session);
        struct tb_wire_frame frame = {.type = TB_MSG_SEAL, .request = p->request};
        tb_reader_init(&frame.payload, p->payload, p->bytes);
        if (s != NULL && seal_handle(s, &frame, p->deadline) != TB_OK && s->wire != NULL) {
            tb_wire_close(s->wire, TB_PEER_GARBLED);
        }
        parked_free(d, p);
    }
}

void tb_seals_free(struct tb_daemon *d)
{
    while (d->parked != NULL) {
        struct tb_parked_seal *p = d->parked;
        d->parked = p->next;
        parked_free(d, p);
    }
}

bool tb_seals_unpark(struct tb_worker_session *s, const struct tb_id *uid, uint32_t shard)
{
    bool any = false;
    for (struct tb_parked_seal **at = &s->d->parked; *at != NULL;) {
        struct tb_parked_seal *p = *at;
        const bool named = shard == TB_CATALOG_ALL_SHARDS || shard == p->shard;
        if (!named || !tb_id_equal(&p->session, &s->id) || !tb_id_equal(&p->uid, uid)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        tb_worker_reply(s, p->request, TB_CANCELLED, "it was taken back while it waited for room");
        parked_free(s->d, p);
        any = true;
    }
    return any;
}
