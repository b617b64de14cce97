/* A source descriptor that decodes encodes to the same bytes, needs no more memory than a small
 * multiple of them, and every run of one that fits a manifest stays below 2^63.
 *
 * Covers: intra/fabric/source_descriptor.c intra/fabric/source_buffers.c */
#include "intra/fabric/source_descriptor.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

#define CHUNKS 3u

static const struct tb_tensor tensors[] = {
    {.bytes = 1000, .offset = 0}, {.bytes = 0, .offset = 1000}, {.bytes = 2000, .offset = 1000}};
static const struct tb_chunk chunks[CHUNKS] = {{0, 1000}, {1000, 2000}, {3000, 50}};
static const struct tb_manifest manifest = {.layout = {.tensor_count = 3, .bytes = 3000, .tensors = tensors},
                                            .chunk_count = CHUNKS,
                                            .chunks = chunks,
                                            .bytes = 3050};

static void walk(const struct tb_source_shard *shard)
{
    for (uint64_t at = 0; at < manifest.bytes;) {
        const struct tb_source_run run = tb_source_run_at(shard, &manifest, at, manifest.bytes - at);
        FUZZ_REQUIRE(run.bytes > 0 && run.bytes <= manifest.bytes - at);
        FUZZ_REQUIRE(run.offset <= INT64_MAX);
        at += run.bytes;
    }
    for (uint32_t k = 0; k < CHUNKS; k++) {
        const struct tb_source_encoded *encoded;
        if (tb_source_encoded_of(shard, k, &encoded)) FUZZ_REQUIRE(encoded->bytes <= chunks[k].bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const size_t needed = tb_source_decode_bytes(bytes, count);
    if (needed == 0) return 0;
    FUZZ_REQUIRE(needed <= 64 + 4 * count);
    const struct tb_source_shard *shards = NULL;
    uint32_t shard_count = 0;
    void *memory = malloc(needed);
    FUZZ_REQUIRE(tb_source_decode(bytes, count, memory, needed, &shards, &shard_count) == TB_OK);
    for (uint32_t i = 0; i < shard_count; i++)
        if (tb_source_check(&shards[i], &manifest) == TB_OK) walk(&shards[i]);

    FUZZ_REQUIRE(tb_source_encoded_bytes(shards, shard_count) == count);
    uint8_t *again = malloc(count);
    struct tb_writer w;
    tb_writer_init(&w, again, count);
    tb_source_encode(shards, shard_count, &w);
    FUZZ_REQUIRE(!w.full && memcmp(again, bytes, count) == 0);
    free(again);
    free(memory);
    return 0;
}
