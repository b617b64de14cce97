/* anchored.c - what an anchor is for is the newest version that somebody can come back to (P3). */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "tests/unit/arena/arena_world.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

/* The anchors' disk: while it is held, who begins a sync or takes an anchor away stops here. SQLite's own syncs are fdatasync. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, entered;
    bool refuses; /* to take an anchor away */
    uint32_t unlinks;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void disk_set(bool held)
{
    pthread_mutex_lock(&disk.lock);
    disk.held = held;
    disk.entered = false;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.lock);
}

static void disk_use(void)
{
    pthread_mutex_lock(&disk.lock);
    disk.entered = true;
    pthread_cond_broadcast(&disk.changed);
    while (disk.held)
        pthread_cond_wait(&disk.changed, &disk.lock);
    pthread_mutex_unlock(&disk.lock);
}

static bool disk_used(void)
{
    pthread_mutex_lock(&disk.lock);
    const bool entered = disk.entered;
    pthread_mutex_unlock(&disk.lock);
    return entered;
}

static void disk_refuse(bool refuses)
{
    pthread_mutex_lock(&disk.lock);
    disk.refuses = refuses;
    disk.unlinks = 0;
    pthread_mutex_unlock(&disk.lock);
}

static bool disk_refuses(void)
{
    pthread_mutex_lock(&disk.lock);
    disk.unlinks++;
    const bool refuses = disk.refuses;
    pthread_mutex_unlock(&disk.lock);
    return refuses;
}

int fsync(int fd);
__attribute__((visibility("default"))) int fsync(int fd)
{
    disk_use();
    return (int)syscall(SYS_fsync, fd);
}

int unlink(const char *path);
__attribute__((visibility("default"))) int unlink(const char *path)
{
    if (strstr(path, ".anchor") != NULL) {
        disk_use();
        if (disk_refuses()) {
            errno = EIO;
            return -1;
        }
    }
    return (int)syscall(SYS_unlink, path);
}

#define SHARD_BYTES ((uint64_t)1 << 20)
#define WAIT_NS     TB_SECONDS(20)

struct trainer {
    struct home home;
    struct tb_id rank, run;
    struct version made[2];
};

static void trainer_begin(struct trainer *t)
{
    memset(t, 0, sizeof *t);
    home_new_with(&t->home, "{policy: {home: east, keep: 3}}", true);
    home_start(&t->home);
    struct tb_catalog *c = t->home.d->catalog;
    struct tb_catalog_session session = {.id = {{1}}, .identity = "unix:1000"};
    CHECK_OK(tb_name_set(&session.name, "rank"));
    CHECK_OK(tb_name_set(&session.host, "host"));
    CHECK_OK(tb_catalog_session_open(c, tb_clock_now(), &session));
    t->rank = session.id;
    struct tb_catalog_run_request q = {.session = t->rank, .key = "k", .fresh_id = {{2}}};
    struct tb_catalog_run run;
    bool joined;
    CHECK_OK(tb_name_set(&q.model, "policy"));
    CHECK_OK(tb_catalog_run_open(c, tb_clock_now(), &q, &run, &joined));
    t->run = run.id;
}

/* Sealed and landed. */
static void publish(struct trainer *t, uint64_t number)
{
    struct tb_daemon *d = t->home.d;
    struct version *v = &t->made[number - 1];
    version_make(v, number, 1, SHARD_BYTES);
    const struct tb_manifest *m = v->list[0];
    const tb_time_ns now = tb_clock_now();
    const struct tb_catalog_version_request q = {.session = t->rank,
                                                 .model = v->key.model,
                                                 .run = t->run,
                                                 .number = number,
                                                 .shard_count = 1,
                                                 .fresh_uid = {{(uint8_t)(10 + number)}}};
    char error[TB_ARENA_ERROR_BYTES];
    CHECK_OK(tb_catalog_version_open(d->catalog, now, &q, &v->key));
    struct tb_copy *copy = tb_copy_get(d, &v->key);
    assert_non_null(copy);
    CHECK_OK(tb_arena_reserve(d->arena, &v->key, v->list, 1, &copy->region, error));
    const struct tb_catalog_shard info = {m->root, m->layout.id, m->chunk_count, m->bytes};
    CHECK_OK(tb_catalog_arena_shard(d->catalog, now, &v->key.uid, 0, &info));
    CHECK_OK(tb_catalog_arena_reserved(d->catalog, now, &v->key.uid));
    const struct tb_catalog_seal seal = {.session = t->rank,
                                         .uid = v->key.uid,
                                         .root = m->root,
                                         .layout_id = m->layout.id,
                                         .chunk_count = m->chunk_count,
                                         .bytes = m->bytes,
                                         .export_id = number};
    CHECK_OK(tb_catalog_seal(d->catalog, now, &seal));
    version_land_all(v, copy->region);
    CHECK_OK(tb_daemon_settle(d));
}

