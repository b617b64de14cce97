/* door_reach.c - a door of this host is reached from the same network namespace alone: from another
 * one nobody listens at its name.
 *
 * Covers: intra/fabric/door_reach.c */
#include "intra/fabric/door_reach.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/check.h"

static void a_name_is_reached_while_somebody_listens_there(void **state)
{
    (void)state;
    char name[64];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(name, sizeof name, "tombolo-test-%ld", (long)getpid());
    memcpy(at.sun_path + 1, name, strlen(name));
    const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    assert_false(tb_door_reachable(name));
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_true(tb_door_reachable(name));
    (void)close(fd);
    assert_false(tb_door_reachable(name));
}

static void a_name_that_no_door_has_is_not_reached(void **state)
{
    (void)state;
    char name[200];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_false(tb_door_reachable(""));
    assert_false(tb_door_reachable(name));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_is_reached_while_somebody_listens_there),
        cmocka_unit_test(a_name_that_no_door_has_is_not_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
