/* control_fields.h - what the commands that ask the control socket share: the question, the answer,
 * and fields of it that are fit for a terminal. The object is a stranger's: a field that is missing
 * or of another type is shown as "-" or 0. */
#ifndef TB_GATEWAY_CLI_FIELDS_H
#define TB_GATEWAY_CLI_FIELDS_H

#include "gateway/cli/output.h"

struct tb_field {
    char text[256];
};

/* Takes `request`, which may be NULL: there was no memory for it. On TB_CLI_DONE the
 * reply is the caller's. */
enum tb_cli_exit tb_cli_ask(const struct tb_cli_call *call, json_t *request, json_t **reply_out);
/* Adds --reason and --dry-run of a command that changes something; takes it. NULL: no memory. */
json_t *tb_cli_act(const struct tb_cli_call *call, json_t *request);
/* "dry run, nothing changed: " where the answer says so, else nothing. */
const char *tb_cli_dry(const json_t *reply);
/* Under --json what the gateway said goes out as it came, else as `print` shows it. Takes
 * `reply`. */
enum tb_cli_exit tb_cli_show(const struct tb_cli_call *call, json_t *reply,
                             void (*print)(const struct tb_cli_call *, const json_t *));

struct tb_field tb_text_of(const json_t *object, const char *key);
uint64_t tb_count_of(const json_t *object, const char *key);
double tb_number_of(const json_t *object, const char *key);
struct tb_field tb_bytes_of(const json_t *object, const char *key);
/* A link's `window`, docs/control.md, as a line of its own; nothing where it is null. */
void tb_show_window(const json_t *window);

#endif
