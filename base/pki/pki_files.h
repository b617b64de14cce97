/* pki_files.h - PEM files of keys and certificates. Inside base/pki. Threads: one. */
#ifndef TB_BASE_PKI_FILES_H
#define TB_BASE_PKI_FILES_H

#include <openssl/x509.h>
#include <stdbool.h>

#include "tombolo/status.h"

#define TB_PKI_PATH_BYTES 4096

/* Writes the sentence, and returns `status`. */
enum tb_status tb_pki_say(enum tb_status status, char error_out[256], const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* OpenSSL's own reason: TB_SITE_IO. Where a passphrase lacks, that was said: TB_BAD_ARGUMENT. */
enum tb_status tb_pki_say_openssl(char error_out[256], const char *what);
/* TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_pki_begin(char error_out[256]);

/* DIR/NAME; TB_BAD_ARGUMENT: too long. */
TB_MUST_USE enum tb_status tb_pki_path(char out[TB_PKI_PATH_BYTES], const char *dir, const char *name,
                                       char error_out[256]);
bool tb_pki_missing(const char *path); /* nothing is there, and no other reason hides it */

/* Files are read whole, at most 1 MiB. TB_NOT_FOUND: the path leads nowhere; TB_BAD_FILE: it holds
 * something else; TB_SITE_IO, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_pki_read_certs(const char *path, STACK_OF(X509) * *certs_out,
                                             char error_out[256]);
/* The first key, or the one that fits the certificate (`fits` not NULL). Asks for its passphrase
 * where it has one (pki.h). TB_BAD_ARGUMENT: there is none, or it does not fit. */
TB_MUST_USE enum tb_status tb_pki_read_key(const char *path, X509 *fits, EVP_PKEY **key_out,
                                           char error_out[256]);
TB_MUST_USE enum tb_status tb_pki_read_request(const char *path, X509_REQ **request_out, char error_out[256]);

/* Text to be written; wiped when it goes. NULL: no memory. */
BIO *tb_pki_text(void);
bool tb_pki_put_key(BIO *text, EVP_PKEY *key);
/* Keys that are written from now on have a passphrase if one was asked for a key that was read. */
void tb_pki_secret_keeps(void);
/* Under the passphrase, if the secret encrypts (pki.h); else in clear. */
bool tb_pki_put_secret_key(BIO *text, EVP_PKEY *key, char error_out[256]);
bool tb_pki_put_certs(BIO *text, const STACK_OF(X509) * certs);

/* Never replaces a file: TB_CONFLICT. */
TB_MUST_USE enum tb_status tb_pki_write_new(const char *path, mode_t mode, BIO *text, char error_out[256]);
/* In the place of the file, at once, with its owner and mode; `mode` where there is none. */
TB_MUST_USE enum tb_status tb_pki_replace(const char *path, mode_t mode, BIO *text, char error_out[256]);

#endif
