/* between.c - the source changes bytes between READ and digest, and between digest and use: what is
 * held is still what was sealed. Over every way to move bytes that this machine has.
 *
 * P1: the digest follows the end of the READ, it is of the reader's own copy, and nothing is
 * written after it.
 *
 * Covers: intra/hop/hop_land.c base/layout/place.c */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"
#include "scene.h"

static const struct way ways[] = {
    {.name = "shm-memfd", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_SHARED},
    {.name = "shm-readv", .transport = TB_TRANSPORT_SHM, .memory = MEMORY_OWN},
    {.name = "tcp-clear", .transport = TB_TRANSPORT_TCP, .memory = MEMORY_OWN, .clear = true},
    {.name = "verbs-clear", .transport = TB_TRANSPORT_VERBS, .memory = MEMORY_OWN, .clear = true},
};

/* The right bytes stand in the place already (an earlier READ that was cut off), the
 * source's have changed since: a thread that digests before the READ is complete holds the chunk,
 * and then the READ spoils it. */
static void P1_digest_waits_for_the_read(void **state)
{
    const struct way *way = *state;
    struct scene s;
    scene_open(&s, way, 6, 3000004, 0);
    const uint32_t n = s.cargo.manifest.chunk_count;
    memcpy(s.hold.bytes, s.cargo.bytes, s.cargo.manifest.bytes);
    for (uint32_t k = 0; k < n; k += 2) /* at its end, which comes last */
        s.owner.bytes[64 + s.cargo.manifest.chunks[k].offset + s.cargo.manifest.chunks[k].bytes - 1] ^= 0x5c;
    owner_hold_all(&s.owner);
    struct tb_hop *hop = scene_hop(&s);
    wait_until(tb_place_held_count(&s.hold.place) + told(&s.tale).bad == n);
    tb_hop_close(hop);
    for (uint32_t k = 0; k < n; k++)
        assert_int_equal(tb_place_held(&s.hold.place, k), k % 2 == 1);
    scene_close(&s);
}

/* Writes wrong and right bytes into the source without pause. */
struct scribbler {
    struct scene *s;
    pthread_t thread;
    bool stop;
};

static void *scribble(void *user)
{
    struct scribbler *w = user;
    const struct tb_manifest *m = &w->s->cargo.manifest;
    uint32_t round = 0;
    while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
        for (uint32_t k = 0; k < m->chunk_count; k++) {
            const uint64_t at = m->chunks[k].offset + m->chunks[k].bytes / 2;
            const uint8_t right = w->s->cargo.bytes[at];
            __atomic_store_n(&w->s->owner.bytes[64 + at], round % 2 == 0 ? (uint8_t)~right : right,
                             __ATOMIC_RELAXED);
        }
        round++;
    }
    return NULL;
}

/* A source that writes to its bytes all the time: chunks are held or not, as their copies came out,
 * and those that are held are right for good. A reader that digests memory which the source can
 * write holds wrong ones. */
static void P1_a_scribbling_source_spoils_nothing_held(void **state)
{
    const struct way *way = *state;
    for (int round = 0; round < 3; round++) {
        struct scene s;
        struct scribbler w = {.s = &s};
        scene_open(&s, way, 24, 1200000, 0);
        const uint32_t n = s.cargo.manifest.chunk_count;
        owner_hold_all(&s.owner);
        assert_int_equal(pthread_create(&w.thread, NULL, scribble, &w), 0);
        struct tb_hop *hop = scene_hop(&s);
        wait_until(tb_place_held_count(&s.hold.place) + told(&s.tale).bad == n);
        tb_hop_close(hop);
        __atomic_store_n(&w.stop, true, __ATOMIC_RELAXED);
        pthread_join(w.thread, NULL);
        scene_close(&s);
    }
}

#define TESTS(X)                                                                                             \
    X(P1_digest_waits_for_the_read)                                                                          \
    X(P1_a_scribbling_source_spoils_nothing_held)

int main(int argc, char **argv)
{
    static char names[64][96];
    static struct CMUnitTest tests[64];
    const bool rdma = rdma_is_here();
    size_t count = 0;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        if (ways[w].transport == TB_TRANSPORT_VERBS && !rdma) continue;
#define ADD(test)                                                                                            \
    (void)snprintf(names[count], sizeof names[count], "%s/%s", ways[w].name, #test);                         \
    if (argc < 2 || strstr(names[count], argv[1]) != NULL) {                                                 \
        tests[count] = (struct CMUnitTest){                                                                  \
            .name = names[count], .test_func = test, .initial_state = (void *)(uintptr_t)&ways[w]};          \
        count++;                                                                                             \
    }
        TESTS(ADD)
#undef ADD
    }
    return count > 0 ? _cmocka_run_group_tests("between", tests, count, NULL, NULL) : 77;
}
