/* link_session.c - the table of a session's life, and the judgement of a HELLO. Pure. */
#include "wan/link/session/link_session.h"

#include "base/assert.h"

#define FAULT_ATTEMPTS 5u /* the bound of the next wait is 64 x retry_min, or retry_max */

typedef void (*session_do)(struct tb_link_session *s, const struct tb_link_session_event *ev,
                           struct tb_link_session_todo *todo);

/* Full jitter: uniform between retry_min and a bound that doubles with each failure. Gateways that
 * lost one peer at the same moment do not come back at the same moment. */
static void back_off(struct tb_link_session *s, const struct tb_link_session_event *ev,
                     struct tb_link_session_todo *todo)
{
    (void)todo;
    const tb_time_ns min = s->config.retry_min;
    tb_time_ns bound = min;
    for (uint32_t i = 0; i <= s->attempts && bound < s->config.retry_max; i++)
        bound *= 2;
    bound = tb_time_min(bound, s->config.retry_max);
    s->attempts++;
    const tb_time_ns spread = bound > min ? ev->random % (bound - min + 1) : 0;
    s->next_dial_at = s->config.can_dial ? tb_time_add(ev->now, min + spread) : TB_TIME_NEVER;
    TB_ASSERT(s->next_dial_at == TB_TIME_NEVER || s->config.can_dial);
}

static void lose(struct tb_link_session *s, const struct tb_link_session_event *ev,
                 struct tb_link_session_todo *todo)
{
    s->attempts = ev->peer_fault ? FAULT_ATTEMPTS : 0;
    back_off(s, ev, todo);
}

static void dial(struct tb_link_session *s, const struct tb_link_session_event *ev,
                 struct tb_link_session_todo *todo)
{
    TB_ASSERT(s->config.can_dial);
    s->next_dial_at = tb_time_add(ev->now, s->config.fresh_dial);
    todo->dial = true;
}

/* Its fresh dials go on in their rhythm. */
static void lose_silent(struct tb_link_session *s, const struct tb_link_session_event *ev,
                        struct tb_link_session_todo *todo)
{
    const tb_time_ns due = s->next_dial_at;
    lose(s, ev, todo);
    if (!ev->peer_fault) s->next_dial_at = tb_time_min(s->next_dial_at, due);
}

/* The next attempt is due anyway; sooner where it costs nobody a packet. */
static void persist(struct tb_link_session *s, const struct tb_link_session_event *ev,
                    struct tb_link_session_todo *todo)
{
    (void)todo;
    if (ev->nowhere)
        s->next_dial_at = tb_time_min(s->next_dial_at, tb_time_add(ev->now, s->config.retry_min));
}

/* The first of them is what an operator is told of. */
static void doubt(struct tb_link_session *s, const struct tb_link_session_event *ev,
                  struct tb_link_session_todo *todo)
{
    persist(s, ev, todo);
    if (s->attempts == 0) s->attempts = 1;
}

static void dial_fresh(struct tb_link_session *s, const struct tb_link_session_event *ev,
                       struct tb_link_session_todo *todo)
{
    if (!s->config.can_dial) return;
    s->next_dial_at = tb_time_add(ev->now, s->config.fresh_dial);
    todo->dial = true;
}

static uint64_t seen_next(const struct tb_link_session *s, uint64_t said)
{
    TB_ASSERT(said > s->incarnation_seen);
    const uint64_t more = said - s->incarnation_seen;
    return s->incarnation_seen + (more < TB_LINK_INCARNATION_STEP ? more : TB_LINK_INCARNATION_STEP);
}

static void come_up(struct tb_link_session *s, const struct tb_link_session_event *ev,
                    struct tb_link_session_todo *todo)
{
    (void)todo;
    s->dialled_by_us = ev->dialled_by_us;
    s->incarnation = ev->incarnation;
    s->life = ev->life;
    s->process = ev->process;
    s->vouched = false;
    if (ev->incarnation > s->incarnation_seen) s->incarnation_seen = seen_next(s, ev->incarnation);
    s->attempts = 0;
    s->next_dial_at = TB_TIME_NEVER;
    TB_ASSERT(s->incarnation_seen >= s->incarnation || s->incarnation_seen >= TB_LINK_INCARNATION_STEP);
}

