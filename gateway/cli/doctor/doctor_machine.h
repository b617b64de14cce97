/* doctor_machine.h - what facts of one machine mean for a gateway. Pure: each call judges facts
 * that others gathered (doctor_facts.h), and a fact that is not known is never fine. */
#ifndef TB_GATEWAY_CLI_DOCTOR_MACHINE_H
#define TB_GATEWAY_CLI_DOCTOR_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/cli/doctor/doctor_finding.h"

struct tb_clock_facts {
    bool known;
    bool synchronised; /* the kernel says so; a time service told it */
};
struct tb_finding tb_judge_clock(const struct tb_clock_facts *c);

struct tb_certificate_facts {
    const char *key, *path; /* of the configuration; its value */
    char who[160];          /* whom it is for */
    int64_t from_s, until_s, now_s;
};
struct tb_finding tb_judge_certificate(const struct tb_certificate_facts *c);

/* The third value of net.ipv4.tcp_wmem or tcp_rmem. */
struct tb_window_facts {
    const char *sysctl;
    uint64_t bytes;       /* 0: not known */
    uint64_t needs_bytes; /* as the gateway says of a link that it holds now; 0: of none */
};
struct tb_finding tb_judge_window(const struct tb_window_facts *w);

#define TB_CONGESTION_LIST_BYTES 160
struct tb_congestion_facts {
    char wish[32];                                                               /* link.congestion */
    char available[TB_CONGESTION_LIST_BYTES], allowed[TB_CONGESTION_LIST_BYTES]; /* empty: not known */
    bool other_user; /* the gateway's user may be another one than this process */
    bool may_all;    /* the gateway's user is root: what is available is allowed */
    double rtt_ms;   /* of the farthest link that is up; 0: not known */
};
struct tb_finding tb_judge_congestion(const struct tb_congestion_facts *c);

struct tb_huge_facts {
    bool in_memory;       /* the arena is on tmpfs or hugetlbfs */
    bool is_hugetlbfs;    /* of them the second */
    uint64_t arena_bytes; /* of a gateway that runs; 0: none does */
    uint64_t huge_bytes;  /* of them in huge pages */
    bool tried;           /* the kernel was asked for huge pages of a file in memory */
    uint64_t asked_bytes, given_bytes;
    char shmem[96]; /* /sys/kernel/mm/transparent_hugepage/shmem_enabled; empty: not known */
};
struct tb_finding tb_judge_huge_pages(const struct tb_huge_facts *h);

struct tb_memlock_facts {
    bool known;
    bool unlimited;
    uint64_t bytes;
    bool of_gateway; /* of the gateway that runs; else of this shell, and it says nothing of a unit's */
    bool pins;       /* RDMA pins the arena */
    uint64_t arena_bytes;
};
struct tb_finding tb_judge_memlock(const struct tb_memlock_facts *m);

struct tb_disk_facts {
    const char *key, *path;           /* of the configuration; its value */
    int error;                        /* errno of the look; 0: the rest is known */
    uint64_t free_bytes, total_bytes; /* free for the gateway's user */
    uint64_t needs_bytes;             /* with less free it is too small */
    bool read_only;
};
struct tb_finding tb_judge_disk(const struct tb_disk_facts *d);

struct tb_owner_facts {
    const char *path;
    int error; /* errno of the look */
    uint32_t owner, wanted;
    uint32_t mode;
    char owner_name[64], wanted_name[64];
};
struct tb_finding tb_judge_arena_owner(const struct tb_owner_facts *o);

#endif
