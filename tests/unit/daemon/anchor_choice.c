/* anchor_choice.c - the anchor is the newest version that a worker can come back to (P3).
 *
 * Covers: gateway/daemon/copies/anchors.c gateway/daemon/copies/anchor_writer.c
 * Covers: gateway/daemon/copies/anchor_refill.c */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/versions.h"
#include "gateway/daemon/copies/anchors.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "tests/unit/arena/arena_world.h"
#include "tests/unit/caught_log.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"
#include "tests/unit/scratch.h"
#include "wan/send/rate_cap.h"

/* While one is held, a thread that begins a sync on it stops there, and one that takes an anchor
 * away: SQLite's syncs are fdatasync, an anchor's fsync. */
struct disk {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held, entered;
    bool refuses; /* to take an anchor away */
    uint32_t unlinks;
};
static bool is_written(struct tb_daemon *d, const struct tb_id *uid)
{
    const struct tb_copy *copy = tb_copy_find(d, uid);
    return copy != NULL && (copy->used_by & TB_COPY_USED_BY_ANCHOR) != 0;
}

static struct disk anchors_disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static struct disk store_disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void disk_set(struct disk *disk, bool held)
{
    pthread_mutex_lock(&disk->lock);
    disk->held = held;
    disk->entered = false;
    pthread_cond_broadcast(&disk->changed);
    pthread_mutex_unlock(&disk->lock);
}

static void disk_use(struct disk *disk)
{
    pthread_mutex_lock(&disk->lock);
    disk->entered = true;
    pthread_cond_broadcast(&disk->changed);
    while (disk->held)
        pthread_cond_wait(&disk->changed, &disk->lock);
    pthread_mutex_unlock(&disk->lock);
}

static bool disk_used(struct disk *disk)
{
    pthread_mutex_lock(&disk->lock);
    const bool entered = disk->entered;
    pthread_mutex_unlock(&disk->lock);
    return entered;
}

static void disk_refuse(bool refuses)
{
    pthread_mutex_lock(&anchors_disk.lock);
    anchors_disk.refuses = refuses;
    anchors_disk.unlinks = 0;
    pthread_mutex_unlock(&anchors_disk.lock);
}

static bool disk_refuses(void)
{
    pthread_mutex_lock(&anchors_disk.lock);
    anchors_disk.unlinks++;
    const bool refuses = anchors_disk.refuses;
    pthread_mutex_unlock(&anchors_disk.lock);
    return refuses;
}

int fsync(int fd);
__attribute__((visibility("default"))) int fsync(int fd)
{
    disk_use(&anchors_disk);
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd);
__attribute__((visibility("default"))) int fdatasync(int fd)
{
    (void)fd;
    disk_use(&store_disk);
    return 0; /* a real one may take as long as one that hangs */
}

int unlink(const char *path);
__attribute__((visibility("default"))) int unlink(const char *path)
{
    if (strstr(path, ".anchor") != NULL) {
        disk_use(&anchors_disk);
        if (disk_refuses()) {
            errno = EIO;
            return -1;
        }
    }
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0); /* aarch64 has no other */
}

/* Writes to anchors, and their times; at one of them the disk takes its time. */
#define PIECES_MAX 256u
#define SLOW_PIECE 8u
#define SLOW_NS    TB_MS(200)
struct piece {
    tb_time_ns at;
    size_t bytes;
};
struct pieces {
    struct piece all[PIECES_MAX];
    uint32_t count;
};
static struct pieces pieces;
static pthread_mutex_t pieces_lock = PTHREAD_MUTEX_INITIALIZER;

static bool is_anchor(int fd)
{
    char link[64], path[256] = "";
    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && strstr(path, ".anchor") != NULL;
}

static void piece_note(size_t bytes)
{
    pthread_mutex_lock(&pieces_lock);
    const bool slow = pieces.count == SLOW_PIECE;
    pieces.all[pieces.count % PIECES_MAX] = (struct piece){tb_clock_now(), bytes};
    pieces.count++;
    pthread_mutex_unlock(&pieces_lock);
    if (slow) (void)nanosleep(&(struct timespec){.tv_nsec = (long)SLOW_NS}, NULL);
}

