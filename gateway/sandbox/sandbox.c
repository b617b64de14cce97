/* sandbox.c - see sandbox.h. */
#include "gateway/sandbox/sandbox.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#include "gateway/sandbox/system_call_filter.h"

static void lacks(struct tb_sandbox *s, const char *layer, const char *why)
{
    const size_t used = strlen(s->lacks);
    (void)snprintf(s->lacks + used, sizeof s->lacks - used, "%s%s: %s", used > 0 ? "; " : "", layer, why);
}

void tb_sandbox_enter(const struct tb_sandbox_path *paths, uint32_t count, struct tb_sandbox *sandbox_out)
{
    struct tb_sandbox s = {.wanted = true, .landlock_abi = tb_landlock_abi()};
    s.no_new_privileges = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
    if (!s.no_new_privileges) lacks(&s, "no_new_privileges", strerror(errno));
    enum tb_status status = tb_landlock_enter(paths, count); /* before the filter: it opens each path */
    s.landlock = status == TB_OK;
    if (status != TB_OK)
        lacks(&s, "landlock", status == TB_NOT_FOUND ? "this kernel has none" : strerror(errno));
    else if (s.landlock_abi < 6)
        lacks(&s, "landlock",
              s.landlock_abi < 3 ? "this kernel does not forbid that files are cut short, or signals"
                                 : "this kernel does not forbid signals");
    status = tb_filter_enter();
    s.filter = status == TB_OK;
    if (status != TB_OK)
        lacks(&s, "seccomp",
              !tb_filter_is_built()    ? "built without libseccomp"
              : status == TB_NOT_FOUND ? "this kernel has none"
                                       : strerror(errno));
    *sandbox_out = s;
}
