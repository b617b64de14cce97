/* own_certificate.c - the certificate of a worker is read again before each connection; files that
 * do not serve leave the one that was read before (P9, P10).
 *
 * Covers: intra/client/session/own_certificate.c */
#include "intra/client/session/own_certificate.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/pki/pki.h"
#include "tests/unit/check.h"
#include "unit/caught_log.h"
#include "unit/scratch.h"

struct files {
    char folder[160];
    char ca[192], cert[192], key[192];
    struct tb_session_options options;
};

static void issue(const struct files *f, const char *stem)
{
    char error[256] = "";
    struct tb_identity identity;
    CHECK_OK(tb_identity_parse("tombolo://east/worker/w", &identity));
    if (tb_pki_issue(f->folder, stem, &identity, 0, 3600, error) != TB_OK) fail_msg("%s", error);
}

static void files_make(struct files *f)
{
    char error[256] = "";
    memset(f, 0, sizeof *f);
    assert_true(scratch_folder(f->folder, sizeof f->folder, "pki"));
    CHECK_OK(tb_pki_init(f->folder, "east", 1, error));
    issue(f, "worker");
    snprintf(f->ca, sizeof f->ca, "%s/ca.crt", f->folder);
    snprintf(f->cert, sizeof f->cert, "%s/worker.crt", f->folder);
    snprintf(f->key, sizeof f->key, "%s/worker.key", f->folder);
    f->options = (struct tb_session_options){.ca = f->ca, .cert = f->cert, .key = f->key};
}

static void cut_in_half(const char *path)
{
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long bytes = ftell(file);
    (void)fclose(file);
    assert_int_equal(truncate(path, bytes / 2), 0);
}

static void files_are_read_again_before_the_second_connection(void **state)
{
    (void)state;
    struct files f;
    struct tb_own_certificate own = {.tls = NULL};
    files_make(&f);
    CHECK_OK(tb_own_certificate_open(&own, &f.options));
    struct tb_tls *const first = own.tls;
    tb_own_certificate_again(&own); /* it was read a moment ago */
    assert_ptr_equal(own.tls, first);
    assert_int_equal(unlink(f.cert), 0);
    assert_int_equal(unlink(f.key), 0);
    issue(&f, "worker");
    tb_own_certificate_again(&own);
    assert_non_null(own.tls);
    assert_string_equal(own.refused, "");
    tb_own_certificate_close(&own);
    assert_null(own.tls);
    assert_true(scratch_remove(f.folder));
}

/* Told once, and again when the files have another fault. */
static void half_a_certificate_leaves_the_one_before(void **state)
{
    (void)state;
    struct files f;
    struct tb_own_certificate own = {.tls = NULL};
    files_make(&f);
    CHECK_OK(tb_own_certificate_open(&own, &f.options));
    tb_own_certificate_again(&own);
    struct tb_tls *const before = own.tls;
    cut_in_half(f.cert);
    const int log = caught_log_new();
    tb_log_set(TB_LOG_WARN, log);
    tb_own_certificate_again(&own);
    tb_own_certificate_again(&own);
    tb_log_set(TB_LOG_ERROR, STDERR_FILENO);
    char told[2048] = "";
    assert_true(pread(log, told, sizeof told - 1, 0) > 0);
    close(log);
    const char *const line = strstr(told, "session.tls_refused");
    assert_non_null(line);
    assert_null(strstr(line + 1, "session.tls_refused"));
    assert_ptr_equal(own.tls, before);
    assert_string_not_equal(own.refused, "");
    tb_own_certificate_close(&own);
    assert_true(scratch_remove(f.folder));
}

static void files_that_are_not_there_open_no_session(void **state)
{
    (void)state;
    struct files f;
    struct tb_own_certificate own = {.tls = NULL};
    files_make(&f);
    assert_int_equal(unlink(f.cert), 0);
    assert_true(tb_own_certificate_open(&own, &f.options) < TB_OK);
    assert_null(own.tls);
    tb_own_certificate_close(&own);
    assert_true(scratch_remove(f.folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_read_again_before_the_second_connection),
        cmocka_unit_test(half_a_certificate_leaves_the_one_before),
        cmocka_unit_test(files_that_are_not_there_open_no_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
