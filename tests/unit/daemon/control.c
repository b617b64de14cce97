/* control.c - the operator's socket: one JSON object a line, bounded, and nothing that a client
 * says ends it (P7, P10).
 *
 * Covers: gateway/daemon/control/control.c */
#include "gateway/daemon/control/control.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "tests/unit/caught_log.h"
#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

#define CLIENTS_MAX       16 /* a quarter of those that control.c has: one user's share */
#define REQUEST_BYTES_MAX (64 << 10)

struct room {
    uv_loop_t loop;
    uv_timer_t tick;
    char dir[SCRATCH_BYTES], path[108]; /* as long as a socket's may be */
    struct tb_control *control;
    int echoes;
};

struct line { /* of one client */
    int fd;
    char *text;
    size_t bytes, cap;
    bool ended;
};

static enum tb_status echo(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)error;
    struct room *r = user;
    r->echoes++;
    return json_object_set(reply, "said", json_object_get(request, "say")) == 0 ? TB_OK : TB_SITE_NOMEM;
}

static enum tb_status large(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)user, (void)request, (void)error;
    const size_t bytes = 4 << 20; /* more than a socket's buffer takes at once */
    char *text = malloc(bytes + 1);
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    const int rc = json_object_set_new(reply, "text", json_string(text));
    free(text);
    return rc == 0 ? TB_OK : TB_SITE_NOMEM;
}

static enum tb_status refuse(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)user, (void)request, (void)reply;
    snprintf(error, 256, "version 7 is not here");
    return TB_NOT_FOUND;
}

static enum tb_status refuse_in_half(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)user, (void)request, (void)reply;
    snprintf(error, 256, "there is no peer \"caf\xc3"); /* cut within a letter */
    return TB_CONFLICT;
}

static enum tb_status name_operator(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)request, (void)error;
    const struct room *r = user;
    char who[TB_OPERATOR_BYTES];
    tb_control_operator(r->control, who);
    return json_object_set_new(reply, "said", json_string(who)) == 0 ? TB_OK : TB_SITE_NOMEM;
}

static const struct tb_control_command commands[] = {{"echo", echo},
                                                     {"who", name_operator},
                                                     {"large", large},
                                                     {"refuse", refuse},
                                                     {"refuse in half", refuse_in_half},
                                                     {NULL, NULL}};

static void turn(uv_timer_t *timer)
{
    const struct room *r = timer->data;
    if (r->control != NULL) tb_control_check(r->control); /* as the daemon does between two turns */
}

static void room_open(struct room *r)
{
    memset(r, 0, sizeof *r);
    assert_true(scratch_folder(r->dir, sizeof r->dir, "control"));
    snprintf(r->path, sizeof r->path, "%s/sock", r->dir);
    assert_int_equal(uv_loop_init(&r->loop), 0);
    uv_timer_init(&r->loop, &r->tick);
    r->tick.data = r;
    uv_timer_start(&r->tick, turn, 1, 1);
    CHECK_OK(tb_control_open(&r->loop, r->path, commands, r, &r->control));
}

static void room_close(struct room *r)
{
    tb_control_close(r->control);
    r->control = NULL;
    uv_close((uv_handle_t *)&r->tick, NULL);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0); /* every handle is gone */
    unlink(r->path);
    rmdir(r->dir);
}

static struct line dial(struct room *r)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s", r->path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return (struct line){.fd = fd};
}

static void hang_up(struct line *l)
{
    close(l->fd);
    free(l->text);
    memset(l, 0, sizeof *l);
}

/* Reads what is there; true at a whole line, or when the server hung up. */
static bool has_line(struct line *l)
{
    for (;;) {
        if (l->bytes > 0 && memchr(l->text, '\n', l->bytes) != NULL) return true;
        if (l->ended) return true;
        if (l->cap - l->bytes < 65536) l->text = realloc(l->text, l->cap = 2 * l->cap + 65536);
        assert_non_null(l->text);
        const ssize_t got = recv(l->fd, l->text + l->bytes, l->cap - l->bytes, 0);
        if (got < 0 && errno == EAGAIN) return false;
        if (got <= 0)
            l->ended = true;
        else
            l->bytes += (size_t)got;
    }
}

