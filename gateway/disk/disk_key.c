/* disk_key.c - see disk_key.h. P8: a key that others may read is none. */
#include "gateway/disk/disk_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/net/secret_memory.h"
#include "base/private_file.h"
#include "base/system_calls.h"
#include "gateway/disk/disk_io.h"

#define PATH_BYTES     4096
#define HEX_CHARS      (2u * TB_DISK_KEY_BYTES)
#define TEXT_BYTES_MAX (HEX_CHARS + 2u) /* with the end of its line */
#define PREFIX_CHARS   (sizeof TB_DISK_KEY_CREDENTIAL - 1)

/* The bytes of the file, in secret memory. */
struct key_text {
    uint8_t bytes[TEXT_BYTES_MAX + 1];
    uint64_t count;
};

static enum tb_status refuse(char error_out[TB_DISK_KEY_ERROR_BYTES], const char *text, const char *why)
{
    (void)snprintf(error_out, TB_DISK_KEY_ERROR_BYTES, "%.200s: %.280s", text, why);
    return TB_SITE_CONFIG;
}

/* ---- where it is ---- */

static bool is_credential(const char *text)
{
    return strncmp(text, TB_DISK_KEY_CREDENTIAL, PREFIX_CHARS) == 0;
}

static const char *credential_path(const char *name, char out[PATH_BYTES])
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    if (name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
        return "the name of a credential has no '/' and no '.' in front";
    if (folder == NULL || folder[0] != '/')
        return "$CREDENTIALS_DIRECTORY is not set: give the service LoadCredential= or "
               "LoadCredentialEncrypted= with this name";
    return snprintf(out, PATH_BYTES, "%s/%s", folder, name) < PATH_BYTES ? NULL : strerror(ENAMETOOLONG);
}

/* NULL: out has the path; else why not. */
static const char *path_of(const char *text, char out[PATH_BYTES])
{
    if (is_credential(text)) return credential_path(text + PREFIX_CHARS, out);
    return snprintf(out, PATH_BYTES, "%s", text) < PATH_BYTES ? NULL : strerror(ENAMETOOLONG);
}

/* ---- what it says ---- */

static int digit(uint8_t c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool hex_decode(const struct key_text *t, struct tb_disk_key *key)
{
    for (uint32_t i = 0; i < TB_DISK_KEY_BYTES; i++) {
        const int high = digit(t->bytes[2 * i]), low = digit(t->bytes[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        key->bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

/* A file of zeros, as `truncate` makes it, is a mistake. */
static bool is_uniform(const struct tb_disk_key *key)
{
    for (uint32_t i = 1; i < TB_DISK_KEY_BYTES; i++)
        if (key->bytes[i] != key->bytes[0]) return false;
    return true;
}

static bool decode(struct key_text *t, struct tb_disk_key *key)
{
    if (t->count == TB_DISK_KEY_BYTES) {
        memcpy(key->bytes, t->bytes, TB_DISK_KEY_BYTES);
        return !is_uniform(key);
    }
    if (t->count > HEX_CHARS && t->bytes[t->count - 1] == '\n') t->count--;
    if (t->count > HEX_CHARS && t->bytes[t->count - 1] == '\r') t->count--;
    return t->count == HEX_CHARS && hex_decode(t, key) && !is_uniform(key);
}

/* NULL: it was read. */
static const char *text_read(int fd, bool credential, struct key_text *t, char why[TB_PRIVATE_WHY_BYTES])
{
    struct stat st;
    if (credential ? !tb_credential_file(fd, why) : !tb_private_file(fd, why)) return why;
    if (fstat(fd, &st) != 0) return strerror(errno);
    if (st.st_size <= 0 || (uint64_t)st.st_size > TEXT_BYTES_MAX)
        return "a key is 32 bytes or 64 hex digits: openssl rand -out FILE 32";
    t->count = (uint64_t)st.st_size;
    return tb_disk_read(fd, 0, t->count, t->bytes) ? NULL : strerror(errno);
}

static enum tb_status read_into(const char *text, struct key_text *t, struct tb_disk_key *key,
                                char error_out[TB_DISK_KEY_ERROR_BYTES])
{
    char path[PATH_BYTES], alien[TB_PRIVATE_WHY_BYTES] = "";
    const char *why = path_of(text, path);
    if (why != NULL) return refuse(error_out, text, why);
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0) return refuse(error_out, text, strerror(errno));
    why = text_read(fd, is_credential(text), t, alien);
    (void)close(fd);
    if (why != NULL) return refuse(error_out, text, why);
    if (decode(t, key)) return TB_OK;
    return refuse(error_out, text, "a key is 32 random bytes or 64 hex digits: openssl rand -out FILE 32");
}

enum tb_status tb_disk_key_read(const char *text, struct tb_disk_key **key_out,
                                char error_out[TB_DISK_KEY_ERROR_BYTES])
{
    struct key_text *t = tb_secret_new(sizeof *t);
    struct tb_disk_key *key = tb_secret_new(sizeof *key);
    enum tb_status status = TB_SITE_NOMEM;
    if (t == NULL || key == NULL)
        (void)refuse(error_out, text, "no memory");
    else
        status = read_into(text, t, key, error_out);
    tb_secret_free(t, sizeof *t);
    if (status == TB_OK)
        *key_out = key;
    else
        tb_disk_key_free(key);
    return status;
}

void tb_disk_key_free(struct tb_disk_key *key)
{
    tb_secret_free(key, sizeof *key);
}
