/* The control socket's client believes nothing of the answer and never waits past its time. P7,
 * P10. The server here is a thread that says one prepared thing.
 * Covers: gateway/cli/operator/control_client.c */
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/cli/operator/control_client.h"
#include "tests/unit/scratch.h"

struct server {
    char path[128];
    int listener;
    const char *answer; /* NULL: none; the connection stays open until the client goes */
    int files;          /* descriptors that go ahead of it, with a byte of their own */
    char asked[512];
    pthread_t thread;
};

static void files_send(int to, int count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * 3)];
    } room = {.bytes = {0}};
    int fds[3];
    char byte = 'F';
    for (int i = 0; i < count; i++)
        fds[i] = open("/dev/null", O_RDONLY);
    struct iovec piece = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &piece, .msg_iovlen = 1, .msg_control = room.bytes};
    m.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(head), fds, sizeof(int) * (size_t)count);
    (void)!sendmsg(to, &m, MSG_NOSIGNAL);
    for (int i = 0; i < count; i++)
        (void)close(fds[i]);
}

static void *serve(void *argument)
{
    struct server *s = argument;
    const int fd = accept(s->listener, NULL, NULL);
    /* The whole line: a server that answers and closes before it came breaks the asker's pipe. */
    for (size_t used = 0; strchr(s->asked, '\n') == NULL && used + 1 < sizeof s->asked;) {
        const ssize_t got = recv(fd, s->asked + used, sizeof s->asked - 1 - used, 0);
        if (got <= 0) break;
        used += (size_t)got;
    }
    if (s->files > 0) files_send(fd, s->files);
    if (s->answer != NULL && send(fd, s->answer, strlen(s->answer), MSG_NOSIGNAL) < 0) s->answer = NULL;
    char rest[16];
    if (s->answer == NULL) (void)!recv(fd, rest, sizeof rest, 0);
    (void)close(fd);
    return NULL;
}

static void start(struct server *s, const char *answer)
{
    memset(s, 0, sizeof *s);
    (void)snprintf(s->path, sizeof s->path, "%s/control", scratch_files());
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)strcpy(address.sun_path, s->path);
    (void)unlink(s->path);
    s->answer = answer;
    s->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->listener, 1), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void stop(struct server *s)
{
    assert_int_equal(pthread_join(s->thread, NULL), 0);
    (void)close(s->listener);
    (void)unlink(s->path);
}

static enum tb_status ask(struct server *s, uint32_t timeout_ms, json_t **reply, char error[512])
{
    json_t *request = json_pack("{s:s}", "cmd", "status");
    const enum tb_status status = tb_control_client_ask(s->path, request, timeout_ms, reply, error);
    json_decref(request);
    return status;
}

static void an_answer_is_an_object_of_schema_1(void **state)
{
    (void)state;
    static const struct {
        const char *answer;
        enum tb_status status;
        const char *error;
    } rows[] = {
        {"{\"schema\":1,\"ok\":true,\"site\":\"east\"}\n", TB_OK, ""},
        {"{\"schema\":1,\"ok\":false,\"status\":\"not_found\",\"error\":\"no such model\"}\n", TB_NOT_FOUND,
         "no such model"},
        {"{\"schema\":1,\"ok\":false,\"status\":\"version_lost\"}\n", TB_VERSION_LOST, "no holder left"},
        {"{\"schema\":1,\"ok\":false,\"status\":\"done\"}\n", TB_PEER_GARBLED, ""},
        {"{\"schema\":1,\"ok\":false,\"status\":\"ok\"}\n", TB_PEER_GARBLED, ""},
        {"{\"schema\":1,\"ok\":false}\n", TB_PEER_GARBLED, ""},
        {"{\"schema\":2,\"ok\":true}\n", TB_PEER_GARBLED, "schema 1"},
        {"{\"ok\":true}\n", TB_PEER_GARBLED, "schema 1"},
        {"{\"schema\":1,\"ok\":1}\n", TB_PEER_GARBLED, "schema 1"},
        {"[]\n", TB_PEER_GARBLED, "schema 1"},
        {"garbage\n", TB_PEER_GARBLED, "schema 1"},
        {"{\"schema\":1,\"ok\":true}", TB_GATEWAY_AWAY, "closed the connection before it answered"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct server s;
        json_t *reply = NULL;
        char error[512] = "";
        start(&s, rows[i].answer);
        const enum tb_status status = ask(&s, 10000, &reply, error);
        stop(&s);
        if (status != rows[i].status || strstr(error, rows[i].error) == NULL)
            fail_msg("%s: %d %s", rows[i].answer, status, error);
        assert_string_equal(s.asked, "{\"cmd\":\"status\",\"schema\":1}\n");
        if (status == TB_OK) assert_string_equal(json_string_value(json_object_get(reply, "site")), "east");
        json_decref(reply);
    }
}

static void a_gateway_that_says_nothing_is_not_waited_for(void **state)
{
    (void)state;
    struct server s;
    json_t *reply = NULL;
    char error[512];
    start(&s, NULL);
    assert_int_equal(ask(&s, 50, &reply, error), TB_TIMEOUT);
    stop(&s);
}

static void a_missing_gateway_is_told_with_advice(void **state)
{
    (void)state;
    json_t *reply = NULL;
    char error[512];
    struct server s = {.path = "/tmp/tombolo-control.nobody"};
    assert_int_equal(ask(&s, 50, &reply, error), TB_GATEWAY_AWAY);
    assert_non_null(strstr(error, "/tmp/tombolo-control.nobody"));
    assert_non_null(strstr(error, "--control"));
}

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != NULL)
        count++;
    assert_int_equal(closedir(folder), 0);
    return count;
}

/* P7: one descriptor is kept where one was asked for. Those that nobody asked for are closed, and
 * an answer without the one that was asked for is none. */
static void a_file_comes_with_the_answer_that_was_asked_for_it(void **state)
{
    (void)state;
    static const char good[] = "{\"schema\":1,\"ok\":true}\n", bad[] = "{\"schema\":1,\"ok\":false}\n";
    static const struct {
        int files;
        const char *answer;
        enum tb_status status;
    } rows[] = {
        {0, good, TB_PEER_GARBLED}, {1, good, TB_OK},         {3, good, TB_OK},
        {1, bad, TB_PEER_GARBLED},  {2, "", TB_GATEWAY_AWAY},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct server s;
        json_t *reply = NULL, *request = json_pack("{s:s}", "cmd", "backup");
        char error[512] = "";
        int fd = -1;
        start(&s, rows[i].answer);
        s.files = rows[i].files; /* the server waits for the question */
        const int before = open_files();
        const enum tb_status status = tb_control_client_ask_file(s.path, request, 10000, &reply, &fd, error);
        if (status != rows[i].status) fail_msg("row %zu: %d %s", i, status, error);
        assert_int_equal(fd >= 0, status == TB_OK);
        if (fd >= 0) assert_int_equal(close(fd), 0);
        (void)pthread_join(s.thread, NULL);
        assert_int_equal(open_files(), before);
        (void)close(s.listener);
        (void)unlink(s.path);
        json_decref(reply);
        json_decref(request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_is_an_object_of_schema_1),
        cmocka_unit_test(a_gateway_that_says_nothing_is_not_waited_for),
        cmocka_unit_test(a_missing_gateway_is_told_with_advice),
        cmocka_unit_test(a_file_comes_with_the_answer_that_was_asked_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
