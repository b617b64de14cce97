/* Files become tensors and blobs, and again the same files: byte-identical, whatever they are; what
 * cannot travel is refused with its path. P1, P7, P10.
 * Covers: gateway/cli/versions/bundle.c gateway/cli/versions/bundle_names.c
 * Covers: gateway/cli/versions/unbundle.c
 * Covers: gateway/disk/file_names.c */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/layout/dtype.h"
#include "gateway/cli/versions/bundle.h"
#include "gateway/cli/versions/unbundle.h"
#include "gateway/disk/file_names.h"
#include "tests/unit/scratch.h"

struct world {
    char dir[SCRATCH_BYTES];
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    if (!scratch_folder(w->dir, sizeof w->dir, "bundle")) return -1;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    const bool removed = scratch_remove(w->dir);
    free(w);
    return removed ? 0 : -1;
}

static char *path_of(const struct world *w, const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, 512, "%s/%s", w->dir, name);
    return path;
}

static void put(const struct world *w, const char *name, const void *bytes, size_t count)
{
    FILE *f = fopen(path_of(w, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, count, f), count);
    assert_int_equal(fclose(f), 0);
}

static void put_folder(const struct world *w, const char *name)
{
    assert_int_equal(mkdir(path_of(w, name), 0755), 0);
}

/* A safetensors file whose data bytes count up from `first`. */
static void put_tensors(const struct world *w, const char *name, const char *json, size_t data_bytes,
                        uint8_t first)
{
    uint8_t bytes[4096];
    const size_t json_bytes = strlen(json);
    assert_true(8 + json_bytes + data_bytes <= sizeof bytes);
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)((uint64_t)json_bytes >> (8 * i));
    memcpy(bytes + 8, json, json_bytes);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + json_bytes + i] = (uint8_t)(first + i);
    put(w, name, bytes, 8 + json_bytes + data_bytes);
}

static void assert_same(const struct world *w, const char *left, const char *right)
{
    char command[1200];
    (void)snprintf(command, sizeof command, "cmp '%s' '%s'", path_of(w, left), path_of(w, right));
    assert_int_equal(system(command), 0);
}

static enum tb_status open_one(const char *path, const char *exclude, struct tb_bundle *b,
                               struct tb_bundle_error *e)
{
    char *const paths[] = {(char *)(uintptr_t)path};
    return tb_bundle_open(&(struct tb_bundle_paths){.paths = paths, .count = 1, .exclude = exclude}, b, e);
}

/* The items that a subscriber would have staged of these bundles, one a shard. */
static uint32_t stage(const struct tb_bundle *bundles, uint32_t shards, struct tb_item *items)
{
    uint32_t count = 0;
    for (uint32_t s = 0; s < shards; s++) {
        for (uint32_t i = 0; i < bundles[s].tensor_count; i++) {
            const struct tb_tensor_desc *t = &bundles[s].tensors[i];
            uint64_t bytes = tb_dtype_element_bytes(tb_dtype_parse(t->dtype));
            for (uint32_t d = 0; d < t->rank; d++)
                bytes *= t->shape[d];
            items[count++] = (struct tb_item){.shard_index = s,
                                              .rank = t->rank,
                                              .name = t->name,
                                              .dtype = t->dtype,
                                              .shape = t->shape,
                                              .bytes = t->memory,
                                              .count = bytes};
        }
        for (uint32_t i = 0; i < bundles[s].blob_count; i++)
            items[count++] = (struct tb_item){.is_blob = 1,
                                              .shard_index = s,
                                              .name = bundles[s].blobs[i].name,
                                              .bytes = bundles[s].blobs[i].bytes,
                                              .count = bundles[s].blobs[i].count};
    }
    return count;
}

#define A                                                                                                    \
    "{\"w.a\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},\"w.b\":{\"dtype\":\"U8\","       \
    "\"shape\":[5],\"data_offsets\":[12,17]}}  "
