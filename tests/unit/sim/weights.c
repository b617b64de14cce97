/* Made weights change as real ones do. The measured run (10.9 M parameters, lr 1e-6): 4.1 % of the
 * elements at the first step, falling to 1.8 % at the eighth; 89 % of the changes by one unit in
 * the last place; the chance doubles with each exponent step down.
 *
 * Covers: sim/weights.c */
#include <math.h>
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

#include "gateway/disk/safetensors.h"
#include "sim/weights.h"
#include "tests/unit/scratch.h"

#define VERSIONS 5

struct counts {
    uint64_t elements[VERSIONS];
    uint64_t changed[VERSIONS]; /* against the version before */
    uint64_t by_one;
    uint64_t changed_all;
    uint64_t class_elements[256]; /* by exponent of the base, over all steps */
    uint64_t class_changed[256];
};

static void count_block(struct counts *c, uint16_t *const *out, uint32_t count)
{
    for (uint32_t v = 1; v < VERSIONS; v++) {
        for (uint32_t i = 0; i < count; i++) {
            const uint16_t before = out[v - 1][i];
            const uint16_t after = out[v][i];
            const unsigned exponent = (before >> 7) & 0xff;
            c->elements[v]++;
            c->class_elements[exponent]++;
            if (before == after) continue;
            c->changed[v]++;
            c->changed_all++;
            c->class_changed[exponent]++;
            c->by_one += abs((int)before - (int)after) == 1;
        }
    }
}

static struct counts count_all(const struct tb_weights *w)
{
    struct counts c = {0};
    static uint16_t memory[VERSIONS][TB_WEIGHTS_BLOCK];
    uint16_t *out[VERSIONS];
    for (uint32_t v = 0; v < VERSIONS; v++)
        out[v] = memory[v];
    for (uint32_t t = 0; t < w->tensor_count; t++)
        for (uint64_t b = 0; b < tb_weights_blocks(&w->tensors[t]); b++)
            count_block(&c, out, tb_weights_block(w, t, b, out));
    return c;
}

static void steps_change_what_real_steps_change(void **state)
{
    (void)state;
    const struct tb_weights_options options = {
        .bytes = 32u << 20, .versions = VERSIONS, .seed = 7, .lr = 1e-6};
    struct tb_weights w;
    assert_int_equal(tb_weights_new(&options, &w), TB_OK);
    const struct counts c = count_all(&w);
    for (uint32_t v = 1; v < VERSIONS; v++) {
        const double share = (double)c.changed[v] / (double)c.elements[v];
        print_message("step %u: %.3f %% of the elements\n", v, 100 * share);
        assert_true(share > 0.01 && share < 0.05);
        if (v > 1) assert_true(c.changed[v] < c.changed[v - 1]); /* noise averages out */
    }
    const double by_one = (double)c.by_one / (double)c.changed_all;
    print_message("by one unit: %.1f %%\n", 100 * by_one);
    assert_true(by_one > 0.8 && by_one < 0.97);
    tb_weights_free(&w);
}

/* Exponent 127 is 2^0. Between 2^-6 and 2^-11 the chance is a fraction of one, and a
 * step down doubles it. */
static void chance_doubles_with_each_exponent_step_down(void **state)
{
    (void)state;
    const struct tb_weights_options options = {
        .bytes = 32u << 20, .versions = VERSIONS, .seed = 7, .lr = 1e-6};
    struct tb_weights w;
    assert_int_equal(tb_weights_new(&options, &w), TB_OK);
    const struct counts c = count_all(&w);
    for (unsigned e = 127 - 11; e <= 127 - 6; e++) {
        const double here = (double)c.class_changed[e] / (double)c.class_elements[e];
        const double above = (double)c.class_changed[e + 1] / (double)c.class_elements[e + 1];
        print_message("2^-%u: %.2f %%\n", 127 - e, 100 * here);
        assert_true(c.class_elements[e] > 10000);
        assert_true(here / above > 1.7 && here / above < 2.3);
    }
    tb_weights_free(&w);
}

