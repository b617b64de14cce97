/* subscribe_run.c - what a person or a script hears of a run of `tombolo subscribe`. */
#include "gateway/cli/versions/subscribe_run.h"

#include <inttypes.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"

enum tb_cli_exit tb_follow_failed(const struct tb_following *f, int status, const char *doing)
{
    TB_ASSERT(status != TB_OK);
    if (status == TB_TIMEOUT) return tb_say_failure(f->call, status, "%s: not within --timeout", doing);
    if (status == TB_CANCELLED) return tb_say_failure(f->call, status, "%s: interrupted", doing);
    return tb_say_failure(f->call, status, "%s: %s", doing, tb_last_error());
}

enum tb_cli_exit tb_follow_folder_failed(const struct tb_following *f, int status)
{
    TB_ASSERT(status != TB_OK);
    return tb_say_failure(f->call, status, "%s", f->folders.error.text);
}

void tb_follow_uid_text(const struct tb_uid *uid, char out[TB_HEX_CHARS])
{
    struct tb_id id;
    memcpy(id.bytes, uid->bytes, sizeof id.bytes);
    tb_id_format(&id, out);
}

enum tb_cli_exit tb_follow_say_there(const struct tb_following *f, const struct tb_taking *t)
{
    TB_ASSERT(t->path[0] == '/' && t->uid[0] != '\0');
    const struct tb_version_info *v = t->v;
    const double seconds = (double)tb_time_since(t->began, tb_clock_now()) / 1e9;
    json_t *fields =
        json_pack("{s:s, s:I, s:I, s:s, s:s, s:I, s:b, s:f}", "model", f->model, "run",
                  (json_int_t)v->run_order, "number", (json_int_t)v->number, "uid", t->uid, "folder", t->path,
                  "bytes", (json_int_t)v->bytes, "was_there", t->was_there, "seconds", seconds);
    return tb_say_result(f->call, fields,
                         t->was_there ? "%s %" PRIu64 ":%" PRIu64 " is in %s already: %s, %s"
                                      : "%s %" PRIu64 ":%" PRIu64 " is in %s: %s, %s",
                         f->model, v->run_order, v->number, t->path, tb_show_bytes(v->bytes).text,
                         tb_show_seconds(seconds).text);
}

void tb_follow_tell_full(struct tb_following *f)
{
    TB_ASSERT(f->follows && tb_folders_full(&f->folders));
    if (!f->full_told)
        (void)tb_say_failure(f->call, TB_SITE_IO, "%s; the follow waits until there is room",
                             f->folders.error.text);
    f->full_told = true;
}

void tb_follow_tell_room(struct tb_following *f)
{
    if (f->full_told)
        tb_say_note(f->call, "%s: there is room again, and the follow goes on", f->folders.path);
    f->full_told = false;
}
