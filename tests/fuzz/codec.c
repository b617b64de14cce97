/* Decoding stays inside its buffers whatever form and base it is given, and what is encoded comes
 * back. Bytes 0 to 2: the form (its number, and 128 for a base) and how many bytes are to come out;
 * the rest is the coded chunk, and its base too.
 *
 * Covers: base/codec/codec.c */
#include "base/codec/codec.h"

#include <stdbool.h>

#include "tests/fuzz/fuzz.h"

static struct tb_codec_form form_of(uint8_t byte)
{
    return (struct tb_codec_form){(enum tb_codec_id)(byte & 0x7f), byte >= 128};
}

/* The input's own bytes against a base that differs in every 7th. */
static void round_trip(struct tb_codec *codec, struct tb_codec_form wanted, const uint8_t *bytes,
                       size_t count)
{
    const size_t cap = tb_codec_bound(wanted.id, count);
    uint8_t *out = malloc(cap + 1), *again = malloc(count + 1), *base = malloc(count + 1);
    struct tb_codec_coded coded;
    FUZZ_REQUIRE(out != NULL && again != NULL && base != NULL);
    if (count > 0) memcpy(base, bytes, count);
    for (size_t i = 0; i < count; i += 7)
        base[i] = (uint8_t)(base[i] - bytes[count / 2]);
    const struct tb_codec_input in = {bytes, count, (enum tb_dtype)(1 + count % 15), base,
                                      (unsigned)(count / 15 % 17)};
    FUZZ_REQUIRE(tb_codec_encode(codec, wanted, &in, (struct tb_codec_room){out, cap}, &coded) == TB_OK);
    FUZZ_REQUIRE(coded.count <= count && (coded.form.id == wanted.id || coded.form.id == TB_CODEC_RAW));
    const struct tb_codec_output to = {again, count, coded.form.on_base ? base : NULL};
    FUZZ_REQUIRE(tb_codec_decode(codec, &coded, &to) == TB_OK);
    FUZZ_REQUIRE(count == 0 || memcmp(again, bytes, count) == 0);
    free(out);
    free(again);
    free(base);
}

static void decode(struct tb_codec *codec, const struct tb_codec_coded *coded, size_t out_count,
                   bool has_base)
{
    uint8_t *out = malloc(out_count + 1), *base = malloc(out_count + 1);
    const uint8_t *bytes = coded->bytes;
    FUZZ_REQUIRE(out != NULL && base != NULL);
    for (size_t i = 0; i < out_count; i++)
        base[i] = coded->count > 0 ? bytes[i % coded->count] : 0;
    out[out_count] = 0x5a;
    const struct tb_codec_output to = {out, out_count, has_base ? base : NULL};
    const enum tb_status status = tb_codec_decode(codec, coded, &to);
    FUZZ_REQUIRE(status == TB_OK || status == TB_CHUNK_CODEC);
    FUZZ_REQUIRE(status != TB_OK || (tb_codec_form_valid(coded->form) && (has_base || !coded->form.on_base)));
    FUZZ_REQUIRE(out[out_count] == 0x5a);
    free(out);
    free(base);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static struct tb_codec *codec;
    if (codec == NULL) FUZZ_REQUIRE(tb_codec_new(&codec) == TB_OK);
    if (count < 3) return 0;
    const size_t out_count = (size_t)bytes[1] | (size_t)bytes[2] << 8;
    const struct tb_codec_coded coded = {form_of(bytes[0]), bytes + 3, count - 3};
    decode(codec, &coded, out_count, true);
    decode(codec, &coded, out_count, false);
    if (tb_codec_form_valid(coded.form)) round_trip(codec, coded.form, bytes + 3, count - 3);
    return 0;
}
