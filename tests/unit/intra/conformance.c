/* conformance.c - what every way to move bytes inside a site must do; each test runs over each way.
 *
 *   P1  what is held is what was sealed        P4  no chunk is written twice
 *   P6  a lost source does not stop a reader   P7  hostile peers cost a bounded amount
 *   P8  only the token and print that were granted open an export
 *   P10 each refusal leaves one line */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/codec.h"
#include "intra/hop_wire.h"
#include "island.h"
#include "island_far.h"

/* Half a gigabyte twice is too much for the shadow memory of a sanitizer. */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define MANY_CHUNKS 150
#else
#define MANY_CHUNKS 1000
#endif

/* An emulated processor (sim/vm) would take minutes for what a real one does in a second. */
#define FEW_CHUNKS 60

static const struct way ways[] = {
    {.name = "shm-memfd", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_SHARED},
    {.name = "shm-readv", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_OWN},
    {.name = "shm-socket", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_UNSEALED},
    {.name = "tcp-clear", .transport = TB_TRANSPORT_TCP, .memory = MEMORY_OWN, .clear = true},
    {.name = "tcp-tls", .transport = TB_TRANSPORT_TCP, .memory = MEMORY_OWN},
    {.name = "verbs-clear", .transport = TB_TRANSPORT_VERBS, .memory = MEMORY_OWN, .clear = true},
    {.name = "verbs-tls", .transport = TB_TRANSPORT_VERBS, .memory = MEMORY_SHARED},
};

static bool over_network(const struct way *way)
{
    return way->transport != TB_TRANSPORT_SHM;
}

/* One owner, one reader's fabric, one place: what nearly every test needs. */
struct scene {
    const struct way *way;
    struct cargo cargo;
    struct owner owner;
    struct hold hold;
    struct tb_hop_place place;
    struct tb_fabric *reader;
    struct tale tale;
};

static void scene_open(struct scene *s, const struct way *way, uint32_t tensors, uint64_t tensor_bytes,
                       uint64_t pace)
{
    memset(s, 0, sizeof *s);
    s->way = way;
    cargo_make(&s->cargo, tensors, tensor_bytes);
    owner_open(&s->owner, way, &s->cargo, pace);
    hold_make(&s->hold, &s->cargo);
    s->place = (struct tb_hop_place){.shard = 3, .place = &s->hold.place};
    s->reader = fabric_make(way, pace);
    tale_init(&s->tale);
}

static struct tb_hop *scene_hop(struct scene *s)
{
    struct tb_hop *hop = NULL;
    const struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    return hop;
}

static void scene_close(struct scene *s)
{
    hold_check(&s->hold, &s->cargo); /* P1, in every test */
    tb_fabric_close(s->reader);
    owner_close(&s->owner);
    hold_free(&s->hold);
    cargo_free(&s->cargo);
    tale_fini(&s->tale);
}

/* ---- bytes arrive ---- */

static void P1_a_whole_transfer_is_exact(void **state)
{
    struct scene s;
    scene_open(&s, *state, 9, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).transport, s.way->transport);
    assert_true(tb_place_whole(&s.hold.place));
    struct tb_hop_stats stats;
    tb_hop_stats(hop, &stats);
    assert_int_equal(stats.bytes_read, s.cargo.manifest.bytes);
    assert_int_equal(stats.chunks_landed, s.cargo.manifest.chunk_count);
    assert_int_equal(stats.bytes_wasted, 0);
    assert_int_equal(stats.transport, s.way->transport);
    tb_hop_close(hop);
    scene_close(&s);
}

/* The caller's own tensors: each in memory of its own, in any order, with the blobs apart. */
static void P1_scattered_tensors_arrive_packed(void **state)
{
    struct scene s;
    scene_open(&s, *state, 300, 40004, 0);
    const struct tb_layout *layout = &s.cargo.manifest.layout;
    const uint32_t n = layout->tensor_count;
    struct tb_export_buffer *buffers = calloc(n + 1, sizeof *buffers);
    struct tb_source_at *at = calloc(n, sizeof *at);
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t b = n - 1 - t; /* buffers in another order than tensors */
        buffers[b] = (struct tb_export_buffer){.bytes = malloc(layout->tensors[t].bytes + 5),
                                               .count = layout->tensors[t].bytes + 5,
                                               .memfd = -1};
        memcpy((uint8_t *)buffers[b].bytes + 5, s.cargo.bytes + layout->tensors[t].offset,
               layout->tensors[t].bytes);
        at[t] = (struct tb_source_at){.buffer = b, .offset = 5};
    }
    buffers[n] = (struct tb_export_buffer){
        .bytes = s.cargo.bytes + layout->bytes, .count = s.cargo.manifest.blob_bytes, .memfd = -1};
    owner_export(&s.owner, buffers, n + 1);
    s.owner.shard = (struct tb_source_shard){.shard = 3,
                                             .held_buffer = TB_SOURCE_ALL_HELD,
                                             .scattered = true,
                                             .packed_buffer = n,
                                             .tensor_count = n,
                                             .tensors = at};
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    owner_revoke(&s.owner, 0);
    for (uint32_t b = 0; b < n; b++)
        free(buffers[b].bytes);
    free(buffers);
    free(at);
    scene_close(&s);
}

struct encoded {
    struct tb_source_object *objects;
    uint8_t *bytes;
    uint64_t used;
};

