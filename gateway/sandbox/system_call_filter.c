/* system_call_filter.c - see system_call_filter.h. A call that is not named here goes on as ever:
 * libraries of other releases use calls that nobody has seen yet. */
#include "gateway/sandbox/system_call_filter.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>

#define REFUSED SCMP_ACT_ERRNO(EPERM)

/* New programs and other processes' memory; the kernel's own state; ways around this filter. */
static const int refused[] = {
    SCMP_SYS(execve),
    SCMP_SYS(execveat),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(kcmp),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(keyctl),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(open_tree),
    SCMP_SYS(move_mount),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(reboot),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(acct),
    SCMP_SYS(quotactl),
    SCMP_SYS(syslog),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    SCMP_SYS(iopl),
    SCMP_SYS(ioperm),
    SCMP_SYS(modify_ldt),
    SCMP_SYS(personality),
    SCMP_SYS(mknod),
    SCMP_SYS(mknodat),
    SCMP_SYS(symlink),
    SCMP_SYS(symlinkat),
    SCMP_SYS(setxattr),
    SCMP_SYS(lsetxattr),
    SCMP_SYS(fsetxattr),
    SCMP_SYS(setuid),
    SCMP_SYS(setgid),
    SCMP_SYS(setreuid),
    SCMP_SYS(setregid),
    SCMP_SYS(setresuid),
    SCMP_SYS(setresgid),
    SCMP_SYS(setgroups),
    SCMP_SYS(capset),
};

/* AF_UNIX for workers, AF_INET and AF_INET6 for peers, AF_NETLINK for the list of interfaces. */
static const int families[] = {AF_UNIX, AF_INET, AF_INET6, AF_NETLINK};

static bool is_allowed(int family)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (families[i] == family) return true;
    return false;
}

static int refuse_families(scmp_filter_ctx filter)
{
    const uint32_t answer = SCMP_ACT_ERRNO(EAFNOSUPPORT);
    int error = seccomp_rule_add(filter, answer, SCMP_SYS(socket), 1, SCMP_A0_32(SCMP_CMP_GT, AF_NETLINK, 0));
    for (int family = 0; family < AF_NETLINK && error == 0; family++)
        if (!is_allowed(family))
            error = seccomp_rule_add(filter, answer, SCMP_SYS(socket), 1,
                                     SCMP_A0_32(SCMP_CMP_EQ, (uint32_t)family, 0));
    return error;
}

/* A thread is made, a process is not. clone3 hides its flags in memory: libraries that are told
 * that there is none use clone. LeakSanitizer looks at a process through another one, and traces
 * it. */
static int refuse_processes(scmp_filter_ctx filter)
{
    if (TB_SANITIZED) return 0;
    int error = seccomp_rule_add(filter, REFUSED, SCMP_SYS(ptrace), 0);
    if (error == 0) error = seccomp_rule_add(filter, REFUSED, SCMP_SYS(fork), 0);
    if (error == 0) error = seccomp_rule_add(filter, REFUSED, SCMP_SYS(vfork), 0);
    if (error == 0) error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (error == 0)
        error = seccomp_rule_add(filter, REFUSED, SCMP_SYS(clone), 1,
                                 SCMP_A0_32(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
    return error;
}

static int fill(scmp_filter_ctx filter)
{
    int error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 1);
    if (error == 0) error = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0] && error == 0; i++)
        error = seccomp_rule_add(filter, REFUSED, refused[i], 0);
    if (error == 0) error = refuse_families(filter);
    if (error == 0) error = refuse_processes(filter);
    return error;
}

bool tb_filter_is_built(void)
{
    return true;
}

enum tb_status tb_filter_enter(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL) return TB_NOT_FOUND;
    int error = fill(filter);
    if (error == 0) error = seccomp_load(filter);
    seccomp_release(filter);
    if (error == 0) return TB_OK;
    errno = -error;
    return errno == EINVAL || errno == ENOSYS ? TB_NOT_FOUND : TB_SITE_IO;
}
