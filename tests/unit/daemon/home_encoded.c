/* home_encoded.c - at home: of which versions encoded chunks are expected from ranks, until when,
 * and how long a base stays for them (P1, P6, P7).
 *
 * Covers: gateway/daemon/copies/home_landing.c gateway/daemon/copies/copies_check.c */
#include <string.h>

#include "base/allocate.h"
#include "base/clock.h"
#include "gateway/arena/arena.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/daemon/copies/copies.h"
#include "gateway/daemon/copies/copy_table.h"
#include "intra/fabric/fabric_hops.h"
#include "tests/unit/arena/arena_world.h"
#include "tests/unit/check.h"
#include "tests/unit/daemon/daemon_home.h"
#include "wan/send/encoded_chunks.h"

#define SHARD_BYTES ((uint64_t)1 << 20)

struct scene {
    struct home home;
    struct version made[3]; /* the third is another model's */
    struct tb_copy *copies[3];
};

static void copy_make(struct scene *s, unsigned i)
{
    struct tb_daemon *d = s->home.d;
    struct version *v = &s->made[i];
    char error[TB_ARENA_ERROR_BYTES];
    version_make(v, i + 1, 1, SHARD_BYTES);
    if (i == 2) CHECK_OK(tb_name_set(&v->key.model, "other"));
    v->key.uid = (struct tb_id){{(uint8_t)(i + 1)}};
    s->copies[i] = tb_copy_get(d, &v->key);
    assert_non_null(s->copies[i]);
    CHECK_OK(tb_arena_region_new(d->arena, &v->key, &s->copies[i]->region, error));
    CHECK_OK(tb_arena_shard_reserve(s->copies[i]->region, 0, v->list[0], error));
}

static void begin(struct scene *s)
{
    memset(s, 0, sizeof *s);
    home_new(&s->home);
    home_start(&s->home);
    assert_non_null(s->home.d->encoded_chunks);
    for (unsigned i = 0; i < 3; i++)
        copy_make(s, i);
}

static void end(struct scene *s)
{
    home_end(&s->home);
    home_free(&s->home);
    for (unsigned i = 0; i < 3; i++)
        version_fini(&s->made[i]);
}

static uint32_t pairs_after(struct scene *s, const struct tb_id *base)
{
    struct tb_encoded_chunks_stats stats;
    tb_home_landing_expects(s->copies[1], 0, base);
    tb_encoded_chunks_stats(s->home.d->encoded_chunks, &stats);
    return stats.pairs;
}

/* P7: a rank names the base of its deltas. Nothing is expected of a base that is no other
 * version of its model, or is not here. */
static void a_base_is_a_version_of_the_model(void **state)
{
    (void)state;
    struct scene s;
    const struct tb_id unknown = {{99}}, none = {{0}};
    begin(&s);
    assert_int_equal(pairs_after(&s, &none), 0);
    assert_int_equal(pairs_after(&s, &unknown), 0);
    assert_int_equal(pairs_after(&s, &s.made[1].key.uid), 0); /* itself */
    assert_int_equal(pairs_after(&s, &s.made[2].key.uid), 0); /* another model's */
    assert_int_equal(pairs_after(&s, &s.made[0].key.uid), 1);
    end(&s);
}

/* P6: a shard that is whole here is read from no rank, and nobody waits for what that encodes. */
static void nothing_is_expected_of_a_whole_shard(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    version_land_all(&s.made[1], s.copies[1]->region);
    assert_int_equal(pairs_after(&s, &s.made[0].key.uid), 0);
    end(&s);
}

static uint32_t hops_of(const struct tb_copy *copy)
{
    uint32_t count = 0;
    for (const struct tb_copy_hop *h = copy->hops; h != NULL; h = h->next)
        count++;
    return count;
}

static void hop_make(struct tb_copy *copy, bool for_encoded_chunks)
{
    struct tb_copy_hop *h = tb_calloc(1, sizeof *h);
    assert_non_null(h);
    *h = (struct tb_copy_hop){.next = copy->hops,
                              .copy = copy,
                              .retry_at = TB_TIME_NEVER,
                              .for_encoded_chunks = for_encoded_chunks};
    copy->hops = h;
}

/* P7: more notes than there is room for: waiters for chunks try again, and hops that
 * none are wanted of go. */
static void lost_notes_leave_no_hop_behind(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    hop_make(s.copies[0], true);
    hop_make(s.copies[0], false);
    hop_make(s.copies[1], false);
    s.copies[1]->life = TB_COPY_WHOLE;
    s.home.d->hop_notes_lost = true;
    tb_home_landing_wake(&s.home.d->hop_wake);
    assert_int_equal(hops_of(s.copies[0]), 1);
    assert_false(s.copies[0]->hops->for_encoded_chunks);
    assert_int_equal(hops_of(s.copies[1]), 0);
    s.copies[1]->life = TB_COPY_RESTS;
    end(&s);
}

