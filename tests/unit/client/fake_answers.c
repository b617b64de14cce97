/* fake_answers.c - what the fake gateway says to what a worker says, by the contract of
 * intra/session_msg.h. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/source_descriptor.h"
#include "unit/client/fake_inside.h"

static void send_version(struct fake_session *s, uint64_t request, const struct fake_version *v)
{
    const struct tb_msg_version m = {
        .key = v->key, .bytes = 1, .whole_here = v->exported, .classes = (uint8_t)s->f->classes};
    FAKE_SEND(s, TB_MSG_VERSION, request, tb_msg_version, &m, 0);
}

/* ---- waits ---- */

static const struct fake_version *answer_to(struct fake *f, const struct tb_msg_wait *m)
{
    const struct fake_version *best = NULL;
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++) {
        const struct fake_version *v = &f->versions[i];
        if (!v->used || !v->ready) continue;
        if (m->kind == TB_WAIT_EXACT && v->key.number != m->number) continue;
        if (m->kind == TB_WAIT_MINIMUM && v->key.number < m->number) continue;
        const struct fake_version *after = fake_find(f, &m->after);
        if (after != NULL && v->key.number <= after->key.number) continue;
        if (best == NULL || v->key.number > best->key.number) best = v;
    }
    return best;
}

static void answer_waits(struct fake *f)
{
    for (uint32_t i = 0; i < FAKE_WAITS_MAX; i++) {
        if (!f->waits[i].used) continue;
        const struct fake_version *v = answer_to(f, &f->waits[i].m);
        if (v == NULL) continue;
        f->waits[i].used = false;
        send_version(&f->sessions[f->waits[i].session], f->waits[i].request, v);
    }
}

/* ---- plans ---- */

void fake_grant_and_plan(struct fake *f, uint32_t reader, struct fake_version *v)
{
    struct fake_session *s = &f->sessions[reader];
    struct tb_msg_plan m = {.uid = v->key.uid, .plan = ++f->next_plan, .source_name = {"source"}};
    tb_random_bytes(m.token.bytes, 16);
    const bool chained = f->chain && v->chain_session != UINT32_MAX && v->chain_session != reader;
    const struct tb_fabric_endpoint *from = &f->door;
    struct tb_fabric_endpoint worker;
    struct tb_source_shard shards[FAKE_SHARDS_MAX];
    uint8_t encoded[4096];
    if (chained) {
        const struct tb_msg_hello *h = &f->sessions[v->chain_session].hello;
        memset(&worker, 0, sizeof worker);
        worker.host = h->host;
        snprintf(worker.shm_door, sizeof worker.shm_door, "%.107s", h->shm_door.text);
        snprintf(worker.tcp, sizeof worker.tcp, "%.63s", h->tcp.text);
        worker.tls = h->tls;
        worker.fingerprint = h->print;
        from = &worker;
        m.export_id = v->chain_export;
        m.source = (struct tb_span){v->chain_source, v->chain_source_bytes};
        const struct tb_msg_grant g = {.export_id = m.export_id, .token = m.token, .reader = s->hello.print};
        FAKE_SEND(&f->sessions[v->chain_session], TB_MSG_GRANT, 0, tb_msg_grant, &g, 0);
    } else {
        struct tb_writer w;
        tb_writer_init(&w, encoded, sizeof encoded);
        memset(shards, 0, sizeof shards);
        for (uint32_t i = 0; i < v->key.shard_count; i++) {
            shards[i] = (struct tb_source_shard){.shard = i, .held_buffer = UINT32_MAX, .packed_buffer = i};
            if (f->bad_source) shards[i].shard = 77;
        }
        tb_source_encode(shards, v->key.shard_count, &w);
        m.export_id = v->export_id;
        m.source = (struct tb_span){encoded, (uint32_t)w.used};
        assert_int_equal(tb_export_grant(f->fabric, v->export_id, &m.token, &s->hello.print), TB_OK);
    }
    m.host = from->host;
    snprintf(m.shm_door.text, sizeof m.shm_door.text, "%s", from->shm_door);
    snprintf(m.tcp.text, sizeof m.tcp.text, "%s", from->tcp);
    m.tls = from->tls;
    m.print = from->fingerprint;
    m.foreign = chained || f->foreign;
    if (chained) {
        free(f->granting.source);
        f->granting.source = fake_copy_of(m.source.bytes, m.source.count); /* a later EXPORT names another */
        f->granting.reader = (uint32_t)(s - f->sessions);
        f->granting.plan = m;
        f->granting.plan.source.bytes = f->granting.source;
        return;
    }
    FAKE_SEND(s, TB_MSG_PLAN, 0, tb_msg_plan, &m, m.source.count);
}

