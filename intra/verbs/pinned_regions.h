/* pinned_regions.h - the regions of this process: the users of each, and which are kept.
 * Inside intra/verbs only.
 *
 * Memory that its owner says stays is registered once for each domain and kind, however many hops
 * and exports come and go: between them its regions are kept, until it goes. The regions of all
 * other memory go with their last user.
 *
 * An export's domain is kept together with its regions, and given to a later export only if that
 * has the memory of all of them: a key opens nothing but what its reader was let into (P8). When it
 * is kept, the queue pairs of its readers are gone.
 *
 * P7: by regions that nobody uses a byte is pinned at most once for each NIC and kind, and only
 * while its memory stays. A registration that fails gives them all up, and is tried again.
 *
 * Threads: any. To register or free takes a second for some 10 GB, so the pool calls those
 * functions, or the owner. */
#ifndef TB_INTRA_VERBS_PINNED_H
#define TB_INTRA_VERBS_PINNED_H

#include <pthread.h>
#include <sys/queue.h>

#include "base/time.h"
#include "intra/fabric/fabric_exports.h"
#include "intra/verbs/region.h"

enum tb_pinned_state { TB_PINNED_MAKING, TB_PINNED_MADE, TB_PINNED_FREEING };

struct tb_pinned_region {
    struct tb_region region;
    /* of memory that stayed when it was made; else it is its one user's, and
     * what follows is not used */
    bool shared;
    LIST_ENTRY(tb_pinned_region) link;
    struct tb_region_options of;
    enum tb_pinned_state state;
    uint32_t users;
    bool stays; /* kept when nobody uses it */
};

/* The protection domain that an export's readers share on one NIC. */
struct tb_pinned_domain {
    LIST_ENTRY(tb_pinned_domain) link; /* while no export has it */
    struct ibv_pd *pd;
};

struct tb_pinned_memory;

struct tb_pinned_counts {
    uint64_t made;     /* registrations, since the beginning */
    tb_time_ns making; /* what they took together */
    uint32_t regions;  /* of memory that stays */
    uint32_t domains;  /* of exports, that no export has */
};

struct tb_pinned {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    LIST_HEAD(, tb_pinned_memory) memories;
    LIST_HEAD(, tb_pinned_region) regions;
    LIST_HEAD(, tb_pinned_domain) domains;
    uint64_t made;
    tb_time_ns making;
};

void tb_pinned_init(struct tb_pinned *p);
void tb_pinned_fini(struct tb_pinned *p); /* nobody uses a region or has a domain; before the devices close */

/* ---- the memory's owner ---- */

/* For want of memory it is not noted: then its regions go with their users. */
void tb_pinned_stays(struct tb_pinned *p, const void *bytes, uint64_t count);
/* Before it is unmapped: its regions are freed when this returns, but those still used, which go
 * with their last user. */
void tb_pinned_goes(struct tb_pinned *p, const void *bytes);

/* ---- who needs regions ---- */

/* Registers it, where it is not yet, or waits until another has. Statuses and errno of
 * tb_region_register; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_pinned_take(struct tb_pinned *p, const struct tb_region_options *options,
                                          struct tb_pinned_region **region_out);
/* The same if that needs no registering, else NULL. At once. */
struct tb_pinned_region *tb_pinned_find(struct tb_pinned *p, const struct tb_region_options *options);
/* No queue pair touches it any more for this user. NULL is fine. */
void tb_pinned_release(struct tb_pinned *p, struct tb_pinned_region *region);

/* A domain for an export of these buffers on that device, with regions that were kept if that can
 * be. NULL: no memory, or the device refused. At once. */
struct tb_pinned_domain *tb_pinned_domain_take(struct tb_pinned *p, struct ibv_context *device,
                                               const struct tb_export_buffer *buffers, uint32_t count);
/* No queue pair is in it, and its regions are released. */
void tb_pinned_domain_leave(struct tb_pinned *p, struct tb_pinned_domain *domain);

/* The device is dead: nothing of it is kept from now on. At once. */
void tb_pinned_forsake(struct tb_pinned *p, const struct ibv_context *device);

void tb_pinned_counts(struct tb_pinned *p, struct tb_pinned_counts *counts_out);

#endif
