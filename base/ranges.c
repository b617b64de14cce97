/* ranges.c - sets of indexes as sorted ranges. */
#include "base/ranges.h"

#include <string.h>

#include "base/bitmap.h"

void tb_ranges_init(struct tb_ranges *s, struct tb_range *memory, uint32_t count_max)
{
    *s = (struct tb_ranges){.items = memory, .count_max = count_max};
}

/* The first item whose end is at or after `index`; count if none. */
static uint32_t first_ending_at(const struct tb_ranges *s, uint32_t index)
{
    uint32_t low = 0;
    uint32_t high = s->count;
    while (low < high) {
        const uint32_t mid = low + (high - low) / 2;
        if (s->items[mid].end < index) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

/* Items [at, at + gone) are replaced by `fresh_count` (at most 2) new ones. */
static enum tb_status splice(struct tb_ranges *s, uint32_t at, uint32_t gone, const struct tb_range *fresh,
                             uint32_t fresh_count)
{
    const uint32_t rest = s->count - at - gone;
    if ((uint64_t)s->count - gone + fresh_count > s->count_max) return TB_SITE_NOMEM;
    if (rest > 0) memmove(&s->items[at + fresh_count], &s->items[at + gone], rest * sizeof *s->items);
    for (uint32_t i = 0; i < fresh_count; i++)
        s->items[at + i] = fresh[i];
    s->count = at + fresh_count + rest;
    return TB_OK;
}

enum tb_status tb_ranges_add(struct tb_ranges *s, struct tb_range r)
{
    if (r.first > r.end) return TB_BAD_ARGUMENT;
    if (r.first == r.end) return TB_OK;
    const uint32_t at = first_ending_at(s, r.first); /* touching counts: adjacent ranges become one */
    uint32_t past = at;
    for (; past < s->count && s->items[past].first <= r.end; past++) {
        if (s->items[past].first < r.first) r.first = s->items[past].first;
        if (s->items[past].end > r.end) r.end = s->items[past].end;
    }
    return splice(s, at, past - at, &r, 1);
}

enum tb_status tb_ranges_remove(struct tb_ranges *s, struct tb_range r)
{
    if (r.first > r.end) return TB_BAD_ARGUMENT;
    if (r.first == r.end) return TB_OK;
    uint32_t at = first_ending_at(s, r.first);
    if (at < s->count && s->items[at].end == r.first) at++; /* touching is not meeting */
    struct tb_range left[2];
    uint32_t left_count = 0;
    uint32_t past = at;
    for (; past < s->count && s->items[past].first < r.end; past++) {
        const struct tb_range item = s->items[past];
        if (item.first < r.first) left[left_count++] = (struct tb_range){item.first, r.first};
        if (item.end > r.end) left[left_count++] = (struct tb_range){r.end, item.end};
    }
    return splice(s, at, past - at, left, left_count);
}

bool tb_ranges_has(const struct tb_ranges *s, uint32_t index)
{
    uint32_t at = first_ending_at(s, index);
    if (at < s->count && s->items[at].end == index) at++;
    return at < s->count && s->items[at].first <= index;
}

uint64_t tb_ranges_size(const struct tb_ranges *s)
{
    uint64_t size = 0;
    for (uint32_t i = 0; i < s->count; i++)
        size += s->items[i].end - s->items[i].first;
    return size;
}

enum tb_status tb_ranges_from_bitmap(struct tb_ranges *s, const uint64_t *words, uint32_t count)
{
    s->count = 0;
    for (uint32_t at = tb_bitmap_next_set(words, count, 0); at < count;) {
        if (s->count == s->count_max) return TB_SITE_NOMEM;
        const uint32_t end = tb_bitmap_next_clear(words, count, at);
        s->items[s->count++] = (struct tb_range){at, end};
        /* Bits may be set behind us meanwhile: the search goes on past `end`, so ranges never touch. */
        at = end < count ? tb_bitmap_next_set(words, count, end + 1) : count;
    }
    return TB_OK;
}

void tb_ranges_encode(const struct tb_ranges *s, struct tb_writer *w)
{
    tb_write_u32(w, s->count);
    for (uint32_t i = 0; i < s->count; i++) {
        tb_write_u32(w, s->items[i].first);
        tb_write_u32(w, s->items[i].end);
    }
}

enum tb_status tb_ranges_decode(struct tb_reader *r, uint32_t index_end, struct tb_ranges *s_out)
{
    s_out->count = 0;
    const uint32_t count = tb_read_u32(r);
    if (r->bad || count > s_out->count_max || count > r->left / 8) return TB_PEER_GARBLED;
    uint32_t least = 0; /* of the next range's first */
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t first = tb_read_u32(r);
        const uint32_t end = tb_read_u32(r);
        if (first < least || first >= end || end > index_end) return TB_PEER_GARBLED;
        s_out->items[i] = (struct tb_range){first, end};
        least = end + 1; /* adjacent ranges would have been one; end + 1 == 0 is caught below */
        if (least == 0 && i + 1 < count) return TB_PEER_GARBLED;
    }
    s_out->count = count;
    return TB_OK;
}
