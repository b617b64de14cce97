/* staging_fill.c - how a staging fills: its export is opened at once, plans become hops, and what
 * hops say is told to the gateway.
 *
 * Everything here runs on the session thread and under the lock, but for hop_said, which the fabric
 * calls. */
#include "intra/client/follow/staging_fill.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_notices.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/session/session.h"
#include "intra/cuda_part_stage.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/source_descriptor.h"
#include "intra/hop/hop_shelf.h"

/* ---- hops ---- */

static void note_bad(struct tb_hop_note *note, const struct tb_hop_event *event)
{
    if (note->bad_count == sizeof note->bad / sizeof note->bad[0]) return;
    note->bad[note->bad_count++] = (struct tb_hop_bad){
        .shard = event->shard, .chunk = event->chunk, .encoded = event->kind == TB_HOP_ENCODED_BAD};
}

/* On the fabric's thread: notes what happened and wakes the session thread. */
static void hop_said(void *user, struct tb_hop *hop, const struct tb_hop_event *event)
{
    (void)hop;
    struct tb_staging *st = user;
    pthread_mutex_lock(&st->note_lock);
    struct tb_hop_note *note = &st->note;
    switch (event->kind) {
    case TB_HOP_OPENED:
        note->opened = true;
        note->transport = event->transport;
        note->why_transport = event->why_transport;
        break;
    case TB_HOP_LOST:
        note->lost = true;
        note->why = event->why;
        break;
    case TB_HOP_CHUNK_BAD:
        if (event->twice) note_bad(note, event);
        break;
    case TB_HOP_ENCODED_BAD:
        note_bad(note, event);
        break;
    case TB_HOP_WHOLE:
        note->whole = true;
        break;
    }
    pthread_mutex_unlock(&st->note_lock);
    tb_session_wake(st->session);
}

static void became_whole(struct tb_session *s, struct tb_staging *st)
{
    tb_staging_close_hop(st);
    if (st->shelf_offset != 0) tb_shelf_close(&st->shelf);
    tb_staging_step(&st->life, TB_STAGING_LANDED);
    tb_log(TB_LOG_DEBUG, "staging.whole",
           "number=%llu bytes=%llu gpu_bytes=%llu read_bytes=%llu encoded_bytes=%llu encoded_chunks=%u of=%u",
           (unsigned long long)st->key.number, (unsigned long long)st->memory.count,
           (unsigned long long)st->stage_bytes, (unsigned long long)st->read.bytes_read,
           (unsigned long long)st->read.bytes_encoded, st->read.chunks_encoded, st->total_chunks);
    tb_staging_progress_notice(s, st);
    tb_session_changed(s, true);
}

/* A hop that is closed tells nothing more, and its last chunk may have come since we listened.
 * False: more has to come. */
static bool ends_whole(struct tb_session *s, struct tb_staging *st)
{
    tb_staging_close_hop(st);
    if (!tb_staging_is_whole(st)) return false;
    became_whole(s, st);
    return true;
}

void tb_staging_base_goes(struct tb_session *s, const struct tb_staging *base)
{
    TB_ASSERT_LOCKED(s);
    for (struct tb_staging *st = s->stagings; st != NULL; st = st->next) {
        if (st->base != base || st->hop == NULL) continue;
        const uint64_t plan = st->plan;
        if (!ends_whole(s, st)) tb_staging_lost_notice(s, st, plan, TB_CANCELLED);
    }
}

/* A hop that runs has passed the chunk: it ends, and the next plan's begins anew. A staging that
 * was whole gets a plan once the gateway hears that it is not. */
void tb_staging_read_again(struct tb_session *s, struct tb_staging *st)
{
    TB_ASSERT_LOCKED(s);
    const bool reads = st->hop != NULL;
    const uint64_t plan = st->plan;
    tb_staging_close_hop(st);
    tb_staging_step(&st->life, TB_STAGING_READ_AGAIN);
    st->told_chunks = UINT32_MAX; /* until it is told */
    tb_staging_progress_notice(s, st);
    if (reads) tb_staging_lost_notice(s, st, plan, TB_CANCELLED);
    tb_session_changed(s, false);
}

void tb_staging_unserve(struct tb_session *s, struct tb_staging *st)
{
    TB_ASSERT_LOCKED(s);
    st->unserved = true;
    tb_staging_export_notice(s, st);
}

/* ---- what a hop may decode from ---- */

static bool same_cut(const struct tb_staging *a, const struct tb_staging *b)
{
    if (a->key.shard_count != b->key.shard_count) return false;
    for (uint32_t i = 0; i < a->key.shard_count; i++)
        if (!tb_manifest_same_cut(&a->shards[i].manifest, &b->shards[i].manifest)) return false;
    return true;
}

