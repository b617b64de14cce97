/* stage_times.c - see stage_times.h. */
#include "gateway/web/stage_times.h"

#include <string.h>

#include "base/assert.h"
#include "gateway/web/web_facts.h"

static const double bounds[TB_STAGE_BOUNDS] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                               1,     2.5,  5,     10,   30,  120,  600};

static const struct {
    const char *name, *key;
} stages[TB_STAGES] = {
    {"queued", "queued_s"},
    {"manifests", "manifests_s"},
    {"landing", "landing_s"},
    {"activating", "activating_s"},
};

const char *tb_stage_name(enum tb_stage stage)
{
    TB_ASSERT(stage < TB_STAGES);
    return stages[stage].name;
}

static void count(struct tb_stage_times *times, enum tb_stage stage, double seconds)
{
    size_t bucket = 0;
    while (bucket < TB_STAGE_BOUNDS && seconds > bounds[bucket])
        bucket++;
    times->counts[stage][bucket]++;
    times->sums[stage] += seconds;
}

/* Lists are ordered, so a version stands near its place of the answer before. */
static const struct tb_stage_row *row_before(const struct tb_stage_times *times, const char *uid)
{
    const uint32_t before = 1 - times->now, count = times->row_count[before];
    for (uint32_t i = 0; i < count; i++) {
        const struct tb_stage_row *row = &times->rows[before][(times->row_count[times->now] + i) % count];
        if (strcmp(row->uid, uid) == 0) return row;
    }
    return NULL;
}

static bool later_began(const json_t *said, enum tb_stage stage)
{
    for (int later = (int)stage + 1; later < TB_STAGES; later++)
        if (tb_facts_is_number(said, stages[later].key)) return true;
    return false;
}

/* A stage is over once a later one has begun, or when two answers say the same of it. Where the
 * first answer said that already, it was over before. */
static void see_stage(struct tb_stage_times *times, struct tb_stage_row *row, const json_t *said,
                      enum tb_stage stage)
{
    const uint8_t bit = (uint8_t)(1u << stage);
    const double before_s = row->last[stage], seconds = tb_facts_number(said, stages[stage].key);
    if (!tb_facts_is_number(said, stages[stage].key)) return;
    const bool stands = before_s >= 0 && !(seconds < before_s) && !(seconds > before_s);
    row->last[stage] = seconds;
    if ((row->counted & bit) != 0 || !(stands || later_began(said, stage))) return;
    row->counted |= bit;
    if (times->answers > 1 || (times->answers == 1 && !stands)) count(times, stage, seconds);
}

static void see_version(struct tb_stage_times *times, const json_t *version)
{
    const char *uid = tb_facts_text(version, "uid");
    struct tb_stage_row *row = &times->rows[times->now][times->row_count[times->now]];
    if (*uid == '\0' || strlen(uid) >= sizeof row->uid) return;
    const struct tb_stage_row *before = row_before(times, uid);
    *row = before != NULL ? *before : (struct tb_stage_row){.last = {-1, -1, -1, -1}};
    memcpy(row->uid, uid, strlen(uid) + 1);
    for (int stage = 0; stage < TB_STAGES; stage++)
        see_stage(times, row, json_object_get(version, "stages"), (enum tb_stage)stage);
    times->row_count[times->now]++;
}

void tb_stage_times_see(struct tb_stage_times *times, const json_t *versions)
{
    times->now = 1 - times->now;
    times->row_count[times->now] = 0;
    for (size_t i = 0; i < json_array_size(versions) && i < TB_STAGE_VERSIONS_MAX; i++)
        see_version(times, json_array_get(versions, i));
    if (times->answers < 2) times->answers++;
}

void tb_stage_times_histogram(const struct tb_stage_times *times, enum tb_stage stage,
                              struct tb_series_histogram *histogram_out)
{
    TB_ASSERT(stage < TB_STAGES);
    *histogram_out =
        (struct tb_series_histogram){bounds, times->counts[stage], TB_STAGE_BOUNDS, times->sums[stage]};
}
