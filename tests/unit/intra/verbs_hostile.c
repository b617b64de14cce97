/* verbs_hostile.c - a reader of our own, that does what no hop does: wrong keys, another's and
 * stale ones (P8), writes (P1), words where none are expected (P7), and READs without pause while
 * the owner takes its memory back (P1).
 *
 * Covers: intra/fabric/door_guests.c */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/transport/transport_words.h"
#include "verbs_suite.h"

#define OTHER_EXPORT 9u

struct raw {
    struct scene *s;
    struct tb_fabric *fabric;
    struct tb_upstream *upstream;
    struct tb_hop_options options;
    const struct tb_source_shard *source;
    const struct tb_place *place;
    struct tb_read reads[4];
    uint8_t expect;          /* what every byte that is read has to be; 0: not looked at */
    uint32_t done, wrong;    /* atomic */
    bool open, lost, closed; /* atomic */

    struct tb_verbs_queue_ops ops;
    uint8_t bytes[4096];
    struct tb_region region;
    struct tb_verbs_window window; /* as the owner gave it */
    enum ibv_wr_opcode opcode;     /* what to post */
    bool empty;                    /* without a byte */
    uint32_t posted, completed;    /* atomic */
    enum ibv_wc_status status;
};

static void raw_read(struct raw *r, struct tb_read *read)
{
    *read =
        (struct tb_read){.offset = 64, .bytes = 65536, .to = r->s->hold.bytes + 65536 * (read - r->reads)};
    r->upstream->ops->read(r->upstream, read);
}

static void raw_on_open(void *user)
{
    struct raw *r = user;
    __atomic_store_n(&r->open, true, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i < 4 && r->expect != 0; i++)
        raw_read(r, &r->reads[i]);
}

static void raw_on_read(void *user, struct tb_read *read)
{
    struct raw *r = user;
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < read->bytes; i++)
        wrong += read->to[i] != r->expect;
    if (wrong > 0) __atomic_add_fetch(&r->wrong, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&r->done, 1, __ATOMIC_RELEASE);
    raw_read(r, read);
}

static void raw_on_confirmed(void *user)
{
    (void)user;
}

static void raw_on_lost(void *user, enum tb_status why)
{
    struct raw *r = user;
    (void)why;
    __atomic_store_n(&r->lost, true, __ATOMIC_RELEASE);
}

static void raw_on_closed(void *user)
{
    struct raw *r = user;
    __atomic_store_n(&r->closed, true, __ATOMIC_RELEASE);
}

static const struct tb_upstream_events raw_events = {.on_open = raw_on_open,
                                                     .on_read = raw_on_read,
                                                     .on_confirmed = raw_on_confirmed,
                                                     .on_lost = raw_on_lost,
                                                     .on_closed = raw_on_closed};

static void raw_dial(struct tb_fabric *f, void *arg)
{
    struct raw *r = arg;
    const struct tb_upstream_options options = {.fabric = f,
                                                .hop = &r->options,
                                                .sources = &r->source,
                                                .source_count = 1,
                                                .places = &r->place,
                                                .idle_ms = 20000,
                                                .open_ms = 20000,
                                                .events = &raw_events,
                                                .user = r};
    must(tb_transport_verbs.open(&options, &r->upstream) == TB_OK, "a hop is opened");
}