static bool older(const struct tb_staging *a, const struct tb_staging *b)
{
    if (a->key.run_order != b->key.run_order) return a->key.run_order < b->key.run_order;
    return a->key.number < b->key.number;
}

/* The newest older version that is whole here: what the gateway encodes against, where this process
 * has kept up. */
static struct tb_staging *find_base(const struct tb_session *s, const struct tb_staging *st)
{
    struct tb_staging *best = NULL;
    for (struct tb_staging *b = s->stagings; b != NULL; b = b->next) {
        if (b->life != TB_STAGING_WHOLE || tb_staging_reads_only(b)) continue;
        if (!tb_name_equal(&b->key.model, &st->key.model)) continue;
        if (older(b, st) && (best == NULL || older(best, b)) && same_cut(b, st)) best = b;
    }
    return best;
}

/* A patch is made on what its buffers hold: the active version of the subscription that switches
 * them. One whose buffers were written since decodes nothing, nor does a device without kernels, so
 * no deltas are asked for. */
static void set_patch_base(const struct tb_session *s, const struct tb_staging *st,
                           struct tb_hop_base *base_out)
{
    TB_ASSERT(st->patch_for != NULL && st->shelf_offset == 0);
    const struct tb_gpu_memory *gpu = st->patch_for->gpu;
    if (!tb_patch_rests(st->patch) || (gpu != NULL && !tb_gpu_may_patch(gpu))) return;
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next)
        if (sub->registration == st->patch_for && tb_id_is_zero(&sub->torn) && !tb_id_is_zero(&sub->active))
            *base_out = (struct tb_hop_base){.uid = sub->active, .owner_decodes = true};
}

static void set_base(struct tb_session *s, struct tb_staging *st, struct tb_hop_base *base_out)
{
    *base_out = (struct tb_hop_base){.places = NULL};
    if (st->patch != NULL) set_patch_base(s, st, base_out);
    st->base = st->shelf_offset != 0 ? find_base(s, st) : NULL;
    if (st->base == NULL) return;
    if (st->base_places == NULL) st->base_places = tb_calloc(st->key.shard_count, sizeof(struct tb_place *));
    if (st->base_places == NULL) {
        st->base = NULL; /* chunks come whole */
        return;
    }
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        st->base_places[i] = &st->base->shards[i].place;
    *base_out = (struct tb_hop_base){.uid = st->base->uid, .places = st->base_places};
}

/* The source's tables fit the manifests: counts, offsets and shards that exist, each once. */
static enum tb_status check_source(const struct tb_staging *st, const struct tb_source_shard *source,
                                   uint32_t count)
{
    if (count == 0 || count > st->key.shard_count) return TB_PEER_GARBLED;
    for (uint32_t i = 0; i < count; i++) {
        if (source[i].shard >= st->key.shard_count) return TB_PEER_GARBLED;
        const enum tb_status status = tb_source_check(&source[i], &st->shards[source[i].shard].manifest);
        if (status != TB_OK) return status;
    }
    return TB_OK;
}

static enum tb_status endpoint_of(const struct tb_session *s, const struct tb_msg_plan *m,
                                  struct tb_fabric_endpoint *out)
{
    memset(out, 0, sizeof *out);
    if (strlen(m->shm_door.text) >= sizeof out->shm_door || strlen(m->tcp.text) >= sizeof out->tcp)
        return TB_PEER_GARBLED;
    out->host = m->host;
    out->tls = m->tls;
    out->fingerprint = m->print;
    memcpy(out->shm_door, m->shm_door.text, strlen(m->shm_door.text));
    /* Weights in clear only where the site's configuration says that its network is trusted
     * (P8). */
    if (m->tls || s->fabric_trusted) memcpy(out->tcp, m->tcp.text, strlen(m->tcp.text));
    return TB_OK;
}

static enum tb_status open_hop(struct tb_session *s, struct tb_staging *st, const struct tb_msg_plan *m,
                               const struct tb_source_shard *source, uint32_t source_count)
{
    TB_ASSERT(st->life == TB_STAGING_READING && st->hop == NULL);
    struct tb_hop_place *places = tb_calloc(st->key.shard_count, sizeof *places);
    if (places == NULL) return TB_SITE_NOMEM;
    uint32_t count = 0;
    struct tb_hop_base base;
    set_base(s, st, &base);
    const bool all = st->shelf_offset != 0 || base.owner_decodes; /* shelves are of all shards */
    for (uint32_t i = 0; i < st->key.shard_count; i++)
        if (all || !tb_place_whole(&st->shards[i].place))
            places[count++] = (struct tb_hop_place){i, &st->shards[i].place};
    struct tb_hop_options options = {.export_id = m->export_id,
                                     .token = m->token,
                                     .source = source,
                                     .source_count = source_count,
                                     .places = places,
                                     .place_count = count,
                                     .base = &base,
                                     .shelf = st->shelf_offset != 0 ? &st->shelf : NULL,
                                     .feeds = st->export_id,
                                     .foreign = m->foreign || tb_home_word_is_demanded(st),
                                     .gpu = s->gpu,
                                     .order_seed = 0,
                                     .fn = hop_said,
                                     .user = st};
    enum tb_status status = endpoint_of(s, m, &options.from);
    st->plan = m->plan;
    if (status == TB_OK) status = tb_hop_open(s->fabric, &options, &st->hop);
    if (status == TB_OK && !options.foreign) st->believed = true;
    if (status != TB_OK) {
        st->hop = NULL;
        st->base = NULL;
    }
    tb_free(places);
    return status;
}

