/* noun_rows.c - fields of a row. See noun_rows.h. */
#include "gateway/cli/operator/noun_rows.h"

#include <inttypes.h>
#include <string.h>

#include "gateway/cli/operator/control_fields.h"

json_t *tb_row_new(struct tb_rows *rows)
{
    if (rows->list == NULL) rows->list = json_array();
    json_t *row = json_object();
    if (rows->list != NULL && row != NULL && json_array_append_new(rows->list, row) == 0) return row;
    if (rows->list == NULL) json_decref(row);
    rows->lacking = true;
    return NULL;
}

void tb_row_put(struct tb_rows *rows, json_t *row, const char *key, json_t *value)
{
    if (json_object_set_new(row, key, value) != 0) rows->lacking = true;
}

void tb_row_copy_as(struct tb_rows *rows, json_t *row, const char *as, const json_t *value)
{
    if (value == NULL) return;
    tb_row_put(rows, row, as, json_incref((json_t *)(uintptr_t)value));
}

void tb_row_copy(struct tb_rows *rows, json_t *row, const json_t *from, const char *key)
{
    tb_row_copy_as(rows, row, key, json_object_get(from, key));
}

void tb_row_copy_some(struct tb_rows *rows, json_t *row, const json_t *from, const char *key)
{
    const json_t *value = json_object_get(from, key);
    if (!json_is_null(value)) tb_row_copy_as(rows, row, key, value);
}

void tb_row_text(struct tb_rows *rows, json_t *row, const char *key, const char *text)
{
    if (text != NULL && text[0] != '\0') tb_row_put(rows, row, key, json_string(text));
}

void tb_row_count(struct tb_rows *rows, json_t *row, const char *key, uint64_t count)
{
    tb_row_put(rows, row, key, json_integer((json_int_t)count));
}

void tb_row_version(struct tb_rows *rows, json_t *row, const char *key, const json_t *from)
{
    char text[64];
    if (!json_is_integer(json_object_get(from, "number"))) {
        tb_row_put(rows, row, key, json_null());
        return;
    }
    (void)snprintf(text, sizeof text, "%" PRIu64 ":%" PRIu64, tb_count_of(from, "run"),
                   tb_count_of(from, "number"));
    tb_row_text(rows, row, key, text);
}

void tb_row_version_name(struct tb_rows *rows, json_t *row, const char *key, const json_t *from)
{
    char text[sizeof(struct tb_field) + 64];
    (void)snprintf(text, sizeof text, "%s/%" PRIu64 ":%" PRIu64, tb_text_of(from, "model").text,
                   tb_count_of(from, "run"), tb_count_of(from, "number"));
    tb_row_text(rows, row, key, text);
}

/* 8-4-4-4-12 hex digits, as Linux makes them. */
static bool is_boot_id(const char *text)
{
    static const char form[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    if (strlen(text) != sizeof form - 1) return false;
    for (size_t i = 0; i < sizeof form - 1; i++) {
        const bool is_hex = strchr("0123456789abcdef", text[i]) != NULL;
        if (form[i] == 'x' ? !is_hex : text[i] != '-') return false;
    }
    return true;
}

void tb_row_host(struct tb_rows *rows, json_t *row, const json_t *from)
{
    const char *host = json_string_value(json_object_get(from, "host"));
    char text[16];
    if (host == NULL || !is_boot_id(host)) {
        tb_row_text(rows, row, "host", host);
        return;
    }
    (void)snprintf(text, sizeof text, "boot:%.8s", host);
    tb_row_text(rows, row, "host", text);
}

void tb_row_percent(struct tb_rows *rows, json_t *row, const char *key, uint64_t part, uint64_t all)
{
    if (all == 0) return;
    const double share = (double)(part < all ? part : all) / (double)all;
    tb_row_count(rows, row, key, part >= all ? 100 : (uint64_t)(share * 100) % 100);
}

void tb_row_add(struct tb_rows *rows, json_t *row, const char *key, const char *one)
{
    const char *before = json_string_value(json_object_get(row, key));
    if (one == NULL || one[0] == '\0') return;
    tb_row_put(rows, row, key, before == NULL ? json_string(one) : json_sprintf("%s, %s", before, one));
}

void tb_row_names(struct tb_rows *rows, json_t *row, const char *key, const json_t *names)
{
    for (size_t i = 0; i < json_array_size(names); i++)
        tb_row_add(rows, row, key, json_string_value(json_array_get(names, i)));
}
