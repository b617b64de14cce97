/* path_status.h - whose fault it is that a path somebody named cannot be opened. A core. */
#ifndef TB_GATEWAY_CLI_PATH_STATUS_H
#define TB_GATEWAY_CLI_PATH_STATUS_H

#include "tombolo/status.h"

/* By errno: TB_NOT_FOUND where it leads nowhere, TB_BAD_ARGUMENT where this user may not go there
 * or it is no path (both are the request's), else TB_SITE_IO. */
enum tb_status tb_path_status(int error);

#endif
