/* table.c - see table.h. */
#include "gateway/cli/operator/table.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/cli/output.h"

#define CUT_MIN 12u /* a column is not cut below that */
#define GAP     2u  /* between columns */

/* ---- a cell ---- */

/* "0.420", "12.3", "1234": three digits, or all of a whole number; "<0.001" of less. */
static void show_number(double value, char out[32])
{
    const double size = value < 0 ? -value : value;
    if (value > 0 && value < 0.0005) { /* a little is not nothing */
        (void)snprintf(out, 32, "<0.001");
        return;
    }
    const int digits = size < 0.0005 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.995 ? 2 : 3;
    (void)snprintf(out, 32, "%.*f", digits, value);
}

static double scale_of(enum tb_column_kind kind)
{
    switch (kind) {
    case TB_COLUMN_MB:
    case TB_COLUMN_MBIT:
        return 1e-6;
    case TB_COLUMN_MBIT_OF_BYTES:
        return 8e-6;
    default:
        return 1;
    }
}

static void range_of(const json_t *value, bool raw, char out[TB_TABLE_CELL_BYTES])
{
    char low[32], high[32];
    const double from = json_number_value(json_array_get(value, 0));
    const double to = json_number_value(json_array_get(value, 1));
    show_number(from, low);
    show_number(to, high);
    if (raw)
        (void)snprintf(out, TB_TABLE_CELL_BYTES, "%.3f-%.3f", from, to);
    else
        (void)snprintf(out, TB_TABLE_CELL_BYTES, strcmp(low, high) == 0 ? "%s" : "%s-%s", low, high);
}

static void number_of(const struct tb_column *c, const json_t *value, bool raw, char out[TB_TABLE_CELL_BYTES])
{
    char text[32];
    const bool whole = c->kind == TB_COLUMN_COUNT || c->kind == TB_COLUMN_PERCENT || raw;
    if (json_is_integer(value) && whole) {
        (void)snprintf(out, TB_TABLE_CELL_BYTES, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return;
    }
    if (raw) {
        (void)snprintf(out, TB_TABLE_CELL_BYTES, "%.3f", json_number_value(value));
        return;
    }
    show_number(json_number_value(value) * scale_of(c->kind), text);
    (void)snprintf(out, TB_TABLE_CELL_BYTES, "%s", text);
}

/* A list that a cell has no room for ends with a whole one of it, and says that there are more. */
static void clean_text(const char *text, char out[TB_TABLE_CELL_BYTES])
{
    static const char more[] = ", ...";
    tb_show_clean(text, out, TB_TABLE_CELL_BYTES);
    if (strlen(text) < TB_TABLE_CELL_BYTES) return;
    for (size_t at = TB_TABLE_CELL_BYTES - sizeof more; at > 0; at--)
        if (out[at] == ',' && out[at + 1] == ' ') {
            memcpy(out + at, more, sizeof more);
            return;
        }
}

static void cell_of(const struct tb_column *c, const json_t *row, bool raw, char out[TB_TABLE_CELL_BYTES])
{
    const json_t *value = json_object_get(row, c->key);
    (void)snprintf(out, TB_TABLE_CELL_BYTES, "%s", value == NULL ? "-" : "?");
    if (json_is_string(value) && json_string_length(value) > 0)
        clean_text(json_string_value(value), out);
    else if (json_is_string(value))
        (void)snprintf(out, TB_TABLE_CELL_BYTES, "-");
    else if (json_is_boolean(value))
        (void)snprintf(out, TB_TABLE_CELL_BYTES, "%s", json_is_true(value) ? "yes" : "no");
    else if (c->kind == TB_COLUMN_S_RANGE && json_array_size(value) == 2)
        range_of(value, raw, out);
    else if (json_is_number(value))
        number_of(c, value, raw, out);
}

/* Letters, not bytes: UTF-8 goes on with 10xxxxxx. */
static uint32_t letters_of(const char *text)
{
    uint32_t count = 0;
    for (; *text != '\0'; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

/* Pads, or cuts with "~" as the last letter. */
static void put_text(FILE *to, const char *text, uint32_t width, bool last)
{
    const uint32_t letters = letters_of(text);
    if (letters <= width) {
        (void)fprintf(to, "%s%*s", text, last ? 0 : (int)(width - letters), "");
        return;
    }
    TB_ASSERT(width > 0);
    for (uint32_t shown = 0; shown + 1 < width; shown++) {
        do
            (void)fputc(*text++, to);
        while (((unsigned char)*text & 0xc0) == 0x80);
    }
    (void)fputc('~', to);
}

/* ---- which columns, and how wide ---- */

struct layout {
    const struct tb_column *columns;
    uint32_t count;
    bool shown[TB_TABLE_COLUMNS_MAX];
    uint32_t width[TB_TABLE_COLUMNS_MAX];
};

static bool is_filled(const json_t *rows, const char *key)
{
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *value = json_object_get(json_array_get(rows, i), key);
        if (value != NULL && !(json_is_string(value) && json_string_length(value) == 0)) return true;
    }
    return false;
}

static uint32_t width_of(const struct tb_column *c, const json_t *rows)
{
    char cell[TB_TABLE_CELL_BYTES];
    uint32_t most = letters_of(c->title);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        cell_of(c, json_array_get(rows, i), false, cell);
        const uint32_t letters = letters_of(cell);
        if (letters > most) most = letters;
    }
    return most;
}

static uint32_t total_of(const struct layout *l)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < l->count; i++)
        if (l->shown[i]) total += l->width[i] + (total > 0 ? GAP : 0);
    return total;
}