/* Forgets earlier writes and begins anew. */
static struct pieces pieces_take(void)
{
    pthread_mutex_lock(&pieces_lock);
    const struct pieces taken = pieces;
    pieces.count = 0;
    pthread_mutex_unlock(&pieces_lock);
    return taken;
}

ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at);
__attribute__((visibility("default"))) ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at)
{
    if (is_anchor(fd)) piece_note(count);
    return syscall(SYS_pwrite64, fd, bytes, count, at);
}

#define SHARD_BYTES ((uint64_t)1 << 20)
#define WAIT_NS     TB_SECONDS(20)

struct trainer {
    struct home home;
    struct tb_id rank, run;
    uint32_t shard_count; /* of each version */
    struct version made[2];
};

/* A gateway in a process of its own, and what it said. */
struct child {
    struct trainer *t; /* shared */
    pid_t pid;
    int log;
    char said[4096];
};

static void trainer_begin(struct trainer *t, uint32_t shard_count)
{
    memset(t, 0, sizeof *t);
    t->shard_count = shard_count;
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
    version_make(v, number, t->shard_count, SHARD_BYTES);
    const tb_time_ns now = tb_clock_now();
    const struct tb_catalog_version_request q = {.session = t->rank,
                                                 .model = v->key.model,
                                                 .run = t->run,
                                                 .number = number,
                                                 .shard_count = t->shard_count,
                                                 .fresh_uid = {{(uint8_t)(10 + number)}}};
    char error[TB_ARENA_ERROR_BYTES];
    CHECK_OK(tb_catalog_version_open(d->catalog, now, &q, &v->key));
    struct tb_copy *copy = tb_copy_get(d, &v->key);
    assert_non_null(copy);
    CHECK_OK(tb_arena_reserve(d->arena, &v->key, v->list, t->shard_count, &copy->region, error));
    for (uint32_t k = 0; k < t->shard_count; k++) {
        const struct tb_manifest *m = v->list[k];
        const struct tb_catalog_shard info = {m->root, m->layout.id, m->chunk_count, m->bytes,
                                              tb_manifest_decoded_bytes(m)};
        CHECK_OK(tb_catalog_arena_shard(d->catalog, now, &v->key.uid, k, &info));
    }
    CHECK_OK(tb_catalog_arena_reserved(d->catalog, now, &v->key.uid));
    for (uint32_t k = 0; k < t->shard_count; k++) {
        const struct tb_manifest *m = v->list[k];
        const struct tb_catalog_seal seal = {.session = t->rank,
                                             .uid = v->key.uid,
                                             .shard = k,
                                             .root = m->root,
                                             .layout_id = m->layout.id,
                                             .chunk_count = m->chunk_count,
                                             .bytes = m->bytes,
                                             .export_id = 10 * number + k};
        CHECK_OK(tb_catalog_seal(d->catalog, now, &seal));
    }
    version_land_all(v, copy->region);
    tb_daemon_turn(d);
}

/* A row for the store, and with each a batch more. */
static void withdraw(struct trainer *t, uint64_t number)
{
    CHECK_OK(tb_catalog_withdraw(t->home.d->catalog, tb_clock_now(), &t->made[number - 1].key.uid, "test"));
    tb_daemon_turn(t->home.d);
}

static bool has_anchor(const struct trainer *t, uint64_t number)
{
    char path[SCRATCH_BYTES + 64];
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
    char path[SCRATCH_BYTES + 64];
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
    trainer_begin(&t, 1);
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    withdraw(&t, 2);
    assert_true(comes_to_be(&t, 1, 2));
    trainer_end(&t);
}

/* The twin: withdrawing what was the head before takes no anchor away. */
static void another_withdrawn_version_leaves_the_anchor(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t, 1);
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    withdraw(&t, 1);
    while (tb_copy_find(t.home.d, &t.made[0].key.uid) != NULL)
        (void)uv_run(&t.home.d->loop, UV_RUN_ONCE);
    tb_anchors_tick(t.home.d, tb_clock_now());
    assert_true(has_anchor(&t, 2) && !has_anchor(&t, 1));
    trainer_end(&t);
}

