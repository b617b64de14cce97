/* page_parts.h - sections of the page. Each writes what is below its heading; page.c puts them into
 * views. */
#ifndef TB_GATEWAY_WEB_PAGE_PARTS_H
#define TB_GATEWAY_WEB_PAGE_PARTS_H

#include <stdint.h>
#include <stdio.h>

#include "gateway/web/web_facts.h"

#define TB_PAGE_WARN_S 30.0 /* as `tombolo lag --check` */
#define TB_PAGE_CRIT_S 120.0

/* The sentence: how this site and those that it knows stand. */
void tb_page_verdict(FILE *out, const struct tb_web_facts *facts);
/* "good", "warn", "bad" or "unknown": what the sentence says. */
const char *tb_page_verdict_class(const struct tb_web_facts *facts);
/* Links of this site, as a drawing. */
void tb_page_topology(FILE *out, const struct tb_web_facts *facts);
/* Sites by models; the worst first; `part` from 1. */
void tb_page_matrix(FILE *out, const struct tb_web_facts *facts, uint32_t part);
/* The rows of "lag" in full, with what they rest on. */
void tb_page_lag(FILE *out, const struct tb_web_facts *facts, uint32_t part);
/* The way of the newest versions over all sites. */
void tb_page_timeline(FILE *out, const struct tb_web_facts *facts, uint32_t most);
void tb_page_version_table(FILE *out, const struct tb_web_facts *facts);
void tb_page_throughput(FILE *out, const struct tb_web_facts *facts);
void tb_page_link_table(FILE *out, const struct tb_web_facts *facts);
void tb_page_streams(FILE *out, const struct tb_web_facts *facts);
void tb_page_groups(FILE *out, const struct tb_web_facts *facts);
void tb_page_chains(FILE *out, const struct tb_web_facts *facts);
void tb_page_checks(FILE *out, const struct tb_web_facts *facts);
void tb_page_tables(FILE *out, const struct tb_web_facts *facts);
void tb_page_events(FILE *out, const struct tb_web_facts *facts, uint32_t most);

#endif
