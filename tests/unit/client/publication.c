/* publication.c - what an export of memory in place is made of: as few buffers as the memory has
 * pieces, and none with a byte that was not published.
 *
 * Covers: intra/client/publish/publication_export.c intra/client/publish/publication.c */
#include <stdlib.h>
#include <string.h>

#include "intra/fabric/fabric_exports.h"
#include "unit/client/fake_gateway.h"

#define TENSORS 3000u
#define BYTES   2000u /* of the largest; all others have less */

/* The export that was opened last. */
static struct tb_export_buffer *opened;
static uint32_t opened_count;

enum tb_status __real_tb_export_open(struct tb_fabric *fabric, const struct tb_export_options *options);
enum tb_status __wrap_tb_export_open(struct tb_fabric *fabric, const struct tb_export_options *options);
enum tb_status __wrap_tb_export_open(struct tb_fabric *fabric, const struct tb_export_options *options)
{
    if (options->origin_shard == 0 && !options->chained && opened != NULL) {
        opened_count = options->buffer_count;
        memcpy(opened, options->buffers, opened_count * sizeof *opened);
    }
    return __real_tb_export_open(fabric, options);
}

struct rank {
    struct fake f;
    struct tb_session *s;
    struct tb_registration *r;
    uint8_t *memory; /* a flat buffer of the caller's */
    uint64_t bytes;
    uint32_t sizes[TENSORS];
    uint8_t *at[TENSORS]; /* by name, which is packed order */
};

/* A number that is prime to TENSORS: packed order is not that of addresses. */
static uint32_t shuffled(uint32_t i)
{
    return (uint32_t)((uint64_t)i * 1301u % TENSORS);
}

/* Tensors one behind the other, `gap` bytes between two of them. */
static void cut(struct rank *k, uint8_t *memory, uint32_t gap)
{
    uint8_t *at = memory;
    for (uint32_t i = 0; i < TENSORS; i++) {
        const uint32_t t = shuffled(i);
        k->at[t] = at;
        at += k->sizes[t] + gap;
    }
}

static void register_all(struct rank *k)
{
    struct tb_tensor_desc *list = calloc(TENSORS, sizeof *list);
    char(*names)[8] = calloc(TENSORS, sizeof *names);
    uint64_t *shapes = calloc(TENSORS, sizeof *shapes);
    for (uint32_t i = 0; i < TENSORS; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%05u", i);
        shapes[i] = k->sizes[i];
        list[i] = (struct tb_tensor_desc){
            .name = names[i], .dtype = "U8", .rank = 1, .shape = &shapes[i], .memory = k->at[i]};
    }
    CHECK_OK(tb_register(k->s, list, TENSORS, &k->r));
    free(shapes);
    free(names);
    free(list);
}

static void rank_open(struct rank *k, uint32_t gap)
{
    memset(k, 0, sizeof *k);
    uint64_t seed = 3;
    for (uint32_t i = 0; i < TENSORS; i++)
        k->sizes[i] = i == 17 ? 0 : i == 4 ? BYTES : 1 + (uint32_t)(check_random(&seed) % (BYTES - 1));
    for (uint32_t i = 0; i < TENSORS; i++)
        k->bytes += k->sizes[i] + gap;
    k->memory = malloc(k->bytes);
    for (uint64_t i = 0; i < k->bytes; i++)
        k->memory[i] = (uint8_t)check_random(&seed);
    cut(k, k->memory, gap);
    opened = calloc(TENSORS + 4, sizeof *opened);
    fake_open(&k->f);
    k->s = fake_session_open(&k->f, "rank0", "host-a");
    register_all(k);
}

static void rank_close(struct rank *k)
{
    if (k->s != NULL) tb_session_close(k->s);
    fake_close(&k->f);
    free(k->memory);
    free(opened);
    opened = NULL;
}

static void publish_in_place(struct rank *k, uint64_t number)
{
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(k->s, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .mode = TB_PUBLISH_IN_PLACE,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = number,
                                         .shard_count = 1,
                                         .registration = k->r,
                                         .timeout_ms = 10000};
    struct tb_publish_info info = {.struct_bytes = sizeof info};
    if (tb_publish(k->s, &o, &info) != TB_OK) fail_msg("%s", tb_last_error());
}

static void lands_bit_exact(struct rank *k, uint64_t number)
{
    fake_land(&k->f, number);
    const uint8_t *landed = fake_version(&k->f, number)->shards[0].bytes;
    for (uint32_t i = 0; i < TENSORS; i++) {
        if (k->sizes[i] > 0) assert_memory_equal(landed, k->at[i], k->sizes[i]);
        landed += k->sizes[i];
    }
}

static void a_flat_buffer_is_one_of_the_export(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, 0);
    publish_in_place(&k, 1);
    assert_int_equal(opened_count, 1);
    assert_ptr_equal(opened[0].bytes, k.memory);
    assert_int_equal(opened[0].count, k.bytes);
    lands_bit_exact(&k, 1);
    rank_close(&k);
}

/* P8: a reader in the export reads no byte between two tensors. */
static void bytes_between_tensors_are_in_no_buffer(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, 1);
    publish_in_place(&k, 1);
    assert_int_equal(opened_count, TENSORS - 1); /* one is empty */
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < opened_count; i++) {
        assert_int_equal(opened[i].memfd, -1);
        bytes += opened[i].count;
    }
    assert_int_equal(bytes, k.bytes - TENSORS);
    lands_bit_exact(&k, 1);
    rank_close(&k);
}

/* Memory comes back from a suspend in other pieces: here in two, one of them in a buffer of
 * ours. */
static void memory_that_comes_back_elsewhere_is_joined_anew(void **state)
{
    (void)state;
    struct rank k;
    rank_open(&k, 0);
    publish_in_place(&k, 1);
    CHECK_OK(tb_suspend(k.r));
    void *moved[TENSORS];
    void *ours = NULL;
    CHECK_OK(tb_buffer_new(k.s, BYTES, &ours));
    uint8_t *elsewhere = malloc(k.bytes), *at = elsewhere;
    for (uint32_t i = 0; i < TENSORS; i++) {
        moved[i] = i == 4 ? ours : at;
        memcpy(moved[i], k.at[i], k.sizes[i]);
        k.at[i] = moved[i];
        at += i == 4 ? 0 : k.sizes[i];
    }
    free(k.memory);
    k.memory = elsewhere;
    CHECK_OK(tb_resume(k.r, moved, TENSORS));
    assert_int_equal(opened_count, 2);
    assert_ptr_equal(opened[0].bytes, elsewhere);
    assert_int_equal(opened[0].count, k.bytes - BYTES);
    assert_ptr_equal(opened[1].bytes, ours);
    lands_bit_exact(&k, 1);
    rank_close(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flat_buffer_is_one_of_the_export),
        cmocka_unit_test(bytes_between_tensors_are_in_no_buffer),
        cmocka_unit_test(memory_that_comes_back_elsewhere_is_joined_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
