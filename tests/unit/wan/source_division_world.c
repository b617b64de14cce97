/* source_division_world.c - a fixture: sources that send, and a count of all that the divider
 * counts. */
#include "source_division_world.h"

#include <string.h>

#include "tests/unit/check.h"

tb_time_ns divide_world_now(const struct world *w)
{
    return TB_SECONDS(100) + TB_MS(w->ms);
}

void divide_world_init_uneven(struct world *w, uint16_t start, uint32_t small)
{
    memset(w, 0, sizeof *w);
    w->goal = CHUNKS;
    small_place_init(&w->small, CHUNKS, CHUNK_BYTES, &w->place);
    for (uint32_t k = 0; k < small; k++)
        w->small.chunks[k].bytes = CHUNK_BYTES / 16;
    w->memory = test_malloc(tb_divide_bytes_for(&w->place, 1));
    tb_divide_init(&w->d, &w->place, 1, start, w->memory);
}

void divide_world_init(struct world *w, uint16_t start)
{
    divide_world_init_uneven(w, start, 0);
}

void divide_world_fini(struct world *w)
{
    test_free(w->memory);
}

void divide_world_have(struct world *w, struct sender *s)
{
    struct tb_held_word words[4];
    for (uint32_t i = 0; i < 4; i++)
        words[i] = (struct tb_held_word){i, s->has[i]};
    const struct tb_span span = small_words(words, 4);
    CHECK_OK(tb_divide_has(&w->d, s->source, 0, &span));
}

struct sender *divide_world_source(struct world *w, uint64_t bytes_per_s, uint32_t rtt_ms, uint32_t first,
                                   uint32_t end)
{
    struct sender *s = &w->senders[w->count++];
    *s = (struct sender){.bytes_per_s = bytes_per_s, .rtt_ms = rtt_ms, .stream_count = 1};
    s->source = tb_divide_join(&w->d, divide_world_now(w));
    assert_true(s->source != TB_DIVIDE_NONE);
    for (uint32_t i = 0; i < STREAMS_MAX; i++)
        s->streams[i].begun = CHUNKS;
    tb_divide_rtt(&w->d, s->source, TB_MS(rtt_ms));
    for (uint32_t k = first; k < end; k++)
        tb_bitmap_set(s->has, k);
    divide_world_have(w, s);
    return s;
}

static void arrive(struct world *w, struct sender *s)
{
    for (uint32_t k = 0; k < CHUNKS; k++) {
        if (s->on_way[k] == 0 || s->on_way[k] > w->ms) continue;
        s->on_way[k] = 0;
        if (tb_bitmap_test(w->small.held, k)) {
            w->twice++;
            continue;
        }
        tb_bitmap_set(w->small.held, k);
        w->held++;
    }
}

static uint32_t next_chunk(const struct world *w, const struct sender *s)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        const uint32_t k = (s->next + i) % CHUNKS;
        const uint64_t may = s->has[k / 64] & s->take[k / 64] & ~s->sent[k / 64];
        if ((may >> (k % 64) & 1) != 0 && !tb_bitmap_test(w->small.held, k)) return k;
    }
    return CHUNKS;
}

/* A chunk that was begun is sent to its end. */
static void stream_more(struct world *w, struct sender *s, uint32_t stream)
{
    uint32_t *begun = &s->streams[stream].begun;
    double *credit = &s->streams[stream].credit;
    *credit += (double)s->bytes_per_s * STEP_MS / 1e3 / s->stream_count;
    s->received += (double)s->bytes_per_s * STEP_MS / 1e3 / s->stream_count;
    for (;;) {
        if (*begun == CHUNKS && (*begun = next_chunk(w, s)) == CHUNKS) break;
        const uint32_t bytes = w->small.chunks[*begun].bytes;
        tb_bitmap_set(s->sent, *begun);
        tb_bitmap_set(w->small.claimed, *begun);
        if (*credit < bytes) return;
        s->on_way[*begun] = w->ms + s->rtt_ms / 2;
        s->next = *begun + 1;
        *begun = CHUNKS;
        *credit -= bytes;
        s->chunks_sent++;
    }
    s->received -= *credit;
    *credit = 0; /* idle time is not saved up */
}

