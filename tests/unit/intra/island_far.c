#include "island_far.h"
#include "intra/transport/transport_words.h"
#include "island_device.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void far_die(const char *what)
{
    perror(what);
    _exit(1);
}

static bool take(int fd, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = read(fd, (char *)to + done, bytes - done);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

static bool give(int fd, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = write(fd, (const char *)from + done, bytes - done);
        if (n <= 0) return false;
        done += (size_t)n;
    }
    return true;
}

/* ---- the test's end ---- */

int far_dial(const struct way *way)
{
    const bool device = way->memory == MEMORY_DEVICE;
    const char *at = getenv(device ? "TB_TEST_DEVICE_OWNER_AT" : "TB_TEST_OWNER_AT");
    if (at == NULL || (way->transport != TB_TRANSPORT_VERBS && !device)) return -1;
    char host[64];
    const char *colon = strrchr(at, ':');
    struct sockaddr_in to = {.sin_family = AF_INET};
    assert_non_null(colon);
    (void)snprintf(host, sizeof host, "%.*s", (int)(colon - at), at);
    to.sin_port = htons((uint16_t)atoi(colon + 1));
    assert_int_equal(inet_pton(AF_INET, host, &to.sin_addr), 1);
    int fd = -1;
    wait_until(
        (fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0 &&
        (connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || close(fd) != 0)); /* it may still start */
    return fd;
}

struct far_answer far_do(int fd, const struct far_ask *ask, const void *payload)
{
    struct far_answer answer = {0};
    assert_true(give(fd, ask, sizeof *ask));
    assert_true(give(fd, payload, ask->payload_bytes));
    if (ask->op != FAR_DIE) assert_true(take(fd, &answer, sizeof answer));
    return answer;
}

/* ---- the owner's end ---- */

/* The payload is kept: exports stand in it. */
static void serve_export(struct owner *o, const struct far_ask *ask, uint8_t *payload)
{
    struct tb_export_buffer *buffers = calloc(ask->a, sizeof *buffers);
    for (uint32_t i = 0; i < ask->a; i++) {
        uint64_t count;
        memcpy(&count, payload, sizeof count);
        buffers[i] = (struct tb_export_buffer){.bytes = payload + sizeof count, .count = count, .memfd = -1};
        payload += sizeof count + count;
    }
    owner_export(o, buffers, ask->a);
    free(buffers);
}

static int64_t serve_ask(struct owner *o, struct cargo *cargo, const struct far_ask *ask, uint8_t *payload)
{
    switch (ask->op) {
    case FAR_OPEN:
        cargo_make(cargo, ask->a, ask->b);
        owner_open(o, &ask->way, cargo, ask->c);
        return 0;
    case FAR_HOLD:
        owner_hold(o, ask->a, (uint32_t)ask->b);
        return 0;
    case FAR_PUT:
        owner_put(o, ask->b, payload, ask->payload_bytes);
        return 0;
    case FAR_FILL:
        owner_fill(o, (uint8_t)ask->a);
        return 0;
    case FAR_EXPORT:
        serve_export(o, ask, payload);
        return 0;
    case FAR_REVOKE:
        owner_revoke(o, ask->a);
        return 0;
    case FAR_READERS:
        return owner_readers(o);
    case FAR_GRANT:
        return owner_grant(o, &ask->token, &ask->print);
    case FAR_STOP:
        owner_stop(o);
        return 0;
    case FAR_STAND_STILL:
        owner_stand_still(o, ask->a != 0);
        return 0;
    case FAR_LOG_CATCH:
        log_catch();
        return 0;
    case FAR_LOG_LINES:
        return log_lines(ask->words[0], ask->words[1]);
    case FAR_LOG_RELEASE:
        log_release();
        return 0;
    case FAR_AGAIN:
        return owner_export_again(o);
    case FAR_SPOIL_COPY:
        owner_spoil_copy(o);
        return 0;
    case FAR_DEVICE_FAIL:
    case FAR_DEVICE_FAILED:
    case FAR_DEVICE_TRAYS:
    case FAR_DEVICE_MAPPED:
        return island_device->ask(ask);
    case FAR_DIE:
        (void)raise(SIGKILL);
    }
    return -1;
}

/* One owner's life; the kernel sweeps what it leaves. */
static void serve_owner(int fd)
{
    static struct owner o;
    static struct cargo cargo;
    struct far_ask ask;
    while (take(fd, &ask, sizeof ask)) {
        uint8_t *payload = malloc(ask.payload_bytes + 1);
        if (payload == NULL || !take(fd, payload, ask.payload_bytes)) far_die("island_far: payload");
        struct far_answer answer = {.value = serve_ask(&o, &cargo, &ask, payload)};
        if (ask.op != FAR_EXPORT) free(payload);
        answer.endpoint = o.endpoint;
        answer.shard = o.shard;
        if (!give(fd, &answer, sizeof answer)) break;
    }
    _exit(0);
}

static int listen_at(uint32_t address, uint16_t port)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    const int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (const struct sockaddr *)&at, sizeof at) != 0 || listen(listener, 16) != 0)
        far_die("island_far: listen");
    return listener;
}

static void serve_all(int listener)
{
    (void)signal(SIGCHLD, SIG_IGN);
    for (;;) {
        const int fd = accept(listener, NULL, NULL);
        if (fd < 0) continue;
        if (fork() == 0) {
            (void)signal(SIGCHLD, SIG_DFL);
            serve_owner(fd);
        }
        close(fd);
    }
}

void far_serve(const char *port)
{
    const int listener = listen_at(INADDR_ANY, (uint16_t)atoi(port));
    printf("serving\n");
    (void)fflush(stdout);
    serve_all(listener);
}

static pid_t server;

void far_begin(void)
{
    struct sockaddr_in at = {0};
    socklen_t bytes = sizeof at;
    char text[64];
    const int listener = listen_at(INADDR_LOOPBACK, 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
    const pid_t test = getpid();
    server = fork();
    if (server == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* owners end with their connections */
        if (getppid() != test) _exit(1);
        serve_all(listener);
    }
    assert_true(server > 0);
    close(listener);
    (void)snprintf(text, sizeof text, "127.0.0.1:%u", ntohs(at.sin_port));
    assert_int_equal(setenv("TB_TEST_DEVICE_OWNER_AT", text, 1), 0);
}

void far_end(void)
{
    (void)kill(server, SIGKILL);
    (void)waitpid(server, NULL, 0);
    (void)unsetenv("TB_TEST_DEVICE_OWNER_AT");
}
