/* session_publish.c - what publishers ask: runs, versions, seals, unpublish. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/fault.h"
#include "base/net/wire.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/copies/shard_files.h"
#include "gateway/daemon/counters.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/daemon/sessions/session_publish.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/disk/file_names.h"
#include "intra/fabric/source_descriptor.h"
#include "intra/session_msg.h"

#define SEAL_PARKED_NS TB_SECONDS(20) /* for room that an eviction makes */
/* P7: what waits so is memory besides the arena. As a rule it is under 1 MiB a seal. */
#define PARKED_BYTES_MAX         ((uint64_t)4 * TB_SESSION_FRAME_BYTES_MAX)
#define PARKED_SESSION_BYTES_MAX ((uint64_t)TB_SESSION_FRAME_BYTES_MAX)
#define PARKED_SESSION_MAX       64u
#define UNPUBLISHES_JOINED_MAX   TB_BOUNDS_JOINED /* P7 */

/* While what must be durable cannot be written, nothing new begins. */
static bool store_refuses(struct tb_worker_session *s, uint64_t request)
{
    if (!s->d->store_down) return false;
    tb_session_reply(s, request, TB_SITE_STORE, "the gateway's store cannot be written; see its log");
    return true;
}

/* ---- answers that wait for the disk ---- */

#define HELD_REPLIES_MAX 256 /* of one session: in one turn it may seal all shards of some versions */

struct held_reply {
    struct tb_held held;
    struct tb_id session;
    uint64_t request;
    void (*send)(struct tb_worker_session *s, const struct held_reply *h);
    enum tb_status status; /* of a seal */
    uint32_t shard;
    struct tb_name model; /* of a run */
    union {
        struct tb_session_run run;
        struct tb_session_version version;
    };
};

/* P10: what a number has to be above. */
static void say_newest(const struct tb_daemon *d, const struct tb_name *model,
                       char why[TB_TEXT_BYTES_MAX + 1])
{
    struct tb_catalog_run run;
    if (!tb_catalog_run_newest(d->catalog, model, &run)) return;
    const unsigned long long order = run.order, last = run.last_number;
    if (run.has_last)
        snprintf(why, TB_TEXT_BYTES_MAX + 1, "the newest run of %s is %llu, and its newest version is %llu",
                 model->text, order, last);
    else
        snprintf(why, TB_TEXT_BYTES_MAX + 1, "the newest run of %s is %llu, which has no version yet",
                 model->text, order);
}

/* P10: which run was shut out, and by which. */
static void say_fenced(const struct tb_daemon *d, const struct tb_session_run_open *m,
                       char why[TB_TEXT_BYTES_MAX + 1])
{
    struct tb_catalog_known_run known = {.order = 0};
    char run[64] = "the run with that key";
    (void)tb_catalog_known_run(d->catalog, &m->model, &known);
    if (m->was_order != 0) snprintf(run, sizeof run, "that key's run %llu", (unsigned long long)m->was_order);
    snprintf(why, TB_TEXT_BYTES_MAX + 1, "%s of %s was shut out: run %llu is newer", run, m->model.text,
             (unsigned long long)known.order);
}

/* What a refusal says beside its status; "" where that is all there is to it. */
static const char *publish_why(struct tb_daemon *d, const struct tb_name *model, enum tb_status status,
                               char out[TB_TEXT_BYTES_MAX + 1])
{
    struct tb_name home;
    out[0] = 0;
    if (status == TB_BAD_STATE) say_newest(d, model, out);
    if (status != TB_NOT_HOME || !tb_home_of(d, model, &home)) return out;
    snprintf(out, TB_TEXT_BYTES_MAX + 1, "the home of %s is %s, and this gateway is of %s: publish there",
             model->text, home.text, d->site.text);
    return out;
}

static void seal_refused(struct tb_worker_session *s, uint32_t shard, enum tb_status status, const char *why)
{
    s->d->counters.seals_refused++;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "seal.refused");
    tb_log_str(&l, "worker", s->name.text);
    tb_log_u64(&l, "shard", shard);
    tb_log_str(&l, "status", tb_status_name(status));
    if (why[0] != '\0') tb_log_str(&l, "why", why);
    tb_log_end(&l);
}