/* Of hops that are open in name only. */
void __wrap_tb_hop_close_counted(struct tb_hop *hop, struct tb_hop_stats *last_out);
void __wrap_tb_hop_close_counted(struct tb_hop *hop, struct tb_hop_stats *last_out)
{
    (void)hop;
    *last_out = (struct tb_hop_stats){.bytes_read = 0};
}

/* All that its rank encoded has come, which took so long. */
struct brought {
    unsigned classes;
    uint64_t raw_bytes, wire_bytes;
    tb_time_ns took_ns;
};

static void hop_ends(struct scene *s, struct tb_copy *copy, const struct brought *brought)
{
    struct tb_daemon *d = s->home.d;
    hop_make(copy, true);
    struct tb_copy_hop *h = copy->hops;
    h->hop = (struct tb_hop *)h; /* never looked at */
    h->serial = ++d->next_hop;
    h->encoded_chunks = d->encoded_chunks;
    h->opened_at = tb_clock_now() - brought->took_ns;
    atomic_store(&h->classes, brought->classes);
    atomic_store(&h->raw_bytes, brought->raw_bytes);
    atomic_store(&h->wire_bytes, brought->wire_bytes);
    pthread_mutex_lock(&d->hop_lock);
    d->hop_notes[d->hop_note_count++] = (struct tb_home_hop_note){h->serial, {.kind = TB_HOP_WHOLE}};
    pthread_mutex_unlock(&d->hop_lock);
    tb_home_landing_wake(&d->hop_wake);
    assert_int_equal(hops_of(copy), 0);
}

/* P1: the bytes of a base stay until no hop decodes from them. The room of copies marks that the
 * base leaves, and the dispatcher ends the hops. */
static void a_base_leaves_behind_the_hops_that_decode_from_it(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    struct tb_daemon *d = s.home.d;
    struct tb_copy *base = s.copies[0];
    const struct tb_id uid = base->key.uid;
    hop_make(s.copies[1], false);
    struct tb_copy_hop *h = s.copies[1]->hops;
    h->hop = (struct tb_hop *)h; /* never looked at */
    h->base = base;
    base->used_by |= TB_COPY_USED_BY_LANDING;
    tb_copy_evict(base, TB_OK);
    (void)tb_copies_tick(d);
    assert_ptr_equal(tb_copy_find(d, &uid), base);
    tb_daemon_turn(d);
    assert_null(h->hop);
    assert_int_equal(base->used_by, 0);
    (void)tb_copies_tick(d);
    assert_null(tb_copy_find(d, &uid));
    end(&s);
}

/* The slowest rank says how a step came, by its own time, and of its own model; in long times, as
 * machines of tests are slow. */
static void the_slowest_rank_says_the_pace_of_its_model(void **state)
{
    (void)state;
    struct scene s;
    begin(&s);
    const struct tb_choice_pace *paces = s.home.d->paces;
    s.copies[0]->key.shard_count = 2; /* of two ranks */
    hop_ends(&s, s.copies[0], &(struct brought){8, 4000000, 40000, TB_SECONDS(50)});
    assert_in_range((uint64_t)paces[0].bytes_per_s, 150000, 160000);
    hop_ends(&s, s.copies[0], &(struct brought){8, 1000000, 20000, TB_SECONDS(100)});
    assert_in_range((uint64_t)paces[0].bytes_per_s, 19000, 20000);
    assert_int_equal((uint64_t)paces[0].saving, 50);
    hop_ends(&s, s.copies[0], &(struct brought){8, 4000000, 40000, TB_SECONDS(50)});
    assert_in_range((uint64_t)paces[0].bytes_per_s, 19000, 20000);
    hop_ends(&s, s.copies[2], &(struct brought){1, 4000000, 40000, TB_SECONDS(50)}); /* another model's */
    assert_int_equal(paces[0].classes, 8);
    assert_int_equal(paces[1].classes, 0); /* it is not one of ours */
    s.copies[0]->key.shard_count = 1;
    hop_ends(&s, s.copies[1], &(struct brought){1, 4000000, 40000, TB_SECONDS(50)}); /* the next step */
    assert_int_equal(paces[0].classes, 1);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_base_is_a_version_of_the_model),
        cmocka_unit_test(nothing_is_expected_of_a_whole_shard),
        cmocka_unit_test(lost_notes_leave_no_hop_behind),
        cmocka_unit_test(a_base_leaves_behind_the_hops_that_decode_from_it),
        cmocka_unit_test(the_slowest_rank_says_the_pace_of_its_model),
    };
    return cmocka_run_group_tests_name("home_objects", tests, NULL, NULL);
}
