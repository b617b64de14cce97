/* disk_io.h - all of the bytes, or an error: what a read or write of part of them
 * leaves undone is done. */
#ifndef TB_GATEWAY_DISK_DISK_IO_H
#define TB_GATEWAY_DISK_DISK_IO_H

#include <stdbool.h>
#include <stdint.h>

/* False: errno says why; 0 for a file that ends before. */
bool tb_disk_read(int fd, uint64_t at, uint64_t count, void *out);
bool tb_disk_write(int fd, uint64_t at, const void *bytes, uint64_t count);

#endif
