/* session_status.c - tb_status: this session as JSON, or what the gateway says of the site or of a
 * version's tensors. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "intra/client/follow/staged_gpu.h"
#include "intra/client/follow/staging.h"
#include "intra/client/follow/staging_table.h"
#include "intra/client/follow/subscription.h"
#include "intra/client/memory/buffers.h"
#include "intra/client/memory/registration.h"
#include "intra/client/memory/reserve.h"
#include "intra/client/publish/publication.h"
#include "intra/client/session/request.h"
#include "intra/client/session/session.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/transport/transport_words.h"

#define SITE_STATUS_MS 10000u

/* Text that grows past its end is counted and not written, so that one walk tells how much is
 * needed. */
struct text {
    char *out;
    uint64_t cap;
    uint64_t used;
};

static void put_char(struct text *t, char c)
{
    if (t->used < t->cap) t->out[t->used] = c;
    t->used++;
}

static void put(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *t, const char *format, ...)
{
    char piece[512];
    va_list args;
    va_start(args, format);
    const int count = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    TB_ASSERT(count >= 0 && (size_t)count < sizeof piece);
    for (int i = 0; i < count; i++)
        put_char(t, piece[i]);
}

/* A name may have any byte: it comes from a configuration. */
static void put_string(struct text *t, const char *text)
{
    put_char(t, '"');
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            put(t, "\\%c", *c);
        else if (*c < 0x20)
            put(t, "\\u%04x", *c);
        else
            put_char(t, (char)*c);
    }
    put_char(t, '"');
}

static void put_uid(struct text *t, const struct tb_id *uid)
{
    char hex[TB_HEX_CHARS];
    tb_id_format(uid, hex);
    put(t, "\"uid\":\"%s\"", hex);
}

static void put_head(struct text *t, const struct tb_session *s)
{
    char hex[TB_HEX_CHARS];
    tb_id_format(&s->id, hex);
    put(t, "{\"schema\":1,\"session\":\"%s\",\"name\":\"%s\",\"host\":\"%s\",\"gateway\":", hex, s->name.text,
        s->host.text);
    put_string(t, s->gateway_text);
    put(t, ",\"up\":%s,\"site\":\"%s\",\"reconnections\":%llu,\"threads\":%u,\"fabric_encrypted\":%s",
        s->up ? "true" : "false", s->welcome.site.text, (unsigned long long)s->reconnections,
        tb_crew_slots(s->crew), s->fabric_trusted ? "false" : "true");
}

static uint64_t mapped_bytes(const struct tb_session *s, const struct tb_registration *r)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < r->want_count; i++)
        if (!r->suspended && tb_buffer_find(s, r->want_memory[i], r->wants[i].bytes) != NULL)
            bytes += r->wants[i].bytes;
    return bytes;
}

static void put_gpu(struct text *t, const struct tb_registration *r)
{
    if (r->gpu == NULL) return;
    struct tb_gpu_facts facts;
    tb_gpu_memory_facts(r->gpu, &facts);
    put(t, ",\"gpu\":{\"device\":%d,\"name\":", facts.device);
    put_string(t, facts.name);
    put(t, ",\"dmabuf\":%s,\"digests\":", facts.dmabuf ? "true" : "false");
    put_string(t, facts.digests);
    put_char(t, '}');
}

static void put_registrations(struct text *t, const struct tb_session *s)
{
    put(t, ",\"registrations\":[");
    for (const struct tb_registration *r = s->registrations; r != NULL; r = r->next) {
        put(t, "%s{\"tensors\":%u,\"bytes\":%llu,\"mapped_bytes\":%llu,\"suspended\":%s,\"subscriptions\":%u",
            r == s->registrations ? "" : ",", r->want_count, (unsigned long long)r->want_bytes,
            (unsigned long long)mapped_bytes(s, r), r->suspended ? "true" : "false", r->subscriptions);
        put_gpu(t, r);
        put_char(t, '}');
    }
    put(t, "]");
}

static void put_reserves(struct text *t, const struct tb_session *s)
{
    put(t, ",\"prepared\":[");
    for (const struct tb_reserve *r = s->reserves; r != NULL; r = r->next)
        put(t,
            "%s{\"what\":\"%s\",\"model\":\"%s\",\"shard\":%u,\"state\":\"%s\",\"bytes\":%llu,"
            "\"ready_bytes\":%llu}",
            r == s->reserves ? "" : ",", tb_reserve_kind_name(r->kind), r->model.text, r->shard,
            tb_reserve_life_name(r->life), (unsigned long long)r->bytes,
            (unsigned long long)tb_reserve_ready_bytes(r));
    const struct tb_reserve_counts *c = &s->reserve_counts;
    put(t, "],\"memory\":{\"taken_bytes\":%llu,\"taken_ready_bytes\":%llu,\"made_bytes\":%llu}",
        (unsigned long long)c->taken_bytes, (unsigned long long)c->taken_ready_bytes,
        (unsigned long long)c->made_bytes);
}

