/* web_answers.c - see web_answers.h. */
#include "gateway/web/web_answers.h"

#include "base/allocate.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/operator/lag_verdict.h"
#include "gateway/web/sightings.h"
#include "gateway/web/stage_times.h"
#include "gateway/web/throughput.h"

#define REFRESH_MS   2000u /* all questions of a refresh */
#define ASK_MS_MIN   1000u /* with less left, none is asked */
#define FRESH_MIN_NS TB_MS(1000)
#define FRESH_MAX_NS TB_MS(30000)
#define COST_PARTS   100u /* of the time, the part that answering may take */

/* Status is what probes, `tombolo_up` and the word of a silent gateway rest on: it stays young. */
static const struct {
    const char *command;
    tb_time_ns fresh_max;
} questions[TB_ANSWERS] = {
    {"status", FRESH_MIN_NS}, {"lag", FRESH_MAX_NS},    {"versions", FRESH_MAX_NS},
    {"streams", TB_MS(2000)}, {"chains", FRESH_MAX_NS}, {"events", TB_MS(2000)},
};

enum tb_status tb_web_answers_open(struct tb_web_answers *a, const char *control)
{
    *a = (struct tb_web_answers){.control = control};
    a->stage_times = tb_calloc(1, sizeof *a->stage_times);
    a->throughput = tb_calloc(1, sizeof *a->throughput);
    a->sightings = tb_calloc(1, sizeof *a->sightings);
    if (a->stage_times != NULL && a->throughput != NULL && a->sightings != NULL) return TB_OK;
    tb_web_answers_close(a);
    return TB_SITE_NOMEM;
}

void tb_web_answers_close(struct tb_web_answers *a)
{
    for (int i = 0; i < TB_ANSWERS; i++)
        json_decref(a->of[i].json);
    tb_free(a->stage_times);
    tb_free(a->throughput);
    tb_free(a->sightings);
    *a = (struct tb_web_answers){.control = NULL};
}

static enum tb_status ask(const struct tb_web_answers *a, enum tb_answer what, uint32_t limit_ms,
                          json_t **reply_out, char error[512])
{
    json_t *request = json_pack("{s:s}", "cmd", questions[what].command);
    const enum tb_status status =
        request == NULL ? TB_SITE_NOMEM
                        : tb_control_client_ask(a->control, request, limit_ms, reply_out, error);
    json_decref(request);
    return status;
}

static bool is_fresh(const struct tb_web_answers *a, enum tb_answer what, tb_time_ns now)
{
    return a->of[what].asked && tb_time_since(a->of[what].tried_at, now) < a->of[what].fresh_ns;
}

/* The time to answer is an upper bound of what the gateway worked. */
static tb_time_ns fresh_for(tb_time_ns took, tb_time_ns most)
{
    const tb_time_ns by_cost = took > most / COST_PARTS ? most : took * COST_PARTS;
    return by_cost > FRESH_MIN_NS ? by_cost : FRESH_MIN_NS;
}

static void tell(struct tb_web_answers *a, const char *error)
{
    if (a->silent && !a->told) {
        struct tb_log_line line;
        tb_log_begin(&line, TB_LOG_WARN, "web.gateway_silent");
        tb_log_str(&line, "control", a->control);
        tb_log_str(&line, "why", error);
        tb_log_end(&line);
    }
    if (!a->silent && a->told) tb_log(TB_LOG_INFO, "web.gateway_answers", "control=%s", a->control);
    a->told = a->silent;
}

/* The last status of a gateway that is silent is kept: the page shows how it stood. */
static void keep(struct tb_web_answers *a, enum tb_answer what, json_t *reply, tb_time_ns began)
{
    const tb_time_ns now = tb_clock_now();
    const tb_time_ns most = reply != NULL ? questions[what].fresh_max : FRESH_MAX_NS;
    a->kept++;
    a->of[what].asked = true;
    a->of[what].tried_at = now;
    a->of[what].fresh_ns = fresh_for(tb_time_since(began, now), most);
    if (what == TB_ANSWER_STATUS && reply == NULL) return;
    json_decref(a->of[what].json);
    a->of[what].json = reply;
    a->of[what].answered_at = now;
}

