/* session_check.c - the check of a session's tables passes while a worker publishes and stages, and
 * ends the process when a row contradicts another.
 *
 * Covers: intra/client/session/session_check.c intra/client/follow/staging_table.c
 * Covers: intra/client/publish/publication.c intra/client/memory/shadow.c
 * Covers: intra/client/session/request.c */
#include "intra/client/session/session_check.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "intra/client/follow/staging.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/shadow.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"
#include "unit/client/subscriber.h"

#define BYTES 3000u

struct world {
    struct subscriber sub; /* has version 1 staged */
    struct tb_registration *r;
    uint8_t memory[BYTES];
};

static void world_open(struct world *w)
{
    subscriber_open(&w->sub, 1, true);
    CHECK_OK(tb_stage(w->sub.sub, &w->sub.uid, 20000));
    const uint64_t shape[] = {BYTES};
    const struct tb_tensor_desc t = {
        .name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = w->memory};
    CHECK_OK(tb_register(w->sub.s, &t, 1, &w->r));
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(w->sub.s, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = 7,
                                         .shard_count = 1,
                                         .registration = w->r};
    CHECK_OK(tb_publish(w->sub.s, &o, NULL));
}

static void use_of_nobody(struct world *w)
{
    w->sub.s->stagings->uses++;
}

static void hop_that_is_not_there(struct world *w)
{
    w->sub.s->stagings->hop_opened = true;
}

static void export_that_is_not_there(struct world *w)
{
    w->sub.s->stagings->export_id = 0;
}

static void more_manifests_than_shards(struct world *w)
{
    w->sub.s->stagings->manifests_here++;
}

static void a_shadow_of_nobody(struct world *w)
{
    w->sub.s->publications->shadow->user = NULL;
}

static void a_shadow_larger_than_its_memory(struct world *w)
{
    w->sub.s->shadows->bytes = w->sub.s->shadows->memory.count + 1;
}

static void sealed_and_not_exported(struct world *w)
{
    w->sub.s->publications->export_id = 0;
}

static void a_registration_that_nobody_uses(struct world *w)
{
    w->r->subscriptions++;
}

static void a_member_beyond_its_group(struct world *w)
{
    w->sub.sub->member_index = w->sub.sub->member_count;
}

static void an_answered_request_in_the_queue(struct world *w)
{
    struct tb_request *request = tb_request_new(w->sub.s, TB_MSG_STATUS, TB_MSG_STATUS_TEXT, 0);
    tb_request_post(w->sub.s, request);
    request->done = true;
}

/* A child has the session's lock and its tables, and no other thread. */
static bool passes(struct world *w, void (*spoil)(struct world *w))
{
    tb_session_lock(w->sub.s);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void)close(STDERR_FILENO);
        if (spoil != NULL) spoil(w);
        tb_session_check(w->sub.s);
        _exit(0);
    }
    tb_session_unlock(w->sub.s);
    int ended = 0;
    assert_int_equal(waitpid(child, &ended, 0), child);
    if (WIFSIGNALED(ended)) assert_int_equal(WTERMSIG(ended), SIGABRT);
    return WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
}

static void each_contradiction_ends_the_process(void **state)
{
    (void)state;
    static void (*const spoils[])(struct world * w) = {use_of_nobody,
                                                       hop_that_is_not_there,
                                                       export_that_is_not_there,
                                                       more_manifests_than_shards,
                                                       a_shadow_of_nobody,
                                                       a_shadow_larger_than_its_memory,
                                                       sealed_and_not_exported,
                                                       a_registration_that_nobody_uses,
                                                       a_member_beyond_its_group,
                                                       an_answered_request_in_the_queue};
    static struct world w;
    world_open(&w);
    assert_true(passes(&w, NULL));
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++)
        if (passes(&w, spoils[i])) fail_msg("contradiction %zu passes", i);
    subscriber_close(&w.sub);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_contradiction_ends_the_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