static void put_publications(struct text *t, const struct tb_session *s)
{
    put(t, ",\"published\":[");
    for (const struct tb_publication *p = s->publications; p != NULL; p = p->next) {
        put(t, "%s{", p == s->publications ? "" : ",");
        put_uid(t, &p->uid);
        put(t,
            ",\"model\":\"%s\",\"number\":%llu,\"shard\":%u,\"mode\":\"%s\",\"bytes\":%llu,\"kept\":%s,"
            "\"state\":\"%s\",\"readers\":%u}",
            p->model.text, (unsigned long long)p->number, p->shard, p->in_place ? "in_place" : "shadow",
            (unsigned long long)p->manifest.bytes, p->kept ? "true" : "false", tb_status_name(p->state),
            p->export_id == 0 ? 0 : tb_export_readers(s->fabric, p->export_id));
    }
    put(t, "]");
}

/* By all of its hops: what this version cost the site's network here. */
static void put_read(struct text *t, const struct tb_staging *st)
{
    struct tb_hop_stats now = {0};
    if (st->hop != NULL) tb_hop_stats(st->hop, &now);
    const unsigned long long bytes = st->read.bytes_read + now.bytes_read;
    const unsigned long long encoded = st->read.bytes_encoded + now.bytes_encoded;
    put(t, ",\"read_bytes\":%llu,\"encoded_bytes\":%llu,\"encoded_chunks\":%u", bytes, encoded,
        st->read.chunks_encoded + now.chunks_encoded);
}

static void put_hop(struct text *t, const struct tb_staging *st)
{
    if (st->hop == NULL) return;
    struct tb_hop_stats stats;
    tb_hop_stats(st->hop, &stats);
    const double seconds = (double)tb_time_since(stats.open_at, stats.last_at) / 1e9;
    put(t,
        ",\"hop\":{\"plan\":%llu,\"transport\":\"%s\",\"transport_why\":\"%s\",\"bytes_read\":%llu,"
        "\"bytes_wasted\":%llu,\"bytes_per_s\":%llu}",
        (unsigned long long)st->plan, tb_transport_name(stats.transport), tb_transport_why_text(stats.why),
        (unsigned long long)stats.bytes_read, (unsigned long long)stats.bytes_wasted,
        (unsigned long long)(seconds > 0.001 ? (double)stats.bytes_read / seconds : 0));
}

static void put_update(struct text *t, const struct tb_msg_updated *u)
{
    if (tb_id_is_zero(&u->uid)) {
        put(t, ",\"update\":null");
        return;
    }
    put(t, ",\"update\":{");
    put_uid(t, &u->uid);
    put(t,
        ",\"way\":\"%s\",\"stall_ms\":%llu.%03u,\"staged_bytes\":%llu,\"copied_bytes\":%llu,"
        "\"patched_bytes\":%llu,\"fetched_chunks\":%u}",
        tb_msg_way_name(u->way), (unsigned long long)(u->stall_ns / 1000000),
        (unsigned)(u->stall_ns / 1000 % 1000), /* a program's locale may have a comma in a double */
        (unsigned long long)u->staged_bytes, (unsigned long long)u->copied_bytes,
        (unsigned long long)u->patched_bytes, u->fetched_chunks);
}

/* The result of the last run over the tensors that it computes from. */
static void put_proof(struct text *t, const struct tb_live *l)
{
    const struct tb_msg_proven *m = &l->last;
    if (tb_id_is_zero(&m->uid) && !m->done) {
        put(t, ",\"proof\":null");
        return;
    }
    put(t, ",\"proof\":{");
    put_uid(t, &m->uid);
    put(t,
        ",\"verdict\":\"%s\",\"why\":\"%s\",\"age_s\":%llu.%03u,\"took_ms\":%llu,\"bytes\":%llu,"
        "\"box_bytes\":%llu,\"blake3_bytes\":%llu,\"left_bytes\":%llu,\"bad\":%u,\"tensor\":",
        tb_msg_verdict_name(m->verdict), tb_msg_unprovable_name(m->why),
        (unsigned long long)(tb_time_since(l->last_at, tb_clock_now()) / 1000000000u),
        (unsigned)(tb_time_since(l->last_at, tb_clock_now()) / 1000000u % 1000),
        (unsigned long long)m->took_ms, (unsigned long long)m->bytes, (unsigned long long)m->box_bytes,
        (unsigned long long)m->blake3_bytes, (unsigned long long)m->left_bytes, m->bad);
    put_string(t, m->tensor.text);
    put_char(t, '}');
}

static void put_subscriptions(struct text *t, const struct tb_session *s)
{
    static const char *const updates[] = {"copy", "switch", "patch"};
    put(t, ",\"subscriptions\":[");
    for (const struct tb_subscription *sub = s->subscriptions; sub != NULL; sub = sub->next) {
        put(t,
            "%s{\"model\":\"%s\",\"group\":\"%s\",\"member_index\":%u,\"member_count\":%u,\"asked\":\"%s\"",
            sub == s->subscriptions ? "" : ",", sub->model.text, sub->group.text, sub->member_index,
            sub->member_count, sub->registration == NULL ? "staged" : updates[sub->update]);
        put_update(t, &sub->updated);
        put_proof(t, &sub->live);
        put_char(t, '}');
    }
    put(t, "]");
}

