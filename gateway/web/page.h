/* page.h - the page of a site: views, each of some sections, as HTML that needs no script.
 *
 * Pure but for the stream; the JSON is that of docs/control.md. Names come from peers: each text
 * is escaped (markup.h). A value that is not known is shown as unknown, with the age of the last
 * word. */
#ifndef TB_GATEWAY_WEB_PAGE_H
#define TB_GATEWAY_WEB_PAGE_H

#include <stdint.h>
#include <stdio.h>

#include "gateway/web/web_facts.h"

enum tb_page_view {
    TB_PAGE_OVERVIEW,
    TB_PAGE_SITES,
    TB_PAGE_VERSIONS,
    TB_PAGE_LINKS,
    TB_PAGE_READERS,
    TB_PAGE_HEALTH,
    TB_PAGE_VIEWS
};

/* A view's part: /sites/2 has the sites behind the first 25 and the rows behind the first 20. */
struct tb_page_place {
    enum tb_page_view view;
    uint32_t part; /* 1 and more */
};

#define TB_PAGE_PARTS_MAX 9999u

/* Of "/", "/sites", "/sites/2". False: there is no such page. */
bool tb_page_find(const char *path, struct tb_page_place *place_out);
/* Bits of enum tb_answer that the view shows. */
unsigned tb_page_needs(enum tb_page_view view);
void tb_page_write(FILE *out, const struct tb_web_facts *facts, struct tb_page_place place);
/* The part inside <body>: an update. */
void tb_page_body_write(FILE *out, const struct tb_web_facts *facts, struct tb_page_place place);

#endif
