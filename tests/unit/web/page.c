/* page.c - what the page says: a verdict, reasons with what is next, and "unknown" for what is not
 * known (P10). No text of a peer becomes markup, on any view.
 *
 * Covers: gateway/web/page.c gateway/web/page_verdict.c gateway/web/page_sites.c
 * Covers: gateway/web/page_links.c gateway/web/page_readers.c gateway/web/page_health.c
 * Covers: gateway/web/page_topology.c gateway/web/markup.c gateway/web/group_facts.c */
#include <stdlib.h>
#include <string.h>

#include "gateway/web/markup.h"
#include "tests/unit/check.h"
#include "tests/unit/web/pages.h"

#define STATUS                                                                                               \
    "\"site\": \"east\", \"gateway\": \"gw\", \"version\": \"0.1.0\", \"store_ok\": true, \"uptime_s\": 90"
#define UP "{\"site\": \"west\", \"state\": \"up\", \"since_s\": 5, \"rtt_ms\": 80.0, \"streams\": 4}"

static void the_verdict_is_one_sentence(void **state)
{
    (void)state;
    char *page =
        page_of(&(struct answers_text){.status = "{" STATUS ", \"links\": [" UP "]}",
                                       .lag = "{\"lag\": [{\"model\": \"policy\", \"site\": \"west\","
                                              " \"known\": true, \"versions\": 0,"
                                              " \"reason\": \"up-to-date\"}]}"},
                "/");
    expect_words(page, "<p class=\"verdict good\">All sites have what they should have.</p>");
    free(page);
    page = page_of(&(struct answers_text){.status = "{" STATUS "}",
                                          .lag = "{\"lag\": [{\"model\": \"policy\", \"site\": \"west\","
                                                 " \"known\": true, \"versions\": 2, \"seconds\": 130,"
                                                 " \"bytes\": 5000, \"reason\": \"no-room\", \"why\": \"w\","
                                                 " \"evidence\": \"needs 5\"}]}"},
                   "/");
    expect_words(page, "<p class=\"verdict bad\"><b>policy</b> at <b>west</b> is 2 versions and 2 min 10 s"
                       " behind: no-room.</p>");
    expect_words(page, "w: needs 5. Next: raise arena.bytes there");
    free(page);
}

static void a_link_that_is_down_is_said(void **state)
{
    (void)state;
    char *page = page_of(
        &(struct answers_text){.status = "{" STATUS ", \"links\": [" UP ", {\"site\": \"north\", \"state\":"
                                         " \"dialling\", \"reason\": \"tls-failed\", \"since_s\": 3}]}",
                               .lag = "{\"lag\": []}"},
        "/links");
    expect_words(page, "No model is published or followed here. The link to <b>north</b> is down.</p>");
    expect_words(page, "1 of 2 links are up.");
    expect_words(page, "<td class=\"n unknown\">unknown</td>"); /* the rtt of a link that is down */
    expect_words(page, "80 ms rtt");
    free(page);
}

static void a_row_that_is_not_known_is_unknown(void **state)
{
    (void)state;
    char *page =
        page_of(&(struct answers_text){.status = "{" STATUS "}",
                                       .lag = "{\"lag\": [{\"model\": \"policy\", \"site\": \"west\","
                                              " \"known\": false, \"versions\": null, \"bytes\": null,"
                                              " \"seconds\": null, \"heard_s\": null,"
                                              " \"reason\": \"link-down\"}]}"},
                "/sites");
    expect_words(page, "<p class=\"verdict unknown\"> Nothing is known now of <b>policy</b> at <b>west</b>");
    expect_words(page, "<tr class=\"gone told\">");
    expect_words(page, "never");
    expect_no_words(page, ">0 B<");
    expect_no_words(page, "All sites have");
    free(page);
}

/* It is not silence that is good news. */
static void no_answer_is_not_all_well(void **state)
{
    (void)state;
    char *page = page_of(&(struct answers_text){.status = "{" STATUS "}"}, "/");
    expect_words(page, "<p class=\"verdict unknown\">How the sites stand is not known");
    free(page);
    page = page_of(&(struct answers_text){.silent = true}, "/");
    expect_words(page, "<p class=\"verdict bad\">The gateway does not answer on its control socket.</p>");
    free(page);
    page = page_of(&(struct answers_text){.status = "{" STATUS "}",
                                          .lag = "{\"lag\": [{\"model\": \"policy\", \"site\": \"west\","
                                                 " \"known\": true, \"versions\": 0,"
                                                 " \"reason\": \"up-to-date\"}]}",
                                          .silent = true,
                                          .age_s = 42},
                   "/");
    expect_words(page, "<div id=\"page\" class=\"bad stale\"");
    expect_words(page, "how it stood <time data-age=\"42.0\">42 s</time> ago");
    expect_no_words(page, "All sites have");
    free(page);
}

