/* lag_evidence.c - the evidence of each reason of `tombolo lag` is what the reason rests on (P10).
 *
 * Covers: gateway/daemon/control/lag_evidence.c */
#include <stdio.h>
#include <string.h>

#include "gateway/catalog/records.h"
#include "gateway/daemon/control/lag_evidence.h"
#include "gateway/daemon/copies/copy_table.h"
#include "gateway/daemon/links/site_lag.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"
#include "wan/link/links_stats.h"

/* The link to every peer, as the links say. */
static bool up;
static uint16_t protocol;

void __wrap_tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out);
void __wrap_tb_links_stats(const struct tb_links *links, uint32_t peer, struct tb_links_stats *stats_out)
{
    (void)links, (void)peer;
    memset(stats_out, 0, sizeof *stats_out);
    stats_out->up = up;
    stats_out->protocol = protocol;
    stats_out->up_since = tb_clock_now() - TB_SECONDS(7);
    stats_out->stream_count = 4;
    if (!up) snprintf(stats_out->error, sizeof stats_out->error, "Connection refused");
}

/* No model may be read there, so that the right is lacking. */
bool __wrap_tb_site_lag_denied(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model);
static bool denied;
bool __wrap_tb_site_lag_denied(const struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    (void)d, (void)peer, (void)model;
    return denied;
}

struct fixture {
    struct world world; /* of certificates */
    struct home home;   /* the site east */
    struct tb_catalog_model model;
    struct tb_copy copy; /* of the head */
    struct tb_site_lag here;
    struct tb_site_own own;
    struct tb_record west;
};

static int begin(void **state)
{
    struct fixture *f = test_calloc(1, sizeof *f);
    up = true;
    protocol = TB_LINKS_PROTOCOL_STATE;
    denied = false;
    linked_home_begin(&f->home, &f->world, "{policy: {home: east}}\n" LINKED_WEST);
    CHECK_OK(tb_name_set(&f->model.name, "policy"));
    f->copy = (struct tb_copy){.d = f->home.d, .asked_at = tb_clock_now() - TB_SECONDS(3)};
    f->copy.key.shard_count = 2;
    f->copy.failed = TB_SITE_NOMEM;
    f->copy.lacks_room = true;
    f->copy.bad.shard = 1;
    f->copy.bad.chunk = 5;
    f->copy.bad.times = 4;
    f->here = (struct tb_site_lag){.model = &f->model, .copy = &f->copy, .source = 0, .spent_from = 0};
    f->own.unsigned_key = (struct tb_version_key){.uid = {{1}}, .run_order = 2, .number = 5};
    f->here.own = &f->own;
    f->west = (struct tb_record){.known = true, .heard_at = tb_clock_now() - TB_SECONDS(2)};
    f->west.via = f->west.state.site = f->home.d->config->peers[0].site;
    f->west.state.model = f->model.name;
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    linked_home_end(&f->home, &f->world);
    test_free(f);
    return 0;
}

/* `text` begins so. '#' stands for a number, as no test asserts how long something took. "" fits ""
 * alone. */
static bool fits(const char *text, const char *words)
{
    if (words[0] == '\0') return text[0] == '\0';
    for (; *words != '\0'; words++) {
        if (*words == '#') {
            const size_t digits = strspn(text, "0123456789.");
            if (digits == 0) return false;
            text += digits;
        } else if (*text++ != *words) {
            return false;
        }
    }
    return true;
}

static void check_there(struct fixture *f, enum tb_lag_reason reason, const char *words)
{
    char text[TB_EVIDENCE_BYTES] = "not written";
    f->west.state.reason = (uint16_t)reason;
    tb_evidence_there(f->home.d, &f->west, (uint16_t)reason, text);
    if (!fits(text, words))
        fail_msg("%s: \"%s\" instead of \"%s\"", tb_lag_name((uint16_t)reason), text, words);
}

static void check_here(struct fixture *f, enum tb_lag_reason reason, const char *words)
{
    char text[TB_EVIDENCE_BYTES] = "not written";
    f->here.state.reason = (uint16_t)reason;
    tb_evidence_here(f->home.d, &f->here, text);
    if (!fits(text, words))
        fail_msg("%s: \"%s\" instead of \"%s\"", tb_lag_name((uint16_t)reason), text, words);
}

#define RATE_TO   "to west: 0 bytes/s over 4 streams"
#define RATE_FROM "from west: 0 bytes/s over 4 streams"

static void each_reason_of_another_site_has_evidence_that_fits(void **state)
{
    static const char *const words[TB_LAG_REASON_END] = {
        [TB_LAG_UP_TO_DATE] = "",      [TB_LAG_NOT_ACTIVATING] = "",
        [TB_LAG_NO_SUBSCRIBER] = "",   [TB_LAG_CROSSING] = RATE_TO,
        [TB_LAG_STALLED] = RATE_TO,    [TB_LAG_WINDOW] = RATE_TO,
        [TB_LAG_LOSS] = RATE_TO,       [TB_LAG_RATE] = RATE_TO,
        [TB_LAG_SENDER_CPU] = RATE_TO, [TB_LAG_RECEIVER_CPU] = RATE_TO,
        [TB_LAG_MTU] = RATE_TO,        [TB_LAG_BUDGET] = "to west: 0 of 0 bytes are used, the day ends in ",
    };
    for (uint32_t r = 0; r < TB_LAG_REASON_END; r++)
        check_there(*state, (enum tb_lag_reason)r, words[r] != NULL ? words[r] : "west said so # s ago");
}

static void a_right_that_is_lacking_here_names_the_list(void **state)
{
    denied = true;
    check_there(*state, TB_LAG_DENIED, "east: models.policy.read lacks tombolo://west/");
}