static void say(struct room *r, struct line *l, const char *text, size_t bytes)
{
    const tb_time_ns end = tb_clock_now() + TB_SECONDS(30);
    for (size_t sent = 0; sent < bytes;) {
        const ssize_t n = send(l->fd, text + sent, bytes - sent, MSG_NOSIGNAL);
        if (n > 0) sent += (size_t)n;
        if (n < 0 && errno != EAGAIN) return; /* it hung up: the test sees that in what it reads */
        if (tb_clock_now() > end) fail_msg("it does not read");
        uv_run(&r->loop, UV_RUN_NOWAIT);
    }
}

/* The next line as JSON; NULL when the server hung up. */
static json_t *heard(struct room *r, struct line *l)
{
    const tb_time_ns end = tb_clock_now() + TB_SECONDS(30);
    while (!has_line(l)) {
        if (tb_clock_now() > end) fail_msg("no answer");
        uv_run(&r->loop, UV_RUN_ONCE);
    }
    char *newline = l->bytes > 0 ? memchr(l->text, '\n', l->bytes) : NULL;
    if (newline == NULL) return NULL;
    const size_t bytes = (size_t)(newline - l->text);
    json_t *reply = json_loadb(l->text, bytes, 0, NULL);
    assert_non_null(reply);
    l->bytes -= bytes + 1;
    memmove(l->text, newline + 1, l->bytes);
    return reply;
}

static json_t *asked(struct room *r, struct line *l, const char *text)
{
    say(r, l, text, strlen(text));
    json_t *reply = heard(r, l);
    assert_non_null(reply);
    assert_int_equal(json_integer_value(json_object_get(reply, "schema")), 1);
    return reply;
}

static void expect_failure(struct room *r, struct line *l, const char *text, const char *status)
{
    json_t *reply = asked(r, l, text);
    assert_false(json_is_true(json_object_get(reply, "ok")));
    assert_string_equal(json_string_value(json_object_get(reply, "status")), status);
    assert_true(json_string_length(json_object_get(reply, "error")) > 0);
    json_decref(reply);
}

static void expect_echo(struct room *r, struct line *l, const char *text, const char *said)
{
    json_t *reply = text != NULL ? asked(r, l, text) : heard(r, l);
    assert_non_null(reply);
    assert_true(json_is_true(json_object_get(reply, "ok")));
    assert_string_equal(json_string_value(json_object_get(reply, "said")), said);
    json_decref(reply);
}

