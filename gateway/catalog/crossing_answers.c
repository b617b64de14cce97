/* crossing_answers.c - what became of a version that was to cross: begun, refused, given up. */
#include "gateway/catalog/crossing_answers.h"

#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/touched_rows.h"
#include "gateway/catalog/rows/version_changes.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/rules/crossing_rules.h"
#include "gateway/catalog/rules/settle.h"

enum tb_status tb_catalog_crossing_begun(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    uint32_t i;
    struct version *v = tb_version_enter(c, now, uid, &i);
    if (v == NULL) return TB_NOT_FOUND;
    const enum tb_status ended = tb_version_status(c, v);
    if (ended != TB_OK) return ended;
    if (tb_version_cross_begun(v)) return TB_DONE_BEFORE;
    tb_version_crossing_moves(v, TB_VERSION_CROSSING_BEGINS);
    v->moved_at = c->now;
    tb_version_copy_moves(v, TB_VERSION_COPY_RESERVED);
    tb_table_unmark(&c->versions, i, TB_CATALOG_CROSS);
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

bool tb_catalog_crossing_wanted(const struct tb_catalog *c, const struct tb_id *uid)
{
    const uint32_t i = tb_version_find(c, uid);
    return i != NONE &&
           (tb_version_cross_asked(version_at(c, i)) || tb_version_cross_begun(version_at(c, i)));
}

static enum tb_status refuse_until(struct tb_catalog *c, const struct tb_id *uid, tb_time_ns until)
{
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    struct version *v = version_at(c, i);
    tb_version_crossing_moves(v, TB_VERSION_CROSSING_STOPS);
    v->refused_until = until;
    tb_table_unmark(&c->versions, i, TB_CATALOG_CROSS);
    tb_catalog_touch_version(c, i);
    return tb_catalog_settle(c, TB_OK);
}

enum tb_status tb_catalog_crossing_refused(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    return refuse_until(c, uid, tb_time_add(c->now, c->config.retry_ns));
}

enum tb_status tb_catalog_crossing_hopeless(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    return refuse_until(c, uid, TB_TIME_NEVER);
}

enum tb_status tb_catalog_crossing_abandon(struct tb_catalog *c, tb_time_ns now, const struct tb_id *uid)
{
    tb_catalog_enter(c, now);
    const uint32_t i = tb_version_find(c, uid);
    if (i == NONE) return TB_NOT_FOUND;
    if (!tb_version_crossing_may_end(c, version_at(c, i))) return TB_BAD_STATE;
    tb_version_end(c, i, TB_VERSION_IS_ABANDONED, "newer_is_sooner");
    return tb_catalog_settle(c, TB_OK);
}
