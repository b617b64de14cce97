/* hop_run.c - the doing half of a hop: hop.c says what, this asks a transport for it, lets the pool copy,
 * decode and digest, and tells the owner what happened.
 *
 * The life of a hop:  opening -> open -> ending -> ended.  Ending begins with close, or when the source is
 * lost. Then nothing new is asked; jobs that run on the pool come home first (they use the upstream's
 * memory), then the upstream is closed, then the claims that are left are given back, and only then LOST is
 * told or close returns: after either nothing of the hop writes any more. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/fault.h"
#include "intra/fabric_inside.h"
#include "intra/heartbeat.h"
#include "intra/hop.h"
#include "intra/hop_wire.h"

enum slot_state { SLOT_FREE, SLOT_READING, SLOT_WORKING, SLOT_CONFIRMING };

/* One chunk in flight. */
struct hop_slot {
    struct tb_pool_job job;    /* copy, decode, digest */
    struct tb_fabric_job done; /* and back on the loop */
    struct tb_hop *hop;
    enum slot_state state;
    struct tb_hop_aim aim;
    struct tb_read read;
    bool copies;      /* the job reads it; else the transport has */
    bool passes;      /* the object goes on to our shelf */
    uint8_t codec;    /* 0: read.to is the chunk's place */
    uint8_t *scratch; /* for the encoded form */
    uint32_t scratch_bytes;
    enum tb_status status;
    uint64_t failed_order; /* CONFIRMING: answers come in this order */
};

/* The source's shelf: head and bits, or entries, on their way. */
struct hop_shelf_read {
    struct tb_read read;
    uint64_t *words;
    bool entries;
    uint32_t first;
};

/* A shard's bitmap on its way. */
struct hop_snapshot {
    struct tb_read read;
    uint64_t *words;
    uint32_t first;
};

struct tb_hop {
    LIST_ENTRY(tb_hop) link;
    struct tb_fabric *fabric;
    struct tb_hop_options options; /* its source is our copy, its places are not used after open */
    uint32_t idle_ms, open_ms;
    void *source_memory;
    enum tb_status source_status;
    struct tb_hop_shard *shards;
    struct hop_snapshot *snapshots; /* one a shard */
    const struct tb_source_shard **sources;
    const struct tb_place **targets; /* as many */
    uint64_t *words;                 /* of all bitmaps */
    struct tb_hop_state state;
    struct hop_slot slots[TB_HOP_CHUNKS_MAX];
    struct tb_hop_shelf shelf; /* state.shelf is this, or NULL */
    struct tb_shelf_at shelf_at;
    void *shelf_memory;
    struct hop_shelf_read shelf_read;
    struct tb_hop_base base;
    uint64_t failed_order;
    uint32_t jobs; /* on the pool */
    uint32_t snapshots_owed;

    enum tb_transport transport;
    enum tb_transport_why why;
    struct tb_upstream *upstream;
    struct tb_upstream_events events;
    bool opened, whole_told, round_running;
    bool ending;  /* nothing new is asked */
    bool ended;   /* nothing of ours writes any more */
    bool closing; /* by the owner: no event any more */
    bool orphan;  /* the fabric closes: it frees itself */
    bool upstream_closing;
    enum tb_status lost; /* why; TB_OK: not */
    bool stop;           /* atomic: jobs that have not begun need not */
    struct tb_fabric_job start, close;
    bool closed; /* under the fabric's lock */

    struct tb_hop_stats stats; /* under the fabric's lock */
};

struct tb_hop *tb_hop_after(struct tb_hop *hop)
{
    return LIST_NEXT(hop, link);
}

static void tell(struct tb_hop *hop, struct tb_hop_event event)
{
    if (hop->closing) return;
    hop->options.fn(hop->options.user, hop, &event);
}

static void pump(struct tb_hop *hop);

static void hop_free(struct tb_hop *hop)
{
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++)
        tb_free(hop->slots[i].scratch);
    tb_free(hop->words);
    tb_free(hop->shelf_memory);
    tb_free(hop->shards);
    tb_free(hop->snapshots);
    tb_free(hop->sources);
    tb_free(hop->targets);
    tb_free(hop->source_memory);
    tb_free(hop);
}

/* ---- ending ---- */

