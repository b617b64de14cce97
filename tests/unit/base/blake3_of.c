/* The proof digests of what comes in, by each set of instructions that this machine has: a line for
 * each input, with one digest for each. blake3_of_others.py compares them with another's code.
 *
 * An input is its length in four bytes, least first, and its bytes.
 *
 * Covers: base/proof/blake3.c base/proof/blake3_portable.c base/proof/blake3_avx2.c
 * Covers: base/proof/blake3_avx512.c */
#include <stdio.h>
#include <stdlib.h>

#include "base/proof/blake3_kernels.h"
#include "base/vector.h"

static void show(struct tb_blake3 digest)
{
    for (size_t i = 0; i < TB_BLAKE3_BYTES; i++)
        printf("%02x", digest.bytes[i]);
    putchar(' ');
}

/* One call each, and pieces. */
static void show_all(const uint8_t *bytes, size_t count)
{
    struct tb_blake3_state s;
    const size_t first = count / 3;
    for (enum tb_vector v = TB_VECTOR_PORTABLE; v <= TB_VECTOR_AVX512; v++)
        if (tb_vector_here(v)) show(tb_blake3_by(tb_blake3_kernels(v), bytes, count));
    tb_blake3_begin(&s);
    tb_blake3_update(&s, bytes, first);
    tb_blake3_update(&s, bytes + first, count - first);
    show(tb_blake3_end(&s));
    putchar('\n');
}

int main(void)
{
    uint8_t head[4];
    while (fread(head, 1, sizeof head, stdin) == sizeof head) {
        const size_t count = (size_t)head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16;
        uint8_t *bytes = malloc(count + 1);
        if (bytes == NULL || fread(bytes, 1, count, stdin) != count) return 1;
        show_all(bytes, count);
        free(bytes);
    }
    return 0;
}
