/* statement_table.h - statements of homes that this gateway knows. Their signatures were checked. A
 * leaf. */
#ifndef TB_DAEMON_STATEMENT_TABLE_H
#define TB_DAEMON_STATEMENT_TABLE_H

#include "base/ident.h"
#include "base/proof/statement.h"
#include "tombolo/status.h"

#define TB_STATEMENT_BUCKETS 256u

struct tb_said {
    struct tb_said *next;
    struct tb_statement what;
    struct tb_identity by; /* a gateway of the model's home */
    uint32_t count;
    uint32_t idle;   /* ticks since it was needed */
    uint8_t bytes[]; /* as they are passed on (base/net/signed.h) */
};

struct tb_statement_table {
    struct tb_said *buckets[TB_STATEMENT_BUCKETS];
    uint32_t count;
    uint32_t most;    /* of one kind and model, ever */
    uint64_t refused; /* older ones that gave way, of a kind and a model */
};

const struct tb_said *tb_said_find(const struct tb_statement_table *t, enum tb_statement_kind kind,
                                   const struct tb_id *id);
/* The newest of that kind and model, by run and number; NULL: none. */
const struct tb_said *tb_said_newest(const struct tb_statement_table *t, enum tb_statement_kind kind,
                                     const struct tb_name *model);
/* In place of one of the same kind and id. Of a kind and a model the newest TB_STORE_SIGNED_MAX
 * stay. NULL: no memory, or it is older than all of so many. */
const struct tb_said *tb_said_put(struct tb_statement_table *t, const struct tb_statement *what,
                                  const struct tb_identity *by, const uint8_t *bytes, uint32_t count);
/* Ends those of which `stays` says no. */
void tb_said_filter(struct tb_statement_table *t, bool (*stays)(void *user, const struct tb_said *said),
                    void *user);
/* The same, of those that were not needed at TB_SAID_IDLE ticks in a row. */
#define TB_SAID_IDLE 60u
void tb_said_age(struct tb_statement_table *t, bool (*needed)(void *user, const struct tb_said *said),
                 void *user);
void tb_said_free(struct tb_statement_table *t);

#endif
