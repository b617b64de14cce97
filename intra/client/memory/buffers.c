/* buffers.c - memory from us, which readers of this host map instead of asking the kernel to copy
 * it. */
#include "intra/client/memory/buffers.h"

#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/fault.h"
#include "intra/client/memory/memory_pieces.h"
#include "intra/client/memory/registration.h"
#include "intra/client/session/session.h"

const struct tb_buffer *tb_buffer_find(const struct tb_session *s, const void *at, uint64_t bytes)
{
    const uintptr_t first = (uintptr_t)at;
    for (const struct tb_buffer *b = s->buffers; b != NULL; b = b->next) {
        const uintptr_t base = (uintptr_t)b->memory.bytes;
        if (first >= base && bytes <= b->memory.count && first - base <= b->memory.count - bytes) return b;
    }
    return NULL;
}

enum tb_status tb_buffer_memory_open(struct tb_session *s, const char *name, uint64_t bytes,
                                     struct tb_shared_memory *memory_out)
{
    const enum tb_status status = tb_shared_memory_open(name, bytes, memory_out);
    if (status == TB_OK && s->fabric != NULL)
        tb_fabric_memory_stays(s->fabric, memory_out->bytes, memory_out->count);
    return status;
}

enum tb_status tb_buffer_memory_new(struct tb_session *s, const char *name, uint64_t bytes,
                                    struct tb_shared_memory *memory_out)
{
    TB_ASSERT_UNLOCKED(s);
    struct tb_memory_pieces all = {.memory = {.memfd = -1}};
    const enum tb_status status = tb_buffer_memory_open(s, name, bytes, &all.memory);
    if (status != TB_OK) return status;
    tb_pieces_fill(s->crew, &all);
    if (atomic_load(&all.failed)) {
        tb_buffer_memory_free(s, &all.memory);
        return TB_SITE_NOMEM;
    }
    *memory_out = all.memory;
    return TB_OK;
}

void tb_buffer_memory_free(struct tb_session *s, struct tb_shared_memory *memory)
{
    TB_ASSERT(memory->bytes == NULL || !tb_session_is_held(s)); /* pages take a while to go */
    if (s->fabric != NULL) tb_fabric_memory_goes(s->fabric, memory->bytes);
    tb_shared_memory_free(memory);
}

static int new_buffer(struct tb_session *s, uint64_t bytes, void **memory_out)
{
    if (memory_out == NULL || bytes == 0)
        return tb_fail(TB_BAD_ARGUMENT, "a buffer has at least 1 byte and a place for its address");
    struct tb_buffer *b = tb_calloc(1, sizeof *b);
    if (b == NULL) return tb_fail(TB_SITE_NOMEM, "no memory for a buffer");
    const enum tb_status status = tb_buffer_memory_new(s, "tombolo-buffer", bytes, &b->memory);
    if (status != TB_OK) {
        tb_free(b);
        return tb_fail(status, "no shared memory for a buffer of %llu bytes", (unsigned long long)bytes);
    }
    tb_session_lock(s);
    b->next = s->buffers;
    s->buffers = b;
    tb_session_unlock(s);
    *memory_out = b->memory.bytes;
    return TB_OK;
}

int tb_buffer_new(struct tb_session *session, uint64_t bytes, void **memory_out)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    status = new_buffer(session, bytes, memory_out);
    tb_session_leave(session);
    return status;
}

static bool is_registered(const struct tb_session *s, const struct tb_buffer *b)
{
    TB_ASSERT_LOCKED(s);
    for (const struct tb_registration *r = s->registrations; r != NULL; r = r->next) {
        for (uint32_t i = 0; i < r->want_count; i++)
            if (!r->suspended && tb_buffer_find(s, r->want_memory[i], r->wants[i].bytes) == b) return true;
    }
    return false;
}

static int take_buffer(struct tb_session *s, const void *memory, struct tb_buffer **buffer_out)
{
    for (struct tb_buffer **at = &s->buffers; *at != NULL; at = &(*at)->next) {
        struct tb_buffer *b = *at;
        if (b->memory.bytes != memory) continue;
        if (is_registered(s, b))
            return tb_fail(TB_BAD_STATE,
                           "a registration still uses the buffer: tb_unregister or tb_suspend it first");
        *at = b->next;
        *buffer_out = b;
        return TB_OK;
    }
    return tb_fail(TB_NOT_FOUND, "no buffer of this session begins at %p", memory);
}

int tb_buffer_free(struct tb_session *session, void *memory)
{
    int status = tb_session_enter(session);
    if (status != TB_OK) return status;
    struct tb_buffer *b = NULL;
    tb_session_lock(session);
    status = take_buffer(session, memory, &b);
    tb_session_unlock(session);
    if (b != NULL) /* without the lock: pages take a while to go */
        tb_buffer_memory_free(session, &b->memory);
    tb_free(b);
    tb_session_leave(session);
    return status;
}

void tb_buffers_free(struct tb_session *s)
{
    while (s->buffers != NULL) {
        struct tb_buffer *b = s->buffers;
        s->buffers = b->next;
        tb_buffer_memory_free(s, &b->memory);
        tb_free(b);
    }
}
