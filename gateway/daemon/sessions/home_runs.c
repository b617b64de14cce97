/* home_runs.c - a home whose store is new or restored learns which runs other sites remember,
 * before it opens one.
 *
 * Such a model is doubted, in the store as well, until a run of it is opened. The home asks each
 * peer that may read it at the begin of each session, and takes the highest run that a peer or a
 * worker here tells. run_asking.h decides; requests that have to wait are kept as they came and
 * handled again. A model that is not doubted asks nobody: there home tells its newest run, and a
 * follower that remembers a higher one says so at both ends. */
#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"

#include "gateway/catalog/run_asking.h"
#include "gateway/daemon/daemon.h"
#include "gateway/daemon/links/peer_rights.h"
#include "gateway/daemon/links/statements.h"
#include "gateway/daemon/models/model_table.h"
#include "gateway/daemon/models/model_wake.h"
#include "gateway/daemon/persist.h"
#include "gateway/daemon/persist_links.h"
#include "gateway/daemon/rights.h"
#include "gateway/daemon/sessions/home_runs.h"
#include "gateway/daemon/sessions/session_reply.h"
#include "gateway/daemon/sessions/session_shares.h"
#include "gateway/daemon/sessions/session_table.h"
#include "gateway/store/store_load.h"
#include "wan/frame/frame.h"
#include "wan/link/links_messages.h"
#include "wan/link/links_stats.h"

#define LATER_LIFE          "a peer has seen a later life of this store"
#define WAITING_SESSION_MAX 8u /* P7: requests of one session that wait */

struct model_runs {
    bool home;       /* is here */
    bool doubted;    /* not home: no */
    const char *why; /* it is doubted */
    struct tb_run_asking asking;
    uint64_t below; /* home's run, below the remembered one, that was logged last */
    bool stored;    /* of a pattern: the store has its row */
};

struct tb_home_runs {
    struct model_runs models[TB_CONFIG_MODELS_MAX]; /* by the rows of model_table.h */
    struct tb_waiting_request *waiting;
    struct tb_waiting_request *ready; /* to be handled again */
};

/* UINT32_MAX: the catalog does not know it. */
static uint32_t model_find(const struct tb_daemon *d, const struct tb_name *name)
{
    const uint32_t row = tb_model_row_of(d, name);
    return row != TB_MODEL_NONE && d->models.rows[row].life >= TB_MODEL_AWAKE ? row : UINT32_MAX;
}

static const struct tb_name *name_of(const struct tb_daemon *d, uint32_t model)
{
    return tb_model_name(d, model);
}

static const struct tb_name *home_of(const struct tb_daemon *d, uint32_t model)
{
    return &tb_model_config(d, model)->home;
}

/* ---- whom to ask ---- */

static void begin_asking(struct tb_daemon *d, uint32_t model, const char *why)
{
    struct model_runs *m = &d->home_runs->models[model];
    TB_ASSERT(m->home && d->config->peer_count <= 64); /* a bit each */
    m->doubted = true;
    m->why = why;
    m->asking = (struct tb_run_asking){.until = tb_time_add(tb_clock_now(), TB_RUN_ASKING_WAIT),
                                       .forced = d->new_home};
    for (uint32_t i = 0; i < d->config->peer_count; i++)
        if (tb_peer_may_read(d, i, name_of(d, model))) m->asking.asked |= UINT64_C(1) << i;
}

/* "west (down), north (speaks protocol 2)", of the peers that have not answered. */
static void left_text(struct tb_daemon *d, const struct tb_run_asking *a, char *out, size_t size)
{
    static struct tb_links_stats stats; /* large; the main loop's alone */
    const uint64_t left = tb_run_asking_left(a);
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < d->config->peer_count && used < size; i++) {
        if ((left >> i & 1) == 0) continue;
        stats = (struct tb_links_stats){.up = false};
        if (tb_peer_links(d) != NULL) tb_links_stats(d->links, i, &stats);
        char state[32] = "down";
        if (stats.up && stats.protocol < TB_LINK_PROTOCOL_RUNS)
            snprintf(state, sizeof state, "speaks protocol %u", stats.protocol);
        else if (stats.up)
            snprintf(state, sizeof state, "no answer yet");
        const int more = snprintf(out + used, size - used, "%s%s (%s)", used > 0 ? ", " : "",
                                  d->config->peers[i].site.text, state);
        used += more > 0 ? (size_t)more : 0;
    }
}

