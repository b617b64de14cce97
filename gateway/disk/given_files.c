/* given_files.c - see given_files.h. */
#include "gateway/disk/given_files.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/disk/folder_walk.h"

struct gathering {
    struct tb_given_files *given;
    char *error;
};

enum tb_status tb_given_add(struct tb_given_files *given, const char *name, int fd)
{
    TB_ASSERT(given->count <= TB_GIVEN_FILES_MAX);
    char *copy = NULL;
    enum tb_status s =
        given->count < TB_GIVEN_FILES_MAX && strlen(name) < TB_GIVEN_NAME_BYTES ? TB_OK : TB_TOO_LARGE;
    if (s == TB_OK && (copy = tb_strdup(name)) == NULL) s = TB_SITE_NOMEM;
    if (s == TB_OK)
        given->files[given->count++] = (struct tb_given_file){copy, fd};
    else
        (void)close(fd);
    return s;
}

static enum tb_status on_file(void *user, const char *name, int fd, const struct stat *st)
{
    struct gathering *g = user;
    if (!S_ISREG(st->st_mode)) {
        (void)close(fd);
        return TB_OK; /* neither file nor folder: not ours */
    }
    const enum tb_status s = tb_given_add(g->given, name, fd);
    if (s == TB_TOO_LARGE)
        (void)snprintf(g->error, TB_WALK_ERROR_BYTES, "%.300s: more than %d files, or a name over %d bytes",
                       name, TB_GIVEN_FILES_MAX, TB_GIVEN_NAME_BYTES);
    if (s == TB_SITE_NOMEM) (void)snprintf(g->error, TB_WALK_ERROR_BYTES, "no memory for the list of files");
    return s;
}

enum tb_status tb_given_open(const char *folder, const char *links, struct tb_given_files *given_out,
                             char error_out[512])
{
    given_out->count = 0;
    struct gathering g = {.given = given_out, .error = error_out};
    const struct tb_walk walk = {
        .path = folder, .links = links, .depth_max = TB_GIVEN_DEPTH_MAX, .on_file = on_file, .user = &g};
    enum tb_status s = tb_folder_walk(&walk, error_out);
    if (s == TB_OK && given_out->count == 0) {
        (void)snprintf(error_out, TB_WALK_ERROR_BYTES, "%.300s: no file is in it", folder);
        s = TB_NOT_FOUND;
    }
    if (s != TB_OK) tb_given_close(given_out);
    return s;
}

void tb_given_close(struct tb_given_files *given)
{
    for (uint32_t i = 0; i < given->count; i++) {
        tb_free(given->files[i].name);
        if (given->files[i].fd >= 0) (void)close(given->files[i].fd);
    }
    given->count = 0;
}
