/* home_landing.c - at home the gateway is a version's first reader: hops from the ranks that
 * sealed into its region. The deltas that a rank encodes come with its chunks, for the links and
 * for workers of other hosts. Over a network they come in place of the chunks. */
#include "gateway/daemon/daemon.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/catalog/versions.h"
#include "gateway/daemon/copies/copy_shelf.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/copies/repair.h"
#include "gateway/daemon/sessions/session_grant.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/source_descriptor.h"
#include "intra/hop/hop_shelf.h"
#include "intra/session_msg.h"
#include "intra/transport/transport_words.h"
#include "wan/send/codec_pace.h"
#include "wan/send/encoded_chunks.h"

#define HOP_RETRY_NS TB_MS(200)
#define LOOK_NS      TB_SECONDS(1) /* a rank digests a chunk of 32 MiB in some ms */

/* On the fabric's thread: note and wake. */
static void hop_told(void *user, struct tb_hop *hop, const struct tb_hop_event *event)
{
    (void)hop;
    const struct tb_copy_hop *h = user; /* stays until tb_hop_close has returned, and so does its serial */
    struct tb_daemon *d = h->copy->d;
    pthread_mutex_lock(&d->hop_lock);
    if (d->hop_note_count < TB_HOP_NOTES_MAX) {
        d->hop_notes[d->hop_note_count++] = (struct tb_home_hop_note){h->serial, *event};
    } else {
        d->hop_notes_lost = true;
    }
    pthread_mutex_unlock(&d->hop_lock);
    uv_async_send(&d->hop_wake);
}

static uint32_t shard_places(struct tb_copy *copy, uint32_t shard, struct tb_hop_place *places)
{
    TB_ASSERT(shard == TB_CATALOG_ALL_SHARDS || shard < copy->key.shard_count);
    uint32_t count = 0;
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        if (shard != TB_CATALOG_ALL_SHARDS && shard != s) continue;
        if (!tb_arena_place_ready(copy->region, s)) continue;
        places[count++] = (struct tb_hop_place){s, tb_arena_place(copy->region, s)};
    }
    return count;
}

/* ---- encoded chunks ---- */

static struct tb_encoded_chunk_name encoded_name(const struct tb_id *uid, const struct tb_id *base,
                                                 uint32_t shard, uint32_t shard_count)
{
    return (struct tb_encoded_chunk_name){
        .uid = uid, .base = base, .shard = shard, .shard_count = shard_count};
}

/* The most classes of any chunk: one with few changes has fewer than were asked for. Two threads
 * may write at once and one may get lost; the next chunk sets that right. */
static void classes_seen(struct tb_copy_hop *h, unsigned classes)
{
    if (classes > atomic_load_explicit(&h->classes, memory_order_relaxed))
        atomic_store_explicit(&h->classes, classes, memory_order_relaxed);
}

static void encoded_counted(struct tb_copy_hop *h, const struct tb_hop_encoded *encoded)
{
    uint32_t raw_bytes = 0;
    if (h->place == NULL || encoded->chunk >= h->place->manifest->chunk_count) return;
    (void)tb_place_chunk(h->place, encoded->chunk, &raw_bytes);
    atomic_fetch_add_explicit(&h->raw_bytes, raw_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&h->wire_bytes, encoded->coded->count, memory_order_relaxed);
}

/* On any thread of the fabric. That it is a delta to the expected base is checked here; the
 * bytes that it decodes to are digested where it is decoded. */