static uint64_t mute_peers(struct tb_daemon *d)
{
    static struct tb_links_stats stats;
    uint64_t mute = 0;
    for (uint32_t i = 0; tb_peer_links(d) != NULL && i < d->config->peer_count; i++) {
        tb_links_stats(d->links, i, &stats);
        if (stats.up && stats.protocol < TB_LINK_PROTOCOL_RUNS) mute |= UINT64_C(1) << i;
    }
    return mute;
}

static void tell_peer(struct tb_daemon *d, uint32_t peer, uint32_t model)
{
    TB_ASSERT(peer < d->config->peer_count);
    struct tb_catalog_known_run known;
    if (tb_peer_links(d) == NULL || !tb_peer_may_read(d, peer, name_of(d, model))) return;
    if (!tb_catalog_known_run(d->catalog, name_of(d, model), &known)) return;
    const struct tb_links_run run = {known.model, known.order, known.number, known.id};
    TB_MOOT(tb_links_run_tell(d->links, peer, &run)); /* one of an older protocol does not hear it */
}

void tb_home_runs_up(struct tb_daemon *d, uint32_t peer)
{
    if (tb_peer_links(d) == NULL) return;
    TB_EACH_MODEL(d, i)
    {
        const struct model_runs *m = &d->home_runs->models[i];
        const bool ask = m->doubted && (tb_run_asking_left(&m->asking) >> peer & 1) != 0;
        if (ask) TB_MOOT(tb_links_runs_ask(d->links, peer, name_of(d, i)));
        if (m->home && !m->doubted) tell_peer(d, peer, i);
    }
}

void tb_home_runs_doubt(struct tb_daemon *d)
{
    tb_persist_doubt(d, &(struct tb_store_doubt){.doubted = true}); /* of patterns: each */
    TB_EACH_MODEL(d, i)
    {
        const struct model_runs *m = &d->home_runs->models[i];
        if (!m->home || m->doubted) continue;
        begin_asking(d, i, LATER_LIFE);
        tb_log(TB_LOG_WARN, "home.doubted", "model=%s reason=a_peer_saw_a_later_life", name_of(d, i)->text);
        tb_persist_doubt(d, &(struct tb_store_doubt){*name_of(d, i), true});
        for (uint32_t peer = 0; tb_peer_links(d) != NULL && peer < d->config->peer_count; peer++)
            if ((m->asking.asked >> peer & 1) != 0) TB_MOOT(tb_links_runs_ask(d->links, peer, name_of(d, i)));
    }
}

/* ---- what others remember ---- */

void tb_home_runs_asked(struct tb_daemon *d, uint32_t peer, const struct tb_name *model)
{
    struct tb_catalog_known_run known = {.model = *model};
    if (tb_peer_links(d) == NULL) return;
    if (!tb_peer_may_read(d, peer, model) || !tb_catalog_known_run(d->catalog, model, &known))
        known = (struct tb_catalog_known_run){.model = *model};
    const struct tb_links_run run = {known.model, known.order, known.number, known.id};
    TB_MOOT(tb_links_run_tell(d->links, peer, &run));
}

/* One line for both ends: home's newest run is not the newest that a follower remembers, and the
 * follower takes nothing of it. */
static void below_log(struct tb_daemon *d, const char *end, uint32_t peer, const struct tb_links_run *low,
                      uint64_t high)
{
    d->counters.runs_below++;
    tb_log(TB_LOG_WARN, "run.below",
           "model=%s %s=%s run_at_home=%llu run_remembered=%llu action=open_a_new_run", low->model.text, end,
           d->config->peers[peer].site.text, (unsigned long long)low->order, (unsigned long long)high);
}

