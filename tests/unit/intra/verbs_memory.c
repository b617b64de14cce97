/* verbs_memory.c - memory that stays is registered once for each NIC: over plans, paths that
 * failed and versions; and it is its owner's again all the same. pinned.c tests what decides
 * that, without a device. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/fabric/fabric_hops.h"
#include "intra/fabric/fabric_queue.h"
#include "intra/transport/transport_words.h"
#include "verbs_suite.h"

static uint64_t owner_count(const struct scene *s)
{
    return s->owner.shard.held_offset + TB_BITMAP_WORDS(s->cargo.manifest.chunk_count) * sizeof(uint64_t);
}

void verbs_memory_stays(struct scene *s)
{
    tb_fabric_memory_stays(s->reader, s->hold.bytes, s->cargo.manifest.bytes);
    tb_fabric_memory_stays(s->owner.fabric, s->owner.bytes, owner_count(s));
}

struct tb_pinned_counts verbs_pinned(struct tb_fabric *f)
{
    struct tb_pinned_counts counts;
    tb_pinned_counts(&f->verbs->pinned, &counts);
    return counts;
}

/* Until it holds `held` chunks. */
static void pull(struct scene *s, uint32_t held)
{
    owner_hold(&s->owner, 0, held);
    struct tb_hop *hop = verbs_hop(s, TB_TRANSPORT_VERBS);
    wait_until(tb_place_held_count(&s->hold.place) == held);
    tb_hop_close(hop);
    wait_until(tb_export_readers(s->owner.fabric, EXPORT_ID) == 0);
}

/* The next version in the same memory, from the first byte. */
static void next_version(struct scene *s)
{
    const uint32_t chunks = s->cargo.manifest.chunk_count;
    const struct tb_export_buffer buffer = {.bytes = s->owner.bytes, .count = owner_count(s), .memfd = -1};
    const struct tb_export_buffer both[] = {buffer, buffer};
    tb_export_close(s->owner.fabric, EXPORT_ID, 0);
    memset(s->owner.held, 0, TB_BITMAP_WORDS(chunks) * sizeof(uint64_t));
    memset(s->hold.place.held, 0, TB_BITMAP_WORDS(chunks) * sizeof(uint64_t));
    memset(s->hold.place.claimed, 0, TB_BITMAP_WORDS(chunks) * sizeof(uint64_t));
    memset(s->hold.bytes, 0, s->cargo.manifest.bytes);
    const struct tb_export_options options = {.export_id = EXPORT_ID, .buffers = both, .buffer_count = 2};
    assert_int_equal(tb_export_open(s->owner.fabric, &options), TB_OK);
}

/* Two plans for each of two versions: one registration of the place and one of the export, beside
 * the 512 KiB of each hop's own. */
void memory_that_stays_is_registered_once(void **state)
{
    (void)state;
    struct scene s;
    verbs_open(&s, 6);
    verbs_memory_stays(&s);
    const uint32_t chunks = s.cargo.manifest.chunk_count;
    for (uint64_t version = 0; version < 2; version++) {
        if (version > 0) next_version(&s);
        pull(&s, chunks / 2);
        assert_int_equal(verbs_pinned(s.reader).made, 1 + 2 * version + 1);
        pull(&s, chunks);
        assert_int_equal(verbs_pinned(s.reader).made, 1 + 2 * version + 2);
        assert_int_equal(verbs_pinned(s.owner.fabric).made, 1);
        assert_true(tb_place_whole(&s.hold.place));
        hold_check(&s.hold, &s.cargo);
    }
    tb_export_close(s.owner.fabric, EXPORT_ID, 0);
    assert_int_equal(verbs_pinned(s.owner.fabric).regions, 1);
    assert_int_equal(verbs_pinned(s.owner.fabric).domains, 1);
    tb_fabric_memory_goes(s.owner.fabric, s.owner.bytes);
    tb_fabric_memory_goes(s.reader, s.hold.bytes);
    assert_int_equal(verbs_pinned(s.owner.fabric).regions, 0);
    assert_int_equal(verbs_pinned(s.owner.fabric).domains, 0);
    assert_int_equal(verbs_pinned(s.reader).regions, 0);
    verbs_close(&s);
}

/* The twin: of other memory nothing is left when its last user has gone. */
void other_memory_is_registered_for_each_hop(void **state)
{
    (void)state;
    struct scene s;
    verbs_open(&s, 6);
    const uint32_t chunks = s.cargo.manifest.chunk_count;
    pull(&s, chunks / 2);
    pull(&s, chunks);
    assert_int_equal(verbs_pinned(s.reader).made, 4);
    assert_int_equal(verbs_pinned(s.owner.fabric).made, 2); /* its two buffers, once for the export */
    assert_int_equal(verbs_pinned(s.reader).regions, 0);
    tb_export_close(s.owner.fabric, EXPORT_ID, 0);
    assert_int_equal(verbs_pinned(s.owner.fabric).domains, 0);
    verbs_close(&s);
}

