/* version_key.c - a version's key and its root. */
#include "base/layout/version_key.h"

#include <string.h>

#include "base/assert.h"
#include "base/layout/layout.h"

struct tb_digest tb_version_key_root(const struct tb_version_key *key, const struct tb_digest *shard_roots)
{
    TB_ASSERT(key->shard_count > 0 && key->shard_count <= TB_SHARDS_MAX);
    struct tb_digest_state s;
    uint8_t bytes[128];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_bytes(&w, "tbversn1", 8);
    tb_write_id(&w, &key->uid);
    tb_write_name(&w, &key->model);
    tb_write_id(&w, &key->run);
    tb_write_u64(&w, key->number);
    tb_write_u32(&w, key->shard_count);
    TB_ASSERT(!w.full);
    tb_digest_begin(&s);
    tb_digest_update(&s, bytes, w.used);
    tb_digest_update(&s, shard_roots, key->shard_count * sizeof *shard_roots);
    return tb_digest_end(&s);
}

void tb_version_key_encode(const struct tb_version_key *key, struct tb_writer *w)
{
    tb_write_id(w, &key->uid);
    tb_write_name(w, &key->model);
    tb_write_id(w, &key->run);
    tb_write_u64(w, key->run_order);
    tb_write_u64(w, key->number);
    tb_write_u32(w, key->shard_count);
    tb_write_bytes(w, key->root.bytes, TB_DIGEST_BYTES);
}

enum tb_status tb_version_key_decode(struct tb_reader *r, struct tb_version_key *key_out)
{
    struct tb_version_key key;
    memset(&key, 0, sizeof key);
    key.uid = tb_read_id(r);
    tb_read_name(r, &key.model);
    key.run = tb_read_id(r);
    key.run_order = tb_read_u64(r);
    key.number = tb_read_u64(r);
    key.shard_count = tb_read_u32(r);
    tb_read_bytes(r, key.root.bytes, TB_DIGEST_BYTES);

    if (r->bad) return TB_PEER_GARBLED;
    if (tb_id_is_zero(&key.uid)) return TB_PEER_GARBLED;
    if (key.shard_count == 0 || key.shard_count > TB_SHARDS_MAX) return TB_PEER_GARBLED;
    *key_out = key;
    return TB_OK;
}

int tb_version_key_compare(const struct tb_version_key *a, const struct tb_version_key *b)
{
    if (a->run_order != b->run_order) return a->run_order < b->run_order ? -1 : 1;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return 0;
}
