/* plans_scene.c - workers that read one version, for the tests of plans. */
#include "plans_scene.h"
#include "check.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"

void spread(struct site *s)
{
    east_open(s, 8);
    s->left_out = NOT_STORE | NOT_LANDING | NOT_PEERS | NOT_TELL | 1u << TB_CATALOG_GO;
    rank_begins(s);
    CHECK_OK(version_open(s, "rank", 5, 1, 5));
    CHECK_OK(seal(s, "rank", 5, 0, 50));
    land(s, 5, 0, 4);
    const char *const names[] = {"a", "b", "c"};
    for (uint32_t i = 0; i < 3; i++) {
        come(s, names[i]);
        CHECK_OK(join(s, names[i], names[i], 0, 1));
    }
    hush(s);
}

uint64_t plan_of(struct site *s, const char *worker)
{
    uint32_t cursor = 0;
    struct tb_catalog_reference_view view;
    const struct tb_id id = session_of(worker);
    while (tb_catalog_reference_at(s->c, &cursor, &view))
        if (view.kind == TB_REFERENCE_WORKER && tb_id_equal(&view.session, &id)) return view.plan;
    return 0;
}

enum tb_status hop_lost(struct site *s, const char *worker, uint64_t plan)
{
    const struct tb_id session = session_of(worker), v5 = id_of(5);
    return tb_catalog_hop_lost(s->c, s->now, &session, &v5, plan);
}

bool slow(struct site *s, const char *worker)
{
    uint32_t cursor = 0;
    struct tb_catalog_reference_view view;
    const struct tb_id id = session_of(worker);
    while (tb_catalog_reference_at(s->c, &cursor, &view))
        if (view.kind == TB_REFERENCE_WORKER && tb_id_equal(&view.session, &id)) return view.slow;
    return false;
}
