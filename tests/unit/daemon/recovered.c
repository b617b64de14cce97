/* recovered.c - P6: who waits for room in the arena is not kept waiting once the catalog has recovered. A gateway is opened on a
 * store that another life of it left, so its catalog recovers, and evicts nothing, for a lease time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "gateway/daemon/daemon.h"
#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

#define TURNS_MAX 100000

struct home {
    char dir[64];
    struct tb_config *config;
    struct tb_daemon *d;
};

static void complain(void *user, const char *line)
{
    (void)user;
    fail_msg("%s", line);
}

static void home_new(struct home *h)
{
    char text[1024];
    memset(h, 0, sizeof *h);
    assert_true(scratch_folder(h->dir, sizeof h->dir, "recovered"));
    snprintf(text, sizeof text,
             "site: east\n"
             "control: {socket: %s/control}\n"
             "session: {socket: %s/session, lease_ms: 500}\n"
             "store: {path: %s/store}\n"
             "arena: {path: %s/arena, bytes: 8MiB, reverify: false}\n"
             "models: {policy: {home: east}}\n",
             h->dir, h->dir, h->dir, h->dir);
    CHECK_OK(tb_config_parse("east.yaml", text, strlen(text), complain, NULL, &h->config));
}

static void daemon_start(struct home *h)
{
    h->d = calloc(1, sizeof *h->d);
    assert_non_null(h->d);
    CHECK_OK(tb_daemon_open(h->d, h->config));
}

static void daemon_end(struct home *h)
{
    tb_daemon_close(h->d);
    assert_false(h->d->fault);
    free(h->d);
    h->d = NULL;
}

static void home_free(struct home *h)
{
    static const char *const files[] = {"control", "session", "store", "store-wal", "store-shm", "arena"};
    char path[128];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", h->dir, files[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(h->dir), 0);
    tb_config_free(h->config);
}

/* A SEAL that waits for room, of a session that has gone since: asked again, it leaves the list. */
static void seal_parks(struct tb_daemon *d)
{
    if (d->parked != NULL) return;
    d->parked = tb_calloc(1, sizeof *d->parked);
    assert_non_null(d->parked);
}

static void the_first_start_recovers_nothing(void **state)
{
    (void)state;
    struct home h;
    home_new(&h);
    daemon_start(&h);
    assert_false(tb_catalog_recovering(h.d->catalog));
    daemon_end(&h);
    home_free(&h);
}

static void a_seal_that_waits_for_room_is_asked_in_the_turn_that_ends_recovery(void **state)
{
    (void)state;
    struct home h;
    home_new(&h);
    daemon_start(&h);
    daemon_end(&h);
    daemon_start(&h);
    assert_true(tb_catalog_recovering(h.d->catalog));
    for (int i = 0; i < TURNS_MAX && tb_catalog_recovering(h.d->catalog); i++) {
        seal_parks(h.d);
        (void)uv_run(&h.d->loop, UV_RUN_ONCE);
    }
    assert_false(tb_catalog_recovering(h.d->catalog));
    assert_null(h.d->parked);
    daemon_end(&h);
    home_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_start_recovers_nothing),
        cmocka_unit_test(a_seal_that_waits_for_room_is_asked_in_the_turn_that_ends_recovery),
    };
    return cmocka_run_group_tests_name("recovered", tests, NULL, NULL);
}
