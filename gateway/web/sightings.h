/* sightings.h - when other sites got a version, as tombolo-web saw it happen.
 *
 * The gateway says of another site how much of a version it holds now, and whether its workers
 * use it; it keeps no times of that. Here is remembered when an answer said it for the first
 * time. Such a time is right to the time between two answers, and there is one only where the
 * change happened between them: the answer before named the version, knew the site's state and
 * did not say it, or the version is younger than that answer.
 *
 * Pure. Bounded: the last 256 versions of an answer, 256 sites. */
#ifndef TB_GATEWAY_WEB_SIGHTINGS_H
#define TB_GATEWAY_WEB_SIGHTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define TB_SIGHTING_VERSIONS_MAX 256u
#define TB_SIGHTING_SITES_MAX    256u
#define TB_SIGHTING_NAME_BYTES   64u
#define TB_SIGHTING_GAP_S        60.0 /* between two answers: what happened meanwhile has no time */

enum tb_sighting { TB_SIGHTING_SOME, TB_SIGHTING_WHOLE, TB_SIGHTING_ACTIVE, TB_SIGHTING_KINDS };

struct tb_sighting_row {
    char uid[33];
    uint64_t answer, answer_before;         /* the newest that named it, and the one before that */
    bool site_known[TB_SIGHTING_SITES_MAX]; /* by the newest that named it */
    /* Seconds since the version was opened. 0: it has not happened; < 0: it has, and nobody saw
     * when. */
    float at_s[TB_SIGHTING_SITES_MAX][TB_SIGHTING_KINDS];
};

/* Zeroed: nothing was seen. */
struct tb_sightings {
    char sites[TB_SIGHTING_SITES_MAX][TB_SIGHTING_NAME_BYTES];
    uint32_t site_count;
    struct tb_sighting_row rows[TB_SIGHTING_VERSIONS_MAX];
    uint64_t answers; /* that came: the number of the newest */
    double seen_s;    /* when it came; 0: none did */
};

/* `wall_s`: seconds since 1970; `versions`: the array of an answer. Without an array it is none. */
void tb_sightings_see(struct tb_sightings *s, double wall_s, const json_t *versions);
/* As tb_sighting_row's at_s. */
float tb_sightings_at(const struct tb_sightings *s, const char *uid, const char *site, enum tb_sighting kind);

#endif
