/* world_arena.c - gateway/arena/arena.h over memory that outlives the gateway's process, as
 * a file on tmpfs does.
 *
 * P3 is looked at where a region leaves: a starting gateway gives up nothing that was ready and
 * that its store does not call ended. */
#include <stdlib.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_proofs.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/arena/arena_verify.h"
#include "world.h"
#include "world_check.h"
#include "world_faults.h"
#include "world_machine.h"
#include "world_process.h"
#include "world_versions.h"

struct shard {
    bool space, ready;
    uint32_t rotted;
    struct tb_manifest manifest;
    _Alignas(16) uint8_t memory[8192];
    uint8_t bytes[SHARD_BYTES];
    uint64_t held[1], claimed[1];
    uint64_t seen; /* by the checker */
    uint64_t dated;
    tb_time_ns since[CHUNKS_MAX]; /* it is held; of those that are dated */
    struct tb_place place;
};

struct tb_arena_region {
    struct tb_arena_region *next;
    struct arena_file *file;
    struct tb_version_key key;
    uint32_t refs;
    struct shard shards[SHARDS_MAX];
};

struct tb_arena {
    struct arena_file *file;
    uint64_t bytes;
    struct tb_layouts *layouts;
    bool (*proves)(void *user, const struct tb_name *model);
    void *proves_user;
};

void world_arena_new(struct arena_file *f)
{
    *f = (struct arena_file){.life = world_id()};
}

/* A chunk that leaves an arena counts as never told: when it lands again it may come from
 * anywhere, and not be told yet. */
static void forget_told(const struct arena_file *f, const struct tb_id *uid, uint32_t shard, uint64_t chunks)
{
    const uint32_t version = world_version_find(uid);
    for (uint32_t i = 0; i < ROWS_MAX; i++)
        for (uint32_t peer = 0; version != NONE && peer < ROWS_MAX; peer++)
            if (&the->sites[i].arena == f) the->paths[peer][i].told[version][shard] &= ~chunks;
}

static void forget_told_all(const struct tb_arena_region *r)
{
    for (uint32_t s = 0; s < SHARDS_MAX; s++)
        forget_told(r->file, &r->key.uid, s, UINT64_MAX);
}

void world_arena_drop(struct arena_file *f)
{
    while (f->regions != NULL) {
        struct tb_arena_region *r = f->regions;
        f->regions = r->next;
        forget_told_all(r);
        free(r);
    }
    f->used_bytes = 0;
}

static void unprove(struct shard *s)
{
    memset(s->manifest.proven, 0, TB_BITMAP_WORDS(s->manifest.chunk_count) * sizeof *s->manifest.proven);
}

enum tb_status tb_arena_open(const struct tb_arena_options *options, struct tb_arena **arena_out,
                             char error_out[TB_ARENA_ERROR_BYTES])
{
    error_out[0] = '\0';
    struct tb_arena *a = tb_calloc(1, sizeof *a);
    a->file = &the->sites[the->current->site].arena;
    a->bytes = options->bytes;
    a->layouts = tb_layouts_new();
    for (struct tb_arena_region *r = a->file->regions; r != NULL; r = r->next) {
        r->refs = 0;
        for (uint32_t s = 0; s < SHARDS_MAX; s++) {
            r->shards[s].claimed[0] = 0; /* a claim does not outlive its process */
            r->shards[s].rotted = 0;
            r->shards[s].place.proves = NULL;
            if (r->shards[s].space &&
                !tb_manifest_all_proven(&r->shards[s].manifest)) /* the file has all or none */
                unprove(&r->shards[s]);
        }
    }
    the->sites[the->current->site].open_arena = a;
    *arena_out = a;
    return TB_OK;
}

void tb_arena_close(struct tb_arena *arena)
{
    if (arena != NULL) tb_layouts_free(arena->layouts);
    tb_free(arena);
}

/* Each place has memory of its own. */
void *tb_arena_memory(struct tb_arena *arena, uint64_t *bytes_out)
{
    (void)arena;
    *bytes_out = 0;
    return NULL;
}

struct tb_layouts *tb_arena_layouts(struct tb_arena *arena)
{
    return arena->layouts;
}

