/* hop_land.c - the chunks of a hop. hop.c says which to read. This file asks the transport for
 * them, lets the pool copy and land them (base/layout/land_chunk.h), and judges those that did not
 * match.
 *
 * Promise P1: a chunk is digested once its READ is complete, in memory that nobody else can write,
 * and held only then. A NIC writes a far chunk (base/layout/place.h) where it stands; else the
 * chunk comes to memory of the host, whole, and its owner brings it there. A thread of the pool
 * does not wait for an owner that looks at a chunk. A claim that was taken here ends here: it
 * lands, is given back, or is dropped when the hop ends. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/layout/land_chunk.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/hop_inside.h"

/* ---- landing ---- */

static struct tb_place *slot_place(const struct tb_hop_slot *slot)
{
    TB_ASSERT(slot->aim.shard_index < slot->hop->state.shard_count && !slot->aim.passed_on);
    return slot->hop->shards[slot->aim.shard_index].place;
}

static enum tb_status get(const struct tb_hop_slot *slot)
{
    const struct tb_hop *hop = slot->hop;
    if (__atomic_load_n(&hop->stop, __ATOMIC_RELAXED)) return TB_CANCELLED;
    return slot->copies || slot->read.staged ? hop->upstream->ops->copy(hop->upstream, &slot->read) : TB_OK;
}

static struct tb_codec_coded coded_of(const struct tb_hop_slot *slot)
{
    const struct tb_codec_form form = {.id = (enum tb_codec_id)slot->codec};
    return (struct tb_codec_coded){slot->aim.encoded != NULL ? slot->aim.encoded->form : form,
                                   slot->scratch.bytes, slot->read.bytes};
}

/* A delta goes on to the readers behind us: after it has landed here, or unseen where this process
 * lacks its base. */
static void pass_on(const struct tb_hop_slot *slot)
{
    const struct tb_codec_coded coded = coded_of(slot);
    const struct tb_hop_options *o = &slot->hop->options;
    if (!slot->passes) return;
    if (o->shelf != NULL) tb_shelf_put(o->shelf, slot->aim.line, &coded);
    if (o->encoded_chunks == NULL) return;
    const struct tb_hop_shard *shard = &slot->hop->shards[slot->aim.shard_index];
    const struct tb_hop_encoded encoded = {shard->source->shard, slot->aim.chunk, shard->chunk_count,
                                           slot->base, &coded};
    o->encoded_chunks(o->user, &encoded);
}

static bool is_on_base(const struct tb_hop_slot *slot)
{
    return slot->aim.encoded != NULL && slot->aim.encoded->form.on_base;
}

/* The chunk as it came, for land_chunk.h. */
static struct tb_land land_of(const struct tb_hop_slot *slot, uint32_t thread)
{
    const struct tb_hop *hop = slot->hop;
    const struct tb_place *const *bases = hop->base.places;
    struct tb_land l = {.place = slot_place(slot), .chunk = slot->aim.chunk, .foreign = hop->options.foreign};
    if (slot->codec == 0 && slot->aim.encoded == NULL) {
        l.beside = slot->bounces ? slot->near : NULL;
        return l;
    }
    l.encoded = &slot->coded;
    l.codec = hop->fabric->codecs[thread];
    if (is_on_base(slot) && bases != NULL)
        l.base = tb_land_base(bases[slot->aim.shard_index], l.place->manifest, l.chunk);
    l.owner_decodes = is_on_base(slot) && hop->base.owner_decodes;
    l.into = slot->bounces && !l.owner_decodes ? slot->near : NULL;
    return l;
}

/* On the thread that landed it: the pool's, or the place's owner's. */
static void finish(struct tb_hop_slot *slot, enum tb_status status)
{
    TB_ASSERT(slot->state == TB_SLOT_WORKING);
    if (status == TB_OK) pass_on(slot);
    slot->status = status;
    tb_fabric_post_from_pool(slot->hop->fabric, &slot->done);
}

/* Without its base a delta is no chunk. */
static enum tb_status landing_status(enum tb_status status)
{
    return status == TB_NOT_FOUND ? TB_CHUNK_CODEC : status;
}

static void on_looked(struct tb_place_look *look, enum tb_status status)
{
    finish((struct tb_hop_slot *)((char *)look - offsetof(struct tb_hop_slot, look)), landing_status(status));
}