static void slot_drop(struct hop_slot *slot)
{
    struct tb_hop *hop = slot->hop;
    if (slot->state == SLOT_READING && !slot->aim.passed_on)
        tb_place_unclaim(hop->shards[slot->aim.shard_index].place, slot->aim.chunk);
    tb_hop_dropped(&hop->state, &slot->aim);
    slot->state = SLOT_FREE;
}

static void set_ended(struct tb_hop *hop)
{
    TB_ASSERT(hop->jobs == 0 && hop->upstream == NULL);
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++)
        if (hop->slots[i].state != SLOT_FREE) slot_drop(&hop->slots[i]);
    hop->ended = true;
    if (!hop->closing) {
        tell(hop, (struct tb_hop_event){.kind = TB_HOP_LOST, .why = hop->lost, .transport = hop->transport});
        return;
    }
    LIST_REMOVE(hop, link);
    if (hop->orphan) {
        hop_free(hop);
        return;
    }
    pthread_mutex_lock(&hop->fabric->lock);
    hop->closed = true; /* behind the lock the owner frees it */
    pthread_cond_broadcast(&hop->fabric->changed);
    pthread_mutex_unlock(&hop->fabric->lock);
}

/* Goes on with ending as far as it can be. */
static void go_on_ending(struct tb_hop *hop)
{
    if (hop->ended || hop->jobs > 0 || hop->upstream_closing) return;
    if (hop->upstream != NULL) {
        hop->upstream_closing = true;
        hop->upstream->ops->close(hop->upstream); /* goes on in on_closed */
        return;
    }
    set_ended(hop);
}

static void begin_ending(struct tb_hop *hop)
{
    if (hop->ending) return;
    hop->ending = true;
    __atomic_store_n(&hop->stop, true, __ATOMIC_RELAXED);
    go_on_ending(hop);
}

static void lose(struct tb_hop *hop, enum tb_status why)
{
    if (hop->ending) return;
    hop->lost = why;
    begin_ending(hop);
}

/* ---- landing ---- */

static struct tb_place *slot_place(const struct hop_slot *slot)
{
    return slot->hop->shards[slot->aim.shard_index].place;
}

static enum tb_status get(const struct hop_slot *slot)
{
    const struct tb_hop *hop = slot->hop;
    if (__atomic_load_n(&hop->stop, __ATOMIC_RELAXED)) return TB_CANCELLED;
    return slot->copies ? hop->upstream->ops->copy(hop->upstream, &slot->read) : TB_OK;
}

static struct tb_codec_coded coded_of(const struct hop_slot *slot)
{
    const struct tb_codec_form form = {.id = (enum tb_codec_id)slot->codec};
    return (struct tb_codec_coded){slot->aim.object != NULL ? slot->aim.object->form : form, slot->scratch,
                                   slot->read.bytes};
}

/* An object goes on to those behind us: once it has proved itself here, or unseen where we lack its base. */
static void pass_on(const struct hop_slot *slot)
{
    const struct tb_codec_coded coded = coded_of(slot);
    if (slot->passes) tb_shelf_put(slot->hop->options.shelf, slot->aim.line, &coded);
}

/* The same chunk of the base that the object is on. */
static const uint8_t *base_chunk(const struct hop_slot *slot)
{
    uint32_t bytes = 0;
    if (slot->aim.object == NULL || !slot->aim.object->form.on_base) return NULL;
    return tb_place_chunk(slot->hop->base.places[slot->aim.shard_index], slot->aim.chunk, &bytes);
}

/* On the pool. Whatever comes out, the claim has ended. */
static enum tb_status land(struct hop_slot *slot, uint32_t thread)
{
    const struct tb_hop *hop = slot->hop;
    struct tb_place *place = slot_place(slot);
    uint32_t bytes = 0;
    uint8_t *chunk = tb_place_chunk(place, slot->aim.chunk, &bytes);
    enum tb_status status = get(slot);
    if (status == TB_OK && (slot->codec != 0 || slot->aim.object != NULL)) {
        const struct tb_codec_coded coded = coded_of(slot);
        status = tb_codec_decode(hop->fabric->codecs[thread], &coded,
                                 &(struct tb_codec_output){chunk, bytes, base_chunk(slot)});
    }
    if (status == TB_OK) return tb_place_finish(place, slot->aim.chunk);
    tb_place_unclaim(place, slot->aim.chunk);
    return status;
}

static enum tb_status do_job(struct hop_slot *slot, uint32_t thread)
{
    const enum tb_status status = slot->aim.passed_on ? get(slot) : land(slot, thread);
    if (status == TB_OK) pass_on(slot);
    return status;
}

