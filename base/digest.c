/* digest.c - XXH3-128 by what this processor has (digest_kernels.h). ThreadSanitizer is told of
 * what is read by marks (tsan_marks.h). */
#include "base/digest.h"

#include <string.h>

#include "base/assert.h"
#include "base/digest/digest_kernels.h"
#include "base/tsan_marks.h"

static const struct tb_digest_kernels *kernels(void)
{
    return tb_digest_kernels(TB_VECTOR_BEST);
}

struct tb_digest tb_digest_of(const void *bytes, size_t count)
{
    TB_ASSERT(bytes != NULL || count == 0);
    TB_TSAN_READS(bytes, count);
    return kernels()->of(bytes, count);
}

bool tb_digest_equal(const struct tb_digest *a, const struct tb_digest *b)
{
    TB_TSAN_READS(a, sizeof *a);
    TB_TSAN_READS(b, sizeof *b);
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

void tb_digest_begin(struct tb_digest_state *s)
{
    TB_TSAN_WRITES(s, sizeof *s);
    kernels()->begin(s);
}

void tb_digest_update(struct tb_digest_state *s, const void *bytes, size_t count)
{
    if (count == 0) return;
    TB_ASSERT(bytes != NULL);
    TB_TSAN_READS(bytes, count);
    TB_TSAN_WRITES(s, sizeof *s);
    kernels()->update(s, bytes, count);
}

struct tb_digest tb_digest_end(struct tb_digest_state *s)
{
    TB_TSAN_READS(s, sizeof *s);
    return kernels()->end(s);
}
