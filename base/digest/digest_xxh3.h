/* digest_xxh3.h - the kernels, compiled once for each set of instructions: xxHash's header looks at
 * what the compiler was told. The header-only form is compiled in where this is, and nowhere else,
 * so no symbol of xxHash is left undefined and cores may link it. */
#ifndef TB_BASE_DIGEST_XXH3_H
#define TB_BASE_DIGEST_XXH3_H

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/assert.h"
#include "base/digest/digest_kernels.h"

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

static XXH3_state_t *state_of(struct tb_digest_state *s)
{
    return (XXH3_state_t *)(void *)s->opaque;
}

static struct tb_digest of(const void *bytes, size_t count)
{
    return canonical(XXH3_128bits(bytes, count));
}

static void begin(struct tb_digest_state *s)
{
    const XXH_errorcode error = XXH3_128bits_reset(state_of(s));
    TB_ASSERT(error == XXH_OK);
}

static void update(struct tb_digest_state *s, const void *bytes, size_t count)
{
    const XXH_errorcode error = XXH3_128bits_update(state_of(s), bytes, count);
    TB_ASSERT(error == XXH_OK);
}

static struct tb_digest end(struct tb_digest_state *s)
{
    return canonical(XXH3_128bits_digest(state_of(s)));
}

#define TB_DIGEST_KERNELS                                                                                    \
    {                                                                                                        \
        .of = of, .begin = begin, .update = update, .end = end                                               \
    }

#endif
