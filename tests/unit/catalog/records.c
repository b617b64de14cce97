/* records.c - tests of gateway/catalog/rows/record_rows.c: whose word is believed of another site,
 * and when it is unknown (P10).
 *
 * Covers: gateway/catalog/rows/record_rows.c */
#include "gateway/catalog/records.h"

#include <stdio.h>

#include "check.h"
#include "gateway/catalog/sites.h"
#include "site.h"

enum { UNHEARD = 1, LINK_DOWN = 18, DNS = 19 }; /* reasons are the daemon's */

static struct tb_site_state word(const char *site, uint8_t hops, uint64_t serial)
{
    return (struct tb_site_state){.site = name_of(site),
                                  .model = name_of("policy"),
                                  .hops = hops,
                                  .incarnation = 1,
                                  .serial = serial,
                                  .known = true,
                                  .head = {1, serial}};
}

static struct tb_site_state no_word(const char *site, uint8_t hops, uint16_t why)
{
    return (struct tb_site_state){
        .site = name_of(site), .model = name_of("policy"), .hops = hops, .reason = why};
}

static enum tb_status says(struct site *s, const char *via, struct tb_site_state w)
{
    const struct tb_name name = name_of(via);
    return tb_record_put(s->c, s->now, &name, &w);
}

static struct tb_record of(struct site *s, const char *name)
{
    const struct tb_name site = name_of(name), model = name_of("policy");
    static struct tb_record r;
    assert_true(tb_record_get(s->c, &site, &model, &r));
    return r;
}

static bool lost(struct site *s, const char *via, uint16_t why)
{
    const struct tb_name name = name_of(via);
    return tb_records_lost(s->c, s->now, &name, why);
}

static void a_peers_word_about_itself_is_known(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    CHECK_OK(says(&s, "west", no_word("west", 0, 1)));
    assert_false(of(&s, "west").known);
    assert_int_equal(of(&s, "west").heard_at, 0);
    pass_ms(&s, 1000, (const char *const[]){NULL});
    CHECK_OK(says(&s, "west", word("west", 0, 5)));
    assert_true(of(&s, "west").known);
    assert_int_equal(of(&s, "west").heard_at, s.now);
    assert_int_equal(of(&s, "west").state.head.number, 5);
    CHECK_OK(says(&s, "west", word("west", 0, 1))); /* its catalog began anew */
    assert_int_equal(of(&s, "west").state.head.number, 1);
    struct tb_site_state w = word("east", 1, 1);
    CHECK_STATUS(says(&s, "west", w), TB_BAD_ARGUMENT); /* east is here */
    w = word("west", 0, 1);
    w.model = name_of("other");
    CHECK_STATUS(says(&s, "west", w), TB_NOT_FOUND);
    site_close(&s);
}

static void a_link_that_is_down_leaves_what_was_said_and_its_age(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    CHECK_OK(says(&s, "west", word("west", 0, 5)));
    CHECK_OK(says(&s, "west", word("north", 1, 7)));
    const tb_time_ns heard = s.now;
    pass_ms(&s, 2000, (const char *const[]){NULL});
    assert_true(lost(&s, "west", LINK_DOWN));
    assert_false(of(&s, "west").known || of(&s, "north").known);
    assert_int_equal(of(&s, "north").why, LINK_DOWN);
    assert_int_equal(of(&s, "north").heard_at, heard);
    assert_int_equal(of(&s, "north").since, s.now);
    assert_int_equal(of(&s, "north").state.head.number, 7);
    assert_false(lost(&s, "west", LINK_DOWN));
    assert_true(lost(&s, "west", DNS)); /* the reason is that of the link now */
    assert_int_equal(of(&s, "west").why, DNS);
    site_close(&s);
}

