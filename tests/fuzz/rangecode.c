/* A range-coded stream of anybody's is read within its bytes, and what was coded comes back. First byte: how many chances; its
 * highest bit: round trip. */
#include "base/rangecode.h"

#include "tests/fuzz/fuzz.h"

#define CHANCES   16u
#define BITS_MAX  4096u
#define EVEN_BITS 5u

static bool bit_at(const uint8_t *bytes, size_t i)
{
    return (bytes[i / 8] >> (i % 8) & 1) != 0;
}

static void decode(const uint8_t *bytes, size_t count, unsigned chances)
{
    struct tb_chance c[CHANCES];
    struct tb_range_decoder d;
    tb_chance_init(c, CHANCES);
    tb_range_decoder_init(&d, bytes, count);
    for (unsigned i = 0; i < BITS_MAX && !d.bad; i++) {
        if (i % 3 == 2)
            FUZZ_REQUIRE(tb_range_decode_even(&d, 1 + i % 32) <= UINT32_MAX >> (31 - i % 32));
        else
            (void)tb_range_decode(&d, &c[i % chances]);
        FUZZ_REQUIRE(d.at <= count && d.even_used <= count);
    }
    (void)tb_range_ended(&d);
}

static void round_trip(const uint8_t *bytes, size_t count, unsigned chances)
{
    static uint8_t out[BITS_MAX];
    struct tb_chance to[CHANCES], from[CHANCES];
    struct tb_range_coder c;
    struct tb_range_decoder d;
    const size_t bits = count * 8 < BITS_MAX ? count * 8 : BITS_MAX;
    tb_chance_init(to, CHANCES);
    tb_chance_init(from, CHANCES);
    tb_range_coder_init(&c, out, sizeof out);
    for (size_t i = 0; i < bits; i++) {
        tb_range_code(&c, &to[i % chances], bit_at(bytes, i));
        if (i % 7 == 0) tb_range_code_even(&c, bytes[i / 8], EVEN_BITS);
    }
    const size_t used = tb_range_end(&c);
    if (c.full) return;
    FUZZ_REQUIRE(used <= sizeof out);
    tb_range_decoder_init(&d, out, used);
    for (size_t i = 0; i < bits; i++) {
        FUZZ_REQUIRE(tb_range_decode(&d, &from[i % chances]) == bit_at(bytes, i));
        if (i % 7 == 0)
            FUZZ_REQUIRE(tb_range_decode_even(&d, EVEN_BITS) == (bytes[i / 8] & ((1u << EVEN_BITS) - 1)));
    }
    FUZZ_REQUIRE(tb_range_ended(&d));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    const unsigned chances = 1 + bytes[0] % CHANCES;
    if (bytes[0] < 0x80)
        decode(bytes + 1, count - 1, chances);
    else
        round_trip(bytes + 1, count - 1, chances);
    return 0;
}
