/* table.h - rows of JSON objects as a table: for a terminal, for a program, or as lines below each
 * other. Every command that lists writes its rows here, so that a quantity has one unit everywhere:
 * bytes are MB (10^6), rates Mbit/s, times s, round trips ms.
 *
 * A field that is absent is "-": there is none. One that is null is "?": it is not known now. Text
 * is a stranger's: control characters are replaced, and each cell is bounded. Pure, but for what it
 * prints. */
#ifndef TB_GATEWAY_CLI_TABLE_H
#define TB_GATEWAY_CLI_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum tb_column_kind {
    TB_COLUMN_TEXT,          /* a string, or yes and no */
    TB_COLUMN_COUNT,         /* as it is */
    TB_COLUMN_MB,            /* of bytes */
    TB_COLUMN_S,             /* of seconds */
    TB_COLUMN_S_RANGE,       /* of [low, high] in seconds */
    TB_COLUMN_MS,            /* of milliseconds */
    TB_COLUMN_MBIT,          /* of bit/s, in Mbit/s */
    TB_COLUMN_MBIT_OF_BYTES, /* of bytes/s, in Mbit/s */
    TB_COLUMN_PERCENT,       /* as it is */
};

enum tb_column_show {
    TB_SHOW_ALWAYS, /* not left out, and cut when nothing else can give way */
    TB_SHOW,        /* cut and left out where the terminal is too narrow, the last column first */
    TB_SHOW_FILLED, /* likewise; left out where no row has it, too */
    TB_SHOW_WIDE    /* only in -o wide */
};

struct tb_column {
    const char *key;   /* of a row's field, with the unit that it has there; NULL ends a list */
    const char *title; /* with the unit that the table has */
    enum tb_column_kind kind;
    enum tb_column_show show;
};

#define TB_TABLE_COLUMNS_MAX 32
#define TB_TABLE_CELL_BYTES  256

enum tb_table_form { TB_TABLE_FIT, TB_TABLE_WIDE, TB_TABLE_TSV };

struct tb_table_style {
    enum tb_table_form form;
    bool headers;
    uint32_t width; /* of the terminal; 0: no bound */
};

/* A row may have `notes`, an array of strings: for people each is a line below its row. TSV has the
 * keys as its first line, values in the units of the keys, and no notes. */
void tb_columns_print(FILE *to, const struct tb_column *columns, const json_t *rows,
                      const struct tb_table_style *style);

/* One row, a line for each of its fields. */
void tb_columns_describe(FILE *to, const struct tb_column *columns, const json_t *row);

/* By a column's key, or the first word of its title; behind "-" the greatest first. Numbers in a
 * text count as numbers. Rows without a value are the last; rows that are alike keep their order.
 * False: there is no such column. */
bool tb_columns_sort(json_t *rows, const struct tb_column *columns, const char *by);

#endif
