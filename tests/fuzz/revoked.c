/* A file of revoked certificates, as an operator or a stranger wrote it. An entry has one
 * spelling, which is read again as the same entry.
 *
 * Covers: base/net/revoked.c */
#include "base/net/revoked.h"
#include "tests/fuzz/fuzz.h"

static void walk_entry(const char *text, size_t count)
{
    struct tb_revoked_entry e, again;
    char spelled[TB_REVOKED_TEXT_BYTES] = "";
    if (tb_revoked_entry_parse(text, count, &e) != TB_OK) return;
    tb_revoked_entry_format(&e, spelled);
    FUZZ_REQUIRE(memchr(spelled, '\0', sizeof spelled) != NULL);
    FUZZ_REQUIRE(tb_revoked_entry_parse(spelled, strlen(spelled), &again) == TB_OK);
    FUZZ_REQUIRE(tb_revoked_entry_equal(&e, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_revoked *r = NULL;
    uint32_t line = 0;
    walk_entry((const char *)bytes, count);
    if (tb_revoked_parse((const char *)bytes, count, &r, &line) != TB_OK) return 0;
    FUZZ_REQUIRE(tb_revoked_count(r) <= TB_REVOKED_MAX && tb_revoked_count(r) <= line);
    tb_revoked_free(r);
    return 0;
}
