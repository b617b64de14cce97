/* Covers: intra/client/follow/subscription.c, intra/client/follow/activate.c. The life of a staged
 * version: each state that it can be in, and what each call answers then. No pair answers "not now"
 * for ever without a reason. P2, P10.
 *
 * Covers: intra/client/follow/stage.c intra/client/follow/activate.c */
#include <stdlib.h>
#include <string.h>

#include "unit/client/subscriber.h"

#define BYTES SUBSCRIBER_TENSOR_BYTES

/* A member with version 1 of its gateway, and version 2, which is there for some states. */
struct life {
    struct fake f;
    struct tb_session *s;
    struct tb_registration *r;
    struct tb_subscription *sub;
    uint8_t *memory;
    struct tb_uid one, two;
};

static void life_open(struct life *l)
{
    memset(l, 0, sizeof *l);
    fake_open(&l->f);
    FAKE_SET(&l->f, one_staging, true);
    l->one = fake_uid(fake_make(&l->f, 1, 1, 1, BYTES));
    l->two = fake_uid(fake_make(&l->f, 2, 1, 1, BYTES));
    l->s = fake_session_open(&l->f, "w", NULL);
    l->memory = calloc(1, BYTES);
    const uint64_t shape = BYTES;
    const struct tb_tensor_desc tensor = {
        .name = "t0", .dtype = "U8", .rank = 1, .shape = &shape, .memory = l->memory};
    CHECK_OK(tb_register(l->s, &tensor, 1, &l->r));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = l->r};
    CHECK_OK(tb_subscribe(l->s, &o, &l->sub));
}

static void life_close(struct life *l)
{
    tb_session_close(l->s);
    fake_close(&l->f);
    free(l->memory);
}

/* Returns when the session has heard all that the gateway sent before. */
static void heard(const struct life *l)
{
    CHECK_STATUS(tb_status(l->s, "site", NULL, 0, NULL), TB_TOO_LARGE);
}

