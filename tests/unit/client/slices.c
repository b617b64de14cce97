/* slices.c - boxes of tensors between sessions: published from some, read into others.
 *
 * Covers: intra/client/memory/slices.c intra/client/follow/staged_slices.c
 * Covers: intra/client/follow/staging_match.c */
#include <stdlib.h>
#include <string.h>

#include "unit/client/fake_gateway.h"

#define ROWS 1024u
#define COLS 3072u

/* Column c of row r of the tensor. */
static uint16_t element(uint64_t r, uint64_t c)
{
    return (uint16_t)(r * 131 + c * 7 + 1);
}

static struct tb_slice_desc slice(uint64_t *axes, uint64_t first_column, uint64_t columns, void *memory)
{
    const uint64_t values[6] = {ROWS, COLS, 0, first_column, ROWS, columns};
    memcpy(axes, values, sizeof values);
    return (struct tb_slice_desc){.struct_bytes = sizeof(struct tb_slice_desc),
                                  .rank = 2,
                                  .name = "w",
                                  .dtype = "BF16",
                                  .shape = axes,
                                  .first = axes + 2,
                                  .count = axes + 4,
                                  .memory = memory};
}

/* Every element of a version is by so much more than the first's. */
static uint16_t step_of(uint64_t number)
{
    return (uint16_t)(5 * (number - 1));
}

static void publish_column_slice(struct tb_session *s, uint64_t number, uint32_t rank, uint32_t ranks,
                                 uint32_t split)
{
    const uint64_t columns = COLS / ranks, first = rank * columns;
    uint64_t axes[6];
    uint16_t *memory = malloc(2 * ROWS * columns);
    for (uint64_t r = 0; r < ROWS; r++)
        for (uint64_t c = 0; c < columns; c++)
            memory[r * columns + c] = (uint16_t)(element(r, first + c) + step_of(number));
    struct tb_slice_desc d = slice(axes, first, columns, memory);
    d.split_axis = 1;
    d.split_count = split;
    struct tb_registration *reg;
    CHECK_OK(tb_register_slices(s, &d, 1, &reg));
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(s, "policy", "k", &run));
    struct tb_publish_options o = {.struct_bytes = sizeof o,
                                   .mode = split > ranks ? TB_PUBLISH_IN_PLACE : TB_PUBLISH_SHADOW,
                                   .model = "policy",
                                   .run = &run.run,
                                   .number = number,
                                   .shard_index = rank,
                                   .shard_count = ranks,
                                   .registration = reg};
    struct tb_publish_info info = {.struct_bytes = sizeof info};
    /* Parts along an inner axis stand in rows, which nobody can be shown as they are. */
    if (split > ranks) CHECK_STATUS(tb_publish(s, &o, &info), TB_BAD_ARGUMENT);
    o.mode = TB_PUBLISH_SHADOW;
    if (tb_publish(s, &o, &info) != TB_OK) fail_msg("%s", tb_last_error());
    struct tb_publish_info again = {.struct_bytes = sizeof again};
    CHECK_OK(tb_publish(s, &o, &again)); /* the same bytes again are done, in rows too */
    assert_memory_equal(&info.uid, &again.uid, sizeof info.uid);
    CHECK_OK(tb_unregister(reg));
    free(memory);
}

static uint32_t index_of(struct fake *f, const char *name)
{
    uint32_t at = 0;
    pthread_mutex_lock(&f->lock);
    for (uint32_t i = 0; i < FAKE_SESSIONS_MAX; i++)
        if (f->sessions[i].wire != NULL && strcmp(f->sessions[i].hello.name.text, name) == 0) at = i;
    pthread_mutex_unlock(&f->lock);
    return at;
}

/* P1: rows of columns are proven as they stand, by chunks or by boxes; one byte that changed is
 * seen. */