/* P8: only the owner and the group may open it. */
static void the_socket_is_not_for_others(void **state)
{
    (void)state;
    struct room r;
    room_open(&r);
    struct stat st;
    assert_int_equal(stat(r.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    room_close(&r);
}

/* P10: each refusal has a status and a sentence, and the client may go on. */
static void garbage_is_answered_and_the_next_request_is_heard(void **state)
{
    (void)state;
    struct room r;
    room_open(&r);
    struct line l = dial(&r);
    static const struct {
        const char *text, *status;
    } rows[] = {
        {"\n", "bad_argument"},
        {"hello\n", "bad_argument"},
        {"[1]\n", "bad_argument"},
        {"{\"cmd\": \"echo\"}\n", "bad_argument"},
        {"{\"schema\": 2, \"cmd\": \"echo\"}\n", "bad_argument"},
        {"{\"schema\": 1}\n", "bad_argument"},
        {"{\"schema\": 1, \"cmd\": 7}\n", "bad_argument"},
        {"{\"schema\": 1, \"cmd\": \"echo\", \"cmd\": \"large\"}\n", "bad_argument"},
        {"{\"schema\": 1, \"cmd\": \"ech\"}\n", "not_found"},
        {"{\"schema\": 1, \"cmd\": \"\"}\n", "not_found"},
        {"{\"schema\": 1, \"cmd\": \"refuse\"}\n", "not_found"},
        {"{\"schema\": 1, \"cmd\": \"refuse in half\"}\n", "conflict"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        expect_failure(&r, &l, rows[i].text, rows[i].status);
        assert_int_equal(r.echoes, 0);
    }
    static const char nul[] = "{\"schema\": 1,\0 \"cmd\": \"echo\"}\n";
    say(&r, &l, nul, sizeof nul - 1);
    json_t *reply = heard(&r, &l);
    assert_false(json_is_true(json_object_get(reply, "ok")));
    json_decref(reply);
    expect_echo(&r, &l, "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"still here\"}\n", "still here");
    hang_up(&l);
    room_close(&r);
}

static void a_request_in_pieces_is_one_request(void **state)
{
    (void)state;
    struct room r;
    room_open(&r);
    struct line l = dial(&r);
    const char *text = "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"slow\"}\n";
    for (size_t i = 0; i + 1 < strlen(text); i++) {
        say(&r, &l, text + i, 1);
        assert_false(has_line(&l));
    }
    say(&r, &l, "\n", 1);
    expect_echo(&r, &l, NULL, "slow");
    hang_up(&l);
    room_close(&r);
}

/* Answers come in the order of the requests, also behind one that does not fit into the socket at
 * once. */
static void requests_may_be_sent_ahead(void **state)
{
    (void)state;
    struct room r;
    room_open(&r);
    struct line l = dial(&r);
    char text[16384];
    int used = snprintf(text, sizeof text, "{\"schema\":1,\"cmd\":\"large\"}\n");
    for (int i = 0; i < 200; i++) {
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"%d\"}\n", i);
    }
    say(&r, &l, text, (size_t)used);
    json_t *reply = heard(&r, &l);
    assert_int_equal(json_string_length(json_object_get(reply, "text")), 4 << 20);
    json_decref(reply);
    for (int i = 0; i < 200; i++) {
        char said[16];
        snprintf(said, sizeof said, "%d", i);
        expect_echo(&r, &l, NULL, said);
    }
    hang_up(&l);
    room_close(&r);
}

/* P7: a line without an end is refused at its bound, and the connection ends; the
 * longest line is answered. */
static void a_request_is_bounded(void **state)
{
    (void)state;
    struct room r;
    room_open(&r);
    struct line l = dial(&r);
    static char text[REQUEST_BYTES_MAX + 2];
    const int head = snprintf(text, sizeof text, "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"\"}");
    memset(text + head, ' ', sizeof text - (size_t)head);
    text[REQUEST_BYTES_MAX - 1] = '\n';
    say(&r, &l, text, REQUEST_BYTES_MAX);
    expect_echo(&r, &l, NULL, "");
    text[REQUEST_BYTES_MAX - 1] = ' ';
    say(&r, &l, text, REQUEST_BYTES_MAX);
    json_t *reply = heard(&r, &l);
    assert_non_null(reply);
    assert_string_equal(json_string_value(json_object_get(reply, "status")), "too_large");
    json_decref(reply);
    assert_null(heard(&r, &l)); /* hung up */
    hang_up(&l);
    room_close(&r);
}

/* P10: twenty were turned away, and one line says so. */
static void check_told_once(const struct room *r, int log)
{
    char text[4096];
    struct tb_control_usage usage;
    const ssize_t bytes = pread(log, text, sizeof text - 1, 0);
    assert_true(bytes > 0);
    text[bytes] = '\0';
    const char *first = strstr(text, "control.refused");
    assert_non_null(first);
    assert_null(strstr(first + 1, "control.refused"));
    (void)close(log);
    tb_control_usage(r->control, &usage);
    assert_int_equal(usage.clients, CLIENTS_MAX);
    assert_int_equal(usage.most, CLIENTS_MAX);
    assert_int_equal(usage.max, 4 * CLIENTS_MAX);
    assert_int_equal(usage.refused, 20);
    assert_int_equal(usage.spent, 20);
}

/* P7: one client too many is turned away, those inside are served, and a place that
 * is free again is used. */
static void clients_are_bounded(void **state)
{
    (void)state;
    struct room r;
    room_open(&r);
    static struct line l[CLIENTS_MAX];
    for (int i = 0; i < CLIENTS_MAX; i++) {
        l[i] = dial(&r);
        expect_echo(&r, &l[i], "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"in\"}\n", "in");
    }
    const int log = caught_log_new();
    tb_log_set(TB_LOG_INFO, log);
    for (int i = 0; i < 20; i++) {
        struct line late = dial(&r);
        assert_null(heard(&r, &late));
        hang_up(&late);
    }
    tb_log_set(TB_LOG_INFO, STDERR_FILENO);
    check_told_once(&r, log);
    for (int i = 0; i < CLIENTS_MAX; i++)
        expect_echo(&r, &l[i], "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"in\"}\n", "in");
    hang_up(&l[3]);
    const tb_time_ns end = tb_clock_now() + TB_SECONDS(30);
    for (bool in = false; !in;) { /* until its end has been seen */
        if (tb_clock_now() > end) fail_msg("the free place is not used");
        uv_run(&r.loop, UV_RUN_ONCE);
        l[3] = dial(&r);
        const char *text = "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"in\"}\n";
        say(&r, &l[3], text, strlen(text));
        json_t *reply = heard(&r, &l[3]);
        in = reply != NULL;
        json_decref(reply);
        if (!in) hang_up(&l[3]);
    }
    for (int i = 0; i < CLIENTS_MAX; i++)
        hang_up(&l[i]);
    room_close(&r);
}

/* P6: a client that asks and does not read holds up nobody; one that leaves before its answer
 * leaves nothing behind. */
static void a_client_that_does_not_read_holds_up_nobody(void **state)
{
    (void)state;
    struct room r;
    room_open(&r);
    struct line deaf = dial(&r), l = dial(&r);
    say(&r, &deaf, "{\"schema\":1,\"cmd\":\"large\"}\n", 27);
    for (int i = 0; i < 10; i++)
        expect_echo(&r, &l, "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"on\"}\n", "on");
    hang_up(&deaf);
    expect_echo(&r, &l, "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"on\"}\n", "on");
    room_close(&r); /* with a client inside */
    hang_up(&l);
}

/* P10: a command knows the user that asks, by the kernel's word. Outside of one there is none. */
static void a_command_knows_its_operator(void **state)
{
    (void)state;
    struct room r;
    char uid[32], who[TB_OPERATOR_BYTES];
    room_open(&r);
    struct line l = dial(&r);
    (void)snprintf(uid, sizeof uid, "uid %u", (unsigned)getuid());
    const char *text = "{\"schema\":1,\"cmd\":\"who\"}\n";
    say(&r, &l, text, strlen(text));
    json_t *reply = heard(&r, &l);
    assert_non_null(strstr(json_string_value(json_object_get(reply, "said")), uid));
    json_decref(reply);
    tb_control_operator(r.control, who);
    assert_string_equal(who, "");
    tb_control_operator(NULL, who);
    assert_string_equal(who, "");
    hang_up(&l);
    room_close(&r);
}

static void a_path_that_cannot_be_is_refused(void **state)
{
    (void)state;
    struct room r;
    room_open(&r);
    struct tb_control *second = NULL;
    char path[600];
    memset(path, 'a', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_true(tb_control_open(&r.loop, path, commands, &r, &second) != TB_OK);
    assert_true(tb_control_open(&r.loop, "/nonexistent/control.sock", commands, &r, &second) != TB_OK);
    assert_true(tb_control_open(&r.loop, r.path, commands, &r, &second) != TB_OK); /* somebody serves there */
    assert_null(second);
    struct line l = dial(&r);
    expect_echo(&r, &l, "{\"schema\":1,\"cmd\":\"echo\",\"say\":\"on\"}\n", "on");
    hang_up(&l);
    room_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_socket_is_not_for_others),
        cmocka_unit_test(garbage_is_answered_and_the_next_request_is_heard),
        cmocka_unit_test(a_request_in_pieces_is_one_request),
        cmocka_unit_test(requests_may_be_sent_ahead),
        cmocka_unit_test(a_request_is_bounded),
        cmocka_unit_test(clients_are_bounded),
        cmocka_unit_test(a_client_that_does_not_read_holds_up_nobody),
        cmocka_unit_test(a_command_knows_its_operator),
        cmocka_unit_test(a_path_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
