/* staging_notices.c - what the gateway hears of a staging: its export, its progress, a lost source,
 * a bad chunk, and that it goes. */
#include "intra/client/follow/staging_notices.h"

#include "base/clock.h"
#include "intra/client/follow/staged_use.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"
#include "intra/transport/transport_words.h"

void tb_staging_export_notice(struct tb_session *s, const struct tb_staging *st)
{
    struct tb_request *notice = tb_request_new(s, TB_MSG_EXPORT, 0, st->source_bytes);
    if (notice == NULL) return; /* then nobody reads from here, which harms nobody */
    const struct tb_msg_export m = {.uid = st->uid,
                                    .export_id = st->unserved ? 0 : st->export_id,
                                    .held_chunks = tb_staging_held_chunks(st),
                                    .whole = st->life == TB_STAGING_WHOLE,
                                    .source = {st->source, (uint32_t)st->source_bytes}};
    tb_msg_export_encode(&m, &notice->payload);
    tb_request_post(s, notice);
}

static uint64_t held_bytes(const struct tb_staging *st, uint32_t held)
{
    /* A patch maps more memory than it takes. */
    const uint64_t bytes = st->patch != NULL ? st->memory.count : tb_staging_bytes(st);
    return st->total_chunks == 0 ? 0 : (uint64_t)((double)bytes * held / st->total_chunks);
}

void tb_staging_progress_notice(struct tb_session *s, struct tb_staging *st)
{
    struct tb_request *notice = tb_request_new(s, TB_MSG_PROGRESS, 0, 0);
    if (notice == NULL) return; /* the next one says it */
    const tb_time_ns now = tb_clock_now();
    const uint32_t held = tb_staging_held_chunks(st);
    const uint64_t bytes = held_bytes(st, held);
    const double seconds = (double)tb_time_since(st->told_at, now) / 1e9;
    const uint64_t more = bytes > st->told_bytes ? bytes - st->told_bytes : 0;
    const struct tb_msg_progress m = {.uid = st->uid,
                                      .held_chunks = held,
                                      .total_chunks = st->total_chunks,
                                      .whole = st->life == TB_STAGING_WHOLE,
                                      .bytes_per_s = seconds > 0.001 ? (uint64_t)((double)more / seconds) : 0,
                                      .transport = tb_transport_pack(st->transport, st->why_transport)};
    tb_msg_progress_encode(&m, &notice->payload);
    tb_request_post(s, notice);
    st->told_chunks = held;
    st->told_bytes = bytes;
    st->told_at = now;
}

/* P6: that nothing came is told too, or a worker whose NIC stands still kept its last rate, and its
 * readers stayed behind it. */
void tb_stagings_progress(struct tb_session *s)
{
    TB_ASSERT_LOCKED(s);
    for (struct tb_staging *st = s->stagings; st != NULL; st = st->next) {
        if (st->life != TB_STAGING_READING) continue;
        if (tb_staging_held_chunks(st) != st->told_chunks || (st->hop_opened && s->up))
            tb_staging_progress_notice(s, st);
    }
}

void tb_staging_lost_notice(struct tb_session *s, const struct tb_staging *st, uint64_t plan,
                            enum tb_status why)
{
    struct tb_request *notice = tb_request_new(s, TB_MSG_HOP_LOST, 0, 0);
    if (notice == NULL) return;
    const struct tb_msg_hop_lost m = {.uid = st->uid, .plan = plan, .status_negated = tb_msg_status_put(why)};
    tb_msg_hop_lost_encode(&m, &notice->payload);
    tb_request_post(s, notice);
}

void tb_staging_bad_notice(struct tb_session *s, const struct tb_staging *st, const struct tb_hop_bad *bad)
{
    struct tb_request *notice = tb_request_new(s, TB_MSG_CHUNK_BAD, 0, 0);
    if (notice == NULL) return;
    const struct tb_msg_chunk_bad m = {
        .uid = st->uid, .plan = st->plan, .shard = bad->shard, .chunk = bad->chunk, .encoded = bad->encoded};
    tb_msg_chunk_bad_encode(&m, &notice->payload);
    tb_request_post(s, notice);
}

struct tb_request *tb_release_request(struct tb_session *s, const struct tb_id *uid)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_RELEASE, TB_MSG_REPLY, 0);
    if (request == NULL) return NULL;
    const struct tb_msg_release m = {.uid = *uid};
    tb_msg_release_encode(&m, &request->payload);
    return request;
}

void tb_staging_give_back(struct tb_session *s, const struct tb_staging *st)
{
    TB_ASSERT_LOCKED(s);
    if (st->uses > 1) return;
    tb_requests_withdraw(s, TB_MSG_STAGE, &st->uid, 0);
    tb_request_farewell(s, tb_release_request(s, &st->uid));
}
