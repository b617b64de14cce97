/* config.c - what a good file gives; a refusal names its place, and all of them are told (P10).
 * Covers: gateway/config/config.c gateway/config/config_keys.c gateway/config/config_walk.c
 * Covers: gateway/config/config_values.c gateway/config/config_checks.c
 * Covers: gateway/config/config_tree.c gateway/config/config_explain.c
 * Covers: gateway/config/config_box.c gateway/config/config_complaints.c */
#include "gateway/config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fault.h"
#include "tests/unit/scratch.h"

struct complaints {
    char text[65536];
    uint32_t count;
};

static void collect(void *user, const char *line)
{
    struct complaints *c = user;
    const size_t used = strlen(c->text);
    snprintf(c->text + used, sizeof c->text - used, "%s\n", line);
    c->count++;
}

/* The least that a file must say; tests put their lines in front of, or behind it. */
#define LEAST  "site: west\narena: {bytes: 16MiB}\n"
#define TLS    "tls: {ca: a, cert: b, key: c}\n"
#define PEER   "peers: {east: {address: \"gw.east:7400\"}}\n"
#define MODELS "models: {policy: {home: east}}\n"

static struct tb_config *parse(const char *text, struct complaints *c)
{
    struct tb_config *config = NULL;
    memset(c, 0, sizeof *c);
    const enum tb_status status = tb_config_parse("w.yaml", text, strlen(text), collect, c, &config);
    assert_int_equal(status, c->count == 0 ? TB_OK : TB_SITE_CONFIG);
    assert_true((config != NULL) == (status == TB_OK));
    return config;
}

static struct tb_config *parse_good(const char *text)
{
    static struct complaints c;
    struct tb_config *config = parse(text, &c);
    assert_string_equal(c.text, "");
    return config;
}

static void the_least_has_defaults(void **state)
{
    (void)state;
    struct tb_config *c = parse_good(LEAST);
    assert_string_equal(c->site.text, "west");
    assert_string_equal(c->gateway.text, "gw");
    assert_string_equal(c->control_socket, "/run/tombolo/control.sock");
    assert_null(c->session_listen);
    assert_int_equal(c->session_lease_ms, 10000);
    assert_int_equal(c->arena_bytes, 16u << 20);
    assert_true(c->arena_reverify);
    assert_int_equal(c->link_streams, 0); /* auto */
    assert_int_equal(c->link_codec, TB_CHOICE_AUTO);
    assert_int_equal(c->link_protocol_max, 3);
    assert_true(c->link_own_records);
    assert_string_equal(c->fabric_listen, "127.0.0.1:0");
    assert_false(c->fabric_trusted);
    assert_int_equal(c->fabric_pace, 0);
    assert_int_equal(c->log_level, TB_LOG_INFO);
    assert_int_equal(c->peer_count + c->model_count + c->subscribe_count, 0);
    tb_config_free(c);
}

