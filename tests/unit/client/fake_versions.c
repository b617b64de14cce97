/* fake_versions.c - the versions that the fake gateway has: made here, or sealed by ranks and read
 * through a real fabric. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/codec/codec.h"
#include "base/layout/chunk_cut.h"
#include "base/layout/shelf.h"
#include "base/layout/version_key.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/source_descriptor.h"
#include "tests/unit/forged_chunk.h"
#include "unit/client/fake_inside.h"

struct fake_version *fake_find(struct fake *f, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++)
        if (f->versions[i].used && tb_id_equal(&f->versions[i].key.uid, uid)) return &f->versions[i];
    return NULL;
}

struct fake_version *fake_find_number(struct fake *f, uint64_t number)
{
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++)
        if (f->versions[i].used && f->versions[i].key.number == number) return &f->versions[i];
    return NULL;
}

struct fake_version *fake_new_version(struct fake *f, const char *model, const struct tb_id *run,
                                      uint64_t number, uint32_t shard_count)
{
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++) {
        struct fake_version *v = &f->versions[i];
        if (v->used) continue;
        memset(v, 0, sizeof *v);
        v->used = true;
        v->chain_session = UINT32_MAX;
        v->key = (struct tb_version_key){
            .run = *run, .run_order = 1, .number = number, .shard_count = shard_count};
        assert_int_equal(tb_name_set(&v->key.model, model), TB_OK);
        tb_random_bytes(v->key.uid.bytes, 16);
        return v;
    }
    fail_msg("too many versions");
    return NULL;
}

void fake_become_ready(struct fake_version *v)
{
    struct tb_digest roots[FAKE_SHARDS_MAX];
    for (uint32_t i = 0; i < v->key.shard_count; i++) {
        if (!v->shards[i].sealed) return;
        roots[i] = v->shards[i].manifest.root;
    }
    v->key.root = tb_version_key_root(&v->key, roots);
    v->ready = true;
}

uint8_t *fake_copy_of(const void *bytes, uint32_t count)
{
    uint8_t *copy = malloc((size_t)count + 1);
    assert_non_null(copy);
    if (count > 0) memcpy(copy, bytes, count);
    return copy;
}

static void make_place(struct fake_shard *sh)
{
    const uint64_t words = TB_BITMAP_WORDS(sh->manifest.chunk_count) + 1;
    free(sh->bytes);
    free(sh->held);
    free(sh->claimed);
    sh->bytes = calloc(1, sh->manifest.bytes + 1);
    sh->held = calloc(words, 8);
    sh->claimed = calloc(words, 8);
    sh->place = (struct tb_place){
        .manifest = &sh->manifest, .bytes = sh->bytes, .held = sh->held, .claimed = sh->claimed};
}

struct fake_version *fake_version(struct fake *f, uint64_t number)
{
    pthread_mutex_lock(&f->lock);
    struct fake_version *v = fake_find_number(f, number);
    pthread_mutex_unlock(&f->lock);
    assert_non_null(v);
    return v;
}

struct tb_uid fake_uid(const struct fake_version *v)
{
    struct tb_uid uid;
    memcpy(uid.bytes, v->key.uid.bytes, sizeof uid.bytes);
    return uid;
}

/* ---- reading what a rank exports ---- */

struct hearing {
    struct fake *f;
    bool whole, lost;
    enum tb_status why;
};

static void hop_said(void *user, struct tb_hop *hop, const struct tb_hop_event *event)
{
    (void)hop;
    struct hearing *h = user;
    pthread_mutex_lock(&h->f->lock);
    if (event->kind == TB_HOP_WHOLE) h->whole = true;
    if (event->kind == TB_HOP_LOST) {
        h->lost = true;
        h->why = event->why;
    }
    pthread_cond_broadcast(&h->f->changed);
    pthread_mutex_unlock(&h->f->lock);
}

struct granting {
    uint32_t session;
    struct tb_msg_grant grant;
};

static void grant_job(struct fake *f, void *user)
{
    const struct granting *g = user;
    FAKE_SEND(&f->sessions[g->session], TB_MSG_GRANT, 0, tb_msg_grant, &g->grant, 0);
}

/* A rank answers each GRANT, also one for an export that is closed: its door then says no. */
static void wait_granted(struct fake *f, const struct tb_id *token)
{
    const time_t until = time(NULL) + FAKE_BOUND_S;
    pthread_mutex_lock(&f->lock);
    while (!tb_id_equal(&f->granted.token, token))
        fake_wait_change(f, until);
    pthread_mutex_unlock(&f->lock);
}

