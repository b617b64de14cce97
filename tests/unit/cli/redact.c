/* redact.c - what leaves a site in a report has no secret, in whatever form it stands there.
 * Covers: gateway/cli/operator/redact.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/cli/operator/redact.h"

#define KEY_32_BYTES "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"
#define BASE64_BARE  "MC4CAQAwBQYDK2VwBCIEIGx8a1Yb3P+q9Zc0v1w5Q2k"
#define BASE64_URL   "MC4CAQAwBQYDK2VwBCIEIGx8a1Yb3P-q9Zc0v1w5_2k"
#define JWT          "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJlYXN0In0.c2lnbmF0dXJl-Q_x"
#define BASE64_KEY   "MC4CAQAwBQYDK2VwBCIEIGx8a1Yb3P+q9Zc0v1w5Q2k="

static void check(const char *text, bool addresses, const char *wanted)
{
    char *out = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&out, &bytes);
    assert_non_null(f);
    tb_redact(f, text, addresses);
    assert_int_equal(fclose(f), 0);
    assert_string_equal(out, wanted);
    free(out);
}

static void secrets_go_in_each_form(void **state)
{
    (void)state;
    check("a -----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY----- b", false, "a " TB_REDACTED " b");
    check("{\"x\": \"-----BEGIN KEY-----\\nAA\\n-----END KEY-----\\n\"}", false,
          "{\"x\": \"" TB_REDACTED "\\n\"}");
    check("cut -----BEGIN PRIVATE KEY-----\nAAAA", false, "cut " TB_REDACTED);
    check("key " KEY_32_BYTES ".", false, "key " TB_REDACTED ".");
    check("key=" BASE64_KEY " end", false, "key=" TB_REDACTED " end");
    check("https://ann:word@host/x", false, "https://" TB_REDACTED "@host/x");
    check("passphrase: hunter2\nx: 1", false, "passphrase: " TB_REDACTED "\nx: 1");
    check("{\"token\": \"a b\", \"n\": 1}", false, "{\"token\": \"" TB_REDACTED "\", \"n\": 1}");
    check("event password=hunter2 x=1", false, "event password=" TB_REDACTED);
    check("secret: 'a, b'", false, "secret: '" TB_REDACTED "'");
}

/* The words that follow on the same line may be the rest of the secret. */
static void a_value_goes_whole(void **state)
{
    (void)state;
    check("authorization: Bearer " JWT "\nx: 1", false, "authorization: " TB_REDACTED "\nx: 1");
    check("passphrase: four words, no quotes\nx: 1", false, "passphrase: " TB_REDACTED "\nx: 1");
    check("{\"password\": \"a\\\"b c\", \"n\": 1}", false, "{\"password\": \"" TB_REDACTED "\", \"n\": 1}");
    check("secret: 'it\"s' x", false, "secret: '" TB_REDACTED "' x");
    check("{\"secret\": \"cut \\", false, "{\"secret\": \"" TB_REDACTED);
    check("{\"line\": \"login password=a b\", \"n\": 1}", false,
          "{\"line\": \"login password=" TB_REDACTED "\", \"n\": 1}");
    check("password=\nx: 1", false, "password=" TB_REDACTED "\nx: 1");
}

static void a_key_is_known_by_its_last_word(void **state)
{
    (void)state;
    check("api_token: abc", false, "api_token: " TB_REDACTED);
    check("Password: abc", false, "Password: " TB_REDACTED);
    check("CLIENT-SECRET=abc", false, "CLIENT-SECRET=" TB_REDACTED);
    check("{\"accessToken\": \"abc\"}", false, "{\"accessToken\": \"" TB_REDACTED "\"}");
}

static void keys_and_tokens_go_without_a_name(void **state)
{
    (void)state;
    check("saw " JWT " end", false, "saw " TB_REDACTED " end");
    check("saw " BASE64_BARE " end", false, "saw " TB_REDACTED " end");
    check("saw " BASE64_URL ".", false, "saw " TB_REDACTED ".");
}

/* The twin: facts that a reader needs stay. */
static void the_rest_stays_as_it_is(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "uid 00112233445566778899aabbccddeeff of policy 1:12",
        "tombolo://east/gw at 10.0.0.1:7400 [fd00::1]:7400",
        "tls.key: /etc/tombolo/gw.key",
        "{\"table\": \"tokens\", \"secrets\": \"hidden\"}",
        "2026-11-27T20:41:04.123Z link.up peer=west",
        "/models/policy/0000010000000000000000012/a/long/path/of/many/letters/and/digits",
        "",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        check(texts[i], false, texts[i]);
}

static void addresses_go_where_that_is_asked(void **state)
{
    (void)state;
    check("tombolo://east/gw at 10.0.0.1:7400", true, "tombolo://east/gw at " TB_REDACTED ":7400");
    check("[fd00::1]:7400", true, "[" TB_REDACTED "]:7400");
    check("2026-11-27T20:41:04Z 1:12", true, "2026-11-27T20:41:04Z 1:12");
    check("address: gw.east.example:7400\nrate: none", true, "address: " TB_REDACTED "\nrate: none");
    check("version 0.1.0", true, "version 0.1.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secrets_go_in_each_form),
        cmocka_unit_test(a_value_goes_whole),
        cmocka_unit_test(a_key_is_known_by_its_last_word),
        cmocka_unit_test(keys_and_tokens_go_without_a_name),
        cmocka_unit_test(the_rest_stays_as_it_is),
        cmocka_unit_test(addresses_go_where_that_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
