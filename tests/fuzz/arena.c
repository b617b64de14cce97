/* The arena's file as a kill, a bad disk or a stranger left it: a good file of two versions,
 * changed as the input says, is opened. First byte: 1 makes the checks fit what was changed, so
 * that what is behind them is read too. Then operations, each of OP_BYTES.
 *
 * It opens, or says why not; regions lie apart; what is held after it was verified has its digest
 * (P1); a second open finds nothing more to mend; and all of it can be freed.
 *
 * Covers: gateway/arena/arena.c gateway/arena/arena_recover.c gateway/arena/arena_verify.c */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_file.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/arena/arena_verify.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_file.h"

#define FILE_BYTES  TB_ARENA_BYTES_MIN
#define IMAGE_BYTES ((size_t)256 << 10) /* of the file: tables and all extents of the two versions */
#define NAME        "tombolo-fuzz-arena."
#define OP_BYTES    12u
#define OPS_MAX     64u
#define SHARDS      3u
#define RECORDS     8u /* the first so many are changed; five are in use */
#define REGIONS_MAX 8u

static const char *path;
static uint8_t *file; /* mapped here, beside the arena's own mapping */
static int fd = -1;
static uint8_t image[IMAGE_BYTES];

static struct tb_arena *open_arena(void)
{
    char error[TB_ARENA_ERROR_BYTES];
    struct tb_arena *arena = NULL;
    const struct tb_arena_options options = {.path = path, .bytes = FILE_BYTES};
    const enum tb_status status = tb_arena_open(&options, &arena, error);
    FUZZ_REQUIRE(status == TB_OK || status == TB_SITE_CONFIG || status == TB_SITE_NOMEM);
    FUZZ_REQUIRE((status == TB_OK) == (arena != NULL));
    return arena;
}

/* ---- the good file ---- */

/* A shard of two chunks: one of each dtype. */
static void land_shard(struct tb_arena_region *region, uint32_t shard, uint8_t seed)
{
    static uint64_t memory[3][1024];
    static uint8_t bytes[900];
    char error[TB_ARENA_ERROR_BYTES];
    const struct tb_tensor tensors[] = {
        {.name = "w", .dtype = TB_DTYPE_BF16, .rank = 1, .full = {300}, .box_count = {300}},
        {.name = "b", .dtype = TB_DTYPE_U8, .rank = 1, .full = {300}, .box_count = {300}}};
    struct tb_layout layout;
    struct tb_manifest m;
    FUZZ_REQUIRE(tb_layout_build(tensors, 2, memory[0], sizeof memory[0], &layout) == TB_OK);
    FUZZ_REQUIRE(tb_manifest_build(&layout, NULL, 0, memory[1], sizeof memory[1], &m) == TB_OK);
    memset(bytes, seed, sizeof bytes);
    for (uint32_t k = 0; k < m.chunk_count; k++)
        m.digests[k] = tb_digest_of(bytes, m.chunks[k].bytes);
    m.root = tb_manifest_root(&m);
    FUZZ_REQUIRE(tb_arena_shard_reserve(region, shard, &m, error) == TB_OK);
    struct tb_place *place = tb_arena_place(region, shard);
    for (uint32_t k = 0; k < m.chunk_count; k++) {
        uint32_t count = 0;
        FUZZ_REQUIRE(tb_place_claim(place, k));
        memset(tb_place_chunk(place, k, &count), seed, m.chunks[k].bytes);
        FUZZ_REQUIRE(tb_place_finish(place, k) == TB_OK);
    }
}

static void land_version(struct tb_arena *arena, uint8_t number, uint32_t shards)
{
    char error[TB_ARENA_ERROR_BYTES];
    struct tb_arena_region *region = NULL;
    struct tb_version_key key = {
        .uid = {{number}}, .run = {{7}}, .run_order = 1, .number = number, .shard_count = shards};
    FUZZ_REQUIRE(tb_name_set(&key.model, "policy") == TB_OK);
    FUZZ_REQUIRE(tb_arena_region_new(arena, &key, &region, error) == TB_OK);
    for (uint32_t s = 0; s < shards; s++)
        land_shard(region, s, (uint8_t)(number * 16 + s));
    FUZZ_REQUIRE(tb_arena_region_set_root(region, &(struct tb_digest){{1, 2, number}}) == TB_OK);
}

static void begin(void)
{
    tb_log_set(TB_LOG_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC));
    path = fuzz_file_begin(NAME);
    FUZZ_REQUIRE(path != NULL);
    struct tb_arena *arena = open_arena();
    FUZZ_REQUIRE(arena != NULL);
    land_version(arena, 1, 2);
    land_version(arena, 2, 1);
    tb_arena_close(arena);
    fd = open(path, O_RDWR | O_CLOEXEC);
    file = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    FUZZ_REQUIRE(fd >= 0 && file != MAP_FAILED);
    memcpy(image, file, sizeof image);
}

/* ---- what was done to it ---- */

static struct arena_record *record_at(uint32_t i)
{
    return (struct arena_record *)(void *)(file + 4096) + i % RECORDS;
}

