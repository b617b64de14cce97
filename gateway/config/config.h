/* config.h - what an operator may set: one table of keys drives parsing, checking, --explain and
 * docs/config.md.
 *
 * A file is YAML. Unknown keys (with the nearest known one), wrong types, missing required keys,
 * values out of range, duplicate keys and missing files are refused, all of them at once, each
 * with file:line:column. Pure but for the loader, which reads the file and looks whether the files
 * it names can be read. */
#ifndef TB_DAEMON_CONFIG_H
#define TB_DAEMON_CONFIG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/ident.h"
#include "base/log.h"
#include "base/rate.h"
#include "tombolo/status.h"
#include "wan/send/codec_choice.h"

#define TB_CONFIG_LIST_MAX    64 /* peers; models; subscriptions; identities of one list */
#define TB_CONFIG_FROM_MAX    8
#define TB_CONFIG_STREAMS_MAX 64  /* to a peer */
#define TB_CONFIG_LANES_MAX   8   /* gateways of a site: `from` has the 7 others and one far away */
#define TB_CONFIG_AWAKE_MAX   512 /* models of patterns that a gateway has rows for at once */
#define TB_CONFIG_MODELS_MAX  (TB_CONFIG_LIST_MAX + TB_CONFIG_AWAKE_MAX)

/* All text is owned by the config; optional text is NULL when it is not given. */
struct tb_config_peer {
    struct tb_name site; /* the key under `peers:`; of lane 0 its site, of others SITE.LANE */
    struct tb_name of;   /* the site of its certificate */
    uint32_t lane;       /* peers.SITE.lane 0 to 7 [0] */
    struct tb_name gateway;
    const char *address;                           /* "host:port" or a service; NULL: only that side dials */
    const char *source;                            /* the address to dial from; NULL: the kernel's choice */
    uint32_t dscp;                                 /* of what is sent to it, 0 to 63; 0: the system's */
    const char *congestion;                        /* of this path; NULL: link.congestion */
    const char *ca;                                /* PEM file of that site's CA; NULL: tls.ca */
    struct tb_rate_plan rate;                      /* peers.SITE.rate, .schedule: of what is sent to it */
    uint64_t day_bytes;                            /* peers.SITE.day_bytes; 0: no limit */
    struct tb_name speaks_for[TB_CONFIG_LIST_MAX]; /* peers.SITE.speaks_for: sites behind it */
    uint32_t speaks_for_count;
    bool is_unsigned; /* peers.SITE.unsigned [false]: its word counts without home's signature */
    bool gone;        /* a reload took it out: a row without a name, until the next start */
};

struct tb_config_model {
    struct tb_name name;     /* the key under `models:`; a pattern is no name (model_rules.h) */
    bool is_pattern;         /* the row counts for each model that it matches, and for no other */
    uint32_t place;          /* in the file, among `models`: the first pattern that matches counts */
    struct tb_name home;     /* site */
    const char *home_ca;     /* PEM file of the CA of a home that is no peer; NULL: none */
    uint32_t keep;           /* whole versions, head included; 1 to 1000 [2] */
    bool every;              /* policy [latest] */
    uint32_t weight;         /* 1 to 1000 [10] */
    uint32_t quota_versions; /* quota.versions: of all its models together; 0: no bound [0] */
    uint64_t quota_bytes;    /* quota.bytes; 0: no bound [0] */
    /* Identities: "unix:1000", "unix:*", "tombolo://east/worker/rank-*", "tombolo://west/gw". */
    const char *publish[TB_CONFIG_LIST_MAX];
    uint32_t publish_count;
    const char *read[TB_CONFIG_LIST_MAX];
    uint32_t read_count;
    const char *may_fence[TB_CONFIG_LIST_MAX]; /* models.NAME.may_fence */
    uint32_t may_fence_count;
    const char *publishers[TB_CONFIG_LIST_MAX]; /* models.NAME.publishers: patterns */
    uint32_t publishers_count;
    const char *groups[TB_CONFIG_LIST_MAX]; /* models.NAME.groups: patterns */
    uint32_t groups_count;
    struct tb_name durable[TB_CONFIG_LIST_MAX]; /* models.NAME.durable: sites, of peers */
    uint32_t durable_count;
    bool left; /* a reload took it out: a row without rights, until the next start */
};

struct tb_config_subscribe {
    struct tb_name model; /* one of models, or a pattern within one of theirs; its home is another site */
    struct tb_name from[TB_CONFIG_FROM_MAX]; /* peers, in order of preference */
    uint32_t from_count;
};

