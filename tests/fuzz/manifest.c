/* A manifest's head that decodes is exactly what encode writes, and its chunks tile its bytes. On a
 * layout that is kept it decodes as without one.
 *
 * Covers: base/layout/manifest.c base/layout/chunk_cut.c base/layout/layouts.c */
#include "base/layout/manifest.h"

#include <string.h>

#include "base/layout/blob_name.h"
#include "base/layout/chunk_cut.h"
#include "base/layout/layouts.h"
#include "tests/fuzz/fuzz.h"

static void check_manifest(const struct tb_manifest *m, const uint8_t *bytes, size_t count)
{
    struct tb_writer w;
    uint64_t at = 0;
    uint8_t *again = malloc(count);
    FUZZ_REQUIRE(again != NULL);
    FUZZ_REQUIRE(tb_manifest_head_bytes(m) == count);
    tb_writer_init(&w, again, count);
    tb_manifest_head_encode(m, &w);
    FUZZ_REQUIRE(!w.full && w.used == count && memcmp(again, bytes, count) == 0);
    for (uint32_t k = 0; k < m->chunk_count; k++) {
        FUZZ_REQUIRE(m->chunks[k].offset == at && m->chunks[k].bytes > 0);
        at += m->chunks[k].bytes;
    }
    FUZZ_REQUIRE(at == m->bytes);
    for (uint32_t i = 0; i < m->blob_count; i++)
        FUZZ_REQUIRE(tb_blob_name_valid(m->blobs[i].name));
    free(again);
}

/* Twice: the first takes its layout apart, the second finds it. */
static void walk_layouts(const uint8_t *bytes, size_t count, enum tb_status expected)
{
    struct tb_layouts *layouts = tb_layouts_new();
    struct tb_layouts_counts counts;
    struct tb_manifest_memory memory[2] = {{NULL, NULL}, {NULL, NULL}};
    struct tb_manifest made[2];
    FUZZ_REQUIRE(layouts != NULL);
    for (int i = 0; i < 2; i++) {
        FUZZ_REQUIRE(tb_layouts_decode(layouts, bytes, count, &memory[i], &made[i]) == expected);
        if (expected == TB_OK) check_manifest(&made[i], bytes, count);
    }
    tb_layouts_count(layouts, &counts);
    FUZZ_REQUIRE(counts.taken_apart <= 1 && counts.used == (expected == TB_OK));
    for (int i = 0; i < 2; i++)
        tb_layouts_release(layouts, &memory[i]);
    tb_layouts_free(layouts);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_manifest m;
    const size_t need = tb_manifest_decode_bytes(bytes, count);
    /* a head may announce bytes that it does not have, but never more chunks than a shard can
     * have */
    FUZZ_REQUIRE(need <=
                 128 * count + 128 + TB_CHUNKS_MAX * (sizeof(struct tb_chunk) + sizeof(struct tb_digest)));
    void *memory = malloc(need > 0 ? need : 1);
    FUZZ_REQUIRE(memory != NULL);
    const enum tb_status status = tb_manifest_head_decode(bytes, count, memory, need, &m);
    FUZZ_REQUIRE(status == TB_OK || status == TB_PEER_GARBLED);
    if (status == TB_OK) check_manifest(&m, bytes, count);
    walk_layouts(bytes, count, status);
    free(memory);
    return 0;
}