static void run_send(struct tb_worker_session *s, const struct held_reply *h)
{
    TB_SESSION_SEND(s, TB_SESSION_RUN, h->request, &h->run, TB_SESSION_SMALL, tb_session_run_encode);
}

static void version_send(struct tb_worker_session *s, const struct held_reply *h)
{
    TB_SESSION_SEND(s, TB_SESSION_VERSION, h->request, &h->version, TB_SESSION_SMALL,
                    tb_session_version_encode);
}

static void seal_send(struct tb_worker_session *s, const struct held_reply *h)
{
    if (h->status == TB_OK) s->d->counters.seals++;
    tb_session_reply(s, h->request, h->status, "");
}

static void held_reply_done(struct tb_daemon *d, struct tb_held *held, enum tb_status status)
{
    struct held_reply *h = (struct held_reply *)(void *)held;
    struct tb_worker_session *s = tb_session_find(d, &h->session);
    if (status == TB_OK && h->send == run_send) tb_home_runs_opened(d, &h->model);
    if (s != NULL) {
        if (s->held_replies != 0) s->held_replies--; /* 0: its connection is another one meanwhile */
        if (status == TB_OK) {
            h->send(s, h);
        } else {
            if (h->send == seal_send) seal_refused(s, h->shard, status, "");
            tb_session_reply(s, h->request, status, "");
        }
    }
    tb_free(h);
}

/* `reply` goes out once what the request made is durable. */
static void reply_when_saved(struct tb_worker_session *s, const struct held_reply *reply)
{
    const bool full = s->held_replies >= HELD_REPLIES_MAX;
    if (full) tb_persist_refused(s->d);
    struct held_reply *h = full ? NULL : tb_malloc(sizeof *h);
    enum tb_status status = TB_SITE_NOMEM;
    if (h != NULL) {
        *h = *reply;
        h->held = (struct tb_held){.fn = held_reply_done};
        h->session = s->id;
        s->held_replies++;
        status = tb_persist_then(s->d, &h->held);
        if (status != TB_OK) s->held_replies--;
    }
    if (status == TB_OK) return;
    tb_free(h);
    tb_session_reply(s, reply->request, status, "too many requests wait for the gateway's store");
}

/* ---- runs and versions ---- */

enum tb_status tb_session_run_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_session_run_open m;
    const struct tb_wire_frame whole = *frame;
    if (tb_session_run_open_decode(&frame->payload, &m) != TB_OK || frame->request == 0)
        return TB_PEER_GARBLED;
    if (store_refuses(s, frame->request)) return TB_OK;
    enum tb_status status = tb_session_may(s, &m.model, true);
    if (status == TB_OK && tb_home_runs_holds(s, &m.model, &whole)) return TB_OK;
    struct tb_catalog_run_request q = {
        .session = s->id, .model = m.model, .key = m.key.text, .joins = m.joins, .was_order = m.was_order};
    tb_random_bytes(&q.fresh_id, sizeof q.fresh_id);
    struct tb_catalog_run run = {0};
    bool joined = false;
    if (status == TB_OK) status = tb_catalog_run_open(d->catalog, tb_clock_now(), &q, &run, &joined);
    if (status != TB_OK) {
        char why[TB_TEXT_BYTES_MAX + 1];
        publish_why(d, &m.model, status, why);
        if (status == TB_FENCED) say_fenced(d, &m, why);
        tb_session_reply(s, frame->request, status, why);
        return TB_OK;
    }
    const struct held_reply reply = {.request = frame->request,
                                     .send = run_send,
                                     .model = m.model,
                                     .run = {.run = run.id,
                                             .run_order = run.order,
                                             .joined = joined,
                                             .has_last = run.has_last,
                                             .last_number = run.last_number,
                                             .resumed_run_order = run.resumed_run_order,
                                             .resumed_number = run.resumed_number,
                                             .shut_out_order = run.shut_out_order,
                                             .shut_out_has_last = run.shut_out_has_last,
                                             .shut_out_number = run.shut_out_number}};
    reply_when_saved(s, &reply);
    return TB_OK;
}