static void check_proven(struct fake *f, uint16_t *memory, uint64_t elements)
{
    struct tb_msg_proven m = fake_prove(f, index_of(f, "reader"), 1);
    assert_true(m.verdict == (m.box_bytes > 0 ? TB_MSG_PROVEN_BY_BOX : TB_MSG_PROVEN_WHOLE));
    assert_int_equal(m.bytes, 2 * elements);
    memory[elements - 1] ^= 0x100;
    m = fake_prove(f, index_of(f, "reader"), 1);
    assert_int_equal(m.verdict, TB_MSG_PROVEN_DIFFERS);
    assert_string_equal(m.tensor.text, "w");
    memory[elements - 1] ^= 0x100;
}

/* A rank's columns, and nothing else, out of what two ranks published; what was staged
 * beyond its own is little. */
static void read_columns(struct fake *f, uint64_t first, uint64_t columns, double excess_max)
{
    struct tb_session *s = fake_session_open(f, "reader", "host-b");
    uint64_t axes[6];
    uint16_t *memory = calloc(2, ROWS * columns);
    const struct tb_slice_desc d = slice(axes, first, columns, memory);
    struct tb_registration *reg;
    CHECK_OK(tb_register_slices(s, &d, 1, &reg));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = reg};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(s, &o, &sub));
    const struct tb_uid uid = fake_uid(fake_version(f, 1));
    if (tb_stage(sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(f, 1);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    CHECK_OK(tb_activate(sub, &uid, &info));
    for (uint64_t r = 0; r < ROWS; r++)
        for (uint64_t c = 0; c < columns; c++)
            assert_int_equal(memory[r * columns + c], element(r, first + c));
    const double own = 2.0 * ROWS * (double)columns;
    assert_true((double)info.staged_bytes <= own * (1 + excess_max));
    assert_int_equal(info.copied_bytes, 2 * ROWS * columns);
    check_proven(f, memory, ROWS * columns);
    tb_session_close(s);
    free(memory);
}

static void columns_are_read_by_any_number_of_ranks(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *ranks[2];
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = fake_session_open(&f, i == 0 ? "rank0" : "rank1", "host-a");
        publish_column_slice(ranks[i], 1, i, 2, 4);
    }
    fake_land(&f, 1);
    read_columns(&f, 0, COLS, 0);
    read_columns(&f, COLS / 2, COLS / 2, 0);
    read_columns(&f, COLS / 4, COLS / 4, 0.05);
    read_columns(&f, 1, 100, 1e9); /* not where it was split: whole chunks are read and verified */
    for (uint32_t i = 0; i < 2; i++)
        tb_session_close(ranks[i]);
    fake_close(&f);
}

/* Rows and columns of fused tensors, and experts by number, are boxes in one piece of memory;
 * several of one name are read. */
static void several_boxes_of_a_tensor_are_read(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *rank = fake_session_open(&f, "rank0", "host-a");
    publish_column_slice(rank, 1, 0, 1, 0);
    fake_land(&f, 1);
    struct tb_session *s = fake_session_open(&f, "reader", "host-b");
    uint16_t *memory = calloc(2, ROWS * COLS);
    uint64_t axes[3][6];
    struct tb_slice_desc list[3];
    const uint64_t from[3] = {512, 7, 1000}, rows[3] = {64, 3, 24};
    uint64_t at = 0;
    for (int i = 0; i < 3; i++) {
        list[i] = slice(axes[i], 0, COLS, memory + at * COLS);
        axes[i][2] = from[i];
        axes[i][4] = rows[i];
        at += rows[i];
    }
    struct tb_registration *reg;
    CHECK_OK(tb_register_slices(s, list, 3, &reg));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = reg};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(s, &o, &sub));
    const struct tb_uid uid = fake_uid(fake_version(&f, 1));
    CHECK_OK(tb_stage(sub, &uid, 20000));
    fake_go(&f, 1);
    CHECK_OK(tb_activate(sub, &uid, NULL));
    at = 0;
    for (int i = 0; i < 3; i++)
        for (uint64_t r = 0; r < rows[i]; r++, at++)
            for (uint64_t c = 0; c < COLS; c++)
                assert_int_equal(memory[at * COLS + c], element(from[i] + r, c));
    tb_session_close(s);
    tb_session_close(rank);
    free(memory);
    fake_close(&f);
}

/* ---- several boxes of one name, published ---- */

#define SECTIONS 3u
static const uint64_t section_rows[SECTIONS] = {512, 256, 256}; /* as q, k and v are fused */