static void put_staged_gpu(struct text *t, const struct tb_staging *st)
{
    const struct tb_staged_gpu_facts f = tb_staged_gpu_facts(st);
    if (f.ring_bytes + f.kept_bytes + f.pinned_bytes + f.queue.batches == 0) return;
    put(t,
        ",\"gpu\":{\"ring_bytes\":%llu,\"kept_bytes\":%llu,\"pinned_bytes\":%llu,\"batches\":%llu,"
        "\"chunks\":%llu,\"largest_batch\":%u,\"beside\":%llu}",
        (unsigned long long)f.ring_bytes, (unsigned long long)f.kept_bytes,
        (unsigned long long)f.pinned_bytes, (unsigned long long)f.queue.batches,
        (unsigned long long)f.queue.chunks, f.queue.largest, (unsigned long long)f.queue.beside);
}

static void put_stagings(struct text *t, const struct tb_session *s)
{
    static const char *const names[TB_STAGING_LIVES] = {
        "asked", "manifests", "preparing", "prepared", "reading", "whole", "failed", "failed", "failed"};
    put(t, ",\"staged\":[");
    for (const struct tb_staging *st = s->stagings; st != NULL; st = st->next) {
        put(t, "%s{", st == s->stagings ? "" : ",");
        put_uid(t, &st->uid);
        put(t,
            ",\"model\":\"%s\",\"number\":%llu,\"state\":\"%s\",\"held_chunks\":%u,\"total_chunks\":%u,"
            "\"readers\":%u,\"staged_bytes\":%llu,\"gpu_bytes\":%llu,\"patch\":%s",
            st->key.model.text, (unsigned long long)st->key.number, names[st->life],
            tb_staging_held_chunks(st), st->total_chunks,
            st->export_id == 0 ? 0 : tb_export_readers(s->fabric, st->export_id),
            (unsigned long long)(tb_staging_is_preparing(st->life) ? 0 : tb_staging_bytes(st)),
            (unsigned long long)(tb_staging_is_preparing(st->life) ? 0 : st->stage_bytes),
            st->patch_for != NULL ? "true" : "false");
        put_read(t, st);
        put_hop(t, st);
        if (!tb_staging_is_preparing(st->life)) put_staged_gpu(t, st);
        put(t, "}");
    }
    put(t, "]}");
}

static int finish(struct text *t, uint64_t *needed_out)
{
    put_char(t, '\0');
    if (needed_out != NULL) *needed_out = t->used;
    if (t->used <= t->cap) return TB_OK;
    if (t->cap > 0) t->out[t->cap - 1] = '\0';
    return tb_fail(TB_TOO_LARGE, "the status takes %llu bytes, and there is room for %llu",
                   (unsigned long long)t->used, (unsigned long long)t->cap);
}

static int session_status(struct tb_session *s, struct text *t, uint64_t *needed_out)
{
    tb_session_lock(s);
    put_head(t, s);
    put_registrations(t, s);
    put_reserves(t, s);
    put_publications(t, s);
    put_subscriptions(t, s);
    put_stagings(t, s);
    tb_session_unlock(s);
    return finish(t, needed_out);
}

/* what: at most TB_TEXT_BYTES_MAX bytes. */
static int gateway_status(struct tb_session *s, const char *what, struct text *t, uint64_t *needed_out)
{
    struct tb_request *request = tb_request_new(s, TB_MSG_STATUS, TB_MSG_STATUS_TEXT, 0);
    struct tb_msg_status m = {{""}};
    snprintf(m.what.text, sizeof m.what.text, "%s", what);
    if (request != NULL) tb_msg_status_encode(&m, &request->payload);
    const struct tb_call call = tb_call_begin(s, SITE_STATUS_MS);
    int status = tb_request_call(s, request, &call, "tb_status");
    if (status == TB_OK) {
        struct tb_msg_status_text answer;
        TB_ANSWER_DECODE(request, tb_msg_status_text, &answer);
        for (uint32_t i = 0; i < answer.json.count; i++)
            put_char(t, (char)answer.json.bytes[i]);
        status = finish(t, needed_out);
    }
    tb_request_free(request);
    return status;
}

static bool is_of_tensors(const char *what)
{
    static const char begin[] = TB_MSG_STATUS_TENSORS;
    struct tb_id uid;
    return strncmp(what, begin, sizeof begin - 1) == 0 && tb_id_parse(what + sizeof begin - 1, &uid);
}

int tb_status(struct tb_session *session, const char *what, char *out, uint64_t cap, uint64_t *needed_out)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct text t = {.out = out, .cap = out == NULL ? 0 : cap};
    if (what != NULL && strcmp(what, "session") == 0)
        status = session_status(session, &t, needed_out);
    else if (what != NULL && (strcmp(what, "site") == 0 || is_of_tensors(what)))
        status = gateway_status(session, what, &t, needed_out);
    else
        status = tb_fail(TB_BAD_ARGUMENT,
                         "status of what: \"session\", \"site\", or \"tensors UID\" of a version");
    tb_session_leave(session);
    return status;
}
