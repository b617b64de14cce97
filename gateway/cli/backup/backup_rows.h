/* backup_rows.h - tombolo backup and restore: their rows of the table, and their functions. */
#ifndef TB_CLI_BACKUP_ROWS_H
#define TB_CLI_BACKUP_ROWS_H

#include "gateway/cli/cli.h"

enum tb_cli_exit tb_cli_backup(const struct tb_cli_call *call);
enum tb_cli_exit tb_cli_restore(const struct tb_cli_call *call);

extern const struct tb_cli_option tb_cli_backup_options[], tb_cli_restore_options[];

#define TB_CLI_BACKUP_ROWS                                                                                   \
    {"backup",                                                                                               \
     "FILE",                                                                                                 \
     "write this site's store, configuration and keys into one file",                                        \
     "Asks the running gateway for a consistent copy of its store, and adds its configuration and the "      \
     "certificates and lists that it names. With --keys also tls.key, the files of disk.key and "            \
     "disk.key_old, and a ca.key that stands beside tls.key: the backup is then encrypted. It holds no "     \
     "weights, and no key that is a credential: of systemd. Run it as root or as the gateway's user. A "     \
     "store under disk.key is under it in the backup, too. The audit record has a row of each backup.",      \
     "tombolo backup east.backup --keys --key-file /root/backup.key",                                        \
     tb_cli_backup_options,                                                                                  \
     1,                                                                                                      \
     1,                                                                                                      \
     tb_cli_backup},                                                                                         \
        {"restore",                                                                                          \
         "FILE",                                                                                             \
         "put a backup onto this machine",                                                                   \
         "Reads all of FILE and checks it, then writes each file of it to the path that it came from. "      \
         "Paths outside of /etc/tombolo and /var/lib/tombolo are refused, or outside of --under DIR; so "    \
         "are links below it, and folders in which others may write. Nothing that is there is changed "      \
         "without --overwrite, which keeps it as NAME.before-restore and needs the gateway to be stopped. "  \
         "A backup that is not encrypted needs --in-clear: nothing proves that it is the one you made. "     \
         "Run as root it gives keys and the store to the user tombolo, and a ca.key to root. At its first "  \
         "start the gateway asks its "                                                                       \
         "peers which runs they remember, and goes on above them.",                                          \
         "tombolo restore east.backup --key-file /root/backup.key --dry-run",                                \
         tb_cli_restore_options,                                                                             \
         1,                                                                                                  \
         1,                                                                                                  \
         tb_cli_restore},

#endif
