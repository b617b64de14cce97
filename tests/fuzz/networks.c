/* Networks as a configuration writes them, and rates and their hours. A text that is taken has one
 * meaning: a network has the address that it begins with, a rate is printed and read again.
 *
 * Covers: base/networks.c base/rate.c */
#include <netinet/in.h>
#include <string.h>

#include "base/networks.h"
#include "base/rate.h"
#include "tests/fuzz/fuzz.h"

static void address_of(const uint8_t bytes[16], struct sockaddr_in6 *address_out)
{
    *address_out = (struct sockaddr_in6){.sin6_family = AF_INET6};
    memcpy(&address_out->sin6_addr, bytes, 16);
}

static void walk_network(const char *text)
{
    struct tb_network n;
    struct sockaddr_in6 first, other;
    uint8_t bytes[16];
    if (!tb_network_parse(text, &n)) return;
    FUZZ_REQUIRE(n.bits <= 128);
    address_of(n.bytes, &first);
    const struct sockaddr *at = (const struct sockaddr *)(const void *)&first;
    FUZZ_REQUIRE(tb_network_has(&n, at) && tb_network_key(at) != 0 && tb_network_same_host(at, at));
    for (uint32_t bit = 0; bit < 128; bit++) { /* one bit changed: inside behind the prefix alone */
        memcpy(bytes, n.bytes, sizeof bytes);
        bytes[bit / 8] ^= (uint8_t)(0x80u >> bit % 8);
        address_of(bytes, &other);
        FUZZ_REQUIRE(tb_network_has(&n, (const struct sockaddr *)(const void *)&other) == (bit >= n.bits));
        FUZZ_REQUIRE(bit < n.bits || (n.bytes[bit / 8] & (0x80u >> bit % 8)) == 0);
    }
}

static void walk_rate(const char *text)
{
    uint64_t rate, again;
    char written[TB_RATE_CHARS];
    if (!tb_rate_parse(text, &rate)) return;
    FUZZ_REQUIRE(rate == 0 || (rate >= TB_RATE_BIT_MIN && rate <= TB_RATE_BIT_MAX));
    tb_rate_format(rate, written);
    FUZZ_REQUIRE(tb_rate_parse(written, &again) && again == rate);
}

static void walk_window(const char *text)
{
    struct tb_rate_window window, again;
    char written[TB_RATE_CHARS];
    if (!tb_rate_window_parse(text, &window)) return;
    FUZZ_REQUIRE(window.from_s < TB_DAY_S && window.until_s <= TB_DAY_S);
    tb_rate_window_format(&window, written);
    FUZZ_REQUIRE(tb_rate_window_parse(written, &again));
    FUZZ_REQUIRE(again.from_s == window.from_s && again.until_s == window.until_s);
    FUZZ_REQUIRE(again.bit_per_s == window.bit_per_s);
    const struct tb_rate_plan plan = {.window_count = 1, .windows = {window}};
    for (uint32_t s = 0; s < TB_DAY_S; s += 3600)
        FUZZ_REQUIRE(tb_rate_at(&plan, s) == 0 || tb_rate_at(&plan, s) == window.bit_per_s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    char *text = malloc(count + 1);
    FUZZ_REQUIRE(text != NULL);
    if (count > 0) memcpy(text, bytes, count);
    text[count] = '\0';
    walk_network(text);
    walk_rate(text);
    walk_window(text);
    free(text);
    return 0;
}