static void set_dead(struct tb_fabric *f, void *arg)
{
    for (uint32_t i = 0; i < f->verbs->nic_count; i++)
        f->verbs->nics[i].dead = *(bool *)arg;
}

/* The owner refuses the queue pair; beside the 512 KiB of each try nothing was
 * registered in vain. */
void a_path_that_fails_costs_no_registration(void **state)
{
    (void)state;
    struct scene s;
    bool dead = true;
    verbs_open(&s, 6);
    verbs_memory_stays(&s);
    tb_fabric_call(s.owner.fabric, set_dead, &dead);
    struct tb_hop *hop = verbs_hop(&s, TB_TRANSPORT_NONE);
    tale_wait_opened(&s.tale);
    assert_int_equal(told(&s.tale).transport, TB_TRANSPORT_TCP);
    tb_hop_close(hop);
    const tb_time_ns failed = tb_clock_now();
    const uint64_t made = verbs_pinned(s.reader).made;
    assert_int_equal(made, 1 + log_lines("verbs.path_failed", "rests"));
    dead = false;
    tb_fabric_call(s.owner.fabric, set_dead, &dead);
    wait_until(tb_clock_now() - failed > TB_RAIL_REST_MIN); /* time itself is what is waited for */
    pull(&s, s.cargo.manifest.chunk_count);
    assert_int_equal(verbs_pinned(s.reader).made, made + 1);
    verbs_close(&s);
}

/* A page in the middle of memory becomes one of a file that is too short for it, which no NIC
 * registers, with what stood there in `was`. Nothing is read or written there meanwhile: its
 * source holds nothing yet. (mprotect would not do: where only reading is asked for the
 * kernel pins such a page.) */
struct barred {
    uint8_t *page;
    uint8_t was[4096];
};

static void map_there(const struct barred *b, int flags, int fd)
{
    void *got = mmap(b->page, sizeof b->was, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    assert_ptr_equal(got, b->page);
}

static void bar(struct barred *b, uint8_t *bytes)
{
    assert_int_equal(sysconf(_SC_PAGESIZE), sizeof b->was);
    b->page = (uint8_t *)(((uintptr_t)bytes + (1 << 20)) / sizeof b->was * sizeof b->was);
    memcpy(b->was, b->page, sizeof b->was);
    const int empty = memfd_create("barred", MFD_CLOEXEC);
    map_there(b, MAP_SHARED, empty);
    close(empty);
}

static void unbar(const struct barred *b)
{
    map_there(b, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    memcpy(b->page, b->was, sizeof b->was);
}

static struct tb_hop *opened_with(struct scene *s, uint8_t *bytes)
{
    struct barred barred;
    const uint32_t before = told(&s->tale).opened;
    bar(&barred, bytes);
    struct tb_hop *hop = verbs_hop(s, TB_TRANSPORT_NONE);
    tale_wait(&s->tale, &s->tale.told.opened, before + 1);
    unbar(&barred);
    return hop;
}

static void closes(struct scene *s, struct tb_hop *hop)
{
    tb_hop_close(hop);
    wait_until(tb_export_readers(s->owner.fabric, EXPORT_ID) == 0);
}

/* Which end's memory it is, and whether it is all of it: then what is not registered comes by tcp,
 * and the rest by RDMA. */
void memory_that_is_not_registered_is_told(void **state)
{
    (void)state;
    struct scene s;
    verbs_open(&s, 6);
    closes(&s, opened_with(&s, s.hold.bytes));
    assert_int_equal(told(&s.tale).transport, TB_TRANSPORT_TCP);
    assert_int_equal(told(&s.tale).why_transport, TB_WHY_UNREGISTERED_HERE);
    assert_int_equal(log_lines("verbs.unregistered", "export="), 0);
    closes(&s, opened_with(&s, s.owner.bytes));
    assert_int_equal(told(&s.tale).transport, TB_TRANSPORT_TCP);
    assert_int_equal(told(&s.tale).why_transport, TB_WHY_UNREGISTERED_THERE);
    assert_int_equal(log_lines("verbs.unregistered", "export="), 2);
    const struct tb_export_buffer apart[] = {
        {.bytes = s.owner.bytes, .count = s.owner.shard.held_offset, .memfd = -1},
        {.bytes = s.owner.held, .count = owner_count(&s) - s.owner.shard.held_offset, .memfd = -1}};
    owner_export(&s.owner, apart, 2);
    s.owner.shard.held_offset = 0;
    struct tb_hop *hop = opened_with(&s, s.owner.bytes);
    assert_int_equal(told(&s.tale).transport, TB_TRANSPORT_VERBS);
    assert_int_equal(told(&s.tale).why_transport, TB_WHY_RDMA_PART);
    owner_hold_all(&s.owner);
    tale_wait_whole(&s.tale);
    closes(&s, hop);
    verbs_close(&s);
}