static void send_more(struct world *w, struct sender *s)
{
    s->received += (double)s->dropped_per_s * STEP_MS / 1e3;
    for (uint32_t i = 0; i < s->stream_count; i++)
        stream_more(w, s, i);
}

/* A word is known half a round trip later; here: at once, and the way back takes all of it. */
static void told(struct world *w, struct sender *s)
{
    struct tb_held_word words[8];
    uint32_t shard = 0, count;
    while ((count = tb_divide_news(&w->d, s->source, &shard, words, 8)) > 0)
        for (uint32_t i = 0; i < count; i++) {
            s->take[words[i].index] = words[i].word;
            if (s->aimed || words[i].word == 0) continue;
            s->aimed = true;
            s->next = words[i].index * 64 + (uint32_t)__builtin_ctzll(words[i].word);
        }
}

/* ---- what is counted as it changes is what there is ---- */

struct sums {
    uint64_t ours_lacking, theirs_lacking, given, given_ours, landed;
};

static void add_chunk(const struct world *w, uint32_t source, uint32_t k, struct sums *sums)
{
    const struct tb_divide_shard *s = &w->d.shards[0];
    const uint64_t one = UINT64_C(1) << (k % 64), bytes = w->small.chunks[k].bytes;
    const bool is_ours = (s->ours[k / 64] & one) != 0;
    bool near = false;
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *from = &w->d.sources[i];
        near |= from->on && from->near && !from->silent && (s->of[i].has[k / 64] & one) != 0;
    }
    if (((s->seen[k / 64] | s->given[k / 64]) & one) == 0 && !near)
        *(is_ours ? &sums->ours_lacking : &sums->theirs_lacking) += bytes;
    if ((s->of[source].mine[k / 64] & one) != 0) {
        sums->given += bytes;
        sums->given_ours += is_ours ? bytes : 0;
    }
    if (!is_ours && (s->of[source].has[k / 64] & ~s->far[k / 64] & one) != 0) sums->landed += bytes;
}

static void counts_agree(const struct world *w)
{
    for (uint32_t i = 0; i < TB_DIVIDE_SOURCES_MAX; i++) {
        const struct tb_divide_source *from = &w->d.sources[i];
        struct sums sums = {0};
        if (!from->on) continue;
        for (uint32_t k = 0; k < CHUNKS; k++)
            add_chunk(w, i, k, &sums);
        assert_int_equal(w->d.ours_lacking_bytes, sums.ours_lacking);
        assert_int_equal(w->d.theirs_lacking_bytes, sums.theirs_lacking);
        assert_int_equal(from->given_bytes, sums.given);
        assert_int_equal(from->given_ours_bytes, sums.given_ours);
        if (from->near) assert_int_equal(from->landed_bytes, sums.landed);
    }
}

void divide_world_run(struct world *w, uint32_t until_ms)
{
    for (; w->ms < until_ms && w->held < w->goal; w->ms += STEP_MS) {
        for (uint32_t i = 0; i < w->count; i++) {
            struct sender *s = &w->senders[i];
            arrive(w, s);
            if (!w->d.sources[s->source].on) continue;
            tb_divide_received(&w->d, s->source, (uint64_t)s->received, divide_world_now(w));
            if (!s->mute) tb_divide_heard(&w->d, s->source, divide_world_now(w));
        }
        tb_divide_step(&w->d, divide_world_now(w));
        counts_agree(w);
        tb_divide_check(&w->d);
        for (uint32_t i = 0; i < w->count; i++) {
            if (!w->d.sources[w->senders[i].source].on) continue;
            told(w, &w->senders[i]);
            send_more(w, &w->senders[i]);
        }
    }
}
