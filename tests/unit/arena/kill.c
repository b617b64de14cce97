/* kill.c - P3: a chunk that was held when the process was killed, at whatever instant, is held and
 * right after it; a version is there as a whole or not at all. A child reserves, lands and frees as
 * fast as it can, is killed after a random time, and its parent looks.
 *
 * Covers: gateway/arena/arena_reserve.c gateway/arena/arena_recover.c */
#include "arena_world.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/arena/arena.h"
#include "gateway/arena/arena_file.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/arena/arena_verify.h"
#include "tests/unit/scratch.h"

#define MIB        ((uint64_t)1 << 20)
#define VERSIONS   12u
#define KILLS      80u
#define FILE_BYTES (16 * MIB)

static char error[TB_ARENA_ERROR_BYTES];
static struct version versions[VERSIONS];

static void make_versions(void)
{
    for (uint32_t i = 0; i < VERSIONS; i++)
        version_make(&versions[i], i + 1, 1 + i % WORLD_SHARDS_MAX, i % 3 == 0 ? MIB + 9 : 5000 + i);
}

/* One step of the child's life: a version comes, lands a chunk, is marked, or goes. */
static void live(struct tb_arena *arena, uint64_t *seed)
{
    const uint64_t r = world_random(seed);
    const struct version *v = &versions[(r >> 8) % VERSIONS];
    struct tb_arena_region *region = tb_arena_region(arena, &v->key.uid);
    if (region == NULL) {
        (void)!tb_arena_reserve(arena, &v->key, v->list, v->key.shard_count, &region,
                                error); /* may be full */
        return;
    }
    const uint32_t shard = (uint32_t)(r >> 20) % v->key.shard_count;
    const uint32_t k = (uint32_t)(r >> 40) % v->manifests[shard].chunk_count;
    if (r % 8 == 0) {
        if (tb_arena_free(region) != TB_OK) _exit(3);
    } else if (r % 8 <= 2) {
        if (tb_arena_region_set_root(region, &versions[0].manifests[0].root) != TB_OK) _exit(3);
    } else {
        version_land(v, tb_arena_place(region, shard), shard, k);
    }
}

static _Noreturn void child(const char *path, uint64_t seed, int ready)
{
    struct tb_arena *arena = world_open(path, FILE_BYTES);
    if (write(ready, "r", 1) != 1) _exit(3);
    for (;;)
        live(arena, &seed);
}

static uint32_t look(struct tb_arena *arena)
{
    uint32_t held = 0;
    struct tb_arena_verified done;
    for (struct tb_arena_region *r = tb_arena_region_next(arena, NULL); r != NULL;
         r = tb_arena_region_next(arena, r)) {
        assert_true(tb_arena_region_complete(r)); /* whole or not at all */
        const struct version *v = &versions[tb_arena_region_key(r)->number - 1];
        assert_memory_equal(&v->key.uid, &tb_arena_region_key(r)->uid, sizeof v->key.uid);
        for (uint32_t s = 0; s < v->key.shard_count; s++) {
            const struct tb_place *place = tb_arena_place(r, s);
            assert_memory_equal(&place->manifest->root, &v->manifests[s].root, sizeof place->manifest->root);
            held += tb_place_held_count(place);
        }
    }
    assert_int_equal(tb_arena_verify_step(arena, UINT64_MAX, &done), TB_END);
    assert_int_equal(done.bad, 0);
    assert_int_equal(done.chunks, held);
    return held;
}

static void held_chunks_survive_a_kill(void **state)
{
    (void)state;
    const char *path = world_path();
    uint64_t seed = 0xC0FFEE;
    make_versions();
    struct tb_arena *arena = world_open(path, FILE_BYTES);
    const struct tb_id life = tb_arena_life(arena);
    tb_arena_close(arena);
    uint32_t held = 0;
    for (uint32_t round = 0; round < KILLS; round++) {
        int ready[2];
        char byte;
        assert_int_equal(pipe(ready), 0);
        const uint64_t child_seed = world_random(&seed);
        const pid_t pid = scratch_fork();
        assert_true(pid >= 0);
        if (pid == 0) child(path, child_seed, ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        const struct timespec wait = {.tv_nsec = (long)(world_random(&seed) % 8000000)};
        (void)ppoll(NULL, 0, &wait, NULL); /* the kill's instant is the test's input, nothing waits for it */
        kill(pid, SIGKILL);
        int how;
        assert_int_equal(waitpid(pid, &how, 0), pid);
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        close(ready[0]);
        close(ready[1]);
        arena = world_open(path, FILE_BYTES);
        held += look(arena);
        const struct tb_id now = tb_arena_life(arena);
        assert_true(tb_id_equal(&life, &now)); /* a kill is no damage */
        tb_arena_close(arena);
    }
    print_message("%u kills, %u held chunks found and right\n", KILLS, held);
    assert_true(held > KILLS);
    for (uint32_t i = 0; i < VERSIONS; i++)
        version_fini(&versions[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_chunks_survive_a_kill),
    };
    return cmocka_run_group_tests_name("kill", tests, NULL, NULL);
}
