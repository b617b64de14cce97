/* transport.h - what a way to move bytes inside a site must do for a hop. `tcp`, `shm` and, where
 * it is built, `verbs` implement it.
 *
 * An upstream is the reader's end of one hop by one transport. The unit is a READ: bytes of the
 * source's export into memory of ours. A hop has many READs in flight; a transport with its own
 * engine completes them by on_read (read), one that copies from memory within reach lets the hop's
 * pool run the copy (reaches, copy), so the loop stays free for others. Both in turn is a READ that
 * on_read gives `staged`: the pool copies it then.
 *
 * Threads: everything here runs on the fabric's thread, except copy, which runs on any. Nothing is
 * called back from inside open, read, confirm or close. */
#ifndef TB_INTRA_TRANSPORT_H
#define TB_INTRA_TRANSPORT_H

#include "intra/fabric/source_descriptor.h"

/* One READ: `bytes` bytes into `to`. The memory of the struct and of `to` is the hop's, and the
 * transport's to write until on_read, or until close has been answered by on_closed. */
struct tb_read {
    /* set: packed bytes from `offset` on, where the source says they stand, of this manifest */
    const struct tb_source_shard *source;
    const struct tb_manifest *manifest;
    uint32_t buffer; /* source NULL: of this buffer, from `offset` on */
    uint64_t offset;
    uint32_t bytes; /* at least 1 */
    bool words;     /* a bitmap: whole aligned 64-bit words, each loaded at once */
    uint8_t *to;
    void *owner;

    /* The transport's while it has the READ. */
    struct tb_read *next;
    uint32_t asked; /* bytes for which the source was asked */
    uint32_t got;   /* bytes that have come */
    bool staged;    /* by on_read: it stands where copy gets it from */
    uint32_t part;  /* shm: of its tray; with staged */
};
/* The next stretch of the READ after its first `done` bytes. */
struct tb_source_run tb_transport_read_run(const struct tb_read *read, uint32_t done);

struct tb_upstream;

struct tb_upstream_events {
    /* Before on_open: the source has a shelf. NULL: nobody wants to know. */
    void (*on_shelf)(void *user, uint32_t buffer, uint64_t offset);
    /* Before on_open: how deep in the chain this reader stands, as its source says. NULL
     * likewise. */
    void (*on_depth)(void *user, uint32_t depth);
    void (*on_open)(
        void *user); /* and again whenever it goes on by another transport, or for another reason */
    void (*on_read)(void *user, struct tb_read *read);
    void (*on_confirmed)(void *user); /* answers the oldest confirm */
    /* The source ended it, or cannot be reached. Nothing more comes; READs in flight are dead once
     * on_closed has run. The hop closes it. */
    void (*on_lost)(void *user, enum tb_status why);
    /* After close: the upstream is freed, none of its READs writes any more. */
    void (*on_closed)(void *user);
};

struct tb_upstream_options {
    struct tb_fabric *fabric;
    const struct tb_hop_options *hop; /* borrowed for as long as the upstream lives */
    /* what the hop will read: for transports that prepare their buffers; likewise borrowed */
    const struct tb_source_shard *const *sources;
    uint32_t source_count;
    const struct tb_place *const *places; /* one a source: where most READs go */
    uint32_t idle_ms, open_ms;            /* how long it may be silent: while open, and before */
    const struct tb_upstream_events *events;
    void *user;
};

struct tb_transport_ops {
    enum tb_transport transport;
    /* Errors at once mean no upstream and no event. */
    enum tb_status (*open)(const struct tb_upstream_options *options, struct tb_upstream **upstream_out);
    void (*read)(struct tb_upstream *u, struct tb_read *read);
    /* True: all of the READ is within reach of copy. */
    bool (*reaches)(const struct tb_upstream *u, const struct tb_read *read);
    /* True: `to` is of a place's far chunk, and the READ will be written there if it is asked for
     * now. NULL: never, a far chunk gets memory of the host. */
    bool (*writes_far)(const struct tb_upstream *u, const struct tb_read *read);
    /* TB_STREAM_IO: the memory cannot be read any more. */
    enum tb_status (*copy)(struct tb_upstream *u, const struct tb_read *read);
    /* Asks the source for a sign of life. on_confirmed proves that its memory was still ours to
     * read when confirm was called: an owner ends the hop before it takes its memory back, so a
     * digest that failed before counts only then. */
    void (*confirm)(struct tb_upstream *u);
    /* Called now and then: notices a source that is silent for idle_ms. Returns when it
     * wants the next call. */
    tb_time_ns (*poll)(struct tb_upstream *u, tb_time_ns now);
    void (*close)(struct tb_upstream *u);
};

struct tb_upstream {
    const struct tb_transport_ops *ops;
    enum tb_transport transport; /* by on_open at the latest: what it came to */
    enum tb_transport_why why;
};

/* The buffers that the sources name, ascending, each once; the caller frees the
 * list. TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_source_buffers(const struct tb_source_shard *const *sources,
                                             uint32_t source_count, uint32_t **buffers_out,
                                             uint32_t *count_out);

extern const struct tb_transport_ops tb_transport_tcp;
extern const struct tb_transport_ops tb_transport_shm;
extern const struct tb_transport_ops tb_transport_verbs; /* may degrade to a stream, as tcp is one */

#endif
