/* glitch_budget.h - identities that garble frames or cancel requests again and again are shut out.
 * Pure.
 *
 * One garbled frame ends its connection, and its sender may come back. An identity that garbles
 * `garbled_most` frames, or cancels `cancelled_most` requests, within a minute, over all of its
 * connections, is shut out: for 10 s, and each time that it happens again for twice as long, up to
 * 10 minutes. After 10 minutes of good behaviour it begins at 10 s again.
 *
 * Threads: one at a time. Zeroed memory with limits is ready. */
#ifndef TB_BASE_GLITCH_BUDGET_H
#define TB_BASE_GLITCH_BUDGET_H

#include "base/limits/keyed_rows.h"

#define TB_GLITCH_ROWS   1024u
#define TB_GLITCH_MINUTE TB_SECONDS(60)
#define TB_GLITCH_FIRST  TB_SECONDS(10)
#define TB_GLITCH_LAST   TB_SECONDS(600)

enum tb_glitch_kind { TB_GLITCH_GARBLED, TB_GLITCH_CANCELLED, TB_GLITCH_KINDS };

struct tb_glitch_row {
    struct tb_keyed_row keyed;
    tb_time_ns minute_at; /* when its minute began */
    uint32_t count[TB_GLITCH_KINDS];
    tb_time_ns shut_until, shut_for; /* 0: it was not shut out lately */
};

struct tb_glitch_budget {
    uint32_t most[TB_GLITCH_KINDS];
    uint64_t shut; /* how often an identity was shut out */
    struct tb_glitch_row rows[TB_GLITCH_ROWS];
};

/* True: with this one the identity is shut out, and its connections end. */
bool tb_glitch_note(struct tb_glitch_budget *b, uint64_t identity, enum tb_glitch_kind kind, tb_time_ns now);
/* For how much longer it is shut out; 0: it is not. */
tb_time_ns tb_glitch_shut(struct tb_glitch_budget *b, uint64_t identity, tb_time_ns now);

#endif
