/* publish_run.c - see publish_run.h. */
#include "gateway/cli/versions/publish_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/digest.h"
#include "base/ident.h"
#include "gateway/cli/options.h"
#include "gateway/cli/output.h"

#define KEY_CHARS 64

static const char *key_of(const struct tb_publish_run *r)
{
    return tb_cli_text(r->call, "run");
}

static bool starts(const struct tb_publish_run *r)
{
    return tb_cli_given(r->call, "new-run");
}

/* By names, sizes and times: the bytes are not read for it. */
static void make_key(const struct tb_publish_run *r, char key_out[KEY_CHARS])
{
    struct tb_digest_state state;
    struct tb_id id;
    tb_digest_begin(&state);
    tb_digest_update(&state, &r->number, sizeof r->number);
    for (uint32_t i = 0; i < r->bundle->file_count; i++) {
        const struct tb_bundle_file *f = &r->bundle->files[i];
        tb_digest_update(&state, f->name, strlen(f->name) + 1);
        tb_digest_update(&state, &f->count, sizeof f->count);
        tb_digest_update(&state, &f->changed_ns, sizeof f->changed_ns);
    }
    const struct tb_digest digest = tb_digest_end(&state);
    memcpy(id.bytes, digest.bytes, sizeof id.bytes);
    (void)snprintf(key_out, KEY_CHARS, "tombolo-");
    TB_ASSERT(strlen(key_out) + TB_HEX_CHARS <= KEY_CHARS);
    tb_id_format(&id, key_out + strlen(key_out));
}

static int join_or_start(struct tb_publish_run *r)
{
    char made[KEY_CHARS];
    const char *model = r->call->arguments[0];
    const char *key = key_of(r);
    make_key(r, made);
    TB_ASSERT(r->call->argument_count > 0);
    memset(&r->info, 0, sizeof r->info);
    r->info.struct_bytes = sizeof r->info;
    if (starts(r)) return tb_run_open(r->session, model, key != NULL ? key : made, &r->info);
    if (key != NULL) return tb_run_join(r->session, model, key, &r->info);
    const int status = tb_run_join(r->session, model, "", &r->info);
    return status == TB_NOT_FOUND ? tb_run_join(r->session, model, made, &r->info) : status;
}

static enum tb_cli_exit not_opened(const struct tb_publish_run *r, int status)
{
    TB_ASSERT(status != TB_OK);
    const char *hint = "";
    if (status == TB_BAD_STATE)
        hint = "; --new-run starts a run with this key, and shuts that one out";
    else if (status == TB_FENCED && key_of(r) == NULL)
        hint = "; these files started that run before: --run KEY --new-run starts another";
    return tb_say_failure(r->call, status, "opening the run: %s%s", tb_last_error(), hint);
}

/* The number that a new one has to be above: of the run, or of the run before while a trainer has
 * only opened its own. */
static bool newest(const struct tb_publish_run *r, uint64_t *run_out, uint64_t *number_out)
{
    const struct tb_run_info *i = &r->info;
    const bool before = !i->has_last && key_of(r) == NULL && !starts(r) && i->resumed_run_order > 0;
    *run_out = before ? i->resumed_run_order : i->run_order;
    *number_out = before ? i->resumed_number : i->last_number;
    return i->has_last || before;
}

static enum tb_cli_exit not_above(const struct tb_publish_run *r, int status, const char *doing)
{
    TB_ASSERT(status != TB_OK);
    uint64_t run = 0;
    uint64_t number = 0;
    (void)newest(r, &run, &number);
    const char *how = key_of(r) != NULL ? "--new-run with another --run KEY"
                      : starts(r)       ? "--run KEY beside --new-run"
                                        : "--new-run";
    return tb_say_failure(r->call, status,
                          "%sversion %" PRIu64 " is not above %" PRIu64 ", the newest of run %" PRIu64
                          ": a higher number goes on with run %" PRIu64
                          "; %s starts another run, which shuts run %" PRIu64 " out",
                          doing, r->number, number, run, r->info.run_order, how, r->info.run_order);
}

enum tb_cli_exit tb_publish_run_open(struct tb_publish_run *r)
{
    uint64_t run = 0;
    uint64_t number = 0;
    const int status = join_or_start(r);
    if (status != TB_OK) return not_opened(r, status);
    if (!newest(r, &run, &number) || r->number > number || tb_publish_run_again(r)) return TB_CLI_DONE;
    return not_above(r, TB_BAD_STATE, "");
}

bool tb_publish_run_again(const struct tb_publish_run *r)
{
    return r->info.has_last && r->number == r->info.last_number;
}

enum tb_cli_exit tb_publish_run_failed(const struct tb_publish_run *r, int status)
{
    TB_ASSERT(tb_publish_run_again(r));
    char doing[512];
    (void)snprintf(doing, sizeof doing, "publishing: %.480s; ", tb_last_error());
    return not_above(r, status, doing);
}

bool tb_publish_run_shut_out(const struct tb_publish_run *r)
{
    return !r->info.joined && r->info.shut_out_run_order > 0;
}
