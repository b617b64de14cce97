/* Texts of strangers and of configurations that become names: a certificate's URI, an address, an
 * id. A text that is taken is printed as it was read, and is a name.
 *
 * Covers: base/ident.c base/net/endpoint.c */
#include <string.h>

#include "base/ident.h"
#include "base/net/endpoint.h"
#include "tests/fuzz/fuzz.h"

static void walk_identity(const char *text)
{
    struct tb_identity who, again;
    char uri[TB_URI_BYTES_MAX];
    if (tb_identity_parse(text, &who) != TB_OK) return;
    /* One that a socket's credentials gave (unix:UID) has no names. */
    if (strncmp(text, "tombolo:", 8) == 0)
        FUZZ_REQUIRE(tb_name_valid(who.site.text) && tb_name_valid(who.name.text));
    tb_identity_format(&who, uri);
    FUZZ_REQUIRE(strcmp(uri, text) == 0); /* one identity has one spelling */
    FUZZ_REQUIRE(tb_identity_parse(uri, &again) == TB_OK && tb_identity_equal(&who, &again));
}

static void walk_endpoint(const char *text)
{
    struct tb_endpoint e;
    if (tb_endpoint_parse(text, &e) != TB_OK) return;
    FUZZ_REQUIRE(memchr(e.host, '\0', sizeof e.host) != NULL);
    FUZZ_REQUIRE(strstr(text, e.host) != NULL); /* as it was written */
    struct tb_address address;
    (void)!tb_endpoint_address(&e, &address);
}

static void walk_id(const char *text)
{
    struct tb_id id, again;
    char hex[TB_HEX_CHARS];
    if (!tb_id_parse(text, &id)) return;
    tb_id_format(&id, hex);
    FUZZ_REQUIRE(tb_id_parse(hex, &again) && tb_id_equal(&id, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char *text = malloc(count + 1);
    FUZZ_REQUIRE(text != NULL);
    if (count > 0) memcpy(text, bytes, count);
    text[count] = '\0';
    walk_identity(text);
    walk_endpoint(text);
    walk_id(text);
    free(text);
    return 0;
}