static void whole(const struct life *l, const struct tb_uid *uid)
{
    if (tb_stage(l->sub, uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
}

static void active(struct life *l, uint64_t number, const struct tb_uid *uid)
{
    whole(l, uid);
    fake_go(&l->f, number);
    heard(l);
    CHECK_OK(tb_activate(l->sub, uid, NULL));
}

static void arriving(struct life *l)
{
    FAKE_SET(&l->f, no_plan, true);
    CHECK_STATUS(tb_stage(l->sub, &l->one, 0), TB_AGAIN);
    fake_wait_seen(&l->f, TB_MSG_EXPORT, 1);
}

static void ends(struct life *l, uint64_t number, enum tb_status why)
{
    fake_state(&l->f, number, why);
    heard(l);
}

/* ---- the states of version 1 ---- */

static void not_staged(struct life *l)
{
    FAKE_SET(&l->f, no_plan, true);
}

static void staged(struct life *l)
{
    whole(l, &l->one);
}

static void going(struct life *l)
{
    whole(l, &l->one);
    fake_go(&l->f, 1);
    heard(l);
}

static void is_active(struct life *l)
{
    active(l, 1, &l->one);
}

static void released(struct life *l)
{
    whole(l, &l->one);
    CHECK_OK(tb_release(l->sub, &l->one));
    FAKE_SET(&l->f, no_plan, true);
}

#define ENDED(name, why)                                                                                     \
    static void arriving_##name(struct life *l)                                                              \
    {                                                                                                        \
        arriving(l);                                                                                         \
        ends(l, 1, why);                                                                                     \
    }                                                                                                        \
    static void staged_##name(struct life *l)                                                                \
    {                                                                                                        \
        whole(l, &l->one);                                                                                   \
        ends(l, 1, why);                                                                                     \
    }
ENDED(withdrawn, TB_VERSION_WITHDRAWN)
ENDED(superseded, TB_SUPERSEDED)
ENDED(lost, TB_VERSION_LOST)
ENDED(broken, TB_VERSION_BROKEN)
ENDED(group_broken, TB_GROUP_BROKEN)
ENDED(pin_lost, TB_PIN_LOST)

/* The gateway counts the member for version 2. */
static void another_staged(struct life *l)
{
    whole(l, &l->one);
    whole(l, &l->two);
}

static void backwards(struct life *l)
{
    whole(l, &l->one);
    active(l, 2, &l->two);
    FAKE_SET(&l->f, refuse[TB_MSG_STAGE], TB_BAD_STATE);
}

/* Version 2 was active, and an operator withdrew it: version 1 is staged still. */
static void newer_withdrawn(struct life *l)
{
    whole(l, &l->one);
    active(l, 2, &l->two);
    ends(l, 2, TB_VERSION_WITHDRAWN);
}

static void group_elsewhere(struct life *l)
{
    another_staged(l);
    FAKE_SET(&l->f, refuse[TB_MSG_STAGE], TB_CONFLICT);
}

static void retired_meanwhile(struct life *l)
{
    another_staged(l);
    FAKE_SET(&l->f, refuse[TB_MSG_STAGE], TB_SUPERSEDED);
    FAKE_SET(&l->f, refuse[TB_MSG_ACTIVATE], TB_SUPERSEDED);
}

static void unknown_there(struct life *l)
{
    another_staged(l);
    FAKE_SET(&l->f, refuse[TB_MSG_STAGE], TB_NOT_FOUND);
    FAKE_SET(&l->f, refuse[TB_MSG_ACTIVATE], TB_NOT_FOUND);
}

static void suspended(struct life *l)
{
    going(l);
    CHECK_OK(tb_suspend(l->r));
}

static void away_before_go(struct life *l)
{
    whole(l, &l->one);
    fake_go_away(&l->f, l->s);
}

static void away_after_go(struct life *l)
{
    going(l);
    fake_go_away(&l->f, l->s);
}

/* ---- the calls ---- */

enum call { STAGE, ACTIVATE, ITEM, RELEASE, WAIT, CALLS };

static int make(const struct life *l, enum call call, uint32_t timeout_ms)
{
    struct tb_item item = {.struct_bytes = sizeof item};
    struct tb_version_info info = {.struct_bytes = sizeof info};
    const struct tb_wait_options wait = {
        .struct_bytes = sizeof wait, .kind = TB_WAIT_EXACT, .model = "policy", .number = 1};
    int status = TB_END;
    switch (call) {
    case STAGE:
        return tb_stage(l->sub, &l->one, timeout_ms);
    case ACTIVATE:
        return tb_activate(l->sub, &l->one, NULL);
    case ITEM:
        return tb_staged_item(l->sub, &l->one, 0, &item);
    case RELEASE:
        return tb_release(l->sub, &l->one);
    case WAIT:
        status = tb_wait(l->s, &wait, &info);
        break;
    case CALLS:
        break;
    }
    return status;
}

#define HERE     TB_OK, TB_OK, TB_OK
#define NOT_HERE TB_NOT_FOUND, TB_NOT_FOUND, TB_OK

/* A row: what tb_stage, tb_activate, tb_staged_item, tb_release and tb_wait answer; what the reason
 * of a refused tb_activate names; what tb_activate answers behind a tb_stage. */
static const struct row {
    const char *state;
    void (*reach)(struct life *l);
    int answers[CALLS];
    const char *why;
    int after_stage;
} rows[] = {
    {"not staged", not_staged, {TB_AGAIN, TB_BAD_STATE, NOT_HERE}, "tb_stage it", TB_AGAIN},
    {"arriving", arriving, {TB_AGAIN, TB_AGAIN, TB_BAD_STATE, TB_OK, TB_OK}, NULL, TB_AGAIN},
    {"staged", staged, {TB_OK, TB_AGAIN, HERE}, NULL, TB_AGAIN},
    {"going", going, {TB_OK, TB_OK, HERE}, NULL, TB_OK},
    {"active", is_active, {TB_OK, TB_OK, HERE}, NULL, TB_OK},
    {"released", released, {TB_AGAIN, TB_BAD_STATE, NOT_HERE}, "tb_stage it", TB_AGAIN},
    {"withdrawn on its way",
     arriving_withdrawn,
     {TB_VERSION_WITHDRAWN, TB_VERSION_WITHDRAWN, TB_BAD_STATE, TB_OK, TB_OK},
     "ask tb_wait",
     TB_BAD_STATE},
    {"withdrawn",
     staged_withdrawn,
     {TB_VERSION_WITHDRAWN, TB_VERSION_WITHDRAWN, HERE},
     "ask tb_wait",
     TB_BAD_STATE},
    {"superseded on its way",
     arriving_superseded,
     {TB_SUPERSEDED, TB_SUPERSEDED, TB_BAD_STATE, TB_OK, TB_OK},
     "ask tb_wait",
     TB_BAD_STATE},
    {"superseded", staged_superseded, {TB_SUPERSEDED, TB_SUPERSEDED, HERE}, "ask tb_wait", TB_BAD_STATE},
    {"lost on its way",
     arriving_lost,
     {TB_VERSION_LOST, TB_VERSION_LOST, TB_BAD_STATE, TB_OK, TB_OK},
     "ask tb_wait",
     TB_BAD_STATE},
    {"lost", staged_lost, {TB_VERSION_LOST, TB_VERSION_LOST, HERE}, "ask tb_wait", TB_BAD_STATE},
    {"broken on its way",
     arriving_broken,
     {TB_VERSION_BROKEN, TB_VERSION_BROKEN, TB_BAD_STATE, TB_OK, TB_OK},
     "ask tb_wait",
     TB_BAD_STATE},
    {"broken", staged_broken, {TB_VERSION_BROKEN, TB_VERSION_BROKEN, HERE}, "ask tb_wait", TB_BAD_STATE},
    {"not pinned any more, on its way",
     arriving_pin_lost,
     {TB_PIN_LOST, TB_PIN_LOST, TB_BAD_STATE, TB_OK, TB_OK},
     "ask tb_wait",
     TB_BAD_STATE},
    {"not pinned any more", staged_pin_lost, {TB_PIN_LOST, TB_PIN_LOST, HERE}, "ask tb_wait", TB_BAD_STATE},
    {"its group broke on its way",
     arriving_group_broken,
     {TB_GROUP_BROKEN, TB_GROUP_BROKEN, TB_BAD_STATE, TB_OK, TB_OK},
     "tb_stage it again",
     TB_AGAIN},
    {"its group broke",
     staged_group_broken,
     {TB_GROUP_BROKEN, TB_GROUP_BROKEN, HERE},
     "tb_stage it again",
     TB_AGAIN},
    {"another was staged behind it",
     another_staged,
     {TB_OK, TB_BAD_STATE, HERE},
     "tb_stage it again",
     TB_AGAIN},
    {"older than the active one",
     backwards,
     {TB_BAD_STATE, TB_BAD_STATE, HERE},
     "tb_stage it again",
     TB_BAD_STATE},
    {"the active one was withdrawn",
     newer_withdrawn,
     {TB_OK, TB_BAD_STATE, HERE},
     "tb_stage it again",
     TB_AGAIN},
    {"the group stages another",
     group_elsewhere,
     {TB_CONFLICT, TB_BAD_STATE, HERE},
     "tb_stage it again",
     TB_BAD_STATE},
    {"retired at the gateway",
     retired_meanwhile,
     {TB_SUPERSEDED, TB_SUPERSEDED, HERE},
     "ask tb_wait",
     TB_BAD_STATE},
    {"unknown at the gateway", unknown_there, {TB_OK, TB_NOT_FOUND, HERE}, "tb_stage it again", TB_AGAIN},
    {"suspended", suspended, {TB_OK, TB_BAD_STATE, HERE}, "tb_resume", TB_BAD_STATE},
    {"its gateway is away",
     away_before_go,
     {TB_OK, TB_GATEWAY_AWAY, TB_OK, TB_OK, TB_GATEWAY_AWAY},
     "has not said go",
     TB_GATEWAY_AWAY},
    {"its gateway is away behind go",
     away_after_go,
     {TB_OK, TB_OK, TB_OK, TB_OK, TB_GATEWAY_AWAY},
     NULL,
     TB_OK},
};

/* A version that is not whole here has no source, so it is asked for once. */
static uint32_t timeout_of(const struct row *row)
{
    return row->answers[ITEM] == TB_OK ? 20000 : 0;
}

static void each_state_answers_each_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (int call = 0; call < CALLS; call++) {
            struct life l;
            life_open(&l);
            rows[i].reach(&l);
            const int status = make(&l, (enum call)call, timeout_of(&rows[i]));
            if (status != rows[i].answers[call])
                fail_msg("%s, call %d: %s, not %s (%s)", rows[i].state, call, tb_status_name(status),
                         tb_status_name(rows[i].answers[call]), tb_last_error());
            if (call == ACTIVATE && rows[i].why != NULL && strstr(tb_last_error(), rows[i].why) == NULL)
                fail_msg("%s: tb_activate says \"%s\", and not \"%s\"", rows[i].state, tb_last_error(),
                         rows[i].why);
            life_close(&l);
        }
}

/* A refused tb_activate sends its caller to tb_stage: what that allows can be activated, and what
 * cannot be is refused there. */
static void a_staging_that_may_begin_again_may_be_activated(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct life l;
        life_open(&l);
        rows[i].reach(&l);
        const int before = tb_activate(l.sub, &l.one, NULL);
        int again = tb_stage(l.sub, &l.one, timeout_of(&rows[i]));
        if (again == TB_GROUP_BROKEN) /* told once */
            again = tb_stage(l.sub, &l.one, timeout_of(&rows[i]));
        if (again == TB_OK && before == TB_BAD_STATE && rows[i].after_stage == TB_AGAIN) {
            fake_go(&l.f, 1);
            heard(&l);
            CHECK_OK(tb_activate(l.sub, &l.one, NULL));
        } else {
            const int status = tb_activate(l.sub, &l.one, NULL);
            if (status != rows[i].after_stage)
                fail_msg("%s, staged again (%s): tb_activate says %s, not %s: %s", rows[i].state,
                         tb_status_name(again), tb_status_name(status), tb_status_name(rows[i].after_stage),
                         tb_last_error());
        }
        life_close(&l);
    }
}

