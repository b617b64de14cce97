/* store.h - what must survive a restart beside the arena: runs, versions, pointers, what was sent
 * today, what paths bear, the audit record. SQLite, WAL. A shell.
 *
 * Nothing per chunk is written. Every write is one transaction with its row of the audit record
 * (store_audit.h), which is bounded: its oldest rows go. TB_SITE_STORE: full disk, read-only,
 * damaged, or another process holds it; the error text says which and what to do. Thread: one at a
 * time; in the daemon the main thread opens and loads, then it is store_writer's. */
#ifndef TB_DAEMON_STORE_H
#define TB_DAEMON_STORE_H

#include "base/layout/version_key.h"
#include "base/proof/statement.h"
#include "gateway/catalog/catalog.h"
#include "gateway/catalog/models.h"
#include "gateway/catalog/version_state.h"
#include "gateway/disk/disk_key.h"
#include "gateway/store/audit_record.h"

struct tb_store;
struct tb_store_backup;

#define TB_STORE_MAGIC "SQLite format 3" /* begins a file in clear */

/* Lets SQLite's own allocations fail with the point `library` of base/fault.h. For main, before the
 * first open, and only where faults are asked for. */
void tb_store_library_faults(void);

/* Opens or makes the file (mode 0600) and checks that it can be written. One that is as
 * disk.key_old says is written anew under disk.key first. The keys are borrowed until the store is
 * closed. error_out gets a sentence. */
TB_MUST_USE enum tb_status tb_store_open(const char *path, const struct tb_disk_keys *keys,
                                         struct tb_store **store_out, char error_out[256]);
void tb_store_close(struct tb_store *store);
const char *tb_store_error(const struct tb_store *store); /* of the last failure */

/* The catalog's incarnation: the larger of at_least and what is stored plus one;
 * durable when it returns. */
TB_MUST_USE enum tb_status tb_store_incarnation(struct tb_store *store, uint64_t at_least,
                                                uint64_t *incarnation_out);

/* Whether the file is the one that the process before wrote. A copy that was put back is another
 * file: its inode or its time of birth is not the one that was written into it. */
enum tb_store_origin { TB_STORE_SAME, TB_STORE_NEW, TB_STORE_RESTORED };
enum tb_store_origin tb_store_origin(const struct tb_store *store);
/* It is this process's file from now on: TB_STORE_SAME at the next open. In the same
 * transaction these models become doubted, and of a new or restored one each model that is not
 * named in the configuration: other sites may remember runs of them that the store does not
 * know. `first`: the operator says that no site does. That ends the doubt of all models that are
 * not named, but of a store that was just restored. */
TB_MUST_USE enum tb_status tb_store_own(struct tb_store *store, const struct tb_name *doubted, uint32_t count,
                                        bool first);
/* One model becomes doubted, or is not any more. Without an audit line. An empty name: each model
 * becomes doubted that is not named in the configuration, known here or not. They are told apart by
 * an epoch, which the row of a model has of the time when it was in doubt last. */
struct tb_store_doubt {
    struct tb_name model;
    bool doubted;
};
TB_MUST_USE enum tb_status tb_store_doubt(struct tb_store *store, const struct tb_store_doubt *doubt);

struct tb_store_version {
    struct tb_version_key key;
    enum tb_catalog_state state;
    uint64_t bytes;
    bool pinned;
    char pinned_by[TB_CATALOG_TEXT_MAX]; /* filled by tb_store_load alone */
    bool withdrawn_here; /* `state` is withdrawn, by this site's operator, for this site alone */
};
struct tb_store_audit {
    const char *what; /* "run.open", "publish", "version.withdrawn"; empty: no row of the record */
    const char *who;
    const char *why;
    uint64_t wall_ms;
};
TB_MUST_USE enum tb_status tb_store_run(struct tb_store *store, const struct tb_catalog_run *run,
                                        const struct tb_store_audit *audit);
/* One that was withdrawn is in a list of its own besides, which outlives the version's row. */
#define TB_STORE_WITHDRAWN_MAX 1024u /* of a model, the newest */
TB_MUST_USE enum tb_status tb_store_version(struct tb_store *store, const struct tb_store_version *version,
                                            const struct tb_store_audit *audit);
/* The head of a model, or (pin) an operator's pin, which takes the place of the model's pin
 * before. */