/* Costly answers are asked seldom; the others are no older for that. */
static void a_section_is_as_old_as_its_answers(void **state)
{
    (void)state;
    char *page = page_of(&(struct answers_text){.status = "{" STATUS "}",
                                                .lag = "{\"lag\": []}",
                                                .streams = "{\"links\": []}",
                                                .age_s = 25,
                                                .ages_s = {[TB_ANSWER_LAG] = 25, [TB_ANSWER_STREAMS] = 2}},
                         "/links");
    expect_words(page, "Each link <small class=\"age\">as of <time data-age=\"0.0\">");
    expect_words(page, "Streams <small class=\"age\">as of <time data-age=\"2.0\">");
    expect_words(page,
                 "<h2>Links <small class=\"age\">as of <time data-age=\"25.0\">"); /* its drawing has lag */
    free(page);
}

static void groups_say_what_is_proven(void **state)
{
    (void)state;
    char *page = page_of(
        &(struct answers_text){
            .status = "{" STATUS ", \"groups\": [{\"model\": \"p\", \"group\": \"g\", \"members\": 2,"
                      " \"present\": 1, \"active\": \"1:3\", \"activated\": 1}], \"sessions\": [{\"updates\":"
                      " [{\"model\": \"p\", \"group\": \"g\", \"stall_ms\": 2.5}], \"serving\": [{\"model\":"
                      " \"p\", \"group\": \"g\", \"proof\": {\"verdict\": \"differs\"}}]}]}",
            .chains =
                "{\"chains\": [{\"model\": \"p\", \"run\": 1, \"number\": 3, \"chunks\": 4, \"members\":"
                " [{\"name\": \"gw\", \"kind\": \"gateway\", \"held_chunks\": 4, \"whole\": true},"
                " {\"name\": \"w0\", \"kind\": \"worker\", \"source\": 0, \"held_chunks\": 1,"
                " \"transport\": \"shm\", \"bytes_per_s\": 125000}]}]}"},
        "/readers");
    expect_words(page, "<td class=\"n warn\">1 of 2</td>");
    expect_words(page, "<td class=\"bad\">1 from OTHER bytes</td>");
    expect_words(page, "2.5 ms");
    expect_words(page, "<td>w0</td><td>worker</td><td>gw</td><td>shm</td><td class=\"n\">25 %</td>");
    free(page);
}

static void health_names_what_to_look_at(void **state)
{
    (void)state;
    char *page = page_of(
        &(struct answers_text){
            .status = "{\"site\": \"east\", \"store_ok\": false, \"certificates\": {\"days_left\": 3,"
                      " \"authority_days_left\": 300}, \"arena\": {\"bytes\": 1000, \"used\": 990},"
                      " \"tables\": [{\"table\": \"copies\", \"used\": 1, \"most\": 2, \"bound\": 64,"
                      " \"refused\": 3}], \"sandbox\": {\"lacks\": \"no landlock\"}}",
            .events = "{\"events\": [{\"id\": 1, \"time_ms\": 1000, \"level\": \"warn\", \"event\":"
                      " \"link.lost\", \"text\": \"peer=west\"}]}",
            .wall_ms = 61000},
        "/health");
    expect_words(page, "bad</span> The store cannot be written: publishing is refused");
    expect_words(page, "look</span> The gateway's certificate: 3 days left");
    expect_words(page, "look</span> The sandbox: no landlock");
    expect_words(page, "01-01 00:00:01 <small>1 min 00 s ago</small>");
    free(page);
}

/* A field that is missing, or of another type, is neither well nor a fault. */
static void a_field_that_is_not_said_is_unknown(void **state)
{
    (void)state;
    static const char *const shapes[] = {
        "{\"site\": \"east\", \"arena\": {\"bytes\": 1000}, \"links\": [{\"site\": \"west\"}]}",
        "{\"site\": \"east\", \"draining\": \"no\", \"store_ok\": 1, \"tables\": {}, \"sandbox\": {},"
        " \"arena\": {\"bytes\": 1000, \"used\": \"3\"}, \"links\": [{\"site\": \"west\", \"state\": 7}]}"};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        char *page = page_of(&(struct answers_text){.status = shapes[i], .lag = "{\"lag\": {}}"}, "/health");
        expect_words(page, "<p class=\"verdict unknown\">How the sites stand is not known");
        expect_words(page, "Whether its store can be written is not known.");
        expect_no_words(page, "cannot be written");
        expect_no_words(page, "is down");
        expect_words(page, "unknown</span> Whether it drains</li>");
        expect_words(page, "unknown</span> Tables</li>");
        expect_words(page, "unknown</span> The arena</li>");
        expect_words(page, "unknown</span> The sandbox</li>");
        expect_no_words(page, "0 tables that");
        expect_words(page, "<p class=\"unknown\">Unknown: the gateway did not say it.</p>");
        free(page);
    }
    char *page =
        page_of(&(struct answers_text){.status = "{\"site\": \"east\", \"store_ok\": true, \"arena\":"
                                                 " {\"bytes\": 1000, \"used\": 3}}",
                                       .lag = "{\"lag\": 3}"},
                "/health");
    expect_words(page, "are used; what still fits is unknown</li>");
    free(page);
    page = page_of(&(struct answers_text){.status = "{" STATUS "}", .lag = "{\"lag\": 3}"}, "/sites");
    expect_no_words(page, "No model is published");
    free(page);
}