static void a_whole_file_is_understood(void **state)
{
    (void)state;
    struct tb_config *c = parse_good(
        "site: west\n"
        "gateway: gw-2\n"
        "arena: {path: /dev/shm/a, bytes: 2TiB, reverify: false}\n"
        "session: {socket: /tmp/s, listen: \"[2001:db8::1]:7401\", lease_ms: 500}\n"
        "tls: {ca: a, cert: b, key: c}\n"
        "link: {listen: \"0.0.0.0:7400\", codec: zstd, congestion: bbr, streams: 64, own_records: false}\n"
        "fabric: {host: h1, trusted: true, fan_out: 2, nic_bytes_per_s: 12GiB, pace_bytes_per_s: 10MiB}\n"
        "log: {level: debug}\n"
        "peers:\n"
        "  east: {gateway: edge, address: gw.east.example:7400, ca: /x/ca.pem}\n"
        "  north:\n"
        "    ca: d\n"
        "models:\n"
        "  policy:\n"
        "    home: east\n"
        "    keep: 3\n"
        "    publish: [unix:1000, tombolo://east/worker/rank-*]\n"
        "    read: [\"unix:*\", tombolo://west/worker/*, tombolo://north/gw, \"tombolo://north/*\"]\n"
        "subscribe:\n"
        "  - model: policy\n"
        "    from: [east, north]\n");
    assert_int_equal(c->arena_bytes, (uint64_t)2 << 40);
    assert_int_equal(c->fabric_nic, (uint64_t)12 << 30);
    assert_false(c->arena_reverify);
    assert_int_equal(c->link_codec, TB_CHOICE_ZSTD);
    assert_string_equal(c->link_congestion, "bbr");
    assert_false(c->link_own_records);
    assert_string_equal(c->fabric_host.text, "h1");
    assert_string_equal(c->fabric_listen, "127.0.0.1:0"); /* beside it, and whole */
    assert_int_equal(c->fabric_pace, 10u << 20);
    assert_int_equal(c->log_level, TB_LOG_DEBUG);
    assert_int_equal(c->peer_count, 2);
    assert_string_equal(c->peers[0].gateway.text, "edge");
    assert_string_equal(c->peers[0].address, "gw.east.example:7400");
    assert_string_equal(c->peers[1].site.text, "north");
    assert_string_equal(c->peers[1].gateway.text, "gw");
    assert_null(c->peers[1].address);
    assert_int_equal(c->models[0].keep, 3);
    assert_int_equal(c->models[0].publish_count, 2);
    assert_string_equal(c->models[0].publish[1], "tombolo://east/worker/rank-*");
    assert_int_equal(c->models[0].read_count, 4);
    assert_string_equal(c->subscribe[0].model.text, "policy");
    assert_int_equal(c->subscribe[0].from_count, 2);
    assert_string_equal(c->subscribe[0].from[1].text, "north");
    tb_config_free(c);
}

/* Another gateway of the model's home follows it, from the first. */
static void a_lane_is_known_by_its_site_and_number(void **state)
{
    (void)state;
    struct tb_config *c = parse_good(LEAST TLS "gateway: gw1\nlane: 1\nlanes: 2\npeers:\n"
                                               "  west: {address: \"x:1\"}\n"
                                               "  far.east.1: {address: \"x:2\", gateway: g, lane: 1}\n"
                                               "models: {policy: {home: west}}\n"
                                               "subscribe: [{model: policy, from: [west, far.east.1]}]\n");
    assert_string_equal(c->label.text, "west.1");
    assert_string_equal(c->site.text, "west");
    assert_string_equal(c->peers[0].of.text, "west");
    assert_string_equal(c->peers[1].of.text, "far.east");
    assert_string_equal(c->peers[1].site.text, "far.east.1");
    assert_int_equal(c->peers[1].lane, 1);
    tb_config_free(c);
}

#define LISTEN "ADDRESS:PORT, such as 0.0.0.0:7400 or [::]:7400"
#define A10    "aaaaaaaaaa"
#define A100   A10 A10 A10 A10 A10 A10 A10 A10 A10 A10

/* One file, all that is said of it. */
struct refusal {
    const char *text;
    const char *complaints;
};

