/* rollover.c - a second root takes the place of the first, and both are trusted meanwhile.
 *
 * Files say how far it is: ca-next.key is there from begin to turn, ca-old.key from turn to end.
 * A step that was killed is called again. */
#include <dirent.h>
#include <errno.h>
#include <openssl/err.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/pki/authority.h"
#include "base/pki/certificate.h"
#include "base/pki/pki.h"
#include "base/pki/pki_files.h"
#include "base/system_calls.h"

struct rollover {
    const char *dir;
    char cert_path[TB_PKI_PATH_BYTES], key_path[TB_PKI_PATH_BYTES];
    char next_path[TB_PKI_PATH_BYTES], old_path[TB_PKI_PATH_BYTES];
    struct tb_pki_authority a;
};

/* After this tb_pki_authority_free is due, on failure too. */
static enum tb_status open_folder(struct rollover *r, const char *dir, char error_out[256])
{
    *r = (struct rollover){.dir = dir};
    const enum tb_status status = tb_pki_begin(error_out);
    if (status != TB_OK) return status;
    if (tb_pki_path(r->cert_path, dir, "ca.crt", error_out) != TB_OK ||
        tb_pki_path(r->key_path, dir, "ca.key", error_out) != TB_OK ||
        tb_pki_path(r->next_path, dir, "ca-next.key", error_out) != TB_OK ||
        tb_pki_path(r->old_path, dir, "ca-old.key", error_out) != TB_OK)
        return TB_BAD_ARGUMENT;
    const enum tb_status read = tb_pki_authority_read(dir, &r->a, error_out);
    if (read != TB_OK || !r->a.issuing) return read;
    return tb_pki_say(TB_BAD_ARGUMENT, error_out,
                      "%.120s: is an issuing authority: roll its root over, and make another under it", dir);
}

static bool same_site(X509 *x, X509 *y)
{
    struct tb_name sites[2];
    char unused[256];
    return tb_pki_site_of("", x, &sites[0], unused) == TB_OK &&
           tb_pki_site_of("", y, &sites[1], unused) == TB_OK && tb_name_equal(&sites[0], &sites[1]);
}

/* The site's root that does not sign; NULL: there is one alone. A platform's CA may stand beside
 * them (tls.spiffe). */
static X509 *other(const struct tb_pki_authority *a)
{
    for (int i = 0; i < sk_X509_num(a->all); i++)
        if (sk_X509_value(a->all, i) != a->cert && same_site(sk_X509_value(a->all, i), a->cert))
            return sk_X509_value(a->all, i);
    return NULL;
}

static enum tb_status replace_certs(const char *path, const STACK_OF(X509) * certs, char error_out[256])
{
    BIO *text = tb_pki_text();
    enum tb_status status = TB_OK;
    if (text == NULL || !tb_pki_put_certs(text, certs))
        status = tb_pki_say_openssl(error_out, path);
    else
        status = tb_pki_replace(path, 0644, text, error_out);
    BIO_free(text);
    return status;
}

/* ---- begin ---- */

static enum tb_status write_next_key(const struct rollover *r, EVP_PKEY *key, char error_out[256])
{
    tb_pki_secret_keeps(); /* after a key that has a passphrase comes one that has one */
    BIO *text = tb_pki_text();
    enum tb_status status = TB_OK;
    if (text == NULL || !tb_pki_put_secret_key(text, key, error_out))
        status = tb_pki_say_openssl(error_out, r->next_path);
    else
        status = tb_pki_replace(r->next_path, 0600, text, error_out);
    BIO_free(text);
    return status;
}

static enum tb_status add_root(struct rollover *r, unsigned days, char error_out[256])
{
    const struct tb_pki_span span = {-TB_PKI_CA_BEFORE_S, (int64_t)days * TB_PKI_DAY_S};
    struct tb_name site;
    enum tb_status status = tb_pki_site_of(r->dir, r->a.cert, &site, error_out);
    if (status != TB_OK) return status;
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    const bool good = key != NULL && cert != NULL &&
                      tb_pki_fill_ca(cert, key, site.text, TB_PKI_ROOT_PATHLEN, span, NULL, NULL) &&
                      sk_X509_push(r->a.all, cert) > 0;
    if (!good) {
        X509_free(cert);
        status = tb_pki_say_openssl(error_out, "making the second root");
    }
    /* The key first: a certificate that is trusted by others and has no key here is of no use. */
    if (good) status = write_next_key(r, key, error_out);
    if (status == TB_OK) status = replace_certs(r->cert_path, r->a.all, error_out);
    EVP_PKEY_free(key);
    return status;
}

static enum tb_status may_begin(const struct rollover *r, const char *dir, unsigned days, char error_out[256])
{
    if (days == 0 || days > TB_PKI_DAYS_MAX)
        return tb_pki_say(TB_BAD_ARGUMENT, error_out, "days must be between 1 and %d", TB_PKI_DAYS_MAX);
    if (other(&r->a) != NULL)
        return tb_pki_say(TB_CONFLICT, error_out, "%.120s: ca.crt has two roots already: end that first",
                          dir);
    return TB_OK;
}