static void hop_encoded(void *user, const struct tb_hop_encoded *encoded)
{
    struct tb_copy_hop *h = user;
    struct tb_encoded_chunk_name name = encoded_name(&h->uid, &h->on, encoded->shard, h->shard_count);
    name.chunk = encoded->chunk;
    name.chunk_count = encoded->chunk_count;
    const struct tb_codec_coded *coded = encoded->coded;
    if (!tb_id_equal(&encoded->base, &h->on) || encoded->shard != h->shard) return;
    if (coded != NULL && !coded->form.on_base) coded = NULL;
    if (coded != NULL) {
        classes_seen(h, tb_codec_classes(coded));
        encoded_counted(h, encoded);
    }
    const struct tb_encoded_chunk_news news = {TB_ENCODED_CHUNK_OF_RANK, coded, tb_clock_now()};
    tb_encoded_chunks_put(h->encoded_chunks, &name, &news);
}

static void encoded_chunks_coming(struct tb_copy *copy, uint32_t shard, const struct tb_id *base, bool coming)
{
    struct tb_encoded_chunks *encoded_chunks = copy->d->encoded_chunks;
    const struct tb_place *place = copy->region != NULL ? tb_arena_place(copy->region, shard) : NULL;
    if (encoded_chunks == NULL || place == NULL || tb_id_is_zero(base)) return;
    struct tb_encoded_chunk_name name = encoded_name(&copy->key.uid, base, shard, copy->key.shard_count);
    name.chunk_count = place->manifest->chunk_count;
    tb_encoded_chunks_coming(encoded_chunks, &name, coming, tb_clock_now());
}

/* P7: a rank may name any base. A delta that no site can decode is not kept, and so pushes no other
 * one out. */
static bool may_be_base(const struct tb_copy *copy, const struct tb_id *uid)
{
    const struct tb_copy *base = tb_copy_find(copy->d, uid);
    return base != NULL && base != copy && tb_name_equal(&base->key.model, &copy->key.model);
}

/* A shard that is whole here is read from no rank, and nothing encoded comes of it. */
void tb_home_landing_expects(struct tb_copy *copy, uint32_t shard, const struct tb_id *base)
{
    const struct tb_place *place = copy->region != NULL ? tb_arena_place(copy->region, shard) : NULL;
    if (place == NULL || tb_place_whole(place) || !may_be_base(copy, base)) return;
    encoded_chunks_coming(copy, shard, base, true);
}

/* NULL: not a model of ours. */
static struct tb_choice_pace *pace_of(struct tb_daemon *d, const struct tb_name *model)
{
    const uint32_t row = tb_model_row_of(d, model);
    return row != TB_MODEL_NONE ? &d->paces[row] : NULL;
}

uint8_t tb_home_landing_classes(struct tb_daemon *d, const struct tb_name *model)
{
    static const struct tb_choice_pace unknown = {.classes = 0};
    const struct tb_choice_pace *pace = pace_of(d, model);
    unsigned classes = 0;
    if (d->encoded_chunks == NULL) return 0;
    if (d->links != NULL && !d->links_restarting)
        classes = tb_links_classes(d->links, model, pace != NULL ? pace : &unknown);
    if (classes == 0 && tb_copy_read_encoded(d, model))
        classes = 1; /* the fastest: readers of a chain all decode */
    return (uint8_t)classes;
}

/* The shard as it is whole in that version, if it is cut alike; the other shards of ours
 * may not be sealed yet. */
static const struct tb_place *base_place(const struct tb_copy *copy, uint32_t shard,
                                         const struct tb_copy *base)
{
    if (base == NULL || base == copy || base->life != TB_COPY_WHOLE) return NULL;
    if (!tb_name_equal(&base->key.model, &copy->key.model) || shard >= base->key.shard_count) return NULL;
    const struct tb_place *place = tb_arena_place(base->region, shard);
    const struct tb_manifest *manifest = tb_arena_place(copy->region, shard)->manifest;
    /* Publishers name layouts: two of one id and one size may still be cut at other places. */
    return tb_manifest_same_cut(manifest, place->manifest) ? place : NULL;
}

/* The rank encodes one shard, on its version before; as a rule that is whole here.
 * False: nothing is decoded. */