/* The claim ends here, or when the owner has looked. */
static void land(struct tb_hop_slot *slot, uint32_t thread)
{
    slot->coded = coded_of(slot);
    struct tb_land l = land_of(slot, thread);
    const enum tb_status status = get(slot);
    if (status != TB_OK) {
        tb_place_unclaim(l.place, l.chunk);
        finish(slot, status);
    } else if (tb_land_is_owners(&l)) {
        slot->look.done = on_looked;
        tb_land_later(&l, &slot->look);
    } else {
        finish(slot, landing_status(tb_land_chunk(&l)));
    }
}

static void job_run(struct tb_pool_job *job, uint32_t thread)
{
    struct tb_hop_slot *slot = (struct tb_hop_slot *)((char *)job - offsetof(struct tb_hop_slot, job));
    if (slot->aim.passed_on)
        finish(slot, get(slot));
    else
        land(slot, thread);
}

static void count(struct tb_hop *hop, const struct tb_hop_slot *slot)
{
    pthread_mutex_lock(&hop->fabric->lock);
    if (slot->status == TB_OK) {
        hop->stats.bytes_read += slot->aim.bytes;
        hop->stats.bytes_encoded += slot->aim.encoded != NULL ? slot->aim.bytes : 0;
        hop->stats.chunks_encoded += slot->aim.encoded != NULL && !slot->aim.passed_on;
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
    if (hop->life != TB_HOP_LIFE_OPEN || !hop->state.dry || hop->state.in_flight_chunks > 0) return;
    if (!tb_hop_whole(&hop->state)) return;
    if (hop->state.shelf != NULL && !tb_hop_shelf_over(hop->state.shelf)) return;
    tb_hop_life_step(&hop->life, TB_HOP_ON_WHOLE);
    tb_hop_tell(hop, (struct tb_hop_event){.kind = TB_HOP_WHOLE, .transport = hop->transport});
}

static void give_back(struct tb_hop_slot *slot)
{
    if (slot->lent == NULL) return;
    const struct tb_place_owner *owner = slot_place(slot)->owner;
    owner->give(owner->user, slot->lent);
    slot->lent = slot->near = NULL;
}

static void landed(struct tb_hop_slot *slot)
{
    tb_hop_landed(&slot->hop->state, &slot->aim);
    slot->state = TB_SLOT_FREE;
    count(slot->hop, slot);
}

/* The owner does not wait for the delta any more. */
static void tell_no_encoded(const struct tb_hop_slot *slot)
{
    const struct tb_hop_options *o = &slot->hop->options;
    const struct tb_hop_shard *shard = &slot->hop->shards[slot->aim.shard_index];
    const struct tb_hop_encoded none = {.shard = shard->source->shard,
                                        .chunk = slot->aim.chunk,
                                        .chunk_count = shard->chunk_count,
                                        .base = slot->base};
    if (o->encoded_chunks != NULL) o->encoded_chunks(o->user, &none);
}

/* The chunk comes whole then. A shelf may hold anything, so the source is not blamed. */
static void encoded_failed(struct tb_hop_slot *slot)
{
    TB_ASSERT(slot->aim.encoded != NULL);
    count(slot->hop, slot);
    tell_no_encoded(slot);
    tb_hop_encoded_failed(&slot->hop->state, &slot->aim);
    slot->state = TB_SLOT_FREE;
    tb_hop_tell(slot->hop,
                (struct tb_hop_event){.kind = TB_HOP_ENCODED_BAD,
                                      .transport = slot->hop->transport,
                                      .shard = slot->hop->shards[slot->aim.shard_index].source->shard,
                                      .chunk = slot->aim.chunk});
}

/* The bytes are not what the publisher sealed. That is the source's fault only if the memory
 * was still its to show. */
static void mismatched(struct tb_hop_slot *slot)
{
    struct tb_hop *hop = slot->hop;
    TB_ASSERT(slot->aim.encoded == NULL && slot->aim.came);
    count(hop, slot);
    slot->state = TB_SLOT_CONFIRMING;
    slot->failed_order = ++hop->failed_order;
    if (!tb_hop_life_ends(hop->life)) hop->upstream->ops->confirm(hop->upstream);
}

static void job_done(struct tb_fabric_job *job)
{
    struct tb_hop_slot *slot = (struct tb_hop_slot *)((char *)job - offsetof(struct tb_hop_slot, done));
    struct tb_hop *hop = slot->hop;
    TB_ASSERT(hop->jobs > 0 && slot->state == TB_SLOT_WORKING);
    hop->jobs--;
    give_back(slot);
    if (slot->status == TB_OK) {
        landed(slot);
    } else if (slot->status == TB_CHUNK_DIGEST || slot->status == TB_CHUNK_CODEC) {
        if (slot->aim.encoded != NULL)
            encoded_failed(slot);
        else
            mismatched(slot);
    } else {
        tb_hop_dropped(&hop->state, &slot->aim);
        slot->state = TB_SLOT_FREE;
        tb_hop_lose(hop, slot->status);
    }
    if (!tb_hop_life_ends(hop->life))
        tb_hop_pump(hop);
    else if (hop->jobs == 0)
        tb_hop_conclude_soon(hop);
}

void tb_hop_chunk_came(struct tb_hop_slot *slot)
{
    TB_ASSERT(slot->state == TB_SLOT_READING);
    slot->state = TB_SLOT_WORKING;
    slot->hop->jobs++;
    tb_hop_came(&slot->hop->state, &slot->aim);
    tb_pool_submit(slot->hop->fabric->pool, &slot->job);
}

/* ---- asking ---- */

static bool prepare_encoded(struct tb_hop_slot *slot)
{
    const struct tb_hop *hop = slot->hop;
    const struct tb_shelf_entry *encoded = slot->aim.encoded;
    TB_ASSERT(hop->state.shelf != NULL && encoded->bytes > 0);
    if (!tb_room_for(&slot->scratch, encoded->bytes)) return false;
    slot->codec = 0;
    slot->passes = tb_hop_shelf_passes(&hop->shelf, slot->aim.line);
    slot->base = hop->shelf.head.base;
    slot->read = (struct tb_read){.buffer = hop->shelf_at.buffer,
                                  .offset = hop->shelf_at.offset + tb_shelf_room_offset(hop->shelf.count) +
                                            encoded->offset,
                                  .bytes = encoded->bytes,
                                  .to = slot->scratch.bytes,
                                  .owner = slot};
    return true;
}

static bool new_near(struct tb_hop_slot *slot)
{
    const struct tb_place *place = slot_place(slot);
    uint32_t bytes = 0;
    (void)tb_place_chunk(place, slot->aim.chunk, &bytes);
    TB_ASSERT(slot->lent == NULL);
    if (place->owner->lend != NULL) slot->lent = place->owner->lend(place->owner->user, bytes);
    if (slot->lent == NULL && !tb_room_for(&slot->bounce, bytes)) return false;
    slot->near = slot->lent != NULL ? slot->lent : slot->bounce.bytes;
    return true;
}

/* A READ that comes whole is written there where the transport can; what is decoded never is. */
static bool prepare_far(struct tb_hop_slot *slot)
{
    const struct tb_upstream *u = slot->hop->upstream;
    const bool whole = slot->codec == 0 && slot->aim.encoded == NULL;
    if (whole && u->ops->writes_far != NULL && u->ops->writes_far(u, &slot->read)) return true;
    if (!new_near(slot)) return false;
    slot->bounces = true;
    if (whole) slot->read.to = slot->near;
    return true;
}

static bool prepare_read(struct tb_hop_slot *slot)
{
    const struct tb_hop_shard *shard = &slot->hop->shards[slot->aim.shard_index];
    const struct tb_source_encoded *encoded;
    uint32_t bytes = 0;
    uint8_t *chunk = tb_place_chunk(shard->place, slot->aim.chunk, &bytes);
    slot->codec = 0;
    TB_ASSERT(!slot->aim.passed_on && tb_bitmap_test(shard->place->claimed, slot->aim.chunk));
    slot->read = (struct tb_read){.source = shard->source,
                                  .manifest = shard->place->manifest,
                                  .offset = shard->place->manifest->chunks[slot->aim.chunk].offset,
                                  .bytes = bytes,
                                  .to = chunk,
                                  .owner = slot};
    if (!tb_source_encoded_of(shard->source, slot->aim.chunk, &encoded)) return true;
    if (!tb_room_for(&slot->scratch, encoded->bytes)) return false;
    slot->codec = encoded->codec;
    slot->read = (struct tb_read){.buffer = encoded->buffer,
                                  .offset = encoded->offset,
                                  .bytes = encoded->bytes,
                                  .to = slot->scratch.bytes,
                                  .owner = slot};
    return true;
}

/* Sets the READ for the slot's chunk, and its target. */
static bool prepare(struct tb_hop_slot *slot)
{
    slot->passes = slot->bounces = false;
    if (slot->aim.encoded != NULL ? !prepare_encoded(slot) : !prepare_read(slot)) return false;
    const bool far = !slot->aim.passed_on && tb_place_is_far(slot_place(slot), slot->aim.chunk);
    return !far || prepare_far(slot);
}

static struct tb_hop_slot *free_slot(struct tb_hop *hop)
{
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++)
        if (hop->slots[i].state == TB_SLOT_FREE) return &hop->slots[i];
    return NULL;
}