static void job_run(struct tb_pool_job *job, uint32_t thread)
{
    struct hop_slot *slot = (struct hop_slot *)((char *)job - offsetof(struct hop_slot, job));
    slot->status = do_job(slot, thread);
    tb_fabric_post(slot->hop->fabric, &slot->done);
}

static void count(struct tb_hop *hop, const struct hop_slot *slot)
{
    pthread_mutex_lock(&hop->fabric->lock);
    if (slot->status == TB_OK) {
        hop->stats.bytes_read += slot->aim.bytes;
        hop->stats.bytes_encoded += slot->aim.object != NULL ? slot->aim.bytes : 0;
        hop->stats.chunks_encoded += slot->aim.object != NULL && !slot->aim.passed_on;
        hop->stats.chunks_landed += !slot->aim.passed_on;
    } else {
        hop->stats.bytes_wasted += slot->aim.bytes;
    }
    hop->stats.in_flight = hop->state.in_flight_chunks;
    hop->stats.last_at = tb_clock_now();
    pthread_mutex_unlock(&hop->fabric->lock);
}

static void check_whole(struct tb_hop *hop)
{
    if (hop->whole_told || hop->ending || !hop->state.dry || hop->state.in_flight_chunks > 0) return;
    if (!tb_hop_whole(&hop->state)) return;
    hop->whole_told = true;
    tell(hop, (struct tb_hop_event){.kind = TB_HOP_WHOLE, .transport = hop->transport});
}

static void landed(struct hop_slot *slot)
{
    tb_hop_landed(&slot->hop->state, &slot->aim);
    slot->state = SLOT_FREE;
    count(slot->hop, slot);
}

/* The chunk comes whole then: what a shelf has is nobody's word. */
static void object_failed(struct hop_slot *slot)
{
    count(slot->hop, slot);
    tb_hop_object_failed(&slot->hop->state, &slot->aim);
    slot->state = SLOT_FREE;
}

/* The bytes are not what the publisher sealed. That is the source's fault only if the memory was still its to
 * show. */
static void mismatched(struct hop_slot *slot)
{
    struct tb_hop *hop = slot->hop;
    count(hop, slot);
    slot->state = SLOT_CONFIRMING;
    slot->failed_order = ++hop->failed_order;
    if (!hop->ending) hop->upstream->ops->confirm(hop->upstream);
}

static void job_done(struct tb_fabric_job *job)
{
    struct hop_slot *slot = (struct hop_slot *)((char *)job - offsetof(struct hop_slot, done));
    struct tb_hop *hop = slot->hop;
    hop->jobs--;
    if (slot->status == TB_OK) {
        landed(slot);
    } else if (slot->status == TB_CHUNK_DIGEST || slot->status == TB_CHUNK_CODEC) {
        if (slot->aim.object != NULL)
            object_failed(slot);
        else
            mismatched(slot);
    } else {
        tb_hop_dropped(&hop->state, &slot->aim);
        slot->state = SLOT_FREE;
        lose(hop, slot->status);
    }
    if (hop->ending)
        go_on_ending(hop);
    else
        pump(hop);
}

static void work(struct hop_slot *slot)
{
    slot->state = SLOT_WORKING;
    slot->hop->jobs++;
    tb_pool_submit(slot->hop->fabric->pool, &slot->job);
}

/* ---- asking ---- */

static bool scratch_for(struct hop_slot *slot, uint32_t bytes)
{
    if (slot->scratch_bytes >= bytes) return true;
    uint8_t *scratch = tb_realloc(slot->scratch, bytes);
    if (scratch == NULL) return false;
    slot->scratch = scratch;
    slot->scratch_bytes = bytes;
    return true;
}

static bool prepare_object(struct hop_slot *slot)
{
    const struct tb_hop *hop = slot->hop;
    const struct tb_shelf_entry *object = slot->aim.object;
    if (!scratch_for(slot, object->bytes)) return false;
    slot->codec = 0;
    slot->passes = tb_hop_shelf_passes(&hop->shelf);
    slot->read = (struct tb_read){.buffer = hop->shelf_at.buffer,
                                  .offset = hop->shelf_at.offset + tb_shelf_room_offset(hop->shelf.count) +
                                            object->offset,
                                  .bytes = object->bytes,
                                  .to = slot->scratch,
                                  .owner = slot};
    return true;
}