/* The issue's own: version 2 is withdrawn, and version 1, which is staged still, is what
 * the group goes back to. */
static void back_to_the_one_before(void **state)
{
    (void)state;
    struct life l;
    life_open(&l);
    active(&l, 1, &l.one);
    active(&l, 2, &l.two);
    ends(&l, 2, TB_VERSION_WITHDRAWN);
    CHECK_STATUS(tb_activate(l.sub, &l.two, NULL), TB_VERSION_WITHDRAWN);
    const uint32_t stages = fake_seen(&l.f, TB_MSG_STAGE);
    CHECK_OK(tb_stage(l.sub, &l.one, 20000));
    assert_int_equal(fake_seen(&l.f, TB_MSG_STAGE), stages + 1);
    CHECK_OK(tb_activate(l.sub, &l.one, NULL));
    life_close(&l);
}

/* A refusal leaves the bytes: once the newer one is withdrawn, nothing is read again. */
static void a_refusal_of_the_gateway_keeps_the_bytes(void **state)
{
    (void)state;
    struct life l;
    life_open(&l);
    backwards(&l);
    CHECK_STATUS(tb_stage(l.sub, &l.one, 20000), TB_BAD_STATE);
    assert_non_null(strstr(tb_last_error(), "told to refuse"));
    FAKE_SET(&l.f, no_plan, true); /* nothing could be read */
    FAKE_SET(&l.f, refuse[TB_MSG_STAGE], TB_OK);
    ends(&l, 2, TB_VERSION_WITHDRAWN);
    CHECK_OK(tb_stage(l.sub, &l.one, 20000));
    CHECK_OK(tb_activate(l.sub, &l.one, NULL) == TB_AGAIN ? TB_OK : TB_BAD_STATE);
    life_close(&l);
}

