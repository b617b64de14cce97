/* descriptors.c - as many open files as the config can ask for, or a refusal at start: not in
 * the middle of a day. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "base/assert.h"
#include "gateway/config/bounds.h"
#include "gateway/config/config.h"

#define OTHERS 640u  /* control clients, loops, the store, logs, strangers' handshakes */
#define FILES  1024u /* that are adopted, and as many that a next request brings */

/* A session and its hop at our door; handshakes of session.networks; streams, their takeovers and
 * the control stream of each peer. */
uint64_t tb_descriptors_needed(const struct tb_config *c)
{
    TB_ASSERT(c->link_streams <= TB_CONFIG_STREAMS_MAX && c->peer_count <= TB_CONFIG_LIST_MAX);
    const uint64_t streams = c->link_streams != 0 ? c->link_streams : TB_CONFIG_STREAMS_MAX;
    const uint64_t sessions = 2 * (uint64_t)c->session_max + tb_bounds_networks(c->session_max);
    return sessions + 2 * (uint64_t)c->peer_count * (streams + 1) + OTHERS + FILES;
}

static void say(const struct tb_config *config, rlim_t allowed, char text_out[TB_DESCRIPTORS_TEXT_MAX])
{
    (void)snprintf(text_out, TB_DESCRIPTORS_TEXT_MAX,
                   "session.max %u needs %llu open files, %llu are allowed (ulimit -Hn, LimitNOFILE of a "
                   "service)",
                   config->session_max, (unsigned long long)tb_descriptors_needed(config),
                   (unsigned long long)allowed);
}

bool tb_descriptors_allowed(const struct tb_config *config, char text_out[TB_DESCRIPTORS_TEXT_MAX])
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= tb_descriptors_needed(config)) return true;
    say(config, limit.rlim_max, text_out);
    return false;
}

enum tb_status tb_descriptors_raise(const struct tb_config *config, char error_out[TB_DESCRIPTORS_TEXT_MAX])
{
    const uint64_t want = tb_descriptors_needed(config);
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want) return TB_OK;
    const struct rlimit had = limit;
    limit.rlim_cur = want;
    if (limit.rlim_max < want) limit.rlim_max = want; /* who has CAP_SYS_RESOURCE may, up to fs.nr_open */
    if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return TB_OK;
    say(config, had.rlim_max, error_out);
    return TB_SITE_CONFIG;
}