static void fetch(struct tb_hop_slot *slot)
{
    struct tb_hop *hop = slot->hop;
    slot->state = TB_SLOT_READING;
    TB_ASSERT(tb_hop_life_is_open(hop->life));
    if (!prepare(slot)) {
        tb_hop_lose(hop, TB_SITE_NOMEM); /* gives the claim back */
        return;
    }
    slot->copies = hop->upstream->ops->reaches(hop->upstream, &slot->read);
    if (slot->copies)
        tb_hop_chunk_came(slot);
    else
        hop->upstream->ops->read(hop->upstream, &slot->read);
}

void tb_hop_pump(struct tb_hop *hop)
{
    struct tb_hop_aim aim;
    while (tb_hop_life_is_open(hop->life) && tb_hop_next(&hop->state, &aim)) {
        struct tb_hop_slot *slot = free_slot(hop);
        TB_ASSERT(slot != NULL); /* as many as the window lets in flight */
        slot->aim = aim;
        fetch(slot);
    }
    check_whole(hop);
}

/* ---- judging ---- */

void tb_hop_confirmed(struct tb_hop *hop)
{
    struct tb_hop_slot *slot = NULL;
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++) {
        struct tb_hop_slot *other = &hop->slots[i];
        if (other->state != TB_SLOT_CONFIRMING) continue;
        if (slot == NULL || other->failed_order < slot->failed_order) slot = other;
    }
    TB_ASSERT(slot != NULL);
    slot->state = TB_SLOT_FREE;
    if (tb_hop_failed(&hop->state, &slot->aim)) {
        const uint32_t shard = hop->shards[slot->aim.shard_index].source->shard;
        tb_hop_tell(hop, (struct tb_hop_event){.kind = TB_HOP_CHUNK_BAD,
                                               .why = TB_CHUNK_DIGEST,
                                               .transport = hop->transport,
                                               .shard = shard,
                                               .chunk = slot->aim.chunk,
                                               .twice = true});
    }
    tb_hop_pump(hop);
}

/* ---- all of them ---- */

void tb_hop_slots_init(struct tb_hop *hop)
{
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++) {
        hop->slots[i].hop = hop;
        hop->slots[i].job.run = job_run;
        hop->slots[i].done.run = job_done;
    }
}

static void slot_drop(struct tb_hop_slot *slot)
{
    struct tb_hop *hop = slot->hop;
    TB_ASSERT(slot->state != TB_SLOT_WORKING); /* its job came home */
    if (slot->state == TB_SLOT_READING && !slot->aim.passed_on)
        tb_place_unclaim(hop->shards[slot->aim.shard_index].place, slot->aim.chunk);
    give_back(slot);
    tb_hop_dropped(&hop->state, &slot->aim);
    slot->state = TB_SLOT_FREE;
}

void tb_hop_slots_drop(struct tb_hop *hop)
{
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++)
        if (hop->slots[i].state != TB_SLOT_FREE) slot_drop(&hop->slots[i]);
}

void tb_hop_slots_free(struct tb_hop *hop)
{
    for (uint32_t i = 0; i < TB_HOP_CHUNKS_MAX; i++) {
        tb_room_free(&hop->slots[i].scratch);
        tb_room_free(&hop->slots[i].bounce);
    }
}