/* The widest text that may be cut gives way; COUNT where there is none. */
static uint32_t widest_text(const struct layout *l, bool any)
{
    uint32_t found = l->count;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct tb_column *c = &l->columns[i];
        if (!l->shown[i] || c->kind != TB_COLUMN_TEXT || (c->show == TB_SHOW_ALWAYS && !any)) continue;
        if (l->width[i] > CUT_MIN && (found == l->count || l->width[i] > l->width[found])) found = i;
    }
    return found;
}

static bool hide_the_last(struct layout *l)
{
    for (uint32_t i = l->count; i-- > 0;) {
        if (!l->shown[i] || l->columns[i].show == TB_SHOW_ALWAYS) continue;
        l->shown[i] = false;
        return true;
    }
    return false;
}

static void fit(struct layout *l, uint32_t width)
{
    while (total_of(l) > width) {
        const uint32_t over = total_of(l) - width;
        uint32_t at = widest_text(l, false);
        if (at == l->count && hide_the_last(l)) continue;
        if (at == l->count) at = widest_text(l, true);
        if (at == l->count) return; /* the terminal breaks the lines */
        l->width[at] = l->width[at] - CUT_MIN > over ? l->width[at] - over : CUT_MIN;
    }
}

static struct layout layout_of(const struct tb_column *columns, const json_t *rows,
                               const struct tb_table_style *style)
{
    struct layout l = {.columns = columns};
    for (; columns[l.count].key != NULL; l.count++) {
        const struct tb_column *c = &columns[l.count];
        TB_ASSERT(l.count < TB_TABLE_COLUMNS_MAX);
        l.shown[l.count] = style->form != TB_TABLE_FIT || c->show == TB_SHOW_ALWAYS || c->show == TB_SHOW ||
                           (c->show == TB_SHOW_FILLED && is_filled(rows, c->key));
        l.width[l.count] = style->form == TB_TABLE_TSV ? 0 : width_of(c, rows);
    }
    if (style->form == TB_TABLE_FIT && style->width > 0) fit(&l, style->width);
    return l;
}

/* ---- lines ---- */

static void put_cell(FILE *to, const struct layout *l, uint32_t at, const char *text, bool last)
{
    if (l->columns[at].kind == TB_COLUMN_TEXT)
        put_text(to, text, l->width[at], last);
    else
        (void)fprintf(to, "%*s%s", (int)(l->width[at] - letters_of(text)), "", text);
}

static bool is_last(const struct layout *l, uint32_t at)
{
    for (uint32_t i = at + 1; i < l->count; i++)
        if (l->shown[i]) return false;
    return true;
}

/* `row` NULL: the titles. */
static void put_line(FILE *to, const struct layout *l, const json_t *row, bool tsv)
{
    bool first = true;
    for (uint32_t i = 0; i < l->count; i++) {
        char cell[TB_TABLE_CELL_BYTES];
        if (!l->shown[i]) continue;
        if (row == NULL)
            (void)snprintf(cell, sizeof cell, "%s", tsv ? l->columns[i].key : l->columns[i].title);
        else
            cell_of(&l->columns[i], row, tsv, cell);
        if (!first) (void)fputs(tsv ? "\t" : "  ", to);
        if (tsv)
            (void)fputs(cell, to);
        else
            put_cell(to, l, i, cell, is_last(l, i));
        first = false;
    }
    (void)fputc('\n', to);
}

/* Words, broken at the width, each line behind two spaces. */
static void put_note(FILE *to, const char *text, uint32_t width)
{
    uint32_t column = 0;
    while (*text != '\0') {
        char word[TB_TABLE_CELL_BYTES];
        const size_t bytes = strcspn(text, " ");
        (void)snprintf(word, sizeof word, "%.*s", (int)bytes, text);
        const uint32_t letters = letters_of(word);
        if (column > 0 && width > 0 && column + 1 + letters > width) {
            (void)fputc('\n', to);
            column = 0;
        }
        (void)fprintf(to, "%s%s", column == 0 ? "  " : " ", word);
        column += letters + (column == 0 ? 2 : 1);
        text += bytes + strspn(text + bytes, " ");
    }
    (void)fputc('\n', to);
}

