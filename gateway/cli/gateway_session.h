/* gateway_session.h - a session to the gateway that the command line names, waiting in slices so
 * that a signal and a deadline are seen, and what SIGINT and SIGTERM mean here. */
#ifndef TB_GATEWAY_CLI_GATEWAY_SESSION_H
#define TB_GATEWAY_CLI_GATEWAY_SESSION_H

#include <stdbool.h>

#include "base/time.h"
#include "gateway/cli/cli.h"
#include "tombolo/tombolo.h"

#define TB_SLICE_MS 250u /* how long a call may keep a signal waiting */
#define TB_AWAY_S   30u

/* From now on SIGINT and SIGTERM are remembered instead of ending the process; a second one ends
 * it. */
void tb_signals_catch(void);
bool tb_signals_caught(void);

/* --gateway, else TOMBOLO_GATEWAY, else unix:/run/tombolo/session.sock; --ca, --cert and --key
 * likewise. A gateway that does not answer within a second is told of on a terminal and tried for
 * ten more, should it be starting; --timeout may be less. A signal ends the process meanwhile. */
TB_MUST_USE int tb_gateway_open(const struct tb_cli_call *call, struct tb_session **session_out);
/* The same with --sign-cert and --sign-key, which the command has to have. */
TB_MUST_USE int tb_gateway_open_publisher(const struct tb_cli_call *call, struct tb_session **session_out);
/* Says why that failed, and what to do. */
enum tb_cli_exit tb_gateway_unopened(const struct tb_cli_call *call, int status);

struct tb_deadline {
    tb_time_ns at;         /* TB_TIME_NEVER: none */
    tb_time_ns away_since; /* since when the gateway did not answer; 0: it does */
};
struct tb_deadline tb_deadline_of(const struct tb_cli_call *call); /* by --timeout */
bool tb_deadline_passed(const struct tb_deadline *deadline);

/* For a call that was given TB_SLICE_MS: true while it is to be made again. Otherwise *status is
 * final: TB_CANCELLED after a signal, TB_TIMEOUT after the deadline, TB_GATEWAY_AWAY when it was
 * away for TB_AWAY_S (a restart is shorter), or what it was. */
bool tb_slice_again(struct tb_deadline *deadline, int *status);

#endif
