/* world_fabric.c - intra/fabric/fabric.h by READs in virtual time: a door knows its exports and
 * tokens, a hop drives the shipped cores (hop.c, source.c, pace.c). A READ takes a step or two; a
 * slow worker's takes long, by its token bucket. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/codec/codec.h"
#include "base/layout/land_chunk.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/hop/hop.h"
#include "intra/hop/token_bucket.h"
#include "world.h"
#include "world_faults.h"
#include "world_machine.h"
#include "world_process.h"
#include "world_versions.h"

#define TOKENS_MAX        8u
#define BUFFERS_MAX       (2u * SHARDS_MAX + 1u)
#define LINES_MAX         (SHARDS_MAX * CHUNKS_MAX)
#define AIMS_MAX          4u
#define ENCODED_BYTES_MAX 8192u
#define SCALE             1024u /* a byte of the world stands for so many: what the bucket counts */

struct export
{
    struct export *next;
    uint64_t id;
    struct tb_export_buffer buffers[BUFFERS_MAX];
    uint32_t buffer_count, token_at;
    bool has_shelf;
    struct tb_shelf_at shelf;
    struct tb_id tokens[TOKENS_MAX];
};

struct tb_fabric {
    struct tb_fabric *next;
    struct process *process;
    struct tb_fabric_endpoint door;
    struct export *exports;
    struct tb_hop *hops;
    struct tb_pace pace;
};

struct aim {
    struct tb_hop_aim aim;
    tb_time_ns at;
};

struct tb_hop {
    struct tb_hop *next;
    struct tb_fabric *fabric;
    struct tb_hop_options options;
    struct tb_place *places[SHARDS_MAX];
    void *source_memory;
    struct tb_hop_shard shards[SHARDS_MAX];
    uint64_t memory[SHARDS_MAX][8];
    struct tb_hop_state core;
    struct tb_hop_shelf shelf; /* the core's, or unused */
    struct tb_shelf_at shelf_at;
    struct tb_hop_base base;
    struct tb_shelf_entry shelf_memory[LINES_MAX + 4]; /* tb_hop_shelf_bytes of it */
    tb_time_ns open_at, heard_at;
    bool open, over;
    struct process *from;
    uint32_t from_life;
    struct aim aims[AIMS_MAX];
    uint32_t aim_count;
    /* Chunks that its rank encodes come one by one, of this shard alone; from `objects_end` on
     * none does. */
    uint32_t encoded_at, encoded_chunks_end;
    struct tb_hop_stats stats;
};

enum tb_status tb_fabric_open(const struct tb_fabric_options *options, struct tb_fabric **fabric_out)
{
    struct tb_fabric *f = tb_calloc(1, sizeof *f);
    f->process = the->current;
    f->door.host = options->host;
    (void)snprintf(f->door.shm_door, sizeof f->door.shm_door, "%u/%u", f->process->index, f->process->life);
    tb_pace_init(&f->pace, options->pace_bytes_per_s, the->now);
    f->next = f->process->fabrics;
    f->process->fabrics = f;
    *fabric_out = f;
    return TB_OK;
}

void tb_fabric_close(struct tb_fabric *fabric)
{
    (void)fabric; /* with its process */
}

void tb_fabric_endpoint(const struct tb_fabric *fabric, struct tb_fabric_endpoint *endpoint_out)
{
    *endpoint_out = fabric->door;
}

const char *tb_fabric_no_verbs(const struct tb_fabric *fabric)
{
    (void)fabric;
    return "a world has no NICs";
}

uint64_t tb_fabric_nic_bytes_per_s(const struct tb_fabric *fabric)
{
    (void)fabric;
    return 0;
}

void tb_fabric_memory_stays(struct tb_fabric *fabric, const void *bytes, uint64_t count)
{
    (void)fabric, (void)bytes, (void)count;
}

/* ---- the door ---- */

static struct export *export_find(const struct tb_fabric *f, uint64_t id)
{
    struct export *e = f->exports;
    while (e != NULL && e->id != id)
        e = e->next;
    return e;
}

