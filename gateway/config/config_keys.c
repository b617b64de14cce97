/* config_keys.c - every key that an operator may set. Few: a key needs a reader who would turn
 * it. */
#include "gateway/config/config_keys.h"

#include "base/assert.h"
#include "gateway/arena/arena.h"
#include "intra/session_msg.h"
#include "wan/frame/frame.h"

#define ROOT(field) CONFIG_ROOT, .offset = offsetof(struct tb_config, field)
#define LIST_OF_ROOT(field)                                                                                  \
    CONFIG_ROOT, .offset = offsetof(struct tb_config, field),                                                \
                 .count_offset = offsetof(struct tb_config, field##_count)
#define PEER(field) CONFIG_PEER, .offset = offsetof(struct tb_config_peer, field)
#define LIST_OF_PEER(field, count)                                                                           \
    CONFIG_PEER, .offset = offsetof(struct tb_config_peer, field),                                           \
                 .count_offset = offsetof(struct tb_config_peer, count)
#define MODEL(field) CONFIG_MODEL, .offset = offsetof(struct tb_config_model, field)
#define LIST_OF_MODEL(field)                                                                                 \
    CONFIG_MODEL, .offset = offsetof(struct tb_config_model, field),                                         \
                  .count_offset = offsetof(struct tb_config_model, field##_count)
#define SUBSCRIBE(field) CONFIG_SUBSCRIBE, .offset = offsetof(struct tb_config_subscribe, field)
#define LIST_OF_SUBSCRIBE(field)                                                                             \
    CONFIG_SUBSCRIBE, .offset = offsetof(struct tb_config_subscribe, field),                                 \
                      .count_offset = offsetof(struct tb_config_subscribe, field##_count)

const struct config_key config_keys[] = {
    {ROOT(site), .path = "site", .type = CONFIG_NAME, .required = true,
     .why = "The name of this datacenter. Certificates, peers and models speak of it; it does not change."},
    {ROOT(gateway), .path = "gateway", .type = CONFIG_NAME, .fallback = "gw",
     .why = "The name of this gateway in its site, as in its certificate tombolo://SITE/GATEWAY."},
    {ROOT(lane), .path = "lane", .type = CONFIG_NUMBER, .fallback = "0", .min = 0,
     .max = TB_CONFIG_LANES_MAX - 1,
     .why = "Which of its site's gateways this is. Workers connect to lane 0. The other lanes bring bytes to "
            "it over links of their own."},
    {ROOT(lanes), .path = "lanes", .type = CONFIG_NUMBER, .fallback = "1", .min = 1,
     .max = TB_CONFIG_LANES_MAX, .unit = "gateways",
     .why =
         "How many gateways the site has. Each takes its share of a version from other sites, and the rest "
         "from the other gateways of its own site, which stand among its peers as SITE and SITE.LANE. With 8 "
         "gateways it takes from 7 near peers and 1 far one: subscribe.from names no more."},
    {ROOT(control_socket), .path = "control.socket", .type = CONFIG_PATH,
     .fallback = "/run/tombolo/control.sock",
     .why =
         "Where the command line talks to this gateway (mode 0660: the group decides who may operate it)."},
    {ROOT(control_read), .path = "control.read", .type = CONFIG_PATH,
     .why = "A second socket that answers only what reads: status, versions, streams, lag, chains, config. "
            "Mode 0660 too: its folder decides who looks on without being an operator. Without it there is "
            "none."},
    {ROOT(session_socket), .path = "session.socket", .type = CONFIG_PATH,
     .fallback = "/run/tombolo/session.sock",
     .why = "Where workers on this host connect; they are known by their user id."},
    {ROOT(session_listen), .path = "session.listen", .type = CONFIG_ADDRESS,
     .why = "Where workers on other hosts connect, by TLS with a certificate tombolo://SITE/worker/NAME. "
            "Without it there are none."},
    {ROOT(session_lease_ms), .path = "session.lease_ms", .type = CONFIG_NUMBER, .fallback = "10000",
     .min = 500, .max = 600000, .unit = "ms",
     .why = "How long a silent worker counts as alive. Shorter notices the dead sooner; longer forgives long "
            "pauses."},
    {ROOT(session_max), .path = "session.max", .type = CONFIG_NUMBER, .fallback = "1024", .min = 16,
     .max = 100000, .unit = "sessions",
     .why = "Workers of this site at once; the next one is refused. Those that only read have three quarters "
            "of them, and one identity a quarter. Each takes two descriptors: the limit of open files is "
            "raised to what it needs, or the start says that it may not."},
    {LIST_OF_ROOT(session_networks), .path = "session.networks", .type = CONFIG_NETWORKS,
     .why = "Networks of this site's workers, such as [10.0.0.0/8, \"2001:db8::/32\"]. Their handshakes are "
            "not counted by address: an eighth of session.max may be unfinished at once, so thousands of "
            "workers behind one address return in time."},
    {ROOT(handshakes_open), .path = "limits.handshakes_open", .type = CONFIG_NUMBER, .fallback = "32",
     .min = 1, .max = 4096, .unit = "handshakes",
     .why = "Connections that one address may have open at session.listen, and at link.listen, before they "
            "showed who they are. An address has never more than a quarter of the places for such "
            "connections (192 at session.listen, 152 at link.listen), and an IPv6 network of 48 bits has "
            "a quarter, of which one address has a quarter at most (12 and 9). Addresses of peers and "
            "session.networks have pools of their own."},
    {ROOT(handshakes_failed), .path = "limits.handshakes_failed", .type = CONFIG_NUMBER, .fallback = "10",
     .min = 1, .max = 100000, .unit = "a second",
     .why = "Handshakes of one address that may fail in a second; of an IPv6 network of 48 bits four times "
            "as many, and of all addresses sixteen times. Beyond that its connections are closed unread. "
            "Handshakes that succeed do not count."},
    {ROOT(garbled_frames), .path = "limits.garbled_frames", .type = CONFIG_NUMBER, .fallback = "20", .min = 2,
     .max = 1000000, .unit = "a minute",
     .why = "Frames that break the protocol, of one identity over all its connections. Each ends its "
            "connection; with so many the identity is shut out, for 10 s at first and 10 minutes at most."},
    {ROOT(cancelled_requests), .path = "limits.cancelled_requests", .type = CONFIG_NUMBER, .fallback = "1000",
     .min = 10, .max = 100000000, .unit = "a minute",
     .why = "Requests that one identity may cancel before it is shut out likewise."},
    {ROOT(store_path), .path = "store.path", .type = CONFIG_PATH, .fallback = "/var/lib/tombolo/store.sqlite",
     .why = "Runs, versions, pointers and the audit record. A few MB, on a disk that survives a reboot."},
    {ROOT(store_slow_ms), .path = "store.slow_ms", .type = CONFIG_NUMBER, .fallback = "5000", .min = 100,
     .max = 600000, .unit = "ms",
     .why = "A write to the store that takes longer counts as failed: publishing is refused until it is "
            "through. Nothing else waits for it."},
    {ROOT(audit_bytes), .path = "audit.bytes", .type = CONFIG_SIZE, .fallback = "16MiB", .min = 1 << 20,
     .max = (uint64_t)64 << 30, .unit = "bytes",
     .why =
         "The most that the audit record takes in the store: a half of it for acts of operators, a quarter "
         "for versions, a quarter for denials. The oldest rows of each go first."},
    {ROOT(audit_days), .path = "audit.days", .type = CONFIG_NUMBER, .fallback = "400", .min = 1, .max = 3650,
     .unit = "days", .why = "Rows of the audit record that are older go."},
    {ROOT(audit_file), .path = "audit.file", .type = CONFIG_PATH,
     .why = "The audit record as JSON lines too, for a log collector: acts in this file, the rest in "
            "FILE.versions and FILE.denials. Each turns to NAME.1, by audit.bytes and audit.days."},
    {ROOT(arena_path), .path = "arena.path", .type = CONFIG_PATH, .fallback = "/dev/shm/tombolo.arena",
     .why =
         "The file that holds versions, on tmpfs or hugetlbfs. A restarted gateway serves from it at once."},
    {ROOT(arena_bytes), .path = "arena.bytes", .type = CONFIG_SIZE, .required = true,
     .min = TB_ARENA_BYTES_MIN, .max = (uint64_t)1 << 46, .unit = "bytes",
     .why = "Its size, allocated whole at start. A model needs (keep + 1) times its version, and 1 % more."},
    {ROOT(arena_reverify), .path = "arena.reverify", .type = CONFIG_BOOL, .fallback = "true",
     .why = "After a restart, digest again in background what the arena held. Off only where memory "
            "bandwidth is scarce."},
    {ROOT(anchor_dir), .path = "anchor.dir", .type = CONFIG_PATH,
     .why = "A folder on a disk where whole versions are written, one of each model (mode 0600; in clear, "
            "unless disk.key is set). After a reboot the arena is filled from it, verified, before any site "
            "is asked. Without it a "
            "reboot loses what is here."},
    {ROOT(anchor_every), .path = "anchor.every", .type = CONFIG_NUMBER, .fallback = "1", .min = 1,
     .max = 1000000, .unit = "versions",
     .why = "One of so many versions that become whole here is written; the newest one, as soon as the one "
            "before is on the disk. Other sites send deltas against it only while they keep it: keep more "
            "than this at home."},
    {ROOT(anchor_rate), .path = "anchor.bytes_per_s", .type = CONFIG_SIZE, .fallback = "256MiB",
     .min = 1 << 20, .max = (uint64_t)1 << 40, .unit = "bytes/s",
     .why = "The most that is written there in a second. A version that must leave the arena before it is "
            "written is not written."},
    {ROOT(disk_key), .path = "disk.key", .type = CONFIG_TEXT,
     .why =
         "Anchors and the store are encrypted (AES-256-GCM) under this key: a file of 32 random bytes or 64 "
         "hex digits, for this user alone, or credential:NAME, which systemd puts into "
         "$CREDENTIALS_DIRECTORY. Without it they stand in clear. A change needs a restart, and "
         "disk.key_old."},
    {ROOT(disk_key_old), .path = "disk.key_old", .type = CONFIG_TEXT,
     .why = "The disk.key before, or `plain`. Files that are so are read; the store is written anew under "
            "disk.key at the start, and an anchor once its version is whole here. disk.key.in_use says how "
            "many are left. Then take it out."},
    {ROOT(tls_ca), .path = "tls.ca", .type = CONFIG_FILE,
     .why = "The CA of this site, PEM. With tls.cert and tls.key required as soon as there are peers or "
            "session.listen."},
    {ROOT(tls_cert), .path = "tls.cert", .type = CONFIG_FILE,
     .why = "This gateway's certificate with its chain, PEM."},
    {ROOT(tls_key), .path = "tls.key", .type = CONFIG_FILE,
     .why = "Its key, PEM, readable by its owner alone; or owned by root and readable by a group of this "
            "gateway's, as a file of a Kubernetes secret is."},
    {ROOT(tls_revoked), .path = "tls.revoked", .type = CONFIG_FILE,
     .why = "A list of certificates that count no more, which `tombolo pki revoke` writes: fingerprints, "
            "serial numbers or identities, one a line. It is read again when it changes, and ends what uses "
            "them. A list that cannot be read ends a start; while the gateway runs the list before stays."},
    {ROOT(tls_spiffe), .path = "tls.spiffe", .type = CONFIG_FILE,
     .why = "Certificates that have a SPIFFE URI and no tombolo:// one: a list of their identities, such as "
            "spiffe://prod.example/ns/rl/sa/rollout-* tombolo://east/worker/rollout-*, one a line. The CA "
            "has to be one of that identity's site. The list is read again when it changes."},
    {ROOT(link_listen), .path = "link.listen", .type = CONFIG_ADDRESS,
     .why = "Where gateways of other sites connect. Without it this side dials, so that only one site opens "
            "a port."},
    {ROOT(link_streams), .path = "link.streams", .type = CONFIG_AUTO, .fallback = "auto", .min = 1,
     .max = TB_CONFIG_STREAMS_MAX,
     .why = "TLS connections for data to each peer. auto: from RTT and the kernel's windows, then searched "
            "while a full version crosses, and remembered."},
    {ROOT(link_threads), .path = "link.threads", .type = CONFIG_NUMBER, .fallback = "0", .min = 0, .max = 64,
     .why =
         "Threads that encrypt, decrypt and digest for links. 0: as many as cores are allowed, at most 32."},
    {ROOT(link_heartbeat_ms), .path = "link.heartbeat_ms", .type = CONFIG_NUMBER, .fallback = "1000",
     .min = 50, .max = 60000, .unit = "ms", .why = "How often a quiet link says that it is alive."},
    {ROOT(link_down_ms), .path = "link.down_ms", .type = CONFIG_NUMBER, .fallback = "3000", .min = 100,
     .max = 600000, .unit = "ms",
     .why = "How long a peer may be silent before its link counts as down. More than heartbeat_ms."},
    {ROOT(link_stream_idle_ms), .path = "link.stream_idle_ms", .type = CONFIG_NUMBER, .fallback = "5000",
     .min = 100, .max = 600000, .unit = "ms",
     .why = "How long a data stream may make no progress before it is dropped and dialled again."},
    {ROOT(link_retry_min_ms), .path = "link.retry_min_ms", .type = CONFIG_NUMBER, .fallback = "100", .min = 1,
     .max = 60000, .unit = "ms",
     .why = "The first wait after a refused connection; it doubles, with jitter."},
    {ROOT(link_retry_max_ms), .path = "link.retry_max_ms", .type = CONFIG_NUMBER, .fallback = "5000",
     .min = 1, .max = 600000, .unit = "ms",
     .why =
         "The longest wait. Not less than retry_min_ms. Above that, at most half of session.lease_ms: a peer "
         "that dials a restarted gateway again is then heard before the gateway calls a version lost."},
    {ROOT(link_codec), .path = "link.codec", .type = CONFIG_CODEC, .fallback = "auto",
     .why = "How chunks are written on links. auto measures cores and link, and sends deltas against a "
            "version that the peer holds. The others are for comparing."},
    {ROOT(link_encoded_percent), .path = "link.encoded_percent", .type = CONFIG_NUMBER, .fallback = "5",
     .min = 0, .max = 50, .unit = "%",
     .why = "Memory for encoded chunks that are kept for other sites and for workers, in percent of "
            "arena.bytes and besides it. As a rule the ranks that publish make them, once. They are sent to "
            "every site, relays pass them on as they came, and workers read them. They stay when their "
            "version leaves, and the oldest go first: a site that was away catches up with them."},
    {ROOT(link_protocol_max), .path = "link.protocol_max", .type = CONFIG_NUMBER, .fallback = "3",
     .min = TB_LINK_PROTOCOL_MIN, .max = TB_LINK_PROTOCOL,
     .why = "The newest protocol that links speak. 2 is that of the release before; 1 sends whole chunks, "
            "raw or zstd. (tombolod --protocol-max.)"},
    {ROOT(link_congestion), .path = "link.congestion", .type = CONFIG_WORD, .fallback = "auto",
     .why = "TCP congestion control of links. auto: bbr to peers 5 ms away or more, else cubic, of what the "
            "kernel offers. Or a name that it offers, or system."},
    {ROOT(link_own_records), .path = "link.own_records", .type = CONFIG_BOOL, .fallback = "true",
     .why = "Tombolo's own code makes and reads the TLS records of data streams, under OpenSSL's handshake "
            "and ciphers. false: OpenSSL does, and a full version costs about 40 % more of the cores. Each "
            "end chooses for itself. Kernel TLS sends where there is any, whatever this says."},
    {ROOT(fabric_host), .path = "fabric.host", .type = CONFIG_NAME,
     .why = "The host name under which workers share memory with this gateway. Without it the machine's boot "
            "id."},
    {ROOT(fabric_listen), .path = "fabric.listen", .type = CONFIG_ADDRESS, .fallback = "127.0.0.1:0",
     .why = "Where workers on other hosts read versions from. Port 0 chooses one."},
    {ROOT(fabric_trusted), .path = "fabric.trusted", .type = CONFIG_BOOL, .fallback = "false",
     .why = "Bytes inside the site go in clear by tcp. Only where everyone on that network may see the "
            "weights."},
    {ROOT(fabric_fan_out), .path = "fabric.fan_out", .type = CONFIG_NUMBER, .fallback = "0", .min = 0,
     .max = 16,
     .why = "How many hosts read from one. 1 makes a chain. 0: as many as its NIC (fabric.nic_bytes_per_s) "
            "feeds at the rate at which the model's last version arrived here."},
    {ROOT(fabric_nic), .path = "fabric.nic_bytes_per_s", .type = CONFIG_SIZE, .fallback = "0", .min = 0,
     .max = (uint64_t)1 << 40, .unit = "bytes/s",
     .why = "The rate of a host's NIC of this site each way. 0: as each host's own sysfs says. Where sysfs "
            "does not say, fabric.fan_out 0 means 1."},
    {ROOT(fabric_threads), .path = "fabric.threads", .type = CONFIG_NUMBER, .fallback = "0", .min = 0,
     .max = 64,
     .why = "Threads that copy and digest inside the site. 0: one for every two cores that are allowed, at "
            "most 8."},
    {ROOT(fabric_pace), .path = "fabric.pace_bytes_per_s", .type = CONFIG_SIZE, .fallback = "0", .min = 0,
     .max = (uint64_t)1 << 40, .unit = "bytes/s",
     .why = "At most so much in and out by tcp, as a slower NIC would. 0: no limit."},
    {ROOT(fabric_verbs), .path = "fabric.verbs", .type = CONFIG_BOOL, .fallback = "true",
     .why = "RDMA inside the site where both ends have it. It is not encrypted. Workers have a switch of "
            "their own (no_verbs)."},
    {ROOT(fabric_encoded), .path = "fabric.encoded", .type = CONFIG_BOOL, .fallback = "true",
     .why = "Workers that hold the version before read deltas: by tcp, and by any transport where they patch "
            "their buffers. It costs a thread, and memory besides the arena: a 32nd of it at most."},
    {ROOT(dns_servers), .path = "dns.servers", .type = CONFIG_TEXT,
     .why = "Name servers as ADDRESS:PORT with commas between. Without it the system's."},
    {ROOT(drain_ms), .path = "drain_ms", .type = CONFIG_NUMBER, .fallback = "10000", .min = 0,
     .max = TB_MSG_DRAIN_MS_MAX, .unit = "ms",
     .why = "How long readers may finish when a rank unpublishes or this gateway stops."},
    {ROOT(pin_max_s), .path = "pin_max_s", .type = CONFIG_NUMBER, .fallback = "600", .min = 1, .max = 604800,
     .unit = "s", .why = "How long a reader may keep a version from being evicted."},
    {ROOT(sandbox), .path = "sandbox", .type = CONFIG_BOOL, .fallback = "true",
     .why = "tombolod gives up all rights that it does not need: other files, other programs, tracing. "
            "false: for debugging alone, and the log warns."},
    {ROOT(log_level), .path = "log.level", .type = CONFIG_LEVEL, .fallback = "info",
     .why = "error: a promise is at risk; warn: a retry was spent; info: a life began or ended; debug: per "
            "chunk."},
    {ROOT(log_json), .path = "log.format", .type = CONFIG_LOG_FORMAT, .fallback = "text",
     .why = "json: one object a line, with the same events and keys. (tombolod --log json, from its first "
            "line on.)"},
    {ROOT(log_time), .path = "log.time", .type = CONFIG_BOOL, .fallback = "false",
     .why = "Each line begins with the time, UTC with milliseconds. journald keeps one of its own."},

    {PEER(gateway), .path = "gateway", .type = CONFIG_NAME, .fallback = "gw",
     .why = "The name of that site's gateway, as in its certificate."},
    {PEER(lane), .path = "lane", .type = CONFIG_NUMBER, .fallback = "0", .min = 0,
     .max = TB_CONFIG_LANES_MAX - 1,
     .why = "Which of that site's gateways it is. Beside lane 0 the section is named SITE.LANE, as in "
            "`east.1`."},
    {PEER(address), .path = "address", .type = CONFIG_DIAL,
     .why = "Where to dial it: HOST:PORT, or _SERVICE._tcp.DOMAIN, whose SRV records say hosts and ports. "
            "Several addresses race each other. Without it only that side dials, and this one needs "
            "link.listen."},
    {PEER(source), .path = "source", .type = CONFIG_HOST,
     .why = "The address of this machine from which it is dialled, IPv4 or IPv6 without a port. Addresses of "
            "the peer of the other kind are not dialled. Without it the kernel's routes choose."},
    {PEER(dscp), .path = "dscp", .type = CONFIG_NUMBER, .fallback = "0", .min = 0, .max = 63,
     .why = "The DSCP value of all that is sent to it, such as 46 (EF) or 10 (AF11). A connection that the "
            "peer dialled has it once its certificate is known. 0: as the system does."},
    {PEER(congestion), .path = "congestion", .type = CONFIG_WORD,
     .why = "The congestion control of this path. Without it link.congestion."},
    {PEER(ca), .path = "ca", .type = CONFIG_FILE,
     .why = "The CA of that site, PEM; it may speak for that site alone. Without it tls.ca."},
    {PEER(is_unsigned), .path = "unsigned", .type = CONFIG_BOOL, .fallback = "false",
     .why = "Whether runs, versions and withdrawals that it tells of count without the signature of their "
            "home, as before protocol 3. Such a peer can invent versions."},
    {PEER(rate.bit_per_s), .path = "rate", .type = CONFIG_RATE, .fallback = "none",
     .why = "The most that is sent to it, all packets with their headers. `tombolo limit` changes it live, "
            "until the next start."},
    {LIST_OF_PEER(rate.windows, rate.window_count), .path = "schedule", .type = CONFIG_SCHEDULE,
     .why = "Hours of the day (UTC) with a rate of their own, such as [\"08:00-18:00 50Mbit\", \"22:00-06:00 "
            "none\"]. The first that has the time counts."},
    {PEER(day_bytes), .path = "day_bytes", .type = CONFIG_SIZE, .fallback = "0", .min = 0,
     .max = (uint64_t)1 << 50, .unit = "bytes",
     .why = "The most that is sent to it in a day (UTC), chunks with their headers. At 80 % there is a "
            "warning. A chunk that would go over it waits for the next day, and so do all chunks behind it. "
            "0: no limit."},
    {LIST_OF_PEER(speaks_for, speaks_for_count), .path = "speaks_for", .type = CONFIG_NAMES,
     .max = TB_CONFIG_LIST_MAX,
     .why =
         "Sites behind it, of which it may say what they hold and have activated: it relays for them. Of a "
         "site that is itself among peers, only that site's own word counts. Without it the peer speaks "
         "for itself alone, and what it says of others is not believed."},

    {MODEL(home), .path = "home", .type = CONFIG_NAME, .required = true,
     .why = "The site where the model is published. The same at all sites. NAME may be a pattern, such as "
            "lora-*: its row counts for each model that it matches and no row before it does."},
    {MODEL(home_ca), .path = "home_ca", .type = CONFIG_FILE,
     .why =
         "The CA of its home, PEM, where the home is not one of peers and the model comes through a relay. "
         "Versions count if a gateway of the home signed them. For a home among peers it is "
         "peers.SITE.ca."},
    {MODEL(keep), .path = "keep", .type = CONFIG_NUMBER, .fallback = "2", .min = 1, .max = 1000,
     .unit = "versions",
     .why = "Whole versions kept here, the newest included. One more may be arriving. A site that is k "
            "versions behind still gets deltas while its home keeps more than k."},
    {MODEL(every), .path = "policy", .type = CONFIG_POLICY, .fallback = "latest",
     .why = "The versions that cross to here: latest skips what is older than the newest, every takes each "
            "version that "
            "its home still keeps, in order."},
    {MODEL(weight), .path = "weight", .type = CONFIG_NUMBER, .fallback = "10", .min = 1, .max = 1000,
     .why = "Its share of a link that several models of this gateway want to use at once, against their "
            "weights."},
    {MODEL(quota_versions), .path = "quota.versions", .type = CONFIG_NUMBER, .fallback = "0", .min = 0,
     .max = 1000000, .unit = "versions",
     .why =
         "How many versions the models of a pattern may have here together, of each model at most its keep. "
         "A new one beyond that is refused, and its publisher reads which quota it was. 0 is no bound."},
    {MODEL(quota_bytes), .path = "quota.bytes", .type = CONFIG_SIZE, .fallback = "0", .min = 0,
     .max = UINT64_C(1) << 50, .unit = "bytes", .why = "The same, of the bytes of these versions."},
    {LIST_OF_MODEL(publish), .path = "publish", .type = CONFIG_IDENTITIES,
     .why = "The identities that may publish it (at its home). No other may."},
    {LIST_OF_MODEL(read), .path = "read", .type = CONFIG_IDENTITIES,
     .why = "The identities that may read it: workers of this site, and gateways tombolo://SITE/GATEWAY of "
            "others. Nobody "
            "else may."},
    {LIST_OF_MODEL(may_fence), .path = "may_fence", .type = CONFIG_IDENTITIES,
     .why =
         "Publishers that may open a new run over a run that another identity opened, and so shut that one "
         "out. Without it each publisher may shut out only its own runs."},
    {LIST_OF_MODEL(publishers), .path = "publishers", .type = CONFIG_IDENTITIES,
     .why =
         "Publishers, such as tombolo://east/publisher/trainer, one of which has to have signed each shard "
         "of a version. A home refuses a seal without it, a follower such a version. Without it nothing is "
         "demanded."},
    {LIST_OF_MODEL(groups), .path = "groups", .type = CONFIG_IDENTITIES,
     .why = "Identities whose workers share reader groups, such as tombolo://west/worker/rollout-* and "
            "unix:1000: the ranks of one engine. A group that another identity opens is that identity's "
            "alone."},
    {LIST_OF_MODEL(durable), .path = "durable", .type = CONFIG_NAMES, .max = TB_CONFIG_LIST_MAX,
     .why = "Peers' sites whose copy of it counts as one here: a version is `kept`, and a rank gets its "
            "memory back, when such a site says itself that it holds all of it. Without it only the gateways "
            "of this site count, and at other sites those of its home."},

    {SUBSCRIBE(model), .path = "model", .type = CONFIG_MODELS, .required = true,
     .why = "A model of another home that this site follows; one of `models`. A pattern follows each model "
            "that it matches, from the moment on in which its home has a version."},
    {LIST_OF_SUBSCRIBE(from), .path = "from", .type = CONFIG_NAMES, .required = true,
     .max = TB_CONFIG_FROM_MAX, .why = "From which peers, the preferred one first."},
};

const uint32_t config_key_count = sizeof config_keys / sizeof config_keys[0];

const char *tb_config_scope_prefix(enum config_scope scope)
{
    static const char *const prefixes[] = {"", "peers.SITE.", "models.NAME.", "subscribe[]."};
    TB_ASSERT((size_t)scope < sizeof prefixes / sizeof prefixes[0]);
    return prefixes[scope];
}

const char *tb_config_type_text(enum config_type type)
{
    static const char *const texts[] = {
        [CONFIG_NAME] = "name",
        [CONFIG_MODELS] = "name or pattern",
        [CONFIG_TEXT] = "text",
        [CONFIG_PATH] = "path",
        [CONFIG_FILE] = "file",
        [CONFIG_ADDRESS] = "address:port",
        [CONFIG_DIAL] = "host:port or service",
        [CONFIG_WORD] = "word",
        [CONFIG_NUMBER] = "number",
        [CONFIG_AUTO] = "auto or number",
        [CONFIG_SIZE] = "size",
        [CONFIG_BOOL] = "bool",
        [CONFIG_CODEC] = "codec",
        [CONFIG_LEVEL] = "log level",
        [CONFIG_LOG_FORMAT] = "log format",
        [CONFIG_HOST] = "address",
        [CONFIG_NAMES] = "list of names",
        [CONFIG_IDENTITIES] = "list of identities",
        [CONFIG_NETWORKS] = "list of networks",
        [CONFIG_POLICY] = "policy",
        [CONFIG_RATE] = "rate",
        [CONFIG_SCHEDULE] = "list of windows",
    };
    TB_ASSERT((size_t)type < sizeof texts / sizeof texts[0] && texts[type] != NULL);
    return texts[type];
}
