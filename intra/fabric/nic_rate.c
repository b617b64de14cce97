#include "intra/fabric/nic_rate.h"

#include <glob.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine.h"

#define MBIT         UINT64_C(125000) /* bytes a second */
#define MBITS_MAX    10000000
#define LAYERS_MAX   4 /* a VLAN on a bond on NICs has 3 */
#define LOWER_PREFIX "lower_"

/* "100000"; "-1", or nothing that can be read, where it is down or does not know. */
static uint64_t speed_of(const char *root, const char *name)
{
    char path[512], line[32];
    (void)snprintf(path, sizeof path, "%s/%s/speed", root, name);
    if (!tb_machine_line(path, line, sizeof line)) return 0;
    const long mbits = strtol(line, NULL, 10);
    return mbits > 0 && mbits <= MBITS_MAX ? (uint64_t)mbits * MBIT : 0;
}

static bool has(const char *root, const char *name, const char *what)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s/%s", root, name, what);
    return access(path, F_OK) == 0;
}

static uint64_t rate_on(const char *root, const char *name, uint32_t layers)
{
    if (has(root, name, "device") || has(root, name, "bonding")) return speed_of(root, name);
    if (layers == 0) return 0;
    char pattern[512];
    glob_t found;
    uint64_t most = 0;
    (void)snprintf(pattern, sizeof pattern, "%s/%s/" LOWER_PREFIX "*", root, name);
    if (glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            const char *lower = strrchr(found.gl_pathv[i], '/') + 1 + strlen(LOWER_PREFIX);
            const uint64_t rate = rate_on(root, lower, layers - 1);
            if (rate > most) most = rate;
        }
    }
    globfree(&found);
    return most;
}

uint64_t tb_nic_rate_of_interface(const char *root, const char *name)
{
    return rate_on(root, name, LAYERS_MAX);
}

/* As IPv6; false: it is neither. */
static bool address_of(const struct sockaddr *at, uint8_t *out)
{
    if (at != NULL && at->sa_family == AF_INET6) {
        memcpy(out, &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr, 16);
        return true;
    }
    if (at == NULL || at->sa_family != AF_INET) return false;
    memset(out, 0, 10);
    memset(out + 10, 0xff, 2);
    memcpy(out + 12, &((const struct sockaddr_in *)(const void *)at)->sin_addr, 4);
    return true;
}

uint64_t tb_nic_rate_of(const char *root, const struct sockaddr *at)
{
    uint8_t wanted[16], seen[16];
    struct ifaddrs *all = NULL;
    uint64_t rate = 0;
    if (!address_of(at, wanted) || getifaddrs(&all) != 0) return 0;
    for (const struct ifaddrs *i = all; i != NULL && rate == 0; i = i->ifa_next)
        if (address_of(i->ifa_addr, seen) && memcmp(seen, wanted, sizeof seen) == 0)
            rate = tb_nic_rate_of_interface(root, i->ifa_name);
    freeifaddrs(all);
    return rate;
}