struct fused {
    uint64_t axes[SECTIONS][6];
    struct tb_slice_desc list[SECTIONS];
    uint64_t rows;
    uint16_t *memory;
};

/* Opens one rank of so many with its part of each section. */
static void fused_open(struct fused *u, uint32_t rank, uint32_t ranks)
{
    uint64_t begins = 0;
    u->rows = ROWS / ranks;
    u->memory = calloc(2, u->rows * COLS);
    uint16_t *at = u->memory;
    for (uint32_t i = 0; i < SECTIONS; i++) {
        const uint64_t rows = section_rows[i] / ranks;
        u->list[i] = slice(u->axes[i], 0, COLS, at);
        u->axes[i][2] = begins + rank * rows;
        u->axes[i][4] = rows;
        begins += section_rows[i];
        at += rows * COLS;
    }
}

/* Fills it, or looks at it. */
static void fused_walk(struct fused *u, bool check)
{
    uint16_t *at = u->memory;
    for (uint32_t i = 0; i < SECTIONS; i++)
        for (uint64_t r = 0; r < u->axes[i][4]; r++)
            for (uint64_t c = 0; c < COLS; c++, at++) {
                const uint16_t wanted = element(u->axes[i][2] + r, c);
                if (check)
                    assert_int_equal(*at, wanted);
                else
                    *at = wanted;
            }
}

static int publish_list(struct tb_session *s, struct tb_slice_desc *list, uint32_t count,
                        struct tb_publish_options o)
{
    struct tb_registration *reg;
    CHECK_OK(tb_register_slices(s, list, count, &reg));
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(s, "policy", "k", &run));
    o.struct_bytes = sizeof o;
    o.model = "policy";
    o.run = &run.run;
    o.number = 1;
    o.registration = reg;
    const int status = tb_publish(s, &o, NULL);
    if (status == TB_OK) CHECK_OK(tb_publish(s, &o, NULL)); /* the same again */
    return status;
}