enum tb_status tb_export_open(struct tb_fabric *f, const struct tb_export_options *options)
{
    if (export_find(f, options->export_id) != NULL) return TB_CONFLICT;
    struct export *e = tb_calloc(1, sizeof *e);
    TB_ASSERT(options->buffer_count <= BUFFERS_MAX);
    e->id = options->export_id;
    e->buffer_count = options->buffer_count;
    memcpy(e->buffers, options->buffers, options->buffer_count * sizeof *options->buffers);
    e->has_shelf = options->shelf != NULL;
    if (e->has_shelf) e->shelf = *options->shelf;
    e->next = f->exports;
    f->exports = e;
    return TB_OK;
}

enum tb_status tb_export_grant(struct tb_fabric *f, uint64_t export_id, const struct tb_id *token,
                               const struct tb_fingerprint *reader)
{
    (void)reader;
    struct export *e = export_find(f, export_id);
    if (e == NULL) return TB_NOT_FOUND;
    e->tokens[e->token_at++ % TOKENS_MAX] = *token;
    return TB_OK;
}

enum tb_status tb_export_grant_of(struct tb_fabric *f, uint64_t export_id, const struct tb_id *token,
                                  const struct tb_fingerprint *reader, uint64_t owner)
{
    (void)owner; /* the real fabric counts shares */
    return tb_export_grant(f, export_id, token, reader);
}

void tb_export_close(struct tb_fabric *f, uint64_t export_id, uint32_t drain_ms)
{
    (void)drain_ms;
    for (struct export **at = &f->exports; *at != NULL; at = &(*at)->next) {
        struct export *e = *at;
        if (e->id != export_id) continue;
        *at = e->next;
        tb_free(e);
        return;
    }
}

uint32_t tb_export_readers(struct tb_fabric *fabric, uint64_t export_id)
{
    (void)fabric, (void)export_id;
    return 0;
}

void tb_fabric_usage(struct tb_fabric *fabric, struct tb_fabric_usage *usage_out)
{
    (void)fabric;
    *usage_out = (struct tb_fabric_usage){0};
}

void tb_fabric_tokens(struct tb_fabric *fabric, void (*each)(void *user, const struct tb_fingerprint *reader),
                      void *user)
{
    (void)fabric, (void)each, (void)user;
}

void tb_export_owners_end(struct tb_fabric *fabric, const uint64_t *owners, uint32_t count)
{
    (void)fabric, (void)owners, (void)count; /* nobody is revoked or shut out while it reads */
}

bool tb_export_garbled_by(struct tb_fabric *fabric, uint64_t *owner_out)
{
    (void)fabric, (void)owner_out;
    return false;
}

/* ---- the reader ---- */

static void source_copy(struct tb_hop *h, const struct tb_hop_options *o)
{
    uint8_t encoded[512];
    struct tb_writer w;
    uint32_t count = 0;
    tb_writer_init(&w, encoded, sizeof encoded);
    tb_source_encode(o->source, o->source_count, &w);
    const size_t bytes = tb_source_decode_bytes(encoded, w.used);
    TB_ASSERT(!w.full && bytes > 0);
    h->source_memory = tb_malloc(bytes);
    const enum tb_status status =
        tb_source_decode(encoded, w.used, h->source_memory, bytes, &h->options.source, &count);
    TB_ASSERT(status == TB_OK && count == o->source_count);
}

enum tb_status tb_hop_open(struct tb_fabric *f, const struct tb_hop_options *options, struct tb_hop **hop_out)
{
    struct tb_hop *h = tb_calloc(1, sizeof *h);
    uint32_t count = 0;
    h->fabric = f;
    h->options = *options;
    if (options->base != NULL) h->base = *options->base;
    source_copy(h, options);
    for (uint32_t i = 0; i < options->place_count; i++) {
        for (uint32_t s = 0; s < options->source_count; s++) {
            if (h->options.source[s].shard != options->places[i].shard) continue;
            h->shards[count] = (struct tb_hop_shard){.source = &h->options.source[s],
                                                     .place = options->places[i].place,
                                                     .memory = h->memory[count],
                                                     .foreign = options->foreign};
            TB_ASSERT(tb_hop_shard_words(h->shards[count].place->manifest->chunk_count) <= 8);
            count++;
        }
    }
    tb_hop_state_init(&h->core, h->shards, count, options->order_seed, the->now);
    if (options->encoded_chunks != NULL &&
        count == 1) /* some rank stops in the middle, as its trainer publishes again */
        h->encoded_chunks_end = (uint32_t)world_random(2 * h->shards[0].chunk_count);
    h->open_at = tb_time_add(the->now, TB_MS(1 + world_random(5)));
    h->heard_at = the->now;
    struct tb_hop **at = &f->hops;
    while (*at != NULL)
        at = &(*at)->next;
    *at = h;
    *hop_out = h;
    return TB_OK;
}

