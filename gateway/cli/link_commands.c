/* link_commands.c - tombolo streams: the links of this site's gateway, as tables. */
#include <inttypes.h>

#include "base/assert.h"
#include "gateway/cli/control_fields.h"
#include "gateway/cli/operator_commands.h"
#include "gateway/cli/options.h"

/* ---- streams ---- */

static struct tb_field rate_of(const json_t *object, const char *key)
{
    struct tb_field f;
    (void)snprintf(f.text, sizeof f.text, "%.1f", tb_number_of(object, key) * 8 / 1e6);
    return f;
}

static void print_stream(const json_t *s)
{
    (void)printf("  %6" PRIu64 "  %-8s  %-8s %9.1f %9s %9s %9s %9s  %s\n", tb_count_of(s, "stream"),
                 tb_text_of(s, "congestion").text, tb_text_of(s, "encryption").text,
                 tb_number_of(s, "rtt_ms"), rate_of(s, "sent_bytes_per_s").text,
                 rate_of(s, "received_bytes_per_s").text, tb_bytes_of(s, "retransmitted_bytes").text,
                 tb_bytes_of(s, "queued_bytes").text,
                 json_is_true(json_object_get(s, "open")) ? tb_text_of(s, "limited_by").text : "opening");
}

static void print_link(const json_t *l)
{
    (void)printf(
        "%s  %s  rtt %.1f ms  %s Mbit/s  limited by %s  %" PRIu64 " of %zu streams used%s  %" PRIu64
        " parcels queued  hedged %s  resent by TCP %s  lost %" PRIu64 "  rotated %" PRIu64 "\n",
        tb_text_of(l, "site").text, json_is_true(json_object_get(l, "up")) ? "up" : "down",
        tb_number_of(l, "rtt_ms"), rate_of(l, "goodput_bytes_per_s").text, tb_text_of(l, "limited_by").text,
        tb_count_of(l, "used"), json_array_size(json_object_get(l, "streams")),
        json_is_true(json_object_get(l, "searching")) ? " (searching)" : "", tb_count_of(l, "queued_parcels"),
        tb_bytes_of(l, "hedged_bytes").text, tb_bytes_of(l, "retransmitted_bytes").text,
        tb_count_of(l, "lost"), tb_count_of(l, "rotated"));
    tb_show_window(json_object_get(l, "window"));
}

static void print_streams(const struct tb_cli_call *call, const json_t *reply)
{
    const json_t *links = json_object_get(reply, "links");
    for (size_t i = 0; i < json_array_size(links); i++) {
        const json_t *l = json_array_get(links, i), *streams = json_object_get(l, "streams");
        print_link(l);
        if (json_array_size(streams) > 0 && !tb_cli_given(call, "quiet"))
            (void)printf("  stream  congest.  encrypts    rtt ms  Mbit/s >  Mbit/s <   resent    queued  "
                         "limited by\n");
        for (size_t k = 0; k < json_array_size(streams); k++)
            print_stream(json_array_get(streams, k));
    }
}

enum tb_cli_exit tb_cli_streams(const struct tb_cli_call *call)
{
    TB_ASSERT(call->argument_count == 0);
    json_t *reply = NULL;
    const enum tb_cli_exit asked = tb_cli_ask(call, json_pack("{s:s}", "cmd", "streams"), &reply);
    return asked != TB_CLI_DONE ? asked : tb_cli_show(call, reply, print_streams);
}