static const struct refusal refusals[] = {
    /* missing */
    {"", "w.yaml:1:1: site: is required\nw.yaml:1:1: arena.bytes: is required\n"},
    {"# nothing but a comment\n", "w.yaml:1:1: site: is required\nw.yaml:1:1: arena.bytes: is required\n"},
    {"site: west\n\narena:\n  path: /x\n", "w.yaml:3:1: arena.bytes: is required\n"},
    {LEAST "models:\n  policy:\n    keep: 2\n", "w.yaml:5:5: models.policy.home: is required\n"},
    {LEAST "models:\n  policy: {keep: 2}\n", "w.yaml:4:11: models.policy.home: is required\n"},
    {LEAST TLS PEER MODELS "subscribe:\n  - from: [east]\n", "w.yaml:7:5: subscribe[0].model: is required\n"},
    {LEAST TLS PEER MODELS "subscribe:\n  - model: policy\n", "w.yaml:7:5: subscribe[0].from: is required\n"},
    /* unknown, with the nearest known one */
    {LEAST "arna: 5\n", "w.yaml:3:1: arna: unknown key; did you mean arena?\n"},
    {LEAST "link:\n  stream: 4\n", "w.yaml:4:3: link.stream: unknown key; did you mean streams?\n"},
    {LEAST "peer: {}\n", "w.yaml:3:1: peer: unknown key; did you mean peers?\n"},
    {LEAST "weather: sunny\n", "w.yaml:3:1: weather: unknown key\n"},
    {LEAST "models:\n  policy:\n    home: west\n    publsh: [unix:1]\n",
     "w.yaml:6:5: models.policy.publsh: unknown key; did you mean publish?\n"},
    {LEAST "arena.bytes: 16MiB\n", "w.yaml:3:1: arena.bytes: unknown key\n"},
    /* duplicates */
    {LEAST "site: east\n", "w.yaml:3:1: site: given before, in line 1\n"},
    {LEAST "link:\n  streams: 4\n  streams: 5\n", "w.yaml:5:3: link.streams: given before, in line 4\n"},
    {LEAST "models:\n  a: {home: west}\n  a: {home: west}\n",
     "w.yaml:5:3: models.a: given before, in line 4\n"},
    /* types */
    {"site: [west]\narena: {bytes: 16MiB}\n", "w.yaml:1:7: site: wants a name, not a list or a section\n"},
    {"site:\narena: {bytes: 16MiB}\n", "w.yaml:1:6: site: wants a name, has no value\n"},
    {"site: we/st\narena: {bytes: 16MiB}\n",
     "w.yaml:1:7: site: \"we/st\": a name is 1 to 64 of A-Z a-z 0-9 . _ -\n"},
    {LEAST "link: {streams: eight}\n",
     "w.yaml:3:17: link.streams: \"eight\": is neither auto nor a whole number\n"},
    {LEAST "link: {streams: \"8\"}\n",
     "w.yaml:3:17: link.streams: \"8\": is text: write it without quotes\n"},
    {LEAST "link: {streams: -1}\n",
     "w.yaml:3:17: link.streams: \"-1\": is neither auto nor a whole number\n"},
    {LEAST "link: {streams: 8.0}\n",
     "w.yaml:3:17: link.streams: \"8.0\": is neither auto nor a whole number\n"},
    {LEAST "link: 5\n", "w.yaml:3:7: link: wants a section of keys\n"},
    {LEAST "fabric: {trusted: yes}\n", "w.yaml:3:19: fabric.trusted: \"yes\": is neither true nor false\n"},
    {LEAST "link: {codec: lz4}\n",
     "w.yaml:3:15: link.codec: \"lz4\": is none of auto, raw, zstd, planes, sparse\n"},
    {LEAST "log: {level: loud}\n", "w.yaml:3:14: log.level: \"loud\": is none of error, warn, info, debug\n"},
    {LEAST "log: {format: xml}\n", "w.yaml:3:15: log.format: \"xml\": is neither text nor json\n"},
    {LEAST "link: {congestion: \"b b\"}\n",
     "w.yaml:3:20: link.congestion: \"b b\": is not one word of a-z 0-9 _ -\n"},
    {LEAST "control: {socket: \"\"}\n", "w.yaml:3:19: control.socket: \"\": is empty or too long\n"},
    {LEAST "fabric: {listen: here}\n", "w.yaml:3:18: fabric.listen: \"here\": is not " LISTEN "\n"},
    {LEAST "fabric: {listen: _tombolo._tcp.east}\n",
     "w.yaml:3:18: fabric.listen: \"_tombolo._tcp.east\": is not " LISTEN "\n"},
    {LEAST "fabric: {listen: \"a:70000\"}\n", "w.yaml:3:18: fabric.listen: \"a:70000\": is not " LISTEN "\n"},
    {LEAST "fabric: {listen: \"localhost:0\"}\n",
     "w.yaml:3:18: fabric.listen: \"localhost:0\": is not " LISTEN "\n"},
    {LEAST "fabric: {listen: \"[127.0.0.1]:0\"}\n",
     "w.yaml:3:18: fabric.listen: \"[127.0.0.1]:0\": is not " LISTEN "\n"},
    {LEAST "fabric: {listen: \"::1:0\"}\n", "w.yaml:3:18: fabric.listen: \"::1:0\": is not " LISTEN "\n"},
    {LEAST "control: {socket: /" A100 "1234567}\n",
     "w.yaml:3:19: control.socket: the path of a socket has at most 107 characters, this one 108\n"},
    {LEAST "session: {socket: /" A100 "12345678}\n",
     "w.yaml:3:19: session.socket: the path of a socket has at most 107 characters, this one 109\n"},
    {LEAST "peers: [east]\n", "w.yaml:3:8: peers: wants a section of names\n"},
    {LEAST "peers: {east: 5}\n", "w.yaml:3:15: peers.east: wants a section of keys\n"},
    {LEAST "models: {\"a b\": {home: east}}\n",
     "w.yaml:3:10: \"a b\": a name is 1 to 64 of A-Z a-z 0-9 . _ -; one with * in it is a pattern\n"},
    {LEAST "subscribe: {model: a}\n", "w.yaml:3:12: subscribe: wants a list\n"},
    {LEAST "subscribe: [policy]\n", "w.yaml:3:13: subscribe[0]: wants {model: NAME, from: [SITE]}\n"},
    {LEAST "models: {a: {home: west, read: unix:1}}\n",
     "w.yaml:3:32: models.a.read: wants a list, such as [a, b]\n"},
    {LEAST "models: {a: {home: west, read: [[unix:1]]}}\n",
     "w.yaml:3:33: models.a.read: an item is not one word\n"},
    /* ranges */
    {"site: west\narena: {bytes: 1MiB}\n",
     "w.yaml:2:16: arena.bytes: \"1MiB\": is not in its range, 8388608 to 70368744177664 bytes\n"},
    {"site: west\narena: {bytes: 16777216TiB}\n",
     "w.yaml:2:16: arena.bytes: \"16777216TiB\": is not a size (such as 4096, 512MiB, 2TiB)\n"},
    {"site: west\narena: {bytes: 16MB}\n",
     "w.yaml:2:16: arena.bytes: \"16MB\": is not a size (such as 4096, 512MiB, 2TiB)\n"},
    {LEAST "link: {streams: 65}\n", "w.yaml:3:17: link.streams: \"65\": is not in its range, 1 to 64\n"},
    {LEAST "link: {streams: 99999999999999999999}\n",
     "w.yaml:3:17: link.streams: \"99999999999999999999\": is neither auto nor a whole number\n"},
    {LEAST "session: {lease_ms: 499}\n",
     "w.yaml:3:21: session.lease_ms: \"499\": is not in its range, 500 to 600000 ms\n"},
    {LEAST "models: {a: {home: west, keep: 0}}\n",
     "w.yaml:3:32: models.a.keep: \"0\": is not in its range, 1 to 1000 versions\n"},
    /* what keys say of one another */
    {LEAST "link: {heartbeat_ms: 3000}\n",
     "w.yaml:3:7: link.down_ms: 3000 is not above heartbeat_ms, 3000\n"},
    {LEAST "link:\n  retry_min_ms: 900\n  retry_max_ms: 800\n",
     "w.yaml:5:17: link.retry_max_ms: 800 is below retry_min_ms, 900\n"},
    {LEAST "gateway: worker\n", "w.yaml:3:10: gateway: \"worker\" begins the names of workers\n"},
    {LEAST "tls: {ca: a, cert: b}\n",
     "w.yaml:3:1: tls.key: is required where there are peers, link.listen or session.listen\n"},
    {LEAST TLS "peers:\n  west: {address: \"x:1\"}\n", "w.yaml:5:3: peers.west: is this site itself\n"},
    {"site: west\nlane: 1\narena: {bytes: 16MiB}\n", "w.yaml:2:7: lane: 1 is not below lanes, 1\n"},
    {LEAST "lanes: 9\n", "w.yaml:3:8: lanes: \"9\": is not in its range, 1 to 8 gateways\n"},
    {LEAST TLS "peers:\n  east: {address: \"x:1\", lane: 1}\n",
     "w.yaml:5:3: peers.east: a gateway of lane 1 is named SITE.1\n"},
    {LEAST TLS "peers:\n  .1: {address: \"x:1\", lane: 1}\n",
     "w.yaml:5:3: peers..1: a gateway of lane 1 is named SITE.1\n"},
    {LEAST TLS "peers:\n  west.1: {address: \"x:1\", gateway: g, lane: 1}\n",
     "w.yaml:5:3: peers.west.1: lanes says that this site has 1\n"},
    {LEAST TLS "lanes: 2\npeers:\n  west.1: {address: \"x:1\", lane: 1}\n",
     "w.yaml:6:11: peers.west.1.gateway: \"gw\" is this gateway's own name\n"},
    {LEAST TLS "peers:\n  east: {address: \"x:1\"}\n  east.1: {address: \"x:1\", lane: 1}\n",
     "w.yaml:6:11: peers.east.1.gateway: \"gw\" is also that of peers.east\n"},
    {LEAST TLS "peers:\n  east: {}\n",
     "w.yaml:5:3: peers.east: nobody can dial: give its address here, or link.listen so that it can dial\n"},
    {LEAST TLS "peers:\n  east: {address: \"x:1\", gateway: worker}\n",
     "w.yaml:5:35: peers.east.gateway: \"worker\" begins the names of workers\n"},
    {LEAST TLS PEER "subscribe: [{model: policy, from: [east]}]\n",
     "w.yaml:5:21: subscribe: model \"policy\": is not one of models\n"},
    {LEAST TLS PEER "models: {policy: {home: west}}\nsubscribe: [{model: policy, from: [east]}]\n",
     "w.yaml:6:21: subscribe: model \"policy\": this site is its home\n"},
    {LEAST TLS PEER "models: {policy: {home: north}}\nsubscribe: [{model: policy, from: [east]}]\n",
     "w.yaml:5:10: models.policy.home_ca: \"north\" is not one of peers, so the CA of that home is needed\n"},
    {LEAST TLS PEER MODELS "subscribe: [{model: policy, from: [est]}]\n",
     "w.yaml:6:36: subscribe: from \"est\": is not one of peers\n"},
    {LEAST TLS PEER MODELS "subscribe: [{model: policy, from: []}]\n",
     "w.yaml:6:35: subscribe: from names no site\n"},
    {LEAST TLS PEER MODELS "subscribe: [{model: policy, from: [east, east]}]\n",
     "w.yaml:6:42: subscribe: from \"east\": is named twice\n"},
    {LEAST TLS PEER MODELS "subscribe:\n- {model: policy, from: [east]}\n- {model: policy, from: [east]}\n",
     "w.yaml:8:11: subscribe: model \"policy\": is subscribed before\n"},
    {LEAST TLS "peers: {east: {address: \"x:1\", speaks_for: [north, south]}}\n", ""},
    {LEAST TLS "peers: {east: {address: \"x:1\", speaks_for: [east]}}\n",
     "w.yaml:4:44: peers.east.speaks_for: \"east\" speaks for itself: it is this site, or one of peers\n"},
    {LEAST TLS "peers: {east: {address: \"x:1\", speaks_for: [west]}}\n",
     "w.yaml:4:44: peers.east.speaks_for: \"west\" speaks for itself: it is this site, or one of peers\n"},
    {LEAST TLS "peers: {east: {address: \"[::1]:1\", source: \"2001:db8::1\", dscp: 63}}\n", ""},
    {LEAST TLS "peers: {east: {address: \"x:1\", source: \"fe80::1\", dscp: 64}}\n",
     "w.yaml:4:40: peers.east.source: \"fe80::1\": is no address of a machine, such as 192.0.2.1 or "
     "2001:db8::1\nw.yaml:4:57: peers.east.dscp: \"64\": is not in its range, 0 to 63\n"},
    {LEAST TLS "peers: {east: {address: \"192.0.2.1:1\", source: \"2001:db8::1\"}}\n",
     "w.yaml:4:48: peers.east.source: 2001:db8::1 reaches no IPv4 address, as peers.east.address is\n"},
    {LEAST TLS "peers: {east: {address: \"[::1]:1\", source: 192.0.2.1}}\n",
     "w.yaml:4:44: peers.east.source: 192.0.2.1 reaches no IPv6 address, as peers.east.address is\n"},
    {LEAST TLS PEER "models: {policy: {home: west, durable: [east]}}\n", ""},
    {LEAST TLS PEER "models: {policy: {home: west, durable: [est]}}\n",
     "w.yaml:5:40: models.policy.durable: \"est\" is not the site of one of peers\n"},
    /* what two keys name has one owner */
    {"site: west\nstore: {path: /x}\narena: {path: /x, bytes: 8MiB}\n",
     "w.yaml:3:15: arena.path: \"/x\" is also store.path\n"},
    {LEAST "control: {socket: /run/a}\nsession: {socket: /run/a}\n",
     "w.yaml:4:19: session.socket: \"/run/a\" is also control.socket\n"},
    {LEAST TLS "session: {listen: \"0.0.0.0:7401\"}\nlink: {listen: \"0.0.0.0:7401\"}\n",
     "w.yaml:5:16: link.listen: \"0.0.0.0:7401\" is also session.listen\n"},
    {LEAST TLS "session: {listen: \"127.0.0.1:0\"}\nlink: {listen: \"127.0.0.1:0\"}\n", ""},
    /* not a plain tree */
    {"site: west\n\tarena: 5\n", "w.yaml:2:1: not YAML: found a tab character that violates indentation, "
                                 "while scanning a plain scalar\n"},
    {"- site\n", "w.yaml:1:1: the file is not a mapping of keys to values\n"},
    {"west\n", "w.yaml:1:1: the file is not a mapping of keys to values\n"},
    {LEAST "---\nsite: east\n", "w.yaml:3:1: a second document begins here\n"},
    {"site: &a west\n", "w.yaml:1:7: anchors, aliases and tags are not used here\n"},
    {"site: *a\n", "w.yaml:1:7: anchors, aliases and tags are not used here\n"},
    {"site: !!str west\n", "w.yaml:1:7: anchors, aliases and tags are not used here\n"},
    {"? [a]\n: b\n", "w.yaml:1:3: a key must be one word\n"},
    {"a: [[[[[[[[[1]]]]]]]]]\n", "w.yaml:1:11: values are nested too deep\n"},
    {"site: \"a\\0b\"\n", "w.yaml:1:7: a value holds a NUL\n"},
};