static void a_model_has_about_the_bytes_asked_for(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {TB_WEIGHTS_BYTES_MIN, 1u << 20,   5u << 20, 64u << 20,
                                     256u << 20,           16ull << 30};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const struct tb_weights_options options = {.bytes = sizes[i], .versions = 1, .seed = 1, .lr = 0};
        struct tb_weights w;
        assert_int_equal(tb_weights_new(&options, &w), TB_OK);
        assert_true(w.data_bytes <= sizes[i] && w.data_bytes > sizes[i] * 95 / 100);
        tb_weights_free(&w);
    }
}

static void options_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct tb_weights_options rows[] = {
        {.bytes = TB_WEIGHTS_BYTES_MIN - 1, .versions = 1},
        {.bytes = TB_WEIGHTS_BYTES_MAX + 1, .versions = 1},
        {.bytes = 1u << 20, .versions = 0},
        {.bytes = 1u << 20, .versions = 65},
        {.bytes = 1u << 20, .versions = 1, .lr = -1},
        {.bytes = 1u << 20, .versions = 1, .lr = 2},
        {.bytes = 1u << 20, .versions = 1, .lr = NAN},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tb_weights w;
        assert_int_equal(tb_weights_new(&rows[i], &w), TB_BAD_ARGUMENT);
    }
}

struct loaded {
    uint8_t *bytes;
    uint64_t count;
};

static struct loaded load(const char *dir, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    struct stat st;
    assert_int_equal(fstat(fileno(f), &st), 0);
    struct loaded l = {.bytes = malloc((size_t)st.st_size), .count = (uint64_t)st.st_size};
    assert_non_null(l.bytes);
    assert_int_equal(fread(l.bytes, 1, l.count, f), l.count);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(unlink(path), 0);
    return l;
}

/* The program's files are safetensors, and the same bytes whatever the threads;
 * another seed gives others. */
static void files_depend_on_the_seed_and_not_on_threads(void **state)
{
    (void)state;
    const char *program = getenv("TB_MAKE_WEIGHTS");
    if (program == NULL) skip();
    static const char *const arguments[] = {"--seed 3 --threads 1", "--seed 3 --threads 5", "--seed 4"};
    struct loaded files[3][2];
    for (int i = 0; i < 3; i++) {
        char dir[128];
        char command[1024];
        assert_true(scratch_folder(dir, sizeof dir, "weights"));
        (void)snprintf(command, sizeof command, "%s --out %s --bytes 3M --versions 2 %s >/dev/null", program,
                       dir, arguments[i]);
        assert_int_equal(system(command), 0);
        files[i][0] = load(dir, "v0000.safetensors");
        files[i][1] = load(dir, "v0001.safetensors");
        assert_int_equal(rmdir(dir), 0);
    }
    struct tb_safetensors parsed;
    struct tb_safetensors_error error;
    uint64_t header_bytes = 0;
    assert_int_equal(
        tb_safetensors_header_bytes("v", files[0][0].bytes, files[0][0].count, &header_bytes, &error), TB_OK);
    assert_int_equal(
        tb_safetensors_parse("v", files[0][0].bytes, header_bytes, files[0][0].count, &parsed, &error),
        TB_OK);
    tb_safetensors_fini(&parsed);
    for (int v = 0; v < 2; v++) {
        assert_int_equal(files[0][v].count, files[1][v].count);
        assert_memory_equal(files[0][v].bytes, files[1][v].bytes, files[0][v].count);
        assert_memory_not_equal(files[0][v].bytes, files[2][v].bytes, files[0][v].count);
    }
    assert_memory_not_equal(files[0][0].bytes, files[0][1].bytes, files[0][0].count);
    for (int i = 0; i < 3; i++) {
        free(files[i][0].bytes);
        free(files[i][1].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_change_what_real_steps_change),
        cmocka_unit_test(chance_doubles_with_each_exponent_step_down),
        cmocka_unit_test(a_model_has_about_the_bytes_asked_for),
        cmocka_unit_test(options_out_of_range_are_refused),
        cmocka_unit_test(files_depend_on_the_seed_and_not_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
