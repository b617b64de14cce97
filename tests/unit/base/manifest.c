/* manifest.c - the root covers everything that a shard is (P1), and a head from a stranger is
 * bounded (P7).
 *
 * Covers: base/layout/manifest.c
 * Covers: base/layout/version_key.c */
#include "base/layout/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout/blob_name.h"
#include "base/layout/chunk_cut.h"
#include "tests/unit/check.h"

static const struct tb_tensor sample_tensors[] = {
    {.name = "embed", .dtype = TB_DTYPE_BF16, .rank = 2, .full = {1024, 700}, .box_count = {1024, 700}},
    {.name = "norm", .dtype = TB_DTYPE_F32, .rank = 1, .full = {700}, .box_count = {700}},
};
static const struct tb_blob sample_blobs[] = {{.name = "config.json", .bytes = 1000},
                                              {.name = "tok/vocab", .bytes = 7}};

struct sample {
    void *layout_memory;
    void *memory;
    struct tb_manifest m;
};

static void sample_new(struct sample *s, const struct tb_blob *blobs, uint32_t blob_count)
{
    struct tb_layout layout;
    const size_t layout_bytes = tb_layout_bytes_for(sample_tensors, 2);
    s->layout_memory = malloc(layout_bytes);
    CHECK_OK(tb_layout_build(sample_tensors, 2, s->layout_memory, layout_bytes, &layout));
    const size_t bytes = tb_manifest_bytes_for(&layout, blobs, blob_count);
    s->memory = malloc(bytes);
    for (size_t cap = 0; cap < bytes; cap += 64)
        CHECK_STATUS(tb_manifest_build(&layout, blobs, blob_count, s->memory, cap, &s->m), TB_SITE_NOMEM);
    CHECK_OK(tb_manifest_build(&layout, blobs, blob_count, s->memory, bytes, &s->m));
    free(s->layout_memory); /* the manifest has its own copy */
    for (uint32_t k = 0; k < s->m.chunk_count; k++)
        s->m.digests[k] = tb_digest_of(&k, sizeof k);
    s->m.root = tb_manifest_root(&s->m);
}

static void sample_free(struct sample *s)
{
    free(s->memory);
}

static void blobs_stand_behind_the_tensors(void **state)
{
    (void)state;
    struct sample s;
    sample_new(&s, sample_blobs, 2);
    assert_true(s.m.layout.bytes == 1024 * 700 * 2 + 2800);
    assert_true(s.m.blobs[0].offset == s.m.layout.bytes);
    assert_true(s.m.blobs[1].offset == s.m.layout.bytes + 1000);
    assert_true(s.m.blob_bytes == 1007 && s.m.bytes == s.m.layout.bytes + 1007);
    assert_int_equal(s.m.chunk_count, tb_cut_count(&s.m.layout, 1007));
    sample_free(&s);
}

static void a_chunk_has_a_proof_from_when_it_is_set(void **state)
{
    (void)state;
    struct sample s;
    struct tb_blake3 found;
    sample_new(&s, sample_blobs, 2);
    assert_true(s.m.chunk_count > 1);
    const struct tb_digest root = tb_manifest_root(&s.m);
    for (uint32_t k = 0; k < s.m.chunk_count; k++) {
        const struct tb_blake3 proof = tb_blake3_of(&k, sizeof k), late = tb_blake3_of("late", 4);
        assert_false(tb_manifest_proof(&s.m, k, &found) || tb_manifest_all_proven(&s.m));
        assert_int_equal(tb_manifest_proven_count(&s.m), k);
        tb_manifest_set_proof(&s.m, k, &proof);
        tb_manifest_set_proof(&s.m, k, &late); /* a proof never changes */
        assert_true(tb_manifest_proof(&s.m, k, &found) && tb_blake3_equal(&found, &proof));
    }
    assert_true(tb_manifest_all_proven(&s.m));
    const struct tb_digest same = tb_manifest_root(&s.m);
    assert_true(tb_digest_equal(&root, &same)); /* what the publisher sealed stays */
    sample_free(&s);
}

