/* Safetensors headers: what the format allows is read exactly; what a stranger may write is refused
 * with its place. P7, P10.
 * Covers: gateway/disk/safetensors.c gateway/disk/safetensors_json.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/layout/dtype.h"
#include "gateway/disk/safetensors.h"

struct file {
    uint8_t *bytes;
    uint64_t header_bytes;
    uint64_t file_bytes;
};

static struct file file_of(const char *json, size_t json_bytes, uint64_t data_bytes)
{
    struct file f = {.bytes = malloc(8 + json_bytes),
                     .header_bytes = 8 + json_bytes,
                     .file_bytes = 8 + json_bytes + data_bytes};
    assert_non_null(f.bytes);
    for (int i = 0; i < 8; i++)
        f.bytes[i] = (uint8_t)((uint64_t)json_bytes >> (8 * i));
    memcpy(f.bytes + 8, json, json_bytes);
    return f;
}

static enum tb_status parse(const char *json, uint64_t data_bytes, struct tb_safetensors *out,
                            struct tb_safetensors_error *error)
{
    struct file f = file_of(json, strlen(json), data_bytes);
    const enum tb_status status =
        tb_safetensors_parse("m.safetensors", f.bytes, f.header_bytes, f.file_bytes, out, error);
    free(f.bytes);
    return status;
}

static void reads_tensors_in_the_order_of_their_bytes(void **state)
{
    (void)state;
    struct tb_safetensors s;
    struct tb_safetensors_error error;
    assert_int_equal(parse("{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
                           "\"__metadata__\":{\"format\":\"pt\",\"x\":\"\"},"
                           "\"a\":{\"data_offsets\":[0,4],\"shape\":[2],\"dtype\":\"BF16\"},"
                           "\"nothing\":{\"dtype\":\"F64\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                           "\"scalar\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[28,29]}}   ",
                           29, &s, &error),
                     TB_OK);
    assert_int_equal(s.tensor_count, 4);
    assert_int_equal(s.data_bytes, 29);
    assert_string_equal(s.tensors[0].name, "a");
    assert_int_equal(s.tensors[0].dtype, TB_DTYPE_BF16);
    assert_string_equal(s.tensors[1].name, "nothing");
    assert_string_equal(s.tensors[2].name, "b");
    assert_int_equal(s.tensors[2].rank, 2);
    assert_int_equal(s.tensors[2].shape[1], 3);
    assert_int_equal(s.tensors[2].begin, 4);
    assert_int_equal(s.tensors[2].end, 28);
    assert_int_equal(s.tensors[3].rank, 0);
    tb_safetensors_fini(&s);
    assert_int_equal(parse("{}", 0, &s, &error), TB_OK);
    assert_int_equal(s.tensor_count, 0);
    tb_safetensors_fini(&s);
}

/* By bits where they are known; else the bytes that data_offsets say, whatever the shape is. */
static void other_dtypes_are_read(void **state)
{
    (void)state;
    struct tb_safetensors s;
    struct tb_safetensors_error error;
    assert_int_equal(
        parse(
            "{\"f4\":{\"dtype\":\"F4\",\"shape\":[3,5],\"data_offsets\":[0,8]},"
            "\"f6\":{\"shape\":[3],\"dtype\":\"F6_E3M2\",\"data_offsets\":[8,11]},"
            "\"c\":{\"dtype\":\"C64\",\"shape\":[2],\"data_offsets\":[11,27]},"
            "\"new\":{\"data_offsets\":[27,34],\"shape\":[7,9,1],\"dtype\":\"MX_9.1\"},"
            "\"none\":{\"dtype\":\"abcdefghijklmnopqrstuvwxyz123\",\"shape\":[0],\"data_offsets\":[34,34]}}",
            34, &s, &error),
        TB_OK);
    assert_string_equal(s.tensors[0].dtype_text, "F4");
    assert_int_equal(s.tensors[0].other.bits, 4);
    assert_int_equal(s.tensors[0].rank, 2);
    assert_string_equal(s.tensors[1].dtype_text, "F6_E3M2");
    assert_int_equal(s.tensors[2].dtype, TB_DTYPE_OTHER);
    assert_string_equal(s.tensors[3].name, "new");
    assert_string_equal(s.tensors[3].dtype_text, "MX_9.1:8");
    assert_string_equal(s.tensors[3].other.name, "MX_9.1");
    assert_int_equal(s.tensors[3].rank, 1);
    assert_int_equal(s.tensors[3].shape[0], 7);
    assert_int_equal(s.tensors[4].shape[0], 0);
    tb_safetensors_fini(&s);
}

static void escapes_in_names_are_decoded(void **state)
{
    (void)state;
    struct tb_safetensors s;
    struct tb_safetensors_error error;
    assert_int_equal(
        parse("{\"w\\u00e9\\/\\ud83d\\ude00\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
              &s, &error),
        TB_OK);
    assert_string_equal(s.tensors[0].name, "w\xc3\xa9/\xf0\x9f\x98\x80");
    tb_safetensors_fini(&s);
}

