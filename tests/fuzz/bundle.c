/* Files and versions of strangers. An index file beside a good safetensors file is taken or refused
 * with its place; what a version carries becomes files with clean names that lie within its bytes,
 * or is refused. First byte: which.
 *
 * Covers: gateway/cli/versions/bundle.c gateway/cli/versions/bundle_names.c
 * Covers: gateway/cli/versions/unbundle.c */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/cli/versions/unbundle.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/scratch.h"

#define ITEMS_MAX 8u

static char folder[SCRATCH_BYTES], index_path[128];

static void write_file(const char *path, const void *bytes, size_t count)
{
    FILE *f = fopen(path, "wbe");
    FUZZ_REQUIRE(f != NULL && fwrite(bytes, 1, count, f) == count && fclose(f) == 0);
}

static void make_folder(void)
{
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}";
    uint8_t file[8 + sizeof header - 1 + 2] = {sizeof header - 1};
    char path[128];
    FUZZ_REQUIRE(scratch_folder(folder, sizeof folder, "fuzz"));
    memcpy(file + 8, header, sizeof header - 1);
    (void)snprintf(path, sizeof path, "%s/m.safetensors", folder);
    (void)snprintf(index_path, sizeof index_path, "%s/m.safetensors.index.json", folder);
    write_file(path, file, sizeof file);
}

static void walk_index(const uint8_t *bytes, size_t count)
{
    struct tb_bundle b;
    struct tb_bundle_error error = {0};
    char *paths[] = {folder};
    if (folder[0] == '\0') make_folder();
    write_file(index_path, bytes, count);
    if (tb_bundle_open(&(struct tb_bundle_paths){.paths = paths, .count = 1}, &b, &error) == TB_OK) {
        FUZZ_REQUIRE(b.file_count == 2 && b.tensor_count == 1);
        tb_bundle_close(&b);
    } else {
        FUZZ_REQUIRE(error.text[0] != '\0' && memchr(error.text, '\0', sizeof error.text) != NULL);
    }
}

/* A text of at most 255 bytes that ends in NUL, in memory of its own. */
static char *read_text(struct tb_reader *r)
{
    const uint8_t count = tb_read_u8(r);
    const uint8_t *bytes = tb_read_span(r, count);
    char *text = calloc(1, count + 1u);
    FUZZ_REQUIRE(text != NULL);
    if (bytes != NULL && !r->bad) memcpy(text, bytes, count);
    return text;
}

/* `shapes` are the items' own. */
static uint32_t read_items(struct tb_reader *r, struct tb_item items[ITEMS_MAX], uint64_t shapes[ITEMS_MAX])
{
    uint32_t n = 0;
    for (; n < ITEMS_MAX && r->left > 0 && !r->bad; n++) {
        const uint8_t kind = tb_read_u8(r);
        char *name = read_text(r);
        const uint8_t size = tb_read_u8(r);
        const uint8_t *bytes = tb_read_span(r, size);
        items[n] = (struct tb_item){
            .name = name, .is_blob = kind % 2 == 0, .shard_index = kind / 2 % 3, .bytes = bytes};
        items[n].count = bytes == NULL || r->bad ? 0 : size;
        if (items[n].is_blob) continue;
        items[n].dtype = "U8";
        items[n].rank = 1;
        shapes[n] = items[n].count;
        items[n].shape = &shapes[n];
    }
    return n;
}

static void walk_version(const uint8_t *bytes, size_t count)
{
    struct tb_item items[ITEMS_MAX];
    uint64_t shapes[ITEMS_MAX];
    struct tb_reader r;
    struct tb_unbundle plan;
    struct tb_bundle_error error = {0};
    tb_reader_init(&r, bytes, count);
    const uint32_t n = read_items(&r, items, shapes);
    if (tb_unbundle_plan(items, n, &plan, &error) == TB_OK) {
        for (uint32_t i = 0; i < plan.file_count; i++) {
            uint64_t sum = 0;
            FUZZ_REQUIRE(tb_bundle_name_valid(plan.files[i].name));
            for (uint32_t s = 0; s < plan.files[i].span_count; s++)
                sum += plan.spans[plan.files[i].first_span + s].count;
            FUZZ_REQUIRE(sum == plan.files[i].bytes);
        }
        tb_unbundle_fini(&plan);
    } else {
        FUZZ_REQUIRE(error.text[0] != '\0');
    }
    for (uint32_t i = 0; i < n; i++)
        free((char *)(uintptr_t)items[i].name);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    if (bytes[0] % 2 == 0)
        walk_index(bytes + 1, count - 1);
    else
        walk_version(bytes + 1, count - 1);
    return 0;
}