/* ---- parts of a long list ---- */

static char *of_pairs(int sites, int models)
{
    json_t *rows = json_array();
    assert_non_null(rows);
    for (int site = 0; site < sites; site++)
        for (int model = 0; model < models; model++) {
            char name[32], of[32];
            (void)snprintf(name, sizeof name, "site-%03d", site);
            (void)snprintf(of, sizeof of, "model-%02d", model);
            assert_int_equal(
                json_array_append_new(rows, json_pack("{s:s, s:s, s:b, s:i, s:s}", "model", of, "site", name,
                                                      "known", 1, "versions", 0, "reason", "up-to-date")),
                0);
        }
    json_t *answer = json_pack("{s:o}", "lag", rows);
    char *text = json_dumps(answer, JSON_COMPACT);
    json_decref(answer);
    assert_non_null(text);
    return text;
}

/* From the first part on, each is reached by links that are on the parts before. */
static void each_row_is_reached_by_links(void **state)
{
    (void)state;
    char *lag = of_pairs(3, 40); /* 120 rows are six parts, three sites one */
    char path[32] = "/sites", wanted[64];
    for (int part = 1; part <= 6; part++) {
        char *page = page_of(&(struct answers_text){.status = "{" STATUS "}", .lag = lag}, path);
        (void)snprintf(wanted, sizeof wanted, "Rows %d to %d of 120", part * 20 - 19, part * 20);
        expect_words(page, wanted);
        (void)snprintf(path, sizeof path, "/sites/%d", part + 1);
        (void)snprintf(wanted, sizeof wanted, "<a href=\"%s\">", path);
        if (part < 6)
            expect_words(page, wanted);
        else
            expect_no_words(page, path);
        free(page);
    }
    free(lag);
}

/* Links lead to pages that there are, also past the last part. */
static void links_of_a_pager_are_pages(void **state)
{
    (void)state;
    static const char *const paths[] = {"/sites", "/sites/2", "/sites/400", "/sites/9999"};
    char *lag = of_pairs(400, 25);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char *page = page_of(&(struct answers_text){.status = "{" STATUS "}", .lag = lag}, paths[i]);
        size_t links = 0;
        for (const char *at = page; (at = strstr(at, "<a href=\"")) != NULL; links++) {
            struct tb_page_place place;
            char path[64] = "";
            at += strlen("<a href=\"");
            memcpy(path, at, strcspn(at, "\""));
            if (strcmp(path, "/metrics") != 0 && !tb_page_find(path, &place)) fail_msg("no page: %s", path);
            if (strncmp(path, "/sites/", 7) == 0) assert_true(place.part <= 500);
        }
        assert_true(links > 8 && links < 20);
        free(page);
    }
    free(lag);
}

/* Without a style, too: in curl, and for a screen reader. */
static void a_pair_that_is_fine_has_a_tick(void **state)
{
    (void)state;
    char *lag = of_pairs(1, 1);
    char *page = page_of(&(struct answers_text){.status = "{" STATUS "}", .lag = lag}, "/sites");
    expect_words(page, "<td class=\"ok\">\xe2\x9c\x93</td>");
    free(page);
    free(lag);
}

/* ---- hostile texts ---- */

#define EVIL "<script>alert(1)</script>\\\"' onload=x &amp; \\u202e\\n\\u0007"

