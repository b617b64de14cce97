/* safetensors_json.h - a header while it is read. For safetensors.c and safetensors_json.c
 * alone. */
#ifndef TB_GATEWAY_DISK_SAFETENSORS_JSON_H
#define TB_GATEWAY_DISK_SAFETENSORS_JSON_H

#include <stdbool.h>

#include "gateway/disk/safetensors.h"

struct tb_safetensors_parse {
    unsigned state;        /* of the JSON: safetensors_json.c; 0 at first */
    enum tb_status status; /* TB_OK until something is wrong */
    char what[TB_SAFETENSORS_ERROR_BYTES - 128];
    char *names; /* as large as the header: no name can take more */
    size_t names_used, names_bytes;
    struct tb_safetensors_tensor *tensors;
    uint32_t tensor_count;
    uint32_t tensor_cap;
    const char **meta; /* keys of __metadata__ */
    uint32_t meta_count;
    uint32_t meta_cap;
    bool meta_seen;
    struct tb_safetensors_tensor now; /* the tensor whose object is open */
    unsigned fields;                  /* of it, seen so far */
    bool opaque;                      /* its dtype is not known */
    uint32_t offsets_count;
};

/* The first complaint stays. Always false, so that its callers can return it. */
bool tb_safetensors_refuse(struct tb_safetensors_parse *p, enum tb_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A stranger's text for a person: at most 60 bytes, control characters and quotes as \xNN. */
struct tb_safetensors_shown {
    char text[256];
};

struct tb_safetensors_shown tb_safetensors_show(const char *bytes, size_t count);

/* Tensors and keys of __metadata__, as the JSON has them, none compared with another yet. *at_out:
 * where in the file the parser stopped. False: p->status and p->what say why. */
bool tb_safetensors_read(struct tb_safetensors_parse *p, const uint8_t *json, size_t bytes, uint64_t *at_out);

#endif
