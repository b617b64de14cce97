/* links_world.h - gateways of several sites in one process, over loopback TLS with certificates of
 * a CA made for the test. */
#ifndef TB_TESTS_LINKS_WORLD_H
#define TB_TESTS_LINKS_WORLD_H

#include <stdatomic.h>

#include "net_world.h"

#include "wan/link/links.h"
#include "wan/link/links_stats.h"

#define SHARDS_MAX   4
#define SITES_MAX    4
#define VERSIONS_MAX 24

/* A version as its publisher sealed it. */
struct truth {
    struct tb_version_key key;
    struct tb_manifest manifests[SHARDS_MAX];
    void *memories[SHARDS_MAX];
    uint8_t *bytes[SHARDS_MAX];
    uint64_t total_bytes;
    uint32_t chunks;
};
/* `seed` makes the bytes; each shard has tensors of shard_bytes in all. */
void truth_make(struct truth *t, uint64_t seed, uint32_t shard_count, uint64_t shard_bytes);
/* The same, of tensors of that dtype. */
void truth_make_of(struct truth *t, uint64_t seed, uint32_t shard_count, uint64_t shard_bytes,
                   const char *dtype);
/* The version after `from`: of each chunk with an odd number one bf16 in a hundred is a step
 * further; the others are the same. */
void truth_step(struct truth *t, const struct truth *from);
void truth_free(struct truth *t);

/* The copy of a version at one site. */
struct copy {
    bool used;
    struct tb_version_key key;
    struct tb_manifest manifests[SHARDS_MAX];
    void *memories[SHARDS_MAX];
    struct tb_place places[SHARDS_MAX];
};

struct site {
    struct links_world *world;
    const char *name;
    struct tb_tls *tls;
    struct tb_links *links;
    struct tb_links_options options;
    struct tb_links_peer_options peers[SITES_MAX];
    char addresses[SITES_MAX][64];
    uint16_t port; /* listens on; 0: nowhere or not yet */
    struct copy copies[VERSIONS_MAX];
    bool no_land;   /* on_version does nothing */
    bool forgiving; /* TB_SITE_NOMEM is no failure of the test; `again` is set */
    bool again;
    bool deny;           /* may_read says no */
    bool expects;        /* what the peer may send unasked is every model */
    bool distrusts;      /* its peers are not believed about bytes */
    atomic_bool no_base; /* base_good says no */
    bool stop_on_failure;
    bool keeps_landings; /* those that are over, until the version goes, as a gateway does */
    bool closed;
    uint8_t *mend; /* a byte that was spoiled, put right when the peer refuses its chunk */
    /* what happened */
    int renewals;     /* sessions replaced by a fresh one */
    bool tells_again; /* `told`, at each of them */
    struct tb_links_report told;
    int ups, downs, versions, withdrawn, gone, manifests, landed, failed, peer_held, reports, bad_ours,
        bad_theirs;
    int refused, refused_by_peer;
    uint64_t refused_detail;
    int proof_pages;
    uint32_t proofs_said; /* in pages behind manifests that came without */
    int too_large;
    uint64_t too_large_bytes;
    enum tb_status last_why, failed_why, refused_why, gone_why;
    struct tb_links_bad_chunk bad;
    struct tb_links_report report;
};

struct links_world {
    struct world net;
    struct site sites[SITES_MAX];
    struct tb_name model;
};

void links_world_init(struct links_world *w);
void links_world_fini(struct links_world *w); /* closes what runs */

/* Makes the certificate tombolo://NAME/gw and default options; `listens` makes it listen
 * on a port of its own. */
struct site *site_new(struct links_world *w, const char *name, bool listens);
/* from wants the model of to (wants), and dials it (dials). */
void site_peer(struct site *from, struct site *to, bool dials, bool wants);
void site_start(struct site *s);
void site_close(struct site *s); /* and waits */
struct tb_links_stats site_stats(const struct site *s, uint32_t peer);

/* Gives the site all of the version, or the chunks for which (k % modulo == 0); offers it. */
struct copy *site_publish(struct site *s, const struct truth *t);
struct copy *site_copy(struct site *s, const struct truth *t); /* NULL: none */
/* Empty places for the version, with manifests of their own. */
struct copy *site_place(struct site *s, const struct tb_version_key *key,
                        const struct tb_manifest *manifests);
void copy_free(struct copy *c);
uint32_t copy_held(const struct copy *c);
bool copy_whole(const struct copy *c);
void check_equal(const struct copy *c, const struct truth *t);

/* Shuts sockets of this process's TCP connections to or from that port down: data streams alone
 * (those of the stats), or all. */
int cut_streams(struct site *s, uint32_t peer, uint32_t count);
/* The kernel lets the site's n-th bound stream to that peer send so many bytes a second; ~0: as
 * many as it can. False: it is not bound. */
bool pace_stream(struct site *s, uint32_t peer, uint32_t n, uint64_t bytes_per_s);
int cut_all(struct links_world *w, uint16_t port);

/* Up, at both. */
/* So many chunks went to its first peer. A stream counts what it wrote when it has, and the peer
 * may have answered before. */
#define SITE_SENT(w, site, count)                                                                            \
    do {                                                                                                     \
        WORLD_UNTIL(&(w)->net, site_stats(site, 0).chunks_sent >= (count));                                  \
        assert_int_equal(site_stats(site, 0).chunks_sent, count);                                            \
    } while (0)
#define BOTH_UP(w, a, b) WORLD_UNTIL(&(w)->net, site_stats(a, 0).up &&site_stats(b, 0).up)

#endif
