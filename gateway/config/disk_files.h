/* disk_files.h - what `disk.key` and `disk.key_old` make of a gateway's files: the keys are read,
 * and the store and the anchors are looked at, before anything is opened or changed. A shell. */
#ifndef TB_DAEMON_DISK_FILES_H
#define TB_DAEMON_DISK_FILES_H

#include "gateway/config/config.h"
#include "gateway/disk/disk_key.h"

struct tb_disk_files {
    struct tb_disk_key *key, *old;
    struct tb_disk_keys keys; /* of both */
    uint32_t old_count;       /* tb_disk_files_look: files that are as disk.key_old says */
};

struct tb_disk_problem {
    const char *key; /* of the configuration, static: "disk.key", "store.path" */
    char text[700];
};

/* Before the sandbox: nothing reads a key later. TB_SITE_CONFIG: problem_out says why;
 * TB_SITE_NOMEM, which it says, too. Either way tb_disk_files_close may follow. */
TB_MUST_USE enum tb_status tb_disk_files_read(const struct tb_config *config, struct tb_disk_files *files_out,
                                              struct tb_disk_problem *problem_out);
/* Reads the first bytes of each file, and changes nothing. TB_SITE_CONFIG: one is under none of the
 * keys, or cannot be read. */
TB_MUST_USE enum tb_status tb_disk_files_look(const struct tb_config *config, struct tb_disk_files *files,
                                              struct tb_disk_problem *problem_out);
/* Every user of the keys has ended. */
void tb_disk_files_close(struct tb_disk_files *files);

#endif