static void drop(struct tb_hop *h, const struct tb_hop_aim *aim)
{
    if (!aim->passed_on) tb_place_unclaim(h->shards[aim->shard_index].place, aim->chunk);
    tb_hop_dropped(&h->core, aim);
}

static void aims_drop(struct tb_hop *h)
{
    for (uint32_t i = 0; i < h->aim_count; i++)
        drop(h, &h->aims[i].aim);
    h->aim_count = 0;
}

void tb_hop_close_counted(struct tb_hop *h, struct tb_hop_stats *last_out)
{
    *last_out = h->stats;
    struct tb_hop **at = &h->fabric->hops;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    aims_drop(h);
    tb_free(h->source_memory);
    tb_free(h);
}

void tb_hop_proofs_came(struct tb_hop *h)
{
    tb_hop_look_again(&h->core);
}

void tb_hop_close(struct tb_hop *h)
{
    struct tb_hop_stats last;
    tb_hop_close_counted(h, &last);
}

void tb_hop_stats(const struct tb_hop *hop, struct tb_hop_stats *stats_out)
{
    *stats_out = hop->stats;
}

static void tell(struct tb_hop *h, const struct tb_hop_event *e)
{
    h->options.fn(h->options.user, h, e);
}

static void lose(struct tb_hop *h, enum tb_status why)
{
    h->over = true;
    aims_drop(h);
    tell(h, &(struct tb_hop_event){.kind = TB_HOP_LOST, .why = why});
}

static struct tb_fabric *door_find(const char *name, struct process **process_out)
{
    for (uint32_t i = 0; i < the->process_count; i++) {
        struct process *p = &the->processes[i];
        for (struct tb_fabric *f = p->alive ? p->fabrics : NULL; f != NULL; f = f->next) {
            if (strcmp(f->door.shm_door, name) != 0) continue;
            *process_out = p;
            return f;
        }
    }
    return NULL;
}

/* The export, while its owner lives; TB_AGAIN: it is stopped. */
static enum tb_status reach(struct tb_hop *h, struct export **export_out)
{
    struct process *p = NULL;
    struct tb_fabric *f = door_find(h->options.from.shm_door, &p);
    if (f == NULL) return TB_STREAM_CLOSED;
    if (!world_process_runs(p)) return TB_AGAIN;
    *export_out = export_find(f, h->options.export_id);
    return *export_out != NULL ? TB_OK : TB_PEER_REVOKED;
}

static bool take_token(struct export *e, const struct tb_id *token)
{
    for (uint32_t i = 0; i < TOKENS_MAX; i++) {
        if (!tb_id_equal(&e->tokens[i], token)) continue;
        e->tokens[i] = (struct tb_id){{0}}; /* one use */
        return true;
    }
    return false;
}

/* One READ; false: outside what is exported, which the door refuses. */
static bool read_at(const struct export *e, uint32_t buffer, uint64_t offset, void *out, uint64_t bytes)
{
    if (buffer >= e->buffer_count || offset > e->buffers[buffer].count ||
        bytes > e->buffers[buffer].count - offset)
        return false;
    memcpy(out, (const uint8_t *)e->buffers[buffer].bytes + offset, bytes);
    return true;
}

/* ---- the source's shelf ---- */

static uint32_t line_bytes(void *user, uint32_t line)
{
    const struct tb_hop *h = user;
    uint32_t shard = 0;
    while (line >= h->shards[shard].chunk_count)
        line -= h->shards[shard++].chunk_count;
    return h->shards[shard].place->manifest->chunks[line].bytes;
}

