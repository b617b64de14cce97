/* demo_command.c - tombolo demo: becomes the script of the package, which stands beside the
 * programs in ../share/tombolo. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/cli/commands.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"
#include "gateway/cli/path_status.h"

#define FOLDER_MAX 3800

/* The folder of this program. */
static bool own_folder(char out[FOLDER_MAX])
{
    const ssize_t count = readlink("/proc/self/exe", out, FOLDER_MAX - 1);
    if (count <= 0 || count >= FOLDER_MAX - 1) return false;
    out[count] = '\0';
    char *slash = strrchr(out, '/');
    if (slash == NULL) return false;
    *slash = '\0';
    return true;
}

enum tb_cli_exit tb_cli_demo(const struct tb_cli_call *call)
{
    static const char *const names[] = {"versions", "every", "bytes"};
    char folder[FOLDER_MAX], script[FOLDER_MAX + 64], options[3][32];
    char *argv[8] = {script};
    int count = 1;
    if (!own_folder(folder)) return tb_say_failure(call, TB_SITE_IO, "/proc is not mounted");
    snprintf(script, sizeof script, "%s/../share/tombolo/demo", folder);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (!tb_cli_given(call, names[i])) continue;
        snprintf(options[i], sizeof options[i], "--%s", names[i]);
        argv[count++] = options[i];
        argv[count++] = (char *)(uintptr_t)tb_cli_text(call, names[i]);
    }
    if (setenv("TOMBOLO_BIN", folder, 1) != 0) return tb_say_failure(call, TB_SITE_NOMEM, "no memory");
    execv(script, argv);
    return tb_say_failure(call, tb_path_status(errno), "%s: %s: it comes with the package", script,
                          strerror(errno));
}