static void on_granted(struct fake *f, const struct tb_msg_granted *m)
{
    f->granted = *m;
    if (f->granting.plan.plan == 0 || !tb_id_equal(&f->granting.plan.token, &m->token)) return;
    FAKE_SEND(&f->sessions[f->granting.reader], TB_MSG_PLAN, 0, tb_msg_plan, &f->granting.plan,
              f->granting.plan.source.count);
    f->granting.plan.plan = 0;
}

void fake_know_proofs(struct fake_version *v)
{
    for (uint32_t i = 0; i < v->key.shard_count; i++) {
        struct tb_manifest *sealed = &v->shards[i].manifest;
        for (uint32_t k = 0; k < sealed->chunk_count; k++) {
            const struct tb_chunk *c = &sealed->chunks[k];
            const struct tb_blake3 proof = tb_blake3_of(v->shards[i].bytes + c->offset, c->bytes);
            tb_manifest_set_proof(sealed, k, &proof);
        }
    }
}

void fake_send_proofs(struct fake_session *s, struct fake_version *v)
{
    fake_know_proofs(v);
    for (uint32_t i = 0; i < v->key.shard_count; i++) {
        const struct tb_manifest *sealed = &v->shards[i].manifest;
        const struct tb_msg_proofs m = {
            .uid = v->key.uid,
            .shard = i,
            .proofs = {(const uint8_t *)sealed->proofs, sealed->chunk_count * TB_BLAKE3_BYTES}};
        if (sealed->chunk_count > 0) FAKE_SEND(s, TB_MSG_PROOFS, 0, tb_msg_proofs, &m, m.proofs.count);
    }
}

static void on_stage(struct fake *f, uint32_t index, uint64_t request, const struct tb_msg_stage *m)
{
    struct fake_session *s = &f->sessions[index];
    struct fake_version *v = fake_find(f, &m->uid);
    if (v == NULL) {
        fake_reply(s, request, TB_NOT_FOUND, "no such version");
        return;
    }
    s->staging = m->uid;
    struct tb_msg_manifests answer = {.key = v->key, .shard_count = v->key.shard_count, .said = f->said};
    if (f->garble_root) answer.key.root.bytes[3] ^= 1;
    FAKE_SEND(s, TB_MSG_MANIFESTS, request, tb_msg_manifests, &answer, answer.said.count);
    for (uint32_t i = 0; i < v->key.shard_count; i++) {
        const struct fake_shard *sh = &v->shards[i];
        const struct tb_msg_manifest manifest = {
            .uid = v->key.uid,
            .shard = i,
            .head = {sh->head, sh->head_bytes},
            .digests = {(const uint8_t *)sh->manifest.digests, sh->manifest.chunk_count * TB_DIGEST_BYTES}};
        FAKE_SEND(s, TB_MSG_MANIFEST, 0, tb_msg_manifest, &manifest, sh->head_bytes + manifest.digests.count);
    }
    if (!f->no_proofs) fake_send_proofs(s, v);
    if (!f->no_plan) fake_grant_and_plan(f, index, v);
}