static void replace(struct tb_link_session *s, const struct tb_link_session_event *ev,
                    struct tb_link_session_todo *todo)
{
    todo->replaced = true;
    come_up(s, ev, todo);
}

static void rest(struct tb_link_session *s, const struct tb_link_session_event *ev,
                 struct tb_link_session_todo *todo)
{
    (void)ev, (void)todo;
    s->next_dial_at = TB_TIME_NEVER;
}

static void pass(struct tb_link_session *s, const struct tb_link_session_event *ev,
                 struct tb_link_session_todo *todo)
{
    (void)s, (void)ev, (void)todo;
}

/* The table is the whole truth: a pair that is not here cannot happen, and
 * tests/unit/wan/link_session.c walks all of them. An attempt that began earlier may fail in any
 * state. */
#define SESSION_ROWS(ROW)                                                                                    \
    ROW(RESTING, DUE, dial, DIALLING)                                                                        \
    ROW(RESTING, FAILED, pass, RESTING)                                                                      \
    ROW(RESTING, UNANSWERED, pass, RESTING)                                                                  \
    ROW(RESTING, GREETED, come_up, UP)                                                                       \
    ROW(RESTING, STOP, rest, STOPPED)                                                                        \
    ROW(DIALLING, DUE, dial, DIALLING)                                                                       \
    ROW(DIALLING, FAILED, back_off, RESTING)                                                                 \
    ROW(DIALLING, UNANSWERED, doubt, DIALLING)                                                               \
    ROW(DIALLING, GREETED, come_up, UP)                                                                      \
    ROW(DIALLING, STOP, rest, STOPPED)                                                                       \
    ROW(UP, FAILED, pass, UP)                                                                                \
    ROW(UP, UNANSWERED, pass, UP)                                                                            \
    ROW(UP, GREETED, replace, UP)                                                                            \
    ROW(UP, LOST, lose, RESTING)                                                                             \
    ROW(UP, QUIET, dial_fresh, SILENT)                                                                       \
    ROW(UP, STOP, rest, STOPPED)                                                                             \
    ROW(SILENT, DUE, dial_fresh, SILENT)                                                                     \
    ROW(SILENT, FAILED, pass, SILENT)                                                                        \
    ROW(SILENT, UNANSWERED, persist, SILENT)                                                                 \
    ROW(SILENT, GREETED, replace, UP)                                                                        \
    ROW(SILENT, LOST, lose_silent, RESTING)                                                                  \
    ROW(SILENT, HEARD, rest, UP)                                                                             \
    ROW(SILENT, STOP, rest, STOPPED)                                                                         \
    ROW(STOPPED, FAILED, pass, STOPPED)                                                                      \
    ROW(STOPPED, UNANSWERED, pass, STOPPED)                                                                  \
    ROW(STOPPED, LOST, pass, STOPPED)

struct session_row {
    session_do act; /* NULL: no such pair */
    enum tb_link_session_state then;
};

static const struct session_row rows[TB_LINK_STATE_COUNT][TB_LINK_EVENT_COUNT] = {
#define SESSION_ROW(state, event, act, then) [TB_LINK_##state][TB_LINK_##event] = {act, TB_LINK_##then},
    SESSION_ROWS(SESSION_ROW)
#undef SESSION_ROW
};

void tb_link_session_init(struct tb_link_session *s, const struct tb_link_session_config *config,
                          tb_time_ns now)
{
    char self[TB_URI_BYTES_MAX], peer[TB_URI_BYTES_MAX];
    memset(s, 0, sizeof *s);
    s->config = *config;
    TB_ASSERT(s->config.protocol_max >= TB_LINK_PROTOCOL_MIN && s->config.protocol_max <= TB_LINK_PROTOCOL);
    tb_identity_format(&config->self, self);
    tb_identity_format(&config->peer, peer);
    s->peer_is_smaller = strcmp(peer, self) < 0;
    s->next_dial_at = config->can_dial ? now : TB_TIME_NEVER;
}