static bool expect_encoded_chunks(struct tb_copy_hop *h, const struct tb_worker_export *export,
                                  struct tb_hop_base *base_out)
{
    struct tb_copy *copy = h->copy;
    const bool encodes = h->shard != TB_CATALOG_ALL_SHARDS && may_be_base(copy, &export->base);
    h->encoded_chunks = encodes ? copy->d->encoded_chunks : NULL;
    if (h->encoded_chunks == NULL) return false;
    h->uid = copy->key.uid;
    h->on = export->base;
    h->shard_count = copy->key.shard_count;
    h->place = tb_arena_place(copy->region, h->shard);
    encoded_chunks_coming(copy, h->shard, &h->on, true);
    if (!tb_arena_place_ready(copy->region, h->shard)) return false;
    struct tb_copy *base = tb_copy_find(copy->d, &h->on);
    h->base_place = base_place(copy, h->shard, base);
    if (h->base_place == NULL) return false;
    h->base = base;
    base->used_by |= TB_COPY_USED_BY_LANDING;
    *base_out = (struct tb_hop_base){.uid = h->on, .places = &h->base_place};
    return true;
}

static bool is_base(const struct tb_copy *base)
{
    for (const struct tb_copy *c = base->d->copies; c != NULL; c = c->next)
        for (const struct tb_copy_hop *h = c->hops; h != NULL; h = h->next)
            if (h->base == base) return true;
    return false;
}

/* It decodes from none any more. */
static void base_leave(struct tb_copy_hop *h)
{
    struct tb_copy *base = h->base;
    TB_ASSERT(base == NULL || (base->used_by & TB_COPY_USED_BY_LANDING) != 0);
    h->base = NULL;
    if (base != NULL && !is_base(base)) base->used_by &= ~TB_COPY_USED_BY_LANDING;
}

/* ---- hops ---- */

/* P1: a chunk that a worker serves is compared with its proof, always where this gateway signs. Of
 * a rank that holds where all proofs are known before its chunks land: its publisher signed them,
 * or they landed before. */
static bool is_foreign(const struct tb_copy_hop *h)
{
    const struct tb_copy *copy = h->copy;
    if (h->shard == TB_CATALOG_ALL_SHARDS)
        return copy->d->tls != NULL || tb_arena_region_proven(copy->region);
    const struct tb_place *place = tb_arena_place(copy->region, h->shard);
    return place != NULL && tb_manifest_all_proven(place->manifest);
}

/* Chunks that no worker can bring: their proofs are not known. */
static uint32_t unproven_chunks(const struct tb_copy *copy)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < copy->key.shard_count; s++) {
        if (!tb_arena_place_ready(copy->region, s)) continue;
        const struct tb_place *place = tb_arena_place(copy->region, s);
        for (uint32_t k = 0; k < place->manifest->chunk_count; k++)
            count += !tb_place_held(place, k) && !tb_bitmap_test(place->manifest->proven, k);
    }
    return count;
}

/* P10: home takes no chunk of a worker that it could not judge. */
static void unproven_log(const struct tb_copy_hop *h, const struct tb_worker_session *s)
{
    struct tb_copy *copy = h->copy;
    const uint32_t chunks = h->shard == TB_CATALOG_ALL_SHARDS && is_foreign(h) ? unproven_chunks(copy) : 0;
    if (chunks == 0 || copy->unproven_told) return;
    copy->unproven_told = true;
    copy->d->counters.landings_unproven++;
    tb_log(TB_LOG_WARN, "landing.unproven", "worker=%s model=%s run=%llu number=%llu chunks=%u action=%s",
           s->name.text, copy->key.model.text, (unsigned long long)copy->key.run_order,
           (unsigned long long)copy->key.number, chunks, "wait_for_a_rank_or_a_proof");
}

