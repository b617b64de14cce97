/* All that a worker and its gateway can send to each other, and a hop's requests and answers. The
 * first byte says which message the rest is. A message that decodes encodes to the same bytes, and
 * a status in it is one. Seeds name a message by its place in the list: new ones go to the end.
 *
 * Covers: intra/session_msg.h intra/hop/hop_wire.h */
#include "intra/hop/hop_wire.h"
#include "intra/session_msg.h"
#include "tests/fuzz/fuzz.h"

/* clang-format off */
#define MESSAGES(X)                                                                                  \
    X(msg_hello) X(msg_welcome) X(msg_reply) X(msg_run_open) X(msg_run)          \
    X(msg_version_open) X(msg_version) X(msg_seal) X(msg_unpublish)                  \
    X(msg_subscribe) X(msg_unsubscribe) X(msg_wait) X(msg_wait_site)                 \
    X(msg_cancel) X(msg_stage) X(msg_manifests) X(msg_manifest) X(msg_export)    \
    X(msg_plan) X(msg_grant) X(msg_hop_lost) X(msg_chunk_bad)                        \
    X(msg_progress) X(msg_go) X(msg_activate) X(msg_activated)                   \
    X(msg_release) X(msg_version_state) X(msg_status) X(msg_status_text)             \
    X(hop_request) X(hop_answer) X(msg_granted) X(msg_updated) X(msg_doubt)      \
    X(msg_doubted) X(msg_proofs) X(msg_prove) X(msg_proven)
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
    const enum tb_status status = tb_msg_status_get(field);
    FUZZ_REQUIRE(status == TB_PEER_GARBLED || tb_msg_status_put(status) == field);
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