#define T(name, shape, from, to)                                                                             \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

/* Each row is a header of a stranger; the error names the file and has these words. */
static const struct hostile {
    const char *what;
    const char *json;
    uint64_t data_bytes;
    enum tb_status status;
    const char *error;
} hostile[] = {
    {"empty header", "", 0, TB_BAD_FILE, "does not begin with '{'"},
    {"space first", " {}", 0, TB_BAD_FILE, "does not begin with '{'"},
    {"a list", "[]", 0, TB_BAD_FILE, "does not begin with '{'"},
    {"cut JSON", "{\"a\":{", 0, TB_BAD_FILE, "premature EOF"},
    {"not JSON", "{a}", 0, TB_BAD_FILE, "byte 10: not JSON: invalid"},
    {"two values", "{}{}", 0, TB_BAD_FILE, "trailing garbage"},
    {"comment", "{/* x */}", 0, TB_BAD_FILE, "not JSON"},
    {"tensor is a string", "{\"a\":\"b\"}", 0, TB_BAD_FILE, "expected an object for a tensor"},
    {"tensor is null", "{\"a\":null}", 0, TB_BAD_FILE, "expected an object for a tensor"},
    {"tensor is true", "{\"a\":true}", 0, TB_BAD_FILE, "expected an object for a tensor"},
    {"nested deep", "{\"a\":{\"shape\":[[[[[[[[1]]]]]]]]}}", 0, TB_BAD_FILE, "expected a number in shape"},
    {"object in shape", "{\"a\":{\"shape\":[{}]}}", 0, TB_BAD_FILE, "expected a number in shape"},
    {"metadata is a list", "{\"__metadata__\":[]}", 0, TB_BAD_FILE, "object of strings"},
    {"metadata number", "{\"__metadata__\":{\"a\":1}}", 0, TB_BAD_FILE,
     "expected a string for a key of __metadata__"},
    {"metadata nested", "{\"__metadata__\":{\"a\":{}}}", 0, TB_BAD_FILE,
     "expected a string for a key of __metadata__"},
    {"metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, TB_BAD_FILE,
     "__metadata__ stands there twice"},
    {"metadata key twice", "{\"__metadata__\":{\"a\":\"\",\"b\":\"\",\"a\":\"\"}}", 0, TB_BAD_FILE,
     "__metadata__ key \"a\" stands there twice"},
    {"name twice", "{" T("a", "1", "0", "1") "," T("b", "1", "1", "2") "," T("a", "1", "2", "3") "}", 3,
     TB_BAD_FILE, "tensor \"a\" stands there twice"},
    {"name twice by escape", "{" T("a", "1", "0", "1") "," T("\\u0061", "1", "1", "2") "}", 2, TB_BAD_FILE,
     "twice"},
    {"empty name", "{" T("", "1", "0", "1") "}", 1, TB_BAD_FILE, "empty or has control characters"},
    {"NUL in name", "{" T("a\\u0000b", "1", "0", "1") "}", 1, TB_BAD_FILE,
     "\"a\\x00b\" is empty or has control"},
    {"escape in name", "{" T("\\u001b[2J", "1", "0", "1") "}", 1, TB_BAD_FILE, "\\x1b[2J"},
    {"field unknown", "{\"a\":{\"dtype\":\"U8\",\"extra\":1}}", 0, TB_BAD_FILE, "field \"extra\""},
    {"field twice", "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, TB_BAD_FILE, "has dtype twice"},
    {"field missing", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, TB_BAD_FILE, "tensor \"a\" lacks"},
    {"dtype empty", "{\"a\":{\"dtype\":\"\"}}", 0, TB_BAD_FILE, "dtype \"\""},
    {"dtype with bits", "{\"a\":{\"dtype\":\"F13:13\"}}", 0, TB_BAD_FILE, "dtype \"F13:13\""},
    {"NUL in dtype", "{\"a\":{\"dtype\":\"U8\\u0000\"}}", 0, TB_BAD_FILE, "dtype \"U8\\x00\""},
    {"space in dtype", "{\"a\":{\"dtype\":\"U 8\"}}", 0, TB_BAD_FILE, "dtype \"U 8\""},
    {"dtype long", "{\"a\":{\"dtype\":\"F32F32F32F32F32F32F32F32F32F32\"}}", 0, TB_BAD_FILE, "is 1 to 29 of"},
    {"dtype number", "{\"a\":{\"dtype\":7}}", 0, TB_BAD_FILE, "expected a string for dtype"},
    {"negative dimension", "{" T("a", "-1", "0", "1") "}", 1, TB_BAD_FILE, "not a whole number"},
    {"fraction", "{" T("a", "1.0", "0", "1") "}", 1, TB_BAD_FILE, "not a whole number"},
    {"exponent", "{" T("a", "1e0", "0", "1") "}", 1, TB_BAD_FILE, "not a whole number"},
    {"dimension 2^64", "{" T("a", "18446744073709551616", "0", "1") "}", 1, TB_BAD_FILE,
     "not a whole number below 2^64"},
    {"shape overflows", "{" T("a", "4294967296,4294967296", "0", "0") "}", 0, TB_BAD_FILE, "over 2^64"},
    {"shape wraps to fit", "{" T("a", "9223372036854775808,2,3", "0", "0") "}", 0, TB_BAD_FILE, "over 2^64"},
    {"nine dimensions", "{" T("a", "1,1,1,1,1,1,1,1,1", "0", "1") "}", 1, TB_TOO_LARGE,
     "more than 8 dimensions"},
    {"one offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, TB_BAD_FILE,
     "fewer than two"},
    {"three offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, TB_BAD_FILE,
     "more than two"},
    {"offset negative", "{" T("a", "1", "-1", "0") "}", 1, TB_BAD_FILE, "data_offset that is not"},
    {"offset huge", "{" T("a", "1", "99999999999999999999", "0") "}", 1, TB_BAD_FILE,
     "data_offset that is not"},
    {"ends before it begins", "{" T("a", "1", "2", "1") "}", 2, TB_BAD_FILE, "ends before it begins"},
    {"too few bytes", "{" T("a", "4", "0", "3") "}", 3, TB_BAD_FILE,
     "takes 4 bytes by shape and dtype, but 3"},
    {"half a byte too few", "{\"a\":{\"dtype\":\"F4\",\"shape\":[5],\"data_offsets\":[0,2]}}", 2, TB_BAD_FILE,
     "takes 3 bytes by shape and dtype, but 2"},
    {"half a byte too many", "{\"a\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3,
     TB_BAD_FILE, "takes 2 bytes by shape and dtype, but 3"},
    {"bits overflow",
     "{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, TB_BAD_FILE,
     "over 2^64"},
    {"beyond the file", "{" T("a", "4", "0", "4") "}", 3, TB_BAD_FILE,
     "ends at data byte 4, but there are 3"},
    {"far beyond the file", "{" T("a", "9", "18446744073709551606", "18446744073709551615") "}", 3,
     TB_BAD_FILE, "cut short"},
    {"overlap", "{" T("a", "4", "0", "4") "," T("b", "4", "3", "7") "}", 7, TB_BAD_FILE,
     "\"a\" and \"b\" overlap at data byte 3"},
    {"same place", "{" T("a", "4", "0", "4") "," T("b", "4", "0", "4") "}", 4, TB_BAD_FILE,
     "overlap at data byte 0"},
    {"empty inside another", "{" T("a", "4", "0", "4") "," T("b", "0", "2", "2") "}", 4, TB_BAD_FILE,
     "overlap"},
    {"hole at the start", "{" T("a", "1", "1", "2") "}", 2, TB_BAD_FILE,
     "data bytes 0 to 1 before tensor \"a\""},
    {"hole between", "{" T("a", "1", "0", "1") "," T("b", "1", "2", "3") "}", 3, TB_BAD_FILE,
     "data bytes 1 to 2 before tensor \"b\""},
    {"trailing bytes", "{" T("a", "1", "0", "1") "}", 3, TB_BAD_FILE, "2 bytes behind the last tensor"},
    {"bytes and no tensor", "{}", 1, TB_BAD_FILE, "1 bytes behind the last tensor"},
    {"not UTF-8", "{\"a\xff\":1}", 0, TB_BAD_FILE, "byte 11 of the file is not UTF-8"},
    {"overlong", "{\"a\xc0\xaf\":1}", 0, TB_BAD_FILE, "byte 11 of the file is not UTF-8"},
    {"surrogate", "{\"a\xed\xa0\x80\":1}", 0, TB_BAD_FILE, "is not UTF-8"},
    {"over U+10FFFF", "{\"a\xf4\x90\x80\x80\":1}", 0, TB_BAD_FILE, "is not UTF-8"},
    {"cut sequence", "{\"a\xe2\x82", 0, TB_BAD_FILE, "is not UTF-8"},
    {"a shard too large", "{" T("a", "17592186044417", "0", "17592186044417") "}", 17592186044417,
     TB_TOO_LARGE, "more than a shard"},
};

static void bad_headers_are_refused_with_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) {
        const struct hostile *h = &hostile[i];
        struct tb_safetensors s = {0};
        struct tb_safetensors_error error = {"(none)"};
        const enum tb_status status = parse(h->json, h->data_bytes, &s, &error);
        if (status != h->status || strstr(error.text, h->error) == NULL ||
            strncmp(error.text, "m.safetensors: ", 15) != 0)
            fail_msg("%s: status %d, error: %s", h->what, status, error.text);
    }
}