static void blob_names_are_clean_paths(void **state)
{
    (void)state;
    char longest[TB_BLOB_NAME_MAX + 2];
    memset(longest, 'b', sizeof longest);
    longest[TB_BLOB_NAME_MAX] = '\0';
    assert_true(tb_blob_name_valid(longest));
    longest[TB_BLOB_NAME_MAX] = 'b';
    longest[TB_BLOB_NAME_MAX + 1] = '\0';
    assert_false(tb_blob_name_valid(longest));
    static const char *const good[] = {"a", "a/b", "config.json", ".hidden", "...", "a/..b/c", "x y"};
    static const char *const bad[] = {"",       "/",   "/a",  "a/",   "a//b", ".",    "..",     "../a",
                                      "a/../b", "a/.", "./a", "a/..", "a\nb", "\xff", "a\x1b[", "a/\t/b"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(tb_blob_name_valid(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(tb_blob_name_valid(bad[i]));
}

/* A blob that a subscriber cannot write as a file is refused before it is published. */
static void blob_names_are_files_that_can_be_written(void **state)
{
    (void)state;
    static const char hex[] = "0123456789abcdef0123456789abcdef";
    char mark[128], short_mark[128], nested[128];
    (void)snprintf(mark, sizeof mark, ".tombolo/file/%s/a.safetensors", hex);
    (void)snprintf(short_mark, sizeof short_mark, ".tombolo/file/%s/a.safetensors", hex + 1);
    (void)snprintf(nested, sizeof nested, ".tombolo/file/%s/.tombolo/header/a", hex);
    const char *const good[] = {
        "config.json",         "a/STABLE", "STABLE.txt", "1/2/3/4/5/6/7/8/x", "STABL/x",
        ".tombolo/header/a/b", mark,       "a/x.tombolo"};
    const char *const bad[] = {"STABLE",
                               "WITHDRAWN",
                               "STABLE/x",
                               "WITHDRAWN/a/x",
                               ".tombolo/header/STABLE/x",
                               "1/2/3/4/5/6/7/8/9/x",
                               ".tombolo",
                               ".tombolo-lock",
                               "a/.tombolo-part",
                               ".tombolo/header/STABLE",
                               ".tombolo/header/",
                               "../x",
                               short_mark,
                               nested,
                               ".tombolo/other/x"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        if (!tb_blob_name_writable(good[i])) fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (tb_blob_name_writable(bad[i])) fail_msg("%s is taken", bad[i]);
    assert_false(tb_blob_file_name_valid(".tombolo/header/a"));
}

static enum tb_status try_blobs(const struct tb_blob *blobs, uint32_t count)
{
    static _Alignas(16) uint8_t memory[1 << 18];
    static _Alignas(16) uint8_t layout_memory[4096];
    struct tb_layout layout;
    struct tb_manifest m;
    CHECK_OK(tb_layout_build(sample_tensors, 2, layout_memory, sizeof layout_memory, &layout));
    return tb_manifest_build(&layout, blobs, count, memory, sizeof memory, &m);
}

static void blobs_that_cannot_all_be_files_are_refused(void **state)
{
    (void)state;
    CHECK_OK(try_blobs((struct tb_blob[]){{.name = "a"}, {.name = "ab"}, {.name = "b/a"}}, 3));
    CHECK_STATUS(try_blobs((struct tb_blob[]){{.name = "a"}, {.name = "a"}}, 2), TB_BAD_ARGUMENT);
    CHECK_STATUS(try_blobs((struct tb_blob[]){{.name = "a"}, {.name = "a/b"}}, 2), TB_BAD_ARGUMENT);
    CHECK_STATUS(try_blobs((struct tb_blob[]){{.name = "a/b"}, {.name = "x"}, {.name = "a"}}, 3),
                 TB_BAD_ARGUMENT);
    CHECK_STATUS(try_blobs((struct tb_blob[]){{.name = "../a"}}, 1), TB_BAD_ARGUMENT);
    CHECK_OK(try_blobs((struct tb_blob[]){{.name = "a", .bytes = TB_BLOB_BYTES_MAX}}, 1));
    CHECK_STATUS(try_blobs((struct tb_blob[]){{.name = "a", .bytes = TB_BLOB_BYTES_MAX + 1}}, 1),
                 TB_TOO_LARGE);
    CHECK_STATUS(try_blobs(NULL, TB_BLOBS_MAX + 1), TB_TOO_LARGE);
}

static bool cannot_both_be_files(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    if (n > m) return cannot_both_be_files(b, a);
    return strncmp(a, b, n) == 0 && (n == m || b[n] == '/');
}

/* Each pair of names clashes as when it is looked at by itself, in any order and with any names
 * between them. */
static void every_clash_is_found(void **state)
{
    (void)state;
    static const char *const names[] = {"a",   "a-b", "a/x",   "a/x/y", "a.b", "ab",  "a-",   "a-/c",
                                        "b/a", "b",   "b/a/x", "b!",    "c",   "c d", "c d/e"};
    enum { NAMES = sizeof names / sizeof names[0], MOST = 7 };
    uint64_t seed = 1;
    uint32_t clashing = 0, clean = 0;
    for (int round = 0; round < 20000; round++) {
        struct tb_blob blobs[MOST];
        uint32_t count = 0;
        bool clash = false;
        for (uint32_t i = 0; i < 2 + (uint32_t)round % (MOST - 1); i++) {
            seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
            blobs[count++] = (struct tb_blob){.name = names[(seed >> 33) % NAMES]};
            for (uint32_t j = 0; j + 1 < count; j++)
                clash = clash || cannot_both_be_files(blobs[j].name, blobs[count - 1].name);
        }
        CHECK_STATUS(try_blobs(blobs, count), clash ? TB_BAD_ARGUMENT : TB_OK);
        clashing += clash;
        clean += !clash;
    }
    assert_true(clashing > 1000 && clean > 1000);
}

/* The documented bytes, put together by hand. */
static void root_is_what_the_header_says(void **state)
{
    (void)state;
    struct sample s;
    uint8_t bytes[1024];
    struct tb_writer w;
    sample_new(&s, sample_blobs, 2);
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_bytes(&w, "tbshard1", 8);
    tb_write_bytes(&w, s.m.layout.id.bytes, 16);
    tb_write_u32(&w, 2);
    tb_write_str(&w, "config.json");
    tb_write_u64(&w, 1000);
    tb_write_str(&w, "tok/vocab");
    tb_write_u64(&w, 7);
    tb_write_u32(&w, s.m.chunk_count);
    tb_write_bytes(&w, s.m.digests, s.m.chunk_count * sizeof *s.m.digests);
    assert_false(w.full);
    const struct tb_digest want = tb_digest_of(bytes, w.used);
    assert_true(tb_digest_equal(&want, &s.m.root));

    s.m.digests[1].bytes[15] ^= 1;
    const struct tb_digest other = tb_manifest_root(&s.m);
    assert_false(tb_digest_equal(&want, &other));
    sample_free(&s);
}

/* P7: a layout's id may have been made equal for two; what is a base of another is of the same
 * chunks, and not only of one id. */
static void a_base_has_the_same_chunks(void **state)
{
    (void)state;
    struct sample a, b;
    sample_new(&a, sample_blobs, 2);
    sample_new(&b, sample_blobs, 2);
    assert_true(tb_manifest_same_cut(&a.m, &b.m));
    b.m.digests[0].bytes[0] ^= 1;
    assert_true(tb_manifest_same_cut(&a.m, &b.m));
    struct tb_chunk moved[8];
    const uint32_t count = b.m.chunk_count;
    assert_true(count > 2 && count <= 8);
    memcpy(moved, b.m.chunks, count * sizeof *moved);
    b.m.chunks = moved;
    moved[0].bytes += 4096;
    moved[1].offset += 4096;
    moved[1].bytes -= 4096;
    assert_false(tb_manifest_same_cut(&a.m, &b.m));
    moved[0].bytes -= 4096;
    assert_false(tb_manifest_same_cut(&a.m, &b.m));
    b.m.chunks = a.m.chunks;
    b.m.chunk_count--;
    assert_false(tb_manifest_same_cut(&a.m, &b.m));
    b.m.chunk_count++;
    b.m.layout.id.bytes[3] ^= 1;
    assert_false(tb_manifest_same_cut(&a.m, &b.m));
    sample_free(&a);
    sample_free(&b);
}

static enum tb_status decode(const void *head, size_t bytes, void **memory_out, struct tb_manifest *m)
{
    const size_t need = tb_manifest_decode_bytes(head, bytes);
    *memory_out = malloc(need > 0 ? need : 1);
    return tb_manifest_head_decode(head, bytes, *memory_out, need, m);
}

static void head_comes_back(void **state)
{
    (void)state;
    struct sample s;
    struct tb_manifest back;
    struct tb_writer w;
    uint8_t head[1024];
    void *memory = NULL;
    sample_new(&s, sample_blobs, 2);
    tb_writer_init(&w, head, sizeof head);
    tb_manifest_head_encode(&s.m, &w);
    assert_int_equal(w.used, tb_manifest_head_bytes(&s.m));
    assert_int_equal(tb_manifest_decoded_bytes(&s.m), tb_manifest_decode_bytes(head, w.used));
    CHECK_OK(decode(head, w.used, &memory, &back));
    assert_int_equal(back.chunk_count, s.m.chunk_count);
    assert_memory_equal(back.chunks, s.m.chunks, back.chunk_count * sizeof *back.chunks);
    assert_true(tb_digest_equal(&back.root, &s.m.root));
    assert_string_equal(back.blobs[1].name, "tok/vocab");
    assert_true(back.blobs[1].offset == s.m.blobs[1].offset);
    /* the digests travel apart; only with them the root holds */
    struct tb_digest root = tb_manifest_root(&back);
    assert_false(tb_digest_equal(&root, &back.root));
    memcpy(back.digests, s.m.digests, back.chunk_count * sizeof *back.digests);
    root = tb_manifest_root(&back);
    assert_true(tb_digest_equal(&root, &back.root));
    free(memory);
    sample_free(&s);
}

static void every_truncation_and_tail_of_a_head_is_refused(void **state)
{
    (void)state;
    struct sample s;
    struct tb_manifest back;
    struct tb_writer w;
    uint8_t head[1024];
    void *memory = NULL;
    sample_new(&s, sample_blobs, 2);
    tb_writer_init(&w, head, sizeof head);
    tb_manifest_head_encode(&s.m, &w);
    for (size_t cut = 0; cut < w.used; cut++) {
        CHECK_STATUS(decode(head, cut, &memory, &back), TB_PEER_GARBLED);
        free(memory);
    }
    head[w.used] = 0;
    CHECK_STATUS(decode(head, w.used + 1, &memory, &back), TB_PEER_GARBLED);
    free(memory);
    const size_t need = tb_manifest_decode_bytes(head, w.used);
    memory = malloc(need);
    CHECK_STATUS(tb_manifest_head_decode(head, w.used, memory, 100, &back), TB_SITE_NOMEM);
    free(memory);
    sample_free(&s);
}

/* A head with one U8 tensor of `bytes` and these blobs; returns its length. */
static size_t head_of(uint8_t *head, size_t cap, uint64_t bytes, const struct tb_blob *blobs,
                      uint32_t blob_count)
{
    static const struct tb_digest root;
    struct tb_writer w;
    tb_writer_init(&w, head, cap);
    tb_write_u32(&w, 4 + 5 + 24);
    tb_write_u32(&w, 1);
    tb_write_u8(&w, TB_DTYPE_U8);
    tb_write_u8(&w, 1);
    tb_write_str(&w, "t");
    tb_write_u64(&w, bytes);
    tb_write_u64(&w, 0);
    tb_write_u64(&w, bytes);
    tb_write_u32(&w, blob_count);
    for (uint32_t i = 0; i < blob_count; i++) {
        tb_write_str(&w, blobs[i].name);
        tb_write_u64(&w, blobs[i].bytes);
    }
    tb_write_bytes(&w, root.bytes, sizeof root.bytes);
    assert_false(w.full);
    return w.used;
}

static void hostile_heads_are_refused(void **state)
{
    (void)state;
    struct tb_manifest back;
    uint8_t head[512];
    void *memory = NULL;
    static const struct {
        uint64_t bytes;
        struct tb_blob blobs[2];
        uint32_t blob_count;
        enum tb_status status;
    } rows[] = {
        {10, {{.name = "a", .bytes = 1}, {.name = "b"}}, 2, TB_OK},
        {10, {{.name = "a", .bytes = 1}, {.name = "a"}}, 2, TB_PEER_GARBLED},
        {10, {{.name = "a/b"}, {.name = "a"}}, 2, TB_PEER_GARBLED},
        {10, {{.name = "/etc/passwd"}}, 1, TB_PEER_GARBLED},
        {10, {{.name = "../x"}}, 1, TB_PEER_GARBLED},
        {10, {{.name = "a", .bytes = TB_BLOB_BYTES_MAX}}, 1, TB_OK},
        {10, {{.name = "a", .bytes = TB_BLOB_BYTES_MAX + 1}}, 1, TB_PEER_GARBLED},
        {TB_SHARD_BYTES_MAX + 1, {{0}}, 0, TB_PEER_GARBLED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const size_t used = head_of(head, sizeof head, rows[i].bytes, rows[i].blobs, rows[i].blob_count);
        CHECK_STATUS(decode(head, used, &memory, &back), rows[i].status);
        free(memory);
    }
}

/* The largest shard that one tensor can claim asks for what TB_CHUNKS_MAX allows and no more. */
static void memory_for_a_head_is_bounded(void **state)
{
    (void)state;
    uint8_t head[512];
    const size_t used = head_of(head, sizeof head, TB_SHARD_BYTES_MAX, NULL, 0);
    const size_t need = tb_manifest_decode_bytes(head, used);
    assert_true(need > 0);
    const size_t each = sizeof(struct tb_chunk) + sizeof(struct tb_digest) + sizeof(struct tb_blake3);
    assert_true(need <= TB_CHUNKS_MAX * each + TB_CHUNKS_MAX / 8 + 4096);
    struct tb_manifest back;
    void *memory = NULL;
    CHECK_OK(decode(head, used, &memory, &back));
    assert_int_equal(back.chunk_count, TB_SHARD_BYTES_MAX / TB_CHUNK_BYTES_MAX);
    free(memory);
}

static struct tb_version_key sample_key(void)
{
    struct tb_version_key key = {.run_order = 2, .number = 17, .shard_count = 3};
    memset(key.uid.bytes, 0x11, sizeof key.uid.bytes);
    memset(key.run.bytes, 0x22, sizeof key.run.bytes);
    memset(key.root.bytes, 0x33, sizeof key.root.bytes);
    CHECK_OK(tb_name_set(&key.model, "policy"));
    return key;
}

static void version_root_is_what_the_header_says(void **state)
{
    (void)state;
    const struct tb_version_key key = sample_key();
    const struct tb_digest roots[3] = {{{1}}, {{2}}, {{3}}};
    uint8_t bytes[256];
    struct tb_writer w;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_write_bytes(&w, "tbversn1", 8);
    tb_write_id(&w, &key.uid);
    tb_write_str(&w, "policy");
    tb_write_id(&w, &key.run);
    tb_write_u64(&w, 17);
    tb_write_u32(&w, 3);
    tb_write_bytes(&w, roots, sizeof roots);
    const struct tb_digest want = tb_digest_of(bytes, w.used);
    const struct tb_digest got = tb_version_key_root(&key, roots);
    assert_true(tb_digest_equal(&want, &got));
}

static void version_keys_on_the_wire(void **state)
{
    (void)state;
    struct tb_version_key key = sample_key();
    struct tb_version_key back;
    uint8_t bytes[256];
    struct tb_writer w;
    struct tb_reader r;
    tb_writer_init(&w, bytes, sizeof bytes);
    tb_version_key_encode(&key, &w);
    for (size_t cut = 0; cut <= w.used; cut++) {
        tb_reader_init(&r, bytes, cut);
        CHECK_STATUS(tb_version_key_decode(&r, &back), cut == w.used ? TB_OK : TB_PEER_GARBLED);
    }
    assert_memory_equal(&key, &back, sizeof key);

    static const struct {
        uint32_t shard_count;
        uint8_t uid;
        enum tb_status status;
    } rows[] = {{1, 1, TB_OK},
                {TB_SHARDS_MAX, 1, TB_OK},
                {0, 1, TB_PEER_GARBLED},
                {TB_SHARDS_MAX + 1, 1, TB_PEER_GARBLED},
                {1, 0, TB_PEER_GARBLED}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        key.shard_count = rows[i].shard_count;
        memset(key.uid.bytes, rows[i].uid, sizeof key.uid.bytes);
        tb_writer_init(&w, bytes, sizeof bytes);
        tb_version_key_encode(&key, &w);
        tb_reader_init(&r, bytes, w.used);
        CHECK_STATUS(tb_version_key_decode(&r, &back), rows[i].status);
    }
}

/* A trainer that restarts from an older step makes newer versions with smaller numbers. */
static void a_newer_run_is_newer_whatever_its_numbers(void **state)
{
    (void)state;
    struct tb_version_key a = sample_key();
    struct tb_version_key b = sample_key();
    assert_int_equal(tb_version_key_compare(&a, &b), 0);
    b.number = 18;
    assert_true(tb_version_key_compare(&a, &b) < 0 && tb_version_key_compare(&b, &a) > 0);
    a.run_order = 3;
    assert_true(tb_version_key_compare(&a, &b) > 0 && tb_version_key_compare(&b, &a) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blobs_stand_behind_the_tensors),
        cmocka_unit_test(a_chunk_has_a_proof_from_when_it_is_set),
        cmocka_unit_test(blob_names_are_clean_paths),
        cmocka_unit_test(blob_names_are_files_that_can_be_written),
        cmocka_unit_test(blobs_that_cannot_all_be_files_are_refused),
        cmocka_unit_test(every_clash_is_found),
        cmocka_unit_test(root_is_what_the_header_says),
        cmocka_unit_test(a_base_has_the_same_chunks),
        cmocka_unit_test(head_comes_back),
        cmocka_unit_test(every_truncation_and_tail_of_a_head_is_refused),
        cmocka_unit_test(hostile_heads_are_refused),
        cmocka_unit_test(memory_for_a_head_is_bounded),
        cmocka_unit_test(version_root_is_what_the_header_says),
        cmocka_unit_test(version_keys_on_the_wire),
        cmocka_unit_test(a_newer_run_is_newer_whatever_its_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
