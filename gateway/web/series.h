/* series.h - the text format of Prometheus: heads, series with labels, families that are one field
 * of each object of a list, histograms. Pure but for the stream. */
#ifndef TB_GATEWAY_WEB_SERIES_H
#define TB_GATEWAY_WEB_SERIES_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TB_SERIES_LABELS_MAX 5u /* with the one that ends a list */

/* A list of labels ends with one without a name. A value may have any byte: it is escaped here. */
struct tb_series_label {
    const char *name, *value;
};

struct tb_series_field {
    const char *name;   /* of the family */
    const char *key;    /* of the object, or of the object that it has under `inside` */
    const char *inside; /* NULL: the object itself */
    const char *type, *help;
    double scale; /* to the family's unit */
};

struct tb_series_histogram {
    const double *bounds;   /* of buckets, ascending; the last one, without an end, is not among them */
    const uint64_t *counts; /* one more than bounds, of each bucket alone */
    size_t bound_count;
    double sum;
};

typedef void (*tb_series_labels_of)(const json_t *object, struct tb_series_label *labels_out);

void tb_series_head(FILE *out, const char *name, const char *type, const char *help);
void tb_series_write(FILE *out, const char *name, const struct tb_series_label *labels, double value);
/* A family has no head where no object has the field: what is not known has no series. */
void tb_series_fields(FILE *out, const struct tb_series_field *fields, size_t count, const json_t *list,
                      tb_series_labels_of labels_of);
/* Series of one histogram; the head is the caller's. `label` is one label more beside "le". */
void tb_series_histogram(FILE *out, const char *name, const struct tb_series_label *label,
                         const struct tb_series_histogram *histogram);

#endif
