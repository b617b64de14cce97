/* world_hostile.c - a relay that forges: other bytes of the same XXH3, proofs and digests to fit
 * them, words of versions that nobody made, an end of versions that are there. */
#include <string.h>

#include "base/assert.h"
#include "base/proof/statement.h"
#include "gateway/catalog/views.h"
#include "gateway/daemon/daemon.h"
#include "wan/frame/frame.h"
#include "world.h"
#include "world_clients.h"
#include "world_faults.h"
#include "world_hostile.h"
#include "world_process.h"
#include "world_versions.h"

#define OFTEN 20000u                                     /* of 100,000, times its strength */
static const uint8_t mark[4] = {0xf0, 0x4e, 0x9e, 0xd1}; /* ids that it makes up begin so */

/* ---- who ---- */

void world_hostile_choose(void)
{
    uint32_t able[SITES_MAX], count = 0;
    the->hostile = NONE;
    for (uint32_t i = the->model_count; i < the->site_count; i++) {
        const bool has_lane = the->lane != NONE && (the->sites[the->lane].of == i || the->lane == i);
        if (!has_lane) able[count++] = i;
    }
    if (the->strength[FAULT_FORGE] != 0 && count > 0) the->hostile = able[world_draw(FAULT_FORGE, count)];
}

bool world_prefers_liar(uint32_t site)
{
    return the->hostile != NONE && site != the->hostile && world_draw(FAULT_FORGE, 2) == 0;
}

/* It does not stop when faults do. */
static bool forges(uint32_t per_100000)
{
    if (world_draw(FAULT_FORGE, 100000) >= (uint64_t)per_100000 * the->strength[FAULT_FORGE]) return false;
    the->struck[FAULT_FORGE]++;
    return true;
}

static struct tb_id made_up(void)
{
    struct tb_id id;
    for (size_t i = 0; i < sizeof id.bytes; i++)
        id.bytes[i] = i < sizeof mark ? mark[i] : (uint8_t)world_draw(FAULT_FORGE, 256);
    return id;
}

bool world_is_forged(const struct tb_id *uid)
{
    return memcmp(uid->bytes, mark, sizeof mark) == 0;
}

static bool names(const char *line, uint32_t site)
{
    return strstr(line, the->sites[site].name.text) != NULL;
}

bool world_is_about_liar(const char *line)
{
    if (the->hostile == NONE) return false;
    return (the->current != NULL && the->current->site == the->hostile) || names(line, the->hostile);
}

/* ---- what is looked for at the others ---- */

static void check_site(const struct site *s)
{
    struct tb_catalog_version_view v;
    for (uint32_t at = 0; tb_catalog_version_at(s->daemon->catalog, &at, &v);)
        if (world_is_forged(&v.key.uid) || world_is_forged(&v.key.run))
            world_fail("P1: %s has a row of a version that nobody made", s->name.text);
}

void world_check_forged(void)
{
    for (uint32_t i = 0; the->hostile != NONE && i < the->site_count; i++)
        if (i != the->hostile && the->sites[i].daemon != NULL) check_site(&the->sites[i]);
}

/* ---- chunks ---- */

static void chunk_of(uint32_t version, uint32_t shard, uint32_t chunk, uint8_t out[SHARD_BYTES],
                     uint32_t *count_out)
{
    const uint8_t *at = tb_place_chunk(&the->versions[version].shards[shard].place, chunk, count_out);
    memcpy(out, at, *count_out);
}

static uint32_t version_of(const struct pipe *p, const struct tb_chunk_frame *f)
{
    const struct path *way = &the->paths[p->from][p->to];
    for (uint32_t i = 0; i < 32; i++)
        if (way->starts[i].crossing == f->crossing && way->starts[i].receiver_life == p->receiver_life)
            return way->starts[i].version;
    return NONE;
}

static bool chunk_pass(struct pipe *p)
{
    struct tb_chunk_frame f;
    struct tb_reader r;
    struct tb_writer w;
    uint8_t bytes[SHARD_BYTES], frame[TB_CHUNK_FRAME_HEADER_BYTES + SHARD_BYTES];
    uint32_t count = 0;
    tb_reader_init(&r, p->tap.frame, TB_CHUNK_FRAME_HEADER_BYTES);
    if (tb_chunk_frame_decode(&r, TB_LINK_PROTOCOL, &f) != TB_OK || !forges(OFTEN)) return false;
    const uint32_t version = version_of(p, &f);
    if (version == NONE || f.shard >= the->versions[version].shard_count) return false;
    if (f.chunk >= the->versions[version].shards[f.shard].manifest.chunk_count) return false;
    chunk_of(version, f.shard, f.chunk, bytes, &count);
    const uint32_t before = world_version_before(version);
    if (before != NONE && world_draw(FAULT_FORGE, 4) == 0)
        chunk_of(before, f.shard, f.chunk, bytes, &count); /* it passes off an older one */
    else if (!world_chunk_forge(bytes, count))
        bytes[count / 2] ^= 1;
    const struct tb_chunk_frame forged = {.form = {.id = TB_CODEC_RAW},
                                          .crossing = f.crossing,
                                          .shard = f.shard,
                                          .chunk = f.chunk,
                                          .raw_bytes = count,
                                          .wire_bytes = count};
    tb_writer_init(&w, frame, sizeof frame);
    tb_chunk_frame_encode(&forged, &w);
    tb_write_bytes(&w, bytes, count);
    world_pipe_push(p, frame, w.used);
    world_say("%s forges a chunk of v%u to %s", the->sites[the->hostile].name.text, version + 1,
              the->sites[p->to].name.text);
    return true;
}