static void home_told(struct tb_daemon *d, uint32_t peer, uint32_t model, const struct tb_links_run *run)
{
    struct model_runs *m = &d->home_runs->models[model];
    struct tb_catalog_known_run told = {run->model, run->order, run->number, run->run};
    struct tb_catalog_known_run ours = {.order = 0};
    const uint64_t bit = UINT64_C(1) << peer;
    if (!tb_peer_may_read(d, peer, &run->model)) return;
    TB_ASSERT(m->home && peer < 64);
    if (tb_statements_run_lower(d, peer, &told)) {
        d->counters.reports_refused++;
        tb_log(TB_LOG_WARN, "run.told_refused", "peer=%s model=%s run=%llu number=%llu status=unsigned",
               d->config->peers[peer].site.text, run->model.text, (unsigned long long)run->order,
               (unsigned long long)run->number);
    }
    (void)tb_catalog_known_run(d->catalog, &run->model, &ours);
    const enum tb_status status = tb_catalog_run_told(d->catalog, tb_clock_now(), &told, m->doubted);
    if (status == TB_TOO_LARGE) {
        d->counters.reports_refused++;
        tb_log(TB_LOG_WARN, "run.told_refused", "peer=%s model=%s run=%llu number=%llu status=too_large",
               d->config->peers[peer].site.text, run->model.text, (unsigned long long)run->order,
               (unsigned long long)run->number);
    } else if (m->doubted) {
        tb_log(TB_LOG_INFO, "home.told", "model=%s peer=%s run=%llu number=%llu", run->model.text,
               d->config->peers[peer].site.text, (unsigned long long)told.order,
               (unsigned long long)told.number);
    } else if (told.order > ours.order) {
        const struct tb_links_run low = {run->model, ours.order, ours.number, ours.id};
        below_log(d, "peer", peer, &low, told.order);
    }
    m->asking.told |= bit;
}

static void follower_told(struct tb_daemon *d, uint32_t peer, uint32_t model, const struct tb_links_run *run)
{
    struct model_runs *m = &d->home_runs->models[model];
    struct tb_catalog_known_run known;
    TB_ASSERT(!m->home);
    if (run->order == 0 || !tb_catalog_known_run(d->catalog, &run->model, &known)) return;
    if (run->order >= known.order) return;
    if (m->below != run->order) below_log(d, "home", peer, run, known.order);
    m->below = run->order;
    tell_peer(d, peer, model);
}

void tb_home_runs_told(struct tb_daemon *d, uint32_t peer, const struct tb_links_run *run)
{
    const uint32_t model = model_find(d, &run->model);
    if (model == UINT32_MAX) return;
    if (d->home_runs->models[model].home)
        home_told(d, peer, model, run);
    else if (tb_name_equal(home_of(d, model), &d->config->peers[peer].site))
        follower_told(d, peer, model, run);
}

/* P10 */
static void worker_refused(struct tb_daemon *d, const struct tb_name *worker,
                           const struct tb_catalog_known_run *said,
                           const struct tb_catalog_known_run *lowered)
{
    d->counters.reports_refused++;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "run.told_refused");
    tb_log_str(&l, "worker", worker->text);
    tb_log_str(&l, "model", said->model.text);
    tb_log_u64(&l, "run", said->order);
    tb_log_u64(&l, "number", said->number);
    tb_log_u64(&l, "signed_run", lowered->order);
    tb_log_u64(&l, "signed_number", lowered->number);
    tb_log_str(&l, "status", "unsigned");
    tb_log_end(&l);
}

/* P8: a reader's word shuts no run out, except where the store is doubted anyway. P2: it counts as
 * far as home signed. */
void tb_home_runs_worker(struct tb_daemon *d, const struct tb_name *worker,
                         const struct tb_catalog_known_run *said)
{
    const uint32_t model = model_find(d, &said->model);
    struct tb_catalog_known_run told = *said, known = {.order = 0};
    if (model == UINT32_MAX || said->order == 0) return;
    const struct model_runs *m = &d->home_runs->models[model];
    if (m->home && !m->doubted) return;
    (void)tb_catalog_known_run(d->catalog, &said->model, &known);
    const bool news =
        said->order > known.order || (said->order == known.order && said->number > known.number);
    if (tb_statements_run_lower_of_worker(d, &told) && news) worker_refused(d, worker, said, &told);
    if (told.order == 0) return;
    if (tb_catalog_run_told(d->catalog, tb_clock_now(), &told, m->doubted) != TB_OK) return;
    tb_log(TB_LOG_INFO, "home.told", "model=%s worker=1 run=%llu number=%llu", told.model.text,
           (unsigned long long)told.order, (unsigned long long)told.number);
    for (uint32_t peer = 0; !m->home && peer < d->config->peer_count; peer++)
        if (tb_name_equal(home_of(d, model), &d->config->peers[peer].site)) tell_peer(d, peer, model);
}