static enum tb_status follow_plan(struct tb_session *s, struct tb_staging *st, const struct tb_msg_plan *m)
{
    TB_ASSERT(st->life == TB_STAGING_READING);
    const size_t bytes = tb_source_decode_bytes(m->source.bytes, m->source.count);
    if (bytes == 0) return TB_PEER_GARBLED;
    void *memory = tb_malloc(bytes);
    const struct tb_source_shard *source;
    uint32_t count;
    enum tb_status status = memory == NULL ? TB_SITE_NOMEM : TB_OK;
    if (status == TB_OK)
        status = tb_source_decode(m->source.bytes, m->source.count, memory, bytes, &source, &count);
    if (status == TB_OK) status = check_source(st, source, count);
    /* A later plan replaces the source; what is held stays. */
    if (status == TB_OK && !ends_whole(s, st)) {
        status = open_hop(s, st, m, source, count);
        /* Not our source to use: the gateway hears it and has others. */
        if (status != TB_OK && status != TB_PEER_GARBLED) {
            tb_staging_lost_notice(s, st, m->plan, status);
            status = TB_OK;
        }
    }
    tb_free(memory);
    if (status != TB_SITE_NOMEM) return status;
    /* P6: or the gateway would take it for followed */
    tb_staging_lost_notice(s, st, m->plan, status);
    return TB_OK;
}

/* Only the newest plan counts. */
static enum tb_status keep_plan(struct tb_staging *st, const struct tb_msg_plan *m)
{
    struct tb_msg_plan *kept = tb_malloc(sizeof *kept + m->source.count);
    if (kept == NULL) {
        tb_staging_lost_notice(st->session, st, m->plan, TB_SITE_NOMEM);
        return TB_SITE_NOMEM;
    }
    *kept = *m;
    if (m->source.count > 0) memcpy(kept + 1, m->source.bytes, m->source.count);
    kept->source.bytes = (const uint8_t *)(kept + 1);
    tb_free(st->kept_plan);
    st->kept_plan = kept;
    return TB_OK;
}

enum tb_status tb_staging_plan(struct tb_session *s, const struct tb_msg_plan *m)
{
    TB_ASSERT_LOCKED(s);
    struct tb_staging *st = tb_staging_find(s, &m->uid);
    if (st == NULL || tb_staging_has_failed(st->life) || st->life == TB_STAGING_WHOLE)
        return TB_OK;                     /* too late for it */
    if (st->shards == NULL) return TB_OK; /* behind the answer to a STAGE that was given up */
    if (!tb_staging_has_manifests(st)) return TB_PEER_GARBLED;
    if (keep_plan(st, m) != TB_OK || st->life != TB_STAGING_READING) return TB_OK;
    return follow_plan(s, st, st->kept_plan);
}

/* P1: no proof changes, so a gateway that says another one is not believed in anything. */
static enum tb_status set_proofs(struct tb_manifest *manifest, uint32_t first, const struct tb_span *proofs)
{
    const uint32_t count = proofs->count / TB_BLAKE3_BYTES;
    if (proofs->count == 0 || proofs->count % TB_BLAKE3_BYTES != 0) return TB_PEER_GARBLED;
    if (first > manifest->chunk_count || count > manifest->chunk_count - first) return TB_PEER_GARBLED;
    for (uint32_t i = 0; i < count; i++) {
        struct tb_blake3 proof, known;
        memcpy(proof.bytes, proofs->bytes + (size_t)i * TB_BLAKE3_BYTES, sizeof proof.bytes);
        if (!tb_manifest_proof(manifest, first + i, &known))
            tb_manifest_set_proof(manifest, first + i, &proof);
        else if (!tb_blake3_equal(&proof, &known))
            return TB_PEER_GARBLED;
    }
    return TB_OK;
}