void tb_link_session_may_dial(struct tb_link_session *s, bool can_dial, tb_time_ns now)
{
    s->config.can_dial = can_dial;
    if (!can_dial) s->next_dial_at = TB_TIME_NEVER;
    if (can_dial && s->state == TB_LINK_RESTING) s->next_dial_at = now;
}

enum tb_status tb_link_session_step(struct tb_link_session *s, const struct tb_link_session_event *event,
                                    struct tb_link_session_todo *todo_out)
{
    TB_ASSERT(event->kind < TB_LINK_EVENT_COUNT);
    const struct session_row *row = &rows[s->state][event->kind];
    memset(todo_out, 0, sizeof *todo_out);
    if (row->act == NULL) return TB_BAD_STATE;
    row->act(s, event, todo_out);
    s->state = row->then;
    return TB_OK;
}

void tb_link_session_answered(struct tb_link_session *s, tb_time_ns took)
{
    s->answers[s->answer_at] = took;
    s->answer_at = (s->answer_at + 1) % TB_LINK_ANSWERS;
}

tb_time_ns tb_link_session_patience(const struct tb_link_session *s)
{
    tb_time_ns quickest = 0;
    for (uint32_t i = 0; i < TB_LINK_ANSWERS; i++)
        if (s->answers[i] != 0 && (quickest == 0 || s->answers[i] < quickest)) quickest = s->answers[i];
    TB_ASSERT(s->answer_at < TB_LINK_ANSWERS);
    return 2 * quickest > s->config.silent ? 2 * quickest : s->config.silent;
}

void tb_link_session_vouch(struct tb_link_session *s, bool vouched)
{
    s->vouched = vouched;
}

static bool may_be_twin(const struct tb_link_session *s, const struct tb_frame_hello *hello)
{
    const struct tb_id process = tb_frame_hello_process(hello);
    const bool named = !tb_id_is_zero(&process) && !tb_id_is_zero(&s->process);
    const bool other = named ? !tb_id_equal(&process, &s->process) : !tb_id_equal(&hello->life, &s->life);
    return s->state == TB_LINK_UP && other;
}

static bool may_replace(const struct tb_link_session *s, const struct tb_frame_hello *hello,
                        bool dialled_by_us)
{
    if (s->state != TB_LINK_UP) return true;              /* none there, or one that does not answer */
    if (dialled_by_us == s->dialled_by_us) return true;   /* its dialler dials again: it knows better */
    if (hello->incarnation > s->incarnation) return true; /* the peer restarted: the old session is dead */
    return dialled_by_us != s->peer_is_smaller;           /* both dialled: the smaller URI's stays */
}

enum tb_status tb_link_session_judge(const struct tb_link_session *s, const struct tb_frame_hello *hello,
                                     bool dialled_by_us, struct tb_link_session_verdict *verdict_out)
{
    memset(verdict_out, 0, sizeof *verdict_out);
    const struct tb_link_session_config *c = &s->config;
    if (!tb_name_equal(&hello->site, &c->peer.site) || !tb_name_equal(&hello->gateway, &c->peer.name))
        return TB_PEER_IDENTITY;
    verdict_out->detail = c->protocol_max;
    if (hello->protocol < hello->protocol_min) return TB_PEER_GARBLED;
    if (hello->protocol < TB_LINK_PROTOCOL_MIN || hello->protocol_min > c->protocol_max)
        return TB_PEER_PROTOCOL;
    verdict_out->protocol = hello->protocol < c->protocol_max ? hello->protocol : c->protocol_max;
    if (hello->lane != c->peer_lane || hello->lane >= hello->lane_count) return TB_PEER_GARBLED;
    verdict_out->ask = may_be_twin(s, hello);
    if (verdict_out->ask) return s->vouched ? TB_PEER_TWIN : TB_PEER_DUPLICATE;
    verdict_out->detail = s->incarnation_seen;
    if (hello->incarnation < s->incarnation_seen) return TB_PEER_STALE;
    return may_replace(s, hello, dialled_by_us) ? TB_OK : TB_PEER_DUPLICATE;
}
