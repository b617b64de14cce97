/* links_table_counts.h - how full the tables of the links are. No call changes anything. On the
 * main loop. */
#ifndef TB_WAN_LINKS_TABLE_COUNTS_H
#define TB_WAN_LINKS_TABLE_COUNTS_H

#include <stdint.h>

#include "base/ident.h"

struct tb_links;

/* The tables of the links. One that each peer has for itself counts the rows of the peer that
 * has most. */
#define TB_LINKS_TABLES(X)                                                                                   \
    X(TB_LINKS_TABLE_OFFERS, "offers")          /* versions that are offered here, of all models */          \
    X(TB_LINKS_TABLE_ANNOUNCED, "announced")    /* versions that a peer announced */                         \
    X(TB_LINKS_TABLE_GRANTED, "granted")        /* models that a peer asked for and may read */              \
    X(TB_LINKS_TABLE_LANDINGS, "landings")      /* versions that land from a peer, or did */                 \
    X(TB_LINKS_TABLE_ASKS, "asks")              /* versions whose manifests a peer is asked for */           \
    X(TB_LINKS_TABLE_CONNS, "link_connections") /* that came from outside, of all peers and strangers */

enum tb_links_table {
#define TB_LINKS_TABLE_ENUM(table, name) table,
    TB_LINKS_TABLES(TB_LINKS_TABLE_ENUM)
#undef TB_LINKS_TABLE_ENUM
        TB_LINKS_TABLES_COUNT
};

struct tb_links_usage {
    const char *name;           /* static */
    uint32_t used, most, bound; /* rows now; at once so far; at most */
    uint64_t refused;           /* for want of a row */
    uint64_t spent;             /* of them: there was a row, and its peer or address had its share */
};

void tb_links_usage(const struct tb_links *ls, enum tb_links_table table, struct tb_links_usage *usage_out);
/* How many rows its largest user has, and the name: of offers a model, of the others the peer
 * that was refused last. 0: none. */
uint32_t tb_links_table_most(const struct tb_links *ls, enum tb_links_table table, struct tb_name *user_out);

#endif
