/* keyed_rows.c - eight places for each key; the oldest row that nobody needs gives way. */
#include "base/limits/keyed_rows.h"

#include <string.h>

#include "base/assert.h"

#define FNV_START UINT64_C(0xcbf29ce484222325)
#define FNV_TIMES UINT64_C(0x100000001b3)

uint64_t tb_key_of_text(const char *text)
{
    uint64_t key = FNV_START;
    for (const char *at = text; *at != '\0'; at++)
        key = (key ^ (uint8_t)*at) * FNV_TIMES;
    return key != 0 ? key : 1;
}

/* Each bit of `key` moves each bit. */
static uint64_t mixed(uint64_t key)
{
    key = (key ^ key >> 32) * UINT64_C(0xd6e8feb86659fd93);
    key = (key ^ key >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return key ^ key >> 32;
}

uint64_t tb_key_join(uint64_t a, uint64_t b)
{
    const uint64_t key = mixed(a + mixed(b + FNV_START));
    return key != 0 ? key : 1;
}

/* Eight bytes at a time: how the first ones move the key is known to the salt's owner alone. */
uint64_t tb_key_of_salted(const char *text, uint64_t salt)
{
    uint64_t key = tb_key_join(salt, strlen(text));
    for (size_t left = strlen(text); left > 0;) {
        uint64_t piece = 0;
        const size_t bytes = left < sizeof piece ? left : sizeof piece;
        memcpy(&piece, text, bytes);
        key = tb_key_join(key, piece);
        text += bytes;
        left -= bytes;
    }
    return key;
}

static uint8_t *ways_of(void *rows, uint32_t count, size_t row_bytes, uint64_t key)
{
    TB_ASSERT(count >= TB_KEYED_WAYS && count % TB_KEYED_WAYS == 0);
    /* The highest bits of the product: lower ones know nothing of the key's high bits, which are
     * all in which two addresses of one network differ. */
    const uint64_t spread = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 32;
    const uint64_t group = (spread * (count / TB_KEYED_WAYS)) >> 32;
    return (uint8_t *)rows + group * TB_KEYED_WAYS * row_bytes;
}

static struct tb_keyed_row *way_at(uint8_t *ways, size_t row_bytes, uint32_t i)
{
    return (struct tb_keyed_row *)(void *)(ways + i * row_bytes);
}

void *tb_keyed_find(void *rows, uint32_t count, size_t row_bytes, uint64_t key)
{
    TB_ASSERT(key != 0);
    uint8_t *ways = ways_of(rows, count, row_bytes, key);
    for (uint32_t i = 0; i < TB_KEYED_WAYS; i++)
        if (way_at(ways, row_bytes, i)->key == key) return way_at(ways, row_bytes, i);
    return NULL;
}

void *tb_keyed_get(void *rows, uint32_t count, size_t row_bytes, uint64_t key, tb_time_ns now,
                   bool (*needed)(const void *row, tb_time_ns now))
{
    TB_ASSERT(row_bytes >= sizeof(struct tb_keyed_row) && needed != NULL);
    struct tb_keyed_row *row = tb_keyed_find(rows, count, row_bytes, key);
    uint8_t *ways = ways_of(rows, count, row_bytes, key);
    for (uint32_t i = 0; row == NULL && i < TB_KEYED_WAYS; i++)
        if (way_at(ways, row_bytes, i)->key == 0) row = way_at(ways, row_bytes, i);
    for (uint32_t i = 0; row == NULL && i < TB_KEYED_WAYS; i++) {
        struct tb_keyed_row *old = way_at(ways, row_bytes, i);
        if (needed(old, now)) continue;
        row = old;
        for (uint32_t j = i + 1; j < TB_KEYED_WAYS; j++) {
            struct tb_keyed_row *other = way_at(ways, row_bytes, j);
            if (other->used_at < row->used_at && !needed(other, now)) row = other;
        }
    }
    if (row == NULL) return NULL;
    if (row->key != key) memset(row, 0, row_bytes);
    row->key = key;
    row->used_at = now;
    return row;
}