static bool has_anchor(const struct trainer *t, uint64_t number)
{
    char path[128];
    snprintf(path, sizeof path, "%s/anchors/policy@1-%d.anchor", t->home.dir, (int)number);
    return access(path, F_OK) == 0;
}

/* Until version `there` alone has an anchor. */
static bool comes_to_be(struct trainer *t, uint64_t there, uint64_t gone)
{
    const tb_time_ns until = tb_time_add(tb_clock_now(), WAIT_NS);
    while (tb_clock_now() < until) {
        if (has_anchor(t, there) && !has_anchor(t, gone)) return true;
        (void)uv_run(&t->home.d->loop, UV_RUN_ONCE);
    }
    return false;
}

static void trainer_end(struct trainer *t)
{
    char path[128];
    home_end(&t->home);
    for (int number = 1; number <= 2; number++) {
        snprintf(path, sizeof path, "%s/anchors/policy@1-%d.anchor", t->home.dir, number);
        (void)unlink(path);
        version_fini(&t->made[number - 1]);
    }
    home_free(&t->home);
}

/* P3: after a reboot the head is there, also where a newer one was withdrawn. */
static void a_withdrawn_versions_anchor_gives_way_to_the_head(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t);
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    CHECK_OK(tb_catalog_withdraw(t.home.d->catalog, tb_clock_now(), &t.made[1].key.uid, "test"));
    CHECK_OK(tb_daemon_settle(t.home.d));
    assert_true(comes_to_be(&t, 1, 2));
    trainer_end(&t);
}

/* The twin: withdrawing what was the head before takes no anchor away. */
static void another_withdrawn_version_leaves_the_anchor(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t);
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    CHECK_OK(tb_catalog_withdraw(t.home.d->catalog, tb_clock_now(), &t.made[0].key.uid, "test"));
    CHECK_OK(tb_daemon_settle(t.home.d));
    while (tb_copy_find(t.home.d, &t.made[0].key.uid) != NULL)
        (void)uv_run(&t.home.d->loop, UV_RUN_ONCE);
    tb_anchors_tick(t.home.d, tb_clock_now());
    assert_true(has_anchor(&t, 2) && !has_anchor(&t, 1));
    trainer_end(&t);
}

/* The newest is whole before the store has written that it is ready, and no other comes behind it. */
static void the_last_version_is_not_forgotten_for_one_before_it(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t);
    struct tb_daemon *d = t.home.d;
    publish(&t, 1);
    publish(&t, 2);
    struct tb_copy *first = tb_copy_find(d, &t.made[0].key.uid), *last = tb_copy_find(d, &t.made[1].key.uid);
    tb_copies_look(d);
    assert_true(first->whole && last->whole);
    first->ready = true;
    last->ready = false;
    tb_anchors_tick(d, tb_clock_now());
    assert_true(tb_anchors_using(d, &first->key.uid));
    last->ready = true;
    assert_true(comes_to_be(&t, 2, 1));
    trainer_end(&t);
}

/* P7: what cannot be written is tried again when a newer one is whole or a minute later, and not at each tick, which is a thread and a
 * line in the log, because one that was whole before waits for the store. */
static void what_cannot_be_written_rests(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t);
    struct tb_daemon *d = t.home.d;
    publish(&t, 1);
    publish(&t, 2);
    struct tb_copy *first = tb_copy_find(d, &t.made[0].key.uid), *last = tb_copy_find(d, &t.made[1].key.uid);
    tb_copies_look(d);
    first->ready = true;
    last->ready = false;
    const tb_time_ns now = tb_clock_now();
    tb_fault_arm(TB_FAULT_thread, 1, true);
    for (int tick = 0; tick < 3; tick++)
        tb_anchors_tick(d, tb_time_add(now, TB_SECONDS(tick)));
    tb_fault_arm(TB_FAULT_thread, 0, false);
    assert_int_equal(d->counters.anchors_failed, 1);
    last->ready = true;
    tb_anchors_tick(d, tb_time_add(now, TB_SECONDS(61)));
    assert_true(tb_anchors_using(d, &last->key.uid));
    assert_true(comes_to_be(&t, 2, 1));
    trainer_end(&t);
}

