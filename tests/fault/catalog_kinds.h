/* catalog_kinds.h - kinds of states of a catalog, by what it decides. Two states of one kind answer
 * each event alike, by and large: of what has a name its kinds, of the rest nothing. */
#ifndef TB_TESTS_FAULT_CATALOG_KINDS_H
#define TB_TESTS_FAULT_CATALOG_KINDS_H

#include "catalog_variants.h"

#define KIND_GROUPS_MAX 4

struct kinds {
    uint64_t versions[GIVEN_UIDS]; /* or 0: it is not there */
    uint64_t sessions[GIVEN_SESSIONS], groups[KIND_GROUPS_MAX], sites[GIVEN_SITES], catalog;
};

struct kinds kinds_of(const struct tb_catalog *c);

/* Of all states that were noted. */
struct kinds_reached {
    uint64_t versions, others;
};

void kinds_note(struct kinds_reached *reached, const struct kinds *k);
/* The name of a kind that none of them was; NULL. */
const char *kinds_missing(const struct kinds_reached *reached);

#endif
