/* control_fields.c - asking the control socket, and reading what it said. See control_fields.h. */
#include "gateway/cli/operator/control_fields.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gateway/cli/operator/control_client.h"
#include "gateway/cli/options.h"

#define ASK_TIMEOUT_S 10u

enum tb_cli_exit tb_cli_ask(const struct tb_cli_call *call, json_t *request, json_t **reply_out)
{
    char error[512] = "";
    const uint64_t seconds = tb_cli_number(call, "timeout", ASK_TIMEOUT_S);
    const enum tb_status s =
        tb_control_client_ask(tb_control_client_path(call), request,
                              seconds > 3600 ? 3600000u : (uint32_t)seconds * 1000u, reply_out, error);
    json_decref(request);
    return s == TB_OK ? TB_CLI_DONE : tb_say_failure(call, s, "%s", error);
}

json_t *tb_cli_act(const struct tb_cli_call *call, json_t *request)
{
    const char *reason = tb_cli_text(call, "reason");
    bool good = request != NULL;
    json_t *text = reason != NULL ? json_string(reason) : NULL; /* NULL for what is not UTF-8, too */
    if (reason != NULL && text == NULL) text = json_string("?");
    if (good && reason != NULL) good = json_object_set(request, "reason", text) == 0;
    json_decref(text);
    if (good && tb_cli_given(call, "dry-run"))
        good = json_object_set_new(request, "dry_run", json_true()) == 0;
    if (good) return request;
    json_decref(request);
    return NULL;
}

const char *tb_cli_dry(const json_t *reply)
{
    return json_is_true(json_object_get(reply, "dry_run")) ? "dry run, nothing changed: " : "";
}

enum tb_cli_exit tb_cli_show(const struct tb_cli_call *call, json_t *reply,
                             void (*print)(const struct tb_cli_call *, const json_t *))
{
    if (tb_cli_given(call, "json")) return tb_say_object(reply);
    print(call, reply);
    json_decref(reply);
    return TB_CLI_DONE;
}

struct tb_field tb_text_of(const json_t *object, const char *key)
{
    struct tb_field f = {"-"};
    const char *text = json_string_value(json_object_get(object, key));
    if (text != NULL && text[0] != '\0') tb_show_clean(text, f.text, sizeof f.text);
    return f;
}

uint64_t tb_count_of(const json_t *object, const char *key)
{
    const json_int_t value = json_integer_value(json_object_get(object, key));
    return value < 0 ? 0 : (uint64_t)value;
}

double tb_number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

struct tb_field tb_bytes_of(const json_t *object, const char *key)
{
    struct tb_field f;
    (void)snprintf(f.text, sizeof f.text, "%s", tb_show_bytes(tb_count_of(object, key)).text);
    return f;
}

void tb_show_window(const json_t *window)
{
    if (!json_is_object(window)) return;
    (void)printf("  held by %s: its third value is %" PRIu64 ", the path needs %" PRIu64 "\n",
                 tb_text_of(window, "sysctl").text, tb_count_of(window, "has_bytes"),
                 tb_count_of(window, "needs_bytes"));
}