/* ---- requests that wait ---- */

static void refuse(struct tb_worker_session *s, uint32_t model, uint64_t request)
{
    struct tb_daemon *d = s->d;
    const struct model_runs *m = &d->home_runs->models[model];
    char left[120], why[TB_TEXT_BYTES_MAX + 1];
    TB_ASSERT(m->doubted && m->why != NULL);
    left_text(d, &m->asking, left, sizeof left);
    snprintf(why, sizeof why,
             "%s, and these peers have not said which runs they remember: %s; start them, or tombolod "
             "--new-home",
             m->why, left);
    d->counters.runs_refused++;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_WARN, "run.refused");
    tb_log_str(&l, "model", name_of(d, model)->text);
    tb_log_str(&l, "worker", s->name.text);
    tb_log_str(&l, "why", m->why);
    tb_log_str(&l, "no_answer_from", left);
    tb_log_str(&l, "action", "start these peers, or start tombolod with --new-home once");
    tb_log_end(&l);
    tb_worker_reply(s, request, TB_SITE_DOUBT, why);
}

/* P7: as many in all as there may be sessions, because requests of a session that ended stay until
 * the next tick. */
static uint64_t waits_of(const struct tb_worker_session *s)
{
    uint64_t count = 0;
    for (const struct tb_waiting_request *w = s->d->home_runs->waiting; w != NULL; w = w->next)
        count += tb_id_equal(&w->session, &s->id);
    return count;
}

static bool may_wait(const struct tb_worker_session *s, uint32_t bytes)
{
    struct tb_gauge *g = &s->d->run_waits;
    const bool spent = waits_of(s) >= WAITING_SESSION_MAX;
    g->refused += spent;
    g->spent += spent;
    return !spent && tb_worker_session_share_room(s, g, s->d->bounds.sessions, 1, waits_of) &&
           bytes <= TB_WAITING_PAYLOAD_BYTES;
}

/* First come, first served. */
static void put_last(struct tb_waiting_request **list, struct tb_waiting_request *w)
{
    while (*list != NULL)
        list = &(*list)->next;
    w->next = NULL;
    *list = w;
}

static void wait_on(struct tb_worker_session *s, uint32_t model, const struct tb_wire_frame *frame)
{
    const uint32_t bytes = (uint32_t)frame->payload.left;
    struct tb_waiting_request *w = may_wait(s, bytes) ? tb_malloc(sizeof *w + bytes) : NULL;
    if (w == NULL) {
        tb_worker_reply(s, frame->request, TB_SITE_NOMEM,
                        "too many requests wait for this home's peers, or its store");
        return;
    }
    *w = (struct tb_waiting_request){
        .session = s->id, .model = model, .request = frame->request, .type = frame->type, .bytes = bytes};
    memcpy(w->payload, frame->payload.at, bytes);
    put_last(&s->d->home_runs->waiting, w);
    tb_gauge_add(&s->d->run_waits, 1);
}

static void waiting_free(struct tb_daemon *d, struct tb_waiting_request *w)
{
    TB_ASSERT(d->run_waits.used > 0);
    d->run_waits.used--;
    tb_free(w);
}

void tb_home_runs_waits(const struct tb_daemon *d, void (*each)(void *user, const struct tb_id *session),
                        void *user)
{
    for (const struct tb_waiting_request *w = d->home_runs->waiting; w != NULL; w = w->next)
        each(user, &w->session);
}

bool tb_home_runs_holds_for_store(struct tb_worker_session *s, const struct tb_name *name,
                                  const struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    const struct tb_model_user user = {tb_worker_session_owner(&s->identity),
                                       tb_rights_may(d->config, name, &s->identity, true)};
    const enum tb_status status = tb_model_wake(d, name, &user);
    if (status == TB_OK || status == TB_NOT_FOUND) return false;
    if (status == TB_AGAIN && !d->store_down)
        wait_on(s, tb_model_row_of(d, name), frame);
    else if (status == TB_SITE_NOMEM)
        tb_worker_reply(s, frame->request, status, TB_MODELS_FULL);
    else
        tb_worker_reply(s, frame->request, TB_SITE_STORE, "the gateway's store cannot read it; see its log");
    return true;
}

