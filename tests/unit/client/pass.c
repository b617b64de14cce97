/* pass.c - the pass against the plain way: gather everything, digest it whole, compare.
 *
 * Covers: intra/client/publish/publish_pass.c intra/tensor_spread.c */
#include "intra/client/publish/publish_pass.h"

#include <stdlib.h>
#include <string.h>

#include "base/layout/chunk_cut.h"
#include "unit/check.h"

/* Large and small tensors, one of no bytes, several dtypes, and a blob: chunks that are parts of
 * tensors, whole groups, and both. */
static const struct {
    const char *name;
    enum tb_dtype dtype;
    uint64_t count;
} shapes[] = {{"big", TB_DTYPE_BF16, 1700001}, {"a", TB_DTYPE_BF16, 3},     {"none", TB_DTYPE_BF16, 0},
              {"b", TB_DTYPE_BF16, 70000},     {"f", TB_DTYPE_F32, 300000}, {"byte", TB_DTYPE_U8, 11}};
#define TENSORS (sizeof shapes / sizeof shapes[0])

struct world {
    void *layout_memory, *manifest_memory;
    struct tb_manifest manifest;
    uint8_t *tensors[TENSORS];
    uint8_t *blobs;
    uint8_t *packed; /* the truth */
    struct tb_crew *crew;
};

static void world_open(struct world *w, uint32_t threads, bool noise)
{
    memset(w, 0, sizeof *w);
    struct tb_tensor list[TENSORS];
    memset(list, 0, sizeof list);
    for (size_t i = 0; i < TENSORS; i++)
        list[i] = (struct tb_tensor){.name = shapes[i].name,
                                     .dtype = shapes[i].dtype,
                                     .rank = 1,
                                     .full = {shapes[i].count},
                                     .box_count = {shapes[i].count}};
    struct tb_layout layout;
    const size_t layout_bytes = tb_layout_bytes_for(list, TENSORS);
    w->layout_memory = malloc(layout_bytes);
    CHECK_OK(tb_layout_build(list, TENSORS, w->layout_memory, layout_bytes, &layout));
    const struct tb_blob blobs[] = {{.name = "x", .bytes = 1200000}, {.name = "y/z", .bytes = 7}};
    const size_t bytes = tb_manifest_bytes_for(&layout, blobs, 2);
    w->manifest_memory = malloc(bytes);
    CHECK_OK(tb_manifest_build(&layout, blobs, 2, w->manifest_memory, bytes, &w->manifest));
    w->packed = malloc(w->manifest.bytes);
    uint64_t seed = 7;
    for (uint64_t i = 0; i < w->manifest.bytes; i++)
        w->packed[i] = noise ? (uint8_t)check_random(&seed) : (uint8_t)(i / 1000);
    for (size_t i = 0; i < TENSORS; i++) {
        const struct tb_tensor *t = &w->manifest.layout.tensors[i];
        w->tensors[i] = malloc(t->bytes + 1);
        memcpy(w->tensors[i], w->packed + t->offset, t->bytes);
    }
    w->blobs = malloc(w->manifest.blob_bytes);
    memcpy(w->blobs, w->packed + w->manifest.layout.bytes, w->manifest.blob_bytes);
    CHECK_OK(tb_crew_new(threads, &w->crew));
}

static void world_close(struct world *w)
{
    tb_crew_free(w->crew);
    for (size_t i = 0; i < TENSORS; i++)
        free(w->tensors[i]);
    free(w->blobs);
    free(w->packed);
    free(w->manifest_memory);
    free(w->layout_memory);
}

static void check_digests(const struct world *w)
{
    for (uint32_t k = 0; k < w->manifest.chunk_count; k++) {
        const struct tb_chunk *c = &w->manifest.chunks[k];
        const struct tb_digest d = tb_digest_of(w->packed + c->offset, c->bytes);
        assert_true(tb_digest_equal(&d, &w->manifest.digests[k]));
    }
}

