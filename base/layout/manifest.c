/* manifest.c - what a shard of a version is, and the roots over it. */
#include "base/layout/manifest.h"

#include <string.h>

#include "base/assert.h"
#include "base/bitmap.h"
#include "base/carve.h"
#include "base/layout/blob_name.h"
#include "base/layout/chunk_cut.h"
#include "base/utf8.h"

/* "a", "a/b" but not "", "/a", "a/", "a//b", ".", "a/../b": no component is empty, "." or "..". */
static bool components_clean(const char *name, size_t count)
{
    size_t start = 0;
    for (size_t i = 0; i <= count; i++) {
        if (i < count && name[i] != '/') continue;
        const size_t bytes = i - start;
        const char *part = name + start;
        if (bytes == 0 || (bytes == 1 && part[0] == '.') ||
            (bytes == 2 && part[0] == '.' && part[1] == '.')) {
            return false;
        }
        start = i + 1;
    }
    return true;
}

static bool blob_name_clean(const void *name, size_t count)
{
    if (count == 0 || count > TB_BLOB_NAME_MAX) return false;
    return tb_utf8_is_clean(name, count) && components_clean(name, count);
}

bool tb_blob_name_valid(const char *name)
{
    return blob_name_clean(name, strnlen(name, TB_BLOB_NAME_MAX + 1));
}

/* A folder of that name would stand where subscribe writes its marker. */
static bool begins_with_marker(const char *name)
{
    const size_t bytes = strcspn(name, "/");
    return (bytes == 6 && memcmp(name, "STABLE", 6) == 0) ||
           (bytes == 9 && memcmp(name, "WITHDRAWN", 9) == 0);
}

bool tb_blob_file_name_valid(const char *name)
{
    static const char ours[] = ".tombolo";
    uint32_t folders = 0;
    if (!tb_blob_name_valid(name) || begins_with_marker(name)) return false;
    for (const char *part = name; part != NULL; part = strchr(part, '/')) {
        if (*part == '/') {
            part++;
            folders++;
        }
        if (strncmp(part, ours, sizeof ours - 1) == 0) return false;
    }
    return folders <= TB_FILE_DEPTH_MAX;
}

bool tb_blob_name_writable(const char *name)
{
    static const char header[] = ".tombolo/header/", file[] = ".tombolo/file/";
    if (!tb_blob_name_valid(name)) return false;
    if (strncmp(name, header, sizeof header - 1) == 0)
        return tb_blob_file_name_valid(name + sizeof header - 1);
    if (strncmp(name, file, sizeof file - 1) != 0) return tb_blob_file_name_valid(name);
    const char *hex = name + sizeof file - 1;
    const size_t digits = strspn(hex, "0123456789abcdef");
    return digits == (size_t)2 * TB_DIGEST_BYTES && hex[digits] == '/' &&
           tb_blob_file_name_valid(hex + digits + 1);
}

/* The end, then '/', then all else. */
static int place_of(char c)
{
    if (c == '/') return 1;
    return c == '\0' ? 0 : (unsigned char)c + 1;
}

/* The order of paths: a folder, then all that is in it, then what only begins like it. */
static int path_compare(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return place_of(*a) - place_of(*b);
}

/* Equal, or `b` is in folder `a`: then both can not be files. */
static bool names_clash(const char *a, const char *b)
{
    while (*a != '\0' && *a == *b) {
        a++;
        b++;
    }
    return *a == '\0' && (*b == '\0' || *b == '/');
}

/* The largest of the heap of `count` goes where `top` stands. */
static void sift(const struct tb_blob *blobs, uint16_t *heap, uint32_t count, uint32_t top)
{
    for (uint32_t child; (child = 2 * top + 1) < count; top = child) {
        if (child + 1 < count && path_compare(blobs[heap[child]].name, blobs[heap[child + 1]].name) < 0)
            child++;
        if (path_compare(blobs[heap[top]].name, blobs[heap[child]].name) >= 0) return;
        const uint16_t low = heap[top];
        heap[top] = heap[child];
        heap[child] = low;
    }
}

