/* revoked.c - a list of revoked certificates: read, and asked. A few entries are looked through one
 * by one: a handshake costs more than 4,096 comparisons. */
#include "base/net/revoked.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/list_file.h"

struct tb_revoked {
    uint32_t count;
    struct tb_digest digest;
    struct tb_revoked_entry entries[];
};

/* ---- an entry ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Whole bytes, with or without colons between them. 0: it is something else, or has more than
 * `cap`. */
static size_t hex_read(const char *text, size_t bytes, uint8_t *out, size_t cap)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes; count++) {
        if (count > 0 && text[at] == ':') at++;
        if (at + 2 > bytes || count == cap) return 0;
        const int high = hex_digit(text[at]), low = hex_digit(text[at + 1]);
        if (high < 0 || low < 0) return 0;
        out[count] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    return count;
}

static bool begins(const char *text, size_t bytes, const char *with)
{
    return bytes > strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

static enum tb_status serial_parse(const char *text, size_t bytes, struct tb_revoked_entry *e)
{
    uint8_t all[TB_SERIAL_BYTES_MAX + 1]; /* DER has a zero before a high bit */
    const size_t count = hex_read(text, bytes, all, sizeof all);
    size_t zeros = 0;
    while (zeros < count && all[zeros] == 0)
        zeros++;
    if (count == zeros || count - zeros > TB_SERIAL_BYTES_MAX) return TB_BAD_ARGUMENT;
    e->kind = TB_REVOKED_SERIAL;
    e->serial_bytes = (uint8_t)(count - zeros);
    memcpy(e->serial, all + zeros, count - zeros);
    return TB_OK;
}

static enum tb_status uri_parse(const char *text, size_t bytes, struct tb_revoked_entry *e)
{
    char uri[TB_URI_BYTES_MAX];
    if (bytes >= sizeof uri || memchr(text, '\0', bytes) != NULL) return TB_BAD_ARGUMENT;
    memcpy(uri, text, bytes);
    uri[bytes] = '\0';
    if (tb_identity_parse(uri, &e->identity) != TB_OK) return TB_BAD_ARGUMENT;
    e->kind = TB_REVOKED_IDENTITY;
    const bool certified = e->identity.kind == TB_IDENTITY_GATEWAY || e->identity.kind == TB_IDENTITY_WORKER;
    return certified ? TB_OK : TB_BAD_ARGUMENT; /* a user id has no certificate */
}

enum tb_status tb_revoked_entry_parse(const char *text, size_t bytes, struct tb_revoked_entry *entry_out)
{
    struct tb_revoked_entry e = {0};
    enum tb_status status = TB_OK;
    if (begins(text, bytes, "sha256:")) {
        e.kind = TB_REVOKED_FINGERPRINT;
        if (hex_read(text + 7, bytes - 7, e.fingerprint.bytes, sizeof e.fingerprint.bytes) !=
            sizeof e.fingerprint.bytes)
            status = TB_BAD_ARGUMENT;
    } else if (begins(text, bytes, "serial:")) {
        status = serial_parse(text + 7, bytes - 7, &e);
    } else {
        status = uri_parse(text, bytes, &e);
    }
    if (status == TB_OK) *entry_out = e;
    return status;
}

static void hex_write(char *out, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

void tb_revoked_entry_format(const struct tb_revoked_entry *e, char out[TB_REVOKED_TEXT_BYTES])
{
    TB_ASSERT(e->kind >= TB_REVOKED_FINGERPRINT && e->kind <= TB_REVOKED_IDENTITY);
    if (e->kind == TB_REVOKED_IDENTITY) {
        tb_identity_format(&e->identity, out);
        return;
    }
    const bool by_serial = e->kind == TB_REVOKED_SERIAL;
    const int used = snprintf(out, TB_REVOKED_TEXT_BYTES, "%s:", by_serial ? "serial" : "sha256");
    if (by_serial)
        hex_write(out + used, e->serial, e->serial_bytes);
    else
        hex_write(out + used, e->fingerprint.bytes, sizeof e->fingerprint.bytes);
}

bool tb_revoked_entry_equal(const struct tb_revoked_entry *a, const struct tb_revoked_entry *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == TB_REVOKED_IDENTITY) return tb_identity_equal(&a->identity, &b->identity);
    if (a->kind == TB_REVOKED_FINGERPRINT)
        return memcmp(a->fingerprint.bytes, b->fingerprint.bytes, sizeof a->fingerprint.bytes) == 0;
    return a->serial_bytes == b->serial_bytes && memcmp(a->serial, b->serial, a->serial_bytes) == 0;
}

/* ---- a list ---- */

static struct tb_digest digest_of(const struct tb_revoked *r)
{
    struct tb_digest_state all;
    tb_digest_begin(&all);
    for (uint32_t i = 0; i < r->count; i++) {
        char text[TB_REVOKED_TEXT_BYTES] = "";
        tb_revoked_entry_format(&r->entries[i], text);
        tb_digest_update(&all, text, strlen(text) + 1);
    }
    return tb_digest_end(&all);
}

enum tb_status tb_revoked_parse(const char *text, size_t bytes, struct tb_revoked **revoked_out,
                                uint32_t *line_out)
{
    *line_out = 0;
    if (bytes > TB_REVOKED_BYTES_MAX) return TB_TOO_LARGE;
    uint32_t room = tb_list_lines(text, bytes);
    if (room > TB_REVOKED_MAX) room = TB_REVOKED_MAX;
    struct tb_revoked *r = tb_calloc(1, sizeof *r + room * sizeof r->entries[0]);
    if (r == NULL) return TB_SITE_NOMEM;
    enum tb_status status = TB_OK;
    struct tb_list_walk w = {.text = text, .bytes = bytes};
    while (status == TB_OK && tb_list_next(&w)) {
        struct tb_list_word word;
        (void)tb_list_word(w.row, w.row_bytes, &word);
        if (r->count == room)
            status = TB_TOO_LARGE;
        else if (tb_revoked_entry_parse(word.text, word.bytes, &r->entries[r->count]) != TB_OK)
            status = TB_BAD_FILE;
        else
            r->count++;
    }
    *line_out = w.line;
    if (status != TB_OK) {
        tb_free(r);
        return status;
    }
    r->digest = digest_of(r);
    *revoked_out = r;
    return TB_OK;
}

void tb_revoked_free(struct tb_revoked *revoked)
{
    tb_free(revoked);
}

static bool hits(const struct tb_revoked_entry *e, const struct tb_revoked_certificate *c)
{
    switch (e->kind) {
    case TB_REVOKED_FINGERPRINT:
        return memcmp(e->fingerprint.bytes, c->fingerprint.bytes, sizeof e->fingerprint.bytes) == 0;
    case TB_REVOKED_SERIAL:
        return e->serial_bytes == c->serial_bytes && memcmp(e->serial, c->serial, c->serial_bytes) == 0;
    case TB_REVOKED_IDENTITY:
        return tb_identity_equal(&e->identity, &c->identity);
    }
    return false;
}

bool tb_revoked_has(const struct tb_revoked *revoked, const struct tb_revoked_certificate *certificate)
{
    for (uint32_t i = 0; revoked != NULL && i < revoked->count; i++)
        if (hits(&revoked->entries[i], certificate)) return true;
    return false;
}

bool tb_revoked_has_entry(const struct tb_revoked *revoked, const struct tb_revoked_entry *entry)
{
    for (uint32_t i = 0; revoked != NULL && i < revoked->count; i++)
        if (tb_revoked_entry_equal(&revoked->entries[i], entry)) return true;
    return false;
}

uint32_t tb_revoked_count(const struct tb_revoked *revoked)
{
    return revoked != NULL ? revoked->count : 0;
}

struct tb_digest tb_revoked_digest(const struct tb_revoked *revoked)
{
    return revoked != NULL ? revoked->digest : (struct tb_digest){0};
}
