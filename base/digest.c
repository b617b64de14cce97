/* digest.c - XXH3-128. The header-only form is compiled in here and nowhere else, so no symbol of xxHash is
 * left undefined and cores may link this. ThreadSanitizer is told of what is read by marks (tsan_marks.h). */
#include "base/digest.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/assert.h"
#include "base/tsan_marks.h"

_Static_assert(sizeof(XXH3_state_t) <= sizeof(struct tb_digest_state), "the state fits");
_Static_assert(_Alignof(XXH3_state_t) <= _Alignof(struct tb_digest_state), "and is aligned");

static struct tb_digest canonical(XXH128_hash_t hash)
{
    XXH128_canonical_t c;
    struct tb_digest d;
    XXH128_canonicalFromHash(&c, hash);
    memcpy(d.bytes, c.digest, sizeof d.bytes);
    return d;
}

struct tb_digest tb_digest_of(const void *bytes, size_t count)
{
    TB_TSAN_READS(bytes, count);
    return canonical(XXH3_128bits(bytes, count));
}

bool tb_digest_equal(const struct tb_digest *a, const struct tb_digest *b)
{
    TB_TSAN_READS(a, sizeof *a);
    TB_TSAN_READS(b, sizeof *b);
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

static XXH3_state_t *state_of(struct tb_digest_state *s)
{
    return (XXH3_state_t *)(void *)s->opaque;
}

void tb_digest_begin(struct tb_digest_state *s)
{
    TB_TSAN_WRITES(s, sizeof *s);
    TB_ASSERT(XXH3_128bits_reset(state_of(s)) == XXH_OK);
}

void tb_digest_update(struct tb_digest_state *s, const void *bytes, size_t count)
{
    if (count == 0) return;
    TB_TSAN_READS(bytes, count);
    TB_TSAN_WRITES(s, sizeof *s);
    TB_ASSERT(XXH3_128bits_update(state_of(s), bytes, count) == XXH_OK);
}

struct tb_digest tb_digest_end(struct tb_digest_state *s)
{
    TB_TSAN_READS(s, sizeof *s);
    return canonical(XXH3_128bits_digest(state_of(s)));
}
