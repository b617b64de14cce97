/* feed.c - what the main loop and the streams of one link share: made, freed, told of a
 * session, and its notes. */
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "wan/send/feed_inside.h"

struct tb_feed *tb_feed_new(enum tb_choice_wish wish, uint32_t cores)
{
    TB_ASSERT(wish < TB_CHOICE_WISHES);
    struct tb_feed *f = tb_calloc(1, sizeof *f);
    if (f == NULL) return NULL;
    if (uv_mutex_init(&f->lock) != 0) {
        tb_free(f);
        return NULL;
    }
    f->until_bytes = UINT64_MAX;
    tb_choice_init(&f->choice, wish, cores);
    return f;
}

void tb_feed_free(struct tb_feed *f)
{
    if (f == NULL) return;
    tb_feed_purge(f, 0);
    tb_feed_gifts_drop(f);
    uv_mutex_destroy(&f->lock);
    tb_free(f);
}

void tb_feed_session(struct tb_feed *f, uint64_t session, uint32_t protocol)
{
    uv_mutex_lock(&f->lock);
    tb_feed_parcels_session_locked(f, session);
    tb_feed_choice_protocol_locked(f, protocol);
    uv_mutex_unlock(&f->lock);
}

void tb_feed_base_gone(struct tb_feed *f, struct tb_shared_places *base)
{
    uv_mutex_lock(&f->lock);
    tb_feed_landings_base_gone_locked(f, base);
    tb_feed_parcels_base_gone_locked(f, base);
    uv_mutex_unlock(&f->lock);
}

void tb_feed_check(struct tb_feed *f)
{
    uv_mutex_lock(&f->lock);
    TB_ASSERT(f->note_count <= TB_FEED_NOTES_MAX);
    tb_feed_parcels_check_locked(f);
    tb_feed_landings_check_locked(f);
    tb_feed_gifts_check_locked(f);
    tb_feed_limits_check_locked(f);
    tb_choice_check(&f->choice);
    uv_mutex_unlock(&f->lock);
}

/* ---- notes ---- */

static bool note_below(struct tb_feed *f, const struct tb_note *note, uint32_t most)
{
    TB_ASSERT(note->kind <= TB_NOTE_UNSENT && most <= TB_FEED_NOTES_MAX);
    uv_mutex_lock(&f->lock);
    const bool fits = f->note_count < most;
    if (fits) f->notes[f->note_count++] = *note;
    uv_mutex_unlock(&f->lock);
    return fits;
}

bool tb_feed_note(struct tb_feed *f, const struct tb_note *note)
{
    return note_below(f, note, TB_FEED_NOTES_MAX);
}

bool tb_feed_note_late(struct tb_feed *f, const struct tb_note *note)
{
    return note_below(f, note, TB_FEED_NOTES_MAX / 2);
}

uint32_t tb_feed_collect_notes(struct tb_feed *f, struct tb_note *out)
{
    uv_mutex_lock(&f->lock);
    const uint32_t count = f->note_count;
    TB_ASSERT(count <= TB_FEED_NOTES_MAX);
    memcpy(out, f->notes, count * sizeof *out);
    f->note_count = 0;
    uv_mutex_unlock(&f->lock);
    return count;
}