/* What to read for the slot's chunk, and where to. */
static bool prepare(struct hop_slot *slot)
{
    slot->passes = false;
    if (slot->aim.object != NULL) return prepare_object(slot);
    const struct tb_hop_shard *shard = &slot->hop->shards[slot->aim.shard_index];
    const struct tb_source_object *object;
    uint32_t bytes = 0;
    uint8_t *chunk = tb_place_chunk(shard->place, slot->aim.chunk, &bytes);
    slot->codec = 0;
    slot->read = (struct tb_read){.source = shard->source,
                                  .manifest = shard->place->manifest,
                                  .offset = shard->place->manifest->chunks[slot->aim.chunk].offset,
                                  .bytes = bytes,
                                  .to = chunk,
                                  .owner = slot};
    if (!tb_source_object_of(shard->source, slot->aim.chunk, &object)) return true;
    if (!scratch_for(slot, object->bytes)) return false;
    slot->codec = object->codec;
    slot->read = (struct tb_read){.buffer = object->buffer,
                                  .offset = object->offset,
                                  .bytes = object->bytes,
                                  .to = slot->scratch,
                                  .owner = slot};
    return true;
}

static struct hop_slot *free_slot(struct tb_hop *hop)
{
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++)
        if (hop->slots[i].state == SLOT_FREE) return &hop->slots[i];
    return NULL;
}

static void fetch(struct hop_slot *slot)
{
    struct tb_hop *hop = slot->hop;
    slot->state = SLOT_READING;
    if (!prepare(slot)) {
        lose(hop, TB_SITE_NOMEM); /* gives the claim back */
        return;
    }
    slot->copies = hop->upstream->ops->reaches(hop->upstream, &slot->read);
    if (slot->copies)
        work(slot);
    else
        hop->upstream->ops->read(hop->upstream, &slot->read);
}

static void pump(struct tb_hop *hop)
{
    struct tb_hop_aim aim;
    while (!hop->ending && hop->opened && tb_hop_next(&hop->state, &aim)) {
        struct hop_slot *slot = free_slot(hop);
        TB_ASSERT(slot != NULL); /* as many as the window lets in flight */
        slot->aim = aim;
        fetch(slot);
    }
    check_whole(hop);
}

/* ---- following the source's bitmaps ---- */

static void snapshot_came(struct tb_hop *hop, struct hop_snapshot *snap)
{
    const uint32_t index = (uint32_t)(snap - hop->snapshots);
    if (tb_hop_seen(&hop->state, index, snap->first, snap->words, snap->read.bytes / 8) != TB_OK)
        lose(hop, TB_PEER_GARBLED);
}

static void end_round(struct tb_hop *hop)
{
    hop->round_running = false;
    tb_hop_round_done(&hop->state, tb_clock_now());
    pump(hop);
    tb_fabric_wake_at(hop->fabric, hop->state.poll_at);
}

/* Words within reach are copied at once: they are few. */
static void ask_snapshot(struct tb_hop *hop, uint32_t index)
{
    struct hop_snapshot *snap = &hop->snapshots[index];
    const struct tb_source_shard *source = hop->shards[index].source;
    uint32_t count_words = 0;
    if (!tb_hop_poll_words(&hop->state, index, &snap->first, &count_words)) return;
    snap->read = (struct tb_read){.buffer = source->held_buffer,
                                  .offset = source->held_offset + (uint64_t)snap->first * 8,
                                  .bytes = count_words * 8,
                                  .words = true,
                                  .to = (uint8_t *)snap->words,
                                  .owner = NULL};
    if (!hop->upstream->ops->reaches(hop->upstream, &snap->read)) {
        hop->snapshots_owed++;
        hop->upstream->ops->read(hop->upstream, &snap->read);
        return;
    }
    if (hop->upstream->ops->copy(hop->upstream, &snap->read) == TB_OK)
        snapshot_came(hop, snap);
    else
        lose(hop, TB_STREAM_IO);
}

/* ---- and its shelf ---- */

static uint32_t chunk_bytes(void *user, uint32_t line)
{
    const struct tb_hop *hop = user;
    uint32_t shard = 0;
    while (line >= hop->shards[shard].chunk_count)
        line -= hop->shards[shard++].chunk_count;
    return hop->shards[shard].place->manifest->chunks[line].bytes;
}