static void put_notes(FILE *to, const json_t *notes, uint32_t width)
{
    for (size_t i = 0; i < json_array_size(notes); i++) {
        const char *text = json_string_value(json_array_get(notes, i));
        char clean[1024];
        tb_show_clean(text != NULL ? text : "", clean, sizeof clean);
        put_note(to, clean, width);
    }
}

void tb_columns_print(FILE *to, const struct tb_column *columns, const json_t *rows,
                      const struct tb_table_style *style)
{
    const bool tsv = style->form == TB_TABLE_TSV;
    const struct layout l = layout_of(columns, rows, style);
    if (style->headers) put_line(to, &l, NULL, tsv);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (!json_is_object(row)) continue;
        put_line(to, &l, row, tsv);
        if (!tsv) put_notes(to, json_object_get(row, "notes"), style->width);
    }
}

void tb_columns_describe(FILE *to, const struct tb_column *columns, const json_t *row)
{
    char cell[TB_TABLE_CELL_BYTES];
    for (const struct tb_column *c = columns; c->key != NULL; c++) {
        if (json_object_get(row, c->key) == NULL) continue;
        cell_of(c, row, false, cell);
        if (strcmp(cell, "-") != 0) (void)fprintf(to, "  %-18s %s\n", c->title, cell);
    }
}

/* ---- order ---- */

struct placed {
    json_t *row;
    size_t at;
    const char *key;
    bool greatest_first;
};

/* "1:9" is before "1:12". */
static int compare_texts(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        const size_t x = strspn(a, "0123456789"), y = strspn(b, "0123456789");
        if (x > 0 && y > 0) {
            if (x != y) return x < y ? -1 : 1;
            const int by = strncmp(a, b, x);
            if (by != 0) return by;
            a += x;
            b += y;
            continue;
        }
        if (*a != *b) return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        a++;
        b++;
    }
    return (*a != '\0') - (*b != '\0');
}

static bool has_value(const json_t *value)
{
    return json_is_number(value) || json_is_string(value) || json_is_boolean(value) ||
           json_array_size(value) == 2;
}

static double worth_of(const json_t *value)
{
    if (json_is_boolean(value)) return json_is_true(value);
    return json_number_value(json_is_array(value) ? json_array_get(value, 1) : value);
}

static int compare_values(const json_t *x, const json_t *y)
{
    if (json_is_string(x) != json_is_string(y)) return json_is_string(x) ? 1 : -1;
    if (json_is_string(x)) return compare_texts(json_string_value(x), json_string_value(y));
    const double a = worth_of(x), b = worth_of(y);
    return (a > b) - (a < b);
}

static int in_order(const void *a, const void *b)
{
    const struct placed *p = a, *q = b;
    const json_t *x = json_object_get(p->row, p->key), *y = json_object_get(q->row, q->key);
    const int absent = has_value(y) - has_value(x);
    if (absent != 0) return absent;
    const int by = has_value(x) ? compare_values(x, y) : 0;
    if (by != 0) return p->greatest_first ? -by : by;
    return p->at < q->at ? -1 : 1;
}

static const char *column_named(const struct tb_column *columns, const char *name)
{
    const size_t bytes = strlen(name);
    for (const struct tb_column *c = columns; c->key != NULL; c++)
        if (strcmp(c->key, name) == 0) return c->key;
    for (const struct tb_column *c = columns; c->key != NULL; c++)
        if (strcspn(c->title, " ") == bytes && strncasecmp(c->title, name, bytes) == 0) return c->key;
    return NULL;
}

bool tb_columns_sort(json_t *rows, const struct tb_column *columns, const char *by)
{
    const bool greatest_first = by[0] == '-';
    const char *key = column_named(columns, by + greatest_first);
    const size_t count = json_array_size(rows);
    if (key == NULL) return false;
    struct placed *placed = count > 0 ? tb_calloc(count, sizeof *placed) : NULL;
    if (placed == NULL) return true; /* as they are */
    for (size_t i = 0; i < count; i++)
        placed[i] = (struct placed){json_incref(json_array_get(rows, i)), i, key, greatest_first};
    qsort(placed, count, sizeof *placed, in_order);
    for (size_t i = 0; i < count; i++)
        (void)json_array_set_new(rows, i, placed[i].row); /* both have as many */
    tb_free(placed);
    return true;
}
