/* doctor_facts.c - see doctor_facts.h. */
#include "gateway/cli/doctor/doctor_facts.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/huge_pages.h"
#include "base/machine.h"
#include "base/system_calls.h"

#define PROC_IPV4       "/proc/sys/net/ipv4/"
#define SHMEM_ENABLED   "/sys/kernel/mm/transparent_hugepage/shmem_enabled"
#define TMPFS_MAGIC     0x01021994
#define HUGETLBFS_MAGIC 0x958458f6
#define TRIED_BYTES     (2 * TB_HUGE_BYTES)

void tb_doctor_clock_facts_read(struct tb_clock_facts *facts_out)
{
    struct timex t = {.modes = 0}; /* it asks, and sets nothing */
    const int state = adjtimex(&t);
    *facts_out = (struct tb_clock_facts){.known = state >= 0,
                                         .synchronised = state >= 0 && state != TIME_ERROR &&
                                                         (t.status & STA_UNSYNC) == 0};
}

void tb_doctor_congestion_facts_read(struct tb_congestion_facts *facts_out)
{
    (void)tb_machine_line(PROC_IPV4 "tcp_available_congestion_control", facts_out->available,
                          sizeof facts_out->available);
    (void)tb_machine_line(PROC_IPV4 "tcp_allowed_congestion_control", facts_out->allowed,
                          sizeof facts_out->allowed);
    facts_out->may_all = geteuid() == 0;
}

/* ---- huge pages ---- */

/* Of the mapping that begins at `at`. */
static uint64_t huge_bytes_at(uintptr_t at)
{
    char line[512];
    uint64_t sum = 0;
    bool ours = false;
    FILE *smaps = fopen("/proc/self/smaps", "re");
    if (smaps == NULL) return 0;
    while (fgets(line, sizeof line, smaps) != NULL) {
        char *end = line;
        const uint64_t first = strtoull(line, &end, 16);
        if (*end == '-') ours = first == at; /* the first line of a mapping: ADDRESS-ADDRESS */
        if (ours && strncmp(line, "ShmemPmdMapped:", 15) == 0) sum = strtoull(line + 15, NULL, 10) << 10;
    }
    (void)fclose(smaps);
    return sum;
}

/* A file in memory of this process alone, which goes with it. */
static void try_huge(struct tb_huge_facts *h)
{
    const int fd = tb_sys_memfd("tombolo-doctor", MFD_CLOEXEC);
    if (fd < 0) return;
    void *map = MAP_FAILED;
    if (tb_sys_ftruncate(fd, (off_t)TRIED_BYTES) == 0) {
        tb_huge_fill(fd, 0, TRIED_BYTES);
        map = tb_huge_map(fd, TRIED_BYTES);
    }
    if (map != MAP_FAILED) {
        tb_huge_touch(map, 0, TRIED_BYTES);
        h->tried = true;
        h->asked_bytes = TRIED_BYTES;
        h->given_bytes = huge_bytes_at((uintptr_t)map);
        (void)munmap(map, TRIED_BYTES);
    }
    (void)close(fd);
}

/* The folder that a file of that path is in. */
static void folder_of(const char *path, char *out, size_t cap)
{
    const char *slash = strrchr(path, '/');
    const int bytes = slash == NULL ? 0 : (int)(slash - path);
    (void)snprintf(out, cap, "%.*s", bytes, path);
    if (bytes == 0) (void)snprintf(out, cap, "%s", slash == NULL ? "." : "/");
}

void tb_doctor_huge_facts_read(const char *arena_path, struct tb_huge_facts *facts_out)
{
    char folder[4096];
    struct statfs fs;
    folder_of(arena_path, folder, sizeof folder);
    (void)tb_machine_line(SHMEM_ENABLED, facts_out->shmem, sizeof facts_out->shmem);
    if (statfs(folder, &fs) == 0) {
        facts_out->is_hugetlbfs = (uint32_t)fs.f_type == HUGETLBFS_MAGIC;
        facts_out->in_memory = facts_out->is_hugetlbfs || (uint32_t)fs.f_type == TMPFS_MAGIC;
    }
    if (facts_out->in_memory && !facts_out->is_hugetlbfs) try_huge(facts_out);
}

/* ---- locked memory ---- */

static void limit_of(int pid, struct tb_memlock_facts *m)
{
    static const char name[] = "Max locked memory";
    char path[64], line[256];
    (void)snprintf(path, sizeof path, "/proc/%d/comm", pid);
    /* The number of a container is another process's here. */
    if (!tb_machine_line(path, line, sizeof line) || strcmp(line, "tombolod") != 0) return;
    (void)snprintf(path, sizeof path, "/proc/%d/limits", pid);
    FILE *limits = fopen(path, "re");
    if (limits == NULL) return;
    while (fgets(line, sizeof line, limits) != NULL) {
        if (strncmp(line, name, sizeof name - 1) != 0) continue;
        const char *soft = line + sizeof name - 1 + strspn(line + sizeof name - 1, " ");
        char *end = NULL;
        m->unlimited = strncmp(soft, "unlimited", 9) == 0;
        m->bytes = strtoull(soft, &end, 10);
        m->known = m->unlimited || end != soft;
    }
    (void)fclose(limits);
}

void tb_doctor_memlock_facts_read(int pid, struct tb_memlock_facts *facts_out)
{
    struct rlimit limit;
    facts_out->of_gateway = pid > 0;
    if (pid > 0) {
        limit_of(pid, facts_out);
        return;
    }
    facts_out->known = getrlimit(RLIMIT_MEMLOCK, &limit) == 0;
    facts_out->unlimited = facts_out->known && limit.rlim_cur == RLIM_INFINITY;
    facts_out->bytes = facts_out->known ? (uint64_t)limit.rlim_cur : 0;
}

/* ---- files ---- */

void tb_doctor_disk_facts_read(const char *path, bool is_folder, struct tb_disk_facts *facts_out)
{
    char folder[4096];
    struct statvfs fs;
    if (is_folder)
        (void)snprintf(folder, sizeof folder, "%s", path);
    else
        folder_of(path, folder, sizeof folder);
    facts_out->path = path;
    facts_out->error = statvfs(folder, &fs) == 0 ? 0 : errno;
    if (facts_out->error != 0) return;
    facts_out->free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    facts_out->total_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
    facts_out->read_only = (fs.f_flag & ST_RDONLY) != 0;
}

static void name_of(uint32_t uid, char out[64])
{
    struct passwd row, *user = NULL;
    char room[1024];
    if (getpwuid_r(uid, &row, room, sizeof room, &user) != 0 || user == NULL)
        (void)snprintf(out, 64, "uid %u", uid);
    else
        (void)snprintf(out, 64, "%.60s", user->pw_name);
}

void tb_doctor_owner_facts_read(const char *path, uint32_t wanted, struct tb_owner_facts *facts_out)
{
    struct stat st;
    *facts_out = (struct tb_owner_facts){.path = path, .wanted = wanted};
    name_of(wanted, facts_out->wanted_name);
    facts_out->error = stat(path, &st) == 0 ? 0 : errno;
    if (facts_out->error != 0) return;
    facts_out->owner = st.st_uid;
    facts_out->mode = st.st_mode & 07777;
    name_of(st.st_uid, facts_out->owner_name);
}
