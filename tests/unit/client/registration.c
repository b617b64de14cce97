/* registration.c - memory that is the caller's: what is refused, when it is gone for good, when it
 * comes back, and what NICs hear of it. Its drain: registration_drain.c.
 *
 * Covers: intra/client/memory/registration.c intra/client/memory/registration_suspend.c
 * Covers: intra/client/memory/stretches.c
 * Covers: intra/cuda_absent.c */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"
#include "unit/client/lone_rank.h"

/* How often NICs were told that memory comes and goes. */
struct told {
    const void *bytes;
    uint64_t count;
    atomic_uint stays, goes;
};
static struct told told[2]; /* bytes NULL: not looked at */

void __real_tb_fabric_memory_stays(struct tb_fabric *fabric, const void *bytes, uint64_t count);
void __wrap_tb_fabric_memory_stays(struct tb_fabric *fabric, const void *bytes, uint64_t count);
void __wrap_tb_fabric_memory_stays(struct tb_fabric *fabric, const void *bytes, uint64_t count)
{
    for (uint32_t i = 0; i < 2; i++)
        if (told[i].bytes == bytes && told[i].count == count) told[i].stays++;
    __real_tb_fabric_memory_stays(fabric, bytes, count);
}

void __real_tb_fabric_memory_goes(struct tb_fabric *fabric, const void *bytes);
void __wrap_tb_fabric_memory_goes(struct tb_fabric *fabric, const void *bytes);
void __wrap_tb_fabric_memory_goes(struct tb_fabric *fabric, const void *bytes)
{
    for (uint32_t i = 0; i < 2; i++)
        if (told[i].bytes == bytes) told[i].goes++;
    __real_tb_fabric_memory_goes(fabric, bytes);
}

static void listen_for(uint32_t which, const void *bytes, uint64_t count)
{
    told[which].bytes = bytes;
    told[which].count = count;
    told[which].stays = told[which].goes = 0;
}

static void was_told(uint32_t which, uint32_t stays, uint32_t goes)
{
    assert_int_equal(told[which].stays, stays);
    assert_int_equal(told[which].goes, goes);
}

static void a_wrong_argument_is_named(void **state)
{
    (void)state;
    struct lone_rank w;
    lone_rank_open(&w);
    const uint64_t shape[] = {10, 10};
    struct tb_tensor_desc t[2] = {
        {.name = "layer.0.weight", .dtype = "BF16", .rank = 2, .shape = shape, .memory = w.memory},
        {.name = "layer.1.weight", .dtype = "BF16", .rank = 2, .shape = shape, .memory = w.memory + 200}};
    struct tb_registration *r;
    t[1].dtype = "BF17";
    CHECK_STATUS(tb_register(w.s, t, 2, &r), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "layer.1.weight"));
    assert_non_null(strstr(tb_last_error(), "BF17"));
    t[1].dtype = "BF16";
    t[1].rank = 9;
    CHECK_STATUS(tb_register(w.s, t, 2, &r), TB_BAD_ARGUMENT);
    t[1].rank = 2;
    t[1].memory = NULL;
    CHECK_STATUS(tb_register(w.s, t, 2, &r), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "layer.1.weight"));
    t[1].memory = w.memory;
    t[1].name = t[0].name;
    CHECK_STATUS(tb_register(w.s, t, 2, &r), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "both"));
    const uint64_t huge[] = {UINT64_MAX, 4};
    t[1].name = "huge";
    t[1].shape = huge;
    assert_true(tb_register(w.s, t, 2, &r) < 0);
    assert_non_null(strstr(tb_last_error(), "huge"));
    CHECK_STATUS(tb_register(w.s, t, 0, &r), TB_BAD_ARGUMENT);
    lone_rank_close(&w);
}

static void registering_needs_no_gateway(void **state)
{
    (void)state;
    struct lone_rank w;
    lone_rank_open(&w);
    fake_away(&w.f, true);
    const uint64_t shape[] = {10};
    const struct tb_tensor_desc t = {
        .name = "x", .dtype = "U8", .rank = 1, .shape = shape, .memory = w.memory};
    struct tb_registration *r;
    CHECK_OK(tb_register(w.s, &t, 1, &r));
    CHECK_OK(tb_unregister(r));
    lone_rank_close(&w);
}

static void unregister_gives_the_memory_back(void **state)
{
    (void)state;
    struct lone_rank w;
    lone_rank_open(&w);
    lone_rank_seal(&w);
    CHECK_OK(tb_unregister(w.r));
    assert_int_equal(fake_seen(&w.f, TB_MSG_UNPUBLISH), 1);
    assert_true(fake_read(&w.f, fake_version(&w.f, 1), 0) != TB_OK);
    lone_rank_close(&w);
}

