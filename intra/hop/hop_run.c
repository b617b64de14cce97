/* hop_run.c - the life of a hop: it finds a transport, opens, and ends so that nothing of it
 * writes behind its end.
 *
 * Its states are in hop_life.c. An ending hop asks for nothing new. Its jobs on the pool come home
 * first, because they use the memory of the upstream. Then the upstream closes, and then the claims
 * that are left are given back. Only then LOST is told, or close returns: after either, nothing of
 * the hop writes any more. Each of these steps has a turn of the fabric's queue of its own. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/hop/heartbeat.h"
#include "intra/hop/hop_inside.h"
#include "intra/transport/transport_words.h"

struct tb_hop *tb_hop_after(struct tb_hop *hop)
{
    return LIST_NEXT(hop, link);
}

static void hop_free(struct tb_hop *hop)
{
    tb_hop_slots_free(hop);
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

/* Nobody on the loop knows it any more. */
static void release(struct tb_hop *hop)
{
    TB_ASSERT(hop->life == TB_HOP_LIFE_CLOSED && !hop->conclusion_posted);
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

static void set_ended(struct tb_hop *hop)
{
    TB_ASSERT(hop->jobs == 0 && hop->upstream == NULL);
    tb_hop_slots_drop(hop);
    TB_ASSERT(hop->state.in_flight_chunks == 0 && hop->state.in_flight_bytes == 0);
    tb_hop_life_step(&hop->life, TB_HOP_ON_ENDED);
    if (hop->life == TB_HOP_LIFE_CLOSED)
        release(hop);
    else
        tb_hop_tell(
            hop, (struct tb_hop_event){.kind = TB_HOP_LOST, .why = hop->lost, .transport = hop->transport});
}

/* Of an ending hop: the next step of it, if that can be now. */
static void conclude(struct tb_fabric_job *job)
{
    struct tb_hop *hop = (struct tb_hop *)((char *)job - offsetof(struct tb_hop, conclusion));
    TB_ASSERT(tb_hop_life_ends(hop->life) && hop->life != TB_HOP_LIFE_CLOSED);
    hop->conclusion_posted = false;
    if (hop->life == TB_HOP_LIFE_LOST || hop->jobs > 0 || hop->upstream_closing) return;
    if (hop->upstream != NULL) {
        hop->upstream_closing = true;
        hop->upstream->ops->close(hop->upstream); /* goes on in on_closed */
        return;
    }
    set_ended(hop);
}

tb_time_ns tb_hop_poll(struct tb_hop *hop, tb_time_ns now)
{
    if (tb_hop_life_ends(hop->life) || hop->upstream == NULL || hop->upstream_closing) return TB_TIME_NEVER;
    const bool open = tb_hop_life_is_open(hop->life);
    if (open && !hop->round_running && now >= hop->state.poll_at) tb_hop_begin_round(hop);
    if (tb_hop_life_ends(hop->life)) return TB_TIME_NEVER;
    const tb_time_ns next = hop->upstream->ops->poll(hop->upstream, now);
    if (hop->life != TB_HOP_LIFE_OPEN || hop->round_running) return next;
    return tb_time_min(next, hop->state.poll_at);
}

/* ---- what the transport says ---- */

static enum tb_transport_why why_of(const struct tb_hop *hop)
{
    return hop->options.transport != TB_TRANSPORT_NONE ? TB_WHY_ASKED : hop->upstream->why;
}

static void on_shelf(void *user, uint32_t buffer, uint64_t offset)
{
    struct tb_hop *hop = user;
    if (!tb_hop_life_ends(hop->life)) tb_hop_follow_shelf(hop, buffer, offset);
}

static void on_depth(void *user, uint32_t depth)
{
    struct tb_hop *hop = user;
    struct tb_fabric *f = hop->fabric;
    if (tb_hop_life_ends(hop->life)) return;
    hop->state.depth = depth;
    pthread_mutex_lock(&f->lock);
    hop->stats.depth = depth;
    struct tb_export *e = hop->options.feeds != 0 ? tb_exports_find(&f->exports, hop->options.feeds) : NULL;
    if (e != NULL) e->depth = depth < UINT32_MAX ? depth + 1 : depth;
    pthread_mutex_unlock(&f->lock);
}

static bool owner_looks(const struct tb_hop *hop)
{
    for (uint32_t i = 0; i < hop->state.shard_count; i++) {
        const struct tb_place_owner *owner = hop->shards[i].place->owner;
        if (owner != NULL && owner->look != NULL) return true;
    }
    return false;
}

static void set_windows(struct tb_hop *hop)
{
    if (hop->transport == TB_TRANSPORT_SHM) hop->state.window_bytes = TB_HOP_WINDOW_COPIED;
    hop->state.came_max_bytes = hop->state.window_bytes;
    if (!owner_looks(hop)) return;
    hop->state.came_max_bytes = TB_HOP_WINDOW_LOOKED;
    hop->state.chunks_max = TB_HOP_CHUNKS_MAX;
}

static void on_open(void *user)
{
    struct tb_hop *hop = user;
    if (tb_hop_life_ends(hop->life)) return;
    const bool again = tb_hop_life_is_open(hop->life);
    tb_hop_life_step(&hop->life, TB_HOP_ON_OPENED);
    hop->transport = hop->upstream->transport;
    hop->why = why_of(hop);
    /* By shm and RDMA a chunk comes sooner than it is decoded, but not sooner than its keeper has
     * encoded it. */
    hop->shelf.decodes = hop->transport == TB_TRANSPORT_TCP || hop->base.owner_decodes;
    set_windows(hop);
    hop->state.threads = tb_pool_threads(hop->fabric->pool);
    if (hop->state.shelf == NULL) tb_hop_leave_shelf(hop);
    const tb_time_ns now = tb_clock_now();
    pthread_mutex_lock(&hop->fabric->lock);
    hop->stats.transport = hop->transport;
    hop->stats.why = hop->why;
    if (!again) hop->stats.open_at = hop->stats.last_at = now;
    pthread_mutex_unlock(&hop->fabric->lock);
    tb_hop_tell(hop, (struct tb_hop_event){
                         .kind = TB_HOP_OPENED, .transport = hop->transport, .why_transport = hop->why});
    tb_hop_pump(hop);
    if (!tb_hop_life_ends(hop->life)) tb_fabric_wake_at(hop->fabric, now);
}

static void on_read(void *user, struct tb_read *read)
{
    struct tb_hop *hop = user;
    if (tb_hop_life_ends(hop->life)) return;
    TB_ASSERT(tb_hop_life_is_open(hop->life));
    if (read->owner == NULL) {
        tb_hop_words_came(hop, read);
        return;
    }
    tb_hop_chunk_came(read->owner);
    tb_hop_pump(hop);
}

static void on_confirmed(void *user)
{
    struct tb_hop *hop = user;
    if (!tb_hop_life_ends(hop->life)) tb_hop_confirmed(hop);
}

static bool falls_back(const struct tb_hop *hop, enum tb_status why)
{
    return hop->options.transport == TB_TRANSPORT_NONE && hop->transport == TB_TRANSPORT_SHM &&
           hop->life == TB_HOP_LIFE_OPENING && why == TB_PEER_UNREACHABLE && hop->options.from.tcp[0] != '\0';
}

static void on_lost(void *user, enum tb_status why)
{
    struct tb_hop *hop = user;
    if (hop->life == TB_HOP_LIFE_REDIALLING) return; /* it is known, and closes */
    if (!falls_back(hop, why)) {
        tb_hop_lose(hop, why);
        return;
    }
    tb_hop_life_step(&hop->life, TB_HOP_ON_REFUSED);
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
    TB_ASSERT(hop->upstream_closing && hop->jobs == 0); /* jobs use its memory */
    hop->upstream = NULL;
    hop->upstream_closing = false;
    if (tb_hop_life_ends(hop->life)) {
        tb_hop_conclude_soon(hop);
        return;
    }
    tb_hop_life_step(&hop->life, TB_HOP_ON_REDIAL);
    dial(hop, over_the_network(hop));
}

/* ---- beginning ---- */

static void dial(struct tb_hop *hop, enum tb_transport transport)
{
    TB_ASSERT(hop->life == TB_HOP_LIFE_OPENING && hop->upstream == NULL);
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
        tb_hop_lose(hop, status == TB_BAD_ARGUMENT ? TB_PEER_UNREACHABLE : status);
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
    TB_ASSERT(hop->life == TB_HOP_LIFE_OPENING && hop->upstream == NULL);
    LIST_INSERT_HEAD(&hop->fabric->hops, hop, link);
    if (hop->source_status != TB_OK)
        tb_hop_lose(hop, hop->source_status);
    else if (hop->fabric->ending)
        tb_hop_lose(hop, TB_SITE_DRAINING);
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
        hop->shards[n] =
            (struct tb_hop_shard){.source = source, .place = o->places[i].place, .foreign = o->foreign};
        hop->targets[n] = o->places[i].place;
        hop->sources[n++] = source;
        const uint32_t chunks = o->places[i].place->manifest->chunk_count;
        words += tb_hop_shard_words(chunks) + TB_BITMAP_WORDS(chunks);
    }
    if (n == 0) return TB_BAD_ARGUMENT;
    TB_ASSERT(n <= o->place_count);
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
        hop->base = (struct tb_hop_base){.places = NULL}; /* shelves are of all shards */
        hop->options.shelf = NULL;
    }
    hop->options.places = NULL; /* the caller's; the shards have what is needed */
    return status;
}

