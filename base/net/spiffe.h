/* spiffe.h - certificates of a platform that gives SPIFFE URIs alone: which identity of ours each
 * of them has. A list in a file, a line each; in each line a '*' ends both words or none.
 *
 *   spiffe://prod.example/ns/rl/sa/trainer      tombolo://east/worker/trainer
 *   spiffe://prod.example/ns/rl/sa/rollout-*    tombolo://east/worker/rollout-*
 *
 * A '*' is one or more characters of a name (base/ident.h), the same ones on both sides. The first
 * line that fits counts. Text behind the second word is for people, and so is a line that begins
 * with '#'. A line that is none of these refuses the whole file: the next one could fit instead.
 *
 * Read-only after it is made; any thread. */
#ifndef TB_BASE_NET_SPIFFE_H
#define TB_BASE_NET_SPIFFE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/digest.h"
#include "base/ident.h"
#include "tombolo/status.h"

#define TB_SPIFFE_MAX       1024u      /* lines */
#define TB_SPIFFE_FILE_MAX  (1u << 20) /* bytes */
#define TB_SPIFFE_BYTES_MAX 512u       /* of a URI, with its end */

struct tb_spiffe;

/* spiffe://TRUST-DOMAIN/PATH, as the SPIFFE ID standard has it; one without a path names no
 * program. */
bool tb_spiffe_valid(const char *uri);
/* TB_BAD_FILE: *line_out is none of ours; TB_TOO_LARGE: more than TB_SPIFFE_MAX; TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_spiffe_parse(const char *text, size_t bytes, struct tb_spiffe **list_out,
                                           uint32_t *line_out);
/* From a file. `error_out` gets a sentence with its name. TB_SITE_CONFIG, TB_SITE_NOMEM. */
TB_MUST_USE enum tb_status tb_spiffe_read(const char *path, struct tb_spiffe **list_out, char error_out[256]);
void tb_spiffe_free(struct tb_spiffe *list);

/* TB_NOT_FOUND: no line fits; list NULL has none. */
TB_MUST_USE enum tb_status tb_spiffe_identity(const struct tb_spiffe *list, const char *uri,
                                              struct tb_identity *identity_out);
uint32_t tb_spiffe_count(const struct tb_spiffe *list);
/* Equal lists have equal ones. */
struct tb_digest tb_spiffe_digest(const struct tb_spiffe *list);

#endif