struct tb_id tb_arena_life(struct tb_arena *arena)
{
    return arena->file->life;
}

void tb_arena_budget(struct tb_arena *arena, struct tb_arena_budget *b)
{
    *b = (struct tb_arena_budget){.total_bytes = arena->bytes,
                                  .used_bytes = arena->file->used_bytes,
                                  .free_bytes = arena->bytes - arena->file->used_bytes,
                                  .largest_free_bytes = arena->bytes - arena->file->used_bytes,
                                  .slots_free = 64};
    for (const struct tb_arena_region *r = arena->file->regions; r != NULL; r = r->next)
        b->regions++;
}

struct tb_arena_region *tb_arena_region(struct tb_arena *arena, const struct tb_id *uid)
{
    struct tb_arena_region *r = arena->file->regions;
    while (r != NULL && !tb_id_equal(&r->key.uid, uid))
        r = r->next;
    return r;
}

struct tb_arena_region *tb_arena_region_next(struct tb_arena *arena, struct tb_arena_region *previous)
{
    return previous == NULL ? arena->file->regions : previous->next;
}

enum tb_status tb_arena_region_new(struct tb_arena *arena, const struct tb_version_key *key,
                                   struct tb_arena_region **region_out, char error_out[TB_ARENA_ERROR_BYTES])
{
    error_out[0] = '\0';
    *region_out = tb_arena_region(arena, &key->uid);
    if (*region_out != NULL) return TB_DONE_BEFORE;
    TB_ASSERT(key->shard_count <= SHARDS_MAX);
    struct tb_arena_region *r = calloc(1, sizeof *r);
    TB_ASSERT(r != NULL);
    r->file = arena->file;
    r->key = *key;
    struct tb_arena_region **at = &arena->file->regions;
    while (*at != NULL)
        at = &(*at)->next;
    *at = r;
    *region_out = r;
    return TB_OK;
}

static enum tb_status copy_manifest(struct shard *s, const struct tb_manifest *m)
{
    uint8_t head[4096];
    struct tb_writer w;
    tb_writer_init(&w, head, sizeof head);
    tb_manifest_head_encode(m, &w);
    TB_ASSERT(!w.full);
    const enum tb_status status =
        tb_manifest_head_decode(head, w.used, s->memory, sizeof s->memory, &s->manifest);
    if (status == TB_OK) memcpy(s->manifest.digests, m->digests, m->chunk_count * sizeof *m->digests);
    struct tb_blake3 proof;
    for (uint32_t k = 0; status == TB_OK && k < m->chunk_count; k++)
        if (tb_manifest_proof(m, k, &proof)) tb_manifest_set_proof(&s->manifest, k, &proof);
    return status;
}

static struct tb_arena *arena_of(const struct tb_arena_region *r)
{
    struct tb_arena *a = the->sites[the->current->site].open_arena;
    TB_ASSERT(a != NULL && a->file == r->file);
    return a;
}

/* Chunks that an earlier process left are verified, and proven, at once. */
static void shard_proves(const struct tb_arena *a, struct tb_arena_region *r, struct shard *s)
{
    if (!s->space || a->proves == NULL || !a->proves(a->proves_user, &r->key.model)) return;
    s->place.proves = &s->manifest;
    for (uint32_t k = 0; k < s->manifest.chunk_count; k++) {
        struct tb_blake3 proof;
        if (!tb_place_held(&s->place, k) || tb_manifest_proof(&s->manifest, k, &proof)) continue;
        proof = tb_blake3_of(s->bytes + s->manifest.chunks[k].offset, s->manifest.chunks[k].bytes);
        tb_manifest_set_proof(&s->manifest, k, &proof);
    }
}

void tb_arena_prove(struct tb_arena *a, bool (*of)(void *user, const struct tb_name *model), void *user)
{
    a->proves = of;
    a->proves_user = user;
    for (struct tb_arena_region *r = a->file->regions; r != NULL; r = r->next)
        for (uint32_t s = 0; s < SHARDS_MAX; s++)
            shard_proves(a, r, &r->shards[s]);
}