static void encode(struct encoded *e, const struct cargo *c)
{
    struct tb_codec *codec = NULL;
    assert_int_equal(tb_codec_new(&codec), TB_OK);
    e->objects = calloc(c->manifest.chunk_count, sizeof *e->objects);
    e->bytes = malloc(2 * c->manifest.bytes + 65536);
    e->used = 0;
    for (uint32_t k = 0; k < c->manifest.chunk_count; k++) {
        const struct tb_chunk *chunk = &c->manifest.chunks[k];
        const struct tb_codec_input in = {
            .bytes = c->bytes + chunk->offset, .count = chunk->bytes, .dtype = TB_DTYPE_U8};
        const struct tb_codec_room room = {e->bytes + e->used, tb_codec_bound(TB_CODEC_ZSTD, chunk->bytes)};
        struct tb_codec_coded coded;
        assert_int_equal(
            tb_codec_encode(codec, (struct tb_codec_form){.id = TB_CODEC_ZSTD}, &in, room, &coded), TB_OK);
        e->objects[k] = (struct tb_source_object){
            .codec = (uint8_t)coded.form.id, .bytes = (uint32_t)coded.count, .buffer = 0, .offset = e->used};
        if (coded.form.id == TB_CODEC_ZSTD) e->used += coded.count;
    }
    tb_codec_free(codec);
    assert_true(e->used > 0);
}

/* Encoded objects beside packed bytes: chunks that zstd did not shrink are read packed. */
static void P1_encoded_objects_are_decoded(void **state)
{
    struct scene s;
    struct encoded e;
    scene_open(&s, *state, 5, 3000004, 0);
    memset(s.cargo.bytes, 7, 5000000); /* some chunks shrink well */
    for (uint32_t k = 0; k < s.cargo.manifest.chunk_count; k++)
        s.cargo.manifest.digests[k] =
            tb_digest_of(s.cargo.bytes + s.cargo.manifest.chunks[k].offset, s.cargo.manifest.chunks[k].bytes);
    encode(&e, &s.cargo);
    e.objects[1].codec = TB_CODEC_RAW;
    const struct tb_export_buffer buffers[] = {
        {.bytes = e.bytes, .count = e.used, .memfd = -1},
        {.bytes = s.cargo.bytes, .count = s.cargo.manifest.bytes, .memfd = -1}};
    owner_export(&s.owner, buffers, 2);
    s.owner.shard = (struct tb_source_shard){.shard = 3,
                                             .held_buffer = TB_SOURCE_ALL_HELD,
                                             .packed_buffer = 1,
                                             .object_count = s.cargo.manifest.chunk_count,
                                             .objects = e.objects};
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    struct tb_hop_stats stats;
    tb_hop_stats(hop, &stats);
    assert_true(stats.bytes_read < s.cargo.manifest.bytes - 2000000);
    tb_hop_close(hop);
    owner_revoke(&s.owner, 0);
    free(e.objects);
    free(e.bytes);
    scene_close(&s);
}

/* A damaged encoded chunk is a bad chunk, not a crash and not a held one. */
static void P1_a_damaged_object_is_bad(void **state)
{
    struct scene s;
    struct encoded e;
    scene_open(&s, *state, 1, 3000004, 0);
    memset(s.cargo.bytes, 7, 3000000);
    encode(&e, &s.cargo);
    for (uint32_t i = 0; i < e.objects[0].bytes; i++)
        e.bytes[i] ^= 0x5a;
    const struct tb_export_buffer buffer = {.bytes = e.bytes, .count = e.used, .memfd = -1};
    owner_export(&s.owner, &buffer, 1);
    s.owner.shard = (struct tb_source_shard){.shard = 3,
                                             .held_buffer = TB_SOURCE_ALL_HELD,
                                             .object_count = s.cargo.manifest.chunk_count,
                                             .objects = e.objects};
    for (uint32_t k = 1; k < s.cargo.manifest.chunk_count; k++) { /* only chunk 0 is wanted */
        memcpy(s.hold.bytes + s.cargo.manifest.chunks[k].offset,
               s.cargo.bytes + s.cargo.manifest.chunks[k].offset, s.cargo.manifest.chunks[k].bytes);
        (void)tb_bitmap_set(s.hold.place.held, k);
    }
    struct tb_hop *hop = scene_hop(&s);
    tale_wait(&s.tale, &s.tale.told.bad, 1);
    assert_int_equal(told(&s.tale).bad_chunk, 0);
    tb_hop_close(hop);
    assert_false(tb_place_held(&s.hold.place, 0));
    owner_revoke(&s.owner, 0);
    free(e.objects);
    free(e.bytes);
    scene_close(&s);
}

/* A source that fills while it is read: nothing is asked before its bit is set, all of it arrives. */
static void P1_a_filling_source_is_followed(void **state)
{
    struct scene s;
    scene_open(&s, *state, 9, 3000004, 0);
    const uint32_t n = s.cargo.manifest.chunk_count;
    owner_fill(&s.owner, 0); /* what is not held is not there */
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_opened(&s.tale);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t k = (i * 7 + 3) % n;
        if (n % 7 == 0) skip();
        const struct tb_chunk *chunk = &s.cargo.manifest.chunks[k];
        assert_false(tb_place_held(&s.hold.place, k));
        owner_put(&s.owner, 64 + chunk->offset, s.cargo.bytes + chunk->offset, chunk->bytes);
        owner_hold(&s.owner, k, k + 1);
        wait_until(tb_place_held(&s.hold.place, k));
    }
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).bad, 0);
    struct tb_hop_stats stats;
    tb_hop_stats(hop, &stats);
    assert_int_equal(stats.bytes_wasted, 0); /* a chunk asked for too early would not have matched */
    tb_hop_close(hop);
    scene_close(&s);
}

static void P6_a_thousand_chunks_in_one_go(void **state)
{
    struct scene s;
    const struct way *way = *state;
    scene_open(&s, way, way->transport == TB_TRANSPORT_VERBS ? FEW_CHUNKS : MANY_CHUNKS, 540000, 0);
    owner_hold_all(&s.owner);
    const tb_time_ns from = tb_clock_now();
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    const double seconds = (double)(tb_clock_now() - from) * 1e-9;
    print_message("%s: %u chunks, %.0f MB/s\n", s.way->name, s.cargo.manifest.chunk_count,
                  (double)s.cargo.manifest.bytes / 1e6 / seconds);
    tb_hop_close(hop);
    scene_close(&s);
}