/* Sorted as paths, who clashes stands side by side: between a folder and what is in it there is
 * only more of that. A peer chooses the names, and a thousand with 250 bytes in common are 130 MB
 * where each is compared with each. */
static bool any_clash(const struct tb_blob *blobs, uint32_t count)
{
    uint16_t order[TB_BLOBS_MAX];
    TB_ASSERT(count <= TB_BLOBS_MAX);
    for (uint32_t i = 0; i < count; i++)
        order[i] = (uint16_t)i;
    for (uint32_t i = count / 2; i-- > 0;)
        sift(blobs, order, count, i);
    for (uint32_t left = count; left-- > 1;) {
        const uint16_t largest = order[0];
        order[0] = order[left];
        order[left] = largest;
        sift(blobs, order, left, 0);
        if (left + 1 < count && names_clash(blobs[order[left]].name, blobs[order[left + 1]].name))
            return true;
    }
    return count > 1 && names_clash(blobs[order[0]].name, blobs[order[1]].name);
}

struct sizes {
    uint64_t names_bytes; /* of blobs, with NULs */
    uint64_t blob_bytes;
};

/* Bounded, and blobs are checked before it is used, so nothing here overflows. */
static struct sizes measure(const struct tb_blob *blobs, uint32_t blob_count)
{
    struct sizes s = {0, 0};
    for (uint32_t i = 0; i < blob_count; i++) {
        s.names_bytes += strlen(blobs[i].name) + 1;
        s.blob_bytes += blobs[i].bytes;
    }
    return s;
}

static enum tb_status check_blobs(const struct tb_blob *blobs, uint32_t blob_count)
{
    if (blob_count > TB_BLOBS_MAX) return TB_TOO_LARGE;
    for (uint32_t i = 0; i < blob_count; i++) {
        if (!tb_blob_name_valid(blobs[i].name)) return TB_BAD_ARGUMENT;
        if (blobs[i].bytes > TB_BLOB_BYTES_MAX) return TB_TOO_LARGE;
    }
    return any_clash(blobs, blob_count) ? TB_BAD_ARGUMENT : TB_OK;
}

static size_t tables_bytes(uint64_t blob_count, uint64_t names_bytes, uint64_t chunk_count)
{
    return tb_carve_bytes(blob_count * sizeof(struct tb_blob)) + tb_carve_bytes(names_bytes) +
           tb_carve_bytes(chunk_count * sizeof(struct tb_chunk)) +
           tb_carve_bytes(chunk_count * sizeof(struct tb_digest)) +
           tb_carve_bytes(chunk_count * sizeof(struct tb_blake3)) +
           tb_carve_bytes(TB_BITMAP_WORDS(chunk_count) * sizeof(uint64_t));
}

size_t tb_manifest_bytes_on(const struct tb_layout *layout, const struct tb_blob *blobs, uint32_t blob_count)
{
    if (check_blobs(blobs, blob_count) != TB_OK) return 0; /* build says why */
    const struct sizes s = measure(blobs, blob_count);
    return tables_bytes(blob_count, s.names_bytes, tb_cut_count(layout, s.blob_bytes));
}

size_t tb_manifest_bytes_for(const struct tb_layout *layout, const struct tb_blob *blobs, uint32_t blob_count)
{
    if (check_blobs(blobs, blob_count) != TB_OK) return 0;
    return tb_layout_copy_bytes(layout) + tb_manifest_bytes_on(layout, blobs, blob_count);
}