enum tb_status tb_session_version_open_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_session_version_open m;
    const struct tb_wire_frame whole = *frame;
    if (tb_session_version_open_decode(&frame->payload, &m) != TB_OK || frame->request == 0)
        return TB_PEER_GARBLED;
    if (store_refuses(s, frame->request)) return TB_OK;
    enum tb_status status = tb_session_may(s, &m.model, true);
    if (status == TB_OK && tb_home_runs_holds(s, &m.model, &whole)) return TB_OK;
    struct tb_catalog_version_request q = {
        .session = s->id, .model = m.model, .run = m.run, .number = m.number, .shard_count = m.shard_count};
    tb_random_bytes(&q.fresh_uid, sizeof q.fresh_uid);
    struct tb_version_key key;
    if (status == TB_OK) status = tb_catalog_version_open(d->catalog, tb_clock_now(), &q, &key);
    if (status != TB_OK) {
        char why[TB_TEXT_BYTES_MAX + 1];
        const bool full = status == TB_SITE_NOMEM;
        publish_why(d, &m.model, status, why);
        if (status == TB_NOT_FOUND)
            snprintf(why, sizeof why, "this gateway does not know that run of %s: open the run again",
                     m.model.text);
        tb_session_reply(s, frame->request, status, full ? tb_catalog_full(d->catalog) : why);
        return TB_OK;
    }
    const struct held_reply reply = {.request = frame->request,
                                     .send = version_send,
                                     .version = {.key = key, .classes = tb_landing_classes(d, &m.model)}};
    reply_when_saved(s, &reply);
    return TB_OK;
}

/* ---- SEAL ---- */

struct seal {
    struct tb_session_seal m;
    struct tb_manifest_memory memory;
    struct tb_manifest manifest;
    struct tb_copy *copy;
    struct tb_shard_files *files; /* what this shard says of them; the copy's once it is sealed */
    char why[256];
};

/* The manifest as the rank says it; its digests must hash to its root. seal->memory is the
 * caller's to release. */
static enum tb_status seal_manifest(struct tb_layouts *layouts, struct seal *seal)
{
    const struct tb_session_seal *m = &seal->m;
    const enum tb_status status =
        tb_layouts_decode(layouts, m->head.bytes, m->head.count, &seal->memory, &seal->manifest);
    if (status != TB_OK) return status;
    if (m->digests.count != (uint64_t)seal->manifest.chunk_count * TB_DIGEST_BYTES) return TB_PEER_GARBLED;
    if (m->blobs.count != 0 && m->blobs.count != (uint64_t)seal->manifest.blob_count * TB_DIGEST_BYTES)
        return TB_PEER_GARBLED;
    memcpy(seal->manifest.digests, m->digests.bytes, m->digests.count);
    for (uint32_t i = 0; i < seal->manifest.blob_count; i++) {
        if (tb_blob_name_writable(seal->manifest.blobs[i].name)) continue;
        snprintf(seal->why, sizeof seal->why, "blob \"%.120s\": subscribe could not write such a file",
                 seal->manifest.blobs[i].name);
        return TB_BAD_ARGUMENT;
    }
    const struct tb_digest root = tb_manifest_root(&seal->manifest);
    return tb_digest_equal(&root, &seal->manifest.root) ? TB_OK : TB_PEER_GARBLED;
}

/* Its space, before the version is accepted. TB_AGAIN: an eviction makes room. */
static enum tb_status seal_reserve(struct tb_worker_session *s, struct seal *seal)
{
    struct tb_daemon *d = s->d;
    struct tb_copy *copy = seal->copy;
    char error[TB_ARENA_ERROR_BYTES] = "";
    enum tb_status status = TB_OK;
    if (copy->region == NULL) {
        status = tb_arena_region_new(d->arena, &copy->key, &copy->region, error);
        if (status == TB_DONE_BEFORE) status = TB_OK;
        if (status == TB_OK) copy->landing_at = tb_clock_now();
        if (status == TB_OK) status = tb_catalog_arena_reserved(d->catalog, tb_clock_now(), &copy->key.uid);
    }
    if (status == TB_OK) status = tb_arena_shard_reserve(copy->region, seal->m.shard, &seal->manifest, error);
    if (status == TB_DONE_BEFORE || status == TB_CONFLICT)
        return TB_OK; /* the catalog judges unequal seals */
    if (status == TB_OK) {
        status = tb_arena_digests_done(copy->region, seal->m.shard);
        return status == TB_DONE_BEFORE ? TB_OK : status;
    }
    snprintf(seal->why, sizeof seal->why, "%.200s", error);
    if (status == TB_SITE_NOMEM) {
        struct tb_catalog_room room;
        status = tb_copies_make_room(d, seal->manifest.bytes, &room);
    }
    return status;
}

