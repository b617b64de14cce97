/* A message of every kind of field that decodes encodes to the same bytes.
 *
 * Covers: base/message.c base/bytes.c */
#include "base/message.h"

#include "tests/fuzz/fuzz.h"

#define ALL_FIELDS(F)                                                                                        \
    F(bool, yes)                                                                                             \
    F(u8, a)                                                                                                 \
    F(u16, b)                                                                                                \
    F(u32, c)                                                                                                \
    F(u64, d)                                                                                                \
    F(id, uid)                                                                                               \
    F(digest, root)                                                                                          \
    F(fingerprint, print)                                                                                    \
    F(name, site)                                                                                            \
    F(opt_name, rack)                                                                                        \
    F(text, why)                                                                                             \
    F(span, head)                                                                                            \
    F(key, version)
TB_MESSAGE(all, ALL_FIELDS)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct all m;
    struct tb_reader r;
    struct tb_writer w;
    tb_reader_init(&r, bytes, count);
    if (all_decode(&r, &m) != TB_OK) return 0;
    uint8_t *again = malloc(count);
    FUZZ_REQUIRE(again != NULL);
    tb_writer_init(&w, again, count);
    all_encode(&m, &w);
    FUZZ_REQUIRE(!w.full && w.used == count && memcmp(again, bytes, count) == 0);
    free(again);
    return 0;
}