enum tb_status fake_read(struct fake *f, struct fake_version *v, uint32_t shard)
{
    make_place(&v->shards[shard]);
    struct fake_shard *sh = &v->shards[shard];
    struct granting g = {.session = sh->session,
                         .grant = {.export_id = sh->export_id, .reader = f->door.fingerprint}};
    tb_random_bytes(g.grant.token.bytes, 16);
    fake_run_job(f, grant_job, &g);
    wait_granted(f, &g.grant.token);
    const struct tb_msg_hello *h = &f->sessions[sh->session].hello;
    static struct hearing hearing; /* a hop that is kept has it still */
    hearing = (struct hearing){.f = f};
    const struct tb_source_shard *source;
    uint32_t count;
    const size_t bytes = tb_source_decode_bytes(sh->source, sh->source_bytes);
    void *memory = malloc(bytes);
    assert_int_equal(tb_source_decode(sh->source, sh->source_bytes, memory, bytes, &source, &count), TB_OK);
    const struct tb_hop_place place = {shard, &sh->place};
    struct tb_hop_options o = {.export_id = sh->export_id,
                               .token = g.grant.token,
                               .source = source,
                               .source_count = count,
                               .places = &place,
                               .place_count = 1,
                               .fn = hop_said,
                               .user = &hearing};
    o.from.host = h->host;
    snprintf(o.from.shm_door, sizeof o.from.shm_door, "%.107s", h->shm_door.text);
    snprintf(o.from.tcp, sizeof o.from.tcp, "%.63s", h->tcp.text);
    o.from.tls = h->tls;
    o.from.fingerprint = h->print;
    struct tb_hop *hop;
    assert_int_equal(tb_hop_open(f->fabric, &o, &hop), TB_OK);
    const time_t until = time(NULL) + FAKE_BOUND_S;
    pthread_mutex_lock(&f->lock);
    while (!hearing.whole && !hearing.lost)
        fake_wait_change(f, until);
    pthread_mutex_unlock(&f->lock);
    if (f->keep_hop)
        f->kept_hop = hop; /* says nothing more: it is whole */
    else
        tb_hop_close(hop);
    f->keep_hop = false;
    free(memory);
    return hearing.whole ? TB_OK : hearing.why;
}

void fake_let_go(struct fake *f)
{
    tb_hop_close(f->kept_hop);
    f->kept_hop = NULL;
}

/* The delta to it pays, and decodes to another chunk. */
#define FORGED_BYTES 8192u
static uint8_t *forged_of(const struct fake_shard *sh)
{
    uint8_t *bytes = fake_copy_of(sh->bytes, sh->manifest.chunks[0].bytes);
    forge_chunk(bytes, FORGED_BYTES, 0x3f);
    return bytes;
}

static void shelve(struct tb_shelf *shelf, struct tb_codec *codec, const struct fake_shard *sh,
                   const struct fake_shard *base, uint32_t first, bool forges)
{
    uint8_t *forged = forges ? forged_of(sh) : NULL;
    const struct tb_manifest *m = &sh->manifest;
    const struct tb_codec_room room = {malloc(tb_codec_bound(TB_CODEC_SPARSE, TB_CHUNK_BYTES_MAX)),
                                       tb_codec_bound(TB_CODEC_SPARSE, TB_CHUNK_BYTES_MAX)};
    for (uint32_t k = 0; k < m->chunk_count; k++) {
        struct tb_codec_coded coded;
        const bool other = k == 0 && forged != NULL;
        const struct tb_codec_input in = {.bytes = other ? forged : sh->bytes + m->chunks[k].offset,
                                          .count = m->chunks[k].bytes,
                                          .dtype = tb_layout_dtype_at(&m->layout, m->chunks[k].offset),
                                          .base = base->bytes + m->chunks[k].offset,
                                          .classes = 1};
        CHECK_OK(tb_codec_encode(codec, (struct tb_codec_form){TB_CODEC_SPARSE, true}, &in, room, &coded));
        tb_shelf_put(shelf, first + k, coded.form.on_base ? &coded : NULL);
    }
    free(room.bytes);
    free(forged);
}

static struct tb_export_buffer shelf_of(struct fake_version *v, const struct fake_version *base, bool forges)
{
    uint32_t count = 0;
    uint64_t bytes = 0;
    struct tb_shelf shelf;
    struct tb_codec *codec;
    for (uint32_t i = 0; i < v->key.shard_count; i++) {
        count += v->shards[i].manifest.chunk_count;
        bytes += v->shards[i].manifest.bytes;
    }
    v->shelf_memory = calloc(1, tb_shelf_bytes(count, bytes));
    tb_shelf_init(&shelf, v->shelf_memory, count, bytes);
    tb_shelf_open(&shelf, &base->key.uid);
    CHECK_OK(tb_codec_new(&codec));
    for (uint32_t i = 0, first = 0; i < v->key.shard_count; first += v->shards[i++].manifest.chunk_count)
        shelve(&shelf, codec, &v->shards[i], &base->shards[i], first, forges && i == 0);
    tb_shelf_close(&shelf);
    tb_codec_free(codec);
    return (struct tb_export_buffer){
        .bytes = v->shelf_memory, .count = tb_shelf_bytes(count, bytes), .memfd = -1};
}

