/* Encoded chunks inside a site under faults: a gateway's thread encodes a version on the one before
 * it, and a worker that holds that one reads encoded chunks over tcp and passes them on. Whichever
 * call fails: what is held is what was sealed, no source is blamed for an encoded chunk, the one on
 * a shelf is the chunk's (P1), and where there are none the version comes whole all the same (P6).
 *
 * Covers: gateway/daemon/copies/shelves.c intra/hop/hop_shelf.c base/layout/shelf.c */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/codec/codec.h"
#include "base/log.h"
#include "base/net/library_faults.h"
#include "gateway/daemon/copies/shelves.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/hop/hop_shelf.h"
#include "intra/transport/transport_words.h"
#include "tests/fault/sweep.h"
#include "unit/intra/island.h"

static const struct way tcp = {.name = "tcp-clear", .transport = TB_TRANSPORT_TCP, .clear = true};
static const struct tb_id v1 = {.bytes = {1}};

/* A copy, and beside it a shelf. */
struct copy {
    struct hold hold;
    struct tb_shelf shelf;
    void *memory;
};

struct site {
    struct cargo cargo;
    struct hold base;
    const struct tb_place *bases[1];
    struct copy source, worker;
    const struct tb_place *places[1];
    struct tb_fabric *fabric; /* the source's */
    struct tb_source_shard shard;
    struct tale tale;
    bool shelved, faulty;    /* the thread said nothing against it */
    uint32_t encoded_chunks; /* that the worker decoded */
};

static void copy_make(struct copy *c, const struct cargo *cargo)
{
    const uint32_t count = cargo->manifest.chunk_count;
    hold_make(&c->hold, cargo);
    c->memory = calloc(1, tb_shelf_bytes(count, cargo->manifest.bytes));
    tb_shelf_init(&c->shelf, c->memory, count, cargo->manifest.bytes);
}

static void copy_free(struct copy *c)
{
    hold_free(&c->hold);
    free(c->memory);
}

static void prepare(void *world)
{
    struct site *w = world;
    const struct tb_manifest *m = &w->cargo.manifest;
    copy_make(&w->source, &w->cargo);
    copy_make(&w->worker, &w->cargo);
    memcpy(w->source.hold.bytes, w->cargo.bytes, m->bytes);
    for (uint32_t k = 0; k < m->chunk_count; k++)
        (void)tb_bitmap_set(w->source.hold.place.held, k);
    w->places[0] = &w->source.hold.place;
    w->fabric = fabric_make(&tcp, 0);
    w->shard = (struct tb_source_shard){.held_buffer = 1};
    const struct tb_export_buffer buffers[] = {
        {.bytes = w->source.hold.bytes, .count = m->bytes, .memfd = -1},
        {.bytes = w->source.hold.place.held, .count = TB_BITMAP_WORDS(m->chunk_count) * 8, .memfd = -1},
        {.bytes = w->source.memory, .count = tb_shelf_bytes(m->chunk_count, m->bytes), .memfd = -1}};
    const struct tb_shelf_at at = {.buffer = 2};
    const struct tb_export_options options = {
        .export_id = EXPORT_ID, .buffers = buffers, .buffer_count = 3, .shelf = &at};
    CHECK_OK(tb_export_open(w->fabric, &options));
    tale_init(&w->tale);
}

/* As copy_shelf.c does: where there is no thread or no memory the shelf is closed,
 * and chunks come whole. */
static bool encode(struct site *w)
{
    struct tb_shelves *shelves = NULL;
    struct tb_shelf_work *work = NULL;
    const struct tb_shelf_task task = {
        .shelf = &w->source.shelf, .base = v1, .shard_count = 1, .places = w->places, .bases = w->bases};
    enum tb_status status = tb_shelves_open(&shelves);
    if (status == TB_OK) status = tb_shelves_work_begin(shelves, &task, &work);
    if (status != TB_OK) tb_shelf_close(&w->source.shelf);
    for (uint32_t k = 0; status == TB_OK && k < w->cargo.manifest.chunk_count; k++)
        wait_until(tb_shelf_has(&w->source.shelf, k));
    tb_shelves_work_end(work);
    tb_shelves_close(shelves);
    return status == TB_OK;
}