bool tb_arena_region_proven(const struct tb_arena_region *r)
{
    bool proven = tb_arena_region_complete(r);
    for (uint32_t s = 0; proven && s < r->key.shard_count; s++)
        proven = tb_manifest_all_proven(&r->shards[s].manifest);
    return proven;
}

uint64_t tb_arena_region_proven_bytes(const struct tb_arena_region *r)
{
    return tb_arena_region_proven(r) ? (uint64_t)r->key.shard_count * SHARD_BYTES : 0;
}

struct tb_manifest *tb_arena_manifest(struct tb_arena_region *r, uint32_t shard)
{
    TB_ASSERT(r->shards[shard].space);
    return &r->shards[shard].manifest;
}

void tb_arena_proofs_keep(struct tb_arena_region *r)
{
    (void)r; /* the file has the manifests themselves */
}

void tb_arena_proofs_drop(struct tb_arena_region *r)
{
    for (uint32_t s = 0; s < r->key.shard_count; s++)
        if (r->shards[s].space) unprove(&r->shards[s]);
}

enum tb_status tb_arena_shard_reserve(struct tb_arena_region *r, uint32_t shard,
                                      const struct tb_manifest *manifest,
                                      char error_out[TB_ARENA_ERROR_BYTES])
{
    struct shard *s = &r->shards[shard];
    const struct site *site = &the->sites[the->current->site];
    error_out[0] = '\0';
    if (shard >= r->key.shard_count) return TB_BAD_ARGUMENT;
    if (s->space) return tb_digest_equal(&s->manifest.root, &manifest->root) ? TB_DONE_BEFORE : TB_CONFLICT;
    if (r->file->used_bytes + SHARD_BYTES > site->config.arena_bytes) return TB_SITE_NOMEM;
    const enum tb_status status = copy_manifest(s, manifest);
    TB_ASSERT(status == TB_OK && s->manifest.bytes <= SHARD_BYTES);
    s->space = true;
    s->place = (struct tb_place){
        .manifest = &s->manifest, .bytes = s->bytes, .held = s->held, .claimed = s->claimed};
    shard_proves(arena_of(r), r, s);
    r->file->used_bytes += SHARD_BYTES;
    return TB_OK;
}

enum tb_status tb_arena_digests_done(struct tb_arena_region *r, uint32_t shard)
{
    struct shard *s = &r->shards[shard];
    if (!s->space) return TB_BAD_STATE;
    if (s->ready) return TB_DONE_BEFORE;
    const struct tb_digest root = tb_manifest_root(&s->manifest);
    if (!tb_digest_equal(&root, &s->manifest.root)) return TB_CHUNK_DIGEST;
    s->ready = true;
    return TB_OK;
}

static void unlink_region(struct tb_arena_region *r)
{
    struct tb_arena_region **at = &r->file->regions;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    forget_told_all(r);
    for (uint32_t s = 0; s < SHARDS_MAX; s++)
        r->file->used_bytes -= r->shards[s].space ? SHARD_BYTES : 0;
    free(r);
}

enum tb_status tb_arena_reserve(struct tb_arena *arena, const struct tb_version_key *key,
                                const struct tb_manifest *const *manifests, uint32_t count,
                                struct tb_arena_region **region_out, char error_out[TB_ARENA_ERROR_BYTES])
{
    struct tb_arena_region *r = NULL;
    enum tb_status status = tb_arena_region_new(arena, key, &r, error_out);
    const bool made = status == TB_OK;
    for (uint32_t s = 0; s < count; s++) {
        status = tb_arena_shard_reserve(r, s, manifests[s], error_out);
        if (status == TB_OK) status = tb_arena_digests_done(r, s);
        if (status != TB_OK && status != TB_DONE_BEFORE) break;
    }
    if (status == TB_OK || status == TB_DONE_BEFORE) {
        *region_out = r;
        return made ? TB_OK : TB_DONE_BEFORE;
    }
    if (made) unlink_region(r);
    return status;
}

const struct tb_version_key *tb_arena_region_key(const struct tb_arena_region *r)
{
    return &r->key;
}

enum tb_status tb_arena_region_set_root(struct tb_arena_region *r, const struct tb_digest *root)
{
    static const struct tb_digest zero;
    if (!tb_digest_equal(&r->key.root, &zero) && !tb_digest_equal(&r->key.root, root)) return TB_CONFLICT;
    r->key.root = *root;
    return TB_OK;
}