static void the_length_of_the_header_is_not_believed(void **state)
{
    (void)state;
    static const struct {
        uint64_t json;
        uint64_t file;
        enum tb_status status;
    } rows[] = {
        {2, 10, TB_OK},
        {3, 10, TB_BAD_FILE},
        {UINT64_MAX, 10, TB_TOO_LARGE},
        {UINT64_MAX - 7, UINT64_MAX, TB_TOO_LARGE},
        {100000000, 100000008, TB_OK},
        {100000001, UINT64_MAX, TB_TOO_LARGE},
        {0, 7, TB_BAD_FILE},
        {0, 0, TB_BAD_FILE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint8_t prefix[8];
        for (int b = 0; b < 8; b++)
            prefix[b] = (uint8_t)(rows[i].json >> (8 * b));
        uint64_t bytes = 0;
        struct tb_safetensors_error error;
        assert_int_equal(tb_safetensors_header_bytes("m", prefix, rows[i].file, &bytes, &error),
                         rows[i].status);
        if (rows[i].status == TB_OK) assert_int_equal(bytes, rows[i].json + 8);
    }
}

static void a_name_may_have_512_bytes_and_no_more(void **state)
{
    (void)state;
    for (int length = 512; length <= 513; length++) {
        char json[1024];
        char name[514];
        struct tb_safetensors s;
        struct tb_safetensors_error error;
        memset(name, 'n', sizeof name);
        name[length] = '\0';
        (void)snprintf(json, sizeof json, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                       name);
        assert_int_equal(parse(json, 1, &s, &error), length == 512 ? TB_OK : TB_TOO_LARGE);
        if (length == 512) tb_safetensors_fini(&s);
    }
}

/* Every prefix of a good header is refused, and none is read past its end (the buffer is exact, for
 * AddressSanitizer). */
static void every_truncation_is_refused(void **state)
{
    (void)state;
    static const char json[] =
        "{\"__metadata__\":{\"k\":\"v\"}," T("a", "4", "0", "4") "," T("b", "2,1", "4", "6") "}";
    for (size_t cut = 0; cut + 1 < sizeof json; cut++) {
        struct file f = file_of(json, cut, 6);
        struct tb_safetensors s;
        struct tb_safetensors_error error;
        assert_int_equal(tb_safetensors_parse("m", f.bytes, f.header_bytes, f.file_bytes, &s, &error),
                         TB_BAD_FILE);
        free(f.bytes);
    }
}

static void many_tensors_are_read(void **state)
{
    (void)state;
    const uint32_t count = 20000;
    char *json = malloc(count * 96u);
    assert_non_null(json);
    size_t used = 0;
    for (uint32_t i = 0; i < count;
         i++) /* last first: the order of the header is not the order of the bytes */
        used += (size_t)sprintf(json + used,
                                "%s\"t%u\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%u,%u]}",
                                i == 0 ? "{" : ",", i, 2 * (count - 1 - i), 2 * (count - i));
    (void)strcpy(json + used, "}");
    struct tb_safetensors s;
    struct tb_safetensors_error error;
    assert_int_equal(parse(json, 2ull * count, &s, &error), TB_OK);
    assert_int_equal(s.tensor_count, count);
    assert_string_equal(s.tensors[0].name, "t19999");
    tb_safetensors_fini(&s);
    free(json);
}

/* Each allocation fails once: a status, no leak (AddressSanitizer looks), no half result. */
static void no_memory_is_a_status(void **state)
{
    (void)state;
    static const char json[] = "{\"__metadata__\":{\"k\":\"v\"}," T("a", "4", "0", "4") "}";
    int refused = 0;
    for (uint64_t nth = 1; nth < 20; nth++) {
        struct tb_safetensors s;
        struct tb_safetensors_error error;
        tb_fault_arm(TB_FAULT_malloc, nth, false);
        const enum tb_status status = parse(json, 4, &s, &error);
        tb_fault_arm(TB_FAULT_malloc, 0, false);
        if (status == TB_OK)
            tb_safetensors_fini(&s);
        else
            assert_int_equal(status, TB_SITE_NOMEM);
        refused += status != TB_OK;
    }
    assert_int_equal(refused, 4); /* names, two tables, and the list that is sorted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_tensors_in_the_order_of_their_bytes),
        cmocka_unit_test(other_dtypes_are_read),
        cmocka_unit_test(escapes_in_names_are_decoded),
        cmocka_unit_test(bad_headers_are_refused_with_their_place),
        cmocka_unit_test(the_length_of_the_header_is_not_believed),
        cmocka_unit_test(a_name_may_have_512_bytes_and_no_more),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(many_tensors_are_read),
        cmocka_unit_test(no_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
