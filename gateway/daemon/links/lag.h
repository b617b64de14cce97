/* lag.h - why a site does not have, or does not use, a model's head, and until when. Pure:
 * facts in, one reason out.
 *
 * The list of reasons is closed. Its order is the wire's (STATE): a new reason goes to the end. The
 * order in which reasons are looked for is that of tb_lag_reason_of: the first that holds is the
 * one an operator has to deal with, because those behind it would hold too. */
#ifndef TB_DAEMON_LAG_H
#define TB_DAEMON_LAG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/site_state.h"
#include "base/time.h"

#define TB_LAG_REASONS(X)                                                                                    \
    X(TB_LAG_UP_TO_DATE, "up-to-date", "it has the head")                                                    \
    X(TB_LAG_UNKNOWN, "unknown",                                                                             \
      "nothing was heard of it since the start, or for half a minute over a link that is up")                \
    X(TB_LAG_PUBLISHING, "source-publishing", "the ranks have not handed all of it to the home gateway")     \
    X(TB_LAG_QUEUED, "queued-behind", "it has not begun: another version or model crosses first")            \
    X(TB_LAG_MANIFESTS, "manifests", "its manifests are on their way")                                       \
    X(TB_LAG_CROSSING, "crossing", "it is on its way")                                                       \
    X(TB_LAG_STALLED, "stalled", "it has begun, and nothing of it moved for 2 s")                            \
    X(TB_LAG_BASE, "waiting-base", "an older version crosses first; this one crosses as a delta on it")      \
    X(TB_LAG_WINDOW, "window-limited", "it crosses, and a socket's buffer is too small for the path")        \
    X(TB_LAG_LOSS, "loss-limited", "it crosses, and the path loses packets")                                 \
    X(TB_LAG_RATE, "rate-limited", "it crosses at the rate that an operator allows")                         \
    X(TB_LAG_BUDGET, "budget-spent", "the day's bytes to it are used up (peers.SITE.day_bytes)")             \
    X(TB_LAG_SENDER_CPU, "sender-cpu", "it crosses, and the sending gateway's cores are too slow")           \
    X(TB_LAG_RECEIVER_CPU, "receiver-cpu", "it crosses, and the site's gateway does not read fast enough")   \
    X(TB_LAG_RECEIVER_MEMORY, "receiver-memory", "the site's gateway has no memory to receive it")           \
    X(TB_LAG_NO_ROOM, "no-room", "the site's arena has no room for it")                                      \
    X(TB_LAG_NOT_ACTIVATING, "worker-not-activating", "the site has the head; its workers do not use it")    \
    X(TB_LAG_NO_SUBSCRIBER, "no-subscriber", "nobody at the site subscribes to the model")                   \
    X(TB_LAG_LINK_DOWN, "link-down", "no link that could bring it is up")                                    \
    X(TB_LAG_DNS, "dns-failed", "the peer's name resolves to no address")                                    \
    X(TB_LAG_REFUSED, "refused-by-peer", "the peer refuses the connection")                                  \
    X(TB_LAG_TLS, "tls-failed", "a certificate or a CA is not accepted")                                     \
    X(TB_LAG_IDENTITY, "identity-mismatch", "a valid certificate of another site or gateway answers")        \
    X(TB_LAG_TWIN, "twin-identity", "two gateways with one identity take the link from each other")          \
    X(TB_LAG_DENIED, "right-denied", "the site may not read the model (models.NAME.read at the sender)")     \
    X(TB_LAG_VERIFY, "verify-failed", "chunks of it came with a wrong digest")                               \
    X(TB_LAG_STORE, "store-down", "the site's durable store cannot be written")                              \
    X(TB_LAG_CLOCK, "clock-skew", "the certificates' dates do not fit the clocks")                           \
    X(TB_LAG_TABLE, "table-full", "the site's catalog has no row for it")                                    \
    X(TB_LAG_MTU, "mtu", "small packets pass on the link, large ones never do")                              \
    X(TB_LAG_UNSIGNED, "unsigned", "a newer version was announced, and its home's signature did not come")   \
    X(TB_LAG_PINNED, "pinned",                                                                               \
      "an operator there keeps its readers from the head (tombolo pin, rollback, withdraw)")                 \
    X(TB_LAG_SHARE, "share-spent", "as many versions as one peer may have under way cross from it already")  \
    X(TB_LAG_REVOKED, "revoked", "the certificate of one end is on the list of the other (tls.revoked)")     \
    X(TB_LAG_PAUSED, "paused",                                                                               \
      "an operator paused the model, or the link that would bring it (tombolo pause)")

