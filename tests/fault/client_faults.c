/* A worker's library under faults, against a gateway in a process of its own: a session opens,
 * registers, publishes, subscribes, stages a version that is there, and goes. Each call answers in
 * its time; what was staged is the version (P1); nothing is left.
 *
 * Covers: intra/client/session/session.c intra/client/publish/publish.c
 * Covers: intra/client/publish/version_unpublish.c
 * Covers: intra/client/follow/stage.c intra/client/follow/subscription.c */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/fault/sweep.h"
#include "unit/client/fake_gateway.h"

#define TENSOR 40000u

struct worker_round {
    pid_t gateway;
    int stop; /* closing it ends the gateway */
    char path[128];
    struct tb_uid uid;
    uint8_t sealed[TENSOR], memory[TENSOR];
    uint64_t number;
    bool staged;
};

/* The gateway's process sends this before the first round. */
struct greeting {
    char path[128];
    struct tb_id uid;
    uint8_t bytes[TENSOR];
};

static void gateway_main(int out, int stop)
{
    static struct fake f;
    static struct greeting g;
    char end;
    fake_open(&f);
    struct fake_version *v = fake_make(&f, 1, 1, 1, TENSOR);
    (void)snprintf(g.path, sizeof g.path, "%s", f.path);
    g.uid = v->key.uid;
    const struct tb_tensor *t = tb_layout_find(&v->shards[0].manifest.layout, "t0");
    memcpy(g.bytes, v->shards[0].bytes + t->offset, TENSOR);
    fake_go(&f, 1);
    if (write(out, &g, sizeof g) != (ssize_t)sizeof g) _exit(1);
    while (read(stop, &end, 1) > 0) {
    }
    fake_close(&f);
    _exit(0);
}

static void gateway_start(struct worker_round *r)
{
    int told[2], stop[2];
    static struct greeting g;
    assert_true(pipe(told) == 0 && pipe(stop) == 0);
    r->gateway = fork();
    assert_true(r->gateway >= 0);
    if (r->gateway == 0) {
        close(stop[1]);
        gateway_main(told[1], stop[0]);
    }
    close(told[1]);
    close(stop[0]);
    size_t got = 0;
    while (got < sizeof g) {
        const ssize_t n = read(told[0], (uint8_t *)&g + got, sizeof g - got);
        assert_true(n > 0);
        got += (size_t)n;
    }
    close(told[0]);
    r->stop = stop[1];
    memcpy(r->path, g.path, sizeof g.path);
    memcpy(r->uid.bytes, g.uid.bytes, sizeof r->uid.bytes);
    memcpy(r->sealed, g.bytes, TENSOR);
}

static bool follow(struct worker_round *r, struct tb_session *s, struct tb_registration *registration)
{
    struct tb_subscription *sub = NULL;
    struct tb_item item = {.struct_bytes = sizeof item};
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .group = "engine",
                                           .registration = registration};
    if (tb_subscribe(s, &o, &sub) != TB_OK) return false;
    if (tb_stage(sub, &r->uid, SWEEP_PATIENCE_MS(120u)) != TB_OK) return false;
    if (tb_staged_item(sub, &r->uid, 0, &item) != TB_OK) return false;
    assert_int_equal(item.count, TENSOR);
    assert_memory_equal(item.bytes, r->sealed, TENSOR);
    return true;
}

static bool worker_round(void *world)
{
    struct worker_round *r = world;
    struct tb_session *s = NULL;
    struct tb_registration *registration = NULL;
    const uint64_t shape[] = {TENSOR};
    const struct tb_tensor_desc tensor = {
        .name = "t0", .dtype = "U8", .rank = 1, .shape = shape, .memory = r->memory};
    const struct tb_session_options o = {
        .struct_bytes = sizeof o, .gateway = r->path, .open_timeout_ms = SWEEP_PATIENCE_MS(120u)};
    if (tb_session_open(&o, &s) != TB_OK) {
        assert_null(s);
        assert_true(tb_last_error()[0] != '\0');
        return false;
    }
    r->staged = tb_register(s, &tensor, 1, &registration) == TB_OK && follow(r, s, registration);
    tb_session_close(s);
    return r->staged;
}