/* ---- sources end, readers go on ---- */

/* The source dies with half of the version read: LOST, what is held stays, another source completes it. */
static void P6_a_dead_source_is_replaced(void **state)
{
    struct scene s;
    struct owner other;
    scene_open(&s, *state, 9, 3000004, 0);
    const uint32_t n = s.cargo.manifest.chunk_count;
    owner_open(&other, s.way, &s.cargo, 0);
    owner_hold_all(&other);
    owner_hold(&s.owner, 0, n / 2);
    struct tb_hop *hop = scene_hop(&s);
    wait_until(tb_place_held_count(&s.hold.place) == n / 2);
    owner_stop(&s.owner);
    tale_wait_lost(&s.tale);
    assert_int_not_equal(told(&s.tale).why, TB_OK);
    assert_int_equal(tb_place_held_count(&s.hold.place), n / 2);
    tb_hop_close(hop);

    struct tb_hop_options options = hop_to(&other, s.reader, s.way, &s.place, &s.tale);
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_whole(&s.tale);
    struct tb_hop_stats stats;
    tb_hop_stats(hop, &stats);
    assert_int_equal(stats.chunks_landed, n - n / 2); /* P5: nothing held was read again */
    tb_hop_close(hop);
    owner_close(&other);
    scene_close(&s);
}

/* What the owner's process and the reader's tell each other. */
struct letter {
    struct tb_fabric_endpoint endpoint;
    struct tb_source_shard shard;
    struct tb_id token;
};

/* The other process: a source of half the version, until it is killed. */
static void serve_half(const struct way *way, const struct cargo *cargo, int from, int to)
{
    struct owner owner;
    struct tb_fingerprint reader;
    struct letter letter;
    owner_open(&owner, way, cargo, 0);
    owner_hold(&owner, 0, cargo->manifest.chunk_count / 2);
    if (read(from, &reader, sizeof reader) != sizeof reader) _exit(1);
    letter = (struct letter){.endpoint = owner.endpoint, .shard = owner.shard, .token = {{4, 5, 6}}};
    if (owner_grant(&owner, &letter.token, &reader) != TB_OK) _exit(1);
    if (write(to, &letter, sizeof letter) != sizeof letter) _exit(1);
    for (;;)
        pause();
}

/* kill -9 of the source's process with its memory mapped: LOST, what is held stays and is right. */
static void P6_a_killed_process_is_a_lost_source(void **state)
{
    const struct way *way = *state;
    struct cargo cargo;
    struct hold hold;
    struct tale tale;
    struct letter letter;
    struct tb_fabric_endpoint me;
    int there[2], back[2];
    cargo_make(&cargo, 20, 1200000);
    assert_int_equal(pipe(there), 0);
    assert_int_equal(pipe(back), 0);
    const pid_t child = fork(); /* before this process has threads */
    if (child == 0) serve_half(way, &cargo, there[0], back[1]);
    assert_true(child > 0);

    struct tb_fabric *reader = fabric_make(way, 0);
    hold_make(&hold, &cargo);
    tale_init(&tale);
    tb_fabric_endpoint(reader, &me);
    assert_int_equal(write(there[1], &me.fingerprint, sizeof me.fingerprint), sizeof me.fingerprint);
    assert_int_equal(read(back[0], &letter, sizeof letter), sizeof letter);
    const struct tb_hop_place place = {.shard = 3, .place = &hold.place};
    const struct tb_hop_options options = {.export_id = EXPORT_ID,
                                           .token = letter.token,
                                           .from = letter.endpoint,
                                           .transport = way->transport,
                                           .source = &letter.shard,
                                           .source_count = 1,
                                           .places = &place,
                                           .place_count = 1,
                                           .fn = tale_fn,
                                           .user = &tale};
    struct tb_hop *hop = NULL;
    assert_int_equal(tb_hop_open(reader, &options, &hop), TB_OK);
    wait_until(tb_place_held_count(&hold.place) == cargo.manifest.chunk_count / 2);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    tale_wait_lost(&tale);
    assert_int_equal(tb_place_held_count(&hold.place), cargo.manifest.chunk_count / 2);
    assert_int_equal(told(&tale).bad, 0);
    tb_hop_close(hop);
    hold_check(&hold, &cargo);
    tb_fabric_close(reader);
    hold_free(&hold);
    cargo_free(&cargo);
    tale_fini(&tale);
    for (int i = 0; i < 2; i++) {
        close(there[i]);
        close(back[i]);
    }
}

static void P4_two_hops_write_no_chunk_twice(void **state)
{
    struct scene s;
    struct owner other;
    struct tale tale;
    scene_open(&s, *state, 40, 1200000, 0);
    owner_open(&other, s.way, &s.cargo, 0);
    tale_init(&tale);
    owner_hold_all(&other);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = scene_hop(&s), *second = NULL;
    struct tb_hop_options options = hop_to(&other, s.reader, s.way, &s.place, &tale);
    options.order_seed = 17;
    assert_int_equal(tb_hop_open(s.reader, &options, &second), TB_OK);
    tale_wait_whole(&s.tale);
    tale_wait_whole(&tale);
    struct tb_hop_stats a, b;
    tb_hop_stats(hop, &a);
    tb_hop_stats(second, &b);
    assert_int_equal(a.chunks_landed + b.chunks_landed, s.cargo.manifest.chunk_count);
    assert_int_equal(a.bytes_read + b.bytes_read, s.cargo.manifest.bytes);
    tb_hop_close(hop);
    tb_hop_close(second);
    owner_close(&other);
    tale_fini(&tale);
    scene_close(&s);
}

