/* metrics_readers.c - series of those who read here: workers by model and group, the version that a
 * group uses, what the last update cost; and how long versions took in each stage. */
#include "gateway/web/group_facts.h"
#include "gateway/web/metrics_parts.h"
#include "gateway/web/series.h"
#include "gateway/web/stage_times.h"

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

/* ---- groups ---- */

static const struct tb_series_field of_group[] = {
    {"tombolo_group_members", "members", NULL, "gauge", "Workers that make up the group.", 1},
    {"tombolo_group_present", "present", NULL, "gauge", "Of them, those that are here.", 1},
    {"tombolo_group_activated", "activated", NULL, "gauge", "Of them, those that use the active version.", 1},
    {"tombolo_group_staged", "staged_whole", NULL, "gauge", "Of them, those that have all of the next one.",
     1},
    /* Of the member of the group that took longest. */
    {"tombolo_group_stall_seconds", "stall_ms", "worst", "gauge",
     "The longest stall of a member in its last update.", 1e-3},
    {"tombolo_group_staged_bytes", "staged_bytes", "worst", "gauge",
     "Memory that staging took at a member, the most.", 1},
    {"tombolo_group_proven", "proven", NULL, "gauge",
     "Members that compute from what was sealed, as they showed.", 1},
    {"tombolo_group_differs", "differs", NULL, "gauge", "Members that compute from other bytes.", 1},
    {"tombolo_group_unproven", "unproven", NULL, "gauge", "Members of which neither is known.", 1},
};

static void group_labels(const json_t *group, struct tb_series_label *labels_out)
{
    labels_out[0] = (struct tb_series_label){"model", tb_facts_text(group, "model")};
    labels_out[1] = (struct tb_series_label){"group", tb_facts_text(group, "group")};
    labels_out[2] = (struct tb_series_label){NULL, NULL};
}

void tb_metrics_readers(FILE *out, const json_t *status)
{
    json_t *groups = tb_group_facts(status); /* NULL, for want of memory: fewer series */
    tb_series_fields(out, of_group, COUNT(of_group), groups, group_labels);
    json_decref(groups);
}

/* ---- stages ---- */

void tb_metrics_stages(FILE *out, const struct tb_stage_times *times)
{
    static const char name[] = "tombolo_stage_seconds";
    tb_series_head(out, name, "histogram",
                   "Seconds of versions in each stage of their way to here, since tombolo-web began.");
    for (int stage = 0; stage < TB_STAGES; stage++) {
        struct tb_series_histogram histogram;
        const struct tb_series_label label = {"stage", tb_stage_name((enum tb_stage)stage)};
        tb_stage_times_histogram(times, (enum tb_stage)stage, &histogram);
        tb_series_histogram(out, name, &label, &histogram);
    }
}