bool tb_home_runs_holds(struct tb_worker_session *s, const struct tb_name *name,
                        const struct tb_wire_frame *frame)
{
    struct tb_daemon *d = s->d;
    if (tb_home_runs_holds_for_store(s, name, frame)) return true;
    const uint32_t model = model_find(d, name);
    if (model == UINT32_MAX || !d->home_runs->models[model].doubted) return false;
    const struct tb_run_asking *a = &d->home_runs->models[model].asking;
    const enum tb_run_asking_verdict verdict = tb_run_asking_judge(a, mute_peers(d), tb_clock_now());
    if (verdict == TB_RUN_ASKING_WAIT_ON)
        wait_on(s, model, frame);
    else if (verdict == TB_RUN_ASKING_REFUSE)
        refuse(s, model, frame->request);
    return verdict != TB_RUN_ASKING_OPEN;
}

void tb_home_runs_opened(struct tb_daemon *d, const struct tb_name *name)
{
    const uint32_t model = model_find(d, name);
    if (model == UINT32_MAX) return;
    struct model_runs *m = &d->home_runs->models[model];
    const bool unstored = tb_model_is_of_pattern(model) && !m->stored;
    if (m->doubted || unstored) tb_persist_doubt(d, &(struct tb_store_doubt){*name, false});
    m->doubted = false;
    m->stored = true;
    for (uint32_t peer = 0; m->home && peer < d->config->peer_count; peer++)
        tell_peer(d, peer, model);
}

struct tb_waiting_request *tb_home_runs_ready(struct tb_daemon *d)
{
    struct tb_home_runs *h = d->home_runs;
    struct tb_waiting_request *w = h != NULL ? h->ready : NULL;
    if (w == NULL) return NULL;
    TB_ASSERT(d->run_waits.used > 0);
    h->ready = w->next;
    d->run_waits.used--;
    return w;
}

void tb_home_runs_tick(struct tb_daemon *d, tb_time_ns now)
{
    struct tb_home_runs *h = d->home_runs;
    if (h == NULL || h->waiting == NULL) return;
    TB_ASSERT(d->run_waits.used > 0);
    const uint64_t mute = mute_peers(d);
    struct tb_waiting_request *w = h->waiting, *next;
    h->waiting = NULL;
    for (; w != NULL; w = next) {
        const struct model_runs *m = &h->models[w->model];
        const struct tb_model_row *row = &d->models.rows[w->model];
        const bool reads = row->life == TB_MODEL_READING && row->failed_at == 0 && !d->store_down;
        const bool asks = m->doubted && tb_run_asking_judge(&m->asking, mute, now) == TB_RUN_ASKING_WAIT_ON;
        const bool waits = reads || asks;
        next = w->next;
        if (tb_worker_find(d, &w->session) == NULL)
            waiting_free(d, w);
        else
            put_last(waits ? &h->waiting : &h->ready, w);
    }
    tb_daemon_wake(d);
}

/* ---- opening and closing ---- */

static void doubted_before(void *user, const struct tb_name *name)
{
    struct tb_daemon *d = user;
    const uint32_t model = model_find(d, name);
    if (model == UINT32_MAX || !d->home_runs->models[model].home) return;
    begin_asking(d, model,
                 tb_store_origin(d->store) == TB_STORE_RESTORED
                     ? "this home's store is a copy that was put back"
                     : "this home's store is new");
}

static void asking_log(struct tb_daemon *d, uint32_t model)
{
    const struct model_runs *m = &d->home_runs->models[model];
    char left[256];
    left_text(d, &m->asking, left, sizeof left);
    if (!m->doubted || m->asking.asked == 0) return;
    struct tb_log_line l;
    tb_log_begin(&l, TB_LOG_INFO, "home.asking");
    tb_log_str(&l, "model", name_of(d, model)->text);
    tb_log_str(&l, "why", m->why);
    tb_log_str(&l, "peers", left);
    tb_log_u64(&l, "new_home", d->new_home);
    tb_log_end(&l);
}