/* The door has said whether there is one. */
static void shelf_begin(struct tb_hop *h, const struct export *e)
{
    struct tb_shelf *ours = h->options.shelf;
    const uint32_t count = (uint32_t)h->core.chunk_total;
    if (!e->has_shelf || h->core.shard_count < h->options.place_count) {
        if (ours != NULL) tb_shelf_close(ours);
        return;
    }
    TB_ASSERT(count <= LINES_MAX && tb_hop_shelf_bytes(count) <= sizeof h->shelf_memory);
    tb_hop_shelf_init(&h->shelf, h->shelf_memory, count);
    h->shelf_at = e->shelf;
    h->shelf.base = h->base;
    h->shelf.ours = ours != NULL && ours->count == count ? ours : NULL;
    h->shelf.decodes = true;
    h->core.shelf = &h->shelf;
}

/* Nobody in this world writes nonsense on a shelf (P4). */
static bool poll_shelf(struct tb_hop *h, const struct export *e)
{
    uint64_t words[TB_SHELF_HEAD_WORDS + TB_BITMAP_WORDS(LINES_MAX)],
        entries[LINES_MAX * TB_SHELF_ENTRY_WORDS];
    uint32_t first = 0, count = 0;
    if (h->core.shelf == NULL) return true;
    const uint64_t head_bytes = (TB_SHELF_HEAD_WORDS + TB_BITMAP_WORDS(h->shelf.count)) * sizeof words[0];
    if (!read_at(e, h->shelf_at.buffer, h->shelf_at.offset, words, head_bytes)) return false;
    enum tb_status status = tb_hop_shelf_head(&h->shelf, words);
    if (status == TB_OK && tb_hop_shelf_wanted(&h->shelf, &first, &count)) {
        const uint64_t at = h->shelf_at.offset + tb_shelf_entry_offset(h->shelf.count, first);
        if (!read_at(e, h->shelf_at.buffer, at, entries,
                     (uint64_t)count * TB_SHELF_ENTRY_WORDS * sizeof entries[0]))
            return false;
        status = tb_hop_shelf_entries(&h->shelf, first, entries, count, line_bytes, h);
    }
    if (status != TB_OK) world_fail("P4: %s reads nonsense on a shelf", h->fabric->process->name);
    return status == TB_OK;
}

static bool poll_bitmaps(struct tb_hop *h, const struct export *e)
{
    if (!poll_shelf(h, e)) return false;
    for (uint32_t s = 0; s < h->core.shard_count; s++) {
        uint64_t words[TB_BITMAP_WORDS(CHUNKS_MAX)];
        uint32_t first, count;
        const struct tb_source_shard *source = h->shards[s].source;
        if (!tb_hop_poll_words(&h->core, s, &first, &count)) continue;
        if (!read_at(e, source->held_buffer, source->held_offset + first * sizeof words[0], words,
                     count * sizeof words[0]))
            return false;
        if (tb_hop_seen(&h->core, s, first, words, count) != TB_OK) return false;
    }
    tb_hop_round_done(&h->core, the->now);
    return true;
}

static bool paced(struct tb_hop *h, uint64_t bytes)
{
    if (h->fabric->pace.bytes_per_s == 0) return true;
    const size_t want = (size_t)bytes * SCALE, got = tb_pace_take(&h->fabric->pace, want, the->now);
    if (got == want) return true;
    tb_pace_give_back(&h->fabric->pace, got);
    return false;
}

static void take_aims(struct tb_hop *h)
{
    struct tb_hop_aim aim;
    while (h->aim_count < AIMS_MAX && tb_hop_next(&h->core, &aim)) {
        if (!paced(h, aim.bytes)) {
            drop(h, &aim);
            h->core.dry = false;
            return;
        }
        h->aims[h->aim_count++] = (struct aim){aim, tb_time_add(the->now, TB_MS(world_random(12)))};
    }
}

