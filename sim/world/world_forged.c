/* world_forged.c - other bytes with the XXH3-128 of right ones, of chunks as small as this world's.
 *
 * XXH3 takes 48 to 128 bytes in pairs of blocks, from the middle outwards. The first 16 bytes and
 * the last 16 come last. A word that equals its part of the secret makes a product zero, and then
 * the other word of that block alone decides what becomes of the sum. So two words put right what
 * all bytes between them made wrong. (tests/unit/forged_chunk.h does it for large chunks.) */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/assert.h"
#include "base/digest.h"
#include "world_hostile.h"

#define LEAST 48u
#define MOST  128u

struct sums {
    uint64_t low, high;
};

static uint64_t word(const uint8_t *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static uint64_t product(const uint8_t *at, const uint8_t *secret)
{
    return XXH3_mul128_fold64(word(at) ^ word(secret), word(at + 8) ^ word(secret + 8));
}

static void take(struct sums *s, const uint8_t *first, const uint8_t *second, const uint8_t *secret)
{
    s->low = (s->low + product(first, secret)) ^ (word(second) + word(second + 8));
    s->high = (s->high + product(second, secret + 16)) ^ (word(first) + word(first + 8));
}

/* All but the outermost pair. */
static struct sums sums_inside(const uint8_t *bytes, uint32_t count)
{
    struct sums s = {.low = count * XXH_PRIME64_1};
    for (uint32_t i = (count - 1) / 32; i > 0; i--)
        take(&s, bytes + 16 * (size_t)i, bytes + count - 16 * (size_t)(i + 1), XXH3_kSecret + 32 * (size_t)i);
    return s;
}

/* A block whose product is zero, and whose two words sum to `sum`. */
static void block_write(uint8_t *at, const uint8_t *secret, uint64_t sum)
{
    const uint64_t first = word(secret), second = sum - first;
    memcpy(at, &first, sizeof first);
    memcpy(at + 8, &second, sizeof second);
}

bool world_chunk_forge(uint8_t *bytes, uint32_t count)
{
    if (count < LEAST || count > MOST) return false;
    const struct tb_digest before = tb_digest_of(bytes, count);
    struct sums right = sums_inside(bytes, count);
    take(&right, bytes, bytes + count - 16, XXH3_kSecret);
    for (uint32_t i = 16; i < count - 16; i++)
        bytes[i] ^= 0xa5;
    const struct sums inside = sums_inside(bytes, count);
    block_write(bytes, XXH3_kSecret, right.high ^ inside.high);
    block_write(bytes + count - 16, XXH3_kSecret + 16, right.low ^ inside.low);
    const struct tb_digest now = tb_digest_of(bytes, count);
    TB_ASSERT(tb_digest_equal(&before, &now));
    return true;
}
