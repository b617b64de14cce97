/* denied_readv.h - a kernel that lets nobody read another process's memory, as inside the sandbox
 * of a gateway. Linked with --wrap=process_vm_readv. */
#ifndef TB_TESTS_INTRA_DENIED_READV_H
#define TB_TESTS_INTRA_DENIED_READV_H

#include <stdbool.h>

extern bool readv_denied; /* set while no fabric is open */

#endif
