/* web_answers.h - the gateway's answers, kept while they are fresh, and the facts that are
 * remembered of them.
 *
 * The gateway is asked for one thing once a second at most, however many readers there are. "lag",
 * "versions" and "chains", which cost more, are asked seldom enough that answering takes 1 % of a
 * core at most: an answer that took 50 ms is fresh for 5 s. A question that failed by its time
 * waits as long as such an answer, whichever it was. A probe alone asks at once. Without a reader
 * nothing is asked.
 *
 * A shell. Not safe for threads: its owner has a lock. */
#ifndef TB_GATEWAY_WEB_ANSWERS_H
#define TB_GATEWAY_WEB_ANSWERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"
#include "gateway/web/web_facts.h"
#include "tombolo/status.h"

struct tb_web_answers {
    const char *control; /* borrowed */
    struct {
        json_t *json; /* the newest; NULL: none */
        tb_time_ns answered_at;
        tb_time_ns tried_at, fresh_ns; /* it is not asked for again before */
        bool asked;
    } of[TB_ANSWERS];
    bool silent, told; /* the gateway does not answer; that was logged */
    uint64_t kept;     /* grows with each answer, and each time that none came */
    struct tb_stage_times *stage_times;
    struct tb_throughput *throughput;
    struct tb_sightings *sightings;
};

/* TB_SITE_NOMEM. `control` outlives it. */
TB_MUST_USE enum tb_status tb_web_answers_open(struct tb_web_answers *answers, const char *control);
void tb_web_answers_close(struct tb_web_answers *answers);
/* Asks for those of `wanted` (bits) that are not fresh, and for status; 2 s at most. A question
 * that finds no time keeps its last answer, and has its turn at the next refresh. */
void tb_web_answers_refresh(struct tb_web_answers *answers, unsigned wanted);
/* Asks for status, fresh or not: for a probe. */
void tb_web_answers_probe(struct tb_web_answers *answers);
/* Borrowed until the next refresh: of the wanted ones, and of status. */
void tb_web_answers_facts(const struct tb_web_answers *answers, unsigned wanted,
                          struct tb_web_facts *facts_out);

#endif
