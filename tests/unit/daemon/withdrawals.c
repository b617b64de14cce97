/* withdrawals.c - a gateway remembers a withdrawal for which its catalog has no row, and tells
 * sites that still hold the version (P2 P3).
 *
 * Covers: gateway/daemon/links/withdrawals.c gateway/daemon/links/link_events.c */
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/links/link_events.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/linked_home.h"

#define MIDDLE 0u /* peers, in the order of the config */
#define WEST   1u

/* The withdrawal that a peer was told last. */
static struct {
    uint32_t count, peer;
    struct tb_id uid;
} told;

void __wrap_tb_links_tell_withdrawn(struct tb_links *links, uint32_t peer, const struct tb_version_key *key);
void __wrap_tb_links_tell_withdrawn(struct tb_links *links, uint32_t peer, const struct tb_version_key *key)
{
    (void)links;
    told.count++;
    told.peer = peer;
    told.uid = key->uid;
}

struct relay {
    struct world world; /* of certificates */
    struct home home;   /* between the peers `middle`, which is the home of the model, and `west` */
};

static void relay_begin(struct relay *w)
{
    memset(&told, 0, sizeof told);
    linked_home_begin(
        &w->home, &w->world,
        "{policy: {home: middle}}\npeers: {middle: {address: \"127.0.0.1:9\", unsigned: true}, west: "
        "{address: \"127.0.0.1:9\"}}\nsubscribe: [{model: policy, from: [middle]}]");
}

static void relay_end(struct relay *w)
{
    linked_home_end(&w->home, &w->world);
}

static struct tb_version_key version_of(uint32_t number)
{
    struct tb_version_key key = {.run = {{1}}, .run_order = 1, .number = number, .shard_count = 1};
    memcpy(key.uid.bytes, &number, sizeof number);
    key.root.bytes[0] = 1;
    CHECK_OK(tb_name_set(&key.model, "policy"));
    return key;
}

static void says(struct relay *w, uint32_t number, enum tb_links_version_state state)
{
    const struct tb_version_key key = version_of(number);
    tb_link_events.on_version(w->home.d, MIDDLE, &key, 100, state, TB_OK);
    tb_daemon_turn(w->home.d);
}

/* So many versions that the catalog takes no older one any more. */
static void crowd(struct relay *w)
{
    const struct tb_version_key old = version_of(1);
    const struct tb_name *middle = &w->home.d->config->peers[MIDDLE].site;
    CHECK_OK(tb_catalog_site_up(w->home.d->catalog, tb_clock_now(), middle, true));
    for (uint32_t number = 2; number < 3000; number++)
        says(w, number, TB_LINKS_READY);
    CHECK_STATUS(tb_catalog_remote_version(w->home.d->catalog, tb_clock_now(), middle, &old,
                                           TB_VERSION_ENDED_WITHDRAWN),
                 TB_SUPERSEDED);
}

/* West holds that version, by its own word. */
static void west_has(struct relay *w, uint32_t number)
{
    const struct tb_version_key key = version_of(number);
    struct tb_site_state s = {.model = key.model, .known = true, .serial = number, .held_count = 1};
    s.site = w->home.d->config->peers[WEST].site;
    s.held[0] = (struct tb_site_held){
        .uid = key.uid, .which = {1, number}, .bytes = 100, .held_bytes = 100, .marks = TB_SITE_WHOLE};
    tb_link_events.on_state(w->home.d, WEST, &s);
}

static void check_west_is_told(struct relay *w, uint32_t number)
{
    const struct tb_version_key key = version_of(number);
    const uint32_t before = told.count;
    west_has(w, number);
    assert_int_equal(told.count, before + 1);
    assert_int_equal(told.peer, WEST);
    assert_true(tb_id_equal(&told.uid, &key.uid));
}

static void a_withdrawal_without_a_row_is_remembered_over_a_restart(void **state)
{
    struct relay w;
    (void)state;
    relay_begin(&w);
    crowd(&w);
    says(&w, 1, TB_LINKS_WITHDRAWN);
    home_turn_until(&w.home, "withdrawals", 1);
    check_west_is_told(&w, 1);
    home_end(&w.home);
    home_start(&w.home);
    assert_int_equal(home_table(&w.home, "withdrawals", "used"), 1);
    check_west_is_told(&w, 1);
    relay_end(&w);
}

