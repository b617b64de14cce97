/* copy_shelf_base.c - which older version the encoded chunks beside a copy are deltas to: the
 * newest one of its model that is older, whole, ready and cut alike; and the work ends where
 * that one goes.
 *
 * Covers: gateway/daemon/copies/copy_shelf.c */
#include <string.h>

#include "gateway/arena/arena.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_shelf.h"
#include "gateway/daemon/copies/copy_table.h"
#include "tests/unit/arena/arena_world.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"

#define SHARD_BYTES ((uint64_t)1 << 20)
#define VERSIONS    4u

struct scene {
    struct home home;
    struct tb_worker_session *reader; /* of another host: chunks are encoded for it */
    struct version made[VERSIONS];
    struct tb_copy *copies[VERSIONS];
};

static void copy_make(struct scene *s, unsigned i, uint64_t bytes)
{
    struct tb_daemon *d = s->home.d;
    struct version *v = &s->made[i];
    char error[TB_ARENA_ERROR_BYTES];
    version_make(v, i + 1, 1, bytes);
    v->key.uid = (struct tb_id){{(uint8_t)(i + 1)}};
    struct tb_copy *copy = s->copies[i] = tb_copy_get(d, &v->key);
    assert_non_null(copy);
    CHECK_OK(tb_arena_region_new(d->arena, &v->key, &copy->region, error));
    CHECK_OK(tb_arena_shard_reserve(copy->region, 0, v->list[0], error));
    const enum tb_status done = tb_arena_digests_done(copy->region, 0);
    assert_true(done == TB_OK || done == TB_DONE_BEFORE);
    version_land_all(v, copy->region);
    copy->life = TB_COPY_WHOLE;
    copy->serving = TB_COPY_READY;
}

static void begin(struct scene *s)
{
    memset(s, 0, sizeof *s);
    home_new(&s->home);
    home_start(&s->home);
    s->reader = tb_worker_new(s->home.d, false);
    assert_non_null(s->reader);
    s->reader->id = (struct tb_id){{9}};
    CHECK_OK(tb_name_set(&s->reader->endpoint.host, "elsewhere"));
    tb_worker_enlist(s->reader);
    for (unsigned i = 0; i < VERSIONS; i++)
        copy_make(s, i, SHARD_BYTES);
}

static void end(struct scene *s)
{
    for (unsigned i = 0; i < VERSIONS; i++)
        tb_copy_shelf_end(s->copies[i]);
    home_end(&s->home);
    home_free(&s->home);
    for (unsigned i = 0; i < VERSIONS; i++)
        version_fini(&s->made[i]);
}

/* Which copy the last one's shelf is made on; VERSIONS: it gets none. */
static unsigned base_of_last(struct scene *s)
{
    struct tb_export_buffer buffer;
    struct tb_copy *last = s->copies[VERSIONS - 1];
    unsigned base = 0;
    if (!tb_copy_shelf_make(last, &buffer)) return VERSIONS;
    assert_ptr_equal(buffer.bytes, last->shelf_memory);
    while (s->copies[base] != last->shelf_base)
        base++;
    tb_copy_shelf_end(last);
    assert_null(last->shelf_base);
    return base;
}

static void the_base_is_the_newest_that_is_whole_ready_and_stays(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    assert_int_equal(base_of_last(&s), 2);
    s.copies[2]->life = TB_COPY_CROSSES;
    assert_int_equal(base_of_last(&s), 1);
    s.copies[2]->life = TB_COPY_WHOLE_LEAVES;
    assert_int_equal(base_of_last(&s), 1);
    s.copies[1]->serving = TB_COPY_UNREADY;
    assert_int_equal(base_of_last(&s), 0);
    s.copies[0]->key.number = 99; /* it is newer */
    assert_int_equal(base_of_last(&s), VERSIONS);
    s.copies[2]->life = TB_COPY_WHOLE;
    end(&s);
}

static void without_a_reader_elsewhere_nothing_is_encoded(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    s.reader->endpoint.host = s.home.d->host;
    assert_int_equal(base_of_last(&s), VERSIONS);
    end(&s);
}

/* P1: no thread reads the bytes of a base that is given back. */
static void the_work_ends_where_its_base_goes(void **state)
{
    (void)state;
    struct scene s;
    struct tb_export_buffer buffer;
    begin(&s);
    struct tb_copy *last = s.copies[VERSIONS - 1];
    assert_true(tb_copy_shelf_make(last, &buffer));
    tb_copy_shelf_begin(last);
    assert_non_null(last->shelf_work);
    tb_copy_evict(s.copies[2], TB_OK);
    assert_null(last->shelf_work);
    assert_null(last->shelf_base);
    assert_non_null(last->shelf_memory); /* readers of it go on */
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_base_is_the_newest_that_is_whole_ready_and_stays),
        cmocka_unit_test(without_a_reader_elsewhere_nothing_is_encoded),
        cmocka_unit_test(the_work_ends_where_its_base_goes),
    };
    return cmocka_run_group_tests_name("copy_shelf_base", tests, NULL, NULL);
}
