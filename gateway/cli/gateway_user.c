/* gateway_user.c - see gateway_user.h. */
#include "gateway/cli/gateway_user.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool folder_of(const char *path, struct stat *st_out)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    const int bytes = slash == NULL ? 0 : (int)(slash - path);
    if (bytes >= (int)sizeof folder) return false;
    (void)snprintf(folder, sizeof folder, "%.*s", bytes, path);
    if (bytes == 0) (void)snprintf(folder, sizeof folder, "%s", slash == NULL ? "." : "/");
    return stat(folder, st_out) == 0;
}

bool tb_cli_be_gateway(const char *store_path, char name_out[TB_CLI_USER_BYTES])
{
    struct stat st;
    struct passwd row, *user = NULL;
    char room[1024];
    name_out[0] = '\0';
    /* A folder that is not there is for the check to say. */
    if (geteuid() != 0 || !folder_of(store_path, &st) || st.st_uid == 0) return true;
    if (getpwuid_r(st.st_uid, &row, room, sizeof room, &user) != 0) user = NULL;
    const gid_t group = user != NULL ? user->pw_gid : st.st_gid;
    const int groups = user != NULL ? initgroups(user->pw_name, group) : setgroups(1, &group);
    if (groups != 0 || setegid(group) != 0 || seteuid(st.st_uid) != 0) return false;
    if (user != NULL)
        (void)snprintf(name_out, TB_CLI_USER_BYTES, "%s", user->pw_name);
    else
        (void)snprintf(name_out, TB_CLI_USER_BYTES, "uid %u", (unsigned)st.st_uid);
    return true;
}

const char *tb_cli_gateway_unknown(const char *store_path, bool runs)
{
    struct stat st;
    struct passwd row, *user = NULL;
    char room[1024];
    if (!folder_of(store_path, &st)) return "the folder of store.path is not there";
    if (runs || geteuid() != 0 || st.st_uid != 0) return NULL;
    if (getpwnam_r("tombolo", &row, room, sizeof room, &user) != 0 || user == NULL) return NULL;
    return "the folder of store.path belongs to root, and the unit's gateway runs as tombolo";
}
