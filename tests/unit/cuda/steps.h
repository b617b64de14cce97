/* steps.h - chunks of two versions, as a step of training leaves them and as none ever would, and
 * what the codec makes of them. */
#ifndef TB_TESTS_STEPS_H
#define TB_TESTS_STEPS_H

#include "base/codec/sparse.h"
#include "base/codec/sparse_kernels.h"

struct step {
    uint8_t *base, *bytes;
    size_t count;
    enum tb_dtype dtype;
    uint32_t kind;
};

/* Changes that a step of training makes, and some that none ever would. */
enum change { NOTHING, SMALL_STEPS, BY_EXPONENT, LARGE_STEPS, EVERY_TENTH, ALL_OF_IT, LAST_OF_ALL };

void step_make(struct step *s, enum tb_dtype dtype, uint32_t kind, size_t count, enum change change);
void step_free(struct step *s);
/* By base/codec/sparse.c: the bytes written, 0: it does not pay. */
size_t step_encode(const struct step *s, unsigned classes, uint8_t *out, size_t cap);
size_t step_changed(const struct step *s); /* elements */

uint8_t *step_memory(size_t bytes); /* on a border of 64; free() */
void step_fill(uint8_t *at, size_t bytes, uint64_t seed);

#endif