static void P1_corrupted_bytes_are_never_held(void **state)
{
    struct scene s;
    scene_open(&s, *state, 9, 3000004, 0);
    const uint32_t n = s.cargo.manifest.chunk_count;
    const uint64_t at = s.cargo.manifest.chunks[4].offset + 77;
    const uint8_t wrong = s.cargo.bytes[at] ^ 1;
    owner_put(&s.owner, 64 + at, &wrong, 1);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = scene_hop(&s);
    tale_wait(&s.tale, &s.tale.told.bad, 1);
    wait_until(tb_place_held_count(&s.hold.place) == n - 1);
    assert_int_equal(told(&s.tale).bad_chunk, 4);
    assert_true(told(&s.tale).bad_twice);
    assert_false(tb_place_held(&s.hold.place, 4));
    struct tb_hop_stats stats;
    tb_hop_stats(hop, &stats);
    assert_int_equal(stats.bytes_wasted,
                     2 * (uint64_t)s.cargo.manifest.chunks[4].bytes); /* read again once */
    tb_hop_close(hop);
    assert_int_equal(told(&s.tale).bad, 1); /* told once, asked no more */
    assert_int_equal(told(&s.tale).lost, 0);
    assert_int_equal(told(&s.tale).whole, 0);
    scene_close(&s);
}

/* The owner takes its memory back while it is read, and scribbles over it: the reader sees REVOKED and blames
 * nobody. */
static void P1_revoked_memory_is_nobodys_fault(void **state)
{
    for (int round = 0; round < 5; round++) {
        struct scene s;
        scene_open(&s, *state, 40, 1200000, 0);
        owner_hold_all(&s.owner);
        struct tb_hop *hop = scene_hop(&s);
        wait_until(tb_place_held_count(&s.hold.place) > (uint32_t)round * 4);
        owner_revoke(&s.owner, 0);
        owner_fill(&s.owner, 0x55); /* also: no thread of ours touches it (sanitizers) */
        wait_until(told(&s.tale).lost > 0 || told(&s.tale).whole > 0);
        tb_hop_close(hop);
        assert_int_equal(told(&s.tale).bad, 0);
        if (told(&s.tale).lost) assert_int_equal(told(&s.tale).why, TB_PEER_REVOKED);
        hold_check(&s.hold, &s.cargo);
        scene_close(&s);
    }
}

static void *close_slowly(void *user)
{
    struct scene *s = user;
    owner_revoke(&s->owner, 20000);
    return NULL;
}

/* With time to drain, a reader in flight finishes; new ones are refused from the start. */
static void P6_a_drain_lets_readers_finish(void **state)
{
    struct scene s;
    scene_open(&s, *state, 20, 1200000, 0);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_opened(&s.tale);
    assert_int_equal(owner_readers(&s.owner), 1);
    pthread_t closer;
    assert_int_equal(pthread_create(&closer, NULL, close_slowly, &s), 0);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop); /* the reader leaves, the drain is over long before its 20 s */
    pthread_join(closer, NULL);
    assert_int_equal(told(&s.tale).lost, 0);
    struct tb_id token = {{1}};
    struct tb_fingerprint print = {{1}};
    assert_int_equal(owner_grant(&s.owner, &token, &print), TB_NOT_FOUND);
    assert_int_equal(owner_readers(&s.owner), 0);
    scene_close(&s);
}

/* After close returns nothing is written and nothing is told. */
static void P1_a_closed_hop_is_silent(void **state)
{
    for (int round = 0; round < 8; round++) {
        struct scene s;
        scene_open(&s, *state, 20, 1200000, 0);
        owner_hold_all(&s.owner);
        struct tb_hop *hop = scene_hop(&s);
        if (round > 0) wait_until(tb_place_held_count(&s.hold.place) >= (uint32_t)round);
        tb_hop_close(hop);
        const struct told after = told(&s.tale);
        hold_check(&s.hold, &s.cargo);
        memset(s.hold.bytes, 0xaa,
               s.cargo.manifest.bytes); /* a late write would race with this (sanitizers) */
        rest_1ms();
        for (uint64_t i = 0; i < s.cargo.manifest.bytes; i += 509)
            assert_int_equal(s.hold.bytes[i], 0xaa);
        assert_int_equal(after.whole + after.lost, told(&s.tale).whole + told(&s.tale).lost);
        memcpy(s.hold.bytes, s.cargo.bytes, s.cargo.manifest.bytes);
        scene_close(&s);
    }
}

/* ---- who may read ---- */

static void P8_a_token_opens_once(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    struct tb_hop *hop = NULL;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    owner_log_catch(&s.owner);
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_lost(&s.tale);
    assert_int_equal(told(&s.tale).why, TB_PEER_TOKEN);
    assert_int_equal(owner_log_lines(&s.owner, "door.refused", "peer_token"), 1); /* P10 */
    tb_hop_close(hop);
    owner_log_release(&s.owner);
    scene_close(&s);
}

static void P8_a_wrong_token_is_refused(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_hop *hop = NULL;
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.token.bytes[5] ^= 1;
    owner_log_catch(&s.owner);
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_lost(&s.tale);
    assert_int_equal(told(&s.tale).why, TB_PEER_TOKEN);
    tb_hop_close(hop);
    options.token.bytes[5] ^= 1;
    options.export_id = 8;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait(&s.tale, &s.tale.told.lost, 2);
    assert_int_equal(told(&s.tale).why, TB_PEER_TOKEN);
    tb_hop_close(hop);
    assert_int_equal(owner_log_lines(&s.owner, "door.refused", "peer_token"), 2);
    owner_log_release(&s.owner);
    assert_int_equal(told(&s.tale).opened, 0);
    assert_int_equal(tb_place_held_count(&s.hold.place), 0);
    scene_close(&s);
}

