/* rights.h - who may publish a model or read it: deny by default (P8). Pure. */
#ifndef TB_DAEMON_RIGHTS_H
#define TB_DAEMON_RIGHTS_H

#include <stdbool.h>

#include "base/ident.h"
#include "gateway/config/config.h"

/* True when the identity's text equals the pattern, or the pattern ends in '*' and what stands
 * before it begins the text. "*" alone matches nobody: a pattern names at least a scheme ("unix:*",
 * "tombolo://east/worker/rank-*"). */
bool tb_rights_match(const char *pattern, const struct tb_identity *identity);

/* By the model's publish or read list; a model that is not configured is nobody's. */
bool tb_rights_may(const struct tb_config *config, const struct tb_name *model,
                   const struct tb_identity *identity, bool publish);
/* To whom a reader group belongs that this identity opens: to all of the model's `groups`, where
 * that list has it, else to the identity itself. */
void tb_rights_group_owner(const struct tb_config *config, const struct tb_name *model,
                           const struct tb_identity *identity, char owner_out[TB_URI_BYTES_MAX]);
/* May fence runs of the model that another identity opened. */
bool tb_rights_fence(const struct tb_config *config, const struct tb_name *model,
                     const struct tb_identity *identity);
/* A publisher that may sign versions of the model: any, where none is demanded. */
bool tb_rights_publisher(const struct tb_config *config, const struct tb_name *model,
                         const struct tb_identity *identity);
/* Some model. */
bool tb_rights_publishes(const struct tb_config *config, const struct tb_identity *identity);
/* Either, of some model. */
bool tb_rights_any(const struct tb_config *config, const struct tb_identity *identity);

#endif
