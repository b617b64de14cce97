/* private_file.h - whether a file that is open is ours alone, asked of its descriptor: a name may
 * lead elsewhere by then. Threads: any. */
#ifndef TB_BASE_PRIVATE_FILE_H
#define TB_BASE_PRIVATE_FILE_H

#include <stdbool.h>
#include <sys/stat.h>

#define TB_PRIVATE_WHY_BYTES 160

/* A regular file of this process's user, for its user alone. False: why_out says what it is. */
bool tb_private_file(int fd, char why_out[TB_PRIVATE_WHY_BYTES]);
/* The same of what fstat said of an open file. */
bool tb_private_stat(const struct stat *st, char why_out[TB_PRIVATE_WHY_BYTES]);
/* A regular file of this process's user or of root, which its group reads at most: as systemd gives
 * a credential to a service, by an ACL that shows as the group's right. */
bool tb_credential_file(int fd, char why_out[TB_PRIVATE_WHY_BYTES]);
/* A folder of this process's user, in which nobody else writes. */
bool tb_private_folder(int fd, char why_out[TB_PRIVATE_WHY_BYTES]);
/* Whether a file of that name could be made: its folder is there, and this process may write in it.
 * False: errno. */
bool tb_private_can_make(const char *path);
/* A regular file of this process's user or of root, which not everybody writes. */
bool tb_trusted_file(int fd, char why_out[TB_PRIVATE_WHY_BYTES]);

#endif