static bool raw_flag(const bool *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static uint32_t raw_count(const uint32_t *count)
{
    return __atomic_load_n(count, __ATOMIC_ACQUIRE);
}

static void raw_open(struct raw *r, struct scene *s, uint8_t expect)
{
    memset(r, 0, sizeof *r);
    r->s = s;
    r->fabric = s->reader;
    r->expect = expect;
    r->options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    r->source = &s->owner.shard;
    r->place = &s->hold.place;
    tb_fabric_call(r->fabric, raw_dial, r);
    wait_until(raw_flag(&r->open));
}

static void raw_hang_up(struct tb_fabric *f, void *arg)
{
    (void)f;
    struct raw *r = arg;
    r->upstream->ops->close(r->upstream);
}

static void raw_free_region(struct tb_fabric *f, void *arg)
{
    (void)f;
    tb_region_free(&((struct raw *)arg)->region);
}

static void raw_close(struct raw *r)
{
    tb_fabric_call(r->fabric, raw_hang_up, r);
    wait_until(raw_flag(&r->closed));
    tb_fabric_call(r->fabric, raw_free_region, r);
}

static void raw_on_completion(struct tb_verbs_queue *q, const struct ibv_wc *wc)
{
    struct raw *r = (struct raw *)((char *)(uintptr_t)q->ops - offsetof(struct raw, ops));
    if (r->status == IBV_WC_SUCCESS) r->status = wc->status;
    __atomic_add_fetch(&r->completed, 1, __ATOMIC_RELEASE);
}

/* Posts `opcode` with the window's address and key, past the upstream. */
static void raw_post(struct tb_fabric *f, void *arg)
{
    struct raw *r = arg;
    struct tb_verbs_queue *q = LIST_FIRST(&f->verbs->queues);
    const struct tb_region_options mine = {.domain = f->verbs->nics[0].pd,
                                           .bytes = r->bytes,
                                           .count = sizeof r->bytes,
                                           .dmabuf = -1,
                                           .target = true};
    if (r->region.mr == NULL) must(tb_region_register(&mine, &r->region) == TB_OK, "memory is registered");
    r->ops = *q->ops;
    r->ops.on_completion = raw_on_completion;
    q->ops = &r->ops;
    struct ibv_sge sge = {.addr = (uintptr_t)r->bytes, .length = sizeof r->bytes, .lkey = r->region.mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = r->empty ? 0 : 1, .opcode = r->opcode};
    if (r->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        sge.length = 8;
        wr.wr.atomic.remote_addr = r->window.address & ~UINT64_C(7);
        wr.wr.atomic.compare_add = 1;
        wr.wr.atomic.rkey = r->window.key;
    } else {
        wr.wr.rdma.remote_addr = r->window.address;
        wr.wr.rdma.rkey = r->window.key;
    }
    struct ibv_send_wr *bad;
    must(ibv_post_send(q->id->qp, &wr, &bad) == 0, "a work request is posted");
    tb_verbs_queue_posted(q, 1);
    r->posted++;
}

static void raw_do(struct raw *r, enum ibv_wr_opcode opcode)
{
    r->opcode = opcode;
    tb_fabric_call(r->fabric, raw_post, r);
    wait_until(raw_count(&r->completed) == r->posted);
}

static void window_of_guest(struct tb_fabric *f, void *arg)
{
    struct raw *r = arg;
    const enum tb_status status = tb_verbs_guest_window(LIST_FIRST(&f->verbs->guests), 0, &r->window);
    must(status == TB_OK, tb_status_name(status));
}

/* The twin of what follows: with the right key a READ brings the bytes. */
void the_right_key_opens(void **state)
{
    (void)state;
    struct scene s;
    struct raw r;
    verbs_open(&s, 1);
    raw_open(&r, &s, 0);
    tb_fabric_call(s.owner.fabric, window_of_guest, &r);
    raw_do(&r, IBV_WR_RDMA_READ);
    assert_int_equal(r.status, IBV_WC_SUCCESS);
    assert_memory_equal(r.bytes, s.owner.bytes, sizeof r.bytes);
    raw_close(&r);
    verbs_close(&s);
}

void P8_a_wrong_key_opens_nothing(void **state)
{
    (void)state;
    struct scene s;
    struct raw r;
    for (uint32_t bit = 1; bit < 1u << 12; bit <<= 4) {
        verbs_open(&s, 1);
        raw_open(&r, &s, 0);
        tb_fabric_call(s.owner.fabric, window_of_guest, &r);
        r.window.key ^= bit;
        raw_do(&r, IBV_WR_RDMA_READ);
        assert_int_equal(r.status, IBV_WC_REM_ACCESS_ERR);
        raw_close(&r);
        verbs_close(&s);
    }
}

void P8_past_the_end_there_is_nothing(void **state)
{
    (void)state;
    struct scene s;
    struct raw r;
    verbs_open(&s, 1);
    raw_open(&r, &s, 0);
    tb_fabric_call(s.owner.fabric, window_of_guest, &r);
    r.window.address += s.cargo.manifest.bytes; /* begins inside, ends outside */
    raw_do(&r, IBV_WR_RDMA_READ);
    assert_int_equal(r.status, IBV_WC_REM_ACCESS_ERR);
    raw_close(&r);
    verbs_close(&s);
}

static void open_other(struct scene *s, uint64_t export_id, uint8_t *bytes, uint64_t count)
{
    const struct tb_export_buffer buffer = {.bytes = bytes, .count = count, .memfd = -1};
    const struct tb_export_options options = {.export_id = export_id, .buffers = &buffer, .buffer_count = 1};
    assert_int_equal(tb_export_open(s->owner.fabric, &options), TB_OK);
}

/* A reader of the other export, through which the owner registers it: its window. */
static struct tb_verbs_window window_of_other(struct scene *s, struct raw *r)
{
    memset(r, 0, sizeof *r);
    r->s = s;
    r->fabric = s->reader;
    r->options = hop_to(&s->owner, s->reader, s->way, &s->place, &s->tale);
    r->options.export_id = OTHER_EXPORT;
    struct tb_fabric_endpoint me;
    tb_fabric_endpoint(s->reader, &me);
    assert_int_equal(tb_export_grant(s->owner.fabric, OTHER_EXPORT, &r->options.token, &me.fingerprint),
                     TB_OK);
    static const struct tb_source_shard whole = {.shard = 3, .held_buffer = TB_SOURCE_ALL_HELD};
    r->source = &whole;
    r->place = &s->hold.place;
    tb_fabric_call(r->fabric, raw_dial, r);
    wait_until(raw_flag(&r->open));
    tb_fabric_call(s->owner.fabric, window_of_guest, r);
    return r->window;
}

/* The key of another export of the same process: while it is open, after it was closed, and after
 * that with its memory still registered for the next. */
void P8_another_exports_key_opens_nothing(void **state)
{
    (void)state;
    static uint8_t secret[8192];
    for (int stale = 0; stale < 3; stale++) {
        struct scene s;
        struct raw other, r;
        verbs_open(&s, 1);
        if (stale == 2) tb_fabric_memory_stays(s.owner.fabric, secret, sizeof secret);
        open_other(&s, OTHER_EXPORT, secret, sizeof secret);
        const struct tb_verbs_window window = window_of_other(&s, &other);
        if (stale) {
            raw_close(&other);
            tb_export_close(s.owner.fabric, OTHER_EXPORT, 0);
        }
        assert_int_equal(verbs_pinned(s.owner.fabric).regions, stale == 2 ? 1 : 0);
        raw_open(&r, &s, 0);
        r.window = window;
        raw_do(&r, IBV_WR_RDMA_READ);
        assert_int_equal(r.status, IBV_WC_REM_ACCESS_ERR);
        raw_close(&r);
        if (!stale) raw_close(&other);
        tb_export_close(s.owner.fabric, OTHER_EXPORT, 0);
        verbs_close(&s);
    }
}

/* P1: the key is good, and still nobody writes by it. */
void P1_nobody_writes_remotely(void **state)
{
    (void)state;
    const enum ibv_wr_opcode writes[] = {IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD};
    for (size_t i = 0; i < sizeof writes / sizeof writes[0]; i++) {
        struct scene s;
        struct raw r;
        verbs_open(&s, 1);
        raw_open(&r, &s, 0);
        memset(r.bytes, 0xdb, sizeof r.bytes);
        const struct tb_digest before = tb_digest_of(s.owner.bytes, s.cargo.manifest.bytes);
        tb_fabric_call(s.owner.fabric, window_of_guest, &r);
        raw_do(&r, writes[i]);
        assert_int_not_equal(r.status, IBV_WC_SUCCESS);
        const struct tb_digest after = tb_digest_of(s.owner.bytes, s.cargo.manifest.bytes);
        assert_true(tb_digest_equal(&before, &after));
        raw_close(&r);
        verbs_close(&s);
    }
}

/* A reader that SENDs: the owner's one receive has no room for a byte, so the queue pair is lost
 * with it, and what follows is flushed or refused. The door and other readers stay. */
void P7_who_sends_loses_its_queue_pair(void **state)
{
    (void)state;
    struct scene s;
    struct raw r;
    verbs_open(&s, 1);
    owner_hold_all(&s.owner);
    raw_open(&r, &s, 0);
    raw_do(&r, IBV_WR_SEND);
    r.status = IBV_WC_SUCCESS;
    raw_do(&r, IBV_WR_SEND);
    assert_int_not_equal(r.status, IBV_WC_SUCCESS);
    raw_close(&r);
    struct tb_hop *hop = verbs_hop(&s, TB_TRANSPORT_VERBS);
    wait_until(tb_place_whole(&s.hold.place));
    tb_hop_close(hop);
    verbs_close(&s);
}

static void count_queues(struct tb_fabric *f, void *arg)
{
    struct tb_verbs_queue *q;
    LIST_FOREACH(q, &f->verbs->queues, link)
    ++*(uint32_t *)arg;
}

static uint32_t queue_count(struct tb_fabric *f)
{
    uint32_t count = 0;
    tb_fabric_call(f, count_queues, &count);
    return count;
}

/* An owner lets its readers try without end where it is not ready; here: twice. */
static bool no_patience;

int __real_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
int __wrap_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
int __wrap_rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    if (no_patience) param->rnr_retry_count = 1;
    return __real_rdma_accept(id, param);
}

