/* links_table_counts.c - what is counted of the tables of the links. links_tables.c shows it. */
#include "wan/link/links_table_counts.h"
#include "base/assert.h"
#include "wan/link/link.h"
#include "wan/link/links_inside.h"

void tb_links_table_took(struct tb_links *ls, enum tb_links_table table, uint32_t used)
{
    TB_ASSERT(table < TB_LINKS_TABLES_COUNT && used > 0);
    if (used > ls->tables[table].most) ls->tables[table].most = used;
}

void tb_links_table_refused(struct tb_links *ls, enum tb_links_table table, const struct tb_link *l)
{
    TB_ASSERT(table < TB_LINKS_TABLES_COUNT);
    ls->tables[table].refused++;
    if (l != NULL) ls->tables[table].full = l->label;
}
