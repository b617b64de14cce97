/* config.c - a file becomes a config, or complaints. */
#include "gateway/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "base/private_file.h"
#include "base/system_calls.h"
#include "gateway/config/config_read.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)

static void read_tree(struct config_reading *r, const struct config_tree *tree)
{
    TB_ASSERT(tree->root != NULL && tree->root->kind == CONFIG_MAP);
    r->root = tree->root;
    tb_config_walk(r);
    if (!r->runs) tb_config_check(r);
    if (r->warn != NULL) tb_config_keep_places(r, tree->root, "");
}

static enum tb_status read_text(struct config_reading *r, const char *text, size_t bytes)
{
    struct config_tree tree;
    struct config_problem problem;
    const enum tb_status status = tb_config_tree_read(text, bytes, &tree, &problem);
    if (status == TB_SITE_CONFIG) tb_config_complain_at(r, problem.line, problem.column, problem.text);
    if (status == TB_OK) read_tree(r, &tree);
    tb_config_tree_free(&tree);
    if (status != TB_OK) return status;
    if (r->nomem) return TB_SITE_NOMEM;
    return r->complaints > 0 ? TB_SITE_CONFIG : TB_OK;
}

static enum tb_status read_config(struct config_reading *r, const char *text, size_t bytes,
                                  struct tb_config **config_out)
{
    TB_ASSERT(r->config == NULL && r->complaints == 0);
    r->config = tb_config_new();
    if (r->config == NULL) return TB_SITE_NOMEM;
    const enum tb_status status = read_text(r, text, bytes);
    if (status == TB_OK)
        *config_out = r->config;
    else
        tb_config_free(r->config);
    return status;
}

enum tb_status tb_config_parse(const char *name, const char *text, size_t bytes,
                               tb_config_complain_fn complain_fn, void *user, struct tb_config **config_out)
{
    struct config_reading r = {.name = name, .complain = complain_fn, .user = user};
    return read_config(&r, text, bytes, config_out);
}

enum tb_status tb_config_parse_running(const char *text, size_t bytes, tb_config_complain_fn complain_fn,
                                       void *user, struct tb_config **config_out)
{
    struct config_reading r = {.name = "running", .complain = complain_fn, .user = user, .runs = true};
    return read_config(&r, text, bytes, config_out);
}

/* Up to FILE_BYTES_MAX + 1 bytes: one more shows that it is too large. */
static ssize_t read_file(const struct config_reading *r, const char *path, char *text,
                         char why_out[TB_PRIVATE_WHY_BYTES])
{
    const int fd = tb_sys_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0); /* a FIFO has no end */
    if (fd < 0) return -1;
    if (r->warn == NULL && !tb_trusted_file(fd, why_out)) { /* a person who only asks may be another user */
        close(fd);
        return -1;
    }
    size_t used = 0;
    ssize_t got = 1;
    while (got > 0 && used <= FILE_BYTES_MAX) {
        got = tb_sys_pread(fd, text + used, FILE_BYTES_MAX + 1 - used, (off_t)used);
        if (got > 0) used += (size_t)got;
        TB_ASSERT(used <= FILE_BYTES_MAX + 1);
    }
    const int error = errno;
    close(fd);
    errno = error;
    return got < 0 ? -1 : (ssize_t)used;
}

static enum tb_status load(struct config_reading *r, const char *path, struct tb_config **config_out)
{
    char *text = tb_malloc(FILE_BYTES_MAX + 1);
    if (text == NULL) return TB_SITE_NOMEM;
    char why[TB_PRIVATE_WHY_BYTES] = "";
    const ssize_t bytes = read_file(r, path, text, why);
    enum tb_status status = TB_SITE_CONFIG;
    if (bytes < 0)
        tb_config_complain_at(r, 1, 1, why[0] != '\0' ? why : strerror(errno));
    else if ((size_t)bytes > FILE_BYTES_MAX)
        tb_config_complain_at(r, 1, 1, "the file is larger than 1 MiB");
    else
        status = read_config(r, text, (size_t)bytes, config_out);
    tb_free(text);
    return status;
}

enum tb_status tb_config_load(const char *path, tb_config_complain_fn complain_fn, void *user,
                              struct tb_config **config_out)
{
    struct config_reading r = {.name = path, .complain = complain_fn, .user = user, .look_at_files = true};
    return load(&r, path, config_out);
}

enum tb_status tb_config_load_running(const char *path, tb_config_complain_fn complain_fn, void *user,
                                      struct tb_config **config_out)
{
    struct config_reading r = {.name = path, .complain = complain_fn, .user = user};
    return load(&r, path, config_out);
}

enum tb_status tb_config_load_warned(const char *path, tb_config_complain_fn complain_fn,
                                     tb_config_complain_fn warn, void *user, struct tb_config **config_out)
{
    struct config_reading r = {
        .name = path, .complain = complain_fn, .warn = warn, .user = user, .look_at_files = true};
    return load(&r, path, config_out);
}