/* Receiver not ready: while the owner's thread stands still, an empty SEND takes its one receive,
 * and nobody posts another. The next is refused, and refused again, and fails; the queue pair with
 * it, at the owner as well. A hop that another reader has goes on. */
void P7_who_sends_to_nobody_is_told_so(void **state)
{
    (void)state;
    struct scene s;
    struct raw r;
    verbs_open(&s, 6);
    const uint32_t n = s.cargo.manifest.chunk_count;
    owner_hold(&s.owner, 0, n / 2);
    struct tb_hop *hop = NULL;
    struct tb_hop_options options = hop_to(&s.owner, s.reader, s.way, &s.place, &s.tale);
    options.idle_ms = 60000;
    assert_int_equal(tb_hop_open(s.reader, &options, &hop), TB_OK);
    wait_until(tb_place_held_count(&s.hold.place) == n / 2);
    no_patience = true;
    raw_open(&r, &s, 0);
    no_patience = false;
    r.empty = true;
    owner_stand_still(&s.owner, true);
    raw_do(&r, IBV_WR_SEND);
    assert_int_equal(r.status, IBV_WC_SUCCESS);
    raw_do(&r, IBV_WR_SEND);
    assert_int_equal(r.status, IBV_WC_RNR_RETRY_EXC_ERR);
    owner_stand_still(&s.owner, false);
    wait_until(queue_count(s.owner.fabric) == 1);
    owner_hold_all(&s.owner);
    wait_until(tb_place_whole(&s.hold.place));
    assert_int_equal(told(&s.tale).lost, 0);
    raw_close(&r);
    tb_hop_close(hop);
    verbs_close(&s);
}

