/* Lines of the control socket, both ways. A line that anybody may have written gets an answer of
 * schema 1 that can be sent; an answer that anybody may have given is taken as one or refused with
 * a sentence. First byte: which way.
 *
 * Covers: gateway/daemon/control/control.c gateway/cli/operator/control_client.c
 * Covers: gateway/cli/operator/control_fields.c gateway/cli/operator/noun_rows.c
 * Covers: gateway/cli/operator/table.c
 * Covers: gateway/cli/operator/noun_sites.c gateway/cli/operator/noun_versions.c
 * Covers: gateway/cli/operator/noun_workers.c
 * Covers: gateway/cli/operator/noun_chains.c */
#include "gateway/daemon/control/control.h"
#include "gateway/cli/operator/control_client.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/cli/noun_views.h"

/* Looks at its request as the daemon's do, and says back what it found. */
static enum tb_status look(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)user, (void)error;
    const char *model = json_string_value(json_object_get(request, "model"));
    if (model != NULL) FUZZ_REQUIRE(json_object_set_new(reply, "model", json_string(model)) == 0);
    return TB_OK;
}

static enum tb_status refuse(void *user, const json_t *request, json_t *reply, char *error)
{
    (void)user, (void)request, (void)reply;
    strcpy(error, "no");
    return TB_BAD_STATE;
}

static const struct tb_control_command commands[] = {{"versions", look}, {"withdraw", refuse}, {NULL, NULL}};

static void walk_request(const char *line, size_t count)
{
    bool later;
    json_t *reply = tb_control_answer(commands, NULL, line, count, &later), *again = NULL;
    char error[512] = "";
    FUZZ_REQUIRE(reply != NULL);
    char *text = json_dumps(reply, JSON_COMPACT);
    FUZZ_REQUIRE(text != NULL && strchr(text, '\n') == NULL);
    const enum tb_status status = tb_control_client_reply(text, strlen(text), &again, error);
    FUZZ_REQUIRE((status == TB_OK) == json_is_true(json_object_get(reply, "ok")));
    FUZZ_REQUIRE(status != TB_PEER_GARBLED); /* the client understands whatever the daemon says */
    json_decref(reply);
    json_decref(again);
    free(text);
}

/* Every list of it can be made, ordered and printed, and no control character comes out. */
static void walk_rows(json_t *reply)
{
    const struct tb_answers a = {reply, reply, reply, reply, reply};
    for (size_t i = 0; i < NOUN_VIEWS; i++) {
        const struct noun_view *view = &noun_views[i];
        char *text = NULL;
        size_t bytes = 0;
        struct tb_rows rows = view->rows(&a);
        FILE *to = open_memstream(&text, &bytes);
        FUZZ_REQUIRE(to != NULL && !rows.lacking);
        FUZZ_REQUIRE(tb_columns_sort(rows.list, view->columns, view->columns[0].key));
        tb_columns_print(to, view->columns, rows.list, &(struct tb_table_style){TB_TABLE_FIT, true, 80});
        FUZZ_REQUIRE(fclose(to) == 0);
        for (size_t k = 0; k < bytes; k++)
            FUZZ_REQUIRE((unsigned char)text[k] >= 0x20 || text[k] == '\n');
        free(text);
        json_decref(rows.list);
    }
}

static void walk_reply(const char *text, size_t count)
{
    json_t *reply = NULL;
    char error[512] = "";
    const enum tb_status status = tb_control_client_reply(text, count, &reply, error);
    FUZZ_REQUIRE((status == TB_OK) == (reply != NULL));
    FUZZ_REQUIRE(memchr(error, '\0', sizeof error) != NULL && (status == TB_OK || error[0] != '\0'));
    if (status == TB_OK) walk_rows(reply);
    json_decref(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    if (count == 0) return 0;
    const char *text = (const char *)bytes + 1;
    if (bytes[0] % 2 == 0)
        walk_request(text, count - 1);
    else
        walk_reply(text, count - 1);
    return 0;
}