static struct tb_blob *copy_blobs(struct tb_carve *c, const struct tb_blob *blobs, uint32_t blob_count,
                                  uint64_t names_bytes)
{
    struct tb_blob *to = tb_carve_take(c, blob_count * sizeof *to);
    char *names = tb_carve_take(c, names_bytes);
    if (to == NULL || names == NULL) return NULL;
    const char *first = names;
    for (uint32_t i = 0; i < blob_count; i++) {
        const size_t name_bytes = strlen(blobs[i].name) + 1;
        to[i] = (struct tb_blob){.name = memcpy(names, blobs[i].name, name_bytes), .bytes = blobs[i].bytes};
        names += name_bytes;
    }
    TB_ASSERT((uint64_t)(names - first) == names_bytes);
    return to;
}

/* No chunk has a digest or a proof yet. */
static bool carve_digests(struct tb_carve *c, struct tb_manifest *m)
{
    const size_t count = m->chunk_count, words = TB_BITMAP_WORDS(count);
    TB_ASSERT(count <= TB_CHUNKS_MAX);
    m->digests = tb_carve_take(c, count * sizeof *m->digests);
    m->proofs = tb_carve_take(c, count * sizeof *m->proofs);
    m->proven = tb_carve_take(c, words * sizeof *m->proven);
    if (m->digests == NULL || m->proofs == NULL || m->proven == NULL) return false;
    if (count == 0) return true;
    memset(m->digests, 0, count * sizeof *m->digests);
    memset(m->proofs, 0, count * sizeof *m->proofs);
    memset(m->proven, 0, words * sizeof *m->proven);
    return true;
}

/* Layout and blobs stand; offsets, the cut and zero digests follow. */
static enum tb_status finish(struct tb_carve *c, struct tb_manifest *m, struct tb_blob *blobs)
{
    uint64_t at = m->layout.bytes;
    for (uint32_t i = 0; i < m->blob_count; i++) {
        blobs[i].offset = at;
        at += blobs[i].bytes;
    }
    m->blobs = blobs;
    m->bytes = at;
    m->blob_bytes = at - m->layout.bytes;
    m->chunk_count = tb_cut_count(&m->layout, m->blob_bytes);
    if (m->chunk_count > TB_CHUNKS_MAX) return TB_TOO_LARGE;

    struct tb_chunk *chunks = tb_carve_take(c, m->chunk_count * sizeof *chunks);
    if (chunks == NULL || !carve_digests(c, m)) return TB_SITE_NOMEM;
    tb_cut(&m->layout, m->blob_bytes, chunks);
    TB_ASSERT(m->chunk_count == 0 ||
              chunks[m->chunk_count - 1].offset + chunks[m->chunk_count - 1].bytes == m->bytes);
    m->chunks = chunks;
    return TB_OK;
}

enum tb_status tb_manifest_build_on(const struct tb_layout *layout, const struct tb_blob *blobs,
                                    uint32_t blob_count, void *memory, size_t cap,
                                    struct tb_manifest *manifest_out)
{
    struct tb_manifest m = {.blob_count = blob_count, .layout = *layout};
    struct tb_carve c = {memory, cap};
    enum tb_status status = check_blobs(blobs, blob_count);
    if (status != TB_OK) return status;
    struct tb_blob *copies = copy_blobs(&c, blobs, blob_count, measure(blobs, blob_count).names_bytes);
    if (copies == NULL) return TB_SITE_NOMEM;
    status = finish(&c, &m, copies);
    if (status != TB_OK) return status;
    *manifest_out = m;
    return TB_OK;
}

enum tb_status tb_manifest_build(const struct tb_layout *layout, const struct tb_blob *blobs,
                                 uint32_t blob_count, void *memory, size_t cap,
                                 struct tb_manifest *manifest_out)
{
    struct tb_layout copy;
    struct tb_carve c = {memory, cap};
    const enum tb_status checked = check_blobs(blobs, blob_count);
    if (checked != TB_OK) return checked;
    const size_t layout_bytes = tb_layout_copy_bytes(layout);
    void *layout_memory = tb_carve_take(&c, layout_bytes);
    if (layout_memory == NULL) return TB_SITE_NOMEM;
    const enum tb_status copied = tb_layout_copy(layout, layout_memory, layout_bytes, &copy);
    if (copied != TB_OK) return copied;
    return tb_manifest_build_on(&copy, blobs, blob_count, c.at, c.left, manifest_out);
}