#define B                                                                                                    \
    "{\"__metadata__\":{\"format\":\"pt\"},\"w.c\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}"
#define INDEX                                                                                                \
    "{\"metadata\":{},\"weight_map\":{\"w.a\":\"model-1.safetensors\",\"w.b\":\"model-1.safetensors\",\"w."  \
    "c\":\"model-2.safetensors\"}}"

static void put_model(const struct world *w, const char *folder)
{
    char name[128];
    put_folder(w, folder);
    (void)snprintf(name, sizeof name, "%s/model-1.safetensors", folder);
    put_tensors(w, name, A, 17, 1);
    (void)snprintf(name, sizeof name, "%s/model-2.safetensors", folder);
    put_tensors(w, name, B, 4, 100);
    (void)snprintf(name, sizeof name, "%s/model.safetensors.index.json", folder);
    put(w, name, INDEX, strlen(INDEX));
}

static void a_folder_comes_back_byte_for_byte(void **state)
{
    const struct world *w = *state;
    struct tb_bundle b;
    struct tb_bundle_error e;
    struct tb_unbundle plan;
    struct tb_item items[32];
    put_model(w, "m");
    put(w, "m/config.json", "{}", 2);
    put(w, "m/empty", "", 0);
    put(w, "m/.hidden", "x", 1);
    put_folder(w, "m/sub");
    put(w, "m/sub/tokenizer.model", "abc", 3);
    assert_int_equal(open_one(path_of(w, "m"), NULL, &b, &e), TB_OK);
    assert_int_equal(b.tensor_count, 3);
    assert_int_equal(b.blob_count, 6);
    const uint32_t count = stage(&b, 1, items);
    assert_int_equal(tb_unbundle_plan(items, count, &plan, &e), TB_OK);
    assert_int_equal(plan.bytes, b.bytes);
    assert_int_equal(tb_unbundle_write(&plan, path_of(w, "out"), "marker", NULL, NULL, &e), TB_OK);
    tb_unbundle_fini(&plan);
    tb_bundle_close(&b);
    static const char *const names[] = {
        "model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json", "config.json", "empty",
        "sub/tokenizer.model"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char left[64];
        char right[64];
        (void)snprintf(left, sizeof left, "m/%s", names[i]);
        (void)snprintf(right, sizeof right, "out/%s", names[i]);
        assert_same(w, left, right);
    }
    assert_int_not_equal(access(path_of(w, "out/.hidden"), F_OK), 0);
    assert_int_not_equal(access(path_of(w, "out/" TB_UNBUNDLE_PART), F_OK), 0);
    assert_int_equal(access(path_of(w, "out/" TB_BUNDLE_MARKER), F_OK), 0);
}

/* Two shards, each with a file; a trainer's rank has tensors that no file mentions; a config that
 * both send is one file. */
static void shards_are_put_together(void **state)
{
    const struct world *w = *state;
    struct tb_bundle b[2];
    struct tb_bundle_error e;
    struct tb_unbundle plan;
    struct tb_item items[32];
    put_tensors(w, "a.safetensors", A, 17, 1);
    put_tensors(w, "b.safetensors", B, 4, 9);
    put(w, "config.json", "{}", 2);
    char *const first[] = {path_of(w, "a.safetensors"), path_of(w, "config.json")};
    assert_int_equal(tb_bundle_open(&(struct tb_bundle_paths){.paths = first, .count = 2}, &b[0], &e), TB_OK);
    char *const second[] = {path_of(w, "b.safetensors"), path_of(w, "config.json")};
    assert_int_equal(tb_bundle_open(&(struct tb_bundle_paths){.paths = second, .count = 2}, &b[1], &e),
                     TB_OK);
    b[1].blob_count = 1; /* without the header of its file... */
    b[1].blobs[0] = b[1].blobs[1];
    const uint32_t count = stage(b, 2, items);
    assert_int_equal(tb_unbundle_plan(items, count, &plan, &e), TB_OK);
    assert_int_equal(plan.file_count, 3);
    assert_int_equal(tb_unbundle_write(&plan, path_of(w, "out"), "m", NULL, NULL, &e), TB_OK);
    tb_unbundle_fini(&plan);
    assert_same(w, "a.safetensors", "out/a.safetensors");
    assert_same(w, "config.json", "out/config.json");
    struct tb_bundle made; /* ...its tensor is in a file of ours, which is a good one */
    assert_int_equal(open_one(path_of(w, "out/tensors-0001.safetensors"), NULL, &made, &e), TB_OK);
    assert_int_equal(made.tensor_count, 1);
    assert_string_equal(made.tensors[0].name, "w.c");
    assert_memory_equal(made.tensors[0].memory, "\x09\x0a\x0b\x0c", 4);
    tb_bundle_close(&made);
    tb_bundle_close(&b[0]);
    b[1].blob_count = 2;
    b[1].blobs[1].name = NULL;
    tb_bundle_close(&b[1]);
}