static void on_activate(struct fake *f, struct fake_session *s, uint64_t request,
                        const struct tb_msg_activate *m)
{
    const struct fake_version *v = fake_find(f, &m->uid);
    if (f->one_staging && !tb_id_equal(&s->staging, &m->uid))
        fake_reply(s, request, TB_BAD_STATE, "this member stages another one");
    else
        fake_reply(s, request, v != NULL && v->go ? TB_OK : TB_AGAIN, "");
}

/* ---- frames ---- */

static void on_hello(struct fake *f, uint32_t index, uint64_t request, const struct tb_msg_hello *m)
{
    struct fake_session *s = &f->sessions[index];
    s->hello = *m;
    s->id = m->session;
    if (!f->remember || tb_id_is_zero(&m->session)) tb_random_bytes(s->id.bytes, 16);
    s->welcomed = true;
    const struct tb_msg_welcome w = {.protocol = TB_MSG_PROTOCOL,
                                     .session = s->id,
                                     .site = {"east"},
                                     .gateway = {"g1"},
                                     .incarnation = f->older ? 1 : 1 | TB_MSG_TAKES_UPDATED,
                                     .lease_ms = 600,
                                     .fabric_trusted = f->trusted,
                                     .drain_ms = f->drain_ms};
    FAKE_SEND(s, TB_MSG_WELCOME, request, tb_msg_welcome, &w, 0);
}

static void on_run_open(struct fake *f, struct fake_session *s, uint64_t request,
                        const struct tb_msg_run_open *m)
{
    uint32_t i = 0;
    while (i < f->run_count && strcmp(f->runs[i].key, m->key.text) != 0)
        i++;
    const bool joined = i < f->run_count;
    if (joined && i + 1 < f->run_count) {
        fake_reply(s, request, TB_FENCED, "a newer run exists");
        return;
    }
    if (!joined) {
        assert_true(f->run_count < FAKE_RUNS_MAX);
        snprintf(f->runs[i].key, sizeof f->runs[i].key, "%s", m->key.text);
        tb_random_bytes(f->runs[i].id.bytes, 16);
        f->run_count++;
    }
    const struct tb_msg_run answer = {.run = f->runs[i].id, .run_order = i + 1, .joined = joined};
    FAKE_SEND(s, TB_MSG_RUN, request, tb_msg_run, &answer, 0);
}

static void on_version_open(struct fake *f, struct fake_session *s, uint64_t request,
                            const struct tb_msg_version_open *m)
{
    if (f->run_count > 0 && !tb_id_equal(&f->runs[f->run_count - 1].id, &m->run)) {
        fake_reply(s, request, TB_FENCED, "a newer run exists");
        return;
    }
    struct fake_version *v = fake_find_number(f, m->number);
    if (v == NULL) v = fake_new_version(f, m->model.text, &m->run, m->number, m->shard_count);
    send_version(s, request, v);
}

static enum tb_status seal(struct fake *f, uint32_t index, const struct tb_msg_seal *m)
{
    struct fake_version *v = fake_find(f, &m->uid);
    if (v == NULL) return TB_NOT_FOUND;
    if (m->shard >= v->key.shard_count) return TB_BAD_ARGUMENT;
    struct fake_shard *sh = &v->shards[m->shard];
    if (sh->sealed) {
        if (m->digests.count != sh->manifest.chunk_count * TB_DIGEST_BYTES ||
            memcmp(m->digests.bytes, sh->manifest.digests, m->digests.count) != 0)
            return TB_CONFLICT;
    } else {
        const size_t bytes = tb_manifest_decode_bytes(m->head.bytes, m->head.count);
        assert_true(bytes > 0);
        sh->manifest_memory = malloc(bytes);
        assert_int_equal(
            tb_manifest_head_decode(m->head.bytes, m->head.count, sh->manifest_memory, bytes, &sh->manifest),
            TB_OK);
        assert_int_equal(m->digests.count, sh->manifest.chunk_count * TB_DIGEST_BYTES);
        if (m->digests.count > 0) memcpy(sh->manifest.digests, m->digests.bytes, m->digests.count);
        const struct tb_digest root = tb_manifest_root(&sh->manifest);
        assert_true(tb_digest_equal(&root, &sh->manifest.root));
        sh->head = fake_copy_of(m->head.bytes, m->head.count);
        sh->head_bytes = m->head.count;
    }
    free(sh->source);
    sh->source = fake_copy_of(m->source.bytes, m->source.count);
    sh->source_bytes = m->source.count;
    sh->session = index;
    sh->export_id = m->export_id;
    const bool before = sh->sealed;
    sh->sealed = true;
    fake_become_ready(v);
    return before ? TB_DONE_BEFORE : TB_OK;
}

