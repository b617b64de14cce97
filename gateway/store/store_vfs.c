/* store_vfs.c - see store_vfs.h.
 *
 * P8: nothing is written but units and the header. P3: SQLite's log protects the pages here as it
 * does in clear. A unit of the log that is not whole ends the log where its frame is looked at for
 * the first time, as a wrong checksum does there; later it is an error. */
#include "gateway/store/store_vfs.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"

#define PAGE_BYTES       TB_STORE_PAGE_BYTES
#define LOG_HEADER_BYTES 32
#define FRAME_BYTES      24 /* ahead of its page */
#define STEP_BYTES       (FRAME_BYTES + PAGE_BYTES)
#define UNIT_BYTES(n)    ((sqlite3_int64)(n) + (sqlite3_int64)TB_SEAL_MORE)
#define PAGE_UNIT        UNIT_BYTES(PAGE_BYTES)
#define FRAME_UNIT       UNIT_BYTES(FRAME_BYTES)
#define STEP_UNITS       (FRAME_UNIT + PAGE_UNIT)

enum kind { PAGE = 1, LOG_HEADER, FRAME, FRAME_PAGE };

struct tb_store_vfs {
    sqlite3_vfs vfs; /* first: SQLite hands its address out */
    sqlite3_vfs *below;
    const struct tb_disk_key *key;
    struct tb_seal *seal; /* of the database; NULL: none is open */
    char name[48];
};

struct file {
    sqlite3_file base; /* first */
    struct tb_store_vfs *vfs;
    bool log;
    sqlite3_file *below; /* behind this struct */
};

/* ---- which units ---- */

struct unit {
    struct tb_seal_place place;
    int bytes;           /* of plain text */
    sqlite3_int64 begin; /* as SQLite counts */
    sqlite3_int64 at;    /* on the disk */
};

static struct unit unit_at(const struct file *f, sqlite3_int64 offset)
{
    TB_ASSERT(offset >= 0);
    if (!f->log) {
        const sqlite3_int64 page = offset / PAGE_BYTES;
        return (struct unit){
            {PAGE, (uint64_t)page}, PAGE_BYTES, page * PAGE_BYTES, TB_SEAL_HEADER_BYTES + page * PAGE_UNIT};
    }
    if (offset < LOG_HEADER_BYTES) return (struct unit){{LOG_HEADER, 0}, LOG_HEADER_BYTES, 0, 0};
    const sqlite3_int64 frame = (offset - LOG_HEADER_BYTES) / STEP_BYTES;
    const sqlite3_int64 begin = LOG_HEADER_BYTES + frame * STEP_BYTES;
    const sqlite3_int64 at = UNIT_BYTES(LOG_HEADER_BYTES) + frame * STEP_UNITS;
    if (offset - begin < FRAME_BYTES) return (struct unit){{FRAME, (uint64_t)frame}, FRAME_BYTES, begin, at};
    return (struct unit){{FRAME_PAGE, (uint64_t)frame}, PAGE_BYTES, begin + FRAME_BYTES, at + FRAME_UNIT};
}

/* Whole ones alone: the rest was cut off, or is being written. */
static sqlite3_int64 inside_bytes(const struct file *f, sqlite3_int64 disk)
{
    const sqlite3_int64 ahead = f->log ? UNIT_BYTES(LOG_HEADER_BYTES) : (sqlite3_int64)TB_SEAL_HEADER_BYTES;
    if (disk < ahead) return 0;
    if (!f->log) return (disk - ahead) / PAGE_UNIT * PAGE_BYTES;
    return LOG_HEADER_BYTES + (disk - ahead) / STEP_UNITS * STEP_BYTES;
}

static sqlite3_int64 disk_bytes(const struct file *f, sqlite3_int64 inside)
{
    if (!f->log) return TB_SEAL_HEADER_BYTES + inside / PAGE_BYTES * PAGE_UNIT;
    if (inside < LOG_HEADER_BYTES) return 0;
    return UNIT_BYTES(LOG_HEADER_BYTES) + (inside - LOG_HEADER_BYTES) / STEP_BYTES * STEP_UNITS;
}

