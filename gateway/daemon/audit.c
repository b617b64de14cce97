/* audit.c - rows of the audit record: summed, queued by share, handed to the store's writer. */
#include "gateway/daemon/audit.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/daemon/daemon.h"
#include "gateway/store/audit_lines.h"
#include "gateway/store/store_audit.h"
#include "intra/fabric/fabric_exports.h"
#include "wan/link/links_stats.h"

#define ROWS_MAX     128u /* of a share */
#define SUMS_MAX     128u /* of a share that is summed */
#define SUMS_EACH    32u  /* of one identity: beyond that its objects are one */
#define QUERIES_MAX  16u
#define HANDED_MAX   32u
#define SETTINGS_MAX 4096u
#define MINUTE_MS    60000u

static const char others[] = "(others)";

struct queue {
    uint32_t first, count; /* of a ring */
    struct tb_audit_record rows[ROWS_MAX];
};

/* A row here counts the times that no row of the store has yet. */
struct sums {
    uint32_t count;
    struct tb_audit_record rows[SUMS_MAX];
};

struct question {
    struct tb_audit_query *query;
    tb_audit_answer_fn fn;
    void *user;
};

struct tb_audit {
    struct queue queues[TB_AUDIT_SHARES];
    struct sums sums[TB_AUDIT_SHARES]; /* that of acts stays empty: 85 KiB */
    struct question questions[QUERIES_MAX];
    uint32_t question_count;
    /* With the writer: so many of each queue, and questions. */
    uint32_t handed[TB_AUDIT_SHARES], asked;
    struct tb_store_row out[HANDED_MAX];
    struct tb_gauge rows_gauge, sums_gauge;
    uint64_t lost, lost_told;
};

/* ---- rows ---- */

/* Cut between characters. */
static void text_put(char *out, size_t size, const char *text)
{
    TB_ASSERT(size > 0);
    out[0] = '\0';
    if (text == NULL) return;
    size_t used = strnlen(text, size - 1);
    while (used > 0 && ((unsigned char)text[used] & 0xc0) == 0x80)
        used--;
    memcpy(out, text, used);
    out[used] = '\0';
}

static void record_fill(struct tb_audit_record *r, enum tb_audit_share share,
                        const struct tb_audit_event *event)
{
    *r = (struct tb_audit_record){.wall_ms = tb_clock_wall_ms(), .share = share, .count = 1};
    text_put(r->action, sizeof r->action, event->action);
    text_put(r->identity, sizeof r->identity, event->identity);
    text_put(r->object, sizeof r->object, event->object);
    text_put(r->origin, sizeof r->origin, event->origin);
    text_put(r->result, sizeof r->result, event->result);
}

/* P7 P10: told once a second at most, by the tick. */
static void lose(struct tb_audit *a, uint64_t count)
{
    a->lost += count;
    a->rows_gauge.refused += count;
}

static bool queue_put(struct tb_audit *a, const struct tb_audit_record *r)
{
    struct queue *q = &a->queues[r->share];
    if (q->count == ROWS_MAX) return false;
    q->rows[(q->first + q->count++) % ROWS_MAX] = *r;
    tb_gauge_add(&a->rows_gauge, 1);
    return true;
}

void tb_audit_act(struct tb_daemon *d, const struct tb_audit_event *event)
{
    struct tb_audit_record r;
    if (d->audit == NULL) return;
    record_fill(&r, TB_AUDIT_ACTS, event);
    if (!queue_put(d->audit, &r)) lose(d->audit, 1);
    tb_daemon_wake(d); /* the turn hands it to the writer, with what follows from the act */
}

/* ---- sums ---- */

static bool same(const struct tb_audit_record *a, const struct tb_audit_record *b)
{
    return a->minute == b->minute && strcmp(a->identity, b->identity) == 0 &&
           strcmp(a->object, b->object) == 0 && strcmp(a->action, b->action) == 0 &&
           strcmp(a->origin, b->origin) == 0 && strcmp(a->result, b->result) == 0;
}