/* P6: sealed again after this gateway lost its arena: a version that is ready already does not
 * become so once more, and is served from now on. */
static void serve_known(struct tb_copy *copy, const struct tb_catalog_version_view *view)
{
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

/* P10: a file of that name is in another shard, too, with other bytes. `rank`: which sealed it;
 * NULL: not known. */
static enum tb_status file_conflict(struct seal *seal, const char *file, const struct tb_name *rank,
                                    uint32_t shard)
{
    snprintf(seal->why, sizeof seal->why,
             "shards %u and %u have a file \"%.70s\" with different bytes (ranks \"%.30s\" and \"%.30s\"): "
             "give one of them another name or folder",
             shard, seal->m.shard, file, rank != NULL ? rank->text : "?", seal->files->rank.text);
    return TB_CONFLICT;
}

/* Ranks that publish files of one name and different bytes: subscribe can write one of them
 * alone. */
static enum tb_status check_files(struct seal *seal)
{
    const struct tb_copy *copy = seal->copy;
    struct tb_file_index mine;
    const struct tb_file_list said = {&seal->manifest, seal->files->known ? seal->files->digests : NULL};
    tb_file_index_fill(&mine, &said);
    for (uint32_t s = 0; copy->region != NULL && s < copy->key.shard_count; s++) {
        const struct tb_place *place = s != seal->m.shard ? tb_arena_place(copy->region, s) : NULL;
        if (place == NULL) continue;
        const struct tb_shard_files *theirs = tb_shard_files_find(&copy->files, s, &place->manifest->root);
        const struct tb_file_list other = {place->manifest,
                                           theirs != NULL && theirs->known ? theirs->digests : NULL};
        const char *file = tb_file_differs(&mine, &other);
        if (file != NULL) return file_conflict(seal, file, theirs != NULL ? &theirs->rank : NULL, s);
    }
    return TB_OK;
}

static enum tb_status seal_judge(struct tb_worker_session *s, struct seal *seal)
{
    struct tb_daemon *d = s->d;
    struct tb_catalog_version_view view;
    if (!tb_catalog_version_get(d->catalog, &seal->m.uid, &view)) return TB_NOT_FOUND;
    enum tb_status status = tb_session_may(s, &view.key.model, true);
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
    status = seal_reserve(s, seal);
    if (status != TB_OK) return status;
    const struct tb_worker_export export = {
        .uid = seal->m.uid, .base = seal->m.base, .shard = seal->m.shard, .export_id = seal->m.export_id};
    const bool sealed = tb_session_export_find(s, &seal->m.uid, seal->m.shard) != NULL;
    status = tb_session_export_put(s, &export, &seal->m.source);
    if (status != TB_OK) return status;
    status = tb_catalog_seal(d->catalog, tb_clock_now(), &c);
    if (status != TB_OK && status != TB_DONE_BEFORE) { /* P7: nobody would take it away */
        if (!sealed) tb_session_exports_drop(s, &seal->m.uid, seal->m.shard);
        return status;
    }
    if (!tb_copy_is_ready(seal->copy) &&
        tb_shard_files_put(&seal->copy->files, seal->copy->key.shard_count, seal->m.shard, seal->files))
        seal->files = NULL;
    if (!tb_copy_is_whole(seal->copy)) tb_landing_expects(seal->copy, seal->m.shard, &seal->m.base);
    serve_known(seal->copy, &view);
    return status;
}

static bool may_park(const struct tb_daemon *d, const struct tb_id *session, uint64_t bytes)
{
    uint64_t all = bytes, own = bytes;
    uint32_t count = 0;
    for (const struct tb_parked_seal *p = d->parked; p != NULL; p = p->next) {
        all += p->bytes;
        if (!tb_id_equal(&p->session, session)) continue;
        own += p->bytes;
        count++;
    }
    return all <= PARKED_BYTES_MAX && own <= PARKED_SESSION_BYTES_MAX && count < PARKED_SESSION_MAX;
}

static void seal_park(struct tb_worker_session *s, const struct tb_parked_seal *seal, const uint8_t *payload)
{
    const bool may = may_park(s->d, &s->id, seal->bytes);
    s->d->parked_bytes.refused += !may;
    struct tb_parked_seal *p = may ? tb_malloc(sizeof *p + seal->bytes) : NULL;
    if (p == NULL) {
        tb_session_reply(s, seal->request, TB_SITE_NOMEM, may ? "" : "too many seals wait for room");
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

uint64_t tb_unpublishes_max(const struct tb_daemon *d)
{
    return d->bounds.references + (uint64_t)UNPUBLISHES_JOINED_MAX * d->bounds.sessions;
}

uint64_t tb_seals_max(void)
{
    return PARKED_BYTES_MAX;
}

static void parked_free(struct tb_daemon *d, struct tb_parked_seal *p)
{
    d->parked_bytes.used -= p->bytes;
    tb_free(p);
}

static void seal_answer(struct tb_worker_session *s, uint64_t request, const struct seal *seal,
                        enum tb_status status)
{
    if (status < 0) {
        seal_refused(s, seal->m.shard, status, seal->why);
        tb_session_reply(s, request, status, seal->why);
        return;
    }
    const struct held_reply reply = {
        .request = request, .send = seal_send, .status = status, .shard = seal->m.shard};
    reply_when_saved(s, &reply);
}

/* deadline 0: from the wire now. */
static enum tb_status seal_handle(struct tb_worker_session *s, struct tb_wire_frame *frame,
                                  tb_time_ns deadline)
{
    struct tb_reader whole = frame->payload;
    struct seal seal = {0};
    struct tb_layouts *layouts = tb_arena_layouts(s->d->arena);
    if (tb_session_seal_decode(&frame->payload, &seal.m) != TB_OK || frame->request == 0)
        return TB_PEER_GARBLED;
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

enum tb_status tb_session_seal_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
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
        struct tb_worker_session *s = tb_session_find(d, &p->session);
        struct tb_wire_frame frame = {.type = TB_SESSION_SEAL, .request = p->request};
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

/* ---- UNPUBLISH ---- */

/* What waits for room is taken back as well: sealed after that it would name an
 * export that is closed. */
static bool seals_unpark(struct tb_worker_session *s, const struct tb_session_unpublish *m)
{
    bool any = false;
    for (struct tb_parked_seal **at = &s->d->parked; *at != NULL;) {
        struct tb_parked_seal *p = *at;
        const bool named = m->shard == TB_CATALOG_ALL_SHARDS || m->shard == p->shard;
        if (!named || !tb_id_equal(&p->session, &s->id) || !tb_id_equal(&p->uid, &m->uid)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        tb_session_reply(s, p->request, TB_CANCELLED, "it was taken back while it waited for room");
        parked_free(s->d, p);
        any = true;
    }
    return any;
}

static enum tb_status unpublish_ask(const struct tb_worker_session *s, const struct tb_session_unpublish *m)
{
    struct tb_catalog *c = s->d->catalog;
    const bool gone = m->shard != TB_CATALOG_ALL_SHARDS && (m->drain_ms & TB_SESSION_UNPUBLISH_GONE) != 0;
    if (!gone) return tb_catalog_unpublish(c, tb_clock_now(), &s->id, &m->uid, m->shard, TB_MS(m->drain_ms));
    const tb_time_ns drain = TB_MS(m->drain_ms & ~TB_SESSION_UNPUBLISH_GONE);
    return tb_catalog_unpublish_gone(c, tb_clock_now(), &s->id, &m->uid, m->shard, drain);
}

/* Who came back says again what it had asked for: it waits once. Returns how many wait besides. */
static uint32_t unpublish_forget(struct tb_worker_session *s, uint64_t request,
                                 struct tb_unpublish_wait *before_out)
{
    uint32_t count = 0;
    for (struct tb_unpublish_wait **at = &s->unpublishes; *at != NULL;) {
        struct tb_unpublish_wait *u = *at;
        if (u->request != request) {
            at = &u->next;
            count++;
            continue;
        }
        *at = u->next;
        *before_out = *u;
        s->d->unpublish_waits.used--;
        tb_free(u);
    }
    return count;
}

/* P3: a chunk that has rotted here is taken from the rank before it goes, also when the verifier's
 * wake is still to come. P1: what another request hid (or this one, before the connection was cut)
 * is still read until that drain ends: the answer waits for it as well. Where nothing is hidden
 * anew, what was told of it before still counts: some of it may have come back into sight. */
enum tb_status tb_session_unpublish_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_session_unpublish m;
    if (tb_session_unpublish_decode(&frame->payload, &m) != TB_OK || frame->request == 0)
        return TB_PEER_GARBLED;
    struct tb_unpublish_wait *u = tb_calloc(1, sizeof *u), before = {.status = TB_OK};
    tb_copies_rotted(s->d);
    enum tb_status status = u == NULL ? TB_SITE_NOMEM : unpublish_ask(s, &m);
    const uint32_t waiting = unpublish_forget(s, frame->request, &before);
    const bool anew = status == TB_OK, unparked = seals_unpark(s, &m);
    if (status == TB_DONE_BEFORE) {
        status = waiting < UNPUBLISHES_JOINED_MAX ? TB_OK : TB_SITE_NOMEM;
        s->d->unpublish_waits.refused += status != TB_OK;
    }
    if (status != TB_OK) {
        tb_free(u);
        tb_session_reply(s, frame->request, status == TB_NOT_FOUND && unparked ? TB_OK : status, "");
        return TB_OK;
    }
    *u = (struct tb_unpublish_wait){
        .next = s->unpublishes, .uid = m.uid, .shard = m.shard, .request = frame->request};
    if (!anew) {
        u->status = before.status;
        u->judged = before.judged;
    }
    s->unpublishes = u;
    tb_gauge_add(&s->d->unpublish_waits, 1);
    return TB_OK;
}

/* P10: a rank that took its memory away before all of it was here. What that costs, version.state
 * says. */
static void tell_gone(const struct tb_catalog_todo *todo)
{
    char uid[TB_HEX_CHARS];
    tb_id_format(&todo->uid, uid);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "unpublish.gone");
    tb_log_str(&l, "worker", todo->name.text);
    tb_log_str(&l, "uid", uid);
    tb_log_u64(&l, "shard", todo->shard);
    tb_log_end(&l);
}

static const char *unpublished_why(enum tb_status status)
{
    if (status == TB_OK) return "";
    return status == TB_PEER_REVOKED ? "the gateway could not take it in time, and the memory went"
                                     : "the gateway could not take it in time";
}

/* Who asked for all hears that something stays; who asked for one, how that one ended. */
static void unpublish_note(struct tb_unpublish_wait *u, const struct tb_catalog_todo *todo)
{
    const bool own = u->shard == todo->shard && u->shard != TB_CATALOG_ALL_SHARDS;
    if (u->judged && !own) return;
    if (u->shard == TB_CATALOG_ALL_SHARDS && todo->status == TB_PEER_REVOKED)
        return; /* told to who asked for that one */
    if (own || u->status == TB_OK || todo->status == TB_TIMEOUT) u->status = todo->status;
    u->judged = own;
}

/* Whether `u` asked for some of what this is about, and all that it asked for has ended or come
 * back. */
static bool unpublish_over(const struct tb_worker_session *s, struct tb_unpublish_wait *u,
                           const struct tb_catalog_todo *todo)
{
    const bool all = u->shard == TB_CATALOG_ALL_SHARDS || todo->shard == TB_CATALOG_ALL_SHARDS;
    if (!tb_id_equal(&u->uid, &todo->uid) || (!all && u->shard != todo->shard)) return false;
    unpublish_note(u, todo);
    return !tb_catalog_unpublishing(s->d->catalog, &s->id, &u->uid, u->shard);
}

void tb_session_unpublished(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    if (todo->status == TB_PEER_REVOKED) tell_gone(todo);
    struct tb_worker_session *s = tb_session_find(d, &todo->session);
    if (s == NULL) return;
    if (todo->status != TB_TIMEOUT) tb_session_exports_drop(s, &todo->uid, todo->shard);
    for (struct tb_unpublish_wait **at = &s->unpublishes; *at != NULL;) {
        struct tb_unpublish_wait *u = *at;
        if (!unpublish_over(s, u, todo)) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        tb_session_reply(s, u->request, u->status, unpublished_why(u->status));
        d->unpublish_waits.used--;
        tb_free(u);
    }
}