/* ---- reading and writing ---- */

static int unit_read(struct file *f, const struct unit *u, uint8_t plain[PAGE_BYTES])
{
    uint8_t unit[PAGE_UNIT];
    const int rc = f->below->pMethods->xRead(f->below, unit, (int)UNIT_BYTES(u->bytes), u->at);
    if (rc != SQLITE_OK) return rc;
    const enum tb_status status = tb_seal_get(f->vfs->seal, &u->place, unit, (uint32_t)u->bytes, plain);
    if (status == TB_OK) return SQLITE_OK;
    return status == TB_BAD_FILE ? SQLITE_IOERR_DATA : SQLITE_IOERR_NOMEM;
}

/* SQLite reads a frame together with its page where it takes in a log. */
static bool is_first_look(const struct file *f, const struct unit *u)
{
    return f->log && u->place.kind != FRAME_PAGE;
}

static int file_read(sqlite3_file *file, void *out, int count, sqlite3_int64 offset)
{
    struct file *f = (struct file *)file;
    const bool peeks = !f->log && count < PAGE_BYTES;
    uint8_t plain[PAGE_BYTES], *to = out;
    const struct unit first = unit_at(f, offset);
    while (count > 0) {
        const struct unit u = unit_at(f, offset);
        const int rc = unit_read(f, &u, plain);
        if (rc != SQLITE_OK) {
            memset(to, 0, (size_t)count);
            /* P3: SQLite looks at the first page before its log, which may have it undamaged. */
            if (rc == SQLITE_IOERR_DATA && peeks) return SQLITE_IOERR_SHORT_READ;
            return rc == SQLITE_IOERR_DATA && is_first_look(f, &first) ? SQLITE_OK : rc;
        }
        const int skip = (int)(offset - u.begin), took = u.bytes - skip < count ? u.bytes - skip : count;
        memcpy(to, plain + skip, (size_t)took);
        to += took;
        offset += took;
        count -= took;
    }
    return SQLITE_OK;
}

/* SQLite writes whole pages, and whole frames' words: a part of a unit cannot be written. */
static int file_write(sqlite3_file *file, const void *bytes, int count, sqlite3_int64 offset)
{
    struct file *f = (struct file *)file;
    const uint8_t *from = bytes;
    uint8_t unit[PAGE_UNIT];
    while (count > 0) {
        const struct unit u = unit_at(f, offset);
        if (u.begin != offset || count < u.bytes) return SQLITE_IOERR_WRITE;
        if (tb_seal_put(f->vfs->seal, &u.place, from, (uint32_t)u.bytes, unit) != TB_OK)
            return SQLITE_IOERR_NOMEM;
        const int rc = f->below->pMethods->xWrite(f->below, unit, (int)UNIT_BYTES(u.bytes), u.at);
        if (rc != SQLITE_OK) return rc;
        from += u.bytes;
        offset += u.bytes;
        count -= u.bytes;
    }
    return SQLITE_OK;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 bytes)
{
    struct file *f = (struct file *)file;
    return f->below->pMethods->xTruncate(f->below, disk_bytes(f, bytes));
}

static int file_size(sqlite3_file *file, sqlite3_int64 *bytes_out)
{
    struct file *f = (struct file *)file;
    const int rc = f->below->pMethods->xFileSize(f->below, bytes_out);
    if (rc == SQLITE_OK) *bytes_out = inside_bytes(f, *bytes_out);
    return rc;
}

/* ---- as it is below ---- */

static int file_close(sqlite3_file *file)
{
    struct file *f = (struct file *)file;
    const int rc = f->below->pMethods->xClose(f->below);
    if (!f->log) {
        tb_seal_free(f->vfs->seal);
        f->vfs->seal = NULL;
    }
    return rc;
}

static int file_sync(sqlite3_file *file, int flags)
{
    struct file *f = (struct file *)file;
    return f->below->pMethods->xSync(f->below, flags);
}

