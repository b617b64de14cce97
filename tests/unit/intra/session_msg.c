/* session_msg.c - the fields of the session's messages change only together with the protocol's
 * number (P9).
 *
 * Each message is a table of fields. The digest below is over all tables, in the order of their
 * types. A change of a field, or a new message, changes the digest.
 *
 * Covers: base/message.c */
#include "intra/session_msg.h"
#include "tests/unit/check.h"

#define FIELD(kind, name) #kind " " #name ";"
#define SHAPE(message)    #message ":" message##_FIELDS(FIELD) "\n"

static const char *const shapes[] = {
    SHAPE(TB_MSG_HELLO),       SHAPE(TB_MSG_WELCOME),       SHAPE(TB_MSG_REPLY),
    SHAPE(TB_MSG_RUN_OPEN),    SHAPE(TB_MSG_RUN),           SHAPE(TB_MSG_VERSION_OPEN),
    SHAPE(TB_MSG_VERSION),     SHAPE(TB_MSG_SEAL),          SHAPE(TB_MSG_UNPUBLISH),
    SHAPE(TB_MSG_SUBSCRIBE),   SHAPE(TB_MSG_UNSUBSCRIBE),   SHAPE(TB_MSG_WAIT),
    SHAPE(TB_MSG_WAIT_SITE),   SHAPE(TB_MSG_CANCEL),        SHAPE(TB_MSG_STAGE),
    SHAPE(TB_MSG_MANIFESTS),   SHAPE(TB_MSG_MANIFEST),      SHAPE(TB_MSG_EXPORT),
    SHAPE(TB_MSG_PLAN),        SHAPE(TB_MSG_GRANT),         SHAPE(TB_MSG_GRANTED),
    SHAPE(TB_MSG_HOP_LOST),    SHAPE(TB_MSG_CHUNK_BAD),     SHAPE(TB_MSG_PROGRESS),
    SHAPE(TB_MSG_GO),          SHAPE(TB_MSG_ACTIVATE),      SHAPE(TB_MSG_ACTIVATED),
    SHAPE(TB_MSG_RELEASE),     SHAPE(TB_MSG_VERSION_STATE), SHAPE(TB_MSG_STATUS),
    SHAPE(TB_MSG_STATUS_TEXT), SHAPE(TB_MSG_UPDATED),       SHAPE(TB_MSG_DOUBT),
    SHAPE(TB_MSG_DOUBTED),     SHAPE(TB_MSG_PROOFS),        SHAPE(TB_MSG_PROVE),
    SHAPE(TB_MSG_PROVEN),
};

static void messages_change_with_the_protocols_number(void **state)
{
    (void)state;
    static const struct tb_digest recorded = {
        {0xeb, 0x02, 0x35, 0x30, 0x17, 0x7d, 0x86, 0xd6, 0x6e, 0x71, 0x83, 0x13, 0x75, 0x0f, 0x61, 0xd6}};
    struct tb_digest_state digest;
    _Static_assert(sizeof shapes / sizeof *shapes == TB_MSG_TYPE_END - 2 /* RENEW has no fields */,
                   "every message is in the list");
    tb_digest_begin(&digest);
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        tb_digest_update(&digest, shapes[i], strlen(shapes[i]));
    const struct tb_digest now = tb_digest_end(&digest);
    for (uint32_t i = 0; i < sizeof now.bytes; i++)
        print_message("%s0x%02x", i == 0 ? "" : ", ", now.bytes[i]);
    print_message("\n");
    if (!tb_digest_equal(&now, &recorded))
        fail_msg("the messages are not those of protocol 3: raise TB_MSG_PROTOCOL where a release spoke it, "
                 "and record the bytes above");
    assert_int_equal(TB_MSG_PROTOCOL, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_change_with_the_protocols_number),
    };
    return cmocka_run_group_tests_name("session_msg", tests, NULL, NULL);
}