static bool written_come_to(struct trainer *t, uint64_t count)
{
    const tb_time_ns until = tb_time_add(tb_clock_now(), WAIT_NS);
    while (t->home.d->counters.anchors_written < count && tb_clock_now() < until)
        (void)uv_run(&t->home.d->loop, UV_RUN_ONCE);
    return t->home.d->counters.anchors_written == count;
}

/* P1 P3: a chunk of the head was damaged in the arena, maybe before it was written. Once the chunk
 * came again, so is the anchor. */
static void the_anchor_of_a_damaged_version_is_written_anew(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t, 1);
    publish(&t, 1);
    assert_true(written_come_to(&t, 1));
    struct tb_daemon *d = t.home.d;
    struct tb_copy *copy = tb_copy_find(d, &t.made[0].key.uid);
    struct tb_place *place = tb_arena_place(copy->region, 0);
    const struct tb_report report = {.uid = t.made[0].key.uid};
    place->bytes[3] ^= 1;
    CHECK_STATUS(tb_repair_arena(d, &report), TB_CHUNK_DIGEST);
    while (atomic_load(&d->verify_bad) != 0)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    tb_anchors_tick(d, tb_clock_now());
    assert_int_equal(d->counters.anchors_written, 1); /* not while it lacks the chunk */
    version_land(&t.made[0], place, 0, 0);
    assert_true(written_come_to(&t, 2));
    tb_anchors_tick(d, tb_clock_now());
    assert_false(is_written(d, &t.made[0].key.uid)); /* and that once */
    trainer_end(&t);
}

/* The newest is whole before the store has written that it is ready, and no other comes behind
 * it. */
static void the_last_version_is_not_forgotten_for_one_before_it(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t, 1);
    struct tb_daemon *d = t.home.d;
    publish(&t, 1);
    publish(&t, 2);
    struct tb_copy *first = tb_copy_find(d, &t.made[0].key.uid), *last = tb_copy_find(d, &t.made[1].key.uid);
    tb_copies_look(d);
    assert_true(tb_copy_is_whole(first) && tb_copy_is_whole(last));
    first->serving = TB_COPY_READY;
    last->serving = TB_COPY_UNREADY;
    tb_anchors_tick(d, tb_clock_now());
    assert_true(is_written(d, &first->key.uid));
    last->serving = TB_COPY_READY;
    assert_true(comes_to_be(&t, 2, 1));
    trainer_end(&t);
}

/* P7: an anchor that cannot be written is tried again when a newer one is whole or a minute later,
 * and not at each tick, which is a thread and a line in the log, because one that was whole before
 * waits for the store. */
static void an_anchor_that_cannot_be_written_rests(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t, 1);
    struct tb_daemon *d = t.home.d;
    publish(&t, 1);
    publish(&t, 2);
    struct tb_copy *first = tb_copy_find(d, &t.made[0].key.uid), *last = tb_copy_find(d, &t.made[1].key.uid);
    tb_copies_look(d);
    first->serving = TB_COPY_READY;
    last->serving = TB_COPY_UNREADY;
    const tb_time_ns now = tb_clock_now();
    tb_fault_arm(TB_FAULT_thread, 1, true);
    for (int tick = 0; tick < 3; tick++)
        tb_anchors_tick(d, tb_time_add(now, TB_SECONDS(tick)));
    tb_fault_arm(TB_FAULT_thread, 0, false);
    assert_int_equal(d->counters.anchors_failed, 1);
    last->serving = TB_COPY_READY;
    tb_anchors_tick(d, tb_time_add(now, TB_SECONDS(61)));
    assert_true(is_written(d, &last->key.uid));
    assert_true(comes_to_be(&t, 2, 1));
    trainer_end(&t);
}

/* P6: a disk that does not answer holds up nobody: the anchor of what was withdrawn goes when it
 * goes. */
