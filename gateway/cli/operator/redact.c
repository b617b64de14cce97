/* redact.c - see redact.h. */
#include "gateway/cli/operator/redact.h"

#include <string.h>

#define KEY_DIGITS   64u
#define BASE64_CHARS 40u

static const char hex_digits[] = "0123456789abcdefABCDEF";
static const char base64_chars[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
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
    size_t at = word + strspn(text + word, "\"'");
    at += strspn(text + at, " ");
    if (text[at] != ':' && text[at] != '=') return 0;
    at++;
    return at + strspn(text + at, " \"'");
}

static bool hides(const char *word, size_t bytes, bool addresses)
{
    static const char *const secrets[] = {"passphrase", "password", "secret", "token", "authorization", NULL};
    static const char *const places[] = {"address", "listen", "source", NULL};
    return is_among(secrets, word, bytes) || (addresses && is_among(places, word, bytes));
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
    if (count == 0 && addresses) count = ipv4(text);
    if (count == 0 && addresses) count = ipv6(text);
    return count;
}

void tb_redact(FILE *to, const char *text, bool addresses)
{
    const char *begin = text;
    while (*text != '\0') {
        const size_t secret = secret_at(begin, text, addresses);
        if (secret > 0) {
            (void)fputs(TB_REDACTED, to);
            text += secret;
            continue;
        }
        const size_t word = begins_word(begin, text) ? strspn(text, word_chars) : 0;
        const size_t value = word > 0 && hides(text, word, addresses) ? key_end(text, word) : 0;
        if (value > 0) {
            (void)fprintf(to, "%.*s" TB_REDACTED, (int)value, text);
            text += value;
            text += text[-1] == '"' || text[-1] == '\'' ? strcspn(text, "\"'\n") : strcspn(text, ",}\n ");
            continue;
        }
        (void)fputc(*text++, to);
    }
}
