/* status.h - what every call of Tombolo returns, and how far the damage of a failure reaches.
 *
 * The numbers are part of the ABI: they are never reused, and new ones are only added. The hundreds
 * digit is the scope, so a caller that knows none of the names still knows what to do:
 *   -1xx  one chunk      fetch it again
 *   -2xx  one stream     open it again
 *   -3xx  one peer       drop it; others are not concerned
 *   -4xx  this site      stop and tell an operator
 *   -5xx  the request    the caller asked for what cannot be; nothing was changed
 *   -6xx  the version    it will never be complete; free what belongs to it
 *
 * Threads: everything here is pure and may be called from any thread. */
#ifndef TOMBOLO_STATUS_H
#define TOMBOLO_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TB_API      __attribute__((visibility("default")))
#define TB_MUST_USE __attribute__((warn_unused_result))
#else
#define TB_API
#define TB_MUST_USE
#endif

/*    name                  number  text */
/* clang-format off */
#define TB_STATUS_LIST(X)                                                                        \
    X(TB_OK,                     0, "done")                                                      \
    X(TB_AGAIN,                  1, "not yet; call again after the next event")                  \
    X(TB_DONE_BEFORE,            2, "this was done before, with the same content")               \
    X(TB_TIMEOUT,                3, "the time given has passed")                                 \
    X(TB_CANCELLED,              4, "the caller cancelled it")                                   \
    X(TB_END,                    5, "there is no more")                                          \
    X(TB_CHUNK_DIGEST,        -101, "chunk bytes do not match the manifest")                     \
    X(TB_CHUNK_CODEC,         -102, "encoded chunk cannot be decoded")                           \
    X(TB_CHUNK_NO_BASE,       -103, "the base of the encoded chunk is not held here")            \
    X(TB_CHUNK_ABSENT,        -104, "the chunk is not held there")                               \
    X(TB_STREAM_CLOSED,       -201, "the other end closed the connection")                       \
    X(TB_STREAM_IDLE,         -202, "no progress within the idle limit")                         \
    X(TB_STREAM_IO,           -203, "the connection failed")                                     \
    X(TB_STREAM_TLS,          -204, "TLS failed on the connection")                              \
    X(TB_PEER_UNREACHABLE,    -301, "the peer cannot be reached")                                \
    X(TB_PEER_GARBLED,        -302, "the peer broke the protocol")                               \
    X(TB_PEER_IDENTITY,       -303, "the peer is not who it was expected to be")                 \
    X(TB_PEER_DENIED,         -304, "the identity has no right to do this")                      \
    X(TB_PEER_PROTOCOL,       -305, "no protocol version in common")                             \
    X(TB_PEER_STALE,          -306, "the peer speaks for an older incarnation")                  \
    X(TB_PEER_LEASE,          -307, "the lease of the peer has run out")                         \
    X(TB_PEER_TOKEN,          -308, "the token is unknown, used or revoked")                     \
    X(TB_PEER_DUPLICATE,      -309, "another session to the same peer stays instead")            \
    X(TB_GATEWAY_AWAY,        -310, "the gateway of this site does not answer")                  \
    X(TB_PEER_REVOKED,        -311, "the owner took its memory back")                            \
    X(TB_PEER_TWIN,           -312, "another gateway with the same identity has the session")    \
    X(TB_SITE_NOMEM,          -401, "the memory budget is spent")                                \
    X(TB_SITE_IO,             -402, "a file or system call of this machine failed")              \
    X(TB_SITE_LOCKED,         -403, "another process uses this already")                         \
    X(TB_SITE_CONFIG,         -404, "the configuration is not usable")                           \
    X(TB_SITE_CORRUPT,        -405, "what is stored here is damaged")                            \
    X(TB_SITE_STORE,          -406, "the durable store cannot be written")                       \
    X(TB_SITE_DRAINING,       -407, "this process is shutting down")                             \
    X(TB_SITE_DOUBT,          -408, "other sites may remember runs that the home does not know") \
    X(TB_BAD_ARGUMENT,        -501, "an argument is outside its range")                          \
    X(TB_BAD_STATE,           -502, "the call does not fit the state of the object")             \
    X(TB_NOT_FOUND,           -503, "there is no such thing")                                    \
    X(TB_FENCED,              -504, "a newer run of the model shut this one out")                \
    X(TB_CONFLICT,            -505, "the same name was used with other content")                 \
    X(TB_TOO_LARGE,           -506, "larger than the limit in force")                            \
    X(TB_NOT_HOME,            -507, "this site is not the home of the model")                    \
    X(TB_BAD_FILE,            -508, "the file is not what its format asks for")                  \
    X(TB_FORKED,              -509, "the process forked; its child cannot use the session")      \
    X(TB_PIN_LOST,            -510, "the version was pinned for longer than pin_max")            \
    X(TB_LAYOUT_MISMATCH,     -511, "the registered tensors are not those of the version")       \
    X(TB_SUPERSEDED,          -601, "the version gave way to a newer one")                       \
    X(TB_VERSION_LOST,        -602, "some chunk of the version has no holder left")              \
    X(TB_VERSION_BROKEN,      -603, "the publisher's bytes changed after they were sealed")      \
    X(TB_VERSION_WITHDRAWN,   -604, "an operator withdrew the version")                          \
    X(TB_GROUP_BROKEN,        -605, "a member of the reader group was lost before the switch")
/* clang-format on */

enum tb_status {
#define TB_STATUS_ENUM(name, number, text) name = (number),
    TB_STATUS_LIST(TB_STATUS_ENUM)
#undef TB_STATUS_ENUM
};

enum tb_scope {
    TB_SCOPE_NONE, /* no failure */
    TB_SCOPE_CHUNK,
    TB_SCOPE_STREAM,
    TB_SCOPE_PEER,
    TB_SCOPE_SITE,
    TB_SCOPE_REQUEST,
    TB_SCOPE_VERSION
};

/* "chunk_digest" for TB_CHUNK_DIGEST: for logs, metrics and JSON. Static storage; "unknown" for a
 * number that is not in the list. */
TB_API const char *tb_status_name(int status);

/* One sentence for people, without the name. Static storage. */
TB_API const char *tb_status_text(int status);

TB_API enum tb_scope tb_status_scope(int status);

#ifdef __cplusplus
}
#endif
#endif
