/* catalog_variants.h - every event that a catalog can be given, in variants: with right and
 * wrong arguments, of a few sessions, versions and sites. That none is missing,
 * tests/fence/events.py sees to. */
#ifndef TB_TESTS_FAULT_CATALOG_VARIANTS_H
#define TB_TESTS_FAULT_CATALOG_VARIANTS_H

#include "catalog/site.h"

#define GIVEN_SESSIONS 4
extern const char *const given_sessions[GIVEN_SESSIONS];
#define GIVEN_UIDS 4
extern const uint64_t given_uids[GIVEN_UIDS];
#define GIVEN_SITES 3
extern const char *const given_sites[GIVEN_SITES];

#define CHANGES 1u /* also when it is refused: the status tells of what it did */
#define FORGETS 2u /* what is held here may be less afterwards */

struct event {
    const char *name;
    enum tb_status (*run)(struct site *s, unsigned n); /* variant n */
    unsigned variants, flags;
};

extern const struct event given_events[];
extern const size_t given_event_count;

#endif