static void shadow_is_the_bytes_and_digests_are_theirs(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        struct world w;
        world_open(&w, threads, true);
        uint8_t *shadow = calloc(1, w.manifest.bytes);
        memcpy(shadow + w.manifest.layout.bytes, w.blobs, w.manifest.blob_bytes);
        struct tb_shared_memory none = {.memfd = -1};
        const struct tb_pass pass = {.manifest = &w.manifest,
                                     .tensors = w.tensors,
                                     .blobs = shadow + w.manifest.layout.bytes,
                                     .shadow = shadow};
        CHECK_OK(tb_pass_run(w.crew, &pass, &none));
        assert_memory_equal(shadow, w.packed, w.manifest.bytes);
        check_digests(&w);
        free(shadow);
        world_close(&w);
    }
}

static void encoded_chunks_decode_to_the_bytes(void **state)
{
    (void)state;
    for (int noise = 0; noise <= 1; noise++) {
        struct world w;
        world_open(&w, 2, noise);
        struct tb_source_encoded *encoded_chunks = calloc(w.manifest.chunk_count, sizeof *encoded_chunks);
        struct tb_shared_memory side = {.memfd = -1};
        const struct tb_pass pass = {.manifest = &w.manifest,
                                     .tensors = w.tensors,
                                     .blobs = w.blobs,
                                     .codec = TB_CODEC_ZSTD,
                                     .encoded_chunks = encoded_chunks};
        CHECK_OK(tb_pass_run(w.crew, &pass, &side));
        check_digests(&w);
        struct tb_codec *codec;
        CHECK_OK(tb_codec_new(&codec));
        uint8_t *out = malloc(2 * TB_CHUNK_BYTES_MAX);
        for (uint32_t k = 0; k < w.manifest.chunk_count; k++) {
            const struct tb_chunk *c = &w.manifest.chunks[k];
            if (encoded_chunks[k].codec == TB_CODEC_RAW) {
                assert_true(noise == 1 || c->bytes < 1000); /* too small to get smaller */
                continue;
            }
            assert_true(noise == 0);
            const struct tb_codec_coded coded = {{.id = (enum tb_codec_id)encoded_chunks[k].codec},
                                                 (uint8_t *)side.bytes + encoded_chunks[k].offset,
                                                 encoded_chunks[k].bytes};
            CHECK_OK(tb_codec_decode(codec, &coded, &(struct tb_codec_output){out, c->bytes, NULL}));
            assert_memory_equal(out, w.packed + c->offset, c->bytes);
        }
        free(out);
        tb_codec_free(codec);
        tb_shared_memory_free(&side);
        free(encoded_chunks);
        world_close(&w);
    }
}

static void compare_finds_one_changed_byte(void **state)
{
    (void)state;
    struct world w;
    world_open(&w, 2, true);
    struct tb_shared_memory none = {.memfd = -1};
    const struct tb_pass pass = {.manifest = &w.manifest, .tensors = w.tensors, .blobs = w.blobs};
    CHECK_OK(tb_pass_run(w.crew, &pass, &none));
    uint32_t differs = UINT32_MAX;
    CHECK_OK(tb_pass_compare(w.crew, &pass, &differs));
    for (size_t i = 0; i < TENSORS; i++) {
        const struct tb_tensor *t = &w.manifest.layout.tensors[i];
        if (t->bytes == 0) continue;
        w.tensors[i][t->bytes - 1] ^= 1;
        CHECK_STATUS(tb_pass_compare(w.crew, &pass, &differs), TB_CONFLICT);
        const struct tb_chunk *c = &w.manifest.chunks[differs];
        assert_true(c->offset < t->offset + t->bytes && c->offset + c->bytes >= t->offset + t->bytes);
        w.tensors[i][t->bytes - 1] ^= 1;
    }
    w.blobs[0] ^= 1;
    CHECK_STATUS(tb_pass_compare(w.crew, &pass, &differs), TB_CONFLICT);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shadow_is_the_bytes_and_digests_are_theirs),
        cmocka_unit_test(encoded_chunks_decode_to_the_bytes),
        cmocka_unit_test(compare_finds_one_changed_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
