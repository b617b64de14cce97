/* fuzz.h - what a fuzz target defines, and how it says that something is wrong. */
#ifndef TB_TESTS_FUZZ_FUZZ_H
#define TB_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* A property that must hold for every input; libFuzzer and replay.c both take an abort for a finding. */
#define FUZZ_REQUIRE(expression) ((expression) ? (void)0 : abort())

#endif