static void blob_encode(const struct tb_blob *blob, struct tb_writer *w)
{
    tb_write_str(w, blob->name);
    tb_write_u64(w, blob->bytes);
}

bool tb_manifest_same_cut(const struct tb_manifest *a, const struct tb_manifest *b)
{
    if (!tb_digest_equal(&a->layout.id, &b->layout.id)) return false;
    if (a->bytes != b->bytes || a->chunk_count != b->chunk_count) return false;
    for (uint32_t k = 0; k < a->chunk_count; k++)
        if (a->chunks[k].offset != b->chunks[k].offset || a->chunks[k].bytes != b->chunks[k].bytes)
            return false;
    return true;
}

struct tb_digest tb_manifest_root(const struct tb_manifest *manifest)
{
    struct tb_digest_state s;
    uint8_t bytes[2 + TB_BLOB_NAME_MAX + 8];
    struct tb_writer w;
    tb_digest_begin(&s);
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_bytes(&w, "tbshard1", 8);
    tb_write_bytes(&w, manifest->layout.id.bytes, TB_DIGEST_BYTES);
    tb_write_u32(&w, manifest->blob_count);
    tb_digest_update(&s, bytes, w.used);
    for (uint32_t i = 0; i < manifest->blob_count; i++) {
        tb_writer_init(&w, bytes, sizeof bytes);
        blob_encode(&manifest->blobs[i], &w);
        TB_ASSERT(!w.full);
        tb_digest_update(&s, bytes, w.used);
    }
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_u32(&w, manifest->chunk_count);
    tb_digest_update(&s, bytes, w.used);
    tb_digest_update(&s, manifest->digests, manifest->chunk_count * sizeof *manifest->digests);
    return tb_digest_end(&s);
}

bool tb_manifest_proof(const struct tb_manifest *m, uint32_t k, struct tb_blake3 *proof_out)
{
    TB_ASSERT(k < m->chunk_count);
    if (!tb_bitmap_test(m->proven, k)) return false;
    *proof_out = m->proofs[k];
    return true;
}

void tb_manifest_set_proof(struct tb_manifest *m, uint32_t k, const struct tb_blake3 *proof)
{
    TB_ASSERT(k < m->chunk_count);
    if (tb_bitmap_test(m->proven, k)) return;
    m->proofs[k] = *proof;
    const bool first = tb_bitmap_set(m->proven, k); /* readers see the proof before the bit */
    TB_ASSERT(first);
}

bool tb_manifest_all_proven(const struct tb_manifest *m)
{
    return tb_bitmap_next_clear(m->proven, m->chunk_count, 0) == m->chunk_count;
}

uint32_t tb_manifest_proven_count(const struct tb_manifest *m)
{
    return tb_bitmap_popcount(m->proven, m->chunk_count);
}

size_t tb_manifest_head_bytes(const struct tb_manifest *manifest)
{
    size_t bytes = 4 + tb_layout_encoded_bytes(&manifest->layout) + 4 + TB_DIGEST_BYTES;
    for (uint32_t i = 0; i < manifest->blob_count; i++)
        bytes += 2 + strlen(manifest->blobs[i].name) + 8;
    return bytes;
}

void tb_manifest_head_encode(const struct tb_manifest *manifest, struct tb_writer *w)
{
    const size_t before = w->used;
    TB_ASSERT(manifest->blob_count <= TB_BLOBS_MAX);
    tb_write_u32(w, (uint32_t)tb_layout_encoded_bytes(&manifest->layout));
    tb_layout_encode(&manifest->layout, w);
    tb_write_u32(w, manifest->blob_count);
    for (uint32_t i = 0; i < manifest->blob_count; i++)
        blob_encode(&manifest->blobs[i], w);
    tb_write_bytes(w, manifest->root.bytes, TB_DIGEST_BYTES);
    TB_ASSERT(w->full || w->used - before == tb_manifest_head_bytes(manifest));
}