/* With TLS the token is bound to the reader's print, and the reader to the door's. */
static void P8_a_wrong_print_is_refused(void **state)
{
    const struct way *way = *state;
    if (!over_network(way) || way->clear) return; /* nothing else has prints */
    struct scene s;
    scene_open(&s, way, 1, 3000004, 0);
    owner_hold_all(&s.owner);
    struct tb_fabric *thief = fabric_make(way, 0);
    struct tb_hop *hop = NULL;
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    assert_int_equal(tb_hop_open(thief, &options, &hop), TB_OK);
    tale_wait_lost(&s.tale);
    assert_int_equal(told(&s.tale).why, TB_PEER_IDENTITY);
    tb_hop_close(hop);
    tb_fabric_close(thief);

    options.from.fingerprint.bytes[0] ^= 1; /* the reader expects another door */
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait(&s.tale, &s.tale.told.lost, 2);
    assert_int_equal(told(&s.tale).why, TB_PEER_IDENTITY);
    tb_hop_close(hop);

    options.from.fingerprint.bytes[0] ^= 1; /* and the token is still good for whom it was granted to */
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    scene_close(&s);
}

static void P7_a_read_outside_the_export_is_refused(void **state)
{
    struct scene s;
    const uint64_t wrong[] = {(uint64_t)1 << 61, 1 << 24, 264 /* the last chunk begins inside */};
    for (int i = 0; i < 3; i++) {
        scene_open(&s, *state, 1, 3000004, 0);
        owner_hold_all(&s.owner);
        s.owner.shard.packed_offset = wrong[i];
        owner_log_catch(&s.owner);
        struct tb_hop *hop = scene_hop(&s);
        tale_wait_lost(&s.tale);
        assert_int_equal(told(&s.tale).why, TB_PEER_GARBLED);
        assert_int_equal(owner_log_lines(&s.owner, "door.refused", "outside"), 1);
        tb_hop_close(hop);
        owner_log_release(&s.owner);
        scene_close(&s);
    }
}

/* ---- time ---- */

/* A source whose process stands still is given up after idle_ms. */
static void P6_an_idle_source_is_lost(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.idle_ms = 300 * slowness();
    struct tb_hop *hop = NULL;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_opened(&s.tale);
    owner_stand_still(&s.owner, true);
    tale_wait_lost(&s.tale);
    assert_int_equal(told(&s.tale).why, TB_STREAM_IDLE);
    owner_stand_still(&s.owner, false);
    tb_hop_close(hop);
    scene_close(&s);
}

/* The twin: a source that has nothing new for longer than idle_ms, but answers, is not lost. */
static void P6_a_quiet_source_is_kept(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.idle_ms = 150 * slowness();
    struct tb_hop *hop = NULL;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_opened(&s.tale);
    const tb_time_ns from = tb_clock_now();
    wait_until(tb_clock_now() - from > TB_MS(600) * slowness()); /* time itself is what is tested */
    assert_int_equal(told(&s.tale).lost, 0);
    owner_hold_all(&s.owner);
    tale_wait_whole(&s.tale);
    const tb_time_ns then = tb_clock_now();
    wait_until(tb_clock_now() - then > TB_MS(400) * slowness()); /* also when all is read */
    assert_int_equal(told(&s.tale).lost, 0);
    tb_hop_close(hop);
    scene_close(&s);
}

/* An emulated NIC of 20 MB/s, in and out, is never faster than that. How close it comes is bench/run's to say: a loaded machine
 * may be slower. shm has no NIC: it only has to arrive. */
static void pacing_is_never_exceeded(void **state)
{
    struct scene s;
    const uint64_t rate = 20000000;
    scene_open(&s, *state, 6, 3000004, rate);
    if (s.way->transport == TB_TRANSPORT_VERBS) { /* what went by a real NIC would not be paced */
        assert_string_equal(tb_fabric_no_verbs(s.reader), "the NIC is emulated");
        scene_close(&s);
        return;
    }
    owner_hold_all(&s.owner);
    const tb_time_ns from = tb_clock_now();
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    const double seconds = (double)(tb_clock_now() - from) * 1e-9;
    const double ideal = (double)s.cargo.manifest.bytes / (double)rate;
    print_message("%s: %.3f s, at the NIC's rate %.3f s\n", s.way->name, seconds, ideal);
    if (s.way->transport == TB_TRANSPORT_TCP) assert_true(seconds > 0.9 * ideal);
    tb_hop_close(hop);
    scene_close(&s);
}

/* ---- hostile peers ---- */

static int dial_local(const struct tb_fabric_endpoint *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t n = strlen(e->shm_door);
    memcpy(to.sun_path + 1, e->shm_door, n);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(
        connect(fd, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)), 0);
    return fd;
}

static int dial_tcp(const struct tb_fabric_endpoint *e)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    const char *colon = strrchr(e->tcp, ':');
    to.sin_port = htons((uint16_t)atoi(colon + 1));
    char host[64];
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - e->tcp), e->tcp);
    assert_int_equal(inet_pton(AF_INET, host, &to.sin_addr), 1);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static int dial_door(const struct scene *s)
{
    return s->way->transport == TB_TRANSPORT_SHM ? dial_local(&s->owner.endpoint)
                                                 : dial_tcp(&s->owner.endpoint);
}

/* Reads until the door hangs up; how much came. */
static size_t read_to_end(int fd)
{
    char bytes[65536];
    size_t total = 0;
    const struct timeval limit = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (;;) {
        const ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n < 0) assert_true(errno != EAGAIN && errno != EWOULDBLOCK);
        if (n <= 0) return total;
        total += (size_t)n;
    }
}