/* Nonsense on a shelf costs the shelf, not the source: what counts of a source is its chunks. */
static void shelf_close(struct tb_hop *hop)
{
    hop->state.shelf = NULL;
    if (hop->options.shelf != NULL) tb_shelf_close(hop->options.shelf);
}

static void shelf_came(struct tb_hop *hop);

static void ask_words(struct tb_hop *hop, uint64_t offset, uint64_t words)
{
    struct hop_shelf_read *r = &hop->shelf_read;
    r->read = (struct tb_read){.buffer = hop->shelf_at.buffer,
                               .offset = hop->shelf_at.offset + offset,
                               .bytes = (uint32_t)(words * sizeof(uint64_t)),
                               .words = true,
                               .to = (uint8_t *)r->words,
                               .owner = NULL};
    if (!hop->upstream->ops->reaches(hop->upstream, &r->read)) {
        hop->snapshots_owed++;
        hop->upstream->ops->read(hop->upstream, &r->read);
        return;
    }
    if (hop->upstream->ops->copy(hop->upstream, &r->read) == TB_OK)
        shelf_came(hop);
    else
        lose(hop, TB_STREAM_IO);
}

static void ask_shelf(struct tb_hop *hop)
{
    if (hop->state.shelf == NULL) return;
    hop->shelf_read.entries = false;
    ask_words(hop, 0, TB_SHELF_HEAD_WORDS + TB_BITMAP_WORDS(hop->shelf.count));
}

static void ask_entries(struct tb_hop *hop)
{
    uint32_t entries = 0;
    struct hop_shelf_read *r = &hop->shelf_read;
    if (!tb_hop_shelf_wanted(&hop->shelf, &r->first, &entries)) return;
    r->entries = true;
    ask_words(hop, tb_shelf_entry_offset(hop->shelf.count, r->first),
              (uint64_t)entries * TB_SHELF_ENTRY_WORDS);
}

static void shelf_came(struct tb_hop *hop)
{
    struct hop_shelf_read *r = &hop->shelf_read;
    const uint32_t entries = r->read.bytes / (uint32_t)(TB_SHELF_ENTRY_WORDS * sizeof(uint64_t));
    enum tb_status status;
    if (r->entries)
        status = tb_hop_shelf_entries(&hop->shelf, r->first, r->words, entries, chunk_bytes, hop);
    else
        status = tb_hop_shelf_head(&hop->shelf, r->words);
    if (status != TB_OK)
        shelf_close(hop);
    else if (!r->entries)
        ask_entries(hop);
}

static void begin_round(struct tb_hop *hop)
{
    hop->round_running = true;
    ask_shelf(hop);
    for (uint32_t i = 0; i < hop->state.shard_count && !hop->ending; i++)
        ask_snapshot(hop, i);
    if (!hop->ending && hop->snapshots_owed == 0) end_round(hop);
}

tb_time_ns tb_hop_poll(struct tb_hop *hop, tb_time_ns now)
{
    if (hop->ending || hop->upstream == NULL) return TB_TIME_NEVER;
    if (hop->opened && !hop->round_running && now >= hop->state.poll_at) begin_round(hop);
    if (hop->ending) return TB_TIME_NEVER;
    const tb_time_ns next = hop->upstream->ops->poll(hop->upstream, now);
    if (!hop->opened || hop->round_running || hop->ending || hop->whole_told) return next;
    return tb_time_min(next, hop->state.poll_at);
}

/* ---- what the transport says ---- */

static enum tb_transport_why why_of(const struct tb_hop *hop)
{
    return hop->options.transport != TB_TRANSPORT_NONE ? TB_WHY_ASKED : hop->upstream->why;
}