static enum tb_status source_open(struct tb_copy_hop *h, struct tb_worker_session *s,
                                  const struct tb_worker_export *export, void *memory, size_t cap)
{
    struct tb_copy *copy = h->copy;
    struct tb_daemon *d = copy->d;
    const struct tb_source_shard *shards;
    uint32_t count;
    enum tb_status status =
        tb_source_decode(export->source, export->source_bytes, memory, cap, &shards, &count);
    if (status != TB_OK) return status;
    for (uint32_t i = 0; i < count; i++) {
        if (shards[i].shard >= copy->key.shard_count) return TB_PEER_GARBLED;
        const struct tb_place *place = tb_arena_place(copy->region, shards[i].shard);
        if (place == NULL) continue;
        status = tb_source_check(&shards[i], place->manifest);
        if (status != TB_OK) return status;
    }
    struct tb_hop_place *places = tb_calloc(copy->key.shard_count, sizeof *places);
    if (places == NULL) return TB_SITE_NOMEM;
    struct tb_hop_base base;
    struct tb_hop_options options = {.export_id = export->export_id,
                                     .token = h->token,
                                     .from = s->endpoint,
                                     .source = shards,
                                     .source_count = count,
                                     .places = places,
                                     .place_count = shard_places(copy, h->shard, places),
                                     .base = expect_encoded_chunks(h, export, &base) ? &base : NULL,
                                     .foreign = is_foreign(h),
                                     .encoded_chunks = h->encoded_chunks != NULL ? hop_encoded : NULL,
                                     .fn = hop_told,
                                     .user = h};
    status = tb_hop_open(d->fabric, &options, &h->hop);
    tb_free(places);
    if (status == TB_OK) unproven_log(h, s);
    return status;
}

/* The rank's export of the shard, while both ends are there. */
static const struct tb_worker_export *hop_source(const struct tb_copy_hop *h, struct tb_worker_session *s)
{
    if (s == NULL || s->wire == NULL || h->copy->region == NULL || tb_copy_leaves(h->copy)) return NULL;
    return tb_worker_export_find(s, &h->copy->key.uid, h->shard);
}

static enum tb_status hop_open(struct tb_copy_hop *h, struct tb_worker_session *s)
{
    TB_ASSERT(h->hop == NULL && h->base == NULL && !h->asks);
    const struct tb_worker_export *export = hop_source(h, s);
    if (export == NULL) return TB_NOT_FOUND;
    const size_t cap = tb_source_decode_bytes(export->source, export->source_bytes);
    if (cap == 0) return TB_PEER_GARBLED;
    void *memory = tb_malloc(cap);
    if (memory == NULL) return TB_SITE_NOMEM;
    h->serial = ++h->copy->d->next_hop;
    h->opened_at = tb_clock_now();
    atomic_store(&h->classes, 0);
    atomic_store(&h->raw_bytes, 0);
    atomic_store(&h->wire_bytes, 0);
    const enum tb_status status = source_open(h, s, export, memory, cap);
    tb_free(memory);
    if (status == TB_OK) return TB_OK;
    h->hop = NULL;
    base_leave(h);
    return status;
}

static struct tb_copy_hop *hop_that_asks(struct tb_daemon *d, const struct tb_grant_wait *grant)
{
    const struct tb_copy *copy = tb_copy_find(d, &grant->uid);
    struct tb_copy_hop *h = copy != NULL ? copy->hops : NULL;
    while (h != NULL && !(h->asks && tb_id_equal(&h->token, &grant->token)))
        h = h->next;
    TB_ASSERT(h != NULL); /* one that ends takes its row along */
    return h;
}

/* P10: the lines that follow are that rank's doing. */
static struct tb_log_party log_of_rank(const struct tb_worker_session *s)
{
    return tb_log_party_set((struct tb_log_party){.identity = s != NULL ? &s->identity : NULL});
}

