/* blake3.c - the tree over leaves, by what this processor has (blake3_kernels.h).
 *
 * A subtree of two to the power of k leaves that begins at a multiple of its size is the same in
 * every tree, unless it is the whole: so nodes wait on a stack, and two of one size become their
 * parent as soon as more follows. A level is reduced by pairs; a node that is left over goes up as
 * it is, which is the paper's rule (section 2.1: the left subtree is full). */
#include "base/proof/blake3.h"

#include <string.h>

#include "base/assert.h"
#include "base/proof/blake3_kernels.h"
#include "base/tsan_marks.h"

#define BATCH_LEAVES 256 /* at once: wide enough that the upper levels of its tree fill the lanes too */
#define BATCH_BYTES  ((size_t)BATCH_LEAVES * TB_BLAKE3_LEAF_BYTES)
#define START        tb_blake3_start

static uint32_t turned(uint32_t x, int bits)
{
    return x >> bits | x << (32 - bits);
}

static void mix(uint32_t v[16], size_t a, size_t b, size_t c, size_t d, uint32_t x, uint32_t y)
{
    v[a] += v[b] + x;
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = turned(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 7);
}

/* One block of at most TB_BLAKE3_BLOCK_BYTES; what it lacks counts as zeros. */
static void compress(struct tb_blake3_node *chain, const void *block, size_t bytes, uint64_t number,
                     uint32_t flags)
{
    TB_ASSERT(bytes <= TB_BLAKE3_BLOCK_BYTES);
    uint32_t m[16] = {0};
    if (bytes != 0) memcpy(m, block, bytes);
    const uint32_t *c = chain->words;
    uint32_t v[16] = {c[0],
                      c[1],
                      c[2],
                      c[3],
                      c[4],
                      c[5],
                      c[6],
                      c[7],
                      START[0],
                      START[1],
                      START[2],
                      START[3],
                      (uint32_t)number,
                      (uint32_t)(number >> 32),
                      (uint32_t)bytes,
                      flags};
    for (size_t r = 0; r < TB_BLAKE3_ROUNDS; r++) {
        const uint8_t *at = tb_blake3_order[r];
        for (size_t i = 0; i < 4; i++)
            mix(v, i, 4 + i, 8 + i, 12 + i, m[at[2 * i]], m[at[2 * i + 1]]);
        for (size_t i = 0; i < 4; i++)
            mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[at[8 + 2 * i]], m[at[9 + 2 * i]]);
    }
    for (size_t i = 0; i < 8; i++)
        chain->words[i] = v[i] ^ v[8 + i];
}

/* A leaf of up to TB_BLAKE3_LEAF_BYTES; the empty one has one empty block. */
static struct tb_blake3_node leaf_node(const uint8_t *bytes, size_t count, uint64_t number, uint32_t root)
{
    TB_ASSERT(count <= TB_BLAKE3_LEAF_BYTES);
    struct tb_blake3_node chain;
    memcpy(chain.words, START, sizeof chain.words);
    size_t at = 0;
    do {
        const size_t left = count - at, block = left < TB_BLAKE3_BLOCK_BYTES ? left : TB_BLAKE3_BLOCK_BYTES;
        compress(&chain, bytes + at, block, number,
                 (at == 0 ? TB_BLAKE3_CHUNK_START : 0u) | (left == block ? TB_BLAKE3_CHUNK_END | root : 0u));
        at += block;
    } while (at < count);
    return chain;
}

static struct tb_blake3_node parent_node(const struct tb_blake3_node *left,
                                         const struct tb_blake3_node *right, uint32_t root)
{
    struct tb_blake3_node children[2] = {*left, *right}, chain;
    memcpy(chain.words, START, sizeof chain.words);
    compress(&chain, children, sizeof children, 0, TB_BLAKE3_PARENT | root);
    return chain;
}

/* Level by level, down to one node. Where that is the root of all, its parent alone says so. */
static struct tb_blake3_node reduced(const struct tb_blake3_kernels *k, struct tb_blake3_node *nodes,
                                     size_t count, uint32_t root)
{
    TB_ASSERT(count > 0 && count <= BATCH_LEAVES);
    while (count > 2) {
        const size_t pairs = count / 2;
        k->parents(nodes, pairs, nodes);
        if (count % 2 != 0) nodes[pairs] = nodes[count - 1];
        count = pairs + count % 2;
    }
    return count == 2 ? parent_node(&nodes[0], &nodes[1], root) : nodes[0];
}

/* Up to a batch of bytes, of which only the last leaf may lack some: more than one leaf where it is
 * the root. */
static struct tb_blake3_node subtree(const struct tb_blake3_kernels *k, const uint8_t *bytes, size_t count,
                                     uint64_t number, uint32_t root)
{
    TB_ASSERT(count > 0 && count <= BATCH_BYTES && (root == 0 || count > TB_BLAKE3_LEAF_BYTES));
    struct tb_blake3_node nodes[BATCH_LEAVES];
    const size_t whole = count / TB_BLAKE3_LEAF_BYTES, rest = count % TB_BLAKE3_LEAF_BYTES;
    if (whole != 0) k->leaves(bytes, whole, number, nodes);
    if (rest != 0) nodes[whole] = leaf_node(bytes + count - rest, rest, number + whole, 0);
    return reduced(k, nodes, whole + (rest != 0), root);
}

