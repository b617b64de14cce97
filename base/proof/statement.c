/* statement.c - one spelling for each statement. */
#include "base/proof/statement.h"

#include <string.h>

#include "base/assert.h"

#define NUMBERS_END ((uint64_t)1 << 63)

static const char magic[] = "tombolo statement 1"; /* no other bytes that this key signs begin so */

static bool digest_is_zero(const struct tb_digest *digest)
{
    return tb_digest_equal(digest, &(struct tb_digest){{0}});
}

static bool root_is_zero(const struct tb_blake3 *root)
{
    static const struct tb_blake3 zero;
    return memcmp(root->bytes, zero.bytes, sizeof zero.bytes) == 0;
}

/* The fields that its kind uses are set, and no others. */
static bool fits_its_kind(const struct tb_statement *s)
{
    if (s->kind < TB_STATEMENT_RUN || s->kind >= TB_STATEMENT_KINDS) return false;
    const bool of_version = s->kind != TB_STATEMENT_RUN;
    if ((s->shard_count == 0) == of_version || s->shard_count > TB_STATEMENT_SHARDS_MAX) return false;
    const bool of_bytes = s->kind == TB_STATEMENT_VERSION || s->kind == TB_STATEMENT_SHARD;
    if (digest_is_zero(&s->digest) ? of_bytes : !of_version) return false;
    if (s->kind == TB_STATEMENT_SHARD ? s->shard >= s->shard_count : s->shard != 0) return false;
    return tb_id_is_zero(&s->uid) != of_version && (of_version || s->number == 0) &&
           root_is_zero(&s->root) != of_bytes;
}

static bool is_valid(const struct tb_statement *s)
{
    return fits_its_kind(s) && tb_name_valid(s->model.text) && !tb_id_is_zero(&s->run) && s->run_order > 0 &&
           s->run_order <= TB_STATEMENT_ORDER_MAX && s->number < NUMBERS_END;
}

void tb_statement_encode(const struct tb_statement *statement, struct tb_writer *w)
{
    const size_t before = w->used;
    TB_ASSERT(is_valid(statement));
    tb_write_bytes(w, magic, sizeof magic);
    tb_write_u8(w, (uint8_t)statement->kind);
    tb_write_name(w, &statement->model);
    tb_write_id(w, &statement->uid);
    tb_write_id(w, &statement->run);
    tb_write_u64(w, statement->run_order);
    tb_write_u64(w, statement->number);
    tb_write_bytes(w, statement->root.bytes, sizeof statement->root.bytes);
    tb_write_u64(w, statement->wall_ms);
    tb_write_u32(w, statement->shard_count);
    tb_write_bytes(w, statement->digest.bytes, sizeof statement->digest.bytes);
    if (statement->kind == TB_STATEMENT_SHARD) tb_write_u32(w, statement->shard);
    TB_ASSERT(w->used - before <= TB_STATEMENT_BYTES_MAX);
}

enum tb_status tb_statement_decode(const void *bytes, size_t count, struct tb_statement *statement_out)
{
    struct tb_reader r;
    struct tb_statement s = {0};
    tb_reader_init(&r, bytes, count);
    const uint8_t *begun = tb_read_span(&r, sizeof magic);
    if (begun == NULL || memcmp(begun, magic, sizeof magic) != 0) return TB_PEER_GARBLED;
    s.kind = (enum tb_statement_kind)tb_read_u8(&r);
    tb_read_name(&r, &s.model);
    s.uid = tb_read_id(&r);
    s.run = tb_read_id(&r);
    s.run_order = tb_read_u64(&r);
    s.number = tb_read_u64(&r);
    tb_read_bytes(&r, s.root.bytes, sizeof s.root.bytes);
    s.wall_ms = tb_read_u64(&r);
    s.shard_count = tb_read_u32(&r);
    tb_read_bytes(&r, s.digest.bytes, sizeof s.digest.bytes);
    if (s.kind == TB_STATEMENT_SHARD) s.shard = tb_read_u32(&r);
    if (!tb_reader_ended(&r) || !is_valid(&s)) return TB_PEER_GARBLED;
    *statement_out = s;
    return TB_OK;
}

bool tb_statement_equal(const struct tb_statement *a, const struct tb_statement *b)
{
    return a->kind == b->kind && tb_name_equal(&a->model, &b->model) && tb_id_equal(&a->uid, &b->uid) &&
           tb_id_equal(&a->run, &b->run) && a->run_order == b->run_order && a->number == b->number &&
           memcmp(a->root.bytes, b->root.bytes, sizeof a->root.bytes) == 0 && a->wall_ms == b->wall_ms &&
           a->shard_count == b->shard_count && a->shard == b->shard &&
           tb_digest_equal(&a->digest, &b->digest);
}

struct tb_id tb_statement_shard_id(const struct tb_id *uid, uint32_t shard)
{
    struct tb_id id = *uid;
    for (uint32_t i = 0; i < 4; i++)
        id.bytes[i] ^= (uint8_t)(shard >> 8 * i);
    return id;
}

struct tb_id tb_statement_id(const struct tb_statement *what)
{
    if (what->kind == TB_STATEMENT_SHARD) return tb_statement_shard_id(&what->uid, what->shard);
    return what->kind == TB_STATEMENT_RUN ? what->run : what->uid;
}
