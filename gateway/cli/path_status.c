#include "gateway/cli/path_status.h"

#include "base/assert.h"

#include <errno.h>

enum tb_status tb_path_status(int error)
{
    TB_ASSERT(error > 0); /* the errno of a call that failed */
    switch (error) {
    case ENOENT:
    case ENOTDIR:
        return TB_NOT_FOUND;
    case EACCES:
    case EPERM:
    case EROFS:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
        return TB_BAD_ARGUMENT;
    default:
        return TB_SITE_IO;
    }
}