static void export_landed(struct fake *f, struct fake_version *v, const struct fake_version *base)
{
    struct tb_export_buffer buffers[FAKE_SHARDS_MAX + 1];
    for (uint32_t i = 0; i < v->key.shard_count; i++)
        buffers[i] = (struct tb_export_buffer){
            .bytes = v->shards[i].bytes, .count = v->shards[i].manifest.bytes, .memfd = -1};
    v->export_id = ++f->next_export;
    const bool has_shelf = f->shelves && base != NULL;
    const struct tb_shelf_at at = {.buffer = v->key.shard_count};
    if (has_shelf) buffers[v->key.shard_count] = shelf_of(v, base, f->forges);
    const struct tb_export_options options = {.export_id = v->export_id,
                                              .buffers = buffers,
                                              .buffer_count = v->key.shard_count + has_shelf,
                                              .shelf = has_shelf ? &at : NULL};
    assert_int_equal(tb_export_open(f->fabric, &options), TB_OK);
    v->exported = true;
}

void fake_land(struct fake *f, uint64_t number)
{
    fake_land_on(f, number, NULL);
}

void fake_land_on(struct fake *f, uint64_t number, const struct fake_version *base)
{
    struct fake_version *v = fake_version(f, number);
    for (uint32_t i = 0; i < v->key.shard_count; i++)
        CHECK_OK(fake_read(f, v, i));
    pthread_mutex_lock(&f->lock);
    if (!v->exported) export_landed(f, v, base);
    pthread_mutex_unlock(&f->lock);
    fake_state(f, number, TB_OK);
}

/* ---- a version made here ---- */

/* With a base: its bytes, one of a hundred changed; without, noise. */
static void make_bytes(struct fake_shard *sh, const struct fake_shard *base, uint64_t seed)
{
    for (uint64_t i = 0; i < sh->manifest.bytes; i++) {
        const bool keep = base != NULL && i % 100 != seed % 100;
        sh->bytes[i] = keep           ? base->bytes[i]
                       : base != NULL ? (uint8_t)(base->bytes[i] + 1)
                                      : (uint8_t)(check_random(&seed) >> 5);
    }
}

static void make_shard(struct fake_shard *sh, uint32_t shard, uint32_t tensors, uint64_t tensor_bytes,
                       const struct fake_shard *base, uint64_t seed)
{
    struct tb_tensor list[16];
    char names[16][16];
    assert_true(tensors <= 16);
    memset(list, 0, sizeof list);
    for (uint32_t i = 0; i < tensors; i++) {
        snprintf(names[i], sizeof names[i], "t%u", shard * tensors + i);
        list[i] = (struct tb_tensor){.name = names[i],
                                     .dtype = TB_DTYPE_U8,
                                     .rank = 1,
                                     .full = {tensor_bytes},
                                     .box_count = {tensor_bytes}};
    }
    const size_t layout_bytes = tb_layout_bytes_for(list, tensors);
    void *layout_memory = malloc(layout_bytes);
    struct tb_layout layout;
    assert_int_equal(tb_layout_build(list, tensors, layout_memory, layout_bytes, &layout), TB_OK);
    const struct tb_blob blob = {.name = "config.json", .bytes = 5};
    const size_t bytes = tb_manifest_bytes_for(&layout, &blob, 1);
    sh->manifest_memory = malloc(bytes);
    assert_int_equal(tb_manifest_build(&layout, &blob, 1, sh->manifest_memory, bytes, &sh->manifest), TB_OK);
    free(layout_memory);
    make_place(sh);
    make_bytes(sh, base, seed);
    for (uint32_t k = 0; k < sh->manifest.chunk_count; k++)
        sh->manifest.digests[k] =
            tb_digest_of(sh->bytes + sh->manifest.chunks[k].offset, sh->manifest.chunks[k].bytes);
    sh->manifest.root = tb_manifest_root(&sh->manifest);
    sh->head_bytes = (uint32_t)tb_manifest_head_bytes(&sh->manifest);
    sh->head = malloc(sh->head_bytes);
    struct tb_writer w;
    tb_writer_init(&w, sh->head, sh->head_bytes);
    tb_manifest_head_encode(&sh->manifest, &w);
    sh->sealed = true;
}

static struct fake_version *make_version(struct fake *f, uint64_t number, uint32_t shard_count,
                                         uint32_t tensors, uint64_t tensor_bytes,
                                         const struct fake_version *base)
{
    const struct tb_id run = {{1}};
    pthread_mutex_lock(&f->lock);
    struct fake_version *v = fake_new_version(f, "policy", &run, number, shard_count);
    for (uint32_t i = 0; i < shard_count; i++)
        make_shard(&v->shards[i], i, tensors, tensor_bytes, base == NULL ? NULL : &base->shards[i],
                   base == NULL ? number * 100 + i : number);
    fake_become_ready(v);
    assert_true(v->ready);
    export_landed(f, v, base);
    pthread_mutex_unlock(&f->lock);
    return v;
}

struct fake_version *fake_make(struct fake *f, uint64_t number, uint32_t shard_count, uint32_t tensors,
                               uint64_t tensor_bytes)
{
    return make_version(f, number, shard_count, tensors, tensor_bytes, NULL);
}

struct fake_version *fake_step(struct fake *f, uint64_t number, const struct fake_version *base,
                               uint32_t tensors)
{
    return make_version(f, number, base->key.shard_count, tensors,
                        base->shards[0].manifest.layout.tensors[0].bytes, base);
}