static void worker_check(void *world, bool done)
{
    const struct worker_round *r = world;
    (void)done;
    for (size_t i = 0; i < TENSOR; i++)
        assert_int_equal(r->memory[i], 0); /* P2: nothing reaches buffers in use before activate */
    assert_int_equal(waitpid(r->gateway, NULL, WNOHANG), 0);
}

/* P1 P2 P10. */
static void a_worker_bears_each_failure(void **state)
{
    (void)state;
    static struct worker_round r;
    gateway_start(&r);
    tb_log_set(TB_LOG_ERROR, -1);
    /* A session that can never speak again waits half a minute for its gateway, as it should. */
    const uint64_t talk = UINT64_C(1) << TB_FAULT_recvmsg | UINT64_C(1) << TB_FAULT_sendmsg;
    sweep_run(&(struct sweep){.round = worker_round,
                              .check = worker_check,
                              .world = &r,
                              .most = 4,
                              .once_only = talk,
                              .without_libraries = true});
    close(r.stop);
    assert_int_equal(waitpid(r.gateway, NULL, 0), r.gateway);
}

/* A rank wants the second half of the tensor, and lists it twice in one memory
 * (tied_tensors.h). */
static bool activate_slice(struct worker_round *r, struct tb_session *s)
{
    static const uint64_t shape[] = {TENSOR}, half[] = {TENSOR / 2};
    const struct tb_slice_desc d = {.struct_bytes = sizeof d,
                                    .rank = 1,
                                    .name = "t0",
                                    .dtype = "U8",
                                    .shape = shape,
                                    .first = half,
                                    .count = half,
                                    .memory = r->memory};
    const struct tb_slice_desc twice[] = {d, d};
    struct tb_subscribe_options o = {.struct_bytes = sizeof o, .member_count = 1, .model = "policy"};
    struct tb_subscription *sub = NULL;
    if (tb_register_slices(s, twice, 2, &o.registration) != TB_OK) return false;
    if (tb_subscribe(s, &o, &sub) != TB_OK) return false;
    if (tb_stage(sub, &r->uid, SWEEP_PATIENCE_MS(120u)) != TB_OK) return false;
    return tb_activate(sub, &r->uid, NULL) == TB_OK;
}

static bool slice_round(void *world)
{
    struct worker_round *r = world;
    struct tb_session *s = NULL;
    const struct tb_session_options o = {
        .struct_bytes = sizeof o, .gateway = r->path, .open_timeout_ms = SWEEP_PATIENCE_MS(120u)};
    if (tb_session_open(&o, &s) != TB_OK) return false;
    const bool active = activate_slice(r, s);
    tb_session_close(s);
    return active;
}

static void slice_prepare(void *world)
{
    struct worker_round *r = world;
    memset(r->memory, 0, sizeof r->memory);
}

static void slice_check(void *world, bool active)
{
    const struct worker_round *r = world;
    if (active) assert_memory_equal(r->memory, r->sealed + TENSOR / 2, TENSOR / 2);
}

/* P1: a rank wants all of a version, or the version is refused,
 * whichever allocation failed. */
static void an_active_slice_is_the_versions(void **state)
{
    (void)state;
    static struct worker_round r;
    gateway_start(&r);
    tb_log_set(TB_LOG_ERROR, -1);
    struct sweep s = {
        .prepare = slice_prepare, .round = slice_round, .check = slice_check, .world = &r, .most = 1};
    sweep_good(&s);
    sweep_arm(TB_FAULT_malloc, 0, false);
    assert_true(slice_round(&r));
    const uint64_t calls = sweep_disarm(TB_FAULT_malloc);
    for (uint64_t k = 1; k <= calls; k++)
        sweep_one(&s, TB_FAULT_malloc, k, false);
    printf("%u rounds with a fault, %u refused\n", s.tried, s.refused);
    assert_true(s.refused > 0);
    close(r.stop);
    assert_int_equal(waitpid(r.gateway, NULL, 0), r.gateway);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_worker_bears_each_failure),
                                       cmocka_unit_test(an_active_slice_is_the_versions)};
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