/* A person who asks before a start hears of what is seldom meant, with its place, and
 * where each key stands. */
static void warnings_are_another_list(void **state)
{
    (void)state;
    static struct complaints errors;
    static const char text[] =
        "site: west\narena:\n  bytes: 8MiB\n  path: /x\nmodels:\n  policy:\n    home: north\n";
    char path[64] = "/tmp/tombolo-config-XXXXXX", wanted[256];
    struct tb_config *config = NULL;
    uint32_t line, column;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    close(fd);
    memset(&errors, 0, sizeof errors);
    assert_int_equal(tb_config_load_warned(path, collect, collect, &errors, &config), TB_OK);
    snprintf(
        wanted, sizeof wanted,
        "%s:7:11: models.policy.home: \"north\" is not one of peers: the model comes only through a peer "
        "that relays it\n",
        path);
    assert_string_equal(errors.text, wanted);
    tb_config_place(config, "arena.path", &line, &column);
    assert_int_equal(line, 4);
    assert_int_equal(column, 9);
    tb_config_place(config, "arena.huge", &line, &column); /* not written: its section */
    assert_int_equal(line, 2);
    tb_config_place(config, "arenas", &line, &column);
    assert_int_equal(line, 1);
    tb_config_free(config);
    assert_int_equal(tb_config_load(path, collect, &errors, &config), TB_OK);
    assert_string_equal(errors.text, wanted); /* a start says no more */
    tb_config_free(config);
    assert_int_equal(unlink(path), 0);
}