struct tb_config {
    struct tb_name site;        /* site: (required) */
    struct tb_name gateway;     /* gateway: [gw] */
    uint32_t lane, lanes;       /* lane: 0 to 7 [0]; lanes: 1 to 8 [1] */
    struct tb_name label;       /* what others know this gateway by: site, or SITE.LANE */
    const char *control_socket; /* control.socket [/run/tombolo/control.sock] */
    const char *control_read;   /* control.read; NULL: none */
    const char *session_socket; /* session.socket [/run/tombolo/session.sock] */
    const char *session_listen; /* session.listen "address:port" for workers over TLS; NULL: none */
    uint32_t session_lease_ms;  /* session.lease_ms 500 to 600000 [10000] */
    uint32_t session_max;       /* session.max 16 to 100000 [1024] */
    const char *session_networks[TB_CONFIG_LIST_MAX]; /* session.networks: texts of base/networks.h */
    uint32_t session_networks_count;
    uint32_t handshakes_open, handshakes_failed; /* limits.* [32, 10] */
    uint32_t garbled_frames, cancelled_requests; /* limits.* [20, 1000] */
    const char *store_path;                      /* store.path [/var/lib/tombolo/store.sqlite] */
    uint32_t store_slow_ms;                      /* store.slow_ms 100 to 600000 [5000] */
    uint64_t audit_bytes;                        /* audit.bytes 1MiB to 64GiB [16MiB] */
    const char *audit_file;                      /* audit.file; NULL: the table alone */
    uint32_t audit_days;                         /* audit.days 1 to 3650 [400] */
    const char *arena_path;                      /* arena.path [/dev/shm/tombolo.arena] */
    uint64_t arena_bytes;                        /* arena.bytes (required) "512MiB", "2TiB" */
    bool arena_reverify;                         /* arena.reverify [true] */
    const char *anchor_dir;                      /* anchor.dir; NULL: none */
    uint32_t anchor_every;                       /* anchor.every, versions [1] */
    uint64_t anchor_rate;                        /* anchor.bytes_per_s [256MiB] */
    const char *disk_key;                        /* disk.key; NULL: files stand in clear */
    const char *disk_key_old;                    /* disk.key_old; NULL: none */
    const char *tls_ca, *tls_cert, *tls_key;     /* tls.* (required when there are peers or session.listen) */
    const char *tls_revoked;                     /* tls.revoked; NULL: none are */
    const char *tls_spiffe;                      /* tls.spiffe; NULL: none is listed */
    const char *link_listen;                     /* link.listen; NULL: dial only */
    uint32_t link_streams;                       /* link.streams 1 to 64; 0: auto [auto] */
    uint32_t link_threads;                       /* link.threads 0 to 64 [0: cores, at most 32] */
    uint32_t link_heartbeat_ms;                  /* [1000] */
    uint32_t link_down_ms;                       /* [3000] */
    uint32_t link_stream_idle_ms;                /* [5000] */
    uint32_t link_retry_min_ms;                  /* [100] */
    uint32_t link_retry_max_ms;                  /* [5000] */
    enum tb_choice_wish link_codec;              /* link.codec auto, raw, zstd, planes or sparse [auto] */
    uint32_t link_encoded_percent;               /* link.encoded_percent 0 to 50 [5] */
    uint32_t link_protocol_max;                  /* link.protocol_max 1 to 3 [3] */
    const char *link_congestion;                 /* link.congestion: auto, system, or a name [auto] */
    bool link_own_records;                       /* link.own_records [true]: of TLS, on data streams */
    struct tb_name fabric_host;                  /* fabric.host; empty: the machine's boot id */
    const char *fabric_listen;   /* fabric.listen "address:port" for tcp readers [127.0.0.1:0] */
    bool fabric_trusted;         /* fabric.trusted [false]: tcp inside the site in clear */
    uint32_t fabric_fan_out;     /* fabric.fan_out 0 to 16 [0: by rates] */
    uint64_t fabric_nic;         /* fabric.nic_bytes_per_s; 0: as hosts say [0] */
    uint32_t fabric_threads;     /* fabric.threads 0 to 64 [0: half of the cores, at most 8] */
    uint64_t fabric_pace;        /* fabric.pace_bytes_per_s; 0: none [0] */
    bool fabric_verbs;           /* fabric.verbs [true]: RDMA where both ends have it */
    bool fabric_encoded;         /* fabric.encoded [true]: deltas inside the site */
    const char *dns_servers;     /* dns.servers "127.0.0.1:5353"; NULL: the system's */
    uint32_t drain_ms;           /* drain_ms [10000] */
    uint32_t pin_max_s;          /* pin_max_s [600] */
    bool sandbox;                /* sandbox [true] */
    enum tb_log_level log_level; /* log.level error warn info debug [info] */
    bool log_json;               /* log.format text, json [text] */
    bool log_time;               /* log.time [false] */
    struct tb_config_peer peers[TB_CONFIG_LIST_MAX];
    uint32_t peer_count;
    struct tb_config_model models[TB_CONFIG_LIST_MAX];
    uint32_t model_count;
    struct tb_config_subscribe subscribe[TB_CONFIG_LIST_MAX];
    uint32_t subscribe_count;
};