/* ---- proofs, digests, heads: as they stand in the tap ---- */

static uint8_t *page_of(struct pipe *p, const struct tb_span *page)
{
    return p->tap.frame + (page->bytes - p->tap.frame);
}

/* Proofs of the bytes that it sends. */
static void forge_proofs(struct pipe *p, struct tb_reader *r)
{
    struct tb_frame_proofs m;
    if (tb_frame_proofs_decode(r, &m) != TB_OK) return;
    const uint32_t version = world_version_find(&m.uid);
    uint8_t *page = page_of(p, &m.page), bytes[SHARD_BYTES];
    for (uint32_t i = 0; i < m.page.count / TB_BLAKE3_BYTES; i++) {
        const uint32_t k = m.first + i;
        uint32_t count = 0;
        struct tb_blake3 proof;
        if (version == NONE || m.shard >= SHARDS_MAX ||
            k >= the->versions[version].shards[m.shard].manifest.chunk_count)
            continue;
        chunk_of(version, m.shard, k, bytes, &count);
        if (!world_chunk_forge(bytes, count)) continue;
        proof = tb_blake3_of(bytes, count);
        memcpy(page + (size_t)i * TB_BLAKE3_BYTES, proof.bytes, TB_BLAKE3_BYTES);
    }
}

static void flip(struct pipe *p, const struct tb_span *page)
{
    if (page->count > 0) page_of(p, page)[world_draw(FAULT_FORGE, page->count)] ^= 1;
}

static void forge_page(struct pipe *p, uint16_t type, struct tb_reader *r)
{
    struct tb_frame_digests digests;
    struct tb_frame_head head;
    struct tb_frame_statement said;
    if (type == TB_FRAME_PROOFS) forge_proofs(p, r);
    if (type == TB_FRAME_DIGESTS && tb_frame_digests_decode(r, &digests) == TB_OK) flip(p, &digests.page);
    if (type == TB_FRAME_HEAD && tb_frame_head_decode(r, &head) == TB_OK) flip(p, &head.page);
    if (type == TB_FRAME_STATEMENT && tb_frame_statement_decode(r, &said) == TB_OK) flip(p, &said.said);
}

/* ---- what it says of itself ---- */

static uint32_t any_version(void)
{
    return the->version_count > 0 ? (uint32_t)world_draw(FAULT_FORGE, the->version_count) : NONE;
}

/* Newer than all: the next one of its run, or of a run that no home opened. */
static struct tb_version_key key_made_up(uint32_t like)
{
    struct tb_version_key key = the->versions[like].key;
    key.uid = made_up();
    key.number++;
    if (world_draw(FAULT_FORGE, 2) == 0) {
        key.run = made_up();
        key.run_order = world_draw(FAULT_FORGE, 2) == 0 ? key.run_order + 1 : TB_STATEMENT_ORDER_MAX;
    }
    key.root.bytes[0] ^= 1;
    return key;
}

/* Signed by itself, or in the name of its home, whose key it has not. */
static uint32_t statement_write(uint8_t *out, size_t cap, const struct tb_version_key *key)
{
    const uint32_t home = key != NULL && strcmp(key->model.text, world_models[0]) == 0 ? 0 : 1;
    const uint32_t signer = world_draw(FAULT_FORGE, 2) == 0 ? the->hostile : home % the->site_count;
    const struct tb_config *c = &the->sites[signer].config;
    static const enum tb_statement_kind kinds[] = {TB_STATEMENT_RUN, TB_STATEMENT_VERSION,
                                                   TB_STATEMENT_WITHDRAWN};
    struct tb_statement what = {.kind = kinds[world_draw(FAULT_FORGE, 3)],
                                .model = key->model,
                                .run = key->run,
                                .run_order = key->run_order,
                                .wall_ms = UINT64_C(1790000000000)};
    uint8_t said[TB_STATEMENT_BYTES_MAX];
    struct tb_writer w;
    if (what.kind != TB_STATEMENT_RUN) {
        what.uid = key->uid;
        what.number = key->number;
        what.shard_count = key->shard_count;
        what.digest = key->root;
        what.digest.bytes[0] |= 1; /* one that is not ready yet has none */
    }
    if (what.kind == TB_STATEMENT_VERSION) memset(&what.root, 7, sizeof what.root);
    tb_writer_init(&w, said, sizeof said);
    tb_statement_encode(&what, &w);
    const uint64_t right = world_signature(&c->site, &c->gateway, said, w.used);
    const size_t count = w.used;
    tb_writer_init(&w, out, cap);
    tb_write_name(&w, &c->site);
    tb_write_name(&w, &c->gateway);
    tb_write_u64(&w, signer == the->hostile ? right : right ^ (1 + world_draw(FAULT_FORGE, UINT32_MAX)));
    tb_write_bytes(&w, said, count);
    return (uint32_t)w.used;
}