/* A source's shelf is of all its shards; ours too. */
static void on_shelf(void *user, uint32_t buffer, uint64_t offset)
{
    struct tb_hop *hop = user;
    const uint64_t words = TB_SHELF_HEAD_WORDS + TB_BITMAP_WORDS(hop->state.chunk_total);
    const uint64_t entries = (uint64_t)TB_HOP_SHELF_ENTRIES_MAX * TB_SHELF_ENTRY_WORDS;
    if (hop->ending || hop->state.chunk_total == 0 || hop->state.chunk_total > TB_SHELF_COUNT_MAX) return;
    if (hop->shelf_memory != NULL || words * sizeof(uint64_t) > TB_HOP_WORDS_BYTES_MAX) return;
    if (offset % sizeof(uint64_t) != 0 || offset >= (uint64_t)1 << 62) return;
    const uint32_t count = (uint32_t)hop->state.chunk_total;
    const uint64_t bytes = tb_hop_shelf_bytes(count);
    const uint64_t read_words = words > entries ? words : entries;
    hop->shelf_memory = tb_malloc(bytes + read_words * sizeof(uint64_t));
    if (hop->shelf_memory == NULL) return; /* chunks come whole */
    tb_hop_shelf_init(&hop->shelf, hop->shelf_memory, count);
    hop->shelf_read.words = (uint64_t *)(void *)((uint8_t *)hop->shelf_memory + bytes);
    hop->shelf_at = (struct tb_shelf_at){buffer, offset};
    hop->shelf.base = hop->base;
    hop->shelf.ours =
        hop->options.shelf != NULL && hop->options.shelf->count == count ? hop->options.shelf : NULL;
    hop->state.shelf = &hop->shelf;
}

static void on_open(void *user)
{
    struct tb_hop *hop = user;
    if (hop->ending) return;
    hop->opened = true;
    hop->transport = hop->upstream->transport;
    hop->why = why_of(hop);
    /* By shm and RDMA a chunk comes sooner than it is decoded. */
    hop->shelf.decodes = hop->transport == TB_TRANSPORT_TCP;
    if (hop->state.shelf == NULL) shelf_close(hop);
    const tb_time_ns now = tb_clock_now();
    pthread_mutex_lock(&hop->fabric->lock);
    hop->stats.transport = hop->transport;
    hop->stats.why = hop->why;
    hop->stats.open_at = hop->stats.last_at = now;
    pthread_mutex_unlock(&hop->fabric->lock);
    tell(hop, (struct tb_hop_event){
                  .kind = TB_HOP_OPENED, .transport = hop->transport, .why_transport = hop->why});
    pump(hop);
    if (!hop->ending) tb_fabric_wake_at(hop->fabric, now);
}

static void on_read(void *user, struct tb_read *read)
{
    struct tb_hop *hop = user;
    if (hop->ending) return;
    if (read->owner != NULL) {
        work(read->owner);
        return;
    }
    hop->snapshots_owed--;
    if (read == &hop->shelf_read.read)
        shelf_came(hop);
    else
        snapshot_came(hop, (struct hop_snapshot *)((char *)read - offsetof(struct hop_snapshot, read)));
    if (!hop->ending && hop->snapshots_owed == 0) end_round(hop);
}

static void on_confirmed(void *user)
{
    struct tb_hop *hop = user;
    struct hop_slot *slot = NULL;
    if (hop->ending) return;
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++) {
        struct hop_slot *other = &hop->slots[i];
        if (other->state != SLOT_CONFIRMING) continue;
        if (slot == NULL || other->failed_order < slot->failed_order) slot = other;
    }
    TB_ASSERT(slot != NULL);
    slot->state = SLOT_FREE;
    if (tb_hop_failed(&hop->state, &slot->aim)) {
        const uint32_t shard = hop->shards[slot->aim.shard_index].source->shard;
        tell(hop, (struct tb_hop_event){.kind = TB_HOP_CHUNK_BAD,
                                        .why = TB_CHUNK_DIGEST,
                                        .transport = hop->transport,
                                        .shard = shard,
                                        .chunk = slot->aim.chunk,
                                        .twice = true});
    }
    pump(hop);
}

static bool falls_back(const struct tb_hop *hop, enum tb_status why)
{
    return hop->options.transport == TB_TRANSPORT_NONE && hop->transport == TB_TRANSPORT_SHM &&
           !hop->opened && why == TB_PEER_UNREACHABLE && hop->options.from.tcp[0] != '\0';
}

static void on_lost(void *user, enum tb_status why)
{
    struct tb_hop *hop = user;
    if (!falls_back(hop, why)) {
        lose(hop, why);
        return;
    }
    hop->upstream_closing = true; /* and in on_closed tcp is dialled */
    hop->upstream->ops->close(hop->upstream);
}

static enum tb_transport over_the_network(const struct tb_hop *hop)
{
    return hop->fabric->verbs != NULL ? TB_TRANSPORT_VERBS : TB_TRANSPORT_TCP;
}

static void dial(struct tb_hop *hop, enum tb_transport transport);

static void on_closed(void *user)
{
    struct tb_hop *hop = user;
    hop->upstream = NULL;
    hop->upstream_closing = false;
    if (hop->ending)
        set_ended(hop);
    else
        dial(hop, over_the_network(hop));
}