/* One line of complaint, "FILE:LINE:COLUMN: text", without newline. */
typedef void (*tb_config_complain_fn)(void *user, const char *line);

/* Parses and checks text in memory; `name` is for complaints. *config_out is heap, TB_SITE_CONFIG
 * after at least one complaint, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_config_parse(const char *name, const char *text, size_t bytes,
                                           tb_config_complain_fn complain, void *user,
                                           struct tb_config **config_out);
/* The same of what tb_config_write wrote of a config that runs; what its keys say of one another is
 * not checked again. */
TB_MUST_USE enum tb_status tb_config_parse_running(const char *text, size_t bytes,
                                                   tb_config_complain_fn complain, void *user,
                                                   struct tb_config **config_out);
/* The same from a file of at most 1 MiB; also looks whether the files that it names can be read. */
TB_MUST_USE enum tb_status tb_config_load(const char *path, tb_config_complain_fn complain, void *user,
                                          struct tb_config **config_out);
/* The same for a process that runs, and may not reach files that it did not need at its start: only
 * the file itself is read. */
TB_MUST_USE enum tb_status tb_config_load_running(const char *path, tb_config_complain_fn complain,
                                                  void *user, struct tb_config **config_out);
/* The same for a person who asks before a start: `warn` gets what is no error and seldom meant, as
 * complaints look; the config keeps where its keys stand, for tb_config_place. */
TB_MUST_USE enum tb_status tb_config_load_warned(const char *path, tb_config_complain_fn complain,
                                                 tb_config_complain_fn warn, void *user,
                                                 struct tb_config **config_out);
/* False: the key is not written in the file, and has its default. Of a config that was loaded with
 * tb_config_load_warned. */
bool tb_config_written(const struct tb_config *config, const char *key, uint32_t *line_out,
                       uint32_t *column_out);
/* Where the key stands in its file ("arena.bytes", "peers.west.ca"), or the nearest section above a
 * key that is not written. 1:1 for a config that was loaded otherwise. */
void tb_config_place(const struct tb_config *config, const char *key, uint32_t *line_out,
                     uint32_t *column_out);
void tb_config_free(struct tb_config *config);

/* descriptors.c: open files that this config can come to need, and whether as many are allowed to a
 * process started here. */
#define TB_DESCRIPTORS_TEXT_MAX 256
uint64_t tb_descriptors_needed(const struct tb_config *config);
/* False: text_out says how many are needed, how many are allowed, and which limit it is. */
bool tb_descriptors_allowed(const struct tb_config *config, char text_out[TB_DESCRIPTORS_TEXT_MAX]);
/* Raises this process's limit, before anything is opened. TB_SITE_CONFIG: it may
 * not; error_out as above. */
TB_MUST_USE enum tb_status tb_descriptors_raise(const struct tb_config *config,
                                                char error_out[TB_DESCRIPTORS_TEXT_MAX]);

/* As a file that says the same. effective: also what is not written in `file`, with where each
 * value came from; file NULL: nothing is said of that. */
void tb_config_write(const struct tb_config *config, const char *file, bool effective, FILE *to);

/* Every key with its type, range, unit, default, why, and when a change of it counts; markdown: the
 * table of docs/config.md. */
void tb_config_explain(bool markdown, FILE *to);
/* The same of one key, or of those of a section: "arena.bytes", "peers.west.rate", "tls". How many
 * there are. */
uint32_t tb_config_explain_key(const char *word, FILE *to);
/* Whether a key as tb_config_each_key tells it is that one, or of that section. */
bool tb_config_key_named(const char *key, const char *word);
/* tombolo.yaml(5). TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_config_man(FILE *to);
extern const char tb_config_example[]; /* a file, for people */

/* The same for programs: each key of the table, then each value of a config, in the order of the
 * table. Texts are borrowed for the call. */
struct tb_config_key_text {
    const char *key, *type;
    const char *fallback;     /* as it would be written; NULL: none, or `required` */
    const char *range, *unit; /* NULL: none */
    const char *why;
    bool required;
    bool live;       /* a change counts by a reload */
    const char *how; /* when; or why it needs a restart */
};
typedef void (*tb_config_key_fn)(void *user, const struct tb_config_key_text *key);
typedef void (*tb_config_value_fn)(void *user, const char *key, const char *value); /* value NULL: not set */
TB_MUST_USE enum tb_status tb_config_each_key(tb_config_key_fn fn, void *user);
TB_MUST_USE enum tb_status tb_config_each_value(const struct tb_config *config, tb_config_value_fn fn,
                                                void *user);
/* The same of one row of `models`. */
TB_MUST_USE enum tb_status tb_config_each_value_of_model(const struct tb_config_model *model,
                                                         tb_config_value_fn fn, void *user);

#endif
