/* page.h - the page of a site: a sentence that says how it stands, sites and models with the reason
 * of each, links, tables and the newest versions, as HTML that needs no script.
 *
 * Pure but for the stream; the JSON is that of docs/control.md. Names come from peers: each text is
 * escaped. A value that is not known is shown as unknown, with the age of the last word. */
#ifndef TB_GATEWAY_WEB_PAGE_H
#define TB_GATEWAY_WEB_PAGE_H

#include "gateway/web/metrics.h"

void tb_page_write(FILE *out, const struct tb_web_facts *facts);
const char *tb_page_style(void); /* the page's style sheet, at /style.css */

#endif
