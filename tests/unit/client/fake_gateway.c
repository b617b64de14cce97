/* fake_gateway.c - see its header. */
#include "unit/client/fake_gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/codec.h"
#include "base/shelf.h"
#include "intra/source.h"
#include "tests/unit/scratch.h"

#define BOUND_S 20

/* ---- sending, on the loop ---- */

#define SEND(s, type, request, name, m, more)                                                                \
    do {                                                                                                     \
        struct tb_writer *w_ =                                                                               \
            (s)->wire == NULL ? NULL : tb_wire_begin((s)->wire, type, request, 4096 + (more));               \
        if (w_ != NULL) {                                                                                    \
            name##_encode(m, w_);                                                                            \
            tb_wire_end((s)->wire);                                                                          \
        }                                                                                                    \
    } while (0)

static void reply(struct fake_session *s, uint64_t request, enum tb_status status, const char *why)
{
    struct tb_session_reply m = {.status_negated = tb_session_status_put(status)};
    snprintf(m.why.text, sizeof m.why.text, "%s", why);
    SEND(s, TB_SESSION_REPLY, request, tb_session_reply, &m, 0);
}

/* ---- jobs: the test's thread has something done on the loop and waits for it ---- */

static void on_async(uv_async_t *async)
{
    struct fake *f = async->data;
    pthread_mutex_lock(&f->lock);
    if (f->job != NULL) f->job(f, f->job_user);
    f->job = NULL;
    pthread_cond_broadcast(&f->changed);
    if (f->stop) {
        if (f->listener != NULL) tb_listener_close(f->listener);
        f->listener = NULL;
        for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
            if (f->sessions[i].wire != NULL) tb_wire_close(f->sessions[i].wire, TB_OK);
        uv_close((uv_handle_t *)&f->async, NULL);
    }
    pthread_mutex_unlock(&f->lock);
}

static void run_job(struct fake *f, void (*job)(struct fake *f, void *user), void *user)
{
    pthread_mutex_lock(&f->lock);
    assert_null(f->job);
    f->job = job;
    f->job_user = user;
    uv_async_send(&f->async);
    while (f->job != NULL)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

/* Under the lock: waits for a change, and fails the test when none comes. */
static void wait_change(struct fake *f, time_t until)
{
    struct timespec at = {.tv_sec = until};
    if (pthread_cond_timedwait(&f->changed, &f->lock, &at) != 0 && time(NULL) > until)
        fail_msg("waited for too long");
}

/* ---- versions ---- */

static struct fake_version *find_version(struct fake *f, const struct tb_id *uid)
{
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++)
        if (f->versions[i].used && tb_id_equal(&f->versions[i].key.uid, uid)) return &f->versions[i];
    return NULL;
}

static struct fake_version *find_number(struct fake *f, uint64_t number)
{
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++)
        if (f->versions[i].used && f->versions[i].key.number == number) return &f->versions[i];
    return NULL;
}

static struct fake_version *new_version(struct fake *f, const char *model, const struct tb_id *run,
                                        uint64_t number, uint32_t shard_count)
{
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++) {
        struct fake_version *v = &f->versions[i];
        if (v->used) continue;
        memset(v, 0, sizeof *v);
        v->used = true;
        v->chain_session = UINT32_MAX;
        v->key = (struct tb_version_key){
            .run = *run, .run_order = 1, .number = number, .shard_count = shard_count};
        assert_int_equal(tb_name_set(&v->key.model, model), TB_OK);
        tb_random_bytes(v->key.uid.bytes, 16);
        return v;
    }
    fail_msg("too many versions");
    return NULL;
}

static void become_ready(struct fake_version *v)
{
    struct tb_digest roots[FAKE_SHARDS_MAX];
    for (uint32_t i = 0; i < v->key.shard_count; i++) {
        if (!v->shards[i].sealed) return;
        roots[i] = v->shards[i].manifest.root;
    }
    v->key.root = tb_version_root(&v->key, roots);
    v->ready = true;
}

static uint8_t *copy_of(const void *bytes, uint32_t count)
{
    uint8_t *copy = malloc((size_t)count + 1);
    assert_non_null(copy);
    if (count > 0) memcpy(copy, bytes, count);
    return copy;
}

static void make_place(struct fake_shard *sh)
{
    const uint64_t words = TB_BITMAP_WORDS(sh->manifest.chunk_count) + 1;
    free(sh->bytes);
    free(sh->held);
    free(sh->claimed);
    sh->bytes = calloc(1, sh->manifest.bytes + 1);
    sh->held = calloc(words, 8);
    sh->claimed = calloc(words, 8);
    sh->place = (struct tb_place){
        .manifest = &sh->manifest, .bytes = sh->bytes, .held = sh->held, .claimed = sh->claimed};
}

