/* backup_lock.c - see backup_lock.h. */
#include "gateway/cli/backup/backup_lock.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/net/secret_memory.h"
#include "gateway/cli/options.h"
#include "gateway/cli/passphrase.h"

/* scrypt (RFC 7914): 32 MiB and about a tenth of a second for each guess. A part of the format. */
#define COST        (UINT64_C(1) << 15)
#define BLOCKS      8u
#define LANES       1u
#define MEMORY_MOST (UINT64_C(64) << 20)

enum tb_backup_lock tb_backup_lock_given(const struct tb_cli_call *call)
{
    if (tb_cli_text(call, "key-file") != NULL) return TB_BACKUP_KEY_FILE;
    const bool asks = tb_cli_has(call, "passphrase") && tb_cli_given(call, "passphrase");
    return asks || tb_cli_text(call, "passphrase-file") != NULL ? TB_BACKUP_PASSPHRASE : TB_BACKUP_CLEAR;
}

static enum tb_status of_passphrase(const struct tb_cli_call *call, const struct tb_backup_head *head,
                                    bool is_new, struct tb_disk_key **key_out,
                                    char error_out[TB_DISK_KEY_ERROR_BYTES])
{
    char text[1024], why[256] = "";
    const int count = tb_cli_passphrase_ask(call, "the backup", is_new, text, sizeof text, why);
    if (count < 0) {
        (void)snprintf(error_out, TB_DISK_KEY_ERROR_BYTES, "%s", why);
        return TB_BAD_ARGUMENT;
    }
    struct tb_disk_key *key = tb_secret_new(sizeof *key);
    const bool good =
        key != NULL && EVP_PBE_scrypt(text, (size_t)count, head->salt, sizeof head->salt, COST, BLOCKS, LANES,
                                      MEMORY_MOST, key->bytes, sizeof key->bytes) == 1;
    OPENSSL_cleanse(text, sizeof text);
    if (good) {
        *key_out = key;
        return TB_OK;
    }
    tb_disk_key_free(key);
    (void)snprintf(error_out, TB_DISK_KEY_ERROR_BYTES, "no memory for a key of a passphrase");
    return TB_SITE_NOMEM;
}

enum tb_status tb_backup_key(const struct tb_cli_call *call, const struct tb_backup_head *head, bool is_new,
                             struct tb_disk_key **key_out, char error_out[TB_DISK_KEY_ERROR_BYTES])
{
    *key_out = NULL;
    if (head->lock == TB_BACKUP_CLEAR) return TB_OK;
    if (head->lock == TB_BACKUP_PASSPHRASE) return of_passphrase(call, head, is_new, key_out, error_out);
    TB_ASSERT(tb_cli_text(call, "key-file") != NULL);
    const enum tb_status status = tb_disk_key_read(tb_cli_text(call, "key-file"), key_out, error_out);
    return status == TB_SITE_CONFIG ? TB_BAD_ARGUMENT : status;
}
