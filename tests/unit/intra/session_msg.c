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
    SHAPE(TB_SESSION_HELLO),       SHAPE(TB_SESSION_WELCOME),       SHAPE(TB_SESSION_REPLY),
    SHAPE(TB_SESSION_RUN_OPEN),    SHAPE(TB_SESSION_RUN),           SHAPE(TB_SESSION_VERSION_OPEN),
    SHAPE(TB_SESSION_VERSION),     SHAPE(TB_SESSION_SEAL),          SHAPE(TB_SESSION_UNPUBLISH),
    SHAPE(TB_SESSION_SUBSCRIBE),   SHAPE(TB_SESSION_UNSUBSCRIBE),   SHAPE(TB_SESSION_WAIT),
    SHAPE(TB_SESSION_WAIT_SITE),   SHAPE(TB_SESSION_CANCEL),        SHAPE(TB_SESSION_STAGE),
    SHAPE(TB_SESSION_MANIFESTS),   SHAPE(TB_SESSION_MANIFEST),      SHAPE(TB_SESSION_EXPORT),
    SHAPE(TB_SESSION_PLAN),        SHAPE(TB_SESSION_GRANT),         SHAPE(TB_SESSION_GRANTED),
    SHAPE(TB_SESSION_HOP_LOST),    SHAPE(TB_SESSION_CHUNK_BAD),     SHAPE(TB_SESSION_PROGRESS),
    SHAPE(TB_SESSION_GO),          SHAPE(TB_SESSION_ACTIVATE),      SHAPE(TB_SESSION_ACTIVATED),
    SHAPE(TB_SESSION_RELEASE),     SHAPE(TB_SESSION_VERSION_STATE), SHAPE(TB_SESSION_STATUS),
    SHAPE(TB_SESSION_STATUS_TEXT), SHAPE(TB_SESSION_UPDATED),       SHAPE(TB_SESSION_DOUBT),
    SHAPE(TB_SESSION_DOUBTED),
};

static void messages_change_with_the_protocols_number(void **state)
{
    (void)state;
    static const struct tb_digest recorded = {
        {0xac, 0x92, 0xce, 0xc8, 0xa9, 0x9a, 0x90, 0x30, 0xc7, 0x7a, 0xda, 0x2a, 0x46, 0x91, 0x49, 0x4f}};
    struct tb_digest_state digest;
    _Static_assert(sizeof shapes / sizeof *shapes == TB_SESSION_TYPE_END - 2 /* RENEW has no fields */,
                   "every message is in the list");
    tb_digest_begin(&digest);
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        tb_digest_update(&digest, shapes[i], strlen(shapes[i]));
    const struct tb_digest now = tb_digest_end(&digest);
    for (uint32_t i = 0; i < sizeof now.bytes; i++)
        print_message("%s0x%02x", i == 0 ? "" : ", ", now.bytes[i]);
    print_message("\n");
    if (!tb_digest_equal(&now, &recorded))
        fail_msg(
            "the messages are not those of protocol 3: raise TB_SESSION_PROTOCOL where a release spoke it, "
            "and record the bytes above");
    assert_int_equal(TB_SESSION_PROTOCOL, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_change_with_the_protocols_number),
    };
    return cmocka_run_group_tests_name("session_msg", tests, NULL, NULL);
}
