/* A file of a stranger: the prefix and JSON are the input, the rest of the file is as long as the
 * last tensor says or as the input says.
 *
 * Covers: gateway/disk/safetensors.c */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/layout/tensor.h"
#include "gateway/disk/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count);

/* An accepted file keeps the promises of safetensors.h. */
static void check(const struct tb_safetensors *s)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < s->tensor_count; i++) {
        TB_ASSERT(s->tensors[i].begin == at);
        TB_ASSERT(s->tensors[i].end >= at);
        TB_ASSERT(s->tensors[i].rank <= TB_RANK_MAX);
        TB_ASSERT(strlen(s->tensors[i].name) > 0 && strlen(s->tensors[i].name) <= TB_TENSOR_NAME_MAX);
        at = s->tensors[i].end;
    }
    TB_ASSERT(at == s->data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t count)
{
    struct tb_safetensors_error error;
    struct tb_safetensors s;
    if (count < 2) return 0;
    /* The first two bytes say how much data follows the header; the JSON is the rest,
     * behind a true prefix. */
    const uint64_t data_bytes = (uint64_t)(input[0] | input[1] << 8);
    const uint64_t json_bytes = count - 2;
    uint8_t *header = malloc(TB_SAFETENSORS_PREFIX_BYTES + json_bytes);
    if (header == NULL) return 0;
    for (int i = 0; i < TB_SAFETENSORS_PREFIX_BYTES; i++)
        header[i] = (uint8_t)(json_bytes >> (8 * i));
    memcpy(header + TB_SAFETENSORS_PREFIX_BYTES, input + 2, json_bytes);
    const uint64_t header_bytes = TB_SAFETENSORS_PREFIX_BYTES + json_bytes;
    if (tb_safetensors_parse("fuzz", header, header_bytes, header_bytes + data_bytes, &s, &error) == TB_OK) {
        check(&s);
        tb_safetensors_fini(&s);
    }
    free(header);
    return 0;
}
