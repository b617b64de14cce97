/* withdrawn_folders.c - the versions in DIR that an operator withdrew after they came: each
 * folder is asked about, marked, and `latest` names another. */
#include <inttypes.h>
#include <string.h>

#include "base/allocate.h"
#include "base/assert.h"
#include "gateway/cli/versions/bundle.h"
#include "gateway/cli/versions/subscribe_run.h"

bool tb_withdrawn_folders_has(const struct tb_following *f, const struct tb_uid *uid)
{
    return tb_wait_site(f->session, uid, NULL, TB_SITE_HOLDS, 0) == TB_VERSION_WITHDRAWN;
}

void tb_withdrawn_folders_list(struct tb_following *f)
{
    tb_free(f->entries);
    f->entries = NULL;
    f->entry_count = 0;
    f->entry_at = 0;
    /* On failure no folder is asked about until the next version came. */
    if (tb_folders_list(&f->folders, f->model, &f->entries, &f->entry_count) != TB_OK) f->entries = NULL;
    TB_ASSERT(f->entries != NULL || f->entry_count == 0);
}

/* `latest` names no withdrawn version: the newest one that stands takes its place, and
 * without one the link goes. */
static void link_newest(struct tb_following *f)
{
    TB_ASSERT(f->follows); /* without --follow there is no `latest` of ours */
    const char *name = NULL;
    for (uint32_t i = 0; i < f->entry_count && name == NULL; i++)
        if (!f->entries[i].withdrawn) name = f->entries[i].name;
    const enum tb_status s = tb_folder_latest(&f->folders, name);
    if (s != TB_OK) (void)tb_follow_folder_failed(f, s);
}

static void mark_withdrawn(struct tb_following *f, struct tb_folder_entry *entry)
{
    TB_ASSERT(entry >= f->entries && entry < f->entries + f->entry_count && !entry->withdrawn);
    const enum tb_status s = tb_folder_withdraw(&f->folders, entry->name, TB_WITHDRAWN_WHY);
    if (s != TB_OK && s != TB_DONE_BEFORE) {
        if (!tb_folders_full(&f->folders)) (void)tb_follow_folder_failed(f, s);
        return; /* it is asked about again */
    }
    entry->withdrawn = true;
    (void)tb_say_failure(f->call, TB_VERSION_WITHDRAWN,
                         "%s %" PRIu64 ":%" PRIu64 " was withdrawn: %s/%s has " TB_BUNDLE_WITHDRAWN " now",
                         f->model, entry->marker.run, entry->marker.number, f->folders.path, entry->name);
    if (f->follows) link_newest(f);
}

static void ask_about(struct tb_following *f, uint32_t at)
{
    TB_ASSERT(at < f->entry_count);
    struct tb_folder_entry *entry = &f->entries[at];
    struct tb_id id;
    struct tb_uid uid;
    if (entry->withdrawn || !tb_id_parse(entry->marker.uid, &id)) return;
    memcpy(uid.bytes, id.bytes, sizeof uid.bytes);
    if (tb_withdrawn_folders_has(f, &uid)) mark_withdrawn(f, entry);
}

void tb_withdrawn_folders_ask_next(struct tb_following *f)
{
    if (f->entry_count == 0) return;
    TB_ASSERT(f->entry_at < f->entry_count);
    f->entry_at = (f->entry_at + 1) % f->entry_count;
    ask_about(f, f->entry_at);
}

void tb_withdrawn_folders_ask_all(struct tb_following *f)
{
    tb_withdrawn_folders_list(f);
    for (uint32_t i = 0; i < f->entry_count && !tb_signals_caught(); i++)
        ask_about(f, i);
}
