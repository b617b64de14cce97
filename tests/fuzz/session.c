/* All that a worker and its gateway can send to each other, and a hop's requests and answers. The
 * first byte says which message the rest is. A message that decodes encodes to the same bytes, and
 * a status in it is one.
 *
 * Covers: intra/session_msg.h intra/hop/hop_wire.h */
#include "intra/hop/hop_wire.h"
#include "intra/session_msg.h"
#include "tests/fuzz/fuzz.h"

/* clang-format off */
#define MESSAGES(X)                                                                                  \
    X(session_hello) X(session_welcome) X(session_reply) X(session_run_open) X(session_run)          \
    X(session_version_open) X(session_version) X(session_seal) X(session_unpublish)                  \
    X(session_subscribe) X(session_unsubscribe) X(session_wait) X(session_wait_site)                 \
    X(session_cancel) X(session_stage) X(session_manifests) X(session_manifest) X(session_export)    \
    X(session_plan) X(session_grant) X(session_hop_lost) X(session_chunk_bad) X(session_doubt)       \
    X(session_doubted) X(session_progress) X(session_go) X(session_activate) X(session_activated)    \
    X(session_release) X(session_version_state) X(session_status) X(session_status_text)             \
    X(hop_request) X(hop_answer) X(session_granted) X(session_updated)
/* clang-format on */

MESSAGES(FUZZ_WALK)

typedef void (*walk)(const uint8_t *bytes, size_t count);
#define ENTRY(name) walk_##name,
static const walk walks[] = {MESSAGES(ENTRY)};
#define WALKS (sizeof walks / sizeof walks[0])

static void walk_status(const uint8_t *bytes, size_t count)
{
    struct tb_reader r;
    tb_reader_init(&r, bytes, count);
    const uint32_t field = tb_read_u32(&r);
    const enum tb_status status = tb_session_status_get(field);
    FUZZ_REQUIRE(status == TB_PEER_GARBLED || tb_session_status_put(status) == field);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    const size_t which = bytes[0] % (WALKS + 1);
    if (which < WALKS)
        walks[which](bytes + 1, count - 1);
    else
        walk_status(bytes + 1, count - 1);
    return 0;
}
