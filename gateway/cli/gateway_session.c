/* gateway_session.c - see gateway_session.h. */
#include "gateway/cli/gateway_session.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "gateway/cli/say.h"

#define SESSION_DEFAULT "unix:/run/tombolo/session.sock"
#define OPEN_MS         10000u

static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    (void)number;
    caught = 1;
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

int tb_gateway_open(const struct tb_cli_call *call, struct tb_session **session_out)
{
    const char *gateway = option_or_environment(call, "gateway", "TOMBOLO_GATEWAY");
    const uint64_t seconds = tb_cli_number(call, "timeout", UINT64_MAX);
    const struct tb_session_options options = {
        .struct_bytes = sizeof options,
        .gateway = gateway == NULL ? SESSION_DEFAULT : gateway,
        .ca = option_or_environment(call, "ca", "TOMBOLO_CA"),
        .cert = option_or_environment(call, "cert", "TOMBOLO_CERT"),
        .key = option_or_environment(call, "key", "TOMBOLO_KEY"),
        .open_timeout_ms = seconds > 0 && seconds < OPEN_MS / 1000 ? (uint32_t)seconds * 1000 : OPEN_MS,
    };
    return tb_session_open(&options, session_out);
}

enum tb_cli_exit tb_gateway_unopened(const struct tb_cli_call *call, int status)
{
    return tb_say_failure(
        call, status, "opening a session: %s%s", tb_last_error(),
        status == TB_GATEWAY_AWAY ? "; does tombolod run there? else say --gateway or TOMBOLO_GATEWAY" : "");
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