enum tb_lag_reason {
#define TB_LAG_ENUM(name, text, why) name,
    TB_LAG_REASONS(TB_LAG_ENUM)
#undef TB_LAG_ENUM
        TB_LAG_REASON_END
};
/* From a later release's number: that of "unknown". */
const char *tb_lag_name(uint16_t reason);
const char *tb_lag_why(uint16_t reason);

/* Of this site and one model's head. */
struct tb_lag_facts {
    bool store_down;
    bool subscribed;         /* this site is the model's home, or crosses it */
    enum tb_lag_reason link; /* TB_LAG_UP_TO_DATE: a link that could bring it is up, or it comes from ranks */
    bool heard;              /* of the model's head, from its home or through a relay */
    bool pinned;             /* by an operator here, to an older version; or the head is withdrawn here */
    bool paused;             /* the model, or each link that could bring it, by an operator of either end */
    bool behind;             /* the head is not whole here */
    bool awaits_signature;   /* a version above the head was announced without its home's signature */
    bool table_full;         /* the catalog refused it a row */
    bool used;               /* every reader group here has the head active */
    bool has_groups;         /* some worker subscribes here */
    bool is_home;
    bool whole_for_long; /* the head is whole here for longer than a lease */
    bool lacks_room;
    bool unsealed;         /* at home: ranks have to hand more of it over */
    bool bad_chunks;       /* since something of it was held last */
    bool no_memory;        /* the gateway could not take its manifests, or a buffer */
    bool spent;            /* the day's bytes to here, of each that could send it */
    bool share_spent;      /* its landing waits, as its peer has as many under way as it may have */
    bool asked;            /* for its manifests */
    bool begun;            /* chunks of it move */
    bool base_crosses;     /* an older version of the model crosses, and this one goes as a delta on it */
    bool still;            /* nothing of it moved for 2 s */
    bool window_small;     /* the kernel's ceilings here hold the link */
    bool mtu;              /* large packets do not pass on the link that it crosses on, which is up */
    enum tb_holdup holdup; /* by the sender's word */
};
enum tb_lag_reason tb_lag_reason_of(const struct tb_lag_facts *facts);
/* It says that nothing has to cross. */
bool tb_lag_is_current(uint16_t reason);
/* Said of a site that lacks the head alone. */
bool tb_lag_is_of_lack(uint16_t reason);
/* It says why a link is down. */
bool tb_lag_is_of_link(uint16_t reason);
/* Chunks move, so that an estimate can be made. */
bool tb_lag_moves(uint16_t reason);

/* Bytes of each of the last seconds. */
#define TB_LAG_SECONDS 5u
struct tb_lag_pace {
    uint64_t bytes; /* so far, when it was looked last */
    uint64_t per_s[TB_LAG_SECONDS];
    uint32_t count, at;
};
void tb_lag_look(struct tb_lag_pace *p, uint64_t bytes); /* once a second */
bool tb_lag_still(const struct tb_lag_pace *p);          /* nothing came in the last two */
/* Nor of what began so long ago: the last look was within a second, so the two before it were at
 * that alone once it has lasted three. */
bool tb_lag_stands(const struct tb_lag_pace *p, tb_time_ns begun_for);

/* Seconds for what is left, by the best and by the worst of the last seconds. False: no estimate
 * (less than two were seen, or in one of them nothing moved). */
struct tb_lag_eta {
    double low_s, high_s;
};
bool tb_lag_estimate(const struct tb_lag_pace *p, uint64_t left_bytes, struct tb_lag_eta *eta_out);

/* Bytes of a version that had come when a chunk of it landed last. Over a slow link chunks land
 * seconds apart, several at once, and the bytes between them say when the rest is here. */
struct tb_lag_landing {
    bool begun;
    uint64_t held_first; /* by the process before */
    uint64_t held, came; /* when it landed */
};
void tb_lag_landing_look(struct tb_lag_landing *l, uint64_t held, uint64_t came); /* once a second */

struct tb_lag_moves {
    struct tb_lag_pace held; /* bytes of chunks */
    struct tb_lag_pace came; /* bytes as they come: encoded, and of chunks or not */
    struct tb_lag_landing landing;
};
/* As tb_lag_estimate, by what is held. Where that did not grow in one of the seconds, by what came:
 * the rest takes as many bytes of that as what has landed did, or as it has, less those that came
 * since. Where more came since than the rest takes, nobody knows. */
bool tb_lag_estimate_rest(const struct tb_lag_moves *m, uint64_t left_bytes, struct tb_lag_eta *eta_out);

#endif