/* A rank that did not answer in time is asked again. */
static void hop_granted(struct tb_daemon *d, const struct tb_grant_wait *grant, enum tb_status status)
{
    struct tb_copy_hop *h = hop_that_asks(d, grant);
    struct tb_worker_session *s = tb_worker_find(d, &grant->owner);
    TB_ASSERT(h->hop == NULL);
    h->asks = false;
    h->retry_at = status == TB_STREAM_IDLE ? 0 : tb_time_add(tb_clock_now(), HOP_RETRY_NS);
    if (status == TB_STREAM_IDLE) return;
    if (status == TB_OK) status = hop_open(h, s);
    if (status == TB_OK) return;
    const struct tb_log_party before = log_of_rank(s);
    tb_log(TB_LOG_WARN, "landing.refused", "worker=%s shard=%u status=%s action=retry",
           s != NULL ? s->name.text : "gone", h->shard, tb_status_name(status));
    (void)tb_log_party_set(before);
}

static void ask_end(struct tb_copy_hop *h)
{
    if (h->asks) tb_grants_drop(&h->copy->d->grants, &h->token);
    h->asks = false;
}

/* Asks the rank to accept a token; its answer opens the hop. */
static void hop_start(struct tb_copy_hop *h)
{
    struct tb_daemon *d = h->copy->d;
    struct tb_worker_session *s = tb_worker_find(d, &h->session);
    const struct tb_worker_export *export = hop_source(h, s);
    TB_ASSERT(h->hop == NULL && !h->asks);
    h->retry_at = tb_time_add(tb_clock_now(), HOP_RETRY_NS);
    if (export == NULL) return;
    struct tb_grant_wait grant = {
        .answer = hop_granted, .uid = h->copy->key.uid, .export_id = export->export_id};
    tb_random_bytes(&grant.token, sizeof grant.token);
    if (tb_grant_ask(s, &grant, &d->endpoint.fingerprint) != TB_OK) return;
    h->token = grant.token;
    h->asks = true;
}

static void hop_close(struct tb_copy_hop *h)
{
    if (h->hop == NULL) return;
    TB_ASSERT(!h->asks); /* it asks before it is open, and never again */
    struct tb_hop *hop = h->hop;
    struct tb_hop_stats last;
    h->hop = NULL;
    tb_hop_close_counted(hop, &last);
    h->copy->hop_wire_bytes += last.bytes_read;
    if (h->encoded_chunks != NULL) encoded_chunks_coming(h->copy, h->shard, &h->on, false);
    base_leave(h);
}

static void hop_free(struct tb_copy_hop *h)
{
    struct tb_copy_hop **at = &h->copy->hops;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    ask_end(h);
    hop_close(h);
    TB_ASSERT(h->hop == NULL && h->base == NULL && !h->asks);
    tb_free(h);
}

static struct tb_copy_hop *hop_from(struct tb_copy *copy, const struct tb_catalog_todo *todo)
{
    struct tb_copy_hop *h = copy->hops;
    while (h != NULL && !(h->shard == todo->shard && tb_id_equal(&h->session, &todo->session)))
        h = h->next;
    return h;
}

void tb_home_landing_from(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_copy *copy = tb_copy_find(d, &todo->uid);
    if (copy == NULL || tb_copy_leaves(copy)) return;
    struct tb_copy_hop *under_way = hop_from(copy, todo);
    if (under_way != NULL && !under_way->for_encoded_chunks) return;
    if (under_way != NULL) hop_free(under_way); /* something of it went, and is read again */
    struct tb_copy_hop *h = tb_calloc(1, sizeof *h);
    if (h == NULL) return; /* no memory: other ranks' replicas and the next seal are told of again */
    *h = (struct tb_copy_hop){.next = copy->hops,
                              .copy = copy,
                              .session = todo->session,
                              .shard = todo->shard,
                              .export_id = todo->export_id};
    copy->hops = h;
    hop_start(h);
}

/* All chunks of its shard are here, and not all deltas that its rank encodes. The hop ends with the
 * last of them, and with its rank: a rank that unpublishes ends the encoding first. */