static int file_lock(sqlite3_file *file, int level)
{
    struct file *f = (struct file *)file;
    return f->below->pMethods->xLock(f->below, level);
}

static int file_unlock(sqlite3_file *file, int level)
{
    struct file *f = (struct file *)file;
    return f->below->pMethods->xUnlock(f->below, level);
}

static int file_is_reserved(sqlite3_file *file, int *reserved_out)
{
    struct file *f = (struct file *)file;
    return f->below->pMethods->xCheckReservedLock(f->below, reserved_out);
}

/* Sizes would be those of the disk. */
static int file_control(sqlite3_file *file, int op, void *argument)
{
    struct file *f = (struct file *)file;
    if (op == SQLITE_FCNTL_SIZE_HINT || op == SQLITE_FCNTL_CHUNK_SIZE || op == SQLITE_FCNTL_MMAP_SIZE)
        return SQLITE_NOTFOUND;
    return f->below->pMethods->xFileControl(f->below, op, argument);
}

static int file_sector_bytes(sqlite3_file *file)
{
    struct file *f = (struct file *)file;
    return f->below->pMethods->xSectorSize(f->below);
}

/* A write changes its own bytes alone, so SQLite pads no log to whole sectors. */
static int file_characteristics(sqlite3_file *file)
{
    (void)file;
    return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

/* Version 1: no memory that is shared with others, and none that maps the file. */
static const sqlite3_io_methods methods = {.iVersion = 1,
                                           .xClose = file_close,
                                           .xRead = file_read,
                                           .xWrite = file_write,
                                           .xTruncate = file_truncate,
                                           .xSync = file_sync,
                                           .xFileSize = file_size,
                                           .xLock = file_lock,
                                           .xUnlock = file_unlock,
                                           .xCheckReservedLock = file_is_reserved,
                                           .xFileControl = file_control,
                                           .xSectorSize = file_sector_bytes,
                                           .xDeviceCharacteristics = file_characteristics};

/* ---- opening ---- */

/* P3: the header is on the disk before the log, which nothing opens without it. */
static int header_make(struct file *f)
{
    uint8_t header[TB_SEAL_HEADER_BYTES];
    if (tb_seal_new(f->vfs->key, TB_SEAL_STORE, 0, header, &f->vfs->seal) != TB_OK) return SQLITE_NOMEM;
    const int rc = f->below->pMethods->xWrite(f->below, header, (int)sizeof header, 0);
    return rc == SQLITE_OK ? f->below->pMethods->xSync(f->below, SQLITE_SYNC_FULL) : rc;
}

static int seal_open(struct file *f, int flags)
{
    uint8_t header[TB_SEAL_HEADER_BYTES];
    sqlite3_int64 bytes = 0;
    int rc = f->below->pMethods->xFileSize(f->below, &bytes);
    if (rc != SQLITE_OK) return rc;
    if (bytes == 0) return (flags & SQLITE_OPEN_READWRITE) != 0 ? header_make(f) : SQLITE_CANTOPEN;
    rc = f->below->pMethods->xRead(f->below, header, (int)sizeof header, 0);
    if (rc != SQLITE_OK) return rc == SQLITE_IOERR_SHORT_READ ? SQLITE_NOTADB : rc;
    const enum tb_status status = tb_seal_open(f->vfs->key, TB_SEAL_STORE, header, &f->vfs->seal);
    return status == TB_OK ? SQLITE_OK : status == TB_NOT_FOUND ? SQLITE_NOTADB : SQLITE_NOMEM;
}

static int vfs_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags, int *flags_out)
{
    struct tb_store_vfs *v = (struct tb_store_vfs *)vfs;
    struct file *f = (struct file *)file;
    memset(f, 0, sizeof *f);
    f->vfs = v;
    f->log = (flags & SQLITE_OPEN_WAL) != 0;
    f->below = (sqlite3_file *)(f + 1);
    const bool is_ours = f->log ? v->seal != NULL : (flags & SQLITE_OPEN_MAIN_DB) != 0 && v->seal == NULL;
    if (!is_ours) return SQLITE_CANTOPEN; /* a journal, a temporary file, a second database */
    int rc = v->below->xOpen(v->below, path, f->below, flags, flags_out);
    if (rc != SQLITE_OK) return rc;
    if (!f->log) rc = seal_open(f, flags);
    if (rc == SQLITE_OK) {
        f->base.pMethods = &methods;
        return SQLITE_OK;
    }
    TB_ASSERT(!f->log); /* a log that is open has a seal already */
    tb_seal_free(v->seal);
    v->seal = NULL;
    (void)f->below->pMethods->xClose(f->below);
    return rc;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync_folder)
{
    sqlite3_vfs *below = ((struct tb_store_vfs *)vfs)->below;
    return below->xDelete(below, path, sync_folder);
}