struct tb_store_pointer {
    struct tb_name model;
    struct tb_id uid; /* zero: none */
    bool pin, pinned; /* pin: a pin that was set or taken away; else the head */
};
TB_MUST_USE enum tb_status tb_store_pointer(struct tb_store *store, const struct tb_store_pointer *pointer,
                                            const struct tb_store_audit *audit);

/* The bytes that were sent to a site on a day (since 1970, UTC); one row a site. Without an
 * audit line. */
struct tb_store_spent {
    struct tb_name site;
    uint64_t day, bytes;
};
TB_MUST_USE enum tb_status tb_store_spent(struct tb_store *store, const struct tb_store_spent *spent);

/* How many streams bring how much to a site; one row a site. Without an audit line. */
struct tb_store_path {
    struct tb_name site;
    uint32_t streams;
    uint64_t bytes_per_s;
};
TB_MUST_USE enum tb_status tb_store_path(struct tb_store *store, const struct tb_store_path *path);

/* A model or a peer that an operator paused, or let go on; one row each while it is paused. Without
 * an audit line. */
#define TB_STORE_WHO_BYTES 96u
struct tb_store_pause {
    struct tb_name name;
    bool is_peer, paused;
    char who[TB_STORE_WHO_BYTES]; /* the operator */
    uint64_t wall_ms;
};
TB_MUST_USE enum tb_status tb_store_pause(struct tb_store *store, const struct tb_store_pause *pause);

/* A statement that a home signed (base/net/signed.h), as it came or was made; one row for each kind
 * and id. Without an audit line. Of each kind and model the newest are kept. */
#define TB_STORE_SIGNED_MAX 1024u
struct tb_store_signed {
    struct tb_statement what; /* what it says, for the keys of the row */
    uint8_t *bytes;           /* borrowed; the owner of a queued row frees them */
    uint32_t count;
};
TB_MUST_USE enum tb_status tb_store_signed(struct tb_store *store, const struct tb_store_signed *said);

/* All that the store knows of one model, for a gateway that runs and has no row of it in memory:
 * the newest of its runs and versions, oldest first. */
#define TB_STORE_MODEL_RUNS     32u
#define TB_STORE_MODEL_VERSIONS 24u
struct tb_store_model {
    struct tb_name name;
    bool read; /* the rest is filled */
    /* The owner's: its queue let go of the question, or has the answer. */
    bool dropped, answered;
    bool doubted;
    uint32_t run_count, version_count;
    struct tb_catalog_run runs[TB_STORE_MODEL_RUNS];
    struct tb_store_version versions[TB_STORE_MODEL_VERSIONS];
};
/* A row that does not make sense is TB_SITE_STORE, as at a start. */
TB_MUST_USE enum tb_status tb_store_model(struct tb_store *store, struct tb_store_model *model);

/* One durable change with its audit line, for a queue of them. */
enum tb_store_row_kind {
    TB_STORE_RUN = 1,
    TB_STORE_VERSION,
    TB_STORE_POINTER,
    TB_STORE_INCARNATION,
    TB_STORE_SPENT,
    TB_STORE_PATH,
    TB_STORE_DOUBT,
    TB_STORE_PAUSE,
    TB_STORE_SIGNED,
    TB_STORE_RECORD,
    TB_STORE_RECORDS_ASKED,
    TB_STORE_MODEL_ASKED,
    TB_STORE_BACKUP
};
struct tb_store_row {
    enum tb_store_row_kind kind;
    union {
        struct tb_catalog_run run;
        struct tb_store_version version;
        struct tb_store_pointer pointer;
        struct tb_store_spent spent;
        struct tb_store_path path;
        struct tb_store_doubt doubt;
        struct tb_store_pause pause;
        struct tb_store_signed said;
        struct tb_audit_record record;
        struct tb_audit_query *asked;   /* filled; the owner's */
        struct tb_store_model *model;   /* likewise */
        struct tb_store_backup *backup; /* likewise: one step, behind the transaction */
        uint64_t incarnation;           /* at least; what it is once written. Without an audit line */
    };
    char what[64], who[TB_CATALOG_TEXT_MAX], why[64];
    uint64_t wall_ms;
};
/* In their order, in one transaction: all of them or none. One sync of the disk for all. */
TB_MUST_USE enum tb_status tb_store_rows(struct tb_store *store, struct tb_store_row *rows, uint32_t count);

#endif
