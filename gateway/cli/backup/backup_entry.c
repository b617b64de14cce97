/* backup_entry.c - see backup_entry.h. */
#include "gateway/cli/backup/backup_entry.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/digest.h"

#define MAGIC       "TBBACKUP"
#define MAGIC_CHARS (sizeof MAGIC - 1)
#define FORMAT      1u

static bool part_good(const char *part, size_t chars)
{
    if (chars == 0 || (chars == 1 && part[0] == '.')) return false;
    if (chars == 2 && part[0] == '.' && part[1] == '.') return false;
    for (size_t i = 0; i < chars; i++)
        if ((unsigned char)part[i] < ' ' || part[i] == 127) return false;
    return true;
}

bool tb_backup_path_good(const char *path)
{
    if (path[0] != '/' || strlen(path) >= TB_BACKUP_PATH_BYTES) return false;
    while (*path == '/') {
        const size_t chars = strcspn(path + 1, "/");
        if (!part_good(path + 1, chars)) return false;
        path += 1 + chars;
    }
    return true;
}

const char *tb_backup_role_name(enum tb_backup_role role)
{
    static const char *const names[] = {"end", "config", "file", "key", "store", "authority"};
    TB_ASSERT((size_t)role < sizeof names / sizeof names[0]);
    return names[role];
}

void tb_backup_head_encode(const struct tb_backup_head *head, uint8_t out[TB_BACKUP_HEAD_BYTES])
{
    struct tb_writer w;
    memset(out, 0, TB_BACKUP_HEAD_BYTES);
    tb_writer_init(&w, out, TB_BACKUP_HEAD_BYTES);
    tb_write_bytes(&w, MAGIC, MAGIC_CHARS);
    tb_write_u32(&w, FORMAT);
    tb_write_u32(&w, (uint32_t)head->lock);
    tb_write_bytes(&w, head->salt, sizeof head->salt);
    TB_ASSERT(!w.full);
}

static bool all_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0) return false;
    return true;
}

enum tb_status tb_backup_head_decode(const uint8_t bytes[TB_BACKUP_HEAD_BYTES],
                                     struct tb_backup_head *head_out)
{
    struct tb_reader r;
    struct tb_backup_head head;
    tb_reader_init(&r, bytes, TB_BACKUP_HEAD_BYTES);
    const uint8_t *magic = tb_read_span(&r, MAGIC_CHARS);
    const uint32_t format = tb_read_u32(&r), lock = tb_read_u32(&r);
    tb_read_bytes(&r, head.salt, sizeof head.salt);
    TB_ASSERT(!r.bad);
    if (memcmp(magic, MAGIC, MAGIC_CHARS) != 0 || format != FORMAT) return TB_BAD_FILE;
    if (lock > TB_BACKUP_PASSPHRASE || !all_zero(r.at, r.left)) return TB_BAD_FILE;
    head.lock = (enum tb_backup_lock)lock;
    *head_out = head;
    return TB_OK;
}

void tb_backup_entry_encode(const struct tb_backup_entry *entry, uint8_t out[TB_BACKUP_ENTRY_BYTES])
{
    struct tb_writer w;
    memset(out, 0, TB_BACKUP_ENTRY_BYTES);
    tb_writer_init(&w, out, TB_BACKUP_ENTRY_BYTES);
    tb_write_u32(&w, (uint32_t)entry->role);
    tb_write_u64(&w, entry->bytes);
    tb_write_bytes(&w, entry->path, strlen(entry->path));
    TB_ASSERT(!w.full && w.used < TB_BACKUP_ENTRY_BYTES);
}

static bool entry_good(const struct tb_backup_entry *e)
{
    if (e->role == TB_BACKUP_END) return e->path[0] == '\0' && e->bytes == TB_DIGEST_BYTES;
    if (!tb_backup_path_good(e->path) || e->bytes > INT64_MAX) return false;
    return e->role == TB_BACKUP_STORE || e->bytes <= TB_BACKUP_FILE_MAX;
}

enum tb_status tb_backup_entry_decode(const uint8_t bytes[TB_BACKUP_ENTRY_BYTES],
                                      struct tb_backup_entry *entry_out)
{
    struct tb_reader r;
    struct tb_backup_entry e;
    tb_reader_init(&r, bytes, TB_BACKUP_ENTRY_BYTES);
    const uint32_t role = tb_read_u32(&r);
    e.bytes = tb_read_u64(&r);
    tb_read_bytes(&r, e.path, sizeof e.path);
    TB_ASSERT(tb_reader_ended(&r));
    const char *end = memchr(e.path, '\0', sizeof e.path);
    if (role >= TB_BACKUP_ROLE_END || end == NULL) return TB_BAD_FILE;
    if (!all_zero((const uint8_t *)end, sizeof e.path - (size_t)(end - e.path))) return TB_BAD_FILE;
    e.role = (enum tb_backup_role)role;
    if (!entry_good(&e)) return TB_BAD_FILE;
    *entry_out = e;
    return TB_OK;
}
