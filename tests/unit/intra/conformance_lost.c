/* conformance_lost.c - sources that die, are killed, go silent or take their memory back, and
 * readers that go on, over each way to move bytes.
 *
 * Covers: intra/hop/hop_run.c intra/fabric/door_ends.c */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"
#include "intra/fabric/fabric_hops.h"
#include "tests/unit/scratch.h"

/* The source dies with half of the version read: LOST, what is held stays, another
 * source completes it. */
void P6_a_dead_source_is_replaced(void **state)
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

/* A message between the owner's process and the reader's. */
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
void P6_a_killed_process_is_a_lost_source(void **state)
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
    const pid_t child = scratch_fork(); /* before this process has threads */
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

void P4_two_hops_write_no_chunk_twice(void **state)
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

void P1_corrupted_bytes_are_never_held(void **state)
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

/* The owner takes its memory back while it is read, and scribbles over it: the reader sees
 * REVOKED and blames nobody. */
void P1_revoked_memory_is_nobodys_fault(void **state)
{
    for (int round = 0; round < 3; round++) {
        struct scene s;
        scene_open(&s, *state, 40, 1200000, 0);
        owner_hold_all(&s.owner);
        struct tb_hop *hop = scene_hop(&s);
        wait_until(tb_place_held_count(&s.hold.place) > (uint32_t)round * 8);
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
void P6_a_drain_lets_readers_finish(void **state)
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
void P1_a_closed_hop_is_silent(void **state)
{
    for (int round = 0; round < 5; round++) {
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

/* ---- time ---- */

/* A source whose process stands still is given up after idle_ms. */
void P6_an_idle_source_is_lost(void **state)
{
    struct scene s;
    scene_open(&s, *state, 1, 3000004, 0);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.idle_ms = 2000 * slowness(); /* dialling has as long */
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

/* A hop to a source that says nothing new for three times as long: is it kept, before
 * and behind the bytes? */
static bool quiet_is_kept(const struct way *way, uint32_t idle_ms)
{
    struct scene s;
    scene_open(&s, way, 1, 3000004, 0);
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.idle_ms = idle_ms;
    struct tb_hop *hop = NULL;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    wait_until(told(&s.tale).opened + told(&s.tale).lost > 0);
    const tb_time_ns from = tb_clock_now();
    wait_until(tb_clock_now() - from > 3 * TB_MS(idle_ms) || told(&s.tale).lost > 0);
    owner_hold_all(&s.owner);
    wait_until(told(&s.tale).whole + told(&s.tale).lost > 0);
    const tb_time_ns then = tb_clock_now(); /* also when all is read */
    wait_until(tb_clock_now() - then > 2 * TB_MS(idle_ms) || told(&s.tale).lost > 0);
    const bool kept = told(&s.tale).lost == 0;
    if (!kept) assert_int_equal(told(&s.tale).why, TB_STREAM_IDLE);
    tb_hop_close(hop);
    scene_close(&s);
    return kept;
}

/* The twin: a source that has nothing new for longer than idle_ms, but answers, is not
 * lost. One that has no core for so long does not answer: then it gets more time, and with
 * 10 s there is no excuse. */
void P6_a_quiet_source_is_kept(void **state)
{
    uint32_t idle_ms = 150 * slowness();
    while (!quiet_is_kept(*state, idle_ms)) {
        assert_true(idle_ms < 9600);
        idle_ms *= 4;
    }
}
