#include "intra/hop/hop_shelf.h"

#include <string.h>

#include "base/assert.h"

uint64_t tb_hop_shelf_bytes(uint32_t count)
{
    return 4 * TB_BITMAP_WORDS(count) * sizeof(uint64_t) + (uint64_t)count * sizeof(struct tb_shelf_entry);
}

void tb_hop_shelf_init(struct tb_hop_shelf *s, void *memory, uint32_t count)
{
    TB_ASSERT(count > 0 && count <= TB_SHELF_COUNT_MAX && (uintptr_t)memory % sizeof(uint64_t) == 0);
    const uint64_t words = TB_BITMAP_WORDS(count);
    memset(memory, 0, (size_t)tb_hop_shelf_bytes(count));
    *s = (struct tb_hop_shelf){.count = count, .patience = TB_HOP_SHELF_PATIENCE, .patient = true};
    s->listed = memory;
    s->known = s->listed + words;
    s->done = s->known + words;
    s->busy = s->done + words;
    s->entries = (struct tb_shelf_entry *)(void *)(s->busy + words);
}

static bool has_base(const struct tb_hop_shelf *s)
{
    return s->base.places != NULL || s->base.owner_decodes;
}

bool tb_hop_shelf_fits(const struct tb_hop_shelf *s)
{
    return s->decodes && has_base(s) && s->head.state != TB_SHELF_UNKNOWN &&
           tb_id_equal(&s->base.uid, &s->head.base);
}

static bool shelves_it(const struct tb_hop_shelf *s)
{
    return s->ours != NULL && tb_shelf_is_of(s->ours, &s->head.base);
}

bool tb_hop_shelf_passes(const struct tb_hop_shelf *s, uint32_t line)
{
    TB_ASSERT(line < s->count);
    return s->keeps || (shelves_it(s) && !tb_shelf_has(s->ours, line));
}

bool tb_hop_shelf_none(const struct tb_hop_shelf *s, uint32_t line)
{
    TB_ASSERT(line < s->count);
    return tb_bitmap_test(s->known, line) && s->entries[line].bytes == 0;
}

static bool nothing_left(const struct tb_hop_shelf *s)
{
    for (uint64_t w = 0; w < TB_BITMAP_WORDS(s->count); w++)
        if ((s->listed[w] & ~s->done[w]) != 0) return false;
    return true;
}

/* Encoded chunks that the owner wants are to come. */
static bool expects(const struct tb_hop_shelf *s)
{
    return s->keeps && !(s->head.state == TB_SHELF_CLOSED && nothing_left(s));
}

bool tb_hop_shelf_over(const struct tb_hop_shelf *s)
{
    return !expects(s) || !s->patient;
}

/* Our shelf is of one base: the first that one of our sources had. */
static void pass_state_on(struct tb_hop_shelf *s)
{
    if (s->ours == NULL || s->head.state == TB_SHELF_UNKNOWN) return;
    if (s->head.state == TB_SHELF_OPEN || !tb_id_is_zero(&s->head.base))
        tb_shelf_open(s->ours, &s->head.base);
    if (s->head.state == TB_SHELF_CLOSED && nothing_left(s)) tb_shelf_close(s->ours);
}

enum tb_status tb_hop_shelf_head(struct tb_hop_shelf *s, const uint64_t *words)
{
    struct tb_shelf_head head;
    const uint64_t *bits = words + TB_SHELF_HEAD_WORDS;
    if (!tb_shelf_head_read(words, s->count, &head) || !tb_bitmap_tail_clear(bits, s->count))
        return TB_PEER_GARBLED;
    if (head.state == TB_SHELF_OPEN && tb_id_is_zero(&head.base))
        head.state = TB_SHELF_UNKNOWN; /* half seen */
    s->head = head;
    s->news = false;
    for (uint64_t w = 0; w < TB_BITMAP_WORDS(s->count); w++) {
        if ((bits[w] & ~s->listed[w]) != 0) s->news = true;
        s->listed[w] |= bits[w];
    }
    pass_state_on(s);
    return TB_OK;
}