enum word {
    WORD_VERSION,
    WORD_WITHDRAWN,
    WORD_STATEMENT,
    WORD_GONE,
    WORD_WHOLE,
    WORD_REPORT,
    WORD_RUN,
    WORDS
};

static uint16_t word_write(struct tb_writer *w, enum word word, uint32_t v)
{
    const bool of_old = world_draw(FAULT_FORGE, 3) == 0; /* of a version that is there */
    struct tb_version_key key = the->versions[v].key;
    uint8_t said[TB_STATEMENT_BYTES_MAX + 64];
    if (!of_old && word != WORD_GONE && word != WORD_WITHDRAWN) key = key_made_up(v);
    switch (word) {
    case WORD_VERSION:
        if (of_old) key.root.bytes[1] ^= 1;
        tb_frame_version_encode(&(struct tb_frame_version){key, 4096, TB_FRAME_VERSION_READY}, w);
        return TB_FRAME_VERSION;
    case WORD_WITHDRAWN:
        tb_frame_version_encode(&(struct tb_frame_version){key, 4096, TB_FRAME_VERSION_WITHDRAWN}, w);
        return TB_FRAME_VERSION;
    case WORD_STATEMENT: {
        const uint32_t count = statement_write(said, sizeof said, &key);
        tb_frame_statement_encode(&(struct tb_frame_statement){{said, count}}, w);
        return TB_FRAME_STATEMENT;
    }
    case WORD_GONE: {
        static const enum tb_status why[] = {TB_VERSION_LOST, TB_VERSION_BROKEN, TB_NOT_FOUND};
        tb_frame_gone_encode(
            &(struct tb_frame_gone){key.uid, tb_frame_status(why[world_draw(FAULT_FORGE, 3)])}, w);
        return TB_FRAME_GONE;
    }
    case WORD_WHOLE:
        tb_frame_whole_encode(&(struct tb_frame_whole){key.uid}, w);
        return TB_FRAME_WHOLE;
    case WORD_REPORT: {
        const uint32_t of = (uint32_t)world_draw(FAULT_FORGE, the->site_count);
        tb_frame_report_encode(
            &(struct tb_frame_report){key.uid, the->sites[of].name, TB_LINKS_REPORT_ACTIVATED}, w);
        return TB_FRAME_REPORT;
    }
    default:
        tb_frame_run_told_encode(&(struct tb_frame_run_told){key.model, key.run_order, key.number, key.run},
                                 w);
        return TB_FRAME_RUN_TOLD;
    }
}

static void word_push(struct pipe *p)
{
    uint8_t payload[1024], header[TB_WIRE_HEADER_BYTES];
    struct tb_writer w, h;
    const uint32_t v = any_version();
    if (v == NONE || tb_id_is_zero(&the->versions[v].key.uid)) return;
    tb_writer_init(&w, payload, sizeof payload);
    const uint16_t type = word_write(&w, (enum word)world_draw(FAULT_FORGE, WORDS), v);
    TB_ASSERT(!w.full);
    tb_writer_init(&h, header, sizeof header);
    tb_write_u32(&h, (uint32_t)w.used);
    tb_write_u16(&h, type);
    tb_write_u16(&h, 0);
    tb_write_u64(&h, 0);
    world_pipe_push(p, header, sizeof header);
    world_pipe_push(p, payload, w.used);
    world_say("%s forges %s to %s", the->sites[the->hostile].name.text, tb_frame_name(type),
              the->sites[p->to].name.text);
}

/* ---- each frame ---- */

void world_hostile_pass(struct pipe *p, bool chunks)
{
    struct tb_reader r;
    if (chunks && chunk_pass(p)) return;
    tb_reader_init(&r, p->tap.frame + 4, 2);
    const uint16_t type = chunks ? 0 : tb_read_u16(&r);
    tb_reader_init(&r, p->tap.frame + TB_WIRE_HEADER_BYTES, p->tap.need - TB_WIRE_HEADER_BYTES);
    const bool is_page = type == TB_FRAME_PROOFS || type == TB_FRAME_DIGESTS || type == TB_FRAME_HEAD ||
                         type == TB_FRAME_STATEMENT;
    if (is_page && forges(OFTEN)) {
        forge_page(p, type, &r);
        world_say("%s forges a page of %s", the->sites[the->hostile].name.text, tb_frame_name(type));
    }
    world_pipe_push(p, p->tap.frame, p->tap.need);
    if (type == TB_FRAME_PING && forges(OFTEN)) word_push(p);
}