static void say(int fd, const struct tb_hop_request *r)
{
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_hop_request_encode(r, &w);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

/* Garbage instead of a greeting: dropped with one line, others are served. */
static void P7_garbage_at_the_door_is_dropped(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    owner_hold_all(&s.owner);
    owner_log_catch(&s.owner);
    const int fd = dial_door(&s);
    char garbage[4096];
    memset(garbage, 0x16, sizeof garbage); /* also looks like the beginning of TLS */
    (void)!send(fd, garbage, sizeof garbage, MSG_NOSIGNAL);
    (void)read_to_end(fd);
    close(fd);
    if (s.way->transport == TB_TRANSPORT_SHM || s.way->clear)
        wait_until(owner_log_lines(&s.owner, "door.refused", "peer_garbled") == 1);
    struct tb_hop *hop = scene_hop(&s);
    tale_wait_whole(&s.tale);
    tb_hop_close(hop);
    owner_log_release(&s.owner);
    scene_close(&s);
}

/* A reader with a good token that then asks for what it may not: each is dropped with one line. */
static void P7_hostile_requests_are_refused(void **state)
{
    struct scene s;
    const struct way *way = *state;
    if (over_network(way) && !way->clear) return; /* the same code behind TLS */
    const struct tb_hop_request hostile[] = {
        {.type = TB_HOP_REQUEST_READ, .buffer = 2, .bytes = 1},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = 0},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .a = 1000, .bytes = 16 << 20}, /* begins inside */
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = UINT32_MAX},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .a = UINT64_MAX, .bytes = 1},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .a = UINT64_MAX - 3, .bytes = 8},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .a = 4, .bytes = 8, .flags = TB_HOP_READ_WORDS},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = 12, .flags = TB_HOP_READ_WORDS},
        {.type = TB_HOP_REQUEST_READ,
         .buffer = 0,
         .bytes = TB_HOP_WORDS_BYTES_MAX + 8,
         .flags = TB_HOP_READ_WORDS},
        {.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = 8, .flags = 0x80},
        {.type = TB_HOP_REQUEST_ATTACH, .buffer = 2},
        {.type = TB_HOP_REQUEST_HELLO, .buffer = TB_HOP_WIRE_VERSION, .a = TB_HOP_WIRE_MAGIC},
        {.type = 77},
        {.type = 0},
    };
    int fds[sizeof hostile / sizeof hostile[0]];
    scene_open(&s, way, 1, 3000004, 0);
    owner_log_catch(&s.owner);
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const struct tb_hop_options o = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
        fds[i] = dial_door(&s);
        say(fds[i], &(struct tb_hop_request){.type = TB_HOP_REQUEST_HELLO,
                                             .buffer = TB_HOP_WIRE_VERSION,
                                             .a = TB_HOP_WIRE_MAGIC,
                                             .b = EXPORT_ID,
                                             .token = o.token});
        say(fds[i], &hostile[i]);
        wait_until(owner_log_lines(&s.owner, "door.refused", "peer_garbled") == i + 1);
    }
    /* None hangs up by itself: the door gives each a second to read why, all at the same time. */
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const size_t got = read_to_end(fds[i]);
        assert_in_range(got, TB_HOP_ANSWER_BYTES, 2 * TB_HOP_ANSWER_BYTES);
        close(fds[i]);
    }
    wait_until(owner_readers(&s.owner) == 0);
    owner_log_release(&s.owner);
    scene_close(&s);
}

/* More READs than allowed, and answers that nobody reads: the export can still be closed at once. */
static void P7_a_flood_of_requests_is_bounded(void **state)
{
    struct scene s;
    const struct way *way = *state;
    if (over_network(way) && !way->clear) return;
    scene_open(&s, way, 1, 3000004, 0);
    const struct tb_hop_options o = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    owner_log_catch(&s.owner);
    const int fd = dial_door(&s);
    say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_HELLO,
                                     .buffer = TB_HOP_WIRE_VERSION,
                                     .a = TB_HOP_WIRE_MAGIC,
                                     .b = EXPORT_ID,
                                     .token = o.token});
    for (uint32_t i = 0; i < TB_HOP_READS_MAX + 50; i++)
        say(fd, &(struct tb_hop_request){.type = TB_HOP_REQUEST_READ, .buffer = 0, .bytes = 3000000});
    wait_until(owner_log_lines(&s.owner, "door.refused", "more reads") == 1);
    owner_revoke(&s.owner, 0);
    close(fd);
    owner_log_release(&s.owner);
    scene_close(&s);
}

/* ---- a hostile door ---- */

struct false_door {
    int listener;
    struct tb_fabric_endpoint endpoint;
    const struct tb_hop_answer *answers;
    uint32_t count;
    pthread_t thread;
};

static void answer(int fd, const struct tb_hop_answer *a)
{
    uint8_t bytes[TB_HOP_ANSWER_BYTES];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_hop_answer_encode(a, &w);
    (void)!send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}

static void *false_door_main(void *user)
{
    struct false_door *d = user;
    const int fd = accept(d->listener, NULL, NULL);
    uint8_t hello[TB_HOP_REQUEST_BYTES];
    (void)!recv(fd, hello, sizeof hello, MSG_WAITALL);
    for (uint32_t i = 0; i < d->count; i++)
        answer(fd, &d->answers[i]);
    (void)read_to_end(fd);
    close(fd);
    return NULL;
}