static void read_fused(struct fake *f, uint32_t rank, uint32_t ranks, bool declared)
{
    struct fused u;
    struct tb_session *s = fake_session_open(f, "reader", "host-b");
    fused_open(&u, rank, ranks);
    struct tb_registration *reg;
    CHECK_OK(tb_register_slices(s, u.list, SECTIONS, &reg));
    const struct tb_subscribe_options o = {
        .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = reg};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(s, &o, &sub));
    const struct tb_uid uid = fake_uid(fake_version(f, 1));
    if (tb_stage(sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(f, 1);
    struct tb_activate_info info = {.struct_bytes = sizeof info};
    CHECK_OK(tb_activate(sub, &uid, &info));
    fused_walk(&u, true);
    assert_int_equal(info.copied_bytes, 2 * u.rows * COLS);
    if (declared) assert_int_equal(info.staged_bytes, info.copied_bytes);
    tb_session_close(s);
    free(u.memory);
}

/* P1 P2: each of two ranks has three boxes of one tensor. Eight, two and one read them; of what is
 * split where theirs begin, not a byte more than their own. In place and in shadow. */
static void a_rank_publishes_several_boxes_of_a_tensor(void **state)
{
    (void)state;
    static const struct {
        uint32_t mode, split;
    } ways[] = {{TB_PUBLISH_SHADOW, 32}, {TB_PUBLISH_IN_PLACE, 32}, {TB_PUBLISH_IN_PLACE, 0}};
    for (size_t way = 0; way < sizeof ways / sizeof ways[0]; way++) {
        struct fake f;
        fake_open(&f);
        struct tb_session *ranks[2];
        struct fused u[2];
        for (uint32_t i = 0; i < 2; i++) {
            ranks[i] = fake_session_open(&f, i == 0 ? "rank0" : "rank1", "host-a");
            fused_open(&u[i], i, 2);
            fused_walk(&u[i], false);
            for (uint32_t k = 0; k < SECTIONS; k++)
                u[i].list[k].split_count = ways[way].split;
            if (publish_list(ranks[i], u[i].list, SECTIONS,
                             (struct tb_publish_options){
                                 .mode = ways[way].mode, .shard_index = i, .shard_count = 2}) != TB_OK)
                fail_msg("%s", tb_last_error());
        }
        fake_land(&f, 1);
        const bool declared = ways[way].split != 0;
        read_fused(&f, 0, 1, true);
        read_fused(&f, 1, 2, true);
        read_fused(&f, 3, 8, declared);
        read_fused(&f, 6, 8, declared);
        for (uint32_t i = 0; i < 2; i++) {
            tb_session_close(ranks[i]);
            free(u[i].memory);
        }
        fake_close(&f);
    }
}

/* A reader hears of rows that nobody published, and of another shape, in boxes too. */
static void a_box_that_a_version_lacks_is_said(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *s = fake_session_open(&f, "rank0", "host-a");
    struct fused u;
    fused_open(&u, 0, 2);
    CHECK_OK(publish_list(s, u.list, SECTIONS, (struct tb_publish_options){.shard_count = 1}));
    fake_land(&f, 1);
    const struct tb_uid uid = fake_uid(fake_version(&f, 1));
    struct tb_session *reader = fake_session_open(&f, "reader", "host-b");
    static const char *const said[] = {"of tensor \"w\" (BF16[1024,3072]) the version has not all",
                                       "registered as BF16[1024,3073], and the version has BF16[1024,3072]"};
    for (int i = 0; i < 2; i++) {
        uint64_t axes[6];
        uint16_t *memory = calloc(2, ROWS * COLS);
        struct tb_slice_desc d = slice(axes, 0, COLS, memory);
        axes[1] += (uint64_t)i;
        struct tb_registration *reg;
        CHECK_OK(tb_register_slices(reader, &d, 1, &reg));
        const struct tb_subscribe_options o = {
            .struct_bytes = sizeof o, .member_count = 1, .model = "policy", .registration = reg};
        struct tb_subscription *sub;
        CHECK_OK(tb_subscribe(reader, &o, &sub));
        CHECK_STATUS(tb_stage(sub, &uid, 20000), TB_LAYOUT_MISMATCH);
        if (strstr(tb_last_error(), said[i]) == NULL) fail_msg("%s", tb_last_error());
        CHECK_OK(tb_unsubscribe(sub));
        free(memory);
    }
    tb_session_close(reader);
    tb_session_close(s);
    free(u.memory);
    fake_close(&f);
}

/* An element stands once in a shard, and a name has one shape: said when it is published, as
 * it may be read into. */
static void boxes_that_no_shard_may_have_are_named(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *s = fake_session_open(&f, "rank0", "host-a");
    struct fused u;
    fused_open(&u, 0, 2);
    const struct tb_publish_options o = {.shard_count = 1};
    u.axes[1][2] = u.axes[0][2] + u.axes[0][4] - 1;
    CHECK_STATUS(publish_list(s, u.list, SECTIONS, o), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "slices 0 and 1 of \"w\" overlap"));
    u.axes[1][2] = 512;
    u.list[2].dtype = "F16";
    CHECK_STATUS(publish_list(s, u.list, SECTIONS, o), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "slices 0 and 2 of \"w\" have different"));
    u.list[2].dtype = "BF16";
    u.list[0].split_axis = 1;
    u.list[0].split_count = 1023; /* and two more boxes */
    CHECK_STATUS(publish_list(s, u.list, SECTIONS, o), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "more parts"));
    u.list[0].split_count = 1022;
    CHECK_OK(publish_list(s, u.list, SECTIONS, o));
    tb_session_close(s);
    free(u.memory);
    fake_close(&f);
}

/* P1, P2: a version in boxes is no patch of whole tensors; the buffers hold all of each
 * version all the same. */