bool tb_arena_region_complete(const struct tb_arena_region *r)
{
    bool complete = true;
    for (uint32_t s = 0; s < r->key.shard_count; s++)
        complete &= r->shards[s].ready;
    return complete;
}

bool tb_arena_region_whole(const struct tb_arena_region *r)
{
    bool whole = tb_arena_region_complete(r);
    for (uint32_t s = 0; whole && s < r->key.shard_count; s++)
        whole = tb_place_whole(&r->shards[s].place);
    return whole;
}

bool tb_arena_region_tell(const struct tb_arena_region *r,
                          void (*fn)(void *user, uint32_t shard, uint32_t held_chunks), void *user)
{
    for (uint32_t s = 0; s < r->key.shard_count; s++)
        if (r->shards[s].ready) fn(user, s, tb_place_held_count(&r->shards[s].place));
    return tb_arena_region_whole(r);
}

struct tb_place *tb_arena_place(struct tb_arena_region *r, uint32_t shard)
{
    return r->shards[shard].space ? &r->shards[shard].place : NULL;
}

bool tb_arena_place_ready(const struct tb_arena_region *r, uint32_t shard)
{
    return r->shards[shard].ready;
}

void tb_arena_region_ref(struct tb_arena_region *r)
{
    r->refs++;
}

void tb_arena_region_unref(struct tb_arena_region *r)
{
    r->refs--;
}

static bool store_says_ended(const struct site *site, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < site->store.now.version_count; i++) {
        const struct tb_store_version *v = &site->store.now.versions[i];
        if (tb_id_equal(&v->key.uid, uid)) return v->state >= TB_VERSION_RETIRED;
    }
    return false;
}

enum tb_status tb_arena_free(struct tb_arena_region *r)
{
    static const struct tb_digest zero;
    const struct site *site = &the->sites[the->current->site];
    if (r->refs > 0) return TB_BAD_STATE;
    const bool ready = !tb_digest_equal(&r->key.root, &zero);
    if (site->daemon == NULL && ready && !store_says_ended(site, &r->key.uid))
        world_fail("P3: %s gives up v%u at its start", site->name.text, world_version_find(&r->key.uid) + 1);
    unlink_region(r);
    return TB_OK;
}

/* ---- verifying: the world finds rot by itself (world_arena_rot) ---- */

bool tb_arena_chunk_trusted(const struct tb_arena_region *r, uint32_t shard, uint32_t k)
{
    return tb_place_held(&r->shards[shard].place, k);
}

/* Asked of a base's chunk alone. The fault: that chunk cannot be used, as after a
 * re-verification that it failed. */
enum tb_status tb_arena_chunk_verify(struct tb_arena_region *r, uint32_t shard, uint32_t k)
{
    const bool held = tb_place_held(&r->shards[shard].place, k);
    return held && !world_strikes(FAULT_BASE, 10000) ? TB_OK : TB_CHUNK_ABSENT;
}

/* Held bytes are right: the checker looks. */
enum tb_status tb_arena_chunk_recheck(struct tb_arena_region *r, uint32_t shard, uint32_t k)
{
    return tb_place_held(&r->shards[shard].place, k) ? TB_OK : TB_CHUNK_ABSENT;
}

uint32_t tb_arena_place_rotted(struct tb_arena_region *r, uint32_t shard)
{
    const uint32_t rotted = r->shards[shard].ready ? r->shards[shard].rotted : 0;
    if (rotted > 0) r->shards[shard].rotted = 0;
    return rotted;
}

enum tb_status tb_arena_verify_step(struct tb_arena *arena, uint64_t max_bytes,
                                    struct tb_arena_verified *done_out)
{
    (void)arena, (void)max_bytes, (void)done_out;
    return TB_END;
}

/* As they land: the world's threads run in one instant. */
bool tb_arena_prove_later(struct tb_arena *arena, bool later)
{
    (void)arena, (void)later;
    return false;
}

