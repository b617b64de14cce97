/* config_start_checks.c - what this machine says of a configuration before a start. A finding that
 * would end the start refuses; a place that another process holds now is a warning (P10).
 * Covers: gateway/config/start_checks.c gateway/config/gateway_tls.c */
#include "gateway/config/start_checks.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway/arena/arena.h"
#include "tests/unit/check.h"
#include "tests/unit/net/net_world.h"
#include "tests/unit/scratch.h"

struct findings {
    char text[8192];
    uint32_t count;
};

static void collect(void *user, const struct tb_start_finding *finding)
{
    struct findings *f = user;
    const size_t used = strlen(f->text);
    (void)snprintf(f->text + used, sizeof f->text - used, "%s %s: %s\n", finding->refuses ? "error" : "warn",
                   finding->key, finding->text);
    f->count++;
}

static void complain(void *user, const char *line)
{
    (void)user;
    fail_msg("%s", line);
}

/* A gateway `name` of site east, its sockets and its store in the world's folder, and `more`
 * lines. */
static struct tb_config *config_of(const struct world *w, const char *name, const char *store,
                                   const char *more)
{
    char text[4096];
    struct tb_config *config = NULL;
    (void)snprintf(text, sizeof text,
                   "site: east\ngateway: %s\n"
                   "arena: {path: %s/arena, bytes: 16MiB}\nstore: {path: %s/%s}\n"
                   "control: {socket: %s/c}\nsession: {socket: %s/s, max: 16}\n"
                   "tls: {ca: %s/east/ca.crt, cert: %s/east/gw.crt, key: %s/east/gw.key}\n%s",
                   name, scratch_memory(), w->dir, store, w->dir, w->dir, w->dir, w->dir, w->dir, more);
    CHECK_OK(tb_config_parse("east.yaml", text, strlen(text), complain, NULL, &config));
    return config;
}

static struct findings check(struct tb_config *config)
{
    struct findings f = {"", 0};
    tb_start_check(config, collect, &f);
    tb_config_free(config);
    return f;
}

static void says(const struct findings *f, const char *line)
{
    if (strstr(f->text, line) == NULL) fail_msg("no \"%s\" in:\n%s", line, f->text);
}

/* The certificates of the world end within an hour, which is the one thing to say. */
static void a_good_configuration_has_a_warning_of_its_certificate_alone(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    const struct findings f = check(config_of(w, "gw", "store", ""));
    says(&f, "warn tls.cert: tls.cert: ");
    says(&f, ": renew it");
    assert_int_equal(f.count, 1);
    assert_int_equal(access(world_path(w, "store", ""), F_OK), -1); /* nothing was made */
}

static void a_certificate_of_another_gateway_refuses(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    const struct findings f = check(config_of(w, "gw2", "store", ""));
    says(&f, "error tls.cert: tls: the certificate is for tombolo://east/gw, the config says site east, "
             "gateway gw2\n");
    assert_int_equal(f.count, 1);
}

static void a_key_that_others_may_read_refuses_by_its_own_name(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    char command[300];
    (void)snprintf(command, sizeof command, "%s", world_path(w, "east", "gw.key"));
    assert_int_equal(chmod(command, 0644), 0);
    const struct findings f = check(config_of(w, "gw", "store", ""));
    says(&f, "error tls.key: tls: ");
    says(&f, "chmod 600");
}

static void places_that_are_not_there_refuse(void **state)
{
    struct world *w = *state;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    const struct findings f = check(config_of(
        w, "gw", "no/store",
        "anchor: {dir: /no/such/folder}\ndns: {servers: nonsense}\naudit: {file: /no/such/acts}\n"));
    says(&f, "error store.path: store.path: ");
    says(&f, "error anchor.dir: anchor.dir: /no/such/folder: No such file");
    says(&f, "error dns.servers: dns.servers: \"nonsense\" is not a list of ADDRESS:PORT");
    says(&f, "error audit.file: audit.file: /no/such/acts: No such file");
    assert_int_equal(f.count, 5); /* and the certificate's end */
}

/* The audit record is three files. Nothing of them is made. */
static void a_file_of_the_audit_record_that_others_may_read_refuses(void **state)
{
    struct world *w = *state;
    char more[300], denials[300];
    world_issue(w, "east", "gw", "tombolo://east/gw");
    (void)snprintf(more, sizeof more, "audit: {file: %s/acts}\n", w->dir);
    assert_int_equal(check(config_of(w, "gw", "store", more)).count, 1);
    (void)snprintf(denials, sizeof denials, "%s/acts.denials", w->dir);
    assert_int_equal(access(denials, F_OK), -1);
    const int fd = open(denials, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0 && fchmod(fd, 0644) == 0 && close(fd) == 0);
    const struct findings f = check(config_of(w, "gw", "store", more));
    says(&f, "error audit.file: audit.file: ");
    says(&f, "acts.denials: others may use it (mode 0644): chmod 600");
    assert_int_equal(f.count, 2);
}

/* As a rule the gateway that runs with this file. */
static void places_that_another_process_holds_are_warnings(void **state)
{
    struct world *w = *state;
    char error[TB_ARENA_ERROR_BYTES];
    struct tb_arena *arena = NULL;
    world_issue(w, "east", "gw", "tombolo://east/gw");
    struct tb_config *config = config_of(w, "gw", "store", "");
    CHECK_OK(
        tb_arena_open(&(struct tb_arena_options){config->arena_path, config->arena_bytes}, &arena, error));
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(at.sun_path, sizeof at.sun_path, "%s", config->control_socket);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 1), 0);
    const struct findings f = check(config);
    says(&f, "warn arena.path: arena.path: ");
    says(&f, "another process has it locked");
    says(&f, "warn control.socket: control.socket: ");
    assert_int_equal(f.count, 3);
    close(fd);
    tb_arena_close(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD_TEST(a_good_configuration_has_a_warning_of_its_certificate_alone),
        WORLD_TEST(a_certificate_of_another_gateway_refuses),
        WORLD_TEST(a_key_that_others_may_read_refuses_by_its_own_name),
        WORLD_TEST(places_that_are_not_there_refuse),
        WORLD_TEST(a_file_of_the_audit_record_that_others_may_read_refuses),
        WORLD_TEST(places_that_another_process_holds_are_warnings),
    };
    return cmocka_run_group_tests_name("daemon.config_start_checks", tests, NULL, NULL);
}
