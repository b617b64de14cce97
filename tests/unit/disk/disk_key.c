/* disk.key is a file of this user alone, or a credential: 32 bytes or 64 hex digits, and nothing
 * that looks like them. P7, P8, P10.
 * Covers: gateway/disk/disk_key.c base/private_file.c */
#include <sys/stat.h>

#include "disk_world.h"
#include "gateway/disk/disk_key.h"
#include "tests/unit/check.h"

static const char hex[] = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";

static char error[TB_DISK_KEY_ERROR_BYTES];

static void put_private(struct disk_world *w, const char *name, const void *bytes, size_t count)
{
    disk_put(w, name, bytes, count);
    assert_int_equal(chmod(disk_path(w, name), 0600), 0);
}

static void is_the_key(const char *text)
{
    struct tb_disk_key *key = NULL;
    if (tb_disk_key_read(text, &key, error) != TB_OK) fail_msg("%s", error);
    for (uint32_t i = 0; i < TB_DISK_KEY_BYTES; i++)
        assert_int_equal(key->bytes[i], i);
    tb_disk_key_free(key);
}

static void is_refused(const char *text, const char *why)
{
    struct tb_disk_key *key = NULL;
    error[0] = '\0';
    CHECK_STATUS(tb_disk_key_read(text, &key, error), TB_SITE_CONFIG);
    assert_null(key);
    if (strstr(error, why) == NULL) fail_msg("%s", error);
    assert_non_null(strstr(error, text));
}

static void bytes_and_hex_digits_are_a_key(void **state)
{
    struct disk_world *w = *state;
    uint8_t raw[TB_DISK_KEY_BYTES];
    char line[70];
    for (uint32_t i = 0; i < TB_DISK_KEY_BYTES; i++)
        raw[i] = (uint8_t)i;
    put_private(w, "raw", raw, sizeof raw);
    is_the_key(disk_path(w, "raw"));
    for (int ends = 0; ends < 3; ends++) {
        (void)snprintf(line, sizeof line, "%s%s", hex, ends == 0 ? "" : ends == 1 ? "\n" : "\r\n");
        put_private(w, "hex", line, strlen(line));
        is_the_key(disk_path(w, "hex"));
    }
}

static void anything_else_is_none(void **state)
{
    struct disk_world *w = *state;
    char line[70];
    uint8_t zeros[TB_DISK_KEY_BYTES] = {0};
    for (size_t count = 0; count <= 66; count++) {
        (void)snprintf(line, sizeof line, "%s  ", hex);
        if (count == 32 || count == 64) continue;
        put_private(w, "k", line, count);
        is_refused(disk_path(w, "k"), "openssl rand");
    }
    for (size_t at = 0; at < 64; at++) { /* each digit counts */
        (void)snprintf(line, sizeof line, "%s", hex);
        line[at] = 'g';
        put_private(w, "k", line, 64);
        is_refused(disk_path(w, "k"), "openssl rand");
    }
    put_private(w, "k", zeros, sizeof zeros);
    is_refused(disk_path(w, "k"), "random");
    is_refused(disk_path(w, "none"), "No such file");
    is_refused(w->dir, "is not a regular file");
}

static void a_key_that_others_may_use_is_none(void **state)
{
    struct disk_world *w = *state;
    static const mode_t modes[] = {0604, 0640, 0602, 0660, 0644};
    put_private(w, "k", hex, 64);
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        assert_int_equal(chmod(disk_path(w, "k"), modes[i]), 0);
        is_refused(disk_path(w, "k"), "others may use it");
    }
    assert_int_equal(mkfifo(disk_path(w, "pipe"), 0600), 0);
    is_refused(disk_path(w, "pipe"), "is not a regular file"); /* and is not waited for */
}

/* systemd gives a service its credentials in a folder; the ACL that lets it read them shows as the
 * group's right. */
static void a_credential_is_a_name_in_its_folder(void **state)
{
    struct disk_world *w = *state;
    put_private(w, "disk-key", hex, 64);
    assert_int_equal(unsetenv("CREDENTIALS_DIRECTORY"), 0);
    is_refused("credential:disk-key", "LoadCredential");
    assert_int_equal(setenv("CREDENTIALS_DIRECTORY", w->dir, 1), 0);
    is_the_key("credential:disk-key");
    assert_int_equal(chmod(disk_path(w, "disk-key"), 0440), 0);
    is_the_key("credential:disk-key");
    assert_int_equal(chmod(disk_path(w, "disk-key"), 0444), 0);
    is_refused("credential:disk-key", "others may use it");
    assert_int_equal(chmod(disk_path(w, "disk-key"), 0460), 0);
    is_refused("credential:disk-key", "others may use it");
    is_refused("credential:../disk-key", "no '/'");
    is_refused("credential:..", "no '/'");
    is_refused("credential:", "no '/'");
    is_refused("credential:none", "No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bytes_and_hex_digits_are_a_key, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(anything_else_is_none, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(a_key_that_others_may_use_is_none, disk_setup, disk_teardown),
        cmocka_unit_test_setup_teardown(a_credential_is_a_name_in_its_folder, disk_setup, disk_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