void fake_chain_behind(struct fake_version *v, uint32_t session, uint64_t export_id,
                       const struct tb_span *source)
{
    free(v->chain_source);
    v->chain_source = fake_copy_of(source->bytes, source->count);
    v->chain_source_bytes = source->count;
    v->chain_session = session;
    v->chain_export = export_id;
}

static void on_export(struct fake *f, uint32_t index, const struct tb_msg_export *m)
{
    struct fake_version *v = fake_find(f, &m->uid);
    f->exported = *m;
    if (v == NULL) return;
    if (!f->chain_stays) fake_chain_behind(v, index, m->export_id, &m->source);
    if (m->whole) v->whole_said[index] = true;
}

static void on_wait(struct fake *f, uint32_t index, uint64_t request, const struct tb_msg_wait *m)
{
    const struct fake_version *v = answer_to(f, m);
    if (v != NULL) {
        send_version(&f->sessions[index], request, v);
        return;
    }
    if (m->timeout_ms == 0) {
        fake_reply(&f->sessions[index], request, TB_TIMEOUT, "");
        return;
    }
    for (uint32_t i = 0; i < FAKE_WAITS_MAX; i++) {
        if (f->waits[i].used) continue;
        f->waits[i].used = true;
        f->waits[i].session = index;
        f->waits[i].request = request;
        f->waits[i].m = *m;
        return;
    }
}

