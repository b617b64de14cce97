/* A layout that decodes is exactly what encode writes, in the memory that was announced.
 *
 * Covers: base/layout/layout.c */
#include "base/layout/layout.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

static void check_layout(const struct tb_layout *layout, const uint8_t *bytes, size_t count)
{
    struct tb_writer w;
    uint8_t *again = malloc(count);
    FUZZ_REQUIRE(again != NULL);
    FUZZ_REQUIRE(tb_layout_encoded_bytes(layout) == count);
    tb_writer_init(&w, again, count);
    tb_layout_encode(layout, &w);
    FUZZ_REQUIRE(!w.full && w.used == count && memcmp(again, bytes, count) == 0);
    for (uint32_t i = 0; i < layout->tensor_count && i < 100; i++) {
        const struct tb_tensor *t = &layout->tensors[i];
        FUZZ_REQUIRE(tb_layout_find_like(layout, t) == t);
        if (t->part == 0) FUZZ_REQUIRE(tb_layout_find(layout, t->name) == t);
    }
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_layout layout;
    const size_t need = tb_layout_decode_bytes(bytes, count);
    FUZZ_REQUIRE(need <= 64 * count + 64);
    void *memory = malloc(need > 0 ? need : 1);
    FUZZ_REQUIRE(memory != NULL);
    const enum tb_status status = tb_layout_decode(bytes, count, memory, need, &layout);
    FUZZ_REQUIRE(status == TB_OK || status == TB_PEER_GARBLED);
    if (status == TB_OK) check_layout(&layout, bytes, count);
    free(memory);
    return 0;
}
