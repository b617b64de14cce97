/* pages.h - a view of the page, of answers that are written as JSON here. */
#ifndef TB_TEST_UNIT_WEB_PAGES_H
#define TB_TEST_UNIT_WEB_PAGES_H

#include <stdbool.h>

#include "gateway/web/page.h"

struct answers_text {
    const char *status, *lag, *versions, *streams, *chains, *events; /* NULL: no answer */
    const struct tb_throughput *throughput;
    const struct tb_sightings *sightings;
    double now_s, wall_ms, age_s;
    double ages_s[TB_ANSWERS];
    bool silent;
};

/* The caller frees it. */
char *page_of(const struct answers_text *text, const char *path);
void expect_words(const char *page, const char *words);
void expect_no_words(const char *page, const char *words);

#endif
