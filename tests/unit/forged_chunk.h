/* forged_chunk.h - other bytes with the same XXH3-128, as one makes them who knows how XXH3 works:
 * what a digest without a key is worth against an attacker. */
#ifndef TB_TESTS_FORGED_CHUNK_H
#define TB_TESTS_FORGED_CHUNK_H

#include <stdint.h>

/* Three quarters of each 1024 bytes become `fill`, but for the end of the chunk. At least 1025
 * bytes. */
void forge_chunk(uint8_t *bytes, uint64_t count, uint8_t fill);

#endif
