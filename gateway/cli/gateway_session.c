/* gateway_session.c - see gateway_session.h. */
#include "gateway/cli/gateway_session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"

#define SESSION_DEFAULT "unix:/run/tombolo/session.sock"
#define SOON_MS         1000u  /* a gateway that is there has answered by then */
#define LATER_MS        10000u /* and one that is being restarted */

static volatile sig_atomic_t caught, opening, in_json;

/* While a session is opened nothing is begun that would have to be ended, and the call that
 * waits sees no signal. */
static void on_signal(int number)
{
    static const char said[] =
        "{\"schema\":1,\"ok\":false,\"status\":\"cancelled\",\"error\":\"interrupted\"}\n";
    (void)number;
    caught = 1;
    if (!opening) return;
    const ssize_t written = in_json ? write(STDOUT_FILENO, said, sizeof said - 1) : 0;
    _exit(written < 0 ? TB_CLI_SITE : TB_CLI_INTERRUPTED);
}

void tb_signals_catch(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = (int)SA_RESETHAND; /* who asks twice means it */
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

bool tb_signals_caught(void)
{
    return caught != 0;
}

static const char *option_or_environment(const struct tb_cli_call *call, const char *option,
                                         const char *variable)
{
    const char *text = tb_cli_text(call, option);
    if (text == NULL) text = getenv(variable);
    return text != NULL && text[0] == '\0' ? NULL : text;
}

#define ADVICE "; does tombolod run there? else say --gateway or TOMBOLO_GATEWAY"

/* A person is not left waiting for what may never come; a script is told at the end. */
static void say_waiting(const struct tb_cli_call *call, uint32_t ms)
{
    struct tb_progress line;
    tb_progress_start(&line, call);
    if (!line.on) return;
    char clean[512];
    tb_show_clean(tb_last_error(), clean, sizeof clean);
    (void)fprintf(stderr, "tombolo %s: %s%s. Trying on for %u s\n", call->command->name, clean, ADVICE,
                  (ms + 999) / 1000);
}

static int open_session(struct tb_session_options *options, uint32_t ms, struct tb_session **session_out)
{
    TB_ASSERT(!opening && ms > 0);
    options->open_timeout_ms = ms;
    opening = 1;
    if (caught) on_signal(0); /* it came between two tries */
    const int status = tb_session_open(options, session_out);
    opening = 0;
    return status;
}

static int open_as(const struct tb_cli_call *call, const char *sign_cert, const char *sign_key,
                   struct tb_session **session_out)
{
    const char *gateway = option_or_environment(call, "gateway", "TOMBOLO_GATEWAY");
    const uint64_t seconds = tb_cli_number(call, "timeout", UINT64_MAX);
    struct tb_session_options options = {
        .struct_bytes = sizeof options,
        .gateway = gateway == NULL ? SESSION_DEFAULT : gateway,
        .ca = option_or_environment(call, "ca", "TOMBOLO_CA"),
        .cert = option_or_environment(call, "cert", "TOMBOLO_CERT"),
        .key = option_or_environment(call, "key", "TOMBOLO_KEY"),
        .fabric_address = tb_cli_text(call, "fabric-address"),
        .sign_cert = sign_cert,
        .sign_key = sign_key,
    };
    in_json = tb_cli_given(call, "json");
    const int status = open_session(&options, SOON_MS, session_out);
    if (status != TB_GATEWAY_AWAY || seconds <= SOON_MS / 1000) return status;
    const uint32_t ms = seconds <= LATER_MS / 1000 ? (uint32_t)seconds * 1000 - SOON_MS : LATER_MS;
    TB_ASSERT(ms > 0 && ms <= LATER_MS);
    say_waiting(call, ms);
    return open_session(&options, ms, session_out);
}

int tb_gateway_open(const struct tb_cli_call *call, struct tb_session **session_out)
{
    return open_as(call, NULL, NULL, session_out);
}

int tb_gateway_open_publisher(const struct tb_cli_call *call, struct tb_session **session_out)
{
    return open_as(call, tb_cli_text(call, "sign-cert"), tb_cli_text(call, "sign-key"), session_out);
}

enum tb_cli_exit tb_gateway_unopened(const struct tb_cli_call *call, int status)
{
    TB_ASSERT(status != TB_OK);
    return tb_say_failure(call, status, "opening a session: %s%s", tb_last_error(),
                          status == TB_GATEWAY_AWAY ? ADVICE : "");
}

struct tb_deadline tb_deadline_of(const struct tb_cli_call *call)
{
    const uint64_t seconds = tb_cli_number(call, "timeout", UINT64_MAX);
    struct tb_deadline d = {.at = TB_TIME_NEVER};
    if (seconds < UINT32_MAX) d.at = tb_time_add(tb_clock_now(), TB_SECONDS(seconds));
    return d;
}

bool tb_deadline_passed(const struct tb_deadline *deadline)
{
    return tb_clock_now() >= deadline->at;
}

bool tb_slice_again(struct tb_deadline *deadline, int *status)
{
    const bool away = *status == TB_GATEWAY_AWAY;
    const tb_time_ns now = tb_clock_now();
    if (!away) deadline->away_since = 0;
    if (away && deadline->away_since == 0) deadline->away_since = now;
    TB_ASSERT(deadline->away_since <= now && away == (deadline->away_since != 0));
    if (*status != TB_TIMEOUT && *status != TB_AGAIN && !away) return false;
    if (tb_signals_caught()) {
        *status = TB_CANCELLED;
        return false;
    }
    if (away && now < deadline->at) {
        const struct timespec pause = {.tv_nsec = 50000000};
        (void)nanosleep(&pause, NULL); /* should the call not have waited itself */
        return tb_time_since(deadline->away_since, now) < TB_SECONDS(TB_AWAY_S);
    }
    *status = TB_TIMEOUT;
    return now < deadline->at;
}
