/* budget.h - so many bytes a day to a peer: how many are left, when to warn, when to hold, and
 * which sum to write down.
 *
 * Pure: days are numbers (since 1970, UTC) that are passed in. The sum that is written down is
 * ahead of the bytes that were sent. So a gateway that is killed again and again sends no more
 * than the budget: each time up to 1/256 of it is given up. */
#ifndef TB_WAN_BUDGET_H
#define TB_WAN_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

enum tb_budget_state {
    TB_BUDGET_NONE, /* there is no limit */
    TB_BUDGET_OK,
    TB_BUDGET_WARNED, /* 80 % are used */
    /* all, or what is left is too little for what is next: nothing goes before the day
     * ends or the budget grows */
    TB_BUDGET_HELD
};
const char *tb_budget_state_name(enum tb_budget_state state); /* "none", "ok", "warned", "held" */

struct tb_budget {
    uint64_t day_bytes; /* 0: no limit */
    uint64_t day;
    uint64_t used_bytes;  /* on that day */
    uint64_t saved_bytes; /* as it is written down; at least what is used, once save_bytes was heeded */
    uint64_t short_bytes; /* what waits to be sent next and is over what is left; 0: nothing is known to */
};

/* Takes the sum that was written down. A sum of today counts. A day behind tomorrow is a mistake
 * of the clock and counts for nothing. */
void tb_budget_restore(struct tb_budget *b, uint64_t day, uint64_t bytes, uint64_t today);
/* So many bytes more were sent; a new day begins with nothing used. A clock that goes back begins
 * none, and one that goes back by days ends the hold with the day that it is now, not with the one
 * that it took it for. */
void tb_budget_count(struct tb_budget *b, uint64_t today, uint64_t bytes);
enum tb_budget_state tb_budget_state(const struct tb_budget *b);
uint64_t tb_budget_left(const struct tb_budget *b); /* UINT64_MAX: no limit */
/* True: write down the day and *bytes_out, now. */
bool tb_budget_save(struct tb_budget *b, uint64_t *bytes_out);

#endif
