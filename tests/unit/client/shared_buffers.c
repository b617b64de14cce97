/* shared_buffers.c - two subscriptions of a session never fill the same buffers, where one of them
 * demands the home's signature and the other believes its gateway (P1).
 *
 * Covers: intra/client/follow/home_word.c intra/client/follow/subscription.c */
#include <string.h>

#include "unit/client/fake_gateway.h"
#include "unit/net/net_world.h"

#define TENSOR 1000u

struct scene {
    struct world world;
    struct fake f;
    struct tb_session *s;
    struct tb_registration *r;
    struct tb_subscribe_options o;
    const char *ca;
};

static void begin(struct scene *c)
{
    static uint8_t memory[TENSOR];
    static const uint64_t shape[1] = {TENSOR};
    memset(c, 0, sizeof *c);
    world_init(&c->world);
    world_issue(&c->world, "east", "gw", "tombolo://east/gw");
    c->ca = world_path(&c->world, "east", "ca.crt");
    fake_open(&c->f);
    c->s = fake_session_open(&c->f, "w0", "host-a");
    const struct tb_tensor_desc d = {
        .rank = 1, .name = "t0", .dtype = "U8", .shape = shape, .memory = memory};
    CHECK_OK(tb_register(c->s, &d, 1, &c->r));
    c->o = (struct tb_subscribe_options){.struct_bytes = sizeof c->o,
                                         .member_count = 1,
                                         .model = "policy",
                                         .registration = c->r,
                                         .update = TB_UPDATE_PATCH};
}

static void end(struct scene *c)
{
    CHECK_OK(tb_unregister(c->r));
    tb_session_close(c->s);
    fake_close(&c->f);
    world_fini(&c->world);
}

static struct tb_subscription *subscribe(struct scene *c, const char *home_ca)
{
    struct tb_subscription *sub = NULL;
    c->o.home_ca = home_ca;
    if (tb_subscribe(c->s, &c->o, &sub) != TB_OK) fail_msg("%s", tb_last_error());
    return sub;
}

static void refused(struct scene *c, const char *home_ca, const char *words)
{
    struct tb_subscription *sub = NULL;
    c->o.home_ca = home_ca;
    CHECK_STATUS(tb_subscribe(c->s, &c->o, &sub), TB_BAD_STATE);
    assert_non_null(strstr(tb_last_error(), words));
}

static void no_buffers_are_shared_with_one_that_believes(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    struct tb_subscription *demands = subscribe(&c, c.ca), *too = subscribe(&c, c.ca);
    refused(&c, NULL, "registration with home_ca");
    c.o.registration = NULL;
    c.o.update = TB_UPDATE_COPY;
    struct tb_subscription *believes = subscribe(&c, NULL); /* no buffers of its */
    CHECK_OK(tb_unsubscribe(believes));
    CHECK_OK(tb_unsubscribe(demands));
    CHECK_OK(tb_unsubscribe(too));
    end(&c);
}

static void nor_are_buffers_that_were_filled_on_trust(void **state)
{
    (void)state;
    struct scene c;
    begin(&c);
    struct tb_subscription *believes = subscribe(&c, NULL), *too = subscribe(&c, NULL);
    refused(&c, c.ca, "registration without home_ca");
    CHECK_OK(tb_unsubscribe(believes));
    CHECK_OK(tb_unsubscribe(too));
    struct tb_subscription *demands = subscribe(&c, c.ca); /* it fills them anew */
    CHECK_OK(tb_unsubscribe(demands));
    end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_buffers_are_shared_with_one_that_believes),
        cmocka_unit_test(nor_are_buffers_that_were_filled_on_trust),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
