/* catalog_stories.c - see catalog_stories.h. */
#include "catalog_stories.h"

#include "check.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/crossing_answers.h"
#include "gateway/catalog/leases.h"
#include "gateway/catalog/sites.h"
#include "gateway/catalog/unpublish.h"
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"

void home_story(struct site *s, unsigned step)
{
    const struct tb_id v2 = id_of(2);
    switch (step) {
    case 0:
        come(s, "rank");
        break;
    case 1:
        CHECK_OK(run_open(s, "rank", "a", 900));
        break;
    case 2:
        CHECK_OK(version_open(s, "rank", 1, 2, 1));
        break;
    case 3:
        CHECK_OK(seal(s, "rank", 1, 0, 1));
        break;
    case 4:
        land(s, 1, 0, 4);
        break;
    case 5:
        CHECK_OK(seal(s, "rank", 1, 1, 2));
        break;
    case 6:
        come(s, "w0");
        come(s, "w1");
        break;
    case 7:
        CHECK_OK(join(s, "w0", "g", 0, 2));
        break;
    case 8:
        CHECK_OK(join(s, "w1", "g", 1, 2));
        (void)wait_for(s, "w0", TB_CATALOG_WAIT_EXACT, 2, 0, 60000);
        break;
    case 9:
        CHECK_OK(stage(s, "w0", 1));
        break;
    case 10:
        land(s, 1, 0, SHARD_CHUNKS);
        land(s, 1, 1, SHARD_CHUNKS);
        break; /* kept */
    case 11:
        (void)staged(s, "w0", 1);
        break;
    case 12:
        (void)staged(s, "w1", 1);
        break; /* go */
    case 13:
        CHECK_OK(activate(s, "w0", 1));
        break;
    case 14:
        CHECK_OK(activated(s, "w0", 1));
        break;
    case 15:
        switch_to(s, "w1", 1);
        publish_whole(s, "rank", 2);
        break;
    case 16:
        CHECK_OK(stage(s, "w1", 2));
        break; /* a second attempt */
    case 17:
        CHECK_OK(tb_catalog_withdraw(s->c, s->now, &v2, "operator"));
        break;
    default:
        publish_whole(s, "rank", 3);
        break;
    }
}

void remote_story(struct site *s, unsigned step)
{
    const struct tb_name east = name_of("east"), north = name_of("north");
    const struct tb_id v1 = id_of(1), rank = session_of("w1");
    switch (step) {
    case 0:
        CHECK_OK(tb_catalog_site_up(s->c, s->now, &east, true));
        break;
    case 1:
        CHECK_OK(hear(s, "east", 1, TB_VERSION_OPEN));
        break;
    case 2:
        CHECK_OK(hear(s, "east", 1, TB_VERSION_READY));
        break;
    case 3:
        cross_begin(s, 1);
        break;
    case 4:
        come(s, "w0");
        come(s, "w1");
        CHECK_OK(join(s, "w0", "g", 0, 2));
        CHECK_OK(join(s, "w1", "g", 1, 2));
        break;
    case 5:
        CHECK_OK(stage(s, "w0", 1));
        land(s, 1, 0, 4);
        break;
    case 6:
        land(s, 1, 0, SHARD_CHUNKS);
        break;
    case 7:
        (void)staged(s, "w0", 1);
        (void)staged(s, "w1", 1);
        break;
    case 8:
        switch_to(s, "w0", 1);
        switch_to(s, "w1", 1);
        break;
    case 9:
        CHECK_OK(hear(s, "east", 2, TB_VERSION_KEPT));
        CHECK_OK(tb_catalog_site_up(s->c, s->now, &north, true));
        break;
    case 10:
        cross_whole(s, 2);
        break;
    case 11:
        CHECK_OK(stage(s, "w0", 2));
        break;
    case 12:
        tb_catalog_session_detach(s->c, s->now, &rank);
        break;
    case 13:
        CHECK_OK(hear(s, "east", 2, TB_VERSION_ENDED_WITHDRAWN));
        break;
    default:
        CHECK_OK(tb_catalog_site_up(s->c, s->now, &east, false));
        (void)!tb_catalog_pin(s->c, s->now, &v1, true, "ann");
        break;
    }
}