/* P8: a journal beside the store is a stranger's, and would be played back into it. */
static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *is_out)
{
    static const char end[] = "-journal";
    sqlite3_vfs *below = ((struct tb_store_vfs *)vfs)->below;
    const size_t length = strlen(path), tail = sizeof end - 1;
    *is_out = 0;
    if (length > tail && strcmp(path + length - tail, end) == 0) return SQLITE_OK;
    return below->xAccess(below, path, flags, is_out);
}

static int vfs_full_path(sqlite3_vfs *vfs, const char *path, int cap, char *out)
{
    sqlite3_vfs *below = ((struct tb_store_vfs *)vfs)->below;
    return below->xFullPathname(below, path, cap, out);
}

static int vfs_random(sqlite3_vfs *vfs, int count, char *out)
{
    sqlite3_vfs *below = ((struct tb_store_vfs *)vfs)->below;
    return below->xRandomness(below, count, out);
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    sqlite3_vfs *below = ((struct tb_store_vfs *)vfs)->below;
    return below->xSleep(below, us);
}

static int vfs_time(sqlite3_vfs *vfs, double *days_out)
{
    sqlite3_vfs *below = ((struct tb_store_vfs *)vfs)->below;
    return below->xCurrentTime(below, days_out);
}

static int vfs_error(sqlite3_vfs *vfs, int cap, char *out)
{
    sqlite3_vfs *below = ((struct tb_store_vfs *)vfs)->below;
    return below->xGetLastError != NULL ? below->xGetLastError(below, cap, out) : 0;
}

enum tb_status tb_store_vfs_open(const struct tb_disk_key *key, const char *below,
                                 struct tb_store_vfs **vfs_out)
{
    sqlite3_vfs *own = sqlite3_vfs_find(below);
    struct tb_store_vfs *v = tb_calloc(1, sizeof *v);
    if (v == NULL || own == NULL) {
        tb_free(v);
        return TB_SITE_NOMEM;
    }
    v->below = own;
    v->key = key;
    (void)snprintf(v->name, sizeof v->name, "tombolo-%p", (void *)v);
    v->vfs = (sqlite3_vfs){.iVersion = 1,
                           .szOsFile = (int)sizeof(struct file) + own->szOsFile,
                           .mxPathname = own->mxPathname,
                           .zName = v->name,
                           .xOpen = vfs_open,
                           .xDelete = vfs_delete,
                           .xAccess = vfs_access,
                           .xFullPathname = vfs_full_path,
                           .xRandomness = vfs_random,
                           .xSleep = vfs_sleep,
                           .xCurrentTime = vfs_time,
                           .xGetLastError = vfs_error};
    if (sqlite3_vfs_register(&v->vfs, 0) != SQLITE_OK) {
        tb_free(v);
        return TB_SITE_NOMEM;
    }
    *vfs_out = v;
    return TB_OK;
}

void tb_store_vfs_close(struct tb_store_vfs *v)
{
    if (v == NULL) return;
    TB_ASSERT(v->seal == NULL);
    (void)sqlite3_vfs_unregister(&v->vfs);
    tb_free(v);
}

const char *tb_store_vfs_name(const struct tb_store_vfs *v)
{
    return v->name;
}
