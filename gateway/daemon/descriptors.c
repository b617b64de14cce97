/* descriptors.c - as many open files as the config can ask for, or a refusal at start: not in the middle of a day. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "gateway/daemon/daemon.h"

#define OTHERS 512u /* control clients, loops, the store, logs, handshakes */

/* A session and its hop at our door; streams, their takeovers and the control stream of each peer. */
static uint64_t needed(const struct tb_config *c)
{
    return 2 * (uint64_t)c->session_max + 2 * (uint64_t)c->peer_count * (c->link_streams + 1) + OTHERS;
}

enum tb_status tb_descriptors_raise(const struct tb_config *config, char error_out[256])
{
    const uint64_t want = needed(config);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want) return TB_OK;
    const struct rlimit had = limit;
    limit.rlim_cur = want;
    if (limit.rlim_max < want) limit.rlim_max = want; /* root may */
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return TB_OK;
    snprintf(error_out, 256, "session.max %u needs %llu open files, %llu are allowed: %s",
             config->session_max, (unsigned long long)want, (unsigned long long)had.rlim_max,
             strerror(errno));
    return TB_SITE_CONFIG;
}