static void a_site_itself_is_believed_before_a_relay(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    CHECK_OK(says(&s, "west", word("west", 0, 5)));
    CHECK_STATUS(says(&s, "north", word("west", 1, 9)), TB_DONE_BEFORE);
    CHECK_STATUS(says(&s, "north", no_word("west", 1, LINK_DOWN)), TB_DONE_BEFORE);
    assert_true(lost(&s, "west", LINK_DOWN));
    /* An echo of what was known before is no news; a newer word is. */
    CHECK_STATUS(says(&s, "north", word("west", 1, 5)), TB_DONE_BEFORE);
    assert_false(of(&s, "west").known);
    CHECK_OK(says(&s, "north", word("west", 1, 6)));
    assert_true(of(&s, "west").known);
    assert_string_equal(of(&s, "west").via.text, "north");
    CHECK_OK(says(&s, "west", word("west", 0, 6)));
    assert_string_equal(of(&s, "west").via.text, "west");
    site_close(&s);
}

static void of_relays_the_nearer_is_believed(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    CHECK_OK(says(&s, "west", word("far", 2, 5)));
    CHECK_STATUS(says(&s, "north", word("far", 3, 9)), TB_DONE_BEFORE);
    CHECK_OK(says(&s, "north", word("far", 1, 5)));
    assert_string_equal(of(&s, "far").via.text, "north");
    CHECK_STATUS(says(&s, "west", no_word("far", 1, LINK_DOWN)), TB_DONE_BEFORE); /* not its way */
    CHECK_OK(says(&s, "north", no_word("far", 1, LINK_DOWN)));
    assert_false(of(&s, "far").known);
    assert_int_equal(of(&s, "far").why, LINK_DOWN);
    CHECK_STATUS(says(&s, "west", word("far", 2, 5)), TB_DONE_BEFORE);
    CHECK_OK(says(&s, "west", word("far", 2, 6)));
    assert_true(of(&s, "far").known);
    site_close(&s);
}

static void a_new_life_holds_nothing(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    struct tb_site_state w = word("west", 0, 5);
    w.held_count = 1;
    w.held[0] = (struct tb_site_held){id_of(5), {1, 5}, 100, 100, TB_SITE_READY | TB_SITE_WHOLE};
    w.active = w.held[0].which;
    CHECK_OK(says(&s, "west", w));
    assert_int_equal(tb_site_newest(&w).number, 5);
    const struct tb_name west = name_of("west");
    tb_catalog_site_forget(s.c, s.now, &west);
    const struct tb_record r = of(&s, "west");
    assert_false(r.known);
    assert_int_equal(r.state.held_count, 0);
    assert_int_equal(r.state.active.number, 0);
    site_close(&s);
}

/* Home's list and the site's: at both ends of a link these are the same words, and
 * so the same numbers. */
static void behind_is_what_home_has_ready_and_the_site_has_not(void **state)
{
    (void)state;
    static struct tb_site_state home, site;
    home = word("east", 0, 7);
    home.held_count = 4;
    home.held[0] = (struct tb_site_held){id_of(8), {1, 8}, 100, 10, 0}; /* still open */
    home.held[1] = (struct tb_site_held){id_of(7), {1, 7}, 100, 100, TB_SITE_READY | TB_SITE_WHOLE};
    home.held[2] = (struct tb_site_held){id_of(6), {1, 6}, 90, 90, TB_SITE_READY | TB_SITE_WHOLE};
    home.held[3] = (struct tb_site_held){id_of(5), {1, 5}, 80, 80, TB_SITE_READY | TB_SITE_WHOLE};
    struct tb_record_behind b = tb_record_behind(&home, &site);
    assert_int_equal(b.versions, 3);
    assert_int_equal(b.left_bytes, 100);
    assert_int_equal(b.head.number, 7);
    site.held_count = 2;
    site.held[0] = (struct tb_site_held){id_of(7), {1, 7}, 100, 30, TB_SITE_READY};
    site.held[1] = home.held[3];
    b = tb_record_behind(&home, &site);
    assert_int_equal(b.versions, 2);
    assert_int_equal(b.left_bytes, 70);
    site.held[0] = home.held[1];
    b = tb_record_behind(&home, &site);
    assert_int_equal(b.versions, 0);
    assert_int_equal(b.left_bytes, 0);
}

/* P7: the table is as large as peers and models make it; a site that others speak of
 * gives its row to a peer. */