/* ---- taking memory back ---- */

/* The reader READs without pause; the owner takes its memory back and writes to it at once. No READ
 * that completed may have seen what was written: until close returned the memory was the readers',
 * from then on it is the owner's. */
void P1_no_read_ends_after_its_memory_is_given_back(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 4; round++) {
        struct scene s;
        struct raw r;
        verbs_open(&s, 1);
        if (round % 2 > 0)
            verbs_memory_stays(&s); /* its regions outlive the export, its readers' queue pairs do not */
        memset(s.owner.bytes, 0x11, s.cargo.manifest.bytes);
        raw_open(&r, &s, 0x11);
        wait_until(raw_count(&r.done) > 10 * round);
        tb_export_close(s.owner.fabric, EXPORT_ID, 0);
        memset(s.owner.bytes, 0x55, s.cargo.manifest.bytes);
        wait_until(raw_flag(&r.lost));
        const tb_time_ns from = tb_clock_now();
        wait_until(tb_clock_now() - from > TB_MS(300)); /* it would read on, if it were let */
        raw_close(&r);
        assert_int_equal(r.wrong, 0);
        verbs_close(&s);
    }
}

/* Memory that stays is cut anew, as an arena's is for each version, while a reader still READs by
 * the former cut: its region stays as long as that reader's export, whatever else is registered
 * over it. P7: of the two one is kept, when nobody uses either. */
void P1_a_cut_that_is_read_outlives_the_next(void **state)
{
    (void)state;
    struct scene s;
    struct raw r, other;
    verbs_open(&s, 1);
    verbs_memory_stays(&s);
    memset(s.owner.bytes, 0x11, s.cargo.manifest.bytes);
    raw_open(&r, &s, 0x11);
    wait_until(raw_count(&r.done) > 4);
    open_other(&s, OTHER_EXPORT, s.owner.bytes, s.cargo.manifest.bytes / 2);
    (void)window_of_other(&s, &other);
    const uint32_t before = raw_count(&r.done);
    wait_until(raw_flag(&r.lost) || raw_count(&r.done) > before + 8);
    assert_false(raw_flag(&r.lost));
    assert_int_equal(r.wrong, 0);
    assert_int_equal(verbs_pinned(s.owner.fabric).regions, 2);
    raw_close(&r);
    raw_close(&other);
    tb_export_close(s.owner.fabric, OTHER_EXPORT, 0);
    tb_export_close(s.owner.fabric, EXPORT_ID, 0);
    assert_int_equal(verbs_pinned(s.owner.fabric).regions, 1);
    assert_int_equal(verbs_pinned(s.owner.fabric).domains, 1);
    verbs_close(&s);
}
