/* sandbox_paths.c - which paths a configuration needs. A rule names a file as it is now, so files
 * that are replaced by renaming (certificates, the configuration) are reached by their folder. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/system_calls.h"
#include "gateway/config/config.h"
#include "gateway/sandbox/sandbox.h"

#define PATHS_MAX (64u + 4u * (2u * TB_CONFIG_LIST_MAX + 8u))

struct list {
    struct tb_sandbox_path *paths;
    uint32_t count;
};

/* Libraries, what they read, the kernel's own files, and devices. /proc and /sys are named by their
 * roots: the kernel makes their files anew at each look. Landlock hides other processes' memory. */
static const struct {
    const char *path;
    enum tb_sandbox_access access;
} always[] = {
    {"/lib", TB_SANDBOX_READ},
    {"/lib64", TB_SANDBOX_READ},
    {"/usr/lib", TB_SANDBOX_READ},
    {"/usr/lib64", TB_SANDBOX_READ},
    {"/usr/local/lib", TB_SANDBOX_READ},
    {"/etc/ld.so.cache", TB_SANDBOX_READ},
    {"/etc/libibverbs.d", TB_SANDBOX_READ},
    {"/etc/ssl/openssl.cnf", TB_SANDBOX_READ},
    {"/etc/passwd", TB_SANDBOX_READ},
    {"/etc/hosts", TB_SANDBOX_READ},
    {"/etc/host.conf", TB_SANDBOX_READ},
    {"/etc/nsswitch.conf", TB_SANDBOX_READ},
    {"/etc/resolv.conf", TB_SANDBOX_READ},
    {"/etc/services", TB_SANDBOX_READ},
    {"/etc/svc.conf", TB_SANDBOX_READ},
    {"/etc/localtime", TB_SANDBOX_READ},
    {"/proc", TB_SANDBOX_READ},
    {"/sys", TB_SANDBOX_READ},
    {"/dev/null", TB_SANDBOX_WRITE},
    {"/dev/zero", TB_SANDBOX_READ},
    {"/dev/random", TB_SANDBOX_READ},
    {"/dev/urandom", TB_SANDBOX_READ},
    {"/dev/infiniband", TB_SANDBOX_WRITE},
};

static void add(struct list *l, const char *path, enum tb_sandbox_access access)
{
    TB_ASSERT(l->count < PATHS_MAX);
    struct tb_sandbox_path *p = &l->paths[l->count];
    p->access = access;
    if (snprintf(p->path, sizeof p->path, "%s", path) < (int)sizeof p->path) l->count++;
}

static void add_folder_of(struct list *l, const char *path, enum tb_sandbox_access access)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        add(l, ".", access);
    else if (snprintf(folder, sizeof folder, "%.*s", slash == path ? 1 : (int)(slash - path), path) <
             (int)sizeof folder)
        add(l, folder, access);
}

/* Where the file is named, and where links lead: a renewed certificate changes either. */
static void add_read(struct list *l, const char *path)
{
    char real[PATH_MAX];
    if (path == NULL) return;
    add_folder_of(l, path, TB_SANDBOX_READ);
    if (realpath(path, real) != NULL) add_folder_of(l, real, TB_SANDBOX_READ);
}

/* The open checks owner, mode and kind later; here it is only there. */
static void make_file(const char *path)
{
    const int fd = tb_sys_open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) (void)close(fd);
}

static void add_config(struct list *l, const struct tb_config *c)
{
    make_file(c->arena_path);
    add(l, c->arena_path, TB_SANDBOX_WRITE);
    add_folder_of(l, c->store_path, TB_SANDBOX_FOLDER); /* SQLite makes files beside it */
    if (c->audit_file != NULL) add_folder_of(l, c->audit_file, TB_SANDBOX_FOLDER); /* files turn */
    if (c->anchor_dir != NULL) {
        (void)mkdir(c->anchor_dir, 0700);
        add(l, c->anchor_dir, TB_SANDBOX_FOLDER);
    }
    add_folder_of(l, c->control_socket, TB_SANDBOX_SOCKETS);
    if (c->control_read != NULL) add_folder_of(l, c->control_read, TB_SANDBOX_SOCKETS);
    add_folder_of(l, c->session_socket, TB_SANDBOX_SOCKETS);
    add_read(l, c->tls_ca);
    add_read(l, c->tls_cert);
    add_read(l, c->tls_key);
    add_read(l, c->tls_revoked);
    add_read(l, c->tls_spiffe);
    for (uint32_t i = 0; i < c->peer_count; i++)
        add_read(l, c->peers[i].ca);
    for (uint32_t i = 0; i < c->model_count; i++)
        add_read(l, c->models[i].home_ca);
}

enum tb_status tb_sandbox_paths(const struct tb_config *config, const char *config_path,
                                struct tb_sandbox_path **paths_out, uint32_t *count_out)
{
    struct list l = {.paths = tb_calloc(PATHS_MAX, sizeof *l.paths)};
    if (l.paths == NULL) return TB_SITE_NOMEM;
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        add(&l, always[i].path, always[i].access);
    char self[PATH_MAX];
    const ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    self[bytes > 0 ? bytes : 0] = '\0';
    if (bytes > 0) add(&l, self, TB_SANDBOX_READ);
    add_read(&l, config_path);
    add_config(&l, config);
    *paths_out = l.paths;
    *count_out = l.count;
    return TB_OK;
}
