/* layout_fixture.h - layouts of tensors that a test names, built and decoded. */
#ifndef TB_TESTS_LAYOUT_FIXTURE_H
#define TB_TESTS_LAYOUT_FIXTURE_H

#include <stdlib.h>

#include "base/layout/layout.h"
#include "tests/unit/check.h"

/* Builds into malloc'd memory that the caller frees. */
static inline void *build(const struct tb_tensor *tensors, uint32_t count, struct tb_layout *layout_out)
{
    const size_t bytes = tb_layout_bytes_for(tensors, count);
    void *memory = malloc(bytes > 0 ? bytes : 1);
    CHECK_OK(tb_layout_build(tensors, count, memory, bytes, layout_out));
    return memory;
}

static inline enum tb_status try_build(const struct tb_tensor *tensors, uint32_t count)
{
    static _Alignas(16) uint8_t memory[1 << 16];
    struct tb_layout layout;
    return tb_layout_build(tensors, count, memory, sizeof memory, &layout);
}

static inline enum tb_status decode(const void *bytes, size_t count, struct tb_layout *layout_out)
{
    static _Alignas(16) uint8_t memory[1 << 16];
    const size_t need = tb_layout_decode_bytes(bytes, count);
    assert_true(need <= sizeof memory);
    return tb_layout_decode(bytes, count, memory, need, layout_out);
}

#endif
