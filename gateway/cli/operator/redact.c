/* redact.c - see redact.h. */
#include "gateway/cli/operator/redact.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define KEY_DIGITS   64u
#define BASE64_CHARS 40u
#define JWT_CHARS    24u

static const char hex_digits[] = "0123456789abcdefABCDEF";
static const char base64_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char bare_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/_-";
static const char jwt_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.";
static const char word_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

/* ---- each says how many characters at `text` are secret; 0: none ---- */

/* Up to the end of the block; of one that is cut, all. In JSON its lines are one. */
static size_t pem(const char *text)
{
    if (strncmp(text, "-----BEGIN", 10) != 0) return 0;
    const char *end = strstr(text, "-----END");
    const char *last = end != NULL ? strstr(end + 8, "-----") : NULL;
    return last != NULL ? (size_t)(last + 5 - text) : strlen(text);
}

static size_t digits(const char *text)
{
    const size_t count = strspn(text, hex_digits);
    return count >= KEY_DIGITS ? count : 0;
}

static size_t base64(const char *text)
{
    const size_t count = strspn(text, base64_chars);
    return count >= BASE64_CHARS && text[count] == '=' ? count + strspn(text + count, "=") : 0;
}

/* A key of 32 bytes without its '=', also in the alphabet of URLs. Names and paths that are so long
 * have more marks between their words, or letters of one case. */
static size_t bare_base64(const char *text)
{
    const size_t count = strspn(text, bare_chars);
    size_t marks = 0, upper = 0, lower = 0, numbers = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned char c = (unsigned char)text[i];
        marks += isalnum(c) == 0;
        upper += isupper(c) != 0;
        lower += islower(c) != 0;
        numbers += isdigit(c) != 0;
    }
    const bool is_key = count >= BASE64_CHARS && upper > 1 && lower > 1 && numbers > 0;
    return is_key && marks <= count / 10 ? count : 0;
}

/* A signed token: base64 of '{"', and dots between its parts. */
static size_t jwt(const char *text)
{
    const size_t head = strspn(text, word_chars), count = strspn(text, jwt_chars);
    return strncmp(text, "eyJ", 3) == 0 && text[head] == '.' && count >= JWT_CHARS ? count : 0;
}

/* "user:word" of "://user:word@host". */
static size_t login(const char *begin, const char *text)
{
    if (text - begin < 3 || strncmp(text - 3, "://", 3) != 0) return 0;
    const size_t count = strcspn(text, "@/ \"'\n");
    return text[count] == '@' ? count : 0;
}

static size_t ipv4(const char *text)
{
    size_t used = 0;
    for (int part = 0; part < 4; part++) {
        const size_t count = strspn(text + used, "0123456789");
        if (count < 1 || count > 3) return 0;
        used += count;
        if (part == 3) return used;
        if (text[used++] != '.') return 0;
    }
    return used;
}

/* Two colons that follow each other, or seven of them: a time of day has two. */
static size_t ipv6(const char *text)
{
    const size_t count = strspn(text, "0123456789abcdefABCDEF:");
    size_t colons = 0;
    bool doubled = false;
    for (size_t i = 0; i < count; i++) {
        colons += text[i] == ':';
        doubled |= text[i] == ':' && text[i + 1] == ':';
    }
    return count > 2 && (doubled || colons >= 7) ? count : 0;
}

/* ---- values of keys ---- */

static bool is_among(const char *const *names, const char *word, size_t bytes)
{
    for (; *names != NULL; names++)
        if (strlen(*names) == bytes && strncmp(*names, word, bytes) == 0) return true;
    return false;
}

/* `text` begins a word; up to its value: `"key": "`, `key: `, `key=`. 0: it is no key. */
static size_t key_end(const char *text, size_t word)
{
    size_t at = word + strspn(text + word, "\\\"'");
    at += strspn(text + at, " ");
    if (text[at] != ':' && text[at] != '=') return 0;
    at++;
    return at + strspn(text + at, " \t");
}