/* A head taken apart; everything is borrowed from its bytes. */
struct head {
    const uint8_t *layout;
    uint32_t layout_bytes;
    uint32_t blob_count;
    const uint8_t *blobs; /* encoded */
    size_t blobs_bytes;
    uint64_t names_bytes;
    uint64_t blob_bytes;
    struct tb_digest root;
};

static bool blob_decode(struct tb_reader *r, const uint8_t **name_out, uint16_t *name_bytes_out,
                        uint64_t *bytes_out)
{
    *name_bytes_out = tb_read_u16(r);
    *name_out = tb_read_span(r, *name_bytes_out);
    *bytes_out = tb_read_u64(r);
    return !r->bad && *bytes_out <= TB_BLOB_BYTES_MAX && blob_name_clean(*name_out, *name_bytes_out);
}

static bool head_parse(const void *bytes, size_t count, struct head *h_out)
{
    struct tb_reader r;
    struct head h = {0};
    tb_reader_init(&r, bytes, count);
    h.layout_bytes = tb_read_u32(&r);
    h.layout = tb_read_span(&r, h.layout_bytes);
    h.blob_count = tb_read_u32(&r);
    if (r.bad || h.blob_count > TB_BLOBS_MAX) return false;
    h.blobs = r.at;
    h.blobs_bytes = r.left;
    for (uint32_t i = 0; i < h.blob_count; i++) {
        const uint8_t *name = NULL;
        uint16_t name_bytes = 0;
        uint64_t blob_bytes = 0;
        if (!blob_decode(&r, &name, &name_bytes, &blob_bytes)) return false;
        h.names_bytes += (uint64_t)name_bytes + 1;
        h.blob_bytes += blob_bytes;
    }
    h.blobs_bytes -= r.left;
    tb_read_bytes(&r, h.root.bytes, TB_DIGEST_BYTES);
    *h_out = h;
    return tb_reader_ended(&r);
}

/* No cut of these tensors has more chunks: each tensor gives at most bytes / target + 1,
 * and so do the blobs. */
static uint64_t chunk_count_bound(uint64_t tensor_count, uint64_t tensor_bytes, uint64_t blob_bytes)
{
    const uint64_t target = tb_cut_target_bytes(tensor_bytes);
    return tensor_count + tensor_bytes / target + blob_bytes / target + 2;
}

size_t tb_manifest_decode_bytes(const void *head, size_t head_bytes)
{
    struct head h;
    uint64_t tensor_bytes = 0;
    uint32_t tensor_count = 0;
    if (!head_parse(head, head_bytes, &h)) return 0;
    const size_t layout_bytes = tb_layout_decode_bytes(h.layout, h.layout_bytes);
    if (layout_bytes == 0 || !tb_layout_survey(h.layout, h.layout_bytes, &tensor_count, &tensor_bytes))
        return 0;
    uint64_t chunks = chunk_count_bound(tensor_count, tensor_bytes, h.blob_bytes);
    if (chunks > TB_CHUNKS_MAX) chunks = TB_CHUNKS_MAX; /* decode refuses what would need more */
    return tb_carve_bytes(layout_bytes) + tables_bytes(h.blob_count, h.names_bytes, chunks);
}

size_t tb_manifest_decoded_bytes(const struct tb_manifest *m)
{
    const size_t layout_bytes = tb_layout_bytes_for(m->layout.tensors, m->layout.tensor_count);
    uint64_t chunks = chunk_count_bound(m->layout.tensor_count, m->layout.bytes, m->blob_bytes);
    if (chunks > TB_CHUNKS_MAX) chunks = TB_CHUNKS_MAX;
    return tb_carve_bytes(layout_bytes > 0 ? layout_bytes : 16) +
           tables_bytes(m->blob_count, measure(m->blobs, m->blob_count).names_bytes, chunks);
}