static bool brings_encoded_chunks(const struct tb_copy_hop *h)
{
    if (h->hop == NULL || h->encoded_chunks == NULL || tb_copy_leaves(h->copy)) return false;
    const struct tb_place *place = tb_arena_place(h->copy->region, h->shard);
    return place != NULL && tb_place_whole(place);
}

void tb_home_landing_end(struct tb_daemon *d, const struct tb_catalog_todo *todo)
{
    struct tb_copy *copy = tb_copy_find(d, &todo->uid);
    struct tb_copy_hop *h = copy != NULL ? hop_from(copy, todo) : NULL;
    if (h == NULL) return;
    h->for_encoded_chunks = brings_encoded_chunks(h);
    if (!h->for_encoded_chunks) hop_free(h);
}

void tb_home_landing_stop(struct tb_copy *copy)
{
    while (copy->hops != NULL)
        hop_free(copy->hops);
}

void tb_home_landing_done(struct tb_copy *copy)
{
    TB_ASSERT(tb_copy_is_whole(copy));
    for (struct tb_copy_hop *h = copy->hops, *next; h != NULL; h = next) {
        next = h->next;
        if (h->hop == NULL || h->encoded_chunks == NULL) hop_free(h);
    }
}

void tb_home_landing_base_goes(struct tb_copy *base)
{
    TB_ASSERT(tb_copy_leaves(base));
    for (struct tb_copy *c = base->d->copies; c != NULL; c = c->next) {
        for (struct tb_copy_hop *h = c->hops; h != NULL; h = h->next) {
            if (h->base != base) continue;
            hop_close(h);
            h->retry_at = h->for_encoded_chunks ? TB_TIME_NEVER : 0;
        }
        if (tb_copy_is_whole(c)) tb_home_landing_done(c);
    }
    TB_ASSERT((base->used_by & TB_COPY_USED_BY_LANDING) == 0);
}

/* Somebody wrote to sealed bytes, or the rank's copy of them is damaged. The catalog breaks a
 * version of which one chunk was bad twice. */
static enum tb_status count_bad(const struct tb_copy_hop *h, uint32_t shard, uint32_t chunk, uint32_t times)
{
    TB_ASSERT(times == 1 || times == 2);
    struct tb_daemon *d = h->copy->d;
    const struct tb_id uid = h->copy->key.uid, session = h->session;
    enum tb_status status = TB_AGAIN;
    for (uint32_t i = 0; i < times && status == TB_AGAIN; i++)
        status = tb_catalog_chunk_bad(d->catalog, tb_clock_now(), &uid, shard, chunk, &session);
    return status;
}

/* P6: a rank that does not answer is one that has no good copy. */
static void look_is_late(struct tb_copy_hop *h, tb_time_ns now)
{
    if (h->looks_until == 0 || now < h->looks_until) return;
    h->looks_until = 0;
    (void)count_bad(h, h->looks_shard, h->looks_chunk, 2);
}

void tb_home_landing_retry(struct tb_copy *copy, tb_time_ns now)
{
    for (struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next) {
        look_is_late(h, now);
        if (h->hop == NULL && !h->asks && !h->for_encoded_chunks && now >= h->retry_at) hop_start(h);
    }
}

/* A hop whose rank was asked for access just now goes on. */
void tb_home_landing_anew(struct tb_copy *copy, tb_time_ns now)
{
    for (struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next) {
        if (h->asks || (h->hop == NULL && h->retry_at != TB_TIME_NEVER)) continue;
        hop_close(h);
        h->retry_at = now;
    }
}

void tb_home_landing_proven(struct tb_copy *copy)
{
    for (struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next)
        if (h->hop != NULL) tb_hop_proofs_came(h->hop);
}

static struct tb_copy_hop *hop_find(struct tb_daemon *d, uint64_t serial)
{
    for (struct tb_copy *c = d->copies; c != NULL; c = c->next) {
        for (struct tb_copy_hop *h = c->hops; h != NULL; h = h->next) {
            if (h->hop != NULL && h->serial == serial) return h;
        }
    }
    return NULL;
}

