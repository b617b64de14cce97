/* fake_gateway.h - the other end of a worker's session, small enough to read: it remembers what it
 * is told, answers by the contract of intra/session_msg.h, and can be told to be away, mute or
 * hostile. Bytes are moved by a real fabric.
 *
 * Threads: it lives on a loop of its own; the calls here are for the test's thread. */
#ifndef TB_TESTS_FAKE_GATEWAY_H
#define TB_TESTS_FAKE_GATEWAY_H

#include <pthread.h>
#include <uv.h>

#include "base/net/wire.h"
#include "intra/fabric/fabric.h"
#include "intra/fabric/shared_memory.h"
#include "intra/session_msg.h"
#include "tombolo/tombolo.h"
#include "unit/check.h"

#define FAKE_SESSIONS_MAX 8
#define FAKE_VERSIONS_MAX 16
#define FAKE_SHARDS_MAX   4
#define FAKE_RUNS_MAX     8
#define FAKE_WAITS_MAX    32

struct fake;

struct fake_session {
    struct fake *f;
    struct tb_wire *wire; /* NULL: free or gone */
    bool welcomed;
    struct tb_id id;
    struct tb_msg_hello hello;
    struct tb_msg_subscribe subscribed;
    struct tb_id staging; /* of the last STAGE that was not refused */
};

struct fake_shard {
    bool sealed;
    uint32_t session; /* index */
    uint64_t export_id;
    uint8_t *head, *source;
    uint32_t head_bytes, source_bytes;
    void *manifest_memory;
    struct tb_manifest manifest;
    uint8_t *bytes; /* landed */
    uint64_t *held, *claimed;
    struct tb_place place;
    bool landed;
};

struct fake_version {
    bool used;
    struct tb_version_key key;
    struct fake_shard shards[FAKE_SHARDS_MAX];
    bool ready, exported;
    uint64_t export_id;
    void *shelf_memory; /* of a step: encoded chunks on the version before; NULL: none */
    /* what fake_chain_behind was told last, by a worker's EXPORT or a test */
    uint32_t chain_session;
    uint64_t chain_export;
    uint8_t *chain_source;
    uint32_t chain_source_bytes;
    uint32_t released; /* RELEASE messages */
    bool whole_said[FAKE_SESSIONS_MAX];
    bool go;
};

struct fake {
    char path[128];
    pthread_t thread;
    uv_loop_t loop;
    uv_async_t async;
    struct tb_listener *listener;
    struct tb_fabric *fabric;
    struct tb_fabric_endpoint door;
    pthread_mutex_t lock; /* over everything below */
    pthread_cond_t changed;
    void (*job)(struct fake *f, void *user);
    void *job_user;
    bool stop;
    struct fake_session sessions[FAKE_SESSIONS_MAX];
    struct fake_version versions[FAKE_VERSIONS_MAX];
    struct {
        char key[256];
        struct tb_id id;
    } runs[FAKE_RUNS_MAX];
    uint32_t run_count;
    struct {
        bool used;
        uint32_t session;
        uint64_t request;
        struct tb_msg_wait m;
    } waits[FAKE_WAITS_MAX];
    uint64_t next_plan, next_export;
    uint32_t seen[TB_MSG_TYPE_END]; /* frames of each type */
    uint32_t after_release;         /* STAGEs since the last RELEASE */
    /* what it is told to do */
    bool trusted;
    uint32_t drain_ms;          /* of its site; 300 unless a test says otherwise before its session opens */
    bool remember;              /* sessions survive a broken wire */
    bool mute[TB_MSG_TYPE_END]; /* takes these and answers nothing */
    enum tb_status refuse[TB_MSG_TYPE_END];
    uint32_t classes; /* VERSION_OPEN's answer: of deltas to the version before; 0: none */
    bool shelves;     /* steps have their encoded chunks beside them */
    bool older;       /* WELCOME is that of the release before: it knows of no UPDATED */
    bool one_staging; /* ACTIVATE of another than the one that was staged last is refused, as by a catalog */
    bool no_plan;     /* STAGE brings no PLAN */
    bool plans_again; /* HOP_LOST does, as with a catalog: a busy machine may hold a source up too long */
    bool chain;       /* PLANs name the worker that exported last, when there is one */
    bool chain_stays; /* at the one that fake_chain_behind named, whatever is exported behind it */
    bool foreign;     /* PLANs say of the gateway, too, that it is not believed about its bytes */
    bool forges;      /* with `shelves`: the first delta of a step is to other bytes, of the right digest */
    bool no_proofs;   /* none come with the manifests */
    bool garble_root; /* MANIFESTS with another root */
    struct tb_span said; /* MANIFESTS has it; the test's own */
    bool bad_source;     /* PLAN with tables that do not fit */
    bool keep_hop;       /* the next fake_read stays a reader: */
    struct tb_hop *kept_hop;
    struct {
        uint32_t reader; /* a session */
        struct tb_msg_plan plan;
        uint8_t *source;           /* the plan's */
    } granting;                    /* the PLAN that goes out when the source's owner has answered GRANT */
    struct tb_msg_granted granted; /* the newest answer to GRANT */
    struct tb_msg_hop_lost hop_lost;
    struct tb_msg_progress progress;
    struct tb_msg_doubted doubted;
    struct tb_msg_proven proven, alarm; /* the newest that is done; that is not */
    struct tb_msg_activated activated;
    struct tb_msg_updated updated;
    struct tb_msg_export exported; /* its span is not kept */
    struct tb_msg_unpublish unpublished;
    uint64_t unpublish_request;     /* its number */
    uint64_t stage_request;         /* that of the newest STAGE */
    enum tb_status activate_answer; /* TB_OK: by `go` */
};