static void false_door_open(struct false_door *d, const struct scene *s, void *(*run)(void *))
{
    d->endpoint = s->owner.endpoint;
    if (s->way->transport == TB_TRANSPORT_SHM) {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        snprintf(d->endpoint.shm_door, sizeof d->endpoint.shm_door, "tombolo-false-%d", (int)getpid());
        const size_t n = strlen(d->endpoint.shm_door);
        memcpy(at.sun_path + 1, d->endpoint.shm_door, n);
        d->listener = socket(AF_UNIX, SOCK_STREAM, 0);
        assert_int_equal(bind(d->listener, (struct sockaddr *)&at,
                              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)),
                         0);
    } else {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t bytes = sizeof at;
        d->listener = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(d->listener, (struct sockaddr *)&at, bytes), 0);
        assert_int_equal(getsockname(d->listener, (struct sockaddr *)&at, &bytes), 0);
        snprintf(d->endpoint.tcp, sizeof d->endpoint.tcp, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
    }
    assert_int_equal(listen(d->listener, 1), 0);
    assert_int_equal(pthread_create(&d->thread, NULL, run, d), 0);
}

/* A door that breaks the protocol is dropped by the reader: PEER_GARBLED, nothing is held. */
static void P7_a_false_door_is_dropped(void **state)
{
    struct scene s;
    const struct way *way = *state;
    if (over_network(way) && !way->clear) return;
    const struct tb_hop_answer welcome = {.type = TB_HOP_ANSWER_WELCOME, .kind = 1}; /* there is RDMA */
    const struct tb_hop_answer lies[][2] = {
        {{.type = TB_HOP_ANSWER_DATA, .bytes = 5}, {0}},            /* before WELCOME */
        {welcome, {.type = TB_HOP_ANSWER_WELCOME}},                 /* twice */
        {welcome, {.type = TB_HOP_ANSWER_DATA, .bytes = 1u << 30}}, /* more than was asked for */
        {welcome, {.type = TB_HOP_ANSWER_DATA, .bytes = 0}},
        {welcome, {.type = TB_HOP_ANSWER_DATA, .bytes = 900000}},           /* only a bitmap was */
        {welcome, {.type = TB_HOP_ANSWER_PONG, .a = 1}},                    /* that nobody pinged */
        {welcome, {.type = TB_HOP_ANSWER_BUFFER, .buffer = 99, .kind = 2}}, /* that nobody asked for */
        {welcome, {.type = TB_HOP_ANSWER_BUFFER, .kind = 7}},
        {welcome, {.type = TB_HOP_ANSWER_BUFFER, .kind = TB_HOP_BUFFER_VERBS}},
        {{.type = TB_HOP_ANSWER_VERBS}, {0}}, /* before WELCOME */
        {welcome, {.type = 99}},
    };
    scene_open(&s, way, 1, 3000004, 0);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct false_door d = {.answers = lies[i], .count = 2};
        false_door_open(&d, &s, false_door_main);
        struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
        options.from = d.endpoint;
        struct tb_hop *hop = NULL;
        assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
        tale_wait(&s.tale, &s.tale.told.lost, (uint32_t)i + 1);
        assert_int_equal(told(&s.tale).why, TB_PEER_GARBLED);
        tb_hop_close(hop);
        pthread_join(d.thread, NULL);
        close(d.listener);
    }
    assert_int_equal(tb_place_held_count(&s.hold.place), 0);
    scene_close(&s);
}

/* A door that serves zeros, and when it is asked for a sign of life either gives it or has just taken its memory back. */
struct lying_door {
    struct false_door base;
    bool revokes;
};

static bool lie(const struct lying_door *d, int fd, const struct tb_hop_request *r)
{
    static const uint8_t zeros[1 << 20];
    if (r->type == TB_HOP_REQUEST_HELLO) {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_WELCOME});
    } else if (r->type == TB_HOP_REQUEST_ATTACH) {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_BUFFER, .buffer = r->buffer});
    } else if (r->type == TB_HOP_REQUEST_READ) {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_DATA, .bytes = r->bytes});
        assert_in_range(r->bytes, 1, sizeof zeros);
        (void)!send(fd, zeros, r->bytes, MSG_NOSIGNAL);
    } else if (d->revokes) {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_END, .bytes = (uint32_t)-TB_PEER_REVOKED});
        return false;
    } else {
        answer(fd, &(struct tb_hop_answer){.type = TB_HOP_ANSWER_PONG, .a = r->a});
    }
    return true;
}

static void *lying_door_main(void *user)
{
    const struct lying_door *d = user;
    const int fd = accept(d->base.listener, NULL, NULL);
    uint8_t bytes[TB_HOP_REQUEST_BYTES];
    struct tb_hop_request request = {0};
    struct tb_reader r;
    do {
        if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes) break;
        tb_reader_init(&r, bytes, sizeof bytes);
        assert_int_equal(tb_hop_request_decode(&r, &request), TB_OK);
    } while (lie(d, fd, &request));
    (void)read_to_end(fd);
    close(fd);
    return NULL;
}

/* Chunk 0 comes with wrong bytes. That is the source's fault only if it then still says that the memory is its reader's. */
static void read_from_a_liar(struct scene *s, bool revokes)
{
    struct lying_door d = {.revokes = revokes};
    struct tb_hop *hop = NULL;
    for (uint32_t k = 1; k < s->cargo.manifest.chunk_count; k++) {
        const struct tb_chunk *c = &s->cargo.manifest.chunks[k];
        memcpy(s->hold.bytes + c->offset, s->cargo.bytes + c->offset, c->bytes);
        (void)tb_bitmap_set(s->hold.place.held, k);
    }
    s->owner.shard.held_buffer = TB_SOURCE_ALL_HELD;
    false_door_open(&d.base, s, lying_door_main);
    struct tb_hop_options options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    options.from = d.base.endpoint;
    assert_int_equal(tb_hop_open(s->reader, &options, &hop), TB_OK);
    tale_wait(&s->tale, revokes ? &s->tale.told.lost : &s->tale.told.bad, 1);
    tb_hop_close(hop);
    pthread_join(d.base.thread, NULL);
    close(d.base.listener);
    assert_false(tb_place_held(&s->hold.place, 0));
}

