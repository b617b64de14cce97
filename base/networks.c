/* networks.c - addresses as 16 bytes. */
#include "base/networks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/limits/keyed_rows.h"

static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool bytes_of(const struct sockaddr *address, uint8_t out[16])
{
    if (address->sa_family == AF_INET) {
        memcpy(out, mapped, sizeof mapped);
        memcpy(out + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
        return true;
    }
    if (address->sa_family != AF_INET6) return false;
    memcpy(out, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, 16);
    return true;
}

static bool same_prefix(const uint8_t a[16], const uint8_t b[16], uint32_t bits)
{
    TB_ASSERT(bits <= 128);
    if (memcmp(a, b, bits / 8) != 0) return false;
    const uint8_t mask = (uint8_t)(0xff00u >> bits % 8);
    return bits % 8 == 0 || ((a[bits / 8] ^ b[bits / 8]) & mask) == 0;
}

bool tb_network_parse(const char *text, struct tb_network *network_out)
{
    char address[64];
    struct tb_network n = {.bits = 128};
    const char *slash = strchr(text, '/');
    const size_t bytes = slash != NULL ? (size_t)(slash - text) : strlen(text);
    if (bytes >= sizeof address) return false;
    memcpy(address, text, bytes);
    address[bytes] = '\0';
    const bool is_v4 = inet_pton(AF_INET, address, n.bytes + 12) == 1;
    if (is_v4)
        memcpy(n.bytes, mapped, sizeof mapped);
    else if (inet_pton(AF_INET6, address, n.bytes) != 1)
        return false;
    if (slash != NULL) {
        char *end = NULL;
        const unsigned long bits = strtoul(slash + 1, &end, 10);
        if (slash[1] < '0' || slash[1] > '9' || *end != '\0' || bits > (is_v4 ? 32u : 128u)) return false;
        n.bits = (uint32_t)bits + (is_v4 ? 96 : 0);
    }
    uint8_t rest[16] = {0};
    memcpy(rest, n.bytes, n.bits / 8);
    if (n.bits % 8 != 0) rest[n.bits / 8] = (uint8_t)(n.bytes[n.bits / 8] & (0xff00u >> n.bits % 8));
    if (memcmp(rest, n.bytes, sizeof rest) != 0) return false;
    TB_ASSERT(n.bits <= 128 && (!is_v4 || n.bits >= 96));
    *network_out = n;
    return true;
}

bool tb_network_has(const struct tb_network *n, const struct sockaddr *address)
{
    uint8_t bytes[16];
    return bytes_of(address, bytes) && same_prefix(n->bytes, bytes, n->bits);
}

uint64_t tb_network_key(const struct sockaddr *address)
{
    uint8_t bytes[16];
    uint64_t key = 0;
    if (!bytes_of(address, bytes)) return 1;
    const uint8_t *from = memcmp(bytes, mapped, sizeof mapped) == 0 ? bytes + 8 : bytes;
    for (size_t i = 0; i < sizeof key; i++)
        key = key << 8 | from[i];
    return key != 0 ? key : 1;
}

bool tb_network_same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    uint8_t x[16], y[16];
    return bytes_of(a, x) && bytes_of(b, y) && memcmp(x, y, sizeof x) == 0;
}