static void send_version(struct fake_session *s, uint64_t request, const struct fake_version *v)
{
    const struct tb_session_version m = {.key = v->key, .bytes = 1, .whole_here = v->exported};
    SEND(s, TB_SESSION_VERSION, request, tb_session_version, &m, 0);
}

/* ---- waits ---- */

static const struct fake_version *answer_to(struct fake *f, const struct tb_session_wait *m)
{
    const struct fake_version *best = NULL;
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++) {
        const struct fake_version *v = &f->versions[i];
        if (!v->used || !v->ready) continue;
        if (m->kind == TB_WAIT_EXACT && v->key.number != m->number) continue;
        if (m->kind == TB_WAIT_MINIMUM && v->key.number < m->number) continue;
        const struct fake_version *after = find_version(f, &m->after);
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

static void grant_and_plan(struct fake *f, uint32_t reader, struct fake_version *v)
{
    struct fake_session *s = &f->sessions[reader];
    struct tb_session_plan m = {.uid = v->key.uid, .plan = ++f->next_plan, .source_name = {"source"}};
    tb_random_bytes(m.token.bytes, 16);
    const bool chained = f->chain && v->chain_session != UINT32_MAX && v->chain_session != reader;
    const struct tb_fabric_endpoint *from = &f->door;
    struct tb_fabric_endpoint worker;
    struct tb_source_shard shards[FAKE_SHARDS_MAX];
    uint8_t encoded[4096];
    if (chained) {
        const struct tb_session_hello *h = &f->sessions[v->chain_session].hello;
        memset(&worker, 0, sizeof worker);
        worker.host = h->host;
        snprintf(worker.shm_door, sizeof worker.shm_door, "%.107s", h->shm_door.text);
        snprintf(worker.tcp, sizeof worker.tcp, "%.63s", h->tcp.text);
        worker.tls = h->tls;
        worker.fingerprint = h->print;
        from = &worker;
        m.export_id = v->chain_export;
        m.source = (struct tb_span){v->chain_source, v->chain_source_bytes};
        const struct tb_session_grant g = {
            .export_id = m.export_id, .token = m.token, .reader = s->hello.print};
        SEND(&f->sessions[v->chain_session], TB_SESSION_GRANT, 0, tb_session_grant, &g, 0);
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
    if (chained) {
        f->granting.reader = (uint32_t)(s - f->sessions);
        f->granting.plan = m;
        return;
    }
    SEND(s, TB_SESSION_PLAN, 0, tb_session_plan, &m, m.source.count);
}

static void on_granted(struct fake *f, const struct tb_session_granted *m)
{
    f->granted = *m;
    if (f->granting.plan.plan == 0 || !tb_id_equal(&f->granting.plan.token, &m->token)) return;
    SEND(&f->sessions[f->granting.reader], TB_SESSION_PLAN, 0, tb_session_plan, &f->granting.plan,
         f->granting.plan.source.count);
    f->granting.plan.plan = 0;
}

static void on_stage(struct fake *f, uint32_t index, uint64_t request, const struct tb_session_stage *m)
{
    struct fake_session *s = &f->sessions[index];
    struct fake_version *v = find_version(f, &m->uid);
    if (v == NULL) {
        reply(s, request, TB_NOT_FOUND, "no such version");
        return;
    }
    struct tb_session_manifests answer = {.key = v->key, .shard_count = v->key.shard_count};
    if (f->garble_root) answer.key.root.bytes[3] ^= 1;
    SEND(s, TB_SESSION_MANIFESTS, request, tb_session_manifests, &answer, 0);
    for (uint32_t i = 0; i < v->key.shard_count; i++) {
        const struct fake_shard *sh = &v->shards[i];
        const struct tb_session_manifest manifest = {
            .uid = v->key.uid,
            .shard = i,
            .head = {sh->head, sh->head_bytes},
            .digests = {(const uint8_t *)sh->manifest.digests, sh->manifest.chunk_count * TB_DIGEST_BYTES}};
        SEND(s, TB_SESSION_MANIFEST, 0, tb_session_manifest, &manifest,
             sh->head_bytes + manifest.digests.count);
    }
    if (!f->no_plan) grant_and_plan(f, index, v);
}

/* ---- frames ---- */

static void on_hello(struct fake *f, uint32_t index, uint64_t request, const struct tb_session_hello *m)
{
    struct fake_session *s = &f->sessions[index];
    s->hello = *m;
    s->id = m->session;
    if (!f->remember || tb_id_is_zero(&m->session)) tb_random_bytes(s->id.bytes, 16);
    s->welcomed = true;
    const struct tb_session_welcome w = {.protocol = TB_SESSION_PROTOCOL,
                                         .session = s->id,
                                         .site = {"east"},
                                         .gateway = {"g1"},
                                         .incarnation = 1,
                                         .lease_ms = 600,
                                         .fabric_trusted = f->trusted,
                                         .drain_ms = 300};
    SEND(s, TB_SESSION_WELCOME, request, tb_session_welcome, &w, 0);
}

static void on_run_open(struct fake *f, struct fake_session *s, uint64_t request,
                        const struct tb_session_run_open *m)
{
    uint32_t i = 0;
    while (i < f->run_count && strcmp(f->runs[i].key, m->key.text) != 0)
        i++;
    const bool joined = i < f->run_count;
    if (joined && i + 1 < f->run_count) {
        reply(s, request, TB_FENCED, "a newer run exists");
        return;
    }
    if (!joined) {
        assert_true(f->run_count < FAKE_RUNS_MAX);
        snprintf(f->runs[i].key, sizeof f->runs[i].key, "%s", m->key.text);
        tb_random_bytes(f->runs[i].id.bytes, 16);
        f->run_count++;
    }
    const struct tb_session_run answer = {.run = f->runs[i].id, .run_order = i + 1, .joined = joined};
    SEND(s, TB_SESSION_RUN, request, tb_session_run, &answer, 0);
}

static void on_version_open(struct fake *f, struct fake_session *s, uint64_t request,
                            const struct tb_session_version_open *m)
{
    if (f->run_count > 0 && !tb_id_equal(&f->runs[f->run_count - 1].id, &m->run)) {
        reply(s, request, TB_FENCED, "a newer run exists");
        return;
    }
    struct fake_version *v = find_number(f, m->number);
    if (v == NULL) v = new_version(f, m->model.text, &m->run, m->number, m->shard_count);
    send_version(s, request, v);
}

static enum tb_status seal(struct fake *f, uint32_t index, const struct tb_session_seal *m)
{
    struct fake_version *v = find_version(f, &m->uid);
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
        sh->head = copy_of(m->head.bytes, m->head.count);
        sh->head_bytes = m->head.count;
    }
    free(sh->source);
    sh->source = copy_of(m->source.bytes, m->source.count);
    sh->source_bytes = m->source.count;
    sh->session = index;
    sh->export_id = m->export_id;
    const bool before = sh->sealed;
    sh->sealed = true;
    become_ready(v);
    return before ? TB_DONE_BEFORE : TB_OK;
}

static void on_export(struct fake *f, uint32_t index, const struct tb_session_export *m)
{
    struct fake_version *v = find_version(f, &m->uid);
    f->exported = *m;
    if (v == NULL) return;
    const bool granting = f->granting.plan.source.bytes == v->chain_source;
    free(v->chain_source);
    v->chain_source = copy_of(m->source.bytes, m->source.count);
    v->chain_source_bytes = m->source.count;
    if (granting) f->granting.plan.source = (struct tb_span){v->chain_source, v->chain_source_bytes};
    v->chain_session = index;
    v->chain_export = m->export_id;
    if (m->whole) v->whole_said[index] = true;
}

static void on_wait(struct fake *f, uint32_t index, uint64_t request, const struct tb_session_wait *m)
{
    const struct fake_version *v = answer_to(f, m);
    if (v != NULL) {
        send_version(&f->sessions[index], request, v);
        return;
    }
    if (m->timeout_ms == 0) {
        reply(&f->sessions[index], request, TB_TIMEOUT, "");
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
    case TB_SESSION_HELLO: {
        DECODE(tb_session_hello, m);
        on_hello(f, index, frame->request, &m);
        return TB_OK;
    }
    case TB_SESSION_RUN_OPEN: {
        DECODE(tb_session_run_open, m);
        on_run_open(f, s, frame->request, &m);
        return TB_OK;
    }
    case TB_SESSION_VERSION_OPEN: {
        DECODE(tb_session_version_open, m);
        on_version_open(f, s, frame->request, &m);
        return TB_OK;
    }
    case TB_SESSION_SEAL: {
        DECODE(tb_session_seal, m);
        reply(s, frame->request, seal(f, index, &m), "seal");
        return TB_OK;
    }
    case TB_SESSION_SUBSCRIBE: {
        DECODE(tb_session_subscribe, m);
        s->subscribed = m;
        reply(s, frame->request, TB_OK, "");
        return TB_OK;
    }
    case TB_SESSION_WAIT: {
        DECODE(tb_session_wait, m);
        on_wait(f, index, frame->request, &m);
        return TB_OK;
    }
    case TB_SESSION_STAGE: {
        DECODE(tb_session_stage, m);
        f->after_release++;
        on_stage(f, index, frame->request, &m);
        return TB_OK;
    }
    case TB_SESSION_ACTIVATE: {
        DECODE(tb_session_activate, m);
        const struct fake_version *v = find_version(f, &m.uid);
        reply(s, frame->request, v != NULL && v->go ? TB_OK : TB_AGAIN, "");
        return TB_OK;
    }
    case TB_SESSION_RELEASE: {
        DECODE(tb_session_release, m);
        struct fake_version *v = find_version(f, &m.uid);
        if (v != NULL) v->released++;
        f->after_release = 0;
        reply(s, frame->request, TB_OK, "");
        return TB_OK;
    }
    case TB_SESSION_STATUS: {
        DECODE(tb_session_status, m);
        const struct tb_session_status_text text = {.json = {(const uint8_t *)"{\"schema\":1}", 12}};
        SEND(s, TB_SESSION_STATUS_TEXT, frame->request, tb_session_status_text, &text, 12);
        return TB_OK;
    }
    case TB_SESSION_UNPUBLISH:
    case TB_SESSION_UNSUBSCRIBE:
    case TB_SESSION_WAIT_SITE:
        reply(s, frame->request, TB_OK, "");
        return TB_OK;
    default:
        return TB_PEER_GARBLED;
    }
}

static enum tb_status on_notice(struct fake *f, uint32_t index, struct tb_wire_frame *frame)
{
    switch (frame->type) {
    case TB_SESSION_RENEW:
        return TB_OK;
    case TB_SESSION_CANCEL: {
        DECODE(tb_session_cancel, m);
        for (uint32_t i = 0; i < FAKE_WAITS_MAX; i++)
            if (f->waits[i].used && f->waits[i].request == m.request) f->waits[i].used = false;
        return TB_OK;
    }
    case TB_SESSION_EXPORT: {
        DECODE(tb_session_export, m);
        on_export(f, index, &m);
        return TB_OK;
    }
    case TB_SESSION_GRANTED: {
        DECODE(tb_session_granted, m);
        on_granted(f, &m);
        return TB_OK;
    }
    case TB_SESSION_HOP_LOST: {
        DECODE(tb_session_hop_lost, m);
        f->hop_lost = m;
        return TB_OK;
    }
    case TB_SESSION_PROGRESS: {
        DECODE(tb_session_progress, m);
        f->progress = m;
        struct fake_version *v = find_version(f, &m.uid);
        if (v != NULL && m.whole) v->whole_said[index] = true;
        return TB_OK;
    }
    case TB_SESSION_ACTIVATED: {
        DECODE(tb_session_activated, m);
        f->activated = m;
        return TB_OK;
    }
    case TB_SESSION_CHUNK_BAD:
        return TB_OK;
    default:
        return TB_PEER_GARBLED;
    }
}

static enum tb_status on_frame(struct tb_wire *w, void *user, struct tb_wire_frame *frame)
{
    (void)w;
    struct fake_session *s = user;
    struct fake *f = s->f;
    const uint32_t index = (uint32_t)(s - f->sessions);
    pthread_mutex_lock(&f->lock);
    enum tb_status status = TB_OK;
    if (frame->type < TB_SESSION_TYPE_END) f->seen[frame->type]++;
    if (frame->type < TB_SESSION_TYPE_END && f->mute[frame->type])
        status = TB_OK;
    else if (frame->type < TB_SESSION_TYPE_END && f->refuse[frame->type] != TB_OK)
        reply(s, frame->request, f->refuse[frame->type], "told to refuse");
    else if (frame->request != 0)
        status = on_request(f, index, frame);
    else
        status = on_notice(f, index, frame);
    answer_waits(f);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return status;
}

static void on_open(struct tb_wire *w, void *user, const struct tb_chan_peer *peer)
{
    (void)w;
    (void)user;
    (void)peer;
}

static void on_closed(struct tb_wire *w, void *user, enum tb_status why)
{
    (void)w;
    (void)why;
    struct fake_session *s = user;
    pthread_mutex_lock(&s->f->lock);
    s->wire = NULL;
    s->welcomed = false;
    pthread_cond_broadcast(&s->f->changed);
    pthread_mutex_unlock(&s->f->lock);
}

static void on_accept(void *user, int fd, const struct tb_address *from)
{
    (void)from;
    static const struct tb_wire_ops ops = {.on_open = on_open, .on_frame = on_frame, .on_closed = on_closed};
    struct fake *f = user;
    pthread_mutex_lock(&f->lock);
    uint32_t i = 0;
    while (i < FAKE_SESSIONS_MAX && f->sessions[i].wire != NULL)
        i++;
    if (i == FAKE_SESSIONS_MAX) {
        close(fd);
    } else {
        f->sessions[i].f = f;
        const struct tb_wire_options options = {.chan = {.loop = &f->loop},
                                                .ops = &ops,
                                                .user = &f->sessions[i],
                                                .frame_bytes_max = TB_SESSION_FRAME_BYTES_MAX};
        if (tb_wire_accept(&options, fd, &f->sessions[i].wire) != TB_OK) f->sessions[i].wire = NULL;
    }
    pthread_mutex_unlock(&f->lock);
}

/* ---- life ---- */

static void *fake_main(void *user)
{
    struct fake *f = user;
    uv_run(&f->loop, UV_RUN_DEFAULT);
    return NULL;
}

static void listen_job(struct fake *f, void *user)
{
    (void)user;
    struct tb_address at;
    struct tb_endpoint endpoint;
    assert_int_equal(tb_endpoint_parse(f->path, &endpoint), TB_OK);
    assert_int_equal(tb_endpoint_address(&endpoint, &at), TB_OK);
    assert_int_equal(tb_listen(&f->loop, &at, 0600, on_accept, f, &f->listener), TB_OK);
}

static void away_job(struct fake *f, void *user)
{
    (void)user;
    if (f->listener != NULL) tb_listener_close(f->listener);
    f->listener = NULL;
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        if (f->sessions[i].wire != NULL) tb_wire_close(f->sessions[i].wire, TB_STREAM_IO);
    for (uint32_t i = 0; i < FAKE_WAITS_MAX; i++)
        f->waits[i].used = false;
}

void fake_open(struct fake *f)
{
    static unsigned serial;
    memset(f, 0, sizeof *f);
    snprintf(f->path, sizeof f->path, "unix:%s/client.%ld.%u.sock", scratch_files(), (long)getpid(),
             serial++);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    assert_int_equal(uv_loop_init(&f->loop), 0);
    assert_int_equal(uv_async_init(&f->loop, &f->async, on_async), 0);
    f->async.data = f;
    struct tb_fabric_options options = {.tcp_address = "127.0.0.1:0", .threads = 1};
    assert_int_equal(tb_name_set(&options.host, "host-a"), TB_OK);
    assert_int_equal(tb_fabric_open(&options, &f->fabric), TB_OK);
    tb_fabric_endpoint(f->fabric, &f->door);
    assert_int_equal(pthread_create(&f->thread, NULL, fake_main, f), 0);
    run_job(f, listen_job, NULL);
}

void fake_away(struct fake *f, bool away)
{
    run_job(f, away ? away_job : listen_job, NULL);
}

void fake_close(struct fake *f)
{
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_mutex_unlock(&f->lock);
    uv_async_send(&f->async);
    pthread_join(f->thread, NULL);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    tb_fabric_close(f->fabric);
    for (uint32_t i = 0; i < FAKE_VERSIONS_MAX; i++) {
        struct fake_version *v = &f->versions[i];
        free(v->chain_source);
        free(v->shelf_memory);
        for (uint32_t k = 0; k < FAKE_SHARDS_MAX; k++) {
            struct fake_shard *sh = &v->shards[k];
            free(sh->head);
            free(sh->source);
            free(sh->manifest_memory);
            free(sh->bytes);
            free(sh->held);
            free(sh->claimed);
        }
    }
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    unlink(f->path + strlen("unix:"));
}

void fake_wait_seen(struct fake *f, enum tb_session_type type, uint32_t count)
{
    const time_t until = time(NULL) + BOUND_S;
    pthread_mutex_lock(&f->lock);
    while (f->seen[type] < count)
        wait_change(f, until);
    pthread_mutex_unlock(&f->lock);
}

uint32_t fake_seen(struct fake *f, enum tb_session_type type)
{
    pthread_mutex_lock(&f->lock);
    const uint32_t seen = f->seen[type];
    pthread_mutex_unlock(&f->lock);
    return seen;
}

struct fake_version *fake_version(struct fake *f, uint64_t number)
{
    pthread_mutex_lock(&f->lock);
    struct fake_version *v = find_number(f, number);
    pthread_mutex_unlock(&f->lock);
    assert_non_null(v);
    return v;
}

struct tb_uid fake_uid(const struct fake_version *v)
{
    struct tb_uid uid;
    memcpy(uid.bytes, v->key.uid.bytes, sizeof uid.bytes);
    return uid;
}

/* ---- reading what a rank exports ---- */

struct hearing {
    struct fake *f;
    bool whole, lost;
    enum tb_status why;
};

static void hop_said(void *user, struct tb_hop *hop, const struct tb_hop_event *event)
{
    (void)hop;
    struct hearing *h = user;
    pthread_mutex_lock(&h->f->lock);
    if (event->kind == TB_HOP_WHOLE) h->whole = true;
    if (event->kind == TB_HOP_LOST) {
        h->lost = true;
        h->why = event->why;
    }
    pthread_cond_broadcast(&h->f->changed);
    pthread_mutex_unlock(&h->f->lock);
}

struct granting {
    uint32_t session;
    struct tb_session_grant grant;
};

static void grant_job(struct fake *f, void *user)
{
    const struct granting *g = user;
    SEND(&f->sessions[g->session], TB_SESSION_GRANT, 0, tb_session_grant, &g->grant, 0);
}

/* A rank answers each GRANT, also one for an export that is closed: its door then says no. */
static void wait_granted(struct fake *f, const struct tb_id *token)
{
    const time_t until = time(NULL) + BOUND_S;
    pthread_mutex_lock(&f->lock);
    while (!tb_id_equal(&f->granted.token, token))
        wait_change(f, until);
    pthread_mutex_unlock(&f->lock);
}

enum tb_status fake_read(struct fake *f, struct fake_version *v, uint32_t shard)
{
    make_place(&v->shards[shard]);
    struct fake_shard *sh = &v->shards[shard];
    struct granting g = {.session = sh->session,
                         .grant = {.export_id = sh->export_id, .reader = f->door.fingerprint}};
    tb_random_bytes(g.grant.token.bytes, 16);
    run_job(f, grant_job, &g);
    wait_granted(f, &g.grant.token);
    const struct tb_session_hello *h = &f->sessions[sh->session].hello;
    static struct hearing hearing; /* a hop that is kept has it still */
    hearing = (struct hearing){.f = f};
    const struct tb_source_shard *source;
    uint32_t count;
    const size_t bytes = tb_source_decode_bytes(sh->source, sh->source_bytes);
    void *memory = malloc(bytes);
    assert_int_equal(tb_source_decode(sh->source, sh->source_bytes, memory, bytes, &source, &count), TB_OK);
    const struct tb_hop_place place = {shard, &sh->place};
    struct tb_hop_options o = {.export_id = sh->export_id,
                               .token = g.grant.token,
                               .source = source,
                               .source_count = count,
                               .places = &place,
                               .place_count = 1,
                               .fn = hop_said,
                               .user = &hearing};
    o.from.host = h->host;
    snprintf(o.from.shm_door, sizeof o.from.shm_door, "%.107s", h->shm_door.text);
    snprintf(o.from.tcp, sizeof o.from.tcp, "%.63s", h->tcp.text);
    o.from.tls = h->tls;
    o.from.fingerprint = h->print;
    struct tb_hop *hop;
    assert_int_equal(tb_hop_open(f->fabric, &o, &hop), TB_OK);
    const time_t until = time(NULL) + BOUND_S;
    pthread_mutex_lock(&f->lock);
    while (!hearing.whole && !hearing.lost)
        wait_change(f, until);
    pthread_mutex_unlock(&f->lock);
    if (f->keep_hop)
        f->kept_hop = hop; /* says nothing more: it is whole */
    else
        tb_hop_close(hop);
    f->keep_hop = false;
    free(memory);
    return hearing.whole ? TB_OK : hearing.why;
}

void fake_let_go(struct fake *f)
{
    tb_hop_close(f->kept_hop);
    f->kept_hop = NULL;
}

static void shelve(struct tb_shelf *shelf, struct tb_codec *codec, const struct fake_shard *sh,
                   const struct fake_shard *base, uint32_t first)
{
    const struct tb_manifest *m = &sh->manifest;
    const struct tb_codec_room room = {malloc(tb_codec_bound(TB_CODEC_SPARSE, TB_CHUNK_BYTES_MAX)),
                                       tb_codec_bound(TB_CODEC_SPARSE, TB_CHUNK_BYTES_MAX)};
    for (uint32_t k = 0; k < m->chunk_count; k++) {
        struct tb_codec_coded coded;
        const struct tb_codec_input in = {.bytes = sh->bytes + m->chunks[k].offset,
                                          .count = m->chunks[k].bytes,
                                          .dtype = tb_layout_dtype_at(&m->layout, m->chunks[k].offset),
                                          .base = base->bytes + m->chunks[k].offset,
                                          .classes = 1};
        CHECK_OK(tb_codec_encode(codec, (struct tb_codec_form){TB_CODEC_SPARSE, true}, &in, room, &coded));
        tb_shelf_put(shelf, first + k, coded.form.on_base ? &coded : NULL);
    }
    free(room.bytes);
}

static struct tb_export_buffer shelf_of(struct fake_version *v, const struct fake_version *base)
{
    uint32_t count = 0;
    uint64_t bytes = 0;
    struct tb_shelf shelf;
    struct tb_codec *codec;
    for (uint32_t i = 0; i < v->key.shard_count; i++) {
        count += v->shards[i].manifest.chunk_count;
        bytes += v->shards[i].manifest.bytes;
    }
    v->shelf_memory = calloc(1, tb_shelf_bytes(count, bytes));
    tb_shelf_init(&shelf, v->shelf_memory, count, bytes);
    tb_shelf_open(&shelf, &base->key.uid);
    CHECK_OK(tb_codec_new(&codec));
    for (uint32_t i = 0, first = 0; i < v->key.shard_count; first += v->shards[i++].manifest.chunk_count)
        shelve(&shelf, codec, &v->shards[i], &base->shards[i], first);
    tb_shelf_close(&shelf);
    tb_codec_free(codec);
    return (struct tb_export_buffer){
        .bytes = v->shelf_memory, .count = tb_shelf_bytes(count, bytes), .memfd = -1};
}

static void export_landed(struct fake *f, struct fake_version *v, const struct fake_version *base)
{
    struct tb_export_buffer buffers[FAKE_SHARDS_MAX + 1];
    for (uint32_t i = 0; i < v->key.shard_count; i++)
        buffers[i] = (struct tb_export_buffer){
            .bytes = v->shards[i].bytes, .count = v->shards[i].manifest.bytes, .memfd = -1};
    v->export_id = ++f->next_export;
    const bool has_shelf = f->shelves && base != NULL;
    const struct tb_shelf_at at = {.buffer = v->key.shard_count};
    if (has_shelf) buffers[v->key.shard_count] = shelf_of(v, base);
    const struct tb_export_options options = {.export_id = v->export_id,
                                              .buffers = buffers,
                                              .buffer_count = v->key.shard_count + has_shelf,
                                              .shelf = has_shelf ? &at : NULL};
    assert_int_equal(tb_export_open(f->fabric, &options), TB_OK);
    v->exported = true;
}

void fake_land(struct fake *f, uint64_t number)
{
    struct fake_version *v = fake_version(f, number);
    for (uint32_t i = 0; i < v->key.shard_count; i++)
        CHECK_OK(fake_read(f, v, i));
    pthread_mutex_lock(&f->lock);
    if (!v->exported) export_landed(f, v, NULL);
    pthread_mutex_unlock(&f->lock);
    fake_state(f, number, TB_OK);
}

/* ---- telling ---- */

struct telling {
    uint64_t number;
    enum tb_status status;
    uint32_t session;
    uint16_t type;
    uint64_t request;
    const void *bytes;
    uint32_t count;
};

static void state_job(struct fake *f, void *user)
{
    const struct telling *t = user;
    const struct fake_version *v = find_number(f, t->number);
    const struct tb_session_version_state m = {.uid = v->key.uid,
                                               .status_negated = tb_session_status_put(t->status)};
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        SEND(&f->sessions[i], TB_SESSION_VERSION_STATE, 0, tb_session_version_state, &m, 0);
}

void fake_state(struct fake *f, uint64_t number, enum tb_status status)
{
    struct telling t = {.number = number, .status = status};
    run_job(f, state_job, &t);
}

static void go_job(struct fake *f, void *user)
{
    const struct telling *t = user;
    struct fake_version *v = find_number(f, t->number);
    v->go = true;
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++) {
        if (f->sessions[i].subscribed.subscription == 0) continue;
        const struct tb_session_go m = {.subscription = f->sessions[i].subscribed.subscription,
                                        .uid = v->key.uid};
        SEND(&f->sessions[i], TB_SESSION_GO, 0, tb_session_go, &m, 0);
    }
}

