/* reference_rows.h - references: which rank, worker or site holds (part of) which version. */
#ifndef TB_GATEWAY_REFERENCE_ROWS_H
#define TB_GATEWAY_REFERENCE_ROWS_H

#include "gateway/catalog/lives/reference_life.h"
#include "gateway/catalog/rows/tables.h"
#include "gateway/catalog/rows/version_rows.h"
#include "gateway/catalog/views.h"
#include "intra/planner.h"

#define GATEWAY     (UINT32_MAX - 1) /* as a source in a plan */
#define AVOIDED_MAX 4

struct avoided {
    uint32_t source; /* reference, or GATEWAY */
    uint32_t held_chunks;
};

struct reference {
    struct row row;
    int kind; /* TB_REFERENCE_* */
    uint32_t version;
    /* The fields that a question to the planner reads stand together: with 10,000 workers each
     * reference is a line of cache. */
    uint32_t next, previous; /* in one of the version's two lists */
    uint32_t owner;          /* session or site */
    uint32_t held_chunks;    /* WORKER, SITE; as the next */
    uint32_t source;         /* WORKER: reference, GATEWAY, NONE */
    uint32_t question;       /* WORKER: scratch of plans.c */
    uint32_t host, rack;     /* WORKER: its session's */
    bool spot;               /* WORKER: its session's */
    bool reads_only; /* WORKER: reads, serves nobody, and is no copy: it keeps bytes in a form of its own */
    bool whole;
    bool silent;              /* its session's */
    uint64_t nic_bytes_per_s; /* WORKER: its session's */

    uint32_t owner_next; /* in the owner's list */
    struct tb_id uid;    /* of the version: outlives its row */
    struct tb_id session_id;
    struct tb_name name; /* worker or site: outlives its row */
    enum tb_status tell;

    /* PUBLISHER */
    uint32_t shard; /* NONE: opened, not sealed */
    uint64_t export_id;
    bool in_place;
    enum tb_sight sight;
    uint32_t unpublish_with;  /* the one that does; while it is hidden */
    uint32_t unpublish_shard; /* as the request named it; of one that answers */
    tb_time_ns drain_until;
    enum tb_status unpublished;
    bool landing; /* LAND_FROM is told or marked */

    /* WORKER, SITE */
    uint32_t total_chunks;
    bool activated;
    bool whole_itself;   /* SITE: it said itself that it is whole; `whole` may be a relay's word */
    bool has;            /* SITE: has it or is getting it, as it says */
    uint32_t heard_in;   /* SITE: of its sessions, in which it last said so itself; 0: none, others did */
    uint32_t told_in;    /* SITE: likewise, in which it last said that it holds some of it */
    tb_time_ns since;    /* when the reader began */
    tb_time_ns moved_at; /* SITE: when what it holds last grew */

    /* WORKER */
    enum tb_reading reading;
    bool source_loads;    /* it was counted in the source's readers */
    bool was_asked;       /* home read what it had of a version of which chunks rotted */
    uint32_t source_from; /* what it held when it was sent there */
    uint32_t followers;   /* and PUBLISHER: workers whose source it is */
    uint64_t plan;        /* told, or about to be; 0: none */
    struct avoided avoided[AVOIDED_MAX];
    uint32_t avoided_count;
    tb_time_ns retry_at;
    uint64_t bytes_per_s;
    struct tb_planner_pace pace;
    enum tb_standing standing;
    bool stood; /* it got nothing as the first of a chain, and was put aside for that once */
    uint8_t transport;
};

static inline struct reference *reference_at(const struct tb_catalog *c, uint32_t i)
{
    return (struct reference *)tb_table_row(&c->references, i);
}

/* Read from only when there is nobody else. */
static inline bool tb_reference_slow(const struct reference *ref)
{
    return ref->standing == TB_STANDING_SLOW;
}

/* Being unpublished. */
static inline bool tb_reference_hidden(const struct reference *ref)
{
    return ref->sight != TB_SIGHT_IN_SIGHT;
}
/* It answers an unpublish, for itself alone or for those hidden with it too. */
static inline bool tb_reference_answers(const struct reference *ref)
{
    return ref->sight == TB_SIGHT_ANSWERS || ref->sight == TB_SIGHT_GOES;
}

/* The references of a version, in two lists: workers may be thousands, and most questions are about
 * the others. An ended one keeps its `next`, so a body may end the one it is at. */
#define EACH_HOLDER(c, v, r) for (uint32_t r = (v)->holders; r != NONE; r = reference_at(c, r)->next)
#define EACH_WORKER(c, v, r) for (uint32_t r = (v)->workers; r != NONE; r = reference_at(c, r)->next)
/* Both: the workers, then the ranks and sites. */
static inline uint32_t tb_reference_first(const struct version *v)
{
    return v->workers != NONE ? v->workers : v->holders;
}
static inline uint32_t tb_reference_after(const struct tb_catalog *c, const struct version *v, uint32_t r)
{
    const struct reference *ref = reference_at(c, r);
    return ref->next == NONE && ref->kind == TB_REFERENCE_WORKER ? v->holders : ref->next;
}
#define EACH_REFERENCE(c, v, r)                                                                              \
    for (uint32_t r = tb_reference_first(v); r != NONE; r = tb_reference_after(c, v, r))

uint32_t tb_reference_new(struct tb_catalog *c, int kind, uint32_t version, uint32_t owner);
/* P7: a site that claims to hold whatever it heard of leaves room for the others. */
bool tb_site_has_its_share(const struct tb_catalog *c, uint32_t site);
/* It counts no more; its row goes when its todos are told. Readers behind it are planned anew. */
void tb_reference_end(struct tb_catalog *c, uint32_t reference);
/* The same for one whose bytes went with it: an open version that counted on a rank's is lost, and
 * the rank is named. */
void tb_reference_lost(struct tb_catalog *c, uint32_t reference);
uint32_t tb_reference_find(const struct tb_catalog *c, int kind, uint32_t version, uint32_t owner);
/* TELL to each session that holds a reference of the version, once. */
void tb_references_tell(struct tb_catalog *c, uint32_t version, enum tb_status status, bool workers_too);
/* One step of its life (reference_life.h). A pair that there is not is our mistake. */
void tb_reference_sight_moves(struct reference *ref, enum tb_sight_event event);
void tb_reference_standing_moves(struct reference *ref, enum tb_standing_event event);
/* LAND_FROM is told or marked. */
void tb_reference_set_landing(struct tb_catalog *c, struct reference *ref, bool landing);

#endif