static struct tb_audit_record *sum_find(struct sums *s, const struct tb_audit_record *r, uint32_t *mine_out)
{
    *mine_out = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        if (same(&s->rows[i], r)) return &s->rows[i];
        *mine_out += strcmp(s->rows[i].identity, r->identity) == 0;
    }
    return NULL;
}

/* P7: one identity has so many sums; all its other objects are one more. */
static void sum_add(struct tb_audit *a, struct tb_audit_record *r)
{
    struct sums *s = &a->sums[r->share];
    uint32_t mine;
    struct tb_audit_record *found = sum_find(s, r, &mine);
    if (found == NULL && mine >= SUMS_EACH) {
        text_put(r->object, sizeof r->object, others);
        r->origin[0] = r->result[0] = '\0';
        found = sum_find(s, r, &mine);
    }
    if (found != NULL) {
        found->count += r->count;
        return;
    }
    if (s->count == SUMS_MAX) {
        lose(a, r->count);
        a->sums_gauge.refused += r->count;
        return;
    }
    s->rows[s->count++] = *r;
    tb_gauge_add(&a->sums_gauge, 1);
}

static void summed(struct tb_daemon *d, enum tb_audit_share share, const struct tb_audit_event *event,
                   uint64_t count)
{
    struct tb_audit_record r;
    if (d->audit == NULL || count == 0) return;
    record_fill(&r, share, event);
    r.minute = r.wall_ms / MINUTE_MS;
    r.count = count;
    sum_add(d->audit, &r);
}

void tb_audit_version(struct tb_daemon *d, const struct tb_audit_event *event)
{
    summed(d, TB_AUDIT_VERSIONS, event, 1);
}

void tb_audit_denied(struct tb_daemon *d, const struct tb_audit_event *event, uint64_t count)
{
    summed(d, TB_AUDIT_DENIALS, event, count);
}

void tb_audit_peer_text(const struct tb_daemon *d, uint32_t peer, char out[TB_URI_BYTES_MAX])
{
    TB_ASSERT(peer < d->config->peer_count);
    const struct tb_config_peer *p = &d->config->peers[peer];
    const struct tb_identity it = {.kind = TB_IDENTITY_GATEWAY, .site = p->of, .name = p->gateway};
    tb_identity_format(&it, out);
}

void tb_audit_peer_denied(struct tb_daemon *d, uint32_t peer, const char *action, const char *object,
                          const char *why)
{
    char identity[TB_URI_BYTES_MAX];
    tb_audit_peer_text(d, peer, identity);
    tb_audit_denied(d, &(struct tb_audit_event){action, identity, object, "link", why}, 1);
}

void tb_audit_version_text(const struct tb_version_key *key, char out[TB_AUDIT_VERSION_BYTES])
{
    snprintf(out, TB_AUDIT_VERSION_BYTES, "%s %llu:%llu", key->model.text, (unsigned long long)key->run_order,
             (unsigned long long)key->number);
}

/* A sum whose minute is over, and that has nothing left, goes. */
static void sums_out(struct tb_audit *a, struct sums *s, uint64_t minute)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        struct tb_audit_record *r = &s->rows[i];
        if (r->count != 0 && queue_put(a, r)) r->count = 0;
        if (r->count != 0 || r->minute >= minute) s->rows[kept++] = *r;
    }
    TB_ASSERT(kept <= s->count && a->sums_gauge.used >= s->count - kept);
    a->sums_gauge.used -= s->count - kept;
    s->count = kept;
}

void tb_audit_sums_end(struct tb_daemon *d)
{
    for (int share = 0; d->audit != NULL && share < TB_AUDIT_SHARES; share++)
        sums_out(d->audit, &d->audit->sums[share], UINT64_MAX);
}