enum tb_status tb_home_runs_open(struct tb_daemon *d)
{
    static struct tb_name doubted[TB_CONFIG_MODELS_MAX]; /* large; the main loop's alone */
    uint32_t count = 0;
    TB_ASSERT(d->home_runs == NULL);
    d->home_runs = tb_calloc(1, sizeof *d->home_runs);
    if (d->home_runs == NULL) return TB_SITE_NOMEM;
    TB_EACH_MODEL(d, i)
    {
        d->home_runs->models[i].home = tb_name_equal(home_of(d, i), &d->site);
        if (d->home_runs->models[i].home) doubted[count++] = *name_of(d, i);
    }
    if (tb_store_origin(d->store) == TB_STORE_SAME) count = 0;
    enum tb_status status = tb_store_own(d->store, doubted, count, d->new_home);
    if (status == TB_OK) status = tb_store_load_doubts(d->store, doubted_before, d);
    TB_EACH_MODEL(d, i) if (status == TB_OK) asking_log(d, i);
    return status;
}

void tb_home_runs_changed(struct tb_daemon *d, const struct tb_config *was)
{
    TB_EACH_MODEL(d, i)
    {
        struct model_runs *m = &d->home_runs->models[i];
        m->home = tb_name_equal(home_of(d, i), &d->site);
        for (uint32_t peer = 0; m->doubted && peer < d->config->peer_count; peer++) {
            const uint64_t bit = UINT64_C(1) << peer;
            if (d->config->peers[peer].gone)
                m->asking.asked &= ~bit; /* nobody waits for it */
            else if (peer >= was->peer_count && tb_peer_may_read(d, peer, name_of(d, i)))
                m->asking.asked |= bit;
        }
    }
}

/* ---- models of patterns ---- */

void tb_home_runs_row_begins(struct tb_daemon *d, uint32_t row, bool doubted)
{
    struct tb_home_runs *h = d->home_runs;
    if (h == NULL) return;
    h->models[row] = (struct model_runs){.home = tb_name_equal(home_of(d, row), &d->site)};
    if (!h->models[row].home || !doubted) return;
    begin_asking(d, row, "this home's store is new, or a copy that was put back");
    asking_log(d, row);
    tb_persist_doubt(d, &(struct tb_store_doubt){*name_of(d, row), true}); /* a start asks the list of them */
    for (uint32_t peer = 0; tb_peer_links(d) != NULL && peer < d->config->peer_count; peer++)
        if ((h->models[row].asking.asked >> peer & 1) != 0)
            TB_MOOT(tb_links_runs_ask(d->links, peer, name_of(d, row)));
}

void tb_home_runs_row_ends(struct tb_daemon *d, uint32_t row)
{
    TB_ASSERT(!tb_home_runs_row_waits(d, row));
    if (d->home_runs != NULL) d->home_runs->models[row] = (struct model_runs){.home = false};
}

bool tb_home_runs_row_waits(const struct tb_daemon *d, uint32_t row)
{
    const struct tb_home_runs *h = d->home_runs;
    for (const struct tb_waiting_request *w = h != NULL ? h->waiting : NULL; w != NULL; w = w->next)
        if (w->model == row) return true;
    return false;
}

void tb_home_runs_check(const struct tb_daemon *d)
{
    const struct tb_home_runs *h = d->home_runs;
    uint64_t count = 0;
    if (h == NULL) return;
    for (const struct tb_waiting_request *w = h->waiting; w != NULL; w = w->next, count++)
        TB_ASSERT(w->model < TB_CONFIG_MODELS_MAX && w->bytes <= TB_WAITING_PAYLOAD_BYTES);
    for (const struct tb_waiting_request *w = h->ready; w != NULL; w = w->next, count++)
        TB_ASSERT(w->bytes <= TB_WAITING_PAYLOAD_BYTES);
    TB_ASSERT(count == d->run_waits.used);
}

void tb_home_runs_close(struct tb_daemon *d)
{
    struct tb_waiting_request *w;
    if (d->home_runs == NULL) return;
    while ((w = tb_home_runs_ready(d)) != NULL)
        tb_free(w);
    while ((w = d->home_runs->waiting) != NULL) {
        d->home_runs->waiting = w->next;
        waiting_free(d, w);
    }
    TB_ASSERT(d->run_waits.used == 0);
    tb_free(d->home_runs);
    d->home_runs = NULL;
}