static void a_withdrawal_is_remembered_once(void **state)
{
    struct relay w;
    (void)state;
    relay_begin(&w);
    crowd(&w);
    says(&w, 1, TB_LINKS_WITHDRAWN);
    says(&w, 1, TB_LINKS_WITHDRAWN); /* its row is not on disk yet */
    home_turn_until(&w.home, "withdrawals", 1);
    says(&w, 1, TB_LINKS_WITHDRAWN);
    home_turn_until(&w.home, "store_rows", 0);
    assert_int_equal(w.home.d->counters.versions_withdrawn, 1);
    assert_int_equal(home_table(&w.home, "withdrawals", "used"), 1);
    relay_end(&w);
}

/* P2: the operator of this site withdrew it for this site. Other sites hear nothing of that, nor
 * after a restart, and a peer that has the version brings it no more. */
static void a_withdrawal_for_this_site_is_told_to_nobody(void **state)
{
    struct relay w;
    (void)state;
    relay_begin(&w);
    CHECK_OK(
        tb_catalog_site_up(w.home.d->catalog, tb_clock_now(), &w.home.d->config->peers[MIDDLE].site, true));
    says(&w, 1, TB_LINKS_READY);
    const struct tb_version_key key = version_of(1);
    CHECK_OK(tb_catalog_withdraw(w.home.d->catalog, tb_clock_now(), &key.uid, "ann"));
    tb_daemon_wake(w.home.d);
    home_turn_until(&w.home, "withdrawals", 1);
    for (int life = 0; life < 2; life++) {
        struct tb_catalog_version_view v;
        west_has(&w, 1);
        says(&w, 1, TB_LINKS_READY);
        assert_int_equal(told.count, 0);
        assert_true(tb_withdrawn_here(w.home.d, &key.uid));
        assert_true(tb_catalog_version_get(w.home.d->catalog, &key.uid, &v) && v.withdrawn_here);
        assert_string_equal(v.who, "ann");
        home_end(&w.home);
        home_start(&w.home);
    }
    says(&w, 1, TB_LINKS_WITHDRAWN); /* and now home does so for all */
    home_turn_until(&w.home, "store_rows", 0);
    check_west_is_told(&w, 1);
    relay_end(&w);
}

static void a_site_that_holds_other_versions_is_told_nothing(void **state)
{
    struct relay w;
    (void)state;
    relay_begin(&w);
    says(&w, 1, TB_LINKS_WITHDRAWN);
    home_turn_until(&w.home, "withdrawals", 1);
    west_has(&w, 2);
    assert_int_equal(told.count, 0);
    relay_end(&w);
}

/* P7: names of a pattern have no end, and the list has one: the oldest of all gives way. */
static void the_oldest_of_all_models_gives_way(void **state)
{
    (void)state;
    struct relay w;
    relay_begin(&w);
    struct tb_withdrawn *list = &w.home.d->withdrawn;
    list->rows = tb_calloc(TB_WITHDRAWN_MAX, sizeof *list->rows);
    assert_non_null(list->rows);
    list->count = list->cap = TB_WITHDRAWN_MAX;
    list->most = 1;
    for (uint32_t i = 0; i < TB_WITHDRAWN_MAX; i++) {
        list->rows[i].key = version_of(i + 1);
        (void)snprintf(list->rows[i].key.model.text, sizeof list->rows[i].key.model.text, "lora-%u", i);
    }
    const struct tb_version_key more = version_of(TB_WITHDRAWN_MAX + 1);
    tb_withdrawn_add(w.home.d, &more, false);
    assert_int_equal(list->count, TB_WITHDRAWN_MAX);
    assert_int_equal(list->crowded, 1);
    assert_string_equal(list->rows[0].key.model.text, "lora-1");
    assert_true(tb_id_equal(&list->rows[TB_WITHDRAWN_MAX - 1].key.uid, &more.uid));
    relay_end(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_withdrawal_without_a_row_is_remembered_over_a_restart),
        cmocka_unit_test(a_withdrawal_is_remembered_once),
        cmocka_unit_test(the_oldest_of_all_models_gives_way),
        cmocka_unit_test(a_withdrawal_for_this_site_is_told_to_nobody),
        cmocka_unit_test(a_site_that_holds_other_versions_is_told_nothing),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("daemon.withdrawals", tests, NULL, NULL);
}
