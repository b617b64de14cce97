/* status.c - the status list as text. */
#include "tombolo/status.h"

#include <stddef.h>

#include "base/assert.h"

/* C cannot lower the case of a macro's argument, so the names stand here once more;
 * tests/unit/base/status.c walks TB_STATUS_LIST and compares. */
static const struct {
    int number;
    const char *name;
} names[] = {
    {TB_OK, "ok"},
    {TB_AGAIN, "again"},
    {TB_DONE_BEFORE, "done_before"},
    {TB_TIMEOUT, "timeout"},
    {TB_CANCELLED, "cancelled"},
    {TB_END, "end"},
    {TB_CHUNK_DIGEST, "chunk_digest"},
    {TB_CHUNK_CODEC, "chunk_codec"},
    {TB_CHUNK_NO_BASE, "chunk_no_base"},
    {TB_CHUNK_ABSENT, "chunk_absent"},
    {TB_STREAM_CLOSED, "stream_closed"},
    {TB_STREAM_IDLE, "stream_idle"},
    {TB_STREAM_IO, "stream_io"},
    {TB_STREAM_TLS, "stream_tls"},
    {TB_PEER_UNREACHABLE, "peer_unreachable"},
    {TB_PEER_GARBLED, "peer_garbled"},
    {TB_PEER_IDENTITY, "peer_identity"},
    {TB_PEER_DENIED, "peer_denied"},
    {TB_PEER_PROTOCOL, "peer_protocol"},
    {TB_PEER_STALE, "peer_stale"},
    {TB_PEER_LEASE, "peer_lease"},
    {TB_PEER_TOKEN, "peer_token"},
    {TB_PEER_DUPLICATE, "peer_duplicate"},
    {TB_PEER_TWIN, "peer_twin"},
    {TB_GATEWAY_AWAY, "gateway_away"},
    {TB_PEER_REVOKED, "peer_revoked"},
    {TB_SITE_NOMEM, "site_nomem"},
    {TB_SITE_IO, "site_io"},
    {TB_SITE_LOCKED, "site_locked"},
    {TB_SITE_CONFIG, "site_config"},
    {TB_SITE_CORRUPT, "site_corrupt"},
    {TB_SITE_STORE, "site_store"},
    {TB_SITE_DRAINING, "site_draining"},
    {TB_SITE_DOUBT, "site_doubt"},
    {TB_BAD_ARGUMENT, "bad_argument"},
    {TB_BAD_STATE, "bad_state"},
    {TB_NOT_FOUND, "not_found"},
    {TB_FENCED, "fenced"},
    {TB_CONFLICT, "conflict"},
    {TB_TOO_LARGE, "too_large"},
    {TB_NOT_HOME, "not_home"},
    {TB_BAD_FILE, "bad_file"},
    {TB_FORKED, "forked"},
    {TB_PIN_LOST, "pin_lost"},
    {TB_LAYOUT_MISMATCH, "layout_mismatch"},
    {TB_SUPERSEDED, "superseded"},
    {TB_VERSION_LOST, "version_lost"},
    {TB_VERSION_BROKEN, "version_broken"},
    {TB_VERSION_WITHDRAWN, "version_withdrawn"},
    {TB_GROUP_BROKEN, "group_broken"},
};

const char *tb_status_name(int status)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].number == status) return names[i].name;
    }
    return "unknown";
}

const char *tb_status_text(int status)
{
    switch (status) {
#define STATUS_TEXT(name, number, text)                                                                      \
    case (number):                                                                                           \
        return text;
        TB_STATUS_LIST(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "a status that this version of Tombolo does not know";
    }
}

enum tb_scope tb_status_scope(int status)
{
    if (status >= 0) return TB_SCOPE_NONE;
    if (status > -100 || status <= -700)
        return TB_SCOPE_SITE; /* not from this list: stop and tell an operator */
    static const enum tb_scope by_hundreds[] = {TB_SCOPE_NONE,   TB_SCOPE_CHUNK, TB_SCOPE_STREAM,
                                                TB_SCOPE_PEER,   TB_SCOPE_SITE,  TB_SCOPE_REQUEST,
                                                TB_SCOPE_VERSION};
    TB_ASSERT((size_t)(-status / 100) < sizeof by_hundreds / sizeof by_hundreds[0]);
    return by_hundreds[-status / 100];
}
