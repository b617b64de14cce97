/* A manifest's head that decodes is exactly what encode writes, and its chunks tile its bytes.
 *
 * Covers: base/layout/manifest.c base/layout/chunk_cut.c */
#include "base/layout/manifest.h"

#include <string.h>

#include "base/layout/blob_name.h"
#include "base/layout/chunk_cut.h"
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
    free(memory);
    return 0;
}
