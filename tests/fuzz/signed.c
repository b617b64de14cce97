/* Signed statements of strangers. Nobody here trusts a CA: all are refused, and none is believed.
 *
 * Covers: base/proof/statement.c base/net/signed.c */
#include "base/net/signed.h"
#include "tests/fuzz/fuzz.h"

static void walk_statement(const uint8_t *bytes, size_t count)
{
    struct tb_statement s;
    struct tb_writer w;
    uint8_t again[TB_STATEMENT_BYTES_MAX];
    if (tb_statement_decode(bytes, count, &s) != TB_OK) return;
    tb_writer_init(&w, again, sizeof again);
    tb_statement_encode(&s, &w);
    FUZZ_REQUIRE(!w.full && w.used == count && memcmp(again, bytes, count) == 0); /* one spelling */
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct tb_tls *trust;
    struct tb_statement statement;
    struct tb_signer signer;
    char error[256];
    if (trust == NULL) FUZZ_REQUIRE(tb_tls_new_ephemeral(&trust) == TB_OK);
    walk_statement(bytes, count);
    if (tb_signed_peek(bytes, count, &statement) == TB_OK)
        FUZZ_REQUIRE(tb_name_valid(statement.model.text) && statement.kind < TB_STATEMENT_KINDS);
    FUZZ_REQUIRE(tb_signed_check(trust, bytes, count, &statement, &signer, error) != TB_OK);
    FUZZ_REQUIRE(error[0] != '\0' && memchr(error, '\0', sizeof error) != NULL);
    return 0;
}