static void the_loop_goes_on_while_an_anchor_is_taken_away(void **state)
{
    (void)state;
    struct trainer t;
    trainer_begin(&t, 1);
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    disk_set(&anchors_disk, true);
    withdraw(&t, 2);
    const tb_time_ns until = tb_time_add(tb_clock_now(), WAIT_NS);
    while (!disk_used(&anchors_disk) && tb_clock_now() < until)
        (void)uv_run(&t.home.d->loop, UV_RUN_ONCE);
    const bool used = disk_used(&anchors_disk);
    if (!used) disk_set(&anchors_disk, false);
    assert_true(used);
    assert_true(has_anchor(&t, 2));
    disk_set(&anchors_disk, false);
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

/* P3, P10: an anchor that cannot be taken away is there, for a gateway that comes back too: it
 * stays the newest, and is tried again after a minute. */
static void an_anchor_that_stays_is_not_said_to_be_removed(void **state)
{
    (void)state;
    char said[48];
    struct trainer t;
    trainer_begin(&t, 1);
    struct tb_daemon *d = t.home.d;
    publish(&t, 1);
    publish(&t, 2);
    assert_true(comes_to_be(&t, 2, 1));
    while (strcmp(newest_said(&t, said), "1:2") != 0)
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    const uint64_t failed = d->counters.anchors_failed;
    disk_refuse(true);
    withdraw(&t, 2);
    const tb_time_ns until = tb_time_add(tb_clock_now(), WAIT_NS);
    while (d->counters.anchors_failed == failed && tb_clock_now() < until) {
        assert_string_equal(newest_said(&t, said), "1:2");
        (void)uv_run(&d->loop, UV_RUN_ONCE);
    }
    assert_int_equal(d->counters.anchors_failed, failed + 1);
    assert_string_equal(newest_said(&t, said), "1:2");
    assert_true(anchors_disk.unlinks == 1 && tb_anchors_row_busy(d, 0)); /* no model sleeps over it */
    disk_refuse(false);
    tb_anchors_tick(d, tb_clock_now());
    assert_true(has_anchor(&t, 2));
    tb_anchors_tick(d, tb_time_add(tb_clock_now(), TB_SECONDS(61)));
    assert_true(comes_to_be(&t, 1, 2));
    trainer_end(&t);
}

/* P6, P7: others use that disk. From any piece to any later one no more is written than the
 * rate has in that time, but for the two pieces and what tb_cap catches up with: also
 * behind one that took long. */
static void an_anchor_is_written_at_its_rate(void **state)
{
    (void)state;
    const uint64_t rate = 8u << 20;
    struct trainer t;
    trainer_begin(&t, 4);
    t.home.config->anchor_rate = rate;
    (void)pieces_take();
    publish(&t, 1);
    assert_true(comes_to_be(&t, 1, 2));
    const struct pieces seen = pieces_take();
    assert_in_range(seen.count, 2 * SLOW_PIECE, PIECES_MAX);
    for (uint32_t i = 1; i < seen.count; i++) { /* the first is the file's head */
        uint64_t bytes = seen.all[i].bytes;
        assert_true(bytes <= rate / 64);
        for (uint32_t k = i + 1; k < seen.count; k++) {
            const tb_time_ns time = tb_time_since(seen.all[i].at, seen.all[k].at) + TB_CAP_BURST;
            bytes += seen.all[k].bytes;
            assert_true((double)bytes <= (double)rate * ((double)time / 1e9 + 2.0 / 64));
        }
    }
    trainer_end(&t);
}

/* In a process of its own; the parent tidies up. `end` begins with the gateway as it is, and ends
 * it. */
static void child_begin(struct child *c, void (*end)(struct trainer *t))
{
    memset(c, 0, sizeof *c);
    c->t = mmap(NULL, sizeof *c->t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                0); /* where it was */
    assert_true(c->t != MAP_FAILED);
    const int log = caught_log_new();
    c->pid = scratch_fork();
    if (c->pid == 0) {
        tb_log_set(TB_LOG_ERROR, log);
        end(c->t);
        _exit(c->t->home.d->left && c->t->home.d->fault ? 0 : 1);
    }
    c->log = log;
}

/* The log's lines at level error: they are all that it blames. */
static void child_end(struct child *c)
{
    int code = -1;
    char path[SCRATCH_BYTES + 64];
    assert_int_equal(waitpid(c->pid, &code, 0), c->pid);
    assert_true(WIFEXITED(code));
    const ssize_t bytes = pread(c->log, c->said, sizeof c->said - 1, 0);
    assert_true(bytes >= 0);
    (void)close(c->log);
    if (WEXITSTATUS(code) != 0) fail_msg("the end blamed nobody: %s", c->said);
    for (int number = 1; number <= 2; number++) {
        snprintf(path, sizeof path, "%s/anchors/policy@1-%d.anchor.part", c->t->home.dir, number);
        (void)unlink(path);
    }
    c->t->home.config = NULL; /* the child's */
    home_free(&c->t->home);
    (void)munmap(c->t, sizeof *c->t);
}

/* P3: two batches are on their way to a store that answers: the one under way, and one behind
 * it. */
static void end_while_the_anchors_disk_hangs(struct trainer *t)
{
    trainer_begin(t, 1);
    disk_set(&anchors_disk, true);
    publish(t, 1);
    publish(t, 2);
    while (!disk_used(&anchors_disk))
        (void)uv_run(&t->home.d->loop, UV_RUN_ONCE);
    withdraw(t, 1);
    withdraw(t, 2);
    tb_daemon_close(t->home.d);
}

/* The anchor would be written for days, were its thread not told to end before the
 * store is waited for. */
static void end_while_the_stores_disk_hangs(struct trainer *t)
{
    trainer_begin(t, 2);
    t->home.config->anchor_rate = 1;
    publish(t, 1);
    publish(t, 2);
    const struct tb_id *first = &t->made[0].key.uid, *last = &t->made[1].key.uid;
    while (!is_written(t->home.d, first) && !is_written(t->home.d, last))
        (void)uv_run(&t->home.d->loop, UV_RUN_ONCE);
    disk_set(&store_disk, true);
    withdraw(t, is_written(t->home.d, first) ? 2 : 1);
    while (!disk_used(&store_disk)) /* behind a batch that was under way */
        (void)uv_run(&t->home.d->loop, UV_RUN_ONCE);
    tb_daemon_close(t->home.d);
}

/* P9: nor the end of a gateway. P10: and a folder that answers is not blamed for one that does not,
 * nor left with less on the disk. */
static void an_end_does_not_wait_for_a_disk_that_hangs(void **state)
{
    (void)state;
    struct child anchors, store;
    child_begin(&anchors, end_while_the_anchors_disk_hangs);
    child_begin(&store, end_while_the_stores_disk_hangs);
    child_end(&anchors);
    child_end(&store);
    assert_non_null(strstr(anchors.said, "stop.disk_hangs what=anchor "));
    assert_null(strstr(anchors.said, "what=store"));
    assert_null(strstr(anchors.said, "store.unwritten"));
    assert_non_null(strstr(store.said, "stop.disk_hangs what=store "));
    assert_non_null(strstr(store.said, "store.unwritten"));
    assert_null(strstr(store.said, "what=anchor"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_withdrawn_versions_anchor_gives_way_to_the_head),
        cmocka_unit_test(another_withdrawn_version_leaves_the_anchor),
        cmocka_unit_test(the_anchor_of_a_damaged_version_is_written_anew),
        cmocka_unit_test(the_last_version_is_not_forgotten_for_one_before_it),
        cmocka_unit_test(an_anchor_that_cannot_be_written_rests),
        cmocka_unit_test(the_loop_goes_on_while_an_anchor_is_taken_away),
        cmocka_unit_test(an_anchor_that_stays_is_not_said_to_be_removed),
        cmocka_unit_test(an_anchor_is_written_at_its_rate),
        cmocka_unit_test(an_end_does_not_wait_for_a_disk_that_hangs),
    };
    return cmocka_run_group_tests_name("anchor_choice", tests, NULL, NULL);
}