void fake_go(struct fake *f, uint64_t number)
{
    struct telling t = {.number = number};
    run_job(f, go_job, &t);
}

static void raw_job(struct fake *f, void *user)
{
    const struct telling *t = user;
    struct tb_writer *w = tb_wire_begin(f->sessions[t->session].wire, t->type, t->request, t->count);
    assert_non_null(w);
    tb_write_bytes(w, t->bytes, t->count);
    tb_wire_end(f->sessions[t->session].wire);
}

void fake_raw(struct fake *f, uint32_t session, uint16_t type, uint64_t request, const void *bytes,
              uint32_t count)
{
    struct telling t = {.session = session, .type = type, .request = request, .bytes = bytes, .count = count};
    run_job(f, raw_job, &t);
}

static void plan_job(struct fake *f, void *user)
{
    const struct telling *t = user;
    grant_and_plan(f, t->session, find_number(f, t->number));
}

void fake_plan(struct fake *f, uint32_t session, uint64_t number)
{
    struct telling t = {.session = session, .number = number};
    run_job(f, plan_job, &t);
}

/* ---- a version made here ---- */

/* With a base: its bytes, one of a hundred changed; without, noise. */
static void make_bytes(struct fake_shard *sh, const struct fake_shard *base, uint64_t seed)
{
    for (uint64_t i = 0; i < sh->manifest.bytes; i++) {
        const bool keep = base != NULL && i % 100 != seed % 100;
        sh->bytes[i] = keep           ? base->bytes[i]
                       : base != NULL ? (uint8_t)(base->bytes[i] + 1)
                                      : (uint8_t)(check_random(&seed) >> 5);
    }
}