static void boxes_come_whole_where_patches_are_wanted(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *rank = fake_session_open(&f, "rank0", "host-a");
    struct tb_session *s = fake_session_open(&f, "reader", "host-b");
    uint16_t *memory = calloc(2, ROWS * COLS);
    const uint64_t shape[] = {ROWS, COLS};
    const struct tb_tensor_desc d = {"w", "BF16", 2, shape, memory};
    struct tb_registration *reg;
    CHECK_OK(tb_register(s, &d, 1, &reg));
    const struct tb_subscribe_options o = {.struct_bytes = sizeof o,
                                           .member_count = 1,
                                           .model = "policy",
                                           .registration = reg,
                                           .update = TB_UPDATE_PATCH};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(s, &o, &sub));
    for (uint64_t number = 1; number < 4; number++) {
        /* In parts, whole, and in parts again. */
        publish_column_slice(rank, number, 0, 1, number == 2 ? 0 : 2);
        fake_land(&f, number);
        const struct tb_uid uid = fake_uid(fake_version(&f, number));
        if (tb_stage(sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
        fake_go(&f, number);
        struct tb_activate_info info = {.struct_bytes = sizeof info};
        if (tb_activate(sub, &uid, &info) != TB_OK) fail_msg("%s", tb_last_error());
        assert_int_equal(info.copied_bytes + info.patched_bytes, 2 * ROWS * COLS);
        for (uint64_t r = 0; r < ROWS; r++)
            for (uint64_t c = 0; c < COLS; c++)
                assert_int_equal(memory[r * COLS + c], (uint16_t)(element(r, c) + step_of(number)));
    }
    tb_session_close(s);
    tb_session_close(rank);
    free(memory);
    fake_close(&f);
}

static void a_slice_that_cannot_be_is_named(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *s = fake_session_open(&f, "reader", "host-b");
    uint64_t axes[6];
    struct tb_registration *reg;
    uint16_t byte[4];
    struct tb_slice_desc d = slice(axes, COLS - 1, 2, byte); /* one column too many */
    CHECK_STATUS(tb_register_slices(s, &d, 1, &reg), TB_BAD_ARGUMENT);
    assert_non_null(strstr(tb_last_error(), "axis 1"));
    d = slice(axes, 0, 2, NULL);
    CHECK_STATUS(tb_register_slices(s, &d, 1, &reg), TB_BAD_ARGUMENT);
    d = slice(axes, 0, 2, byte);
    d.split_axis = 2;
    d.split_count = 2;
    CHECK_STATUS(tb_register_slices(s, &d, 1, &reg), TB_BAD_ARGUMENT);
    d.struct_bytes = 8;
    CHECK_STATUS(tb_register_slices(s, &d, 1, &reg), TB_BAD_ARGUMENT);
    CHECK_STATUS(tb_register_slices(s, &d, 0, &reg), TB_BAD_ARGUMENT);
    tb_session_close(s);
    fake_close(&f);
}

static uint8_t half(const uint8_t *bytes, uint64_t i)
{
    return (uint8_t)(bytes[i / 2] >> (4 * (i % 2)) & 15);
}

/* Rows of 16 bytes: 32 elements of F4. Published in two boxes, one of them split; read
 * from the middle of both. */
static void boxes_of_half_bytes_are_read(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *trainer = fake_session_open(&f, "trainer", "host-a");
    uint8_t whole[3 * 16], left[3 * 6], right[3 * 10], middle[2 * 5] = {0};
    for (uint32_t i = 0; i < sizeof whole; i++)
        whole[i] = (uint8_t)(i * 37 + 11);
    for (uint32_t r = 0; r < 3; r++) {
        memcpy(left + r * 6, whole + r * 16, 6);
        memcpy(right + r * 10, whole + r * 16 + 6, 10);
    }
    const uint64_t shape[2] = {3, 32}, first[2] = {0, 12}, lefts[2] = {3, 12}, rights[2] = {3, 20};
    struct tb_slice_desc boxes[2] = {{.struct_bytes = sizeof *boxes,
                                      .rank = 2,
                                      .name = "w",
                                      .dtype = "F4",
                                      .shape = shape,
                                      .count = lefts,
                                      .memory = left}};
    boxes[1] = boxes[0];
    boxes[1].first = first;
    boxes[1].count = rights;
    boxes[1].memory = right;
    boxes[1].split_axis = 1;
    boxes[1].split_count = 4;
    struct tb_registration *reg;
    if (tb_register_slices(trainer, boxes, 2, &reg) != TB_OK) fail_msg("%s", tb_last_error());
    struct tb_run_info run = {.struct_bytes = sizeof run};
    CHECK_OK(tb_run_open(trainer, "policy", "k", &run));
    const struct tb_publish_options o = {.struct_bytes = sizeof o,
                                         .model = "policy",
                                         .run = &run.run,
                                         .number = 1,
                                         .shard_count = 1,
                                         .registration = reg};
    struct tb_publish_info info = {.struct_bytes = sizeof info};
    if (tb_publish(trainer, &o, &info) != TB_OK) fail_msg("%s", tb_last_error());
    fake_land(&f, 1);

    struct tb_session *s = fake_session_open(&f, "reader", "host-b");
    const uint64_t from[2] = {1, 8}, so_many[2] = {2, 10};
    struct tb_slice_desc want = boxes[0];
    want.first = from;
    want.count = so_many;
    want.memory = middle;
    CHECK_OK(tb_register_slices(s, &want, 1, &reg));
    const struct tb_subscribe_options so = {
        .struct_bytes = sizeof so, .member_count = 1, .model = "policy", .registration = reg};
    struct tb_subscription *sub;
    CHECK_OK(tb_subscribe(s, &so, &sub));
    const struct tb_uid uid = fake_uid(fake_version(&f, 1));
    if (tb_stage(sub, &uid, 20000) != TB_OK) fail_msg("%s", tb_last_error());
    fake_go(&f, 1);
    CHECK_OK(tb_activate(sub, &uid, NULL));
    for (uint64_t r = 0; r < 2; r++)
        for (uint64_t c = 0; c < 10; c++)
            assert_int_equal(half(middle, r * 10 + c), half(whole, (r + 1) * 32 + 8 + c));
    tb_session_close(s);
    tb_session_close(trainer);
    fake_close(&f);
}

static void boxes_inside_a_byte_are_refused(void **state)
{
    (void)state;
    struct fake f;
    fake_open(&f);
    struct tb_session *s = fake_session_open(&f, "reader", "host-b");
    uint8_t memory[64];
    static const struct {
        uint64_t shape[2], first[2], count[2];
        uint32_t split;
        const char *why;
    } rows[] = {
        {{3, 8}, {0, 1}, {3, 4}, 0, "slice 0, of \"w\": a box of F4 (4 bits"},
        {{3, 8}, {0, 0}, {3, 3}, 0, "slice 0, of \"w\": a box of F4 (4 bits"},
        {{3, 7}, {1, 0}, {1, 7}, 0, "slice 0, of \"w\": a box of F4 (4 bits"},
        {{3, 8}, {0, 0}, {3, 8}, 8, "part 0 of slice 0, of \"w\": a box of F4"},
        {{3, 12}, {0, 0}, {3, 12}, 4, "part 0 of slice 0, of \"w\": a box of F4"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct tb_slice_desc d = {.struct_bytes = sizeof d,
                                        .rank = 2,
                                        .name = "w",
                                        .dtype = "F4",
                                        .shape = rows[i].shape,
                                        .first = rows[i].first,
                                        .count = rows[i].count,
                                        .memory = memory,
                                        .split_axis = 1,
                                        .split_count = rows[i].split};
        struct tb_registration *reg;
        CHECK_STATUS(tb_register_slices(s, &d, 1, &reg), TB_BAD_ARGUMENT);
        if (strstr(tb_last_error(), rows[i].why) == NULL) fail_msg("%zu: %s", i, tb_last_error());
    }
    tb_session_close(s);
    fake_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_read_by_any_number_of_ranks),
        cmocka_unit_test(several_boxes_of_a_tensor_are_read),
        cmocka_unit_test(a_rank_publishes_several_boxes_of_a_tensor),
        cmocka_unit_test(a_box_that_a_version_lacks_is_said),
        cmocka_unit_test(boxes_that_no_shard_may_have_are_named),
        cmocka_unit_test(boxes_come_whole_where_patches_are_wanted),
        cmocka_unit_test(a_slice_that_cannot_be_is_named),
        cmocka_unit_test(boxes_of_half_bytes_are_read),
        cmocka_unit_test(boxes_inside_a_byte_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
