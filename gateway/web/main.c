/* main.c - tombolo-web: a gateway's metrics and probes over HTTP. It reads the control socket, and
 * has no key and no weight. */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "gateway/cli/cli.h"
#include "gateway/cli/operator/control_client.h"
#include "gateway/sandbox/sandbox.h"
#include "gateway/web/web_server.h"
#include "tombolo/version.h"

#define LISTEN_DEFAULT "127.0.0.1:9464"

static const char usage[] =
    "usage: tombolo-web [OPTION...]\n\n"
    "Serves what this site's gateway says on its control socket: a page at / with views of sites,\n"
    "versions, links, readers and health, /metrics for Prometheus, /livez and /readyz for probes. GET\n"
    "and HEAD alone. It ends with SIGTERM.\n\n"
    "  --control PATH    the gateway's control socket; default TOMBOLO_CONTROL, else\n"
    "                    " TB_CONTROL_PATH_DEFAULT "\n"
    "  --listen ADDRESS  an address and port; default " LISTEN_DEFAULT "; port 0: any\n"
    "  --version         the release\n"
    "  --help            this text\n\n"
    "Example:\n  tombolo-web --listen [::1]:9464\n"
    "Exit codes: 0 ended by SIGTERM or SIGINT, 2 usage, 7 it cannot listen there.\n";

/* "127.0.0.1:9464", "[::1]:9464". */
static struct addrinfo *resolved(const char *text)
{
    char host[256];
    const char *colon = strrchr(text, ':');
    size_t count = colon == NULL ? 0 : (size_t)(colon - text);
    if (count > 1 && text[0] == '[' && text[count - 1] == ']') {
        text++;
        count -= 2;
    }
    if (colon == NULL || count == 0 || count >= sizeof host) return NULL;
    memcpy(host, text, count);
    host[count] = '\0';
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    return getaddrinfo(host, colon + 1, &hints, &found) == 0 ? found : NULL;
}

/* It opens no file and starts no process: it has its two sockets alone. LeakSanitizer looks for the
 * process's threads at its end. */
static void give_up_rights(void)
{
    static const struct tb_sandbox_path threads = {"/proc", TB_SANDBOX_READ};
    struct tb_sandbox sandbox;
    struct tb_log_line line;
    tb_sandbox_enter(&threads, TB_SANITIZED ? 1 : 0, &sandbox);
    if (sandbox.lacks[0] == '\0') return;
    tb_log_begin(&line, TB_LOG_WARN, "web.sandbox");
    tb_log_str(&line, "lacks", sandbox.lacks);
    tb_log_end(&line);
}

static int serve(const char *control, const struct addrinfo *at, const char *listen)
{
    struct tb_web_server *server = NULL;
    sigset_t ends;
    int signal_number = 0;
    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGINT);
    (void)pthread_sigmask(SIG_BLOCK, &ends, NULL); /* also in the server's thread */
    (void)signal(SIGPIPE, SIG_IGN);
    give_up_rights(); /* before the first thread */
    const enum tb_status status = tb_web_server_open(control, at->ai_addr, &server);
    if (status != TB_OK) {
        (void)fprintf(stderr, "tombolo-web: cannot listen on %s: %s\n", listen,
                      status == TB_SITE_NOMEM ? "no memory" : strerror(errno));
        return TB_CLI_SITE;
    }
    (void)printf("tombolo-web: port %u, / /metrics /livez /readyz, of %s\n", tb_web_server_port(server),
                 control);
    (void)fflush(stdout);
    (void)sigwait(&ends, &signal_number);
    tb_web_server_close(server);
    return TB_CLI_DONE;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"control", 1, NULL, 'c'},
                                            {"listen", 1, NULL, 'l'},
                                            {"version", 0, NULL, 'v'},
                                            {"help", 0, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    const char *control = getenv("TOMBOLO_CONTROL"), *listen = LISTEN_DEFAULT;
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'c') control = optarg;
        if (o == 'l') listen = optarg;
        if (o == 'v') return printf("tombolo-web %s\n", TB_VERSION_TEXT) > 0 ? TB_CLI_DONE : TB_CLI_SITE;
        if (o == 'h') return fputs(usage, stdout) >= 0 ? TB_CLI_DONE : TB_CLI_SITE;
        if (o == '?') return TB_CLI_USAGE;
    }
    struct addrinfo *at = optind == argc ? resolved(listen) : NULL;
    if (at == NULL) {
        (void)fprintf(stderr, "tombolo-web: %s is no %s; see tombolo-web --help\n",
                      optind < argc ? argv[optind] : listen, optind < argc ? "option" : "address and port");
        return TB_CLI_USAGE;
    }
    const int code =
        serve(control != NULL && *control != '\0' ? control : TB_CONTROL_PATH_DEFAULT, at, listen);
    freeaddrinfo(at);
    return code;
}
