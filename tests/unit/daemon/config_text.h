/* config_text.h - a configuration made of a text that is right, for tests of what is done with
 * one. */
#ifndef TB_TESTS_UNIT_DAEMON_CONFIG_TEXT_H
#define TB_TESTS_UNIT_DAEMON_CONFIG_TEXT_H

#include <string.h>

#include "gateway/config/config.h"
#include "tests/unit/check.h"

/* The caller's, by tb_config_free. */
static inline struct tb_config *config_of(const char *text)
{
    struct tb_config *config = NULL;
    CHECK_OK(tb_config_parse("w.yaml", text, strlen(text), NULL, NULL, &config));
    return config;
}

#endif