static double seconds(tb_time_ns at)
{
    return (double)at / 1e9;
}

static void remember(struct tb_web_answers *a, enum tb_answer what)
{
    const json_t *json = a->of[what].json;
    const double now_s = seconds(a->of[what].answered_at);
    if (what == TB_ANSWER_STATUS) tb_throughput_see(a->throughput, now_s, json);
    if (what == TB_ANSWER_STREAMS) tb_throughput_see_streams(a->throughput, now_s, json);
    if (what != TB_ANSWER_VERSIONS) return;
    tb_stage_times_see(a->stage_times, json_object_get(json, "versions"));
    tb_sightings_see(a->sightings, (double)tb_clock_wall_ms() / 1e3, json_object_get(json, "versions"));
}

static void refresh_one(struct tb_web_answers *a, enum tb_answer what, uint32_t limit_ms, char error[512])
{
    const tb_time_ns began = tb_clock_now();
    json_t *reply = NULL;
    const bool came = ask(a, what, limit_ms, &reply, error) == TB_OK;
    TB_ASSERT(came == (reply != NULL));
    if (what == TB_ANSWER_STATUS) a->silent = !came;
    if (what == TB_ANSWER_LAG) tb_lag_verdict_sort(json_object_get(reply, "lag"));
    keep(a, what, reply, began);
    if (came) remember(a, what);
}

/* Milliseconds until REFRESH_MS after `began`. */
static uint32_t left_ms(tb_time_ns began)
{
    const tb_time_ns taken = tb_time_since(began, tb_clock_now());
    return taken < TB_MS(REFRESH_MS) ? REFRESH_MS - (uint32_t)(taken / TB_MS(1)) : 0;
}

void tb_web_answers_refresh(struct tb_web_answers *a, unsigned wanted)
{
    const tb_time_ns began = tb_clock_now();
    char error[512] = "";
    TB_ASSERT(a->control != NULL);
    wanted |= TB_ANSWER_BIT(TB_ANSWER_STATUS);
    for (int i = 0; i < TB_ANSWERS; i++) {
        const enum tb_answer what = (enum tb_answer)i;
        const bool silent =
            a->silent && what != TB_ANSWER_STATUS; /* one question is enough to find that out */
        if (silent || (wanted & TB_ANSWER_BIT(what)) == 0 || is_fresh(a, what, tb_clock_now())) continue;
        if (left_ms(began) < ASK_MS_MIN) break;
        refresh_one(a, what, left_ms(began), error);
    }
    tell(a, error);
}

void tb_web_answers_probe(struct tb_web_answers *a)
{
    char error[512] = "";
    TB_ASSERT(a->control != NULL);
    refresh_one(a, TB_ANSWER_STATUS, REFRESH_MS, error);
    tell(a, error);
}

void tb_web_answers_facts(const struct tb_web_answers *a, unsigned wanted, struct tb_web_facts *f)
{
    const tb_time_ns now = tb_clock_now();
    const json_t *json[TB_ANSWERS] = {NULL};
    wanted |= TB_ANSWER_BIT(TB_ANSWER_STATUS);
    *f = (struct tb_web_facts){
        .now_s = seconds(now), .wall_ms = (double)tb_clock_wall_ms(), .silent = a->silent};
    for (int i = 0; i < TB_ANSWERS; i++) {
        if ((wanted & TB_ANSWER_BIT(i)) == 0 || a->of[i].json == NULL) continue;
        json[i] = a->of[i].json;
        const double age_s = seconds(tb_time_since(a->of[i].answered_at, now));
        f->ages_s[i] = age_s;
        if (age_s > f->age_s) f->age_s = age_s;
    }
    f->pace_s =
        seconds(a->of[TB_ANSWER_STATUS].fresh_ns); /* each answer is an update, and it is the youngest */
    f->status = json[TB_ANSWER_STATUS];
    f->lag = json[TB_ANSWER_LAG];
    f->versions = json[TB_ANSWER_VERSIONS];
    f->streams = json[TB_ANSWER_STREAMS];
    f->chains = json[TB_ANSWER_CHAINS];
    f->events = json[TB_ANSWER_EVENTS];
    f->stage_times = a->stage_times;
    f->throughput = a->throughput;
    f->sightings = a->sightings;
}