static const char *action_of(enum tb_status status)
{
    if (status == TB_VERSION_BROKEN) return "break_version";
    /* It holds the version without having published it: its own copy is bad, which says
     * nothing about the version. */
    return status == TB_NOT_FOUND ? "not_read_from_it" : "read_again";
}

/* The rank is asked first: it may serve a copy that it can make again. */
static bool ask_rank(struct tb_copy_hop *h, const struct tb_hop_event *event)
{
    const struct tb_report report = {.uid = h->copy->key.uid, .shard = event->shard, .chunk = event->chunk};
    if (h->looks_until != 0 || !tb_repair_ask(h->copy->d, &h->session, &report)) return false;
    h->looks_until = tb_time_add(tb_clock_now(), LOOK_NS);
    h->looks_shard = event->shard;
    h->looks_chunk = event->chunk;
    return true;
}

/* A chunk whose digest failed although its rank still had the hop open. */
static void chunk_bad(struct tb_copy_hop *h, const struct tb_hop_event *event)
{
    struct tb_daemon *d = h->copy->d;
    const struct tb_worker_session *s = tb_worker_find(d, &h->session);
    struct tb_name rank = {.text = "gone"};
    if (s != NULL) rank = s->name;
    d->counters.chunks_bad++;
    const uint32_t times = event->twice ? 2 : 1; /* the hop told only of the second time */
    const char *action = event->twice && ask_rank(h, event)
                             ? "ask_its_holder"
                             : action_of(count_bad(h, event->shard, event->chunk, times));
    const struct tb_log_party before = log_of_rank(s);
    tb_log(TB_LOG_WARN, "landing.chunk_bad", "rank=%s shard=%u chunk=%u times=%u action=%s", rank.text,
           event->shard, event->chunk, times, action);
    (void)tb_log_party_set(before);
}

/* A rank's copy that is good, or good again, is read once more, and counts as bad once: the next
 * time is one too many. A worker's takes a while to be good again. */
static void looked(struct tb_copy_hop *h, const struct tb_msg_doubted *m)
{
    TB_ASSERT(h->looks_until != 0);
    const bool spoiled = m->found == TB_MSG_FOUND_SPOILED;
    h->looks_until = 0;
    const enum tb_status status = count_bad(h, m->shard, m->chunk, spoiled ? 2 : 1);
    if (status != TB_AGAIN && m->found != TB_MSG_FOUND_AGAIN) return;
    hop_close(h);
    h->retry_at = status == TB_AGAIN ? 0 : tb_time_add(tb_clock_now(), LOOK_NS);
}

static struct tb_copy_hop *hop_that_asked(const struct tb_copy *c, const struct tb_worker_session *s,
                                          const struct tb_msg_doubted *m)
{
    for (struct tb_copy_hop *h = c->hops; h != NULL; h = h->next)
        if (h->looks_until != 0 && h->looks_shard == m->shard && h->looks_chunk == m->chunk &&
            tb_id_equal(&h->session, &s->id))
            return h;
    return NULL;
}

void tb_home_landing_looked(struct tb_worker_session *s, const struct tb_msg_doubted *m)
{
    const struct tb_copy *copy = tb_copy_find(s->d, &m->uid);
    struct tb_copy_hop *h = copy != NULL ? hop_that_asked(copy, s, m) : NULL;
    if (h != NULL) looked(h, m);
}

/* All that one rank encoded is here. Ranks encode at the same time, each its shard: the one that
 * took longest says how fast the version came. Of each its own time counts, as one may seal long
 * after another, or return. */