bool tb_hop_shelf_wanted(const struct tb_hop_shelf *s, uint32_t *first_out, uint32_t *count_out)
{
    uint32_t first = s->count, end = 0;
    for (uint32_t w = 0; w < TB_BITMAP_WORDS(s->count); w++) {
        const uint64_t wanted = s->listed[w] & ~s->known[w];
        if (wanted == 0) continue;
        if (first == s->count) first = w * 64 + (uint32_t)__builtin_ctzll(wanted);
        end = w * 64 + 64 - (uint32_t)__builtin_clzll(wanted);
        if (end - first >= TB_HOP_SHELF_ENTRIES_MAX) break;
    }
    if (end == 0) return false;
    TB_ASSERT(first < end && end <= s->count); /* the head's bits have no tail */
    *first_out = first;
    *count_out = end - first < TB_HOP_SHELF_ENTRIES_MAX ? end - first : TB_HOP_SHELF_ENTRIES_MAX;
    return true;
}

void tb_hop_shelf_done(struct tb_hop_shelf *s, uint32_t line)
{
    TB_ASSERT(line < s->count && tb_bitmap_test(s->known, line));
    (void)tb_bitmap_set(s->done, line);
    (void)tb_bitmap_clear(s->busy, line);
}

enum tb_status tb_hop_shelf_entries(struct tb_hop_shelf *s, uint32_t first, const uint64_t *words,
                                    uint32_t count, tb_hop_shelf_chunk_fn chunk_bytes, void *user)
{
    TB_ASSERT(first <= s->count && count <= s->count - first);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t line = first + i;
        if (!tb_bitmap_test(s->listed, line) || tb_bitmap_test(s->known, line)) continue;
        if (!tb_shelf_entry_read(words + (size_t)i * TB_SHELF_ENTRY_WORDS, &s->head, chunk_bytes(user, line),
                                 &s->entries[line]))
            return TB_PEER_GARBLED;
        (void)tb_bitmap_set(s->known, line);
        if (s->entries[line].bytes > 0) continue;
        tb_hop_shelf_done(s, line);
        if (shelves_it(s)) tb_shelf_put(s->ours, line, NULL);
    }
    return TB_OK;
}

void tb_hop_shelf_round(struct tb_hop_shelf *s, bool waits, tb_time_ns now)
{
    if ((!waits && !expects(s)) || s->news)
        s->waits_since = 0;
    else if (s->waits_since == 0)
        s->waits_since = now;
    s->patient = s->waits_since == 0 || tb_time_since(s->waits_since, now) < s->patience;
    pass_state_on(s);
}

uint32_t tb_hop_shelf_find(const struct tb_hop_shelf *s, uint32_t from)
{
    for (uint32_t line = from; line < s->count;) {
        const uint32_t w = line / 64;
        const uint64_t open = s->known[w] & ~s->done[w] & ~s->busy[w] & (UINT64_MAX << (line % 64));
        if (open != 0) return w * 64 + (uint32_t)__builtin_ctzll(open);
        line = (w + 1) * 64;
    }
    return s->count;
}

bool tb_hop_shelf_awaited(const struct tb_hop_shelf *s, uint32_t line)
{
    TB_ASSERT(line < s->count);
    if (!s->decodes || !has_base(s) || tb_bitmap_test(s->done, line)) return false;
    if (s->head.state == TB_SHELF_UNKNOWN) return s->patient;
    if (!tb_id_equal(&s->base.uid, &s->head.base)) return false;
    if (tb_bitmap_test(s->listed, line)) return true; /* it is here, or in flight */
    return s->head.state == TB_SHELF_OPEN && s->patient;
}

void tb_hop_shelf_check(const struct tb_hop_shelf *s)
{
    TB_ASSERT(s->base.places == NULL || !s->base.owner_decodes);
    TB_ASSERT(s->ours == NULL || s->ours->count == s->count);
    for (uint64_t w = 0; w < TB_BITMAP_WORDS(s->count); w++) {
        TB_ASSERT((s->known[w] & ~s->listed[w]) == 0);
        TB_ASSERT(((s->done[w] | s->busy[w]) & ~s->known[w]) == 0);
        TB_ASSERT((s->done[w] & s->busy[w]) == 0);
    }
}
