/* doctor_facts.h - facts of this machine for doctor_machine.h to judge. A shell: it reads files and
 * asks the kernel, as the user that it runs as, and changes nothing. */
#ifndef TB_GATEWAY_CLI_DOCTOR_FACTS_H
#define TB_GATEWAY_CLI_DOCTOR_FACTS_H

#include "gateway/cli/doctor/doctor_machine.h"

void tb_doctor_clock_facts_read(struct tb_clock_facts *facts_out);
/* Of the congestion controls, but for `wish` and `rtt_ms`. */
void tb_doctor_congestion_facts_read(struct tb_congestion_facts *facts_out);
/* The kind of file system of that path, and whether the kernel gives huge pages now. */
void tb_doctor_huge_facts_read(const char *arena_path, struct tb_huge_facts *facts_out);
/* The soft limit of that process; 0: of this one. */
void tb_doctor_memlock_facts_read(int pid, struct tb_memlock_facts *facts_out);
/* Of the disk under a file, or under a folder. */
void tb_doctor_disk_facts_read(const char *path, bool is_folder, struct tb_disk_facts *facts_out);
/* Of a file, beside the user that it should belong to. */
void tb_doctor_owner_facts_read(const char *path, uint32_t wanted, struct tb_owner_facts *facts_out);

#endif
