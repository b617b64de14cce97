#include "tests/unit/forged_chunk.h"

#include "base/digest.h"
#include "intra/cuda/kernel_words_c.h"
#include "tests/unit/check.h"

#include "intra/cuda/kernel_digest.h"

/* Of a lane the stripes of a block give two sums: of the words, and of the products of each word's
 * halves behind its secret. Twelve words are the attacker's, and four make the sums right. */
#define FREE (TB_XXH_STRIPES - 4)

static uint64_t product(uint64_t key)
{
    return (key & 0xffffffffu) * (key >> 32);
}

/* Two keys whose products sum to `sum`: x * (2^32 - 1) and y. */
static void find_products(uint64_t sum, uint64_t *first, uint64_t *second)
{
    uint64_t x = sum >> 32;
    if ((sum & 0xffffffffu) + x > 0xffffffffu) x++;
    assert_true(x <= 0xffffffffu && (sum + x) >> 32 == x);
    *first = x << 32 | 0xffffffffu;
    *second = (sum + x) << 32 | 1;
}

/* Two words of products 0, one with any high half and one with any low half, that sum to `sum`. */
static void find_words(uint64_t sum, uint64_t first_secret, uint64_t second_secret, uint64_t *first,
                       uint64_t *second)
{
    const uint64_t low = first_secret & 0xffffffffu, high = second_secret & ~(uint64_t)0xffffffffu;
    *second = high | ((sum - low) & 0xffffffffu);
    *first = ((sum - *second) & ~(uint64_t)0xffffffffu) | low;
    assert_true(*first + *second == sum);
}

static void forge_lane(uint8_t *block, uint32_t lane, uint8_t fill)
{
    uint64_t words[TB_XXH_STRIPES], sum = 0, products = 0, keys[2];
    const uint64_t *secret = tb_xxh_secret + lane; /* of stripe 0 */
    for (uint32_t s = 0; s < TB_XXH_STRIPES; s++) {
        memcpy(&words[s], block + TB_XXH_STRIPE * s + 8 * lane, 8);
        sum += words[s];
        products += product(words[s] ^ secret[s]);
    }
    for (uint32_t s = 0; s < FREE; s++) {
        memset(&words[s], fill, 8);
        sum -= words[s];
        products -= product(words[s] ^ secret[s]);
    }
    find_products(products, &keys[0], &keys[1]);
    words[FREE] = keys[0] ^ secret[FREE];
    words[FREE + 1] = keys[1] ^ secret[FREE + 1];
    sum -= words[FREE] + words[FREE + 1];
    find_words(sum, secret[FREE + 2], secret[FREE + 3], &words[FREE + 2], &words[FREE + 3]);
    for (uint32_t s = 0; s < TB_XXH_STRIPES; s++)
        memcpy(block + TB_XXH_STRIPE * s + 8 * lane, &words[s], 8);
}

void forge_chunk(uint8_t *bytes, uint64_t count, uint8_t fill)
{
    const struct tb_digest before = tb_digest_of(bytes, count);
    assert_true(count > TB_XXH_BLOCK);
    /* Its last 64 bytes count twice, and the block before them may have some of those. */
    for (uint64_t at = 0; at + TB_XXH_BLOCK + TB_XXH_STRIPE <= count; at += TB_XXH_BLOCK)
        for (uint32_t lane = 0; lane < TB_XXH_LANES; lane++)
            forge_lane(bytes + at, lane, fill);
    const struct tb_digest now = tb_digest_of(bytes, count);
    assert_true(tb_digest_equal(&before, &now));
}