/* A full subtree of `leaves` leaves, of which the tree has more to the right. */
static void push(struct tb_blake3_state *s, struct tb_blake3_node node, size_t leaves)
{
    TB_ASSERT(leaves > 0 && (leaves & (leaves - 1)) == 0);
    TB_ASSERT(s->leaves % leaves == 0);
    s->leaves += leaves;
    for (uint64_t n = s->leaves / leaves; n % 2 == 0; n /= 2) {
        TB_ASSERT(s->depth > 0);
        node = parent_node(&s->stack[--s->depth], &node, 0);
    }
    TB_ASSERT(s->depth < TB_BLAKE3_DEPTH_MAX);
    s->stack[s->depth++] = node;
}

static struct tb_blake3 as_bytes(const struct tb_blake3_node *root)
{
    struct tb_blake3 digest;
    memcpy(digest.bytes, root->words, sizeof digest.bytes);
    return digest;
}

/* `node` is the right end of the tree, not yet the root unless nothing waits. */
static struct tb_blake3 ended(const struct tb_blake3_state *s, struct tb_blake3_node node)
{
    TB_ASSERT(s->depth <= TB_BLAKE3_DEPTH_MAX);
    for (uint32_t i = s->depth; i-- > 0;)
        node = parent_node(&s->stack[i], &node, i == 0 ? TB_BLAKE3_ROOT : 0);
    return as_bytes(&node);
}

static void begin(struct tb_blake3_state *s)
{
    s->leaves = 0;
    s->depth = s->filled = 0;
}

struct tb_blake3 tb_blake3_by(const struct tb_blake3_kernels *kernels, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    struct tb_blake3_state s;
    begin(&s);
    for (; count > BATCH_BYTES; at += BATCH_BYTES, count -= BATCH_BYTES)
        push(&s, subtree(kernels, at, BATCH_BYTES, s.leaves, 0), BATCH_LEAVES);
    const uint32_t root = s.depth == 0 ? TB_BLAKE3_ROOT : 0;
    if (count <= TB_BLAKE3_LEAF_BYTES) return ended(&s, leaf_node(at, count, s.leaves, root));
    return ended(&s, subtree(kernels, at, count, s.leaves, root));
}

struct tb_blake3 tb_blake3_of(const void *bytes, size_t count)
{
    TB_TSAN_READS(bytes, count);
    return tb_blake3_by(tb_blake3_kernels(TB_VECTOR_BEST), bytes, count);
}

bool tb_blake3_equal(const struct tb_blake3 *a, const struct tb_blake3 *b)
{
    TB_TSAN_READS(a, sizeof *a);
    TB_TSAN_READS(b, sizeof *b);
    uint8_t differs = 0;
    for (size_t i = 0; i < TB_BLAKE3_BYTES; i++)
        differs |= a->bytes[i] ^ b->bytes[i];
    return differs == 0;
}

void tb_blake3_begin(struct tb_blake3_state *s)
{
    TB_TSAN_WRITES(s, sizeof *s);
    begin(s);
}

/* The largest full subtree that may begin here and of which more follows than itself. */
static size_t subtree_leaves(uint64_t number, size_t count)
{
    size_t leaves = BATCH_LEAVES;
    while (leaves > 1 && (number % leaves != 0 || leaves * TB_BLAKE3_LEAF_BYTES >= count))
        leaves /= 2;
    TB_ASSERT(leaves >= 1 && number % leaves == 0);
    return leaves;
}

void tb_blake3_update(struct tb_blake3_state *s, const void *bytes, size_t count)
{
    TB_TSAN_READS(bytes, count);
    TB_TSAN_WRITES(s, sizeof *s);
    const struct tb_blake3_kernels *k = tb_blake3_kernels(TB_VECTOR_BEST);
    TB_ASSERT(s->filled <= TB_BLAKE3_LEAF_BYTES);
    const uint8_t *at = bytes;
    while (count > 0) {
        if (s->filled == TB_BLAKE3_LEAF_BYTES) {
            s->filled = 0;
            push(s, leaf_node(s->leaf, TB_BLAKE3_LEAF_BYTES, s->leaves, 0), 1);
        }
        size_t take = TB_BLAKE3_LEAF_BYTES - s->filled;
        if (s->filled == 0 && count > TB_BLAKE3_LEAF_BYTES) {
            const size_t leaves = subtree_leaves(s->leaves, count);
            take = leaves * TB_BLAKE3_LEAF_BYTES;
            push(s, subtree(k, at, take, s->leaves, 0), leaves);
        } else {
            if (take > count) take = count;
            memcpy(s->leaf + s->filled, at, take);
            s->filled += (uint32_t)take;
        }
        at += take;
        count -= take;
    }
}

struct tb_blake3 tb_blake3_end(const struct tb_blake3_state *s)
{
    TB_TSAN_READS(s, sizeof *s);
    return ended(s, leaf_node(s->leaf, s->filled, s->leaves, s->depth == 0 ? TB_BLAKE3_ROOT : 0));
}
