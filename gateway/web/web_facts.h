/* web_facts.h - what a page and the metrics are made of: the gateway's answers
 * (docs/control.md), and the memory of tombolo-web itself.
 *
 * Pure. A field of another type than it should have counts as missing. */
#ifndef TB_GATEWAY_WEB_FACTS_H
#define TB_GATEWAY_WEB_FACTS_H

#include <jansson.h>
#include <stdbool.h>

struct tb_stage_times;
struct tb_throughput;
struct tb_sightings;

/* Commands of the control socket. */
enum tb_answer {
    TB_ANSWER_STATUS,
    TB_ANSWER_LAG,
    TB_ANSWER_VERSIONS,
    TB_ANSWER_STREAMS,
    TB_ANSWER_CHAINS,
    TB_ANSWER_EVENTS,
    TB_ANSWERS
};
#define TB_ANSWER_BIT(answer) (1u << (answer))

/* Borrowed. An answer that is NULL did not come, or nobody asked for it. */
struct tb_web_facts {
    const json_t *status, *lag, *versions, *streams, *chains, *events;
    const struct tb_stage_times *stage_times;
    const struct tb_throughput *throughput;
    const struct tb_sightings *sightings;
    double ages_s[TB_ANSWERS]; /* of each of these answers */
    double age_s;              /* of the oldest of them */
    double pace_s;             /* from one update to the next */
    double now_s;              /* on the clock of `throughput` and `sightings` */
    double wall_ms;            /* since 1970 */
    bool silent;               /* the gateway does not answer now: the answers are its last ones */
};

/* "" where there is no such text. */
const char *tb_facts_text(const json_t *object, const char *key);
/* 0 where there is no such number. */
double tb_facts_number(const json_t *object, const char *key);
bool tb_facts_is_number(const json_t *object, const char *key);
bool tb_facts_is_true(const json_t *object, const char *key);
bool tb_facts_equals(const json_t *object, const char *key, const char *text);

#endif