enum tb_status tb_arena_prove_step(struct tb_arena *arena, uint64_t max_bytes, bool suspects,
                                   struct tb_arena_verified *done_out)
{
    (void)arena, (void)max_bytes, (void)suspects;
    *done_out = (struct tb_arena_verified){0};
    return TB_END;
}

/* The world has no free lists; world_check.c looks at the regions. */
void tb_arena_assert_tables(struct tb_arena *arena)
{
    (void)arena;
}

enum tb_status tb_arena_map_step(struct tb_arena *arena, uint64_t max_bytes)
{
    (void)arena, (void)max_bytes;
    return TB_END;
}

void tb_arena_mapping(struct tb_arena *arena, bool look, struct tb_arena_mapping *mapping_out)
{
    (void)arena, (void)look;
    *mapping_out = (struct tb_arena_mapping){.page_bytes = 4096}; /* nothing to map: no thread for it */
}

static void life_renew(struct arena_file *f)
{
    f->life = world_id();
    for (struct tb_arena_region *r = f->regions; r != NULL; r = r->next)
        for (uint32_t s = 0; s < SHARDS_MAX; s++)
            r->shards[s].seen = r->shards[s].held[0];
}

bool world_arena_rot(struct arena_file *f)
{
    struct tb_arena_region *found = NULL;
    uint32_t shard = 0, count = 0;
    for (struct tb_arena_region *r = f->regions; r != NULL; r = r->next) {
        for (uint32_t s = 0; s < r->key.shard_count; s++) {
            if (!r->shards[s].ready || r->shards[s].held[0] == 0) continue;
            if (world_draw(FAULT_ROT, ++count) != 0) continue;
            found = r;
            shard = s;
        }
    }
    if (found == NULL) return false;
    struct shard *s = &found->shards[shard];
    const uint32_t k = (uint32_t)__builtin_ctzll(s->held[0]);
    s->held[0] &= ~(UINT64_C(1) << k);
    s->dated &= s->held[0];
    s->rotted++;
    forget_told(f, &found->key.uid, shard, UINT64_C(1) << k);
    life_renew(f);
    the->forgot_at = the->now;
    world_say("v%u chunk %u of shard %u rots", world_version_find(&found->key.uid) + 1, k, shard);
    return true;
}

static const struct shard *shard_of(const struct arena_file *f, uint32_t version, uint32_t shard)
{
    for (const struct tb_arena_region *r = f->regions; r != NULL; r = r->next)
        if (tb_id_equal(&r->key.uid, &the->versions[version].key.uid)) return &r->shards[shard];
    return NULL;
}

uint64_t world_arena_held(const struct arena_file *f, uint32_t version, uint32_t shard)
{
    const struct shard *s = shard_of(f, version, shard);
    return s != NULL ? s->held[0] : 0;
}

uint64_t world_arena_held_for(const struct arena_file *f, uint32_t version, uint32_t shard, tb_time_ns least)
{
    const struct shard *s = shard_of(f, version, shard);
    uint64_t held = 0;
    for (uint32_t k = 0; s != NULL && k < CHUNKS_MAX; k++)
        if ((s->held[0] & s->dated) >> k & 1 && tb_time_since(s->since[k], the->now) > least)
            held |= UINT64_C(1) << k;
    return held;
}

static void date(struct shard *s)
{
    for (uint64_t news = s->held[0] & ~s->dated; news != 0; news &= news - 1)
        s->since[__builtin_ctzll(news)] = the->now;
    s->dated = s->held[0];
}

void world_arena_check(struct site *s)
{
    for (struct tb_arena_region *r = s->arena.regions; r != NULL; r = r->next) {
        const uint32_t version = world_version_find(&r->key.uid);
        bool whole = version != NONE;
        for (uint32_t i = 0; version != NONE && i < r->key.shard_count; i++) {
            if (r->shards[i].ready)
                world_check_place(&r->shards[i].place, version, i, &r->shards[i].seen, s->name.text);
            whole &= r->shards[i].held[0] == world_version_all(version, i);
            date(&r->shards[i]);
        }
        if (whole) the->versions[version].whole_at |= 1u << s->gateway->site;
    }
    if (s->arena.used_bytes > s->config.arena_bytes)
        world_fail("P7: %s uses more than its arena", s->name.text);
}
