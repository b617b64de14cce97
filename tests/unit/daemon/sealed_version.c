/* sealed_version.c - see sealed_version.h. */
#include "tests/unit/daemon/sealed_version.h"
#include "gateway/catalog/arena_copy.h"
#include "gateway/catalog/versions.h"

#include <string.h>

#include "gateway/arena/arena.h"
#include "gateway/arena/arena_regions.h"
#include "gateway/arena/arena_reserve.h"
#include "gateway/daemon/copies/copy_table.h"
#include "tests/unit/check.h"

static void version_open(struct sealed *s)
{
    struct tb_catalog *c = s->home.d->catalog;
    const tb_time_ns now = tb_clock_now();
    struct tb_catalog_session session = {.id = {{1}}, .identity = "unix:1000"};
    CHECK_OK(tb_name_set(&session.name, "rank"));
    CHECK_OK(tb_name_set(&session.host, "host"));
    CHECK_OK(tb_catalog_session_open(c, now, &session));
    s->rank = session.id;
    const struct tb_catalog_run_request run = {
        .session = s->rank, .model = s->made.key.model, .key = "k", .fresh_id = {{2}}};
    struct tb_catalog_run info;
    bool joined;
    CHECK_OK(tb_catalog_run_open(c, now, &run, &info, &joined));
    const struct tb_catalog_version_request version = {.session = s->rank,
                                                       .model = s->made.key.model,
                                                       .run = info.id,
                                                       .number = 1,
                                                       .shard_count = 1,
                                                       .fresh_uid = {{3}}};
    CHECK_OK(tb_catalog_version_open(c, now, &version, &s->made.key));
}

/* As session_publish.c does with a SEAL. */
static void shard_seal(struct sealed *s)
{
    struct tb_daemon *d = s->home.d;
    const tb_time_ns now = tb_clock_now();
    const struct tb_manifest *m = s->made.list[0];
    const struct tb_catalog_shard info = {m->root, m->layout.id, m->chunk_count, m->bytes,
                                          tb_manifest_decoded_bytes(m)};
    char error[TB_ARENA_ERROR_BYTES];
    s->copy = tb_copy_get(d, &s->made.key);
    assert_non_null(s->copy);
    CHECK_OK(tb_arena_region_new(d->arena, &s->made.key, &s->copy->region, error));
    CHECK_OK(tb_arena_shard_reserve(s->copy->region, 0, m, error));
    const enum tb_status done = tb_arena_digests_done(s->copy->region, 0);
    assert_true(done == TB_OK || done == TB_DONE_BEFORE);
    CHECK_OK(tb_catalog_arena_shard(d->catalog, now, &s->made.key.uid, 0, &info));
    CHECK_OK(tb_catalog_arena_reserved(d->catalog, now, &s->made.key.uid));
    const struct tb_catalog_seal seal = {.session = s->rank,
                                         .uid = s->made.key.uid,
                                         .root = m->root,
                                         .layout_id = m->layout.id,
                                         .chunk_count = m->chunk_count,
                                         .bytes = m->bytes,
                                         .export_id = 1};
    CHECK_OK(tb_catalog_seal(d->catalog, now, &seal));
}

void sealed_begin(struct sealed *s, const char *models)
{
    sealed_begin_with(s, models, HOME_LEASE_MS);
}

void sealed_begin_with(struct sealed *s, const char *models, uint32_t lease_ms)
{
    memset(s, 0, sizeof *s);
    home_new_with(&s->home, models, false);
    s->home.config->session_lease_ms = lease_ms;
    home_start(&s->home);
    version_make(&s->made, 1, 1, SEALED_SHARD_BYTES);
    version_open(s);
    shard_seal(s);
}

void sealed_land(struct sealed *s, uint32_t first, uint32_t end)
{
    for (uint32_t k = first; k < end; k++)
        version_land(&s->made, tb_arena_place(s->copy->region, 0), 0, k);
}

struct tb_catalog_version_view sealed_view(struct sealed *s)
{
    struct tb_catalog_version_view view;
    assert_true(tb_catalog_version_get(s->home.d->catalog, &s->made.key.uid, &view));
    return view;
}

void sealed_end(struct sealed *s)
{
    tb_daemon_turn(s->home.d);
    home_end(&s->home);
    home_free(&s->home);
    version_fini(&s->made);
}
