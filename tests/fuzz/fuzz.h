/* fuzz.h - what a fuzz target defines, and how it says that something is wrong. */
#ifndef TB_TESTS_FUZZ_FUZZ_H
#define TB_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* A property that must hold for every input; libFuzzer and replay.c both take an
 * abort for a finding. */
#define FUZZ_REQUIRE(expression) ((expression) ? (void)0 : abort())

/* walk_NAME: a message that decodes encodes to the same bytes. */
#define FUZZ_WALK(name)                                                                                      \
    static void walk_##name(const uint8_t *bytes, size_t count)                                              \
    {                                                                                                        \
        struct tb_##name m;                                                                                  \
        struct tb_reader r;                                                                                  \
        struct tb_writer w;                                                                                  \
        tb_reader_init(&r, bytes, count);                                                                    \
        if (tb_##name##_decode(&r, &m) != TB_OK) return;                                                     \
        uint8_t *again = malloc(count + 1);                                                                  \
        FUZZ_REQUIRE(again != NULL);                                                                         \
        tb_writer_init(&w, again, count + 1);                                                                \
        tb_##name##_encode(&m, &w);                                                                          \
        FUZZ_REQUIRE(w.used == count && memcmp(again, bytes, count) == 0);                                   \
        free(again);                                                                                         \
    }

#endif