enum tb_status tb_pki_rollover_begin(const char *dir, unsigned days, char error_out[256])
{
    struct rollover r;
    enum tb_status status = open_folder(&r, dir, error_out);
    if (status == TB_OK) status = may_begin(&r, dir, days, error_out);
    if (status == TB_OK) status = add_root(&r, days, error_out);
    tb_pki_authority_free(&r.a);
    ERR_clear_error();
    return status;
}

/* ---- turn ---- */

static bool same_file(const char *x, const char *y)
{
    struct stat files[2];
    return stat(x, &files[0]) == 0 && stat(y, &files[1]) == 0 && files[0].st_dev == files[1].st_dev &&
           files[0].st_ino == files[1].st_ino;
}

/* ca-old.key is the first key under another name until ca.key is the second one: killed between,
 * the folder still signs. */
static enum tb_status turn(const struct rollover *r, char error_out[256])
{
    EVP_PKEY *next = NULL;
    const enum tb_status status = tb_pki_read_key(r->next_path, NULL, &next, error_out);
    if (status != TB_OK) return status;
    const bool fits = tb_pki_of_key(r->a.all, next) != NULL;
    EVP_PKEY_free(next);
    if (!fits)
        return tb_pki_say(TB_BAD_FILE, error_out, "%.120s: has no certificate in ca.crt", r->next_path);
    if (link(r->key_path, r->old_path) != 0 && (errno != EEXIST || !same_file(r->key_path, r->old_path)))
        return tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", r->old_path, strerror(errno));
    if (tb_sys_rename(r->next_path, r->key_path) == 0) return TB_OK;
    return tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", r->key_path, strerror(errno));
}

enum tb_status tb_pki_rollover_turn(const char *dir, char error_out[256])
{
    struct rollover r;
    enum tb_status status = open_folder(&r, dir, error_out);
    if (status == TB_OK && tb_pki_missing(r.next_path))
        status = tb_pki_say(TB_CONFLICT, error_out, "%.120s: no second root waits there: begin first", dir);
    if (status == TB_OK) status = turn(&r, error_out);
    tb_pki_authority_free(&r.a);
    ERR_clear_error();
    return status;
}

/* ---- end ---- */

/* Of a file in the folder: the first root signed one of its certificates, be it an issuing one. */
static bool is_of(const char *dir, const char *name, X509 *old)
{
    char path[TB_PKI_PATH_BYTES], unused[256] = "";
    const size_t bytes = strlen(name);
    if (bytes < 5 || strcmp(name + bytes - 4, ".crt") != 0 || strcmp(name, "ca.crt") == 0) return false;
    if (tb_pki_path(path, dir, name, unused) != TB_OK) return false;
    STACK_OF(X509) *certs = NULL;
    if (tb_pki_read_certs(path, &certs, unused) != TB_OK) return false;
    bool is = false;
    for (int i = 0; i < sk_X509_num(certs); i++)
        is |= tb_pki_signed_by(sk_X509_value(certs, i), old);
    sk_X509_pop_free(certs, X509_free);
    return is;
}

static enum tb_status all_renewed(const struct rollover *r, X509 *old, char error_out[256])
{
    enum tb_status status = TB_OK;
    DIR *folder = opendir(r->dir);
    if (folder == NULL) return tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", r->dir, strerror(errno));
    for (struct dirent *e; status == TB_OK && (e = readdir(folder)) != NULL;)
        if (is_of(r->dir, e->d_name, old))
            status =
                tb_pki_say(TB_CONFLICT, error_out,
                           "%.80s/%.80s: the first root signed it: `tombolo pki renew` it, or take it away",
                           r->dir, e->d_name);
    closedir(folder);
    return status;
}

static enum tb_status drop_first(struct rollover *r, const char *dir, X509 *first, char error_out[256])
{
    if (first == NULL || !tb_pki_missing(r->next_path))
        return tb_pki_say(TB_CONFLICT, error_out, "%.120s: %s", dir,
                          first == NULL ? "no roots roll over there"
                                        : "the first root still signs: turn first");
    const enum tb_status status = all_renewed(r, first, error_out);
    if (status != TB_OK) return status;
    X509_free(sk_X509_delete_ptr(r->a.all, first));
    TB_ASSERT(sk_X509_num(r->a.all) > 0);
    return replace_certs(r->cert_path, r->a.all, error_out);
}

enum tb_status tb_pki_rollover_end(const char *dir, char error_out[256])
{
    struct rollover r;
    enum tb_status status = open_folder(&r, dir, error_out);
    X509 *old = status == TB_OK ? other(&r.a) : NULL;
    /* Killed before its last step, an end is called again. */
    const bool ended =
        status == TB_OK && old == NULL && tb_pki_missing(r.next_path) && !tb_pki_missing(r.old_path);
    if (status == TB_OK && !ended) status = drop_first(&r, dir, old, error_out);
    if (status == TB_OK && unlink(r.old_path) != 0 && errno != ENOENT)
        status = tb_pki_say(TB_SITE_IO, error_out, "%.150s: %s", r.old_path, strerror(errno));
    tb_pki_authority_free(&r.a);
    ERR_clear_error();
    return status;
}