static void hearsay_gives_its_row_to_a_peer(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    char name[16];
    uint32_t rows = 0;
    enum tb_status status = TB_OK;
    for (; status == TB_OK && rows < 1000; rows += status == TB_OK) {
        (void)snprintf(name, sizeof name, "far%u", rows);
        status = says(&s, "west", word(name, 1, 1));
    }
    CHECK_STATUS(status, TB_SITE_NOMEM);
    assert_string_equal(tb_catalog_full(s.c), "records");
    CHECK_OK(says(&s, "west", word("west", 0, 1)));
    CHECK_OK(says(&s, "west", word("far1", 1, 2))); /* far0 was the oldest */
    CHECK_STATUS(says(&s, "west", word("far0", 1, 2)), TB_SITE_NOMEM);
    site_close(&s);
}

static void hearsay_that_is_unknown_for_an_hour_is_dropped(void **state)
{
    (void)state;
    struct site s;
    struct tb_record r;
    east_open(&s, 8);
    CHECK_OK(says(&s, "west", word("west", 0, 1)));
    CHECK_OK(says(&s, "west", word("far", 1, 1)));
    assert_true(lost(&s, "west", LINK_DOWN));
    s.now += TB_SECONDS(3601);
    tb_catalog_tick(s.c, s.now);
    uint32_t cursor = 0, rows = 0;
    while (tb_record_at(s.c, &cursor, &r))
        rows++;
    assert_int_equal(rows, 1); /* the peer's stays: it is configured */
    site_close(&s);
}

static bool silent(struct site *s, const char *via)
{
    const struct tb_name name = name_of(via);
    return tb_records_silent(s->c, s->now, &name, TB_SECONDS(30), UNHEARD);
}

/* P10: a link that is up and says nothing of a model leaves its record fresh for no longer than
 * that. */
static void silence_over_a_link_that_is_up_is_no_knowledge(void **state)
{
    (void)state;
    struct site s;
    east_open(&s, 8);
    const struct tb_name west = name_of("west");
    CHECK_OK(says(&s, "west", word("west", 0, 5)));
    CHECK_OK(says(&s, "west", word("far", 1, 5)));
    CHECK_OK(says(&s, "west", no_word("gone", 1, LINK_DOWN)));
    s.now += TB_SECONDS(29);
    assert_false(silent(&s, "west"));
    CHECK_OK(says(&s, "west", word("west", 0, 6)));
    s.now += TB_SECONDS(1);
    assert_false(silent(&s, "north"));
    assert_true(silent(&s, "west"));
    assert_true(of(&s, "west").known); /* that one was spoken of */
    assert_false(of(&s, "far").known);
    assert_int_equal(of(&s, "far").why, UNHEARD);
    assert_int_equal(of(&s, "far").since, s.now);
    assert_int_equal(of(&s, "gone").why, LINK_DOWN); /* a relay says that once */
    assert_false(silent(&s, "west"));
    CHECK_OK(says(&s, "west", word("far", 1, 6)));
    assert_true(of(&s, "far").known);
    /* The link was down and is up again: what it was down for is no reason once it says nothing for
     * as long. */
    assert_true(lost(&s, "west", LINK_DOWN));
    s.now += TB_SECONDS(100);
    tb_records_awaited(s.c, s.now, &west, UNHEARD);
    assert_false(silent(&s, "west"));
    assert_int_equal(of(&s, "west").why, LINK_DOWN);
    s.now += TB_SECONDS(30);
    assert_true(silent(&s, "west"));
    assert_int_equal(of(&s, "west").why, UNHEARD);
    site_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_peers_word_about_itself_is_known),
        cmocka_unit_test(a_link_that_is_down_leaves_what_was_said_and_its_age),
        cmocka_unit_test(a_site_itself_is_believed_before_a_relay),
        cmocka_unit_test(of_relays_the_nearer_is_believed),
        cmocka_unit_test(a_new_life_holds_nothing),
        cmocka_unit_test(behind_is_what_home_has_ready_and_the_site_has_not),
        cmocka_unit_test(hearsay_gives_its_row_to_a_peer),
        cmocka_unit_test(silence_over_a_link_that_is_up_is_no_knowledge),
        cmocka_unit_test(hearsay_that_is_unknown_for_an_hour_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
