/* system_call_filter.h - a seccomp filter over this process: calls that a gateway never needs are
 * refused with EPERM. Every thread gets it, and keeps it. */
#ifndef TB_GATEWAY_SANDBOX_SYSTEM_CALL_FILTER_H
#define TB_GATEWAY_SANDBOX_SYSTEM_CALL_FILTER_H

#include <stdbool.h>

#include "tombolo/status.h"

/* Whether this build has libseccomp. */
bool tb_filter_is_built(void);
/* no-new-privileges is set before. TB_NOT_FOUND: this build or this kernel has none.
 * TB_SITE_IO: errno says why. */
TB_MUST_USE enum tb_status tb_filter_enter(void);

#endif
