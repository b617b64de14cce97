/* The list of revoked certificates: what a file may say, and which certificates it hits (P8).
 *
 * Covers: base/net/revoked.c base/net/revoked_file.c base/net/tls_revoked.c
 * Covers: base/net/tls_session.c */
#include "base/net/revoked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net_world.h"

#define PRINT "sha256:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static struct tb_revoked *list_of(const char *text)
{
    struct tb_revoked *r = NULL;
    uint32_t line;
    assert_int_equal(tb_revoked_parse(text, strlen(text), &r, &line), TB_OK);
    return r;
}

static enum tb_status says(const char *text, uint32_t *line_out)
{
    struct tb_revoked *r = NULL;
    const enum tb_status status = tb_revoked_parse(text, strlen(text), &r, line_out);
    tb_revoked_free(r);
    return status;
}

static void each_form_is_read_and_others_refuse_the_file(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "sha256:00",
        PRINT "00",
        "sha256:zz112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
        "serial:",
        "serial:0",
        "serial:00",
        "serial:1:2",
        "serial:010203040506070809101112131415161718192021",
        "unix:1000",
        "tombolo://west",
        "tombolo://west/gw/x",
        "west",
        "tombolo://west/*"};
    uint32_t line;
    struct tb_revoked *r = list_of("# a line for people\n\n" PRINT "  it was stolen\r\n\tserial:00:8F:1a x\n"
                                   "tombolo://west/gw\ntombolo://west/worker/w");
    assert_int_equal(tb_revoked_count(r), 4);
    tb_revoked_free(r);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "tombolo://east/gw\n%s\n", wrong[i]);
        if (says(text, &line) != TB_BAD_FILE || line != 2) fail_msg("taken: %s", wrong[i]);
    }
    r = list_of("serial:0102030405060708091011121314151617181920");
    assert_int_equal(tb_revoked_count(r), 1);
    tb_revoked_free(r);
}

static void a_list_has_a_bound(void **state)
{
    (void)state;
    static char text[(TB_REVOKED_MAX + 1) * 18 + 1];
    uint32_t line;
    for (uint32_t i = 0; i <= TB_REVOKED_MAX; i++)
        memcpy(text + i * 18, "tombolo://west/gw\n", 18);
    assert_int_equal(says(text, &line), TB_TOO_LARGE);
    text[TB_REVOKED_MAX * 18] = '\0';
    assert_int_equal(says(text, &line), TB_OK);
}

static struct tb_revoked_certificate certificate(const char *identity, const uint8_t *serial, size_t count)
{
    struct tb_revoked_certificate c = {.serial = serial, .serial_bytes = count};
    for (uint32_t i = 0; i < sizeof c.fingerprint.bytes; i++)
        c.fingerprint.bytes[i] = (uint8_t)(i % 16 * 17);
    if (identity != NULL) assert_int_equal(tb_identity_parse(identity, &c.identity), TB_OK);
    return c;
}

static bool hit(const char *list, const struct tb_revoked_certificate *c)
{
    struct tb_revoked *r = list_of(list);
    const bool has = tb_revoked_has(r, c);
    tb_revoked_free(r);
    return has;
}

static void a_certificate_is_hit_by_print_serial_or_identity(void **state)
{
    (void)state;
    static const uint8_t serial[] = {0x8f, 0x1a};
    const struct tb_revoked_certificate c = certificate("tombolo://west/gw", serial, sizeof serial);
    assert_true(hit("tombolo://east/gw\n" PRINT, &c));
    assert_true(hit("serial:00:8f:1a", &c));
    assert_true(hit("tombolo://west/gw", &c));
    assert_false(
        hit("serial:8f1a00\nserial:8f\nserial:1a\ntombolo://west/gw2\ntombolo://west/worker/gw", &c));
    assert_false(hit("sha256:10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", &c));
    assert_false(tb_revoked_has(NULL, &c));
}

static void a_line_is_added_once(void **state)
{
    struct world *w = *state;
    const char *path = world_path(w, ".", "revoked");
    char error[256] = "", text[1024];
    struct tb_revoked_entry e, other;
    assert_int_equal(tb_revoked_entry_parse("tombolo://west/gw", 17, &e), TB_OK);
    assert_int_equal(tb_revoked_entry_parse("serial:1a", 9, &other), TB_OK);
    assert_int_equal(tb_revoked_add(path, &e, "stolen", error), TB_OK);
    assert_int_equal(tb_revoked_add(path, &e, "again", error), TB_DONE_BEFORE);
    world_file_write(path, "ab", "# no newline", 12);
    assert_int_equal(tb_revoked_add(path, &other, "", error), TB_OK);
    const size_t bytes = world_file_read(path, text, sizeof text - 1);
    text[bytes] = '\0';
    assert_string_equal(text, "tombolo://west/gw  stolen\n# no newline\nserial:1a  \n");
    world_file_write(path, "ab", "nonsense\n", 9);
    assert_int_equal(tb_revoked_add(path, &e, "", error), TB_SITE_CONFIG);
    assert_non_null(strstr(error, ":4: is not"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/hostname", path), 0);
    assert_int_equal(tb_revoked_add(path, &e, "", error), TB_SITE_CONFIG);
    assert_int_equal(unlink(path), 0);
}

static void a_file_that_nobody_writes_is_not_waited_for(void **state)
{
    struct world *w = *state;
    struct tb_revoked_entry entry;
    char identity[TB_URI_BYTES_MAX], error[256], path[300];
    (void)snprintf(path, sizeof path, "%s/fifo", w->dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(tb_revoked_of_file(path, &entry, identity, error), TB_BAD_FILE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form_is_read_and_others_refuse_the_file),
        cmocka_unit_test(a_list_has_a_bound),
        cmocka_unit_test(a_certificate_is_hit_by_print_serial_or_identity),
        WORLD_TEST(a_line_is_added_once),
        WORLD_TEST(a_file_that_nobody_writes_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
