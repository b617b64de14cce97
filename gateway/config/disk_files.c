/* disk_files.c - see disk_files.h. P3: a start whose keys do not fit ends, and changes no file. */
#include "gateway/config/disk_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/system_calls.h"
#include "gateway/disk/anchor_file.h"
#include "gateway/disk/anchor_folder.h"
#include "gateway/disk/disk_seal.h"
#include "gateway/store/store.h"

static enum tb_status key_read(const char *name, const char *text, struct tb_disk_key **key_out,
                               struct tb_disk_problem *problem_out)
{
    char error[TB_DISK_KEY_ERROR_BYTES] = "";
    const enum tb_status status = tb_disk_key_read(text, key_out, error);
    if (status == TB_OK) return TB_OK;
    problem_out->key = name;
    (void)snprintf(problem_out->text, sizeof problem_out->text, "%s: %s", name, error);
    return status;
}

enum tb_status tb_disk_files_read(const struct tb_config *c, struct tb_disk_files *files_out,
                                  struct tb_disk_problem *problem_out)
{
    struct tb_disk_files *f = files_out;
    enum tb_status status = TB_OK;
    *f = (struct tb_disk_files){.keys.has_old = c->disk_key_old != NULL};
    if (c->disk_key != NULL) status = key_read("disk.key", c->disk_key, &f->key, problem_out);
    if (status != TB_OK) return status;
    if (c->disk_key_old != NULL && strcmp(c->disk_key_old, TB_DISK_KEY_PLAIN) != 0)
        status = key_read("disk.key_old", c->disk_key_old, &f->old, problem_out);
    if (status != TB_OK) return status;
    f->keys.key = f->key;
    f->keys.old = f->old;
    return TB_OK;
}

static enum tb_status judge(struct tb_disk_files *f, const char *path, const struct tb_disk_look *look,
                            struct tb_disk_problem *problem_out)
{
    f->old_count += look->found == TB_DISK_OLD ? 1 : 0;
    if (look->found != TB_DISK_OTHER && look->found != TB_DISK_UNREAD) return TB_OK;
    (void)snprintf(problem_out->text, sizeof problem_out->text, "%s: %.400s: %.200s", problem_out->key, path,
                   look->found == TB_DISK_OTHER ? look->why : strerror(errno));
    return TB_SITE_CONFIG;
}

/* The start says more about a store that cannot be opened. */
static enum tb_status store_look(const struct tb_config *c, struct tb_disk_files *f,
                                 struct tb_disk_problem *problem_out)
{
    problem_out->key = "store.path";
    const int fd = tb_sys_open(c->store_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
    if (fd < 0) return TB_OK;
    const struct tb_disk_look look = tb_disk_look(fd, TB_SEAL_STORE, TB_STORE_MAGIC, &f->keys);
    const enum tb_status status = judge(f, c->store_path, &look, problem_out);
    (void)close(fd);
    return status;
}

static enum tb_status anchors_look(const struct tb_config *c, struct tb_disk_files *f,
                                   const struct tb_name *model, struct tb_disk_problem *problem_out)
{
    const struct tb_anchor_folder folder = {.path = c->anchor_dir, .fd = -1};
    struct tb_anchor_which at = {.any = false};
    char path[TB_ANCHOR_PATH_BYTES];
    while (tb_anchor_folder_older(&folder, model, &at, path)) {
        const struct tb_disk_look look = tb_anchor_look(path, &f->keys);
        if (look.found == TB_DISK_UNREAD) continue; /* an older one may do: the start says why */
        const enum tb_status status = judge(f, path, &look, problem_out);
        if (status != TB_OK) return status;
    }
    return TB_OK;
}

enum tb_status tb_disk_files_look(const struct tb_config *c, struct tb_disk_files *f,
                                  struct tb_disk_problem *problem_out)
{
    TB_ASSERT((c->disk_key != NULL) == (f->keys.key != NULL)); /* they were read */
    enum tb_status status = store_look(c, f, problem_out);
    if (status != TB_OK || c->anchor_dir == NULL) return status;
    problem_out->key = "anchor.dir";
    for (uint32_t i = 0; status == TB_OK && i < c->model_count; i++)
        if (!c->models[i].is_pattern) status = anchors_look(c, f, &c->models[i].name, problem_out);
    return status;
}

void tb_disk_files_close(struct tb_disk_files *f)
{
    tb_disk_key_free(f->key);
    tb_disk_key_free(f->old);
    *f = (struct tb_disk_files){.old_count = 0};
}