static struct tb_blob *decode_blobs(struct tb_carve *c, const struct head *h)
{
    struct tb_reader r;
    struct tb_blob *blobs = tb_carve_take(c, h->blob_count * sizeof *blobs);
    char *names = tb_carve_take(c, h->names_bytes);
    if (blobs == NULL || names == NULL) return NULL;
    const char *first = names;
    tb_reader_init(&r, h->blobs, h->blobs_bytes);
    for (uint32_t i = 0; i < h->blob_count; i++) {
        const uint8_t *name = NULL;
        uint16_t name_bytes = 0;
        uint64_t bytes = 0;
        const bool good = blob_decode(&r, &name, &name_bytes, &bytes);
        TB_ASSERT(good); /* head_parse has been here */
        blobs[i] = (struct tb_blob){.name = memcpy(names, name, name_bytes), .bytes = bytes};
        names[name_bytes] = '\0';
        names += (size_t)name_bytes + 1;
    }
    TB_ASSERT((uint64_t)(names - first) == h->names_bytes && tb_reader_ended(&r));
    return blobs;
}

/* Blobs, cut and zero digests over a layout that stands. */
static enum tb_status head_finish(const struct head *h, const struct tb_layout *layout, struct tb_carve *c,
                                  struct tb_manifest *manifest_out)
{
    struct tb_manifest m = {.blob_count = h->blob_count, .root = h->root, .layout = *layout};
    struct tb_blob *blobs = decode_blobs(c, h);
    if (blobs == NULL) return TB_SITE_NOMEM;
    if (any_clash(blobs, h->blob_count)) return TB_PEER_GARBLED;
    const enum tb_status status = finish(c, &m, blobs);
    if (status == TB_TOO_LARGE) return TB_PEER_GARBLED;
    if (status != TB_OK) return status;
    *manifest_out = m;
    return TB_OK;
}

enum tb_status tb_manifest_head_decode(const void *head, size_t head_bytes, void *memory, size_t cap,
                                       struct tb_manifest *manifest_out)
{
    struct head h;
    struct tb_layout layout;
    struct tb_carve c = {memory, cap};
    if (!head_parse(head, head_bytes, &h)) return TB_PEER_GARBLED;
    const size_t layout_bytes = tb_layout_decode_bytes(h.layout, h.layout_bytes);
    if (layout_bytes == 0) return TB_PEER_GARBLED;
    void *layout_memory = tb_carve_take(&c, layout_bytes);
    if (layout_memory == NULL) return TB_SITE_NOMEM;
    const enum tb_status status =
        tb_layout_decode(h.layout, h.layout_bytes, layout_memory, tb_carve_bytes(layout_bytes), &layout);
    return status == TB_OK ? head_finish(&h, &layout, &c, manifest_out) : status;
}

const uint8_t *tb_manifest_head_layout(const void *head, size_t head_bytes, size_t *bytes_out)
{
    struct head h;
    if (!head_parse(head, head_bytes, &h)) return NULL;
    *bytes_out = h.layout_bytes;
    return h.layout;
}

size_t tb_manifest_decode_bytes_on(const void *head, size_t head_bytes, const struct tb_layout *layout)
{
    struct head h;
    if (!head_parse(head, head_bytes, &h)) return 0;
    const uint32_t chunks = tb_cut_count(layout, h.blob_bytes);
    if (chunks > TB_CHUNKS_MAX) return 0;
    const size_t bytes = tables_bytes(h.blob_count, h.names_bytes, chunks);
    return bytes > 0 ? bytes : 16; /* 0 says "not a head" */
}

enum tb_status tb_manifest_head_decode_on(const void *head, size_t head_bytes, const struct tb_layout *layout,
                                          void *memory, size_t cap, struct tb_manifest *manifest_out)
{
    struct head h;
    struct tb_carve c = {memory, cap};
    if (!head_parse(head, head_bytes, &h)) return TB_PEER_GARBLED;
    return head_finish(&h, layout, &c, manifest_out);
}
