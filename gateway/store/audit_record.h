/* audit_record.h - one row of the audit record: who did what to what, from where, with what result.
 * A leaf.
 *
 * Rows have shares of the record, so that what a stranger can cause never pushes out what an
 * operator did. */
#ifndef TB_STORE_AUDIT_RECORD_H
#define TB_STORE_AUDIT_RECORD_H

#include <stdint.h>

#include "base/ident.h"

enum tb_audit_share {
    TB_AUDIT_ACTS,     /* of operators, and of the gateway's own configuration and certificates */
    TB_AUDIT_VERSIONS, /* runs, versions, activations, and what leaves the site */
    TB_AUDIT_DENIALS,  /* anybody can cause them */
    TB_AUDIT_SHARES
};

#define TB_AUDIT_ACTION_BYTES 32u
#define TB_AUDIT_OBJECT_BYTES 224u
#define TB_AUDIT_ORIGIN_BYTES 80u
#define TB_AUDIT_RESULT_BYTES 128u

struct tb_audit_record {
    uint64_t id; /* by the store; a later row has a higher one */
    uint64_t wall_ms;
    uint64_t minute; /* since 1970: rows that agree in all but time and count are one; 0: never */
    enum tb_audit_share share;
    uint64_t count; /* times */
    char action[TB_AUDIT_ACTION_BYTES];
    char identity[TB_URI_BYTES_MAX]; /* "ann (uid 1000)", "unix:1000", "tombolo://west/gw" */
    char object[TB_AUDIT_OBJECT_BYTES];
    char origin[TB_AUDIT_ORIGIN_BYTES]; /* "control", an address, a worker */
    char result[TB_AUDIT_RESULT_BYTES]; /* "ok", a status, or why not */
};

/* A question, answered in the writer's thread. Newest first. */
#define TB_AUDIT_PAGE 256u
enum tb_audit_question {
    TB_AUDIT_LISTS,      /* rows */
    TB_AUDIT_COUNTS_OLD, /* how many are older than the record may be */
    TB_AUDIT_DROPS_OLD   /* likewise, and they go */
};
struct tb_audit_query {
    enum tb_audit_question question;
    uint64_t old_rows;                                              /* the answer of the last two */
    uint64_t since_wall_ms, before_id;                              /* 0: all */
    uint32_t most;                                                  /* up to TB_AUDIT_PAGE */
    char action[TB_AUDIT_ACTION_BYTES], identity[TB_URI_BYTES_MAX]; /* empty: any; else part of it */
    uint32_t count;
    struct tb_audit_record rows[TB_AUDIT_PAGE];
};

#endif