#define DECODE(name, m)                                                                                      \
    struct name m;                                                                                           \
    if (name##_decode(&frame->payload, &m) != TB_OK) return TB_PEER_GARBLED

static enum tb_status on_request(struct fake *f, uint32_t index, struct tb_wire_frame *frame)
{
    struct fake_session *s = &f->sessions[index];
    switch (frame->type) {
    case TB_MSG_HELLO: {
        DECODE(tb_msg_hello, m);
        on_hello(f, index, frame->request, &m);
        return TB_OK;
    }
    case TB_MSG_RUN_OPEN: {
        DECODE(tb_msg_run_open, m);
        on_run_open(f, s, frame->request, &m);
        return TB_OK;
    }
    case TB_MSG_VERSION_OPEN: {
        DECODE(tb_msg_version_open, m);
        on_version_open(f, s, frame->request, &m);
        return TB_OK;
    }
    case TB_MSG_SEAL: {
        DECODE(tb_msg_seal, m);
        fake_reply(s, frame->request, seal(f, index, &m), "seal");
        return TB_OK;
    }
    case TB_MSG_SUBSCRIBE: {
        DECODE(tb_msg_subscribe, m);
        s->subscribed = m;
        fake_reply(s, frame->request, TB_OK, "");
        return TB_OK;
    }
    case TB_MSG_WAIT: {
        DECODE(tb_msg_wait, m);
        on_wait(f, index, frame->request, &m);
        return TB_OK;
    }
    case TB_MSG_STAGE: {
        DECODE(tb_msg_stage, m);
        f->after_release++;
        on_stage(f, index, frame->request, &m);
        return TB_OK;
    }
    case TB_MSG_ACTIVATE: {
        DECODE(tb_msg_activate, m);
        on_activate(f, s, frame->request, &m);
        return TB_OK;
    }
    case TB_MSG_RELEASE: {
        DECODE(tb_msg_release, m);
        struct fake_version *v = fake_find(f, &m.uid);
        if (v != NULL) v->released++;
        f->after_release = 0;
        fake_reply(s, frame->request, TB_OK, "");
        return TB_OK;
    }
    case TB_MSG_STATUS: {
        DECODE(tb_msg_status, m);
        const struct tb_msg_status_text text = {.json = {(const uint8_t *)"{\"schema\":1}", 12}};
        FAKE_SEND(s, TB_MSG_STATUS_TEXT, frame->request, tb_msg_status_text, &text, 12);
        return TB_OK;
    }
    case TB_MSG_UNPUBLISH:
    case TB_MSG_UNSUBSCRIBE:
    case TB_MSG_WAIT_SITE:
        fake_reply(s, frame->request, TB_OK, "");
        return TB_OK;
    default:
        return TB_PEER_GARBLED;
    }
}

static enum tb_status on_notice(struct fake *f, uint32_t index, struct tb_wire_frame *frame)
{
    switch (frame->type) {
    case TB_MSG_RENEW:
        return TB_OK;
    case TB_MSG_CANCEL: {
        DECODE(tb_msg_cancel, m);
        for (uint32_t i = 0; i < FAKE_WAITS_MAX; i++)
            if (f->waits[i].used && f->waits[i].request == m.request) f->waits[i].used = false;
        return TB_OK;
    }
    case TB_MSG_EXPORT: {
        DECODE(tb_msg_export, m);
        on_export(f, index, &m);
        return TB_OK;
    }
    case TB_MSG_GRANTED: {
        DECODE(tb_msg_granted, m);
        on_granted(f, &m);
        return TB_OK;
    }
    case TB_MSG_HOP_LOST: {
        DECODE(tb_msg_hop_lost, m);
        f->hop_lost = m;
        struct fake_version *v = f->plans_again ? fake_find(f, &m.uid) : NULL;
        if (v != NULL) fake_grant_and_plan(f, index, v);
        return TB_OK;
    }
    case TB_MSG_PROGRESS: {
        DECODE(tb_msg_progress, m);
        f->progress = m;
        struct fake_version *v = fake_find(f, &m.uid);
        if (v != NULL && m.whole) v->whole_said[index] = true;
        return TB_OK;
    }
    case TB_MSG_ACTIVATED: {
        DECODE(tb_msg_activated, m);
        f->activated = m;
        return TB_OK;
    }
    case TB_MSG_UPDATED: {
        DECODE(tb_msg_updated, m);
        f->updated = m;
        return f->older ? TB_PEER_GARBLED : TB_OK;
    }
    case TB_MSG_PROVEN: {
        DECODE(tb_msg_proven, m);
        if (m.done)
            f->proven = m;
        else
            f->alarm = m;
        return TB_OK;
    }
    case TB_MSG_DOUBTED: {
        DECODE(tb_msg_doubted, m);
        f->doubted = m;
        return TB_OK;
    }
    case TB_MSG_CHUNK_BAD:
        return TB_OK;
    default:
        return TB_PEER_GARBLED;
    }
}

enum tb_status fake_answer(struct fake *f, uint32_t session, struct tb_wire_frame *frame)
{
    struct fake_session *s = &f->sessions[session];
    enum tb_status status = TB_OK;
    if (frame->type < TB_MSG_TYPE_END) f->seen[frame->type]++;
    if (frame->type == TB_MSG_UNPUBLISH) {
        struct tb_reader payload = frame->payload;
        CHECK_OK(tb_msg_unpublish_decode(&payload, &f->unpublished));
        f->unpublish_request = frame->request;
    }
    if (frame->type == TB_MSG_STAGE) f->stage_request = frame->request;
    if (frame->type < TB_MSG_TYPE_END && f->mute[frame->type])
        status = TB_OK;
    else if (frame->type < TB_MSG_TYPE_END && f->refuse[frame->type] != TB_OK)
        fake_reply(s, frame->request, f->refuse[frame->type], "told to refuse");
    else if (frame->request != 0)
        status = on_request(f, session, frame);
    else
        status = on_notice(f, session, frame);
    answer_waits(f);
    return status;
}