/* P10: an error, because the record has a hole that nothing fills again. */
static void lost_tell(struct tb_daemon *d)
{
    struct tb_audit *a = d->audit;
    if (a->lost == a->lost_told) return;
    d->counters.audit_lost += a->lost - a->lost_told;
    tb_log(TB_LOG_ERROR, "audit.lost", "rows=%llu all=%llu why=%s",
           (unsigned long long)(a->lost - a->lost_told), (unsigned long long)a->lost,
           d->store_down ? "the_store_cannot_be_written" : "more_came_than_were_written");
    a->lost_told = a->lost;
}

/* A reader whose token was never granted has no identity. */
static void tokens_sum(struct tb_daemon *d)
{
    struct tb_fabric_usage usage;
    if (d->fabric == NULL) return;
    tb_fabric_usage(d->fabric, &usage);
    if (usage.readers_denied > d->tokens_denied)
        tb_audit_denied(d,
                        &(struct tb_audit_event){.action = "read",
                                                 .object = "door",
                                                 .origin = "door",
                                                 .result = "the token does not open the export"},
                        usage.readers_denied - d->tokens_denied);
    d->tokens_denied = usage.readers_denied;
}

/* Strangers at the links' port have no identity. */
static void strangers_sum(struct tb_daemon *d)
{
    const uint64_t now = d->links != NULL ? tb_links_strangers_refused(d->links) : d->strangers_seen;
    if (now > d->strangers_seen)
        tb_audit_denied(
            d,
            &(struct tb_audit_event){
                .action = "connect", .object = "link", .origin = "link.listen", .result = "refused"},
            now - d->strangers_seen);
    d->strangers_seen = now;
}

void tb_audit_tick(struct tb_daemon *d)
{
    struct tb_audit *a = d->audit;
    if (a == NULL) return;
    strangers_sum(d);
    tokens_sum(d);
    for (int share = 0; share < TB_AUDIT_SHARES; share++)
        sums_out(a, &a->sums[share], tb_clock_wall_ms() / MINUTE_MS);
    lost_tell(d);
}

void tb_audit_check(const struct tb_daemon *d)
{
    const struct tb_audit *a = d->audit;
    uint64_t rows = 0, sums = 0;
    for (int share = 0; a != NULL && share < TB_AUDIT_SHARES; share++) {
        const struct queue *q = &a->queues[share];
        TB_ASSERT(q->first < ROWS_MAX && q->count <= ROWS_MAX && a->handed[share] <= q->count);
        TB_ASSERT(a->sums[share].count <= SUMS_MAX);
        rows += q->count;
        sums += a->sums[share].count;
    }
    TB_ASSERT(a == NULL || (rows == a->rows_gauge.used && sums == a->sums_gauge.used));
    TB_ASSERT(a == NULL || (a->asked <= a->question_count && a->question_count <= QUERIES_MAX));
    TB_ASSERT(a == NULL || a->lost_told <= a->lost);
}

/* ---- to the writer ---- */

bool tb_audit_waits(const struct tb_daemon *d)
{
    const struct tb_audit *a = d->audit;
    return a != NULL && (a->rows_gauge.used != 0 || a->question_count != 0);
}

uint32_t tb_audit_rows(struct tb_daemon *d, const struct tb_store_row **rows, uint32_t most)
{
    struct tb_audit *a = d->audit;
    uint32_t count = 0;
    if (a == NULL) return 0;
    TB_ASSERT(a->asked == 0);
    if (most > HANDED_MAX) most = HANDED_MAX;
    for (int share = 0; share < TB_AUDIT_SHARES; share++) {
        const struct queue *q = &a->queues[share];
        TB_ASSERT(a->handed[share] == 0);
        for (uint32_t i = 0; i < q->count && count < most; i++, a->handed[share]++)
            a->out[count++] =
                (struct tb_store_row){.kind = TB_STORE_RECORD, .record = q->rows[(q->first + i) % ROWS_MAX]};
    }
    for (; a->asked < a->question_count && count < most; a->asked++)
        a->out[count++] =
            (struct tb_store_row){.kind = TB_STORE_RECORDS_ASKED, .asked = a->questions[a->asked].query};
    for (uint32_t i = 0; i < count; i++)
        rows[i] = &a->out[i];
    return count;
}