static void make_shard(struct fake_shard *sh, uint32_t shard, uint32_t tensors, uint64_t tensor_bytes,
                       const struct fake_shard *base, uint64_t seed)
{
    struct tb_tensor list[16];
    char names[16][16];
    assert_true(tensors <= 16);
    memset(list, 0, sizeof list);
    for (uint32_t i = 0; i < tensors; i++) {
        snprintf(names[i], sizeof names[i], "t%u", shard * tensors + i);
        list[i] = (struct tb_tensor){.name = names[i],
                                     .dtype = TB_DTYPE_U8,
                                     .rank = 1,
                                     .full = {tensor_bytes},
                                     .box_count = {tensor_bytes}};
    }
    const size_t layout_bytes = tb_layout_bytes_for(list, tensors);
    void *layout_memory = malloc(layout_bytes);
    struct tb_layout layout;
    assert_int_equal(tb_layout_build(list, tensors, layout_memory, layout_bytes, &layout), TB_OK);
    const struct tb_blob blob = {.name = "config.json", .bytes = 5};
    const size_t bytes = tb_manifest_bytes_for(&layout, &blob, 1);
    sh->manifest_memory = malloc(bytes);
    assert_int_equal(tb_manifest_build(&layout, &blob, 1, sh->manifest_memory, bytes, &sh->manifest), TB_OK);
    free(layout_memory);
    make_place(sh);
    make_bytes(sh, base, seed);
    for (uint32_t k = 0; k < sh->manifest.chunk_count; k++)
        sh->manifest.digests[k] =
            tb_digest_of(sh->bytes + sh->manifest.chunks[k].offset, sh->manifest.chunks[k].bytes);
    sh->manifest.root = tb_manifest_root(&sh->manifest);
    sh->head_bytes = (uint32_t)tb_manifest_head_bytes(&sh->manifest);
    sh->head = malloc(sh->head_bytes);
    struct tb_writer w;
    tb_writer_init(&w, sh->head, sh->head_bytes);
    tb_manifest_head_encode(&sh->manifest, &w);
    sh->sealed = true;
}

