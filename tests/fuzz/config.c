/* A config that parses holds what the table allows, and every one that does not was
 * complained of in clean lines.
 *
 * Covers: gateway/config/config.c gateway/config/config_tree.c gateway/config/config_values.c */
#include "gateway/config/config.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

static void look(void *user, const char *line)
{
    uint32_t *count = user;
    ++*count;
    FUZZ_REQUIRE(strncmp(line, "f:", 2) == 0);
    for (; *line != '\0'; line++)
        FUZZ_REQUIRE((unsigned char)*line >= 0x20 && *line != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    uint32_t complaints = 0;
    struct tb_config *c = NULL;
    const enum tb_status status = tb_config_parse("f", (const char *)bytes, count, look, &complaints, &c);
    FUZZ_REQUIRE(status == TB_OK ? complaints == 0 && c != NULL : c == NULL);
    FUZZ_REQUIRE(status != TB_SITE_CONFIG || (complaints > 0 && complaints <= 100));
    if (status != TB_OK) return 0;
    FUZZ_REQUIRE(tb_name_valid(c->site.text) && tb_name_valid(c->gateway.text));
    FUZZ_REQUIRE(c->link_streams <= TB_CONFIG_STREAMS_MAX && c->link_down_ms > c->link_heartbeat_ms);
    FUZZ_REQUIRE(c->peer_count <= TB_CONFIG_LIST_MAX && c->model_count <= TB_CONFIG_LIST_MAX);
    FUZZ_REQUIRE(c->peer_count == 0 || (c->tls_ca != NULL && c->tls_cert != NULL && c->tls_key != NULL));
    tb_config_free(c);
    return 0;
}
