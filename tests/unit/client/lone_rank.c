#include "unit/client/lone_rank.h"

#include <stdlib.h>
#include <string.h>

#include "unit/check.h"

void lone_rank_open_draining(struct lone_rank *w, uint32_t drain_ms)
{
    memset(w, 0, sizeof *w);
    fake_open(&w->f);
    FAKE_SET(&w->f, drain_ms, drain_ms);
    w->s = fake_session_open(&w->f, "rank0", NULL);
    w->memory = malloc(LONE_RANK_BYTES);
    uint64_t seed = 3;
    for (uint32_t i = 0; i < LONE_RANK_BYTES; i++)
        w->memory[i] = (uint8_t)check_random(&seed);
    const uint64_t shape[] = {LONE_RANK_BYTES};
    const struct tb_tensor_desc t = {
        .name = "t", .dtype = "U8", .rank = 1, .shape = shape, .memory = w->memory};
    CHECK_OK(tb_register(w->s, &t, 1, &w->r));
}

void lone_rank_open(struct lone_rank *w)
{
    lone_rank_open_draining(w, 300);
}

void lone_rank_seal_shards(struct lone_rank *w, uint32_t count)
{
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(w->s, "policy", "k", &run));
    struct tb_publish_options o = {.struct_bytes = sizeof o,
                                   .mode = TB_PUBLISH_IN_PLACE,
                                   .model = "policy",
                                   .run = &run.run,
                                   .number = 1,
                                   .shard_count = count,
                                   .registration = w->r};
    w->info.struct_bytes = sizeof w->info;
    for (; o.shard_index < count; o.shard_index++)
        CHECK_OK(tb_publish(w->s, &o, &w->info));
}

void lone_rank_seal(struct lone_rank *w)
{
    lone_rank_seal_shards(w, 1);
}

void lone_rank_close(struct lone_rank *w)
{
    tb_session_close(w->s);
    free(w->memory);
    fake_close(&w->f);
}

uint32_t lone_rank_said(struct lone_rank *w)
{
    pthread_mutex_lock(&w->f.lock);
    const struct tb_msg_unpublish m = w->f.unpublished;
    pthread_mutex_unlock(&w->f.lock);
    assert_int_equal(m.shard, 0);
    return m.drain_ms;
}

bool lone_rank_said_gone(struct lone_rank *w)
{
    return (lone_rank_said(w) & TB_MSG_UNPUBLISH_GONE) != 0;
}
