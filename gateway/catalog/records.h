/* records.h - what is known of other sites: one record for each (site, model). A room of the
 * catalog (catalog.h).
 *
 * Every view of another site reads records and nothing else: `lag`, `versions`, `status` and waits
 * for a site (P10). The catalog decides by references (P3), which it believes longer: a copy behind
 * a link that is down is still a copy.
 *
 * A record is known from the site's own word, or from the word of a relay. A word of the site
 * itself counts before any relay's. A record becomes unknown
 *   - when the link to the peer that said it goes down, or that peer is silent too long;
 *   - when that relay says so;
 *   - when the site's arena has a new life.
 * Its last state stays, and is shown with its age. */
#ifndef TB_GATEWAY_RECORDS_H
#define TB_GATEWAY_RECORDS_H

#include "base/site_state.h"
#include "base/time.h"

struct tb_catalog;

struct tb_record {
    struct tb_name via; /* the peer whose word it is: the site itself, or a relay */
    bool known;
    uint16_t why;               /* while it is unknown: the reason of the link, or what the relay said */
    tb_time_ns heard_at;        /* when the site said so itself; 0: nothing was heard since the start */
    tb_time_ns since;           /* when it became known, or unknown */
    tb_time_ns word_at;         /* the last word of `via`, or when the link to it came up */
    struct tb_site_state state; /* as it was said last */
};

/* `via` says this of state->site.
 *   TB_DONE_BEFORE   a newer or a nearer word is here
 *   TB_NOT_FOUND     the model is not configured
 *   TB_BAD_ARGUMENT  it is about this site
 *   TB_SITE_NOMEM    the table of records is full */
TB_MUST_USE enum tb_status tb_record_put(struct tb_catalog *c, tb_time_ns now, const struct tb_name *via,
                                         const struct tb_site_state *state);
/* The link to `via` is down, for that reason. True: a record became unknown, or
 * unknown for another reason. */
bool tb_records_lost(struct tb_catalog *c, tb_time_ns now, const struct tb_name *via, uint16_t why);
/* The link to `via` is up: a record of which it never said anything is unknown for that reason. */
void tb_records_awaited(struct tb_catalog *c, tb_time_ns now, const struct tb_name *via, uint16_t why);
/* The link to `via` is up, and peers repeat what they know. A record that `via` has not repeated
 * for so long is unknown, for that reason. True: a record became unknown, or for another reason. */
bool tb_records_silent(struct tb_catalog *c, tb_time_ns now, const struct tb_name *via, tb_time_ns silent,
                       uint16_t why);
bool tb_record_get(const struct tb_catalog *c, const struct tb_name *site, const struct tb_name *model,
                   struct tb_record *out);
/* As tb_catalog_version_at. */
bool tb_record_at(const struct tb_catalog *c, uint32_t *cursor, struct tb_record *out);

/* ---- what follows from a state: both ends of a link call these with the same words, and so show
 * the same numbers ---- */

struct tb_record_behind {
    struct tb_site_which head;
    uint32_t versions;   /* that home has ready, newer than the newest whole one at the site */
    uint64_t left_bytes; /* of the head */
};
/* The newest whole version of a state; zeros: none. */
struct tb_site_which tb_site_newest(const struct tb_site_state *state);
const struct tb_site_held *tb_site_held_find(const struct tb_site_state *state, const struct tb_id *uid);
/* How far `site` is behind `home`, which may be the state of this site, of the model's home,
 * or of the best source. */
struct tb_record_behind tb_record_behind(const struct tb_site_state *home, const struct tb_site_state *site);

#endif