static bool read_chunk(struct tb_hop *h, const struct export *e, const struct tb_hop_aim *aim)
{
    const struct tb_hop_shard *shard = &h->shards[aim->shard_index];
    const struct tb_manifest *m = shard->place->manifest;
    uint32_t bytes = 0;
    uint8_t *to = tb_place_chunk(shard->place, aim->chunk, &bytes);
    const uint64_t at = m->chunks[aim->chunk].offset;
    for (uint32_t done = 0; done < bytes;) {
        const struct tb_source_run run = tb_source_run_at(shard->source, m, at + done, bytes - done);
        if (!read_at(e, run.buffer, run.offset, to + done, run.bytes)) return false;
        done += (uint32_t)run.bytes;
    }
    /* Twice wrong from a rank means that somebody wrote to sealed bytes: nobody here does. */
    const bool spared =
        h->fabric->process->kind == PROCESS_GATEWAY && tb_bitmap_test(shard->suspect, aim->chunk);
    if (!spared && world_strikes(FAULT_CORRUPT, 1000)) to[0] ^= 1u;
    return true;
}

/* Of the base that the shelf was opened with. */
static enum tb_status decode(struct tb_hop *h, const struct tb_hop_aim *aim,
                             const struct tb_codec_coded *coded)
{
    struct tb_place *place = h->shards[aim->shard_index].place;
    struct tb_land l = {.place = place, .chunk = aim->chunk, .encoded = coded, .foreign = h->options.foreign};
    const enum tb_status status = tb_codec_new(&l.codec); /* the one of all */
    TB_ASSERT(status == TB_OK);
    if (coded->form.on_base)
        l.base = tb_land_base(h->base.places[aim->shard_index], place->manifest, aim->chunk);
    return tb_land_chunk(&l);
}

/* False: outside what is exported. */
static bool take_encoded(struct tb_hop *h, const struct export *e, const struct tb_hop_aim *aim)
{
    uint8_t bytes[SHARD_BYTES];
    const uint64_t at = h->shelf_at.offset + tb_shelf_room_offset(h->shelf.count) + aim->encoded->offset;
    TB_ASSERT(aim->encoded->bytes <= sizeof bytes);
    if (!read_at(e, h->shelf_at.buffer, at, bytes, aim->encoded->bytes)) return false;
    if (world_strikes(FAULT_CORRUPT, 1000)) bytes[aim->encoded->bytes / 2] ^= 1u;
    const struct tb_codec_coded coded = {aim->encoded->form, bytes, aim->encoded->bytes};
    const bool good = aim->passed_on || decode(h, aim, &coded) == TB_OK;
    if (good && tb_hop_shelf_passes(&h->shelf, aim->line)) tb_shelf_put(h->shelf.ours, aim->line, &coded);
    if (good)
        tb_hop_landed(&h->core, aim);
    else
        tb_hop_encoded_failed(&h->core, aim);
    the->went[WAY_ENCODED] += good && !aim->passed_on;
    return true;
}

static void finish(struct tb_hop *h, const struct tb_hop_aim *aim)
{
    const struct tb_hop_shard *shard = &h->shards[aim->shard_index];
    tb_hop_state_check(&h->core);
    if (tb_place_finish(shard->place, aim->chunk) == TB_OK) {
        tb_hop_landed(&h->core, aim);
        h->stats.chunks_landed++;
        h->stats.bytes_read += aim->bytes;
        return;
    }
    if (!tb_hop_failed(&h->core, aim)) return;
    tell(h, &(struct tb_hop_event){
                .kind = TB_HOP_CHUNK_BAD, .shard = shard->source->shard, .chunk = aim->chunk, .twice = true});
}

static bool land(struct tb_hop *h, const struct export *e)
{
    for (uint32_t i = 0; i < h->aim_count;) {
        const struct aim a = h->aims[i];
        if (the->now < a.at) {
            i++;
            continue;
        }
        h->aims[i] = h->aims[--h->aim_count];
        if (a.aim.encoded != NULL) {
            if (take_encoded(h, e, &a.aim)) continue;
            drop(h, &a.aim);
            return false;
        }
        if (!read_chunk(h, e, &a.aim)) {
            drop(h, &a.aim);
            return false;
        }
        finish(h, &a.aim);
    }
    return true;
}

/* ---- what the rank encodes ---- */

static uint32_t version_of_place(const struct tb_place *place)
{
    for (uint32_t v = 0; v < the->version_count; v++)
        for (uint32_t s = 0; s < the->versions[v].shard_count; s++)
            if (tb_digest_equal(&the->versions[v].shards[s].manifest.root, &place->manifest->root)) return v;
    return NONE;
}

