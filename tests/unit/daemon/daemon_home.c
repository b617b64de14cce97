/* daemon_home.c - see daemon_home.h. */
#include "tests/unit/daemon/daemon_home.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway/daemon/control/lag_status.h"
#include "gateway/daemon/control/usage_status.h"
#include "gateway/daemon/links/site_records.h"
#include "tests/unit/check.h"
#include "tests/unit/scratch.h"

static void complain(void *user, const char *line)
{
    (void)user;
    fail_msg("%s", line);
}

void home_new(struct home *h)
{
    home_new_with(h, HOME_MODELS, false);
}

void home_new_with(struct home *h, const char *models, bool anchors)
{
    char text[4096];
    memset(h, 0, sizeof *h);
    assert_true(scratch_folder(h->dir, sizeof h->dir, "home"));
    snprintf(text, sizeof text,
             "site: east\n"
             "control: {socket: %s/control}\n"
             "session: {socket: %s/session, lease_ms: %u}\n"
             "store: {path: %s/store}\n"
             "arena: {path: %s/arena, bytes: 8MiB, reverify: false}\n"
             "models: %s\n",
             h->dir, h->dir, HOME_LEASE_MS, h->dir, h->dir, models);
    if (anchors)
        snprintf(text + strlen(text), sizeof text - strlen(text), "anchor: {dir: %s/anchors}\n", h->dir);
    assert_true(strlen(text) + 1 < sizeof text); /* folders of a run may have long names */
    CHECK_OK(tb_config_parse("east.yaml", text, strlen(text), complain, NULL, &h->config));
}

void home_start(struct home *h)
{
    h->d = calloc(1, sizeof *h->d);
    assert_non_null(h->d);
    const uint32_t threads = h->config->fabric_threads;
    if (threads == 0) h->config->fabric_threads = 2; /* chunks are proven as they land, on any machine */
    CHECK_OK(tb_daemon_open(h->d, h->config));
    h->config->fabric_threads = threads; /* as its file has it */
}

void home_end(struct home *h)
{
    tb_daemon_close(h->d);
    assert_false(h->d->fault);
    free(h->d);
    h->d = NULL;
}

void home_free(struct home *h)
{
    static const char *const files[] = {"control", "session", "store", "store-wal", "store-shm", "arena"};
    char path[SCRATCH_BYTES + 64];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", h->dir, files[i]);
        (void)unlink(path);
    }
    snprintf(path, sizeof path, "%s/anchors", h->dir);
    (void)rmdir(path);
    assert_int_equal(rmdir(h->dir), 0);
    tb_config_free(h->config);
}

uint64_t home_table(const struct home *h, const char *table, const char *column)
{
    json_t *tables = tb_status_tables(h->d), *row;
    size_t i;
    uint64_t found = UINT64_MAX;
    assert_non_null(tables);
    json_array_foreach(tables, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "table")), table) == 0)
            found = (uint64_t)json_integer_value(json_object_get(row, column));
    }
    json_decref(tables);
    if (found == UINT64_MAX) fail_msg("no table %s", table);
    return found;
}

void home_turn_until(const struct home *h, const char *table, uint64_t rows)
{
    const tb_time_ns until = tb_time_add(tb_clock_now(), TB_SECONDS(60));
    while (home_table(h, table, "used") != rows && tb_clock_now() < until)
        (void)uv_run(&h->d->loop, UV_RUN_ONCE);
    assert_int_equal(home_table(h, table, "used"), rows);
}

int home_dial(const struct home *h)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s/session", h->dir);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

void home_check_lag(const struct home *h, const char *site, const char *reason, const char *evidence)
{
    char error[256] = "";
    json_t *request = json_pack("{s:s}", "model", "policy"), *reply = json_object(), *row;
    size_t i;
    bool found = false;
    tb_site_records_tick(h->d); /* as each second: a peer that says no STATE is judged by its link */
    CHECK_OK(tb_status_lag(h->d, request, reply, error));
    json_array_foreach(json_object_get(reply, "lag"), i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "site")), site) != 0) continue;
        found = true;
        assert_string_equal(json_string_value(json_object_get(row, "reason")), reason);
        assert_non_null(strstr(json_string_value(json_object_get(row, "evidence")), evidence));
    }
    assert_true(found);
    json_decref(request);
    json_decref(reply);
}
