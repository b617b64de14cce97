/* rate.c - text to rates and back. Pure: no printf, no locale. */
#include "base/rate.h"

#include <string.h>

#include "base/assert.h"

static const struct {
    const char *suffix;
    uint64_t bits;
} units[] = {{"Gbit", 1000000000}, {"Mbit", 1000000}, {"Kbit", 1000}, {"bit", 1}};

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

bool tb_rate_parse(const char *text, uint64_t *bit_per_s_out)
{
    uint64_t n = 0;
    if (strcmp(text, "none") == 0) {
        *bit_per_s_out = 0;
        return true;
    }
    if (!digit(*text)) return false;
    for (; digit(*text); text++) {
        n = n * 10 + (uint64_t)(*text - '0');
        if (n > TB_RATE_BIT_MAX) return false;
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(text, units[i].suffix) != 0) continue;
        if (n > TB_RATE_BIT_MAX / units[i].bits || n * units[i].bits < TB_RATE_BIT_MIN) return false;
        *bit_per_s_out = n * units[i].bits;
        return true;
    }
    return false;
}

/* Decimal digits at `out`; how many. */
static size_t put_number(uint64_t n, char *out)
{
    char reversed[24];
    size_t count = 0;
    do
        reversed[count++] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    for (size_t i = 0; i < count; i++)
        out[i] = reversed[count - 1 - i];
    return count;
}

void tb_rate_format(uint64_t bit_per_s, char out[TB_RATE_CHARS])
{
    size_t unit = 0;
    if (bit_per_s == 0) {
        memcpy(out, "none", 5);
        return;
    }
    while (bit_per_s % units[unit].bits != 0)
        unit++;
    const size_t used = put_number(bit_per_s / units[unit].bits, out);
    TB_ASSERT(used + strlen(units[unit].suffix) < TB_RATE_CHARS);
    memcpy(out + used, units[unit].suffix, strlen(units[unit].suffix) + 1);
}

/* "HH:MM", 00:00 to 24:00. */
static bool parse_time(const char *text, uint32_t *seconds_out)
{
    if (!digit(text[0]) || !digit(text[1]) || text[2] != ':' || !digit(text[3]) || !digit(text[4]))
        return false;
    const uint32_t hours = (uint32_t)(text[0] - '0') * 10 + (uint32_t)(text[1] - '0');
    const uint32_t minutes = (uint32_t)(text[3] - '0') * 10 + (uint32_t)(text[4] - '0');
    *seconds_out = hours * 3600 + minutes * 60;
    return minutes < 60 && *seconds_out <= TB_DAY_S;
}

bool tb_rate_window_parse(const char *text, struct tb_rate_window *window_out)
{
    struct tb_rate_window w;
    if (strlen(text) < 13 || text[5] != '-' || text[11] != ' ') return false;
    if (!parse_time(text, &w.from_s) || !parse_time(text + 6, &w.until_s)) return false;
    if (w.from_s == w.until_s || w.from_s == TB_DAY_S || !tb_rate_parse(text + 12, &w.bit_per_s))
        return false;
    *window_out = w;
    return true;
}

static void put_time(uint32_t seconds, char out[5])
{
    const uint32_t hours = seconds / 3600, minutes = seconds / 60 % 60;
    TB_ASSERT(seconds <= TB_DAY_S);
    out[0] = (char)('0' + hours / 10), out[1] = (char)('0' + hours % 10);
    out[2] = ':';
    out[3] = (char)('0' + minutes / 10), out[4] = (char)('0' + minutes % 10);
}

void tb_rate_window_format(const struct tb_rate_window *w, char out[TB_RATE_CHARS])
{
    char rate[TB_RATE_CHARS];
    put_time(w->from_s, out);
    out[5] = '-';
    put_time(w->until_s, out + 6);
    out[11] = ' ';
    tb_rate_format(w->bit_per_s, rate);
    TB_ASSERT(12 + strlen(rate) < TB_RATE_CHARS);
    memcpy(out + 12, rate, strlen(rate) + 1);
}

static bool has(const struct tb_rate_window *w, uint32_t at)
{
    if (w->from_s < w->until_s) return at >= w->from_s && at < w->until_s;
    return at >= w->from_s || at < w->until_s;
}

uint64_t tb_rate_at(const struct tb_rate_plan *plan, uint32_t second_of_day)
{
    TB_ASSERT(plan->window_count <= TB_RATE_WINDOWS_MAX && second_of_day < TB_DAY_S);
    for (uint32_t i = 0; i < plan->window_count; i++)
        if (has(&plan->windows[i], second_of_day)) return plan->windows[i].bit_per_s;
    return plan->bit_per_s;
}