static void every_refusal_has_its_place(void **state)
{
    (void)state;
    static struct complaints c;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        tb_config_free(parse(refusals[i].text, &c));
        if (strcmp(c.text, refusals[i].complaints) != 0)
            fail_msg("case %zu:\n%s\nsaid:\n%swanted:\n%s", i, refusals[i].text, c.text,
                     refusals[i].complaints);
    }
}

static void all_complaints_are_told(void **state)
{
    (void)state;
    static struct complaints c;
    tb_config_free(parse("site: we st\n"
                         "arena: {bytes: many}\n"
                         "link: {streams: 0, codec: lz4, colour: red}\n"
                         "peers: {east: {address: nowhere}}\n",
                         &c));
    assert_string_equal(
        c.text, "w.yaml:1:7: site: \"we st\": a name is 1 to 64 of A-Z a-z 0-9 . _ -\n"
                "w.yaml:2:16: arena.bytes: \"many\": is not a size (such as 4096, 512MiB, 2TiB)\n"
                "w.yaml:3:17: link.streams: \"0\": is not in its range, 1 to 64\n"
                "w.yaml:3:27: link.codec: \"lz4\": is none of auto, raw, zstd, planes, sparse\n"
                "w.yaml:3:32: link.colour: unknown key\n"
                "w.yaml:4:25: peers.east.address: \"nowhere\": is neither HOST:PORT nor the name of a "
                "service, _SERVICE._tcp.DOMAIN\n"
                "w.yaml:1:1: tls.ca: is required where there are peers, link.listen or session.listen\n"
                "w.yaml:1:1: tls.cert: is required where there are peers, link.listen or session.listen\n"
                "w.yaml:1:1: tls.key: is required where there are peers, link.listen or session.listen\n");
}

