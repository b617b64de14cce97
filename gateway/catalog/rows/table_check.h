/* table_check.h - what holds of every table of rows, whatever its rows are about. */
#ifndef TB_GATEWAY_TABLE_CHECK_H
#define TB_GATEWAY_TABLE_CHECK_H

#include "gateway/catalog/rows/tables.h"

/* Asserts that each row is either in use or in the free list, that the list of rows with todos has
 * these rows and no others, and that a dead row has something left to say. Walks all rows. */
void tb_table_check(const struct table *t);

#endif