/* On the version before, as world_trainer.c says; a byte of it may be wrong. */
static bool encode(const struct tb_hop *h, uint32_t v, uint8_t *room, struct tb_codec_coded *coded_out)
{
    const uint32_t shard = h->shards[0].source->shard;
    struct piece *piece = &the->versions[v].shards[shard],
                 *base = &the->versions[world_version_before(v)].shards[shard];
    struct tb_codec *codec = NULL;
    uint32_t bytes = 0;
    struct tb_codec_input in = {.bytes = tb_place_chunk(&piece->place, h->encoded_at, &bytes),
                                .base = tb_place_chunk(&base->place, h->encoded_at, &bytes),
                                .classes = 8};
    in.count = bytes;
    in.dtype = tb_layout_dtype_at(&piece->manifest.layout, piece->manifest.chunks[h->encoded_at].offset);
    if (tb_codec_new(&codec) != TB_OK) return false;
    const struct tb_codec_form form = {TB_CODEC_SPARSE, true};
    const struct tb_codec_room out = {room, ENCODED_BYTES_MAX};
    TB_ASSERT(tb_codec_bound(form.id, bytes) <= ENCODED_BYTES_MAX);
    const bool good = tb_codec_encode(codec, form, &in, out, coded_out) == TB_OK && coded_out->form.on_base;
    tb_codec_free(codec);
    if (good && world_strikes(FAULT_CORRUPT, 1000)) room[coded_out->count / 2] ^= 1u;
    return good;
}

/* True: more of them are to come. */
static bool bring_encoded(struct tb_hop *h)
{
    static uint8_t room[ENCODED_BYTES_MAX];
    const struct tb_hop_shard *shard = &h->shards[0];
    if (h->encoded_at >= h->encoded_chunks_end || h->encoded_at >= shard->chunk_count) return false;
    if (world_random(3) == 0) return true;
    const uint32_t v = version_of_place(shard->place);
    TB_ASSERT(v != NONE && world_version_before(v) != NONE);
    struct tb_codec_coded coded;
    const struct tb_hop_encoded encoded = {.shard = shard->source->shard,
                                           .chunk = h->encoded_at,
                                           .chunk_count = shard->chunk_count,
                                           .base = the->versions[world_version_before(v)].key.uid,
                                           .coded = encode(h, v, room, &coded) ? &coded : NULL};
    h->options.encoded_chunks(h->options.user, &encoded);
    h->encoded_at++;
    return true;
}

static void hop_run(struct tb_hop *h)
{
    struct export *e = NULL;
    const enum tb_status status = reach(h, &e);
    if (status == TB_AGAIN) {
        if (tb_time_since(h->heard_at, the->now) >= TB_SECONDS(5)) lose(h, TB_STREAM_IDLE);
        return;
    }
    h->heard_at = the->now;
    if (status != TB_OK) {
        lose(h, status);
        return;
    }
    if (!h->open && !take_token(e, &h->options.token)) {
        lose(h, TB_PEER_TOKEN);
        return;
    }
    if (!h->open) shelf_begin(h, e);
    h->open = true;
    bool sound = the->now < h->core.poll_at || poll_bitmaps(h, e);
    if (sound) take_aims(h);
    sound = sound && land(h, e);
    const bool more = sound && bring_encoded(h);
    if (!sound) {
        lose(h, TB_PEER_GARBLED);
    } else if (!more && tb_hop_whole(&h->core)) {
        h->over = true;
        tell(h, &(struct tb_hop_event){.kind = TB_HOP_WHOLE});
    }
}

/* A callback may close its hop, which ends this turn. */
bool world_fabric_run(struct process *p)
{
    bool did = false;
    the->current = p;
    for (struct tb_fabric *f = p->fabrics; f != NULL; f = f->next) {
        for (struct tb_hop *h = f->hops, *next; h != NULL; h = next) {
            next = h->next;
            if (h->over || the->now < h->open_at) continue;
            hop_run(h);
            did = true;
        }
    }
    the->current = NULL;
    return did;
}