static struct fake_version *make_version(struct fake *f, uint64_t number, uint32_t shard_count,
                                         uint32_t tensors, uint64_t tensor_bytes,
                                         const struct fake_version *base)
{
    const struct tb_id run = {{1}};
    pthread_mutex_lock(&f->lock);
    struct fake_version *v = new_version(f, "policy", &run, number, shard_count);
    for (uint32_t i = 0; i < shard_count; i++)
        make_shard(&v->shards[i], i, tensors, tensor_bytes, base == NULL ? NULL : &base->shards[i],
                   base == NULL ? number * 100 + i : number);
    become_ready(v);
    assert_true(v->ready);
    export_landed(f, v, base);
    pthread_mutex_unlock(&f->lock);
    return v;
}

struct fake_version *fake_make(struct fake *f, uint64_t number, uint32_t shard_count, uint32_t tensors,
                               uint64_t tensor_bytes)
{
    return make_version(f, number, shard_count, tensors, tensor_bytes, NULL);
}

struct fake_version *fake_step(struct fake *f, uint64_t number, const struct fake_version *base,
                               uint32_t tensors)
{
    return make_version(f, number, base->key.shard_count, tensors,
                        base->shards[0].manifest.layout.tensors[0].bytes, base);
}

struct tb_session *fake_session_open(struct fake *f, const char *name, const char *host)
{
    const struct tb_session_options options = {
        .struct_bytes = sizeof options, .threads = 2, .gateway = f->path, .name = name, .host = host};
    struct tb_session *s = NULL;
    const int status = tb_session_open(&options, &s);
    if (status != TB_OK) fail_msg("tb_session_open: %s", tb_last_error());
    return s;
}
