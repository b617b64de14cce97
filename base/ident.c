/* ident.c - names, ids and the identities in certificates. */
#include "base/ident.h"

#include <string.h>

#include "base/assert.h"

bool tb_id_equal(const struct tb_id *a, const struct tb_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof a->bytes) == 0;
}

bool tb_id_is_zero(const struct tb_id *id)
{
    static const struct tb_id zero;
    return tb_id_equal(id, &zero);
}

void tb_id_format(const struct tb_id *id, char hex_out[TB_HEX_CHARS])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < sizeof id->bytes; i++) {
        hex_out[2 * i] = digits[id->bytes[i] >> 4];
        hex_out[2 * i + 1] = digits[id->bytes[i] & 15u];
    }
    hex_out[TB_HEX_CHARS - 1] = '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool tb_id_parse(const char *hex, struct tb_id *id_out)
{
    struct tb_id id;
    for (size_t i = 0; i < sizeof id.bytes; i++) {
        const int high = hex_value(hex[2 * i]);
        if (high < 0) return false; /* also the end of the string: nothing is read past it */
        const int low = hex_value(hex[2 * i + 1]);
        if (low < 0) return false;
        id.bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (hex[TB_HEX_CHARS - 1] != '\0') return false;
    *id_out = id;
    return true;
}

struct tb_id tb_read_id(struct tb_reader *r)
{
    struct tb_id id = {{0}};
    tb_read_bytes(r, id.bytes, sizeof id.bytes);
    return id;
}

void tb_write_id(struct tb_writer *w, const struct tb_id *id)
{
    tb_write_bytes(w, id->bytes, sizeof id->bytes);
}

static bool name_char(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

static bool name_bytes_valid(const char *text, size_t count)
{
    if (count == 0 || count > TB_NAME_BYTES_MAX) return false;
    for (size_t i = 0; i < count; i++) {
        if (!name_char(text[i])) return false;
    }
    const bool dots = text[0] == '.' && (count == 1 || (count == 2 && text[1] == '.'));
    return !dots;
}

bool tb_name_valid(const char *text)
{
    return name_bytes_valid(text, strnlen(text, TB_NAME_BYTES_MAX + 1));
}

static enum tb_status name_set(struct tb_name *name_out, const char *text, size_t count)
{
    if (!name_bytes_valid(text, count)) return TB_BAD_ARGUMENT;
    memset(name_out, 0, sizeof *name_out);
    memcpy(name_out->text, text, count);
    return TB_OK;
}

enum tb_status tb_name_set(struct tb_name *name_out, const char *text)
{
    return name_set(name_out, text, strnlen(text, TB_NAME_BYTES_MAX + 1));
}

bool tb_name_equal(const struct tb_name *a, const struct tb_name *b)
{
    return strcmp(a->text, b->text) == 0;
}

void tb_read_name(struct tb_reader *r, struct tb_name *name_out)
{
    memset(name_out, 0, sizeof *name_out);
    const uint16_t count = tb_read_u16(r);
    const uint8_t *p = tb_read_span(r, count);
    if (p != NULL && name_set(name_out, (const char *)p, count) != TB_OK) r->bad = true;
    TB_ASSERT(r->bad || name_out->text[0] != '\0');
}

void tb_write_name(struct tb_writer *w, const struct tb_name *name)
{
    TB_ASSERT(tb_name_valid(name->text));
    tb_write_str(w, name->text);
}

static const char scheme[] = "tombolo://";
static const char unix_prefix[] = "unix:";
static const char worker[] = "worker";
static const char publisher[] = "publisher";

/* Decimal without sign or leading zero, so that one identity has one spelling. */
static bool uid_parse(const char *text, uint32_t *uid_out)
{
    uint64_t v = 0;
    if (text[0] == '\0' || (text[0] == '0' && text[1] != '\0')) return false;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9') return false;
        v = v * 10 + (uint64_t)(*c - '0');
        if (v > UINT32_MAX) return false;
    }
    *uid_out = (uint32_t)v;
    return true;
}

static enum tb_status uri_parse(const char *site, struct tb_identity *identity_out)
{
    const char *slash = strchr(site, '/');
    if (slash == NULL) return TB_BAD_ARGUMENT;
    if (name_set(&identity_out->site, site, (size_t)(slash - site)) != TB_OK) return TB_BAD_ARGUMENT;
    const char *second = slash + 1;
    const char *third = strchr(second, '/');
    if (third == NULL) {
        if (strcmp(second, worker) == 0 || strcmp(second, publisher) == 0) return TB_BAD_ARGUMENT;
        identity_out->kind = TB_IDENTITY_GATEWAY;
        return tb_name_set(&identity_out->name, second);
    }
    const size_t bytes = (size_t)(third - second);
    if (bytes == sizeof worker - 1 && memcmp(second, worker, bytes) == 0)
        identity_out->kind = TB_IDENTITY_WORKER;
    else if (bytes == sizeof publisher - 1 && memcmp(second, publisher, bytes) == 0)
        identity_out->kind = TB_IDENTITY_PUBLISHER;
    else
        return TB_BAD_ARGUMENT;
    return tb_name_set(&identity_out->name, third + 1);
}

enum tb_status tb_identity_parse(const char *text, struct tb_identity *identity_out)
{
    struct tb_identity identity = {.kind = TB_IDENTITY_NONE};
    if (strnlen(text, TB_URI_BYTES_MAX) == TB_URI_BYTES_MAX) return TB_BAD_ARGUMENT;
    if (strncmp(text, unix_prefix, sizeof unix_prefix - 1) == 0) {
        if (!uid_parse(text + sizeof unix_prefix - 1, &identity.uid)) return TB_BAD_ARGUMENT;
        identity.kind = TB_IDENTITY_UNIX;
    } else {
        if (strncmp(text, scheme, sizeof scheme - 1) != 0) return TB_BAD_ARGUMENT;
        const enum tb_status status = uri_parse(text + sizeof scheme - 1, &identity);
        if (status != TB_OK) return status;
    }
    TB_ASSERT(identity.kind != TB_IDENTITY_NONE);
    *identity_out = identity;
    return TB_OK;
}

static char *put(char *to, const char *text)
{
    const size_t count = strlen(text);
    memcpy(to, text, count + 1);
    return to + count;
}

static void put_uid(char *to, uint32_t uid)
{
    char digits[11];
    char *at = digits + sizeof digits - 1;
    *at = '\0';
    do {
        *--at = (char)('0' + uid % 10);
        uid /= 10;
    } while (uid > 0);
    TB_ASSERT(at >= digits);
    put(to, at);
}

_Static_assert(sizeof scheme + TB_NAME_BYTES_MAX + 1 + sizeof publisher + TB_NAME_BYTES_MAX <=
                   TB_URI_BYTES_MAX,
               "the longest identity fits");

void tb_identity_format(const struct tb_identity *identity, char out[TB_URI_BYTES_MAX])
{
    char *at = out;
    switch (identity->kind) {
    case TB_IDENTITY_NONE:
        put(at, "none");
        return;
    case TB_IDENTITY_UNIX:
        put_uid(put(at, unix_prefix), identity->uid);
        return;
    case TB_IDENTITY_GATEWAY:
    case TB_IDENTITY_WORKER:
    case TB_IDENTITY_PUBLISHER:
        break;
    }
    TB_ASSERT(strnlen(identity->site.text, TB_NAME_BYTES_MAX + 1) <= TB_NAME_BYTES_MAX);
    TB_ASSERT(strnlen(identity->name.text, TB_NAME_BYTES_MAX + 1) <= TB_NAME_BYTES_MAX);
    at = put(at, scheme);
    at = put(at, identity->site.text);
    at = put(at, "/");
    if (identity->kind == TB_IDENTITY_WORKER) at = put(put(at, worker), "/");
    if (identity->kind == TB_IDENTITY_PUBLISHER) at = put(put(at, publisher), "/");
    put(at, identity->name.text);
}

bool tb_identity_equal(const struct tb_identity *a, const struct tb_identity *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == TB_IDENTITY_UNIX) return a->uid == b->uid;
    return tb_name_equal(&a->site, &b->site) && tb_name_equal(&a->name, &b->name);
}