#define FAKE_SET(f, what, to)                                                                                \
    do {                                                                                                     \
        pthread_mutex_lock(&(f)->lock);                                                                      \
        (f)->what = (to);                                                                                    \
        pthread_mutex_unlock(&(f)->lock);                                                                    \
    } while (0)

void fake_open(struct fake *f);
void fake_close(struct fake *f);
void fake_away(struct fake *f, bool away);               /* closes and reopens its door; all wires break */
void fake_go_away(struct fake *f, struct tb_session *s); /* it is away, and the session has seen it */
/* And is back: all that the session had to say is here. Without `remember` it knows nothing of
 * it. */
void fake_come_back(struct fake *f, struct tb_session *s);
/* Bounded waits for what the session says. */
void fake_wait_seen(struct fake *f, enum tb_msg_type type, uint32_t count);
uint32_t fake_seen(struct fake *f, enum tb_msg_type type);
struct fake_version *fake_version(struct fake *f, uint64_t number);
struct tb_uid fake_uid(const struct fake_version *v); /* as the library says it */
/* Lands every sealed shard through the fabric, as a home gateway does, and says kept. */
void fake_land(struct fake *f, uint64_t number);
/* The same; with `shelves` its chunks also go as deltas to that version. */
void fake_land_on(struct fake *f, uint64_t number, const struct fake_version *base);
/* The same for one shard, without a word to the publisher. TB_OK, or why the hop was lost. */
enum tb_status fake_read(struct fake *f, struct fake_version *v, uint32_t shard);
void fake_let_go(struct fake *f);                                        /* of what keep_hop kept */
void fake_state(struct fake *f, uint64_t number, enum tb_status status); /* VERSION_STATE to all */
void fake_go(struct fake *f, uint64_t number);                           /* GO to all subscriptions */
/* The active version of a worker's newest SUBSCRIBE; zero: none. */
struct tb_id fake_active(struct fake *f, const char *worker);
/* A frame with these bytes as payload, to the session of that index. */
void fake_raw(struct fake *f, uint32_t session, uint16_t type, uint64_t request, const void *bytes,
              uint32_t count);
/* A reader says that this chunk of what the session serves is damaged. */
void fake_doubt(struct fake *f, uint32_t session, const struct tb_msg_doubt *m);
/* Asks the session what it computes from there. Returns the answer. */
struct tb_msg_proven fake_prove(struct fake *f, uint32_t session, uint32_t subscription);
/* The answer to that question. */
struct tb_msg_proven fake_wait_proven(struct fake *f, uint64_t ask);
/* Answers the STAGE of a session again with a PLAN, from the gateway. */
void fake_plan(struct fake *f, uint32_t session, uint64_t number);

void fake_know_proofs(struct fake_version *v); /* of its bytes as they are */
/* All proofs of that version, to the session of that index. */
void fake_proofs(struct fake *f, uint32_t session, uint64_t number);

/* Under `chain` it is read from this export of that session's. Under the lock. */
void fake_chain_behind(struct fake_version *v, uint32_t session, uint64_t export_id,
                       const struct tb_span *source);

/* A version made here and landed already, of `count` U8 tensors "t0".. of tensor_bytes with
 * bytes from the seed. */
struct fake_version *fake_make(struct fake *f, uint64_t number, uint32_t shard_count, uint32_t tensors,
                               uint64_t tensor_bytes);

/* The same with the base's bytes, one of a hundred changed. */
struct fake_version *fake_step(struct fake *f, uint64_t number, const struct fake_version *base,
                               uint32_t tensors);

struct tb_session *fake_session_open(struct fake *f, const char *name, const char *host);

#endif
