#include "base/layout/shelf.h"

#include <string.h>

#include "base/assert.h"
#include "base/digest.h"

enum { STATE, BASE, BASE_END = BASE + 1, COUNT, ROOM_BYTES, ROOM_USED };

static uint64_t *bits_of(const struct tb_shelf *shelf)
{
    return shelf->head + TB_SHELF_HEAD_WORDS;
}

uint64_t tb_shelf_entry_offset(uint32_t count, uint32_t line)
{
    return (TB_SHELF_HEAD_WORDS + TB_BITMAP_WORDS(count) + (uint64_t)line * TB_SHELF_ENTRY_WORDS) *
           sizeof(uint64_t);
}

uint64_t tb_shelf_room_offset(uint32_t count)
{
    return tb_shelf_entry_offset(count, count);
}

uint64_t tb_shelf_bytes(uint32_t count, uint64_t room_bytes)
{
    return tb_shelf_room_offset(count) + (room_bytes + 7) / 8 * 8;
}

uint64_t tb_shelf_zero_bytes(uint32_t count)
{
    return tb_shelf_entry_offset(count, 0);
}

void tb_shelf_init(struct tb_shelf *shelf_out, void *memory, uint32_t count, uint64_t room_bytes)
{
    TB_ASSERT(count <= TB_SHELF_COUNT_MAX);
    TB_ASSERT((uintptr_t)memory % sizeof(uint64_t) == 0);
    *shelf_out = (struct tb_shelf){.head = memory,
                                   .room = (uint8_t *)memory + tb_shelf_room_offset(count),
                                   .room_bytes = room_bytes,
                                   .count = count};
    shelf_out->head[COUNT] = count;
    shelf_out->head[ROOM_BYTES] = room_bytes;
}

static uint64_t state_of(const struct tb_shelf *shelf)
{
    return __atomic_load_n(&shelf->head[STATE], __ATOMIC_ACQUIRE);
}

static void set_state(struct tb_shelf *shelf, enum tb_shelf_state state)
{
    __atomic_store_n(&shelf->head[STATE], (uint64_t)state, __ATOMIC_RELEASE);
}

void tb_shelf_open(struct tb_shelf *shelf, const struct tb_id *base)
{
    if (state_of(shelf) != TB_SHELF_UNKNOWN) return;
    uint64_t words[2];
    memcpy(words, base->bytes, sizeof words);
    for (uint32_t i = 0; i < 2; i++)
        __atomic_store_n(&shelf->head[BASE + i], words[i], __ATOMIC_RELAXED);
    set_state(shelf, TB_SHELF_OPEN);
}

void tb_shelf_close(struct tb_shelf *shelf)
{
    set_state(shelf, TB_SHELF_CLOSED);
}

bool tb_shelf_is_of(const struct tb_shelf *shelf, const struct tb_id *base)
{
    return !tb_id_is_zero(base) && memcmp(&shelf->head[BASE], base->bytes, sizeof base->bytes) == 0;
}

bool tb_shelf_has(const struct tb_shelf *shelf, uint32_t line)
{
    TB_ASSERT(line < shelf->count);
    TB_ASSERT(line < shelf->count);
    return tb_bitmap_test(bits_of(shelf), line);
}

/* NULL: it does not fit any more. Room is never given back. */
static uint8_t *take_room(struct tb_shelf *shelf, uint64_t bytes)
{
    uint64_t used = __atomic_load_n(&shelf->head[ROOM_USED], __ATOMIC_RELAXED);
    do {
        if (bytes > shelf->room_bytes - used) return NULL;
    } while (!__atomic_compare_exchange_n(&shelf->head[ROOM_USED], &used, used + bytes, true,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return shelf->room + used;
}

static uint64_t form_word(struct tb_codec_form form)
{
    return ((uint64_t)form.id & 0xff) << 32 | (uint64_t)form.on_base << 40;
}

static uint64_t *entry_of(const struct tb_shelf *shelf, uint32_t line)
{
    return shelf->head + tb_shelf_entry_offset(shelf->count, line) / sizeof(uint64_t);
}

void tb_shelf_put(struct tb_shelf *shelf, uint32_t line, const struct tb_codec_coded *coded)
{
    if (tb_shelf_has(shelf, line)) return;
    uint64_t *entry = entry_of(shelf, line);
    uint8_t *to = coded != NULL && coded->count > 0 ? take_room(shelf, TB_DIGEST_BYTES + coded->count) : NULL;
    uint64_t words[TB_SHELF_ENTRY_WORDS] = {0};
    if (to != NULL) {
        const struct tb_digest digest = tb_digest_of(coded->bytes, coded->count);
        TB_ASSERT(to >= shelf->room &&
                  to + TB_DIGEST_BYTES + coded->count <= shelf->room + shelf->room_bytes);
        memcpy(to, digest.bytes, TB_DIGEST_BYTES);
        memcpy(to + TB_DIGEST_BYTES, coded->bytes, coded->count);
        words[0] = (uint64_t)coded->count | form_word(coded->form);
        words[1] = (uint64_t)(to + TB_DIGEST_BYTES - shelf->room);
    }
    for (uint32_t i = 0; i < TB_SHELF_ENTRY_WORDS; i++)
        __atomic_store_n(&entry[i], words[i], __ATOMIC_RELAXED);
    (void)tb_bitmap_set(bits_of(shelf), line);
}

/* Offset and length are bounded before they are followed: they may be the damaged bytes. */
bool tb_shelf_recheck(struct tb_shelf *shelf, uint32_t line)
{
    if (!tb_shelf_has(shelf, line)) return true;
    uint64_t *entry = entry_of(shelf, line);
    const uint64_t bytes = (uint32_t)__atomic_load_n(&entry[0], __ATOMIC_RELAXED);
    const uint64_t offset = __atomic_load_n(&entry[1], __ATOMIC_RELAXED);
    if (bytes == 0) return true;
    if (offset >= TB_DIGEST_BYTES && offset <= shelf->room_bytes && bytes <= shelf->room_bytes - offset) {
        const struct tb_digest digest = tb_digest_of(shelf->room + offset, bytes);
        if (memcmp(digest.bytes, shelf->room + offset - TB_DIGEST_BYTES, TB_DIGEST_BYTES) == 0) return true;
    }
    __atomic_store_n(&entry[0], 0, __ATOMIC_RELAXED);
    return false;
}

/* ---- as a reader sees it ---- */

bool tb_shelf_head_read(const uint64_t *words, uint32_t count, struct tb_shelf_head *head_out)
{
    struct tb_shelf_head head = {.state = (enum tb_shelf_state)words[STATE], .room_bytes = words[ROOM_BYTES]};
    if (words[STATE] > TB_SHELF_CLOSED || words[COUNT] != count) return false;
    if (words[ROOM_BYTES] > (uint64_t)1 << 48) return false;
    memcpy(head.base.bytes, &words[BASE], sizeof head.base.bytes);
    *head_out = head;
    return true;
}

bool tb_shelf_entry_read(const uint64_t *words, const struct tb_shelf_head *head, uint32_t chunk_bytes,
                         struct tb_shelf_entry *entry_out)
{
    const struct tb_shelf_entry entry = {
        .form = {.id = (enum tb_codec_id)(words[0] >> 32 & 0xff), .on_base = (words[0] >> 40 & 1) != 0},
        .bytes = (uint32_t)words[0],
        .offset = words[1]};
    if (words[0] >> 41 != 0 || entry.bytes > chunk_bytes) return false;
    if (entry.offset > head->room_bytes || entry.bytes > head->room_bytes - entry.offset) return false;
    *entry_out = entry;
    return true;
}