/* Rights are the last place for a typo to pass: a text that is not an identity is refused. */
static void identities_are_checked(void **state)
{
    (void)state;
    static struct complaints c;
    const struct {
        const char *text;
        bool good;
    } cases[] = {
        {"unix:0", true},
        {"unix:*", true},
        {"unix:10*", false},
        {"unix:root", false},
        {"unix:", false},
        {"*", false},
        {"tombolo://west/gw", true},
        {"tombolo://west/worker/a", true},
        {"tombolo://west/worker/*", true},
        {"tombolo://west/worker/a-*", true},
        {"tombolo://west/*", true},
        {"tombolo://*", false},
        {"tombolo://we*", false},
        {"tombolo://west/worker/*a", false},
        {"tombolo://west/worker/**", false},
        {"tombolo://west/worker/", false},
        {"tombolo://west/worker", false},
        {"http://west/gw", false},
        {"", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, LEAST "models: {a: {home: west, read: [\"%s\"]}}\n", cases[i].text);
        struct tb_config *config = parse(text, &c);
        if ((config != NULL) != cases[i].good) fail_msg("%s", cases[i].text);
        tb_config_free(config);
    }
}

static void too_many_are_refused(void **state)
{
    (void)state;
    static struct complaints c;
    static char text[65536];
    size_t used = (size_t)snprintf(text, sizeof text, LEAST "models:\n");
    for (int i = 0; i < 65; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "  m%d: {home: west}\n", i);
    tb_config_free(parse(text, &c));
    assert_string_equal(c.text, "w.yaml:68:3: m64: more than 64\n");
    used = 0;
    for (int i = 0; i < 500; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "bad%d: 1\n", i);
    tb_config_free(parse(text, &c));
    assert_int_equal(c.count, 100);
    assert_non_null(strstr(c.text, "this is the last complaint"));
}

