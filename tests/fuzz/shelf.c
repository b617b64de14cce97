/* A source's shelf as its reader sees it: words that another process wrote, and may write while
 * they are read. The input is a byte that says what of the reader is at hand, then the shelf's
 * memory; what is lacking of it is zero. It is read twice, as it is and as its other half says,
 * because it may change between two rounds.
 *
 * Nothing is asked for outside of the shelf; what is asked for has a bit; an entry points
 * into the room and is no larger than its chunk; each chunk's encoded chunk is done with
 * once; what is passed on is what was read; and rounds end: whatever a shelf says, no chunk
 * is awaited for ever (P6, P7).
 *
 * Covers: base/layout/shelf.c intra/hop/hop_shelf.c */
#include "base/codec/codec.h"
#include "intra/hop/hop_shelf.h"
#include "tests/fuzz/fuzz.h"

#define CHUNKS      70u /* two words of bits */
#define ROOM        512u
#define CHUNK_BYTES 96u
#define BYTES_MAX   4096u

static const struct tb_id base = {.bytes = {1}};

static uint64_t theirs[BYTES_MAX / 8], ours_memory[BYTES_MAX / 8], state[BYTES_MAX / 8];
static struct tb_shelf ours;

static uint32_t chunk_bytes(void *user, uint32_t line)
{
    (void)user;
    return line % 7 == 0 ? 1 : CHUNK_BYTES;
}

static uint8_t room_byte(const struct tb_shelf_entry *e, uint32_t i)
{
    return ((const uint8_t *)theirs + tb_shelf_room_offset(CHUNKS))[e->offset + i];
}

/* An encoded chunk was read: passed on, and done with. */
static void take(struct tb_hop_shelf *s, uint32_t line)
{
    const struct tb_shelf_entry *e = &s->entries[line];
    uint8_t bytes[CHUNK_BYTES];
    FUZZ_REQUIRE(e->bytes > 0 && e->bytes <= chunk_bytes(NULL, line));
    FUZZ_REQUIRE(e->offset + e->bytes <= s->head.room_bytes);
    for (uint32_t i = 0; i < e->bytes; i++) /* a room that says more than its buffer is refused by the door */
        bytes[i] = e->offset + e->bytes <= ROOM ? room_byte(e, i) : 0;
    const struct tb_codec_coded coded = {e->form, bytes, e->bytes};
    if (tb_hop_shelf_passes(s, line)) tb_shelf_put(&ours, line, &coded);
    tb_hop_shelf_done(s, line);
}

static bool entries_read(struct tb_hop_shelf *s)
{
    uint32_t first = 0, count = 0;
    for (uint32_t turn = 0; tb_hop_shelf_wanted(s, &first, &count); turn++) {
        FUZZ_REQUIRE(turn <= CHUNKS && first < CHUNKS && count > 0 && count <= CHUNKS - first);
        FUZZ_REQUIRE(tb_bitmap_test(s->listed, first) && tb_bitmap_test(s->listed, first + count - 1));
        if (tb_hop_shelf_entries(s, first, theirs + tb_shelf_entry_offset(CHUNKS, first) / 8, count,
                                 chunk_bytes, NULL) != TB_OK)
            return false;
    }
    return true;
}

static bool round_run(struct tb_hop_shelf *s, tb_time_ns now)
{
    if (tb_hop_shelf_head(s, theirs) != TB_OK) return false;
    if (!entries_read(s)) return false;
    uint32_t done = 0;
    for (uint32_t line = tb_hop_shelf_find(s, 0); line < CHUNKS; line = tb_hop_shelf_find(s, line)) {
        FUZZ_REQUIRE(tb_bitmap_test(s->known, line) && !tb_bitmap_test(s->done, line) && ++done <= CHUNKS);
        if (tb_hop_shelf_fits(s) || tb_hop_shelf_passes(s, line))
            take(s, line);
        else
            tb_hop_shelf_done(s, line);
    }
    tb_hop_shelf_round(s, true, now);
    return true;
}

/* Our own shelf is a valid one now: readers behind us may read all of it. */
static void ours_is_a_shelf(void)
{
    struct tb_shelf_head head;
    struct tb_shelf_entry e;
    FUZZ_REQUIRE(tb_shelf_head_read(ours_memory, CHUNKS, &head));
    for (uint32_t line = 0; line < CHUNKS; line++) {
        if (!tb_shelf_has(&ours, line)) continue;
        FUZZ_REQUIRE(tb_shelf_entry_read(ours_memory + tb_shelf_entry_offset(CHUNKS, line) / 8, &head,
                                         chunk_bytes(NULL, line), &e));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct tb_hop_shelf s;
    static const struct tb_place *const places[1];
    const size_t all = tb_shelf_bytes(CHUNKS, ROOM);
    FUZZ_REQUIRE(all <= sizeof theirs && tb_hop_shelf_bytes(CHUNKS) <= sizeof state);
    if (count == 0) return 0;
    memset(theirs, 0, sizeof theirs);
    memset(ours_memory, 0, sizeof ours_memory);
    tb_shelf_init(&ours, ours_memory, CHUNKS, (bytes[0] & 8) != 0 ? 64 : ROOM);
    tb_hop_shelf_init(&s, state, CHUNKS);
    s.decodes = (bytes[0] & 1) != 0;
    if ((bytes[0] & 2) != 0) s.base = (struct tb_hop_base){.uid = base, .places = places};
    if ((bytes[0] & 4) != 0) s.ours = &ours;
    const size_t first = count - 1 < all ? count - 1 : all;
    memcpy(theirs, bytes + 1, first);
    bool good = round_run(&s, TB_MS(1));
    memcpy(theirs, bytes + 1 + first, count - 1 - first < all ? count - 1 - first : all);
    good = good && round_run(&s, TB_MS(2));
    for (uint32_t i = 0; good && i < 3; i++)
        good = round_run(&s, TB_MS(3) + i * TB_HOP_SHELF_PATIENCE); /* nothing new any more */
    for (uint32_t line = 0; good && line < CHUNKS; line++)
        FUZZ_REQUIRE(!tb_hop_shelf_awaited(&s, line));
    ours_is_a_shelf();
    return 0;
}
