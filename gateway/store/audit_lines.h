/* audit_lines.h - the audit record as files of JSON lines, beside the table (`audit.file`): one
 * line for each row as it is written. Acts, versions and denials have a file each, so denials push
 * out no act here either.
 *
 * PATH has acts, PATH.versions and PATH.denials the others. A file that has half of its bytes, or
 * whose first line is older than half of the days, becomes NAME.1 and another one begins. NAME.1
 * goes when the next one takes its name, or once it is as old.
 *
 * Threads: one at a time. A line that cannot be written is lost here and told.
 * The table has it. */
#ifndef TB_STORE_AUDIT_LINES_H
#define TB_STORE_AUDIT_LINES_H

#include <stdbool.h>

#include "gateway/store/audit_record.h"
#include "tombolo/status.h"

struct tb_audit_lines;
#define TB_AUDIT_LINES_ERROR 256u

/* TB_SITE_STORE: error_out says why. `bytes` and `days` are those of the table. */
TB_MUST_USE enum tb_status tb_audit_lines_open(const char *path, uint64_t bytes, uint32_t days,
                                               struct tb_audit_lines **lines_out,
                                               char error_out[TB_AUDIT_LINES_ERROR]);
/* Would they open? The same looks; nothing is made or changed. */
TB_MUST_USE enum tb_status tb_audit_lines_check(const char *path, char error_out[TB_AUDIT_LINES_ERROR]);
void tb_audit_lines_close(struct tb_audit_lines *lines); /* NULL: nothing */
/* A row of the batch that is under way. */
void tb_audit_lines_put(struct tb_audit_lines *lines, const struct tb_audit_record *row, uint64_t now_ms);
/* The batch is on the disk, and so are its lines then; or it is not, and they are forgotten. */
void tb_audit_lines_end(struct tb_audit_lines *lines, bool saved);

#endif