/* Where the shard is not described, a STAGE was given up: all comes behind the next answer. */
enum tb_status tb_staging_proofs(struct tb_session *s, const struct tb_msg_proofs *m)
{
    TB_ASSERT_LOCKED(s);
    struct tb_staging *st = tb_staging_find(s, &m->uid);
    if (st == NULL || tb_staging_has_failed(st->life) || st->shards == NULL) return TB_OK;
    if (m->shard >= st->key.shard_count) return TB_PEER_GARBLED;
    struct tb_staged_shard *sh = &st->shards[m->shard];
    if (sh->manifest_memory.tables == NULL) return TB_OK;
    const enum tb_status status = set_proofs(&sh->manifest, m->first, &m->proofs);
    if (status != TB_OK) return status;
    tb_home_word_judge_all(st);
    if (st->hop != NULL) tb_hop_proofs_came(st->hop);
    return TB_OK;
}

/* ---- what happened meanwhile ---- */

/* Others may chain behind this staging from its first chunk: its export is told before a byte is
 * there. Of a patch it is told that there is none. */
static enum tb_status open_export(struct tb_session *s, struct tb_staging *st)
{
    TB_ASSERT(st->export_id == 0 && st->memory.bytes != NULL);
    const uint64_t id = ++s->next_export;
    const struct tb_export_buffer buffer = {
        .bytes = st->memory.bytes, .count = st->memory.count, .memfd = st->memory.memfd};
    const struct tb_shelf_at shelf = {.offset = st->shelf_offset};
    const struct tb_export_options options = {.export_id = id,
                                              .buffers = &buffer,
                                              .buffer_count = 1,
                                              .shelf = st->shelf_offset != 0 ? &shelf : NULL,
                                              .chained = true};
    const enum tb_status status = tb_export_open(s->fabric, &options);
    if (status == TB_OK) st->export_id = id;
    return status;
}

static void begin_reading(struct tb_session *s, struct tb_staging *st)
{
    const enum tb_status status = tb_staging_reads_only(st) ? TB_OK : open_export(s, st);
    if (status != TB_OK) {
        tb_staging_fail(st, status, "the staging cannot be exported");
        return;
    }
    tb_staging_step(&st->life, TB_STAGING_OPENED);
    st->told_at = tb_clock_now();
    tb_staging_export_notice(s, st);
    if (tb_staging_is_whole(st))
        became_whole(s, st); /* a version without a byte */
    else if (st->kept_plan != NULL && follow_plan(s, st, st->kept_plan) != TB_OK)
        tb_staging_fail(st, TB_PEER_GARBLED, "the gateway's plan does not fit the version");
    tb_session_changed(s, false);
}

static void hop_opened(struct tb_staging *st, const struct tb_hop_note *note)
{
    st->hop_opened = true;
    st->transport = note->transport;
    st->why_transport = note->why_transport;
    if (st->lost_at == 0) return;
    tb_log(TB_LOG_INFO, "hop.resumed", "number=%llu plan=%llu held_chunks=%u after_ms=%llu",
           (unsigned long long)st->key.number, (unsigned long long)st->plan, tb_staging_held_chunks(st),
           (unsigned long long)(tb_time_since(st->lost_at, tb_clock_now()) / TB_MS(1)));
    st->lost_at = 0;
}

static void hear_hop(struct tb_session *s, struct tb_staging *st)
{
    TB_ASSERT(st->hop != NULL);
    pthread_mutex_lock(&st->note_lock);
    const struct tb_hop_note note = st->note;
    st->note.bad_count = 0;
    st->note.opened = false;
    pthread_mutex_unlock(&st->note_lock);
    if (note.opened) hop_opened(st, &note);
    for (uint32_t i = 0; i < note.bad_count; i++)
        tb_staging_bad_notice(s, st, &note.bad[i]);
    if (tb_staging_is_whole(st)) {
        became_whole(s, st);
        return;
    }
    if (!note.lost && !note.whole) return;
    /* A source that has ended without all shards is no source any more. */
    const enum tb_status why = note.lost ? note.why : TB_CHUNK_ABSENT;
    const uint64_t plan = st->plan;
    tb_staging_close_hop(st);
    if (st->stage != NULL && tb_gpu_stage_failed(st->stage)) { /* another source would not help */
        tb_staging_fail(st, TB_SITE_IO,
                        "the GPU in whose memory it lands refused: see gpu.failed in the log");
        return;
    }
    tb_log(TB_LOG_WARN, "hop.lost", "number=%llu plan=%llu held_chunks=%u of=%u status=%s action=ask_again",
           (unsigned long long)st->key.number, (unsigned long long)plan, tb_staging_held_chunks(st),
           st->total_chunks, tb_status_name(why));
    st->lost_at = tb_clock_now();
    tb_staging_lost_notice(s, st, plan, why);
}

void tb_stagings_advance(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (struct tb_staging *st = s->stagings; st != NULL; st = st->next) {
        if (st->life == TB_STAGING_PREPARED)
            begin_reading(s, st);
        else if (st->life == TB_STAGING_READING && st->hop != NULL)
            hear_hop(s, st);
    }
}
