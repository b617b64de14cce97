/* library_faults.h - lets the allocations inside OpenSSL, libuv and c-ares fail with the point
 * `library` of base/fault.h.
 *
 * For main, before any of the three is called, and only where faults are asked for
 * (tb_fault_from_env). */
#ifndef TB_NET_LIBRARY_FAULTS_H
#define TB_NET_LIBRARY_FAULTS_H

void tb_net_library_faults(void);

#endif