static void questions_answer(struct tb_daemon *d, enum tb_status status)
{
    struct tb_audit *a = d->audit;
    struct question answered[QUERIES_MAX];
    const uint32_t count = a->asked;
    TB_ASSERT(count <= a->question_count);
    memcpy(answered, a->questions, count * sizeof answered[0]);
    memmove(a->questions, a->questions + count, (a->question_count - count) * sizeof answered[0]);
    a->question_count -= count;
    a->asked = 0;
    for (uint32_t i = 0; i < count; i++)
        answered[i].fn(d, answered[i].user, answered[i].query, status);
}

void tb_audit_written(struct tb_daemon *d, uint32_t count, enum tb_status status)
{
    struct tb_audit *a = d->audit;
    if (a == NULL || count == 0) return;
    uint32_t left = count;
    for (int share = 0; share < TB_AUDIT_SHARES; share++) {
        struct queue *q = &a->queues[share];
        const uint32_t handed = a->handed[share];
        TB_ASSERT(handed <= q->count && handed <= left);
        a->handed[share] = 0;
        left -= handed;
        if (status != TB_OK) continue;
        q->first = (q->first + handed) % ROWS_MAX;
        q->count -= handed;
        a->rows_gauge.used -= handed;
    }
    TB_ASSERT(left == a->asked);
    questions_answer(d, status);
}

enum tb_status tb_audit_ask(struct tb_daemon *d, struct tb_audit_query *query, tb_audit_answer_fn fn,
                            void *user)
{
    struct tb_audit *a = d->audit;
    if (a == NULL || a->question_count == QUERIES_MAX) return TB_SITE_NOMEM;
    if (d->store_down) return TB_SITE_STORE;
    a->questions[a->question_count++] = (struct question){query, fn, user};
    tb_audit_tick(d); /* the answer has what came before the question */
    tb_daemon_wake(d);
    return TB_OK;
}

void tb_audit_usage(const struct tb_daemon *d, struct tb_audit_usage *usage_out)
{
    *usage_out = (struct tb_audit_usage){.rows_max = ROWS_MAX * TB_AUDIT_SHARES,
                                         .sums_max = SUMS_MAX * (TB_AUDIT_SHARES - 1)};
    if (d->audit == NULL) return;
    usage_out->rows = d->audit->rows_gauge;
    usage_out->sums = d->audit->sums_gauge;
    usage_out->lost = d->audit->lost;
}

const char *tb_audit_row_at(const struct tb_daemon *d, uint32_t *cursor)
{
    uint32_t i = (*cursor)++;
    for (int share = 0; d->audit != NULL && share < TB_AUDIT_SHARES; share++) {
        const struct queue *q = &d->audit->queues[share];
        if (i < q->count) return q->rows[(q->first + i) % ROWS_MAX].identity;
        i -= q->count;
    }
    return NULL;
}

const char *tb_audit_sum_at(const struct tb_daemon *d, uint32_t *cursor)
{
    uint32_t i = (*cursor)++;
    for (int share = 0; d->audit != NULL && share < TB_AUDIT_SHARES; share++) {
        const struct sums *s = &d->audit->sums[share];
        if (i < s->count) return s->rows[i].identity;
        i -= s->count;
    }
    return NULL;
}

/* ---- opening and closing ---- */

struct settings {
    struct tb_store_setting *all;
    uint32_t count;
    bool full;
};