/* `api_token` and `accessToken` as `token`. */
static bool ends_with_secret(const char *word, size_t bytes)
{
    static const char *const secrets[] = {"passphrase", "password", "secret", "token", "authorization"};
    for (size_t i = 0; i < sizeof secrets / sizeof *secrets; i++) {
        const size_t count = strlen(secrets[i]);
        if (bytes >= count && strncasecmp(word + bytes - count, secrets[i], count) == 0) return true;
    }
    return false;
}

static bool hides(const char *word, size_t bytes, bool addresses)
{
    static const char *const places[] = {"address", "listen", "source", NULL};
    return ends_with_secret(word, bytes) || (addresses && is_among(places, word, bytes));
}

/* Up to its end, behind the quote that began it: escapes belong to it, as does a doubled '. */
static size_t quoted(const char *text, char quote)
{
    size_t at = 0;
    for (; text[at] != '\0' && text[at] != quote; at++) {
        if (text[at] == '\\' && quote == '"' && text[at + 1] != '\0') at++;
        if (quote == '\'' && text[at + 1] == quote && text[at + 2] == quote) at += 2;
    }
    return at;
}

/* The line, and those below that stand further in: YAML goes on there. */
static size_t lines(const char *text, size_t indent)
{
    size_t at = strcspn(text, "\n");
    while (text[at] == '\n' && strspn(text + at + 1, " ") > indent)
        at += 1 + strcspn(text + at + 1, "\n");
    return at;
}

static size_t indent_of(const char *begin, const char *text)
{
    while (text > begin && text[-1] != '\n')
        text--;
    return strspn(text, " ");
}

/* `text` is behind the colon, `in_json` says in what. A string of JSON may have a line of a log. */
static size_t value_end(const char *text, bool in_json, bool quoted_key, size_t indent)
{
    if (!in_json) return lines(text, indent);
    if (quoted_key) return strcspn(text, ",}]\n");
    return quoted(text, '"');
}

static bool begins_word(const char *begin, const char *text)
{
    return text == begin || strchr(word_chars, text[-1]) == NULL;
}

/* ---- the whole ---- */

static size_t secret_at(const char *begin, const char *text, bool addresses)
{
    size_t count = pem(text);
    if (count == 0) count = login(begin, text);
    if (count > 0 || !begins_word(begin, text)) return count;
    count = digits(text);
    if (count == 0) count = base64(text);
    if (count == 0) count = jwt(text);
    if (count == 0) count = bare_base64(text);
    if (count == 0 && addresses) count = ipv4(text);
    if (count == 0 && addresses) count = ipv6(text);
    return count;
}

/* The key, and a mark in the place of its value; how many characters of `text` that was. 0: no key
 * whose value is hidden. */
static size_t value_hide(FILE *to, const char *begin, const char *text, bool addresses)
{
    const size_t word = begins_word(begin, text) ? strspn(text, word_chars) : 0;
    size_t at = word > 0 && hides(text, word, addresses) ? key_end(text, word) : 0;
    if (at == 0) return 0;
    const bool in_json = *begin == '{' || *begin == '[';
    const char quote = text[at];
    const bool in_quotes = quote == '"' || quote == '\'';
    at += in_quotes;
    (void)fprintf(to, "%.*s" TB_REDACTED, (int)at, text);
    if (in_quotes) return at + quoted(text + at, quote);
    return at + value_end(text + at, in_json, text[word] == '"', indent_of(begin, text));
}

void tb_redact(FILE *to, const char *text, bool addresses)
{
    const char *begin = text;
    while (*text != '\0') {
        const size_t secret = secret_at(begin, text, addresses);
        const size_t value = secret == 0 ? value_hide(to, begin, text, addresses) : 0;
        if (secret > 0) (void)fputs(TB_REDACTED, to);
        if (secret == 0 && value == 0) (void)fputc(*text, to);
        text += secret > 0 ? secret : value > 0 ? value : 1;
    }
}