/* P1: memory that was unregistered does not come back, so the gateway is not to count on it even
 * where it could not take all of it in time; suspended memory may. */
static void only_what_is_unregistered_is_gone(void **state)
{
    (void)state;
    struct lone_rank w;
    lone_rank_open(&w);
    lone_rank_seal(&w);
    CHECK_OK(tb_suspend(w.r));
    assert_false(lone_rank_said_gone(&w));
    CHECK_OK(tb_resume(w.r, NULL, 0));
    CHECK_OK(tb_unregister(w.r));
    assert_int_equal(fake_seen(&w.f, TB_MSG_UNPUBLISH), 2);
    assert_true(lone_rank_said_gone(&w));
    lone_rank_close(&w);
}

/* The gateway went on counting on what was suspended: it hears that it is gone, and not of
 * what it needed no more. */
static void a_version_counted_on_while_suspended_is_gone_at_the_end(void **state)
{
    (void)state;
    for (int counted = 0; counted < 2; counted++) {
        struct lone_rank w;
        lone_rank_open(&w);
        lone_rank_seal(&w);
        if (counted == 1) FAKE_SET(&w.f, refuse[TB_MSG_UNPUBLISH], TB_TIMEOUT);
        CHECK_OK(tb_suspend(w.r));
        CHECK_OK(tb_unregister(w.r));
        struct tb_run_info run = {.struct_bytes = sizeof run};
        CHECK_OK(tb_run_open(w.s, "policy", "k", &run)); /* all said before has been heard */
        assert_int_equal(fake_seen(&w.f, TB_MSG_UNPUBLISH), 1 + counted);
        assert_int_equal(lone_rank_said_gone(&w), counted == 1);
        lone_rank_close(&w);
    }
}

/* The same where it comes back with other bytes. */
static void memory_that_does_not_come_back_is_gone(void **state)
{
    (void)state;
    struct lone_rank w;
    lone_rank_open(&w);
    lone_rank_seal(&w);
    FAKE_SET(&w.f, refuse[TB_MSG_UNPUBLISH], TB_TIMEOUT);
    CHECK_OK(tb_suspend(w.r));
    w.memory[0] ^= 1;
    CHECK_STATUS(tb_resume(w.r, NULL, 0), TB_CONFLICT);
    fake_wait_seen(&w.f, TB_MSG_UNPUBLISH, 2);
    assert_true(lone_rank_said_gone(&w));
    lone_rank_close(&w);
}

/* Also while the gateway is away: readers are cut off after the drain time. */
static void unregister_does_not_wait_for_a_gateway_that_is_away(void **state)
{
    (void)state;
    struct lone_rank w;
    lone_rank_open(&w);
    lone_rank_seal(&w);
    fake_away(&w.f, true);
    CHECK_OK(tb_unregister(w.r));
    lone_rank_close(&w);
}

static void suspended_memory_comes_back_when_it_is_the_same(void **state)
{
    (void)state;
    struct lone_rank w;
    lone_rank_open(&w);
    lone_rank_seal(&w);
    CHECK_OK(tb_suspend(w.r));
    CHECK_STATUS(tb_suspend(w.r), TB_BAD_STATE);
    assert_true(fake_read(&w.f, fake_version(&w.f, 1), 0) != TB_OK);
    uint8_t *elsewhere = malloc(LONE_RANK_BYTES);
    memcpy(elsewhere, w.memory, LONE_RANK_BYTES);
    memset(w.memory, 0, LONE_RANK_BYTES); /* an engine slept */
    void *moved[] = {elsewhere};
    CHECK_OK(tb_resume(w.r, moved, 1));
    fake_wait_seen(&w.f, TB_MSG_SEAL, 2);
    CHECK_OK(fake_read(&w.f, fake_version(&w.f, 1), 0));
    assert_memory_equal(fake_version(&w.f, 1)->shards[0].bytes, elsewhere, LONE_RANK_BYTES);
    tb_session_close(w.s);
    free(elsewhere);
    free(w.memory);
    fake_close(&w.f);
}

/* P1: the twin. */
static void other_bytes_do_not_come_back(void **state)
{
    (void)state;
    struct lone_rank w;
    lone_rank_open(&w);
    lone_rank_seal(&w);
    CHECK_OK(tb_suspend(w.r));
    w.memory[LONE_RANK_BYTES - 1] ^= 1;
    CHECK_STATUS(tb_resume(w.r, NULL, 0), TB_CONFLICT);
    assert_non_null(strstr(tb_last_error(), "chunk"));
    assert_int_equal(fake_seen(&w.f, TB_MSG_SEAL), 1);
    assert_true(fake_read(&w.f, fake_version(&w.f, 1), 0) != TB_OK);
    CHECK_STATUS(tb_resume(w.r, NULL, 0), TB_BAD_STATE);
    lone_rank_close(&w);
}

