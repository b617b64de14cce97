/* pages.c - see pages.h. */
#include "tests/unit/web/pages.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/check.h"

static json_t *parsed(const char *text)
{
    json_t *json = text != NULL ? json_loads(text, JSON_DECODE_ANY, NULL) : NULL;
    if (text != NULL && json == NULL) fail_msg("no JSON: %s", text);
    return json;
}

char *page_of(const struct answers_text *t, const char *path)
{
    char *text = NULL;
    size_t count = 0;
    struct tb_page_place place;
    json_t *all[] = {parsed(t->status),  parsed(t->lag),    parsed(t->versions),
                     parsed(t->streams), parsed(t->chains), parsed(t->events)};
    struct tb_web_facts facts = {.status = all[0],
                                 .lag = all[1],
                                 .versions = all[2],
                                 .streams = all[3],
                                 .chains = all[4],
                                 .events = all[5],
                                 .throughput = t->throughput,
                                 .sightings = t->sightings,
                                 .now_s = t->now_s,
                                 .wall_ms = t->wall_ms,
                                 .age_s = t->age_s,
                                 .pace_s = 1,
                                 .silent = t->silent};
    memcpy(facts.ages_s, t->ages_s, sizeof facts.ages_s);
    assert_true(tb_page_find(path, &place));
    FILE *out = open_memstream(&text, &count);
    assert_non_null(out);
    tb_page_write(out, &facts, place);
    assert_int_equal(fclose(out), 0);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        json_decref(all[i]);
    return text;
}

void expect_words(const char *page, const char *words)
{
    if (strstr(page, words) == NULL) fail_msg("no \"%s\" in\n%s", words, page);
}

void expect_no_words(const char *page, const char *words)
{
    if (strstr(page, words) != NULL) fail_msg("\"%s\" stands in\n%s", words, page);
}
