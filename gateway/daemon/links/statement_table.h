/* statement_table.h - statements of homes that this gateway knows. Their signatures were checked. A
 * leaf. */
#ifndef TB_DAEMON_STATEMENT_TABLE_H
#define TB_DAEMON_STATEMENT_TABLE_H

#include "base/ident.h"
#include "base/proof/statement.h"
#include "tombolo/status.h"

#define TB_STATEMENT_BUCKETS 4096u /* by id; and as many by model */
#define TB_SAID_MAX          32768u

struct tb_said {
    struct tb_said *next;
    struct tb_said *next_of_model; /* in its bucket */
    struct tb_statement what;
    struct tb_identity by; /* a gateway of the model's home */
    uint32_t count;
    uint32_t idle;   /* ticks since it was needed */
    bool rests;      /* nobody uses its model: it gives way first */
    uint8_t bytes[]; /* as they are passed on (base/net/signed.h) */
};

struct tb_statement_table {
    struct tb_said *buckets[TB_STATEMENT_BUCKETS];
    struct tb_said *models[TB_STATEMENT_BUCKETS];
    uint32_t count, count_most;
    uint32_t most;    /* of one kind and model, ever */
    uint64_t refused; /* older ones that gave way, of a kind and a model */
    uint64_t crowded; /* that gave way as there were TB_SAID_MAX, of all models */
};

const struct tb_said *tb_said_find(const struct tb_statement_table *t, enum tb_statement_kind kind,
                                   const struct tb_id *id);
/* The newest of that kind and model, by run and number; NULL: none. */
const struct tb_said *tb_said_newest(const struct tb_statement_table *t, enum tb_statement_kind kind,
                                     const struct tb_name *model);
/* In place of one of the same kind and id. Of a kind and a model the newest TB_STORE_SIGNED_MAX
 * stay; of all TB_SAID_MAX: the one that was signed first gives way, of models that nobody uses if
 * there is one, and a withdrawal last. NULL: no memory, or it is older than all of so many. */
const struct tb_said *tb_said_put(struct tb_statement_table *t, const struct tb_statement *what,
                                  const struct tb_identity *by, const uint8_t *bytes, uint32_t count);
/* Ends those of which `stays` says no. */
void tb_said_filter(struct tb_statement_table *t, bool (*stays)(void *user, const struct tb_said *said),
                    void *user);
/* The same, of those that are over at TB_SAID_IDLE ticks in a row. */
#define TB_SAID_IDLE 60u
enum tb_said_need { TB_SAID_OVER, TB_SAID_RESTS, TB_SAID_NEEDED };
void tb_said_age(struct tb_statement_table *t,
                 enum tb_said_need (*need)(void *user, const struct tb_said *said), void *user);
/* Asserts that each is in one bucket by its id and in one by its model, and is counted. */
void tb_said_check(const struct tb_statement_table *t);
void tb_said_free(struct tb_statement_table *t);

#endif