static void comes_back(const struct world *w, const char *folder, const char *const *files, size_t count,
                       const struct tb_bundle *b)
{
    struct tb_item items[32];
    struct tb_unbundle plan;
    struct tb_bundle_error e;
    assert_int_equal(tb_unbundle_plan(items, stage(b, 1, items), &plan, &e), TB_OK);
    assert_int_equal(plan.bytes, b->bytes);
    assert_int_equal(tb_unbundle_write(&plan, path_of(w, "back"), "m", NULL, NULL, &e), TB_OK);
    tb_unbundle_fini(&plan);
    for (size_t i = 0; i < count; i++) {
        char left[128], right[128];
        (void)snprintf(left, sizeof left, "%s/%s", folder, files[i]);
        (void)snprintf(right, sizeof right, "back/%s", files[i]);
        assert_same(w, left, right);
    }
}

static const struct tb_tensor_desc *tensor_named(const struct tb_bundle *b, const char *name)
{
    for (uint32_t i = 0; i < b->tensor_count; i++)
        if (strcmp(b->tensors[i].name, name) == 0) return &b->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

/* An overlay checkpoint: the index counts, and the older copy travels all the same. */
static void the_index_says_whose_tensor_counts(void **state)
{
    const struct world *w = *state;
    static const char *const files[] = {"model-1.safetensors", "model-2.safetensors", "overlay.safetensors"};
    struct tb_bundle b;
    struct tb_bundle_error e;
    put_model(w, "m");
    put_tensors(w, "m/overlay.safetensors", B, 4, 200);
    put(w, "m/model.safetensors.index.json", "{\"weight_map\":{\"w.c\":\"overlay.safetensors\"}}", 44);
    assert_int_equal(open_one(path_of(w, "m"), NULL, &b, &e), TB_OK);
    assert_memory_equal(tensor_named(&b, "w.c")->memory, "\xc8\xc9\xca\xcb", 4);
    (void)tensor_named(&b, "model-2.safetensors:w.c");
    comes_back(w, "m", files, 3, &b);
    tb_bundle_close(&b);
}

/* A pipeline of components: each folder's tensors have its path where another folder has them,
 * too. */
static void components_have_their_paths(void **state)
{
    const struct world *w = *state;
    static const char *const files[] = {"text_encoder/model.safetensors", "text_encoder_2/model.safetensors",
                                        "text_encoder/model.safetensors.index.json", "vae/a.safetensors"};
    struct tb_bundle b;
    struct tb_bundle_error e;
    put_folder(w, "pipe");
    put_folder(w, "pipe/text_encoder");
    put_folder(w, "pipe/text_encoder_2");
    put_folder(w, "pipe/vae");
    put_tensors(w, "pipe/text_encoder/model.safetensors", B, 4, 10);
    put(w, "pipe/text_encoder/model.safetensors.index.json",
        "{\"weight_map\":{\"w.c\":\"model.safetensors\"}}", 42);
    put_tensors(w, "pipe/text_encoder_2/model.safetensors", B, 4, 20);
    put_tensors(w, "pipe/vae/a.safetensors", A, 17, 1);
    assert_int_equal(open_one(path_of(w, "pipe"), NULL, &b, &e), TB_OK);
    assert_memory_equal(tensor_named(&b, "text_encoder/model.safetensors:w.c")->memory, "\x0a\x0b\x0c\x0d",
                        4);
    assert_memory_equal(tensor_named(&b, "text_encoder_2/model.safetensors:w.c")->memory, "\x14\x15\x16\x17",
                        4);
    (void)tensor_named(&b, "w.a"); /* no other file has it */
    comes_back(w, "pipe", files, 4, &b);
    tb_bundle_close(&b);
    /* A file that calls a tensor as another's would be called. */
    put_tensors(w, "pipe/vae/b.safetensors",
                "{\"vae/a.safetensors:w.a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 1);
    assert_int_equal(open_one(path_of(w, "pipe"), NULL, &b, &e), TB_CONFLICT);
    assert_non_null(strstr(e.text, "could be that of a tensor of"));
}

static struct tb_manifest manifest_of(const struct tb_bundle *b, struct tb_blob *blobs)
{
    for (uint32_t i = 0; i < b->blob_count; i++)
        blobs[i] = (struct tb_blob){.name = b->blobs[i].name, .bytes = b->blobs[i].count};
    return (struct tb_manifest){.blob_count = b->blob_count, .blobs = blobs};
}

/* P1: Two ranks with one file name. Equal files are one file; others are told apart by their marks,
 * before anybody subscribes, and by their bytes. */
static void files_of_one_name_are_one_file_or_refused(void **state)
{
    const struct world *w = *state;
    struct tb_bundle b[2];
    struct tb_bundle_error e;
    struct tb_unbundle plan;
    struct tb_item items[32];
    struct tb_blob left[8], right[8];
    put_folder(w, "r0");
    put_folder(w, "r1");
    for (int differ = 0; differ < 2; differ++) {
        put_tensors(w, "r0/model.safetensors", A, 17, 1);
        put_tensors(w, "r1/model.safetensors", A, 17, (uint8_t)(1 + differ));
        for (int r = 0; r < 2; r++) {
            assert_int_equal(open_one(path_of(w, r == 0 ? "r0" : "r1"), NULL, &b[r], &e), TB_OK);
            assert_int_equal(tb_bundle_mark(&b[r], &e), TB_OK);
            assert_int_equal(b[r].blob_count, 2);
        }
        const struct tb_manifest mine = manifest_of(&b[0], left), other = manifest_of(&b[1], right);
        const struct tb_file_list my_files = {&mine, NULL}, other_files = {&other, NULL};
        static struct tb_file_index index;
        tb_file_index_fill(&index, &my_files);
        const char *file = tb_file_differs(&index, &other_files);
        if (differ)
            assert_string_equal(file, "model.safetensors");
        else
            assert_null(file);
        const enum tb_status s = tb_unbundle_plan(items, stage(b, 2, items), &plan, &e);
        assert_int_equal(s, differ ? TB_CONFLICT : TB_OK);
        if (!differ) {
            assert_int_equal(plan.file_count, 1);
            tb_unbundle_fini(&plan);
        }
        tb_bundle_close(&b[0]);
        tb_bundle_close(&b[1]);
    }
}

static void files_that_cannot_travel_are_refused_with_their_path(void **state)
{
    const struct world *w = *state;
    struct tb_bundle b;
    struct tb_bundle_error e;
    put_model(w, "m");
    /* A tensor's name in two files of a folder without index: what the refusal advises works. */
    put_folder(w, "two");
    put_tensors(w, "two/a.safetensors", B, 4, 0);
    put_tensors(w, "two/zz.safetensors", B, 4, 0);
    assert_int_equal(open_one(path_of(w, "two"), NULL, &b, &e), TB_CONFLICT);
    assert_non_null(strstr(e.text, "\"w.c\""));
    assert_non_null(strstr(e.text, "zz.safetensors"));
    assert_non_null(strstr(e.text, "no index says which counts: leave one out with --exclude"));
    assert_int_equal(open_one(path_of(w, "two"), "zz*", &b, &e), TB_OK);
    tb_bundle_close(&b);
    /* The index and the files differ. */
    assert_int_equal(open_one(path_of(w, "m"), "model-2*", &b, &e), TB_BAD_FILE);
    assert_non_null(strstr(e.text, "tensor \"w.c\" should be in model-2.safetensors, but is in no file"));
    put(w, "m/model.safetensors.index.json", "{\"weight_map\":{\"w.c\":\"model-1.safetensors\"}}", 44);
    assert_int_equal(open_one(path_of(w, "m"), NULL, &b, &e), TB_BAD_FILE);
    assert_non_null(strstr(e.text, "but is in model-2.safetensors"));
    put(w, "m/model.safetensors.index.json", "{\"weight_map\":7}", 16);
    assert_int_equal(open_one(path_of(w, "m"), NULL, &b, &e), TB_BAD_FILE);
    put(w, "m/model.safetensors.index.json", "{\n \"weight_map\":", 16);
    assert_int_equal(open_one(path_of(w, "m"), NULL, &b, &e), TB_BAD_FILE);
    assert_non_null(strstr(e.text, "index.json:2:"));
    /* Names and kinds. */
    assert_int_equal(open_one(path_of(w, "nothing"), NULL, &b, &e), TB_NOT_FOUND);
    assert_int_equal(symlink("circle", path_of(w, "circle")), 0);
    assert_int_equal(open_one(path_of(w, "circle"), NULL, &b, &e), TB_BAD_ARGUMENT);
    put_folder(w, "none");
    assert_int_equal(open_one(path_of(w, "none"), NULL, &b, &e), TB_BAD_FILE);
    put(w, "none/" TB_BUNDLE_MARKER, "x", 1);
    assert_int_equal(open_one(path_of(w, "none"), NULL, &b, &e), TB_BAD_FILE);
    assert_int_equal(mkfifo(path_of(w, "fifo"), 0600), 0);
    assert_int_equal(open_one(path_of(w, "fifo"), NULL, &b, &e), TB_BAD_FILE);
    char *const twice[] = {path_of(w, "m/model-1.safetensors"), path_of(w, "m/model-1.safetensors")};
    assert_int_equal(tb_bundle_open(&(struct tb_bundle_paths){.paths = twice, .count = 2}, &b, &e),
                     TB_CONFLICT);
    /* 100 MB and one byte, without writing them. */
    put(w, "large.bin", "", 0);
    assert_int_equal(truncate(path_of(w, "large.bin"), (100 << 20) + 1), 0);
    assert_int_equal(open_one(path_of(w, "large.bin"), NULL, &b, &e), TB_TOO_LARGE);
    assert_int_equal(truncate(path_of(w, "large.bin"), 100 << 20), 0);
    assert_int_equal(open_one(path_of(w, "large.bin"), NULL, &b, &e), TB_OK);
    tb_bundle_close(&b);
}

/* Names in a version come from a stranger. */
static void no_name_of_a_version_leaves_its_folder(void **state)
{
    (void)state;
    static const char *const names[] = {"../x",
                                        "/etc/x",
                                        "a/../../x",
                                        "",
                                        ".tombolo/other",
                                        ".tombolo/header/../x",
                                        ".tombolo/header/",
                                        ".tombolo-part",
                                        "a/.tombolo-part",
                                        "STABLE",
                                        "1/2/3/4/5/6/7/8/9/x",
                                        "a//b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tb_unbundle plan;
        struct tb_bundle_error e;
        const struct tb_item item = {.is_blob = 1, .name = names[i], .bytes = "x", .count = 1};
        if (tb_unbundle_plan(&item, 1, &plan, &e) != TB_BAD_FILE) fail_msg("%s was taken", names[i]);
    }
}

static void parts_of_a_tensor_make_no_file(void **state)
{
    (void)state;
    struct tb_unbundle plan;
    struct tb_bundle_error e;
    static const uint64_t shape[] = {1};
    struct tb_item items[2];
    for (int i = 0; i < 2; i++)
        items[i] =
            (struct tb_item){.name = "w", .dtype = "U8", .rank = 1, .shape = shape, .bytes = "x", .count = 1};
    assert_int_equal(tb_unbundle_plan(items, 2, &plan, &e), TB_BAD_FILE);
    assert_non_null(strstr(e.text, "\"w\""));
    items[1].shard_index = 1; /* of another shard it is another file's */
    assert_int_equal(tb_unbundle_plan(items, 2, &plan, &e), TB_OK);
    tb_unbundle_fini(&plan);
}

static void a_link_in_the_folder_is_not_followed(void **state)
{
    const struct world *w = *state;
    struct tb_unbundle plan;
    struct tb_bundle_error e;
    const struct tb_item item = {.is_blob = 1, .name = "sub/x", .bytes = "x", .count = 1};
    put_folder(w, "elsewhere");
    put_folder(w, "out");
    assert_int_equal(symlink(path_of(w, "elsewhere"), path_of(w, "out/sub")), 0);
    assert_int_equal(tb_unbundle_plan(&item, 1, &plan, &e), TB_OK);
    assert_int_equal(tb_unbundle_write(&plan, path_of(w, "out"), "m", NULL, NULL, &e), TB_SITE_IO);
    tb_unbundle_fini(&plan);
    assert_int_not_equal(access(path_of(w, "elsewhere/x"), F_OK), 0);
    assert_int_not_equal(access(path_of(w, "out/" TB_BUNDLE_MARKER), F_OK), 0);
}

static void a_header_that_does_not_fit_the_version_is_refused(void **state)
{
    (void)state;
    static const uint8_t bytes[32] = {0};
    static const uint64_t shape[] = {5};
    uint8_t header[8 + sizeof B];
    struct tb_unbundle plan;
    struct tb_bundle_error e;
    memset(header, 0, sizeof header);
    header[0] = sizeof B - 1;
    memcpy(header + 8, B, sizeof B - 1);
    struct tb_item items[] = {
        {.is_blob = 1,
         .name = TB_BUNDLE_HEADER_PREFIX "b.safetensors",
         .bytes = header,
         .count = 8 + sizeof B - 1},
        {.name = "w.c", .dtype = "F32", .rank = 0, .shape = shape, .bytes = bytes, .count = 4},
    };
    assert_int_equal(tb_unbundle_plan(items, 2, &plan, &e), TB_OK);
    tb_unbundle_fini(&plan);
    items[1].name = "w.d";
    assert_int_equal(tb_unbundle_plan(items, 2, &plan, &e), TB_BAD_FILE);
    assert_non_null(strstr(e.text, "\"w.c\""));
    items[1].name = "w.c";
    items[1].dtype = "I32";
    assert_int_equal(tb_unbundle_plan(items, 2, &plan, &e), TB_BAD_FILE);
    items[1].dtype = "F32";
    items[1].count = 8;
    assert_int_equal(tb_unbundle_plan(items, 2, &plan, &e), TB_BAD_FILE);
    items[1].count = 4;
    items[0].count--;
    assert_int_equal(tb_unbundle_plan(items, 2, &plan, &e), TB_BAD_FILE);
}

/* A hostile publisher's: whichever of the two were taken, the other's bytes would not arrive. */
static void a_blob_that_is_another_files_header_is_no_such_file(void **state)
{
    (void)state;
    static const uint8_t bytes[4] = {0};
    uint8_t header[8 + sizeof B];
    struct tb_unbundle plan;
    struct tb_bundle_error e;
    memset(header, 0, sizeof header);
    header[0] = sizeof B - 1;
    memcpy(header + 8, B, sizeof B - 1);
    const struct tb_item whole = {.is_blob = 1,
                                  .name = TB_BUNDLE_HEADER_PREFIX "b.safetensors",
                                  .bytes = header,
                                  .count = 8 + sizeof B - 1};
    struct tb_item blob = whole;
    blob.name = "b.safetensors";
    const struct tb_item tensor = {.name = "w.c", .dtype = "F32", .bytes = bytes, .count = 4};
    for (int first = 0; first < 2; first++) {
        const struct tb_item items[] = {first == 0 ? whole : blob, first == 0 ? blob : whole, tensor};
        assert_int_equal(tb_unbundle_plan(items, 3, &plan, &e), TB_CONFLICT);
        assert_non_null(strstr(e.text, "b.safetensors"));
    }
    const struct tb_item same[] = {whole, whole, tensor}; /* of two ranks */
    assert_int_equal(tb_unbundle_plan(same, 3, &plan, &e), TB_OK);
    tb_unbundle_fini(&plan);
}

/* Each call to the kernel fails once: a sentence, no marker, no part file; then the same folder is
 * written again and is good. P10. */
static void a_failed_write_leaves_no_marker(void **state)
{
    const struct world *w = *state;
    static const enum tb_fault_point points[] = {TB_FAULT_pwrite, TB_FAULT_fsync};
    const struct tb_item items[] = {{.is_blob = 1, .name = "a", .bytes = "aa", .count = 2},
                                    {.is_blob = 1, .name = "s/b", .bytes = "bb", .count = 2}};
    struct tb_unbundle plan;
    struct tb_bundle_error e;
    assert_int_equal(tb_unbundle_plan(items, 2, &plan, &e), TB_OK);
    for (size_t p = 0; p < sizeof points / sizeof points[0]; p++) {
        for (uint64_t nth = 1;; nth++) {
            tb_fault_arm(points[p], nth, false);
            const enum tb_status s = tb_unbundle_write(&plan, path_of(w, "out"), "m", NULL, NULL, &e);
            tb_fault_arm(points[p], 0, false);
            assert_int_not_equal(access(path_of(w, "out/" TB_UNBUNDLE_PART), F_OK), 0);
            if (s == TB_OK) {
                assert_true(nth >= 4); /* two files and the marker */
                break;
            }
            assert_int_equal(s, TB_SITE_IO);
            assert_non_null(strstr(e.text, "/out/"));
            if (nth == 1 && p == 0) assert_int_not_equal(access(path_of(w, "out"), F_OK), 0);
        }
        assert_int_equal(access(path_of(w, "out/" TB_BUNDLE_MARKER), F_OK), 0);
    }
    tb_unbundle_fini(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_folder_comes_back_byte_for_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(shards_are_put_together, setup, teardown),
        cmocka_unit_test_setup_teardown(the_index_says_whose_tensor_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(components_have_their_paths, setup, teardown),
        cmocka_unit_test_setup_teardown(files_of_one_name_are_one_file_or_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(files_that_cannot_travel_are_refused_with_their_path, setup,
                                        teardown),
        cmocka_unit_test(no_name_of_a_version_leaves_its_folder),
        cmocka_unit_test_setup_teardown(parts_of_a_tensor_make_no_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_link_in_the_folder_is_not_followed, setup, teardown),
        cmocka_unit_test(a_header_that_does_not_fit_the_version_is_refused),
        cmocka_unit_test(a_blob_that_is_another_files_header_is_no_such_file),
        cmocka_unit_test_setup_teardown(a_failed_write_leaves_no_marker, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