/* How versions end at home: lost with a rank, broken, shut out by a newer run. */
void ends_story(struct site *s, unsigned step)
{
    const struct tb_id v2 = id_of(2), rank = session_of("rank");
    switch (step) {
    case 0:
        come(s, "rank");
        CHECK_OK(run_open(s, "rank", "a", 900));
        CHECK_OK(version_open(s, "rank", 1, 2, 1));
        break;
    case 1:
        CHECK_OK(seal(s, "rank", 1, 0, 1));
        tb_catalog_session_close(s->c, s->now, &rank);
        break; /* lost */
    case 2:
        come(s, "rank");
        CHECK_OK(run_open(s, "rank", "a", 900));
        CHECK_OK(version_open(s, "rank", 2, 1, 2));
        CHECK_OK(seal(s, "rank", 2, 0, 2));
        land(s, 2, 0, 4);
        break;
    case 3:
        CHECK_STATUS(tb_catalog_chunk_bad(s->c, s->now, &v2, 0, 3, &rank), TB_AGAIN);
        break;
    case 4:
        CHECK_STATUS(tb_catalog_chunk_bad(s->c, s->now, &v2, 0, 3, &rank), TB_VERSION_BROKEN);
        break; /* evicting */
    case 5:
        CHECK_OK(tb_catalog_evicted(s->c, s->now, &v2));
        break;
    case 6:
        CHECK_OK(version_open(s, "rank", 3, 1, 3));
        break;
    default:
        CHECK_OK(run_open(s, "rank", "b", 901));
        break; /* abandoned */
    }
}

/* Versions that stay in the arena, and versions that go. */
void room_story(struct site *s, unsigned step)
{
    const struct tb_id v1 = id_of(1);
    const struct tb_name north = name_of("north");
    struct tb_catalog_room room;
    switch (step) {
    case 0:
        rank_begins(s);
        publish_whole(s, "rank", 1);
        break;
    case 1:
        publish_whole(s, "rank", 2);
        break;
    case 2:
        CHECK_OK(tb_catalog_pin(s->c, s->now, &v1, true, "ann"));
        break;
    case 3:
        publish_whole(s, "rank", 3);
        break;
    case 4:
        CHECK_OK(tb_catalog_base(s->c, s->now, &v1, true));
        CHECK_OK(tb_catalog_pin(s->c, s->now, &v1, false, "ann"));
        break;
    case 5:
        CHECK_OK(tb_catalog_base(s->c, s->now, &v1, false));
        break; /* evicting */
    case 6:
        CHECK_OK(tb_catalog_evicted(s->c, s->now, &v1));
        break; /* retired */
    case 7:
        name_durable(s, "north");
        CHECK_OK(tb_catalog_site_up(s->c, s->now, &north, true));
        CHECK_OK(tb_catalog_site_progress(
            s->c, s->now,
            &(struct tb_catalog_site_progress){
                .site = north, .uid = id_of(2), .held_chunks = SHARD_CHUNKS, .whole = true, .itself = true}));
        break;
    default:
        CHECK_STATUS(tb_catalog_make_room(s->c, s->now, SHARD_BYTES, &room), TB_AGAIN);
        break;
    }
}

/* A site that has what rotted here says so. */
static void offer(struct site *s, const char *from, uint64_t uid)
{
    const struct tb_id id = id_of(uid);
    const struct tb_name site = name_of(from);
    struct tb_catalog_version_view v;
    assert_true(tb_catalog_version_get(s->c, &id, &v));
    CHECK_OK(tb_catalog_remote_version(s->c, s->now, &site, &v.key, TB_VERSION_KEPT));
}

