/* A list of SPIFFE URIs and their identities, as an operator or a stranger wrote it. The first line
 * of an input is a URI out of a certificate that is asked of it. An identity that it gives is one
 * that a certificate may have.
 *
 * Covers: base/net/spiffe.c */
#include "base/net/spiffe.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    const char *text = (const char *)bytes;
    struct tb_spiffe *list = NULL;
    struct tb_identity identity, again;
    char uri[TB_SPIFFE_BYTES_MAX + 2], spelled[TB_URI_BYTES_MAX];
    uint32_t line = 0;
    const char *end = memchr(text, '\n', count);
    const size_t first = end == NULL ? count : (size_t)(end - text);
    if (first == count || first >= sizeof uri) return 0;
    memcpy(uri, text, first);
    uri[first] = '\0';
    if (tb_spiffe_parse(text + first + 1, count - first - 1, &list, &line) != TB_OK) return 0;
    FUZZ_REQUIRE(tb_spiffe_count(list) <= TB_SPIFFE_MAX && tb_spiffe_count(list) <= line);
    if (tb_spiffe_identity(list, uri, &identity) == TB_OK) {
        FUZZ_REQUIRE(tb_spiffe_valid(uri) && identity.kind != TB_IDENTITY_UNIX);
        tb_identity_format(&identity, spelled);
        FUZZ_REQUIRE(tb_identity_parse(spelled, &again) == TB_OK && tb_identity_equal(&identity, &again));
    }
    tb_spiffe_free(list);
    return 0;
}