static void P1_a_failure_counts_only_if_the_source_confirms(void **state)
{
    const struct way *way = *state;
    struct scene s;
    if (over_network(way) && !way->clear) return;
    if (way->transport == TB_TRANSPORT_VERBS)
        return; /* its connection is that of tcp; verbs.c has liars of its own */
    scene_open(&s, way, 2, 600000, 0);
    read_from_a_liar(&s, true);
    assert_int_equal(told(&s.tale).bad, 0);
    assert_int_equal(told(&s.tale).why, TB_PEER_REVOKED);
    scene_close(&s);

    scene_open(&s, way, 2, 600000, 0); /* the twin */
    read_from_a_liar(&s, false);
    assert_int_equal(told(&s.tale).bad, 1);
    assert_int_equal(told(&s.tale).lost, 0);
    scene_close(&s);
}

/* ---- choosing ---- */

static void nobody_there_is_unreachable(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    struct tb_hop *hop = NULL;
    snprintf(options.from.shm_door, sizeof options.from.shm_door, "tombolo-nobody");
    snprintf(options.from.tcp, sizeof options.from.tcp, "127.0.0.1:1");
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_lost(&s.tale);
    assert_int_equal(told(&s.tale).why, TB_PEER_UNREACHABLE);
    tb_hop_close(hop);
    scene_close(&s);
}

static void transport_none_prefers_shm_then_the_network(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    const bool rdma = tb_fabric_no_verbs(s.reader) == NULL;
    const enum tb_transport network = rdma ? TB_TRANSPORT_VERBS : TB_TRANSPORT_TCP;
    /* An owner on another machine has the same host name here, and no door that shm could find. */
    const enum tb_transport first = s.owner.far < 0 ? TB_TRANSPORT_SHM : network;
    owner_hold_all(&s.owner);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    struct tb_hop *hop = NULL;
    options.transport = TB_TRANSPORT_NONE;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait_whole(&s.tale);
    assert_int_equal(told(&s.tale).transport, first);
    tb_hop_close(hop);

    options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.transport = TB_TRANSPORT_NONE;
    snprintf(options.from.shm_door, sizeof options.from.shm_door,
             "tombolo-nobody"); /* another network namespace, say */
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait(&s.tale, &s.tale.told.opened, 2);
    assert_int_equal(told(&s.tale).transport, network);
    tb_hop_close(hop);

    options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.transport = TB_TRANSPORT_NONE;
    assert_int_equal(tb_name_set(&options.from.host, "elsewhere"), TB_OK);
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    tale_wait(&s.tale, &s.tale.told.opened, 3);
    assert_int_equal(told(&s.tale).transport, network);
    tb_hop_close(hop);
    scene_close(&s);
}

static void bad_options_are_refused_at_once(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    struct tb_hop *hop = NULL;
    s.place.shard = 4; /* the source has no such shard */
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_BAD_ARGUMENT);
    options.place_count = 0;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_BAD_ARGUMENT);
    assert_int_equal(owner_export_again(&s.owner), TB_CONFLICT);
    scene_close(&s);
}

#define TESTS(X)                                                                                             \
    X(P1_a_whole_transfer_is_exact)                                                                          \
    X(P1_scattered_tensors_arrive_packed)                                                                    \
    X(P1_encoded_objects_are_decoded)                                                                        \
    X(P1_a_damaged_object_is_bad)                                                                            \
    X(P1_a_filling_source_is_followed)                                                                       \
    X(P6_a_thousand_chunks_in_one_go)                                                                        \
    X(P6_a_dead_source_is_replaced)                                                                          \
    X(P4_two_hops_write_no_chunk_twice)                                                                      \
    X(P1_corrupted_bytes_are_never_held)                                                                     \
    X(P1_revoked_memory_is_nobodys_fault)                                                                    \
    X(P6_a_drain_lets_readers_finish)                                                                        \
    X(P1_a_closed_hop_is_silent)                                                                             \
    X(P8_a_token_opens_once)                                                                                 \
    X(P8_a_wrong_token_is_refused)                                                                           \
    X(P8_a_wrong_print_is_refused)                                                                           \
    X(P7_a_read_outside_the_export_is_refused)                                                               \
    X(P6_an_idle_source_is_lost)                                                                             \
    X(P6_a_quiet_source_is_kept)                                                                             \
    X(pacing_is_never_exceeded)                                                                              \
    X(P7_garbage_at_the_door_is_dropped)                                                                     \
    X(P7_hostile_requests_are_refused)                                                                       \
    X(P7_a_flood_of_requests_is_bounded)                                                                     \
    X(P7_a_false_door_is_dropped)                                                                            \
    X(P1_a_failure_counts_only_if_the_source_confirms)                                                       \
    X(P6_a_killed_process_is_a_lost_source)                                                                  \
    X(nobody_there_is_unreachable)                                                                           \
    X(transport_none_prefers_shm_then_the_network)                                                           \
    X(bad_options_are_refused_at_once)

/* One argument: only the ways and tests whose name contains it. 77: there are none here. */
int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--serve") == 0) far_serve(argv[2]);
    static char names[1024][96];
    static struct CMUnitTest tests[1024];
    const bool rdma = rdma_is_here();
    size_t count = 0;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        if (ways[w].transport == TB_TRANSPORT_VERBS && !rdma) continue;
#define ADD(test)                                                                                            \
    snprintf(names[count], sizeof names[count], "%s/%s", ways[w].name, #test);                               \
    if (argc < 2 || strstr(names[count], argv[1]) != NULL) {                                                 \
        tests[count] = (struct CMUnitTest){                                                                  \
            .name = names[count], .test_func = test, .initial_state = (void *)(uintptr_t)&ways[w]};          \
        count++;                                                                                             \
    }
        TESTS(ADD)
#undef ADD
    }
    return count > 0 ? _cmocka_run_group_tests("conformance", tests, count, NULL, NULL) : 77;
}
