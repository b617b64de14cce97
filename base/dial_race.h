/* dial_race.h - which of a peer's addresses is dialled when: the first at once, each next one as
 * soon as the one before failed or said nothing for a while, until one is open (RFC 8305, section
 * 5). Pure; connections are the owner's.
 *
 * So an address that swallows what is sent to it costs its delay, not a time-out, and one
 * that answers slowly is not given up for it. The order is the caller's: resolve.h gives
 * both families in turn. */
#ifndef TB_BASE_RACE_H
#define TB_BASE_RACE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/time.h"

#define TB_RACE_DELAY TB_MS(250)
#define TB_RACE_NONE  UINT32_MAX

struct tb_race {
    bool on;
    uint32_t count; /* addresses */
    uint32_t next;  /* the first that was not dialled */
    uint32_t open;  /* under way */
    tb_time_ns next_at;
};

/* `count` addresses, at least 1; ask tb_race_due at once. */
void tb_race_begin(struct tb_race *r, uint32_t count, tb_time_ns now);
/* The index of an address to dial now; it counts as under way. TB_RACE_NONE: none yet. Ask until it
 * says so, and again at r->next_at. */
uint32_t tb_race_due(struct tb_race *r, tb_time_ns now);
/* One that was under way ended. True: the race is lost, for none is under way and none is left. */
bool tb_race_failed(struct tb_race *r, tb_time_ns now);
/* One is open: the owner closes the others, and no more is dialled while this one is looked at.
 * Should it fail after all, the race goes on with those that were not dialled yet. */
void tb_race_won(struct tb_race *r);
void tb_race_end(struct tb_race *r);

#endif
