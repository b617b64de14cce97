/* series.c - see series.h. */
#include "gateway/web/series.h"

#include <stdbool.h>
#include <string.h>

#include "base/assert.h"

static void write_value(FILE *out, const char *value)
{
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"') (void)fputc('\\', out);
        if (*value == '\n')
            (void)fputs("\\n", out);
        else
            (void)fputc(*value, out);
    }
}

void tb_series_write(FILE *out, const char *name, const struct tb_series_label *labels, double value)
{
    TB_ASSERT(name != NULL);
    (void)fputs(name, out);
    for (size_t i = 0; labels[i].name != NULL; i++) {
        (void)fprintf(out, "%s%s=\"", i == 0 ? "{" : ",", labels[i].name);
        write_value(out, labels[i].value);
        (void)fputc('"', out);
    }
    (void)fprintf(out, "%s %.17g\n", labels[0].name != NULL ? "}" : "", value);
}

void tb_series_head(FILE *out, const char *name, const char *type, const char *help)
{
    (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* False: there is no such number, so there is no series. A true or false is 1 or 0. */
static bool number_of(const json_t *object, const char *key, double *value_out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value) && !json_is_boolean(value)) return false;
    *value_out = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
    return true;
}

static void write_field(FILE *out, const struct tb_series_field *field, const json_t *list,
                        tb_series_labels_of labels_of)
{
    struct tb_series_label labels[TB_SERIES_LABELS_MAX] = {{NULL, NULL}};
    bool begun = false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *object = json_array_get(list, i);
        const json_t *from = field->inside == NULL ? object : json_object_get(object, field->inside);
        double value = 0;
        if (!number_of(from, field->key, &value)) continue;
        if (!begun) tb_series_head(out, field->name, field->type, field->help);
        begun = true;
        labels_of(object, labels);
        tb_series_write(out, field->name, labels, value * field->scale);
    }
}

void tb_series_fields(FILE *out, const struct tb_series_field *fields, size_t count, const json_t *list,
                      tb_series_labels_of labels_of)
{
    TB_ASSERT(fields != NULL || count == 0);
    for (size_t f = 0; f < count; f++)
        write_field(out, &fields[f], list, labels_of);
}

void tb_series_histogram(FILE *out, const char *name, const struct tb_series_label *label,
                         const struct tb_series_histogram *histogram)
{
    char part[128], le[32];
    uint64_t below = 0;
    TB_ASSERT(strlen(name) + sizeof "_bucket" <= sizeof part);
    (void)snprintf(part, sizeof part, "%s_bucket", name);
    for (size_t i = 0; i <= histogram->bound_count; i++) {
        below += histogram->counts[i];
        if (i < histogram->bound_count)
            (void)snprintf(le, sizeof le, "%g", histogram->bounds[i]);
        else
            (void)snprintf(le, sizeof le, "+Inf");
        const struct tb_series_label labels[] = {*label, {"le", le}, {NULL, NULL}};
        tb_series_write(out, part, labels, (double)below);
    }
    const struct tb_series_label labels[] = {*label, {NULL, NULL}};
    (void)snprintf(part, sizeof part, "%s_sum", name);
    tb_series_write(out, part, labels, histogram->sum);
    (void)snprintf(part, sizeof part, "%s_count", name);
    tb_series_write(out, part, labels, (double)below);
}