static void setting_add(void *user, const char *key, const char *value)
{
    struct settings *s = user;
    char *copy = NULL;
    s->full |= s->count == SETTINGS_MAX;
    if (s->full) return;
    if (value != NULL) {
        copy = tb_malloc(strlen(value) + 1);
        s->full |= copy == NULL;
        if (copy != NULL) memcpy(copy, value, strlen(value) + 1);
    }
    snprintf(s->all[s->count].key, sizeof s->all[0].key, "%s", key);
    s->all[s->count++].value = copy;
}

struct changes {
    uint32_t count;
    size_t used;
    char text[TB_AUDIT_OBJECT_BYTES];
};

static void changed(void *user, const char *key)
{
    struct changes *c = user;
    const size_t bytes = strlen(key);
    c->count++;
    if (c->used + bytes + 2 > sizeof c->text - 16) return; /* the count tells how many there are */
    c->used +=
        (size_t)snprintf(c->text + c->used, sizeof c->text - c->used, "%s%s", c->used > 0 ? " " : "", key);
}

/* The keys of the configuration that have another value than at the start before. */
static enum tb_status settings_compare(struct tb_daemon *d, struct changes *c)
{
    struct settings s = {.all = tb_calloc(SETTINGS_MAX, sizeof s.all[0])};
    if (s.all == NULL) return TB_SITE_NOMEM;
    enum tb_status status = tb_config_each_value(d->config, setting_add, &s);
    if (s.full) status = TB_SITE_NOMEM;
    if (status == TB_OK) status = tb_store_settings(d->store, s.all, s.count, changed, c);
    for (uint32_t i = 0; i < s.count; i++)
        tb_free((void *)(uintptr_t)s.all[i].value);
    tb_free(s.all);
    return status;
}

/* `audit.file`: the store's from here on. */
static enum tb_status file_open(struct tb_daemon *d)
{
    const struct tb_config *c = d->config;
    struct tb_audit_lines *lines;
    char why[TB_AUDIT_LINES_ERROR] = "";
    if (c->audit_file == NULL) return TB_OK;
    const enum tb_status status =
        tb_audit_lines_open(c->audit_file, c->audit_bytes, c->audit_days, &lines, why);
    if (status == TB_OK) {
        tb_store_audit_file(d->store, lines);
        return TB_OK;
    }
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_ERROR, "start.failed");
    tb_log_str(&l, "what", "audit.file");
    tb_log_str(&l, "why", why);
    tb_log_str(&l, "action", "name a file that this user alone may write to, or leave audit.file out");
    tb_log_end(&l);
    return status;
}

enum tb_status tb_audit_open(struct tb_daemon *d)
{
    TB_ASSERT(d->audit == NULL && d->store != NULL && d->persist == NULL);
    struct changes c = {0};
    d->audit = tb_calloc(1, sizeof *d->audit);
    if (d->audit == NULL) return TB_SITE_NOMEM;
    tb_store_audit_bounds(d->store, d->config->audit_bytes, d->config->audit_days);
    enum tb_status status = file_open(d);
    if (status == TB_OK) status = settings_compare(d, &c);
    if (status != TB_OK) return status;
    char result[TB_AUDIT_RESULT_BYTES];
    snprintf(result, sizeof result, "%u keys changed", c.count);
    tb_audit_act(d, &(struct tb_audit_event){"start", "gateway", c.text, "tombolod", result});
    return TB_OK;
}

/* Behind the last rows. A row that is left is lost, and told. */
void tb_audit_close(struct tb_daemon *d)
{
    struct tb_audit *a = d->audit;
    if (a == NULL) return;
    a->lost += a->rows_gauge.used;
    lost_tell(d);
    /* Those that are with the writer stay: its thread waits for a disk that does not answer. */
    for (uint32_t i = a->asked; i < a->question_count; i++)
        a->questions[i].fn(d, a->questions[i].user, a->questions[i].query, TB_SITE_DRAINING);
    tb_free(a);
    d->audit = NULL;
}