/* ---- proofs ---- */

static void look_run(struct tb_fabric_job *job)
{
    struct tb_hop *hop = (struct tb_hop *)((char *)job - offsetof(struct tb_hop, look));
    /* Proofs that come from here on post a new job. A plain store could be seen after the reads of
     * proofs below: a proof set in between would then post none. */
    (void)__atomic_exchange_n(&hop->look_posted, false, __ATOMIC_ACQ_REL);
    if (!tb_hop_life_is_open(hop->life)) return;
    tb_hop_look_again(&hop->state);
    tb_hop_pump(hop);
}

/* The queue runs this before a close that is posted behind it. */
void tb_hop_proofs_came(struct tb_hop *hop)
{
    if (!__atomic_exchange_n(&hop->look_posted, true, __ATOMIC_ACQ_REL))
        tb_fabric_post(hop->fabric, &hop->look);
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
    hop->conclusion.run = conclude;
    hop->look.run = look_run;
    hop->options = *options;
    hop->idle_ms = options->idle_ms != 0 ? options->idle_ms : TB_HEARTBEAT_MS * TB_HEARTBEAT_MISSED;
    hop->open_ms = options->idle_ms != 0 ? options->idle_ms : TB_HEARTBEAT_OPEN_MS;
    if (options->base != NULL) hop->base = *options->base;
    hop->events = (struct tb_upstream_events){.on_shelf = on_shelf,
                                              .on_depth = on_depth,
                                              .on_open = on_open,
                                              .on_read = on_read,
                                              .on_confirmed = on_confirmed,
                                              .on_lost = on_lost,
                                              .on_closed = on_closed};
    tb_hop_slots_init(hop);
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
    if (hop->life != TB_HOP_LIFE_LOST) {
        tb_hop_end(hop, TB_HOP_ON_CLOSE);
        return;
    }
    tb_hop_life_step(&hop->life, TB_HOP_ON_CLOSE);
    release(hop);
}

void tb_hop_orphan(struct tb_hop *hop)
{
    if (tb_hop_life_is_silent(hop->life)) return; /* its owner waits for it */
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
    TB_ASSERT(hop->life == TB_HOP_LIFE_CLOSED && !hop->orphan);
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
