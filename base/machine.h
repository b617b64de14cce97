/* machine.h - what the kernel says of this machine in files of a line, and how much of it is ours.
 * A shell. Any thread. */
#ifndef TB_BASE_MACHINE_H
#define TB_BASE_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Cores that this process may run on: at least 1; of a process whose affinity cannot be asked,
 * 1. */
uint32_t tb_cores_allowed(void);

#define TB_MACHINE_BOOT_ID "/proc/sys/kernel/random/boot_id"

/* The first line of a small file, without its newline, of cap - 1 bytes at most. False, and an
 * empty text: it cannot be read, or is empty. */
bool tb_machine_line(const char *path, char *line_out, size_t cap);

#endif