static void pace_take(struct tb_copy_hop *h)
{
    struct tb_copy *copy = h->copy;
    struct tb_choice_pace *pace = pace_of(copy->d, &copy->key.model);
    if (h->encoded_chunks == NULL || pace == NULL) return;
    const struct tb_choice_came came = {
        .classes = atomic_load_explicit(&h->classes, memory_order_relaxed),
        .raw_bytes = atomic_load_explicit(&h->raw_bytes, memory_order_relaxed) * copy->key.shard_count,
        .wire_bytes = atomic_load_explicit(&h->wire_bytes, memory_order_relaxed) * copy->key.shard_count,
        .took_ns = tb_time_since(h->opened_at, tb_clock_now()),
    };
    if (came.took_ns > copy->pace_ns && tb_choice_pace_take(pace, &came)) copy->pace_ns = came.took_ns;
}

static void log_opened(const struct tb_copy_hop *h, const struct tb_hop_event *event)
{
    const struct tb_worker_session *s = tb_worker_find(h->copy->d, &h->session);
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_DEBUG, "landing.hop_open");
    tb_log_str(&l, "rank", s != NULL ? s->name.text : "gone");
    tb_log_u64(&l, "shard", h->shard);
    tb_log_str(&l, "transport", tb_transport_name(event->transport));
    tb_log_str(&l, "why", tb_transport_why_text(event->why_transport));
    tb_log_end(&l);
}

static void hop_event(struct tb_daemon *d, const struct tb_home_hop_note *note)
{
    struct tb_copy_hop *h = hop_find(d, note->serial);
    if (h == NULL) return; /* closed meanwhile */
    switch (note->event.kind) {
    case TB_HOP_OPENED:
        log_opened(h, &note->event);
        break;
    case TB_HOP_ENCODED_BAD: /* the chunk comes whole; nobody else reads a rank's shelf */
        break;
    case TB_HOP_WHOLE:
        pace_take(h);
        hop_close(h);
        h->retry_at = TB_TIME_NEVER;
        /* it brought encoded chunks still */
        if (tb_copy_is_whole(h->copy) || h->for_encoded_chunks) hop_free(h);
        break;
    case TB_HOP_CHUNK_BAD:
        chunk_bad(h, &note->event);
        break;
    case TB_HOP_LOST: {
        /* links and shelves encode the rest themselves */
        if (tb_copy_is_whole(h->copy) || h->for_encoded_chunks) {
            hop_free(h);
            break;
        }
        const struct tb_worker_session *s = tb_worker_find(d, &h->session);
        d->counters.hops_lost++;
        const struct tb_log_party before = log_of_rank(s);
        tb_log(TB_LOG_WARN, "landing.hop_lost", "rank=%s shard=%u status=%s action=retry",
               s != NULL ? s->name.text : "gone", h->shard, tb_status_name(note->event.why));
        (void)tb_log_party_set(before);
        hop_close(h);
        break;
    }
    }
}

/* Notes of its hops were lost: they are closed, and opened again where chunks are still wanted. */
static void hops_anew(struct tb_copy *copy)
{
    for (struct tb_copy_hop *h = copy->hops, *next; h != NULL; h = next) {
        next = h->next;
        hop_close(h);
        if (tb_copy_is_whole(copy) || h->for_encoded_chunks) hop_free(h);
    }
}

void tb_home_landing_wake(uv_async_t *async)
{
    struct tb_daemon *d = async->data;
    static struct tb_home_hop_note notes[TB_HOP_NOTES_MAX]; /* the main loop's alone */
    pthread_mutex_lock(&d->hop_lock);
    const uint32_t count = d->hop_note_count;
    TB_ASSERT(count <= TB_HOP_NOTES_MAX);
    memcpy(notes, d->hop_notes, count * sizeof notes[0]);
    d->hop_note_count = 0;
    const bool lost = d->hop_notes_lost;
    d->hop_notes_lost = false;
    pthread_mutex_unlock(&d->hop_lock);
    for (uint32_t i = 0; i < count; i++)
        hop_event(d, &notes[i]);
    for (struct tb_copy *c = lost ? d->copies : NULL; c != NULL; c = c->next)
        hops_anew(c);
    tb_daemon_wake(d);
}