/* ---- beginning ---- */

static void dial(struct tb_hop *hop, enum tb_transport transport)
{
    static const struct tb_transport_ops *const all[] = {[TB_TRANSPORT_SHM] = &tb_transport_shm,
                                                         [TB_TRANSPORT_TCP] = &tb_transport_tcp,
                                                         [TB_TRANSPORT_VERBS] = &tb_transport_verbs};
    const struct tb_transport_ops *ops = all[transport];
    hop->transport = transport;
    const struct tb_upstream_options options = {.fabric = hop->fabric,
                                                .hop = &hop->options,
                                                .sources = hop->sources,
                                                .source_count = hop->state.shard_count,
                                                .places = hop->targets,
                                                .idle_ms = hop->idle_ms,
                                                .open_ms = hop->open_ms,
                                                .events = &hop->events,
                                                .user = hop};
    const enum tb_status status = ops->open(&options, &hop->upstream);
    if (status != TB_OK)
        lose(hop, status == TB_BAD_ARGUMENT ? TB_PEER_UNREACHABLE : status);
    else
        tb_fabric_wake_at(hop->fabric, tb_clock_now());
}

static enum tb_transport choose(const struct tb_hop *hop)
{
    const struct tb_fabric_endpoint *from = &hop->options.from;
    if (hop->options.transport != TB_TRANSPORT_NONE) return hop->options.transport;
    const bool same_host = tb_name_equal(&hop->fabric->host, &from->host) && from->shm_door[0] != '\0';
    return same_host ? TB_TRANSPORT_SHM : over_the_network(hop);
}

static void start_run(struct tb_fabric_job *job)
{
    struct tb_hop *hop = (struct tb_hop *)((char *)job - offsetof(struct tb_hop, start));
    LIST_INSERT_HEAD(&hop->fabric->hops, hop, link);
    if (hop->source_status != TB_OK)
        lose(hop, hop->source_status);
    else if (hop->fabric->ending)
        lose(hop, TB_SITE_DRAINING);
    else
        dial(hop, choose(hop));
}

static const struct tb_source_shard *source_of(const struct tb_hop_options *options, uint32_t shard)
{
    for (uint32_t i = 0; i < options->source_count; i++)
        if (options->source[i].shard == shard) return &options->source[i];
    return NULL;
}

/* A copy by way of the wire's own form: one block, and the decoder has looked at it. */
static enum tb_status copy_source(struct tb_hop *hop)
{
    struct tb_hop_options *o = &hop->options;
    const size_t bytes = tb_source_encoded_bytes(o->source, o->source_count);
    struct tb_writer w;
    enum tb_status status = TB_SITE_NOMEM;
    void *encoded = tb_malloc(bytes);
    if (encoded == NULL) return TB_SITE_NOMEM;
    tb_writer_init(&w, encoded, bytes);
    tb_source_encode(o->source, o->source_count, &w);
    const size_t needed = tb_source_decode_bytes(encoded, w.used);
    if (needed == 0) {
        status = TB_BAD_ARGUMENT;
        goto undo;
    }
    hop->source_memory = tb_malloc(needed);
    if (hop->source_memory == NULL) goto undo;
    status = tb_source_decode(encoded, w.used, hop->source_memory, needed, &o->source, &o->source_count);
undo:
    tb_free(encoded);
    return status;
}

static enum tb_status match_places(struct tb_hop *hop)
{
    const struct tb_hop_options *o = &hop->options;
    uint64_t words = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < o->place_count; i++) {
        const struct tb_source_shard *source = source_of(o, o->places[i].shard);
        if (source == NULL) continue;
        if (tb_source_check(source, o->places[i].place->manifest) != TB_OK)
            hop->source_status = TB_PEER_GARBLED;
        hop->shards[n] = (struct tb_hop_shard){.source = source, .place = o->places[i].place};
        hop->targets[n] = o->places[i].place;
        hop->sources[n++] = source;
        const uint32_t chunks = o->places[i].place->manifest->chunk_count;
        words += tb_hop_shard_words(chunks) + TB_BITMAP_WORDS(chunks);
    }
    if (n == 0) return TB_BAD_ARGUMENT;
    hop->words = tb_calloc(words ? words : 1, sizeof *hop->words);
    if (hop->words == NULL) return TB_SITE_NOMEM;
    uint64_t *at = hop->words;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t chunks = hop->shards[i].place->manifest->chunk_count;
        hop->shards[i].memory = at;
        hop->snapshots[i].words = at + tb_hop_shard_words(chunks);
        at += tb_hop_shard_words(chunks) + TB_BITMAP_WORDS(chunks);
    }
    tb_hop_state_init(&hop->state, hop->shards, n, o->order_seed, tb_clock_now());
    return TB_OK;
}