static void fit_checks(void)
{
    for (uint32_t slot = 0; slot < 2; slot++) {
        struct arena_header *h = (struct arena_header *)(void *)(file + (size_t)slot * 512);
        h->check = tb_digest_of(h, offsetof(struct arena_header, check));
    }
    for (uint32_t i = 0; i < RECORDS; i++) {
        struct arena_record *r = record_at(i);
        r->check = tb_arena_record_check(r);
        if (r->root_check != 0) r->root_check = tb_arena_root_check(&r->uid, &r->root);
    }
}

/* Returns how short the file becomes; 0: it keeps its length. */
static uint64_t change(struct tb_reader *r)
{
    const uint8_t op = tb_read_u8(r), which = tb_read_u8(r);
    const uint16_t at = tb_read_u16(r);
    const uint64_t value = tb_read_u64(r);
    const size_t extents = 4096 + (size_t)TB_ARENA_RECORDS_MIN * sizeof(struct arena_record);
    switch (op % 5) {
    case 0:
        memcpy(file + at % 1000u, &value, 1u + which % 8u);
        return 0;
    case 1:
        memcpy((uint8_t *)record_at(which) + at % (sizeof(struct arena_record) - 7), &value, 1u + op / 5 % 8);
        return 0;
    case 2:
        *record_at(which) = *record_at(at);
        return 0;
    case 3:
        memcpy(file + extents + at % (IMAGE_BYTES - extents - 8), &value, 1u + which % 8u);
        return 0;
    default:
        return 1 + (uint64_t)at * 128;
    }
}

static void change_all(const uint8_t *bytes, size_t count)
{
    struct tb_reader r;
    uint64_t cut = 0;
    tb_reader_init(&r, bytes + 1, count - 1);
    for (uint32_t i = 0; i < OPS_MAX && r.left >= OP_BYTES; i++) {
        const uint64_t bytes_left = change(&r);
        if (bytes_left != 0) cut = bytes_left;
    }
    if (bytes[0] % 2 == 1) fit_checks();
    if (cut != 0) FUZZ_REQUIRE(ftruncate(fd, (off_t)cut) == 0);
}

/* ---- what has to hold ---- */

struct piece {
    const uint8_t *from, *to;
};

static void look_at_place(struct tb_arena_region *region, uint32_t shard, struct piece *pieces,
                          uint32_t *count)
{
    const struct tb_place *place = tb_arena_place(region, shard);
    if (place == NULL) return;
    const struct tb_manifest *m = place->manifest;
    const struct piece own = {place->bytes, place->bytes + m->bytes};
    for (uint32_t i = 0; i < *count; i++)
        FUZZ_REQUIRE(own.to <= pieces[i].from || pieces[i].to <= own.from);
    if (*count < REGIONS_MAX * SHARDS) pieces[(*count)++] = own;
    for (uint32_t k = 0; k < m->chunk_count; k++) {
        uint32_t bytes = 0;
        if (!tb_place_held(place, k)) continue;
        const uint8_t *chunk = tb_place_chunk(place, k, &bytes);
        const struct tb_digest digest = tb_digest_of(chunk, bytes);
        FUZZ_REQUIRE(chunk >= own.from && chunk + bytes <= own.to);
        FUZZ_REQUIRE(tb_digest_equal(&digest, &m->digests[k]));
    }
}

static void look_at_all(struct tb_arena *arena)
{
    struct piece pieces[REGIONS_MAX * SHARDS];
    uint32_t count = 0;
    for (struct tb_arena_region *r = tb_arena_region_next(arena, NULL); r != NULL;
         r = tb_arena_region_next(arena, r))
        for (uint32_t s = 0; s < tb_arena_region_key(r)->shard_count; s++)
            look_at_place(r, s, pieces, &count);
}

static uint32_t free_all(struct tb_arena *arena)
{
    uint32_t freed = 0;
    for (struct tb_arena_region *r = tb_arena_region_next(arena, NULL); r != NULL;
         r = tb_arena_region_next(arena, NULL), freed++)
        FUZZ_REQUIRE(tb_arena_free(r) == TB_OK);
    struct tb_arena_budget budget;
    tb_arena_budget(arena, &budget);
    FUZZ_REQUIRE(budget.used_bytes == 0 && budget.regions == 0 && budget.free_bytes == budget.total_bytes);
    return freed;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    if (fd < 0) begin();
    FUZZ_REQUIRE(ftruncate(fd, (off_t)FILE_BYTES) == 0);
    memcpy(file, image, sizeof image);
    change_all(bytes, count);
    struct tb_arena *arena = open_arena();
    if (arena == NULL) return 0;
    struct tb_arena_verified done;
    while (tb_arena_verify_step(arena, UINT64_MAX, &done) == TB_AGAIN) {
    }
    look_at_all(arena);
    struct tb_arena_budget before;
    tb_arena_budget(arena, &before);
    const struct tb_id life = tb_arena_life(arena);
    tb_arena_close(arena);
    arena = open_arena();
    FUZZ_REQUIRE(arena != NULL);
    const struct tb_id again = tb_arena_life(arena);
    FUZZ_REQUIRE(tb_id_equal(&life, &again)); /* all damage was found the first time */
    FUZZ_REQUIRE(free_all(arena) == before.regions);
    tb_arena_close(arena);
    return 0;
}
