/* spiffe.c - see spiffe.h. Lines are looked through one by one: a handshake costs more than 1,024
 * comparisons. */
#include "base/net/spiffe.h"

#include <stdio.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/net/list_file.h"

/* Without their '*', where they have one. */
struct line {
    char uri[TB_SPIFFE_BYTES_MAX];
    char identity[TB_URI_BYTES_MAX];
    bool open; /* both had one */
};

struct tb_spiffe {
    uint32_t count;
    struct tb_digest digest;
    struct line lines[];
};

/* ---- one URI ---- */

static const char scheme[] = "spiffe://";

static bool domain_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
}

static bool path_char(char c)
{
    return domain_char(c) || (c >= 'A' && c <= 'Z');
}

/* "/ns/rl/sa/trainer": no segment is empty, "." or "..". */
static bool path_valid(const char *path)
{
    while (*path == '/') {
        const char *segment = ++path;
        while (path_char(*path))
            path++;
        const size_t bytes = (size_t)(path - segment);
        const bool dots = segment[0] == '.' && (bytes == 1 || (bytes == 2 && segment[1] == '.'));
        if (bytes == 0 || dots) return false;
    }
    return *path == '\0';
}

bool tb_spiffe_valid(const char *uri)
{
    const size_t bytes = strnlen(uri, TB_SPIFFE_BYTES_MAX);
    if (bytes == TB_SPIFFE_BYTES_MAX || strncmp(uri, scheme, sizeof scheme - 1) != 0) return false;
    const char *domain = uri + sizeof scheme - 1, *path = domain;
    while (domain_char(*path))
        path++;
    return path > domain && *path == '/' && path_valid(path);
}

/* ---- a line ---- */

static bool word_copy(char *to, size_t cap, const struct tb_list_word *word)
{
    if (word->bytes == 0 || word->bytes >= cap || memchr(word->text, '\0', word->bytes) != NULL) return false;
    memcpy(to, word->text, word->bytes);
    to[word->bytes] = '\0';
    return true;
}

/* Takes the '*' from its end. */
static bool opened(char *word)
{
    const size_t bytes = strlen(word);
    TB_ASSERT(bytes > 0);
    if (word[bytes - 1] != '*') return false;
    word[bytes - 1] = '\0';
    return true;
}

/* Whether the words are a URI and an identity with `more` behind both. */
static bool is_pair(const struct line *l, const char *more)
{
    char uri[TB_SPIFFE_BYTES_MAX + 1], text[TB_URI_BYTES_MAX + 1];
    struct tb_identity identity;
    (void)snprintf(uri, sizeof uri, "%s%s", l->uri, more);
    (void)snprintf(text, sizeof text, "%s%s", l->identity, more);
    return tb_spiffe_valid(uri) && tb_identity_parse(text, &identity) == TB_OK &&
           identity.kind != TB_IDENTITY_UNIX; /* "unix:0" is for the kernel to say */
}

static bool line_parse(const char *text, size_t bytes, struct line *l)
{
    struct tb_list_word first, second;
    const size_t used = tb_list_word(text, bytes, &first);
    (void)tb_list_word(text + used, bytes - used, &second);
    if (!word_copy(l->uri, sizeof l->uri, &first) || !word_copy(l->identity, sizeof l->identity, &second))
        return false;
    const bool uri_opened = opened(l->uri), identity_opened = opened(l->identity);
    l->open = uri_opened;
    return uri_opened == identity_opened && is_pair(l, uri_opened ? "x" : "");
}

/* ---- a list ---- */

static struct tb_digest digest_of(const struct tb_spiffe *list)
{
    struct tb_digest_state all;
    tb_digest_begin(&all);
    for (uint32_t i = 0; i < list->count; i++) {
        const struct line *l = &list->lines[i];
        tb_digest_update(&all, l->uri, strlen(l->uri) + 1);
        tb_digest_update(&all, l->identity, strlen(l->identity) + 1);
        tb_digest_update(&all, &l->open, sizeof l->open);
    }
    return tb_digest_end(&all);
}

enum tb_status tb_spiffe_parse(const char *text, size_t bytes, struct tb_spiffe **list_out,
                               uint32_t *line_out)
{
    *line_out = 0;
    if (bytes > TB_SPIFFE_FILE_MAX) return TB_TOO_LARGE;
    const uint32_t lines = tb_list_lines(text, bytes), room = lines < TB_SPIFFE_MAX ? lines : TB_SPIFFE_MAX;
    struct tb_spiffe *list = tb_calloc(1, sizeof *list + room * sizeof list->lines[0]);
    if (list == NULL) return TB_SITE_NOMEM;
    enum tb_status status = TB_OK;
    struct tb_list_walk w = {.text = text, .bytes = bytes};
    while (status == TB_OK && tb_list_next(&w)) {
        if (list->count == room)
            status = TB_TOO_LARGE;
        else if (!line_parse(w.row, w.row_bytes, &list->lines[list->count]))
            status = TB_BAD_FILE;
        else
            list->count++;
    }
    *line_out = w.line;
    if (status != TB_OK) {
        tb_free(list);
        return status;
    }
    list->digest = digest_of(list);
    *list_out = list;
    return TB_OK;
}

enum tb_status tb_spiffe_read(const char *path, struct tb_spiffe **list_out, char error_out[256])
{
    static const struct tb_list_kind kind = {
        "spiffe://DOMAIN/PATH and an identity tombolo://SITE/..., with a * at the end of both or of none",
        "lines", TB_SPIFFE_MAX};
    size_t bytes = 0;
    uint32_t line = 0;
    char *text = tb_list_file_read(path, TB_SPIFFE_FILE_MAX, &bytes, error_out);
    if (text == NULL) return TB_SITE_CONFIG;
    const enum tb_status status = tb_spiffe_parse(text, bytes, list_out, &line);
    tb_free(text);
    return status == TB_OK ? TB_OK : tb_list_refused(&kind, path, status, line, error_out);
}

void tb_spiffe_free(struct tb_spiffe *list)
{
    tb_free(list);
}

/* ---- who is it? ---- */

static bool fits(const struct line *l, const char *uri, struct tb_identity *identity_out)
{
    char text[TB_URI_BYTES_MAX];
    const size_t bytes = strlen(l->uri);
    if (!l->open) return strcmp(l->uri, uri) == 0 && tb_identity_parse(l->identity, identity_out) == TB_OK;
    if (strncmp(l->uri, uri, bytes) != 0) return false;
    const char *more = uri + bytes; /* no '/': a gateway's pattern would be open to workers */
    if (*more == '\0' || strchr(more, '/') != NULL) return false;
    const int count = snprintf(text, sizeof text, "%s%s", l->identity, more);
    return count > 0 && (size_t)count < sizeof text && tb_identity_parse(text, identity_out) == TB_OK;
}

enum tb_status tb_spiffe_identity(const struct tb_spiffe *list, const char *uri,
                                  struct tb_identity *identity_out)
{
    if (list == NULL || !tb_spiffe_valid(uri)) return TB_NOT_FOUND;
    for (uint32_t i = 0; i < list->count; i++)
        if (fits(&list->lines[i], uri, identity_out)) return TB_OK;
    return TB_NOT_FOUND;
}

uint32_t tb_spiffe_count(const struct tb_spiffe *list)
{
    return list != NULL ? list->count : 0;
}

struct tb_digest tb_spiffe_digest(const struct tb_spiffe *list)
{
    return list != NULL ? list->digest : (struct tb_digest){0};
}