static void a_link_that_is_down_has_its_own_error(void **state)
{
    struct fixture *f = *state;
    up = false;
    f->west.known = false;
    check_there(f, TB_LAG_REFUSED, "west: Connection refused");
    check_here(f, TB_LAG_REFUSED, "west: Connection refused");
    check_here(f, TB_LAG_UNKNOWN, "west: Connection refused");
}

static void a_site_that_says_nothing_is_said_to_be_silent(void **state)
{
    struct fixture *f = *state;
    f->west.known = false;
    check_there(f, TB_LAG_UNKNOWN, "west: the link is up, and nothing was said of the model for # s");
    f->west.heard_at = 0;
    check_there(f, TB_LAG_UNKNOWN, "west: the link is up for # s, and nothing was said of the model");
}

/* West had the head that it knew. Home has a newer one, and so calls it queued. */
static void an_older_word_is_shown_for_what_it_is(void **state)
{
    struct fixture *f = *state;
    char text[TB_EVIDENCE_BYTES];
    f->west.state.reason = TB_LAG_UP_TO_DATE;
    f->west.state.head = (struct tb_site_which){1, 3};
    tb_evidence_there(f->home.d, &f->west, TB_LAG_QUEUED, text);
    assert_true(fits(text, "west had all of 1:3 # s ago"));
}

static void a_peer_that_says_no_state_is_judged_by_its_link(void **state)
{
    protocol = TB_LINKS_PROTOCOL_STATE - 1;
    check_there(*state, TB_LAG_QUEUED, RATE_TO);
}

static void a_site_behind_a_relay_has_the_relays_word(void **state)
{
    struct fixture *f = *state;
    CHECK_OK(tb_name_set(&f->west.state.site, "north"));
    check_there(f, TB_LAG_STORE, "north said so # s ago, by way of west");
    check_there(f, TB_LAG_UP_TO_DATE, "north said so # s ago, by way of west");
    f->west.known = false;
    check_there(f, TB_LAG_LINK_DOWN, "as west says");
    up = false;
    check_there(f, TB_LAG_LINK_DOWN, "west: Connection refused");
}

static void each_reason_of_this_site_has_evidence_that_fits(void **state)
{
    static const char *const words[TB_LAG_REASON_END] = {
        [TB_LAG_UP_TO_DATE] = "",
        [TB_LAG_NOT_ACTIVATING] = "",
        [TB_LAG_NO_SUBSCRIBER] = "",
        [TB_LAG_UNKNOWN] = "west: the link is up for # s, and nothing was said of the model",
        [TB_LAG_PUBLISHING] = "0 of 2 shards are here",
        [TB_LAG_MANIFESTS] = "west was first asked for them # s ago",
        [TB_LAG_BUDGET] = "from west: it says that they are used up, the day ends in ",
        [TB_LAG_RECEIVER_MEMORY] = "the memory budget is spent",
        [TB_LAG_NO_ROOM] = "0 bytes needed, ",
        [TB_LAG_VERIFY] = "chunk 5 of shard 1 came wrong from west, 4 times so far",
        [TB_LAG_STORE] = "0 rows wait for ",
        [TB_LAG_TABLE] = "0 of ",
        [TB_LAG_DENIED] = "as west says",
        [TB_LAG_UNSIGNED] = "west announced 2:5",
        [TB_LAG_SHARE] = "0 of 16 versions cross from west",
        [TB_LAG_PINNED] = "", /* no operator has pinned anything here */
        [TB_LAG_PAUSED] = "west waits for it too, as it is paused before it",
    };
    for (uint32_t r = 0; r < TB_LAG_REASON_END; r++) {
        const bool of_link = tb_lag_is_of_link((uint16_t)r); /* the relay's, as ours is up */
        check_here(*state, (enum tb_lag_reason)r,
                   words[r] != NULL ? words[r]
                   : of_link        ? "as west says"
                                    : RATE_FROM);
    }
}

/* P8: a relay that knows nothing of home may say why, and its word is a stranger's. */
static void a_relay_says_of_home_what_fits_alone(void **state)
{
    struct fixture *f = *state;
    struct tb_daemon *d = f->home.d;
    const struct tb_name west = d->config->peers[0].site;
    const struct tb_catalog_model model = {.name = f->model.name, .home = west, .subscribed = true};
    for (uint32_t r = 0; r < TB_LAG_REASON_END + 2; r++) {
        char text[TB_EVIDENCE_BYTES];
        const struct tb_site_state said = {
            .site = west, .model = model.name, .incarnation = 1, .serial = r + 1, .reason = (uint16_t)r};
        CHECK_OK(tb_record_put(d->catalog, tb_clock_now(), &west, &said));
        tb_site_lag_here(d, &model, &f->here);
        const uint16_t reason = f->here.state.reason;
        const bool fits_it = tb_lag_is_of_link((uint16_t)r) || r == TB_LAG_DENIED || r == TB_LAG_MTU;
        assert_int_equal(reason, fits_it ? r : TB_LAG_UNKNOWN);
        tb_evidence_here(d, &f->here, text);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(each_reason_of_another_site_has_evidence_that_fits),
        CASE(a_right_that_is_lacking_here_names_the_list),
        CASE(a_link_that_is_down_has_its_own_error),
        CASE(a_site_that_says_nothing_is_said_to_be_silent),
        CASE(an_older_word_is_shown_for_what_it_is),
        CASE(a_peer_that_says_no_state_is_judged_by_its_link),
        CASE(a_site_behind_a_relay_has_the_relays_word),
        CASE(each_reason_of_this_site_has_evidence_that_fits),
        CASE(a_relay_says_of_home_what_fits_alone),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("daemon.lag_evidence", tests, NULL, NULL);
}
