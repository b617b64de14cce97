/* session_repair.c - what workers say of damaged chunks: reports, and answers of those that were
 * asked to look. */
#include "gateway/catalog/versions.h"
#include "gateway/catalog/views.h"
#include "gateway/catalog/workers.h"
#include "gateway/daemon/daemon.h"

#include "base/assert.h"
#include "gateway/daemon/copies/home_landing.h"
#include "gateway/daemon/copies/repair.h"
#include "gateway/daemon/sessions/session_repair.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_table.h"
#include "intra/session_msg.h"

/* A rank's library saw that sealed memory was written to. It says so of its own memory, and once is
 * enough. */
static void written_to(struct tb_worker_session *s, const struct tb_msg_chunk_bad *m)
{
    TB_ASSERT(m->plan == 0); /* a report of its own memory names no plan */
    struct tb_daemon *d = s->d;
    enum tb_status status = TB_AGAIN;
    for (int times = 0; times < 2 && status == TB_AGAIN; times++)
        status = tb_catalog_chunk_bad(d->catalog, tb_clock_now(), &m->uid, m->shard, m->chunk, &s->id);
    tb_log(TB_LOG_ERROR, "publish.written_to", "rank=%s shard=%u chunk=%u status=%s", s->name.text, m->shard,
           m->chunk, tb_status_name(status));
}

/* P8: of a version that is unknown here there is nothing to lose, and a worker without the right to
 * read it says nothing of its chunks. */
bool tb_worker_may_report(struct tb_worker_session *s, const struct tb_id *uid)
{
    struct tb_catalog_version_view view;
    return tb_catalog_version_get(s->d->catalog, uid, &view) &&
           tb_worker_may(s, &view.key.model, false) == TB_OK;
}

/* Of its own memory: it sealed that shard, or has the right to. */
static bool may_report_own(struct tb_worker_session *s, const struct tb_msg_chunk_bad *m)
{
    struct tb_catalog_version_view view;
    if (tb_worker_export_find(s, &m->uid, m->shard) != NULL) return true;
    return tb_catalog_version_get(s->d->catalog, &m->uid, &view) &&
           tb_worker_may(s, &view.key.model, true) == TB_OK;
}

/* The holder is asked to look: this gateway itself, or the worker that the plan names. */
static void look_at_source(struct tb_worker_session *s, uint64_t plan, const struct tb_report *report)
{
    TB_ASSERT(plan != 0);
    struct tb_daemon *d = s->d;
    struct tb_catalog_reference_view source;
    const bool known = tb_catalog_plan_get(d->catalog, &s->id, &report->uid, plan, &source);
    const char *name = "unknown", *action = "replan";
    if (known && source.from_gateway) {
        name = "gateway";
        action = tb_repair_action(report->encoded ? tb_repair_shelf(d, report) : tb_repair_arena(d, report));
    } else if (known) {
        name = source.upstream_name.text;
        if (tb_repair_ask(d, &source.upstream, report)) action = "ask_its_holder";
    }
    tb_log(TB_LOG_WARN, report->encoded ? "hop.encoded_bad" : "hop.chunk_bad",
           "worker=%s source=%s shard=%u chunk=%u action=%s", s->name.text, name, report->shard,
           report->chunk, action);
}

enum tb_status tb_worker_chunk_bad_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_msg_chunk_bad m;
    if (tb_msg_chunk_bad_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    if (m.plan == 0 ? !may_report_own(s, &m) : !tb_worker_may_report(s, &m.uid)) return TB_OK;
    if (m.plan == 0) {
        d->counters.chunks_bad++;
        written_to(s, &m);
        return TB_OK;
    }
    const struct tb_report report = {m.uid, m.shard, m.chunk, tb_repair_reporter(s), m.encoded};
    d->counters.chunks_bad += m.encoded ? 0 : 1;
    look_at_source(s, m.plan, &report);
    /* A chunk whose delta was bad comes whole, from the same source. */
    if (!m.encoded) TB_MOOT(tb_catalog_hop_lost(d->catalog, tb_clock_now(), &s->id, &m.uid, m.plan));
    return TB_OK;
}

static const char *found_action(uint8_t found)
{
    switch (found) {
    case TB_MSG_FOUND_GOOD:
        return "own_copy_is_good";
    case TB_MSG_FOUND_AGAIN:
        return "fetch_again";
    case TB_MSG_FOUND_GONE:
        return "not_served";
    case TB_MSG_FOUND_MENDED:
        return "copied_again";
    default:
        return "spoiled";
    }
}

enum tb_status tb_worker_doubted_frame(struct tb_worker_session *s, struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    struct tb_msg_doubted m;
    char uid[TB_HEX_CHARS];
    if (tb_msg_doubted_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED;
    if (m.found < TB_MSG_FOUND_GOOD || m.found > TB_MSG_FOUND_SPOILED) return TB_PEER_GARBLED;
    if (!tb_repair_asked(d, &s->id, &m)) return TB_OK;
    d->counters.chunks_rotted += m.found != TB_MSG_FOUND_GOOD;
    d->counters.chunks_repaired += m.found == TB_MSG_FOUND_MENDED;
    struct tb_worker_export *staging = tb_worker_export_find(s, &m.uid, TB_CATALOG_ALL_SHARDS);
    if (staging != NULL) staging->again += m.found == TB_MSG_FOUND_AGAIN;
    tb_id_format(&m.uid, uid);
    tb_log(TB_LOG_WARN, "holder.looked", "worker=%s uid=%s shard=%u chunk=%u action=%s", s->name.text, uid,
           m.shard, m.chunk, found_action(m.found));
    tb_home_landing_looked(s, &m);
    return TB_OK;
}

void tb_worker_staging_whole(struct tb_worker_session *s, const struct tb_id *uid)
{
    struct tb_worker_export *staging = tb_worker_export_find(s, uid, TB_CATALOG_ALL_SHARDS);
    char hex[TB_HEX_CHARS];
    if (staging == NULL || staging->again == 0) return;
    s->d->counters.chunks_repaired += staging->again;
    tb_id_format(uid, hex);
    tb_log(TB_LOG_INFO, "holder.repaired", "worker=%s uid=%s chunks=%u", s->name.text, hex, staging->again);
    staging->again = 0;
}