static bool read_all(struct site *w)
{
    struct tb_fabric *reader = NULL;
    struct tb_hop *hop = NULL;
    struct tb_hop_stats stats = {.chunks_encoded = 0};
    struct tb_fabric_options fabric = {.tcp_address = "127.0.0.1:0", .trusted = true, .threads = 2};
    const struct tb_hop_base base = {.uid = v1, .places = w->bases};
    struct tb_hop_place place = {.place = &w->worker.hold.place};
    struct tb_hop_options options = {.export_id = EXPORT_ID,
                                     .token = {.bytes = {5}},
                                     .transport = TB_TRANSPORT_TCP,
                                     .source = &w->shard,
                                     .source_count = 1,
                                     .places = &place,
                                     .place_count = 1,
                                     .base = &base,
                                     .shelf = &w->worker.shelf,
                                     .fn = tale_fn,
                                     .user = &w->tale,
                                     .idle_ms = SWEEP_PATIENCE_MS(100u)};
    CHECK_OK(tb_name_set(&fabric.host, "reef"));
    if (tb_fabric_open(&fabric, &reader) != TB_OK) return false;
    struct tb_fabric_endpoint me;
    tb_fabric_endpoint(reader, &me);
    tb_fabric_endpoint(w->fabric, &options.from);
    enum tb_status status = tb_export_grant(w->fabric, EXPORT_ID, &options.token, &me.fingerprint);
    if (status == TB_OK) status = tb_hop_open(reader, &options, &hop);
    if (status == TB_OK) {
        wait_until(told(&w->tale).whole > 0 || told(&w->tale).lost > 0);
        tb_hop_close_counted(hop, &stats);
    }
    tb_fabric_close(reader);
    w->encoded_chunks = stats.chunks_encoded;
    return status == TB_OK && told(&w->tale).whole > 0 && told(&w->tale).lost == 0;
}

static bool round_run(void *world)
{
    struct site *w = world;
    w->faulty = sweep_faulty;
    w->shelved = encode(w);
    const bool whole = read_all(w);
    return w->shelved && whole;
}

/* Each encoded chunk decodes to its chunk. */
static void shelf_check(const struct site *w, const struct copy *c)
{
    const struct tb_manifest *m = &w->cargo.manifest;
    const uint64_t *words = c->memory;
    struct tb_shelf_head head;
    struct tb_codec *codec = NULL;
    CHECK_OK(tb_codec_new(&codec));
    assert_true(tb_shelf_head_read(words, m->chunk_count, &head));
    for (uint32_t k = 0; k < m->chunk_count; k++) {
        const struct tb_chunk *chunk = &m->chunks[k];
        struct tb_shelf_entry e;
        if (!tb_shelf_has(&c->shelf, k)) continue;
        assert_true(tb_shelf_entry_read(words + tb_shelf_entry_offset(m->chunk_count, k) / 8, &head,
                                        chunk->bytes, &e));
        if (e.bytes == 0) continue;
        uint8_t *out = malloc(chunk->bytes);
        const struct tb_codec_coded coded = {
            e.form, (const uint8_t *)c->memory + tb_shelf_room_offset(m->chunk_count) + e.offset, e.bytes};
        CHECK_OK(tb_codec_decode(
            codec, &coded, &(struct tb_codec_output){out, chunk->bytes, w->base.bytes + chunk->offset}));
        assert_memory_equal(out, w->cargo.bytes + chunk->offset, chunk->bytes);
        free(out);
    }
    tb_codec_free(codec);
}

static void check(void *world, bool done)
{
    struct site *w = world;
    assert_int_equal(told(&w->tale).bad, 0);
    /* A reader without memory to decode in reads chunks whole. */
    assert_true(!done || (tb_place_whole(&w->worker.hold.place) && (w->encoded_chunks > 0 || w->faulty)));
    hold_check(&w->worker.hold, &w->cargo);
    shelf_check(w, &w->source);
    shelf_check(w, &w->worker);
    tb_fabric_close(w->fabric);
    tale_fini(&w->tale);
    copy_free(&w->source);
    copy_free(&w->worker);
}

static void encoded_chunks_are_the_chunks_or_are_not_there(void **state)
{
    (void)state;
    static struct site w;
    cargo_make(&w.cargo, 1, 300000);
    hold_make(&w.base, &w.cargo);
    memcpy(w.base.bytes, w.cargo.bytes, w.cargo.manifest.bytes);
    for (uint64_t at = 0; at < w.cargo.manifest.bytes; at += 400)
        w.base.bytes[at]++;
    for (uint32_t k = 0; k < w.cargo.manifest.chunk_count; k++)
        (void)tb_bitmap_set(w.base.place.held, k);
    w.bases[0] = &w.base.place;
    sweep_run(
        &(struct sweep){.prepare = prepare, .round = round_run, .check = check, .world = &w, .most = 6});
    hold_free(&w.base);
    cargo_free(&w.cargo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(encoded_chunks_are_the_chunks_or_are_not_there)};
    tb_net_library_faults();
    tb_log_set(TB_LOG_ERROR, -1);
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