/* P6: a disk that does not answer holds up nobody: the anchor of what was withdrawn goes when it goes. */
static void the_loop_goes_on_while_an_anchor_is_taken_away(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t);
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    disk_set(true);
    CHECK_OK(tb_catalog_withdraw(t.home.d->catalog, tb_clock_now(), &t.made[1].key.uid, "test"));
    CHECK_OK(tb_daemon_settle(t.home.d));
    const tb_time_ns until = tb_time_add(tb_clock_now(), WAIT_NS);
    while (!disk_used() && tb_clock_now() < until)
        (void)uv_run(&t.home.d->loop, UV_RUN_ONCE);
    const bool used = disk_used();
    if (!used) disk_set(false);
    assert_true(used);
    assert_true(has_anchor(&t, 2));
    disk_set(false);
    assert_true(comes_to_be(&t, 1, 2));
    trainer_end(&t);
}

/* Which one it says is the newest on the disk; "": none. */
static const char *newest_said(const struct trainer *t, char text[48])
{
    json_t *j = tb_anchors_json(t->home.d);
    const char *said =
        json_string_value(json_object_get(json_array_get(json_object_get(j, "models"), 0), "version"));
    (void)snprintf(text, 48, "%s", said != NULL ? said : "");
    json_decref(j);
    return text;
}

/* P3, P10: what cannot be taken away is there, for who comes back too: it stays the newest, and is tried again after a minute. */
static void an_anchor_that_stays_is_not_said_to_be_removed(void **state)
{
    (void)state;
    char said[48];
    struct trainer t;
    trainer_begin(&t);
    struct tb_daemon *d = t.home.d;
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    while (strcmp(newest_said(&t, said), "1:2") != 0)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    const uint64_t failed = d->counters.anchors_failed;
    disk_refuse(true);
    CHECK_OK(tb_catalog_withdraw(d->catalog, tb_clock_now(), &t.made[1].key.uid, "test"));
    CHECK_OK(tb_daemon_settle(d));
    const tb_time_ns until = tb_time_add(tb_clock_now(), WAIT_NS);
    while (d->counters.anchors_failed == failed && tb_clock_now() < until) {
        assert_string_equal(newest_said(&t, said), "1:2");
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    }
    assert_int_equal(d->counters.anchors_failed, failed + 1);
    assert_string_equal(newest_said(&t, said), "1:2");
    assert_int_equal(disk.unlinks, 1);
    disk_refuse(false);
    tb_anchors_tick(d, tb_clock_now());
    assert_true(has_anchor(&t, 2));
    tb_anchors_tick(d, tb_time_add(tb_clock_now(), TB_SECONDS(61)));
    assert_true(comes_to_be(&t, 1, 2));
    trainer_end(&t);
}

/* In a process of its own, whose disk does not answer any more: 0 if its gateway ended all the same and says that it left somebody. */
static int end_while_held(struct trainer *t)
{
    trainer_begin(t);
    disk_set(true);
    publish(t, 1);
    while (!disk_used())
        (void)uv_run(&t->home.d->loop, UV_RUN_ONCE);
    tb_daemon_close(t->home.d);
    return t->home.d->left && t->home.d->fault && t->home.d->anchors == NULL ? 0 : 1;
}

/* P9: nor the end of a gateway. */
static void an_end_does_not_wait_for_a_disk_that_hangs(void **state)
{
    (void)state;
    struct trainer *t =
        mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* where it was */
    assert_true(t != MAP_FAILED);
    const pid_t child = fork();
    if (child == 0) _exit(end_while_held(t));
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), 0);
    char path[128];
    snprintf(path, sizeof path, "%s/anchors/policy@1-1.anchor.part", t->home.dir);
    (void)unlink(path);
    t->home.config = NULL; /* the child's */
    home_free(&t->home);
    (void)munmap(t, sizeof *t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_withdrawn_versions_anchor_gives_way_to_the_head),
        cmocka_unit_test(another_withdrawn_version_leaves_the_anchor),
        cmocka_unit_test(the_last_version_is_not_forgotten_for_one_before_it),
        cmocka_unit_test(what_cannot_be_written_rests),
        cmocka_unit_test(the_loop_goes_on_while_an_anchor_is_taken_away),
        cmocka_unit_test(an_anchor_that_stays_is_not_said_to_be_removed),
        cmocka_unit_test(an_end_does_not_wait_for_a_disk_that_hangs),
    };
    return cmocka_run_group_tests_name("daemon.anchored", tests, NULL, NULL);
}