/* After any refusal of the gateway the next tb_stage asks, and does not say yes by itself. */
static void a_refused_activation_makes_stage_ask(void **state)
{
    (void)state;
    struct life l;
    life_open(&l);
    going(&l);
    FAKE_SET(&l.f, refuse[TB_MSG_ACTIVATE], TB_BAD_STATE);
    FAKE_SET(&l.f, refuse[TB_MSG_STAGE], TB_BAD_STATE);
    CHECK_STATUS(tb_activate(l.sub, &l.one, NULL), TB_BAD_STATE);
    CHECK_STATUS(tb_stage(l.sub, &l.one, 20000), TB_BAD_STATE);
    fake_go_away(&l.f, l.s);
    CHECK_STATUS(tb_activate(l.sub, &l.one, NULL), TB_GATEWAY_AWAY); /* the go before is worth nothing */
    life_close(&l);
}

/* A gateway that says nothing holds nobody up for longer than the caller allows. */
static void an_answer_is_waited_for(void **state)
{
    (void)state;
    struct life l;
    life_open(&l);
    another_staged(&l);
    FAKE_SET(&l.f, mute[TB_MSG_STAGE], true);
    CHECK_STATUS(tb_stage(l.sub, &l.one, 0), TB_AGAIN);
    assert_non_null(strstr(tb_last_error(), "has not said yet"));
    fake_go_away(&l.f, l.s);
    CHECK_OK(tb_stage(l.sub, &l.one, 20000));
    FAKE_SET(&l.f, mute[TB_MSG_STAGE], false);
    fake_come_back(&l.f, l.s);
    CHECK_OK(tb_stage(l.sub, &l.one, 20000));
    life_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_state_answers_each_call),
        cmocka_unit_test(a_staging_that_may_begin_again_may_be_activated),
        cmocka_unit_test(back_to_the_one_before),
        cmocka_unit_test(a_refusal_of_the_gateway_keeps_the_bytes),
        cmocka_unit_test(a_refused_activation_makes_stage_ask),
        cmocka_unit_test(an_answer_is_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