/* Every text of every answer is that name. */
static void no_text_becomes_markup(void **state)
{
    (void)state;
    static const char *const paths[] = {"/", "/sites", "/versions", "/links", "/readers", "/health"};
    static const struct answers_text evil = {
        .status = "{\"site\": \"" EVIL "\", \"gateway\": \"" EVIL "\", \"version\": \"" EVIL "\","
                  " \"store_ok\": true, \"sandbox\": {\"lacks\": \"" EVIL "\"},"
                  " \"links\": [{\"site\": \"" EVIL "\", \"state\": \"" EVIL "\", \"reason\": \"" EVIL
                  "\", \"error\": \"" EVIL "\"}, {\"site\": \"" EVIL "\", \"state\": \"up\"}],"
                  " \"tables\": [{\"table\": \"" EVIL "\", \"refused\": 1}],"
                  " \"groups\": [{\"model\": \"" EVIL "\", \"group\": \"" EVIL "\", \"active\": \"" EVIL
                  "\", \"staging\": \"" EVIL "\"}]}",
        .lag = "{\"lag\": [{\"model\": \"" EVIL "\", \"site\": \"" EVIL
               "\", \"via\": \"x\", \"reason\": \"" EVIL "\", \"why\": \"" EVIL "\", \"evidence\": \"" EVIL
               "\", \"head\": \"" EVIL "\", \"latest\": \"" EVIL "\", \"active\": \"" EVIL "\"}]}",
        .versions =
            "{\"versions\": [{\"model\": \"" EVIL "\", \"state\": \"" EVIL "\", \"signed_by\": \"" EVIL
            "\", \"uid\": \"" EVIL "\", \"sites\": [{\"site\": \"" EVIL "\"}]}]}",
        .streams = "{\"links\": [{\"site\": \"" EVIL "\", \"streams\": [{\"limited_by\": \"" EVIL
                   "\", \"congestion\": \"" EVIL "\", \"encryption\": \"" EVIL "\"}]}]}",
        .chains = "{\"chains\": [{\"model\": \"" EVIL "\", \"members\": [{\"name\": \"" EVIL
                  "\", \"kind\": \"" EVIL "\", \"transport\": \"" EVIL "\", \"source\": 0}]}]}",
        .events =
            "{\"events\": [{\"level\": \"" EVIL "\", \"event\": \"" EVIL "\", \"text\": \"" EVIL "\"}]}",
    };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char *page = page_of(&evil, paths[i]);
        expect_words(page, "&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39; onload=x &amp;amp;");
        expect_no_words(page, "<script>");
        expect_no_words(page, "\xe2\x80\xae"); /* text that would run backwards */
        expect_no_words(page, "\a");
        free(page);
    }
}

/* Answers of another shape than they should have. */
static void another_shape_is_no_crash(void **state)
{
    (void)state;
    static const char *const paths[] = {"/",      "/sites",   "/sites/3", "/versions",
                                        "/links", "/readers", "/health"};
    static const char *const shapes[] = {
        "{}", "[]", "3", "{\"links\": 3, \"lag\": {}, \"versions\": \"x\"}",
        "{\"links\": [null, 1, [], {}], \"lag\": [null, 1, {}], \"versions\":"
        " [null, {\"sites\": [null, 4], \"stages\": [], \"opened_ms\": -1e300}],"
        " \"groups\": [null, {}], \"sessions\": [1], \"tables\": [null],"
        " \"chains\": [null, {\"members\": [null, {\"source\": 99}, {\"source\":"
        " -1}]}], \"events\": [null, {\"time_ms\": 1e300}], \"arena\": 1}"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
            char *page = page_of(&(struct answers_text){shapes[k], shapes[k], shapes[k], shapes[k], shapes[k],
                                                        shapes[k], .wall_ms = 1e12},
                                 paths[i]);
            expect_words(page, "</html>");
            free(page);
        }
}

static void paths_are_those_alone(void **state)
{
    (void)state;
    struct tb_page_place place;
    assert_true(tb_page_find("/sites/2", &place) && place.view == TB_PAGE_SITES && place.part == 2);
    assert_true(tb_page_find("/", &place) && place.view == TB_PAGE_OVERVIEW && place.part == 1);
    static const char *const none[] = {"",          "/x",
                                       "/sites/",   "/sites/0",
                                       "/sites/01", "/sites/10000",
                                       "/sites/1x", "/links/1",
                                       "//",        "/sites/99999999999999999999"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_false(tb_page_find(none[i], &place));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_verdict_is_one_sentence),
        cmocka_unit_test(a_link_that_is_down_is_said),
        cmocka_unit_test(a_row_that_is_not_known_is_unknown),
        cmocka_unit_test(no_answer_is_not_all_well),
        cmocka_unit_test(groups_say_what_is_proven),
        cmocka_unit_test(health_names_what_to_look_at),
        cmocka_unit_test(a_field_that_is_not_said_is_unknown),
        cmocka_unit_test(each_row_is_reached_by_links),
        cmocka_unit_test(links_of_a_pager_are_pages),
        cmocka_unit_test(a_pair_that_is_fine_has_a_tick),
        cmocka_unit_test(a_section_is_as_old_as_its_answers),
        cmocka_unit_test(no_text_becomes_markup),
        cmocka_unit_test(another_shape_is_no_crash),
        cmocka_unit_test(paths_are_those_alone),
    };
    return cmocka_run_group_tests_name("page", tests, NULL, NULL);
}
