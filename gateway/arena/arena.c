/* arena.c - an arena as a whole: opened, looked at before a start, closed, measured. Its regions
 * are in arena_regions.c, space for a shard in arena_reserve.c, the file in arena_file.c. */
#include "gateway/arena/arena.h"

#include <inttypes.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/log.h"
#include "gateway/arena/arena_inner.h"

static enum tb_status tables_alloc(struct tb_arena *arena)
{
    const uint32_t count = arena->file.header.record_count;
    arena->extents_memory = tb_calloc((size_t)count + 1, sizeof *arena->extents_memory);
    arena->slots = tb_calloc(count, sizeof *arena->slots);
    return arena->extents_memory != NULL && arena->slots != NULL ? TB_OK : TB_SITE_NOMEM;
}

static void log_opened(const struct tb_arena *arena, const char *path, const char *event,
                       enum tb_log_level level)
{
    char life[TB_HEX_CHARS];
    struct tb_log_line line;
    tb_id_format(&arena->file.header.life, life);
    tb_log_begin(&line, level, event);
    tb_log_str(&line, "path", path);
    tb_log_u64(&line, "bytes", arena->file.bytes);
    tb_log_u64(&line, "regions", arena->regions);
    tb_log_u64(&line, "free_bytes", arena->extents.free_bytes);
    tb_log_str(&line, "life", life);
    tb_log_end(&line);
}

static bool is_blank(const struct arena_file *f)
{
    for (size_t i = 0; i < TB_EXTENT_GRAIN; i++)
        if (f->map[i] != 0) return false;
    return true;
}

/* An empty arena where there was none, or where the header can not be believed. */
static void begin_anew(struct tb_arena *arena, const char *path)
{
    const bool blank = arena->file.fresh || is_blank(&arena->file);
    tb_arena_file_format(&arena->file);
    if (!blank) log_opened(arena, path, "arena.header_damaged", TB_LOG_ERROR);
}

static enum tb_status settle(struct tb_arena *arena, const char *path, char error_out[TB_ARENA_ERROR_BYTES])
{
    struct arena_file *f = &arena->file;
    enum tb_status status = tb_arena_file_load(f, path, error_out);
    if (status == TB_SITE_CONFIG) return status;
    if (status != TB_OK) begin_anew(arena, path);
    if (tables_alloc(arena) != TB_OK) {
        tb_arena_say(error_out, "arena %s: no heap for its tables", path);
        return TB_SITE_NOMEM;
    }
    tb_extents_init(&arena->extents, arena->extents_memory, f->header.record_count + 1,
                    tb_arena_file_room(f));
    status = tb_arena_recover(arena, error_out);
    if (status != TB_OK) return status;
    if (f->header.bytes != f->bytes) {
        /* before the trim: a header that promises more than there is counts as damaged */
        f->header.bytes = f->bytes;
        tb_arena_file_save(f);
    }
    return tb_arena_file_trim(f, error_out);
}

enum tb_status tb_arena_check(const struct tb_arena_options *options, struct tb_arena_look *look_out,
                              char error_out[TB_ARENA_ERROR_BYTES])
{
    struct arena_file f;
    enum tb_status status = tb_arena_file_look(&f, options, look_out, error_out);
    if (status == TB_OK && f.records != NULL) {
        status = tb_arena_recover_check(&f, error_out);
        look_out->too_small = status != TB_OK;
    }
    tb_arena_file_look_end(&f);
    return status;
}

enum tb_status tb_arena_open(const struct tb_arena_options *options, struct tb_arena **arena_out,
                             char error_out[TB_ARENA_ERROR_BYTES])
{
    TB_ASSERT(options->path != NULL);
    error_out[0] = '\0';
    struct tb_arena *arena = tb_calloc(1, sizeof *arena);
    if (arena == NULL) {
        tb_arena_say(error_out, "arena %s: no heap", options->path);
        return TB_SITE_NOMEM;
    }
    arena->file.fd = -1;
    pthread_mutex_init(&arena->mutex, NULL);
    pthread_cond_init(&arena->verified, NULL);
    enum tb_status status = TB_SITE_NOMEM;
    arena->layouts = tb_layouts_new();
    if (arena->layouts == NULL) {
        tb_arena_say(error_out, "arena %s: no heap", options->path);
        goto undo_arena;
    }
    status = tb_arena_file_open(&arena->file, options, error_out);
    if (status != TB_OK) goto undo_arena;
    status = settle(arena, options->path, error_out);
    if (status != TB_OK) goto undo_arena;
    log_opened(arena, options->path, "arena.open", TB_LOG_INFO);
    *arena_out = arena;
    return TB_OK;

undo_arena:
    tb_arena_close(arena);
    return status;
}

void tb_arena_close(struct tb_arena *arena)
{
    if (arena == NULL) return;
    tb_arena_regions_forget(arena);
    tb_arena_file_close(&arena->file);
    tb_layouts_free(arena->layouts);
    tb_free(arena->extents_memory);
    tb_free(arena->slots);
    pthread_cond_destroy(&arena->verified);
    pthread_mutex_destroy(&arena->mutex);
    tb_free(arena);
}

void *tb_arena_memory(struct tb_arena *arena, uint64_t *bytes_out)
{
    *bytes_out = arena->file.bytes;
    return arena->file.map;
}

struct tb_layouts *tb_arena_layouts(struct tb_arena *arena)
{
    return arena->layouts;
}

void tb_arena_budget(struct tb_arena *arena, struct tb_arena_budget *budget_out)
{
    pthread_mutex_lock(&arena->mutex);
    memset(budget_out, 0, sizeof *budget_out); /* tests compare it whole */
    budget_out->total_bytes = arena->extents.all.bytes;
    budget_out->used_bytes = arena->extents.all.bytes - arena->extents.free_bytes;
    budget_out->free_bytes = arena->extents.free_bytes;
    budget_out->largest_free_bytes = tb_extents_largest(&arena->extents);
    budget_out->regions = arena->regions;
    budget_out->slots = arena->file.header.record_count;
    budget_out->slots_free = arena->slots_free;
    pthread_mutex_unlock(&arena->mutex);
}
