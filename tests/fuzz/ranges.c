/* Ranges that decode are sorted, apart, below the end, and encode to the same bytes. First byte: how many
 * fit. */
#include "base/ranges.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

#define INDEX_END 100000u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_range memory[256];
    uint8_t again[4 + 256 * 8];
    struct tb_ranges s;
    struct tb_reader r;
    struct tb_writer w;
    if (count == 0) return 0;
    tb_reader_init(&r, bytes + 1, count - 1);
    tb_ranges_init(&s, memory, bytes[0]);
    if (tb_ranges_decode(&r, INDEX_END, &s) != TB_OK) {
        FUZZ_REQUIRE(s.count == 0);
        return 0;
    }
    FUZZ_REQUIRE(s.count <= bytes[0]);
    for (uint32_t i = 0; i < s.count; i++) {
        FUZZ_REQUIRE(s.items[i].first < s.items[i].end && s.items[i].end <= INDEX_END);
        FUZZ_REQUIRE(i == 0 || s.items[i - 1].end < s.items[i].first);
        FUZZ_REQUIRE(tb_ranges_has(&s, s.items[i].first) && !tb_ranges_has(&s, s.items[i].end));
    }
    tb_writer_init(&w, again, sizeof again);
    tb_ranges_encode(&s, &w);
    FUZZ_REQUIRE(!w.full && memcmp(again, bytes + 1, w.used) == 0);
    return 0;
}