/* A chunk rots at home when its rank is gone: it is asked of a site that may have it. */
void rot_story(struct site *s, unsigned step)
{
    const struct tb_id v1 = id_of(1), rank = session_of("rank"), w1 = session_of("w1");
    const struct tb_name north = name_of("north");
    switch (step) {
    case 0:
        rank_begins(s);
        publish_whole(s, "rank", 1);
        come(s, "w0");
        CHECK_OK(join(s, "w0", "g", 0, 1));
        CHECK_OK(stage(s, "w0", 1));
        CHECK_OK(export_of(s, "w0", 1, 6));
        break;
    case 1:
        tb_catalog_session_close(s->c, s->now, &rank);
        break;
    case 2:
        CHECK_OK(tb_catalog_arena_shrunk(s->c, s->now, &v1, 0, SHARD_CHUNKS - 1));
        break;
    case 3:
        CHECK_OK(tb_catalog_site_up(s->c, s->now, &north, true));
        offer(s, "north", 1);
        break;
    case 4:
        CHECK_OK(tb_catalog_crossing_begun(s->c, s->now, &v1));
        break;
    case 5:
        CHECK_OK(tb_catalog_crossing_refused(s->c, s->now, &v1));
        break;
    case 6:
        CHECK_OK(progress(s, "w0", 1, SHARD_CHUNKS));
        break;
    case 7:
        land(s, 1, 0, SHARD_CHUNKS);
        break;
    default:
        come(s, "w1");
        CHECK_OK(join(s, "w1", "h", 0, 1));
        CHECK_OK(stage(s, "w1", 1));
        CHECK_OK(tb_catalog_export(s->c, s->now, &w1, &v1, 0, 5, false));
        break; /* it reads only */
    }
}

/* A rank takes its memory back before anybody has it, one shard of it for good. */
void unpublish_story(struct site *s, unsigned step)
{
    static const char *const renewing[] = {"rank", NULL};
    const struct tb_id v1 = id_of(1), rank = session_of("rank");
    const struct tb_catalog_seal again = {.session = rank,
                                          .uid = v1,
                                          .shard = 0,
                                          .root = root_of(1),
                                          .chunk_count = SHARD_CHUNKS,
                                          .bytes = SHARD_BYTES,
                                          .export_id = 2};
    switch (step) {
    case 0:
        rank_begins(s);
        CHECK_OK(version_open(s, "rank", 1, 2, 1));
        CHECK_OK(seal(s, "rank", 1, 0, 1));
        CHECK_OK(seal(s, "rank", 1, 1, 2));
        break; /* ready */
    case 1:
        CHECK_OK(tb_catalog_unpublish(s->c, s->now, &rank, &v1, TB_CATALOG_ALL_SHARDS, TB_SECONDS(5)));
        break;
    case 2:
        CHECK_STATUS(tb_catalog_unpublish_gone(s->c, s->now, &rank, &v1, 1, TB_SECONDS(5)), TB_DONE_BEFORE);
        break;
    case 3:
        CHECK_STATUS(tb_catalog_seal(s->c, s->now, &again), TB_DONE_BEFORE);
        break; /* that shard is back in sight */
    default:
        pass_ms(s, 6000, renewing);
        break; /* lost */
    }
}

