/* config_effects.c - for each key, when a change of it counts in a gateway that runs.
 *
 * A key without a row counts as one that needs a restart, and tests/unit/daemon/config_difference.c
 * fails. A change that is live closes no stream, but for those that say so. */
#include "gateway/config/config_read.h"

#include <string.h>

#include "base/assert.h"

#define LIVE(path, how)                                                                                      \
    {                                                                                                        \
        path, TB_CONFIG_LIVE, how                                                                            \
    }
#define RESTART(path, how)                                                                                   \
    {                                                                                                        \
        path, TB_CONFIG_RESTART, how                                                                         \
    }
#define AT_ONCE  "at once"
#define AT_START "it is read at the start alone"
#define TABLES   "tables are made for it at the start"
#define OPENED   "it is opened at the start"
#define NAMED    "it is the gateway's name"
#define CATALOG  "the catalog begins with it"
#define LINKS    "links begin with it"
#define FABRIC   "the fabric begins with it"

static const struct config_effect root_effects[] = {
    RESTART("site", NAMED),
    RESTART("gateway", NAMED),
    RESTART("lane", NAMED),
    RESTART("lanes", NAMED),
    RESTART("control.socket", OPENED),
    RESTART("control.read", OPENED),
    RESTART("session.socket", OPENED),
    RESTART("session.listen", OPENED),
    RESTART("session.lease_ms", CATALOG),
    RESTART("session.max", TABLES),
    LIVE("session.networks", "with the next connection"),
    LIVE("limits.handshakes_open", AT_ONCE),
    LIVE("limits.handshakes_failed", AT_ONCE),
    LIVE("limits.garbled_frames", AT_ONCE),
    LIVE("limits.cancelled_requests", AT_ONCE),
    RESTART("store.path", OPENED),
    LIVE("store.slow_ms", AT_ONCE),
    RESTART("audit.bytes", OPENED),
    RESTART("audit.days", OPENED),
    RESTART("audit.file", OPENED),
    RESTART("arena.path", OPENED),
    RESTART("arena.bytes", OPENED),
    RESTART("arena.reverify", AT_START),
    RESTART("anchor.dir", OPENED),
    LIVE("anchor.every", AT_ONCE),
    LIVE("anchor.bytes_per_s", "with the next anchor"),
    RESTART("disk.key", AT_START),
    RESTART("disk.key_old", AT_START),
    LIVE("tls.ca", "at once; sessions end that it does not let in"),
    LIVE("tls.cert", "at once; sessions go on over fresh connections"),
    LIVE("tls.key", "at once; sessions go on over fresh connections"),
    LIVE("tls.revoked", "at once; sessions of what it lists end"),
    LIVE("tls.spiffe", "at once; sessions end that it does not let in"),
    RESTART("link.listen", OPENED),
    RESTART("link.streams", LINKS),
    RESTART("link.threads", LINKS),
    RESTART("link.heartbeat_ms", LINKS),
    RESTART("link.down_ms", LINKS),
    RESTART("link.stream_idle_ms", LINKS),
    RESTART("link.retry_min_ms", LINKS),
    RESTART("link.retry_max_ms", LINKS),
    RESTART("link.codec", LINKS),
    RESTART("link.encoded_percent", TABLES),
    RESTART("link.protocol_max", LINKS),
    RESTART("link.congestion", LINKS),
    RESTART("link.own_records", LINKS),
    RESTART("fabric.host", FABRIC),
    RESTART("fabric.listen", OPENED),
    RESTART("fabric.trusted", FABRIC),
    RESTART("fabric.fan_out", CATALOG),
    RESTART("fabric.nic_bytes_per_s", CATALOG),
    RESTART("fabric.threads", FABRIC),
    RESTART("fabric.pace_bytes_per_s", FABRIC),
    RESTART("fabric.verbs", FABRIC),
    RESTART("fabric.encoded", FABRIC),
    RESTART("dns.servers", AT_START),
    RESTART("drain_ms", CATALOG),
    RESTART("pin_max_s", CATALOG),
    RESTART("sandbox", "nothing gives a right back"),
    LIVE("log.level", AT_ONCE),
    RESTART("log.format", AT_START),
    RESTART("log.time", AT_START),
};

/* "": the peer as a whole, as it comes or goes. */
static const struct config_effect peer_effects[] = {
    LIVE("", "at once; of one that goes the link closes"),
    RESTART("gateway", "its link is made for that identity"),
    RESTART("lane", "its link is made for that identity"),
    LIVE("address", "with the next dial"),
    RESTART("source", LINKS),
    RESTART("dscp", LINKS),
    RESTART("congestion", LINKS),
    LIVE("ca", "at once; sessions end that it does not let in"),
    LIVE("unsigned", AT_ONCE),
    LIVE("rate", AT_ONCE),
    LIVE("schedule", AT_ONCE),
    LIVE("day_bytes", AT_ONCE),
    LIVE("speaks_for", AT_ONCE),
};

static const struct config_effect model_effects[] = {
    LIVE("", "at once; of one that goes the rights end, and its versions leave at the next start"),
    RESTART("home", "its runs belong to its home"),
    LIVE("home_ca", AT_ONCE),
    LIVE("keep", AT_ONCE),
    LIVE("policy", AT_ONCE),
    LIVE("weight", "with the next crossing"),
    LIVE("quota.versions", "with the next version"),
    LIVE("quota.bytes", "with the next version"),
    LIVE("publish", "with the next request"),
    LIVE("read", "at once for peers, with the next request for workers"),
    LIVE("may_fence", "with the next request"),
    LIVE("publishers", "with the next version"),
    LIVE("groups", "with the next request"),
    LIVE("durable", AT_ONCE),
};

static const struct config_effect subscribe_effects[] = {
    LIVE("", "at once; of one that goes what crosses still ends"),
    LIVE("model", AT_ONCE),
    LIVE("from", "with the next version"),
};

#define COUNT(of) (sizeof(of) / sizeof(of)[0])
static const struct {
    const struct config_effect *rows;
    size_t count;
} effects[] = {
    [CONFIG_ROOT] = {root_effects, COUNT(root_effects)},
    [CONFIG_PEER] = {peer_effects, COUNT(peer_effects)},
    [CONFIG_MODEL] = {model_effects, COUNT(model_effects)},
    [CONFIG_SUBSCRIBE] = {subscribe_effects, COUNT(subscribe_effects)},
};

const struct config_effect *tb_config_effect_at(enum config_scope scope, uint32_t at)
{
    TB_ASSERT((size_t)scope < COUNT(effects));
    return at < effects[scope].count ? &effects[scope].rows[at] : NULL;
}

struct config_effect tb_config_effect_of(enum config_scope scope, const char *path)
{
    const struct config_effect *row;
    for (uint32_t i = 0; (row = tb_config_effect_at(scope, i)) != NULL; i++)
        if (strcmp(row->path, path) == 0) return *row;
    return (struct config_effect){path, TB_CONFIG_UNSAID, AT_START};
}

const char *tb_config_effect_name(enum tb_config_effect effect)
{
    return effect == TB_CONFIG_LIVE ? "live" : "restart";
}

const char *tb_config_change_name(enum tb_config_change_kind kind)
{
    static const char *const names[] = {"added", "removed", "changed"};
    TB_ASSERT((size_t)kind < COUNT(names));
    return names[kind];
}