static enum tb_status hop_build(struct tb_hop *hop, const struct tb_hop_options *options)
{
    hop->shards = tb_calloc(options->place_count, sizeof *hop->shards);
    hop->snapshots = tb_calloc(options->place_count, sizeof *hop->snapshots);
    hop->sources = tb_calloc(options->place_count, sizeof *hop->sources);
    hop->targets = tb_calloc(options->place_count, sizeof *hop->targets);
    if (hop->shards == NULL || hop->snapshots == NULL || hop->sources == NULL || hop->targets == NULL)
        return TB_SITE_NOMEM;
    enum tb_status status = copy_source(hop);
    if (status == TB_OK) status = match_places(hop);
    if (status == TB_OK && hop->state.shard_count < options->place_count) {
        hop->base.places = NULL; /* shelves are of all shards */
        hop->options.shelf = NULL;
    }
    hop->options.places = NULL; /* the caller's; the shards have what is needed */
    return status;
}

enum tb_status tb_hop_open(struct tb_fabric *fabric, const struct tb_hop_options *options,
                           struct tb_hop **hop_out)
{
    if (options->place_count == 0 || options->source_count == 0 || options->fn == NULL)
        return TB_BAD_ARGUMENT;
    if (options->transport > TB_TRANSPORT_VERBS) return TB_BAD_ARGUMENT;
    struct tb_hop *hop = tb_calloc(1, sizeof *hop);
    if (hop == NULL) return TB_SITE_NOMEM;
    hop->fabric = fabric;
    hop->options = *options;
    hop->idle_ms = options->idle_ms != 0 ? options->idle_ms : TB_HEARTBEAT_MS * TB_HEARTBEAT_MISSED;
    hop->open_ms = options->idle_ms != 0 ? options->idle_ms : TB_HEARTBEAT_OPEN_MS;
    if (options->base != NULL) hop->base = *options->base;
    hop->events = (struct tb_upstream_events){.on_shelf = on_shelf,
                                              .on_open = on_open,
                                              .on_read = on_read,
                                              .on_confirmed = on_confirmed,
                                              .on_lost = on_lost,
                                              .on_closed = on_closed};
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++) {
        hop->slots[i].hop = hop;
        hop->slots[i].job.run = job_run;
        hop->slots[i].done.run = job_done;
    }
    const enum tb_status status = hop_build(hop, options);
    if (status != TB_OK) {
        hop_free(hop);
        return status;
    }
    *hop_out = hop; /* before the first callback can use it */
    hop->start.run = start_run;
    tb_fabric_post(fabric, &hop->start);
    return TB_OK;
}

static void end_for_owner(struct tb_hop *hop)
{
    hop->closing = true;
    if (hop->ended)
        set_ended(hop);
    else
        begin_ending(hop);
}

void tb_hop_orphan(struct tb_hop *hop)
{
    if (hop->closing) return; /* its owner waits for it */
    hop->orphan = true;
    end_for_owner(hop);
}

static void close_run(struct tb_fabric_job *job)
{
    end_for_owner((struct tb_hop *)((char *)job - offsetof(struct tb_hop, close)));
}

void tb_hop_close_counted(struct tb_hop *hop, struct tb_hop_stats *last_out)
{
    struct tb_fabric *f = hop->fabric;
    TB_ASSERT(!tb_fabric_on_thread(f));
    hop->close.run = close_run;
    tb_fabric_post(f, &hop->close);
    pthread_mutex_lock(&f->lock);
    while (!hop->closed)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    *last_out = hop->stats;
    hop_free(hop);
}

void tb_hop_close(struct tb_hop *hop)
{
    struct tb_hop_stats last;
    tb_hop_close_counted(hop, &last);
}

void tb_hop_stats(const struct tb_hop *hop, struct tb_hop_stats *stats_out)
{
    pthread_mutex_lock(&hop->fabric->lock);
    *stats_out = hop->stats;
    pthread_mutex_unlock(&hop->fabric->lock);
}