/* Ends of crossings: put off, given up for a newer one, hopeless, given up at home. */
void crossing_story(struct site *s, unsigned step)
{
    const struct tb_name east = name_of("east"), policy = name_of("policy");
    const struct tb_id v1 = id_of(1), v2 = id_of(2), v3 = id_of(3), w0 = session_of("w0");
    switch (step) {
    case 0:
        CHECK_OK(tb_catalog_site_up(s->c, s->now, &east, true));
        CHECK_OK(hear(s, "east", 1, TB_VERSION_READY));
        break;
    case 1:
        CHECK_OK(tb_catalog_crossing_refused(s->c, s->now, &v1));
        break;
    case 2:
        pass_ms(s, 1100, NULL);
        cross_begin(s, 1);
        CHECK_OK(hear(s, "east", 2, TB_VERSION_READY));
        break;
    case 3:
        CHECK_OK(tb_catalog_crossing_abandon(s->c, s->now, &v1));
        break;
    case 4:
        CHECK_OK(tb_catalog_evicted(s->c, s->now, &v1));
        CHECK_OK(tb_catalog_crossing_hopeless(s->c, s->now, &v2));
        break;
    case 5:
        come(s, "w0");
        CHECK_OK(hear(s, "east", 3, TB_VERSION_READY));
        (void)wait_for(s, "w0", TB_CATALOG_WAIT_EXACT, 3, 0, 60000);
        CHECK_OK(join(s, "w0", "g", 0, 1));
        CHECK_OK(stage(s, "w0", 3));
        break; /* behind nobody yet */
    case 6:
        cross_begin(s, 3);
        land(s, 3, 0, 4);
        come(s, "w1");
        break;
    case 7:
        CHECK_OK(join(s, "w1", "h", 0, 1));
        CHECK_OK(export_of(s, "w0", 3, 2));
        CHECK_OK(stage(s, "w1", 3));
        break; /* one behind the other */
    case 8:
        land(s, 3, 0, SHARD_CHUNKS);
        CHECK_OK(hear(s, "east", 3, TB_VERSION_ENDED_LOST));
        break; /* here all of it is */
    default:
        CHECK_OK(tb_catalog_site_progress(
            s->c, s->now,
            &(struct tb_catalog_site_progress){.site = name_of("north"), .uid = v3, .held_chunks = 4}));
        tb_catalog_session_silent(s->c, s->now, &w0);
        tb_catalog_unsaved(s->c, &policy, &v3);
        break;
    }
}

static void restore(struct site *s, uint64_t uid, enum tb_catalog_state state, uint8_t root)
{
    struct tb_version_key key = {.uid = id_of(uid),
                                 .model = name_of("policy"),
                                 .run = id_of(900),
                                 .run_order = 1,
                                 .number = uid,
                                 .shard_count = 1};
    if (root != 0) key.root = root_of(root);
    CHECK_OK(tb_catalog_restore_version(s->c, &key, state, SHARD_BYTES, false));
}

/* Home starts again: the store, the arena, the rank and a worker say what was. */
void restart_story(struct site *s, unsigned step)
{
    static const char *const renewing[] = {"rank", "w0", NULL};
    const struct tb_id v1 = id_of(1);
    const struct tb_catalog_shard found = {
        .root = root_of(1), .chunk_count = SHARD_CHUNKS, .bytes = SHARD_BYTES};
    switch (step) {
    case 0:
        CHECK_OK(tb_catalog_restore_run(s->c, &(struct tb_catalog_run){.model = name_of("policy"),
                                                                       .id = id_of(900),
                                                                       .order = 1,
                                                                       .key = "a",
                                                                       .has_last = true,
                                                                       .last_number = 1}));
        break;
    case 1:
        restore(s, 1, TB_VERSION_KEPT, 9);
        restore(s, 2, TB_VERSION_OPEN, 0);
        break;
    case 2:
        CHECK_OK(tb_catalog_arena_shard(s->c, s->now, &v1, 0, &found));
        land(s, 1, 0, SHARD_CHUNKS);
        break;
    case 3:
        come(s, "rank");
        CHECK_OK(run_open(s, "rank", "a", 950));
        CHECK_OK(version_open(s, "rank", 2, 1, 2));
        break;
    case 4:
        come(s, "w0");
        CHECK_OK(join_active(s, "w0", "g", 0, 1, 1));
        CHECK_OK(export_of(s, "w0", 1, SHARD_CHUNKS));
        break;
    case 5:
        CHECK_OK(seal(s, "rank", 2, 0, 2));
        break;
    default:
        pass_ms(s, 11000, renewing);
        break; /* recovery is over */
    }
}