static void publish_number(struct lone_rank *w, uint64_t number, struct tb_registration *r, int mode)
{
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(w->s, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = mode,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = number,
                                         .shard_count = 1,
                                         .registration = r};
    w->info.struct_bytes = sizeof w->info;
    CHECK_OK(tb_publish(w->s, &o, &w->info));
}

/* A NIC registers what is published in place once for all versions (pinned_regions.h), until the
 * caller has its memory back: before it is suspended or unregistered, and not before. It may
 * come back elsewhere. */
static void memory_published_in_place_stays_until_it_is_given_back(void **state)
{
    (void)state;
    struct lone_rank w;
    lone_rank_open(&w);
    uint8_t *elsewhere = malloc(LONE_RANK_BYTES);
    memcpy(elsewhere, w.memory, LONE_RANK_BYTES);
    listen_for(0, w.memory, LONE_RANK_BYTES);
    listen_for(1, elsewhere, LONE_RANK_BYTES);
    publish_number(&w, 1, w.r, TB_PUBLISH_SHADOW);
    was_told(0, 0, 0); /* a shadow is published, and not this */
    for (uint64_t number = 2; number < 5; number++) {
        if (number > 2) CHECK_OK(tb_unpublish(w.s, &w.info.uid, 0));
        publish_number(&w, number, w.r, TB_PUBLISH_IN_PLACE);
        was_told(0, 1, 0);
    }
    CHECK_OK(tb_suspend(w.r));
    was_told(0, 1, 1);
    free(w.memory);
    void *moved[] = {elsewhere};
    CHECK_OK(tb_resume(w.r, moved, 1));
    was_told(1, 1, 0);
    CHECK_OK(tb_unregister(w.r));
    was_told(1, 1, 1);
    was_told(0, 1, 1);
    listen_for(0, NULL, 0);
    listen_for(1, NULL, 0);
    tb_session_close(w.s);
    free(elsewhere);
    fake_close(&w.f);
}

/* The twins: a tensor in a buffer of ours stays with that; memory in very many pieces is not
 * looked through for each. */
static void memory_not_kept_for_nics_is_registered_anew(void **state)
{
    (void)state;
    enum { MANY = 1025 };
    struct lone_rank w;
    lone_rank_open(&w);
    void *ours = NULL;
    CHECK_OK(tb_buffer_new(w.s, MANY, &ours));
    struct tb_tensor_desc *t = calloc(MANY, sizeof *t);
    char(*names)[8] = calloc(MANY, sizeof *names);
    const uint64_t one = 1;
    for (uint32_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%04u", i);
        t[i] = (struct tb_tensor_desc){
            .name = names[i], .dtype = "U8", .rank = 1, .shape = &one, .memory = w.memory + 10 + 2 * i};
    }
    struct tb_registration *many, *few;
    CHECK_OK(tb_register(w.s, t, MANY, &many));
    t[0].memory = (uint8_t *)ours + 10;
    t[1].memory = w.memory + 5;
    CHECK_OK(tb_register(w.s, t, 2, &few));
    listen_for(0, w.memory + 10, 1);
    publish_number(&w, 1, many, TB_PUBLISH_IN_PLACE);
    was_told(0, 0, 0);
    CHECK_OK(tb_unregister(many));
    was_told(0, 0, 0);
    listen_for(0, (uint8_t *)ours + 10, 1);
    listen_for(1, w.memory + 5, 1);
    publish_number(&w, 2, few, TB_PUBLISH_IN_PLACE);
    CHECK_OK(tb_unregister(few));
    was_told(0, 0, 0);
    was_told(1, 1, 1);
    listen_for(0, NULL, 0);
    listen_for(1, NULL, 0);
    free(names);
    free(t);
    lone_rank_close(&w);
}

/* With a name: that test alone. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrong_argument_is_named),
        cmocka_unit_test(memory_published_in_place_stays_until_it_is_given_back),
        cmocka_unit_test(memory_not_kept_for_nics_is_registered_anew),
        cmocka_unit_test(registering_needs_no_gateway),
        cmocka_unit_test(unregister_gives_the_memory_back),
        cmocka_unit_test(only_what_is_unregistered_is_gone),
        cmocka_unit_test(a_version_counted_on_while_suspended_is_gone_at_the_end),
        cmocka_unit_test(memory_that_does_not_come_back_is_gone),
        cmocka_unit_test(unregister_does_not_wait_for_a_gateway_that_is_away),
        cmocka_unit_test(suspended_memory_comes_back_when_it_is_the_same),
        cmocka_unit_test(other_bytes_do_not_come_back),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
