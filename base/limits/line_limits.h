/* line_limits.h - how many log lines of one event a party may cause. Pure.
 *
 * Of each event a party causes 32 lines at once, and two a second from then on. The lines that were
 * not written are counted, and one line tells the count. Strangers, which can have any number of
 * addresses, are one party beside: all of them together cause twice as much. A gateway, whose
 * versions come several a second, causes TB_LINE_GATEWAYS times as much. Lines that name no party
 * are TB_LINE_NOBODYS times as many: a site of 2,000 workers has much to say of itself at once.
 *
 * Threads: one at a time. Zeroed memory is ready. */
#ifndef TB_BASE_LINE_LIMITS_H
#define TB_BASE_LINE_LIMITS_H

#include "base/limits/keyed_rows.h"

#define TB_LINE_ROWS       512u
#define TB_LINE_BURST      32u
#define TB_LINE_PER_S      2u
#define TB_LINE_STRANGERS  2u
#define TB_LINE_GATEWAYS   8u
#define TB_LINE_NOBODYS    128u
#define TB_LINE_TELL_EVERY TB_SECONDS(10)
#define TB_LINE_TEXT_MAX   160u

struct tb_line_row {
    struct tb_keyed_row keyed;
    uint64_t milli_used; /* thousandths of a line, of late */
    uint64_t suppressed; /* and not told yet */
    tb_time_ns leaked_at, told_at, suppressed_at;
    const char *event;
    char party[TB_LINE_TEXT_MAX];
};

struct tb_line_limits {
    uint64_t suppressed; /* ever */
    struct tb_line_row rows[TB_LINE_ROWS];
};

/* Lines that were not written, to be told in one. */
struct tb_line_sum {
    const char *event;
    char party[TB_LINE_TEXT_MAX];
    uint64_t lines;
};

enum tb_line_party { TB_LINE_OF_IDENTITY, TB_LINE_OF_GATEWAY, TB_LINE_OF_STRANGER, TB_LINE_OF_NOBODY };

/* `event` is static text. False: the line is not written, and counted. */
bool tb_line_take(struct tb_line_limits *l, const char *event, const char *party, enum tb_line_party kind,
                  tb_time_ns now);
/* True: a sum that is due; it counts as told. */
bool tb_line_sum_due(struct tb_line_limits *l, tb_time_ns now, struct tb_line_sum *sum_out);

#endif