/* A file may hold anything; a complaint is one clean line. */
static void complaints_hold_no_control_characters(void **state)
{
    (void)state;
    static struct complaints c;
    tb_config_free(parse(LEAST "\"a\\nw.yaml:1:1: fine\\e[31m\": 1\n", &c));
    assert_string_equal(c.text, "w.yaml:3:1: a?w.yaml:1:1: fine?[31m: unknown key\n");
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void files_are_looked_at_by_load(void **state)
{
    (void)state;
    char path[128];
    char want[512];
    static struct complaints c;
    struct tb_config *config = NULL;
    (void)snprintf(path, sizeof path, "%s/config", scratch_files());
    write_file(path, LEAST "tls: {ca: /etc/passwd, cert: /no/such/cert, key: /etc/passwd}\n");
    memset(&c, 0, sizeof c);
    assert_int_equal(tb_config_load(path, collect, &c, &config), TB_SITE_CONFIG);
    snprintf(want, sizeof want,
             "%s:3:30: tls.cert: cannot read \"/no/such/cert\": No such file or directory\n", path);
    assert_string_equal(c.text, want);
    write_file(path, LEAST);
    memset(&c, 0, sizeof c);
    assert_int_equal(tb_config_load(path, collect, &c, &config), TB_OK);
    tb_config_free(config);
    unlink(path);
    assert_int_equal(tb_config_load(path, collect, &c, &config), TB_SITE_CONFIG);
    snprintf(want, sizeof want, "%s:1:1: No such file or directory\n", path);
    assert_string_equal(c.text, want);
}

static void no_memory_is_survived(void **state)
{
    (void)state;
    static const char text[] = LEAST TLS PEER MODELS "subscribe: [{model: policy, from: [east]}]\n";
    static struct complaints c;
    uint32_t failures = 0;
    for (uint64_t nth = 1; nth < 200; nth++) {
        struct tb_config *config = NULL;
        memset(&c, 0, sizeof c);
        tb_fault_arm(TB_FAULT_malloc, nth, false);
        const enum tb_status status = tb_config_parse("w", text, sizeof text - 1, collect, &c, &config);
        tb_fault_arm(TB_FAULT_malloc, 0, false);
        assert_true(status == TB_OK || status == TB_SITE_NOMEM);
        failures += status == TB_SITE_NOMEM ? 1 : 0;
        tb_config_free(config);
    }
    assert_true(failures > 20);
}

/* The sanitizers look on: whatever the bytes, parsing ends and says so. */
static void random_bytes_never_break_it(void **state)
{
    (void)state;
    static const char seed_text[] = LEAST TLS PEER MODELS "subscribe: [{model: policy, from: [east]}]\n";
    static struct complaints c;
    uint64_t seed = 42;
    for (uint32_t round = 0; round < 3000; round++) {
        char text[sizeof seed_text];
        memcpy(text, seed_text, sizeof text);
        for (uint32_t i = 0; i < 1 + round % 4; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[(seed >> 33) % (sizeof text - 1)] = "\0\n\t :{}[]-*&!\"'#x\xff~?"[(seed >> 20) % 21];
        }
        struct tb_config *config = NULL;
        memset(&c, 0, 8);
        c.count = 0;
        const enum tb_status status = tb_config_parse("w", text, sizeof text - 1, collect, &c, &config);
        assert_int_equal(status, c.count == 0 ? TB_OK : TB_SITE_CONFIG);
        tb_config_free(config);
    }
}

static void print(bool markdown, char *out, size_t cap)
{
    FILE *f = fmemopen(out, cap, "w");
    assert_non_null(f);
    tb_config_explain(markdown, f);
    fclose(f);
    assert_true(strlen(out) + 1 < cap);
}

static void print_value(void *user, const char *key, const char *value)
{
    fprintf(user, "%s = %s\n", key, value != NULL ? value : "(none)");
}

/* After a change of the table: tombolo config explain --markdown > docs/config.md */
static void the_page_is_the_table(void **state)
{
    (void)state;
    static char page[65536];
    FILE *f = fopen(TB_CONFIG_DOC, "r");
    assert_non_null(f);
    page[fread(page, 1, sizeof page - 1, f)] = '\0';
    fclose(f);
    static char text[65536];
    print(true, text, sizeof text);
    assert_string_equal(text, page);
    char *example = strstr(text, "```yaml\n") + 8; /* and its example is a good file */
    *strstr(example, "```") = '\0';
    tb_config_free(parse_good(example));
}

static void values_are_printed_back(void **state)
{
    (void)state;
    struct tb_config *c = parse_good(LEAST TLS PEER "models: {policy: {home: east, read: [unix:1, unix:2]}}\n"
                                                    "subscribe: [{model: policy, from: [east]}]\n");
    static char text[65536];
    FILE *f = fmemopen(text, sizeof text, "w");
    assert_non_null(f);
    assert_int_equal(tb_config_each_value(c, print_value, f), TB_OK);
    fclose(f);
    assert_non_null(strstr(text, "site = west\n"));
    assert_non_null(strstr(text, "\narena.bytes = 16MiB\n"));
    assert_non_null(strstr(text, "\nlink.congestion = auto\n"));
    assert_non_null(strstr(text, "\nlink.codec = auto\n"));
    assert_non_null(strstr(text, "\nlog.level = info\n"));
    assert_non_null(strstr(text, "\npeers.east.address = gw.east:7400\n"));
    assert_non_null(strstr(text, "\nmodels.policy.read = [unix:1, unix:2]\n"));
    assert_non_null(strstr(text, "\nsubscribe[0].from = [east]\n"));
    print(false, text, sizeof text);
    assert_non_null(strstr(text, "\nsession.lease_ms\n    number; default 10000; 500 to 600000 ms\n"));
    tb_config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_has_defaults),
        cmocka_unit_test(a_whole_file_is_understood),
        cmocka_unit_test(a_lane_is_known_by_its_site_and_number),
        cmocka_unit_test(every_refusal_has_its_place),
        cmocka_unit_test(warnings_are_another_list),
        cmocka_unit_test(all_complaints_are_told),
        cmocka_unit_test(identities_are_checked),
        cmocka_unit_test(too_many_are_refused),
        cmocka_unit_test(complaints_hold_no_control_characters),
        cmocka_unit_test(files_are_looked_at_by_load),
        cmocka_unit_test(no_memory_is_survived),
        cmocka_unit_test(random_bytes_never_break_it),
        cmocka_unit_test(the_page_is_the_table),
        cmocka_unit_test(values_are_printed_back),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
